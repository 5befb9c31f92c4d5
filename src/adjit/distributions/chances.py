"""What distributions share that are given chances (`probs`) or their logits."""

from __future__ import annotations

from typing import Any, ClassVar

from ..shapes import Size
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import Operand, broadcast_all, lazy_property, logits_to_probs, probs_to_logits


def given_name(probs: Any, logits: Any) -> str:
    """Which of the two is given.

    Raises:
        ValueError: if not exactly one is.
    """
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")
    return "logits" if probs is None else "probs"


class GivenChances(Distribution):
    """A distribution whose parameter is `probs` or `logits`: each follows from the other."""

    @property
    def _param(self) -> Tensor:
        """The one that is there."""
        known = self.__dict__
        return known["probs"] if "probs" in known else known["logits"]

    def _new(self, *args: Any, **kwargs: Any) -> Tensor:
        return self._param.new_empty(*args, **kwargs)

    @property
    def param_shape(self) -> Size:
        """Tell the shape of `probs` and `logits`.

        Example:
            >>> adjit.distributions.Categorical(adjit.ones(3)).param_shape
            adjit.Size([3])
        """
        return self._param.shape


class BinaryChances(GivenChances):
    """A distribution of successes, whose chance is `probs` or sigmoid(`logits`)."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}

    def _take_chances(self, probs: Any, logits: Any, *others: Operand) -> tuple[Tensor, ...]:
        """Set the one that is given, broadcast with other parameters, which are returned in its dtype."""
        name = given_name(probs, logits)
        *found, param = broadcast_all(*others, logits if probs is None else probs)
        setattr(self, name, param)
        return tuple(x.to(param.dtype) for x in found)

    @lazy_property
    def logits(self) -> Tensor:
        """The logarithms of the odds."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The chances."""
        return logits_to_probs(self.logits, is_binary=True)


class OverCategories(Distribution):
    """A distribution of vectors over categories, whose chances are those of `_categorical`."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    _keeps: ClassVar[tuple[str, ...]] = ("_categorical",)
    _categorical: Any

    def _new(self, *args: Any, **kwargs: Any) -> Tensor:
        return self._param.new_empty(*args, **kwargs)

    @property
    def _param(self) -> Tensor:
        return self._categorical._param

    @property
    def probs(self) -> Tensor:
        """Tell the chances, which add up to 1.

        Example:
            >>> adjit.distributions.OneHotCategorical(adjit.ones(4)).probs
            tensor([0.2500, 0.2500, 0.2500, 0.2500])
        """
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """Tell the logarithms of the chances.

        Example:
            >>> adjit.distributions.OneHotCategorical(logits=adjit.zeros(1)).logits
            tensor([0.])
        """
        return self._categorical.logits

    @property
    def param_shape(self) -> Size:
        """Tell the shape of `probs` and `logits`.

        Example:
            >>> adjit.distributions.OneHotCategorical(adjit.ones(3)).param_shape
            adjit.Size([3])
        """
        return self._param.shape
