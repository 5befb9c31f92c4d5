"""Gradients of users' own functions: every statement, refusals, published kernels, random programs."""

import ast
import importlib.util
import itertools
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import fuzz_kernels
import numba
import numpy as np
import pytest
from adjit.kernels.math import vector
from numba import njit, prange
from numba.core import event

import adjit
from adjit import config
from adjit.user_kernels import NotDifferentiable, ahead, dispatch, generated, parallel
from adjit.user_kernels.structure import Make, Repeat
from adjit.user_kernels.written_first import written_first

pytestmark = pytest.mark.in_turn(2)  # most of them compile a kernel


def copies(args):
    return [a.copy() if isinstance(a, np.ndarray) else a for a in args]


def differences(f, args, step=1e-6):
    found = []
    for k, a in enumerate(args):
        if isinstance(a, (int, np.integer)) or (isinstance(a, np.ndarray) and a.dtype.kind != "f"):
            continue
        g = np.zeros(np.shape(a))
        for i in np.ndindex(np.shape(a)):
            values = []
            for sign in (1, -1):
                moved = copies(args)
                if np.ndim(a):
                    moved[k][i] += sign * step
                else:
                    moved[k] += sign * step
                values.append(f(*moved))
            g[i] = (values[0] - values[1]) / (2 * step)
        found.append(g)
    return found


