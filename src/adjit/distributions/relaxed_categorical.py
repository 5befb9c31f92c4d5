"""Vectors with a one made smooth."""

from __future__ import annotations

from collections.abc import Iterable

from ..ops.creation import as_tensor
from ..tensor import Tensor
from . import constraints
from .categorical import Categorical
from .chances import OverCategories
from .transformed_distribution import TransformedDistribution
from .transforms import ExpTransform
from .utils import Operand, broadcast_all, clamp_probs, standard_uniform

__all__ = ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]


class ExpRelaxedCategorical(OverCategories):
    """The logarithms of `RelaxedOneHotCategorical`.

    Args:
        temperature: how far from a single one vectors are.
        probs: (..., categories), the chances; they are divided by their sum.
        logits: (..., categories), their logarithms, up to a constant, instead.

    Raises:
        ValueError: if not exactly one of these is given.

    Example:
        >>> from adjit.distributions.relaxed_categorical import ExpRelaxedCategorical
        >>> ExpRelaxedCategorical(1., adjit.ones(3)).rsample().shape
        adjit.Size([3])
    """

    # The true support is a submanifold of this.
    support = constraints.real_vector
    has_rsample = True
    _keeps = ("_categorical", "temperature")

    def __init__(
        self, temperature: Operand, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self._categorical = Categorical(probs, logits)
        self.temperature = as_tensor(temperature)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        u = clamp_probs(standard_uniform(self.logits, self._extended_shape(sample_shape)))
        return ((self.logits - (-u.log()).log()) / self.temperature).log_softmax(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        x, logits = broadcast_all(self._checked(value), self.logits)
        k, t = self._event_shape[0], self.temperature
        scale = t.new_full(t.shape, float(k)).lgamma() + (k - 1) * t.log()
        return (logits - x * t).log_softmax(-1).sum(-1) + scale


class RelaxedOneHotCategorical(TransformedDistribution):
    """Vectors with a one made smooth (Maddison, Mnih, Teh 2017; Jang, Gu, Poole 2017).

    Args:
        temperature: how far from a single one vectors are.
        probs: (..., categories), the chances; they are divided by their sum.
        logits: (..., categories), their logarithms, up to a constant, instead.

    Raises:
        ValueError: if not exactly one of these is given.

    Example:
        >>> d = adjit.distributions.RelaxedOneHotCategorical(adjit.tensor(0.5), adjit.ones(3))
        >>> d.rsample().shape
        adjit.Size([3])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex
    has_rsample = True

    def __init__(
        self, temperature: Operand, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Tensor:
        """Tell how far from a single one vectors are.

        Example:
            >>> adjit.distributions.RelaxedOneHotCategorical(0.5, adjit.ones(3)).temperature
            tensor(0.5000)
        """
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """Tell the logarithms of the chances.

        Example:
            >>> adjit.distributions.RelaxedOneHotCategorical(0.5, logits=adjit.zeros(1)).logits
            tensor([0.])
        """
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """Tell the chances, which add up to 1.

        Example:
            >>> adjit.distributions.RelaxedOneHotCategorical(0.5, adjit.ones(2)).probs
            tensor([0.5000, 0.5000])
        """
        return self.base_dist.probs
