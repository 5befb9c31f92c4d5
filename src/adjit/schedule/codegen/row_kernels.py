"""Kernels of row_groups: row by row, in as many loops over a row as sums of it wait for each other.

    def rows_mul_sum_mul_2(args, start, stop):
        ...
        for row in range(start, stop):
            here = row * count
            for j in range(count):
                x0 = p_x0[here + j]
                v0 = float32(x0 * x0)
                keep_v0[j] = v0
            v1 = reduce_span(add, keep_v0, 0, count, float32(0), float32)
            for j in range(count):
                x0 = p_x0[here + j]
                v2 = float32(x0 * v1)
                keep_v2[j] = v2
            for j in range(count):
                p_v2[here + j] = keep_v2[j]

Values that another loop, a sum or the memory needs are kept on the stack, so that no loop has to
tell many operands apart. Sums are taken by the functions of the unfused kernels.

The lanes of eight short rows are folded at once. Their loops then come one after the other, up to the next sum,
and what there is one of for a row waits for the loops behind that:

        for first in range(start, stop, ROWS):
            rows = min(ROWS, stop - first)
            for k in range(rows):
                ...
                    keep_v0[slot + j] = v0
            reduce_rows_of_block(add, keep_v0, each_v1, rows, count, float32)
            for k in range(rows):
                v1 = each_v1[k]
                ...

Where columns are summed too, a unit is a part of the rows or of their columns, and its rows go one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...kernels.language.lanes import LANES
from ..fusion import row_groups as row_groups
from ..fusion.row_groups import RowGroup
from ..planning.recipe import GRAIN, Operand, Reduction, RowCall, Source, Step, Text
from .body import VECTOR_MATH
from .fused import GroupMember, is_short, member_lines, number_lines, shared
from .loops import assemble, is_named

# Words that say which part of the rows and of the columns a unit is, and those of a kernel whose unit is a row;
# where in them is how many elements of a row a unit holds.
PARTS, STRIP_AT = ("length", "width", "step", "chunks", "strip", "strips"), 4
ROW, COUNT_AT = ("count",), 0
STRIP = 64  # columns: sums that need no whole rows are cut into multiples of it
# Pairs of pointers of which one is written, and which a loop has to tell apart before each row.
# Loops with more of them write to the stack, and copy from there.
MAX_PAIRS = 12

SUMS = {
    "sum": "reduce_span(add, {x}, {i}, {i} + count, {X}(0), {T})",
    "max": "reduce_span(max, {x}, {i}, {i} + count, {x}[{i}], {T})",
    "min": "reduce_span(min, {x}, {i}, {i} + count, {x}[{i}], {T})",
    "squares": "dot_span({x}, {i}, {x}, {i}, count, {T})",
}
TOGETHER = {
    "sum": "reduce_rows_of_block(add, {x}, {out}, rows, count, {T})",
    "max": "reduce_rows_of_block(max, {x}, {out}, rows, count, {T})",
    "min": "reduce_rows_of_block(min, {x}, {out}, rows, count, {T})",
    "squares": "square_rows_of_block({x}, {out}, rows, count, {T})",
}


def _function(name: str, stored: str) -> str | None:
    """The library's own function of that name for a dtype; its module takes 10 ms to import."""
    from ...kernels.math.vector import TABLE

    return TABLE.get((name, stored))


class RowSum(NamedTuple):
    """A sum of the rows or of the columns of a value."""

    value: str
    target: str
    fold: Reduction


class RowFunction(NamedTuple):
    """A kernel of rows: values, then Python numbers, by their names here."""

    call: RowCall
    arguments: tuple[str, ...]
    targets: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.call.row.function.__name__

    @property
    def values(self) -> tuple[str, ...]:
        return self.arguments[: len(self.call.row.inputs)]

    @property
    def whole(self) -> tuple[str, ...]:
        """The results with an element for each of a row's."""
        letters = self.call.row.outputs
        return tuple(t for t, letter in zip(self.targets, letters, strict=True) if letter == "e")

    @property
    def scalars(self) -> list[str]:
        """The scalar functions that it is given."""
        kind = self.call.kind.stored
        return [_function(name, kind) or f"math.{name}" for name in self.call.row.scalars]

    @property
    def has_short(self) -> bool:
        """Whether there is a function of eight short rows, which takes no words and no numbers."""
        is_plain = len(self.call.words) == 1 and self.arguments == self.values
        return self.call.row.short is not None and is_plain

    def text_of_short(self, pointers: Mapping[str, str]) -> list[str]:
        """The lines that call that, and the function itself for the rows that are left."""
        row, kind = self.call.row, self.call.kind.stored
        assert row.short is not None
        given = ["None", *self.scalars, *(pointers[name] for name in (*self.values, *self.whole))]
        called = f"{row.short.__name__}({', '.join(given)}, 0, rows, count, {kind})"
        places = {name: (pointer, "k * count") for name, pointer in pointers.items()}
        return [f"for k in range({called}, rows):", f"    {self.text(places, ())}"]

    def text(self, places: Mapping[str, tuple[str, str]], words: Sequence[str]) -> str:
        """The line that calls it; `places` are pointers and indices of values."""
        row, kind = self.call.row, self.call.kind.stored
        given = self.scalars
        for name, letter in zip(self.values, row.inputs, strict=True):
            given += places[name][: 2 if letter == "e" else 1]
        for name in self.whole:
            given += places[name]
        numbers = self.arguments[len(self.values) :]
        called = f"{self.name}({', '.join([*given, 'count', *words, *numbers, kind])})"
        found = [t for t in self.targets if t not in self.whole]
        return f"{', '.join(found)} = {called}" if found else called


