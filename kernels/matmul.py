"""Products of matrices and vectors.

Products of floating matrices run on the tiles of `micro.py`, of any strides and sizes. The kernels
around them are emitted too. One unit of work is a few rows of a block of columns; units share
nothing but operands, and an element is added up in the same order wherever it is cut.

Measured on one core of Zen 4 (peak 118 GFLOP/s in float32, 59 in float64) beside PyTorch with MKL and
NumPy with OpenBLAS; square products, GFLOP/s, all transpose cases within 5 % of each other here:

              32   64  100  128  192  256  384  512  2048
    float32   75   94   89  105  101  109  108  107   105
    PyTorch   35   77   84   95   91  102   98   98    93
    OpenBLAS  40   93  104   93   96   97   95   98    99
    float64   43   49   50   53   52   55   54   54
    PyTorch   17   32   39   40   51   48   51   44
    OpenBLAS  29   50   54   46   48   49   49   50

PyTorch's and OpenBLAS's figures hold a call from Python, some 1 and 0.4 us. OpenBLAS is ahead where
a last vector is half empty, as at 100, since it has smaller ones too. So there is no size from which
BLAS would be the better choice here, and it is left for products of one row or column: there a
product is bound by memory, packing does not pay, and gemv is 1.3 to 1.7 times as fast as PyTorch.

Constant words of a product, from the first one on (see `PRODUCT`): how to get memory, the sizes,
strides in elements, how the result is cut, then four words for each batch axis.

CPU side below, the CUDA side at the end.
"""

import math
from operator import add, mul
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from .abi import A, T, at, float_of_bits, helper, kernel, words
from .blas import gemv, shifted
from .device import barrier, block, blocks, local, on_device, shared, thread
from .lanes import LANES, cast, combine, fold, load, spread
from .micro import (
    HEIGHT,
    I64,
    SUM_DEPTH,
    VECTOR_BYTES,
    Code,
    Number,
    emit_multiply,
    emit_pack,
    line_width,
    object_code,
)
from .shape import offset_of

# --------------------------------------------------------------------------- layout of the words

PRODUCT = (
    "allocate", "release", "rows", "columns", "depth",
    "left_row", "left_column", "right_row", "right_column", "bias_row", "bias_column",
    "activation", "block", "blocks", "tiles", "batch_axes",
)  # fmt: skip
(
    ALLOCATE, RELEASE, ROWS, COLUMNS, DEPTH,
    LEFT_ROW, LEFT_COLUMN, RIGHT_ROW, RIGHT_COLUMN, BIAS_ROW, BIAS_COLUMN,
    ACTIVATION, BLOCK, BLOCKS, TILES, BATCH_AXES,
) = range(len(PRODUCT))  # fmt: skip
BATCH_SIZES = len(PRODUCT)
LEFT, RIGHT, BIAS = 1, 2, 3  # which strides follow the batch sizes

IDENTITY, RELU = range(2)  # activations

UNIT_ROWS = 4  # so that threads get equal shares; a call of many units makes tiles of HEIGHT
IN_PLACE = 2048  # bytes between the lines of an operand that may be read where it lies

DEPTH_BLOCK = 128  # rows of the right operand that stay in cache
COLUMN_BLOCK = 1024
DOT_BLOCK = 4096


@helper
def batch_offset(c, entry, operand):
    """Where a batch entry of an operand begins, from the constant words `c`."""
    axes, sizes = c[BATCH_AXES], shifted(c, BATCH_SIZES)
    return offset_of(entry, axes, sizes, shifted(sizes, operand * axes))


@helper
def clear(out, start, stop, zero):
    """Zeros for gemv, which in some versions of OpenBLAS multiplies old NaNs by a beta of 0."""
    for i in range(start, stop):
        out[i] = zero


# --------------------------------------------------------------------------- floats


def assemble(dtype: Any) -> tuple[tuple[str, ...], bytes]:
    """The names of `product` and `product_and_bias` for a float dtype, and their object code."""
    code = Code(dtype)
    parts = emit_batch_offset(code), emit_pack(code), emit_multiply(code)
    names = tuple(emit_product(code, *parts, has_bias=has_bias) for has_bias in (False, True))
    return names, object_code(code.module)


