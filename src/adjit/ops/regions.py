"""Strided regions of a tensor: the gradients of views by any geometry, and of writes into them."""

from __future__ import annotations

from typing import Any

from ..formats import contiguous_format
from ..graph import record, write
from ..graph.launch import launch
from ..graph.node import Spec, dense_spec, spec_of
from ..graph.operation import operation
from ..graph.state import state
from ..kernels.ops import strided
from ..schedule.jit.cache import instantiate
from ..schedule.planning.recipe import GRAIN, Recipe, Step
from ..shapes import coalesce, is_dense
from ..tensor import Tensor
from .conversions import clone
from .creation import zeros
from .view import expand


def zeros_in(spec: Spec) -> Tensor:
    """Zeros of a shape and dtype, on a device, in C order."""
    return zeros(spec.shape, dtype=spec.dtype, device=spec.device)


@operation("ScatterStridedBackward0")
def scatter_strided(g: Tensor, base: Spec, region: Spec, offset: int) -> Tensor:
    """Zeros in the geometry of `base`, with `g` added where a strided region of it lies."""
    base, region, offset = follow(base, region, offset)
    if g._spec.contiguous is False:
        g = clone(g, memory_format=contiguous_format)
    flat = zeros_in(dense_spec((base.numel,), base.dtype, base.device))
    out = launch(
        strided.add_region, (flat, g), [((base.numel,), base.dtype)], bind={"T": base.dtype},
        words=(base.numel, offset, *_walk_of(region)), n=1,
    )  # fmt: skip
    return record.make_tensor(out._storage, base)


scatter_strided.linear("g")


def _walk_of(region: Spec) -> tuple[int, ...]:
    """The words by which a kernel walks through a region: rank, sizes, strides."""
    sizes, (strides,) = coalesce(region.shape, [region.strides])
    return len(sizes) or 1, *(sizes or (1,)), *(strides or (1,))


def part_recipe(whole: Spec, part: Spec, given: Spec) -> Recipe | None:
    """How a gradient that lies as `given` is added, from an offset on, to the part of another one; None if
    that takes more than this."""
    key = whole, part, given
    recipe = part_recipes.get(key)
    if recipe is None and given.contiguous and given.dtype is whole.dtype:
        kind, words = {"T": whole.dtype}, _walk_of(part)
        copy = Step(instantiate(strided.copy_whole, kind), whole.numel, GRAIN)
        add = Step(instantiate(strided.add_to_region, kind), part.numel, GRAIN)
        named = "add_to_region", (whole, given), (whole,)
        recipe = Recipe(*named, [copy, add], words, scalars=1)
        recipe.alias = Recipe(*named, [add], words, scalars=1)
        if len(part_recipes) >= record.MAX_RECIPES:
            part_recipes.clear()
        part_recipes[key] = recipe
    return recipe


part_recipes: dict[tuple[Spec, Spec, Spec], Recipe] = {}


@scatter_strided.vjp
def _(g: Any, base: Any, region: Any, offset: Any) -> Any:
    return gather_strided(g, base, region, offset, False)


@operation("GatherStridedBackward0")
def gather_strided(g: Tensor, base: Spec, region: Spec, offset: int, is_whole: bool) -> Tensor:
    """The region of a gradient that has the shape of `base`, wherever its own bytes lie."""
    base, region, offset = follow(base, region, offset)
    laid = _laid_out(g, base, is_whole)
    before, behind = -min(offset, 0), max(offset + region.extent - base.numel, 0)
    if before or behind:  # the region may show elements of the storage that `base` does not have
        flat = record.make_tensor(laid._storage, dense_spec((base.numel,), base.dtype, base.device))
        laid = zeros(before + base.numel + behind, dtype=base.dtype, device=base.device)
        laid.narrow(0, before, base.numel).copy_(flat)
    view = record.make_tensor(laid._storage, region, offset + before)
    return clone(view, memory_format=contiguous_format)


gather_strided.linear("g")


@gather_strided.vjp
def _(g: Any, base: Any, region: Any, offset: Any) -> Any:
    return scatter_strided(g, base, region, offset)


