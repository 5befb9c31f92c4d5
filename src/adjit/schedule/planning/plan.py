"""Plans: a batch of recorded nodes as one table of words, for every batch of the same structure.

What stays open is filled in at every run: addresses from outside, memory for the values that
somebody holds, and Python numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ...atomic import Calls
from ...devices import device
from ...errors import CallSite
from ...storage import (
    WORKSPACE,
    BorrowedMemory,
    allocate,
    borrow,
    free_small,
    size_class,
    workspace,
)
from .. import profile, run_cpu
from ..graph_key import Structure
from ..jit import native
from ..jit.cache import link
from .lower import PlanLowering
from .recipe import Recipe
from .step_info import PackedNotes


class ExternalOf(NamedTuple):
    """What a plan reads from outside."""

    size: int  # bytes of an element
    padded: int  # bytes that are read, where that is to the end of a line


class BlockOf(NamedTuple):
    """The memory of a held value."""

    taken: int  # the number of the external whose block it takes over, or -1
    size: int
    free: list[Any] | None  # where the pool keeps blocks of that size, if they are small


class PlaceRow(NamedTuple):
    """A word of a plan that is an address which is new at every run."""

    position: int
    source: int  # which external or else block it is in
    extra: int  # how far


class NumberRow(NamedTuple):
    """A word of a plan that is a Python number."""

    position: int
    which: int  # of the numbers of a run


class Table(NamedTuple):
    """The words of a plan, and what fills them in at every run."""

    externals: tuple[ExternalOf, ...]
    blocks: tuple[BlockOf, ...]
    words: Any
    places: Any  # an array with the rows of some `PlaceRow`
    words_at: int
    places_at: int
    places_count: int
    numbers: Any  # an array with the rows of some `NumberRow`
    numbers_at: int
    numbers_count: int


class Result(NamedTuple):
    """A node that somebody holds."""

    node: int  # its position in the batch
    blocks: tuple[int, ...]  # the numbers of its blocks


class CompiledRun(NamedTuple):
    """How a plan runs, for machine code that does it all."""

    table: Table
    numbered: tuple[int, ...]  # nodes whose Python numbers are wanted
    results: tuple[Result, ...]
    steps: int
    status_at: int
    can_fail: bool
    walk: int
    large: bool  # whether threads are wanted
    team: int


def not_yet(place: device) -> NotImplementedError:
    """The error about plans that are wanted ahead of their first run, on a GPU."""
    return NotImplementedError(f"plans of operations on {place} cannot be captured or shown yet")


class Plan:
    """The table of words of one structure, and what fills it in.

    Elementwise nodes of fewer than `least` elements are not fused.
    """

    checked: Sequence[int] = ()  # nodes whose errors somebody has to wait for

    def __init__(self, batch: Sequence[Any], structure: Structure, least: int) -> None:
        made = self._laid_out(batch, structure, least)
        self.sources: list[Any] = list(made.sources)
        self.notes = PackedNotes(made.notes)
        self.steps, self.large = len(made.owners), made.large
        self.is_worth_it = made.is_worth_it
        self.owners = made.owners  # the node behind each step, -1 where it cannot fail
        self.can_fail = any(at >= 0 for at in made.owners)
        self.arena = size_class(made.memory.arena.size) if made.memory.arena.size else 0
        self.results = tuple([Result(*found) for found in made.results])
        self.numbered = made.numbered
        # What a kernel found; whether the last step has run; where the table has the arena.
        self.status = array("q", [0] * 6)
        self._words, self._open, self._links = made.words, made.open, made.links
        self._blocks = tuple(
            [
                BlockOf(made.memory.donations.get(k, -1), size, free_small.get(size))
                for k, size in enumerate(made.memory.block_sizes)
            ]
        )
        kinds: dict[ExternalOf, ExternalOf] = {}  # many are alike: one object for all of them
        externals = [
            ExternalOf(size, made.padded.get(k, 0)) for k, size in enumerate(made.external_sizes)
        ]
        self._externals = tuple([kinds.setdefault(external, external) for external in externals])

    def _laid_out(self, batch: Sequence[Any], structure: Structure, least: int) -> PlanLowering:
        made = PlanLowering(batch, structure, least)
        made.build()
        return made

    def expect(self, nodes: Sequence[tuple[Recipe, Any]]) -> None:
        """Get ready for what the `checked` nodes may find, given how and where they were recorded."""

    def link(self, source: Any) -> int:
        """The address of one of the `sources`."""
        return link(source)

    def compile(self) -> None:
        """Link every kernel; fast where the cache has them."""
        for source in self.sources:
            self.link(source)

    @property
    def is_ready(self) -> bool:
        """Whether every kernel is linked."""
        return all(source.address for source in self.sources)

    def finish(self) -> None:
        """Make the table; every kernel is linked by now."""
        for position, source in self._links:
            self._words[position] = source.address
        self.words = np.array(self._words, np.int64)
        self._status = self.status.buffer_info()[0]
        start = {"external": 0, "held": len(self._externals)}
        start["check"] = len(self._externals) + len(self._blocks)
        start["table"] = start["check"] + len(self.checked)
        arena, filled, numbers = [], [], []
        for position, place in self._open:
            if place.kind == "arena":
                arena.append(position)
                self.words[position] = place.at + place.extra
            elif place.kind == "status":
                self.words[position] = self._status + place.at
            elif place.kind == "number":
                numbers.append((position, place.at))
            else:
                filled.append((position, start[place.kind] + place.at, place.extra))
        self._arena_at = np.array(arena, np.intp)
        places = np.array(filled, np.int64).reshape(-1, len(PlaceRow._fields))
        open_numbers = np.array(numbers, np.int64).reshape(-1, len(NumberRow._fields))
        self._table = Table(
            self._externals, self._blocks, self.words, places, self.words.ctypes.data,
            places.ctypes.data, len(places), open_numbers, open_numbers.ctypes.data, len(numbers),
        )  # fmt: skip
        self._stream = self.words.ctypes.data
        self._settle_down()
        self.compiled_run = self._compiled_run()
        del self._words, self._open, self._links, self._externals, self._blocks

    def _settle_down(self) -> None:
        """Have the arena in the workspace, if it is small: it stays there."""
        if 0 < self.arena <= WORKSPACE:
            self.status[5] = workspace()
            self.words[self._arena_at] += self.status[5]

    def _compiled_run(self) -> CompiledRun | None:
        """How all of it runs in machine code; None where it needs much memory in between."""
        if self.arena > WORKSPACE:
            return None
        return CompiledRun(
            self._table, tuple(self.numbered), self.results,
            self.steps, self._status, self.can_fail,
            run_cpu.walk_address(), self.large, run_cpu.team_address(),
        )  # fmt: skip

    def prepare(self, externals: list[tuple[Any, int]]) -> list[Any]:
        """Blocks for the held values, in the table like the addresses of the externals.

        Callers hold the lock until the plan has run.
        """
        self.status[4] = 0
        blocks: list[Any] = fill_in(self._table, externals)
        return blocks

    def set_numbers(self, numbers: list[tuple[int, ...]]) -> None:
        """Put the Python numbers of the `numbered` nodes into the table."""
        if numbers:
            write_numbers(self._table, numbers)

    def number_slots(self, start: int, count: int) -> tuple[Any, Any]:
        """Where some of the numbers stand in the table, and which of them each is."""
        at, which = self._table.numbers.T
        chosen = (which >= start) & (which < start + count)
        return at[chosen], which[chosen] - start

    def run(self, sites: Sequence[CallSite | None] | None = None, then: Calls = ()) -> None:
        """Run what was prepared, and at once, if that went well, what is to be done `then`; `sites` are
        where the nodes came from, for a profile."""
        arena, at = self._arena(), self._arena_at
        if arena != self.status[5]:
            further = int(arena) - self.status[5]
            self.words[at], self.status[5] = self.words[at] + further, arena
        self.status[0] = 0
        self._go(sites, then)

    def _arena(self) -> Any:
        """Memory for the values in between: a block, or an address that stays."""
        return borrow(self.arena) if self.arena > WORKSPACE else self.status[5]

    def _go(self, sites: Sequence[CallSite | None] | None, then: Calls) -> None:
        """Run the steps."""
        where = self._status if self.can_fail else 0
        if sites is None or profile.active is None:
            self.stopped = run_cpu.run(self._stream, self.steps, where, large=self.large, then=then)
        else:
            watcher = profile.active
            self.stopped = watcher.run_plan(
                watcher.notes_of(self), sites, self._stream, where, self.large, then
            )

    @property
    def has_run(self) -> bool:
        """Whether the last run came to its end, whatever was raised since."""
        return bool(self.status[4])

    def failed_node(self) -> int:
        """The position of the node whose kernel found a bad value in the last run, or -1."""
        return self.owners[self.stopped] if self.status[0] else -1


def _fill_in(table: Table, externals: list[tuple[Any, int]]) -> list[Any]:
    """Blocks for the held values; all addresses of a run are written into the table."""
    for k, (size, padded) in enumerate(table.externals):
        value, offset = externals[k]
        if padded and (offset or value.address.__class__ is BorrowedMemory):
            externals[k] = copied(value, value.address + offset * size, padded), 0
    blocks = [
        allocate(size) if taken < 0 else externals[taken][0].address
        for taken, size, _ in table.blocks
    ]
    write_addresses(table, externals, blocks)
    return blocks


def write_addresses(table: Table, externals: list[tuple[Any, int]], blocks: Sequence[int]) -> None:
    """Write the addresses of a run into the table."""
    addresses = [
        value.address + offset * size
        for (value, offset), (size, _) in zip(externals, table.externals, strict=True)
    ]
    positions, sources, extra = table.places.T
    table.words[positions] = np.array([*addresses, *blocks], np.int64)[sources] + extra


class PlanContext(NamedTuple):
    """What filling in and running a plan needs."""

    fallback: Callable[..., Any]
    allocate: Callable[[int], Any] = allocate
    foreign: type = BorrowedMemory
    none: None = None
    zero: int = 0
    false: bool = False
    true: bool = True


native.register_layout(
    PLAN=PlanContext, TABLE=Table, RUN=CompiledRun, RESULT=Result, EXTERNAL=ExternalOf, BLOCK=BlockOf,
    PLACE=PlaceRow, PLACE_WORDS=len(PlaceRow._fields), NUMBER=NumberRow,
    NUMBER_WORDS=len(NumberRow._fields),
)  # fmt: skip
fill_in = native.FastPath("plans", "fill_in").function(_fill_in, PlanContext(_fill_in))


def _write_numbers(table: Table, numbers: list[tuple[int, ...]]) -> None:
    """Write the Python numbers of a run, one after the other, into the table."""
    positions, which = table.numbers.T
    table.words[positions] = np.array(list(chain.from_iterable(numbers)), np.int64)[which]


write_numbers = native.FastPath("plans", "write_numbers").function(
    _write_numbers, PlanContext(_write_numbers)
)


def _run_compiled(
    compiled_run: CompiledRun, externals: list[tuple[Any, int]], batch: list[Any]
) -> int:
    """Run a plan on a batch: True, or the step that failed; False, as here, if it has not run."""
    return False


run_compiled = native.FastPath("plans", "run").function(_run_compiled, PlanContext(_run_compiled))


def copied(value: Any, address: int, nbytes: int) -> Any:
    """A value like another one, with a copy of the bytes at an address."""
    made = value.__class__()
    made.recipe = made.inputs = made.offsets = made.call_site = None
    made.scalars = ()
    made.address = allocate(size_class(nbytes))
    run_cpu.copy_bytes(made.address, address, nbytes)
    return made
