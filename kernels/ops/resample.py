"""Linear maps along one axis: interpolation, area means, padding by what is there.

Each output place is a weighted sum of a few input places. A first step writes the table, which
places and which weights; then every line along the axis is mapped by it, or its gradient mapped
back. Maps of several axes are run one after the other, so a bilinear image costs two taps and two
taps, not four. A tap of weight 0 is not read.

Memory is seen as outer x length x inner. Words: x, out, scratch; then the table's words
    kind, length, places, taps, before, aligned
and `inner` and `strips`; as the last one the scale as bits (input places per output place), 0 where
it follows from the lengths. Scratch: taps x places input places, then as many weights.
"""

import numpy as np

from ..language.abi import (
    A,
    I,
    T,
    at,
    helper,
    kernel,
    quotient,
    remainder,
    scalar,
    shifted,
    words,
)
from ..language.device import all_threads, first_unit, on_device
from ..language.lanes import add_run, copy_line, copy_run, stack

NEAREST, NEAREST_EXACT, LINEAR, CUBIC, LINEAR_WIDE, CUBIC_WIDE, AREA = range(7)
REFLECT, REPLICATE, CIRCULAR = range(7, 10)

SIDE_BY_SIDE = 16  # sums
STRIP = 256  # elements of a line that are summed at a time
FEW = 16  # places of a line that are not worth the preparations of a loop over all, tap by tap
TABLE = 3  # where the words of the table begin


@helper
def cubic_weight(x, a, A):
    """Keys' cubic convolution kernel at a distance below 2."""
    x = abs(x)
    if x <= A(1):
        return ((a + A(2)) * x - (a + A(3))) * x * x + A(1)
    return ((a * x - A(5) * a) * x + A(8) * a) * x - A(4) * a


@helper
def scale_of(length, places, aligned, given, A):
    """How far apart in the input neighbouring output places lie."""
    if aligned:
        return A(length - 1) / A(places - 1) if places > 1 else A(0)
    return given if given > A(0) else A(length) / A(places)


@helper
def mirrored(kind, o, before, length, places):
    """The input place that stands at a place of a padded axis."""
    place = o - before
    if kind == REPLICATE:
        return min(max(place, 0), length - 1)
    if kind == CIRCULAR:  # what negative widths cut off is not repeated
        cut = max(-before, 0)
        kept = max(length - cut - max(length + before - places, 0), 1)
        while place < cut:  # at most once or twice: a division takes longer
            place += kept
        while place >= cut + kept:
            place -= kept
        return place
    place = abs(place)
    return place if place < length else 2 * (length - 1) - place


@helper
def floor_of(x, A):
    """The largest whole number that is not above x. (`math.floor` takes float64.)"""
    whole = np.int64(x)
    return whole - 1 if A(whole) > x else whole


@helper
def edge_of(k, first, behind):
    """The place of an edge's element: those before the first that is copied, then those behind the last."""
    return k if k < first else behind + k - first


@kernel
def pad_volumes(args, start, stop):
    """Up to three axes padded at once; a unit is a row of the result.

    Words: x, out, then of the depths, the rows and the columns: kind, length, places, before.
    """
    p = words(args)
    x, out = at(p[0], T), at(p[1], T)
    depths, rows, columns = shifted(p, 2), shifted(p, 6), shifted(p, 10)
    kind, length, places, before = columns[0], columns[1], columns[2], columns[3]
    first, last = max(before, 0), max(min(before + length, places), 0)
    behind = max(first, last)
    count, edges = first + places - behind, stack(I, STRIP)
    known = min(count, STRIP)
    for k in range(known):  # of all rows alike
        edges[k] = mirrored(kind, edge_of(k, first, behind), before, length, places)
    plane, row = start // rows[2], start % rows[2]
    volume, depth = plane // depths[2], plane % depths[2]
    plane = mirrored(depths[0], depth, depths[3], depths[1], depths[2])
    for unit in range(start, stop):  # a division takes as long as a short line
        line = mirrored(rows[0], row, rows[3], rows[1], rows[2])
        line += (volume * depths[1] + plane) * rows[1]
        source, target = shifted(x, line * length), shifted(out, unit * places)
        copy_line(shifted(target, first), shifted(source, first - before), max(last - first, 0))
        for k in range(known):
            target[edge_of(k, first, behind)] = source[edges[k]]
        for k in range(known, count):
            o = edge_of(k, first, behind)
            target[o] = source[mirrored(kind, o, before, length, places)]
        row += 1
        if row == rows[2]:
            row, depth = 0, depth + 1
            if depth == depths[2]:
                volume, depth = volume + 1, 0
            plane = mirrored(depths[0], depth, depths[3], depths[1], depths[2])


