"""Pickles read without running anything from them: PyTorch's `weights_only=True` machine.

A pickle is a program for a small stack machine. This one knows the instructions that PyTorch's
restricted unpickler knows, and calls only what a table of names gives it. What a program builds is
bounded by its own length: no instruction allocates by a number that it states, and copies of
what is there already are counted against the size of the file.
"""

from __future__ import annotations

import pickle
import struct
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING  # Python 2's names
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .. import devices, dtypes
from ..shapes import Size
from . import allowed
from .source import ByteSource

_SCALARS = (type(None), bool, int, float, complex, str, bytes, Size, dtypes.dtype, devices.device)
_BLOCKED = ("sys", "os", "posix", "nt")  # named in the refusal, as PyTorch does
_MAPPINGS = (dict, OrderedDict, Counter)
_PROGRAM_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    struct.error,
)
_MAX_KEY = 64  # parts of a tuple as a key: hashing tuples inside of tuples can take forever


class Global(NamedTuple):
    """What a name in a pickle stands for, unless it is a plain value: something to call, or to name."""

    name: str
    call: Callable[..., Any] | None = None  # called as call(machine, *args)


class Refused(pickle.UnpicklingError):
    """The file names something that is not on the list."""


class Unpickler:
    """Reads one pickle from where a source stands.

    Args:
        source: the file; what is read is taken from it.
        names: what `module.name` in the pickle stands for.
        builders: how objects take a state, by their type.
        storage: makes an object of the persistent id of a storage.
    """

    def __init__(
        self,
        source: ByteSource,
        names: Mapping[str, Any],
        builders: Mapping[type, Callable[[Unpickler, Any, Any], None]],
        storage: Callable[..., Any],
    ) -> None:
        self.source, self.names, self.builders, self.storage = source, names, builders, storage
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []  # the stacks that open marks have put aside
        self.memo: dict[int, Any] = {}
        self.copied = 0

    def load(self) -> Any:
        """The object that the pickle describes.

        Raises:
            pickle.UnpicklingError: if it uses a name or an instruction that is not allowed.
            RuntimeError: if it is corrupt.
        """
        begin = self.source.at
        try:
            while True:
                code = self.source.take(1)
                if code == pickle.STOP:
                    return self.stack.pop()
                act = _ACTIONS.get(code)
                if act is None:
                    raise Refused(f"Unsupported operand {code[0]}")
                act(self)
        except _PROGRAM_ERRORS as e:
            raise self.source.corrupt(
                f"the pickle at {begin} goes wrong at position {self.source.at}: {e}"
            ) from e

    def tensor(self) -> str:
        """What the tensor that is being made is called: the dict keys that wait for their values."""
        keys = (next((v for v in reversed(frame) if type(v) is str), None)
                for frame in (*self.marks, self.stack))  # fmt: skip
        path = ".".join(key for key in keys if key is not None)
        return f"tensor '{path}'" if path else "a tensor"

    def charge(self, value: Any) -> Any:
        """Count the copy of a value; more copies than the file has bytes are an attack."""
        self.copied += len(value)
        if self.copied > self.source.size:
            raise Refused("the pickle copies more than it holds")
        return value

    def unsigned(self, size: int) -> int:
        """The next little-endian number."""
        return int.from_bytes(self.source.take(size), "little")

    def pop(self, count: int) -> list[Any]:
        """The last values of the stack, taken away."""
        if len(self.stack) < count:
            raise IndexError("the stack is empty")
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def pop_mark(self) -> list[Any]:
        """What was put onto the stack since the last mark."""
        items, self.stack = self.stack, self.marks.pop()
        return items

    # ----- calls -----

    def find(self) -> Any:
        """The value of the name that comes next."""
        module, name = (self.source.line().decode() for _ in range(2))
        if (module, name) in NAME_MAPPING:
            module, name = NAME_MAPPING[module, name]
        module = IMPORT_MAPPING.get(module, module)
        full = f"{module}.{name}"
        if module in _BLOCKED:
            raise Refused(
                f"Trying to load unsupported GLOBAL {full} whose module {module} is blocked"
            )
        if full not in self.names:
            own = allowed.by_name()
            if full in own:
                return own[full]
            shown = full.removeprefix("builtins.")
            raise Refused(
                f"Unsupported global: GLOBAL {shown} was not an allowed global by default"
            )
        return self.names[full]

    def reduce(self) -> None:
        """Call what lies below the arguments."""
        target, args = self.pop(2)
        if allowed.is_allowed(target):
            self.stack.append(target(*args))
            return
        if type(target) is not Global or target.call is None:
            raise Refused(f"Trying to call reduce for unrecognized function {_shown(target)}")
        if type(args) is not tuple:
            raise TypeError(f"arguments must be a tuple, got {type(args).__name__}")
        self.stack.append(target.call(self, *args))

    def new(self) -> None:
        """Make an object of the class that lies below the arguments."""
        target, args = self.stack[-2:]
        if isinstance(target, type) and allowed.is_allowed(target):
            self.stack[-2:] = [target.__new__(target, *args)]
        else:
            self.reduce()

    def build(self) -> None:
        """Give the object on top of the stack its state."""
        (state,) = self.pop(1)
        target = self.stack[-1]
        build = self.builders.get(type(target))
        if build is None and allowed.is_allowed(type(target)):
            allowed.build(target, state)
            return
        if build is None:
            raise Refused(f"Can only build Parameter or OrderedDict, but got {_shown(target)}")
        build(self, target, state)

    # ----- containers -----

    def append(self, items: list[Any]) -> None:
        """Put items at the end of the list on top of the stack."""
        target = self.stack[-1]
        if type(target) is not list:
            raise Refused(f"Can only append to lists, but got {_shown(target)}")
        target.extend(items)

    def set_items(self, items: list[Any]) -> None:
        """Put keys and values in turn into the mapping on top of the stack."""
        target = self.stack[-1]
        if type(target) not in _MAPPINGS:
            raise Refused(
                "Can only set items of dict, collections.OrderedDict, collections.Counter, but got "
                f"{_shown(target)}"
            )
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[hashable(key)] = value

    def load_persistent(self) -> None:
        """Put the object of a persistent id in its place."""
        (key,) = self.pop(1)
        if type(key) is not tuple or not key or key[0] != "storage":
            raise Refused(f"Only persistent_load of storage is allowed, but got {_shown(key)}")
        self.stack.append(self.storage(*key[1:]))

    def mark(self) -> None:
        """Put the stack aside."""
        self.marks.append(self.stack)
        self.stack = []


