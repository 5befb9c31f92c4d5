"""Pooling: the largest element and the sum of windows, in one, two or three axes.

Memory is seen as outer x depth x height x width x inner: `inner` is 1 in C order, where `outer` is
images times channels, and the channels where they lie last. In C order the next `LANES` windows of a
row stay in registers for all their taps, and elements between them are loaded with theirs and dropped
(`strided`). Where channels lie last, windows far apart or few of them in a row, the kernels of `pool_strips.py`
stand for these.

Places are flat numbers in the three axes, of dtype `Y`.

Words of the geometry: sizes, output sizes, kernel, stride, padding and dilation of the three axes,
then `inner`.
"""

import math
from operator import add, truediv

from ..language.abi import (
    STATUS_INDEX,
    I,
    T,
    Y,
    at,
    helper,
    kernel,
    quotient,
    remainder,
    scalar,
    shifted,
    stack_words,
    words,
)
from ..language.device import all_threads, first_unit, on_device
from ..language.lanes import (
    LANES,
    are_numbers,
    combine,
    first_equal,
    fold_numbers,
    keep_larger_lanes,
    least_of,
    load_block,
    load_over,
    spread,
    spread_over,
    stack,
    store_block,
    strided,
)
from .pool_strips import (
    DEPTH,
    DILATION,
    HEIGHT,
    INNER,
    KERNEL,
    OUT,
    PADDING,
    SIZE,
    STRIDE,
    STRIP,
    WIDTH,
    in_input,
    keep_larger,
    max_values_in_strips,
    max_values_of_few,
    max_windows_in_strips,
    row_after,
    row_of,
    source_of,
    sum_windows_in_strips,
    sum_windows_of_few,
)

FEW, SOME = 8, 16  # elements of which the largest is found without vectors, and by half a vector


@helper
def windows_along(q):
    """Width, taps, stride and dilation of a row, read once: LLVM does not know that no result lies there."""
    return q[SIZE + WIDTH], q[KERNEL + WIDTH], q[STRIDE + WIDTH], q[DILATION + WIDTH]


@helper
def last_inside(along):
    """The last place of a row at which `LANES` windows may begin that lie within it."""
    width, taps, stride, apart = along
    return width - 1 - (LANES - 1) * stride - (taps - 1) * apart


@helper
def largest_of_windows(plane, q, along, od, oh, first, whole, T, Y):
    """The largest elements of `LANES` windows and their places.

    The first window begins at a place of the row, and `whole` says that all lie within it.
    """
    depth, height = q[SIZE], q[SIZE + HEIGHT]
    width, taps, stride, apart = along
    best, where = spread(least_of(T)), spread(Y(-1))
    for kd in range(q[KERNEL]):
        d = source_of(q, DEPTH, od, kd)
        for kh in range(q[KERNEL + HEIGHT]):
            h = source_of(q, HEIGHT, oh, kh)
            if d < 0 or d >= depth or h < 0 or h >= height:
                continue
            row = (d * height + h) * width
            line = shifted(plane, row)
            for kw in range(taps):
                w = first + kw * apart
                value = strided(line, w, stride, width, T(0), whole)
                best, where = keep_larger_lanes(best, where, value, row + w, w, stride, width)
    return best, where


@kernel
def max_windows(args, start, stop):
    """values, places = the largest element of each window and where it is; the first of equals.

    A NaN is larger than anything. A unit is an output row; words: x, values, places, geometry.
    """
    p = words(args)
    x, values, places, q = at(p[0], T), at(p[1], T), at(p[2], Y), shifted(p, 3)
    plane_size = q[SIZE] * q[SIZE + HEIGHT] * q[SIZE + WIDTH]
    columns, padding, along = q[OUT + WIDTH], q[PADDING + WIDTH], windows_along(q)
    stride, last = along[2], last_inside(along)
    oh, od, outer = row_of(q, start)
    for unit in range(start, stop):
        plane = shifted(x, outer * plane_size)
        for begin in range(0, columns, LANES):
            left = max(min(begin, columns - LANES), 0)  # the last ones may be some of those before
            first = left * stride - padding
            whole = 0 <= first <= last
            larger, found = largest_of_windows(plane, q, along, od, oh, first, whole, T, Y)
            count = min(LANES, columns - left)
            store_block(values, unit * columns + left, larger, count)
            store_block(places, unit * columns + left, found, count)
        oh, od, outer = row_after(q, oh, od, outer)


