"""Layers that normalise channels: over batches, instances, groups and neighbours."""

from __future__ import annotations

import warnings
from typing import Any

from .. import dtypes
from ..dtypes import dtype as DType
from ..ops import creation
from ..tensor import Tensor
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter


class _Affine(Module):
    """What normalising layers share: a weight (ones at first) and a bias (zeros), or None."""

    weight: Parameter | None
    bias: Parameter | None

    def _add_parameters(
        self, channels: int, affine: bool, bias: bool, device: Any, dtype: DType | None
    ) -> None:
        self.affine = affine
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            made = creation.empty(channels, device=device, dtype=dtype) if wanted else None
            self.register_parameter(name, None if made is None else Parameter(made))

    def reset_parameters(self) -> None:
        """Set the weight to ones and the bias to zeros."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


class _NormBase(_Affine):
    """What batch and instance normalisation share: running statistics."""

    _version = 2
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    _dims: tuple[int, ...]  # the dimensions that inputs may have

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self._add_parameters(num_features, affine, bias, device, dtype)
        self.track_running_stats = track_running_stats
        for name in ("running_mean", "running_var"):
            made = creation.empty(num_features, device=device, dtype=dtype)
            self.register_buffer(name, made if track_running_stats else None)
        count = creation.tensor(0, dtype=dtypes.int64, device=device)
        self.register_buffer("num_batches_tracked", count if track_running_stats else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget the batches seen so far: mean 0, variance 1."""
        if self.running_mean is not None:
            self.running_mean.zero_()
        if self.running_var is not None:
            self.running_var.fill_(1)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Set the weight to ones, the bias to zeros, and forget the batches seen so far."""
        self.reset_running_stats()
        super().reset_parameters()

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in self._dims:
            wanted = " or ".join(f"{n}D" for n in self._dims)
            raise ValueError(f"expected {wanted} input (got {input.dim()}D input)")

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        *rest: Any,
    ) -> None:
        version = local_metadata.get("version")
        if (version is None or version < 2) and self.num_batches_tracked is not None:
            # States from before the batches were counted.
            state_dict.setdefault(prefix + "num_batches_tracked", self.num_batches_tracked)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class _BatchNorm(_NormBase):
    """Batch normalisation; subclasses say which inputs they take."""

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        counted = self.training and self.track_running_stats
        count = self.num_batches_tracked if counted else None
        if count is not None:
            count.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(count)
        of_batch = self.training or (self.running_mean is None and self.running_var is None)
        return self._normalized(input, of_batch, momentum)

    def _normalized(self, input: Tensor, of_batch: bool, momentum: float) -> Tensor:
        """The input normalised, by its own statistics or by the running ones."""
        kept = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            self.running_mean if kept else None,
            self.running_var if kept else None,
            self.weight,
            self.bias,
            of_batch,
            momentum,
            self.eps,
        )


class BatchNorm1d(_BatchNorm):
    """Normalises each channel of (N, C) or (N, C, L) over the batch, then scales and shifts it.

    After Ioffe and Szegedy (2015).

    Args:
        num_features: C.
        eps: added to the variance.
        momentum: how far the running statistics move with each batch; None for their plain mean.
        affine: whether there are a weight (ones at first) and a bias (zeros).
        track_running_stats: whether mean and variance are kept for `eval`; without them a batch
            is always normalised by its own.
        device: where parameters and buffers are.
        dtype: their floating dtype.
        bias: whether there is a bias.

    Raises:
        ValueError: for an input of other dimensions, or one value in a channel while training.

    Example:
        >>> nn.BatchNorm1d(1)(adjit.tensor([[1.0], [3.0]]))
        tensor([[-1.0000],
                [ 1.0000]], grad_fn=<NativeBatchNormBackward0>)
    """

    _dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalises each channel of (N, C, H, W); takes what `BatchNorm1d` takes.

    Example:
        >>> nn.BatchNorm2d(3)(adjit.zeros(2, 3, 4, 4)).shape
        adjit.Size([2, 3, 4, 4])
    """

    _dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalises each channel of (N, C, D, H, W); takes what `BatchNorm1d` takes.

    Example:
        >>> nn.BatchNorm3d(3)(adjit.zeros(2, 3, 4, 4, 4)).shape
        adjit.Size([2, 3, 4, 4, 4])
    """

    _dims = (5,)


class _InstanceNorm(_NormBase):
    """Instance normalisation; the first of a subclass's `_dims` is that of one image."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        axis = input.dim() - self._dims[0]
        if input.shape[axis] != self.num_features:
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={axis} to match num_features "
                    f"({self.num_features}), but got: {input.shape[axis]}."
                )
            warnings.warn(
                f"input's size at dim={axis} does not match num_features. You can silence this "
                "warning by not passing in num_features, which is not used because affine=False",
                stacklevel=2,
            )
        normalized = F.instance_norm(
            input if axis else input.unsqueeze(0),
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return normalized if axis else normalized.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    """Normalises each channel of each image, (N, C, L) or (C, L) (Ulyanov et al., 2016).

    Takes what `BatchNorm1d` takes, but has no parameters and keeps no statistics unless
    `affine` and `track_running_stats` are given.

    Example:
        >>> nn.InstanceNorm1d(2)(adjit.tensor([[1.0, 3.0], [2.0, 6.0]]))
        tensor([[-1.0000,  1.0000],
                [-1.0000,  1.0000]])
    """

    _dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Normalises each channel of each image, (N, C, H, W) or (C, H, W), as InstanceNorm1d does.

    Takes what `InstanceNorm1d` takes.

    Example:
        >>> nn.InstanceNorm2d(3)(adjit.zeros(2, 3, 4, 4)).shape
        adjit.Size([2, 3, 4, 4])
    """

    _dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Normalises each channel of each image, (N, C, D, H, W) or (C, D, H, W).

    Takes what `InstanceNorm1d` takes.

    Example:
        >>> nn.InstanceNorm3d(3)(adjit.zeros(2, 3, 4, 4, 4)).shape
        adjit.Size([2, 3, 4, 4, 4])
    """

    _dims = (4, 5)


class GroupNorm(_Affine):
    """Normalises groups of channels of each image, (N, C, *) (Wu and He, 2018).

    Args:
        num_groups: how many groups the channels are divided into.
        num_channels: C.
        eps: added to the variance.
        affine: whether there are a weight (ones at first) and a bias (zeros) for each channel.
        device: where they are.
        dtype: their floating dtype.
        bias: whether there is a bias.

    Raises:
        ValueError: if the groups do not divide the channels.

    Example:
        >>> nn.GroupNorm(3, 6)(adjit.randn(20, 6, 10, 10)).shape
        adjit.Size([20, 6, 10, 10])
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups != 0:
            raise ValueError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self._add_parameters(num_channels, affine, bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """Divides each element of (N, C, *) by what its neighbouring channels amount to.

    After Krizhevsky et al. (2012).

    Args:
        size: how many channels are neighbours.
        alpha, beta, k: x / (k + alpha * the mean of the squares) ** beta.

    Example:
        >>> nn.LocalResponseNorm(2)(adjit.randn(1, 4, 3, 3)).shape
        adjit.Size([1, 4, 3, 3])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
