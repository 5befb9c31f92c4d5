"""Batches cut into parts for several devices, and put together again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ... import devices
from ...ops import joining, slicing
from ...tensor import Tensor


def _rebuilt(like: Any, values: list[Any]) -> Any:
    """A tuple or list like another one, named tuples too."""
    return type(like)(*values) if hasattr(like, "_fields") else type(like)(values)


def moved(value: Any, place: devices.device) -> Any:
    """Whatever has tensors in it, with these on a device."""
    if isinstance(value, Tensor):
        return value.to(place)
    if isinstance(value, (tuple, list)):
        return _rebuilt(value, [moved(part, place) for part in value])
    if isinstance(value, dict):
        return type(value)((key, moved(part, place)) for key, part in value.items())
    return value


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in what a module returns."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """Cut the tensors in tuples, lists and dicts along an axis, and give the parts, a device each.

    What is no tensor is in every part. Gradients flow back.

    Args:
        inputs: what a module is called with.
        target_gpus: the devices.
        dim: the axis.

    Example:
        >>> nn.parallel.scatter(adjit.arange(4), [adjit.device("cpu"), adjit.device("cpu")])
        (tensor([0, 1]), tensor([2, 3]))
    """
    places = [devices.check(place) for place in target_gpus]
    if isinstance(inputs, Tensor):
        parts = slicing.chunk(inputs, len(places), dim)
        return tuple([part.to(place) for part, place in zip(parts, places, strict=False)])
    if isinstance(inputs, (tuple, list)) and inputs:
        columns = [scatter(part, places, dim) for part in inputs]
        return [_rebuilt(inputs, list(row)) for row in zip(*columns, strict=False)]
    if isinstance(inputs, dict) and inputs:
        columns = [scatter(part, places, dim) for part in inputs.values()]
        return [type(inputs)(zip(inputs, row, strict=True)) for row in zip(*columns, strict=False)]
    return [inputs for _ in places]


def scatter_kwargs(
    inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: Sequence[Any], dim: int = 0
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """`scatter` for positional and for named arguments, as many parts of both.

    Example:
        >>> nn.parallel.scatter_gather.scatter_kwargs((adjit.arange(2),), None, [adjit.device("cpu")])
        (((tensor([0, 1]),),), ({},))
    """
    rows = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    count = max(len(rows), len(named))
    rows = [*rows, *[()] * (count - len(rows))]
    named = [*named, *[{} for _ in range(count - len(named))]]
    return tuple(rows), tuple(named)


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """Put the parts that devices have computed together on one: tensors, or equal tuples and dicts of them.

    Gradients flow back.

    Example:
        >>> nn.parallel.gather([adjit.ones(1), adjit.zeros(2)], "cpu")
        tensor([1., 0., 0.])
    """
    first = outputs[0]
    place = devices.check(target_device)
    if isinstance(first, Tensor):
        parts = [t.to(place) for t in outputs]
        return joining.cat([t.reshape(1) for t in parts] if not first.ndim else parts, dim)
    if first is None:
        return None
    if isinstance(first, dict):
        if not all(len(first) == len(other) for other in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return type(first)((key, gather([o[key] for o in outputs], place, dim)) for key in first)
    return _rebuilt(first, [gather(column, place, dim) for column in zip(*outputs, strict=True)])
