"""Functions of NumPy's in users' kernels: values, ways back and tangents of each beside differences.

Most run as plain Python, in a process without Numba's compiler; what Numba's own functions give is compared
where it could differ, as in the order of equal elements.
"""

import importlib.util
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit
from test_user_kernels import assert_gradients, copies

import adjit
from adjit.user_kernels import NotDifferentiable

GIVEN = {
    "x": np.array([0.31, -0.72, 1.43, 0.17, -1.11, 0.58]),
    "y": np.array([0.83, 0.41, 1.19, 0.64, 0.97, 0.36]),
    "a": np.random.default_rng(3).standard_normal((3, 4)),
    "b": np.random.default_rng(4).standard_normal((4, 3)),
    "s": np.random.default_rng(5).standard_normal((3, 3)),
    "t": np.random.default_rng(6).standard_normal((2, 3, 4)),
}

# Parameters, and what is computed of them.
EXPRESSIONS = """
x: np.sort(x)
a: np.sort(a)
x,y: y[np.argsort(x)] * x
x,y: y[np.argsort(x, kind='mergesort')]
x: x[x.argsort()[1:4]]
x: np.argsort(x) * x
x: np.unique(x)
x: np.median(x)
x: np.median(x[:5])
a: np.median(a)
x: np.nanmedian(x)
x: np.quantile(x, 0.3)
x: np.quantile(x, np.array([0.0, 1.0, 0.5]))
x: np.percentile(x, [30.0, 60.0])
x: np.nanquantile(x, 0.3)
x,y: x[np.searchsorted(y.cumsum(), 1.0)]
x,y: x[np.searchsorted(y.cumsum(), 1.0, side='right')]
x,y: y[np.searchsorted(y.cumsum()[:5], y)]
x,y: y[np.digitize(x, np.array([-0.5, 0.0, 0.5]))] * x
x,y: y[np.digitize(x, np.array([0.5, 0.0, -0.5]), right=True)] * x
x,y: np.interp(0.3, y.cumsum(), x)
x,y: np.interp(x, y.cumsum(), y)
y: np.interp(np.array([0.0, 1.0, 0.5, 3.0]), np.array([0.0, 0.5, 1.0, 2.0]), y[:4])
x,y: np.histogram(x, 4)[0] * y[:4]
x: np.histogram(x, 4)[1]
x,y: np.histogram(x, 4, (-1.0, 2.0))[0] * y[:4]
x,y: np.histogram(x, np.array([-1.0, 0.0, 0.5, 2.0]))[0] * y[:3]
x: np.bincount(np.array([0, 1, 1, 0, 2, 2]), weights=x, minlength=5)
x: np.bincount(np.array([0, 1, 1, 0, 2, 2])) * x[:3]
x,y: y[np.argmax(x)] * y[x.argmin()]
a: a.ravel()[np.argmax(a)]
a,y: y[np.argmax(a, axis=0)[1]] * y[np.argmin(a, axis=1)[2]]
s: np.triu(s)
a: np.triu(a, 1)
a: np.tril(a, -1)
a: np.tri(3, 4) * a
a: np.eye(3, 4, 1) * a
x: np.diag(x, 1)
s: np.diag(s, -1)
x: np.diagflat(x)
s: np.trace(s, 1)
a: np.flip(a)
a: np.fliplr(a)
a: np.flipud(a)
x: np.flip(x[1:5])[::2]
a: np.rot90(a)
a: np.rot90(a, 2)
a: np.rot90(a, 3)
a: np.roll(a, 2)
x: np.repeat(x, 2)
a: a.repeat(2)
x: np.repeat(x, np.array([1, 0, 2, 1, 3, 1]))
x: np.take(x, np.array([2, 1, 0]))
a: np.take(a, -3)
x: np.extract(x > 0, x)
x: x[np.flatnonzero(x > 0)]
x: x[(x > 0).nonzero()]
x: x[np.argwhere(x > 0)[1, 0]]
x,y: np.append(x, y)
x: np.append(x, x[1])
x: np.delete(x, -2)
x: np.vander(x, 3)
x: np.logspace(x[0], x[1], 5)
x: np.linspace(x[0], x[1], 1)
a: np.swapaxes(a, 0, 1)
a: a.transpose()
t: np.transpose(t, (2, 0, 1))
a,x: np.broadcast_to(x[:4], (3, 4)) * a
x: np.split(x, (2, 4))[1] * np.split(x, 3)[0]
x: np.array_split(x, 4)[1]
a: np.hsplit(a, 2)[1] * np.vsplit(a, 3)[1][0, 2:]
x: np.atleast_1d(x[0])
x: np.atleast_2d(x)
a,y: np.outer(a, y)
a,b: np.kron(a, b)
x,y: np.kron(x, y)
x,y: np.inner(x, y)
x,y: np.convolve(x, y)
x,y: np.convolve(x, y[:3], 'same')
x,y: np.convolve(x[:2], y, 'same')
x,y: np.convolve(x, y[:3], mode='valid')
x,y: np.correlate(x, y[:3])
x,y: np.correlate(x[:3], y)
x,y: np.correlate(x, y[:4], 'same')
x,y: np.correlate(x[:2], y, 'same')
x,y: np.correlate(x[:3], y, 'full')
a: np.cumsum(a)
a: np.cumprod(a)
x: np.nancumsum(x)
x: np.nancumprod(x)
x: np.cumsum(x > 0) * x
x: np.diff(x, 2)
a: np.diff(a)
x: np.ediff1d(x)
x: np.trapezoid(x)
x: np.trapezoid(x, dx=0.5)
x,y: np.trapezoid(x, y)
x,y: np.average(x, weights=y)
a: np.cov(a)
x: np.cov(x)
x,y: np.cov(x, y)
a: np.cov(a, rowvar=False, bias=True)
a: np.corrcoef(a)
x,y: np.corrcoef(x, y)
a: np.prod(a)
x: np.linalg.norm(x, 1)
x: np.linalg.norm(x, np.inf)
x: np.linalg.norm(x, 3)
a: np.linalg.norm(a, 1)
s: np.linalg.matrix_power(s, 3)
x,y: np.select([x > 1.0, x > 0.0], [x * 2.0, y], 0.5)
x: x[0] if np.allclose(x, x) else x[1]
x: np.where(np.isclose(x, x + 1e-12), x, 0.0)
x: x[0] if np.array_equal(x, x) else x[1]
x: np.clip(x, None, 0.5)
x,y: np.logaddexp(x, y)
x,y: np.logaddexp2(x, y)
x,y: np.fmod(x, y) * math.fmod(x[1], y[0])
x: np.cbrt(x)
x: np.where(np.isin(x, x[2:4]), x, 0.0)
x,y: np.union1d(x, y)
x: np.unwrap(x * 9)
x: np.ldexp(x, 2)
a: np.stack((a, a * a), axis=1)
a: np.dstack((a, a * a))
x: np.real(x) * np.conj(x)
x: np.sinc(x)
x: np.sinc(x * 0.0)
x: np.heaviside(x, 0.5) * x
x,y: np.fmax(x, y) * np.fmin(x, y)
x: np.nan_to_num(x)
x: np.where(np.logical_xor(x > 0, x < 1), x, 0.0)
x: np.where(np.signbit(x), x, 2 * x)
x: np.round(x) * x.round() * np.fix(x) * np.positive(x)
x: np.divmod(x, 0.3)[1]
a: np.shape(a)[1] * a * np.ndim(a)
x: np.bartlett(6) * np.blackman(6) * np.hamming(6) * np.hanning(6) * x
"""  # fmt: skip
NAMES = "nanmean nanvar nanstd nanmax nanmin nanprod"
CASES = [tuple(line.split(": ", 1)) for line in EXPRESSIONS.strip().splitlines()]
CASES += [("x", f"np.{name}(x)") for name in NAMES.split()]

