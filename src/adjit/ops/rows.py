"""Slices that a vector of indices names, and elements at flat places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..graph import record
from ..graph.batching import Batch
from ..graph.composed import composed
from ..graph.export import export
from ..graph.normalized import normalizes
from ..graph.operation import operation
from ..shapes import Shape, numpy_names, wrap_dim
from ..tensor import Tensor
from . import creation, layouts
from .arithmetic import checked_alpha
from .grids import gather, scatter, scatter_add, scatter_join
from .index import put, read
from .tables import (
    IN_BRACKETS,
    IN_FLAT,
    IN_GRID,
    IN_SELF,
    at_least_1d,
    out_of_bounds,
    read_rows,
    write_rows,
)

# --------------------------------------------------------------------------- rows along one axis


def axis_and_index(name: str, x: Tensor, dim: int, index: Tensor) -> tuple[Tensor, int, Tensor]:
    """`x` with at least one axis, the axis, and the index as a vector."""
    axis = wrap_dim(dim, x.ndim)
    if index.ndim > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector")
    return at_least_1d(x), axis, at_least_1d(index)


def check_integer(name: str, index: Tensor) -> None:
    """Raise if an index is no int32 or int64."""
    if index.dtype not in (dtypes.int32, dtypes.int64):
        raise RuntimeError(f"{name}(): Expected dtype int32 or int64 for index")


@export(method=True, out=True)
@normalizes
@numpy_names
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of `input` along an axis that a vector of indices names.

    Args:
        input: any tensor.
        dim: the axis.
        index: int32 or int64 vector, or 0-d; no negative numbers.

    Returns:
        A tensor with `len(index)` slices along `dim`. Differentiable in `input`.

    Raises:
        IndexError: if an index is out of bounds, or `index` is no vector.

    Example:
        >>> adjit.index_select(adjit.tensor([5., 6., 7.]), 0, adjit.tensor([2, 0]))
        tensor([7., 5.])
    """
    record.check_tensor("index_select", "index", 3, index)
    check_integer("index_select", index)
    x, axis, places = axis_and_index("index_select", input, dim, index)
    if not input.ndim:
        return select_rows(x, axis, places, x.shape[axis]).reshape(())
    return select_rows.on(x, axis, places, x.shape[axis])


@operation("IndexSelectBackward0")
def select_rows(x: Tensor, dim: int, index: Tensor, size: int) -> Tensor:
    """Slices along `dim`, which has this size."""
    return read_rows(x, [dim], [index], IN_SELF, wrap=False)


select_rows.linear("x")


@select_rows.vjp
def _(g: Tensor, dim: int, index: Tensor, size: int) -> Any:
    shape = [size if d == dim else n for d, n in enumerate(g.shape)]
    return add_rows(g.new_zeros(shape), dim, index, g, 1), None


@select_rows.batched
def _(batch: Batch, x: Tensor, dim: int, index: Tensor, size: int) -> Tensor:
    if batch.has(index):
        return gather(x, dim, along(index, dim, other_sizes(x, dim)))
    return batch.wrapped(select_rows(batch.full(x), dim + 1, index, size))


def along(index: Tensor, dim: int, others: Sequence[int]) -> Tensor:
    """A vector of indices along an axis, for all indices of the others."""
    lead = index.reshape(-1, *[1] * (len(others) - dim))
    return lead.expand(*others[:dim], index.numel(), *others[dim:])


def checked_rows(
    name: str, input: Tensor, dim: int, index: Tensor, source: Tensor
) -> tuple[Tensor, int, Tensor, Tensor]:
    """What `axis_and_index` gives, and the slices that go there.

    Raises:
        RuntimeError: if there is not a slice for each index, or sizes or dtypes do not fit.
    """
    if index.ndim > 1:
        raise IndexError(
            f"{name}(): Index is supposed to be a vector, but got dim: {index.ndim} with "
            f"type: {index.dtype.legacy} and size: {list(index.shape)}"
        )
    if index.dtype not in (dtypes.int32, dtypes.int64):
        raise RuntimeError(
            f"{name}(): Expected dtype int32/int64 for index but got: {index.dtype.legacy}"
        )
    if source.dtype is not input.dtype:
        raise RuntimeError(
            f"{name}(): self ({input.dtype.legacy}) and source ({source.dtype.legacy}) must "
            "have the same scalar type"
        )
    x, axis, places = axis_and_index(name, input, dim, index)
    rows = source if source.ndim else source.reshape(1)
    if rows.ndim <= axis or places.numel() != rows.shape[axis]:
        raise RuntimeError(
            f"{name}(): Number of indices ({places.numel()}) should be equal to "
            f"source.size(dim): ({rows.shape[axis] if rows.ndim > axis else 1}), for dim: {axis}"
        )
    if other_sizes(x, axis) != other_sizes(rows, axis):
        raise RuntimeError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. "
            f"Got self.shape = {list(x.shape)} source.shape = {list(rows.shape)}"
        )
    return x, axis, places, rows


