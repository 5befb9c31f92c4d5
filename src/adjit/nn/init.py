"""Initialisers: they fill a tensor in place, record nothing, and return it.

All of them accept parameters, since they run under `no_grad`. The fans of a weight of shape
`(out, in, *kernel)` are `in * prod(kernel)` and `out * prod(kernel)`.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from ..autograd.modes import no_grad
from ..ops import creation, random
from ..tensor import Tensor

P = ParamSpec("P")


def calculate_gain(nonlinearity: str, param: int | float | None = None) -> float:
    """The factor by which a nonlinearity asks for larger weights.

    Args:
        nonlinearity: the name of the function in `nn.functional`; 1 for linear layers,
            convolutions and sigmoid, 5/3 for tanh, sqrt(2) for relu, sqrt(2 / (1 + slope²)) for
            leaky_relu, 3/4 for selu.
        param: the slope of leaky_relu, 0.01 by default.

    Raises:
        ValueError: another name, or a slope that is no number.

    Example:
        >>> nn.init.calculate_gain("tanh")
        1.6666666666666667
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"negative_slope {slope} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


_GAINS = {
    **dict.fromkeys(["linear", "sigmoid", "conv1d", "conv2d", "conv3d"], 1),
    **dict.fromkeys(["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"], 1),
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 3.0 / 4,
}


@no_grad()
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with draws from the uniform distribution on [a, b).

    Args:
        tensor: any shape.
        a, b: the ends.

    Example:
        >>> weight = nn.init.uniform_(adjit.empty(3, 5), -1.0, 1.0)
    """
    return tensor.uniform_(a, b, generator=generator)


@no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with draws from the normal distribution.

    Args:
        tensor: any shape.
        mean, std: of the distribution.

    Example:
        >>> weight = nn.init.normal_(adjit.empty(3, 5), std=0.02)
    """
    return tensor.normal_(mean, std, generator=generator)


@no_grad()
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Fill with draws from the normal distribution, those outside [a, b] drawn again.

    Warns where the mean lies more than two standard deviations outside [a, b].

    Args:
        tensor: any shape.
        mean, std: of the distribution.
        a, b: the ends that it is cut at.

    Example:
        >>> weight = nn.init.trunc_normal_(adjit.empty(3, 5), std=0.02)
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect.",
            stacklevel=_CALLER,
        )
    if tensor.numel() == 0:
        return tensor
    inside = 0.5 * (math.erf((b - mean) / std / 2**0.5) - math.erf((a - mean) / std / 2**0.5))
    propose = _propose_normal if inside > 0.3 else _propose_uniform
    values, rejected = propose(tensor, mean, std, a, b, generator)
    while rejected.any():
        again, still_rejected = propose(tensor, mean, std, a, b, generator)
        values = again.where(rejected, values)
        rejected = rejected & still_rejected
    return tensor.copy_(values)


def _propose_normal(
    like: Tensor, mean: float, std: float, a: float, b: float, generator: Any
) -> tuple[Tensor, Tensor]:
    draws = creation.empty_like(like).normal_(mean, std, generator=generator)
    return draws, (draws < a) | (draws > b)


def _propose_uniform(
    like: Tensor, mean: float, std: float, a: float, b: float, generator: Any
) -> tuple[Tensor, Tensor]:
    """Uniform draws on [a, b], accepted by their density relative to the highest one there."""
    peak = max(a, min(mean, b))
    draws = creation.empty_like(like).uniform_(a, b, generator=generator)
    accept = creation.empty_like(like).uniform_(generator=generator)
    density = (((peak - mean) / std) ** 2 - ((draws - mean) / std) ** 2).mul(0.5).exp()
    return draws, accept > density


@no_grad()
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one value.

    Args:
        tensor: any shape.
        val: a number.

    Example:
        >>> nn.init.constant_(adjit.empty(2), 0.3)
        tensor([0.3000, 0.3000])
    """
    return tensor.fill_(val)


@no_grad()
def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones.

    Example:
        >>> nn.init.ones_(adjit.empty(2))
        tensor([1., 1.])
    """
    return tensor.fill_(1.0)


