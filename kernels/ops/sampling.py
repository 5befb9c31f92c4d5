"""Draws that are repeated until one fits: gamma, Poisson, binomial and von Mises numbers.

A unit is one element. It has a block of the generator to itself, of which each turn takes four words more
(`block_of_turn`), so its number depends on no other element. All arithmetic is in the element's dtype.
Helpers are given the functions that a kernel's `math` means, as theirs is the system's.
The last words of a launch are the seed, as two halves, and the first block.
"""

import math

from ..language.abi import STATUS_VALUE, I, T, at, helper, kernel, shifted, words
from ..language.device import all_threads, first_unit, on_device
from ..language.lanes import stack
from .random import HALF, U, block_of_turn

BAD_RATE = STATUS_VALUE
BITS_32, BITS_53 = 1.0 / (1 << 32), 1.0 / (1 << 53)
APART = (1 << 32) - 1  # the turn of numbers that are drawn once, beside the others
TOGETHER, NEAR = 256, 64  # numbers that go through a loop side by side
ROOM = 3 * TOGETHER
FEW = 10.0  # means below are drawn by adding up probabilities


@helper
def within_one(high, low, T):
    """A number of (0, 1] from two words."""
    return T(I((high << HALF | low) >> U(11)) + 1) * T(BITS_53)


@helper
def below_one(word, T):
    """A number of [0, 1] from one word."""
    return T(I(word)) * T(BITS_32)


@helper
def point(first, second, T):
    """A point of a square around 0, and the square of its distance: within 1, its direction is any angle's.

    So there are no sines and cosines, whose reduction of large angles computes in float64 on GPUs.
    """
    a, b = T(2) * below_one(first, T) - T(1), T(2) * below_one(second, T) - T(1)
    return a, b, a * a + b * b


# --------------------------------------------------------------------------- gamma


@helper
def log_gamma_number(log, alpha, low_key, high_key, number, T):
    """The logarithm of a gamma number of rate 1 (Marsaglia and Tsang, TOMS 26, 2000).

    Below 1 by that of `alpha + 1`, times a power of a uniform number: its logarithm does not underflow.
    """
    if not alpha > T(0) or alpha == T(math.inf):
        return log(alpha)
    more = alpha < T(1)
    d = (alpha + T(1) if more else alpha) - T(1.0 / 3.0)
    c = T(1) / math.sqrt(T(9) * d)
    turn = 0
    while True:
        e, f, g, _ = block_of_turn(low_key, high_key, number, turn)
        a, _, away = point(e, f, T)
        is_within = T(0) < away < T(1)
        x = a * math.sqrt(T(-2) * log(away) / away) if is_within else T(0)  # a normal number
        v = T(1) + c * x
        cube = v * v * v
        if is_within and v > T(0):
            u, square = below_one(g, T), x * x
            if u < T(1) - T(0.0331) * square * square:  # nearly always, without logarithms
                break
            if log(u) < T(0.5) * square + d * (T(1) - cube + T(3) * log(v)):
                break
        turn += 1
    result = log(d * cube)
    if more:
        e, f, _, _ = block_of_turn(low_key, high_key, number, APART)
        result += log(within_one(e, f, T)) / alpha
    return result


@helper
def try_all(log, chances, left, d, cubes, count, low_key, high_key, first, turn, T):
    """A turn of `count` numbers that have no fit yet, `left` saying which of a block they are, `d` by what they
    are multiplied. Those that have none still come to the front; how many there are.

    What one number does is `log_gamma_number`; here loops without branches do it for all.
    """
    second, third, is_left = shifted(chances, TOGETHER), shifted(chances, 2 * TOGETHER), 0
    for i in range(count):
        e, f, g, _ = block_of_turn(low_key, high_key, first + left[i], turn)
        chances[i], second[i], third[i] = below_one(e, T), below_one(f, T), below_one(g, T)
    for i in range(count):
        a, b, u = T(2) * chances[i] - T(1), T(2) * second[i] - T(1), third[i]
        away = a * a + b * b
        is_within = (T(0) < away) & (away < T(1))
        x = a * math.sqrt(T(-2) * log(away) / away) if is_within else T(0)
        v = T(1) + T(1) / math.sqrt(T(9) * d[i]) * x
        cube, square = v * v * v, x * x
        is_below = u < T(1) - T(0.0331) * square * square
        is_below |= log(u) < T(0.5) * square + d[i] * (T(1) - cube + T(3) * log(v))
        chances[i] = cube
        second[i] = T(0) if is_within & (v > T(0)) & is_below else T(1)
    for i in range(count):
        place = left[i]
        cubes[place] = chances[i]
        left[is_left], d[is_left] = place, d[i]
        is_left += second[i] > T(0)
    return is_left


