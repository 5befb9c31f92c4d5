"""Running results of associative functions: values beside PyTorch's and NumPy's, gradients by differences."""

from __future__ import annotations

import numpy as np
import pytest

import adjit
from adjit._higher_order_ops.associative_scan import associative_scan


def numbers(*shape):
    return np.random.default_rng(0).uniform(0.5, 1.5, shape)


def affine(a, b):
    """One step after another: not commutative."""
    return {"decay": a["decay"] * b["decay"], "input": a["input"] * b["decay"] + b["input"]}


def product(a, b):
    return a @ b


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 8, 13, 64])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("mode", ["pointwise", "generic"])
def test_recurrences_are_those_of_a_loop(length, reverse, mode):
    decay, given = numbers(2, length, 3), numbers(2, length, 3)
    xs = {"decay": adjit.tensor(decay), "input": adjit.tensor(given)}
    found = associative_scan(affine, xs, 1, reverse, mode)["input"].numpy()
    state, wanted = np.zeros((2, 3)), np.empty_like(given)
    for k in reversed(range(length)) if reverse else range(length):
        state = wanted[:, k] = state * decay[:, k] + given[:, k]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_matrices_are_multiplied_in_their_order():
    torch = pytest.importorskip("torch")
    from torch._higher_order_ops.associative_scan import associative_scan as theirs

    x = numbers(6, 3, 3) - 0.8
    for reverse in (False, True):
        wanted = theirs(product, torch.tensor(x), 0, reverse, "generic")
        found = associative_scan(product, adjit.tensor(x), 0, reverse, "generic")
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12)


@pytest.mark.parametrize("mode", ["pointwise", "generic"])
def test_gradients(mode):
    decay, given, weight = (adjit.tensor(numbers(5, 2), requires_grad=True) for _ in range(3))

    def f(decay, given, weight):
        def step(a, b):
            made = affine(a, b)
            return {**made, "input": made["input"] + 0 * weight.sum()}

        return associative_scan(step, {"decay": decay, "input": given}, 0, True, mode)["input"]

    assert adjit.autograd.gradcheck(f, (decay, given, weight))


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"combine_fn": 3}, ValueError, "Combine_fn must be a callable, but got 3"),
        ({"dim": 1.0}, ValueError, "Dim must be an int, but got <class 'float'>"),
        ({"reverse": 1}, RuntimeError, "Reverse must be a bool, but got <class 'int'>"),
        ({"combine_mode": "quick"}, ValueError, "must either 'pointwise' or 'generic', but got quick"),
        ({"xs": ()}, ValueError, "Expected at least 1 xs leaf"),
        ({"xs": (1.0,)}, ValueError, "xs leaves must be a Tensor"),
        ({"xs": adjit.ones(0)}, ValueError, "scan dimension > 0"),
        ({"xs": (adjit.ones(2), adjit.ones(3))}, ValueError, r"scan dimension, but got \[2, 3\]"),
        ({"combine_fn": lambda a, b: (a, b)}, RuntimeError, "it must return the same"),
        ({"combine_fn": lambda a, b: a > b}, RuntimeError, "they must be the same"),
    ],
)  # fmt: skip
def test_bad_arguments(change, error, text):
    good = {"combine_fn": adjit.add, "xs": adjit.ones(4), "dim": 0, "combine_mode": "generic"}
    with pytest.raises(error, match=text):
        associative_scan(**good | change)
