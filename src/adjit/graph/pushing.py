"""Forward rules: the tangents of an operation's results, of those of its operands.

A rule stands beside the vjp of its op. `op.linear("x", "y")` says that results are linear in these operands
taken together, `op.multilinear("x", "y")` that they are in each; `@op.jvp` is a function whose parameters name
what it reads: `t_x` is the tangent of operand `x` (None where it has none), all other names are as in a vjp.
`op.selects` and `op.reduces` say that an element of the result is one of an axis, or comes of its own part of
the operand. An op without a rule is differentiated twice in reverse: its vjp is linear in `g`, and the
transpose of that is the Jacobian.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from .node import NewTensor
from .record import is_tensor
from .signature import Argument, NamedArguments
from .trace import Results


class PushedOp(Protocol):
    """An `Operation`."""

    name: str
    params: list[str]

    def with_bound(self, given: NamedArguments) -> Results:
        """Call it with arguments by the names of all parameters."""

    def pull(
        self, given: NamedArguments, outs: Sequence[Argument], gs: Sequence[Argument]
    ) -> NamedArguments:
        """The gradients of operands, by their names, of those of the results."""


# Of arguments by name, tangents by name (of a list of tensors, a list with None in it), and results.
Rule = Callable[[NamedArguments, NamedArguments, tuple[Argument, ...]], Results]


def linear_in(op: PushedOp, names: Sequence[str]) -> Rule:
    """The rule of an op that is linear in several operands together: apply it to their tangents."""

    def rule(
        given: NamedArguments, tangents: NamedArguments, outs: tuple[Argument, ...]
    ) -> Results:
        if not any(name in tangents for name in names):
            return None
        moved = {name: _filled(given[name], tangents.get(name)) for name in names}
        return op.with_bound({**given, **moved})

    return rule


def multilinear_in(op: PushedOp, names: Sequence[str], plus: str | None) -> Rule:
    """The rule of an op that is linear in each of some operands; `plus` is added, perhaps scaled."""

    def rule(
        given: NamedArguments, tangents: NamedArguments, outs: tuple[Argument, ...]
    ) -> Results:
        moving = [name for name in names if name in tangents]
        added = tangents.get(plus) if plus else None
        if added is not None and not moving:
            moving = [names[0]]
        total: Results = None
        for name in moving:
            moved = {**given, name: _filled(given[name], tangents.get(name))}
            if plus:
                moved[plus] = _filled(given[plus], added)
                added = None
            term = op.with_bound(moved)
            total = term if total is None else total + term
        return total

    return rule


def selecting(axis: str, keepdim: str | None) -> Rule:
    """The rule of an op whose second result says which element of an axis of `x` each of the first is."""

    def rule(
        given: NamedArguments, tangents: NamedArguments, outs: tuple[Argument, ...]
    ) -> Results:
        t, where, places = tangents["x"], given[axis], outs[1]
        if not t.ndim:
            return t.reshape(outs[0].shape)
        if keepdim is None or given[keepdim]:
            return t.gather(where, places)
        return t.gather(where, places.unsqueeze(where)).squeeze(where)

    return rule


def reducing(op: PushedOp, axes: str | None, keepdim: str | None) -> Rule:
    """The rule of an op each of whose results comes of its own part of operand `x`, along some axes: what the
    vjp makes of 1 is the derivative, and the products with it are summed there.
    """

    def rule(
        given: NamedArguments, tangents: NamedArguments, outs: tuple[Argument, ...]
    ) -> Results:
        t = tangents["x"]
        found = []
        for k, out in enumerate(outs):
            gs = [None] * len(outs)
            gs[k] = out.new_ones(out.shape)
            slopes = op.pull(given, outs, gs)["x"]
            where = range(t.ndim) if axes is None else given[axes]
            where = (where,) if isinstance(where, int) else tuple(where)
            kept = keepdim is not None and given[keepdim]
            if slopes is None:
                found.append(out.new_zeros(out.shape))
            elif not t.ndim:
                found.append((slopes * t).reshape(out.shape))
            else:
                found.append((slopes * t).sum(where or tuple(range(t.ndim)), kept))
        return tuple(found)

    return rule


def of_names(function: Callable[..., Results], op: PushedOp) -> Rule:
    """The rule of a function that reads what its parameters name.

    Raises:
        TypeError: if a parameter is none of an op's, nor the tangent of one.
    """
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    known = {"out", "outs", *op.params, *[f"t_{name}" for name in op.params]}
    if not set(names) <= known:
        raise TypeError(
            f"{op.name}.jvp: expected parameters among {sorted(known)}, got {list(names)}"
        )

    def rule(
        given: NamedArguments, tangents: NamedArguments, outs: tuple[Argument, ...]
    ) -> Results:
        values = {**given, "out": outs[0], "outs": outs}
        values.update((f"t_{name}", tangents.get(name)) for name in op.params)
        return function(*[values[name] for name in names])

    return rule


def _filled(operand: Argument, tangent: Argument) -> Argument:
    """The tangent of an operand, zeros where there is none."""
    if isinstance(operand, (tuple, list)):
        parts = [None] * len(operand) if tangent is None else tangent
        return [_filled(o, t) for o, t in zip(operand, parts, strict=True)]
    if tangent is not None or not is_tensor(operand):
        return tangent
    return operand.new_zeros(operand.shape)


def added(*terms: NewTensor | None) -> NewTensor:
    """The sum of those that are there, None where none is."""
    total: NewTensor | None = None
    for term in terms:
        if term is not None:
            total = term if total is None else total + term
    return total