@export(method=True, out=True, inplace=True)
@composed
@numpy_names
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """`input` with `alpha * source` added to the slices that a vector of indices names.

    Args:
        input: any tensor.
        dim: the axis.
        index: int32 or int64 vector; an index may occur more than once.
        source: as `input`, with `len(index)` slices along `dim`.
        alpha: a number.

    Returns:
        A tensor like `input`. Differentiable in `input` and `source`.

    Raises:
        RuntimeError: if an index is out of bounds, or sizes or dtypes do not fit.

    Example:
        >>> adjit.zeros(3).index_add(0, adjit.tensor([0, 0, 2]), adjit.tensor([1., 2., 3.]))
        tensor([3., 0., 3.])
    """
    x, axis, places, rows = checked_rows("index_add_", input, dim, index, source)
    alpha = checked_alpha(alpha, input, source, "index_add_")
    if not input.ndim:
        return add_rows(x, axis, places, rows, alpha).reshape(())
    return add_rows.on(x, axis, places, rows, alpha)


def other_sizes(x: Tensor, axis: int) -> list[int]:
    """The sizes of all axes but one."""
    return [size for d, size in enumerate(x.shape) if d != axis]


@operation("IndexAddBackward0")
def add_rows(x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Any) -> Tensor:
    """`x` with `alpha * source` added to slices along `dim`."""
    values = source if alpha == 1 else (source * alpha).to(x.dtype)
    return write_rows(x, [dim], [index], values, IN_GRID, add=True, wrap=False)


add_rows.linear("x", "source")


@add_rows.vjp
def _(g: Tensor, dim: int, index: Tensor, alpha: Any) -> Any:
    rows = select_rows(g, dim, index, g.shape[dim])
    return g, None, rows if alpha == 1 else rows * alpha


@add_rows.batched
def _(batch: Batch, x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Any) -> Tensor:
    if batch.has(index):
        places = along(index, dim, other_sizes(x, dim))
        return scatter_add(x, dim, places, source if alpha == 1 else source * alpha)
    return batch.wrapped(add_rows(batch.full(x), dim + 1, index, batch.full(source), alpha))


@export(method=True, out=True, inplace=True)
@composed
@numpy_names
def index_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """`input` with slices of `source` reduced into those that a vector of indices names.

    Args:
        input: any tensor.
        dim: the axis.
        index: int32 or int64 vector; an index may occur more than once.
        source: as `input`, with `len(index)` slices along `dim`.
        reduce: `"prod"`, `"mean"`, `"amax"` or `"amin"`.
        include_self: whether the slice of `input` takes part.

    Returns:
        A tensor like `input`. Differentiable in `input` and `source`.

    Raises:
        RuntimeError: if an index is out of bounds, sizes or dtypes do not fit, or `reduce` is unknown.

    Example:
        >>> adjit.zeros(3).index_reduce(0, adjit.tensor([0, 0, 2]), adjit.tensor([1., 2., 3.]), "amax")
        tensor([2., 0., 3.])
    """
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(
            f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}."
        )
    x, axis, places, rows = checked_rows("index_reduce_", input, dim, index, source)
    grid = along(places, axis, other_sizes(rows, axis))
    if not input.ndim:  # a view of it would be written over by the method that writes in place
        x = x.clone()
    out = scatter_join(x, axis, grid, rows, reduce, bool(include_self))
    return out if input.ndim else out.reshape(())


