"""Distributions beside PyTorch and SciPy: densities, moments, gradients, samples, errors, `repr`."""

from __future__ import annotations

import importlib
import math
import pickle
import pkgutil
import subprocess
import sys
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest
from against_torch import agree_in_error, agree_in_warning, plain, torch
from scipy import stats

import adjit
from adjit.ops import incomplete_gamma

D, TD = adjit.distributions, torch.distributions
SIZE = 20_011


class Case(NamedTuple):
    """A distribution: numbers of its parameters, and SciPy's one for the first of the batch."""

    name: str
    arguments: dict[str, Any]
    law: Any = None
    rtol: float = 1e-9  # beside PyTorch, which has fewer digits of some functions

    def make(self, library, dtype="float64", **options):
        """The distribution of either library."""
        return getattr(library.distributions, self.name)(
            **self.parameters(library, dtype), **options
        )

    def parameters(self, library, dtype="float64"):
        return {
            name: value(library, dtype) if callable(value) else value
            for name, value in self.arguments.items()
        }


def numbers(*values):
    """A parameter: a tensor of these numbers."""
    return lambda library, dtype: library.tensor(np.array(values), dtype=getattr(library, dtype))


def nested(make):
    """A parameter that is a distribution, or a transform."""
    return lambda library, dtype: make(
        library.distributions, lambda *v: numbers(*v)(library, dtype)
    )


A, B, C = numbers(0.4, 1.7, 6.0), numbers(0.8, 2.5, 1.1), numbers(-1.0, 0.3, 2.0)
P = numbers(0.2, 0.5, 0.9)
ROWS = numbers([0.1, 0.6, 0.3], [0.7, 0.1, 0.2])
LOGITS = numbers([-1.0, 0.5, 2.0], [0.3, 0.0, -0.4])
MATRIX = [[2.0, 0.5, 0.1], [0.5, 1.5, -0.3], [0.1, -0.3, 1.0]]
FACTOR = np.linalg.cholesky(MATRIX).tolist()
MEAN = [0.2, -1.0, 0.5]


CASES = [
    Case("Bernoulli", {"probs": P}, stats.bernoulli(0.2)),
    Case("Bernoulli", {"logits": C}, stats.bernoulli(1 / (1 + math.e))),
    Case("Beta", {"concentration1": A, "concentration0": B}, stats.beta(0.4, 0.8)),
    Case("Binomial", {"total_count": 7, "probs": P}, stats.binom(7, 0.2)),
    Case("Binomial", {"total_count": numbers(4, 9, 40), "logits": C}, stats.binom(4, 1 / (1 + math.e))),
    Case("Categorical", {"probs": ROWS}),
    Case("Categorical", {"logits": LOGITS}),
    Case("Cauchy", {"loc": C, "scale": B}, stats.cauchy(-1, 0.8)),
    Case("Chi2", {"df": A}, stats.chi2(0.4)),
    Case("ContinuousBernoulli", {"probs": P}),
    Case("ContinuousBernoulli", {"logits": numbers(-2.0, 0.001, 1.0)}),
    Case("Dirichlet", {"concentration": numbers([0.4, 1.7, 6.0], [0.8, 2.5, 1.1])}),
    Case("Exponential", {"rate": A}, stats.expon(scale=2.5)),
    Case("FisherSnedecor", {"df1": A, "df2": numbers(1.0, 3.0, 9.0)}, stats.f(0.4, 1)),
    Case("Gamma", {"concentration": A, "rate": B}, stats.gamma(0.4, scale=1.25)),
    Case(
        "GeneralizedPareto",
        {"loc": C, "scale": B, "concentration": numbers(0.3, 0.0, -0.4)},
        stats.genpareto(0.3, loc=-1, scale=0.8),
    ),
    Case("Geometric", {"probs": P}, stats.geom(0.2, loc=-1)),
    Case("Geometric", {"logits": C}, stats.geom(1 / (1 + math.e), loc=-1)),
    Case("Gumbel", {"loc": C, "scale": B}, stats.gumbel_r(-1, 0.8)),
    Case("HalfCauchy", {"scale": B}, stats.halfcauchy(scale=0.8)),
    Case("HalfNormal", {"scale": B}, stats.halfnorm(scale=0.8)),
    Case(
        "Independent",
        {
            "base_distribution": nested(lambda d, t: d.Normal(t(*MEAN), t(1.0, 2.0, 0.5))),
            "reinterpreted_batch_ndims": 1,
        },
    ),
    Case("InverseGamma", {"concentration": A, "rate": B}, stats.invgamma(0.4, scale=0.8)),
    Case("Kumaraswamy", {"concentration1": A, "concentration0": B}),
    Case("LKJCholesky", {"dim": 3, "concentration": numbers(0.5, 1.0, 3.0)}),
    Case("Laplace", {"loc": C, "scale": B}, stats.laplace(-1, 0.8)),
    Case("LogNormal", {"loc": C, "scale": B}, stats.lognorm(0.8, scale=math.exp(-1))),
    Case("LogisticNormal", {"loc": C, "scale": B}),
    Case(
        "LowRankMultivariateNormal",
        {
            "loc": numbers(*MEAN),
            "cov_factor": numbers([[0.3, 1.0], [0.5, -0.2], [1.0, 0.4]], [[1.0, 0], [0, 1], [1, 1]]),
            "cov_diag": numbers(0.5, 1.0, 2.0),
        },
    ),
    Case(
        "MixtureSameFamily",
        {
            "mixture_distribution": nested(lambda d, t: d.Categorical(t(0.2, 0.5, 0.3))),
            "component_distribution": nested(lambda d, t: d.Normal(t(*MEAN), t(0.8, 2.5, 1.1))),
        },
    ),
    Case(
        "MixtureSameFamily",
        {
            "mixture_distribution": nested(lambda d, t: d.Categorical(t([0.4, 0.6], [0.9, 0.1]))),
            "component_distribution": nested(
                lambda d, t: d.Independent(d.Normal(t([[0.0, 1], [2, 3]], [[4, 5], [6, 7]]), 1.5), 1)
            ),
        },
    ),
    Case("Multinomial", {"total_count": 5, "probs": ROWS}),
    Case("Multinomial", {"total_count": 5, "logits": LOGITS}),
    Case("MultivariateNormal", {"loc": numbers(*MEAN), "covariance_matrix": numbers(*MATRIX)}),
    Case("MultivariateNormal", {"loc": numbers(*MEAN), "precision_matrix": numbers(*MATRIX)}),
    Case("MultivariateNormal", {"loc": numbers(MEAN, MEAN), "scale_tril": numbers(*FACTOR)}),
    Case("MultivariateNormal", {"loc": numbers(*MEAN), "scale_tril": numbers(FACTOR, np.eye(3))}),
    Case("NegativeBinomial", {"total_count": A, "probs": P}, stats.nbinom(0.4, 0.8)),
    Case("NegativeBinomial", {"total_count": 3, "logits": C}, stats.nbinom(3, math.e / (1 + math.e))),
    Case("Normal", {"loc": C, "scale": B}, stats.norm(-1, 0.8)),
    Case("OneHotCategorical", {"probs": ROWS}),
    Case("OneHotCategoricalStraightThrough", {"logits": LOGITS}),
    Case("Pareto", {"scale": B, "alpha": A}, stats.pareto(0.4, scale=0.8)),
    Case("Poisson", {"rate": A}, stats.poisson(0.4)),
    Case("RelaxedBernoulli", {"temperature": numbers(0.7), "probs": P}),
    Case("RelaxedOneHotCategorical", {"temperature": numbers(0.7), "logits": LOGITS}),
    Case("StudentT", {"df": numbers(0.7, 1.5, 5.0), "loc": C, "scale": B}, stats.t(0.7, -1, 0.8)),
    Case(
        "TransformedDistribution",
        {
            "base_distribution": nested(lambda d, t: d.Normal(t(*MEAN), t(0.8, 2.5, 1.1))),
            "transforms": nested(
                lambda d, t: [d.AffineTransform(t(1.0, 2.0, 3.0), t(-0.5, -1.0, -2.0)), d.ExpTransform()]
            ),
        },
        stats.lognorm(0.4, scale=math.exp(0.9)),
    ),
    Case("Uniform", {"low": C, "high": numbers(0.0, 1.0, 3.0)}, stats.uniform(-1, 1)),
    Case("VonMises", {"loc": C, "concentration": B}, stats.vonmises(0.8, loc=-1.0), rtol=2e-6),
    Case("Weibull", {"scale": B, "concentration": A}, stats.weibull_min(0.4, scale=0.8)),
    Case("Wishart", {"df": numbers(3.5, 6.0), "covariance_matrix": numbers(*MATRIX)}),
    Case("Wishart", {"df": numbers(5.0), "precision_matrix": numbers(MATRIX, np.eye(3))}),
    Case("Wishart", {"df": 4.0, "scale_tril": numbers(*FACTOR)}),
]  # fmt: skip
each = pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.name}-{'-'.join(case.arguments)}"
)


