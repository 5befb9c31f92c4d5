"""Draws of gamma, Poisson, binomial and von Mises numbers, and what gamma and von Mises numbers do as their
parameters change.

The derivative of a draw x of distribution function F(x, a) at a fixed F is -(dF/da) / (dF/dx) (implicit
reparametrisation: Figurnov, Mohamed, Mnih, NeurIPS 2018). With a density e(x, a) the quotient is an integral
of d(log e)/da over one tail of e, seen from x: smooth, of one sign where it counts, and without a special
function. Gauss's and Legendre's nodes take it to the digits of the dtype, as operations of tensors, which have
derivatives themselves.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ..dtypes import dtype, float32
from ..graph.batching import Batch
from ..graph.export import export
from ..graph.launch import launch
from ..graph.operation import operation
from ..graph.state import state as modes
from ..kernels.ops import sampling as kernels
from ..random import Generator
from ..schedule.planning.recipe import GRAIN
from ..schedule.settle import float_word
from ..shapes import broadcast_shapes
from ..tensor import Tensor
from .bessel import log_i0_less_itself, lost_of_cosine
from .comparison import where
from .drawing import drawing, start

COST = (
    64  # element operations that one number is worth: a block of the generator and a few logarithms
)

# Of each dtype: the nodes of an integral, and the exponent at which its tail is cut off.
ACCURACY = {"float32": (20, 18.0), "float64": (32, 40.0)}
SLOPES = {
    "float32": (14, 16.0),
    "float64": (32, 40.0),
}  # of the kernel: off by 4e-6 and 1e-10 at most


def drawn_for(
    kernel: Any, inputs: tuple[Tensor, ...], generator: Generator | None, messages: Any = None
) -> Tensor:
    """A number for each element of the inputs, which have one shape and dtype."""
    dense = [x.contiguous() for x in inputs]
    size, kind = dense[0].numel(), dense[0].dtype
    draw = drawing(size)
    return launch(
        kernel, dense, [(dense[0].shape, kind)], bind={"T": kind}, scalars=start(draw, generator),
        draw=draw, n=size, grain=max(1, GRAIN // COST), fallible=bool(messages), messages=messages,
    )  # fmt: skip


def check_floating(name: str, x: Tensor) -> None:
    """Raise for dtypes without a kernel."""
    if not x.dtype.is_floating_point:
        raise NotImplementedError(f"\"{name}_cpu\" not implemented for '{x.dtype.legacy}'")


# --------------------------------------------------------------------------- integrals of tails


@functools.cache
def rule_of(count: int) -> list[tuple[float, float]]:
    """Gauss's and Legendre's nodes for [0, 1], each with its weight.

    Integrals go over them one by one: a loop of elementwise operations, which becomes one kernel.
    """
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return list(zip(((nodes + 1) / 2).tolist(), (weights / 2).tolist(), strict=True))


def rule_for(kind: dtype) -> list[tuple[float, float]]:
    """The nodes of a dtype's integrals."""
    return rule_of(ACCURACY[kind.name][0])


def gamma_tail(alpha: Tensor, z: Tensor, gap: Tensor) -> tuple[Tensor, Tensor]:
    """Integrals over the tail of the gamma density on that side of z which is away from `alpha`.

    With t = z exp(+-s) these are of e(t) dt over e(z) z, and of |gap + log(z / t)| e(t) dt over e(z) z. All
    inputs have one shape.
    """
    depth = ACCURACY[alpha.dtype.name][1]
    side = where(z < alpha, -1.0, 1.0).to(alpha.dtype)
    slope = (alpha - z).abs()
    # The end of the tail: slope * s + z * (exp(side * s) - 1 - side * s) = depth, by Newton's steps.
    end, m, c = (x.detach() for x in (side, slope, z))
    length = 2 * depth / (m + (m * m + 2 * depth * c).sqrt())
    for _ in range(3):
        power = (end * length).expm1()
        height = m * length + c * (power - end * length)
        length = length - (height - depth) / (m + c * end * power)
    total: Any = 0.0
    first: Any = 0.0
    for node, weight in rule_for(alpha.dtype):
        s = length * node
        t = side * s
        density = (z * (t - t.expm1()) - slope * s).exp() * weight
        total, first = total + density, first + density * s
    return total * length, (first - total * side * gap) * length


