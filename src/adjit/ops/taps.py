"""Sums over a few elements of an image at places that are given, and their gradients.

The ops are each other's derivatives, and each is linear in two tensors: `x` is (N, C, *size), `w` and `places`
are (N, T, P), `upper` is (N, C, *outer), P points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..graph.launch import launch
from ..graph.operation import operation
from ..kernels.language.lanes import LANES
from ..kernels.ops import taps as kernels
from ..shapes import Shape, numel
from ..tensor import Tensor
from . import layouts
from .reduce import GRAIN

LEAST_CHANNELS = LANES // 2  # that are worth a vector


def pays_at_end(x: Tensor, taps: int) -> bool:
    """Whether the channels of an image are better last in memory, for so many taps in all.

    Vectors of channels are worth a copy that is not larger than what is read.
    """
    enough = x.shape[1] >= LEAST_CHANNELS
    return enough and (layouts.channels_last(x) or taps >= numel(x.shape[2:]))


def run(
    kernel: Any, tensors: Sequence[Tensor], shape: Shape, sizes: Shape, units: int, work: int
) -> Tensor:
    """Run one of the kernels; `sizes`: channels, elements of a channel, points, taps."""
    out: Tensor = launch(
        kernel, [t.contiguous() for t in tensors], [(shape, tensors[0].dtype)],
        bind={"T": tensors[0].dtype, "Y": dtypes.int32}, words=sizes, n=units if work else 0,
        grain=max(1, GRAIN // max(4 * work // max(units, 1), 1)),
    )  # fmt: skip
    return out


@operation("SampledTapsBackward0")
def gather(x: Tensor, w: Tensor, places: Tensor, outer: Shape) -> Tensor:
    """(N, C, *outer): the weighted sums of the elements of `x` at places, reported in C order."""
    images, channels, *size = x.shape
    taps, points = w.shape[1:]
    at_end = pays_at_end(x, taps * points)
    kernel, units = kernels.gather_taps, images * channels
    if at_end:
        kernel, units = kernels.gather_taps_last, images * -(-points // kernels.STRIP)
    made = run(
        kernel, (layouts.in_memory(x, at_end), w, places),
        layouts.shape_in_memory((images, channels, *outer), at_end),
        (channels, numel(size), points, taps), units, images * channels * taps * points,
    )  # fmt: skip
    return layouts.as_images(made, at_end)


gather.multilinear("x", "w")


@gather.vjp
def _(g, x, w, places):  # type: ignore[no-untyped-def]
    return scatter(g, w, places, tuple(x.shape[2:])), multiply(g, x, places), None


gather.batched_by_folding()


@operation("SampledInputBackward0")
def scatter(upper: Tensor, w: Tensor, places: Tensor, size: Shape) -> Tensor:
    """(N, C, *size): the weighted elements of `upper` added at places."""
    images, channels = upper.shape[:2]
    taps, points = w.shape[1:]
    at_end = channels >= LEAST_CHANNELS
    kernel, units = kernels.scatter_taps, images * channels
    if at_end:
        kernel, units = kernels.scatter_taps_last, images * -(-channels // LANES)
    made = run(
        kernel, (layouts.in_memory(upper, at_end), w, places),
        layouts.shape_in_memory((images, channels, *size), at_end),
        (channels, numel(size), points, taps), units,
        images * channels * (numel(size) + taps * points),
    )  # fmt: skip
    return layouts.as_images(made, at_end, upper)


scatter.multilinear("upper", "w")


@scatter.vjp
def _(g, upper, w, places):  # type: ignore[no-untyped-def]
    outer = tuple(upper.shape[2:])
    return gather(g, w, places, outer), multiply(upper, g, places), None


scatter.batched_by_folding()


@operation("SampleWeightBackward0")
def multiply(upper: Tensor, x: Tensor, places: Tensor) -> Tensor:
    """(N, T, P): the products of `upper` and of the elements of `x` at places, over channels."""
    images, channels, *size = x.shape
    taps, points = places.shape[1:]
    at_end = pays_at_end(x, taps * points)
    kernel, units = kernels.multiply_taps, images * taps
    if at_end:
        kernel, units = kernels.multiply_taps_last, images * -(-points // kernels.STRIP)
    made: Tensor = run(
        kernel, (layouts.in_memory(upper, at_end), layouts.in_memory(x, at_end), places),
        (images, taps, points), (channels, numel(size), points, taps), units,
        images * channels * taps * points,
    )  # fmt: skip
    return made


multiply.multilinear("upper", "x")


@multiply.vjp
def _(g, upper, x, places):  # type: ignore[no-untyped-def]
    size, outer = tuple(x.shape[2:]), tuple(upper.shape[2:])
    return gather(x, g, places, outer), scatter(upper, g, places, size), None


multiply.batched_by_folding()
