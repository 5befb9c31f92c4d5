"""Attention of several heads as a layer, and the Transformer that is built of it."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

from ..dtypes import dtype as DType
from ..graph.state import state
from ..ops import creation
from ..tensor import Tensor
from . import functional as F
from . import init
from .activation import GELU, ReLU
from .container import ModuleList
from .layers import Dropout, LayerNorm, Linear
from .module import Module
from .multi_head import added_mask
from .parameter import Parameter

Activation = str | Callable[[Tensor], Tensor]


class NonDynamicallyQuantizableLinear(Linear):
    """PyTorch's name for the last projection, which quantisation leaves out there."""


class MultiheadAttention(Module):
    """Attention of several heads: queries, keys and values are projected, cut into heads, attended to, and
    projected together.

    With `need_weights=False` the heads are computed by `F.scaled_dot_product_attention`, in memory that is
    linear in the positions; otherwise, which is the default, the matrix of weights is made.

    Args:
        embed_dim: the size E of queries and of the result.
        num_heads: how many heads share it.
        dropout: the probability with which weights are dropped in training.
        bias: whether the projections have one (zeros at first).
        add_bias_kv: whether a further key and value are learned, which all queries see.
        add_zero_attn: whether all queries see a further key and value of zeros.
        kdim: the size of keys, by default E.
        vdim: the size of values, by default E.
        batch_first: whether operands are (N, L, E), not (L, N, E).
        device: where the parameters are.
        dtype: their floating dtype.

    Raises:
        ValueError: if a size is not positive.
        AssertionError: if the heads do not share E evenly.

    Example:
        >>> layer = nn.MultiheadAttention(16, 4)
        >>> x = adjit.randn(10, 2, 16)
        >>> out, weights = layer(x, x, x)
        >>> out.shape, weights.shape
        (adjit.Size([10, 2, 16]), adjit.Size([2, 10, 10]))
    """

    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                "embed_dim and num_heads must be greater than 0, got "
                f"embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = kdim if kdim is not None else embed_dim
        self.vdim = vdim if vdim is not None else embed_dim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")

        def add(name: str, *shape: int) -> None:
            made = creation.empty(*shape, device=device, dtype=dtype) if shape else None
            self.register_parameter(name, None if made is None else Parameter(made))

        if self._qkv_same_embed_dim:
            add("in_proj_weight", 3 * embed_dim, embed_dim)
            for letter in "qkv":
                add(f"{letter}_proj_weight")
        else:
            for letter, size in zip("qkv", (embed_dim, self.kdim, self.vdim), strict=True):
                add(f"{letter}_proj_weight", embed_dim, size)
            add("in_proj_weight")
        add("in_proj_bias", *((3 * embed_dim,) if bias else ()))
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias, device, dtype)
        if add_bias_kv:
            add("bias_k", 1, 1, embed_dim)
            add("bias_v", 1, 1, embed_dim)
        else:
            self.bias_k = self.bias_v = None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            weight = getattr(self, name)
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        for further in (self.bias_k, self.bias_v):
            if further is not None:
                init.xavier_normal_(further)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        turns = self.batch_first and query.ndim == 3
        if turns:
            turned = {
                id(x): x.transpose(1, 0) for x in (query, key, value)
            }  # the same stay the same
            query, key, value = (turned[id(x)] for x in (query, key, value))
        out, weights = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads,
            self.in_proj_weight, self.in_proj_bias, self.bias_k, self.bias_v, self.add_zero_attn,
            self.dropout, self.out_proj.weight, self.out_proj.bias,
            training=self.training, key_padding_mask=key_padding_mask, need_weights=need_weights,
            attn_mask=attn_mask, use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight, k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight, average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )  # fmt: skip
        return (out.transpose(1, 0) if turns else out), weights

    def merge_masks(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, query: Tensor
    ) -> tuple[Tensor | None, int | None]:
        """One mask of both, and of which kind it is: 0 where there is only `attn_mask`, 1 where there is only
        `key_padding_mask`, 2 where `attn_mask` was brought to (N, heads, L, L).

        Example:
            >>> layer, x = nn.MultiheadAttention(4, 2, batch_first=True), adjit.ones(1, 3, 4)
            >>> mask, kind = layer.merge_masks(adjit.zeros(3, 3), adjit.zeros(1, 3), x)
            >>> mask.shape, kind
            (adjit.Size([1, 2, 3, 3]), 2)
        """
        if attn_mask is None:
            return key_padding_mask, None if key_padding_mask is None else 1
        batch, count, _ = query.shape
        if attn_mask.ndim == 3:
            merged = attn_mask.view(batch, -1, count, count)
        else:
            merged = attn_mask.view(1, 1, count, count).expand(batch, self.num_heads, -1, -1)
        if key_padding_mask is not None:
            merged = merged + key_padding_mask.view(batch, 1, 1, count)
        return merged, 2


