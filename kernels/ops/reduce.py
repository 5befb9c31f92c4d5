"""Sums, products, extremes and moments over rows or columns of C-ordered matrices.

A reduction over any dimensions is brought to `outer x length x inner` by the operation. `*_rows`
reduce where `inner` is 1, `*_columns` reduce over the rows of each matrix, all columns at once.
A long reduction is cut into chunks of a size that depends on the shape alone; a second launch of
the same kernel reduces the chunks' results. `X` is the input's dtype, `T` the accumulator's and
the result's, `A` that of moments.
"""

import math
from operator import add, mul, sub

from ..language.abi import A, I, T, W, X, at, helper, kernel, scalar, shifted, words
from ..language.device import instead_of
from ..language.lanes import (
    LANES,
    ROWS,
    are_numbers,
    cast,
    combine,
    combine_four,
    combine_numbers,
    first_equal,
    fold,
    fold_rows,
    is_extreme,
    load,
    load_four,
    load_over,
    load_some,
    nans_over,
    neutral_of,
    spread,
    spread_over,
    stack,
    store,
    store_halved,
    store_some,
)
from ..language.processor import MASKS_STORES

# Additions that one lane does in a row before its part is added to the lane's total.
RUN = 16 * LANES

# A sum in blocks, each going on where the last stopped, is the same sum: blocks are whole runs.
BLOCK = 2 * RUN

# Elements of a row that is reduced together with seven others: the lanes of all eight are folded at once.
SHORT = 512
SHORT_BYTES = 4 * SHORT  # of one that goes through its steps with them: all stay in the first cache
PARTS = ROWS * ROWS


@helper
def combine_two(op, even, odd, a, b):
    """`combine` of two running results with lanes of their own, with one look at both for a NaN.

    The largest of 1M float32 takes 52 us for 66, PyTorch 45: 76 GB/s, and a sum 88. Without masks in registers
    of their own it is slower: with AVX2 113 for 51.
    """
    if not MASKS_STORES:
        return combine(op, even, a), combine(op, odd, b)
    if are_numbers(op, a, b):
        return combine_numbers(op, even, a), combine_numbers(op, odd, b)
    return nans_over(even, a), nans_over(odd, b)


@instead_of(combine_two)
def combine_two_lanes(op, even, odd, a, b):
    """On a GPU a lane looks at its own elements."""
    return combine(op, even, a), combine(op, odd, b)


@helper
def reduce_onto(op, total, x, begin, end, neutral, T):
    """Lanes of a running result and x[begin:end], in an order that depends on the length alone.

    The runs of a block take turns, so that an operation need not wait for the one before it: the
    sum of 4M float32 takes 239 us for 354, a plain loop in C 213.
    """
    whole = begin + (end - begin) // LANES * LANES
    first = begin
    while first + BLOCK <= whole:
        even, odd = spread(T(neutral)), spread(T(neutral))
        for i in range(first, first + BLOCK, 2 * LANES):
            a, b = cast(load(x, i), T), cast(load(x, i + LANES), T)
            even, odd = combine_two(op, even, odd, a, b)
        total = combine(op, total, combine(op, even, odd))
        first += BLOCK
    while first < whole:
        part = spread(T(neutral))
        for i in range(first, min(first + RUN, whole), LANES):
            part = combine(op, part, cast(load(x, i), T))
        total = combine(op, total, part)
        first += RUN
    if whole < end:
        total = combine(op, total, cast(load_some(x, whole, end - whole, neutral), T))
    return total


@helper
def reduce_span(op, x, begin, end, neutral, T):
    """`op` over x[begin:end], in an order that depends on the length alone."""
    return fold(op, reduce_onto(op, spread(T(neutral)), x, begin, end, neutral, T))


@helper
def reduce_four_spans(op, x, begin, length, neutral, T):
    """`op` over four spans in a row, each `length` long and in the order of `reduce_span`.

    `length` is a multiple of `BLOCK`. Memory that is read in four places at once arrives sooner: the
    sum of 4M float32 takes 6 to 13 % less time.
    """
    none = spread(T(neutral))
    total = none, none, none, none
    for first in range(begin, begin + length, BLOCK):
        even = odd = none, none, none, none
        for i in range(first, first + BLOCK, 2 * LANES):
            even = combine_four(op, even, load_four(x, i, length, T))
            odd = combine_four(op, odd, load_four(x, i + LANES, length, T))
        total = combine_four(op, total, combine_four(op, even, odd))
    return fold(op, total[0]), fold(op, total[1]), fold(op, total[2]), fold(op, total[3])