@pytest.fixture(autouse=True)
def seeded():
    adjit.manual_seed(20)
    torch.manual_seed(20)


@pytest.fixture
def doubles():
    """PyTorch's generalised Pareto distribution takes float64 only where that is the default."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def ours(x):
    """A tensor of PyTorch's as one of ours."""
    return adjit.tensor(x.numpy())


def close(got, expected, rtol=1e-9, atol=1e-10):
    assert tuple(got.shape) == tuple(expected.shape)
    np.testing.assert_allclose(
        got.detach().numpy(), expected.detach().numpy(), rtol=rtol, atol=atol, equal_nan=True
    )


def outcome(call):
    """What a call gives, or the type of its error."""
    try:
        return call()
    except (NotImplementedError, AssertionError, ValueError) as error:
        return type(error)


def values_of(case, expected, shape=()):
    """Values to look at; PyTorch's Wishart distribution takes good samples for singular ones, and warns."""
    if case.name == "Wishart":
        return torch.tensor(case.make(adjit, str(expected.df.dtype)[6:]).sample(shape).numpy())
    return expected.sample(shape)


def test_all_names_are_there():
    assert set(TD.__all__) <= set(D.__all__)
    assert all(hasattr(D, name) for name in dir(TD) if name[0] != "_")
    assert not set(D.__all__) - set(TD.__all__)


def test_every_distribution_has_a_case():
    classes = {n for n in D.__all__ if isinstance(getattr(D, n), type)}
    classes = {n for n in classes if issubclass(getattr(D, n), D.Distribution)}
    assert classes - {case.name for case in CASES} == {"Distribution", "ExponentialFamily"}


@pytest.mark.parametrize("module", [m.name for m in pkgutil.iter_modules(TD.__path__)])
def test_modules_are_those_of_pytorch(module):
    theirs = importlib.import_module(f"torch.distributions.{module}")
    mine = importlib.import_module(f"adjit.distributions.{module}")
    assert set(theirs.__all__) == set(mine.__all__)
    for name in theirs.__all__:
        assert hasattr(mine, name)


# ----- values -----


@each
def test_densities(case, doubles):
    expected = case.make(torch)
    got = case.make(adjit)
    for shape in ((), (4,), (2, 3)):
        value = values_of(case, expected, shape)
        log_prob = got.log_prob(ours(value))
        close(log_prob, expected.log_prob(value), case.rtol)
        law = case.law
        if law is not None and case.name != "TransformedDistribution":
            log_law = law.logpmf if hasattr(law, "pmf") else law.logpdf
            first = log_law(value.numpy()[..., 0])
            np.testing.assert_allclose(log_prob.numpy()[..., 0], first, rtol=1e-9, atol=1e-9)


