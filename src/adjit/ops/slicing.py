"""Parts of tensors, as views, and zeros around the gradient of a part."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..graph import record
from ..graph.export import export
from ..graph.levels import tracers
from ..graph.links import kind_of_views, parts
from ..graph.node import Spec, dense_spec, spec_of
from ..graph.operation import operation
from ..graph.view import alias, aliases, strided
from ..graph.view_cache import caches_views
from ..shapes import (
    an_int,
    is_int,
    listed,
    numpy_names,
    shape_of,
    wrap_dim,
)
from ..tensor import Tensor
from ..unknown import bounds_of, cached
from .conversions import linked_copy
from .joining import cat, stack
from .regions import scatter_strided, zeros_in


@export(method=True)
@caches_views
@numpy_names
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """Take one index of an axis, which goes away: a view.

    Raises:
        IndexError: if there is no such index, or no axis.

    Example:
        >>> adjit.tensor([[1, 2], [3, 4]]).select(1, 0)
        tensor([1, 3])
    """
    spec = input._spec
    if not spec.ndim:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    d = wrap_dim(dim, spec.ndim)
    size = spec.shape[d]
    k = an_int("select", "index", 3, index)
    if not -size <= k < size:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(spec.shape)} at "
            f"dimension {d}"
        )
    k %= size
    shape, strides = spec.shape, spec.strides
    return alias(
        input, shape[:d] + shape[d + 1 :], strides[:d] + strides[d + 1 :],
        input._offset + k * strides[d], "SelectBackward0",
        lambda g: scatter_part(g, spec, "select", d, k),
    )  # fmt: skip


def slice_dim(input: Tensor, dim: int, start: int, stop: int, step: int) -> Tensor:
    """Indices `start:stop:step` of an axis, already within its size: a view."""
    spec = input._spec
    shape, strides = list(spec.shape), list(spec.strides)
    offset = input._offset + start * strides[dim]
    shape[dim] = max(0, (stop - start + step - 1) // step)
    strides[dim] *= step
    return alias(
        input, shape, tuple(strides), offset, "SliceBackward0",
        lambda g: scatter_part(g, spec, "slice", dim, start, stop, step),
    )  # fmt: skip


@export(method=True)
@caches_views
@numpy_names
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """Take `length` indices of an axis from `start` on: a view.

    Raises:
        RuntimeError: if they are not all there.

    Example:
        >>> adjit.tensor([1, 2, 3, 4]).narrow(0, 1, 2)
        tensor([2, 3])
    """
    if input.ndim == 0:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    d = wrap_dim(dim, input.ndim)
    size = input.shape[d]
    if record.is_tensor(start) and (start.ndim or start.dtype.kind not in "iu"):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    first, length = an_int("narrow", "start", 3, start), an_int("narrow", "length", 4, length)
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if not -size <= first <= size:
        raise IndexError(
            f"start out of range (expected to be in range of [{-size}, {size}], but got {first})"
        )
    if first < 0:
        first += size
    if first + length > size:
        raise RuntimeError(f"start ({first}) + length ({length}) exceeds dimension size ({size}).")
    return slice_dim(input, d, first, first + length, 1)


@export(method=True)
@caches_views
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """View the diagonal of two axes as the last axis; `offset` is positive above the main one.

    Args:
        offset: which diagonal: 0 the main one.
        dim1, dim2: the axes of the matrices.

    Example:
        >>> adjit.tensor([[1, 2], [3, 4]]).diagonal()
        tensor([1, 4])
    """
    spec, offset = input._spec, an_int("diagonal", "offset", 2, offset)
    a, b = wrap_dim(dim1, spec.ndim), wrap_dim(dim2, spec.ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    rows, columns = spec.shape[a], spec.shape[b]
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    start = input._offset
    if length:
        start += offset * spec.strides[b] if offset >= 0 else -offset * spec.strides[a]
    rest = [d for d in range(spec.ndim) if d not in (a, b)]
    return alias(
        input, [*(spec.shape[d] for d in rest), length],
        (*(spec.strides[d] for d in rest), spec.strides[a] + spec.strides[b]), start,
        "DiagonalBackward0", lambda g: scatter_part(g, spec, "diagonal", offset, a, b),
    )  # fmt: skip


@export(public=False, method=True)
@caches_views
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """View windows of `size` along an axis, one every `step`, as a new last axis.

    Args:
        dimension: the axis.
        size: of a window.
        step: from one window to the next.

    Raises:
        RuntimeError: if a window does not fit, or the step is not positive.

    Example:
        >>> adjit.tensor([1, 2, 3, 4, 5]).unfold(0, 3, 2)
        tensor([[1, 2, 3],
                [3, 4, 5]])
    """
    size, step = an_int("unfold", "size", 2, size), an_int("unfold", "step", 3, step)
    spec = input._spec
    d = wrap_dim(dimension, spec.ndim)
    length = spec.shape[d] if spec.ndim else 1
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > length:
        raise RuntimeError(
            f"maximum size for tensor at dimension {d} is {length} but size is {size}"
        )
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    dense = dense_spec(spec.shape, spec.dtype, spec.device)  # what the gradient of the tensor is
    made, windows = (_windows(one, d, size, step) for one in (spec, dense))
    return alias(
        input,
        made.shape,
        made.strides,
        input._offset,
        "UnfoldBackward0",
        lambda g: scatter_strided(g, dense, windows, 0),
    )


def _windows(spec: Spec, axis: int, size: int, step: int) -> Spec:
    """Windows along an axis of a tensor, as a view of it."""
    shape, strides, stride = list(spec.shape), list(spec.strides), 1
    if spec.ndim:  # of no dimension is a window by itself
        stride = strides[axis]
        shape[axis] = (shape[axis] - size) // step + 1
        strides[axis] = stride * step
    return spec_of((*shape, size), (*strides, stride), spec.dtype, spec.device)


@export(method=True)
@caches_views
@numpy_names
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Take an axis apart into its slices: views.

    Args:
        dim: the axis.

    Raises:
        IndexError: on a 0-d tensor.

    Example:
        >>> adjit.tensor([[1, 2], [3, 4]]).unbind()
        (tensor([1, 2]), tensor([3, 4]))
    """
    spec = input._spec
    if not spec.ndim:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    d = wrap_dim(dim, spec.ndim)
    shape, strides = spec.shape[:d] + spec.shape[d + 1 :], spec.strides[:d] + spec.strides[d + 1 :]
    slice_spec = spec_of(shape, strides, spec.dtype, spec.device)
    parts = [(slice_spec, k * spec.strides[d]) for k in range(spec.shape[d])]
    return aliases(input, parts, "UnbindBackward0", lambda gs: _stacked(gs, slice_spec, d))


