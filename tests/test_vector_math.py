"""The library's own scalar functions: how accurate, over which range, and that they vectorise.

Every function runs in a compiled loop, as kernels use it. Errors are measured in units of the last
place of the exact result: float32 against float64, float64 against mpmath.
"""

from __future__ import annotations

import ast
import ctypes
import platform
import re
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from adjit.kernels.language.abi import SIGNATURE, at, words
from adjit.kernels.language.target import compile_function, load
from adjit.kernels.math import vector as vector_math
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from mpmath import mp
from numba import types
from scipy import special

Array = np.ndarray[Any, Any]
BOTH = ("float32", "float64")
SUFFIX = {"float32": "f32", "float64": "f64"}
BITS = {"float32": np.uint32, "float64": np.uint64}
X86 = platform.machine().lower() in ("x86_64", "amd64")

ODD = {"sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf", "erfinv", "cbrt"}
BINARY = {"pow", "atan2", "fmod", "remainder", "copysign"}
# What may still call libm, and only for rare arguments.
CALLS = {"fmod": {"fmod", "fmodf"}, "remainder": {"fmod", "fmodf"}}

ONE_ARGUMENT = sorted({name for name, _ in vector_math.TABLE} - BINARY - {"fma"})


class Loop:
    """`out[i] = f(a[i], ...)` as the code generator writes it."""

    def __init__(self, name: str, dtype: str) -> None:
        self.dtype = dtype
        arity = 3 if name == "fma" else 2 if name in BINARY else 1
        letters = [f"a{i}" for i in range(arity)]
        pointers = "".join(f"    {a} = at(p[{i}], T)\n" for i, a in enumerate(letters))
        source = (
            f"def kernel(args, start, stop):\n    p = words(args)\n{pointers}"
            f"    out = at(p[{arity}], T)\n    for i in range(start, stop):\n"
            f"        out[i] = f({', '.join(f'{a}[i]' for a in letters)})\n"
        )
        function = getattr(vector_math, vector_math.TABLE[name, dtype])
        scope = {"words": words, "at": at, "T": getattr(types, dtype), "f": function}
        exec(source, scope)
        compiled = compile_function(scope["kernel"], SIGNATURE)
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
        self.run = prototype(load(compiled.symbol, compiled.code))
        self.assembly = compiled.library.get_asm_str()
        self.ir = compiled.library.get_llvm_str()

    def __call__(self, *arrays: Any) -> Array:
        given = [np.ascontiguousarray(a, self.dtype) for a in arrays]
        out = np.empty_like(given[0])
        table = np.array([a.ctypes.data for a in (*given, out)], np.int64)
        self.run(table.ctypes.data, 0, out.size)
        return out


loop = cache(Loop)


# ---------------------------------------------------------------- exact results

