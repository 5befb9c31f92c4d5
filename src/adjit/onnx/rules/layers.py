"""Rules for convolutions, pooling and normalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..builder import GraphBuilder, OnnxValue
from ..errors import UnsupportedOperatorError
from ..sizes import DynamicSize
from .registry import RULES, Rule, rule

Sizes = int | Sequence[int]


def several(value: Any, count: int) -> list[int]:
    """One number for each dimension."""
    found = list(value) if isinstance(value, (tuple, list)) else [value]
    return found * count if len(found) == 1 else found


def with_batch(
    g: GraphBuilder, input: OnnxValue, count: int, write: Callable[[OnnxValue], OnnxValue]
) -> OnnxValue:
    """What is written for a batch; a single example gets a dimension for it and loses it again."""
    if input.ndim == count + 2:
        return write(input)
    return g.squeeze(write(g.unsqueeze(input, 0)), 0)


def pads_for(padding: Any, kernel: Sequence[Any], dilation: Sequence[int]) -> list[int]:
    """How many elements come before and after, all befores first."""
    count = len(kernel)
    if padding == "valid":
        return [0] * 2 * count
    if padding == "same":
        missing = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return [m // 2 for m in missing] + [m - m // 2 for m in missing]
    return several(padding, count) * 2


def convolution(count: int) -> Rule:
    """The rule of a convolution over some dimensions."""

    def write(
        g: GraphBuilder, input: OnnxValue, weight: OnnxValue, bias: OnnxValue | None = None, stride: Sizes = 1,
        padding: Any = 0, dilation: Sizes = 1, groups: int = 1,
    ) -> OnnxValue:  # fmt: skip
        kernel, steps = weight.shape[2:], several(dilation, count)
        settings: dict[str, Any] = {
            "kernel_shape": list(kernel), "strides": several(stride, count), "dilations": steps,
            "pads": pads_for(padding, kernel, steps), "group": groups,
        }  # fmt: skip
        return with_batch(g, input, count, lambda x: g.node("Conv", x, weight, bias, **settings))

    return write


def transposed_convolution(count: int) -> Rule:
    """The rule of a transposed convolution over some dimensions."""

    def write(
        g: GraphBuilder, input: OnnxValue, weight: OnnxValue, bias: OnnxValue | None = None, stride: Sizes = 1,
        padding: Sizes = 0, output_padding: Sizes = 0, groups: int = 1, dilation: Sizes = 1,
    ) -> OnnxValue:  # fmt: skip
        settings: dict[str, Any] = {
            "kernel_shape": list(weight.shape[2:]), "strides": several(stride, count),
            "dilations": several(dilation, count), "pads": several(padding, count) * 2, "group": groups,
            "output_padding": several(output_padding, count),
        }  # fmt: skip
        return with_batch(
            g, input, count, lambda x: g.node("ConvTranspose", x, weight, bias, **settings)
        )

    return write


def max_pooling(count: int) -> Rule:
    """The rule of the largest elements of windows."""

    def write(
        g: GraphBuilder, input: OnnxValue, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0,
        dilation: Sizes = 1, ceil_mode: bool = False, return_indices: bool = False,
    ) -> OnnxValue:  # fmt: skip
        if return_indices:
            raise UnsupportedOperatorError("'max_pool' with return_indices has no rule")
        settings: dict[str, Any] = {
            "kernel_shape": several(kernel_size, count), "strides": several(stride or kernel_size, count),
            "pads": several(padding, count) * 2, "dilations": several(dilation, count),
            "ceil_mode": int(ceil_mode),
        }  # fmt: skip
        return with_batch(g, input, count, lambda x: g.node("MaxPool", x, **settings))

    return write


def mean_pooling(count: int) -> Rule:
    """The rule of the means of windows."""

    def write(
        g: GraphBuilder, input: OnnxValue, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0,
        ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> OnnxValue:  # fmt: skip
        if ceil_mode or divisor_override is not None:
            raise UnsupportedOperatorError(
                "'avg_pool' with ceil_mode or divisor_override has no rule"
            )
        settings: dict[str, Any] = {
            "kernel_shape": several(kernel_size, count), "strides": several(stride or kernel_size, count),
            "pads": several(padding, count) * 2, "count_include_pad": int(count_include_pad),
        }  # fmt: skip
        return with_batch(g, input, count, lambda x: g.node("AveragePool", x, **settings))

    return write


def adaptive_pooling(count: int, reduction: str, pool: str) -> Rule:
    """The rule of pooling to given sizes: to one, or in windows of one size."""

    def write(
        g: GraphBuilder, input: OnnxValue, output_size: Any, return_indices: bool = False
    ) -> OnnxValue:
        if return_indices:
            raise UnsupportedOperatorError("'adaptive_max_pool' with return_indices has no rule")
        sizes = [
            old if new is None else new
            for old, new in zip(input.shape[-count:], several(output_size, count), strict=True)
        ]
        if sizes == [1] * count:
            axes = g.constant(list(range(-count, 0)), np.int64)
            return g.node(reduction, input, axes, keepdims=1)
        pairs = list(zip(input.shape[-count:], sizes, strict=True))
        if any(isinstance(old, DynamicSize) or old % new for old, new in pairs):
            raise UnsupportedOperatorError(
                f"adaptive pooling from {input.shape[-count:]} to {tuple(sizes)} has windows of several sizes, "
                "and no rule"
            )
        windows = [old // new for old, new in pairs]
        return with_batch(
            g, input, count, lambda x: g.node(pool, x, kernel_shape=windows, strides=windows)
        )

    return write


for _count in (1, 2, 3):
    RULES[f"conv{_count}d"] = convolution(_count)
    RULES[f"conv_transpose{_count}d"] = transposed_convolution(_count)
    RULES[f"max_pool{_count}d"] = max_pooling(_count)
    RULES[f"avg_pool{_count}d"] = mean_pooling(_count)
    RULES[f"adaptive_avg_pool{_count}d"] = adaptive_pooling(_count, "ReduceMean", "AveragePool")
    RULES[f"adaptive_max_pool{_count}d"] = adaptive_pooling(_count, "ReduceMax", "MaxPool")


# ----- normalisation -----


def channels_of(
    g: GraphBuilder, input: OnnxValue, given: OnnxValue | None, number: float
) -> OnnxValue:
    """A weight of every channel, or a number for each."""
    return (
        given if given is not None else g.constant(np.full(input.shape[1:2], number), input.dtype)
    )


@rule("batch_norm")
def batch_norm(
    g: GraphBuilder, input: OnnxValue, running_mean: OnnxValue | None, running_var: OnnxValue | None,
    weight: OnnxValue | None = None, bias: OnnxValue | None = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5, cudnn_enabled: bool = True,
) -> OnnxValue:  # fmt: skip
    if training or running_mean is None or running_var is None:
        raise UnsupportedOperatorError(
            "'batch_norm' in training, or without running statistics, has no rule; export in evaluation"
        )
    scale, shift = channels_of(g, input, weight, 1), channels_of(g, input, bias, 0)
    return g.node(
        "BatchNormalization", input, scale, shift, running_mean, running_var, epsilon=float(eps)
    )


@rule("layer_norm")
def layer_norm(
    g: GraphBuilder, input: OnnxValue, normalized_shape: Sequence[int], weight: OnnxValue | None = None,
    bias: OnnxValue | None = None, eps: float = 1e-5, cudnn_enable: bool = True,
) -> OnnxValue:  # fmt: skip
    shape = several(normalized_shape, 1)
    scale = weight if weight is not None else g.constant(np.ones(shape), input.dtype)
    return g.node("LayerNormalization", input, scale, bias, axis=-len(shape), epsilon=float(eps))


@rule("rms_norm")
def rms_norm(
    g: GraphBuilder, input: OnnxValue, normalized_shape: Sequence[int], weight: OnnxValue | None = None,
    eps: float | None = None,
) -> OnnxValue:  # fmt: skip
    axes = list(range(-len(several(normalized_shape, 1)), 0))
    small = float(np.finfo(input.dtype).eps) if eps is None else eps
    squares = g.node(
        "ReduceMean", g.node("Mul", input, input), g.constant(axes, np.int64), keepdims=1
    )
    found: OnnxValue = g.node("Div", input, g.node("Sqrt", g.binary("Add", squares, small)))
    return found if weight is None else g.node("Mul", found, weight)


def scaled(
    g: GraphBuilder,
    input: OnnxValue,
    found: OnnxValue,
    weight: OnnxValue | None,
    bias: OnnxValue | None,
) -> OnnxValue:
    """Channels times their weights, plus their biases."""
    for op, given in (("Mul", weight), ("Add", bias)):
        if given is not None:
            found = g.node(op, found, g.unsqueeze(given, *range(1, input.ndim - 1)))
    return found


@rule("group_norm")
def group_norm(
    g: GraphBuilder, input: OnnxValue, num_groups: int, weight: OnnxValue | None = None,
    bias: OnnxValue | None = None, eps: float = 1e-5, cudnn_enabled: bool = True,
) -> OnnxValue:  # fmt: skip
    lines = g.node("Reshape", input, g.constant([0, num_groups, -1], np.int64))
    ones, zeros = (g.constant(np.full(num_groups, n), input.dtype) for n in (1, 0))
    even = g.node("InstanceNormalization", lines, ones, zeros, epsilon=float(eps))
    return scaled(g, input, g.node("Reshape", even, g.shape_of(input)), weight, bias)


@rule("instance_norm")
def instance_norm(
    g: GraphBuilder, input: OnnxValue, running_mean: Any = None, running_var: Any = None,
    weight: OnnxValue | None = None, bias: OnnxValue | None = None, use_input_stats: bool = True,
    momentum: float = 0.1, eps: float = 1e-5, cudnn_enabled: bool = True,
) -> OnnxValue:  # fmt: skip
    if not use_input_stats:
        return batch_norm(g, input, running_mean, running_var, weight, bias, False, momentum, eps)
    scale, shift = channels_of(g, input, weight, 1), channels_of(g, input, bias, 0)
    return g.node("InstanceNormalization", input, scale, shift, epsilon=float(eps))
