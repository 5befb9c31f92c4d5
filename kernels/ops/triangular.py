"""Cholesky factors of small matrices, and systems with triangular ones, in batches of C-ordered matrices.

Larger ones are cut into blocks and products by the ops (`linalg.py` of the ops room).
"""

import math

from ..language.abi import STATUS_VALUE, I, T, at, helper, kernel, words
from .reduce import dot_span

NOT_POSITIVE, NOT_POSITIVE_IN_BATCH = STATUS_VALUE, 16
STRIP = 64  # right-hand sides that are solved for at once


@helper
def factorise(a, out, begin, n, T):
    """Write the factor of one matrix, row by row; the order of the first minor that is not positive, or 0."""
    for i in range(n):
        row = begin + i * n
        for j in range(i):
            other = begin + j * n
            out[row + j] = (a[row + j] - dot_span(out, row, out, other, j, T)) / out[other + j]
        pivot = a[row + i] - dot_span(out, row, out, row, i, T)
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