@helper
def sum_onto(total, x, count, X, T):
    """Lanes of a running sum and x[:count], in the order of `reduce_span`."""
    return reduce_onto(add, total, x, 0, count, X(0), T)


@helper
def dot_onto(total, x, i, y, j, count, T):
    """Lanes of a running sum and x[i + k] * y[j + k] for k < count, in an order of count alone."""
    whole = count // LANES * LANES
    for first in range(0, whole, RUN):
        part = spread(T(0))
        for k in range(first, min(first + RUN, whole), LANES):
            product = combine(mul, load(x, i + k), load(y, j + k))
            part = combine(add, part, product)
        total = combine(add, total, part)
    if whole < count:
        rest = count - whole
        a, b = load_some(x, i + whole, rest, T(0)), load_some(y, j + whole, rest, T(0))
        total = combine(add, total, combine(mul, a, b))
    return total


@helper
def squares_onto(total, x, count, X, T):
    """Called as `sum_onto` is: the squares of x[:count], in the order of `dot_span`; `X` is `T`."""
    return dot_onto(total, x, 0, x, 0, count, T)


@helper
def dot_span(x, i, y, j, count, T):
    """The sum of x[i + k] * y[j + k] for k < count, in an order that depends on count alone."""
    return fold(add, dot_onto(spread(T(0)), x, i, y, j, count, T))


@helper
def chunk_of(unit, length, step, chunks):
    """Where a chunk of a row begins and ends."""
    if chunks == 1:  # a division takes as long as a short row
        return unit * length, (unit + 1) * length
    row, first = unit // chunks * length, unit % chunks * step
    return row + first, row + min(first + step, length)


@helper
def strip_of(unit, length, inner, strip, strips):
    """Where a strip of columns of a matrix begins, and how many columns it has."""
    left = unit % strips * strip
    return unit // strips * length * inner + left, min(strip, inner - left)


# rows: out[row, chunk] = op over x[row, chunk * step : (chunk + 1) * step]
# words: length, step, chunks; unit: one chunk of one row


@helper
def sum_shortest_rows(x, out, start, stop, length, T):
    """Sums of rows of two to four elements, in the order of `reduce_span`: vectors of rows.

    Each element is added to 0 there, too, which tells in sums of -0.
    """
    none = T(0)
    if length == 2:
        for i in range(start, stop):
            out[i] = (none + T(x[2 * i])) + (none + T(x[2 * i + 1]))
    elif length == 3:
        for i in range(start, stop):
            out[i] = ((none + T(x[3 * i])) + (none + T(x[3 * i + 2]))) + (none + T(x[3 * i + 1]))
    else:
        for i in range(start, stop):
            even = (none + T(x[4 * i])) + (none + T(x[4 * i + 2]))
            out[i] = even + ((none + T(x[4 * i + 1])) + (none + T(x[4 * i + 3])))


@helper
def combine_both(op, total, a, b):
    """`combine` with two lanes, one after the other, with one look at both for a NaN."""
    if are_numbers(op, a, b):
        return combine_numbers(op, combine_numbers(op, total, a), b)
    return combine(op, combine(op, total, a), b)


@helper
def lanes_of_row(op, x, begin, length, T):
    """Lanes of `op` over `LANES` to `SHORT` elements, to be folded to what `reduce_span` gives.

    That is one run of it and what is left; a run begins with what changes nothing, and need not be added to
    another such. An extreme need not begin with the first element in all lanes: it stays ahead of its equals
    in its own.
    """
    neutral = neutral_of(op, x[begin])
    total, first = spread(T(neutral)), begin
    whole = begin + length // LANES * LANES
    if is_extreme(op):
        total = cast(load(x, first), T)
        first += LANES
        if MASKS_STORES:  # else a look takes longer than it saves, see `combine_two`
            for i in range(first, whole - LANES, 2 * LANES):
                a, b = cast(load(x, i), T), cast(load(x, i + LANES), T)
                total = combine_both(op, total, a, b)
            first = whole - (whole - first) % (2 * LANES)
    for i in range(first, whole, LANES):
        total = combine(op, total, cast(load(x, i), T))
    if whole < begin + length:
        rest = load_some(x, whole, begin + length - whole, neutral)
        total = combine(op, total, cast(rest, T))
    return total


