"""Gradients where transforms are: level by level down to tensors that are in the graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ..graph.levels import level_of, tracers
from .engine import run_backward


def pull_back(
    roots: Sequence[Any], grads: Sequence[Any], targets: Sequence[Any], *, keep: bool, create: bool
) -> list[Any]:
    """The gradients of targets, None for those that none reached."""
    if not tracers:
        return run_backward(roots, grads, keep=keep, create=create, targets=[*targets]) or []

    def at(
        roots: Sequence[Any], grads: Sequence[Any], targets: Sequence[Any], again: bool = False
    ) -> list[Any]:
        level = level_of([*roots, *targets])
        if level is not None:
            return level.gradients(roots, grads, targets, partial(at, again=True) if again else at)
        return (
            run_backward(roots, grads, keep=keep or again, create=create, targets=[*targets]) or []
        )

    return at(roots, grads, targets)
