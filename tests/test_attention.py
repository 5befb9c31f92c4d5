"""Attention by tiles: values, gradients of every order, masks, dropout, errors and memory, beside PyTorch."""

from __future__ import annotations

import importlib
import math
import warnings
from typing import Any

import numpy as np
import pytest
from adjit.kernels.ops import attention as kernels
from against_torch import agree, agree_in_error, agree_in_gradients, backward_name

import adjit
from adjit import storage

RANDOM = np.random.default_rng(11)


def normal(*shape: int, dtype: Any = np.float64) -> Any:
    return RANDOM.standard_normal(shape).astype(dtype)


def attend(T: Any, *tensors: Any, **how: Any) -> Any:
    return T.nn.functional.scaled_dot_product_attention(*tensors, **how)


def by_matrix(T: Any, *tensors: Any, **how: Any) -> Any:
    """The same, in PyTorch by what can be differentiated twice."""
    if T is adjit:
        return attend(T, *tensors, **how)
    with T.nn.attention.sdpa_kernel(T.nn.attention.SDPBackend.MATH):
        return attend(T, *tensors, **how)


def operands(
    batch: int, heads: int, queries: int, keys: int, depth: int, width: int, dtype: Any = np.float64
) -> Any:
    return (
        normal(batch, heads, queries, depth, dtype=dtype),
        normal(batch, heads, keys, depth, dtype=dtype),
        normal(batch, heads, keys, width, dtype=dtype),
    )


# One key; parts of vectors, panels and blocks; several blocks of each; a width of its own.
SIZES = [
    (1, 1, 1, 1, 1, 1), (2, 3, 5, 7, 4, 4), (1, 2, 97, 257, 20, 20), (1, 1, 300, 130, 64, 64),
    (1, 2, 200, 600, 33, 70), (2, 1, 64, 128, 300, 16),
]  # fmt: skip


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("is_causal", [False, True])
def test_values_and_gradients(sizes: Any, is_causal: bool) -> None:
    for dtype, tolerance in ((np.float32, 5e-6), (np.float64, 1e-13)):
        arrays = operands(*sizes, dtype=dtype)
        agree(
            lambda T, *t: attend(T, *t, is_causal=is_causal),
            *arrays,
            rtol=tolerance,
            atol=tolerance,
        )
    agree_in_gradients(
        lambda T, *t: by_matrix(T, *t, is_causal=is_causal), *operands(*sizes), order=2, atol=1e-10
    )


def masks(batch: int, heads: int, queries: int, keys: int) -> Any:
    """Masks of all shapes that broadcast, of bools and of numbers."""
    shapes = [(queries, keys), (1, keys), (queries, 1), (batch, 1, 1, keys), (1, heads, queries, keys),
              (batch, heads, queries, keys)]  # fmt: skip
    for shape in shapes:
        yield RANDOM.random(shape) < 0.6
        yield normal(*shape)


def test_masks() -> None:
    arrays = operands(2, 2, 70, 270, 8, 8)
    for mask in masks(2, 2, 70, 270):
        agree(lambda T, q, k, v, m: attend(T, q, k, v, m), *arrays, mask, rtol=1e-12, atol=1e-13)
        agree(
            lambda T, q, k, v, m: attend(T, q, k, v, m.expand(2, 2, 70, 270)[..., ::3], scale=0.1),
            arrays[0], arrays[1][:, :, ::3], arrays[2][:, :, ::3], mask, rtol=1e-12, atol=1e-13,
        )  # fmt: skip
    for mask in masks(2, 2, 5, 9):
        small = operands(2, 2, 5, 9, 3, 4)
        agree_in_gradients(lambda T, q, k, v, m: by_matrix(T, q, k, v, m), *small, mask, order=2)


