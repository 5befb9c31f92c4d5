"""Names of `torch._utils` that programs use: tensors joined to one vector and cut apart, bytes of elements."""

from __future__ import annotations

from collections.abc import Sequence

from .dtypes import dtype as DType
from .ops import joining
from .tensor import Tensor


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """The elements of tensors of one dtype, one after the other."""
    return joining.cat([t.reshape(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of a vector with the shapes of tensors, one after the other."""
    parts = flat.split([t.numel() for t in tensors])
    return tuple([part.view(t.shape) for part, t in zip(parts, tensors, strict=True)])


def _element_size(dtype: DType) -> int:
    """The bytes of one element."""
    if not isinstance(dtype, DType):
        raise RuntimeError(f"expected adjit.dtype, but got {type(dtype)}")
    return dtype.itemsize