@helper
def is_better(value, place, best, where):
    """Whether a value comes before the best so far: larger, or first of equals, or last of NaNs."""
    if value != value:
        return (best == best) | (place > where)
    return (value > best) | ((value == best) & (place < where))


@helper
def area_at(o, size, places):
    """Where the area of an output place begins: a place, and what is left of it in parts of `places`."""
    return o * size // places, o * size % places


@helper
def area_after(area, size, places):
    """Where the next area begins, without a division; `size` is where that of place 1 does."""
    first, rest = area[0] + size[0], area[1] + size[1]
    return (first, rest) if rest < places else (first + 1, rest - places)


@helper
def end_before(area):
    """The end of the area before one; they may have a place in common."""
    return area[0] + (1 if area[1] > 0 else 0)


@helper
def place_in_lanes(lanes, line, first, end):
    """`place_of_largest` of elements that lanes begin with, the others being one of them."""
    if are_numbers(max, lanes, lanes):
        return first + first_equal(lanes, fold_numbers(max, lanes))
    place = first
    for j in range(first, end):
        place = j if line[j] != line[j] else place
    return place


@helper
def place_of_largest(line, first, end):
    """The first place of the largest element of line[first:end], the last one of those that are NaN."""
    place, best = first, line[first]
    if end - first <= FEW:
        for j in range(first + 1, end):
            value = line[j]
            better = (value > best) | (value != value)
            best, place = (value, j) if better else (best, place)
        return place
    if end - first <= SOME:
        lanes = load_over(spread_over(best, 16), line, first, end - first)
        return place_in_lanes(lanes, line, first, end)
    for left in range(first, end, LANES):
        count = min(LANES, end - left)
        found = place_in_lanes(load_block(line, left, count, line[left]), line, left, left + count)
        value = line[found]
        if left == first or value > best or value != value:
            best, place = value, found
    return place


@kernel
def max_areas(args, start, stop):
    """`max_windows` whose windows divide the input evenly; of the geometry only sizes are read.

    In C order the largest of each column is found first, for a strip of columns at once, and then
    the largest column of each window. Of a single row they are its elements.
    """
    p = words(args)
    x, values, places, q = at(p[0], T), at(p[1], T), at(p[2], Y), shifted(p, 3)
    depth, height, width, inner = q[SIZE], q[SIZE + 1], q[SIZE + 2], q[INNER]
    depths, rows, columns = q[OUT], q[OUT + HEIGHT], q[OUT + WIDTH]
    best, where = stack(T, STRIP), stack(Y, STRIP)
    if start == stop:
        return
    oh, od, outer = row_of(q, start)
    of_depth, of_row, of_column = (
        area_at(1, depth, depths), area_at(1, height, rows), area_at(1, width, columns)
    )  # fmt: skip
    deep, high = area_at(od, depth, depths), area_at(oh, height, rows)
    for unit in range(start, stop):
        plane = shifted(x, outer * depth * height * width * inner)
        deeper, higher = area_after(deep, of_depth, depths), area_after(high, of_row, rows)
        last_depth, last_row = end_before(deeper), end_before(higher)
        if inner == 1 and last_depth - deep[0] == 1 and last_row - high[0] == 1:
            row = (deep[0] * height + high[0]) * width
            line = shifted(plane, row)
            area = (0, 0)
            for ow in range(columns):
                after = area_after(area, of_column, columns)
                place = place_of_largest(line, area[0], end_before(after))
                values[unit * columns + ow] = line[place]
                places[unit * columns + ow] = Y(row + place)
                area = after
        else:
            across, along = (width, 1) if inner == 1 else (inner, columns)
            for ow in range(along):
                left_edge, right_edge = ow * width // columns, -(-(ow + 1) * width // columns)
                for left in range(0, across, STRIP):
                    count = min(STRIP, across - left)
                    for j in range(count):
                        best[j] = T(0)
                        where[j] = Y(-1)
                    for d in range(deep[0], last_depth):
                        for h in range(high[0], last_row):
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
        high, oh = higher, oh + 1
        if oh == rows:
            high, oh, deep, od = (0, 0), 0, deeper, od + 1
            if od == depths:
                deep, od, outer = (0, 0), 0, outer + 1