@pytest.mark.parametrize("queries", [1, 3, 4, 8, 9])
@pytest.mark.parametrize("keys", [1, 3, 17, 255, 256, 257, 600])
def test_a_few_queries(queries: int, keys: int) -> None:
    """As where words are generated one by one: keys are read where they lie, in any order of axes."""
    near = {"rtol": 1e-12, "atol": 1e-13}
    for depth, width in ((1, 3), (8, 8), (33, 70)):
        arrays = operands(2, 4, queries, keys, depth, width)
        for is_causal in (False, True):
            agree(lambda T, *t, c=is_causal: attend(T, *t, is_causal=c), *arrays, **near)
        agree(lambda T, *t: attend(T, *t, scale=-0.3), *arrays, **near)
        lie = [np.ascontiguousarray(a.swapaxes(1, 2)) for a in arrays]
        agree(lambda T, *t: attend(T, *(x.transpose(1, 2) for x in t)), *lie, **near)
        steps = [np.repeat(a, 2, 2) for a in arrays]
        agree(lambda T, *t: attend(T, *(x[:, :, 1::2] for x in t)), *steps, **near)
        shared = arrays[0], arrays[1][:, :2], arrays[2][:, :2]
        agree(lambda T, *t: by_matrix(T, *t, enable_gqa=True), *shared, **near)
    for mask in masks(2, 2, queries, keys):
        small = operands(2, 2, queries, keys, 5, 4)
        mask[..., :1, :] = False if mask.dtype == bool else -np.inf  # the first query sees none
        agree(lambda T, q, k, v, m: attend(T, q, k, v, m), *small, mask, **near)
    small = operands(1, 2, queries, keys, 5, 4, dtype=np.float32)
    agree(attend, *small, rtol=5e-6, atol=5e-6)
    if keys in (17, 257):
        agree_in_gradients(by_matrix, *operands(1, 2, queries, keys, 5, 4), order=2, atol=1e-11)


@pytest.mark.parametrize("queries", [1, 4, 8])
@pytest.mark.parametrize("keys", [1, 257, 600])
def test_gradients_of_a_few_queries(queries: int, keys: int) -> None:
    """Of keys in any order of axes, in one part and in several that threads share."""
    near = {"order": 1, "rtol": 1e-10, "atol": 1e-11}
    for batch, depth, width in ((1, 33, 70), (9, 8, 8)):
        arrays = operands(batch, 4, queries, keys, depth, width)
        for is_causal in (False, True):
            agree_in_gradients(
                lambda T, *t, c=is_causal: by_matrix(T, *t, is_causal=c), *arrays, **near
            )
        lie = [np.ascontiguousarray(a.swapaxes(1, 2)) for a in arrays]
        agree_in_gradients(
            lambda T, *t: by_matrix(T, *(x.transpose(1, 2) for x in t)), *lie, **near
        )
        steps = [np.repeat(a, 2, 2) for a in arrays]
        agree_in_gradients(lambda T, *t: by_matrix(T, *(x[:, :, 1::2] for x in t)), *steps, **near)
        shared = arrays[0], arrays[1][:, :2], arrays[2][:, :2]
        agree_in_gradients(lambda T, *t: by_matrix(T, *t, enable_gqa=True), *shared, **near)
    for mask in masks(2, 2, queries, keys):
        small = operands(2, 2, queries, keys, 5, 4)
        mask[..., -1:] = True if mask.dtype == bool else 0.0  # each query sees one
        agree_in_gradients(lambda T, *t, m=mask: by_matrix(T, *t, T.tensor(m)), *small, **near)


def test_a_mask_and_causality_together() -> None:
    arrays, mask = operands(1, 2, 100, 100, 8, 8), RANDOM.random((100, 100)) < 0.7
    agree(
        lambda T, q, k, v, m: attend(T, q, k, v, m, is_causal=True), *arrays, mask, rtol=1e-12, atol=1e-13
    )  # fmt: skip
    agree_in_gradients(
        lambda T, q, k, v, m: attend(T, q, k, v, m, is_causal=True), *arrays, mask, order=1, atol=1e-12
    )  # fmt: skip


