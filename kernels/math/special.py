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
    constant,
    copysign,
    floor,
    rarely,
    register,
    round_even,
    sqrt,
    trunc,
    where,
)
from .vector import FORMATS, fmod, pow, sin

# The name to import for a (function, dtype).
TABLE: dict[tuple[str, str], str] = {}

Body = Callable[..., Any]

SHIFT = 9  # the asymptotic series are used from here up
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


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
    series = constant(x, BERNOULLI[-1])
    for coefficient in BERNOULLI[-2::-1]:
        series = series * square + coefficient
    total = near + (inverse + square * (0.5 + series * inverse))
    sine = sin(math.pi * (x - round_even(x)), k) * (1.0 / math.pi)
    return where(mirrored, 1.0 / (sine * sine) - total, total)


def zeta_above(s, x, k):
    """`zeta` for positive x: nine terms, then Euler's and Maclaurin's formula for the others."""
    total = constant(x, 0.0)
    for step in range(SHIFT):
        total = total + pow(x + float(step), -s, k)
    far = x + float(SHIFT)
    inverse = 1.0 / far
    rest = pow(far, 1.0 - s, k)  # not `power * far`: that power underflows sooner
    power = rest * inverse
    total = total + (rest / (s - 1.0) + 0.5 * power)
    factor = power * inverse * s
    for j, number in enumerate(BERNOULLI):
        total = total + factor * (number / math.factorial(2 * j + 2))
        factor = factor * (s + (2.0 * j + 1.0)) * (s + (2.0 * j + 2.0)) * (inverse * inverse)
    return where(s < np.inf, total, pow(x, -s, k))


def zeta_below(s, x, k):
    """`zeta` for x <= 0: a pole where x is whole; else powers of negative numbers, for whole s only.

    The terms are those of all numbers x + n, without those to the left of x: sums over positive numbers.
    """
    whole = floor(x)
    sign = where(floor(s * 0.5) * 2.0 == s, constant(s, 1.0), -1.0)
    everywhere = zeta_above(s, x - whole, k) + sign * zeta_above(s, (whole + 1.0) - x, k)
    total = everywhere - sign * zeta_above(s, 1.0 - x, k)
    total = where(floor(s) == s, total, np.nan)
    return where(whole == x, np.inf, total)


@vectorised
def zeta(s, x, k):
    """Hurwitz's zeta function, the sum of (x + n)**-s over n >= 0, for s > 1."""
    slow = OutOfLine(f"zeta_below_{k.SUFFIX}", partial(zeta_below, k=k), partial(zeta_below, k=k))
    total = rarely(x <= 0.0, slow, (s, x), zeta_above(s, x, k))
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
def hypot(x, y, k):
    """sqrt(x² + y²) without overflow on the way."""
    a, b = abs(x), abs(y)
    larger, smaller = where(b > a, b, a), where(b > a, a, b)
    ratio = smaller / where(larger > 0.0, larger, 1.0)
    size = larger * sqrt(1.0 + ratio * ratio)
    return where((a == np.inf) | (b == np.inf), np.inf, size)