@each
def test_moments_and_entropy(case):
    expected, got = case.make(torch), case.make(adjit)
    for name in ("mean", "mode", "variance", "stddev", "entropy", "perplexity"):

        def value(distribution, name=name):
            found = getattr(distribution, name)
            return found() if callable(found) else found

        theirs, mine = (outcome(lambda d=d, value=value: value(d)) for d in (expected, got))
        if isinstance(theirs, type):
            assert mine is theirs, name
        else:
            close(mine, theirs, max(case.rtol, 1e-7))
    assert got.batch_shape == tuple(expected.batch_shape)
    assert got.event_shape == tuple(expected.event_shape)
    assert got.has_enumerate_support == expected.has_enumerate_support
    if case.name != "VonMises":  # whose samples have a derivative here
        assert got.has_rsample == expected.has_rsample
    assert plain(repr(got)) == plain(repr(expected))


@each
def test_distribution_functions(case, doubles):
    expected, got = case.make(torch), case.make(adjit)
    value = values_of(case, expected, (5,))
    theirs, mine = outcome(lambda: expected.cdf(value)), outcome(lambda: got.cdf(ours(value)))
    if isinstance(theirs, type):
        assert mine is theirs
    else:
        close(mine, theirs, 1e-8)
        if case.law is not None:
            first = case.law.cdf(value.numpy()[..., 0])
            np.testing.assert_allclose(mine.numpy()[..., 0], first, rtol=1e-8, atol=1e-10)
    level = torch.rand((5, *expected.batch_shape), dtype=torch.float64)
    theirs, mine = outcome(lambda: expected.icdf(level)), outcome(lambda: got.icdf(ours(level)))
    if isinstance(theirs, type):
        assert mine is theirs
    else:
        close(mine, theirs, 1e-8)


@each
def test_all_values(case):
    expected, got = case.make(torch), case.make(adjit)
    for expand in (True, False):
        theirs = outcome(lambda expand=expand: expected.enumerate_support(expand))
        mine = outcome(lambda expand=expand: got.enumerate_support(expand))
        if isinstance(theirs, type):
            assert mine is theirs
        else:
            close(mine, theirs)


@each
def test_expanded(case, doubles):
    batch = (2, 5, *case.make(torch).batch_shape)
    expected, got = case.make(torch).expand(batch), case.make(adjit).expand(batch)
    assert got.batch_shape == batch
    assert type(got) is type(case.make(adjit))
    value = torch.tensor(got.sample((3,)).numpy())
    assert value.shape == (3, *expected.batch_shape, *expected.event_shape)
    close(got.log_prob(ours(value)), expected.log_prob(value), case.rtol)
    assert got.expand((4, *batch)).log_prob(ours(value[0])).shape == (4, *batch)
    for name in ("mean", "variance"):
        theirs, mine = (outcome(lambda d=d, n=name: getattr(d, n)) for d in (expected, got))
        if isinstance(theirs, type):
            assert mine is theirs
        else:
            close(mine, theirs, max(case.rtol, 1e-7))


@each
def test_float32(case):
    got, expected = case.make(adjit, "float32"), case.make(torch, "float32")
    value = values_of(case, expected, (4,))
    assert got.sample().dtype is getattr(adjit, str(value.dtype)[6:])
    log_prob = got.log_prob(ours(value))
    assert log_prob.dtype is adjit.float32
    np.testing.assert_allclose(
        log_prob.numpy(), expected.log_prob(value).numpy(), rtol=2e-3, atol=2e-3
    )


# ----- gradients -----


def leaves_of(case):
    """The parameters that are tensors of floats, by name."""
    found = case.parameters(adjit)
    return {
        name: value.requires_grad_()
        for name, value in found.items()
        if isinstance(value, adjit.Tensor)
    }


def rebuilt(case, leaves, tensors):
    """The distribution with other tensors; matrices are made symmetric or triangular before."""
    given = dict(zip(leaves, tensors, strict=True))
    for name, x in given.items():
        if name in ("covariance_matrix", "precision_matrix"):
            given[name] = (x + x.mT) / 2
        elif name == "scale_tril":
            given[name] = x.tril()
    return getattr(D, case.name)(**(case.parameters(adjit) | given))


@each
def test_gradients_of_densities(case):
    leaves = leaves_of(case)
    if not leaves:
        return
    leaves.pop("total_count", None)  # a whole number
    value = case.make(adjit).sample()

    def density(*tensors):
        return rebuilt(case, leaves, tensors).log_prob(value)

    assert adjit.autograd.gradcheck(density, tuple(leaves.values()), atol=1e-5)


WITH_RSAMPLE = [case for case in CASES if case.make(adjit).has_rsample]


@pytest.mark.parametrize(
    "case", WITH_RSAMPLE, ids=lambda case: f"{case.name}-{'-'.join(case.arguments)}"
)
def test_samples_move_with_their_distribution_function(case):
    """F(x) stays, where F is known: dF/dx dx/da + dF/da = 0."""
    leaves = leaves_of(case)
    if not leaves:
        return
    given = rebuilt(case, leaves, list(leaves.values()))
    x = given.rsample((8,))
    assert x.requires_grad
    cdf = outcome(lambda: given.cdf(x))
    if isinstance(cdf, type):
        for grad in adjit.autograd.grad(x.sum(), list(leaves.values())):
            assert grad.isfinite().all()
        return
    # The derivative of F(x(a), a), along both ways, is 0.
    for grad in adjit.autograd.grad(cdf.sum(), list(leaves.values())):
        assert abs(grad.numpy()).max() < 1e-6


