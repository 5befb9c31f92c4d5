"""The structured form back to Python source, with the user's lines as comments."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext

import numpy as np

from .. import config
from .ahead import ROUNDS, Ahead, function_name
from .in_turns import AT_ONCE, in_turns, may_overlap, may_take_turns
from .structure import (
    Apply,
    Atom,
    Branch,
    Demand,
    Load,
    Make,
    Procedure,
    Repeat,
    Statement,
    StoreElement,
    Suite,
    walk,
)
from .subscripts import never_negative
from .vocabulary import applied, text

ARRAY = "array"  # a new array, where only types are asked for
Handed = tuple[str, Atom, Atom, str]  # see `carries`
BACK = "# ----- back -----"  # where the way back begins in a function's text


class Lines:
    """Lines of source at a depth of indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.last_note = ""
        self._depth = 0

    def add(self, line: str) -> None:
        self.lines.append("    " * self._depth + line if line else "")

    @contextmanager
    def indented(self) -> Iterator[None]:
        self._depth += 1
        yield
        self._depth -= 1

    def extend(self, other: Lines) -> None:
        for line in other.lines:
            self.add(line)

    def insert(self, position: int, line: str) -> None:
        self.lines.insert(position, "    " * self._depth + line)

    def prepend(self, other: Lines) -> None:
        self.lines[:0] = ["    " * self._depth + line for line in other.lines]

    @property
    def has_code(self) -> bool:
        return any(not line.lstrip().startswith("#") for line in self.lines)


