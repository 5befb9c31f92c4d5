"""Activations of neural networks.

NaN is no number of any piece: its gradient is NaN, or passes as where the function is the identity.
PyTorch has both, and 0 in places, by where an element lies in its vectors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..graph.elementwise import Choice, elementwise
from ..graph.export import export
from ..graph.registry import reference
from ..schedule.codegen.body import special
from ..tensor import Tensor
from .promotion import floats, only, refusing_bool

# ----- pieces of straight lines -----


@export(method=True, inplace="function")
@elementwise(
    ref=lambda x: np.maximum(x, 0), dtypes=refusing_bool("Boolean inputs not supported for relu")
)
def relu(x):
    """x for positive x, else 0. The gradient at 0 is 0.

    Example:
        >>> adjit.tensor([-1., 0., 2.]).relu()
        tensor([0., 0., 2.])
    """
    return 0 if x < 0 else x


@relu.vjp
def _(g, out):
    return 0 if out <= 0 else g


relu.straight = "ThresholdBackwardBackward0"


@elementwise(
    ref=lambda x, low, high: np.clip(x, low, high),
    dtypes=refusing_bool("Bool inputs not supported for hardtanh"),
)
def hardtanh(x, *, min_val=-1, max_val=1):
    """x within [min_val, max_val]; the gradient on a bound is 0."""
    above = min_val if x < min_val else x
    return max_val if above > max_val else above


@hardtanh.vjp
def _(g, x, min_val, max_val):
    return 0 if (x <= min_val) | (x >= max_val) else g


hardtanh.straight = "HardtanhBackwardBackward0"


@export(inplace="only")
@elementwise(
    ref=lambda x, threshold, value: np.where(x > threshold, x, value),
    dtypes=only("iuf", "threshold_cpu"),
)
def threshold(x, *, threshold=0.5, value=-1):
    """x where it is above the threshold, else `value`.

    Differentiable.

    Example:
        >>> adjit.threshold(adjit.tensor([0.5, 2.]), 1., 0.)
        tensor([0., 2.])
    """
    return value if x <= threshold else x


@threshold.vjp
def _(g, x, threshold):
    return 0 if x <= threshold else g


threshold.straight = "ThresholdBackwardBackward0"


@elementwise(ref=lambda x, slope: np.where(x > 0, x, slope * x), dtypes=floats("leaky_relu_cpu"))
def leaky_relu(x, *, negative_slope=0.01):
    """x for positive x, else negative_slope * x."""
    return x if x > 0 else x * negative_slope


@leaky_relu.vjp
def _(g, x, negative_slope):
    return g if x > 0 else g * negative_slope


leaky_relu.straight = "LeakyReluBackwardBackward0"


leaky_relu_of_noise = leaky_relu.variant("RreluWithNoiseBackward0")


@elementwise(
    name="prelu", ref=lambda x, w: np.where(x > 0, x, w * x), dtypes=floats("prelu_cpu"),
    backward_name="PreluKernelBackward0",
)  # fmt: skip
def learned_slope(x, weight):
    """x for positive x, else weight * x."""
    return x if x > 0 else weight * x


@learned_slope.vjp
def _(g, x, weight):
    return g if x > 0 else weight * g, 0 if x > 0 else x * g


learned_slope.straight = "PreluKernelBackwardBackward0"


random_slope = learned_slope.variant("RreluWithNoiseBackward0")


@export(method=True)
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x for positive x, else weight * x, with one weight or one per channel (dimension 1).

    Differentiable in both.

    Raises:
        RuntimeError: if the weights are not as many as the channels, or of another dtype.

    Example:
        >>> adjit.tensor([-1., 2.]).prelu(adjit.tensor([0.25]))
        tensor([-0.2500,  2.0000])
    """
    if weight.numel() != 1:
        if input.ndim == 0:
            raise RuntimeError("Not allow zero-dim input tensor.")
        channels = input.shape[1] if input.ndim > 1 else 1
        if weight.numel() != channels:
            raise RuntimeError(
                "Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                f"{weight.numel()} and channel size = {channels}."
            )
    if weight.ndim > 1:
        raise RuntimeError(
            f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}"
        )
    if weight.dtype is not input.dtype:
        raise RuntimeError(
            f"prelu: Type promoting not supported. Got {input.dtype.legacy} and {weight.dtype.legacy}"
        )
    if weight.ndim and input.ndim > 1:
        weight = weight.view(-1, *[1] * (input.ndim - 2))
    elif weight.ndim and not input.ndim:
        weight = weight.view(())
    return learned_slope(input, weight)


