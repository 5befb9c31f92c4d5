"""The chi-squared distribution."""

from __future__ import annotations

from ..tensor import Tensor
from . import constraints
from .gamma import Gamma
from .utils import Operand

__all__ = ["Chi2"]


class Chi2(Gamma):
    """The chi-squared distribution: of the sum of `df` squared normal numbers.

    Args:
        df: the degrees of freedom.

    Example:
        >>> adjit.distributions.Chi2(3.).mean
        tensor(3.)
    """

    arg_constraints = {"df": constraints.positive}
    _expands = ("concentration", "rate")

    def __init__(self, df: Operand, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Tensor:
        """Tell the degrees of freedom.

        Example:
            >>> adjit.distributions.Chi2(3.).df
            tensor(3.)
        """
        return self.concentration * 2
