"""Softmax, log-softmax, logsumexp and cross-entropy over rows that stay in the cache.

Each row is read once from memory, block by block: the largest element so far, the exponentials and
their sum. Exponentials are written by plain loops, which LLVM vectorises, and summed by lanes in a
fixed order.
"""

import math
from operator import add, mul, sub

from ..language.abi import STATUS_VALUE, I, Row, T, W, at, helper, kernel, shifted, words
from ..language.lanes import (
    LANES,
    ROWS,
    combine,
    load,
    load_over,
    load_some,
    spread,
    spread_as,
    spread_over,
    stack,
    store,
    store_some,
)
from .reduce import SHORT, dot_span, reduce_eight_rows, reduce_span, short_width, strip_of

BLOCK = 1024
STRIP = 64
ROOM = ROWS * SHORT + LANES  # elements of eight short rows, and what a store writes behind them


@helper
def sum_of_exponentials(exp, x, i, count, T):
    """The largest of x[i:i + count], and the sum of exp(x - largest).

    What has been summed is scaled down when a larger element turns up, so that a row need not be
    read twice. Infinities: where all is -inf, the sum is 0; where there is inf, it is NaN.
    """
    powers = stack(T, BLOCK)
    top, total = T(-math.inf), T(0)
    for first in range(0, count, BLOCK):
        size = min(BLOCK, count - first)
        higher = reduce_span(max, x, i + first, i + first + size, top, T)
        base = T(0) if higher == T(-math.inf) else higher
        for k in range(size):
            powers[k] = exp(x[i + first + k] - base)
        if first:
            total *= exp(top - base)
        total += reduce_span(add, powers, 0, size, T(0), T)
        top = higher
    return top, total


@helper
def softmax_row(exp, x, i, out, j, count, T):
    """out[j:] = the exponentials of x[i:i + count] over their sum."""
    top = reduce_span(max, x, i, i + count, x[i], T)
    total = T(0)
    for first in range(0, count, BLOCK):
        last = min(first + BLOCK, count)
        for k in range(first, last):
            out[j + k] = exp(x[i + k] - top)
        total += reduce_span(add, out, j + first, j + last, T(0), T)
    scale = T(1) / total
    for k in range(count):
        out[j + k] *= scale


@helper
def with_each_row(op, x, i, length, width, numbers, out, T):
    """out[:] = `op` of each of eight short rows from x[i] on and of its number; behind those of up to `LANES`
    elements it is written over."""
    if width is None:
        whole = length // LANES * LANES
        for k in range(ROWS):
            number = spread(numbers[k])
            row, made = shifted(x, i + k * length), shifted(out, k * length)
            for j in range(0, whole, LANES):
                store(made, j, combine(op, load(row, j), number))
            if whole < length:
                rest = load_some(row, whole, length - whole, T(0))
                store_some(made, whole, combine(op, rest, number), length - whole)
    else:
        none = spread_over(T(0), width)
        for k in range(ROWS):
            row = load_over(none, x, i + k * length, length)
            store(out, k * length, combine(op, row, spread_as(none, numbers[k])))


@helper
def finish_short_rows(op, x, length, width, numbers, spare, out, T):
    """`with_each_row` where nothing behind the rows is to be written over."""
    if width is None:
        with_each_row(op, x, 0, length, width, numbers, out, T)
    else:
        with_each_row(op, x, 0, length, width, numbers, spare, T)
        for k in range(ROWS * length):
            out[k] = spare[k]


@helper
def add_exponentials(exp, x, i, length, width, bases, moved, powers, totals, T):
    """Eight short rows less a number each, the exponentials of these, and their sums."""
    with_each_row(sub, x, i, length, width, bases, moved, T)
    for k in range(ROWS * length):
        powers[k] = exp(moved[k])
    reduce_eight_rows(add, powers, 0, length, width, totals, 0, T)


@helper
def softmax_short_rows(width, exp, x, out, start, stop, length, T):
    """`softmax_row` for short rows, eight at a time; the first row that is left."""
    numbers, moved, powers = stack(T, ROWS), stack(T, ROOM), stack(T, ROOM)
    row = start
    while row + ROWS <= stop:
        i = row * length
        reduce_eight_rows(max, x, i, length, width, numbers, 0, T)
        add_exponentials(exp, x, i, length, width, numbers, moved, powers, numbers, T)
        for k in range(ROWS):
            numbers[k] = T(1) / numbers[k]
        finish_short_rows(mul, powers, length, width, numbers, moved, shifted(out, i), T)
        row += ROWS
    return row


