"""Steps of optimisers: one launch moves all parameters of a group.

Words of a row, for `count` parameters: the addresses of the parameters, of each kind of state, of
the gradients; the addresses of the new parameters and states, which may be the old ones'; for
each parameter its first unit of work, for each its size, for each the numbers that differ; the
numbers of all; `count`. A unit is `CHUNK` elements of one parameter.

Old values that lie elsewhere are copied first. Then every array is read and written through one
pointer: with two to the same bytes, loops would not be vectorised.
"""

import math

from ..language.abi import T, at, helper, kernel, scalar, shifted, words
from ..language.lanes import stack

CHUNK = 2048

# ----- CPU -----


@helper
def row_of(args, each, common):
    """The words of a row, `count`, and where the first units, the sizes, the numbers of each
    parameter (`each` kinds) and those of all (`common` of them) begin."""
    p = words(args)
    count = p[p[-1] - 1]
    last = shifted(p, p[-1] - 1 - common)
    first = shifted(last, -each * count)
    return p, count, shifted(first, -2 * count), shifted(first, -count), first, last


@helper
def part_of(unit, k, begins, sizes, count):
    """The parameter that a unit belongs to, `k` or a later one, and its elements in the unit."""
    while k + 1 < count and begins[k + 1] <= unit:
        k += 1
    first = (unit - begins[k]) * CHUNK
    return k, first, min(first + CHUNK, sizes[k])


@helper
def bring(p, old, new, first, last, T):
    """The elements at the address in word `old`, at their new place: the address in word `new`."""
    x = at(p[new], T)
    if p[old] != p[new]:
        source = at(p[old], T)
        for i in range(first, last):
            x[i] = source[i]
    return x


@helper
def penalised(d, g, x, first, last, sign, decay):
    """d = sign * g + decay * x."""
    if decay != 0:
        for i in range(first, last):
            d[i - first] = sign * g[i] + decay * x[i]
    else:
        for i in range(first, last):
            d[i - first] = sign * g[i]


@helper
def direction(g, x, sign, decay):
    """sign * g + decay * x, of one element."""
    return sign * g + decay * x if decay != 0 else sign * g


@helper
def between(x, end, weight, one):
    """x + weight * (end - x), `end` itself for a weight of one."""
    if abs(weight) >= one / (one + one):
        return end - (end - x) * (one - weight)
    return x + weight * (end - x)


@helper
def larger(x, y):
    """The larger of two, NaN if either is."""
    return y if (y > x) | (y != y) else x


@kernel
def sgd_step(args, start, stop):
    """x -= lr * d, where d = sign * g + decay * x. Numbers of all: sign, decay, -lr."""
    p, count, begins, sizes, _, numbers = row_of(args, 0, 3)
    sign, decay, rate = scalar(numbers[0], T), scalar(numbers[1], T), scalar(numbers[2], T)
    k = 0
    for unit in range(start, stop):
        k, first, last = part_of(unit, k, begins, sizes, count)
        x, g = bring(p, k, 2 * count + k, first, last, T), at(p[count + k], T)
        for i in range(first, last):
            x[i] += rate * direction(g[i], x[i], sign, decay)


@kernel
def momentum_step(args, start, stop):
    """v = momentum * v + kept * d, then x -= lr * v; Nesterov's: x -= lr * (d + momentum * v).

    State: v. Number of each parameter: whether this is its first step, where v = d. Numbers of
    all: sign, decay, -lr, momentum, kept, whether it is Nesterov's.
    """
    p, count, begins, sizes, firsts, numbers = row_of(args, 1, 6)
    sign, decay, rate = scalar(numbers[0], T), scalar(numbers[1], T), scalar(numbers[2], T)
    momentum, kept = scalar(numbers[3], T), scalar(numbers[4], T)
    nesterov = numbers[5]
    k = 0
    for unit in range(start, stop):
        k, first, last = part_of(unit, k, begins, sizes, count)
        x, g = bring(p, k, 3 * count + k, first, last, T), at(p[2 * count + k], T)
        is_first = firsts[k]
        v = at(p[4 * count + k], T)
        if not is_first:
            v = bring(p, count + k, 4 * count + k, first, last, T)
        for i in range(first, last):
            d = direction(g[i], x[i], sign, decay)
            v[i] = d if is_first else v[i] * momentum + kept * d
            x[i] += rate * (d + momentum * v[i] if nesterov else v[i])


