"""Replaying a captured function: one plan, where its inputs come from, what it leaves behind."""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Sequence, Set
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from ..atomic import Changes, at_once, calling, setting, together
from ..devices import CPU
from ..dtypes import float32
from ..graph import record
from ..graph.fastpath import Fallback, Runtime, runtime
from ..graph.node import Meta, Spec
from ..schedule import deferred
from ..schedule.jit import native
from ..schedule.settle import (
    ask_for_machine_code,
    copy_of,
    drop_unwanted,
    lock,
    pending,
    settle,
    waiting,
)
from ..shapes import Size
from ..storage import SMALL, BorrowedMemory, Storage, Version
from .backward import CapturedBackward, lose_history
from .exported import copies, interval_of, is_home, meet
from .inputs import (
    ArgumentGuards,
    ArgumentLayout,
    GradGuard,
    InputSource,
    StorageOf,
    TensorGuard,
    meta_of,
)
from .outputs import (
    ArgumentView,
    BlockTensor,
    Effect,
    Existing,
    GradientOf,
    Leaving,
    NewHandle,
    NewTensor,
    Output,
    OutputBuilder,
    Slot,
    TableSlot,
    is_constant,
    is_nothing,
    origin_of,
)
from .program import Externals, ProgramPart
from .result_graphs import Graphs
from .tracing import Session, grad_slot, reachable, value_slot
from .waiting_call import WaitingCall


class Rooted(NamedTuple):
    """Results that share a graph, and what their backward reads: from outside, of the plan."""

    backward: CapturedBackward
    roots: list[Any]  # of Output
    sources: tuple[InputSource, ...] = ()
    blocks: Sequence[int] = ()
    unsaved: Set[int] = frozenset()  # those of them that the graph has not saved
    # What forward and backward read, where they may be one plan.
    outside: tuple[InputSource, ...] = ()


