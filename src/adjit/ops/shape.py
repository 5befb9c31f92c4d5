"""Joining, repeating, turning and padding: ops that move elements without changing them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import dtype
from ..graph import record
from ..graph.op import export, operation
from ..graph.record import launch
from ..kernels import shape as kernels
from ..schedule.recipe import GRAIN
from ..shapes import (
    Shape,
    Size,
    broadcast_shapes,
    checked_shape,
    coalesce,
    numel,
    shape_of,
    wrap_dim,
    wrap_dims,
)
from ..tensor import Tensor
from . import creation, view
from .tables import carrier

# --------------------------------------------------------------------------- joining


def check_tensors(name: str, tensors: Any) -> list[Tensor]:
    """The tensors of a list argument."""
    if isinstance(tensors, Tensor) or not isinstance(tensors, (list, tuple)):
        raise TypeError(
            f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, "
            f"not {type(tensors).__name__}"
        )
    for position, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(
                f"expected Tensor as element {position} in argument 0, but got {type(t).__name__}"
            )
    return list(tensors)


def promoted(tensors: Sequence[Tensor]) -> dtype:
    """The dtype that all tensors convert to."""
    kind = tensors[0].dtype
    if all(t.dtype is kind for t in tensors):
        return kind
    return dtypes.result_type(*tensors)


@export(name=("cat", "concat", "concatenate"), out=True)
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors one after the other along an axis.

    Args:
        tensors: of equal sizes apart from `dim`; empty vectors are passed over. Their dtypes are
            promoted.
        dim: the axis.

    Returns:
        The joined tensor. Differentiable in all tensors.

    Raises:
        ValueError: if the list is empty.
        RuntimeError: if the shapes do not fit.

    Example:
        >>> adjit.cat([adjit.tensor([1., 2.]), adjit.tensor([3.])])
        tensor([1., 2., 3.])
    """
    found = check_tensors("cat", tensors)
    if not found:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    for position, t in enumerate(found):
        if t.ndim == 0:
            raise RuntimeError(
                f"zero-dimensional tensor (at position {position}) cannot be concatenated"
            )
    kind = promoted(found)
    parts = [t for t in found if t.shape != (0,)] or found[:1]
    axis = wrap_dim(dim, parts[0].ndim)
    first = parts[0].shape
    for t in parts[1:]:
        if t.ndim != len(first):
            raise RuntimeError(
                f"Tensors must have same number of dimensions: got {len(first)} and {t.ndim}"
            )
        for d, (a, b) in enumerate(zip(first, t.shape, strict=True)):
            if d != axis and a != b:
                number = next(k for k, other in enumerate(found) if other is t)
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {axis}. Expected size {a} "
                    f"but got size {b} for tensor number {number} in the list."
                )
    return join(parts, axis, [t.shape[axis] for t in parts], kind)


@operation("CatBackward0")
def join(tensors: Sequence[Tensor], dim: int, sizes: Sequence[int], kind: dtype) -> Tensor:
    """Tensors of these sizes along `dim`, one after the other."""
    first = tensors[0].shape
    shape = (*first[:dim], sum(sizes), *first[dim + 1 :])
    inner = numel(first[dim + 1 :])
    return side_by_side(tensors, shape, numel(first[:dim]), [n * inner for n in sizes], kind)


MOST_PARTS = max(kernels.JOINS)


def side_by_side(
    tensors: Sequence[Tensor], shape: Shape, rows: int, widths: Sequence[int], kind: dtype
) -> Tensor:
    """A dense tensor whose rows are the rows of the parts, one part after the other."""
    parts = [(t.to(kind).contiguous(), w) for t, w in zip(tensors, widths, strict=True) if w]
    while len(parts) > MOST_PARTS:
        groups = [parts[k : k + MOST_PARTS] for k in range(0, len(parts), MOST_PARTS)]
        parts = [
            (launch_join(g, (rows, sum(w for _, w in g))), sum(w for _, w in g)) for g in groups
        ]
    if not parts or rows == 0:
        return creation.empty(shape, dtype=kind)
    if len(parts) == 1:
        return parts[0][0].reshape(shape).clone()
    return launch_join(parts, shape)


