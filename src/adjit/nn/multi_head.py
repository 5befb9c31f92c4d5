"""Attention of several heads between projections: the function behind `MultiheadAttention`."""

from __future__ import annotations

import math
import warnings

from .. import dtypes
from ..dtypes import dtype as DType
from ..ops.attention import scaled_dot_product_attention
from ..ops.dropout import dropout
from ..ops.joining import cat
from ..ops.linear import linear
from ..ops.padding import pad
from ..tensor import Tensor

# --------------------------------------------------------------------------- masks


def added_mask(
    mask: Tensor | None,
    name: str,
    other: Tensor | None,
    other_name: str,
    kind: DType,
) -> Tensor | None:
    """A mask as what is added to scores, of dtype `kind` if it was one of bools: -inf where it is True.

    Raises:
        AssertionError: for whole numbers.
    """
    if mask is None:
        return None
    if mask.dtype is not dtypes.bool and not mask.dtype.is_floating_point:
        raise AssertionError(f"only bool and floating types of {name} are supported")
    if other is not None and mask.dtype is not other.dtype:
        warnings.warn(
            f"Support for mismatched {name} and {other_name} is deprecated. Use same type for both "
            "instead.",
            stacklevel=3,
        )
    if mask.dtype.is_floating_point:
        return mask
    return mask.new_zeros(mask.shape, dtype=kind).masked_fill(mask, -math.inf)


def is_batch(
    query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None, heads: int
) -> bool:  # fmt: skip
    """Whether the operands have an axis of batches.

    Raises:
        AssertionError: if their numbers of axes do not fit.
    """
    if query.ndim not in (2, 3):
        raise AssertionError(
            "query should be unbatched 2D or batched 3D tensor but received "
            f"{query.ndim}-D query tensor"
        )
    batched = query.ndim == 3
    named = "batched (3-D)" if batched else "unbatched (2-D)"
    if key.ndim != query.ndim or value.ndim != query.ndim:
        raise AssertionError(
            f"For {named} `query`, expected `key` and `value` to be {query.ndim}-D but found "
            f"{key.ndim}-D and {value.ndim}-D tensors respectively"
        )
    if padding is not None and padding.ndim != query.ndim - 1:
        raise AssertionError(
            f"For {named} `query`, expected `key_padding_mask` to be `None` or {query.ndim - 1}-D "
            f"but found {padding.ndim}-D tensor instead"
        )
    if mask is not None and mask.ndim not in (2, 3):
        raise AssertionError(
            f"For {named} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found "
            f"{mask.ndim}-D tensor instead"
        )
    if not batched and mask is not None and mask.ndim == 3:
        wanted = heads, query.shape[0], key.shape[0]
        if mask.shape != wanted:
            raise AssertionError(f"Expected `attn_mask` shape to be {wanted} but got {mask.shape}")
    return batched


def check_mask(mask: Tensor, batch: int, heads: int, queries: int, keys: int) -> None:
    """Raise for a mask of another shape than its number of axes asks for."""
    if mask.ndim not in (2, 3):
        raise RuntimeError(f"attn_mask's dimension {mask.ndim} is not supported")
    wanted = (queries, keys) if mask.ndim == 2 else (batch * heads, queries, keys)
    if mask.shape != wanted:
        raise RuntimeError(
            f"The shape of the {mask.ndim}D attn_mask is {mask.shape}, but should be {wanted}."
        )


# --------------------------------------------------------------------------- projections


def projected_by_one(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, ...]:
    """The three projections by parts of one weight; tensors that are the same are projected together."""
    width = query.shape[-1]
    if key is value and query is key:
        return linear(query, weight, bias).chunk(3, -1)
    if key is value:
        weights = weight.split([width, 2 * width])
        biases = (None, None) if bias is None else bias.split([width, 2 * width])
        both = linear(key, weights[1], biases[1])
        return linear(query, weights[0], biases[0]), *both.chunk(2, -1)
    weights = weight.chunk(3)
    biases = (None, None, None) if bias is None else bias.chunk(3)
    return tuple(
        linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)
    )


