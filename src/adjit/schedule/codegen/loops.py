"""Scalar bodies to kernel source: one flat loop, or rows of a strided loop.

An elementwise kernel over contiguous operands reads like this:

    def mul(args, start, stop):
        p = words(args)
        p_x = at(p[0], float32)
        p_y = at(p[1], float32)
        p_out = at(p[2], float32)
        for i in range(start, stop):
            _x = p_x[i]
            _y = p_y[i]
            out = _x * _y
            p_out[i] = out

The names of the body begin with an underscore, no others do. A large result goes block by block
through a buffer on the stack, and from there past the caches; the last block overlaps the one before
it:

        for block in range(start & -128, stop, 128):
            first = min(max(block, start), stop - 128)
            for i in range(128):
                _x = p_x[first + i]
                _y = p_y[first + i]
                out = _x * _y
                block_out[i] = out
            stream_block(p_out, first, block_out, (p[2] + first * 4) % 64 == 0)
        fence()

Where an operand is one row for all rows, it is repeated on the stack to the length of a block and a
row, so that narrow rows too make a flat loop:

        repeat_row(p_y, inner, row_y, min(inner + 512, stop - start + inner))
        for first in range(start, stop, 512):
            size = min(512, stop - first)
            phase = first % inner
            for i in range(size):
                _x = p_x[first + i]
                _y = row_y[phase + i]

An operand with one number for each short row is repeated there block by block:

            repeat_each(p_y, first // inner * down_y, down_y, inner, row_y, phase + size)

Rows of a strided loop follow each other along the axis outside of them, in runs, so that only the beginning of
a run is divided into places along the other axes:

        while row < stop:
            ...
            rows = min(run - place, stop - row)
            for j in range(rows):
                for i in range(inner):
                    _x = p_x[j * down_x + i]
                    _y = p_y[j * down_y + i]

Where they have few elements, their width stands in the text, and so do steps from row to row that are usual
(here 3, 0 and 1), so that LLVM works on vectors of rows:

            for j in range(rows):
                _z = p_z[j]
                for i in range(3):
                    _x = p_x[j * 3 + i]
                    _y = p_y[i]

Where the neighbours of an operand lie along the axis outside of the innermost one (images channel by channel
beside such with channels last), squares of it are turned on the stack, so that whole lines of memory are read:

            rows = min(16, run - place, stop - row)
            for left in range(0, inner, 128):
                count = min(128, inner - left)
                rows_x = rows_of(shifted(p_x, left * 1), down_x, 1, rows, count, block_x)
                turn_block(shifted(p_y, left * step_y), step_y, count, rows, block_y, count)
                for i in range(rows * count):
                    _x = rows_x[i]
                    _y = block_y[i]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...dtypes import SUPPORTED, dtype
from ...kernels.language.abi import UNITS
from ...kernels.language.lanes import BLOCK, CACHE_LINE, LANES
from ...kernels.language.processor import VECTOR_BYTES
from ...kernels.language.turning import TILE
from ...shapes import coalesce, numel
from ..planning.recipe import GRAIN, Flat, Operand, ShortRows, Source, Step
from .body import SCALAR_BUILTINS, VECTOR_MATH, Body, Pasted, own

# Bytes from which on a result is streamed. A store into a cache reads the line first, which by then
# is a read of memory. Measured on a 2-core Zen 4 with 32 MB of L3, one thread, float32: add on 4M
# elements 1,358 us for 1,973, and with the negation that reads the result 2,244 for 3,157. What
# fits into the cache beside its operands loses: relu of 1M float64 on two threads 380 us for 190.
STREAM_BYTES = 1 << 24

# Bytes of operands from which on a loop that computes much asks for what comes AHEAD elements later: between
# its loads lie more instructions than a processor looks ahead, and not every machine fetches lines by itself.
# One core of an Intel Xeon with AVX2, float32, ms: tanh of 4M 13.1 and 4.1, exp of 8M 8.0 and 4.8, sin 18.7 and
# 7.4; with AVX-512 of 4M the same, of 8M exp 3.3 to 4.3 and 2.7, erf 2.9 to 4.2 and 2.7.
ASK_BYTES, AHEAD = 1 << 24 if VECTOR_BYTES < CACHE_LINE else 1 << 26, 256

STREAMED, CACHED, PADDED, ASKING = "streamed", "cached", "padded", "asking"
MOST_INTERLEAVED = 4  # functions of a loop that works on several vectors at once
NUMBER = "k"  # a Python number, one word
CONTIGUOUS, REPEATED, STRIDED, ROW, COLUMN, TURNED = "c", "s", "v", "r", "d", "t"
IN_ORDER = {NUMBER, CONTIGUOUS, REPEATED}  # of operands that need nothing beside a loop
MAX_ROW, MAX_ROWS = 4096, 16  # elements of a row that is repeated on the stack, and such operands
TOGETHER = 512  # elements of a block that is read beside such a row
# Elements of a row that are turned at once, and operands of such a loop, as each may have a block on the stack.
# float32 in both orders added up, 8x32x32x32 takes 87 us for 621, 1x256x64x64 450 for 3,009.
ACROSS, MOST_BESIDE = 128, 16
# Elements of a row of a strided loop that is one of many side by side: 8,000 rows of 8 float32 times a number
# each take 13 us; those of 16, which are vectors, 79 side by side and 40 one after the other.
SHORT = 8
# Elements from which on the text of a nested loop over one operation knows which steps are 0 or 1, widths, and
# what to turn. Below, that gains a microsecond at most, and each text takes half a second to compile: sums and
# choices of 13 layouts took 207 kernels and take 52.
ENOUGH = 1024
# More than, and at most: of one where operands with one number a row are repeated on the stack. 30,000 float32
# in rows of 8, the hyperbolic tangent of each less its row's mean 30 us for 298, in rows of 10 32 for 132.
FEW, NARROW = 4, 2 * LANES


class Loop(NamedTuple):
    """The geometry that an elementwise step runs over."""

    flags: str  # one letter an operand
    nested: bool
    n: int
    grain: int
    constants: tuple[int, ...]
    short: ShortRows | None = None  # of a nested one

    @property
    def shape(self) -> str:
        """What tells its text from that of others with the same flags."""
        if self.short is None:
            return "_rows" if self.nested else ""
        letters = {0: REPEATED, 1: CONTIGUOUS, self.short.width: ROW, -1: STRIDED}
        return f"_rows_of_{self.short.width}_{''.join(letters[step] for step in self.short.steps)}"


def geometry(
    shape: Sequence[int],
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    order: Sequence[int],
    *,
    is_single: bool = False,
) -> Loop:
    """Coalesce the axes, outermost first in `order`, and sort operands into classes of stride.

    What is fused is hot, so that its text is worth compiling; a single operation may not be.
    """
    operands = [*inputs, *outputs]
    strided = [o for o in operands if o.strides is not None]
    sizes, strides = coalesce(
        [shape[d] for d in order],
        [[o.strides[d] for d in order] for o in strided],  # type: ignore[index]
    )

    def flags_of(letters: Iterable[str]) -> str:
        each = iter(letters)
        return "".join([NUMBER if o.strides is None else next(each) for o in operands])

    inner = [s[-1] if s else 1 for s in strides]
    letters = [CONTIGUOUS if stride == 1 else STRIDED if stride else REPEATED for stride in inner]
    steps = tuple(stride for stride in inner if stride not in (0, 1))
    if len(sizes) <= 1:
        return Loop(flags_of(letters), False, sizes[0] if sizes else 1, GRAIN, steps)
    if len(sizes) == 2 and sizes[1] <= MAX_ROW:
        found = [_beside_plain_rows(s, sizes[1]) for s in strides]
        if STRIDED not in found and found.count(ROW) + found.count(COLUMN) <= MAX_ROWS:
            downs = [s[0] for s, letter in zip(strides, found, strict=True) if letter == COLUMN]
            constants = (sizes[1], *downs)
            return Loop(flags_of(found), False, sizes[0] * sizes[1], GRAIN, constants)
    rows = numel(sizes[:-1])
    outer = [*reversed(sizes[:-1])]
    for s in strides:
        outer += reversed(s[:-1])
    width, short = sizes[-1], None
    if is_single and rows * width < ENOUGH:
        constants = (len(sizes) - 1, width, *outer, *inner)
        return Loop(flags_of(STRIDED * len(inner)), True, rows, GRAIN, constants)
    constants = (len(sizes) - 1, width, *outer, *steps)
    turned = [letter == STRIDED and s[-2] == 1 for letter, s in zip(letters, strides, strict=True)]
    if (
        any(turned)
        and not any(turned[-len(outputs) :])
        and len(strided) <= MOST_BESIDE
        and min(width, sizes[-2]) >= TILE
    ):
        letters = [TURNED if turns else kept for turns, kept in zip(turned, letters, strict=True)]
    elif 1 < width <= SHORT:
        known = (0, 1, width)
        short = ShortRows(width, tuple([s[-2] if s[-2] in known else -1 for s in strides]))
    grain = max(1, GRAIN // max(width, 1))
    return Loop(flags_of(letters), True, rows, grain, constants, short)


def _beside_plain_rows(strides: Sequence[int], width: int) -> str:
    """The class of an operand of rows that lie one after the other in others; STRIDED if it has none."""
    down, across = strides
    if across == 0:
        return REPEATED if down == 0 else COLUMN if FEW < width <= NARROW else STRIDED
    if across != 1:
        return STRIDED
    return CONTIGUOUS if down == width else STRIDED if down else ROW


def render(kernel: Flat, over: Mapping[str, str] | None = None, blocks: str = "") -> Source:
    """The source of one elementwise kernel.

    Operands are converted to and from `compute`; without it the lines do that themselves, and read
    operands by their names. `logical` names inputs that the lines read as booleans, `whole` those that
    they read as int64; `over` says which outputs are written to the memory of which inputs. With
    `blocks` results are computed a block at a time on the stack and moved from there: "streamed" past
    the caches, or "cached"; "padded" blocks are a line of memory each, the last one too. "Asking" loops have
    memory fetched ahead.
    """
    pieces = _Pieces(kernel, over or {})
    if kernel.nested:
        lines = _nested(pieces)
    elif blocks == PADDED:
        lines = _padded(pieces)
    elif blocks == ASKING:
        lines = _asking(pieces)
    elif blocks:
        lines = _by_blocks(pieces, is_streamed=blocks == STREAMED)
    elif pieces.has_inner:
        lines = _beside_rows(pieces)
    else:
        lines = _flat(pieces)
    text = "\n".join(_indented(lines))
    imports = dict.fromkeys(("words", "at"), "adjit.kernels.language.abi") | kernel.imports
    for module, names in _HELPERS.items():
        imports |= {name: module for name in names if re.search(rf"\b{name}\(", text)}
    if blocks == PADDED:
        imports |= _A_LINE_AT_ONCE
    elif pieces.turned or not (kernel.nested or pieces.rows):
        imports |= interleaved(Pasted([*kernel.lines], kernel.imports))
    bound = {} if kernel.compute is None else {"T": kernel.compute.computed}
    return Source(kernel.name, assemble(kernel.name, text, imports, bound), kernel)


# What the loops call beside functions of the bodies.
_HELPERS = {
    "adjit.kernels.language.abi": ("scalar", "shifted"),
    "adjit.kernels.language.lanes": (
        "fence", "past_cache", "prefetch", "repeat_each", "repeat_row", "stack", "stream_block", "within",
    ),
    "adjit.kernels.language.turning": ("put_rows", "room_for", "rows_of", "turn_block"),
}  # fmt: skip

# Hints to LLVM, which would unroll loops over a line first, and then often make its numbers one by one.
_A_LINE_AT_ONCE = {
    "INTERLEAVED_IN_ROWS as INTERLEAVED": VECTOR_MATH,
    "ROLLED": "adjit.kernels.language.lanes",
}


class _Pieces:
    """The lines of which the loops of a kernel are put together, whatever their shape."""

    def __init__(self, kernel: Flat, over: Mapping[str, str]) -> None:
        self.kernel, self.over = kernel, over
        operands = [*kernel.inputs, *kernel.outputs]
        self.operands = [o for o in operands if o.strides is not None]
        self.letters = dict(zip([o.name for o in operands], kernel.flags, strict=True))
        self.base = len(self.operands)  # the number of the first word behind the addresses
        self.rows = [] if kernel.nested else [o for o in kernel.inputs if self._is(o, ROW)]
        self.turned = [o for o in self.operands if self._is(o, TURNED)]
        self.row_steps = self.steps_of_rows()
        self.columns = [o for o in kernel.inputs if self._is(o, COLUMN)]
        self.has_inner = bool(self.rows or self.columns)
        self.starts = self.row_starts()

    def _is(self, operand: Operand, letter: str) -> bool:
        return self.letters[operand.name] == letter

    def flat_head(self, length: int = 0) -> list[str]:
        """What comes before a loop that is not nested; it goes over `length` elements beside rows."""
        behind = self.base + self.has_inner + len(self.columns)
        lines = ["p = words(args)", *self.constants(str(behind))]
        for k, o in enumerate(self.operands):
            lines.append(self._pointer(o, f"p[{k}]"))
        if self.has_inner:
            lines.append(f"inner = p[{self.base}]")
        for o in self.rows:
            lines.append(f"row_{o.name} = stack({o.dtype.stored}, {MAX_ROW + length})")
            count = f"min(inner + {length}, stop - start + inner)"
            lines.append(f"repeat_row(p_{o.name}, inner, row_{o.name}, {count})")
        for k, o in enumerate(self.columns):
            lines.append(f"down_{o.name} = p[{self.base + 1 + k}]")
            lines.append(f"row_{o.name} = stack({o.dtype.stored}, {length + 2 * NARROW})")
        return lines + self.repeated()

    def phase(self, size: str) -> list[str]:
        """What a block of so many elements needs that begins somewhere in a row."""
        lines = ["phase = first % inner"] * self.has_inner
        for o in self.columns:
            place = f"first // inner * down_{o.name}, down_{o.name}, inner"
            lines.append(f"repeat_each(p_{o.name}, {place}, row_{o.name}, phase + {size})")
        return lines

    def constants(self, start: str) -> list[str]:
        """The steps of strided operands, and the Python numbers: words from `start` on."""
        compute, lines = self.kernel.compute, []
        strided = [o for o in self.operands if self.letters[o.name] in (STRIDED, TURNED)]
        for k, o in enumerate(strided):
            lines.append(f"step_{o.name} = p[{start} + {k}]")
        numbers = [o for o in self.kernel.inputs if o.strides is None]
        for k, o in enumerate(numbers):
            word = f"p[{start} + {len(strided) + k}]"
            letter = "T" if o.dtype is compute else o.dtype.computed
            text = number_text(word, o.dtype, letter, o.name in self.kernel.logical)
            lines.append(f"{value_name(o.name, compute)} = {text}")
        return lines

    def row_pointers(self) -> list[str]:
        """Where the operands begin in a row of a nested loop."""
        return [
            self._pointer(o, f"p[{k}] + o_{o.name} * {o.dtype.itemsize}")
            for k, o in enumerate(self.operands)
        ]

    def _pointer(self, o: Operand, address: str) -> str:
        shared = self.over.get(o.name)
        return f"p_{o.name} = " + (f"p_{shared}" if shared else f"at({address}, {o.dtype.stored})")

    def repeated(self) -> list[str]:
        """The values that are the same in the whole loop."""
        return [self._load(o, "") for o in self._values() if self._is(o, REPEATED)]

    def steps_of_rows(self) -> tuple[int, ...]:
        """From row to row of each operand of a nested loop, -1 if the text does not know."""
        if self.kernel.short and not self.turned:
            return self.kernel.short.steps
        return (-1,) * (len(self.operands) * self.kernel.nested)

    def row_starts(self) -> dict[str, str]:
        """Where row `j` of several begins in each operand, to be followed by an index."""
        texts = {0: "", 1: "j + ", -1: "j * down_{} + "}
        return {
            o.name: texts.get(step, f"j * {step} + ").format(self._lies_like(o))
            for o, step in zip(self.operands, self.row_steps, strict=False)
        }

    def _lies_like(self, o: Operand) -> str:
        """The operand by whose steps one is found: that over which a result is written.

        LLVM is not told that both have the same ones, and would take elements one by one.
        """
        return self.over.get(o.name, o.name)

    def inside(self, i: str = "i", into: str = "", left: str = "") -> list[str]:
        """The innermost lines, for element `i` of memory; results go `into` a block, if that is given, of which
        the first `left` elements exist.
        """
        loads = [
            self._load(o, i, left)
            for o in self._values()
            if self.turned or not self._is(o, REPEATED)
        ]
        stores = [
            f"{f'{into}_{o.name}[i]' if into else self._element(o, i)} = {self._stored(o)}"
            for o in self.kernel.outputs
        ]
        return [*loads, *self.kernel.lines, *stores]

    def _values(self) -> list[Operand]:
        """The inputs that lie in memory."""
        return [o for o in self.kernel.inputs if o.strides is not None]

    def _element(self, o: Operand, i: str) -> str:
        letter = self.letters[o.name]
        if letter in (ROW, COLUMN):
            return f"row_{o.name}[phase + i]"
        if self.turned:
            return f"{'block' if letter == TURNED else 'rows'}_{self._lies_like(o)}[i]"
        index = {REPEATED: "0", CONTIGUOUS: i}.get(letter, f"({i}) * step_{self._lies_like(o)}")
        return f"p_{o.name}[{self.starts.get(o.name, '')}{index}]"

    def _load(self, o: Operand, i: str, left: str = "") -> str:
        compute, value = self.kernel.compute, self._element(o, i)
        if left:
            value = f"within({value}, i, {left})"
        if compute is None:
            pass
        elif o.name in self.kernel.logical:
            value = f"{value} != 0"
        elif o.name in self.kernel.whole:
            value = f"int64({value})"
        elif o.dtype.stored != compute.computed:
            value = f"T({value})"
        return f"{value_name(o.name, compute)} = {value}"

    def _stored(self, o: Operand) -> str:
        """A result as it lies in memory."""
        compute = self.kernel.compute
        if compute is None:
            return o.name
        if o.dtype.kind == "b":
            return f"uint8({o.name} != 0)" if compute.kind == "b" else f"uint8({o.name})"
        return o.name if o.dtype.stored == compute.computed else f"{o.dtype.stored}({o.name})"


def _flat(pieces: _Pieces) -> list[str]:
    """One loop over all elements."""
    loop = ["for i in range(start, stop):", *_indented(pieces.inside())]
    return pieces.flat_head() + loop


def _asking(pieces: _Pieces) -> list[str]:
    """The same, a block at a time, with those to come on their way."""
    asked = [o for o in pieces.operands if pieces.letters[o.name] == CONTIGUOUS]
    inner = [f"for i in range(first, min(first + {BLOCK}, stop)):", *_indented(pieces.inside())]
    body = [*ask(asked, "first"), *inner]
    loop = [f"for first in range(start, stop, {BLOCK}):", *_indented(body)]
    return pieces.flat_head() + loop


def ask(operands: Iterable[Operand], first: str) -> list[str]:
    """Fetch the lines of memory AHEAD of those with the BLOCK elements from `first` on."""
    return [
        f"prefetch(p_{o.name}, {first} + {AHEAD + k})"
        for o in operands
        for k in range(0, BLOCK, CACHE_LINE // o.dtype.itemsize)
    ]


def _beside_rows(pieces: _Pieces) -> list[str]:
    """Blocks of elements, each beside a row that is repeated on the stack."""
    body = [
        f"size = min({TOGETHER}, stop - first)",
        *pieces.phase("size"),
        "for i in range(size):",
        *_indented(pieces.inside("first + i")),
    ]
    loop = [f"for first in range(start, stop, {TOGETHER}):", *_indented(body)]
    return pieces.flat_head(TOGETHER) + loop


def _by_blocks(pieces: _Pieces, *, is_streamed: bool) -> list[str]:
    """Blocks on the stack, moved to memory when they are done; the last overlaps the one before it."""
    kernel, head = pieces.kernel, pieces.flat_head(BLOCK)
    if is_streamed:
        read = sum(o.dtype.itemsize for o in kernel.inputs if pieces.letters[o.name] == CONTIGUOUS)
        written = sum(o.dtype.itemsize for o in kernel.outputs)
        head.append(f"far = past_cache(p[{UNITS}], start, stop, {read}, {written})")
    body = [f"first = min(max(block, start), stop - {BLOCK})"]
    body += pieces.phase(str(BLOCK))
    body += [f"for i in range({BLOCK}):", *_indented(pieces.inside("first + i", "block"))]
    for o in kernel.outputs:
        head.append(f"block_{o.name} = stack({o.dtype.stored}, {BLOCK})")
        address = f"p[{pieces.operands.index(o)}] + first * {o.dtype.itemsize}"
        far = f"first >= far and ({address}) % {CACHE_LINE} == 0" if is_streamed else "False"
        body.append(f"stream_block(p_{o.name}, first, block_{o.name}, {far})")
    loop = [f"for block in range(start & -{BLOCK}, stop, {BLOCK}):", *_indented(body)]
    return head + loop + ["fence()"] * is_streamed


def _padded(pieces: _Pieces) -> list[str]:
    """Lines of memory, one after the other, the last one whole too: no rest, no scalar loop.

    What lies behind the last element is read as 0: it may be anything, and Intel's processors take some
    150 cycles for each operation on a denormal number.
    """
    outputs = pieces.kernel.outputs
    width = CACHE_LINE // outputs[0].dtype.itemsize
    blocks = [f"block_{o.name} = stack({o.dtype.stored}, {width})" for o in outputs]
    body = [f"left = min(stop - first, {width})", f"for i in range({width}):"]
    body += _indented(pieces.inside("first + i", "block", "left"))
    for o in outputs:
        body += [f"for i in range({width}):", f"    p_{o.name}[first + i] = block_{o.name}[i]"]
    loop = [f"for first in range(start, stop, {width}):", *_indented(body)]
    return pieces.flat_head() + blocks + loop


def _nested(pieces: _Pieces) -> list[str]:
    """Rows of a strided loop: where a run of rows begins follows from the number of its first one.

    A run goes along the axis outside of the innermost one, so that there is no division for each row.
    """
    base, names = pieces.base, [o.name for o in pieces.operands]
    head = [
        "p = words(args)",
        f"outer = p[{base}]",
        f"inner = p[{base + 1}]",
        f"run = p[{base + 2}]",
        f"tail = {base + 2} + outer * {len(names) + 1}",
        *pieces.constants("tail"),
        *[f"down_{n} = p[{base + 2} + outer * {k + 1}]" for k, n in enumerate(names)],
    ]
    walk = [
        f"size = p[{base + 2} + d]",
        "ahead = rest // size",
        "at_d = rest - ahead * size",
        "rest = ahead",
    ]
    walk += [f"o_{n} += at_d * p[{base + 2} + outer * {k + 1} + d]" for k, n in enumerate(names)]
    most = ""
    if pieces.turned:
        most = f"{TILE}, "
        for o in pieces.operands:
            if o.name not in pieces.over:
                head.append(f"block_{o.name} = stack({o.dtype.stored}, {TILE * ACROSS})")
    body = [
        "rest = row // run",
        "place = row - rest * run",
        f"rows = min({most}run - place, stop - row)",
        *[f"o_{n} = place * down_{n}" for n in names],
        "for d in range(1, outer):",
        *_indented(walk),
        *pieces.row_pointers(),
        *(_turned_rows(pieces) if pieces.turned else _rows(pieces)),
        "row += rows",
    ]
    return [*head, "row = start", "while row < stop:", *_indented(body)]


def _rows(pieces: _Pieces) -> list[str]:
    """A run of rows, whose length the text knows if it is short."""
    short = pieces.kernel.short
    width = short.width if short else "inner"
    loop = [f"for i in range({width}):", *_indented(pieces.inside())]
    return ["for j in range(rows):", *_indented([*pieces.repeated(), *loop])]


def _turned_rows(pieces: _Pieces) -> list[str]:
    """Some rows, beside squares that are turned on the stack: one loop over all of their elements."""
    before, after = [], []
    for o in pieces.operands:
        here = pieces.over.get(o.name, o.name)
        step = {REPEATED: "0", CONTIGUOUS: "1"}.get(pieces.letters[o.name], f"step_{o.name}")
        first = f"shifted(p_{o.name}, left * {step})"
        lie = f"down_{o.name}, {step}, rows, count"
        if o in pieces.turned:
            before.append(f"turn_block({first}, {step}, count, rows, block_{here}, count)")
        elif o in pieces.kernel.inputs:
            before.append(f"rows_{here} = rows_of({first}, {lie}, block_{here})")
        else:
            if here == o.name:
                before.append(f"rows_{here} = room_for({first}, {lie}, block_{here})")
            after.append(f"put_rows(rows_{here}, {first}, {lie})")
    width = f"count = min({ACROSS}, inner - left)"
    loop = ["for i in range(rows * count):", *_indented(pieces.inside())]
    return [f"for left in range(0, inner, {ACROSS}):", *_indented([width, *before, *loop, *after])]


def _indented(lines: Sequence[str]) -> list[str]:
    return ["    " + line for line in lines]


def value_name(operand: str, compute: dtype | None) -> str:
    """What a kernel calls the value of an operand: as one body does, or by its name among several."""
    return operand if compute is None else own(operand)


def number_text(word: str, kind: dtype, letter: str, is_truth: bool) -> str:
    """A Python number of a dtype, which kernels call by a letter; floats travel as bits of float64."""
    if is_truth:  # which travels as a whole number
        return f"{word} != 0"
    return f"scalar({word}, {letter})" if kind.is_floating_point else f"{letter}({word})"


STORED = sorted({name for kind in SUPPORTED for name in (kind.stored, kind.computed)})
KINDS = re.compile(rf"\b(?:{'|'.join(STORED)})\b")
# What lines begin with that give a name a value.
WRITTEN = re.compile(r"^ *(?:for )?([\w, ]+?) (?:=|in) ", re.MULTILINE)


def is_named(word: str, text: str) -> bool:
    """Whether a text has a word."""
    return re.search(rf"\b{word}\b", text) is not None


def assemble(
    name: str,
    body: str,
    imports: Mapping[str, str],
    bound: Mapping[str, str],
    parameters: str = "args, start, stop",
) -> str:
    """A whole module: imports, the dtypes behind the type letters, the kernel."""
    kinds = {*KINDS.findall(body), *bound.values()}
    meant = {*imports, *kinds, *bound, *SCALAR_BUILTINS, *parameters.split(", "), "math", "range"}
    if hidden := meant.intersection(re.findall(r"\w+", " ".join(WRITTEN.findall(body)))):
        raise NameError(f"{name} gives another meaning to {', '.join(sorted(hidden))}")
    lines = []
    if "math." in body:
        lines.append("import math\n")
    lines.append(f"from numpy import {', '.join(sorted(kinds))}\n")
    modules: dict[str, list[str]] = {}
    for item, module in imports.items():
        modules.setdefault(module, []).append(item)
    for module in sorted(modules):
        lines.append(f"from {module} import {', '.join(sorted(modules[module]))}")
    lines.append("")
    lines += [f"{letter} = {kind}" for letter, kind in sorted(bound.items())]
    return "\n".join(lines) + f"\n\n\ndef {name}({parameters}):\n{body}\n"


def elementwise(
    name: str,
    body: Body,
    wanted: Sequence[int],
    compute: dtype,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    shape: Sequence[int],
    order: Sequence[int],
    alias: bool = False,
    fresh: bool = False,
) -> tuple[Step, tuple[int, ...]]:
    """The step, and its constant words, that runs `body` over `shape`.

    `fresh` says that the outputs are memory of their own.
    """
    loop = geometry(shape, inputs, outputs, order, is_single=True)
    large = fresh and is_streamed(loop, outputs)
    kinds = (
        "_".join(_short(o.dtype) for o in inputs)
        + "_to_"
        + "_".join(_short(o.dtype) for o in outputs)
    )
    label = f"{name}_{kinds}_{loop.flags}{loop.shape}{'_over' if alias else ''}"
    far = comes_from_far(loop, (*inputs, *outputs))
    key = (body, label, compute, tuple(wanted), tuple(o.name for o in inputs), large, far)
    source = _sources.get(key)
    if source is None:
        pasted = body.paste(wanted, [f"{o.name} = {{}}" for o in outputs], compute)
        is_bound = waits_for_memory(pasted)
        blocks = STREAMED if large and is_bound else ASKING if far and not is_bound else ""
        kernel = Flat(
            f"{label}_{blocks}" if blocks else label, tuple(pasted.lines), pasted.imports, compute,
            tuple(inputs), tuple(outputs), body.logical, loop.flags, loop.nested, loop.short, body.whole,
        )  # fmt: skip
        over = {outputs[0].name: inputs[0].name} if alias else None
        source = _sources[key] = render(kernel, over, blocks)
    return Step(source, loop.n, loop.grain), loop.constants


def dense_operands(flags: str, operands: Sequence[Operand]) -> list[Operand]:
    """Those that lie one after the other."""
    return [o for o, flag in zip(operands, flags, strict=True) if flag == CONTIGUOUS]


def comes_from_far(loop: Loop, operands: Sequence[Operand]) -> bool:
    """Whether a loop over all elements in order, if it computes much, has memory fetched ahead."""
    size = loop.n * sum([o.dtype.itemsize for o in dense_operands(loop.flags, operands)])
    is_plain = not loop.nested and IN_ORDER.issuperset(loop.flags)
    return is_plain and size >= ASK_BYTES


def is_streamed(loop: Loop, outputs: Sequence[Operand]) -> bool:
    """Whether results are too large to stay in a cache, and one after the other in memory."""
    return (
        not loop.nested
        and loop.flags.endswith(CONTIGUOUS * len(outputs))
        and loop.n * min([o.dtype.itemsize for o in outputs], default=0) >= STREAM_BYTES
    )


_sources: dict[Any, Source] = {}


def waits_for_memory(pasted: Pasted) -> bool:
    """Whether a loop is bound by memory: no function in it takes more than one instruction.

    A loop that computes more hides the read of the line, and bursts of streamed stores hold it up:
    sigmoid of 4M float32 takes 1,820 us streamed, 1,667 plain.
    """
    from ...kernels.math.vector import ONE_INSTRUCTION

    return ONE_INSTRUCTION.issuperset(pasted.imports)


def interleaved(pasted: Pasted) -> dict[str, str]:
    """The import that makes a flat loop work on several vectors at once, where that pays.

    Rows are too short for it, and a loop of many functions has more values than registers: the 8 of
    Black-Scholes take 27.5 ms for 24.6. What asks each vector something does not mix two: log takes
    0.42 ns for 0.36 at AVX2.
    """
    from ...kernels.math.vector import ASKING

    calls = sum(
        len(re.findall(rf"\b{name}\(", line)) for name in pasted.imports for line in pasted.lines
    )
    few = not waits_for_memory(pasted) and calls <= MOST_INTERLEAVED
    return {"INTERLEAVED": VECTOR_MATH} if few and ASKING.isdisjoint(pasted.imports) else {}


def _short(kind: dtype) -> str:
    return f"{kind.kind}{kind.itemsize * 8}" if kind.kind != "b" else "b"
