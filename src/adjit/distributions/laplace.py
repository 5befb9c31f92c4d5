"""The Laplace distribution."""

from __future__ import annotations

from collections.abc import Iterable

from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import Operand, broadcast_all, eps_of, standard_uniform

__all__ = ["Laplace"]


class Laplace(Distribution):
    """The Laplace distribution: exponentials on both sides.

    Args:
        loc: the mean.
        scale: how wide it is.

    Example:
        >>> adjit.distributions.Laplace(0., 1.).variance
        tensor(2.)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

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
    def variance(self) -> Tensor:
        return 2 * self.scale.square()

    @property
    def stddev(self) -> Tensor:
        return 2**0.5 * self.scale

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        least = eps_of(self.loc) - 1  # so that no logarithm is one of 0
        u = least + standard_uniform(self.loc, self._extended_shape(sample_shape)) * (1 - least)
        return self.loc - self.scale * u.sign() * (-u.abs()).log1p()

    def log_prob(self, value: Tensor) -> Tensor:
        return -(2 * self.scale).log() - (self._checked(value) - self.loc).abs() / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        away = self._checked(value) - self.loc
        return 0.5 - 0.5 * away.sign() * (-away.abs() / self.scale).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()