@helper
def area_of(o, length, places):
    """The input places that an output place covers, be it in part."""
    return o * length // places, -((-(o + 1) * length) // places)


# Tables: a kernel for each family, since one for all would take 2.4 s to compile.


@kernel
def table_of_pads(args, start, stop):
    """Where the elements of a padded axis come from: mirrored, repeated, or from the other end."""
    p = words(args)
    q, indices = shifted(p, TABLE), at(p[2], I)
    kind, length, places, before = q[0], q[1], q[2], q[4]
    weights = at(p[2] + 8 * places, A)
    for o in range(places):
        indices[o] = mirrored(kind, o, before, length, places)
        weights[o] = A(1)


@kernel
def table_of_nearest(args, start, stop):
    """The input place nearest to each output place, rounded as PyTorch rounds it."""
    p = words(args)
    q, indices = shifted(p, TABLE), at(p[2], I)
    kind, length, places, given = q[0], q[1], q[2], scalar(q[8], A)
    weights = at(p[2] + 8 * places, A)
    step = given if given > A(0) else A(length) / A(places)
    shift = A(0.5 if kind == NEAREST_EXACT else 0.0)
    for o in range(places):
        source = np.float32((A(o) + shift) * step)
        indices[o] = min(floor_of(source, np.float32), length - 1)
        weights[o] = A(1)


@kernel
def table_of_areas(args, start, stop):
    """The mean of all input places that an output place covers, be it in part."""
    p = words(args)
    q, indices = shifted(p, TABLE), at(p[2], I)
    length, places, taps = q[1], q[2], q[3]
    weights = at(p[2] + 8 * taps * places, A)
    for o in range(places):
        first, last = area_of(o, length, places)
        for t in range(taps):
            inside = first + t < last
            indices[t * places + o] = first + t if inside else first
            weights[t * places + o] = A(1) / A(last - first) if inside else A(0)


@kernel
def table_of_curves(args, start, stop):
    """Linear and cubic interpolation."""
    p = words(args)
    q, indices = shifted(p, TABLE), at(p[2], I)
    kind, length, places, taps, aligned = q[0], q[1], q[2], q[3], q[5]
    weights = at(p[2] + 8 * taps * places, A)
    scale = scale_of(length, places, aligned, scalar(q[8], A), A)
    for o in range(places):
        source = scale * A(o) if aligned else scale * (A(o) + A(0.5)) - A(0.5)
        if kind == LINEAR:
            source = max(source, A(0))
        place = floor_of(source, A)
        if kind == LINEAR:
            place = min(place, length - 1)
        share = min(max(source - A(place), A(0)), A(1))
        if kind == LINEAR:
            indices[o], indices[places + o] = place, min(place + 1, length - 1)
            weights[o], weights[places + o] = A(1) - share, share
        else:
            for t in range(4):
                indices[t * places + o] = min(max(place - 1 + t, 0), length - 1)
                weights[t * places + o] = cubic_weight(share + A(1 - t), A(-0.75), A)


@kernel
def table_of_wide_curves(args, start, stop):
    """Linear and cubic kernels stretched by the scale, so that no input place is left out."""
    p = words(args)
    q, indices = shifted(p, TABLE), at(p[2], I)
    kind, length, places, taps, aligned = q[0], q[1], q[2], q[3], q[5]
    weights = at(p[2] + 8 * taps * places, A)
    scale = scale_of(length, places, aligned, scalar(q[8], A), A)
    stretch = max(scale, A(1))
    support = (A(2) if kind == CUBIC_WIDE else A(1)) * stretch
    for o in range(places):
        center = scale * (A(o) + A(0.5))
        first = max(np.int64(center - support + A(0.5)), 0)
        count = min(min(np.int64(center + support + A(0.5)), length) - first, taps)
        total = A(0)
        for t in range(taps):
            distance = abs((A(t + first) - center + A(0.5)) / stretch)
            w = A(0)
            if t < count:
                w = max(A(1) - distance, A(0))
                if kind == CUBIC_WIDE:
                    w = cubic_weight(min(distance, A(2)), A(-0.5), A)
            indices[t * places + o] = first + t if t < count else first
            weights[t * places + o] = w
            total += w
        for t in range(taps):
            weights[t * places + o] /= total


@helper
def inside(q):
    """The places that padding fills with the input as it is; none for other kinds."""
    if q[0] < REFLECT:
        return 0, 0
    return max(q[4], 0), max(min(q[4] + q[1], q[2]), 0)


