"""The memory of a plan: where its values lie.

A value that somebody looks at once the plan has run, an output, has a block of its own. Values that only
the plan reads lie in an arena for their live range: from the task that makes them to the last that reads
them. Then their memory is reused: given back to the arena, or taken in place by a value that the same task
makes. Memory from outside that nobody else will look at is donated to the plan, and reused in place too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...storage import ALIGNMENT, size_class
from ..fusion.groups import Task
from ..graph_key import written_over


class MemorySlot(NamedTuple):
    """Where a word comes from: an external, a held block, the arena, a node's number."""

    kind: str  # "external", "held", "arena", "number", "status", on a GPU "check" and "table"
    at: int  # the number of the external, block or number; the byte in the arena
    extra: int = 0  # bytes to add


class MemoryPlan:
    """Gives values their places while the tasks of a plan are emitted, one after the other.

    Args:
        order: the tasks.
        outputs: the values that somebody looks at afterwards.
        specs: of the values.
        donated: externals that may be written over; with each those that are other parts of the same value.
        external_bytes: of the externals, from the first to the last that is read.
        homes: externals over which only this value may be written, as others look at them.
    """

    def __init__(
        self, order: Sequence[Task], outputs: set[int], specs: Sequence[Any],
        donated: dict[int, list[int]], external_bytes: Sequence[int], homes: dict[int, int],
    ) -> None:  # fmt: skip
        self.order, self.outputs, self.specs = order, outputs, specs
        self.donated, self.external_bytes, self.homes = donated, external_bytes, homes
        self.places: dict[int, MemorySlot] = {}
        self.arena = Arena()
        self.block_sizes: list[int] = []  # 0: a donated block
        self.donations: dict[int, int] = {}  # blocks, and the externals whose memory they are
        self.copied = 0  # bytes of old values that would be written over where nothing is planned
        self._find_first_unrecoverable()
        self._find_live_ranges()
        self._find_early_outputs()

    def _find_first_unrecoverable(self) -> None:
        """The first task from which on nothing can stop the plan once it has written over a value."""
        self.first_unrecoverable = 0
        for position in range(len(self.order) - 1, -1, -1):
            recipes = [
                i.recipe for i in self.order[position].items if i.recipe.fallible is not None
            ]
            if recipes:
                self.first_unrecoverable = position + (
                    not all(recipe.careful for recipe in recipes)
                )
                break

    def _find_live_ranges(self) -> None:
        """Which values need memory, and which task reads each last."""
        self.last_read: dict[int, int] = {}
        self.stored = set(self.outputs)
        for position, task in enumerate(self.order):
            items = task.everything
            made_here = {v for item in items for v in item.writes}
            for item in items:
                fold = item.recipe.fusion.fold
                is_inside = task.row_group is not None and (fold is None or fold.by_rows)
                if len(items) == 1 or not (item.recipe.fusion.element is not None or is_inside):
                    self.stored |= set(item.writes)
                    self.last_read |= dict.fromkeys(item.writes, position)
                for read in item.reads:
                    if read.value not in made_here:
                        self.stored.add(read.value)
                        self.last_read[read.value] = position

    def _find_early_outputs(self) -> None:
        """Which outputs are to be written over values that only the plan reads.

        Those lie in the blocks of the outputs from the beginning: no other place may pass on. The last
        tasks are looked at first, as a value may be written over several times.
        """
        self.becomes: dict[int, int] = {}
        for position in range(len(self.order) - 1, -1, -1):
            task = self.order[position]
            for item in task.items if len(task.everything) == 1 else ():
                over = written_over(item.recipe)
                for v, read in zip(item.writes[:over], item.reads, strict=False):
                    old = read.value
                    if (
                        old >= 0
                        and [r.value for r in item.reads].count(old) == 1
                        and (v in self.outputs or v in self.becomes)
                        and old not in self.outputs
                        and self.last_read[old] == position
                        and self._size_of(v) == self._size_of(old)
                        and not (read.offset and item.recipe.alias is not None)
                    ):
                        self.becomes[old] = v
        self.in_blocks = self.outputs | self.becomes.keys()

    def _size_of(self, v: int) -> int:
        return size_class(max(self.specs[v].nbytes, 1))

    def place(self, v: int) -> MemorySlot:
        """Where a value lies, new memory for one that is being made."""
        if v < 0:
            return MemorySlot("external", ~v)
        place = self.places.get(v)
        if place is None:
            size = self._size_of(v)
            if v in self.in_blocks:
                place = MemorySlot("held", len(self.block_sizes))
                self.block_sizes.append(size)
            else:
                place = MemorySlot("arena", self.arena.take(size))
            self.places[v] = place
        return place

    def scratch(self, nbytes: int, alignment: int = ALIGNMENT) -> MemorySlot:
        """Memory that is free again once the next step runs, at a multiple of so many bytes."""
        size = size_class(nbytes + alignment - ALIGNMENT)
        at = self.arena.take(size)
        self.arena.give_back(at, size)
        return MemorySlot("arena", -(-at // alignment) * alignment)

    def reuse(self, v: int, old: int, position: int) -> bool:
        """Let a value have the memory of one that is read here for the last time, if it may."""
        if self.last_read.get(old) != position:
            return False
        if old < 0:
            return self._reuse_donated(v, old, position)
        place = self.places[old]
        if self.becomes.get(old) != v and (v in self.in_blocks or place.kind == "held"):
            return False
        self.places[v] = place
        self.places[old] = place._replace(kind="gone")
        return True

    def _reuse_donated(self, v: int, old: int, position: int) -> bool:
        others = self.donated.get(~old)
        if others is None or self.homes.get(~old, v) != v:
            return False
        if position < self.first_unrecoverable or any(
            self.last_read.get(~other, -1) >= position for other in others
        ):
            self.copied += self.external_bytes[~old]
            return False
        del self.donated[~old]
        if v in self.in_blocks:
            self.places[v] = MemorySlot("held", len(self.block_sizes))
            self.donations[len(self.block_sizes)] = ~old
            self.block_sizes.append(0)
        else:
            self.places[v] = MemorySlot("external", ~old)
        return True

    def release(self, position: int, task: Task) -> None:
        """Give back the memory of values that no later task reads."""
        values = {r.value for i in task.everything for r in i.reads}
        values |= {v for i in task.everything for v in i.writes}
        for v in sorted(values):
            place = self.places.get(v)
            if place is not None and place.kind == "arena" and self.last_read.get(v) == position:
                self.arena.give_back(place.at, self._size_of(v))


class Arena:
    """Bytes from which values take their places and to which they give them back."""

    def __init__(self) -> None:
        self.size = 0
        self._free: list[tuple[int, int]] = []  # start and size, in order

    def take(self, size: int) -> int:
        """The start of a free place, the tightest that there is."""
        fitting = [(room, k) for k, (_, room) in enumerate(self._free) if room >= size]
        if fitting:
            room, k = min(fitting)
            start, _ = self._free[k]
            if room > size:
                self._free[k] = start + size, room - size
            else:
                del self._free[k]
            return start
        if self._free and sum(self._free[-1]) == self.size:  # the last place, made longer
            start, _ = self._free.pop()
        else:
            start = self.size
        self.size = start + size
        return start

    def give_back(self, start: int, size: int) -> None:
        """Make a place free; neighbours become one."""
        free = [*self._free, (start, size)]
        free.sort()
        self._free = []
        for at, room in free:
            if self._free and sum(self._free[-1]) == at:
                self._free[-1] = self._free[-1][0], self._free[-1][1] + room
            else:
                self._free.append((at, room))