@pytest.mark.parametrize(
    ("name", "arguments", "statistic", "mean"),
    [
        ("Gamma", (0.6, 1.5), lambda x: x, lambda a, b: a / b),
        ("Gamma", (5.0, 0.5), lambda x: x.log(), lambda a, b: a.digamma() - b.log()),
        ("Beta", (0.5, 2.0), lambda x: x.square(), lambda a, b: a * (a + 1) / ((a + b) * (a + b + 1))),
        ("Beta", (6.0, 3.0), lambda x: x, lambda a, b: a / (a + b)),
        ("StudentT", (6.0,), lambda x: x.square(), lambda df: df / (df - 2)),
        ("Chi2", (3.0,), lambda x: x, lambda df: df),
        ("InverseGamma", (5.0, 2.0), lambda x: x, lambda a, b: b / (a - 1)),
        ("FisherSnedecor", (4.0, 12.0), lambda x: x, lambda m, n: n / (n - 2) + 0 * m),
    ],
)  # fmt: skip
def test_means_move_as_their_formulas(name, arguments, statistic, mean):
    parameters = [adjit.tensor(a, dtype=adjit.float64, requires_grad=True) for a in arguments]
    x = getattr(D, name)(*parameters).rsample((200_000,))
    grads = adjit.autograd.grad(statistic(x).mean(), parameters)
    expected = adjit.autograd.grad(mean(*parameters), parameters)
    for got, wanted in zip(grads, expected, strict=True):
        assert abs(got - wanted) < 0.03 * abs(wanted) + 0.01


def test_dirichlet_moves_as_its_mean():
    a = adjit.tensor([0.3, 1.0, 4.0], dtype=adjit.float64, requires_grad=True)
    weights = adjit.tensor([1.0, -2.0, 0.5], dtype=adjit.float64)
    x = D.Dirichlet(a).rsample((200_000,))
    (got,) = adjit.autograd.grad((x.mean(0) * weights).sum(), a)
    (expected,) = adjit.autograd.grad((a / a.sum() * weights).sum(), a)
    close(got, expected, 0.03, 0.003)


def test_small_concentrations_do_not_underflow():
    a = adjit.full((1000, 3), 1e-3, requires_grad=True)
    x = D.Dirichlet(a).rsample()
    assert adjit.allclose(x.sum(-1), adjit.ones(1000))
    x.max(-1).values.sum().backward()
    assert a.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [adjit.float32, adjit.float64])
def test_samples_of_small_concentrations_keep_off_the_ends(dtype):
    small = adjit.full((2,), 1e-2, dtype=dtype)
    for distribution in (D.Beta(*small), D.Dirichlet(small)):
        samples = distribution.sample((5000,))
        assert ((samples > 0) & (samples < 1)).all()
        assert distribution.log_prob(samples).isfinite().all()
        assert abs((samples < 0.5).double().mean() - 0.5) < 0.05


def test_wishart_moves_as_its_mean():
    df = adjit.tensor(5.0, dtype=adjit.float64, requires_grad=True)
    covariance = adjit.tensor(MATRIX, dtype=adjit.float64)
    x = D.Wishart(df, covariance).rsample((50_000,))
    (got,) = adjit.autograd.grad(x.mean(0).trace(), df)
    assert abs(got - covariance.trace()) < 0.1
    close(x.detach().mean(0), 5 * covariance, 0.05, 0.05)


def test_straight_through_has_the_gradient_of_the_chances():
    logits = adjit.tensor([0.1, 0.5, -0.3], requires_grad=True)
    d = D.OneHotCategoricalStraightThrough(logits=logits)
    x = d.rsample()
    assert sorted(x.round().tolist()) == [0, 0, 1]
    (got,) = adjit.autograd.grad(x[0], logits)
    (expected,) = adjit.autograd.grad(logits.softmax(-1)[0], logits)
    close(got, expected, 1e-5)


# ----- samples -----

ANY_TEST = 1e-4  # about one sample in 10,000 of a right distribution fails


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.law is not None and case.name != "TransformedDistribution"],
    ids=lambda case: f"{case.name}-{'-'.join(case.arguments)}",
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_samples_follow_the_law(case, dtype):
    sample = case.make(adjit, dtype).sample((SIZE,))
    x = sample[..., 0].double().numpy()
    if case.name == "VonMises":  # SciPy's angles are those around the mean
        x = (x + 1 + math.pi) % (2 * math.pi) - math.pi - 1
    if hasattr(case.law, "pmf"):
        values, found = np.unique(x, return_counts=True)
        expected = case.law.pmf(values) * SIZE
        common = expected > 8
        error = ((found - expected) ** 2 / expected)[common].sum()
        assert stats.chi2.sf(error, common.sum()) > ANY_TEST
    else:
        assert stats.kstest(x, case.law.cdf).pvalue > ANY_TEST


@each
def test_samples_have_the_moments(case):
    d = case.make(adjit)
    mean, variance = outcome(lambda: d.mean), outcome(lambda: d.variance)
    sample = d.sample((SIZE,)).double()
    assert d.support.check(d.sample((50,))).all()
    if case.name == "VonMises":
        mean_cosine = (sample - d.loc).cos().mean(0)
        close(1 - mean_cosine, d.variance, 0, 0.02)
    elif not isinstance(mean, type) and not isinstance(variance, type):
        spread = np.sqrt(variance.numpy() / SIZE)
        with np.errstate(invalid="ignore"):
            away = abs((sample.mean(0) - mean).numpy()) / spread
        known = np.isfinite(away) & (spread > 0)
        if case.name not in ("LogNormal", "FisherSnedecor"):  # whose means converge slowly
            assert (away[known] < 5).all()