@helper
def reduce_rows_of_block(op, x, out, rows, length, T):
    """out[k] = `op` over row k of up to eight, of `LANES` to `SHORT` elements, in the order of `reduce_span`.

    The lanes of all of them are folded at once. `out` has room for eight.
    """
    parts = stack(T, PARTS)
    for k in range(rows):
        store_halved(op, parts, k * ROWS, lanes_of_row(op, x, k * length, length, T))
    fold_rows(op, parts, 0, ROWS, 8, out, 0)


@helper
def lanes_of_squares(x, begin, length, T):
    """Lanes of the sum of the squares of up to `SHORT` elements, to be folded to what `dot_span` gives."""
    total = spread(T(0))
    whole = begin + length // LANES * LANES
    for i in range(begin, whole, LANES):
        value = load(x, i)
        total = combine(add, total, combine(mul, value, value))
    if whole < begin + length:
        value = load_some(x, whole, begin + length - whole, T(0))
        total = combine(add, total, combine(mul, value, value))
    return total


@helper
def square_rows_of_block(x, out, rows, length, T):
    """`reduce_rows_of_block` for sums of squares, in the order of `dot_span`."""
    parts = stack(T, PARTS)
    for k in range(rows):
        store_halved(add, parts, k * ROWS, lanes_of_squares(x, k * length, length, T))
    fold_rows(add, parts, 0, ROWS, 8, out, 0)


@helper
def reduce_eight_rows(op, x, i, length, width, out, to, T):
    """out[to:to + 8] = `op` over eight short rows from x[i] on; `width` is their `W`."""
    if width is None:
        reduce_rows_of_block(op, shifted(x, i), shifted(out, to), ROWS, length, T)
    else:
        fold_rows(op, x, i, length, width, out, to)


@helper
def reduce_short_rows(op, x, out, start, stop, length, width, T):
    """`op` over short rows, in the order of `reduce_span`; the first row that is left."""
    row = start
    while row + ROWS <= stop:
        reduce_eight_rows(op, x, row * length, length, width, out, row, T)
        row += ROWS
    return row


@instead_of(reduce_short_rows)
def no_short_rows(op, x, out, start, stop, length, width, T):
    """On a GPU a row is a unit."""
    return start


@helper
def square_short_rows(x, out, start, stop, length, T):
    """`reduce_short_rows` for sums of squares, in the order of `dot_span`."""
    row = start
    while row + ROWS <= stop:
        square_rows_of_block(shifted(x, row * length), shifted(out, row), ROWS, length, T)
        row += ROWS
    return row


# A kernel's `width` gives its `W`, of its words after the addresses, its units and the bytes of an element.


def short_width(words, rows, size):
    """That of rows that a kernel takes through several steps; their length is the first word."""
    length = words[0]
    if rows < ROWS or length > SHORT or length * size > SHORT_BYTES:
        return 0
    return next((lanes for lanes in (8, 16, LANES) if length <= lanes), None)


def reduced_width(words, rows, size):
    """That of rows of which all that is done is one step."""
    return short_width(words, rows, 1)


def sum_width(words, rows, size):
    """That of sums: those of two to four elements are vectors of rows."""
    return 4 if rows >= ROWS and 2 <= words[0] <= 4 else reduced_width(words, rows, size)


def squares_width(words, rows, size):
    """That of sums of squares, for which all short rows are alike."""
    return None if rows >= ROWS and words[0] <= SHORT else 0


def columns_width(words, units, size):
    """That of columns: the lanes that all of them fit into, which the second word counts."""
    return next((lanes for lanes in (8, 16) if words[1] <= lanes), 0)


@helper
def sum_rows_of_block(x, out, first, rows, length, width, X, T):
    """out[first + k] = the sum of row k of x, of a short one, in the order of `reduce_span`."""
    sums = shifted(out, first)
    for row in range(reduce_short_rows(add, x, sums, 0, rows, length, width, T), rows):
        sums[row] = reduce_span(add, x, row * length, (row + 1) * length, X(0), T)


