"""Joining, repeating and broadcasting."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes, errors
from ..dtypes import dtype
from ..formats import contiguous_format
from ..graph import write
from ..graph.batching import Batch
from ..graph.composed import composed
from ..graph.export import export
from ..graph.normalized import normalizes
from ..graph.operation import operation
from ..graph.view import as_own
from ..graph.wrong_types import check_all
from ..shapes import (
    Shape,
    broadcast_shapes,
    checked_shape,
    listed,
    numpy_names,
    one_list,
    shape_of,
    wrap_dim,
)
from ..tensor import Tensor
from . import creation, slicing
from .joining import cat, check_tensors, promoted, stack
from .padding import padded


def stacked_like(name: str, tensors: Any) -> list[Tensor]:
    """The tensors of `hstack` and its kin."""
    found = check_tensors(name, tensors)
    if not found:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return found


@export(out=True)
@composed
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the second axis, vectors along their only one.

    Differentiable.

    Example:
        >>> adjit.hstack([adjit.tensor([1.]), adjit.tensor([2.])])
        tensor([1., 2.])
    """
    parts = [atleast_1d(t) for t in stacked_like("hstack", tensors)]
    return cat(parts, 0 if parts[0].ndim == 1 else 1)


@export(name=("vstack", "row_stack"), out=True)
@composed
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the first axis, vectors as rows.

    Differentiable.

    Example:
        >>> adjit.vstack([adjit.tensor([1., 2.]), adjit.tensor([3., 4.])]).shape
        adjit.Size([2, 2])
    """
    return cat([atleast_2d(t) for t in stacked_like("vstack", tensors)], 0)


@export(out=True)
@composed
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the third axis, after `atleast_3d`.

    Differentiable.

    Example:
        >>> adjit.dstack([adjit.tensor([1., 2.]), adjit.tensor([3., 4.])]).shape
        adjit.Size([1, 2, 2])
    """
    return cat([atleast_3d(t) for t in stacked_like("dstack", tensors)], 2)


@export(out=True)
@composed
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the second axis, vectors as columns.

    Differentiable.

    Example:
        >>> adjit.column_stack([adjit.tensor([1., 2.]), adjit.tensor([3., 4.])])
        tensor([[1., 3.],
                [2., 4.]])
    """
    parts = stacked_like("column_stack", tensors)
    return hstack([t.reshape(t.numel(), 1) if t.ndim <= 1 else t for t in parts])


@export
@composed
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
    sizes = sum(s[0] for s in shapes), sum(s[1] for s in shapes)
    out = creation.zeros(sizes, dtype=kind, device=tensors[0].device)
    for region, t in zip(blocks_of(out, shapes), tensors, strict=True):
        write.store(region, t)
    return out


place_blocks.linear("tensors")


@place_blocks.vjp
def _(g: Tensor, shapes: Sequence[Shape]) -> Any:
    return (blocks_of(g, shapes),)


@place_blocks.batched
def _(batch: Batch, tensors: Sequence[Tensor], shapes: Sequence[Shape], kind: dtype) -> Tensor:
    columns = sum(s[1] for s in shapes)
    rows, before = [], 0
    for t, (_, width) in zip(tensors, shapes, strict=True):
        rows.append(padded(t.to(kind), (before, columns - before - width), 0))
        before += width
    return cat(rows, 0)


def blocks_of(x: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
    """Views of the blocks on the diagonal."""
    blocks = []
    row = column = 0
    for rows, columns in shapes:
        band = slicing.slice_dim(x, 0, row, row + rows, 1)
        blocks.append(slicing.slice_dim(band, 1, column, column + columns, 1))
        row, column = row + rows, column + columns
    return blocks


# --------------------------------------------------------------------------- repeating


@export(method=True, public=False)
@normalizes
@listed("repeats", after=1)
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
    return repeated.on(input, repeats, padded)


@operation("RepeatBackward0")
def repeated(x: Tensor, repeats: Shape, shape: Shape) -> Tensor:
    """`x`, of this shape once axes are put in front, repeated: axis by axis, so that runs become longer."""
    if 0 in repeats:
        return x.new_empty([n * times for n, times in zip(shape, repeats, strict=True)])
    sizes, out = [*shape], x.reshape(shape)
    for axis in reversed([d for d, times in enumerate(repeats) if times != 1]):
        wide = out.unsqueeze(axis).expand(*sizes[:axis], repeats[axis], *sizes[axis:])
        sizes[axis] *= repeats[axis]
        out = wide.clone(memory_format=contiguous_format).view(sizes)
    return out.clone(memory_format=contiguous_format) if shape == (*sizes,) else out


repeated.linear("x")


@repeated.vjp
def _(g: Tensor, repeats: Shape, shape: Shape) -> Any:
    if 0 in repeats:
        return g.new_zeros(shape)
    parts = g.reshape([s for pair in zip(repeats, shape, strict=True) for s in pair])
    return parts.sum(dim=list(range(0, 2 * len(shape), 2))) if shape else g


@repeated.batched
def _(x: Tensor, repeats: Shape, shape: Shape) -> Tensor:
    whole = (x.shape[0], *shape)
    return repeated(x.reshape(whole), (1, *repeats), whole)


@export(method=True, public=False)
@composed
@listed("dims", after=1)
def tile(input: Tensor, *dims: Any) -> Tensor:
    """Copies of `input` along each axis; missing numbers in front count as 1.

    Example:
        >>> adjit.tile(adjit.tensor([1., 2.]), (2,))
        tensor([1., 2., 1., 2.])
    """
    repeats = tuple(shape_of(dims))
    return repeat(input, (1,) * (input.ndim - len(repeats)) + repeats)


export(one_list("dims")(tile))


@export(method=True)
@composed
@numpy_names
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
    return spread.clone(memory_format=contiguous_format).flatten(axis, axis + 1)


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


# --------------------------------------------------------------------------- grids, broadcasting


def one_or_list(tensors: tuple[Any, ...]) -> list[Tensor]:
    """The tensors of `f(a, b)` and of `f([a, b])`."""
    check_all(0, tensors)
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        return list(tensors[0])
    return list(tensors)


@export
def meshgrid(
    *tensors: Tensor | Sequence[Tensor], indexing: str | None = None
) -> tuple[Tensor, ...]:
    """Coordinates of a grid: views of the vectors along one axis each.

    Args:
        tensors: vectors or numbers of one dtype.
        indexing: `"ij"` for axes in the order of the arguments, `"xy"` with the first two swapped; without it
            `"ij"`, and a warning.

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
    if indexing is None:
        errors.warn_once(
            "torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument."
        )
        indexing = "ij"
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
@composed
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of elements of vectors, one row for each.

    Differentiable.

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
    return stack([g.flatten() for g in meshgrid(*tensors, indexing="ij")], 1)


