"""The Dirichlet distribution."""

from __future__ import annotations

from collections.abc import Iterable

from ..nn.functional import one_hot, softmax
from ..ops.comparison import where
from ..ops.sampling import log_gamma_numbers
from ..tensor import Tensor
from . import constraints
from .exp_family import ExponentialFamily
from .utils import inside_unit

__all__ = ["Dirichlet"]


class Dirichlet(ExponentialFamily):
    """The Dirichlet distribution over chances that add up to 1.

    A sample is the softmax of logarithms of gamma numbers, along which it is differentiable (Figurnov, Mohamed,
    Mnih, NeurIPS 2018); small concentrations do not underflow.

    Args:
        concentration: (..., categories), positive.

    Raises:
        ValueError: if that is a number.

    Example:
        >>> adjit.distributions.Dirichlet(adjit.tensor([1., 3.])).mean
        tensor([0.2500, 0.7500])
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.ndim < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        shape = concentration.shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        excess = (self.concentration - 1).clamp(min=0)
        inner = excess / excess.sum(-1, True)
        corner = one_hot(inner.argmax(-1), inner.shape[-1]).to(inner.dtype)
        return where((self.concentration < 1).all(-1, True), corner, inner)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.square() * (total + 1))

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        logs = log_gamma_numbers(self.concentration.expand(self._extended_shape(sample_shape)))
        return inside_unit(softmax(logs, dim=-1))

    def log_prob(self, value: Tensor) -> Tensor:
        powers = (self.concentration - 1).xlogy(self._checked(value))
        return powers.sum(-1) - self._log_normalizer(self.concentration)

    def entropy(self) -> Tensor:
        a, total = self.concentration, self.concentration.sum(-1)
        rest = (a.shape[-1] - total) * total.digamma() + ((a - 1) * a.digamma()).sum(-1)
        return self._log_normalizer(a) - rest

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.concentration,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        (x,) = natural_params
        return x.lgamma().sum(-1) - x.sum(-1).lgamma()
