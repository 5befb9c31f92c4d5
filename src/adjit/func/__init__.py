"""Transforms of functions: gradients, Jacobians and batches of functions of tensors, nested in any order.

`vmap.py` maps functions over axes of tensors, `reverse.py` differentiates them, `forward.py` does it forward,
`modules.py` makes functions of modules; `sparse.py` finds Jacobians most of whose entries are zero, by their
pattern (`sparsity.py`) and its colours (`coloring.py`).
"""

from typing import NoReturn

from ..absent import absent
from .forward import hessian, jacfwd, jvp
from .modules import functional_call, replace_all_batch_norm_modules_, stack_module_state
from .reverse import grad, grad_and_value, jacrev, linearize, vjp
from .sparse import Sparsity, hessian_sparsity, jacobian_sparsity, sparse_hessian, sparse_jacobian
from .vmap import vmap


def __getattr__(name: str) -> NoReturn:
    """The names that PyTorch has and adjit has not."""
    raise absent("func", name)


__all__ = [
    "Sparsity", "functional_call", "grad", "grad_and_value", "hessian", "hessian_sparsity", "jacfwd",
    "jacobian_sparsity", "jacrev", "jvp", "linearize", "replace_all_batch_norm_modules_",
    "sparse_hessian", "sparse_jacobian", "stack_module_state", "vjp", "vmap",
]  # fmt: skip