@export
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of `r` elements of a vector, in order, one row for each.

    Differentiable.

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
    rows = choices(input.shape[0], r, with_replacement)
    chosen = input.index_select(0, creation.tensor(rows.reshape(-1), device=input.device))
    return as_own(chosen.view(rows.shape))


def choices(n: int, r: int, with_replacement: bool) -> np.ndarray[Any, np.dtype[np.int64]]:
    """All choices of `r` of the first `n` whole numbers, in order."""
    if r == 1:
        return np.arange(n).reshape(-1, 1)
    if r == 2:
        return np.stack(np.triu_indices(n, 0 if with_replacement else 1), 1)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    numbers = itertools.chain.from_iterable(choose(range(n), r))
    return np.fromiter(numbers, np.int64).reshape(-1, r)


@export
def broadcast_tensors(*tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of the tensors in their common shape; those that have it are given as they are.

    Raises:
        RuntimeError: if the shapes do not broadcast.

    Example:
        >>> x, y = adjit.broadcast_tensors(adjit.ones(3), adjit.ones(2, 1))
        >>> x.shape
        adjit.Size([2, 3])
    """
    found = one_or_list(tensors)
    shape = broadcast_shapes(*[t.shape for t in found])
    return tuple(t if t.shape == shape else t.expand(shape) for t in found)


def at_least(tensors: tuple[Any, ...], widen: Any) -> Any:
    """`widen` of one tensor, or of each of several."""
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return widen(tensors[0])
    return tuple(widen(t) for t in one_or_list(tensors))


@export
def atleast_1d(*tensors: Tensor | Sequence[Tensor]) -> Any:
    """Tensors with at least one axis: views.

    Example:
        >>> adjit.atleast_1d(adjit.tensor(2.))
        tensor([2.])
    """
    return at_least(tensors, lambda t: t if t.ndim else t.reshape(1))


@export
def atleast_2d(*tensors: Tensor | Sequence[Tensor]) -> Any:
    """Tensors with at least two axes: views, vectors as rows.

    Example:
        >>> adjit.atleast_2d(adjit.tensor([1., 2.])).shape
        adjit.Size([1, 2])
    """

    def widen(t: Tensor) -> Tensor:
        return t.reshape(1, 1) if t.ndim == 0 else t.unsqueeze(0) if t.ndim == 1 else t

    return at_least(tensors, widen)


@export
def atleast_3d(*tensors: Tensor | Sequence[Tensor]) -> Any:
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
