"""Reverse mode of functions of numbers: all gradients for a few times the function.

Every name is assigned once and stays where it was, so that nothing has to be kept: the way back is more
statements behind the function's own, a branch for each branch. It is a structured function again.

A loop has no way back, since nothing keeps what its rounds were: it carries its own derivatives along. Each
round ends with the way back of that one round, for each number that the loop hands on, and these slopes are
multiplied into those since the start. Behind the loop they are its Jacobian, and the way back goes through it
as through any function. What a round costs grows with the numbers that are handed on, not with the gradients.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from .activity import active_names
from .forward_mode import Tangents
from .rules import PICKS, may_be_infinite, rules_for
from .structure import Apply, Atom, Branch, Carried, Procedure, Repeat, Statement, Suite, walk

Adjoints = dict[str, Atom]

# Gradients that forward mode gives; more come of the way back, in loops if each number that they hand on is for
# more than that.
MOST_TANGENTS = 4


def pays(f: Procedure, params: Sequence[str]) -> bool:
    """Whether the way back costs less than a tangent for each of the parameters: unless a loop hands on many
    numbers for which each round would go back."""
    active = active_names(f, params)
    loops = [item for _, item in walk(f.body) if isinstance(item, Repeat)]
    counts = [sum(c.inside in active for c in loop.carried) for loop in loops]
    return len(params) > MOST_TANGENTS * max([1, *counts])


def adjoints_of(f: Procedure, value: Atom, params: Sequence[str], g: str) -> Procedure:
    """The function of (g, its parameters) that gives g times the slopes of a value along parameters."""
    return _WayBack(replace(f, body=copy.deepcopy(f.body), returns=[value]), params).give(value, g)


class _WayBack(Tangents):
    """Writes the way back; what it has of forward mode are the rules."""

    def give(self, value: Atom, g: str) -> Procedure:
        f = self.f
        self._known: dict[Repeat, list[tuple[Carried, str, Atom]]] = {}
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
            elif isinstance(item, Repeat):
                self._loop(item, adjoints, out)
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

    def _loop(self, item: Repeat, adjoints: Adjoints, out: list[Statement]) -> None:
        given = {c: adjoints.pop(c.after) for c in item.carried if c.after in adjoints}
        if not given:
            return
        if item not in self._known:
            self._known[item] = self._jacobian(item)
        is_steep = _may_be_infinite(item)
        for c, name, slope in self._known[item]:
            if c in given:
                self._flow(adjoints, name, self._times(out, given[c], slope, is_steep), out)

    def _jacobian(self, item: Repeat) -> list[tuple[Carried, str, Atom]]:
        """Let a loop carry its derivatives: (what it hands on, the name by which, the slope behind it)."""
        carried = [c for c in item.carried if self.has(c.inside)]
        inside = {c.inside: c for c in carried}
        back: list[Statement] = []
        slopes: dict[Carried, Adjoints] = {}  # of one round
        for c in carried:
            slopes[c] = {}
            self._flow(slopes[c], c.following, 1.0, back)
            self._back(item.body, slopes[c], back)
        names = [str(c.first) for c in carried if self.has(c.first)]
        names += [n for found in slopes.values() for n in found if n not in inside]
        is_steep = _may_be_infinite(item)
        found: list[tuple[Carried, str, Atom]] = []
        for name in dict.fromkeys(names):
            depends = _reached(carried, slopes, name)
            before = {c: self._temporary() for c in depends}
            for c in depends:
                total = slopes[c].get(name)
                for other in depends:
                    slope = slopes[c].get(other.inside)
                    if slope is not None:
                        part = self._times(back, slope, before[other], is_steep)
                        total = part if total is None else self._apply(back, "+", total, part)
                after = self._temporary()
                first = 1.0 if c.first == name else 0.0
                item.carried.append(
                    Carried(before[c], first, 0.0 if total is None else total, after)
                )
                found.append((c, name, after))
        for made in back:
            made.note = made.note or f"back {item.note}"
        item.body.items += back
        return found

    def _times(self, out: list[Statement], a: Atom, b: Atom, is_steep: bool) -> Atom:
        """A product that is 0 where a factor is, also beside an infinite one."""
        product = b if a == 1.0 else self._apply(out, "*", a, b)
        if not is_steep or product == b:
            return product
        tests = [self._apply(out, "!=", x, 0) for x in (a, b)]
        return self._apply(out, "select", self._apply(out, "and", *tests), product, 0.0)

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


def _reached(carried: list[Carried], slopes: dict[Carried, Adjoints], name: str) -> list[Carried]:
    """What of a loop depends on a name that is made before it."""
    found = [c for c in carried if c.first == name or name in slopes[c]]
    for one in found:  # grows
        found += [c for c in carried if one.inside in slopes[c] and c not in found]
    return [c for c in carried if c in found]


def _may_be_infinite(loop: Repeat) -> bool:
    items = (item for _, item in walk(loop.body))
    return any(isinstance(i, Apply) and may_be_infinite(i.function, False) for i in items)


def _made_in(block: Suite) -> list[str]:
    """The names that a branch makes."""
    found: list[str] = []
    for _, item in walk(block):
        if isinstance(item, Apply):
            found.append(item.dst)
        elif isinstance(item, Branch):
            found += [dst for dst, _, _ in item.results]
        elif isinstance(item, Repeat):
            found += [c.after for c in item.carried]
    return found