@no_grad()
def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros.

    Example:
        >>> nn.init.zeros_(adjit.empty(2))
        tensor([0., 0.])
    """
    return tensor.zero_()


@no_grad()
def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with the identity, so that a linear layer passes its inputs on.

    Raises:
        ValueError: `tensor` has not two dimensions.

    Example:
        >>> nn.init.eye_(adjit.empty(2, 2))
        tensor([[1., 0.],
                [0., 1.]])
    """
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    return tensor.copy_(creation.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


@no_grad()
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a convolution's weight so that it passes its input channels on, in every group.

    Raises:
        ValueError: `tensor` has not three to five dimensions, or `groups` does not divide it.

    Example:
        >>> nn.init.dirac_(adjit.empty(1, 1, 3))
        tensor([[[0., 1., 0.]]])
    """
    if tensor.dim() not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    out_channels, in_channels, *kernel = tensor.shape
    if out_channels % groups != 0:
        raise ValueError("dim 0 must be divisible by groups")
    per_group = out_channels // groups
    centre = tuple(size // 2 for size in kernel)
    tensor.zero_()
    for group in range(groups):
        for channel in range(min(per_group, in_channels)):
            tensor[(group * per_group + channel, channel, *centre)] = 1
    return tensor


@no_grad()
def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill from U(-b, b) with b = gain * sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010).

    Raises:
        ValueError: `tensor` has fewer than two dimensions.

    Example:
        >>> weight = nn.init.xavier_uniform_(adjit.empty(3, 5), gain=nn.init.calculate_gain("relu"))
    """
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
    return tensor.uniform_(-bound, bound, generator=generator)


@no_grad()
def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill from N(0, s²) with s = gain * sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio, 2010).

    Raises:
        ValueError: `tensor` has fewer than two dimensions.

    Example:
        >>> nn.init.xavier_normal_(adjit.empty(8, 4)).shape
        adjit.Size([8, 4])
    """
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    std = gain * math.sqrt(2.0 / (fan_in + fan_out))
    return tensor.normal_(0.0, std, generator=generator)


@no_grad()
def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Fill from U(-b, b) with b = gain * sqrt(3 / fan) (He et al., 2015).

    Args:
        tensor: a weight of at least two dimensions; without elements it is left alone, with a
            warning.
        a: the slope of the leaky_relu that follows.
        mode: `"fan_in"` keeps the variance of the forward pass, `"fan_out"` of the backward.
        nonlinearity: what `calculate_gain` is asked for.
        generator: the source of randomness.

    Raises:
        ValueError: another mode or nonlinearity, or fewer than two dimensions.

    Example:
        >>> weight = nn.init.kaiming_uniform_(adjit.empty(3, 5), nonlinearity="relu")
    """
    if _is_empty(tensor):
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor.uniform_(-bound, bound, generator=generator)


@no_grad()
def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Fill from N(0, s²) with s = gain / sqrt(fan) (He et al., 2015).

    The arguments and errors are those of `kaiming_uniform_`.

    Example:
        >>> nn.init.kaiming_normal_(adjit.empty(8, 4), nonlinearity="relu").shape
        adjit.Size([8, 4])
    """
    if _is_empty(tensor):
        return tensor
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor.normal_(0, std, generator=generator)


@no_grad()
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Fill with a random matrix of orthonormal rows or columns, times `gain` (Saxe et al., 2013).

    Dimensions after the first are taken as one.

    Raises:
        ValueError: `tensor` has fewer than two dimensions.

    Example:
        >>> rows = nn.init.orthogonal_(adjit.empty(2, 4))
        >>> adjit.allclose(rows @ rows.T, adjit.eye(2), atol=1e-6)
        True
    """
    if tensor.dim() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.shape[0]
    draws = creation.empty_like(tensor).normal_(0, 1, generator=generator)
    matrix = draws.reshape(rows, -1).cpu().numpy()
    is_wide = matrix.shape[0] < matrix.shape[1]
    q, r = np.linalg.qr(matrix.T if is_wide else matrix)
    # With the signs of R's diagonal the distribution is uniform (Mezzadri, math-ph/0609050).
    q *= np.sign(np.diagonal(r)) * gain
    orthogonal = np.ascontiguousarray(q.T if is_wide else q).reshape(tensor.shape)
    return tensor.copy_(creation.from_numpy(orthogonal))


