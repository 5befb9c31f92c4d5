"""Draws of gamma, Poisson, binomial and von Mises numbers, and what gamma and von Mises numbers do as their
parameters change.

How the derivative of a draw is found is told in `incomplete_gamma.py`.
"""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..dtypes import float32
from ..graph import record
from ..graph.export import export
from ..graph.launch import launch
from ..graph.operation import operation
from ..kernels.ops import sampling as kernels
from ..random import Generator
from ..schedule.planning.recipe import GRAIN
from ..tensor import Tensor
from .bessel import log_i0_less_itself, lost_of_cosine
from .comparison import where
from .drawing import drawing, start
from .incomplete_gamma import ACCURACY, broadcast, rule_for, slope_of

# Element operations that one number is worth: a block of the generator and a few logarithms.
COST = 64


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


def _standard_gamma(self: Tensor, generator: Generator | None = None) -> Tensor:
    """Gamma numbers of rate 1, none of them 0. Differentiable in their shapes, along the draw."""
    record.check_tensor("_standard_gamma", "self", 1, self)
    check_floating("gamma", self)
    least = dtypes.finfo(self.dtype).tiny
    return log_gamma_numbers(self, generator).exp().clamp(min=least)


def _sample_dirichlet(self: Tensor, generator: Generator | None = None) -> Tensor:
    """Numbers that add up to 1 along the last axis, as often drawn as Dirichlet's distribution says."""
    record.check_tensor("_sample_dirichlet", "self", 1, self)
    check_floating("dirichlet", self)
    return log_gamma_numbers(self, generator).softmax(-1)


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
