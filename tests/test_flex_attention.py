"""`nn.attention.flex_attention` beside PyTorch's; gradients beside those of the same by hand."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import adjit

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torch.nn.attention.flex_attention")
ours = adjit.nn.attention.flex_attention

SIZES = 2, 4, 10, 8  # batch, heads, queries and keys, size
RNG = np.random.default_rng(3)
QUERY, KEY, VALUE = (RNG.standard_normal(SIZES).astype(np.float32) for _ in range(3))
BIAS = RNG.standard_normal((4, 19)).astype(np.float32)
DOCUMENT = np.array([0, 0, 0, 1, 1, 1, 1, 2, 2, 2])


def score_mods(lib):
    bias, document = lib.from_numpy(BIAS), lib.from_numpy(DOCUMENT)
    inf = -float("inf")
    return {
        "none": None,
        "relative": lambda s, b, h, q, k: s + (q - k),
        "alibi": lambda s, b, h, q, k: s - lib.exp2(-(h + 1.0)) * (q - k).abs(),
        "table": lambda s, b, h, q, k: s + bias[h, q - k + 9],
        "causal": lambda s, b, h, q, k: lib.where(q >= k, s, inf),
        "soft cap": lambda s, b, h, q, k: 5.0 * lib.tanh(s / 5.0),
        "by example": lambda s, b, h, q, k: s * (b + 1),
        "documents": lambda s, b, h, q, k: lib.where(document[q] == document[k], s, inf),
        "all masked": lambda s, b, h, q, k: lib.where(q > 2, s, inf),
    }


def mask_mods(lib):
    document = lib.from_numpy(DOCUMENT)
    flex = theirs if lib is torch else ours

    def causal(b, h, q, k):
        return q >= k

    def window(b, h, q, k):
        return (q - k).abs() <= 3

    return {
        "causal": causal,
        "both": flex.and_masks(causal, window),
        "either": flex.or_masks(causal, window),
        "documents": lambda b, h, q, k: (document[q] == document[k]) & (q >= k),
        "by head": lambda b, h, q, k: (q + h) % 2 == k % 2,
        "all": flex.noop_mask,
        "some rows": lambda b, h, q, k: q > 2,
    }


def tensors(lib):
    return [lib.from_numpy(x.copy()) for x in (QUERY, KEY, VALUE)]


@pytest.fixture(autouse=True)
def without_dynamo(monkeypatch):
    """PyTorch's function in Python: what it compiles is the same."""
    monkeypatch.setattr(theirs, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def both(action):
    found = [action(lib, flex) for lib, flex in ((torch, theirs), (adjit, ours))]
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", score_mods(adjit))
def test_scores_of_a_function(name):
    both(lambda lib, flex: [flex.flex_attention(*tensors(lib), score_mods(lib)[name])])


@pytest.mark.parametrize("name", mask_mods(adjit))
def test_masks_of_a_function(name):
    def action(lib, flex):
        mask = flex.create_block_mask(
            mask_mods(lib)[name], None, 4, 10, 10, device="cpu", BLOCK_SIZE=4
        )
        q, k, v = tensors(lib)
        out, aux = flex.flex_attention(
            q, k, v, score_mods(lib)["relative"], mask, return_aux=flex.AuxRequest(lse=True)
        )
        return [
            out,
            aux.lse,
            flex.flex_attention(q, k, v, block_mask=mask, scale=0.3),
        ]

    both(action)


@pytest.mark.parametrize("name", mask_mods(adjit))
@pytest.mark.parametrize("size", [4, (4, 2), 128])
def test_blocks(name, size):
    masks = [
        flex.create_block_mask(mask_mods(lib)[name], 2, 4, 10, 10, device="cpu", BLOCK_SIZE=size)
        for lib, flex in ((torch, theirs), (adjit, ours))
    ]
    for name in ("kv_num_blocks", "kv_indices", "q_num_blocks", "q_indices"):
        for field in (name, f"full_{name}"):
            a, b = (getattr(mask, field) for mask in masks)
            assert a.tolist() == b.tolist()
            assert str(a.dtype).partition(".")[2] == str(b.dtype).partition(".")[2]
    a, b = masks
    assert (a.shape, a.numel(), a.sparsity()) == (b.shape, b.numel(), b.sparsity())
    assert a.to_dense().tolist() == b.to_dense().tolist()
    assert str(a) == str(b)
    assert a.to_string(2, limit=1) == b.to_string(2, limit=1)
    assert repr(a).replace("torch.", "adjit.") == repr(b)
    assert a[1, 0:2].to_dense().tolist() == b[1, 0:2].to_dense().tolist()
    assert b.to("cpu").as_tuple()[2].tolist() == a.as_tuple()[2].tolist()


def test_the_upper_left_part():
    for lengths in ((6, 6), (4, 7), (10, 10)):
        cut = [
            flex.create_block_mask(
                lambda b, h, q, k: q >= k, 2, 1, 10, 10, device="cpu", BLOCK_SIZE=2
            )._adjust(*lengths)
            for flex in (theirs, ours)
        ]
        assert cut[0].shape == cut[1].shape == (2, 1, *lengths)
        if lengths[0] == lengths[1]:  # else PyTorch fails
            assert cut[0].to_dense().tolist() == cut[1].to_dense().tolist()


def test_the_largest_scores():
    q, k, v = tensors(adjit)
    aux = ours.AuxRequest(max_scores=True)
    _, found = ours.flex_attention(q, k, v, score_mods(adjit)["relative"], return_aux=aux)
    far = np.arange(10)[:, None] - np.arange(10)
    expected = (QUERY @ KEY.swapaxes(-1, -2) / math.sqrt(8) + far).max(-1)
    np.testing.assert_allclose(found.max_scores.numpy(), expected, rtol=1e-5)
    assert found.lse is None


def test_masks_as_tensors():
    for name, mod in mask_mods(torch).items():
        made = theirs.create_mask(mod, 2, 4, 5, 6, device="cpu")
        assert ours.create_mask(mask_mods(adjit)[name], 2, 4, 5, 6).tolist() == made.tolist()
    mods = [score_mods(lib)["causal"] for lib in (torch, adjit)]
    made = theirs.create_mask(mods[0], 1, 1, 5, 6, device="cpu")
    assert ours.create_mask(mods[1], 1, 1, 5, 6).tolist() == made.tolist()


def test_fewer_heads_of_keys_and_examples():
    def action(lib, flex):
        q, k, v = tensors(lib)
        mod = score_mods(lib)["alibi"]
        mask = flex.create_block_mask(mask_mods(lib)["causal"], 2, None, 10, 10, device="cpu")
        return [
            flex.flex_attention(q, k[:, :2], v[:, :2], mod, enable_gqa=True),
            flex.flex_attention(q, k[:, :1], v[:, :1, :, :3], enable_gqa=True),
            flex.flex_attention(q, k[:1], v[:1], block_mask=mask),
            *flex.flex_attention(q, k, v, return_lse=True),
        ]

    both(action)


def test_gradients():
    q, k, v, table = (
        adjit.from_numpy(x[..., :4, :3] if x.ndim == 4 else x).double().requires_grad_()
        for x in (QUERY, KEY, VALUE, BIAS)
    )
    mask = ours.create_block_mask(lambda b, h, i, j: i >= j, None, None, 4, 4, BLOCK_SIZE=2)

    def attention(q, k, v, table):
        mod = lambda s, b, h, i, j: s.tanh() + table[h, i - j + 9]  # noqa: E731
        aux = ours.AuxRequest(lse=True)
        out, found = ours.flex_attention(q, k, v, mod, mask, return_aux=aux)
        return out, found.lse

    assert adjit.autograd.gradcheck(attention, (q, k, v, table))


def test_gradients_beside_those_by_hand():
    def by_hand(q, k, v, bias):
        places = torch.arange(10)
        far = places[:, None] - places
        scores = q @ k.mT / math.sqrt(8) + bias[:, far + 9]
        return scores.masked_fill(far < 0, -math.inf).softmax(-1) @ v

    def ours_of(q, k, v, bias):
        mask = ours.create_block_mask(lambda b, h, i, j: i >= j, None, None, 10, 10)
        return ours.flex_attention(q, k, v, lambda s, b, h, i, j: s + bias[h, i - j + 9], mask)

    found = []
    for lib, function in ((torch, by_hand), (adjit, ours_of)):
        given = [lib.from_numpy(x.copy()).requires_grad_() for x in (QUERY, KEY, VALUE, BIAS)]
        function(*given).sin().sum().backward()
        found.append([t.grad.numpy() for t in given])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


def test_blocks_without_a_function_are_what_counts():
    numbers = adjit.tensor([[[1, 2]]], dtype=adjit.int32)
    indices = adjit.tensor([[[[0, 1], [0, 1]]]], dtype=adjit.int32)
    mask = ours.BlockMask.from_kv_blocks(numbers, indices, BLOCK_SIZE=5)
    q, k, v = tensors(adjit)
    made = ours.flex_attention(q, k, v, block_mask=mask)
    expected = ours.flex_attention(q[:, :, :5], k[:, :, :5], v[:, :, :5])
    np.testing.assert_allclose(made[:, :, :5].numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


WRONG = {
    "axes": lambda flex, q, k, v: flex.flex_attention(q[0], k[0], v[0]),
    "one axis": lambda flex, q, k, v: flex.flex_attention(q[0, 0, 0], k, v),
    "size": lambda flex, q, k, v: flex.flex_attention(q[..., :3], k, v),
    "heads": lambda flex, q, k, v: flex.flex_attention(q, k[:, :2], v[:, :2]),
    "groups": lambda flex, q, k, v: flex.flex_attention(q, k[:, :3], v[:, :3], enable_gqa=True),
    "batch": lambda flex, q, k, v: flex.flex_attention(q, k[:1], v[:1]),
    "both": lambda flex, q, k, v: flex.flex_attention(
        q, k, v, return_lse=True, return_aux=flex.AuxRequest()
    ),
    "small": lambda flex, q, k, v: flex.flex_attention(
        q, k, v, block_mask=flex.create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 5, 5, device="cpu")
    ),
    "large": lambda flex, q, k, v: flex.flex_attention(
        q, k, v, block_mask=flex.create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 15, 15, device="cpu")
    ),
    "sliced": lambda flex, q, k, v: flex.flex_attention(
        q, k, v, block_mask=flex.create_block_mask(lambda b, h, q, k: q >= k, 2, 1, 10, 10, device="cpu")[:1]
    ),
    "no mask": lambda flex, q, k, v: flex.or_masks(3),
    "a score": lambda flex, q, k, v: flex.create_block_mask(
        lambda s, b, h, q, k: s, 1, 1, 5, 5, device="cpu"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name):
    errors = []
    for lib, flex in ((torch, theirs), (adjit, ours)):
        with pytest.raises(Exception, match=r".") as caught:
            WRONG[name](flex, *tensors(lib))
        errors.append((caught.type, str(caught.value).partition(" at 0x")[0]))
    assert errors[0][0] is errors[1][0]
    assert errors[0][1].partition("<")[0] == errors[1][1].partition("<")[0]
