"""Fisher's and Snedecor's F distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..ops.comparison import where
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .gamma import Gamma
from .utils import Operand, broadcast_all, tiny_of

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """Fisher's and Snedecor's F distribution: of the ratio of two chi-squared numbers, each over its freedom.

    Args:
        df1: the degrees of freedom of the numerator.
        df2: those of the denominator.

    Example:
        >>> adjit.distributions.FisherSnedecor(1., 4.).mean
        tensor(2.)
    """

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True
    _keeps = ("_gamma1", "_gamma2")

    def __init__(self, df1: Operand, df2: Operand, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan)

    @property
    def mode(self) -> Tensor:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return where(self.df1 > 2, mode, math.nan)

    @property
    def variance(self) -> Tensor:
        df1, df2 = self.df1, where(self.df2 > 4, self.df2, math.nan)
        return 2 * df2.square() * (df1 + df2 - 2) / (df1 * (df2 - 2).square() * (df2 - 4))

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        above, below = self._gamma1.rsample(sample_shape), self._gamma2.rsample(sample_shape)
        return (above / below).clamp(min=tiny_of(above))

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        a, b, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        log_beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
        power = a * ratio.log() + (a - 1) * value.log()
        return power - (a + b) * (ratio * value).log1p() - log_beta