@export(method=True, out=True, inplace=True)
@composed
@numpy_names
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """`input` with the slices that a vector of indices names replaced by those of `source`.

    Args:
        input: any tensor.
        dim: the axis.
        index: int64 vector; of two equal indices the last counts.
        source: of the same dtype, with `len(index)` slices along `dim`.

    Returns:
        A tensor like `input`. Differentiable in `input` and `source`.

    Raises:
        IndexError: if an index is out of bounds, or there are not as many as slices.
        RuntimeError: if shapes or dtypes do not fit.

    Example:
        >>> adjit.zeros(3).index_copy(0, adjit.tensor([1]), adjit.ones(1))
        tensor([0., 1., 0.])
    """
    if index.dtype is not dtypes.int64:
        raise RuntimeError("index_copy_(): Expected a long tensor for index, but got "
                           f"{index.dtype.legacy}")  # fmt: skip
    if source.dtype is not input.dtype:
        raise RuntimeError(
            "index_copy_(): self and source expected to have the same dtype, but got (self) "
            f"{input.dtype.legacy} and (source) {source.dtype.legacy}"
        )
    x, axis, places = axis_and_index("index_copy_", input, dim, index)
    rows = source if source.ndim else source.reshape(1)
    if rows.ndim == x.ndim and other_sizes(x, axis) != other_sizes(rows, axis):
        raise RuntimeError(
            "index_copy_(): Source/destination tensor must have same slice shapes. Destination "
            f"slice shape: {spelled(other_sizes(x, axis))} at dimension {axis} and source slice "
            f"shape: {spelled(other_sizes(rows, axis))} at dimension 0."
        )
    if rows.ndim != x.ndim:
        raise IndexError(
            "index_copy_(): When source and destination are not scalars, their dimensionality must "
            f"match. Source dimensionality ({rows.ndim}), destination dimensionality ({x.ndim})"
        )
    if places.numel() != rows.shape[axis]:
        raise IndexError(
            f"index_copy_(): Number of indices ({places.numel()}) should be equal to "
            f"source.size(dim) ({rows.shape[axis]})"
        )
    out = copy_rows(x, axis, places, rows)
    return out if input.ndim else out.reshape(())


def spelled(sizes: Sequence[int]) -> str:
    """Sizes as PyTorch's C++ prints them."""
    return " ".join(map(str, sizes))


IN_COPY = out_of_bounds(IndexError, "index_copy_(): ")


