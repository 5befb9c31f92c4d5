"""The half-Cauchy distribution."""

from __future__ import annotations

import math

from ..tensor import Tensor
from .cauchy import Cauchy
from .half import Half
from .transforms import AbsTransform
from .utils import Operand

__all__ = ["HalfCauchy"]


class HalfCauchy(Half):
    """The half-Cauchy distribution: of the absolute value of a Cauchy number.

    Args:
        scale: the median.

    Example:
        >>> adjit.distributions.HalfCauchy(1.).cdf(adjit.tensor(1.))
        tensor(0.5000)
    """

    def __init__(self, scale: Operand, validate_args: bool | None = None) -> None:
        base = Cauchy(0, scale, validate_args=False)
        super().__init__(base, AbsTransform(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale.new_full(self._extended_shape(), math.inf)

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance
