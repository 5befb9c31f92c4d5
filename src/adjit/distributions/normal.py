"""The normal distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..autograd import no_grad
from ..ops.random import normal_around
from ..tensor import Tensor
from . import constraints
from .exp_family import ExponentialFamily
from .utils import Operand, broadcast_all, standard_normal

__all__ = ["Normal"]


class Normal(ExponentialFamily):
    """The normal distribution.

    Args:
        loc: the mean.
        scale: the standard deviation.

    Example:
        >>> adjit.distributions.Normal(0., 1.).cdf(adjit.tensor(0.))
        tensor(0.5000)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, loc: Operand, scale: Operand, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale.square()

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return normal_around(self.loc.expand(shape), self.scale.expand(shape), None)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        noise = standard_normal(self.loc, self._extended_shape(sample_shape))
        return self.loc + noise * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        z = (self._checked(value) - self.loc) / self.scale
        return -0.5 * z * z - self.scale.log() - math.log(math.sqrt(2 * math.pi))

    def cdf(self, value: Tensor) -> Tensor:
        z = (self._checked(value) - self.loc) / self.scale
        return 0.5 * (1 + (z * math.sqrt(0.5)).erf())

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        inverse = self.scale.square().reciprocal()
        return self.loc * inverse, -0.5 * inverse

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return -0.25 * x.square() / y + 0.5 * (-math.pi / y).log()
