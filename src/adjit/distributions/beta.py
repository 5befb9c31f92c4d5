"""The beta distribution."""

from __future__ import annotations

from collections.abc import Iterable

from ..ops.creation import tensor
from ..ops.joining import stack
from ..tensor import Tensor
from . import constraints
from .dirichlet import Dirichlet
from .exp_family import ExponentialFamily
from .utils import NUMBERS, Operand, broadcast_all

__all__ = ["Beta"]


class Beta(ExponentialFamily):
    """The beta distribution over [0, 1]: the Dirichlet distribution of two categories.

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
    _keeps = ("_dirichlet",)

    def __init__(
        self, concentration1: Operand, concentration0: Operand, validate_args: bool | None = None
    ) -> None:
        if isinstance(concentration1, NUMBERS) and isinstance(concentration0, NUMBERS):
            both = tensor([float(concentration1), float(concentration0)])
        else:
            both = stack(broadcast_all(concentration1, concentration0), -1)
        self._dirichlet = Dirichlet(both, validate_args=validate_args)
        super().__init__(self._dirichlet.batch_shape, validate_args=validate_args)

    @property
    def concentration1(self) -> Tensor:
        """Tell the first parameter.

        Example:
            >>> adjit.distributions.Beta(1., 3.).concentration1
            tensor(1.)
        """
        return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self) -> Tensor:
        """Tell the second parameter.

        Example:
            >>> adjit.distributions.Beta(1., 3.).concentration0
            tensor(3.)
        """
        return self._dirichlet.concentration[..., 1]

    @property
    def mean(self) -> Tensor:
        return self._dirichlet.mean[..., 0]

    @property
    def mode(self) -> Tensor:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        return self._dirichlet.variance[..., 0]

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        return self._dirichlet.log_prob(stack([value, 1 - value], -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration1, self.concentration0

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return x.lgamma() + y.lgamma() - (x + y).lgamma()