@kernel
def log_gamma(args, start, stop):
    """out = logarithms of gamma numbers of the shapes that the input gives."""
    p = words(args)
    alpha, out = at(p[0], T), at(p[1], T)
    low_key, high_key, number = U(p[2]), U(p[3]), p[4]
    left, d, cubes, chances = (
        stack(I, TOGETHER),
        stack(T, TOGETHER),
        stack(T, TOGETHER),
        stack(T, ROOM),
    )
    for first in range(start, stop, TOGETHER):
        here, there = shifted(alpha, first), shifted(out, first)
        count, low = min(TOGETHER, stop - first), 0
        for i in range(count):
            a = here[i]
            d[i] = gamma_factor(a, T)
            left[i] = i
            low += a < T(1)
        waiting, turn = count, 0
        while waiting > 0:
            waiting = try_all(
                math.log, chances, left, d, cubes, waiting, low_key, high_key, number + first, turn, T
            )  # fmt: skip
            turn += 1
        for i in range(count):
            there[i] = math.log(gamma_factor(here[i], T) * cubes[i])
        if low > 0:
            for i in range(count):
                e, f, _, _ = block_of_turn(low_key, high_key, number + first + i, APART)
                chances[i] = within_one(e, f, T)
            for i in range(count):
                a, more = here[i], math.log(chances[i]) / here[i]
                there[i] += more if a < T(1) else T(0)
        for i in range(count):
            a = here[i]
            is_good = (a > T(0)) & (a < T(math.inf))
            there[i] = there[i] if is_good else math.log(a)


@helper
def gamma_factor(alpha, T):
    """What the cube of a normal number is multiplied by; 1 for what is no shape."""
    is_good = (alpha > T(0)) & (alpha < T(math.inf))
    return (alpha + T(1) if alpha < T(1) else alpha) - T(1.0 / 3.0) if is_good else T(1)


@on_device(log_gamma)
def log_gamma_on_device(row, n):
    """The same, a number a thread."""
    alpha, out = at(row[0], T), at(row[1], T)
    low_key, high_key, first = U(row[2]), U(row[3]), row[4]
    for i in range(first_unit(), n, all_threads()):
        out[i] = log_gamma_number(math.log, alpha[i], low_key, high_key, first + i, T)


# --------------------------------------------------------------------------- counts


@helper
def stirling_rest(log, lgamma, k, T):
    """log(k!) - (k log(k) - k), without cancellation for large k."""
    if k < T(0.5):
        return T(0)
    if k < T(FEW):
        return lgamma(k + T(1)) - (k * log(k) - k)
    square = T(1) / (k * k)
    series = (T(1.0 / 12.0) - square * (T(1.0 / 360.0) - square * T(1.0 / 1260.0))) / k
    return T(0.5) * log(T(2.0 * math.pi) * k) + series


@helper
def deviance(log1p, k, mean, T):
    """k log(k / mean) + mean - k, without cancellation where both are large and close (Loader 2000)."""
    if k < T(0.5):
        return mean
    x = (k - mean) / mean
    return mean * ((T(1) + x) * log1p(x) - x)


@helper
def hat(high, low, a, b, c, T):
    """A step of Hörmann's transformed rejection (1993): the number, and what the density's bound is there.

    Returns it, the bound and how far the uniform number was from its ends.
    """
    u = below_one(high, T) - T(0.5)
    near = max(T(0.5) - abs(u), T(1e-9))
    return math.floor((T(2) * a / near + b) * u + c), a / (near * near) + b, near


@helper
def poisson_number(exp, log, log1p, lgamma, mean, low_key, high_key, number, T):
    """A Poisson number of a mean that is at least 0 and finite."""
    e, f, g, h = block_of_turn(low_key, high_key, number, APART)
    if mean < T(FEW):
        left = within_one(e, f, T)
        chance, k = exp(-mean), T(0)
        while left > chance and k < T(1000):
            left -= chance
            k += T(1)
            chance *= mean / k
        return k
    b = T(0.931) + T(2.53) * math.sqrt(mean)
    a = T(-0.059) + T(0.02483) * b
    inverse_alpha = T(1.1239) + T(1.1328) / (b - T(3.4))
    inside = T(0.9277) - T(3.6224) / (b - T(2))
    turn = 0
    while True:
        e, f, g, h = block_of_turn(low_key, high_key, number, turn)
        k, bound, near = hat(e, f, a, b, mean + T(0.43), T)
        v = within_one(g, h, T)
        if near >= T(0.07) and v <= inside:
            return k
        if k >= T(0) and (near >= T(0.013) or v <= near):
            log_chance = -stirling_rest(log, lgamma, k, T) - deviance(log1p, k, mean, T)
            if log(v * inverse_alpha / bound) <= log_chance:
                return k
        turn += 1


@kernel
def poisson(args, start, stop):
    """out = Poisson numbers of the means that the input gives."""
    p = words(args)
    mean, out, status = at(p[0], T), at(p[1], T), at(p[2], I)
    low_key, high_key, first = U(p[3]), U(p[4]), p[5]
    for i in range(start, stop):
        rate = mean[i]
        if not rate >= T(0):
            status[0] = BAD_RATE
        elif rate == T(math.inf):
            out[i] = rate
        else:
            out[i] = poisson_number(
                math.exp, math.log, math.log1p, math.lgamma, rate, low_key, high_key, first + i, T
            )


