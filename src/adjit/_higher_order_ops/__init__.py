"""Functions of functions that PyTorch has in `torch._higher_order_ops`."""

from .associative_scan import associative_scan
from .control_flow import cond, map, while_loop

__all__ = ["associative_scan", "cond", "map", "while_loop"]
