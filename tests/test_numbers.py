"""Numbers at and beyond the limits of whole dtypes, beside PyTorch: what wraps around, and what is refused."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjit
from adjit.schedule.jit import native

Call = Callable[[Any, Any, Any], Any]

KINDS = {
    "bool": [0, 1, 1, 0],
    "uint8": [0, 1, 100, 255],
    "int8": [-128, -1, 3, 127],
    "int16": [-32768, -1, 300, 32767],
    "int32": [1 - 2**31, -5, 70000, 2**31 - 1],
    "int64": [1 - 2**63, -7, 2**40, 2**63 - 1],
}
NUMBERS: list[Any] = [
    0, 1, 2, -1, -5, 100, 127, 128, -128, -129, 255, 256, -255, -256, 300, 32767, 32768, -32769, 2**31 - 1,
    2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 2.5, -2.5, 127.0, 300.0, 1e30, 1e39, math.nan, math.inf,
    -math.inf,
]  # fmt: skip
# The largest float32, what comes after, and what a float64 holds alone.
FLOATS = [
    3.4028234663852886e38,
    3.402823466385289e38,
    3.5e38,
    -1e39,
    1e300,
    10**38,
    math.inf,
    -math.inf,
    math.nan,
]


def functional(library: Any) -> Any:
    return library.nn.functional


def written(index: Call) -> Call:
    def write(library: Any, x: Any, number: Any) -> Any:
        x = x.clone()
        x[index(library, x, number)] = number
        return x

    return write


# Refused: numbers that become elements. Wrapped: numbers that are operands.
CALLS: dict[str, Call] = {
    "clamp": lambda L, x, s: x.clamp(-5, s),
    "clamp max": lambda L, x, s: L.clamp(x, max=s),
    "clip": lambda L, x, s: x.clip(s),
    "clamp_min": lambda L, x, s: L.clamp_min(x, s),
    "clamp_max": lambda L, x, s: x.clamp_max(s),
    "where": lambda L, x, s: L.where(x > 1, x, s),
    "where first": lambda L, x, s: L.where(x > 1, s, x),
    "fill_": lambda L, x, s: x.clone().fill_(s),
    "full_like": lambda L, x, s: L.full_like(x, s),
    "full": lambda L, x, s: L.full((2,), s, dtype=x.dtype),
    "new_full": lambda L, x, s: x.new_full((2,), s),
    "masked_fill": lambda L, x, s: x.masked_fill(x > 1, s),
    "masked_fill_": lambda L, x, s: x.clone().masked_fill_(x > 1, s),
    "index_fill": lambda L, x, s: x.index_fill(0, L.tensor([1]), s),
    "scatter": lambda L, x, s: x.scatter(0, L.tensor([1]), s),
    "scatter add": lambda L, x, s: x.clone().scatter_(0, L.tensor([1]), s, reduce="add"),
    "pad": lambda L, x, s: functional(L).pad(x, (1, 1), value=s),
    "item written": written(lambda L, x, s: 1),
    "slice written": written(lambda L, x, s: slice(1, 3)),
    "mask written": written(lambda L, x, s: x > 1),
    "places written": written(lambda L, x, s: L.tensor([0, 1])),
    "tensor": lambda L, x, s: L.tensor(s, dtype=x.dtype),
    "tensor of list": lambda L, x, s: L.tensor([s, 1], dtype=x.dtype),
    "as_tensor": lambda L, x, s: L.as_tensor([[s]], dtype=x.dtype),
    "new_tensor": lambda L, x, s: x.new_tensor([s]),
    "threshold": lambda L, x, s: functional(L).threshold(x, s, 1),
    "threshold value": lambda L, x, s: functional(L).threshold(x, 1, s),
    "hardtanh": lambda L, x, s: functional(L).hardtanh(x, -1, s),
    "add alpha": lambda L, x, s: L.add(x, x, alpha=s),
    "sub alpha": lambda L, x, s: L.sub(x, x, alpha=s),
    "addcmul": lambda L, x, s: L.addcmul(x, x, x, value=s),
    "addmm beta": lambda L, x, s: L.addmm(*[x.view(2, 2)] * 3, beta=s),
    "addmm alpha": lambda L, x, s: L.addmm(*[x.view(2, 2)] * 3, alpha=s),
    "addr": lambda L, x, s: L.addr(x.view(2, 2), x[:2], x[:2], beta=s),
    "linspace": lambda L, x, s: L.linspace(s, 0, 3, dtype=x.dtype),
    "pow": lambda L, x, s: x**s,
    "add": lambda L, x, s: x + s,
    "sub": lambda L, x, s: x - s,
    "rsub": lambda L, x, s: s - x,
    "mul": lambda L, x, s: x * s,
    "div": lambda L, x, s: x / s,
    "remainder": lambda L, x, s: x % s,
    "fmod": lambda L, x, s: L.fmod(x, s),
    "floor_divide": lambda L, x, s: x // s,
    "quotient towards zero": lambda L, x, s: L.div(x, s, rounding_mode="trunc"),
    "less": lambda L, x, s: x < s,
    "at most": lambda L, x, s: x <= s,
    "more": lambda L, x, s: x > s,
    "at least": lambda L, x, s: x >= s,
    "equal": lambda L, x, s: x == s,
    "not equal": lambda L, x, s: x != s,
    "power of": lambda L, x, s: s**x,
    "and": lambda L, x, s: x & s,
    "or": lambda L, x, s: x | s,
    "xor": lambda L, x, s: x ^ s,
    "shift left": lambda L, x, s: x << s,
    "shift right": lambda L, x, s: x >> s,
}
OVERFLOWS = "without overflow"


def apart(name: str, kind: str, number: Any) -> bool:
    """Where PyTorch's answer is not the right one, another one is as good, or there is an answer here."""
    if kind == "bool":
        return name in ("addcmul", "linspace", "addr", "pow")
    beyond = isinstance(number, float) and not abs(number) < 2.0**63
    return (
        (name == "hardtanh" and beyond)  # converted to int64 before
        or (name == "sub alpha" and abs(number) in (2**7, 2**15, 2**31))  # turned around before
        or (name == "pad" and number == 2**63 - 1)  # made a float before
    )