def _stacked(grads: Sequence[Any], spec: Spec, d: int) -> Tensor:
    return stack([zeros_in(spec) if g is None else g for g in grads], d)


def _joined(grads: Sequence[Any], specs: Sequence[Spec], d: int) -> Tensor:
    return cat([zeros_in(s) if g is None else g for g, s in zip(grads, specs, strict=True)], d)


def _parts(input: Tensor, sizes: Sequence[int], d: int, name: str) -> tuple[Tensor, ...]:
    spec = input._spec
    parts = _cut(spec, tuple(sizes), d)
    return aliases(input, parts, name, lambda gs: _joined(gs, [s for s, _ in parts], d))


@cached(1024)
def _cut(spec: Spec, sizes: tuple[int, ...], d: int) -> list[tuple[Spec, int]]:
    """The parts of these sizes along an axis, and where each starts."""
    shape, strides, kind = spec.shape, spec.strides, spec.dtype
    starts = itertools.accumulate(sizes, initial=0)
    return [
        (
            spec_of((*shape[:d], size, *shape[d + 1 :]), strides, kind, spec.device),
            start * strides[d],
        )
        for size, start in zip(sizes, starts, strict=False)
    ]


@export(method=True)
@caches_views
@listed("split_size")
@numpy_names
def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Cut an axis into parts of one size (the last may be smaller) or of the given sizes: views.

    Args:
        split_size_or_sections: the size of a part, or the sizes of all.
        dim: the axis.

    Raises:
        RuntimeError: if the sizes do not add up, or are negative.

    Example:
        >>> adjit.tensor([1, 2, 3, 4, 5]).split(2)
        (tensor([1, 2]), tensor([3, 4]), tensor([5]))
    """
    if tensor.ndim == 0:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    d = wrap_dim(dim, tensor.ndim)
    total = tensor.shape[d]
    if is_int(split_size_or_sections) or not hasattr(split_size_or_sections, "__iter__"):
        size = an_int("split", "split_size", 2, split_size_or_sections)
        if size < 0:
            raise RuntimeError(
                f"split expects split_size be non-negative, but got split_size={size}"
            )
        if size == 0:
            if total:
                raise RuntimeError(
                    "split_size can only be 0 if dimension size is 0, but got dimension size of "
                    f"{total}"
                )
            sizes = [0]
        else:
            sizes = [min(size, total - k) for k in range(0, total, size)] or [0]
        return _parts(tensor, sizes, d, "SplitBackward0")
    sizes = [an_int("split", "split_sizes", 2, s) for s in split_size_or_sections]
    if sum(sizes) != total or any(s < 0 for s in sizes):
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {total} (input tensor's size "
            f"at dimension {d}), but got split_sizes={sizes}"
        )
    return _parts(tensor, sizes, d, "SplitWithSizesBackward0")


@export(method=True)
@caches_views
@numpy_names
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Cut an axis into parts of the given sizes: views.

    Args:
        split_sizes: the sizes of all parts.
        dim: the axis.

    Raises:
        RuntimeError: if the sizes do not add up to that of the axis.

    Example:
        >>> adjit.tensor([1, 2, 3]).split_with_sizes([1, 2])
        (tensor([1]), tensor([2, 3]))
    """
    return split(input, list(split_sizes), dim)


