"""A matrix by a vector: memory bounds it, and nothing is packed.

A matrix lies by rows, whose elements are next to each other, or by columns. Each element of the
result is added up in an order that depends on the length of the vector alone, so that the work may
be cut anywhere.

CPU side first, the CUDA side at the end.
"""

import math
from operator import add, mul

from ..language.abi import T, at, call, helper, kernel, shifted, stack_words, words
from ..language.device import block, blocks, on_device, thread
from ..language.lanes import (
    LANES,
    combine,
    combine_four,
    fold,
    load,
    load_four,
    load_some,
    spread,
    stack,
    store,
)
from .conv_tile import TALLEST

# Elements of the vector whose products are added up before the sum goes to the total; columns.
RUN, COLUMN_RUN = 2048, 512
# Rows of fewer elements are added up without lanes: 20000 x 7 float32 takes 39 us, 58 with them.
NARROW = 10
# Rows from which on eight are read at a time, which from memory takes 2.8 ms for 4000 x 4000 float32
# where four take 3.3. Rows of 100 from a cache take 78 us by eights, 69 by fours.
LONG = 1024
# Elements of the result of a matrix by columns that are added up at a time: with 1024 the columns of
# 4000 x 4000 float32, which come from memory, take 3.4 ms for 2.7.
STRIP = 4096
# Elements of the result in a unit of work on such a matrix: at least a line of memory.
COLUMNS_OF_A_UNIT = 16
# Threads take runs of columns where there are at most so many rows for each, or many runs: side by side they
# would read parts of the same lines. 32 x 10000 float32 take two threads 23 us by rows, 12 by runs.
ROWS_OF_A_RUN, MANY_RUNS = 128, 8


@helper
def dot_of_row(row, x, count, T):
    """The sum of row[k] * x[k] for k < count, in the order of `four_rows`."""
    total = spread(T(0))
    whole = count // LANES * LANES
    for k in range(0, whole, LANES):
        total = combine(add, total, combine(mul, load(row, k), load(x, k)))
    rest = count - whole
    if rest:
        a, b = load_some(row, whole, rest, T(0)), load_some(x, whole, rest, T(0))
        total = combine(add, total, combine(mul, a, b))
    return fold(add, total)


@helper
def some_of_four(matrix, i, step, count, T):
    """The first `count` lanes from i on and from three places behind, `step` elements apart."""
    return (
        load_some(matrix, i, count, T(0)),
        load_some(matrix, i + step, count, T(0)),
        load_some(matrix, i + 2 * step, count, T(0)),
        load_some(matrix, i + 3 * step, count, T(0)),
    )


@helper
def add_products(total, rows, x):
    """Four totals and the products of four rows by x, all of them lanes."""
    return combine_four(add, total, combine_four(mul, rows, (x, x, x, x)))


@helper
def add_four(out, i, total):
    """Fold four totals onto out[i : i + 4]."""
    out[i] += fold(add, total[0])
    out[i + 1] += fold(add, total[1])
    out[i + 2] += fold(add, total[2])
    out[i + 3] += fold(add, total[3])


@helper
def four_rows(row, step, x, out, i, count, T):
    """Add row[k] * x[k] for k < count, and those of the three rows behind, to out[i : i + 4]."""
    none = spread(T(0))
    total = none, none, none, none
    whole = count // LANES * LANES
    for k in range(0, whole, LANES):
        total = add_products(total, load_four(row, k, step, T), load(x, k))
    rest = count - whole
    if rest:
        last = load_some(x, whole, rest, T(0))
        total = add_products(total, some_of_four(row, whole, step, rest, T), last)
    add_four(out, i, total)


@helper
def eight_rows(row, step, x, out, i, count, T):
    """The same for eight rows: more of them are on their way from memory at a time."""
    none = spread(T(0))
    upper = none, none, none, none
    lower = upper
    below = shifted(row, 4 * step)
    whole = count // LANES * LANES
    for k in range(0, whole, LANES):
        factor = load(x, k)
        upper = add_products(upper, load_four(row, k, step, T), factor)
        lower = add_products(lower, load_four(below, k, step, T), factor)
    rest = count - whole
    if rest:
        last = load_some(x, whole, rest, T(0))
        upper = add_products(upper, some_of_four(row, whole, step, rest, T), last)
        lower = add_products(lower, some_of_four(below, whole, step, rest, T), last)
    add_four(out, i, upper)
    add_four(out, i + 4, lower)


@helper
def narrow_rows(matrix, step, x, x_step, out, start, stop, count, T):
    """out = matrix @ x where a vector would be half empty."""
    whole = start + (stop - start) // 4 * 4
    for i in range(start, whole, 4):
        row = shifted(matrix, i * step)
        first = second = third = fourth = T(0)
        for k in range(count):
            factor = x[k * x_step]
            first += row[k] * factor
            second += row[step + k] * factor
            third += row[2 * step + k] * factor
            fourth += row[3 * step + k] * factor
        out[i], out[i + 1], out[i + 2], out[i + 3] = first, second, third, fourth
    for i in range(whole, stop):
        row, total = shifted(matrix, i * step), T(0)
        for k in range(count):
            total += row[k] * x[k * x_step]
        out[i] = total


