"""The inverse gamma distribution."""

from __future__ import annotations

import math

from ..ops.comparison import where
from ..tensor import Tensor
from . import constraints
from .gamma import Gamma
from .transformed_distribution import TransformedDistribution
from .transforms import PowerTransform
from .utils import Operand

__all__ = ["InverseGamma"]


class InverseGamma(TransformedDistribution):
    """The inverse gamma distribution: of the reciprocal of a gamma number.

    Args:
        concentration: the shape of the gamma number.
        rate: the inverse of its scale.

    Example:
        >>> adjit.distributions.InverseGamma(3., 4.).mean
        tensor(2.)
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(
        self, concentration: Operand, rate: Operand, validate_args: bool | None = None
    ) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        power = PowerTransform(-base.rate.new_ones(()))
        super().__init__(base, power, validate_args=validate_args)

    @property
    def concentration(self) -> Tensor:
        """Tell the shape of the gamma number.

        Example:
            >>> adjit.distributions.InverseGamma(3., 4.).concentration
            tensor(3.)
        """
        return self.base_dist.concentration

    @property
    def rate(self) -> Tensor:
        """Tell the rate of the gamma number.

        Example:
            >>> adjit.distributions.InverseGamma(3., 4.).rate
            tensor(4.)
        """
        return self.base_dist.rate

    @property
    def mean(self) -> Tensor:
        a = self.concentration
        return where(a > 1, self.rate / (a - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return where(a > 2, self.rate.square() / ((a - 1).square() * (a - 2)), math.inf)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()