# --------------------------------------------------------------------------- layers


def activation_of(activation: Activation) -> Callable[[Tensor], Tensor]:
    """An activation, by its name or itself."""
    if not isinstance(activation, str):
        return activation
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    named: Callable[[Tensor], Tensor] = getattr(F, activation)
    return named


_get_activation_fn = activation_of  # PyTorch's name


class _Layer(Module):
    """What the layers of encoder and decoder share: blocks around which there are sums and norms."""

    norm_first: bool
    activation: Callable[[Tensor], Tensor]

    def _around(self, x: Tensor, norm: Module, block: Callable[[Tensor], Tensor]) -> Tensor:
        """The input and what a block makes of it, normalised before or after."""
        if self.norm_first:
            return x + block(norm(x))
        made: Tensor = norm(x + block(x))
        return made


class TransformerEncoderLayer(_Layer):
    """Attention of a sequence to itself, then two linear layers for each position.

    Both stand between a sum with what they get and a layer norm.

    Args:
        d_model: the size E of a position.
        nhead: how many heads share it.
        dim_feedforward: the size between the linear layers.
        dropout: the probability of dropout, in training.
        activation: "relu", "gelu" or a function of a tensor, between the linear layers.
        layer_norm_eps: what layer norms add to variances.
        batch_first: whether sequences are (N, S, E), not (S, N, E).
        norm_first: whether norms come before attention and linear layers, not after the sums.
        bias: whether linear layers and norms have one.
        device: where the parameters are.
        dtype: their floating dtype.

    Raises:
        RuntimeError: for another name of an activation.

    Example:
        >>> layer = nn.TransformerEncoderLayer(d_model=16, nhead=4, dim_feedforward=32)
        >>> layer(adjit.rand(10, 2, 16)).shape
        adjit.Size([10, 2, 16])
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **place
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **place)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **place)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **place)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        found = activation_of(activation)
        # Not `is`: functions that ask are equal to those that they were.
        is_relu, is_gelu = found == F.relu, found == F.gelu
        self.activation_relu_or_gelu = (
            1
            if is_relu or isinstance(found, ReLU)
            else 2
            if is_gelu or isinstance(found, GELU)
            else 0
        )
        self.activation = found

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        padding = added_mask(
            src_key_padding_mask, "src_key_padding_mask", src_mask, "src_mask", src.dtype
        )
        mask = added_mask(src_mask, "src_mask", None, "", src.dtype)
        x = self._around(src, self.norm1, lambda x: self._sa_block(x, mask, padding, is_causal))
        return self._around(x, self.norm2, self._ff_block)

    def _sa_block(
        self,
        x: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        out, _ = self.self_attn(
            x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask,
            need_weights=False, is_causal=is_causal,
        )  # fmt: skip
        made: Tensor = self.dropout1(out)
        return made

    def _ff_block(self, x: Tensor) -> Tensor:
        made: Tensor = self.dropout2(
            self.linear2(self.dropout(self.activation(self.linear1(x))))
        )  # fmt: skip
        return made


class TransformerDecoderLayer(_Layer):
    """Attention of a sequence to itself, then to what an encoder made, then two linear layers.

    Args:
        d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias,
            device, dtype: as in `TransformerEncoderLayer`.

    Raises:
        RuntimeError: for another name of an activation.

    Example:
        >>> layer = nn.TransformerDecoderLayer(d_model=16, nhead=4, dim_feedforward=32)
        >>> layer(adjit.rand(20, 2, 16), adjit.rand(10, 2, 16)).shape
        adjit.Size([20, 2, 16])
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        attends: dict[str, Any] = {
            "dropout": dropout,
            "batch_first": batch_first,
            "bias": bias,
            **place,
        }
        self.self_attn = MultiheadAttention(d_model, nhead, **attends)
        self.multihead_attn = MultiheadAttention(d_model, nhead, **attends)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **place)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **place)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **place)
        self.norm3 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **place)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.dropout3 = Dropout(dropout)
        self.activation = activation_of(activation)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        x = self._around(
            tgt, self.norm1,
            lambda x: self._sa_block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal),
        )  # fmt: skip
        x = self._around(
            x, self.norm2,
            lambda x: self._mha_block(
                x, memory, memory_mask, memory_key_padding_mask, memory_is_causal
            ),
        )  # fmt: skip
        return self._around(x, self.norm3, self._ff_block)

    def _sa_block(
        self,
        x: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        out, _ = self.self_attn(
            x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask,
            is_causal=is_causal, need_weights=False,
        )  # fmt: skip
        made: Tensor = self.dropout1(out)
        return made

    def _mha_block(
        self,
        x: Tensor,
        mem: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        out, _ = self.multihead_attn(
            x, mem, mem, attn_mask=attn_mask, key_padding_mask=key_padding_mask,
            is_causal=is_causal, need_weights=False,
        )  # fmt: skip
        made: Tensor = self.dropout2(out)
        return made

    def _ff_block(self, x: Tensor) -> Tensor:
        made: Tensor = self.dropout3(
            self.linear2(self.dropout(self.activation(self.linear1(x))))
        )  # fmt: skip
        return made


# --------------------------------------------------------------------------- stacks


def clones(layer: Module, count: int) -> ModuleList:
    """So many copies of a layer, which begin with the same parameters."""
    return ModuleList([copy.deepcopy(layer) for _ in range(count)])


_get_clones = clones  # PyTorch's name


def later_hidden(count: int, device: Any = None, dtype: DType | None = None) -> Tensor:
    """The causal mask that is added: -inf above the diagonal, else 0."""
    return creation.full((count, count), -math.inf, dtype=dtype, device=device).triu(1)


def hides_later(mask: Tensor | None, hint: bool | None, count: int) -> bool:
    """Whether a mask is the causal one of so many positions, unless a hint says whether it is."""
    if hint is not None or mask is None:
        return bool(hint)
    causal = later_hidden(count, mask.device, mask.dtype)
    return mask.shape == causal.shape and bool((mask == causal).all())


def positions(x: Tensor, batch_first: bool) -> int:
    """The length of a sequence."""
    return int(x.shape[1 if batch_first and x.ndim == 3 else 0])


class TransformerEncoder(Module):
    """Encoder layers, one after the other.

    All begin as copies of one layer, parameters included. In evaluation without gradients, positions that
    `src_key_padding_mask` hides at the end of a sequence give 0 (before `norm`), as in PyTorch, where
    they are left out: if `use_nested_tensor` says that the layer is one for which it does so.

    Args:
        encoder_layer: a `TransformerEncoderLayer`.
        num_layers: how many copies of it.
        norm: a module for the result, or None.
        enable_nested_tensor: whether hidden positions may give 0.
        mask_check: whether that needs them to be at the end; without it they are at any place.

    Example:
        >>> layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        >>> nn.TransformerEncoder(layer, 2)(adjit.rand(2, 10, 16)).shape
        adjit.Size([2, 10, 16])
    """

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = clones(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check
        why_not = why_not_nested(encoder_layer)
        self.use_nested_tensor = enable_nested_tensor and not why_not
        if enable_nested_tensor and why_not:
            warnings.warn(
                "enable_nested_tensor is True, but self.use_nested_tensor is False because "
                f"{why_not}",
                stacklevel=2,
            )

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        padding = added_mask(src_key_padding_mask, "src_key_padding_mask", mask, "mask", src.dtype)
        mask = added_mask(mask, "mask", None, "", src.dtype)
        first: Any = self.layers[0]
        causal = hides_later(mask, is_causal, positions(src, first.self_attn.batch_first))
        out = src
        for layer in self.layers:
            out = layer(
                out, src_mask=mask, is_causal=causal, src_key_padding_mask=padding
            )  # fmt: skip
        if padding is not None and mask is None and self._leaves_out(src, padding):
            out = out.masked_fill((padding != 0).unsqueeze(-1), 0.0)
        return out if self.norm is None else self.norm(out)

    def _leaves_out(self, src: Tensor, padding: Tensor) -> bool:
        """Whether PyTorch would leave out hidden positions."""
        first: Any = self.layers[0]
        if not self.use_nested_tensor or first.training or src.ndim != 3:
            return False
        if state.grad and (src.requires_grad or any(p.requires_grad for p in first.parameters())):
            return False
        hidden = padding != 0
        return not self.mask_check or not bool((hidden[:, :-1] & ~hidden[:, 1:]).any())


def why_not_nested(layer: Any) -> str:
    """Why PyTorch would not leave out hidden positions of a layer, or nothing."""
    name = "encoder_layer"
    if not isinstance(layer, TransformerEncoderLayer):
        return f"{name} was not TransformerEncoderLayer"
    attention = layer.self_attn
    reasons = (
        (layer.norm_first, f"{name}.norm_first was True"),
        (not attention.batch_first, f"{name}.self_attn.batch_first was not True"
         "(use batch_first for better inference performance)"),
        (not attention._qkv_same_embed_dim, f"{name}.self_attn._qkv_same_embed_dim was not True"),
        (attention.in_proj_bias is None, f"{name}.self_attn was passed bias=False"),
        (not layer.activation_relu_or_gelu, f"{name}.activation_relu_or_gelu was not True"),
        (layer.norm1.eps != layer.norm2.eps,
         f"{name}.norm1.eps was not equal to {name}.norm2.eps"),
        (attention.num_heads % 2 == 1, f"{name}.self_attn.num_heads is odd"),
    )  # fmt: skip
    return next((why for applies, why in reasons if applies), "")


class TransformerDecoder(Module):
    """Decoder layers, one after the other; all begin as copies of one layer, parameters included.

    Args:
        decoder_layer: a `TransformerDecoderLayer`.
        num_layers: how many copies of it.
        norm: a module for the result, or None.

    Example:
        >>> decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 4, 32), 2)
        >>> decoder(adjit.rand(20, 2, 16), adjit.rand(10, 2, 16)).shape
        adjit.Size([20, 2, 16])
    """

    def __init__(
        self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__()
        self.layers = clones(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        first: Any = self.layers[0]
        causal = hides_later(tgt_mask, tgt_is_causal, positions(tgt, first.self_attn.batch_first))
        out = tgt
        for layer in self.layers:
            out = layer(
                out, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=causal, memory_is_causal=memory_is_causal,
            )  # fmt: skip
        return out if self.norm is None else self.norm(out)


class Transformer(Module):
    """An encoder, and a decoder that attends to what it makes.

    Args:
        d_model: the size E of a position.
        nhead: how many heads share it.
        num_encoder_layers: how many layers the encoder has.
        num_decoder_layers: how many layers the decoder has.
        dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device,
            dtype: as in `TransformerEncoderLayer`.
        custom_encoder: what to use instead of the encoder.
        custom_decoder: what to use instead of the decoder.

    Example:
        >>> model = nn.Transformer(16, 4, 2, 2, 32, batch_first=True)
        >>> model(adjit.rand(2, 10, 16), adjit.rand(2, 20, 16)).shape
        adjit.Size([2, 20, 16])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        layer = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first,
            bias, device, dtype,
        )  # fmt: skip

        def norm() -> LayerNorm:
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, device=device, dtype=dtype)

        self.encoder = custom_encoder
        if custom_encoder is None:
            self.encoder = TransformerEncoder(
                TransformerEncoderLayer(*layer), num_encoder_layers, norm()
            )
        self.decoder = custom_decoder
        if custom_decoder is None:
            self.decoder = TransformerDecoder(
                TransformerDecoderLayer(*layer), num_decoder_layers, norm()
            )
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        axis = 0 if self.batch_first else 1
        if src.ndim == 3 and src.size(axis) != tgt.size(axis):
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(
            src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal
        )
        made: Tensor = self.decoder(
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal, memory_is_causal=memory_is_causal,
        )  # fmt: skip
        return made

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: Any = None, dtype: DType | None = None
    ) -> Tensor:
        """The causal mask of `sz` positions, which is added to scores: -inf above the diagonal, else 0.

        Example:
            >>> nn.Transformer.generate_square_subsequent_mask(3)
            tensor([[0., -inf, -inf],
                    [0., 0., -inf],
                    [0., 0., 0.]])
        """
        return later_hidden(sz, device, dtype)

    def _reset_parameters(self) -> None:
        for p in self.parameters():
            if p.ndim > 1:
                init.xavier_uniform_(p)