@kernel
def sum_rows(args, start, stop):
    """out[row, chunk] = the sum of a chunk of a row."""
    p = words(args)
    x, out, length, step, chunks = at(p[0], X), at(p[1], T), p[2], p[3], p[4]
    unit = start
    if W == 4:
        sum_shortest_rows(x, out, start, stop, length, T)
        unit = stop
    elif W != 0:
        sum_rows_of_block(shifted(x, start * length), out, start, stop - start, length, W, X, T)
        unit = stop
    while unit < stop:
        begin, end = chunk_of(unit, length, step, chunks)
        if (
            chunks >= 4
            and unit + 4 <= stop
            and (unit % chunks + 4) * step <= length
            and step % BLOCK == 0
        ):
            sums = reduce_four_spans(add, x, begin, step, X(0), T)
            out[unit], out[unit + 1], out[unit + 2], out[unit + 3] = sums
            unit += 4
        else:
            out[unit] = reduce_span(add, x, begin, end, X(0), T)
            unit += 1


sum_rows.width = sum_width
sum_rows.folds = "sum"  # read by the scheduler: such a kernel may join what it sums


@kernel
def prod_rows(args, start, stop):
    """out[row, chunk] = the product of a chunk of a row."""
    p = words(args)
    x, out, length, step, chunks = at(p[0], X), at(p[1], T), p[2], p[3], p[4]
    first = start
    if W != 0:
        first = reduce_short_rows(mul, x, out, start, stop, length, W, T)
    for unit in range(first, stop):
        begin, end = chunk_of(unit, length, step, chunks)
        out[unit] = reduce_span(mul, x, begin, end, X(1), T)


prod_rows.width = reduced_width


@kernel
def max_rows(args, start, stop):
    """out[row, chunk] = the largest element of a chunk of a row, NaN if there is one."""
    p = words(args)
    x, out, length, step, chunks = at(p[0], X), at(p[1], T), p[2], p[3], p[4]
    first = start
    if W != 0:
        first = reduce_short_rows(max, x, out, start, stop, length, W, T)
    for unit in range(first, stop):
        begin, end = chunk_of(unit, length, step, chunks)
        out[unit] = reduce_span(max, x, begin, end, x[begin], T)


max_rows.width = reduced_width
max_rows.folds = "max"


@kernel
def min_rows(args, start, stop):
    """out[row, chunk] = the smallest element of a chunk of a row, NaN if there is one."""
    p = words(args)
    x, out, length, step, chunks = at(p[0], X), at(p[1], T), p[2], p[3], p[4]
    first = start
    if W != 0:
        first = reduce_short_rows(min, x, out, start, stop, length, W, T)
    for unit in range(first, stop):
        begin, end = chunk_of(unit, length, step, chunks)
        out[unit] = reduce_span(min, x, begin, end, x[begin], T)


min_rows.width = reduced_width
min_rows.folds = "min"


@kernel
def square_rows(args, start, stop):
    """out[row, chunk] = the sum of the squares of a chunk of a row."""
    p = words(args)
    x, out, length, step, chunks = at(p[0], T), at(p[1], T), p[2], p[3], p[4]
    first = start
    if W != 0:
        first = square_short_rows(x, out, start, stop, length, T)
    for unit in range(first, stop):
        begin, end = chunk_of(unit, length, step, chunks)
        out[unit] = dot_span(x, begin, x, begin, end - begin, T)


square_rows.width = squares_width
square_rows.folds = "squares"


# columns: out[matrix, chunk, column] = op over x[matrix, chunk * step : (chunk + 1) * step, column]
# words: length, inner, step, chunks, strip, strips; unit: one strip of columns of one chunk


@helper
def some_of_row(x, i, count, X, T):
    """Lanes of the `count` elements from x[i] on."""
    return cast(load_some(x, i, count, X(0)), T)


@helper
def reduce_few_columns(op, args, start, stop, width, X, T):
    """`reduce_columns` where there are no more than `width` columns."""
    p, rest = words(args), spread_over(X(0), width)
    x, out = at(p[0], X), at(p[1], T)
    length, inner, step, chunks = p[2], p[3], p[4], p[5]
    for part in range(start, stop):
        begin, end = chunk_of(part, length, step, chunks)
        last = end * inner
        i = begin * inner
        total = cast(load_over(rest, x, i, inner), T)
        i += inner
        while i + 3 * inner < last:
            value = cast(load_over(rest, x, i, inner), T)
            value = combine(op, value, cast(load_over(rest, x, i + inner, inner), T))
            pair = cast(load_over(rest, x, i + 2 * inner, inner), T)
            pair = combine(op, pair, cast(load_over(rest, x, i + 3 * inner, inner), T))
            total = combine(op, total, combine(op, value, pair))
            i += 4 * inner
        while i < last:
            total = combine(op, total, cast(load_over(rest, x, i, inner), T))
            i += inner
        store_some(out, part * inner, total, inner)


