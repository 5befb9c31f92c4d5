"""Softmax, its logarithm, and logarithms of sums of exponentials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import dtypes
from ..devices import CPU
from ..dtypes import dtype as DType
from ..graph import record
from ..graph.composed import composed
from ..graph.export import export
from ..graph.launch import launch
from ..graph.normalized import normalizes
from ..graph.operation import Operation, operation
from ..kernels.ops import softmax as kernels
from ..shapes import Shape, numel, numpy_names, wrap_dim, wrap_dims
from ..tensor import Tensor
from .reduce import GRAIN, reduced_shape, rows_of, spread_back


class SoftmaxKernels(NamedTuple):
    """The kernels along the last axis, and along one before it."""

    rows: Any
    columns: Any


SOFTMAX = SoftmaxKernels(kernels.softmax_rows, kernels.softmax_columns)
LOG_SOFTMAX = SoftmaxKernels(kernels.log_softmax_rows, kernels.log_softmax_columns)
SOFTMAX_BACKWARD = SoftmaxKernels(kernels.softmax_backward_rows, kernels.softmax_backward_columns)
LOG_SOFTMAX_BACKWARD = SoftmaxKernels(
    kernels.log_softmax_backward_rows, kernels.log_softmax_backward_columns
)


def along(how: SoftmaxKernels, tensors: list[Tensor], axis: int) -> Tensor:
    """Run a kernel along an axis of tensors of one shape, which is also that of the result."""
    tensors = [t.contiguous() for t in tensors]
    x = tensors[0]
    sizes = x.shape if x.ndim else (1,)
    outer, length, inner = numel(sizes[:axis]), sizes[axis], numel(sizes[axis + 1 :])
    strips = -(-inner // kernels.STRIP)
    width = min(inner, kernels.STRIP)
    out: Tensor = launch(
        how.rows if inner == 1 else how.columns, tensors, [(x.shape, x.dtype)],
        bind={"T": x.dtype}, words=(length,) if inner == 1 else (length, inner, strips),
        n=outer * strips if length else 0, grain=max(1, GRAIN // max(4 * length * width, 1)),
    )  # fmt: skip
    return out


@operation("SoftmaxBackward0")
def softmax_axis(x: Tensor, axis: int) -> Tensor:
    """Exponentials over their sum along an axis."""
    return along(SOFTMAX, [x], axis)


@softmax_axis.jvp
def _(t_x, out, axis):  # type: ignore[no-untyped-def]
    return softmax_backward(t_x, out, axis)


@softmax_axis.vjp
def _(g, out, axis):  # type: ignore[no-untyped-def]
    return softmax_backward(g, out, axis)


softmax_axis.batched_over("axis")


@operation("SoftmaxBackwardDataBackward0")
def softmax_backward(upper: Tensor, softmaxed: Tensor, axis: int) -> Tensor:
    """`softmaxed * (upper - sum(upper * softmaxed))` along an axis."""
    return along(SOFTMAX_BACKWARD, [upper, softmaxed], axis)


@softmax_backward.vjp
def _(g, upper, softmaxed, axis):  # type: ignore[no-untyped-def]
    mean = (upper * softmaxed).sum(axis, True)
    tilt = (g * softmaxed).sum(axis, True)
    return softmax_backward(g, softmaxed, axis), g * (upper - mean) - upper * tilt


softmax_backward.batched_over("axis")


@operation("LogSoftmaxBackward0")
def log_softmax_axis(x: Tensor, axis: int) -> Tensor:
    """Logarithms of the softmax along an axis."""
    return along(LOG_SOFTMAX, [x], axis)


@log_softmax_axis.jvp
def _(t_x, out, axis):  # type: ignore[no-untyped-def]
    return t_x - (t_x * out.exp()).sum(axis, True)


@log_softmax_axis.vjp
def _(g, out, axis):  # type: ignore[no-untyped-def]
    return log_softmax_backward(g, out, axis)


log_softmax_axis.batched_over("axis")


def checked_along(op: Operation, name: str, input: Tensor, dim: int, dtype: DType | None) -> Any:
    """The call of an op along an axis, in the dtype that is computed in."""
    x = input if dtype is None else input.to(dtype)
    axis = wrap_dim(dim, x.ndim)
    if not x.dtype.is_floating_point:
        if not x.numel():  # PyTorch looks for no kernel where there is nothing
            return x.clone()
        kernel = f"{name}_lastdim_kernel_impl" if axis >= x.ndim - 1 else f"{name}_kernel_impl"
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{x.dtype.legacy}'")
    return op.on(x, axis)


@operation("LogSoftmaxBackwardDataBackward0")
def log_softmax_backward(upper: Tensor, logs: Tensor, axis: int) -> Tensor:
    """`upper - exp(logs) * sum(upper)` along an axis."""
    return along(LOG_SOFTMAX_BACKWARD, [upper, logs], axis)


@log_softmax_backward.vjp
def _(g, upper, logs, axis):  # type: ignore[no-untyped-def]
    weighted = g * logs.exp()
    return g - weighted.sum(axis, True), -weighted * upper.sum(axis, True)


log_softmax_backward.batched_over("axis")


def _softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: DType
) -> Tensor:
    """What a softmax makes of the gradient of its result, for functions that write their own backward."""
    return _gradient("softmax", softmax_backward, grad_output, output, dim, input_dtype)


def _log_softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: DType
) -> Tensor:
    """The same of the logarithm of a softmax."""
    return _gradient("log_softmax", log_softmax_backward, grad_output, output, dim, input_dtype)


def _gradient(
    name: str, backward: Any, grad: Tensor, output: Tensor, dim: int, input_dtype: DType
) -> Tensor:
    """What a function makes of the gradient of its result; raises for what these two cannot be together."""
    function = f"_{name}_backward_data"
    record.check_tensor(function, "grad_output", 1, grad)
    record.check_tensor(function, "output", 2, output)
    dtypes.check(input_dtype)
    axis = wrap_dim(dim, output.ndim)
    if grad.shape != output.shape:
        raise RuntimeError(
            "Expected tensor for argument #1 'grad' to have same size as tensor for argument #2 'output'; but "
            f"{[*grad.shape]} does not equal {[*output.shape]} (while checking arguments for {name}_backward)"
        )
    if not grad.dtype.is_floating_point:
        where = "lastdim_" if axis == output.ndim - 1 else ""
        raise NotImplementedError(
            f"\"{name}_backward_{where}kernel_impl\" not implemented for '{grad.dtype.legacy}'"
        )
    if grad.dtype is not output.dtype:
        raise RuntimeError(
            f"expected scalar type {grad.dtype.legacy} but found {output.dtype.legacy}"
        )
    out: Tensor = backward(grad, output, axis)
    return out


@export(method=True, out=True)
@composed
@numpy_names
def softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """Exponentials over their sum along a dimension.

    Never overflows: the largest element is subtracted first. Differentiable in `input`.

    Args:
        input: any shape, floating point unless `dtype` gives a floating dtype.
        dim: the dimension whose elements sum to 1 afterwards.
        dtype: convert to this first.

    Example:
        >>> adjit.softmax(adjit.tensor([0., 0.]), 0)
        tensor([0.5000, 0.5000])
    """
    return checked_along(softmax_axis, "softmax", input, dim, dtype)


@export(method=True, out=True)
@composed
@numpy_names
def log_softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """The logarithm of `softmax` along a dimension, exact where the softmax underflows.

    Takes what `softmax` takes. Differentiable in `input`.

    Example:
        >>> adjit.log_softmax(adjit.tensor([0., 0.]), 0)
        tensor([-0.6931, -0.6931])
    """
    return checked_along(log_softmax_axis, "log_softmax", input, dim, dtype)


# ---------------------------------------------------------------- logsumexp


# How few numbers, and for how many results at least, are summed as they lie: of 547x3x30x8 along the second
# axis 0.25 ms for 1.34, of 2x1000 6.9 us for 11.5; but 16x100x64 take 69 us for 63, and 10x10 2.5 for 1.8.
SHORT, MANY = 32, 512


def logsumexp_of_few(x: Tensor, axes: Shape, shape: Shape) -> Tensor:
    """The same, by operations on elements as they lie."""
    top = x.amax(axes, True)
    top = top.masked_fill(top.abs() == math.inf, 0)
    return ((x - top).exp().sum(axes, True).log() + top).view(shape)


@operation("LogsumexpBackward0")
def logsumexp_axes(x: Tensor, axes: Shape, keepdim: bool) -> Tensor:
    """Logarithms of sums of exponentials along axes."""
    shape = reduced_shape(x.shape, axes, keepdim)
    count = numel(x.shape[axis] for axis in axes)
    is_outer = x.ndim - 1 not in axes or count == 1
    is_short = 0 < count <= SHORT and x.numel() >= MANY * count
    if is_short and is_outer and x.device is CPU:
        return logsumexp_of_few(x, axes, shape)
    x, rows, length = rows_of(x, axes)
    if length == 0:
        return x.new_full(shape, -math.inf)
    return launch(
        kernels.logsumexp_rows, (x,), [(shape, x.dtype)], bind={"T": x.dtype},
        words=(length,), n=rows, grain=max(1, GRAIN // (4 * length)),
    )  # fmt: skip


logsumexp_axes.reduces("axes", "keepdim")


@logsumexp_axes.vjp
def _(g, x, out, axes, keepdim):  # type: ignore[no-untyped-def]
    shape = x.shape
    return spread_back(g, axes, keepdim, shape) * (x - spread_back(out, axes, keepdim, shape)).exp()


logsumexp_axes.batched_over("axes")


@export(method=True, out=True)
@normalizes
@numpy_names
def logsumexp(input: Tensor, dim: int | Sequence[int], keepdim: bool = False) -> Tensor:
    """The logarithm of the sum of exponentials along dimensions, without overflow.

    Integers are converted to the default dtype. Differentiable in `input`.

    Args:
        input: any shape; integers count as the default floating dtype.
        dim: an int or ints.
        keepdim: leave the reduced dimensions in the shape, with size 1.

    Example:
        >>> adjit.tensor([1000., 1000.]).logsumexp(0)
        tensor(1000.6932)
    """
    if dim is None:
        raise TypeError(
            "logsumexp(): argument 'dim' (position 1) must be tuple of ints, not NoneType"
        )
    x = input if input.dtype.is_floating_point else input.to(dtypes.get_default_dtype())
    axes = wrap_dims(dim, x.ndim)
    return logsumexp_axes.on(x, axes if x.ndim else (), keepdim)
