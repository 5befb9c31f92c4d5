"""The gamma distribution."""

from __future__ import annotations

from collections.abc import Iterable

from ..ops.creation import as_tensor
from ..ops.incomplete_gamma import igamma
from ..ops.sampling import log_gamma_numbers
from ..tensor import Tensor
from . import constraints
from .exp_family import ExponentialFamily
from .utils import Operand, broadcast_all, tiny_of

__all__ = ["Gamma"]


class Gamma(ExponentialFamily):
    """The gamma distribution.

    Samples are differentiable in the concentration by implicit reparametrisation (Figurnov, Mohamed, Mnih,
    NeurIPS 2018); `cdf` is differentiable in all arguments.

    Args:
        concentration: the shape.
        rate: the inverse of the scale.

    Example:
        >>> adjit.distributions.Gamma(2., 4.).mean
        tensor(0.5000)
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self, concentration: Operand, rate: Operand, validate_args: bool | None = None
    ) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.square()

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        logs: Tensor = log_gamma_numbers(self.concentration.expand(shape))
        tiny = tiny_of(logs)
        return (logs.exp().clamp(min=tiny) / self.rate).clamp(min=tiny)

    def log_prob(self, value: Operand) -> Tensor:
        x = as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        return (
            self.concentration.xlogy(self.rate)
            + (self.concentration - 1).xlogy(self._checked(x))
            - self.rate * x
            - self.concentration.lgamma()
        )

    def cdf(self, value: Tensor) -> Tensor:
        return igamma(self.concentration, self.rate * self._checked(value))

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return (x + 1).lgamma() + (x + 1) * (-y.reciprocal()).log()