@operation("IndexCopyBackward0")
def copy_rows(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """`x` with slices along `dim` replaced."""
    return write_rows(x, [dim], [index], source, IN_COPY, wrap=False)


copy_rows.linear("x", "source")


@copy_rows.vjp
def _(g: Tensor, dim: int, index: Tensor) -> Any:
    return fill_rows(g, dim, index, 0), None, select_rows(g, dim, index, g.shape[dim])


@copy_rows.batched
def _(batch: Batch, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    if batch.has(index):
        return scatter(x, dim, along(index, dim, other_sizes(x, dim)), source)
    return batch.wrapped(copy_rows(batch.full(x), dim + 1, index, batch.full(source)))


@export(method=True, out=True, inplace=True)
@composed
@numpy_names
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """`input` with the slices that a vector of indices names filled with a number.

    Args:
        input: any tensor.
        dim: the axis.
        index: int64 vector; negative numbers count from the end.
        value: a number or a 0-d tensor.

    Returns:
        A tensor like `input`. Differentiable in `input` and a tensor `value`.

    Raises:
        IndexError: if an index is out of bounds, or `index` is no int64 vector.
        RuntimeError: if `value` has axes.

    Example:
        >>> adjit.zeros(3).index_fill(0, adjit.tensor([0, -1]), 2.0)
        tensor([2., 0., 2.])
    """
    if index.dtype is not dtypes.int64:
        raise IndexError("index_fill_(): Expected dtype int64 for index.")
    x, axis, places = axis_and_index("index_fill_", input, dim, index)
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                f"{value.ndim} dimension(s)."
            )
        out = fill_rows_with(x, axis, places, value.to(x.dtype))
    else:
        out = fill_rows(x, axis, places, value)
    return out if input.ndim else out.reshape(())


@operation("IndexFillBackward0")
def fill_rows(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """`x` with slices along `dim` filled with a number."""
    return filled_rows(x, dim, index, creation.full((), value, dtype=x.dtype, device=x.device))


def filled_rows(x: Tensor, dim: int, index: Tensor, value: Tensor) -> Tensor:
    """`x` with slices along `dim` filled with a 0-d tensor, in the order of its axes."""
    axes = layouts.axes_in_memory(x)
    whole = layouts.as_in_memory(x, axes)
    made = write_rows(whole, [axes.index(dim)], [index], value, IN_BRACKETS, names=[dim])
    return layouts.put_back(made, axes)


@fill_rows.jvp
def _(t_x: Tensor, dim: int, index: Tensor) -> Any:
    return fill_rows(t_x, dim, index, 0)


@fill_rows.vjp
def _(g: Tensor, dim: int, index: Tensor) -> Any:
    return fill_rows(g, dim, index, 0), None


@fill_rows.batched
def _(batch: Batch, x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    if batch.has(index):
        return scatter(x, dim, along(index, dim, other_sizes(x, dim)), value)
    return batch.wrapped(fill_rows(batch.full(x), dim + 1, index, value))


@operation("IndexFillBackward1")
def fill_rows_with(x: Tensor, dim: int, index: Tensor, value: Tensor) -> Tensor:
    """`x` with slices along `dim` filled with a 0-d tensor."""
    return filled_rows(x, dim, index, value)


fill_rows_with.linear("x", "value")


@fill_rows_with.vjp
def _(g: Tensor, dim: int, index: Tensor) -> Any:
    written = index_fill(g.new_zeros(g.shape), dim, index, 1)
    return fill_rows(g, dim, index, 0), None, (g * written).sum()


@fill_rows_with.batched
def _(batch: Batch, x: Tensor, dim: int, index: Tensor, value: Tensor) -> Tensor:
    none = creation.zeros(x.shape, dtype=dtypes.bool, device=x.device)
    filled = scatter(none, dim, along(index, dim, other_sizes(x, dim)), True)
    return value.to(x.dtype).where(filled, x)


# --------------------------------------------------------------------------- flat places


@export(method=True, out=True)
@composed
def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements of `input`, read as a vector, at the given places.

    Args:
        input: any tensor.
        index: int64, any shape; negative numbers count from the end.

    Returns:
        A tensor of the shape of `index`. Differentiable in `input`.

    Raises:
        IndexError: if an index is out of bounds.
        RuntimeError: if `index` is not int64.

    Example:
        >>> adjit.take(adjit.tensor([[1., 2.], [3., 4.]]), adjit.tensor([0, 3]))
        tensor([1., 4.])
    """
    if index.dtype is not dtypes.int64:
        raise RuntimeError(
            f"take(): Expected a long tensor for index, but got {index.dtype.legacy}"
        )
    return take_flat(input, index, input.shape)


@operation("TakeBackward0")
def take_flat(x: Tensor, index: Tensor, shape: Shape) -> Tensor:
    """The elements of `x`, which has this shape, at flat places."""
    return read_rows(x.reshape(-1), [0], [index], IN_FLAT)


take_flat.linear("x")


@take_flat.vjp
def _(g: Tensor, index: Tensor, shape: Shape) -> Any:
    return put_flat(g.new_zeros(shape), index, g, True), None


@take_flat.batched
def _(batch: Batch, x: Tensor, index: Tensor) -> Tensor:
    return read(x.reshape(-1), [index])


@export(method="put", name="put", inplace=True)
def put_at(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """`input` with the elements at flat places replaced by those of `source`.

    Args:
        input: any tensor.
        index: int64, any shape; negative numbers count from the end.
        source: of the same dtype and with as many elements as `index`.
        accumulate: whether to add instead.

    Returns:
        A tensor like `input`. Differentiable in `input` and `source`.

    Raises:
        IndexError: if an index is out of bounds, or the numbers of elements differ.
        RuntimeError: if a dtype does not fit.

    Example:
        >>> adjit.zeros(2, 2).put(adjit.tensor([3]), adjit.ones(1))
        tensor([[0., 0.],
                [0., 1.]])
    """
    if index.dtype is not dtypes.int64:
        raise RuntimeError(
            f"put_(): Expected a long tensor for index, but got {index.dtype.legacy}"
        )
    if source.dtype is not input.dtype:
        raise RuntimeError(
            "put_(): self and source expected to have the same dtype, but got self.dtype = "
            f"{input.dtype.legacy} and source.dtype = {source.dtype.legacy}"
        )
    if source.numel() != index.numel():
        raise IndexError(
            "put_(): Expected source and index to have the same number of elements, but got "
            f"source.numel() = {source.numel()}, index.numel() = {index.numel()}"
        )
    return put_flat(input, index, source.reshape(index.shape), accumulate)


@operation("PutBackward0")
def put_flat(x: Tensor, index: Tensor, source: Tensor, accumulate: bool) -> Tensor:
    """`x` with elements written or added at flat places."""
    flat = write_rows(x.reshape(-1), [0], [index], source, IN_FLAT, add=accumulate)
    return flat.view(x.shape)


put_flat.linear("x", "source")


@put_flat.vjp
def _(g: Tensor, index: Tensor, accumulate: bool) -> Any:
    kept = g if accumulate else put_flat(g, index, g.new_zeros(index.shape), False)
    return kept, None, take_flat(g, index, g.shape)


@put_flat.batched
def _(batch: Batch, x: Tensor, index: Tensor, source: Tensor, accumulate: bool) -> Tensor:
    return put(x.reshape(-1), [index], source, accumulate).reshape(x.shape)
