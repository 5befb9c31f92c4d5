"""Triangles and diagonals of matrices, and writing into parts of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..dtypes import carrier
from ..formats import contiguous_format
from ..graph import write
from ..graph.batching import Batch
from ..graph.composed import composed
from ..graph.export import export
from ..graph.factories import factory
from ..graph.launch import launch
from ..graph.operation import operation
from ..kernels.ops import fill
from ..kernels.ops import shape as kernels
from ..schedule.planning.recipe import GRAIN
from ..shapes import Shape, an_int, as_int, numel, numpy_names, wrap_dim
from ..tensor import Tensor
from ..unknown import bounds_of
from . import creation, layouts, slicing

# --------------------------------------------------------------------------- triangles, diagonals


def check_matrix(name: str, x: Tensor) -> None:
    """Raise if a tensor has no triangles."""
    if x.ndim < 2:
        raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")


def triangle(name: str, x: Tensor, diagonal: int, upper: bool) -> Tensor:
    """`x` with one side of a diagonal set to zero, recorded."""
    diagonal = an_int(name, "diagonal", 2, diagonal)
    check_matrix(name, x)
    x = x.contiguous()
    rows, columns = x.shape[-2:]
    return launch(
        kernels.keep_triangle, (x,), [(x.shape, x.dtype)], bind={"T": carrier(x.dtype)},
        words=(rows, columns, diagonal, upper), n=numel(x.shape[:-1]),
        grain=max(1, GRAIN // max(columns, 1)),
    )  # fmt: skip


@export(method=True, inplace=True, out=True)
@operation("TrilBackward0")
def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle of matrices, zeros above.

    Args:
        input: (..., n, m).
        diagonal: the last diagonal that is kept; 0 is the main one, larger lies higher.

    Returns:
        A tensor of the same shape. Differentiable in `input`.

    Raises:
        RuntimeError: if there are fewer than two axes.

    Example:
        >>> adjit.tril(adjit.ones(2, 2))
        tensor([[1., 0.],
                [1., 1.]])
    """
    return triangle("tril", input, diagonal, False)


tril.linear("input")


@tril.vjp
def _(g: Tensor, diagonal: int) -> Any:
    return tril(g, diagonal)


@tril.batched
def _(batch: Batch, input: Tensor, diagonal: int) -> Tensor:
    check_matrix("tril", input)
    return batch.wrapped(tril(batch.full(input), diagonal))


@export(method=True, inplace=True, out=True)
@operation("TriuBackward0")
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of matrices, zeros below; see `tril`.

    Differentiable.

    Example:
        >>> adjit.triu(adjit.ones(2, 2))
        tensor([[1., 1.],
                [0., 1.]])
    """
    return triangle("triu", input, diagonal, True)


triu.linear("input")


@triu.vjp
def _(g: Tensor, diagonal: int) -> Any:
    return triu(g, diagonal)


@triu.batched
def _(batch: Batch, input: Tensor, diagonal: int) -> Tensor:
    check_matrix("triu", input)
    return batch.wrapped(triu(batch.full(input), diagonal))


def triangle_indices(
    row: int, col: int, offset: int, upper: bool, kind: Any, device: Any
) -> Tensor:
    """The places of a triangle, in order."""
    for name, size in (("row", row), ("col", col)):
        if size < 0:
            raise RuntimeError(f"{name} must be non-negative, got{size}")
    kind = dtypes.int64 if kind is None else dtypes.check(kind)
    # Of a row k places the lower triangle has k + offset + 1, as far as there are so many.
    below = sum(min(max(k + offset + (not upper), 0), col) for k in range(row))
    count = row * col - below if upper else below
    made = launch(
        fill.triangle_places, (), [((2, count), kind)], bind={"T": kind},
        words=(col, offset, upper, count), n=row, grain=max(1, GRAIN // max(col, 1)),
    )  # fmt: skip
    return write.placed(made, creation.place_of(device, None))


@export
@factory
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None,
    layout: Any = None,
) -> Tensor:  # fmt: skip
    """Row and column numbers of the lower triangle of a matrix, as a tensor (2, places).

    Not differentiable.

    Args:
        row, col: the sizes of the matrix.
        offset: of the last diagonal that counts: above 0 further up, below 0 further down.

    Example:
        >>> adjit.tril_indices(2, 2)
        tensor([[0, 1, 1],
                [0, 0, 1]])
    """
    return triangle_indices(as_int(row), as_int(col), as_int(offset), False, dtype, device)


@export
@factory
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None,
    layout: Any = None,
) -> Tensor:  # fmt: skip
    """Row and column numbers of the upper triangle of a matrix, as a tensor (2, places).

    Not differentiable.

    Args:
        row, col: the sizes of the matrix.
        offset: of the first diagonal that counts: above 0 further up, below 0 further down.

    Example:
        >>> adjit.triu_indices(2, 2)
        tensor([[0, 0, 1],
                [0, 1, 1]])
    """
    return triangle_indices(as_int(row), as_int(col), as_int(offset), True, dtype, device)


@export(method=True)
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The last axis as a diagonal of two new axes, zeros elsewhere.

    Args:
        input: (..., n).
        offset: which diagonal; 0 is the main one, larger lies higher.
        dim1, dim2: where the new axes go.

    Returns:
        A tensor with one axis more. Differentiable in `input`.

    Raises:
        RuntimeError: if the axes are the same.

    Example:
        >>> adjit.diag_embed(adjit.tensor([1., 2.]))
        tensor([[1., 0.],
                [0., 2.]])
    """
    ndim = input.ndim + 1
    a, b = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return on_diagonal(input, offset, a, b)


