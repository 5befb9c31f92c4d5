"""What distributions share that are the upper half of a symmetric one."""

from __future__ import annotations

import math

from ..ops.comparison import where
from ..ops.creation import as_tensor
from ..tensor import Tensor
from . import constraints
from .transformed_distribution import TransformedDistribution
from .utils import Operand


class Half(TransformedDistribution):
    """The absolute values of numbers that are symmetric around 0."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    @property
    def scale(self) -> Tensor:
        """Tell the scale of the whole distribution.

        Example:
            >>> adjit.distributions.HalfNormal(2.).scale
            tensor(2.)
        """
        return self.base_dist.scale

    @property
    def mode(self) -> Tensor:
        return self.scale.new_zeros(self.scale.shape)

    def log_prob(self, value: Operand) -> Tensor:
        x = self._checked(as_tensor(value, dtype=self.scale.dtype, device=self.scale.device))
        return where(x >= 0, self.base_dist.log_prob(x) + math.log(2), -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        return 2 * self.base_dist.cdf(self._checked(value)) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)