@kernel
def softmax_rows(args, start, stop):
    """out[row, i] = exp(x[row, i]) over the sum of the row's exponentials."""
    p = words(args)
    x, out, length = at(p[0], T), at(p[1], T), p[2]
    first = start
    if W != 0:
        first = softmax_short_rows(W, math.exp, x, out, start, stop, length, T)
    for row in range(first, stop):
        softmax_row(math.exp, x, row * length, out, row * length, length, T)


softmax_rows.width = short_width
softmax_rows.row = Row(softmax_row, ("exp",), "e", "e", softmax_short_rows)


@helper
def log_softmax_row(exp, log, x, i, out, j, count, T):
    """out[j:] = x[i:i + count] minus the logarithm of the sum of the exponentials."""
    top, total = sum_of_exponentials(exp, x, i, count, T)
    log_total = log(total)
    for k in range(count):
        out[j + k] = (x[i + k] - top) - log_total


@helper
def log_softmax_short_rows(width, exp, log, x, out, start, stop, length, T):
    """`log_softmax_row` for short rows, eight at a time; the first row that is left."""
    numbers, moved, powers = stack(T, ROWS), stack(T, ROOM), stack(T, ROOM)
    row = start
    while row + ROWS <= stop:
        i = row * length
        reduce_eight_rows(max, x, i, length, width, numbers, 0, T)
        add_exponentials(exp, x, i, length, width, numbers, moved, powers, numbers, T)
        for k in range(ROWS):
            numbers[k] = log(numbers[k])
        finish_short_rows(sub, moved, length, width, numbers, powers, shifted(out, i), T)
        row += ROWS
    return row


@kernel
def log_softmax_rows(args, start, stop):
    """out[row, i] = x[row, i] minus the logarithm of the sum of the row's exponentials."""
    p = words(args)
    x, out, length = at(p[0], T), at(p[1], T), p[2]
    first = start
    if W != 0:
        first = log_softmax_short_rows(W, math.exp, math.log, x, out, start, stop, length, T)
    for row in range(first, stop):
        log_softmax_row(math.exp, math.log, x, row * length, out, row * length, length, T)


log_softmax_rows.width = short_width
log_softmax_rows.row = Row(log_softmax_row, ("exp", "log"), "e", "e", log_softmax_short_rows)


@helper
def logsumexp_short_rows(width, exp, log, x, out, start, stop, length, T):
    """`logsumexp_rows` over short rows, eight rows at a time; the first row that is left."""
    tops, totals, moved, powers = stack(T, ROWS), stack(T, ROWS), stack(T, ROOM), stack(T, ROOM)
    row = start
    while row + ROWS <= stop:
        i = row * length
        reduce_eight_rows(max, x, i, length, width, tops, 0, T)
        add_exponentials(exp, x, i, length, width, tops, moved, powers, totals, T)
        for k in range(ROWS):
            totals[k] = log(totals[k])
        for k in range(ROWS):  # one that is infinite, or NaN, is the result
            out[row + k] = totals[k] + tops[k] if tops[k] - tops[k] == T(0) else tops[k]
        row += ROWS
    return row


@kernel
def logsumexp_rows(args, start, stop):
    """out[row] = the logarithm of the sum of the row's exponentials."""
    p = words(args)
    x, out, length = at(p[0], T), at(p[1], T), p[2]
    first = start
    if W != 0:
        first = logsumexp_short_rows(W, math.exp, math.log, x, out, start, stop, length, T)
    for row in range(first, stop):
        top, total = sum_of_exponentials(math.exp, x, row * length, length, T)
        out[row] = math.log(total) + top if top - top == T(0) else top


logsumexp_rows.width = short_width


@helper
def softmax_backward_row(g, i, out, j, gx, k, count, T):
    """gx[k:] = out * (g - sum(g * out)), of `count` elements."""
    mean = dot_span(g, i, out, j, count, T)
    for c in range(count):
        gx[k + c] = out[j + c] * (g[i + c] - mean)


@kernel
def softmax_backward_rows(args, start, stop):
    """gx = out * (g - sum(g * out)) in each row."""
    p = words(args)
    g, out, gx, length = at(p[0], T), at(p[1], T), at(p[2], T), p[3]
    for row in range(start, stop):
        begin = row * length
        softmax_backward_row(g, begin, out, begin, gx, begin, length, T)


softmax_backward_rows.row = Row(softmax_backward_row, (), "ee", "e")


@helper
def log_softmax_backward_row(exp, g, i, out, j, gx, k, count, T):
    """gx[k:] = g - exp(out) * sum(g), of `count` elements."""
    total = reduce_span(add, g, i, i + count, T(0), T)
    for c in range(count):
        gx[k + c] = g[i + c] - exp(out[j + c]) * total


