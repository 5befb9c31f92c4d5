"""The Weibull distribution."""

from __future__ import annotations

from ..tensor import Tensor
from . import constraints
from .exponential import Exponential
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .utils import Operand, broadcast_all, euler_constant

__all__ = ["Weibull"]


class Weibull(TransformedDistribution):
    """The Weibull distribution: of times to failure, at rates that change as a power of time.

    Args:
        scale: how long they are.
        concentration: the shape; at 1 the rate does not change.

    Example:
        >>> adjit.distributions.Weibull(2., 1.).mean
        tensor(2.)
    """

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive
    _expands = ("concentration_reciprocal",)

    def __init__(
        self, scale: Operand, concentration: Operand, validate_args: bool | None = None
    ) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(self.scale.new_ones(self.scale.shape), validate_args=validate_args)
        transforms = [PowerTransform(self.concentration_reciprocal), AffineTransform(0, self.scale)]
        super().__init__(base, transforms, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * (1 + self.concentration_reciprocal).lgamma().exp()

    @property
    def mode(self) -> Tensor:
        share = (self.concentration - 1) / self.concentration
        return self.scale * share**self.concentration_reciprocal

    @property
    def variance(self) -> Tensor:
        first, second = ((1 + k * self.concentration_reciprocal).lgamma() for k in (1, 2))
        return self.scale.square() * (second.exp() - (2 * first).exp())

    def entropy(self) -> Tensor:
        inverse = self.concentration_reciprocal
        return euler_constant * (1 - inverse) + (self.scale * inverse).log() + 1
