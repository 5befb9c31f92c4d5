"""Images as columns of their windows, and elements moved between channels and places."""

from __future__ import annotations

from typing import Any

from ..graph.composed import composed
from ..graph.export import export
from ..graph.launch import launch
from ..graph.normalized import normalizes
from ..graph.operation import operation
from ..kernels.ops import unfold as kernels
from ..shapes import Shape, an_int, for_each, numel
from ..tensor import Tensor
from .pool import Sizes, refuse
from .reduce import GRAIN

Pair = tuple[int, int]


# ---------------------------------------------------------------- unfold, fold


def pair(name: str, value: Sizes) -> Pair:
    """A setting as one number for each axis."""
    found = for_each(value, 2)
    if len(found) != 2:
        raise RuntimeError(f"It is expected {name} equals to 2, but got size {len(found)}")
    return found[0], found[1]


def check_windows(kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> None:
    """Kernels, dilations and strides are positive, paddings not negative."""
    for what, short, values, least in (
        ("kernel size", "kernel", kernel, 1),
        ("dilation", "dilation", dilation, 1),
        ("padding", "pad", padding, 0),
        ("stride", "stride", stride, 1),
    ):
        if min(values) < least:
            rule = "greater than zero" if least else "non-negative"
            raise RuntimeError(
                f"{what} should be {rule}, but got {short}_height: {values[0]} {short}_width: "
                f"{values[1]}"
            )


def blocks_of(size: Pair, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Pair:
    """How many windows lie along each axis."""
    high, wide = (
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, d, p, s in zip(size, kernel, dilation, padding, stride, strict=True)
    )
    return high, wide


@operation("Im2ColBackward0")
def columns_of(x: Tensor, geometry: tuple[Pair, ...]) -> Tensor:
    """The windows of (..., H, W) as (..., kernel * rows * columns)."""
    _, blocks, kernel = geometry[:3]
    planes, taps = numel(x.shape[:-2]), numel(kernel)
    work = numel(blocks)
    out: Tensor = launch(
        kernels.unfold, (x.contiguous(),), [((planes, taps * work), x.dtype)], bind={"T": x.dtype},
        words=[n for numbers in geometry for n in numbers], n=planes * taps,
        grain=max(1, GRAIN // max(2 * work, 1)),
    )  # fmt: skip
    outer = x.shape[: x.ndim - 3]
    return out.view(*outer, x.shape[-3] * taps, work)


columns_of.linear("x")


@columns_of.vjp
def _(g, geometry):  # type: ignore[no-untyped-def]
    return image_of(g, geometry)


columns_of.batched_over()


@operation("Col2ImBackward0")
def image_of(x: Tensor, geometry: tuple[Pair, ...]) -> Tensor:
    """The sums of windows, (..., channels * kernel, rows * columns), in an image."""
    size, _, kernel = geometry[:3]
    channels = x.shape[-2] // numel(kernel)
    shape = (*x.shape[:-2], channels, *size)
    work = numel(x.shape[-1:]) * numel(kernel)
    out: Tensor = launch(
        kernels.fold, (x.contiguous(),), [(shape, x.dtype)], bind={"T": x.dtype},
        words=[n for numbers in geometry for n in numbers], n=numel(shape[:-2]),
        grain=max(1, GRAIN // max(2 * work, 1)),
    )  # fmt: skip
    return out


image_of.linear("x")


@image_of.vjp
def _(g, geometry):  # type: ignore[no-untyped-def]
    return columns_of(g, geometry)


image_of.batched_over()


@export(namespace="nn.functional")
@normalizes
def unfold(
    input: Tensor,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:
    """The windows of images as columns, (N, C * kernel, L) for L windows.

    Differentiable in `input`; its reverse is `fold`.

    Args:
        input: (N, C, H, W) or (C, H, W), floating point.
        kernel_size, dilation, padding, stride: as in a convolution, one number or two.

    Raises:
        RuntimeError: if the settings do not fit the shape.

    Example:
        >>> F.unfold(adjit.tensor([[[1.0, 2.0, 3.0]]]), (1, 2))
        tensor([[1., 2.],
                [2., 3.]])
    """
    settings = (
        pair("kernel_size", kernel_size),
        pair("dilation", dilation),
        pair("padding", padding),
        pair("stride", stride),
    )
    check_windows(*settings)
    if input.ndim not in (3, 4) or 0 in input.shape[-3:]:
        raise RuntimeError(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero "
            f"dimensions for input, but got: {list(input.shape)}"
        )
    refuse("im2col_out_cpu", input, "b", "i", "u")
    kernel, dilations, paddings, strides = settings
    size = (input.shape[-2], input.shape[-1])
    blocks = blocks_of(size, *settings)
    if min(blocks) < 1:
        raise RuntimeError(
            f"Given input with spatial size {size}, kernel_size={kernel}, dilation={dilations}, "
            f"padding={paddings}, calculated shape of the array of sliding blocks as {blocks}, but "
            "its components must be at least one."
        )
    return columns_of.on(input, (size, blocks, kernel, strides, paddings, dilations))


@export(namespace="nn.functional")
@composed
def fold(
    input: Tensor,
    output_size: Sizes,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:
    """Columns of windows, (N, C * kernel, L) or (C * kernel, L), added up to images.

    Differentiable in `input`.

    Args:
        input: floating point.
        output_size: H and W.
        kernel_size, dilation, padding, stride: those of `unfold`.

    Raises:
        RuntimeError: if the settings do not fit the shape.

    Example:
        >>> F.fold(adjit.ones(2, 2), (1, 3), (1, 2))
        tensor([[[1., 2., 1.]]])
    """
    size = pair("output_size", output_size)
    settings = (
        pair("kernel_size", kernel_size),
        pair("dilation", dilation),
        pair("padding", padding),
        pair("stride", stride),
    )
    check_windows(*settings)
    if input.ndim not in (2, 3) or 0 in input.shape[-2:]:
        raise RuntimeError(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and "
            f"non-zero dimensions for input, but got: {list(input.shape)}"
        )
    kernel, dilations, paddings, strides = settings
    dim = input.ndim - 2
    if input.shape[dim] % numel(kernel):
        raise RuntimeError(
            f"Expected size of input's dimension {dim} to be divisible by the product of "
            f"kernel_size, but got input.size({dim})={input.shape[dim]} and kernel_size={kernel}."
        )
    blocks = blocks_of(size, *settings)
    given = (
        f"Given output_size={size}, kernel_size={kernel}, dilation={dilations}, "
        f"padding={paddings}, stride={strides}, "
    )
    if input.shape[-1] != numel(blocks):
        raise RuntimeError(
            f"{given}expected size of input's dimension {dim + 1} to match the calculated number "
            f"of sliding blocks {blocks[0]} * {blocks[1]} = {numel(blocks)}, but got "
            f"input.size({dim + 1})={input.shape[-1]}."
        )
    if min(blocks) < 1:
        raise RuntimeError(
            f"{given}calculated shape of the array of sliding blocks as {blocks}, which is too small "
            "(non-positive)"
        )
    refuse("col2im_out_cpu", input, "b", "i", "u")
    out: Tensor = image_of(input, (size, blocks, kernel, strides, paddings, dilations))
    return out


# ---------------------------------------------------------------- channels and places


def move_pixels(kernel: Any, x: Tensor, shape: Shape, factor: int, small: Pair) -> Tensor:
    """Run one of the kernels that move elements between channels and places."""
    row = small[1] * factor
    out: Tensor = launch(
        kernel, (x.contiguous(),), [(shape, x.dtype)], bind={"T": x.dtype}, words=(factor, *small),
        n=numel(shape) // row if row else 0, grain=max(1, GRAIN // max(4 * row, 1)),
    )  # fmt: skip
    return out


@operation("PixelShuffleBackward0")
def shuffled(x: Tensor, factor: int) -> Tensor:
    """Groups of factor * factor channels as squares of places."""
    c, h, w = x.shape[-3:]
    shape = (*x.shape[:-3], c // (factor * factor), h * factor, w * factor)
    return move_pixels(kernels.shuffle, x, shape, factor, (h, w))


shuffled.linear("x")


@shuffled.vjp
def _(g, factor):  # type: ignore[no-untyped-def]
    return unshuffled(g, factor)


shuffled.batched_over()


@operation("PixelUnshuffleBackward0")
def unshuffled(x: Tensor, factor: int) -> Tensor:
    """Squares of factor * factor places as groups of channels."""
    c, h, w = x.shape[-3], x.shape[-2] // factor, x.shape[-1] // factor
    shape = (*x.shape[:-3], c * factor * factor, h, w)
    return move_pixels(kernels.unshuffle, x, shape, factor, (h, w))


unshuffled.linear("x")


@unshuffled.vjp
def _(g, factor):  # type: ignore[no-untyped-def]
    return shuffled(g, factor)


unshuffled.batched_over()


def check_shuffle(name: str, x: Tensor, factor: Any, what: str) -> int:
    """The factor: positive. An input needs channels, height and width."""
    if x.ndim < 3:
        raise RuntimeError(
            f"{name} expects input to have at least 3 dimensions, but got input with {x.ndim} "
            "dimension(s)"
        )
    if factor <= 0:
        raise RuntimeError(f"{name} expects a positive {what}, but got {factor}")
    return an_int(name, what, 2, factor)


@export
@composed
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(*, C * r², H, W) as (*, C, H * r, W * r): groups of channels become squares of places.

    Differentiable in `input`.

    After Shi et al. (2016).

    Args:
        input: (*, C * r², H, W).
        upscale_factor: r.

    Raises:
        RuntimeError: if the channels are no multiple of r².

    Example:
        >>> adjit.pixel_shuffle(adjit.tensor([[[1.0]], [[2.0]], [[3.0]], [[4.0]]]), 2)
        tensor([[[1., 2.],
                 [3., 4.]]])
    """
    factor = check_shuffle("pixel_shuffle", input, upscale_factor, "upscale_factor")
    square = factor * factor
    if input.shape[-3] % square:
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square "
            f"of upscale_factor, but input.size(-3)={input.shape[-3]} is not divisible by {square}"
        )
    out: Tensor = shuffled(input, factor)
    return out


@export
@composed
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(*, C, H * r, W * r) as (*, C * r², H, W): `pixel_shuffle` reversed.

    Differentiable in `input`.

    Args:
        input: (*, C, H * r, W * r).
        downscale_factor: r.

    Raises:
        RuntimeError: if height or width is no multiple of r.

    Example:
        >>> adjit.pixel_unshuffle(adjit.ones(1, 4, 6), 2).shape
        adjit.Size([4, 2, 3])
    """
    factor = check_shuffle("pixel_unshuffle", input, downscale_factor, "downscale_factor")
    for name, d in (("height", -2), ("width", -1)):
        if input.shape[d] % factor:
            raise RuntimeError(
                f"pixel_unshuffle expects {name} to be divisible by downscale_factor, but "
                f"input.size({d})={input.shape[d]} is not divisible by {downscale_factor}"
            )
    out: Tensor = unshuffled(input, factor)
    return out


@operation("ChannelShuffleBackward0")
def shuffled_channels(x: Tensor, groups: int) -> Tensor:
    """Channels dealt out: the first of each group, then the second of each, and so on."""
    n, c = x.shape[:2]
    if groups in (1, c):
        return x.clone()
    parts = x.reshape(n, groups, c // groups, -1)
    return parts.transpose(1, 2).contiguous().view(x.shape)


shuffled_channels.linear("x")


@shuffled_channels.vjp
def _(g, groups):  # type: ignore[no-untyped-def]
    return shuffled_channels(g, g.shape[1] // groups)


shuffled_channels.batched_by_folding()


@export
@composed
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """(N, C, *) with its channels dealt out: the first of each group, then the second of each, …

    Differentiable in `input`.

    Raises:
        RuntimeError: if the groups do not divide the channels.

    Example:
        >>> adjit.channel_shuffle(adjit.arange(4.0).view(1, 4, 1), 2).flatten()
        tensor([0., 2., 1., 3.])
    """
    if input.ndim < 3:
        raise RuntimeError(
            f"channel_shuffle expects input with > 2 dims, but got input with sizes "
            f"{list(input.shape)}"
        )
    if groups <= 0:
        raise RuntimeError(
            f"Number of groups to divide channels in must be positive. Value of groups:{groups}"
        )
    if input.shape[1] % groups:
        raise RuntimeError(
            f"Number of channels must be divisible by groups. Got {input.shape[1]} channels and "
            f"{groups} groups."
        )
    out: Tensor = shuffled_channels(input, groups) if input.numel() else input.clone()
    return out