Part = GroupMember | RowSum | RowFunction


def kernel(
    parts: Sequence[Part],
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    row_group: RowGroup,
    over: Mapping[str, str],
    limits: row_groups.Limits,
) -> tuple[Step, tuple[int, ...]]:
    """The step, and its constant words, that computes the parts row by row.

    `inputs` are first the values that are read, then the Python numbers. The strides of operands
    are those from row to row and from column to column. `outputs` leaves out the sums of columns,
    whose places follow those of the outputs.
    """
    names = [part.fold.how if isinstance(part, RowSum) else part.name for part in parts]
    name = "_".join(["rows", *list(dict.fromkeys(names))[:4], str(len(parts))])
    folds = [part.fold for part in parts if isinstance(part, RowSum)]
    columns = [fold for fold in folds if not fold.by_rows]
    writer = _Writer(parts, inputs, outputs, row_group, over, not columns, limits.room is None)
    text = writer.text(name)
    words: tuple[int, ...] = (row_group.width,)
    units, held = row_group.rows, row_group.width
    if columns:
        length, _, step, chunks = columns[0].words[:4]
        parallel = row_group.rows // length * chunks
        is_whole = columns != folds or any(isinstance(part, RowFunction) for part in parts)
        strip = row_group.width if is_whole else strip_of(row_group, parallel, limits.parts)
        strips = -(-row_group.width // strip)
        words = (length, row_group.width, step, chunks, strip, strips)
        units, held = parallel * strips, step * strip
    source = Source(name, text, Text(STRIP_AT if columns else COUNT_AT))
    source = shared(source, f"fused {', '.join(names)}")
    return Step(source, units, GRAIN // max(held, 1)), (*words, *writer.words)


def strip_of(row_group: RowGroup, parts: int, least: int) -> int:
    """The columns that one unit sums where nothing needs a whole row, so that `parts` of the rows
    make at least so many units."""
    wanted = 1 if row_group.numel <= row_groups.SMALL else -(-least // parts)
    strip = -(-row_group.width // (wanted * STRIP)) * STRIP
    return min(strip, row_group.width, row_groups.MAX_WIDTH)


class Phase(NamedTuple):
    """What is done to eight rows at once, and what then to each of them, or to one, up to the next such."""

    block: list[str]
    row: list[str]


class _Writer:
    """The text of one kernel."""

    def __init__(
        self,
        parts: Sequence[Part],
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        row_group: RowGroup,
        over: Mapping[str, str],
        by_rows: bool,
        on_host: bool,
    ) -> None:
        self.parts, self.over, self.by_rows = parts, over, by_rows
        self.read = [o for o in inputs if o.strides is not None]
        self.numbers = [o for o in inputs if o.strides is None]
        self.outputs = outputs
        self.imports = {"words": "adjit.kernels.language.abi", "at": "adjit.kernels.language.abi"}
        self.truths: set[str] = set()
        self.waiting: list[str] = []  # what there is one of for a row, where a later phase reads it
        self.words: list[int] = []  # from row to row, where that is not the width; those of calls
        self.where: dict[str, str] = {}  # the index of element j, or the only one, of an operand
        self.dtypes = {o.name: o.dtype.stored for o in self.read}
        for o in self.read:
            self.where[o.name] = self._index(o, row_group)
        self.by_element = {o.name for o in self.read if o.strides and o.strides[1]}
        self.loop_of: dict[str, int] = dict.fromkeys(self.dtypes, 0)  # in which a value is there
        self.of_rows: set[str] = self.dtypes.keys() - self.by_element
        sums = self._all_sums()
        self.summed = {p.value for p in sums if not p.fold.by_rows}
        sizes = [p.fold.given.itemsize for p in sums]
        sizes += [p.call.kind.itemsize for p in self._calls() if p.has_short]
        self.together = by_rows and on_host and bool(sizes) and row_group.width > LANES
        self.together &= is_short(row_group.width, max(sizes, default=0))
        self._number_the_loops()
        self.last = max([self.loop_of[n] for n in self.dtypes if n not in self.of_rows], default=0)
        self.loops = [self._bodies(number) for number in range(self.last + 1)]
        self.direct = {name for number in range(self.last + 1) for name in self._stored_in(number)}
        called = {t for call in self._calls() for t in call.whole} - self.summed - over.keys()
        self.direct |= called.intersection(o.name for o in outputs)
        self.kept = self._kept()
        self.whole = self.by_element.union(self.kept, self.direct)

    def _index(self, operand: Operand, row_group: RowGroup) -> str:
        """Where the first element of a row lies."""
        assert operand.strides is not None
        down, across = operand.strides
        has_left = across and not self.by_rows
        if down == 0:
            return "left" if has_left else "0"
        if across and down == row_group.width:
            return "here"
        self.words.append(down)
        start = f"row * pitch_{operand.name}"
        return f"{start} + left" if has_left else start

    def _number_the_loops(self) -> None:
        """In which loop over a row each value is computed; values of rows, before which loop."""
        for part in self.parts:
            if isinstance(part, RowSum):
                self.loop_of[part.target] = self.loop_of[part.value] + 1
                self.dtypes[part.target] = part.fold.result.stored
                self.of_rows.add(part.target)
                continue
            if isinstance(part, RowFunction):
                number = 1 + max(self.loop_of[n] for n in part.values)
                self.loop_of.update(dict.fromkeys(part.targets, number))
                self.dtypes.update(dict.fromkeys(part.targets, part.call.kind.stored))
                self.of_rows |= {*part.targets} - {*part.whole}
                self.where.update(dict.fromkeys(part.whole, "here"))
                continue
            number = max([self.loop_of.get(n, 0) for n in part.arguments], default=0)
            for target, o in zip(part.targets, part.element.outputs, strict=True):
                self.loop_of[target], self.dtypes[target] = number, o.dtype.stored
                if part.is_of_rows:
                    self.of_rows.add(target)

    def _bodies(self, number: int) -> list[GroupMember]:
        """What one loop computes."""
        return [
            part
            for part in self.parts
            if isinstance(part, GroupMember)
            and not part.is_of_rows
            and self.loop_of[part.targets[0]] == number
        ]

    def _stored_in(self, number: int) -> list[str]:
        """The results that a loop writes to memory; the others move there at the end of a row.

        A result may take the place of an operand in the last loop, if no sum reads that after it.
        """
        made = {t for member in self.loops[number] for t in member.targets}
        stored = [o.name for o in self.outputs if o.name in made]
        late = {s.value for s in self._all_sums()} if number == self.last else self.dtypes
        stored = [name for name in stored if self.over.get(name) not in late]
        read = {n for m in self.loops[number] for n in m.arguments} & self.by_element
        return stored if len(stored) * (len(read) + len(stored)) <= MAX_PAIRS else []

    def _kept(self) -> list[str]:
        """The values that outlive their loop."""
        kept = {s.value for s in self._all_sums()}
        for call in self._calls():
            kept |= {*call.values, *(set(call.whole) - self.direct)}
        kept |= {o.name for o in self.outputs if o.name not in self.direct}
        for number, members in enumerate(self.loops):
            kept |= {
                n for m in members for n in m.arguments if self.loop_of.get(n, number) < number
            }
        kept -= self.of_rows | {o.name for o in self.read} | (self.direct & {*self.where})
        return [name for name in self.dtypes if name in kept]

    def _place(self, name: str) -> tuple[str, str]:
        """Where the elements of a row of a value begin: a pointer and an index."""
        if name not in self.kept:
            return f"p_{name}", self.where[name]
        return f"keep_{name}", "slot" if self.together or name in self.summed else "0"

    def _first_of_block(self, name: str) -> str:
        """A pointer to the first of eight rows of a value, which lie one behind the other."""
        pointer, first = self._place(name)
        return f"shifted({pointer}, first * count)" if first == "here" else pointer

    def _element(self, name: str) -> str:
        """Element j of a row of a value."""
        pointer, first = self._place(name)
        return f"{pointer}[j]" if first == "0" else f"{pointer}[{first} + j]"

    # ----- text -----

    def text(self, name: str) -> str:
        phases = self._phases()
        if self.together:
            unit = ["for first in range(start, stop, ROWS):", "    rows = min(ROWS, stop - first)"]
            each = ["row = first + k", "here = row * count"]
            each += ["slot = k * count"] if self.kept else []
            for block, row in phases:
                unit += _indented([*block, "for k in range(rows):", *_indented([*each, *row])])
        elif self.by_rows:
            unit = ["for row in range(start, stop):", "    here = row * count"]
            unit += _indented(phases[0].row)
        else:
            unit = [
                "for unit in range(start, stop):",
                "    part = unit // strips",
                "    left = unit % strips * strip",
                "    count = min(strip, width - left)",
                "    first = part // chunks * length + part % chunks * step",
                "    rows = min(step, length - part % chunks * step)",
                "    for row in range(first, first + rows):",
                "        here = row * width + left",
                *(["        slot = (row - first + 3) % 4 * ROOM"] if self.summed else []),
                *_indented(_indented(phases[0].row)),
            ]
        body = "\n".join(_indented([*self._head(), *unit]))
        if self.together:
            self.imports["INTERLEAVED_IN_ROWS as INTERLEAVED"] = VECTOR_MATH
        for word, module in KNOWN.items():
            if is_named(word, body):
                self.imports[word] = module
        return assemble(name, body, self.imports, {})

    def _phases(self) -> list[Phase]:
        """What happens to a row, cut in front of what eight rows go through together."""
        phases = [Phase([], [])]
        made: dict[str, int] = {}  # in which phase what there is one of for a row is computed
        for number in range(self.last + 2):
            sums = [
                s for s in self._all_sums() if s.fold.by_rows and self.loop_of[s.target] == number
            ]
            block, row = self._called(number)
            if self.together:
                made |= {s.target: len(phases) - 1 for s in sums}
                self.waiting += [s.target for s in sums]
                block += [self._sum_of_rows(s) for s in sums]
            else:
                row += [self._sum_of_row(s) for s in sums]
            if block:
                phases.append(Phase(block, []))
            phases[-1].row.extend([*row, *self._of_rows(number), *self._loop(number)])
            for n in self.of_rows - self.where.keys():
                if self.loop_of[n] == number:
                    made.setdefault(n, len(phases) - 1)
        phases[-1].row.extend(self._stores())
        self._hand_on(phases, made)
        return [phase for phase in phases if phase.block or phase.row]

    def _hand_on(self, phases: Sequence[Phase], made: Mapping[str, int]) -> None:
        """Read what there is one of for a row where a phase uses it; it waits for phases behind its own."""
        for number, (_, row) in enumerate(phases):
            read, text = [], "\n".join(row)
            for n in self.dtypes:
                if n not in self.of_rows or made.get(n, -1) >= number or not is_named(n, text):
                    continue
                if n in self.where:
                    read.append(f"{n} = p_{n}[{self.where[n]}]")
                    continue
                read.append(f"{n} = each_{n}[k]")
                if n not in self.waiting:
                    self.waiting.append(n)
                    phases[made[n]].row.append(f"each_{n}[k] = {n}")
            row[:0] = read

    def _head(self) -> list[str]:
        """Pointers, words, numbers, memory. What the phases hand on is known by then."""
        columns = [p for p in self._all_sums() if not p.fold.by_rows]
        head = ["p = words(args)"]
        places = [*self.read, *self.outputs]
        for k, o in enumerate(places):
            source = (
                f"p_{self.over[o.name]}" if o.name in self.over else f"at(p[{k}], {o.dtype.stored})"
            )
            head.append(f"p_{o.name} = {source}")
        base = len(places)
        for k, s in enumerate(columns):
            head.append(f"p_{s.target} = at(p[{base + k}], {s.fold.result.stored})")
        base += len(columns)
        words = ROW if self.by_rows else PARTS
        head += [f"{word} = p[{base + k}]" for k, word in enumerate(words)]
        base += len(words)
        pitched = [o.name for o in self.read if "pitch" in self.where[o.name]]
        head += [f"pitch_{n} = p[{base + k}]" for k, n in enumerate(pitched)]
        base += len(pitched)
        for call in self._calls():
            self.words += call.call.words[1:]
            head += [f"{n} = p[{base + k}]" for k, n in enumerate(_words_of(call))]
            base += len(call.call.words) - 1
        head += number_lines(self.numbers, base, self.truths)
        for n in self.kept:
            head.append(
                f"keep_{n} = stack({self.dtypes[n]}, {'FOUR_ROOMS' if n in self.summed else 'ROOM'})"
            )
        return [*head, *(f"each_{n} = stack({self.dtypes[n]}, ROWS)" for n in self.waiting)]

    def _all_sums(self) -> list[RowSum]:
        return [part for part in self.parts if isinstance(part, RowSum)]

    def _calls(self) -> list[RowFunction]:
        return [part for part in self.parts if isinstance(part, RowFunction)]

    def _called(self, number: int) -> tuple[list[str], list[str]]:
        """The calls of kernels of rows on what a loop has computed: those of eight rows, those of one."""
        block, row = [], []
        for call in self._calls():
            if self.loop_of[call.targets[0]] != number:
                continue
            module, short = call.call.row.function.__module__, call.call.row.short
            self.imports[call.name] = module
            self.imports |= {n: VECTOR_MATH for n in call.scalars if not n.startswith("math.")}
            values = (*call.values, *call.whole)
            if self.together and call.has_short and short is not None:
                self.imports[short.__name__] = module
                block += call.text_of_short({n: self._first_of_block(n) for n in values})
            else:
                row.append(call.text({n: self._place(n) for n in values}, _words_of(call)))
        return block, row

    def _sum_of_row(self, s: RowSum) -> str:
        """The sum of a row."""
        x, i = self._place(s.value)
        call = SUMS[s.fold.how].format(x=x, i=i, X=s.fold.given.stored, T=s.fold.result.stored)
        return f"{s.target} = {call}"

    def _sum_of_rows(self, s: RowSum) -> str:
        """The sums of eight rows."""
        x = self._first_of_block(s.value)
        return TOGETHER[s.fold.how].format(x=x, out=f"each_{s.target}", T=s.fold.result.stored)

    def _of_rows(self, number: int) -> list[str]:
        """The bodies with one element a row that are computed before a loop."""
        lines = []
        for part in self.parts:
            if (
                isinstance(part, GroupMember)
                and part.is_of_rows
                and self.loop_of[part.targets[0]] == number
            ):
                lines += self._pasted(part)
        return lines

    def _loop(self, number: int) -> list[str]:
        """One loop over a row."""
        members = self.loops[number] if number <= self.last else []
        if not members:
            return []
        made = {t for member in members for t in member.targets}
        given = dict.fromkeys(n for member in members for n in member.arguments)
        known = self.whole - made
        lines = [f"{n} = {self._element(n)}" for n in given if n in known]
        for member in members:
            lines += self._pasted(member)
        lines += [f"{self._element(n)} = {n}" for n in self.kept if n in made]
        lines += [f"p_{o.name}[here + j] = {o.name}" for o in self.outputs
                  if o.name in made & self.direct]  # fmt: skip
        return ["for j in range(count):", *_indented(lines)]

    def _pasted(self, member: GroupMember) -> list[str]:
        pasted, truths = member_lines(member)
        self.imports.update(pasted.imports)
        self.truths |= truths
        return pasted.lines

    def _stores(self) -> list[str]:
        """Results move to memory when all of the row is read, whose place they may take."""
        lines = []
        for o in self.outputs:
            if o.name in self.of_rows:
                lines.append(f"p_{o.name}[row] = {o.name}")
            elif o.name not in self.direct:
                lines += [
                    "for j in range(count):",
                    f"    p_{o.name}[here + j] = {self._element(o.name)}",
                ]
        for s in self._all_sums():
            if not s.fold.by_rows:
                lines.append(
                    f"add_row(p_{s.target}, part * width + left, keep_{s.value}, ROOM, count, "
                    f"row - first, rows, {s.fold.result.stored})"
                )
        return lines


KNOWN = {
    "FOUR_ROOMS": "adjit.kernels.ops.reduce",
    "ROWS": "adjit.kernels.language.lanes",
    "ROOM": "adjit.kernels.ops.reduce",
    "add": "operator",
    "add_row": "adjit.kernels.ops.reduce",
    "dot_span": "adjit.kernels.ops.reduce",
    "reduce_rows_of_block": "adjit.kernels.ops.reduce",
    "reduce_span": "adjit.kernels.ops.reduce",
    "scalar": "adjit.kernels.language.abi",
    "shifted": "adjit.kernels.language.abi",
    "square_rows_of_block": "adjit.kernels.ops.reduce",
    "stack": "adjit.kernels.language.lanes",
}


def _words_of(call: RowFunction) -> list[str]:
    """Names for what a kernel of rows is told besides the length of a row."""
    return [f"word_{call.targets[0]}_{k}" for k in range(len(call.call.words) - 1)]


def _indented(lines: Sequence[str]) -> list[str]:
    return ["    " + line for line in lines]