@helper
def join_columns(best, where, left, count, values, places, q):
    """The largest of the columns from `left` on, for each area that they lie in."""
    width, columns = q[SIZE + WIDTH], q[OUT + WIDTH]
    of_column = area_at(1, width, columns)
    begins = left * columns // width
    area = area_at(begins, width, columns)
    for o in range(begins, columns):
        first = area[0]
        if first >= left + count:
            return
        area = area_after(area, of_column, columns)
        begin = max(first - left, 0)
        value, place = best[begin], where[begin]
        if first < left:
            value, place = values[o], places[o]
        for j in range(begin, min(end_before(area) - left, count)):
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
def sum_of_windows(op, neutral, plane, q, along, od, oh, first, whole):
    """`op` over all taps of `LANES` windows; the rest as in `largest_of_windows`."""
    depth, height = q[SIZE], q[SIZE + HEIGHT]
    width, taps, stride, apart = along
    total = spread(neutral)
    for kd in range(q[KERNEL]):
        d = source_of(q, DEPTH, od, kd)
        for kh in range(q[KERNEL + HEIGHT]):
            h = source_of(q, HEIGHT, oh, kh)
            if d < 0 or d >= depth or h < 0 or h >= height:
                continue
            line = shifted(plane, (d * height + h) * width)
            for kw in range(taps):
                value = strided(line, first + kw * apart, stride, width, neutral, whole)
                total = combine(op, total, value)
    return total


@helper
def over_windows(op, neutral, divisor, x, out, q, start, stop):
    """out = `op` over all taps of a window, beginning with what is neutral, over the divisor."""
    plane_size = q[SIZE] * q[SIZE + HEIGHT] * q[SIZE + WIDTH]
    columns, padding, along = q[OUT + WIDTH], q[PADDING + WIDTH], windows_along(q)
    stride, last = along[2], last_inside(along)
    oh, od, outer = row_of(q, start)
    for unit in range(start, stop):
        plane = shifted(x, outer * plane_size)
        for begin in range(0, columns, LANES):
            left = max(min(begin, columns - LANES), 0)  # the last ones may be some of those before
            first = left * stride - padding
            whole = 0 <= first <= last
            made = sum_of_windows(op, neutral, plane, q, along, od, oh, first, whole)
            made = combine(truediv, made, spread(divisor))
            store_block(out, unit * columns + left, made, min(LANES, columns - left))
        oh, od, outer = row_after(q, oh, od, outer)


@kernel
def sum_windows(args, start, stop):
    """out = the sum of each window over the divisor; a unit is an output row."""
    p = words(args)
    q = shifted(p, 2)
    divisor = scalar(q[INNER + 1], T)
    over_windows(add, T(0), divisor, at(p[0], T), at(p[1], T), q, start, stop)


@kernel
def max_values(args, start, stop):
    """`max_windows` of floats without the places."""
    p = words(args)
    x, out = at(p[0], T), at(p[1], T)
    over_windows(max, T(-math.inf), T(1), x, out, shifted(p, 2), start, stop)


@helper
def windows_with(q, axis, i):
    """The first and the last window along an axis that an input place lies in; windows have no gaps."""
    last, before = i + q[PADDING + axis], i + q[PADDING + axis] - q[KERNEL + axis] + 1
    if q[STRIDE + axis] > 1:  # divisions take as long as a short row
        last = quotient(last, q[STRIDE + axis])
        before = quotient(before + q[STRIDE + axis] - 1, q[STRIDE + axis]) if before > 0 else 0
    return max(before, 0), min(last, q[OUT + axis] - 1)


@kernel
def spread_windows(args, start, stop):
    """The transpose of sum_windows: each input place gets the sum over the windows it lies in.

    A unit is an input row. Words: g, out, then as in sum_windows; there is no dilation.
    """
    p = words(args)
    g, out, q = at(p[0], T), at(p[1], T), shifted(p, 2)
    depth, height, width, inner = q[SIZE], q[SIZE + 1], q[SIZE + 2], q[INNER]
    rows, columns = q[OUT + HEIGHT], q[OUT + WIDTH]
    divisor = scalar(q[INNER + 1], T)
    total, strip = stack(T, STRIP), STRIP if inner == 1 else columns
    begins, ends = words(stack_words(STRIP)), words(stack_words(STRIP))
    is_few = inner == 1 and width <= STRIP and columns <= STRIP
    for w in range(width if is_few else 0):
        begins[w], ends[w] = windows_with(q, WIDTH, w)
    h, d, outer = start % height, start // height % depth, start // height // depth
    first_d, last_d = windows_with(q, DEPTH, d)
    for unit in range(start, stop):
        first_h, last_h = windows_with(q, HEIGHT, h)
        target = shifted(out, unit * width * inner)
        for i in range(0 if is_few else width * inner):
            target[i] = T(0)
        for left in range(0, columns, strip):
            count = min(strip, columns - left)
            if inner == 1:
                for o in range(count):
                    total[o] = T(0)
            for od in range(last_d, first_d - 1, -1):
                for oh in range(last_h, first_h - 1, -1):
                    line = ((outer * q[OUT] + od) * rows + oh) * columns + left
                    row = shifted(g, line * inner)
                    if inner == 1:
                        for o in range(count):
                            total[o] += row[o]
                    else:
                        spread_row(target, row, q, left, count)
            if (
                inner == 1 and not is_few
            ):  # the rows that windows have in common are spread together
                spread_row(target, total, q, left, count)
        for w in range(width if is_few else 0):
            made = total[begins[w]] if begins[w] <= ends[w] else T(0)
            for o in range(begins[w] + 1, ends[w] + 1):
                made += total[o]
            target[w] = made / divisor
        for i in range(0 if is_few else width * inner):
            target[i] /= divisor
        h += 1
        if h == height:
            h, d = 0, d + 1
            if d == depth:
                d, outer = 0, outer + 1
            first_d, last_d = windows_with(q, DEPTH, d)


