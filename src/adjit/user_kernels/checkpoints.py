"""Loops that run again on the way back, part by part, from what was kept at the start of each part.

Part j has j + 1 rounds: n rounds, whose number need not be known before, are about √(2n) parts of at most so
many rounds. What is kept is the state of the loop √(2n) times, and on the tape one part at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from .refusal import NotDifferentiable
from .structure import Load, Procedure, Repeat, StoreElement, Suite, walk
from .undo import may_read_before
from .writing import Lines, ProcedureWriter, add_copy
from .written_first import written_first

_SIZES = {"f8": 8, "f4": 4, "i8": 8, "b1": 1}


def outer_loops(block: Suite) -> Iterator[Repeat]:
    """The loops of a block that are in no other one."""
    for item in block.items:
        if isinstance(item, Repeat):
            yield item
        else:
            for inner in (getattr(item, side, None) for side in ("then", "orelse")):
                if inner is not None:
                    yield from outer_loops(inner)


class Parts:
    """How one loop runs part by part. Its rounds in all are `T_s` of its `trips` T, its parts `T_c`; on the
    way back `T_d` is a part, `T_e` its first round."""

    what = "checkpoint= of a loop"
    when = "the starts of its parts, about √(2n) times for n rounds"
    at_start = "_p"  # ends the names of what was handed on to the first round of a part

    def __init__(self, f: Procedure, loop: Repeat) -> None:
        self.f, self.loop, self.trips = f, loop, loop.trips
        stores = [i for _, i in walk(loop.body) if isinstance(i, StoreElement)]
        self.stores = {s.array: [t for t in stores if t.array == s.array] for s in stores}
        self.loads = [i for _, i in walk(loop.body) if isinstance(i, Load)]
        self.written_first = written_first(f, loop)
        self.arrays: list[str] = []  # that are kept
        self.numbers = [c.inside for c in loop.carried]
        inside = [c for _, i in walk(loop.body) if isinstance(i, Repeat) for c in i.carried]
        swaps = [c for c in inside if c.is_array and c.following != c.inside]
        if swaps or any(c.is_array for c in loop.carried):
            self.refuse("whose arrays change places", "copy elements into one array")
        for name in self.stores:
            if f.arrays[name][1] not in _SIZES:
                self.refuse(
                    f"that writes into an array of dtype {f.arrays[name][1]}",
                    "use float64, float32, int64 or bool",
                )

    def refuse(self, what: str, instead: str) -> NoReturn:
        """Refuse the loop."""
        raise NotDifferentiable(
            f"{self.f.heading}: {self.what} {what} cannot be differentiated\n    {self.loop.note}\n"
            f"{instead[0].upper()}{instead[1:]}."
        )

    def choose(self, undone: Iterable[str]) -> None:
        """Decide which arrays are kept: where a round, run again on what later ones have left, would read
        something else, or put back something else."""
        undone = set(undone)
        self.arrays = [
            name
            for name, stores in self.stores.items()
            if name not in self.written_first
            and any(
                s.adds
                or s.old in undone
                or any(
                    may_read_before(self.f, load, s)
                    for load in self.loads
                    if self.f.root(load.array) == self.f.root(name)
                )
                for s in stores
            )
        ]

    # ----- forward -----

    def before_loop(self, w: Lines) -> None:
        w.add(f"{self.trips}_s = {self.trips}_c = 0")

    def before_round(self, w: Lines) -> None:
        t = self.trips
        w.add(f"if {t}_s == {t}_c * ({t}_c + 1) // 2:  # a part of {t}_c + 1 rounds begins")
        with w.indented():
            w.add(f"{t}_c += 1")
            self.keep(w)

    def after_round(self, w: Lines) -> None:
        w.add(f"{self.trips}_s += 1")

    def keep(self, w: Lines) -> None:
        """Code that puts the state at the start of a round on the tape."""
        t = self.trips
        if self.numbers:
            w.add(f"{t}_p = reserve(tape, {8 * len(self.numbers)})")
        for k, name in enumerate(self.numbers):
            w.add(f"at_{self.f.types[name]}({t}_p + {8 * k})[0] = {name}")
        self.keep_arrays(w)

    def keep_arrays(self, w: Lines) -> None:
        for k, name in enumerate(self.arrays):
            w.add(f"{self.trips}_p = reserve(tape, {self._bytes(name)})")
            kept = self._add_kept(k, name, w)
            add_copy(w, kept, f"{name}[{{at}}]", self.f.arrays[name][0], f"{kept}_")

    def _add_kept(self, k: int, name: str, w: Lines) -> str:
        """A name for the copy of the k-th array, on top of the tape."""
        kept = f"{self.trips}_{k}a"
        w.add(f"{kept} = array_{self.f.arrays[name][1]}({self.trips}_p, {name}.shape)")
        return kept

    def _bytes(self, name: str) -> str:
        return f"{name}.size * {_SIZES[self.f.arrays[name][1]]}"

    # ----- back -----

    @contextmanager
    def one(self) -> Iterator[None]:
        """The loop as one part of it: a `for` of so many rounds, from the numbers that were kept."""
        loop = self.loop
        before = {name: getattr(loop, name) for name in vars(loop)}
        ends = [(c.first, c.after) for c in loop.carried]
        loop.kind, loop.leaves, loop.test, loop.condition = "for", None, None, None
        loop.counter = loop.counter or f"{self.trips}_i_k"
        loop.start, loop.stop = f"{self.trips}_start_k", f"{self.trips}_stop_k"
        for c in loop.carried:
            c.first, c.after = f"{c.inside}{self.at_start}", c.inside
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(loop, name, value)
            for c, (first, after) in zip(loop.carried, ends, strict=True):
                c.first, c.after = first, after

    def begin(self, start: str, step: int, w: Lines) -> None:
        """Code at the start of a part: its bounds, and the state that was kept."""
        t = self.trips
        w.add(f"{t}_e = {t}_d * ({t}_d + 1) // 2")
        shift = f"{t}_e" if step == 1 else f"{t}_e * {step}" if step > 0 else f"{t}_e * ({step})"
        w.add(f"{t}_start_k = {shift if start == '0' else f'{start} + {shift}'}")
        rounds = f"min({t}_s - {t}_e, {t}_d + 1)"
        w.add(f"{t}_stop_k = {t}_start_k + {rounds if step == 1 else f'{rounds} * ({step})'}")
        self.restore(w)

    def restore(self, w: Lines) -> None:
        """Code that takes the state at the start of a round from the tape."""
        t = self.trips
        self.restore_arrays(w)
        if self.numbers:
            w.add(f"{t}_p = release(tape, {8 * len(self.numbers)})")
        for k, name in enumerate(self.numbers):
            kind = self.f.types[name]
            as_bool = " != 0" if kind == "b1" else ""
            w.add(f"{name}{self.at_start} = at_{kind}({t}_p + {8 * k})[0]{as_bool}")

    def restore_arrays(self, w: Lines) -> None:
        for k, name in reversed(list(enumerate(self.arrays))):
            ndim, kind = self.f.arrays[name]
            w.add(f"{self.trips}_p = release(tape, {self._bytes(name)})")
            kept = self._add_kept(k, name, w)
            as_bool = " != 0" if kind == "b1" else ""
            add_copy(w, name, f"{kept}[{{at}}]{as_bool}", ndim, f"{kept}_")


class FirstRun(ProcedureWriter):
    """Writes a loop as it is, with what is kept at the start of each part."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts.f)
        self.parts = parts

    def before_loop(self, loop: Repeat, w: Lines) -> None:
        if loop is self.parts.loop:
            self.parts.before_loop(w)

    def before_round(self, loop: Repeat, w: Lines) -> None:
        if loop is self.parts.loop:
            self.parts.before_round(w)

    def after_round(self, loop: Repeat, w: Lines) -> None:
        if loop is self.parts.loop:
            self.parts.after_round(w)

    def before_error(self, w: Lines) -> None:
        w.add("close_tape(tape)")
