"""Functions of one example made functions of many."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..graph.record import is_tensor
from ..ops.joining import cat
from ..random import get_rng_state, set_rng_state
from ..tensor import Tensor
from ..tracers.batched import BatchLevel
from ..utils._pytree import (
    TreeSpec,
    _broadcast_to_and_flatten,
    tree_flatten,
    tree_leaves,
    tree_unflatten,
)

Dims = Any  # an axis, None, or nested containers of these


def name_of(func: Any) -> str:
    """What a function is called in messages."""
    if hasattr(func, "__name__"):
        return str(func.__name__)
    if isinstance(func, functools.partial):
        return f"functools.partial({name_of(func.func)}, ...)"
    return repr(func)


def vmap(
    func: Callable[..., Any],
    in_dims: Dims = 0,
    out_dims: Dims = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function that does with many examples at once what `func` does with one.

    Differentiable wherever `func` is. Operations have rules for batches: `func` is called once, with tensors
    that look like one example, whose elements Python cannot look at (`if x > 0`, `.item()`).

    Args:
        func: a function of tensors, or of nested lists, tuples and dictionaries of them, that returns such.
        in_dims: the axis of each argument along which the examples lie, None for an argument that they
            share; one for all arguments, or a tuple with one for each, nested like the arguments.
        out_dims: where the axis of the examples is in each result; None for results that are the same for all.
        randomness: whether random numbers are "different" or the "same" for the examples, or an "error".
        chunk_size: how many examples are computed at once, None for all.

    Raises:
        ValueError: if `in_dims` or `out_dims` do not fit, with PyTorch's texts.
        RuntimeError: if Python looks at an example's elements, if a tensor that examples share is written
            with what they do not, or on a random number while `randomness` is "error".

    Example:
        >>> adjit.func.vmap(adjit.dot)(adjit.ones(2, 3), adjit.ones(2, 3))
        tensor([3., 3.])
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(
            f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}"
        )
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        check_out_dims(out_dims, func)
        size, dims, leaves, spec = taken_apart(in_dims, args, func)
        if chunk_size is None:
            return run(func, size, dims, leaves, spec, out_dims, randomness, kwargs)
        before = get_rng_state() if randomness == "same" else None
        made = []
        for start in range(0, size, chunk_size):
            count = min(chunk_size, size - start)
            part = [
                t if dim is None else t.narrow(dim, start, count)
                for t, dim in zip(leaves, dims, strict=True)
            ]
            if before is not None:
                set_rng_state(before)
            made.append(run(func, count, dims, part, spec, out_dims, randomness, kwargs))
        return joined(made, out_dims)

    return mapped


def check_out_dims(out_dims: Dims, func: Any) -> None:
    """Raise if an axis of the results is none."""
    for dim in tree_leaves(out_dims):
        if not (dim is None or isinstance(dim, int)):
            raise ValueError(
                f"vmap({name_of(func)}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a "
                "python collection of ints representing where in the outputs the vmapped dimension should "
                "appear."
            )


def taken_apart(
    in_dims: Dims, args: Sequence[Any], func: Any
) -> tuple[int, list[int | None], list[Any], TreeSpec]:
    """The number of examples; the leaves of the arguments with their axes; what the arguments are
    without them."""

    def call() -> str:
        return f"vmap({name_of(func)}, in_dims={in_dims}, ...)(<inputs>)"

    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{call()}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of "
            f"inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({name_of(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are "
            f"trying "
            "to vmap over a function with no inputs. The latter is unsupported."
        )
    leaves, spec = tree_flatten(tuple(args))
    dims = _broadcast_to_and_flatten(in_dims, spec)
    if dims is None:
        raise ValueError(
            f"{call()}: in_dims is not compatible with the structure of `inputs`. in_dims has structure "
            f"{tree_flatten(in_dims)[1]} but inputs has structure {spec}."
        )
    for k, (t, dim) in enumerate(zip(leaves, dims, strict=True)):
        if dim is None:
            continue
        if not isinstance(dim, int):
            raise ValueError(
                f"{call()}: Got in_dim={dim} for an input but in_dim must be either an integer dimension "
                "or None."
            )
        if not is_tensor(t):
            raise ValueError(
                f"{call()}: Got in_dim={dim} for an input but the input is of type {type(t)}. We cannot "
                f"vmap over "
                "non-Tensor arguments, please use None as the respective in_dim"
            )
        if not -t.ndim <= dim < t.ndim:
            raise ValueError(
                f"{call()}: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality "
                f"{t.ndim} so expected in_dim to satisfy -{t.ndim} <= in_dim < {t.ndim}."
            )
        dims[k] = dim % t.ndim
    sizes = [t.shape[dim] for t, dim in zip(leaves, dims, strict=True) if dim is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if any(size != sizes[0] for size in sizes):
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return sizes[0], dims, leaves, spec


def run(
    func: Callable[..., Any], size: int, dims: Sequence[int | None], leaves: Sequence[Any], spec: TreeSpec,
    out_dims: Dims, randomness: str, kwargs: dict[str, Any],
) -> Any:  # fmt: skip
    """What a function gives for so many examples."""
    level = BatchLevel(size, randomness)
    given = [
        t if dim is None else level.wrapped(t.movedim(dim, 0))
        for t, dim in zip(leaves, dims, strict=True)
    ]
    with level.active():
        made = func(*tree_unflatten(given, spec), **kwargs)
        return put_together(level, made, out_dims, func)


def put_together(level: BatchLevel, made: Any, out_dims: Dims, func: Any) -> Any:
    """Results of one example as those of all."""
    leaves, spec = tree_flatten(made)
    dims = _broadcast_to_and_flatten(out_dims, spec)
    if is_tensor(made) and isinstance(out_dims, tuple):
        dims = list(out_dims) if len(out_dims) == 1 else None
    name = name_of(func)
    if dims is None:
        raise ValueError(
            f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the "
            f"structure of "
            f"`outputs`. out_dims has structure {tree_flatten(out_dims)[1]} but outputs has structure {spec}."
        )
    found = []
    for t, dim in zip(leaves, dims, strict=True):
        if dim is None:
            if level.has(t):
                raise ValueError(
                    f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None"
                )
        elif not is_tensor(t):
            raise ValueError(
                f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(t)}. Did you mean "
                f"to set "
                "out_dims= to None for output?"
            )
        else:
            t = level.full(t).movedim(0, dim)
        found.append(t)
    return tree_unflatten(found, spec)


def joined(made: Sequence[Any], out_dims: Dims) -> Any:
    """The results of chunks in one piece."""
    flat = [tree_flatten(part) for part in made]
    spec = flat[0][1]
    dims = _broadcast_to_and_flatten(out_dims, spec)
    if is_tensor(made[0]) and isinstance(out_dims, tuple):
        dims = list(out_dims)
    assert dims is not None
    columns: Iterator[Sequence[Tensor]] = zip(*[leaves for leaves, _ in flat], strict=True)
    found = [
        parts[0] if dim is None else cat(list(parts), dim)
        for parts, dim in zip(columns, dims, strict=True)
    ]
    return tree_unflatten(found, spec)


def _vmap(
    func: Callable[..., Any],
    in_dims: Dims = 0,
    out_dims: Dims = 0,
    allow_none_pass_through: bool = False,
) -> Callable[..., Any]:
    """`vmap` as programs of before 2022 import it from `torch._vmap_internals`.

    With `allow_none_pass_through`, None among the results of `func` is None among the results.
    """
    if not allow_none_pass_through:
        return vmap(func, in_dims, out_dims)

    def call(*args: Any) -> Any:
        kept: list[bool] = []

        def found(*examples: Any) -> tuple[Any, ...]:
            out = func(*examples)
            results = out if isinstance(out, tuple) else (out,)
            kept[:] = [t is not None for t in results]
            is_tuple.append(isinstance(out, tuple))
            return tuple(t for t in results if t is not None)

        is_tuple: list[bool] = []
        made = iter(vmap(found, in_dims, out_dims)(*args))
        results = tuple(next(made) if is_there else None for is_there in kept)
        return results if is_tuple[-1] else results[0]

    return call
