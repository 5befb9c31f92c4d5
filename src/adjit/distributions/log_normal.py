"""The log-normal distribution."""

from __future__ import annotations

from ..tensor import Tensor
from . import constraints
from .normal import Normal
from .transformed_distribution import TransformedDistribution
from .transforms import ExpTransform
from .utils import Operand

__all__ = ["LogNormal"]


class LogNormal(TransformedDistribution):
    """The log-normal distribution: of the exponential of a normal number.

    Args:
        loc: the mean of the logarithm.
        scale: its standard deviation.

    Example:
        >>> adjit.distributions.LogNormal(0., 1.).mean
        tensor(1.6487)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, loc: Operand, scale: Operand, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """Tell the mean of the logarithm.

        Example:
            >>> adjit.distributions.LogNormal(0., 1.).loc
            tensor(0.)
        """
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """Tell the standard deviation of the logarithm.

        Example:
            >>> adjit.distributions.LogNormal(0., 1.).scale
            tensor(1.)
        """
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale.square() / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        square = self.scale.square()
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc
