"""Gradients that are to be differentiated again: the graph behind results, made anew for a call.

The backward of a captured function is a plan, through which nothing can be sent back. So a call whose
gradients shall have a graph gets the backward nodes that the function would have left behind had it
run uncaptured, and the walk over them is recorded like any other. What they had saved is at hand
(arguments, tensors from outside, results), or a plan computes it from what backward reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from operator import attrgetter
from types import EllipsisType, FunctionType
from typing import Any, NamedTuple

from ..autograd.engine import AccumulateGrad
from ..devices import device
from ..dtypes import dtype
from ..graph import record
from ..graph.copy_slices import WrittenRegion
from ..graph.node import GradContext, GradNode, Node, Spec
from ..graph.op_record import OpRecord
from ..graph.operation import SavePlan
from ..graph.straight import StraightOp
from ..graph.view import ViewPullback, ViewVjp
from ..ops.conv_plans import Geometry
from ..ops.resample import Maps
from ..storage import Storage

Edge = tuple[GradNode, int]
Way = tuple[
    int, int
]  # the number of a backward node, or ~ that of a target, and that of its output


class Unknown(Exception):
    """A backward node holds what may be another at every call."""


class Saved(NamedTuple):
    """A tensor that a backward node has saved, or the storage of its own result."""

    check: int  # which of what a call keeps unwritten has its memory; -1: it is computed again
    number: int  # then the number of its storage among those
    itself: bool  # it is the very tensor that is kept unwritten
    spec: Any  # None: a storage
    offset: int
    way: Way | None  # where its history begins


class RebuiltStep(NamedTuple):
    """A backward node, yet to be made."""

    like: Any  # op, inputs, outputs, scalars, mask
    context: GradContext | None
    edges: tuple[Way | None, ...]
    saved: tuple[Saved, ...]
    frees: Any  # what stands for nothing saved


class Like(NamedTuple):
    """What the backward node of every call has in common with that of the captured one."""

    op: Any
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    scalars: tuple[int, ...]
    mask: int


class RebuiltGraph:
    """The graph behind results, to be made anew.

    Args:
        nodes: the backward nodes.
        idle: those that only zeros would reach, along which nothing is sent back.
        roots: the results.
        ends: the edges that lead out of the function, by the number of their target.
        checked: the counters and tensors that a call keeps unwritten, in that order; the tensor is
            None for a result.
        drawn: the numbers of the draws that a call keeps, in that order.

    Raises:
        Unknown: if that cannot be done.
    """

    def __init__(
        self, nodes: set[GradNode], idle: set[GradNode], roots: Sequence[Any], ends: Sequence[Edge],
        checked: Sequence[tuple[Any, Any]], drawn: Sequence[tuple[int, ...]],
    ) -> None:  # fmt: skip
        order = sorted(nodes | idle, key=attrgetter("seq"))
        self._nodes = {fn: k for k, fn in enumerate(order)}
        self._ends = {end: k for k, end in enumerate(ends)}
        self._checks = {id(counter): k for k, (counter, _) in enumerate(checked)}
        self._kept = [t for _, t in checked]
        self._storages: dict[int, int] = {}
        self.storages: list[Storage] = []  # of what is computed again
        self.drawn = drawn
        self.steps = [self._idle_step(fn) if fn in idle else self._step(fn) for fn in order]
        self.roots = [(self._nodes[t._edge[0]], t._edge[1]) for t in roots]
        del self._nodes, self._ends, self._checks, self._kept, self._storages
        self.specs = [storage.spec for storage in self.storages]

    def _step(self, fn: GradNode) -> RebuiltStep:
        context = fn.context
        if isinstance(context, SavePlan):
            _examine(list(context.attributes.values()))
        elif isinstance(context, ViewVjp):
            _examine(context)
        elif not isinstance(context, (OpRecord, WrittenRegion)) and type(fn.op) is not StraightOp:
            raise Unknown
        saved = tuple([self._saved(kept) for kept in fn.saved[::2]])
        return RebuiltStep(_like(fn), context, self._ways(fn), saved, () if saved else fn.saved)

    def _idle_step(self, fn: GradNode) -> RebuiltStep:
        """A node without what it saved: it says what depends on what."""
        return RebuiltStep(_like(fn), None, self._ways(fn), (), ())

    def _ways(self, fn: GradNode) -> tuple[Way | None, ...]:
        return tuple([self._way(edge) for edge in fn.edges])

    def _way(self, edge: Edge | None) -> Way | None:
        if edge is None:
            return None
        fn, nr = edge
        if fn in self._nodes:
            return self._nodes[fn], nr
        if edge in self._ends:
            return ~self._ends[edge], nr
        if not isinstance(fn, AccumulateGrad):
            raise Unknown
        return None  # a leaf that the function made

    def _saved(self, kept: Any) -> Saved:
        is_storage = kept.__class__ is Storage
        counter, storage = (kept, kept) if is_storage else (kept._version_counter, kept._storage)
        check, number, offset = (
            self._checks.get(id(counter), -1),
            -1,
            0 if is_storage else kept._offset,
        )
        owner = self._kept[check] if check >= 0 else None
        if owner is not None and owner._storage is not storage:
            raise Unknown
        if owner is not None:
            offset -= owner._offset
        if check < 0:
            number = self._storages.setdefault(id(storage), len(self.storages))
            if number == len(self.storages):
                self.storages.append(storage)
        if is_storage:
            return Saved(check, number, False, None, 0, None)
        way = None if kept is owner else self._way(record.edge_of(kept))
        return Saved(check, number, kept is owner, kept._spec, offset, way)

    # ----- a call -----

    def make(
        self, edges: Sequence[Edge | None], checks: Sequence[Any], values: Sequence[Node],
        drawn: Sequence[Any],
    ) -> list[GradNode]:  # fmt: skip
        """The backward nodes; `values` are those of the storages, `edges` lead to the targets."""
        made: list[GradNode] = []
        storages = [
            record.make_storage(value, spec) for value, spec in zip(values, self.specs, strict=True)
        ]
        places = dict(zip(self.drawn, [tuple(map(int, n)) for n in drawn], strict=True))

        def edge_at(way: Way | None) -> Edge | None:
            if way is None:
                return None
            number, nr = way
            return edges[~number] if number < 0 else (made[number], nr)

        def tensor_of(saved: Saved) -> Any:
            owner = checks[saved.check].tensor if saved.check >= 0 else None
            if saved.itself:
                return owner
            counter = storages[saved.number] if saved.check < 0 else checks[saved.check].counter
            storage = counter if owner is None else owner._storage
            if saved.spec is None:
                return storage
            offset = saved.offset if owner is None else saved.offset + owner._offset
            t = record.make_tensor(storage, saved.spec, offset, counter)
            edge = edge_at(saved.way)
            if edge is not None:
                record.give_history(t, *edge)
            return t

        for like, context, ways, saved, frees in self.steps:
            fn = record.new_grad_node(like.op, [edge_at(way) for way in ways], like.inputs)
            fn.outputs, fn.scalars, fn.mask = like.outputs, like.scalars, like.mask
            fn.context = _renewed(context, places) if places else context
            parts: list[Any] = []
            for each in saved:
                version = checks[each.check].version if each.check >= 0 else 0
                parts += (tensor_of(each), version)
            fn.saved = tuple(parts) if saved else frees
            made.append(fn)
        return made


def _like(fn: GradNode) -> Like:
    return Like(fn.op, fn.inputs, fn.outputs, fn.scalars, fn.mask)


def _renewed(
    context: GradContext | None, places: dict[tuple[int, ...], tuple[int, ...]]
) -> GradContext | None:
    """How the results of an op got their history, with the random numbers of another call."""
    if not isinstance(context, SavePlan):
        return context
    old = context.attributes
    renewed = {n: places.get(v, v) if type(v) is tuple else v for n, v in old.items()}
    if renewed == old:
        return context
    copied = copy(context)
    copied.attributes, copied.traces = renewed, {}
    return copied


PLAIN = (
    type(None), bool, int, float, complex, str, bytes, slice, type, EllipsisType, Spec, dtype, device,
    Geometry, Maps,
)  # fmt: skip


def _examine(value: Any) -> None:
    """Refuse what holds a tensor, or anything else that may be another at every call."""
    if isinstance(value, (tuple, list)):
        for part in value:
            _examine(part)
    elif isinstance(value, dict):
        _examine([*value.values()])
    elif isinstance(value, ViewVjp):
        _examine(value.function)
    elif isinstance(value, ViewPullback):
        _examine(value.arguments)
    elif isinstance(value, FunctionType):
        _examine([cell.cell_contents for cell in value.__closure__ or ()])
        _examine([value.__defaults__, value.__kwdefaults__])
    elif not isinstance(value, PLAIN):
        raise Unknown
