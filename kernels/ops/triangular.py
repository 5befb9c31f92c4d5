"""Cholesky factors of small matrices, and systems with triangular ones, in batches of C-ordered matrices.

Larger ones are cut into blocks and products by the ops (`linalg.py` of the ops room).
"""

import math
from operator import add, mul

from ..language.abi import STATUS_VALUE, I, T, at, helper, kernel, shifted, words
from ..language.device import instead_of
from ..language.lanes import LANES, combine, load_block, spread, stack, store_block

NOT_POSITIVE, NOT_POSITIVE_IN_BATCH = STATUS_VALUE, 16
MOST = 64  # rows of a matrix that is factorised
STRIP = 64  # right-hand sides that are solved for at once


@helper
def factorise(a, out, begin, n, T):
    """Write the factor of one matrix; the order of the first minor that is not positive, or 0.

    Column by column, each of which is taken off the rest, whose rows are runs of memory. 64 x 64 float64 take
    17 us on a core of an Intel Xeon, 48 by inner products.
    """
    column = stack(T, MOST)
    for i in range(n):
        row = begin + i * n
        for j in range(n):
            out[row + j] = a[row + j] if j <= i else T(0)
    for k in range(n):
        pivot = out[begin + k * n + k]
        if not pivot > T(0):
            return k + 1
        root = math.sqrt(pivot)
        out[begin + k * n + k] = root
        for i in range(k + 1, n):
            column[i] = out[begin + i * n + k] / root
            out[begin + i * n + k] = column[i]
        for i in range(k + 1, n):
            add_masked(shifted(out, begin + i * n), column, k + 1, i + 1, -column[i], T)
    return 0


@helper
def add_masked(out, x, first, last, factor, T):
    """out[first:last] += factor * x[first:last]"""
    every = spread(factor)
    for j in range(first, last, LANES):
        part = min(LANES, last - j)
        more = combine(mul, every, load_block(x, j, part, T(0)))
        store_block(out, j, combine(add, load_block(out, j, part, T(0)), more), part)


@helper
def less_products(total, out, row, other, count):
    """What is left of an element once the columns before are taken off, one after the other."""
    for k in range(count):
        total -= out[row + k] * out[other + k]
    return total


@instead_of(factorise)
def factorise_on_gpu(a, out, begin, n, T):
    """Row by row, without memory of a thread's own; in the order of the CPU, and with its bits."""
    for i in range(n):
        row = begin + i * n
        for j in range(i):
            other = begin + j * n
            out[row + j] = less_products(a[row + j], out, row, other, j) / out[other + j]
        pivot = less_products(a[row + i], out, row, row, i)
        if not pivot > T(0):
            return i + 1
        out[row + i] = math.sqrt(pivot)
        for j in range(i + 1, n):
            out[row + j] = T(0)
    return 0


@kernel
def cholesky(args, start, stop):
    """out = the lower factor of each matrix, info = the order of the minor that is not positive, or 0.

    words: n, the rows in front of these matrices, whether there are several, whether a failure is an error
    """
    p = words(args)
    a, out, info, status = at(p[0], T), at(p[1], T), at(p[2], I), at(p[3], I)
    n, before, several, strict = p[4], p[5], p[6], p[7]
    for unit in range(start, stop):
        failed = factorise(a, out, unit * n * n, n, T)
        info[unit] = failed
        if failed and strict:
            status[0] = NOT_POSITIVE_IN_BATCH if several else NOT_POSITIVE
            status[1], status[2] = before + failed, unit
            return


@kernel
def solve(args, start, stop):
    """out = x where a x = b, for triangular a; a unit is a strip of columns of one right-hand side.

    inputs: a, b; words: n, columns, strips, elements from one a to the next, whether a is an upper one,
    whether its diagonal counts as ones
    """
    p = words(args)
    a, b, out = at(p[0], T), at(p[1], T), at(p[2], T)
    n, columns, strips, step, upper, unit_diagonal = p[3], p[4], p[5], p[6], p[7], p[8]
    for unit in range(start, stop):
        matrix, strip = unit // strips * step, unit % strips * STRIP
        width = min(STRIP, columns - strip)
        begin = unit // strips * n * columns + strip
        for done in range(n):
            i = n - 1 - done if upper else done
            row, first = begin + i * columns, matrix + i * n
            for c in range(width):
                out[row + c] = b[row + c]
            for j in range(i + 1 if upper else 0, n if upper else i):
                factor, other = a[first + j], begin + j * columns
                for c in range(width):
                    out[row + c] -= factor * out[other + c]
            if not unit_diagonal:
                pivot = a[first + i]
                for c in range(width):
                    out[row + c] /= pivot
