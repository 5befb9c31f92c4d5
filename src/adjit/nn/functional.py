"""The functions behind the layers and losses, as in `torch.nn.functional`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from .. import errors
from ..absent import absent
from ..autograd.modes import no_grad
from ..dtypes import dtype as DType
from ..dtypes import finfo, int64, uint8
from ..graph.composed import composed
from ..graph.export import in_place, in_place_text
from ..graph.inplace import write_out
from ..graph.normalized import normalized_by, normalizes_first
from ..graph.record import check_no_gradient, check_tensor
from ..graph.wrong_types import explaining
from ..ops import activations, creation, nn
from ..ops import batch_norm as batch_norms
from ..ops.activations import gelu, logsigmoid, prelu
from ..ops.attention import scaled_dot_product_attention
from ..ops.conv import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from ..ops.conv_tbc import conv_tbc
from ..ops.ctc import ctc_loss
from ..ops.distances import pdist
from ..ops.dropout import (
    alpha_dropout,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
)
from ..ops.embedding import embedding, one_hot
from ..ops.embedding_bags import embedding_bag
from ..ops.fractional_pool import (
    fractional_max_pool2d,
    fractional_max_pool2d_with_indices,
    fractional_max_pool3d,
    fractional_max_pool3d_with_indices,
)
from ..ops.grid_sample import affine_grid, grid_sample
from ..ops.interpolate import interpolate, upsample, upsample_bilinear, upsample_nearest
from ..ops.linear import bilinear, linear
from ..ops.losses import check_reduction
from ..ops.nn import cosine_similarity, pairwise_distance
from ..ops.norm import layer_norm, rms_norm
from ..ops.padding import pad
from ..ops.pool import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d,
    adaptive_max_pool3d_with_indices,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_pool1d,
    max_pool1d_with_indices,
    max_pool2d,
    max_pool2d_with_indices,
    max_pool3d,
    max_pool3d_with_indices,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from ..ops.unfold import channel_shuffle, fold, pixel_shuffle, pixel_unshuffle, unfold
from ..shapes import check_fits, wrap_dim
from ..tensor import Tensor
from . import grad as grad
from . import reduction as _Reduction  # noqa: F401  PyTorch's name
from .multi_head import (  # noqa: F401  and names of PyTorch's, which copies of its attention import
    _canonical_mask,
    _in_projection,
    _in_projection_packed,
    _mha_shape_check,
    _none_or_dtype,
    multi_head_attention_forward,
)
from .reduction import chosen_reduction, reduced

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "affine_grid", "alpha_dropout",
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_norm", "bilinear", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "celu", "celu_", "channel_shuffle", "conv1d", "conv2d",
    "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_embedding_loss",
    "cosine_similarity", "cross_entropy", "ctc_loss", "dropout", "dropout1d", "dropout2d", "dropout3d", "elu",
    "elu_", "embedding", "embedding_bag", "feature_alpha_dropout", "fold", "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices", "gaussian_nll_loss", "gelu", "glu", "grid_sample",
    "group_norm", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "hardtanh_", "hinge_embedding_loss", "huber_loss", "instance_norm", "interpolate", "kl_div",
    "l1_loss", "layer_norm", "leaky_relu", "leaky_relu_", "linear", "linear_cross_entropy",
    "local_response_norm",
    "log_softmax", "logsigmoid", "lp_pool1d", "lp_pool2d", "lp_pool3d", "margin_ranking_loss",
    "max_pool1d", "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices", "max_pool3d",
    "max_pool3d_with_indices", "max_unpool1d", "max_unpool2d", "max_unpool3d", "mish", "mse_loss",
    "multi_head_attention_forward", "multi_margin_loss", "multilabel_margin_loss",
    "multilabel_soft_margin_loss", "nll_loss", "normalize", "one_hot", "pad", "pairwise_distance",
    "pdist", "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "prelu", "relu", "relu6",
    "relu_", "rms_norm", "rrelu", "rrelu_", "scaled_dot_product_attention", "selu", "selu_",
    "sigmoid", "silu", "smooth_l1_loss",
    "soft_margin_loss", "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh",
    "tanhshrink", "threshold", "threshold_", "triplet_margin_loss",
    "triplet_margin_with_distance_loss", "unfold", "upsample", "upsample_bilinear",
    "upsample_nearest",
]  # fmt: skip

# ---- activations ---------------------------------------------------------------------------------


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0), elementwise; differentiable, with derivative 0 at 0.

    With `inplace` the result is written into the input, here as in the activations below.

    Example:
        >>> F.relu(adjit.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """
    return _activation(activations.relu, input, inplace)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """x clamped to [0, 6], elementwise; differentiable.

    Example:
        >>> F.relu6(adjit.tensor([-1., 2., 9.]))
        tensor([0., 2., 6.])
    """
    return hardtanh(input, 0.0, 6.0, inplace)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """Clamp x to [min_val, max_val], elementwise; differentiable, with derivative 0 at the bounds.

    Raises:
        ValueError: the bounds are in the wrong order.

    Example:
        >>> F.hardtanh(adjit.tensor([-2., 0.5, 3.]))
        tensor([-1.0000,  0.5000,  1.0000])
    """
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if getattr(input, "dtype", None) is uint8 and (min_val < 0 or max_val < 0):
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    return _activation(activations.hardtanh, input, inplace, min_val, max_val)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where it is above `threshold`, `value` elsewhere; differentiable.

    Example:
        >>> F.threshold(adjit.tensor([0.5, 2.]), 1.0, 0.0)
        tensor([0., 2.])
    """
    return _activation(activations.threshold, input, inplace, threshold, value)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x for positive x, negative_slope * x otherwise; differentiable.

    Example:
        >>> F.leaky_relu(adjit.tensor([-1., 2.]), 0.1)
        tensor([-0.1000,  2.0000])
    """
    return _activation(activations.leaky_relu, input, inplace, negative_slope)


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Apply `leaky_relu` with slopes drawn from [lower, upper] in training, else with their mean.

    Differentiable (Xu et al., 2015).

    Example:
        >>> F.rrelu(adjit.tensor([-1., 2.]), 0.1, 0.3)
        tensor([-0.2000,  2.0000])
    """
    return _activation(activations.rrelu, input, inplace, lower, upper, training)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x for positive x, alpha * (exp(x) - 1) otherwise; differentiable (Clevert et al., 2015).

    Example:
        >>> F.elu(adjit.tensor([-1., 2.]))
        tensor([-0.6321,  2.0000])
    """
    return _activation(activations.elu, input, inplace, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Scale an ELU by 1.0507, its alpha being 1.6733; differentiable (Klambauer et al., 2017).

    Example:
        >>> F.selu(adjit.tensor([-1., 2.]))
        tensor([-1.1113,  2.1014])
    """
    return _activation(activations.selu, input, inplace)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x for positive x, alpha * (exp(x / alpha) - 1) otherwise; differentiable (Barron, 2017).

    Raises:
        RuntimeError: if `alpha` is 0.

    Example:
        >>> F.celu(adjit.tensor([-1., 2.]), 0.5)
        tensor([-0.4323,  2.0000])
    """
    return _activation(activations.celu, input, inplace, alpha)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x), elementwise; differentiable (Hendrycks and Gimpel, 2016).

    Example:
        >>> F.silu(adjit.tensor([-1., 0., 2.]))
        tensor([-0.2689,  0.0000,  1.7616])
    """
    return _activation(activations.silu, input, inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x)), elementwise; differentiable (Misra, 2019).

    Example:
        >>> F.mish(adjit.tensor([-1., 0., 2.]))
        tensor([-0.3034,  0.0000,  1.9440])
    """
    return _activation(activations.mish, input, inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * relu6(x + 3) / 6, elementwise; differentiable (Howard et al., 2019).

    Example:
        >>> F.hardswish(adjit.tensor([-4., 1., 4.]))
        tensor([-0.0000, 0.6667, 4.0000])
    """
    return _activation(activations.hardswish, input, inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(x + 3) / 6, elementwise; differentiable.

    Example:
        >>> F.hardsigmoid(adjit.tensor([-4., 0., 1.]))
        tensor([0.0000, 0.5000, 0.6667])
    """
    return _activation(activations.hardsigmoid, input, inplace)


def _activation(op: Any, input: Tensor, inplace: bool, *settings: Any) -> Tensor:
    called = _written(op) if inplace else op
    return called(input, *settings)


@functools.cache  # machine code, made once
def _written(op: Any) -> Any:
    return in_place(op, op.name)


def _writing(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """An activation that writes into its input."""
    made = functools.partial(function, inplace=True)
    made.__doc__ = in_place_text(function.__name__, function.__doc__ or "", "F")
    return made


relu_, hardtanh_, threshold_ = _writing(relu), _writing(hardtanh), _writing(threshold)
leaky_relu_, rrelu_ = _writing(leaky_relu), _writing(rrelu)
elu_, selu_, celu_ = _writing(elu), _writing(selu), _writing(celu)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x)), elementwise; differentiable.

    Example:
        >>> F.sigmoid(adjit.tensor([-1., 0., 2.]))
        tensor([0.2689, 0.5000, 0.8808])
    """
    return input.sigmoid()


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent, elementwise; differentiable.

    Example:
        >>> F.tanh(adjit.tensor([-1., 0., 2.]))
        tensor([-0.7616,  0.0000,  0.9640])
    """
    return input.tanh()


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x), elementwise; differentiable.

    Example:
        >>> F.tanhshrink(adjit.tensor([-1., 0., 2.]))
        tensor([-0.2384,  0.0000,  1.0360])
    """
    return input - input.tanh()


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|), elementwise; differentiable.

    Example:
        >>> F.softsign(adjit.tensor([-1., 0., 3.]))
        tensor([-0.5000,  0.0000,  0.7500])
    """
    return input / (input.abs() + 1)


def softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x is above `threshold`; differentiable.

    Example:
        >>> F.softplus(adjit.tensor([-1., 0., 30.]))
        tensor([ 0.3133,  0.6931, 30.0000])
    """
    return activations.softplus(input, beta, threshold)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| is above `lambd`, 0 elsewhere; differentiable.

    Example:
        >>> F.hardshrink(adjit.tensor([-1., 0.3, 2.]))
        tensor([-1.,  0.,  2.])
    """
    return activations.hardshrink(input, lambd)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by `lambd`, 0 where it would pass it; differentiable.

    Raises:
        RuntimeError: `lambd` is negative or not finite.

    Example:
        >>> F.softshrink(adjit.tensor([-1., 0.3, 2.]))
        tensor([-0.5000,  0.0000,  1.5000])
    """
    largest = finfo(input.dtype).max
    if not 0 <= lambd <= largest:
        raise RuntimeError(
            f"lambda must be in range [0, {largest:g}] for input dtype {input.dtype.legacy}, but "
            f"found {lambd:g}"
        )
    return activations.softshrink(input, lambd)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """Gate: the first half of dimension `dim` times the sigmoid of the second half; differentiable.

    After Dauphin et al. (2016).

    Raises:
        RuntimeError: a 0-d input, or an odd size.

    Example:
        >>> F.glu(adjit.tensor([1., 2., 0., 0.]))
        tensor([0.5000, 1.0000])
    """
    if input.dim() == 0:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    wrap_dim(dim, input.dim())
    if input.shape[dim] % 2 != 0:
        raise RuntimeError(
            f"Halving dimension must be even, but dimension {dim % input.dim()} is size "
            f"{input.shape[dim]}"
        )
    value, gate = input.chunk(2, dim)
    return value * gate.sigmoid()


def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None
) -> Tensor:
    """exp(x) over its sum along `dim`; differentiable.

    Args:
        input: any shape, floating.
        dim: the dimension; leaving it out is deprecated and warns.
        dtype: cast the input to it first.

    Example:
        >>> F.softmax(adjit.zeros(2), dim=0)
        tensor([0.5000, 0.5000])
    """
    return nn.softmax(input, _softmax_dim("softmax", input, dim), dtype)


@composed
def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None
) -> Tensor:
    """exp(-x) over its sum along `dim`; differentiable. Takes what `softmax` takes.

    Example:
        >>> F.softmin(adjit.tensor([1., 2., 3.]), dim=0)
        tensor([0.6652, 0.2447, 0.0900])
    """
    return nn.softmax(-input, _softmax_dim("softmin", input, dim), dtype)


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None
) -> Tensor:
    """log(softmax(x)) along `dim`, without overflow; differentiable.

    Takes what `softmax` takes.

    Example:
        >>> F.log_softmax(adjit.zeros(2), dim=0)
        tensor([-0.6931, -0.6931])
    """
    return nn.log_softmax(input, _softmax_dim("log_softmax", input, dim), dtype)


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """Draw from the Gumbel-softmax distribution along `dim`; differentiable (Jang et al., 2016).

    Args:
        logits: unnormalised log-probabilities.
        tau: the temperature, positive.
        hard: return one-hot vectors whose gradient is that of the soft ones.
        eps: without effect.
        dim: the dimension of the classes.

    Example:
        >>> F.gumbel_softmax(adjit.zeros(3, 4), hard=True).sum(dim=-1)
        tensor([1., 1., 1.])
    """
    if eps != 1e-10:
        errors.warn("`eps` parameter is deprecated and has no effect.")
    gumbels = -creation.empty_like(logits).exponential_().log()
    soft = ((logits + gumbels) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.argmax(dim, keepdim=True)
    chosen = creation.zeros_like(logits).scatter_(dim, index, 1.0)
    return chosen - soft.detach() + soft


# ---- normalisation -------------------------------------------------------------------------------


@composed
def normalize(
    input: Tensor,
    p: float = 2.0,
    dim: int | Sequence[int] = 1,
    eps: float = 1e-12,
    out: Tensor | None = None,
) -> Tensor:
    """x / max(norm(x), eps) with the p-norm along `dim`; differentiable.

    Example:
        >>> F.normalize(adjit.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000]])
    """
    normalized = nn.normalize(input, p, dim, eps)
    return normalized if out is None else write_out("normalize", out, normalized)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel to mean 0 and variance 1, then scale and shift it.

    Differentiable in `input`, `weight` and `bias`, any number of times.

    Args:
        input: (N, C, *), floating point.
        running_mean, running_var: (C,), the statistics that are used unless `training`; in
            training they move towards those of the batch. None: they are not kept.
        weight, bias: (C,), or None.
        training: whether the statistics are those of `input`.
        momentum: how far the running statistics move.
        eps: added to the variance.

    Raises:
        ValueError: for one value in a channel while training, or `eps` that is not positive.
        RuntimeError: if shapes or dtypes do not fit, or statistics are missing.

    Example:
        >>> F.batch_norm(adjit.tensor([[1.0], [3.0]]), None, None, training=True)
        tensor([[-1.0000],
                [ 1.0000]])
    """
    if training:
        batch_norms.check_batch_size(input.shape)
        if eps <= 0.0:
            raise ValueError(f"batch_norm eps must be positive during training, but got {eps}")
    if eps < 0.0:
        raise ValueError(f"batch_norm eps must be non-negative, but got {eps}")
    return batch_norms.batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps
    )


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each image to mean 0 and variance 1, then scale and shift it.

    Takes what `batch_norm` takes; `use_input_stats` stands for its `training`, and running
    statistics move towards the mean over the images.

    Raises:
        ValueError: for one value in a channel of an image.
        RuntimeError: if shapes or dtypes do not fit, or statistics are missing.

    Example:
        >>> F.instance_norm(adjit.tensor([[[1.0, 3.0], [2.0, 6.0]]]))
        tensor([[[-1.0000,  1.0000],
                 [-1.0000,  1.0000]]])
    """
    if use_input_stats and math.prod(input.shape[2:]) == 1:
        raise ValueError(
            f"Expected more than 1 spatial element when training, got input size {input.shape}"
        )
    return batch_norms.instance_norm(
        input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps
    )


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise groups of channels of each image, as `adjit.group_norm` does (Wu and He, 2018).

    Differentiable in `input`, `weight` and `bias`.

    Args:
        input: (N, C, *), floating point.
        num_groups: divides C.
        weight, bias: (C,), or None.
        eps: added to the variance.

    Raises:
        ValueError: for groups of one value.
        RuntimeError: if shapes or dtypes do not fit.

    Example:
        >>> F.group_norm(adjit.tensor([[1.0, 3.0, 2.0, 6.0]]), 2)
        tensor([[-1.0000,  1.0000, -1.0000,  1.0000]])
    """
    if input.ndim >= 2:
        images, channels = input.shape[:2]
        batch_norms.check_batch_size(
            [images * channels // num_groups, num_groups, *input.shape[2:]]
        )
    return batch_norms.group_norm(input, num_groups, weight, bias, eps)


@composed
def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """x / (k + alpha * the mean of the squares of neighbouring channels) ** beta.

    Differentiable in `input`.

    Args:
        input: (N, C, *), floating point.
        size: how many channels are neighbours.
        alpha, beta, k: of the formula.

    Raises:
        ValueError: for an input of less than three dimensions.

    Example:
        >>> F.local_response_norm(adjit.ones(1, 1, 2), 1, alpha=1.0, beta=1.0)
        tensor([[[0.5000, 0.5000]]])
    """
    if input.dim() < 3:
        gap = " " * 26  # as PyTorch's text has it
        raise ValueError(
            f"Expected 3D or higher dimensionality{gap}input (got {input.dim()} dimensions)"
        )
    if not input.numel():
        return input
    squares = (input * input).reshape(input.shape[0], 1, input.shape[1], -1)
    squares = pad(squares, (0, 0, size // 2, (size - 1) // 2))
    means = avg_pool2d(squares, (size, 1), stride=1).reshape(input.shape)
    return input / (means * alpha + k).pow(beta)


# ---- losses --------------------------------------------------------------------------------------


@composed
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """The absolute error |input - target|; differentiable.

    Args:
        input: any shape, floating.
        target: of the same shape; one that only broadcasts gets a warning.
        size_average: the old form of `reduction`.
        reduce: the old form of `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.
        weight: a factor for every element, of the shape of the input; the mean is weighted.

    Raises:
        ValueError: another reduction, or a weight of another shape.

    Example:
        >>> F.l1_loss(adjit.tensor([1.0, 2.0]), adjit.tensor([0.0, 4.0]))
        tensor(1.5000)
    """
    _warn_about_broadcasting(input, target)
    reduction = chosen_reduction(size_average, reduce, reduction)
    if weight is not None:
        return _weighted((input - target).abs(), input, weight, reduction)
    return nn.l1_loss(input, target, reduction=reduction)


@composed
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """The squared error (input - target)²; differentiable. Arguments and errors are those of `l1_loss`.

    Example:
        >>> F.mse_loss(adjit.tensor([1.0, 2.0]), adjit.tensor([0.0, 0.0]))
        tensor(2.5000)
    """
    _warn_about_broadcasting(input, target)
    reduction = chosen_reduction(size_average, reduce, reduction)
    if weight is not None:
        return _weighted((input - target).square(), input, weight, reduction)
    return nn.mse_loss.on(input, target, reduction=reduction)


@composed
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """The L1 loss, rounded off by a parabola where it is below `beta`; differentiable (Girshick, 2015).

    Args:
        input: any shape, floating.
        target: of the same shape; one that only broadcasts gets a warning.
        beta: the error where the parabola ends.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: a reduction that is not known.
        RuntimeError: `beta` is negative.

    Example:
        >>> F.smooth_l1_loss(adjit.tensor([0.5, 3.0]), adjit.zeros(2), reduction="none")
        tensor([0.1250, 2.5000])
    """
    _warn_about_broadcasting(input, target)
    reduction = chosen_reduction(size_average, reduce, reduction)
    if beta == 0.0:
        return nn.l1_loss(input, target, reduction=reduction)
    return nn.smooth_l1_loss.on(input, target, reduction=reduction, beta=beta)


@composed
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Half the squared error up to `delta`, a straight line beyond it; differentiable.

    With a `weight` of the shape of the input the mean is that of the weighted elements.

    Args:
        input: any shape, floating.
        target: of the same shape; one that only broadcasts gets a warning.
        delta: the error where the parabola ends.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: another reduction, or a weight of another shape.
        RuntimeError: `delta` is not positive.

    Example:
        >>> F.huber_loss(adjit.tensor([0.5, 3.0]), adjit.zeros(2), reduction="none", delta=2.0)
        tensor([0.1250, 4.0000])
    """
    _warn_about_broadcasting(input, target)
    if weight is None:
        return nn.huber_loss.on(input, target, reduction=reduction, delta=delta)
    losses = nn.huber_loss(input, target, reduction="none", delta=delta)
    return reduced(_times_weight(losses, input, weight, reduction), reduction)


@normalizes_first
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log softmax(input) at the target, along dimension 1; differentiable.

    Args:
        input: logits, (C), (N, C) or (N, C, *).
        target: class indices, () or (N) or (N, *), or probabilities in the shape of the input.
        weight: a factor for every class, (C).
        size_average: the old form of `reduction`.
        ignore_index: a target index that counts for nothing.
        reduce: the old form of `reduction`.
        reduction: `"mean"` (over the weights of the targets), `"sum"` or `"none"`.
        label_smoothing: the share of the target that is spread over all classes.

    Raises:
        ValueError: another reduction, or batches of different sizes.
        RuntimeError: the shapes or dtypes do not go together.
        IndexError: a class index outside [0, C), once the values are computed.

    Example:
        >>> F.cross_entropy(adjit.zeros(3, 5), adjit.tensor([1, 0, 4]))
        tensor(1.6094)
    """
    if size_average is None and reduce is None:
        return normalized_by(
            nn.cross_entropy, input, target, weight, ignore_index, reduction, label_smoothing
        )
    reduction = chosen_reduction(size_average, reduce, reduction)
    return nn.cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)


def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None,
    weight: Tensor | None = None, reduction: str = "mean", ignore_index: int | None = None,
    label_smoothing: float = 0.0, options: None = None,
) -> Tensor:  # fmt: skip
    """`cross_entropy` of `linear(input, linear_weight, linear_bias)`. Differentiable.

    Args:
        input: (features) or (N, features).
        linear_weight: (C, features), or (C, d1, ..., features) for a loss of several places.
        target: class indices (N, d1, ...), or probabilities in the shape of the scores, (N, C, d1, ...).
        linear_bias: of the shape of `linear_weight` without its last axis.
        weight: a factor for every class, (C,).
        reduction: "mean", "sum" or "none".
        ignore_index: a target index that counts for nothing; -100 if it is left out.
        label_smoothing: the share of the target that is spread over all classes.
        options: None: the scores are computed as one tensor.

    Raises:
        RuntimeError: if shapes do not fit, or `ignore_index` is given with probabilities.
        NotImplementedError: for `options` of PyTorch's way in chunks.

    Example:
        >>> F.linear_cross_entropy(adjit.ones(3, 2), adjit.zeros(5, 2), adjit.tensor([1, 0, 4]))
        tensor(1.6094)
    """
    if options is not None:
        raise NotImplementedError(
            "linear_cross_entropy: options of chunks are not supported, give options=None"
        )
    if input.dim() not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if linear_weight.dim() < 2:
        raise RuntimeError(
            f"expected linear_weight with dimensionality at least 2, got {linear_weight.dim()}"
        )
    features, scores = input.shape[-1], tuple(linear_weight.shape[:-1])
    if features != linear_weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{features} and {linear_weight.shape[-1]}, respectively"
        )
    if linear_bias is not None and tuple(linear_bias.shape) != scores:
        raise RuntimeError(f"expected linear_bias shape {scores}, got {tuple(linear_bias.shape)}")
    if len(scores) > 1 and input.dim() == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires "
            f"batched input, (N, {features}), got unbatched input with shape {tuple(input.shape)}"
        )
    shape = (*input.shape[:-1], *scores)
    if target.shape == shape and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    made = linear(
        input, linear_weight.reshape(-1, features),
        None if linear_bias is None else linear_bias.reshape(-1),
    )  # fmt: skip
    return cross_entropy(
        made.reshape(shape), target, weight=weight, reduction=reduction,
        ignore_index=-100 if ignore_index is None else ignore_index,
        label_smoothing=label_smoothing,
    )  # fmt: skip


