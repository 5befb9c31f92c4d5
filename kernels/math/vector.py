"""Scalar functions for float32 and float64 that LLVM vectorises, accurate over their whole range.

Numba lowers `math.exp` to one libm call per element, which keeps a loop scalar. The functions here
are branch free: reduce the range, evaluate a polynomial in fused multiply-adds, put the exponent
together from bits. A loop over them becomes full-width vector code, and inlined into a fused
expression they cost no pass over memory.

Each body is written once for both formats; `k` is the format's module of constants. Where plain
evaluation would lose an ulp, a value is carried as a rounded number and the rest of it, `x` and
`x_low`, and the rest is added last. Results are within 1 ulp for float32 and 2 for float64, and
are the same whatever the position of an element in a vector.

Generated code imports the compiled functions by the names in `TABLE`:

    from adjit.kernels.math.vector import tanh_f32

and they also compute on NumPy scalars and arrays when called from Python. The algorithms are the
classical ones of fdlibm and Cephes, with error-free transformations (Dekker, Knuth) on top.
"""

import inspect
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from ..language.intrinsics import (
    OutOfLine,
    bits,
    ceil,
    clamp,
    constant,
    copysign,
    float_from,
    float_of_whole,
    floor,
    fma,
    from_bits,
    polynomial,
    rarely,
    register,
    round_even,
    shift_down,
    sqrt,
    trunc,
    where,
)
from ..language.processor import VECTOR_BYTES, has
from . import constants_f32 as vector_math_f32
from . import constants_f64 as vector_math_f64

# Vectors that a loop over functions works on at once; 16 registers have no room for more than two.
# 4M float32 on Zen 5, in us for 1, 2 and 4: sin 2117, 1318, 1108, tanh 2104, 1697, 1515, exp 800, 696, 672;
# with AVX2 alone sin 2184, 2157, 2367, tanh 4118, 3340, 3304.
INTERLEAVED = 4 if has("avx512f") else 2
# Rows are short, and four vectors at once, as LLVM has it by itself, leave much of one to narrower ones:
# 600,000 float32 in rows of 100, divided by their sums, take 146 us with four and 103 with two or one, in rows
# of 48 165, 186 and 130. With AVX2 one takes longer: tanh of each less the mean 1061 us for 768.
INTERLEAVED_IN_ROWS = 64 // VECTOR_BYTES

FORMATS = (vector_math_f32, vector_math_f64)

# The name to import for a (function, dtype).
TABLE: dict[tuple[str, str], str] = {}

# Functions whose float32 form computes in float64: none has to, so far.
FLOAT64_INSIDE: frozenset[str] = frozenset()

Body = Callable[..., Any]


def compiled(name: str, body: Body) -> None:
    """Make a function of a body in both formats and enter it in the table."""
    arity = len(inspect.signature(body).parameters) - 1
    for k in FORMATS:
        full_name = f"{name}_{k.SUFFIX}"
        globals()[full_name] = register(full_name, partial(body, k=k), k.DTYPE, arity)
        TABLE[name, np.dtype(k.DTYPE).name] = full_name


def vectorised(body: Body) -> Body:
    """Enter a body in the table under its own name."""
    compiled(body.__name__, body)
    return body


# ---------------------------------------------------------------- parts


def fast_two_sum(x, y):
    """x + y and the rounding error, for |x| >= |y| or x = 0."""
    total = x + y
    return total, (x - total) + y