def test_lkj_samples_are_correlations_of_the_known_law():
    """Each correlation r has (r + 1) / 2 of the beta distribution of eta + (dim - 2) / 2, twice."""
    for eta in (0.5, 1.0, 3.0):
        factor = D.LKJCholesky(4, adjit.tensor(eta, dtype=adjit.float64)).sample((5000,))
        r = (factor @ factor.mT).numpy()
        law = stats.beta(eta + 1, eta + 1)
        for i, j in ((1, 0), (2, 1), (3, 1), (3, 2)):
            assert stats.kstest((r[:, i, j] + 1) / 2, law.cdf).pvalue > ANY_TEST


def test_multivariate_samples_have_the_covariance():
    for d in (case.make(adjit) for case in CASES if case.name.endswith("MultivariateNormal")):
        x = d.sample((SIZE,)).numpy().reshape(SIZE, -1, 3)
        expected = d.covariance_matrix.numpy().reshape(-1, 3, 3)
        for k in range(x.shape[1]):
            np.testing.assert_allclose(np.cov(x[:, k].T), expected[k], atol=0.1)


def test_multinomial_and_categorical_samples():
    probs = adjit.tensor([0.5, 0.3, 0.2])
    x = D.Categorical(probs).sample((SIZE,))
    assert x.dtype is adjit.int64
    close((x[:, None] == adjit.arange(3)).float().mean(0), probs, 0, 0.02)
    counts = D.Multinomial(10, probs).sample((SIZE,))
    assert (counts.sum(-1) == 10).all()
    close(counts.mean(0), 10 * probs, 0, 0.1)


def test_seeds_repeat_samples():
    for case in CASES:
        d = case.make(adjit)
        adjit.manual_seed(3)
        first = d.sample((2,))
        adjit.manual_seed(3)
        assert adjit.equal(first, d.sample((2,))), case.name


def test_mixtures_sample_broadcast_weights():
    weights = D.Categorical(adjit.tensor([1.0, 0.0]))
    parts = D.Normal(adjit.tensor([[0.0, 100.0], [50.0, 100.0]]), 1.0)
    x = D.MixtureSameFamily(weights, parts).sample((1000,))
    assert x.shape == (1000, 2)
    assert abs(x.mean(0)[0]) < 1
    assert abs(x.mean(0)[1] - 50) < 1


# ----- errors -----


@pytest.mark.cpu  # constraints show tensors, with their device
def test_parameters_are_validated_as_pytorch_does():
    def fails(make):
        agree_in_error(lambda lib: make(lib.distributions, lib.tensor))

    fails(lambda d, t: d.Normal(t([0.0, 1.0]), t([1.0, -1.0])))
    fails(lambda d, t: d.Normal(t(float("nan")), 1.0))
    fails(lambda d, t: d.Normal("0", 1.0))
    fails(lambda d, t: d.Uniform(t([1.0, 0.0]), 0.5))
    fails(lambda d, t: d.Bernoulli(t([0.5, 1.5])))
    fails(lambda d, t: d.Bernoulli(0.5, logits=0.0))
    fails(lambda d, t: d.Bernoulli())
    fails(lambda d, t: d.Geometric(t([0.0, 0.5])))
    fails(lambda d, t: d.Binomial(t([1.5]), t([0.5])))
    fails(lambda d, t: d.NegativeBinomial(t(1.0), t(1.0)))
    fails(lambda d, t: d.Categorical(t(1.0)))
    fails(lambda d, t: d.Categorical(logits=t(1.0)))
    fails(lambda d, t: d.Categorical(t([-0.5, 1.5])))
    fails(lambda d, t: d.Dirichlet(t(1.0)))
    fails(lambda d, t: d.Dirichlet(t([1.0, -1.0])))
    fails(lambda d, t: d.Multinomial(t(3), t([0.5, 0.5])))
    fails(lambda d, t: d.ContinuousBernoulli(t([2.0]), validate_args=True))
    fails(lambda d, t: d.LKJCholesky(1))
    fails(lambda d, t: d.Independent(d.Normal(0.0, 1.0), 1))
    fails(lambda d, t: d.MultivariateNormal(t(0.0), t([[1.0]])))
    fails(lambda d, t: d.MultivariateNormal(t([0.0]), t([1.0])))
    fails(lambda d, t: d.MultivariateNormal(t([0.0]), scale_tril=t([1.0])))
    fails(lambda d, t: d.MultivariateNormal(t([0.0])))
    fails(lambda d, t: d.MultivariateNormal(t([0.0, 0.0]), t([[1.0, 2.0], [2.0, 1.0]])))
    fails(lambda d, t: d.MultivariateNormal(t([0.0, 0.0]), t([[1.0, 0.5], [0.0, 1.0]])))
    fails(lambda d, t: d.MultivariateNormal(t([0.0, 0.0]), scale_tril=t([[1.0, 1.0], [0.0, 1.0]])))
    fails(lambda d, t: d.LowRankMultivariateNormal(t([0.0, 0.0]), t([[1.0]]), t([1.0, 1.0])))
    fails(lambda d, t: d.LowRankMultivariateNormal(t([0.0]), t([1.0]), t([1.0])))
    fails(lambda d, t: d.LowRankMultivariateNormal(t([0.0]), t([[1.0]]), t([1.0, 2.0])))
    fails(lambda d, t: d.Wishart(t(1.0), t([[1.0, 0.0], [0.0, 1.0]])))
    fails(lambda d, t: d.Wishart(t(3.0)))
    fails(lambda d, t: d.Wishart(t(3.0), t([1.0])))
    weights, parts = [0.5, 0.5], [0.0, 1.0, 2.0]
    fails(lambda d, t: d.MixtureSameFamily(d.Categorical(t(weights)), d.Normal(t(parts), 1.0)))
    fails(lambda d, t: d.MixtureSameFamily(d.Normal(t(parts), 1.0), d.Normal(t(parts), 1.0)))
    fails(lambda d, t: d.MixtureSameFamily(d.Categorical(t(weights)), 1.0))
    fails(
        lambda d, t: d.MixtureSameFamily(
            d.Categorical(t([weights] * 3)), d.Normal(t([parts[:2]] * 2), 1.0)
        )
    )
    fails(lambda d, t: d.TransformedDistribution(d.Normal(0.0, 1.0), 1))
    fails(lambda d, t: d.TransformedDistribution(d.Normal(0.0, 1.0), [1]))
    fails(lambda d, t: d.TransformedDistribution(d.Normal(0.0, 1.0), d.StickBreakingTransform()))


