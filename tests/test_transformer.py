"""Layers with attention beside PyTorch's: values, gradients, masks, state, `repr`, errors, programs."""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import numpy as np
import pytest
from against_torch import agree_in_warning, plain, same_tensor, torch

import adjit

RANDOM = np.random.default_rng(5)
INF = float("inf")


def normal(*shape: int) -> Any:
    return RANDOM.standard_normal(shape)


def pair(name: str, *args: Any, **how: Any) -> tuple[Any, Any]:
    """A float64 layer of both libraries with the same parameters, none of them as it starts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = (
            getattr(T.nn, name)(*args, dtype=T.float64, **how) for T in (adjit, torch)
        )  # fmt: skip
    return same_parameters(ours, theirs)


def same_parameters(ours: Any, theirs: Any) -> tuple[Any, Any]:
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        values = normal(*q.shape) * 0.4
        with torch.no_grad():
            q.copy_(torch.tensor(values))
        with adjit.no_grad():
            p.copy_(adjit.tensor(values))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert plain(ours) == plain(theirs)
    return ours, theirs


def run(T: Any, layer: Any, call: Any, arrays: Any) -> list[Any]:
    """Results, and the gradients of inputs and parameters."""
    inputs = [
        T.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays
    ]  # fmt: skip
    out = call(layer, *inputs)
    results = [o for o in (out if isinstance(out, tuple) else (out,)) if o is not None]
    total = 0
    for k, o in enumerate(results):
        total = total + (o * T.tensor(np.cos(k + np.arange(o.numel())).reshape(o.shape))).sum()
    leaves = [t for t in (*inputs, *layer.parameters()) if t.requires_grad]
    grads = T.autograd.grad(total, leaves, allow_unused=True)
    return [*results, *grads]


def agree(pair: tuple[Any, Any], call: Any, *arrays: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = run(adjit, pair[0], call, arrays)
        theirs = run(torch, pair[1], call, arrays)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            same_tensor(a, b, 1e-9, 1e-11)


def library(x: Any) -> Any:
    return adjit if isinstance(x, adjit.Tensor) else torch


# --------------------------------------------------------------------------- MultiheadAttention

LAYERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch first": {"batch_first": True},
    "no bias": {"bias": False},
    "further keys": {"add_bias_kv": True, "add_zero_attn": True},
    "other widths": {"kdim": 5, "vdim": 7},
    "other widths without a bias": {"kdim": 5, "vdim": 7, "bias": False, "add_bias_kv": True},
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("need_weights", [True, False])
def test_multi_head_attention(name: str, need_weights: bool) -> None:
    how = LAYERS[name]
    layers = pair("MultiheadAttention", 12, 3, **how)
    lead = (2, 4) if how.get("batch_first") else (4, 2)
    lead_keys = (2, 6) if how.get("batch_first") else (6, 2)
    query, key, value = (
        normal(*lead, 12), normal(*lead_keys, how.get("kdim", 12)), normal(*lead_keys, how.get("vdim", 12))
    )  # fmt: skip

    def call(layer: Any, q: Any, k: Any, v: Any, *masks: Any, **more: Any) -> Any:
        return layer(q, k, v, need_weights=need_weights, **more)

    agree(layers, call, query, key, value)
    agree(layers, lambda layer, *t: call(layer, *t, average_attn_weights=False), query, key, value)
    hidden = RANDOM.random((4, 6)) < 0.3
    hidden[:, 0] = False
    padding = np.zeros((2, 6), bool)
    padding[1, 4:] = True
    each = RANDOM.random((6, 4, 6)) < 0.3
    each[:, :, 0] = False
    for mask in (hidden, each, normal(4, 6), normal(6, 4, 6)):
        is_flag = mask.dtype == bool
        agree(
            layers,
            lambda layer, q, k, v, m: call(layer, q, k, v, attn_mask=m),
            query,
            key,
            value,
            mask,
        )
        agree(
            layers,
            lambda layer, q, k, v, m, p: call(layer, q, k, v, attn_mask=m, key_padding_mask=p),
            query, key, value, mask, padding if is_flag else normal(2, 6),
        )  # fmt: skip
    agree(
        layers, lambda layer, q, k, v, p: call(layer, q, k, v, key_padding_mask=p), query, key, value, padding
    )  # fmt: skip
    if not how.get("batch_first"):
        agree(
            layers,
            lambda layer, q, k, v, m, p: call(
                layer, q[:, 0], k[:, 0], v[:, 0], attn_mask=m, key_padding_mask=p[0]
            ),
            query, key, value, hidden, padding,
        )  # fmt: skip


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("need_weights", [True, False])
def test_attention_to_itself(batch_first: bool, need_weights: bool) -> None:
    layers = pair("MultiheadAttention", 12, 3, batch_first=batch_first)
    x = normal(4, 4, 12)

    def call(layer: Any, x: Any) -> Any:
        mask = library(x).nn.Transformer.generate_square_subsequent_mask(4).to(x.dtype)
        return layer(x, x, x, need_weights=need_weights, attn_mask=mask, is_causal=True)

    agree(layers, call, x)
    agree(
        layers, lambda layer, x, y: layer(x, y, y, need_weights=need_weights), x, normal(4, 4, 12)
    )
    agree(layers, lambda layer, x: call(layer, x[0]), x)
    for layer in layers:
        layer.eval()
        layer.requires_grad_(False)
    with torch.no_grad(), adjit.no_grad():  # PyTorch's fast path
        found = [call(layer, T.tensor(x)) for T, layer in zip((adjit, torch), layers, strict=True)]
    same_tensor(found[0][0], found[1][0], 1e-9, 1e-11)
    assert (found[0][1] is None) == (found[1][1] is None)
    if need_weights:
        same_tensor(found[0][1], found[1][1], 1e-9, 1e-11)


def test_keys_that_are_all_hidden() -> None:
    """NaN where weights are made, the bias where they are not, as in PyTorch."""
    layers = pair("MultiheadAttention", 4, 2)
    x, padding = normal(3, 2, 4), np.array([[True] * 3, [False] * 3])
    for need_weights in (True, False):
        results = [
            layer(
                *[T.tensor(x)] * 3, key_padding_mask=T.tensor(padding), need_weights=need_weights
            )[0]
            for T, layer in zip((adjit, torch), layers, strict=True)
        ]
        same_tensor(*results, 1e-9, 1e-11)


def test_weights_that_are_dropped() -> None:
    layer = adjit.nn.MultiheadAttention(8, 2, dropout=0.5)
    x = adjit.randn(5, 1, 8)
    _, weights = layer(x, x, x, average_attn_weights=False)
    assert 0 < int((weights == 0).sum()) < weights.numel()
    first, second = (layer(x, x, x, need_weights=False)[0] for _ in range(2))
    assert not first.equal(second)
    layer.eval()
    same_tensor(layer(x, x, x)[0], layer(x, x, x, need_weights=False)[0], 1e-4, 1e-5)


def test_how_it_starts() -> None:
    layer = adjit.nn.MultiheadAttention(64, 4, add_bias_kv=True)
    bound = math.sqrt(6 / (64 + 192))
    assert 0.9 * bound < float(layer.in_proj_weight.abs().max().item()) <= bound
    assert not layer.in_proj_bias.any()
    assert not layer.out_proj.bias.any()
    assert float(layer.bias_k.std().item()) > 0
    wide = adjit.nn.MultiheadAttention(64, 4, kdim=32, vdim=16)
    for weight, size in (
        (wide.q_proj_weight, 64),
        (wide.k_proj_weight, 32),
        (wide.v_proj_weight, 16),
    ):
        bound = math.sqrt(6 / (64 + size))
        assert 0.8 * bound < float(weight.abs().max().item()) <= bound


def test_projections_that_are_given() -> None:
    """`F.multi_head_attention_forward` with keys and values that need no projection."""
    weight, bias, out, x = normal(12, 4), normal(12), normal(4, 4), normal(3, 2, 4)
    keys, values = normal(4, 5, 2), normal(4, 5, 2)
    results = []
    for T in (adjit, torch):
        t = [T.tensor(a) for a in (x, weight, bias, out, keys, values)]
        results.append(
            T.nn.functional.multi_head_attention_forward(
                t[0],
                t[0],
                t[0],
                4,
                2,
                t[1],
                t[2],
                None,
                None,
                False,
                0.0,
                t[3],
                None,
                static_k=t[4],
                static_v=t[5],
                average_attn_weights=False,
            )
        )
    for a, b in zip(*results, strict=True):
        same_tensor(a, b, 1e-9, 1e-11)


def test_merged_masks() -> None:
    layers = pair("MultiheadAttention", 4, 2, batch_first=True)
    for mask, padding in ((None, None), (normal(3, 3), None), (None, normal(2, 3)),
                          (normal(3, 3), normal(2, 3)), (normal(4, 3, 3), normal(2, 3))):  # fmt: skip
        found = []
        for T, layer in zip((adjit, torch), layers, strict=True):
            given = [None if a is None else T.tensor(a) for a in (mask, padding)]
            found.append(layer.merge_masks(*given, T.zeros(2, 3, 4)))
        assert found[0][1] == found[1][1]
        if found[1][0] is None:
            assert found[0][0] is None
        else:
            same_tensor(found[0][0], found[1][0], 0, 0)


def wrong(T: Any, kind: str) -> Any:
    """Calls that raise."""
    F, ones, x = T.nn.functional, T.ones, T.ones(3, 2, 4)
    layer = T.nn.MultiheadAttention(4, 2)
    weight, out = ones(12, 4), ones(4, 4)
    separate = [ones(4, 4), ones(4, 4), ones(4, 4)]

    def forward(*how: Any, **more: Any) -> Any:
        given = [x, x, x, 4, 2, weight, None, None, None, False, 0.0, out, None]
        given[: len(how)] = how
        return F.multi_head_attention_forward(*given, **more)

    def by_three(q: Any = None, k: Any = None, v: Any = None, **more: Any) -> Any:
        weights = {"q_proj_weight": q, "k_proj_weight": k, "v_proj_weight": v}
        return forward(use_separate_proj_weight=True, **weights, **more)

    calls = {
        "sizes": lambda: T.nn.MultiheadAttention(0, 2),
        "heads": lambda: T.nn.MultiheadAttention(5, 2),
        "axes": lambda: layer(ones(4), x, x),
        "axes of keys": lambda: layer(x, ones(3, 4), x),
        "axes of keys, unbatched": lambda: layer(ones(3, 4), x, x),
        "axes of padding": lambda: layer(x, x, x, key_padding_mask=ones(3)),
        "axes of padding, unbatched": lambda: layer(*[ones(3, 4)] * 3, key_padding_mask=ones(3, 3)),
        "axes of the mask": lambda: layer(x, x, x, attn_mask=ones(3)),
        "axes of the mask, unbatched": lambda: layer(*[ones(3, 4)] * 3, attn_mask=ones(3)),
        "mask, unbatched": lambda: layer(*[ones(3, 4)] * 3, attn_mask=ones(1, 3, 3)),
        "mask of two axes": lambda: layer(x, x, x, attn_mask=ones(4, 3)),
        "mask of three axes": lambda: layer(x, x, x, attn_mask=ones(2, 3, 3)),
        "padding": lambda: layer(x, x, x, key_padding_mask=ones(2, 4)),
        "batch of padding": lambda: layer(x, x, x, key_padding_mask=ones(3, 3)),
        "numbers": lambda: layer(x, x, x, attn_mask=ones(3, 3).long()),
        "padding of numbers": lambda: layer(x, x, x, key_padding_mask=ones(2, 3).long()),
        "causal without a mask": lambda: layer(x, x, x, is_causal=True),
        "width": lambda: layer(ones(3, 2, 6), ones(3, 2, 6), ones(3, 2, 6)),
        "values": lambda: layer(x, x, ones(4, 2, 4)),
        "width and heads": lambda: forward(x, x, x, 4, 3),
        "no weight": lambda: forward(x, x, x, 4, 2, None),
        "batch of values": lambda: forward(x, x, ones(4, 2, 4), use_separate_proj_weight=True),
        "no query weight": lambda: by_three(),
        "no key weight": lambda: by_three(separate[0]),
        "no value weight": lambda: by_three(*separate[:2]),
        "query weight": lambda: by_three(ones(3, 4), *separate[1:]),
        "key weight": lambda: by_three(separate[0], ones(4, 3), separate[2]),
        "value weight": lambda: by_three(*separate[:2], ones(4, 5)),
        "one further key": lambda: forward(x, x, x, 4, 2, weight, None, ones(1, 1, 4)),
        "one further value": lambda: forward(x, x, x, 4, 2, weight, None, None, ones(1, 1, 4)),
        "static and further keys": lambda: forward(
            x, x, x, 4, 2, weight, None, ones(1, 1, 4), ones(1, 1, 4), static_k=ones(4, 3, 2)
        ),
        "static and further values": lambda: forward(
            x, x, x, 4, 2, weight, None, ones(1, 1, 4), ones(1, 1, 4), static_v=ones(4, 3, 2)
        ),
        "static keys": lambda: forward(static_k=ones(3, 3, 2)),
        "width of static keys": lambda: forward(static_k=ones(4, 3, 3)),
        "static values": lambda: forward(static_v=ones(3, 3, 2)),
        "width of static values": lambda: forward(static_v=ones(4, 3, 3)),
        "activation": lambda: T.nn.TransformerEncoderLayer(4, 2, activation="tanh"),
        "activation of a decoder": lambda: T.nn.TransformerDecoderLayer(4, 2, activation="tanh"),
        "batches": lambda: T.nn.Transformer(4, 2, 1, 1, 4)(ones(3, 2, 4), ones(3, 1, 4)),
        "batches that come first": lambda: T.nn.Transformer(4, 2, 1, 1, 4, batch_first=True)(
            ones(2, 3, 4), ones(1, 3, 4)
        ),
        "features": lambda: T.nn.Transformer(4, 2, 1, 1, 4)(ones(3, 2, 4), ones(3, 2, 5)),
        "backend": lambda: T.nn.attention.sdpa_kernel("flash").__enter__(),
    }
    return calls if kind == "" else calls[kind]()


@pytest.mark.parametrize("kind", wrong(adjit, ""))
def test_errors(kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as theirs:  # noqa: PT011
            wrong(torch, kind)
        with pytest.raises(type(theirs.value)) as ours:
            wrong(adjit, kind)
    assert plain(ours.value) == plain(theirs.value)


def test_warnings() -> None:
    x, padding = np.ones((3, 2, 4), np.float32), np.zeros((2, 3), np.float32)

    def mismatched(T: Any, x: Any, padding: Any) -> Any:
        mask = T.zeros(3, 3).bool()
        return T.nn.MultiheadAttention(4, 2)(x, x, x, attn_mask=mask, key_padding_mask=padding)

    agree_in_warning(mismatched, x, padding)

    def encoder(T: Any, **how: Any) -> Any:
        layer = T.nn.TransformerEncoderLayer(6, how.pop("heads", 2), 4, **how)
        return T.nn.TransformerEncoder(layer, 1)

    for how in ({}, {"batch_first": True, "norm_first": True}, {"batch_first": True, "bias": False},
                {"batch_first": True, "activation": abs}, {"batch_first": True, "heads": 3}):  # fmt: skip
        agree_in_warning(lambda T, how=how: encoder(T, **how))

    def uneven(T: Any) -> Any:
        layer = T.nn.TransformerEncoderLayer(4, 2, 4, batch_first=True)
        layer.norm1.eps = 1e-3
        T.nn.TransformerEncoder(layer, 1)
        T.nn.TransformerEncoder(T.nn.Linear(2, 2), 1)

    agree_in_warning(uneven)


# --------------------------------------------------------------------------- encoder and decoder


def test_the_causal_mask() -> None:
    for T in (adjit, torch):
        mask = T.nn.Transformer.generate_square_subsequent_mask(3, dtype=T.float64)
        assert mask.tolist() == [[0.0, -INF, -INF], [0.0, 0.0, -INF], [0.0, 0.0, 0.0]]
        assert plain(mask.dtype) == "T.float64"


FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "gelu, norms first": {"activation": "gelu", "norm_first": True, "batch_first": True},
    "no bias": {"bias": False, "layer_norm_eps": 1e-3},
}


@pytest.mark.parametrize("name", FORMS)
def test_layers(name: str) -> None:
    how = {"dropout": 0.0, **FORMS[name]}
    first = bool(how.get("batch_first"))
    x, memory = (normal(2, n, 8) if first else normal(n, 2, 8) for n in (5, 6))
    hidden, padding = np.triu(np.ones((5, 5), bool), 1), np.zeros((2, 5), bool)
    padding[0, 3:] = True
    encoder = pair("TransformerEncoderLayer", 8, 2, 16, **how)
    agree(encoder, lambda layer, x: layer(x), x)
    agree(
        encoder, lambda layer, x, m, p: layer(x, src_mask=m, src_key_padding_mask=p), x, hidden, padding
    )  # fmt: skip
    agree(encoder, lambda layer, x, m: layer(x, m, is_causal=True), x, hidden)
    decoder = pair("TransformerDecoderLayer", 8, 2, 16, **how)
    agree(decoder, lambda layer, x, y: layer(x, y), x, memory)
    agree(
        decoder,
        lambda layer, x, y, m, n, p, q: layer(
            x, y, tgt_mask=m, memory_mask=n, tgt_key_padding_mask=p, memory_key_padding_mask=q
        ),
        x, memory, hidden, np.triu(np.ones((5, 6), bool), 3), padding,
        np.array([[False] * 6, [False] * 4 + [True] * 2]),
    )  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_transformer(name: str) -> None:
    how = {"dropout": 0.0, **FORMS[name]}
    first = bool(how.get("batch_first"))
    model = pair("Transformer", 8, 2, 2, 2, 16, **how)
    source, target = (normal(2, n, 8) if first else normal(n, 2, 8) for n in (6, 5))
    agree(model, lambda m, x, y: m(x, y), source, target)

    def masked(model: Any, x: Any, y: Any, padding: Any) -> Any:
        T = library(x)
        mask = T.nn.Transformer.generate_square_subsequent_mask(5, dtype=x.dtype)
        added = T.zeros(2, 6, dtype=x.dtype).masked_fill(padding, -INF)
        return model(
            x, y, tgt_mask=mask, src_key_padding_mask=added, memory_key_padding_mask=added,
            tgt_is_causal=True,
        )  # fmt: skip

    padding = np.array([[False] * 6, [False] * 4 + [True] * 2])
    agree(model, masked, source, target, padding)
    if not first:
        agree(model, lambda m, x, y: m(x[:, 0], y[:, 0]), source, target)


def test_layers_that_are_copies() -> None:
    layer = adjit.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = adjit.nn.TransformerEncoder(layer, 3, adjit.nn.LayerNorm(8))
    weights = [each.linear1.weight for each in encoder.layers]
    assert all(w is not layer.linear1.weight and w.equal(layer.linear1.weight) for w in weights)
    custom = adjit.nn.Transformer(8, 2, custom_encoder=encoder, num_decoder_layers=1)
    assert custom.encoder is encoder
    assert not weights[0].equal(weights[1])  # drawn anew
    loaded = copy.deepcopy(custom)
    loaded.load_state_dict(custom.state_dict())
    x = adjit.rand(1, 4, 8)
    custom.eval(), loaded.eval()
    assert custom(x, x).equal(loaded(x, x))


@pytest.mark.parametrize("mask_check", [True, False])
def test_hidden_positions_in_evaluation(mask_check: bool) -> None:
    """PyTorch leaves them out where they are at the end, and gives 0 for them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = []
        for T in (adjit, torch):
            layer = T.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dtype=T.float64)
            norm = T.nn.LayerNorm(8, dtype=T.float64)
            models.append(T.nn.TransformerEncoder(layer, 2, norm, mask_check=mask_check).eval())
        same_parameters(*models)
        at_end, between = np.zeros((2, 2, 5), bool)
        at_end[1, 3:], between[1, 2] = True, True
        x = normal(2, 5, 8)
        for padding in (at_end, between) if mask_check else (at_end,):
            results = []
            for T, model in zip((adjit, torch), models, strict=True):
                with T.no_grad():
                    results.append(model(T.tensor(x), src_key_padding_mask=T.tensor(padding)))
            same_tensor(*results, 1e-9, 1e-11)
            agree((models[0], models[1]), lambda m, x, p: m(x, src_key_padding_mask=p), x, padding)


