"""The binomial distribution."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..autograd import no_grad
from ..ops import sampling
from ..tensor import Tensor
from . import constraints
from .bernoulli import enumerated
from .chances import BinaryChances
from .utils import Operand

__all__ = ["Binomial"]


def clamp_by_zero(x: Tensor) -> Tensor:
    """The larger of x and 0, with a gradient of a half at 0."""
    return (x.clamp(min=0) + x - x.clamp(max=0)) / 2


class Binomial(BinaryChances):
    """The binomial distribution: of the number of successes.

    Args:
        total_count: the numbers of trials.
        probs: the chance of success.
        logits: the logarithm of its odds, instead.

    Raises:
        ValueError: if not exactly one of these is given.

    Example:
        >>> adjit.distributions.Binomial(4, adjit.tensor(0.25)).mean
        tensor(1.)
    """

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True

    def __init__(
        self, total_count: Tensor | int = 1, probs: Operand | None = None,
        logits: Operand | None = None, validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        (self.total_count,) = self._take_chances(probs, logits, total_count)
        super().__init__(self._param.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return sampling.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        k, n, logits = self._checked(value), self.total_count, self.logits
        orders = (n + 1).lgamma() - (k + 1).lgamma() - (n - k + 1).lgamma()
        return orders + k * logits - n * (clamp_by_zero(logits) + (-logits.abs()).exp().log1p())

    def entropy(self) -> Tensor:
        log_prob = self.log_prob(self._values("entropy", False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._values("enumerate_support", expand)

    def _values(self, name: str, expand: bool) -> Tensor:
        most = int(self.total_count.max())
        if not self.total_count.min() == most:
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{name}`.")
        return enumerated(self, 1 + most, expand)
