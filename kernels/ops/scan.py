"""Running sums, products and extremes along the middle of `outer x length x inner`.

A running float32 sum is kept in float64 (`A`), on a GPU as a pair, as the error of a long one would
grow with its length. Words of all kernels: length, inner, strip, strips; unit: one strip of columns of one
matrix, walked row by row so that memory is read in order.
"""

import math
from operator import add, mul

import numpy as np

from ..language.abi import A, I, T, X, at, helper, kernel, quotient, remainder, words
from ..language.device import (
    all_threads,
    barrier,
    block,
    blocks,
    first_unit,
    lane,
    on_device,
    shared,
    shuffle_up,
    thread,
)
from ..language.lanes import combine, stack
from ..math.double_word import add_pairs, multiply_pairs, rounded
from .reduce import strip_of

STRIP = 256
AT_ONCE_AS_VECTORS = 64  # rows whose sums of exponentials are taken side by side
AT_ONCE = 8  # rows whose other elements are multiplied side by side
FEW_ROWS = 4  # matrices, totals or extremes of whose columns are kept in registers side by side
FEW_COLUMNS = 8  # columns below which that takes less time than a row of them at a time


@helper
def accumulate_chains(op, x, out, first, length, step, chains, A, T):
    """out = op over the elements of some columns of matrices up to each of them, side by side: a total waits
    for the one before."""
    totals, apart = stack(A, FEW_ROWS), length * step
    for c in range(chains):
        i = first + c * apart
        totals[c] = A(x[i])
        out[i] = T(totals[c])
    for k in range(1, length):
        for c in range(chains):
            i = first + c * apart + k * step
            totals[c] = combine(op, totals[c], A(x[i]))
            out[i] = T(totals[c])


@helper
def accumulate_columns(op, x, out, start, stop, length, inner, A, T):
    """`accumulate` of a few columns of each matrix, those of some matrices side by side."""
    size = length * inner
    whole = start + (stop - start) // FEW_ROWS * FEW_ROWS
    for unit in range(start, whole, FEW_ROWS):
        for i in range(unit * size, unit * size + inner):
            accumulate_chains(op, x, out, i, length, inner, FEW_ROWS, A, T)
    for unit in range(whole, stop):
        for i in range(unit * size, unit * size + inner):
            accumulate_chains(op, x, out, i, length, inner, 1, A, T)


@helper
def accumulate(op, args, start, stop, X, A, T):
    """out[row] = op over the rows up to this one, for each column."""
    p = words(args)
    x, out = at(p[0], X), at(p[1], T)
    length, inner, strip, strips = p[2], p[3], p[4], p[5]
    if inner == 1:  # told apart, as a step that is known takes a tenth less
        accumulate_columns(op, x, out, start, stop, length, 1, A, T)
        return
    if inner < FEW_COLUMNS:
        accumulate_columns(op, x, out, start, stop, length, inner, A, T)
        return
    totals = stack(A, STRIP)
    for unit in range(start, stop):
        first, count = strip_of(unit, length, inner, strip, strips)
        for j in range(count):
            total = A(x[first + j])
            totals[j] = total
            out[first + j] = T(total)
        for row in range(1, length):
            i = first + row * inner
            for j in range(count):
                total = combine(op, totals[j], A(x[i + j]))
                totals[j] = total
                out[i + j] = T(total)


@kernel
def cumsum(args, start, stop):
    """out[row, column] = the sum of the column down to this row."""
    accumulate(add, args, start, stop, X, A, T)


@kernel
def cumprod(args, start, stop):
    """out[row, column] = the product of the column down to this row."""
    accumulate(mul, args, start, stop, X, A, T)


@helper
def others_side_by_side(x, out, first, length, step, chains, apart, totals, A, T):
    """The products of all elements but each one, of chains side by side: a product waits for the one before."""
    for chain in range(chains):
        totals[chain] = A(1)
    for k in range(length):
        for chain in range(chains):
            i = first + k * step + chain * apart
            out[i] = T(totals[chain])
            totals[chain] *= A(x[i])
    for chain in range(chains):
        totals[chain] = A(1)
    for k in range(length - 1, -1, -1):
        for chain in range(chains):
            i = first + k * step + chain * apart
            out[i] = T(A(out[i]) * totals[chain])
            totals[chain] *= A(x[i])


