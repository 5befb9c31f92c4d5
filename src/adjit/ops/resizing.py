"""Memory of another size, and tensors on bytes of others."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import devices, dtypes, errors, formats
from ..dtypes import dtype as Dtype
from ..graph import inplace
from ..graph.export import add_method, export
from ..graph.node import spec_of
from ..graph.primitives import from_array
from ..graph.record import check_tensor
from ..graph.view import strided
from ..graph.wrong_types import explaining
from ..shapes import checked_shape
from ..tensor import Tensor
from .creation import _finish, as_tensor, from_numpy
from .exchange import from_dlpack


def resize_(self: Tensor, *size: Any, memory_format: Any = None) -> Tensor:
    """Give the tensor another shape in place, on the same memory; returns it.

    Where that is too small, the storage gets a larger one: the elements stay, further ones are undefined.

    Args:
        size: the shape, as numbers or one sequence.
        memory_format: the order of the axes in memory.

    Raises:
        RuntimeError: if the tensor needs gradients, larger memory is needed and others look at it, or the
            library has laid out the elements otherwise than `stride()` reports.

    Example:
        >>> x = adjit.arange(6)
        >>> x.resize_(2, 2)
        tensor([[0, 1],
                [2, 3]])
        >>> x.resize_(4, 2).shape
        adjit.Size([4, 2])
    """
    given = size[0] if len(size) == 1 else size
    if not hasattr(given, "__iter__") and not hasattr(given, "__index__"):
        raise TypeError(
            "resize_(): argument 'size' (position 1) must be tuple of ints, not "
            f"{type(given).__name__}"
        )
    if self.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    shape = checked_shape(size)
    old = self._spec
    if shape == old.shape and memory_format is None:
        return self
    if old.chosen:
        raise RuntimeError(
            "resize_(): the elements of this tensor do not lie in memory as stride() reports them; call it on "
            "x.clone(memory_format=torch.contiguous_format)"
        )
    strides = formats.strides_in(shape, memory_format or formats.contiguous_format)
    inplace.resize(self, spec_of(shape, strides, old.dtype, old.device))
    return self


add_method("resize_", resize_)


@export(public=False, method="resize_as_")
def resize_as_(input: Tensor, the_template: Tensor, memory_format: Any = None) -> Tensor:
    """Give the tensor the shape of another one in place, as `resize_` does; returns it.

    Example:
        >>> adjit.arange(6).resize_as_(adjit.ones(2, 2))
        tensor([[0, 1],
                [2, 3]])
    """
    check_tensor("resize_as_", "the_template", 2, the_template)
    if memory_format is formats.preserve_format:
        memory_format = formats.suggested(the_template.shape, the_template.stride())
    return resize_(input, the_template.shape, memory_format=memory_format)


export(name="resize_as_")(resize_as_)


def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Write a number into the places whose indices are all equal; returns the tensor.

    Args:
        fill_value: the number.
        wrap: whether the diagonal of a tall matrix begins anew after a row that is left out.

    Raises:
        RuntimeError: for a vector, or more than two axes of different sizes.

    Example:
        >>> adjit.zeros(2, 3).fill_diagonal_(5)
        tensor([[5., 0., 0.],
                [0., 5., 0.]])
    """
    if self.ndim < 2:
        raise RuntimeError("dimensions must larger than 1")
    shape, strides, place = self.shape, self._spec.strides, self._spec.device
    if self.ndim > 2 and len(set(shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    count, step = min(shape), sum(strides)
    diagonal = spec_of((count,), (step,), self.dtype, place)
    strided(self, diagonal, self._offset).fill_(fill_value)
    height, width = shape[:2]
    if wrap and self.ndim == 2 and height > width + 1:
        rest = -(-self.numel() // (width + 1)) - count
        start = self._offset + strides[0] * (width + 1)
        strided(self, spec_of((rest,), (step,), self.dtype, place), start).fill_(fill_value)
    return self


add_method("fill_diagonal_", explaining(fill_diagonal_, "fill_diagonal_", is_method=True))


@export
def frombuffer(
    buffer: Any, *, dtype: Dtype, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """Make a vector on the bytes of an object: writes to one are seen by the other.

    Args:
        buffer: bytes, a bytearray, a memoryview, an array, ….
        dtype: what the bytes are read as.
        count: how many elements; all from `offset` on unless given.
        offset: how many bytes are passed over.

    Raises:
        ValueError: if it has no bytes to show, or not so many.

    Example:
        >>> adjit.frombuffer(bytearray(b"abc"), dtype=adjit.uint8)
        tensor([97, 98, 99], dtype=adjit.uint8)
    """
    kind = dtypes.check(dtype)
    try:
        view = memoryview(buffer).cast("B")
    except TypeError:
        raise ValueError("object does not implement Python buffer protocol.") from None
    length, size = len(view), kind.itemsize
    if not length or not count:
        raise ValueError(f"both buffer length ({length}) and count ({count}) must not be 0")
    if not 0 <= offset < length:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({length} "
            "bytes) minus 1"
        )
    if count < 0 and (length - offset) % size:
        raise ValueError(
            f"buffer length ({length - offset} bytes) after offset ({offset} bytes) must be a multiple of "
            f"element size ({size})"
        )
    number = (length - offset) // size if count < 0 else count
    if offset + number * size > length:
        raise ValueError(
            f"requested buffer length ({number} * {size} bytes) after offset ({offset} bytes) must not be "
            f"greater than actual buffer length ({length} bytes)"
        )
    if requires_grad and not kind.is_floating_point:
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    array = np.frombuffer(view, kind.numpy, number, offset)
    if view.readonly:
        errors.warn(
            "The given buffer is not writable, and PyTorch does not support non-writable tensors. This means "
            "you can write to the underlying (supposedly non-writable) buffer using the tensor. You may want "
            "to copy the buffer to protect its data or make it writable before converting it to a tensor. "
            "This type of warning will be suppressed for the rest of this program.",
        )
        made: Tensor = from_array(array)
    else:
        made = from_numpy(array)
    return made.requires_grad_() if requires_grad else made


@export
def asarray(
    obj: Any,
    *,
    dtype: Dtype | None = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """Make a tensor of anything: on the memory of tensors, arrays and buffers where it can be.

    Args:
        obj: a tensor, an array, an object with DLPack or with bytes to show (which are read as `dtype`, or
            the default one), a number, or nested sequences of numbers.
        dtype: of the elements; that of `obj` unless given.
        device: where they are to lie; where they are, or for what has no memory of its own the CPU.
        copy: True for memory of its own, False for an error where it would be needed.
        requires_grad: whether the result needs gradients; as `obj` does unless given, which keeps its history.

    Raises:
        ValueError: if `copy` is False and the elements cannot stay where they are.
        RuntimeError: if gradients are asked for a dtype that cannot have them.

    Example:
        >>> data = bytearray(b"abc")
        >>> x = adjit.asarray(data, dtype=adjit.uint8)
        >>> data[0] = 122
        >>> x
        tensor([122,  98,  99], dtype=adjit.uint8)
    """
    dtype = None if dtype is None else dtypes.check(dtype)
    if isinstance(obj, Tensor):
        found = obj
    elif isinstance(obj, np.generic):
        if copy is False:
            raise RuntimeError(
                "can't alias NumPy scalars. Either remove copy=False or transform it in a ndarray. "
            )
        return _with_gradients(as_tensor(obj, dtype, device), requires_grad)
    elif isinstance(obj, np.ndarray):
        found = from_numpy(obj)
    elif hasattr(obj, "__dlpack__") or type(obj).__name__ == "PyCapsule":
        found = from_dlpack(obj)
    elif _has_bytes(obj):
        found = frombuffer(obj, dtype=dtype or dtypes.get_default_dtype())
    elif copy is False:
        raise ValueError("can't alias arbitrary sequence into a tensor.")
    else:
        return _with_gradients(as_tensor(obj, dtype, device), requires_grad)
    kind, place = dtype or found.dtype, found.device if device is None else devices.check(device)
    if copy is False and place != found.device:
        raise ValueError(f"can't alias tensor from device '{found.device}' to '{place}'.")
    if copy is False and kind is not found.dtype:
        raise ValueError(
            f"can't alias tensor with dtype '{found.dtype.legacy}' into dtype '{kind.legacy}'."
        )
    made = found.to(place, kind)
    if copy and made._storage is found._storage:
        made = made.clone()
    return _with_gradients(made, requires_grad)


def _with_gradients(made: Tensor, requires_grad: bool | None) -> Tensor:
    """A tensor that needs gradients or has no history, where either is asked for."""
    if requires_grad is None or requires_grad == made.requires_grad:
        return made
    return _finish(made, True) if requires_grad else made.detach()


def _has_bytes(obj: Any) -> bool:
    """Whether an object shows its memory to others."""
    try:
        memoryview(obj)
    except TypeError:
        return False
    return True
