"""Scalar functions put together from those of `vector.py`, in the same style.

They are accurate to a few units in the last place rather than to one or two.
"""

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..language.intrinsics import (
    OutOfLine,
    bits,
    constant,
    copysign,
    floor,
    fma,
    from_bits,
    polynomial,
    rarely,
    register,
    round_even,
    sqrt,
    trunc,
    where,
)
from .vector import (
    FORMATS,
    erfc_near,
    erfcx_parts,
    erfinv_over_x,
    exp,
    fmod,
    log,
    log1p,
    minus_log,
    power_of_positive,
    root_parts,
    sin,
    two_product,
)

# The name to import for a (function, dtype).
TABLE: dict[tuple[str, str], str] = {}

Body = Callable[..., Any]

SHIFT = 9  # the asymptotic series are used from here up
BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330,
)  # fmt: skip
TRIGAMMA_SERIES = 8  # how many of these


def vectorised(body: Body) -> Body:
    """Make a function of a body in both formats and enter it in the table."""
    name, arity = body.__name__, len(inspect.signature(body).parameters) - 1
    for k in FORMATS:
        full_name = f"{name}_{k.SUFFIX}"
        globals()[full_name] = register(full_name, partial(body, k=k), k.DTYPE, arity)
        TABLE[name, np.dtype(k.DTYPE).name] = full_name
    return body


@vectorised
def trunc_divide(x, y, k):
    """The quotient, rounded towards zero."""
    return trunc(x / y)


@vectorised
def floor_divide(x, y, k):
    """The largest whole number not above the exact quotient, as Python's `//`."""
    rest = fmod(x, y, k)
    ratio = (x - rest) / y
    ratio = where((rest != 0.0) & ((rest < 0.0) ^ (y < 0.0)), ratio - 1.0, ratio)
    whole = floor(ratio)
    whole = where(ratio - whole > 0.5, whole + 1.0, whole)
    whole = where(ratio == 0.0, copysign(0.0, x / y), whole)
    return where(y == 0.0, x / y, whole)


@vectorised
def trigamma(x, k):
    """The second derivative of log(gamma(x)); below 1/2 by reflection."""
    mirrored = x < 0.5
    y = where(mirrored, 1.0 - x, x)
    near = constant(x, 0.0)
    for step in range(SHIFT):
        term = 1.0 / (y + float(step))
        near = near + term * term
    inverse = 1.0 / (y + float(SHIFT))
    square = inverse * inverse
    last, *others = BERNOULLI[TRIGAMMA_SERIES - 1 :: -1]
    series = constant(x, last)
    for coefficient in others:
        series = series * square + coefficient
    total = near + (inverse + square * (0.5 + series * inverse))
    sine = sin(math.pi * (x - round_even(x)), k) * (1.0 / math.pi)
    return where(mirrored, 1.0 / (sine * sine) - total, total)


def zeta_rest(s, far, k):
    """The sum of (far + n)**-s over n >= 0, for a far number, by Euler's and Maclaurin's formula."""
    inverse = 1.0 / far
    rest = power_of_positive(far, 1.0 - s, k)  # not `power * far`: that power underflows sooner
    power = rest * inverse
    total = rest / (s - 1.0) + 0.5 * power
    square = inverse * inverse
    factor = power * inverse * s  # the power first: without it products would be infinite
    for j, number in enumerate(BERNOULLI[: k.ZETA_SERIES]):
        total = total + factor * (number / math.factorial(2 * j + 2))
        factor = factor * (s + (2.0 * j + 1.0)) * (s + (2.0 * j + 2.0)) * square
    return total


def zeta_above(s, x, k):
    """`zeta` for positive x: some terms one by one, and the rest."""
    total = zeta_rest(s, x + float(k.ZETA_TERMS), k)
    for step in range(k.ZETA_TERMS)[::-1]:
        total = total + power_of_positive(x + float(step), -s, k)
    return total


