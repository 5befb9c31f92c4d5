"""Sparse Jacobians and Hessians: patterns, colours and values beside dense ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import adjit
from adjit.func import (
    Sparsity,
    hessian_sparsity,
    jacobian_sparsity,
    sparse_hessian,
    sparse_jacobian,
)
from adjit.func.coloring import color_columns, color_star, number_of
from adjit.func.sparse import entries_by_star

F = adjit.nn.functional


def randn(*shape: int) -> Any:
    return adjit.randn(*shape, dtype=adjit.float64)


def constant(values: Any) -> Any:
    return adjit.tensor(np.asarray(values, np.float64))


def jacobian(f: Any, x: Any) -> Any:
    found = adjit.autograd.functional.jacobian(f, x)
    return found.detach().numpy().reshape(-1, x.numel())


def hessian(f: Any, x: Any) -> Any:
    found = adjit.autograd.functional.hessian(f, x)
    return found.detach().numpy().reshape(x.numel(), x.numel())


# ------------------------------------------------------------------ functions


def heat(u: Any) -> Any:
    return u[2:] - 2 * u[1:-1] + u[:-2]


def heat_with_ends(u: Any) -> Any:
    out = adjit.zeros_like(u)
    out[1:-1] = heat(u) * u[1:-1].exp()
    out[0] = u[0]
    return out


def heat_on_a_plane(u: Any) -> Any:
    u = u.view(6, 6)
    inner = u[1:-1, 1:-1]
    return u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * inner * inner


def rosenbrock(x: Any) -> Any:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def written(u: Any) -> Any:
    y = u * 1
    y[1:4] = u[5:8] ** 2
    y.view(6, 6)[:, 1].mul_(u[:6])
    z = adjit.zeros_like(u)
    z[2:] = y[:-2].clone().sin()
    y[3:5] = 1
    return adjit.cat([z, y])


ONES = constant(np.ones((4, 2, 3)))
KERNEL = constant([[[0, 1, 0], [1, -4, 1], [0, 1, 0]]])[None]

# Of 36 inputs; the second number says how many entries the pattern may have at most for each that there is.
FUNCTIONS: dict[str, tuple[Any, float]] = {
    "heat": (heat, 1),
    "heat with ends": (heat_with_ends, 1),
    "heat on a plane": (heat_on_a_plane, 1),
    "written": (written, 1),
    "columns": (lambda u: u.view(6, 6).t().exp().sum(0), 1),
    "joined": (lambda u: adjit.cat([u[::2], u.flip(0), adjit.ones(3).double()]), 1),
    "padded": (lambda u: F.pad(u, (2, 3))[1:] * 2, 1),
    "circular": (lambda u: F.pad(u.view(1, 1, 36), (2, 3), mode="circular"), 1),
    "softmax": (lambda u: u.view(6, 6).softmax(1), 1),
    "log softmax": (lambda u: u.view(6, 6).log_softmax(0), 1),
    "product": (lambda u: u.view(6, 6) @ u.view(6, 6), 1),
    "batched product": (lambda u: u.view(3, 3, 4) @ u.view(3, 4, 3), 1),
    "linear": (
        lambda u: F.linear(u.view(9, 4), constant(np.ones((2, 4))), constant(np.ones(2))),
        1,
    ),
    "sparse matrix": (lambda u: constant(np.eye(36, k=1) - np.eye(36)) @ u, 1),
    "sparse matrix to the right": (lambda u: u.view(6, 6) @ constant(np.eye(6, k=2)), 1),
    "convolution": (lambda u: F.conv2d(u.view(1, 1, 6, 6), KERNEL, padding=1), 1),
    "strided convolution": (
        lambda u: F.conv1d(
            u.view(1, 4, 9), constant(np.ones((4, 2, 3))), stride=2, padding=2, dilation=2, groups=2
        ),
        1,
    ),
    "sorted": (lambda u: u.sort()[0], 1),
    "largest": (lambda u: u.view(6, 6).max(1)[0], 1),
    "maxima of windows": (lambda u: F.max_pool2d(u.view(1, 1, 6, 6), 2), 1),
    "all": (lambda u: u.logsumexp(0), 1),
    "mean": (lambda u: u.view(2, 3, 6).mean((0, 2)), 1),
    "variance": (lambda u: u.view(6, 6).var(1), 1),
    "rows": (lambda u: u[adjit.tensor([3, 1, 1, 35])] * u[:4], 1),
    "gathered": (lambda u: u.view(6, 6).gather(1, adjit.tensor([[0, 5], [1, 1]])), 1),
    "added": (lambda u: adjit.zeros_like(u).index_add(0, adjit.tensor([0, 0, 3]), u[:3]), 1),
    "scattered": (lambda u: adjit.zeros_like(u).scatter_add(0, adjit.tensor([7, 7, 2]), u[1:4]), 1),
    "masked": (lambda u: u.masked_fill(u > 0, 0.0).square(), 3),
    "chosen": (lambda u: adjit.where(u > 0, u, u.roll(1)), 3),
    "normal": (lambda u: F.layer_norm(u.view(6, 6), (6,)), 1),
    "running sums": (lambda u: u.cumsum(0), 2),
    "means of windows": (lambda u: F.avg_pool1d(u.view(1, 1, 36), 2), 36),
    "triangle": (lambda u: u.view(6, 6).tril() * 3, 1),
    "unfolded": (lambda u: u.unfold(0, 4, 3).prod(1), 1),
    "of float32": (lambda u: u.float()[::2].exp(), 1),
    "constant": (lambda u: adjit.ones(3) * 2, 1),
    "detached": (lambda u: u.detach() * u.roll(3), 1),
    "turned": (lambda u: u.view(2, 3, 6).permute(2, 0, 1).contiguous().view(-1).roll(1) * u, 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_patterns_have_all_entries_and_few_more(name: str) -> None:
    f, factor = FUNCTIONS[name]
    for seed in range(3):  # how many elements are masked is not left to chance
        x = constant(np.random.default_rng(seed).standard_normal(36))
        pattern = jacobian_sparsity(f, x).pattern.toarray()
        dense = jacobian(f, x)
        assert pattern.shape == dense.shape
        assert not dense[~pattern].any()
        assert pattern.sum() <= factor * (dense != 0).sum()


SCALARS: dict[str, tuple[Any, float]] = {
    "rosenbrock": (rosenbrock, 1),
    "neighbours": (lambda u: (u * u.roll(1)).sum(), 1),
    "squares of heat": (lambda u: (heat(u) ** 2).sum(), 1),
    "outer function": (lambda u: (u * u.roll(1)).sum().exp(), 1),
    "dot": (lambda u: u @ u, 1),
    "quadratic form": (lambda u: u @ (constant(np.eye(36, k=3) + np.eye(36)) @ u), 1),
    "blocks": (lambda u: u.view(6, 6).logsumexp(1).sum(), 1),
    "product": (lambda u: (u.view(6, 6) @ u.view(6, 6)).sum(), 10),
    "linear": (lambda u: (3 * u + u.flip(0)).sum() / 7, 1),
    "rectified": (lambda u: F.relu(u).sum() + u.abs().sum() + u.max(), 1),
    "quotient": (lambda u: (u[1:] / (u[:-1] ** 2 + 1)).sum(), 1),
    "written": (lambda u: written(u).sum(), 1),
    "loss": (lambda u: F.mse_loss(u[1:] ** 2, u[:-1]), 36),
    "variance": (lambda u: u.view(6, 6).var(1).sum(), 1),
    "convolution": (lambda u: F.conv2d(u.view(1, 1, 6, 6), KERNEL).pow(2).sum(), 1.2),
}


@pytest.mark.parametrize("name", SCALARS)
def test_patterns_of_hessians_have_all_entries_and_few_more(name: str) -> None:
    f, factor = SCALARS[name]
    for _ in range(2):
        x = randn(36)
        pattern = hessian_sparsity(f, x).pattern.toarray()
        dense = hessian(f, x)
        assert not dense[~pattern].any()
        assert pattern.sum() <= factor * max((np.abs(dense) > 1e-14).sum(), 0)


# ------------------------------------------------------------------ values


@pytest.mark.parametrize(
    "f", [heat, heat_on_a_plane, lambda u: u[1:] * u[:-1].sin(), lambda u: u.view(6, 6).t() ** 2]
)
def test_jacobians_by_columns(f: Any) -> None:
    x = randn(36)
    wanted = jacobian(f, x)
    sparsity = jacobian_sparsity(f, x)
    for pattern in (None, sparsity.pattern, Sparsity(sparsity.pattern, mode="columns")):
        found = sparse_jacobian(f, pattern=pattern)(x)
        assert isinstance(found, sp.csr_array)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found.toarray(), wanted, rtol=1e-12)
    other = randn(36)
    again = sparse_jacobian(f, pattern=sparsity)(other)
    np.testing.assert_allclose(again.toarray(), jacobian(f, other), rtol=1e-12)


def test_jacobians_by_rows() -> None:
    f = lambda u: u.exp().view(6, 6) * constant(np.arange(36).reshape(6, 6))  # noqa: E731
    x = randn(36)
    sparsity = Sparsity(jacobian_sparsity(f, x).pattern, mode="rows")
    assert (sparsity.mode, sparsity.passes) == ("rows", 1)
    np.testing.assert_allclose(
        sparse_jacobian(f, pattern=sparsity)(x).toarray(), jacobian(f, x), rtol=1e-12
    )


@pytest.mark.parametrize(
    "f", [lambda u: u.exp().sum(), lambda u: (u.view(6, 6) ** 3 * u.view(6, 6)).sum()]
)
def test_hessians(f: Any) -> None:
    x = randn(36)
    found = sparse_hessian(f)(x)
    assert isinstance(found, sp.csr_array)
    np.testing.assert_allclose(found.toarray(), hessian(f, x), rtol=1e-9, atol=1e-9)
    reused = sparse_hessian(f, pattern=hessian_sparsity(f, x))(2 * x)
    np.testing.assert_allclose(reused.toarray(), hessian(f, 2 * x), rtol=1e-9, atol=1e-9)


def test_few_passes_for_any_size() -> None:
    assert jacobian_sparsity(heat, adjit.ones(5000)).passes == 3
    assert jacobian_sparsity(lambda u: u.exp() * 2, adjit.ones(500)).passes == 1
    assert jacobian_sparsity(lambda u: u.sum().reshape(1), adjit.ones(50)).passes == 1  # by rows
    assert jacobian_sparsity(lambda u: u.sum() + u[:1].expand(50), adjit.ones(50)).passes == 50
    assert hessian_sparsity(rosenbrock, adjit.ones(2000)).passes == 3


def test_another_argument_and_shape() -> None:
    a, x = randn(3), randn(4, 3)
    found = sparse_jacobian(lambda a, x: x[1:] * a, argnums=1)(a, x)
    assert found.shape == (9, 12)
    assert found.nnz == 9
    np.testing.assert_allclose(found.toarray(), jacobian(lambda x: x[1:] * a, x))


def test_zeros_of_this_point_are_stored() -> None:
    assert sparse_jacobian(lambda x: x * x)(adjit.zeros(3)).nnz == 3


def test_results_that_depend_on_nothing() -> None:
    found = sparse_jacobian(lambda x: x.detach() * 2)(randn(3))
    assert found.shape == (3, 3)
    assert found.nnz == 0
    assert sparse_hessian(lambda x: x.sum())(randn(3)).nnz == 0
    assert sparse_jacobian(lambda x: x * 2)(adjit.ones(0)).shape == (0, 0)


def test_errors_say_what_is_wrong() -> None:
    x = adjit.ones(4)
    with pytest.raises(TypeError, match="argument 0 to be a tensor of a floating dtype, but got"):
        sparse_jacobian(heat)(adjit.arange(4))
    with pytest.raises(TypeError, match="expected the function to give a tensor"):
        sparse_jacobian(lambda x: (x, x))(x)
    with pytest.raises(ValueError, match="pattern with 4 columns"):
        sparse_jacobian(heat, pattern=sp.eye_array(3))(x)
    with pytest.raises(ValueError, match="pattern with 2 rows"):
        sparse_jacobian(heat, pattern=sp.eye_array(3, 4))(x)
    with pytest.raises(ValueError, match="result of one element"):
        sparse_hessian(lambda x: x * x)(x)
    with pytest.raises(ValueError, match="4 rows and columns"):
        sparse_hessian(rosenbrock, pattern=sp.eye_array(3))(x)
    buffer = adjit.zeros(4)
    with pytest.raises(RuntimeError, match="make it inside of the function"):
        jacobian_sparsity(lambda x: buffer.copy_(x), x)


# ------------------------------------------------------------------ random programs

STEPS: list[Any] = [
    lambda x, k: x.sin() * x,
    lambda x, k: x.roll(k) + x,
    lambda x, k: x * x.flip(0),
    lambda x, k: x.view(3, 4).roll(k, 1).reshape(-1),
    lambda x, k: x.view(3, 4).t().reshape(-1) - 2 * x,
    lambda x, k: adjit.cat([x[k:], x[:k]]),
    lambda x, k: x.view(3, 4).sum(k % 2, keepdim=True).expand(3, 4).reshape(-1) * x,
    lambda x, k: x.view(4, 3).cumsum(k % 2).reshape(-1),
    lambda x, k: x[adjit.tensor([(5 * i + k) % 12 for i in range(12)])].tanh(),
    lambda x, k: F.pad(x, (k, 0))[:12] / (x * x + 1),
    lambda x, k: x.view(3, 4).softmax(k % 2).reshape(-1),
    lambda x, k: (x.view(3, 4) @ x.view(4, 3)).reshape(-1).repeat(2)[:12],
    lambda x, k: x.view(2, 6).max(1, keepdim=True)[0].expand(2, 6).reshape(-1) + x,
    lambda x, k: adjit.where(x > 0, x * 2, x.roll(1)),
    lambda x, k: replaced(x, k),
    lambda x, k: x.view(3, 4).tril(k - 2).reshape(-1),
    lambda x, k: x.sort()[0],
    lambda x, k: x.float().double().exp(),
]  # fmt: skip


def replaced(x: Any, k: int) -> Any:
    y = x * 1
    y[k::2] = x[: len(range(k, 12, 2))]
    y.view(3, 4)[:, k % 4].mul_(x[:3])
    return y


PROGRAMS = st.lists(
    st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 4)), min_size=1, max_size=4
)


@settings(deadline=None, max_examples=30)
@given(PROGRAMS, st.integers(0, 1000))
def test_patterns_of_random_programs_are_never_too_sparse(steps: Any, seed: int) -> None:
    def f(x: Any) -> Any:
        for which, k in steps:
            x = STEPS[which](x, k)
        return x

    def total(x: Any) -> Any:
        return (f(x) * constant(np.arange(1, 13))).sum()

    random = np.random.default_rng(seed)
    for scale in (1.0, 0.1):
        x = constant(random.standard_normal(12) * scale)
        for dense, sparse in (
            (jacobian(f, x), jacobian_sparsity(f, x)), (hessian(total, x), hessian_sparsity(total, x)),
        ):  # fmt: skip
            is_part = sparse.pattern.toarray()
            outside = dense[~is_part]
            assert not outside[~np.isnan(outside)].any()
            # 0 times infinity stands in the place of a derivative that is none only where numbers overflow.
            assert not np.isnan(outside).any() or not np.isfinite(dense[is_part]).all()


# ------------------------------------------------------------------ colours


def matrices(symmetric: bool) -> Any:
    def made(drawn: Any) -> Any:
        n, seed, density = drawn
        pattern = np.random.default_rng(seed).random((n, n if symmetric else n + 3)) < density
        return sp.csr_array(pattern | pattern.T if symmetric else pattern)

    return st.tuples(st.integers(1, 14), st.integers(0, 10**6), st.floats(0, 1)).map(made)


@settings(deadline=None, max_examples=100)
@given(matrices(symmetric=False))
def test_columns_of_a_colour_share_no_row(pattern: Any) -> None:
    colors = color_columns(pattern)
    assert set(colors) == set(range(number_of(colors)))
    for row in pattern.toarray():
        assert len(set(colors[row])) == row.sum()


@settings(deadline=None, max_examples=100)
@given(matrices(symmetric=True), st.integers(0, 1000))
def test_star_colours_give_back_any_symmetric_matrix(pattern: Any, seed: int) -> None:
    values = np.random.default_rng(seed).standard_normal(pattern.shape)
    values = (values + values.T) * pattern.toarray()
    sparsity = Sparsity(pattern, symmetric=True)
    sums = np.zeros((sparsity.passes, len(values)))
    np.add.at(sums, sparsity.colors, values)
    found = np.zeros_like(values)
    found[sparsity.pattern.nonzero()] = entries_by_star(sparsity, sums)
    np.testing.assert_array_equal(found, values)
    assert number_of(color_star(pattern)) <= number_of(color_columns(pattern))