def assert_gradients(f, *args, tolerance=1e-6, forward=True):
    """Value, reverse and forward mode beside the function as plain Python and its differences."""
    python = getattr(f, "py_func", f)
    before = copies(args)
    value, grads = adjit.value_and_grad(f)(*args)
    for a, b in zip(before, args, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(value, python(*copies(args)), rtol=1e-12)
    expected = differences(python, args)
    scale = 1 + max(np.abs(g).max() for g in expected)
    for g, e in zip(grads, expected, strict=True):
        np.testing.assert_allclose(g, e, atol=tolerance * scale, rtol=0)
    if not forward:
        return
    rng = np.random.default_rng(0)
    along = [
        rng.standard_normal(np.shape(g)) if np.ndim(g) else float(rng.standard_normal())
        for g in grads
    ]
    tangent = adjit.user_kernels.jvp(f)(*args, *along)[1]
    dot = sum(float(np.sum(g * d)) for g, d in zip(grads, along, strict=True))
    assert tangent == pytest.approx(dot, rel=1e-10, abs=1e-10)


X = np.random.default_rng(7).standard_normal(6) * 0.7
Y = np.random.default_rng(8).random(6) + 0.3
A = np.random.default_rng(9).standard_normal((3, 4))


# ----- statements -----


def nested_return(x, limit):
    s = 0.0
    for i in range(len(x)):
        for j in range(i):
            s += x[i] * x[j] * s + x[j]
            if s > limit:
                return s * x[0]
        if x[i] < -2.0:
            return -s
    return s + 1.0


def breaks(x):
    s = 1.0
    k = 0
    while True:
        if k >= len(x):
            break
        if x[k] < 0:
            k += 1
            continue
        j = 0
        while j < 5:
            s = s * math.cos(x[k] + j)
            if abs(s) < 0.1:
                s += 1.0
                break
            j += 2
        k += 1
    return s


def zero_trips(x, n):
    a = x[0]
    for _ in range(n):
        a = a * x[1]
    for _ in range(5, 5):
        a = a * 3
    for i in range(3, -1, -1):
        a = a + x[i] * a
    for i in range(0, 4, 2):
        a *= x[i]
    return a


def overwrite(x):
    for _ in range(3):
        for i in range(len(x)):
            x[i] = x[i] * x[(i + 1) % len(x)] + math.sin(x[i])
            x[i] /= 1.5
    return x.sum()


def short_circuit(x):
    i = 0
    s = 0.0
    while i < len(x) and x[i] > -1.0:
        s += x[i] ** 3
        i += 1
    return s * i


def gather(x, index):
    s = 0.0
    for k in range(len(index)):
        j = index[k]
        if j >= 0:
            s += x[j] * x[j]
            x[j] = s * 0.5
    return s


def wraps(x, y):
    for i in range(len(x)):
        x[i] = x[i - 1] * x[i - 1] * 0.5 + x[i]
    for i in range(len(y)):
        y[i] = math.sin(y[i - 2] * y[i - 1]) + y[i]
    return np.dot(x, y)


def views(a, x):
    s = 0.0
    row = a[0]
    for i in range(a.shape[0]):
        s += row[1] * x[i]
        row = a[i]
        acc = 0.0
        for j in range(len(row)):
            acc += row[j] * x[j]
        s += math.tanh(acc)
    return s


def slices(x, y):
    n = len(x)
    x[1:] = x[:-1] * 2.0 + y[1:]
    x[::2] *= y[: n // 2]
    x[-2:] -= 0.5
    y[:] = y[::-1] * x
    y += x
    return np.sum(np.where(x > y, x * y, np.exp(-y))) + y[2:-1].sum() * np.max(x)


def matrices(a, x):
    b = a.T
    c = b @ a
    v = a @ x[:4]
    c[1] = c[0] * 2.0
    c[:, 2] += x[0]
    d = c + x[1] * c - x[:4]
    return np.mean(d * d) + np.dot(v, v) + d[:, None, 1].sum()


def step(y, rate):
    out = np.empty_like(y)
    for i in range(len(y)):
        out[i] = y[i] + 0.1 * rate * y[i - 1]
    return out


def stepping(y, rate):
    before = y
    for _ in range(4):
        before = y
        y = step(y, rate)
    return y[0] * y[2] + before[1]


def swaps(u, v):
    for _ in range(3):
        for i in range(1, len(u) - 1):
            v[i] = u[i] + 0.3 * (u[i - 1] - 2.0 * u[i] + u[i + 1]) * u[i]
        u, v = v, u
    return np.sum(u * u) + v[1]


SCALE = 1.5


def functions(x, y):
    s = (
        np.arctan2(x[0], y[0])
        + math.hypot(x[1], y[1])
        + math.lgamma(y[2])
        + math.erf(x[2])
        + math.erfc(x[3])
    )
    s += (
        abs(x[4])
        + min(x[0], x[1], x[2]) * max(y[0], y[1])
        + np.sqrt(y[3]) * math.log1p(y[4])
        + y[5] ** x[5]
    )
    s += (
        math.pow(y[0], 3)
        + 2.0 ** x[1]
        + x[0] % 0.7
        + np.sinh(x[1])
        - math.atan(x[2]) * math.cosh(x[3])
    )
    s += (
        np.clip(x[4], -0.2, 0.2)
        + float(int(x[0] * 10))
        + round(x[1])
        + np.floor(x[2])
        + math.floor(x[3])
    )
    t = math.expm1(x[0]) if x[0] > x[1] else np.log2(y[0]) + np.log10(y[1]) - math.tan(x[2])
    return s * SCALE + t + math.asin(x[3] * 0.1) * math.acos(x[4] * 0.1) + np.copysign(y[0], x[0])


def tuples(x):
    pair = (x[0], x[1] * 2.0)
    a, b = pair
    for i in range(2, len(x)):
        a, b = b, a * x[i] + b
        if a > 3.0:
            a = a / 2
    return a * pair[1] + b


def late_variable(x):
    for i in range(len(x)):
        if i == 0:  # noqa: SIM108
            previous = x[0]
        else:
            previous = previous * 0.5 + x[i] * previous
    return previous


def checked(x):
    assert len(x) > 2, "too short"
    if x[0] > 1e9:
        raise ValueError("too large")
    full = np.full((2, 3), x[1])
    full[0, 1:] = np.linspace(x[0], 2.0, 2)
    return np.sum(np.outer(full[0], full[1]))


def insertion(x):
    for i in range(1, len(x)):
        key = x[i]
        j = i - 1
        while j >= 0 and x[j] > key:
            x[j + 1] = x[j]
            j -= 1
        x[j + 1] = key
    s = 0.0
    for i in range(len(x)):
        s += x[i] * (i + 1)
    return s * s


def short_names(x):
    """Names that are endings of those of the way back."""
    s = 0.0
    for i in range(len(x)):
        k = math.exp(x[i])
        p = math.sin(k) * s
        e = math.cos(p)
        c = math.tanh(e * k)
        s += k * p * c + e
    return s


def swaps_in_loops(u, v, w):
    for k in range(3):
        for j in range(k + 1):
            for i in range(1, len(u)):
                v[i] = u[i] + 0.3 * u[i - 1] * u[i] + 0.1 * j
            u, v = v, u
        w[k] += u[k] * v[k + 1]
        while v[0] > 0.3 * k:
            v[0] *= 0.5
            v, w = w, v
        u[0] *= 0.9
    return np.sum(u * u) + v[1] * v[2] + w[0] * w[3]


def steps_of_swapped(u, v, rate):
    for _ in range(2):
        for _ in range(3):
            v[:] = step(u, rate) * u[0]
            u, v = v, u
        u[1] += np.sum(step(u, rate))
    return u[0] * v[2] + u[1]


def halvings(x, limit):
    n = 0
    while True:
        x = 0.5 * x + 0.1 * math.sin(x)
        n += 1
        if abs(x) < limit:
            return x, n


def pair_from_a_loop(x):
    s = 0.0
    for i in range(len(x)):
        small, rounds = halvings(x[i], 0.2)
        s += small * rounds
    return s


def index_that_a_store_changes(x, p):
    s = 0.0
    for k in range(3):
        p[p[k]] = (p[k] * 2 + 1) % 5
        s += x[p[k]] * x[p[k]] * x[k]
    return s


def sums_beside_stores(a):
    """Adjoints of elements that stay the same in a loop which writes their array: elsewhere, or there."""
    n = len(a)
    for j in range(n):
        for k in range(j):
            for i in range(j, n):
                a[i, j] -= 0.1 * a[i, k] * a[j, k]
        for i in range(j + 1, n):
            a[i, j] /= 2.0 + a[j, j] * a[j, j]
    for j in range(3):
        m = j - 1
        for i in range(n):
            a[i, 3] += a[1, m] * a[i, 0]
    for i in range(n):
        a[i, 1] += a[1, 1] * a[i, 0]
    for j in range(1, n):
        for i in range(j + 1):
            a[i, 2] *= 0.5 + a[j, 2] * a[i, 0]
    s = 0.0
    for i in range(n):
        s += a[i, 1] * a[i, 3] * (i + 1) + a[i, 2] * a[0, i]
    return s


def sides_run_again(x, y):
    """Branches whose results the way back needs: what they read is still there, or was written meanwhile."""
    s = 0.0
    for i in range(len(x)):
        left = x[i] - x[i - 1] if i > 0 else x[i]
        right = y[i] * x[i] if x[i] > 0.1 else 0.5 * y[i]
        y[i] = left * right
        s += math.sin(left) * right + y[i] * left
        later = y[i] * y[i] if s > 0.3 else y[i - 1]
        s += later * later * left
    return s


def found_where_stored(x, y):
    """Results that a store has, and that later stores overwrite: some of those have to be put back."""
    total = 1.5
    for _ in range(3):
        for i in range(len(x)):
            y[i] = x[i] / total
            x[i] = math.exp(-y[i]) * y[i]
        for i in range(1, len(x)):
            z = math.tanh(x[i - 1])
            x[i] = z
            y[0] += z * z * x[i]
            x[i - 1] = y[i] * x[i]
            total += z / (2.0 + x[i])
    return np.sum(x * y) + total


def lost_where_stored(x):
    w = np.zeros(len(x))
    total = 1.0
    for _ in range(2):
        for i in range(1, len(x)):
            z = math.tanh(x[i] * total)
            w[i] = z
            w[i - 1] = z * x[i]
            total += z * 0.1
    return total


def beside(x, y):
    """Neighbours of what no round writes, and neighbours that are read before rounds write them."""
    z = np.zeros(len(x))
    for i in range(1, len(x) - 1):
        both = x[i - 1] + x[i + 1]
        z[i] = both * y[i] + both + x[i] * y[i - 1]
    for i in range(len(y) - 1):
        y[i] = y[i] * y[i + 1] + z[i]
    for i in range(len(x) - 1, 1, -1):
        x[i] = x[i - 2] * x[i] + y[i] * x[i - 1]
    for i in range(len(x)):
        z[i] += x[i - 1] * x[i]
    for i in range(len(x)):
        x[i - 2] = x[i] * y[i] + x[i - 1]
    for i in range(len(x) - 1):
        x[i] = y[i] * 2.0
        z[i] += x[i + 1] * x[i]
    return np.dot(x, y) + np.dot(z, z)


def behind(x, y, first):
    """Neighbours that rounds before have written, by each thing that says how."""
    for i in range(2, len(x)):
        x[i] = x[i - 2] * x[i] + y[i] * x[i - 1]
    for i in range(len(x) - 3, -1, -1):
        x[i] = math.sin(x[i + 1]) * x[i] + x[i + 2] * 0.5
    for i in range(3, len(x), 2):
        x[i] = x[i - 2] * x[i] + x[i - 1]
    for i in range(1, len(x)):
        x[i] = x[i] * y[i]
        y[i] = x[i - 1] * x[i] + y[i - 1]
    for i in range(first, len(y)):
        y[i] = y[i - 1] * y[i - 1] + x[i]
    for i in range(1, len(x)):
        x[i] += x[i - 1] * y[i]
    for i in range(1, len(y)):
        if x[i] > 0.2:
            y[i] = y[i - 1] * x[i]
    for i in range(1, len(x)):
        x[i] = x[i - 1] * x[i]
        x[i - 1] = x[i] * y[i] * 0.7
    for i in range(1, len(y)):
        y[i] = 0.5
        x[i] = y[i - 1] * x[i]
    for i in range(1, len(x)):
        x[i] = x[i - 1] * y[i] + x[i]
        x[i] = x[i] * y[i]
    for i in range(1, len(y)):
        before = y[i - 1]
        if x[i] < 0.2:
            y[i] = before + x[i]
    return np.dot(x, y)


def across(a):
    for i in range(1, a.shape[0]):
        for j in range(1, a.shape[1]):
            a[i, j] = a[i, j - 1] * a[i - 1, j] + a[i, j] - a[i - 1, j - 1]
    for j in range(1, a.shape[1]):
        for i in range(a.shape[0]):
            a[i, j] = a[i, j - 1] * a[i, j] + a[i - 1, j]
    return np.sum(a * a)


def beside_in_turns(x, y):
    u, v = x.copy(), y.copy()
    for _ in range(3):
        for i in range(1, len(u) - 1):
            v[i] = u[i - 1] * u[i + 1] * 0.5 + v[i] * u[i]
        v[0] = u[1]
        u, v = v, u
    s = 0.0
    for i in range(1, len(u) - 1):
        s += u[i - 1] * u[i + 1]
        u, v = v, u
    return np.dot(u, u) + np.dot(v, y) + s


def ahead_of_sums(x, y):
    top, total, low = x[0], 0.0, 0.0
    for j in range(1, len(x)):
        top = max(top, x[j])
    for j in range(len(x)):
        total += math.exp(x[j] - top) * math.sin(y[j])
        low = 0.5 * low + math.log(math.cosh(x[j])) - math.tanh(low)
    for j in range(2, len(x)):
        y[j] = math.exp(x[j]) + y[j - 2] * math.cos(y[j - 1])
    return math.log(2 + total) + low


def functions_of_swapped(x, y):
    u, v, s = x.copy(), y.copy(), 0.0
    for i in range(len(u)):
        s += math.exp(u[i]) * (i + 1)
        u, v = v, u
    return s


def names_like_those_of_jumps(x):
    leave__1, leave__2, left__3, result__, done__ = 2.0, 0.5, 1.5, 3.0, 0.25
    for i in range(len(x)):
        for k in range(2):
            if k > 0:
                break
            leave__1 += x[i] * leave__2
        if x[i] > 3.0:
            return leave__1
        if x[i] > 0.2:
            if x[i] > 0.3:
                continue
            left__3 *= 2.0
        done__ += x[i] * left__3
    return leave__1 * result__ + done__


def rows_in_turns(m, x, bias):
    y, z = np.empty(len(m)), np.zeros(len(m) + 1)
    for r in range(len(m)):
        low, total = bias[r], 1.0
        for q in range(len(x)):
            low += m[r, q] * x[q]
        for q in range(1, len(x)):
            total = total * 0.5 + m[r, q] * m[r, q - 1] - low
        y[r] = low * total
        z[r + 1] += low
    return y.sum() + np.dot(z, z)


MANY = np.random.default_rng(11).random((11, 3)) - 0.5
WIDE = np.random.default_rng(5).random((2, 53)) - 0.5
STATEMENTS = [
    (nested_return, (Y, 2.0)), (nested_return, (Y, 1e9)), (breaks, (X,)), (zero_trips, (X, 0)),
    (zero_trips, (X, 3)), (overwrite, (Y,)), (short_circuit, (X - 0.7,)),
    (gather, (Y, np.array([1, 1, -1, 3, 1, 0]))), (wraps, (X, Y)), (views, (A, X)), (slices, (X, Y)),
    (matrices, (A, X)), (stepping, (X, 0.7)), (swaps, (X, Y)), (functions, (X, Y)), (tuples, (X,)),
    (late_variable, (X,)), (short_names, (X,)), (checked, (X,)), (insertion, (X,)), (pair_from_a_loop, (X,)),
    (sums_beside_stores, (A.copy(),)), (sides_run_again, (X, Y)), (found_where_stored, (X, Y)),
    (lost_where_stored, (X,)), (index_that_a_store_changes, (X, np.arange(5))),
    (swaps_in_loops, (X, Y, X[::-1] * Y)), (steps_of_swapped, (X, Y, 0.7)),
    (beside, (X, Y)), (beside, tuple(WIDE)), (behind, (X, Y, 3)), (behind, (X, Y, 9)), (across, (A,)),
    (beside_in_turns, tuple(WIDE)),
    (names_like_those_of_jumps, (X,)), (functions_of_swapped, (X, Y)),
    (ahead_of_sums, (np.linspace(-1.5, 1.0, 70), np.linspace(0.3, 1.0, 70))),
    *[(rows_in_turns, (MANY[:n], X[:3], MANY[:n, 0].copy())) for n in (1, 4, 11)],
]  # fmt: skip


# Compiled ones take seconds each: those whose machine code could differ from the same code as plain Python.
COMPILED = (
    wraps, slices, functions, swaps, pair_from_a_loop, beside, beside_in_turns, rows_in_turns,
    ahead_of_sums,
)  # fmt: skip


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    ("f", "args"),
    [s for s in STATEMENTS if s[0] in COMPILED],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_compiled_statements(f, args):
    assert_gradients(f, *copies(args), forward=f is functions)


def check_in_python():
    """All statements and published kernels, forward and back: in a process without Numba's compiler."""
    for f, args in [*STATEMENTS, *PUBLISHED]:
        print(f.__name__, flush=True)
        assert_gradients(f, *copies(args), tolerance=1e-5)


def test_statements_and_published_kernels_as_plain_python():
    done = subprocess.run(
        [sys.executable, "-c", "import test_user_kernels as t; t.check_in_python()"],
        capture_output=True, text=True, cwd=Path(__file__).parent,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == [f.__name__ for f, _ in [*STATEMENTS, *PUBLISHED]]


def products(m, x, y, first):
    for r in range(first, len(m)):
        low = high = 0.0
        for q in range(len(x)):
            low += m[r, q] * x[q]
        for q in range(len(x)):
            high = max(high, m[r, q] - low)
        y[r] = low + 1e-3 * high


def test_rounds_in_turns_give_the_bits_of_one_after_the_other():
    one_after_the_other, kernel = numba.njit(products), adjit.kernel(products)
    for count, first in itertools.product([0, 1, 3, 4, 7, 8, 13], [0, 2]):
        m = np.random.default_rng(count).standard_normal((count, 37)) * 10.0 ** np.arange(37)
        x, expected = m.sum(0) + 1, np.full(count, 7.0)
        found = adjit.tensor(expected)
        one_after_the_other(m, x, expected, first)
        kernel(m, x, found, first)
        np.testing.assert_array_equal(found.numpy(), expected)
    assert "y[r_3q] = t_6_3q" in kernel.source(m, x, found, first)


def test_rounds_take_no_turns_on_arrays_that_share_memory():
    expected, found = np.random.default_rng(4).standard_normal((2, 8, 8))
    found[:] = expected
    numba.njit(products)(expected, expected[2], expected[5], 0)
    adjit.kernel(products)(found, found[2], found[5], 0)
    np.testing.assert_array_equal(found, expected)


def sums_of_rows_above(m, y):
    for r in range(len(m)):
        total = 0.0
        for q in range(len(y)):
            total += m[r, q] * y[q]
        y[r] = total


def sums_of_shorter_rows(m, y):
    for r in range(len(m)):
        total = 0.0
        for q in range(r):
            total += m[r, q]
        y[r] = total


def sums_that_go_on(m, y):
    total = 0.0
    for r in range(len(m)):
        for q in range(len(m)):
            total += m[r, q]
        y[r] = total


def sums_stored_twice(m, y):
    for r in range(len(m) - 1):
        total = 0.0
        for q in range(len(m)):
            total += m[r, q]
        y[r] = total
        y[r + 1] = 2 * total


def sums_until(m, y):
    for r in range(len(m)):
        total = 0.0
        for q in range(len(m)):
            total += m[r, q]
            if total > 1:
                break
        y[r] = total


@pytest.mark.parametrize(
    "f", [sums_of_rows_above, sums_of_shorter_rows, sums_that_go_on, sums_stored_twice, sums_until]
)
def test_rounds_that_wait_for_each_other_take_no_turns(f):
    m, y = np.random.default_rng(3).random((6, 6)), np.ones(6)
    expected, found = y.copy(), adjit.ones(6, dtype=adjit.float64)
    numba.njit(f)(m, expected)
    kernel = adjit.kernel(f)
    kernel(m, found)
    np.testing.assert_array_equal(found.numpy(), expected)
    assert "_1q" not in kernel.source(m, found)


def all_ahead(x, large, y):
    for j in range(len(x)):
        a, b = x[j], large[j]
        y[0, j], y[1, j], y[2, j], y[3, j] = np.exp(a), np.expm1(a), np.log(a), np.log1p(a)
        y[4, j], y[5, j], y[6, j], y[7, j] = np.log2(a), np.log10(a), np.sin(a), np.cos(a)
        y[8, j], y[9, j], y[10, j], y[11, j] = np.tan(a), np.sinh(a), np.cosh(a), np.tanh(a)
        y[12, j], y[13, j], y[14, j] = np.arcsin(a), np.arccos(a), np.arctan(a)
        y[15, j], y[16, j], y[17, j] = np.arcsinh(a), np.arccosh(b), np.arctanh(a)
        y[18, j], y[19, j] = math.erf(a), math.erfc(a)


@pytest.mark.parametrize(("dtype", "bits"), [(np.float64, 64), (np.float32, 32)])
def test_functions_are_computed_ahead_by_those_of_the_library(dtype, bits):
    """What one gives depends on no other round. Their accuracy is seen in test_vector_math.py."""
    x = np.random.default_rng(0).uniform(0.01, 0.99, 200).astype(dtype)
    large, kernel = 1 / x, adjit.kernel(all_ahead)
    for count in (0, 1, 7, 64, 65, 200):
        y = np.full((20, 200), 7, dtype)
        kernel(x[:count], large[:count], y)
        for row, name in zip(y, ahead.FUNCTIONS.values(), strict=True):
            given = large if name == "acosh" else x
            expected = getattr(vector, f"{name}_f{bits}")(given[:count])
            np.testing.assert_array_equal(row[:count], expected, err_msg=name)
        assert (y[:, count:] == 7).all()
    called = re.findall(rf"(\w+)_f{bits}\(", kernel.source(x, large, y))
    assert {*called} >= {*ahead.FUNCTIONS.values()}


def in_one_after_the_other(x):
    for j in range(1, len(x)):
        x[j] = math.exp(-x[j - 1]) + x[j]


def where_the_round_before_has_stored(x, y):
    for j in range(2, len(y)):
        y[j] = math.sin(x[j]) * x[j]


def where_this_round_has_stored(x, y):
    for j in range(2, len(y)):
        y[j] = 0.5 * y[j] + 1
        y[j - 1] += math.sin(x[j])


@pytest.mark.parametrize("shift", [-2, -1, 0, 1, 5])
def test_what_is_read_after_a_store_is_not_computed_ahead(shift):
    """The caller's arrays may be the same memory, as in an njit function."""
    for f in (
        in_one_after_the_other,
        where_the_round_before_has_stored,
        where_this_round_has_stored,
    ):
        expected, found = np.random.default_rng(2).random((2, 210))
        found[:] = expected
        for memory, call in ((expected, f), (found, adjit.kernel(f))):
            views = memory[5:205], memory[5 + shift : 205 + shift]
            call(*views[: f.__code__.co_argcount])
        np.testing.assert_allclose(found, expected, rtol=1e-13)
    assert "_f64(" not in adjit.kernel(in_one_after_the_other).source(found)


def test_values_are_the_same_bits_with_gradients_and_without():
    x, y = np.random.default_rng(3).standard_normal((2, 150))
    alone = adjit.kernel(ahead_of_sums)(x, y.copy())
    assert adjit.value_and_grad(ahead_of_sums)(x, y)[0] == alone
    assert adjit.value_and_grad(ahead_of_sums, checkpoint=True)(x, y)[0] == alone
    np.testing.assert_allclose(alone, ahead_of_sums(x, y.copy()), rtol=1e-13)


@pytest.fixture
def empty_cache(monkeypatch, tmp_path):
    """Code that Numba loads from its cache cannot be looked at."""
    monkeypatch.setattr(generated.disk, "folder", lambda: tmp_path)


def test_sums_of_functions_are_vector_code(empty_cache):
    def total(x):
        s = 0.0
        for j in range(len(x)):
            s += math.exp(-x[j])
        return s

    file = generated.generated(total, (numba.float64[::1],), None, "reverse")
    assert file.module.primal(np.ones(9)) == pytest.approx(9 * math.exp(-1))
    (code,) = file.module.primal.inspect_asm().values()
    assert re.search(r"vfmadd\w+pd|fmla", code)


def test_neighbours_of_more_rounds_than_one_block_has():
    def chain(x, y):
        s = 0.0
        for i in range(1, len(x) - 1):
            s += x[i - 1] * y[i] * x[i + 1]
        return s

    x, y = np.random.default_rng(6).random((2, 1300))
    _, (dx, dy) = adjit.value_and_grad(chain)(x, y)
    expected = np.zeros(len(x))
    expected[:-2] += y[1:-1] * x[2:]
    expected[2:] += y[1:-1] * x[:-2]
    np.testing.assert_allclose(dx, expected, rtol=1e-12)
    np.testing.assert_allclose(dy[1:-1], x[:-2] * x[2:], rtol=1e-12)


def test_comparisons_of_what_rounds_hand_on_take_a_byte_of_the_tape():
    def highest(x):
        top = x[0]
        for i in range(1, len(x)):
            if x[i] > top:
                top = x[i]
        return top

    x = np.random.default_rng(6).random(1001)
    value, (dx,) = adjit.value_and_grad(highest)(x)
    assert value == x.max()
    np.testing.assert_array_equal(np.flatnonzero(dx), [x.argmax()])
    assert "on the tape: 1000 bytes" in adjit.kernel(highest).explain(x)


def test_errors_of_the_function_itself_are_raised():
    with pytest.raises(AssertionError, match="too short"):
        adjit.value_and_grad(checked)(np.ones(2))


def test_shapes_that_do_not_agree_are_refused_when_it_runs():
    def product(x, y):
        return np.sum(x * y)

    with pytest.raises(ValueError, match="shapes of arrays do not agree"):
        adjit.value_and_grad(product)(np.ones(3), np.ones(1))


def test_arrays_of_other_sizes_that_change_places_are_refused_when_it_runs():
    with pytest.raises(ValueError, match="shapes of arrays do not agree"):
        adjit.value_and_grad(swapped_steps)(np.ones(3), np.ones(4), 0.5)


def swapped_steps(u, v, rate):
    for _ in range(2):
        v[0] += step(u, rate)[0]
        u, v = v, u
    return u[0]


# ----- published kernels -----


def softdtw(costs, gamma):
    n, m = costs.shape
    r = np.full((n + 1, m + 1), np.inf)
    r[0, 0] = 0.0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            a, b, c = -r[i - 1, j - 1] / gamma, -r[i - 1, j] / gamma, -r[i, j - 1] / gamma
            top = max(a, b, c)
            total = math.exp(a - top) + math.exp(b - top) + math.exp(c - top)
            r[i, j] = costs[i - 1, j - 1] - gamma * (math.log(total) + top)
    return r[n, m]


def hmm(start, moves, emits, seen):
    k = len(start)
    alpha = start * emits[:, seen[0]]
    likelihood = 0.0
    for t in range(1, len(seen)):
        total = alpha.sum()
        likelihood += math.log(total)
        alpha = (alpha / total) @ moves
        for s in range(k):
            alpha[s] *= emits[s, seen[t]]
    return likelihood + math.log(np.sum(alpha))


@njit
def kepler(mean, e):
    angle = mean if e < 0.8 else math.pi
    for _ in range(100):
        delta = (angle - e * math.sin(angle) - mean) / (1.0 - e * math.cos(angle))
        angle -= delta
        if abs(delta) < 1e-14:
            break
    return angle


def kepler_sum(mean, e):
    s = 0.0
    for i in range(len(mean)):
        s += kepler(mean[i], e[i]) ** 2
    return s


@njit
def lotka(x, y, p):
    return p[0] * x - p[1] * x * y, p[2] * x * y - p[3] * y


def adaptive(x, y, p):
    """Heun's method with steps by its error; a step that is too large is made again."""
    t = 0.0
    h = 0.05
    while t < 1.0:
        h = min(h, 1.0 - t)
        dx, dy = lotka(x, y, p)
        ex, ey = lotka(x + h * dx, y + h * dy, p)
        error = h * math.hypot(dx - ex, dy - ey) + 1e-30
        if error <= 1e-3:
            t += h
            x, y = x + 0.5 * h * (dx + ex), y + 0.5 * h * (dy + ey)
            h *= 1.5
        else:
            h *= 0.5
    return x * x + y


def biquad(x, b, a):
    y = np.zeros(len(x))
    for i in range(len(x)):
        acc = b[0] * x[i]
        if i >= 1:
            acc += b[1] * x[i - 1] - a[0] * y[i - 1]
        if i >= 2:
            acc += b[2] * x[i - 2] - a[1] * y[i - 2]
        y[i] = acc
    return np.sum(y * y)


def levenshtein(a, b, change):
    n, m = len(a), len(b)
    d = np.zeros((n + 1, m + 1))
    for i in range(n + 1):
        for j in range(m + 1):
            if i == 0 or j == 0:
                d[i, j] = 0.9 * (i + j)
            else:
                same = change * abs(a[i - 1] - b[j - 1])
                d[i, j] = min(d[i - 1, j] + 0.9, d[i, j - 1] + 0.9, d[i - 1, j - 1] + same)
    return d[n, m]


def stochastic(n, m, seed):
    found = np.random.default_rng(seed).random((n, m)) + 0.1
    return found / found.sum(1, keepdims=True)


PUBLISHED = [
    (softdtw, (np.random.default_rng(1).random((4, 5)), 0.7)),
    (kepler_sum, (Y, Y * 0.7)), (adaptive, (1.0, 1.2, np.array([1.5, 1.0, 3.0, 1.1]))),
    (biquad, (X, np.array([0.3, 0.2, 0.1]), np.array([-0.5, 0.2]))), (levenshtein, (X, Y, 1.3)),
]  # fmt: skip


def test_second_order_of_a_kernel_with_a_border_of_infinity():
    costs, gamma = PUBLISHED[0][1]
    along = (np.random.default_rng(3).standard_normal(costs.shape), 0.3)
    _, products = adjit.user_kernels.hvp(softdtw)(costs, gamma, *along)
    both = [
        adjit.value_and_grad(softdtw)(costs + s * along[0], gamma + s * along[1])[1]
        for s in (1e-5, -1e-5)
    ]
    for product, high, low in zip(products, *both, strict=True):
        np.testing.assert_allclose(product, (high - low) / 2e-5, atol=1e-7)


# ----- refusals -----


def sorts(x):
    y = np.partition(x, 2)
    return y[0]


def recursive(x, n):
    return x if n == 0 else recursive(x * x, n - 1)


def comprehends(x):
    return sum([x[i] for i in range(3)])


def sometimes(x):  # noqa: RET503
    if x[0] > 0:
        return x[0]


def both_ways(x):
    y = x
    for _ in range(3):
        y[0] += 1.0
        y = y * 2.0
    return y[0]


TABLE = np.ones(300)


def reads_global(x):
    return x[0] * TABLE[0]


REFUSALS = [
    (sorts, 1, "np.partition", "y = np.partition(x, 2)", "Call np.sort"),
    (comprehends, 1, "ListComp", "return sum([x[i] for i in range(3)])", "fill it in a loop"),
    (sometimes, 0, "only on some ways", "def sometimes(x):  # noqa: RET503", "End it with a return"),
    (both_ways, 2, "sets anew and writes into", "for _ in range(3):", "y[:] = ..."),
    (reads_global, 1, "a global array", "return x[0] * TABLE[0]", "Pass it as an argument"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("f", "line", "what", "code", "instead"), REFUSALS, ids=lambda v: getattr(v, "__name__", "")
)
def test_refusals_name_the_line_and_what_to_write(f, line, what, code, instead):
    with pytest.raises(NotDifferentiable) as caught:
        adjit.value_and_grad(f)(X.copy())
    text = str(caught.value)
    assert f"{__file__}:{f.__code__.co_firstlineno + line}: " in text
    assert what in text
    assert f"    {code}\n" in text
    assert "^" in text.split(code)[1].splitlines()[1]
    assert instead in text


def test_recursion_is_refused():
    with pytest.raises(
        NotDifferentiable, match=r"calls itself,[\s\S]*a loop with an array for its stack"
    ):
        adjit.value_and_grad(recursive)(1.5, 2)


def test_arguments_that_share_memory_are_refused_if_one_is_written():
    def moves(x, y):
        x[0] = y[1] * y[1]
        return x[0]

    with pytest.raises(ValueError, match="x is written and shares memory with y"):
        adjit.value_and_grad(moves)(X[:3], X[1:4])
    assert adjit.value_and_grad(moves)(X[:3], X[3:])[0] == X[4] ** 2


def test_so_are_tensors_in_any_mode():
    """A tensor is written in a copy, in which nobody would see what other names show."""

    @adjit.kernel
    def shifts(x, y):
        for i in range(1, len(x)):
            y[i] = x[i - 1] + 1.0
        return x[0]

    memory = adjit.zeros(8, dtype=adjit.float64)
    graded = adjit.zeros(8, dtype=adjit.float64, requires_grad=True)
    whole = graded * 1
    for x, y in (
        (memory, memory),
        (memory[:5], memory[1:6]),
        (whole, whole),
        (whole[1:], whole[:-1]),
    ):
        for _ in range(3):
            with pytest.raises(ValueError, match="y is written and shares memory with x"):
                shifts(x, y)
    with pytest.raises(ValueError, match="pass a copy"):
        adjit.func.vmap(lambda t: shifts(t, t))(adjit.zeros(2, 3, dtype=adjit.float64))
    with pytest.raises(ValueError, match="pass a copy"):
        adjit.func.jvp(lambda t: shifts(t, t), (memory,), (memory,))
    shifts(memory[:4], memory[4:])
    assert memory.tolist() == [0.0] * 5 + [1.0] * 3


def test_results_and_arguments_without_gradients_are_refused():
    with pytest.raises(
        TypeError, match="step must return one float to have a gradient, it returns an array"
    ):
        adjit.value_and_grad(step)(X, 0.5)
    with pytest.raises(TypeError, match="argument 1 of zero_trips is no float"):
        adjit.value_and_grad(zero_trips, wrt=1)(X, 3)
    with pytest.raises(NotDifferentiable, match="complex128"):
        adjit.value_and_grad(overwrite)(X + 1j)


# ----- the library -----


def test_only_what_is_asked_for():
    value, grads = adjit.value_and_grad(biquad, wrt=(1, 2))(*PUBLISHED[3][1])
    everything = adjit.value_and_grad(biquad)(*PUBLISHED[3][1])
    assert value == everything[0]
    np.testing.assert_array_equal(grads[0], everything[1][1])
    np.testing.assert_array_equal(grads[1], everything[1][2])


def test_gradients_inside_of_njit():
    value_and_grad = adjit.value_and_grad(biquad, wrt=1)
    x, b, a = PUBLISHED[3][1]

    @njit
    def descend(x, b, a):
        for _ in range(20):
            value, grads = value_and_grad(x, b, a)
            b = b - 0.05 * grads[0]
        return value

    expected = b.copy()
    for _ in range(20):
        value, grads = value_and_grad(x, expected, a)
        expected -= 0.05 * grads[0]
    assert descend(x, b, a) == pytest.approx(value)


def test_float32_stays_float32():
    value, grads = adjit.value_and_grad(biquad)(*[a.astype(np.float32) for a in PUBLISHED[3][1]])
    assert {g.dtype for g in grads} == {np.dtype(np.float32)}
    assert value == pytest.approx(biquad(*PUBLISHED[3][1]), rel=1e-5)


def test_jvp_of_several_results():
    def both(x, n):
        x[1:] *= 2.0
        return np.sum(x), x * x, n

    value, tangent = adjit.user_kernels.jvp(both)(X.copy(), 3, np.ones(6))
    twice = np.array([1.0, 2, 2, 2, 2, 2])
    assert value[0] == pytest.approx(np.sum(X * twice))
    np.testing.assert_allclose(tangent[1], 2 * X * twice * twice)
    assert (tangent[0], value[2], tangent[2]) == (11.0, 3, 0.0)


def imported(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_file_that_changes_while_the_program_runs(tmp_path):
    """The function is what was imported: its text is read at once, and another one is never taken for it."""
    path = tmp_path / "changing.py"
    path.write_text("def f(x):\n    return 2.0 * x\n\n\ndef g(x):\n    return x\n")
    module = imported(path)
    value_and_grad, elementwise = adjit.value_and_grad(module.f), adjit.elementwise(module.f)
    path.write_text("def h(x):\n    return x\n\n\ndef f(x):\n    return 3.0 * x\n")
    assert value_and_grad(1.0) == (2.0, (2.0,))
    assert elementwise(adjit.tensor(5.0)).item() == 10.0
    with pytest.raises(NotDifferentiable, match="the file of g was changed since it was defined"):
        adjit.value_and_grad(module.g)(1.0)


def test_a_changed_constant_is_another_function():
    def scaled(factor):
        def f(x):
            return x * x * factor

        return adjit.value_and_grad(f)

    assert [scaled(c)(3.0) for c in (1.0, 2.0)] == [(9.0, (6.0,)), (18.0, (12.0,))]


RATE = 2.0


def rated(x):
    return RATE * x * x


def test_a_changed_global_is_noticed(monkeypatch):
    value_and_grad, product = adjit.value_and_grad(rated), adjit.kernel(rated)
    assert (value_and_grad(3.0), product(3.0)) == ((18.0, (12.0,)), 18.0)
    monkeypatch.setitem(globals(), "RATE", 4.0)
    assert (value_and_grad(3.0), product(3.0)) == ((36.0, (24.0,)), 36.0)


def test_later_calls_do_not_read_sources_or_types(monkeypatch):
    """Reading the source took 1 ms a call on tensors, types 17 us a call on arrays."""
    value_and_grad, x = adjit.value_and_grad(rated), leaf(0.3)
    square = adjit.kernel(rated)
    expected = value_and_grad(0.3)
    square(x).backward()
    for name in ("Meaning", "types_of"):
        monkeypatch.delattr(dispatch, name)
    assert value_and_grad(0.3) == expected
    square(x).backward()
    assert x.grad.item() == pytest.approx(2 * expected[1][0])
    with pytest.raises(NameError):
        value_and_grad(np.float32(0.3))


def test_a_tape_of_many_chunks_is_used_again():
    def orbit(x, n):
        k = 0
        while k < n:
            x = math.sin(x) + 0.5 * math.cos(x * x)
            k += 1
        return x

    value_and_grad, product = adjit.value_and_grad(orbit), 1.0
    x = 0.4
    for _ in range(300_000):
        product *= math.cos(x) - math.sin(x * x) * x
        x = math.sin(x) + 0.5 * math.cos(x * x)
    for _ in range(3):
        value, (g,) = value_and_grad(0.4, 300_000)
        assert value == pytest.approx(x)
        assert g == pytest.approx(product, abs=1e-12)


def steps(start, p, count):
    y, k = start.copy(), np.zeros(3)
    for _ in range(count):
        for i in range(3):
            k[i] = p[i] * y[i] * y[(i + 1) % 3]
        for i in range(3):
            y[i] += 0.01 * k[i]
    return y[0] + y[1] * y[2]


class Compiled(event.Listener):
    """The functions that Numba compiles."""

    def __init__(self):
        self.functions = []

    def on_start(self, event):
        self.functions.append(event.data["dispatcher"].py_func)

    def on_end(self, event): ...


def test_a_first_call_compiles_few_functions_besides_its_own():
    """Numba's own ones, for arrays and for the texts of errors, can take longer than the kernel."""
    with event.install_listener("numba:compile", compiled := Compiled()):
        adjit.value_and_grad(steps, checkpoint=True)(np.ones(3), np.full(3, 0.5), 9)
    own = ("user_steps_", "adjit.user_kernels.runtime")
    others = {f.__qualname__ for f in compiled.functions if not f.__module__.startswith(own)}
    assert not others


def test_a_way_back_is_machine_code_only_where_it_is_linked_into(empty_cache):
    def squares(x):
        s = 0.0
        for i in range(len(x)):
            s += x[i] * x[i]
        return s

    file = generated.generated(squares, (numba.float64[::1],), None, "reverse")
    file.module.value_and_grad(np.ones(3))
    for function, is_entered in [(file.module.way_back, False), (file.module.value_and_grad, True)]:
        (code,) = function.overloads.values()
        name = code.fndesc.llvm_cpython_wrapper_name
        assert bool(code.library._codegen._engine.is_symbol_defined(name)) is is_entered


def test_another_process_compiles_nothing(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import time, adjit, numpy as np\n"
        "def f(x):\n"
        "    s = 0.0\n"
        "    for i in range(len(x)):\n"
        "        s += x[i] * x[i]\n"
        "    return s\n"
        "vg = adjit.value_and_grad(f)\n"
        "print(vg(np.ones(3))[1][0].tolist())\n"
        "import sys\n"
        "m = next(m for n, m in sys.modules.items() if n.startswith('user_f_'))\n"
        "print(sum(m.value_and_grad.stats.cache_hits.values()))\n"
    )
    env = os.environ | {"ADJIT_CACHE_DIR": str(tmp_path / "cache")}
    outputs = [
        subprocess.run(
            [sys.executable, script], capture_output=True, text=True, check=True, env=env
        ).stdout
        for _ in range(2)
    ]
    assert [o.split("\n")[:2] for o in outputs] == [
        ["[2.0, 2.0, 2.0]", "0"],
        ["[2.0, 2.0, 2.0]", "1"],
    ]


# ----- on tensors -----


@adjit.kernel
def smooth(x, rate):
    y = np.empty_like(x)
    y[0] = x[0] * x[0]
    for i in range(1, len(x)):
        y[i] = rate * y[i - 1] * x[i] + x[i]
    return y


@adjit.kernel
def energy(x, rate):
    s = 0.0
    for i in range(1, len(x)):
        s += rate * x[i] * x[i - 1] * x[i]
    return s


@adjit.kernel
def several(x, out, n):
    for i in range(len(x)):
        out[i] += x[i] ** n
    return np.sum(x), x * out, n + 1


def leaf(values):
    return adjit.tensor(values, dtype=adjit.float64, requires_grad=True)


@pytest.mark.parametrize("f", [smooth, energy])
def test_gradients_and_double_backward_of_kernels(f):
    x, rate = leaf(X.tolist()), leaf(0.6)
    assert adjit.autograd.gradcheck(f, (x, rate))
    assert adjit.autograd.gradgradcheck(f, (x, rate))


def test_a_kernel_is_one_node_between_ops():
    x, rate = leaf(X.tolist()), leaf(0.6)
    y = energy((2 * x).sin(), rate)
    assert repr(y.grad_fn).startswith("<energyBackward")
    assert "energyBackward" in adjit.autograd.draw(y)._repr_svg_()
    (y * 3).backward()
    inner = np.sin(2 * X)
    expected = adjit.value_and_grad(energy)(inner, 0.6)[1]
    np.testing.assert_allclose(x.grad.numpy(), 3 * expected[0] * 2 * np.cos(2 * X))
    assert rate.grad.item() == pytest.approx(3 * expected[1])


def test_arrays_that_are_written_are_changed_in_place():
    x, start = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    out = start * 1
    version = out._version
    total, product, count = several(x, out, 2)
    assert (count, out.tolist()) == (3, [4.0, 8.0])
    assert out._version > version
    (total + (product * out).sum()).backward()
    np.testing.assert_allclose(start.grad.numpy(), [2 * 1 * 4, 2 * 2 * 8])
    np.testing.assert_allclose(x.grad.numpy(), [1 + 16 + 2 * 4 * 2, 1 + 64 + 2 * 2 * 8 * 4])
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        several(x, start, 2)


def test_double_backward_of_a_written_argument_is_refused():
    x = leaf([1.0, 2.0])
    total, _, _ = several(x, x.detach() * 1, 2)
    with pytest.raises(
        RuntimeError, match="several writes into its arguments: it has no double backward"
    ):
        adjit.autograd.grad(total, x, create_graph=True)


def test_kernels_without_tensors_run_on_arrays():
    out = np.zeros(2)
    total, product, count = several(np.array([1.0, 2.0]), out, 3)
    assert (total, product.tolist(), count, out.tolist()) == (3.0, [1.0, 16.0], 4, [1.0, 8.0])


def test_what_was_saved_is_checked():
    x = leaf(X.tolist()) * 1
    y = smooth(x, 0.5)
    x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_operands_are_not_shared_afterwards():
    """What `.numpy()` has shown is settled at once in every step from then on."""
    x, rate = leaf(X.tolist()), leaf(0.6)
    y = x * 2
    (energy(y, rate) + smooth(y, rate).sum()).backward()
    out = x.detach() * 1
    several(x, out, 2)[0].backward()
    assert [t._storage.shared for t in (x, y, rate, out, x.grad, rate.grad)] == [0] * 6


def test_without_gradients_only_the_function_runs():
    with adjit.no_grad():
        total = energy(leaf(X.tolist()), leaf(0.6))
    assert not total.requires_grad
    assert total.item() == pytest.approx(energy(X, 0.6))


def test_kernels_inside_of_compile():
    @adjit.compile
    def loss(x, rate):
        return energy(x * 2, rate).exp()

    for _ in range(4):
        x, rate = leaf(X.tolist()), leaf(0.6)
        loss(x, rate).backward()
    y, r = leaf(X.tolist()), leaf(0.6)
    energy(y * 2, r).exp().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy())


def test_calls_of_known_kinds_see_what_is_there_now():
    """The layouts of tensors and who needs a gradient are known from an earlier call, elements are not."""
    fixed, rate = adjit.tensor(X.tolist(), dtype=adjit.float64), leaf(0.6)
    x = leaf(X.tolist())
    for _ in range(2):
        for by in (1.0, -2.0):
            expected, slopes = adjit.value_and_grad(energy)(by * X, 0.6)
            for first, second in (
                (fixed * by, 0.6),
                (fixed * by, rate),
                (x * by, 0.6),
                (x * by, rate),
            ):
                x.grad = rate.grad = None
                y = energy(first, second)
                assert y.item() == pytest.approx(expected)
                assert y.requires_grad is (first.requires_grad or second is rate)
                if y.requires_grad:
                    y.backward()
                    y = None
                if first.requires_grad:
                    np.testing.assert_allclose(x.grad.numpy(), by * slopes[0])
                if second is rate:
                    assert rate.grad.item() == pytest.approx(slopes[1])
            with adjit.no_grad():
                assert not energy(x * by, rate).requires_grad
    assert energy(fixed[::2], 0.6).item() == pytest.approx(energy(X[::2], 0.6))


def test_a_changed_global_is_another_kernel(monkeypatch):
    name = "SCALE_OF_A_KERNEL"
    monkeypatch.setitem(globals(), name, 2.0)

    @adjit.kernel
    def scaled(x):
        return SCALE_OF_A_KERNEL * x[0]  # noqa: F821

    x = leaf([3.0])
    assert [scaled(x).item(), scaled(x).item(), scaled(X)] == [6.0, 6.0, 2 * X[0]]
    monkeypatch.setitem(globals(), name, 5.0)
    assert [scaled(x).item(), scaled(X)] == [15.0, 5 * X[0]]


def test_gradients_that_were_computed_with_the_value_stay_what_they_are():
    x, rate = leaf(X.tolist()), leaf(0.6)
    slopes = adjit.value_and_grad(energy)(X, 0.6)[1]
    y = energy(x, rate)
    for by in (None, None, 3.0):
        x.grad = rate.grad = None
        y.backward(None if by is None else adjit.tensor(by, dtype=y.dtype), retain_graph=True)
        np.testing.assert_allclose(x.grad.numpy(), (by or 1.0) * slopes[0])
        assert rate.grad.item() == pytest.approx((by or 1.0) * slopes[1])
        x.grad.mul_(7.0)
        rate.grad.zero_()
    passed = adjit.compile(lambda by: adjit.autograd.grad(y, x, by, retain_graph=True)[0])
    for by in (1.0, 1.0, 1.0, 2.0):
        np.testing.assert_allclose(passed(leaf(by).detach()).numpy(), by * slopes[0])


def test_kernels_write_into_tensors_and_arrays_without_gradients():
    x, out = adjit.tensor([1.0, 2.0], dtype=adjit.float64), adjit.zeros(2, 2, dtype=adjit.float64)
    rows = np.zeros((2, 2))
    for k in range(1, 4):
        version = out._version
        total, _, _ = several(x, out[1], 2)
        assert total.item() == 3.0
        assert out.tolist() == [[0.0, 0.0], [k * 1.0, k * 4.0]]
        assert out._version > version
        several(x, rows[1], 2)
        assert rows.tolist() == out.tolist()


def test_kernels_take_float32_and_turned_tensors():
    @adjit.kernel
    def weighted(a):
        s = 0.0
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                s += a[i, j] * a[i, j] * (i + 2 * j)
        return s

    a = adjit.tensor(A.tolist(), requires_grad=True)
    weighted(a.T).backward()
    i, j = np.indices(A.shape)
    np.testing.assert_allclose(a.grad.numpy(), 2 * A * (j + 2 * i), rtol=1e-5)
    assert a.grad.dtype == adjit.float32


def test_explain_and_source():
    text = energy.explain(X, 0.5)
    assert text.startswith("energy: array(float64, 1d, C), float64\n")
    assert f"on the tape: {8 * 512} bytes" in text  # x[i - 1] of that many rounds
    assert "# back" in energy.source(X, 0.5)

    @adjit.kernel
    def floored(x):
        y = x.copy()
        for i in range(1, len(x)):
            y[i] = y[i - 1] * np.exp(y[i]) + np.floor(x[i])
        return np.sum(y)

    text = floored.explain(X)
    assert "the result of np.exp, which costs more to compute again" in text
    assert "no gradient flows through np.floor" in text
    assert "on the tape: 0 bytes" in several.explain(X, X.copy(), 3)


# ----- many examples -----


def test_vmap_of_kernels_is_a_loop_in_the_kernel():
    x = adjit.tensor(np.stack([X, Y, X * Y]), requires_grad=True)
    rate = leaf([0.6, 0.3, -0.2])
    rows = adjit.func.vmap(smooth)(x, rate)
    total = adjit.func.vmap(energy, in_dims=(0, None))(x, rate[0])
    assert str(rows.grad_fn) != ""
    for k in range(3):
        np.testing.assert_array_equal(
            rows[k].detach().numpy(), smooth(x.detach()[k].numpy(), rate[k].item())
        )
        assert total[k].item() == energy(x.detach()[k].numpy(), 0.6)
    (rows.sum() + (total * total).sum()).backward()
    a, b = leaf(x.tolist()), leaf(rate.tolist())
    one_by_one = sum(
        smooth(a[k], b[k]).sum() + energy(a[k], b[0]) * energy(a[k], b[0]) for k in range(3)
    )
    one_by_one.backward()
    np.testing.assert_allclose(x.grad.numpy(), a.grad.numpy(), rtol=1e-12)
    np.testing.assert_allclose(rate.grad.numpy(), b.grad.numpy(), rtol=1e-12)


def test_vmap_of_gradients_and_of_vmap():
    x, rates = leaf(np.stack([X, Y]).tolist()).detach(), leaf([0.6, 0.3, -0.2]).detach()
    grads = adjit.func.vmap(adjit.func.grad(energy), in_dims=(0, None))(x, rates[0])
    table = adjit.func.vmap(lambda r: adjit.func.vmap(lambda v: energy(v, r))(x))(rates)
    for k in range(2):
        expected = adjit.value_and_grad(energy)(x[k].numpy(), 0.6)[1][0]
        np.testing.assert_allclose(grads[k].numpy(), expected, rtol=1e-12)
        for j in range(3):
            assert table[j, k].item() == energy(x[k].numpy(), rates[j].item())
    hessian = adjit.func.jacrev(adjit.func.grad(energy))(x[0], rates[0])
    along = np.eye(6)[1]
    product = adjit.user_kernels.hvp(energy, wrt=0)(x[0].numpy(), 0.6, along)[1][0]
    np.testing.assert_allclose(hessian[1].numpy(), product, atol=1e-12)


def test_vmap_of_written_arguments_and_several_results():
    x = adjit.tensor(np.stack([X, Y]))
    out = adjit.zeros(2, 6, dtype=adjit.float64)
    total, product, count = adjit.func.vmap(several, in_dims=(0, 0, None))(x, out, 2)
    np.testing.assert_allclose(out.numpy(), x.numpy() ** 2)
    np.testing.assert_allclose(product.numpy(), x.numpy() ** 3)
    np.testing.assert_allclose(total.numpy(), x.numpy().sum(1))
    assert count.tolist() == [3, 3]
    with pytest.raises(RuntimeError, match="writes into its argument 1, which all examples share"):
        adjit.func.vmap(several, in_dims=(0, None, None))(x, out[0], 2)


# ----- settings -----


def reaches_too_far(x, y):
    s = 0.0
    for i in range(len(x)):
        y[i] = x[i] * x[i]
        s += y[i] * x[i + 1]
    return s


def test_debug_names_the_statement_of_an_index_that_is_out_of_range(monkeypatch):
    monkeypatch.setattr(config, "DEBUG", True)
    line = reaches_too_far.__code__.co_firstlineno + 4
    match = rf"reaches_too_far(_tangent)?, {line}: s \+= y\[i\] \* x\[i \+ 1\]: an index of x is out of range"
    with pytest.raises(IndexError, match=match):
        adjit.kernel(reaches_too_far)(X, Y.copy())
    with pytest.raises(IndexError, match=match):
        adjit.value_and_grad(reaches_too_far)(X, Y)
    with pytest.raises(IndexError, match=match):
        adjit.user_kernels.jvp(reaches_too_far)(X, Y, X, Y)
    with pytest.raises(IndexError, match=f"{line - 1}: .*: an index of y is out of range"):
        adjit.kernel(reaches_too_far)(leaf(X.tolist()), leaf([1.0]) * 1)
    assert adjit.value_and_grad(energy.py_func)(X, 0.5)[0] == energy(X, 0.5)


def test_clearing_the_cache_takes_numbas_files_along(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import adjit\nfrom adjit.__main__ import main\nfrom adjit.schedule.jit import disk\n"
        "def f(x):\n    return x * x\n"
        "print(adjit.value_and_grad(f)(3.0))\n"
        "kinds = {p.suffix for p in disk.folder().rglob('user_f_*')}\n"
        "print({'.py', '.nbi', '.nbc'} <= kinds)\n"
        "main(['cache', 'clear'])\n"
        "print(list(disk.folder().rglob('user_f_*')))\n"
    )
    env = os.environ | {"ADJIT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True, env=env
    )
    lines = done.stdout.splitlines()
    assert (lines[0], lines[1], lines[-1]) == ("(9.0, (6.0,))", "True", "[]")


# ----- prange -----


def rowwise(x, w, a):
    n, m = x.shape
    y = np.empty(n)
    s = 0.0
    for i in prange(n):
        acc = 0.0
        for j in range(m):
            acc += math.tanh(x[i, j] * w[j]) * a
        y[i] = math.exp(-acc) * w[0]
        s += y[i] * acc
    return s + np.sum(y * y)


def overwritten(x, w, a):
    for i in prange(len(x)):
        for _ in range(3):
            x[i] = math.sin(x[i] * a) + w[(i + 1) % len(w)] * x[i]
        x[i] *= w[i % 2]
    t = 1.0
    for i in prange(len(x) - 1, 0, -2):
        if x[i] > 0.1:
            t -= w[i % 3] * a
        for j in range(2):
            t += x[i] * j
    x[0] = x[0] * t
    return np.sum(x * x)


def arrays_of_rounds(x, w, a):
    s = 0.0
    for i in prange(1, len(x), 2):
        row = w * x[i]
        total = np.zeros((2, 3))
        for k in range(len(w)):
            row[k] += row[k - 1] * a
            total[k % 2, k % 3] += row[k]
        s += np.sum(total * total) * row[-1]
    return s


SHARED = [(arrays_of_rounds, (np.linspace(0.1, 1, 41), Y[:5], 0.4)),
          (rowwise, (np.linspace(-1, 1, 185).reshape(37, 5), Y[:5], 0.7)),
          (overwritten, (np.linspace(0.1, 1, 53), Y, 0.4))]  # fmt: skip


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(("f", "args"), SHARED, ids=lambda v: getattr(v, "__name__", ""))
def test_prange_has_the_same_bits_on_any_number_of_threads(f, args):
    value_and_grad = adjit.value_and_grad(f)
    before = numba.get_num_threads()
    found = []
    try:
        for threads in (1, min(2, numba.config.NUMBA_NUM_THREADS)):
            numba.set_num_threads(threads)
            found.append(value_and_grad(*args))
    finally:
        numba.set_num_threads(before)
    assert found[0][0] == found[1][0]
    in_order, grads = adjit.value_and_grad(njit(f))(*args)  # without parallel=True it is range
    assert "_all_back(" in text_of(f, args)
    assert "_all_back(" not in text_of(njit(f), args)
    assert found[0][0] == pytest.approx(in_order, rel=1e-12)
    for a, b, c in zip(found[0][1], found[1][1], grads, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, rtol=1e-10, atol=1e-12)


def races(x):
    for i in prange(len(x)):
        x[0] += x[i]
    return x[0]


def neighbours(x):
    for i in prange(1, len(x)):
        x[i] = x[i - 1] * 2.0
    return x[0]


def wraps_around(x):
    y = np.zeros(len(x))
    for i in prange(len(x)):
        y[i - 1] = x[i]
    return y[0]


def multiplies(x):
    s = 1.0
    for i in prange(len(x)):
        s *= x[i]
    return s


def reads_its_sum(x):
    s = 0.0
    for i in prange(len(x)):
        s += x[i]
        x[i] = s
    return s


def leaves(x):
    s = 0.0
    for i in prange(len(x)):
        s += x[i]
        if x[i] > 3:
            break
    return s


def scatters(x):
    index = np.zeros(len(x), np.int64)
    for i in prange(len(x)):
        x[index[i]] = 2.0
    return x[0]


def makes_arrays(x):
    s = 0.0
    for i in prange(len(x) - 1, -1, -1):
        t = np.zeros(3)
        t[0] = x[i]
        s += t[0]
    return s


def swaps_what_it_reads(x):
    y = x * x
    s = 0.0
    for i in prange(len(x)):
        a = x
        b = y
        for _ in range(3):
            s += a[i] * b[0]
            a, b = b, a
    return s


RACES = [
    (races, "several rounds may reach the same elements of `x`"),
    (neighbours, "several rounds may reach the same elements of `x`"),
    (wraps_around, "several rounds may reach the same elements of `y`"),
    (multiplies, "rounds hand on `s`"), (reads_its_sum, "rounds hand on `s`"),
    (leaves, "left by break or return"), (scatters, "several rounds may reach the same elements of `x`"),
    (makes_arrays, "rounds make arrays"), (swaps_what_it_reads, "a prange whose arrays change places"),
]  # fmt: skip


@pytest.mark.parametrize(("f", "why"), RACES, ids=lambda v: getattr(v, "__name__", ""))
def test_prange_whose_rounds_are_not_apart_is_refused_where_it_is_no_range(f, why):
    with pytest.raises(NotDifferentiable, match=why):
        text_of(njit(parallel=True)(f), (X,))
    for in_order in (f, njit(f)):
        assert "_all_rounds(" not in text_of(in_order, (X,))


@njit(parallel=True)
def triangles(x, w):
    y = np.empty(len(x))
    for i in prange(len(x)):
        s = 0.0
        for j in range(i + 1):
            for k in range(x.shape[1]):
                s += x[i, k] * w[j]
        y[i] = s
    return np.sum(y)


@njit(parallel=True)
def until_small(x):
    y = np.empty(len(x))
    for i in prange(len(x)):
        v = x[i]
        while v > 0.1:
            v *= 0.5
        y[i] = v
    return np.sum(y)


def work_of(f, **sizes):
    """About how many nanoseconds a round of the prange takes; None where that is not known."""
    python = f.py_func
    types = tuple(numba.typeof(a) for a in sizes.values())
    form = generated.typed_form(f, types)
    (rounds,) = parallel.parallel_loops(form).values()
    work = rounds.work()
    names = dict(zip(python.__code__.co_varnames, sizes.values(), strict=False))
    known = {n: names[n] for n in rounds.names if n in names} | {rounds.trips: len(names["x"])}
    return None if work is None else eval(work, {"max": max, "min": min}, known)


def test_about_how_long_a_prange_takes():
    many, few = (work_of(triangles, x=np.ones((9, n)), w=np.ones(9)) for n in (400, 4))
    assert 50 < many / few < 100
    assert work_of(until_small, x=np.ones(9)) is None


def test_short_pranges_keep_to_one_thread_and_leave_others_alone():
    before = numba.get_num_threads()
    x, w = np.ones((3, 2)), np.linspace(0.5, 1.0, 3)
    assert_gradients(triangles, x, w, forward=False)
    assert numba.get_num_threads() == before
    assert "if trips_work_w < 10000:" in adjit.kernel(triangles).source(x, w)
    assert "trips_work_w" not in adjit.kernel(until_small).source(x[0])


def some_in_order(x):
    out = np.zeros(len(x))
    for i in prange(len(x)):
        out[i] = x[i] * x[i]
    for i in prange(1, len(x)):
        out[i] += out[i - 1] * x[i]
    for i in prange(len(x)):
        a = x * x[i]
        b = x + out
        for _ in range(3):
            a, b = b, a
        out[i] = a[0] * b[i]
    return out.sum()


races_in_order = njit(races)
apart_if_parallel = njit(parallel=True)(rowwise)


def calls_in_order(x):
    return races_in_order(x) * multiplies(x)


def calls_one_in_order(x):
    return races_in_order(x)


def calls_others(x, w, a):
    return apart_if_parallel(x, w, a) * a


def test_loops_by_prange_are_range_one_by_one():
    text = text_of(some_in_order, (X,))
    assert len(set(re.findall(r"\w+_all_rounds", text))) == 1
    for f in (some_in_order, calls_in_order):
        assert_gradients(f, X.copy())
    found = adjit.value_and_grad(reads_its_sum)(X.copy())  # the same text in another file
    assert found[0] == pytest.approx(reads_its_sum(X.copy()))
    with pytest.raises(NotDifferentiable, match="rounds hand on"):
        adjit.value_and_grad(njit(parallel=True)(reads_its_sum))(X.copy())
    assert "_all_back(" in text_of(calls_others, SHARED[1][1])
    assert "_all_back(" not in text_of(njit(calls_others), SHARED[1][1])
    assert "_all_back(" not in text_of(njit(parallel=True)(calls_one_in_order), (X,))


def melted(p, f, most):
    s = 0.0
    out = np.zeros(p.shape[1])
    for k in prange(p.shape[1]):
        snow = p[:, k] * f[:, k]
        if snow[0] > most:
            raise ValueError("too much snow")
        assert snow[1] < most, "too late"
        s += (snow * snow).sum()
        out[k] = math.sqrt(snow[0])
    return s * out.sum()


def test_checks_in_a_prange_are_raised_behind_it():
    f = njit(parallel=True)(melted)
    p, q = (np.random.default_rng(k).random((3, 37)) + 0.1 for k in (0, 1))
    text = text_of(f, (p, q, 3.0))
    assert "_all_back(" in text
    again = text[text.index("_back(") : text.index("def way_back")]
    assert not re.search(r"^ *(raise|return$)", again, re.M)  # what has run is not checked again
    assert_gradients(f, p, q, 3.0, tolerance=1e-5)

    def error(*args):
        with pytest.raises((ValueError, AssertionError)) as caught:
            adjit.value_and_grad(f)(*args)
        return str(caught.value)

    for _ in range(3):
        assert "shapes of arrays do not agree" in error(p, q[:2], 3.0)
    p[0, 30], p[1, 20] = 90.0, 80.0
    assert error(p, q, 3.0) == "too late"  # in the order of rounds
    p[1, 31], p[1, 20] = 90.0, 0.1
    assert error(p, q, 3.0) == "too much snow"
    tensors = adjit.tensor(p, requires_grad=True), adjit.tensor(q)
    with pytest.raises(ValueError, match="too much snow"):
        adjit.kernel(f)(*tensors, 3.0)
    with pytest.raises(ValueError, match="too much snow"):
        adjit.kernel(melted)(p, q, 3.0)
    value, grads = adjit.value_and_grad(f)(p, q, 99.0)  # the tape is whole
    assert value == pytest.approx(melted(p, q, 99.0))
    assert len(grads) == 3


def asks_for_its_sum(x):
    s = 0.0
    for i in prange(len(x)):
        s += x[i]
        assert s
    return s


def test_a_check_may_not_read_a_sum_of_rounds():
    with pytest.raises(NotDifferentiable, match="rounds hand on `s`"):
        text_of(njit(parallel=True)(asks_for_its_sum), (X,))


# ----- arguments that are None, rows that are tuples, functions that end without `return` -----


def with_window(x, window=None, gain=1.0):
    if window is None:
        window = np.ones(len(x))
    else:
        gain *= 2.0
    s = 0.0
    for i in range(len(x)):
        s += gain * window[i] * x[i] ** 3
    return s


@pytest.mark.in_turn(3)
def test_arguments_that_are_none():
    x = leaf(X.tolist())
    kernel = adjit.kernel(njit(with_window))
    for window in (None, Y, adjit.tensor(Y), None):
        array = None if window is None else Y
        value = kernel(x, window, 0.7)
        assert value.item() == pytest.approx(njit(with_window)(X, array, 0.7), rel=1e-14)
        (grad,) = adjit.autograd.grad(value, x)
        factor = 0.7 if array is None else 1.4 * Y
        np.testing.assert_allclose(grad.numpy(), 3 * factor * X**2, rtol=1e-12)
    assert adjit.autograd.gradcheck(kernel, (x, None), check_forward_ad=True)
    assert adjit.autograd.gradgradcheck(kernel, (x,))
    hessian = adjit.func.hessian(kernel)(x.detach())
    np.testing.assert_allclose(hessian.numpy(), np.diag(6 * X), atol=1e-12)
    rows = adjit.stack([x.detach(), x.detach() * 2.0])
    many = adjit.func.vmap(lambda v: kernel(v, None))(rows)
    np.testing.assert_allclose(many.numpy(), [with_window(X), with_window(2 * X)], rtol=1e-12)
    slope, products = adjit.user_kernels.hvp(with_window)(X, None, 1.0, Y, 0.0)
    assert slope == pytest.approx((3 * X**2 * Y).sum())
    np.testing.assert_allclose(products[0], 6 * X * Y, rtol=1e-12)
    captured = adjit.compile(lambda v: kernel(v, None) * 2.0)
    assert {captured(x).item() for _ in range(4)} == {2.0 * kernel(x).item()}
    assert "float64, 1d, C), none, float64" in kernel.explain(X, None, 1.0)


def compartments(x, rate, n):
    out = np.zeros((n, 3))
    out[0] = x[0], x[1], x[2]
    for d in range(1, n):
        s, i, r = out[d - 1]
        new = rate * s * i
        out[d] = s - new, i + new - 0.1 * i, r + 0.1 * i
    tail = np.zeros(n)
    tail[:3] = [0, out[n - 1, 0], True]
    return (out * out).sum() + tail[1]


def many_to_few(x, n):
    x[:n] = x[1], x[0], x[2]
    return x[0]


def test_rows_that_are_tuples():
    assert_gradients(njit(compartments), X, 0.3, 5)
    value = adjit.kernel(compartments)(X, 0.3, 5)
    assert value == pytest.approx(njit(compartments)(X, 0.3, 5), rel=1e-14)
    x, rate = leaf(X.tolist()), leaf(0.3)
    assert adjit.autograd.gradgradcheck(lambda x, r: adjit.kernel(compartments)(x, r, 4), (x, rate))
    for f in (njit(many_to_few), adjit.kernel(many_to_few), adjit.value_and_grad(many_to_few)):
        with pytest.raises(ValueError, match="cannot assign"):
            f(X.copy(), 2)
    assert adjit.kernel(many_to_few)(X.copy(), 3) == X[1]


def chosen_kind(z, d, out):
    out[0] = z[0]
    if d == 1:
        return
    if d == 2:
        for i in range(2):
            out[1 + i] = z[0] * z[i]
            if out[1 + i] > 0.3:
                return
        return
    if d == 3:
        out[2] = z[0] ** 3
        return


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_functions_without_results_may_end_without_return(d):
    expected, found = np.zeros(4), adjit.zeros(4, dtype=adjit.float64)
    njit(chosen_kind)(Y, d, expected)
    z = leaf(Y.tolist())
    adjit.kernel(chosen_kind)(z, d, found)
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-15)
    found.sum().backward()

    def total(z):
        out = np.zeros(4)
        chosen_kind(z, d, out)
        return out.sum()

    np.testing.assert_allclose(z.grad.numpy(), differences(total, (Y,))[0], atol=1e-8)
    _, along = adjit.func.jvp(
        lambda z: adjit.kernel(of_kind)(z, d), (z.detach(),), (adjit.ones_like(z),)
    )
    assert along.item() == pytest.approx(z.grad.sum().item())


def of_kind(z, d):
    out = np.zeros(4)
    chosen_kind(z, d, out)
    return out.sum()


# ----- loops that run again -----


def orbit(x, y, n):
    for _ in range(n):
        x, y = math.sin(x) + 0.5 * y, math.cos(x * y)
    return x * y


def growing_steps(x, end):
    t = 0.0
    h = 0.001
    while t < end:
        x = x + h * math.sin(x * t)
        t += h
        h = h * 1.05 if h < 0.02 else 0.001
        if x > 50.0:
            break
    return x


def heat(u, n, rate):
    w = np.zeros(len(u))
    seen = np.zeros(len(u), np.bool_)
    s = 0.0
    for t in range(n, 0, -1):
        for i in range(1, len(u) - 1):
            w[i] = u[i] + rate * (u[i - 1] - 2.0 * u[i] + u[i + 1]) * u[i]
            seen[i] = not seen[i]
        for i in range(1, len(u) - 1):
            u[i] = math.sin(w[i]) if seen[i] else w[i]
        s += u[1] * t * 0.01
        if t % 3 == 0:
            u[0] += s * 0.001
    return np.sum(u * u) + s


def two_loops(x, n):
    x[2] = x[0] * x[1]
    for t in range(0, 3 * n, 3):
        x[3] += math.exp(-x[2] * x[3]) * 0.001
        x[t % 2] *= 0.999 + 0.0001 * x[3]
    x[3] = x[3] * x[0]
    for _ in range(n):
        x[4] = math.sin(x[4] + x[3])
        j = 0
        while j < 3 and x[4] > 0.3:
            x[4] *= math.cos(x[4])
            j += 1
    x[4] *= x[4]
    return x[4] * x[1] + x[0]


def filtered(x, a):
    y = np.zeros(len(x))
    for i in range(len(x)):
        acc = x[i]
        if i > 0:
            acc -= a * y[i - 1]
        if not i <= 1:
            acc -= 0.1 * y[i - 2]
        y[i] = math.tanh(acc)
    return np.sum(y * y)


LONG = [(orbit, (0.3, 0.4, 900)), (orbit, (0.3, 0.4, 0)), (growing_steps, (1.2, 4.0)), (heat, (Y, 900, 0.1)),
        (two_loops, (Y, 900)), (short_names, (np.linspace(-1.0, 1.0, 900),))]  # fmt: skip


def text_of(f, args, **options):
    kinds = tuple(numba.typeof(a) for a in args)
    wanted = tuple(k for k, t in enumerate(kinds) if generated.is_floating(t))
    return generated.text_of(f, kinds, wanted, "reverse", **options)


@pytest.mark.parametrize(("f", "args"), LONG, ids=lambda v: getattr(v, "__name__", ""))
def test_checkpoints_give_the_same_bits_with_a_small_tape(f, args):
    value, grads = adjit.value_and_grad(f)(*args)
    again, same = adjit.value_and_grad(f, checkpoint=True)(*args)
    assert again == value
    for a, b in zip(grads, same, strict=True):
        np.testing.assert_array_equal(a, b)
    sizes = [
        adjit.kernel(f, checkpoint=on).code_for(args).module.peak_bytes(*args)
        for on in (False, True)
    ]
    assert sizes[1] <= sizes[0] * 0.2


def memories(f, args, **options):
    (line,) = re.findall(r"^APART = (.*)$", text_of(f, args, **options), re.MULTILINE)
    return ast.literal_eval(line)


def test_only_memory_that_is_apart_has_different_names():
    turns = memories(beside_in_turns, tuple(WIDE))
    assert turns["x"] == "x"
    assert turns["x_b"] == "x_b"
    assert len({turns[name] for name in ("copy", "copy_1", "copy_2", "copy_3")}) == 1
    assert any(name.endswith("_w") for name in turns)

    def settling(x):
        y = np.zeros(len(x))
        for _ in range(9):
            for i in range(len(x)):
                y[i] = math.sin(y[i] + x[i])
        return np.sum(y)

    assert {"x", "x_b"} < set(memories(settling, (X,)))
    assert set(memories(settling, (X,), checkpoint=True)) == {
        "x",
        "x_b",
    }  # nothing that is on the tape
    assert memories(rowwise, (A, X[:4], 0.5)) == {}


def test_checkpoints_keep_no_array_that_rounds_write_once():
    code = text_of(filtered, (X, 0.5), checkpoint=True)
    assert (
        "tape_set" not in code.partition("def way_back")[2]
    )  # nor anything else: it is computed again
    assert "y.shape)[:] = y" not in code
    assert "= y[i]" not in code.partition("----- back")[0]


def test_checkpoints_on_tensors_and_in_second_order():
    long = adjit.kernel(checkpoint=True)(orbit)
    x, y = leaf(0.3), leaf(0.4)
    assert adjit.autograd.gradgradcheck(lambda x, y: long(x, y, 12), (x, y))
    assert "the state of a loop at the starts of its parts" in long.explain(0.3, 0.4, 900)


def test_checkpoints_that_cannot_be_are_refused():
    with pytest.raises(
        NotDifferentiable, match="a loop whose arrays change places cannot be differentiated"
    ):
        adjit.value_and_grad(swaps, checkpoint=True)(X, Y)

    def swaps_inside(u, v, n):
        for _ in range(n):
            a = u
            b = v
            for _ in range(3):
                b[0] = math.sin(a[0]) + 0.1 * b[0]
                a, b = b, a
            u[0] += v[0]
        return u[0]

    assert_gradients(swaps_inside, X, Y, 5)
    with pytest.raises(NotDifferentiable, match="a loop whose arrays change places"):
        adjit.value_and_grad(swaps_inside, checkpoint=True)(X, Y, 5)

    def counts(x, n):
        k = np.zeros(1, np.int32)
        for _ in range(n):
            k[0] += 1
            x = math.sin(x) * k[0]
        return x

    with pytest.raises(NotDifferentiable, match="writes into an array of dtype i4"):
        adjit.value_and_grad(counts, checkpoint=True)(0.5, 10)


def heun(x, k, dt, n):
    """Stages as large as the state, of a size that is not known."""
    y = x.copy()
    for _ in range(n):
        slope = np.empty(len(y))
        for i in range(len(y)):
            slope[i] = k * y[i - 1] * y[i] - y[i]
        there = y + dt * slope
        after = np.empty(len(y))
        for i in range(len(y)):
            after[i] = k * there[i - 1] * there[i] - there[i]
        y += 0.5 * dt * (slope + after)
    return np.sum(y * y)


def swing(x, dt):
    """Stages of known sizes, a number that is handed on, a loop that is left."""
    y, t = x.copy(), 0.0
    while t < 1.0:
        there = np.empty(2)
        there[0] = y[0] + 0.5 * dt * y[1]
        there[1] = y[1] - 0.5 * dt * y[0] * y[0]
        slope = np.array([there[1] * there[0] + there[1], -there[0] * there[0] * (1.0 + t)])
        far = y + dt * slope
        last = np.array([far[1] * (1.0 + far[0]), -far[0] * far[1]])
        y += 0.5 * dt * (slope + last)
        t += dt * (1.0 + y[0] * y[0])
        if y[1] < -0.5:
            break
    return y[0] * y[1] + t


@pytest.mark.parametrize(
    ("f", "args", "most"),
    [(heun, (X, 0.3, 0.1, 200), 8 * 200 * len(X) + 5000), (swing, (X[:2], 0.0131), 2700)],
)
def test_rounds_run_again_where_that_saves_half_of_the_tape(f, args, most):
    assert_gradients(f, *args)
    text = adjit.kernel(f).explain(*args)
    assert (
        "the state of a loop at the start of each round, which runs again on the way back" in text
    )
    assert int(re.findall(r"on the tape: (\d+)", text)[0]) <= most


def test_rounds_run_once_where_they_take_long_or_need_as_much():
    def by_rows(x, n):  # len(x) steps for each element of a stage
        y = x.copy()
        for _ in range(n):
            a, b = np.empty(len(y)), np.empty(len(y))
            for i in range(len(y)):
                s = 0.0
                for j in range(len(y)):
                    s += y[j] * x[i]
                a[i] = s * y[i]
                b[i] = a[i] * a[i]
            y += b * a
        return np.sum(y)

    def costly(x, n):
        y = x.copy()
        for _ in range(n):
            a = 0.5 * np.sin(y)
            b = a * a
            y += b * a
        return np.sum(y)

    def small_stages(x, n):
        y, a = x.copy(), np.empty(2)
        for _ in range(n):
            a[0] = y[0] * y[1]
            a[1] = a[0] * y[1]
            for i in range(len(y)):
                y[i] = 0.5 * y[i] * a[1] + y[i] * y[i]
        return np.sum(y)

    for f in (by_rows, costly, small_stages):
        assert "start of each round" not in adjit.kernel(f).explain(X, 3)


def test_arrays_that_rounds_write_before_they_read_them():
    def leftovers(x, n):
        y = x[0]
        odd, part, sums, ahead = np.zeros(3), np.zeros(3), np.zeros(3), np.zeros(3)
        short, fresh, grid = np.zeros(5), np.zeros(len(x)), np.zeros((3, len(x)))
        for t in range(n):
            for i in range(3):
                for _ in range(1 - t % 2):  # in each second round only
                    odd[i] = x[i] * y
            part[0] = y
            part[1] = x[1]
            if t % 3 == 0:
                part[2] = y * y
            sums[0] += y
            y += ahead[2] * odd[1] * part[2] * sums[0]
            for i in range(3):
                ahead[i] = x[i] * y
            for i in range(len(x)):  # nobody knows whether these are 5
                short[i] = x[i] * y
                fresh[i] = y * x[i]
                fresh[i] += 1.0
                grid[0, i] = y
                grid[1, i] = grid[0, i] * x[i]
            for i in range(len(x)):
                grid[2, i] = fresh[i]
            y = 0.5 * y + short[4] + fresh[1] * grid[2, 3]
        return y

    kinds = (numba.typeof(X), numba.types.int64)
    form = generated.typed_form(leftovers, kinds)
    (loop,) = (i for i in form.body.items if isinstance(i, Repeat))
    names = [f"a_{k}" if k else "a" for k in range(7)]  # of the arrays in their order
    assert [i.dst for i in form.body.items if isinstance(i, Make)] == names
    assert written_first(form, loop) == {"a_5", "a_6"}  # fresh, grid


def test_checks_of_sizes_that_are_known_are_dropped():
    def pair(x, y, n):
        a, b = np.empty(3), np.empty(3)
        s = 0.0
        for _ in range(n):
            for i in range(len(a)):
                a[i] = b[i] = s + i
            c = a * b + x
            d = x - a + y
            s += np.sum(c * d)
        return s

    code = text_of(pair, (X, X, 3)).partition("def way_back")[0]
    assert code.count("raise ValueError") == 2  # x beside a, y beside what is as long
    assert "range(n" not in code.replace("range(n):", "")
    assert_gradients(pair, X[:3].copy(), Y[:3].copy(), 2)
    with pytest.raises(ValueError, match="shapes of arrays do not agree"):
        adjit.value_and_grad(pair)(X[:3].copy(), Y[:2].copy(), 2)
    assert adjit.value_and_grad(pair)(X, Y, 0)[0] == 0.0  # no round, no check


def test_only_indices_that_may_be_negative_are_asked():
    def both(x, index):
        s = 0.0
        k = 0
        while k < len(index):
            s += x[k] * x[index[k]] * x[len(index) - k - 1] + x[2 * k // 3]
            k += 1
        for i in range(1, len(x)):
            x[i] = x[i - 1] * x[i - 2] + s
        return s + x[2]

    text = adjit.kernel(both).source(X, np.array([1, -1]))
    forward = text[text.index("def way_back") : text.index("# ----- back")]
    read = set(re.findall(r"x\[(nat\(.*?\)|.*?)\]", forward))
    natural = {index for index in read if index.startswith("nat(")}
    assert len(natural) == 4, read  # k, 2 * k // 3, i - 1, i
    assert "2" in read
    assert_gradients(both, X.copy(), np.array([1, -1]))


def test_no_more_is_kept_than_the_way_back_needs():
    def elimination(a):
        for k in range(len(a)):
            for j in range(k + 1, len(a)):
                for i in range(len(a)):
                    a[i, j] -= a[i, k] * a[k, j]
        return a[0, 2] * a[1, 2]

    def normalized(x, y):
        for _ in range(3):
            total = 0.0
            for i in range(len(x)):
                y[i] = math.exp(x[i])
                total += y[i]
            for i in range(len(x)):
                x[i] = y[i] / total
        return x[0] * x[1]

    def stencil(x):
        s = 0.0
        for i in range(len(x)):
            left = x[i] - x[i - 1] if i > 0 else x[i]
            s += left * left
        return s

    assert "_s +=" in adjit.kernel(sums_beside_stores).source(A)
    assert "_s +=" not in adjit.kernel(elimination).source(A)  # `a[k, j]` is among what is written
    assert "kept: left" not in adjit.kernel(stencil).explain(X)
    assert len(re.findall("kept: (?!old)", adjit.kernel(normalized).explain(X, Y))) == 1  # total


def test_names_of_a_branch_that_numba_knows_never_to_run():
    def known(x, a):
        m = 1
        if 1 > 2:
            m = 2
        s = a
        if m > 3:
            s = math.sin(a) * math.exp(x[0])
        return s * x[1]

    def in_rounds(x, y):
        for i in prange(len(x)):
            m = 1
            if 1 > 2:
                m = 2
            s = x[i]
            if m > 3:
                s = math.sin(s) * math.exp(x[i])
            y[i] = s * x[i]
        return np.sum(y)

    assert_gradients(known, X, 0.5, forward=False)
    _, (grad, _) = adjit.value_and_grad(njit(parallel=True)(in_rounds))(X, np.zeros_like(X))
    np.testing.assert_allclose(grad, 2 * X)
    text = adjit.kernel(known).source(X, 0.5)
    assert fuzz_kernels.read_unassigned(text) == []
    assert fuzz_kernels.read_unassigned(text.replace("if bool(t_1):", "if t_1:"))


@pytest.mark.parametrize("sizes", [(-1, 1), (1, -5), (-2, -3)])
def test_a_negative_size_is_an_error(sizes):
    """And clears no memory of others."""

    def filled(x, n, m):
        a = np.zeros((n, m))
        for i in range(n):
            for j in range(m):
                a[i, j] = x[i] * x[j]
        return np.sum(a * a) + x[0]

    for function in (filled, lambda *args: adjit.value_and_grad(filled)(*args)):
        with pytest.raises(ValueError, match="negative dimensions are not allowed"):
            function(X, *sizes)
    value, _ = adjit.value_and_grad(filled)(X, 2, 3)
    assert value == pytest.approx(filled(X, 2, 3))


def test_variables_named_like_keywords():
    def named(x):
        s = 0.0
        for i in range(len(x)):
            raised = (x[i] * x[i] + 1.0) * x[i]
            returned = 2 * x[i] + raised
            breaking = returned * x[i]
            elsewhere = breaking * raised if breaking > 0 else raised
            s += elsewhere
        return s

    assert_gradients(named, X)


@pytest.mark.parametrize("fill", [-0.0, 0.0, 2.5])
def test_arrays_are_filled_with_the_sign_of_zero(fill):
    def angle(x):
        a = np.full(2, fill)
        return math.atan2(a[1], -1.0) * x[0] + a[0]

    def returned(x):
        a = np.full(len(x), fill)
        return a * x

    value, _ = adjit.value_and_grad(angle)(X)
    assert value == angle(X)
    y = adjit.kernel(returned)(adjit.from_numpy(np.abs(X)))
    np.testing.assert_array_equal(np.signbit(y.numpy()), np.signbit(returned(np.abs(X))))


def fluxes(c, flux_along_the_rows, flux_along_columns):
    s = 0.0
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            along = flux_along_the_rows[i + 1, j] - flux_along_the_rows[i, j]
            s += (c[i, j] * (along + flux_along_columns[i, j + 1] - flux_along_columns[i, j])) ** 3
    return s


def diffused(x, c):
    out_field = np.empty_like(c)
    n, m = c.shape[0], c.shape[1]
    flx_field = 1.0 * (x[1 : n + 2, 1 : m + 1, :] - x[: n + 1, 1 : m + 1, :])
    fly_field = 1.0 * (x[1 : n + 1, 1 : m + 2, :] - x[1 : n + 1, : m + 1, :])
    out_field[:, :, :] = x[2 : n + 2, 2 : m + 2, :] - c[:, :, :] * (
        flx_field[1:, :, :] - flx_field[:-1, :, :] + fly_field[:, 1:, :] - fly_field[:, :-1, :]
    )
    return np.sum(out_field * out_field)


def test_lines_that_would_be_too_long_read_values_that_are_there():
    rng = np.random.default_rng(1)
    c, rows, columns = (rng.standard_normal(s) for s in ((4, 4), (5, 4), (4, 5)))
    assert_gradients(fluxes, c, rows, columns)
    args = [rng.standard_normal(s) for s in ((5, 4, 1), (3, 2, 1))]
    along = [rng.standard_normal(a.shape) for a in args]
    _, products = adjit.user_kernels.hvp(diffused)(*args, *along)
    gradient = adjit.value_and_grad(diffused)
    high, low = (
        gradient(*[a + by * d for a, d in zip(args, along, strict=True)])[1] for by in (1e-5, -1e-5)
    )
    for found, a, b in zip(products, high, low, strict=True):
        np.testing.assert_allclose(found, (a - b) / 2e-5, atol=1e-5)


def half_powers(x):
    s = 0.0
    for i in range(len(x)):
        s += x[i] ** 0.5 + x[i] ** 1.5 + x[i] ** -0.5 + x[i] ** -1.75 + x[i] ** -2.0
    return s


def test_derivatives_of_half_and_negative_powers_call_no_power():
    assert_gradients(half_powers, Y)
    kinds = (numba.typeof(Y),)
    text = generated.text_of(half_powers, kinds, (0,), "reverse")
    back = text.split("# ----- back -----")[1].split("return")[0].split("\n")
    assert not [line for line in back if "**" in line and "#" not in line]
    at = np.array([0.0, np.inf])
    for power, found in ((0.5, [np.inf, 0.0]), (1.5, [0.0, np.inf]), (-0.5, [-np.inf, 0.0])):

        def powers(x, power=power):
            return x[0] ** 0.5 if power == 0.5 else x[0] ** 1.5 if power == 1.5 else x[0] ** -0.5

        each = [adjit.value_and_grad(powers, wrt=0)(at[k : k + 1])[1][0][0] for k in range(2)]
        np.testing.assert_array_equal(np.abs(each), np.abs(found))
    narrow = adjit.value_and_grad(half_powers)(Y.astype(np.float32))[1][0]
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, adjit.value_and_grad(half_powers)(Y)[1][0], rtol=1e-4)


# ----- random programs -----


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("fuzz", [("fuzz_kernels.py", "12", "500"), ("fuzz_names.py", "150", "0")])
def test_random_programs_as_plain_python(fuzz):
    command = [sys.executable, str(Path(__file__).parent / fuzz[0]), *fuzz[1:]]
    env = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert fuzz_kernels.Program(1).source() == fuzz_kernels.Program(1).source()


# ----- NumPy arrays beside tensors that need gradients -----


def squares_in(x, tmp):
    y = np.empty_like(x)
    for i in range(len(x)):
        tmp[i] = x[i] ** 2
    for i in range(len(x)):
        y[i] = tmp[i] * x[i]
    return y


def running(x, s):
    y = np.empty_like(x)
    for i in range(len(x)):
        s[0] += x[i]
        y[i] = s[0] * x[i]
    return y


def sum_in(x, tmp):
    for i in range(len(x)):
        tmp[i] = x[i] ** 3
    return np.sum(tmp)


def flagged(x, flags):
    s = 0.0
    for i in range(len(x)):
        flags[i] = x[i] > 0.5
        s += x[i] ** 2
    return s


def weighted(x, w):
    y = np.empty_like(x)
    for i in range(len(x)):
        y[i] = w[i] * x[i] ** 2
    return y


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize(
    ("function", "beside", "left", "slope"),
    [
        (squares_in, np.zeros(3), [0.09, 0.49, 1.21], [0.27, 1.47, 3.63]),
        (running, np.array([1.0]), [3.1], [3.4, 3.8, 4.2]),
        (sum_in, np.zeros(3), [0.027, 0.343, 1.331], [0.27, 1.47, 3.63]),
        (flagged, np.zeros(3, bool), [False, True, True], [0.6, 1.4, 2.2]),
        (flagged, np.zeros(3, np.int64), [0, 1, 1], [0.6, 1.4, 2.2]),
    ],
    ids=["scratch", "state", "scratch of a number", "flags", "whole numbers"],
)
def test_what_a_kernel_writes_beside_a_gradient(function, beside, left, slope, as_tensor):
    """In a NumPy array, as in a tensor: the array has it, and the way back knows of it."""
    kernel = adjit.kernel(function)
    for _ in range(3):  # known calls too
        x = adjit.tensor([0.3, 0.7, 1.1], dtype=adjit.float64, requires_grad=True)
        given = adjit.tensor(beside) if as_tensor else beside.copy()
        kernel(x, given).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), slope)
        found = given.detach().numpy() if as_tensor else given
        np.testing.assert_allclose(found, left)
        assert not as_tensor or given.requires_grad is given.dtype.is_floating_point


def test_arrays_may_change_before_the_way_back():
    kernel, w = adjit.kernel(weighted), np.empty(3)
    for _ in range(3):
        w[:] = 1, 2, 3
        x = adjit.tensor([0.3, 0.7, 1.1], dtype=adjit.float64, requires_grad=True)
        y = kernel(x, w)
        w[:] = 100
        y.sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), [0.6, 2.8, 6.6])


