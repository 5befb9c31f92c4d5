"""Rules for shapes: other sizes, other orders, parts and joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..builder import GraphBuilder, OnnxValue
from ..errors import UnsupportedOperatorError
from ..sizes import DynamicSize
from .registry import RULES, Rule, rule


def sizes_in(given: Sequence[Any]) -> list[Any]:
    """Sizes that were given one by one or as one sequence."""
    first = given[0] if given else ()
    return list(first if isinstance(first, (tuple, list)) else given)


@rule("view", "reshape")
def reshape(g: GraphBuilder, input: OnnxValue, *shape: Any, **named: Any) -> OnnxValue:
    if shape and type(shape[0]).__name__ == "dtype":
        raise UnsupportedOperatorError("views of the bytes in another dtype have no rule")
    sizes = sizes_in(shape) or list(next(iter(named.values()), ()))
    return g.reshape(input, sizes)


@rule("flatten", "unflatten", "ravel", "view_as", "reshape_as", "squeeze", "unsqueeze")
def to_shape(g: GraphBuilder, input: OnnxValue, *ways: Any, **more: Any) -> OnnxValue:
    return g.reshape(input, g.out.shape)


@rule("expand", "expand_as", "broadcast_to")
def expand(g: GraphBuilder, input: OnnxValue, *ways: Any, **more: Any) -> OnnxValue:
    return g.expand(input, g.out.shape)


@rule("broadcast_tensors")
def broadcast_tensors(g: GraphBuilder, *tensors: Any) -> Any:
    return [g.expand(x, out.shape) for x, out in zip(sizes_in(tensors), g.outs, strict=True)]


@rule("repeat", "tile")
def repeat(g: GraphBuilder, input: OnnxValue, *sizes: Any, **named: Any) -> OnnxValue:
    times = sizes_in(sizes) or list(next(iter(named.values()), ()))
    times = [1] * (input.ndim - len(times)) + times
    lines = [1] * (len(times) - input.ndim) + list(input.shape)
    x = g.reshape(input, lines) if len(lines) > input.ndim else input
    return g.node("Tile", x, g.ints(times))


@rule("repeat_interleave")
def repeat_interleave(
    g: GraphBuilder,
    input: OnnxValue,
    repeats: Any = None,
    dim: int | None = None,
    *,
    output_size: Any = None,
) -> OnnxValue:
    if isinstance(repeats, OnnxValue):
        raise UnsupportedOperatorError("'repeat_interleave' by a tensor has no rule")
    axis = 0 if dim is None else dim % input.ndim
    shape = [g.count(input.shape)] if dim is None else list(input.shape)
    x = g.unsqueeze(g.reshape(input, shape) if dim is None else input, axis + 1)
    times = [1] * (len(shape) + 1)
    times[axis + 1] = repeats
    return g.reshape(g.node("Tile", x, g.ints(times)), g.out.shape)


# ----- orders -----


def moved(ndim: int, source: Any, destination: Any) -> list[int]:
    """The order of dimensions after some were moved."""
    froms, tos = ([d] if isinstance(d, int) else list(d) for d in (source, destination))
    places = {to % ndim: one % ndim for one, to in zip(froms, tos, strict=True)}
    rest = iter(d for d in range(ndim) if d not in places.values())
    return [places[d] if d in places else next(rest) for d in range(ndim)]


@rule("permute")
def permute(g: GraphBuilder, input: OnnxValue, *dims: Any, **named: Any) -> OnnxValue:
    order = sizes_in(dims) or list(next(iter(named.values()), ()))
    return g.transpose(input, [d % input.ndim for d in order])


@rule("transpose", "swapaxes", "swapdims")
def transpose(g: GraphBuilder, input: OnnxValue, dim0: int, dim1: int) -> OnnxValue:
    order = list(range(input.ndim))
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return g.transpose(input, order)


@rule("movedim", "moveaxis")
def movedim(g: GraphBuilder, input: OnnxValue, source: Any, destination: Any) -> OnnxValue:
    return g.transpose(input, moved(input.ndim, source, destination))


@rule("t", "T")
def reversed_dims(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
    return g.transpose(input, list(range(input.ndim))[::-1])


@rule("mT", "H", "mH", "adjoint")
def turned_matrices(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
    return transpose(g, input, -2, -1)


@rule("fliplr")
def fliplr(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
    return flip(g, input, 1)


@rule("flipud")
def flipud(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
    return flip(g, input, 0)


@rule("flip")
def flip(g: GraphBuilder, input: OnnxValue, *dims: Any, **named: Any) -> OnnxValue:
    axes = [d % input.ndim for d in sizes_in(dims) or sizes_in(list(named.values()))]
    ends = [-1] * len(axes), [np.iinfo(np.int64).min] * len(axes), axes, [-1] * len(axes)
    return g.node("Slice", input, *map(g.ints, ends))


@rule("roll")
def roll(g: GraphBuilder, input: OnnxValue, shifts: Any, dims: Any = None) -> OnnxValue:
    pairs = zip(*(x if isinstance(x, (tuple, list)) else [x] for x in (shifts, dims)), strict=True)
    if dims is None:
        flat = rolled(g, g.reshape(input, [-1]), 0, shifts)
        return g.reshape(flat, input.shape)
    value = input
    for shift, dim in pairs:
        value = rolled(g, value, dim, shift)
    return value


def rolled(g: GraphBuilder, value: OnnxValue, axis: int, shift: Any) -> OnnxValue:
    """The last elements before the others. Shifts of more than all elements are not known to be such."""
    if isinstance(shift, (DynamicSize, tuple, list)):
        raise UnsupportedOperatorError("'roll' by this number has no rule")
    if shift == 0:
        return value
    parts = g.slice(value, axis, -shift, None), g.slice(value, axis, 0, -shift)
    made: OnnxValue = g.node("Concat", *parts, axis=axis)
    return made


# ----- joins and parts -----


@rule("cat", "concat", "concatenate")
def cat(g: GraphBuilder, tensors: Sequence[OnnxValue], dim: int = 0) -> OnnxValue:
    there = [t for t in tensors if t.shape != (0,) or g.out.ndim == 1]
    parts = [g.cast(t, g.out.dtype) for t in there]
    return g.node("Concat", *parts, axis=dim)


@rule("stack")
def stack(g: GraphBuilder, tensors: Sequence[OnnxValue], dim: int = 0) -> OnnxValue:
    axis = dim % g.out.ndim
    return g.node(
        "Concat", *(g.unsqueeze(g.cast(t, g.out.dtype), axis) for t in tensors), axis=axis
    )


def joined_along(axis: int, places: Sequence[tuple[int, ...]]) -> Rule:
    """The rule of joining tensors that get dimensions of size one first, where they have so few."""

    def write(g: GraphBuilder, tensors: Sequence[OnnxValue]) -> OnnxValue:
        parts = [g.cast(t, g.out.dtype) for t in tensors]
        parts = [g.unsqueeze(t, *places[t.ndim]) if t.ndim < len(places) else t for t in parts]
        return g.node("Concat", *parts, axis=axis if g.out.ndim > 1 else 0)

    return write


RULES["hstack"] = joined_along(1, [(0,)])
RULES["vstack"] = RULES["row_stack"] = joined_along(0, [(0, 1), (0,)])
RULES["dstack"] = joined_along(2, [(0, 1, 2), (0, 2), (2,)])


def parts_along(g: GraphBuilder, input: OnnxValue, axis: int) -> list[OnnxValue]:
    """The value cut into parts as large as the results."""
    sizes = [out.shape[axis] for out in g.outs]
    if len(sizes) == 1:
        return [g.node("Identity", input)]
    found: list[OnnxValue] = g.node("Split", input, g.ints(sizes), outputs=len(sizes), axis=axis)
    return found


@rule("chunk", "split", "tensor_split", "split_with_sizes")
def split(
    g: GraphBuilder, input: OnnxValue, way: Any = None, dim: int = 0, **named: Any
) -> list[OnnxValue]:
    return parts_along(g, input, dim % input.ndim)


@rule("unbind")
def unbind(g: GraphBuilder, input: OnnxValue, dim: int = 0) -> list[OnnxValue]:
    axis = dim % input.ndim
    size = input.shape[axis]
    if isinstance(size, DynamicSize):
        raise UnsupportedOperatorError("a tensor is unbound along a dynamic dimension")
    return [g.node("Gather", input, g.constant(k, np.int64), axis=axis) for k in range(size)]


@rule("pixel_shuffle")
def pixel_shuffle(g: GraphBuilder, input: OnnxValue, upscale_factor: int) -> OnnxValue:
    if input.ndim != 4:
        raise UnsupportedOperatorError("'pixel_shuffle' has a rule for 4 dimensions only")
    return g.node("DepthToSpace", input, blocksize=upscale_factor, mode="CRD")


PADDING = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@rule("pad")
def pad(
    g: GraphBuilder,
    input: OnnxValue,
    pad: Sequence[Any],
    mode: Any = "constant",
    value: float | None = None,
) -> OnnxValue:
    if not isinstance(mode, str):
        mode, value = "constant", mode
    befores, afters = [0] * input.ndim, [0] * input.ndim
    for k, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        befores[-1 - k], afters[-1 - k] = before, after
    filled = g.constant(value or 0, input.dtype) if mode == "constant" else None
    return g.node("Pad", input, g.ints([*befores, *afters]), filled, mode=PADDING[mode])


def triangle(upper: int) -> Rule:
    """The rule of `tril` or `triu`."""

    def write(g: GraphBuilder, input: OnnxValue, diagonal: int = 0) -> OnnxValue:
        x = g.cast(input, np.int32) if input.dtype == np.bool_ else input
        return g.node("Trilu", x, g.constant(diagonal, np.int64), upper=upper)

    return write


RULES.update({"tril": triangle(0), "triu": triangle(1)})

MODES = {"nearest": "nearest", "bilinear": "linear", "linear": "linear", "trilinear": "linear",
         "bicubic": "cubic", "nearest-exact": "nearest"}  # fmt: skip


@rule("interpolate")
def interpolate(
    g: GraphBuilder, input: OnnxValue, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> OnnxValue:  # fmt: skip
    if antialias or mode not in MODES:
        raise UnsupportedOperatorError(
            f"'interpolate' with mode={mode!r} and antialias={antialias} has no rule"
        )
    turned = {"nearest": "asymmetric", "nearest-exact": "half_pixel"}
    way = turned.get(mode, "align_corners" if align_corners else "pytorch_half_pixel")
    settings: dict[str, Any] = {"mode": MODES[mode], "coordinate_transformation_mode": way}
    if mode == "nearest":
        settings["nearest_mode"] = "floor"
    elif mode == "nearest-exact":
        settings["nearest_mode"] = "round_prefer_ceil"
    if mode == "bicubic":
        settings["cubic_coeff_a"] = -0.75
    if size is None and not recompute_scale_factor:
        count = input.ndim - 2
        scales = (
            list(scale_factor)
            if isinstance(scale_factor, (tuple, list))
            else [scale_factor] * count
        )
        return g.node("Resize", input, None, g.constant([1, 1, *scales], np.float32), **settings)
    return g.node("Resize", input, None, None, resized(g, input), **settings)


def resized(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
    """The shape of the result: the first two sizes are those of the input when the graph runs."""
    made: OnnxValue = g.node("Concat", g.shape_of(input, 0, 2), g.ints(g.out.shape[2:]), axis=0)
    return made
