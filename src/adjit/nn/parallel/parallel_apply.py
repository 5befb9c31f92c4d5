"""Several modules, each on its own arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..module import Module


def parallel_apply(
    modules: Sequence[Module],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """Run each module on its own arguments, one after the other.

    Args:
        modules: as many as `inputs`.
        inputs: a tuple of arguments for each, or the only one.
        kwargs_tup: arguments by name for each.
        devices: accepted for PyTorch's programs.

    Example:
        >>> nn.parallel.parallel_apply([nn.ReLU(), nn.Tanh()], [adjit.ones(1), adjit.zeros(1)])
        [tensor([1.]), tensor([0.])]
    """
    if len(modules) != len(inputs):
        raise AssertionError(
            f"The number of modules {len(modules)} is not equal to the number of inputs {len(inputs)}"
        )
    named = [{} for _ in modules] if kwargs_tup is None else kwargs_tup
    given = [value if isinstance(value, (tuple, list)) else (value,) for value in inputs]
    return [m(*a, **k) for m, a, k in zip(modules, given, named, strict=True)]
