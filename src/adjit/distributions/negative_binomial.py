"""The negative binomial distribution."""

from __future__ import annotations

from collections.abc import Iterable

from ..autograd import no_grad
from ..nn.functional import logsigmoid
from ..ops.sampling import poisson
from ..tensor import Tensor
from . import constraints
from .chances import BinaryChances
from .gamma import Gamma
from .utils import Operand, lazy_property

__all__ = ["NegativeBinomial"]


class NegativeBinomial(BinaryChances):
    """The negative binomial distribution: of the number of successes before `total_count` failures.

    Args:
        total_count: the number of failures, at least 0; it need not be whole.
        probs: the chance of success, below 1.
        logits: the logarithm of its odds, instead.

    Raises:
        ValueError: if not exactly one of these is given.

    Example:
        >>> adjit.distributions.NegativeBinomial(3., adjit.tensor(0.5)).mean
        tensor(3.)
    """

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self, total_count: Operand, probs: Operand | None = None, logits: Operand | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        (self.total_count,) = self._take_chances(probs, logits, total_count)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()

    @lazy_property
    def _gamma(self) -> Gamma:
        # Not validated, since no failures are a count too.
        return Gamma(self.total_count, (-self.logits).exp(), validate_args=False)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        with no_grad():
            return poisson(self._gamma.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        n, k = self.total_count, self._checked(value)
        chances = n * logsigmoid(-self.logits) + k * logsigmoid(self.logits)
        orders = (n + k).lgamma() - (1 + k).lgamma() - n.lgamma()
        return chances + orders.masked_fill(n + k == 0, 0.0)  # no failures: 0 is certain
