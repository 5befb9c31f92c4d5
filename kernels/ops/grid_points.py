"""The elements of an image around the points of a grid, and their weights.

A point has a coordinate along each axis, x first, from -1 to 1. Along each axis 1, 2 or 4 elements are
around it (nearest, linear, cubic), of which every combination is a tap: the last axis' changes first. Grids
are images x points x axes, what belongs to taps images x taps x points. Words: tensors; then points, axes,
what lies outside, whether -1 and 1 are the centers of the outer elements, the number from which on all
numbers of the dtype are whole, the image's size along each axis, and the taps along one. Z is a whole number
of T's size. A unit is a strip of the points of an image; each loop does one thing to all of them, which takes
a vector a time.
"""

from ..language.abi import T, Y, Z, at, helper, kernel, quotient, remainder, shifted, words
from ..language.device import all_threads, first_unit, local, on_device
from ..language.lanes import stack

SPAN = 64  # points that are looked at together
ROOM = 3 * 4 * SPAN  # for the taps along all axes
NEAREST, LINEAR, CUBIC = 1, 2, 4
ZEROS, BORDER, REFLECTION = range(3)
A = -0.75  # of Keys' cubic convolution, as PyTorch has it


@helper
def floor(x, limit, T, Z):
    """The largest whole number that is not above x; x itself from the limit on, and if it is no number."""
    is_small = abs(x) < limit
    small = x if is_small else T(0)
    whole = T(Z(small))
    below = whole - (T(1) if whole > small else T(0))
    return below if is_small else x


@helper
def rounded(x, limit, T, Z):
    """The whole number nearest to x, the even one of two."""
    below = floor(x, limit, T, Z)
    rest = x - below
    is_odd = below - T(2) * floor(below * T(0.5), limit, T, Z) != T(0)
    return below + (T(1) if (rest > T(0.5)) | ((rest == T(0.5)) & is_odd) else T(0))


@helper
def mirrored(u, low, span, limit, T, Z):
    """A coordinate mirrored at both bounds until it lies between them, and which way it moves with `u`."""
    is_below = u < low
    distance = low - u if is_below else u - low
    flips = floor(distance / span, limit, T, Z)
    rest = distance - flips * span
    is_even = flips - T(2) * floor(flips * T(0.5), limit, T, Z) == T(0)
    return (rest if is_even else span - rest) + low, T(1) if is_below != is_even else T(-1)


@helper
def keep_inside(u, slopes, width, size, outside, aligned, limit, T, Z):
    """Coordinates in elements as the padding takes them; how fast they move is multiplied by 1, -1 or 0."""
    last = T(size - 1)
    if outside == REFLECTION:
        low, span = (T(0), last) if aligned else (T(-0.5), T(size))
        if span > T(0):  # else all of them are clamped to the only element
            for j in range(width):
                u[j], way = mirrored(u[j], low, span, limit, T, Z)
                slopes[j] *= way
    if outside != ZEROS:
        for j in range(width):
            u[j], slopes[j] = clamped(u[j], slopes[j], last, T)


@helper
def clamped(u, slope, last, T):
    """A coordinate between 0 and the last, and how fast it moves: not at all at these."""
    above = T(0) if u <= T(0) else u
    return last if above >= last else above, T(0) if (u <= T(0)) | (u >= last) else slope


@helper
def far(x, T):
    """Keys' kernel at a distance from 1 to 2."""
    a = T(A)
    return ((a * x - T(5) * a) * x + T(8) * a) * x - T(4) * a


@helper
def near(x, T):
    """Keys' kernel at a distance up to 1."""
    a = T(A)
    return ((a + T(2)) * x - (a + T(3))) * x * x + T(1)


@helper
def far_slope(x, T):
    """The derivative of `far`."""
    a = T(A)
    return (T(3) * a * x - T(10) * a) * x + T(8) * a


@helper
def near_slope(x, T):
    """The derivative of `near`."""
    a = T(A)
    return (T(3) * (a + T(2)) * x - T(2) * (a + T(3))) * x