# float64 is exact enough to judge float32: its own error is below 1e-6 of a float32 ulp or so.
TO_FLOAT64: dict[str, Callable[..., Array]] = {
    **{name: getattr(np, name) for name in ("exp", "exp2", "expm1", "sinh", "cosh", "tanh")},
    **{name: getattr(np, name) for name in ("log", "log2", "log10", "log1p")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sqrt", "cbrt")},
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "pow": np.power,
    "fmod": np.fmod,
    "erf": special.erf,
    "erfc": special.erfc,
    "erfinv": special.erfinv,
    "sigmoid": special.expit,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "lgamma": special.gammaln,
}

TO_MPMATH: dict[str, Callable[..., Any]] = {
    **{name: getattr(mpmath, name) for name in ("exp", "expm1", "log", "log10", "log1p", "sqrt")},
    **{name: getattr(mpmath, name) for name in ("sin", "cos", "tan", "asin", "acos", "atan")},
    **{name: getattr(mpmath, name) for name in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")},
    **{name: getattr(mpmath, name) for name in ("atan2", "erf", "erfc", "erfinv", "digamma")},
    "exp2": lambda x: mpmath.power(2, x),
    "log2": lambda x: mpmath.log(x, 2),
    "pow": mpmath.power,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "lgamma": lambda x: mpmath.loggamma(x) if x > 0 else mpmath.log(abs(mpmath.gamma(x))),
}

# Constant, zero or infinite far from 0.
SETTLES = {"exp", "exp2", "expm1", "sigmoid", "sinh", "cosh", "tanh", "erf", "erfc"}

# Where arguments are drawn from, besides all bit patterns.
DOMAIN = {
    "exp": (-104, 89),
    "exp2": (-150, 128),
    "expm1": (-20, 89),
    "sinh": (-90, 90),
    "cosh": (-90, 90),
    "tanh": (-10, 10),
    "sigmoid": (-104, 30),
    "log": (0.5, 2),
    "log2": (0.5, 2),
    "log10": (0.5, 2),
    "log1p": (-1, 2),
    "asin": (-1, 1),
    "acos": (-1, 1),
    "atanh": (-1, 1),
    "erfinv": (-1, 1),
    "acosh": (1, 10),
    "erf": (-4, 4),
    "erfc": (-4, 10.1),
    "lgamma": (0, 30),
    "digamma": (0, 30),
}
WIDER = {"exp": (-746, 710), "exp2": (-1075, 1024), "erf": (-6, 6), "erfc": (-6, 27)}
WIDER |= {"expm1": (-40, 710), "sinh": (-711, 711), "cosh": (-711, 711), "sigmoid": (-746, 40)}
WIDER |= {"tanh": (-20, 20)}


def patterns(dtype: str, count: int, rng: np.random.Generator) -> Array:
    """Numbers of all sizes: random bits."""
    largest = np.iinfo(BITS[dtype]).max
    return rng.integers(0, largest, count, BITS[dtype], endpoint=True).view(dtype)


def arguments(name: str, dtype: str, count: int) -> tuple[Array, ...]:
    """Arguments of all kinds for a function."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if name == "pow":
        spread = np.exp(rng.uniform(-40, 40, count)).astype(dtype)
        near = rng.uniform(0.2, 5, count).astype(dtype)
        x = np.concatenate([spread, near, patterns(dtype, count, rng)])
        y = np.concatenate([rng.normal(0, 2, count), rng.uniform(-50, 50, count)]).astype(dtype)
        return x, np.concatenate([y, patterns(dtype, count, rng)])
    if name in BINARY:
        scales = np.exp(rng.uniform(-20, 20, (2, count)))
        x, y = (rng.normal(0, 1, (2, count)) * scales).astype(dtype)
        more = [patterns(dtype, count, rng) for _ in range(2)]
        return np.concatenate([x, more[0]]), np.concatenate([y, more[1]])
    low, high = (WIDER if dtype == "float64" else {}).get(name) or DOMAIN.get(name, (-10, 10))
    signs = rng.choice([-1.0, 1.0], count)
    tiny_to_large = (signs * np.exp(rng.uniform(-20, 5, count))).astype(dtype)
    inside = rng.uniform(low, high, count).astype(dtype)
    edges = np.array([low, high], dtype)
    near_edges = [np.nextafter(edges, np.inf), edges, np.nextafter(edges, -np.inf)]
    return (np.concatenate([patterns(dtype, count, rng), inside, tiny_to_large, *near_edges]),)


def ulp(exact: Array, dtype: str) -> Array:
    """The unit in the last place of exact results."""
    info = np.finfo(dtype)
    exponent = np.frexp(np.abs(exact))[1] - 1 - info.nmant
    return np.ldexp(1.0, np.maximum(exponent, info.minexp - info.nmant))


def scale_of_error(name: str, x: Array, exact: Array) -> Array:
    """What the error is small beside: near the zeros of lgamma at negative x it is 1."""
    return np.where((x < 0) & (name in ("lgamma", "digamma")), np.maximum(abs(exact), 1), exact)


# ---------------------------------------------------------------- accuracy


@pytest.mark.parametrize("name", sorted(TO_FLOAT64))
def test_float32_is_within_one_ulp(name: str) -> None:
    args = arguments(name, "float32", 60_000)
    got = loop(name, "float32")(*args)
    with np.errstate(all="ignore"):
        exact = TO_FLOAT64[name](*(a.astype(np.float64) for a in args))
        rounded = exact.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
    infinite = np.isinf(rounded) | np.isinf(got)
    np.testing.assert_array_equal(got[infinite], rounded[infinite])
    zero = exact == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(exact[zero]))
    finite = np.isfinite(rounded)
    unit = ulp(scale_of_error(name, args[0][finite], exact[finite]), "float32")
    error = np.abs(got[finite] - exact[finite]) / unit
    worst = int(error.argmax())
    assert error[worst] <= 1, (error[worst], [a[finite][worst] for a in args])


@pytest.mark.parametrize("name", sorted(TO_MPMATH))
@pytest.mark.parametrize("dtype", BOTH)
def test_error_against_mpmath(name: str, dtype: str) -> None:
    count = 60 if dtype == "float32" else 150
    args = arguments(name, dtype, count)
    got = loop(name, dtype)(*args)
    limit = 1 if dtype == "float32" else 2
    info = np.finfo(dtype)
    checked = 0
    with mp.workprec(130):
        for values in zip(got, *args, strict=True):
            value, *given = map(float, values)
            if not np.isfinite(value) or not np.isfinite(given).all():
                continue
            if name in SETTLES and abs(given[0]) > 2e3:
                continue  # the edges cover it; mpmath would take its time
            if name in ("lgamma", "digamma") and given[0] < -1e3:
                continue  # huge negative: mpmath needs as many digits as x has
            exact = TO_MPMATH[name](*map(mpmath.mpf, given))
            assert not isinstance(exact, mpmath.mpc), (given, value)
            size = abs(exact)
            if name in ("lgamma", "digamma") and given[0] < 0:
                size = max(size, mpmath.mpf(1))
            exponent = mpmath.frexp(size)[1] - 1 - info.nmant if size else info.minexp
            unit = mpmath.ldexp(1, max(exponent, info.minexp - info.nmant))
            assert abs(value - exact) <= limit * unit, (given, value, mpmath.nstr(exact, 20))
            checked += 1
    assert checked > count / 2


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_next_to_a_multiple_of_half_pi(name: str, dtype: str) -> None:
    """The hard case of range reduction: the nearest numbers to many multiples, of all sizes."""
    info = np.finfo(dtype)
    with mp.workprec(1300):
        powers = range(0, info.maxexp - 1, 3 if dtype == "float32" else 23)
        multiples = [
            mpmath.mpf(int(1.37 * 2 ** min(p, 900))) * 2 ** max(p - 900, 0) for p in powers
        ]
        x = np.array([float(n * mpmath.pi / 2) for n in multiples]).astype(dtype)
        x = np.concatenate([x, np.nextafter(x, np.inf), np.nextafter(x, 0)]).astype(dtype)
        x = x[np.isfinite(x)]
        got = loop(name, dtype)(x)
        for given, value in zip(x, got, strict=True):
            exact = getattr(mpmath, name)(mpmath.mpf(float(given)))
            unit = mpmath.ldexp(1, mpmath.frexp(exact)[1] - 1 - info.nmant)
            error = float(abs(mpmath.mpf(float(value)) - exact) / unit)
            assert error <= (1 if dtype == "float32" else 2), (given, value)


@pytest.mark.parametrize("dtype", BOTH)
def test_the_worst_known_angle_of_float64(dtype: str) -> None:
    """6381956970095103 * 2**797 is 4.7e-19 away from a multiple of pi/2."""
    x = np.array([6381956970095103.0 * 2.0**797 if dtype == "float64" else 16367173.0 * 2.0**72])
    got = float(loop("cos", dtype)(x)[0])
    with mp.workprec(1300):
        exact = float(mpmath.cos(mpmath.mpf(float(x[0]))))
    assert abs(exact) < 1e-8
    assert abs(got - exact) <= np.spacing(np.dtype(dtype).type(abs(exact)))


# ---------------------------------------------------------------- edges

INF, NAN = float("inf"), float("nan")
EDGES: dict[str, list[tuple[float, float]]] = {
    "exp": [(INF, INF), (-INF, 0.0), (0.0, 1.0), (-0.0, 1.0), (-1e30, 0.0), (1e30, INF)],
    "exp2": [(INF, INF), (-INF, 0.0), (0.0, 1.0), (10.0, 1024.0), (-3.0, 0.125), (-1e30, 0.0)],
    "expm1": [(INF, INF), (-INF, -1.0), (0.0, 0.0), (-0.0, -0.0), (-100.0, -1.0)],
    "log": [(INF, INF), (0.0, -INF), (-0.0, -INF), (1.0, 0.0), (-1.0, NAN), (-INF, NAN)],
    "log2": [(INF, INF), (0.0, -INF), (1.0, 0.0), (0.125, -3.0), (2.0**100, 100.0), (-1.0, NAN)],
    "log10": [(INF, INF), (0.0, -INF), (1.0, 0.0), (1000.0, 3.0), (-1.0, NAN)],
    "log1p": [(INF, INF), (-1.0, -INF), (0.0, 0.0), (-0.0, -0.0), (-2.0, NAN), (-INF, NAN)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "asin": [(0.0, 0.0), (-0.0, -0.0), (1.5, NAN), (-INF, NAN)],
    "acos": [(1.0, 0.0), (1.5, NAN), (-INF, NAN)],
    "atan": [(0.0, 0.0), (-0.0, -0.0)],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (1e30, INF)],
    "cosh": [(0.0, 1.0), (INF, INF), (-INF, INF), (-1e30, INF)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (1e30, 1.0)],
    "asinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
    "acosh": [(1.0, 0.0), (INF, INF), (0.5, NAN), (-INF, NAN)],
    "atanh": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0)],
    "erfc": [(0.0, 1.0), (INF, 0.0), (-INF, 2.0), (40.0, 0.0)],
    "erfinv": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (INF, NAN)],
    "sqrt": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-1.0, NAN)],
    "rsqrt": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN)],
    "cbrt": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (-27.0, -3.0)],
    "sigmoid": [(0.0, 0.5), (INF, 1.0), (-INF, 0.0), (200.0, 1.0), (-1e30, 0.0)],
    "lgamma": [(1.0, 0.0), (2.0, 0.0), (0.0, INF), (-3.0, INF), (INF, INF), (-INF, INF)],
    "digamma": [(0.0, -INF), (-0.0, INF), (-3.0, NAN), (INF, INF), (-INF, NAN)],
    "floor": [(-0.5, -1.0), (-0.0, -0.0), (INF, INF), (2.5, 2.0)],
    "ceil": [(-0.5, -0.0), (2.5, 3.0), (-INF, -INF)],
    "trunc": [(-2.5, -2.0), (2.5, 2.0), (-0.5, -0.0)],
    "round": [(0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-0.5, -0.0), (-1.5, -2.0)],
    "fabs": [(-0.0, 0.0), (-INF, INF), (-2.5, 2.5)],
}


def same(got: Array, expected: Array) -> None:
    """Equal, with the signs of zeros."""
    np.testing.assert_array_equal(got, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(expected[numbers]))


def test_every_one_argument_function_has_edges() -> None:
    assert set(EDGES) == set(ONE_ARGUMENT)


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("name", ONE_ARGUMENT)
def test_edges(name: str, dtype: str) -> None:
    x, expected = np.array([*EDGES[name], (NAN, NAN)], dtype).T
    same(loop(name, dtype)(x), expected)


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("name", ["pow", "atan2", "fmod", "copysign"])
def test_edges_of_two_arguments(name: str, dtype: str) -> None:
    """C's rules, which NumPy follows."""
    values = [0.0, 0.5, 1.0, 2.0, 3.0, 4.5, 1e30, INF, 1e-30]
    values = np.array([*values, *(-v for v in values), NAN], dtype)
    x, y = (grid.ravel() for grid in np.meshgrid(values, values))
    numpy_name = {"pow": "power", "atan2": "arctan2"}.get(name, name)
    with np.errstate(all="ignore"):
        exact = getattr(np, numpy_name)(x.astype(np.float64), y.astype(np.float64)).astype(dtype)
    got = loop(name, dtype)(x, y)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
    settled = np.isin(exact, [0.0, 1.0, -1.0, INF, -INF])
    same(got[settled], exact[settled])
    np.testing.assert_allclose(got, exact, rtol=3 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", BOTH)
def test_fmod_is_exact_and_remainder_takes_the_sign_of_the_divisor(dtype: str) -> None:
    x, y = arguments("fmod", dtype, 20_000)
    x, y = x[np.isfinite(x) & np.isfinite(y)], y[np.isfinite(x) & np.isfinite(y)]
    rest = loop("fmod", dtype)(x, y)
    same(rest, np.fmod(x, y))
    floored = loop("remainder", dtype)(x, y)
    with np.errstate(over="ignore"):
        expected = np.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)
    same(floored, expected)


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("name", ["exp", "sigmoid", "log", "tanh", "erf", "sqrt", "cbrt", "asinh"])
def test_subnormal_numbers_count(name: str, dtype: str) -> None:
    info = np.finfo(dtype)
    smallest = float(info.smallest_subnormal)
    x = np.array([1, 2, 3, 1000, 2**20], dtype) * smallest
    if name in ("exp", "sigmoid"):
        x = np.array([-1, -2, -4, -8, -12], dtype) + np.log(info.tiny)
    got = loop(name, dtype)(x)
    with mp.workprec(200):
        exact = [float(TO_MPMATH[name](mpmath.mpf(float(v)))) for v in x]
    assert (got != 0).all()
    np.testing.assert_allclose(got, exact, rtol=2.0 * info.eps, atol=smallest)


# ---------------------------------------------------------------- laws


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("name", sorted(ODD))
def test_odd_functions_are_odd_to_the_bit(name: str, dtype: str) -> None:
    (x,) = arguments(name, dtype, 2_000)
    same(loop(name, dtype)(-x), -loop(name, dtype)(x))


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("name", ["cos", "cosh", "fabs"])
def test_even_functions_are_even_to_the_bit(name: str, dtype: str) -> None:
    (x,) = arguments(name, dtype, 2_000)
    same(loop(name, dtype)(-x), loop(name, dtype)(x))


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("name", sorted({name for name, _ in vector_math.TABLE} - {"fma"}))
def test_the_place_in_the_array_does_not_matter(name: str, dtype: str) -> None:
    """Body and tail of the loop, and every lane, give the same bits."""
    args = [a[:150] for a in arguments(name, dtype, 50)]
    whole = loop(name, dtype)(*args)
    alone = np.concatenate([loop(name, dtype)(*(a[i : i + 1] for a in args)) for i in range(150)])
    np.testing.assert_array_equal(whole.view(BITS[dtype]), alone.view(BITS[dtype]))


@settings(max_examples=30, deadline=None)
@given(data=st.data(), name=st.sampled_from(["exp", "tanh", "sin", "log1p", "erfc", "sigmoid"]))
def test_monotone_within_an_ulp(data: st.DataObject, name: str) -> None:
    bounds = {"sin": (-1.5, 1.5), "log1p": (-0.96875, 1e6)}.get(name, (-20.0, 20.0))
    elements = st.floats(*bounds, width=32)
    x = np.sort(data.draw(hnp.arrays(np.float32, st.integers(2, 40), elements=elements)))
    y = loop(name, "float32")(x)
    falling = -y if name == "erfc" else y
    assert (np.diff(falling) >= -np.spacing(np.abs(y[1:]))).all()


# ---------------------------------------------------------------- code


@pytest.mark.skipif(not X86, reason="reads x86 assembly")
@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("name", sorted({name for name, _ in vector_math.TABLE}))
def test_the_loop_is_vector_code_without_calls(name: str, dtype: str) -> None:
    compiled = loop(name, dtype)
    assert re.search(r"%[yz]mm\d", compiled.assembly)
    declared = set(re.findall(r"^declare .*@\"?([\w.]+)", compiled.ir, re.MULTILINE))
    assert {d for d in declared if not d.startswith("llvm.")} <= CALLS.get(name, set())
    own = {"numba", "NRT", "Py"}
    assert not any(symbol in d for d in declared for symbol in own)


def innermost_loops(assembly: str) -> list[str]:
    """The code from each label to the jump back to it that has no other such label in between."""
    lines = re.sub(r"(?ms)^\w+_slow:.*?^\.Lfunc_end", "", assembly).splitlines()
    begun: dict[str, int] = {}
    found = []
    for at_, line in enumerate(lines):
        if label := re.match(r"(\.\w+):", line):
            begun[label[1]] = at_
        elif (jump := re.match(r"\s+j(?!mp)\w+\s+(\.\w+)", line)) and jump[1] in begun:
            found.append((begun[jump[1]], at_))
    return [
        "\n".join(lines[first:last])
        for first, last in found
        if not any(first < other < last for other, _ in found)
    ]


@pytest.mark.skipif(not X86, reason="reads x86 assembly")
@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("name", sorted({name for name, _ in vector_math.TABLE}))
def test_rare_arguments_are_left_by_a_jump(name: str, dtype: str) -> None:
    """A call for each vector would keep every constant in memory."""
    vectorised = [
        code for code in innermost_loops(loop(name, dtype).assembly) if re.search(r"%[yz]mm", code)
    ]
    assert vectorised
    assert not any("call" in code for code in vectorised)


@pytest.mark.skipif(not X86, reason="reads x86 assembly")
@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("name", ["log", "log2", "log10"])
def test_rare_arguments_are_computed_by_vectors(name: str, dtype: str) -> None:
    """Zeros and negative numbers may be all that a tensor has."""
    assembly = loop(name, dtype).assembly
    found = re.findall(rf"(?ms)^unusual_{name}_f\d+_\d+_slow:.*?^\.Lfunc_end", assembly)
    assert found
    assert not any(re.search(r"\tcall|\tj", code) for code in found)


def test_those_that_ask_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, rarely = set(), vector_math.rarely

    def asking(*args: Any) -> Any:
        asked.add(full)
        return rarely(*args)

    monkeypatch.setattr(vector_math, "rarely", asking)
    for (name, dtype), full in vector_math.TABLE.items():
        arity = 3 if name == "fma" else 2 if name in BINARY else 1
        getattr(vector_math, full)(*[np.ones(1, dtype)] * arity)
    assert asked == vector_math.ASKING


@pytest.mark.parametrize("name", sorted({name for name, _ in vector_math.TABLE}))
def test_float32_code_has_no_float64(name: str) -> None:
    unoptimised = loop(name, "float32").ir
    assert ("double" in unoptimised) == (name in vector_math.FLOAT64_INSIDE)


def test_table_names_what_it_says() -> None:
    for (name, dtype), exported in vector_math.TABLE.items():
        assert exported == f"{name}_{SUFFIX[dtype]}"
        assert callable(getattr(vector_math, exported))
    assert {n for n, d in vector_math.TABLE if d == "float32"} == {
        n for n, d in vector_math.TABLE if d == "float64"
    }


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("name", sorted({name for name, _ in vector_math.TABLE} - {"fma"}))
def test_bodies_run_as_plain_python(name: str, dtype: str) -> None:
    """The same bits without a compiler."""
    args = tuple(a[50:66] for a in arguments(name, dtype, 50))
    function = getattr(vector_math, vector_math.TABLE[name, dtype])
    plain = function(*args)
    assert plain.dtype == dtype
    np.testing.assert_array_equal(plain, loop(name, dtype)(*args))
    assert function(*(float(a[0]) for a in args)) == plain[0] or np.isnan(plain[0])


OWN = {name for name, _ in vector_math.TABLE}


def test_what_kernels_call_is_given_its_functions():
    """In a kernel `math.f` is the library's own function; in what kernels call, it is the system's, whose bits
    are others on other machines and on GPUs."""
    found = set()
    for path in Path(vector_math.__file__).parent.parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef):
                continue
            is_helper = any(ast.unparse(d).startswith("helper") for d in node.decorator_list)
            names = {
                part.attr
                for part in ast.walk(node)
                if isinstance(part, ast.Attribute) and ast.unparse(part.value) == "math"
            }
            if is_helper and names & OWN - {"sqrt", "floor", "ceil", "fabs"}:
                found.add(node.name)
    assert not found