@kernel
def adam_step(args, start, stop):
    """Averages of d and its square, then x -= rate * mean / (sqrt(square) / correction + eps).

    States: the averages, and with AMSGrad the largest second one. Numbers of each parameter:
    rate, correction. Numbers of all: sign, decay, what x is multiplied by first, the weights of
    d, of the old square and of d * d, eps, whether it is AMSGrad.
    """
    p, count, begins, sizes, own, numbers = row_of(args, 2, 8)
    sign, decay, shrink = scalar(numbers[0], T), scalar(numbers[1], T), scalar(numbers[2], T)
    weight, beta, rest = scalar(numbers[3], T), scalar(numbers[4], T), scalar(numbers[5], T)
    eps, amsgrad = scalar(numbers[6], T), numbers[7]
    states = 3 if amsgrad else 2
    made = (states + 2) * count
    k = 0
    for unit in range(start, stop):
        k, first, last = part_of(unit, k, begins, sizes, count)
        rate = scalar(own[k], T)
        correction = scalar(own[count + k], T)
        x, g = bring(p, k, made + k, first, last, T), at(p[(states + 1) * count + k], T)
        mean = bring(p, count + k, made + count + k, first, last, T)
        square = bring(p, 2 * count + k, made + 2 * count + k, first, last, T)
        for i in range(first, last):
            x[i] *= shrink
            d = direction(g[i], x[i], sign, decay)
            mean[i] = between(mean[i], d, weight, T(1))
            square[i] = square[i] * beta + rest * d * d
        if amsgrad:
            peak = bring(p, 3 * count + k, made + 3 * count + k, first, last, T)
            for i in range(first, last):
                peak[i] = larger(peak[i], square[i])
            square = peak
        for i in range(first, last):
            x[i] -= rate * mean[i] / (math.sqrt(square[i]) / correction + eps)


@kernel
def adamax_step(args, start, stop):
    """The average of d and its largest size, then x -= rate * mean / largest.

    States: both. Number of each parameter: rate. Numbers of all: sign, decay, the weight of d, what the
    largest one is multiplied by, eps.
    """
    p, count, begins, sizes, own, numbers = row_of(args, 1, 5)
    sign, decay, weight = scalar(numbers[0], T), scalar(numbers[1], T), scalar(numbers[2], T)
    beta, eps = scalar(numbers[3], T), scalar(numbers[4], T)
    k = 0
    for unit in range(start, stop):
        k, first, last = part_of(unit, k, begins, sizes, count)
        rate = scalar(own[k], T)
        x, g = bring(p, k, 4 * count + k, first, last, T), at(p[3 * count + k], T)
        mean = bring(p, count + k, 5 * count + k, first, last, T)
        largest = bring(p, 2 * count + k, 6 * count + k, first, last, T)
        for i in range(first, last):
            d = direction(g[i], x[i], sign, decay)
            mean[i] = between(mean[i], d, weight, T(1))
            largest[i] = larger(largest[i] * beta, abs(d) + eps)
            x[i] -= rate * mean[i] / largest[i]


@kernel
def nadam_step(args, start, stop):
    """Averages of d and its square, then steps along d and along its mean, over the root of the square.

    States: the averages. Numbers of each parameter: the rates of d and of the mean, the correction of the
    square. Numbers of all: sign, decay, what x is multiplied by first, the weights of d, of the old square
    and of d * d, eps.
    """
    p, count, begins, sizes, own, numbers = row_of(args, 3, 7)
    sign, decay, shrink = scalar(numbers[0], T), scalar(numbers[1], T), scalar(numbers[2], T)
    weight, beta, rest = scalar(numbers[3], T), scalar(numbers[4], T), scalar(numbers[5], T)
    eps = scalar(numbers[6], T)
    k = 0
    for unit in range(start, stop):
        k, first, last = part_of(unit, k, begins, sizes, count)
        rate, rate_of_mean = scalar(own[k], T), scalar(own[count + k], T)
        correction = scalar(own[2 * count + k], T)
        x, g = bring(p, k, 4 * count + k, first, last, T), at(p[3 * count + k], T)
        mean = bring(p, count + k, 5 * count + k, first, last, T)
        square = bring(p, 2 * count + k, 6 * count + k, first, last, T)
        for i in range(first, last):
            shrunk = x[i] * shrink
            d = direction(g[i], shrunk, sign, decay)
            mean[i] = between(mean[i], d, weight, T(1))
            square[i] = square[i] * beta + rest * d * d
            scale = math.sqrt(square[i] / correction) + eps
            x[i] = shrunk - rate * d / scale - rate_of_mean * mean[i] / scale


