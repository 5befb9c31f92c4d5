"""Bernoulli numbers made smooth."""

from __future__ import annotations

from collections.abc import Iterable

from ..ops.creation import as_tensor
from ..tensor import Tensor
from . import constraints
from .chances import BinaryChances
from .transformed_distribution import TransformedDistribution
from .transforms import SigmoidTransform
from .utils import Operand, broadcast_all, clamp_probs, standard_uniform

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


class LogitRelaxedBernoulli(BinaryChances):
    """The logits of `RelaxedBernoulli`.

    Args:
        temperature: how far from 0 and 1 numbers are.
        probs: the chance of 1.
        logits: the logarithm of its odds, instead.

    Raises:
        ValueError: if not exactly one of these is given.

    Example:
        >>> from adjit.distributions.relaxed_bernoulli import LogitRelaxedBernoulli
        >>> LogitRelaxedBernoulli(1., 0.5).log_prob(adjit.tensor(0.)).exp()
        tensor(0.2500)
    """

    support = constraints.real
    has_rsample = True
    _keeps = ("temperature",)

    def __init__(
        self, temperature: Operand, probs: Operand | None = None, logits: Operand | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self._take_chances(probs, logits)
        self.temperature = as_tensor(temperature)
        super().__init__(self._param.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(standard_uniform(probs, shape))
        return (u.log() - (-u).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        x, logits = broadcast_all(self._checked(value), self.logits)
        away = logits - x * self.temperature
        return self.temperature.log() + away - 2 * away.exp().log1p()


class RelaxedBernoulli(TransformedDistribution):
    """Bernoulli numbers made smooth, between 0 and 1 (Maddison, Mnih, Teh 2017; Jang, Gu, Poole 2017).

    Args:
        temperature: how far from 0 and 1 numbers are.
        probs: the chance of 1.
        logits: the logarithm of its odds, instead.

    Raises:
        ValueError: if not exactly one of these is given.

    Example:
        >>> d = adjit.distributions.RelaxedBernoulli(adjit.tensor(0.5), probs=adjit.tensor([0.1, 0.9]))
        >>> d.rsample().shape
        adjit.Size([2])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, temperature: Operand, probs: Operand | None = None, logits: Operand | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Tensor:
        """Tell how far from 0 and 1 numbers are.

        Example:
            >>> adjit.distributions.RelaxedBernoulli(0.5, 0.1).temperature
            tensor(0.5000)
        """
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """Tell the logarithms of the odds.

        Example:
            >>> adjit.distributions.RelaxedBernoulli(0.5, logits=0.).logits
            tensor(0.)
        """
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """Tell the chances of 1.

        Example:
            >>> adjit.distributions.RelaxedBernoulli(0.5, logits=0.).probs
            tensor(0.5000)
        """
        return self.base_dist.probs
