"""The plan of a backward: copies of recorded nodes, planned when the backward first runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..graph import record
from ..graph.node import Node
from .program import ProgramPart
from .tracing import Draw, Session


class Gradient(NamedTuple):
    """Where the gradient of a target comes from, and how its elements lie."""

    value: Any
    spec: Any
    offset: int
    whole: Any  # spec of its storage


class BackwardPlan:
    """The backward from one set of results, yet to be planned; or the forward and that."""

    def __init__(self, gradients: list[Gradient | None], draws: list[Draw]) -> None:
        self.gradients, self.draws = gradients, draws
        self.results: list[Any] = []  # values of the forward that are wanted too
        self.copies: dict[int, Any] = {}  # of nodes, by their ids
        self.part: ProgramPart | None = None

    def copy(
        self, is_copied: Callable[[Any], bool], placeholder: Callable[[Any], Any],
        places: dict[int, int], session: Session,
    ) -> None:  # fmt: skip
        """Copy recorded nodes; they read placeholders where they read others."""
        nodes = reached([*self.wanted(), *self.results], is_copied)
        nodes.sort(key=lambda node: places[id(node)])
        copies = self.copies
        for node in nodes:
            inputs = [copies.get(id(v)) or placeholder(v) for v in node.inputs]
            copies[id(node)] = _copy(node, tuple(inputs))
        self.batch = list(copies.values())
        self.places = [places[id(node)] for node in nodes]
        self.sites = [session.sites.get(id(node)) for node in nodes]
        self.gradients = [
            g and g._replace(value=copies.get(id(g.value)) or placeholder(g.value))
            for g in self.gradients
        ]

    def wanted(self) -> list[Any]:
        """The values of the gradients."""
        return [g.value for g in self.gradients if g is not None]

    def plan(self, placeholders: Sequence[Any]) -> ProgramPart:
        """The plan; `placeholders` are those of the values from outside, by their numbers."""
        if self.part is None:
            numbers = {id(value): k for k, value in enumerate(placeholders)}
            wanted = {id(value) for value in [*self.wanted(), *self.results]}
            part = ProgramPart(self.batch, wanted, self.places, self.sites, self.draws)
            self.reads = [(numbers[id(value)], start) for value, start in part.externals]
            # Blocks of the plan, or ~ the numbers of results whose gradients are passed on.
            self.made = [
                0 if g is None else part.blocks.get(id(g.value), ~numbers.get(id(g.value), 0))
                for g in self.gradients
            ]
            self.result_blocks = [part.blocks[id(value)] for value in self.results]
            part.link()
            self.gradients = [None if g is None else g._replace(value=None) for g in self.gradients]
            self.batch, self.results, self.copies, self.part = [], [], {}, part
        return self.part


def reached(values: Sequence[Any], is_wanted: Callable[[Any], bool]) -> list[Any]:
    """The nodes that values need, as far as they are wanted."""
    seen: dict[int, Any] = {}
    stack = [value for value in values if is_wanted(value)]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            stack += [v for v in node.inputs if is_wanted(v)]
    return list(seen.values())


def _copy(node: Any, inputs: tuple[Any, ...]) -> Any:
    """A node that does the same with other inputs."""
    copy = record.new_node(Node)
    copy.recipe, copy.inputs, copy.offsets = node.recipe, inputs, node.offsets
    copy.scalars, copy.call_site = node.scalars, getattr(node, "call_site", None)
    return copy