def two_sum(x, y):
    """x + y and the rounding error."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def two_product(x, y):
    """x * y and the rounding error."""
    product = x * y
    return product, fma(x, y, -product)


def fast_fma(x, y, z):
    """x * y + z and the rounding error, for |z| >= |x * y|."""
    total = fma(x, y, z)
    return total, fma(x, y, z - total)


def quotient(x, x_low, y, y_low):
    """(x + x_low) / (y + y_low) and what rounding left of it."""
    inverse = 1.0 / y
    ratio = x * inverse
    rest = fma(-ratio, y, x) + fma(-ratio, y_low, x_low)
    return ratio, rest * inverse


def power_of_two(n, k):
    """2**n for a whole n in the range of normal exponents."""
    return from_bits(bits(n + (k.MAGIC + k.BIAS)) << k.MANTISSA_BITS)


def float_of_low_bits(i, k):
    """A whole number from 0 up, as a float."""
    return from_bits(i + int(np.array(k.MAGIC, k.DTYPE).view(f"i{k.DTYPE().itemsize}"))) - k.MAGIC


# ---------------------------------------------------------------- exponentials


def reduced_by_ln2(x, k):
    """n, r, r_low with x = n ln2 + r + r_low and |r| < ln2 / 2 or hardly more."""
    n = round_even(x * k.LOG2_E)
    near = fma(-n, k.LN2_HIGH, x)
    r = fma(-n, k.LN2_LOW, near)
    return n, r, fma(-n, k.LN2_LOW, near - r)


def exp_slope(r, z, k, scale=1.0):
    """(exp(r) - 1 - r) / r**2 times a power of two, with z = r**2."""
    odd, even = ([scale * c for c in parts] for parts in (k.SINH_SHORT, k.COSH))
    return fma(r, fma(r, polynomial(z, even), polynomial(z, odd)), 0.5 * scale)


def split_by_ln2(x, k, offset, times=1.0):
    """n + offset in the low bits of a float, and r, with times x = n ln2 + times r, |r| < ln2 / 2 / times."""
    magic = k.MAGIC + offset
    shifted = fma(x, times * k.LOG2_E, magic)
    n = shifted - magic
    return shifted, fma(-n, k.LN2_LOW / times, fma(-n, k.LN2_HIGH / times, x))


def exp_of_reduced(r, k, times=1.0):
    """exp(times r) for |times r| < ln2 / 2, to about 0.9 ulp; `times` is a power of two."""
    odd_and_even = zip(k.SINH_SHORT, k.COSH, strict=True)
    slopes = (1.0, 0.5, *(c for pair in odd_and_even for c in pair))
    return fma(r, polynomial(r, [c * times ** (i + 1) for i, c in enumerate(slopes)]), 1.0)


def times_power(x, shifted, k):
    """x * 2**n, rounded once, with n + 2 BIAS in the low bits of a float."""
    whole = bits(shifted)
    half = shift_down(whole, 1)
    one, other = (from_bits(part << k.MANTISSA_BITS) for part in (half, whole - half))
    return x * one * other


def expm1_parts(r, r_low, k):
    """exp(r + r_low) - 1."""
    z, z_low = two_product(r, r)
    s, s_low = fast_two_sum(r, 0.5 * z)
    cubic = r * z * polynomial(z, k.SINH) + z * z * polynomial(z, k.COSH)
    return fast_two_sum(s, s_low + (r_low + fma(0.5, z_low, cubic)))


@vectorised
def exp(x, k):
    """e**x."""
    shifted, r = split_by_ln2(clamp(x, k.EXP_MIN, k.EXP_MAX), k, 2 * k.BIAS)
    return times_power(exp_of_reduced(r, k), shifted, k)


@vectorised
def exp2(x, k):
    """2**x."""
    x = clamp(x, k.EXP2_MIN, k.EXP2_MAX)
    magic = k.MAGIC + 2 * k.BIAS
    shifted = x + magic
    r = (x - (shifted - magic)) * k.LN2
    return times_power(exp_of_reduced(r, k), shifted, k)


@vectorised
def expm1(x, k):
    """e**x - 1."""
    n, r, r_low = reduced_by_ln2(clamp(x, -k.EXPM1_MIN, k.EXP_MAX), k)
    s, s_low = expm1_parts(r, r_low, k)
    half_scale = power_of_two(n - 1.0, k)  # halved, or 2**n would overflow before the result
    less, less_low = fast_two_sum(half_scale, -0.5)
    total, low = fast_two_sum(less, half_scale * s)
    result = 2.0 * (total + (low + fma(half_scale, s_low, less_low)))
    return where(abs(x) < k.TINY_SQUARE, x, result)


@vectorised
def tanh(x, k):
    """Hyperbolic tangent: x + x**3 TANH(x**2), beyond TANH_SPLIT 1 - 2 / (e**2x + 1)."""
    size = abs(x)
    y = where(size > k.TANH_MAX, k.TANH_MAX, size)
    shifted, r = split_by_ln2(y, k, k.BIAS - 1, times=2.0)
    half_power = from_bits(bits(shifted) << k.MANTISSA_BITS)
    outer = 1.0 - 1.0 / fma(exp_of_reduced(r, k, times=2.0), half_power, 0.5)
    z = x * x
    inner = fma(x, z * polynomial(z, k.TANH), x)
    return copysign(where(size > k.TANH_SPLIT, outer, inner), x)


@vectorised
def sigmoid(x, k):
    """1 / (1 + e**-x), as w / (w + e**r) with w = 2**n and x = n ln2 - r.

    Above and below stand multiplied by `lift`, so that w is normal where the result is not.
    """
    x = clamp(x, k.EXP_MIN, k.SIGMOID_MAX)
    lift_bits = k.MANTISSA_BITS + 1
    lift = 2.0**lift_bits
    magic = k.MAGIC + k.BIAS + lift_bits
    shifted = fma(x, k.LOG2_E, magic)
    w = from_bits(bits(shifted) << k.MANTISSA_BITS)
    n = shifted - magic
    r = fma(n, k.LN2_LOW, fma(n, k.LN2_HIGH, -x))
    z = r * r
    lifted_r = from_bits(bits(r) + (lift_bits << k.MANTISSA_BITS))  # of 0 it makes next to nothing
    curve = fma(z, exp_slope(r, z, k, lift), lifted_r)
    one = w + lift
    one_low = w - (one - lift)
    below = one + curve
    below_low = (curve - (below - one)) + one_low
    inverse = 1.0 / below
    rest = fma(-inverse, below_low, fma(-inverse, below, 1.0))
    return fma(rest, inverse, inverse) * w


def sinh_and_cosh_parts(x, k):
    """The factors of cosh(r) and sinh(r), halved, and r, r_low, z of |x| = n ln2 + r."""
    y = abs(x)
    n, r, r_low = reduced_by_ln2(where(y > k.SINH_MAX, k.SINH_MAX, y), k)
    up = power_of_two(n - 2.0, k)
    down = power_of_two(-2.0 - where(n > 60.0, 60.0, n), k)
    return up, down, r, r_low, r * r


@vectorised
def sinh(x, k):
    """Hyperbolic sine: (2**n - 2**-n) / 2 cosh(r) + (2**n + 2**-n) / 2 sinh(r)."""
    up, down, r, r_low, z = sinh_and_cosh_parts(x, k)
    of_cosh, of_cosh_low = fast_two_sum(up, -down)
    of_sinh, of_sinh_low = fast_two_sum(up, down)
    cosh_tail = z * fma(z, polynomial(z, k.COSH), 0.5)
    sinh_tail = fma(r * z, polynomial(z, k.SINH), r_low)
    product, product_low = two_product(of_sinh, r)
    total, low = fast_two_sum(of_cosh, product)
    factors_low = fma(of_sinh_low, r, of_cosh_low)
    rest = fma(of_cosh, cosh_tail, fma(of_sinh, sinh_tail, factors_low))
    result = copysign(2.0 * (total + (low + product_low + rest)), x)
    return where(abs(x) < k.TINY, x, result)


@vectorised
def cosh(x, k):
    """Hyperbolic cosine: (2**n + 2**-n) / 2 cosh(r) + (2**n - 2**-n) / 2 sinh(r)."""
    up, down, r, r_low, z = sinh_and_cosh_parts(x, k)
    of_cosh, of_cosh_low = fast_two_sum(up, down)
    of_sinh, of_sinh_low = fast_two_sum(up, -down)
    cosh_tail = z * fma(z, polynomial(z, k.COSH), 0.5)
    sinh_tail = fma(r * z, polynomial(z, k.SINH), r_low)
    product, product_low = two_product(of_sinh, r)
    total, low = fast_two_sum(of_cosh, product)
    factors_low = fma(of_sinh_low, r, of_cosh_low)
    rest = fma(of_cosh, cosh_tail, fma(of_sinh, sinh_tail, factors_low))
    return 2.0 * (total + (low + product_low + rest))


# ---------------------------------------------------------------- logarithms


def split_normal(i, k):
    """e, m with m 2**e the normal number whose bits are i, m in [sqrt(1/2), sqrt(2))."""
    if k.MANTISSA_BITS == 23:
        e = (i - k.SQRT_HALF_BITS) >> k.MANTISSA_BITS
        return float_of_whole(e), from_bits(i - (e << k.MANTISSA_BITS))
    # AVX2 has neither shifts that keep the sign nor conversions for 64 bits.
    middle = k.BIAS + 1
    shift = (middle << k.MANTISSA_BITS) - k.SQRT_HALF_BITS
    biased = shift_down(i + shift, k.MANTISSA_BITS)
    e = float_of_low_bits(biased, k) - float(middle)
    return e, from_bits(i - ((biased - middle) << k.MANTISSA_BITS))


def split_exponent(x, k):
    """e, m with x = m 2**e and m in [sqrt(1/2), sqrt(2)), for finite x > 0."""
    subnormal = x < k.SMALLEST_NORMAL
    lift = float(k.MANTISSA_BITS + 1)
    e, m = split_normal(bits(where(subnormal, x * 2.0**lift, x)), k)
    return where(subnormal, e - lift, e), m


def log_tail(f, k):
    """log(1 + f) - f for 1 + f in [sqrt(1/2), sqrt(2)]."""
    s = f / (2.0 + f)
    z = s * s
    half_square = 0.5 * f * f
    return fma(s, fma(z, polynomial(z, k.LOG), half_square), -half_square)


def at_log_edges(x, result):
    """A logarithm's values at 0, inf and where it has none."""
    nowhere = where(x == 0.0, constant(x, -np.inf), np.nan)
    return where(x > 0.0, where(x < np.inf, result, x), nowhere)


