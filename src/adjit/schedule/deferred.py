"""Values that nothing but backward functions hold: they are computed when somebody reads them.

A graph keeps what its backward would read, and many a graph is never walked again. Where such a
value is elementwise and follows from values that are there anyway, a plan leaves it out, and its
node stays recorded. If a backward comes, it fuses with what it reads.

So do gradients of large tables, once an optimiser has taken only the rows that they name.

Who holds a value is told by reference counts: of nodes by storages, of storages by tensors, of both by
backward functions. Those of large elementwise ops are savers when they are recorded; whatever else
holds a value counts as somebody who may look at it.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import chain
from typing import Any, NamedTuple

from ..kernels.ops import fill
from ..kernels.ops.row_steps import MOST
from ..storage import BorrowedMemory, Storage
from .graph_key import NOBODY, others, uses_of

LEAST = 1 << 20  # bytes of a value below which it is computed all the same
# Settles after which a table that is still held is computed: as long as anything waits, settling takes Python.
PATIENCE = 64

# Backward functions that were recorded since the last settle.
large_savers: list[weakref.ref[Any]] = []
# Storages of parameters whose optimiser has not asked for more of a gradient than the rows that it names.
tables: list[weakref.ref[Storage]] = []
asked: list[int] = []  # the ids of the values that a thread asks for, while it has the lock
# The ids of what waits although everything is to run, while a thread has the lock.
spared: set[int] = set()
nodes: list[Any] = []  # what was left out, in the order of recording

_refcount = sys.getrefcount


class DeferredPart(NamedTuple):
    """Of a batch that is a part of what was recorded: what is to be there when it has run, and nodes
    that stay recorded, of which some run, as others read them."""

    held: list[int]  # positions in the batch
    kept: list[Any]

    def done(self, batch: Sequence[Any]) -> list[Any]:
        """The nodes that have run for good."""
        kept = set(map(id, self.kept))
        return [node for node in batch if id(node) not in kept]


class DeferredState(Enum):
    """What becomes of a node of a batch."""

    THERE = auto()  # it will have run
    DEFERRED = auto()  # graphs hold it, and it can be computed later
    AGAIN = auto()  # nobody holds it, and it can be computed again
    GONE = auto()  # nobody holds it


def track_saved(fn: Any) -> None:
    """Note a backward function that has saved much."""
    large_savers.append(weakref.ref(fn))


def track_table(storage: Storage, *, waits: bool) -> None:
    """Note a parameter whose next gradients can wait where they are zero but for some rows, or no longer."""
    known = weakref.ref(storage) in tables
    if waits and not known:
        tables.append(weakref.ref(storage, tables.remove))
    elif known and not waits:
        tables.remove(weakref.ref(storage))


def is_overdue() -> bool:
    """Whether tables have waited through many settles, none of which came with others."""
    global _settles
    _settles += 1
    return _settles > PATIENCE and any(node.recipe.fusion.rows is not None for node in nodes)


_settles = 0  # since a table was taken out of a batch


def bring_back(batch: list[Any], wanted: Iterable[Any] = (), *, everything: bool = False) -> None:
    """Put nodes that were left out in front of a batch: what it reads, and what is wanted now."""
    there = set(map(id, nodes))
    found: set[int] = set()
    stack = [*wanted, *[v for node in batch for v in node.inputs or ()]]
    if everything:
        stack += [node for node in nodes if id(node) not in spared]
    while stack:
        value = stack.pop()
        if id(value) in there and id(value) not in found:
            found.add(id(value))
            stack += value.inputs
    if found:
        back = [node for node in nodes if id(node) in found]
        left = [node for node in nodes if id(node) not in found]
        batch[:0], nodes[:] = back, left


@contextlib.contextmanager
def sparing(values: Iterable[Any]) -> Iterator[None]:
    """Have tables, and the zeros that they begin with, wait when everything is run, unless that reads them.

    Callers hold the lock.
    """
    spared.update(id(v) for table in values for v in made_of(table))
    try:
        yield
    finally:
        spared.clear()


def put_off(part: DeferredPart, left: list[Any]) -> list[Any]:
    """Leave out the nodes that are kept; after an error they stay in `pending`, behind what it left."""
    still_pending = set(map(id, left))
    kept = [node for node in part.kept if node.recipe is not None and id(node) not in still_pending]
    if left:
        return [*left, *kept]
    end = len(nodes)
    nodes[end:] = kept  # the last thing, without a call
    return []


def taken_savers() -> list[weakref.ref[Any]]:
    """The backward functions that were savers, until now."""
    savers = large_savers[:]
    del large_savers[: len(savers)]
    return savers


def cut_down(batch: list[Any], savers: Iterable[weakref.ref[Any]]) -> DeferredPart | None:
    """Take out of a batch what need not run now; None if that is nothing."""
    alive = [fn for reference in savers if (fn := reference()) is not None]
    functions = [(fn, saved) for fn in alive if (saved := fn.saved)]  # another thread may free that
    by_graphs = _held_by([saved for _, saved in functions]) if functions else None
    if not by_graphs:
        return None
    places = {id(node): at for at, node in enumerate(batch)}
    states = _states(batch, places, by_graphs)
    if DeferredState.DEFERRED not in states:
        return None
    runs = [state is DeferredState.THERE for state in states]
    stays = [state is DeferredState.DEFERRED for state in states]
    for at in range(len(batch) - 1, -1, -1):
        for value in batch[at].inputs:
            k = places.get(id(value))
            if k is not None:
                runs[k] |= runs[at]
                stays[k] |= stays[at] and states[k] is not DeferredState.THERE
    kept = [node for node, stay in zip(batch, stays, strict=True) if stay]
    waiting = set(map(id, kept))
    for fn, saved in functions:  # what they hold may come back, and wait again
        if not waiting.isdisjoint([id(_storage_of(part).value) for part in saved[::2]]):
            track_saved(fn)
    run = [at for at, is_run in enumerate(runs) if is_run]
    part = DeferredPart([k for k, at in enumerate(run) if states[at] is DeferredState.THERE], kept)
    left = [batch[at] for at in run]
    batch[:] = left  # the last thing, without a call
    return part


def _states(
    batch: Sequence[Any], places: dict[int, int], by_graphs: Counter[int]
) -> list[DeferredState]:
    """What becomes of each node, of which graphs hold so many references."""
    outside = _counted((v, 1) for node in batch for v in node.inputs if id(v) not in places)
    staying = {key for key, entry in outside.items() if not _is_alone(entry) and is_ours(entry[0])}
    states: list[DeferredState] = []
    for node, count in zip(batch, others(batch, uses_of(batch)), strict=True):
        held = count - NOBODY
        if held > by_graphs[id(node)]:
            states.append(DeferredState.THERE)
        elif not _can_wait(node, places, states, staying):
            states.append(DeferredState.THERE if held else DeferredState.GONE)
        elif held:
            is_large = node.recipe.spec.nbytes >= LEAST
            states.append(DeferredState.DEFERRED if is_large else DeferredState.THERE)
        else:
            states.append(DeferredState.AGAIN)
    return states


def _can_wait(
    node: Any, places: dict[int, int], states: Sequence[DeferredState], staying: set[int]
) -> bool:
    """Whether a node can run later, on values that will be there then anyway."""
    recipe = node.recipe
    found = [places.get(id(value)) for value in node.inputs]
    if recipe.pick >= 0:
        return found[0] is not None and states[found[0]] in (
            DeferredState.DEFERRED,
            DeferredState.AGAIN,
        )
    if (
        recipe.fusion.element is None
        or recipe.write
        or recipe.alias
        or recipe.over
        or recipe.fallible
    ):
        return False
    return all(
        id(value) in staying if at is None else states[at] is not DeferredState.GONE
        for value, at in zip(node.inputs, found, strict=True)
    )


# ----- tables -----


def take_tables(batch: list[Any]) -> DeferredPart | None:
    """Take gradients of tables, sums of them, and the zeros that they begin with, out of a batch; None if there
    are none."""
    global _settles
    if all(node.recipe.fusion.rows is None for node in batch):
        return None
    _settles = 0
    uses, places = uses_of(batch), set(map(id, batch))
    counts = dict(zip(map(id, batch), others(batch, uses), strict=True))

    def is_hidden(node: Any) -> bool:
        """Whether one node of the batch reads a value, and nobody else."""
        return uses[id(node)] == 1 and counts.get(id(node)) == NOBODY

    def can_wait(root: Any) -> bool:
        tables = tables_in(root)
        inner = [node for node in made_of(root) if node is not root and _is_table(node)]
        read = [value for table in tables for value in table.inputs]
        is_there = all(id(value) in places or is_ours(value) for value in read)
        return bool(tables) and is_there and all(map(is_hidden, inner))

    roots = [
        node for node in batch
        if _is_table(node) and node.recipe.spec.nbytes >= LEAST and not uses[id(node)]
        and id(node) not in asked and can_wait(node)
    ]  # fmt: skip
    moved = {
        id(node) for root in roots for node in made_of(root) if _is_table(node) or is_hidden(node)
    }  # fmt: skip
    part = DeferredPart([], [node for node in batch if id(node) in moved])
    left = [node for node in batch if id(node) not in moved]
    batch[:] = left  # the last thing, without a call
    return part


def tables_in(value: Any) -> list[Any]:
    """The tables of which a recorded value is the sum, from the first to the last; none if that is not so, or
    they are many."""
    found: list[Any] = []
    while len(found) < MOST:
        inputs, recipe = value.inputs, value.recipe  # in this order: another thread may run it
        if inputs is None or recipe is None:
            break
        if not recipe.fusion.adds:
            tables = [value, *found]
            return tables if all(map(names_rows, tables)) else []
        value, *others = inputs
        found = [*others, *found]
    return []


def made_of(value: Any) -> Iterator[Any]:
    """A table, or a sum of tables and these, with the zeros that they begin with."""
    stack = [value]
    while stack:
        node = stack.pop()
        yield node
        inputs, recipe = node.inputs, node.recipe
        if inputs and recipe is not None and _is_table(node):
            stack += inputs if recipe.fusion.adds else inputs[:1]


def names_rows(value: Any) -> bool:
    """Whether a value is recorded as a table that is +0 but for some rows, which are nowhere -0.

    Its recipe says that it adds rows to something, and may have been recorded for something else before: that
    these are zeros, the node tells.
    """
    inputs, recipe = value.inputs, value.recipe  # in this order: another thread may run it
    if not inputs or recipe is None or recipe.fusion.rows is None:
        return False
    return are_zeros(inputs[0])


def are_zeros(value: Any) -> bool:
    """Whether a value is recorded as zeros."""
    recipe, scalars = value.recipe, value.scalars
    if recipe is None or len(recipe.steps) != 1 or scalars != (0,):
        return False
    origin = recipe.steps[0].source.origin
    return origin.__class__ is tuple and origin[0] in (fill.constant_float, fill.constant_int)


def _is_table(node: Any) -> bool:
    """Whether a value is recorded as a table, or as a sum."""
    recipe = node.recipe
    return recipe is not None and (recipe.fusion.adds or names_rows(node))


def is_ours(value: Any) -> bool:
    """Whether nobody outside looks at a value that is there, so that it stays as it is."""
    block = value.address
    if value.recipe is not None or (block.__class__ is BorrowedMemory and block.is_seen):
        return False
    del block  # it counts
    return _is_alone([value.address, 1])


# ----- who holds what -----


def _storage_of(part: Any) -> Any:
    """The storage that a backward function has saved: that of a tensor, or a result's."""
    return part if part.__class__ is Storage else part._storage


