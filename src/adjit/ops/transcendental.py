"""Exponentials, logarithms, angles, and the special functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..graph import record
from ..graph.composed import composed
from ..graph.elementwise import Choice, Elementwise, elementwise
from ..graph.export import export
from ..graph.registry import reference
from ..schedule.codegen.body import special
from ..tensor import Tensor
from .promotion import floating, floats

# ----- exponentials and logarithms -----


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.exp, dtypes=floating)
def exp(x):
    """e ** x.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([0., 1.]).exp()
        tensor([1.0000, 2.7183])
    """
    return math.exp(x)


@exp.vjp
def _(g, out):
    return g * out


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.exp2, dtypes=floating)
def exp2(x):
    """2 ** x.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([0., 3., -1.]).exp2()
        tensor([1.0000, 8.0000, 0.5000])
    """
    return special.exp2(x)


@exp2.vjp
def _(g, out):
    return g * out * 0.6931471805599453


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.expm1, dtypes=floating)
def expm1(x):
    """e ** x - 1, accurate near 0.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([1e-6, 1.]).expm1()
        tensor([1.0000e-06, 1.7183e+00])
    """
    return math.expm1(x)


@expm1.vjp
def _(g, out):
    return g * (out + 1)


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.log, domain=(0.5, 3), dtypes=floating)
def log(x):
    """Natural logarithm; -inf at 0, NaN below.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([1., 2., 10.]).log()
        tensor([0.0000, 0.6931, 2.3026])
    """
    return math.log(x)


@log.vjp
def _(g, x):
    return g / x


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.log2, domain=(0.5, 3), dtypes=floating)
def log2(x):
    """Logarithm to base 2; -inf at 0, NaN below.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([1., 8., 10.]).log2()
        tensor([0.0000, 3.0000, 3.3219])
    """
    return special.log2(x)


@log2.vjp
def _(g, x):
    return g / (x * 0.6931471805599453)


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.log10, domain=(0.5, 3), dtypes=floating)
def log10(x):
    """Logarithm to base 10; -inf at 0, NaN below.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([1., 2., 1000.]).log10()
        tensor([0.0000, 0.3010, 3.0000])
    """
    return math.log10(x)


@log10.vjp
def _(g, x):
    return g / (x * 2.302585092994046)


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.log1p, domain=(-0.5, 2), dtypes=floating)
def log1p(x):
    """log(1 + x), accurate near 0.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([1e-6, 1.]).log1p()
        tensor([1.0000e-06, 6.9315e-01])
    """
    return math.log1p(x)


@log1p.vjp
def _(g, x):
    return g / (x + 1)


@export(method=True, out=True)
@elementwise(ref=np.logaddexp, dtypes=floats("logaddexp_cpu"))
def logaddexp(x, y):
    """log(e ** x + e ** y), without overflow on the way.

    Differentiable.

    Example:
        >>> adjit.tensor([1000., 0.]).logaddexp(adjit.tensor([1000., 1.]))
        tensor([1000.6932,    1.3133])
    """
    larger = y if y > x else x
    smaller = x if y > x else y
    far = larger + math.log1p(math.exp(smaller - larger))
    return x if (x == y) & (x - x != 0) else far


@logaddexp.vjp
def _(g, x, y):
    return g / (1 + math.exp(y - x)), g / (1 + math.exp(x - y))


@export(method=True, out=True)
@elementwise(ref=np.logaddexp2, dtypes=floats("logaddexp2_cpu"))
def logaddexp2(x, y):
    """log2(2 ** x + 2 ** y), without overflow on the way.

    Differentiable.

    Example:
        >>> adjit.tensor([200., 0.]).logaddexp2(adjit.tensor([200., 1.]))
        tensor([201.0000,   1.5850])
    """
    larger = y if y > x else x
    smaller = x if y > x else y
    far = larger + math.log1p(special.exp2(smaller - larger)) * 1.4426950408889634
    return x if (x == y) & (x - x != 0) else far


@logaddexp2.vjp
def _(g, x, y):
    return g / (1 + special.exp2(y - x)), g / (1 + special.exp2(x - y))


@elementwise(
    name="xlogy", ref=reference.xlogy, domain=((-2, 2), (0.5, 3)), dtypes=floating,
    backward_name="XlogyBackward0",
)  # fmt: skip
def weighted_log(x, y):
    """x * log(y), 0 where x is 0."""
    product = x * math.log(y)
    return y if y != y else (0 if x == 0 else product)


@weighted_log.vjp
def _(g, x, y):
    gx = g * math.log(y)
    return 0 if (x == 0) & (y <= 0) else gx, g * x / y


def with_numbers(op: Elementwise, name: str) -> Callable[[Any, Any], Any]:
    """What is recorded for two operands of which either may be a number, in nodes of PyTorch's names."""
    of_tensor, of_number = op.variant(f"{name}1", "x"), op.variant(f"{name}2", "y")

    def chosen(input: Any, other: Any) -> Any:
        if not record.is_tensor(input):
            return of_tensor, (input, other), ()
        return op if record.is_tensor(other) else of_number, (input, other), ()

    return chosen


