"""Special functions: what of `torch.special` is there, as functions of this module."""

from __future__ import annotations

from typing import NoReturn

from .absent import absent
from .graph.export import namespace

globals().update(namespace["special"])
globals().update(
    {name: namespace[""][name] for name in ("log_softmax", "logsumexp", "round", "softmax")}
)


def __getattr__(name: str) -> NoReturn:
    """Names that PyTorch has and adjit has not."""
    raise absent("special", name)