@kernel
def copy_axis(args, start, stop):
    """Lines of one tap, whatever the dtype; a unit is a line, or a place of all inner lines."""
    p = words(args)
    x, out, indices = at(p[0], T), at(p[1], T), at(p[2], I)
    length, places, before, inner = p[4], p[5], p[7], p[9]
    first, last = inside(shifted(p, TABLE))
    if inner == 1:
        for unit in range(start, stop):
            source, target = shifted(x, unit * length), shifted(out, unit * places)
            for o in range(first):
                target[o] = source[indices[o]]
            for o in range(first, last):
                target[o] = source[o - before]
            for o in range(last, places):
                target[o] = source[indices[o]]
    else:
        first_line, o = start // places * length, start % places
        for unit in range(start, stop):  # a division takes as long as a short line
            line = first_line + indices[o]
            copy_run(shifted(out, unit * inner), shifted(x, line * inner), inner)
            o += 1
            if o == places:
                first_line, o = first_line + length, 0


@helper
def are_few(kind, places, taps):
    """Whether places cover so much that each is summed by itself, in place of all at once, tap by tap."""
    return kind == AREA and 2 * taps > places


@helper
def sum_of_run(line, first, last, T):
    """The sum of line[first:last], sixteen sums side by side: one alone would wait for each addition."""
    total, whole = T(0), first
    if last - first >= SIDE_BY_SIDE:
        whole += (last - first) // SIDE_BY_SIDE * SIDE_BY_SIDE
        sums = stack(T, SIDE_BY_SIDE)
        for j in range(SIDE_BY_SIDE):
            sums[j] = line[first + j]
        for i in range(first + SIDE_BY_SIDE, whole, SIDE_BY_SIDE):
            for j in range(SIDE_BY_SIDE):
                sums[j] += line[i + j]
        for j in range(SIDE_BY_SIDE):
            total += sums[j]
    for i in range(whole, last):
        total += line[i]
    return total


@helper
def weighted(value, weight, T):
    """A value by the weight of a tap, one of weight 0 being none: infinity would become NaN."""
    return weight * value if weight != T(0) else T(0)


@helper
def tap(source, indices, weights, k, T):
    """What a tap of the table adds."""
    return weighted(source[indices[k]], weights[k], T)


@helper
def mix_short_lines(x, out, indices, weights, length, places, taps, start, stop, T):
    """`mix_axis` along lines of few places, one after the other."""
    for line in range(start, stop):
        source, target = shifted(x, line * length), shifted(out, line * places)
        for o in range(places):
            if taps == 2:
                near = tap(source, indices, weights, o, T)
                target[o] = near + tap(source, indices, weights, places + o, T)
            else:
                total = T(0)
                for t in range(taps):
                    total += tap(source, indices, weights, t * places + o, T)
                target[o] = total