def zeta_below(s, x, k):
    """`zeta` for whole s and negative x that are not whole: terms of positive numbers, then of negative ones.

    The latter are the sum of all terms from the one next to 0 on, without those to the left of x. Those of an
    odd s fall away against the former, all of them at halves, and what is left has its own digits.
    """
    whole = floor(x)
    right, left = x - whole, (whole + 1.0) - x
    above, below = zeta_above(s, right, k), zeta_above(s, left, k)
    beyond = zeta_above(s, 1.0 - x, k)
    apart = where(right == left, 0.0, above - below)  # powers of halves may be infinite
    is_even = floor(s * 0.5) * 2.0 == s
    return where(is_even, above + below - beyond, apart + beyond)


@vectorised
def zeta(s, x, k):
    """Hurwitz's zeta function, the sum of (x + n)**-s over n >= 0, for s > 1.

    Infinite at x = 0, -1, ...; for other x below 0 of whole s only: others have powers of negative numbers.
    """
    largest = float(np.finfo(k.DTYPE).max)
    s = where(s > largest, largest, s)  # sums of infinities would be none
    is_pole = (x <= 0.0) & (floor(x) == x)
    has_powers = (s > 1.0) & (floor(s) == s)
    slow = OutOfLine(f"zeta_below_{k.SUFFIX}", partial(zeta_below, k=k), partial(zeta_below, k=k))
    usual = where(x < 0.0, constant(x, np.nan), zeta_above(s, x, k))
    total = rarely((x < 0.0) & has_powers & ~is_pole, slow, (s, x), usual)
    total = where(is_pole, constant(x, np.inf), total)
    return where(s > 1.0, total, where(s == 1.0, constant(s, np.inf), np.nan))


@vectorised
def sign(x, k):
    """-1, 0 or 1, or NaN."""
    return where((x > 0.0) | (x < 0.0), copysign(1.0, x), x)


@vectorised
def minimum(x, y, k):
    """The smaller one; NaN if one is."""
    return where((x <= y) | (x != x), x, y)


@vectorised
def maximum(x, y, k):
    """The larger one; NaN if one is."""
    return where((x >= y) | (x != x), x, y)


@vectorised
def nextafter(x, y, k):
    """The next number after x towards y, whose bits are those of x one up or down."""
    number = bits(x)
    is_away = ~((y > x) ^ (x > 0.0))  # from 0, where the bits of a number grow
    moved = from_bits(where(is_away, number + 1, number - 1))
    moved = where(x == 0.0, copysign(from_bits(constant(number, 1)), y), moved)
    return where((x != x) | (y != y), x + y, where(x == y, y, moved))


@vectorised
def hypot(x, y, k):
    """sqrt(x² + y²) without overflow on the way."""
    a, b = abs(x), abs(y)
    larger, smaller = where(b > a, b, a), where(b > a, a, b)
    ratio = smaller / where(larger > 0.0, larger, 1.0)
    size = larger * sqrt(1.0 + ratio * ratio)
    return where((a == np.inf) | (b == np.inf), np.inf, size)


# ---------------------------------------------------------------- of the normal distribution

ROOT_OF_INVERSE_PI = 0.5641895835477563
ROOT_OF_HALF = 0.7071067811865476


def exp_of_square(x, k, times):
    """exp(times x**2), with what rounding leaves of the square; `times` is a power of two, or minus one."""
    square, low = two_product(x, x * times)
    e = exp(square, k)
    return fma(e, low, e)


def erfcx_from_zero(y, k):
    """erfc(y) exp(y**2) for y >= 0, by the tail's series in 1 / y**2 where its polynomial ends."""
    inverse = 1.0 / y
    half = 0.5 * inverse * inverse
    series = constant(y, 1.0)
    for odd in (11.0, 9.0, 7.0, 5.0, 3.0, 1.0):
        series = 1.0 - odd * half * series
    beyond = inverse * ROOT_OF_INVERSE_PI * series
    inner = where(y < 0.5, y, 0.5)
    near = exp(inner * inner, k) * erfc_near(inner, k)
    tail, low = erfcx_parts(where(y > k.ERFC_MAX, k.ERFC_MAX, y), k)
    return where(y < 0.5, near, where(y > k.ERFC_MAX, beyond, tail + low))


