"""Functions of statistics and of physics: the normal distribution's, entropies, modified Bessel functions."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..graph.elementwise import Choice, elementwise
from ..graph.export import export
from ..graph.operation import operation
from ..graph.registry import reference
from ..schedule.codegen.body import special
from ..shapes import an_int
from ..tensor import Tensor
from .layouts import reporting_c_order
from .promotion import floating
from .transcendental import with_numbers

# ----- the normal distribution -----


@export(namespace="special", out=True)
@elementwise(
    ref=reference.erfcx, domain=(-2, 4), dtypes=floating, backward_name="SpecialErfcxBackward0"
)
def erfcx(x):
    """exp(x²) erfc(x), which does not underflow where erfc does; infinite far below 0.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.special.erfcx(adjit.tensor([-1., 0., 100.]))
        tensor([5.0090, 1.0000, 0.0056])
    """
    return special.erfcx(x)


@erfcx.vjp
def _(g, x):
    far = x if x > 20 else 20  # out there a difference would have few digits
    h = 0.5 / (far * far)
    series = 1 - 3 * h * (1 - 5 * h * (1 - 7 * h * (1 - 9 * h * (1 - 11 * h * (1 - 13 * h)))))
    near = 2 * x * special.erfcx(x) - 1.1283791670955126
    return g * (-1.1283791670955126 * h * series if x > 20 else near)


@export(namespace="special", out=True)
@elementwise(
    ref=reference.ndtr, domain=(-3, 3), dtypes=floating, backward_name="SpecialNdtrBackward0"
)
def ndtr(x):
    """The probability that a standard normal number is below x, to its own digits far below 0 too.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.special.ndtr(adjit.tensor([-10., 0., 1.]))
        tensor([7.6199e-24, 5.0000e-01, 8.4134e-01])
    """
    return special.ndtr(x)


@ndtr.vjp
def _(g, x):
    return g * (0.3989422804014327 * math.exp(-0.5 * x * x))


@export(namespace="special", out=True)
@elementwise(
    ref=reference.log_ndtr, domain=(-3, 3), dtypes=floating, backward_name="SpecialLogNdtrBackward0"
)
def log_ndtr(x):
    """log(ndtr(x)), also where ndtr(x) is 0 in floating point.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.special.log_ndtr(adjit.tensor([-100., 0., 10.]))
        tensor([-5.0055e+03, -6.9315e-01, -7.6199e-24])
    """
    return special.log_ndtr(x)


@log_ndtr.vjp
def _(g, x):
    return g * (0.7978845608028654 / special.erfcx(-0.7071067811865476 * x))


@export(namespace="special", out=True)
@elementwise(
    ref=reference.ndtri, domain=(0.1, 0.9), dtypes=floating, backward_name="SpecialNdtriBackward0"
)
def ndtri(x):
    """The inverse of `ndtr`: which number a standard normal one is below with probability x.

    Differentiable. Infinite at 0 and 1, NaN outside. Integers give the default floating dtype.

    Example:
        >>> adjit.special.ndtri(adjit.tensor([0., 0.5, 0.975]))
        tensor([  -inf, 0.0000, 1.9600])
    """
    return special.ndtri(x)


@ndtri.vjp
def _(g, x):
    y = special.ndtri(x)
    return g * (2.5066282746310002 * math.exp(0.5 * y * y))


# ----- entropies -----


@export(namespace="special", out=True)
@elementwise(
    ref=reference.entr, domain=(0.5, 3), dtypes=floating, backward_name="SpecialEntrBackward0"
)
def entr(x):
    """-x log(x), 0 at 0 and -inf below.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.special.entr(adjit.tensor([-1., 0., 0.5]))
        tensor([  -inf, 0.0000, 0.3466])
    """
    positive = x if x > 0 else 1  # logarithms of others are slow
    inside = -x * math.log(positive) if x > 0 else x - x
    return -math.inf if x < 0 else inside


@entr.vjp
def _(g, x):
    return g * (-math.log(x) - 1)


@elementwise(
    name="xlog1py", ref=reference.xlog1py, domain=((-2, 2), (-0.5, 3)), dtypes=floating,
    backward_name="SpecialXlog1PyBackward0",
)  # fmt: skip
def weighted_log1p(x, y):
    """x * log(1 + y), 0 where x is 0."""
    product = x * math.log1p(y)
    return y if y != y else (0 if x == 0 else product)


@weighted_log1p.vjp
def _(g, x, y):
    gx = g * math.log1p(y)
    return 0 if (x == 0) & (y <= -1) else gx, g * x / (y + 1)


chosen_log1p = with_numbers(weighted_log1p, "SpecialXlog1PyBackward")


@Choice
def xlog1py(input: Any, other: Any) -> Any:
    """input * log(1 + other), 0 where `input` is 0; either may be a number. Differentiable in both.

    Example:
        >>> adjit.special.xlog1py(adjit.tensor([0., 2.]), adjit.tensor([-1., 1.]))
        tensor([0.0000, 1.3863])
    """
    return chosen_log1p(input, other)


export(namespace="special", out=True)(xlog1py)


# ----- modified Bessel functions -----


@export(method=True, inplace="function", out=True)
@elementwise(ref=reference.i0, domain=(-10, 10), dtypes=floating)
def i0(x):
    """The modified Bessel function of the first kind, of order 0.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.i0(adjit.tensor([0., 1., -10.]))
        tensor([1.0000e+00, 1.2661e+00, 2.8157e+03])
    """
    return special.i0(x)


@i0.vjp
def _(g, x):
    return g * special.i1(x)


@export(namespace="special", out=True)
@elementwise(
    ref=reference.i0e, domain=(-10, 10), dtypes=floating, backward_name="SpecialI0EBackward0"
)
def i0e(x):
    """`i0` times exp(-|x|), which stays finite.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.special.i0e(adjit.tensor([0., 1., 1000.]))
        tensor([1.0000, 0.4658, 0.0126])
    """
    return special.i0e(x)


@i0e.vjp
def _(g, x):
    return g * (special.i1e(x) - special.sign(x) * special.i0e(x))


@export(namespace="special", out=True)
@elementwise(
    ref=reference.i1, domain=(-10, 10), dtypes=floating, backward_name="SpecialI1Backward0"
)
def i1(x):
    """The modified Bessel function of the first kind, of order 1.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.special.i1(adjit.tensor([0., 1., -2.]))
        tensor([ 0.0000,  0.5652, -1.5906])
    """
    return special.i1(x)


@i1.vjp
def _(g, x):
    y = 1 if abs(x) < 1e-8 else x  # of the slope at 0 a slope is computed too
    slope = special.i0(x) - special.i1(x) / y
    return g * (0.5 if abs(x) < 1e-8 else slope)


@export(namespace="special", out=True)
@elementwise(
    ref=reference.i1e, domain=(-10, 10), dtypes=floating, backward_name="SpecialI1EBackward0"
)
def i1e(x):
    """`i1` times exp(-|x|), which stays finite.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.special.i1e(adjit.tensor([0., 1., 1000.]))
        tensor([0.0000, 0.2079, 0.0126])
    """
    return special.i1e(x)


@i1e.vjp
def _(g, x):
    y = 1 if abs(x) < 1e-8 else x
    slope = special.i0e(x) - special.i1e(x) * (special.sign(x) + 1 / y)
    return g * (0.5 - abs(x) if abs(x) < 1e-8 else slope)


export(namespace="special", name="i0", out=True)(i0)


# ----- the gamma function of several dimensions -----


@export(method=True, inplace=True, out=True)
@operation("MvlgammaBackward0")
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the gamma function of p dimensions: a sum of lgamma(input - k / 2) for k < p.

    Differentiable. Integers give the default floating dtype. Wishart's distribution is normalised by it.

    Raises:
        TypeError: if p is no whole number.
        RuntimeError: if p is below 1, or `input` is of truth values.

    Example:
        >>> adjit.mvlgamma(adjit.tensor([2., 3.]), 2)
        tensor([0.4516, 1.5502])
    """
    p = an_int("mvlgamma", "p", 2, p)
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    if input.dtype is dtypes.bool:
        raise RuntimeError("The input tensor may not be a boolean tensor.")
    total = input.lgamma() + 0.25 * p * (p - 1) * math.log(math.pi)
    for k in range(1, p):
        total = total + (input - 0.5 * k).lgamma()
    return reporting_c_order(total)


def slope_of_mvlgamma(x: Tensor, p: int) -> Tensor:
    """Its derivative, by the derivatives of its summands."""
    total = x.digamma()
    for k in range(1, p):
        total = total + (x - 0.5 * k).digamma()
    return total


@mvlgamma.vjp
def _(g: Tensor, input: Tensor, p: int) -> Tensor:
    return g * slope_of_mvlgamma(input, p)


@mvlgamma.jvp
def _(t_input: Tensor, input: Tensor, p: int) -> Tensor:
    return t_input * slope_of_mvlgamma(input, p)


mvlgamma.batched_as_body()

export(namespace="special", name="multigammaln", out=True)(mvlgamma)
