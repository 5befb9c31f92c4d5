"""Joining tensors along an axis, old or new."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..dtypes import carrier, dtype
from ..graph.export import export
from ..graph.launch import launch
from ..graph.normalized import normalizes_in_order
from ..graph.operation import operation
from ..kernels.ops import shape as kernels
from ..schedule.planning.recipe import GRAIN
from ..shapes import Shape, coalesce, numel, numpy_names, wrap_dim
from ..tensor import Tensor
from . import layouts
from .creation import empty


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


@normalizes_in_order
@numpy_names
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
    passed, *rest = checked_join(check_tensors("cat", tensors), dim)
    return join_others.on(tensors, passed, *rest) if passed else join.on(tensors, *rest)


def checked_join(
    found: list[Tensor], dim: int
) -> tuple[tuple[int, ...], int, tuple[int, ...], dtype]:
    """The places of empty vectors among tensors with more axes, the axis, the sizes there and the dtype."""
    if not found:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    for position, t in enumerate(found):
        if t.ndim == 0:
            raise RuntimeError(
                f"zero-dimensional tensor (at position {position}) cannot be concatenated"
            )
    kind = promoted(found)
    parts = [t for t in found if t.shape != (0,)]
    if not parts:  # whatever the axis is
        return (), 0, (0,) * len(found), kind
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
    sizes = tuple([0 if t.shape == (0,) else t.shape[axis] for t in found])
    passed = tuple([k for k, t in enumerate(found) if t.ndim < len(first)])
    return passed, axis, sizes, kind


@operation("CatBackward0")
def join(tensors: Sequence[Tensor], dim: int, sizes: Sequence[int], kind: dtype) -> Tensor:
    """Tensors of these sizes along `dim`, one after the other; images lie as most of them do.

    What is made of the result, and what its gradient is made of, then lies so too.
    """
    at_end = lie_as_images(tensors)
    models = tensors[:1] if all(layouts.reports_channels_last(t._spec) for t in tensors) else ()
    if at_end:
        order = layouts.last(tensors[0].ndim)
        tensors, dim = [t.permute(order) for t in tensors], order.index(dim)
    first = tensors[0].shape
    shape = (*first[:dim], sum(sizes), *first[dim + 1 :])
    inner = numel(first[dim + 1 :])
    widths = [n * inner for n in sizes]
    joined = side_by_side(tensors, shape, numel(first[:dim]), widths, kind)
    return layouts.as_images(joined, at_end, *models)


def lie_as_images(tensors: Sequence[Tensor]) -> bool:
    """Whether they are images most elements of which lie with the channels at the end."""
    if tensors[0].ndim < 4:
        return False
    balance = [t.numel() if layouts.channels_last(t) else -t.numel() for t in tensors]
    return sum(balance) > 0


MOST_PARTS = max(kernels.JOINS)


def side_by_side(
    tensors: Sequence[Tensor], shape: Shape, rows: int, widths: Sequence[int], kind: dtype
) -> Tensor:
    """A dense tensor whose rows are the rows of the parts, one part after the other."""
    converted = [(t.to(kind), w) for t, w in zip(tensors, widths, strict=True) if w]
    parts = [(t if line_of(t, rows, w) is not None else t.contiguous(), w) for t, w in converted]
    while len(parts) > MOST_PARTS:
        groups = [parts[k : k + MOST_PARTS] for k in range(0, len(parts), MOST_PARTS)]
        parts = [
            (launch_join(g, (rows, sum(w for _, w in g)), rows), sum(w for _, w in g))
            for g in groups
        ]
    if not parts or rows == 0:
        return empty(shape, dtype=kind, device=tensors[0].device)
    if len(parts) == 1:
        return parts[0][0].reshape(shape).clone()
    return launch_join(parts, shape, rows)


def line_of(t: Tensor, rows: int, width: int) -> int | None:
    """The elements from one row to the next of a tensor that is so many dense rows; None if it is not."""
    sizes, (steps,) = coalesce(t.shape, [t._spec.strides])
    if len(sizes) == 2 and sizes == (rows, width) and steps[1] == 1:
        return steps[0]
    if len(sizes) == 1 and width == 1:
        return steps[0]
    return width if len(sizes) < 2 and (not sizes or steps == (1,)) else None


def launch_join(parts: Sequence[tuple[Tensor, int]], shape: Shape, rows: int) -> Tensor:
    """Parts, each so many dense rows of a width, side by side, recorded."""
    width = sum(w for _, w in parts)
    count = next(size for size in kernels.JOINS if size >= len(parts))
    layout, start = [width], 0
    for t, w in parts:
        line = line_of(t, rows, w)
        assert line is not None
        layout += [start, w, line]
        start += w
    layout += [start, 0, 0] * (count - len(parts))
    filled = [*parts, *[parts[-1]] * (count - len(parts))]
    kind = parts[0][0].dtype
    return launch(
        kernels.JOINS[count], [t for t, _ in filled], [(shape, kind)],
        bind={"T": carrier(kind)}, words=layout, n=numel(shape), grain=GRAIN,
    )  # fmt: skip


join.linear("tensors")


@join.vjp
def _(g: Tensor, dim: int, sizes: Sequence[int]) -> Any:
    ends = list(itertools.accumulate(sizes))
    return ([g.narrow(dim, end - size, size) for end, size in zip(ends, sizes, strict=True)],)


join.batched_over("dim")


@operation("CatBackward0")
def join_others(
    tensors: Sequence[Tensor], passed: tuple[int, ...], dim: int, sizes: Sequence[int], kind: dtype
) -> Tensor:
    """`join` of all but the empty vectors at some places, whose sizes are 0."""
    kept = [k for k in range(len(tensors)) if k not in passed]
    made: Tensor = join([tensors[k] for k in kept], dim, [sizes[k] for k in kept], kind)
    return made


join_others.linear("tensors")


@join_others.vjp
def _(g: Tensor, passed: tuple[int, ...], dim: int, sizes: Sequence[int]) -> Any:
    ends = list(itertools.accumulate(sizes))
    parts = [g.narrow(dim, end - size, size) for end, size in zip(ends, sizes, strict=True)]
    return ([g.new_zeros(0) if k in passed else part for k, part in enumerate(parts)],)


join_others.batched_as_body()


@normalizes_in_order
@numpy_names
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
    return pile.on(tensors, *checked_pile(check_tensors("stack", tensors), dim))


def checked_pile(found: list[Tensor], dim: int) -> tuple[int, dtype]:
    """The axis that is new and the dtype."""
    if not found:
        raise RuntimeError("stack expects a non-empty TensorList")
    axis = wrap_dim(dim, found[0].ndim + 1)
    for position, t in enumerate(found):
        if t.shape != found[0].shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(found[0].shape)} at "
                f"entry 0 and {list(t.shape)} at entry {position}"
            )
    return axis, promoted(found)


@operation("StackBackward0")
def pile(tensors: Sequence[Tensor], dim: int, kind: dtype) -> Tensor:
    """Tensors of one shape along a new axis."""
    first = tensors[0].shape
    shape = (*first[:dim], len(tensors), *first[dim:])
    widths = [numel(first[dim:])] * len(tensors)
    return side_by_side(tensors, shape, numel(first[:dim]), widths, kind)


pile.linear("tensors")


@pile.vjp
def _(g: Tensor, dim: int) -> Any:
    return ([g.select(dim, k) for k in range(g.shape[dim])],)


pile.batched_over("dim")


export(name=("cat", "concat", "concatenate"), out=True)(cat)
export(out=True)(stack)
