"""Operands of different dtypes that nothing promotes: the error is PyTorch's, in its words."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjit

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.cpu, pytest.mark.filterwarnings("ignore")]

KINDS = ("float32", "float64", "int64")
PAIRS = [pair for pair in itertools.product(KINDS, repeat=2) if pair[0] != pair[1]]
# Some that differ in one place or another; the last stands for two that are alike and another one.
TRIPLES = [kinds for kinds in itertools.product(KINDS, repeat=3) if len(set(kinds)) > 1]

OF_TWO: dict[str, Callable[..., Any]] = {
    "prelu": lambda t, a, b: t.prelu(t.zeros(2, 2, dtype=a), t.zeros(1, dtype=b)),
    "cross": lambda t, a, b: t.cross(t.zeros(2, 3, dtype=a), t.zeros(2, 3, dtype=b), dim=1),
    "linalg.cross": lambda t, a, b: t.linalg.cross(t.zeros(2, 3, dtype=a), t.zeros(2, 3, dtype=b)),
    "cdist": lambda t, a, b: t.cdist(t.zeros(3, 2, dtype=a), t.zeros(3, 2, dtype=b)),
    "mv": lambda t, a, b: t.mv(t.zeros(3, 2, dtype=a), t.zeros(2, dtype=b)),
}
OF_THREE: dict[str, Callable[..., Any]] = {
    "addmm": lambda t, a, b, c: t.addmm(*(t.zeros(2, 2, dtype=kind) for kind in (a, b, c))),
    "linear": lambda t, a, b, c: t.nn.functional.linear(
        t.zeros(1, 2, dtype=a), t.zeros(3, 2, dtype=b), t.zeros(3, dtype=c)
    ),
    "addbmm": lambda t, a, b, c: t.addbmm(
        t.zeros(2, 2, dtype=a), t.zeros(1, 2, 2, dtype=b), t.zeros(1, 2, 2, dtype=c)
    ),
    "baddbmm": lambda t, a, b, c: t.baddbmm(*(t.zeros(1, 2, 2, dtype=kind) for kind in (a, b, c))),
    "addmv": lambda t, a, b, c: t.addmv(
        t.zeros(2, dtype=a), t.zeros(2, 2, dtype=b), t.zeros(2, dtype=c)
    ),
    "bilinear": lambda t, a, b, c: t.nn.functional.bilinear(
        t.zeros(2, 2, dtype=a), t.zeros(2, 2, dtype=b), t.zeros(1, 2, 2, dtype=c)
    ),
    "bilinear with a bias": lambda t, a, b, c: t.nn.functional.bilinear(
        t.zeros(2, 2, dtype=a),
        t.zeros(2, 2, dtype=a),
        t.zeros(1, 2, 2, dtype=b),
        t.zeros(1, dtype=c),
    ),
    "conv1d": lambda t, a, b, c: t.conv1d(
        t.zeros(1, 2, 5, dtype=a), t.zeros(3, 2, 2, dtype=b), t.zeros(3, dtype=c)
    ),
    "conv2d": lambda t, a, b, c: t.conv2d(
        t.zeros(1, 2, 5, 5, dtype=a), t.zeros(3, 2, 2, 2, dtype=b), t.zeros(3, dtype=c)
    ),
}


def told(library: Any, call: Callable[..., Any], kinds: tuple[str, ...]) -> str:
    try:
        return str(call(library, *(getattr(library, kind) for kind in kinds)).dtype)[6:]
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
@pytest.mark.parametrize("name", OF_TWO)
def test_two_dtypes(name, kinds):
    assert told(adjit, OF_TWO[name], kinds) == told(torch, OF_TWO[name], kinds)[:400]


@pytest.mark.parametrize("kinds", TRIPLES, ids="-".join)
@pytest.mark.parametrize("name", OF_THREE)
def test_three_dtypes(name, kinds):
    assert told(adjit, OF_THREE[name], kinds) == told(torch, OF_THREE[name], kinds)


@pytest.mark.parametrize("log_target", [False, True])
@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_kl_div_has_no_whole_numbers(kinds, log_target):
    def call(t: Any, a: Any, b: Any) -> Any:
        x, y = t.zeros(2, 2, dtype=a), t.zeros(2, 2, dtype=b)
        return t.nn.functional.kl_div(x, y, reduction="sum", log_target=log_target)

    assert told(adjit, call, kinds) == told(torch, call, kinds)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_a_state_of_another_dtype(kind):
    def call(t: Any) -> Any:
        layer = getattr(t.nn, kind)(2, 3).double()
        state = t.zeros(1, 1, 3)
        x = t.zeros(4, 1, 2, dtype=t.float64)
        return layer(x, (state, state) if kind == "LSTM" else state)[0]

    assert told(adjit, call, ()) == told(torch, call, ())


@pytest.mark.parametrize("kinds", [("float32", "float64"), ("float64", "float32")], ids="-".join)
def test_rms_norm_has_the_dtype_of_its_input(kinds):
    def call(t: Any, a: Any, b: Any) -> Any:
        x = t.arange(1, 7).reshape(2, 3).to(a)
        return t.nn.functional.rms_norm(x, (3,), t.tensor([0.3, 0.1, 0.7], dtype=b), 1e-3)

    mine = call(adjit, *(getattr(adjit, kind) for kind in kinds))
    theirs = call(torch, *(getattr(torch, kind) for kind in kinds))
    assert str(mine.dtype) == f"adjit.{kinds[0]}"
    assert torch.allclose(torch.from_numpy(mine.numpy()), theirs)


def test_rms_norm_of_whole_numbers():
    with pytest.raises(NotImplementedError, match="\"rms_norm\" not implemented for 'Long'"):
        adjit.rms_norm(adjit.ones(2, 3).long(), (3,))


@pytest.mark.parametrize("factor", [None, "weight", "pos_weight"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("kinds", [("float32", "float64"), ("float64", "float32")], ids="-".join)
def test_losses_of_logits_have_the_dtype_of_the_target(kinds, reduction, factor):
    def call(t: Any) -> Any:
        x = t.tensor([[0.5, -1.5], [2.0, 0.25]], dtype=getattr(t, kinds[0]), requires_grad=True)
        y = t.tensor([[1.0, 0.0], [1.0, 0.5]], dtype=getattr(t, kinds[1]), requires_grad=True)
        more = {} if factor is None else {factor: t.tensor([1.0, 2.0], dtype=y.dtype)}
        loss = t.nn.functional.binary_cross_entropy_with_logits(x, y, reduction=reduction, **more)
        loss.sum().backward()
        assert loss.dtype is y.dtype
        assert (x.grad.dtype, y.grad.dtype) == (x.dtype, y.dtype)
        return [each.detach().numpy() for each in (loss, x.grad, y.grad)]

    for mine, theirs in zip(call(adjit), call(torch), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kinds", [*PAIRS, ("int64", "int64")], ids="-".join)
@pytest.mark.parametrize("name", ["binary_cross_entropy_with_logits", "huber_loss"])
def test_dtypes_of_losses(name, kinds):
    def call(t: Any, a: Any, b: Any) -> Any:
        return getattr(t.nn.functional, name)(t.zeros(2, 2, dtype=a), t.zeros(2, 2, dtype=b))

    assert told(adjit, call, kinds) == told(torch, call, kinds)
