"""Walks with many gradients at once that come again.

Where gradients are the examples of a `vmap` (rows of a Jacobian, `is_grads_batched`), each vjp is read on
tracers, in Python. What such a walk records depends on nothing but the nodes that it passes, how many
examples there are, and the specs: so it is traced as a whole, and recorded from the trace from the third
time on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from ..graph import record
from ..graph.levels import tracers
from ..graph.node import Edge, GradNode, Node, TensorBase
from ..graph.op_record import OpRecord
from ..graph.operation import SavePlan
from ..graph.state import observers, state
from ..graph.trace import SEEN_ONCE, Trace, trace, usable
from ..graph.view import ViewPullback, ViewVjp
from ..storage import Storage
from ..tracers.batched import BatchLevel

MAX_WALKS = 512

Start = tuple[Edge, Any]  # where a gradient begins, and it


class PlannedWalk(Protocol):
    """A `Walk` that is about to run."""

    keep: bool
    order: list[GradNode]
    useful: set[GradNode] | None

    def gradients(self, starts: Sequence[Start], targets: Sequence[Edge | None]) -> list[Any]:
        """Walk from where gradients begin: those that arrived at targets."""


class RepeatedWalk(NamedTuple):
    """What a walk recorded, to be recorded again."""

    trace: Trace
    wrapped: tuple[bool, ...]  # which results are one of the examples
    freed: tuple[int, ...]  # the numbers of the nodes whose saved tensors it let go of


_walks: dict[Hashable, RepeatedWalk | str] = {}


class _NotRepeated(Exception):
    """The walk passes what may be another thing the next time."""


class _Reading:
    """What a walk depends on: a key, and the values behind it, each of which is met once."""

    def __init__(self) -> None:
        self.key: list[Hashable] = []
        self.operands: list[TensorBase] = []
        self.values: list[Node] = []
        self.starts: list[int] = []
        self._places: dict[int, int] = {}  # by the id of a value
        self.level: BatchLevel | None = None

    def gradient(self, g: Any) -> None:
        """Add a gradient with which the walk begins."""
        if g.__class__ in tracers:
            level = g._level
            if not isinstance(level, BatchLevel) or self.level not in (None, level):
                raise _NotRepeated
            self.level, g = level, g._value
            self.key += (level.size, level.randomness)
        self.key.append(g._spec)
        self.tensor(g)

    def tensor(self, t: TensorBase) -> None:
        """Add a tensor: which value it shows, and how far from where that was met first."""
        if t.__class__ not in record.tensor_classes or t._storage.shared:
            raise _NotRepeated
        value = t._storage.value
        place = self._places.setdefault(id(value), len(self.values))
        if place == len(self.values):
            self.operands.append(t)
            self.values.append(value)
            self.starts.append(t._offset)
        self.key += (place, t._offset - self.starts[place])

    def node(self, fn: GradNode, places: dict[GradNode, int]) -> None:
        """Add a node: what it does, where its gradients go, what it has saved."""
        context = fn.context
        if fn.extras is not None or fn.saved is None:
            raise _NotRepeated
        if context.__class__ is ViewVjp:
            assert isinstance(context, ViewVjp)
            pullback = context.function
            if context.lasts:
                self.key.append(context)
            elif isinstance(pullback, ViewPullback):
                self.key += (pullback.view, pullback.arguments)
            else:
                raise _NotRepeated
        elif context.__class__ is SavePlan or (context is None and not fn.edges):
            self.key.append(context)
        elif context.__class__ is OpRecord:
            self.key += (context, fn.mask, fn.scalars)
        else:
            raise _NotRepeated
        edges = [
            None if edge is None or edge[0] not in places else (places[edge[0]], edge[1])
            for edge in fn.edges
        ]
        self.key += (fn.inputs, fn.outputs, *edges)
        for kept, version in zip(fn.saved[::2], fn.saved[1::2], strict=True):
            if kept.__class__ is Storage:
                counter, kept = kept, record.make_tensor(kept, kept.spec)
            else:
                counter = kept._version_counter
            if counter.version != version:
                raise _NotRepeated  # it ends in an error
            self.tensor(kept)


def repeated(
    walk: PlannedWalk, starts: Sequence[Start], targets: Sequence[Edge | None]
) -> list[Any]:
    """The gradients of targets that the walk gives, recorded from a trace where it came before."""
    useful = walk.useful
    runs = [fn for fn in walk.order if useful is None or fn in useful]
    reading = None
    if not (state.grad or state.anomaly or observers) and usable():
        with contextlib.suppress(_NotRepeated):
            reading = _read(walk, runs, starts, targets)
    if reading is None or reading.level is None:  # or no gradient of examples leads to a target
        return walk.gradients(starts, targets)
    key, level = tuple(reading.key), reading.level
    known = _walks.get(key)
    if isinstance(known, RepeatedWalk):
        starts_at = tuple(reading.starts) if any(reading.starts) else None
        made = known.trace.record(reading.operands, tuple(reading.values), starts_at)
        for k in known.freed:
            runs[k].saved = None
        return [
            level.wrapped(g) if is_example else g
            for g, is_example in zip(made, known.wrapped, strict=True)
        ]
    if known is not SEEN_ONCE:
        if len(_walks) >= MAX_WALKS:
            _walks.clear()
        _walks.setdefault(key, SEEN_ONCE)
        return walk.gradients(starts, targets)
    found: list[Any] = []

    def bottom() -> tuple[Any, ...]:
        found.extend(walk.gradients(starts, targets))
        return tuple([g._value if g.__class__ in tracers else g for g in found])

    entry = trace(reading.operands, bottom)[1]
    if isinstance(entry, Trace):
        wrapped = tuple([g.__class__ in tracers for g in found])
        freed = () if walk.keep else tuple([k for k, fn in enumerate(runs) if fn.saved is None])
        _walks[key] = RepeatedWalk(entry, wrapped, freed)
    else:
        _walks[key] = entry
    return found


def _read(
    walk: PlannedWalk, runs: Sequence[GradNode], starts: Sequence[Start], targets: Sequence[Edge | None]
) -> _Reading:  # fmt: skip
    """What a walk over these nodes depends on."""
    reading = _Reading()
    places = {fn: k for k, fn in enumerate(runs)}
    for edge in targets:
        if edge is not None:
            places.setdefault(edge[0], len(places))
    for (fn, nr), g in starts:
        reading.key += (places.get(fn), nr)
        reading.gradient(g)
    for edge in targets:
        reading.key += (None, None) if edge is None else (places[edge[0]], edge[1])
    for fn in runs:
        reading.node(fn, places)
    for fn in [*places][len(runs) :]:  # where gradients arrive and do not go on
        if fn.extras is not None:
            raise _NotRepeated
        reading.key.append(fn.outputs)
    reading.key.append(walk.keep)
    return reading
