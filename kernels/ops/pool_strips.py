"""Pooling where channels lie last, or windows far apart: one tap at a time for a strip of channels or of a row.

Memory, geometry and places are those of `pool.py`, whose kernels these stand for; the CUDA side is there.
"""

import math
from operator import add

from ..language.abi import T, Y, at, helper, kernel, scalar, shifted, words
from ..language.lanes import LANES, combine, least_of, load_block, spread, stack, store

STRIP = 128  # places of a row, or channels, that one pass takes

SIZE, OUT, KERNEL, STRIDE, PADDING, DILATION, INNER = 0, 3, 6, 9, 12, 15, 18
DEPTH, HEIGHT, WIDTH = range(3)


@helper
def source_of(q, axis, o, tap):
    """The input place of a tap of an output place; outside of the input in the padding."""
    return o * q[STRIDE + axis] - q[PADDING + axis] + tap * q[DILATION + axis]


@helper
def in_input(place, step, count, size):
    """The numbers j < count, from the first to one past the last, with place + j * step inside."""
    if place >= 0 and place + (count - 1) * step < size:  # as nearly always; divisions take long
        return 0, count
    first = max(-(place // step), 0)
    return first, min((size - 1 - place) // step + 1, count)


@helper
def row_of(q, unit):
    """The place of an output row: in height, in depth, and of which image."""
    rows, depths = q[OUT + HEIGHT], q[OUT]
    return unit % rows, unit // rows % depths, unit // rows // depths


@helper
def row_after(q, oh, od, outer):
    """The place of the next output row: divisions take as long as a short row."""
    if oh + 1 < q[OUT + HEIGHT]:
        return oh + 1, od, outer
    if od + 1 < q[OUT]:
        return 0, od + 1, outer
    return 0, 0, outer + 1


@helper
def strips_of(q):
    """What strips are of, channels or the places of a row, and how often in a row; how far elements are apart,
    and whether, 1 or 0, they are channels."""
    if q[INNER] > 1:
        return q[INNER], q[OUT + WIDTH], 1, 1
    return q[OUT + WIDTH], 1, q[STRIDE + WIDTH], 0


@helper
def taps_of(q, ow, left, kw, count):
    """The place of a tap of a strip's first window, and the first and the end of the windows that have it."""
    w = source_of(q, WIDTH, ow if q[INNER] > 1 else left, kw)
    if q[INNER] == 1:
        first, last = in_input(w, q[STRIDE + WIDTH], count, q[SIZE + WIDTH])
        return w, first, last
    return w, 0, count if 0 <= w < q[SIZE + WIDTH] else 0


@helper
def keep_larger(best, where, line, first, last, step, place, place_step, Y):
    """Take line[j * step] where it is larger than the best so far, NaN, or the first."""
    for j in range(first, last):
        value = line[j * step]
        better = (value > best[j]) | (value != value) | (where[j] < 0)
        best[j] = value if better else best[j]
        where[j] = Y(place + j * place_step) if better else where[j]


@kernel
def max_windows_in_strips(args, start, stop):
    """`max_windows`; a unit is an output row."""
    p = words(args)
    x, values, places, q = at(p[0], T), at(p[1], T), at(p[2], Y), shifted(p, 3)
    depth, height, width, inner = q[SIZE], q[SIZE + 1], q[SIZE + 2], q[INNER]
    best, where = stack(T, STRIP), stack(Y, STRIP)
    across, down, step, beside = strips_of(q)
    apart = (1 - beside) * step
    oh, od, outer = row_of(q, start)
    for unit in range(start, stop):
        plane = shifted(x, outer * depth * height * width * inner)
        for ow in range(down):
            for left in range(0, across, STRIP):
                count = min(STRIP, across - left)
                for j in range(count):
                    best[j] = least_of(T)
                    where[j] = Y(-1)
                for kd in range(q[KERNEL]):
                    d = source_of(q, DEPTH, od, kd)
                    for kh in range(q[KERNEL + HEIGHT]):
                        h = source_of(q, HEIGHT, oh, kh)
                        if d < 0 or d >= depth or h < 0 or h >= height:
                            continue
                        row = (d * height + h) * width
                        for kw in range(q[KERNEL + WIDTH]):
                            w, first, last = taps_of(q, ow, left, kw, count)
                            line, place = shifted(plane, (row + w) * inner + beside * left), row + w
                            if step == 1:
                                keep_larger(best, where, line, first, last, 1, place, apart, Y)
                            else:
                                keep_larger(best, where, line, first, last, step, place, apart, Y)
                to = (unit * q[OUT + WIDTH] + ow) * inner + left
                for j in range(count):
                    values[to + j] = best[j]
                    places[to + j] = where[j]
        oh, od, outer = row_after(q, oh, od, outer)


@helper
def add_strip(total, line, first, last, step):
    """total[j] += line[j * step]."""
    for j in range(first, last):
        total[j] += line[j * step]


@helper
def larger_in_strip(total, line, first, last, step):
    """total[j] = line[j * step] where it is larger, or NaN."""
    for j in range(first, last):
        value = line[j * step]
        total[j] = value if (value > total[j]) | (value != value) else total[j]


@helper
def over_strips(visit, neutral, divisor, x, out, q, start, stop, T):
    """out = what `visit` makes of `neutral` and all taps of a window, over the divisor."""
    depth, height, width, inner = q[SIZE], q[SIZE + 1], q[SIZE + 2], q[INNER]
    total = stack(T, STRIP)
    across, down, step, beside = strips_of(q)
    oh, od, outer = row_of(q, start)
    for unit in range(start, stop):
        plane = shifted(x, outer * depth * height * width * inner)
        for ow in range(down):
            for left in range(0, across, STRIP):
                count = min(STRIP, across - left)
                for j in range(count):
                    total[j] = neutral
                for kd in range(q[KERNEL]):
                    d = source_of(q, DEPTH, od, kd)
                    for kh in range(q[KERNEL + HEIGHT]):
                        h = source_of(q, HEIGHT, oh, kh)
                        if d < 0 or d >= depth or h < 0 or h >= height:
                            continue
                        row = (d * height + h) * width
                        for kw in range(q[KERNEL + WIDTH]):
                            w, first, last = taps_of(q, ow, left, kw, count)
                            line = shifted(plane, (row + w) * inner + beside * left)
                            if step == 1:
                                visit(total, line, first, last, 1)
                            else:  # LLVM would guess that it is 1, and leave the rest as it is
                                visit(total, line, first, last, step)
                to = (unit * q[OUT + WIDTH] + ow) * inner + left
                for j in range(count):
                    out[to + j] = total[j] / divisor
        oh, od, outer = row_after(q, oh, od, outer)


@kernel
def sum_windows_in_strips(args, start, stop):
    """`sum_windows`; a unit is an output row."""
    p = words(args)
    q = shifted(p, 2)
    divisor = scalar(q[INNER + 1], T)
    over_strips(add_strip, T(0), divisor, at(p[0], T), at(p[1], T), q, start, stop, T)


@kernel
def max_values_in_strips(args, start, stop):
    """`max_values`; a unit is an output row."""
    p = words(args)
    x, out = at(p[0], T), at(p[1], T)
    over_strips(larger_in_strip, T(-math.inf), T(1), x, out, shifted(p, 2), start, stop, T)


@helper
def over_few(op, neutral, divisor, x, out, q, start, stop, T):
    """out = `op` over all taps of a few windows of a row, first over those above each other."""
    depth, height, width, columns = q[SIZE], q[SIZE + 1], q[SIZE + 2], q[OUT + WIDTH]
    total = stack(T, STRIP)
    oh, od, outer = row_of(q, start)
    for unit in range(start, stop):
        plane = shifted(x, outer * depth * height * width)
        for left in range(0, width, LANES):
            above = spread(neutral)
            for kd in range(q[KERNEL]):
                d = source_of(q, DEPTH, od, kd)
                for kh in range(q[KERNEL + HEIGHT]):
                    h = source_of(q, HEIGHT, oh, kh)
                    if d < 0 or d >= depth or h < 0 or h >= height:
                        continue
                    line = shifted(plane, (d * height + h) * width + left)
                    row = load_block(line, 0, min(LANES, width - left), neutral)
                    above = combine(op, above, row)
            store(total, left, above)
        for ow in range(columns):
            made = neutral
            for kw in range(q[KERNEL + WIDTH]):
                w = source_of(q, WIDTH, ow, kw)
                if 0 <= w < width:
                    made = combine(op, made, total[w])
            out[unit * columns + ow] = made / divisor
        oh, od, outer = row_after(q, oh, od, outer)


@kernel
def sum_windows_of_few(args, start, stop):
    """`sum_windows` of a few windows in a row, which a strip holds; a unit is an output row."""
    p = words(args)
    q = shifted(p, 2)
    divisor = scalar(q[INNER + 1], T)
    over_few(add, T(0), divisor, at(p[0], T), at(p[1], T), q, start, stop, T)


@kernel
def max_values_of_few(args, start, stop):
    """`max_values` of a few windows in a row, which a strip holds; a unit is an output row."""
    p = words(args)
    x, out = at(p[0], T), at(p[1], T)
    over_few(max, T(-math.inf), T(1), x, out, shifted(p, 2), start, stop, T)