@normalizes_first
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The negative of `input` at the target's class, the input being log-probabilities; differentiable.

    The arguments and errors are those of `cross_entropy` with class indices.

    Example:
        >>> F.nll_loss(adjit.tensor([[-0.5, -1.0], [-2.0, -0.1]]), adjit.tensor([0, 1]))
        tensor(0.3000)
    """
    if size_average is None and reduce is None:
        return normalized_by(nn.nll_loss, input, target, weight, ignore_index, reduction)
    reduction = chosen_reduction(size_average, reduce, reduction)
    return nn.nll_loss(input, target, weight, ignore_index, reduction)


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-(target log(input) + (1 - target) log(1 - input)), logarithms being at least -100.

    Differentiable.

    Args:
        input: probabilities of any shape.
        target: of the same shape, in [0, 1].
        weight: a factor for every element, broadcast.
        size_average: the old form of `reduction`.
        reduce: the old form of `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: another reduction, or a target of another shape.
        RuntimeError: an input outside [0, 1], once the values are computed.

    Example:
        >>> F.binary_cross_entropy(adjit.tensor([0.9, 0.2]), adjit.tensor([1.0, 0.0]))
        tensor(0.1643)
    """
    if target.shape != input.shape:
        raise ValueError(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}) is deprecated. Please ensure they have the same size."
        )
    reduction = chosen_reduction(size_average, reduce, reduction)
    if weight is not None:
        check_no_gradient("binary_cross_entropy", weight=weight)
    return nn.binary_cross_entropy(input, target, weight=weight, reduction=reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """The binary cross entropy of sigmoid(input), without overflow; differentiable.

    Args:
        input: logits of any shape.
        target: of the same shape, in [0, 1].
        weight: a factor for every element, broadcast.
        size_average: the old form of `reduction`.
        reduce: the old form of `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.
        pos_weight: a factor for the positive share, broadcast.

    Raises:
        ValueError: another reduction, or a target of another shape.

    Example:
        >>> F.binary_cross_entropy_with_logits(adjit.tensor([0.0, 3.0]), adjit.tensor([1.0, 1.0]))
        tensor(0.3709)
    """
    if target.shape != input.shape:
        raise ValueError(
            f"Target size ({target.shape}) must be the same as input size ({input.shape})"
        )
    reduction = chosen_reduction(size_average, reduce, reduction)
    if weight is not None or pos_weight is not None:
        check_no_gradient("binary_cross_entropy_with_logits", weight=weight, pos_weight=pos_weight)
    return nn.binary_cross_entropy_with_logits(
        input, target, weight=weight, reduction=reduction, pos_weight=pos_weight
    )


@composed
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """target * (log(target) - input), the input being log-probabilities; differentiable.

    Args:
        input: log-probabilities of any shape.
        target: probabilities of the same shape, or their logarithms with `log_target`.
        size_average: the old form of `reduction`.
        reduce: the old form of `reduction`.
        reduction: `"batchmean"` divides the sum by the size of dimension 0; `"mean"` (which
            warns), `"sum"` or `"none"`.
        log_target: whether the target holds logarithms.

    Raises:
        ValueError: another reduction.

    Example:
        >>> F.kl_div(adjit.tensor([[0.5, 0.5]]).log(), adjit.tensor([[0.9, 0.1]]), reduction="batchmean")
        tensor(0.3681)
    """
    if size_average is None and reduce is None and reduction == "mean":
        errors.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size."
            "'batchmean' divides only by the batch size, and aligns with the KL div math "
            "definition."
            "'mean' will be changed to behave the same as 'batchmean' in the next major release.",
        )
    reduction = chosen_reduction(size_average, reduce, reduction)
    if reduction == "batchmean":
        total = nn.kl_div(input, target, reduction="sum", log_target=log_target)
        return total / input.shape[0] if input.dim() else total
    return nn.kl_div(input, target, reduction=reduction, log_target=log_target)