@helper
def spread_row(target, row, q, left, count):
    """Add to an input row the windows of an output row, of which there are `count` from one on."""
    stride, inner = q[STRIDE + WIDTH], q[INNER]
    for kw in range(q[KERNEL + WIDTH]):
        w = source_of(q, WIDTH, left, kw)
        first, last = in_input(w, stride, count, q[SIZE + WIDTH])
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


# ----- CUDA: a thread for each result -----


@helper
def window_of(q, unit):
    """Where the window of a result begins: the plane of its image, its places on three axes, its channel."""
    place, channel = quotient(unit, q[INNER]), remainder(unit, q[INNER])
    line, ow = quotient(place, q[OUT + WIDTH]), remainder(place, q[OUT + WIDTH])
    volume, oh = quotient(line, q[OUT + HEIGHT]), remainder(line, q[OUT + HEIGHT])
    return quotient(volume, q[OUT]), remainder(volume, q[OUT]), oh, ow, channel


@helper
def results_of(q, n):
    """How many results there are in so many output rows."""
    return n * q[OUT + WIDTH] * q[INNER]


@helper
def end_of_area(o, size, places):
    """The end of what an output place covers, be it in part."""
    return quotient((o + 1) * size + places - 1, places)


@on_device(max_windows_in_strips)
@on_device(max_windows)
def max_windows_by_threads(row, n):
    """`max_windows`; a unit is a result."""
    x, values, places, q = at(row[0], T), at(row[1], T), at(row[2], Y), shifted(row, 3)
    depth, height, width, inner = q[SIZE], q[SIZE + HEIGHT], q[SIZE + WIDTH], q[INNER]
    for unit in range(first_unit(), results_of(q, n), all_threads()):
        outer, od, oh, ow, channel = window_of(q, unit)
        plane = shifted(x, outer * depth * height * width * inner + channel)
        best, where = least_of(T), Y(-1)
        for kd in range(q[KERNEL]):
            d = source_of(q, DEPTH, od, kd)
            for kh in range(q[KERNEL + HEIGHT]):
                h = source_of(q, HEIGHT, oh, kh)
                if d < 0 or d >= depth or h < 0 or h >= height:
                    continue
                for kw in range(q[KERNEL + WIDTH]):
                    w = source_of(q, WIDTH, ow, kw)
                    if w >= 0 and w < width:
                        place = (d * height + h) * width + w
                        value = plane[place * inner]
                        if value > best or value != value or where < 0:
                            best, where = value, Y(place)
        values[unit], places[unit] = best, where


@on_device(max_areas)
def max_areas_by_threads(row, n):
    """`max_areas`; a unit is a result."""
    x, values, places, q = at(row[0], T), at(row[1], T), at(row[2], Y), shifted(row, 3)
    depth, height, width, inner = q[SIZE], q[SIZE + HEIGHT], q[SIZE + WIDTH], q[INNER]
    depths, rows, columns = q[OUT], q[OUT + HEIGHT], q[OUT + WIDTH]
    for unit in range(first_unit(), results_of(q, n), all_threads()):
        outer, od, oh, ow, channel = window_of(q, unit)
        plane = shifted(x, outer * depth * height * width * inner + channel)
        best, where = T(0), Y(-1)
        for d in range(quotient(od * depth, depths), end_of_area(od, depth, depths)):
            for h in range(quotient(oh * height, rows), end_of_area(oh, height, rows)):
                for w in range(quotient(ow * width, columns), end_of_area(ow, width, columns)):
                    place = (d * height + h) * width + w
                    value = plane[place * inner]
                    if value > best or value != value or where < 0:
                        best, where = value, Y(place)
        values[unit], places[unit] = best, where