def logarithm(name, of_parts, x, k):
    """A logarithm by `of_parts(e, m)`, x = m 2**e; numbers that are not positive and normal are rare."""

    def unusual(x):
        return at_log_edges(x, of_parts(*split_exponent(x, k)))

    is_rare = bits(x) + ((2 * k.BIAS + 1) << k.MANTISSA_BITS) >= -(2 << k.MANTISSA_BITS)
    slow = OutOfLine(f"unusual_{name}_{k.SUFFIX}", unusual, getattr(np, name))
    return rarely(is_rare, slow, (x,), of_parts(*split_normal(bits(x), k)))


def log_of_parts(e, f, f_low, k):
    """e ln2 + log(1 + f + f_low)."""
    total, low = fast_two_sum(e * k.LN2_HIGH, f)
    correction = f_low * fma(f, f - 1.0, 1.0)
    return total + (low + fma(e, k.LN2_LOW, log_tail(f, k) + correction))


@vectorised
def log(x, k):
    """Natural logarithm."""

    def of_parts(e, m):
        f = m - 1.0
        total, low = fast_two_sum(e * k.LN2_HIGH, f)
        return total + (low + fma(e, k.LN2_LOW, log_tail(f, k)))

    return logarithm("log", of_parts, x, k)


def log_in_base(name, scale, scale_low, unit, unit_low, x, k):
    """log(x) in a base: scale log(m) + unit e."""

    def of_parts(e, m):
        f = m - 1.0
        y, y_low = fast_two_sum(f, log_tail(f, k))
        product = y * scale
        product_low = fma(y, scale, -product) + fma(y, scale_low, y_low * scale)
        total, low = fast_two_sum(e * unit, product)
        return total + (low + fma(e, unit_low, product_low))

    return logarithm(name, of_parts, x, k)


@vectorised
def log2(x, k):
    """Logarithm to base 2."""
    return log_in_base("log2", k.LOG2_E, k.LOG2_E_LOW, 1.0, 0.0, x, k)


@vectorised
def log10(x, k):
    """Logarithm to base 10."""
    return log_in_base("log10", k.LOG10_E, k.LOG10_E_LOW, k.LOG10_2_HIGH, k.LOG10_2_LOW, x, k)


def log1p_of_parts(x, x_low, k, doublings=0.0):
    """log(1 + x + x_low) + doublings ln2 for finite x > -1."""
    u, u_low = two_sum(1.0, x)
    e, m = split_normal(bits(u), k)
    down = -e
    scale = power_of_two(where(down < -60.0, -60.0, down), k)
    return log_of_parts(e + doublings, m - 1.0, (u_low + x_low) * scale, k)


@vectorised
def log1p(x, k):
    """log(1 + x); it has the sign of x."""
    u = x + 1.0
    result = where(u < np.inf, log1p_of_parts(x, constant(x, -0.0), k), u)
    edge = where(u == 0.0, constant(x, np.inf), np.nan)
    return copysign(where(u > 0.0, result, edge), x)


# ---------------------------------------------------------------- trigonometry


def reduced_by_half_pi(x, k):
    """n, r, r_low with x = n pi/2 + r + r_low, for |x| up to REDUCE_MAX."""
    n = round_even(x * k.TWO_OVER_PI)
    near = fma(-n, k.HALF_PI, x)
    low, lower = two_product(n, k.HALF_PI_LOW)
    r = near - low
    return n, r, ((near - r) - low) - fma(n, k.HALF_PI_LOWER, lower)


def sin_and_cos_parts(r, r_low, k):
    """sin(r) - r; cos(r) in two parts."""
    z = r * r
    half = -0.5 * r
    cosine = fma(half, r, 1.0)
    sin_tail = fma(r * z, polynomial(z, k.SIN), r_low * cosine)
    cosine_low = fma(half, r, 1.0 - cosine)
    cos_tail = fma(z * z, polynomial(z, k.COS), fma(-r, r_low, cosine_low))
    return sin_tail, cosine, cos_tail


def sin_in_quadrant(n, r, r_low, k):
    """sin(n pi/2 + r + r_low)."""
    sin_tail, cosine, cos_tail = sin_and_cos_parts(r, r_low, k)
    quadrant = bits(n + k.MAGIC)
    size = where((quadrant & 1) == 0, r + sin_tail, cosine + cos_tail)
    sign_shift = k.MANTISSA_BITS + int(k.BIAS).bit_length()
    return from_bits(bits(size) ^ ((quadrant & 2) << sign_shift))


