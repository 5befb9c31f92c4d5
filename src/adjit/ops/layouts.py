"""The two orders in which images lie in memory: channel by channel, or all channels of a place."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from .. import formats
from ..dtypes import carrier
from ..graph.launch import launch
from ..graph.levels import tracers
from ..graph.node import Spec, spec_of
from ..kernels.ops import shape as kernels
from ..schedule.planning.recipe import GRAIN
from ..shapes import Shape, Size, contiguous_strides, is_contiguous, numel
from ..tensor import Tensor


def last(ndim: int) -> Shape:
    """The axes of (N, C, *) with the channels at the end."""
    return (0, *range(2, ndim), 1)


def channels_last(x: Tensor) -> bool:
    """Whether the elements of an (N, C, *) tensor lie densely with the channels at the end."""
    spec = x._spec
    if spec.contiguous or spec.ndim < 3:
        return False
    order = last(spec.ndim)
    return is_contiguous([spec.shape[d] for d in order], [spec.strides[d] for d in order])


def in_memory(x: Tensor, at_end: bool) -> Tensor:
    """`x` in C order, its channels at the end if so wanted; a copy only where it lies otherwise."""
    if not at_end:
        return x.contiguous()
    moved = x.permute(last(x.ndim))
    return turned(x) if x._spec.contiguous and not moved._spec.contiguous else moved.contiguous()


def turned(x: Tensor) -> Tensor:
    """An (N, C, *) tensor in C order copied to (N, *, C), recorded."""
    images, channels, *sizes = x.shape
    area = numel(sizes)
    made: Tensor = launch(
        kernels.turn, (x,), [((images, *sizes, channels), x.dtype)],
        bind={"T": carrier(x.dtype)}, words=(channels, area),
        n=images * -(-area // kernels.TILE) if channels else 0,
        grain=max(1, GRAIN // max(4 * kernels.TILE * channels, 1)),
    )  # fmt: skip
    return made


def as_images(x: Tensor, at_end: bool, *models: Tensor, of_signals: bool = False) -> Tensor:
    """The view as (N, C, *) of a tensor in C order that an op made.

    It reports to have its channels last only if one of the models does, as what PyTorch makes of these: of
    signals (N, C, L) in C order, but for ops that take them for images one pixel high (`of_signals`).
    """
    if not at_end:
        return x
    images = x.permute(0, x.ndim - 1, *range(1, x.ndim - 1))
    asked = any(reports_channels_last(t._spec) for t in models if of_signals or t.ndim > 3)
    return images if asked else reporting_c_order(images)


def reporting_c_order(made: Tensor) -> Tensor:
    """A view of what an op made, as the result that lies as the library chose and PyTorch's in C order."""
    if made.__class__ not in tracers:
        spec, strides = made._spec, contiguous_strides(made._spec.shape)
        made._spec = spec_of(spec.shape, spec.strides, spec.dtype, spec.device, strides)
    return made


@functools.lru_cache(4096)
def reports_channels_last(spec: Spec) -> bool:
    """Whether PyTorch makes results with the channels last of (N, C, *) with such strides."""
    shape, strides = spec.shape, spec.reported
    if len(shape) == 3:  # which it sees as an image one pixel high
        shape = Size((*shape[:2], 1, shape[2]))
        strides = (*strides[:2], strides[2] * shape[3], strides[2])
    return formats.suggested(shape, strides) is not formats.contiguous_format


def shape_in_memory(shape: Sequence[int], at_end: bool) -> Shape:
    """The shape that `in_memory` gives."""
    return tuple([shape[d] for d in last(len(shape))]) if at_end else tuple(shape)
