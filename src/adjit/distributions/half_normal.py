"""The half-normal distribution."""

from __future__ import annotations

import math

from ..tensor import Tensor
from .half import Half
from .normal import Normal
from .transforms import AbsTransform
from .utils import Operand

__all__ = ["HalfNormal"]


class HalfNormal(Half):
    """The half-normal distribution: of the absolute value of a normal number.

    Args:
        scale: the standard deviation of the normal number.

    Example:
        >>> adjit.distributions.HalfNormal(1.).mean
        tensor(0.7979)
    """

    def __init__(self, scale: Operand, validate_args: bool | None = None) -> None:
        base = Normal(0, scale, validate_args=False)
        super().__init__(base, AbsTransform(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (1 - 2 / math.pi)