def tan_in_quadrant(n, r, r_low, k):
    """tan(n pi/2 + r + r_low)."""
    sin_tail, cosine, cos_tail = sin_and_cos_parts(r, r_low, k)
    sine, sine_low = fast_two_sum(r, sin_tail)
    cosine, cosine_low = fast_two_sum(cosine, cos_tail)
    even = (bits(n + k.MAGIC) & 1) == 0
    ratio, rest = quotient(
        where(even, sine, -cosine),
        where(even, sine_low, -cosine_low),
        where(even, cosine, sine),
        where(even, cosine_low, sine_low),
    )
    return ratio + rest


@cache
def two_over_pi(digits):
    """floor(2/pi * 2**digits), by Machin's formula."""
    guard = digits + 32

    def arctan_of_inverse(n):
        total, term, i = 0, (1 << guard) // n, 1
        while term:
            total += term // i
            term, i = -term // (n * n), i + 2
        return total

    half_pi = 2 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    return (1 << (guard + digits)) // half_pi


def reduced_huge_angle(x, k):
    """n, r, r_low with x = n pi/2 + r + r_low modulo 2 pi, for |x| beyond REDUCE_MAX.

    Payne and Hanek's reduction, in wide integers: only those bits of 2/pi matter that multiply
    the mantissa of x to something neither a multiple of 4 nor too small to see.
    """
    digits = k.MANTISSA_BITS + 1
    fraction = 5 * digits  # bits after the point; the two before it count quarter turns
    width = fraction + 2
    word = bits(x)
    exponent = (shift_down(word, k.MANTISSA_BITS) & (2 * k.BIAS + 1)) - (k.BIAS + k.MANTISSA_BITS)
    largest = k.BIAS - k.MANTISSA_BITS + 1
    table = two_over_pi(largest + fraction)
    window = (largest - exponent).shifted_constant(table, largest + fraction)
    mantissa = (word & (2**k.MANTISSA_BITS - 1)) | 2**k.MANTISSA_BITS
    quarters = window.resized(width) * mantissa.resized(width)
    n = shift_down(quarters + 2 ** (fraction - 1), fraction)
    rest = quarters - (n << fraction)
    size = where(rest < 0, -rest, rest)
    zeros = size.leading_zeros()
    size = size << zeros
    top = shift_down(size, width - digits).resized(64)
    next_ = shift_down(size, width - 2 * digits).resized(64) & (2**digits - 1)
    high, low = float_from(top, x.type), float_from(next_, x.type) * 0.5**digits
    unit = power_of_two(float_from(2 - digits - zeros.resized(64), x.type), k)
    unit = where((rest < 0) ^ (word < 0), -unit, unit)
    n = float_from(n.resized(64), x.type)
    r, r_low = two_product(high, k.HALF_PI)
    r_low = fma(high, k.HALF_PI_LOW, fma(low, k.HALF_PI, r_low))
    return where(word < 0, -n, n), r * unit, r_low * unit


def at_infinite_angle(x, result):
    """NaN for an infinite angle."""
    return where(abs(x) < np.inf, result, x - x)


def huge_sin(x, k):
    """sin of an angle beyond REDUCE_MAX."""
    return at_infinite_angle(x, sin_in_quadrant(*reduced_huge_angle(x, k), k))


def huge_cos(x, k):
    """cos of an angle beyond REDUCE_MAX."""
    n, r, r_low = reduced_huge_angle(x, k)
    return at_infinite_angle(x, sin_in_quadrant(n + 1.0, r, r_low, k))


def huge_tan(x, k):
    """tan of an angle beyond REDUCE_MAX."""
    return at_infinite_angle(x, tan_in_quadrant(*reduced_huge_angle(x, k), k))


@vectorised
def sin(x, k):
    """Sine, of an angle of any size."""
    usual = where(abs(x) < k.TINY, x, sin_in_quadrant(*reduced_by_half_pi(x, k), k))
    slow = OutOfLine(f"huge_sin_{k.SUFFIX}", partial(huge_sin, k=k), np.sin, by_lane=True)
    return rarely(abs(x) > k.REDUCE_MAX, slow, (x,), usual)


@vectorised
def cos(x, k):
    """Cosine, of an angle of any size."""
    n, r, r_low = reduced_by_half_pi(x, k)
    usual = sin_in_quadrant(n + 1.0, r, r_low, k)
    slow = OutOfLine(f"huge_cos_{k.SUFFIX}", partial(huge_cos, k=k), np.cos, by_lane=True)
    return rarely(abs(x) > k.REDUCE_MAX, slow, (x,), usual)


@vectorised
def tan(x, k):
    """Tangent, of an angle of any size."""
    usual = where(abs(x) < k.TINY, x, tan_in_quadrant(*reduced_by_half_pi(x, k), k))
    slow = OutOfLine(f"huge_tan_{k.SUFFIX}", partial(huge_tan, k=k), np.tan, by_lane=True)
    return rarely(abs(x) > k.REDUCE_MAX, slow, (x,), usual)


# ---------------------------------------------------------------- inverse trigonometry


def asin_parts(x, k):
    """asin(x) as x + rest for |x| <= 1/2, else asin(sqrt((1 - |x|) / 2)); and which of them."""
    size = abs(x)
    inner = size <= 0.5
    z = where(inner, x * x, fma(-0.5, size, 0.5))
    root = sqrt(z)
    root_low = fma(-root, root, z) / (root + root)
    y = where(inner, size, root)
    y_low = where(inner | (z == 0.0), 0.0, root_low)
    return inner, y, fma(y * z, polynomial(z, k.ASIN), y_low)


@vectorised
def asin(x, k):
    """Arc sine: outside of [-1/2, 1/2] as pi/2 - 2 asin(sqrt((1 - |x|) / 2))."""
    inner, y, rest = asin_parts(x, k)
    total, low = fast_two_sum(constant(x, k.HALF_PI), -2.0 * y)
    outer = total + (low + fma(-2.0, rest, k.HALF_PI_LOW))
    return copysign(where(inner, y + rest, outer), x)


@vectorised
def acos(x, k):
    """Arc cosine: pi/2 - asin(x) in [-1/2, 1/2], else 2 asin(sqrt((1 - |x|) / 2)), mirrored."""
    inner, y, rest = asin_parts(x, k)
    negative = x < 0.0
    sign = where(negative, constant(x, 1.0), -1.0)
    total, low = fast_two_sum(constant(x, k.HALF_PI), sign * y)
    middle = total + (low + fma(sign, rest, k.HALF_PI_LOW))
    mirrored, mirrored_low = fast_two_sum(constant(x, k.PI), -2.0 * y)
    left = mirrored + (mirrored_low + fma(-2.0, rest, k.PI_LOW))
    return where(inner, middle, where(negative, left, 2.0 * (y + rest)))