@composed
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """exp(input) - target * input, or input - target * log(input + eps) without `log_input`.

    `full` adds Stirling's approximation of log(target!) where the target is above 1.

    Differentiable.

    Args:
        input: any shape, floating.
        target: counts of the same shape.
        log_input: whether the input holds logarithms of rates.
        full: add Stirling's approximation of log(target!).
        eps: keeps the logarithm of a rate of 0 finite.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> F.poisson_nll_loss(adjit.tensor([0.0, 1.0]), adjit.tensor([1.0, 2.0]))
        tensor(0.8591)
    """
    reduction = chosen_reduction(size_average, reduce, reduction)
    check_tensor("poisson_nll_loss", "target", 2, target)
    losses = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        losses = losses + stirling.masked_fill(target <= 1, 0)
    return reduced(losses, reduction)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """(log(var) + (input - target)² / var) / 2; differentiable.

    Args:
        input: the means, of any shape.
        target: broadcast with the input.
        var: the variances: a number, or a tensor of the shape of the input, of that shape without
            its last dimension, or with one dimension of size 1. Its values are at least `eps`
            here, which its gradient does not see.
        full: add the constant log(2 π) / 2.
        eps: the least variance.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: negative variances, a `var` of another shape, or another reduction.

    Example:
        >>> F.gaussian_nll_loss(adjit.tensor([0.0, 1.0]), adjit.tensor([1.0, 1.0]), adjit.tensor([1.0, 4.0]))
        tensor(0.5966)
    """
    if not isinstance(var, float):
        check_tensor("gaussian_nll_loss", "var", 3, var)
    variance = creation.full_like(input, var) if isinstance(var, float) else var.clone()
    if (variance < 0).any():
        raise ValueError("var has negative entry/entries")
    if variance.shape == input.shape[:-1] != input.shape:
        variance = variance.unsqueeze(-1)
    elif variance.shape != input.shape and (
        variance.dim() != input.dim()
        or sum(v for x, v in zip(input.shape, variance.shape, strict=True) if x != v) != 1
    ):
        raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(reduction + " is not valid")
    with no_grad():
        variance.clamp_(min=eps)
    losses = 0.5 * (variance.log() + (input - target) ** 2 / variance)
    if full:
        losses = losses + 0.5 * math.log(2 * math.pi)
    return reduced(losses, reduction)