@helper
def reduce_columns(op, args, start, stop, X, T):
    """Walks along the rows, so that memory is read in order; results stay in the first cache."""
    p = words(args)
    x, out = at(p[0], X), at(p[1], T)
    length, inner, step, chunks, strip, strips = p[2], p[3], p[4], p[5], p[6], p[7]
    for unit in range(start, stop):
        part = unit // strips
        left = unit % strips * strip
        right = min(left + strip, inner)
        whole = left + (right - left) // LANES * LANES
        rest = right - whole
        base = part // chunks * length
        row = part % chunks * step
        last = min(row + step, length)
        to = part * inner
        i = (base + row) * inner
        for j in range(left, whole, LANES):
            store(out, to + j, cast(load(x, i + j), T))
        tail = some_of_row(x, i + whole, rest, X, T)  # stays in registers: masked stores are slow
        row += 1
        while row < last:
            count = 4 if row + 4 <= last else 1
            i = (base + row) * inner
            for j in range(left, whole, LANES):
                value = cast(load(x, i + j), T)
                if count == 4:
                    second, third = i + inner + j, i + 2 * inner + j
                    value = combine(op, value, cast(load(x, second), T))
                    pair = combine(op, cast(load(x, third), T), cast(load(x, third + inner), T))
                    value = combine(op, value, pair)
                store(out, to + j, combine(op, load(out, to + j), value))
            if rest:
                value = some_of_row(x, i + whole, rest, X, T)
                if count == 4:
                    second, third = i + inner + whole, i + 2 * inner + whole
                    value = combine(op, value, some_of_row(x, second, rest, X, T))
                    pair = some_of_row(x, third, rest, X, T)
                    pair = combine(op, pair, some_of_row(x, third + inner, rest, X, T))
                    value = combine(op, value, pair)
                tail = combine(op, tail, value)
            row += count
        if rest:
            store_some(out, to + whole, tail, rest)


@kernel
def sum_columns(args, start, stop):
    """out[matrix, chunk, column] = the sum of a chunk of a column."""
    if W == 0:
        reduce_columns(add, args, start, stop, X, T)
    else:
        reduce_few_columns(add, args, start, stop, W, X, T)


sum_columns.width = columns_width
sum_columns.folds = "columns"


# Elements of a row on the stack, for those that wait for its sum: the widest row and an odd number of
# lines more, so that rows do not share cache sets. And of four rows.
ROOM = 4096 + 48
FOUR_ROOMS = 4 * ROOM


@helper
def add_row(out, to, x, room, count, row, rows, T):
    """Add row `row` of `rows` onto the sums out[to:], in the order of `sum_columns`.

    Four rows are added up before they meet the sums: each lies at its place, (row - 1) % 4, among
    four in x, which are `room` elements apart.
    """
    place = (row + 3) % 4
    here = place * room
    if row == 0:
        for j in range(count):
            out[to + j] = T(x[here + j])
    elif row - place + 4 > rows:
        for j in range(count):
            out[to + j] += T(x[here + j])
    elif place == 3:
        for j in range(count):
            pair = T(x[2 * room + j]) + T(x[here + j])
            out[to + j] += T(x[j]) + T(x[room + j]) + pair


@kernel
def prod_columns(args, start, stop):
    """out[matrix, chunk, column] = the product of a chunk of a column."""
    if W == 0:
        reduce_columns(mul, args, start, stop, X, T)
    else:
        reduce_few_columns(mul, args, start, stop, W, X, T)


prod_columns.width = columns_width


@kernel
def max_columns(args, start, stop):
    """out[matrix, chunk, column] = the largest element of a chunk of a column."""
    if W == 0:
        reduce_columns(max, args, start, stop, X, T)
    else:
        reduce_few_columns(max, args, start, stop, W, X, T)


max_columns.width = columns_width