def _held_by(kept: Sequence[tuple[Any, ...]]) -> Counter[int]:
    """How often what backward functions have saved, and nothing else, holds a value, by its id."""
    saved = _counted((part, 1) for parts in kept for part in parts[::2])
    tensors = [
        e[0] for e in saved.values() if e[0].__class__ is not Storage and _is_alone(e)
    ]  # fmt: skip
    storages = _counted(
        chain(
            (tuple(entry) for entry in saved.values() if entry[0].__class__ is Storage),
            ((t._storage, 1 + (t._version_counter is t._storage)) for t in tensors),
        )
    )
    del saved
    return Counter(
        [id(e[0].value) for e in storages.values() if _is_alone(e)]
    )  # fmt: skip


def _counted(parts: Iterable[tuple[Any, ...]]) -> dict[int, list[Any]]:
    """Objects, each with the number of references that are told of it, by their ids."""
    found: dict[int, list[Any]] = {}
    for part, times in parts:
        entry = found.setdefault(id(part), [part, 0])
        entry[1] += times
    return found


def _is_alone(entry: list[Any]) -> bool:
    """Whether nothing holds an object but so many references that are known."""
    return _refcount(entry[0]) - entry[1] == _NO_OTHERS


def _calibrate() -> int:
    """What `_is_alone` counts for an object that its entry alone holds."""
    entry: list[Any] = [object(), 0]
    count: int = _refcount(entry[0]) - entry[1]
    return count


_NO_OTHERS = _calibrate()
