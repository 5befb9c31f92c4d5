"""Reductions with one operator: sums, means, products, extremes, norms.

Any set of axes is brought to `outer x length x inner`, without a copy where the elements lie
densely in some order of the axes: neighbouring reduced axes are one, and a sum over axes that are
no neighbours is a sum of sums. How a long reduction is cut depends on the shape alone.
"""

from __future__ import annotations

import builtins
import math
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from .. import dtypes
from ..devices import CPU
from ..dtypes import dtype as DType
from ..graph import record
from ..graph.composed import composed
from ..graph.export import export
from ..graph.factories import factory
from ..graph.launch import launch
from ..graph.normalized import normalized_by, normalizes
from ..graph.operation import operation
from ..kernels.ops import reduce as kernels
from ..shapes import (
    Shape,
    broadcasts_to,
    check_bool,
    numel,
    numpy_names,
    shape_of,
    wrap_dim,
    wrap_dims,
)
from ..tensor import Tensor
from ..unknown import cached

Axes = int | Sequence[int] | None
F = TypeVar("F", bound=Callable[..., Any])

ROW_STEP = 16384  # elements of one chunk of a long row
COLUMN_STEP = 256  # rows of one chunk of long columns
STRIP, STRIP_ON_GPU = 4096, 64  # columns that one unit reduces: thousands of warps want some
GRAIN = 32768  # element operations that are worth a thread


# ---------------------------------------------------------------- names, shapes, layouts


new_tuple = tuple.__new__
return_types: dict[str, Any] = {}  # by the names of the functions


def return_type(name: str, fields: str) -> Any:
    """The named pair that the function `name` returns, printed as PyTorch prints its own."""

    def shown(self: Any) -> str:
        lines = [f"{field}={getattr(self, field)!r}" for field in self._fields]
        return f"adjit.return_types.{name}(\n" + ",\n".join(lines) + ")"

    def new(cls: Any, first: Any, second: Any = None) -> Any:
        if second is None or second.__class__ is dict:  # PyTorch's way, and that of its pickles
            if len(first) != 2:
                raise TypeError(
                    f"torch.return_types.{name}() takes a 2-sequence ({len(first)}-sequence given)"
                )
            return cls._make(first)
        return new_tuple(cls, (first, second))

    make: Any = namedtuple  # mypy only knows those with literal names
    found = make(name, fields)
    own = {"__module__": "adjit.return_types", "__doc__": f"What `{name}` returns."}
    parts: dict[str, Any] = {"__new__": new}
    parts["__reduce__"] = lambda self: (type(self), (tuple(self), {}))
    made = type(name, (found,), {"__slots__": (), "__repr__": shown, **own, **parts})
    return return_types.setdefault(name, made)


def reduced_shape(shape: Shape, axes: Shape, keepdim: bool) -> Shape:
    """The shape after a reduction.

    Raises:
        TypeError: if `keepdim` is an int, as where a second axis was meant.
    """
    if keepdim.__class__ is int:
        raise TypeError("argument 'keepdim' must be bool, not int")
    if keepdim:
        return tuple(1 if d in axes else n for d, n in enumerate(shape))
    return tuple(n for d, n in enumerate(shape) if d not in axes)


def spread_back(g: Tensor, axes: Shape, keepdim: bool, shape: Shape) -> Tensor:
    """A gradient repeated along the axes that were reduced."""
    if not keepdim:
        g = restored(g, axes, len(shape))
    return g.expand(shape)


def restored(x: Tensor, axes: Shape, ndim: int) -> Tensor:
    """`x` with axes of size 1 where axes were reduced away."""
    if x.ndim == ndim or ndim == 0:
        return x
    sizes = iter(x.shape)
    return x.reshape([1 if d in axes else next(sizes) for d in range(ndim)])


def reduced_count(shape: Shape, axes: Shape) -> int:
    """How many elements become one."""
    return numel([shape[d] for d in axes]) if shape else 1


def rows_of(x: Tensor, axes: Shape) -> tuple[Tensor, int, int]:
    """`x` in C order with the reduced axes last, the number of rows and their length."""
    if x.ndim == 0:
        return x, 1, 1
    kept = [d for d in range(x.ndim) if d not in axes]
    order = [*kept, *axes]
    if order != list(range(x.ndim)):
        x = x.permute(order)
    length = numel(x.shape[len(kept) :])
    return x.contiguous(), numel(x.shape[: len(kept)]), length


def memory_order(shape: Shape, strides: Shape) -> list[int] | None:
    """The axes from the largest stride to the smallest if the elements lie densely, else None."""
    order = sorted(range(len(shape)), key=lambda d: (-strides[d], shape[d] != 1))
    expected = 1
    for d in reversed(order):
        if shape[d] != 1:
            if strides[d] != expected:
                return None
            expected *= shape[d]
    return order


# ---------------------------------------------------------------- folding with one operator


class ReductionPlan(NamedTuple):
    """The kernels that fold rows and columns with one operator."""

    rows: Any
    columns: Any


