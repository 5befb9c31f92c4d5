"""Linear algebra: what of `torch.linalg` is there, as functions of this module."""

from __future__ import annotations

from .graph.names import namespace

globals().update(namespace["linalg"])
