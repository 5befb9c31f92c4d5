"""The continuous Bernoulli distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..nn.functional import binary_cross_entropy_with_logits
from ..ops.comparison import where
from ..tensor import Tensor
from . import constraints
from .chances import BinaryChances, given_name
from .exp_family import ExponentialFamily
from .utils import (
    Operand,
    broadcast_all,
    clamp_probs,
    lazy_property,
    logits_to_probs,
    standard_uniform,
)

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(BinaryChances, ExponentialFamily):
    """The continuous Bernoulli distribution: over [0, 1], of density proportional to p**x (1 - p)**(1 - x).

    Args:
        probs: p, which is not the mean.
        logits: the logarithm of its odds, instead.
        lims: between which chances Taylor's series around 1 / 2 stand for formulas that fail there.

    Raises:
        ValueError: if not exactly one of `probs` and `logits` is given.

    Example:
        >>> adjit.distributions.ContinuousBernoulli(0.5).mean
        tensor(0.5000)
    """

    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0
    _keeps = ("_lims",)

    def __init__(
        self, probs: Operand | None = None, logits: Operand | None = None,
        lims: tuple[float, float] = (0.499, 0.501), validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if given_name(probs, logits) == "probs":
            (found,) = broadcast_all(probs)  # type: ignore[arg-type]
            # What is clamped would always pass, so it is validated first.
            if validate_args is not None and not self.arg_constraints["probs"].check(found).all():
                raise ValueError("The parameter probs has invalid values")
            probs = clamp_probs(found)
        self._take_chances(probs, logits)
        self._lims = lims
        super().__init__(self._param.shape, validate_args=validate_args)

    @lazy_property
    def probs(self) -> Tensor:
        """The chances, away from 0 and 1."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _is_far(self) -> Tensor:
        """Where the formulas hold."""
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut_probs(self) -> Tensor:
        return where(self._is_far(), self.probs, self._lims[0])

    def _cut_log_odds(self) -> Tensor:
        """The logarithms of the odds against it, far from 1 / 2."""
        p = self._cut_probs()
        return (-p).log1p() - p.log()

    def _cont_bern_log_norm(self) -> Tensor:
        p = self._cut_probs()
        far = self._cut_log_odds().abs().log() - (1 - 2 * p).abs().log()
        x = (self.probs - 0.5).square()
        return where(self._is_far(), far, math.log(2.0) + (4 / 3 + 104 / 45 * x) * x)

    @property
    def mean(self) -> Tensor:
        p = self._cut_probs()
        far = p / (2 * p - 1) + 1 / self._cut_log_odds()
        x = self.probs - 0.5
        return where(self._is_far(), far, 0.5 + (1 / 3 + 16 / 45 * x.square()) * x)

    @property
    def variance(self) -> Tensor:
        p = self._cut_probs()
        far = p * (p - 1) / (1 - 2 * p).square() + 1 / self._cut_log_odds().square()
        x = (self.probs - 0.5).square()
        return where(self._is_far(), far, 1 / 12 - (1 / 15 - 128 / 945 * x) * x)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self.icdf(standard_uniform(self.probs, self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        x, logits = broadcast_all(self._checked(value), self.logits)
        likelihood = -binary_cross_entropy_with_logits(logits, x, reduction="none")
        return likelihood + self._cont_bern_log_norm()

    def cdf(self, value: Tensor) -> Tensor:
        p, x = self._cut_probs(), self._checked(value)
        far = (p.pow(x) * (1 - p).pow(1 - x) + p - 1) / (2 * p - 1)
        inside = where(self._is_far(), far, x)
        return where(x <= 0, 0.0, where(x >= 1, 1.0, inside))

    def icdf(self, value: Tensor) -> Tensor:
        p = self._cut_probs()
        far = ((-p + value * (2 * p - 1)).log1p() - (-p).log1p()) / -self._cut_log_odds()
        return where(self._is_far(), far, value)

    def entropy(self) -> Tensor:
        failure, success = (-self.probs).log1p(), self.probs.log()
        return self.mean * (failure - success) - self._cont_bern_log_norm() - failure

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        (x,) = natural_params
        low, high = (end - 0.5 for end in self._lims)
        is_far = (x <= low) | (x > high)
        cut = where(is_far, x, low)
        series = 0.5 * x + x.square() / 24 - x.pow(4) / 2880
        return where(is_far, cut.expm1().abs().log() - cut.abs().log(), series)
