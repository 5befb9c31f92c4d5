"""The logistic-normal distribution."""

from __future__ import annotations

from ..tensor import Tensor
from . import constraints
from .normal import Normal
from .transformed_distribution import TransformedDistribution
from .transforms import StickBreakingTransform
from .utils import Operand

__all__ = ["LogisticNormal"]


class LogisticNormal(TransformedDistribution):
    """The logistic-normal distribution: of normal numbers after `StickBreakingTransform`.

    Args:
        loc: (..., n), the means of the normal numbers.
        scale: their standard deviations.

    Example:
        >>> adjit.distributions.LogisticNormal(adjit.zeros(2), 1.).event_shape
        adjit.Size([3])
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, loc: Operand, scale: Operand, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand((1,))
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """Tell the means of the normal numbers.

        Example:
            >>> adjit.distributions.LogisticNormal(adjit.zeros(2), 1.).loc
            tensor([0., 0.])
        """
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """Tell the standard deviations of the normal numbers.

        Example:
            >>> adjit.distributions.LogisticNormal(adjit.zeros(2), 1.).scale
            tensor([1., 1.])
        """
        return self.base_dist.base_dist.scale