@export(method=True)
@caches_views
@numpy_names
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Cut an axis into at most `chunks` parts of equal size (the last may be smaller): views.

    Args:
        chunks: the most parts.
        dim: the axis.

    Example:
        >>> adjit.tensor([1, 2, 3, 4, 5]).chunk(2)
        (tensor([1, 2, 3]), tensor([4, 5]))
    """
    if input.ndim == 0:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    chunks = an_int("chunk", "chunks", 2, chunks)
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    d = wrap_dim(dim, input.ndim)
    size = -(-input.shape[d] // chunks)
    if size == 0:
        return split(input, [0] * chunks, d)
    return split(input, size, d)


@export(method=True)
@functools.partial(caches_views, one_by_one=True)
@listed("sections", "indices", "tensor_indices_or_sections")
@numpy_names
def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Cut an axis into a number of nearly equal parts, or at indices: views.

    Args:
        indices_or_sections: how many parts, or where to cut.
        dim: the axis.

    Example:
        >>> adjit.tensor([1, 2, 3, 4, 5]).tensor_split(2)
        (tensor([1, 2, 3]), tensor([4, 5]))
        >>> adjit.tensor([1, 2, 3, 4, 5]).tensor_split((1, 3))
        (tensor([1]), tensor([2, 3]), tensor([4, 5]))
    """
    if input.ndim == 0:
        raise RuntimeError(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims"
        )
    d = wrap_dim(dim, input.ndim)
    total = input.shape[d]
    if record.is_tensor(indices_or_sections):
        indices_or_sections = _cuts_of(indices_or_sections)
    if is_int(indices_or_sections):
        sections = operator.index(indices_or_sections)
        if sections <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {sections}")
        base, extra = divmod(total, sections)
        cuts = [base * k + min(k, extra) for k in range(1, sections)]
    else:
        numbers = [an_int("tensor_split", "indices", 2, k) for k in indices_or_sections]
        cuts = [bounds_of(slice(None, k), total)[1] for k in numbers]
    parts = []
    start = 0
    for stop in [*cuts, total]:
        parts.append(slice_dim(input, d, min(start, total), max(start, stop), 1))
        start = stop
    return tuple(parts)