HEAD = """import math

import numpy as np


def total1(v):
    t = 0.0
    for i in range(v.shape[0]):
        t += v[i] * math.sin(i * 1.7 + 0.3)
    return t


def total2(v):
    t = 0.0
    for i in range(v.shape[0]):
        for j in range(v.shape[1]):
            t += v[i, j] * math.sin(i * 1.7 + 0.3 + j)
    return t


def total3(v):
    t = 0.0
    for i in range(v.shape[0]):
        t += total2(v[i]) * (i + 0.5)
    return t
"""


# ----- several statements -----


def of_flat(a):
    s = 0.0
    for v in a.flat:
        s += v * v * s + v
    for k, v in enumerate(a.flat):
        s += k * v * v
    return s


def until_flat(a):
    s = 0.0
    for v in a.flat:
        if v > 0.9:
            break
        s += v * v
    return s


def over_indices(a):
    s = 1.0
    for i, j in np.ndindex(a.shape):
        if a[i, j] < 0:
            continue
        s = s * a[i, j] + (i + 2 * j)
    for i, j in np.ndindex(3, 4):
        if i == 1 and j == 2:
            break
        s += a[i, j] ** 2
    return s


def over_both(a):
    s = 1.0
    for (i, j), v in np.ndenumerate(a):
        s += v * v * (i + 2 * j)
    for index, v in np.ndenumerate(a):
        if index[0] == 2:
            return s * a[index]
        s += v * s
    return s


