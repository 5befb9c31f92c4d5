"""The incomplete gamma functions, and how gamma numbers move as their shape does: integrals over tails.

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

from ..dtypes import dtype, result_type
from ..graph.batching import Batch
from ..graph.composed import composed
from ..graph.export import export
from ..graph.launch import launch
from ..graph.operation import Operation, operation
from ..graph.state import state as modes
from ..kernels.ops import incomplete_gamma as kernels
from ..schedule.planning.recipe import GRAIN
from ..schedule.settle import float_word
from ..shapes import broadcast_shapes
from ..tensor import Tensor
from .comparison import where
from .layouts import laid_alike, put_back

# Of each dtype: the nodes of an integral, and the exponent at which its tail is cut off.
ACCURACY = {"float32": (20, 18.0), "float64": (32, 40.0)}
# The same of the kernel, which is off by 4e-6 and 1e-10 at most.
SLOPES = {"float32": (14, 16.0), "float64": (32, 40.0)}


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


def shares(alpha: Tensor, x: Tensor, upper: bool) -> Tensor:
    """The lower or the upper function of tensors of one shape, as one kernel."""
    kind = x.dtype
    nodes, depth = ACCURACY[kind.name]
    rule = [float_word(number) for pair in rule_of(nodes) for number in pair]
    operands, axes = laid_alike(alpha, x)
    found: Tensor = launch(
        kernels.gamma_shares, operands, [(operands[0].shape, kind)],
        bind={"T": kind}, words=(upper, float_word(depth), nodes, *rule), n=x.numel(),
        grain=max(1, GRAIN // (8 * len(rule))),
    )  # fmt: skip
    return put_back(found, axes)


@operation("IgammaBackward0")
def lower_gamma(alpha: Tensor, x: Tensor) -> Tensor:
    """`igamma` of tensors of one shape."""
    return shares(alpha, x, upper=False)


@operation("IgammacBackward0")
def upper_gamma(alpha: Tensor, x: Tensor) -> Tensor:
    """`igammac` of tensors of one shape."""
    return shares(alpha, x, upper=True)


def gradients_of_lower(g: Tensor, alpha: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the lower function."""
    density = g * log_gamma_density(alpha, x).exp()
    return -density * slope_of(alpha, x.log()), density / x


@lower_gamma.vjp
def _(g: Tensor, alpha: Tensor, x: Tensor) -> Any:
    return gradients_of_lower(g, alpha, x)


@upper_gamma.vjp
def _(g: Tensor, alpha: Tensor, x: Tensor) -> Any:
    return gradients_of_lower(-g, alpha, x)


def _examples(op: Operation) -> None:
    @op.batched
    def _(batch: Batch, alpha: Tensor, x: Tensor) -> Any:
        return batch.wrapped(op(batch.full(alpha), batch.full(x)))


_examples(lower_gamma)
_examples(upper_gamma)


def operands(name: str, input: Tensor, other: Tensor) -> list[Tensor]:
    """Both in their common shape and dtype, which has to be a floating one."""
    kind = result_type(input, other)
    if not kind.is_floating_point:
        raise NotImplementedError(f"\"{name}_cpu\" not implemented for '{kind.legacy}'")
    return broadcast(input.to(kind), other.to(kind))


@export(method=True, inplace=True, out=True)
@composed
def igamma(input: Tensor, other: Tensor) -> Tensor:
    """The regularised lower incomplete gamma function P(input, other).

    It tells how likely a gamma number of shape `input` is below `other`: 0 at 0, 1 at infinity, NaN for
    negative operands.

    Differentiable in both, in `input` too, which PyTorch has no derivative for.

    Raises:
        NotImplementedError: if both are of whole numbers.

    Example:
        >>> adjit.igamma(adjit.tensor([1., 4.]), adjit.tensor([2., 2.]))
        tensor([0.8647, 0.1429])
    """
    return lower_gamma(*operands("igamma", input, other))


@export(method=True, inplace=True, out=True)
@composed
def igammac(input: Tensor, other: Tensor) -> Tensor:
    """The regularised upper incomplete gamma function Q(input, other) = 1 - P(input, other), to its own digits.

    Differentiable in both, in `input` too, which PyTorch has no derivative for.

    Raises:
        NotImplementedError: if both are of whole numbers.

    Example:
        >>> adjit.igammac(adjit.tensor([1., 4.]), adjit.tensor([2., 80.]))
        tensor([1.3534e-01, 1.5994e-30])
    """
    return upper_gamma(*operands("igammac", input, other))


export(namespace="special", name="gammainc", out=True)(igamma)
export(namespace="special", name="gammaincc", out=True)(igammac)
