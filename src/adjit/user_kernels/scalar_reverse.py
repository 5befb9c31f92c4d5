"""Reverse mode of functions of numbers without loops: all gradients for a few times the function.

Every name is assigned once and stays where it was, so that nothing has to be kept: the way back is more
statements behind the function's own, a branch for each branch. It is a structured function again.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from .forward_mode import Tangents
from .rules import PICKS, rules_for
from .structure import Apply, Atom, Branch, Procedure, Statement, Suite, walk

Adjoints = dict[str, Atom]


def has_way_back(f: Procedure) -> bool:
    """Whether a function has no loops."""
    return all(isinstance(item, (Apply, Branch)) for _, item in walk(f.body))


def adjoints_of(f: Procedure, value: Atom, params: Sequence[str], g: str) -> Procedure:
    """The function of (g, its parameters) that gives g times the slopes of a value along parameters."""
    return _WayBack(replace(f, body=copy.deepcopy(f.body), returns=[value]), params).give(value, g)


class _WayBack(Tangents):
    """Writes the way back; what it has of forward mode are the rules."""

    def give(self, value: Atom, g: str) -> Procedure:
        f = self.f
        adjoints: Adjoints = {}
        back: list[Statement] = []
        self._flow(adjoints, value, g, back)
        self._back(f.body, adjoints, back)
        f.body.items += back
        gradients = [adjoints.get(p, 0.0) for p in self.params]
        types = {**f.types, g: "f8", **self.types}
        return replace(
            f, params=[g, *f.params], returns=gradients, returns_tuple=len(gradients) > 1, types=types,
            tangents=f.tangents + 1, places={}, makers={},
        )  # fmt: skip

    def _flow(self, adjoints: Adjoints, to: Atom, g: Atom, out: list[Statement]) -> None:
        """Add to the adjoint of a name."""
        if isinstance(to, str) and self.has(to) and not (g == 0.0 and not isinstance(g, str)):
            old = adjoints.get(to)
            adjoints[to] = g if old is None else self._apply(out, "+", old, g)

    def _back(self, block: Suite, adjoints: Adjoints, out: list[Statement]) -> None:
        for item in reversed(block.items):
            first = len(out)
            if isinstance(item, Branch):
                self._branch(item, adjoints, out)
            elif isinstance(item, Apply) and item.dst in adjoints:
                self._arguments(item, adjoints.pop(item.dst), adjoints, out)
            for made in out[first:]:
                made.note = f"back {item.note}"

    def _branch(self, item: Branch, adjoints: Adjoints, out: list[Statement]) -> None:
        pairs = [(adjoints.pop(dst), a, b) for dst, a, b in item.results if dst in adjoints]
        blocks = item.then, item.orelse
        # Names of a branch that a way back behind it reads: of a function that has one already.
        later = [{n: adjoints.pop(n) for n in _made_in(b) if n in adjoints} for b in blocks]
        if not pairs and not any(later):
            return
        sides: list[tuple[Suite, Adjoints]] = []
        for k, (block, inner) in enumerate(zip(blocks, later, strict=True)):
            back = Suite("branch")
            for g, *values in pairs:
                self._flow(inner, values[k], g, back.items)
            self._back(block, inner, back.items)
            sides.append((back, inner))
        (then, first), (orelse, second) = sides
        names = [*{**first, **second}]
        found = [self._temporary() for _ in names]
        results = [
            (dst, first.get(name, 0.0), second.get(name, 0.0))
            for dst, name in zip(found, names, strict=True)
        ]
        out.append(Branch(item.condition, then, orelse, results))
        for name, dst in zip(names, found, strict=True):
            self._flow(adjoints, name, dst, out)

    def _arguments(self, item: Apply, g: Atom, adjoints: Adjoints, out: list[Statement]) -> None:
        """Hand the adjoint of a result on to the arguments."""
        picks = item.function in PICKS
        if picks or item.function == "select":
            test = self._rule(PICKS[item.function], item, 0.0, out) if picks else item.args[0]
            first, second = item.args if picks else item.args[1:]
            for a, sides in ((first, (g, 0.0)), (second, (0.0, g))):
                if self.has(a):
                    self._flow(adjoints, a, self._apply(out, "select", test, *sides), out)
            return
        for a, rule in zip(item.args, rules_for(item.function, item.args), strict=False):
            if rule is not None and self.has(a):
                part = self._kept_from_poles(item, g, self._rule(rule, item, g, out), out)
                self._flow(adjoints, a, part, out)


def _made_in(block: Suite) -> list[str]:
    """The names that a branch makes."""
    found: list[str] = []
    for _, item in walk(block):
        if isinstance(item, Apply):
            found.append(item.dst)
        elif isinstance(item, Branch):
            found += [dst for dst, _, _ in item.results]
    return found
