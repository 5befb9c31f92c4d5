"""What `nn.functional` is made of, gathered from the op table."""

from __future__ import annotations

from collections.abc import Sequence

from .. import dtypes
from ..graph.composed import composed
from ..graph.export import export
from ..graph.record import check_tensor
from ..shapes import broadcast_shapes, numpy_names, wrap_dim
from ..tensor import Tensor
from .dropout import dropout
from .embedding import embedding, one_hot
from .linear import linear
from .losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
from .norm import layer_norm, rms_norm
from .reduce import vector_norm
from .softmax import log_softmax, softmax

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "embedding",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "linear",
    "log_softmax",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pairwise_distance",
    "rms_norm",
    "smooth_l1_loss",
    "softmax",
]


def normalize(
    input: Tensor, p: float = 2.0, dim: int | Sequence[int] = 1, eps: float = 1e-12
) -> Tensor:
    """`input` over its p-norm along dimensions, the norm being at least `eps`."""
    return input / vector_norm(input, p, dim, True).clamp(min=eps)


@export
@composed
@numpy_names
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along a dimension.

    Differentiable in `x1` and `x2`.

    Args:
        x1, x2: floating point, of shapes that can be broadcast.
        dim: the dimension of the vectors.
        eps: the least norm that a vector is divided by.

    Example:
        >>> adjit.cosine_similarity(adjit.tensor([1., 0.]), adjit.tensor([1., 1.]), dim=0)
        tensor(0.7071)
    """
    kind = dtypes.result_type(x1, x2)
    if not kind.is_floating_point:
        raise RuntimeError(
            f"expected common dtype to be floating point, yet common dtype is {kind.legacy}"
        )
    shape = broadcast_shapes(x1.shape, x2.shape)
    wrap_dim(dim, len(shape))
    x1, x2 = x1.to(kind).expand(shape), x2.to(kind).expand(shape)
    return (normalize(x1, 2.0, dim, eps) * normalize(x2, 2.0, dim, eps)).sum(dim)


@export
@composed
@numpy_names
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of `x1 - x2 + eps` along the last dimension.

    Differentiable in `x1` and `x2`.

    Example:
        >>> adjit.pairwise_distance(adjit.tensor([[1., 0.]]), adjit.tensor([[4., 4.]]))
        tensor([5.0000])
    """
    check_tensor("pairwise_distance", "x1", 1, x1)
    check_tensor("pairwise_distance", "x2", 2, x2)
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)
