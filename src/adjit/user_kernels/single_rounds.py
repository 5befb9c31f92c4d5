"""Loops each round of which runs again on the way back, from what was kept at its start.

The stages of a step by Runge and Kutta are arrays that each round writes anew: computed again from the state at
the start of the step, they need not be on the tape. A loop is taken where that is known to need at most half
of the tape, and a round takes few steps for each element that it writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from .checkpoints import Parts
from .sizes import dimension
from .structure import Apply, Repeat, StoreElement, Suite, inner_blocks, walk
from .vocabulary import CHEAP
from .writing import Lines
from .written_first import Written, written_by


class SingleRounds(Parts):
    """How each round of a loop runs again: a part is a round."""

    when = "the start of each round, which runs again on the way back"
    at_start = ""  # a round begins with the names as they are in it

    @property
    def counts(self) -> bool:
        """Whether the number of rounds is known behind the loop only."""
        return self.loop.kind == "while" or self.loop.leaves is not None

    def before_loop(self, w: Lines) -> None:
        if self.counts:
            w.add(f"{self.trips} = 0")

    def before_round(self, w: Lines) -> None:
        self.keep(w)

    def after_round(self, w: Lines) -> None:
        if self.counts:
            w.add(f"{self.trips} += 1")

    def saves_half(self, undone: Collection[str], taped: Mapping[Suite, Collection[str]]) -> bool:
        """Whether at most half of the tape is left, where `undone` and `taped` are what is kept otherwise.

        Arrays of one size are compared with each other, as sizes are not known; numbers and arrays of known
        sizes count where there are no others.
        """
        f, body = self.f, self.loop.body
        written = written_by(f, body)
        whole = {
            array
            for array, stores in self.stores.items()
            if written.has_whole(array) and all(store.old in undone for store in stores)
        }
        if not self._is_short() or not whole.issuperset(self.arrays):
            return False
        numbers = [n for n in taped.get(body, ()) if not isinstance(f.makers[n], StoreElement)]
        now = Counter[tuple[str, ...]]({(): len(numbers)})
        then = Counter[tuple[str, ...]]({(): len(self.numbers)})
        for array in whole:
            size, elements = self._size(array, written)
            now[size] += elements
            then[size] += elements if array in self.arrays else 0
        sizes = [size for size in now if size] or [()]
        return all(2 * then[size] <= now[size] for size in sizes)

    def _size(self, array: str, written: Written) -> tuple[tuple[str, ...], int]:
        """The dimensions of an array that are no numbers, and the product of those that are."""
        names, elements = [], 1
        for d in range(self.f.arrays[array][0]):
            n = written.equal.first(dimension(self.f, array, d))
            if type(n) is int:
                elements *= n
            else:
                names.append(str(n))
        return tuple(sorted(names)), elements

    def _is_short(self) -> bool:
        """Whether a round has cheap steps only, and no loops but those that write an element in each round."""
        for _, item in walk(self.loop.body):
            if isinstance(item, Apply) and item.function not in CHEAP:
                return False
            if isinstance(item, Repeat) and not any(
                isinstance(store, StoreElement) and item.counter in store.index
                for block in inner_blocks(item)
                for _, store in walk(block)
            ):
                return False
        return True