def test_values_are_validated_as_pytorch_does():
    def fails(make, value):
        agree_in_error(lambda lib: make(lib.distributions, lib.tensor).log_prob(value(lib.tensor)))

    fails(lambda d, t: d.Normal(0.0, 1.0), lambda t: 1.0)
    fails(lambda d, t: d.Normal(0.0, 1.0), lambda t: t(float("nan")))
    fails(lambda d, t: d.Exponential(t([1.0, 2.0])), lambda t: t([1.0, -1.0]))
    fails(lambda d, t: d.Exponential(t([1.0, 2.0])), lambda t: t([1.0, 1.0, 1.0]))
    fails(lambda d, t: d.Beta(1.0, 2.0), lambda t: t(1.5))
    fails(lambda d, t: d.Bernoulli(0.5), lambda t: t(0.5))
    fails(lambda d, t: d.Categorical(t([0.5, 0.5])), lambda t: t(2))
    fails(lambda d, t: d.OneHotCategorical(t([0.5, 0.5])), lambda t: t([1.0, 1.0]))
    fails(lambda d, t: d.Dirichlet(t([0.5, 0.5])), lambda t: t([1.0, 1.0]))
    fails(lambda d, t: d.Dirichlet(t([0.5, 0.5])), lambda t: t([0.5, 0.25, 0.25]))
    fails(lambda d, t: d.Multinomial(3, t([0.5, 0.5])), lambda t: t([2.0, 2.0]))
    fails(lambda d, t: d.Uniform(0.0, 1.0), lambda t: t(2.0))
    fails(lambda d, t: d.Poisson(1.0), lambda t: t(0.5))
    fails(lambda d, t: d.LKJCholesky(2), lambda t: t([[1.0, 0.0], [0.9, 0.9]]))


def test_validation_can_be_turned_off():
    with pytest.raises(ValueError, match=r"^$"):
        D.Distribution.set_default_validate_args(3)
    assert D.Normal(0.0, -1.0, validate_args=False).scale == -1
    d = D.Exponential(1.0, validate_args=False)
    assert d.log_prob(adjit.tensor(-1.0)) == 1
    D.Distribution.set_default_validate_args(False)
    try:
        D.Normal(0.0, -1.0)
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="Expected parameter scale"):
        D.Normal(0.0, -1.0)


def test_counts_that_differ_cannot_be_enumerated():
    def binomial(lib):
        return lib.distributions.Binomial(lib.tensor([1.0, 2.0]), lib.tensor([0.5, 0.5]))

    agree_in_error(lambda lib: binomial(lib).entropy())
    agree_in_error(lambda lib: binomial(lib).enumerate_support())
    agree_in_error(
        lambda lib: lib.distributions.Independent(
            lib.distributions.Bernoulli(lib.tensor([0.5])), 1
        ).enumerate_support()
    )
    with pytest.raises(NotImplementedError):
        D.Gamma(1.0, 1.0).icdf(adjit.tensor(0.5))


def test_classes_of_users():
    """One without constraints warns; one with an `__init__` says itself how it is expanded."""

    def silent(lib):
        class Silent(lib.distributions.Distribution):
            def log_prob(self, value):
                self._validate_sample(value)
                return value

        return Silent().log_prob(lib.tensor(1.0))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        silent(adjit)
    assert [str(w.message).partition("define ")[2][:17] for w in caught] == [
        "`arg_constraints`", "`support` to enab",
    ]  # fmt: skip

    def expanded(lib):
        class Twice(lib.distributions.Normal):
            def __init__(self, loc):
                super().__init__(loc, 2.0)

        return Twice(lib.tensor(1.0)).expand((2,))

    agree_in_error(expanded)

    class Thrice(D.Normal):
        def __init__(self, loc):
            super().__init__(loc, 3.0)
            self.note = "kept"

        def expand(self, batch_shape, _instance=None):
            new = self._get_checked_instance(Thrice, _instance or Thrice.__new__(Thrice))
            new.note = self.note
            return super().expand(batch_shape, _instance=new)

    made = Thrice(adjit.tensor(1.0)).expand((2,))
    assert made.note == "kept"
    assert made.scale.tolist() == [3, 3]


def test_warnings_are_those_of_pytorch():
    agree_in_warning(lambda lib: lib.distributions.Normal(0.0, 1.0).sample_n(3))
    agree_in_warning(lambda lib: lib.distributions.Wishart(lib.tensor(1.5), lib.eye(2)))


def test_distributions_can_be_pickled():
    value = adjit.tensor(0.3, dtype=adjit.float64)
    for d in (D.Normal(0.0, 1.0), D.LogNormal(0.0, 1.0), D.Beta(1.0, 2.0)):
        again = pickle.loads(pickle.dumps(d))
        assert again.log_prob(value) == d.log_prob(value)


def test_perplexity_and_shapes_of_numbers():
    assert D.Normal(0.0, 1.0).sample().shape == ()
    assert D.Normal(0, 1).loc.dtype is adjit.float32
    assert D.Normal(adjit.zeros(3, dtype=adjit.float64), 1).scale.dtype is adjit.float64


# ----- divergences -----

