"""Functions of statistics and physics, beside mpmath's digits: a few units of the last place everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from against_torch import agree, agree_in_error, agree_in_gradients
from mpmath import mp
from scipy import special

import adjit

ULPS = 4.0
INF, NAN = float("inf"), float("nan")


def normal(x: Any) -> Any:
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def quantile(p: Any) -> Any:
    """The number below which a normal one is with probability p, by Newton's method in log(p)."""
    y = mpmath.mpf(float(special.ndtri(float(p))))
    for _ in range(6):
        below = normal(y)
        density = mpmath.exp(-y * y / 2) / mpmath.sqrt(2 * mpmath.pi)
        y -= mpmath.log(below / p) * below / density
    return y


EXACT: dict[str, Callable[[Any], Any]] = {
    "erfcx": lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
    "ndtr": normal,
    "log_ndtr": lambda x: mpmath.log(normal(x)) if x < 1 else mpmath.log1p(-normal(-x)),
    "ndtri": quantile,
    "entr": lambda x: -x * mpmath.log(x),
    "i0": lambda x: mpmath.besseli(0, x),
    "i1": lambda x: mpmath.besseli(1, x),
    "i0e": lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)),
    "i1e": lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)),
}
# Where they are neither 0 nor infinite, at float32 and at float64.
RANGES = {
    "erfcx": ((-9, 60), (-26, 90)),
    "ndtr": ((-13, 6), (-37, 9)),
    "log_ndtr": ((-300, 13), (-1000, 37)),
    "entr": ((1e-30, 50), (1e-200, 50)),
    "i0": ((-88, 88), (-713, 713)),
    "i1": ((-88, 88), (-713, 713)),
    "i0e": ((-300, 300), (-1000, 1000)),
    "i1e": ((-300, 300), (-1000, 1000)),
}


def points(name: str, dtype: str) -> np.ndarray:
    rng = np.random.default_rng(len(name))
    if name == "ndtri":
        least = -37 if dtype == "float32" else -300
        found = [rng.uniform(0, 1, 60), 10.0 ** rng.uniform(least, 0, 60)]
        return np.concatenate([*found, 1 - 10.0 ** rng.uniform(-6, 0, 30)]).astype(dtype)
    low, high = RANGES[name][dtype == "float64"]
    near = max(low, -9), min(high, 9)
    drawn = [rng.uniform(low, high, 80), rng.uniform(*near, 80), 10.0 ** rng.uniform(-20, 0, 20)]
    return np.concatenate(drawn).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", EXACT)
def test_a_few_units_of_the_last_place(name: str, dtype: str) -> None:
    x = points(name, dtype)
    found = getattr(adjit.special, name)(adjit.tensor(x)).numpy()
    with mp.workdps(40):
        for at, value in zip(x, found, strict=True):
            exact = EXACT[name](mpmath.mpf(float(at)))
            unit = np.spacing(abs(np.dtype(dtype).type(float(exact))))
            if np.isfinite(unit):
                error = abs(mpmath.mpf(float(value)) - exact) / mpmath.mpf(float(unit))
                assert error <= ULPS, (float(at), float(value), float(exact))


