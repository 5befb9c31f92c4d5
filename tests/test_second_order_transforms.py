"""Second derivatives by nested transforms, in every order of modes and of each example: beside differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adjit as T
from adjit.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from adjit.nn import functional as F

W, B = T.tensor([0.7, -1.2, 0.4]).double(), T.tensor([0.3, 0.1, -0.8]).double()
TARGET = T.tensor([2, -100, 0])
WAYS: dict[str, Any] = {
    "hessian": hessian,
    "reverse over reverse": lambda f: jacrev(jacrev(f)),
    "reverse over forward": lambda f: jacrev(jacfwd(f)),
    "forward over reverse": lambda f: jacfwd(jacrev(f)),
}


def slope_of_weight(norm: Any) -> Any:
    """The gradient of a weight, as a function of what is normalised."""
    return lambda x: grad(lambda w: norm(x, w).sin().sum())(W)


def written(*writes: Any) -> Any:
    """A function that writes into twice its argument, one write after the other."""

    def function(x: Any) -> Any:
        y = x * 2
        for write in writes:
            write(y, x)
        return y

    return function


def assigned(y: Any, x: Any) -> None:
    y[0] = x[1] * x[2]


FUNCTIONS: dict[str, Any] = {
    "sin_": written(lambda y, x: y.sin_()),
    "square_, sin_": written(lambda y, x: y.square_(), lambda y, x: y.sin_()),
    "mul_": written(lambda y, x: y.mul_(x.sin())),
    "div_, sigmoid_": written(lambda y, x: y.div_(x * x + 1), lambda y, x: y.sigmoid_()),
    "pow_": written(lambda y, x: y.square_().add_(1).pow_(x)),
    "addcmul_, lerp_": written(lambda y, x: y.addcmul_(x, x).lerp_(x.sin(), x)),
    "cumsum_, index_add_": written(
        lambda y, x: y.cumsum_(0), lambda y, x: y.index_add_(0, T.tensor([1]), x[:1] * x[1:2])
    ),
    "a part": written(lambda y, x: y[1:].sin_(), lambda y, x: y[:, 0].mul_(x[0])),
    "a part of a part": written(lambda y, x: y[1:][:, 1:].cos_()),
    "an assignment": written(assigned, lambda y, x: y.sin_()),
    "copy_": written(lambda y, x: y.copy_(x * x), lambda y, x: y.sin_()),
    "masked_fill_": written(lambda y, x: y.masked_fill_(x > 0, 0.5), lambda y, x: y.cos_()),
    "prod_": written(lambda y, x: y.cumprod_(1)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, W, B, training=True),
    "batch_norm, its statistics": lambda x: F.batch_norm(x, W, W * W + 0.5, W, B),
    "instance_norm": lambda x: F.instance_norm(x.reshape(1, 3, 3)),
    "layer_norm": lambda x: F.layer_norm(x, (3,), W, B),
    "group_norm": lambda x: F.group_norm(x.reshape(1, 3, 3), 1, W, B),
    "rms_norm": lambda x: F.rms_norm(x, (3,), W),
    "weight of batch_norm": slope_of_weight(
        lambda x, w: F.batch_norm(x, None, None, w, B, training=True)
    ),
    "weight of instance_norm": slope_of_weight(
        lambda x, w: F.instance_norm(x.reshape(1, 3, 3), weight=w, bias=B)
    ),
    "weight of layer_norm": slope_of_weight(lambda x, w: F.layer_norm(x, (3,), w, B)),
    "cross_entropy": lambda x: F.cross_entropy(x, TARGET).exp(),
    "cross_entropy, sum": lambda x: F.cross_entropy(x, TARGET, reduction="sum"),
    "cross_entropy, none": lambda x: F.cross_entropy(x, TARGET, reduction="none"),
    "cross_entropy of a class": lambda x: F.cross_entropy(x[0], TARGET[0]),
    "nll_loss of a class": lambda x: F.nll_loss(x[0].log_softmax(0), TARGET[0]).exp(),
    "softmax": lambda x: x.softmax(1),
    "logsumexp": lambda x: x.logsumexp(1),
    "normalize": F.normalize,
    "std": lambda x: x.std(0),
    "norm": lambda x: x.norm(dim=1),
    "prod": lambda x: x.prod(1),
    "mse_loss": lambda x: F.mse_loss(x, W.expand(3, 3)),
    "bce": lambda x: F.binary_cross_entropy_with_logits(x, W.sigmoid().expand(3, 3)),
}
POINTS = T.from_numpy(np.random.default_rng(5).standard_normal((2, 3, 3)))


def loss_of(f: Any) -> Any:
    """A number that depends on all of a function's results, in different ways."""

    def loss(x: Any) -> Any:
        out = f(x).reshape(-1)
        return (out.sin() * T.arange(1.0, 1 + out.numel()).double()).sum()

    return loss


