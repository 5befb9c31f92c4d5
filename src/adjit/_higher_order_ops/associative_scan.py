"""Running results of any associative operation, in about twice the logarithm of as many steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..func.vmap import vmap
from ..graph import record
from ..ops.joining import cat, stack
from ..shapes import wrap_dim
from ..tensor import Tensor
from ..utils._pytree import TreeSpec, tree_flatten, tree_unflatten

__all__ = ["associative_scan"]

Combine = Callable[[list[Tensor], list[Tensor]], list[Tensor]]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:  # fmt: skip
    """Combine, at each place of an axis, all slices up to it: `cumsum` for any associative function.

    Differentiable in `xs`, and in what `combine_fn` closes over. Neighbours are combined first, then pairs of
    them, all of a kind at once, after Blelloch, Prefix sums and their applications (1990).

    Args:
        combine_fn: takes two slices, tensors or containers like `xs`, and gives such a one; it must be
            associative, and need not be commutative.
        xs: a tensor, or a container of tensors that have one size along `dim`.
        dim: the axis.
        reverse: whether to begin at the end.
        combine_mode: "pointwise" if `combine_fn` does the same to each element, so that it may be given many
            slices at once; "generic" for any function, which is given slices without the axis, by `vmap`.

    Returns:
        What `xs` is, in the same shapes.

    Raises:
        ValueError: if there are no tensors, or nothing along the axis, or the sizes there differ.
        RuntimeError: if `combine_fn` gives other shapes or dtypes than it was given.

    Example:
        >>> from adjit._higher_order_ops import associative_scan
        >>> decays, inputs = adjit.full((4,), 0.5), adjit.ones(4)
        >>> def step(a, b):  # x[t] = decay * x[t - 1] + input
        ...     return a[0] * b[0], a[1] * b[0] + b[1]
        >>> associative_scan(step, (decays, inputs), 0)[1]
        tensor([1.0000, 1.5000, 1.7500, 1.8750])
    """
    leaves, spec = tree_flatten(xs)
    axis = _checked(combine_fn, leaves, dim, reverse, combine_mode)
    moved = [leaf.movedim(axis, 0) for leaf in leaves]
    if reverse:
        moved = [leaf.flip(0) for leaf in moved]
    function = vmap(combine_fn) if combine_mode == "generic" else combine_fn
    found = _scan(_of_leaves(function, spec), moved)
    if reverse:
        found = [leaf.flip(0) for leaf in found]
    return tree_unflatten([leaf.movedim(0, axis) for leaf in found], spec)


def _checked(combine_fn: Any, leaves: list[Any], dim: Any, reverse: Any, combine_mode: Any) -> int:
    """The axis, if the arguments are as they should be."""
    if not callable(combine_fn):
        raise ValueError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(dim, int):
        raise ValueError(f"Dim must be an int, but got {type(dim)}")
    if not isinstance(reverse, bool):
        raise RuntimeError(f"Reverse must be a bool, but got {type(reverse)}")
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(
            f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}"
        )
    if not leaves:
        raise ValueError("Expected at least 1 xs leaf")
    if not all(map(record.is_tensor, leaves)):
        raise ValueError("xs leaves must be a Tensor")
    axis = wrap_dim(dim, leaves[0].ndim)
    if any(leaf.ndim <= axis or leaf.shape[axis] == 0 for leaf in leaves):
        raise ValueError(
            "All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0"
        )
    sizes = [leaf.shape[axis] for leaf in leaves]
    if len(set(sizes)) > 1:
        raise ValueError(
            f"All xs leaves must have one size along the scan dimension, but got {sizes}"
        )
    return axis


def _of_leaves(function: Callable[[Any, Any], Any], spec: TreeSpec) -> Combine:
    """The function, of the tensors in the containers."""

    def combine(a: list[Tensor], b: list[Tensor]) -> list[Tensor]:
        found, its = tree_flatten(function(tree_unflatten(a, spec), tree_unflatten(b, spec)))
        if its != spec:
            raise RuntimeError(
                f"combine_fn was given {spec} and returned {its}: it must return the same"
            )
        for given, made in zip(b, found, strict=True):
            if (given.shape, given.dtype) != (made.shape, made.dtype):
                raise RuntimeError(
                    f"combine_fn was given a tensor of shape {tuple(given.shape)} and {given.dtype} and "
                    f"returned {tuple(made.shape)} and {made.dtype} in its place: they must be the same"
                )
        return found

    return combine


def _scan(combine: Combine, xs: list[Tensor]) -> list[Tensor]:
    """Along the first axis: pairs of neighbours are scanned, and what lies between them follows."""
    length = xs[0].shape[0]
    if length < 2:
        return xs
    pairs = combine([x[: length - 1 : 2] for x in xs], [x[1::2] for x in xs])
    odd = _scan(combine, pairs)
    if length == 2:
        return [cat([x[:1], y]) for x, y in zip(xs, odd, strict=True)]
    between = combine([y[: (length - 1) // 2] for y in odd], [x[2::2] for x in xs])
    even = [cat([x[:1], y]) for x, y in zip(xs, between, strict=True)]
    return [_in_turn(*both) for both in zip(even, odd, strict=True)]


def _in_turn(first: Tensor, second: Tensor) -> Tensor:
    """Slices of one tensor and of another, which has as many or one less, in turn."""
    count = second.shape[0]
    woven: Tensor = stack([first[:count], second], 1).flatten(0, 1)
    return woven if first.shape[0] == count else cat([woven, first[count:]])