def exact_zeta(s: float, x: float) -> Any:
    """By mpmath; below 0 the terms on the way there one by one."""
    steps = max(0, -int(np.floor(x)))
    terms = [(mpmath.mpf(x) + n) ** -int(s) for n in range(steps)]
    return mpmath.zeta(s, mpmath.mpf(x) + steps) + mpmath.fsum(terms)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zeta_to_a_few_units(dtype: str) -> None:
    rng = np.random.default_rng(3)
    s = np.concatenate([1 + 10 ** rng.uniform(-4, 1, 80), rng.integers(2, 9, 80)]).astype(dtype)
    x = np.concatenate([10 ** rng.uniform(-1, 1, 80), -rng.uniform(0, 20, 80)]).astype(dtype)
    found = adjit.special.zeta(adjit.tensor(s), adjit.tensor(x)).numpy()
    with mp.workdps(40):
        for power, at, value in zip(s.tolist(), x.tolist(), found.tolist(), strict=True):
            exact = exact_zeta(power, at)
            nearest = min(at % 1, -at % 1) ** -power if at < 0 else 0.0  # of terms that cancel
            size = max(abs(float(exact)), nearest)
            error = abs(mpmath.mpf(value) - exact) / size
            assert error <= ULPS * np.finfo(dtype).eps, (power, at, value, float(exact))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zeta_far_below_zero(dtype: str) -> None:
    """Terms beside the next pole from both sides, and how far it is to 0 counts no more."""
    x = np.array([-1000.25, -65536.5, -4000000.5], dtype)
    found = adjit.special.zeta(adjit.tensor(4.0, dtype=getattr(adjit, dtype)), adjit.tensor(x))
    exact = special.zeta(4.0, x % 1) + special.zeta(4.0, -x % 1)
    exact -= special.zeta(4.0, 1 - x.astype(float))
    np.testing.assert_allclose(found.numpy(), exact, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zeta_of_odd_powers_at_halves_below_zero(dtype: str) -> None:
    """Terms on both sides of 0 are each other's negatives: what lies beyond them has all of its digits."""
    s = np.array([33, 33, 33, 5, 3, 201, 2001], dtype)
    x = np.array([-0.5, -1.5, -7.5, -2.5, -1.5, -0.5, -3.5], dtype)
    found = adjit.special.zeta(adjit.tensor(s), adjit.tensor(x)).numpy()
    exact = special.zeta(s.astype(float), 1 - x.astype(float))
    np.testing.assert_allclose(
        found, exact, rtol=4 * np.finfo(dtype).eps, atol=np.finfo(dtype).tiny
    )


EDGES = {
    "erfcx": [(0.0, 1.0), (INF, 0.0), (-INF, INF), (-30.0, INF), (1e300, 5.641895835477563e-301)],
    "ndtr": [(0.0, 0.5), (INF, 1.0), (-INF, 0.0), (-40.0, 0.0)],
    "log_ndtr": [(INF, 0.0), (-INF, -INF), (-1e10, -5e19), (40.0, 0.0)],
    "ndtri": [(0.0, -INF), (1.0, INF), (0.5, 0.0), (-0.1, NAN), (1.5, NAN), (5e-324, -38.46740561714434)],
    "entr": [(0.0, 0.0), (-0.0, 0.0), (-1.0, -INF), (-INF, -INF), (INF, -INF), (1.0, 0.0)],
    "i0": [(0.0, 1.0), (INF, INF), (-INF, INF), (720.0, INF)],
    "i1": [(0.0, 0.0), (INF, INF), (-INF, -INF), (-720.0, -INF), (1e-310, 5e-311)],
    "i0e": [(0.0, 1.0), (INF, 0.0), (-INF, 0.0)],
    "i1e": [(0.0, 0.0), (INF, 0.0), (-INF, -0.0)],
}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_edges(name: str) -> None:
    x, wanted = np.array([*EDGES[name], (NAN, NAN)]).T
    found = getattr(adjit.special, name)(adjit.tensor(x)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-15)


INSIDE = np.array([0.05, 0.3, 0.5, 0.8])


@pytest.mark.parametrize("name", EXACT)
def test_derivatives_are_those_of_pytorch(name: str) -> None:
    x = INSIDE if name in ("ndtri", "entr") else np.array([-2.5, -0.4, 0.0, 0.3, 1.7, 9.5])
    agree_in_gradients(lambda lib, t: getattr(lib.special, name)(t), x, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_slope_of_erfcx_far_out_has_digits(dtype: str) -> None:
    """2 x erfcx(x) - 2 / sqrt(pi), which it is, has few left there."""
    x = adjit.tensor(np.array([20.5, 25, 100, 1e5, 1e12], dtype), requires_grad=True)
    (found,) = adjit.autograd.grad(adjit.special.erfcx(x).sum(), x)
    with mp.workdps(60):
        exact = [
            2 * mpmath.mpf(v) * mpmath.exp(mpmath.mpf(v) ** 2) * mpmath.erfc(mpmath.mpf(v))
            - 2 / mpmath.sqrt(mpmath.pi)
            if v < 1e3
            else (1.5 / mpmath.mpf(v) ** 2 - 1) / (mpmath.sqrt(mpmath.pi) * mpmath.mpf(v) ** 2)
            for v in x.detach().double().tolist()
        ]
    rtol = 1e-6 if dtype == "float32" else 2e-12
    np.testing.assert_allclose(found.numpy(), np.array(exact, float), rtol=rtol)


def test_products_with_logarithms() -> None:
    x, y = np.array([0.0, 0.0, 2.0, NAN, 0.0]), np.array([-1.0, INF, 1.0, 1.0, NAN])
    for call in (
        lambda lib, a, b: lib.special.xlog1py(a, b),
        lambda lib, a, b: lib.special.xlog1py(2, b),
        lambda lib, a, b: lib.special.xlog1py(a, 3.0),
    ):
        agree(call, x, y)
    agree_in_gradients(lambda lib, a, b: lib.special.xlog1py(a, b), INSIDE, INSIDE * 2)


def test_gamma_functions_of_several_dimensions() -> None:
    x = np.array([2.6, 3.0, 10.5])
    for p in (1, 2, 5):
        agree(lambda lib, t, p=p: lib.mvlgamma(t, p), x, rtol=1e-12)
        agree_in_gradients(lambda lib, t, p=p: lib.special.multigammaln(t, p), x)
    agree(lambda lib, t: t.mvlgamma(2), np.array([3, 4]))
    agree(lambda lib, t: t.clone().mvlgamma_(2), x, rtol=1e-12)
    agree_in_error(lambda lib, t: lib.mvlgamma(t, 0), x)
    agree_in_error(lambda lib, t: lib.mvlgamma(t, 2.5), x)
    agree_in_error(lambda lib, t: lib.mvlgamma(t, 1), np.array([True]))


# ----- incomplete gamma functions -----


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 5e-4), ("float64", 2e-10)])
@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_incomplete_gamma_functions_have_digits_in_both_tails(
    name: str, dtype: str, rtol: float
) -> None:
    rng = np.random.default_rng(0)
    alpha = 10.0 ** rng.uniform(-2, 2, 400)
    x = alpha * 10.0 ** rng.uniform(-2, 0.7, 400)
    alpha, x = alpha.astype(dtype), x.astype(dtype)
    wanted = getattr(special, name)(alpha.astype("float64"), x.astype("float64"))
    found = getattr(adjit.special, name)(adjit.tensor(alpha), adjit.tensor(x)).numpy()
    kept = wanted > 1e-30
    assert kept.mean() > 0.8
    np.testing.assert_allclose(found[kept], wanted[kept], rtol=rtol)


