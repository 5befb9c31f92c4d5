"""Functions of functions that PyTorch has in `torch._higher_order_ops`."""

from .associative_scan import associative_scan

__all__ = ["associative_scan"]