def outcome(library: Any, call: Call, values: list[int], kind: str, number: Any) -> Any:
    """The dtype and the values, or the error."""
    x = library.tensor(np.array(values, kind))
    try:
        found = call(library, x, number)
        return str(found.dtype).split(".")[-1], found.numpy()
    except (RuntimeError, TypeError, ValueError, OverflowError, NotImplementedError) as error:
        return type(error), str(error).split("\n")[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CALLS)
def test_numbers_at_and_beyond_the_limits(name: str, kind: str) -> None:
    torch = pytest.importorskip("torch")
    told = []
    for number in NUMBERS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = outcome(adjit, CALLS[name], KINDS[kind], kind, number)
            theirs = outcome(torch, CALLS[name], KINDS[kind], kind, number)
        if isinstance(theirs[0], type):
            same = isinstance(ours[0], type)
            if same and (OVERFLOWS in theirs[1] or OVERFLOWS in ours[1]):
                same = ours == theirs
        else:
            same = ours[0] == theirs[0] and np.array_equal(ours[1], theirs[1], equal_nan=True)
        if not same and not apart(name, kind, number):
            told.append(f"{number}: {ours}, not {theirs}")
    assert not told, "\n".join(told)


OF_FLOATS: dict[str, Call] = CALLS | {
    "lerp": lambda L, x, s: x.lerp(x, s),
    "nan_to_num": lambda L, x, s: L.nan_to_num(x / 0, s, s, s),
    "leaky_relu": lambda L, x, s: functional(L).leaky_relu(x, s),
    "scalar_tensor": lambda L, x, s: L.scalar_tensor(s, dtype=x.dtype),
    "full of no dtype": lambda L, x, s: L.full((2,), s),
    "fill_diagonal_": lambda L, x, s: x.clone().view(2, 2).fill_diagonal_(s),
}
OF_BITS = ("and", "or", "xor", "shift")


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("name", [n for n in OF_FLOATS if not n.startswith(OF_BITS)])
def test_floats_beyond_the_largest(name: str, kind: str) -> None:
    """What becomes an element is refused, what is an operand or comes from a list is infinite."""
    torch = pytest.importorskip("torch")
    for number in FLOATS:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            ours = outcome(adjit, OF_FLOATS[name], [-2, 0, 1, 3], kind, number)
            theirs = outcome(torch, OF_FLOATS[name], [-2, 0, 1, 3], kind, number)
        if number == 10**38 and isinstance(theirs[0], type):
            continue  # PyTorch has no ints that large
        if isinstance(theirs[0], type):
            assert ours == theirs, number
        elif name not in UNSURE:
            np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6, err_msg=str(number))


# Infinity times zero may be left out, and what has no limit has none of its own.
UNSURE = {
    "hardtanh",
    "remainder",
    "floor_divide",
    "quotient towards zero",
    "linspace",
    "lerp",
    "addmm alpha",
}


