"""Forward mode: from a structured function to one that computes tangents too.

Every name `x` with a tangent gets `x_d`, arrays get arrays; a second pass over a function adds `x_1d`. The
result is a structured function again, so that it can be reversed: the reverse of the tangents is the derivative
of the gradient.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from .activity import active_names
from .rules import PICKS, may_be_infinite, rules_for
from .structure import (
    Apply,
    Atom,
    Branch,
    Carried,
    Demand,
    Load,
    Make,
    Procedure,
    Repeat,
    Statement,
    StoreElement,
    Suite,
    eliminate,
    link,
)
from .vocabulary import BINARY, COMPARE, TESTS


def tangent_of(f: Procedure, params: Sequence[str], *, only_tangents: bool) -> Procedure:
    """The function of (its parameters, directions of `params`) that gives its results and their tangents."""
    return Tangents(f, params).run(only_tangents)


def tangent_suffix(f: Procedure) -> str:
    """What the names of tangents of a function end with."""
    return f"_{f.tangents}d" if f.tangents else "_d"


class Tangents:
    """The rules of tangents, over a function."""

    def __init__(self, f: Procedure, params: Sequence[str]) -> None:
        self.f = f
        self.params = list(params)
        self.active = active_names(f, params)
        self.suffix = tangent_suffix(f)
        self.count = 0
        self.types: dict[str, str] = {}  # of what is made here

    def name(self, a: Atom) -> str:
        """What the tangent of a name is called."""
        return f"{a}{self.suffix}"

    def has(self, a: Atom | None) -> bool:
        return isinstance(a, str) and self.f.root(a) in self.active

    def of(self, a: Atom) -> Atom:
        return self.name(a) if self.has(a) else 0.0

    def run(self, only_tangents: bool) -> Procedure:
        f = self.f
        arrays, alias = dict(f.arrays), dict(f.alias)
        for a, kind in f.arrays.items():
            if self.has(a) or a in self.params:
                arrays[self.name(a)] = kind
                if a in f.alias:
                    alias[self.name(a)] = self.name(f.alias[a])
        tangents = [self.of(v) for v in f.returns]
        g = Procedure(
            name=f"{f.name}_tangent",
            params=[*f.params, *[self.name(p) for p in self.params]],
            arrays=arrays,
            body=self._block(f.body),
            returns=tangents if only_tangents else [*f.returns, *tangents],
            returns_tuple=f.returns_tuple if only_tangents else True,
            written=f.written | {self.name(a) for a in f.written if self.has(a)},
            alias=alias,
            heading=f.heading,
            tangents=f.tangents + 1,
        )
        eliminate(g)
        link(g)
        made = [self.name(a) for a in f.types if self.has(a)]
        g.types = {**f.types, **dict.fromkeys(made, "f8"), **self.types}
        return g

    def _block(self, block: Suite) -> Suite:
        out = Suite(block.kind)
        for item in block.items:
            before = len(out.items)
            self._item(item, out.items)
            for made in out.items[before:]:
                made.note = item.note
        return out

    def _item(self, item: Statement, out: list[Statement]) -> None:
        match item:
            case Apply():
                out.append(Apply(item.dst, item.function, list(item.args)))
                if self.has(item.dst):
                    self._tangent(item, out)
            case Load():
                out.append(Load(item.dst, item.array, list(item.index)))
                if self.has(item.dst):
                    out.append(Load(self.name(item.dst), self.name(item.array), list(item.index)))
            case StoreElement():
                tangent = self.of(item.value)
                if self.has(item.array) and not (item.adds and tangent == 0.0):
                    array, old = self.name(item.array), self.name(item.old)
                    out.append(StoreElement(array, list(item.index), tangent, old, item.adds))
                out.append(
                    StoreElement(item.array, list(item.index), item.value, item.old, item.adds)
                )
            case Make():
                out.append(Make(item.dst, list(item.shape), item.fill, item.dtype))
                if self.has(item.dst):
                    out.append(Make(self.name(item.dst), list(item.shape), 0, item.dtype))
            case Demand():
                out.append(Demand(item.condition, item.error, item.message))
            case Branch():
                results = list(item.results)
                results += [
                    (self.name(d), self.of(a), self.of(b)) for d, a, b in results if self.has(d)
                ]
                out.append(
                    Branch(
                        item.condition, self._block(item.then), self._block(item.orelse), results
                    )
                )
            case Repeat():
                carried: list[Carried] = []
                for c in item.carried:
                    carried.append(Carried(c.inside, c.first, c.following, c.after, c.is_array))
                    if self.has(c.inside):
                        first, following = self.of(c.first), self.of(c.following)
                        carried.append(
                            Carried(
                                self.name(c.inside),
                                first,
                                following,
                                self.name(c.after),
                                c.is_array,
                            )
                        )
                out.append(
                    Repeat(
                        item.kind, self._block(item.body), carried, item.trips, item.leaves, item.counter,
                        item.start, item.stop, item.step, item.test and self._block(item.test), item.condition,
                    )
                )  # fmt: skip

    def _apply(self, out: list[Statement], function: str, *args: Atom) -> Atom:
        dst = self._temporary()
        out.append(Apply(dst, function, list(args)))
        if function in TESTS:
            self.types[dst] = "b1"
        return dst

    def _temporary(self) -> str:
        self.count += 1
        name = f"d{self.f.tangents or ''}_{self.count}q"
        self.types[name] = "f8"
        return name

    def _kept_from_poles(self, item: Apply, g: Atom, part: Atom, out: list[Statement]) -> Atom:
        """A part of a derivative, 0 where no gradient flows or, of exp, where the result is 0."""
        if may_be_infinite(item.function, False):
            return self._apply(out, "select", self._apply(out, "!=", g, 0), part, 0.0)
        if item.function == "np.exp":  # of minus infinity, whose tangent may be infinite
            return self._apply(out, "select", self._apply(out, "!=", item.dst, 0), part, 0.0)
        return part

    def _tangent(self, item: Apply, out: list[Statement]) -> None:
        dst, args = self.name(item.dst), item.args
        if item.function == "select":
            out.append(Apply(dst, "select", [args[0], self.of(args[1]), self.of(args[2])]))
            return
        if item.function in PICKS:
            test = self._rule(PICKS[item.function], item, 0.0, out)
            out.append(Apply(dst, "select", [test, self.of(args[0]), self.of(args[1])]))
            return
        total: Atom | None = None
        for a, rule in zip(args, rules_for(item.function, args), strict=False):
            if rule is None or not self.has(a):
                continue
            g = self.of(a)
            part = self._kept_from_poles(item, g, self._rule(rule, item, g, out), out)
            total = part if total is None else self._apply(out, "+", total, part)
        assert total is not None
        kind = "float32" if self.f.types.get(item.dst) == "f4" else "float64"
        out.append(Apply(dst, kind, [total]))

    def _rule(self, rule: str, item: Apply, g: Atom, out: list[Statement]) -> Atom:
        """The items of a rule's text."""
        names: dict[str, Atom] = {f"a{k}": a for k, a in enumerate(item.args)} | {
            "g": g,
            "r": item.dst,
        }
        told = rule.format(*[f"a{k}" for k in range(len(item.args))], g="g", r="r")

        def go(e: ast.expr) -> Atom:
            match e:
                case ast.Name(name):
                    return names[name]
                case ast.Constant(bool() | int() | float() as value):
                    return value
                case ast.BinOp(a, op, b):
                    return self._apply(out, BINARY[type(op)], go(a), go(b))
                case ast.UnaryOp(ast.USub(), a):
                    inner = go(a)
                    return -inner if not isinstance(inner, str) else self._apply(out, "neg", inner)
                case ast.UnaryOp(ast.Not(), a):
                    return self._apply(out, "not", go(a))
                case ast.Call(function, args):
                    return self._apply(out, ast.unparse(function), *[go(a) for a in args])
                case ast.IfExp(test, a, b):
                    return self._apply(out, "select", go(test), go(a), go(b))
                case ast.Compare(a, [op], [b]):
                    return self._apply(out, COMPARE[type(op)], go(a), go(b))
            raise AssertionError(ast.dump(e))

        return go(ast.parse(told, mode="eval").body)