@operation("WithoutRegionBackward0")
def without_region(g: Tensor, base: Spec, region: Spec, offset: int, is_whole: bool) -> Tensor:
    """A gradient of `base` with a strided region set to zero."""
    base, region, offset = follow(base, region, offset)
    laid = _laid_out(g, base, is_whole)
    write.store(
        record.make_tensor(laid._storage, region, offset),
        expand(zeros_in(dense_spec((), base.dtype, base.device)), region.shape),
    )
    return record.make_tensor(laid._storage, base)


without_region.linear("g")


@without_region.vjp
def _(g: Any, base: Any, region: Any, offset: Any) -> Any:
    return without_region(g, base, region, offset, False)


def of_examples(g: Tensor, base: Spec, region: Spec, offset: int) -> tuple[Spec, Spec]:
    """The specs of a base, and of a region of it, for many: what belongs to one example lies in one piece."""
    room, size = base.extent, g.shape[0]
    if offset < 0 or offset + region.extent > room:
        raise RuntimeError(
            "a view of elements that its tensor does not show has no gradient inside of vmap"
        )
    return many(base, size, room), many(region, size, room)


def many(spec: Spec, size: int, apart: int) -> Spec:
    """So many of a spec, so many elements apart."""
    return spec_of((size, *spec.shape), (apart, *spec.strides), spec.dtype, spec.device)


@scatter_strided.batched
def _(g: Tensor, base: Spec, region: Spec, offset: int) -> Tensor:
    return scatter_strided(g, *of_examples(g, base, region, offset), offset)


@gather_strided.batched
def _(g: Tensor, base: Spec, region: Spec, offset: int, is_whole: bool) -> Tensor:
    return gather_strided(g, *of_examples(g, base, region, offset), offset, is_whole)


@without_region.batched
def _(g: Tensor, base: Spec, region: Spec, offset: int, is_whole: bool) -> Tensor:
    return without_region(g, *of_examples(g, base, region, offset), offset, is_whole)


def follow(base: Spec, region: Spec, offset: int) -> tuple[Spec, Spec, int]:
    """A region of `base` as the same region of a tensor without gaps.

    Each stride of the region is so many steps along each axis of `base`, and so is where it starts.

    Raises:
        RuntimeError: if elements of `base` overlap, or the region leaves them.
    """
    if is_dense(base.shape, base.strides):
        return base, region, offset
    dense = dense_spec(base.shape, base.dtype, base.device)
    axes = [
        axis for axis in zip(base.strides, dense.strides, base.shape, strict=True) if axis[2] > 1
    ]
    axes.sort()
    reach = 0  # of the axes so far
    overlap = False
    for stride, _, n in axes:
        overlap |= stride <= reach
        reach += stride * (n - 1)
    first, *moves = [steps_along(axes, elements) for elements in (offset, *region.strides)]
    last = first
    for move, n in zip(moves, region.shape, strict=True):
        last = [steps + (n - 1) * more for steps, more in zip(last, move, strict=True)]
    inside = all(steps < n for steps, (_, _, n) in zip(last, axes, strict=False)) and not last[-1]
    if overlap or not (inside or 0 in region.shape):
        raise RuntimeError(
            "the history of a write into a view of a tensor whose own elements overlap or have gaps "
            "cannot be kept; clone() the tensor first"
        )
    start, *strides = [
        sum([steps * new for steps, (_, new, _) in zip(move, axes, strict=False)])
        for move in (first, *moves)
    ]
    return dense, spec_of(region.shape, tuple(strides), region.dtype, region.device), start


def steps_along(axes: list[tuple[int, int, int]], elements: int) -> list[int]:
    """How many steps along each axis, the innermost one first, lead so many elements on; and what is left."""
    found = []
    for stride, _, n in reversed(axes):
        found.append(min(elements // stride, n - 1) if stride else 0)
        elements -= found[-1] * stride
    return [*found[::-1], elements]


def _laid_out(g: Tensor, base: Spec, is_whole: bool) -> Tensor:
    """`g` with the strides of `base` and nothing else in its storage: its value if that is so, or a copy.

    Who calls says so: what is recorded here is recorded again for any tensor with the same spec, wherever that
    begins in its memory.
    """
    if is_whole and g._spec is base:
        state.whole = True
        return record.make_tensor(record.make_storage(g._storage.value, base), base)
    made: Tensor = write.convert(g, base)
    return made