def atan_of_ratio(above, below, k):
    """atan(above / below) for 0 <= above <= below as high, rest."""
    outer = above > below * 0.4142135623730951
    sum_, sum_low = fast_two_sum(below, above)
    top, top_low = fast_two_sum(-below, above)
    zero = constant(above, 0.0)
    ratio, ratio_low = quotient(
        where(outer, top, above),
        where(outer, top_low, zero),
        where(outer, sum_, below),
        where(outer, sum_low, zero),
    )
    z = ratio * ratio
    tail = fma(ratio * z, polynomial(z, k.ATAN), ratio_low)
    base, base_low = fast_two_sum(where(outer, constant(above, k.QUARTER_PI), 0.0), ratio)
    return base, base_low + (tail + where(outer, constant(above, k.QUARTER_PI_LOW), 0.0))


def minus_from(flag, whole, whole_low, x, x_low):
    """whole - x where the flag is set, else x, in two parts."""
    total, low = fast_two_sum(constant(x, whole), -x)
    return where(flag, total, x), where(flag, (low - x_low) + whole_low, x_low)


@vectorised
def atan(x, k):
    """Arc tangent, reduced to ratios below tan(pi/8)."""
    size = abs(x)
    steep = size > 1.0
    one = constant(x, 1.0)
    size = where(size > k.ATAN_MAX, k.ATAN_MAX, size)
    y, y_low = atan_of_ratio(where(steep, one, size), where(steep, size, one), k)
    y, y_low = minus_from(steep, k.HALF_PI, k.HALF_PI_LOW, y, y_low)
    return where(abs(x) < k.TINY, x, copysign(y + y_low, x))


@vectorised
def atan2(y, x, k):
    """The angle of the point (x, y), in [-pi, pi]."""
    rise, run = abs(y), abs(x)
    steep = rise > run
    above, below = where(steep, run, rise), where(steep, rise, run)
    both_infinite = above == np.inf
    above = where(both_infinite, 1.0, where(below < np.inf, above, 0.0))
    below = where((above > 0.0) & (below < np.inf), below, 1.0)
    # Far from 1, sums overflow and remainders underflow.
    scale = where(below > k.RATIO_MAX, constant(x, 1.0 / k.RATIO_MAX), 1.0)
    scale = where(below < k.RATIO_MIN, k.RATIO_MAX, scale)
    angle, low = atan_of_ratio(above * scale, below * scale, k)
    angle, low = minus_from(steep, k.HALF_PI, k.HALF_PI_LOW, angle, low)
    leftward = bits(x) < 0
    angle, low = minus_from(leftward, k.PI, k.PI_LOW, angle, low)
    result = copysign(angle + low, y)
    return where((x != x) | (y != y), x + y, result)


# ---------------------------------------------------------------- inverse hyperbolic functions


def root_parts(x, x_low):
    """sqrt(x + x_low) for x > 0, or 0."""
    root = sqrt(x)
    low = (fma(-root, root, x) + x_low) / (root + root)
    return root, where(x > 0.0, low, 0.0)


@vectorised
def asinh(x, k):
    """log(|x| + sqrt(x**2 + 1)), as log1p(|x| + x**2 / (1 + sqrt(x**2 + 1)))."""
    size = abs(x)
    large = size > k.SQUARE_MAX
    y = where(large, 1.0, size)
    square, square_low = two_product(y, y)
    total, low = two_sum(square, constant(x, 1.0))
    root, root_low = root_parts(total, low + square_low)
    below, below_low = fast_two_sum(root, 1.0)
    ratio, ratio_low = quotient(square, square_low, below, below_low + root_low)
    arg, arg_low = fast_two_sum(y, ratio)
    arg = where(large, size - 1.0, arg)
    arg_low = where(large, 0.0, arg_low + ratio_low)
    result = log1p_of_parts(arg, arg_low, k, where(large, constant(x, 1.0), 0.0))
    result = where(size < np.inf, result, size)
    return where(size < k.TINY, x, copysign(result, x))


@vectorised
def acosh(x, k):
    """log(x + sqrt(x**2 - 1)), as log1p(t + sqrt(t (t + 2))) with t = x - 1."""
    large = x > k.SQUARE_MAX
    t = where(large, constant(x, 1.0), x - 1.0)
    square, square_low = two_product(t, t)
    total, low = two_sum(square, t + t)
    root, root_low = root_parts(total, low + square_low)
    arg, arg_low = two_sum(t, root)
    arg = where(large, x - 1.0, arg)
    arg_low = where(large, 0.0, arg_low + root_low)
    result = log1p_of_parts(arg, arg_low, k, where(large, constant(x, 1.0), 0.0))
    return where(x >= 1.0, where(x < np.inf, result, x), np.nan)


@vectorised
def atanh(x, k):
    """log((1 + x) / (1 - x)) / 2, as log1p(2 |x| / (1 - |x|)) / 2."""
    size = abs(x)
    y = where(size < 1.0, size, 0.5)
    below, below_low = fast_two_sum(constant(x, 1.0), -y)
    ratio, ratio_low = quotient(y + y, constant(x, 0.0), below, below_low)
    result = 0.5 * log1p_of_parts(ratio, ratio_low, k)
    result = where(size < k.TINY, x, copysign(result, x))
    edge = where(size == 1.0, copysign(np.inf, x), np.nan)
    return where(size < 1.0, result, edge)


# ---------------------------------------------------------------- error functions


def erf_by_root(y, k):
    """erf(y) for y >= 0: y + y q, then 1 - q**4, with polynomials q of one length."""
    outer = y > k.ERF_SPLIT
    u = where(outer, y - k.ERFC_CENTER, fma(y, y, -k.ERF_CENTER))
    both = zip(k.ERFC_ROOT, k.ERF_LONG, strict=True)
    q = polynomial(u, [where(outer, constant(y, a), b) for a, b in both])
    square = q * q
    return where(outer, fma(-square, square, 1.0), fma(y, q, y))


