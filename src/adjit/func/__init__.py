"""Transforms of functions: `forward.py` differentiates forward; `sparse.py` finds Jacobians most of
whose entries are zero, by their pattern (`sparsity.py`) and its colours (`coloring.py`)."""

from typing import NoReturn

from ..absent import absent
from .forward import jacfwd, jvp
from .sparse import Sparsity, hessian_sparsity, jacobian_sparsity, sparse_hessian, sparse_jacobian

__all__ = [
    "Sparsity", "hessian_sparsity", "jacfwd", "jacobian_sparsity", "jvp", "sparse_hessian", "sparse_jacobian",
]  # fmt: skip


def __getattr__(name: str) -> NoReturn:
    """Names that PyTorch has and adjit has not."""
    raise absent("func", name)
