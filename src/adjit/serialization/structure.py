"""Nested values as JSON, with tensors taken out; and back.

A number, a string, a bool and None stand for themselves. Everything else is an object with its
type as the first key: `{"dict": [[key, value], ...]}`, `{"tuple": [...]}`, `{"tensor": name, ...}`.
A container or tensor that is met again is `{"same": n}`, the n-th that was finished. An object of a class of
the program, a module for instance, is `{"object": name of the class, "state": ...}`, and a function or a class
is `{"global": name}`: what a program allows, as for PyTorch's files, is looked up by these names.
"""

from __future__ import annotations

import base64
import math
import operator
import pickle
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from .. import devices, dtypes
from ..nn.parameter import Buffer, Parameter
from ..shapes import Size
from ..tensor import Tensor
from . import allowed
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
        state = _state(value)
        if kind not in _SHARED and state is None:
            return self._parts(value, path)
        if id(value) in self._met:
            _, number = self._met[id(value)]
            if number is None:
                raise ValueError(f"cannot save {_at(path)}: it contains itself")
            return {"same": number}
        self._met[id(value)] = value, None
        if state is None:
            encoded = self._parts(value, path)
        else:
            encoded = {"object": _name_in_modules(kind), "state": self.encode(state, path)}
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
        if (name := _name_in_modules(value)) is not None:
            return {"global": name}
        raise TypeError(
            f"cannot save {_at(path)}: an object of type {kind.__module__}.{kind.__qualname__}. Files "
            "hold tensors, numbers, strings, bytes, dicts, lists, tuples and sets of them, and objects of "
            "classes that lie in a module" + _hint(value)
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


def _state(value: Any) -> Any:
    """What an object of a class of the program consists of, None for every other.

    It is one that `pickle` would make by `__new__` without arguments and give this state.
    """
    kind = type(value)
    if kind.__module__ == "builtins" or isinstance(value, (type, Tensor)) or kind in _TAGS:
        return None
    if not hasattr(value, "__dict__") or _name_in_modules(kind) is None:
        return None
    try:
        made, args, *rest = value.__reduce_ex__(2)
    except (TypeError, ValueError):  # it cannot be pickled, or is found by its name
        return None
    by_new = getattr(made, "__name__", "") == "__newobj__" and args == (kind,)
    if not by_new or any(part is not None for part in rest[1:]):
        return None
    return rest[0] if rest and rest[0] is not None else {}


def _name_in_modules(value: Any) -> str | None:
    """The name by which a class or function is found in a module, with that of the module."""
    name = getattr(value, "__qualname__", None)
    if not callable(value) or not isinstance(name, str) or "<locals>" in name:
        return None
    module = getattr(value, "__module__", None) or ""
    try:
        found = operator.attrgetter(name)(sys.modules[module])
    except (AttributeError, KeyError):
        return None
    if found != value or module == "builtins":
        return None
    # Equal, as functions that ask subclasses are equal to those that they stand for: which a program may have
    # taken before; the file has the name of all times.
    return f"{getattr(sys.modules[module], 'stands_for', module)}.{name}"


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
        if tag == "global":
            return _allowed(encoded[tag])
        if tag == "object":
            cls = _allowed(encoded[tag])
            value = cls.__new__(cls)
            allowed.build(value, self.decode(encoded["state"]))
        else:
            value = self._parts(tag, encoded)
        if tag == "object" or type(value) in _SHARED:
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


def _allowed(name: str) -> Any:
    """The class or function of a name.

    Raises:
        pickle.UnpicklingError: if the program does not allow it.
    """
    known = allowed.by_name()
    if name not in known:
        raise pickle.UnpicklingError(
            f"Weights only load failed. Unsupported global: GLOBAL {name} was not an allowed global by "
            "default. Allow what you trust by adjit.serialization.add_safe_globals([...]), or save a "
            "state_dict() instead of the whole object"
        )
    return known[name]