def erf_by_exp(y, k):
    """erf(y) for y >= 0: y + y ERF(y**2) up to 1, then 1 - exp(LOG_ERFC(y))."""
    exponent, low = two_product(y, polynomial(y, k.LOG_ERFC[1:]))
    n, r, _ = reduced_by_ln2(exponent, k)
    power = exp_of_reduced(r + (low + k.LOG_ERFC[0]), k) * power_of_two(n, k)
    return where(y > 1.0, 1.0 - power, fma(y, polynomial(y * y, k.ERF), y))


@vectorised
def erf(x, k):
    """Error function; the short way has the accuracy of float32 only."""
    size = abs(x)
    y = where(size > k.ERF_MAX, k.ERF_MAX, size)
    return copysign(erf_by_exp(y, k) if k.ERFC_ROOT is None else erf_by_root(y, k), x)


def erfcx_parts(y, k):
    """erfc(y) exp(y**2) in two parts for y >= 1/2: t ERFCX(t - CENTER) with t = 1 / (y + SHIFT)."""
    one = constant(y, 1.0)
    below, below_low = fast_two_sum(constant(y, k.ERFCX_SHIFT), y)  # exact for larger y too
    t = one / below
    t_low = t * fma(-t, below_low, fma(-t, below, one))
    u, u_low = fast_two_sum(constant(y, -k.ERFCX_CENTER), t)
    p, p_low = fast_fma(u, polynomial(u, k.ERFCX[2:]), k.ERFCX[1])
    q, q_low = fast_fma(u, p, k.ERFCX[0])
    low, slope_low = k.ERFCX_LOWS
    q_low = fma(u_low + t_low, polynomial(u, k.ERFCX_SLOPE), fma(u, p_low + slope_low, q_low + low))
    tail, tail_low = two_product(t, q)
    return tail, tail_low + fma(t, q_low, t_low * q)


def erfc_near(x, k):
    """erfc(x) for |x| <= 1/2."""
    total, low = fast_two_sum(constant(x, 1.0), -x)
    return total + (low - x * polynomial(x * x, k.ERF))


@vectorised
def erfc(x, k):
    """1 - erf(x), to full relative accuracy."""
    size = abs(x)
    y = where(size > k.ERFC_MAX, k.ERFC_MAX, size)
    square, square_low = two_product(y, y)
    lift = (k.BIAS + 1) // 2  # 2**n alone may not be normal
    magic = k.MAGIC + k.BIAS + lift
    shifted = fma(-square, k.LOG2_E, magic)
    n = shifted - magic
    near = fma(-n, k.LN2_HIGH, -square)
    near_low = fma(-n, k.LN2_LOW, -square_low)
    r = near + near_low
    z = r * r
    e, e_low = fast_two_sum(1.0, near)  # exp(-y**2) is 2**n (e + e_low)
    e_low = e_low + fma(z, exp_slope(r, z, k), near_low)
    tail, tail_low = erfcx_parts(y, k)
    value = fma(tail, e, fma(tail, e_low, tail_low * e))
    outer = value * from_bits(bits(shifted) << k.MANTISSA_BITS) * 2.0**-lift
    outer = where(x > 0.0, outer, 2.0 - outer)
    return where(size > 0.5, outer, erfc_near(x, k))


def minus_log(product, k):
    """-log(product) in two parts, for a product from 0 to 1."""
    e, m = split_exponent(product, k)
    f = m - 1.0
    total, low = fast_two_sum(e * k.LN2_HIGH, f)
    low = low + fma(e, k.LN2_LOW, log_tail(f, k))
    return fast_two_sum(-total, -low)


def erfinv_over_x(w, w_low, root, root_low, k):
    """erfinv(x) / x in two parts, by w = -log(1 - x**2) and its root: polynomials in w, then in the root."""
    outer = w > k.ERFINV_TAIL_START
    far = root > k.ERFINV_FAR_START
    inner_low, tail_low, far_low = k.ERFINV_LOWS
    u = root - where(far, constant(w, k.ERFINV_FAR_CENTER), k.ERFINV_TAIL_CENTER)
    pairs = zip(k.ERFINV_FAR, k.ERFINV_TAIL, strict=True)
    coefficients = [where(far, constant(w, a), b) for a, b in pairs]
    p, p_low = fast_fma(u, polynomial(u, coefficients[1:]), coefficients[0])
    p_low = p_low + (root_low + where(far, constant(w, far_low), tail_low))
    slope, slope_low = fast_fma(w, polynomial(w, k.ERFINV[2:]), k.ERFINV[1])
    product, product_low = two_product(w, slope)
    q, q_low = two_sum(product, constant(w, k.ERFINV[0]))
    q_low = q_low + fma(w, slope_low, product_low) + fma(w_low, k.ERFINV[1], inner_low)
    return where(outer, p, q), where(outer, p_low, q_low)


@vectorised
def erfinv(x, k):
    """Inverse error function, by w = -log(1 - x**2)."""
    w, w_low = minus_log(fma(-x, x, 1.0), k)
    p, p_low = erfinv_over_x(w, w_low, *root_parts(w, w_low), k)
    tiny = abs(x) < k.TINY_SQUARE  # then x * p_low may underflow
    lifted = where(tiny, x * 2.0**64, x)
    result = fma(lifted, p, lifted * p_low)
    result = where(tiny, result * 2.0**-64, result)
    edge = where(abs(x) == 1.0, copysign(np.inf, x), np.nan)
    return where(abs(x) < 1.0, copysign(result, x), edge)


# ---------------------------------------------------------------- powers and roots


def log_parts(x, k):
    """log(x) in two parts, to nearly twice the precision, for finite x > 0."""
    e, m = split_exponent(x, k)
    f = m - 1.0
    below, below_low = fast_two_sum(2.0, f)
    s, s_low = quotient(f, 0.0, below, below_low)
    z, z_low = two_product(s, s)
    z_low = fma(2.0 * s, s_low, z_low)
    c, c_low = two_product(z, k.TWO_THIRDS)
    c_low = c_low + fma(z_low, k.TWO_THIRDS, z * k.TWO_THIRDS_LOW)
    c, carry = fast_two_sum(2.0, c)
    c_low = carry + fma(z * z, polynomial(z, k.LOG_LONG), c_low)
    product, product_low = two_product(s, c)
    product_low = product_low + fma(s, c_low, s_low * c)
    total, low = fast_two_sum(e * k.LN2_HIGH, product)
    return fast_two_sum(total, low + fma(e, k.LN2_LOW, product_low))