class ProcedureWriter:
    """Writes a function as it is; the way back adds to it by the methods that do nothing here."""

    def __init__(self, f: Procedure) -> None:
        self.f = f
        self._found_ahead: dict[Statement, str] = {}

    def place(self, array: str, index: list[Atom]) -> str:
        """An element. Numba asks of every index whether it is negative, unless its type says that it is not."""
        return f"{array}[{', '.join(self._index(i) for i in index)}]"

    def _index(self, i: Atom) -> str:
        return f"nat({i})" if isinstance(i, str) and self._is_natural(i) else text(i)

    def _is_natural(self, name: str) -> bool:
        return name in self._natural

    @functools.cached_property
    def _natural(self) -> set[str]:
        """The indices that are not negative, all at once: within parts the loops have other bounds."""
        items = (i for _, i in walk(self.f.body) if isinstance(i, (Load, StoreElement)))
        names = {a for i in items for a in i.index if isinstance(a, str)}
        return {a for a in names if never_negative(self.f, a)}

    def counts(self, loop: Repeat) -> bool:
        """Whether the rounds of a loop are counted."""
        return False

    def takes_turns(self, loop: Repeat) -> bool:
        """Whether rounds of a loop are written side by side."""
        return False

    def ahead(self, loop: Repeat) -> Ahead:
        """What a loop computes ahead of its rounds."""
        return Ahead(self.f, loop)

    def applied(self, item: Apply) -> str:
        """An application as a statement."""
        return applied(item)

    def assigned(self, name: str, a: Atom) -> str:
        """An atom as it is given to a name."""
        return text(a)

    def test(self, a: Atom) -> str:
        """An atom as a truth value."""
        return text(a)

    def chosen(self, item: Branch) -> str:
        """The test of a branch."""
        return self.test(item.condition)

    def may_overlap(self, loop: Repeat) -> list[tuple[str, str]]:
        """Arrays of whose memory it has to be seen that a loop does not write one and read the other."""
        return []

    def move(self, pairs: list[tuple[str, Atom]], w: Lines) -> None:
        """Hand on what a round leaves to the next."""
        moves(pairs, w, self.assigned)

    def test_of(self, loop: Repeat) -> str:
        """The test of a loop in its head; nothing if it is written at the beginning of a round."""
        return ""

    def before_store(self, item: StoreElement, w: Lines) -> None: ...
    def end_of_block(self, block: Suite, w: Lines) -> None: ...
    def before_loop(self, loop: Repeat, w: Lines) -> None: ...
    def after_loop(self, loop: Repeat, w: Lines) -> None: ...
    def before_round(self, loop: Repeat, w: Lines) -> None: ...
    def after_round(self, loop: Repeat, w: Lines) -> None: ...
    def before_error(self, w: Lines) -> None: ...

    def block(self, block: Suite, w: Lines) -> None:
        for item in block.items:
            if item.note and item.note != w.last_note:
                w.last_note = item.note
                w.add(f"# {item.note}")
            self.item(item, w)

    def item(self, item: Statement, w: Lines) -> None:
        match item:
            case Apply() if item in self._found_ahead:
                w.add(f"{item.dst} = {self._found_ahead[item]}")
            case Apply():
                w.add(self.applied(item))
            case Load():
                self.check(item, w)
                w.add(f"{item.dst} = {self.place(item.array, item.index)}")
            case StoreElement():
                self.check(item, w)
                self.before_store(item, w)
                w.add(
                    f"{self.place(item.array, item.index)} {'+=' if item.adds else '='} {text(item.value)}"
                )
            case Make():
                self.make(item, w)
            case Demand():
                w.add(f"if not {text(item.condition)}:")
                with w.indented():
                    self.before_error(w)
                    w.add(f"raise {item.error}({item.message!r})")
            case Branch():
                self.branch(item, w)
            case Repeat():
                self.loop(item, w)

    def check(self, item: Load | StoreElement, w: Lines) -> None:
        """With ADJIT_DEBUG=1, an error that names the user's line where an index is out of range."""
        if not config.DEBUG or not item.index:
            return
        sizes = [f"{item.array}.shape[{d}]" for d in range(len(item.index))]
        inside = [f"-{n} <= {text(a)} < {n}" for a, n in zip(item.index, sizes, strict=True)]
        message = f"{self.f.name}, {item.note}: an index of {item.array} is out of range"
        w.add(f"if not ({' and '.join(inside)}):")
        with w.indented():
            self.before_error(w)
            w.add(f"raise IndexError({message!r})")

    def make(self, item: Make, w: Lines) -> None:
        shape, kind = shape_text(item.shape), dtype_text(item.dtype)
        if item.fill is None:
            w.add(f"{item.dst} = np.empty({shape}, np.{kind})")
        elif is_zero(item.fill):
            w.add(f"{item.dst} = np.zeros({shape}, np.{kind})")
        else:
            w.add(f"{item.dst} = np.full({shape}, np.{kind}({text(item.fill)}))")

    def branch(self, item: Branch, w: Lines) -> None:
        w.add(f"if {self.chosen(item)}:")
        for k, (block, head) in enumerate([(item.then, ""), (item.orelse, "else:")]):
            inner = Lines()
            inner.last_note = item.note
            self.block(block, inner)
            self.end_of_block(block, inner)
            for result in item.results:
                inner.add(f"{result[0]} = {self.assigned(result[0], result[k + 1])}")
            if not inner.has_code:
                if head:
                    continue
                inner.add("pass")
            if head:
                w.add(head)
            with w.indented():
                w.extend(inner)
        w.last_note = ""

    def carries(self, loop: Repeat) -> list[Handed]:
        """(name inside, first, following, name behind) of what a loop hands on."""
        return [(c.inside, c.first, c.following, c.after) for c in loop.carried]

    def loop(self, item: Repeat, w: Lines) -> None:
        if self.takes_turns(item):
            self._loop_in_turns(item, w)
            return
        carries = self.carries(item)
        for inside, first, _, _ in carries:
            w.add(f"{inside} = {self.assigned(inside, first)}")
        counting = self.counts(item)
        self.before_loop(item, w)
        if counting:
            w.add(f"{item.trips} = 0")
        ahead = self.ahead(item)
        with (
            self._parts_of(item, ahead, w) if ahead.functions else nullcontext(range_text(item))
        ) as span:
            is_for = item.kind == "for"
            head = (
                f"for {item.counter} in range({span})"
                if is_for
                else f"while {self.test_of(item) or 'True'}"
            )
            self._write_rounds(item, f"{head}:", carries, w)
        w.last_note = ""
        self.after_loop(item, w)
        moves([(after, inside) for inside, _, _, after in carries], w, _as_it_is)

    def _write_rounds(self, item: Repeat, head: str, carries: Sequence[Handed], w: Lines) -> None:
        """A loop with its head and what its rounds hand on."""
        w.add(head)
        inner = Lines()
        inner.last_note = item.note
        if item.test is not None and item.condition is not None and not self.test_of(item):
            self.block(item.test, inner)
            if item.condition is not True:
                inner.add(f"if not {self.test(item.condition)}:")
                inner.add("    break")
        self.before_round(item, inner)
        self.block(item.body, inner)
        self.end_of_block(item.body, inner)
        self.move([(inside, following) for inside, _, following, _ in carries], inner)
        if self.counts(item):
            inner.add(f"{item.trips} += 1")
        self.after_round(item, inner)
        if item.leaves is not None and item.leaves is not False:
            inner.add(f"if {self.test(item.leaves)}:")
            inner.add("    break")
        if not inner.has_code:
            inner.add("pass")
        with w.indented():
            w.extend(inner)

    @contextmanager
    def _parts_of(self, item: Repeat, ahead: Ahead, w: Lines) -> Iterator[str]:
        """Around the rounds of a part of a loop, whose range is given: what is computed ahead of them."""
        names = (f"{item.trips}_{k}q" for k in itertools.count())
        first, end, size = next(names), next(names), str(ROUNDS)
        rooms: dict[Statement, str] = {step: next(names) for step in ahead.functions}
        for function in ahead.functions:
            w.add(f"{rooms[function]} = room_{self.f.types[function.dst]}()")
        if pairs := self.may_overlap(item):
            w.add(f"{(size := next(names))} = {ROUNDS}")
        for written, read in pairs:
            w.add(f"if overlap({written}, {read}):")
            w.add(f"    {size} = 1")
        w.add(f"for {first} in range({text(item.start)}, {text(item.stop)}, {size}):")
        with w.indented():
            w.add(f"{end} = min({first} + {size}, {text(item.stop)})")
            w.add(f"for {item.counter} in range({first}, {end}):")
            with w.indented():
                for step in ahead.steps:
                    if isinstance(step, Apply) and step in rooms:
                        self._found_ahead[step] = f"{rooms[step]}[{item.counter} - {first}]"
                        w.add(f"{step.dst} = {function_name(self.f, step)}({text(step.args[0])})")
                        w.add(f"{self._found_ahead[step]} = {step.dst}")
                    else:
                        self.item(step, w)
            yield f"{first}, {end}"

    def _loop_in_turns(self, item: Repeat, w: Lines) -> None:
        middle, body = f"{item.trips}_0q", Lines()
        body.last_note = item.note
        self.block(item.body, body)
        start, stop = text(item.start), text(item.stop)
        trips, before = (stop, "") if item.start == 0 else (f"{stop} - {start}", f"{start} + ")
        w.add(f"{middle} = {before}rounds({trips}) // {AT_ONCE} * {AT_ONCE}")
        for written, read in self.may_overlap(item):
            w.add(f"if overlap({written}, {read}):")
            w.add(f"    {middle} = {start}")
        w.add(f"for {item.counter} in range({start}, {middle}, {AT_ONCE}):")
        with w.indented():
            for line in in_turns(item, body.lines):
                w.add(line)
        w.add(f"for {item.counter} in range({middle}, {stop}):")
        with w.indented():
            w.extend(body)
        w.last_note = ""


