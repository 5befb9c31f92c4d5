"""Sorting, order statistics, distinct elements, searching."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..graph.batching import Batch
from ..graph.composed import composed
from ..graph.export import export
from ..graph.factories import factory
from ..graph.launch import launch
from ..graph.operation import operation
from ..graph.record import is_differentiated
from ..graph.view import as_own
from ..kernels.ops import sort as kernels
from ..shapes import Shape, an_int, called_too, check_bool, numel, numpy_names, wrap_dim
from ..tensor import Tensor
from . import layouts
from .creation import arange
from .joining import stack
from .masks import refuse_traced
from .reduce import (
    GRAIN,
    amax_axes,
    check_not_empty,
    put_back,
    reduced_shape,
    return_type,
    rows_of,
    share,
)

Number = int | float | bool


def moved(x: Tensor, axis: int) -> Tensor:
    """The last axis put back where it came from, in C order."""
    return x if axis >= x.ndim - 1 else x.movedim(-1, axis).contiguous()


def abreast(x: Tensor, axis: int) -> tuple[Tensor, int, int, int] | None:
    """`x` in C order, its rows along an axis, their length and how far apart their elements are, if the CPU
    sorts several of them side by side, wherever they lie; else None."""
    length = x.shape[axis] if x.ndim else 1
    rows = x.numel() // max(length, 1)
    if length > kernels.SHORT_ROW or rows < kernels.FEWEST_ABREAST or x.device.type != "cpu":
        return None
    return x.contiguous(), rows, length, numel(x.shape[axis + 1 :])


def share_abreast(length: int) -> int:
    """How many rows that are sorted side by side are worth a thread."""
    return max(kernels.ABREAST, GRAIN // (16 * length))


def sorted_rows(x: Tensor, axis: int, descending: bool) -> tuple[Tensor, Tensor]:
    """Values in order along an axis, and where they come from."""
    if found := abreast(x, axis):
        dense, count, length, step = found
        return launch(
            kernels.sort_short_rows, (dense,), [(x.shape, x.dtype), (x.shape, dtypes.int64)],
            bind={"T": x.dtype}, words=(length, step, descending), n=count, grain=share_abreast(length),
        )  # fmt: skip
    rows, count, length = rows_of(x, (axis,))
    size = count * length
    values, order = launch(
        kernels.sort_rows, (rows,), [(rows.shape, x.dtype), (rows.shape, dtypes.int64)],
        bind={"T": x.dtype}, words=(length, size, descending), n=count if length else 0,
        scratch=24 * max(size, 1), grain=max(1, GRAIN // (16 * max(length, 1))),
    )  # fmt: skip
    return moved(values, axis), moved(order, axis)


@operation("SortBackward0", differentiable=(0,))
def sort_axis(x: Tensor, axis: int, descending: bool, shape: Shape) -> tuple[Tensor, Tensor]:
    """Values in order along an axis, and where they come from."""
    axes = layouts.axes_in_memory(x)
    found = sorted_rows(
        layouts.as_in_memory(x, axes), axes.index(axis) if axes else axis, descending
    )
    return layouts.put_back(found[0], axes), layouts.put_back(found[1], axes)


sort_axis.selects("axis")


@sort_axis.vjp
def _(g, outs, axis, shape):  # type: ignore[no-untyped-def]
    return g.new_zeros(shape).scatter(axis, outs[1], g) if shape else g


sort_axis.batched_over("axis", shapes=["shape"])


Sort, TopK = return_type("sort", "values indices"), return_type("topk", "values indices")


@export(method=True, out=True)
@numpy_names
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    """The elements in order along a dimension, and their old indices, as `(values, indices)`.

    Always stable: equal elements keep their order. NaN is the largest. Differentiable in `input`.

    Args:
        input: any shape and dtype.
        dim: the dimension; the last unless given.
        descending: from the largest to the smallest.
        stable: accepted for PyTorch's sake.

    Example:
        >>> adjit.tensor([3., 1., 2.]).sort().values
        tensor([1., 2., 3.])
    """
    if descending.__class__ is not bool:
        check_bool("sort", "descending", descending)
    if stable is not None:
        check_bool("sort", "stable", stable)
    return Sort(*sort_axis(input, wrap_dim(dim, input.ndim), descending, input.shape))


@export(method=True, out=True)
@numpy_names
@factory
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The indices that put a tensor in order along a dimension, as int64; stable.

    Args:
        input: any shape and dtype.
        dim: the dimension; the last unless given.
        descending: the largest first.
        stable: accepted; equal elements always keep their order.

    Example:
        >>> adjit.tensor([3., 1., 2.]).argsort()
        tensor([1, 2, 0])
    """
    axis = wrap_dim(dim, input.ndim)
    order: Tensor = sort_axis(input.detach(), axis, bool(descending), input.shape)[1]
    return order


