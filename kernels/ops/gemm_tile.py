"""The register-tiled core of every product of matrices, written as vector instructions.

LLVM does not find the register tiling of a product by itself, so the innermost tile is emitted:
up to HEIGHT rows by WIDTH vectors of sums stay in registers, and each step of the depth loads
WIDTH vectors of B, broadcasts one number of A for each row and issues HEIGHT * WIDTH fused
multiply-adds. Operands are copied first into the order in which the tile reads them, so any strides
and sizes are welcome, and a transposed operand costs no more than another.

    pack(x, line, along, lines, depth, out, width)
        Panels of `width` lines: out[panel][k][i] = x[i * line + k * along], i within the panel.
    pack_strips(x, line, along, lines, depth, out)
        The same for strips of HEIGHT lines, `strip_bytes` apart, for `multiply` to read A from.
    multiply(a, a_row, a_step, b, b_step, b_panel, c, c_row, depth, rows, columns, add)
        C = A @ B for at most HEIGHT rows of A, or C += A @ B if `add` is above 0; below it the sums go on
        from what is in C. The rows of B are `b_step` apart in a panel, its panels `b_panel`. Either operand
        may be packed or left where it is.
    multiply_row(a, b, b_step, c, depth, columns, add)
        The same for one dense row of A and one panel of at most ROW_WIDTH vectors.

They take addresses, and strides in elements. The kernels around them are emitted in the same way:
nothing has to be inferred or optimised, so that instruction selection is all that compiling takes,
0.15 s for every product of a dtype where Numba took 0.7 s for the loops around a finished tile.

An element of a product is computed in one order that the depth alone decides: SUM_DEPTH products
are added up one after the other, then the sums of such blocks. So its bits depend neither on the
other rows and columns nor on layouts, batches and threads, and on no width of a vector.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba.core import cgutils

from ..language.processor import CHOSEN, FUSED, MASKS_STORES, VECTOR_BYTES, has
from ..language.target import machine

FEW_LINES = 4  # at most, that are transposed in squares of their own
SUM_DEPTH = 256  # products in a row before their sum is added to its element

# --------------------------------------------------------------------------- the machine


# The sums, a step of B and one number of A fill the registers: 32 of them, or 16 on x86 without
# AVX-512. Few rows, as each takes a pointer too: with 12 x 2, a convolution on Zen 5 came to 0.78 of
# the peak, with 8 x 3 to 0.88 and with 6 x 4 to 0.90; on Zen 4 all were within 2 % of each other.
HEIGHT, WIDTH = (6, 4) if has("avx512f") else (8, 3) if CHOSEN.architecture == "aarch64" else (6, 2)
# Numbers of A in a step of a strip of HEIGHT lines. With AVX-512 as many as divide a vector, so that steps of
# dense columns are copied without overlap; dense rows are read where they lie. 1024 x 1024 with a transposed
# left operand came to 100 GFLOP/s on a Skylake and comes to 109 to 115, as lines are asked for ahead too.
STRIP = 8 if has("avx512f") else HEIGHT
# Vectors of a product that has one row: a sum waits four cycles for the one before, and few of them would leave
# the units for multiplications idle.
ROW_WIDTH = WIDTH if has("avx512f") else 8
# All heights would be twice the code to compile; an odd one computes a row too many and drops it.
HEIGHTS = (1, *range(2, HEIGHT + 1, 2))
# Whether a panel of B stays in a first cache of 32 KB while strips of A run through it, and B may come from a
# cache further away. With AVX-512 it fills that, and a strip stays there instead: packed B lies in the second.
PANEL_STAYS = SUM_DEPTH * WIDTH * VECTOR_BYTES <= 1 << 14
# Panels packed at a time; memory is borrowed for whole ones.
BLOCK_PANELS = -(-(4096 if PANEL_STAYS else 2048) // (WIDTH * VECTOR_BYTES))
BLOCK_BYTES = BLOCK_PANELS * WIDTH * VECTOR_BYTES  # of each row of B
# Rows of such a panel are asked for so many steps before they are read: a tile of packed operands came to 126
# GFLOP/s on a Skylake, and comes to 138 of 142 or so.
ROWS_AHEAD = 8


def lanes_of(size: int) -> int:
    """Elements of `size` bytes in a vector."""
    return VECTOR_BYTES // size


# --------------------------------------------------------------------------- instructions

I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
F64 = ir.DoubleType()
SCALARS = {"float32": ir.FloatType(), "float64": F64}  # the dtypes there are tiles of


class TileNumber:
    """An int64 whose operators append instructions."""

    __slots__ = ("builder", "ir")

    def __init__(self, builder: ir.IRBuilder, value: ir.Value | int) -> None:
        self.builder = builder
        self.ir = I64(value) if isinstance(value, int) else value

    def _apply(self, name: str, other: TileNumber | int) -> TileNumber:
        return TileNumber(self.builder, getattr(self.builder, name)(self.ir, self._lift(other)))

    def _compare(self, sign: str, other: TileNumber | int) -> ir.Value:
        return self.builder.icmp_signed(sign, self.ir, self._lift(other))

    @staticmethod
    def _lift(other: TileNumber | int) -> ir.Value:
        return other.ir if isinstance(other, TileNumber) else I64(other)

    def __add__(self, other: TileNumber | int) -> TileNumber:
        return self._apply("add", other)

    def __sub__(self, other: TileNumber | int) -> TileNumber:
        return self._apply("sub", other)

    def __mul__(self, other: TileNumber | int) -> TileNumber:
        return self._apply("mul", other)

    def __floordiv__(self, other: TileNumber | int) -> TileNumber:
        """The quotient of two numbers that are not negative."""
        return self._apply("udiv", other)

    def __mod__(self, other: TileNumber | int) -> TileNumber:
        return self._apply("urem", other)

    def __and__(self, other: TileNumber | int) -> TileNumber:
        return self._apply("and_", other)

    def __lt__(self, other: TileNumber | int) -> ir.Value:
        return self._compare("<", other)

    def __gt__(self, other: TileNumber | int) -> ir.Value:
        return self._compare(">", other)

    def equals(self, other: TileNumber | int) -> ir.Value:
        return self._compare("==", other)

    def differs(self, other: TileNumber | int) -> ir.Value:
        return self._compare("!=", other)


class TileCode:
    """Emits the instructions of one function on vectors of one dtype."""

    def __init__(self, dtype: Any, module: ir.Module | None = None) -> None:
        self.module = module or ir.Module("kernels")
        self.size = np.dtype(dtype).itemsize
        self.panel = WIDTH * lanes_of(self.size)
        self.scalar = SCALARS[np.dtype(dtype).name]
        self._take_lanes(lanes_of(self.size))
        self.builder: Any = None
        self.defined: Any = None
        self.args: list[TileNumber] = []

    def function(
        self, name: str, arguments: int, *, result: ir.Type | None = None, exported: bool = False
    ) -> TileCode:
        """A new function of int64, to be filled; `defined` is what a call of it names."""
        kind = ir.FunctionType(result or ir.VoidType(), [I64] * arguments)
        made = copy.copy(self)
        made.defined = ir.Function(self.module, kind, f"{name}_{self.suffix}")
        made.defined.linkage = "external" if exported else "internal"
        made.defined.attributes.add("nounwind")
        made.builder = ir.IRBuilder(made.defined.append_basic_block("entry"))
        made.args = [TileNumber(made.builder, arg) for arg in made.defined.args]
        return made

    def _take_lanes(self, lanes: int) -> None:
        self.lanes = lanes
        self.type = ir.VectorType(self.scalar, lanes)
        self.suffix = f"v{lanes}f{8 * self.size}"
        self.zero = ir.Constant(self.type, [0.0] * lanes)

    def narrow(self, lanes: int) -> TileCode:
        """The same function, on shorter vectors."""
        made = copy.copy(self)
        made._take_lanes(lanes)
        return made

    # numbers

    def number(self, value: ir.Value | int | TileNumber) -> TileNumber:
        return value if isinstance(value, TileNumber) else TileNumber(self.builder, value)

    def choose(self, condition: ir.Value, a: TileNumber | int, b: TileNumber | int) -> TileNumber:
        chosen = (self.number(value).ir for value in (a, b))
        return TileNumber(self.builder, self.builder.select(condition, *chosen))

    def smaller(self, a: TileNumber, b: TileNumber | int) -> TileNumber:
        return self.choose(a < b, a, b)

    def larger(self, a: TileNumber, b: TileNumber | int) -> TileNumber:
        return self.choose(a > b, a, b)

    def all(self, *conditions: ir.Value) -> ir.Value:
        return functools.reduce(self.builder.and_, conditions)

    def any(self, *conditions: ir.Value) -> ir.Value:
        return functools.reduce(self.builder.or_, conditions)

    def word(self, address: TileNumber, index: TileNumber | int = 0) -> TileNumber:
        """An int64 among others at an address."""
        place = (self.number(index) * 8 + address).ir
        return TileNumber(
            self.builder, self.builder.load(self.builder.inttoptr(place, I64.as_pointer()))
        )

    def stack(self, nbytes: int) -> TileNumber:
        """The address of aligned memory that lives until the function returns."""
        memory = self.builder.alloca(I8, size=I64(nbytes))
        memory.align = VECTOR_BYTES
        return TileNumber(self.builder, self.builder.ptrtoint(memory, I64))

    # control

    @contextmanager
    def loop(
        self, stop: TileNumber, step: TileNumber | int = 1, start: TileNumber | int = 0
    ) -> Iterator[TileNumber]:
        """For `start`, `start + step` ... below `stop`."""
        first, last, apart = (self.number(n).ir for n in (start, stop, step))
        with cgutils.for_range_slice(self.builder, first, last, apart) as (index, _):
            yield TileNumber(self.builder, index)

    def when(self, condition: ir.Value) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.builder.if_then(condition)
        return context

    def either(self, condition: ir.Value) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.builder.if_else(condition)
        return context

    def call(self, function: Any, *args: TileNumber | int) -> TileNumber:
        """Call a function of int64, given as one or by the address of one with a result."""
        values = [self.number(arg).ir for arg in args]
        if isinstance(function, TileNumber):
            kind = ir.FunctionType(I64, [I64] * len(args)).as_pointer()
            function = self.builder.inttoptr(function.ir, kind)
        return TileNumber(self.builder, self.builder.call(function, values))

    def opaque(self, number: TileNumber) -> TileNumber:
        """The same number, of which LLVM knows nothing.

        Otherwise it would turn the sum of a number that counts and each of a dozen addresses into a
        number of its own, for which there are no registers.
        """
        kind = ir.FunctionType(I64, [I64])
        return TileNumber(self.builder, self.builder.asm(kind, "", "=r,0", [number.ir], False))

    # vectors

    def intrinsic(self, name: str, result: ir.Type, *args: ir.Value) -> ir.Value:
        kind = ir.FunctionType(result, [arg.type for arg in args])
        return self.builder.call(cgutils.get_or_insert_function(self.module, kind, name), args)

    def place(self, address: TileNumber, kind: ir.Type | None = None) -> ir.Value:
        return self.builder.inttoptr(address.ir, (kind or self.type).as_pointer())

    def load(self, address: TileNumber) -> ir.Value:
        return self.builder.load(self.place(address), align=self.size)

    def load_one(self, address: TileNumber) -> ir.Value:
        return self.builder.load(self.place(address, self.scalar))

    def store(self, value: ir.Value, address: TileNumber) -> None:
        self.builder.store(value, self.place(address), align=self.size)

    def shuffle(self, a: ir.Value, b: ir.Value, lanes: list[int]) -> ir.Value:
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, self.lanes), lanes))

    def widen(self, value: ir.Value) -> ir.Value:
        """A shorter vector as one of this length; the other lanes mean nothing."""
        undefined = ir.Constant(value.type, ir.Undefined)
        lanes = [min(lane, value.type.count) for lane in range(self.lanes)]
        kind = ir.VectorType(I32, self.lanes)
        return self.builder.shuffle_vector(value, undefined, ir.Constant(kind, lanes))

    def broadcast(self, value: ir.Value) -> ir.Value:
        undefined = ir.Constant(ir.VectorType(value.type, self.lanes), ir.Undefined)
        first = self.builder.insert_element(undefined, value, I32(0))
        return self.shuffle(first, undefined, [0] * self.lanes)

    def from_double(self, value: ir.Value) -> ir.Value:
        return value if self.size == 8 else self.builder.fptrunc(value, self.scalar)

    def multiply_add(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        if FUSED:
            return self.intrinsic(f"llvm.fma.{self.suffix}", self.type, a, b, c)
        return self.builder.fadd(self.builder.fmul(a, b), c)

    def prefetch(self, address: TileNumber, *, writes: bool = True) -> None:
        """Ask for a cache line that will be written, or read."""
        place = self.place(address)
        self.intrinsic("llvm.prefetch.p0", ir.VoidType(), place, I32(int(writes)), I32(3), I32(1))

    def multiples(self, factor: int) -> ir.Constant:
        numbers = [factor * lane for lane in range(self.lanes)]
        return ir.Constant(ir.VectorType(I64, self.lanes), numbers)

    def first(self, count: TileNumber) -> ir.Value:
        """A mask of the lanes before `count`."""
        if MASKS_STORES or self.size == 8:
            return self.builder.icmp_signed("<", self.multiples(1), self.broadcast(count.ir))
        # A mask is a vector as wide as those it is for: numbers of their size make it at once.
        lanes = ir.Constant(ir.VectorType(I32, self.lanes), [*range(self.lanes)])
        here = self.builder.trunc(self.smaller(count, self.lanes).ir, I32)
        return self.builder.icmp_signed("<", lanes, self.broadcast(here))

    def load_some(self, address: TileNumber, mask: ir.Value) -> ir.Value:
        """The lanes of a mask; the others are 0."""
        name, place = f"llvm.masked.load.{self.suffix}.p0", self.place(address)
        return self.intrinsic(name, self.type, place, I32(self.size), mask, self.zero)

    def gather(self, address: TileNumber, stride: TileNumber, mask: ir.Value) -> ir.Value:
        """The lanes of a mask from elements `stride` apart; the others are 0."""
        builder = self.builder
        apart = builder.mul(self.multiples(self.size), self.broadcast(stride.ir))
        addresses = builder.add(self.broadcast(address.ir), apart)
        places = builder.inttoptr(addresses, ir.VectorType(ir.PointerType(), self.lanes))
        name = f"llvm.masked.gather.{self.suffix}.v{self.lanes}p0"
        return self.intrinsic(name, self.type, places, I32(self.size), mask, self.zero)

    def store_some(
        self, value: ir.Value, address: TileNumber, mask: ir.Value, is_whole: ir.Value | None = None
    ) -> None:
        """The first lanes, those of a mask, of which `is_whole` says where it is known that they are all.

        Without AVX-512 a masked store takes twelve times as long as a whole one.
        """
        if MASKS_STORES:
            name, place = f"llvm.masked.store.{self.suffix}.p0", self.place(address)
            self.intrinsic(name, ir.VoidType(), value, place, I32(self.size), mask)
            return
        if is_whole is None:
            self._store_halves(value, address, mask)
            return
        with self.either(is_whole) as (whole, some):
            with whole:
                self.store(value, address)
            with some:
                self._store_halves(value, address, mask)

    def _store_halves(self, value: ir.Value, address: TileNumber, mask: ir.Value) -> None:
        """The first lanes, by stores of half as many each time."""
        builder = self.builder
        bits = builder.zext(builder.bitcast(mask, ir.IntType(self.lanes)), I64)
        count = TileNumber(builder, self.intrinsic("llvm.ctpop.i64", I64, bits))
        width = self.lanes
        while width:
            before = builder.block
            with self.when((count & width).differs(0)):
                first = ir.Constant(ir.VectorType(I32, width), [*range(width)])
                part = builder.shuffle_vector(value, value, first)
                builder.store(part, self.place(address, part.type), align=self.size)
                rest = self.shuffle(value, value, [*range(width, self.lanes), *[0] * width])
                behind, last = address + width * self.size, builder.block
            joined = [builder.phi(self.type), builder.phi(I64)]
            for phi, old, new in zip(joined, (value, address.ir), (rest, behind.ir), strict=True):
                phi.add_incoming(old, before)
                phi.add_incoming(new, last)
            value, address = joined[0], TileNumber(builder, joined[1])
            width //= 2


def parsed(module: ir.Module, machine: Any) -> Any:
    """A module as LLVM has it, for a target machine."""
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    made = llvm.parse_assembly(str(module))
    made.verify()
    return made


def object_code(module: ir.Module, machine: Any) -> bytes:
    """What the target machine makes of a module, without any of Numba's passes."""
    return bytes(machine.emit_object(parsed(module, machine)))