chosen_log = with_numbers(weighted_log, "XlogyBackward")


@Choice
def xlogy(input: Any, other: Any) -> Any:
    """input * log(other), 0 where `input` is 0; either may be a number. Differentiable in both.

    Example:
        >>> adjit.tensor([0., 2.]).xlogy(adjit.tensor([0., 2.]))
        tensor([0.0000, 1.3863])
    """
    return chosen_log(input, other)


export(method=True, inplace="function", out=True)(xlogy)


# ----- angles -----


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.deg2rad, dtypes=floating)
def deg2rad(x):
    """Degrees as radians.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([90., 180.]).deg2rad()
        tensor([1.5708, 3.1416])
    """
    return x * 0.017453292519943295


@deg2rad.vjp
def _(g):
    return g * 0.017453292519943295


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.rad2deg, dtypes=floating)
def rad2deg(x):
    """Radians as degrees.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([1., 3.1416]).rad2deg()
        tensor([ 57.2958, 180.0004])
    """
    return x * 57.29577951308232


@rad2deg.vjp
def _(g):
    return g * 57.29577951308232


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.sin, dtypes=floating)
def sin(x):
    """Sine of an angle in radians.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([0., 1., 1.5708]).sin()
        tensor([0.0000, 0.8415, 1.0000])
    """
    return math.sin(x)


@sin.vjp
def _(g, x):
    return g * math.cos(x)


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.cos, dtypes=floating)
def cos(x):
    """Cosine of an angle in radians.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([0., 1., 3.1416]).cos()
        tensor([ 1.0000,  0.5403, -1.0000])
    """
    return math.cos(x)


@cos.vjp
def _(g, x):
    return g * -math.sin(x)


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.tan, domain=(-1, 1), dtypes=floating)
def tan(x):
    """Tangent of an angle in radians.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([0., 1.]).tan()
        tensor([0.0000, 1.5574])
    """
    return math.tan(x)


@tan.vjp
def _(g, out):
    return g * (1 + out * out)


@export(method=True, name=["asin", "arcsin"], inplace="function", out=True)
@elementwise(ref=np.arcsin, domain=(-0.9, 0.9), dtypes=floating)
def asin(x):
    """Arc sine, in [-pi / 2, pi / 2]; NaN outside [-1, 1].

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([0., 0.5, 1.]).asin()
        tensor([0.0000, 0.5236, 1.5708])
    """
    return math.asin(x)


@asin.vjp
def _(g, x):
    return g * special.rsqrt(1 - x * x)


@export(method=True, name=["acos", "arccos"], inplace="function", out=True)
@elementwise(ref=np.arccos, domain=(-0.9, 0.9), dtypes=floating)
def acos(x):
    """Arc cosine, in [0, pi]; NaN outside [-1, 1].

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([0., 0.5, 1.]).acos()
        tensor([1.5708, 1.0472, 0.0000])
    """
    return math.acos(x)


