"""Rules for products of matrices and for attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..builder import GraphBuilder, OnnxValue, Operand
from ..errors import UnsupportedOperatorError
from .reductions import reduce
from .registry import rule
from .shapes import transpose


def matrices(g: GraphBuilder, *values: OnnxValue) -> list[OnnxValue]:
    """The operands of a product in the dtype of the result."""
    return [g.cast(value, g.out.dtype) for value in values]


@rule("matmul", "mm", "bmm", "mv", "dot", "vdot")
def matmul(g: GraphBuilder, input: OnnxValue, other: OnnxValue) -> OnnxValue:
    return g.node("MatMul", *matrices(g, input, other))


@rule("__rmatmul__")
def rmatmul(g: GraphBuilder, input: OnnxValue, other: OnnxValue) -> OnnxValue:
    return matmul(g, other, input)


@rule("linear")
def linear(
    g: GraphBuilder, input: OnnxValue, weight: OnnxValue, bias: OnnxValue | None = None
) -> OnnxValue:
    if input.ndim == 2 and weight.ndim == 2:
        return g.node("Gemm", input, weight, bias, transB=1)
    turned = transpose(g, weight, -2, -1) if weight.ndim > 1 else weight
    found: OnnxValue = g.node("MatMul", input, turned)
    return found if bias is None else g.node("Add", found, bias)


@rule("addmm", "addmv", "baddbmm")
def added_product(
    g: GraphBuilder,
    input: OnnxValue,
    one: OnnxValue,
    other: OnnxValue,
    *,
    beta: Operand = 1,
    alpha: Operand = 1,
) -> OnnxValue:
    product: OnnxValue = g.node("MatMul", *matrices(g, one, other))
    if alpha != 1:
        product = g.binary("Mul", product, alpha)
    if beta == 0:
        return product  # NaN times 0 does not count
    added = g.cast(input, product.dtype)
    return g.node("Add", product, added if beta == 1 else g.binary("Mul", added, beta))


@rule("outer", "ger")
def outer(g: GraphBuilder, input: OnnxValue, vec2: OnnxValue) -> OnnxValue:
    x, y = matrices(g, input, vec2)
    return g.node("Mul", g.unsqueeze(x, 1), g.unsqueeze(y, 0))


@rule("einsum")
def einsum(g: GraphBuilder, equation: Any, *operands: Any) -> OnnxValue:
    if not isinstance(equation, str):
        raise UnsupportedOperatorError(
            "'einsum' with lists of dimensions has no rule; use an equation"
        )
    given: Sequence[OnnxValue] = operands[0] if isinstance(operands[0], (tuple, list)) else operands
    return g.node("Einsum", *matrices(g, *given), equation=equation.replace(" ", ""))


@rule("scaled_dot_product_attention")
def attention(
    g: GraphBuilder, query: OnnxValue, key: OnnxValue, value: OnnxValue, attn_mask: OnnxValue | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> OnnxValue:  # fmt: skip
    if dropout_p or enable_gqa:
        raise UnsupportedOperatorError(
            "'scaled_dot_product_attention' with dropout or groups of queries has no rule"
        )
    width = query.shape[-1]
    if scale is None:
        scale = 1 / math.sqrt(width)
    keys = transpose(g, key, -2, -1)
    scores = g.node("MatMul", g.binary("Mul", query, scale), keys)
    mask = attn_mask
    if is_causal:
        ones = g.expand(g.constant(1, np.int32), [query.shape[-2], key.shape[-2]])
        mask = g.cast(g.node("Trilu", ones, upper=0), np.bool_)
    if mask is None:
        return g.node("MatMul", g.node("Softmax", scores, axis=-1), value)
    if mask.dtype != np.bool_:
        scores = g.node("Add", scores, g.cast(mask, scores.dtype))
        return g.node("MatMul", g.node("Softmax", scores, axis=-1), value)
    scores = g.node("Where", mask, scores, g.constant(-np.inf, scores.dtype), dtype=scores.dtype)
    weights = g.node("Softmax", scores, axis=-1)
    if is_causal:
        return g.node("MatMul", weights, value)
    # A query that may look at nothing gets zeros, and not NaN.
    some = reduce(g, "ReduceMax", g.cast(mask, np.int32), mask.ndim, -1, True)
    weights = g.node(
        "Where", g.cast(some, np.bool_), weights, g.constant(0, weights.dtype), dtype=weights.dtype
    )
    return g.node("MatMul", weights, value)
