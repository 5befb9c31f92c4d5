"""Convolutions of whole numbers: windows of the image times the weight.

They have no gradients, and wrap around as sums and products of their dtype do.
"""

from __future__ import annotations

from ..shapes import Shape
from ..tensor import Tensor
from .conv_plans import Geometry
from .padding import padded


def widths_to(before: Shape, size: Shape, to: Shape) -> Shape:
    """What `pad` adds to sizes, or cuts off, so that they become others: the last axis comes first."""
    pairs = [(b, t - n - b) for b, n, t in zip(before, size, to, strict=True)]
    return tuple([width for pair in reversed(pairs) for width in pair])


def reach_of(geometry: Geometry) -> Shape:
    """How much of each axis the taps of a weight span."""
    return tuple([d * (k - 1) + 1 for d, k in zip(geometry.dilation, geometry.kernel, strict=True)])


def slid(image: Tensor, weight: Tensor, stride: Shape, dilation: Shape, reach: Shape) -> Tensor:
    """The weight (groups, columns, channels, *) along a padded image."""
    groups, columns, channels = weight.shape[:3]
    axes = len(reach)
    for axis, (span, step) in enumerate(zip(reach, stride, strict=True), 2):
        image = image.unfold(axis, span, step)
    windows = image[(..., *[slice(None, None, d) for d in dilation])].unflatten(
        1, (groups, channels)
    )
    shape = windows.shape[0], *windows.shape[3 : 3 + axes]
    rows = windows.movedim(2, 2 + axes).movedim(1, 0).flatten(2 + axes).flatten(1, 1 + axes)
    sums = rows @ weight.flatten(2).transpose(1, 2)
    return sums.view(groups, *shape, columns).movedim(-1, 2).transpose(0, 1).flatten(1, 2)


def convolved(image: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """A convolution of integers, with any bias."""
    reach = reach_of(geometry)
    seen = tuple(
        [(n - 1) * s + r for n, s, r in zip(geometry.out, geometry.stride, reach, strict=True)]
    )
    around = padded(image, widths_to(geometry.padding, geometry.image, seen), 0.0)
    taps = weight.unflatten(0, (geometry.groups, len(weight) // geometry.groups))
    return biased(slid(around, taps, geometry.stride, geometry.dilation, reach), bias)


def transposed(upper: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """A transposed convolution of integers: the turned weight along an image with zeros between its pixels."""
    reach = reach_of(geometry)
    wide = tuple([(n - 1) * s + 1 for n, s in zip(geometry.out, geometry.stride, strict=True)])
    spread = upper.new_zeros((*upper.shape[:2], *wide))
    spread[(..., *[slice(None, None, s) for s in geometry.stride])] = upper
    before = tuple([r - 1 - p for r, p in zip(reach, geometry.padding, strict=True)])
    seen = tuple([n + r - 1 for n, r in zip(geometry.image, reach, strict=True)])
    around = padded(spread, widths_to(before, wide, seen), 0.0)
    turned = weight.flip(tuple(range(2, weight.ndim)))
    turned = turned.unflatten(0, (geometry.groups, len(weight) // geometry.groups))
    ones = (1,) * len(reach)
    return biased(slid(around, turned.transpose(1, 2), ones, geometry.dilation, reach), bias)


def biased(made: Tensor, bias: Tensor | None) -> Tensor:
    """A result with a number added to each channel."""
    return made if bias is None else made + bias.view(-1, *[1] * (made.ndim - 2))
