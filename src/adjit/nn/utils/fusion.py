"""Batch norms that have become part of the layer before them."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from ...ops.creation import ones_like, zeros_like
from ...tensor import Tensor
from ..module import Module
from ..norm import _BatchNorm
from ..parameter import Parameter

_M = TypeVar("_M", bound=Module)


def fuse_conv_bn_eval(conv: _M, bn: _BatchNorm, transpose: bool = False) -> _M:
    """Make a convolution that does what a convolution and a batch norm do, both in evaluation.

    Args:
        conv: the convolution, which stays as it is.
        bn: the batch norm behind it, with running statistics.
        transpose: whether the convolution is a transposed one.

    Raises:
        AssertionError: a module is in training mode, or there are no statistics.

    Example:
        >>> conv, bn = nn.Conv1d(2, 3, 1).eval(), nn.BatchNorm1d(3).eval()
        >>> fused = nn.utils.fuse_conv_bn_eval(conv, bn)
        >>> x = adjit.rand(1, 2, 4)
        >>> adjit.allclose(fused(x), bn(conv(x)), atol=1e-6)
        True
    """
    mean, var = _statistics(conv, bn)
    fused: Any = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, mean, var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Compute weight and bias of a convolution that has taken in a batch norm.

    Args:
        conv_w, conv_b: of the convolution.
        bn_rm, bn_rv, bn_eps, bn_w, bn_b: mean, variance, epsilon, weight and bias of the batch norm.
        transpose: whether the convolution is a transposed one.

    Example:
        >>> one = adjit.ones(1)
        >>> nn.utils.fuse_conv_bn_weights(adjit.ones(1, 1, 1), None, one, one, 0.0, 3 * one, None)[1]
        Parameter containing:
        tensor([-3.], requires_grad=True)
    """
    bias = zeros_like(bn_rm) if conv_b is None else conv_b
    scale = (ones_like(bn_rm) if bn_w is None else bn_w) * (bn_rv + bn_eps).rsqrt()
    shift = zeros_like(bn_rm) if bn_b is None else bn_b
    shape = [1] * conv_w.ndim
    shape[1 if transpose else 0] = -1
    weight = (conv_w * scale.reshape(shape)).to(conv_w.dtype)
    needs_grad = True if conv_b is None else conv_b.requires_grad
    moved = ((bias - bn_rm) * scale + shift).to(bias.dtype if conv_b is not None else conv_w.dtype)
    return Parameter(weight, conv_w.requires_grad), Parameter(moved, needs_grad)


def fuse_linear_bn_eval(linear: _M, bn: _BatchNorm) -> _M:
    """Make a linear layer that does what a linear layer and a batch norm do, both in evaluation.

    Args:
        linear: the layer, which stays as it is.
        bn: the batch norm behind it, with running statistics, of as many features or one.

    Raises:
        AssertionError: a module is in training mode, there are no statistics, or features differ.

    Example:
        >>> linear, bn = nn.Linear(2, 3).eval(), nn.BatchNorm1d(3).eval()
        >>> x = adjit.rand(4, 2)
        >>> adjit.allclose(nn.utils.fuse_linear_bn_eval(linear, bn)(x), bn(linear(x)), atol=1e-6)
        True
    """
    features: Any = linear.out_features
    if not (linear.training or bn.training) and bn.num_features not in (1, features):
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
            f"linear.out_features={features} and bn.num_features={bn.num_features}"
        )
    mean, var = _statistics(linear, bn)
    fused: Any = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, mean, var, bn.eps, bn.weight, bn.bias
    )
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """Compute weight and bias of a linear layer that has taken in a batch norm.

    Args:
        linear_w, linear_b: of the linear layer.
        bn_rm, bn_rv, bn_eps, bn_w, bn_b: mean, variance, epsilon, weight and bias of the batch norm.

    Example:
        >>> one = adjit.ones(1)
        >>> nn.utils.fuse_linear_bn_weights(adjit.ones(1, 1), None, one, one, 0.0, 3 * one, one)[1]
        Parameter containing:
        tensor([-2.], requires_grad=True)
    """
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def _statistics(layer: Module, bn: _BatchNorm) -> tuple[Tensor, Tensor]:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")
    return bn.running_mean, bn.running_var