# --------------------------------------------------------------------------- settings


def test_settings_of_attention() -> None:
    attention, cuda = adjit.nn.attention, adjit.backends.cuda
    for name, number in torch.nn.attention.SDPBackend.__members__.items():
        ours = getattr(attention.SDPBackend, name)
        assert int(ours) == int(number)
        assert plain(repr(ours)) == plain(repr(number))
    before = set(attention.enabled)
    with attention.sdpa_kernel(
        [attention.SDPBackend.MATH, attention.SDPBackend.FLASH_ATTENTION]
    ) as told:
        assert told == {}
        assert cuda.math_sdp_enabled()
        assert cuda.flash_sdp_enabled()
        assert not cuda.mem_efficient_sdp_enabled()
        assert not cuda.cudnn_sdp_enabled()
    assert attention.enabled == before
    for name in ("flash", "math", "mem_efficient", "cudnn"):
        getattr(cuda, f"enable_{name}_sdp")(False)
        assert getattr(cuda, f"{name}_sdp_enabled")() is False
        getattr(cuda, f"enable_{name}_sdp")(True)
        assert getattr(cuda, f"{name}_sdp_enabled")() is True
    assert not cuda.is_flash_attention_available()

    def older(T: Any) -> None:
        with T.backends.cuda.sdp_kernel(enable_math=False):
            assert not T.backends.cuda.math_sdp_enabled()

    agree_in_warning(older)