@acos.vjp
def _(g, x):
    return g * -special.rsqrt(1 - x * x)


@export(method=True, name=["atan", "arctan"], inplace="function", out=True)
@elementwise(ref=np.arctan, dtypes=floating)
def atan(x):
    """Arc tangent, in [-pi / 2, pi / 2].

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([0., 1., -1.]).atan()
        tensor([ 0.0000,  0.7854, -0.7854])
    """
    return math.atan(x)


@atan.vjp
def _(g, x):
    return g / (x * x + 1)


@export(method=True, name=["atan2", "arctan2"], inplace=True, out=True)
@elementwise(ref=np.arctan2, domain=((-2, 2), (0.5, 2)), dtypes=floating)
def atan2(x, y):
    """The angle of the point (y, x), in [-pi, pi]: of `input` over `other`, in its quadrant.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([1., -1.]).atan2(adjit.tensor([1., -1.]))
        tensor([ 0.7854, -2.3562])
    """
    return math.atan2(x, y)


@atan2.vjp
def _(g, x, y):
    square = x * x + y * y
    inverse = 0 if square == 0 else 1 / square
    return g * y * inverse, g * -x * inverse


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.sinc, domain=(0.1, 3), dtypes=floating)
def sinc(x):
    """sin(pi x) / (pi x), 1 at 0.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([0., 0.5, 1.5]).sinc()
        tensor([ 1.0000,  0.6366, -0.2122])
    """
    angle = x * math.pi
    return 1 if x == 0 else math.sin(angle) / angle


@sinc.vjp
def _(g, x):
    angle = x * math.pi
    square = angle * x
    slope = g * ((angle * math.cos(angle) - math.sin(angle)) / square)
    return 0 if square == 0 else slope


# ----- hyperbolic functions -----


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.sinh, dtypes=floating)
def sinh(x):
    """Hyperbolic sine.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([0., 1.]).sinh()
        tensor([0.0000, 1.1752])
    """
    return math.sinh(x)


@sinh.vjp
def _(g, x):
    return g * math.cosh(x)


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.cosh, dtypes=floating)
def cosh(x):
    """Hyperbolic cosine.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([0., 1.]).cosh()
        tensor([1.0000, 1.5431])
    """
    return math.cosh(x)


@cosh.vjp
def _(g, x):
    return g * math.sinh(x)


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.tanh, domain=(-3, 3), dtypes=floating)
def tanh(x):
    """Hyperbolic tangent, in (-1, 1).

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([0., 1., -1.]).tanh()
        tensor([ 0.0000,  0.7616, -0.7616])
    """
    return math.tanh(x)


@tanh.vjp
def _(g, out):
    return g * (1 - out * out)


@export(method=True, name=["asinh", "arcsinh"], inplace="function", out=True)
@elementwise(ref=np.arcsinh, dtypes=floating)
def asinh(x):
    """Inverse hyperbolic sine.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([0., 1.]).asinh()
        tensor([0.0000, 0.8814])
    """
    return math.asinh(x)


@asinh.vjp
def _(g, x):
    return g * special.rsqrt(x * x + 1)


@export(method=True, name=["acosh", "arccosh"], inplace="function", out=True)
@elementwise(ref=np.arccosh, domain=(1.5, 3), dtypes=floating)
def acosh(x):
    """Inverse hyperbolic cosine; NaN below 1.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([1., 2.]).acosh()
        tensor([0.0000, 1.3170])
    """
    return math.acosh(x)


@acosh.vjp
def _(g, x):
    return g * special.rsqrt(x * x - 1)


@export(method=True, name=["atanh", "arctanh"], inplace="function", out=True)
@elementwise(ref=np.arctanh, domain=(-0.9, 0.9), dtypes=floating)
def atanh(x):
    """Inverse hyperbolic tangent; infinite at -1 and 1, NaN outside.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([0., 0.5]).atanh()
        tensor([0.0000, 0.5493])
    """
    return math.atanh(x)


