"""Arrays that may be one in the user's program and are two here.

`y = z` at the end of a round is a copy into memory that was made before the loop, and np.ascontiguousarray a
copy. A copy is as good as another name for the same array until somebody writes into one of both: then the
other one is stale, and whoever reads it is refused. The text of a loop is read once and runs again: what is
written anywhere in it is written before what is read anywhere in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Mark:
    """What had been read and written, and which arrays were there, when a loop began."""

    pairs: list[tuple[str, str]]
    reads: dict[str, int]
    writes: dict[str, int]
    arrays: set[str]


@dataclass
class Twins:
    """Pairs of arrays; `root` gives arrays that change places in loops one name."""

    root: Callable[[str], str]
    pairs: list[tuple[str, str]] = field(default_factory=list)
    stale: set[str] = field(default_factory=set)
    reads: dict[str, int] = field(default_factory=dict)
    writes: dict[str, int] = field(default_factory=dict)

    def tie(self, array: str, others: Iterable[str]) -> None:
        """Note that one array may be each of the others, and what these may be."""
        for other in {o for each in others for o in (each, *self.of([each]))}:
            if self.root(other) != self.root(array):
                self.pairs.append((array, other))

    def change_places(self, firsts: Iterable[str], inside: Iterable[str]) -> None:
        """Note that each of some names in a loop may be any of some arrays in front of it."""
        firsts = [*firsts]
        others, any_is_stale = self.of(firsts), any(map(self.is_stale, firsts))
        for name in inside:
            self.tie(name, others)
            if any_is_stale:
                self.stale.add(name)

    def of(self, arrays: Iterable[str]) -> set[str]:
        """What these may be."""
        roots = {self.root(a) for a in arrays}
        both = [*self.pairs, *[(b, a) for a, b in self.pairs]] if self.pairs else []
        return {b for a, b in both if self.root(a) in roots}

    def read(self, array: str) -> None:
        """Count a read."""
        self.reads[array] = self.reads.get(array, 0) + 1

    def write(self, array: str) -> None:
        """Count a write, after which the others are stale."""
        self.writes[array] = self.writes.get(array, 0) + 1
        self.stale |= self.of([array])

    def is_stale(self, array: str) -> bool:
        """Whether one was written that may be this array."""
        return bool(self.stale) and self.root(array) in map(self.root, self.stale)

    def mark(self, arrays: Iterable[str]) -> Mark:
        """The state at the beginning of a loop."""
        return Mark([*self.pairs], {**self.reads}, {**self.writes}, {*arrays})

    def are_written(self, arrays: Iterable[str], mark: Mark) -> bool:
        """Whether one of these was written since."""
        return self._has_grown(self.writes, mark.writes, arrays)

    def are_read(self, arrays: Iterable[str], mark: Mark) -> bool:
        """Whether one of these was read since."""
        return self._has_grown(self.reads, mark.reads, arrays)

    def _has_grown(self, now: dict[str, int], then: dict[str, int], arrays: Iterable[str]) -> bool:
        roots = {self.root(a) for a in arrays}
        return any(count > then.get(a, 0) and self.root(a) in roots for a, count in now.items())

    def clash(self, mark: Mark) -> bool:
        """Whether a round has read what an earlier one made stale."""
        both = [*mark.pairs, *[(b, a) for a, b in mark.pairs]]
        return any(self.are_written([a], mark) and self.are_read([b], mark) for a, b in both)
