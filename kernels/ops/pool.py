"""Pooling: the largest element and the sum of windows, in one, two or three axes.

Memory is seen as outer x depth x height x width x inner: `inner` is 1 in C order, where `outer` is
images times channels, and the channels where they lie last. A pass over an output row takes one
tap of the windows at a time for a strip of the row, or of the channels, so that the innermost loop
runs over neighbours in memory. In C order small strides are walked over, too: windows are computed
at each place of the input row and every second or third is kept, since vectors that skip elements
are not made by LLVM (3x3 windows 2 apart: 25 ms with strides, 2 ms without).

Places are flat numbers in the three axes, of dtype `Y`.

Words of the geometry: sizes, output sizes, kernel, stride, padding and dilation of the three axes,
then `inner`.
"""

import math

from ..language.abi import STATUS_INDEX, I, T, Y, at, helper, kernel, scalar, shifted, words
from ..language.lanes import stack

STRIP = 128  # places of a row, or channels, that one pass takes
WALKED = 3  # the largest stride that is walked over

SIZE, OUT, KERNEL, STRIDE, PADDING, DILATION, INNER = 0, 3, 6, 9, 12, 15, 18
DEPTH, HEIGHT, WIDTH = range(3)


@helper
def source_of(q, axis, o, tap):
    """The input place of a tap of an output place; outside of the input in the padding."""
    return o * q[STRIDE + axis] - q[PADDING + axis] + tap * q[DILATION + axis]