@kernel
def products_of_others(args, start, stop):
    """out[row, column] = the product of the column's elements but this one."""
    p = words(args)
    x, out = at(p[0], T), at(p[1], T)
    length, inner, strip, strips = p[2], p[3], p[4], p[5]
    totals = stack(A, STRIP)
    if inner < FEW_COLUMNS:
        size = length * inner
        whole = start + (stop - start) // AT_ONCE * AT_ONCE
        for unit in range(start, whole, AT_ONCE):
            for i in range(unit * size, unit * size + inner):
                others_side_by_side(x, out, i, length, inner, AT_ONCE, size, totals, A, T)
        for unit in range(whole, stop):
            for i in range(unit * size, unit * size + inner):
                others_side_by_side(x, out, i, length, inner, 1, size, totals, A, T)
        return
    for unit in range(start, stop):
        first, count = strip_of(unit, length, inner, strip, strips)
        others_side_by_side(x, out, first, length, inner, count, 1, totals, A, T)


@helper
def at_least(value, best):
    """Whether an element is the largest so far; none is after a NaN."""
    return value >= best


@helper
def at_most(value, best):
    """Whether an element is the smallest so far."""
    return value <= best


@helper
def extremes_of_chains(op, x, values, indices, first, length, step, chains, T):
    """`running_extreme` of columns of some matrices side by side: each extreme waits for the one before."""
    best, place, apart = stack(T, FEW_ROWS), stack(I, FEW_ROWS), length * step
    for c in range(chains):
        i = first + c * apart
        values[i] = best[c] = x[i]
        indices[i] = place[c] = 0
    for k in range(1, length):
        for c in range(chains):
            i = first + c * apart + k * step
            value = x[i]
            newer = op(value, best[c]) | (value != value)
            best[c] = value if newer else best[c]
            place[c] = k if newer else place[c]
            values[i] = best[c]
            indices[i] = place[c]


@helper
def extremes_of_columns(op, x, values, indices, start, stop, length, inner, T):
    """`running_extreme` of a few columns of each matrix, those of some matrices side by side."""
    size = length * inner
    whole = start + (stop - start) // FEW_ROWS * FEW_ROWS
    for unit in range(start, whole, FEW_ROWS):
        for i in range(unit * size, unit * size + inner):
            extremes_of_chains(op, x, values, indices, i, length, inner, FEW_ROWS, T)
    for unit in range(whole, stop):
        for i in range(unit * size, unit * size + inner):
            extremes_of_chains(op, x, values, indices, i, length, inner, 1, T)


@helper
def running_extreme(op, args, start, stop, T):
    """The extreme of each column so far and its row; the last of equals, and NaN once met."""
    p = words(args)
    x, values, indices = at(p[0], T), at(p[1], T), at(p[2], I)
    length, inner, strip, strips = p[3], p[4], p[5], p[6]
    if inner == 1:
        extremes_of_columns(op, x, values, indices, start, stop, length, 1, T)
        return
    if inner < FEW_COLUMNS:
        extremes_of_columns(op, x, values, indices, start, stop, length, inner, T)
        return
    for unit in range(start, stop):
        first, count = strip_of(unit, length, inner, strip, strips)
        for i in range(first, first + count):
            values[i] = x[i]
            indices[i] = 0
        for row in range(1, length):
            start_of_row = first + row * inner
            for i in range(start_of_row, start_of_row + count):
                best, value = values[i - inner], x[i]
                newer = op(value, best) | (value != value)
                values[i] = value if newer else best
                indices[i] = row if newer else indices[i - inner]


@kernel
def cummax(args, start, stop):
    """values, indices = the largest element of the column down to this row, and its row."""
    running_extreme(at_least, args, start, stop, T)


@kernel
def cummin(args, start, stop):
    """values, indices = the smallest element of the column down to this row, and its row."""
    running_extreme(at_most, args, start, stop, T)


@helper
def log_sums_of_chains(log1p, exp, x, out, first, length, step, chains, apart, totals, T):
    """`logcumsumexp` of chains side by side, as vectors."""
    for chain in range(chains):
        i = first + chain * apart
        totals[chain] = x[i]
        out[i] = x[i]
    for k in range(1, length):
        for chain in range(chains):
            i = first + k * step + chain * apart
            before, value = totals[chain], x[i]
            high = before if before > value else value
            low = value if before > value else before
            equal_infinities = (high == low) & (high - high != T(0))
            total = high + log1p(exp(low - high))
            totals[chain] = high if equal_infinities else total
            out[i] = totals[chain]


