"""What a replay leaves behind: how tensors are made again, of what its plan computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any, NamedTuple

from ..autograd.modes import no_grad
from ..errors import CallSite
from ..graph import record
from ..graph.node import NO_GRAD, Meta, Node
from ..graph.view import strided
from ..schedule.planning.recipe import Recipe
from ..storage import Storage
from .inputs import StorageOf, meta_of


class Slot(NamedTuple):
    """Where a value is after a replay: in a block of the plan, in a storage, a constant, or recorded."""

    block: int = -1
    storage: StorageOf | None = None
    constant: Any = None
    table: TableSlot | None = None


class TableSlot(NamedTuple):
    """A gradient that is recorded after a replay, not computed: the rows of a table that is zero otherwise, or
    a sum of such."""

    recipe: Recipe
    offsets: tuple[int, ...] | None
    call_site: CallSite | None
    zeros: Recipe | None  # that a table begins with
    rows: tuple[Slot, ...]  # its indices and values
    parts: tuple[TableSlot, ...]  # of a sum

    @classmethod
    def of(cls, node: Node, slot: Callable[[Any], Slot]) -> TableSlot:
        """What says how to record a node again, on values whose slots are told."""
        recipe, inputs = node.recipe, node.inputs or ()
        assert isinstance(recipe, Recipe)
        if recipe.fusion.adds:
            parts = tuple([cls.of(part, slot) for part in inputs])
            return cls(recipe, node.offsets, node.call_site, None, (), parts)
        zeros, *rows = inputs
        assert isinstance(zeros.recipe, Recipe)
        return cls(
            recipe, node.offsets, node.call_site, zeros.recipe, tuple(map(slot, rows)), ()
        )  # fmt: skip

    def slots(self) -> Iterator[Slot]:
        """Of all rows."""
        yield from self.rows
        for part in self.parts:
            yield from part.slots()

    def record(self, rows: Iterator[Node]) -> list[Node]:
        """Nodes on indices and values of a replay, recorded; the last is the gradient."""
        made: list[Node] = []
        if self.zeros is None:
            inputs = []
            for part in self.parts:
                made += part.record(rows)
                inputs.append(made[-1])
        else:
            inputs = [_node(self.zeros, (), None, (0,)), *islice(rows, len(self.rows))]
            made.append(inputs[0])
        table = _node(self.recipe, tuple(inputs), self.offsets, ())
        table.call_site = self.call_site
        return [*made, table]


def _node(
    recipe: Recipe, inputs: tuple[Node, ...], offsets: tuple[int, ...] | None, scalars: tuple[int, ...]
) -> Node:  # fmt: skip
    node = record.new_node(Node)
    node.recipe, node.inputs, node.offsets, node.scalars = recipe, inputs, offsets, scalars
    node.call_site = None
    return node


class NewTensor(NamedTuple):
    """A tensor to make after a replay; those of the same `storage` share a storage."""

    storage: int
    slot: Slot
    whole: Any  # spec of its storage
    spec: Any
    offset: int


class ArgumentView(NamedTuple):
    """A tensor on the storage of an argument to make after a replay."""

    argument: int
    spec: Any
    offset: int  # relative to that of the argument
    kind: str | None  # of the view; None for a handle that is none
    is_detached: bool  # it is none, or one of a handle, with the argument's version


class NewHandle(NamedTuple):
    """A tensor to make on a storage that was there before."""

    storage: StorageOf
    spec: Any
    offset: int


class Existing(NamedTuple):
    """A tensor, or anything else, that is as it was: the argument of that number, or itself."""

    argument: int
    itself: Any


class GradientOf(NamedTuple):
    """The gradient that an argument, or else the owner of a meta, has after a replay."""

    argument: int
    meta: Meta


Output = NewTensor | ArgumentView | NewHandle | Existing | GradientOf


class BlockTensor(NamedTuple):
    """A tensor around a block."""

    block: int
    whole: Any  # the spec of its storage
    spec: Any
    offset: int
    owner: Meta | None  # whose gradient it becomes

    def around(self, value: Any) -> Any:
        """The tensor with a value in its block."""
        storage = record.make_storage(value, self.whole)
        return record.make_tensor(storage, self.spec, self.offset, record.new_counter())


class Effect(NamedTuple):
    """A storage that gets the value in a block."""

    storage: Storage
    block: int
    writes: int  # that this counts as


class Leaving(NamedTuple):
    """What a replay leaves behind that has a block of the plan to itself."""

    tensors: tuple[BlockTensor, ...]
    effects: tuple[Effect, ...]
    cleared: tuple[Meta, ...]  # which have no gradient any more


def is_constant(left: Output) -> bool:
    return isinstance(left, Existing) and left.argument < 0


def is_nothing(left: Output) -> bool:
    return isinstance(left, Existing) and left.argument < 0 and left.itself is None


def origin_of(t: Any) -> Any:
    """The tensor that views of `t` are views of."""
    return t if t._view_of is None else t._view_of.base


class OutputBuilder:
    """Makes the tensors that a call leaves behind; what was one tensor, or one storage, is one."""

    def __init__(self, arguments: Sequence[Any], value_of: Callable[[Slot], Any]) -> None:
        self.arguments, self.value_of = arguments, value_of
        self.storages: dict[int, Storage] = {}
        self.made: dict[int, Any] = {}

    def __call__(self, left: Output) -> Any:
        if isinstance(left, Existing):
            return left.itself if left.argument < 0 else self.arguments[left.argument]
        if isinstance(left, GradientOf):
            return meta_of(left.argument, left.meta, self.arguments).grad
        out = self.made.get(id(left))
        if out is None:
            out = self.made[id(left)] = self._make(left)
        return out

    def _make(self, left: NewTensor | ArgumentView | NewHandle) -> Any:
        if isinstance(left, NewHandle):
            return record.make_tensor(left.storage.find(self.arguments), left.spec, left.offset)
        if isinstance(left, ArgumentView):
            base, spec = self.arguments[left.argument], left.spec
            offset = base._offset + left.offset
            if left.is_detached:
                base = record.make_tensor(base._storage, spec, offset, base._version_counter)
            if left.kind is None:
                return base
            with no_grad() if left.kind == NO_GRAD else nullcontext():
                view = strided(base, spec, offset)
            view._view_of.kind = left.kind or view._view_of.kind
            return view
        storage = self.storages.get(left.storage)
        if storage is None:
            storage = record.make_storage(self.value_of(left.slot), left.whole)
            self.storages[left.storage] = storage
        return record.make_tensor(storage, left.spec, left.offset, record.new_counter())