@composed
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """`input` where the target is 1, max(0, margin - input) where it is -1; differentiable.

    Args:
        input: distances of any shape.
        target: 1 or -1, of the same shape.
        margin: the distance up to which pairs with -1 cost.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> F.hinge_embedding_loss(adjit.tensor([0.3, 0.4]), adjit.tensor([1, -1]), reduction="none")
        tensor([0.3000, 0.6000])
    """
    reduction = chosen_reduction(size_average, reduce, reduction)
    apart = (margin - input).clamp(min=0).where(target != 1, 0.0)
    together = input.where(target != -1, 0.0)
    losses = apart + together
    if not input.dtype.is_floating_point:  # as in PyTorch, which cuts off what a margin leaves over
        losses = losses.to(input.dtype)
    return reduced(losses, reduction)


@composed
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """log(1 + exp(-target input)), the target being 1 or -1; differentiable.

    Args:
        input: any shape, floating.
        target: 1 or -1, of the same shape.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> F.soft_margin_loss(adjit.tensor([1.0, -2.0]), adjit.tensor([1.0, 1.0]), reduction="none")
        tensor([0.3133, 2.1269])
    """
    reduction = chosen_reduction(size_average, reduce, reduction)
    check_fits(input.shape, target.shape)
    check_tensor("soft_margin_loss", "input", 1, input)
    check_no_gradient("soft_margin_loss", target=target)
    return reduced(-logsigmoid(target * input), reduction)