def power_of_positive(x, y, k):
    """x**y for x > 0, or 0 or inf: exp(y log(x)) in two parts; NaN where infinity meets 1."""
    log_x, log_low = log_parts(x, k)
    log_x = where(x == 0.0, -np.inf, where(x < np.inf, log_x, x))
    exponent, low = two_product(y, log_x)
    low = where(abs(exponent) < 2.0 * k.EXP_MAX - k.EXP_MIN, fma(y, log_low, low), 0.0)
    n, r, r_low = reduced_by_ln2(clamp(exponent, k.EXP_MIN, k.EXP_MAX), k)
    s, s_low = expm1_parts(*fast_two_sum(r, r_low + low), k)
    one, one_low = fast_two_sum(1.0, s)
    return times_power(one + (one_low + s_low), n + (k.MAGIC + 2 * k.BIAS), k)


@vectorised
def pow(x, y, k):
    """x**y: the power of |x|, then the sign and the edges of C's pow."""
    size = abs(x)
    result = power_of_positive(size, y, k)
    result = where((size == 1.0) & (y == y), 1.0, result)
    whole = floor(y) == y
    half = 0.5 * y
    odd = whole & (floor(half) != half)
    sign = where(odd, x, constant(x, 1.0))
    result = where((x < 0.0) & ~whole & (x > -np.inf), np.nan, copysign(result, sign))
    return where((x == 1.0) | (y == 0.0), 1.0, where(x == x, result, x))


@vectorised
def rsqrt(x, k):
    """1 / sqrt(x), without a division: Newton's steps from the guess that subtracted bits make."""
    root = sqrt(x)
    y = from_bits(k.INVERSE_BITS - bits(root))
    rest = fma(-root, y, 1.0)
    y = fma(y * rest, polynomial(rest, k.INVERSE_STEP), y)
    for _ in range(k.RSQRT_MORE_STEPS):
        half = from_bits(bits(y) - (1 << k.MANTISSA_BITS))  # other units than those of products
        y = fma(half, fma(-x * y, y, 1.0), y)
    # The bits of inf less those of the root are some 2 / root, or inf and 0, of which the steps make NaN.
    above = from_bits(bits(constant(x, np.inf)) - bits(root))
    return where(y < above, y, above)


@vectorised
def cbrt(x, k):
    """Cube root: a polynomial start, Halley's step, and one more from a start of few bits."""
    e, m = split_exponent(abs(x), k)
    third = round_even(e * (1.0 / 3.0))
    m = m * power_of_two(fma(-3.0, third, e), k)
    y = polynomial(m, k.CBRT)
    cube = y * y * y
    y = y * ((cube + 2.0 * m) / (2.0 * cube + m))
    y = from_bits(bits(y) & k.CBRT_MASK)  # y * y is exact
    ratio = m / (y * y)
    y = fma(y, (ratio - y) / (y + y + ratio), y)
    result = copysign(y * power_of_two(third, k), x)
    return where((x == 0.0) | ~(abs(x) < np.inf), x, result)


def long_fmod(x, y):
    """fmod with a quotient of any length."""
    return x.long_fmod(y)


@vectorised
def fmod(x, y, k):
    """The rest of a division whose quotient is rounded towards zero; it has the sign of x."""
    size, step = abs(x), abs(y)
    times = size / step
    rest = fma(-floor(times), step, size)
    rest = where(rest < 0.0, rest + step, where(rest >= step, rest - step, rest))
    usual = where(size < step, x, copysign(rest, x))
    usual = where((step == np.inf) & (size < np.inf), x, usual)
    slow = OutOfLine(f"long_fmod_{k.SUFFIX}", long_fmod, np.fmod, by_lane=True)
    return rarely(times > k.QUOTIENT_MAX, slow, (x, y), usual)


@vectorised
def remainder(x, y, k):
    """The rest of a division whose quotient is rounded down, as in Python."""
    rest = fmod(x, y, k)
    return where((rest != 0.0) & ((rest < 0.0) ^ (y < 0.0)), rest + y, rest)


# ---------------------------------------------------------------- gamma functions


def product_parts(x, x_low, y, y_low):
    """(x + x_low) * (y + y_low) in two parts."""
    product, low = two_product(x, y)
    return fast_two_sum(product, low + fma(x, y_low, x_low * y))


def sum_parts(x, x_low, y, y_low):
    """(x + x_low) + (y + y_low) in two parts."""
    total, low = two_sum(x, y)
    return fast_two_sum(total, low + (x_low + y_low))


def fast_sum_parts(x, x_low, y, y_low):
    """`sum_parts` where the exponent of x is not below that of y, or x = 0."""
    total, low = fast_two_sum(x, y)
    return fast_two_sum(total, low + (x_low + y_low))


def raised(y, k):
    """Below 8: whether, y + 8, and (y + i) (y + 7 - i) for i < 4. From 8 on: y, and ones."""
    short = y < 8.0
    x, x_low = fast_two_sum(where(short, constant(y, 8.0), 0.0), y)
    u, u_low = fast_sum_parts(*two_product(y, constant(y, 7.0)), *two_product(y, y))
    one = constant(y, 1.0)
    pairs = []
    for i in (0.0, 6.0, 10.0, 12.0):
        pair, low = two_sum(u, constant(y, i)) if i else (u, constant(y, 0.0))
        pairs.append((where(short, pair, one), where(short, low + u_low, 0.0)))
    return short, x, x_low, pairs


def sin_pi_and_cos_pi(y, k):
    """|sin(pi y)| and |cos(pi y)| in two parts each, and whether their signs differ."""
    f = y - round_even(y)
    size = abs(f)
    swap = size > 0.25
    f_folded = where(swap, 0.5 - size, size)
    r, r_low = two_product(f_folded, constant(y, k.PI))
    r, r_low = fast_two_sum(r, fma(f_folded, k.PI_LOW, r_low))
    sin_tail, cosine, cos_tail = sin_and_cos_parts(r, r_low, k)
    folded_sine, folded_sine_low = fast_two_sum(r, sin_tail)
    cosine, cos_tail = fast_two_sum(cosine, cos_tail)
    sine = where(swap, cosine, folded_sine), where(swap, cos_tail, folded_sine_low)
    cosine = where(swap, folded_sine, cosine), where(swap, folded_sine_low, cos_tail)
    return sine, cosine, f < 0.0


