"""The bits of a tensor as numbers of another dtype: `view(dtype)`."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..graph import write
from ..graph.levels import tracers
from ..graph.links import copy_of, link
from ..graph.node import spec_of
from ..graph.operation import operation
from ..shapes import Shape, contiguous_strides, dense_in_order, numel
from ..tensor import Tensor
from .creation import sharing_array


def in_dtype(input: Tensor, kind: dtypes.dtype) -> Tensor:
    """A tensor that shows the bits of another one as another dtype, without a history.

    It is a copy that stands for a view, as what is recorded knows the dtype of each value; on memory that
    arrays or addresses share it is a view.
    """
    spec = input._spec
    if kind is spec.dtype:
        return input.detach()
    shape, strides = _geometry(spec.shape, spec.reported, input._offset, spec.dtype, kind)
    repeated = [d for d, n in enumerate(spec.shape) if n > 1 and not spec.reported[d]]
    if repeated:
        for d in repeated:
            input = input.narrow(d, 0, 1)
        return in_dtype(input, kind).expand(shape)
    if input.__class__ in tracers or not spec.numel:
        return bits_of(input, kind, shape, strides)
    if input._storage.shared:
        view = sharing_array(_array_on(input).view(kind.numpy))
        view._version_counter = input._version_counter
        return view
    if (known := copy_of(input, kind)) is not None:
        return known.detach()
    copy = bits_of(input, kind, shape, strides)
    link(input, copy)
    return copy


def _array_on(t: Tensor) -> Any:
    """An array on the memory of a tensor.

    Raises:
        RuntimeError: if writes into the array would not reach all that stands for views of it.
    """
    array = t.detach().numpy() if t.device.type == "cpu" else None
    if array is None or not array.flags.writeable:
        raise RuntimeError(
            "view(dtype): others look at the memory of this tensor, and at copies that stand for views of it; "
            "use .clone() before"
        )
    return array


def _geometry(
    shape: Shape, strides: Shape, offset: int, old: dtypes.dtype, new: dtypes.dtype
) -> tuple[Shape, Shape]:
    """The shape and the strides of what is seen as another dtype.

    Raises:
        RuntimeError: with PyTorch's texts, if the last axis does not come to whole elements.
    """
    if old.itemsize == new.itemsize:
        return shape, strides
    what = f"to view {old.legacy} as {new.legacy} (different element sizes)"
    if not shape:
        raise RuntimeError(f"self.dim() cannot be 0 {what}")
    ratio = new.itemsize // old.itemsize
    if ratio:
        _check_divisible("size(-1)", shape[-1], ratio, what)
        _check_divisible("storage_offset()", offset, ratio, what)
    if strides[-1] != 1:
        raise RuntimeError(f"self.stride(-1) must be 1 {what}, but got {strides[-1]}")
    if ratio:
        for d, step in enumerate(strides[:-1]):
            _check_divisible(f"stride({d})", step, ratio, what)
        return (*shape[:-1], shape[-1] // ratio), (*[st // ratio for st in strides[:-1]], 1)
    ratio = old.itemsize // new.itemsize
    return (*shape[:-1], shape[-1] * ratio), (*[st * ratio for st in strides[:-1]], 1)


def _check_divisible(name: str, number: int, ratio: int, what: str) -> None:
    if number % ratio:
        raise RuntimeError(f"self.{name} must be divisible by {ratio} {what}, but got {number}")


@operation("ViewDtypeBackward0", differentiable=())
def bits_of(input: Tensor, kind: dtypes.dtype, shape: Shape, strides: Shape) -> Tensor:
    """A copy of the bits in a shape; in the order of some strides, which it reports."""
    dense = dense_in_order(shape, [strides])
    made: Tensor = write.laid_out(input, spec_of(shape, dense, kind, input._spec.device, strides))
    return made


@bits_of.batched
def _(input: Tensor, kind: dtypes.dtype, shape: Shape, strides: Shape) -> Tensor:
    size = input.shape[0]
    made: Tensor = bits_of(input, kind, (size, *shape), (numel(shape), *contiguous_strides(shape)))
    return made
