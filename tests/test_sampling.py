"""Gamma, Poisson, binomial and von Mises numbers: their distributions, and derivatives along the draw."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from adjit.kernels.ops import sampling as kernels
from against_torch import agree_in_error, torch
from scipy import special, stats

import adjit as T
from adjit.ops import incomplete_gamma, sampling

SIZE = 20_011
DTYPES = [T.float32, T.float64]
TOLERANCE = {T.float32: 4e-4, T.float64: 1e-9}
SHAPES = (1e-3, 0.05, 0.3, 0.9, 1.0, 1.5, 3.0, 7.0, 20.0, 100.0, 1e4, 1e6)
LEVELS = (1e-4, 0.02, 0.3, 0.5, 0.7, 0.98, 0.9999)


@pytest.fixture(autouse=True)
def seeded():
    T.manual_seed(20)


def counts_follow(sample: np.ndarray, law) -> None:
    """Assert that whole numbers may come from a distribution, by a chi-square test of those that are common."""
    values, found = np.unique(sample, return_counts=True)
    expected = law.pmf(values) * sample.size
    common = expected > 8
    rest = sample.size - expected[common].sum()
    found = np.append(found[common], sample.size - found[common].sum())
    expected = np.append(expected[common], rest)
    keep = expected > 1
    error = ((found - expected) ** 2 / expected)[keep].sum()
    assert stats.chi2.sf(error, max(keep.sum() - 1, 1)) > 1e-3


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("alpha", [0.01, 0.3, 1.0, 2.5, 50.0, 1e4])
def test_gamma_numbers(alpha, dtype):
    w = sampling.log_gamma_numbers(T.full((SIZE,), alpha, dtype=dtype))
    assert w.dtype is dtype
    law = stats.gamma(alpha)
    assert stats.kstest(w.double().numpy(), lambda w: law.cdf(np.exp(w))).pvalue > 1e-3


def test_gamma_numbers_of_shapes_at_the_edge():
    w = sampling.log_gamma_numbers(T.tensor([0.0, math.inf, -1.0, math.nan]))
    assert w.exp().tolist()[:2] == [0, math.inf]
    assert w[2:].isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mean", [0.3, 5.0, 9.9, 10.0, 30.0, 1e3, 1e5])
def test_poisson_numbers(mean, dtype):
    sample = T.poisson(T.full((SIZE,), mean, dtype=dtype))
    assert sample.dtype is dtype
    if mean < 1e4:
        counts_follow(sample.double().numpy(), stats.poisson(mean))
    else:
        normal = (sample.double().numpy() - mean) / math.sqrt(mean)
        assert stats.kstest(normal, "norm").pvalue > 1e-3


def test_poisson_beside_pytorch():
    assert T.poisson(T.tensor([0.0, math.inf])).tolist() == [0, math.inf]
    for rates in ([-1.0], [math.nan]):
        agree_in_error(lambda lib, r=rates: lib.poisson(lib.tensor(r)).sum().item())
    agree_in_error(lambda lib: lib.poisson(lib.tensor([1])))
    rate = T.ones(3, requires_grad=True)
    T.poisson(rate).sum().backward()
    assert rate.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "p"), [(10, 0.3), (100, 0.5), (1000, 0.9), (1e6, 0.2), (40, 0.01)])
def test_binomial_numbers(n, p, dtype):
    sample = T.binomial(T.full((SIZE,), n, dtype=dtype), T.tensor(p, dtype=dtype))
    assert sample.dtype is dtype
    counts_follow(sample.double().numpy(), stats.binom(n, p))


def test_binomial_beside_pytorch():
    cases = [3.0, 3.0, 3.0, -3.0, 0.0, 3.0], [0.0, 1.0, 2.0, 0.5, 0.5, -1.0]
    got, expected = (lib.binomial(*map(lib.tensor, cases)).tolist() for lib in (T, torch))
    assert got == expected
    assert T.binomial(T.tensor([3.0]), T.tensor([math.nan])).isnan().all()
    agree_in_error(lambda lib: lib.binomial(lib.ones(2), lib.ones(2).double()))
    agree_in_error(lambda lib: lib.binomial(lib.ones(2).long(), lib.ones(2)))
    agree_in_error(lambda lib: lib.binomial(lib.ones(2), lib.ones(3)))
    p = T.full((2,), 0.5, requires_grad=True)
    with pytest.raises(RuntimeError, match="derivative for aten::binomial is not implemented"):
        T.binomial(T.ones(2), p).sum().backward()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kappa", [0.0, 1e-3, 0.3, 2.0, 50.0, 1e5])
def test_von_mises_angles(kappa, dtype):
    sample = sampling.von_mises_numbers(T.full((SIZE,), kappa, dtype=dtype))
    law = stats.vonmises(kappa) if kappa else stats.uniform(-math.pi, 2 * math.pi)
    assert stats.kstest(sample.double().numpy(), law.cdf).pvalue > 1e-3


def test_von_mises_angles_of_concentrations_at_the_edge():
    x = sampling.von_mises_numbers(T.tensor([math.inf, -1.0, math.nan]))
    assert x[0] == 0
    assert x[1:].isnan().all()


def test_numbers_do_not_depend_on_their_neighbours_or_threads():
    def drawn(size):
        return sampling.log_gamma_numbers(
            T.full((size,), 0.7), generator=T.Generator().manual_seed(3)
        )

    before = T.get_num_threads()
    try:
        T.set_num_threads(1)
        one = drawn(SIZE)
        assert T.equal(one[:50], drawn(50))
        T.set_num_threads(2)
        assert T.equal(one, drawn(SIZE))
    finally:
        T.set_num_threads(before)


# ----- derivatives -----


def gamma_grid():
    """Shapes, and quantiles of each that float32 can hold."""
    pairs = [(a, stats.gamma.ppf(q, a)) for a in SHAPES for q in LEVELS]
    alpha, z = np.array([pair for pair in pairs if pair[1] > 1e-30]).T
    return alpha, z


@pytest.mark.parametrize("dtype", DTYPES)
def test_lower_gamma_is_that_of_scipy(dtype):
    alpha, z = gamma_grid()
    got = T.igamma(T.tensor(alpha, dtype=dtype), T.tensor(z, dtype=dtype))
    np.testing.assert_allclose(got.numpy(), special.gammainc(alpha, z), rtol=TOLERANCE[dtype])
    edges = T.igamma(T.tensor([1.0, 2.0, 0.5]), T.tensor([0.0, math.inf, 0.0]))
    assert edges.tolist() == [0, 1, 0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_gamma_numbers_move_as_their_distribution_function_says(dtype):
    """Beside a difference quotient of SciPy's distribution function."""
    alpha, z = gamma_grid()
    keep = alpha < 1e3  # above that the quotient has too few digits
    alpha, z = alpha[keep], z[keep]
    step = 1e-4 * alpha
    values = [special.gammainc(alpha + k * step, z) for k in (-2, -1, 1, 2)]
    slope = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step)
    expected = -slope / (stats.gamma.pdf(z, alpha) * z)
    operands = T.tensor(alpha, dtype=dtype), T.tensor(np.log(z), dtype=dtype)
    for slopes in (incomplete_gamma.log_gamma_slope, incomplete_gamma.gamma_slopes):
        got = slopes(*operands).numpy()
        np.testing.assert_allclose(got, expected, rtol=max(TOLERANCE[dtype], 1e-8))


