"""Arrays of which each round of a loop reads only what it has written itself.

A round that runs again finds in them what it needs, whatever later rounds have left there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from .sizes import Equal, Size, dimension, size_of
from .structure import (
    Atom,
    Demand,
    Load,
    Make,
    Procedure,
    Repeat,
    Statement,
    StoreElement,
    Suite,
    inner_blocks,
    walk,
)

Place = tuple[int | None, ...]  # an index for each dimension; None: all that there are
_MOST = 64  # elements of a small array that are looked for one by one


class Written:
    """What a round has surely written up to a statement."""

    def __init__(self, f: Procedure, before: Written | None = None) -> None:
        self.f = f
        self.equal: Equal = Equal(f, before.equal if before else None)
        self.places: dict[str, set[Place]] = (
            {a: set(found) for a, found in before.places.items()} if before else {}
        )
        self.indices: set[tuple[str, tuple[Atom, ...]]] = set(before.indices) if before else set()

    def add(self, item: Statement) -> None:
        """Note what a statement writes, whatever else it does."""
        if isinstance(item, Demand):
            self.equal.add(item)
        if isinstance(item, StoreElement):
            self.indices.add((item.array, tuple(item.index)))
        for array, place in self._places(item, {}):
            self.places.setdefault(array, set()).add(place)

    def has(self, item: Load | StoreElement) -> bool:
        """Whether the element that a statement reads is written."""
        return (
            (item.array, tuple(item.index)) in self.indices
            or _is_among(item.index, self.places.get(item.array, set()))
            or self.has_whole(item.array)
        )

    def has_whole(self, array: str) -> bool:
        """Whether all elements of an array are written."""
        places = self.places.get(array)
        if not places:
            return False
        by_number = [
            d for d in range(self.f.arrays[array][0]) if any(p[d] is not None for p in places)
        ]
        sizes = [dimension(self.f, array, d) for d in by_number]
        known = [n for n in sizes if type(n) is int]
        if len(known) < len(sizes) or math.prod(known) > _MOST:
            return False
        return all(
            any(all(p[d] in (None, n) for d, n in zip(by_number, at, strict=True)) for p in places)
            for at in itertools.product(*map(range, known))
        )

    def _places(self, item: Statement, counters: Mapping[str, Size]) -> Iterator[tuple[str, Place]]:
        """The places of arrays that a statement writes whenever it runs, in loops with these counters from 0 up
        to a size."""
        f = self.f
        if isinstance(item, StoreElement):
            # A loop whose counter is not in the index may have no rounds.
            if sorted(a for a in item.index if isinstance(a, str)) != sorted(counters):
                return
            for d, a in enumerate(item.index):
                if isinstance(a, str):
                    if not self.equal(counters[a], dimension(f, item.array, d)):
                        return
                elif a < 0:
                    return
            yield item.array, tuple(None if isinstance(a, str) else int(a) for a in item.index)
        elif isinstance(item, Repeat) and _runs_through(item):
            for inner in item.body.items:
                yield from self._places(inner, {**counters, item.counter: size_of(f, item.stop)})


def _is_among(index: list[Atom], places: set[Place]) -> bool:
    return any(
        all(n is None or (type(a) is int and a == n) for a, n in zip(index, place, strict=True))
        for place in places
    )


def _runs_through(loop: Repeat) -> bool:
    return loop.kind == "for" and loop.leaves is None and loop.step == 1 and loop.start == 0


def written_by(f: Procedure, block: Suite) -> Written:
    """What a block has written at its end whenever it runs."""
    written = Written(f)
    for item in block.items:
        written.add(item)
    return written


def written_first(f: Procedure, loop: Repeat) -> set[str]:
    """The arrays that are the function's own, that nobody reads or writes outside of a loop, and of which each
    round reads only what it has written."""
    roots = [f.root(a) for a in f.arrays]
    found = {
        a
        for a in f.arrays
        if isinstance(f.makers.get(a), Make) and a not in f.returns and roots.count(f.root(a)) == 1
    }
    inside = {item for _, item in walk(loop.body)}
    for _, item in walk(f.body):
        if isinstance(item, (Load, StoreElement)) and item not in inside:
            found.discard(item.array)
    _drop_read_before(f, loop.body, Written(f), found)
    return found


def _drop_read_before(f: Procedure, block: Suite, before: Written, found: set[str]) -> None:
    """Take arrays from `found` that a block may read where they are not written yet."""
    written = Written(f, before)
    for item in block.items:
        reads = isinstance(item, Load) or (isinstance(item, StoreElement) and item.adds)
        if isinstance(item, (Load, StoreElement)) and reads and not written.has(item):
            found.discard(item.array)
        for inner in inner_blocks(item):
            _drop_read_before(f, inner, written, found)
        written.add(item)
