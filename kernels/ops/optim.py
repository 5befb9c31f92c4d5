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


@kernel
def sgd_step(args, start, stop):
    """x -= lr * d, where d = sign * g + decay * x. Numbers of all: sign, decay, -lr."""
    p, count, begins, sizes, _, numbers = row_of(args, 0, 3)
    sign, decay, rate = scalar(numbers[0], T), scalar(numbers[1], T), scalar(numbers[2], T)
    d = stack(T, CHUNK)
    k = 0
    for unit in range(start, stop):
        k, first, last = part_of(unit, k, begins, sizes, count)
        x = bring(p, k, 2 * count + k, first, last, T)
        penalised(d, at(p[count + k], T), x, first, last, sign, decay)
        for i in range(first, last):
            x[i] += rate * d[i - first]


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
    d = stack(T, CHUNK)
    k = 0
    for unit in range(start, stop):
        k, first, last = part_of(unit, k, begins, sizes, count)
        x = bring(p, k, 3 * count + k, first, last, T)
        penalised(d, at(p[2 * count + k], T), x, first, last, sign, decay)
        if firsts[k]:
            v = at(p[4 * count + k], T)
            for i in range(first, last):
                v[i] = d[i - first]
        else:
            v = bring(p, count + k, 4 * count + k, first, last, T)
            for i in range(first, last):
                v[i] = v[i] * momentum + kept * d[i - first]
        if nesterov:
            for i in range(first, last):
                x[i] += rate * (d[i - first] + momentum * v[i])
        else:
            for i in range(first, last):
                x[i] += rate * v[i]


@kernel
def adam_step(args, start, stop):
    """Averages of d and its square, then x -= rate * mean / (sqrt(square) / correction + eps).

    States: the averages, and with AMSGrad the largest second one. Numbers of each parameter:
    -rate, correction. Numbers of all: sign, decay, what x is multiplied by first, the weights of
    d, of the old square and of d * d, eps, whether it is AMSGrad.
    """
    p, count, begins, sizes, own, numbers = row_of(args, 2, 8)
    sign, decay, shrink = scalar(numbers[0], T), scalar(numbers[1], T), scalar(numbers[2], T)
    weight, beta, rest = scalar(numbers[3], T), scalar(numbers[4], T), scalar(numbers[5], T)
    eps, amsgrad = scalar(numbers[6], T), numbers[7]
    states = 3 if amsgrad else 2
    made = (states + 2) * count
    d = stack(T, CHUNK)
    k = 0
    for unit in range(start, stop):
        k, first, last = part_of(unit, k, begins, sizes, count)
        rate = scalar(own[k], T)
        correction = scalar(own[count + k], T)
        x = bring(p, k, made + k, first, last, T)
        mean = bring(p, count + k, made + count + k, first, last, T)
        square = bring(p, 2 * count + k, made + 2 * count + k, first, last, T)
        for i in range(first, last):
            x[i] *= shrink
        penalised(d, at(p[(states + 1) * count + k], T), x, first, last, sign, decay)
        if abs(weight) >= T(0.5):
            for i in range(first, last):
                mean[i] = d[i - first] - (d[i - first] - mean[i]) * (T(1) - weight)
        else:
            for i in range(first, last):
                mean[i] += weight * (d[i - first] - mean[i])
        for i in range(first, last):
            square[i] = square[i] * beta + rest * d[i - first] * d[i - first]
        if amsgrad:
            peak = bring(p, 3 * count + k, made + 3 * count + k, first, last, T)
            for i in range(first, last):
                s = square[i]
                peak[i] = s if (s > peak[i]) | (s != s) else peak[i]
            square = peak
        for i in range(first, last):
            x[i] += rate * mean[i] / (math.sqrt(square[i]) / correction + eps)


# ----- CUDA: the threads of a block share a unit, whose loops are dealt out to them -----

for _step in (sgd_step, momentum_step, adam_step):
    _step.by_blocks = True  # type: ignore[attr-defined]
