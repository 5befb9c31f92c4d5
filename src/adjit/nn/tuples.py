"""Numbers given for each axis, or once for all: PyTorch's `nn.modules.utils`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """The function that makes a tuple of n values of one, and of an iterable that of its own."""

    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else (x,) * n

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: Sequence[Any], n: int) -> tuple[Any, ...]:
    """The elements from the last to the first, each n times."""
    return tuple(itertools.chain.from_iterable((x,) * n for x in reversed(t)))


def _list_with_default(out_size: Sequence[int | None], defaults: Sequence[int]) -> list[int]:
    """Sizes, those that are None taken from the end of the defaults.

    Raises:
        ValueError: if there are not more defaults than sizes.
    """
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    last = defaults[-len(out_size) :]
    return [d if v is None else v for v, d in zip(out_size, last, strict=True)]
