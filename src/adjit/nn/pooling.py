"""Layers that pool: the largest element, the mean or the norm of windows, and the reverse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..shapes import for_each
from ..tensor import Tensor
from . import functional as F
from .module import Module

Sizes = int | Sequence[int]


def function_named(name: str) -> Any:
    """A property that finds a function in `nn.functional` at each look, where one that asks may be by then."""
    return property(lambda self: getattr(F, name))


class _MaxPoolNd(Module):
    """The largest element of each window; subclasses say over how many axes."""

    _pool: Callable[..., Any]

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        return self._pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """The largest element of each window over the last axis of (N, C, L) or (C, L).

    Args:
        kernel_size: the size of a window.
        stride: how far apart windows lie, `kernel_size` if None.
        padding: places added at both ends, which count as smaller than anything.
        dilation: how far apart the elements of a window lie.
        return_indices: whether to return the places of the elements too.
        ceil_mode: whether a window may reach beyond the end.

    Example:
        >>> nn.MaxPool1d(2)(adjit.tensor([[1.0, 3.0, 2.0, 0.0]]))
        tensor([[3., 2.]])
    """

    _pool = function_named("max_pool1d")


class MaxPool2d(_MaxPoolNd):
    """The largest element of each window over the last two axes; takes what MaxPool1d takes.

    Input (N, C, H, W) or (C, H, W).

    Example:
        >>> nn.MaxPool2d(3, stride=2, padding=1)(adjit.randn(1, 2, 8, 8)).shape
        adjit.Size([1, 2, 4, 4])
    """

    _pool = function_named("max_pool2d")


class MaxPool3d(_MaxPoolNd):
    """The largest element of each window over the last three axes; takes what MaxPool1d takes.

    Input (N, C, D, H, W) or (C, D, H, W).

    Example:
        >>> nn.MaxPool3d(2)(adjit.zeros(1, 4, 6, 8)).shape
        adjit.Size([1, 2, 3, 4])
    """

    _pool = function_named("max_pool3d")


class _MaxUnpoolNd(Module):
    """Elements back at their places; subclasses say over how many axes."""

    _axes: int
    _unpool: Callable[..., Tensor]

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        super().__init__()
        self.kernel_size = for_each(kernel_size, self._axes)
        self.stride = for_each(kernel_size if stride is None else stride, self._axes)
        self.padding = for_each(padding, self._axes)

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        return self._unpool(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """MaxPool1d reversed: elements at their places, zeros elsewhere.

    Its inputs are what MaxPool1d gives with `return_indices`, and the size that was pooled, where
    several are pooled to the same.

    Input (N, C, L) or (C, L).

    Args:
        kernel_size: the size of a window of the pooling.
        stride: how far apart its windows lie, `kernel_size` if None.
        padding: the places that it added at both ends.

    Example:
        >>> values, places = nn.MaxPool1d(2, return_indices=True)(adjit.tensor([[1.0, 3.0]]))
        >>> nn.MaxUnpool1d(2)(values, places)
        tensor([[0., 3.]])
    """

    _axes = 1
    _unpool = function_named("max_unpool1d")


class MaxUnpool2d(_MaxUnpoolNd):
    """MaxPool2d reversed; takes what MaxUnpool1d takes.

    Input (N, C, H, W) or (C, H, W).

    Example:
        >>> values, places = nn.MaxPool2d(2, return_indices=True)(adjit.tensor([[[1.0, 2.0], [4.0, 3.0]]]))
        >>> nn.MaxUnpool2d(2)(values, places)
        tensor([[[0., 0.],
                 [4., 0.]]])
    """

    _axes = 2
    _unpool = function_named("max_unpool2d")


class MaxUnpool3d(_MaxUnpoolNd):
    """MaxPool3d reversed; takes what MaxUnpool1d takes.

    Input (N, C, D, H, W) or (C, D, H, W).

    Example:
        >>> values, places = nn.MaxPool3d(2, return_indices=True)(adjit.zeros(1, 4, 4, 4))
        >>> nn.MaxUnpool3d(2)(values, places).shape
        adjit.Size([1, 4, 4, 4])
    """

    _axes = 3
    _unpool = function_named("max_unpool3d")


class _AvgPool(Module):
    """The mean of each window."""

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    """The mean of each window over the last axis of (N, C, L) or (C, L).

    Args:
        kernel_size: the size of a window.
        stride: how far apart windows lie, `kernel_size` if None.
        padding: zeros added at both ends.
        ceil_mode: whether a window may reach beyond the end.
        count_include_pad: whether the zeros count as elements.

    Example:
        >>> nn.AvgPool1d(2)(adjit.tensor([[1.0, 3.0, 2.0, 0.0]]))
        tensor([[2., 1.]])
    """

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = for_each(kernel_size, 1)
        self.stride = for_each(kernel_size if stride is None else stride, 1)
        self.padding = for_each(padding, 1)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )


class _AvgPoolWithDivisor(_AvgPool):
    """The mean over two or three axes."""

    _pool: Callable[..., Tensor]

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return self._pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool2d(_AvgPoolWithDivisor):
    """The mean of each window over the last two axes.

    Takes what AvgPool1d takes, and `divisor_override`, by which sums are divided instead of by the
    number of elements.

    Input (N, C, H, W) or (C, H, W).

    Example:
        >>> nn.AvgPool2d(2)(adjit.arange(16.0).view(1, 4, 4))
        tensor([[[ 2.5000,  4.5000],
                 [10.5000, 12.5000]]])
    """

    _pool = function_named("avg_pool2d")


class AvgPool3d(_AvgPoolWithDivisor):
    """The mean of each window over the last three axes; takes what AvgPool2d takes.

    Input (N, C, D, H, W) or (C, D, H, W).

    Example:
        >>> nn.AvgPool3d(2)(adjit.zeros(1, 4, 6, 8)).shape
        adjit.Size([1, 2, 3, 4])
    """

    _pool = function_named("avg_pool3d")


class _LPPoolNd(Module):
    """The p-norm of each window; subclasses say over how many axes."""

    _pool: Callable[..., Tensor]

    def __init__(
        self,
        norm_type: float,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return self._pool(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPoolNd):
    """The p-norm of each window over the last axis of (N, C, L) or (C, L).

    Args:
        norm_type: p.
        kernel_size: the size of a window.
        stride: how far apart windows lie, `kernel_size` if None.
        ceil_mode: whether a window may reach beyond the end.

    Example:
        >>> nn.LPPool1d(2, 2)(adjit.tensor([[3.0, 4.0]]))
        tensor([[5.]])
    """

    _pool = function_named("lp_pool1d")


class LPPool2d(_LPPoolNd):
    """The p-norm of each window over the last two axes; takes what LPPool1d takes.

    Input (N, C, H, W) or (C, H, W).

    Example:
        >>> nn.LPPool2d(2, 2)(adjit.ones(1, 1, 2, 2))
        tensor([[[[2.]]]])
    """

    _pool = function_named("lp_pool2d")


class LPPool3d(_LPPoolNd):
    """The p-norm of each window over the last three axes; takes what LPPool1d takes.

    Input (N, C, D, H, W) or (C, D, H, W).

    Example:
        >>> nn.LPPool3d(1, 2)(adjit.ones(1, 1, 2, 2, 2))
        tensor([[[[[8.]]]]])
    """

    _pool = function_named("lp_pool3d")


class _AdaptiveAvgPoolNd(Module):
    """The means of windows that divide the input evenly; subclasses say over how many axes."""

    _pool: Callable[..., Tensor]

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return self._pool(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """The means of `output_size` windows that divide the last axis of (N, C, L) or (C, L) evenly.

    Example:
        >>> nn.AdaptiveAvgPool1d(2)(adjit.tensor([[1.0, 3.0, 2.0, 0.0]]))
        tensor([[2., 1.]])
    """

    _pool = function_named("adaptive_avg_pool1d")


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """The means of windows that divide the last two axes evenly.

    `output_size` is one number, or one for each axis, None for an axis that stays as it is.

    Input (N, C, H, W) or (C, H, W).

    Example:
        >>> nn.AdaptiveAvgPool2d(1)(adjit.arange(16.0).view(1, 4, 4))
        tensor([[[7.5000]]])
    """

    _pool = function_named("adaptive_avg_pool2d")


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """The means of windows that divide the last three axes evenly; as in AdaptiveAvgPool2d.

    Input (N, C, D, H, W) or (C, D, H, W).

    Args:
        output_size: how many windows an axis has, one number or one for each axis; None keeps a size.

    Example:
        >>> nn.AdaptiveAvgPool3d((2, None, 1))(adjit.zeros(1, 4, 6, 8)).shape
        adjit.Size([1, 2, 6, 1])
    """

    _pool = function_named("adaptive_avg_pool3d")


class _AdaptiveMaxPoolNd(Module):
    """The largest elements of windows that divide the input evenly."""

    _pool: Callable[..., Any]

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        return self._pool(input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """The largest elements of `output_size` windows that divide the last axis evenly.

    With `return_indices` their places come too.

    Input (N, C, L) or (C, L).

    Example:
        >>> nn.AdaptiveMaxPool1d(2)(adjit.tensor([[1.0, 3.0, 2.0, 0.0]]))
        tensor([[3., 2.]])
    """

    _pool = function_named("adaptive_max_pool1d")


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """The largest elements of windows that divide the last two axes evenly.

    Input (N, C, H, W) or (C, H, W).

    Args:
        output_size: how many windows an axis has, one number or one for each axis; None keeps a size.
        return_indices: whether to return the places of the elements too.

    Example:
        >>> nn.AdaptiveMaxPool2d(2)(adjit.arange(16.0).view(1, 4, 4))
        tensor([[[ 5.,  7.],
                 [13., 15.]]])
    """

    _pool = function_named("adaptive_max_pool2d")


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """The largest elements of windows that divide the last three axes evenly.

    Input (N, C, D, H, W) or (C, D, H, W).

    Args:
        output_size: how many windows an axis has, one number or one for each axis; None keeps a size.
        return_indices: whether to return the places of the elements too.

    Example:
        >>> nn.AdaptiveMaxPool3d(2)(adjit.zeros(1, 4, 6, 8)).shape
        adjit.Size([1, 2, 2, 2])
    """

    _pool = function_named("adaptive_max_pool3d")


class _FractionalMaxPool(Module):
    """The largest elements of windows at random places; subclasses say over how many axes."""

    _pool: Callable[..., Any]
    _axes: int
    _random_samples: Tensor | None

    def __init__(
        self,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.kernel_size = for_each(kernel_size, self._axes)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        if output_size is None and output_ratio is None:
            raise ValueError(
                f"{name} requires specifying either an output size, or a pooling ratio"
            )
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        self.output_size = None if output_size is None else for_each(output_size, self._axes)
        self.output_ratio = None
        if output_ratio is not None:
            ratios = (output_ratio,) if isinstance(output_ratio, (int, float)) else output_ratio
            if not all(0 < ratio < 1 for ratio in ratios):
                raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")
            self.output_ratio = tuple(ratios) * (self._axes // len(ratios))

    def forward(self, input: Tensor) -> Any:
        return self._pool(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            _random_samples=self._random_samples,
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest elements of windows at random places over the last two axes (Graham, 2014).

    Input (N, C, H, W) or (C, H, W).

    Args:
        kernel_size: the size of a window, one number or one for each axis.
        output_size: how many windows an axis has.
        output_ratio: that as a part of the input's size, between 0 and 1, instead.
        return_indices: whether to return the places of the elements too.

    Raises:
        ValueError: unless just one of `output_size` and `output_ratio` is given.

    Example:
        >>> nn.FractionalMaxPool2d(2, output_ratio=0.5)(adjit.ones(1, 1, 6, 6)).shape
        adjit.Size([1, 1, 3, 3])
    """

    _pool = function_named("fractional_max_pool2d")
    _axes = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest elements of windows at random places over the last three axes; takes what
    FractionalMaxPool2d takes.

    Input (N, C, D, H, W) or (C, D, H, W).

    Example:
        >>> nn.FractionalMaxPool3d(2, output_size=3)(adjit.zeros(1, 5, 5, 5)).shape
        adjit.Size([1, 3, 3, 3])
    """

    _pool = function_named("fractional_max_pool3d")
    _axes = 3