# --------------------------------------------------------------------------- programs


def word_model(T: Any) -> Any:
    """The model of PyTorch's word language example, with its Transformer."""
    nn = T.nn

    class PositionalEncoding(nn.Module):
        def __init__(self, d_model: int, dropout: float = 0.1, max_len: int = 5000) -> None:
            super().__init__()
            self.dropout = nn.Dropout(p=dropout)
            pe = T.zeros(max_len, d_model)
            position = T.arange(0, max_len, dtype=T.float).unsqueeze(1)
            div_term = T.exp(T.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
            pe[:, 0::2] = T.sin(position * div_term)
            pe[:, 1::2] = T.cos(position * div_term)
            pe = pe.unsqueeze(0).transpose(0, 1)
            self.register_buffer("pe", pe)

        def forward(self, x: Any) -> Any:
            return self.dropout(x + self.pe[: x.size(0), :])

    class TransformerModel(nn.Transformer):
        def __init__(self, ntoken: int, ninp: int, nhead: int, nhid: int, nlayers: int) -> None:
            super().__init__(
                d_model=ninp, nhead=nhead, dim_feedforward=nhid, num_encoder_layers=nlayers
            )
            self.model_type = "Transformer"
            self.src_mask = None
            self.pos_encoder = PositionalEncoding(ninp, 0.0)
            self.input_emb = nn.Embedding(ntoken, ninp)
            self.ninp = ninp
            self.decoder = nn.Linear(ninp, ntoken)
            self.init_weights()

        def _generate_square_subsequent_mask(self, sz: int) -> Any:
            return T.log(T.tril(T.ones(sz, sz)))

        def init_weights(self) -> None:
            initrange = 0.1
            nn.init.uniform_(self.input_emb.weight, -initrange, initrange)
            nn.init.zeros_(self.decoder.bias)
            nn.init.uniform_(self.decoder.weight, -initrange, initrange)

        def forward(self, src: Any, has_mask: bool = True) -> Any:
            if has_mask:
                device = src.device
                if self.src_mask is None or self.src_mask.size(0) != len(src):
                    self.src_mask = self._generate_square_subsequent_mask(len(src)).to(device)
            else:
                self.src_mask = None
            src = self.input_emb(src) * math.sqrt(self.ninp)
            src = self.pos_encoder(src)
            output = self.encoder(src, mask=self.src_mask)
            output = self.decoder(output)
            return nn.functional.log_softmax(output, dim=-1)

    return TransformerModel(50, 16, 2, 32, 2)


def small_gpt(T: Any) -> Any:
    """A decoder as nanoGPT has it."""
    nn, F = T.nn, T.nn.functional

    class CausalSelfAttention(nn.Module):
        def __init__(self, n_embd: int, n_head: int, block_size: int, flash: bool) -> None:
            super().__init__()
            self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=False)
            self.c_proj = nn.Linear(n_embd, n_embd, bias=False)
            self.n_head, self.n_embd, self.flash = n_head, n_embd, flash
            self.attn_dropout = nn.Dropout(0.0)
            mask = T.tril(T.ones(block_size, block_size)).view(1, 1, block_size, block_size)
            self.register_buffer("bias", mask)

        def forward(self, x: Any) -> Any:
            B, seq, C = x.size()
            q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
            k = k.view(B, seq, self.n_head, C // self.n_head).transpose(1, 2)
            q = q.view(B, seq, self.n_head, C // self.n_head).transpose(1, 2)
            v = v.view(B, seq, self.n_head, C // self.n_head).transpose(1, 2)
            if self.flash:
                y = F.scaled_dot_product_attention(
                    q, k, v, attn_mask=None, dropout_p=0.0, is_causal=True
                )
            else:  # minGPT's
                att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
                att = att.masked_fill(self.bias[:, :, :seq, :seq] == 0, float("-inf"))
                att = self.attn_dropout(F.softmax(att, dim=-1))
                y = att @ v
            y = y.transpose(1, 2).contiguous().view(B, seq, C)
            return self.c_proj(y)

    class Block(nn.Module):
        def __init__(self, n_embd: int, n_head: int, block_size: int, flash: bool) -> None:
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
            self.attn = CausalSelfAttention(n_embd, n_head, block_size, flash)
            self.mlp = nn.Sequential(
                nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd)
            )

        def forward(self, x: Any) -> Any:
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class GPT(nn.Module):
        def __init__(self, flash: bool) -> None:
            super().__init__()
            self.transformer = nn.ModuleDict(
                {
                    "wte": nn.Embedding(65, 32), "wpe": nn.Embedding(80, 32),
                    "h": nn.ModuleList([Block(32, 4, 80, flash) for _ in range(2)]),
                    "ln_f": nn.LayerNorm(32),
                }
            )  # fmt: skip
            self.lm_head = nn.Linear(32, 65, bias=False)
            self.transformer.wte.weight = self.lm_head.weight

        def forward(self, idx: Any, targets: Any) -> Any:
            pos = T.arange(0, idx.size(1), dtype=T.long, device=idx.device)
            x = self.transformer.wte(idx) + self.transformer.wpe(pos)
            for block in self.transformer.h:
                x = block(x)
            logits = self.lm_head(self.transformer.ln_f(x))
            return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))

    return GPT(True), GPT(False)


