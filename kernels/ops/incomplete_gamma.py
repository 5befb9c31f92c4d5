"""The incomplete gamma functions, and how gamma numbers move as their shape does: integrals over tails.

The density of the logarithm of a gamma number falls off like an exponential and faster, from a point z away
from its shape on: Gauss's and Legendre's nodes take the integral over that tail, as far as it has digits. The
functions are that tail times the density at z. (Where the slopes come from: `ops/incomplete_gamma.py`.)

Words end with the end of the tail, how many nodes there are, each with its weight.
"""

import math

import numpy as np
from numba.extending import intrinsic

from ..language.abi import I, T, at, helper, kernel, scalar, shifted, words
from ..language.device import all_threads, first_unit, on_device
from ..language.intrinsics import Value, polynomial, where
from ..language.lanes import stack
from ..math.vector import FORMATS
from .attention import exp_to_one

NEAR = 64  # numbers that go through a loop side by side
CHUNK = 1024  # numbers that those which need a loop are gathered from

# (exp(t) - 1 - t) / t**2 for small t: 7 terms for float32, 14 for float64.
RISE = tuple([1 / math.factorial(k + 2) for k in range(14)])


def rise_of(t, k):
    """exp(t) - 1 - t, to the digits that it has beside 1: half the instructions of expm1."""
    terms = RISE[: 7 if k.DTYPE is np.float32 else 14]
    return where(abs(t) < 0.5, t * t * polynomial(t, terms), exp_to_one(t, k) - 1.0 - t)


def density_of(z, t, fall, k):
    """exp(-z * rise(t) - fall), for results up to 1."""
    return exp_to_one(-z * rise_of(t, k) - fall, k)


@intrinsic
def rise(typingctx, t):
    """`rise_of` a float."""
    [k] = [k for k in FORMATS if k.DTYPE.__name__ == t.name]
    return t(t), lambda context, builder, sig, args: rise_of(Value(builder, args[0]), k).ir


@intrinsic
def density(typingctx, z, t, fall):
    """`density_of` floats."""
    [k] = [k for k in FORMATS if k.DTYPE.__name__ == t.name]

    def codegen(context, builder, sig, args):
        return density_of(*[Value(builder, arg) for arg in args], k).ir

    return t(z, t, fall), codegen


@helper
def rise_by(expm1, t, T):
    """`rise_of` a number where bodies cannot be traced."""
    total = T(0)
    for k in range(len(RISE)):
        total = total * t + T(RISE[len(RISE) - 1 - k])
    return t * t * total if abs(t) < T(0.5) else expm1(t) - t


@helper
def first_length(slope, z, depth, T):
    """Where a tail might end: slope * length + z * length**2 / 2 = depth, without squares of large or
    tiny numbers."""
    other = math.sqrt(T(2) * depth) * math.sqrt(z)
    large, small = max(slope, other), min(slope, other)
    ratio = small / large
    return T(2) * depth / (slope + large * math.sqrt(T(1) + ratio * ratio))


@kernel
def gamma_slopes(args, start, stop):
    """out = how logarithms of gamma numbers move as their shapes do: `log_gamma_slope` in the op table.

    inputs: shapes, logarithms; words: the end of the tail, how many nodes, each with its weight
    """
    p = words(args)
    alpha, w, out, c = at(p[0], T), at(p[1], T), at(p[2], T), shifted(p, 5)
    depth, nodes = scalar(p[3], T), p[4]
    zs, sides, slopes, lengths, totals, firsts, gaps = (
        stack(T, NEAR), stack(T, NEAR), stack(T, NEAR), stack(T, NEAR), stack(T, NEAR), stack(T, NEAR),
        stack(T, NEAR),
    )  # fmt: skip
    for first in range(start, stop, NEAR):
        here, given, there = shifted(alpha, first), shifted(w, first), shifted(out, first)
        count = min(NEAR, stop - first)
        for i in range(count):
            a, z = here[i], math.exp(given[i])
            shape = a + T(1) if (a < T(1)) & (z < a + T(1)) else a
            gaps[i] = math.digamma(shape) - given[i]
            slope = abs(shape - z)
            zs[i], slopes[i], sides[i] = z, slope, T(-1) if z < shape else T(1)
            lengths[i] = first_length(slope, z, depth, T)
            totals[i] = firsts[i] = T(0)
        for _ in range(3):  # Newton's steps to the end of the tail
            for i in range(count):
                length, t = lengths[i], sides[i] * lengths[i]
                more = rise(t)
                missing = slopes[i] * length + zs[i] * more - depth
                lengths[i] = length - missing / (slopes[i] + zs[i] * sides[i] * (more + t))
        for n in range(nodes):
            node, weight = scalar(c[2 * n], T), scalar(c[2 * n + 1], T)
            for i in range(count):
                s = lengths[i] * node
                made = density(zs[i], sides[i] * s, slopes[i] * s) * weight
                totals[i] += made
                firsts[i] += made * s
        for i in range(count):
            a, z = here[i], zs[i]
            moment = (firsts[i] - totals[i] * sides[i] * gaps[i]) * lengths[i]
            is_low = (a < T(1)) & (z < a + T(1))
            there[i] = (moment * z + gaps[i]) / a if is_low else moment


