"""Exponential families: densities exp(t(x) . natural parameters - log normalizer) over a carrier measure."""

from __future__ import annotations

from typing import Any

from ..autograd import grad
from ..tensor import Tensor
from .distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """A distribution of an exponential family.

    A subclass says its `_natural_params`, the `_log_normalizer` as a function of them and the
    `_mean_carrier_measure`. Entropies and divergences of two of one family follow from the derivative of the
    normalizer (Nielsen and Nock 2010).

    Example:
        >>> isinstance(adjit.distributions.Normal(0., 1.), adjit.distributions.ExponentialFamily)
        True
    """

    _mean_carrier_measure: float

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError

    def _normalized(self) -> tuple[list[Tensor], Tensor, tuple[Any, ...]]:
        """Natural parameters, the logarithm of the normalizer, and its derivatives: the means of t(x)."""
        parameters = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*parameters)
        return parameters, normalizer, grad(normalizer.sum(), parameters, create_graph=True)

    def entropy(self) -> Tensor:
        parameters, normalizer, means = self._normalized()
        result = normalizer - self._mean_carrier_measure
        for parameter, mean in zip(parameters, means, strict=True):
            result = result - (parameter * mean).reshape((*self._batch_shape, -1)).sum(-1)
        return result
