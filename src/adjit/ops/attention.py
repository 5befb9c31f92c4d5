"""Attention: values weighted by how well queries and keys go together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

from .. import devices, dtypes
from ..graph import record
from ..graph.batching import Batch, folded, unfolded
from ..graph.export import export
from ..graph.launch import launch
from ..graph.normalized import normalizes
from ..graph.operation import NormalizedCall, operation
from ..graph.state import state
from ..graph.view import as_own
from ..kernels.ops import attention as kernels
from ..kernels.ops import gemm_tile
from ..kernels.ops import matrix_vector as vectors
from ..schedule.settle import float_word
from ..shapes import Shape, broadcast_shapes, broadcast_strides, check_fits, numel
from ..tensor import Tensor
from .creation import ones, zeros
from .dropout import check_probability, drop, dropped, fresh_place
from .layouts import reporting_c_order
from .matmul import GRAIN
from .softmax import softmax

# Parts that backward is cut into at least, if there are so many blocks of keys: so many threads can share it.
PARTS = 16


# --------------------------------------------------------------------------- plans


def packed_size(lines: int, depth: int, itemsize: int) -> int:
    """Elements that packing so many lines may write."""
    lanes = gemm_tile.lanes_of(itemsize)
    panel = gemm_tile.WIDTH * lanes
    return -(-lines // panel) * panel * depth + lanes * panel


def words_of(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, scale: float,
    p: float | None, block: int, strides: Sequence[Shape], **more: int,
) -> tuple[int, ...]:  # fmt: skip
    """The words of a launch: its facts, of which `more` are those of one direction, and strides of operands."""
    (batch, heads, queries, depth), keys = query.shape, key.shape[2]
    kind = kernels.NO_MASK
    masked: Shape = (0, 0, 0, 0)
    if mask is not None:
        kind = kernels.OF_BOOL if mask.dtype is dtypes.bool else kernels.OF_NUMBERS
        masked = broadcast_strides(mask.shape, mask._spec.strides, (batch, heads, queries, keys))
    facts = {
        "heads": heads, "shared_by": heads // max(key.shape[1], 1), "queries": queries, "keys": keys,
        "depth": depth, "width": value.shape[3], "causal": int(is_causal), "mask": kind,
        "drops": int(p is not None), "scale": float_word(scale),
        "kept_scale": float_word(1.0 / (1.0 - p) if p is not None and p < 1 else 0.0),
        "threshold": round((p or 0.0) * (1 << 32)), "blocks": -(-queries // block),
        "entries": batch * heads,
        **more,
    }  # fmt: skip
    operands = query._spec.strides, key._spec.strides, value._spec.strides, masked, *strides
    return (
        *[facts.get(name, 0) for name in kernels.FACTS],
        *[s for steps in operands for s in steps],
    )


def in_order(shape: Shape, like: Tensor) -> tuple[Shape, Shape, bool]:
    """How a result (batch, heads, positions, width) lies: its shape in memory, its strides, and whether
    the heads of a position lie side by side, as they do if they do in `like`.
    """
    batch, heads, count, width = shape
    if like._spec.strides[1] < like._spec.strides[2]:
        return (batch, count, heads, width), (count * heads * width, width, heads * width, 1), True
    return shape, (heads * count * width, count * width, width, 1), False


def launched(
    steps: Any, inputs: Sequence[Tensor], results: Sequence[tuple[Shape, Shape, bool]],
    more: Sequence[Shape], words: tuple[int, ...], scratch: int,
) -> list[Tensor]:  # fmt: skip
    """The results of a launch, of shapes as `in_order` gives them, then those of `more` shapes."""
    kind = inputs[0].dtype
    shapes = [(shape, kind) for shape, _, _ in results] + [(shape, kind) for shape in more]
    found = launch(
        steps, inputs, shapes, bind={"T": kind}, words=words, scratch=scratch * kind.itemsize
    )
    turned = [*[is_turned for _, _, is_turned in results], *[False] * len(more)]
    return [
        t.transpose(1, 2) if is_turned else t for t, is_turned in zip(found, turned, strict=True)
    ]


# --------------------------------------------------------------------------- by tiles


@operation("ScaledDotProductFlashAttentionForCpuBackward0", differentiable=(0,))
def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, place: Tensor | None,
    is_causal: bool, scale: float, p: float | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The weighted values, and the logarithms of the sums of exponentials, by tiles.

    All are of (batch, heads, positions, width), where heads of keys divide those of queries. `place` says where
    the random words of dropout begin.
    """
    (batch, heads, queries, depth), keys, width = query.shape, key.shape[2], value.shape[3]
    size, blocks, key_blocks = (
        query.dtype.itemsize,
        -(-queries // kernels.QUERIES),
        -(-keys // kernels.KEYS),
    )
    values_at = packed_size(kernels.KEYS, depth, size)
    region = values_at + packed_size(width, kernels.KEYS, size)
    lies = (batch, queries, heads, width), (queries * heads * width, width, heads * width, 1), True
    words = words_of(
        query, key, value, mask, is_causal, scale, p, kernels.QUERIES, [lies[1]],
        key_blocks=key_blocks, key_region=region, values_at=values_at,
    )  # fmt: skip
    packs, cost = batch * key.shape[1] * key_blocks, kernels.QUERIES * keys * (depth + width)
    steps = [
        (kernels.pack_keys, packs, max(1, GRAIN // (8 * region))),
        (kernels.attend, batch * heads * blocks, max(1, GRAIN // cost)),
    ]
    if p is None and read_where_they_lie(query, key, value):
        packs, cost = 0, queries * heads // key.shape[1] * keys * (depth + width)
        steps = [(kernels.attend_few, batch * key.shape[1], max(1, GRAIN // cost))]
    inputs = query, key, value, query if mask is None else mask, query if place is None else place
    made, sums = launched(steps, inputs, [lies], [(batch, heads, queries)], words, packs * region)
    steps_of = query._spec.reported
    are_rows = all(t._spec.reported[3] == 1 for t in (query, key, value))
    is_like_query = p is None and width == depth and are_rows and steps_of[1] < steps_of[2]
    return (made if is_like_query else reporting_c_order(made)), sums


def read_where_they_lie(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether there are so few queries that to pack keys and values takes longer than all else."""
    are_rows = all(t._spec.strides[3] == 1 or t.shape[3] == 1 for t in (query, key, value))
    width = max(query.shape[3], value.shape[3])  # of the sums that lie beside a block
    few = kernels.FEW_QUERIES if key.shape[2] <= kernels.KEYS else kernels.FEW_QUERIES // 2
    return are_rows and query.shape[2] <= few and width <= vectors.STRIP


@attend.vjp
def _(g, query, key, value, mask, place, outs, is_causal, scale, p, needs):  # type: ignore[no-untyped-def]
    grads = attend_backward(
        g, query, key, value, mask, place, outs[0], outs[1], is_causal, scale, p
    )
    return (*grads, *[None] * (len(needs) - 3))


@operation("ScaledDotProductFlashAttentionForCpuBackwardBackward0")
def attend_backward(
    upper: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
    place: Tensor | None, out: Tensor, logs: Tensor, is_causal: bool, scale: float, p: float | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The gradients of queries, keys and values."""
    (batch, heads, queries, depth), keys, width = query.shape, key.shape[2], value.shape[3]
    upper = upper if upper._spec.strides[3] == 1 else upper.contiguous()
    size, is_few = query.dtype.itemsize, p is None and read_where_they_lie(query, key, value)
    block = kernels.KEYS if is_few else kernels.BACKWARD_KEYS
    blocks, key_blocks = -(-queries // kernels.BACKWARD_QUERIES), -(-keys // block)
    entries, key_entries = batch * heads, batch * key.shape[1]
    chunks = min(key_blocks, -(-PARTS // key_entries))
    chunks = -(-key_blocks // -(-key_blocks // chunks))
    gradients_at = packed_size(depth, kernels.BACKWARD_QUERIES, size)
    deltas_at = gradients_at + packed_size(width, kernels.BACKWARD_QUERIES, size)
    query_region = deltas_at + kernels.BACKWARD_QUERIES
    values_at = packed_size(block, depth, size)
    keys_at = values_at + packed_size(block, width, size)
    key_region = keys_at + packed_size(depth, block, size)
    key_regions_at = entries * blocks * query_region
    parts_at = 0 if is_few else key_regions_at + key_entries * chunks * key_region
    scratch = parts_at + (chunks * entries * queries * depth if chunks > 1 else 1)
    lie = [in_order(t.shape, t) for t in (query, key, value)]
    words = words_of(
        query, key, value, mask, is_causal, scale, p, kernels.BACKWARD_QUERIES,
        [out._spec.strides, upper._spec.strides, *[strides for _, strides, _ in lie]],
        key_blocks=key_blocks, chunks=chunks, key_region=key_region, values_at=values_at,
        keys_at=keys_at, query_region=query_region, gradients_at=gradients_at,
        deltas_at=deltas_at, key_regions_at=key_regions_at, parts_at=parts_at,
    )  # fmt: skip
    light, cost = max(1, GRAIN // (8 * query_region)), entries * queries * keys * (depth + width)
    units = key_entries * chunks
    grain = max(1, GRAIN * units // max(cost, 1))
    steps = [
        (kernels.prepare, entries * blocks, light),
        (kernels.attend_backward, units, grain),
    ]
    if is_few:
        steps = [(kernels.attend_few_backward, units, grain)]
    if chunks > 1:
        steps.append((kernels.add_parts, entries * blocks, light))
    inputs = (
        query, key, value, query if mask is None else mask, query if place is None else place,
        out, logs, upper,
    )  # fmt: skip
    return tuple(launched(steps, inputs, lie, [], words, scratch))


@attend_backward.vjp
def _(gs, upper, query, key, value, mask, place, is_causal, scale, p, needs):  # type: ignore[no-untyped-def]
    found = through_backward(gs, upper, query, key, value, mask, place, is_causal, scale, p)
    return (*found, *[None] * (len(needs) - 4))


def folded_mask(batch: Batch, mask: Tensor | None, entries: int) -> Tensor | None:
    """A mask with one part for each entry of each example, if it has parts."""
    if mask is None:
        return None
    mask = mask.reshape(*[1] * (4 - mask.ndim), *mask.shape)
    if not batch.has(mask):
        return mask if mask.shape[0] == 1 else mask.repeat(batch.size, 1, 1, 1)
    whole = batch.full(mask)
    return folded(whole.expand(batch.size, entries, *mask.shape[1:]))


def refuse_drops(place: Tensor | None) -> None:
    """Raise where dropout would be the same for all examples."""
    if place is not None:
        raise RuntimeError(
            "Batching rule not implemented for aten::_scaled_dot_product_flash_attention_for_cpu with "
            "dropout. We could not generate a fallback."
        )


@attend.batched
def _(
    batch: Batch, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, place: Tensor | None,
    is_causal: bool, scale: float, p: float | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    refuse_drops(place)
    given = [folded(batch.full(t)) for t in (query, key, value)]
    where = folded_mask(batch, mask, query.shape[0])
    made = attend(*given, where, None, is_causal, scale, p)
    return tuple(batch.wrapped(unfolded(t, batch.size)) for t in made)


@attend_backward.batched
def _(
    batch: Batch, upper: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
    place: Tensor | None, out: Tensor, logs: Tensor, is_causal: bool, scale: float, p: float | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    refuse_drops(place)
    upper, query, key, value, out, logs = (
        folded(batch.full(t)) for t in (upper, query, key, value, out, logs)
    )
    where = folded_mask(batch, mask, query.shape[0] // max(batch.size, 1))
    made = attend_backward(upper, query, key, value, where, None, out, logs, is_causal, scale, p)
    return tuple(batch.wrapped(unfolded(t, batch.size)) for t in made)


# --------------------------------------------------------------------------- as products and a softmax


def each_head(x: Tensor, heads: int) -> Tensor:
    """Keys or values for so many heads of queries."""
    return x if x.shape[-3] == heads else x.repeat_interleave(heads // x.shape[-3], -3)


def gathered(g: Tensor, like: Tensor) -> Tensor:
    """The gradient of what `each_head` was given."""
    if g.shape[1] == like.shape[1]:
        return g
    return g.unflatten(1, (like.shape[1], -1)).sum(2)


def weights_of(
    query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    """The whole matrix of weights; those of a query that sees no key are 0."""
    scores = (query @ key.transpose(-2, -1)) * scale
    if is_causal:
        seen = ones(scores.shape[-2:], dtype=dtypes.bool, device=scores.device).tril()
        scores = scores.masked_fill(~seen, -math.inf)
    if mask is None:
        return softmax(scores, -1)
    is_flag = mask.dtype is dtypes.bool
    scores = scores.masked_fill(~mask, -math.inf) if is_flag else scores + mask
    blind = (scores == -math.inf).all(-1, keepdim=True)
    return softmax(scores.masked_fill(blind, 0.0), -1).masked_fill(blind, 0.0)


def composed(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, scale: float,
    p: float,
) -> Tensor:  # fmt: skip
    """Attention by a matrix of weights: what the tiles compute, with a gradient for the mask."""
    weights = weights_of(query, key, mask, is_causal, scale)
    if p > 0:
        weights = dropped(weights, p, weights.numel())
    return weights @ value


def through_backward(
    gs: Sequence[Tensor | None], upper: Tensor, query: Tensor, key: Tensor, value: Tensor,
    mask: Tensor | None, place: Tensor | None, is_causal: bool, scale: float, p: float | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The gradients of what `attend_backward` reads, from those of its results, by whole matrices.

    With weights W and what is kept of them K(W), the results are scale * S @ key, scale * S' @ query and
    K(W)' @ upper, where S = W * (K(upper @ value') - their mean under W).
    """
    heads = query.shape[1]
    keys, values = each_head(key, heads), each_head(value, heads)
    of_query = zeros_like_if_none(gs[0], query)
    of_key = each_head(zeros_like_if_none(gs[1], key), heads)
    of_value = each_head(zeros_like_if_none(gs[2], value), heads)

    def kept(matrix: Tensor) -> Tensor:
        return matrix if place is None else drop(matrix, place, p, tuple(range(matrix.ndim)))

    def under(weights: Tensor, matrix: Tensor) -> Tensor:
        return (weights * matrix).sum(-1, True)

    weights = weights_of(query, keys, mask, is_causal, scale)
    pulls = kept(upper @ values.transpose(-2, -1))
    centered = pulls - under(weights, pulls)
    slopes = weights * centered
    # What the results say of S, then of W, and of the scores.
    of_slopes = (of_query @ keys.transpose(-2, -1) + query @ of_key.transpose(-2, -1)) * scale
    tilt = under(weights, of_slopes)
    of_pulls = kept(weights * (of_slopes - tilt))
    of_weights = of_slopes * centered - pulls * tilt + kept(upper @ of_value.transpose(-2, -1))
    of_scores = weights * (of_weights - under(weights, of_weights)) * scale
    return (
        of_pulls @ values + kept(weights) @ of_value,
        of_scores @ keys + (slopes @ of_key) * scale,
        gathered(
            of_scores.transpose(-2, -1) @ query + (slopes.transpose(-2, -1) @ of_query) * scale, key
        ),
        gathered(of_pulls.transpose(-2, -1) @ upper, value),
    )


def zeros_like_if_none(g: Tensor | None, x: Tensor) -> Tensor:
    """A gradient, 0 where there is none."""
    return zeros(x.shape, dtype=x.dtype, device=x.device) if g is None else g


# --------------------------------------------------------------------------- scaled_dot_product_attention


def check_operands(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> None:
    """Raise for tensors that do not go together."""
    name = "scaled_dot_product_attention"
    for place, (argument, t) in enumerate((("query", query), ("key", key), ("value", value)), 1):
        record.check_tensor(name, argument, place, t)
    if mask is not None:
        record.check_tensor(name, "attn_mask", 4, mask)
    kinds = [t.dtype for t in (query, key, value)]
    shown = [kind.row.c for kind in kinds]
    if len(set(kinds)) > 1:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{shown[0]} key.dtype: {shown[1]} and value.dtype: {shown[2]} instead."
        )
    if min(t.ndim for t in (query, key, value)) < 2:
        raise RuntimeError(
            "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: "
            f"{query.ndim} key.dim: {key.ndim} and value.dim: {value.ndim} instead."
        )
    if mask is not None:
        if mask.dtype not in (dtypes.bool, dtypes.float32, kinds[0]):
            raise RuntimeError(
                "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
                f"attn_mask.dtype: {mask.dtype.row.c} and  query.dtype: {shown[0]} instead."
            )
        mask.size(-2)  # raises for one without rows
    if not kinds[0].is_floating_point:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: float != {shown[0]}"
        )


def scores_shape(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> Shape:
    """The shape of the whole matrix of weights.

    Raises:
        RuntimeError: if the tensors do not fit each other.
    """
    skipped = 3 if enable_gqa else 2
    if enable_gqa:
        of_query, of_key, of_value = (t.size(-3) for t in (query, key, value))
        if any(not count or of_query % count for count in (of_key, of_value)):
            raise RuntimeError(
                "Number of heads in key and value must divide the number of heads in "
            )
    batch = broadcast_shapes(*(t.shape[:-skipped] for t in (query, key, value)))
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise RuntimeError(
            f"Expected keys of {query.shape[-1]} elements and values for {key.shape[-2]} keys, but got "
            f"{key.shape[-1]} and {value.shape[-2]}"
        )
    return (*batch, *query.shape[-skipped:-1], key.shape[-2])


def with_four_axes(x: Tensor, batch: Shape, are_heads: bool) -> Tensor:
    """`x` as (batch, heads, positions, width), where `batch` is what it shall have before the last two axes.
    If that is one axis, it is one of heads, or else of batches, whose results lie in C order.
    """
    if x.shape[:-2] != batch:
        x = x.expand(*batch, *x.shape[-2:])
    if len(batch) > 1:
        return x if len(batch) == 2 else x.flatten(0, -4)
    return x[None, None] if not batch else x[None] if are_heads else x.unsqueeze(1)


def attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, p: float, is_causal: bool,
    scale: float | None, enable_gqa: bool,
) -> Any:  # fmt: skip
    """`scaled_dot_product_attention`, or what is to be called for it."""
    check_operands(query, key, value, attn_mask)
    if p > 0:
        check_probability(p, RuntimeError)
    if is_causal and attn_mask is not None and (query.ndim != 4 or p > 0):
        raise RuntimeError(
            "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
        )
    if scale is None:
        scale = 1.0 / math.sqrt(max(query.shape[-1], 1))
    shape = scores_shape(query, key, value, enable_gqa)
    if attn_mask is not None:
        check_fits(shape, attn_mask.shape)
        if attn_mask.dtype is not dtypes.bool:
            attn_mask = attn_mask.to(query.dtype)
    needs_matrix = (
        query._spec.device is not devices.CPU
        or not numel(shape) * query.shape[-1] * value.shape[-1]
        or (attn_mask is not None and record.is_differentiated(attn_mask))
        or (p > 0 and state.levels)
    )
    if enable_gqa and (needs_matrix or key.shape[-3] != value.shape[-3]):
        key, value = each_head(key, shape[-3]), each_head(value, shape[-3])
    if needs_matrix:
        return composed(query, key, value, attn_mask, is_causal, float(scale), p)
    of_query = shape[:-2]
    of_keys = (*shape[:-3], key.shape[-3]) if enable_gqa else of_query
    if attn_mask is not None and attn_mask.ndim > 2 and len(shape) != 4:
        attn_mask = with_four_axes(attn_mask, of_query, enable_gqa)
    place = fresh_place(query, numel(shape)) if p > 0 else None
    q, k, v = (
        with_four_axes(t, batch, enable_gqa)
        for t, batch in ((query, of_query), (key, of_keys), (value, of_keys))
    )
    given = (q, k, v, attn_mask, place, bool(is_causal), float(scale), p if p > 0 else None)
    if place is None and q is query and k is key and v is value:
        return attend.on(*given)
    out: Tensor = attend(*given)[0]
    return out if len(shape) == 4 else as_own(out.reshape(*shape[:-1], value.shape[-1]))


usual_attention = normalizes(attention, first=True, in_order=True)


@export(namespace="nn.functional")
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Values weighted by how well queries and keys go together: softmax(scale * Q @ K' + mask) @ V.

    On a CPU the matrix of weights is never whole: memory is linear in the numbers of queries and of keys,
    forward and backward. On a GPU, and where the mask needs a gradient, it is made of products and a softmax,
    with the matrix in memory; so are second gradients.

    A query that the mask shows no key has the result 0.

    Args:
        query: (N, ..., H, L, E), float32 or float64.
        key: (N, ..., H, S, E), of the same dtype.
        value: (N, ..., H, S, Ev), of the same dtype.
        attn_mask: of a shape that broadcasts to (N, ..., H, L, S). A bool one is True where a query
            sees a key, another one is added to the scores.
        dropout_p: the probability with which a weight is dropped, whenever it is above 0.
        is_causal: whether a query sees only the keys up to its own position.
        scale: what scores are multiplied by; by default 1 / sqrt(E).
        enable_gqa: whether there may be fewer heads of keys and values, each for as many heads of queries.

    Returns:
        A tensor (N, ..., H, L, Ev). Differentiable in the first four arguments, any number of times. What
        dropout drops takes no memory.

    Raises:
        RuntimeError: if shapes or dtypes do not fit, or a mask is given where it must not be `is_causal`.

    Example:
        >>> x = adjit.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> F.scaled_dot_product_attention(x, x, x, is_causal=True)
        tensor([[1.0000, 0.0000],
                [0.3302, 0.6698]])
    """
    p = float(dropout_p)
    takes_gradient = record.is_tensor(attn_mask) and record.is_differentiated(
        cast(Tensor, attn_mask)
    )
    if p > 0 or takes_gradient:
        found = attention(query, key, value, attn_mask, p, is_causal, scale, enable_gqa)
        return found.op(*found.args)[0] if isinstance(found, NormalizedCall) else found
    out: Tensor = usual_attention(query, key, value, attn_mask, 0.0, is_causal, scale, enable_gqa)
    return out