@kernel
def radam_step(args, start, stop):
    """Averages of d and its square, then a step along the mean, or along the mean over the root of the square.

    States: the averages. Numbers of each parameter: the corrections of the mean and of the root, how much
    of the latter is known, 0 if too little. Numbers of all: sign, decay, what x is multiplied by first, the
    weights of d, of the old square and of d * d, eps, lr.
    """
    p, count, begins, sizes, own, numbers = row_of(args, 3, 8)
    sign, decay, shrink = scalar(numbers[0], T), scalar(numbers[1], T), scalar(numbers[2], T)
    weight, beta, rest = scalar(numbers[3], T), scalar(numbers[4], T), scalar(numbers[5], T)
    eps, rate = scalar(numbers[6], T), scalar(numbers[7], T)
    k = 0
    for unit in range(start, stop):
        k, first, last = part_of(unit, k, begins, sizes, count)
        correction, root = scalar(own[k], T), scalar(own[count + k], T)
        share = scalar(own[2 * count + k], T)
        x, g = bring(p, k, 4 * count + k, first, last, T), at(p[3 * count + k], T)
        mean = bring(p, count + k, 5 * count + k, first, last, T)
        square = bring(p, 2 * count + k, 6 * count + k, first, last, T)
        for i in range(first, last):
            shrunk = x[i] * shrink
            d = direction(g[i], shrunk, sign, decay)
            mean[i] = between(mean[i], d, weight, T(1))
            square[i] = square[i] * beta + rest * d * d
            way = mean[i] / correction
            rectified = way * (T(1) / (math.sqrt(square[i]) + eps) * root * share)
            x[i] = shrunk - rate * (rectified if share != T(0) else way)


@kernel
def asgd_step(args, start, stop):
    """x = shrink * x - rate * d, and the average of x.

    State: the average. Numbers of each parameter: shrink, rate, the weight of x in the average. Numbers of
    all: sign, decay.
    """
    p, count, begins, sizes, own, numbers = row_of(args, 3, 2)
    sign, decay = scalar(numbers[0], T), scalar(numbers[1], T)
    k = 0
    for unit in range(start, stop):
        k, first, last = part_of(unit, k, begins, sizes, count)
        shrink, rate = scalar(own[k], T), scalar(own[count + k], T)
        weight = scalar(own[2 * count + k], T)
        x, g = bring(p, k, 3 * count + k, first, last, T), at(p[2 * count + k], T)
        average = bring(p, count + k, 4 * count + k, first, last, T)
        for i in range(first, last):
            x[i] = x[i] * shrink - rate * direction(g[i], x[i], sign, decay)
            nearer = average[i] + (x[i] - average[i]) * weight
            average[i] = x[i] if weight == T(1) else nearer


@kernel
def adadelta_step(args, start, stop):
    """Averages of the squares of d and of the steps along it, which are d * sqrt(moved) / sqrt(square).

    States: the averages of squares. Numbers of all: sign, decay, the weights of old squares and of new ones,
    eps, lr.
    """
    p, count, begins, sizes, _, numbers = row_of(args, 0, 6)
    sign, decay, rho = scalar(numbers[0], T), scalar(numbers[1], T), scalar(numbers[2], T)
    rest, eps, rate = scalar(numbers[3], T), scalar(numbers[4], T), scalar(numbers[5], T)
    k = 0
    for unit in range(start, stop):
        k, first, last = part_of(unit, k, begins, sizes, count)
        x, g = bring(p, k, 4 * count + k, first, last, T), at(p[3 * count + k], T)
        square = bring(p, count + k, 5 * count + k, first, last, T)
        moved = bring(p, 2 * count + k, 6 * count + k, first, last, T)
        for i in range(first, last):
            d = direction(g[i], x[i], sign, decay)
            square[i] = square[i] * rho + rest * d * d
            delta = math.sqrt(moved[i] + eps) / math.sqrt(square[i] + eps) * d
            moved[i] = moved[i] * rho + rest * delta * delta
            x[i] -= rate * delta


