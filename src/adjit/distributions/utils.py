"""What distributions share: parameters that broadcast, chances and their logits, values computed once."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Final

from .. import dtypes
from ..autograd import enable_grad
from ..nn.functional import softmax
from ..ops.creation import arange, tensor
from ..ops.random import rand, randn
from ..ops.shape import broadcast_tensors
from ..shapes import Shape
from ..tensor import Tensor

__all__ = [
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits",
    "tril_matrix_to_vec", "vec_to_tril_matrix",
]  # fmt: skip

euler_constant: Final[float] = 0.57721566490153286060

Operand = Tensor | float
NUMBERS = (int, float, bool)


def broadcast_all(*values: Operand) -> tuple[Tensor, ...]:
    """Broadcast tensors and numbers; numbers get the dtype and device of the first tensor.

    Raises:
        ValueError: if something is neither.

    Example:
        >>> adjit.distributions.utils.broadcast_all(0., adjit.ones(2))
        (tensor([0., 0.]), tensor([1., 1.]))
    """
    if not all(isinstance(v, (Tensor, *NUMBERS)) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number, torch.Tensor or objects implementing "
            "__torch_function__."
        )
    first = next((v for v in values if isinstance(v, Tensor)), None)
    kind = dtypes.get_default_dtype() if first is None else first.dtype
    device = None if first is None else first.device
    tensors = [v if isinstance(v, Tensor) else tensor(v, dtype=kind, device=device) for v in values]
    return tuple(broadcast_tensors(*tensors))


def _standard_normal(shape: Shape, dtype: Any, device: Any) -> Tensor:
    """Normal numbers, by the name and the arguments that programs know from PyTorch."""
    return randn(shape, dtype=dtype, device=device)


def standard_normal(like: Tensor, shape: Shape) -> Tensor:
    """Normal numbers of the dtype and device of a tensor."""
    return _standard_normal(shape, like.dtype, like.device)


def standard_uniform(like: Tensor, shape: Shape) -> Tensor:
    """Numbers of [0, 1) of the dtype and device of a tensor."""
    return rand(shape, dtype=like.dtype, device=like.device)


def tiny_of(x: Tensor) -> float:
    """The smallest normal number of a tensor's dtype."""
    return float(dtypes.finfo(x.dtype).tiny)


def inside_unit(x: Tensor) -> Tensor:
    """Numbers of [0, 1] kept off both ends, where densities may be infinite."""
    return x.clamp(tiny_of(x), 1 - eps_of(x) / 2)


def eps_of(x: Tensor) -> float:
    """The distance from 1 to the next number of a tensor's dtype."""
    return float(dtypes.finfo(x.dtype).eps)


def sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """The sum over the last `dim` dimensions."""
    return value if dim == 0 else value.reshape((*value.shape[:-dim], -1)).sum(-1)


_sum_rightmost = sum_rightmost  # PyTorch's name


def multigammaln(a: Tensor, p: int) -> Tensor:
    """The logarithm of the gamma function of p dimensions."""
    halves = arange(p, dtype=a.dtype, device=a.device) / 2
    return (a.unsqueeze(-1) - halves).lgamma().sum(-1) + p * (p - 1) / 4 * math.log(math.pi)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Turn logits into chances, by softmax along the last dimension, or by sigmoid for yes and no.

    Example:
        >>> adjit.distributions.utils.logits_to_probs(adjit.zeros(2))
        tensor([0.5000, 0.5000])
    """
    return logits.sigmoid() if is_binary else softmax(logits, dim=-1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Move chances away from 0 and 1 by the precision of their dtype.

    Example:
        >>> adjit.distributions.utils.clamp_probs(adjit.tensor([0.5, 1.])) < 1
        tensor([True, True])
    """
    eps = eps_of(probs)
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Turn chances into logits: their logarithms, or the logarithm of the odds for yes and no.

    Example:
        >>> adjit.distributions.utils.probs_to_logits(adjit.tensor(0.5), is_binary=True)
        tensor(0.)
    """
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


class lazy_property:
    """Compute an attribute when it is first looked at, with gradients, and keep it.

    Example:
        >>> class Circle:
        ...     radius = 2
        ...     @adjit.distributions.utils.lazy_property
        ...     def area(self):
        ...         return 3 * self.radius**2
        >>> Circle().area
        12
    """

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


def _lower_mask(n: int, diag: int, like: Tensor) -> Tensor:
    """Which elements of a matrix lie on or below a diagonal."""
    places = arange(n, device=like.device)
    mask: Tensor = places < places.view(-1, 1) + (diag + 1)
    return mask


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """Flatten the elements on and below a diagonal, row by row.

    Args:
        mat: (..., n, n).
        diag: the diagonal: 0 the main one, -1 that below it.

    Raises:
        ValueError: if there is no such diagonal.

    Example:
        >>> adjit.distributions.utils.tril_matrix_to_vec(adjit.tensor([[1., 0.], [2., 3.]]))
        tensor([1., 2., 3.])
    """
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    return mat[..., _lower_mask(n, diag, mat)]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Put a vector into the elements of a matrix on and below a diagonal: the inverse of `tril_matrix_to_vec`.

    Raises:
        ValueError: if the vector has no length that fits.

    Example:
        >>> adjit.distributions.utils.vec_to_tril_matrix(adjit.tensor([1., 2., 3.]))
        tensor([[1., 0.],
                [2., 3.]])
    """
    # The positive root of n**2 + (1 + 2 * diag) * n - |diag| * (diag + 1) - 2 * length = 0.
    length, linear = vec.shape[-1], 1 + 2 * diag
    n = (-linear + (linear**2 + 8 * length + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    if round(n) - n > eps_of(vec):
        raise ValueError(
            f"The size of last dimension is {length} which cannot be expressed as the lower triangular "
            "part of a square D x D matrix."
        )
    size = round(n)
    mat: Tensor = vec.new_zeros((*vec.shape[:-1], size, size))
    mat[..., _lower_mask(size, diag, vec)] = vec
    return mat