@composed
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The logistic loss of every class, averaged over the last dimension; differentiable.

    Args:
        input: logits (N, C) or (C).
        target: 0 or 1, of the same shape.
        weight: a factor for every class, (C).
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> F.multilabel_soft_margin_loss(adjit.tensor([[0.0, 2.0]]), adjit.tensor([[0.0, 1.0]]))
        tensor(0.4100)
    """
    reduction = chosen_reduction(size_average, reduce, reduction)
    losses = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        losses = losses * weight
    return reduced(losses.mean(-1), reduction)


@composed
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, margin - input[target] + input)^p of all other classes, over their number; differentiable.

    Args:
        input: scores (N, C) or (C), floating.
        target: int64 classes (N), or one.
        p: 1 or 2.
        margin: how much higher the score of the class has to be.
        weight: a factor for every class, (C).
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: another `p`, a weight of other dimensions.
        RuntimeError: shapes that do not fit, a class out of range.

    Example:
        >>> F.multi_margin_loss(adjit.tensor([[0.5, 0.2, 2.0]]), adjit.tensor([0]))
        tensor(1.0667)
    """
    reduction = chosen_reduction(size_average, reduce, reduction)
    check_reduction(reduction)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.ndim != 1:
        raise ValueError("weight must be one-dimensional")
    check_no_gradient("multi_margin_loss", weight=weight)
    scores, size = _scores(input)
    if target.ndim > 1 or target.numel() != len(scores):
        raise RuntimeError(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input "
            f"samples (batch size). Expected target size [{len(scores)}], but got "
            f"{list(target.shape)}. Input has shape {list(input.shape)}."
        )
    if weight is not None and weight.numel() != size:
        raise RuntimeError(
            f"inconsistent weight size, expected {size} but got {list(weight.shape)}"
        )
    _check_classes(target)
    if not input.dtype.is_floating_point:
        raise NotImplementedError(
            f"\"multi_margin_loss_cpu_kernel\" not implemented for '{input.dtype.legacy}'"
        )
    classes = target.reshape(-1, 1)
    losses = _positive(margin - scores.gather(1, classes) + scores)
    losses = losses if p == 1 else losses * losses
    if weight is not None:
        losses = losses * weight[classes]
    total = losses.scatter(1, classes, 0.0).sum(1) / size
    return reduced(total if target.ndim else total.squeeze(0), reduction)


