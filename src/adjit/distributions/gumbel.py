"""The Gumbel distribution."""

from __future__ import annotations

import math

from ..tensor import Tensor
from . import constraints
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, ExpTransform
from .uniform import Uniform
from .utils import Operand, broadcast_all, eps_of, euler_constant, tiny_of

__all__ = ["Gumbel"]


class Gumbel(TransformedDistribution):
    """The Gumbel distribution: of the largest of many numbers.

    Args:
        loc: the mode.
        scale: how wide it is.

    Example:
        >>> adjit.distributions.Gumbel(0., 1.).mean
        tensor(0.5772)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Operand, scale: Operand, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        shape = self.loc.shape
        low = self.loc.new_full(shape, tiny_of(self.loc))
        high = self.loc.new_full(shape, 1 - eps_of(self.loc))
        transforms = [
            ExpTransform().inv,
            AffineTransform(0, -self.scale.new_ones(shape)),
            ExpTransform().inv,
            AffineTransform(self.loc, -self.scale),
        ]
        base = Uniform(low, high, validate_args=validate_args)
        super().__init__(base, transforms, validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        z = (self.loc - self._checked(value)) / self.scale
        return z - z.exp() - self.scale.log()

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * euler_constant

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev.square()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + euler_constant)
