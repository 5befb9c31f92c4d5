"""Strided regions of flat memory."""

from ..language.abi import T, at, kernel, words

# ----- CPU -----


@kernel
def add_region(args, start, stop):
    """out = flat, with the elements of g added where a region lies; the region may overlap itself.

    Words: flat, g, out, count, offset, rank, sizes, strides. One unit of work: repeated places
    are added to in the order of g.
    """
    p = words(args)
    flat, g, out = at(p[0], T), at(p[1], T), at(p[2], T)
    count, offset, rank = p[3], p[4], p[5]
    for i in range(count):
        out[i] = flat[i]
    total = 1
    for d in range(rank):
        total *= p[6 + d]
    for i in range(total):
        rest = i
        place = offset
        for back in range(rank):
            d = rank - 1 - back
            size = p[6 + d]
            ahead = rest // size
            place += (rest - ahead * size) * p[6 + rank + d]
            rest = ahead
        out[place] += g[i]
