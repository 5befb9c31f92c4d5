"""Transforms of functions: `forward.py` differentiates forward."""

from typing import NoReturn

from ..absent import absent
from .forward import jacfwd, jvp

__all__ = ["jacfwd", "jvp"]


def __getattr__(name: str) -> NoReturn:
    """Names that PyTorch has and adjit has not."""
    raise absent("func", name)