@kernel
def min_columns(args, start, stop):
    """out[matrix, chunk, column] = the smallest element of a chunk of a column."""
    if W == 0:
        reduce_columns(min, args, start, stop, X, T)
    else:
        reduce_few_columns(min, args, start, stop, W, X, T)


min_columns.width = columns_width


# extremes and where they are: values and indices; the first NaN, or the first of equal elements


@helper
def extreme_rows(op, args, start, stop, T):
    """Finds the extreme with all lanes, then looks for its first place; in shorter rows both at once."""
    p = words(args)
    x, values, indices, length = at(p[0], T), at(p[1], T), at(p[2], I), p[3]
    for row in range(start, stop):
        begin, end = row * length, (row + 1) * length
        if length < LANES:
            best, place = x[begin], 0
            for k in range(1, length):
                value = combine(op, best, x[begin + k])
                better = (value != best) & (best == best)
                best = value
                place = k if better else place
            values[row] = best
            indices[row] = place
            continue
        value = reduce_span(op, x, begin, end, x[begin], T)
        i = begin
        place = LANES
        while place == LANES and i + LANES <= end:
            place = first_equal(load(x, i), value)
            i += LANES
        if place == LANES:
            place = first_equal(load_some(x, i, end - i, value), value)
            i += LANES
        values[row] = value
        indices[row] = i - LANES + place - begin


@kernel
def argmax_rows(args, start, stop):
    """values[row], indices[row] = the largest element of a row and its place."""
    extreme_rows(max, args, start, stop, T)


@kernel
def argmin_rows(args, start, stop):
    """values[row], indices[row] = the smallest element of a row and its place."""
    extreme_rows(min, args, start, stop, T)


# words: length, inner, strip, strips; unit: one strip of columns of one matrix


@helper
def extreme_columns(op, args, start, stop, T):
    """Keeps the best of each column so far; a NaN stays the best."""
    p = words(args)
    x, values, indices = at(p[0], T), at(p[1], T), at(p[2], I)
    length, inner, strip, strips = p[3], p[4], p[5], p[6]
    for unit in range(start, stop):
        left = unit % strips * strip
        right = min(left + strip, inner)
        to = unit // strips * inner
        i = to * length
        for j in range(left, right):
            values[to + j] = x[i + j]
            indices[to + j] = 0
        for row in range(1, length):
            i += inner
            for j in range(left, right):
                best = values[to + j]
                value = combine(op, best, x[i + j])
                better = (value != best) & (best == best)
                values[to + j] = value
                indices[to + j] = row if better else indices[to + j]


@kernel
def argmax_columns(args, start, stop):
    """values[matrix, column], indices[matrix, column] = the largest element and its row."""
    extreme_columns(max, args, start, stop, T)


@kernel
def argmin_columns(args, start, stop):
    """values[matrix, column], indices[matrix, column] = the smallest element and its row."""
    extreme_columns(min, args, start, stop, T)


# means and sums of squared deviations


@helper
def deviations_onto(total, x, begin, end, mean, T):
    """Lanes of a running sum and (x - mean)**2 over x[begin:end]."""
    center = spread(mean)
    whole = begin + (end - begin) // LANES * LANES
    for first in range(begin, whole, RUN):
        part = spread(T(0))
        for i in range(first, min(first + RUN, whole), LANES):
            d = combine(sub, load(x, i), center)
            part = combine(add, part, combine(mul, d, d))
        total = combine(add, total, part)
    if whole < end:
        d = combine(sub, load_some(x, whole, end - whole, mean), center)
        total = combine(add, total, combine(mul, d, d))
    return total


@helper
def square_deviations(x, begin, end, mean, T):
    """The sum of (x - mean)**2 over x[begin:end]."""
    return fold(add, deviations_onto(spread(T(0)), x, begin, end, mean, T))


@helper
def moments_of_scaled(x, begin, end, top, A):
    """Mean and sum of squared deviations of s * x[begin:end], and s, a power of two.

    `top` is the largest size of them; times s it is about 1, so no square overflows or vanishes.
    """
    s = A(1)
    while A(top) * s > A(4):
        s *= A(0.5)
    while A(top) * s < A(1) and s * A(4) < A(math.inf):
        s *= A(2)
    total, lost = A(0), A(0)  # what additions have rounded off is given back (Kahan)
    for i in range(begin, end):
        term = A(x[i]) * s - lost
        sum_of_both = total + term
        lost = (sum_of_both - total) - term
        total = sum_of_both
    mean = total / A(end - begin)
    squares, lost = A(0), A(0)
    for i in range(begin, end):
        d = A(x[i]) * s - mean
        term = d * d - lost
        sum_of_both = squares + term
        lost = (sum_of_both - squares) - term
        squares = sum_of_both
    return mean, squares, s