def test_gradients_are_not_lost_in_arrays():
    def into(x, out):
        for i in range(len(x)):
            out[i] = x[i] ** 2

    kernel, x = (
        adjit.kernel(into),
        adjit.tensor([0.5, 2.0], dtype=adjit.float64, requires_grad=True),
    )
    with pytest.raises(
        RuntimeError, match="into returns nothing and writes into NumPy arrays alone"
    ):
        kernel(x, np.zeros(2))
    out = np.zeros(2)
    kernel(x.detach(), out)
    assert out.tolist() == [0.25, 4.0]
    with pytest.raises(RuntimeError, match="writes into its argument tmp, a NumPy array"):
        adjit.func.jvp(
            lambda x: adjit.kernel(squares_in)(x, np.zeros(2)), (x.detach(),), (adjit.ones_like(x),)
        )


# ----- global arrays -----

FILTER = np.array([0.25, 0.5, 0.3])
TAPS = FILTER.astype(np.float32)
NODES, WEIGHTS = np.polynomial.legendre.leggauss(4)
TABLES = (np.array([[1, 2], [3, 4]]), 2.0)


def blurred(x, gain):
    y = np.zeros_like(x)
    for i in range(1, len(x) - 1):
        for k in range(3):
            y[i] += FILTER[k] * x[i + k - 1] * gain
    return np.sum(y * y) + np.dot(x[:3], FILTER)


