"""Products of matrices and vectors.

A kernel takes any strides, so that a transposed operand costs no copy; only BLAS wants one stride
of a matrix to be 1, which the operation sees to. `out` is dense by rows.

A product is cut into panels of `panel_rows` by `panel_columns`; one unit is one panel of one batch
entry. The operation chooses panels by sizes alone, so every call of BLAS is the same call whatever
the number of threads, and so is every bit of the result. Measured on one core of Zen 4, float32:
panels of 256 x 512 run at 97 % of one call for 1024 x 1024 x 1024. There is no kernel for small
floats: OpenBLAS takes 27 ns for 1 x 1 and overtakes plain loops at 4 x 4.

Constant words of a product, from the first one on (see `PRODUCT`): the address of gemm, the sizes,
where each matrix lies, the panels, then four words for each batch axis.

CPU side below; the CUDA side belongs at the end.
"""

from operator import add, mul

from numba import njit

from .abi import A, T, at, float_of_bits, kernel, words
from .blas import gemv, shifted
from .lanes import LANES, cast, combine, fold, load, spread
from .micro import HEIGHT, LINE_BYTES, PANEL_BYTES, SUM_DEPTH, VECTOR_BYTES, allocated, room
from .runner import call

# --------------------------------------------------------------------------- layout of the words

PRODUCT = (
    "multiply", "pack", "allocate", "release", "size", "step", "panel", "rows", "columns", "depth",
    "left_row", "left_column", "right_row", "right_column", "bias_row", "bias_column",
    "has_bias", "activation", "block", "blocks", "tiles", "batch_axes",
)  # fmt: skip
(
    MULTIPLY, PACK, ALLOCATE, RELEASE, SIZE, STEP, PANEL, ROWS, COLUMNS, DEPTH,
    LEFT_ROW, LEFT_COLUMN, RIGHT_ROW, RIGHT_COLUMN, BIAS_ROW, BIAS_COLUMN,
    HAS_BIAS, ACTIVATION, BLOCK, BLOCKS, TILES, BATCH_AXES,
) = range(len(PRODUCT))  # fmt: skip
BATCH_SIZES = len(PRODUCT)
LEFT, RIGHT, BIAS = 1, 2, 3  # which strides follow the batch sizes

IDENTITY, RELU = range(2)  # activations

DEPTH_BLOCK = 128  # rows of the right operand that stay in cache
COLUMN_BLOCK = 1024
DOT_BLOCK = 4096


@njit
def batch_offset(c, entry, operand):
    """Where a batch entry of an operand begins, from the constant words `c`."""
    axes = c[BATCH_AXES]
    offset = 0
    for axis in range(axes - 1, -1, -1):
        size = c[BATCH_SIZES + axis]
        offset += entry % size * c[BATCH_SIZES + operand * axes + axis]
        entry //= size
    return offset


@njit
def clear(out, start, stop, zero):
    """Zeros for gemv, which in some versions of OpenBLAS multiplies old NaNs by a beta of 0."""
    for i in range(start, stop):
        out[i] = zero


# --------------------------------------------------------------------------- matrices


@njit
def finish(out, bias, bias_step, count, beta, alpha, activation):
    """out = activation(alpha * out + beta * bias) over a line."""
    zero = type(beta)(0)
    for j in range(count):
        value = alpha * out[j] + beta * bias[j * bias_step]
        out[j] = zero if activation == RELU and value < zero else value


@kernel
def product(args, start, stop):
    """out = left @ right, or activation(beta * bias + alpha * (left @ right)); a depth above 0.

    A unit is HEIGHT rows of a block of columns; how units are shared out changes no bit.
    """
    p = words(args)
    c = shifted(p, 4)
    size, rows, columns, depth = c[SIZE], c[ROWS], c[COLUMNS], c[DEPTH]
    width, panel = c[BLOCK], c[PANEL]
    left_row, left_column, right_row, right_column = (
        c[LEFT_ROW], c[LEFT_COLUMN], c[RIGHT_ROW], c[RIGHT_COLUMN]
    )  # fmt: skip
    scalars = BATCH_SIZES + 4 * c[BATCH_AXES]
    beta, alpha = T(float_of_bits(c[scalars])), T(float_of_bits(c[scalars + 1]))
    line = room()
    block = line + LINE_BYTES
    needed = size * width * min(depth, SUM_DEPTH)
    taken = 0
    if needed > PANEL_BYTES:
        taken = allocated(c[ALLOCATE], needed + VECTOR_BYTES)
        if taken != 0:
            block = taken + VECTOR_BYTES - taken % VECTOR_BYTES
        else:  # no memory: one panel at a time
            width = panel
    unit = start
    while unit < stop:
        entry, rest = unit // (c[TILES] * c[BLOCKS]), unit % (c[TILES] * c[BLOCKS])
        first_row, first_column = rest % c[TILES] * HEIGHT, rest // c[TILES] * c[BLOCK]
        count = min(stop - unit, c[TILES] - rest % c[TILES])
        last_row = min(first_row + count * HEIGHT, rows)
        last_column = min(first_column + c[BLOCK], columns)
        a = p[0] + size * batch_offset(c, entry, LEFT)
        b = p[1] + size * batch_offset(c, entry, RIGHT)
        bias = p[2] + size * batch_offset(c, entry, BIAS)
        out = p[3] + size * entry * rows * columns
        j = first_column
        while j < last_column:
            across = min(width, last_column - j)
            in_place = 0  # columns of B that are read once: packing them would not pay
            if right_column == 1 and count == 1:
                in_place = across // panel * panel
            for k in range(0, depth, SUM_DEPTH):
                steps = min(SUM_DEPTH, depth - k)
                b_here = b + size * (k * right_row + j * right_column)
                call(
                    c[PACK],
                    (b_here + size * in_place * right_column, right_column, right_row,
                     across - in_place, steps, block, panel),
                )  # fmt: skip
                for i in range(first_row, last_row, HEIGHT):
                    tall = min(HEIGHT, last_row - i)
                    a_here = a + size * (i * left_row + k * left_column)
                    call(c[PACK], (a_here, left_row, left_column, tall, steps, line, c[STEP]))
                    target = out + size * (i * columns + j)
                    if in_place > 0:
                        call(
                            c[MULTIPLY],
                            (line, b_here, right_row, panel, target, columns,
                             steps, tall, in_place, k),
                        )  # fmt: skip
                    call(
                        c[MULTIPLY],
                        (line, block, panel, panel * steps, target + size * in_place, columns,
                         steps, tall, across - in_place, k),
                    )  # fmt: skip
                    if c[HAS_BIAS] != 0 and k + steps == depth:
                        for r in range(i, i + tall):
                            finish(
                                at(out + size * (r * columns + j), T),
                                at(bias + size * (r * c[BIAS_ROW] + j * c[BIAS_COLUMN]), T),
                                c[BIAS_COLUMN], across, beta, alpha, c[ACTIVATION],
                            )  # fmt: skip
            j += width
        unit += count
    if taken != 0:
        call(c[RELEASE], (taken,))


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
    left, right, out, c = at(p[0], T), at(p[1], T), at(p[3], T), shifted(p, 4)
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
    for block in range(start, stop):
        first = block * DOT_BLOCK
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
        partial[block] = total


@kernel
def dot_total(args, start, stop):
    """out = the sum of the blocks."""
    p = words(args)
    out, partial, length = at(p[2], T), at(p[3], A), p[4]
    total = A(0)
    for block in range((length + DOT_BLOCK - 1) // DOT_BLOCK):
        total = A(total + partial[block])
    out[0] = T(total)