@helper
def log_binomial(log, log1p, lgamma, n, k, p, T):
    """The logarithm of the chance of k successes in n trials, up to a constant for each n."""
    rests = stirling_rest(log, lgamma, k, T) + stirling_rest(log, lgamma, n - k, T)
    return -rests - deviance(log1p, k, n * p, T) - deviance(log1p, n - k, n * (T(1) - p), T)


@helper
def log_ratio(log, log1p, lgamma, n, k, mode, p, T):
    """The logarithm of the chance of k successes over that of the most likely number."""
    here = log_binomial(log, log1p, lgamma, n, k, p, T)
    return here - log_binomial(log, log1p, lgamma, n, mode, p, T)


@helper
def binomial_number(exp, log, log1p, lgamma, n, p, low_key, high_key, number, T):
    """The successes in n trials of a chance of at most a half."""
    e, f, g, h = block_of_turn(low_key, high_key, number, APART)
    if n * p < T(FEW):
        left = within_one(e, f, T)
        chance, k, odds = exp(n * log1p(-p)), T(0), p / (T(1) - p)
        while left > chance and k < n:
            left -= chance
            chance *= odds * (n - k) / (k + T(1))
            k += T(1)
        return k
    deviation = math.sqrt(n * p * (T(1) - p))
    b = T(1.15) + T(2.53) * deviation
    a = T(-0.0873) + T(0.0248) * b + T(0.01) * p
    inside = T(0.92) - T(4.2) / b
    alpha = (T(2.83) + T(5.1) / b) * deviation
    mode = math.floor((n + T(1)) * p)
    turn = 0
    while True:
        e, f, g, h = block_of_turn(low_key, high_key, number, turn)
        k, bound, near = hat(e, f, a, b, n * p + T(0.5), T)
        v = within_one(g, h, T)
        if near >= T(0.07) and v <= inside:
            return k
        is_possible = k >= T(0) and k <= n
        if is_possible:
            ratio = log_ratio(log, log1p, lgamma, n, k, mode, p, T)
            if log(v * alpha / bound) <= ratio:
                return k
        turn += 1


@kernel
def binomial(args, start, stop):
    """out = successes in as many trials as the first input says, with the chances of the second."""
    p = words(args)
    counts, chances, out = at(p[0], T), at(p[1], T), at(p[2], T)
    low_key, high_key, first = U(p[3]), U(p[4]), p[5]
    for i in range(start, stop):
        n, chance = counts[i], chances[i]
        if n <= T(0) or chance <= T(0):
            out[i] = T(0)
        elif chance >= T(1):
            out[i] = n
        elif n - n != T(0) or chance != chance:
            out[i] = T(math.nan)
        else:
            is_likely = chance > T(0.5)
            found = binomial_number(
                math.exp, math.log, math.log1p, math.lgamma,
                n, T(1) - chance if is_likely else chance, low_key, high_key, first + i, T,
            )  # fmt: skip
            out[i] = n - found if is_likely else found


# --------------------------------------------------------------------------- angles


@helper
def von_mises_number(log, asin, kappa, low_key, high_key, number, T):
    """An angle around 0 (Best and Fisher, Applied Statistics 28, 1979), in a form without cancellation.

    With z the cosine of a half turn's part, the angle's cosine is f = (1 + r z) / (r + z).
    """
    e, f, g, h = block_of_turn(low_key, high_key, number, APART)
    if kappa == T(0):
        return (T(2) * within_one(e, f, T) - T(1)) * T(math.pi)
    if not kappa > T(0) or kappa == T(math.inf):
        return T(0) if kappa > T(0) else T(math.nan)
    square = math.sqrt(T(1) + T(4) * kappa * kappa)
    root = math.sqrt(T(1) + square)
    rho = T(2) * kappa * root / ((square + T(1)) * (root + T(math.sqrt(2.0))))
    above = (T(1) - rho) * (T(1) - rho) / (T(2) * rho)  # r - 1
    turn = 0
    while True:
        e, f, g, h = block_of_turn(low_key, high_key, number, turn)
        _, b, away = point(e, f, T)
        if T(0) < away < T(1):
            lack = T(2) * b * b / away  # 1 - z, of twice the direction's angle
            fall = above * lack / (T(2) + above - lack)  # 1 - f
            c = kappa * (above + fall)
            u = within_one(g, h, T)
            if c * (T(2) - c) > u or log(c / u) + T(1) - c >= T(0):
                break
        turn += 1
    angle = T(2) * asin(math.sqrt(min(T(0.5) * fall, T(1))))
    return -angle if h & U(1) else angle  # a bit that u has not


@kernel
def von_mises(args, start, stop):
    """out = angles around 0 of the concentrations that the input gives."""
    p = words(args)
    kappa, out = at(p[0], T), at(p[1], T)
    low_key, high_key, first = U(p[2]), U(p[3]), p[4]
    for i in range(start, stop):
        out[i] = von_mises_number(math.log, math.asin, kappa[i], low_key, high_key, first + i, T)
