"""Variances and standard deviations, computed from deviations and not from squares."""

from __future__ import annotations

import math

from .. import errors
from ..graph.composed import composed
from ..graph.export import export
from ..graph.launch import launch
from ..graph.operation import operation
from ..kernels.ops import reduce as kernels
from ..schedule.settle import float_word
from ..shapes import Shape, numel, numpy_names, wrap_dims
from ..tensor import Tensor
from ..unknown import through
from .reduce import (
    GRAIN,
    ROW_STEP,
    Axes,
    mean,
    reduced_count,
    reduced_shape,
    rows_of,
    spread_back,
)


def spread(
    x: Tensor, axes: Shape, correction: float, keepdim: bool, *, rooted: bool
) -> tuple[Tensor, Tensor]:
    """Variances along axes, or their roots, and means."""
    by = through(float_word, freedom(x.shape, axes, correction))
    shape, kind = reduced_shape(x.shape, axes, keepdim), x.dtype
    x, rows, length = rows_of(x, axes)
    step = max(1, min(length, ROW_STEP))
    chunks = max(1, -(-length // step))
    bind, results = {"T": kind, "A": kind}, [(shape, kind), (shape, kind)]
    found: tuple[Tensor, Tensor]
    if chunks == 1:
        found = launch(
            kernels.spread_rows, (x,), results, bind=bind, words=(length, rooted),
            scalars=(by, float_word(kind.row.least)), n=rows, grain=max(1, GRAIN // step),
        )  # fmt: skip
        return found
    parts = ((rows * chunks,), kind)
    means, squares = launch(
        kernels.moments_of_chunks, (x,), [parts, parts], bind=bind, words=(length, step, chunks),
        scalars=(float_word(kind.row.least),), n=rows * chunks, grain=max(1, GRAIN // step),
    )  # fmt: skip
    found = launch(
        kernels.spread_of_chunks, (x, means, squares), results, bind=bind,
        words=(length, step, chunks, rooted), scalars=(by, float_word(kind.row.least)),
        n=rows, grain=max(1, GRAIN // chunks),
    )  # fmt: skip
    return found


def freedom(shape: Shape, axes: Shape, correction: float) -> float:
    """What sums of squares are divided by."""
    return max(0, reduced_count(shape, axes) - correction)


@operation("VarBackward0")
def var_axes(x: Tensor, axes: Shape, correction: float, keepdim: bool) -> Tensor:
    """The variances along axes."""
    return spread(x, axes, correction, keepdim, rooted=False)[0]


def var_vjp(g: Tensor, x: Tensor, axes: Shape, correction: float, keepdim: bool) -> Tensor:
    """The gradient of a variance."""
    by = reduced_count(x.shape, axes) - correction
    factor = 2.0 / by if by else math.inf
    return spread_back(g * factor, axes, keepdim, x.shape) * (x - mean(x, axes, True))


var_axes.reduces("axes", "keepdim")


@var_axes.vjp
def _(g, x, axes, correction, keepdim):  # type: ignore[no-untyped-def]
    return var_vjp(g, x, axes, correction, keepdim)


var_axes.batched_over("axes")


@operation("StdBackward0")
def std_axes(x: Tensor, axes: Shape, correction: float, keepdim: bool) -> Tensor:
    """The standard deviations along axes."""
    return spread(x, axes, correction, keepdim, rooted=True)[0]


def through_root(g: Tensor, out: Tensor) -> Tensor:
    """The gradient of a square root; 0 where the root is 0, as PyTorch has it for std."""
    return (g / 2 / out).masked_fill(out.detach() == 0, 0)


std_axes.reduces("axes", "keepdim")


@std_axes.vjp
def _(g, x, out, axes, correction, keepdim):  # type: ignore[no-untyped-def]
    return var_vjp(through_root(g, out), x, axes, correction, keepdim)


std_axes.batched_over("axes")


@operation("VarMeanBackward0", differentiable=(0, 1))
def var_mean_axes(
    x: Tensor, axes: Shape, correction: float, keepdim: bool
) -> tuple[Tensor, Tensor]:
    """The variances and the means along axes."""
    return spread(x, axes, correction, keepdim, rooted=False)


def mean_vjp(g: Tensor, x: Tensor, axes: Shape, keepdim: bool) -> Tensor:
    """The gradient of a mean."""
    return spread_back(g / (reduced_count(x.shape, axes) or 1), axes, keepdim, x.shape)


def both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """The sum of two gradients of which either may be missing."""
    return a if b is None else b if a is None else a + b


var_mean_axes.reduces("axes", "keepdim")


@var_mean_axes.vjp
def _(gs, x, axes, correction, keepdim):  # type: ignore[no-untyped-def]
    g, g_mean = gs
    return both(
        None if g is None else var_vjp(g, x, axes, correction, keepdim),
        None if g_mean is None else mean_vjp(g_mean, x, axes, keepdim),
    )


var_mean_axes.batched_over("axes")


@operation("StdMeanBackward0", differentiable=(0, 1))
def std_mean_axes(
    x: Tensor, axes: Shape, correction: float, keepdim: bool
) -> tuple[Tensor, Tensor]:
    """The standard deviations and the means along axes."""
    return spread(x, axes, correction, keepdim, rooted=True)


std_mean_axes.reduces("axes", "keepdim")


@std_mean_axes.vjp
def _(gs, x, out, axes, correction, keepdim):  # type: ignore[no-untyped-def]
    g, g_mean = gs
    return both(
        None if g is None else var_vjp(through_root(g, out), x, axes, correction, keepdim),
        None if g_mean is None else mean_vjp(g_mean, x, axes, keepdim),
    )


std_mean_axes.batched_over("axes")


def spread_arguments(
    name: str,
    x: Tensor,
    dim: Axes | bool,
    unbiased: bool | None,
    keepdim: bool,
    correction: float | None,
) -> tuple[Shape, float, bool]:
    """The axes, the correction and keepdim of `std(x, dim, ...)` and the old `std(x, unbiased)`."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if not x.dtype.is_floating_point:
        what = "std and var" if name in ("std", "var") else name
        raise RuntimeError(f"{what} only support floating point and complex dtypes")
    if unbiased is not None:
        if correction is not None:
            raise TypeError(
                f"{name}() received an invalid combination of arguments - got both unbiased and "
                "correction, but expected one of them"
            )
        correction = 1 if unbiased else 0
    correction = 1 if correction is None else correction
    axes = wrap_dims(dim, x.ndim)
    if reduced_count(x.shape, axes) - correction <= 0 and numel(
        reduced_shape(x.shape, axes, False)
    ):
        errors.warn(
            f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the "
            "reduction factor (input numel divided by output numel).",
        )
    return (axes if x.ndim else ()), correction, keepdim


@export(method=True, out=True)
@composed
@numpy_names
def var(
    input: Tensor,
    dim: Axes | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """The variance of all elements, or along dimensions.

    The sum of squared deviations from the mean over `N - correction`; the correction is 1 unless
    given (`unbiased=False` is 0). Computed from deviations, chunk by chunk, so that a large mean
    costs no digits. Differentiable in `input`, which must be floating point.

    Raises:
        RuntimeError: for integers and bool.

    Example:
        >>> adjit.tensor([1., 2., 3., 4.]).var()
        tensor(1.6667)
    """
    return var_axes.on(input, *spread_arguments("var", input, dim, unbiased, keepdim, correction))


@export(method=True, out=True)
@composed
@numpy_names
def std(
    input: Tensor,
    dim: Axes | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """The standard deviation of all elements, or along dimensions: the root of `var`.

    Differentiable.

    Example:
        >>> adjit.tensor([1., 2., 3., 4.]).std(correction=0)
        tensor(1.1180)
    """
    return std_axes.on(input, *spread_arguments("std", input, dim, unbiased, keepdim, correction))


@export()
@composed
@numpy_names
def var_mean(
    input: Tensor,
    dim: Axes | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The variance and the mean, in one pass over memory. Takes what `var` takes.

    Differentiable in `input`, both results.

    Example:
        >>> adjit.var_mean(adjit.tensor([1., 2., 3., 4.]))
        (tensor(1.6667), tensor(2.5000))
    """
    arguments = spread_arguments("var_mean", input, dim, unbiased, keepdim, correction)
    found: tuple[Tensor, Tensor] = var_mean_axes(input, *arguments)
    return found


@export()
@composed
@numpy_names
def std_mean(
    input: Tensor,
    dim: Axes | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean, in one pass over memory. Takes what `std` takes.

    Differentiable in `input`, both results.

    Example:
        >>> adjit.std_mean(adjit.tensor([1., 2., 3., 4.]))
        (tensor(1.2910), tensor(2.5000))
    """
    arguments = spread_arguments("std_mean", input, dim, unbiased, keepdim, correction)
    found: tuple[Tensor, Tensor] = std_mean_axes(input, *arguments)
    return found
