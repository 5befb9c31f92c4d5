"""Scalar functions for integers, with PyTorch's conventions.

Divisors of zero are refused before a kernel runs. Intermediate values are 64 bits wide and are
cut to the width of the tensor when they are stored, so that results wrap around.
"""

import numpy as np

from ..language.abi import bits_of_float, helper, scalar
from ..language.device import instead_of
from ..language.processor import has

LOW_HALF, HIGH = 0xFFFFFFFF, 2.0**84 + 2.0**63 + 2.0**52
WHOLE, WHOLE_BITS = 1.5 * 2.0**52, 0x4338000000000000  # a float whose last digit is 1
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
def float_of(x):
    """The nearest float64."""
    return np.float64(x)


@helper
def whole_near(x):
    """A whole number at most 1 away from a float64 up to 2**63, or 1024 where it is that."""
    return np.int64(min(max(x, -MOST), MOST))


if has("avx2") and not has("avx512dq"):  # which converts them one by one

    @helper
    def float_of(x):
        """The nearest float64: both halves put into the digits of large floats."""
        high = scalar(((x >> 32) & LOW_HALF) ^ 0x4530000080000000, np.float64)  # 2**84 + 2**63 more
        low = scalar((x & LOW_HALF) | 0x4330000000000000, np.float64)  # 2**52 more
        return (high - HIGH) + low

    @helper
    def whole_near(x):
        """The whole number nearest to a float64 up to 2**63, which wraps around, by halves likewise."""
        high = x * 2.0**-32 + WHOLE
        low = (x - (high - WHOLE) * 2.0**32) + WHOLE
        return ((bits_of_float(high) - WHOLE_BITS) << 32) + (bits_of_float(low) - WHOLE_BITS)


@helper
def int_nearly_divided(x, y):
    """A whole number less than 1 away from the quotient, and the rest that it leaves.

    Processors divide whole numbers one by one, and floats a vector at a time; by one divisor, they
    multiply. The first quotient leaves 2**12 divisors at most, the second no more than half of one.
    """
    x, y = np.int64(x), np.int64(y)
    inverse = 1.0 / np.float64(y)
    first = whole_near(float_of(x) * inverse)
    rest = x - first * y
    second = bits_of_float(float_of(rest) * inverse + WHOLE) - WHOLE_BITS
    return first + second, rest - second * y


@instead_of(int_nearly_divided)
def int_nearly_divided_on_gpu(x, y):
    """The same on processors with few units for float64."""
    quotient = -x if y == -1 else x // y  # the smallest integer over -1 would trap
    return quotient, x - quotient * y


@helper
def int_floor_divide(x, y):
    """The quotient, rounded down."""
    quotient, rest = int_nearly_divided(x, y)
    return quotient - 1 if rest != 0 and (rest < 0) != (y < 0) else quotient


@helper
def int_trunc_divide(x, y):
    """The quotient, rounded towards zero."""
    quotient, rest = int_nearly_divided(x, y)
    if rest != 0 and (rest < 0) != (x < 0):
        quotient += -1 if (x < 0) == (y < 0) else 1
    return quotient


@helper
def int_remainder(x, y):
    """What the quotient rounded down leaves; it has the sign of y."""
    _, rest = int_nearly_divided(x, y)
    return rest + y if rest != 0 and (rest < 0) != (y < 0) else rest


@helper
def int_fmod(x, y):
    """What the quotient rounded towards zero leaves; it has the sign of x."""
    _, rest = int_nearly_divided(x, y)
    if rest != 0 and (rest < 0) != (x < 0):
        rest += y if (x < 0) == (y < 0) else -y
    return rest


@helper
def int_quotient_or_zero(x, y):
    """The same in functions of users, where nobody has refused zeros."""
    return int_floor_divide(x, y) if y != 0 else y


@helper
def int_remainder_or_zero(x, y):
    """What that quotient leaves."""
    return int_remainder(x, y) if y != 0 else y


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
