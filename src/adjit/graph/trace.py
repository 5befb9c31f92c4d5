"""Traces: what a function of tensors recorded, to be recorded again without calling it.

What the body of an op or of a vjp records depends on nothing but the specs of its operands and its
attributes. So it runs once for each such signature; from then on the nodes that it left are
recorded anew on other operands, in a fraction of the time that its Python takes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from .. import errors
from ..schedule.jit import native
from ..schedule.planning.recipe import Recipe
from ..schedule.settle import MAX_PENDING, pending, settle
from ..shapes import sized
from ..storage import Storage
from . import record
from .elementwise_vjp import picker
from .fastpath import basic
from .levels import is_traced, tracers
from .node import NO_GRAD, Gradient, NewTensor, Node, Spec, Specs, TensorBase, View
from .primitives import filled
from .record import make_storage, make_tensor, new_counter, new_node
from .state import modes_used, state

MAX_TRACES = 4096  # of one op
DRAWN = 3  # scalars that say where random numbers begin
# In the place of a trace: the signature came once; the body has to run every time.
SEEN_ONCE, UNCACHEABLE = "seen once", "uncacheable"

Values = tuple[Node, ...]
Results: TypeAlias = Any  # of a function of tensors: one, or a tuple of them and of None


class TracedNode(NamedTuple):
    """A node to record."""

    recipe: Recipe
    places: tuple[int, ...]  # the numbers of its inputs
    pick: Callable[[Values], Values]  # what picks them
    offsets: tuple[int, ...] | None
    scalars: tuple[int, ...]


class NewStorage(NamedTuple):
    """A storage to make for results."""

    value: int  # its number
    spec: Spec


class Output(NamedTuple):
    """A result to make."""

    is_view: bool  # of an operand
    number: int  # of that, or of the new storage
    spec: Spec
    offset: int  # from where that begins


class Trace:
    """The nodes to record on operands of given specs, and the results to make of them.

    Values are numbered: the operands' first, then those of the nodes, in order.
    """

    __slots__ = ("draws", "many", "outputs", "steps", "storages", "unaliased")
    of_sizes = ("steps", "storages", "outputs")

    def __init__(
        self,
        steps: list[TracedNode],
        storages: list[NewStorage],
        outputs: list[Output | int | None],
        many: bool,
    ) -> None:
        self.steps = tuple(steps)
        self.draws = any(step.recipe.draw is not None for step in steps)
        self.storages = storages
        self.outputs = outputs  # a number stands for the operand itself, None for no result
        self.many = many
        self.unaliased = all(
            o is None or (isinstance(o, Output) and not o.is_view) for o in outputs
        )

    def writes_over(self, operands: int) -> bool:
        """Whether it writes into the memory of an operand, which may hold more than that, or in its place."""
        return any(step.recipe.write and step.places[0] < operands for step in self.steps)

    def record(
        self,
        operands: Sequence[TensorBase],
        values: Values,
        starts: tuple[int, ...] | None,
        fitting: Specs = (),
    ) -> Results:
        """Record the nodes; `starts` are the offsets of the operands, None where all are 0.

        With `fitting`, a spec for each result of a trace without aliases, those that have it come as bare
        values.
        """
        values = recorded()(self.steps, values, starts)
        made = self._gradients(values, fitting) if fitting else self._results(operands, values)
        if len(pending) >= MAX_PENDING:
            settle()
        return made

    def _gradients(self, values: Values, fitting: Specs) -> list[Gradient | None]:
        made: list[Gradient | None] = []
        for output, wanted in zip(self.outputs, fitting, strict=True):
            if output is None:
                made.append(None)
                continue
            assert isinstance(output, Output)
            _, number, spec, offset = output
            at, whole = self.storages[number]
            if spec is wanted and spec is whole and not offset:
                made.append(values[at])
            else:
                made.append(make_tensor(make_storage(values[at], whole), spec, offset))
        return made

    def _results(self, operands: Sequence[TensorBase], values: Values) -> Results:
        storages = [make_storage(values[at], spec) for at, spec in self.storages]
        counter = new_counter()
        made: list[NewTensor | None] = []
        for output in self.outputs:
            if not isinstance(output, Output):
                made.append(output if output is None else operands[output])
                continue
            is_view, number, spec, offset = output
            if is_view:
                made.append(_view(operands[number], spec, offset))
            else:
                made.append(make_tensor(storages[number], spec, offset, counter))
        return tuple(made) if self.many else made[0]


_Key = TypeVar("_Key")
TraceEntry = Trace | str  # what is known of a signature: that, SEEN_ONCE or UNCACHEABLE

native.register_layout(TRACE=Trace, STEP=TracedNode, NEW_STORAGE=NewStorage, OUTPUT=Output)


def _recorded(
    steps: tuple[TracedNode, ...], values: Values, starts: tuple[int, ...] | None
) -> Values:
    """Record nodes on values, from where those start in their memory; all these, and those."""
    for recipe, places, pick, offsets, scalars in steps:
        node = new_node(Node)
        node.recipe = recipe
        node.inputs = pick(values)
        if starts is None:
            node.offsets = offsets
        else:
            shifts = offsets or (0,) * len(places)
            node.offsets = tuple([starts[k] + s for k, s in zip(places, shifts, strict=True)])
            starts += (0,)
        node.scalars = scalars if recipe.draw is None else (*scalars, *recipe.draw())
        if recipe.fallible is not None:
            node.call_site = errors.user_call_site()
        values += (node,)
        pending.append(node)
    return values


@functools.cache
def recorded() -> Callable[..., Values]:
    """`_recorded`, compiled."""
    made: Callable[..., Values] = basic("traces", "repeat", _recorded)
    return made


def _view(t: TensorBase, spec: Spec, offset: int) -> NewTensor:
    """A view of an operand, as view ops make it while gradients are not recorded."""
    out = make_tensor(t._storage, spec, t._offset + offset, t._version_counter)
    base = t if t._view_of is None else t._view_of.base
    out._view_of = View(base, t._version_counter.version, NO_GRAD)
    return out


def usable() -> bool:
    """Whether this thread may record from traces: what is in them is counted by nobody."""
    return not modes_used or state.attentive or not state.careful


def trace(operands: Sequence[TensorBase], run: Callable[[], Results]) -> tuple[Results, TraceEntry]:
    """Run a function of tensors: what it returned, and a trace of what it recorded.

    In its place is `UNCACHEABLE` where the same might not be recorded the next time: the function
    looked at values, drew random numbers, or made tensors from data; and `SEEN_ONCE` after bad luck
    (operands share a value, what is pending was settled meanwhile).
    """
    values = [t._storage.value for t in operands]
    if len(set(map(id, values))) < len(values):
        return run(), SEEN_ONCE  # which of two operands a node reads could not be told
    start = len(pending)
    before, state.deterministic, state.whole = (state.deterministic, state.whole), True, False
    try:
        out = run()
        is_deterministic, is_whole = state.deterministic, state.whole
    finally:
        state.deterministic, state.whole = state.deterministic and before[0], before[1]
    entry = _traced(operands, values, pending[start:], out) if is_deterministic else UNCACHEABLE
    if isinstance(entry, Trace) and not is_whole and entry.writes_over(len(operands)):
        return out, UNCACHEABLE  # the next one may be a part of a memory
    return out, entry


def rehearsed(operands: Sequence[TensorBase], run: Callable[[], Results]) -> TraceEntry:
    """The trace of a function that runs on the stand-ins that `apart` gives, and then on the operands.

    What was recorded on the stand-ins is let go of, so that it never runs, and draws use up no random numbers.
    An error may be one of their zeros: if it is not, the run on the operands raises it.
    """
    before, state.rehearsing = state.rehearsing, True
    try:
        return trace(operands, run)[1]
    except Exception:
        return UNCACHEABLE
    finally:
        state.rehearsing = before


def apart(operands: Sequence[TensorBase]) -> Sequence[TensorBase]:
    """The operands of a trace, with zeros in the place of those that share a value with another, or whose
    memory others look at.

    Views of one tensor, as the queries and keys of attention often are: a trace could not tell
    which of them a node reads. What reads memory of others runs at once, and then there is nothing to trace.
    """
    seen: set[int] = set()
    given = []
    for t in operands:
        spec = t._spec
        if id(t._storage.value) in seen or t._storage.shared:
            room = filled(sized((spec.extent,)), 0, spec.dtype, spec.device)
            t = make_tensor(room._storage, spec)
        seen.add(id(t._storage.value))
        given.append(t)
    return operands if all(a is b for a, b in zip(operands, given, strict=True)) else given


def remembered(
    memory: dict[_Key, TraceEntry],
    key: _Key,
    operands: Sequence[TensorBase],
    run: Callable[[], Results],
) -> Results:
    """What `run` returns; from the third time on under a key, by a trace kept in `memory`."""
    if tracers and is_traced(operands):
        return run()
    values: list[Node] = []
    starts: list[int] = []
    shared = 0
    for t in operands:
        values.append(t._storage.value)
        starts.append(t._offset)
        shared |= t._storage.shared
    entry = UNCACHEABLE if shared or not usable() else memory.get(key)
    if isinstance(entry, Trace):
        return entry.record(operands, tuple(values), tuple(starts) if any(starts) else None)
    if entry is SEEN_ONCE:
        out, memory[key] = trace(operands, run)
        return out
    if entry is None:
        if len(memory) >= MAX_TRACES:
            memory.clear()
        memory[key] = SEEN_ONCE
    return run()


def _traced(
    operands: Sequence[TensorBase], values: list[Node], recorded: list[Node], out: Results
) -> TraceEntry:
    number = {id(value): k for k, value in enumerate(values)}
    many = out.__class__ is tuple
    by_id: dict[int, Storage] = {}
    outputs: list[Output | int | None] = []
    for o in out if many else (out,):
        if o is None:
            outputs.append(None)
            continue
        if not record.is_tensor(o):
            return UNCACHEABLE
        k = next((k for k, t in enumerate(operands) if t._storage is o._storage), None)
        if k is None and (o._edge is not None or o.__class__ is not record.Tensor):
            return UNCACHEABLE
        if k is None:
            by_id.setdefault(id(o._storage), o._storage)
            outputs.append(Output(False, list(by_id).index(id(o._storage)), o._spec, o._offset))
        elif o is operands[k]:
            outputs.append(k)
        else:
            outputs.append(Output(True, k, o._spec, o._offset - operands[k]._offset))
    storages = list(by_id.values())

    wanted = {id(s.value) for s in storages}
    nodes = []
    for node in reversed(recorded):
        if id(node) in wanted:
            # Another thread may run it meanwhile: that takes the recipe first, so what is read before is whole.
            inputs, offsets, scalars, recipe = node.inputs, node.offsets, node.scalars, node.recipe
            if not isinstance(recipe, Recipe) or inputs is None:
                return SEEN_ONCE
            nodes.append((id(node), recipe, inputs, offsets, lasting_scalars(recipe, scalars)))
            wanted.update(map(id, inputs))
    nodes.reverse()
    number.update({name: len(values) + k for k, (name, *_) in enumerate(nodes)})
    if not wanted <= number.keys():
        return SEEN_ONCE if any(s.value.recipe is None for s in storages) else UNCACHEABLE
    if any(number[id(s.value)] < len(values) for s in storages):
        return UNCACHEABLE  # a result has an operand's value, which the next one may show from elsewhere

    starts = [t._offset for t in operands] + [0] * len(nodes)
    steps = []
    for _, recipe, inputs, given, scalars in nodes:
        places = tuple([number[id(value)] for value in inputs])
        shifts = given or (0,) * len(places)
        offsets = tuple([a - starts[k] for a, k in zip(shifts, places, strict=True)])
        kept = None if given is None and not any(offsets) else offsets
        steps.append(TracedNode(recipe, places, picker(places), kept, scalars))
    made = [NewStorage(number[id(s.value)], s.spec) for s in storages]
    return Trace(steps, made, outputs, many)


def lasting_scalars(recipe: Recipe, scalars: tuple[int, ...]) -> tuple[int, ...]:
    """Those of a node that are the same when it is recorded again."""
    return scalars if recipe.draw is None else scalars[:-DRAWN]
