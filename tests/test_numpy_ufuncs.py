"""NumPy's functions and operators on tensors: values beside NumPy, types beside PyTorch, gradients."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

import adjit
from adjit.autograd import gradcheck
from adjit.ops import ufuncs

A = np.array([0.5, 1.5, -2.0], np.float32)
A64 = A.astype(np.float64)
A2 = np.arange(6, dtype=np.float32).reshape(2, 3)

UNARY = sorted(
    name
    for name in (*ufuncs._SAME_NAME, *ufuncs._OTHER_NAME, *ufuncs._COMPOSED)
    if getattr(getattr(np, name, None), "nin", 0) == 1
)
BINARY = sorted(
    name
    for name in (*ufuncs._SAME_NAME, *ufuncs._OTHER_NAME, *ufuncs._COMPOSED)
    if getattr(getattr(np, name, None), "nin", 0) == 2
    and getattr(np, name).signature is None
    and not name.startswith("bitwise")
)
NO_DERIVATIVE = {
    "divmod", "equal", "floor_divide", "greater", "greater_equal", "heaviside", "isfinite", "isinf",
    "isnan", "less", "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor", "not_equal",
    "signbit",
}  # fmt: skip


def values(thing: Any) -> np.ndarray[Any, Any]:
    """The elements of a tensor, with history or without, or of what NumPy takes."""
    return np.asarray(thing.detach() if isinstance(thing, adjit.Tensor) else thing)


def same(ours: Any, theirs: Any, rtol: float = 1e-6) -> None:
    """Assert that a tensor or a tuple of them is what NumPy gives, in dtype, shape and values."""
    if isinstance(theirs, tuple):
        for one, other in zip(ours, theirs, strict=True):
            same(one, other, rtol)
        return
    assert isinstance(ours, adjit.Tensor)
    assert values(ours).dtype == np.asarray(theirs).dtype
    np.testing.assert_allclose(values(ours), theirs, rtol=rtol, atol=1e-12)


# ----- beside PyTorch -----

ALIKE = """
    np.sin(t); np.sin(i); np.sin(s); np.add(t, A); np.add(A, t); np.add(A64, t); np.add(t, 1); np.add(1, t)
    np.add(t, t); np.add(b, t); np.multiply(A, t); np.multiply(np.arange(3), t); t * np.arange(3); t @ A
    t * A; t + A; t - A64; A64 == t; np.float64(2) * t; np.float64(2) * i; np.float32(2) * t
    np.int64(2) * t; np.float64(2) * s; np.float64(2) + t; np.float64(2) / t; np.float64(2) ** t
    np.float64(2) < t; np.float64(2) == t; np.bool_(True) == b; t * np.float64(2); i * np.float64(2)
    np.int64(3) + i; np.add.reduce(t); np.add.reduce(m, axis=1); np.add.reduce(m, axis=None)
    np.add.reduce(m, axis=(0, 1), keepdims=True); np.add.accumulate(t); np.add.reduceat(t, [0, 1])
    np.multiply.reduce(t); np.maximum.reduce(t); np.modf(t); np.divmod(t, A); np.divmod(A, t); np.frexp(t)
    np.where(b, t, A); np.argmax(t); np.cumsum(t); np.clip(t, 0, 1); np.reshape(m, (3, 2)); np.transpose(m)
    np.ravel(m); np.concatenate([t, t]); np.dot(t, t); np.matmul(t, t); np.matmul(A2, t); np.asarray(t)
    np.array([t, t]); np.allclose(t, A); np.linalg.norm(t); np.abs(t); np.sqrt(m)
    np.sin(t, dtype=np.float64); np.add(t, [1, 2, 3]); np.ldexp(t, i); np.bitwise_and(i, i)
    np.left_shift(i, 1); np.power(t, 2); np.power(2, t); np.minimum(t, 0.5); np.sign(t); np.round(t)
    A64.dot(t); np.zeros_like(t); np.exp(t, out=np.empty(3, np.float32)); np.maximum(t, np.float64(0.5))
    np.float64(3) // i; t ** np.float32(2)
