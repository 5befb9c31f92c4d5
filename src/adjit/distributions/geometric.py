"""The geometric distribution."""

from __future__ import annotations

from collections.abc import Iterable

from ..autograd import no_grad
from ..nn.functional import binary_cross_entropy_with_logits
from ..ops.comparison import where
from ..tensor import Tensor
from . import constraints
from .chances import BinaryChances
from .utils import Operand, broadcast_all, standard_uniform, tiny_of

__all__ = ["Geometric"]


class Geometric(BinaryChances):
    """The geometric distribution: of the number of failures before the first success.

    Args:
        probs: the chance of success, above 0.
        logits: the logarithm of its odds, instead.

    Raises:
        ValueError: if not exactly one is given, or a chance is not in (0, 1].

    Example:
        >>> adjit.distributions.Geometric(0.25).mean
        tensor(3.)
    """

    support = constraints.nonnegative_integer

    def __init__(
        self, probs: Operand | None = None, logits: Operand | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self._take_chances(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)
        if self._validate_args and probs is not None and not (self.probs > 0).all():
            value = self.probs
            raise ValueError(
                f"Expected parameter probs ({type(value).__name__} of shape {tuple(value.shape)}) of "
                f"distribution {self!r} to be positive but found invalid values:\n"
                f"{value.detach()[~(value > 0)]}"
            )

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        return self.probs.new_zeros(self.probs.shape)

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        with no_grad():
            u = standard_uniform(self.probs, self._extended_shape(sample_shape))
            return (u.clamp(min=tiny_of(u)).log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        x, probs = broadcast_all(self._checked(value), self.probs)
        failing = where((probs == 1) & (x == 0), 0.0, probs)
        return x * (-failing).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        entropy = binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
        return entropy / self.probs
