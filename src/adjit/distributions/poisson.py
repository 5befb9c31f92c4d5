"""The Poisson distribution."""

from __future__ import annotations

from collections.abc import Iterable

from ..autograd import no_grad
from ..ops import sampling
from ..tensor import Tensor
from . import constraints
from .exp_family import ExponentialFamily
from .utils import Operand, broadcast_all

__all__ = ["Poisson"]


class Poisson(ExponentialFamily):
    """The Poisson distribution: of how often something happens.

    Args:
        rate: how often it does on average.

    Example:
        >>> adjit.distributions.Poisson(4.).mean
        tensor(4.)
    """

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Operand, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        with no_grad():
            return sampling.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        rate, x = broadcast_all(self.rate, self._checked(value))
        return x.xlogy(rate) - rate - (x + 1).lgamma()

    @property
    def _mean_carrier_measure(self) -> float:  # type: ignore[override]
        raise NotImplementedError  # it has no closed form, so the entropy has none

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.rate.log(),)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return natural_params[0].exp()
