"""Replaying a captured function: one plan, where its inputs come from, what it leaves behind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .capture import Session, grad_slot, reachable, value_slot
from .dtypes import float32
from .graph import record
from .graph.node import GradNode, Spec, node_class
from .schedule import profile, structure
from .schedule.plan import Plan, copied
from .schedule.settle import found_error, lock, settle, tape
from .shapes import Size
from .storage import Foreign, Storage
from .tensor import Meta, Tensor


class CellOf(NamedTuple):
    """How to find a storage at a replay."""

    argument: int = -1  # that of an argument, or of its gradient
    meta: Meta | None = None  # that of the gradient kept there
    cell: Storage | None = None  # always this one

    def find(self, arguments: Sequence[Any]) -> Storage:
        """The storage, for a call with these arguments."""
        if self.cell is not None:
            return self.cell
        if self.meta is None:
            return arguments[self.argument].storage
        return meta_of(self.argument, self.meta, arguments).grad.storage


def meta_of(argument: int, meta: Meta, arguments: Sequence[Any]) -> Meta:
    """The meta that plays the part of `meta` in a call: the argument's own where it has one."""
    return arguments[argument].more() if argument >= 0 else meta


class Source(NamedTuple):
    """Where a value from outside comes from: all of these cells hold it, or it never changes."""

    cells: tuple[CellOf, ...]
    constant: Any
    offset: int  # of the first element, relative to that of the argument where it is one
    nbytes: int


class Slot(NamedTuple):
    """Where a value is after a replay: in a block of the plan, in a cell, or a constant."""

    block: int = -1
    cell: CellOf | None = None
    constant: Any = None


class Make(NamedTuple):
    """A tensor to make after a replay."""

    slot: Slot
    whole: Any  # spec of its storage
    spec: Any
    offset: int
    needs_grad: bool


class Keep(NamedTuple):
    """A tensor, or anything else, that is as it was: the argument of that number, or itself."""

    argument: int
    itself: Any


class _Returned:
    """The op behind results whose graph was consumed, or left behind, by the captured function."""

    backward_name = "adjit::CapturedBackward"
    node_class = node_class("adjit::CapturedBackward")

    def pull(self, fn: GradNode, grads: list[Any]) -> list[Any]:
        """Refuse."""
        raise RuntimeError(
            "adjit.compile: the graph behind this result is gone. Call backward() inside the "
            "captured function, or do not capture it."
        )

    def saved_value(self, fn: GradNode, name: str) -> Any:
        """Nothing is saved."""
        raise AttributeError(f"'CapturedBackward' object has no attribute '_saved_{name}'")


_returned = _Returned()