def into_flat(a):
    y = a.copy()
    y.flat[3] = y.flat[2] * 2.0
    y.flat[-1] *= y.flat[0]
    return np.sum(y * y)


def sorts_in_place(x):
    y = x * x
    y.sort()
    return y[0] + 2.0 * y[1] * y[5]


def sorts_in_rounds(a):
    s = np.zeros(4)
    for i in range(3):
        y = np.sort(a[i] * (1.0 + s))
        o = np.argsort(y * a[0])
        s = s + y[o] * y
    return np.sum(s)


def sorts_many(a, b):
    t = np.empty(60)
    for k in range(60):
        t[k] = math.sin(k * 1.3 + a[0, 0]) * b[k % 4, k % 3]
    t = np.sort(t)
    return t[0] + t[31] * t[59] + np.quantile(t, 0.77)


def indexed_by_calls(x):
    y = x.copy()
    y[np.argsort(x)] = x * x
    y[np.argmax(x)] += 2.0 * x[0]
    y[np.where(x > 1.0)] = 0.0
    return np.sum(y) * x[int(np.sum(x > 0))]


def writes_into_flipped(x):
    y = x.copy()
    z = np.flip(y)
    z[0] = 2.0 * z[1]
    return np.sum(y * y)


def writes_into_parts(x):
    y = x.copy()
    a, _, c = np.split(y, 3)
    a[0] = c[1] * 2.0
    return np.sum(y * y * y)


def fills_diagonals(s):
    y, z = s.copy(), s.copy()
    np.fill_diagonal(y, 2.0)
    np.fill_diagonal(z, s[0, 1])
    return np.sum(y * z * z)


def of_triangles(s):
    i, j = np.triu_indices(3, 1)
    k, m = np.tril_indices(3)
    t = 0.0
    for n in range(len(i)):
        t += s[i[n], j[n]] ** 2
    for n in range(len(k)):
        t += s[k[n], m[n]] ** 3
    return t


def by_one_factorization(s, x):
    a = s @ s.T + np.eye(3)
    t = np.linalg.det(a) + np.linalg.slogdet(a)[1] * np.sum(np.linalg.inv(a))
    return t * np.sum(np.linalg.solve(a, x[:3]))


def by_factors_of_what_was_written(s, x):
    """A matrix that is written between two uses, in rounds and in branches, has other factors."""
    a = s @ s.T + np.eye(3)
    t = np.linalg.det(a)
    for i in range(3):
        if x[i] > 0:
            t += np.linalg.det(a) * x[i]
        a[i, i] += x[i] * x[i]
        t += np.linalg.det(a) + np.sum(np.linalg.inv(a))
        b = a[:2, :2]
        b[0, 1] *= 0.5
        t += np.linalg.det(a)
    return t + np.linalg.det(a)


FUNCTIONS = [
    (of_flat, "a"), (until_flat, "a"), (over_indices, "a"), (over_both, "a"), (into_flat, "a"),
    (sorts_in_place, "x"), (sorts_in_rounds, "a"), (sorts_many, "ab"), (indexed_by_calls, "x"),
    (by_one_factorization, "sx"),
    (by_factors_of_what_was_written, "sx"), (writes_into_flipped, "x"),
    (writes_into_parts, "x"), (fills_diagonals, "s"), (of_triangles, "s"),
]  # fmt: skip


