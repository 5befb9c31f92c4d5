"""Scalar functions for integers, with PyTorch's conventions.

Divisors of zero are refused before a kernel runs. Intermediate values are 64 bits wide and are
cut to the width of the tensor when they are stored, so that results wrap around.
"""

import numpy as np

from ..language.abi import helper
from ..language.device import instead_of

MOST = 9.223372036854775e18  # the last float below 2**63


@helper
def int_unchanged(x):
    """What rounding does to an integer."""
    return x


@helper
def int_copysign(x, y):
    """|x| with the sign of y."""
    size = abs(x)
    return -size if y < 0 else size


@helper
def int_floor_divide(x, y):
    """The quotient, rounded down.

    Processors divide whole numbers one by one, and floats a vector at a time; by one divisor, they
    multiply. The first quotient leaves 2**12 divisors at most, of which the second leaves one.
    """
    x, y = np.int64(x), np.int64(y)
    inverse = 1.0 / np.float64(y)
    quotient = np.int64(min(max(np.float64(x) * inverse, -MOST), MOST))
    rest = x - quotient * y
    more = np.float64(rest) * inverse
    whole = np.int64(more)
    if more < np.float64(whole):
        whole -= 1
    quotient += whole
    rest -= whole * y
    if rest != 0 and (rest < 0) != (y < 0):
        quotient -= 1
        rest += y
    if (y > 0 and rest >= y) or (y < 0 and rest <= y):
        quotient += 1
    return quotient


@instead_of(int_floor_divide)
def int_floor_divide_on_gpu(x, y):
    """The same on processors with few units for float64."""
    return -x if y == -1 else x // y  # the smallest integer over -1 would trap


@helper
def int_quotient_or_zero(x, y):
    """The same in functions of users, where nobody has refused zeros."""
    return int_floor_divide(x, y) if y != 0 else y


@helper
def int_remainder_or_zero(x, y):
    """What that quotient leaves."""
    return x - int_floor_divide(x, y) * y if y != 0 else y


@helper
def int_trunc_divide(x, y):
    """The quotient, rounded towards zero."""
    down = int_floor_divide(x, y)
    return down + 1 if down < 0 and down * y != x else down


@helper
def int_remainder(x, y):
    """What the quotient rounded down leaves; it has the sign of y."""
    return x - int_floor_divide(x, y) * y


@helper
def int_fmod(x, y):
    """What the quotient rounded towards zero leaves; it has the sign of x."""
    return x - int_trunc_divide(x, y) * y


@helper
def int_pow(x, y):
    """x**y by squaring; a negative power of another number than 1 and -1 rounds to 0."""
    x, y = np.int64(x), np.int64(y)  # of numbers with a sign and without Numba makes floats
    if y < 0:
        if x == 1:
            return x
        if x == -1:
            return -x if y % 2 == 0 else x
        return x * 0
    result = np.int64(1)
    base = x
    while y > 0:
        if y % 2 == 1:
            result *= base
        base *= base
        y //= 2
    return result


@helper
def int_gcd(x, y):
    """The greatest common divisor, not negative."""
    x, y = abs(x), abs(y)
    while y != 0:
        x, y = y, x % y
    return abs(x)  # the smallest integer has no size


@helper
def int_lcm(x, y):
    """The least common multiple, not negative."""
    divisor = int_gcd(x, y)
    return abs(x // divisor * y) if divisor != 0 else divisor


# The name to import for a function, the same for every dtype of whole numbers.
TABLE = {
    name: f"int_{function}"
    for name, function in {
        "floor": "unchanged",
        "ceil": "unchanged",
        "trunc": "unchanged",
        "round": "unchanged",
        "copysign": "copysign",
        "floor_divide": "floor_divide",
        "trunc_divide": "trunc_divide",
        "remainder": "remainder",
        "fmod": "fmod",
        "pow": "pow",
        "gcd": "gcd",
        "lcm": "lcm",
    }.items()
}
