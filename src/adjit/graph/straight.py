"""Derivatives that are constant in pieces, as `relu`'s: that of theirs by the same operand is 0.

PyTorch's graph has an edge for such a zero, so that programs may ask for second derivatives of networks
of `relu`. Here the edge is there, but no zeros run along it: what is reached by such edges alone has the
gradient 0, which leaves are given when all else is done.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from . import record
from .levels import tracers
from .node import Edge, Gradient, GradNode, Spec, TensorBase, node_class
from .state import state

OPERAND = 1  # the edge of a straight node that has no gradient


class StraightOp:
    """The backward side of a gradient that goes on as it is, and is straight in an operand."""

    __slots__ = ("backward_name", "node_class")

    def __init__(self, backward_name: str) -> None:
        self.backward_name = backward_name
        self.node_class = node_class(backward_name)

    def apply_vjp(self, fn: GradNode, grads: list[Gradient | None]) -> Sequence[Gradient | None]:
        """The gradient as it is, and none."""
        if state.walk is not None:
            state.walk.straight.append(fn.edges[OPERAND])
        return [grads[0], None]

    def straight_edges(self, number: int) -> Sequence[int]:
        """Along which edges the derivative of an output is 0."""
        return (OPERAND,)

    def saved_value(self, fn: GradNode, name: str) -> Any:
        """Nothing is saved that could be shown."""
        raise AttributeError(f"'{self.backward_name}' object has no attribute '_saved_{name}'")


_straight_op = functools.cache(StraightOp)  # by the name


def mark_straight(gradient: TensorBase, operand: TensorBase, backward_name: str) -> None:
    """Have a gradient depend on an operand, or on what was computed from it, by which its derivative is 0."""
    if state.grad and operand.__class__ not in tracers:
        mark_straight_along(gradient, record.edge_of(operand), operand._spec, backward_name)


def mark_straight_along(
    gradient: TensorBase, edge: Edge | None, spec: Spec, backward_name: str
) -> None:
    """`mark_straight`, of an operand of which the graph has the edge and nothing was saved."""
    if edge is not None and state.grad and gradient.__class__ not in tracers:
        edges, specs = (record.edge_of(gradient), edge), (gradient._spec, spec)
        fn = record.new_grad_node(_straight_op(backward_name), edges, specs)
        fn.outputs = (gradient._spec,)
        record.give_history(gradient, fn)


def are_straight_in(edges: Iterable[Edge | None], wanted: Edge | None) -> bool:
    """Whether what these edges lead to depends on something only in derivatives that are 0."""
    if not _straight_op.cache_info().currsize:
        return False
    rest = [(edge, False) for edge in edges]
    seen: set[tuple[Edge, bool]] = set()
    while rest:
        edge, is_zero = rest.pop()
        if edge is None:
            continue
        if is_zero and edge == wanted:
            return True
        if (edge, is_zero) not in seen:
            seen.add((edge, is_zero))
            zeros = straight_edges(edge)
            rest += [(e, is_zero or k in zeros) for k, e in enumerate(edge[0].edges)]
    return False


def straight_edges(edge: Edge) -> Sequence[int]:
    """The edges of a node along which the derivative of one of its outputs is 0."""
    fn, number = edge
    found: Sequence[int] = getattr(fn.op, "straight_edges", _none)(number)
    return found


def _none(number: int) -> Sequence[int]:
    return ()
