"""Strided regions of flat memory."""

from ..language.abi import T, at, helper, kernel, words

# ----- CPU -----


@helper
def add_rows(p, geometry, offset, g, out, start, stop):
    """Add elements of g, from one to another, to the places of a region: a run of its last axis at a time.

    The words from `geometry` on are the rank, at least 1, sizes and strides.
    """
    rank = p[geometry]
    inner, step = p[geometry + rank], p[geometry + 2 * rank]
    i = start
    while i < stop:
        rest = i // inner
        first = i - rest * inner
        place, lines, apart = offset, 1, 0
        for d in range(rank - 2, -1, -1):
            size, stride = p[geometry + 1 + d], p[geometry + 1 + rank + d]
            ahead = rest // size
            here = rest - ahead * size
            if d == rank - 2:
                lines, apart = size - here, stride
            place += here * stride
            rest = ahead
        for _ in range(lines):  # a division takes as long as a short run
            run = min(inner - first, stop - i)
            if step == 1:
                for k in range(run):
                    out[place + first + k] += g[i + k]
            else:
                for k in range(run):
                    out[place + (first + k) * step] += g[i + k]
            i, first, place = i + run, 0, place + apart
            if i >= stop:
                break


@kernel
def copy_whole(args, start, stop):
    """out = flat, of words as those of `add_to_region`."""
    p = words(args)
    flat, out = at(p[0], T), at(p[2], T)
    for i in range(start, stop):
        out[i] = flat[i]


@kernel
def add_to_region(args, start, stop):
    """The elements of g added to those of out where a region lies, which does not overlap itself.

    Words: flat, g, out, rank (at least 1), sizes, strides, offset. A unit is an element of g.
    """
    p = words(args)
    add_rows(p, 3, p[4 + 2 * p[3]], at(p[1], T), at(p[2], T), start, stop)


@kernel
def add_region(args, start, stop):
    """out = flat, with the elements of g added where a region lies; the region may overlap itself.

    Words: flat, g, out, count, offset, rank (at least 1), sizes, strides. One unit of work: repeated places
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
    add_rows(p, 5, offset, g, out, 0, total)
