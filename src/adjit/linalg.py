"""Linear algebra: what of `torch.linalg` is there, as functions of this module."""

from __future__ import annotations

from typing import NoReturn

from .absent import absent
from .graph.export import namespace
from .ops.linalg import LinAlgError as LinAlgError

globals().update(namespace["linalg"])


def __getattr__(name: str) -> NoReturn:
    """Names that PyTorch has and adjit has not."""
    raise absent("linalg", name)
