"""Mixtures of distributions of one family."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..autograd import no_grad
from ..shapes import Size
from ..tensor import Tensor
from . import constraints
from .categorical import Categorical
from .distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A mixture: a category is drawn, then a value of the component that it says.

    Args:
        mixture_distribution: a `Categorical` over the components.
        component_distribution: a distribution whose last batch dimension is that of the components.

    Raises:
        ValueError: if they do not fit.

    Example:
        >>> weights = adjit.distributions.Categorical(adjit.tensor([0.25, 0.75]))
        >>> parts = adjit.distributions.Normal(adjit.tensor([0., 4.]), 1.)
        >>> adjit.distributions.MixtureSameFamily(weights, parts).mean
        tensor(3.)
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    _keeps = ("_mixture_distribution", "_component_distribution")

    def __init__(
        self, mixture_distribution: Categorical, component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(
                " The Mixture distribution needs to be an  instance of torch.distributions.Categorical"
            )
        if not isinstance(component_distribution, Distribution):
            raise ValueError(
                "The Component distribution needs to be an instance of torch.distributions.Distribution"
            )
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        weights, batch = mixture_distribution.batch_shape, component_distribution.batch_shape[:-1]
        for size1, size2 in zip(reversed(weights), reversed(batch), strict=False):
            if 1 not in (size1, size2) and size1 != size2:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({weights}) is not compatible with "
                    f"`component_distribution.batch_shape`({batch})"
                )
        km, kc = mixture_distribution.logits.shape[-1], component_distribution.batch_shape[-1]
        if km != kc:
            raise ValueError(
                f"`mixture_distribution component` ({km}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({kc})"
            )
        super().__init__(batch, component_distribution.event_shape, validate_args=validate_args)

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """Give the distribution of the components.

        Example:
            >>> weights = adjit.distributions.Categorical(adjit.ones(2))
            >>> parts = adjit.distributions.Normal(adjit.zeros(2), 1.)
            >>> adjit.distributions.MixtureSameFamily(weights, parts).mixture_distribution
            Categorical(probs: adjit.Size([2]), logits: adjit.Size([2]))
        """
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """Give the distributions that are mixed.

        Example:
            >>> weights = adjit.distributions.Categorical(adjit.ones(2))
            >>> parts = adjit.distributions.Normal(adjit.zeros(2), 1.)
            >>> adjit.distributions.MixtureSameFamily(weights, parts).component_distribution
            Normal(loc: adjit.Size([2]), scale: adjit.Size([2]))
        """
        return self._component_distribution

    def _mean_of(self, x: Tensor) -> Tensor:
        """The mean over the components."""
        probs, event = self._mixture_distribution.probs, len(self._event_shape)
        return (probs.reshape((*probs.shape, *(1,) * event)) * x).sum(-1 - event)

    def _pad(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-1 - len(self._event_shape))

    @property
    def mean(self) -> Tensor:
        return self._mean_of(self._component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        parts, mean = self._component_distribution, self._pad(self.mean)
        return self._mean_of(parts.variance + (parts.mean - mean).square())

    def cdf(self, value: Tensor) -> Tensor:
        return self._mean_of(self._component_distribution.cdf(self._pad(value)))

    def log_prob(self, value: Tensor) -> Tensor:
        parts = self._component_distribution.log_prob(self._pad(self._checked(value)))
        return (parts + self._mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape, event = Size(sample_shape), self._event_shape
        dim = len(shape) + len(self._batch_shape)
        with no_grad():
            chosen = self._mixture_distribution.expand(self._batch_shape).sample(shape)
            chosen = chosen.reshape((*chosen.shape, 1, *(1,) * len(event)))
            chosen = chosen.expand((*chosen.shape[: dim + 1], *event))
            values = self._component_distribution.sample(shape)
            return values.gather(dim, chosen).squeeze(dim)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self._mixture_distribution},\n  {self._component_distribution})"