class Replay:
    """One capture of a function, for arguments of the same specs.

    Args:
        session: what was watched.
        arguments: the tensors that were given.
        results: the leaves of what was returned; the list is emptied, because what the function
            left behind is what can be reached without them. `first` are their replacements.
    """

    def __init__(self, session: Session, arguments: Sequence[Any], results: list[Any]) -> None:
        self._argument_cells = {id(t.storage): k for k, t in enumerate(arguments)}
        self._argument_metas = {
            id(t.meta): k for k, t in enumerate(arguments) if t.meta is not None
        }
        self._offsets = [t.offset for t in arguments]
        self._grad_cells = {
            id(g.storage): meta for meta, g in session.grads.items() if g is not None
        }
        self._before = {id(cell) for cell in session.cells}
        self.grads_before = [
            (self._argument_metas.get(id(meta), -1), meta, g is None)
            for meta, g in session.grads.items()
        ]
        self.conditions = session.conditions
        drafts = [self._draft(t, arguments) for t in results]
        self.first = [_tensor(d, d.slot.constant) if isinstance(d, Make) else t
                      for d, t in zip(drafts, results, strict=True)]  # fmt: skip
        results.clear()
        grads = []
        for meta in session.set_grads:
            draft = self._draft(grad_slot.__get__(meta), arguments)
            if isinstance(draft, Make):
                grad_slot.__set__(meta, _tensor(draft, draft.slot.constant))
            grads.append((meta, draft))
        values = [value_slot.__get__(cell) for cell in session.written]
        values += [d.slot.constant for d in drafts if isinstance(d, Make)]
        values += [d.slot.constant for _, d in grads if isinstance(d, Make)]
        batch = reachable(values)
        self.sites = [session.sites.get(id(node)) for node in batch]
        self._lay_out(session, batch, values)
        self.fallible = {
            at: (node.recipe, node.site)
            for at, node in enumerate(batch)
            if node.recipe.fallible is not None
        }
        blocks = {id(batch[at]): numbers[0] for at, numbers in self.plan.results}

        def slot(value: Any) -> Slot:
            if id(value) in blocks:
                return Slot(blocks[id(value)])
            if id(value) in self._holders:
                return Slot(cell=self._cell_of(self._holders[id(value)][0]))
            return Slot(constant=value)

        def placed(draft: Make | Keep) -> Make | Keep:
            if isinstance(draft, Make):
                return draft._replace(slot=slot(draft.slot.constant))
            return draft

        self.results = [placed(draft) for draft in drafts]
        self.grads = [
            (self._argument_metas.get(id(meta), -1), meta, placed(draft)) for meta, draft in grads
        ]
        self.effects = [
            (self._cell_of(cell), slot(value_slot.__get__(cell)), int(id(cell) in self._before))
            for cell in session.written
        ]

    # ----- what the function did, in terms of any call -----

    def _cell_of(self, cell: Storage) -> CellOf:
        if id(cell) in self._argument_cells:
            return CellOf(self._argument_cells[id(cell)])
        if id(cell) in self._grad_cells:
            meta = self._grad_cells[id(cell)]
            return CellOf(self._argument_metas.get(id(meta), -1), meta)
        return CellOf(cell=cell)

    def _draft(self, t: Any, arguments: Sequence[Any]) -> Make | Keep:
        """How to leave a tensor behind; the constant of its slot is the value that it has now."""
        for k, argument in enumerate(arguments):
            if t is argument:
                return Keep(k, None)
        if not record.is_tensor(t) or id(t.storage) in self._before:
            return Keep(-1, t)
        value = Slot(constant=value_slot.__get__(t.storage))
        return Make(value, t.storage.spec, t.spec, t.offset, t.edge is not None)

    def _lay_out(self, session: Session, batch: list[Any], values: Sequence[Any]) -> None:
        """Make the plan; say where its inputs come from."""
        key, externals, numbers, _ = structure.walk(batch)
        left = {id(value) for value in values}
        held = tuple([at for at, node in enumerate(batch) if id(node) in left])
        holders: dict[int, list[Storage]] = {}
        for cell, value in session.cells.items():
            holders.setdefault(id(value), []).append(cell)
        replaced = {id(value) for cell, value in session.cells.items() if cell in session.written}
        self.owned = tuple(
            [
                k
                for k, (value, offset) in enumerate(externals)
                if id(value) in replaced
                and id(value) not in left
                and len(holders[id(value)]) == 1
                and not offset
                and sum(v is value for v, _ in externals) == 1
            ]
        )
        made = structure.Structure((*key, held, self.owned), externals, numbers, held, self.owned)
        self.plan = Plan(batch, made, 1)
        self.sources = []
        for value, offset in externals:
            cells = tuple([self._cell_of(cell) for cell in holders.get(id(value), ())])
            if cells and cells[0].argument >= 0 and cells[0].meta is None:
                offset -= self._offsets[cells[0].argument]
            nbytes = holders[id(value)][0].nbytes if cells else 0
            self.sources.append(Source(cells, None if cells else value, offset, nbytes))
        self._holders = holders
        self._find_draws(session, batch)

    def _find_draws(self, session: Session, batch: Sequence[Any]) -> None:
        """Which Python numbers are new at every replay."""
        place = {id(node): k for k, node in enumerate(tape)}
        self.numbers = [list(batch[at].scalars) for at in self.plan.numbered]
        self.draws: list[tuple[int, int, int, Callable[[], Sequence[int]]]] = []
        taken: set[tuple[int, int]] = set()
        for draw in session.draws:
            count = len(draw.values)
            if not count:
                self.draws.append((-1, 0, 0, draw.again))
                continue
            for row, at in enumerate(self.plan.numbered):
                scalars = batch[at].scalars
                at_ = [
                    k
                    for k in range(len(scalars) - count + 1)
                    if tuple(scalars[k : k + count]) == draw.values and (row, k) not in taken
                ]
                if at_ and place[id(batch[at])] >= draw.start:
                    taken.add((row, at_[0]))
                    self.draws.append((row, at_[0], count, draw.again))
                    break
            else:
                self.draws.append((-1, 0, 0, draw.again))  # drawn, then never used

    # ----- a replay -----

    def fits(self, arguments: Sequence[Any]) -> bool:
        """Whether gradients are there, and missing, where they were, and conditions hold."""
        for k, meta, was_none in self.grads_before:
            found = arguments[k].meta if k >= 0 else meta
            if (found is None or found.grad is None) is not was_none:
                return False
        return all(read() == value for read, value in self.conditions)

    def run(self, arguments: Sequence[Any]) -> list[Any] | None:
        """Run the plan, repeat the effects, make the results; None if the capture fits no more."""
        with lock:
            settle()
            externals = self._look_up(arguments)
            if externals is None:
                return None
            for k in self.owned:
                _make_private(externals, k, self.sources[k].nbytes)
            plan = self.plan
            blocks = plan.prepare(externals)
            for row, start, count, again in self.draws:
                drawn = again()
                if row >= 0:
                    self.numbers[row][start : start + count] = drawn
            try:
                sites = None if profile.active is None else self.sites
                plan.run(externals, blocks, self.numbers, sites)
            except BaseException:
                if plan.has_run:
                    self._leave(arguments, blocks)
                raise
            failed = plan.failed_node()
            if failed >= 0:
                recipe, site = self.fallible[failed]
                raise found_error(recipe, tuple(plan.status[:4]), site)
            return self._leave(arguments, blocks)

    def _look_up(self, arguments: Sequence[Any]) -> list[tuple[Any, int]] | None:
        """The values from outside."""
        externals = []
        for cells, constant, offset, _ in self.sources:
            value = constant
            for place in cells:
                found = place.find(arguments).value
                if value is not None and found is not value:
                    return None
                value = found
            if value.recipe is not None:
                raise value.recipe.error
            if cells and cells[0].argument >= 0 and cells[0].meta is None:
                offset += arguments[cells[0].argument].offset
            externals.append((value, offset))
        return externals

    def _leave(self, arguments: Sequence[Any], blocks: Sequence[Any]) -> list[Any]:
        """Repeat the effects; the leaves of what the function returns."""
        nodes = [record.ready_node(block) for block in blocks]

        def value_of(slot: Slot) -> Any:
            if slot.block >= 0:
                return nodes[slot.block]
            return slot.constant if slot.cell is None else slot.cell.find(arguments).value

        def left(what: Make | Keep) -> Any:
            if isinstance(what, Make):
                return _tensor(what, value_of(what.slot))
            return what.itself if what.argument < 0 else arguments[what.argument]

        written = [(place.find(arguments), value_of(slot), n) for place, slot, n in self.effects]
        results = [left(what) for what in self.results]
        grads = [(meta_of(k, meta, arguments), left(what)) for k, meta, what in self.grads]
        for cell, value, writes in written:
            cell.value = value
            cell.version += writes
        for meta, grad in grads:
            meta.grad = grad
        return results


def _tensor(made: Make, value: Any) -> Any:
    """The tensor, with a storage of its own around a value."""
    out = record.make_tensor(record.make_storage(value, made.whole), made.spec, made.offset)
    if made.needs_grad:
        fn = record.new_grad_node(_returned, (), ())
        fn.outputs = (made.spec,)
        record.give_history(out, fn)
    return out


def _make_private(externals: list[tuple[Any, int]], k: int, nbytes: int) -> None:
    """Copy a value that the plan will write over, if anybody else could see that."""
    if _holders(externals, k) <= _ALONE and externals[k][0].address.__class__ is not Foreign:
        return
    value = externals[k][0]
    externals[k] = copied(value, value.address, nbytes), 0


def _holders(externals: list[tuple[Any, int]], k: int) -> int:
    return sys.getrefcount(externals[k][0])


def _calibrate() -> int:
    """What `_holders` counts for a value that only a cell holds."""
    cell: Any = record.make_storage(record.ready_node(0), Spec(Size(), (), float32))
    return _holders([(cell.value, 0)], 0)


_ALONE = _calibrate()

__all__ = ["Replay", "Tensor"]
