"""The categorical distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from .. import dtypes
from ..autograd import no_grad
from ..ops.creation import arange
from ..ops.random import multinomial
from ..ops.shape import broadcast_tensors
from ..shapes import Size, numel
from ..tensor import Tensor
from . import constraints
from .chances import GivenChances, given_name
from .utils import lazy_property, logits_to_probs, probs_to_logits

__all__ = ["Categorical"]


class Categorical(GivenChances):
    """The categorical distribution: over the numbers from 0 on.

    Args:
        probs: (..., categories), the chances; they are divided by their sum.
        logits: (..., categories), their logarithms, up to a constant, instead.

    Raises:
        ValueError: if not exactly one is given, or it is a number.

    Example:
        >>> adjit.distributions.Categorical(adjit.tensor([1., 3.])).probs
        tensor([0.2500, 0.7500])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        name = given_name(probs, logits)
        given = probs if logits is None else logits
        assert given is not None
        if given.ndim < 1:
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if logits is None:
            setattr(self, name, given / given.sum(-1, keepdim=True))
        else:
            setattr(self, name, given - given.logsumexp(dim=-1, keepdim=True))
        super().__init__(self._param.shape[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def _num_events(self) -> int:
        return self._param.shape[-1]

    @lazy_property
    def logits(self) -> Tensor:
        """The logarithms of the chances."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        """The chances, which add up to 1."""
        return logits_to_probs(self.logits)

    @property
    def mean(self) -> Tensor:
        return self._param.new_full(self._extended_shape(), math.nan)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Tensor:
        return self.mean

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = Size(sample_shape)
        with no_grad():
            rows = self.probs.reshape(-1, self._num_events)
            drawn = multinomial(rows, numel(shape), True).T
            return drawn.reshape(self._extended_shape(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        places = self._checked(value).long().unsqueeze(-1)
        places, logits = broadcast_tensors(places, self.logits)
        return logits.gather(-1, places[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        logits = self.logits.clamp(min=dtypes.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = arange(self._num_events, dtype=dtypes.int64, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values