def _cuts_of(found: Tensor) -> Any:
    """The number of parts, or the indices to cut at, that a tensor holds."""
    expected = "tensor_split expected tensor_indices_or_sections to"
    if found.device.type != "cpu":
        raise RuntimeError(f"{expected} be on cpu, but it's on {found.device}")
    if found.dtype is not dtypes.int64:
        raise RuntimeError(f"{expected} have dtype of long, but got {found.dtype.legacy}")
    if found.ndim > 1:
        raise RuntimeError(
            f"{expected} be a zero-dimensional or one-dimensional tensor, but got a tensor with "
            f"{found.ndim} dims"
        )
    return found.tolist()


def memory_of(input: Tensor, moves: bool) -> Tensor:
    """What strides of a tensor are about: itself, or a copy of all of its memory in the order that is reported.

    Raises:
        RuntimeError: if that cannot be known, or an offset `moves` from where the tensor begins and it
            cannot be known where that is.
    """
    base: Any = input if input._view_of is None else input._view_of.base
    is_part = base._storage in parts
    if is_part or base._spec.numel != base._storage.spec.numel:
        if base._spec.chosen or (moves and is_part):
            raise RuntimeError(
                "as_strided: where this tensor lies in the storage of that of which it shows a part cannot be "
                "told here; call as_strided on that one, or clone() this one first"
            )
        return input
    return linked_copy(base) if base._spec.chosen else input


@export(method=True)
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """View the storage of `input` with any sizes and strides.

    Args:
        size: the shape.
        stride: elements to step over from one index to the next, for each axis.
        storage_offset: where the first element lies in the storage; that of `input` unless given.

    Raises:
        RuntimeError: if it would reach outside the storage, or `input` is a part of a result that the library
            laid out otherwise than PyTorch would, in another shape, and where it begins cannot be told.

    Example:
        >>> adjit.tensor([1, 2, 3, 4]).as_strided((3, 2), (1, 1))
        tensor([[1, 2],
                [2, 3],
                [3, 4]])
    """
    if storage_offset is None:
        return _strided_from_start(input, size, stride)
    return _as_strided(input, size, stride, storage_offset)


@functools.partial(caches_views, within=True)
def _strided_from_start(input: Tensor, size: Any, stride: Any) -> Tensor:
    """`as_strided` from the first element on."""
    return _as_strided(input, size, stride, None)


def _as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None) -> Tensor:
    shape, strides = shape_of((size,)), tuple(int(s) for s in stride)
    if len(shape) != len(strides):
        raise RuntimeError("mismatch in length of strides and shape")
    if any(size < 0 for size in shape):
        raise RuntimeError(
            f"Storage size calculation overflowed with sizes={list(shape)} and "
            f"strides={list(strides)}"
        )
    if any(st < 0 for st in strides):
        raise RuntimeError(
            f"as_strided: Negative strides are not supported at the moment, got strides: {list(strides)}"
        )
    start = input.storage_offset() if storage_offset is None else int(storage_offset)
    spec = spec_of(shape, strides, input.dtype, input._spec.device)
    memory: Any = input
    if input.__class__ not in tracers:
        memory = memory_of(input, storage_offset is not None)
    if memory is not input:
        made: Any = as_strided(memory, shape, strides, start)
        made._view_of.kind = kind_of_views(input)
        return made
    while memory.__class__ in tracers and memory._value.shape == memory.shape:
        memory = memory._value
    if memory.__class__ in tracers:
        first, last = input._offset, input._offset + input._spec.extent
        if spec.numel and (start < first or start + spec.extent > last):
            raise RuntimeError(
                f"as_strided: sizes {list(shape)}, strides {list(strides)} and storage offset {start} show "
                f"elements outside of the tensor, from {first} to {last}; inside of vmap these may be those of "
                "another example"
            )
        return strided(input, spec, start)
    room = memory._storage.nbytes // input.dtype.itemsize
    if spec.numel and (start < 0 or start + spec.extent > room):
        raise RuntimeError(
            f"setStorage: sizes {list(shape)}, strides {list(strides)}, storage offset {start}, and "
            f"itemsize {input.dtype.itemsize} requiring a storage size of "
            f"{(start + spec.extent) * input.dtype.itemsize} are out of bounds for storage of size "
            f"{memory._storage.nbytes}"
        )
    return strided(input, spec, start)


