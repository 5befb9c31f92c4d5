"""Branches and loops over functions, which here are Python's own: what runs is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..graph import record
from ..ops.joining import stack
from ..utils._pytree import tree_flatten, tree_unflatten

__all__ = ["cond", "map", "while_loop"]


def cond(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: tuple[Any, ...] | list[Any] = (),
) -> Any:
    """Call one of two functions. Differentiable in what that one computes with.

    In a function that `adjit.compile` captures, a `pred` that is a tensor has it run as usual: which branch is
    taken depends on a value.

    Args:
        pred: a bool or a number, or a tensor with one element.
        true_fn: called where `pred` is true.
        false_fn: called where it is not.
        operands: what the function is called with: tensors, and containers of tensors.

    Returns:
        What that function returns.

    Raises:
        RuntimeError: if `pred` is neither a number nor a tensor with one element, a branch is no function, or
            there are other things than tensors among the operands of one that a tensor chooses.

    Example:
        >>> x = adjit.tensor([1.0, 2.0])
        >>> adjit.cond(x.sum() > 2, lambda x: x * 10, lambda x: -x, (x,))
        tensor([10., 20.])
    """
    if not isinstance(pred, (bool, int, float)):
        _check(pred, true_fn, false_fn, operands)
    return true_fn(*operands) if pred else false_fn(*operands)


def _check(pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> None:
    if not record.is_tensor(pred):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    is_sequence = isinstance(operands, (tuple, list))
    if not is_sequence or not all(record.is_tensor(leaf) for leaf in tree_flatten(operands)[0]):
        raise RuntimeError(
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only consists of tensor "
            f"leaves, but got {operands}."
        )


def while_loop(
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    carried_inputs: tuple[Any, ...] | list[Any],
) -> Any:
    """Call a function on what it returned last, as long as another one is true of it. Differentiable.

    Args:
        cond_fn: takes what is carried; gives a bool, or a tensor with one element.
        body_fn: takes what is carried; gives as much, in the same containers, shapes and dtypes.
        carried_inputs: what is carried at first: tensors, ints, and containers of them.

    Returns:
        What is carried at last, a tuple.

    Raises:
        RuntimeError: if one of both is no function, other things are carried, or `body_fn` returns something
            else than it was given.

    Example:
        >>> from adjit._higher_order_ops.control_flow import while_loop
        >>> while_loop(lambda k, x: k < 3, lambda k, x: (k + 1, x * 2), (adjit.tensor(0), adjit.ones(2)))
        (tensor(3), tensor([8., 8.]))
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    leaves, spec = tree_flatten(tuple(carried_inputs))
    if not all(record.is_tensor(leaf) or isinstance(leaf, int) for leaf in leaves):
        raise RuntimeError(
            "Expect carried_inputs to be a tuple of possibly nested dict/list/tuple that only consists of "
            f"tensor or int leaves, but got {carried_inputs}."
        )
    carried: Any = tuple(carried_inputs)
    while cond_fn(*carried):
        made = body_fn(*carried)
        carried = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        found, its = tree_flatten(carried)
        if its != spec:
            raise RuntimeError(
                f"body_fn was given {spec} and returned {its}: it must return the same"
            )
        for before, after in zip(leaves, found, strict=True):
            if _kind(before) != _kind(after):
                raise RuntimeError(
                    f"body_fn was given {_described(before)} and returned {_described(after)} in its "
                    "place: they must be the same"
                )
    return carried


def _kind(leaf: Any) -> tuple[Any, ...]:
    return (leaf.shape, leaf.dtype) if record.is_tensor(leaf) else (int,)


def _described(leaf: Any) -> str:
    return f"{leaf.dtype} {list(leaf.shape)}" if record.is_tensor(leaf) else type(leaf).__name__


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """Call a function on each row, one after another, and stack what it gives. Differentiable.

    `adjit.vmap` does it for all rows at once, which is faster wherever the function can be batched.

    Args:
        f: takes a row of `xs`, and `args`; gives a tensor, or a container of tensors.
        xs: a tensor, or a container of tensors that have as many rows.
        args: what else the function is given each time.

    Returns:
        What `f` gives, with an axis more in front.

    Raises:
        RuntimeError: if there are other things than tensors in `xs`, no rows, or different numbers of them.

    Example:
        >>> from adjit._higher_order_ops import map
        >>> map(lambda row, scale: row.sum() * scale, adjit.ones(2, 3), 10)
        tensor([30., 30.])
    """
    leaves, spec = tree_flatten(xs)
    if not leaves or not all(record.is_tensor(leaf) for leaf in leaves):
        raise RuntimeError(f"Mapped xs can only consist of tensors. Got xs {leaves}.")
    shapes = [leaf.shape for leaf in leaves]
    if any(not shape for shape in shapes):
        raise RuntimeError(f"Mapped xs must have a leading dimension. Got shapes {shapes}.")
    count = shapes[0][0]
    if count == 0:
        raise RuntimeError("Leading dimensions of mapped xs cannot be 0.")
    if any(shape[0] != count for shape in shapes):
        raise RuntimeError(
            f"Leading dimensions of mapped xs must be consistent. Got shapes {shapes}."
        )
    rows = [
        tree_flatten(f(tree_unflatten([leaf[k] for leaf in leaves], spec), *args))
        for k in range(count)
    ]
    return tree_unflatten(
        [stack(parts) for parts in zip(*[made for made, _ in rows], strict=True)], rows[0][1]
    )
