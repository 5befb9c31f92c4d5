"""Steps of optimisers: one launch moves all parameters of a group.

Words of a row, for `count` parameters: the addresses of the parameters, of each kind of state, of
the gradients; the addresses of the new parameters and states, which may be the old ones'; for
each parameter its first unit of work, for each its size, for each the numbers that differ; the
numbers of all; `count`. A unit is `CHUNK` elements of one parameter.

Old values that lie elsewhere are copied first. Then every array is read and written through one
pointer: with two to the same bytes, loops would not be vectorised.
"""

import math

from numba import njit

from .abi import T, at, float_of_bits, kernel, words
from .lanes import stack

CHUNK = 2048

# ----- CPU -----


@njit(error_model="numpy")
def parameter_of(unit, k, begins, count):
    """The parameter that a unit belongs to, `k` or a later one."""
    while k + 1 < count and begins[k + 1] <= unit:
        k += 1
    return k


@njit(error_model="numpy")
def bring(old, new, elsewhere, first, last):
    """The old elements, at the place of the new ones."""
    if elsewhere:
        for i in range(first, last):
            new[i] = old[i]
    return new


@njit(error_model="numpy")
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
    p = words(args)
    length = p[-1]
    count, numbers = p[length - 1], length - 4
    begins, sizes = words(args + 8 * (numbers - 2 * count)), words(args + 8 * (numbers - count))
    sign, decay = T(float_of_bits(p[numbers])), T(float_of_bits(p[numbers + 1]))
    rate = T(float_of_bits(p[numbers + 2]))
    d = stack(T, CHUNK)
    k = 0
    for unit in range(start, stop):
        k = parameter_of(unit, k, begins, count)
        first = (unit - begins[k]) * CHUNK
        last = min(first + CHUNK, sizes[k])
        old, new = p[k], p[2 * count + k]
        x = bring(at(old, T), at(new, T), old != new, first, last)
        penalised(d, at(p[count + k], T), x, first, last, sign, decay)
        for i in range(first, last):
            x[i] += rate * d[i - first]


@kernel
def momentum_step(args, start, stop):
    """v = momentum * v + kept * d, then x -= lr * v; Nesterov's: x -= lr * (d + momentum * v).

    State: v. Number of each parameter: whether this is its first step, where v = d. Numbers of
    all: sign, decay, -lr, momentum, kept, whether it is Nesterov's.
    """
    p = words(args)
    length = p[-1]
    count, numbers = p[length - 1], length - 7
    begins, sizes = words(args + 8 * (numbers - 3 * count)), words(args + 8 * (numbers - 2 * count))
    sign, decay = T(float_of_bits(p[numbers])), T(float_of_bits(p[numbers + 1]))
    rate, momentum = T(float_of_bits(p[numbers + 2])), T(float_of_bits(p[numbers + 3]))
    kept, nesterov = T(float_of_bits(p[numbers + 4])), p[numbers + 5]
    d = stack(T, CHUNK)
    k = 0
    for unit in range(start, stop):
        k = parameter_of(unit, k, begins, count)
        first = (unit - begins[k]) * CHUNK
        last = min(first + CHUNK, sizes[k])
        old, new = p[k], p[3 * count + k]
        x = bring(at(old, T), at(new, T), old != new, first, last)
        penalised(d, at(p[2 * count + k], T), x, first, last, sign, decay)
        old, new = p[count + k], p[4 * count + k]
        if p[numbers - count + k]:
            v = at(new, T)
            for i in range(first, last):
                v[i] = d[i - first]
        else:
            v = bring(at(old, T), at(new, T), old != new, first, last)
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
    p = words(args)
    length = p[-1]
    count, numbers = p[length - 1], length - 9
    begins, sizes = words(args + 8 * (numbers - 4 * count)), words(args + 8 * (numbers - 3 * count))
    sign, decay = T(float_of_bits(p[numbers])), T(float_of_bits(p[numbers + 1]))
    shrink, weight = T(float_of_bits(p[numbers + 2])), T(float_of_bits(p[numbers + 3]))
    beta, rest = T(float_of_bits(p[numbers + 4])), T(float_of_bits(p[numbers + 5]))
    eps, amsgrad = T(float_of_bits(p[numbers + 6])), p[numbers + 7]
    states = 3 if amsgrad else 2
    made = (states + 2) * count
    d = stack(T, CHUNK)
    k = 0
    for unit in range(start, stop):
        k = parameter_of(unit, k, begins, count)
        first = (unit - begins[k]) * CHUNK
        last = min(first + CHUNK, sizes[k])
        rate = T(float_of_bits(p[numbers - 2 * count + k]))
        correction = T(float_of_bits(p[numbers - count + k]))
        old, new = p[k], p[made + k]
        x = bring(at(old, T), at(new, T), old != new, first, last)
        old, new = p[count + k], p[made + count + k]
        mean = bring(at(old, T), at(new, T), old != new, first, last)
        old, new = p[2 * count + k], p[made + 2 * count + k]
        square = bring(at(old, T), at(new, T), old != new, first, last)
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
            old, new = p[3 * count + k], p[made + 3 * count + k]
            peak = bring(at(old, T), at(new, T), old != new, first, last)
            for i in range(first, last):
                s = square[i]
                peak[i] = s if (s > peak[i]) | (s != s) else peak[i]
            square = peak
        for i in range(first, last):
            x[i] += rate * mean[i] / (math.sqrt(square[i]) / correction + eps)