@export(method=True, out=True)
def msort(input: Tensor) -> Tensor:
    """The elements in order along the first dimension. Differentiable in `input`.

    Example:
        >>> adjit.msort(adjit.tensor([[3., 1.], [2., 4.]]))
        tensor([[2., 1.],
                [3., 4.]])
    """
    return sort(input, 0).values


@operation("TopkBackward0", differentiable=(0,))
def topk_axis(
    x: Tensor, k: int, axis: int, largest: bool, in_order: bool, shape: Shape
) -> tuple[Tensor, Tensor]:
    """The k largest or smallest elements along an axis, and their places."""
    if x.ndim == 0:
        return x.clone(), x.new_zeros((), dtype=dtypes.int64)
    rows, count, length = rows_of(x, (axis,))
    to = (*rows.shape[:-1], k)
    few = k <= kernels.FEW
    values, places = launch(
        kernels.first_rows if few else kernels.topk_rows, (rows,),
        [(to, x.dtype), (to, dtypes.int64)], bind={"T": x.dtype}, words=(length, k, largest),
        n=count if k else 0, grain=max(1, GRAIN // (8 * max(length, 1))),
    )  # fmt: skip
    if in_order and not few:
        values, order = sorted_rows(values, values.ndim - 1, largest)
        places = places.gather(-1, order)
    return moved(values, axis), moved(places, axis)


topk_axis.selects("axis")


@topk_axis.vjp
def _(g, outs, axis, shape):  # type: ignore[no-untyped-def]
    return g.new_zeros(shape).scatter(axis, outs[1], g) if shape else g


topk_axis.batched_over("axis", shapes=["shape"])


@export(method=True, out=True)
@numpy_names
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The k largest or smallest elements along a dimension, as `(values, indices)`.

    NaN is the largest; of equal elements at the limit the first are taken. Differentiable in
    `input`. The rows are not sorted, only what is taken, so a small k costs little.

    Args:
        input: any shape and dtype.
        k: how many.
        dim: the dimension; the last unless given.
        largest: the largest, else the smallest.
        sorted: whether what is taken has to be in order.

    Raises:
        RuntimeError: if there are no k elements, and for bool.

    Example:
        >>> adjit.tensor([3., 1., 2.]).topk(2).values
        tensor([3., 2.])
    """
    if largest.__class__ is not bool:
        check_bool("topk", "largest", largest)
    if sorted.__class__ is not bool:
        check_bool("topk", "sorted", sorted)
    if input.dtype is dtypes.bool:
        raise RuntimeError("topk does not support bool dtypes on CPU")
    k = an_int("topk", "k", 2, k)
    axis = wrap_dim(dim, input.ndim)
    if not 0 <= k <= (input.shape[axis] if input.ndim else 1):
        raise RuntimeError("selected index k out of range")
    return TopK(*topk_axis(input, k, axis, largest, sorted, input.shape))


# ---------------------------------------------------------------- order statistics


def ranked(x: Tensor, axis: int, keepdim: bool, rank: int) -> tuple[Tensor, Tensor]:
    """The element of a rank along an axis and its first place; negative ranks are medians."""
    shape = reduced_shape(x.shape, (axis,), keepdim)
    if found := abreast(x, axis):
        x, rows, length, step = found
        return launch(
            kernels.kth_short_rows, (x,), [(shape, x.dtype), (shape, dtypes.int64)],
            bind={"T": x.dtype}, words=(length, step, rank), n=rows, grain=share_abreast(length),
        )  # fmt: skip
    x, rows, length = rows_of(x, (axis,))
    return launch(
        kernels.kth_rows, (x,), [(shape, x.dtype), (shape, dtypes.int64)],
        bind={"T": x.dtype}, words=(length, rank), n=rows,
        grain=max(1, GRAIN // (8 * length)),
    )  # fmt: skip


MEDIAN, NANMEDIAN = -1, -2  # ranks of kth_rows


@operation("MedianBackward0")
def median_all(x: Tensor) -> Tensor:
    """The lower median of all elements."""
    return ranked(x.reshape(-1), 0, False, MEDIAN)[0]


median_all.reduces()


@median_all.vjp
def _(g, x, out):  # type: ignore[no-untyped-def]
    return share(g, x, out, tuple(range(x.ndim)), False, nan=True)


@median_all.batched
def _(x: Tensor) -> Tensor:
    rows = x.reshape(x.shape[0], -1)
    return shared_value(rows, median_axis(rows.detach(), 1, True, rows.shape)[0])


def shared_value(rows: Tensor, found: Tensor) -> Tensor:
    """The value found in each row; the elements that have it share its gradient."""
    if not rows.dtype.is_floating_point:
        return found.squeeze(1)
    same = (rows == found) | (rows != rows) & (found != found)
    return amax_axes(rows.masked_fill(same.logical_not(), -math.inf), (1,), False)


@operation("MedianBackward1", differentiable=(0,))
def median_axis(x: Tensor, axis: int, keepdim: bool, shape: Shape) -> tuple[Tensor, Tensor]:
    """The lower medians along an axis and their places."""
    return ranked(x, axis, keepdim, MEDIAN)


median_axis.selects("axis", "keepdim")


@median_axis.vjp
def _(g, outs, axis, keepdim, shape):  # type: ignore[no-untyped-def]
    return put_back(g, outs[1], axis, keepdim, shape)


median_axis.batched_over("axis", shapes=["shape"])


@operation("NanmedianBackward0")
def nanmedian_all(x: Tensor) -> Tensor:
    """The lower median of what is no NaN."""
    return ranked(x.reshape(-1), 0, False, NANMEDIAN)[0]


nanmedian_all.reduces()


@nanmedian_all.vjp
def _(g, x, out):  # type: ignore[no-untyped-def]
    return share(g, x, out, tuple(range(x.ndim)), False, nan=True)


@nanmedian_all.batched
def _(x: Tensor) -> Tensor:
    rows = x.reshape(x.shape[0], -1)
    return shared_value(rows, nanmedian_axis(rows.detach(), 1, True, rows.shape)[0])


@operation("NanmedianBackward1", differentiable=(0,))
def nanmedian_axis(x: Tensor, axis: int, keepdim: bool, shape: Shape) -> tuple[Tensor, Tensor]:
    """The lower medians of what is no NaN, along an axis, and their places."""
    return ranked(x, axis, keepdim, NANMEDIAN)


nanmedian_axis.selects("axis", "keepdim")


@nanmedian_axis.vjp
def _(g, outs, axis, keepdim, shape):  # type: ignore[no-untyped-def]
    return put_back(g, outs[1], axis, keepdim, shape)


nanmedian_axis.batched_over("axis", shapes=["shape"])


def median_of_nothing(x: Tensor) -> Tensor:
    """NaN, or what C makes of it in other dtypes: True, 0, or the smallest of 32 bits and more."""
    if x.dtype.is_floating_point:
        return x.sum() + math.nan
    if x.dtype is dtypes.bool:
        return x.new_full((), True)
    return x.new_full((), dtypes.iinfo(x.dtype).min if x.dtype.itemsize >= 4 else 0)


def median_of(median: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A median of all elements, if there are any."""
    if not x.numel():
        return median_of_nothing(x)
    no_bool("median_cpu", x)
    return median(x)


def axis_of_median(x: Tensor, dim: int) -> int:
    """The axis that medians are taken along, checked."""
    axis = wrap_dim(dim, x.ndim)
    check_not_empty("median", x, (axis,))
    no_bool("median_out", x)
    return axis


Median = return_type("median", "values indices")
NanMedian = return_type("nanmedian", "values indices")
Mode = return_type("mode", "values indices")
KthValue = return_type("kthvalue", "values indices")


def no_bool(kernel: str, x: Tensor) -> None:
    """Order statistics are not defined for bool."""
    if x.dtype is dtypes.bool:
        raise NotImplementedError(f"\"{kernel}\" not implemented for 'Bool'")


@export(method=True, out=True)
@numpy_names
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of all elements; along a dimension, `(values, indices)`.

    NaN if there is one, and for no elements. Differentiable in `input`.

    Args:
        input: any shape and dtype.
        dim: an int; None for all elements.
        keepdim: leave the reduced dimension in the shape, with size 1.

    Example:
        >>> adjit.tensor([3., 1., 2., 4.]).median()
        tensor(2.)
    """
    if keepdim.__class__ is not bool:
        check_bool("median", "keepdim", keepdim)
    if dim is None:
        return median_of(median_all, input)
    axis = axis_of_median(input, dim)
    return Median(*median_axis(input, axis, keepdim, input.shape))


@export(method=True, out=True)
@numpy_names
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of what is no NaN; along a dimension, `(values, indices)`.

    Differentiable in `input`.

    Args:
        input: any shape and dtype.
        dim: an int; None for all elements.
        keepdim: leave the reduced dimension in the shape, with size 1.

    Example:
        >>> adjit.tensor([3., float("nan"), 2., 4.]).nanmedian()
        tensor(3.)
    """
    if keepdim.__class__ is not bool:
        check_bool("nanmedian", "keepdim", keepdim)
    if dim is None:
        return median_of(nanmedian_all, input)
    axis = axis_of_median(input, dim)
    return NanMedian(*nanmedian_axis(input, axis, keepdim, input.shape))


@operation("KthvalueBackward0", differentiable=(0,))
def kth_axis(x: Tensor, rank: int, axis: int, keepdim: bool, shape: Shape) -> tuple[Tensor, Tensor]:
    """The element of a rank along an axis and its place."""
    return ranked(x, axis, keepdim, rank)


kth_axis.selects("axis", "keepdim")


@kth_axis.vjp
def _(g, outs, axis, keepdim, shape):  # type: ignore[no-untyped-def]
    return put_back(g, outs[1], axis, keepdim, shape)


kth_axis.batched_over("axis", shapes=["shape"])


@export(method=True, out=True)
@numpy_names
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The k-th smallest element along a dimension, counted from 1, as `(values, indices)`.

    NaN counts as the largest. Differentiable in `input`.

    Args:
        input: any shape and dtype.
        k: counted from 1.
        dim: the dimension; the last unless given.
        keepdim: leave the reduced dimension in the shape, with size 1.

    Raises:
        RuntimeError: if there is no k-th element.

    Example:
        >>> adjit.tensor([3., 1., 2.]).kthvalue(2).values
        tensor(2.)
    """
    if keepdim.__class__ is not bool:
        check_bool("kthvalue", "keepdim", keepdim)
    k = an_int("kthvalue", "k", 2, k)
    axis = wrap_dim(dim, input.ndim)
    check_not_empty("kthvalue", input, (axis,))
    if not 1 <= k <= (input.shape[axis] if input.ndim else 1):
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {axis}")
    no_bool("kthvalue_cpu", input)
    return KthValue(*kth_axis(input, k - 1, axis, keepdim, input.shape))


@operation("ModeBackward0", differentiable=(0,))
def mode_axis(x: Tensor, axis: int, keepdim: bool, shape: Shape) -> tuple[Tensor, Tensor]:
    """The commonest elements along an axis and their last places."""
    target = reduced_shape(shape, (axis,), keepdim)
    if found := abreast(x, axis):
        x, rows, length, step = found
        return launch(
            kernels.mode_short_rows, (x,), [(target, x.dtype), (target, dtypes.int64)],
            bind={"T": x.dtype}, words=(length, step), n=rows, grain=share_abreast(length),
        )  # fmt: skip
    x, rows, length = rows_of(x, (axis,))
    size = rows * length
    values, order = launch(
        kernels.sort_rows, (x,), [((size,), x.dtype), ((size,), dtypes.int64)],
        bind={"T": x.dtype}, words=(length, size, 0), n=rows, scratch=24 * size,
        grain=max(1, GRAIN // (16 * length)),
    )  # fmt: skip
    return launch(
        kernels.mode_rows, (values, order), [(target, x.dtype), (target, dtypes.int64)],
        bind={"T": x.dtype}, words=(length,), n=rows, grain=max(1, GRAIN // length),
    )  # fmt: skip


mode_axis.selects("axis", "keepdim")


@mode_axis.vjp
def _(g, outs, axis, keepdim, shape):  # type: ignore[no-untyped-def]
    return put_back(g, outs[1], axis, keepdim, shape)


mode_axis.batched_over("axis", shapes=["shape"])


@export(method=True, out=True)
@numpy_names
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The commonest element along a dimension and its last index, as `(values, indices)`.

    The smallest of equally common elements; a NaN equals no other one. Differentiable in `input`.

    Args:
        input: any shape and dtype.
        dim: the dimension; the last unless given.
        keepdim: leave the reduced dimension in the shape, with size 1.

    Example:
        >>> adjit.tensor([2, 1, 2, 3]).mode().values
        tensor(2)
    """
    if keepdim.__class__ is not bool:
        check_bool("mode", "keepdim", keepdim)
    axis = wrap_dim(dim, input.ndim)
    check_not_empty("mode", input, (axis,))
    return Mode(*mode_axis(input, axis, keepdim, input.shape))


# ---------------------------------------------------------------- distinct elements


@operation("NotImplemented")
def undifferentiated(input: Tensor, values: Tensor, name: str) -> Tensor:
    """What an op without a derivative made of `input`, with a history that ends in an error."""
    return values.clone()


@undifferentiated.vjp
def _(g: Tensor, name: str) -> Any:
    raise NotImplementedError(f"the derivative for '{name}' is not implemented.")


undifferentiated.batched_as_body()


def outcome(
    name: str,
    input: Tensor,
    found: tuple[Tensor, Tensor, Tensor],
    return_inverse: bool,
    return_counts: bool,
) -> Any:
    """What was asked for: one tensor, or a tuple. `name` is PyTorch's for what has no derivative."""
    values, inverse, counts = found
    asked = [undifferentiated(input, values, name) if is_differentiated(input) else values]
    if return_inverse:
        asked.append(inverse)
    if return_counts:
        asked.append(counts)
    return tuple(asked) if len(asked) > 1 else asked[0]


def distinct_along(x: Tensor, dim: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct elements, or slices along a dimension, in order. With them each record's place among these, and
    how often they are there."""
    axis = None if dim is None else wrap_dim(dim, x.ndim)
    x = x.detach()
    firsts, inverse, counts, number = runs_of(x, axis)
    found = int(number.item())
    if axis is None or not x.ndim:
        values = x.reshape(-1).index_select(0, firsts[:found])
    else:
        values = as_own(x.movedim(axis, 0).index_select(0, firsts[:found]).movedim(0, axis))
    return values, inverse, counts[:found]


def records_of(x: Tensor, axis: int | None) -> tuple[Tensor, int, int]:
    """All elements, or the slices along an axis, one behind the other; how many, and the elements of one."""
    if axis is None:
        return x.reshape(-1).contiguous(), x.numel(), 1
    rows = (x.movedim(axis, 0) if x.ndim else x.reshape(1)).contiguous()
    records, width = rows.shape[0], numel(rows.shape[1:])
    if width == 0 and records:
        raise RuntimeError(
            "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied"
        )
    return rows, records, width


@composed
def runs_of(x: Tensor, axis: int | None) -> tuple[Tensor, ...]:
    """The first place of each run of equal elements or slices in order, each one's run, the runs' lengths, and
    how many there are."""
    rows, records, width = records_of(x, axis)
    if axis is None:
        order = sorted_rows(rows, 0, False)[1]
    else:
        order = launch(
            kernels.sort_records, (rows,), [((records,), dtypes.int64)], bind={"T": x.dtype},
            words=(records, width), n=1, scratch=8 * max(records, 1),
        )  # fmt: skip
    firsts, inverse, counts, number = launch(
        kernels.distinct, (rows, order),
        [((records,), dtypes.int64)] * 3 + [((1,), dtypes.int64)],
        bind={"T": x.dtype}, words=(records, width), n=1,
    )  # fmt: skip
    if axis is None:
        inverse = inverse.reshape(x.shape)
    return firsts, inverse, counts, number


@composed
def neighbours_of(x: Tensor, axis: int | None, wanted: bool) -> tuple[Tensor, ...]:
    """The elements or slices that differ from the one before, each one's run and the runs' lengths if wanted,
    and how many there are."""
    rows, records, width = records_of(x, axis)
    told = records if wanted else 0
    values, inverse, counts, number = launch(
        kernels.neighbours, (rows,),
        [(rows.shape, x.dtype), ((told,), dtypes.int64), ((told,), dtypes.int64), ((1,), dtypes.int64)],
        bind={"T": x.dtype}, words=(records, width, wanted), n=1,
    )  # fmt: skip
    if axis is None and wanted:
        inverse = inverse.reshape(x.shape)
    return values, inverse, counts, number


@export(method=True)
@numpy_names
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements, or the distinct slices along a dimension, in order.

    The shape depends on the values, so what was recorded is computed. Not differentiable: sending a gradient
    back is an error.

    Args:
        input: any shape and dtype; two NaN are distinct.
        sorted: accepted for PyTorch's sake; the result is always sorted.
        return_inverse: also give, for each element, where it is in the result.
        return_counts: also give how often each is there.
        dim: compare slices along this dimension; all elements unless given.

    Example:
        >>> adjit.tensor([3, 1, 3]).unique(return_counts=True)
        (tensor([1, 3]), tensor([1, 2]))
    """
    name = "_unique2" if dim is None else "unique_dim"
    check_bool(name, "sorted", sorted)
    check_bool(name, "return_inverse", return_inverse)
    check_bool(name, "return_counts", return_counts)
    refuse_traced(name, input)
    found = distinct_along(input, dim)
    return outcome(name, input, found, return_inverse, return_counts)


@export(method=True)
@numpy_names
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The elements, or slices along a dimension, without those equal to the one before.

    Takes what `unique` takes.

    Example:
        >>> adjit.unique_consecutive(adjit.tensor([1, 1, 2, 1]))
        tensor([1, 2, 1])
    """
    check_bool("unique_consecutive", "return_inverse", return_inverse)
    check_bool("unique_consecutive", "return_counts", return_counts)
    refuse_traced("unique_consecutive" if dim is None else "unique_dim_consecutive", input)
    axis = None if dim is None else wrap_dim(dim, input.ndim)
    values, inverse, counts, number = neighbours_of(
        input.detach(), axis, return_inverse or return_counts
    )
    runs = int(number.item())
    values = values[:runs].movedim(0, axis) if axis and input.ndim else values[:runs]
    found = as_own(values), inverse, counts[:runs]
    return outcome("unique_consecutive", input, found, return_inverse, return_counts)


# ---------------------------------------------------------------- searching


@export(out=True)
@factory
@called_too(self="input")
def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor | Number,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Find where values would be put into sorted rows so that they stay sorted.

    Not differentiable.

    Args:
        sorted_sequence: (..., n), ascending in its last dimension; or (n,) for any `input`.
        input: (..., m), or a number.
        out_int32: give int32 instead of int64.
        right: after equal elements instead of before them; `side="right"` says the same.
        sorter: the indices that sort `sorted_sequence`, if it is not sorted.

    Example:
        >>> adjit.searchsorted(adjit.tensor([1, 3, 5]), adjit.tensor([3, 4]))
        tensor([1, 2])
    """
    if side is not None:
        if side not in ("left", "right"):
            raise RuntimeError(
                f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}"
            )
        if right and side == "left":
            raise RuntimeError(
                "torch.searchsorted(): side and right can't be set to opposites, got side of left "
                "while right was True"
            )
        right = side == "right"
    rows = sorted_sequence.detach()
    if not isinstance(input, Tensor):
        if rows.ndim != 1:
            raise RuntimeError(
                "torch.searchsorted(): input value can be a scalar only when boundaries tensor "
                f"dimension is 1, but we got boundaries tensor dim({rows.ndim}) and input value's "
                "dim(0) numel(1)"
            )
        values = rows.new_full((), input, dtype=dtypes.result_type(rows, input))
    else:
        values = input.detach()
    if rows.ndim == 0:
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should have positive dimension, but got 0 "
            "dimension"
        )
    if rows.ndim > 1 and rows.shape[:-1] != values.shape[:-1]:
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 "
            "dimensions of boundaries tensor and input value tensor must match, but we got "
            f"boundaries tensor {list(rows.shape)} and input value tensor {list(values.shape)}"
        )
    if sorter is not None:
        rows = rows.gather(-1, sorter)
    kind = dtypes.promote_types(rows.dtype, values.dtype)
    rows, values = rows.to(kind).contiguous(), values.to(kind).contiguous()
    out: Tensor = places_in(rows, values, right)
    return out.to(dtypes.int32) if out_int32 else out