@kernel
def rprop_step(args, start, stop):
    """x -= size * sign(d), where sizes grow while d keeps its sign; where it has changed, d is 0.

    States: the d of before, the sizes. Numbers of all: the sign of the gradients, decay, what sizes are
    multiplied by where the sign changes and where it does not, the least and the largest of them.
    """
    p, count, begins, sizes, _, numbers = row_of(args, 0, 6)
    sign, decay, slower = scalar(numbers[0], T), scalar(numbers[1], T), scalar(numbers[2], T)
    faster, least, most = scalar(numbers[3], T), scalar(numbers[4], T), scalar(numbers[5], T)
    k = 0
    for unit in range(start, stop):
        k, first, last = part_of(unit, k, begins, sizes, count)
        x, g = bring(p, k, 4 * count + k, first, last, T), at(p[3 * count + k], T)
        before = bring(p, count + k, 5 * count + k, first, last, T)
        size = bring(p, 2 * count + k, 6 * count + k, first, last, T)
        for i in range(first, last):
            d = direction(g[i], x[i], sign, decay)
            same = d * before[i]
            factor = T(1) if same == T(0) else T(0)  # of NaN
            factor = faster if same > T(0) else slower if same < T(0) else factor
            above = larger(least, size[i] * factor)
            size[i] = most if above > most else above
            d = T(0) if same < T(0) else d
            way = T(1) if d > T(0) else T(-1) if d < T(0) else T(0)
            x[i] -= way * size[i]
            before[i] = d


@kernel
def adagrad_step(args, start, stop):
    """The sum of squares of d, then x -= rate * d / (sqrt(sum) + eps).

    State: the sum. Number of each parameter: rate. Numbers of all: sign, decay, eps.
    """
    p, count, begins, sizes, own, numbers = row_of(args, 1, 3)
    sign, decay, eps = scalar(numbers[0], T), scalar(numbers[1], T), scalar(numbers[2], T)
    k = 0
    for unit in range(start, stop):
        k, first, last = part_of(unit, k, begins, sizes, count)
        rate = scalar(own[k], T)
        x, g = bring(p, k, 3 * count + k, first, last, T), at(p[2 * count + k], T)
        total = bring(p, count + k, 4 * count + k, first, last, T)
        for i in range(first, last):
            d = direction(g[i], x[i], sign, decay)
            total[i] += d * d
            x[i] -= rate * d / (math.sqrt(total[i]) + eps)


@kernel
def rmsprop_step(args, start, stop):
    """The average of squares of d, then x -= lr * d / (sqrt(square) + eps), or along a velocity.

    States: the average, with momentum the velocity, if centered the average of d. Numbers of all: sign,
    decay, the weights of the old square, of d * d and of d, eps, lr, momentum, whether there is momentum,
    whether squares are centered.
    """
    p, count, begins, sizes, _, numbers = row_of(args, 0, 10)
    sign, decay, alpha = scalar(numbers[0], T), scalar(numbers[1], T), scalar(numbers[2], T)
    rest, weight, eps = scalar(numbers[3], T), scalar(numbers[4], T), scalar(numbers[5], T)
    rate, momentum = scalar(numbers[6], T), scalar(numbers[7], T)
    has_velocity, is_centered = numbers[8], numbers[9]
    states = 1 + has_velocity + is_centered
    made = (states + 2) * count
    d, variance = stack(T, CHUNK), stack(T, CHUNK)
    k = 0
    for unit in range(start, stop):
        k, first, last = part_of(unit, k, begins, sizes, count)
        x = bring(p, k, made + k, first, last, T)
        square = bring(p, count + k, made + count + k, first, last, T)
        penalised(d, at(p[(states + 1) * count + k], T), x, first, last, sign, decay)
        for i in range(first, last):
            square[i] = square[i] * alpha + rest * d[i - first] * d[i - first]
            variance[i - first] = square[i]
        if is_centered:
            mean = bring(p, states * count + k, made + states * count + k, first, last, T)
            for i in range(first, last):
                mean[i] = between(mean[i], d[i - first], weight, T(1))
                variance[i - first] = square[i] - mean[i] * mean[i]
        if has_velocity:
            velocity = bring(p, 2 * count + k, made + 2 * count + k, first, last, T)
            for i in range(first, last):
                scale = math.sqrt(variance[i - first]) + eps
                velocity[i] = velocity[i] * momentum + d[i - first] / scale
                x[i] -= rate * velocity[i]
        else:
            for i in range(first, last):
                x[i] -= rate * d[i - first] / (math.sqrt(variance[i - first]) + eps)


# ----- CUDA: the threads of a block share a unit, whose loops are dealt out to them -----

STEPS = (sgd_step, momentum_step, adam_step, adamax_step, nadam_step, radam_step, asgd_step, adadelta_step,
         rprop_step, adagrad_step, rmsprop_step)  # fmt: skip

for _step in STEPS:
    _step.by_blocks = True  # type: ignore[attr-defined]
