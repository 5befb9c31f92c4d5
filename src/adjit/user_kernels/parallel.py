"""Loops by `prange`: their rounds in blocks, which threads share; the way back runs each round again.

There are at most `BLOCKS` blocks, whatever the number of threads is: what rounds add to one place (sums,
adjoints of what all read) is added up in each block, then over blocks in order, so that bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .checkpoints import Parts
from .refusal import NotDifferentiable
from .structure import (
    Apply,
    Atom,
    Branch,
    Carried,
    Demand,
    Load,
    Procedure,
    Repeat,
    Statement,
    StoreElement,
    Suite,
    names_read,
    walk,
)
from .tape_layout import trips_text
from .undo import own_offset
from .vocabulary import CHEAP, call, text
from .writing import Lines, ProcedureWriter

BLOCKS = 16
# Nanoseconds, about: loops of less are run by the calling thread. Waking others takes as long, and where
# another program has their core, they come a slice of the scheduler's later, which is 8 ms.
LITTLE = 10_000
_OF_SIZES = {"+", "-", "*", "max", "min"}


def parallel_loops(f: Procedure) -> dict[Repeat, Rounds]:
    """The loops by `prange`.

    Raises:
        NotDifferentiable: if it cannot be shown that no two rounds write one place.
    """
    return {i: Rounds(f, i) for _, i in walk(f.body) if isinstance(i, Repeat) and i.is_parallel}


def not_apart(f: Procedure) -> set[str]:
    """The lines of loops by `prange` that are `range` after all, since their rounds are not apart."""
    found: set[str] = set()
    for _, item in walk(f.body):
        if isinstance(item, Repeat) and item.is_parallel and item.is_optional:
            try:
                Rounds(f, item)
            except NotDifferentiable:
                found.add(item.note)
    return found


class Rounds(Parts):
    """How a loop runs in blocks. Of its `trips` T, `T_c` are the blocks, `T_s` the sums of each."""

    what = "a prange"

    def __init__(self, f: Procedure, loop: Repeat) -> None:
        super().__init__(f, loop)
        self.numbers = []
        self.sums = loop.carried
        demands = (i for _, i in walk(loop.body) if isinstance(i, Demand))
        self.errors = list(dict.fromkeys((i.error, i.message) for i in demands))
        self.names = names_read(loop)
        if loop.leaves is not None:
            self.refuse("that is left by break or return", "use range")
        for c in loop.carried:
            if not self._is_sum(c):
                instead = "add to it by += of a float, or write elements of an array"
                self.refuse(f"whose rounds hand on `{c.inside}`", instead)
        self.shared: list[str] = []  # arrays that several rounds may read
        accesses = [i for _, i in walk(loop.body) if isinstance(i, (Load, StoreElement))]
        for name in dict.fromkeys(i.array for i in accesses):
            root = f.root(name)
            found = [i for i in accesses if f.root(i.array) == root]
            if own_offset(f, loop, found) is not None:
                continue
            if any(isinstance(i, StoreElement) for i in found):
                self.refuse(
                    f"in which several rounds may reach the same elements of `{name}`",
                    f"write and read it only at `[{loop.counter}]`, or use range",
                )
            self.shared.append(name)

    def _is_sum(self, c: Carried) -> bool:
        """Whether a number only has something added to it."""
        if self.f.types.get(c.inside) != "f8":
            return False
        sums, before = {c.inside}, 0
        inner = [c]
        while before != len(sums):
            before = len(sums)
            for _, item in walk(self.loop.body):
                match item:
                    case Apply(dst, "+", [a, b]) if (a in sums) != (b in sums):
                        sums.add(dst)
                    case Apply(dst, "-", [a, b]) if a in sums and b not in sums:
                        sums.add(dst)
                    case Branch():
                        sums |= {d for d, a, b in item.results if a in sums and b in sums}
                    case Repeat():
                        for x in item.carried:
                            if x.first in sums and x.inside not in sums:
                                inner.append(x)
                                sums |= {x.inside, x.after}
        ends = all(x.following in sums for x in inner)
        return ends and not self._is_read(sums, inner)

    def _is_read(self, sums: set[str], inner: Sequence[Carried]) -> bool:
        """Whether anything else is done with a number that is being added up."""
        for _, item in walk(self.loop.body):
            match item:
                case Apply() if item.dst not in sums:
                    found: list[Atom | None] = list(item.args)
                case Branch():
                    found = [item.condition]
                    found += [v for d, *both in item.results if d not in sums for v in both]
                case Repeat():
                    found = [item.start, item.stop, item.condition, item.leaves]
                    others = [c for c in item.carried if c not in inner]
                    found += [v for c in others for v in (c.first, c.following)]
                case Load():
                    found = list(item.index)
                case StoreElement():
                    found = [*item.index, item.value]
                case Demand():
                    found = [item.condition]
                case _:
                    found = []
            if any(v in sums for v in found):
                return True
        return False

    # ----- how long it takes -----

    def work(self) -> str | None:
        """An expression of about how many nanoseconds a round takes; None where sizes do not say it."""
        first = self._size(self.loop.start, {})
        stop = None if first is None else f"({first} + {self.trips})"
        return self._work(self.loop.body, {self.loop.counter: stop})

    def _work(self, block: Suite, counters: dict[str, str | None]) -> str | None:
        steps = 0
        inner: list[str | None] = []
        for item in block.items:
            if isinstance(item, Branch):
                inner += [self._work(side, counters) for side in (item.then, item.orelse)]
            elif isinstance(item, Repeat):
                inner.append(self._work_of_loop(item, counters))
            else:
                is_long = isinstance(item, Apply) and item.function not in CHEAP
                steps += 10 if is_long else 1
        known = [x for x in inner if x is not None]
        return " + ".join([str(steps), *known]) if len(known) == len(inner) else None

    def _work_of_loop(self, loop: Repeat, counters: dict[str, str | None]) -> str | None:
        bounds = [self._size(a, counters) for a in (loop.start, loop.stop)]
        least, most = bounds if loop.step > 0 else bounds[::-1]
        inner = self._work(loop.body, counters | {loop.counter: most})
        if loop.kind == "while" or inner is None or least is None or most is None:
            return None
        return f"max({most} - {least}, 0) * ({inner})"

    def _size(self, a: Atom, counters: dict[str, str | None]) -> str | None:
        """A whole number of a round by what is known before the loop, a counter by the end of its range."""
        if not isinstance(a, str):
            return text(a) if type(a) is int else None
        if a in counters:
            return counters[a]
        if a in self.names:
            return a if self.f.types.get(a) == "i8" else None
        item = self.f.makers.get(a)
        if not isinstance(item, Apply):
            return None
        if item.function == "shape":
            return f"{item.args[0]}.shape[{item.args[1]}]" if item.args[0] in self.names else None
        divides = item.function == "//" and type(item.args[1]) is int and item.args[1] > 0
        if not divides and item.function not in _OF_SIZES:
            return None
        sizes = [self._size(x, counters) for x in item.args]
        known: list[Atom] = [x for x in sizes if x is not None]
        return f"({call(item.function, known)})" if len(known) == len(sizes) else None

    # ----- forward -----

    def functions(self) -> list[str]:
        """The rounds of a block, and what runs all blocks."""
        t, w, plain = self.trips, Lines(), _BlockWriter(self)
        w.add(f"def {t}_rounds({t}_start_k, {t}_stop_k, {t}_s, {', '.join(self.names)}):")
        with w.indented():
            for c in self.sums:
                w.add(f"{c.inside} = 0.0")
            w.add(self.header())
            inner = Lines()
            plain.block(self.loop.body, inner)
            for c in self.sums:
                inner.add(f"{c.inside} = {text(c.following)}")
            with w.indented():
                w.extend(inner)
            for k, c in enumerate(self.sums):
                w.add(f"{t}_s[{k}] = {c.inside}")
        return ["\n".join(w.lines) + "\n", self.over_blocks("rounds", self.names, [])]

    def header(self) -> str:
        t, step = self.trips, self.loop.step
        by = "" if step == 1 else f", {step}"
        return f"for {self.loop.counter} in range({t}_start_k, {t}_stop_k{by}):"

    def over_blocks(self, name: str, given: Sequence[str], rows: Sequence[str]) -> str:
        """The text of a function that runs a function of one block for all; of `rows` each has its own."""
        t, step = self.trips, self.loop.step
        args = [f"{t}_s", *given, *rows]
        own = [f"{t}_s[{t}_k]", *given, *[f"{r}[{t}_k]" for r in rows]]
        by = "" if step == 1 else f" * ({step})"
        is_asked = self.work() is not None
        before = (
            f"    {t}_threads_w = threads_used()\n"
            f"    if {t}_work_w < {LITTLE}:\n"
            "        use_threads(1)\n"
        )
        return (
            "@parallel\n"
            f"def {t}_all_{name}({f'{t}_work_w, ' * is_asked}{t}_d, {t}, {t}_c, {', '.join(args)}):\n"
            f"{before * is_asked}"
            f"    for {t}_e in prange({t}_c):\n"
            f"        {t}_k = int64({t}_e)\n"
            f"        {t}_start_k = {t}_d + {t} * {t}_k // {t}_c{by}\n"
            f"        {t}_stop_k = {t}_d + {t} * ({t}_k + 1) // {t}_c{by}\n"
            f"        {t}_{name}({t}_start_k, {t}_stop_k, {', '.join(own)})\n"
            f"{f'    use_threads({t}_threads_w)' * is_asked}\n"
        )

    def begin_blocks(self, count: int, w: Lines) -> None:
        """Code before a call: the numbers of rounds and blocks, memory for so many sums."""
        t = self.trips
        w.add(f"{t} = {trips_text(self.loop)}")
        w.add(f"{t}_c = min({t}, {BLOCKS})")
        w.add(f"{t}_s = np.zeros(({t}_c, {max(count, 1)}))")

    def call(self, name: str, args: Sequence[str], w: Lines) -> None:
        t = self.trips
        given = [text(self.loop.start), t, f"{t}_c", f"{t}_s", *args]
        if work := self.work():
            given[:0] = [f"{t} * ({work})"]
        w.add(f"{t}_all_{name}({', '.join(given)})")

    def add_up(self, sums: Sequence[tuple[str, str]], w: Lines) -> None:
        """Code that adds what each block has to a place, in the order of blocks."""
        if sums:
            w.add(f"for {self.trips}_k in range({self.trips}_c):")
        for target, source in sums:
            w.add(f"    {target} += {source}")

    def fail(self, item: Demand, w: Lines) -> None:
        """Code that ends a block by an error, which is raised behind the loop."""
        code = self.errors.index((item.error, item.message)) + 1
        w.add(f"{self.trips}_s[{len(self.sums)}] = {code}")
        w.add("return")

    def raise_first(self, before_error: Callable[[Lines], None], w: Lines) -> None:
        """Code that raises the error of the first block that has one."""
        if self.errors:
            w.add(f"for {self.trips}_k in range({self.trips}_c):")
        for code, (error, message) in enumerate(self.errors, 1):
            w.add(f"    if {self.trips}_s[{self.trips}_k, {len(self.sums)}] == {code}:")
            with w.indented(), w.indented():
                before_error(w)
                w.add(f"raise {error}({message!r})")

    def run(self, w: Lines) -> None:
        """Code in the place of the loop."""
        self.run_or_raise(w, lambda w: None)

    def run_or_raise(self, w: Lines, before_error: Callable[[Lines], None]) -> None:
        """The same, with code before an error is raised."""
        self.begin_blocks(len(self.sums) + bool(self.errors), w)
        self.call("rounds", self.names, w)
        self.raise_first(before_error, w)
        for c in self.sums:
            w.add(f"{c.after} = {text(c.first)}")
        of_block = [f"{self.trips}_s[{self.trips}_k, {k}]" for k in range(len(self.sums))]
        self.add_up(list(zip([c.after for c in self.sums], of_block, strict=True)), w)


class _BlockWriter(ProcedureWriter):
    """Writes the rounds of a block, which threads cannot raise an error from."""

    def __init__(self, rounds: Rounds) -> None:
        super().__init__(rounds.f)
        self.rounds = rounds

    def item(self, item: Statement, w: Lines) -> None:
        if not isinstance(item, Demand):
            super().item(item, w)
            return
        w.add(f"if not {text(item.condition)}:")
        with w.indented():
            self.rounds.fail(item, w)
