"""Writing over all of a tensor: with another one, with a number, with zeros."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from .. import devices, dtypes
from ..graph import copy_slices, fastpath, inplace, record, write
from ..graph.batching import Batch
from ..graph.composed import composed
from ..graph.export import add_method, export
from ..graph.levels import is_traced, tracers
from ..graph.node import dense_spec
from ..graph.operation import operation
from ..shapes import (
    called_too,
    check_bool,
    check_fits,
    is_dense,
)
from ..tensor import Tensor
from .conversions import wait_for_copies
from .creation import number_like, of_numbers
from .view import expand


@operation("CopyBackwards")
def copy_of(self: Tensor, src: Tensor) -> Tensor:
    """`src` with the shape, strides and dtype of `self`."""
    if src.shape != self.shape:
        src = expand(src, self.shape)
    spec = self._spec
    if src._spec.device is not spec.device:
        src = write.move(src, spec.device)
    target = (
        spec
        if is_dense(spec.shape, spec.strides)
        else dense_spec(spec.shape, spec.dtype, spec.device)
    )
    return write.convert(src, target)


copy_of.linear("src")


@copy_of.vjp
def _(g: Any) -> Any:
    return g.new_zeros(g.shape), g


@copy_of.batched
def _(batch: Batch, self: Tensor, src: Tensor) -> Tensor:
    return batch.wrapped(copy_of(batch.full(self), batch.full(expand(src, self.shape))))


@fastpath.copying(
    write.assignments, copy_slices.graded_assignments, copy_slices.slices_op,
    lambda: (copy_of, inplace.adopt),
)  # fmt: skip
@called_too(other="src")
def copy_(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """Write the elements of `src`, broadcast and converted, into this tensor; returns it.

    Raises:
        RuntimeError: if the shapes do not fit, or this is a leaf that needs gradients.

    Example:
        >>> adjit.zeros(2, 2).copy_(adjit.tensor([1, 2]))
        tensor([[1., 2.],
                [1., 2.]])
    """
    record.check_tensor("copy_", "other", 1, src)
    check_bool("copy_", "non_blocking", non_blocking)
    inplace.check(self)
    inplace.check_overlap(self, (src,))
    if src.shape != self.shape:
        check_fits(self.shape, src.shape)
    if tracers and is_traced((self, src)):
        return inplace.adopt(self, copy_of(self, src))
    if write.can_assign(self, src):
        write.refuse_overlapping(self._spec)
        write.assign(self, src)
        return self
    if self._storage.shared and _can_be_read_there(self, src):
        write.store(self, src if src.shape == self.shape else expand(src, self.shape))
        return self
    if copy_slices.can_assign(self, src):
        copy_slices.assign(self, src)
        return self
    made = inplace.adopt(self, copy_of(self, src))
    if not non_blocking and src._spec.device is not self._spec.device:
        wait_for_copies(src)
    return made


def _can_be_read_there(t: Tensor, source: Tensor) -> bool:
    """Whether the kernel that writes into shared memory reads and converts another tensor where it lies."""
    spec, given = t._spec, source._spec
    if spec.dtype is not given.dtype and spec.dtype is dtypes.bool:
        return False
    is_here = spec.device is given.device is devices.CPU and is_dense(spec.shape, spec.strides)
    apart = t._storage is not source._storage and not source._storage.shared
    return is_here and apart and _is_out_of_graph(t) and _is_out_of_graph(source)


def _is_out_of_graph(t: Tensor) -> bool:
    if t._edge is not None or t._needs_grad:
        return False
    return t._view_of is None or not t._view_of.base._needs_grad


add_method("copy_", copy_)


@operation("FillBackward2")
def _filled_by_number(self: Tensor, value: Any) -> Tensor:
    return number_like(self, value)


@_filled_by_number.vjp
def _(g: Any) -> Any:
    return g.new_zeros(g.shape)


_filled_by_number.batched_over()


@operation("FillBackward3")
def _filled_by_tensor(self: Tensor, value: Tensor) -> Tensor:
    return copy_of(self, value)


_filled_by_tensor.linear("value")


@_filled_by_tensor.vjp
def _(g: Any) -> Any:
    return g.new_zeros(g.shape), g.sum()


@_filled_by_tensor.batched
def _(batch: Batch, self: Tensor, value: Tensor) -> Tensor:
    made: Tensor = copy_of(self, value)
    return made


def filled(self: Tensor, value: Any) -> Tensor:
    """A number, or the value of a 0-d tensor, in every place of `self`.

    Raises:
        TypeError: if it is neither.
        RuntimeError: if a tensor with axes is given.
    """
    if isinstance(value, (numbers.Number, np.generic)):
        return _filled_by_number(self, value)
    if not record.is_tensor(value):
        raise TypeError(
            f"fill_() received an invalid combination of arguments - got ({value.__class__.__name__}), but "
            "expected one of:\n * (Tensor value)\n * (Number value)\n"
        )
    if value.ndim:
        raise RuntimeError(
            f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} "
            "dimensions."
        )
    return _filled_by_tensor(self, value)


@operation("ZeroBackward0")
def _zeroed(self: Tensor) -> Tensor:
    return _filled_by_number(self, 0)


@_zeroed.vjp
def _(g: Any) -> Any:
    return g.new_zeros(g.shape)


_zeroed.batched_over()


@fastpath.flooding(of_numbers, None)
def fill_(self: Tensor, value: Any) -> Tensor:
    """Write a number, or the value of a 0-d tensor, into every place; returns this tensor.

    Example:
        >>> adjit.zeros(2).fill_(3)
        tensor([3., 3.])
    """
    inplace.check(self)
    return inplace.adopt(self, filled(self, value), overlap=True)


@fastpath.flooding(of_numbers, 0.0)
def zero_(self: Tensor) -> Tensor:
    """Write zeros into every place; returns this tensor.

    Example:
        >>> adjit.ones(2).zero_()
        tensor([0., 0.])
    """
    inplace.check(self)
    return inplace.adopt(self, _zeroed(self), overlap=True)


@export
@composed
def fill(input: Tensor, value: Any) -> Tensor:
    """A number, or the value of a 0-d tensor, in the shape and dtype of `input`.

    Differentiable in `value`; the gradient of `input` is zero.

    Example:
        >>> adjit.fill(adjit.ones(2), 3)
        tensor([3., 3.])
    """
    return input.clone().fill_(value)


add_method("fill_", fill_)
add_method("zero_", zero_)