@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_incomplete_gamma_functions_of_what_is_computed_apart(name: str) -> None:
    """Edges, series, tails and large shapes in any order, more of them than are gathered at once."""
    rng = np.random.default_rng(1)
    points = np.array([[0, 2], [INF, 2], [2, 0], [2, INF], [-1, 2], [2, -1], [NAN, 2], [0, 0]])
    low, high = (
        np.array([[0.01, 0.01], [1, 0.01], [100, 90]]),
        np.array([[1, 1], [9, 9], [200, 240]]),
    )
    kinds = rng.integers(0, 3, 3000)
    alpha, x = rng.uniform(low[kinds], high[kinds]).T
    at_edges = rng.random(3000) < 0.4
    alpha[at_edges], x[at_edges] = points[rng.integers(0, len(points), at_edges.sum())].T
    found = getattr(adjit.special, name)(adjit.tensor(alpha), adjit.tensor(x)).numpy()
    wanted = getattr(special, name)(alpha, x)
    wanted[(alpha == 0) & (x == 0)] = NAN  # as in PyTorch
    np.testing.assert_allclose(found, wanted, rtol=2e-10)


@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_incomplete_gamma_functions_of_large_shapes_do_not_cancel(name: str) -> None:
    alpha = np.array([120.0, 3e3, 1e5, 1e6, 1e6, 2.0])
    x = alpha + np.array([-9.0, 60.0, -300.0, 900.0, -2500.0, 1.0])
    wanted = getattr(special, name)(alpha, x)
    operands = [adjit.tensor(a, dtype=adjit.float32) for a in (alpha, x)]
    found = getattr(adjit.special, name)(*operands)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_incomplete_gamma_functions_of_tiny_shapes_are_exponential_integrals(dtype: str) -> None:
    """What a shape loses beside 1 counts: without it a third of the upper function was wrong below 1e-8."""
    info = np.finfo(dtype)
    alpha, x = np.meshgrid(
        np.array([1e-30, 1e-20, 1e-12, 1e-5], dtype), [1e-30, 0.01, 0.9, 1.05, 3]
    )
    alpha, x = alpha.ravel().astype(dtype), x.ravel().astype(dtype)
    wanted = special.gammaincc(alpha.astype(float), x.astype(float))
    found = adjit.special.gammaincc(adjit.tensor(alpha), adjit.tensor(x)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-4 if dtype == "float32" else 1e-9)
    tiny = info.tiny  # as it falls below the normal numbers SciPy's is 0
    found = adjit.special.gammaincc(adjit.tensor(x * 0 + tiny), adjit.tensor(x)).numpy()
    np.testing.assert_allclose(found / tiny, special.exp1(x.astype(float)), rtol=2e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_incomplete_gamma_functions_near_the_largest_numbers(dtype: str) -> None:
    largest = np.finfo(dtype).max
    points = np.array([largest, largest / 2, largest / 100, 1.0], dtype)
    alpha, x = (adjit.tensor(a.ravel().copy()) for a in np.meshgrid(points, points))
    lower, upper = adjit.special.gammainc(alpha, x), adjit.special.gammaincc(alpha, x)
    half = (alpha > 1) & (alpha == x)
    for share in (lower, upper):
        np.testing.assert_allclose(share[half].numpy(), 0.5, rtol=1e-5)
    assert (lower[alpha > x] == 0).all()
    assert (lower[alpha < x] == 1).all()
    np.testing.assert_allclose((lower + upper).numpy(), 1.0, rtol=1e-5)


def test_incomplete_gamma_functions_at_the_edges_are_those_of_pytorch() -> None:
    points = [0.0, 1.0, -1.0, 0.5, INF]
    alpha, x = np.array([(a, b) for a in points for b in points]).T
    others = adjit.tensor(points, dtype=adjit.float64)
    for name in ("igamma", "igammac"):
        agree(lambda lib, a, b, name=name: getattr(lib, name)(a, b), alpha, x)
        for pair in (
            (others, others * NAN),
            (others * NAN, others),
        ):  # PyTorch's is a number for some
            assert getattr(adjit, name)(*pair).isnan().all()


def test_incomplete_gamma_functions_have_the_dtypes_of_pytorch() -> None:
    whole, half, single = np.array([1, 2]), np.array([0.5, 2.5]), np.float32([1.5, 2.0])
    for call in (lambda lib, a, b: lib.igamma(a, b), lambda lib, a, b: lib.special.gammaincc(a, b)):
        for pair in ((half, single), (single, half), (single, whole), (whole, single)):
            agree(call, *pair)
        agree(call, single, np.float64(2.0))  # without axes
    for name in ("igamma", "igammac"):
        agree_in_error(lambda lib, a, b, name=name: getattr(lib, name)(a, b), whole, whole)


def test_incomplete_gamma_functions_have_gradients_in_both() -> None:
    alpha = adjit.tensor([0.3, 0.9, 2.0, 7.0, 30.0], dtype=adjit.float64, requires_grad=True)
    x = adjit.tensor([0.2, 1.5, 1.0, 9.0, 40.0], dtype=adjit.float64, requires_grad=True)
    for function in (adjit.igamma, adjit.igammac):
        assert adjit.autograd.gradcheck(function, (alpha, x))
        assert adjit.autograd.gradgradcheck(function, (alpha, x))