class Replay:
    """One capture of a function, for arguments of the same specs.

    Args:
        session: what was watched.
        arguments: the tensors that were given.
        results: the leaves of what was returned; the list is emptied, because what the function
            left behind is what can be reached without them. `first` are their replacements.
        graphs: what is behind them.
    """

    def __init__(
        self, session: Session, arguments: Sequence[Any], results: list[Any], graphs: Graphs
    ) -> None:
        self._argument_cells = {id(t._storage): k for k, t in enumerate(arguments)}
        self._argument_metas = {
            id(t._autograd_meta): k for k, t in enumerate(arguments) if t._autograd_meta is not None
        }
        self._offsets = [t._offset for t in arguments]
        self._grad_cells = {
            id(g._storage): meta for meta, g in session.grads.items() if g is not None
        }
        gradients = {id(g) for g in session.grads.values() if g is not None}
        self._outside = [
            seen
            for seen in session.outside.values()
            if id(seen.tensor) not in gradients and not any(seen.tensor is t for t in arguments)
        ]
        self._before = session.storages_before()
        self._find_conditions(session, arguments)
        self._describe_results(session, arguments, results, graphs)
        self._session, self._arguments = session, arguments

    def prepare(self) -> None:
        """Make the plan: what the function did, from what it read to what it left behind."""
        session, arguments = self._session, self._arguments
        del self._session, self._arguments
        values = [value_slot.__get__(storage) for storage in session.written]
        values += [left.slot.constant for left in self._lefts() if isinstance(left, NewTensor)]
        values += [value for rooted in self.rooted for value in rooted.backward.values]
        values += session.decisions
        self.decides = bool(session.decisions)
        values, batch = self._find_tables(session, values)
        self._lay_out(session, batch, values)
        self._describe_effects(session, arguments, self.part.blocks)
        self.part.link()
        self._find_replaced()
        self._find_joint()
        del self.homes  # or the values at which others look could not be written over
        self.draws = [*session.draws]
        self._drawn: list[tuple[Any, Any]] = [(None, None)] * len(self.draws)  # the last numbers

    def _find_tables(self, session: Session, values: list[Any]) -> tuple[list[Any], list[Any]]:
        """Leave out gradients of which only rows are read; the values that are wanted, and the nodes behind
        them."""
        gradients = {id(g.slot.constant) for _, _, g in self.grads if isinstance(g, NewTensor)}
        wanted = Counter(map(id, values))
        tables = {id(t): t for t in session.tables if wanted[id(t)] == 1 and id(t) in gradients}
        rows = [
            value
            for table in tables.values()
            for one in deferred.tables_in(table)
            for value in one.inputs[1:]
        ]
        found = [value for value in values if id(value) not in tables] + rows
        batch = reachable(found)
        if not tables.keys().isdisjoint(map(id, batch)):  # some are read as a whole after all
            self.tables: dict[int, Any] = {}
            return values, reachable(values)
        self.tables = tables
        return found, batch

    # ----- what the function did, in terms of any call -----

    def _find_conditions(self, session: Session, arguments: Sequence[Any]) -> None:
        """What a call must have in common with the captured one beside the specs of arguments."""
        self.conditions = session.conditions
        tensors = [*arguments, *[seen.tensor for seen in self._outside]]
        known = {id(t._autograd_meta) for t in tensors}
        self._lasting = {
            meta for meta in session.grads if id(meta) in known or meta not in session.new_metas
        }
        grads_before = [
            GradGuard(
                self._argument_metas.get(id(meta), -1),
                meta,
                None if g is None else ArgumentLayout.of(g),
            )
            for meta, g in session.grads.items()
            if meta in self._lasting
        ]
        # A write tells where in which storage; what is read by another name does not move along.
        outside = {id(seen.storage) for seen in self._outside}
        self.placed = [
            (k, ArgumentLayout.of(t), t._storage if id(t._storage) in outside else None)
            for k, t in enumerate(arguments)
            if t._storage in session.written or id(t._storage) in outside
        ]
        fixed = {id(storage) for _, _, storage in self.placed if storage is not None}
        self.others = outside - fixed
        self.homes = {} if session.exported is None else dict(session.exported.homes)
        places = [
            self._storage_of(storage) for storage in session.written if id(storage) in self._before
        ]
        self.written_elsewhere = [place for place in places if place.storage is None]
        self.is_unconditional = not (
            self.placed or self.others or self.written_elsewhere or self.conditions
        )
        self.found = ArgumentGuards(
            tuple(grads_before),
            tuple(
                [
                    TensorGuard(seen.tensor, seen.storage, seen.spec, seen.offset, seen.needs_grad)
                    for seen in self._outside
                ]
            ),
            tuple([place.storage for place in places if place.storage is not None]),
        )

    def _storage_of(self, storage: Storage) -> StorageOf:
        if id(storage) in self._argument_cells:
            return StorageOf(self._argument_cells[id(storage)])
        if id(storage) in self._grad_cells:
            meta = self._grad_cells[id(storage)]
            return StorageOf(self._argument_metas.get(id(meta), -1), meta)
        return StorageOf(storage=storage)

    def _lefts(self) -> list[Output]:
        """How to leave behind all tensors that are results or gradients."""
        return [*self.results, *[left for _, _, left in self.grads]]

    def _describe_results(
        self, session: Session, arguments: Sequence[Any], results: list[Any], graphs: Graphs
    ) -> None:
        """How to make the results and the gradients; the constant of a slot is the value now."""
        known: dict[int, Output] = {}
        gradients = {id(g): meta for meta, g in session.grads.items() if g is not None}
        for meta in session.set_grads:
            gradients[id(grad_slot.__get__(meta))] = meta

        def leave(t: Any) -> Output:
            if not record.is_tensor(t):
                return Existing(-1, t)
            if id(t) not in known:
                known[id(t)] = describe(t)
            return known[id(t)]

        def describe(t: Any) -> Output:
            for k, argument in enumerate(arguments):
                if t is argument:
                    return Existing(k, None)
            if id(t) not in session.made:
                return Existing(-1, t)
            if id(t._storage) in self._argument_cells:
                k = self._argument_cells[id(t._storage)]
                kind = None if t._view_of is None else t._view_of.kind
                is_detached = t._view_of is None or t._view_of.base is not origin_of(arguments[k])
                return ArgumentView(k, t._spec, t._offset - arguments[k]._offset, kind, is_detached)
            if id(t._storage) in self._before:
                if t._view_of is not None or t._edge is not None:
                    return Existing(-1, t)
                return NewHandle(self._storage_of(t._storage), t._spec, t._offset)
            slot = Slot(constant=value_slot.__get__(t._storage))
            return NewTensor(id(t._storage), slot, t._storage.spec, t._spec, t._offset)

        def result(t: Any) -> Output:
            meta = gradients.get(id(t)) if t is not None else None
            if meta is None or meta not in self._lasting or grad_slot.__get__(meta) is not t:
                return leave(t)
            return GradientOf(self._argument_metas.get(id(meta), -1), meta)

        self.grads: list[tuple[int, Meta, Output]] = [
            (self._argument_metas.get(id(meta), -1), meta, leave(grad_slot.__get__(meta)))
            for meta in session.set_grads & self._lasting
        ]
        self.results = [result(t) for t in results]
        self.rooted = [
            Rooted(backward, [leave(t) for t in backward.roots]) for backward in graphs.sent
        ]
        self.lost = [leave(t) for t in graphs.lost]
        session.forget_metas(self._lasting)
        make = OutputBuilder(arguments, lambda slot: slot.constant)
        for _, meta, left in self.grads:
            grad_slot.__set__(meta, make(left))
        self.first = [make(left) for left in self.results]
        shared = {id(value): s.nbytes for s, value in session.storages.items() if s.shared}
        kept = [
            [
                (copy_of(v, shared[id(v)], CPU), 0)
                if id(v) in shared and id(v) not in backward.saved
                else (v, 0)
                for v in backward.values
            ]
            for backward in graphs.sent
        ]
        drawn = [np.array(draw.values, np.int64) for draw in session.draws]
        self._connect(arguments, make, make.storages.__getitem__, kept, drawn)
        graphs.let_go()
        results.clear()

    def _lay_out(self, session: Session, batch: list[Any], values: Sequence[Any]) -> None:
        """Make the plan; say where its inputs come from."""
        left = {id(value) for value in values}
        holders: dict[int, list[Storage]] = {}
        for storage, value in session.storages.items():
            holders.setdefault(id(value), []).append(storage)
        replaced = {
            id(value) for storage, value in session.storages.items() if storage in session.written
        }

        def donated(externals: Externals) -> tuple[int, ...]:
            return tuple(
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

        def source(
            value: Any, offset: int, *, is_donated: bool = False, is_kept: bool = False
        ) -> InputSource:
            storages = tuple([self._storage_of(storage) for storage in holders.get(id(value), ())])
            argument = storages[0].argument if storages and storages[0].meta is None else -1
            if argument >= 0:
                offset -= self._offsets[argument]
            nbytes = holders[id(value)][0].nbytes if storages else 0
            home = holders[id(value)][0].spec.device if storages else CPU
            constant = None if storages else value
            return InputSource(
                storages, constant, argument, offset, is_donated, is_kept, nbytes, home
            )

        places = {id(node): k for k, node in enumerate(pending[:])}
        self.part = ProgramPart(
            batch, left, [places[id(node)] for node in batch],
            [session.sites.get(id(node)) for node in batch], session.draws, donated,
            [(home, value_slot.__get__(storage)) for storage, home in self.homes.items()],
        )  # fmt: skip
        externals = self.part.externals
        chosen = donated(externals)
        self.sources = tuple(
            [source(*pair, is_donated=k in chosen) for k, pair in enumerate(externals)]
        )
        self._holders = holders
        for k, (backward, roots, *_) in enumerate(self.rooted):
            given = [v for v in backward.values if id(v) not in self.part.blocks]
            blocks = [self.part.blocks[id(v)] for v in backward.values[len(given) :]]
            unsaved = {id(v) for v in backward.values} - backward.saved
            sources = tuple([source(value, 0, is_kept=id(value) in unsaved) for value in given])
            outside = tuple([source(value, 0) for value in backward.outside])
            fresh = {self.part.blocks[v] for v in unsaved if v in self.part.blocks}
            self.rooted[k] = Rooted(backward, roots, sources, blocks, fresh, outside)
            backward.values, backward.outside, backward.saved = [], [], set()

    def _find_replaced(self) -> None:
        """The gradients that get another value without being read: their memory is free from the start.

        After an error they are gone, as they are in PyTorch, but for those that somebody else holds.
        """
        places = [place for source in self.sources for place in source.storages]
        places += [place for rooted in self.rooted for s in rooted.sources for place in s.storages]
        places += [place for place, _, _ in self.effects]
        places += [left.storage for left in self._lefts() if isinstance(left, NewHandle)]
        kept = {place.meta for place in places}
        self.replaced = [
            (k, meta)
            for k, meta, left in self.grads
            if isinstance(left, NewTensor) and left.whole.nbytes > SMALL and meta not in kept
            if not self.decides  # a call that decides otherwise may read them
        ]

    def _find_joint(self) -> None:
        """Whether a call can wait until somebody sends back from its results."""
        self.waits = (
            self.is_plain
            and not self.decides
            and len(self.rooted) == 1
            and bool(self.rooted[0].backward.joints)
            and not (self.effects or self.grads)
            and all(left.whole is left.spec and not left.offset for left in self.left.tensors)
            and all(
                place.meta is None
                for source in (*self.sources, *self.rooted[0].outside)
                for place in source.storages
            )
        )
        if not self.waits:
            for rooted in self.rooted:
                rooted.backward.joints = {}
            return
        sources = *self.sources, *self.rooted[0].outside
        self.read = [
            p.storage for source in sources for p in source.storages if p.storage is not None
        ]
        value_of = {block: value for value, block in self.part.blocks.items()}
        for joint in self.rooted[0].backward.joints.values():
            joint.results = [joint.copies[value_of[left.block]] for left in self.left.tensors]

    def _describe_effects(
        self, session: Session, arguments: Sequence[Any], blocks: dict[int, int]
    ) -> None:
        """Where everything that the function left behind is after a replay."""

        def slot(value: Any) -> Slot:
            if id(value) in blocks:
                return Slot(blocks[id(value)])
            if id(value) in self.tables:
                return Slot(table=TableSlot.of(value, slot))
            if id(value) in self._holders:
                return Slot(storage=self._storage_of(self._holders[id(value)][0]))
            return Slot(constant=value)

        known: dict[int, Output] = {}

        def placed(left: Output) -> Output:
            if not isinstance(left, NewTensor):
                return left
            if id(left) not in known:
                known[id(left)] = left._replace(slot=slot(left.slot.constant))
            return known[id(left)]

        drafts = self.results, self.grads  # alive, so that their ids are their own
        self.results = [placed(left) for left in drafts[0]]
        self.grads = [(k, meta, placed(left)) for k, meta, left in drafts[1]]
        self.rooted = [
            rooted._replace(roots=[placed(left) for left in rooted.roots]) for rooted in self.rooted
        ]
        self.lost = [placed(left) for left in self.lost]
        self.effects = [
            (
                self._storage_of(storage),
                slot(value_slot.__get__(storage)),
                storage.version - session.versions.get(storage, storage.version),
            )
            for storage in session.written
        ]
        self.counted = [
            (-1 if k >= len(arguments) else k, seen.counter, seen.counter.version - seen.version)
            for k, seen in enumerate([*session.arguments, *self._outside])
            if seen.counter.__class__ is Version and seen.counter.version != seen.version
        ]
        del self._holders, self._outside, self.tables
        self._find_plain()

    def _find_plain(self) -> None:
        """Split off what machine code leaves behind, if that is all."""
        makes = [
            *{id(left): left for left in self._lefts() if isinstance(left, NewTensor)}.values()
        ]
        numbers = {id(left): k for k, left in enumerate(makes)}
        blocks = [left.slot.block for left in makes] + [slot.block for _, slot, _ in self.effects]
        owners = {id(left): meta for _, meta, left in self.grads if id(left) in numbers}
        cleared = tuple([meta for _, meta, left in self.grads if is_nothing(left)])
        self.is_plain = (
            min(blocks, default=0) >= 0
            and len(set(blocks)) == len(blocks)
            and len({left.storage for left in makes}) == len(makes)
            and all(place.storage is not None for place, _, _ in self.effects)
            and all(
                k < 0 and (id(left) in numbers or is_nothing(left)) for k, _, left in self.grads
            )
            and len(owners) + len(cleared) == len(self.grads)
            and all(id(left) in numbers or is_constant(left) for left in self.results)
            and not self.counted
        )
        if not self.is_plain:
            return
        self.left = Leaving(
            tuple(
                [
                    BlockTensor(
                        left.slot.block, left.whole, left.spec, left.offset, owners.get(id(left))
                    )
                    for left in makes
                ]
            ),
            tuple(
                [
                    Effect(place.storage, slot.block, n)
                    for place, slot, n in self.effects
                    if place.storage
                ]
            ),
            cleared,
        )
        self.changes = bool(self.effects or self.grads)
        # At the memory of these others may look.
        self.exported = [effect for effect in self.left.effects if effect.storage in self.homes]
        written = [storage for storage in self.found.written if storage not in self.homes]
        self.found = self.found._replace(written=tuple(written))
        self.numbers = numbers
        self.lost_made = [numbers[id(left)] for left in self.lost]
        self.storages = {
            left.storage: k for k, left in enumerate(makes) if isinstance(left, NewTensor)
        }
        self.holders: dict[int, int | Storage] = {
            slot.block: place.storage
            for place, slot, _ in self.effects
            if place.storage is not None
        }
        self.holders |= {left.slot.block: k for k, left in enumerate(makes)}
        self.returned = [
            (-1, left.itself) if isinstance(left, Existing) else (numbers[id(left)], None)
            for left in self.results
        ]

    # ----- a replay -----

    def fits(self, arguments: Sequence[Any]) -> bool:
        """Whether a call finds everything as the captured one did."""
        return fits(self.found, arguments) and (self.is_unconditional or self._fits_too(arguments))

    def _fits_too(self, arguments: Sequence[Any]) -> bool:
        """What few captures ask for."""
        for k, layout, storage in self.placed:
            t = arguments[k]
            if not layout.fits(t) or (storage is not None and t._storage is not storage):
                return False
        if self.others and any(id(t._storage) in self.others for t in arguments):
            return False
        for place in self.written_elsewhere:
            if not _is_secluded(place.find(arguments)):
                return False
        return not self.conditions or all(read() == value for read, value in self.conditions)

    def _draw(self, journal: list[Callable[[], object]]) -> list[Any]:
        """The Python numbers of this call; those that are as they were are the same array. The journal gets
        to know how to take back that they were drawn."""
        drawn = []
        for k, draw in enumerate(self.draws):
            if draw.save is not None:
                journal.append(draw.save())
            numbers, (last, array) = draw.again(), self._drawn[k]
            if numbers != last:
                array = np.array(numbers, np.int64)
                self._drawn[k] = [*numbers], array
            drawn.append(array)
        return drawn

    def run(self, arguments: Sequence[Any]) -> list[Any] | None:
        """Run the plan, repeat the effects, make the results; None if the capture fits no more."""
        with lock:
            self._settle(arguments)
            if native.is_wanted:
                ask_for_machine_code()
            externals = look_up(self.sources, arguments)
            kept: list[Any] = []
            outside: Any = []
            if self.rooted:
                kept = [look_up(rooted.sources, arguments) for rooted in self.rooted]
                outside = look_up(self.rooted[0].outside, arguments) if self.waits else []
            if externals is None or outside is None or None in kept:
                return None
            if self.is_plain and self.exported and not can_be_written(self.exported, arguments):
                return None
            # What to do unless the plan runs to its end and its effects with it, the last first.
            journal: list[Callable[[], object]] = []
            try:
                drawn = self._draw(journal)
                if self.waits and not any(
                    [
                        *[storage.shared for storage in self.read],
                        *[t._storage.shared for t in arguments],
                    ]
                ):
                    call = WaitingCall(self, externals, outside, kept[0], drawn)
                    return self._wait(arguments, call, journal)
                for owner in self.replaced:
                    _let_go(meta_of(*owner, arguments), journal)
                drop_unwanted(deferred.nodes)
                blocks = self.part.prepare(externals, drawn)
                return self._run(arguments, blocks, kept, drawn, journal)
            except BaseException:
                for undo in reversed(journal):
                    undo()
                raise

    def _settle(self, arguments: Sequence[Any]) -> None:
        """Run everything that is recorded, but for what this call replaces and nobody reads."""
        if not deferred.nodes:
            settle(everything=True)
            return
        grads = [meta_of(*owner, arguments).grad for owner in self.replaced]
        replaced = {id(v): v for g in grads if g is not None and (v := g._storage.value)}
        if replaced:
            sources = *self.sources, *[s for r in self.rooted for s in (*r.sources, *r.outside)]
            for place in [place for source in sources for place in source.storages]:
                replaced.pop(id(place.find(arguments).value), None)
        with deferred.sparing(replaced.values()):
            settle(everything=True)

    def _run(
        self, arguments: Sequence[Any], blocks: Sequence[Any], kept: list[Externals],
        drawn: list[Any], journal: list[Any],
    ) -> list[Any]:  # fmt: skip
        """Run the plan and repeat the effects at once; the leaves of what the function returns."""
        if self.is_plain:
            made: list[Any] = []
            away = self.exported and [
                effect
                for effect in self.exported
                if effect.storage.shared
                and blocks[effect.block] is not effect.storage.value.address
            ]
            if not (self.changes or journal):  # an interrupt in between leaves everything as it was
                self.part.run()
                leave(self.left, blocks, made)
            elif _leaving.is_loaded and not away:
                leaving = partial(leave, self.left, blocks, made)
                self.part.run((leaving, journal.clear) if journal else (leaving,))
            else:
                effects = _effects(self.left, blocks, made)
                homes = [(effect.storage, effect.storage.value) for effect in away]
                effects += copies(homes, [blocks[effect.block] for effect in away])
                self.part.run((together(*effects), journal.clear))
            if self.rooted:
                values_made = [t._storage.value for t in made]
                for rooted, values in zip(self.rooted, kept, strict=True):
                    values += self.computed(rooted, values_made, blocks)
                self._connect_plain(arguments, made, kept, drawn)
            else:
                for k in self.lost_made:
                    lose_history(made[k])
            return [itself if k < 0 else made[k] for k, itself in self.returned]
        nodes: dict[int, Any] = {}
        tables: list[Any] = []
        read: list[Any] = []  # by them, from outside

        def computed(slot: Slot) -> Any:
            if slot.block < 0:
                return slot.constant if slot.storage is None else slot.storage.find(arguments).value
            if slot.block not in nodes:
                nodes[slot.block] = record.ready_node(blocks[slot.block])
            return nodes[slot.block]

        def value_of(slot: Slot) -> Any:
            if slot.table is None:
                return computed(slot)
            rows = [*slot.table.slots()]
            read.extend([computed(row) for row in rows if row.block < 0])
            tables.extend(slot.table.record(map(computed, rows)))
            return tables[-1]

        make = OutputBuilder(arguments, value_of)
        written = [(place.find(arguments), value_of(slot), n) for place, slot, n in self.effects]
        grads = [(meta_of(k, meta, arguments), make(left)) for k, meta, left in self.grads]
        counted: list[tuple[Any, int]] = [
            (storage, storage.version + n) for storage, _, n in written
        ]
        for k, counter, writes in self.counted:
            counter = counter if k < 0 else arguments[k]._version_counter
            counted.append((counter, counter.version + writes))
        done = together(
            setting(
                [storage for storage, _, _ in written], "value", [value for _, value, _ in written]
            ),
            setting([counter for counter, _ in counted], "version", [n for _, n in counted]),
            setting([meta for meta, _ in grads], "grad", [grad for _, grad in grads]),
            calling([partial(deferred.nodes.extend, tables)]),
        )
        self.part.run((done, journal.clear))
        if not all(map(deferred.is_ours, read)):
            settle(everything=True)
        results = [make(left) for left in self.results]
        for rooted, values in zip(self.rooted, kept, strict=True):
            values += [(value_of(Slot(block)), 0) for block in rooted.blocks]
        self._connect(arguments, make, make.storages.__getitem__, kept, drawn)
        return results

    def _wait(self, arguments: Sequence[Any], call: WaitingCall, journal: list[Any]) -> list[Any]:
        """The leaves of what the function returns, before its plan has run."""
        made = [left.around(node) for node, left in zip(call.nodes, self.left.tensors, strict=True)]
        self._connect_plain(arguments, made, [call.kept], call.drawn, call)
        at_once(calling((partial(waiting.append, call), journal.clear)))
        return [itself if k < 0 else made[k] for k, itself in self.returned]

    def computed(self, rooted: Rooted, results: Sequence[Any], blocks: Sequence[Any]) -> Externals:
        """What backward reads of a plan: the values of results and effects, or others."""
        found: Externals = []
        for block in rooted.blocks:
            holder = self.holders.get(block)
            if holder is None:
                found.append((record.ready_node(blocks[block]), 0))
            elif isinstance(holder, int):
                found.append((results[holder], 0))
            elif holder.shared and block in rooted.unsaved:
                found.append((copy_of(holder.value, holder.nbytes, CPU), 0))
            else:
                found.append((holder.value, 0))
        return found

    def _connect_plain(
        self, arguments: Sequence[Any], made: Sequence[Any], kept: list[Externals],
        drawn: list[Any], call: WaitingCall | None = None,
    ) -> None:  # fmt: skip
        """`_connect` where every result has a storage of its own."""
        self._connect(
            arguments, lambda left: made[self.numbers[id(left)]],
            lambda storage: made[self.storages[storage]]._storage, kept, drawn, call,
        )  # fmt: skip

    def _connect(
        self, arguments: Sequence[Any], find: Callable[[Output], Any],
        storage_of: Callable[[int], Storage], kept: list[Externals], drawn: list[Any],
        call: WaitingCall | None = None,
    ) -> None:  # fmt: skip
        """Put the graphs behind the results that `find` gives; `kept` is what backward reads."""
        for rooted, values in zip(self.rooted, kept, strict=True):
            roots = [find(left) for left in rooted.roots]
            rooted.backward.connect(roots, arguments, values, storage_of, drawn, call)
        for left in self.lost:
            lose_history(find(left))


def can_be_written(effects: Sequence[Effect], arguments: Sequence[Any]) -> bool:
    """Whether the memory of storages is the library's own, where others look at it, and no argument shows it by
    another name."""
    storages = [effect.storage for effect in effects if effect.storage.shared]
    if not all(is_home(storage, storage.value) for storage in storages):
        return False
    borrowed = [
        interval_of(t._storage, t._storage.value)
        for t in arguments
        if t._storage.value.recipe is None and isinstance(t._storage.value.address, BorrowedMemory)
    ]
    return not borrowed or not any(
        meet(interval_of(storage, storage.value), borrowed) for storage in storages
    )


def _let_go(meta: Meta, journal: list[Callable[[], object]]) -> None:
    """Take away a gradient; it can be given back as long as somebody else holds it."""
    if meta.grad is not None:
        grad = weakref.ref(meta.grad)
        journal.append(lambda: setattr(meta, "grad", grad()))
        meta.grad = None


# ----- what machine code does too -----


def _fits(found: ArgumentGuards, arguments: Sequence[Any]) -> bool:
    """Whether gradients, tensors and storages from outside are as they were."""
    for k, meta, layout in found.grads:
        owner: Meta | None = arguments[k]._autograd_meta if k >= 0 else meta
        grad = None if owner is None else owner.grad
        if grad is None or layout is None:
            if grad is not None or layout is not None:
                return False
        elif not layout.fits(grad):
            return False
    for t, storage, spec, offset, needs_grad in found.unchanged:
        if t._storage is not storage or t._spec is not spec:
            return False
        if t._offset != offset or t._needs_grad is not needs_grad:
            return False
    return all(map(_is_secluded, found.written))


def _is_secluded(storage: Storage) -> bool:
    """Whether what is written into a storage concerns nobody else."""
    return not (storage.shared or hasattr(storage, "links"))


def _look_up(
    sources: Sequence[InputSource], arguments: Sequence[Any]
) -> list[tuple[Any, int]] | None:
    """The values from outside, each with the element that it starts at; None if storages that held
    one value hold several.
    """
    externals = []
    for storages, constant, argument, offset, is_donated, is_kept, nbytes, home in sources:
        value = constant
        for place in storages:
            held = place.find(arguments).value
            if value is not None and held is not value:
                return None
            value = held
        if value.recipe is not None:
            raise value.recipe.error
        if (
            is_donated
            and (sys.getrefcount(value) > _ALONE or value.address.__class__ is BorrowedMemory)
        ) or (is_kept and any(place.find(arguments).shared for place in storages)):
            value = copy_of(value, nbytes, home)
        externals.append((value, offset + (arguments[argument]._offset if argument >= 0 else 0)))
    return externals


def _effects(left: Leaving, blocks: Sequence[Any], made: list[Any]) -> list[Changes]:
    """Make the tensors; changes that hand out gradients and write the storages with blocks of their own."""
    made += [wanted.around(record.ready_node(blocks[wanted.block])) for wanted in left.tensors]
    storages = [storage for storage, _, _ in left.effects]
    owned = [
        (wanted.owner, t)
        for t, wanted in zip(made, left.tensors, strict=True)
        if wanted.owner is not None
    ]
    return [
        setting(
            storages, "value", [record.ready_node(blocks[block]) for _, block, _ in left.effects]
        ),
        setting(
            storages, "version", [storage.version + writes for storage, _, writes in left.effects]
        ),
        setting(left.cleared, "grad", repeat(None)),
        setting([owner for owner, _ in owned], "grad", [t for _, t in owned]),
    ]


def _leave(left: Leaving, blocks: Sequence[Any], made: list[Any]) -> None:
    """Make the tensors, hand out gradients and write the storages with blocks of their own."""
    at_once(*_effects(left, blocks, made))


class ReplayContext(NamedTuple):
    """What a replay needs in machine code."""

    runtime: Runtime
    fallback: Fallback
    foreign: type = BorrowedMemory


native.register_layout(
    REPLAY=ReplayContext, SOURCE=InputSource, STORAGE_OF=StorageOf, LAYOUT=ArgumentLayout,
    ARGUMENT_GUARDS=ArgumentGuards,
    GRAD_GUARD=GradGuard, TENSOR_GUARD=TensorGuard, LEAVING=Leaving, NEW_TENSOR=BlockTensor, EFFECT=Effect,
)  # fmt: skip
fits = native.FastPath("replay", "fits").function(_fits, ReplayContext(runtime(), _fits))
look_up = native.FastPath("replay", "look_up").function(
    _look_up, ReplayContext(runtime(), _look_up)
)
_leaving = native.FastPath("replay", "leave")
leave = _leaving.function(_leave, ReplayContext(runtime(), _leave))


def _calibrate() -> int:
    """What `_look_up` counts for a value that only a storage holds, and it."""
    storage: Any = record.make_storage(record.ready_node(0), Spec(Size(), (), float32))
    value = held = storage.value
    count = sys.getrefcount(value)
    del held
    return count


_ALONE = _calibrate()
