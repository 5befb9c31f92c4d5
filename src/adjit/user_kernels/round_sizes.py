"""Sizes of arrays that each round of a loop makes in another size: how large they can be.

Such an array lies in one that is made before the outermost loop, as every array of a loop does. What it can be
at most follows from how its size is computed: a slice has no more elements than its array, a counter is
below the end of its range.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any, Protocol

from .structure import Apply, Atom, Branch, Statement, Suite, made_by, walk

_WHOLE: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "neg": operator.neg,
    "max": max, "min": min,
}  # fmt: skip


class OpenLoops(Protocol):
    """What the reader knows of the loops that it is in."""

    open_blocks: list[Suite]
    hoisted: list[Statement]
    counters: dict[Atom, tuple[Atom, Atom, int]]
    counts: dict[Atom, Atom]
    loop_names: set[Atom]
    array_before: dict[Atom, str]

    def fresh(self, base: str) -> str:
        """A new name."""

    def note(self, node: ast.AST) -> str:
        """The user's line."""


class RoundSizes:
    """Bounds of whole numbers of open loops, computed before the outermost one."""

    def __init__(self, reader: OpenLoops, node: ast.AST) -> None:
        self.reader, self.node = reader, node
        self.inside = [i for b in reader.open_blocks for _, i in walk(b)]
        self.seen: dict[tuple[bool, Atom], Atom | None] = {}

    def most(self, a: Atom) -> Atom | None:
        """What a whole number is at most; None if nothing says so."""
        return self._bound(a, True)

    def least(self, a: Atom) -> Atom | None:
        """What it is at least."""
        return self._bound(a, False)

    def _bound(self, a: Atom, upper: bool) -> Atom | None:
        if isinstance(a, (bool, float)):
            return None
        if isinstance(a, int):
            return a
        if (upper, a) not in self.seen:
            self.seen[upper, a] = None  # of what is found by way of itself nothing is known
            self.seen[upper, a] = self._found(a, upper)
        return self.seen[upper, a]

    def _found(self, a: str, upper: bool) -> Atom | None:
        reader = self.reader
        if a in reader.counters:
            start, stop, step = reader.counters[a]
            if (step > 0) is not upper:
                return self._bound(start, upper)
            return self._apply("-" if upper else "+", self._bound(stop, upper), 1)
        if a in reader.counts:
            return self._bound(reader.counts[a], True) if upper else 0
        item = next((i for i in self.inside if a in made_by(i)), None)
        if item is None:
            return None if a in reader.loop_names else a
        if isinstance(item, Branch):
            _, first, second = next(r for r in item.results if r[0] == a)
            return self._apply(
                "max" if upper else "min", self._bound(first, upper), self._bound(second, upper)
            )
        return self._of_apply(item, upper) if isinstance(item, Apply) else None

    def _of_apply(self, item: Apply, upper: bool) -> Atom | None:
        function, args = item.function, item.args
        if function == "shape":
            array = self.reader.array_before.get(args[0], args[0])
            return (
                None if array in self.reader.array_before else self._apply("shape", array, args[1])
            )
        if function == "select":
            args, function = args[1:], "max" if upper else "min"
            return self._apply(function, *[self._bound(x, upper) for x in args])
        if function in ("min", "max"):
            bounds = {x: self._bound(x, upper) for x in args}
            found: list[Atom | None] = list(bounds.values())
            if (function == "min") is upper:  # one is enough, best one that needs no computing
                free: list[Atom | None] = [b for x, b in bounds.items() if b == x]
                found = free[:1] or [b for b in found if b is not None]
            return found[0] if len(found) == 1 else self._apply(function, *found)
        if function == "neg":
            return self._apply("neg", self._bound(args[0], not upper))
        if function in ("+", "-"):
            second = upper if function == "+" else not upper
            return self._apply(function, self._bound(args[0], upper), self._bound(args[1], second))
        if function == "//" and type(args[1]) is int and args[1] > 0:
            return self._apply("//", self._bound(args[0], upper), args[1])
        if function == "%" and type(args[1]) is int and args[1] > 0:
            return args[1] - 1 if upper else 0
        if function == "*":
            factor = next((x for x in args if type(x) is int and x >= 0), None)
            other = args[1] if factor is args[0] else args[0]
            return None if factor is None else self._apply("*", self._bound(other, upper), factor)
        return None

    def _apply(self, function: str, *args: Atom | None) -> Atom | None:
        """A function of bounds, before the outermost loop; None where one of them is not known."""
        known = [x for x in args if x is not None]
        if not known or len(known) < len(args):
            return None
        if function in ("max", "min") and known[0] == known[1]:
            return known[0]
        if function in _WHOLE and all(isinstance(x, int) for x in known):
            return int(_WHOLE[function](*known))
        made = Apply(self.reader.fresh("n"), function, known)
        made.note = self.reader.note(self.node)
        self.reader.hoisted.append(made)
        return made.dst