def hashable(key: Any) -> Any:
    """A key of a dict or an element of a set, if it can be hashed in bounded time."""
    parts = key if type(key) is tuple else (key,)
    if len(parts) > _MAX_KEY or not all(isinstance(part, _SCALARS) for part in parts):
        raise Refused(f"{_shown(key)} is not allowed as a key")
    return key


def _shown(value: Any) -> str:
    return value.name if type(value) is Global else f"an object of type {type(value).__name__}"


def _push(value: Callable[[Unpickler], Any]) -> Callable[[Unpickler], None]:
    """The instruction that puts a value onto the stack."""

    def act(machine: Unpickler) -> None:
        made = value(machine)  # may change which stack it is
        machine.stack.append(made)

    return act


def _put(size: int) -> Callable[[Unpickler], None]:
    """The instruction that remembers the top of the stack under a number."""

    def act(machine: Unpickler) -> None:
        machine.memo[machine.unsigned(size)] = machine.stack[-1]

    return act


_ACTIONS: dict[bytes, Callable[[Unpickler], Any]] = {
    pickle.PROTO: lambda m: m.source.take(1),
    pickle.MARK: Unpickler.mark,
    # values
    pickle.NONE: _push(lambda m: None),
    pickle.NEWTRUE: _push(lambda m: True),
    pickle.NEWFALSE: _push(lambda m: False),
    pickle.BININT: _push(lambda m: struct.unpack("<i", m.source.take(4))[0]),
    pickle.BININT1: _push(lambda m: m.unsigned(1)),
    pickle.BININT2: _push(lambda m: m.unsigned(2)),
    pickle.LONG1: _push(
        lambda m: int.from_bytes(m.source.take(m.unsigned(1)), "little", signed=True)
    ),
    pickle.BINFLOAT: _push(lambda m: struct.unpack(">d", m.source.take(8))[0]),
    pickle.BINUNICODE: _push(
        lambda m: m.source.take(m.unsigned(4)).decode("utf-8", "surrogatepass")
    ),
    pickle.SHORT_BINSTRING: _push(lambda m: m.source.take(m.unsigned(1)).decode()),
    # containers
    pickle.EMPTY_TUPLE: _push(lambda m: ()),
    pickle.EMPTY_LIST: _push(lambda m: []),
    pickle.EMPTY_DICT: _push(lambda m: {}),
    pickle.EMPTY_SET: _push(lambda m: set()),
    pickle.TUPLE: _push(lambda m: tuple(m.pop_mark())),
    pickle.TUPLE1: _push(lambda m: tuple(m.pop(1))),
    pickle.TUPLE2: _push(lambda m: tuple(m.pop(2))),
    pickle.TUPLE3: _push(lambda m: tuple(m.pop(3))),
    pickle.APPEND: lambda m: m.append(m.pop(1)),
    pickle.APPENDS: lambda m: m.append(m.pop_mark()),
    pickle.SETITEM: lambda m: m.set_items(m.pop(2)),
    pickle.SETITEMS: lambda m: m.set_items(m.pop_mark()),
    # what was there before
    pickle.BINPUT: _put(1),
    pickle.LONG_BINPUT: _put(4),
    pickle.BINGET: _push(lambda m: m.memo[m.unsigned(1)]),
    pickle.LONG_BINGET: _push(lambda m: m.memo[m.unsigned(4)]),
    # names and calls
    pickle.GLOBAL: _push(Unpickler.find),
    pickle.REDUCE: Unpickler.reduce,
    pickle.NEWOBJ: Unpickler.new,
    pickle.BUILD: Unpickler.build,
    pickle.BINPERSID: Unpickler.load_persistent,
}