def launch_join(parts: Sequence[tuple[Tensor, int]], shape: Shape) -> Tensor:
    """Dense parts, each with the width of its rows, side by side, recorded."""
    width = sum(w for _, w in parts)
    rows = numel(shape) // width
    count = next(size for size in kernels.JOINS if size >= len(parts))
    filled = [*parts, *[(parts[-1][0], 0)] * (count - len(parts))]
    layout = [width]
    start = 0
    for _, w in filled:
        layout += [start, w]
        start += w
    kind = parts[0][0].dtype
    return launch(
        kernels.JOINS[count], [t for t, _ in filled], [(shape, kind)],
        bind={"T": carrier(kind)}, words=layout, n=rows * count,
        grain=max(1, GRAIN * count // width),
    )  # fmt: skip


@join.vjp
def _(g: Tensor, dim: int, sizes: Sequence[int]) -> Any:
    ends = list(itertools.accumulate(sizes))
    return (
        [view.slice_dim(g, dim, end - size, end, 1) for end, size in zip(ends, sizes, strict=True)],
    )


@export(out=True)
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape side by side along a new axis.

    Args:
        tensors: of equal shape; their dtypes are promoted.
        dim: where the new axis goes.

    Returns:
        The joined tensor. Differentiable in all tensors.

    Raises:
        RuntimeError: if the list is empty, or the shapes differ.

    Example:
        >>> adjit.stack([adjit.tensor([1., 2.]), adjit.tensor([3., 4.])], dim=1)
        tensor([[1., 3.],
                [2., 4.]])
    """
    found = check_tensors("stack", tensors)
    if not found:
        raise RuntimeError("stack expects a non-empty TensorList")
    axis = wrap_dim(dim, found[0].ndim + 1)
    for position, t in enumerate(found):
        if t.shape != found[0].shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(found[0].shape)} at "
                f"entry 0 and {list(t.shape)} at entry {position}"
            )
    return pile(found, axis, promoted(found))


@operation("StackBackward0")
def pile(tensors: Sequence[Tensor], dim: int, kind: dtype) -> Tensor:
    """Tensors of one shape along a new axis."""
    first = tensors[0].shape
    shape = (*first[:dim], len(tensors), *first[dim:])
    widths = [numel(first[dim:])] * len(tensors)
    return side_by_side(tensors, shape, numel(first[:dim]), widths, kind)


@pile.vjp
def _(g: Tensor, dim: int) -> Any:
    return ([view.select(g, dim, k) for k in range(g.shape[dim])],)


def stacked_like(name: str, tensors: Any) -> list[Tensor]:
    """The tensors of `hstack` and its kin."""
    found = check_tensors(name, tensors)
    if not found:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return found


@export(out=True)
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the second axis, vectors along their only one.

    Example:
        >>> adjit.hstack([adjit.tensor([1.]), adjit.tensor([2.])])
        tensor([1., 2.])
    """
    parts = [atleast_1d(t) for t in stacked_like("hstack", tensors)]
    return cat(parts, 0 if parts[0].ndim == 1 else 1)


@export(name=("vstack", "row_stack"), out=True)
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the first axis, vectors as rows.

    Example:
        >>> adjit.vstack([adjit.tensor([1., 2.]), adjit.tensor([3., 4.])]).shape
        adjit.Size([2, 2])
    """
    return cat([atleast_2d(t) for t in stacked_like("vstack", tensors)], 0)


@export(out=True)
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the third axis, after `atleast_3d`.

    Example:
        >>> adjit.dstack([adjit.tensor([1., 2.]), adjit.tensor([3., 4.])]).shape
        adjit.Size([1, 2, 2])
    """
    return cat([atleast_3d(t) for t in stacked_like("dstack", tensors)], 2)


@export(out=True)
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the second axis, vectors as columns.

    Example:
        >>> adjit.column_stack([adjit.tensor([1., 2.]), adjit.tensor([3., 4.])])
        tensor([[1., 3.],
                [2., 4.]])
    """
    parts = stacked_like("column_stack", tensors)
    return hstack([t.reshape(t.numel(), 1) if t.ndim <= 1 else t for t in parts])


@export
def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along the diagonal of a larger one, zeros elsewhere.

    Args:
        tensors: of at most two axes; vectors are rows, numbers 1 x 1.

    Returns:
        A matrix. Differentiable in all tensors.

    Raises:
        RuntimeError: if a tensor has more than two axes.

    Example:
        >>> adjit.block_diag(adjit.ones(1, 2), adjit.tensor([3.]))
        tensor([[1., 1., 0.],
                [0., 0., 3.]])
    """
    for position, t in enumerate(tensors):
        if t.ndim > 2:
            raise RuntimeError(
                "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input "
                f"{position} has {t.ndim} dimensions"
            )
    if not tensors:
        return creation.empty((1, 0))
    blocks = [atleast_2d(t) for t in tensors]
    return place_blocks(blocks, [tuple(b.shape) for b in blocks], promoted(blocks))


@operation("BlockDiagBackward0")
def place_blocks(tensors: Sequence[Tensor], shapes: Sequence[Shape], kind: dtype) -> Tensor:
    """Matrices of these shapes along the diagonal."""
    out = creation.zeros((sum(s[0] for s in shapes), sum(s[1] for s in shapes)), dtype=kind)
    for region, t in zip(blocks_of(out, shapes), tensors, strict=True):
        record.store(region, t)
    return out


@place_blocks.vjp
def _(g: Tensor, shapes: Sequence[Shape]) -> Any:
    return (blocks_of(g, shapes),)


def blocks_of(x: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
    """Views of the blocks on the diagonal."""
    blocks = []
    row = column = 0
    for rows, columns in shapes:
        band = view.slice_dim(x, 0, row, row + rows, 1)
        blocks.append(view.slice_dim(band, 1, column, column + columns, 1))
        row, column = row + rows, column + columns
    return blocks


# --------------------------------------------------------------------------- repeating


@export(method=True, public=False)
def repeat(input: Tensor, *sizes: Any) -> Tensor:
    """Copies of `input` along each axis.

    Args:
        sizes: how often, for each axis; more numbers than axes put axes of size 1 in front.

    Returns:
        A new tensor. Differentiable in `input`.

    Raises:
        RuntimeError: if there are fewer numbers than axes, or a negative one.

    Example:
        >>> adjit.tensor([1., 2.]).repeat(2, 2)
        tensor([[1., 2., 1., 2.],
                [1., 2., 1., 2.]])
    """
    repeats = tuple(shape_of(sizes))
    if len(repeats) < input.ndim:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            "tensor"
        )
    padded = (1,) * (len(repeats) - input.ndim) + tuple(input.shape)
    checked_shape(([n * r for n, r in zip(padded, repeats, strict=True)],))
    return repeated(input, repeats, padded)


@operation("RepeatBackward0")
def repeated(x: Tensor, repeats: Shape, shape: Shape) -> Tensor:
    """`x`, of this shape once axes are put in front, repeated."""
    split = [s for size in shape for s in (1, size)]
    spread = [s for pair in zip(repeats, shape, strict=True) for s in pair]
    whole = [n * r for n, r in zip(shape, repeats, strict=True)]
    return x.reshape(split).expand(spread).clone(contiguous=True).view(whole)


@repeated.vjp
def _(g: Tensor, repeats: Shape, shape: Shape) -> Any:
    if 0 in repeats:
        return g.new_zeros(shape)
    parts = g.reshape([s for pair in zip(repeats, shape, strict=True) for s in pair])
    return parts.sum(dim=list(range(0, 2 * len(shape), 2))) if shape else g


@export(method=True)
def tile(input: Tensor, *dims: Any) -> Tensor:
    """Copies of `input` along each axis; missing numbers in front count as 1.

    Example:
        >>> adjit.tile(adjit.tensor([1., 2.]), (2,))
        tensor([1., 2., 1., 2.])
    """
    repeats = tuple(shape_of(dims))
    return repeat(input, (1,) * (input.ndim - len(repeats)) + repeats)


@export(method=True)
def repeat_interleave(
    input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element or slice repeated, copies next to each other.

    With a tensor of repeats, the size of the result is a value and evaluated here.

    Args:
        input: any tensor; alone, it is the vector of repeats and indices are returned.
        repeats: a number, or an int tensor with one for each slice.
        dim: the axis; None reads `input` as a vector.
        output_size: accepted and not needed.

    Returns:
        A new tensor. Differentiable in `input`.

    Raises:
        RuntimeError: if a number is negative, or their count does not fit.

    Example:
        >>> adjit.repeat_interleave(adjit.tensor([1., 2.]), 2)
        tensor([1., 1., 2., 2.])
    """
    if repeats is None:
        return interleaving(input)
    x, axis = (input.reshape(-1), 0) if dim is None else (input, wrap_dim(dim, input.ndim))
    if isinstance(repeats, Tensor) and (repeats.ndim == 0 or repeats.shape == (1,)):
        repeats = int(repeats.item())
    if isinstance(repeats, Tensor):
        if repeats.ndim > 1:
            raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
        if repeats.shape[0] != x.shape[axis]:
            raise RuntimeError(
                "repeats must have the same size as input along dim, but got repeats.size(0) = "
                f"{repeats.shape[0]} and input.size({axis}) = {x.shape[axis]}"
            )
        return x.index_select(axis, interleaving(repeats))
    if repeats < 0:
        raise RuntimeError("Repeats must be non-negative")
    sizes = [*x.shape[: axis + 1], repeats, *x.shape[axis + 1 :]]
    spread = x.unsqueeze(axis + 1).expand(sizes)
    return spread.clone(contiguous=True).flatten(axis, axis + 1)


def interleaving(repeats: Tensor) -> Tensor:
    """Each position as often as the vector says."""
    if repeats.dtype not in (dtypes.int32, dtypes.int64):
        raise NotImplementedError(
            f"\"repeat_interleave_cpu\" not implemented for '{repeats.dtype.legacy}'"
        )
    if repeats.ndim != 1:
        raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
    counts = repeats.detach().numpy()
    if (counts < 0).any():
        raise RuntimeError("repeats can not be negative")
    return creation.tensor(np.repeat(np.arange(len(counts)), counts))


# --------------------------------------------------------------------------- turning


@export(method=True)
def flip(input: Tensor, *dims: Any) -> Tensor:
    """The order of elements reversed along axes.

    Args:
        input: any tensor.
        dims: the axes, as numbers or one list.

    Returns:
        A new tensor. Differentiable in `input`.

    Raises:
        RuntimeError: if an axis is named twice.

    Example:
        >>> adjit.flip(adjit.tensor([1., 2., 3.]), [0])
        tensor([3., 2., 1.])
    """
    axes = tuple(shape_of(dims))
    return reverse(input, wrap_dims(axes, input.ndim) if axes else ())


@operation("FlipBackward0")
def reverse(x: Tensor, dims: Shape) -> Tensor:
    """`x` reversed along axes."""
    if x.numel() == 0:
        return x.clone()
    steps = [-s if d in dims else s for d, s in enumerate(x.stride())]
    first = sum((x.shape[d] - 1) * x.stride()[d] for d in dims if x.ndim)
    return walked(x, x.shape, steps, first)


def walked(x: Tensor, shape: Shape, steps: Sequence[int], first: int) -> Tensor:
    """A dense tensor of the elements of `x` met from the first one on, recorded."""
    sizes, (merged,) = coalesce(shape, [steps])
    length, step = (sizes[-1], merged[-1]) if sizes else (1, 1)
    rows = numel(sizes[:-1])
    return launch(
        kernels.walk, (x,), [(shape, x.dtype)], bind={"T": carrier(x.dtype)},
        words=(first, length, step, len(sizes[:-1]), *sizes[:-1], *merged[:-1]),
        n=rows, grain=max(1, GRAIN // max(length, 1)),
    )  # fmt: skip


@reverse.vjp
def _(g: Tensor, dims: Shape) -> Any:
    return reverse(g, dims)


@export(method=True)
def fliplr(input: Tensor) -> Tensor:
    """The second axis reversed.

    Raises:
        RuntimeError: if there are fewer than two axes.

    Example:
        >>> adjit.fliplr(adjit.tensor([[1., 2.]]))
        tensor([[2., 1.]])
    """
    if input.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return flip(input, 1)


@export(method=True)
def flipud(input: Tensor) -> Tensor:
    """The first axis reversed.

    Raises:
        RuntimeError: if there is none.

    Example:
        >>> adjit.flipud(adjit.tensor([1., 2.]))
        tensor([2., 1.])
    """
    if input.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return flip(input, 0)


@export(method=True)
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Elements moved along axes, coming back in on the other side.

    Args:
        input: any tensor.
        shifts: how far, one number for each axis.
        dims: the axes; none for the tensor read as a vector.

    Returns:
        A new tensor. Differentiable in `input`.

    Raises:
        RuntimeError: if there are not as many shifts as axes.

    Example:
        >>> adjit.roll(adjit.tensor([1., 2., 3.]), 1)
        tensor([3., 1., 2.])
    """
    moves = [shifts] if isinstance(shifts, int) else list(shifts)
    axes = [] if dims is None else [dims] if isinstance(dims, int) else list(dims)
    if not moves:
        raise RuntimeError("`shifts` required")
    if not axes and len(moves) == 1:
        return rolled(input.reshape(-1), (moves[0],), (0,)).view(input.shape)
    if len(moves) != len(axes):
        raise RuntimeError(
            f"shifts and dimensions must align. shifts: {len(moves)}, dims:{len(axes)}"
        )
    return rolled(input, tuple(moves), tuple(wrap_dim(d, input.ndim) for d in axes))


@operation("RollBackward0")
def rolled(x: Tensor, shifts: Shape, dims: Shape) -> Tensor:
    """`x` with elements moved along axes."""
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.shape[dim] if x.ndim else 1
        cut = -shift % max(size, 1)
        if cut:
            x = cat([view.slice_dim(x, dim, cut, size, 1), view.slice_dim(x, dim, 0, cut, 1)], dim)
    return x.clone()


@rolled.vjp
def _(g: Tensor, shifts: Shape, dims: Shape) -> Any:
    return rolled(g, tuple(-s for s in shifts), dims)


@export(method=True)
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Turned by 90 degrees `k` times, from the first towards the second of two axes.

    Raises:
        RuntimeError: if there are not two different axes.

    Example:
        >>> adjit.rot90(adjit.tensor([[1., 2.], [3., 4.]]))
        tensor([[2., 4.],
                [1., 3.]])
    """
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if input.ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input.ndim}")
    a, b = (wrap_dim(d, input.ndim) for d in dims)
    if a == b:
        raise RuntimeError(
            f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}"
        )
    return turned(input, k % 4, (a, b))


@operation("Rot90Backward0")
def turned(x: Tensor, k: int, dims: Shape) -> Tensor:
    """`x` turned in the plane of two axes."""
    a, b = dims
    if k == 0:
        return x.clone()
    if k == 2:
        return reverse(x, dims)
    return reverse(x.transpose(a, b), (a,) if k == 1 else (b,))


@turned.vjp
def _(g: Tensor, k: int, dims: Shape) -> Any:
    return turned(g, -k % 4, dims)


# --------------------------------------------------------------------------- triangles, diagonals


def triangle(name: str, x: Tensor, diagonal: int, upper: bool) -> Tensor:
    """`x` with one side of a diagonal set to zero, recorded."""
    if x.ndim < 2:
        raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
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


@tril.vjp
def _(g: Tensor, diagonal: int) -> Any:
    return tril(g, diagonal)


@export(method=True, inplace=True, out=True)
@operation("TriuBackward0")
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of matrices, zeros below; see `tril`.

    Example:
        >>> adjit.triu(adjit.ones(2, 2))
        tensor([[1., 1.],
                [0., 1.]])
    """
    return triangle("triu", input, diagonal, True)


@triu.vjp
def _(g: Tensor, diagonal: int) -> Any:
    return triu(g, diagonal)


def triangle_indices(row: int, col: int, offset: int, upper: bool, kind: Any) -> Tensor:
    """The places of a triangle, in order."""
    for name, size in (("row", row), ("col", col)):
        if size < 0:
            raise RuntimeError(f"{name} must be non-negative, got{size}")
    find = np.triu_indices if upper else np.tril_indices
    return creation.tensor(np.stack(find(row, offset, col)), dtype=kind or dtypes.int64)


@export
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None,
    layout: Any = None,
) -> Tensor:  # fmt: skip
    """Row and column numbers of the lower triangle of a matrix, as a tensor (2, places).

    Example:
        >>> adjit.tril_indices(2, 2)
        tensor([[0, 1, 1],
                [0, 0, 1]])
    """
    return triangle_indices(row, col, offset, False, dtype)


@export
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None,
    layout: Any = None,
) -> Tensor:  # fmt: skip
    """Row and column numbers of the upper triangle of a matrix, as a tensor (2, places).

    Example:
        >>> adjit.triu_indices(2, 2)
        tensor([[0, 0, 1],
                [0, 1, 1]])
    """
    return triangle_indices(row, col, offset, True, dtype)


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
    out = creation.zeros(shape, dtype=x.dtype)
    record.store(view.diagonal(out, offset, dim1, dim2), x)
    return out