@vectorised
def lgamma(x, k):
    """log(|gamma(x)|): Stirling's formula from 8 on, recurrence and reflection to get there.

    Around the zeros at 1 and 2 a polynomial keeps the relative accuracy. Around the zeros at
    negative x the error is small beside 1, not beside the result.
    """
    y = abs(x)
    short, z, z_low, pairs = raised(y, k)
    log_z, log_z_low = log_parts(z, k)
    less, less_low = fast_two_sum(log_z, constant(x, -1.0))
    total, low = two_product(z, less)
    inverse = 1.0 / z
    low = low + fma(z, less_low + log_z_low, z_low * fma(-0.5, inverse, log_z))
    finite = total < np.inf
    total, low = fast_sum_parts(total, low, -0.5 * log_z, -0.5 * log_z_low)
    tail = inverse * polynomial(inverse * inverse, k.STIRLING)
    total, low = fast_sum_parts(total, low, constant(x, k.HALF_LOG_2PI), tail + k.HALF_LOG_2PI_LOW)
    left = product_parts(*pairs[0], *pairs[1])
    p, p_low = product_parts(*left, *product_parts(*pairs[2], *pairs[3]))
    negative = x < -k.TINY_SQUARE
    sine, _, _ = sin_pi_and_cos_pi(y, k)
    below, below_low = product_parts(y, constant(x, 0.0), *sine)
    ratio, ratio_low = quotient(p, p_low, below, below_low)
    arg, arg_low = where(negative, ratio, p), where(negative, ratio_low, p_low)
    log_arg, log_arg_low = log_parts(arg, k)
    log_arg_low = log_arg_low + arg_low / arg
    needed = short | negative
    log_arg, log_arg_low = where(needed, log_arg, 0.0), where(needed, log_arg_low, 0.0)
    shift = where(negative, constant(x, k.LOG_PI), 0.0)
    shift_low = where(negative, constant(x, k.LOG_PI_LOW), 0.0)
    log_arg, log_arg_low = sum_parts(log_arg, log_arg_low, shift, shift_low)
    total, low = sum_parts(total, low, -log_arg, -log_arg_low)
    result = total + low
    result = where(negative, -result, result)

    one = abs(x - 1.0) < 0.25
    d = where(one, x - 1.0, x - 2.0)
    both = zip(k.LGAMMA_1, k.LGAMMA_2, strict=True)
    coefficients = [where(one, constant(x, a), b) for a, b in both]
    slope, slope_low = fast_fma(d, polynomial(d, coefficients[1:]), coefficients[0])
    result = where(abs(d) < 0.25, fma(d, slope, d * (slope_low + k.LGAMMA_LOW)), result)
    result = where(finite | (x != x), result, np.inf)
    return where((x <= 0.0) & (floor(x) == x), np.inf, result)


@vectorised
def digamma(x, k):
    """The derivative of lgamma: asymptotic from 8 on, recurrence and reflection to get there.

    Around the zero at 1.46 a polynomial keeps the relative accuracy. Around the zeros at negative
    x the error is small beside 1, not beside the result.
    """
    y = abs(x)
    zero = constant(x, 0.0)
    short, z, z_low, pairs = raised(y, k)
    total, low = log_parts(z, k)
    inverse, inverse_low = quotient(constant(x, 1.0), zero, z, z_low)
    tail = fma(inverse * inverse, polynomial(inverse * inverse, k.DIGAMMA), 0.5 * inverse_low)
    total, low = fast_sum_parts(total, low + (z_low * inverse - tail), -0.5 * inverse, zero)
    slope, slope_low = two_sum(y + y, constant(x, 7.0))
    for pair, pair_low in pairs:
        term, term_low = quotient(slope, slope_low, pair, pair_low)
        total, low = sum_parts(total, low, where(short, -term, 0.0), where(short, -term_low, 0.0))
    negative = x < 0.0
    sine, cosine, differ = sin_pi_and_cos_pi(y, k)
    cotangent, cotangent_low = product_parts(
        *quotient(*cosine, *sine), constant(x, k.PI), constant(x, k.PI_LOW)
    )
    reflected = sum_parts(*quotient(constant(x, 1.0), zero, y, zero), total, low)
    flip = where(differ, constant(x, -1.0), 1.0)
    reflected = sum_parts(*reflected, flip * cotangent, flip * cotangent_low)
    result = where(negative, reflected[0] + reflected[1], total + low)

    d = x - k.ROOT
    p, p_low = fast_fma(d, polynomial(d, k.DIGAMMA_ROOT[1:]), constant(x, k.DIGAMMA_ROOT[0]))
    near = fma(d, p, fma(d, p_low + k.DIGAMMA_ROOT_LOW, -k.ROOT_LOW * p))
    result = where(abs(d) < 0.125, near, result)
    result = where(y < k.TINY_SQUARE, -1.0 / x, result)
    result = where(y < np.inf, result, x)
    return where(negative & (floor(x) == x), np.nan, result)


# ---------------------------------------------------------------- rounding, roots, signs


SIMPLE: dict[str, Body] = {
    "floor": lambda x, k: floor(x),
    "ceil": lambda x, k: ceil(x),
    "trunc": lambda x, k: trunc(x),
    "round": lambda x, k: round_even(x),
    "sqrt": lambda x, k: sqrt(x),
    "fabs": lambda x, k: abs(x),
    "copysign": lambda x, y, k: copysign(x, y),
    "fma": lambda x, y, z, k: fma(x, y, z),
}
for _name, _body in SIMPLE.items():
    compiled(_name, _body)

# The names to import for these: a loop with no other function waits for memory.
ONE_INSTRUCTION = frozenset(full for (name, _), full in TABLE.items() if name in SIMPLE)

# The names of those that ask each vector for rare arguments, after which the next vector begins.
ASKING = frozenset(
    TABLE[name, k.DTYPE.__name__]
    for name in ("cos", "fmod", "log", "log10", "log2", "remainder", "sin", "tan")
    for k in FORMATS
)
