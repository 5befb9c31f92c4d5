"""Making tensors: from data, from sizes, from other tensors."""

from __future__ import annotations

import itertools
import math
import numbers
import operator
import sys
from array import array
from collections.abc import Mapping, Set
from ctypes import c_float, memmove
from typing import Any, NamedTuple

import numpy as np

from .. import devices, dtypes, errors, formats, gpu
from ..dtypes import dtype as Dtype
from ..graph import record, write
from ..graph.export import add_method, export
from ..graph.factories import factory
from ..graph.fastpath import constants
from ..graph.inplace import write_out
from ..graph.launch import launch
from ..graph.levels import tracers
from ..graph.node import Spec, dense_spec, spec_of
from ..graph.primitives import (
    NO_AXES,
    address_of,
    constant_recipe,
    filled,
    fresh_node,
    from_array,
    number,
)
from ..graph.state import state
from ..kernels.ops import fill
from ..schedule.jit import native
from ..schedule.planning.recipe import Recipe
from ..schedule.settle import float_word
from ..shapes import (
    Size,
    an_int,
    check_bool,
    checked_shape,
    is_dense,
    is_int,
    listed,
    shape_of,
    sized,
)
from ..storage import BorrowedMemory, free_small, size_class
from ..tensor import Tensor
from ..unknown import cached, whole
from .exchange import from_cuda_array_interface
from .handed_over import is_handed_over

# The recipes of floating constants: by the class of the number that becomes a tensor without axes in
# the default dtype, and by the spec of a tensor that others are like.
of_numbers: dict[Any, Recipe] = {}
dtypes.on_default_change(of_numbers.clear)
devices.on_first_gpu(of_numbers.clear)


class KnownList(NamedTuple):
    """What machine code knows of lists of one length."""

    spec: Spec
    free: list[Any]  # where blocks of that size wait


native.register_layout(KNOWN_LIST=KnownList)

# By the dtype that is asked for or None, and by their length, ~length for ints, or that and the length of
# the lists in them.
of_lists: dict[Any, dict[Any, KnownList]] = {}
dtypes.on_default_change(of_lists.clear)
devices.on_first_gpu(of_lists.clear)


def _finish(made: Any, requires_grad: bool, *, pin_memory: bool = False) -> Tensor:
    """Apply the arguments that every creation function takes."""
    if pin_memory:
        made = pinned(made)
    if requires_grad:
        if not made.dtype.is_floating_point:
            raise RuntimeError(
                "Only Tensors of floating point and complex dtype can require gradients"
            )
        made._needs_grad = True
    return made


def pinned(t: Tensor) -> Tensor:
    """A copy in page-locked memory, without history.

    Raises:
        RuntimeError: if it is not on the CPU, or where there is no GPU to lock it for.
    """
    if t._spec.device is not devices.CPU:
        raise RuntimeError(f"cannot pin '{t.type()}' only dense CPU tensors can be pinned")
    devices.check("cuda")
    spec = t._spec if is_dense(t._spec.shape, t._spec.strides) else dense_spec(t.shape, t.dtype)
    memory = gpu.PinnedMemory(spec.nbytes)
    block = BorrowedMemory(memory.address)
    block.memory = memory
    made = record.make_tensor(record.make_storage(record.ready_node(block), spec), spec)
    made._storage.shared = 1  # a write goes into the same bytes
    return made.copy_(t.detach())


# ----- from data -----