def log_gamma_slope(alpha: Tensor, w: Tensor) -> Tensor:
    """How the logarithm w of a gamma number moves as its shape `alpha` does. Differentiable.

    Below both 1 and z the recurrence of the incomplete gamma function leads to `alpha + 1`.
    """
    z = w.exp()
    is_low = (alpha < 1) & (z < alpha + 1)
    shape = where(is_low, alpha + 1, alpha)
    gap = shape.digamma() - w
    _, moment = gamma_tail(shape, z, gap)
    return where(is_low, (moment * z + gap) / alpha, moment)


@operation("StandardGammaGradBackward0")
def gamma_slopes(alpha: Tensor, w: Tensor) -> Tensor:
    """`log_gamma_slope` as one kernel."""
    kind = w.dtype
    nodes, depth = SLOPES[kind.name]
    rule = [float_word(x) for pair in rule_of(nodes) for x in pair]
    found: Tensor = launch(
        kernels.gamma_slopes, (alpha.to(kind).contiguous(), w.contiguous()), [(w.shape, kind)],
        bind={"T": kind}, words=(float_word(depth), nodes, *rule), n=w.numel(),
        grain=max(1, GRAIN // (8 * len(rule))),
    )  # fmt: skip
    return found


@gamma_slopes.batched
def _(batch: Batch, alpha: Tensor, w: Tensor) -> Any:
    return batch.wrapped(gamma_slopes(batch.full(alpha), batch.full(w)))


def slope_of(alpha: Tensor, w: Tensor) -> Tensor:
    """`log_gamma_slope`, made of other operations where it may be differentiated."""
    return log_gamma_slope(alpha, w) if modes.grad else gamma_slopes(alpha, w)


def lower_gamma(alpha: Tensor, x: Tensor) -> Tensor:
    """The regularised lower incomplete gamma function: the distribution function of gamma numbers.

    Differentiable in both.
    """
    check_floating("igamma", x)
    return lower_gamma_of(*broadcast(alpha, x))


def broadcast(*tensors: Tensor) -> list[Tensor]:
    """Tensors in their common shape."""
    shape = broadcast_shapes(*[x.shape for x in tensors])
    return [x.expand(shape) for x in tensors]


def log_gamma_density(alpha: Tensor, x: Tensor) -> Tensor:
    """log(x**alpha exp(-x) / gamma(alpha)): the density at log(x); for large `alpha` without cancellation."""
    d = (x - alpha) / alpha
    series = (1 / 12 - 1 / (360 * alpha * alpha)) / alpha
    large = alpha * (d.log1p() - d) + 0.5 * (alpha / (2 * math.pi)).log() - series
    return where(alpha < 100, alpha * x.log() - x - alpha.lgamma(), large)


@operation("IgammaBackward0")
def lower_gamma_of(alpha: Tensor, x: Tensor) -> Tensor:
    """`lower_gamma` of tensors of one shape."""
    is_low = (alpha < 1) & (x < alpha + 1)
    shape = where(is_low, alpha + 1, alpha)
    tail, _ = gamma_tail(shape, x, x)
    part = log_gamma_density(shape, x).exp() * tail
    lower = where(x < shape, part, 1 - part)
    lower = where(is_low, lower + log_gamma_density(alpha, x).exp() / alpha, lower)
    return where(x == math.inf, 1.0, where(x == 0, 0.0, lower)).to(x.dtype)


@lower_gamma_of.vjp
def _(g: Tensor, alpha: Tensor, x: Tensor) -> Any:
    density = g * log_gamma_density(alpha, x).exp()
    g_alpha = -density * slope_of(alpha, x.log())
    g_x = density / x
    return g_alpha, g_x


lower_gamma_of.batched_as_body()


# --------------------------------------------------------------------------- gamma


@operation("StandardGammaBackward0")
def log_gamma_numbers(alpha: Tensor, generator: Generator | None = None) -> Tensor:
    """Logarithms of gamma numbers of rate 1. Differentiable in their shapes `alpha`, along the draw."""
    check_floating("_standard_gamma", alpha)
    return drawn_for(kernels.log_gamma, (alpha,), generator)


@log_gamma_numbers.vjp
def _(g: Tensor, alpha: Tensor, out: Tensor) -> Any:
    return g * slope_of(alpha, out)


log_gamma_numbers.draws_for("values")


# --------------------------------------------------------------------------- counts

RATE = "invalid Poisson rate, expected rate to be non-negative"


@export
@operation("PoissonBackward0")
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Poisson numbers: how often something happens that happens `input` times on average.

    Args:
        input: the means, of floating dtype, at least 0.
        generator: where to draw from; the default generator if None.

    Returns:
        A tensor like `input`. Its gradient is zero.

    Raises:
        RuntimeError: if a mean is negative or NaN.
        NotImplementedError: for other dtypes.

    Example:
        >>> adjit.poisson(adjit.tensor([0., 0.]))
        tensor([0., 0.])
    """
    check_floating("poisson", input)
    messages = {kernels.BAD_RATE: (RuntimeError, RATE)}
    return drawn_for(kernels.poisson, (input,), generator, messages)


@poisson.vjp
def _(g: Tensor) -> Any:
    return g.new_zeros(g.shape)


poisson.draws_for("values")


@export
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Binomial numbers: how many of `count` trials succeed, each with the chance `prob`.

    Args:
        count: the numbers of trials, of floating dtype.
        prob: the chances, of the same dtype; the two broadcast.
        generator: where to draw from; the default generator if None.

    Returns:
        A tensor of that dtype. It has no gradient: going back through it is an error.

    Raises:
        ValueError: if `count` is not of a floating dtype.
        RuntimeError: if the dtypes differ.

    Example:
        >>> adjit.binomial(adjit.tensor([3., 3.]), adjit.tensor([0., 1.]))
        tensor([0., 3.])
    """
    if not count.dtype.is_floating_point:
        raise ValueError(
            f"binomial only supports floating-point dtypes for count, got: {count.dtype.legacy}"
        )
    if prob.dtype is not count.dtype:
        raise RuntimeError(f"Found dtype {prob.dtype.legacy} but expected {count.dtype.legacy}")
    return binomial_numbers(*broadcast(count, prob), generator)


@operation("BinomialBackward0")
def binomial_numbers(count: Tensor, prob: Tensor, generator: Generator | None) -> Tensor:
    """`binomial` of tensors of one shape."""
    return drawn_for(kernels.binomial, (count, prob), generator)


@binomial_numbers.vjp
def _(needs: Any) -> Any:
    raise RuntimeError("derivative for aten::binomial is not implemented")


binomial_numbers.draws_for("values")


# --------------------------------------------------------------------------- angles


def von_mises_scale(kappa: Tensor) -> Tensor:
    """log(I0(kappa)) - kappa. Differentiable."""
    return log_i0_less_itself(kappa) if kappa.dtype is float32 else _integrals(kappa)[0]


def von_mises_variance(kappa: Tensor) -> Tensor:
    """The mean of 1 - cos(angle), which is 1 - I1(kappa) / I0(kappa). Differentiable."""
    return lost_of_cosine(kappa) if kappa.dtype is float32 else _integrals(kappa)[1]


def _integrals(kappa: Tensor) -> tuple[Tensor, Tensor]:
    """Both, by integrals over the angle."""
    # 1 - cos(x) is 2 sin(x / 2)**2, which keeps its digits where angles are small.
    half = (ACCURACY[kappa.dtype.name][1] / 2 / kappa.detach()).clamp(max=1).sqrt().asin()
    end = 2 * half
    total: Any = 0.0
    first: Any = 0.0
    for node, weight in rule_for(kappa.dtype):
        fall = 2 * (half * node).sin().square()
        density = (-kappa * fall).exp() * weight
        total, first = total + density, first + density * fall
    return (total * (end / math.pi)).log(), first / total


def angle_slope(kappa: Tensor, angle: Tensor) -> Tensor:
    """How a von Mises angle around 0 moves as its concentration `kappa` does. Differentiable.

    The integral is taken from 0 where the density falls by less than a factor e up to the angle, else over
    the tail beyond it.
    """
    t = angle.abs()
    height = t.cos()
    is_near = kappa * (1 - height) < 1
    end = (height.detach() - ACCURACY[kappa.dtype.name][1] / kappa.detach()).clamp(min=-1).acos()
    begin, length = where(is_near, 0.0, t), where(is_near, t, end - t)
    mean_fall = von_mises_variance(kappa)
    total: Any = 0.0
    for node, weight in rule_for(kappa.dtype):
        cosine = (begin + length * node).cos()
        density = (kappa * (cosine - height)).exp() * weight
        total = total + density * (cosine - 1 + mean_fall)
    return where(is_near, -total, total) * length * angle.sign()


@operation("VonMisesBackward0")
def von_mises_numbers(kappa: Tensor, generator: Generator | None = None) -> Tensor:
    """Von Mises angles around 0, in [-pi, pi]. Differentiable in the concentrations, along the draw."""
    check_floating("von_mises", kappa)
    return drawn_for(kernels.von_mises, (kappa,), generator)


@von_mises_numbers.vjp
def _(g: Tensor, kappa: Tensor, out: Tensor) -> Any:
    return g * angle_slope(kappa, out)


von_mises_numbers.draws_for("values")
