"""The uniform distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import Operand, broadcast_all, standard_uniform

__all__ = ["Uniform"]


class Uniform(Distribution):
    """The uniform distribution over [low, high).

    Args:
        low: the lower end.
        high: the upper end, above `low`.

    Example:
        >>> adjit.distributions.Uniform(0., 5.).mean
        tensor(2.5000)
    """

    has_rsample = True

    def __init__(self, low: Operand, high: Operand, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        return {
            "low": constraints.less_than(self.high),
            "high": constraints.greater_than(self.low),
        }

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return math.nan * self.high

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / 12**0.5

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low).square() / 12

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        u = standard_uniform(self.low, self._extended_shape(sample_shape))
        return self.low + u * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        inside = (self.low <= self._checked(value)) & (self.high > value)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        return ((self._checked(value) - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()