@on_diagonal.vjp
def _(g: Tensor, offset: int, dim1: int, dim2: int) -> Any:
    return view.diagonal(g, offset, dim1, dim2)


@export(method=True, out=True)
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """The matrix with a vector on a diagonal, or a diagonal of a matrix.

    Raises:
        RuntimeError: if `input` is neither vector nor matrix.

    Example:
        >>> adjit.diag(adjit.tensor([[1., 2.], [3., 4.]]))
        tensor([1., 4.])
    """
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    if input.ndim == 2:
        return view.diagonal(input, diagonal).clone()
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

    Raises:
        RuntimeError: if `input` is no matrix.

    Example:
        >>> adjit.trace(adjit.tensor([[1., 2.], [3., 4.]]))
        tensor(5.)
    """
    if input.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    return view.diagonal(input).sum()


# --------------------------------------------------------------------------- writing into parts


def check_part(src: Tensor, part: Tensor) -> None:
    """Raise if a part of a tensor and what goes there differ in shape."""
    if src.shape != part.shape:
        raise RuntimeError(
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {list(part.shape)}"
        )


def with_part(x: Tensor, src: Tensor, part: Any) -> Tensor:
    """A copy of `x` with `src` in the part that a view function shows."""
    out = x.clone(contiguous=True)
    record.store(part(out), src)
    return out


@export(method=True)
def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """`input` with a diagonal replaced by `src`; differentiable in both.

    Example:
        >>> adjit.diagonal_scatter(adjit.zeros(2, 2), adjit.ones(2))
        tensor([[1., 0.],
                [0., 1.]])
    """
    check_part(src, view.diagonal(input.detach(), offset, dim1, dim2))
    return put_diagonal(input, src, offset, dim1, dim2)


@operation("DiagonalScatterBackward0")
def put_diagonal(x: Tensor, src: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    """`x` with another diagonal."""
    return with_part(x, src, lambda out: view.diagonal(out, offset, dim1, dim2))


@put_diagonal.vjp
def _(g: Tensor, offset: int, dim1: int, dim2: int) -> Any:
    part = view.diagonal(g, offset, dim1, dim2)
    return put_diagonal(g, g.new_zeros(part.shape), offset, dim1, dim2), part


@export(method=True)
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """`input` with one slice along an axis replaced by `src`; differentiable in both.

    Example:
        >>> adjit.select_scatter(adjit.zeros(2, 2), adjit.ones(2), 0, 1)
        tensor([[0., 0.],
                [1., 1.]])
    """
    check_part(src, view.select(input.detach(), dim, index))
    return put_slice(input, src, wrap_dim(dim, input.ndim), index)


@operation("SelectScatterBackward0")
def put_slice(x: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """`x` with another slice at an index."""
    return with_part(x, src, lambda out: view.select(out, dim, index))


@put_slice.vjp
def _(g: Tensor, dim: int, index: int) -> Any:
    part = view.select(g, dim, index)
    return put_slice(g, g.new_zeros(part.shape), dim, index), part


@export(method=True)
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
    first, last, _ = slice(start, end, step).indices(input.shape[axis])
    last = max(first, last)
    check_part(src, view.slice_dim(input.detach(), axis, first, last, step))
    return put_range(input, src, axis, first, last, step)


@operation("SliceScatterBackward0")
def put_range(x: Tensor, src: Tensor, dim: int, start: int, stop: int, step: int) -> Tensor:
    """`x` with another range of slices."""
    return with_part(x, src, lambda out: view.slice_dim(out, dim, start, stop, step))


@put_range.vjp
def _(g: Tensor, dim: int, start: int, stop: int, step: int) -> Any:
    part = view.slice_dim(g, dim, start, stop, step)
    return put_range(g, g.new_zeros(part.shape), dim, start, stop, step), part


# --------------------------------------------------------------------------- grids, broadcasting


def one_or_list(tensors: tuple[Any, ...]) -> list[Tensor]:
    """The tensors of `f(a, b)` and of `f([a, b])`."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        return list(tensors[0])
    return list(tensors)