def trained(T: Any, model: Any, loss: Any, steps: int) -> list[float]:
    """The losses of some steps of AdamW."""
    optimizer = T.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        value = loss(model)
        value.backward()
        T.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(value.item()))
    return losses


def test_a_small_gpt_learns_as_in_torch() -> None:
    tokens = RANDOM.integers(0, 65, (3, 71))
    for k in range(2):
        losses, models = [], [small_gpt(T)[k] for T in (adjit, torch)]
        models[0].load_state_dict(
            {name: adjit.tensor(t.numpy()) for name, t in models[1].state_dict().items()}
        )
        for T, model in zip((adjit, torch), models, strict=True):
            x, y = T.tensor(tokens[:, :-1]), T.tensor(tokens[:, 1:])
            losses.append(trained(T, model, lambda m, x=x, y=y: m(x, y)[1], 6))
        np.testing.assert_allclose(losses[0], losses[1], rtol=2e-5)
        assert losses[0][-1] < losses[0][0]


def test_the_word_language_model_learns_as_in_torch() -> None:
    tokens = RANDOM.integers(0, 50, (36, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = [word_model(T) for T in (adjit, torch)]
    models[0].load_state_dict(
        {name: adjit.tensor(t.numpy()) for name, t in models[1].state_dict().items()}
    )
    losses = []
    for T, model in zip((adjit, torch), models, strict=True):
        model.eval()  # no dropout, which draws other numbers
        x, y = T.tensor(tokens[:-1]), T.tensor(tokens[1:])

        def loss(model: Any, T: Any = T, x: Any = x, y: Any = y) -> Any:
            return T.nn.functional.nll_loss(model(x).view(-1, 50), y.reshape(-1))

        losses.append(trained(T, model, loss, 6))
        model.train()
        assert math.isfinite(float(loss(model).item()))
    np.testing.assert_allclose(losses[0], losses[1], rtol=2e-5)
    assert losses[0][-1] < losses[0][0]