def assembly(module: ir.Module) -> str:
    """The same as text."""
    return str(machine().emit_assembly(parsed(module, machine())))


# --------------------------------------------------------------------------- tile


def emit_multiply(code: TileCode, layouts: Sequence[bool] = (True, False)) -> Any:
    """`multiply`: panel by panel, the function for as many rows and vectors.

    With `layouts` of (False,) there are no tiles of their own for an A whose rows are 1 apart.
    """
    f = code.function("multiply", 12)
    a, a_row, a_step, b, b_step, b_panel, c, c_row, depth, rows, columns, add = f.args
    builder = f.builder
    shape = f.choose(a_row.equals(1), 0, len(HEIGHTS) * (len(layouts) - 1))
    tall = (shape + f.choose(rows.equals(1), 0, (rows + 1) // 2)) * WIDTH
    with f.loop(columns, f.panel) as j:
        across = f.smaller(columns - j, f.panel)
        b_here, c_here = b + j // f.panel * b_panel * f.size, c + j * f.size
        after = builder.append_basic_block("after")
        choice = builder.switch((tall + (across - 1) // f.lanes).ir, after)
        tiles = itertools.product(layouts, HEIGHTS, range(1, WIDTH + 1))
        for k, (is_dense, height, width) in enumerate(tiles):
            block = builder.append_basic_block()
            choice.add_case(I64(k), block)
            builder.position_at_end(block)
            tile = emit_tile(code, height, width, is_dense)
            f.call(tile, a, a_row, a_step, b_here, b_step, c_here, c_row, depth, rows, across, add)
            builder.branch(after)
        builder.position_at_end(after)
    builder.ret_void()
    return f.defined


def emit_multiply_row(code: TileCode) -> Any:
    """`multiply_row`: the tile for as many vectors."""
    f = code.function("multiply_row", 7)
    a, b, b_step, c, depth, columns, add = f.args
    after = f.builder.append_basic_block("after")
    choice = f.builder.switch(((columns - 1) // f.lanes).ir, after)
    for width in range(1, ROW_WIDTH + 1):
        block = f.builder.append_basic_block()
        choice.add_case(I64(width - 1), block)
        f.builder.position_at_end(block)
        tile = emit_tile(code, 1, width, is_dense=False)
        f.call(tile, a, 0, 1, b, b_step, c, 0, depth, 1, columns, add)
        f.builder.branch(after)
    f.builder.position_at_end(after)
    f.builder.ret_void()
    return f.defined


def emit_tile(code: TileCode, height: int, width: int, is_dense: bool) -> Any:
    """C (+)= A @ B for `height` rows, or one less, by `width` vectors, of which the last is masked.

    The rows of A are `a_row` elements apart, which is 1 if `is_dense`, its columns `a_step`. What `add` says is
    told above.
    """
    name = f"tile_{height}x{width}{'_dense' if is_dense else ''}"
    if made := code.module.globals.get(f"{name}_{code.suffix}"):
        return made
    f = code.function(name, 11)
    a, a_row, a_step, b, b_step, c, c_row, depth, rows, columns, add = f.args
    builder, size, lanes = f.builder, f.size, f.lanes
    entry = builder.block
    resume, loop, done, over, onto, end = (
        f.defined.append_basic_block(name)
        for name in ("resume", "loop", "done", "over", "onto", "end")
    )

    lines = [c + c_row * (i * size) for i in range(height)]
    factors = [f.number(i) if is_dense else a_row * i for i in range(height)]
    if height > 1:  # the last row may be one too many
        is_whole = rows.equals(height)
        lines[-1] = f.choose(is_whole, lines[-1], f.stack(width * VECTOR_BYTES))
        factors[-1] = f.choose(is_whole, factors[-1], factors[-2])
    cells = [line + VECTOR_BYTES * v for line in lines for v in range(width)]
    for cell in cells:
        f.prefetch(cell)
    builder.cbranch(add < 0, resume, loop)

    def edge() -> ir.Value:  # by every block, as no register is free for it in between
        return f.first(columns - lanes * (width - 1))

    def read(k: int, mask: ir.Value) -> ir.Value:
        return f.load_some(cells[k], mask) if k % width == width - 1 else f.load(cells[k])

    builder.position_at_end(resume)
    mask = edge()
    begun = [read(k, mask) for k in range(len(cells))]
    builder.branch(loop)

    builder.position_at_end(loop)
    starts = [depth.ir, a.ir, b.ir, *[f.zero] * len(cells)]
    resumed = [*starts[:3], *begun]
    phis = [builder.phi(start.type) for start in starts]
    left, a_now, b_now = (f.number(phi) for phi in phis[:3])
    line = [f.load(b_now + VECTOR_BYTES * v) for v in range(width)]
    if height > 2 and not PANEL_STAYS:
        ahead = b_now + b_step * (ROWS_AHEAD * size)
        for v in range(width):
            f.prefetch(ahead + VECTOR_BYTES * v, writes=False)
    sums = []
    for i in range(height):
        factor = f.broadcast(f.load_one(a_now + factors[i] * size))
        for v in range(width):
            sums.append(f.multiply_add(factor, line[v], phis[3 + i * width + v]))
    fewer, a_next, b_next = left - 1, a_now + a_step * size, b_now + b_step * size
    following = [fewer.ir, a_next.ir, b_next.ir, *sums]
    for phi, *values in zip(phis, starts, resumed, following, strict=True):
        for value, block in zip(values, (entry, resume, loop), strict=True):
            phi.add_incoming(value, block)
    builder.cbranch(fewer > 0, loop, done)

    builder.position_at_end(done)
    mask, is_whole = edge(), columns.equals(lanes * width)
    builder.cbranch(add > 0, onto, over)
    for block in (over, onto):
        builder.position_at_end(block)
        for k, (cell, total) in enumerate(zip(cells, sums, strict=True)):
            if block is onto:
                total = builder.fadd(read(k, mask), total)
            if k % width == width - 1:
                f.store_some(total, cell, mask, is_whole)
            else:
                f.store(total, cell)
        builder.branch(end)
    builder.position_at_end(end)
    builder.ret_void()
    return f.defined


# --------------------------------------------------------------------------- packing


def emit_pack(code: TileCode) -> Any:
    """`pack`: squares are transposed in registers, dense lines copied, the rest is gathered.

    Whole vectors are written, of which `width` is made, and whole squares: `out` needs room for `lanes`
    more steps of the depth, and what follows the last line and the last step means nothing. Dense lines
    are read across all panels, so that the processor fetches ahead.
    """
    f = code.function("pack", 7)
    x, line, along, lines, depth, out, width = f.args
    with f.either(along.equals(1)) as (squares, others):
        side = min(f.lanes, FEW_LINES)
        with squares, f.either(lines > side) as (many, few):
            with many, f.loop(lines, width) as first:
                count, there = f.smaller(lines - first, width), out + first * depth * f.size
                with f.loop(count, f.lanes) as i:
                    rows = rows_of(f, x + (first + i) * line * f.size, line, count - i, f.lanes)
                    with f.loop(depth, f.lanes) as k:
                        for row in rows:  # the squares to come
                            f.prefetch(row + (k + 2 * f.lanes) * f.size, writes=False)
                        target = there + (k * width + i) * f.size
                        emit_transpose(f, rows, k, depth - k, apart(f, target, width, f.lanes))
            with few:
                rows = rows_of(f, x, line, lines, side)
                with f.loop(depth, side) as k:
                    places = apart(f, out + k * width * f.size, width, side)
                    emit_transpose(f, rows, k, depth - k, places)
        with others, f.either(line.equals(1)) as (copied, gathered):
            with copied:
                whole = f.choose(width.equals(f.panel), lines // f.panel * f.panel, 0)
                with f.when(whole > 0), f.loop(depth) as k, f.loop(whole, f.panel) as first:
                    here = x + (first + k * along) * f.size
                    there = out + (first * depth + k * width) * f.size
                    for v in range(WIDTH):
                        f.store(f.load(here + v * VECTOR_BYTES), there + v * VECTOR_BYTES)
                with f.loop(lines, width, whole) as first:
                    count, there = f.smaller(lines - first, width), out + first * depth * f.size
                    with f.loop(count, f.lanes) as i:
                        mask = f.first(count - i)
                        with f.loop(depth) as k:
                            some = f.load_some(x + (k * along + first + i) * f.size, mask)
                            f.store(some, there + (k * width + i) * f.size)
            with gathered, f.loop(lines, width) as first, f.loop(depth) as k:
                count, there = f.smaller(lines - first, width), out + first * depth * f.size
                with f.loop(count, f.lanes) as i:
                    source = x + ((first + i) * line + k * along) * f.size
                    some = f.gather(source, line, f.first(count - i))
                    f.store(some, there + (k * width + i) * f.size)
    f.builder.ret_void()
    return f.defined


def emit_pack_strips(code: TileCode) -> Any:
    """`pack_strips`: squares are transposed in registers, dense lines copied, the rest is gathered.

    A step follows the one before at once, so that a strip takes no more of a cache than it has numbers:
    what a vector writes too much is written over by the next one. Dense lines are read across all strips.
    """
    f = code.function("pack_strips", 6)
    x, line, along, lines, depth, out = f.args
    part = f.narrow(STRIP) if f.lanes % STRIP == 0 else f
    starts = range(0, STRIP, part.lanes)  # of the vectors of a step

    def place(first: TileNumber, k: TileNumber) -> TileNumber:
        return out + first // HEIGHT * strip_bytes(f.size) + k * (STRIP * f.size)

    with f.either(along.equals(1)) as (squares, others):
        with squares, f.loop(lines, HEIGHT) as first:
            count, here = lines - first, x + first * line * f.size
            tops = range(0, STRIP, f.lanes)
            rows = [
                here + f.smaller(count - 1, min(i, HEIGHT - 1)) * line * f.size
                for i in range(len(tops) * f.lanes)
            ]
            with f.loop(depth, f.lanes) as k:
                mask = f.first(depth - k)
                turned = [
                    transposed(
                        f, [f.load_some(row + k * f.size, mask) for row in rows[i:][: f.lanes]]
                    )
                    for i in tops
                ]
                for j in range(f.lanes):
                    for i, vectors in zip(tops, turned, strict=True):
                        f.store(vectors[j], place(first, k + j) + i * f.size)
        with others, f.either(line.equals(1)) as (copied, gathered):
            with copied:
                beyond = len(starts) * part.lanes - HEIGHT  # lines that are read for nothing
                whole = f.larger(lines - beyond, 0) // HEIGHT * HEIGHT
                with f.when(whole > 0), f.loop(depth) as k, f.loop(whole, HEIGHT) as first:
                    here = x + (first + k * along) * f.size
                    f.prefetch(here + along * (ROWS_AHEAD * f.size), writes=False)
                    for i in starts:
                        part.store(part.load(here + i * f.size), place(first, k) + i * f.size)
                with f.loop(lines, HEIGHT, whole) as first:
                    masks = [part.first(lines - first - i) for i in starts]
                    with f.loop(depth) as k:
                        here = x + (first + k * along) * f.size
                        for i, mask in zip(starts, masks, strict=True):
                            some = part.load_some(here + i * f.size, mask)
                            part.store(some, place(first, k) + i * f.size)
            with gathered, f.loop(lines, HEIGHT) as first, f.loop(depth) as k:
                for i in starts:
                    source = x + ((first + i) * line + k * along) * f.size
                    some = part.gather(source, line, part.first(lines - first - i))
                    part.store(some, place(first, k) + i * f.size)
    f.builder.ret_void()
    return f.defined


def strip_bytes(size: int) -> int:
    """From one strip of HEIGHT lines to the next: whole lines of a cache, not a power of two."""
    return -(-(SUM_DEPTH + lanes_of(size)) * STRIP * size // 64) * 64 + 64


def rows_of(
    f: TileCode, x: TileNumber, line: TileNumber, count: TileNumber, side: int
) -> list[TileNumber]:
    """The addresses of the lines of a square; the last of `count` stands in for those beyond."""
    return [x + f.smaller(count - 1, i) * line * f.size for i in range(side)]


def apart(f: TileCode, first: TileNumber, width: TileNumber, count: int) -> list[TileNumber]:
    """Addresses of rows that are `width` elements apart."""
    return [first + width * (j * f.size) for j in range(count)]


def emit_transpose(
    f: TileCode,
    rows: Sequence[TileNumber],
    k: TileNumber | int,
    depth: TileNumber,
    places: Sequence[TileNumber],
) -> None:
    """Transpose a square of what lies in rows from element `k` on, of which `depth` exist, as many as there
    are rows."""
    wide, f = f, f.narrow(len(rows))
    mask, here = f.first(depth), f.number(k) * f.size
    vectors = transposed(f, [f.load_some(row + here, mask) for row in rows])
    for vector, place in zip(vectors, places, strict=True):
        wide.store(wide.widen(vector), place)


def transposed(f: TileCode, rows: Sequence[ir.Value]) -> list[ir.Value]:
    """The columns of as many vectors as each has lanes."""
    rows, half = list(rows), f.lanes // 2
    while half:  # swap the off-diagonal quarters of ever smaller squares
        keep = [j if j & half == 0 else j - half + f.lanes for j in range(f.lanes)]
        swap = [j + half if j & half == 0 else j + f.lanes for j in range(f.lanes)]
        for i in range(f.lanes):
            if i & half == 0:
                a, b = rows[i], rows[i + half]
                rows[i], rows[i + half] = (f.shuffle(a, b, order) for order in (keep, swap))
        half //= 2
    return rows
