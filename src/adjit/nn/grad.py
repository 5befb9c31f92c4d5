"""Gradients of convolutions as functions of their own, for backward methods that programs write themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ops import conv
from ..ops.conv_plans import Geometry
from ..tensor import Tensor

__all__ = [
    "conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight",
]  # fmt: skip

Steps = int | Sequence[int]


def _geometry(
    image: Any, weight: Any, grad_output: Tensor, steps: tuple[Steps, Steps, Steps], groups: int
) -> Geometry:
    """The geometry of a convolution whose result has that gradient."""
    image, weight = tuple(image), tuple(weight)
    axes = len(weight) - 2
    stride, padding, dilation = (
        conv.spread(name, value, axes, axes)
        for name, value in zip(("stride", "padding", "dilation"), steps, strict=True)
    )
    geometry = conv.forward_geometry(image, weight, None, stride, padding, dilation, int(groups))
    expected = (image[0], weight[0], *geometry.out)
    if grad_output.shape != expected:
        raise RuntimeError(
            f"Expected grad_output of shape {list(expected)}, which the convolution has, but got "
            f"{list(grad_output.shape)}"
        )
    return geometry


def _described(
    function: Callable[..., Tensor], n: int, of: str, tensors: str, given: str
) -> Callable[..., Tensor]:
    """A function with its name and what it says of itself."""
    name, sizes = f"conv{n}d_{of}", ", ".join("1" * (n + 2))
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""The gradient of `conv{n}d` in its {of}.

    Differentiable in both tensors.

    Args:
        {tensors}
        grad_output: the gradient of the result.
        stride, padding, dilation, groups: those of the convolution.

    Raises:
        RuntimeError: if shapes or numbers do not fit.

    Example:
        >>> one = adjit.ones({sizes})
        >>> nn.grad.{name}({given.replace("SIZES", sizes)}, one * 2).item()
        6.0
    """
    return function


def _of_input(n: int) -> Callable[..., Tensor]:
    """`conv1d_input` and its kin."""

    def function(
        input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Steps = 1,
        padding: Steps = 0, dilation: Steps = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        steps = (stride, padding, dilation)
        geometry = _geometry(input_size, weight.shape, grad_output, steps, groups)
        made: Tensor = conv.image_gradient(grad_output, weight, geometry)
        return made

    return _described(
        function, n, "input",
        "input_size: the shape of the input, (batch, channels, *).\n"
        "        weight: (out_channels, channels / groups, *).",
        "(SIZES), one * 3",
    )  # fmt: skip


def _of_weight(n: int) -> Callable[..., Tensor]:
    """`conv1d_weight` and its kin."""

    def function(
        input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Steps = 1,
        padding: Steps = 0, dilation: Steps = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        steps = (stride, padding, dilation)
        geometry = _geometry(input.shape, weight_size, grad_output, steps, groups)
        made: Tensor = conv.weight_gradient(input, grad_output, geometry)
        return made

    return _described(
        function, n, "weight",
        "input: (batch, channels, *).\n"
        "        weight_size: the shape of the weight, (out_channels, channels / groups, *).",
        "one * 3, (SIZES)",
    )  # fmt: skip


conv1d_input, conv2d_input, conv3d_input = [_of_input(n) for n in (1, 2, 3)]
conv1d_weight, conv2d_weight, conv3d_weight = [_of_weight(n) for n in (1, 2, 3)]