@kernel
def logcumsumexp(args, start, stop):
    """out[row, column] = the logarithm of the sum of exponentials down to this row."""
    p = words(args)
    x, out = at(p[0], T), at(p[1], T)
    length, inner, strip, strips = p[2], p[3], p[4], p[5]
    totals = stack(T, STRIP)
    if inner < FEW_COLUMNS:
        size = length * inner
        for unit in range(start, stop, AT_ONCE_AS_VECTORS):
            chains = min(AT_ONCE_AS_VECTORS, stop - unit)
            for i in range(unit * size, unit * size + inner):
                log_sums_of_chains(
                    math.log1p, math.exp, x, out, i, length, inner, chains, size, totals, T
                )
        return
    for unit in range(start, stop):
        first, count = strip_of(unit, length, inner, strip, strips)
        log_sums_of_chains(math.log1p, math.exp, x, out, first, length, inner, count, 1, totals, T)


@helper
def recur(a, b, out, first, length, step, chains, apart, totals, A, T):
    """`recurrence` of chains side by side: each element waits for the one before."""
    for chain in range(chains):
        totals[chain] = A(0)
    for k in range(length):
        for chain in range(chains):
            i = first + k * step + chain * apart
            totals[chain] = A(b[i]) + A(a[i]) * totals[chain]
            out[i] = T(totals[chain])


@kernel
def recurrence(args, start, stop):
    """out[row] = b[row] + a[row] * out[row - 1], for each column; out[-1] is 0."""
    p = words(args)
    a, b, out = at(p[0], T), at(p[1], T), at(p[2], T)
    length, inner, strip, strips = p[3], p[4], p[5], p[6]
    totals = stack(A, STRIP)
    if inner < FEW_COLUMNS:
        size = length * inner
        whole = start + (stop - start) // AT_ONCE * AT_ONCE
        for unit in range(start, whole, AT_ONCE):
            for i in range(unit * size, unit * size + inner):
                recur(a, b, out, i, length, inner, AT_ONCE, size, totals, A, T)
        for unit in range(whole, stop):
            for i in range(unit * size, unit * size + inner):
                recur(a, b, out, i, length, inner, 1, size, totals, A, T)
        return
    for unit in range(start, stop):
        first, count = strip_of(unit, length, inner, strip, strips)
        recur(a, b, out, first, length, inner, count, 1, totals, A, T)


# --------------------------------------------------------------------------- CUDA

# A block has a strip. Where it is one row, its threads scan that together, and sums have an order of
# their own; else each thread walks down a column. Totals are pairs, not float64.
THREADS, WARPS_OF_BLOCK = 256, 8
IN_A_ROW = 4  # elements that a thread has of a row at a time


@helper
def scan_row(op, start, x, out, first, length, totals, rests, T):
    """out = op over the elements of a row up to each of them; `start` changes nothing.

    A thread has a few neighbours, a warp scans what they make, and `totals` and `rests` are those of
    the warps.
    """
    none = T(0)
    carry, carry_rest, warp = start, none, thread() // 32
    for chunk in range(0, length, THREADS * IN_A_ROW):
        here = chunk + thread() * IN_A_ROW
        upto, rest = start, none
        for e in range(IN_A_ROW):
            if here + e < length:
                upto, rest = op(upto, rest, T(x[first + here + e]), none)
        for k in range(5):
            by = np.int32(1 << k)
            before, before_rest = shuffle_up(upto, by), shuffle_up(rest, by)
            if lane() >= 1 << k:
                upto, rest = op(before, before_rest, upto, rest)
        running, running_rest = shuffle_up(upto, np.int32(1)), shuffle_up(rest, np.int32(1))
        if lane() == 0:
            running, running_rest = start, none
        if lane() == 31:
            totals[warp], rests[warp] = upto, rest
        barrier()
        before, before_rest = carry, carry_rest
        for w in range(WARPS_OF_BLOCK):
            if w < warp:
                before, before_rest = op(before, before_rest, totals[w], rests[w])
            carry, carry_rest = op(carry, carry_rest, totals[w], rests[w])
        barrier()
        running, running_rest = op(before, before_rest, running, running_rest)
        for e in range(IN_A_ROW):
            if here + e < length:
                running, running_rest = op(running, running_rest, T(x[first + here + e]), none)
                out[first + here + e] = rounded(running, running_rest)