@kernel
def rows_by_vector(args, start, stop):
    """out = matrix @ x for a matrix that lies by rows; a unit is a row."""
    p = words(args)
    matrix, x, out = at(p[0], T), at(p[1], T), at(p[2], T)
    columns, step, x_step = p[4], p[5], p[6]
    if columns < NARROW:
        narrow_rows(matrix, step, x, x_step, out, start, stop, columns, T)
        return
    dense = stack(T, RUN)
    for i in range(start, stop):
        out[i] = T(0)
    for k in range(0, columns, RUN):
        count = min(RUN, columns - k)
        run = shifted(x, k)
        if x_step != 1:
            for m in range(count):
                dense[m] = x[(k + m) * x_step]
            run = dense
        i = start
        while i + 8 <= stop and columns >= LONG:
            eight_rows(shifted(matrix, i * step + k), step, run, out, i, count, T)
            i += 8
        while i + 4 <= stop:
            four_rows(shifted(matrix, i * step + k), step, run, out, i, count, T)
            i += 4
        while i < stop:
            out[i] += dot_of_row(shifted(matrix, i * step + k), run, count, T)
            i += 1


@helper
def sums_of_rows(matrix, step, x, x_step, vectors, out, rows, start, stop, columns, T):
    """out[r, i] = the sum of matrix[i] * x[r] for start <= i < stop and a few r, as `rows_by_vector` sums them.

    Four rows stay in the nearest cache for all vectors.
    """
    for r in range(vectors):
        for i in range(start, stop):
            out[r * rows + i] = T(0)
    for k in range(0, columns, RUN):
        count = min(RUN, columns - k)
        for i in range(start, stop, 4):
            row = shifted(matrix, i * step + k)
            for r in range(vectors):
                vector, sums = shifted(x, r * x_step + k), shifted(out, r * rows)
                if i + 4 <= stop:
                    four_rows(row, step, vector, sums, i, count, T)
                else:
                    for m in range(stop - i):
                        sums[i + m] += dot_of_row(shifted(row, m * step), vector, count, T)


@kernel
def rows_by_vectors(args, start, stop):
    """out[b, r] = matrix[b] @ x[b, r] for a few vectors, matrices that lie by rows and two axes of batches; a
    unit is a row of a matrix."""
    p = words(args)
    matrix, x, out = at(p[0], T), at(p[1], T), at(p[2], T)
    rows, columns, step, x_step, vectors, inner = p[3], p[4], p[5], p[6], p[7], p[8]
    unit = start
    while unit < stop:
        entry, first = unit // rows, unit % rows
        last = min(first + stop - unit, rows)
        above, beside = entry // inner, entry % inner
        sums_of_rows(
            shifted(matrix, above * p[9] + beside * p[10]), step,
            shifted(x, above * p[11] + beside * p[12]), x_step, vectors,
            shifted(out, entry * vectors * rows), rows, first, last, columns, T,
        )  # fmt: skip
        unit += last - first


@helper
def dots_of_rows(p, matrix, columns, out, start, stop):
    """out[i, j] = matrix[i] @ columns[j] for some rows and a few columns, by addresses."""
    size, depth, step, count, apart, panel, tall = p[4], p[5], p[6], p[7], p[8], p[9], p[10]
    lines, targets = stack_words(TALLEST), stack_words(TALLEST)
    segment, nothing = stack_words(2), stack_words(1)
    words(segment)[0], words(segment)[1], words(nothing)[0] = 0, depth * size, 0
    for i in range(start, stop, tall):
        rows = min(tall, stop - i)
        for k in range(rows):
            words(lines)[k] = matrix + (i + k) * step * size
            words(targets)[k] = out + (i + k) * count * size
        for j in range(0, count, panel):
            call(p[3], (
                rows, min(panel, count - j), lines, segment, 1, columns + j * apart * size, 0, targets,
                j * size, 0, apart * size, nothing,
            ))  # fmt: skip


@kernel
def rows_by_columns(args, start, stop):
    """out[b] = matrix[b] @ columns[b] for matrices that lie by rows, a few columns, and two axes of batches.

    A unit is a row of a matrix. What a tile of `dot_tile.py` does for the pixels of a convolution.
    """
    p = words(args)
    size, count, rows, inner = p[4], p[7], p[11], p[12]
    unit = start
    while unit < stop:
        entry, first = unit // rows, unit % rows
        last = min(first + stop - unit, rows)
        above, beside = entry // inner, entry % inner
        matrix = p[0] + (above * p[13] + beside * p[14]) * size
        columns = p[1] + (above * p[15] + beside * p[16]) * size
        dots_of_rows(p, matrix, columns, p[2] + entry * rows * count * size, first, last)
        unit += last - first


