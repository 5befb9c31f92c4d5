"""Products of matrices and vectors.

Products of floating matrices run on the tiles of `gemm_tile.py`, of any strides and sizes. The kernels
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
BLAS would be the better choice here.

Constant words of a product, from the first one on (see `PRODUCT`): how to get memory and where it is kept
for the next product, the sizes, strides in elements, how the result is cut, then four words for each
batch axis.

CPU side below, the CUDA side at the end.
"""

import math
from collections.abc import Callable
from operator import add, mul
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from ..language.abi import A, T, at, helper, kernel, quotient, remainder, scalar, shifted, words
from ..language.device import (
    WIDE,
    aligned,
    barrier,
    block,
    blocks,
    give_wide,
    local,
    on_device,
    shared,
    thread,
)
from ..language.lanes import LANES, cast, combine, fold, load, spread
from ..language.processor import FUSED, MASKS_STORES, VECTOR_BYTES
from .gemm_tile import (
    BLOCK_BYTES,
    HEIGHT,
    I64,
    PANEL_STAYS,
    STRIP,
    SUM_DEPTH,
    WIDTH,
    TileCode,
    TileNumber,
    apart,
    emit_multiply,
    emit_pack,
    emit_pack_strips,
    rows_of,
    strip_bytes,
    transposed,
)
from .gemm_tile_cuda import (
    BF16,
    EXACT,
    PAD,
    SIDE,
    TF32,
    brought,
    fetch,
    multiply_step,
    multiply_step_on_tensor_cores,
    place_of_tile,
    put_down,
    rounded,
    tensor_place,
    threads_place,
)
from .shape import offset_of
from .sort import size_of

# --------------------------------------------------------------------------- layout of the words

PRODUCT = (
    "allocate", "release", "kept", "rows", "columns", "depth",
    "left_row", "left_column", "right_row", "right_column", "bias_row", "bias_column",
    "activation", "precision", "scaled", "paired", "block", "blocks", "tiles", "batch_axes",
)  # fmt: skip
(
    ALLOCATE, RELEASE, KEPT, ROWS, COLUMNS, DEPTH,
    LEFT_ROW, LEFT_COLUMN, RIGHT_ROW, RIGHT_COLUMN, BIAS_ROW, BIAS_COLUMN,
    ACTIVATION, PRECISION, SCALED, PAIRED, BLOCK, BLOCKS, TILES, BATCH_AXES,
) = range(len(PRODUCT))  # fmt: skip
BATCH_SIZES = len(PRODUCT)
LEFT, RIGHT, BIAS = 1, 2, 3  # which strides follow the batch sizes

IDENTITY, RELU = range(2)  # activations
FULL = EXACT  # precisions of float32: this, or TF32 and BF16 of a GPU's tensor cores

UNIT_ROWS = 4  # so that threads get equal shares; a call of many units makes tiles of HEIGHT
# Bytes between the lines of an operand that may be read where it lies, and rows that may read any. With
# AVX2 a panel has one line of a cache of each, and lines 1024 apart share four sets: 256 x 256 came to 80
# GFLOP/s on Zen 3, packed to 95; 12 x 1024 by 1024 x 200 comes to 77 in place and to 52 packed. With AVX-512
# lines 2048 apart are too many pages: 512 x 512 came to 92 GFLOP/s on a Skylake, packed to 120.
IN_PLACE, READS = (1024, HEIGHT) if MASKS_STORES else (960, 4 * HEIGHT)
FAR_APART = 256  # bytes between steps of dense columns, whose lines a strip reads a few numbers of
FEW_ROWS = 6  # dense ones that a strip may read at any distance, unless they lie SHARED_BYTES apart
CACHE_LINE = 64  # bytes
# Few rows are done before B has come, and B comes fastest along its lines: SWEEP of them are read side by side,
# over all panels, and sums wait in memory. Where columns are dense, these are rows of a product that is turned
# afterwards, TURNED at a time. One thread of an Intel Xeon, GFLOP/s packed and so: 8 x 1024 by 1024 x 1024 55
# and 82 (transposed 49 and 61, MKL 99 and 39), 16 x 512 by 512 x 2048 94 and 117 (95 and 121, MKL 122 and 88),
# 64 x 512 by 512 x 512 162 and 181 (139 and 186, MKL 170 to 196 and 148 to 159); of 96 rows only turning gains.
FEW_SWEPT, FEW_TURNED, SWEEP, TURNED = 64, 128, 64, 48
# Between lines, which are read where they lie if they are shorter.
LONG_BYTES = 1024 if MASKS_STORES else 2048
FAR_BYTES = 1 << 21  # of B that no second cache holds: turning pays although vectors are half empty
# Between lines that share a set or two of a first cache beside a panel: on Zen 4 a tile of 256 steps, of 1536
# cycles at best, took 2731 from lines 2048 apart and takes 1580 from a packed strip.
SHARED_BYTES = 2048
FEW_PANELS = 8  # read from a strip, which is not worth packing for them where it is dense
STRIPS = 12  # packed at a time: read along the lines of a transposed operand, and a quarter of a second cache
# Of a block of the right operand that strips run through panel by panel, since a second cache of 512 KB
# would not hold it beside the rest.
LARGE_BYTES = 1 << 18
KEPT_BLOCKS = 64  # that stay for the next product, as libraries of linear algebra keep theirs
SQUARE_BYTES = WIDTH * VECTOR_BYTES * VECTOR_BYTES // 4  # by which `pack` may write too much
RIGHT_BYTES = SUM_DEPTH * BLOCK_BYTES + SQUARE_BYTES
PACKED_BYTES = RIGHT_BYTES + STRIPS * strip_bytes(8) + VECTOR_BYTES