SUM = ReductionPlan(kernels.sum_rows, kernels.sum_columns)
SQUARES = ReductionPlan(kernels.square_rows, None)  # of the elements, and then sums of these
PROD = ReductionPlan(kernels.prod_rows, kernels.prod_columns)
MAX = ReductionPlan(kernels.max_rows, kernels.max_columns)
MIN = ReductionPlan(kernels.min_rows, kernels.min_columns)


class Pass(NamedTuple):
    """One launch of a fold."""

    by_rows: bool
    shape: Shape  # of its result
    words: tuple[int, ...]
    n: int
    grain: int


def passes_of(x: Tensor, axes: Shape, keepdim: bool) -> tuple[bool, tuple[Pass, ...]]:
    """Whether a fold needs a copy in C order first, and its launches."""
    strip = STRIP if x._spec.device is CPU else STRIP_ON_GPU
    return plan_fold(x.shape, x._spec.strides, axes, keepdim, strip)


@cached(4096)
def plan_fold(
    shape: Shape, strides: Shape, axes: Shape, keepdim: bool, strip: int
) -> tuple[bool, tuple[Pass, ...]]:
    """`passes_of` for a layout: the sizes alone decide."""
    target = reduced_shape(shape, axes, keepdim)
    if 0 in shape:
        length = numel(shape[d] for d in axes)
        return False, tuple(row_passes(numel(target), length, target))
    order = memory_order(shape, strides)
    kept = [d for d in order or () if d not in axes]
    copied = order is None or kept != sorted(kept)
    groups: list[list[int]] = []  # [is reduced, size] of neighbouring axes alike
    for d in range(len(shape)) if copied or order is None else order:
        size, reduced = shape[d], d in axes
        if groups and groups[-1][0] == reduced:
            groups[-1][1] *= size
        elif size != 1:
            groups.append([reduced, size])
    sizes = [size for _, size in groups]
    passes: list[Pass] = []
    reduced_groups = [i for i, (reduced, _) in enumerate(groups) if reduced]
    for i in reversed(reduced_groups):
        outer, length, inner = numel(sizes[:i]), sizes[i], numel(sizes[i + 1 :])
        to = target if i == reduced_groups[0] else (outer, inner)
        del sizes[i]
        if inner == 1:
            passes += row_passes(outer, length, to)
        else:
            passes += column_passes(outer, length, inner, to, strip)
    # Where every reduced size is 1, each row is one element.
    return copied, tuple(passes or row_passes(numel(target), 1, target))