def projected_by_three(
    operands: tuple[Tensor, Tensor, Tensor], weights: tuple[Tensor | None, ...], bias: Tensor | None
) -> tuple[Tensor, ...]:
    """The three projections by weights of their own.

    Raises:
        AssertionError: if a weight or a bias is missing or of a wrong shape.
    """
    given: list[Tensor] = []
    for letter, weight in zip("qkv", weights, strict=True):
        if weight is None:
            raise AssertionError(
                f"use_separate_proj_weight is True but {letter}_proj_weight is None"
            )
        given.append(weight)
    width = operands[0].shape[-1]
    biases = (None, None, None) if bias is None else bias.chunk(3)
    names = "query", "key", "value"
    for name, x, weight in zip(names, operands, given, strict=True):
        if weight.shape != (width, x.shape[-1]):
            wanted = width, x.shape[-1]
            raise AssertionError(
                f"expecting {name} weights shape of {wanted}, but got {weight.shape}"
            )
    for name, b in zip(names, biases, strict=True):
        if b is not None and b.shape != (width,):
            raise AssertionError(f"expecting {name} bias shape of {(width,)}, but got {b.shape}")
    return tuple(linear(x, w, b) for x, w, b in zip(operands, given, biases, strict=True))


def static_heads(static: Tensor, name: str, batch: int, heads: int, width: int) -> Tensor:
    """Keys or values that are given as (batch * heads, positions, width), with four axes."""
    for axis, size in ((0, batch * heads), (2, width)):
        if static.size(axis) != size:
            raise AssertionError(
                f"expecting {name}.size({axis}) of {size}, but got {static.size(axis)}"
            )
    return static.unflatten(0, (batch, heads))