@export(inplace="only")
@Choice
def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False
) -> Any:
    """`leaky_relu` with a slope from [lower, upper], random in training, else their mean.

    Differentiable.

    Example:
        >>> adjit.rrelu(adjit.tensor([-1., 1.]), 0., 1.)
        tensor([-0.5000,  1.0000])
    """
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    if not training:
        return leaky_relu_of_noise, (input,), ((lower + upper) / 2,)
    from .random import rand

    slopes = rand(input.shape, dtype=input.dtype, device=input.device) * (upper - lower) + lower
    return random_slope, (input, slopes), ()


@elementwise(
    ref=lambda x: np.clip(x + 3, 0, 6) / 6, domain=(-5, 5), dtypes=floats("hardsigmoid_cpu")
)
def hardsigmoid(x):
    """relu6(x + 3) / 6."""
    y = x + 3
    above = 0 if y < 0 else y
    return (6 if above > 6 else above) / 6


@hardsigmoid.vjp
def _(g, x):
    return g / 6 if (x > -3) & (x < 3) else 0


@elementwise(
    ref=lambda x: x * np.clip(x + 3, 0, 6) / 6, domain=(-5, 5), dtypes=floats("hardswish_cpu")
)
def hardswish(x):
    """x relu6(x + 3) / 6."""
    y = x + 3
    above = 0 if y < 0 else y
    return x * (6 if above > 6 else above) / 6


@hardswish.vjp
def _(g, x):
    inner = g * (x / 3 + 0.5)
    return 0 if x <= -3 else (g if x >= 3 else inner)


@export(method=True)
@elementwise(
    ref=lambda x, lambd: np.where(np.abs(x) <= lambd, 0, x), dtypes=floats("hardshrink_cpu")
)
def hardshrink(x, *, lambd=0.5):
    """x where |x| is above `lambd`, else 0.

    Differentiable.

    Example:
        >>> adjit.tensor([-1., 0.3, 2.]).hardshrink()
        tensor([-1.,  0.,  2.])
    """
    return 0 if (x >= -lambd) & (x <= lambd) else x


@hardshrink.vjp
def _(g, x, lambd):
    return 0 if (x >= -lambd) & (x <= lambd) else g


hardshrink.straight = "HardshrinkBackwardBackward0"


@elementwise(
    ref=lambda x, lambd: np.sign(x) * np.maximum(np.abs(x) - lambd, 0),
    dtypes=floats("softshrink_check"),
)
def softshrink(x, *, lambd=0.5):
    """x moved towards 0 by lambd, 0 where it would pass it."""
    return x - lambd if x > lambd else (x + lambd if x < -lambd else x * 0)


@softshrink.vjp
def _(g, x, lambd):
    return 0 if (x >= -lambd) & (x <= lambd) else g


softshrink.straight = "SoftshrinkBackwardBackward0"


# ----- smooth ones -----


@elementwise(
    name="elu",
    ref=lambda x, a, s, i: s * np.where(x > 0, x, a * np.expm1(x * i)),
    dtypes=floats("elu_cpu"),
)
def exponential_unit(x, *, alpha=1, scale=1, input_scale=1):
    """scale * x for positive x, else scale * alpha * (e ** (x * input_scale) - 1)."""
    low = math.expm1(x * input_scale) * (alpha * scale)
    return low if x <= 0 else x * scale


@exponential_unit.vjp
def _(g, x, alpha, scale, input_scale):
    below = 0 if x >= 0 else x  # at 0 the second derivative is 0, the first that of what is below
    low = g * (alpha * scale * input_scale) * math.exp(below * input_scale)
    return g * scale if x > 0 else low


scaled_unit = exponential_unit.variant("CeluBackward0")

SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


@Choice
def elu(input: Tensor, alpha: float = 1.0) -> Any:
    """x for positive x, else alpha * (e ** x - 1). Differentiable.

    Example:
        >>> adjit.nn.functional.elu(adjit.tensor([-1., 1.]))
        tensor([-0.6321,  1.0000])
    """
    return exponential_unit, (input,), (alpha, 1, 1)


@export(inplace="only")
@Choice
def selu(input: Tensor) -> Any:
    """1.0507 (x for positive x, else 1.6733 (e ** x - 1)). Differentiable.

    Example:
        >>> adjit.selu(adjit.tensor([-1., 1.]))
        tensor([-1.1113,  1.0507])
    """
    return exponential_unit, (input,), (SELU_ALPHA, SELU_SCALE, 1)


