"""What distributions share that are given a covariance, its inverse, or its Cholesky factor."""

from __future__ import annotations

from typing import ClassVar

from ..ops.creation import eye
from ..ops.linalg import linalg_cholesky, solve_triangular
from ..shapes import broadcast_shapes
from ..tensor import Tensor
from .distribution import Distribution
from .utils import lazy_property


def inverse_of_factor(factor: Tensor) -> Tensor:
    """The inverse of lower triangular matrices."""
    n = factor.shape[-1]
    return solve_triangular(factor, eye(n, dtype=factor.dtype, device=factor.device), upper=False)


def precision_to_scale_tril(precision: Tensor) -> Tensor:
    """The factor of the inverse of matrices: turned around, it is the inverse of their factor turned around."""
    turned = linalg_cholesky(precision.flip((-2, -1)))
    return inverse_of_factor(turned.flip((-2, -1)).mT)


def half_log_det(factor: Tensor) -> Tensor:
    """Half the logarithm of the determinant of matrices with these factors."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def batch_mv(matrix: Tensor, vector: Tensor) -> Tensor:
    """Products of matrices and vectors."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def squared_norm(matrix: Tensor) -> Tensor:
    """The sums of the squares of matrices: the traces of X X^T."""
    return matrix.square().sum((-2, -1))


def mahalanobis(factor: Tensor, x: Tensor) -> Tensor:
    """x^T S^-1 x for vectors and matrices S with these factors.

    Vectors that share a matrix are columns of one right-hand side.
    """
    n, batch = x.shape[-1], factor.shape[:-2]
    x = x.expand((*broadcast_shapes(x.shape[:-1], batch), n))
    shared = x.ndim - 1 - len(batch)
    columns = x.reshape((-1, *x.shape[shared:])).movedim(0, -1)
    solved = solve_triangular(factor, columns, upper=False)
    return solved.square().sum(-2).movedim(-1, 0).reshape(x.shape[:-1])


class GivenCovariance(Distribution):
    """A distribution with a covariance: whichever of its three forms is given, the others follow."""

    _keeps: ClassVar[tuple[str, ...]] = ("_unbroadcasted_scale_tril",)
    _unbroadcasted_scale_tril: Tensor

    def _expanded_matrix(self, matrix: Tensor) -> Tensor:
        return matrix.expand((*self._batch_shape, *matrix.shape[-2:]))

    @staticmethod
    def _scale_tril_of(name: str, matrix: Tensor) -> Tensor:
        """The factor of what is given by that name."""
        if name == "covariance_matrix":
            return linalg_cholesky(matrix)
        return precision_to_scale_tril(matrix) if name == "precision_matrix" else matrix

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance."""
        return self._expanded_matrix(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        factor = self._unbroadcasted_scale_tril
        return self._expanded_matrix(factor @ factor.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        inverse = inverse_of_factor(self._unbroadcasted_scale_tril)
        return self._expanded_matrix(inverse.mT @ inverse)
