"""Steps of optimisers along the gradient of a table of which few rows were looked up: the others stay.

Such a gradient is zero but for the rows that indices name, each of which is the sum of the rows of values that
name it. Rows are told apart by a table of hashes, so the work does not depend on how large the parameter is.

What `link_rows` makes is one array of int64: how many rows are named, then for each its number and the first
index that names it, then for each index the next one, then places for hashes, a power of two of them.
"""

from operator import add, mul

from ..language.abi import I, T, at, helper, kernel, scalar, shifted, words
from ..language.lanes import LANES, combine, load_block, prefetch, spread, store_block
from .index import NO_MORE, are_rows

SPREAD = (
    -7046029254386353131
)  # 2 ** 64 over the golden ratio, as a signed number: Fibonacci hashing
AHEAD = 6  # rows that are asked for before they are moved


@helper
def parts_of(links, count):
    """The rows that are named, the first index of each, the next one of each index, places for hashes."""
    rows = shifted(links, 1)
    return rows, shifted(rows, count), shifted(rows, 2 * count), shifted(rows, 3 * count)


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
        place = ((row * SPREAD) >> 32) & (hashes - 1)
        while places[place] != NO_MORE and rows[places[place]] != row:
            place = (place + 1) & (hashes - 1)
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


@kernel
def sgd_rows(args, start, stop):
    """x[row] += rate * (the sum of the values that name it), bit for bit what `sgd_step` makes of the table.

    inputs: x, links, values; words: how many indices, the elements of a row, the elements from one row of
    values to the next, units; number: -lr. A unit is a share of the rows that are named.
    """
    p = words(args)
    links, values, x = at(p[1], I), at(p[2], T), at(p[3], T)
    inner, step, units, rate = p[5], p[6], p[7], spread(scalar(p[8], T))
    rows, first, following, _ = parts_of(links, p[4])
    known = links[0]
    for k in range(known * start // units, known * stop // units):
        begin, ahead = rows[k] * inner, rows[min(k + AHEAD, known - 1)] * inner
        for here in range(0, inner, LANES):
            part = min(LANES, inner - here)
            prefetch(x, ahead + here)
            total, i = spread(T(0)), first[k]
            while i != NO_MORE:
                total = combine(add, total, load_block(values, i * step + here, part, T(0)))
                i = following[i]
            old = load_block(x, begin + here, part, T(0))
            store_block(x, begin + here, combine(add, old, combine(mul, rate, total)), part)