@export(inplace="only")
@Choice
def celu(input: Tensor, alpha: float = 1.0) -> Any:
    """x for positive x, else alpha * (e ** (x / alpha) - 1). Differentiable.

    Raises:
        RuntimeError: if alpha is 0.

    Example:
        >>> adjit.celu(adjit.tensor([-1., 1.]), alpha=2.)
        tensor([-0.7869,  1.0000])
    """
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return scaled_unit, (input,), (alpha, 1, 1 / alpha)


@elementwise(
    name="gelu",
    ref=lambda x: x * 0.5 * (1 + reference.erf(x / np.sqrt(2))),
    dtypes=floats("GeluKernelImpl"),
)
def gaussian_unit(x):
    """x times the normal distribution function."""
    return x * 0.5 * (1 + math.erf(x * 0.7071067811865476))


@gaussian_unit.vjp
def _(g, x):
    distribution = 0.5 * (1 + math.erf(x * 0.7071067811865476))
    density = math.exp(x * x * -0.5) * 0.3989422804014327
    return g * (distribution + x * density)


@elementwise(
    name="gelu_tanh",
    ref=lambda x: x * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    dtypes=floats("GeluKernelImpl"),
    backward_name="GeluBackward0",
)
def gaussian_unit_by_tanh(x):
    """`gelu` by tanh."""
    inner = 0.7978845608028654 * (x + 0.044715 * (x * x * x))
    return 0.5 * x * (1 + math.tanh(inner))


@gaussian_unit_by_tanh.vjp
def _(g, x):
    inner = 0.7978845608028654 * (x + 0.044715 * (x * x * x))
    t = math.tanh(inner)
    slope = 0.7978845608028654 * (1 + 0.134145 * (x * x))
    return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope)


@Choice
def gelu(input: Tensor, *, approximate: str = "none") -> Any:
    """x times the normal distribution function, or `approximate="tanh"`. Differentiable.

    Raises:
        RuntimeError: for another approximation.

    Example:
        >>> adjit.nn.functional.gelu(adjit.tensor([-1., 1.]))
        tensor([-0.1587,  0.8413])
    """
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return gaussian_unit if approximate == "none" else gaussian_unit_by_tanh, (input,), ()


@elementwise(ref=lambda x: x * reference.expit(x), dtypes=floats("silu_cpu"))
def silu(x):
    """x sigmoid(x)."""
    return x * special.sigmoid(x)


@silu.vjp
def _(g, x):
    s = special.sigmoid(x)
    return g * (s * (1 + x * (1 - s)))


@elementwise(ref=lambda x: x * np.tanh(np.log1p(np.exp(x))), dtypes=floats("mish_cpu"))
def mish(x):
    """x tanh(softplus(x)), as x n / (n + 2) with n = e ** x (e ** x + 2)."""
    e = math.exp(x if x < 20 else 20)
    n = e * (e + 2)
    return x * (n / (n + 2))


@mish.vjp
def _(g, x):
    e = math.exp(x if x < 20 else 20)
    n = e * (e + 2)
    t = n / (n + 2)
    return g * (t + x * special.sigmoid(x) * (1 - t * t))


@elementwise(
    ref=lambda x, beta, threshold: np.where(
        x * beta > threshold, x, np.log1p(np.exp(x * beta)) / beta
    ),
    dtypes=floats("softplus_cpu"),
)
def softplus(x, *, beta=1, threshold=20):
    """log(1 + e ** (beta x)) / beta, and x itself where beta x is above the threshold."""
    scaled = x * beta
    low = math.log1p(math.exp(scaled)) / beta
    return x if scaled > threshold else low


@softplus.vjp
def _(g, x, beta, threshold):
    scaled = x * beta
    low = g * special.sigmoid(scaled)
    return g if scaled > threshold else low


@export(namespace="nn.functional")
@elementwise(
    ref=lambda x: -np.logaddexp(0, -x), dtypes=floats("log_sigmoid_cpu"),
    backward_name="LogSigmoidBackward0",
)  # fmt: skip
def logsigmoid(x):
    """The logarithm of the sigmoid, without overflow.

    Differentiable.

    Example:
        >>> F.logsigmoid(adjit.tensor([-100., 0., 2.]))
        tensor([-100.0000,   -0.6931,   -0.1269])
    """
    low = x if x < 0 else 0
    return low - math.log1p(math.exp(-abs(x)))


@logsigmoid.vjp
def _(g, x):
    return g * special.sigmoid(-x)
