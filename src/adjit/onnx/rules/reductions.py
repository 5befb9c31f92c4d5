"""Rules for what becomes fewer elements, and for what goes along a dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..builder import GraphBuilder, OnnxValue, Operand
from ..errors import UnsupportedOperatorError
from .elementwise import binary, truth
from .registry import RULES, Rule, rule

Axes = int | Sequence[int] | None
SIMPLE = {
    "sum": "ReduceSum",
    "mean": "ReduceMean",
    "prod": "ReduceProd",
    "amax": "ReduceMax",
    "amin": "ReduceMin",
}


def axes_of(dim: Axes, ndim: int) -> list[int]:
    """The dimensions that are meant, all if none is named."""
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return list(range(ndim))
    dims = dim if isinstance(dim, (tuple, list)) else [dim]
    return [d % ndim if ndim else 0 for d in dims]  # type: ignore[operator]


def reduce(
    g: GraphBuilder, op: str, x: OnnxValue, ndim: int, dim: Axes, keepdim: bool = False
) -> OnnxValue:
    """One reduction over dimensions."""
    if not ndim:
        return g.node("Identity", x)
    return g.node(op, x, g.constant(axes_of(dim, ndim), np.int64), keepdims=int(keepdim))


def simple(op: str) -> Rule:
    """The rule of a reduction in the dtype of the result."""

    def write(
        g: GraphBuilder,
        input: OnnxValue,
        dim: Axes = None,
        keepdim: bool = False,
        *,
        dtype: Any = None,
    ) -> OnnxValue:
        return reduce(g, op, g.cast(input, g.out.dtype), input.ndim, dim, keepdim)

    return write


RULES.update({name: simple(op) for name, op in SIMPLE.items()})


def extreme(op: str) -> Rule:
    """The rule of `max` or `min`: of all elements, along a dimension with indices, or of two tensors."""

    def write(
        g: GraphBuilder,
        input: OnnxValue,
        dim: Any = None,
        keepdim: bool = False,
        *,
        other: Any = None,
    ) -> Any:
        other = dim if isinstance(dim, OnnxValue) else other
        if other is not None:
            return binary(op, None)(g, input, other)
        values = reduce(g, f"Reduce{op}", input, input.ndim, dim, keepdim)
        if dim is None:
            return values
        return values, place_of_extreme(g, f"Arg{op}", input, dim, keepdim)

    return write


RULES.update({"max": extreme("Max"), "min": extreme("Min")})


def place_of_extreme(g: GraphBuilder, op: str, x: OnnxValue, dim: int, keepdim: bool) -> OnnxValue:
    """The first index of the largest or smallest element."""
    if x.ndim == 0:
        return g.constant(0, np.int64)
    made: OnnxValue = g.node(op, x, dtype=np.int64, axis=dim % x.ndim, keepdims=int(keepdim))
    return made


def place(op: str) -> Rule:
    """The rule of `argmax` or `argmin`."""

    def write(
        g: GraphBuilder, input: OnnxValue, dim: int | None = None, keepdim: bool = False
    ) -> OnnxValue:
        if dim is not None:
            return place_of_extreme(g, op, input, dim, keepdim)
        flat = g.node("Reshape", input, g.constant([-1], np.int64))
        found = g.node(op, flat, dtype=np.int64, axis=0, keepdims=0)
        return (
            g.node("Reshape", found, g.constant([1] * input.ndim, np.int64)) if keepdim else found
        )

    return write


RULES.update({"argmax": place("ArgMax"), "argmin": place("ArgMin")})


def of_truth(op: str) -> Rule:
    """The rule of `any` or `all`."""

    def write(
        g: GraphBuilder, input: OnnxValue, dim: Axes = None, keepdim: bool = False
    ) -> OnnxValue:
        numbers = g.cast(truth(g, input), np.int32)
        return g.cast(reduce(g, op, numbers, input.ndim, dim, keepdim), np.bool_)

    return write


RULES.update({"any": of_truth("ReduceMax"), "all": of_truth("ReduceMin")})


@rule("logsumexp")
def logsumexp(g: GraphBuilder, input: OnnxValue, dim: Axes, keepdim: bool = False) -> OnnxValue:
    x = g.cast(input, g.out.dtype)
    largest = reduce(g, "ReduceMax", x, input.ndim, dim, True)
    limits = np.finfo(x.dtype)
    largest = g.binary("Max", g.binary("Min", largest, limits.max), limits.min)  # inf - inf is NaN
    total = reduce(g, "ReduceSum", g.node("Exp", g.node("Sub", x, largest)), input.ndim, dim, True)
    found = g.node("Add", g.node("Log", total), largest)
    return found if keepdim else g.squeeze(found, *axes_of(dim, input.ndim))


def variance(
    g: GraphBuilder, x: OnnxValue, dim: Any, unbiased: Any, keepdim: bool, correction: float | None
) -> tuple[OnnxValue, OnnxValue]:
    """The variance and the mean along dimensions."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    axes = axes_of(dim, x.ndim)
    mean = reduce(g, "ReduceMean", x, x.ndim, axes, True)
    away = g.node("Sub", x, mean)
    squares = g.node("Mul", away, away)
    if correction == 0:
        found = reduce(g, "ReduceMean", squares, x.ndim, axes, keepdim)
    else:
        freedom = g.count([x.shape[axis] for axis in axes]) - int(correction)
        if correction != int(correction):
            raise UnsupportedOperatorError(
                "variances with a correction that is a fraction have no rule"
            )
        total = reduce(g, "ReduceSum", squares, x.ndim, axes, keepdim)
        found = g.binary("Div", total, freedom)
    return found, mean if keepdim else g.squeeze(mean, *axes)


