"""The order of axes in memory: of images with channels first or last, and of turned tensors of any kind."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import formats
from ..dtypes import carrier
from ..graph.elementwise_record import in_c_order, result_spec
from ..graph.launch import launch
from ..graph.levels import tracers
from ..graph.node import Spec
from ..graph.view import as_own
from ..kernels.ops import shape as kernels
from ..schedule.planning.recipe import GRAIN
from ..shapes import Shape, is_contiguous, numel, sized
from ..tensor import Tensor
from ..unknown import cached

# The fewest axes of what tells that a result has its channels last, to which PyTorch then gives that order too.
SIGNALS, IMAGES, NOTHING = 3, 4, math.inf


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


def as_images(x: Tensor, at_end: bool, *models: Tensor, told_by: float = IMAGES) -> Tensor:
    """The view as (N, C, *) of a tensor in C order that an op made.

    It reports to have its channels last only if one of the models does, as what PyTorch makes of these: that
    of signals (N, C, L) is in C order, but for ops that take them for images one pixel high; some know no
    other order.
    """
    if not at_end:
        return x
    images = as_own(x.permute(0, x.ndim - 1, *range(1, x.ndim - 1)))
    return reporting_as(images, *models, told_by=told_by)


def reporting_as(images: Tensor, *models: Tensor, told_by: float = IMAGES) -> Tensor:
    """What has its channels last, reported so only if one of the models reports that."""
    asked = any(reports_channels_last(t._spec) for t in models if t.ndim >= told_by)
    return images if asked else reporting_c_order(images)


def reporting_c_order(made: Tensor) -> Tensor:
    """A view of what an op made, as the result that lies as the library chose and PyTorch's in C order."""
    if made.__class__ not in tracers:
        made._spec = in_c_order(made._spec)
    return made


def axes_in_memory(x: Tensor) -> Shape:
    """The axes from the outermost to the innermost, in the order in which PyTorch lays a copy of `x`."""
    return _axes_in_memory(x._spec)


@cached(4096)
def _axes_in_memory(spec: Spec) -> Shape:
    strides = formats.strides_like(spec.shape, spec.reported, None)
    return tuple(sorted(range(spec.ndim), key=lambda d: (-strides[d], d)))


def as_in_memory(x: Tensor, axes: Shape) -> Tensor:
    """A view with the axes in the order of `axes_in_memory`."""
    return x if _ascend(axes) else x.permute(axes)


def put_back(made: Tensor, axes: Shape) -> Tensor:
    """A view with the axes in order of what has them in that of `axes_in_memory`."""
    return made if _ascend(axes) else made.permute(_inverse(axes))


def laid_alike(*tensors: Tensor) -> tuple[tuple[Tensor, ...], Shape]:
    """Tensors of one shape with their elements side by side in the order that an elementwise op gives to what
    it makes of them, and its axes."""
    first = tensors[0]._spec
    whole = result_spec(first.shape, [t._spec for t in tensors], first.dtype, first.device)
    axes = _axes_in_memory(whole)
    return tuple([as_in_memory(t, axes).contiguous() for t in tensors]), axes


def _ascend(axes: Shape) -> bool:
    return axes == tuple(range(len(axes)))


@cached(4096)
def _inverse(axes: Shape) -> Shape:
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


@cached(4096)
def reports_channels_last(spec: Spec) -> bool:
    """Whether PyTorch makes results with the channels last of (N, C, *) with such strides."""
    shape, strides = spec.shape, spec.reported
    if len(shape) == 3:  # which it sees as an image one pixel high
        shape = sized((*shape[:2], 1, shape[2]))
        strides = (*strides[:2], strides[2] * shape[3], strides[2])
    return formats.suggested(shape, strides) is not formats.contiguous_format


def shape_in_memory(shape: Sequence[int], at_end: bool) -> Shape:
    """The shape that `in_memory` gives."""
    return tuple([shape[d] for d in last(len(shape))]) if at_end else tuple(shape)