def _as_it_is(name: str, a: Atom) -> str:
    """A name that is given to one of the same type."""
    return text(a)


def moves(pairs: list[tuple[str, Atom]], w: Lines, assigned: Callable[[str, Atom], str]) -> None:
    """Assign all at once, where a value is the target of another."""
    pairs = [(a, b) for a, b in pairs if a != b]
    targets = {a for a, _ in pairs}
    values = [assigned(a, b) for a, b in pairs]
    if any(b in targets for _, b in pairs):
        w.add(f"{', '.join(a for a, _ in pairs)} = {', '.join(values)}")
    else:
        for (a, _), value in zip(pairs, values, strict=True):
            w.add(f"{a} = {value}")


def range_text(loop: Repeat) -> str:
    if loop.step != 1:
        return f"{text(loop.start)}, {text(loop.stop)}, {loop.step}"
    return text(loop.stop) if loop.start == 0 else f"{text(loop.start)}, {text(loop.stop)}"


def add_copy(w: Lines, target: str, value: str, ndim: int, index: str) -> None:
    """Write an array into one of its shape; `{at}` in `value` is an element's index, of names with `index`.

    Of `target[:] = value` Numba compiles also the error about shapes, which takes longer than a kernel (1.7 s).
    """
    names = [f"{index}{d}" for d in range(ndim)]
    at = ", ".join(f"nat({name})" for name in names) or "()"
    with ExitStack() as depth:
        for d, name in enumerate(names):
            w.add(f"for {name} in range({target}.shape[{d}]):")
            depth.enter_context(w.indented())
        w.add(f"{target}[{at}] = {value.format(at=at)}")