@helper
def curve(share, slope, weights, slopes, step, T):
    """Write the weights of four elements, `step` apart, and how fast they change."""
    rest = T(1) - share
    weights[0], weights[step] = far(share + T(1), T), near(share, T)
    weights[2 * step], weights[3 * step] = near(rest, T), far(rest + T(1), T)
    slopes[0], slopes[step] = slope * far_slope(share + T(1), T), slope * near_slope(share, T)
    slopes[2 * step], slopes[3 * step] = (
        -slope * near_slope(rest, T),
        -slope * far_slope(rest + T(1), T),
    )


@helper
def look_along(grid, step, width, kind, q, size, u, places, weights, slopes, T, Y, Z):
    """Write places along an axis (-1 where there is none), weights, and how fast they change with the
    coordinates; each has the taps' strips one behind the other. `u` is scratch."""
    outside, aligned, limit = q[2], q[3] != 0, T(q[4])
    scale = T(0.5) * T(size - 1 if aligned else size)
    if aligned:
        for j in range(width):
            u[j], slopes[j] = (grid[j * step] + T(1)) * scale, scale
    else:
        for j in range(width):
            u[j], slopes[j] = ((grid[j * step] + T(1)) * T(size) - T(1)) * T(0.5), scale
    if kind != CUBIC:
        keep_inside(u, slopes, width, size, outside, aligned, limit, T, Z)
    if kind == NEAREST:
        for j in range(width):
            u[j], weights[j], slopes[j] = rounded(u[j], limit, T, Z), T(1), T(0)
    else:
        for j in range(width):
            first = floor(u[j], limit, T, Z)
            share = u[j] - first
            u[j] = first
            # What is not finite has no elements around it.
            weights[j] = share if share >= T(0) else T(0)
    if kind == LINEAR:
        for j in range(width):
            share, slope = weights[j], slopes[j]
            weights[j], weights[SPAN + j] = T(1) - share, share
            slopes[j], slopes[SPAN + j] = -slope, slope
    if kind == CUBIC:
        for j in range(width):
            share, slope = weights[j], slopes[j]
            curve(share, slope, shifted(weights, j), shifted(slopes, j), SPAN, T)
    for t in range(kind):
        put_places(shifted(places, t * SPAN), u, t - kind // 4, width, size, kind, q, T, Y, Z)


@helper
def put_places(places, u, ahead, width, size, kind, q, T, Y, Z):
    """Write the places that lie so many elements ahead of those before the points, -1 where there is none."""
    last, line = T(size - 1), stack(T, SPAN)
    for j in range(width):
        line[j] = u[j] + T(ahead)
    if kind == CUBIC:
        keep_inside(line, stack(T, SPAN), width, size, q[2], q[3] != 0, T(q[4]), T, Z)
    for j in range(width):
        is_there = (line[j] >= T(0)) & (line[j] <= last)
        places[j] = Y(line[j] if is_there else T(-1))


@helper
def look_around(q, grid, width, kind, u, places, weights, slopes, T, Y, Z):
    """`look_along` each axis, the axes one behind the other."""
    axes = q[1]
    for d in range(axes):
        room = d * kind * SPAN
        look_along(
            shifted(grid, axes - 1 - d), axes, width, kind, q, q[5 + d], u,
            shifted(places, room), shifted(weights, room), shifted(slopes, room), T, Y, Z,
        )  # fmt: skip


@helper
def find_taps(args, start, stop, kind, T, Y, Z):
    """Where the taps of points lie in an image, -1 where there is none, and their weights.

    Words: grid, places, weights.
    """
    p = words(args)
    grid, places, weights, q = at(p[0], T), at(p[1], Y), at(p[2], T), shifted(p, 3)
    points, axes = q[0], q[1]
    u, along, shares, slopes = stack(T, SPAN), stack(Y, ROOM), stack(T, ROOM), stack(T, ROOM)
    strips, taps = -(-points // SPAN), kind**axes
    for unit in range(start, stop):
        image, left = unit // strips, unit % strips * SPAN
        width = min(SPAN, points - left)
        here = shifted(grid, (image * points + left) * axes)
        look_around(q, here, width, kind, u, along, shares, slopes, T, Y, Z)
        for tap in range(taps):
            begin = (image * taps + tap) * points + left
            place, weight, rest = shifted(places, begin), shifted(weights, begin), taps
            for d in range(axes):
                rest //= kind
                row, size = (d * kind + tap // rest % kind) * SPAN, Y(q[5 + d])
                line, share = shifted(along, row), shifted(shares, row)
                if d == 0:
                    for j in range(width):
                        place[j], weight[j] = line[j], share[j]
                else:
                    for j in range(width):
                        is_there = (place[j] >= Y(0)) & (line[j] >= Y(0))
                        place[j] = place[j] * size + line[j] if is_there else Y(-1)
                        weight[j] *= share[j]


@helper
def move_points(args, start, stop, kind, T, Y, Z):
    """The gradient of points, of one with respect to the weights of their taps.

    Words: the gradient of the weights, grid, out.
    """
    p = words(args)
    upper, grid, out, q = at(p[0], T), at(p[1], T), at(p[2], T), shifted(p, 3)
    points, axes = q[0], q[1]
    u, along, shares, slopes = stack(T, SPAN), stack(Y, ROOM), stack(T, ROOM), stack(T, ROOM)
    total, product = stack(T, SPAN), stack(T, SPAN)
    strips, taps = -(-points // SPAN), kind**axes
    for unit in range(start, stop):
        image, left = unit // strips, unit % strips * SPAN
        width = min(SPAN, points - left)
        begin = (image * points + left) * axes
        look_around(q, shifted(grid, begin), width, kind, u, along, shares, slopes, T, Y, Z)
        for axis in range(axes):
            for j in range(width):
                total[j] = T(0)
            for tap in range(taps):
                g, rest = shifted(upper, (image * taps + tap) * points + left), taps
                for j in range(width):
                    product[j] = g[j]
                for d in range(axes):
                    rest //= kind
                    row = (d * kind + tap // rest % kind) * SPAN
                    factor = shifted(slopes, row) if d == axis else shifted(shares, row)
                    for j in range(width):
                        product[j] *= factor[j]
                for j in range(width):
                    total[j] += product[j]
            target = shifted(out, begin + axes - 1 - axis)
            for j in range(width):
                target[j * axes] = total[j]


# Kernels: one for each kind, in which the branches on it are gone.


@kernel
def find_nearest(args, start, stop):
    """`find_taps` of the nearest element."""
    find_taps(args, start, stop, NEAREST, T, Y, Z)


@kernel
def find_linear(args, start, stop):
    """`find_taps` of two elements along each axis."""
    find_taps(args, start, stop, LINEAR, T, Y, Z)


@kernel
def find_cubic(args, start, stop):
    """`find_taps` of four elements along each axis."""
    find_taps(args, start, stop, CUBIC, T, Y, Z)


@kernel
def move_linear(args, start, stop):
    """`move_points` between two elements along each axis."""
    move_points(args, start, stop, LINEAR, T, Y, Z)


@kernel
def move_cubic(args, start, stop):
    """`move_points` among four elements along each axis."""
    move_points(args, start, stop, CUBIC, T, Y, Z)


# --------------------------------------------------------------------------- CUDA: a thread has a point


@helper
def kept_inside(u, slope, size, q, T, Z):
    """A coordinate in elements as the padding takes it, and how fast it moves."""
    outside, last, aligned = q[2], T(size - 1), q[3] != 0
    if outside == REFLECTION and (size > 1 or not aligned):
        low, span = T(0) if aligned else T(-0.5), last if aligned else T(size)
        u, way = mirrored(u, low, span, T(q[4]), T, Z)
        slope *= way
    if outside != ZEROS:
        u, slope = clamped(u, slope, last, T)
    return u, slope


@helper
def look_from(q, grid, kind, places, weights, slopes, T, Y, Z):
    """`look_around` one point; what belongs to an axis lies side by side."""
    axes, aligned, limit = q[1], q[3] != 0, T(q[4])
    for d in range(axes):
        size, begin = q[5 + d], d * kind
        slope, last = T(0.5) * T(size - 1 if aligned else size), T(size - 1)
        u = grid[axes - 1 - d] + T(1)
        u = u * slope if aligned else (u * T(size) - T(1)) * T(0.5)
        if kind != CUBIC:
            u, slope = kept_inside(u, slope, size, q, T, Z)
        first = rounded(u, limit, T, Z) if kind == NEAREST else floor(u, limit, T, Z)
        share = u - first if u - first >= T(0) else T(0)
        if kind == NEAREST:
            weights[begin], slopes[begin] = T(1), T(0)
        if kind == LINEAR:
            weights[begin], weights[begin + 1] = T(1) - share, share
            slopes[begin], slopes[begin + 1] = -slope, slope
        if kind == CUBIC:
            curve(share, slope, shifted(weights, begin), shifted(slopes, begin), 1, T)
        for t in range(kind):
            place = first + T(t - kind // 4)
            if kind == CUBIC:
                place, _ = kept_inside(place, T(1), size, q, T, Z)
            is_there = (place >= T(0)) & (place <= last)
            places[begin + t] = Y(place if is_there else T(-1))


@on_device(find_nearest, units=4)
@on_device(find_linear, units=4)
@on_device(find_cubic, units=4)
def find_by_points(row, n):
    """`find_taps`, a point a thread."""
    along, shares, slopes = local(Y, 12), local(T, 12), local(T, 12)
    grid, places, weights, q = at(row[0], T), at(row[1], Y), at(row[2], T), shifted(row, 3)
    points, axes, kind = q[0], q[1], q[5 + q[1]]
    taps = kind if axes == 1 else kind * kind if axes == 2 else kind * kind * kind
    for unit in range(first_unit(), n * SPAN, all_threads()):
        strips = quotient(points + SPAN - 1, SPAN)
        image, point = quotient(unit, strips * SPAN), remainder(unit, strips * SPAN)
        if point < points:
            here = shifted(grid, (image * points + point) * axes)
            look_from(q, here, kind, along, shares, slopes, T, Y, Z)
            for tap in range(taps):
                place, weight, rest = Y(0), T(1), taps
                for d in range(axes):
                    rest = quotient(rest, kind)
                    k = d * kind + remainder(quotient(tap, rest), kind)
                    is_there = (place >= Y(0)) & (along[k] >= Y(0))
                    place = place * Y(q[5 + d]) + along[k] if is_there else Y(-1)
                    weight *= shares[k]
                target = (image * taps + tap) * points + point
                places[target], weights[target] = place, weight


@on_device(move_linear, units=4)
@on_device(move_cubic, units=4)
def move_by_points(row, n):
    """`move_points`, a point a thread."""
    along, shares, slopes = local(Y, 12), local(T, 12), local(T, 12)
    upper, grid, out, q = at(row[0], T), at(row[1], T), at(row[2], T), shifted(row, 3)
    points, axes, kind = q[0], q[1], q[5 + q[1]]
    taps = kind if axes == 1 else kind * kind if axes == 2 else kind * kind * kind
    for unit in range(first_unit(), n * SPAN, all_threads()):
        strips = quotient(points + SPAN - 1, SPAN)
        image, point = quotient(unit, strips * SPAN), remainder(unit, strips * SPAN)
        if point < points:
            begin = (image * points + point) * axes
            look_from(q, shifted(grid, begin), kind, along, shares, slopes, T, Y, Z)
            for axis in range(axes):
                total = T(0)
                for tap in range(taps):
                    product, rest = upper[(image * taps + tap) * points + point], taps
                    for d in range(axes):
                        rest = quotient(rest, kind)
                        k = d * kind + remainder(quotient(tap, rest), kind)
                        product *= slopes[k] if d == axis else shares[k]
                    total += product
                out[begin + axes - 1 - axis] = total