def test_machine_code_refuses_the_same_floats() -> None:
    for family in native.families:
        assert family.load(compiling=True)
    x, y = adjit.ones(3), adjit.ones(3, dtype=adjit.float64)
    for _ in range(3):
        x.fill_(2.0), adjit.full_like(x, 3.0), x.__setitem__(0, 4.0)
        for call in (
            lambda: x.fill_(1e39),
            lambda: adjit.full_like(x, 1e39),
            lambda: x.__setitem__(0, -1e39),
        ):
            with pytest.raises(
                RuntimeError, match="value cannot be converted to type float without overflow"
            ):
                call()
        assert y.fill_(1e39).tolist() == [1e39] * 3
        assert (x + 1e39).tolist() == [math.inf] * 3
        assert adjit.tensor(1e39).item() == x.fill_(math.inf)[0].item() == math.inf
        assert adjit.full_like(x, math.nan).isnan().all()


@pytest.mark.parametrize("data", [2**63, 2**64, -(2**63) - 1, [2**63, 1], [[2**63, -1]], [2**64]])
def test_integers_beyond_all_dtypes(data: Any) -> None:
    with pytest.raises(ValueError, match="Overflow when unpacking long long"):
        adjit.tensor(data)
    assert adjit.tensor(data, dtype=adjit.float64).max().item() >= -(2.0**63)


SEQUENCES: list[Any] = [
    [], [[]], [[], []], [[[]]], (), [1], [1.0], [True], [1, 2.5], [True, 2], [True, 2.5], [[1, 2], [3, 4.5]],
    ((1, 2), (3, 4)), [(1, 2), [3, 4]], ([1], (2.0,)), [[[1.0, 2.0]], [[3.0, 4.0]]], [[True], [False]],
    [1 << 62], [1 << 70], [math.inf, 1], [1e300, -0.0], [3.7, True], [np.int64(3), 1.0], [[1], [2, 3]],
    [[1, 2], [3]], [0, 256, -1],
]  # fmt: skip


@pytest.mark.parametrize("data", SEQUENCES, ids=repr)
def test_tensors_of_sequences(data: Any) -> None:
    torch = pytest.importorskip("torch")

    def made(library: Any, dtype: str | None) -> Any:
        try:
            t = library.tensor(data, dtype=None if dtype is None else getattr(library, dtype))
        except Exception as error:
            return type(error)
        return str(t.dtype).partition(".")[2], tuple(t.shape), t.stride(), repr(t.tolist())

    for dtype in (None, "float32", "float64", "int64", "int32", "uint8", "bool"):
        expected = made(torch, dtype)
        for _ in range(3):  # at first by Python, then by machine code
            assert made(adjit, dtype) == expected, dtype


@pytest.mark.parametrize("exponent", [0, 1, 7, 8, 63, 64, 100, 128, 255])
def test_powers_of_bytes(exponent: int) -> None:
    """Beyond 2**63 they were 0."""
    bases = list(range(256))
    wanted = [pow(base, exponent, 256) for base in bases]
    x = adjit.tensor(bases, dtype=adjit.uint8)
    assert (x**exponent).tolist() == wanted
    assert (x ** adjit.full_like(x, exponent)).tolist() == wanted


def test_common_divisors_of_the_least_integer() -> None:
    least = adjit.tensor([-(2**63), -(2**63), 2**40])
    others = adjit.tensor([2**40, 3, -(2**63)])
    assert adjit.gcd(least, others).tolist() == [2**40, 1, 2**40]


@pytest.mark.parametrize(
    "call",
    [
        lambda: adjit.clamp_min(1, 2),
        lambda: adjit.clamp(1, 2, 3),
        lambda: adjit.nn.functional.hardtanh(1),
    ],
)
def test_bounds_of_what_is_no_tensor(call: Callable[[], Any]) -> None:
    with pytest.raises(TypeError):
        call()


@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "div", "true_divide", "floor_divide", "multiply", "divide"]
)
@pytest.mark.parametrize("pair", [(2.0, 3.0), (7, 2), (True, 2), (7, 2.0), (2, True)])
def test_functions_of_two_numbers(name, pair):
    torch = pytest.importorskip("torch")
    found = []
    for lib in (torch, adjit):
        try:
            made = getattr(lib, name)(*pair)
            found.append((made.item(), str(made.dtype).partition(".")[2], made.dim()))
        except RuntimeError as error:
            found.append(str(error).partition(",")[0])
    assert found[0] == found[1]


def test_functions_of_two_numbers_and_options():
    torch = pytest.importorskip("torch")
    for lib in (torch, adjit):
        assert lib.add(2.0, 3.0, alpha=2).item() == 8
        assert lib.sub(2, 1, alpha=3).item() == -1
        assert lib.div(7, 2, rounding_mode="floor").item() == 3
        assert lib.div(-7, 2, rounding_mode="trunc").item() == -3
        with pytest.raises(TypeError):
            lib.fmod(2, 3)
