"""Plans: a batch of recorded nodes as one table of words, for every batch of the same structure.

What stays open is filled in at every run: addresses from outside, memory for the values that
somebody holds, and Python numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import Site
from ..storage import Foreign, allocate, size_class
from . import profile, run_cpu
from .cache import link
from .layout import Layout
from .structure import Structure


class Plan:
    """The table of words of one structure, and what fills it in.

    Elementwise nodes of fewer than `least` elements are not fused.
    """

    def __init__(self, batch: Sequence[Any], structure: Structure, least: int) -> None:
        made = Layout(batch, structure, least)
        made.build()
        self.sources = made.sources
        self.tasks = made.order
        self.notes = made.notes
        self.steps, self.large = len(made.owners), made.large
        self.owners = made.owners  # the node behind each step, -1 where it cannot fail
        self.can_fail = any(at >= 0 for at in made.owners)
        self.arena = size_class(made.arena_size) if made.arena_size else 0
        self.blocks = made.block_sizes
        self.takes = made.takes  # held values that take over the block of an external
        self.results = made.results
        self.sizes = made.external_sizes
        self.numbered = made.numbered
        self.padded = made.padded  # bytes of externals that are read to the end of their line
        self.status = array("q", [0] * 5)  # what a kernel found; whether the last step has run
        self._words, self._open, self._links = made.words, made.open, made.links

    def compile(self) -> None:
        """Link every kernel; fast where the cache has them."""
        for source in self.sources:
            link(source)

    @property
    def is_ready(self) -> bool:
        """Whether every kernel is linked."""
        return all(source.address for source in self.sources)

    def finish(self) -> None:
        """Make the table; every kernel is linked by now."""
        for position, source in self._links:
            self._words[position] = source.address
        self.words = np.array(self._words, np.int64)
        start = {"external": 0, "held": len(self.sizes)}
        status = self.status.buffer_info()[0]
        arena, filled, numbers = [], [], []
        for position, place in self._open:
            if place.kind == "arena":
                arena.append(position)
                self.words[position] = place.at + place.extra
            elif place.kind == "status":
                self.words[position] = status + place.at
            elif place.kind == "number":
                numbers.append((position, place.at))
            else:
                filled.append((position, start[place.kind] + place.at, place.extra))
        self._arena_at = np.array(arena, np.intp)
        self._fill_at = np.array([f[0] for f in filled], np.intp)
        self._fill_from = np.array([f[1] for f in filled], np.intp)
        extra = np.array([f[2] for f in filled], np.int64)
        self._fill_extra = extra if extra.any() else None
        self._number_at = np.array([n[0] for n in numbers], np.intp)
        self._number_from = np.array([n[1] for n in numbers], np.intp)
        self._base = 0
        self._stream = self.words.ctypes.data
        del self._words, self._open, self._links

    def prepare(self, externals: list[tuple[Any, int]]) -> list[Any]:
        """Blocks for the held values. Callers hold the lock until the plan has run."""
        self.status[4] = 0
        for k, nbytes in self.padded.items():
            value, offset = externals[k]
            if offset or value.address.__class__ is Foreign:
                externals[k] = copied(value, value.address + offset * self.sizes[k], nbytes), 0
        return [
            allocate(size) if size else externals[self.takes[k]][0].address
            for k, size in enumerate(self.blocks)
        ]

    def set_numbers(self, numbers: Sequence[int]) -> None:
        """Put the Python numbers of the `numbered` nodes, one after the other, into the table."""
        if len(self._number_at):
            self.words[self._number_at] = np.array(numbers, np.int64)[self._number_from]

    def number_slots(self, start: int, count: int) -> tuple[Any, Any]:
        """Where some of the numbers stand in the table, and which of them each is."""
        chosen = (self._number_from >= start) & (self._number_from < start + count)
        return self._number_at[chosen], self._number_from[chosen] - start

    def run(
        self,
        externals: Sequence[tuple[Any, int]],
        blocks: Sequence[Any],
        sites: Sequence[Site | None] | None = None,
    ) -> None:
        """Fill in the table and run it; `sites` are where the nodes came from, for a profile."""
        values: list[int] = [
            value.address + offset * size if offset else value.address
            for (value, offset), size in zip(externals, self.sizes, strict=True)
        ]
        values += blocks
        filled = np.array(values, np.int64)[self._fill_from]
        if self._fill_extra is not None:
            filled += self._fill_extra
        self.words[self._fill_at] = filled
        arena = allocate(self.arena) if self.arena else 0
        if arena != self._base:
            self.words[self._arena_at] += int(arena) - self._base
            self._base = int(arena)
        status = self.status
        status[0] = 0
        where = status.buffer_info()[0] if self.can_fail else 0
        if sites is None or profile.active is None:
            self.stopped = run_cpu.run(self._stream, self.steps, where, large=self.large)
        else:
            watcher = profile.active
            self.stopped = watcher.run_plan(self.notes, sites, self._stream, where, self.large)

    @property
    def has_run(self) -> bool:
        """Whether the last run came to its end, whatever was raised since."""
        return bool(self.status[4])

    def failed_node(self) -> int:
        """The position of the node whose kernel found a bad value in the last run, or -1."""
        return self.owners[self.stopped] if self.status[0] else -1


def copied(value: Any, address: int, nbytes: int) -> Any:
    """A value like another one, with a copy of the bytes at an address."""
    made = value.__class__()
    made.recipe = made.inputs = made.offsets = made.site = None
    made.scalars = ()
    made.address = allocate(size_class(nbytes))
    run_cpu.copy_bytes(made.address, address, nbytes)
    return made
