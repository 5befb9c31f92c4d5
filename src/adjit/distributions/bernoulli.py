"""The Bernoulli distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..autograd import no_grad
from ..nn.functional import binary_cross_entropy_with_logits
from ..ops.comparison import where
from ..ops.creation import arange
from ..ops.random import bernoulli
from ..tensor import Tensor
from . import constraints
from .chances import BinaryChances
from .exp_family import ExponentialFamily
from .utils import Operand, broadcast_all

__all__ = ["Bernoulli"]


class Bernoulli(BinaryChances, ExponentialFamily):
    """The Bernoulli distribution: 1 with a chance, else 0.

    Args:
        probs: the chance.
        logits: the logarithm of its odds, instead.

    Raises:
        ValueError: if not exactly one is given.

    Example:
        >>> adjit.distributions.Bernoulli(0.25).variance
        tensor(0.1875)
    """

    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    def __init__(
        self, probs: Operand | None = None, logits: Operand | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self._take_chances(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return where(self.probs == 0.5, math.nan, (self.probs >= 0.5).to(self.probs.dtype))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        with no_grad():
            return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        x, logits = broadcast_all(self._checked(value), self.logits)
        return -binary_cross_entropy_with_logits(logits, x, reduction="none")

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return enumerated(self, 2, expand)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.probs.logit(),)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return natural_params[0].exp().log1p()


def enumerated(distribution: BinaryChances, count: int, expand: bool) -> Tensor:
    """The first whole numbers along a new first dimension, as values of a distribution."""
    like, batch = distribution._param, distribution.batch_shape
    values = arange(count, dtype=like.dtype, device=like.device).view((-1,) + (1,) * len(batch))
    return values.expand((-1, *batch)) if expand else values
