"""Convolution layers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

from ..dtypes import dtype as DType
from ..ops import creation
from ..tensor import Tensor
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter

PADDINGS = {"same", "valid"}
PADDING_MODES = {"zeros", "reflect", "replicate", "circular"}


def for_axes(value: Any, axes: int) -> tuple[int, ...]:
    """A tuple as it is, and one number for all axes."""
    return tuple(value) if isinstance(value, Iterable) else (value,) * axes


class _ConvNd(Module):
    """What all convolution layers share: numbers, weight, bias, and how they are shown.

    It is called as PyTorch's is, by others' layers too: what goes along axes are tuples.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: tuple[int, ...] | str,
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        if isinstance(padding, str):
            if padding not in PADDINGS:
                raise ValueError(f"Invalid padding string {padding!r}, should be one of {PADDINGS}")
            if padding == "same" and any(s != 1 for s in self.stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in PADDING_MODES:
            raise ValueError(
                f"padding_mode must be one of {PADDING_MODES}, but got padding_mode='{padding_mode}'"
            )
        channels = (
            (in_channels, out_channels // groups)
            if transposed
            else (out_channels, in_channels // groups)
        )
        self.weight = Parameter(creation.empty(*channels, *kernel_size, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(creation.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew from U(-k, k), k = 1 / sqrt(numbers that a result sums up)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in = math.prod(self.weight.shape[1:])
            bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        shown = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}",
            f"stride={self.stride}",
        ]
        axes = len(self.kernel_size)
        if self.padding != (0,) * axes:
            shown.append(f"padding={self.padding}")
        if self.dilation != (1,) * axes:
            shown.append(f"dilation={self.dilation}")
        if self.output_padding != (0,) * axes:
            shown.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            shown.append(f"groups={self.groups}")
        if self.bias is None:
            shown.append("bias=False")
        if self.padding_mode != "zeros":
            shown.append(f"padding_mode={self.padding_mode}")
        return ", ".join(shown)


class _OverAxes(_ConvNd):
    """What the layers here share.

    A layer's `_axes` says over how many it goes, its `_function` of `nn.functional` computes it.
    """

    _axes: ClassVar[int]
    _function: ClassVar[str]


class _Forward(_OverAxes):
    """A convolution of some number of axes."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        each = partial(for_axes, axes=self._axes)
        super().__init__(
            in_channels, out_channels, each(kernel_size), each(stride),
            padding if isinstance(padding, str) else each(padding), each(dilation), False, each(0),
            groups, bias, padding_mode, device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer with another weight and bias, which subclasses make of their own."""
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._widths(), mode=self.padding_mode)
            padding = (0,) * self._axes
        return getattr(F, self._function)(
            input, weight, bias, self.stride, padding, self.dilation, self.groups
        )

    def _widths(self) -> list[int]:
        """What is added before and after each axis, the last axis first, as `F.pad` takes it."""
        widths: list[int] = []
        for axis in reversed(range(self._axes)):
            if not isinstance(self.padding, str):
                before = after = self.padding[axis]
            elif self.padding == "same":
                both = self.dilation[axis] * (self.kernel_size[axis] - 1)
                before, after = both // 2, both - both // 2
            else:
                before = after = 0
            widths += before, after
        return widths


class Conv1d(_Forward):
    """Convolution of signals (batch, channels, length) or (channels, length): see `Conv2d`.

    (N, C, L), or without the N, to the same with out_channels and, for sizes n,
    (n + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1, rounded down.

    Example:
        >>> nn.Conv1d(16, 33, 3, stride=2)(adjit.randn(20, 16, 50)).shape
        adjit.Size([20, 33, 24])
    """

    _axes = 1
    _function = "conv1d"


class Conv2d(_Forward):
    """Convolution of images (batch, channels, height, width) or (channels, height, width).

    Weight (out_channels, in_channels / groups, *kernel_size) and bias (out_channels,) start from
    U(-k, k), k = 1 / sqrt(in_channels / groups * kernel elements).

    (N, C, H, W), or without the N, to the same with out_channels and, for sizes n,
    (n + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1, rounded down.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the result.
        kernel_size: of the weight; one number, or one for each axis, as in the next three.
        stride: how far the weight moves.
        padding: what is added at both ends of each axis; "valid" for nothing, "same" for as much as
            keeps the sizes.
        dilation: how far elements of the weight are apart.
        groups: so many parts of the channels are convolved on their own.
        bias: whether a number is added to every channel of the result.
        padding_mode: "zeros", "reflect", "replicate" or "circular": what is added.
        device: where the parameters are.
        dtype: their floating dtype.

    Raises:
        ValueError: if `groups` does not divide the channels, or `padding` or `padding_mode` is unknown.

    Example:
        >>> nn.Conv2d(16, 33, (3, 5), stride=(2, 1), padding=(4, 2))(adjit.randn(2, 16, 50, 100)).shape
        adjit.Size([2, 33, 28, 100])
    """

    _axes = 2
    _function = "conv2d"


class Conv3d(_Forward):
    """Convolution of volumes (batch, channels, depth, height, width), or without batch: see `Conv2d`.

    (N, C, D, H, W), or without the N, to the same with out_channels and, for sizes n,
    (n + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1, rounded down.

    Example:
        >>> nn.Conv3d(2, 3, (3, 5, 2), stride=(2, 1, 1))(adjit.randn(1, 2, 10, 10, 10)).shape
        adjit.Size([1, 3, 4, 6, 9])
    """

    _axes = 3
    _function = "conv3d"


class _ConvTransposeNd(_OverAxes):
    """A transposed convolution of some number of axes."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | Sequence[int] = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        each = partial(for_axes, axes=self._axes)
        super().__init__(
            in_channels, out_channels, each(kernel_size), each(stride), each(padding),
            each(dilation), True, each(output_padding), groups, bias, padding_mode, device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        more = self.output_padding
        if output_size is not None:
            more = self._padding_for(input, list(output_size))
        return getattr(F, self._function)(
            input, self.weight, self.bias, self.stride, self.padding, more, self.groups,
            self.dilation,
        )  # fmt: skip

    def _padding_for(self, input: Tensor, output_size: list[int]) -> tuple[int, ...]:
        """The output padding that leads to a size."""
        others = 2 if input.dim() == self._axes + 2 else 1
        sizes = output_size[others:] if len(output_size) == others + self._axes else output_size
        if len(sizes) != self._axes:
            raise ValueError(
                f"ConvTranspose{self._axes}D: for {input.dim()}D input, output_size must have "
                f"{self._axes} or {others + self._axes} elements (got {len(sizes)})"
            )
        padding = for_axes(self.padding, self._axes)
        least = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(
                input.shape[others:], self.stride, padding, self.dilation, self.kernel_size,
                strict=True,
            )
        ]  # fmt: skip
        most = [n + s - 1 for n, s in zip(least, self.stride, strict=True)]
        if any(not low <= n <= high for n, low, high in zip(sizes, least, most, strict=True)):
            raise ValueError(
                f"requested an output size of {sizes}, but valid sizes range from {least} to "
                f"{most} (for an input of {input.shape[2:]})"
            )
        return tuple(n - low for n, low in zip(sizes, least, strict=True))


class ConvTranspose1d(_ConvTransposeNd):
    """Transposed convolution of signals (batch, channels, length): see `ConvTranspose2d`.

    (N, C, L), or without the N, to the same with out_channels and, for sizes n,
    (n - 1) stride - 2 padding + dilation (kernel_size - 1) + output_padding + 1.

    Example:
        >>> nn.ConvTranspose1d(16, 33, 3, stride=2)(adjit.randn(20, 16, 50)).shape
        adjit.Size([20, 33, 101])
    """

    _axes = 1
    _function = "conv_transpose1d"


class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution of images (batch, channels, height, width), or without batch.

    A call takes `output_size`, a size among those that the stride makes possible. Weight
    (in_channels, out_channels / groups, *kernel_size) and bias (out_channels,) start from U(-k, k),
    k = 1 / sqrt(out_channels / groups * kernel elements).

    (N, C, H, W), or without the N, to the same with out_channels and, for sizes n,
    (n - 1) stride - 2 padding + dilation (kernel_size - 1) + output_padding + 1.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the result.
        kernel_size: of the weight; one number, or one for each axis, as in the numbers below.
        stride: how far the weight moves from pixel to pixel of the input.
        padding: what is cut off at both ends of each axis of the result.
        output_padding: what is added at the end of each axis of the result.
        groups: so many parts of the channels are on their own.
        bias: whether a number is added to every channel of the result.
        dilation: how far elements of the weight are apart.
        padding_mode: "zeros".
        device: where the parameters are.
        dtype: their floating dtype.

    Raises:
        ValueError: if `groups` does not divide the channels, or an `output_size` is out of reach.

    Example:
        >>> nn.ConvTranspose2d(16, 33, 3, stride=2)(adjit.randn(20, 16, 5, 10)).shape
        adjit.Size([20, 33, 11, 21])
    """

    _axes = 2
    _function = "conv_transpose2d"


class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution of volumes (batch, channels, depth, height, width): see
    `ConvTranspose2d`.

    (N, C, D, H, W), or without the N, to the same with out_channels and, for sizes n,
    (n - 1) stride - 2 padding + dilation (kernel_size - 1) + output_padding + 1.

    Example:
        >>> nn.ConvTranspose3d(2, 3, 3, stride=2)(adjit.randn(1, 2, 4, 4, 4)).shape
        adjit.Size([1, 3, 9, 9, 9])
    """

    _axes = 3
    _function = "conv_transpose3d"
