"""The normal distribution of vectors whose covariance is a diagonal and a product of narrow matrices."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..ops.creation import eye
from ..ops.linalg import linalg_cholesky, solve_triangular
from ..ops.shape import broadcast_tensors
from ..tensor import Tensor
from . import constraints
from .covariance import batch_mv, half_log_det, mahalanobis
from .distribution import Distribution
from .utils import lazy_property, standard_normal

__all__ = ["LowRankMultivariateNormal"]


def plus_identity(matrix: Tensor) -> Tensor:
    """Matrices with 1 added on the diagonals."""
    return matrix + eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def log_det(distribution: LowRankMultivariateNormal) -> Tensor:
    """The logarithm of the covariance's determinant."""
    diagonal = distribution._unbroadcasted_cov_diag
    return 2 * half_log_det(distribution._capacitance_tril) + diagonal.log().sum(-1)


def weighted(distribution: LowRankMultivariateNormal) -> Tensor:
    """W^T D^-1."""
    diagonal = distribution._unbroadcasted_cov_diag.unsqueeze(-2)
    return distribution._unbroadcasted_cov_factor.mT / diagonal


def distance(distribution: LowRankMultivariateNormal, x: Tensor) -> Tensor:
    """x^T (W W^T + D)^-1 x, by Woodbury's identity."""
    inner = mahalanobis(distribution._capacitance_tril, batch_mv(weighted(distribution), x))
    return (x.square() / distribution._unbroadcasted_cov_diag).sum(-1) - inner


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of vectors with covariance `cov_factor @ cov_factor.mT + diag(cov_diag)`.

    Only matrices of the rank are factorised (Woodbury's identity, the matrix determinant lemma).

    Args:
        loc: (..., n), the mean.
        cov_factor: (..., n, rank).
        cov_diag: (..., n), positive.

    Raises:
        ValueError: if the shapes do not fit.

    Example:
        >>> d = adjit.distributions.LowRankMultivariateNormal(
        ...     adjit.zeros(2), adjit.tensor([[1.], [0.]]), adjit.ones(2)
        ... )
        >>> d.variance
        tensor([2., 1.])
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True
    _keeps = ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril")

    def __init__(
        self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None
    ) -> None:
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event_shape = loc.shape[-1:]
        if cov_factor.ndim < 2:
            raise ValueError(
                "cov_factor must be at least two-dimensional, with optional leading batch dimensions"
            )
        if cov_factor.shape[-2:-1] != event_shape:
            raise ValueError(
                f"cov_factor must be a batch of matrices with shape {event_shape[0]} x m"
            )
        if cov_diag.shape[-1:] != event_shape:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event_shape}")
        try:
            columns = broadcast_tensors(loc.unsqueeze(-1), cov_factor, cov_diag.unsqueeze(-1))
        except RuntimeError as error:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag "
                f"{cov_diag.shape}"
            ) from error
        self.loc, self.cov_factor, self.cov_diag = (
            columns[0][..., 0],
            columns[1],
            columns[2][..., 0],
        )
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        self._capacitance_tril = linalg_cholesky(plus_identity(weighted(self) @ cov_factor))
        super().__init__(self.loc.shape[:-1], event_shape, validate_args=validate_args)

    def _expanded_matrix(self, matrix: Tensor) -> Tensor:
        return matrix.expand((*self._batch_shape, *matrix.shape[-2:]))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        squares = self._unbroadcasted_cov_factor.square().sum(-1)
        return (squares + self._unbroadcasted_cov_diag).expand(self._extended_shape())

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance, by a factorisation of a matrix with eigenvalues above 1."""
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / root
        return self._expanded_matrix(root * linalg_cholesky(plus_identity(scaled @ scaled.mT)))

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        factor = self._unbroadcasted_cov_factor
        return self._expanded_matrix(factor @ factor.mT + self._unbroadcasted_cov_diag.diag_embed())

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance, by Woodbury's identity."""
        inner = solve_triangular(self._capacitance_tril, weighted(self), upper=False)
        inverse = self._unbroadcasted_cov_diag.reciprocal().diag_embed() - inner.mT @ inner
        return self._expanded_matrix(inverse)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        common = standard_normal(self.loc, (*shape[:-1], self.cov_factor.shape[-1]))
        own = standard_normal(self.loc, shape)
        shared = batch_mv(self._unbroadcasted_cov_factor, common)
        return self.loc + shared + self._unbroadcasted_cov_diag.sqrt() * own

    def log_prob(self, value: Tensor) -> Tensor:
        away = distance(self, self._checked(value) - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + log_det(self) + away)

    def entropy(self) -> Tensor:
        n = self._event_shape[0]
        entropy = 0.5 * (n * (1 + math.log(2 * math.pi)) + log_det(self))
        return entropy.expand(self._batch_shape)