@operation("DiagEmbedBackward0")
def on_diagonal(x: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    """The last axis as a diagonal."""
    size = x.shape[-1] + abs(offset)
    rest = iter(x.shape[:-1])
    shape = [size if d in (dim1, dim2) else next(rest) for d in range(x.ndim + 1)]
    out = creation.zeros(shape, dtype=x.dtype, device=x.device)
    write.store(slicing.diagonal(out, offset, dim1, dim2), x)
    return out


on_diagonal.linear("x")


@on_diagonal.vjp
def _(g: Tensor, offset: int, dim1: int, dim2: int) -> Any:
    return slicing.diagonal(g, offset, dim1, dim2)


on_diagonal.batched_over("dim1", "dim2")


@export(method=True, out=True)
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """The matrix with a vector on a diagonal, or a diagonal of a matrix.

    Differentiable.

    Raises:
        RuntimeError: if `input` is neither vector nor matrix.

    Example:
        >>> adjit.diag(adjit.tensor([[1., 2.], [3., 4.]]))
        tensor([1., 4.])
    """
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    if input.ndim == 2:
        return slicing.diagonal(input, diagonal).clone()
    raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")


@export(method=True)
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """The matrix with all elements of `input` on a diagonal.

    Example:
        >>> adjit.diagflat(adjit.tensor([[1.], [2.]]))
        tensor([[1., 0.],
                [0., 2.]])
    """
    return diag_embed(input.reshape(-1), offset)


@export(method=True, out=True)
def trace(input: Tensor) -> Tensor:
    """The sum of the main diagonal of a matrix.

    Differentiable.

    Raises:
        RuntimeError: if `input` is no matrix.
        NotImplementedError: for a bool one.

    Example:
        >>> adjit.trace(adjit.tensor([[1., 2.], [3., 4.]]))
        tensor(5.)
    """
    if input.dtype is dtypes.bool:
        raise NotImplementedError("\"trace\" not implemented for 'Bool'")
    if input.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    return slicing.diagonal(input).sum()


# --------------------------------------------------------------------------- writing into parts


def check_part(src: Tensor, part: Tensor) -> None:
    """Raise if a part of a tensor and what goes there differ in shape."""
    if src.shape != part.shape:
        raise RuntimeError(
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {list(part.shape)}"
        )


def _copy_laid(x: Tensor, axes: Shape) -> Tensor:
    """A copy of `x` with its axes in this order in memory."""
    return layouts.put_back(
        layouts.as_in_memory(x, axes).clone(memory_format=contiguous_format), axes
    )


def with_part(x: Tensor, src: Tensor, part: Any) -> Tensor:
    """A copy of `x` with `src` in the part that a view function shows."""
    axes = layouts.axes_in_memory(x)
    if src.numel() == x.numel():  # nothing of `x` is left
        return _copy_laid(src.to(x.dtype).reshape(x.shape), axes)
    out = _copy_laid(x, axes)
    write.store(part(out), src)
    return out


@export(method=True)
@composed
def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """`input` with a diagonal replaced by `src`; differentiable in both.

    Example:
        >>> adjit.diagonal_scatter(adjit.zeros(2, 2), adjit.ones(2))
        tensor([[1., 0.],
                [0., 1.]])
    """
    check_part(src, slicing.diagonal(input.detach(), offset, dim1, dim2))
    return put_diagonal(input, src, offset, dim1, dim2)


@operation("DiagonalScatterBackward0")
def put_diagonal(x: Tensor, src: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    """`x` with another diagonal."""
    return with_part(x, src, lambda out: slicing.diagonal(out, offset, dim1, dim2))


put_diagonal.linear("x", "src")


@put_diagonal.vjp
def _(g: Tensor, offset: int, dim1: int, dim2: int) -> Any:
    part = slicing.diagonal(g, offset, dim1, dim2)
    return put_diagonal(g, g.new_zeros(part.shape), offset, dim1, dim2), part


put_diagonal.batched_over("dim1", "dim2")


@export(method=True)
@composed
@numpy_names
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """`input` with one slice along an axis replaced by `src`; differentiable in both.

    Example:
        >>> adjit.select_scatter(adjit.zeros(2, 2), adjit.ones(2), 0, 1)
        tensor([[0., 0.],
                [1., 1.]])
    """
    check_part(src, slicing.select(input.detach(), dim, index))
    return put_slice(input, src, wrap_dim(dim, input.ndim), index)


@operation("SelectScatterBackward0")
def put_slice(x: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """`x` with another slice at an index."""
    return with_part(x, src, lambda out: slicing.select(out, dim, index))


put_slice.linear("x", "src")


@put_slice.vjp
def _(g: Tensor, dim: int, index: int) -> Any:
    part = slicing.select(g, dim, index)
    return put_slice(g, g.new_zeros(part.shape), dim, index), part


put_slice.batched_over("dim")


@export(method=True)
@composed
@numpy_names
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    """`input` with `start:end:step` along an axis replaced by `src`; differentiable in both.

    Example:
        >>> adjit.slice_scatter(adjit.zeros(4), adjit.ones(2), start=0, step=2)
        tensor([1., 0., 1., 0.])
    """
    axis = wrap_dim(dim, input.ndim)
    if step < 1:
        raise RuntimeError("slice step must be positive")
    first, last, _ = bounds_of(slice(start, end, step), input.shape[axis])
    last = max(first, last)
    check_part(src, slicing.slice_dim(input.detach(), axis, first, last, step))
    return put_range(input, src, axis, first, last, step)


@export(method=True)
@composed
def as_strided_scatter(
    input: Tensor,
    src: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Tensor:
    """`input` with the elements that `as_strided` shows replaced by `src`; differentiable in both.

    Args:
        size, stride, storage_offset: as in `as_strided`.

    Raises:
        RuntimeError: if `src` has another size.

    Example:
        >>> adjit.as_strided_scatter(adjit.zeros(3, 3), adjit.ones(2), (2,), (4,))
        tensor([[1., 0., 0.],
                [0., 1., 0.],
                [0., 0., 0.]])
    """
    axes = layouts.axes_in_memory(input)
    whole = layouts.as_in_memory(input, axes)
    place = size, stride, storage_offset or 0
    check_part(src, whole.detach().contiguous().as_strided(*place))
    places = creation.arange(input.numel(), device=input.device).as_strided(*place)
    flat = whole.reshape(-1).scatter(0, places.reshape(-1), src.reshape(-1).to(input.dtype))
    return layouts.put_back(flat.reshape(whole.shape), axes)


@operation("SliceScatterBackward0")
def put_range(x: Tensor, src: Tensor, dim: int, start: int, stop: int, step: int) -> Tensor:
    """`x` with another range of slices."""
    return with_part(x, src, lambda out: slicing.slice_dim(out, dim, start, stop, step))


put_range.linear("x", "src")


@put_range.vjp
def _(g: Tensor, dim: int, start: int, stop: int, step: int) -> Any:
    part = slicing.slice_dim(g, dim, start, stop, step)
    return put_range(g, g.new_zeros(part.shape), dim, start, stop, step), part


put_range.batched_over("dim")
