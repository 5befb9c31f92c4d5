"""The loss of label sequences that are not aligned, beside PyTorch's and beside all alignments."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from library import T, plain

torch = pytest.importorskip("torch")
F = T.nn.functional

# Targets, lengths of inputs and of targets; some targets are too long.
BATCHES: list[tuple[Any, list[int], list[int]]] = [
    ([[1, 2, 2], [3, 1, 0], [1, 1, 1]], [6, 4, 6], [3, 2, 2]),
    ([[1, 2, 2], [3, 1, 0], [1, 1, 1]], [6, 1, 2], [3, 2, 2]),
    ([1, 2, 2, 3, 1], [6, 3, 6], [3, 0, 2]),
    ([1, 2, 2, 3], [5, 0, 0], [3, 0, 1]),
    ([[], [], []], [6, 4, 0], [0, 0, 0]),
]


def result(
    lib: Any, batch: Any, dtype: str, as_numbers: bool = False, **options: Any
) -> list[np.ndarray]:
    targets, inputs, wanted = batch
    x = lib.tensor(
        np.random.default_rng(0).normal(size=(6, 3, 4)),
        dtype=getattr(lib, dtype),
        requires_grad=True,
    )
    loss = lib.nn.functional.ctc_loss(
        x.log_softmax(-1),
        lib.tensor(targets, dtype=lib.int64),
        tuple(inputs) if as_numbers else lib.tensor(inputs),
        tuple(wanted) if as_numbers else lib.tensor(wanted),
        **options,
    )
    (loss * lib.arange(1.0, 1 + loss.numel(), dtype=loss.dtype).view(loss.shape)).sum().backward()
    return [loss.detach().numpy(), x.grad.numpy()]


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-4), ("float64", 1e-10)])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("batch", BATCHES, ids=range(len(BATCHES)))
def test_losses_and_gradients_are_those_of_torch(batch, zero_infinity, reduction, dtype, rtol):
    options = {"reduction": reduction, "zero_infinity": zero_infinity}
    found = result(T, batch, dtype, **options)
    wanted = result(torch, batch, dtype, **options)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=rtol / 100)


def test_lengths_are_numbers_too():
    found = result(T, BATCHES[0], "float64", as_numbers=True)
    for mine, wanted in zip(found, result(T, BATCHES[0], "float64"), strict=True):
        np.testing.assert_array_equal(mine, wanted)


@pytest.mark.parametrize("blank", [0, 2, 3])
def test_the_probability_is_that_of_all_alignments(blank):
    """Every path over the classes that becomes the labels once repeats and blanks are taken out."""
    labels = [c for c in range(4) if c != blank][:2]
    log_probs = np.log(np.random.default_rng(1).dirichlet(np.ones(4), size=5))
    for target in ([], [labels[0]], [labels[0], labels[0]], [labels[1], labels[0]]):
        total = 0.0
        for path in itertools.product(range(4), repeat=5):
            read = [c for c, _ in itertools.groupby(path) if c != blank]
            if read == target:
                total += np.exp(sum(log_probs[t, c] for t, c in enumerate(path)))
        loss = F.ctc_loss(
            T.tensor(log_probs),
            T.tensor(target, dtype=T.int64),
            [5],
            [len(target)],
            blank=blank,
            reduction="none",
        )
        assert loss.shape == ()
        assert np.exp(-loss.item()) == pytest.approx(total, rel=1e-10)


def test_gradients_by_finite_differences():
    x = T.tensor(np.random.default_rng(2).normal(size=(5, 2, 4)), requires_grad=True)

    def loss(x):
        return F.ctc_loss(
            x.log_softmax(-1), T.tensor([[1, 2], [3, 3]]), [5, 4], [2, 2], reduction="none"
        )

    assert T.autograd.gradcheck(loss, x)


def test_many_samples_on_any_number_of_threads():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(20, 64, 6))
    targets = rng.integers(1, 6, size=(64, 7))
    inputs, wanted = rng.integers(15, 21, size=64), rng.integers(0, 8, size=64)
    found = []
    for lib in (T, torch):
        logits = lib.tensor(x, requires_grad=True)
        loss = lib.nn.CTCLoss(zero_infinity=True)(
            logits.log_softmax(-1), *map(lib.tensor, (targets, inputs, wanted))
        )
        loss.backward()
        found.append((loss.item(), logits.grad.numpy()))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-10)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 2e-4), ("float64", 1e-10)])
def test_targets_about_as_long_as_vectors(dtype, rtol):
    """Lengths around those that are computed at a time, on long inputs, whose logarithms are large."""
    lengths = [0, 1, 15, 16, 17, 31, 32, 33, 47, 48]
    rng = np.random.default_rng(4)
    x = 3 * rng.normal(size=(110, len(lengths), 7))
    targets = rng.integers(0, 6, size=(len(lengths), max(lengths)))  # with repeats
    targets[3], inputs = 5, [110 - k for k in range(len(lengths))]
    found = []
    for lib in (T, torch):
        logits = lib.tensor(x, dtype=getattr(lib, dtype), requires_grad=True)
        loss = lib.nn.functional.ctc_loss(
            logits.log_softmax(-1), lib.tensor(targets, dtype=lib.int32), inputs, lengths, blank=6,
            reduction="none",
        )  # fmt: skip
        loss.sum().backward()
        found.append((loss.detach().numpy(), logits.grad.numpy()))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=rtol / 10)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=rtol, atol=rtol)


@pytest.mark.parametrize("value", [-np.inf, np.nan])
@pytest.mark.parametrize("time", [0, 2, 5])
@pytest.mark.parametrize("place", [0, 1, 3], ids=["the blank", "a label", "another class"])
def test_classes_that_cannot_be(place, time, value):
    log_probs = np.log(np.random.default_rng(5).dirichlet(np.ones(4), size=(6, 2)))
    log_probs[time, 0, place] = value
    found = []
    for lib in (T, torch):
        x = lib.tensor(log_probs, requires_grad=True)
        loss = lib.nn.functional.ctc_loss(
            x, lib.tensor([[1, 2, 2], [2, 1, 2]]), (6, 6), (3, 3), reduction="none"
        )
        loss.sum().backward()
        found.append((loss.detach().numpy(), x.grad.numpy()))
    (loss, gradient), (wanted, wanted_gradient) = found
    np.testing.assert_allclose(loss, wanted, rtol=1e-10)
    if np.isnan(value):  # which is in more of the gradient than PyTorch's
        assert np.isnan(gradient[np.isnan(wanted_gradient)]).all()
    else:
        np.testing.assert_allclose(gradient, wanted_gradient, rtol=1e-10, atol=1e-12)


def test_the_second_derivative_is_refused():
    for lib in (T, torch):
        x = lib.ones(3, 1, 2, requires_grad=True)
        loss = lib.nn.functional.ctc_loss(
            x.log_softmax(-1), lib.tensor([[1]]), lib.tensor([3]), lib.tensor([1])
        )
        (g,) = lib.autograd.grad(loss, x, create_graph=True)
        with pytest.raises(RuntimeError, match="aten::_ctc_loss_backward is not implemented"):
            g.sum().backward()


def outcome(action: Callable[[], Any]) -> tuple[type, str] | None:
    try:
        action()
    except Exception as error:
        return type(error), plain(error)
    return None


ERRORS: list[Callable[[Any, Any, Any], Any]] = [
    lambda lib, f, x: f(x, lib.tensor([1, 2, 3]), (5, 4, 3), (2, 1)),
    lambda lib, f, x: f(x, lib.tensor([1, 2, 3]), (5, 4), (2, 1, 1)),
    lambda lib, f, x: f(x, lib.tensor([1, 2, 3]), (6, 4), (2, 1)),
    lambda lib, f, x: f(x, lib.tensor([1, 2, 3]), (-1, 4), (2, 1)),
    lambda lib, f, x: f(x, lib.tensor([1, 2, 3]), (5, 4), (2, -1)),
    lambda lib, f, x: f(x, lib.tensor([1, 2, 3]), (5, 4), (2, 2)),
    lambda lib, f, x: f(x, lib.tensor([[1], [2]]), (5, 4), (2, 1)),
    lambda lib, f, x: f(x, lib.tensor([[1]]), (5, 4), (1, 1)),
    lambda lib, f, x: f(x, lib.tensor([1, 2, 3]), (5, 4), (2, 1), blank=4),
    lambda lib, f, x: f(x, lib.tensor([1, 2, 3]), (5, 4), (2, 1), blank=-1),
    lambda lib, f, x: f(x, lib.tensor([1, 2, 3]), (5, 4), (2, 1), reduction="all"),
    lambda lib, f, x: f(x, lib.tensor([1, 2, 3]), lib.tensor([5.0, 4.0]), lib.tensor([2, 1])),
    lambda lib, f, x: f(x, lib.tensor([1, 2, 3]), lib.tensor([5, 4]), lib.tensor([2.5, 1.0])),
]


@pytest.mark.parametrize("action", ERRORS, ids=range(len(ERRORS)))
def test_errors_are_those_of_torch(action):
    expected = outcome(
        lambda: action(torch, torch.nn.functional.ctc_loss, torch.ones(5, 2, 4).log_softmax(-1))
    )
    assert expected is not None
    assert outcome(lambda: action(T, F.ctc_loss, T.ones(5, 2, 4).log_softmax(-1))) == expected


def test_lengths_are_whole_numbers():
    log_probs = T.ones(5, 2, 4).log_softmax(-1)
    with pytest.raises(TypeError, match="float"):
        F.ctc_loss(log_probs, T.tensor([1, 2, 3]), (5, 4), (2.5, 1))


def test_a_target_that_is_no_class():
    with pytest.raises(IndexError, match="target 9 is out of bounds"):
        F.ctc_loss(T.ones(5, 2, 4), T.tensor([1, 2, 9]), (5, 4), (2, 1)).item()


def test_the_module():
    assert plain(T.nn.CTCLoss(2, "sum", True)) == plain(torch.nn.CTCLoss(2, "sum", True))
