"""Numbers that follow the sizes of inputs: what they are in several recordings, and how they are computed.

A program is recorded with several sizes of its dynamic dimensions. A number that is the same in all recordings
is a number; another one is a `DynamicSize`, which has to be explained by the dynamic dimensions:

    numbers of a dimension `batch`     2   3   5
    a number of a call                 8  12  20     is 4 * batch
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import prod
from typing import Any, NamedTuple

from .errors import OnnxExporterError

MOST_FACTORS = 3  # of the dynamic dimensions in one term


class Dimension(NamedTuple):
    """A dimension of an input whose size is known only when the graph runs."""

    name: str
    source: str  # the input
    axis: int
    numbers: tuple[int, ...]  # of the recordings


class Explanation(NamedTuple):
    """The number `factor * product of the dimensions + rest`."""

    factor: Fraction
    dimensions: tuple[Dimension, ...]
    rest: int

    @property
    def name(self) -> str | None:
        """The name of the dimension, if the number is one itself."""
        is_one = len(self.dimensions) == 1 and self.factor == 1 and self.rest == 0
        return self.dimensions[0].name if is_one else None


class DynamicSize:
    """A number that differs between recordings: that of each.

    Computing with it gives what the recordings would have given, again a `DynamicSize`, or a number.
    """

    __slots__ = ("numbers",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = tuple(numbers)

    def _with(
        self, other: int | DynamicSize, compute: Callable[[int, int], int]
    ) -> int | DynamicSize:
        others = other.numbers if isinstance(other, DynamicSize) else (other,) * len(self.numbers)
        return size_of([compute(a, b) for a, b in zip(self.numbers, others, strict=True)])

    def __add__(self, other: int | DynamicSize) -> int | DynamicSize:
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other: int | DynamicSize) -> int | DynamicSize:
        return self._with(other, lambda a, b: a - b)

    def __rsub__(self, other: int) -> int | DynamicSize:
        return self._with(other, lambda a, b: b - a)

    def __mul__(self, other: int | DynamicSize) -> int | DynamicSize:
        return self._with(other, lambda a, b: a * b)

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DynamicSize) and other.numbers == self.numbers

    def __refuse__(self, *others: Any) -> Any:
        raise OnnxExporterError(
            f"a rule needs a number that depends on the size of an input (it was {list(self.numbers)}); "
            "make that dimension static"
        )

    # What a rule cannot know: taking one recording's number would be wrong for the others.
    __index__ = __int__ = __bool__ = __float__ = __lt__ = __le__ = __gt__ = __ge__ = __refuse__
    __floordiv__ = __mod__ = __truediv__ = __neg__ = __refuse__

    def __repr__(self) -> str:
        return f"DynamicSize{self.numbers}"


def size_of(numbers: Sequence[int]) -> int | DynamicSize:
    """One number, if it is the same in all recordings."""
    return numbers[0] if len(set(numbers)) == 1 else DynamicSize(numbers)


def explained(size: DynamicSize, dimensions: Sequence[Dimension]) -> Explanation | None:
    """A size as the simplest term of dynamic dimensions, or None."""
    for count in range(1, MOST_FACTORS + 1):
        for chosen in itertools.combinations_with_replacement(dimensions, count):
            terms = [prod(parts) for parts in zip(*(d.numbers for d in chosen), strict=True)]
            if (found := _line_through(terms, size.numbers)) is not None:
                return Explanation(found[0], chosen, found[1])
    return None


def _line_through(terms: Sequence[int], numbers: Sequence[int]) -> tuple[Fraction, int] | None:
    """The factor and the rest that give all numbers of the terms."""
    if terms[0] == terms[1]:
        return None
    factor = Fraction(numbers[1] - numbers[0], terms[1] - terms[0])
    rest = numbers[0] - factor * terms[0]
    fits = all(factor * t + rest == n for t, n in zip(terms, numbers, strict=True))
    # A quotient without remainder may be one that rounds: only what is divided as a whole is sure.
    is_sure = factor.denominator == 1 or rest == 0
    if not fits or not factor or not is_sure or rest.denominator != 1:
        return None
    return factor, int(rest)