@composed
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, 1 - (input[i] - input[j])) of all target classes i and other classes j, over the number of
    classes; differentiable. It compares all pairs at once, which takes N C² elements.

    Args:
        input: scores (N, C) or (C), floating.
        target: int64 classes, of the same shape; what follows the first -1 of a row does not count.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        RuntimeError: shapes that do not fit, a class out of range.

    Example:
        >>> F.multilabel_margin_loss(adjit.tensor([[0.1, 0.2, 0.4, 0.8]]), adjit.tensor([[3, 0, -1, 1]]))
        tensor(0.8500)
    """
    reduction = chosen_reduction(size_average, reduce, reduction)
    check_reduction(reduction)
    scores, size = _scores(input)
    if target.shape != input.shape:
        raise RuntimeError(
            f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}"
        )
    _check_classes(target)
    listed = target.reshape(-1, size)
    counts = (listed == -1).cumsum(1) == 0
    classes = listed.where(counts, 0)
    is_target = listed.new_zeros(listed.shape).scatter_reduce(1, classes, counts.long(), "amax") > 0
    apart = _positive(1 - scores.gather(1, classes).unsqueeze(2) + scores.unsqueeze(1))
    compared = counts.unsqueeze(2) & is_target.logical_not().unsqueeze(1)
    total = apart.where(compared, 0.0).sum((1, 2)) / size
    return reduced(total if input.ndim > 1 else total.squeeze(0), reduction)


def _positive(margins: Tensor) -> Tensor:
    """What is above 0; NaN is not, and 0 itself has no gradient."""
    return margins.where(margins > 0, 0.0)


def _scores(input: Tensor) -> tuple[Tensor, int]:
    """Scores as (N, C), and C."""
    if input.ndim > 2 or (input.ndim and input.shape[-1] == 0):
        raise RuntimeError(
            "Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
            f"{list(input.shape)}"
        )
    size = input.shape[-1] if input.ndim else 1
    return input.reshape(-1, size), size


def _check_classes(target: Tensor) -> None:
    if target.dtype is not int64:
        raise RuntimeError(f"expected scalar type Long but found {target.dtype.legacy}")


@composed
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, -target * (input1 - input2) + margin), the target being 1 or -1; differentiable.

    Args:
        input1, input2: of one shape.
        target: 1 where `input1` should be larger, -1 where `input2` should.
        margin: the least difference that costs nothing.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        RuntimeError: the tensors have different numbers of dimensions.

    Example:
        >>> F.margin_ranking_loss(adjit.tensor([1.0, 2.0]), adjit.tensor([3.0, 0.0]), adjit.tensor([1.0, 1.0]))
        tensor(1.)
    """
    reduction = chosen_reduction(size_average, reduce, reduction)
    if input1.dim() != input2.dim() or input1.dim() != target.dim():
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.shape}, input2: {input2.shape}, target: {target.shape} "
        )
    return reduced((-target * (input1 - input2) + float(margin)).clamp(min=0), reduction)