@helper
def gamma_slope(exp, expm1, digamma, alpha, w, depth, nodes, c, T):
    """One of `gamma_slopes`."""
    z = exp(w)
    is_low = alpha < T(1) and z < alpha + T(1)
    shape = alpha + T(1) if is_low else alpha
    gap, slope, side = digamma(shape) - w, abs(shape - z), T(-1) if z < shape else T(1)
    length = first_length(slope, z, depth, T)
    for _ in range(3):
        t = side * length
        more = rise_by(expm1, t, T)
        missing = slope * length + z * more - depth
        length = length - missing / (slope + z * side * (more + t))
    total = moment = T(0)
    for n in range(nodes):
        s = length * scalar(c[2 * n], T)
        made = exp(-z * rise_by(expm1, side * s, T) - slope * s) * scalar(c[2 * n + 1], T)
        total += made
        moment += made * s
    moment = (moment - total * side * gap) * length
    return (moment * z + gap) / alpha if is_low else moment


@on_device(gamma_slopes)
def gamma_slopes_on_device(row, n):
    """How logarithms of gamma numbers move as their shapes do."""
    alpha, w, out, c = at(row[0], T), at(row[1], T), at(row[2], T), shifted(row, 5)
    depth, nodes = scalar(row[3], T), row[4]
    for i in range(first_unit(), n, all_threads()):
        out[i] = gamma_slope(math.exp, math.expm1, math.digamma, alpha[i], w[i], depth, nodes, c, T)


# ----- the functions

# Functions that loops call have their logarithms given: only those in the loop itself are vectorised.
SERIES_TERMS, SERIES_END = 20, 1.1  # of the power series: how many terms numbers up to the end need
LARGE = 100.0  # shapes from here on have a density without cancellation
EULER = float(np.euler_gamma)  # how lgamma falls at 1


@helper
def large_log_density(log1p, alpha, x, log_turns, T):
    """`log_density` for shapes from `LARGE` on, with log(alpha / 2 pi)."""
    d = (x - alpha) / alpha
    series = (T(1.0 / 12.0) - T(1) / (T(360) * alpha * alpha)) / alpha
    return alpha * (log1p(d) - d) + T(0.5) * log_turns - series


@helper
def log_density(log, log1p, lgamma, alpha, x, T):
    """log(x**alpha exp(-x) / gamma(alpha)): the density at log(x)."""
    if alpha < T(LARGE):
        return alpha * log(x) - x - lgamma(alpha)
    return large_log_density(log1p, alpha, x, log(alpha / T(2.0 * math.pi)), T)


@helper
def upper_by_series(expm1, log, lgamma, alpha, x, T):
    """The upper function for a small x and `alpha`, whose tail is too long for an integral."""
    series, power = T(0), T(1)
    for n in range(1, SERIES_TERMS):
        power *= -x / T(n)
        series += power / (alpha + T(n))
    return with_series(expm1, lgamma, alpha, log(x), series, T)


@helper
def with_series(expm1, lgamma, alpha, log_x, series, T):
    """`upper_by_series`, its series at hand."""
    above = T(1) + alpha
    # What a small shape loses beside 1, where lgamma falls by Euler's constant.
    lost = alpha - (above - T(1))
    less = expm1(alpha * log_x - (lgamma(above) - T(EULER) * lost))
    return -less - (T(1) + less) * alpha * series


@helper
def at_edge(alpha, x, is_upper, T):
    """What the lower or the upper function is at 0 and infinity, and where it is undefined; -1 elsewhere."""
    is_first = (x == T(0)) | (alpha == T(math.inf))
    is_last = (alpha == T(0)) | (x == T(math.inf))
    edge = T(1) if is_first == is_upper else T(0)
    is_undefined = (is_first & is_last) | (not ((x >= T(0)) & (alpha >= T(0))))
    return T(math.nan) if is_undefined else edge if is_first | is_last else T(-1)