def integrated(a, b):
    s = 0.0
    for k in range(len(NODES)):
        s += WEIGHTS[k] * np.exp(-((0.5 * (b - a) * NODES[k] + 0.5 * (a + b)) ** 2))
    return 0.5 * (b - a) * s


def from_tables(x):
    s = 0.0
    for i in range(len(x)):
        s += x[i] ** TABLES[0][i % 2, 1] * TABLES[1] + np.rint(x[i] * 3) * x[i]
    return s


def test_global_arrays_are_constants():
    assert_gradients(blurred, X, 0.7)
    assert_gradients(integrated, 0.1, 1.3)
    assert_gradients(from_tables, Y)


def test_a_global_array_of_float32_keeps_its_dtype():
    def scaled(x):
        return x[:3] * TAPS

    assert adjit.kernel(scaled)(X.astype(np.float32)).dtype == np.float32


@pytest.fixture
def written():
    """Global arrays, which are afterwards what they were."""
    before = FILTER.copy(), TABLES[0].copy()
    yield FILTER, TABLES[0]
    FILTER[:], TABLES[0][:] = before


def test_global_arrays_that_are_written_between_calls(written):
    """Numba goes on with the elements that they had when it compiled."""
    x = adjit.tensor(X, requires_grad=True)
    kernel = adjit.kernel(blurred)
    captured = adjit.compile(lambda x: kernel(x, 0.7) * 2)
    first, twice = kernel(x, 0.7).item(), captured(x).item()
    assert twice == 2 * first
    written[0][1] = 4.0
    expected = blurred(X, 0.7)
    assert expected != pytest.approx(first)
    assert kernel(x, 0.7).item() == pytest.approx(expected, rel=1e-12)
    assert captured(x).item() == pytest.approx(2 * expected, rel=1e-12)
    assert adjit.kernel(from_tables)(Y) == pytest.approx(from_tables(Y), rel=1e-12)
    written[1][0, 1] = 3
    np.testing.assert_allclose(adjit.kernel(from_tables)(Y), from_tables(Y), rtol=1e-12)


