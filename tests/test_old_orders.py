"""Numbers before tensors, as programs of before 2020 give them."""

import warnings
from typing import Any

import numpy as np
import pytest

import adjit
from adjit.graph import old_orders

X, Y = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0, 7.0], [2.0, 3.0]])
CALLS = {
    "add": lambda t, x, y: t.add(x, 0.5, y),
    "sub": lambda t, x, y: t.sub(x, 0.5, y),
    "addcmul": lambda t, x, y: t.addcmul(x, 0.5, x, y),
    "addcdiv": lambda t, x, y: t.addcdiv(x, 0.5, x, y),
    "x.add": lambda t, x, y: x.add(0.5, y),
    "x.sub": lambda t, x, y: x.sub(0.5, y),
    "x.addcmul": lambda t, x, y: x.addcmul(0.5, x, y),
    "x.addcdiv": lambda t, x, y: x.addcdiv(0.5, x, y),
    "x.add_": lambda t, x, y: x.clone().add_(0.5, y),
    "x.sub_": lambda t, x, y: x.clone().sub_(0.5, y),
    "x.addcmul_": lambda t, x, y: x.clone().addcmul_(0.5, x, y),
    "x.addcdiv_": lambda t, x, y: x.clone().addcdiv_(0.5, x, y),
    "by a part": lambda t, x, y: x.clone()[1:].addcdiv_(0.5, x[1:], y[1:]),
    "by a tensor": lambda t, x, y: x.clone().addcdiv_(t.tensor(2.0), x, y),
    "by one element": lambda t, x, y: x.addcdiv(0.5, x, y[:1, :1]),
    "addmm": lambda t, x, y: t.addmm(0.5, x, x, y),
    "addmm, two": lambda t, x, y: t.addmm(0.5, x, 3, x, y),
    "x.addmm": lambda t, x, y: x.addmm(0.5, x, y),
    "x.addmm_": lambda t, x, y: x.clone().addmm_(0.5, 3, x, y),
    "addmv": lambda t, x, y: t.addmv(0.5, x[0], x, y[0]),
    "x.addmv_": lambda t, x, y: x[0].clone().addmv_(0.5, x, y[0]),
    "addr": lambda t, x, y: t.addr(0.5, x, x[0], y[0]),
    "x.addr_": lambda t, x, y: x.clone().addr_(0.5, x[0], y[0]),
    "baddbmm": lambda t, x, y: t.baddbmm(0.5, x[None], x[None], y[None]),
    "x.baddbmm_": lambda t, x, y: x[None].clone().baddbmm_(0.5, x[None], y[None]),
    "addbmm": lambda t, x, y: t.addbmm(0.5, x, x[None], y[None]),
}
BY_NAME = {
    "add": X + 0.5 * Y,
    "sub": X - 0.5 * Y,
    "addcmul": X + 0.5 * X * Y,
    "addcdiv": X + 0.5 * X / Y,
    "by a part": (X + 0.5 * X / Y)[1:],
    "by a tensor": X + 2 * X / Y,
    "by one element": X + 0.5 * X / 5,
    "addmm": 0.5 * X + X @ Y,
    "addmm, two": 0.5 * X + 3 * (X @ Y),
    "x.addmm_": 0.5 * X + 3 * (X @ Y),
    "addmv": 0.5 * X[0] + X @ Y[0],
    "addr": 0.5 * X + np.outer(X[0], Y[0]),
    "baddbmm": (0.5 * X + X @ Y)[None],
    "addbmm": 0.5 * X + X @ Y,
}


def given(library: Any) -> tuple[Any, Any]:
    return library.tensor(X, requires_grad=True), library.tensor(Y)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore:This overload of")
def test_a_number_before_a_tensor(name: str) -> None:
    expected = BY_NAME.get(name, BY_NAME.get(name.removeprefix("x.").rstrip("_")))
    assert expected is not None
    x, y = given(adjit)
    found = CALLS[name](adjit, x, y)
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-14)
    with adjit.no_grad():
        np.testing.assert_allclose(CALLS[name](adjit, x, y).numpy(), expected, rtol=1e-14)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore:This overload of", "ignore:.*deprecated")
def test_gradients_are_those_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    grads = []
    for library in (adjit, torch):
        x, y = given(library)
        made = CALLS[name](library, x, y)
        (grad,) = library.autograd.grad((made * made).sum(), x)
        grads.append(grad.numpy())
    np.testing.assert_allclose(*grads, rtol=1e-12)


def test_it_is_told_once_that_they_are_old() -> None:
    old_orders._warn.cache_clear()
    x = adjit.ones(2)
    with pytest.warns(UserWarning, match="This overload of addcdiv is deprecated"):
        x.addcdiv_(0.5, x, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x.addcdiv_(0.5, x, x)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.add(x, 0.5), lambda x: x.add_(x, 0.5), lambda x: adjit.add(x, x, 0.5),
        lambda x: x.sub_(x, x, x), lambda x: x.addcdiv(x, x, 0.5), lambda x: x.addcmul_(x, x, 0.5),
        lambda x: adjit.addcdiv(x, x, x, 0.5), lambda x: adjit.addcmul(x, 0.5, x, 0.5),
    ],
)  # fmt: skip
def test_a_number_behind_tensors_has_to_be_named(call: Any) -> None:
    with pytest.raises(TypeError, match="positional arguments but"):
        call(adjit.ones(2))