@constants(of_numbers, of_lists)
def tensor(
    data: Any,
    *,
    dtype: Dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make a new leaf with a copy of `data`: numbers, nested sequences of them, arrays, tensors.

    Python floats become the default dtype, ints int64, bools bool; arrays keep their dtype.

    Raises:
        ValueError: on rows of different lengths, and on tensors of several elements among others: `stack` them.
        TypeError: on strings.
        RuntimeError: on other things that are no numbers, and if gradients are asked for a dtype that cannot
            have them.

    Example:
        >>> adjit.tensor([[1, 2], [3, 4]], dtype=adjit.float64)
        tensor([[1., 2.],
                [3., 4.]], dtype=adjit.float64)
    """
    if record.is_tensor(data):
        errors.warn(
            "To copy construct from a tensor, it is recommended to use "
            "sourceTensor.detach().clone() or sourceTensor.detach().clone().requires_grad_(True), "
            "rather than torch.tensor(sourceTensor).",
        )
        made = data.detach().clone()
        made = made if dtype is None else made.to(dtype)
        device = data._spec.device if device is None else device
    else:
        made = _from_number(data, dtype)
        if made is None:
            made = _from_list(data, dtype)
        if made is None:
            made = from_array(_array_of(data, dtype))
    place = devices.check(device)
    if place is not devices.CPU or requires_grad is not False or pin_memory is not False:
        check_bool("tensor", "requires_grad", requires_grad)
        check_bool("tensor", "pin_memory", pin_memory)
        made = _finish(write.placed(made, place), requires_grad, pin_memory=pin_memory)
    return made


def _from_number(data: Any, kind: Dtype | None) -> Any:
    """A tensor of a Python number, where nothing about it can go wrong; else None."""
    found = data.__class__
    if found is not float and found is not bool and (found is not int or abs(data) > 1 << 53):
        return None
    own = dtypes.of_scalar(data)
    if kind is None:
        kind = own
        if found is float and not devices.gpus_used:
            of_numbers[float] = constant_recipe(NO_AXES, kind, devices.CPU)
    elif kind is not own and (kind.__class__ is not Dtype or not kind.is_floating_point):
        return None
    if kind not in dtypes.SUPPORTED:
        return None
    return number(data, kind)


def _from_list(data: Any, kind: Dtype | None) -> Any:
    """A tensor of a list or tuple of Python numbers, or of such lists; None if it is something else."""
    if data.__class__ is not list and data.__class__ is not tuple:
        return None
    asked, shape, found = kind, [len(data)], set(map(type, data))
    is_usual = data.__class__ is list and (found == {list} or len(found) == 1)
    while found and found <= {list, tuple}:
        width = len(data[0])
        if len(shape) == MOST_AXES or any(len(row) != width for row in data):
            return None
        is_usual = is_usual and found == {list}
        data = list(itertools.chain.from_iterable(data))
        shape.append(width)
        found = set(map(type, data))
    if not found <= {float, int, bool}:
        return None
    if kind is None:
        kind = dtypes.get_default_dtype()
        if found and float not in found:
            kind = dtypes.int64 if int in found else dtypes.bool
    else:
        kind = dtypes.check(kind)
    if kind.is_floating_point:
        if not kind.known_as:
            return None
    elif float in found or kind is not (dtypes.bool if found == {bool} else dtypes.int64):
        return None
    try:
        packed = array("B" if kind is dtypes.bool else kind.ctype._type_, data)
    except OverflowError:
        return None
    spec = _dense(tuple(shape), kind)
    if is_usual and len(shape) <= 2 and (found == {float} or found == {int}):
        _know_lists(asked, found == {float}, spec)
    node = fresh_node(spec)
    memmove(node.address, packed.buffer_info()[0], spec.nbytes)
    return record.result(node, spec)


def _know_lists(asked: Any, are_floats: bool, spec: Spec) -> None:
    """Have machine code make tensors of further lists like this one."""
    free = free_small.get(size_class(spec.nbytes))
    if free is not None and not devices.gpus_used:
        known = of_lists.setdefault(asked, {})
        if len(known) >= record.MAX_RECIPES:
            known.clear()
        length, *columns = spec.shape
        key = length if are_floats else ~length
        known[(key, *columns) if columns else key] = KnownList(spec, free)


@cached(1024)
def _dense(shape: tuple[int, ...], kind: Dtype) -> Spec:
    return dense_spec(sized(shape), kind)


def _array_of(data: Any, kind: Dtype | None) -> np.ndarray[Any, Any]:
    """`data` as an array of a supported dtype, which the caller may not own."""
    if kind is not None:
        kind = dtypes.check(kind)
    if isinstance(data, (bool, int, float)) and not isinstance(data, np.generic):
        kind = kind or dtypes.of_scalar(data)
        return _cast_numbers([data], kind).reshape(())
    if isinstance(data, complex):
        raise dtypes.unsupported(dtypes.complex64)
    if isinstance(data, (np.ndarray, np.generic)):
        array = np.asarray(data)
        return _cast_array(array, kind or dtypes.of_numpy(array.dtype.newbyteorder("=")))
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    interface = getattr(data, "__array_interface__", None) or getattr(data, "__array__", None)
    if interface is not None:
        return _array_of(np.asarray(data), kind)
    if not _is_sequence(data):
        if hasattr(data, "__iter__") and not isinstance(data, (Mapping, Set)):
            return _array_of(list(data), kind)
        raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")
    return _from_nested(data, kind)


MOST_AXES = 64  # of an array


def _from_nested(data: Any, kind: Dtype | None) -> np.ndarray[Any, Any]:
    """Nested sequences, checked for ragged rows as PyTorch does."""
    shape = []
    level = data
    while _is_sequence(level):
        shape.append(len(level))
        if not len(level):
            break
        if len(shape) > MOST_AXES:  # it may be a part of itself
            raise ValueError(f"too many dimensions '{type(level).__name__}'")
        try:
            level = level[0]
        except Exception as error:
            raise ValueError(
                f"could not determine the shape of object type '{type(level).__name__}'"
            ) from error
    values: list[Any] = []
    _collect(data, shape, 0, values)
    if kind is None:
        found = {dtypes.of_numpy(v.dtype) if isinstance(v, (np.generic, np.ndarray)) else v.dtype
                 if record.is_tensor(v) else dtypes.of_scalar(v) for v in _sample(values)}  # fmt: skip
        kind = dtypes.get_default_dtype()
        if found:
            kind = found.pop()
            for other in found:
                kind = dtypes.promote_types(kind, other)
    plain = [v.item() if record.is_tensor(v) else v for v in values]
    return _cast_numbers(plain, kind).reshape(shape)


def _sample(values: list[Any]) -> Any:
    """One value of each type: enough to know the dtype."""
    seen: dict[Any, Any] = {}
    for v in values:
        seen.setdefault((type(v), getattr(v, "dtype", None)), v)
    return seen.values()


def _is_sequence(value: Any) -> bool:
    """Whether a value is several; a tensor among others is one number, whatever axes it has."""
    if isinstance(value, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(value).__name__}'")
    if record.is_tensor(value):
        return False
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    is_indexed = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    return is_indexed and not isinstance(value, Mapping)


def _collect(data: Any, shape: list[int], depth: int, values: list[Any]) -> None:
    if depth == len(shape):
        if _is_sequence(data):
            raise TypeError(f"expected a number at dim {depth}, got a sequence: the data is ragged")
        if record.is_tensor(data):
            if data.numel() != 1:
                raise ValueError("only one element tensors can be converted to Python scalars")
        elif not isinstance(data, (numbers.Number, np.generic, np.ndarray)):
            raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")
        if isinstance(data, complex):
            raise dtypes.unsupported(dtypes.complex64)
        values.append(data)
        return
    if record.is_tensor(data) and data.ndim:
        data = list(data)
    if not _is_sequence(data):
        raise TypeError(
            f"expected a sequence of length {shape[depth]} at dim {depth} (got {type(data).__name__})"
        )
    if len(data) != shape[depth]:
        raise ValueError(
            f"expected sequence of length {shape[depth]} at dim {depth} (got {len(data)})"
        )
    if depth == len(shape) - 1 and isinstance(data, (list, tuple)):
        kinds = set(map(type, data))
        if kinds <= {float, int, bool}:
            values.extend(data)
            return
    for item in data:
        _collect(item, shape, depth + 1, values)


def _cast_array(array: np.ndarray[Any, Any], kind: Dtype) -> np.ndarray[Any, Any]:
    with np.errstate(invalid="ignore", over="ignore"):
        return array.astype(kind.numpy, copy=False)


def _cast_numbers(values: list[Any], kind: Dtype) -> np.ndarray[Any, Any]:
    """Numbers as an array of a dtype.

    Raises:
        ValueError: if one is no int64.
        RuntimeError: if the dtype is one of whole numbers that cannot hold one.
    """
    if kind.kind == "f":
        return _cast_array(np.array(values, np.float64), kind)
    whole = [v for v in values if isinstance(v, int)]
    if kind.kind != "b" and whole and not (min(whole) >= -MOST and max(whole) < MOST):
        raise ValueError("Overflow when unpacking long long")
    if kind.kind == "b":
        return np.array([bool(v) for v in values], np.bool_)
    array = np.array(values)
    limits = np.iinfo(kind.numpy)
    least = -limits.max if kind.kind == "u" and array.dtype.kind != "f" else limits.min
    if array.size and not (array.min() >= least and array.max() <= limits.max):
        raise RuntimeError(f"value cannot be converted to type {kind.name} without overflow")
    return _cast_array(array, kind)


MOST = 1 << 63  # ints below travel as words


def from_numpy(ndarray: np.ndarray[Any, Any]) -> Tensor:
    """Make a tensor on the memory of an array: writes to one are seen by the other.

    Raises:
        TypeError: if it is no array, or of a dtype without counterpart.
        ValueError: on negative strides, or other byte order.

    Example:
        >>> import numpy as np
        >>> array = np.zeros(2)
        >>> x = adjit.from_numpy(array)
        >>> array[0] = 1
        >>> x
        tensor([1., 0.], dtype=adjit.float64)
    """
    count = sys.getrefcount(ndarray)
    return _on_memory_of(ndarray, count)


def _on_memory_of(ndarray: np.ndarray[Any, Any], count: int) -> Tensor:
    """`from_numpy` of an array that was given to a function in which `sys.getrefcount` of it was `count`."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    if not ndarray.dtype.isnative:
        raise ValueError(
            "given numpy array has byte order different from the native byte order. Conversion "
            "between byte orders is currently not supported."
        )
    kind = dtypes.of_numpy(ndarray.dtype)
    flags = ndarray.flags
    if min(ndarray.strides, default=0) < 0:
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative "
            "strides are not currently supported. (You can probably work around this by making a "
            "copy of your array  with array.copy().) "
        )
    is_seen = not is_handed_over(ndarray, count)
    is_dense = flags.c_contiguous and 1 not in ndarray.shape  # an axis of 1 may have any stride
    if is_dense and flags.writeable and ndarray.size:
        return _sharing(ndarray, dense_spec(ndarray.shape, kind), is_seen)
    size = kind.itemsize
    if any(st % size for st in ndarray.strides):
        raise ValueError(
            "given numpy array strides not a multiple of the element byte size. Copy the numpy "
            "array to reallocate the memory."
        )
    if not flags.writeable:
        errors.warn(
            "The given NumPy array is not writable, and PyTorch does not support non-writable "
            "tensors. This means writing to this tensor will result in undefined behavior. You may "
            "want to copy the array to protect its data or make it writable before converting it "
            "to a tensor. This type of warning will be suppressed for the rest of this program.",
        )
        return from_array(ndarray)
    return sharing_array(ndarray, is_seen) if ndarray.size else from_array(ndarray)