@helper
def moments_again(x, begin, end, mean, squares, T, A):
    """`moments_of_scaled` of what has such moments if taken as usual; scaled only if that helps."""
    if begin < end:
        high = reduce_span(max, x, begin, end, x[begin], T)
        low = reduce_span(min, x, begin, end, x[begin], T)
        if high == low:
            return A(high), A(high - low), A(1)
        if high < T(math.inf) and low > T(-math.inf):
            return moments_of_scaled(x, begin, end, high if high > -low else -low, A)
    return A(mean), A(squares), A(1)


@helper
def moments_of_span(x, begin, end, least, T, A):
    """Mean and sum of squared deviations of s * x[begin:end], and s, a power of two.

    Deviations are squared as they are, in T, and once more only where the sum overflows, or is so
    small, less than `least`, that some squares had few digits.
    """
    mean = reduce_span(add, x, begin, end, T(0), T) / T(end - begin)
    squares = square_deviations(x, begin, end, mean, T)
    if squares >= least and squares < T(math.inf):
        return A(mean), A(squares), A(1)
    return moments_again(x, begin, end, mean, squares, T, A)


@helper
def spread_of(squares, s, freedom, rooted, A):
    """The variance, or its root, from a sum of squared deviations that are s times too large."""
    variance = squares / freedom
    return math.sqrt(variance) / s if rooted else variance / s / s


# words: length, whether roots are wanted; degrees of freedom, the least sum with all its digits


@kernel
def spread_rows(args, start, stop):
    """spreads, means [row] = the variance of a row or its root, and the mean."""
    p = words(args)
    x, spreads, means = at(p[0], T), at(p[1], T), at(p[2], T)
    length, rooted, freedom, least = p[3], p[4], scalar(p[5], A), scalar(p[6], T)
    for row in range(start, stop):
        begin = row * length
        mean, squares, s = moments_of_span(x, begin, begin + length, least, T, A)
        spreads[row] = T(spread_of(squares, s, freedom, rooted, A))
        means[row] = T(mean / s)


# words: length, step, chunks; the least sum with all its digits


@kernel
def moments_of_chunks(args, start, stop):
    """means, squares [row, chunk] = the mean of a chunk and its sum of squared deviations."""
    p = words(args)
    x, means, squares = at(p[0], T), at(p[1], A), at(p[2], A)
    length, step, chunks, least = p[3], p[4], p[5], scalar(p[6], T)
    for unit in range(start, stop):
        begin, end = chunk_of(unit, length, step, chunks)
        mean, total, s = moments_of_span(x, begin, end, least, T, A)
        means[unit] = mean / s
        squares[unit] = total / s / s


# words: length, step, chunks, whether roots are wanted; degrees of freedom, the least sum with all its
# digits if T is A


@kernel
def spread_of_chunks(args, start, stop):
    """What `spread_rows` gives, from the moments of chunks."""
    p = words(args)
    x, chunk_means, chunk_squares = at(p[0], T), at(p[1], A), at(p[2], A)
    spreads, means = at(p[3], T), at(p[4], T)
    length, step, chunks, rooted = p[5], p[6], p[7], p[8]
    freedom, least = scalar(p[9], A), scalar(p[10], A)
    for row in range(start, stop):
        first = row * chunks
        mean = A(0)
        for c in range(chunks):
            share = A(min(step, length - c * step)) / A(length)
            mean += chunk_means[first + c] * share
        squares = A(0)
        for c in range(chunks):
            away = chunk_means[first + c] - mean
            squares += chunk_squares[first + c] + A(min(step, length - c * step)) * away * away
        s = A(1)
        if not (squares >= least and squares < A(math.inf)):
            begin = row * length
            mean, squares, s = moments_again(x, begin, begin + length, mean, squares, T, A)
        spreads[row] = T(spread_of(squares, s, freedom, rooted, A))
        means[row] = T(mean / s)