def emit_batch_offset(code: Code) -> Any:
    """`batch_offset` in instructions."""
    f = code.function("batch_offset", 3, result=I64)
    c, entry, operand = f.args
    axes = f.word(c, BATCH_AXES)
    offset, rest = (cgutils.alloca_once_value(f.builder, n.ir) for n in (f.number(0), entry))
    with f.loop(axes) as k:
        axis = axes - k + (BATCH_SIZES - 1)
        size, now = f.word(c, axis), f.number(f.builder.load(rest))
        moved = f.number(f.builder.load(offset)) + now % size * f.word(c, operand * axes + axis)
        f.builder.store(moved.ir, offset)
        f.builder.store((now // size).ir, rest)
    f.builder.ret(f.builder.load(offset))
    return f.defined


def emit_product(code: Code, batch_offset: Any, pack: Any, multiply: Any, *, has_bias: bool) -> str:
    """out = left @ right, or activation(beta * bias + alpha * (left @ right)); a depth above 0.

    A unit is UNIT_ROWS of a block of columns. Units that follow each other share tiles and the
    packed block; how they are shared out among calls changes no bit.
    """
    f = code.function("product_and_bias" if has_bias else "product", 3, exported=True)
    size, width = f.size, line_width(f.size)
    args, start, stop = f.args
    left, right, *added, out = (f.word(args, k) for k in range(4 if has_bias else 3))
    c = args + 8 * (4 if has_bias else 3)
    (allocate, release, rows, columns, depth, left_row, left_column, right_row, right_column,
     bias_row, bias_column, activation, block, blocks, tiles, axes) = (
        f.word(c, k) for k in range(len(PRODUCT))
    )  # fmt: skip
    line = f.stack((SUM_DEPTH + f.lanes) * width * size)
    panel = f.stack((SUM_DEPTH + f.lanes) * f.panel * size)
    needed = f.smaller(depth, SUM_DEPTH) * block * size
    is_wide = needed > SUM_DEPTH * f.panel * size
    taken = cgutils.alloca_once_value(f.builder, I64(0))
    with f.when(is_wide):
        f.builder.store(
            f.call(allocate, needed + f.lanes * f.panel * size + VECTOR_BYTES).ir, taken
        )
    memory = f.number(f.builder.load(taken))
    packed = f.choose(memory.equals(0), panel, memory + VECTOR_BYTES - memory % VECTOR_BYTES)
    # Without memory, one panel at a time.
    reach = f.choose(f.all(is_wide, memory.equals(0)), f.panel, block)

    with f.loop((stop + tiles - 1) // tiles, start=start // tiles) as group:
        entry, first_column = group // blocks, group % blocks * block
        first_row = f.larger(start - group * tiles, 0) * UNIT_ROWS
        last_row = f.smaller(f.smaller(stop - group * tiles, tiles) * UNIT_ROWS, rows)
        last_column = f.smaller(first_column + block, columns)
        a = left + f.call(batch_offset, c, entry, LEFT) * size
        b = right + f.call(batch_offset, c, entry, RIGHT) * size
        target = out + entry * rows * columns * size
        # What is read often is packed, and what would share the same lines of a cache.
        reads_b = f.all(
            right_column.equals(1),
            f.any((last_row - first_row) < HEIGHT + 1, right_row < IN_PLACE // size + 1),
        )
        with f.loop(last_column, reach, first_column) as j:
            across = f.smaller(last_column - j, reach)
            in_place = f.choose(reads_b, across // f.panel * f.panel, 0)
            rest, shift = across - in_place, in_place * size
            is_packed = f.any(
                across > 4 * f.panel,
                f.all(left_column.differs(1), left_row.differs(1)),
                f.larger(left_row, left_column) > IN_PLACE // size,
            )
            a_row = f.choose(is_packed, 1, left_row)
            a_step = f.choose(is_packed, width, left_column)
            with f.loop(depth, SUM_DEPTH) as k:
                steps = f.smaller(depth - k, SUM_DEPTH)
                b_here = b + (k * right_row + j * right_column) * size
                b_rest = b_here + shift * right_column
                f.call(pack, b_rest, right_column, right_row, rest, steps, packed, f.panel)
                with f.loop(last_row, HEIGHT, first_row) as i:
                    tall = f.smaller(last_row - i, HEIGHT)
                    a_here = a + (i * left_row + k * left_column) * size
                    with f.when(is_packed):
                        f.call(pack, a_here, left_row, left_column, tall, steps, line, width)
                    lines = f.choose(is_packed, line, a_here)
                    here = target + (i * columns + j) * size
                    f.call(multiply, lines, a_row, a_step, b_here, right_row, f.panel, here,
                           columns, steps, tall, in_place, k)  # fmt: skip
                    f.call(multiply, lines, a_row, a_step, packed, f.panel, steps * f.panel,
                           here + shift, columns, steps, tall, rest, k)  # fmt: skip
                    if has_bias:
                        with f.when((k + steps).equals(depth)):
                            offset = f.call(batch_offset, c, entry, BIAS)
                            offset += i * bias_row + j * bias_column
                            scalars = c + (axes * 4 + BATCH_SIZES) * 8
                            emit_finish(f, here, columns, added[0] + offset * size, bias_row,
                                        bias_column, tall, across, scalars, activation)  # fmt: skip
    with f.when(f.number(f.builder.load(taken)) > 0):
        f.call(release, memory)
    f.builder.ret_void()
    return str(f.defined.name)


def emit_finish(
    f: Code, out: Number, out_row: Number, bias: Number, bias_row: Number, bias_column: Number,
    rows: Number, columns: Number, scalars: Number, activation: Number,
) -> None:  # fmt: skip
    """out = activation(alpha * out + beta * bias), each product rounded."""
    builder = f.builder
    beta, alpha = (
        f.broadcast(f.from_double(builder.load(f.place(scalars + 8 * k, ir.DoubleType()))))
        for k in range(2)
    )
    rectifies = f.broadcast(activation.equals(RELU))
    with f.either(bias_column.equals(1)) as branches:
        for is_dense, branch in zip((True, False), branches, strict=True):
            with branch, f.loop(rows) as r, f.loop(columns, f.lanes) as j:
                mask = f.first(columns - j)
                place = out + (r * out_row + j) * f.size
                source = bias + (r * bias_row + j * bias_column) * f.size
                old = f.load_some(place, mask)
                added = (
                    f.load_some(source, mask) if is_dense else f.gather(source, bias_column, mask)
                )
                total = builder.fadd(builder.fmul(alpha, old), builder.fmul(beta, added))
                is_below = builder.fcmp_ordered("<", total, f.zero)
                total = builder.select(builder.and_(rectifies, is_below), f.zero, total)
                f.store_some(total, place, mask)


# --------------------------------------------------------------------------- vectors


@kernel
def matrix_vector(args, start, stop):
    """out = matrix @ x; a unit is a panel of rows."""
    p = words(args)
    matrix, x, out = at(p[0], T), at(p[1], T), at(p[2], T)
    address, rows, columns, row_step, by_columns, ld, x_step, panel = (
        p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10]
    )  # fmt: skip
    for unit in range(start, stop):
        i = unit * panel
        height = min(panel, rows - i)
        clear(out, i, i + height, T(0))
        gemv(
            address, by_columns, height, columns,
            T(1), shifted(matrix, i * row_step), ld, x, x_step, T(0), shifted(out, i), 1,
        )  # fmt: skip


# --------------------------------------------------------------------------- loops


@kernel
def plain_product(args, start, stop):
    """out = left @ right for integers, and for floats of no depth; right lies by rows."""
    p = words(args)
    left, right, out, c = at(p[0], T), at(p[1], T), at(p[2], T), shifted(p, 3)
    rows, columns, depth, tiles = c[ROWS], c[COLUMNS], c[DEPTH], c[TILES]
    height, left_column, right_row = (rows + tiles - 1) // tiles, c[LEFT_COLUMN], c[RIGHT_ROW]
    for unit in range(start, stop):
        entry = unit // tiles
        first = unit % tiles * height
        last = min(first + height, rows)
        a = shifted(left, batch_offset(c, entry, LEFT))
        b = shifted(right, batch_offset(c, entry, RIGHT))
        target = shifted(out, entry * rows * columns)
        for i in range(first * columns, last * columns):
            target[i] = T(0)
        for j in range(0, columns, COLUMN_BLOCK):
            width = min(COLUMN_BLOCK, columns - j)
            for k in range(0, depth, DEPTH_BLOCK):
                end = min(k + DEPTH_BLOCK, depth)
                for i in range(first, last):
                    total = shifted(target, i * columns + j)
                    for m in range(k, end):
                        factor = a[i * c[LEFT_ROW] + m * left_column]
                        line = shifted(b, m * right_row + j)
                        for column in range(width):
                            total[column] = T(total[column] + factor * line[column])


@kernel
def dot_blocks(args, start, stop):
    """scratch[block] = the dot product over a block of two vectors, in lanes where they are dense.

    The order of addition depends on whether both vectors are dense, never on the threads.
    """
    p = words(args)
    x, y, partial = at(p[0], T), at(p[1], T), at(p[3], A)
    length, x_step, y_step = p[4], p[5], p[6]
    for unit in range(start, stop):
        first = unit * DOT_BLOCK
        last = min(first + DOT_BLOCK, length)
        total = A(0)
        whole = first
        if x_step == 1 and y_step == 1:
            whole = first + (last - first) // LANES * LANES
            sums = spread(A(0))
            for i in range(first, whole, LANES):
                left, right = cast(load(x, i), A), cast(load(y, i), A)
                sums = combine(add, sums, combine(mul, left, right))
            total = fold(add, sums)
        for i in range(whole, last):
            total = A(total + A(x[i * x_step]) * A(y[i * y_step]))
        partial[unit] = total


@kernel
def dot_total(args, start, stop):
    """out = the sum of the blocks."""
    p = words(args)
    out, partial, length = at(p[2], T), at(p[3], A), p[4]
    total = A(0)
    for unit in range((length + DOT_BLOCK - 1) // DOT_BLOCK):
        total = A(total + partial[unit])
    out[0] = T(total)


# --------------------------------------------------------------------------- CUDA

# A block of 256 threads makes a tile of the result, 4 by 4 elements a thread, from tiles of both
# operands in shared memory. Sums go in the order of the CPU's: SUM_DEPTH fused multiply-adds in a
# row, then the sums of such blocks; so their bits are the same.
TILE, STEP = 64, 16  # rows and columns of a tile; the depth that is in shared memory at once
PITCH = TILE + 4  # elements between its lines, against conflicts of banks
SIDE, EACH = 16, 4  # threads along a side of a tile, elements of each


def tiles_of(c):
    """The tiles of a product, from its constant words."""
    count = 1
    for k in range(c[BATCH_AXES]):
        count *= c[BATCH_SIZES + k]
    return count * -(-c[ROWS] // TILE) * -(-c[COLUMNS] // TILE)


@helper
def fetch_tile(tile, x, line, along, lines, depth, T):
    """tile[k, i] = x[i * line + k * along] for i < lines and k < depth, else 0.

    Neighbouring threads read neighbouring elements, whichever axis these lie along.
    """
    for place in range(thread(), TILE * STEP, SIDE * SIDE):
        k, i = place % STEP, place // STEP
        if along != 1:
            k, i = place // TILE, place % TILE
        value = T(0)
        if i < lines and k < depth:
            value = x[i * line + k * along]
        tile[k * PITCH + i] = value


@helper
def tile_product(left, right, totals, sums, c, a, b, fma, T):
    """totals = this thread's elements of the product of `TILE` lines of a and of b."""
    row0, column0, x, y = a[0], b[0], a[1], b[1]
    rows, columns, depth = c[ROWS] - row0, c[COLUMNS] - column0, c[DEPTH]
    left_row, left_column, right_row, right_column = (
        c[LEFT_ROW], c[LEFT_COLUMN], c[RIGHT_ROW], c[RIGHT_COLUMN]
    )  # fmt: skip
    down, across = thread() // SIDE * EACH, thread() % SIDE * EACH
    is_inside = down < rows and across < columns
    for e in range(EACH * EACH):
        totals[e] = T(0)
        sums[e] = T(0)
    for k in range(0, depth, STEP):
        fetch_tile(left, shifted(x, k * left_column), left_row, left_column, rows, depth - k, T)
        fetch_tile(right, shifted(y, k * right_row), right_column, right_row, columns, depth - k, T)
        barrier()
        if is_inside:
            for s in range(STEP):
                for i in range(EACH):
                    for j in range(EACH):
                        sums[i * EACH + j] = fma(
                            left[s * PITCH + down + i],
                            right[s * PITCH + across + j],
                            sums[i * EACH + j],
                        )
        barrier()
        if (k + STEP) % SUM_DEPTH == 0 or k + STEP >= depth:
            for e in range(EACH * EACH):
                totals[e] = sums[e] if k < SUM_DEPTH else totals[e] + sums[e]
                sums[e] = T(0)


@helper
def place_of_tile(tile, c):
    """The batch entry of a tile, its first row and its first column."""
    wide, high = (c[COLUMNS] + TILE - 1) // TILE, (c[ROWS] + TILE - 1) // TILE
    return tile // (wide * high), tile // wide % high * TILE, tile % wide * TILE


def product(args, start, stop):
    """out = left @ right; the CPU's is emitted by `assemble`."""


@on_device(product, work=tiles_of)
def product_by_tiles(row, n):
    """out = left @ right."""
    out, c = at(row[2], T), shifted(row, 3)
    left, right = shared(T, 1088), shared(T, 1088)  # STEP * PITCH
    totals, sums = local(T, 16), local(T, 16)
    for tile in range(block(), n, blocks()):
        entry, row0, column0 = place_of_tile(tile, c)
        a = shifted(at(row[0], T), batch_offset(c, entry, LEFT) + row0 * c[LEFT_ROW])
        b = shifted(at(row[1], T), batch_offset(c, entry, RIGHT) + column0 * c[RIGHT_COLUMN])
        tile_product(left, right, totals, sums, c, (row0, a), (column0, b), math.fma, T)
        for e in range(EACH * EACH):
            i, j = (
                row0 + thread() // SIDE * EACH + e // EACH,
                column0 + thread() % SIDE * EACH + e % EACH,
            )
            if i < c[ROWS] and j < c[COLUMNS]:
                out[(entry * c[ROWS] + i) * c[COLUMNS] + j] = totals[e]


def product_and_bias(args, start, stop):
    """out = activation(beta * bias + alpha * (left @ right)); the CPU's is emitted."""


@on_device(product_and_bias, work=tiles_of)
def product_and_bias_by_tiles(row, n):
    """out = activation(beta * bias + alpha * (left @ right))."""
    out, c = at(row[3], T), shifted(row, 4)
    numbers = BATCH_SIZES + 4 * c[BATCH_AXES]
    beta, alpha = T(float_of_bits(c[numbers])), T(float_of_bits(c[numbers + 1]))
    left, right = shared(T, 1088), shared(T, 1088)  # STEP * PITCH
    totals, sums = local(T, 16), local(T, 16)
    for tile in range(block(), n, blocks()):
        entry, row0, column0 = place_of_tile(tile, c)
        a = shifted(at(row[0], T), batch_offset(c, entry, LEFT) + row0 * c[LEFT_ROW])
        b = shifted(at(row[1], T), batch_offset(c, entry, RIGHT) + column0 * c[RIGHT_COLUMN])
        bias = shifted(at(row[2], T), batch_offset(c, entry, BIAS))
        tile_product(left, right, totals, sums, c, (row0, a), (column0, b), math.fma, T)
        for e in range(EACH * EACH):
            i, j = (
                row0 + thread() // SIDE * EACH + e // EACH,
                column0 + thread() % SIDE * EACH + e % EACH,
            )
            if i < c[ROWS] and j < c[COLUMNS]:
                value = alpha * totals[e] + beta * bias[i * c[BIAS_ROW] + j * c[BIAS_COLUMN]]
                if c[ACTIVATION] == RELU and value < T(0):
                    value = T(0)
                out[(entry * c[ROWS] + i) * c[COLUMNS] + j] = value


@on_device(matrix_vector, threads=128, units=4, work=lambda c: c[1])
def matrix_vector_by_warps(row, n):
    """out = matrix @ x; a unit is a row, which the lanes of a warp sum."""
    matrix, x, out = at(row[0], T), at(row[1], T), at(row[2], T)
    columns, down, by_columns, ld, step = row[5], row[6], row[7], row[8], row[9]
    across = ld if by_columns else 1
    for i in range(block() * 4 + thread() // 32, n, blocks() * 4):
        total = spread(T(0))
        for k in range(thread() % 32, columns, 32):
            total = math.fma(matrix[i * down + k * across], x[k * step], total)
        out[i] = fold(add, total)
