"""Rules for rows and elements: indexing, gathering, scattering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..builder import GraphBuilder, OnnxValue, Operand
from ..errors import UnsupportedOperatorError
from ..sizes import DynamicSize
from .elementwise import where
from .registry import rule


@rule("gather")
def gather(
    g: GraphBuilder, input: OnnxValue, dim: int, index: OnnxValue, *, sparse_grad: bool = False
) -> OnnxValue:
    return g.node("GatherElements", input, index, axis=dim % input.ndim)


@rule("index_select")
def index_select(g: GraphBuilder, input: OnnxValue, dim: int, index: OnnxValue) -> OnnxValue:
    return g.node("Gather", input, index, axis=dim % input.ndim)


@rule("embedding")
def embedding(
    g: GraphBuilder, input: OnnxValue, weight: OnnxValue, padding_idx: int | None = None,
    max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> OnnxValue:  # fmt: skip
    if max_norm is not None:
        raise UnsupportedOperatorError(
            "'embedding' with max_norm changes its weights, and has no rule"
        )
    return g.node("Gather", weight, input, axis=0)


@rule("select")
def select(g: GraphBuilder, input: OnnxValue, dim: int, index: Any) -> OnnxValue:
    return g.node("Gather", input, number(g, index), axis=dim % input.ndim)


@rule("narrow")
def narrow(g: GraphBuilder, input: OnnxValue, dim: int, start: Any, length: Any) -> OnnxValue:
    if isinstance(start, OnnxValue) or (not isinstance(start, DynamicSize) and start < 0):
        raise UnsupportedOperatorError("'narrow' with this start has no rule")
    return g.slice(input, dim, start, start + length)


def number(g: GraphBuilder, value: Any) -> OnnxValue:
    """A number as a scalar of int64."""
    return g.operand(value, np.int64)


def split_index(input: OnnxValue, index: Any) -> list[Any]:
    """An index as parts, one for each dimension of the tensor besides None."""
    parts = list(index) if isinstance(index, tuple) else [index]
    parts = [np.asarray(p) if isinstance(p, list) else p for p in parts]
    if any(is_mask(p) for p in parts):
        raise UnsupportedOperatorError(
            "indexing by a mask gives as many elements as values are true, and has no rule; use where()"
        )
    used = sum(part is not None and part is not Ellipsis for part in parts)
    filler = [slice(None)] * (input.ndim - used)
    place = next((k for k, part in enumerate(parts) if part is Ellipsis), None)
    return parts + filler if place is None else parts[:place] + filler + parts[place + 1 :]


def is_mask(part: Any) -> bool:
    """Whether part of an index is truth values."""
    return isinstance(part, bool) or (
        isinstance(part, (OnnxValue, np.ndarray)) and part.dtype == np.bool_
    )


@rule("__getitem__")
def getitem(g: GraphBuilder, input: OnnxValue, index: Any) -> OnnxValue:
    parts = split_index(input, index)
    value, axis, tensors = input, 0, {}
    for part in parts:
        if isinstance(part, slice):
            if part != slice(None):
                value = g.slice(
                    value, axis, part.start, part.stop, 1 if part.step is None else part.step
                )
            axis += 1
        elif part is None:
            value = g.unsqueeze(value, axis)
            axis += 1
        elif isinstance(part, (OnnxValue, np.ndarray)) and part.ndim:
            tensors[axis] = part if isinstance(part, OnnxValue) else g.constant(part, np.int64)
            axis += 1
        elif any(isinstance(p, (OnnxValue, np.ndarray)) and p.ndim for p in parts):
            tensors[axis] = number(g, part)
            axis += 1
        else:
            value = g.node("Gather", value, number(g, part), axis=axis)
    if not tensors:
        return g.node("Identity", value) if value is input else value
    return gathered(g, value, axis, tensors)


def gathered(
    g: GraphBuilder, value: OnnxValue, ndim: int, tensors: dict[int, OnnxValue]
) -> OnnxValue:
    """Elements by tensors of indices for some dimensions."""
    axes = sorted(tensors)
    if len(axes) == 1:
        return g.node("Gather", value, tensors[axes[0]], axis=axes[0])
    rest = [axis for axis in range(ndim) if axis not in tensors]
    picked: OnnxValue = g.node(
        "GatherND", g.transpose(value, axes + rest), joined(g, [tensors[a] for a in axes])
    )
    if axes != list(range(axes[0], axes[-1] + 1)):
        return picked  # with the dimensions of the indices in front
    width = g.out.ndim - len(rest)
    before = axes[0]
    order = [*range(width, width + before), *range(width), *range(width + before, g.out.ndim)]
    return g.transpose(picked, order)


def joined(g: GraphBuilder, indices: Sequence[OnnxValue]) -> OnnxValue:
    """Tensors of indices, expanded to one shape, side by side in a last dimension."""
    shape = g.shape_of(indices[0])
    total = indices[0]
    for other in indices[1:]:
        total = g.node("Add", total, g.cast(other, total.dtype))
        shape = g.shape_of(total)
    columns = [g.node("Expand", g.cast(i, np.int64), shape) for i in indices]
    last = g.constant([-1], np.int64)
    made: OnnxValue = g.node("Concat", *(g.node("Unsqueeze", c, last) for c in columns), axis=-1)
    return made


@rule("__setitem__")
def setitem(g: GraphBuilder, input: OnnxValue, index: Any, value: Operand) -> OnnxValue:
    if is_mask(index):
        return where(g, index, value, input)
    parts = split_index(input, index)
    places = input_places(g, input, parts)
    shape = g.shape_of(places)
    filled = g.node("Expand", g.operand(value, input.dtype), shape)
    flat = g.node("Reshape", input, g.constant([-1], np.int64))
    last = g.constant([-1], np.int64)
    written = g.node(
        "ScatterElements",
        flat,
        g.node("Reshape", places, last),
        g.node("Reshape", filled, last),
        axis=0,
    )
    return g.node("Reshape", written, g.shape_of(input))


def input_places(g: GraphBuilder, input: OnnxValue, parts: Sequence[Any]) -> OnnxValue:
    """The places in memory of the elements that an index stands for, in the shape that it gives."""
    count = g.node("ReduceProd", g.shape_of(input), keepdims=0)
    every = g.node("Range", g.constant(0, np.int64), count, g.constant(1, np.int64))
    numbered: OnnxValue = g.node("Reshape", every, g.shape_of(input))
    numbered.known_shape = input.known_shape
    return getitem(g, numbered, tuple(parts))


@rule("index_fill")
def index_fill(
    g: GraphBuilder, input: OnnxValue, dim: int, index: OnnxValue, value: Operand
) -> OnnxValue:
    return setitem(g, input, (*[slice(None)] * (dim % input.ndim), index), value)


@rule("scatter")
def scatter(
    g: GraphBuilder, input: OnnxValue, dim: int, index: OnnxValue, src: Any = None, *, value: Any = None,
    reduce: str | None = None,
) -> OnnxValue:  # fmt: skip
    if reduce is not None:
        raise UnsupportedOperatorError("'scatter' with reduce has no rule")
    given = value if src is None else src
    if not isinstance(given, OnnxValue):
        given = g.expand(g.constant(given, input.dtype), index.shape)
    elif given.shape != index.shape:
        raise UnsupportedOperatorError("'scatter' of a tensor larger than its index has no rule")
    return g.node(
        "ScatterElements", input, index, g.cast(given, input.dtype), axis=dim % input.ndim
    )


@rule("scatter_add")
def scatter_add(
    g: GraphBuilder, input: OnnxValue, dim: int, index: OnnxValue, src: OnnxValue
) -> OnnxValue:
    if src.shape != index.shape:
        raise UnsupportedOperatorError(
            "'scatter_add' of a tensor larger than its index has no rule"
        )
    return g.node("ScatterElements", input, index, src, axis=dim % input.ndim, reduction="add")


@rule("index_put")
def index_put(
    g: GraphBuilder,
    input: OnnxValue,
    indices: Sequence[Any],
    values: Operand,
    accumulate: bool = False,
) -> OnnxValue:
    if accumulate:
        raise UnsupportedOperatorError("'index_put' with accumulate has no rule")
    index = tuple(indices)
    return setitem(g, input, index[0] if len(index) == 1 else index, values)


@rule("take_along_dim")
def take_along_dim(
    g: GraphBuilder, input: OnnxValue, indices: OnnxValue, dim: int | None = None
) -> OnnxValue:
    if dim is None or indices.ndim != input.ndim or indices.shape != g.out.shape:
        raise UnsupportedOperatorError(
            "'take_along_dim' with indices that are expanded has no rule"
        )
    return gather(g, input, dim, indices)


@rule("one_hot")
def one_hot(g: GraphBuilder, tensor: OnnxValue, num_classes: int = -1) -> OnnxValue:
    if not isinstance(num_classes, DynamicSize) and num_classes < 0:
        raise UnsupportedOperatorError("'one_hot' without num_classes depends on values; name it")
    return g.node(
        "OneHot",
        tensor,
        number(g, num_classes),
        g.constant([0, 1], np.int64),
        dtype=np.int64,
        axis=-1,
    )