# Least rows and depth of a product that may be symmetric, for units to be such that it can be shared out.
PAIRED_SIZE = 96

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


def emit(dtype: Any) -> tuple[tuple[str, ...], ir.Module]:
    """The names of `product` and `product_and_bias` for a float dtype, and the module of both."""
    code = TileCode(dtype)
    parts = emit_batch_offset(code), emit_pack(code), emit_pack_strips(code), emit_multiply(code)
    names = tuple(emit_product(code, *parts, has_bias=has_bias) for has_bias in (False, True))
    return names, code.module


def emit_batch_offset(code: TileCode) -> Any:
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


def emit_product(
    code: TileCode, batch_offset: Any, pack: Any, pack_strips: Any, multiply: Any, *, has_bias: bool
) -> str:
    """out = left @ right, or activation(beta * bias + alpha * (left @ right)); a depth above 0.

    A unit is UNIT_ROWS of a block of columns. Units that follow each other share tiles and the
    packed block; how they are shared out among calls changes no bit.

    Where the strides of the right operand are those of the left one turned, a unit is twice UNIT_ROWS with all
    columns. If it is the left one, x @ x.T, half of these come from the beginning and half from the end, so
    that all units have as much to do: they compute what lies below the diagonal and copy it to its mirror.
    """
    f = code.function("product_and_bias" if has_bias else "product", 3, exported=True)
    size = f.size
    args, start, stop = f.args
    left, right, *added, out = (f.word(args, k) for k in range(4 if has_bias else 3))
    c = args + 8 * (4 if has_bias else 3)
    (allocate, release, kept, rows, columns, depth, left_row, left_column, right_row, right_column,
     bias_row, bias_column, activation, _, _, paired, block, blocks, tiles, axes) = (
        f.word(c, k) for k in range(len(PRODUCT))
    )  # fmt: skip
    panel_size = (SUM_DEPTH + f.lanes) * f.panel
    strip, panel, turned = (
        f.stack(nbytes)
        for nbytes in (strip_bytes(size), panel_size * size, TURNED * FEW_TURNED * size)
    )
    is_wide = f.smaller(depth, SUM_DEPTH) * block > SUM_DEPTH * f.panel
    taken = cgutils.alloca_once_value(f.builder, I64(0))
    with f.when(is_wide):
        emit_borrow(f, taken, kept, allocate)
    memory = f.number(f.builder.load(taken))
    is_short, room = memory.equals(0), memory + VECTOR_BYTES - memory % VECTOR_BYTES
    packed = f.choose(is_short, panel, room)
    strips = f.choose(is_short, strip, room + RIGHT_BYTES)
    space = f.choose(is_short, panel_size, RIGHT_BYTES // size)
    # Without memory, one panel and one strip at a time.
    reach = f.choose(f.all(is_wide, is_short), f.panel, block)
    high_if_packed = f.choose(is_short, HEIGHT, STRIPS * HEIGHT)

    def finish(entry: TileNumber, here: TileNumber, i: TileNumber, j: TileNumber, low: TileNumber,
               some: TileNumber) -> None:  # fmt: skip
        if has_bias:
            offset = f.call(batch_offset, c, entry, BIAS) + i * bias_row + j * bias_column
            scalars = c + (axes * 4 + BATCH_SIZES) * 8
            emit_finish(f, here, columns, added[0] + offset * size, bias_row, bias_column, low, some,
                        scalars, activation)  # fmt: skip

    is_paired = paired > 0
    is_symmetric = f.all(is_paired, left.equals(right))  # batches have the same strides too
    sides, middle = f.choose(is_symmetric, 2, 1), f.choose(is_symmetric, (rows + 1) // 2, rows)
    unit_rows = f.choose(is_symmetric, UNIT_ROWS, (paired + 1) * UNIT_ROWS)
    unit_columns = f.choose(is_paired, columns, block)
    # What a symmetric product leaves out, in numbers that leave out nothing of others.
    beyond, from_block = (
        f.choose(is_symmetric, 0, depth + columns + rows),
        f.choose(is_symmetric, -1, 0),
    )
    few_swept, few_turned = (f.choose(is_symmetric, 0, n + 1) for n in (FEW_SWEPT, FEW_TURNED))
    with (
        f.loop((stop + tiles - 1) // tiles, start=start // tiles) as group,
        f.loop(sides) as side,
    ):
        entry, first_column = group // blocks, group % blocks * block
        low = f.larger(start - group * tiles, 0) * unit_rows
        high = f.smaller(stop - group * tiles, tiles) * unit_rows
        is_front = side.equals(0)
        first_row = f.choose(is_front, low, f.larger(rows - high, middle))
        last_row = f.choose(is_front, f.smaller(high, middle), rows - low)
        a = left + f.call(batch_offset, c, entry, LEFT) * size
        b = right + f.call(batch_offset, c, entry, RIGHT) * size
        last_column = f.smaller(f.smaller(first_column + unit_columns, columns), last_row + beyond)
        target = out + entry * rows * columns * size
        few, across = last_row - first_row, last_column - first_column
        in_lanes = (few + (f.lanes - 1)) // f.lanes * f.lanes
        is_swept = f.all(
            few < few_swept, right_column.equals(1), right_row > LONG_BYTES // size,
            depth > SWEEP, f.any(few > READS, depth > 2 * SWEEP), few * across < space + 1,
        )  # fmt: skip
        is_turned = f.all(
            few < few_turned, right_row.equals(1), few > 1, across > few * 2,
            (depth + f.lanes) * in_lanes < space + 1,
            f.any(few * 8 > in_lanes * 7 - 1, depth * columns > FAR_BYTES // size - 1),
        )  # fmt: skip
        here = target + (first_row * columns + first_column) * size
        from_a, from_b = a + first_row * left_row * size, b + first_column * right_column * size
        done = f.choose(is_turned, across, f.choose(is_swept, across // f.panel * f.panel, 0))
        with f.when(is_swept):
            emit_sweep(f, multiply, from_a, left_row, left_column, from_b, right_row, here, columns,
                       few, done, depth, packed)  # fmt: skip
        with f.when(is_turned):
            f.call(pack, from_a, left_row, left_column, few, depth, packed, in_lanes)
            emit_turned(f, multiply, packed, in_lanes, from_b, right_column, turned, here, columns,
                        few, across, depth)  # fmt: skip
        with f.when(done > 0):
            finish(entry, here, first_row, first_column, few, done)
        first_column += done
        # What is read often is packed, and what would share the same lines of a cache.
        reads_b = f.all(
            right_column.equals(1),
            f.any((last_row - first_row) < READS + 1, right_row < IN_PLACE // size + 1),
        )
        with f.loop(last_column, reach, first_column) as j:
            across = f.smaller(last_column - j, reach)
            in_place = f.choose(reads_b, across // f.panel * f.panel, 0)
            is_packed = f.any(
                across > 4 * f.panel,
                f.all(left_column.differs(1), left_row.differs(1)),
                f.larger(left_row, left_column) > IN_PLACE // size,
            )
            if not PANEL_STAYS:
                is_far = f.all(left_row.equals(1), left_column > FAR_APART // size)
                is_packed = f.any(is_packed, f.all(is_far, across > f.panel))
            if HEIGHT <= FEW_ROWS:
                is_packed = f.all(is_packed, left_column.differs(1))
            high, wide = f.number(HEIGHT), reach
            if PANEL_STAYS:
                shares = (left_row * size + CACHE_LINE // 2) % SHARED_BYTES < CACHE_LINE
                is_high = (last_row - first_row) > READS
                shares = f.all(shares, across > FEW_PANELS * f.panel, is_high)
                is_packed = f.any(is_packed, shares)
                is_large = f.smaller(depth, SUM_DEPTH) * across > LARGE_BYTES // size
                high = f.choose(is_large, STRIPS * HEIGHT, HEIGHT)
            high = f.choose(is_packed, high_if_packed, high)
            if PANEL_STAYS:
                wide = f.choose(high > HEIGHT, f.panel, reach)
            # Part 0 of the columns is read in place, part 1 is packed, a few as vectors without gaps.
            rest = across - in_place
            rest_step = (rest + (f.lanes - 1)) // f.lanes * f.lanes
            rest_step = f.smaller(rest_step, f.panel)
            first_part = f.choose(in_place.equals(0), 1, 0)
            parts = f.choose(in_place.equals(across), 1, 2)
            a_row = f.choose(is_packed, 1, left_row)
            a_step = f.choose(is_packed, STRIP, left_column)
            with f.loop(depth, SUM_DEPTH) as k:
                steps = f.smaller(depth - k, SUM_DEPTH)
                b_here = b + (k * right_row + j * right_column) * size
                b_rest = b_here + in_place * right_column * size
                f.call(pack, b_rest, right_column, right_row, rest, steps, packed, rest_step)
                with f.loop(last_row, high, f.larger(first_row, j & from_block)) as i:
                    tall = f.smaller(last_row - i, high)
                    below = i + tall - j + beyond
                    a_here = a + (i * left_row + k * left_column) * size
                    with f.when(is_packed):
                        f.call(pack_strips, a_here, left_row, left_column, tall, steps, strips)
                    a_from = f.choose(is_packed, strips, a_here)
                    a_apart = f.choose(is_packed, strip_bytes(size), left_row * (HEIGHT * size))
                    with f.loop(parts, start=first_part) as part:
                        is_rest = part.equals(1)
                        b_from, b_step, b_panel, first, last = (
                            f.choose(is_rest, *pair)
                            for pair in (
                                (packed, b_here), (rest_step, right_row), (steps * f.panel, f.panel),
                                (in_place, 0), (across, in_place),
                            )
                        )  # fmt: skip
                        last = f.smaller(last, below)
                        with f.loop(last, wide, first) as p, f.loop(tall, HEIGHT) as r:
                            low, some = f.smaller(tall - r, HEIGHT), f.smaller(last - p, wide)
                            here = target + ((i + r) * columns + j + p) * size
                            a_now = a_from + r // HEIGHT * a_apart
                            b_now = b_from + (p - first) // f.panel * b_panel * size
                            with f.when(f.all(a_step.equals(1), some > 4 * f.panel)):
                                emit_look_ahead(f, a_now + a_apart, left_row, steps)
                            f.call(multiply, a_now, a_row, a_step, b_now, b_step, b_panel, here,
                                   columns, steps, low, some, k)  # fmt: skip
                            with f.when((k + steps).equals(depth)):
                                finish(entry, here, i + r, j + p, low, some)
        if not has_bias:
            with f.when(is_symmetric):
                emit_mirror(f, target, columns, first_row, last_row)
    emit_give_back(f, taken, kept)
    with f.when(f.number(f.builder.load(taken)).differs(0)):
        f.call(release, f.number(f.builder.load(taken)))
    f.builder.ret_void()
    return str(f.defined.name)


def emit_sweep(
    f: TileCode, multiply: Any, a: TileNumber, a_row: TileNumber, a_step: TileNumber, b: TileNumber,
    b_row: TileNumber, out: TileNumber, out_row: TileNumber, rows: TileNumber, columns: TileNumber,
    depth: TileNumber, sums: TileNumber,
) -> None:  # fmt: skip
    """out = A @ B for few rows and whole panels of B, of which SWEEP lines at a time are read side by side.

    Between these the sums of SUM_DEPTH products wait in `out`, or else in `sums`, which has its shape.
    """
    size = f.size
    with f.loop(depth, SUM_DEPTH) as k:
        steps, is_first = f.smaller(depth - k, SUM_DEPTH), k.equals(0)
        into, into_row = f.choose(is_first, out, sums), f.choose(is_first, out_row, columns)
        with f.loop(k + steps, SWEEP, k) as s, f.loop(columns, f.panel) as j:
            some, add = f.smaller(k + steps - s, SWEEP), f.choose(s.equals(k), 0, -1)
            with f.loop(rows, HEIGHT) as i:
                low = f.smaller(rows - i, HEIGHT)
                f.call(multiply, a + (i * a_row + s * a_step) * size, a_row, a_step,
                       b + (s * b_row + j) * size, b_row, 0, into + (i * into_row + j) * size,
                       into_row, some, low, f.panel, add)  # fmt: skip
        with f.when(k > 0), f.loop(rows) as i, f.loop(columns, f.lanes) as j:
            place = out + (i * out_row + j) * size
            total = f.builder.fadd(f.load(place), f.load(sums + (i * columns + j) * size))
            f.store(total, place)


def emit_turned(
    f: TileCode, multiply: Any, packed: TileNumber, width: TileNumber, b: TileNumber,
    b_column: TileNumber, made: TileNumber, out: TileNumber, out_row: TileNumber, rows: TileNumber,
    columns: TileNumber, depth: TileNumber,
) -> None:  # fmt: skip
    """out = (B.T @ A.T).T for few rows, which are packed, and dense columns of B, which stay where they are.

    TURNED columns at a time are `made` in memory for TURNED * FEW_TURNED elements, and are turned in registers.
    """
    size = f.size
    with f.loop(columns, TURNED) as j:
        lines = f.smaller(columns - j, TURNED)
        with f.loop(lines, HEIGHT) as i, f.loop(depth, SUM_DEPTH) as k:
            steps, low = f.smaller(depth - k, SUM_DEPTH), f.smaller(lines - i, HEIGHT)
            f.call(multiply, b + ((j + i) * b_column + k) * size, b_column, 1,
                   packed + k * width * size, width, f.panel, made + i * width * size, width, steps, low,
                   rows, k)  # fmt: skip
        with f.loop(rows, f.lanes) as r, f.loop(lines, f.lanes) as i:
            here = made + (i * width + r) * size
            columns_of = transposed(f, [f.load(here + width * (q * size)) for q in range(f.lanes)])
            mask = f.first(lines - i)
            for q, vector in enumerate(columns_of):
                with f.when((rows - r) > q):
                    there = out + ((r + q) * out_row + j + i) * size
                    f.store_some(vector, there, mask, (lines - i) > f.lanes - 1)


def emit_mirror(
    f: TileCode, out: TileNumber, columns: TileNumber, first: TileNumber, last: TileNumber
) -> None:
    """Copy what rows of a square matrix have below its diagonal to the other side."""
    size = f.size
    with f.loop(last, f.lanes, first) as i:
        tall, whole = f.smaller(last - i, f.lanes), i // f.lanes * f.lanes
        rows = rows_of(f, out + i * columns * size, columns, tall, f.lanes)
        mask, is_high = f.first(tall), tall.equals(f.lanes)
        with f.loop(whole, f.lanes) as j:
            turned = transposed(f, [f.load(row + j * size) for row in rows])
            places = apart(f, out + (j * columns + i) * size, columns, f.lanes)
            for vector, place in zip(turned, places, strict=True):
                f.store_some(vector, place, mask, is_high)
        with f.loop(i + tall, start=i) as r, f.loop(r, start=whole) as j:
            value = f.load_one(out + (r * columns + j) * size)
            f.builder.store(value, f.place(out + (j * columns + r) * size, f.scalar))


def emit_borrow(f: TileCode, taken: Any, kept: TileNumber, allocate: TileNumber) -> None:
    """Take memory for a packed block from those that are kept, or allocate it."""
    with f.loop(f.number(KEPT_BLOCKS)) as k, f.when(f.number(f.builder.load(taken)).equals(0)):
        place = f.place(kept + k * 8, I64)
        f.builder.store(f.builder.atomic_rmw("xchg", place, I64(0), "acquire"), taken)
    with f.when(f.number(f.builder.load(taken)).equals(0)):
        f.builder.store(f.call(allocate, PACKED_BYTES).ir, taken)


def emit_give_back(f: TileCode, taken: Any, kept: TileNumber) -> None:
    """Keep memory for the next product where there is room for it; what `taken` says then is left over."""
    with f.loop(f.number(KEPT_BLOCKS)) as k, f.when(f.number(f.builder.load(taken)).differs(0)):
        memory, place = f.builder.load(taken), f.place(kept + k * 8, I64)
        pair = f.builder.cmpxchg(place, I64(0), memory, "release", "monotonic")
        left = f.builder.select(f.builder.extract_value(pair, 1), I64(0), memory)
        f.builder.store(left, taken)


def emit_look_ahead(f: TileCode, a: TileNumber, row: TileNumber, depth: TileNumber) -> None:
    """Ask for HEIGHT dense rows, which come from far away while a tile is computed."""
    with f.loop(f.number(HEIGHT)) as r, f.loop(depth, CACHE_LINE // f.size) as k:
        f.prefetch(a + (r * row + k) * f.size, writes=False)


def emit_finish(
    f: TileCode, out: TileNumber, out_row: TileNumber, bias: TileNumber, bias_row: TileNumber,
    bias_column: TileNumber,
    rows: TileNumber, columns: TileNumber, scalars: TileNumber, activation: TileNumber,
) -> None:  # fmt: skip
    """out = activation(alpha * out + beta * bias), each product rounded."""
    builder = f.builder
    beta, alpha = (
        f.broadcast(f.from_double(builder.load(f.place(scalars + 8 * k, ir.DoubleType()))))
        for k in range(2)
    )
    rectifies = f.broadcast(activation.equals(RELU))

    def finished(old: ir.Value, added: ir.Value) -> ir.Value:
        total = builder.fadd(builder.fmul(alpha, old), builder.fmul(beta, added))
        is_below = builder.fcmp_ordered("<", total, f.zero)
        return builder.select(builder.and_(rectifies, is_below), f.zero, total)

    def whole_row(line: TileNumber, added: Callable[[TileNumber], ir.Value]) -> None:
        # The last vector may overlap the one before it, and is read before that is written.
        behind = (columns - f.lanes) * f.size
        last = finished(f.load(line + behind), added(behind))
        with f.loop(columns // f.lanes * f.lanes, f.lanes) as j:
            along = j * f.size
            f.store(finished(f.load(line + along), added(along)), line + along)
        f.store(last, line + behind)

    is_wide = columns > f.lanes - 1
    with f.either(f.all(bias_column.equals(0), is_wide)) as (one, more):
        with one, f.loop(rows) as r:
            number = f.broadcast(f.load_one(bias + r * bias_row * f.size))
            whole_row(out + r * out_row * f.size, lambda along: number)
        with more, f.either(f.all(bias_column.equals(1), is_wide)) as (whole, some):
            with whole, f.loop(rows) as r:
                source = bias + r * bias_row * f.size
                whole_row(out + r * out_row * f.size, lambda along: f.load(source + along))
            with some, f.loop(rows) as r, f.loop(columns, f.lanes) as j:
                mask = f.first(columns - j)
                place = out + (r * out_row + j) * f.size
                source = bias + (r * bias_row + j * bias_column) * f.size
                total = finished(f.load_some(place, mask), f.gather(source, bias_column, mask))
                f.store_some(total, place, mask, (columns - j) > f.lanes - 1)


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


@intrinsic
def plus_product(typingctx: Any, total: Any, x: Any, y: Any) -> Any:
    """`total + x * y`, rounded as vectors are."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if FUSED:
            return builder.fma(args[1], args[2], args[0])
        return builder.fadd(args[0], builder.fmul(args[1], args[2]))

    return total(total, x, y), codegen


@kernel
def few_by_few(args, start, stop):
    """out = left @ right for batches of matrices of few elements, which fill no vectors; a unit is an entry.

    words: rows, columns, depth; steps from entry to entry, row to row, column to column of left, then of right
    """
    p = words(args)
    left, right, out = at(p[0], T), at(p[1], T), at(p[2], T)
    rows, columns, depth, left_entry, left_row, left_column = p[3], p[4], p[5], p[6], p[7], p[8]
    right_entry, right_row, right_column = p[9], p[10], p[11]
    for entry in range(start, stop):
        target = shifted(out, entry * rows * columns)
        for i in range(rows):
            a = shifted(left, entry * left_entry + i * left_row)
            for j in range(columns):
                b = shifted(right, entry * right_entry + j * right_column)
                total = a[0] * b[0]
                for k in range(1, depth):
                    total = plus_product(total, a[k * left_column], b[k * right_row])
                target[i * columns + j] = total


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

# Tiles of `tiles.py`. A large product has large ones; where there are too few of these for all
# multiprocessors, four times as many small ones run.
ENOUGH_TILES = 128


def tiles_of(tile):
    """The work of a product, from its constant words: its tiles."""

    def count(c):
        tiles = -(-c[ROWS] // tile) * -(-c[COLUMNS] // tile)
        for k in range(c[BATCH_AXES]):
            tiles *= c[BATCH_SIZES + k]
        return tiles

    return count


def is_double(c, letters):
    """Whether a product is one of float64."""
    return letters["T"] == "float64"


def is_large(c, letters):
    """Whether a float32 product has enough large tiles."""
    return letters["T"] == "float32" and tiles_of(128)(c) >= ENOUGH_TILES


def suits_tensor_cores(c, letters):
    """Whether a product is one of float32 that fills most of a large tile."""
    return bool(letters["T"] == "float32" and min(c[ROWS], c[COLUMNS]) > 64)


def is_tf32(c, letters):
    """Whether tensor cores may make a product of numbers rounded to TF32."""
    return c[PRECISION] == TF32 and suits_tensor_cores(c, letters)


def is_bf16(c, letters):
    """Whether tensor cores may make a product of numbers rounded to bfloat16."""
    return c[PRECISION] == BF16 and suits_tensor_cores(c, letters)


# What is the same for all tiles, and read from shared memory.
FACTS = (
    "left_by_depth", "right_by_depth", "left_narrow", "right_narrow", "out_narrow", "axes",
    "left_inner", "right_inner", "left_scale", "right_scale",
)  # fmt: skip
(
    LEFT_BY_DEPTH, RIGHT_BY_DEPTH, LEFT_NARROW, RIGHT_NARROW, OUT_NARROW, AXES,
    LEFT_INNER, RIGHT_INNER, LEFT_SCALE, RIGHT_SCALE,
) = range(len(FACTS))  # fmt: skip


@helper
def narrow(x, line, along, c, operand, T):
    """0 if x[i * line + k * along] can be read in accesses of 16 bytes in all batch entries, else 1."""
    count = WIDE // size_of(T)
    uneven = line % count if along == 1 else along % count
    if line != 1 and along != 1:
        uneven = 1
    for axis in range(c[BATCH_AXES]):
        uneven |= c[BATCH_SIZES + operand * c[BATCH_AXES] + axis] % count
    return 0 if uneven == 0 and aligned(x, WIDE) else 1


@helper
def entry_offsets(c, entry, axes):
    """Where a batch entry of the left operand, the right one and the bias begins."""
    sizes, total = shifted(c, BATCH_SIZES), c[BATCH_AXES]
    left, right, bias = 0, 0, 0
    for back in range(axes):
        axis = axes - 1 - back
        here, entry = remainder(entry, sizes[axis]), quotient(entry, sizes[axis])
        left += here * sizes[LEFT * total + axis]
        right += here * sizes[RIGHT * total + axis]
        bias += here * sizes[BIAS * total + axis]
    return left, right, bias


@helper
def finish_tile(sums, out, row0, column0, layout, c, k, is_narrow, EACH, V, run, T):
    """Add the sums of SUM_DEPTH products, or the last of them, to this thread's elements of a tile.

    `layout` says how many rows follow each other, how far apart they are and how far the next ones,
    and from how many columns to the next V.
    """
    some, apart, further, columns_apart = layout
    rows, columns = c[ROWS], c[COLUMNS]
    for i in range(EACH):
        row = row0 + i // some * further + i % some * apart
        for part in range(EACH // V):
            column = column0 + part * columns_apart
            here = row * columns + column
            room = min(columns - column, V) if row < rows else 0  # of this run's elements
            old = room if k > 0 else 0
            for e in range(V):
                value = sums[i * EACH + part * V + e]
                sums[i * EACH + part * V + e] = T(0)
                if e < old:
                    value = out[here + e] + value
                run[e] = value
            if room >= V + is_narrow:
                give_wide(out, here, run, 0, V)
            else:
                for e in range(V):
                    if e < room:
                        out[here + e] = run[e]


@helper
def scalars_of(c, T):
    """alpha and beta of a product with a bias, and the least result that stays as it is."""
    numbers = BATCH_SIZES + 4 * c[BATCH_AXES]
    least = T(0) if c[ACTIVATION] == RELU else T(-math.inf)
    return scalar(c[numbers + 1], T), scalar(c[numbers], T), least


@helper
def add_bias(out, row0, column0, layout, c, bias, EACH, V, T):
    """out = activation(alpha * out + beta * bias) for this thread's elements of a tile.

    By itself, as in one with `finish_tile` the sums would no longer fit into registers.
    """
    some, apart, further, columns_apart = layout
    alpha, beta, least = scalars_of(c, T)
    for i in range(EACH):
        row = row0 + i // some * further + i % some * apart
        for j in range(EACH):
            column = column0 + j // V * columns_apart + j % V
            if row < c[ROWS] and column < c[COLUMNS]:
                added = bias[row * c[BIAS_ROW] + column * c[BIAS_COLUMN]]
                value = alpha * out[row * c[COLUMNS] + column] + beta * added
                if value < least:
                    value = T(0)
                out[row * c[COLUMNS] + column] = value


@helper
def product_tiles(
    left,
    right,
    sums,
    operands,
    out,
    bias,
    c,
    n,
    has_bias,
    precision,
    DEEP,
    TILE,
    STEP,
    EACH,
    V,
    fma,
    T,
):
    """Every tile of out = left @ right, or of activation(beta * bias + alpha * (left @ right)).

    A place of a tile holds DEEP neighbours along the depth: one, or two of bfloat16.
    """
    a, b, ahead, behind = local(T, 16), local(T, 8), local(T, 8), local(T, 8)
    facts, buffer = shared(np.int64, 10), STEP * (TILE + PAD)
    wide, high = (c[COLUMNS] + TILE - 1) // TILE, (c[ROWS] + TILE - 1) // TILE
    depth, (down, across) = c[DEPTH], threads_place()
    left_row, left_column, right_row, right_column = (
        c[LEFT_ROW], c[LEFT_COLUMN], c[RIGHT_ROW], c[RIGHT_COLUMN]
    )  # fmt: skip
    if thread() == 0:
        facts[LEFT_BY_DEPTH], facts[RIGHT_BY_DEPTH] = left_column == 1, right_row == 1
        facts[LEFT_NARROW] = narrow(operands[0], left_row, left_column, c, LEFT, T)
        facts[RIGHT_NARROW] = narrow(operands[1], right_column, right_row, c, RIGHT, T)
        facts[OUT_NARROW] = 0 if c[COLUMNS] % V == 0 and aligned(out, WIDE) else 1
        facts[AXES] = c[BATCH_AXES]
        facts[LEFT_INNER] = left_column if left_column == 1 else left_row
        facts[RIGHT_INNER] = right_row if right_row == 1 else right_column
        facts[LEFT_SCALE] = 1 if left_column == 1 else V
        facts[RIGHT_SCALE] = 1 if right_row == 1 else V
    (x_line, x_k), (y_line, y_k) = (
        brought(left_column == 1, TILE, STEP, V), brought(right_row == 1, TILE, STEP, V)
    )  # fmt: skip
    x_k, y_k = x_k * DEEP, y_k * DEEP
    x_first = x_line * left_row + x_k * left_column
    y_first = y_line * right_column + y_k * right_row
    for e in range(EACH * EACH):
        sums[e] = T(0)
    barrier()
    for tile in range(block(), n, blocks()):
        entry, row0, column0 = place_of_tile(tile, wide, high)
        row0, column0 = row0 * TILE, column0 * TILE
        to_left, to_right, _ = entry_offsets(c, entry, facts[AXES])
        to_left, to_right = to_left + row0 * left_row, to_right + column0 * right_column
        rows, columns = c[ROWS] - row0, c[COLUMNS] - column0
        is_inside = down * V < rows and across * V < columns
        x_most, y_most = rows - x_line, columns - y_line
        if facts[LEFT_BY_DEPTH]:
            x_most = V if x_most > 0 else 0
        if facts[RIGHT_BY_DEPTH]:
            y_most = V if y_most > 0 else 0
        for k in range(-STEP * DEEP, depth, STEP * DEEP):
            rest = depth - k - STEP * DEEP
            x = to_left + (k + STEP * DEEP) * left_column + x_first
            y = to_right + (k + STEP * DEEP) * right_row + y_first
            for run in range(DEEP):
                on = run * V if facts[LEFT_BY_DEPTH] else run
                room = min(x_most, (rest - x_k - on) * facts[LEFT_SCALE])
                fetch(ahead, run * V, shifted(operands[0], x + on * left_column), facts[LEFT_INNER],
                      room, facts[LEFT_NARROW], V, T)  # fmt: skip
                on = run * V if facts[RIGHT_BY_DEPTH] else run
                room = min(y_most, (rest - y_k - on) * facts[RIGHT_SCALE])
                fetch(behind, run * V, shifted(operands[1], y + on * right_row), facts[RIGHT_INNER],
                      room, facts[RIGHT_NARROW], V, T)  # fmt: skip
            first = (k // (STEP * DEEP) + 2) % 2 * buffer
            if precision != EXACT:
                rounded(ahead, facts[LEFT_BY_DEPTH], precision, V)
                rounded(behind, facts[RIGHT_BY_DEPTH], precision, V)
                if k >= 0:
                    multiply_step_on_tensor_cores(
                        sums, left, right, first, a, b, precision, TILE, STEP
                    )
            elif is_inside and k >= 0:
                multiply_step(sums, left, right, first, a, b, TILE, STEP, EACH, V, fma)
            put_down(left, buffer - first, ahead, facts[LEFT_BY_DEPTH], TILE, STEP, V)
            put_down(right, buffer - first, behind, facts[RIGHT_BY_DEPTH], TILE, STEP, V)
            barrier()
            if k >= 0 and (rest <= 0 or (k + STEP * DEEP) % SUM_DEPTH == 0):
                target = shifted(out, entry * c[ROWS] * c[COLUMNS])
                begin = k // SUM_DEPTH * SUM_DEPTH
                if precision != EXACT:
                    top, side = tensor_place()
                    finish_tile(sums, target, row0 + top, column0 + side, (2, 8, 16, 8), c, begin,
                                facts[OUT_NARROW], EACH, 2, a, T)  # fmt: skip
                else:
                    top, side = row0 + down * V, column0 + across * V
                    finish_tile(sums, target, top, side, (V, 1, SIDE * V, SIDE * V), c, begin,
                                facts[OUT_NARROW], EACH, V, a, T)  # fmt: skip
        if has_bias:
            target = shifted(out, entry * c[ROWS] * c[COLUMNS])
            _, _, to_bias = entry_offsets(c, entry, facts[AXES])
            if precision != EXACT:
                top, side = tensor_place()
                add_bias(target, row0 + top, column0 + side, (2, 8, 16, 8), c,
                         shifted(bias, to_bias), EACH, 2, T)  # fmt: skip
            else:
                top, side = row0 + down * V, column0 + across * V
                add_bias(target, top, side, (V, 1, SIDE * V, SIDE * V), c,
                         shifted(bias, to_bias), EACH, V, T)  # fmt: skip


def product(args, start, stop):
    """out = left @ right; the CPU's is emitted by `emit`."""


def product_and_bias(args, start, stop):
    """out = activation(beta * bias + alpha * (left @ right)); the CPU's is emitted."""


@on_device(product, work=tiles_of(64), when=is_double)
def product_of_doubles(row, n):
    """out = left @ right in float64."""
    left, right = shared(T, 1152), shared(T, 1152)  # 2 * STEP * (TILE + PAD)
    out = at(row[2], T)
    product_tiles(left, right, local(T, 16), (at(row[0], T), at(row[1], T)), out, out,
                  shifted(row, 3), n, False, EXACT, 1, 64, 8, 4, 2, math.fma, T)  # fmt: skip


@on_device(product, work=tiles_of(128), when=is_tf32)
def product_on_tensor_cores(row, n):
    """out = left @ right in TF32."""
    left, right = shared(T, 2176), shared(T, 2176)
    out = at(row[2], T)
    product_tiles(left, right, local(T, 64), (at(row[0], T), at(row[1], T)), out, out,
                  shifted(row, 3), n, False, TF32, 1, 128, 8, 8, 4, math.fma, T)  # fmt: skip


@on_device(product, work=tiles_of(128), when=is_bf16)
def product_on_tensor_cores_in_bf16(row, n):
    """out = left @ right in bfloat16, summed in float32."""
    left, right = shared(T, 2176), shared(T, 2176)
    out = at(row[2], T)
    product_tiles(left, right, local(T, 64), (at(row[0], T), at(row[1], T)), out, out,
                  shifted(row, 3), n, False, BF16, 2, 128, 8, 8, 4, math.fma, T)  # fmt: skip


@on_device(product, work=tiles_of(128), when=is_large)
def product_by_large_tiles(row, n):
    """out = left @ right."""
    left, right = shared(T, 2176), shared(T, 2176)
    out = at(row[2], T)
    product_tiles(left, right, local(T, 64), (at(row[0], T), at(row[1], T)), out, out,
                  shifted(row, 3), n, False, EXACT, 1, 128, 8, 8, 4, math.fma, T)  # fmt: skip


@on_device(product, work=tiles_of(64))
def product_by_tiles(row, n):
    """out = left @ right."""
    left, right = shared(T, 2304), shared(T, 2304)
    out = at(row[2], T)
    product_tiles(left, right, local(T, 16), (at(row[0], T), at(row[1], T)), out, out,
                  shifted(row, 3), n, False, EXACT, 1, 64, 16, 4, 4, math.fma, T)  # fmt: skip


@on_device(product_and_bias, work=tiles_of(64), when=is_double)
def product_and_bias_of_doubles(row, n):
    """out = activation(beta * bias + alpha * (left @ right)) in float64."""
    left, right, c = shared(T, 1152), shared(T, 1152), shifted(row, 4)
    product_tiles(left, right, local(T, 16), (at(row[0], T), at(row[1], T)), at(row[3], T),
                  at(row[2], T), c, n, True, EXACT, 1, 64, 8, 4, 2, math.fma, T)  # fmt: skip


@on_device(product_and_bias, work=tiles_of(128), when=is_tf32)
def product_and_bias_on_tensor_cores(row, n):
    """out = activation(beta * bias + alpha * (left @ right)) in TF32."""
    left, right, c = shared(T, 2176), shared(T, 2176), shifted(row, 4)
    product_tiles(left, right, local(T, 64), (at(row[0], T), at(row[1], T)), at(row[3], T),
                  at(row[2], T), c, n, True, TF32, 1, 128, 8, 8, 4, math.fma, T)  # fmt: skip


@on_device(product_and_bias, work=tiles_of(128), when=is_bf16)
def product_and_bias_on_tensor_cores_in_bf16(row, n):
    """out = activation(beta * bias + alpha * (left @ right)) in bfloat16, summed in float32."""
    left, right, c = shared(T, 2176), shared(T, 2176), shifted(row, 4)
    product_tiles(left, right, local(T, 64), (at(row[0], T), at(row[1], T)), at(row[3], T),
                  at(row[2], T), c, n, True, BF16, 2, 128, 8, 8, 4, math.fma, T)  # fmt: skip


@on_device(product_and_bias, work=tiles_of(128), when=is_large)
def product_and_bias_by_large_tiles(row, n):
    """out = activation(beta * bias + alpha * (left @ right))."""
    left, right, c = shared(T, 2176), shared(T, 2176), shifted(row, 4)
    product_tiles(left, right, local(T, 64), (at(row[0], T), at(row[1], T)), at(row[3], T),
                  at(row[2], T), c, n, True, EXACT, 1, 128, 8, 8, 4, math.fma, T)  # fmt: skip


@on_device(product_and_bias, work=tiles_of(64))
def product_and_bias_by_tiles(row, n):
    """out = activation(beta * bias + alpha * (left @ right))."""
    left, right, c = shared(T, 2304), shared(T, 2304), shifted(row, 4)
    product_tiles(left, right, local(T, 16), (at(row[0], T), at(row[1], T)), at(row[3], T),
                  at(row[2], T), c, n, True, EXACT, 1, 64, 16, 4, 4, math.fma, T)  # fmt: skip
