"""Convolution of signals whose times come first, as fairseq has them."""

from __future__ import annotations

from ..graph.composed import composed
from ..graph.export import export
from ..tensor import Tensor
from .conv import conv1d
from .elementwise import copy


@export
@composed
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Convolution of signals (times, batch, channels).

    Args:
        input: (times, batch, in_channels).
        weight: (kernel, in_channels, out_channels).
        bias: (out_channels,), of any dtype.
        pad: zeros before and after each signal; a negative number takes so many times away.

    Returns:
        A tensor (out_times, batch, out_channels). Differentiable in all arguments.

    Raises:
        RuntimeError: if sizes or dtypes do not fit.

    Example:
        >>> adjit.conv_tbc(adjit.ones(4, 1, 2), adjit.ones(3, 2, 1), adjit.zeros(1)).shape
        adjit.Size([2, 1, 1])
    """
    if input.ndim != 3:
        raise RuntimeError("Input must have 3 dims: time, batch, in_channel")
    if weight.ndim != 3:
        raise RuntimeError(
            "Weight tensor must have 3 dims: kernel_width, in_channels, out_channels."
        )
    if bias.ndim != 1:
        raise RuntimeError("Bias must be 1-D")
    if input.shape[2] != weight.shape[1]:
        raise RuntimeError("Input dim 2 (input channels) is not == dim 1 in the weight tensor")
    if weight.shape[2] != bias.shape[0]:
        raise RuntimeError("Bias size must equal dim 2 in the weight tensor (output channels).")
    if weight.dtype is not input.dtype:
        raise RuntimeError(
            f"self and mat2 must have the same dtype, but got {input.dtype.legacy} "
            f"and {weight.dtype.legacy}"
        )
    times, batch, _ = input.shape
    left = times + 2 * pad - weight.shape[0] + 1
    if left < 0:
        raise RuntimeError(
            f"Trying to create tensor with negative dimension {left}: [{left}, {batch}, {bias.shape[0]}]"
        )
    if pad < 0:
        input, pad = input.narrow(0, -pad, times + 2 * pad), 0
    given = input.permute(1, 2, 0), weight.permute(2, 1, 0), bias.to(input.dtype)
    out = conv1d(*given, padding=pad)
    return turned_in_time(out.permute(2, 0, 1))


# The last step, which is a copy, by the name that the whole has in PyTorch's graph.
turned_in_time = copy.variant("ConvTbcBackward0")
turned_in_time.laid_by = ()