U01, RATE = numbers(0.1, 0.3, 0.2), numbers(0.7, 2.0, 3.5)
PAIRS = {
    "Bernoulli": [{"probs": P}, {"logits": C}, {"probs": numbers(0.0, 1.0, 0.4)}],
    "Beta": [{"concentration1": A, "concentration0": B}, {"concentration1": B, "concentration0": RATE}],
    "Binomial": [{"total_count": 7, "probs": P}, {"total_count": 7, "logits": C}],
    "Categorical": [{"probs": ROWS}, {"logits": LOGITS}, {"probs": numbers([0.0, 0.5, 0.5])}],
    "Cauchy": [{"loc": C, "scale": B}, {"loc": A, "scale": RATE}],
    "ContinuousBernoulli": [{"probs": P}, {"logits": C}],
    "Dirichlet": [{"concentration": numbers([0.4, 1.7, 6.0])}, {"concentration": numbers([1.0, 2, 3])}],
    "Exponential": [{"rate": A}, {"rate": RATE}],
    "Gamma": [{"concentration": A, "rate": B}, {"concentration": B, "rate": RATE}],
    "Geometric": [{"probs": P}, {"logits": C}],
    "Gumbel": [{"loc": C, "scale": B}, {"loc": A, "scale": RATE}],
    "HalfNormal": [{"scale": B}, {"scale": RATE}],
    "Independent": [
        {
            "base_distribution": nested(lambda d, t: d.Normal(t(*MEAN), 1.5)),
            "reinterpreted_batch_ndims": 1,
        },
        {
            "base_distribution": nested(lambda d, t: d.Normal(t(0.1, 0.2, 0.3), t(1.0, 2.0, 3.0))),
            "reinterpreted_batch_ndims": 1,
        },
    ],
    "Laplace": [{"loc": C, "scale": B}, {"loc": A, "scale": RATE}],
    "LogNormal": [{"loc": C, "scale": B}, {"loc": A, "scale": RATE}],
    "LowRankMultivariateNormal": [
        {
            "loc": numbers(*MEAN),
            "cov_factor": numbers([[0.3, 1.0], [0.5, -0.2], [1.0, 0.4]], [[1.0, 0], [0, 1], [1, 1]]),
            "cov_diag": numbers(0.5, 1.0, 2.0),
        },
        {
            "loc": numbers(0.0, 1.0, 0.0),
            "cov_factor": numbers([0.3], [0.5], [1.0]),
            "cov_diag": numbers(1.5, 1.0, 0.3),
        },
    ],
    "MultivariateNormal": [
        {"loc": numbers(*MEAN), "covariance_matrix": numbers(*MATRIX)},
        {"loc": numbers(MEAN, MEAN), "scale_tril": numbers(*np.eye(3).tolist())},
    ],
    "Normal": [{"loc": C, "scale": B}, {"loc": A, "scale": RATE}],
    "OneHotCategorical": [{"probs": ROWS}, {"logits": LOGITS}],
    "Pareto": [{"scale": B, "alpha": RATE}, {"scale": U01, "alpha": A}],
    "Poisson": [{"rate": A}, {"rate": RATE}],
    "Uniform": [{"low": C, "high": RATE}, {"low": U01, "high": numbers(0.8, 0.9, 0.7)}],
    "Wishart": [
        {"df": numbers(4.0), "covariance_matrix": numbers(*MATRIX)},
        {"df": numbers(6.0), "precision_matrix": numbers(*MATRIX)},
    ],
}  # fmt: skip
THEIR_PAIRS = sorted((p.__name__, q.__name__) for p, q in TD.kl._KL_REGISTRY)
# Exponential families without a rule, and transformed distributions, are Wishart and LogNormal here.
RULES = {"ExponentialFamily": "Wishart", "TransformedDistribution": "LogNormal"}
# Rules of PyTorch that say infinity wherever a support fits.
TOO_LARGE = {("ContinuousBernoulli", "Uniform"), ("Uniform", "ContinuousBernoulli")}


def test_the_pairs_are_those_of_pytorch():
    assert sorted((p.__name__, q.__name__) for p, q in D.kl._KL_REGISTRY) == THEIR_PAIRS


@pytest.mark.parametrize("pair", THEIR_PAIRS, ids="-".join)
def test_divergences(pair):
    names = [RULES.get(name, name) for name in pair]
    for p in PAIRS[names[0]]:
        for q in PAIRS[names[1]]:
            made = [Case(names[0], p), Case(names[1], q)]
            theirs = TD.kl_divergence(*[case.make(torch) for case in made])
            got = D.kl_divergence(*[case.make(adjit) for case in made])
            if pair in TOO_LARGE:
                low, high = (case.make(adjit) for case in made)
                inside = low.support.lower_bound >= high.support.lower_bound
                inside &= low.support.upper_bound <= high.support.upper_bound
                assert got.isfinite().tolist() == inside.tolist()
            else:
                close(got, theirs, 1e-7, 1e-9)


@pytest.mark.parametrize(
    "pair", [pair for pair in THEIR_PAIRS if not {*pair} & {*RULES}], ids="-".join
)
def test_divergences_are_means_of_the_difference(pair):
    """Of log p - log q over samples of p, where that has a mean."""
    p, q = (Case(name, PAIRS[name][k]).make(adjit) for k, name in enumerate(pair))
    divergence = D.kl_divergence(p, q)
    if divergence.isinf().all():
        return
    for part in (q, getattr(q, "base_dist", q)):
        part._validate_args = False
    x = p.expand(divergence.shape).sample((SIZE,))
    difference = p.log_prob(x) - q.log_prob(x)
    known = divergence.isfinite()
    spread = difference.std(0) / math.sqrt(SIZE)
    away = abs(difference.mean(0) - divergence)
    assert (away[known] < 6 * spread[known] + 1e-6).all()


