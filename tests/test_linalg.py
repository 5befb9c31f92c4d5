"""Cholesky factors and triangular systems: values and errors beside PyTorch's, gradients by differences."""

from __future__ import annotations

import numpy as np
import pytest
from against_torch import agree_in_error, torch

import adjit as T
from adjit.ops.linalg import is_positive_definite

rng = np.random.default_rng(0)
SHAPES = [(1,), (3,), (2, 3), (2, 3, 5), (64,), (2, 65), (130,), (0,), (0, 3)]


def positive(*shape):
    """Positive-definite matrices of these batches; the last number is their size."""
    x = rng.standard_normal((*shape, shape[-1]))
    return x @ np.swapaxes(x, -1, -2) + shape[-1] * np.eye(shape[-1])


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cholesky(shape, upper):
    a = positive(*shape)
    expected = torch.linalg.cholesky(torch.tensor(a), upper=upper)
    got = T.linalg.cholesky(T.tensor(a), upper=upper)
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-9, atol=1e-12)
    single = T.linalg.cholesky(T.tensor(a.astype(np.float32)), upper=upper)
    assert single.dtype is T.float32
    np.testing.assert_allclose(single.numpy(), expected.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_reads_one_triangle(upper):
    a = positive(4)
    other = a + np.tril(np.full((4, 4), 7.0), -1) if upper else a + np.triu(np.full((4, 4), 7.0), 1)
    got = T.linalg.cholesky(T.tensor(other), upper=upper)
    assert T.allclose(got, T.linalg.cholesky(T.tensor(a), upper=upper))


@pytest.mark.parametrize("unitriangular", [False, True])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_solve_triangular(shape, upper, left, unitriangular):
    *batch, n = shape
    a = rng.standard_normal((*batch, n, n)) / max(n, 1) + 2 * np.eye(n)
    b = rng.standard_normal((*batch, n, 7) if left else (*batch, 7, n))
    how = {"upper": upper, "left": left, "unitriangular": unitriangular}
    expected = torch.linalg.solve_triangular(torch.tensor(a), torch.tensor(b), **how)
    got = T.linalg.solve_triangular(T.tensor(a), T.tensor(b), **how)
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-9, atol=1e-10)


def test_solve_triangular_broadcasts():
    a, b = positive(3), rng.standard_normal((2, 1, 3, 2))
    for shapes in ((a, b), (np.stack([a] * 5), b), (np.stack([a] * 2)[:, None], b[0, 0])):
        expected = torch.linalg.solve_triangular(*map(torch.tensor, shapes), upper=False)
        got = T.linalg.solve_triangular(*map(T.tensor, shapes), upper=False)
        assert got.shape == tuple(expected.shape)
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-9)
    many = rng.standard_normal((3, 200))
    expected = torch.linalg.solve_triangular(torch.tensor(a), torch.tensor(many), upper=True)
    got = T.linalg.solve_triangular(T.tensor(a), T.tensor(many), upper=True)
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-9)


def test_a_zero_on_the_diagonal_gives_infinities():
    got, expected = (
        lib.linalg.solve_triangular(lib.zeros(3, 3), lib.ones(3, 1), upper=True).numpy()
        for lib in (T, torch)
    )
    np.testing.assert_equal(got, expected)


@pytest.mark.parametrize("upper", [False, True])
def test_gradients(upper):
    a = T.tensor(positive(2, 3), requires_grad=True)
    b = T.tensor(rng.standard_normal((2, 3, 2)), requires_grad=True)
    one = T.tensor(positive(3), requires_grad=True)

    def factor(x):
        return T.linalg.cholesky((x + x.mT) / 2, upper=upper)

    assert T.autograd.gradcheck(factor, (a,))
    assert T.autograd.gradgradcheck(factor, (a,))
    for left in (True, False):
        for unitriangular in (True, False):

            def solution(x, y, left=left, unitriangular=unitriangular):
                y = y if left else y.mT
                return T.linalg.solve_triangular(
                    x, y, upper=upper, left=left, unitriangular=unitriangular
                )

            assert T.autograd.gradcheck(solution, (a, b))
            assert T.autograd.gradcheck(solution, (one, b))
            assert T.autograd.gradgradcheck(solution, (a, b))


@pytest.mark.parametrize("n", [4, 130])
def test_the_gradient_of_a_factor_is_symmetric(n):
    a = positive(n)
    grads = []
    for lib in (T, torch):
        x = lib.tensor(a, requires_grad=True)
        lib.linalg.cholesky(x).sin().sum().backward()
        grads.append(x.grad.numpy())
    np.testing.assert_allclose(*grads, rtol=1e-7, atol=1e-10)


def test_errors_are_those_of_pytorch():
    def factor(a):
        agree_in_error(lambda lib: lib.linalg.cholesky(lib.tensor(a)).sum().item())

    factor(np.ones(3))
    factor(np.ones((2, 3)))
    factor(np.ones((2, 2), dtype=np.int64))
    factor(-np.eye(2))
    factor(np.stack([np.eye(2), [[1.0, 2.0], [2.0, 1.0]]]))
    late = positive(130)
    late[100, 100] = -5
    factor(late)
    factor(np.stack([positive(130), late]))

    def solve(a, b, **how):
        agree_in_error(
            lambda lib: lib.linalg.solve_triangular(
                lib.tensor(a), lib.tensor(b), upper=False, **how
            )
        )

    solve(np.ones(3), np.ones((3, 1)))
    solve(np.ones((2, 3)), np.ones((3, 1)))
    solve(np.eye(3), np.ones(3))
    solve(np.eye(3), np.ones((2, 1)))
    solve(np.eye(3), np.ones((2, 1)), left=False)
    solve(np.eye(3, dtype=np.int64), np.ones((3, 1), dtype=np.int64))
    solve(np.zeros((2, 3, 3)), np.zeros((4, 3, 1)))
    with pytest.raises(RuntimeError, match="same dtype"):  # PyTorch reads one as the other
        T.linalg.solve_triangular(T.eye(3), T.ones(3, 1).double(), upper=False)
    assert issubclass(T.linalg.LinAlgError, RuntimeError)


def test_what_is_positive_definite():
    good, late = positive(130), positive(130)
    late[100, 100] = -5
    assert is_positive_definite(T.tensor(np.stack([good, late, -good]))).tolist() == [
        True,
        False,
        False,
    ]
    assert not is_positive_definite(T.full((2, 2), float("nan")))
