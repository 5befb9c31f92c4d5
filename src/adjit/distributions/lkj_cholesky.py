"""The distribution of Lewandowski, Kurowicka and Joe over Cholesky factors of correlation matrices."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..autograd import no_grad
from ..ops.creation import arange
from ..ops.joining import cat
from ..tensor import Tensor
from . import constraints
from .beta import Beta
from .distribution import Distribution
from .utils import Operand, broadcast_all, multigammaln, standard_normal, tiny_of

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices, which have a density proportional to det**(concentration - 1).

    Samples are drawn by the onion method, row by row (Lewandowski, Kurowicka, Joe, Journal of Multivariate
    Analysis 100, 2009, section 3.2).

    Args:
        dim: the number of rows, at least 2.
        concentration: 1 for the uniform distribution, more for weaker correlations.

    Raises:
        ValueError: if `dim` is below 2.

    Example:
        >>> adjit.distributions.LKJCholesky(3, 0.5).sample().shape
        adjit.Size([3, 3])
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky
    _keeps = ("dim", "_beta")

    def __init__(
        self, dim: int, concentration: Operand = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ValueError(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        like = self.concentration
        rows = arange(dim - 1, dtype=like.dtype, device=like.device)
        halves = 0.5 * cat([rows.new_zeros(1), rows])
        # Of the squared length of a row in front of its diagonal, which has as many numbers as rows before it.
        # (PyTorch 2.13 takes `rows` for the first `halves`: its correlations are too strong.)
        marginal = like + 0.5 * (dim - 2)
        self._beta = Beta(halves + 0.5, marginal.unsqueeze(-1) - halves)
        super().__init__(like.shape, (dim, dim), validate_args)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        with no_grad():
            length = self._beta.sample(sample_shape).unsqueeze(-1)
            normal = standard_normal(length, self._extended_shape(sample_shape)).tril(-1)
            tiny = tiny_of(length)
            # The first row has nothing in front of its diagonal.
            direction = normal / normal.square().sum(-1, True).sqrt().clamp(min=tiny)
            rows = length.sqrt() * direction
            diagonal = (1 - rows.square().sum(-1)).clamp(min=tiny).sqrt()
            return rows + diagonal.diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        # det**(concentration - 1) is the product of the diagonal's 2 * (concentration - 1)-th powers, and the
        # step from factors to matrices that of its (dim - i)-th ones.
        diagonal = self._checked(value).diagonal(dim1=-1, dim2=-2)[..., 1:]
        places = arange(2, self.dim + 1, device=self.concentration.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - places
        # Page 1999 of the paper.
        n = self.dim - 1
        alpha = self.concentration + 0.5 * n
        norm = 0.5 * n * math.log(math.pi) + multigammaln(alpha - 0.5, n) - n * alpha.lgamma()
        return (order * diagonal.log()).sum(-1) - norm
