"""Tensors joined to one vector and cut apart again: names of `torch._utils` that programs use."""

from __future__ import annotations

from collections.abc import Sequence

from .ops import joining
from .tensor import Tensor


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """The elements of tensors of one dtype, one after the other."""
    return joining.cat([t.reshape(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of a vector with the shapes of tensors, one after the other."""
    parts = flat.split([t.numel() for t in tensors])
    return tuple([part.view(t.shape) for part, t in zip(parts, tensors, strict=True)])