@kernel
def gamma_shares(args, start, stop):
    """out = the lower or the upper incomplete gamma function, regularised.

    inputs: shapes, points; words: whether it is the upper one, then as ever
    """
    p = words(args)
    alpha, x, out, c = at(p[0], T), at(p[1], T), at(p[2], T), shifted(p, 6)
    is_upper, depth, nodes = p[3] != 0, scalar(p[4], T), p[5]
    usual, short, a, z = stack(I, CHUNK), stack(I, CHUNK), stack(T, NEAR), stack(T, NEAR)
    shapes, sides, slopes, lengths = stack(T, NEAR), stack(T, NEAR), stack(T, NEAR), stack(T, NEAR)
    totals, levels, logs = stack(T, NEAR), stack(T, NEAR), stack(T, NEAR)
    for first in range(start, stop, CHUNK):
        here, given, there = shifted(alpha, first), shifted(x, first), shifted(out, first)
        count = min(CHUNK, stop - first)
        for i in range(count):
            there[i] = at_edge(here[i], given[i], is_upper, T)
        many = few = 0
        for i in range(count):
            usual[many] = short[few] = i
            is_inside = there[i] == T(-1)
            is_short = is_upper & (here[i] < T(1)) & (given[i] < T(SERIES_END))
            many += is_inside & (not is_short)
            few += is_inside & is_short
        for begin in range(0, few, NEAR):
            block, places = min(NEAR, few - begin), shifted(short, begin)
            for i in range(block):
                a[i], z[i] = here[places[i]], given[places[i]]
                totals[i], levels[i] = T(0), T(1)
            for n in range(1, SERIES_TERMS):
                inverse = T(-1) / T(n)
                for i in range(block):
                    levels[i] *= z[i] * inverse
                    totals[i] += levels[i] / (a[i] + T(n))
            for i in range(block):
                log_z = math.log(z[i])
                totals[i] = with_series(math.expm1, math.lgamma, a[i], log_z, totals[i], T)
            for i in range(block):
                there[places[i]] = totals[i]
        for begin in range(0, many, NEAR):
            block, places, are_large = min(NEAR, many - begin), shifted(usual, begin), False
            for i in range(block):
                a[i], z[i] = here[places[i]], given[places[i]]
                are_large |= a[i] >= T(LARGE)
            for i in range(block):
                shape = a[i] + T(1) if (a[i] < T(1)) & (z[i] < a[i] + T(1)) else a[i]
                slope = abs(shape - z[i])
                shapes[i], slopes[i], sides[i] = shape, slope, T(-1) if z[i] < shape else T(1)
                lengths[i] = first_length(slope, z[i], depth, T)
                totals[i] = T(0)
            for _ in range(3):  # Newton's steps to the end of the tail
                for i in range(block):
                    length, t = lengths[i], sides[i] * lengths[i]
                    more = rise(t)
                    missing = slopes[i] * length + z[i] * more - depth
                    lengths[i] = length - missing / (slopes[i] + z[i] * sides[i] * (more + t))
            for n in range(nodes):
                node, weight = scalar(c[2 * n], T), scalar(c[2 * n + 1], T)
                for i in range(block):
                    s = lengths[i] * node
                    totals[i] += density(z[i], sides[i] * s, slopes[i] * s) * weight
            for i in range(block):
                logs[i] = math.log(z[i])
                levels[i] = shapes[i] * logs[i] - z[i] - math.lgamma(shapes[i])
            if are_large:
                for i in range(block):
                    log_turns = math.log(a[i] / T(2.0 * math.pi))
                    level = large_log_density(math.log1p, a[i], z[i], log_turns, T)
                    levels[i] = level if a[i] >= T(LARGE) else levels[i]
            for i in range(block):
                share = totals[i] * lengths[i] * math.exp(levels[i])
                more = math.exp(levels[i] - logs[i]) if shapes[i] > a[i] else T(0)
                share = T(1) - share if (z[i] < shapes[i]) == is_upper else share
                totals[i] = share - more if is_upper else share + more
            for i in range(block):
                there[places[i]] = totals[i]


@helper
def gamma_share(exp, expm1, log, log1p, lgamma, alpha, x, is_upper, depth, nodes, c, T):
    """One of `gamma_shares`."""
    found = at_edge(alpha, x, is_upper, T)
    if found != T(-1):
        return found
    if is_upper and alpha < T(1) and x < T(SERIES_END):
        return upper_by_series(expm1, log, lgamma, alpha, x, T)
    is_low = alpha < T(1) and x < alpha + T(1)
    shape = alpha + T(1) if is_low else alpha
    slope, side = abs(shape - x), T(-1) if x < shape else T(1)
    length = first_length(slope, x, depth, T)
    for _ in range(3):
        t = side * length
        more = rise_by(expm1, t, T)
        missing = slope * length + x * more - depth
        length = length - missing / (slope + x * side * (more + t))
    total = T(0)
    for n in range(nodes):
        s = length * scalar(c[2 * n], T)
        total += exp(-x * rise_by(expm1, side * s, T) - slope * s) * scalar(c[2 * n + 1], T)
    share = total * length * exp(log_density(log, log1p, lgamma, shape, x, T))
    if (x < shape) == is_upper:
        share = T(1) - share
    if is_low:
        more = exp(log_density(log, log1p, lgamma, alpha, x, T)) / alpha
        share += -more if is_upper else more
    return share


@on_device(gamma_shares)
def gamma_shares_on_device(row, n):
    """The lower or the upper incomplete gamma function, regularised."""
    alpha, x, out, c = at(row[0], T), at(row[1], T), at(row[2], T), shifted(row, 6)
    is_upper, depth, nodes = row[3] != 0, scalar(row[4], T), row[5]
    for i in range(first_unit(), n, all_threads()):
        out[i] = gamma_share(
            math.exp, math.expm1, math.log, math.log1p, math.lgamma, alpha[i], x[i], is_upper, depth, nodes,
            c, T,
        )  # fmt: skip