@operation("SearchsortedBackward0", differentiable=())
def places_in(rows: Tensor, values: Tensor, right: bool) -> Tensor:
    """Where values would be put into sorted rows."""
    per_row = values.shape[-1] if values.ndim else 1
    return launch(
        kernels.search_rows, (rows, values), [(values.shape, dtypes.int64)], bind={"T": rows.dtype},
        words=(rows.shape[-1], per_row, numel(rows.shape[:-1]), right), n=values.numel(), grain=512,
    )  # fmt: skip


@places_in.batched
def _(batch: Batch, rows: Tensor, values: Tensor, right: bool) -> Tensor:
    given = batch.full(values).contiguous()
    if rows.ndim == 1 and not batch.has(rows):
        return batch.wrapped(places_in(rows, given, right))
    flat = given.reshape(batch.size, -1) if rows.ndim == 1 else given
    made = places_in(batch.full(rows).contiguous(), flat, right)
    return batch.wrapped(made.reshape(given.shape))


@export(out=True)
@factory
def bucketize(
    input: Tensor | Number, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The bucket of each value: the index of the first boundary that is not below it.

    Not differentiable.

    Args:
        input: any shape, or a number.
        boundaries: (n,), ascending.
        out_int32: give int32 instead of int64.
        right: buckets hold their left boundary instead of their right one.

    Example:
        >>> adjit.bucketize(adjit.tensor([0., 2., 9.]), adjit.tensor([1., 3.]))
        tensor([0, 1, 2])
    """
    if boundaries.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def _convert_indices_from_coo_to_csr(
    input: Tensor, size: int, *, out_int32: bool = False
) -> Tensor:
    """Where each row begins among the elements of a sparse matrix, from their rows.

    Not differentiable.

    Args:
        input: (n,), the row of each element, ascending and below `size`, which nobody checks.
        size: how many rows there are.
        out_int32: give int32 instead of int64.

    Returns:
        (size + 1,): elements `out[k]` to `out[k + 1]` are in row k.

    Raises:
        TypeError: if the rows are neither int32 nor int64.
        ValueError: if they have not one dimension.

    Example:
        >>> adjit._convert_indices_from_coo_to_csr(adjit.tensor([0, 0, 2]), 4)
        tensor([0, 2, 2, 3, 3])
    """
    _check_places("_convert_indices_from_coo_to_csr", input)
    rows = arange(size + 1, dtype=input.dtype, device=input.device)
    return searchsorted(input, rows, out_int32=out_int32)


def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """The row and the column of each element of a sparse matrix, from where rows begin.

    Not differentiable.

    Args:
        crow_indices: (rows + 1,), where each row begins among the elements, ascending.
        col_indices: (n,), the column of each element.
        out_int32: give int32 instead of int64.
        transpose: give columns before rows.

    Returns:
        (2, n).

    Raises:
        TypeError: if they are neither int32 nor int64.
        ValueError: if they have not one dimension.

    Example:
        >>> starts, columns = adjit.tensor([0, 2, 2, 3]), adjit.tensor([1, 3, 0])
        >>> adjit._convert_indices_from_csr_to_coo(starts, columns)
        tensor([[0, 0, 2],
                [1, 3, 0]])
    """
    for places in (crow_indices, col_indices):
        _check_places("_convert_indices_from_csr_to_coo", places)
    elements = arange(len(col_indices), dtype=crow_indices.dtype, device=crow_indices.device)
    rows = searchsorted(crow_indices[1:], elements, right=True, out_int32=out_int32)
    columns = col_indices.to(rows.dtype)
    return stack([columns, rows] if transpose else [rows, columns])


def _check_places(name: str, places: Tensor) -> None:
    if places.dtype not in (dtypes.int32, dtypes.int64):
        raise TypeError(f"{name}: expected int32 or int64 indices, got {places.dtype}")
    if places.ndim != 1:
        raise ValueError(f"{name}: expected indices of one dimension, got {places.ndim}")