@kernel
def log_softmax_backward_rows(args, start, stop):
    """gx = g - exp(out) * sum(g) in each row."""
    p = words(args)
    g, out, gx, length = at(p[0], T), at(p[1], T), at(p[2], T), p[3]
    for row in range(start, stop):
        begin = row * length
        log_softmax_backward_row(math.exp, g, begin, out, begin, gx, begin, length, T)


log_softmax_backward_rows.row = Row(log_softmax_backward_row, ("exp",), "ee", "e")


# cross-entropy against class indices; rows whose target is `ignored` count for nothing
# words of both steps: classes, ignored, rows, whether to divide by the number of rows that count


@helper
def is_class(wanted, classes, ignored):
    return wanted == ignored or 0 <= wanted < classes


@helper
def loss_of_row(x, begin, wanted, ignored, top, log_total, T):
    return T(0) if wanted == ignored else log_total - (x[begin + wanted] - top)


@helper
def cross_entropy_short_rows(
    width, exp, log, x, target, losses, logs, classes, ignored, start, stop, T
):
    """Losses over short rows of classes, eight rows at a time; the first row that is left, or whose target is
    wrong."""
    tops, totals, moved, powers = stack(T, ROWS), stack(T, ROWS), stack(T, ROOM), stack(T, ROOM)
    row = start
    while row + ROWS <= stop:
        for k in range(row, row + ROWS):
            if not is_class(target[k], classes, ignored):
                return k
        i = row * classes
        reduce_eight_rows(max, x, i, classes, width, tops, 0, T)
        add_exponentials(exp, x, i, classes, width, tops, moved, powers, totals, T)
        for k in range(ROWS):
            totals[k] = log(totals[k])
        for k in range(ROWS):
            logs[row + k] = totals[k] + tops[k]
            wanted, begin = target[row + k], i + k * classes
            losses[row + k] = loss_of_row(x, begin, wanted, ignored, tops[k], totals[k], T)
        row += ROWS
    return row


@helper
def cross_entropy_backward_short_rows(
    width, exp, scale, step, x, target, logs, gx, classes, ignored, start, stop, T
):
    """Gradients over short rows of classes, eight rows at a time; the first row that is left."""
    factors, moved, powers = stack(T, ROWS), stack(T, ROOM), stack(T, ROOM)
    row = start
    while row + ROWS <= stop:
        i = row * classes
        for k in range(ROWS):
            factors[k] = scale[(row + k) * step]
        with_each_row(sub, x, i, classes, width, shifted(logs, row), moved, T)
        for k in range(ROWS * classes):
            powers[k] = exp(moved[k])
        finish_short_rows(mul, powers, classes, width, factors, moved, shifted(gx, i), T)
        for k in range(ROWS):
            wanted, begin = target[row + k], i + k * classes
            if wanted == ignored:
                for j in range(begin, begin + classes):
                    gx[j] = T(0)
            else:
                gx[begin + wanted] -= factors[k]
        row += ROWS
    return row


@kernel
def cross_entropy_rows(args, start, stop):
    """logs[row] = logsumexp of the row, losses[row] = logs[row] - x[row, target[row]]."""
    p = words(args)
    x, target, losses, logs = at(p[0], T), at(p[1], I), at(p[2], T), at(p[3], T)
    status, classes, ignored = at(p[6], I), p[7], p[8]
    first = start
    if W != 0:
        first = cross_entropy_short_rows(
            W, math.exp, math.log, x, target, losses, logs, classes, ignored, start, stop, T
        )
    for row in range(first, stop):
        wanted = target[row]
        if not is_class(wanted, classes, ignored):
            status[0], status[1] = STATUS_VALUE, wanted
            return
        begin = row * classes
        top, total = sum_of_exponentials(math.exp, x, begin, classes, T)
        log_total = math.log(total)
        logs[row] = log_total + top
        losses[row] = loss_of_row(x, begin, wanted, ignored, top, log_total, T)


cross_entropy_rows.width = short_width


@kernel
def cross_entropy_total(args, start, stop):
    """The losses' sum or mean, and what a row's loss was multiplied by."""
    p = words(args)
    target, losses, loss, share = at(p[1], I), at(p[2], T), at(p[4], T), at(p[5], T)
    ignored, rows, averaged = p[8], p[9], p[10]
    counted = 0
    for row in range(rows):
        counted += target[row] != ignored
    total = reduce_span(add, losses, 0, rows, T(0), T)
    loss[0] = total / T(counted) if averaged else total
    share[0] = T(1) / T(counted) if averaged else T(1)