def sharing_array(ndarray: np.ndarray[Any, Any], is_seen: bool = True) -> Tensor:
    """A tensor on the memory of an array, at which others may look."""
    kind = dtypes.of_numpy(ndarray.dtype)
    strides = tuple([step // kind.itemsize for step in ndarray.strides])
    return _sharing(ndarray, spec_of(sized(ndarray.shape), strides, kind), is_seen)


def _sharing(ndarray: np.ndarray[Any, Any], spec: Spec, is_seen: bool) -> Tensor:
    """A tensor on the memory of an array, whose layout is known."""
    block = BorrowedMemory(address_of(ndarray))
    block.memory, block.is_seen = ndarray, is_seen
    storage = record.make_storage(record.ready_node(block), spec)
    if not is_dense(spec.shape, spec.strides):
        storage.spec = dense_spec((spec.extent,), spec.dtype)
    storage.shared = int(is_seen)
    made: Tensor = record.make_tensor(storage, spec)
    return made


def as_tensor(data: Any, dtype: Dtype | None = None, device: Any = None) -> Tensor:
    """Make a tensor of `data`, without a copy where none is needed: tensors stay, arrays are shared.

    Example:
        >>> x = adjit.tensor([1., 2.])
        >>> adjit.as_tensor(x) is x, adjit.as_tensor([1, 2])
        (True, tensor([1, 2]))
    """
    count = sys.getrefcount(data)
    if record.is_tensor(data):
        return data.to(device, dtype)
    if isinstance(data, np.ndarray):
        return _on_memory_of(data, count).to(devices.check(device), dtype)
    if hasattr(data, "__cuda_array_interface__"):
        return from_cuda_array_interface(data).to(device, dtype)
    if dtype is None and device is None:  # as machine code knows it
        return tensor(data)
    return tensor(data, dtype=dtype, device=device)


@factory
def scalar_tensor(
    s: Any, *, dtype: Dtype | None = None, layout: Any = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Make a 0-d tensor of a number, in the default dtype unless another is given.

    Example:
        >>> adjit.scalar_tensor(2)
        tensor(2.)
    """
    value = record.plain_number(s, "scalar_tensor", "s")
    kind = dtype or dtypes.get_default_dtype()
    dtypes.check_fits(value, kind)
    return full(
        (), value, dtype=kind, device=device, pin_memory=pin_memory, requires_grad=requires_grad
    )


# ----- from sizes -----


def kind_of(dtype: Dtype | None, out: Any) -> Dtype | None:
    """The dtype that is asked for, or that of `out`.

    Raises:
        RuntimeError: if they differ.
    """
    if out is None:
        return dtype
    if dtype is not None and dtypes.check(dtype) is not out.dtype:
        raise RuntimeError(
            f"dtype {dtype.legacy} does not match dtype of out parameter ({out.dtype.legacy})"
        )
    return out.dtype


@constants(of_numbers)
def number_like(like: Tensor, value: Any) -> Tensor:
    """A number in every place of a tensor with the shape and dtype of another one, recorded.

    Raises:
        RuntimeError: if it is a whole number beyond those of the dtype.
    """
    spec, kind = like._spec, like._spec.dtype
    dtypes.check_fits(value, kind)
    if kind.is_floating_point:
        if len(of_numbers) >= record.MAX_RECIPES:
            of_numbers.clear()
        of_numbers[spec] = constant_recipe(spec.shape, kind, spec.device)
    made: Tensor = filled(spec.shape, value, kind, spec.device)
    return made


@factory
def full(
    size: Any, fill_value: Any, *, out: Any = None, dtype: Dtype | None = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Make a tensor of one value; the dtype is that of the value if none is given.

    Args:
        size: the shape.
        fill_value: a number or a bool.

    Raises:
        RuntimeError: on negative sizes.

    Example:
        >>> adjit.full((2, 2), 7)
        tensor([[7, 7],
                [7, 7]])
    """
    if not isinstance(size, (tuple, list)):
        raise TypeError(
            f"full(): argument 'size' (position 1) must be tuple of ints, not {type(size).__name__}"
        )
    fill_value = record.plain_number(fill_value, "full", "fill_value")
    dtype = kind_of(dtype, out)
    kind = dtypes.check(dtype) if dtype is not None else dtypes.of_scalar(fill_value)
    dtypes.check_fits(fill_value, kind)
    made = filled(checked_shape((size,)), fill_value, kind, devices.check(device))
    made = _finish(made, requires_grad, pin_memory=pin_memory)
    return made if out is None else _into(out, made)


def _into(out: Tensor, made: Tensor) -> Tensor:
    return write_out("out", out, made)


@factory
@listed("size", after=0)
def zeros(
    *size: Any, out: Any = None, dtype: Dtype | None = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Make a tensor of zeros, of the default dtype if none is given.

    Args:
        size: the shape, as one sequence or as numbers.

    Example:
        >>> adjit.zeros(2, 3)
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
    """
    dtype = kind_of(dtype, out)
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.check(dtype)
    made = filled(checked_shape(size), 0, kind, devices.check(device))
    made = _finish(made, requires_grad, pin_memory=pin_memory)
    return made if out is None else _into(out, made)


@factory
@listed("size", after=0)
def ones(
    *size: Any, out: Any = None, dtype: Dtype | None = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Make a tensor of ones, of the default dtype if none is given.

    Args:
        size: the shape, as one sequence or as numbers.

    Example:
        >>> adjit.ones(2, 3)
        tensor([[1., 1., 1.],
                [1., 1., 1.]])
    """
    dtype = kind_of(dtype, out)
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.check(dtype)
    made = filled(checked_shape(size), 1, kind, devices.check(device))
    made = _finish(made, requires_grad, pin_memory=pin_memory)
    return made if out is None else _into(out, made)


RECORDED = 1 << 24  # bytes of undefined elements; more are asked for at once, as there may be none


@factory
@listed("size", after=0)
def empty(
    *size: Any, out: Any = None, dtype: Dtype | None = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Make a tensor of undefined elements, of the default dtype if none is given.

    Args:
        size: the shape, as one sequence or as numbers.
        memory_format: `contiguous_format`, `channels_last` (4 axes) or `channels_last_3d` (5 axes).

    Example:
        >>> adjit.empty(2, 3).shape
        adjit.Size([2, 3])
    """
    formats.check_layout("empty", layout)
    dtype = kind_of(dtype, out)
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.check(dtype)
    spec = dense_spec(checked_shape(size), kind, devices.check(device))
    if memory_format is not None:
        formats.check("empty", memory_format)
        strides = formats.strides_in(spec.shape, memory_format)
        spec = spec_of(spec.shape, strides, kind, spec.device)
    if spec.device is devices.CPU and spec.nbytes <= RECORDED:
        # A kernel without units: calls that came before are recorded as any.
        made = launch(fill.constant_int, (), [(spec.shape, kind)], bind={"T": kind}, scalars=(0,))
        made._spec = spec
    else:
        state.deterministic = False
        made = record.result(fresh_node(spec), spec)
    made = _finish(made, requires_grad, pin_memory=pin_memory)
    return made if out is None else _into(out, made)


def empty_strided(
    size: Any, stride: Any, *, dtype: Dtype | None = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Make a tensor of undefined elements with the given strides.

    Args:
        size: the shape.
        stride: elements to step over from one index to the next, for each axis.

    Example:
        >>> adjit.empty_strided((2, 3), (1, 2)).stride()
        (1, 2)
    """
    formats.check_layout("empty_strided", layout)
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.check(dtype)
    place = devices.check(device)
    shape, strides = checked_shape((size,)), tuple(shape_of((stride,)))
    if len(shape) != len(strides):
        raise RuntimeError(
            f"dimensionality of sizes ({len(shape)}) must match dimensionality of strides "
            f"({len(strides)})"
        )
    if min(strides, default=0) < 0:
        raise RuntimeError(
            f"Storage size calculation overflowed with sizes={list(shape)} and strides={list(strides)}"
        )
    spec = spec_of(shape, strides, kind, place)
    whole = spec if is_dense(spec.shape, spec.strides) else dense_spec((spec.extent,), kind, place)
    state.deterministic = False
    made = record.make_tensor(record.make_storage(fresh_node(whole), whole), spec)
    return _finish(made, requires_grad, pin_memory=pin_memory)


def laid_out_like(made: Tensor, input: Tensor, memory_format: Any) -> Tensor:
    """A new tensor in C order, whose elements nobody has told apart, with the strides that PyTorch gives to
    what is like another one."""
    spec = made._spec
    like = input._spec
    if made.__class__ in tracers or (like.strides == spec.strides and memory_format is None):
        return made
    formats.check("empty_like", memory_format)
    strides = formats.strides_like(spec.shape, like.strides, memory_format)
    if strides == spec.strides:
        return made
    reported = formats.strides_like(spec.shape, like.reported, memory_format)
    turned: Tensor = record.result(
        made._storage.value, spec_of(spec.shape, strides, spec.dtype, spec.device, reported)
    )
    turned._needs_grad = made._needs_grad
    return turned


def _like(name: str, make: Any, elements: str, call: str, shown: str) -> Any:
    def like(
        input: Tensor, *args: Any, dtype: Dtype | None = None, layout: Any = None,
        device: Any = None, requires_grad: bool = False, memory_format: Any = None, **more: Any,
    ) -> Tensor:  # fmt: skip
        record.check_tensor(name, "input", 1, input)
        place = input._spec.device if device is None else device
        more.update(
            dtype=dtype or input.dtype, layout=layout, device=place, requires_grad=requires_grad
        )
        made = make(input.shape, *args, **more)
        return laid_out_like(made, input, memory_format)

    like.__name__ = like.__qualname__ = name
    like.__doc__ = f"""{elements} in the shape, with the dtype and on the device of another tensor.

    Takes the keyword arguments of `{make.__name__}`, which change the latter two. Without history. The
    strides are those of the other tensor, without gaps; `memory_format` asks for others.

    Example:
        >>> x = adjit.tensor([1., 2.])
        >>> adjit.{name}{call}
        {shown}
    """
    return like


zeros_like = factory(_like("zeros_like", zeros, "Zeros", "(x)", "tensor([0., 0.])"))
ones_like = factory(_like("ones_like", ones, "Ones", "(x)", "tensor([1., 1.])"))
empty_like = factory(
    _like("empty_like", empty, "Undefined elements", "(x).shape", "adjit.Size([2])")
)
full_like = factory(_like("full_like", full, "One value", "(x, 7)", "tensor([7., 7.])"))


def _new(name: str, make: Any, call: str, shown: str) -> None:
    def method(
        self: Tensor, *args: Any, dtype: Dtype | None = None, device: Any = None, **more: Any
    ) -> Tensor:
        place = self._spec.device if device is None else device
        more.update(dtype=dtype or self.dtype, device=place)
        return make(*args, **more)

    method.__doc__ = f"""Call `adjit.{name}` with the dtype and the device of this tensor as defaults.

    Example:
        >>> x = adjit.ones(2, dtype=adjit.float64)
        >>> x.new_{name}{call}
        {shown}
    """
    method.__name__ = method.__qualname__ = f"new_{name}"
    add_method(method.__name__, method if name == "tensor" else factory(method))


for _name, _make, _call, _shown in (
    ("zeros", zeros, "(2)", "tensor([0., 0.], dtype=adjit.float64)"),
    ("ones", ones, "(2)", "tensor([1., 1.], dtype=adjit.float64)"),
    ("empty", empty, "(2, 3).dtype", "adjit.float64"),
    ("full", full, "((2,), 7)", "tensor([7., 7.], dtype=adjit.float64)"),
    ("tensor", tensor, "([3, 4])", "tensor([3., 4.], dtype=adjit.float64)"),
    ("empty_strided", empty_strided, "((2, 3), (1, 2)).stride()", "(1, 2)"),
):
    _new(_name, _make, _call, _shown)


@export
@factory
def arange(
    start: Any = 0, end: Any = None, step: Any = 1, *, out: Any = None, dtype: Dtype | None = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Numbers from `start` (0) to before `end`, every `step`; int64 if all are integers.

    Raises:
        RuntimeError: if the step is zero or leads away from `end`.

    Example:
        >>> adjit.arange(5)
        tensor([0, 1, 2, 3, 4])
        >>> adjit.arange(0, 1, 0.25)
        tensor([0.0000, 0.2500, 0.5000, 0.7500])
    """
    if end is None:
        start, end = 0, start
    start, end, step = _bounds("arange", start, end, step)
    dtype = kind_of(dtype, out)
    if dtype is None:
        is_whole = all(isinstance(v, int) for v in (start, end, step))
        kind = dtypes.int64 if is_whole else dtypes.get_default_dtype()
    else:
        kind = dtypes.check(dtype)
    _check_finite(start, end)
    length, stride = end - start, step
    if kind.kind in "iu":
        start, end, step = map(whole, (start, end, step))
    _check_step(start, end, step)
    # int64 counts the whole numbers of its ends, others the ends.
    count = -((start - end) // step) if kind is dtypes.int64 else math.ceil(length / stride)
    count = max(0, count)
    made = _ramp(count, start, step, kind, devices.check(device))
    return _row(made, requires_grad, device, out)


@export
def range(
    start: Any, end: Any, step: Any = 1, *, out: Any = None, dtype: Dtype | None = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Numbers from `start` to `end`, both included, every `step`; an old name, which warns: use `arange`.

    Raises:
        RuntimeError: if the step is zero or leads away from `end`.

    Example:
        >>> adjit.range(1, 3)
        tensor([1., 2., 3.])
    """
    errors.warn(
        "torch.range is deprecated and will be removed in a future release because its behavior is "
        "inconsistent with Python's range builtin. Instead, use torch.arange, which produces values in "
        "[start, end).",
    )
    formats.check_layout("range", layout)
    start, end, step = _bounds("range", start, end, step)
    dtype = kind_of(dtype, out)
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.check(dtype)
    _check_finite(start, end)
    if kind.kind in "iu":
        start, end, step = (int(v) for v in (start, end, step))
    _check_step(start, end, step)
    made = _ramp(int((end - start) / step) + 1, start, step, kind, place_of(device, out))
    return _row(made, requires_grad, device, out)


def _bounds(name: str, *given: Any) -> list[Any]:
    """The numbers that a start, an end and a step are, which may be NumPy's, or tensors without gradients."""
    names = ("start", "end", "step")
    plain = [record.plain_number(v, name, which) for v, which in zip(given, names, strict=True)]
    return [v.item() if hasattr(v, "item") else v for v in plain]


def _check_finite(start: Any, end: Any) -> None:
    if not all(math.isfinite(v) for v in (start, end) if isinstance(v, float)):
        raise RuntimeError(f"unsupported range: {start:g} -> {end:g}")


def _check_step(start: Any, end: Any, step: Any) -> None:
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (step > 0) != (end >= start) and end != start:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")


def _done(made: Any, requires_grad: bool, device: Any, out: Any) -> Tensor:
    finished = _finish(write.placed(made, place_of(device, out)), requires_grad)
    return finished if out is None else _into(out, finished)


def _row(made: Any, requires_grad: bool, device: Any, out: Any) -> Tensor:
    """A vector, which an `out` with as many elements takes in its own shape."""
    if out is not None and out.numel() == made.numel():
        made = made.view(out.shape)
    return _done(made, requires_grad, device, out)


def place_of(device: Any, out: Any) -> devices.device:
    """The device that is asked for, or that of `out`, or the default one."""
    return out._spec.device if device is None and out is not None else devices.check(device)


def _ramp(count: int, start: Any, step: Any, kind: Dtype, place: devices.device) -> Any:
    if kind.is_floating_point:
        return launch(
            fill.ramp_float, (), [((count,), kind)], bind={"T": kind},
            scalars=(*_with_rest(start), *_with_rest(step)), n=count, grain=1 << 15, device=place,
        )  # fmt: skip
    return launch(
        fill.ramp_int, (), [((count,), kind)], bind={"T": kind}, scalars=(int(start), int(step)),
        n=count, grain=1 << 15, device=place,
    )  # fmt: skip


def _with_rest(value: Any) -> tuple[int, int]:
    """A number as a word, and what its float32 leaves of it: see `kernels/math/double_word.py`."""
    return float_word(float(value)), float_word(value - c_float(value).value)


@export
@factory
def linspace(
    start: Any, end: Any, steps: int, *, out: Any = None, dtype: Dtype | None = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """`steps` numbers from `start` to `end`, both included, equally spaced.

    Raises:
        RuntimeError: if `steps` is negative.

    Example:
        >>> adjit.linspace(0, 1, 5)
        tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    made = _spaced("linspace", start, end, steps, kind_of(dtype, out), 0.0, place_of(device, out))
    return _row(made, requires_grad, device, out)


@export
@factory
def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, out: Any = None,
    dtype: Dtype | None = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """`steps` powers of `base`, their exponents equally spaced from `start` to `end`.

    Example:
        >>> adjit.logspace(0, 2, 3)
        tensor([  1.,  10., 100.])
    """
    made = _spaced(
        "logspace", start, end, steps, kind_of(dtype, out), float(base), place_of(device, out)
    )
    return _row(made, requires_grad, device, out)


def _spaced(
    name: str,
    start: Any,
    end: Any,
    steps: int,
    kind: Dtype | None,
    base: float,
    place: devices.device,
) -> Any:
    if not is_int(steps):
        raise TypeError(f"{name}(): argument 'steps' must be int, not {type(steps).__name__}")
    steps = operator.index(steps)
    axes = [getattr(v, "ndim", 0) for v in (start, end)]
    if any(axes):
        raise RuntimeError(
            f"{name} only supports 0-dimensional start and end tensors, but got start with {axes[0]} "
            f"dimension(s) and end with {axes[1]} dimension(s)."
        )
    start, end = (v.item() if hasattr(v, "item") else v for v in (start, end))
    kind = dtypes.get_default_dtype() if kind is None else dtypes.check(kind)
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    for bound in (start, end):
        dtypes.check_fits(bound, kind)
    if kind.kind in "iu":
        start, end = (int(np.array(int(bound)).astype(kind.numpy)) for bound in (start, end))
    # Both ends are exact, and the second half counts down from the end, as in PyTorch.
    work = kind if kind.is_floating_point else dtypes.float64
    step = (float(end) - float(start)) / max(steps - 1, 1)
    made = launch(
        fill.spaced, (), [((steps,), work)], bind={"T": work}, words=(steps,),
        scalars=[word for v in (start, end, step, base) for word in _with_rest(v)], n=steps,
        grain=1 << 14, device=place,
    )  # fmt: skip
    return made if work is kind else made.to(kind)


@export
@factory
def eye(
    n: int, m: int | None = None, *, out: Any = None, dtype: Dtype | None = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Make a matrix, square unless `m` columns are given, with ones on the diagonal, zeros elsewhere.

    Args:
        n: rows.
        m: columns; as many as rows unless given.

    Example:
        >>> adjit.eye(2, 3)
        tensor([[1., 0., 0.],
                [0., 1., 0.]])
    """
    n = an_int("eye", "n", 1, n)
    columns = n if m is None else an_int("eye", "m", 2, m)
    for name, size in (("n", n), ("m", columns)):
        if size < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {size}")
    dtype = kind_of(dtype, out)
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.check(dtype)
    made = launch(
        fill.identity, (), [((n, columns), kind)], bind={"T": kind}, words=(columns,), n=n,
        grain=max(1, (1 << 15) // max(columns, 1)),
    )  # fmt: skip
    return _done(made, requires_grad, device, out)


for _function in (
    tensor, from_numpy, as_tensor, scalar_tensor, empty_strided,
    *[factory(make, for_users=True) for make in (zeros, ones, full, empty)],
    *[factory(make, for_users=True) for make in (zeros_like, ones_like, empty_like, full_like)],
):  # fmt: skip
    export(_function)


# ----- legacy constructors -----


def legacy_tensor(
    args: tuple[Any, ...], kwargs: dict[str, Any], kind: Dtype, place: Any = "cpu"
) -> Tensor:
    """`Tensor(2, 3)`, `Tensor([1, 2])`, `Tensor(tensor)`, `FloatTensor(...)`."""
    place = devices.check(kwargs.pop("device", place))
    if kwargs:
        raise TypeError(f"new() got an unexpected keyword argument '{next(iter(kwargs))}'")
    if not args:
        return empty(0, dtype=kind, device=place)
    if len(args) == 1 and (isinstance(args[0], bool) or not isinstance(args[0], int)):
        data: Any = args[0]
        if isinstance(data, Size):
            return empty(data, dtype=kind, device=place)
        if record.is_tensor(data):
            return data.detach().to(place, kind)
        if is_int(data) and getattr(data, "dtype", np.dtype(int)).kind in "iu":  # one of NumPy's
            return empty(operator.index(data), dtype=kind, device=place)
        if isinstance(data, (bool, float, np.generic)):
            room = "numpy." if isinstance(data, np.generic) else ""
            raise TypeError(f"new(): data must be a sequence (got {room}{type(data).__name__})")
        return tensor(data, dtype=kind, device=place)
    return empty(*args, dtype=kind, device=place)


def _constructed(cls: type[Tensor], *args: Any, **kwargs: Any) -> Any:
    kind = dtypes.get_default_dtype()
    if len(args) == 1 and record.is_tensor(args[0]):  # which keeps its dtype
        kind = args[0].dtype
    made = legacy_tensor(args, kwargs, kind)
    return made if type(made) is cls else made.as_subclass(cls)


add_method("__new__", _constructed)


def _as_before(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Make a tensor of the same dtype and on the same device as PyTorch did before `new_empty`.

    Args:
        args: sizes, for undefined elements; or a list or an array of elements; or a tensor, whose memory is
            shared if its dtype and device are those of this one, without its history.
        kwargs: `device`.

    Example:
        >>> x = adjit.ones(2, dtype=adjit.float64)
        >>> x.new(2, 3).shape, x.new([1, 2])
        (adjit.Size([2, 3]), tensor([1., 2.], dtype=adjit.float64))
    """
    if "size" in kwargs:
        args = (Size(kwargs.pop("size")),)
    return legacy_tensor(args, kwargs, input.dtype, input.device)


add_method("new", _as_before)


class LegacyType(type):
    """Make the classes of tensors of one dtype, which PyTorch had before `tensor`."""

    dtype: Dtype
    _place: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Tensor:
        return legacy_tensor(args, kwargs, cls.dtype, cls._place)

    def __instancecheck__(cls, value: Any) -> bool:
        is_here = record.is_tensor(value) and value._spec.device.type == cls._place
        return is_here and value.dtype is cls.dtype


_LEGACY = """Make a tensor of {kind} as PyTorch did before `tensor`: of sizes, undefined, or of a list.

    `isinstance` asks for the dtype and the kind of device.

    Example:
        >>> {name} | None  # as in annotations
        {name} | None
    """


def _legacy_types(place: str) -> dict[str, LegacyType]:
    """The classes of a kind of device. Of half precision they are for annotations: no tensor is one."""
    kinds = *(d for d in dtypes.SUPPORTED if d.row.method), dtypes.float16, dtypes.bfloat16
    module = "adjit" if place == "cpu" else "adjit.cuda"
    made = {}
    for kind in kinds:
        name = f"{kind.legacy}Tensor"
        doc = _LEGACY.format(kind=kind.name, name=f"{module}.{name}")
        own = {"__module__": module, "__doc__": doc, "dtype": kind, "_place": place}
        made[name] = LegacyType(name, (), own)
    return made


legacy_types, cuda_types = _legacy_types("cpu"), _legacy_types("cuda")


def legacy_dtype(kind: Any) -> tuple[Dtype, str | None]:
    """The dtype and the kind of device named by a legacy constructor, its name, or a dtype."""
    if isinstance(kind, str):
        room, _, name = kind.rpartition(".")
        found = (cuda_types if room.endswith("cuda") else legacy_types).get(name)
        if found is None:
            raise ValueError(f"invalid type: '{kind}'")
        kind = found
    if isinstance(kind, LegacyType):
        return kind.dtype, kind._place
    if kind is Tensor:
        return dtypes.get_default_dtype(), None
    return dtypes.check(kind), None


def _shape_as_tensor(self: Tensor) -> Tensor:
    """The shape, as a tensor of whole numbers."""
    record.check_tensor("_shape_as_tensor", "self", 1, self)
    return tensor(list(self.shape), dtype=dtypes.int64)


def _reshape_from_tensor(self: Tensor, shape: Tensor) -> Tensor:
    """Reshape to the numbers of a tensor."""
    record.check_tensor("_reshape_from_tensor", "self", 1, self)
    record.check_tensor("_reshape_from_tensor", "shape", 2, shape)
    return self.reshape(shape.tolist())
