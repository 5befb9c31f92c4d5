"""Distances between the rows of two matrices, and their gradients. No differences are stored.

Rows are called x and the others y; of a batch each matrix x has a matrix y. Distances are computed for
`LANES` others at a time, which lie turned for it: element k of all of them is one vector. Sums run over
k in blocks of `RUN`, one after the other.

A gradient is a sum over the others, in their order: out[i, k] = sum of weight[i, j] * slope(x[i, k] - y[j, k]),
the weight being what the distance's gradient and the distance make of it. It serves both operands, as
slopes are odd. Rows of many elements go along these, rows of few (`NARROW`) along `LANES` rows, for which
the weights are turned.

Orders (`ORDER`) have kernels inside that differ in one step; where no order is special, powers are taken.
"""

import math
from operator import add

from ..language.abi import T, at, helper, kernel, quotient, remainder, scalar, shifted, words
from ..language.device import all_threads, first_unit, on_device
from ..language.intrinsics import constant, where
from ..language.lanes import (
    LANES,
    add_product,
    combine,
    load,
    load_block,
    load_some,
    on_lanes,
    spread,
    stack,
    store,
    store_block,
)
from .recurrent import pack

RUN = 256  # elements of a row whose terms are added up before the sum goes to the total
TOGETHER = 16  # rows whose distances are written side by side
NEAR = 128  # others that lie in the first cache while rows pass
NARROW = 16  # elements of a row, up to which gradients go along several rows
NEAR_NARROW = 64
ROOM, ROOM_NARROW = NEAR * LANES, NARROW * LANES  # elements on the stack

ORDERS = ZERO, ONE, TWO, LARGEST, OTHER = range(5)

# Words behind the addresses: rows and others of a matrix, elements of a row, one of `ORDERS`, the order (for
# gradients less one) as a float, and how many matrices there are.
ROWS, OTHERS, DEPTH, ORDER, POWER, MATRICES = range(6)


# --------------------------------------------------------------------------- one step of each order


@on_lanes
def unequal(total, x, y):
    return total + where(x != y, 1.0, constant(total, 0.0))


@on_lanes
def difference(total, x, y):
    return total + abs(x - y)


@on_lanes
def square(total, x, y):
    d = x - y
    return add_product(d, d, total)


@on_lanes
def larger(total, x, y):
    d = abs(x - y)
    return where((d > total) | (d != d), d, total)


@on_lanes
def slope_of_sum(total, weight, dist, x, y):
    d = x - y
    return total + where(d > 0.0, weight, where(d < 0.0, -weight, d * weight))  # 0, or NaN


@on_lanes
def slope_of_squares(total, weight, dist, x, y):
    return add_product(weight, x - y, total)


@on_lanes
def slope_of_largest(total, weight, dist, x, y):
    d = x - y
    weight = where(d > 0.0, weight, -weight)  # which is 0 where there is no distance
    return total + where(abs(d) == dist, weight, constant(d, 0.0))


@on_lanes
def root(x):
    return x.call("llvm.sqrt")


# --------------------------------------------------------------------------- distances


@kernel
def turn_others(args, start, stop):
    """Others in panels of `LANES`, whose element k is a vector; a unit is a panel.

    inputs: rows, others; output: distances; scratch: the panels
    """
    p = words(args)
    others, turned, c = at(p[1], T), at(p[3], T), shifted(p, 4)
    depth, panels = c[DEPTH], (c[OTHERS] + LANES - 1) // LANES
    for unit in range(start, stop):
        matrix, first = unit // panels, unit % panels * LANES
        here = shifted(others, (matrix * c[OTHERS] + first) * depth)
        count = min(LANES, c[OTHERS] - first)
        pack((here, depth, 1, count, depth, shifted(turned, unit * depth * LANES), LANES))


@helper
def add_terms(step, x, z, panel, depth, T):
    """The sum of the terms of two rows and each of a panel."""
    total = spread(T(0))
    other = total
    for first in range(0, depth, RUN):
        one = spread(T(0))
        two = one
        for k in range(first, min(first + RUN, depth)):
            y = load(panel, k * LANES)
            one = step((one, x[k], y))
            two = step((two, z[k], y))
        total = combine(add, total, one)
        other = combine(add, other, two)
    return total, other


@helper
def add_powers(pow, x, panel, depth, power, total, T):
    """total = the distances of a row from each of a panel, of an order that has no step of its own."""
    for e in range(LANES):
        total[e] = T(0)
    for k in range(depth):
        y, here = shifted(panel, k * LANES), x[k]
        for e in range(LANES):
            total[e] += pow(abs(here - y[e]), power)
    for e in range(LANES):
        total[e] = pow(total[e], T(1) / power)


