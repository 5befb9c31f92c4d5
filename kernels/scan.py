"""Running sums, products and extremes along the middle of `outer x length x inner`.

A running float32 sum is kept in float64 (`A`), as the error of a long one would grow with its
length. words of all kernels: length, inner, strip, strips; unit: one strip of columns of one
matrix, walked row by row so that memory is read in order.
"""

import math
from operator import add, mul

from .abi import A, I, T, X, at, helper, kernel, words
from .lanes import combine, stack
from .reduce import strip_of

STRIP = 256


@helper
def accumulate(op, args, start, stop, X, A, T):
    """out[row] = op over the rows up to this one, for each column."""
    p = words(args)
    x, out = at(p[0], X), at(p[1], T)
    length, inner, strip, strips = p[2], p[3], p[4], p[5]
    totals = stack(A, STRIP)
    for unit in range(start, stop):
        first, count = strip_of(unit, length, inner, strip, strips)
        if inner == 1:
            total = A(x[first])
            out[first] = T(total)
            for i in range(first + 1, first + length):
                total = combine(op, total, A(x[i]))
                out[i] = T(total)
            continue
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
def running_extreme(op, args, start, stop, T):
    """The extreme of each column so far and its row; the last of equals, and NaN once met."""
    p = words(args)
    x, values, indices = at(p[0], T), at(p[1], T), at(p[2], I)
    length, inner, strip, strips = p[3], p[4], p[5], p[6]
    for unit in range(start, stop):
        first, count = strip_of(unit, length, inner, strip, strips)
        for i in range(first, first + count):
            values[i] = x[i]
            indices[i] = 0
        for row in range(1, length):
            start_of_row = first + row * inner
            for i in range(start_of_row, start_of_row + count):
                best, value = values[i - inner], x[i]
                # Both the new extreme and its equal come out of the operator as the new value.
                newer = (combine(op, value, best) == value) | (value != value)
                values[i] = value if newer else best
                indices[i] = row if newer else indices[i - inner]


@kernel
def cummax(args, start, stop):
    """values, indices = the largest element of the column down to this row, and its row."""
    running_extreme(max, args, start, stop, T)


@kernel
def cummin(args, start, stop):
    """values, indices = the smallest element of the column down to this row, and its row."""
    running_extreme(min, args, start, stop, T)


@kernel
def logcumsumexp(args, start, stop):
    """out[row, column] = the logarithm of the sum of exponentials down to this row."""
    p = words(args)
    x, out = at(p[0], T), at(p[1], T)
    length, inner, strip, strips = p[2], p[3], p[4], p[5]
    for unit in range(start, stop):
        first, count = strip_of(unit, length, inner, strip, strips)
        for i in range(first, first + count):
            out[i] = x[i]
        for row in range(1, length):
            start_of_row = first + row * inner
            for i in range(start_of_row, start_of_row + count):
                before, value = out[i - inner], x[i]
                high = before if before > value else value
                low = value if before > value else before
                equal_infinities = (high == low) & (high - high != T(0))
                total = high + math.log1p(math.exp(low - high))
                out[i] = high if equal_infinities else total


@kernel
def recurrence(args, start, stop):
    """out[row] = b[row] + a[row] * out[row - 1], for each column; out[-1] is 0."""
    p = words(args)
    a, b, out = at(p[0], T), at(p[1], T), at(p[2], T)
    length, inner, strip, strips = p[3], p[4], p[5], p[6]
    totals = stack(A, STRIP)
    for unit in range(start, stop):
        first, count = strip_of(unit, length, inner, strip, strips)
        for j in range(count):
            totals[j] = A(0)
        for row in range(length):
            i = first + row * inner
            for j in range(count):
                total = A(b[i + j]) + A(a[i + j]) * totals[j]
                totals[j] = total
                out[i + j] = T(total)