@helper
def accumulate_by_blocks(op, start, totals, rests, row, n, X, T):
    """out[row] = op over the rows up to this one, for each column."""
    x, out = at(row[0], X), at(row[1], T)
    length, inner, strip, strips = row[2], row[3], row[4], row[5]
    for unit in range(block(), n, blocks()):
        first, count = strip_of(unit, length, inner, strip, strips)
        if inner == 1:
            scan_row(op, start, x, out, first, length, totals, rests, T)
        else:
            for j in range(thread(), count, THREADS):
                total, rest = T(x[first + j]), T(0)
                out[first + j] = total
                for k in range(1, length):
                    total, rest = op(total, rest, T(x[first + k * inner + j]), T(0))
                    out[first + k * inner + j] = rounded(total, rest)


@on_device(cumsum)
def cumsum_by_blocks(row, n):
    """out[row, column] = the sum of the column down to this row."""
    accumulate_by_blocks(add_pairs, T(-0.0), shared(T, 8), shared(T, 8), row, n, X, T)


@on_device(cumprod)
def cumprod_by_blocks(row, n):
    """out[row, column] = the product of the column down to this row."""
    accumulate_by_blocks(multiply_pairs, T(1), shared(T, 8), shared(T, 8), row, n, X, T)


@on_device(recurrence, units=16)
def recurrence_by_threads(row, n):
    """out[row] = b[row] + a[row] * out[row - 1], for each column; a thread walks down a column."""
    a, b, out = at(row[0], T), at(row[1], T), at(row[2], T)
    length, inner, strips = row[3], row[4], row[6]
    for column in range(first_unit(), quotient(n, strips) * inner, all_threads()):
        i = quotient(column, inner) * length * inner + remainder(column, inner)
        total, rest = T(0), T(0)
        for _ in range(length):
            total, rest = multiply_pairs(a[i], T(0), total, rest)
            total, rest = add_pairs(b[i], T(0), total, rest)
            out[i] = rounded(total, rest)
            i += inner


@helper
def later(op, best, place, value, index):
    """Of two extremes and their places the one that counts, the second one being further on; a place
    below 0 is none."""
    is_new = (place < 0) | (combine(op, value, best) == value) | (value != value)
    if index < 0 or not is_new:
        value, index = best, place
    return value, index


@helper
def scan_extremes(op, x, values, indices, first, length, best, places, T):
    """As `scan_row`, for the extreme of a row up to each of its elements and the place of it."""
    carry, carried, warp = T(0), I(-1), thread() // 32
    for chunk in range(0, length, THREADS * IN_A_ROW):
        here = chunk + thread() * IN_A_ROW
        value, place = T(0), I(-1)
        for e in range(IN_A_ROW):
            if here + e < length:
                value, place = later(op, value, place, x[first + here + e], I(here + e))
        for k in range(5):
            by = np.int32(1 << k)
            before, index = shuffle_up(value, by), shuffle_up(place, by)
            if lane() >= 1 << k:
                value, place = later(op, before, index, value, place)
        if lane() == 31:
            best[warp], places[warp] = value, place
        value, place = shuffle_up(value, np.int32(1)), shuffle_up(place, np.int32(1))
        if lane() == 0:
            place = I(-1)
        barrier()
        before, index = carry, carried
        for w in range(WARPS_OF_BLOCK):
            if w < warp:
                before, index = later(op, before, index, best[w], places[w])
            carry, carried = later(op, carry, carried, best[w], places[w])
        barrier()
        value, place = later(op, before, index, value, place)
        for e in range(IN_A_ROW):
            if here + e < length:
                value, place = later(op, value, place, x[first + here + e], I(here + e))
                values[first + here + e] = value
                indices[first + here + e] = place


@helper
def extremes_by_blocks(op, best, places, row, n, T):
    """The extreme of each column so far and its row."""
    x, values, indices = at(row[0], T), at(row[1], T), at(row[2], I)
    length, inner, strip, strips = row[3], row[4], row[5], row[6]
    for unit in range(block(), n, blocks()):
        first, count = strip_of(unit, length, inner, strip, strips)
        if inner == 1:
            scan_extremes(op, x, values, indices, first, length, best, places, T)
        else:
            for j in range(thread(), count, THREADS):
                value, place = T(0), I(-1)
                for k in range(length):
                    here = first + k * inner + j
                    value, place = later(op, value, place, x[here], I(k))
                    values[here] = value
                    indices[here] = place


@on_device(cummax)
def cummax_by_blocks(row, n):
    """values, indices = the largest element of the column down to this row, and its row."""
    extremes_by_blocks(max, shared(T, 8), shared(I, 8), row, n, T)


@on_device(cummin)
def cummin_by_blocks(row, n):
    """values, indices = the smallest element of the column down to this row, and its row."""
    extremes_by_blocks(min, shared(T, 8), shared(I, 8), row, n, T)