@kernel
def distances(args, start, stop):
    """The distance of each row from each other; a unit is a row."""
    p = words(args)
    rows, out, turned, c = at(p[0], T), at(p[2], T), at(p[3], T), shifted(p, 4)
    depth, others, order, power = c[DEPTH], c[OTHERS], c[ORDER], scalar(c[POWER], T)
    panels = (others + LANES - 1) // LANES
    made = stack(T, LANES)
    first = start
    while first < stop:
        matrix = first // c[ROWS]
        last = min(stop, (matrix + 1) * c[ROWS], first + TOGETHER)
        for number in range(panels):
            panel = shifted(turned, (matrix * panels + number) * depth * LANES)
            column = number * LANES
            count = min(LANES, others - column)
            for i in range(first, last, 2):
                next_row = min(i + 1, last - 1)  # the last of an odd number is computed twice
                x, z = shifted(rows, i * depth), shifted(rows, next_row * depth)
                if order == OTHER:
                    add_powers(math.pow, x, panel, depth, power, made, T)
                    total = load(made, 0)
                    add_powers(math.pow, z, panel, depth, power, made, T)
                    other = load(made, 0)
                elif order == TWO:
                    total, other = add_terms(square, x, z, panel, depth, T)
                    total, other = root((total,)), root((other,))
                elif order == ONE:
                    total, other = add_terms(difference, x, z, panel, depth, T)
                elif order == LARGEST:
                    total, other = find_largest(x, z, panel, depth, T)
                else:
                    total, other = add_terms(unequal, x, z, panel, depth, T)
                store_block(out, i * others + column, total, count)
                store_block(out, next_row * others + column, other, count)
        first = last


@helper
def find_largest(x, z, panel, depth, T):
    """The largest differences of two rows from each of a panel; NaN is the largest."""
    total = spread(T(0))
    other = total
    for k in range(depth):
        y = load(panel, k * LANES)
        total = larger((total, x[k], y))
        other = larger((other, z[k], y))
    return total, other


# --------------------------------------------------------------------------- gradients
#
# inputs: rows, others, weights, distances; output: the gradient of the rows. Weights and distances are
# (rows, others) for `gradients`, and turned, (others, rows), for `gradients_of_narrow`.


@helper
def slope(pow, d, power, T):
    """The derivative of |d|**(power + 1) / (power + 1), 0 where d is."""
    size = pow(abs(d), power)
    return T(0) if d == T(0) else (size if d > T(0) else -size)


@helper
def pull(step, near, w, far, v, away, a, b, total, other, count):
    """Add to the gradients of two rows what `count` others near by do; their weights are w and v."""
    for m in range(count):
        y = load(near, m * LANES)
        total = step((total, w[m], far[m], a, y))
        other = step((other, v[m], away[m], b, y))
    return total, other


@helper
def pull_by_powers(pow, near, w, x, total, count, power, T):
    """The same for one row and an order that has no step of its own."""
    for m in range(count):
        y, factor = shifted(near, m * LANES), w[m]
        for e in range(LANES):
            total[e] += factor * slope(pow, x[e] - y[e], power, T)


@kernel
def gradients(args, start, stop):
    """What the others do to the rows, of many elements each; a unit is a row."""
    p = words(args)
    rows, ys, weight, dist, out = at(p[0], T), at(p[1], T), at(p[2], T), at(p[3], T), at(p[4], T)
    c = shifted(p, 5)
    depth, others, order, power = c[DEPTH], c[OTHERS], c[ORDER], scalar(c[POWER], T)
    near, x, made = stack(T, ROOM), stack(T, LANES), stack(T, LANES)
    first = start
    while first < stop:
        matrix = first // c[ROWS]
        last = min(stop, (matrix + 1) * c[ROWS])
        for k in range(0, depth, LANES):
            width = min(LANES, depth - k)
            for j in range(0, others, NEAR):
                count = min(NEAR, others - j)
                for m in range(count):
                    y = load_block(ys, (matrix * others + j + m) * depth + k, width, T(0))
                    store(near, m * LANES, y)
                for i in range(first, last, 2):
                    n = min(i + 1, last - 1)  # the last of an odd number is computed twice
                    here, there = i * depth + k, n * depth + k
                    a, b = load_block(rows, here, width, T(0)), load_block(rows, there, width, T(0))
                    total, other = spread(T(0)), spread(T(0))
                    if j > 0:
                        total = load_block(out, here, width, T(0))
                        other = load_block(out, there, width, T(0))
                    w, v = shifted(weight, i * others + j), shifted(weight, n * others + j)
                    far, away = shifted(dist, i * others + j), shifted(dist, n * others + j)
                    if order == TWO:
                        total, other = pull(
                            slope_of_squares, near, w, far, v, away, a, b, total, other, count
                        )
                    elif order == ONE:
                        total, other = pull(
                            slope_of_sum, near, w, far, v, away, a, b, total, other, count
                        )
                    elif order == LARGEST:
                        total, other = pull(
                            slope_of_largest, near, w, far, v, away, a, b, total, other, count
                        )
                    else:
                        store(x, 0, a)
                        store(made, 0, total)
                        pull_by_powers(math.pow, near, w, x, made, count, power, T)
                        total = load(made, 0)
                        store(x, 0, b)
                        store(made, 0, other)
                        pull_by_powers(math.pow, near, v, x, made, count, power, T)
                        other = load(made, 0)
                    store_block(out, here, total, width)
                    store_block(out, there, other, width)
        first = last