@composed
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1; differentiable.

    Args:
        input1: (N, D) or (D).
        input2: the same.
        target: (N) or ().
        margin: between -1 and 1.
        size_average: the old form of `reduction`.
        reduce: the old form of `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        RuntimeError: the shapes do not go together.

    Example:
        >>> x, y = adjit.tensor([[1.0, 0.0], [1.0, 0.0]]), adjit.tensor([[0.0, 1.0], [1.0, 1.0]])
        >>> F.cosine_embedding_loss(x, y, adjit.tensor([1, -1]), reduction="none")
        tensor([1.0000, 0.7071])
    """
    reduction = chosen_reduction(size_average, reduce, reduction)
    if target.dim() > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if input1.dim() != target.dim() + 1 or input2.dim() != target.dim() + 1:
        raise RuntimeError(
            f"{target.dim()}D target tensor expects {target.dim() + 1}D input tensors, but found "
            f"inputs with sizes {list(input1.shape)} and {list(input2.shape)}."
        )
    squares1 = (input1 * input1).sum(-1) + 1e-12
    squares2 = (input2 * input2).sum(-1) + 1e-12
    cosine = (input1 * input2).sum(-1) / (squares1 * squares2).sqrt()
    together = (1 - cosine).where(target == 1, 0.0)
    apart = (cosine - margin).clamp(min=0).where(target == -1, 0.0)
    return reduced(together + apart, reduction)


@composed
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) with the p-norm as distance d.

    Differentiable.

    After Balntas et al. (2016).

    Args:
        anchor: (N, D) or (D).
        positive: the same.
        negative: the same.
        margin: positive.
        p: the order of the norm.
        eps: added to the differences.
        swap: measure the negative from the positive where that is nearer.
        size_average: the old form of `reduction`.
        reduce: the old form of `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: `margin` is not positive, or another reduction.
        RuntimeError: the tensors have different numbers of dimensions.

    Example:
        >>> F.triplet_margin_loss(adjit.zeros(1, 2), adjit.ones(1, 2), adjit.tensor([[2.0, 0.0]]))
        tensor(0.4142)
    """
    return triplet_margin_with_distance_loss(
        anchor,
        positive,
        negative,
        distance_function=functools.partial(pairwise_distance, p=p, eps=eps),
        margin=margin,
        swap=swap,
        reduction=chosen_reduction(size_average, reduce, reduction),
    )


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` with a distance of the user's own; differentiable.

    Args:
        anchor, positive, negative: (N, *), as the distance takes them.
        distance_function: takes two of them and returns distances (N); the Euclidean one unless given.
        margin: the least difference of distances that costs nothing.
        swap: take the distance of positive and negative where that is less than that of the anchor.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> manhattan = lambda x, y: (x - y).abs().sum(-1)
        >>> zeros, ones = adjit.zeros(1, 2), adjit.ones(1, 2)
        >>> F.triplet_margin_with_distance_loss(zeros, ones, 2 * ones, distance_function=manhattan)
        tensor(0.)
    """
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.dim()}D, positive {positive.dim()}D, and "
            f"negative {negative.dim()}D inputs"
        )
    distance = pairwise_distance if distance_function is None else distance_function
    near = distance(anchor, positive)
    far = distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduced((margin + near - far).clamp(min=0), reduction)


# ---- shared by the above -------------------------------------------------------------------------


def _softmax_dim(name: str, input: Tensor, dim: int | None) -> int:
    return _get_softmax_dim(name, input.dim()) if dim is None else dim


def _get_softmax_dim(name: str, ndim: int, stacklevel: int = 3) -> int:
    """The axis that is meant where none is said."""
    errors.warn(
        f"Implicit dimension choice for {name} has been deprecated. "
        "Change the call to include dim=X as an argument.",
    )
    return 0 if ndim in (0, 1, 3) else 1


def _warn_about_broadcasting(input: Tensor, target: Tensor) -> None:
    if target.shape != input.shape:
        errors.warn(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}). This will likely lead to incorrect results due to broadcasting. "
            "Please ensure they have the same size.",
        )


def _weighted(losses: Tensor, input: Tensor, weight: Tensor, reduction: str) -> Tensor:
    weighted = _times_weight(losses, input, weight, reduction)
    if reduction == "mean":
        return weighted.sum() / weight.sum()
    return reduced(weighted, reduction)


def _times_weight(losses: Tensor, input: Tensor, weight: Tensor, reduction: str) -> Tensor:
    if weight.shape != input.shape:
        raise ValueError("Weights and input must have the same size.")
    if reduction not in ("none", "sum", "mean"):
        raise ValueError(
            f"Invalid reduction mode: {reduction}. Expected one of 'none', 'mean', 'sum'."
        )
    return losses * weight


for _name in __all__:
    globals()[_name] = explaining(globals()[_name], _name)


def __getattr__(name: str) -> NoReturn:
    """Names that PyTorch has and adjit has not."""
    raise absent("nn.functional", name)
