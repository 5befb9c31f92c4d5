"""The von Mises distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..ops.sampling import von_mises_numbers, von_mises_scale, von_mises_variance
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import Operand, broadcast_all

__all__ = ["VonMises"]


class VonMises(Distribution):
    """The von Mises distribution: of angles around a circle, in radians.

    Samples, of [-pi, pi), are differentiable in both parameters by implicit reparametrisation (Figurnov,
    Mohamed, Mnih, NeurIPS 2018), which PyTorch's are not; Bessel functions have all digits of the dtype,
    by integrals in float64.

    Args:
        loc: the mean angle.
        concentration: how close to it angles are.

    Example:
        >>> adjit.distributions.VonMises(0., 4.).mean
        tensor(0.)
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(
        self, loc: Operand, concentration: Operand, validate_args: bool | None = None
    ) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """Give the circular mean.

        Example:
            >>> adjit.distributions.VonMises(1., 4.).mean
            tensor(1.)
        """
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """Give the circular variance: what the mean cosine around the mean lacks of 1.

        Example:
            >>> adjit.distributions.VonMises(1., 4.).variance
            tensor(0.1365)
        """
        return von_mises_variance(self.concentration)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        around = von_mises_numbers(self.concentration.expand(self._extended_shape(sample_shape)))
        return (around + self.loc + math.pi) % (2 * math.pi) - math.pi

    def log_prob(self, value: Tensor) -> Tensor:
        k, log_scale = self.concentration, von_mises_scale(self.concentration)
        return k * ((self._checked(value) - self.loc).cos() - 1) - math.log(2 * math.pi) - log_scale