@helper
def over_windows_by_threads(op, neutral, divisor, x, out, q, n):
    """`over_windows`; a unit is a result."""
    depth, height, width, inner = q[SIZE], q[SIZE + HEIGHT], q[SIZE + WIDTH], q[INNER]
    for unit in range(first_unit(), results_of(q, n), all_threads()):
        outer, od, oh, ow, channel = window_of(q, unit)
        plane = shifted(x, outer * depth * height * width * inner + channel)
        total = neutral
        for kd in range(q[KERNEL]):
            d = source_of(q, DEPTH, od, kd)
            for kh in range(q[KERNEL + HEIGHT]):
                h = source_of(q, HEIGHT, oh, kh)
                if d < 0 or d >= depth or h < 0 or h >= height:
                    continue
                for kw in range(q[KERNEL + WIDTH]):
                    w = source_of(q, WIDTH, ow, kw)
                    if w >= 0 and w < width:
                        total = combine(op, total, plane[((d * height + h) * width + w) * inner])
        out[unit] = total / divisor


@on_device(sum_windows_of_few)
def sum_windows_of_few_by_threads(row, n):
    """`sum_windows_of_few`, in its order; a unit is a result."""
    x, out, q = at(row[0], T), at(row[1], T), shifted(row, 2)
    depth, height, width, inner = q[SIZE], q[SIZE + HEIGHT], q[SIZE + WIDTH], q[INNER]
    for unit in range(first_unit(), results_of(q, n), all_threads()):
        outer, od, oh, ow, channel = window_of(q, unit)
        plane = shifted(x, outer * depth * height * width * inner + channel)
        total = T(0)
        for kw in range(q[KERNEL + WIDTH]):
            w = source_of(q, WIDTH, ow, kw)
            if w < 0 or w >= width:
                continue
            above = T(0)
            for kd in range(q[KERNEL]):
                d = source_of(q, DEPTH, od, kd)
                for kh in range(q[KERNEL + HEIGHT]):
                    h = source_of(q, HEIGHT, oh, kh)
                    if 0 <= d < depth and 0 <= h < height:
                        above += plane[((d * height + h) * width + w) * inner]
            total += above
        out[unit] = total / scalar(q[INNER + 1], T)


@on_device(sum_windows_in_strips)
@on_device(sum_windows)
def sum_windows_by_threads(row, n):
    """`sum_windows`; a unit is a result."""
    q = shifted(row, 2)
    over_windows_by_threads(add, T(0), scalar(q[INNER + 1], T), at(row[0], T), at(row[1], T), q, n)


@on_device(spread_windows)
def spread_windows_by_threads(row, n):
    """`spread_windows`; a unit is a number of the input."""
    g, out, q = at(row[0], T), at(row[1], T), shifted(row, 2)
    depth, height, width, inner = q[SIZE], q[SIZE + HEIGHT], q[SIZE + WIDTH], q[INNER]
    for unit in range(first_unit(), n * width * inner, all_threads()):
        place, channel = quotient(unit, inner), remainder(unit, inner)
        line, w = quotient(place, width), remainder(place, width)
        volume, h = quotient(line, height), remainder(line, height)
        outer, d = quotient(volume, depth), remainder(volume, depth)
        first_d, last_d = windows_with(q, DEPTH, d)
        first_h, last_h = windows_with(q, HEIGHT, h)
        first_w, last_w = windows_with(q, WIDTH, w)
        total = T(0)
        for ow in range(first_w, last_w + 1):
            for od in range(last_d, first_d - 1, -1):
                for oh in range(last_h, first_h - 1, -1):
                    row_at = (outer * q[OUT] + od) * q[OUT + HEIGHT] + oh
                    total += g[(row_at * q[OUT + WIDTH] + ow) * inner + channel]
        out[unit] = total / scalar(q[INNER + 1], T)


@on_device(max_values_of_few)
@on_device(max_values_in_strips)
@on_device(max_values)
def max_values_by_threads(row, n):
    """`max_values`; a unit is a result."""
    over_windows_by_threads(
        max, T(-math.inf), T(1), at(row[0], T), at(row[1], T), shifted(row, 2), n
    )