def differences(f: Any, x: Any, eps: float = 1e-6) -> Any:
    """The Hessian by differences of the gradient."""
    rows = []
    for k in range(x.numel()):
        step = T.zeros(x.numel()).double()
        step[k] = eps
        high, low = (grad(f)(x + s * step.reshape(x.shape)).numpy() for s in (1, -1))
        rows.append(((high - low) / (2 * eps)).ravel())
    return np.stack(rows)


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, atol=1e-7 * (1 + np.abs(wanted).max()), rtol=0)


@pytest.mark.parametrize("name", [*FUNCTIONS])
def test_all_ways_to_a_hessian(name: str) -> None:
    f, x = loss_of(FUNCTIONS[name]), POINTS[0]
    wanted = differences(f, x)
    for way in WAYS.values():
        close(way(f)(x).numpy().reshape(9, 9), wanted)


@pytest.mark.parametrize("name", [*FUNCTIONS])
def test_hessians_of_each_example(name: str) -> None:
    f = loss_of(FUNCTIONS[name])
    wanted = np.stack([differences(f, x) for x in POINTS])
    for way in WAYS.values():
        close(vmap(way(f))(POINTS).numpy().reshape(2, 9, 9), wanted)


@pytest.mark.parametrize("name", [*FUNCTIONS])
def test_products_with_a_hessian(name: str) -> None:
    f, x, along = loss_of(FUNCTIONS[name]), POINTS[0], POINTS[1]
    wanted = (differences(f, x) @ along.numpy().ravel()).reshape(3, 3)
    close(jvp(grad(f), (x,), (along,))[1].numpy(), wanted)
    close(grad(lambda y: jvp(f, (y,), (along,))[1])(x).numpy(), wanted)
    both = T.stack([along, -2 * along])
    twice = np.stack([wanted, -2 * wanted])
    close(vmap(lambda v: jvp(grad(f), (x,), (v,))[1])(both).numpy(), twice)
    close(vmap(lambda v: grad(lambda y: jvp(f, (y,), (v,))[1])(x))(both).numpy(), twice)


def test_tangents_keep_their_history_under_no_grad() -> None:
    """Figures of PyTorch 2.13: a write under no_grad changes a value and leaves its derivative."""
    x, along = T.tensor([0.1, 0.5, -0.3]).double(), T.tensor([1.0, 2.0, -1.0]).double()

    def f(a: Any) -> Any:
        v = a.exp().clone()
        with T.no_grad():
            v.clamp_(min=1.2)
        return (v.log() + along**2 / v).sum()

    def part(a: Any) -> Any:
        v = a.exp().clone()
        with T.no_grad():
            v[:2].clamp_(min=1e-6)
            v[1:].mul_(2)
        return (v.log() + along**2 / v).sum()

    def copied(a: Any) -> Any:
        v = a.exp() * 1
        with T.no_grad():
            v.copy_(a.sin() + 2)
        return (v.log() + along**2 / v).sum()

    for function, wanted in (
        (f, [0.15350, 4.85225, -0.10289]),
        (part, [0.90484, 1.21306, -0.33746]),
        (copied, [0.26381, 0.23247, -0.22187]),
    ):
        for found in (
            jvp(grad(function), (x,), (along,))[1],
            grad(lambda y, g=function: jvp(g, (y,), (along,))[1])(x),
            hessian(function)(x) @ along,
        ):
            np.testing.assert_allclose(found.numpy(), wanted, atol=1e-5)


def test_a_target_that_examples_share() -> None:
    x = T.tensor([[0.1, 0.2, 0.3]] * 3).double()
    y = T.tensor([1, 2, 0])
    weight = T.tensor([0.5, 2.0, 1.0]).double()
    for loss in (
        lambda s: F.nll_loss(s[None], y[:1]),
        lambda s: F.nll_loss(s, y[0]),
        lambda s: F.nll_loss(s, T.tensor(1)),
        lambda s: F.cross_entropy(s, y[0], weight=weight),
        lambda s: F.cross_entropy(s, y[0], label_smoothing=0.1),
        lambda s: F.cross_entropy(s[None], y[:1], reduction="none"),
    ):
        for f in (loss, grad(lambda s, g=loss: g(s).sum())):
            each = f(x[0]).numpy()
            np.testing.assert_allclose(vmap(f)(x).numpy(), np.stack([each] * 3), rtol=1e-12)
