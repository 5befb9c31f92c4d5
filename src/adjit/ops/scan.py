"""Running sums, products and extremes along one dimension."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..dtypes import dtype as DType
from ..graph.composed import composed
from ..graph.export import export
from ..graph.launch import launch
from ..graph.normalized import normalizes
from ..graph.operation import operation
from ..kernels.ops import scan as kernels
from ..shapes import Shape, an_int, numel, numpy_names, wrap_dim
from ..tensor import Tensor
from .reduce import GRAIN, return_type, sum_dtype


def scan(
    kernel: Any,
    x: Tensor,
    axis: int,
    results: list[DType],
    bind: dict[str, DType],
    *others: Tensor,
) -> Any:
    """Run a scan kernel along an axis of tensors of one shape; the results have that shape."""
    tensors = [t.contiguous() for t in (x, *others)]
    sizes = x.shape if x.ndim else (1,)
    outer, length, inner = numel(sizes[:axis]), sizes[axis], numel(sizes[axis + 1 :])
    strips = -(-inner // kernels.STRIP)
    return launch(
        kernel, tensors, [(x.shape, kind) for kind in results], bind=bind,
        words=(length, inner, kernels.STRIP, strips), n=outer * strips if length else 0,
        grain=max(1, GRAIN // (max(length, 1) * max(min(inner, kernels.STRIP), 1))),
    )  # fmt: skip


def running(name: str, kernel: Any, x: Tensor, axis: int, dtype: DType) -> Tensor:
    """A running sum or product; a CPU accumulates float32 in float64.

    Raises:
        NotImplementedError: for truth values.
    """
    if dtype is dtypes.bool:
        raise NotImplementedError(f"\"{name}_out_cpu\" not implemented for 'Bool'")
    wide = dtypes.running_sum_of(dtype)
    out: Tensor = scan(kernel, x, axis, [dtype], {"X": x.dtype, "A": wide, "T": dtype})
    return out


def from_the_end(x: Tensor, axis: int) -> Tensor:
    """The sums of each element and all after it."""
    return x.flip(axis).cumsum(axis).flip(axis) if x.ndim else x


@operation("CumsumBackward0")
def cumsum_axis(x: Tensor, axis: int, dtype: DType) -> Tensor:
    """Running sums along an axis."""
    return running("cumsum", kernels.cumsum, x, axis, dtype)


cumsum_axis.linear("x")


@cumsum_axis.vjp
def _(g, axis):  # type: ignore[no-untyped-def]
    return from_the_end(g, axis)


cumsum_axis.batched_over("axis")


@export(method=True, inplace=True, out=True)
@composed
@numpy_names
def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """The sums of each element and all before it along a dimension.

    bool and integers are summed in int64, float32 with the digits of float64. Differentiable in `input`.

    Args:
        input: any shape and dtype.
        dim: an int.
        dtype: convert to this first; int64 for integers unless given.

    Example:
        >>> adjit.tensor([1., 2., 3.]).cumsum(0)
        tensor([1., 3., 6.])
    """
    return cumsum_axis.on(input, wrap_dim(dim, input.ndim), sum_dtype(input, dtype))


@operation("CumprodBackward0")
def cumprod_axis(x: Tensor, axis: int, dtype: DType) -> Tensor:
    """Running products along an axis."""
    return running("cumprod", kernels.cumprod, x, axis, dtype)


@cumprod_axis.vjp
def _(g, x, axis):  # type: ignore[no-untyped-def]
    if x.ndim == 0 or x.numel() == 0:
        return g
    x = x.to(g.dtype)
    return exclusive_product(x, axis) * reversed_recurrence(x, g, axis)


cumprod_axis.batched_over("axis")


def shifted(x: Tensor, axis: int) -> Tensor:
    """One, and then all elements but the last."""
    from .joining import cat

    first = x.narrow(axis, 0, 1)
    return cat([first.new_ones(first.shape), x.narrow(axis, 0, x.shape[axis] - 1)], axis)


def exclusive_product(x: Tensor, axis: int) -> Tensor:
    """The products of all elements before each one."""
    return shifted(x, axis).cumprod(axis)


@operation("LinearRecurrenceBackward0")
def linear_recurrence(a: Tensor, b: Tensor, axis: int) -> Tensor:
    """`out[i] = b[i] + a[i] * out[i - 1]` along an axis."""
    bind = {"A": dtypes.running_sum_of(a.dtype), "T": a.dtype}
    out: Tensor = scan(kernels.recurrence, a, axis, [a.dtype], bind, b)
    return out


@linear_recurrence.vjp
def _(g, a, out, axis):  # type: ignore[no-untyped-def]
    from .joining import cat

    gb = reversed_recurrence(a, g, axis)
    first = out.narrow(axis, 0, 1)
    before = cat([first.new_zeros(first.shape), out.narrow(axis, 0, out.shape[axis] - 1)], axis)
    return gb * before, gb


linear_recurrence.batched_over("axis")


def reversed_recurrence(a: Tensor, b: Tensor, axis: int) -> Tensor:
    """`out[i] = b[i] + a[i + 1] * out[i + 1]` along an axis."""
    from .joining import cat

    last = a.narrow(axis, 0, 1)
    after = cat([last.new_zeros(last.shape), a.flip(axis).narrow(axis, 0, a.shape[axis] - 1)], axis)
    return linear_recurrence(after, b.flip(axis), axis).flip(axis)


@export(method=True, inplace=True, out=True)
@composed
@numpy_names
def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """The products of each element and all before it along a dimension.

    bool and integers are multiplied in int64. Differentiable in `input`, also where elements are
    zero.

    Args:
        input: any shape and dtype.
        dim: an int.
        dtype: convert to this first; int64 for integers unless given.

    Example:
        >>> adjit.tensor([1., 2., 3.]).cumprod(0)
        tensor([1., 2., 6.])
    """
    return cumprod_axis.on(input, wrap_dim(dim, input.ndim), sum_dtype(input, dtype))


def add_back(g: Tensor, places: Tensor, axis: int, shape: Shape) -> Tensor:
    """Zeros to which a gradient is added at the places that it came from."""
    return g.new_zeros(shape).scatter_add(axis, places, g) if shape else g


@operation("CummaxBackward0", differentiable=(0,))
def cummax_axis(x: Tensor, axis: int, shape: Shape) -> tuple[Tensor, Tensor]:
    """Running largest elements along an axis, and their places."""
    kinds = [x.dtype, dtypes.int64]
    found: tuple[Tensor, Tensor] = scan(kernels.cummax, x, axis, kinds, {"T": x.dtype})
    return found


cummax_axis.selects("axis")


@cummax_axis.vjp
def _(g, outs, axis, shape):  # type: ignore[no-untyped-def]
    return add_back(g, outs[1], axis, shape)


cummax_axis.batched_over("axis", shapes=["shape"])


@operation("CumminBackward0", differentiable=(0,))
def cummin_axis(x: Tensor, axis: int, shape: Shape) -> tuple[Tensor, Tensor]:
    """Running smallest elements along an axis, and their places."""
    kinds = [x.dtype, dtypes.int64]
    found: tuple[Tensor, Tensor] = scan(kernels.cummin, x, axis, kinds, {"T": x.dtype})
    return found


cummin_axis.selects("axis")


@cummin_axis.vjp
def _(g, outs, axis, shape):  # type: ignore[no-untyped-def]
    return add_back(g, outs[1], axis, shape)


cummin_axis.batched_over("axis", shapes=["shape"])


CumMax, CumMin = return_type("cummax", "values indices"), return_type("cummin", "values indices")


@export(method=True, out=True)
@numpy_names
def cummax(input: Tensor, dim: int) -> Any:
    """The largest of each element and all before it, as `(values, indices)`.

    The last of equal elements; once there is a NaN, NaN. Differentiable in `input`.

    Args:
        input: any shape and dtype.
        dim: an int.

    Example:
        >>> adjit.tensor([1., 3., 2.]).cummax(0).values
        tensor([1., 3., 3.])
    """
    return CumMax(*cummax_axis(input, wrap_dim(dim, input.ndim), input.shape))


@export(method=True, out=True)
@numpy_names
def cummin(input: Tensor, dim: int) -> Any:
    """The smallest of each element and all before it, as `(values, indices)`.

    The last of equal elements; once there is a NaN, NaN. Differentiable in `input`.

    Args:
        input: any shape and dtype.
        dim: an int.

    Example:
        >>> adjit.tensor([3., 1., 2.]).cummin(0).values
        tensor([3., 1., 1.])
    """
    return CumMin(*cummin_axis(input, wrap_dim(dim, input.ndim), input.shape))


@operation("LogcumsumexpBackward0")
def logcumsumexp_axis(x: Tensor, axis: int) -> Tensor:
    """Logarithms of running sums of exponentials along an axis."""
    out: Tensor = scan(kernels.logcumsumexp, x, axis, [x.dtype], {"T": x.dtype})
    return out


def reversed_logcumsumexp(x: Tensor, axis: int) -> Tensor:
    """`logcumsumexp` from the end."""
    return logcumsumexp(x.flip(axis), axis).flip(axis)


@logcumsumexp_axis.jvp
def _(t_x, x, out, axis):  # type: ignore[no-untyped-def]
    if x.ndim == 0:
        return t_x
    from .joining import cat

    before = out.narrow(axis, 0, out.shape[axis] - 1)
    decays = (before - out.narrow(axis, 1, out.shape[axis] - 1)).exp()
    decays = cat([out.new_zeros(out.narrow(axis, 0, 1).shape), decays], axis)
    return linear_recurrence(decays, (x - out).exp() * t_x, axis)


@logcumsumexp_axis.vjp
def _(g, x, out, axis):  # type: ignore[no-untyped-def]
    if x.ndim == 0:
        return g
    # g[j] * exp(x[i] - out[j]) summed over j >= i, in logarithms for each sign of g.
    positive = (reversed_logcumsumexp(log_or_lowest(g) - out, axis) + x).exp()
    negative = (reversed_logcumsumexp(log_or_lowest(-g) - out, axis) + x).exp()
    return positive - negative


logcumsumexp_axis.batched_over("axis")


def log_or_lowest(x: Tensor) -> Tensor:
    """The logarithm; the lowest number, of which exp is 0, for what is not positive."""
    out = x.detach() <= 0
    return x.masked_fill(out, 1).log().masked_fill(out, dtypes.finfo(x.dtype).min)


@export(method=True, out=True)
@normalizes
@numpy_names
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """The logarithm of the running sum of exponentials along a dimension, without overflow.

    Differentiable in `input`, which must be floating point.

    Args:
        input: any shape, floating point.
        dim: an int.

    Example:
        >>> adjit.tensor([0., 0.]).logcumsumexp(0)
        tensor([0.0000, 0.6931])
    """
    if not input.dtype.is_floating_point:
        raise NotImplementedError(
            f"\"logcumsumexp_out_cpu\" not implemented for '{input.dtype.legacy}'"
        )
    return logcumsumexp_axis.on(input, wrap_dim(dim, input.ndim))


def check_joins(x: Tensor, other: Tensor | None, axis: int) -> None:
    """What diff puts before or after must fit."""
    if other is None:
        return
    if other.ndim != x.ndim:
        raise RuntimeError("diff expects prepend or append to be the same dimension as input")
    for d in range(x.ndim):
        if d != axis and other.shape[d] != x.shape[d]:
            raise RuntimeError(
                "diff expects the shape of tensor to prepend or append to match that of input "
                f"except along the differencing dimension; input.size({d}) = {x.shape[d]}, but "
                f"got tensor.size({d}) = {other.shape[d]}"
            )


@export(method=True, out=True)
@composed
@numpy_names
def diff(
    input: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """The differences of neighbours along a dimension, taken `n` times.

    Differentiable in all tensors.

    Args:
        input: at least 1-d, of any dtype; bools give where neighbours differ.
        n: how often.
        dim: the dimension.
        prepend, append: tensors to put before and after `input` first, where there is a difference to take.

    Example:
        >>> adjit.tensor([1., 4., 9.]).diff()
        tensor([3., 5.])
    """
    if input.ndim == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    axis = wrap_dim(dim, input.ndim)
    check_joins(input, prepend, axis)
    check_joins(input, append, axis)
    n = an_int("diff", "n", 2, n)
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    given, parts = input, [part for part in (prepend, input, append) if part is not None]
    if len(parts) > 1 and n:
        from .joining import cat

        input = cat(parts, axis)
    for _ in range(min(n, input.shape[axis])):
        length = input.shape[axis]
        after, before = input.narrow(axis, 1, length - 1), input.narrow(axis, 0, length - 1)
        input = after != before if input.dtype is dtypes.bool else after - before
    return input.clone() if input is given and (n == 0 or 0 not in input.shape) else input
