"""Moving elements to other places of a dense result.

The kernels are bound to integers of the element's size.

CPU side below; the CUDA side belongs at the end.
"""

from numba import njit

from .abi import T, at, kernel, words
from .blas import shifted


@njit
def offset_of(place, axes, sizes, steps):
    """How far an element lies from the first one: the `place`-th in C order over axes of these
    sizes, which take these steps."""
    offset = 0
    for axis in range(axes - 1, -1, -1):
        offset += place % sizes[axis] * steps[axis]
        place //= sizes[axis]
    return offset


@njit
def copy_parts(p, parts, kind, start, stop):
    """out[o] = the blocks x_0[o], x_1[o], ... side by side; a unit is one block.

    The number of parts must be known before a word is read, so there is a kernel for each.
    """
    out, c = at(p[parts], kind), shifted(p, parts + 1)
    width = c[0]
    for unit in range(start, stop):
        row, part = unit // parts, unit % parts
        first, length = c[1 + 2 * part], c[2 + 2 * part]
        source = shifted(at(p[part], kind), row * length)
        target = shifted(out, row * width + first)
        for i in range(length):
            target[i] = source[i]


@kernel
def join_2(args, start, stop):
    """Two parts side by side."""
    copy_parts(words(args), 2, T, start, stop)


@kernel
def join_3(args, start, stop):
    """Three parts side by side."""
    copy_parts(words(args), 3, T, start, stop)


@kernel
def join_4(args, start, stop):
    """Four parts side by side."""
    copy_parts(words(args), 4, T, start, stop)


@kernel
def join_8(args, start, stop):
    """Up to eight parts side by side."""
    copy_parts(words(args), 8, T, start, stop)


@kernel
def join_16(args, start, stop):
    """Up to sixteen parts side by side."""
    copy_parts(words(args), 16, T, start, stop)


JOINS = {2: join_2, 3: join_3, 4: join_4, 8: join_8, 16: join_16}


@kernel
def walk(args, start, stop):
    """out = the elements met from a first one on, in steps of any sign; a unit is a row."""
    p = words(args)
    x, out = at(p[0], T), at(p[1], T)
    first, length, step, axes = p[2], p[3], p[4], p[5]
    sizes = shifted(p, 6)
    for row in range(start, stop):
        source = shifted(x, first + offset_of(row, axes, sizes, shifted(sizes, axes)))
        target = shifted(out, row * length)
        for i in range(length):
            target[i] = source[i * step]


@kernel
def keep_triangle(args, start, stop):
    """out[.., i, j] = x[.., i, j] on one side of a diagonal, else 0; a unit is a row."""
    p = words(args)
    x, out, rows, columns, diagonal, upper = at(p[0], T), at(p[1], T), p[2], p[3], p[4], p[5]
    for row in range(start, stop):
        edge = row % rows + diagonal  # the column of the diagonal
        first = min(max(edge if upper else 0, 0), columns)
        last = min(max(columns if upper else edge + 1, 0), columns)
        source, target = shifted(x, row * columns), shifted(out, row * columns)
        for j in range(first):
            target[j] = T(0)
        for j in range(first, last):
            target[j] = source[j]
        for j in range(max(first, last), columns):
            target[j] = T(0)
