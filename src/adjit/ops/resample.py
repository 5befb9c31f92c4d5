"""Maps along axes, which need not keep their sizes: interpolation, area means, mirrored edges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from .. import dtypes
from ..dtypes import carrier
from ..graph.launch import launch
from ..graph.operation import Operation, operation
from ..kernels.ops import resample as kernels
from ..schedule.jit.cache import instantiate
from ..schedule.settle import float_word
from ..shapes import numel
from ..tensor import Tensor
from ..unknown import cached
from . import creation, layouts
from .reduce import GRAIN

TABLES = {
    kernels.NEAREST: kernels.table_of_nearest,
    kernels.NEAREST_EXACT: kernels.table_of_nearest,
    kernels.LINEAR: kernels.table_of_curves,
    kernels.CUBIC: kernels.table_of_curves,
    kernels.LINEAR_WIDE: kernels.table_of_wide_curves,
    kernels.CUBIC_WIDE: kernels.table_of_wide_curves,
    kernels.AREA: kernels.table_of_areas,
    kernels.REFLECT: kernels.table_of_pads,
    kernels.REPLICATE: kernels.table_of_pads,
    kernels.CIRCULAR: kernels.table_of_pads,
}


class AxisMap(NamedTuple):
    """One axis of an (N, C, *) tensor and where its elements go."""

    axis: int
    kind: int  # of kernels.resample
    length: int
    places: int
    before: int = 0  # elements put before the first, for the kinds that pad
    aligned: bool = False  # whether the first and the last places stay where they are
    scale: float = 0.0  # input places per output place, 0 where it follows from the lengths

    @property
    def taps(self) -> int:
        """The most input places that an output place reads."""
        if self.kind == kernels.AREA:
            whole = self.length % self.places == 0
            return -(-self.length // self.places) + (not whole)
        if self.kind in (kernels.LINEAR_WIDE, kernels.CUBIC_WIDE):
            scale = self.scale or self.length / self.places
            if self.aligned:
                scale = (self.length - 1) / (self.places - 1) if self.places > 1 else 0.0
            reach = 1 if self.kind == kernels.LINEAR_WIDE else 2
            return math.ceil(reach * max(scale, 1.0)) * 2 + 1
        return {kernels.LINEAR: 2, kernels.CUBIC: 4}.get(self.kind, 1)


class Maps:
    """Some axes and where their elements go. Equal ones are one object: see `maps_of`."""

    __slots__ = ("axes",)

    def __init__(self, *axes: AxisMap) -> None:
        self.axes = axes


maps_of = cached(4096)(Maps)  # a call is known by the object, not by all its numbers


def map_axis(x: Tensor, axis: int, to: AxisMap, back: bool) -> Tensor:
    """Map an axis of a tensor in C order, or a gradient `back` along it."""
    shape = list(x.shape)
    outer, inner = numel(shape[:axis]), numel(shape[axis + 1 :])
    shape[axis] = to.length if back else to.places
    taps, strips = to.taps, -(-inner // kernels.STRIP)
    lines = to.length if back else to.places
    if back:
        kernel, n = kernels.spread_axis, outer * strips
        work = taps * to.places * min(inner, kernels.STRIP)
    else:
        kernel = kernels.copy_axis if taps == 1 else kernels.mix_axis
        n = outer * (1 if inner == 1 else lines)
        work = taps * (lines if inner == 1 else inner)
    number = x.dtype if x.dtype.is_floating_point else dtypes.float32
    table = instantiate(TABLES[to.kind], {"A": number})
    out: Tensor = launch(
        [(table, 1, 1), (kernel, n if inner else 0, max(1, GRAIN // max(2 * work, 1)))],
        (x,), [(shape, x.dtype)],
        bind={"T": carrier(x.dtype) if kernel is kernels.copy_axis else x.dtype},
        words=(to.kind, to.length, to.places, taps, to.before, to.aligned, inner, strips),
        scalars=(float_word(to.scale),), scratch=taps * to.places * 16,
    )  # fmt: skip
    return out


def pad_volumes(x: Tensor, by_place: Mapping[int, AxisMap]) -> Tensor:
    """Pad some of the last three axes of a tensor in C order at once."""
    shape = list(x.shape)
    words: list[int] = []
    for place in range(x.ndim - 3, x.ndim):
        size = shape[place] if place >= 0 else 1
        to = by_place.get(place, AxisMap(place, kernels.REPLICATE, size, size))
        words += [to.kind, to.length, to.places, to.before]
        if place in by_place:
            shape[place] = to.places
    out: Tensor = launch(
        kernels.pad_volumes, (x,), [(shape, x.dtype)], bind={"T": carrier(x.dtype)}, words=tuple(words),
        n=numel(shape[:-1]), grain=max(1, GRAIN // max(shape[-1], 1)),
    )  # fmt: skip
    return out


def growth(to: AxisMap) -> tuple[float, int]:
    """Sorts axes: those that shrink come first, the outer one before others, then by how much they grow."""
    factor = to.places / to.length
    return (0.0, to.axis) if factor < 1 else (factor, -to.axis)


def mapped(x: Tensor, maps: Maps, back: bool, told_by: float) -> Tensor:
    """Map axes one after the other: those that shrink come first, and last on the way back.

    Of these the outer one comes first, which leaves out whole lines, and of axes that grow alike the inner one:
    short lines cost more than long ones.
    """
    if not all(to.places for to in maps.axes):  # nothing is left, of which nothing comes back
        shape = list(x.shape)
        for to in maps.axes:
            shape[to.axis] = to.length if back else to.places
        return creation.zeros(*shape, dtype=x.dtype, device=x.device)
    at_end = layouts.channels_last(x)
    where = layouts.last(x.ndim) if at_end else tuple(range(x.ndim))
    y = layouts.in_memory(x, at_end)
    order = sorted(maps.axes, key=growth)
    if not back and order and order[0].kind >= kernels.REFLECT:
        by_place = {where.index(to.axis): to for to in order if where.index(to.axis) >= y.ndim - 3}
        y = pad_volumes(y, by_place)
        order = [to for to in order if where.index(to.axis) not in by_place]
    for to in reversed(order) if back else order:
        y = map_axis(y, where.index(to.axis), to, back)
    return layouts.as_images(y, at_end, x, told_by=told_by)


def mapping(
    backward_name: str, is_straight: bool = False, *, told_by: float = layouts.IMAGES
) -> Operation:
    """An op that maps axes, and under its name in the graph the one that maps gradients back, which may have
    an edge to what was mapped; `told_by` as `as_images` takes it."""
    back_name = backward_name.replace("Backward", "BackwardBackward")

    @operation(backward_name)
    def map_axes(x: Tensor, maps: Maps) -> Tensor:
        """`x` with some axes mapped."""
        return mapped(x, maps, False, told_by)

    map_axes.linear("x")
    map_axes.straight = back_name if is_straight else ""

    @map_axes.vjp
    def _(g, maps):  # type: ignore[no-untyped-def]
        return map_back(g, maps)

    map_axes.batched_by_folding()

    @operation(back_name)
    def map_back(g: Tensor, maps: Maps) -> Tensor:
        """The gradient of what was mapped."""
        return mapped(g, maps, True, told_by)

    map_back.linear("g")

    @map_back.vjp
    def _(g, maps):  # type: ignore[no-untyped-def]
        return map_axes(g, maps)

    map_back.batched_by_folding()

    return map_axes


PADS: dict[str, Any] = {
    mode: [mapping(f"{name}Pad{n}DBackward0", is_straight, told_by=told_by) for n in (1, 2, 3)]
    for mode, name, is_straight, told_by in (
        ("reflect", "Reflection", True, layouts.IMAGES),
        ("replicate", "Replication", True, layouts.IMAGES),
        ("circular", "Circular", False, layouts.NOTHING),
    )
}  # fmt: skip
PAD_KINDS = {
    "reflect": kernels.REFLECT,
    "replicate": kernels.REPLICATE,
    "circular": kernels.CIRCULAR,
}
