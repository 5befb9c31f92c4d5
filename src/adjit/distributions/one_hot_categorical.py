"""The categorical distribution of vectors with a one."""

from __future__ import annotations

from collections.abc import Iterable

from ..nn.functional import one_hot
from ..ops.creation import eye
from ..tensor import Tensor
from . import constraints
from .categorical import Categorical
from .chances import OverCategories

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]


class OneHotCategorical(OverCategories):
    """The categorical distribution of vectors: a one at the category, zeros elsewhere.

    Args:
        probs: (..., categories), the chances; they are divided by their sum.
        logits: (..., categories), their logarithms, up to a constant, instead.

    Raises:
        ValueError: if not exactly one is given.

    Example:
        >>> adjit.distributions.OneHotCategorical(adjit.tensor([0., 1., 0.])).sample()
        tensor([0., 1., 0.])
    """

    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self._categorical = Categorical(probs, logits)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return self._one_hot(self._categorical.mode)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def _one_hot(self, places: Tensor) -> Tensor:
        return one_hot(places, self._event_shape[0]).to(self._param.dtype)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self._one_hot(self._categorical.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        return self._categorical.log_prob(self._checked(value).argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n, batch = self._event_shape[0], self._batch_shape
        values = eye(n, dtype=self._param.dtype, device=self._param.device)
        values = values.view((n, *(1,) * len(batch), n))
        return values.expand((n, *batch, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """A `OneHotCategorical` whose `rsample` has the gradient of the chances (Bengio, Léonard, Courville 2013).

    Example:
        >>> logits = adjit.zeros(2, requires_grad=True)
        >>> d = adjit.distributions.OneHotCategoricalStraightThrough(logits=logits)
        >>> d.rsample().requires_grad
        True
    """

    has_rsample = True

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())
