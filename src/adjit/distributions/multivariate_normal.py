"""The normal distribution of vectors."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..shapes import broadcast_shapes
from ..tensor import Tensor
from . import constraints
from .covariance import GivenCovariance, batch_mv, half_log_det, mahalanobis
from .utils import standard_normal

__all__ = ["MultivariateNormal"]


class MultivariateNormal(GivenCovariance):
    """The normal distribution of vectors.

    Args:
        loc: (..., n), the mean.
        covariance_matrix: (..., n, n), positive-definite.
        precision_matrix: its inverse, instead.
        scale_tril: its lower Cholesky factor, instead, which saves the factorisation.

    Raises:
        ValueError: if not exactly one of the matrices is given, or something has too few dimensions.

    Example:
        >>> adjit.distributions.MultivariateNormal(adjit.zeros(2), adjit.eye(2)).log_prob(adjit.zeros(2))
        tensor(-1.8379)
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, loc: Tensor, covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None, scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        forms = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = [(name, matrix) for name, matrix in forms.items() if matrix is not None]
        if len(given) != 1:
            raise ValueError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified."
            )
        ((name, matrix),) = given
        if matrix.ndim < 2:
            shown = "scale_tril matrix" if name == "scale_tril" else name
            raise ValueError(
                f"{shown} must be at least two-dimensional, with optional leading batch dimensions"
            )
        batch_shape = broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand((*batch_shape, -1, -1)))
        self.loc = loc.expand((*batch_shape, -1))
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = self._scale_tril_of(name, matrix)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        squares = self._unbroadcasted_scale_tril.square().sum(-1)
        return squares.expand(self._extended_shape())

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        noise = standard_normal(self.loc, self._extended_shape(sample_shape))
        return self.loc + batch_mv(self._unbroadcasted_scale_tril, noise)

    def log_prob(self, value: Tensor) -> Tensor:
        distance = mahalanobis(self._unbroadcasted_scale_tril, self._checked(value) - self.loc)
        log_norm = half_log_det(self._unbroadcasted_scale_tril)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - log_norm

    def entropy(self) -> Tensor:
        n, log_norm = self._event_shape[0], half_log_det(self._unbroadcasted_scale_tril)
        return (0.5 * n * (1 + math.log(2 * math.pi)) + log_norm).expand(self._batch_shape)
