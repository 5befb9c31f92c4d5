"""Linear algebra: what of `torch.linalg` is there, as functions of this module."""

from __future__ import annotations

from typing import Any

from .absent import known as _known
from .graph.export import namespace
from .ops.linalg import LinAlgError as LinAlgError

globals().update(namespace["linalg"])


def __getattr__(name: str) -> Any:
    """Names that PyTorch has and adjit has not."""
    return _known("linalg", name)
