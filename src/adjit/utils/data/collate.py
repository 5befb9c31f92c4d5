"""From samples to batches."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
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


# As in PyTorch: how the dtypes of arrays of strings and objects are spelt, and what is said of them.
np_str_obj_array_pattern = re.compile(r"[SaUO]")
default_collate_err_msg_format = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)
_Functions = dict[Any, Callable[..., Any]]


def collate_tensor_fn(batch: Any, *, collate_fn_map: _Functions | None = None) -> Tensor:
    """Tensors, stacked."""
    return stack(list(batch), 0)


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: _Functions | None = None) -> Any:
    """Arrays, as tensors."""
    if np_str_obj_array_pattern.search(batch[0].dtype.str) is not None:
        raise TypeError(default_collate_err_msg_format.format(batch[0].dtype))
    return collate([as_tensor(array) for array in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: _Functions | None = None) -> Tensor:
    """NumPy's numbers, as a tensor."""
    return as_tensor(np.asarray(batch))


def collate_float_fn(batch: Any, *, collate_fn_map: _Functions | None = None) -> Tensor:
    """Numbers, as a tensor of float64."""
    return tensor(batch, dtype=float64)


def collate_int_fn(batch: Any, *, collate_fn_map: _Functions | None = None) -> Tensor:
    """Numbers, as a tensor of int64."""
    return tensor(batch)


def collate_str_fn(batch: Any, *, collate_fn_map: _Functions | None = None) -> Any:
    """Strings, as they are."""
    return batch


# Programs add types of their own, and take others' places.
default_collate_fn_map: _Functions = {
    Tensor: collate_tensor_fn, np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn, float: collate_float_fn,
    int: collate_int_fn, str: collate_str_fn, bytes: collate_str_fn,
}  # fmt: skip


def collate(batch: Sequence[Any], *, collate_fn_map: _Functions | None = None) -> Any:
    """One batch from a list of samples, by functions for the types of what they consist of.

    Mappings, sequences and named tuples of other types are gone through entry by entry. The first sample tells
    which.

    Args:
        batch: the samples.
        collate_fn_map: from types, or tuples of types, to functions of the samples that take this dict as
            `collate_fn_map`. The type itself is looked for first, then the first that it is a subclass of.

    Raises:
        RuntimeError: sequences of different lengths.
        TypeError: samples of any other type.

    Example:
        >>> from adjit.utils.data._utils.collate import collate
        >>> collate(["a", "b"], collate_fn_map={str: lambda batch, *, collate_fn_map: "".join(batch)})
        'ab'
    """
    first = batch[0]
    functions = collate_fn_map or {}
    function = functions.get(type(first)) or next(
        (function for kind, function in functions.items() if isinstance(first, kind)), None
    )
    if function is not None:
        return function(batch, collate_fn_map=collate_fn_map)

    def together(samples: Sequence[Any]) -> Any:
        return collate(samples, collate_fn_map=collate_fn_map)

    match first:
        case Mapping():
            return _rebuild(
                first, {key: together([sample[key] for sample in batch]) for key in first}
            )
        case tuple() if _is_namedtuple(first):
            return type(first)(*map(together, zip(*batch, strict=True)))
        case Sequence():
            if any(len(sample) != len(first) for sample in batch):
                raise RuntimeError("each element in list of batch should be of equal size")
            columns = [together(column) for column in zip(*batch, strict=True)]
            return columns if isinstance(first, tuple) else _rebuild(first, columns)
        case _:
            raise TypeError(default_collate_err_msg_format.format(type(first)))


def default_collate(batch: Sequence[Any]) -> Any:
    """One batch from a list of samples: what a loader does unless it is told otherwise.

    Tensors and arrays are stacked along a new first dimension; numbers become a tensor (float64
    or int64); strings a list; mappings, sequences and named tuples are gone through entry by
    entry. The first sample tells which. `_utils.collate.default_collate_fn_map` can be given further types.

    Raises:
        RuntimeError: sequences of different lengths, tensors of different shapes.
        TypeError: samples of any other type.

    Example:
        >>> adjit.utils.data.default_collate([{"x": 1, "name": "a"}, {"x": 2, "name": "b"}])
        {'x': tensor([1, 2]), 'name': ['a', 'b']}
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def pin_memory(data: Any, device: Any = None) -> Any:
    """`data` with its tensors in pinned memory."""
    return pinned(data)