@vectorised
def erfcx(x, k):
    """exp(x**2) erfc(x): erfc without its underflow; infinite far below 0."""
    size = abs(x)
    right = erfcx_from_zero(size, k)
    y = where(size > k.ERFC_MAX, k.ERFC_MAX, size)
    left = 2.0 * exp_of_square(y, k, 1.0) - right
    left = where(y * y > k.EXP_MAX - 0.8, np.inf, left)
    return where(x < 0.0, left, right)


def ndtr_below(y, k):
    """ndtr(-y) for y >= 0."""
    near = where(y > k.NDTR_MAX, k.NDTR_MAX, y)
    return 0.5 * exp_of_square(near, k, -0.5) * erfcx_from_zero(near * ROOT_OF_HALF, k)


@vectorised
def ndtr(x, k):
    """The normal distribution's function, to full relative accuracy below 0."""
    below = ndtr_below(abs(x), k)
    return where(x > 0.0, 1.0 - below, below)


@vectorised
def log_ndtr(x, k):
    """log(ndtr(x)), also where ndtr is 0 or 1."""
    size = abs(x)
    deep = where(x < -1.0, size, 1.0)
    tail = log(0.5 * erfcx_from_zero(deep * ROOT_OF_HALF, k), k) - 0.5 * deep * deep
    below = ndtr_below(size, k)
    other = where(x > 0.0, below, 1.0 - below)
    return where(x < -1.0, tail, log1p(-other, k))


@vectorised
def ndtri(p, k):
    """The inverse of ndtr: sqrt(2) erfinv(2 p - 1), which for small p is a function of p itself."""
    least = where(p > 0.5, 1.0 - p, p)
    x = 2.0 * p - 1.0
    w, w_low = minus_log(where(least > 0.25, fma(-x, x, 1.0), 4.0 * least * (1.0 - least)), k)
    root, root_low = root_parts(w, w_low)
    value, low = erfinv_over_x(w, w_low, root, root_low, k)
    far = (root + root_low) * polynomial(1.0 / root - k.NDTRI_FAR_CENTER, k.NDTRI_FAR)
    inner = fma(x, value, x * low)
    result = where(root > k.NDTRI_FAR_START, copysign(far, x), inner) * (1.0 / ROOT_OF_HALF)
    edge = where(p == 0.0, -np.inf, where(p == 1.0, constant(p, np.inf), np.nan))
    return where((p > 0.0) & (p < 1.0), result, edge)


# ---------------------------------------------------------------- modified Bessel functions


def bessel_near(size, first, series, k):
    """A modified Bessel function up to BESSEL_SPLIT, by its series in the square."""
    y = 0.25 * size * size
    return first * fma(y, polynomial(y, series), 1.0)


def bessel_far(size, series, k):
    """The same times exp(-size), beyond."""
    return polynomial(16.0 / size - 1.0, series) / sqrt(size)


def bessel_scaled(size, first, near, far, k):
    """A modified Bessel function times exp(-size)."""
    inner = bessel_near(size, first, near, k) * exp(-size, k)
    return where(size > k.BESSEL_SPLIT, bessel_far(size, far, k), inner)


def bessel(size, first, near, far, k):
    """A modified Bessel function; the exponential alone would be infinite too soon."""
    half = exp(0.5 * size, k)
    outer = bessel_far(size, far, k) * half * half
    outer = where(size < np.inf, outer, np.inf)
    return where(size > k.BESSEL_SPLIT, outer, bessel_near(size, first, near, k))


@vectorised
def i0(x, k):
    """The modified Bessel function of order 0."""
    return bessel(abs(x), constant(x, 1.0), k.I0_SERIES, k.I0_FAR, k)


@vectorised
def i0e(x, k):
    """i0(x) exp(-|x|)."""
    return bessel_scaled(abs(x), constant(x, 1.0), k.I0_SERIES, k.I0_FAR, k)


@vectorised
def i1(x, k):
    """The modified Bessel function of order 1."""
    return copysign(bessel(abs(x), 0.5 * abs(x), k.I1_SERIES, k.I1_FAR, k), x)


@vectorised
def i1e(x, k):
    """i1(x) exp(-|x|)."""
    return copysign(bessel_scaled(abs(x), 0.5 * abs(x), k.I1_SERIES, k.I1_FAR, k), x)
