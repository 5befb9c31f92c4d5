"""Where values of a round of a loop go on the tape.

An innermost `for` that runs to its end reserves *windows*: one array for each value, a round each. A loop
of unknown length without loops that use the tape inside keeps the top of the tape in a variable. All
others push a group of values in each round.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from .structure import Branch, Procedure, Repeat, StoreElement, Suite, blocks_of, walk
from .vocabulary import text
from .writing import Lines

WORD = 8


class TapeLayout:
    """The values of each block that are on the tape, and the code that puts them there and takes them back."""

    def __init__(self, f: Procedure) -> None:
        self.f = f
        self.taped: dict[Suite, dict[str, None]] = {}
        # Of the sweep before: loops that come later in the way back are not known yet in this one.
        self.known: dict[Suite, dict[str, None]] = {}

    def keep(self, block: Suite, name: str) -> None:
        self.taped.setdefault(block, {})[name] = None

    def is_kept(self, block: Suite, name: str) -> bool:
        return name in self.taped.get(block, {})

    def kind(self, name: str) -> str:
        """The type of a value: that of a number, or of an element that was overwritten."""
        item = self.f.makers[name]
        if isinstance(item, StoreElement):
            dtype = self.f.arrays[item.array][1]
            return dtype if dtype in ("f8", "f4") else "b1" if dtype == "b1" else "i8"
        if isinstance(item, Repeat) and item.trips == name:
            return "i8"
        return self.f.types[name]

    # ----- which way -----

    def _loop_of(self, block: Suite) -> Repeat | None:
        """The loop around a block, if no loop inside of it uses the tape."""
        around: Suite | None = block
        while around is not None and around.kind == "branch":
            around = around.parent
        if around is None or around.kind != "loop" or not isinstance(around.owner, Repeat):
            return None
        for _, item in walk(around):
            if isinstance(item, Repeat) and any(self.known.get(b) for b in blocks_of(item)):
                return None
        return around.owner

    def window_loop(self, block: Suite) -> Repeat | None:
        loop = self._loop_of(block)
        return loop if loop is not None and loop.kind == "for" and loop.leaves is None else None

    def _running_loop(self, block: Suite) -> Repeat | None:
        loop = self._loop_of(block)
        return None if loop is None or self.window_loop(block) is not None else loop

    def runs(self, loop: Repeat) -> bool:
        """Whether a loop keeps the top of the tape in a variable."""
        return self._running_loop(loop.body) is loop and any(
            self.taped.get(b) for b in blocks_of(loop) if b.kind != "test"
        )

    # ----- windows -----

    def _windowed(self, loop: Repeat) -> list[str]:
        return [n for b in blocks_of(loop) for n in self.taped.get(b, {})]

    def has_windows(self, loop: Repeat) -> bool:
        return self.window_loop(loop.body) is loop and bool(self._windowed(loop))

    def windows(self, loop: Repeat, w: Lines, how: str) -> None:
        """Code that reserves or releases the windows of a loop; the widest values first, so that all are
        aligned."""
        sizes = {n: np.dtype(self.kind(n)).itemsize for n in self._windowed(loop)}
        w.add(f"{loop.trips}_p = {how}(tape, {loop.trips} * {sum(sizes.values())})")
        done = 0
        for n in sorted(sizes, key=lambda n: -sizes[n]):
            shift = f" + {loop.trips} * {done}" if done else ""
            w.add(f"{loop.trips}_{n}_w = at_{self.kind(n)}({loop.trips}_p{shift})")
            done += sizes[n]

    def window_names(self, run_again: Collection[Repeat]) -> list[str]:
        """The arrays of windows that are made once: not of loops in those that run again."""
        used_again = {item for loop in run_again for _, item in walk(loop.body)}
        loops = [
            item
            for _, item in walk(self.f.body)
            if isinstance(item, Repeat) and item not in used_again
        ]
        return [
            f"{loop.trips}_{n}_w"
            for loop in loops
            if self.has_windows(loop)
            for n in self._windowed(loop)
        ]

    # ----- code -----

    def push(self, block: Suite, w: Lines) -> None:
        """Code at the end of a block that puts its values on the tape."""
        names = list(self.taped.get(block, {}))
        loop = self.window_loop(block)
        if loop is not None:
            for n in names:
                w.add(f"{loop.trips}_{n}_w[{_round_of_counter(loop)}] = {n}")
            return
        if not names:
            return
        size, running = WORD * len(names), self._running_loop(block)
        if running is None:
            top = f"{self._name(block)}_p"
            w.add(f"{top} = reserve(tape, {size})")
        else:
            top = f"{running.trips}_p"
            w.add(f"if {top} + {size} > {running.trips}_e:")
            w.add(f"    {top}, {running.trips}_e = tape_more(tape, {top}, {size})")
        for k, n in enumerate(names):
            w.add(f"at_{self.kind(n)}({top}{f' + {WORD * k}' if k else ''})[0] = {n}")
        if running is not None:
            w.add(f"{top} += {size}")

    def pop(self, block: Suite) -> Lines:
        """Code at the start of a block's way back that takes its values from the tape."""
        head, names, loop = Lines(), list(self.taped.get(block, {})), self.window_loop(block)
        if not names:
            return head
        if loop is not None:
            for n in names:
                head.add(f"{n} = {loop.trips}_{n}_w[{loop.trips}_k]{self._as_bool(n)}")
            return head
        size, running = WORD * len(names), self._running_loop(block)
        if running is None:
            top = f"{self._name(block)}_p"
            head.add(f"{top} = release(tape, {size})")
        else:
            top = f"{running.trips}_p"
            head.add(f"if {top} == {running.trips}_e:")
            head.add(f"    {top}, {running.trips}_e = tape_less(tape)")
            head.add(f"{top} -= {size}")
        for k, n in enumerate(names):
            shift = f" + {WORD * k}" if k else ""
            head.add(f"{n} = at_{self.kind(n)}({top}{shift})[0]{self._as_bool(n)}")
        return head

    def _as_bool(self, name: str) -> str:
        return " != 0" if self.kind(name) == "b1" else ""

    def _name(self, block: Suite) -> str:
        if isinstance(block.owner, Repeat):
            return block.owner.trips
        assert isinstance(block.owner, Branch)
        parent, side = block.parent, "then" if block.owner.then is block else "else"
        number = parent.items.index(block.owner) if parent is not None else 0
        return (
            f"{self._name(parent) if parent is not None and parent.owner else 'top'}_{side}{number}"
        )


def trips_text(loop: Repeat) -> str:
    """The number of rounds of a `for` that runs to its end."""
    start, stop, step = loop.start, loop.stop, loop.step
    if step == 1:
        return f"rounds({text(stop)}{'' if type(start) is int and start == 0 else f' - {text(start)}'})"
    if step == -1:
        return f"rounds({text(start)} - {text(stop)})"
    return f"rounds(({text(stop)} - {text(start)} + {step + (-1 if step > 0 else 1)}) // ({step}))"


def _round_of_counter(loop: Repeat) -> str:
    if loop.step == -1:
        return f"{text(loop.start)} - {loop.counter}"
    shifted = loop.counter
    if not (type(loop.start) is int and loop.start == 0):
        shifted = f"{loop.counter} - {text(loop.start)}"
    return shifted if loop.step == 1 else f"({shifted}) // ({loop.step})"
