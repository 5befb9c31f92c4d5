"""The graphs behind the results of a captured function: which there are, which share a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd.engine import AccumulateGrad
from ..devices import CPU
from ..graph import record
from ..graph.node import NO_GRAD, GradNode
from ..graph.straight import straight_edges
from ..schedule.plan_cache import warn
from ..schedule.planning.plan import not_yet
from .backward import CapturedBackward
from .backward_tracing import Edge, TracedBackward, TracedGraph
from .double_backward import Unknown
from .outputs import origin_of
from .tracing import Session


class Graphs:
    """What is behind the results of a captured function that need gradients.

    Args:
        session: the function has returned, but is still being watched.
        arguments: the tensors that it was given.
        results: the leaves of what it returned.
    """

    def __init__(self, session: Session, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        before = session.storages_before()
        made = {
            id(t): t
            for t in results
            if record.is_tensor(t) and id(t) in session.made and id(t._storage) not in before
        }
        graphs = [
            TracedGraph(t, *_behind(t, session)) for t in made.values() if record.needs_grad(t)
        ]
        self.lost = [graph.root for graph in graphs if graph.is_freed]  # by a backward inside
        self.sent: list[CapturedBackward] = []
        live = [graph for graph in graphs if not graph.is_freed]
        if any(t._grad_value() is not None for t in made.values()):
            session.refuse("a result that it made has a gradient in .grad, by a backward inside")
            return
        if any(
            id(t) in session.made and id(t._storage) in before and _has_own_history(t, session)
            for t in results
            if record.is_tensor(t)
        ):
            session.refuse("it returns memory from before the call that needs gradients of its own")
            return
        if (
            any(graph.root._edge is None for graph in graphs)
            or len({id(graph.root._storage) for graph in graphs}) < len(graphs)
            or any(fn.extras is not None for graph in live for fn in graph.nodes)
        ):
            session.refuse(
                "behind its results is a leaf that it made, a hook, or one memory that they share"
            )
            return
        place = next((g.root._spec.device for g in live if g.root._spec.device is not CPU), None)
        if place is not None:
            session.refuse("its results are on a GPU and need gradients")
            warn("adjit.compile could not plan a captured function", not_yet(place))
            return
        try:
            groups = _groups(live)
            for group in groups:
                is_alone = len(groups) == 1 and not self.lost
                traced = TracedBackward(session, arguments, list(made.values()), group, is_alone)
                self.sent.append(CapturedBackward(traced))
        except Unknown:
            session.refuse(
                "behind its results is an autograd.Function, or another operation whose backward is known only "
                "to the call itself"
            )
        except Exception:
            session.refuse("gradients cannot be sent back through its results")

    def let_go(self) -> None:
        """Forget the tensors of the captured call."""
        self.lost = []
        for backward in self.sent:
            backward.roots = []


def _has_own_history(t: Any, session: Session) -> bool:
    """Whether a view of memory from before the call has not just the history of what it shows."""
    if (
        id(origin_of(t)) not in session.made
    ):  # a view of a tensor from before: a replay makes another one
        return t._edge is not None and t._view_of.kind == NO_GRAD
    return record.needs_grad(t)


def _groups(graphs: Sequence[TracedGraph]) -> list[list[TracedGraph]]:
    """Graphs that share nodes which backward frees, together: those apart are freed apart."""
    groups: list[tuple[set[GradNode], list[TracedGraph]]] = []
    for graph in graphs:
        freed = {fn for fn in graph.nodes if fn.saved}
        joined = [group for group in groups if not freed.isdisjoint(group[0])]
        groups = [group for group in groups if freed.isdisjoint(group[0])]
        members = [member for _, others in joined for member in others]
        groups.append((freed.union(*[nodes for nodes, _ in joined]), [*members, graph]))
    return [members for _, members in groups]


def _behind(
    t: Any, session: Session
) -> tuple[set[GradNode], set[GradNode], dict[Edge, None], dict[Edge, None]]:
    """The backward nodes behind a result that its function made, those that only zeros would reach, and the
    edges that lead out of it, all and those that zeros would run along."""
    live: set[GradNode] = set()
    idle: set[GradNode] = set()
    ends: dict[Edge, None] = {}
    straight_ends: dict[Edge, None] = {}
    stack = [record.edge_of(t)]
    zeros: list[Edge | None] = []
    while stack or zeros:
        is_live = bool(stack)
        edge = (stack or zeros).pop()
        if edge is None:
            continue
        fn = edge[0]
        if fn.seq < session.began or isinstance(fn, AccumulateGrad):
            ends[edge] = None
            if not is_live:
                straight_ends[edge] = None
        elif is_live and fn not in live:
            live.add(fn)
            straight = straight_edges(edge)
            for k, way in enumerate(fn.edges):
                (zeros if k in straight else stack).append(way)
        elif not is_live and fn not in idle:
            idle.add(fn)
            zeros += fn.edges
    return live, idle - live, ends, straight_ends
