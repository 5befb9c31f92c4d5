"""The multinomial distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..ops.comparison import where
from ..shapes import Size
from ..tensor import Tensor
from . import constraints
from .binomial import Binomial
from .categorical import Categorical
from .chances import OverCategories
from .utils import broadcast_all

__all__ = ["Multinomial"]


class Multinomial(OverCategories):
    """The multinomial distribution: of how often each category comes in `total_count` trials.

    Args:
        total_count: the number of trials, an int.
        probs: (..., categories), the chances; they are divided by their sum.
        logits: (..., categories), their logarithms, up to a constant, instead.

    Raises:
        NotImplementedError: if `total_count` is no int.
        ValueError: if not exactly one of the others is given.

    Example:
        >>> adjit.distributions.Multinomial(8, adjit.tensor([1., 3.])).mean
        tensor([2., 6.])
    """

    _keeps = ("total_count", "_categorical", "_binomial")

    def __init__(
        self, total_count: int = 1, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits)
        self._binomial = Binomial(total_count, self.probs)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = Size(sample_shape)
        drawn = self._categorical.sample((self.total_count, *shape)).movedim(0, -1)
        ones = self._param.new_ones(drawn.shape)
        return self._param.new_zeros(self._extended_shape(shape)).scatter_add(-1, drawn, ones)

    def entropy(self) -> Tensor:
        n = self.total_count
        counts = self._binomial.enumerate_support(expand=False)[1:]
        chances = self._binomial.log_prob(counts).exp()
        orders = (chances * (counts + 1).lgamma()).sum((0, -1))
        return n * self._categorical.entropy() - math.lgamma(n + 1) + orders

    def log_prob(self, value: Tensor) -> Tensor:
        x, logits = broadcast_all(self._checked(value), self.logits)
        logits = where((x == 0) & (logits == -math.inf), 0.0, logits)
        orders = (x.sum(-1) + 1).lgamma() - (x + 1).lgamma().sum(-1)
        return orders + (logits * x).sum(-1)