@helper
def four_columns(columns, factors):
    """The sum of four columns, each by its factor; lanes of some of their rows."""
    a = combine_four(mul, columns, factors)
    return combine(add, combine(add, a[0], a[1]), combine(add, a[2], a[3]))


@helper
def sum_of_columns(strip, matrix, first, width, x, run, last, step, x_step, T):
    """strip[i] = the sum of matrix[first + i, k] * x[k] for run <= k < last, of `width` rows."""
    whole = width // LANES * LANES
    fours = run + (last - run) // 4 * 4
    for i in range(0, width, LANES):
        store(strip, i, spread(T(0)))
    for k in range(run, fours, 4):
        column = shifted(matrix, first + k * step)
        factor = (
            spread(x[k * x_step]),
            spread(x[(k + 1) * x_step]),
            spread(x[(k + 2) * x_step]),
            spread(x[(k + 3) * x_step]),
        )
        for i in range(0, whole, LANES):
            part = four_columns(load_four(column, i, step, T), factor)
            store(strip, i, combine(add, load(strip, i), part))
        if whole < width:
            rest = width - whole
            part = four_columns(some_of_four(column, whole, step, rest, T), factor)
            store(strip, whole, combine(add, load(strip, whole), part))
    for k in range(fours, last):
        column = shifted(matrix, first + k * step)
        for i in range(width):
            strip[i] += column[i] * x[k * x_step]


@kernel
def columns_by_vector(args, start, stop):
    """out = matrix @ x for a matrix that lies by columns; a unit is COLUMNS_OF_A_UNIT rows."""
    p = words(args)
    matrix, x, out = at(p[0], T), at(p[1], T), at(p[2], T)
    rows, columns, step, x_step = p[3], p[4], p[5], p[6]
    begin, end = start * COLUMNS_OF_A_UNIT, min(stop * COLUMNS_OF_A_UNIT, rows)
    strip = stack(T, STRIP)
    for first in range(begin, end, STRIP):
        width = min(STRIP, end - first)
        for i in range(width):
            out[first + i] = T(0)
        for run in range(0, columns, COLUMN_RUN):
            last = min(run + COLUMN_RUN, columns)
            sum_of_columns(strip, matrix, first, width, x, run, last, step, x_step, T)
            for i in range(width):
                out[first + i] += strip[i]


@kernel
def runs_by_vector(args, start, stop):
    """What `columns_by_vector` adds up, for at most STRIP rows; a unit is COLUMN_RUN columns."""
    p = words(args)
    matrix, x, parts = at(p[0], T), at(p[1], T), at(p[3], T)
    rows, columns, step, x_step = p[4], p[5], p[6], p[7]
    strip = stack(T, STRIP)
    for unit in range(start, stop):
        run = unit * COLUMN_RUN
        last = min(run + COLUMN_RUN, columns)
        sum_of_columns(strip, matrix, 0, rows, x, run, last, step, x_step, T)
        for i in range(rows):
            parts[unit * rows + i] = strip[i]


@kernel
def total_of_runs(args, start, stop):
    """out = the sum of what `runs_by_vector` made; a unit is a row."""
    p = words(args)
    out, parts, rows, columns = at(p[2], T), at(p[3], T), p[4], p[5]
    for i in range(start, stop):
        out[i] = T(0)
    for first in range(0, (columns + COLUMN_RUN - 1) // COLUMN_RUN * rows, rows):
        for i in range(start, stop):
            out[i] += parts[first + i]


# ----- CUDA -----


@on_device(rows_by_vector, threads=128, units=4, work=lambda c: c[0])
def rows_by_vector_on_warps(row, n):
    """out = matrix @ x; a unit is a row, which the lanes of a warp sum."""
    sum_rows_by_warps(row, n, row[5], 1, math.fma, T)


@on_device(columns_by_vector, threads=128, units=4, work=lambda c: c[0])
def columns_by_vector_on_warps(row, n):
    """out = matrix @ x; a unit is a row, which the lanes of a warp sum."""
    sum_rows_by_warps(row, n, 1, row[5], math.fma, T)


@helper
def sum_rows_by_warps(row, n, down, across, fma, T):
    """out[i] = the sum over k of matrix[i * down + k * across] * x[k * step]."""
    matrix, x, out = at(row[0], T), at(row[1], T), at(row[2], T)
    columns, step = row[4], row[6]
    for i in range(block() * 4 + thread() // 32, n, blocks() * 4):
        total = spread(T(0))
        for k in range(thread() % 32, columns, 32):
            total = fma(matrix[i * down + k * across], x[k * step], total)
        out[i] = fold(add, total)
