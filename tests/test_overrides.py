"""`__torch_function__`: subclasses are asked, in the order and with the arguments that PyTorch gives them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import adjit

torch = pytest.importorskip("torch")

CALLS = {
    "x + y": lambda L, x, y: x + y,
    "y + x": lambda L, x, y: y + x,
    "x * 2": lambda L, x, y: x * 2,
    "x - y": lambda L, x, y: x - y,
    "-x": lambda L, x, y: -x,
    "x / 2": lambda L, x, y: x / 2,
    "x ** 2": lambda L, x, y: x**2,
    "x @ x": lambda L, x, y: x @ x,
    "x[0]": lambda L, x, y: x[0],
    "x.sin()": lambda L, x, y: x.sin(),
    "sin(x)": lambda L, x, y: L.sin(x),
    "relu(x)": lambda L, x, y: L.nn.functional.relu(x),
    "stack": lambda L, x, y: L.stack([y, x]),
    "max": lambda L, x, y: x.max(0),
    "by name": lambda L, x, y: L.add(y, other=x),
    "add_": lambda L, x, y: x.add_(1),
    "x += y": lambda L, x, y: x.__iadd__(y),
    "where": lambda L, x, y: L.where(y > 0, x, y),
    "split": lambda L, x, y: x.split(1),
    "linear": lambda L, x, y: L.nn.functional.linear(x, L.ones(3, 2)),
}


def watched(library: Any) -> tuple[Any, list[Any]]:
    """A tensor of a class that notes what it is asked."""
    seen: list[Any] = []

    class Watched(library.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(
                (func.__name__, [t.__name__ for t in types], len(args), sorted(kwargs or {}))
            )
            return super().__torch_function__(func, types, args, kwargs or {})

    return library.tensor([1.0, 2.0]).as_subclass(Watched), seen


@pytest.fixture(autouse=True)
def nobody_is_asked_afterwards():
    yield
    adjit.overrides._unwrap_functions()


@pytest.mark.parametrize("name", CALLS)
def test_what_a_class_is_asked(name):
    found = []
    for library in (torch, adjit):
        x, seen = watched(library)
        made = CALLS[name](library, x, library.tensor([3.0, 4.0]))
        asked = list(seen)
        parts = made if isinstance(made, tuple) else (made,)
        found.append((asked, [type(p).__name__ for p in parts], [p.tolist() for p in parts]))
    (theirs, *rest), (ours, *others) = found
    assert rest == others
    assert len(ours) == len(theirs) == 1
    assert ours[0][1:2] == theirs[0][1:2]
    assert ours[0][0] == theirs[0][0]


def test_a_subclass_that_says_nothing_is_taken_as_the_tensor_that_it_is():
    class Image(adjit.Tensor):
        pass

    class Off(adjit.Tensor):
        __torch_function__ = adjit._C._disabled_torch_function_impl

    for cls in (Image, Off):
        image = adjit.ones(2, 2).as_subclass(cls)
        assert type(image) is cls
        assert type(image + 1) is adjit.Tensor
        assert type(adjit.sin(image)) is adjit.Tensor
    assert type(adjit.nn.Parameter(adjit.ones(2)) + 1) is adjit.Tensor
    assert not adjit.overrides._plain


def test_a_subclass_of_one_that_is_asked_comes_first():
    x, seen = watched(adjit)

    class Closer(type(x)):
        pass

    y = adjit.ones(2).as_subclass(Closer)
    assert type(x + y) is Closer
    assert seen[-1] == ("add", ["Closer", "Watched"], 2, [])


def test_gradients_pass_through_a_subclass():
    class Image(adjit.Tensor):
        pass

    leaf = adjit.tensor([1.0, 2.0], requires_grad=True)
    ((leaf.as_subclass(Image) * 3).sin() * leaf).sum().backward()
    x = np.array([1.0, 2.0])
    np.testing.assert_allclose(leaf.grad.numpy(), np.sin(3 * x) + 3 * x * np.cos(3 * x), rtol=1e-5)


def test_functions_that_a_program_replaces():
    replaced = {adjit.mean: lambda x: "mean of mine"}

    class Mine(adjit.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func in replaced:
                return replaced[func](*args, **(kwargs or {}))
            return NotImplemented

    replaced[adjit.sum] = lambda x: "sum of mine"
    x = adjit.ones(2).as_subclass(Mine)
    assert adjit.mean(x) == "mean of mine"
    assert adjit.sum(x) == "sum of mine"
    with pytest.raises(
        TypeError, match=r"no implementation found for 'torch.sin' on types that implement"
    ):
        adjit.sin(x)
    with adjit.overrides.DisableTorchFunctionSubclass():
        assert type(adjit.sin(x)) is adjit.Tensor
    assert adjit.mean(adjit.ones(2)).item() == 1


def test_objects_that_are_no_tensors_are_asked():
    class Diagonal:
        def __init__(self, value):
            self.value = value

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return (func.__name__, args[0].value)

    x, _ = watched(adjit)
    assert adjit.mean(Diagonal(3)) == ("mean", 3)
    assert adjit.overrides.is_tensor_like(Diagonal(1))
    assert adjit.overrides.has_torch_function((Diagonal(1),))
    assert not adjit.overrides.has_torch_function((adjit.nn.Parameter(adjit.ones(1)), 3))
    assert adjit.overrides.has_torch_function_unary(x)
    assert adjit.overrides.handle_torch_function(len, (Diagonal(4),), Diagonal(4)) == ("len", 4)

    @adjit.overrides.wrap_torch_function(lambda a, b: (a, b))
    def mine(a, b):
        return a

    assert mine(1, 2) == 1
    assert mine(Diagonal(5), 2) == ("mine", 5)


def test_what_can_be_overridden():
    listed = adjit.overrides.get_overridable_functions()
    assert adjit.sin in listed[adjit]
    assert adjit.nn.functional.relu in listed[adjit.nn.functional]
    assert adjit.Tensor.add in listed[adjit.Tensor]
    assert adjit.zeros in adjit.overrides.get_ignored_functions()
    assert adjit.zeros not in listed[adjit]
    assert adjit.overrides.resolve_name(adjit.sin) == "adjit.sin"
    assert adjit.overrides.resolve_name(adjit.Tensor.sin) == "adjit.Tensor.sin"
    assert adjit.overrides.resolve_name(len) is None
    assert adjit.overrides.is_tensor_method_or_property(adjit.Tensor.sin)
    assert not adjit.overrides.is_tensor_method_or_property(len)


def test_nothing_is_in_the_way_until_there_is_a_subclass():
    code = (
        "import adjit\n"
        "before = adjit.sin, adjit.nn.functional.relu\n"
        "class Layer(adjit.nn.Parameter): pass\n"
        "print(before == (adjit.sin, adjit.nn.functional.relu), type(adjit.sin).__name__)\n"
        "class Image(adjit.Tensor): pass\n"
        "print(before[0] is adjit.sin)\n"
        "class Asked(adjit.Tensor):\n"
        "    __torch_function__ = classmethod(lambda *a, **k: 1)\n"
        "print(before[0] is adjit.sin, before[0] == adjit.sin, hash(before[0]) == hash(adjit.sin))\n"
        "import pickle\n"
        "print(pickle.loads(pickle.dumps(adjit.sin)) == adjit.sin, adjit.sin.__name__)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, same, second, third = found.stdout.splitlines()
    assert same == "True"
    assert first.startswith("True")
    assert "Overridable" not in first
    assert second == "False True True"
    assert third == "True sin"
