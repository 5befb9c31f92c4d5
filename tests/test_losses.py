"""Softmax, layer normalisation and losses beside PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from against_torch import (
    agree,
    agree_in_error,
    agree_in_gradients,
    agree_in_warning,
    backward_name,
    torch,
)

import adjit

RANDOM = np.random.default_rng(5)


def functional(T: Any) -> Any:
    return T.nn.functional


# ---------------------------------------------------------------- softmax


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_along_every_axis(name: str) -> None:
    for shape in ((3, 4, 5), (2, 1), (2, 3000), (0, 3), (3, 0), (1100,)):
        x = RANDOM.standard_normal(shape).astype(np.float32) * 5
        for d in range(-1, len(shape)):
            agree(lambda T, t, d=d: getattr(T, name)(t, d), x)
    agree(lambda T, t: getattr(t.t(), name)(0), RANDOM.standard_normal((3, 4)))
    agree(lambda T, t: getattr(t, name)(0), np.array(3.0))
    agree(lambda T, t: getattr(t, name)(1, dtype=T.float64), np.arange(6).reshape(2, 3))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_softmax_of_extreme_rows(name: str) -> None:
    inf = math.inf
    x = [[1e4, 1e4 - 1, 0], [-inf, 0, 1], [-inf, -inf, -inf], [inf, 0, 1], [math.nan, 0, 1]]
    for dtype in (np.float32, np.float64):
        agree(lambda T, t: getattr(t, name)(1), np.array(x, dtype))


def test_gradients_of_softmax() -> None:
    x = RANDOM.standard_normal((3, 4, 2))
    for d in (0, 1, 2):
        agree_in_gradients(lambda T, t, d=d: t.softmax(d), x, order=3)
        agree_in_gradients(lambda T, t, d=d: t.log_softmax(d), x, order=3)
    agree_in_gradients(lambda T, t: functional(T).softmin(t, dim=1), x)
    assert backward_name(lambda T, t: t.softmax(0), x) == "SoftmaxBackward0"
    assert backward_name(lambda T, t: t.log_softmax(0), x) == "LogSoftmaxBackward0"


def outcome(name: str, x: adjit.Tensor, target: adjit.Tensor, g: adjit.Tensor) -> list[np.ndarray]:
    """Of each row what the function gives, and the gradient."""
    x = x.detach().requires_grad_()
    if name == "cross_entropy":
        y = adjit.nn.functional.cross_entropy(x, target, ignore_index=2, reduction="none")
        (y * g[:, 0]).sum().backward()
    else:
        y = getattr(x, name)(1)
        (y * (g if y.ndim == 2 else g[:, 0])).sum().backward()
    return [y.detach().numpy(), x.grad.numpy()]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "cross_entropy"])
def test_short_rows_that_are_done_together_have_the_bits_of_each_alone(
    name: str, dtype: Any
) -> None:
    inf = math.inf
    for length in (1, 3, 8, 10, 16, 17, 32, 33, 64, 100, 257, 512, 513):
        x = (RANDOM.standard_normal((21, length)) * 4).astype(dtype)
        x[3], x[12], x[13, :1], x[14, -1:], x[15, :2] = -inf, 1e4, inf, math.nan, -inf
        g = RANDOM.standard_normal(x.shape).astype(dtype)
        target = RANDOM.integers(0, length, 21)
        x, target, g = map(adjit.tensor, (x, target, g))
        together = outcome(name, x, target, g)
        rows = [outcome(name, x[k : k + 1], target[k : k + 1], g[k : k + 1]) for k in range(21)]
        for found, alone in zip(together, zip(*rows, strict=True), strict=True):
            expected = np.concatenate(alone)
            assert np.array_equal(np.isnan(found), np.isnan(expected)), length
            here = ~np.isnan(found)
            assert found[here].tobytes() == expected[here].tobytes(), length


@pytest.mark.parametrize("row", [0, 5, 12, 20])
def test_a_wrong_class_among_short_rows(row: int) -> None:
    target = np.arange(21) % 10
    target[row] = 10
    x = RANDOM.standard_normal((21, 10)).astype(np.float32)
    agree_in_error(lambda T, t, k: functional(T).cross_entropy(t, k), x, target)


def test_softmax_rows_sum_to_one() -> None:
    x = adjit.tensor(RANDOM.standard_normal((50, 777)).astype(np.float32) * 10)
    np.testing.assert_allclose(x.softmax(1).sum(1).numpy(), 1.0, rtol=1e-6)


# ---------------------------------------------------------------- normalisation


def test_layer_norm() -> None:
    for shape, sizes in (((4, 6), (6,)), ((2, 3, 40), (3, 40)), ((0, 5), (5,)), ((3, 1), (1,))):
        x = RANDOM.standard_normal(shape).astype(np.float32) * 3 + 100
        w, b = RANDOM.standard_normal((2, *sizes)).astype(np.float32)
        for call in (
            lambda T, t, w, b, s=sizes: functional(T).layer_norm(t, s),
            lambda T, t, w, b, s=sizes: functional(T).layer_norm(t, s, w),
            lambda T, t, w, b, s=sizes: functional(T).layer_norm(t, s, w, b, 1e-3),
            lambda T, t, w, b, s=sizes: functional(T).layer_norm(t, s, None, b),
            lambda T, t, w, b, s=sizes: functional(T).rms_norm(t, s, w),
        ):
            agree(call, x, w, b, rtol=1e-4, atol=2e-4)


def test_gradients_of_layer_norm() -> None:
    x = RANDOM.standard_normal((70, 3))
    w, b = RANDOM.standard_normal((2, 3))
    agree_in_gradients(lambda T, t, w, b: functional(T).layer_norm(t, (3,), w, b), x, w, b)
    agree_in_gradients(lambda T, t: functional(T).layer_norm(t, (3,), eps=0.1), x)
    agree_in_gradients(lambda T, t, w: functional(T).layer_norm(t, (3,), w), x, w)
    agree_in_gradients(lambda T, t, b: functional(T).layer_norm(t, (3,), None, b), x, b, order=1)
    wide = RANDOM.standard_normal((2, 2, 33))
    w, b = RANDOM.standard_normal((2, 2, 33))
    agree_in_gradients(lambda T, t, w, b: functional(T).layer_norm(t, (2, 33), w, b), wide, w, b)
    name = backward_name(lambda T, t: T.layer_norm(t, (3,)), x)
    assert name == "NativeLayerNormBackward0"


def test_third_derivatives_of_layer_norm() -> None:
    """PyTorch's own take the saved mean and scale for constants, so it is asked step by step."""

    def call(T: Any, x: Any, w: Any, b: Any) -> Any:
        if T is adjit:
            return functional(T).layer_norm(x, (4,), w, b, 0.1)
        centered = x - x.mean(1, True)
        return centered / (centered.square().mean(1, True) + 0.1).sqrt() * w + b

    w, b = RANDOM.standard_normal((2, 4))
    agree_in_gradients(call, RANDOM.standard_normal((5, 4)), w, b, order=3)


