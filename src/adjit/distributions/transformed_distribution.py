"""Distributions of transformed numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..autograd import no_grad
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .independent import Independent
from .transforms import ComposeTransform, Transform
from .utils import sum_rightmost

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The distribution of the results of transforms.

    Args:
        base_distribution: the distribution of what is transformed.
        transforms: a transform, or a list of them, the first one first.

    Raises:
        ValueError: if these are none, or the base has too few dimensions.

    Example:
        >>> base = adjit.distributions.Uniform(0., 1.)
        >>> double = adjit.distributions.AffineTransform(0., 2.)
        >>> adjit.distributions.TransformedDistribution(base, double).cdf(adjit.tensor(1.))
        tensor(0.5000)
    """

    arg_constraints: Any = {}
    _keeps = ("transforms",)

    def __init__(
        self, base_distribution: Distribution, transforms: Transform | list[Transform],
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        several = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(several, list):
            raise ValueError(f"transforms must be a Transform or list, but was {transforms}")
        if not all(isinstance(t, Transform) for t in several):
            raise ValueError("transforms must be a Transform or a list of Transforms")
        self.transforms = several
        transform = ComposeTransform(several)
        before, after = transform.domain.event_dim, transform.codomain.event_dim
        base_event_dim = len(base_distribution.event_shape)
        base_shape = (*base_distribution.batch_shape, *base_distribution.event_shape)
        if len(base_shape) < before:
            raise ValueError(
                f"base_distribution needs to have shape with size at least {before}, but got "
                f"{base_distribution._extended_shape()}."
            )
        shape = transform.forward_shape(base_shape)
        expanded = transform.inverse_shape(shape)
        if base_shape != tuple(expanded):  # parameters of transforms that broadcast
            base_distribution = base_distribution.expand(expanded[: len(expanded) - base_event_dim])
        if before > base_event_dim:
            base_distribution = Independent(base_distribution, before - base_event_dim)
        self.base_dist: Any = base_distribution
        cut = len(shape) - max(after, base_event_dim + after - before)
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Iterable[int], _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        shape: Any = new._extended_shape()
        for transform in reversed(self.transforms):
            shape = transform.inverse_shape(shape)
        new.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        return new

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        codomain = self.transforms[-1].codomain
        more = len(self._event_shape) - codomain.event_dim
        return constraints.independent(codomain, more) if more > 0 else codomain

    @property
    def has_rsample(self) -> Any:
        return self.base_dist.has_rsample

    def _transformed(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        with no_grad():
            return self._transformed(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self._transformed(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        y, event_dim = self._checked(value), len(self._event_shape)
        volume: Any = 0.0
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            domain = transform.domain.event_dim
            event_dim += domain - transform.codomain.event_dim
            term = transform.log_abs_det_jacobian(x, y)
            volume = volume + sum_rightmost(term, event_dim - domain)
            y = x
        base = self.base_dist.log_prob(y)
        return sum_rightmost(base, event_dim - len(self.base_dist.event_shape)) - volume

    def _monotonize_cdf(self, value: Tensor) -> Tensor:
        """Exchange the tails where the transforms fall."""
        sign = ComposeTransform(self.transforms).sign
        if isinstance(sign, int) and sign == 1:
            return value
        return sign * (value - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._monotonize_cdf(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._transformed(self.base_dist.icdf(self._monotonize_cdf(value)))