def test_slopes_of_the_kernel_are_those_of_the_integral():
    alpha, z = (T.tensor(v) for v in gamma_grid())
    exact = incomplete_gamma.log_gamma_slope(alpha, z.log())
    np.testing.assert_allclose(
        incomplete_gamma.gamma_slopes(alpha, z.log()).numpy(), exact.numpy(), 1e-13
    )
    found = incomplete_gamma.gamma_slopes(alpha.float(), z.log().float()).numpy()
    rounded = incomplete_gamma.log_gamma_slope(alpha.float().double(), z.log().float().double())
    usual = alpha.numpy() < 1e3  # logarithms in float32 leave few digits of what is above
    np.testing.assert_allclose(found[usual], rounded.numpy()[usual], 2e-5)
    edges = T.tensor([0.0, -1.0, math.nan, math.inf])
    assert not incomplete_gamma.gamma_slopes(edges, edges * 0).isfinite().any()


def test_slopes_of_many_examples_are_those_of_each():
    alpha = T.rand(3, 70, dtype=T.float64) * 3
    w = sampling.log_gamma_numbers(alpha)
    each = T.func.vmap(incomplete_gamma.gamma_slopes)(alpha, w)
    assert T.equal(each, incomplete_gamma.gamma_slopes(alpha, w))


def test_large_gamma_numbers_move_as_their_shape():
    """Cornish and Fisher: sqrt(z) - sqrt(alpha - 1 / 4) hardly depends on the shape."""
    alpha = T.tensor([1e4, 1e6, 1e8], dtype=T.float64)
    z = alpha + 0.5 * alpha.sqrt()
    slope = incomplete_gamma.log_gamma_slope(alpha, z.log()) * z
    np.testing.assert_allclose(slope.numpy(), (z / (alpha - 0.25)).sqrt().numpy(), rtol=1e-4)


def test_gamma_derivatives_of_both_orders():
    alpha = T.tensor([0.3, 0.9, 2.0, 7.0, 30.0], dtype=T.float64, requires_grad=True)
    x = T.tensor([0.2, 1.5, 1.0, 9.0, 20.0], dtype=T.float64, requires_grad=True)
    assert T.autograd.gradcheck(T.igamma, (alpha, x))
    assert T.autograd.gradgradcheck(T.igamma, (alpha, x))
    w = x.detach().log().requires_grad_()
    assert T.autograd.gradcheck(incomplete_gamma.log_gamma_slope, (alpha, w))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kappa", [0.01, 0.5, 2.0, 20.0, 500.0])