@kernel
def cross_entropy_backward_rows(args, start, stop):
    """gx = scale[row * step] * (softmax of the row - one at the target)."""
    p = words(args)
    scale, x, target, logs, gx = at(p[0], T), at(p[1], T), at(p[2], I), at(p[3], T), at(p[4], T)
    classes, ignored, step = p[5], p[6], p[7]
    first = start
    if W != 0:
        first = cross_entropy_backward_short_rows(
            W, math.exp, scale, step, x, target, logs, gx, classes, ignored, start, stop, T
        )
    for row in range(first, stop):
        begin, end = row * classes, (row + 1) * classes
        wanted, log_total = target[row], logs[row]
        factor = scale[row * step]
        if wanted == ignored:
            for i in range(begin, end):
                gx[i] = T(0)
        else:
            for i in range(begin, end):
                gx[i] = math.exp(x[i] - log_total) * factor
            if 0 <= wanted < classes:  # a GPU comes here whatever was found on the way forward
                gx[begin + wanted] -= factor


cross_entropy_backward_rows.width = short_width


@helper
def column_tops(x, tops, first, length, inner, count):
    """tops[j] = the largest of x[first + row * inner + j] over the rows; NaN if there is one."""
    for j in range(count):
        tops[j] = x[first + j]
    for row in range(1, length):
        i = first + row * inner
        for j in range(count):
            tops[j] = combine(max, tops[j], x[i + j])


# the same along the middle of `outer x length x inner`: a strip of columns stays in the cache
# words: length, inner, strips; unit: one strip of columns of one matrix


@kernel
def softmax_columns(args, start, stop):
    """out[row, column] = exp(x[row, column]) over the sum of the column's exponentials."""
    p = words(args)
    x, out = at(p[0], T), at(p[1], T)
    length, inner, strips = p[2], p[3], p[4]
    tops, totals = stack(T, STRIP), stack(T, STRIP)
    for unit in range(start, stop):
        first, count = strip_of(unit, length, inner, STRIP, strips)
        column_tops(x, tops, first, length, inner, count)
        for j in range(count):
            totals[j] = T(0)
        for row in range(length):
            i = first + row * inner
            for j in range(count):
                power = math.exp(x[i + j] - tops[j])
                out[i + j] = power
                totals[j] += power
        for j in range(count):
            totals[j] = T(1) / totals[j]
        for row in range(length):
            i = first + row * inner
            for j in range(count):
                out[i + j] *= totals[j]


@kernel
def log_softmax_columns(args, start, stop):
    """out[row, column] = x minus the logarithm of the sum of the column's exponentials."""
    p = words(args)
    x, out = at(p[0], T), at(p[1], T)
    length, inner, strips = p[2], p[3], p[4]
    tops, totals = stack(T, STRIP), stack(T, STRIP)
    for unit in range(start, stop):
        first, count = strip_of(unit, length, inner, STRIP, strips)
        column_tops(x, tops, first, length, inner, count)
        for j in range(count):
            totals[j] = T(0)
        for row in range(length):
            i = first + row * inner
            for j in range(count):
                totals[j] += math.exp(x[i + j] - tops[j])
        for j in range(count):
            totals[j] = math.log(totals[j])
        for row in range(length):
            i = first + row * inner
            for j in range(count):
                out[i + j] = (x[i + j] - tops[j]) - totals[j]


@kernel
def softmax_backward_columns(args, start, stop):
    """gx = out * (g - sum(g * out)) in each column."""
    p = words(args)
    g, out, gx = at(p[0], T), at(p[1], T), at(p[2], T)
    length, inner, strips = p[3], p[4], p[5]
    totals = stack(T, STRIP)
    for unit in range(start, stop):
        first, count = strip_of(unit, length, inner, STRIP, strips)
        for j in range(count):
            totals[j] = T(0)
        for row in range(length):
            i = first + row * inner
            for j in range(count):
                totals[j] += g[i + j] * out[i + j]
        for row in range(length):
            i = first + row * inner
            for j in range(count):
                gx[i + j] = out[i + j] * (g[i + j] - totals[j])


@kernel
def log_softmax_backward_columns(args, start, stop):
    """gx = g - exp(out) * sum(g) in each column."""
    p = words(args)
    g, out, gx = at(p[0], T), at(p[1], T), at(p[2], T)
    length, inner, strips = p[3], p[4], p[5]
    totals = stack(T, STRIP)
    for unit in range(start, stop):
        first, count = strip_of(unit, length, inner, STRIP, strips)
        for j in range(count):
            totals[j] = T(0)
        for row in range(length):
            i = first + row * inner
            for j in range(count):
                totals[j] += g[i + j]
        for row in range(length):
            i = first + row * inner
            for j in range(count):
                gx[i + j] = g[i + j] - math.exp(out[i + j]) * totals[j]
