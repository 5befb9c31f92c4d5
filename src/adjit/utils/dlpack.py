"""Tensors of other libraries without a copy: PyTorch's `torch.utils.dlpack`."""

from ..ops.exchange import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
