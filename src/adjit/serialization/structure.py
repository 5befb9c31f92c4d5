"""Nested values as JSON, with tensors taken out; and back.

A number, a string, a bool and None stand for themselves. Everything else is an object with its
type as the first key: `{"dict": [[key, value], ...]}`, `{"tuple": [...]}`, `{"tensor": name, ...}`.
A container or tensor that is met again is `{"same": n}`, the n-th that was finished.
"""

from __future__ import annotations

import base64
import math
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from .. import devices, dtypes
from ..nn.parameter import Buffer, Parameter
from ..shapes import Size
from ..tensor import Tensor
from .source import set_attributes

Json = Any  # what the json module reads and writes

_MAPPINGS: dict[str, Any] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}
_SEQUENCES: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "Size": Size,
}
_SHARED = (list, dict, OrderedDict, Counter, set, bytearray, Tensor, Parameter, Buffer)


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


# How values without parts are written as a string, and read.
_LEAVES: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "float": (float, repr, float),  # those that JSON does not have
    "complex": (complex, repr, complex),
    "bytes": (bytes, lambda v: base64.b64encode(v).decode(), _bytes),
    "bytearray": (
        bytearray, lambda v: base64.b64encode(v).decode(), lambda s: bytearray(_bytes(s)),
    ),
    "dtype": (dtypes.dtype, lambda v: str(v.name), dtypes.by_name),
    "device": (devices.device, str, devices.device),
}  # fmt: skip
_TAGS: dict[type, str] = {kind: tag for tag, kind in (_MAPPINGS | _SEQUENCES).items()}
_TAGS |= {kind: tag for tag, (kind, _, _) in _LEAVES.items()}


class Encoder:
    """Turns values into JSON; `tensors` collects (path, tensor, the JSON that stands for it)."""

    def __init__(self) -> None:
        self.tensors: list[tuple[str, Tensor, dict[str, Json]]] = []
        # By identity: the value, and the how manieth finished one it is, None before that.
        self._met: dict[int, tuple[Any, int | None]] = {}
        self._finished = 0

    def encode(self, value: Any, path: tuple[str, ...] = ()) -> Json:
        """The JSON of a value; `path` leads to it from the outermost container.

        Raises:
            TypeError: for a value of a type that files do not hold.
            ValueError: for a container that contains itself.
        """
        kind = type(value)
        if value is None or kind in (bool, int, str) or (kind is float and math.isfinite(value)):
            return value
        if kind not in _SHARED:
            return self._parts(value, path)
        if id(value) in self._met:
            _, number = self._met[id(value)]
            if number is None:
                raise ValueError(f"cannot save {_at(path)}: it contains itself")
            return {"same": number}
        self._met[id(value)] = value, None
        encoded = self._parts(value, path)
        self._met[id(value)] = value, self._finished
        self._finished += 1
        return encoded

    def _parts(self, value: Any, path: tuple[str, ...]) -> Json:
        kind = type(value)
        if kind in (Tensor, Parameter, Buffer):
            return self._tensor(value, path)
        tag = _TAGS.get(kind, "")
        if tag in _LEAVES:
            return {tag: _LEAVES[tag][1](value)}
        if tag in _SEQUENCES:
            return {tag: [self.encode(v, (*path, str(k))) for k, v in enumerate(value)]}
        if tag in _MAPPINGS:
            pairs = [
                [self.encode(k, path), self.encode(v, (*path, str(k)))] for k, v in value.items()
            ]
            return {tag: pairs, **self._attributes(value, path)}
        raise TypeError(
            f"cannot save {_at(path)}: an object of type {kind.__module__}.{kind.__qualname__}. Files "
            "hold tensors, numbers, strings, bytes, and dicts, lists, tuples and sets of them"
            + _hint(value)
        )

    def _tensor(self, tensor: Tensor, path: tuple[str, ...]) -> Json:
        encoded: dict[str, Json] = {"tensor": ""}  # named when all are known
        if isinstance(tensor, Parameter):
            encoded["parameter"] = True
        if tensor.requires_grad:
            encoded["requires_grad"] = True
        if tensor.is_cuda:
            encoded["device"] = str(tensor.device)
        self.tensors.append((".".join(path) or "tensor", tensor, encoded))
        if not isinstance(tensor, Buffer):  # saved as the tensor that it is
            encoded |= self._attributes(tensor, path)
        return encoded

    def _attributes(self, owner: Any, path: tuple[str, ...]) -> dict[str, Json]:
        """The Python attributes of a state dict (its versions) or a tensor, where it has some."""
        attributes = getattr(owner, "__dict__", None)
        return {"attributes": self.encode(attributes, path)} if attributes else {}


def _at(path: tuple[str, ...]) -> str:
    return f"the entry '{'.'.join(path)}'" if path else "this"


def _hint(value: Any) -> str:
    if hasattr(value, "state_dict"):
        return "; save its state_dict() instead"
    if isinstance(value, Tensor):
        return "; save its detach() instead"
    if hasattr(value, "__array__"):
        return "; save adjit.tensor(...) of it, or its item(), instead"
    return ""


class Decoder:
    """Turns JSON back into values; `tensor(json)` makes the tensors."""

    def __init__(self, tensor: Callable[[dict[str, Json]], Tensor]) -> None:
        self._tensor = tensor
        self._finished: list[Any] = []

    def decode(self, encoded: Json) -> Any:
        """The value that some JSON stands for.

        Raises:
            ValueError, TypeError, LookupError: if it is not what `Encoder` makes.
        """
        if not isinstance(encoded, dict):
            if isinstance(encoded, list):
                raise ValueError("a bare list")
            return encoded
        tag = next(iter(encoded), "")
        if tag == "same":
            return self._finished[encoded["same"]]
        value = self._parts(tag, encoded)
        if type(value) in _SHARED:
            self._finished.append(value)
        return value

    def _parts(self, tag: str, encoded: dict[str, Json]) -> Any:
        if tag in _LEAVES:
            return _LEAVES[tag][2](encoded[tag])
        if tag in _SEQUENCES:
            return _SEQUENCES[tag](self.decode(part) for part in encoded[tag])
        if tag in _MAPPINGS:
            value: Any = _MAPPINGS[tag]()
            for key, part in encoded[tag]:
                name = self.decode(key)
                value[name] = self.decode(part)
        elif tag == "tensor":
            value = self._tensor(encoded)
        else:
            raise ValueError(f"unknown kind {tag!r}; a newer adjit wrote it")
        if "attributes" in encoded:
            set_attributes(value, self.decode(encoded["attributes"]))
        return value