def written(folder):
    """A module with a function for each expression, and those functions with their arguments."""
    parts = [HEAD]
    for k, (names, expression) in enumerate(CASES):
        found = eval(expression, {"np": np, "math": math, **GIVEN})
        total = f"total{np.ndim(found)}(v)" if np.ndim(found) else "v"
        name = ", ".join(names.split(","))
        parts.append(f"\n\ndef f_{k}({name}):\n    v = {expression}\n    return {total}\n")
    path = Path(folder, "expressions_of_numpy.py")
    path.write_text("".join(parts))
    spec = importlib.util.spec_from_file_location("expressions_of_numpy", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["expressions_of_numpy"] = module
    spec.loader.exec_module(module)
    return [(getattr(module, f"f_{k}"), names.split(",")) for k, (names, _) in enumerate(CASES)]


def check_in_python(folder):
    for (f, names), (_, expression) in zip(written(folder), CASES, strict=True):
        print(expression, flush=True)
        assert_gradients(f, *copies([GIVEN[n] for n in names]))
    for f, names in FUNCTIONS:
        print(f.__name__, flush=True)
        assert_gradients(f, *copies([GIVEN[n] for n in names]))


@pytest.mark.in_turn(2)
def test_functions_as_plain_python(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", f"import test_numpy_kernels as t; t.check_in_python({str(tmp_path)!r})"],
        capture_output=True, text=True, cwd=Path(__file__).parent,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == len(CASES) + len(FUNCTIONS)


def test_one_matrix_is_factored_once():
    for f, count in ((by_one_factorization, 1), (by_factors_of_what_was_written, 5)):
        source = adjit.kernel(f).source(GIVEN["s"], GIVEN["x"])
        assert (
            len(re.findall(r" step_of\w* = ", source)) == 2 * count
        )  # the function, and its way back


# ----- compiled -----


def of_equal_elements(k, v):
    return np.dot(v[np.argsort(k)], np.arange(40.0)) + np.dot(v[np.argsort(k, kind="mergesort")], v)


def of_places(x, xs, v):
    """What finds places, of numbers that are none, too."""
    i = np.searchsorted(xs, x)
    j = np.searchsorted(xs, x, side="right")
    k = np.digitize(x, xs)
    s = 0.0
    for n in range(len(x)):
        s += v[i[n]] * (1 + n) + v[j[n]] * (2 + n) + v[k[n]] * (3 + n)
    return s + v[np.argmax(x)] * v[np.argmin(x)]


def between(x, xs, ys):
    return np.interp(x, xs, ys)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("f", "args"),
    [
        (of_equal_elements, (np.arange(40.0) % 7, np.linspace(0.1, 0.9, 40))),
        (
            of_places,
            (
                np.array([0.5, 0.2, np.nan, 3.0, 1.0]),
                np.array([0.2, 0.5, 1.0]),
                np.arange(1.0, 5.0),
            ),
        ),
    ],
)
def test_orders_and_places_are_those_of_numba(f, args):
    value, grads = adjit.value_and_grad(f, wrt=len(args) - 1)(*args)
    of_numba = njit(f)
    assert value == of_numba(*args)
    slope = np.zeros(len(args[-1]))
    for k in range(len(slope)):
        values = []
        for sign in (1, -1):
            moved = copies(args)
            moved[-1][k] += sign * 1e-6
            values.append(of_numba(*moved))
        slope[k] = (values[0] - values[1]) / 2e-6
    np.testing.assert_allclose(grads[0], slope, rtol=1e-7, atol=1e-6)


def test_interpolation_has_the_bits_of_numba():
    xs, ys = np.array([0.1, 0.2, 0.7, 1.1]), np.array([0.3, -0.2, 0.9, 0.4])
    of_numba = njit(between)
    for x in (0.0, 0.1, 0.2, 0.3, 0.7, 0.9, 1.1, 2.0, np.nan):
        found = adjit.value_and_grad(between)(x, xs, ys)[0]
        np.testing.assert_array_equal(found, of_numba(x, xs, ys))


def middle(x):
    return np.median(x)


def test_medians_of_float32_are_those_of_numba():
    x = np.array([0.1, 0.7, 0.3, 0.2], np.float32)
    for n in (3, 4):
        assert adjit.value_and_grad(middle)(x[:n])[0] == njit(middle)(x[:n])


def in_place(x):
    return np.sum(np.nan_to_num(x, copy=False))


def written_beside_what_was_broadcast(x):
    y = x.copy()
    wide = np.broadcast_to(y, (2, 6))
    y[0] = 3.0 * x[1]
    return wide[1, 0] * x[0]


def widths(x):
    return np.quantile(x, 1.5) * x[0]


def steps(x, n):
    return np.sum(np.diff(x, n))


def chosen(x):
    return np.sum(np.sort(x[None, None, :]))


@pytest.mark.parametrize(
    ("f", "args", "error", "what"),
    [
        (widths, (GIVEN["x"],), ValueError, "Quantiles must be between"),
        (steps, (GIVEN["x"], 2), NotDifferentiable, "no number of the text"),
        (chosen, (GIVEN["x"],), NotDifferentiable, "`sort` of an array of 3 dimensions"),
        (in_place, (GIVEN["x"],), NotDifferentiable, "np.nan_to_num in place"),
        (
            written_beside_what_was_broadcast,
            (GIVEN["x"],),
            NotDifferentiable,
            "another of its names",
        ),
    ],
)
def test_what_is_refused(f, args, error, what):
    with pytest.raises(error, match=what):
        adjit.value_and_grad(f)(*args)