def test_gradients_of_a_mask_of_numbers() -> None:
    def call(T: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
        return attend(T, q, k, v, mask, scale=0.7)

    agree_in_gradients(call, *operands(2, 2, 5, 6, 4, 4), normal(2, 1, 5, 6), order=2)


def test_queries_that_see_no_key() -> None:
    """They give 0, and no gradients."""
    arrays = operands(1, 1, 100, 300, 8, 8)
    hidden = RANDOM.random((100, 300)) < 0.5
    hidden[3], hidden[40] = False, False
    hidden[50, :256] = False  # not in the first block of keys
    for mask in (hidden, np.where(hidden, 0.0, -np.inf)):
        agree(lambda T, q, k, v, m: attend(T, q, k, v, m), *arrays, mask, rtol=1e-12, atol=1e-13)
        agree_in_gradients(
            lambda T, q, k, v, m: by_matrix(T, q, k, v, m.detach()), *arrays, mask, order=2, atol=1e-11
        )  # fmt: skip
    x = [adjit.tensor(a, requires_grad=True) for a in arrays]
    out = attend(adjit, *x, adjit.tensor(hidden))
    assert not out[0, 0, 3].any()
    out.sum().backward()
    assert not x[0].grad[0, 0, [3, 40]].any()
    assert all(adjit.isfinite(t.grad).all() for t in x)


def test_what_is_no_number_is_not_hidden() -> None:
    """PyTorch's tiles give 0 for such queries."""
    q, k, v = (adjit.tensor(a) for a in operands(1, 1, 9, 300, 8, 8))
    q[0, 0, 2, 3], k[0, 0, 290, 0] = math.nan, math.inf
    out = attend(adjit, q, k, v, is_causal=True)
    assert out[0, 0, 2].isnan().all()
    assert out[0, 0, [0, 1, 3, 8]].isfinite().all()
    endless = (
        q[..., 0] > 0
    )  # the product with the infinite key, which is minus infinity for the others
    endless[0, 0, 2] = True
    assert attend(adjit, q, k, v).isnan().any(-1).equal(endless)


@pytest.mark.parametrize("is_causal", [False, True])
def test_heads_that_share_keys(is_causal: bool) -> None:
    arrays = normal(2, 6, 70, 8), normal(2, 2, 140, 8), normal(2, 2, 140, 5)

    def call(T: Any, *t: Any) -> Any:
        return by_matrix(T, *t, is_causal=is_causal, enable_gqa=True)

    agree(call, *arrays, rtol=1e-12, atol=1e-13)
    agree_in_gradients(call, *arrays, order=2, atol=1e-11)
    agree(call, arrays[0][0], arrays[1][0], arrays[2][0], rtol=1e-12, atol=1e-13)
    for of_keys, of_values in ((1, 3), (6, 2), (3, 1)):
        agree(
            call, arrays[0], normal(2, of_keys, 140, 8), normal(2, of_values, 140, 5),
            rtol=1e-12, atol=1e-13,
        )  # fmt: skip


def test_other_numbers_of_axes() -> None:
    def call(T: Any, *t: Any) -> Any:
        return by_matrix(T, *t)

    for lead in ((), (3,), (2, 3, 2), (2, 1, 2, 3)):
        arrays = normal(*lead, 5, 4), normal(*lead, 6, 4), normal(*lead, 6, 4)
        agree(call, *arrays, rtol=1e-12, atol=1e-13)
        agree_in_gradients(call, *arrays, order=2)
        mask = RANDOM.random((*lead[1:], 5, 6)) < 0.8
        agree(call, *arrays, mask, rtol=1e-12, atol=1e-13)
    # Batches and heads that broadcast.
    agree(call, normal(2, 1, 5, 4), normal(1, 3, 6, 4), normal(2, 3, 6, 4), rtol=1e-12, atol=1e-13)
    agree_in_gradients(call, normal(2, 1, 5, 4), normal(1, 3, 6, 4), normal(3, 6, 4)[None], order=2)
    agree(call, normal(5, 4), normal(3, 6, 4), normal(1, 6, 4), rtol=1e-12, atol=1e-13)


def test_operands_of_any_strides() -> None:
    """Heads side by side, one tensor for all three, elements in the other order, steps, one row for all."""
    x = normal(2, 70, 3, 3, 8)

    def parts(T: Any, x: Any) -> Any:
        q, k, v = (part.squeeze(2).transpose(1, 2) for part in x.split(1, 2))
        return attend(T, q, k, v, is_causal=True).transpose(1, 2).reshape(2, 70, 24)

    agree(parts, x, rtol=1e-12, atol=1e-13)
    agree_in_gradients(parts, x, order=1, atol=1e-12)

    def turned(T: Any, q: Any, k: Any, v: Any) -> Any:
        mixed = [q.transpose(2, 3), k.transpose(2, 3), v[..., ::2, 1::2]]
        return attend(T, *mixed).transpose(2, 3)

    arrays = normal(1, 2, 8, 90), normal(1, 2, 8, 80), normal(1, 2, 160, 21)
    agree(turned, *arrays, rtol=1e-12, atol=1e-13)
    agree_in_gradients(turned, *arrays, order=1, atol=1e-12)
    agree(
        lambda T, q, k: attend(T, q, k.expand(1, 2, 90, 8), k.expand(1, 2, 90, 8)),
        normal(1, 2, 5, 8), normal(1, 1, 1, 8), rtol=1e-12, atol=1e-13,
    )  # fmt: skip


def test_nothing_to_attend_to() -> None:
    def call(T: Any, *t: Any) -> Any:
        return attend(T, *t)

    for queries, keys, depth, width in ((0, 3, 4, 6), (3, 0, 4, 6), (3, 2, 0, 6), (3, 2, 4, 0)):
        agree(call, normal(queries, depth), normal(keys, depth), normal(keys, width))
        agree(call, *operands(0, 2, queries, keys, max(depth, 1), 3))
    agree_in_gradients(call, normal(3, 4), normal(0, 4), normal(0, 6), order=1)


def test_finite_differences() -> None:
    mask = adjit.tensor(RANDOM.random((7, 9)) < 0.7)
    leaves = [adjit.tensor(a, requires_grad=True) for a in operands(1, 2, 7, 9, 3, 4)]
    for how in ({}, {"is_causal": True}, {"attn_mask": mask}, {"scale": -0.4}):
        assert adjit.autograd.gradcheck(lambda *t, how=how: attend(adjit, *t, **how), leaves)
        assert adjit.autograd.gradgradcheck(lambda *t, how=how: attend(adjit, *t, **how), leaves)


def test_dropout_is_that_of_the_whole_matrix() -> None:
    """The same weights are dropped as by a product of dropout of a softmax, forward and backward."""
    arrays = operands(2, 3, 70, 300, 8, 5)
    for p, is_causal in ((0.3, False), (0.9, True)):
        found = []
        for whole in (False, True):
            q, k, v = leaves = [adjit.tensor(a, requires_grad=True) for a in arrays]
            adjit.manual_seed(5)
            if whole:
                scores = q @ k.mT / math.sqrt(8)
                if is_causal:
                    seen = adjit.ones(70, 300, dtype=adjit.bool).tril()
                    scores = scores.masked_fill(~seen, -math.inf)
                out = adjit.nn.functional.dropout(scores.softmax(-1), p) @ v
            else:
                out = attend(adjit, q, k, v, dropout_p=p, is_causal=is_causal)
            first = adjit.autograd.grad((out * out.detach().cos()).sum(), leaves, create_graph=True)
            second = adjit.autograd.grad(sum((g * g).sum() for g in first), leaves)
            found.append([t.detach().numpy() for t in (out, *first, *second)])
        for tiled, wanted in zip(*found, strict=True):
            np.testing.assert_allclose(tiled, wanted, rtol=1e-9, atol=1e-10)
    x = adjit.ones(1, 1, 4, 2)
    assert not attend(adjit, x, x, x, dropout_p=1.0).any()
    assert attend(adjit, x, x, x, dropout_p=-1.0).equal(attend(adjit, x, x, x))


def test_results_do_not_depend_on_threads() -> None:
    bits = []
    before = adjit.get_num_threads()
    try:
        for threads in (1, 2, 3):
            adjit.set_num_threads(threads)
            random = np.random.default_rng(1)
            leaves = [
                adjit.tensor(
                    random.standard_normal((1, 3, 500, 24)).astype(np.float32), requires_grad=True
                )
                for _ in range(3)
            ]  # fmt: skip
            out = attend(adjit, *leaves, is_causal=True)
            grads = adjit.autograd.grad(out.sin().sum(), leaves)
            bits.append([t.detach().numpy().tobytes() for t in (out, *grads)])
    finally:
        adjit.set_num_threads(before)
    assert bits[0] == bits[1] == bits[2]


def test_captured() -> None:
    arrays = [a.astype(np.float32) for a in operands(1, 2, 60, 60, 16, 16)]

    def step(q: Any, k: Any, v: Any) -> Any:
        out = attend(adjit, q, k, v, is_causal=True, dropout_p=0.2)
        return adjit.autograd.grad((out * out).sum(), (q, k, v))

    compiled = adjit.compile(step)
    for _ in range(5):
        leaves = [adjit.tensor(a, requires_grad=True) for a in arrays]
        adjit.manual_seed(3)
        wanted = [g.numpy() for g in step(*leaves)]
        adjit.manual_seed(3)
        for got, other in zip(compiled(*leaves), wanted, strict=True):
            np.testing.assert_array_equal(got.numpy(), other)


@pytest.mark.cpu
def test_memory_is_linear() -> None:
    """Four times the positions take four times the memory at the most, forward and backward, not sixteen."""

    def peak(length: int) -> int:
        leaves = [
            adjit.tensor(normal(1, 2, length, 16, dtype=np.float32), requires_grad=True) for _ in range(3)
        ]  # fmt: skip
        live = adjit.memory_stats()["live"]
        storage.reset_peak_memory()
        out = attend(adjit, *leaves, is_causal=True)
        grads = adjit.autograd.grad(out.sum(), leaves)
        [g.numpy() for g in grads]
        return int(adjit.memory_stats()["peak"] - live)

    few, many = peak(1024), peak(4096)
    assert many < 4.5 * few
    assert many < 4096 * 4096 * 4 / 4  # a quarter of one head's matrix


@pytest.mark.cpu
def test_the_backward_function_is_named_as_in_torch() -> None:
    arrays = operands(1, 1, 2, 2, 2, 2)
    assert backward_name(attend, *arrays) == "ScaledDotProductFlashAttentionForCpuBackward0"


def test_errors() -> None:
    x = normal(1, 2, 3, 4)
    flags = np.ones((3, 3), bool)
    agree_in_error(lambda T, a: attend(T, a, a, a), normal(4))
    agree_in_error(lambda T, a, b: attend(T, a, b, a), x, x.astype(np.float32))
    agree_in_error(lambda T, a: attend(T, a, a, a), np.ones((3, 4), np.int32))
    agree_in_error(lambda T, a, m: attend(T, a, a, a, m), x, np.ones((3, 3), np.int64))
    agree_in_error(lambda T, a, m: attend(T, a, a, a, m), x.astype(np.float32), np.ones((3, 3)))
    agree_in_error(lambda T, a, m: attend(T, a, a, a, m), x, np.ones(3, bool))
    agree_in_error(lambda T, a, m: attend(T, a, a, a, m), x, np.array(True))
    agree_in_error(lambda T, a, m: attend(T, a, a, a, m), x, np.ones((4, 3), bool))
    agree_in_error(lambda T, a, m: attend(T, a, a, a, m), x[0], np.ones((5, 2, 3, 3), bool))
    agree_in_error(lambda T, a, m: attend(T, a, a, a, m, is_causal=True), x[0], flags)
    agree_in_error(lambda T, a, m: attend(T, a, a, a, m, 0.5, True), x, flags)
    agree_in_error(lambda T, a: attend(T, a, a, a, dropout_p=1.5), x)
    agree_in_error(
        lambda T, a, b: attend(T, a, b, b, enable_gqa=True), normal(1, 4, 3, 4), normal(1, 3, 3, 4)
    )
    agree_in_error(lambda T, a: attend(T, a, a, a, enable_gqa=True), normal(3, 4))
    agree_in_error(lambda T, a, b: attend(T, a, b, b), x, normal(1, 3, 3, 4))
    agree_in_error(lambda T, a: attend(T, a, a, 1), x)
    agree_in_error(lambda T, a: attend(T, a, a, a, 0.1), x)
    for sizes in (
        ((3, 5), (3, 4)),
        ((3, 4), (2, 4)),
    ):  # PyTorch reads what is not there in some of these
        with pytest.raises(RuntimeError, match="Expected keys of 4 elements and values for"):
            attend(adjit, adjit.ones(3, 4), *(adjit.ones(*size) for size in sizes))


def test_blocks_of_the_kernels_have_room() -> None:
    """What the loops over scores assume of the sizes of blocks."""
    assert kernels.KEYS % kernels.STEP == kernels.BACKWARD_KEYS % kernels.STEP == 0


@pytest.fixture
def asking() -> None:
    """Functions ask subclasses again, which they do not from test to test."""
    type("Asked", (adjit.Tensor,), {})


@pytest.mark.usefixtures("asking")
@pytest.mark.parametrize("sizes", [(4, 8), (5, 5), (8, 4)], ids=str)
@pytest.mark.parametrize("name", ["causal_lower_right", "causal_upper_left"])
def test_masks_of_which_the_kind_is_kept(name: str, sizes: tuple[int, int]) -> None:
    """`nn.attention.bias`: values and gradients beside PyTorch; rows that attend to nothing stay out."""
    q, k, v = normal(2, sizes[0], 6), normal(2, sizes[1], 6), normal(2, sizes[1], 3)

    def run(T: Any, *tensors: Any) -> Any:
        module = importlib.import_module(f"{T.__name__}.nn.attention.bias")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of rows that attend to nothing
            bias = getattr(module, name)(*sizes)
        assert isinstance(bias, T.Tensor)
        out = attend(T, *tensors, attn_mask=bias, scale=0.3)
        return out[..., -1:, :] if sizes[0] > sizes[1] else out

    agree_in_gradients(run, q, k, v)


@pytest.mark.usefixtures("asking")
def test_errors_of_masks_of_which_the_kind_is_kept() -> None:
    from adjit.nn.attention.bias import CausalBias, causal_lower_right, causal_upper_left

    x = adjit.ones(2, 3)
    with pytest.raises(ValueError, match="should not be used with causal=True"):
        attend(adjit, x, x, x, attn_mask=causal_upper_left(2, 2), is_causal=True)
    with pytest.warns(UserWarning, match="Lower right causal bias will produce NaNs"):
        causal_lower_right(3, 2)
    with pytest.raises(AssertionError, match="must be a CausalVariant, got int"):
        CausalBias(1, 2, 3)  # type: ignore[arg-type]
    for make in (causal_lower_right, causal_upper_left):
        with pytest.raises(AssertionError, match="only supports 2D tensors"):
            make(2)
