"""Transforms and constraints of distributions beside PyTorch's."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from against_torch import agree_in_error, plain, torch

import adjit

D, C = adjit.distributions, adjit.distributions.constraints
rng = np.random.default_rng(0)


def make_all(lib):
    """Each transform, and the shape of what it takes; positive numbers for some."""
    d, t = lib.distributions, lambda *v: lib.tensor(v, dtype=lib.float64)
    return {
        "abs": (d.AbsTransform(), (3,)),
        "affine": (d.AffineTransform(t(1.0, 2.0, 3.0), t(-1.0, 0.5, 2.0)), (2, 3)),
        "affine of numbers": (d.AffineTransform(1.0, -2.0), (3,)),
        "affine of vectors": (d.AffineTransform(1.0, t(1.0, 2.0, 3.0), event_dim=1), (2, 3)),
        "cat": (d.CatTransform([d.ExpTransform(), d.AffineTransform(0, 2)], 0, [1, 2]), (3,)),
        "cat of columns": (d.CatTransform([d.ExpTransform(), d.TanhTransform()], -1, [2, 1]), (2, 3)),
        "compose": (d.ComposeTransform([d.TanhTransform(), d.ExpTransform()]), (3,)),
        "compose of vectors": (
            d.ComposeTransform([d.AffineTransform(1.0, 2.0), d.StickBreakingTransform()]), (2, 3)
        ),
        "correlations": (d.CorrCholeskyTransform(), (2, 6)),
        "cdf": (d.CumulativeDistributionTransform(d.Normal(t(0.5), t(2.0))), (3,)),
        "exp": (d.ExpTransform(), (3,)),
        "identity": (d.identity_transform, (3,)),
        "independent": (d.IndependentTransform(d.ExpTransform(), 1), (2, 3)),
        "inverse": (d.SigmoidTransform().inv.inv, (3,)),
        "lower": (d.LowerCholeskyTransform(), (2, 3, 3)),
        "positive definite": (d.PositiveDefiniteTransform(), (2, 3, 3)),
        "power": (d.PowerTransform(t(-0.5, 1.0, 2.0)), (3,)),
        "reshape": (d.ReshapeTransform((2, 3), (6,)), (4, 2, 3)),
        "sigmoid": (d.SigmoidTransform(), (3,)),
        "softmax": (d.SoftmaxTransform(), (2, 3)),
        "softplus": (d.SoftplusTransform(), (3,)),
        "stack": (d.StackTransform([d.ExpTransform(), d.TanhTransform()], -1), (3, 2)),
        "stick": (d.StickBreakingTransform(), (2, 3)),
        "tanh": (d.TanhTransform(), (3,)),
    }  # fmt: skip


THEIRS = make_all(torch)
each = pytest.mark.parametrize("name", THEIRS)


@functools.cache
def made():
    """Ours, on the device of the tests."""
    return make_all(adjit)


def outcome(call):
    """What a call gives, or the type of its error."""
    try:
        return call()
    except (NotImplementedError, ValueError) as error:
        return type(error)


def argument(name):
    x = rng.standard_normal(THEIRS[name][1])
    return abs(x) if name == "power" else x


def close(got, expected, rtol=1e-9):
    assert tuple(got.shape) == tuple(expected.shape)
    np.testing.assert_allclose(
        got.detach().numpy(), expected.detach().numpy(), rtol=rtol, atol=1e-12
    )


def test_every_transform_is_tried():
    kinds = {type(t) for t, _ in made().values()}
    names = {
        name for name in D.transforms.__all__ if name not in ("Transform", "identity_transform")
    }
    assert {kind.__name__ for kind in kinds} >= names


@each
def test_values(name):
    x = argument(name)
    (mine, shape), (theirs, _) = made()[name], THEIRS[name]
    y, expected = mine(adjit.tensor(x)), theirs(torch.tensor(x))
    close(y, expected)
    assert tuple(mine.forward_shape(shape)) == tuple(theirs.forward_shape(shape)) == tuple(y.shape)
    assert tuple(mine.inverse_shape(y.shape)) == tuple(theirs.inverse_shape(expected.shape))
    assert plain(repr(mine)) == plain(repr(theirs))
    back = outcome(lambda: theirs.inv(expected))
    close(mine.inv(y), back, 1e-7)
    for got, wanted in ((mine, theirs), (mine.inv, theirs.inv)):
        assert got.bijective == wanted.bijective
        assert plain(repr(got)) == plain(repr(wanted))
        assert got.domain.event_dim == wanted.domain.event_dim
        assert got.codomain.event_dim == wanted.codomain.event_dim
        assert plain(repr(got.codomain)) == plain(repr(wanted.codomain))
        assert outcome(lambda t=got: t.event_dim) == outcome(lambda t=wanted: t.event_dim)
        sign, other = outcome(lambda t=got: t.sign), outcome(lambda t=wanted: t.sign)
        if isinstance(other, (int, torch.Tensor)):
            np.testing.assert_array_equal(np.asarray(sign), np.asarray(other))


@each
def test_determinants(name):
    x = argument(name)
    mine, theirs = made()[name][0], THEIRS[name][0]
    a, b = adjit.tensor(x), torch.tensor(x)
    expected = outcome(lambda: theirs.log_abs_det_jacobian(b, theirs(b)))
    got = outcome(lambda: mine.log_abs_det_jacobian(a, mine(a)))
    if isinstance(expected, type):
        assert got is expected
    else:
        close(got, expected, 1e-7)


@each
def test_gradients(name):
    x = adjit.tensor(argument(name), requires_grad=True)
    assert adjit.autograd.gradcheck(made()[name][0], (x,))


@each
def test_a_cache_gives_back_what_came(name):
    cached = made()[name][0].with_cache()
    x = adjit.tensor(argument(name))
    assert cached.inv(cached(x)) is x
    assert cached.with_cache() is cached
    close(cached(x), made()[name][0](x))


def test_caches_of_composed_transforms():
    t = D.ComposeTransform([D.TanhTransform(), D.ExpTransform()], cache_size=1)
    x = adjit.tensor([9.0, -9.0])  # whose tanh is 1 in float32
    assert t.inv(t(x)) is x
    assert D.SigmoidTransform(cache_size=1).inv.with_cache(0).inv._cache_size == 0


def test_which_transforms_are_equal():
    e, a = D.ExpTransform(), D.AffineTransform
    one, two = adjit.tensor([1.0, 2.0]), adjit.tensor([1.0, 3.0])
    assert e == D.ExpTransform()
    assert e != D.TanhTransform()
    assert e.inv == D.ExpTransform().inv
    assert e.inv != e
    assert a(1, 2) == a(1, 2)
    assert a(one, 2) == a(one.clone(), 2)
    assert a(one, 2) != a(two, 2)
    assert D.PowerTransform(one) == D.PowerTransform(one.clone())
    assert D.PowerTransform(one) != D.PowerTransform(two)
    assert D.ComposeTransform([e, a(1, 2)]) == D.ComposeTransform([e, a(1, 2)])
    assert D.ComposeTransform([e]) != D.ComposeTransform([a(1, 2)])


def test_errors_are_those_of_pytorch():
    def fails(make):
        agree_in_error(lambda lib: make(lib.distributions, lib.tensor))

    fails(lambda d, t: d.ExpTransform(cache_size=2))
    fails(lambda d, t: d.StickBreakingTransform().forward_shape(()))
    fails(lambda d, t: d.SoftmaxTransform().inverse_shape(()))
    fails(lambda d, t: d.CorrCholeskyTransform().forward_shape((2,)))
    fails(lambda d, t: d.CorrCholeskyTransform().inverse_shape((2, 3)))
    fails(lambda d, t: d.CorrCholeskyTransform().inverse_shape((2,)))
    fails(lambda d, t: d.ReshapeTransform((2, 3), (5,)))
    fails(lambda d, t: d.ReshapeTransform((2, 3), (6,)).forward_shape((3,)))
    fails(lambda d, t: d.IndependentTransform(d.ExpTransform(), 1)(t(1.0)))
    fails(lambda d, t: d.CatTransform([1]))
    fails(lambda d, t: d.CatTransform([d.ExpTransform()], 0, [1, 2]))
    fails(lambda d, t: d.CatTransform([d.ExpTransform()])(t([1.0, 2.0])))
    fails(lambda d, t: d.CatTransform([d.ExpTransform()], 1)(t([1.0])))
    fails(lambda d, t: d.StackTransform([d.ExpTransform()])(t([1.0, 2.0])))
    fails(lambda d, t: d.ReshapeTransform((1,), ()).event_dim)
    fails(lambda d, t: d.utils.tril_matrix_to_vec(t([[1.0]]), 1))
    fails(lambda d, t: d.utils.vec_to_tril_matrix(t([1.0, 2.0])))
    fails(lambda d, t: d.biject_to(d.constraints.lower_cholesky))
    fails(lambda d, t: d.transform_to.register(3, 4))


# ----- constraints -----

CHECKS = {
    "boolean": [0.0, 1.0, 0.5],
    "nonnegative_integer": [0.0, 2.0, -1.0, 0.5],
    "positive_integer": [0.0, 2.0, 0.5],
    "real": [0.0, float("nan"), float("inf")],
    "positive": [0.0, 1.0, -1.0],
    "nonnegative": [0.0, 1.0, -1.0],
    "unit_interval": [0.0, 1.0, -0.1, 1.1],
    "one_hot": [[0.0, 1.0], [1.0, 1.0], [0.5, 0.5]],
    "real_vector": [[0.0, 1.0], [1.0, float("nan")]],
    "simplex": [[0.5, 0.5], [0.5, 0.6], [-0.5, 1.5]],
    "lower_triangular": [[[1.0, 0.0], [2.0, 0.0]], [[1.0, 1.0], [0.0, 1.0]]],
    "lower_cholesky": [[[1.0, 0.0], [2.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]],
    "corr_cholesky": [[[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [0.6, 0.7]]],
    "square": [[[1.0, 0.0], [2.0, 0.0]]],
    "symmetric": [[[1.0, 2.0], [2.0, 0.0]], [[1.0, 1.0], [0.0, 1.0]]],
    "positive_definite": [[[1.0, 0.5], [0.5, 1.0]], [[1.0, 0.5], [0.5, 1.0]]],
}


@pytest.mark.parametrize("name", CHECKS)
def test_checks(name):
    mine, theirs = getattr(C, name), getattr(torch.distributions.constraints, name)
    got, expected = mine.check(adjit.tensor(CHECKS[name])), theirs.check(torch.tensor(CHECKS[name]))
    assert got.tolist() == expected.tolist()
    assert repr(mine) == repr(theirs)
    assert mine.event_dim == theirs.event_dim
    assert mine.is_discrete == theirs.is_discrete


def test_checks_of_composed_constraints():
    for lib in (adjit, torch):
        c, x = lib.distributions.constraints, lib.tensor([[0.5, -1.0, 2.0], [0.2, 3.0, 4.0]])
        assert c.independent(c.positive, 1).check(x).tolist() == [False, True]
        assert c.cat([c.positive, c.real], 1, [2, 1]).check(x).tolist() == [
            [True, False, True],
            [True] * 3,
        ]
        assert c.stack([c.positive, c.real]).check(x).tolist() == [[True, False, True], [True] * 3]
        assert c.integer_interval(0, 3).check(x).tolist() == [
            [False, False, True],
            [False, True, False],
        ]
        assert c.half_open_interval(0, 2).check(x[0]).tolist() == [True, False, False]
        assert c.less_than(0).check(x[0]).tolist() == [False, True, False]
        assert c.multinomial(7).check(x).tolist() == [False, False]
        assert c.stack([c.simplex, c.simplex], -1).event_dim == 1
        assert plain(repr(c.independent(c.interval(0, 1), 2))) == (
            "IndependentConstraint(Interval(lower_bound=0, upper_bound=1), 2)"
        )
        assert repr(c.multinomial(3)) == "Multinomial()"


def test_errors_of_constraints():
    def fails(make):
        agree_in_error(lambda lib: make(lib.distributions.constraints, lib.tensor))

    fails(lambda c, t: c.dependent.check(t(1.0)))
    fails(lambda c, t: c.dependent.event_dim)
    fails(lambda c, t: c.dependent.is_discrete)
    fails(lambda c, t: c.independent(c.real, 2).check(t([1.0])))
    fails(lambda c, t: c.independent(c.real, -1))
    fails(lambda c, t: c.independent(c.real, 0.5))
    fails(lambda c, t: c.independent(3, 1))
    fails(lambda c, t: c.cat([c.real], 1).check(t([1.0])))
    fails(lambda c, t: c.cat([3]))
    fails(lambda c, t: c.cat([c.real], 0, [1, 2]))
    fails(lambda c, t: c.stack([3]))
    with pytest.raises(NotImplementedError, match="eigenvalues"):
        C.positive_semidefinite.check(adjit.eye(2))


@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
@pytest.mark.parametrize(
    "constraint",
    [
        lambda c: c.real, lambda c: c.positive, lambda c: c.nonnegative, lambda c: c.greater_than(2.0),
        lambda c: c.greater_than_eq(2.0), lambda c: c.less_than(2.0), lambda c: c.unit_interval,
        lambda c: c.interval(-1.0, 3.0), lambda c: c.half_open_interval(-1.0, 3.0), lambda c: c.simplex,
        lambda c: c.real_vector, lambda c: c.independent(c.positive, 1), lambda c: c.corr_cholesky,
        lambda c: c.cat([c.positive, c.real], -1, [2, 4]), lambda c: c.lower_cholesky,
        lambda c: c.stack([c.positive, c.unit_interval] * 3, -1), lambda c: c.positive_definite,
    ],
)  # fmt: skip
def test_transforms_to_constraints(constraint, registry):
    libraries = []
    for lib in (adjit, torch):
        d = lib.distributions
        libraries.append(outcome(lambda d=d: getattr(d, registry)(constraint(d.constraints))))
    mine, theirs = libraries
    if isinstance(theirs, type):
        assert mine is theirs
        return
    x = rng.standard_normal((3, 6) if mine.domain.event_dim < 2 else (2, 3, 3))
    got = mine(adjit.tensor(x))
    close(got, theirs(torch.tensor(x)))
    assert constraint(C).check(got).all()
    assert plain(repr(mine)) == plain(repr(theirs))
