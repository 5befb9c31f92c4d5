"""The register-tiled core of every product of matrices, as a module of vector instructions.

LLVM does not find the register tiling of a product by itself, so the innermost tile is emitted:
up to HEIGHT rows by WIDTH vectors of sums stay in registers, and each step of the depth loads
WIDTH vectors of B, broadcasts one number of A for each row and issues HEIGHT * WIDTH fused
multiply-adds. Both operands are copied first into the order in which the tile reads them, so any
strides and sizes are welcome, and a transposed operand costs no more than another.

    pack(x, line, along, lines, depth, out, width)
        Panels of `width` lines: out[panel][k][i] = x[i * line + k * along], i within the panel.
    multiply(a, b, b_step, b_panel, c, c_row, depth, rows, columns, add)
        C = A @ B for at most HEIGHT rows of A in one packed panel, or C += A @ B if `add`. The rows
        of B are `b_step` apart in a panel, its panels `b_panel`: packed, or left where they are.

All take addresses, and strides in elements. They are compiled by themselves, once for each dtype,
and kernels call them by address: the kernels are ordinary loops that cost little to compile.

An element of a product is computed in one order that the depth alone decides: SUM_DEPTH products are
added up one after the other, then the sums of such blocks. So its bits depend neither on the other
rows and columns nor on layouts, batches and threads, and on no width of a vector.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.core.registry import cpu_target
from numba.extending import intrinsic

SUM_DEPTH = 256  # products in a row before their sum is added to its element
BLOCK_BYTES = 2048  # of each row of B, packed at a time: with SUM_DEPTH rows half of an L2 cache

# --------------------------------------------------------------------------- the machine


def has(feature: str) -> bool:
    """Whether kernels may use a feature of the processor."""
    if config.CPU_FEATURES is not None:
        return f"+{feature}" in config.CPU_FEATURES.split(",")
    return bool(llvm.get_host_cpu_features().get(feature, False))


VECTOR_BYTES = 64 if has("avx512f") else 32 if has("avx2") else 16
# The sums, a step of B and one number of A fill the registers: 32 of them, or 16 on x86 without
# AVX-512. On Zen 4, tiles of 14 x 2, 12 x 2, 8 x 3 and 6 x 4 were within 2 % of each other.
HEIGHT, WIDTH = (12, 2) if has("avx512f") else (6, 2) if has("fma") else (8, 3)
# All heights would be twice the code to compile; an odd one computes a row too many and drops it.
HEIGHTS = (1, *range(2, HEIGHT + 1, 2))
FUSED = has("fma") or llvm.get_default_triple().startswith(("aarch64", "arm64"))

# Memory for packed operands: HEIGHT rows of A, and one panel of B, as wide as a tile.
LINE_BYTES = SUM_DEPTH * -(-HEIGHT * 8 // VECTOR_BYTES) * VECTOR_BYTES
PANEL_BYTES = SUM_DEPTH * WIDTH * VECTOR_BYTES



def packed_step(size: int) -> int:
    """Elements of `size` bytes from one packed row of A to the next: whole vectors."""
    lanes = VECTOR_BYTES // size
    return -(-HEIGHT // lanes) * lanes


# --------------------------------------------------------------------------- vector instructions

I32, I64 = ir.IntType(32), ir.IntType(64)


class Vectors:
    """Emits instructions on vectors of one dtype."""

    def __init__(self, module: ir.Module, dtype: Any) -> None:
        self.module = module
        self.builder = ir.IRBuilder()
        self.size = np.dtype(dtype).itemsize
        self.lanes = VECTOR_BYTES // self.size
        self.step = packed_step(self.size)
        self.panel = WIDTH * self.lanes
        self.scalar = ir.FloatType() if self.size == 4 else ir.DoubleType()
        self.type = ir.VectorType(self.scalar, self.lanes)
        self.name = f"v{self.lanes}f{8 * self.size}"
        self.zero = ir.Constant(self.type, [0.0] * self.lanes)

    def function(self, name: str, arguments: int, exported: bool = False) -> Any:
        """A new function of int64, and this emitter at its beginning."""
        kind = ir.FunctionType(ir.VoidType(), [I64] * arguments)
        function = ir.Function(self.module, kind, f"{name}_{self.name}")
        function.linkage = "external" if exported else "internal"
        function.attributes.add("nounwind")
        inside = copy.copy(self)
        inside.builder = ir.IRBuilder(function.append_basic_block("entry"))
        return function, inside

    def element(self, base: ir.Value, index: ir.Value | int) -> ir.Value:
        """The address of an element, counted from an address."""
        index = I64(index) if isinstance(index, int) else index
        return self.builder.add(base, self.builder.mul(index, I64(self.size)))

    def place(self, address: ir.Value) -> ir.Value:
        return self.builder.inttoptr(address, self.type.as_pointer())

    def load(self, address: ir.Value) -> ir.Value:
        return self.builder.load(self.place(address), align=self.size)

    def load_one(self, address: ir.Value) -> ir.Value:
        return self.builder.load(self.builder.inttoptr(address, self.scalar.as_pointer()))

    def store(self, value: ir.Value, address: ir.Value) -> None:
        self.builder.store(value, self.place(address), align=self.size)

    def shuffle(self, a: ir.Value, b: ir.Value, lanes: list[int]) -> ir.Value:
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, self.lanes), lanes))

    def broadcast(self, value: ir.Value) -> ir.Value:
        undefined = ir.Constant(ir.VectorType(value.type, self.lanes), ir.Undefined)
        first = self.builder.insert_element(undefined, value, I32(0))
        return self.shuffle(first, undefined, [0] * self.lanes)

    def call(self, name: str, result: ir.Type, *args: ir.Value) -> ir.Value:
        """Call an intrinsic of LLVM."""
        kind = ir.FunctionType(result, [arg.type for arg in args])
        return self.builder.call(cgutils.get_or_insert_function(self.module, kind, name), args)

    def multiply_add(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        if FUSED:
            return self.call(f"llvm.fma.{self.name}", self.type, a, b, c)
        return self.builder.fadd(self.builder.fmul(a, b), c)

    def prefetch(self, address: ir.Value) -> None:
        """Ask for a cache line that will be written."""
        self.call("llvm.prefetch.p0", ir.VoidType(), self.place(address), I32(1), I32(3), I32(1))

    def numbers(self, factor: int = 1) -> ir.Constant:
        """0, 1, 2 ... times a factor."""
        return ir.Constant(
            ir.VectorType(I64, self.lanes), [factor * lane for lane in range(self.lanes)]
        )

    def first(self, count: ir.Value) -> ir.Value:
        """A mask of the lanes before `count`."""
        return self.builder.icmp_signed("<", self.numbers(), self.broadcast(count))

    def load_some(self, address: ir.Value, mask: ir.Value) -> ir.Value:
        """The lanes of a mask; the others are 0."""
        name = f"llvm.masked.load.{self.name}.p0"
        return self.call(name, self.type, self.place(address), I32(self.size), mask, self.zero)

    def gather(self, address: ir.Value, stride: ir.Value, mask: ir.Value) -> ir.Value:
        """The lanes of a mask from elements `stride` apart; the others are 0."""
        builder = self.builder
        apart = builder.mul(self.numbers(self.size), self.broadcast(stride))
        addresses = builder.add(self.broadcast(address), apart)
        places = builder.inttoptr(addresses, ir.VectorType(ir.PointerType(), self.lanes))
        name = f"llvm.masked.gather.{self.name}.v{self.lanes}p0"
        return self.call(name, self.type, places, I32(self.size), mask, self.zero)

    def store_some(self, value: ir.Value, address: ir.Value, mask: ir.Value) -> None:
        name = f"llvm.masked.store.{self.name}.p0"
        self.call(name, ir.VoidType(), value, self.place(address), I32(self.size), mask)

    def minimum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.builder.select(self.builder.icmp_signed("<", a, b), a, b)

    @contextmanager
    def steps(self, stop: ir.Value, step: ir.Value) -> Iterator[tuple[ir.Value, ir.Value]]:
        """A loop over 0, step, 2 * step ... below `stop`; the number and which one it is."""
        with cgutils.for_range_slice(self.builder, I64(0), stop, step) as (index, count):
            yield index, count


def module_of(dtype: Any) -> Any:
    """The module with `multiply` and `pack`, and the names of the two."""
    module = ir.Module("micro")
    vectors = Vectors(module, dtype)
    return module, (emit_multiply(vectors), emit_pack(vectors))


def assemble(dtype: Any) -> tuple[tuple[str, str], bytes]:
    """The names of `multiply` and `pack`, and their object code.

    Numba's target machine is used, but none of its passes: the code is written as it shall be,
    and instruction selection alone takes 0.1 s where Numba takes a second.
    """
    module, names = module_of(dtype)
    machine = cpu_target.target_context.codegen()._tm
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    return names, machine.emit_object(parsed)


# --------------------------------------------------------------------------- tile


def emit_multiply(vectors: Vectors) -> str:
    """`multiply`: panel by panel, the function for as many rows and vectors."""
    function, inside = vectors.function("multiply", 10, exported=True)
    builder = inside.builder
    a, b, b_step, b_panel, c, c_row, depth, rows, columns, add = function.args
    lanes = I64(vectors.lanes)
    single = builder.zext(builder.icmp_signed("==", rows, I64(1)), I64)
    tall = builder.sub(builder.ashr(builder.add(rows, I64(1)), I64(1)), single)
    row = builder.mul(tall, I64(WIDTH))
    with inside.steps(columns, I64(vectors.panel)) as (j, panel):
        across = inside.minimum(builder.sub(columns, j), I64(vectors.panel))
        b_here = inside.element(b, builder.mul(panel, b_panel))
        c_here = inside.element(c, j)
        args = [a, b_here, b_step, c_here, c_row, depth, rows, across, add]
        wide = builder.sdiv(builder.sub(across, I64(1)), lanes)
        after = builder.append_basic_block("after")
        choice = builder.switch(builder.add(row, wide), after)
        for k, height in enumerate(HEIGHTS):
            for width in range(1, WIDTH + 1):
                block = builder.append_basic_block(f"{height}x{width}")
                choice.add_case(I64(k * WIDTH + width - 1), block)
                builder.position_at_end(block)
                builder.call(emit_tile(vectors, height, width), args)
                builder.branch(after)
        builder.position_at_end(after)
    builder.ret_void()
    return str(function.name)


def emit_tile(vectors: Vectors, height: int, width: int) -> ir.Function:
    """The function for tiles of `height` rows, or one less, by `width` vectors, the last masked."""
    function, vectors = vectors.function(f"tile_{height}x{width}", 9)
    builder = vectors.builder
    a, b, b_step, c, c_row, depth, rows, columns, add = function.args
    entry = builder.block
    loop, done, over, onto, end = (
        function.append_basic_block(name) for name in ("loop", "done", "over", "onto", "end")
    )

    lines = [vectors.element(c, builder.mul(c_row, I64(i))) for i in range(height)]
    if height > 1:
        spare = builder.ptrtoint(builder.alloca(vectors.type, size=I64(width)), I64)
        inside = builder.icmp_signed("==", rows, I64(height))
        lines[-1] = builder.select(inside, lines[-1], spare)
    cells = [vectors.element(line, vectors.lanes * v) for line in lines for v in range(width)]
    for cell in cells:
        vectors.prefetch(cell)
    builder.branch(loop)

    builder.position_at_end(loop)
    starts = [depth, a, b, *[vectors.zero] * len(cells)]
    phis = [builder.phi(start.type) for start in starts]
    left, a_now, b_now, *sums = phis
    line = [vectors.load(vectors.element(b_now, vectors.lanes * v)) for v in range(width)]
    new = []
    for i in range(height):
        factor = vectors.broadcast(vectors.load_one(vectors.element(a_now, i)))
        for v in range(width):
            new.append(vectors.multiply_add(factor, line[v], sums[i * width + v]))
    fewer = builder.sub(left, I64(1))
    a_next, b_next = vectors.element(a_now, vectors.step), vectors.element(b_now, b_step)
    for phi, start, value in zip(phis, starts, [fewer, a_next, b_next, *new], strict=True):
        phi.add_incoming(start, entry)
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed(">", fewer, I64(0)), loop, done)

    builder.position_at_end(done)
    mask = vectors.first(builder.sub(columns, I64(vectors.lanes * (width - 1))))
    builder.cbranch(builder.icmp_signed("==", add, I64(0)), over, onto)
    for block in (over, onto):
        builder.position_at_end(block)
        for k, (cell, total) in enumerate(zip(cells, new, strict=True)):
            edge = k % width == width - 1
            if block is onto:
                old = vectors.load_some(cell, mask) if edge else vectors.load(cell)
                total = builder.fadd(old, total)
            if edge:
                vectors.store_some(total, cell, mask)
            else:
                vectors.store(total, cell)
        builder.branch(end)
    builder.position_at_end(end)
    builder.ret_void()
    return function


# --------------------------------------------------------------------------- packing


def emit_pack(vectors: Vectors) -> str:
    """`pack`: squares are transposed in registers, dense lines copied, the rest is gathered.

    Lines are written up to the end of a vector; what follows the last one means nothing.
    """
    function, vectors = vectors.function("pack", 7, exported=True)
    builder = vectors.builder
    x, line, along, lines, depth, out, width = function.args
    lanes = I64(vectors.lanes)
    square = builder.and_(
        builder.icmp_signed("==", along, I64(1)), builder.icmp_signed(">=", depth, lanes)
    )
    dense = builder.icmp_signed("==", line, I64(1))
    with vectors.steps(lines, width) as (first, panel):
        here = vectors.element(x, builder.mul(first, line))
        start = vectors.element(out, builder.mul(first, depth))
        count = vectors.minimum(builder.sub(lines, first), width)
        with builder.if_else(square) as (then, otherwise):
            with then, vectors.steps(depth, lanes) as (begin, _):
                k = vectors.minimum(begin, builder.sub(depth, lanes))
                with vectors.steps(count, lanes) as (i, _):
                    source = vectors.element(here, builder.add(builder.mul(i, line), k))
                    target = vectors.element(start, builder.add(builder.mul(k, width), i))
                    emit_turn(vectors, source, line, builder.sub(count, i), target, width)
            with otherwise, builder.if_else(dense) as branches:
                for kind, branch in zip(("dense", "apart"), branches, strict=True):
                    with branch, vectors.steps(depth, I64(1)) as (k, _):
                        with vectors.steps(count, lanes) as (i, _):
                            offset = builder.add(builder.mul(i, line), builder.mul(k, along))
                            source = vectors.element(here, offset)
                            target = vectors.element(start, builder.add(builder.mul(k, width), i))
                            mask = vectors.first(builder.sub(count, i))
                            value = (
                                vectors.load_some(source, mask)
                                if kind == "dense"
                                else vectors.gather(source, line, mask)
                            )
                            vectors.store(value, target)
    builder.ret_void()
    return str(function.name)


def emit_turn(
    vectors: Vectors, x: ir.Value, line: ir.Value, count: ir.Value, out: ir.Value, step: ir.Value
) -> None:
    """Transpose a square of which `count` lines exist; the last one stands in for the others."""
    builder, lanes = vectors.builder, vectors.lanes
    last = builder.sub(count, I64(1))
    rows = [
        vectors.load(vectors.element(x, builder.mul(vectors.minimum(I64(i), last), line)))
        for i in range(lanes)
    ]
    half = lanes // 2
    while half:  # swap the off-diagonal quarters of ever smaller squares
        keep = [j if j & half == 0 else j - half + lanes for j in range(lanes)]
        swap = [j + half if j & half == 0 else j + lanes for j in range(lanes)]
        for i in range(lanes):
            if i & half == 0:
                a, b = rows[i], rows[i + half]
                rows[i], rows[i + half] = (vectors.shuffle(a, b, s) for s in (keep, swap))
        half //= 2
    for k, row in enumerate(rows):
        vectors.store(row, vectors.element(out, builder.mul(step, I64(k))))


# --------------------------------------------------------------------------- blocks


@intrinsic
def room(typingctx: Any) -> Any:
    """The aligned address of LINE_BYTES and PANEL_BYTES on the stack."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        size = LINE_BYTES + PANEL_BYTES + VECTOR_BYTES
        memory = cgutils.alloca_once(builder, ir.IntType(8), size=size)
        past = builder.add(builder.ptrtoint(memory, I64), I64(VECTOR_BYTES - 1))
        return builder.and_(past, I64(-VECTOR_BYTES))

    return types.int64(), codegen


@intrinsic
def allocated(typingctx: Any, function: Any, size: Any) -> Any:
    """The address of memory from a function like malloc at an address; 0 if there is none."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.FunctionType(I64, [I64]).as_pointer()
        return builder.call(builder.inttoptr(args[0], kind), [args[1]])

    return types.int64(types.int64, types.int64), codegen

