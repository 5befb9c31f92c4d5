"""The backward of a captured function, recorded while the function is watched.

Gradients are sent back from its results, placeholders instead of values, to where the graph leaves the
function: to arguments, and to tensors from outside. What that records becomes plans of their own. They
read what a call keeps for them, as a graph does; elementwise values that follow from what is kept anyway
they compute again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from ..autograd.engine import AccumulateGrad, Walk
from ..autograd.function import FunctionNode
from ..graph import record
from ..graph.node import GradNode, dense_spec
from ..graph.state import record_gradients, resume_gradients
from ..schedule.settle import pending
from ..storage import Storage, allocate, size_class
from .backward_plan import BackwardPlan, Gradient, reached
from .double_backward import RebuiltGraph, Unknown
from .tracing import Session

Edge = tuple[GradNode, int]
# Of so many results any set may get gradients; of more, those that get none get zeros.
MOST_APART = 3
# Bytes of values of functions that are kept: a smaller block costs more than the function, and a larger
# one, which leaves the cache, as much.
KEPT = range(1 << 12, 1 << 20)


class GradientTarget(NamedTuple):
    """A tensor that gradients go to: an argument, or one from outside."""

    argument: int
    tensor: Any

    def find(self, arguments: Sequence[Any]) -> Any:
        """The tensor, for a call with these arguments."""
        return self.tensor if self.argument < 0 else arguments[self.argument]


class GradientPlace(NamedTuple):
    """Something saved that can be written from outside: a target, or else the storage of a result."""

    target: GradientTarget | None
    storage: int  # the id of that of the captured call
    number: int  # of the result


class InnerWalk(Walk):
    """A walk that ends where the captured function began, before any hooks there."""

    def arrived(self, fn: GradNode, grads: list[Any]) -> list[Any]:
        return grads if fn in self.goals else super().arrived(fn, grads)


class TracedGraph(NamedTuple):
    """What is behind one result: backward nodes of the function, and the edges that lead out of it."""

    root: Any
    nodes: set[GradNode]
    idle: set[GradNode]  # those that only zeros would reach
    ends: dict[Edge, None]
    straight_ends: dict[Edge, None]  # those that zeros would run along

    @property
    def is_freed(self) -> bool:
        """Whether gradients were sent back through it already."""
        return any(fn.saved is None for fn in self.nodes)


class TracedBackward:
    """What is recorded of the backward of results that share a graph while the function is watched.

    Args:
        session: what watches the function.
        arguments: the tensors that it was given.
        made: the tensors that it made and returned.
        graphs: what is behind some of them.
        is_alone: nothing else is behind them, so that forward and backward may be one plan.
    """

    def __init__(
        self, session: Session, arguments: Sequence[Any], made: list[Any], graphs: list[TracedGraph],
        is_alone: bool,
    ) -> None:  # fmt: skip
        if any(isinstance(fn, FunctionNode) for graph in graphs for fn in graph.nodes | graph.idle):
            raise Unknown  # before the user's code runs: it may add to what it keeps, or count
        self.roots = [graph.root for graph in graphs]
        self.values: list[Any] = []  # what backward reads: first what comes from outside
        self.outside: list[Any] = []  # what forward and backward together read
        self.joints: dict[int, BackwardPlan] = {}  # forward and backward together, by results
        self.joint_placeholders: list[Any] = []
        ends = self._find_targets(session, arguments, [end for g in graphs for end in g.ends])
        self.reach = [  # the results, as bits, that lead to each target
            sum(1 << k for k, graph in enumerate(graphs) if end in graph.ends) for end in ends
        ]
        self.straight_reach = [  # those that lead there by derivatives that are 0
            sum(1 << k for k, graph in enumerate(graphs) if end in graph.straight_ends)
            for end in ends
        ]
        self._find_checks(session, arguments, made, graphs)
        self.outputs = tuple([dense_spec(t.shape, t.dtype, t._spec.device) for t in self.roots])
        self.drawn = [k for k, draw in enumerate(session.draws) if draw.is_unique]
        start, count = len(pending), len(self.roots)
        self.all = (1 << count) - 1
        masks = range(1, self.all + 1) if count <= MOST_APART else [self.all]
        given = [record.ready_node(allocate(size_class(spec.nbytes))) for spec in self.outputs]
        before = record_gradients(False)
        try:
            self.plans = {mask: self._walk(session, mask, graphs, ends, given) for mask in masks}
        finally:
            if before:
                resume_gradients()
        results = list({id(t._storage): t._storage.value for t in made}.values())
        self._find_rebuilt(session, graphs, ends)
        self._cut_off(session, start, results, given, is_alone)

    def _find_targets(
        self, session: Session, arguments: Sequence[Any], ends: list[Edge]
    ) -> list[Edge]:
        """Whose edges lead out of the function; these edges."""
        owners: dict[Edge | None, GradientTarget] = {}
        for k, t in enumerate(arguments):
            owners.setdefault(record.edge_of(t), GradientTarget(k, None))
        for seen in list(session.outside.values()):
            owners.setdefault(record.edge_of(seen.tensor), GradientTarget(-1, seen.tensor))
        found: dict[Edge, GradientTarget] = {}
        for end in ends:
            owner, fn = owners.get(end), end[0]
            if owner is None and isinstance(fn, AccumulateGrad):
                if id(fn.variable) in session.made:
                    continue  # nobody will see the gradient of that leaf
                owner = GradientTarget(-1, fn.variable)
            if owner is None:
                raise RuntimeError("a graph from outside")
            found[end] = owner
        self.targets = list(found.values())
        self.inputs = tuple([fn.outputs[nr] for fn, nr in found])
        return list(found)

    def _find_checks(
        self,
        session: Session,
        arguments: Sequence[Any],
        made: list[Any],
        graphs: list[TracedGraph],
    ) -> None:
        """What was saved that can be written outside."""
        numbers = {id(t._storage): k for k, t in enumerate(self.roots)}
        places = {
            id(t._storage): GradientPlace(None, id(t._storage), numbers.get(id(t._storage), 0))
            for t in made
        }
        for seen in session.outside.values():
            places[id(seen.counter)] = GradientPlace(GradientTarget(-1, seen.tensor), 0, 0)
        for k, t in enumerate(arguments):
            places[id(t._version_counter)] = GradientPlace(GradientTarget(k, None), 0, 0)
        # And the results, as bits, whose graphs saved it.
        self.checked: dict[GradientPlace, int] = {}
        saved: dict[int, int] = {}  # the same of values, by id
        self.frees = False
        counters: dict[GradientPlace, Any] = {}
        for k, graph in enumerate(graphs):
            for fn in graph.nodes:
                self.frees |= bool(fn.saved)
                for kept in fn.saved[::2]:  # tensors, and storages of results
                    is_storage = kept.__class__ is Storage
                    counter = kept if is_storage else kept._version_counter
                    place = places.get(id(counter))
                    if place is not None:
                        value = id((kept if is_storage else kept._storage).value)
                        saved[value] = saved.get(value, 0) | 1 << k
                        self.checked[place] = self.checked.get(place, 0) | 1 << k
                        counters[place] = counter
        # Values that nobody may write until backward, whichever results it begins at.
        self.saved = {value for value, roots in saved.items() if roots + 1 == 1 << len(graphs)}
        # The same for the captured call itself: what may not be written, and whose that is.
        self.kept_storages = [
            (counter, place.target and place.target.find(arguments))
            for place, counter in counters.items()
        ]

    def _find_rebuilt(self, session: Session, graphs: list[TracedGraph], ends: list[Edge]) -> None:
        """How to make the graph anew for a call whose gradients are to be differentiated again."""
        nodes = set().union(*[graph.nodes for graph in graphs])
        idle = set().union(*[graph.idle for graph in graphs]) - nodes
        drawn = [session.draws[k].values for k in self.drawn]
        self.rebuilt = RebuiltGraph(nodes, idle, self.roots, ends, self.kept_storages, drawn)
        del self.kept_storages

    def _walk(
        self,
        session: Session,
        mask: int,
        graphs: list[TracedGraph],
        ends: list[Edge],
        given: list[Any],
    ) -> BackwardPlan:
        """Record the backward from some of the results, whose gradients are the `given` values."""
        start, drawn = len(pending), len(session.draws)
        which = [k for k in range(len(graphs)) if mask >> k & 1]
        walk = InnerWalk(True, None)
        walk.targets = set(ends)
        walk.goals = {fn for fn, _ in ends}
        walk.useful = set().union(*[graphs[k].nodes for k in which])
        walk.order = sorted(walk.useful | walk.goals, key=attrgetter("seq"))
        for k in which:
            spec = self.outputs[k]
            value = record.make_storage(given[k], spec)
            fn, nr = self.roots[k]._edge
            walk.send(fn, nr, record.make_tensor(value, spec))
        walk.run()
        fresh = {id(node) for node in [*pending[start:], *given]}
        gradients: list[Gradient | None] = []
        for end in ends:
            g = walk.captured.get(end)
            if g is not None and id(g._storage.value) not in fresh:
                g = g.clone()  # of what the function itself made, or was given
            gradients.append(
                None
                if g is None
                else Gradient(g._storage.value, g._spec, g._offset, g._storage.spec)
            )
        draws = session.draws[drawn:]
        del session.draws[drawn:]
        return BackwardPlan(gradients, draws)

    def _cut_off(
        self, session: Session, start: int, results: list[Any], given: list[Any], is_alone: bool
    ) -> None:
        """Part the backwards, which begin at `start` of what is pending, from what they read.

        They become copies of the recorded nodes that read placeholders; nobody looks at the originals.
        """
        forward, places = pending[:start], {id(node): k for k, node in enumerate(pending[:])}

        def is_backward(value: Any) -> bool:
            return value.recipe is not None and places[id(value)] >= start

        read: set[int] = set()
        for plan in self.plans.values():
            nodes = reached(plan.wanted(), is_backward)
            read.update(id(v) for node in nodes for v in node.inputs if not is_backward(v))
        again = _computable(forward, set(map(id, results)), read)

        def placeholder(value: Any) -> Any:
            if id(value) not in placeholders:
                placeholders[id(value)] = record.ready_node(0)
                values.append(value)
            return placeholders[id(value)]

        heads = {id(value): record.ready_node(0) for value in given}
        if is_alone:
            values, placeholders = self.outside, dict(heads)
            for mask, plan in self.plans.items():
                joint = BackwardPlan(plan.gradients, [*session.draws, *plan.draws])
                joint.results = [v for v in results if v.recipe is not None]
                joint.copy(lambda v: v.recipe is not None, placeholder, places, session)
                self.joints[mask] = joint
            self.joint_placeholders = [
                *heads.values(),
                *[placeholders[id(value)] for value in values],
            ]
        values, placeholders = self.values, dict(heads)
        for plan in self.plans.values():
            plan.draws[:0] = [draw for draw in session.draws if draw.is_unique]
            plan.copy(lambda v: id(v) in again or is_backward(v), placeholder, places, session)
        self._find_storages(self.rebuilt, placeholder, placeholders, places, session)
        values.sort(key=lambda value: value.recipe is not None)
        self.placeholders = [*heads.values(), *[placeholders[id(value)] for value in values]]

    def _find_storages(
        self,
        rebuilt: RebuiltGraph,
        placeholder: Callable[[Any], Any],
        placeholders: dict[int, Any],
        places: dict[int, int],
        session: Session,
    ) -> None:
        """How to compute what backward nodes have saved from what backward reads, and more from outside."""
        draws = [draw for draw in session.draws if draw.is_unique]
        gradients = [
            Gradient(storage.value, storage.spec, 0, storage.spec) for storage in rebuilt.storages
        ]
        rebuilt.storages = []
        self.storages = BackwardPlan([*gradients], draws)

        self.storages.copy(
            lambda v: v.recipe is not None and id(v) not in placeholders,
            placeholder,
            places,
            session,
        )


def _is_worth_computing(recipe: Any) -> bool:
    """Whether computing a value again costs less than keeping it until backward."""
    element = recipe.fusion.element
    return element is not None and (element.body.is_cheap or recipe.spec.nbytes not in KEPT)


def _computable(forward: Sequence[Any], at_hand: set[int], read: set[int]) -> set[int]:
    """The elementwise values that follow from what is there at backward anyway.

    That are values from outside, those that are `at_hand`, and those among `read` that do not follow.
    """
    there, found = set(at_hand), set()
    for node in forward:
        if id(node) in there:
            continue
        if _is_worth_computing(node.recipe) and all(
            v.recipe is None or id(v) in there for v in node.inputs
        ):
            found.add(id(node))
            there.add(id(node))
        elif id(node) in read:
            there.add(id(node))
    return found