def test_global_arrays_are_not_written():
    def writes(x):
        y = FILTER
        y[0] = x[0]
        return x * 1.0

    def returns(x):
        return FILTER

    with pytest.raises(NotDifferentiable, match="a write into a global array cannot"):
        adjit.kernel(writes)(X)
    found = adjit.kernel(returns)(X)
    found[0] = 9.0
    assert FILTER[0] == 0.25
    with pytest.raises(NotDifferentiable, match="a global array cannot"):
        adjit.elementwise(of_a_table)(adjit.ones(2))


def of_a_table(x):
    return x * FILTER[0]


# ----- calls that write, beside arithmetic on arrays -----


@njit
def raised(x):
    x[0] += 1.0
    return x[0]


@njit
def weighed(a, b):
    return np.sum(a) * b


def first_an_argument(x):
    return weighed(x * 2.0, raised(x))


def first_a_test(x):
    return np.logical_and(x > 0.2, raised(x) > 0.0).sum()


def first_clipped(x):
    return (x * 2.0).clip(-9.0, raised(x)).sum()


def first_chosen(x):
    return np.where(x > 0.2, x * 2.0, raised(x)).sum()


def first_summed(x):
    return np.sum(x * 2.0) + raised(x)


def another_array(x):
    y = x * 1.0
    return np.sum(x * 2.0 + raised(y))


@pytest.mark.parametrize("f", [first_an_argument, first_summed, another_array])
def test_arithmetic_is_read_before_a_call_that_writes(f):
    assert_gradients(f, Y, forward=f is another_array)


@pytest.mark.parametrize("f", [first_a_test, first_clipped, first_chosen])
def test_arithmetic_that_a_call_beside_it_may_change_is_refused(f):
    with pytest.raises(NotDifferentiable, match="beside a call that writes into arrays cannot"):
        adjit.kernel(f)(Y.copy())


NUMBER = np.array(3.0)


def of_no_axes(x):
    return x * NUMBER


def test_a_global_array_without_axes_is_refused():
    with pytest.raises(NotDifferentiable, match=r"a global array of shape \(\) and float64 cannot"):
        adjit.kernel(of_no_axes)(Y)
    with pytest.raises(NotDifferentiable, match=r"argument 1 of .* has the type array"):
        adjit.kernel(weighed)(Y, np.array(2.0))
