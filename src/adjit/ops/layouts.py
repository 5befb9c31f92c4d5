"""The two orders in which images lie in memory: channel by channel, or all channels of a place."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from ..dtypes import carrier
from ..graph.launch import launch
from ..graph.levels import tracers
from ..graph.node import Spec
from ..kernels.ops import shape as kernels
from ..schedule.planning.recipe import GRAIN
from ..shapes import Shape, contiguous_strides, is_contiguous, numel
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


@functools.lru_cache(4096)
def has_an_axis_further_in(spec: Spec) -> bool:
    """Whether elements lie densely in C order but for one axis, as in results of convolutions, where that is
    the channels', and in what is computed of them and of parts of them."""
    if spec.contiguous or spec.ndim < 3:
        return False
    axes = [d for d in range(spec.ndim) if spec.shape[d] > 1]
    order = sorted(axes, key=lambda d: -spec.strides[d])
    if not is_contiguous([spec.shape[d] for d in order], [spec.strides[d] for d in order]):
        return False
    return any([d for d in order if d != c] == [d for d in axes if d != c] for c in axes)


def outermost_first(shape: Shape, strides: Shape) -> list[int]:
    """The axes of a dense memory that have several places, the one with the largest stride first."""
    return sorted((d for d, n in enumerate(shape) if n > 1), key=lambda d: -strides[d])


def axis_along(step: int, axes: Iterable[int], strides: Shape) -> int | None:
    """The outermost axis that a step of so many elements goes along, by whole places."""
    return next((d for d in axes if step % strides[d] == 0), None)


@functools.lru_cache(4096)
def strides_in_c_order(view: Spec, base: Spec) -> Shape:
    """The strides that a view of a dense memory would have if that lay in C order."""
    axes, others = outermost_first(base.shape, base.strides), contiguous_strides(base.shape)
    found = []
    for step in view.strides:
        along = axis_along(step, axes, base.strides) if step else None
        found.append(0 if along is None else others[along] * (step // base.strides[along]))
    return tuple(found)


def goes_along_axes(
    wanted: Sequence[tuple[int, int]], start: int, shape: Shape, strides: Shape, runs: bool = False
) -> bool:
    """Whether each axis of a view, of so many steps that long, goes along an axis of a dense memory.

    One that `runs` on from the end of an axis to the next place of the axis around it does, too.
    """
    places = {}  # of the last element, by axes
    for d in outermost_first(shape, strides):
        places[d], start = divmod(start, strides[d])
    for size, step in wanted:
        along = axis_along(step, places, strides)
        if along is None:
            return False
        if not (runs and step == strides[along]):
            places[along] += (size - 1) * step // strides[along]
    return all(place < shape[d] for d, place in places.items())


def steps_in_pytorch(x: Tensor) -> Shape | None:
    """The strides that PyTorch's view would have where the library laid out the memory that `x` is a view of.

    None elsewhere, and for tracers.
    """
    if x._view_of is None or x.__class__ in tracers:
        return None
    base = x._view_of.base._spec
    return strides_in_c_order(x._spec, base) if has_an_axis_further_in(base) else None


def is_laid_out_here(x: Tensor) -> bool:
    """Whether the memory of a tensor, which nobody else looks at, lies as the library chose, where PyTorch's
    would be in C order."""
    base = x if x._view_of is None else x._view_of.base
    return not base._storage.shared and has_an_axis_further_in(base._spec)


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


def as_images(x: Tensor, at_end: bool) -> Tensor:
    """The view as (N, C, *) of a tensor in C order."""
    return x.permute(0, x.ndim - 1, *range(1, x.ndim - 1)) if at_end else x


def shape_in_memory(shape: Sequence[int], at_end: bool) -> Shape:
    """The shape that `in_memory` gives."""
    return tuple([shape[d] for d in last(len(shape))]) if at_end else tuple(shape)