@helper
def in_input(place, step, count, size):
    """The numbers j < count, from the first to one past the last, with place + j * step inside."""
    first = max(-(place // step), 0)
    return first, min((size - 1 - place) // step + 1, count)


@helper
def walk_of(q):
    """How a pass goes along an output row in C order: its step in the input, its outputs."""
    stride = q[STRIDE + WIDTH]
    return (stride, STRIP) if stride > WALKED else (1, STRIP // stride)


@helper
def keep_larger(best, where, line, first, last, step, place, place_step, Y):
    """Take line[j * step] where it is larger than the best so far, NaN, or the first."""
    for j in range(first, last):
        value = line[j * step]
        better = (value > best[j]) | (value != value) | (where[j] < 0)
        best[j] = value if better else best[j]
        where[j] = Y(place + j * place_step) if better else where[j]


@helper
def add_strided(total, line, first, last, step):
    """total[j] += line[j * step]."""
    for j in range(first, last):
        total[j] += line[j * step]


@helper
def larger_strided(total, line, first, last, step):
    """total[j] = line[j * step] where it is larger, or NaN."""
    for j in range(first, last):
        value = line[j * step]
        total[j] = value if (value > total[j]) | (value != value) else total[j]


@kernel
def max_windows(args, start, stop):
    """values, places = the largest element of each window and where it is; the first of equals.

    A NaN is larger than anything. A unit is an output row; words: x, values, places, geometry.
    """
    p = words(args)
    x, values, places, q = at(p[0], T), at(p[1], T), at(p[2], Y), shifted(p, 3)
    depth, height, width, inner = q[SIZE], q[SIZE + 1], q[SIZE + 2], q[INNER]
    rows, columns = q[OUT + HEIGHT], q[OUT + WIDTH]
    best, where = stack(T, STRIP), stack(Y, STRIP)
    step, piece = walk_of(q)
    keep = q[STRIDE + WIDTH] // step  # every so many places of a pass are results
    for unit in range(start, stop):
        oh, od, outer = unit % rows, unit // rows % q[OUT], unit // rows // q[OUT]
        plane = shifted(x, outer * depth * height * width * inner)
        across, along = (columns, 1) if inner == 1 else (inner, columns)
        for ow in range(along):
            for left in range(0, across, piece if inner == 1 else STRIP):
                taken = min(piece if inner == 1 else STRIP, across - left)
                count = (taken - 1) * keep + 1 if inner == 1 else taken
                for j in range(count):
                    best[j] = T(0)
                    where[j] = Y(-1)
                for kd in range(q[KERNEL]):
                    d = source_of(q, DEPTH, od, kd)
                    for kh in range(q[KERNEL + HEIGHT]):
                        h = source_of(q, HEIGHT, oh, kh)
                        if d < 0 or d >= depth or h < 0 or h >= height:
                            continue
                        row = (d * height + h) * width
                        for kw in range(q[KERNEL + WIDTH]):
                            if inner == 1:
                                w = source_of(q, WIDTH, left, kw)
                                line = shifted(plane, row + w)
                                if step == 1:
                                    first, last = in_input(w, 1, count, width)
                                    keep_larger(best, where, line, first, last, 1, row + w, 1, Y)
                                else:
                                    first, last = in_input(w, step, count, width)
                                    keep_larger(
                                        best, where, line, first, last, step, row + w, step, Y
                                    )
                            else:
                                w = source_of(q, WIDTH, ow, kw)
                                if w >= 0 and w < width:
                                    line = shifted(plane, (row + w) * inner + left)
                                    keep_larger(best, where, line, 0, count, 1, row + w, 0, Y)
                to = (unit * columns + ow) * inner + left
                stride = keep if inner == 1 else 1
                for j in range(taken):
                    values[to + j] = best[j * stride]
                    places[to + j] = where[j * stride]


@helper
def is_better(value, place, best, where):
    """Whether a value comes before the best so far: larger, or first of equals, or last of NaNs."""
    if value != value:
        return (best == best) | (place > where)
    return (value > best) | ((value == best) & (place < where))


@kernel
def max_areas(args, start, stop):
    """`max_windows` whose windows divide the input evenly; of the geometry only sizes are read.

    In C order the largest of each column is found first, for a strip of columns at once, and then
    the largest column of each window.
    """
    p = words(args)
    x, values, places, q = at(p[0], T), at(p[1], T), at(p[2], Y), shifted(p, 3)
    depth, height, width, inner = q[SIZE], q[SIZE + 1], q[SIZE + 2], q[INNER]
    depths, rows, columns = q[OUT], q[OUT + HEIGHT], q[OUT + WIDTH]
    best, where = stack(T, STRIP), stack(Y, STRIP)
    for unit in range(start, stop):
        oh, od, outer = unit % rows, unit // rows % depths, unit // rows // depths
        plane = shifted(x, outer * depth * height * width * inner)
        across, along = (width, 1) if inner == 1 else (inner, columns)
        for ow in range(along):
            left_edge, right_edge = ow * width // columns, -(-(ow + 1) * width // columns)
            for left in range(0, across, STRIP):
                count = min(STRIP, across - left)
                for j in range(count):
                    best[j] = T(0)
                    where[j] = Y(-1)
                for d in range(od * depth // depths, -(-(od + 1) * depth // depths)):
                    for h in range(oh * height // rows, -(-(oh + 1) * height // rows)):
                        row = (d * height + h) * width
                        if inner == 1:
                            line = shifted(plane, row + left)
                            keep_larger(best, where, line, 0, count, 1, row + left, 1, Y)
                        else:
                            for w in range(left_edge, right_edge):
                                line = shifted(plane, (row + w) * inner + left)
                                keep_larger(best, where, line, 0, count, 1, row + w, 0, Y)
                to = (unit * columns + ow) * inner
                if inner == 1:
                    join_columns(
                        best, where, left, count, shifted(values, to), shifted(places, to), q
                    )
                    continue
                for j in range(count):
                    values[to + left + j] = best[j]
                    places[to + left + j] = where[j]


@helper
def join_columns(best, where, left, count, values, places, q):
    """The largest of the columns from `left` on, for each area that they lie in."""
    width, columns = q[SIZE + WIDTH], q[OUT + WIDTH]
    for o in range(left * columns // width, columns):
        first, last = o * width // columns, -(-(o + 1) * width // columns)
        if first >= left + count:
            return
        begin = max(first - left, 0)
        value, place = best[begin], where[begin]
        if first < left:
            value, place = values[o], places[o]
        for j in range(begin, min(last - left, count)):
            if is_better(best[j], where[j], value, place):
                value, place = best[j], where[j]
        values[o], places[o] = value, place


# elements at places: words are the tensors, then the places of an image in the smaller and in the
# larger tensor, inner, strips; a unit is a strip of the channels of an image


@kernel
def add_at_places(args, start, stop):
    """out = 0, with g added at its places, in their order."""
    p = words(args)
    g, places, out = at(p[0], T), at(p[1], Y), at(p[2], T)
    count, size, inner, strips = p[3], p[4], p[5], p[6]
    for unit in range(start, stop):
        left = unit % strips * STRIP
        width = min(STRIP, inner - left)
        image = unit // strips
        target = shifted(out, image * size * inner + left)
        if inner == 1:
            upper, place = shifted(g, image * count), shifted(places, image * count)
            for i in range(size):
                target[i] = T(0)
            for o in range(count):
                if place[o] >= 0 and place[o] < size:
                    target[place[o]] += upper[o]
            continue
        for i in range(size):
            for c in range(width):
                target[i * inner + c] = T(0)
        for o in range(count):
            upper = shifted(g, (image * count + o) * inner + left)
            place = shifted(places, (image * count + o) * inner + left)
            for c in range(width):
                if place[c] >= 0 and place[c] < size:
                    target[place[c] * inner + c] += upper[c]


@kernel
def take_at_places(args, start, stop):
    """out = the elements of x at places, 0 where a place is none."""
    p = words(args)
    x, places, out = at(p[0], T), at(p[1], Y), at(p[2], T)
    count, size, inner, strips = p[3], p[4], p[5], p[6]
    for unit in range(start, stop):
        left = unit % strips * STRIP
        width = min(STRIP, inner - left)
        image = unit // strips
        source = shifted(x, image * size * inner + left)
        for o in range(count):
            to = (image * count + o) * inner + left
            for c in range(width):
                place = places[to + c]
                out[to + c] = source[place * inner + c] if place >= 0 and place < size else T(0)


@kernel
def put_at_places(args, start, stop):
    """out = 0, with x written to its places; the last of several in one place stays."""
    p = words(args)
    x, places, out, status = at(p[0], T), at(p[1], Y), at(p[2], T), at(p[3], I)
    count, size, inner = p[4], p[5], p[6]
    for image in range(start, stop):
        target = shifted(out, image * size * inner)
        for i in range(size * inner):
            target[i] = T(0)
        for o in range(image * count * inner, (image + 1) * count * inner):
            place = places[o]
            if place < 0 or place >= size:
                status[0], status[1] = STATUS_INDEX, place
                return
            target[place * inner + o % inner] = x[o]


# sums and values, and what a sum's gradient comes to; words: x, out, geometry, the divisor as bits


@helper
def over_windows(visit, neutral, divisor, x, out, q, start, stop, T):
    """out = what `visit` makes of `neutral` and all taps of a window, over the divisor."""
    depth, height, width, inner = q[SIZE], q[SIZE + 1], q[SIZE + 2], q[INNER]
    rows, columns = q[OUT + HEIGHT], q[OUT + WIDTH]
    total = stack(T, STRIP)
    step, piece = walk_of(q)
    keep = q[STRIDE + WIDTH] // step  # every so many places of a pass are results
    for unit in range(start, stop):
        oh, od, outer = unit % rows, unit // rows % q[OUT], unit // rows // q[OUT]
        plane = shifted(x, outer * depth * height * width * inner)
        across, along = (columns, 1) if inner == 1 else (inner, columns)
        for ow in range(along):
            for left in range(0, across, piece if inner == 1 else STRIP):
                taken = min(piece if inner == 1 else STRIP, across - left)
                count = (taken - 1) * keep + 1 if inner == 1 else taken
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
                            if inner == 1:
                                w = source_of(q, WIDTH, left, kw)
                                line = shifted(plane, row + w)
                                if step == 1:
                                    first, last = in_input(w, 1, count, width)
                                    visit(total, line, first, last, 1)
                                else:
                                    first, last = in_input(w, step, count, width)
                                    visit(total, line, first, last, step)
                            else:
                                w = source_of(q, WIDTH, ow, kw)
                                if w >= 0 and w < width:
                                    line = shifted(plane, (row + w) * inner + left)
                                    visit(total, line, 0, count, 1)
                to = (unit * columns + ow) * inner + left
                stride = keep if inner == 1 else 1
                for j in range(taken):
                    out[to + j] = total[j * stride] / divisor


@kernel
def sum_windows(args, start, stop):
    """out = the sum of each window over the divisor; a unit is an output row."""
    p = words(args)
    q = shifted(p, 2)
    divisor = scalar(q[INNER + 1], T)
    over_windows(add_strided, T(0), divisor, at(p[0], T), at(p[1], T), q, start, stop, T)


@kernel
def max_values(args, start, stop):
    """`max_windows` of floats without the places."""
    p = words(args)
    x, out = at(p[0], T), at(p[1], T)
    over_windows(larger_strided, T(-math.inf), T(1), x, out, shifted(p, 2), start, stop, T)


@helper
def place_of(q, axis, i, tap):
    """The output place whose tap is an input place, -1 if there is none."""
    shifted_place = i + q[PADDING + axis] - tap * q[DILATION + axis]
    o = shifted_place // q[STRIDE + axis]
    fits = o * q[STRIDE + axis] == shifted_place and o >= 0 and o < q[OUT + axis]
    return o if fits else -1


@kernel
def spread_windows(args, start, stop):
    """The transpose of sum_windows: each input place gets the sum over the windows it lies in.

    A unit is an input row. Words: g, out, then as in sum_windows.
    """
    p = words(args)
    g, out, q = at(p[0], T), at(p[1], T), shifted(p, 2)
    depth, height, width, inner = q[SIZE], q[SIZE + 1], q[SIZE + 2], q[INNER]
    rows, columns = q[OUT + HEIGHT], q[OUT + WIDTH]
    divisor = scalar(q[INNER + 1], T)
    stride = q[STRIDE + WIDTH]
    for unit in range(start, stop):
        h, d, outer = unit % height, unit // height % depth, unit // height // depth
        target = shifted(out, unit * width * inner)
        for i in range(width * inner):
            target[i] = T(0)
        for kd in range(q[KERNEL]):
            od = place_of(q, DEPTH, d, kd)
            for kh in range(q[KERNEL + HEIGHT]):
                oh = place_of(q, HEIGHT, h, kh)
                if od < 0 or oh < 0:
                    continue
                row = shifted(g, ((outer * q[OUT] + od) * rows + oh) * columns * inner)
                for kw in range(q[KERNEL + WIDTH]):
                    w = source_of(q, WIDTH, 0, kw)
                    first, last = in_input(w, stride, columns, width)
                    line = shifted(target, w * inner)
                    if inner == 1 and stride == 1:
                        for o in range(first, last):
                            line[o] += row[o]
                    elif inner == 1:
                        for o in range(first, last):
                            line[o * stride] += row[o]
                    else:
                        for o in range(first, last):
                            upper, to = shifted(row, o * inner), shifted(line, o * stride * inner)
                            for c in range(inner):
                                to[c] += upper[c]
        for i in range(width * inner):
            target[i] /= divisor
