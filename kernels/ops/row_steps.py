"""Steps of optimisers along the gradient of a table of which few rows were looked up: the others stay.

Such a gradient is zero but for the rows that indices name, each of which is the sum of the rows of values that
name it. Rows are told apart by a table of hashes, so the work does not depend on how large the parameter is.

What `link_rows` makes is one array of int64: how many rows are named, then for each its number and the first
index that names it, then for each index the next one, then places for hashes, a power of two of them.
"""

from operator import add, mul

from ..language.abi import I, T, at, helper, kernel, scalar, shifted, words
from ..language.lanes import (
    LANES,
    combine,
    copy_run,
    load_block,
    prefetch,
    spread,
    stack,
    store_block,
)
from .index import NO_MORE, are_rows

# 2 ** 64 over the golden ratio, as a signed number: Fibonacci hashing.
SPREAD = -7046029254386353131
MOST = 8  # tables whose sum a gradient may be
AHEAD = 6  # rows that are asked for before they are moved


@helper
def parts_of(links, count):
    """The rows that are named, the first index of each, the next one of each index, places for hashes."""
    rows = shifted(links, 1)
    return rows, shifted(rows, count), shifted(rows, 2 * count), shifted(rows, 3 * count)


@helper
def place_of_row(rows, places, hashes, row):
    """Where in the table of hashes a row is, or would be."""
    place = ((row * SPREAD) >> 32) & (hashes - 1)
    while places[place] != NO_MORE and rows[places[place]] != row:
        place = (place + 1) & (hashes - 1)
    return place


@kernel
def link_rows(args, start, stop):
    """The rows that indices name, and whose they are, in the order of the indices; there is one unit.

    input: indices; words: how many there are, one that does not count, the indexed axis as in `index.py`,
    places for hashes
    """
    p = words(args)
    indices, links, status = at(p[0], I), at(p[1], I), at(p[2], I)
    count, skipped, axes, hashes = p[3], p[4], shifted(p, 5), p[10]
    if not are_rows(indices, count, axes, status):
        return
    rows, first, following, places = parts_of(links, count)
    for place in range(hashes):
        places[place] = NO_MORE
    known = 0
    for i in range(count - 1, -1, -1):
        index = indices[i]
        if index == skipped:
            continue
        row = index + axes[2] if index < 0 else index
        place = place_of_row(rows, places, hashes, row)
        k = places[place]
        if k == NO_MORE:
            k = places[place] = known
            rows[k] = row
            known += 1
            following[i] = NO_MORE
        else:
            following[i] = first[k]
        first[k] = i
    links[0] = known


@helper
def tables_of(p):
    """How many tables a step is along, each with two inputs and three words."""
    return p[-1] // 5 - 1


@kernel
def copy_table(args, start, stop):
    """What `sgd_rows` begins with where it does not move x in its place."""
    p = words(args)
    x, out = at(p[0], T), at(p[1 + 2 * tables_of(p)], T)
    copy_run(shifted(out, start), shifted(x, start), stop - start)


@helper
def first_of(links, count, hashes, row):
    """The first index that names a row, NO_MORE if none does."""
    rows, first, _, places = parts_of(links, count)
    k = places[place_of_row(rows, places, hashes, row)]
    return k if k == NO_MORE else first[k]


@helper
def total_of(values, following, i, step, here, part, zero):
    """The sum of elements of those rows of values that name one row, of which the first is told."""
    total = spread(zero)
    while i != NO_MORE:
        total = combine(add, total, load_block(values, i * step + here, part, zero))
        i = following[i]
    return total


@kernel
def sgd_rows(args, start, stop):
    """x[row] += rate * (the sum of the values that name it), bit for bit what `sgd_step` makes of the table,
    or of the sum of several: the sum of each table's values is added to that of those before.

    inputs: x, then links and values of each table; words: the elements of a row, units, then for each table how
    many indices, the elements from one row of values to the next, places for hashes; number: -lr. A unit is a
    share of the rows that are named.
    """
    p = words(args)
    tables = tables_of(p)
    x, about = at(p[1 + 2 * tables], T), shifted(p, 2 + 2 * tables)
    inner, units, each = about[0], about[1], shifted(about, 2)
    rate, chains = spread(scalar(each[3 * tables], T)), stack(I, MOST)
    for k in range(tables):
        links = at(p[1 + 2 * k], I)
        rows, first, _, _ = parts_of(links, each[3 * k])
        known = links[0]
        for place in range(known * start // units, known * stop // units):
            row, is_met = rows[place], False
            for other in range(tables):
                chain = first[place]
                if other != k:
                    those = at(p[1 + 2 * other], I)
                    chain = first_of(those, each[3 * other], each[3 * other + 2], row)
                    is_met |= other < k and chain != NO_MORE
                chains[other] = chain
            if is_met:
                continue
            begin, ahead = row * inner, rows[min(place + AHEAD, known - 1)] * inner
            for here in range(0, inner, LANES):
                part = min(LANES, inner - here)
                prefetch(x, ahead + here)
                total = spread(T(0))
                for other in range(tables):
                    _, _, following, _ = parts_of(at(p[1 + 2 * other], I), each[3 * other])
                    values, step = at(p[2 + 2 * other], T), each[3 * other + 1]
                    sum_ = total_of(values, following, chains[other], step, here, part, T(0))
                    total = sum_ if other == 0 else combine(add, total, sum_)
                old = load_block(x, begin + here, part, T(0))
                store_block(x, begin + here, combine(add, old, combine(mul, rate, total)), part)