@rule("var")
def var(
    g: GraphBuilder, input: OnnxValue, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
    correction: float | None = None,
) -> OnnxValue:  # fmt: skip
    return variance(g, input, dim, unbiased, keepdim, correction)[0]


@rule("std")
def std(
    g: GraphBuilder, input: OnnxValue, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
    correction: float | None = None,
) -> OnnxValue:  # fmt: skip
    return g.node("Sqrt", variance(g, input, dim, unbiased, keepdim, correction)[0])


@rule("var_mean")
def var_mean(
    g: GraphBuilder, input: OnnxValue, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
    correction: float | None = None,
) -> Any:  # fmt: skip
    return variance(g, input, dim, unbiased, keepdim, correction)


@rule("std_mean")
def std_mean(
    g: GraphBuilder, input: OnnxValue, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
    correction: float | None = None,
) -> Any:  # fmt: skip
    found, mean = variance(g, input, dim, unbiased, keepdim, correction)
    return g.node("Sqrt", found), mean


@rule("norm", "vector_norm")
def norm(
    g: GraphBuilder, input: OnnxValue, p: Any = 2, dim: Axes = None, keepdim: bool = False,
    dtype: Any = None, ord: Any = None,
) -> OnnxValue:  # fmt: skip
    power = p if ord is None else ord
    power = 2.0 if power in ("fro", None) else float(power)
    x = g.node("Abs", g.cast(input, g.out.dtype))
    if math.isinf(power):
        return reduce(g, "ReduceMax" if power > 0 else "ReduceMin", x, input.ndim, dim, keepdim)
    if power == 0:
        is_there = g.cast(g.cast(x, np.bool_), x.dtype)
        return reduce(g, "ReduceSum", is_there, input.ndim, dim, keepdim)
    if power in (1.0, 2.0):
        return reduce(g, f"ReduceL{int(power)}", x, input.ndim, dim, keepdim)
    total = reduce(g, "ReduceSum", g.binary("Pow", x, power), input.ndim, dim, keepdim)
    return g.binary("Pow", total, 1 / power)


@rule("cosine_similarity")
def cosine_similarity(
    g: GraphBuilder, x1: OnnxValue, x2: OnnxValue, dim: int = 1, eps: float = 1e-8
) -> OnnxValue:
    x, y = (g.cast(v, g.out.dtype) for v in (x1, x2))
    axes = g.constant([dim - (dim >= 0) * (g.out.ndim + 1)], np.int64)
    lengths = (g.binary("Max", g.node("ReduceL2", v, axes, keepdims=1), eps) for v in (x, y))
    x, y = (g.node("Div", v, length) for v, length in zip((x, y), lengths, strict=True))
    return g.node("ReduceSum", g.node("Mul", x, y), axes, keepdims=0)


@rule("cumsum")
def cumsum(g: GraphBuilder, input: OnnxValue, dim: int, *, dtype: Any = None) -> OnnxValue:
    x = g.cast(input, g.out.dtype)
    return g.node("CumSum", x, g.constant(dim % input.ndim, np.int64)) if input.ndim else x


@rule("topk")
def topk(
    g: GraphBuilder,
    input: OnnxValue,
    k: Operand,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
) -> Any:
    return g.node(
        "TopK", input, g.size(k),  # type: ignore[arg-type]
        outputs=2, dtype=[input.dtype, np.int64], axis=dim, largest=int(largest), sorted=int(sorted),
    )  # fmt: skip


@rule("sort")
def sort(
    g: GraphBuilder, input: OnnxValue, dim: int = -1, descending: bool = False, stable: Any = None
) -> Any:
    return topk(g, input, input.shape[dim], dim, descending)


@rule("argsort")
def argsort(
    g: GraphBuilder, input: OnnxValue, dim: int = -1, descending: bool = False, stable: Any = None
) -> OnnxValue:
    found: OnnxValue = sort(g, input, dim, descending)[1]
    return found


@rule("aminmax")
def aminmax(
    g: GraphBuilder, input: OnnxValue, *, dim: int | None = None, keepdim: bool = False
) -> Any:
    return [reduce(g, op, input, input.ndim, dim, keepdim) for op in ("ReduceMin", "ReduceMax")]


@rule("normalize")
def normalize(
    g: GraphBuilder,
    input: OnnxValue,
    p: float = 2.0,
    dim: Axes = 1,
    eps: float = 1e-12,
    out: Any = None,
) -> OnnxValue:
    length = norm(g, input, p, dim, True)
    return g.node("Div", input, g.binary("Max", length, eps))