@no_grad()
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Fill a matrix from N(0, std²), but a share `sparsity` of each column by 0 (Martens, 2010).

    Raises:
        ValueError: `tensor` has not two dimensions.

    Example:
        >>> (nn.init.sparse_(adjit.empty(4, 2), sparsity=0.5) == 0).sum(0)
        tensor([2, 2])
    """
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    tensor.normal_(0, std, generator=generator)
    for column in range(columns):
        order = random.randperm(rows, generator=generator, device=tensor.device)
        tensor[order[:zeros], column] = 0
    return tensor


def _no_grad_uniform_(tensor: Tensor, a: float, b: float, generator: Any = None) -> Tensor:
    """`uniform_`, as older programs call it; so the others."""
    return uniform_(tensor, a, b, generator)


def _no_grad_normal_(tensor: Tensor, mean: float, std: float, generator: Any = None) -> Tensor:
    return normal_(tensor, mean, std, generator)


def _no_grad_trunc_normal_(
    tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any = None
) -> Tensor:
    return trunc_normal_(tensor, mean, std, a, b, generator)


def _no_grad_fill_(tensor: Tensor, val: float) -> Tensor:
    return constant_(tensor, val)


def _no_grad_zero_(tensor: Tensor) -> Tensor:
    return zeros_(tensor)


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    if tensor.dim() < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        )
    out_features, in_features, *kernel = tensor.shape
    return in_features * math.prod(kernel), out_features * math.prod(kernel)


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    valid_modes = ["fan_in", "fan_out"]
    mode = mode.lower()
    if mode not in valid_modes:
        raise ValueError(f"Mode {mode} not supported, please use one of {valid_modes}")
    return _calculate_fan_in_and_fan_out(tensor)[valid_modes.index(mode)]


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def _is_empty(tensor: Tensor) -> bool:
    if tensor.numel() == 0:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=_CALLER + 1)
        return True
    return False


# The frames between a warning and the user's line: the initialiser and no_grad's wrapper.
_CALLER = 3


def _deprecated(initialiser: Callable[P, Tensor], old_name: str) -> Callable[P, Tensor]:
    @functools.wraps(initialiser)
    def renamed(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        warnings.warn(
            f"`nn.init.{old_name}` is now deprecated in favor of `nn.init.{old_name}_`.",
            FutureWarning,
            stacklevel=2,
        )
        return initialiser(*args, **kwargs)

    renamed.__name__ = renamed.__qualname__ = old_name
    shown = (
        (initialiser.__doc__ or "")
        .partition("Example:")[2]
        .replace(f"{old_name}_(", f"{old_name}(")
    )
    renamed.__doc__ = f"""Call `{old_name}_`, which is the newer name, and warn.

    Example:{shown}"""
    return renamed


uniform = _deprecated(uniform_, "uniform")
normal = _deprecated(normal_, "normal")
constant = _deprecated(constant_, "constant")
eye = _deprecated(eye_, "eye")
dirac = _deprecated(dirac_, "dirac")
xavier_uniform = _deprecated(xavier_uniform_, "xavier_uniform")
xavier_normal = _deprecated(xavier_normal_, "xavier_normal")
kaiming_uniform = _deprecated(kaiming_uniform_, "kaiming_uniform")
kaiming_normal = _deprecated(kaiming_normal_, "kaiming_normal")
orthogonal = _deprecated(orthogonal_, "orthogonal")
sparse = _deprecated(sparse_, "sparse")