@helper
def pull_narrow(step, w, far, line, ys, depth, k, n, a, b, total, other, count, width, T):
    """Add to elements k and n of the gradients of a panel of rows what `count` others do."""
    if width == LANES:
        for m in range(count):
            factor, away = load(w, m * line), load(far, m * line)
            total = step((total, factor, away, a, ys[m * depth + k]))
            other = step((other, factor, away, b, ys[m * depth + n]))
    else:
        for m in range(count):
            factor = load_some(w, m * line, width, T(0))
            away = load_some(far, m * line, width, T(0))
            total = step((total, factor, away, a, ys[m * depth + k]))
            other = step((other, factor, away, b, ys[m * depth + n]))
    return total, other


@helper
def pull_narrow_by_powers(pow, w, line, ys, depth, x, total, count, width, power, T):
    """The same for one element and an order that has no step of its own."""
    for m in range(count):
        y, factor = ys[m * depth], shifted(w, m * line)
        for e in range(width):
            total[e] += factor[e] * slope(pow, x[e] - y, power, T)


@kernel
def gradients_of_narrow(args, start, stop):
    """What the others do to the rows, of few elements each; a unit is a panel of rows."""
    p = words(args)
    rows, ys, weight, dist, out = at(p[0], T), at(p[1], T), at(p[2], T), at(p[3], T), at(p[4], T)
    c = shifted(p, 5)
    line, depth, others, order = c[ROWS], c[DEPTH], c[OTHERS], c[ORDER]
    power, panels = scalar(c[POWER], T), (line + LANES - 1) // LANES
    x, made = stack(T, ROOM_NARROW), stack(T, ROOM_NARROW)
    for unit in range(start, stop):
        matrix, first = unit // panels, unit % panels * LANES
        width = min(LANES, line - first)
        here = shifted(rows, (matrix * line + first) * depth)
        for k in range(depth):
            for e in range(LANES):
                x[k * LANES + e] = here[min(e, width - 1) * depth + k]
                made[k * LANES + e] = T(0)
        for j in range(0, others, NEAR_NARROW):
            count = min(NEAR_NARROW, others - j)
            place = (matrix * others + j) * line + first
            w, far = shifted(weight, place), shifted(dist, place)
            y = shifted(ys, (matrix * others + j) * depth)
            for k in range(0, depth, 2):
                n = min(k + 1, depth - 1)
                if order == OTHER:
                    pull_narrow_by_powers(
                        math.pow, w, line, shifted(y, k), depth, shifted(x, k * LANES),
                        shifted(made, k * LANES), count, width, power, T,
                    )  # fmt: skip
                    if n > k:
                        pull_narrow_by_powers(
                            math.pow, w, line, shifted(y, n), depth, shifted(x, n * LANES),
                            shifted(made, n * LANES), count, width, power, T,
                        )  # fmt: skip
                    continue
                a, b = load(x, k * LANES), load(x, n * LANES)
                total, other = load(made, k * LANES), load(made, n * LANES)
                if order == TWO:
                    total, other = pull_narrow(
                        slope_of_squares, w, far, line, y, depth, k, n, a, b, total, other, count, width, T
                    )  # fmt: skip
                elif order == ONE:
                    total, other = pull_narrow(
                        slope_of_sum, w, far, line, y, depth, k, n, a, b, total, other, count, width, T
                    )  # fmt: skip
                else:
                    total, other = pull_narrow(
                        slope_of_largest, w, far, line, y, depth, k, n, a, b, total, other, count, width, T
                    )  # fmt: skip
                store(made, k * LANES, total)
                store(made, n * LANES, other)
        there = shifted(out, (matrix * line + first) * depth)
        for e in range(width):
            for k in range(depth):
                there[e * depth + k] = made[k * LANES + e]


