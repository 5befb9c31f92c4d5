"""Numbers as pairs on a GPU: what a float holds, and the rest that its rounding took.

So a float32 kernel has twice the digits without float64, which most GPUs have few units for. A sum's
rest is exact, and so is a product's (Knuth, TAOCP 2, 4.2.2; Ogita, Rump & Oishi 2005,
doi:10.1137/030601818); those of both operands are carried along. Whole numbers have no rests.
"""

from ..language.abi import helper
from ..language.device import rest_of_product


@helper
def add_pairs(a, a_rest, b, b_rest):
    """The sum of two pairs."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other) + (a_rest + b_rest)


@helper
def multiply_pairs(a, a_rest, b, b_rest):
    """The product of two pairs."""
    return a * b, rest_of_product(a, b) + (a * b_rest + a_rest * b)


@helper
def rounded(value, rest):
    """The number nearest to a pair. Infinities have no rest, nor has -0."""
    return value + rest if rest != 0 and rest - rest == 0 else value


@helper
def pair_of_whole(n, T):
    """A whole number as a pair of T."""
    value = T(n)
    return value, T(n - int(value))


@helper
def point_of(first, first_rest, step, step_rest, i, T):
    """first + step * i, where all are pairs but for `i`, a whole number."""
    times, times_rest = pair_of_whole(i, T)
    way, way_rest = multiply_pairs(step, step_rest, times, times_rest)
    return add_pairs(first, first_rest, way, way_rest)
