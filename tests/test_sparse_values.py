"""Values of sparse Jacobians and Hessians in operations that need batching rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from test_sparse import (
    FUNCTIONS,
    SCALARS,
    heat,
    heat_on_a_plane,
    hessian,
    jacobian,
    randn,
    rosenbrock,
)

from adjit.func import (
    Sparsity,
    hessian_sparsity,
    jacobian_sparsity,
    sparse_hessian,
    sparse_jacobian,
)


@pytest.mark.parametrize(
    "f", [heat, heat_on_a_plane, lambda u: u[1:] * u[:-1].sin(), lambda u: u.view(6, 6).t() ** 2]
)
def test_jacobians_by_columns_and_by_rows(f: Any) -> None:
    x = randn(36)
    wanted = jacobian(f, x)
    pattern = jacobian_sparsity(f, x).pattern
    for sparsity in (
        None,
        pattern,
        Sparsity(pattern, mode="rows"),
        Sparsity(pattern, mode="columns"),
    ):
        found = sparse_jacobian(f, pattern=sparsity)(x)
        assert isinstance(found, sp.csr_array)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found.toarray(), wanted, rtol=1e-12)
    other = randn(36)
    again = sparse_jacobian(f, pattern=jacobian_sparsity(f, x))(other)
    np.testing.assert_allclose(again.toarray(), jacobian(f, other), rtol=1e-12)


@pytest.mark.parametrize(
    "f",
    [
        rosenbrock,
        lambda u: (u * u.roll(1)).exp().sum(),
        lambda u: (heat(u) ** 4).sum(),
        lambda u: heat_on_a_plane(u).pow(3).sum(),
    ],
)
def test_hessians(f: Any) -> None:
    x = randn(36)
    found = sparse_hessian(f)(x)
    assert isinstance(found, sp.csr_array)
    np.testing.assert_allclose(found.toarray(), hessian(f, x), rtol=1e-9, atol=1e-9)
    assert (abs(found - found.T)).max() < 1e-9
    reused = sparse_hessian(f, pattern=hessian_sparsity(f, x))(2 * x)
    np.testing.assert_allclose(reused.toarray(), hessian(f, 2 * x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jacobians_of_all_kinds(name: str) -> None:
    f, x = FUNCTIONS[name][0], randn(36)
    pattern = jacobian_sparsity(f, x).pattern
    for mode in ("columns", "rows"):
        found = sparse_jacobian(f, pattern=Sparsity(pattern, mode=mode))(x)
        np.testing.assert_allclose(found.toarray(), jacobian(f, x), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", SCALARS)
def test_hessians_of_all_kinds(name: str) -> None:
    f, x = SCALARS[name][0], randn(36)
    np.testing.assert_allclose(sparse_hessian(f)(x).toarray(), hessian(f, x), rtol=1e-8, atol=1e-8)