@atanh.vjp
def _(g, x):
    return g * (1 / (1 - x * x))


# ----- error functions -----


@export(method=True, inplace="function", out=True)
@elementwise(ref=reference.erf, dtypes=floating)
def erf(x):
    """Error function: 2 / sqrt(pi) times the integral of e ** -t² from 0 to x.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([0., 0.5, 1.]).erf()
        tensor([0.0000, 0.5205, 0.8427])
    """
    return math.erf(x)


@erf.vjp
def _(g, x):
    return g * (1.1283791670955126 * math.exp(-(x * x)))


@export(method=True, inplace="function", out=True)
@elementwise(ref=reference.erfc, dtypes=floating)
def erfc(x):
    """The complement 1 - erf(x), accurate for large x.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([0., 0.5, 1.]).erfc()
        tensor([1.0000, 0.4795, 0.1573])
    """
    return math.erfc(x)


@erfc.vjp
def _(g, x):
    return g * (-1.1283791670955126 * math.exp(-(x * x)))


@export(method=True, inplace=True, out=True)
@elementwise(ref=reference.erfinv, domain=(-0.9, 0.9), dtypes=floating)
def erfinv(x):
    """The inverse of the error function; infinite at -1 and 1, NaN outside.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([0., 0.5]).erfinv()
        tensor([0.0000, 0.4769])
    """
    return special.erfinv(x)


@erfinv.vjp
def _(g, x):
    # Programs write into the result, as into that of PyTorch's, which saves the operand too.
    y = special.erfinv(x)
    return g * (0.8862269254527580 * math.exp(y * y))


# ----- the gamma function -----


@export(method=True, inplace=True, out=True)
@elementwise(ref=reference.gammaln, domain=(0.5, 4), dtypes=floating)
def lgamma(x):
    """The logarithm of the gamma function's absolute value, log(|gamma(x)|).

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([0.5, 4.]).lgamma()
        tensor([0.5724, 1.7918])
    """
    return math.lgamma(x)


@lgamma.vjp
def _(g, x):
    return g * special.digamma(x)


@export(method=True, inplace=True, out=True)
@elementwise(ref=reference.digamma, domain=(0.5, 4), dtypes=floating)
def digamma(x):
    """The derivative of `lgamma`; NaN at negative whole numbers, -inf at 0.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([1., 0.5]).digamma()
        tensor([-0.5772, -1.9635])
    """
    return special.digamma(x)


@digamma.vjp
def _(g, x):
    return g * special.trigamma(x)


@elementwise(
    ref=lambda x: reference.polygamma(1, x), domain=(0.5, 4), dtypes=floating,
    backward_name="PolygammaBackward0",
)  # fmt: skip
def trigamma(x):
    """The derivative of `digamma`."""
    return special.trigamma(x)


@trigamma.vjp
def _(g, x):
    return g * (-2 * special.zeta(3, x))


@elementwise(
    ref=reference.zeta, domain=((2, 4), (0.5, 4)), dtypes=floating,
    backward_name="SpecialZetaBackward0",
)  # fmt: skip
def zeta(x, y):
    """Hurwitz's zeta function: the sum of (y + n) ** -x over n >= 0, for x > 1; for y below 0 x is whole.

    Differentiable in y; the gradient of x is not implemented, it is NaN.

    Example:
        >>> adjit.special.zeta(adjit.tensor([2., 4.]), 1)
        tensor([1.6449, 1.0823])
    """
    return special.zeta(x, y)


@zeta.vjp
def _(g, x, y):
    return g * math.nan, g * -x * special.zeta(x + 1, y)


export(namespace="special", numbers=("x", "y"))(zeta)


