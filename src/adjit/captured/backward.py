"""The graph behind the results of a captured function: its backward is recorded and replayed too.

While the function is watched, gradients are sent back from its results, stand-ins instead of values,
to where the graph leaves the function: to arguments, and to tensors from outside. What that records
becomes plans of their own. A call keeps for them what they read, as a graph does; elementwise values
that follow from what is kept anyway they compute again. Gradients that are to be differentiated again
take another road: see `twice.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ..autograd.engine import AccumulateGrad, Walk
from ..autograd.function import FunctionNode
from ..devices import CPU
from ..graph import record
from ..graph.node import GradNode, Node, dense_spec, node_class
from ..graph.saved import FREED, modified_error
from ..graph.state import record_gradients, state
from ..ops.creation import zeros
from ..schedule.plan_cache import warn
from ..schedule.planning.plan import not_yet
from ..schedule.settle import captured_threads, lock, settle, stop_capturing, tape
from ..storage import Storage, allocate, size_class
from .double_backward import Anew, Unknown
from .program import Externals, Part
from .tracing import Draw, Session

Edge = tuple[GradNode, int]

# Of so many results any set may get gradients; of more, those that get none get zeros.
MOST_APART = 3

# Bytes of values of functions that are kept: a smaller block costs more than the function, and a larger
# one, which leaves the cache, as much.
KEPT = range(1 << 12, 1 << 20)


class Target(NamedTuple):
    """A tensor that gradients go to: an argument, or one from outside."""

    argument: int
    tensor: Any

    def find(self, arguments: Sequence[Any]) -> Any:
        """The tensor, for a call with these arguments."""
        return self.tensor if self.argument < 0 else arguments[self.argument]


class Place(NamedTuple):
    """Something saved that can be written from outside: a target, or else the cell of a result."""

    target: Target | None
    cell: int  # the id of that of the captured call
    number: int  # of the result


class Check(NamedTuple):
    """What may not be written between a call and its backward."""

    counter: Any
    version: int
    tensor: Any  # None for a result: it holds the graph
    number: int  # of the result
    roots: int  # the results, as bits, whose graphs saved it


class Gradient(NamedTuple):
    """Where the gradient of a target comes from, and how its elements lie."""

    value: Any
    spec: Any
    offset: int
    whole: Any  # spec of its storage


class Pattern:
    """The backward from one set of results, yet to be planned; or the forward and that."""

    def __init__(self, gradients: list[Gradient | None], draws: list[Draw]) -> None:
        self.gradients, self.draws = gradients, draws
        self.results: list[Any] = []  # values of the forward that are wanted too
        self.copies: dict[int, Any] = {}  # of nodes, by their ids
        self.part: Part | None = None

    def copy(
        self, is_copied: Callable[[Any], bool], stand_in: Callable[[Any], Any],
        places: dict[int, int], session: Session,
    ) -> None:  # fmt: skip
        """Copy recorded nodes; they read stand-ins where they read others."""
        nodes = _reached([*self.wanted(), *self.results], is_copied)
        nodes.sort(key=lambda node: places[id(node)])
        copies = self.copies
        for node in nodes:
            inputs = [copies.get(id(v)) or stand_in(v) for v in node.inputs]
            copies[id(node)] = _copy(node, tuple(inputs))
        self.batch = list(copies.values())
        self.places = [places[id(node)] for node in nodes]
        self.sites = [session.sites.get(id(node)) for node in nodes]
        self.gradients = [
            g and g._replace(value=copies.get(id(g.value)) or stand_in(g.value))
            for g in self.gradients
        ]

    def wanted(self) -> list[Any]:
        """The values of the gradients."""
        return [g.value for g in self.gradients if g is not None]

    def plan(self, stand_ins: Sequence[Any]) -> Part:
        """The plan; `stand_ins` are those of the values from outside, by their numbers."""
        if self.part is None:
            numbers = {id(value): k for k, value in enumerate(stand_ins)}
            wanted = {id(value) for value in [*self.wanted(), *self.results]}
            part = Part(self.batch, wanted, self.places, self.sites, self.draws)
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


class _Inner(Walk):
    """A walk that ends where the captured function began, before any hooks there."""

    def before(self, fn: GradNode, grads: list[Any]) -> list[Any]:
        return grads if fn in self.goals else super().before(fn, grads)


class Kept(NamedTuple):
    """What a call keeps for its backward."""

    values: Externals
    drawn: list[Any]
    checks: list[Check]
    call: Any  # a WaitingCall, if the forward may not have run yet


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
            if record.is_tensor(t) and id(t) in session.made and id(t.storage) not in before
        }
        graphs = [Graph(t, *_behind(t, session)) for t in made.values() if record.needs_grad(t)]
        self.lost = [graph.root for graph in graphs if graph.is_freed]  # by a backward inside
        self.sent: list[Sending] = []
        live = [graph for graph in graphs if not graph.is_freed]
        if (
            any(graph.root.edge is None for graph in graphs)
            or len({id(graph.root.storage) for graph in graphs}) < len(graphs)
            or any(fn.extras is not None for graph in live for fn in graph.nodes)
        ):
            session.refuse(
                "behind its results is a leaf that it made, a hook, or one memory that they share"
            )
            return
        place = next((g.root.spec.device for g in live if g.root.spec.device is not CPU), None)
        if place is not None:
            session.refuse("its results are on a GPU and need gradients")
            warn("adjit.compile could not plan a captured function", not_yet(place))
            return
        try:
            groups = _groups(live)
            for group in groups:
                is_alone = len(groups) == 1 and not self.lost
                sending = Sending(session, arguments, list(made.values()), group, is_alone)
                self.sent.append(sending)
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
        for sending in self.sent:
            sending.roots = []


class Graph(NamedTuple):
    """What is behind one result: backward nodes of the function, and the edges that lead out of it."""

    root: Any
    nodes: set[GradNode]
    ends: list[Edge]

    @property
    def is_freed(self) -> bool:
        """Whether gradients were sent back through it already."""
        return any(fn.saved is None for fn in self.nodes)


class Sending:
    """The op behind results of a captured function that share a graph.

    Args:
        session: what watches the function.
        arguments: the tensors that it was given.
        made: the tensors that it made and returned.
        graphs: what is behind some of them.
        is_alone: nothing else is behind them, so that forward and backward may be one plan.
    """

    backward_name = "CompiledFunctionBackward"
    node_class = node_class(backward_name)
    is_planned = True  # it settles what its gradients are before it runs

    # ----- while the function is watched -----

    def __init__(
        self, session: Session, arguments: Sequence[Any], made: list[Any], graphs: list[Graph],
        is_alone: bool,
    ) -> None:  # fmt: skip
        self.roots = [graph.root for graph in graphs]
        self.values: list[Any] = []  # what backward reads: first what comes from outside
        self.outside: list[Any] = []  # what forward and backward together read
        self.joints: dict[int, Pattern] = {}  # forward and backward together, by results
        ends = self._find_targets(session, arguments, [end for g in graphs for end in g.ends])
        self.reach = [  # the results, as bits, that lead to each target
            sum(1 << k for k, graph in enumerate(graphs) if end in graph.ends) for end in ends
        ]
        self._find_checks(session, arguments, made, graphs)
        self.outputs = tuple([dense_spec(t.shape, t.dtype, t.spec.device) for t in self.roots])
        self.drawn = [k for k, draw in enumerate(session.draws) if draw.is_unique]
        start, count = len(tape), len(self.roots)
        self.all = (1 << count) - 1
        masks = range(1, self.all + 1) if count <= MOST_APART else [self.all]
        given = [record.ready_node(allocate(size_class(spec.nbytes))) for spec in self.outputs]
        before = record_gradients(False)
        try:
            self.patterns = {mask: self._walk(session, mask, graphs, ends, given) for mask in masks}
        finally:
            record_gradients(before)
        results = list({id(t.storage): t.storage.value for t in made}.values())
        self._find_anew(session, graphs, ends)
        self._cut_off(session, start, results, given, is_alone)

    def _find_targets(
        self, session: Session, arguments: Sequence[Any], ends: list[Edge]
    ) -> list[Edge]:
        """Whose edges lead out of the function; these edges."""
        owners: dict[Edge | None, Target] = {}
        for k, t in enumerate(arguments):
            owners.setdefault(record.edge_of(t), Target(k, None))
        for seen in list(session.outside.values()):
            owners.setdefault(record.edge_of(seen.tensor), Target(-1, seen.tensor))
        found: dict[Edge, Target] = {}
        for end in ends:
            owner, fn = owners.get(end), end[0]
            if owner is None and isinstance(fn, AccumulateGrad):
                if id(fn.variable) in session.made:
                    continue  # nobody will see the gradient of that leaf
                owner = Target(-1, fn.variable)
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
        graphs: list[Graph],
    ) -> None:
        """What was saved that can be written outside."""
        numbers = {id(t.storage): k for k, t in enumerate(self.roots)}
        places = {
            id(t.storage): Place(None, id(t.storage), numbers.get(id(t.storage), 0)) for t in made
        }
        for seen in session.outside.values():
            places[id(seen.counter)] = Place(Target(-1, seen.tensor), 0, 0)
        for k, t in enumerate(arguments):
            places[id(t.counter)] = Place(Target(k, None), 0, 0)
        self.checked: dict[Place, int] = {}  # and the results, as bits, whose graphs saved it
        self.frees = False
        counters: dict[Place, Any] = {}
        for k, graph in enumerate(graphs):
            for fn in graph.nodes:
                self.frees |= bool(fn.saved)
                for kept in _saved_by(fn):
                    counter = kept if kept.__class__ is Storage else kept.counter
                    place = places.get(id(counter))
                    if place is not None:
                        self.checked[place] = self.checked.get(place, 0) | 1 << k
                        counters[place] = counter
        # The same for the captured call itself: what may not be written, and whose that is.
        self.kept_cells = [
            (counter, place.target and place.target.find(arguments))
            for place, counter in counters.items()
        ]

    def _find_anew(self, session: Session, graphs: list[Graph], ends: list[Edge]) -> None:
        """How to make the graph anew for a call whose gradients are to be differentiated again."""
        nodes = set().union(*[graph.nodes for graph in graphs])
        drawn = [session.draws[k].values for k in self.drawn]
        self.anew = Anew(nodes, self.roots, ends, self.kept_cells, drawn)
        del self.kept_cells

    def _walk(
        self, session: Session, mask: int, graphs: list[Graph], ends: list[Edge], given: list[Any]
    ) -> Pattern:
        """Record the backward from some of the results, whose gradients are the `given` values."""
        start, drawn = len(tape), len(session.draws)
        which = [k for k in range(len(graphs)) if mask >> k & 1]
        walk = _Inner(True, None)
        walk.targets = set(ends)
        walk.goals = {fn for fn, _ in ends}
        walk.useful = set().union(*[graphs[k].nodes for k in which])
        walk.order = sorted(walk.useful | walk.goals, key=attrgetter("seq"))
        for k in which:
            spec = self.outputs[k]
            value = record.make_storage(given[k], spec)
            fn, nr = self.roots[k].edge
            walk.send(fn, nr, record.make_tensor(value, spec))
        walk.run()
        fresh = {id(node) for node in [*tape[start:], *given]}
        gradients: list[Gradient | None] = []
        for end in ends:
            g = walk.captured.get(end)
            if g is not None and id(g.storage.value) not in fresh:
                g = g.clone()  # of what the function itself made, or was given
            gradients.append(
                None if g is None else Gradient(g.storage.value, g.spec, g.offset, g.storage.spec)
            )
        draws = session.draws[drawn:]
        del session.draws[drawn:]
        return Pattern(gradients, draws)

    def _cut_off(
        self, session: Session, start: int, results: list[Any], given: list[Any], is_alone: bool
    ) -> None:
        """Part the backwards, which begin at `start` of the tape, from what they read.

        They become copies of the recorded nodes that read stand-ins; nobody looks at the originals.
        """
        forward, places = tape[:start], {id(node): k for k, node in enumerate(tape[:])}

        def is_backward(value: Any) -> bool:
            return value.recipe is not None and places[id(value)] >= start

        read: set[int] = set()
        for pattern in self.patterns.values():
            nodes = _reached(pattern.wanted(), is_backward)
            read.update(id(v) for node in nodes for v in node.inputs if not is_backward(v))
        again = _computable(forward, set(map(id, results)), read)

        def stand_in(value: Any) -> Any:
            if id(value) not in stand_ins:
                stand_ins[id(value)] = record.ready_node(0)
                values.append(value)
            return stand_ins[id(value)]

        heads = {id(value): record.ready_node(0) for value in given}
        if is_alone:
            values, stand_ins = self.outside, dict(heads)
            for mask, pattern in self.patterns.items():
                joint = Pattern(pattern.gradients, [*session.draws, *pattern.draws])
                joint.results = [v for v in results if v.recipe is not None]
                joint.copy(lambda v: v.recipe is not None, stand_in, places, session)
                self.joints[mask] = joint
            self.joint_stand_ins = [*heads.values(), *[stand_ins[id(value)] for value in values]]
        values, stand_ins = self.values, dict(heads)
        for pattern in self.patterns.values():
            pattern.draws[:0] = [draw for draw in session.draws if draw.is_unique]
            pattern.copy(lambda v: id(v) in again or is_backward(v), stand_in, places, session)
        self._find_cells(self.anew, stand_ins, places, session)
        values.sort(key=lambda value: value.recipe is not None)
        self.stand_ins = [*heads.values(), *[stand_ins[id(value)] for value in values]]

    def _find_cells(
        self, anew: Anew, stand_ins: dict[int, Any], places: dict[int, int], session: Session
    ) -> None:
        """How to compute what backward nodes have saved from what backward reads anyway."""
        draws = [draw for draw in session.draws if draw.is_unique]
        gradients = [Gradient(cell.value, cell.spec, 0, cell.spec) for cell in anew.cells]
        anew.cells = []
        self.cells = Pattern([*gradients], draws)

        def stand_in(value: Any) -> Any:
            if id(value) not in stand_ins:
                raise Unknown
            return stand_ins[id(value)]

        self.cells.copy(
            lambda v: v.recipe is not None and id(v) not in stand_ins, stand_in, places, session
        )

    # ----- a call -----

    def connect(
        self,
        results: Sequence[Any],
        arguments: Sequence[Any],
        values: Externals,
        cell_of: Callable[[int], Storage],
        drawn: list[Any],
        call: Any,
    ) -> None:
        """Put a backward node behind the results of a call; `values` are what backward reads."""
        edges = [record.edge_of(target.find(arguments)) for target in self.targets]
        fn = record.new_grad_node(self, edges, self.inputs)
        fn.outputs = self.outputs
        checks = []
        for place, roots in self.checked.items():
            t = place.target and place.target.find(arguments)
            counter = cell_of(place.cell) if t is None else t.counter
            checks.append(Check(counter, counter.version, t, place.number, roots))
        kept = Kept(values, drawn, checks, call)
        if self.frees:
            fn.saved = kept
        else:
            fn.recipe = kept
        for k, out in enumerate(results):
            record.give_history(out, fn, k)

    def pull(self, fn: GradNode, grads: list[Any]) -> list[Any]:
        """Replay the backward."""
        if fn.saved is None:
            raise RuntimeError(FREED)
        if captured_threads and threading.get_ident() in captured_threads:
            stop_capturing(
                "it sends gradients back through the result of another captured function"
            )
        kept: Kept = fn.saved or fn.recipe
        grads = record.as_tensors(fn, grads)
        mask = sum(1 << k for k, g in enumerate(grads) if g is not None)
        for check in kept.checks:
            if check.roots & mask and check.counter.version != check.version:
                raise _written(fn, check)
        if state.grad:
            return self._send_back_anew(self.anew, fn, kept, grads)
        before = record_gradients(False)
        given = mask
        try:
            if mask not in self.patterns:
                mask = self.all
                grads = [
                    zeros(spec.shape, dtype=spec.dtype, device=spec.device) if g is None else g
                    for g, spec in zip(grads, fn.outputs, strict=True)
                ]
            with lock:
                grads = [g if g is None or g.spec.contiguous else g.contiguous() for g in grads]
                if kept.call is not None and kept.call.may_join(grads):
                    found = self._send_back_jointly(self.joints[mask], kept, grads)
                else:
                    if kept.call is not None:
                        kept.call.run()
                    found = self._send_back(self.patterns[mask], kept, grads)
        finally:
            record_gradients(before)
        return [g if given & roots else None for g, roots in zip(found, self.reach, strict=True)]

    def _send_back(self, pattern: Pattern, kept: Kept, grads: list[Any]) -> list[Any]:
        """Run the plan of a backward: the gradients of the targets."""
        settle(everything=True)
        part = pattern.plan(self.stand_ins)
        drawn = [kept.drawn[k] for k in self.drawn]
        blocks = _run(part, pattern, [*_values(grads), *kept.values], drawn)
        return self._gradients(pattern, blocks, grads)

    def _send_back_jointly(self, joint: Pattern, kept: Kept, grads: list[Any]) -> list[Any]:
        """Run forward and backward as one plan: the gradients of the targets."""
        part = joint.plan(self.joint_stand_ins)
        try:
            blocks = _run(part, joint, [*_values(grads), *kept.call.outside], kept.drawn)
        except Exception as error:
            kept.call.fail(error)
            raise
        kept.call.finish([blocks[k] for k in joint.result_blocks])
        return self._gradients(joint, blocks, grads)

    def _send_back_anew(self, anew: Anew, fn: GradNode, kept: Kept, grads: list[Any]) -> list[Any]:
        """Send back through the graph that the call would have left behind uncaptured, recorded."""
        drawn = [kept.drawn[k] for k in self.drawn]
        record_gradients(False)
        try:
            with lock:
                if kept.call is not None:
                    kept.call.run()
                settle(everything=True)
                part = self.cells.plan(self.stand_ins)
                given: Externals = [(record.ready_node(0), 0)] * len(fn.outputs) + kept.values
                blocks = _run(part, self.cells, given, drawn)
        finally:
            record_gradients(True)
        values = [
            given[~block][0] if block < 0 else record.ready_node(blocks[block])
            for block in self.cells.made
        ]
        nodes = anew.make(fn.edges, kept.checks, values, drawn)
        walk = _Inner(True, None)
        walk.targets = {edge for edge in fn.edges if edge is not None}
        walk.goals = {edge[0] for edge in walk.targets}
        walk.useful = set(nodes)
        walk.order = sorted(walk.useful | walk.goals, key=attrgetter("seq"))
        for way, g in zip(anew.roots, grads, strict=True):
            if g is not None:
                walk.send(nodes[way[0]], way[1], g)
        walk.run()
        return [None if edge is None else walk.captured.get(edge) for edge in fn.edges]

    def _gradients(self, pattern: Pattern, blocks: list[Any], grads: list[Any]) -> list[Any]:
        """The gradients of the targets, out of the blocks of a plan."""
        nodes: dict[int, Any] = {}
        found: list[Any] = []
        for gradient, block, wanted in zip(
            pattern.gradients, pattern.made, self.inputs, strict=True
        ):
            if gradient is None:
                found.append(None)
                continue
            _, spec, offset, whole = gradient
            if block < 0:
                g = grads[~block]
                found.append(record.make_tensor(g.storage, spec, g.offset + offset))
                continue
            if block not in nodes:
                nodes[block] = record.ready_node(blocks[block])
            if spec is whole is wanted:
                found.append(nodes[block])
            else:
                cell = record.make_storage(nodes[block], whole)
                found.append(record.make_tensor(cell, spec, offset))
        return found

    def saved_value(self, fn: GradNode, name: str) -> Any:
        """Nothing is saved that could be shown."""
        raise AttributeError(f"'{self.backward_name}' object has no attribute '_saved_{name}'")


class _Freed:
    """The op behind results whose graph the captured function itself has sent back through."""

    backward_name = Sending.backward_name
    node_class = Sending.node_class
    saved_value = Sending.saved_value

    def pull(self, fn: GradNode, grads: list[Any]) -> list[Any]:
        """Refuse."""
        raise RuntimeError(FREED)


_freed = _Freed()


def lose_history(out: Any) -> None:
    """Say that the graph behind a result was freed."""
    fn = record.new_grad_node(_freed, (), ())
    fn.outputs = (out.spec,)
    record.give_history(out, fn)


def _groups(graphs: Sequence[Graph]) -> list[list[Graph]]:
    """Graphs that share nodes which backward frees, together: those apart are freed apart."""
    groups: list[tuple[set[GradNode], list[Graph]]] = []
    for graph in graphs:
        freed = {fn for fn in graph.nodes if fn.saved}
        joined = [group for group in groups if not freed.isdisjoint(group[0])]
        groups = [group for group in groups if freed.isdisjoint(group[0])]
        members = [member for _, others in joined for member in others]
        groups.append((freed.union(*[nodes for nodes, _ in joined]), [*members, graph]))
    return [members for _, members in groups]


def _behind(t: Any, session: Session) -> tuple[set[GradNode], list[Edge]]:
    """The backward nodes behind a result that its function made, and the edges that lead out of it."""
    inner: set[GradNode] = set()
    ends: dict[Edge, None] = {}
    edge = record.edge_of(t)
    stack = [] if edge is None else [edge]
    while stack:
        fn, nr = stack.pop()
        if fn.seq < session.began or isinstance(fn, AccumulateGrad):
            ends[fn, nr] = None
        elif fn not in inner:
            inner.add(fn)
            stack += [edge for edge in fn.edges if edge is not None]
    return inner, list(ends)


def _written(fn: GradNode, check: Check) -> Exception:
    """The error about something saved that has been written."""
    t, counter = check.tensor, check.counter
    if t is None:
        t = record.make_tensor(counter, counter.spec)
        record.give_history(t, fn, check.number)
    return modified_error(fn, t, counter, check.version, None)


def _values(grads: Sequence[Any]) -> list[Any]:
    """The values of gradients, each with the element that it starts at."""
    return [g if g is None else (g.storage.value, g.offset) for g in grads]


def _run(part: Part, pattern: Pattern, given: list[Any], drawn: list[Any]) -> list[Any]:
    """Run the plan of a pattern on values from outside: its blocks."""
    externals = [(given[k][0], given[k][1] + start) for k, start in pattern.reads]
    for value, _ in externals:
        if value.recipe is not None:
            raise value.recipe.error
    more = [np.array(draw.again(), np.int64) for draw in pattern.draws[len(drawn) :]]
    blocks = part.prepare(externals, [*drawn, *more])
    part.run()
    return blocks


def _saved_by(fn: GradNode) -> list[Any]:
    """The tensors, and the cells of results, that a backward node has saved."""
    if isinstance(fn, FunctionNode):
        return [kept[0] for kept in fn.saved or () if kept is not None]
    return list(fn.saved[::2])


def _reached(values: Sequence[Any], is_wanted: Callable[[Any], bool]) -> list[Any]:
    """The nodes that values need, as far as they are wanted."""
    seen: dict[int, Any] = {}
    stack = [value for value in values if is_wanted(value)]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            stack += [v for v in node.inputs if is_wanted(v)]
    return list(seen.values())


def _is_worth_computing(recipe: Any) -> bool:
    """Whether computing a value again costs less than keeping it until backward."""
    element = recipe.element
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


def _copy(node: Any, inputs: tuple[Any, ...]) -> Any:
    """A node that does the same with other inputs."""
    copy = record.new_node(Node)
    copy.recipe, copy.inputs, copy.offsets = node.recipe, inputs, node.offsets
    copy.scalars, copy.site = node.scalars, getattr(node, "site", None)
    return copy