def test_divergences_broadcast_and_have_gradients():
    parameters = [
        adjit.tensor([[0.5], [1.5]], dtype=adjit.float64, requires_grad=True),
        adjit.tensor([0.3, 0.9, 2.0], dtype=adjit.float64, requires_grad=True),
    ]
    for name in ("Gamma", "Beta", "Laplace", "Normal", "Gumbel"):
        make = getattr(D, name)

        def divergence(a, b, make=make):
            return D.kl_divergence(make(a, b), make(b, a + 1))

        assert divergence(*parameters).shape == (2, 3)
        assert adjit.autograd.gradcheck(divergence, tuple(parameters))


def test_divergences_without_a_rule():
    def fails(make):
        agree_in_error(
            lambda lib: lib.distributions.kl_divergence(*make(lib.distributions, lib.tensor))
        )

    fails(lambda d, t: (d.StudentT(1.0), d.Normal(0.0, 1.0)))
    fails(lambda d, t: (d.Binomial(2, t(0.5)), d.Binomial(3, t(0.5))))
    with pytest.raises(NotImplementedError, match="different exponential families"):
        D.kl_divergence(D.Poisson(1.0), D.Normal(0.0, 1.0))
    for other in (D.LogisticNormal(adjit.zeros(2), 1.0), D.Gumbel(0.0, 1.0)):
        with pytest.raises(NotImplementedError):
            D.kl_divergence(D.LogNormal(0.0, 1.0), other)
    with pytest.raises(NotImplementedError):
        D.kl_divergence(
            D.Independent(D.Normal(adjit.zeros(2, 2), 1.0), 1),
            D.Independent(D.Normal(adjit.zeros(2, 2), 1.0), 2),
        )
    with pytest.raises(ValueError, match="different event shapes"):
        D.kl_divergence(
            D.MultivariateNormal(adjit.zeros(2), adjit.eye(2)),
            D.MultivariateNormal(adjit.zeros(3), adjit.eye(3)),
        )
    for pair in ((3, D.Normal), (D.Normal, None)):
        with pytest.raises(TypeError, match="Distribution subclass but got"):
            D.register_kl(*pair)


def test_wishart_divergences_keep_their_batch():
    """PyTorch sums over the batch too."""
    p = D.Wishart(adjit.tensor([4.0, 5.0]), adjit.eye(3).expand(2, 3, 3))
    q = D.Wishart(adjit.tensor([6.0, 7.0]), adjit.eye(3).expand(2, 3, 3))
    both = D.kl_divergence(p, q)
    alone = [
        D.kl_divergence(D.Wishart(a, adjit.eye(3)), D.Wishart(b, adjit.eye(3)))
        for a, b in ((4.0, 6.0), (5.0, 7.0))
    ]
    close(both, adjit.stack(alone), 1e-5)


def test_the_most_specific_rule_is_taken():
    class One(D.Normal):
        pass

    class Mixed:
        """Beside distributions, as in Pyro."""

    class Two(One):
        pass

    class Three(Mixed, D.Gamma):
        pass

    before = dict(D.kl._KL_REGISTRY)
    try:
        D.register_kl(One, D.Normal)(lambda p, q: "one")
        D.register_kl(D.Normal, Two)(lambda p, q: "two")
        D.register_kl(Mixed, D.Normal)(lambda p, q: "mixed")
        assert D.kl_divergence(Three(1.0, 1.0), One(0.0, 1.0)) == "mixed"
        assert D.kl_divergence(One(0.0, 1.0), D.Normal(0.0, 1.0)) == "one"
        assert D.kl_divergence(Two(0.0, 1.0), One(0.0, 1.0)) == "one"
        with pytest.warns(RuntimeWarning, match=r"Please register_kl\(One, Two\)"):
            assert D.kl_divergence(Two(0.0, 1.0), Two(0.0, 1.0)) == "one"
    finally:
        D.kl._KL_REGISTRY.clear()
        D.kl._KL_REGISTRY.update(before)
        D.kl._KL_MEMOIZE.clear()


def test_exponential_families_without_formulas():
    """Entropies by the derivative of the normalizer."""
    for case in CASES:
        d = case.make(adjit)
        if isinstance(d, D.ExponentialFamily) and case.name not in (
            "Poisson",
            "Chi2",
            "Beta",
            "Dirichlet",
        ):
            close(D.ExponentialFamily.entropy(d), d.entropy(), 1e-5, 1e-6)


def test_slopes_of_gamma_numbers_are_those_of_their_quantiles():
    """Of small and of large shapes, in both tails."""
    inverse = pytest.importorskip("scipy.special").gammaincinv
    random = np.random.default_rng(0)
    shape, chance = 10 ** random.uniform(-2, 6, 4000), random.uniform(1e-6, 1 - 1e-6, 4000)
    z = inverse(shape, chance)
    shape, chance, z = (a[z > 1e-300] for a in (shape, chance, z))
    step = 1e-4 * shape
    expected = np.log(inverse(shape + step, chance) / inverse(shape - step, chance)) / (2 * step)
    slopes = incomplete_gamma.gamma_slopes(adjit.tensor(shape), adjit.tensor(np.log(z)))
    np.testing.assert_allclose(slopes.numpy(), expected, rtol=1e-7)


def test_compiled_functions_draw_anew():
    """And differentiate along each draw."""

    @adjit.compile
    def step(a):
        return D.Gamma(a, 1.0, validate_args=False).rsample()

    found = set()
    for _ in range(6):
        a = adjit.tensor([0.5, 2.0, 9.0], dtype=adjit.float64, requires_grad=True)
        x = step(a)
        x.sum().backward()
        found.add(x[0].item())
        close(a.grad, incomplete_gamma.log_gamma_slope(a, x.log()) * x, 1e-9)
    assert len(found) == 6


def test_they_are_loaded_when_they_are_asked_for():
    name = "'adjit.distributions.normal' in sys.modules"
    code = f"import sys, adjit; print({name}); adjit.distributions.Normal; print({name})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "True"]