@export
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinates of a grid: views of the vectors along one axis each.

    Args:
        tensors: vectors or numbers of one dtype.
        indexing: `"ij"` for axes in the order of the arguments, `"xy"` with the first two swapped.

    Returns:
        One tensor for each argument. Differentiable.

    Raises:
        RuntimeError: if an argument has more than one axis, or the dtypes differ.

    Example:
        >>> x, y = adjit.meshgrid(adjit.tensor([1, 2]), adjit.tensor([3, 4, 5]), indexing="ij")
        >>> x.shape
        adjit.Size([2, 3])
    """
    found = one_or_list(tensors)
    if not found:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if any(t.dtype is not found[0].dtype for t in found):
        raise RuntimeError("meshgrid expects all tensors to have the same dtype")
    if indexing not in ("ij", "xy"):
        raise RuntimeError(
            'torch.meshgrid: indexing must be one of "xy" or "ij", but received: ' + indexing
        )
    for t in found:
        if t.ndim > 1:
            raise RuntimeError(
                f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {t.ndim}D"
            )
    swap = indexing == "xy" and len(found) >= 2
    if swap:
        found[:2] = found[1::-1]
    shape = [t.numel() for t in found]
    grids = []
    for position, t in enumerate(found):
        sizes = [1] * len(found)
        sizes[position] = t.numel()
        grids.append(t.reshape(sizes).expand(shape))
    if swap:
        grids[:2] = grids[1::-1]
    return tuple(grids)


@export
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of elements of vectors, one row for each.

    Raises:
        RuntimeError: if an argument is no vector.

    Example:
        >>> adjit.cartesian_prod(adjit.tensor([1, 2]), adjit.tensor([3, 4]))
        tensor([[1, 3],
                [1, 4],
                [2, 3],
                [2, 4]])
    """
    for t in tensors:
        if t.ndim != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(t.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return stack([g.flatten() for g in meshgrid(*tensors)], 1)


@export
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of `r` elements of a vector, in order, one row for each.

    Raises:
        RuntimeError: if `input` is no vector, or `r` is negative.

    Example:
        >>> adjit.combinations(adjit.tensor([1, 2, 3]))
        tensor([[1, 2],
                [1, 3],
                [2, 3]])
    """
    if input.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return input.new_empty(0)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = np.array(list(choose(range(input.shape[0]), r)), np.int64).reshape(-1, r)
    return input.index_select(0, creation.tensor(rows.reshape(-1))).view(rows.shape)


@export
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Views of the tensors in their common shape.

    Raises:
        RuntimeError: if the shapes do not broadcast.

    Example:
        >>> x, y = adjit.broadcast_tensors(adjit.ones(3), adjit.ones(2, 1))
        >>> x.shape
        adjit.Size([2, 3])
    """
    found = one_or_list(tensors)
    shape = broadcast_shapes_of([t.shape for t in found])
    return tuple(t.expand(shape) for t in found)


def broadcast_shapes_of(shapes: Sequence[Shape]) -> Size:
    """The common shape of a list of shapes."""
    return broadcast_shapes(*shapes)


def at_least(tensors: tuple[Any, ...], widen: Any) -> Any:
    """`widen` of one tensor, or of each of several."""
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return widen(tensors[0])
    return tuple(widen(t) for t in one_or_list(tensors))


@export
def atleast_1d(*tensors: Any) -> Any:
    """Tensors with at least one axis: views.

    Example:
        >>> adjit.atleast_1d(adjit.tensor(2.))
        tensor([2.])
    """
    return at_least(tensors, lambda t: t if t.ndim else t.reshape(1))


@export
def atleast_2d(*tensors: Any) -> Any:
    """Tensors with at least two axes: views, vectors as rows.

    Example:
        >>> adjit.atleast_2d(adjit.tensor([1., 2.])).shape
        adjit.Size([1, 2])
    """

    def widen(t: Tensor) -> Tensor:
        return t.reshape(1, 1) if t.ndim == 0 else t.unsqueeze(0) if t.ndim == 1 else t

    return at_least(tensors, widen)


@export
def atleast_3d(*tensors: Any) -> Any:
    """Tensors with at least three axes: views, vectors along the middle one.

    Example:
        >>> adjit.atleast_3d(adjit.tensor([1., 2.])).shape
        adjit.Size([1, 2, 1])
    """

    def widen(t: Tensor) -> Tensor:
        if t.ndim == 0:
            return t.reshape(1, 1, 1)
        if t.ndim == 1:
            return t.unsqueeze(0).unsqueeze(-1)
        return t.unsqueeze(-1) if t.ndim == 2 else t

    return at_least(tensors, widen)


# --------------------------------------------------------------------------- padding


@export(namespace="nn.functional")
def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """`input` with more elements, or fewer, at both ends of its last axes.

    Args:
        input: any tensor.
        pad: (before, after) of the last axis, then of the one before it, and so on; negative
            numbers cut off.
        mode: `"constant"`, `"reflect"`, `"replicate"` or `"circular"`; the last three take the
            last one, two or three of as many axes and one or two more.
        value: what `"constant"` fills with, 0 if None.

    Returns:
        A new tensor. Differentiable in `input`.

    Raises:
        RuntimeError: if the numbers do not fit the shape.
        NotImplementedError: for an unknown mode, or axes that a mode does not take.

    Example:
        >>> F.pad(adjit.tensor([1., 2.]), (1, 2))
        tensor([0., 1., 2., 0., 0.])
    """
    widths = tuple(int(p) for p in pad)
    if len(widths) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(widths) > 2 * input.ndim:
        raise RuntimeError(
            "Padding length should be less than or equal to two times the input dimension but got "
            f"padding length {len(widths)} and input of dimension {input.ndim}"
        )
    if mode == "constant":
        return padded(input, widths, 0.0 if value is None else value)
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if not len(widths) // 2 < input.ndim <= len(widths) // 2 + 2 or len(widths) > 6:
        raise NotImplementedError(
            f"Padding size {len(widths)} is not supported for {input.ndim}D input tensor."
        )
    for position in range(len(widths) // 2):
        before, after = widths[2 * position : 2 * position + 2]
        axis = input.ndim - 1 - position
        if before or after:
            places = padded_places(mode, input, axis, before, after)
            input = input.index_select(axis, creation.tensor(places))
    return input


def padded_places(mode: str, x: Tensor, axis: int, before: int, after: int) -> Any:
    """Which index of an axis stands at each place of the padded one."""
    size = x.shape[axis]
    if size + before + after < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    places = np.arange(-before, size + after)
    if mode == "replicate":
        return places.clip(0, size - 1)
    if mode == "circular":
        if before > size or after > size:
            raise RuntimeError("Padding value causes wrapping around more than once.")
        return places % size
    if before >= size or after >= size:
        raise RuntimeError(
            "Argument #4: Padding size should be less than the corresponding input dimension, but "
            f"got: padding ({before}, {after}) at dimension {axis} of input {list(x.shape)}"
        )
    places = np.abs(places)
    return np.where(places < size, places, 2 * (size - 1) - places)


@operation("ConstantPadNdBackward0")
def padded(x: Tensor, widths: Shape, value: Any) -> Tensor:
    """`x` with a number around it."""
    shape = list(x.shape)
    source = x
    frame = []
    for position in range(len(widths) // 2):
        axis = x.ndim - 1 - position
        before, after = widths[2 * position : 2 * position + 2]
        size = shape[axis]
        shape[axis] = size + before + after
        if shape[axis] < 0:
            raise RuntimeError("narrow(): length must be non-negative.")
        first, last = max(-before, 0), size - max(-after, 0)
        source = view.slice_dim(source, axis, min(first, size), max(first, last), 1)
        start = max(before, 0)
        frame.append((axis, start, start + source.shape[axis]))
    if x.dtype.kind != "f":
        value = bool(value) if x.dtype is dtypes.bool else int(value)
    out = creation.full(shape, value, dtype=x.dtype)
    part = out
    for axis, start, stop in frame:
        part = view.slice_dim(part, axis, start, stop, 1)
    record.store(part, source)
    return out


@padded.vjp
def _(g: Tensor, widths: Shape) -> Any:
    return padded(g, tuple(-w for w in widths), 0.0)


# --------------------------------------------------------------------------- cross product


@export(method=True, out=True)
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """Cross products of vectors of three elements along an axis.

    Args:
        input, other: of size 3 along the axis; they broadcast.
        dim: the axis; None for the first one of size 3.

    Returns:
        The products. Differentiable in both.

    Raises:
        RuntimeError: if there is no axis of size 3, or the numbers of axes differ.

    Example:
        >>> adjit.cross(adjit.tensor([1., 0., 0.]), adjit.tensor([0., 1., 0.]))
        tensor([0., 0., 1.])
    """
    if dim is None:
        shape = broadcast_shapes(input.shape, other.shape)
        if 3 not in shape:
            raise RuntimeError("no dimension of size 3 in input")
        dim = shape.index(3)
    return linalg_cross(input, other, dim=dim)


@export(namespace="linalg", name="cross", out=True)
def linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """Cross products of vectors of three elements along an axis, by default the last.

    Raises:
        RuntimeError: if the size of the axis is not 3, or the numbers of axes differ.

    Example:
        >>> adjit.linalg.cross(adjit.tensor([1., 0., 0.]), adjit.tensor([0., 1., 0.]))
        tensor([0., 0., 1.])
    """
    if input.ndim != other.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    axis = wrap_dim(dim, input.ndim)
    if input.shape[axis] != 3 or other.shape[axis] != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got "
            f"{input.shape[axis]} and {other.shape[axis]}"
        )
    return cross_product(input, other, axis)


@operation("LinalgCrossBackward0")
def cross_product(x: Tensor, y: Tensor, dim: int) -> Tensor:
    """Cross products along `dim`."""
    a, b = ([view.select(t, dim, k) for k in range(3)] for t in (x, y))
    pairs = ((1, 2), (2, 0), (0, 1))
    return stack([a[i] * b[j] - a[j] * b[i] for i, j in pairs], dim)


@cross_product.vjp
def _(g: Tensor, x: Tensor, y: Tensor, dim: int) -> Any:
    return cross_product(y, g, dim), cross_product(g, x, dim)