@kernel
def mix_axis(args, start, stop):
    """Lines of weighted taps; units as in copy_axis."""
    p = words(args)
    x, out = at(p[0], T), at(p[1], T)
    kind, length, places, taps, inner = p[3], p[4], p[5], p[6], p[9]
    indices, weights = at(p[2], I), at(p[2] + 8 * taps * places, T)
    if inner == 1 and places <= FEW and not are_few(kind, places, taps):
        mix_short_lines(x, out, indices, weights, length, places, taps, start, stop, T)
        return
    total = stack(T, STRIP)
    for unit in range(start, stop):
        source = shifted(x, (unit if inner == 1 else unit // places) * length * inner)
        target = shifted(out, unit * (places if inner == 1 else inner))
        if inner == 1 and are_few(kind, places, taps):
            for place in range(places):
                first, last = area_of(place, length, places)
                target[place] = sum_of_run(source, first, last, T) * weights[place]
            continue
        o = unit % places
        size = places if inner == 1 else inner
        if inner > 1 and taps == 2:
            near, far = weights[o], weights[places + o]
            a, b = shifted(source, indices[o] * inner), shifted(source, indices[places + o] * inner)
            if near == T(0) or far == T(0):  # 0 times infinity would be NaN
                weight, line = (far, b) if near == T(0) else (near, a)
                for j in range(inner):
                    target[j] = weight * line[j]
            else:
                for j in range(inner):
                    target[j] = near * a[j] + far * b[j]
            continue
        for left in range(0, size, STRIP):
            width = min(STRIP, size - left)
            for j in range(width):
                total[j] = T(0)
            if inner == 1:
                for t in range(taps):
                    w, k = shifted(weights, t * places + left), shifted(indices, t * places + left)
                    for j in range(width):
                        total[j] += weighted(source[k[j]], w[j], T)
            else:
                for t in range(taps):
                    weight = weights[t * places + o]
                    if weight != T(0):
                        line = shifted(source, indices[t * places + o] * inner + left)
                        for j in range(width):
                            total[j] += weight * line[j]
            for j in range(width):
                target[left + j] = total[j]


@helper
def add_constant(target, begin, end, value):
    """target[begin:end] += value."""
    for i in range(begin, end):
        target[i] += value


@kernel
def spread_axis(args, start, stop):
    """The transpose of mix_axis: x is the gradient of the places, out that of the input.

    A unit is a line, or a strip of all inner lines. The places of a nearest one follow each other.
    """
    p = words(args)
    g, out = at(p[0], T), at(p[1], T)
    kind, length, places, taps, before, inner, strips = p[3], p[4], p[5], p[6], p[7], p[9], p[10]
    indices, weights = at(p[2], I), at(p[2] + 8 * taps * places, T)
    first, last = inside(shifted(p, TABLE))
    for unit in range(start, stop):
        left = unit % strips * STRIP
        width = min(STRIP, inner - left)
        source = shifted(g, unit // strips * places * inner + left)
        target = shifted(out, unit // strips * length * inner + left)
        if inner == 1:
            for i in range(length):
                target[i] = T(0)
            for o in range(first, last):
                target[o - before] = source[o]
            if are_few(kind, places, taps):
                for o in range(places):
                    begin, end = area_of(o, length, places)
                    add_constant(target, begin, end, weights[o] * source[o])
                continue
            for t in range(taps):
                w, k = shifted(weights, t * places), shifted(indices, t * places)
                for o in range(first):
                    target[k[o]] += weighted(source[o], w[o], T)
                for o in range(last, places):
                    target[k[o]] += weighted(source[o], w[o], T)
        elif kind <= NEAREST_EXACT:
            o = 0
            for i in range(length):
                line = shifted(target, i * inner)
                if o < places and indices[o] == i:
                    copy_run(line, shifted(source, o * inner), width)
                    o += 1
                else:
                    for j in range(width):
                        line[j] = T(0)
                while o < places and indices[o] == i:
                    add_run(line, shifted(source, o * inner), width, T(1))
                    o += 1
        else:
            for i in range(length):
                for j in range(width):
                    target[i * inner + j] = T(0)
            for t in range(taps):
                for o in range(places):
                    weight = weights[t * places + o]
                    if weight != T(0):
                        line = shifted(target, indices[t * places + o] * inner)
                        add_run(line, shifted(source, o * inner), width, weight)


# ----- CUDA -----


@on_device(pad_volumes)
def pad_volumes_by_threads(row, n):
    """`pad_volumes`; a unit is an element of the result."""
    x, out = at(row[0], T), at(row[1], T)
    depths, rows, columns = shifted(row, 2), shifted(row, 6), shifted(row, 10)
    for unit in range(first_unit(), n * columns[2], all_threads()):
        line, column = quotient(unit, columns[2]), remainder(unit, columns[2])
        plane, high = quotient(line, rows[2]), remainder(line, rows[2])
        volume, deep = quotient(plane, depths[2]), remainder(plane, depths[2])
        place = volume * depths[1] + mirrored(depths[0], deep, depths[3], depths[1], depths[2])
        place = place * rows[1] + mirrored(rows[0], high, rows[3], rows[1], rows[2])
        place = place * columns[1] + mirrored(
            columns[0], column, columns[3], columns[1], columns[2]
        )
        out[unit] = x[place]


@helper
def first_that_sees(indices, places, least):
    """The first output place whose first tap is not below an input place; the taps go upwards."""
    low, high = 0, places
    while low < high:
        middle = quotient(low + high, 2)
        if indices[middle] < least:
            low = middle + 1
        else:
            high = middle
    return low


@on_device(spread_axis)
def spread_axis_by_threads(row, n):
    """Each input place asks the output places that may see it, in the order that the CPU adds in."""
    g, out = at(row[0], T), at(row[1], T)
    kind, length, places, taps, before, inner = row[3], row[4], row[5], row[6], row[7], row[9]
    indices, weights = at(row[2], I), at(row[2] + 8 * taps * places, T)
    first, last = inside(shifted(row, TABLE))
    for unit in range(first_unit(), quotient(n, row[10]) * length * inner, all_threads()):
        line, j = quotient(unit, inner), remainder(unit, inner)
        i = remainder(line, length)
        source = shifted(g, quotient(line, length) * places * inner + j)
        total, begin, end = T(0), 0, places
        if kind >= REFLECT:
            o = i + before
            if first <= o < last:
                total = source[o * inner]
        else:
            begin = first_that_sees(indices, places, i - taps + 1)
            end = first_that_sees(indices, places, i + 1)
        for t in range(taps):
            k = t * places
            for o in range(begin, end):
                if (o < first or o >= last) and indices[k + o] == i and weights[k + o] != T(0):
                    total += weights[k + o] * source[o * inner]
        out[unit] = total
