"""Batch normalisation over the batches of all processes."""

from __future__ import annotations

from typing import Any

from ..autograd.function import Function
from ..autograd.modes import no_grad
from ..distributed import collectives
from ..distributed.group import ProcessGroup, default_group, is_initialized
from ..ops import creation
from ..tensor import Tensor
from .module import Module
from .norm import _BatchNorm


class _SumOverProcesses(Function):
    """The sum of a tensor over processes. Each process's loss depends on it, so the gradients add up too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        total = x.clone()
        collectives.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _SumOverProcesses.apply(grad, ctx.group), None


class SyncBatchNorm(_BatchNorm):
    """Normalises each channel by the mean and the variance of the batches of all processes together.

    In evaluation, and in one process, it is `BatchNorm`. Derivatives of any order pass the processes. Unlike
    PyTorch's it works on the CPU as well.

    Args:
        num_features: the number of channels.
        eps, momentum, affine, track_running_stats, device, dtype, bias: as of `BatchNorm1d`.
        process_group: whose processes take part; all if it is not given.

    Raises:
        ValueError: for inputs of one axis, or without channels; if all processes together have one value a
            channel.

    Shape:
        (N, C, ...) to the same; the processes may have different N.

    Example:
        >>> nn.SyncBatchNorm(2)(adjit.tensor([[1., 2.], [3., 4.]]))
        tensor([[-1.0000, -1.0000],
                [ 1.0000,  1.0000]], grad_fn=<NativeBatchNormBackward0>)
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: ProcessGroup | None = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")
        if not input.shape[1]:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero")

    def _normalized(self, input: Tensor, of_batch: bool, momentum: float) -> Tensor:
        if not (self.training and is_initialized()):
            return super()._normalized(input, of_batch, momentum)
        group = default_group() if self.process_group is None else self.process_group
        if group.size() == 1:
            return super()._normalized(input, of_batch, momentum)
        axes = [0, *range(2, input.dim())]
        shape = [1, -1] + [1] * (input.dim() - 2)
        own = creation.tensor(
            [float(input.numel() // input.shape[1])], dtype=input.dtype, device=input.device
        )
        collectives.all_reduce(own, group=group)
        count = float(own)
        if count <= 1:
            raise ValueError(
                f"Expected more than 1 value per channel when training, got input size {int(count)}"
            )
        mean = _SumOverProcesses.apply(input.sum(axes), group) / count
        centred = input - mean.view(shape)
        variance = _SumOverProcesses.apply((centred * centred).sum(axes), group) / count
        if self.track_running_stats and self.running_mean is not None:
            assert self.running_var is not None
            with no_grad():
                unbiased = variance.detach() * (count / (count - 1))
                self.running_mean.lerp_(mean.detach().to(self.running_mean.dtype), momentum)
                self.running_var.lerp_(unbiased.to(self.running_var.dtype), momentum)
        out = centred * (variance + self.eps).rsqrt().view(shape)
        if self.weight is not None:
            out = out * self.weight.view(shape)
        return out if self.bias is None else out + self.bias.view(shape)

    @classmethod
    def convert_sync_batchnorm(
        cls, module: Module, process_group: ProcessGroup | None = None
    ) -> Module:
        """Put a `SyncBatchNorm` with the same parameters and statistics in the place of each batch norm.

        Returns:
            The module; a new one if it is a batch norm itself.

        Example:
            >>> nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(2), nn.ReLU()))
            Sequential(
              (0): SyncBatchNorm(2, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
              (1): ReLU()
            )
        """
        made: Module = module
        if isinstance(module, _BatchNorm):
            made = cls(
                module.num_features, module.eps, module.momentum, module.affine,
                module.track_running_stats, process_group, bias=module.bias is not None,
            )  # fmt: skip
            made._parameters.update(module._parameters)
            made._buffers.update(module._buffers)
            made.training = module.training
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made
