"""Memory of another size, and tensors on bytes of others."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from .. import dtypes, formats
from ..dtypes import dtype as Dtype
from ..graph import inplace, record
from ..graph.export import add_method, export
from ..graph.node import dense_spec, spec_of
from ..graph.primitives import from_array
from ..shapes import Size, checked_shape
from ..tensor import Tensor
from .creation import empty, from_numpy


def resize_(self: Tensor, *size: Any, memory_format: Any = None) -> Tensor:
    """Give the tensor another shape in place, on the same memory; returns it.

    Where that is too small, the storage gets a larger one: the elements stay, further ones are undefined.

    Args:
        size: the shape, as numbers or one sequence.
        memory_format: the order of the axes in memory.

    Raises:
        RuntimeError: if the tensor needs gradients, or larger memory is needed and others look at it.

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
    old, cell = self.spec, self.storage
    if shape == old.shape and memory_format is None:
        return self
    strides = formats.strides_in(shape, memory_format or formats.contiguous_format)
    spec = spec_of(shape, strides, old.dtype, old.device)
    room = cell.nbytes // old.dtype.itemsize
    if spec.numel and self.offset + spec.extent > room:
        _grow(self, self.offset + spec.extent)
    self.spec = spec
    return self


def _grow(t: Tensor, length: int) -> None:
    """Give the storage of a tensor memory for so many elements, the first of which it has already."""
    cell, kind, place = t.storage, t.spec.dtype, t.spec.device
    if cell.shared:
        raise RuntimeError("Trying to resize storage that is not resizable")
    room = cell.nbytes // kind.itemsize
    whole = empty(length, dtype=kind, device=place)
    if room:
        flat = record.make_tensor(cell, dense_spec(Size((room,)), kind, place))
        inplace.adopt(whole[:room], flat.clone())
    cell.value, cell.spec = whole.storage.value, whole.storage.spec


add_method("resize_", resize_)


@export(public=False, method="resize_as_")
def resize_as_(self: Tensor, the_template: Tensor, memory_format: Any = None) -> Tensor:
    """Give the tensor the shape of another one in place, as `resize_` does; returns it.

    Example:
        >>> adjit.arange(6).resize_as_(adjit.ones(2, 2))
        tensor([[0, 1],
                [2, 3]])
    """
    if memory_format is formats.preserve_format:
        memory_format = formats.suggested(the_template.shape, the_template.stride())
    return resize_(self, the_template.shape, memory_format=memory_format)


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
    shape, strides = self.shape, self.stride()
    if self.ndim > 2 and len(set(shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    count, step = min(shape), sum(strides)
    self.as_strided((count,), (step,), self.storage_offset()).fill_(fill_value)
    height, width = shape[:2]
    if wrap and self.ndim == 2 and height > width + 1:
        rest = -(-self.numel() // (width + 1)) - count
        start = self.storage_offset() + strides[0] * (width + 1)
        self.as_strided((rest,), (step,), start).fill_(fill_value)
    return self


add_method("fill_diagonal_", fill_diagonal_)


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
            f"buffer length ({length} bytes) after offset ({offset} bytes) must be a multiple of element "
            f"size ({size})"
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
        warnings.warn(
            "The given buffer is not writable, and PyTorch does not support non-writable tensors. This means "
            "you can write to the underlying (supposedly non-writable) buffer using the tensor. You may want "
            "to copy the buffer to protect its data or make it writable before converting it to a tensor. "
            "This type of warning will be suppressed for the rest of this program.",
            UserWarning,
            stacklevel=2,
        )
        made: Tensor = from_array(array)
    else:
        made = from_numpy(array)
    return made.requires_grad_() if requires_grad else made