"""
EXPRESSIONS = [part.strip() for part in ALIKE.replace("\n", ";").split(";") if part.strip()]


def names_of(library: Any) -> dict[str, Any]:
    return {
        "np": np, "A": A, "A64": A64, "A2": A2, "t": library.tensor([0.5, 1.5, -2.0]),
        "i": library.tensor([1, 2, 3]), "s": library.tensor(2.0), "b": library.tensor([True, False, True]),
        "m": library.arange(6).reshape(2, 3).to(library.float32),
    }  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_without_gradients_types_dtypes_and_values_are_those_of_pytorch(expression: str) -> None:
    torch = pytest.importorskip("torch")
    ours = eval(expression, names_of(adjit))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # NumPy about PyTorch's __array_wrap__
        theirs = eval(expression, names_of(torch))
    for one, other in zip(
        ours if isinstance(ours, tuple) else [ours],
        theirs if isinstance(theirs, tuple) else [theirs],
        strict=True,
    ):
        assert type(one).__name__ == type(other).__name__
        assert values(one).dtype == np.asarray(other).dtype
        np.testing.assert_allclose(values(one), np.asarray(other), rtol=1e-6)


@pytest.mark.parametrize(
    "symbol", ["+", "-", "*", "/", "//", "%", "**", "<", "<=", ">", ">=", "==", "!=", "@"]
)
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("kind", ["float32", "float64", "int64"])
def test_arrays_on_either_side_of_an_operator_follow_numpy(
    symbol: str, requires_grad: bool, kind: str
) -> None:
    array = np.array([[1, 2, 3], [3, 1, 2]]).astype(kind)
    mine = np.array([0.5, 1.5, 2.0], np.float32)
    t = adjit.tensor(mine, requires_grad=requires_grad)
    sides = [("array", "t"), ("t", "array.T" if symbol == "@" else "array")]
    for left, right in sides:
        names = {"array": array, "t": t}
        made = eval(f"{left} {symbol} {right}", names)
        same(made, eval(f"{left} {symbol} {right}", {"array": array, "t": mine}), 2e-6)
        assert made.requires_grad == (requires_grad and made.dtype.is_floating_point)


def test_truth_values_stay_truth_values() -> None:
    for made in (
        np.isnan(adjit.tensor(A)),
        np.greater(adjit.tensor(A), 0),
        np.logical_and.reduce(adjit.tensor(A)),
    ):
        assert made.dtype is adjit.bool


# ----- with gradients -----

finite = st.floats(-3, 3, width=32)
special_points = st.sampled_from([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("name", UNARY)
@settings(max_examples=12, deadline=None)
@given(numbers=st.lists(finite | special_points, min_size=1, max_size=4), double=st.booleans())
def test_recorded_functions_of_one_operand_give_numpys_values(
    name: str, numbers: list[float], double: bool
) -> None:
    array = np.array(numbers, np.float64 if double else np.float32)
    t = adjit.tensor(array, requires_grad=True)
    with np.errstate(all="ignore"):
        same(getattr(np, name)(t), getattr(np, name)(array), 1e-12 if double else 3e-5)


@pytest.mark.parametrize("name", BINARY)
@settings(max_examples=20, deadline=None)
@given(
    numbers=st.lists(finite, min_size=1, max_size=4),
    others=st.lists(finite, min_size=1, max_size=3),
    form=st.sampled_from(["array", "column", "integers", "tensor", "number", "integer", "list"]),
    swapped=st.booleans(),
)
def test_recorded_functions_of_two_operands_give_numpys_values(
    name: str, numbers: list[float], others: list[float], form: str, swapped: bool
) -> None:
    array = np.array(numbers, np.float32)
    other: Any = {
        "array": np.resize(np.array(others), len(numbers)),
        "column": np.array(others, np.float32)[:, None],
        "integers": np.resize(np.array(others).astype(np.int64), len(numbers)),
        "tensor": np.resize(np.array(others, np.float32), len(numbers)),
        "number": float(others[0]),
        "integer": int(others[0]),
        "list": [float(v) for v in np.resize(np.array(others), len(numbers))],
    }[form]
    ufunc = getattr(np, name)
    t = adjit.tensor(array, requires_grad=True)
    given_other = adjit.tensor(other) if form == "tensor" else other
    with np.errstate(all="ignore"):
        wanted = ufunc(other, array) if swapped else ufunc(array, other)
        made = ufunc(given_other, t) if swapped else ufunc(t, given_other)
    same(made, wanted, 1e-4)


@pytest.mark.parametrize("name", sorted({*UNARY, *BINARY} - NO_DERIVATIVE))
def test_gradients_of_recorded_functions(name: str) -> None:
    ufunc = getattr(np, name)
    low = 1.1 if name == "arccosh" else 0.2
    x = adjit.tensor([low, low + 0.35, low + 0.55], dtype=adjit.float64, requires_grad=True)
    y = adjit.tensor([0.35, 1.7, 0.6], dtype=adjit.float64, requires_grad=True)
    if ufunc.nin == 1:
        assert gradcheck(lambda t: ufunc(t), (x,))
    else:
        assert gradcheck(lambda s, t: ufunc(s, t), (x, y))
        assert gradcheck(lambda t: ufunc(np.array([0.3, 0.9, 1.3]), t), (y,))


@pytest.mark.parametrize("name", sorted(ufuncs._OF_SCIPY))
def test_functions_of_scipy_are_recorded(name: str) -> None:
    ufunc = getattr(special, name)
    x = adjit.tensor([0.2, 0.45, 0.8], dtype=adjit.float64, requires_grad=True)
    operands = (x, x) if ufunc.nin == 2 else (x,)
    made = ufunc(*operands)
    same(made, ufunc(*[values(t) for t in operands]), 1e-9)
    assert gradcheck(ufunc, operands)


AXES = (0, 1, -1, None, (0, 2), ())
REDUCED = [(name, axis) for name in ("add", "maximum", "minimum", "multiply") for axis in AXES]


@pytest.mark.parametrize(("name", "axis"), [*REDUCED, ("logaddexp", 0), ("logaddexp", -1)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_are_recorded(name: str, axis: Any, keepdims: bool) -> None:
    array = np.random.default_rng(1).normal(size=(2, 3, 2))
    t = adjit.tensor(array, requires_grad=True)
    reduce = getattr(np, name).reduce
    same(
        reduce(t, axis=axis, keepdims=keepdims), reduce(array, axis=axis, keepdims=keepdims), 1e-12
    )
    assert gradcheck(lambda x: reduce(x, axis=axis, keepdims=keepdims), (t,))


@pytest.mark.parametrize("name", sorted(ufuncs._ACCUMULATED))
@pytest.mark.parametrize("axis", [0, 1])
def test_accumulations_and_outer_forms_are_recorded(name: str, axis: int) -> None:
    array = np.random.default_rng(2).normal(size=(2, 3))
    t = adjit.tensor(array, requires_grad=True)
    ufunc = getattr(np, name)
    same(ufunc.accumulate(t, axis), ufunc.accumulate(array, axis), 1e-12)
    assert gradcheck(lambda x: ufunc.accumulate(x, axis), (t,))
    same(ufunc.outer(t, A64), ufunc.outer(array, A64), 1e-12)
    assert gradcheck(lambda x: ufunc.outer(A64, x), (t,))


def test_a_dtype_may_be_asked_for() -> None:
    t = adjit.tensor(A, requires_grad=True)
    same(np.sin(t, dtype=np.float64), np.sin(A, dtype=np.float64), 1e-12)
    same(np.add.reduce(t, dtype=np.float64), np.add.reduce(A, dtype=np.float64), 1e-12)
    same(np.add.accumulate(t, dtype=np.float64), np.add.accumulate(A, dtype=np.float64), 1e-12)


def test_arrays_are_remembered_as_they_were() -> None:
    t = adjit.tensor(A, requires_grad=True)
    array = np.ones(3, np.float32)
    product = array * t
    array += 5
    product.sum().backward()
    np.testing.assert_array_equal(values(t.grad), [1, 1, 1])


def test_arrays_that_torch_would_not_share_are_taken() -> None:
    t = adjit.tensor(A, requires_grad=True)
    same(A[::-1] * t, A[::-1] * A)
    same(np.broadcast_to(np.float32(2), 3) * t, 2 * A)
    same(A.astype(">f4") * t, A * A)


# ----- where it is written -----


def test_in_place_operators_of_arrays_write_them() -> None:
    array = A.copy()
    before = array
    array += adjit.tensor(A)
    assert array is before
    np.testing.assert_array_equal(array, 2 * A)
    with pytest.raises(
        RuntimeError, match=r"np\.add\(\): functions with out=.* array = array \+ tensor"
    ):
        array += adjit.tensor(A, requires_grad=True)


def test_in_place_operators_of_tensors_rebind_the_name_as_in_pytorch() -> None:
    t = before = adjit.tensor(A)
    t += A
    assert t is not before
    same(t, 2 * A)
    same(before, A)


def test_out_and_at_write_tensors_and_count_it() -> None:
    t = adjit.zeros(3)
    assert np.exp(A, out=t) is t
    same(t, np.exp(A))
    np.add.at(t, [0, 0], 1)
    same(t, np.exp(A) + np.array([2, 0, 0], np.float32))
    w = adjit.ones(3, requires_grad=True)
    product = w * t
    np.negative(t, out=t)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    with pytest.raises(TypeError, match="Cannot cast ufunc 'exp' output"):
        np.exp(A, out=adjit.zeros(3, dtype=adjit.int64))
    kept = adjit.zeros(3)
    np.add(A, 1, out=kept, where=adjit.tensor([True, False, True]))
    same(kept, np.array([1.5, 0, -1], np.float32))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: np.frexp(t), r"np\.frexp\(\) is not recorded .* tensor\.detach\(\)"),
        (lambda t: np.add.reduceat(t, [0]), r"np\.add\.reduceat\(\) is not recorded"),
        (lambda t: np.add.at(t, [0], 1), r"np\.add\.at\(\) is not recorded"),
        (lambda t: np.subtract.reduce(t), r"np\.subtract\.reduce\(\) is not recorded"),
        (lambda t: np.subtract.accumulate(t), r"np\.subtract\.accumulate\(\) is not recorded"),
        (lambda t: special.j0(t), r"j0\(\) is not recorded"),
        (lambda t: np.add(t, t, where=[True, False, True]), r"np\.add\(\): where= is not recorded"),
        (lambda t: np.add.reduce(t, initial=1), r"np\.add\.reduce\(\): initial= is not recorded"),
        (lambda t: np.exp(t, out=np.empty(3)), r"np\.exp\(\): functions with out="),
        (lambda t: np.asarray(t), r"Can't call numpy\(\) on Tensor that requires grad"),
    ],
)  # fmt: skip
def test_what_cannot_be_recorded_says_what_to_do(call: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        call(adjit.ones(3, requires_grad=True))


def test_operands_that_answer_themselves_are_asked() -> None:
    class Quantity:
        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> str:
            return ufunc.__name__

    for t in (adjit.ones(2), adjit.ones(2, requires_grad=True)):
        assert np.add(t, Quantity()) == "add"


def test_operands_that_do_not_fit_raise_numpys_error() -> None:
    for t in (adjit.ones(3), adjit.ones(3, requires_grad=True)):
        with pytest.raises(TypeError, match="ufunc 'add' did not contain a loop"):
            np.add(t, "x")


def test_numpys_assertions_take_tensors() -> None:
    np.testing.assert_allclose(adjit.tensor(A), A)
    np.testing.assert_array_equal(adjit.tensor(A), A)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(adjit.tensor(A), A + 1)