def row_passes(outer: int, length: int, shape: Shape) -> list[Pass]:
    """Each row of a C-ordered matrix reduced; long rows in two steps."""
    passes = []
    if length >= 4 * ROW_STEP:
        chunks = -(-length // ROW_STEP)
        units = outer * chunks
        passes.append(Pass(True, (units,), (length, ROW_STEP, chunks), units, 2))
        length = chunks
    grain = builtins.max(1, GRAIN // builtins.max(length, 1))
    return [*passes, Pass(True, shape, (length, length, 1), outer, grain)]


def column_passes(outer: int, length: int, inner: int, shape: Shape, strip: int) -> list[Pass]:
    """The columns of C-ordered matrices reduced; long ones in steps."""
    strips, width = -(-inner // strip), builtins.min(inner, strip)
    passes = []
    while length >= 2 * COLUMN_STEP:
        chunks = -(-length // COLUMN_STEP)
        words = (length, inner, COLUMN_STEP, chunks, strip, strips)
        grain = builtins.max(1, GRAIN // (COLUMN_STEP * width))
        passes.append(Pass(False, (outer, chunks, inner), words, outer * chunks * strips, grain))
        length = chunks
    words = (length, inner, length, 1, strip, strips)
    grain = builtins.max(1, GRAIN // (length * width))
    return [*passes, Pass(False, shape, words, outer * strips, grain)]


def sum_of_squares(x: Tensor, axes: Shape, keepdim: bool) -> Tensor:
    """The sum of squares over `axes`; where rows are summed first, the squares are not stored."""
    if passes_of(x, axes, keepdim)[1][0].by_rows:
        return fold(SQUARES, x, axes, keepdim, x.dtype)
    return fold(SUM, x * x, axes, keepdim, x.dtype)


def fold(how: ReductionPlan, x: Tensor, axes: Shape, keepdim: bool, result: DType) -> Tensor:
    """`x` reduced over `axes`, accumulated and returned as `result`."""
    copied, passes = passes_of(x, axes, keepdim)
    if copied:
        x = x.contiguous()
    for by_rows, shape, words, n, grain in passes:
        x = launch(
            how.rows if by_rows else how.columns, (x,), [(shape, result)],
            bind={"X": x.dtype, "T": result}, words=words, n=n, grain=grain,
        )  # fmt: skip
        how = SUM if how is SQUARES else how
    return x


# ---------------------------------------------------------------- sum, mean


def sum_dtype(x: Tensor, dtype: DType | None) -> DType:
    """The dtype of a sum, which it is accumulated in."""
    return dtypes.sum_of(x.dtype) if dtype is None else dtypes.check(dtype)


@operation("SumBackward0")
def sum_all(x: Tensor, dtype: DType, shape: Shape) -> Tensor:
    """The sum of all elements."""
    return fold(SUM, x, tuple(range(x.ndim)), False, dtype)


sum_all.linear("x")


@sum_all.vjp
def _(g, shape):  # type: ignore[no-untyped-def]
    return g.expand(shape)


@sum_all.batched
def _(x: Tensor, dtype: DType) -> Tensor:
    return sum_axes(x, tuple(range(1, x.ndim)), False, dtype, x.shape)


@operation("SumBackward1")
def sum_axes(x: Tensor, axes: Shape, keepdim: bool, dtype: DType, shape: Shape) -> Tensor:
    """The sums along axes."""
    return fold(SUM, x, axes, keepdim, dtype)


sum_axes.linear("x")


@sum_axes.vjp
def _(g, axes, keepdim, shape):  # type: ignore[no-untyped-def]
    return spread_back(g, axes, keepdim, shape)


sum_axes.batched_over("axes", shapes=["shape"])


@export(method=True, out=True)
@composed
@numpy_names
def sum(
    input: Tensor, dim: Axes = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """The sum of all elements, or the sums along one or several dimensions.

    Differentiable in `input`. The sum of nothing is 0. A float sum is computed in fixed blocks,
    so that its error stays small and the number of threads cannot change it.

    Args:
        input: any shape; of any dtype. bool and integers are summed in int64.
        dim: an int or ints, negative ones from the end; None and () mean all.
        keepdim: leave the reduced dimensions in the shape, with size 1.
        dtype: convert to this before summing.

    Raises:
        IndexError: if there is no such dimension.
        RuntimeError: if a dimension is named twice.

    Example:
        >>> adjit.ones(2, 3).sum(1)
        tensor([3., 3.])
    """
    result = sum_dtype(input, dtype)
    if result is dtypes.bool:
        return any(input, dim, keepdim)
    if dim is None and not keepdim:
        return sum_all.on(input, result, input.shape)
    return sum_axes.on(input, wrap_dims(dim, input.ndim), keepdim, result, input.shape)


@export(public=False, method=True)
@composed
def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """Sum over axes so that the tensor has a size that could be broadcast to its own: undoes broadcasting.

    Args:
        size: the shape, as numbers or one sequence.

    Returns:
        The tensor itself if it has that size. Differentiable in `input`.

    Raises:
        RuntimeError: if `size` does not broadcast to the size of `input`.

    Example:
        >>> adjit.ones(2, 3).sum_to_size(2, 1)
        tensor([[3.],
                [3.]])
    """
    if not size:
        raise TypeError('sum_to_size() missing 1 required positional arguments: "size"')
    shape = shape_of(size)
    if not broadcasts_to(shape, input.shape):
        raise RuntimeError(
            f"size {{{list(shape)}}} is not expandable to size {{{list(input.shape)}}}."
        )
    if not shape:
        return input.sum()
    return input if shape == input.shape else sum_to(input, shape)


def sum_to(g: Any, shape: Sequence[int]) -> Any:
    """Undo broadcasting: sum over the axes that were added or repeated."""
    lead = g.ndim - len(shape)
    dims = list(range(lead))
    dims += [d for d in range(lead, g.ndim) if shape[d - lead] == 1 and g.shape[d] != 1]
    if dims:
        g = g.sum(dims, keepdim=True)
    return g.view(shape) if lead else g


@operation("MeanBackward0")
def mean_all(x: Tensor, dtype: DType, shape: Shape) -> Tensor:
    """The mean of all elements."""
    return fold(SUM, x, tuple(range(x.ndim)), False, dtype) / (numel(shape) or math.nan)


mean_all.linear("x")


@mean_all.vjp
def _(g, shape):  # type: ignore[no-untyped-def]
    return (g / numel(shape)).expand(shape) if numel(shape) else g.expand(shape)


@mean_all.batched
def _(x: Tensor, dtype: DType) -> Tensor:
    return mean_axes(x, tuple(range(1, x.ndim)), False, dtype, x.shape)


@operation("MeanBackward1")
def mean_axes(x: Tensor, axes: Shape, keepdim: bool, dtype: DType, shape: Shape) -> Tensor:
    """The means along axes."""
    return fold(SUM, x, axes, keepdim, dtype) / (reduced_count(shape, axes) or math.nan)


mean_axes.linear("x")


@mean_axes.vjp
def _(g, axes, keepdim, shape):  # type: ignore[no-untyped-def]
    return spread_back(g / (reduced_count(shape, axes) or 1), axes, keepdim, shape)


mean_axes.batched_over("axes", shapes=["shape"])


@export(method=True, out=True)
@composed
@numpy_names
def mean(
    input: Tensor, dim: Axes = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """The mean of all elements, or the means along one or several dimensions.

    Differentiable in `input`. The mean of nothing is NaN.

    Args:
        input: any shape; of a floating-point dtype unless `dtype` gives one.
        dim: an int or ints; None and () mean all.
        keepdim: leave the reduced dimensions in the shape, with size 1.
        dtype: convert to this before averaging.

    Raises:
        RuntimeError: for an integer or bool `input` without `dtype`.

    Example:
        >>> adjit.tensor([[1., 2.], [3., 4.]]).mean(0)
        tensor([2., 3.])
    """
    result = input.dtype if dtype is None else dtypes.check(dtype)
    if not result.is_floating_point:
        raise RuntimeError(
            f"mean(): could not infer output dtype. {'Input' if dtype is None else 'Optional'} "
            f"dtype must be either a floating point or complex dtype. Got: {result.legacy}"
        )
    if dim is None and not keepdim:
        return mean_all.on(input, result, input.shape)
    return mean_axes.on(input, wrap_dims(dim, input.ndim), keepdim, result, input.shape)


@operation("NansumBackward0")
def nansum_axes(x: Tensor, axes: Shape, keepdim: bool, dtype: DType) -> Tensor:
    """The sums of what is no NaN."""
    return fold(SUM, x.masked_fill(x.isnan(), 0), axes, keepdim, dtype)


nansum_axes.reduces("axes", "keepdim")


@nansum_axes.vjp
def _(g, x, axes, keepdim):  # type: ignore[no-untyped-def]
    return spread_back(g, axes, keepdim, x.shape) * x.isnan().logical_not()


nansum_axes.batched_over("axes")


@export(method=True, out=True)
@composed
@numpy_names
def nansum(
    input: Tensor, dim: Axes = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """The sum of all elements that are no NaN, along dimensions or over all.

    Takes what `sum` takes; differentiable in `input`, where a NaN gets gradient 0.

    Example:
        >>> adjit.tensor([1., float("nan"), 2.]).nansum()
        tensor(3.)
    """
    if not input.dtype.is_floating_point:
        return sum(input, dim, keepdim, dtype=dtype)
    return nansum_axes.on(input, wrap_dims(dim, input.ndim), keepdim, sum_dtype(input, dtype))


@export(method=True, out=True)
@composed
@numpy_names
def nanmean(
    input: Tensor, dim: Axes = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """The mean of all elements that are no NaN, along dimensions or over all.

    Takes what `mean` takes; differentiable in `input`.

    Example:
        >>> adjit.tensor([1., float("nan"), 2.]).nanmean()
        tensor(1.5000)
    """
    if not input.dtype.is_floating_point:
        raise RuntimeError(
            "nanmean(): expected input to have floating point or complex dtype but got "
            f"{input.dtype.legacy}"
        )
    counted = sum(input.detach().isnan().logical_not(), dim, keepdim)
    return nansum(input, dim, keepdim, dtype=dtype) / counted


@export(method=True)
@numpy_names
@factory
def count_nonzero(input: Tensor, dim: Axes = None, *dims: int) -> Tensor:
    """Count the elements that are not zero, as int64, along dimensions or over all.

    Not differentiable.

    Args:
        input: any shape and dtype.
        dim, dims: an int or ints; None and () mean all.

    Example:
        >>> adjit.count_nonzero(adjit.tensor([[0, 1], [2, 3]]), dim=0)
        tensor([1, 2])
    """
    axes: Any = (dim, *dims) if dims else dim
    return sum(input.detach() != 0, axes)


# ---------------------------------------------------------------- extremes


def check_not_empty(name: str, x: Tensor, axes: Shape | None) -> None:
    """Extremes have no identity: a reduced dimension must not be empty."""
    if x.numel():
        return
    if axes is None:
        error = IndexError if name.startswith("arg") else RuntimeError
        hint = "" if error is IndexError else " Specify the reduction dim with the 'dim' argument."
        raise error(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0.{hint}"
        )
    for d in axes:
        if x.ndim and x.shape[d] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")


def share(
    g: Tensor, x: Tensor, out: Tensor, axes: Shape, keepdim: bool, *, nan: bool = False
) -> Tensor:
    """A gradient divided evenly among the elements that are the extreme.

    Where that is NaN, among all that are NaN if `nan`; else NaN goes to every element, as in PyTorch.
    """
    value = spread_back(out.detach(), axes, keepdim, x.shape)
    x = x.detach()
    mask = x == value
    if nan:
        mask = mask | (x != x) & (value != value)
    return spread_back(g, axes, keepdim, x.shape) * mask / sum(mask, axes, keepdim=True)


def without_elements(shape: Shape, like: Tensor, *others: Tensor | None) -> Tensor:
    """No elements, of a shape, computed from tensors all the same: their gradients are zeros."""
    made = like.new_zeros(shape) + like.sum()
    for t in others:
        made = made if t is None else made + t.sum()
    return made


@operation("AmaxBackward0")
def amax_axes(x: Tensor, axes: Shape, keepdim: bool) -> Tensor:
    """The largest elements along axes."""
    return fold(MAX, x, axes, keepdim, x.dtype)


amax_axes.reduces("axes", "keepdim")


@amax_axes.vjp
def _(g, x, out, axes, keepdim):  # type: ignore[no-untyped-def]
    return share(g, x, out, axes, keepdim)


amax_axes.batched_over("axes")


@operation("AminBackward0")
def amin_axes(x: Tensor, axes: Shape, keepdim: bool) -> Tensor:
    """The smallest elements along axes."""
    return fold(MIN, x, axes, keepdim, x.dtype)


amin_axes.reduces("axes", "keepdim")


@amin_axes.vjp
def _(g, x, out, axes, keepdim):  # type: ignore[no-untyped-def]
    return share(g, x, out, axes, keepdim)


amin_axes.batched_over("axes")


@export(method=True, out=True)
@normalizes
@numpy_names
def amax(input: Tensor, dim: Axes = (), keepdim: bool = False) -> Tensor:
    """The largest element along dimensions, or of all; NaN if there is one.

    Differentiable in `input`: equal largest elements share the gradient evenly.

    Args:
        input: any shape and dtype.
        dim: an int or ints; None and () mean all.
        keepdim: leave the reduced dimensions in the shape, with size 1.

    Raises:
        IndexError: if a reduced dimension is empty.

    Example:
        >>> adjit.tensor([[1., 5.], [3., 4.]]).amax(0)
        tensor([3., 5.])
    """
    axes = wrap_dims(dim, input.ndim)
    check_not_empty("amax", input, None if dim == () or dim is None else axes)
    return amax_axes.on(input, axes, keepdim)


@export(method=True, out=True)
@normalizes
@numpy_names
def amin(input: Tensor, dim: Axes = (), keepdim: bool = False) -> Tensor:
    """The smallest element along dimensions, or of all; NaN if there is one.

    Differentiable in `input`: equal smallest elements share the gradient evenly.

    Args:
        input: any shape and dtype.
        dim: an int or ints; None and () mean all.
        keepdim: leave the reduced dimensions in the shape, with size 1.

    Raises:
        IndexError: if a reduced dimension is empty.

    Example:
        >>> adjit.tensor([[1., 5.], [3., 4.]]).amin(0)
        tensor([1., 4.])
    """
    axes = wrap_dims(dim, input.ndim)
    check_not_empty("amin", input, None if dim == () or dim is None else axes)
    return amin_axes.on(input, axes, keepdim)


@operation("AminmaxBackward0", differentiable=(0, 1))
def aminmax_axes(x: Tensor, axes: Shape, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The smallest and the largest elements along axes."""
    return fold(MIN, x, axes, keepdim, x.dtype), fold(MAX, x, axes, keepdim, x.dtype)


aminmax_axes.reduces("axes", "keepdim")


@aminmax_axes.vjp
def _(gs, x, outs, axes, keepdim):  # type: ignore[no-untyped-def]
    low, high = (
        None if g is None else share(g, x, out, axes, keepdim)
        for g, out in zip(gs, outs, strict=True)
    )
    return low if high is None else high if low is None else low + high


aminmax_axes.batched_over("axes")


MinMax = return_type("aminmax", "min max")


@export(method=True, out=True)
@numpy_names
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    """The smallest and the largest element, along a dimension or of all, as `(min, max)`.

    Differentiable.

    Args:
        input: any shape and dtype.
        dim: an int; None for all elements.
        keepdim: leave the reduced dimension in the shape, with size 1.

    Example:
        >>> adjit.aminmax(adjit.tensor([3., 1., 2.])).max
        tensor(3.)
    """
    check_bool("aminmax", "keepdim", keepdim)
    if dim is None:
        axes: Shape = tuple(range(input.ndim))
        if input.numel() == 0:
            raise RuntimeError(
                "aminmax(): cannot compute aminmax over an empty dimension as the operation has "
                "no identity."
            )
    else:
        axes = (wrap_dim(dim, input.ndim),)
        if input.ndim and input.shape[axes[0]] == 0:
            raise IndexError(f"aminmax: Expected reduction dim {axes[0]} to have non-zero size.")
    return MinMax(*aminmax_axes(input, axes, keepdim))


class Extreme(NamedTuple):
    """The kernels that find an extreme and where it is."""

    rows: Any
    columns: Any


ARGMAX = Extreme(kernels.argmax_rows, kernels.argmax_columns)
ARGMIN = Extreme(kernels.argmin_rows, kernels.argmin_columns)


def extreme(how: Extreme, x: Tensor, axis: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The extreme along an axis and its first place."""
    x = x.contiguous()
    shape = reduced_shape(x.shape, (axis,), keepdim)
    sizes = x.shape if x.ndim else (1,)
    outer, length, inner = numel(sizes[:axis]), sizes[axis], numel(sizes[axis + 1 :])
    outputs = [(shape, x.dtype), (shape, dtypes.int64)]
    if inner == 1:
        return launch(
            how.rows, (x,), outputs, bind={"T": x.dtype}, words=(length,), n=outer,
            grain=builtins.max(1, GRAIN // builtins.max(length, 1)),
        )  # fmt: skip
    strips = -(-inner // STRIP)
    taken = builtins.max(length * builtins.min(inner, STRIP), 1)
    return launch(
        how.columns, (x,), outputs, bind={"T": x.dtype}, words=(length, inner, STRIP, strips),
        n=outer * strips, grain=builtins.max(1, GRAIN // taken),
    )  # fmt: skip


def put_back(g: Tensor, places: Tensor, axis: int, keepdim: bool, shape: Shape) -> Tensor:
    """Zeros with a gradient at the places that were selected along an axis."""
    if not shape:
        return g
    if not keepdim:
        g, places = g.unsqueeze(axis), places.unsqueeze(axis)
    return g.new_zeros(shape).scatter(axis, places, g)


@operation("MaxBackward0", differentiable=(0,))
def max_axis(x: Tensor, axis: int, keepdim: bool, shape: Shape) -> tuple[Tensor, Tensor]:
    """The largest elements along an axis and their places."""
    return extreme(ARGMAX, x, axis, keepdim)


max_axis.selects("axis", "keepdim")


@max_axis.vjp
def _(g, outs, axis, keepdim, shape):  # type: ignore[no-untyped-def]
    return put_back(g, outs[1], axis, keepdim, shape)


max_axis.batched_over("axis", shapes=["shape"])


@operation("MinBackward0", differentiable=(0,))
def min_axis(x: Tensor, axis: int, keepdim: bool, shape: Shape) -> tuple[Tensor, Tensor]:
    """The smallest elements along an axis and their places."""
    return extreme(ARGMIN, x, axis, keepdim)


min_axis.selects("axis", "keepdim")


@min_axis.vjp
def _(g, outs, axis, keepdim, shape):  # type: ignore[no-untyped-def]
    return put_back(g, outs[1], axis, keepdim, shape)


min_axis.batched_over("axis", shapes=["shape"])


@operation("MaxBackward1")
def max_all(x: Tensor) -> Tensor:
    """The largest of all elements."""
    return fold(MAX, x, tuple(range(x.ndim)), False, x.dtype)


max_all.reduces()


@max_all.vjp
def _(g, x, out):  # type: ignore[no-untyped-def]
    return share(g, x, out, tuple(range(x.ndim)), False, nan=True)


@max_all.batched
def _(x: Tensor) -> Tensor:
    return amax_axes(x.reshape(x.shape[0], -1), (1,), False)


@operation("MinBackward1")
def min_all(x: Tensor) -> Tensor:
    """The smallest of all elements."""
    return fold(MIN, x, tuple(range(x.ndim)), False, x.dtype)


min_all.reduces()


@min_all.vjp
def _(g, x, out):  # type: ignore[no-untyped-def]
    return share(g, x, out, tuple(range(x.ndim)), False, nan=True)


@min_all.batched
def _(x: Tensor) -> Tensor:
    return amin_axes(x.reshape(x.shape[0], -1), (1,), False)


Max, Min = return_type("max", "values indices"), return_type("min", "values indices")


@export(method=True, out=True)
@numpy_names
def max(
    input: Tensor, dim: int | Tensor | None = None, keepdim: bool = False, *, other: Any = None
) -> Any:
    """The largest element; along a dimension, `(values, indices)`; of two tensors, elementwise.

    `max(x)` shares the gradient evenly among equal largest elements; `max(x, dim)` gives it to
    the element at the index, which is the first of equals. NaN counts as the largest.
    `max(x, other)` is `maximum`.

    Args:
        input: any shape and dtype.
        dim: an int; None for all elements; another tensor stands for `other`.
        keepdim: leave the reduced dimension in the shape, with size 1.
        other: a tensor to compare with, elementwise.

    Raises:
        IndexError: if `dim` is no dimension or is empty.
        RuntimeError: for the largest of no elements.

    Example:
        >>> adjit.tensor([[1., 5.], [3., 4.]]).max(1).indices
        tensor([1, 1])
    """
    if keepdim.__class__ is not bool:
        check_bool("max", "keepdim", keepdim)
    record.check_tensor("max", "input", 1, input)
    other = dim if isinstance(dim, Tensor) else other
    if other is not None:
        return input.maximum(other)
    if dim is None:
        check_not_empty("max", input, None)
        return max_all(input)
    axis = wrap_dim(dim, input.ndim)  # type: ignore[arg-type]
    check_not_empty("max", input, (axis,))
    return Max(*max_axis(input, axis, keepdim, input.shape))


@export(method=True, out=True)
@numpy_names
def min(
    input: Tensor, dim: int | Tensor | None = None, keepdim: bool = False, *, other: Any = None
) -> Any:
    """The smallest element; along a dimension, `(values, indices)`; of two tensors, elementwise.

    The counterpart of `max`; NaN counts as the smallest here.

    Differentiable.

    Args:
        input: any shape and dtype.
        dim: an int; None for all elements; another tensor stands for `other`.
        keepdim: leave the reduced dimension in the shape, with size 1.
        other: a tensor to compare with, elementwise.

    Example:
        >>> adjit.tensor([[1., 5.], [3., 4.]]).min(1).values
        tensor([1., 3.])
    """
    if keepdim.__class__ is not bool:
        check_bool("min", "keepdim", keepdim)
    record.check_tensor("min", "input", 1, input)
    other = dim if isinstance(dim, Tensor) else other
    if other is not None:
        return input.minimum(other)
    if dim is None:
        check_not_empty("min", input, None)
        return min_all(input)
    axis = wrap_dim(dim, input.ndim)  # type: ignore[arg-type]
    check_not_empty("min", input, (axis,))
    return Min(*min_axis(input, axis, keepdim, input.shape))


def place_of_extreme(name: str, how: Extreme, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    """Where an extreme is, along a dimension or in the flattened tensor."""
    if x.dtype is dtypes.bool:
        raise RuntimeError(f"{name}(): does not support bool input")
    x = x.detach()
    if dim is None:
        check_not_empty(name, x, None)
        place = place_axis(x.reshape(-1), how, 0, False)
        return place.reshape((1,) * x.ndim) if keepdim else place
    axis = wrap_dim(dim, x.ndim)
    check_not_empty(name, x, (axis,))
    return place_axis(x, how, axis, keepdim)


@operation("PlaceBackward0", differentiable=())
def place_axis(x: Tensor, how: Extreme, axis: int, keepdim: bool) -> Tensor:
    """Where the extremes along an axis are."""
    return extreme(how, x, axis, keepdim)[1]


place_axis.batched_over("axis")


@export(method=True, out=True)
@numpy_names
@factory
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the largest element along a dimension, or in the flattened tensor, as int64.

    The first of equal elements; the first NaN if there is one.

    Not differentiable.

    Args:
        input: any shape and dtype.
        dim: an int; None for all elements.
        keepdim: leave the reduced dimension in the shape, with size 1.

    Raises:
        IndexError: if there is nothing to choose from.
        RuntimeError: for bool.

    Example:
        >>> adjit.tensor([[1., 5.], [3., 4.]]).argmax()
        tensor(1)
    """
    return place_of_extreme("argmax", ARGMAX, input, dim, keepdim)


@export(method=True, out=True)
@numpy_names
@factory
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the smallest element along a dimension, or in the flattened tensor, as int64.

    The first of equal elements; the first NaN if there is one.

    Not differentiable.

    Args:
        input: any shape and dtype.
        dim: an int; None for all elements.
        keepdim: leave the reduced dimension in the shape, with size 1.

    Example:
        >>> adjit.tensor([[1., 5.], [3., 4.]]).argmin(0)
        tensor([0, 1])
    """
    return place_of_extreme("argmin", ARGMIN, input, dim, keepdim)


def truth(how: ReductionPlan, x: Tensor, dim: Axes, keepdim: bool) -> Tensor:
    """any and all: extremes of bools; uint8 stays uint8, as in PyTorch."""
    x = x.detach()
    result = x.dtype if x.dtype is dtypes.uint8 else dtypes.bool
    x = x if x.dtype is dtypes.bool else x != 0
    if isinstance(dim, Sequence) and not dim:
        return x.to(result, copy=True)
    return truth_axes(x, how, wrap_dims(dim, x.ndim), keepdim).to(result)


@operation("TruthBackward0", differentiable=())
def truth_axes(x: Tensor, how: ReductionPlan, axes: Shape, keepdim: bool) -> Tensor:
    """The largest or the smallest truth value along axes."""
    if x.numel() == 0:
        how = SUM if how is MAX else PROD
    return fold(how, x, axes, keepdim, dtypes.bool)


truth_axes.batched_over("axes")


@export(method=True, out=True)
@numpy_names
@factory
def any(input: Tensor, dim: Axes = None, keepdim: bool = False) -> Tensor:
    """True if any element is true (not zero), along dimensions or at all; False for none.

    Not differentiable.

    Args:
        input: any shape and dtype.
        dim: an int or ints; None means all, () none: each element by itself.
        keepdim: leave the reduced dimensions in the shape, with size 1.

    Example:
        >>> adjit.tensor([[0, 1], [0, 0]]).any(1)
        tensor([ True, False])
    """
    return truth(MAX, input, dim, keepdim)


@export(method=True, out=True)
@numpy_names
@factory
def all(input: Tensor, dim: Axes = None, keepdim: bool = False) -> Tensor:
    """True if all elements are true (not zero), along dimensions or at all; True for none.

    Not differentiable.

    Args:
        input: any shape and dtype.
        dim: an int or ints; None means all, () none: each element by itself.
        keepdim: leave the reduced dimensions in the shape, with size 1.

    Example:
        >>> adjit.tensor([[1, 1], [0, 1]]).all(0)
        tensor([False,  True])
    """
    return truth(MIN, input, dim, keepdim)


# ---------------------------------------------------------------- norms


@operation("LinalgVectorNormBackward0")
def vector_norm_axes(x: Tensor, ord: float, axes: Shape, keepdim: bool) -> Tensor:
    """Vector norms along axes."""
    kind = x.dtype
    if ord != 0 and axes and numel(x.shape[axis] for axis in axes) == 1:
        return x.contiguous().abs().view(reduced_shape(x.shape, axes, keepdim))
    if ord == 0:
        return fold(SUM, x != 0, axes, keepdim, kind)
    if ord == 1:
        return fold(SUM, x.abs(), axes, keepdim, kind)
    if ord == 2:
        return sum_of_squares(x, axes, keepdim).sqrt()
    if math.isinf(ord) and x.numel():
        return fold(MAX if ord > 0 else MIN, x.abs(), axes, keepdim, kind)
    if math.isinf(ord):
        return fold(SUM, x, axes, keepdim, kind)
    return fold(SUM, x.abs().pow(ord), axes, keepdim, kind).pow(1 / ord)


vector_norm_axes.reduces("axes", "keepdim")


@vector_norm_axes.vjp
def _(g, x, out, ord, axes, keepdim):  # type: ignore[no-untyped-def]
    if ord == 0:
        return None
    g, out = (spread_back(t, axes, keepdim, x.shape) for t in (g, out))
    if ord == 1:
        return g * x.sign()
    if ord == 2:
        return g * (x / out).masked_fill(out.detach() == 0, 0)
    if math.isinf(ord):
        size, top = x.detach().abs(), out.detach()
        mask = (size == top) | (size != size) & (top != top)
        return g * x.sign() * mask / sum(mask, axes, keepdim=True)
    # What is masked are the factors that are infinite at 0, not their product: its derivative would be NaN.
    if ord < 1:
        powers = x.abs().pow(ord - 1).masked_fill(x.detach() == 0, 0)
        return x.sign() * powers * (g * out.pow(1 - ord))
    scale = (g / out.pow(ord - 1)).masked_fill(out.detach() == 0, 0)
    if ord < 2:
        return x.sign() * x.abs().pow(ord - 1) * scale
    return x * x.abs().pow(ord - 2) * scale


vector_norm_axes.batched_over("axes")


@export(namespace="linalg", out=True)
@normalizes
@numpy_names
def vector_norm(
    input: Tensor,
    ord: float = 2,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """The vector norm of all elements, or along dimensions.

    `ord` is 2 (the root of the sum of squares), 1 (the sum of sizes), `inf` (the largest size),
    `-inf` (the smallest), 0 (how many are not zero), or any number p: `sum(abs(x)**p)**(1/p)`.
    Differentiable in `input`, with gradient 0 where the norm is 0.

    Raises:
        RuntimeError: for integers, and for a negative or infinite order of no elements.

    Example:
        >>> adjit.linalg.vector_norm(adjit.tensor([3., 4.]))
        tensor(5.)
    """
    check_norm_dtypes("linalg.vector_norm", input, dtype)
    ord = record.plain_number(ord, "linalg.vector_norm", "ord")
    x = input if dtype is None else input.to(dtype)
    axes = wrap_dims(dim, x.ndim)
    if x.numel() == 0 and (ord < 0 or ord == math.inf):
        empty = [d for d in axes if x.ndim and x.shape[d] == 0]
        name = "inf" if ord == math.inf else "-inf" if ord == -math.inf else f"{ord:g}"
        if dim is None:
            raise RuntimeError(
                f"linalg.vector_norm cannot compute the {name} norm on an empty tensor because "
                "the operation does not have an identity"
            )
        if empty:
            raise RuntimeError(
                f"linalg.vector_norm cannot compute the {name} norm on the dimension {empty[0]}"
                "because this dimension is empty and the operation does not have an identity"
            )
    return vector_norm_axes.on(x, float(ord), axes if x.ndim else (), keepdim)


def no_singular_values(ord: Any) -> NotImplementedError:
    """The error for a norm that needs singular values."""
    return NotImplementedError(
        f"linalg.matrix_norm: order {ord} needs singular values, which adjit does not compute yet; use "
        'ord="fro", 1 or inf, or numpy.linalg.norm'
    )


def check_norm_dtypes(name: str, x: Tensor, kind: DType | None) -> None:
    """Refuse integers, and dtypes that cannot hold what is to be measured.

    Raises:
        RuntimeError: with PyTorch's texts.
    """
    own, kind = x.dtype, None if kind is None else dtypes.check(kind)
    if not own.is_floating_point:
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor as input. Got {own.legacy}"
        )
    if kind is not None and not kind.is_floating_point:
        raise RuntimeError(
            f"{name}: dtype should be floating point or complex, but got {kind.legacy}"
        )
    if kind is not None and kind.itemsize < own.itemsize:
        raise RuntimeError(
            f"{name}: the dtype of the input ({own.legacy}) should be convertible without narrowing to the "
            f"specified dtype ({kind.legacy})"
        )


@export(method=True, out=True)
@composed
@numpy_names
def norm(
    input: Tensor,
    p: float | str | None = "fro",
    dim: Axes = None,
    keepdim: bool = False,
    dtype: DType | None = None,
) -> Tensor:
    """The norm of all elements, or along dimensions: `linalg.vector_norm` of order `p`.

    `p` is a number, or "fro" for 2.

    Differentiable.

    Example:
        >>> adjit.tensor([3., 4.]).norm()
        tensor(5.)
    """
    if p == "nuc":
        raise no_singular_values(p)
    if isinstance(p, str):
        if p not in ("fro", "inf", "-inf"):
            raise RuntimeError(f"linalg.matrix_norm: Order {p} not supported.")
        p = 2.0 if p == "fro" else float(p)
    return normalized_by(vector_norm, input, 2.0 if p is None else p, dim, keepdim, dtype=dtype)
