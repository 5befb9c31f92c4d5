"""Optimisers with `differentiable=True`: gradients flow through steps, as PyTorch's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from against_torch import plain, same_tensor, torch

import adjit

STEPS = 7  # RAdam rectifies from the sixth on
FIXED: dict[str, list[dict[str, Any]]] = {
    "Adadelta": [{}, {"weight_decay": 0.1, "maximize": True}],
    "Adagrad": [{}, {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.2}],
    "Adam": [{}, {"weight_decay": 0.1, "amsgrad": True}, {"maximize": True}],
    "AdamW": [{}, {"amsgrad": True}],
    "Adamax": [{}, {"weight_decay": 0.1}],
    "ASGD": [{}, {"t0": 2, "weight_decay": 0.1}],
    "NAdam": [{}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "decoupled_weight_decay": True}],
    "RAdam": [{}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "decoupled_weight_decay": True}],
    "RMSprop": [{}, {"centered": True, "momentum": 0.5}, {"weight_decay": 0.1}],
    "Rprop": [{"lr": 0.1}],
    "SGD": [{}, {"momentum": 0.9, "weight_decay": 0.1}, {"momentum": 0.9, "nesterov": True}],
}
# Options whose gradients are asked for.
FREE: dict[str, list[dict[str, float | tuple[float, float]]]] = {
    "Adam": [{"lr": 0.1}, {"weight_decay": 0.1}, {"betas": (0.8, 0.9)}],
    "AdamW": [{"lr": 0.1, "weight_decay": 0.1, "betas": (0.8, 0.9)}],
    "SGD": [{"lr": 0.1}, {"lr": 0.1, "weight_decay": 0.2}],
}


def inputs(library: Any, free: dict[str, Any]) -> list[Any]:
    """A first parameter, two gradients, and the values of the free options, all of which require gradients."""
    random = np.random.default_rng(0)
    arrays = [*random.standard_normal((3, 5)), *map(np.array, free.values())]
    return [library.tensor(array, dtype=library.float64, requires_grad=True) for array in arrays]


def stepped(
    library: Any, name: str, fixed: dict[str, Any], free: Iterable[str], leaves: Sequence[Any]
) -> Any:
    """A parameter after some steps."""
    start, first, second, *values = leaves
    options = {
        option: tuple(value) if value.ndim else value
        for option, value in zip(free, values, strict=True)
    }
    parameter = start.clone()
    optimizer = getattr(library.optim, name)([parameter], differentiable=True, **fixed, **options)
    for k in range(STEPS):
        parameter.grad = (first * (k + 1.5)).sin() + second * parameter.clone()
        optimizer.step()
    return parameter


def gradients(library: Any, name: str, fixed: dict[str, Any], free: dict[str, Any]) -> list[Any]:
    """Gradients of a loss after some steps in all that went in."""
    leaves = inputs(library, free)
    parameter = stepped(library, name, fixed, free, leaves)
    weights = library.tensor(np.linspace(-1.0, 2.0, 5))
    loss = (parameter.square() * weights).sum()
    return [loss.detach(), *library.autograd.grad(loss, leaves, allow_unused=True)]


CASES = [
    *[(name, fixed, {}) for name, every in FIXED.items() for fixed in every],
    *[(name, {}, free) for name, every in FREE.items() for free in every],
]


# Where PyTorch writes into what its backward needs.
NOT_IN_PYTORCH = ["amsgrad", "Adamax", "centered", "Rprop"]


@pytest.mark.parametrize(("name", "fixed", "free"), CASES)
def test_gradients_through_steps_are_those_of_pytorch(
    name: str, fixed: dict[str, Any], free: dict[str, Any]
) -> None:
    if name in NOT_IN_PYTORCH or any(option in NOT_IN_PYTORCH for option in fixed):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradients(torch, name, fixed, free)
        return
    ours, theirs = gradients(adjit, name, fixed, free), gradients(torch, name, fixed, free)
    for a, b in zip(ours, theirs, strict=True):
        if a is None or b is None:
            assert a is b
        else:
            same_tensor(a, b, 2e-5, 1e-7)  # PyTorch takes powers of betas at float32


# With momentum the first velocity is the gradient without its history, as in PyTorch.
HAVE_DERIVATIVES = [case for case in CASES if case[0] != "SGD" or "momentum" not in case[1]]


@pytest.mark.parametrize(("name", "fixed", "free"), HAVE_DERIVATIVES)
def test_gradients_through_steps_are_those_of_finite_differences(
    name: str, fixed: dict[str, Any], free: dict[str, Any]
) -> None:
    adjit.autograd.gradcheck(
        lambda *leaves: stepped(adjit, name, fixed, free, leaves), inputs(adjit, free)
    )


@pytest.mark.parametrize("name", FIXED)
def test_recorded_steps_have_the_bits_of_others(name: str) -> None:
    def last(differentiable: bool) -> np.ndarray:
        parameter = adjit.tensor([0.3, -1.2, 2.0])
        optimizer = getattr(adjit.optim, name)([parameter], differentiable=differentiable)
        for k in range(STEPS):
            parameter.grad = adjit.tensor([0.1, -0.7, 0.4]) * (k - 2)
            optimizer.step()
        return parameter.numpy()

    np.testing.assert_array_equal(last(True), last(False))


@pytest.mark.parametrize("name", FIXED)
def test_a_leaf_cannot_be_stepped_with_gradients_and_nothing_changes(name: str) -> None:
    texts = []
    for library in (adjit, torch):
        leaf = library.tensor([1.0, 2.0], requires_grad=True)
        optimizer = getattr(library.optim, name)([leaf], differentiable=True)
        leaf.grad = library.ones(2)
        with pytest.raises(RuntimeError) as error:
            optimizer.step()
        texts.append(plain(error.value))
        assert leaf.tolist() == [1.0, 2.0]
    assert texts[0] == texts[1]


def test_a_learning_rate_is_learned() -> None:
    rate = adjit.tensor(0.01, requires_grad=True)
    losses = []
    for _ in range(20):
        parameter = adjit.tensor([1.0, -2.0], requires_grad=True).clone()
        optimizer = adjit.optim.SGD([parameter], lr=rate, differentiable=True)
        for _ in range(3):
            loss = parameter.clone().square().sum()  # steps write into `parameter`
            [parameter.grad] = adjit.autograd.grad(loss, [parameter], create_graph=True)
            optimizer.step()
        [grad] = adjit.autograd.grad(parameter.square().sum(), [rate])
        rate = (rate - 0.005 * grad).detach().requires_grad_()
        losses.append(parameter.square().sum().item())
    assert losses[-1] < 0.05 * losses[0]


BAD = [
    {"betas": (0.9, "tensor")},
    {"betas": ("tensor", "two")},
    {"betas": (0, 0.9)},
    {"betas": ("tensor", "tensor"), "foreach": True},
    {"lr": "tensor", "foreach": True},
    {"fused": True, "differentiable": True},
]


@pytest.mark.parametrize("options", BAD)
def test_options_that_do_not_go_together(options: dict[str, Any]) -> None:
    texts = []
    for library in (adjit, torch):
        made = {"tensor": library.tensor(0.5), "two": library.tensor([0.5, 0.5])}

        def of(value: Any, made: dict[str, Any] = made) -> Any:
            if isinstance(value, tuple):
                return tuple(map(of, value))
            return made.get(value, value) if isinstance(value, str) else value

        with pytest.raises((ValueError, RuntimeError)) as error:
            library.optim.Adam([library.zeros(2)], **{k: of(v) for k, v in options.items()})
        texts.append((error.type, plain(error.value)))
    assert texts[0] == texts[1]
