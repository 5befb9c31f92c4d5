"""The generalised Pareto distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..ops.comparison import where
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import Operand, broadcast_all, standard_uniform

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """The generalised Pareto distribution: of what exceeds a high level.

    Args:
        loc: the smallest number.
        scale: how wide it is.
        concentration: the shape: below 0 there is a largest number, at 0 it is the exponential distribution.

    Example:
        >>> adjit.distributions.GeneralizedPareto(0., 1., 0.5).mean
        tensor(2.)
    """

    arg_constraints = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True

    def __init__(
        self, loc: Operand, scale: Operand, concentration: Operand,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        end = self.loc - self.scale / self.concentration
        return constraints.interval(self.loc, where(self.concentration < 0, end, math.inf))

    def _shape(self) -> tuple[Tensor, Tensor]:
        """Where it is the exponential distribution, for which series stand in; the concentrations elsewhere."""
        is_zero = self.concentration.isclose(self.concentration.new_zeros(()))
        return is_zero, where(is_zero, 1.0, self.concentration)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self.icdf(standard_uniform(self.loc, self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        more = 1 + self.concentration
        log_rest = self.log_survival_function(value)
        return where(more == 0, 0.0, more * log_rest) - self.scale.log()

    def log_survival_function(self, value: Tensor) -> Tensor:
        """Give the logarithm of the chance of more than each value.

        Example:
            >>> d = adjit.distributions.GeneralizedPareto(0., 1., 0.)
            >>> d.log_survival_function(adjit.tensor(2.))
            tensor(-2.)
        """
        z = (self._checked(value) - self.loc) / self.scale
        is_zero, shape = self._shape()
        return -where(is_zero, z - self.concentration * z * z / 2, (shape * z).log1p() / shape)

    def log_cdf(self, value: Tensor) -> Tensor:
        """Give the logarithm of the chance of not more than each value.

        Example:
            >>> adjit.distributions.GeneralizedPareto(0., 1., -1.).log_cdf(adjit.tensor(0.5))
            tensor(-0.6931)
        """
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return self.log_cdf(value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        is_zero, shape = self._shape()
        t = -(-value).log1p()
        excess = where(is_zero, t + self.concentration * t * t / 2, (shape * t).expm1() / shape)
        return self.loc + self.scale * excess

    @property
    def mean(self) -> Tensor:
        is_finite = self.concentration < 1
        rest = 1 - where(is_finite, self.concentration, 0.5)
        return where(is_finite, self.loc + self.scale / rest, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        is_finite = self.concentration < 0.5
        shape = where(is_finite, self.concentration, 0.25)
        found = self.scale.square() / ((1 - shape).square() * (1 - 2 * shape))
        return where(is_finite, found, math.nan)

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1
