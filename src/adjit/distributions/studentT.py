"""Student's t distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..ops.comparison import where
from ..tensor import Tensor
from . import constraints
from .chi2 import Chi2
from .distribution import Distribution
from .utils import Operand, broadcast_all, standard_normal

__all__ = ["StudentT"]


class StudentT(Distribution):
    """Student's t distribution: of a normal number over the root of a chi-squared one.

    Args:
        df: the degrees of freedom.
        loc: the median.
        scale: how wide it is.

    Example:
        >>> adjit.distributions.StudentT(4.).variance
        tensor(2.)
    """

    arg_constraints = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True
    _keeps = ("_chi2",)

    def __init__(
        self, df: Operand, loc: Operand = 0.0, scale: Operand = 1.0,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return where(self.df > 1, self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        is_finite = self.df > 2
        finite = self.scale.square() * self.df / where(is_finite, self.df - 2, 1.0)
        return where(is_finite, finite, where(self.df > 1, math.inf, math.nan))

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        noise = standard_normal(self.df, self._extended_shape(sample_shape))
        square = self._chi2.rsample(sample_shape) / self.df
        return self.loc + self.scale * noise * square.rsqrt()

    def _log_beta(self) -> Tensor:
        """The logarithm of the beta function of df / 2 and 1 / 2."""
        return (0.5 * self.df).lgamma() + math.lgamma(0.5) - (0.5 * (self.df + 1)).lgamma()

    def log_prob(self, value: Tensor) -> Tensor:
        z = (self._checked(value) - self.loc) / self.scale
        power = 0.5 * (self.df + 1) * (z.square() / self.df).log1p()
        return -power - self.scale.log() - 0.5 * self.df.log() - self._log_beta()

    def entropy(self) -> Tensor:
        more = 0.5 * (self.df + 1)
        return (
            self.scale.log()
            + more * (more.digamma() - (0.5 * self.df).digamma())
            + 0.5 * self.df.log()
            + self._log_beta()
        )