def test_other_normalisations() -> None:
    x, y = RANDOM.standard_normal((2, 4, 5))
    for call in (
        lambda T, a, b: functional(T).normalize(a),
        lambda T, a, b: functional(T).normalize(a, p=1, dim=0),
        lambda T, a, b: functional(T).cosine_similarity(a, b),
        lambda T, a, b: functional(T).cosine_similarity(a, b[:1], dim=0),
        lambda T, a, b: functional(T).pairwise_distance(a, b, keepdim=True),
        lambda T, a, b: functional(T).pairwise_distance(a, b, p=1.0),
    ):
        agree(call, x, y)
        agree_in_gradients(call, x, y)
    agree(lambda T, a: functional(T).cosine_similarity(a, a, dim=0), np.zeros(2))


# ---------------------------------------------------------------- class losses

SHAPES = [((6, 5), (6,)), ((5,), ()), ((2, 5, 3), (2, 3)), ((2, 5, 3, 2), (2, 3, 2))]


def with_classes(shape: tuple[int, ...], target: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Logits and targets, one of which is ignored where there are several."""
    x = RANDOM.standard_normal(shape)
    y = np.array(RANDOM.integers(0, 5, target))
    if y.size > 1:
        y.reshape(-1)[1] = 2
        y.reshape(-1)[0] = 3
    return x, y


@pytest.mark.parametrize(("shape", "target"), SHAPES)
def test_class_losses(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    x, y = with_classes(shape, target)
    w = RANDOM.random(5)
    for reduction in ("mean", "sum", "none"):
        for options in ({}, {"ignore_index": 3}):
            for name in ("cross_entropy", "nll_loss"):
                given = {"reduction": reduction, **options}
                plain = lambda T, a, b, n=name, o=given: getattr(functional(T), n)(a, b, **o)  # noqa: E731
                weighted = lambda T, a, c, b, n=name, o=given: getattr(functional(T), n)(  # noqa: E731
                    a, b, weight=c, **o
                )
                agree(plain, x, y)
                agree(weighted, x, w, y)
                agree_in_gradients(plain, x, y)
            smooth = {"label_smoothing": 0.2, "reduction": reduction, **options}
            agree(
                lambda T, a, c, b, o=smooth: functional(T).cross_entropy(a, b, weight=c, **o),
                x, w, y,
            )  # fmt: skip
            agree_in_gradients(
                lambda T, a, b, o=smooth: functional(T).cross_entropy(a, b, **o), x, y
            )


def test_cross_entropy_against_probabilities() -> None:
    x = RANDOM.standard_normal((4, 5))
    p = RANDOM.random((4, 5))
    w = RANDOM.random(5)
    for reduction in ("mean", "sum", "none"):
        for smoothing in (0.0, 0.3):
            given = {"reduction": reduction, "label_smoothing": smoothing}
            agree(lambda T, a, b, o=given: functional(T).cross_entropy(a, b, **o), x, p)
            agree(
                lambda T, a, b, c, o=given: functional(T).cross_entropy(a, b, weight=c, **o),
                x, p, w,
            )  # fmt: skip
            agree_in_gradients(
                lambda T, a, b, o=given: functional(T).cross_entropy(a, b, **o), x, p
            )


def test_cross_entropy_of_long_rows_and_large_logits() -> None:
    x = (RANDOM.standard_normal((3, 4000)) * 200).astype(np.float32)
    y = np.array([0, 3999, 17])
    agree(lambda T, a, b: functional(T).cross_entropy(a, b), x, y)
    agree(lambda T, a, b: functional(T).cross_entropy(a, b.to(T.uint8)), x, y % 200)


def test_everything_ignored_is_nan() -> None:
    y = np.array([-100, -100])
    agree(lambda T, a, b: functional(T).cross_entropy(a, b), np.zeros((2, 3)), y)
    agree(lambda T, a, b: functional(T).nll_loss(a, b), np.zeros((2, 3)), y)


def test_empty_batches() -> None:
    for reduction in ("mean", "sum", "none"):
        agree(
            lambda T, a, b, r=reduction: functional(T).cross_entropy(a, b, reduction=r),
            np.zeros((0, 3)), np.zeros(0, np.int64),
        )  # fmt: skip


# ---------------------------------------------------------------- losses of differences

LOSSES = {
    "mse_loss": {},
    "l1_loss": {},
    "smooth_l1_loss": {"beta": 0.7},
    "huber_loss": {"delta": 0.6},
    "kl_div": {"log_target": True},
    "binary_cross_entropy_with_logits": {},
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_two_tensors(name: str) -> None:
    x, y = RANDOM.standard_normal((2, 3, 4))
    for reduction in ("mean", "sum", "none"):
        options = {"reduction": reduction, **LOSSES[name]}
        call = lambda T, a, b, o=options: getattr(functional(T), name)(a, b, **o)  # noqa: E731
        agree(call, x, y)
        agree(call, x.astype(np.float32), y.astype(np.float32))
        agree_in_gradients(call, x, y)
        agree(call, np.zeros((0, 3)), np.zeros((0, 3)))


def test_binary_cross_entropy() -> None:
    x, y, w = RANDOM.random((3, 4, 3))
    for reduction in ("mean", "sum", "none"):
        given = {"reduction": reduction}
        call = lambda T, a, b, o=given: functional(T).binary_cross_entropy(a, b, **o)  # noqa: E731
        agree(call, x, y)
        agree_in_gradients(call, x, y)
        agree_in_gradients(
            lambda T, a, b, c, o=given: functional(T).binary_cross_entropy(a, b, c.detach(), **o),
            x, y, w, order=1,
        )  # fmt: skip
        agree_in_gradients(
            lambda T, a, b, c, o=given: functional(T).binary_cross_entropy_with_logits(
                a, b, pos_weight=c.detach(), **o
            ),
            x * 9 - 4, y, w,
        )  # fmt: skip
    edge = np.array([0.0, 1.0, 0.0, 1.0], np.float32)
    agree(lambda T, a, b: functional(T).binary_cross_entropy(a, b), edge, edge[::-1].copy())
    large = np.array([-1e4, -200.0, 0.0, 200.0, 1e4], np.float32)
    agree(
        lambda T, a: functional(T).binary_cross_entropy_with_logits(
            a, a * 0 + 0.3, reduction="none"
        ),
        large,
    )


def test_kl_div_of_probabilities() -> None:
    x, p = RANDOM.standard_normal((3, 4)), RANDOM.random((3, 4))
    p[0, 0] = 0.0
    for reduction in ("sum", "none", "batchmean"):
        agree(lambda T, a, b, r=reduction: functional(T).kl_div(a, b, reduction=r), x, p)
        agree_in_gradients(
            lambda T, a, b, r=reduction: functional(T).kl_div(a, b.detach(), reduction=r),
            x, p, order=1,
        )  # fmt: skip


NAMES = {
    "NllLossBackward0": lambda T, x, y: functional(T).cross_entropy(x, T.tensor([0, 1])),
    "MseLossBackward0": lambda T, x, y: functional(T).mse_loss(x, y),
    "SmoothL1LossBackward0": lambda T, x, y: functional(T).smooth_l1_loss(x, y),
    "HuberLossBackward0": lambda T, x, y: functional(T).huber_loss(x, y),
    "MeanBackward0": lambda T, x, y: functional(T).l1_loss(x, y),
    "BinaryCrossEntropyBackward0": lambda T, x, y: functional(T).binary_cross_entropy(x, y),
    "BinaryCrossEntropyWithLogitsBackward0": lambda T, x, y: functional(
        T
    ).binary_cross_entropy_with_logits(x, y),
}


@pytest.mark.parametrize("name", NAMES)
def test_names_in_the_graph(name: str) -> None:
    assert backward_name(NAMES[name], np.full((2, 3), 0.5), np.full((2, 3), 0.25)) == name


ERRORS = {
    "target too large": lambda F, T, x, i: F.cross_entropy(x, T.tensor([0, 5])),
    "target negative": lambda F, T, x, i: F.cross_entropy(x, T.tensor([0, -1])),
    "nll target too large": lambda F, T, x, i: F.nll_loss(x, T.tensor([3, 0])),
    "batch sizes": lambda F, T, x, i: F.cross_entropy(x, T.tensor([0, 1, 2])),
    "target dtype": lambda F, T, x, i: F.cross_entropy(x, T.tensor([0.0, 1.0])),
    "target int32": lambda F, T, x, i: F.cross_entropy(x, T.tensor([0, 1]).int()),
    "multi-target": lambda F, T, x, i: F.cross_entropy(x, T.tensor([[0, 1], [1, 0]])),
    "weight": lambda F, T, x, i: F.cross_entropy(x, T.tensor([0, 1]), weight=T.ones(2)),
    "weight dtype": lambda F, T, x, i: F.cross_entropy(
        x, T.tensor([0, 1]), weight=T.ones(3).double()
    ),
    "reduction": lambda F, T, x, i: F.cross_entropy(x, T.tensor([0, 1]), reduction="all"),
    "smoothing": lambda F, T, x, i: F.cross_entropy(x, T.tensor([0, 1]), label_smoothing=1.5),
    "ignored class": lambda F, T, x, i: F.cross_entropy(x, x, ignore_index=1),
    "integer logits": lambda F, T, x, i: F.cross_entropy(i, T.tensor([0, 1])),
    "integer probabilities": lambda F, T, x, i: F.cross_entropy(x, i),
    "places": lambda F, T, x, i: F.cross_entropy(T.zeros(2, 3, 4), T.zeros(2, 5).long()),
    "places in 2-d": lambda F, T, x, i: F.nll_loss(T.zeros(2, 3, 4, 4), T.zeros(2, 4, 5).long()),
    "no classes": lambda F, T, x, i: F.nll_loss(T.tensor(1.0), T.tensor(0)),
    "mse shapes": lambda F, T, x, i: F.mse_loss(x[0], T.ones(3, 2)[:, 0][:2]),
    "mse reduction": lambda F, T, x, i: F.mse_loss(x, x, reduction="all"),
    "beta": lambda F, T, x, i: F.smooth_l1_loss(x, x, beta=-1.0),
    "delta": lambda F, T, x, i: F.huber_loss(x, x, delta=0.0),
    "bce range": lambda F, T, x, i: F.binary_cross_entropy(x, x),
    "bce dtype": lambda F, T, x, i: F.binary_cross_entropy(x, i),
    "bce shape": lambda F, T, x, i: F.binary_cross_entropy(x, x[0]),
    "bce logits shape": lambda F, T, x, i: F.binary_cross_entropy_with_logits(x, x[0]),
    "softmax of integers": lambda F, T, x, i: i.softmax(1),
    "softmax axis": lambda F, T, x, i: x.softmax(2),
    "layer_norm shape": lambda F, T, x, i: F.layer_norm(x, (2,)),
    "layer_norm weight": lambda F, T, x, i: F.layer_norm(x, (3,), T.ones(2)),
    "layer_norm bias": lambda F, T, x, i: F.layer_norm(x, (3,), None, T.ones(2)),
    "layer_norm of integers": lambda F, T, x, i: F.layer_norm(i, (3,)),
    "layer_norm of nothing": lambda F, T, x, i: F.layer_norm(x, ()),
    "layer_norm dtype": lambda F, T, x, i: F.layer_norm(x, (3,), T.ones(3).double()),
    "rms_norm shape": lambda F, T, x, i: T.rms_norm(x, (2,)),
    "cosine of integers": lambda F, T, x, i: F.cosine_similarity(i, i),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    agree_in_error(
        lambda T, x, i: ERRORS[name](functional(T), T, x, i), x, np.arange(6).reshape(2, 3)
    )


def test_warnings() -> None:
    x = np.ones((2, 3), np.float32)
    agree_in_warning(lambda T, t: functional(T).mse_loss(t, t[:1]), x)
    agree_in_warning(lambda T, t: functional(T).kl_div(t, t), x)
    agree_in_warning(lambda T, t: functional(T).softmax(t), x)


@pytest.mark.parametrize("wrong", [float("nan"), 1.5, -0.1, float("inf")])
@pytest.mark.parametrize("size", [1, 70, 100_000])
def test_targets_of_binary_cross_entropy_are_probabilities(wrong, size):
    good, bad = adjit.full((size,), 0.5), adjit.full((size,), 0.5)
    bad[size // 2] = wrong
    for arguments, name in (((good, bad), "target"), ((bad, good), "input"), ((bad, bad), "input")):
        with pytest.raises(
            RuntimeError, match=f"^all elements of {name} should be between 0 and 1"
        ):
            adjit.nn.functional.binary_cross_entropy(*arguments).item()


# ----- the loss of a linear layer -----

LINEAR = {
    "indices": ((), {}, (5,)),
    "bias": ((), {"bias": True}, (5,)),
    "places": ((2, 3), {"bias": True}, (5, 2, 3)),
    "sum": ((), {"reduction": "sum", "label_smoothing": 0.1}, (5,)),
    "none": ((2,), {"reduction": "none", "ignore_index": 1}, (5, 2)),
}


@pytest.mark.parametrize("name", LINEAR)
def test_the_loss_of_a_linear_layer(name):
    torch = pytest.importorskip("torch")
    more, kwargs, shape = LINEAR[name]
    rng = np.random.default_rng(2)
    data = rng.standard_normal((5, 4)).astype(np.float32)
    target = rng.integers(0, 3, shape)
    drawn = rng.standard_normal((3 * int(np.prod(more)), 4)).astype(np.float32)
    found = []
    for lib in (torch, adjit):
        loss = lib.nn.LinearCrossEntropyLoss(
            4, 3, out_features=more, weight=lib.tensor([1.0, 0.5, 2.0]), **kwargs
        )
        with lib.no_grad():
            loss.linear.weight.copy_(lib.from_numpy(drawn.copy()))
            if loss.linear.bias is not None:
                loss.linear.bias.copy_(lib.from_numpy(drawn[:, 0].copy()))
        x = lib.from_numpy(data.copy()).requires_grad_()
        made = loss(x, lib.from_numpy(target))
        made.sum().backward()
        parts = [made.detach(), x.grad, *[p.grad for p in loss.parameters()]]
        found.append(([p.numpy() for p in parts], repr(loss), list(loss.state_dict())))
    for a, b in zip(found[0][0], found[1][0], strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
    assert found[0][1:] == found[1][1:]


def test_the_loss_of_a_linear_layer_with_probabilities_and_without_a_batch():
    torch = pytest.importorskip("torch")
    weight = np.random.default_rng(4).standard_normal((3, 4)).astype(np.float32)
    found = []
    for lib in (torch, adjit):
        loss, w = lib.nn.functional.linear_cross_entropy, lib.from_numpy(weight.copy())
        found.append([
            loss(lib.ones(2, 4), w, lib.full((2, 3), 1 / 3)).item(),
            loss(lib.ones(4), w, lib.tensor(2), linear_bias=lib.ones(3)).item(),
        ])  # fmt: skip
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


WRONG_LINEAR = {
    "axes": lambda lib, f: f(lib.ones(1, 2, 4), lib.ones(3, 4), lib.tensor([0, 1])),
    "weight axes": lambda lib, f: f(lib.ones(2, 4), lib.ones(4), lib.tensor([0, 1])),
    "features": lambda lib, f: f(lib.ones(2, 5), lib.ones(3, 4), lib.tensor([0, 1])),
    "bias": lambda lib, f: f(
        lib.ones(2, 4), lib.ones(3, 4), lib.tensor([0, 1]), linear_bias=lib.ones(2)
    ),
    "no batch": lambda lib, f: f(lib.ones(4), lib.ones(3, 2, 4), lib.tensor([0, 1])),
    "ignored": lambda lib, f: f(lib.ones(2, 4), lib.ones(3, 4), lib.ones(2, 3), ignore_index=1),
    "class weights": lambda lib, f: lib.nn.LinearCrossEntropyLoss(4, 3, weight=lib.ones(2)),
    "smoothing": lambda lib, f: lib.nn.LinearCrossEntropyLoss(4, 3, label_smoothing=2.0),
}


@pytest.mark.parametrize("name", WRONG_LINEAR)
def test_wrong_losses_of_a_linear_layer(name):
    torch = pytest.importorskip("torch")
    texts = []
    for lib in (torch, adjit):
        with pytest.raises(RuntimeError) as caught:
            WRONG_LINEAR[name](lib, lib.nn.functional.linear_cross_entropy)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_options_of_chunks_are_refused():
    with pytest.raises(NotImplementedError, match="options of chunks are not supported"):
        adjit.nn.functional.linear_cross_entropy(
            adjit.ones(2, 4), adjit.ones(3, 4), adjit.tensor([0, 1]), options=object()
        )


AT_THE_TOP = {  # arguments after the two operands, and targets
    "binary_cross_entropy_with_logits": ((), "probabilities"), "hinge_embedding_loss": ((0.5,), "signs"),
    "kl_div": ((), "probabilities"), "poisson_nll_loss": ((True, True, 1e-6), "probabilities"),
}  # fmt: skip


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("name", [*AT_THE_TOP, "cosine_embedding_loss", "margin_ranking_loss", "ctc_loss",
                                  "triplet_margin_loss"])  # fmt: skip
def test_losses_at_the_top_take_the_reduction_as_a_number(name, reduction):
    draw = np.random.default_rng(3)
    x, y, z = draw.standard_normal((3, 5, 4))
    signs = np.where(draw.random(5) < 0.5, -1.0, 1.0)
    if name in AT_THE_TOP:
        rest, kind = AT_THE_TOP[name]
        target = np.abs(y) % 1 if kind == "probabilities" else np.sign(y)
        operands: Any = (x, target)
        call: Any = lambda T, *t: getattr(T, name)(*t, *rest, reduction=reduction)  # noqa: E731
    elif name == "ctc_loss":
        operands = (draw.standard_normal((6, 2, 4)),)
        call = lambda T, t: T.ctc_loss(  # noqa: E731
            t.log_softmax(2),
            T.tensor([[1, 2], [3, 1]]),
            T.tensor([6, 5]),
            T.tensor([2, 1]),
            0,
            reduction,
        )
    elif name == "triplet_margin_loss":
        operands, call = (
            (x, y, z),
            lambda T, *t: T.triplet_margin_loss(*t, 0.5, reduction=reduction),
        )
    elif name == "cosine_embedding_loss":
        operands, call = (x, y, signs), lambda T, *t: getattr(T, name)(*t, 0.1, reduction=reduction)
    else:
        operands, call = (
            (x[:, 0], y[:, 0], signs),
            lambda T, *t: getattr(T, name)(*t, 0.1, reduction),
        )
    agree(call, *operands)


def test_reductions_that_are_no_number():
    for T in (adjit, torch):
        with pytest.raises(TypeError, match=r"argument 'reduction'.* must be int, not str"):
            T.kl_div(T.zeros(2), T.ones(2), reduction="sum")
    with pytest.raises(
        ValueError,
        match=r"kl_div\(\): reduction must be 0 \(none\), 1 \(mean\) or 2 \(sum\), not 3",
    ):
        adjit.kl_div(adjit.zeros(2), adjit.ones(2), reduction=3)


# ----- arguments without a derivative -----

WITHOUT_DERIVATIVE: dict[str, tuple[Any, tuple[int, ...]]] = {
    "binary_cross_entropy": (lambda F, x, t, w: F.binary_cross_entropy(x, t, weight=w), (2, 3)),
    "with logits": (lambda F, x, t, w: F.binary_cross_entropy_with_logits(x, t, weight=w), (3,)),
    "positive": (lambda F, x, t, w: F.binary_cross_entropy_with_logits(x, t, pos_weight=w), (3,)),
    "soft_margin_loss": (lambda F, x, t, w: F.soft_margin_loss(x, w), (2, 3)),
    "multi_margin_loss": (lambda F, x, t, w: F.multi_margin_loss(x, t.long()[0, :2], weight=w), (3,)),
    "nll_loss": (lambda F, x, t, w: F.nll_loss(x, t.long()[0, :2], weight=w), (3,)),
    "cross_entropy": (lambda F, x, t, w: F.cross_entropy(x, t.long()[0, :2], weight=w), (3,)),
    "cross_entropy of signals": (
        lambda F, x, t, w: F.cross_entropy(x.unsqueeze(2), t.long()[:, :1], weight=w), (3,),
    ),
    "smoothed": (
        lambda F, x, t, w: F.cross_entropy(x, t.long()[0, :2], weight=w, label_smoothing=0.1), (3,),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_DERIVATIVE)
def test_arguments_without_a_derivative_refuse_to_have_one(name: str) -> None:
    """They were given none, without a word; after calls without gradients as well."""
    call, shape = WITHOUT_DERIVATIVE[name]

    def loss(T: Any, is_graded: bool) -> Any:
        x, t = T.full((2, 3), 0.3).requires_grad_(), T.zeros(2, 3)
        weight = T.full(shape, 0.5).requires_grad_(is_graded)
        found = call(T.nn.functional, x, t, weight)
        found.backward()
        return found.detach()

    for _ in range(4):
        agree(lambda T: loss(T, False))
        agree_in_error(lambda T: loss(T, True))
    with adjit.no_grad():  # there nobody asks
        weight = adjit.full(shape, 0.5).requires_grad_()
        call(adjit.nn.functional, adjit.full((2, 3), 0.3), adjit.zeros(2, 3), weight)


# ---------------------------------------------------------------- whole numbers


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_no_whole_numbers(name: str) -> None:
    for x in (np.zeros((0, 3), np.int64), np.zeros((2, 0), np.int32), np.zeros(0, bool)):
        agree(lambda T, t: getattr(functional(T), name)(t, dim=0), x)
    agree_in_error(lambda T, t: getattr(T, name)(t, 2), np.zeros((0, 3), np.int64))
    agree_in_error(lambda T, t: getattr(T, name)(t, 0), np.ones((2, 3), np.int64))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses_of_whole_numbers(reduction: str) -> None:
    x, y, sign = np.array([1, 2, 5]), np.array([2, 1, 3]), np.array([1, -1, -1])
    for margin in (0, 0.5, 2):
        agree(
            lambda T, *t, m=margin: functional(T).margin_ranking_loss(*t, margin=m, reduction=reduction),
            x, y, sign,
        )  # fmt: skip
        both = agree_in_error if reduction == "mean" else agree
        both(
            lambda T, *t, m=margin: functional(T).hinge_embedding_loss(*t, margin=m, reduction=reduction),
            x, sign,
        )  # fmt: skip
    for name in ("nll_loss", "multi_margin_loss", "cross_entropy"):
        agree_in_error(
            lambda T, *t, n=name: getattr(functional(T), n)(*t, reduction=reduction),
            x[None], np.array([1]),
        )  # fmt: skip
    if reduction == "none":
        image, places = np.ones((1, 2, 2, 2), np.int64), np.zeros((1, 2, 2), np.int64)
        agree_in_error(lambda T, *t: functional(T).nll_loss(*t), image, places)
        agree_in_error(lambda T, *t: functional(T).smooth_l1_loss(*t), x, y)