def is_zero(fill: Atom | None) -> bool:
    """Whether what an array is filled with is no bit but zero: -0.0 has one."""
    return not isinstance(fill, str) and fill is not None and str(float(fill)) == "0.0"


def shape_text(shape: list[Atom]) -> str:
    return f"({', '.join(map(text, shape))}{',' if len(shape) == 1 else ''})"


def dtype_text(dtype: str) -> str:
    name = np.dtype(dtype).name
    return "bool_" if name == "bool" else name


def results_text(values: list[str], is_tuple: bool) -> str:
    if is_tuple:
        return f"({', '.join(values)}{',' if len(values) == 1 else ''})"
    return values[0] if values else "None"


class _Primal(ProcedureWriter):
    """Writes the function to be compiled, with other code for some loops."""

    def __init__(self, f: Procedure, instead: Mapping[Repeat, Callable[[Lines], None]]) -> None:
        super().__init__(f)
        self.instead = instead

    def loop(self, item: Repeat, w: Lines) -> None:
        if item in self.instead:
            self.instead[item](w)
        else:
            super().loop(item, w)

    def takes_turns(self, loop: Repeat) -> bool:
        return may_take_turns(self.f, loop)

    def may_overlap(self, loop: Repeat) -> list[tuple[str, str]]:
        return may_overlap(self.f, loop)


class PlainWriter(ProcedureWriter):
    """Writes for those who compile other code than Numba's of a CPU."""

    def ahead(self, loop: Repeat) -> Ahead:
        return Ahead(self.f, None)


class _Quiet(PlainWriter):
    """Leaves out what Numba's type inference has no use for."""

    def _is_natural(self, name: str) -> bool:
        return False

    def item(self, item: Statement, w: Lines) -> None:
        if not isinstance(item, Demand):
            super().item(item, w)

    def make(self, item: Make, w: Lines) -> None:
        w.add(f"{item.dst} = {ARRAY}({shape_text(item.shape)}, np.{dtype_text(item.dtype)})")

    def check(self, item: Load | StoreElement, w: Lines) -> None:
        """Nothing."""


def primal_source(
    f: Procedure,
    name: str,
    *,
    errors: bool = True,
    instead: Mapping[Repeat, Callable[[Lines], None]] | None = None,
) -> str:
    """The function as it was read; arguments are written in place. `instead` writes other code for loops."""
    writer = _Primal(f, instead or {}) if errors else _Quiet(f)
    w = Lines()
    w.add(f"def {name}({', '.join(f.params)}):")
    with w.indented():
        writer.block(f.body, w)
        w.add(f"return {results_text([text(v) for v in f.returns], f.returns_tuple)}")
    return "\n".join(w.lines) + "\n"
