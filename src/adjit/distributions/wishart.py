"""The Wishart distribution."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable

from ..ops.comparison import where
from ..ops.creation import arange, as_tensor
from ..ops.linalg import is_positive_definite, linalg_cholesky, solve_triangular
from ..shapes import broadcast_shapes
from ..tensor import Tensor
from . import constraints
from .chi2 import Chi2
from .covariance import GivenCovariance, half_log_det, squared_norm
from .exp_family import ExponentialFamily
from .utils import Operand, eps_of, multigammaln, standard_normal

__all__ = ["Wishart"]


class Wishart(GivenCovariance, ExponentialFamily):
    """The Wishart distribution: of the sum of `df` products x x^T of normal vectors x.

    Samples are made of factors (Bartlett's decomposition), along which they are differentiable.

    Args:
        df: the degrees of freedom, above n - 1; they need not be whole.
        covariance_matrix: (..., n, n), that of the vectors.
        precision_matrix: its inverse, instead.
        scale_tril: its lower Cholesky factor, instead.

    Raises:
        AssertionError: if not exactly one of the matrices is given.
        ValueError: if it has too few dimensions, or there are too few degrees of freedom.

    Example:
        >>> adjit.distributions.Wishart(3., adjit.eye(2)).mean
        tensor([[3., 0.],
                [0., 3.]])
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0
    _keeps = ("_unbroadcasted_scale_tril", "_dist_chi2")

    def __init__(
        self, df: Operand, covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None, scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        forms = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = [(name, matrix) for name, matrix in forms.items() if matrix is not None]
        if len(given) != 1:
            raise AssertionError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified."
            )
        ((name, matrix),) = given
        if matrix.ndim < 2:
            raise ValueError(
                "scale_tril must be at least two-dimensional, with optional leading batch dimensions"
            )
        freedom = as_tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch_shape = broadcast_shapes(matrix.shape[:-2], freedom.shape)
        self.df = freedom.expand(batch_shape)
        n = matrix.shape[-1]
        if (self.df <= n - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {n - 1}.")
        if (self.df < n).any():
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < "
                "ndim.",
                stacklevel=2,
            )
        setattr(self, name, matrix.expand((*batch_shape, -1, -1)))
        super().__init__(batch_shape, matrix.shape[-2:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = self._scale_tril_of(name, matrix)
        rows = arange(n, dtype=matrix.dtype, device=matrix.device)
        self._dist_chi2 = Chi2(self.df.unsqueeze(-1) - rows)

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self._event_shape[-1] - 1),
        }

    @property
    def mean(self) -> Tensor:
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self._event_shape[-1] - 1
        factor = where(factor <= 0, math.nan, factor)
        return factor[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        covariance = self.covariance_matrix
        diagonal = covariance.diagonal(dim1=-2, dim2=-1)
        products = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self.df[..., None, None] * (covariance.square() + products)

    def _bartlett(self, sample_shape: Iterable[int]) -> Tensor:
        """Samples by Bartlett's decomposition, some of which may be singular."""
        roots = self._dist_chi2.rsample(sample_shape).sqrt()
        diagonal = roots.clamp(min=eps_of(roots)).diag_embed()
        below = standard_normal(roots, self._extended_shape(sample_shape)).tril(-1)
        factor = self._unbroadcasted_scale_tril @ (below + diagonal)
        return factor @ factor.mT

    def rsample(
        self, sample_shape: Iterable[int] = (), max_try_correction: int | None = None
    ) -> Tensor:
        """Draw matrices that are differentiable in the parameters.

        Args:
            sample_shape: how many.
            max_try_correction: how often singular ones are drawn again at most, with a warning; 10 if None.

        Example:
            >>> adjit.distributions.Wishart(3., adjit.eye(2)).rsample((4,)).shape
            adjit.Size([4, 2, 2])
        """
        shape = tuple(sample_shape)
        sample = self._bartlett(shape)
        for trial in range(10 if max_try_correction is None else max_try_correction):
            is_good = is_positive_definite(sample)
            if is_good.all():
                break
            if not trial:
                warnings.warn("Singular sample detected.", stacklevel=2)
            sample = where(is_good[..., None, None], sample, self._bartlett(shape))
        return sample

    def log_prob(self, value: Tensor) -> Tensor:
        nu, p, factor = self.df, self._event_shape[-1], self._unbroadcasted_scale_tril
        root = linalg_cholesky(self._checked(value))
        trace = squared_norm(solve_triangular(factor, root, upper=False))
        return (
            (nu - p - 1) * half_log_det(root)
            - nu * (p * math.log(2) / 2 + half_log_det(factor))
            - multigammaln(nu / 2, p)
            - trace / 2
        )

    def entropy(self) -> Tensor:
        nu, p = self.df, self._event_shape[-1]
        rows = arange(p, dtype=nu.dtype, device=nu.device) / 2
        slope = ((nu / 2).unsqueeze(-1) - rows).digamma().sum(-1)
        return (
            (p + 1) * (p * math.log(2) / 2 + half_log_det(self._unbroadcasted_scale_tril))
            + multigammaln(nu / 2, p)
            - (nu - p - 1) / 2 * slope
            + nu * p / 2
        )

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        p = self._event_shape[-1]
        log_det = 2 * half_log_det(linalg_cholesky(-2 * x))
        return (y + (p + 1) / 2) * (p * math.log(2) - log_det) + multigammaln(y + (p + 1) / 2, p)
