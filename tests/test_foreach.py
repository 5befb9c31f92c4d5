"""Functions of lists of tensors, `_foreach_*`, beside PyTorch's."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import adjit

torch = pytest.importorskip("torch")
from against_torch import plain  # noqa: E402

NAMES = [name for name in dir(adjit) if name.startswith("_foreach_")]
ONE_LIST = {"zero_", "clone", "max", "norm"}
BINARY = {"add", "sub", "mul", "div", "pow", "clamp_max", "clamp_min", "maximum", "minimum"}
# Arguments after the list x, beside lists y and z of the same shapes.
CALLS = [
    ("copy_", "y"), ("norm", "1"), ("norm", "2, dtype=L.float64"), ("add", "y, alpha=2"),
    ("sub_", "y, alpha=3"),
    ("add_", "L.tensor(2.)"), ("mul", "L.tensor(2.)"), ("div_", "L.tensor(2.)"),
    *((name + end, given) for name in sorted(BINARY) for end in ("", "_")
      for given in ("y", "1.5", "[0.5, 2.]")),
    *((name + end, given) for name in ("addcmul", "addcdiv") for end in ("", "_")
      for given in ("y, z", "y, z, 0.5", "y, z, [0.5, 2.]", "y, z, L.tensor([0.5, 2.])")),
    *(("lerp" + end, given) for end in ("", "_") for given in ("y, 0.25", "y, z", "y, [0.25, 0.5]")),
]  # fmt: skip
BAD = [
    ("add", "y[:1]"), ("add", "'a'"), ("mul_", "[1.]"), ("lerp_", "y[:1], 0.5"), ("abs", ""),
    ("addcdiv", "y, z, L.tensor([1.])"), ("zero_", ""),
]  # fmt: skip


def lists(L, dtype=np.float32):
    rng = np.random.default_rng(0)
    return [
        [L.from_numpy((rng.random(shape) + 0.1).astype(dtype)) for shape in ((2, 3), (4,))]
        for _ in "xyz"
    ]


def outcome(L, name, given, empty=False):
    x, y, z = lists(L)
    first = [] if empty else x
    try:
        made = eval(f"L._foreach_{name}(first, {given})", {"L": L, "first": first, "y": y, "z": z})
    except Exception as error:
        return type(error), plain(error).split("\n")[0].split(", but expected")[0]
    assert (made is first) == name.endswith("_")
    return [type(made).__name__, *[one.numpy() for one in (*made, *x)]]


@pytest.mark.parametrize(("name", "given"), [*CALLS, *((n[9:], "") for n in NAMES
    if n[9:].rstrip("_") not in BINARY | {"copy", "addcmul", "addcdiv", "lerp"})])  # fmt: skip
def test_values_are_those_of_pytorch(name, given):
    mine, theirs = outcome(adjit, name, given), outcome(torch, name, given)
    assert mine[0] == theirs[0]
    for a, b in zip(mine[1:], theirs[1:], strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)
        assert a.dtype == b.dtype


def test_a_number_to_the_power_of_tensors():
    for mine, other in zip(
        adjit._foreach_pow(2.0, lists(adjit)[0]),
        torch._foreach_pow(2.0, lists(torch)[0]),
        strict=True,
    ):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-6)


@pytest.mark.parametrize(("name", "given"), BAD)
def test_what_is_refused_is_refused_as_by_pytorch(name, given):
    empty = not given
    theirs = outcome(torch, name, given, empty)
    assert outcome(adjit, name, given, empty) == theirs
    assert theirs[0] in (TypeError, RuntimeError)


@pytest.mark.parametrize(("name", "given"), [("addcmul_", "y, 1"), ("pow", "[1., 'a']")])
def test_what_is_no_list_of_tensors_is_refused_with_pytorchs_type(name, given):
    assert outcome(adjit, name, given)[0] is outcome(torch, name, given)[0] is TypeError


def test_gradients_pass():
    def of(L):
        x, y, _ = lists(L)
        x = [one.requires_grad_() for one in x]
        made = L._foreach_exp(L._foreach_mul(L._foreach_addcmul(x, x, y, 0.5), 0.3))
        sum(one.sum() for one in L._foreach_norm(made)).backward()
        return [one.grad.numpy() for one in x]

    for mine, other in zip(of(adjit), of(torch), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5)


def test_names_are_those_of_pytorch_and_survive_pickles():
    theirs = {name for name in dir(torch) if name.startswith("_foreach_")}
    assert theirs - set(NAMES) == {"_foreach_mm", "_foreach_powsum"}
    assert set(NAMES) <= theirs
    assert all(pickle.loads(pickle.dumps(getattr(adjit, n))) is getattr(adjit, n) for n in NAMES)