@elementwise(
    name="polygamma", ref=lambda x, n, factor: factor * reference.zeta(n + 1, x),
    domain=(0.5, 4), dtypes=floating, backward_name="PolygammaBackward0",
)  # fmt: skip
def higher_polygamma(x, *, n=2, factor=-2):
    """The derivative of `digamma` of order n, `factor` being (-1) ** (n + 1) n!."""
    return factor * special.zeta(n + 1, x)


@higher_polygamma.vjp
def _(g, x, n, factor):
    return g * (-factor * (n + 1)) * special.zeta(n + 2, x)


def polygamma_of_order(n: int, x: Tensor) -> Any:
    """The op behind `polygamma`."""
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    if n < 2:
        return (digamma, trigamma)[n], (x,), ()
    return higher_polygamma, (x,), (n, (-1) ** (n + 1) * math.factorial(n))


@export
@composed
@Choice
def polygamma(n: int, input: Tensor) -> Any:
    """The derivative of `digamma` of order n. Differentiable.

    Raises:
        RuntimeError: if n is negative.

    Example:
        >>> adjit.polygamma(1, adjit.tensor([1.]))
        tensor([1.6449])
    """
    return polygamma_of_order(n, input)


@export(public=False, method="polygamma", inplace=True)
@Choice
def polygamma_of(self: Tensor, n: int) -> Any:
    """The derivative of `digamma` of order n; see `adjit.polygamma`.

    Example:
        >>> adjit.tensor([1., 0.5]).polygamma(1)
        tensor([1.6449, 4.9348])
    """
    return polygamma_of_order(n, self)


# ----- the logistic function -----


@export(method=True, inplace="function", out=True)
@elementwise(ref=reference.expit, domain=(-4, 4), dtypes=floating)
def sigmoid(x):
    """The logistic function 1 / (1 + e ** -x), in (0, 1).

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([0., 1., -1.]).sigmoid()
        tensor([0.5000, 0.7311, 0.2689])
    """
    return special.sigmoid(x)


@sigmoid.vjp
def _(g, out):
    return g * ((1 - out) * out)


@elementwise(name="logit", ref=reference.logit, domain=(0.1, 0.9), dtypes=floating)
def log_odds(x):
    """log(x / (1 - x))."""
    return math.log(x / (1 - x))


@log_odds.vjp
def _(g, x):
    return math.nan if (x < 0) | (x > 1) else g / (x * (1 - x))


@elementwise(
    name="logit_bounded", ref=lambda x, low, high: reference.logit(np.clip(x, low, high)),
    domain=(0.1, 0.9), dtypes=floating, backward_name="LogitBackward0",
)  # fmt: skip
def bounded_log_odds(x, *, low=0.05, high=0.95):
    """log(y / (1 - y)) for y = x within [low, high]."""
    y = low if x < low else (high if x > high else x)
    return math.log(y / (1 - y))


@bounded_log_odds.vjp
def _(g, x, low, high):
    slope = g / (x * (1 - x))
    return 0 if (x < low) | (x > high) else slope


@export(method=True, inplace="function", out=True)
@composed
@Choice
def logit(input: Tensor, eps: float | None = None) -> Any:
    """log(x / (1 - x)), `input` first brought within [eps, 1 - eps] where `eps` is given.

    Differentiable; NaN outside of [0, 1] without `eps`.

    Example:
        >>> adjit.tensor([0.2, 0.5]).logit()
        tensor([-1.3863,  0.0000])
    """
    if eps is None:
        return log_odds, (input,), ()
    return bounded_log_odds, (input,), (eps, 1 - eps)


# ----- adjit.special -----

ALIASES = {
    "digamma": digamma, "erf": erf, "erfc": erfc, "erfinv": erfinv, "exp2": exp2, "expit": sigmoid,
    "expm1": expm1, "gammaln": lgamma, "log1p": log1p, "logit": logit, "polygamma": polygamma,
    "psi": digamma, "sinc": sinc, "xlogy": xlogy,
}  # fmt: skip
for _name, _op in ALIASES.items():
    export(namespace="special", name=_name)(_op)
