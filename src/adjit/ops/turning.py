"""Reversing, rolling and turning axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..devices import CPU
from ..dtypes import carrier
from ..formats import contiguous_format
from ..graph.export import export
from ..graph.launch import launch
from ..graph.normalized import normalizes
from ..graph.operation import operation
from ..graph.view import as_own
from ..kernels.ops import shape as kernels
from ..schedule.planning.recipe import GRAIN
from ..shapes import (
    Shape,
    an_int,
    coalesce,
    listed,
    numel,
    one_list,
    shape_of,
    some_ints,
    wrap_dim,
    wrap_dims,
)
from ..tensor import Tensor
from . import layouts, slicing
from .joining import cat

# What a short row is moved as, by its bytes; CPUs read it wherever it lies, GPUs do not: 50,350 rows of 2
# float32 in 12 us, 85 as rows.
AS_ONE = {
    kind.itemsize: kind for kind in dtypes.SUPPORTED if kind.kind == "i" and kind.itemsize > 1
}


@export(method=True, public=False)
@normalizes
@listed("dims", after=1)
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
    return reverse.on(input, wrap_dims(axes, input.ndim) if axes else ())


export(one_list("dims")(flip))


@operation("FlipBackward0")
def reverse(x: Tensor, dims: Shape) -> Tensor:
    """`x` reversed along axes."""
    if x.numel() == 0:
        return x.clone()
    strides, axes = x._spec.strides, layouts.axes_in_memory(x)
    steps = [-strides[d] if d in dims else strides[d] for d in axes]
    first = sum((x.shape[d] - 1) * strides[d] for d in dims if x.ndim)
    return layouts.put_back(walked(x, tuple([x.shape[d] for d in axes]), steps, first), axes)


def walked(x: Tensor, shape: Shape, steps: Sequence[int], first: int) -> Tensor:
    """A dense tensor of the elements of `x` met from the first one on, recorded."""
    sizes, (merged,) = coalesce(shape, [steps])
    moved = carrier(x.dtype)
    if len(sizes) > 1 and merged[-1] == 1 and x.device is CPU:
        kind = AS_ONE.get(sizes[-1] * moved.itemsize, moved)
        whole = sizes[-1]
        if kind is not moved and not any(n % whole for n in (first, *merged[:-1])):
            moved, first = kind, first // whole
            sizes, merged = sizes[:-1], tuple([n // whole for n in merged[:-1]])
    length, step = (sizes[-1], merged[-1]) if sizes else (1, 1)
    rows = numel(sizes[:-1])
    return launch(
        kernels.walk, (x,), [(shape, x.dtype)], bind={"T": moved},
        words=(first, length, step, len(sizes[:-1]), *sizes[:-1], *merged[:-1]),
        n=rows, grain=max(1, GRAIN // max(length, 1)),
    )  # fmt: skip


reverse.linear("x")


@reverse.vjp
def _(g: Tensor, dims: Shape) -> Any:
    return reverse(g, dims)


reverse.batched_over("dims")


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
@normalizes
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
    moves = some_ints(shifts)
    axes = [] if dims is None else some_ints(dims)
    if not moves:
        raise RuntimeError("`shifts` required")
    if axes and not input.ndim:
        raise IndexError(f"Dimension specified as {axes[0]} but tensor has no dimensions")
    if not axes and len(moves) == 1:
        return as_own(rolled(input.reshape(-1), (moves[0],), (0,)).view(input.shape))
    if len(moves) != len(axes):
        raise RuntimeError(
            f"shifts and dimensions must align. shifts: {len(moves)}, dims:{len(axes)}"
        )
    return rolled.on(input, tuple(moves), tuple(wrap_dim(d, input.ndim) for d in axes))


@operation("RollBackward0")
def rolled(x: Tensor, shifts: Shape, dims: Shape) -> Tensor:
    """`x` with elements moved along axes."""
    out = x
    for shift, dim in zip(shifts, dims, strict=True):
        size = out.shape[dim] if out.ndim else 1
        cut = -shift % max(size, 1)
        if cut:
            parts = [
                slicing.slice_dim(out, dim, first, last, 1)
                for first, last in ((cut, size), (0, cut))
            ]
            out = cat(parts, dim)
    return layouts.reporting_c_order(out.clone() if out is x else out)


rolled.linear("x")


@rolled.vjp
def _(g: Tensor, shifts: Shape, dims: Shape) -> Any:
    return rolled(g, tuple(-s for s in shifts), dims)


rolled.batched_over("dims")


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
    k = an_int("rot90", "k", 2, k)
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
        return x.clone(memory_format=contiguous_format)
    if k == 2:
        return reverse(x, dims)
    return reverse(x, (b,) if k == 1 else (a,)).transpose(a, b)  # with PyTorch's strides


turned.linear("x")


@turned.vjp
def _(g: Tensor, k: int, dims: Shape) -> Any:
    return turned(g, -k % 4, dims)


turned.batched_over("dims")