parts_by_name: dict[str, Any] = {  # views by what made them; index.py adds what stands in brackets
    "select": lambda t, d, k: select(t, d, k),
    "slice": lambda t, d, start, stop, step: slice_dim(t, d, start, stop, step),
    "diagonal": lambda t, offset, a, b: diagonal(t, offset, a, b),
}


@operation("ScatterPartBackward0")
def scatter_part(g: Tensor, spec: Spec, part: str, *where: Any) -> Tensor:
    """Zeros of a shape, with `g` in the part that a view op shows."""
    out = zeros_in(spec)
    parts_by_name[part](out, *where).copy_(g)
    return record.make_tensor(out._storage, out._spec)


scatter_part.linear("g")


@scatter_part.vjp
def _(g: Any, part: Any, where: Any) -> Any:
    return parts_by_name[part](g, *where)


@scatter_part.batched
def _(g: Tensor, spec: Spec, part: str, where: tuple[Any, ...]) -> Tensor:
    whole = dense_spec((g.shape[0], *spec.shape), spec.dtype, spec.device)
    if part == "index":
        return scatter_part(g, whole, part, slice(None), *where)
    first, *rest = where
    if part == "diagonal":
        return scatter_part(g, whole, part, first, *[d + 1 for d in rest])
    return scatter_part(g, whole, part, first + 1, *rest)


def _split_along(name: str, least: int, given: str, shown: str) -> None:
    """`hsplit`, `vsplit` and `dsplit`: `tensor_split` along an axis into equal parts, or at indices."""

    @listed("sections", "indices", "indices_or_sections")
    def split_along(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
        if input.ndim < least:
            raise RuntimeError(
                f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor with "
                f"{input.ndim} dimensions!"
            )
        if isinstance(indices_or_sections, str) or not (
            hasattr(indices_or_sections, "__index__") or hasattr(indices_or_sections, "__iter__")
        ):
            raise TypeError(
                f"{name}() received an invalid combination of arguments - got (Tensor, "
                f"{type(indices_or_sections).__name__}), but expected one of:\n"
                " * (Tensor input, int sections)\n * (Tensor input, tuple of ints indices)\n"
            )
        axis = 0 if name == "vsplit" or input.ndim == 1 else 2 if name == "dsplit" else 1
        if hasattr(indices_or_sections, "__index__"):
            size, parts = input.shape[axis], indices_or_sections.__index__()
            if parts <= 0 or size % parts:
                raise RuntimeError(
                    f"torch.{name} attempted to split along dimension {axis}, but the size of the dimension "
                    f"{size} is not divisible by the split_size {parts}!"
                )
        return tensor_split(input, indices_or_sections, axis)

    split_along.__name__ = split_along.__qualname__ = name
    where = {
        "hsplit": "second axis (of a vector the first)",
        "vsplit": "first axis",
        "dsplit": "third axis",
    }
    split_along.__doc__ = f"""Cut a tensor along its {where[name]} into equal parts, or before given indices.

    Args:
        input: at least {least} dimension{"s" if least > 1 else ""}.
        indices_or_sections: how many parts, or where they begin.

    Raises:
        RuntimeError: if it has too few dimensions, or cannot be cut into equal parts.

    Example:
        >>> [part.tolist() for part in adjit.{name}(adjit.tensor({given}), 2)]
        {shown}
    """
    export(method=True)(caches_views(split_along, one_by_one=True))


_split_along("hsplit", 1, "[1, 2]", "[[1], [2]]")
_split_along("vsplit", 2, "[[1], [2]]", "[[[1]], [[2]]]")
_split_along("dsplit", 3, "[[[1, 2]]]", "[[[[1]]], [[[2]]]]")
