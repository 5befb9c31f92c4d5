"""`adjit.testing`: closeness as PyTorch judges it, with its messages, and random tensors for tests."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest

import adjit

torch = pytest.importorskip("torch")
from against_torch import plain  # noqa: E402

NAN = float("nan")
COMPARED = [
    "L.tensor([1., 2.]), L.tensor([1., 2.])",
    "L.tensor([1., 2., 3.]), L.tensor([1., 2.5, 5.])",
    "L.tensor([[1., 2.], [3., 4.]]), L.tensor([[1., 2.], [3., 4.1]])",
    "L.tensor([1, 2]), L.tensor([1, 4])",
    "L.tensor(1.), L.tensor(2.)",
    "L.tensor([True, False]), L.tensor([True, True])",
    "1, 1",
    "1, 2",
    "1., 1.5",
    "1, 1.",
    "1, 1., check_dtype=False",
    "0.1, 0., rtol=1e-3, atol=1e-3",
    "1., 2., rtol=0, atol=0",
    "1, 2, rtol=0",
    "1, 2, atol=0",
    "True, True",
    "True, False",
    "None, None",
    "None, 1",
    "1, None",
    "'a', 'a'",
    "'a', 1",
    "[1, 2.], (1, 2.)",
    "[1, [2, 3]], [1, [2, 4]]",
    "[1, 2], [1]",
    "{'a': 1, 'b': [2]}, {'b': [2], 'a': 1}",
    "{'a': 1, 'b': [2]}, {'b': [3], 'a': 1}",
    "{'a': 1, 'c': 1}, {'b': 1, 'a': 1}",
    "NAN, NAN",
    "NAN, NAN, equal_nan=True",
    "L.tensor([NAN]), L.tensor([NAN])",
    "L.tensor([NAN]), L.tensor([NAN]), equal_nan=True",
    "L.tensor(NAN), L.tensor(NAN)",
    "L.ones(2), L.ones(3)",
    "L.ones(2), L.ones(2, dtype=L.float64)",
    "L.ones(2), L.ones(2, dtype=L.float64), check_dtype=False",
    "L.ones(2, 3), L.ones(3, 2).t(), check_stride=True",
    "L.ones(2, 3), L.ones(3, 2).t()",
    "L.ones(2), [1., 1.]",
    "np.ones(2), np.ones(2)",
    "np.ones(2), 2 * np.ones(2)",
    "np.ones(2), L.ones(2)",
    "np.float32(1), 1.0",
    "L.nn.Parameter(L.ones(2)), L.ones(2)",
    "L.nn.Parameter(L.ones(2)), L.ones(2), allow_subclasses=False",
    "L.ones(2), 3 * L.ones(2), msg='my text'",
    "L.ones(2), 3 * L.ones(2), msg=lambda text: 'before ' + text",
    "[L.ones(2)], [2 * L.ones(2)], msg=str.upper",
    "L.tensor([1e-9, 1.]), L.tensor([0., 1.])",
    "L.tensor([0., 1.]), L.tensor([1e-3, 1.])",
    "L.tensor([float('inf')]), L.tensor([1.])",
    "float('inf'), 1.0",
    "L.tensor([5], dtype=L.uint8), L.tensor([9], dtype=L.uint8)",
    "L.ones(0), L.ones(0)",
]


def outcome(library: Any, text: str, name: str = "assert_close") -> Any:
    try:
        return eval(f"L.testing.{name}({text})", {"L": library, "np": np, "NAN": NAN})
    except Exception as error:
        if type(error) is TypeError:  # the modules of classes are those of the library
            return TypeError, re.sub(r"'[\w.]+\.(\w+)'", r"\1", str(error))
        return type(error), plain(error)


@pytest.mark.parametrize("text", COMPARED)
def test_values_are_close_where_they_are_for_pytorch(text):
    assert outcome(adjit, text) == outcome(torch, text)


@pytest.mark.parametrize(
    "text",
    ["L.ones(2), [1, 1]", "L.ones(2), L.ones(2) + 1e-4", "L.ones(2), 2 * L.ones(2)", "1, 1, 0, 0"],
)
def test_the_old_name(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        assert outcome(adjit, text, "assert_allclose") == outcome(torch, text, "assert_allclose")
    with pytest.warns(FutureWarning, match=r"torch.testing.assert_allclose\(\)` is deprecated"):
        adjit.testing.assert_allclose(1.0, 1.0)


def test_a_difference_between_devices_is_told():
    import stub_driver

    with stub_driver.installed():
        x, y = adjit.ones(2), adjit.ones(2, device="cuda")
        with pytest.raises(AssertionError, match="'device' do not match: cpu != cuda:0"):
            adjit.testing.assert_close(x, y)
        adjit.testing.assert_close(x, y, check_device=False)


KINDS = ["bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64"]


@pytest.mark.parametrize("kind", KINDS)
def test_random_tensors(kind):
    made = adjit.testing.make_tensor(2000, dtype=getattr(adjit, kind), device="cpu").numpy()
    theirs = torch.testing.make_tensor(2000, dtype=getattr(torch, kind), device="cpu").numpy()
    assert made.dtype == theirs.dtype
    assert abs(float(made.max()) - float(theirs.max())) < 0.1
    assert abs(float(made.min()) - float(theirs.min())) < 0.1
    numbers = adjit.testing.make_tensor(
        (300,), dtype=getattr(adjit, kind), device="cpu", low=0, high=2
    )
    assert 0 <= numbers.min() <= numbers.max() < 2 + (kind == "bool")
    full = adjit.testing.make_tensor(
        (500,), dtype=getattr(adjit, kind), device="cpu", exclude_zero=True
    )
    assert bool((full != 0).all())


def test_random_tensors_of_a_layout():
    options = {"dtype": adjit.float32, "device": "cpu"}
    assert not adjit.testing.make_tensor(3, 4, noncontiguous=True, **options).is_contiguous()
    turned = adjit.testing.make_tensor(
        1, 2, 3, 4, memory_format=adjit.channels_last, requires_grad=True, **options
    )
    assert turned.is_contiguous(memory_format=adjit.channels_last)
    assert turned.requires_grad
    assert turned.is_leaf


@pytest.mark.parametrize(
    "text",
    [
        "3, dtype=L.float32, device='cpu', low=2, high=1",
        "3, dtype=L.int64, device='cpu', low=2, high=2",
        "3, dtype=L.float32, device='cpu', low=float('nan')",
        "3, dtype=L.uint8, device='cpu', low=300, high=400",
        "3, dtype=L.int64, device='cpu', requires_grad=True",
        "3, dtype=L.float32, device='cpu', noncontiguous=True, memory_format=L.contiguous_format",
    ],
)
def test_random_tensors_that_are_refused(text):
    ours = outcome(adjit, text, "make_tensor")
    assert ours == outcome(torch, text, "make_tensor")
    assert ours[0] is ValueError