def test_angles_move_as_their_distribution_function_says(kappa, dtype):
    angle = stats.vonmises.ppf(np.array([0.001, 0.2, 0.45, 0.6, 0.9, 0.999]), kappa)
    grid = np.linspace(0, angle, 20_001)
    mean = special.i1e(kappa) / special.i0e(kappa)
    density = np.exp(kappa * (np.cos(grid) - np.cos(angle)))
    expected = -np.trapezoid((np.cos(grid) - mean) * density, grid, axis=0)
    got = sampling.angle_slope(T.full((6,), kappa, dtype=dtype), T.tensor(angle, dtype=dtype))
    np.testing.assert_allclose(got.numpy(), expected, rtol=max(TOLERANCE[dtype], 1e-6))


def test_draws_are_differentiated_along_the_draw():
    """The same seed at a shape beside gives the same turns, where the number of tries stays."""
    for draw, values in (
        (sampling.log_gamma_numbers, [0.4, 2.0, 30.0]),
        (sampling.von_mises_numbers, [0.5, 3.0, 40.0]),
    ):
        for value in values:
            parameter = T.tensor(value, dtype=T.float64, requires_grad=True)
            sample = draw(parameter.expand(SIZE)).exp().mean()
            (grad,) = T.autograd.grad(sample, parameter)
            mean = {
                "log_gamma_numbers": lambda a: a,
                "von_mises_numbers": lambda k: np.trapezoid(
                    np.exp(np.linspace(-np.pi, np.pi, 4001))
                    * stats.vonmises.pdf(np.linspace(-np.pi, np.pi, 4001), k),
                    np.linspace(-np.pi, np.pi, 4001),
                ),
            }[draw.name]
            slope = (mean(value + 1e-4) - mean(value - 1e-4)) / 2e-4
            assert abs(grad.item() - slope) < 0.05 * max(abs(slope), 0.02)


@pytest.mark.parametrize("k", [0.0, 1.0, 9.0, 10.0, 11.0, 40.0, 1e3, 1e6])
def test_chances_of_counts_are_exact(k):
    """Errors that no sample of a test's size shows: what is added to logarithms of chances, beside mpmath's."""
    with mpmath.workdps(50):
        exact = mpmath.loggamma(k + 1) - (k * mpmath.log(k) - k if k else 0)
        found = kernels.stirling_rest.py_func(math.log, math.lgamma, k, float)
        assert abs(found - exact) < 2e-9
        for mean in (0.5 * k + 1.0, k + 0.25, 3.0 * k + 2.0):
            exact = (k * mpmath.log(k / mean) if k else 0) + mean - k
            found = kernels.deviance.py_func(math.log1p, k, mean, float)
            assert abs(found - exact) < 1e-12 * (1 + mean)


@pytest.mark.parametrize(("dtype", "digits"), [(T.float32, 4e-6), (T.float64, 2e-14)])
def test_the_scale_of_von_mises_angles_keeps_its_digits(dtype, digits):
    """log(I0(k)) - k and 1 - I1(k) / I0(k), of which the latter falls like 1 / (2 k), beside mpmath's."""
    places = [*np.logspace(-4, 6, 81), 5.9999995, 6.0, 6.0000005]
    k = T.tensor(places, dtype=dtype, requires_grad=True)
    log_scale, lost = sampling.von_mises_scale(k), sampling.von_mises_variance(k)
    (slope,) = T.autograd.grad(log_scale.sum(), k)
    with mpmath.workdps(50):
        i0, i1 = ([mpmath.besseli(n, x) for x in map(mpmath.mpf, k.tolist())] for n in (0, 1))
        wanted = [float(mpmath.log(a) - mpmath.mpf(x)) for a, x in zip(i0, k.tolist(), strict=True)]
        falls = [float((a - b) / a) for a, b in zip(i0, i1, strict=True)]
    np.testing.assert_allclose(log_scale.tolist(), wanted, rtol=digits / 4, atol=digits / 4)
    np.testing.assert_allclose(lost.tolist(), falls, rtol=digits)
    np.testing.assert_allclose((-slope).tolist(), falls, rtol=digits)


def test_second_derivatives_of_the_scale_of_von_mises_angles():
    """Of float32 they are those of polynomials, which differences of float32 would not tell."""
    places = [0.01, 0.5, 2.0, 5.5, 6.5, 30.0]
    found = []
    for dtype in (T.float32, T.float64):
        k = T.tensor(places, dtype=dtype, requires_grad=True)
        (slope,) = T.autograd.grad(sampling.von_mises_scale(k).sum(), k, create_graph=True)
        found.append(T.autograd.grad(slope.sum(), k)[0].tolist())
    np.testing.assert_allclose(*found, rtol=2e-5)