def projections(
    operands: tuple[Tensor, Tensor, Tensor], weight: Tensor | None,
    weights: tuple[Tensor | None, ...], bias: Tensor | None, are_separate: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Queries, keys and values, projected.

    Raises:
        AssertionError: if weights are missing, or shapes do not fit.
    """
    _, key, value = operands
    if are_separate:
        if key.shape[:2] != value.shape[:2]:
            raise AssertionError(
                f"key's sequence and batch dims {key.shape[:2]} do not match value's "
                f"{value.shape[:2]}"
            )
        return projected_by_three(operands, weights, bias)
    if key.shape != value.shape:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
    if weight is None:
        raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
    return projected_by_one(*operands, weight, bias)


# --------------------------------------------------------------------------- the function


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of several heads between projections: `nn.MultiheadAttention` with its parameters given.

    Without `need_weights` it goes by `scaled_dot_product_attention`, with it the matrix of weights is made.

    Args:
        query: (L, N, E), or (L, E) without batches.
        key: (S, N, Ek), or (S, Ek).
        value: (S, N, Ev), or (S, Ev).
        embed_dim_to_check: E.
        num_heads: how many heads share E.
        in_proj_weight: (3 E, E), where the projections are parts of one weight.
        in_proj_bias: (3 E,) or None.
        bias_k, bias_v: (1, 1, E), a further key and value for all, or None.
        add_zero_attn: whether there is a further key and value of zeros.
        dropout_p: the probability with which weights are dropped, in `training`.
        out_proj_weight, out_proj_bias: the projection of the result.
        training: whether weights are dropped.
        key_padding_mask: (N, S) or (S,), True where a key is not to be seen, or what is added to scores.
        need_weights: whether to return the weights too.
        attn_mask: (L, S) or (N * num_heads, L, S), True where a query does not see a key, or what is
            added to scores.
        use_separate_proj_weight: whether there are three weights of their own, which may take Ek and Ev.
        q_proj_weight, k_proj_weight, v_proj_weight: these, (E, E), (E, Ek) and (E, Ev).
        static_k, static_v: (N * num_heads, S, E / num_heads), instead of projected keys and values.
        average_attn_weights: whether weights are the means of all heads.
        is_causal: promises that `attn_mask` hides the keys after a query's position.

    Returns:
        A tensor (L, N, E) or (L, E), and the weights, (N, L, S) or (L, S), with an axis of heads before
        these two if they are not averaged, or None. Differentiable in all floating tensors.

    Raises:
        AssertionError: if shapes do not fit.
        RuntimeError: for a mask of a wrong shape, or if `is_causal` promises something of no mask.

    Example:
        >>> x, weight = adjit.ones(3, 1, 2), adjit.ones(6, 2)
        >>> out, weights = F.multi_head_attention_forward(
        ...     x, x, x, 2, 1, weight, None, None, None, False, 0.0, adjit.eye(2), None)
        >>> out.shape, weights[0, 0]
        (adjit.Size([3, 1, 2]), tensor([0.3333, 0.3333, 0.3333]))
    """
    batched = is_batch(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        same = key is value, query is key
        query, key, value = (x.unsqueeze(1) for x in (query, key, value))
        value = key if same[0] else value
        query, key, value = (key, key, value) if same[1] else (query, key, value)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    (queries, batch, width), keys = query.shape, key.shape[0]
    padding = added_mask(
        key_padding_mask, "key_padding_mask", attn_mask, "attn_mask", query.dtype
    )  # fmt: skip
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module "
            "method `generate_square_subsequent_mask` to create this mask."
        )
    is_causal = is_causal and padding is None
    mask = None
    if not is_causal or need_weights:
        mask = added_mask(attn_mask, "attn_mask", None, "", query.dtype)
    if width != embed_dim_to_check:
        raise AssertionError(
            f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}"
        )
    if width % num_heads:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    q, k, v = projections(
        (query, key, value), in_proj_weight, (q_proj_weight, k_proj_weight, v_proj_weight),
        in_proj_bias, use_separate_proj_weight,
    )  # fmt: skip
    if mask is not None:
        check_mask(mask, batch, num_heads, queries, keys)
        mask = mask if mask.ndim == 2 else mask.unflatten(0, (batch, num_heads))
    more = 0  # keys beyond those that were given, which all see
    if bias_k is not None and bias_v is not None:
        for static, name in ((static_k, "key"), (static_v, "value")):
            if static is not None:
                raise AssertionError(f"bias cannot be added to static {name}.")
        k, v = (cat([x, b.repeat(1, batch, 1)]) for x, b in ((k, bias_k), (v, bias_v)))
        more += 1
    elif bias_k is not None or bias_v is not None:
        one, other = ("bias_k", "bias_v") if bias_k is not None else ("bias_v", "bias_k")
        raise AssertionError(f"{one} is set but {other} is None")
    each = width // num_heads
    q, k, v = (x.unflatten(-1, (num_heads, each)).permute(1, 2, 0, 3) for x in (q, k, v))
    if static_k is not None:
        k = static_heads(static_k, "static_k", batch, num_heads, each)
    if static_v is not None:
        v = static_heads(static_v, "static_v", batch, num_heads, each)
    if add_zero_attn:
        k, v = (cat([x, x.new_zeros((batch, num_heads, 1, each))], 2) for x in (k, v))
        more += 1
    if more:
        mask, padding = (None if t is None else pad(t, (0, more)) for t in (mask, padding))
    if padding is not None:
        for axis, size in enumerate((batch, k.shape[2])):
            if padding.shape[axis] != size:
                raise AssertionError(
                    f"Expected key_padded_mask.shape[{axis}] to be {size}, but got "
                    f"{padding.shape[axis]}"
                )
        padding = padding[:, None, None]
        mask = padding if mask is None else mask + padding
    p = dropout_p if training else 0.0
    weights = None
    if need_weights:
        weights = (q * math.sqrt(1.0 / each)) @ k.transpose(-2, -1)
        weights = (weights if mask is None else weights + mask).softmax(-1)
        weights = dropout(weights, p) if p > 0 else weights
        out = weights @ v
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        out = scaled_dot_product_attention(q, k, v, mask, p, is_causal)
    # The heads of a position side by side, in the order in which the positions of the input lie.
    by_batch = query._spec.strides[0] < query._spec.strides[1]
    out = out.permute(*((0, 2, 1, 3) if by_batch else (2, 0, 1, 3))).flatten(2)
    out = linear(out, out_proj_weight, out_proj_bias)
    out = out.transpose(0, 1) if by_batch else out
    if not batched:
        return out.squeeze(1), None if weights is None else weights.squeeze(0)
    return out, weights


# ----- PyTorch's names, which copies of its attention import -----

_mha_shape_check = is_batch


def _in_projection_packed(
    q: Tensor, k: Tensor, v: Tensor, w: Tensor, b: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Queries, keys and values by parts of one weight."""
    return projected_by_one(q, k, v, w, b)


def _in_projection(
    q: Tensor, k: Tensor, v: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor,
    b_q: Tensor | None = None, b_k: Tensor | None = None, b_v: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Queries, keys and values by weights of their own."""
    return linear(q, w_q, b_q), linear(k, w_k, b_k), linear(v, w_v, b_v)


def _canonical_mask(
    mask: Tensor | None, mask_name: str, other_type: DType | None, other_name: str, target_type: DType,
    check_other: bool = True,
) -> Tensor | None:  # fmt: skip
    """A mask as what is added to scores, of another mask's dtype."""
    if check_other and mask is not None and other_type not in (None, mask.dtype):
        warnings.warn(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for both "
            "instead.",
            stacklevel=2,
        )
    return added_mask(mask, mask_name, None, other_name, target_type)


def _none_or_dtype(input: Tensor | None) -> DType | None:
    """The dtype of a mask, None of none."""
    return None if input is None else input.dtype
