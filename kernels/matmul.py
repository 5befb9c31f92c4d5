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
from .blas import gemm, gemv, shifted
from .lanes import LANES, cast, combine, fold, load, spread

# --------------------------------------------------------------------------- layout of the words

PRODUCT = (
    "gemm", "rows", "columns", "depth",
    "left_row", "left_column", "left_transposed", "left_ld",
    "right_row", "right_column", "right_transposed", "right_ld",
    "bias_row", "bias_column",
    "panel_rows", "panel_columns", "panels_across", "panels", "batch_axes",
)  # fmt: skip
(
    GEMM, ROWS, COLUMNS, DEPTH,
    LEFT_ROW, LEFT_COLUMN, LEFT_TRANSPOSED, LEFT_LD,
    RIGHT_ROW, RIGHT_COLUMN, RIGHT_TRANSPOSED, RIGHT_LD,
    BIAS_ROW, BIAS_COLUMN,
    PANEL_ROWS, PANEL_COLUMNS, PANELS_ACROSS, PANELS, BATCH_AXES,
) = range(len(PRODUCT))  # fmt: skip
BATCH_SIZES = len(PRODUCT)
LEFT, RIGHT, BIAS = 1, 2, 3  # which strides follow the batch sizes

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


# --------------------------------------------------------------------------- BLAS


@kernel
def product(args, start, stop):
    """out = left @ right."""
    p = words(args)
    left, right, out, c = at(p[0], T), at(p[1], T), at(p[2], T), shifted(p, 3)
    rows, columns, panels = c[ROWS], c[COLUMNS], c[PANELS]
    for unit in range(start, stop):
        entry, panel = unit // panels, unit % panels
        i = panel // c[PANELS_ACROSS] * c[PANEL_ROWS]
        j = panel % c[PANELS_ACROSS] * c[PANEL_COLUMNS]
        height, width = min(c[PANEL_ROWS], rows - i), min(c[PANEL_COLUMNS], columns - j)
        first = (entry * rows + i) * columns + j
        if columns == 1 or rows == 1:
            clear(out, first, first + height * width, T(0))
        gemm(
            c[GEMM], c[LEFT_TRANSPOSED], c[RIGHT_TRANSPOSED], height, width, c[DEPTH], T(1),
            shifted(left, batch_offset(c, entry, LEFT) + i * c[LEFT_ROW]), c[LEFT_LD],
            shifted(right, batch_offset(c, entry, RIGHT) + j * c[RIGHT_COLUMN]), c[RIGHT_LD],
            T(0), shifted(out, first), columns,
        )  # fmt: skip


@kernel
def product_and_bias(args, start, stop):
    """out = beta * bias + alpha * left @ right; a beta of 0 does not read the bias."""
    p = words(args)
    left, right, bias, out = at(p[0], T), at(p[1], T), at(p[2], T), at(p[3], T)
    c = shifted(p, 4)
    rows, columns, panels = c[ROWS], c[COLUMNS], c[PANELS]
    scalars = BATCH_SIZES + 4 * c[BATCH_AXES]
    beta, alpha = T(float_of_bits(c[scalars])), T(float_of_bits(c[scalars + 1]))
    for unit in range(start, stop):
        entry, panel = unit // panels, unit % panels
        i = panel // c[PANELS_ACROSS] * c[PANEL_ROWS]
        j = panel % c[PANELS_ACROSS] * c[PANEL_COLUMNS]
        height, width = min(c[PANEL_ROWS], rows - i), min(c[PANEL_COLUMNS], columns - j)
        added = shifted(bias, batch_offset(c, entry, BIAS) + i * c[BIAS_ROW] + j * c[BIAS_COLUMN])
        target = shifted(out, (entry * rows + i) * columns + j)
        for row in range(height):
            source = shifted(added, row * c[BIAS_ROW])
            for column in range(width):
                value = T(0) if beta == T(0) else beta * source[column * c[BIAS_COLUMN]]
                target[row * columns + column] = value
        gemm(
            c[GEMM], c[LEFT_TRANSPOSED], c[RIGHT_TRANSPOSED], height, width, c[DEPTH], alpha,
            shifted(left, batch_offset(c, entry, LEFT) + i * c[LEFT_ROW]), c[LEFT_LD],
            shifted(right, batch_offset(c, entry, RIGHT) + j * c[RIGHT_COLUMN]), c[RIGHT_LD],
            T(1), target, columns,
        )  # fmt: skip


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
    """out = left @ right where BLAS has no say: integers, sizes beyond its own; right by rows."""
    p = words(args)
    left, right, out, c = at(p[0], T), at(p[1], T), at(p[2], T), shifted(p, 3)
    rows, columns, depth, panels = c[ROWS], c[COLUMNS], c[DEPTH], c[PANELS]
    left_column, right_row = c[LEFT_COLUMN], c[RIGHT_ROW]
    for unit in range(start, stop):
        entry, panel = unit // panels, unit % panels
        first = panel * c[PANEL_ROWS]
        last = min(first + c[PANEL_ROWS], rows)
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
