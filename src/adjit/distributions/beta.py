"""The beta distribution."""

from __future__ import annotations

from collections.abc import Iterable

from ..ops.joining import stack
from ..ops.sampling import log_gamma_numbers
from ..tensor import Tensor
from . import constraints
from .dirichlet import Dirichlet
from .exp_family import ExponentialFamily
from .utils import Operand, broadcast_all, inside_unit

__all__ = ["Beta"]


class Beta(ExponentialFamily):
    """The beta distribution over [0, 1]: the Dirichlet distribution of two categories.

    Samples are differentiable in both parameters, along those of two gamma numbers.

    Args:
        concentration1: the first parameter, alpha.
        concentration0: the second one, beta.

    Example:
        >>> adjit.distributions.Beta(1., 3.).mean
        tensor(0.2500)
    """

    arg_constraints = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval
    has_rsample = True
    _expands = ("_alpha", "_beta")
    _keeps = ("_dirichlet",)

    def __init__(
        self, concentration1: Operand, concentration0: Operand, validate_args: bool | None = None
    ) -> None:
        # Both lie apart, as what is computed of them; side by side they are the Dirichlet distribution's.
        self._alpha, self._beta = broadcast_all(concentration1, concentration0)
        self._dirichlet = Dirichlet(
            stack([self._alpha, self._beta], -1), validate_args=validate_args
        )
        super().__init__(self._dirichlet.batch_shape, validate_args=validate_args)

    @property
    def concentration1(self) -> Tensor:
        """Tell the first parameter.

        Example:
            >>> adjit.distributions.Beta(1., 3.).concentration1
            tensor(1.)
        """
        return self._alpha

    @property
    def concentration0(self) -> Tensor:
        """Tell the second parameter.

        Example:
            >>> adjit.distributions.Beta(1., 3.).concentration0
            tensor(3.)
        """
        return self._beta

    @property
    def mean(self) -> Tensor:
        return self._alpha / (self._alpha + self._beta)

    @property
    def mode(self) -> Tensor:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        total = self._alpha + self._beta
        return self._alpha * self._beta / (total.square() * (total + 1))

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        logit = log_gamma_numbers(self._alpha.expand(shape)) - log_gamma_numbers(
            self._beta.expand(shape)
        )
        return inside_unit(logit.sigmoid())

    def log_prob(self, value: Tensor) -> Tensor:
        a, b, x = self._alpha, self._beta, self._checked(value)
        return (a - 1).xlogy(x) + (b - 1).xlogy(1 - x) - self._log_normalizer(a, b)

    def entropy(self) -> Tensor:
        a, b = self._alpha, self._beta
        rest = (a - 1) * a.digamma() + (b - 1) * b.digamma()
        return self._log_normalizer(a, b) - rest + (a + b - 2) * (a + b).digamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self._alpha, self._beta

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return x.lgamma() + y.lgamma() - (x + y).lgamma()
