"""From samples to batches."""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from ...dtypes import float64
from ...ops.creation import as_tensor, tensor
from ...ops.joining import stack
from ...tensor import Tensor


def _rebuild(template: Any, entries: dict[Any, Any] | list[Any]) -> Any:
    """`entries` in a container of `template`'s type; a plain one where that cannot be made."""
    try:
        if isinstance(template, (MutableMapping, MutableSequence)):
            clone = copy.copy(template)
            pairs = entries.items() if isinstance(entries, dict) else enumerate(entries)
            for key, entry in pairs:
                clone[key] = entry
            return clone
        return type(template)(entries)
    except TypeError:
        return entries


def _is_namedtuple(value: object) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def default_convert(data: Any) -> Any:
    """Arrays and NumPy numbers as tensors, inside any nesting of mappings and sequences.

    What a loader without batches does to each sample. Strings and other objects stay.

    Example:
        >>> import numpy as np
        >>> adjit.utils.data.default_convert({"x": np.arange(2), "name": "a"})
        {'x': tensor([0, 1]), 'name': 'a'}
    """
    match data:
        case Tensor() | str() | bytes():
            return data
        case np.ndarray():
            return data if data.dtype.kind in "SUO" else as_tensor(data)
        case np.generic():
            return as_tensor(data)
        case Mapping():
            return _rebuild(data, {key: default_convert(entry) for key, entry in data.items()})
        case tuple() if _is_namedtuple(data):
            return type(data)(*map(default_convert, data))
        case tuple():
            return [default_convert(entry) for entry in data]
        case Sequence():
            return _rebuild(data, [default_convert(entry) for entry in data])
        case _:
            return data


def pinned(data: Any) -> Any:
    """A batch in page-locked memory, inside any nesting; what has `pin_memory` of its own does it so."""
    match data:
        case str() | bytes():
            return data
        case Mapping():
            return _rebuild(data, {key: pinned(entry) for key, entry in data.items()})
        case tuple() if _is_namedtuple(data):
            return type(data)(*map(pinned, data))
        case tuple():
            return [pinned(entry) for entry in data]
        case Sequence():
            return _rebuild(data, [pinned(entry) for entry in data])
        case _:
            return data.pin_memory() if hasattr(data, "pin_memory") else data


def default_collate(batch: Sequence[Any]) -> Any:
    """One batch from a list of samples: what a loader does unless it is told otherwise.

    Tensors and arrays are stacked along a new first dimension; numbers become a tensor (float64
    or int64); strings a list; mappings, sequences and named tuples are gone through entry by
    entry. The first sample tells which.

    Raises:
        RuntimeError: sequences of different lengths, tensors of different shapes.
        TypeError: samples of any other type.

    Example:
        >>> adjit.utils.data.default_collate([{"x": 1, "name": "a"}, {"x": 2, "name": "b"}])
        {'x': tensor([1, 2]), 'name': ['a', 'b']}
    """
    first = batch[0]
    match first:
        case Tensor():
            return stack(list(batch), 0)
        case np.ndarray():
            if first.dtype.kind in "SUO":
                raise _cannot_collate(first.dtype)
            return stack([as_tensor(array) for array in batch], 0)
        case str() | bytes():
            return batch
        case float() if not isinstance(first, np.generic):
            return tensor(batch, dtype=float64)
        case int():
            return tensor(batch)
        case np.bool_() | np.number():
            return as_tensor(np.asarray(batch))
        case Mapping():
            return _rebuild(
                first, {key: default_collate([sample[key] for sample in batch]) for key in first}
            )
        case tuple() if _is_namedtuple(first):
            return type(first)(*map(default_collate, zip(*batch, strict=True)))
        case Sequence():
            if any(len(sample) != len(first) for sample in batch):
                raise RuntimeError("each element in list of batch should be of equal size")
            columns = [default_collate(column) for column in zip(*batch, strict=True)]
            return columns if isinstance(first, tuple) else _rebuild(first, columns)
        case _:
            raise _cannot_collate(type(first))


def _cannot_collate(what: object) -> TypeError:
    return TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {what}"
    )