# ----- CUDA -----
#
# A thread has an element of the result. Sums are those of the CPU.


def elements_turned(c):
    return c[MATRICES] * -(-c[OTHERS] // LANES) * c[DEPTH] * LANES


@on_device(turn_others, work=elements_turned)
def turn_others_on_device(row, n):
    """Others in panels of `LANES`."""
    others, turned, c = at(row[1], T), at(row[3], T), shifted(row, 4)
    depth = c[DEPTH]
    panels = (c[OTHERS] + LANES - 1) // LANES
    for i in range(first_unit(), n, all_threads()):
        unit, lane = quotient(i, depth * LANES), remainder(i, LANES)
        j = remainder(unit, panels) * LANES + lane
        if j < c[OTHERS]:
            k = quotient(remainder(i, depth * LANES), LANES)
            turned[i] = others[(quotient(unit, panels) * c[OTHERS] + j) * depth + k]


@helper
def distance(x, y, depth, order, power, fma, pow, sqrt, T):
    """The distance of a row from an other, whose elements are `LANES` apart."""
    total = T(0)
    if order == OTHER:
        for k in range(depth):
            total += pow(abs(x[k] - y[k * LANES]), power)
        return pow(total, T(1) / power)
    if order == LARGEST:
        for k in range(depth):
            d = abs(x[k] - y[k * LANES])
            total = d if d > total or d != d else total
        return total
    for first in range(0, depth, RUN):
        part = T(0)
        for k in range(first, min(first + RUN, depth)):
            d = x[k] - y[k * LANES]
            if order == TWO:
                part = fma(d, d, part)
            elif order == ONE:
                part += abs(d)
            elif d != T(0):
                part += T(1)
        total += part
    return sqrt(total) if order == TWO else total


@on_device(distances, work=lambda c: c[MATRICES] * c[ROWS] * c[OTHERS])
def distances_on_device(row, n):
    """The distance of each row from each other."""
    rows, out, turned, c = at(row[0], T), at(row[2], T), at(row[3], T), shifted(row, 4)
    depth, others = c[DEPTH], c[OTHERS]
    panels = (others + LANES - 1) // LANES
    for i in range(first_unit(), n, all_threads()):
        line, j = quotient(i, others), remainder(i, others)
        panel = quotient(line, c[ROWS]) * panels + quotient(j, LANES)
        y = shifted(turned, panel * depth * LANES + remainder(j, LANES))
        out[i] = distance(
            shifted(rows, line * depth), y, depth, c[ORDER], scalar(c[POWER], T), math.fma, math.pow,
            math.sqrt, T,
        )  # fmt: skip


@helper
def gradient(x, y, y_step, weight, dist, step, count, order, power, fma, pow, T):
    """What the others do to an element of a row; weights and distances are `step` apart."""
    total = T(0)
    for j in range(count):
        d, w = x - y[j * y_step], weight[j * step]
        if order == TWO:
            total = fma(w, d, total)
        elif order == OTHER:
            total += w * slope(pow, d, power, T)
        elif order == ONE or abs(d) == dist[j * step]:
            total += w if d > T(0) else -w if d < T(0) else d * w
    return total


@helper
def all_gradients(row, elements, is_turned, fma, pow, T):
    """The gradients of rows, an element a thread."""
    rows, ys, weight, dist, out = (
        at(row[0], T), at(row[1], T), at(row[2], T), at(row[3], T), at(row[4], T)
    )  # fmt: skip
    c = shifted(row, 5)
    depth, others, line = c[DEPTH], c[OTHERS], c[ROWS]
    for i in range(first_unit(), elements, all_threads()):
        n, k = quotient(i, depth), remainder(i, depth)
        matrix = quotient(n, line)
        place, step = n * others, 1
        if is_turned:
            place, step = matrix * others * line + remainder(n, line), line
        out[i] = gradient(
            rows[i], shifted(ys, matrix * others * depth + k), depth, shifted(weight, place),
            shifted(dist, place), step, others, c[ORDER], scalar(c[POWER], T), fma, pow, T,
        )  # fmt: skip


@on_device(gradients, work=lambda c: c[MATRICES] * c[ROWS] * c[DEPTH])
def gradients_on_device(row, n):
    """What the others do to the rows."""
    all_gradients(row, n, False, math.fma, math.pow, T)


@on_device(gradients_of_narrow, work=lambda c: c[MATRICES] * c[ROWS] * c[DEPTH])
def gradients_of_narrow_on_device(row, n):
    """What the others do to the rows, whose weights are turned."""
    all_gradients(row, n, True, math.fma, math.pow, T)
