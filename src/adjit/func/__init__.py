"""Transforms of functions: gradients, Jacobians and batches of functions of tensors, nested in any order.

`vmap.py` maps functions over axes of tensors, `reverse.py` differentiates them, `modules.py` makes functions of
modules.
"""

from typing import NoReturn

from ..absent import absent
from .modules import functional_call, stack_module_state
from .reverse import grad, grad_and_value, jacrev, linearize, vjp
from .vmap import vmap


def __getattr__(name: str) -> NoReturn:
    """The names that PyTorch has and adjit has not."""
    raise absent("func", name)


__all__ = [
    "functional_call", "grad", "grad_and_value", "jacrev", "linearize", "stack_module_state", "vjp", "vmap",
]  # fmt: skip
