"""Guards: what a captured function read from Python is as it was.

A unit is one container, object or cell, with what it held. It can say exactly whether that still holds
(`holds`), and nearly always also as words of memory: addresses, each with what lies there as long as
nothing has changed. A call compares the words of all units in one loop of machine code, about a
nanosecond a word:

    dict with 2 entries: number of entries, address of its table, sizes of the table, key, value, key, value
    list: its length, address of its items, the items
    attribute: the class of the object, address of its dict, then as a dict, but only the names that are read
    class: its version, which the interpreter renews whenever the class or a base of it is changed

An address is only looked at when the words before it have matched, so it is memory of that object. Words may
change while nothing that matters does (a dict grew; a number was replaced by an equal one): then the unit
decides, and its words are made anew.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from types import (
    CellType,
    FunctionType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
from typing import Any, NamedTuple

import numpy as np

from ..schedule.jit import native
from ..schedule.jit.interpreter import is_pointer, offset_of

# As `WordFields`; to make thousands of those would take time.
Word = tuple[int, int, int]


class WordFields(NamedTuple):
    """A word of memory that is to stay as it is."""

    address: int
    mask: int  # of the bits that count
    wanted: int  # what they are


ALL = (1 << 64) - 1
_HALF = (1 << 32) - 1

# CPython's objects, 3.11 to 3.14: a class's version, a dict's count, table and values, a table's sizes
# and number of entries, and where its indices begin. What is read there is compared with the object before
# it is used.
_CLASS, _VERSION = 8, 384
_COUNT, _TABLE, _VALUES = 16, 32, 40
_SIZES, _ENTRIES, _INDICES = 8, 24, 32
_FIRST_VALUE = 8 if sys.version_info >= (3, 13) else 0
_LENGTH, _ITEMS = 16, 24
_CONTENTS = 16  # of a closure's cell
_CODE, _DEFAULTS, _KEYWORD_DEFAULTS = 48, 56, 64  # of a function
_UNICODE, _SPLIT = 1, 2  # kinds of tables


class Absent:
    """What a name has that is not there."""


def _peek(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same to any code that reads them: one object, or equal plain values."""
    if one is other:
        return True
    kind = one.__class__
    if kind is not other.__class__:
        return False
    if kind is float:
        return struct.pack("d", one) == struct.pack("d", other)
    if kind in (int, str, bytes, bool):
        return bool(one == other)
    if kind is tuple:
        return len(one) == len(other) and all(map(is_same, one, other))
    return False


class Guard:
    """Something that was read, and what it was."""

    __slots__ = ("name",)
    name: str  # how a message calls it

    def holds(self) -> bool:
        """Whether it is as it was."""
        raise NotImplementedError

    def words(self) -> list[Word] | None:
        """The same as words of memory; None where it has to be asked."""
        return None

    def change(self) -> str:
        """What is not as it was, for a message."""
        return self.name


class _Table:
    """The table behind a dict, read from memory."""

    def __init__(self, d: dict[Any, Any]) -> None:
        base = id(d)
        self.table, self.values = _peek(base + _TABLE), _peek(base + _VALUES)
        sizes = _peek(self.table + _SIZES)
        self.sizes = sizes & 0xFFFFFF
        _, index_bytes, kind = sizes & 0xFF, sizes >> 8 & 0xFF, sizes >> 16 & 0xFF
        self.count = _peek(self.table + _ENTRIES)
        first = self.table + _INDICES + (1 << index_bytes)
        width, skip = (16, 0) if kind in (_UNICODE, _SPLIT) else (24, 8)
        self.places: dict[int, tuple[int, int]] = {}  # the id of a key: where it and its value lie
        for k in range(self.count):
            at = first + k * width + skip
            value = self.values + _FIRST_VALUE + 8 * k if self.values else at + 8
            key = _peek(at)
            if key:
                self.places[key] = at, value

    def head(self, d: dict[Any, Any]) -> list[Word]:
        """That the dict still has this table."""
        words = [(id(d) + _TABLE, ALL, self.table), (self.table + _SIZES, 0xFFFFFF, self.sizes)]
        if self.values:
            words.append((id(d) + _VALUES, ALL, self.values))
        return words


def _entry_words(d: dict[Any, Any], names: Iterable[Any]) -> list[Word] | None:
    """That a dict has these values under these names, and nothing under those that are absent."""
    table = _Table(d)
    keys = {key: key for key in d}
    words = table.head(d)
    is_missing = False
    for name in names:
        key = keys.get(name, Absent)
        if key is Absent:
            is_missing = True
            place = table.places.get(id(name))
            if place is not None and table.values:
                words.append((place[1], ALL, 0))
            continue
        place = table.places.get(id(key))
        if place is None or _peek(place[1]) != id(d[key]):
            return None
        words += [(place[0], ALL, id(key)), (place[1], ALL, id(d[key]))]
    if is_missing:
        words.append((table.table + _ENTRIES, ALL, table.count))
    return words


class Entries(Guard):
    """Some entries of a dict: the names that are read, whether they are there or not."""

    __slots__ = ("d", "found")

    def __init__(self, d: dict[Any, Any], names: Iterable[Any], name: str) -> None:
        self.d, self.name = d, name
        self.found = {n: d.get(n, Absent) for n in names}

    def holds(self) -> bool:
        get = self.d.get
        return all(is_same(get(n, Absent), value) for n, value in self.found.items())

    def words(self) -> list[Word] | None:
        return _entry_words(self.d, self.found)

    def change(self) -> str:
        get = self.d.get
        names = [str(n) for n, value in self.found.items() if not is_same(get(n, Absent), value)]
        return f"{', '.join(names)} of {self.name}"


class Whole(Guard):
    """A dict: its keys, in their order, and their values."""

    __slots__ = ("d", "found")

    def __init__(self, d: dict[Any, Any], name: str) -> None:
        self.d, self.name = d, name
        self.found = list(_items(d))

    def holds(self) -> bool:
        d = self.d
        return len(d) == len(self.found) and all(
            (key is k or (key.__class__ is k.__class__ and key == k)) and is_same(value, v)
            for (key, value), (k, v) in zip(_items(d), self.found, strict=True)
        )

    def words(self) -> list[Word] | None:
        count: Word = (id(self.d) + _COUNT, ALL, len(self.found))
        if not self.found:
            return [count]
        if type(self.d) is not dict and len(self.found) > 1:
            return None  # the order of an OrderedDict is its own
        found = _entry_words(self.d, [key for key, _ in self.found])
        return None if found is None else [count, *found]


def _items(d: dict[Any, Any]) -> Iterable[tuple[Any, Any]]:
    """The entries in the order in which code meets them."""
    return OrderedDict.items(d) if isinstance(d, OrderedDict) else dict.items(d)


class Count(Guard):
    """How many entries a dict has."""

    __slots__ = ("d", "found")

    def __init__(self, d: dict[Any, Any], name: str) -> None:
        self.d, self.name, self.found = d, name, len(d)

    def holds(self) -> bool:
        return len(self.d) == self.found

    def words(self) -> list[Word] | None:
        return [(id(self.d) + _COUNT, ALL, self.found)]


class Items(Guard):
    """A list."""

    __slots__ = ("found", "items")

    def __init__(self, items: list[Any], name: str) -> None:
        self.items, self.name, self.found = items, name, list.copy(items)

    def holds(self) -> bool:
        return len(self.items) == len(self.found) and all(map(is_same, self.items, self.found))

    def words(self) -> list[Word] | None:
        base = id(self.items)
        first = _peek(base + _ITEMS)
        words = [(base + _LENGTH, ALL, len(self.found)), (base + _ITEMS, ALL, first)]
        items = list.copy(self.items)
        words += [(first + 8 * k, ALL, id(item)) for k, item in enumerate(items)]
        is_right = len(items) == _peek(base + _LENGTH) and all(
            _peek(at) == wanted for at, _, wanted in words[2:]
        )
        return (words if items else words[:1]) if is_right else None


class Object(Guard):
    """The class of an object, and where its attributes are."""

    __slots__ = ("attributes", "kind", "value")

    def __init__(self, value: Any, attributes: dict[str, Any] | None, name: str) -> None:
        self.value, self.kind, self.attributes, self.name = value, type(value), attributes, name

    def holds(self) -> bool:
        return type(self.value) is self.kind and (
            self.attributes is None or attributes_of(self.value) is self.attributes
        )

    def words(self) -> list[Word] | None:
        base = id(self.value)
        words: list[Word] = [(base + _CLASS, ALL, id(self.kind))]
        if self.attributes is not None:
            place = self.kind.__dictoffset__
            places = [place] if place > 0 else [-24, -32, -8]
            found = [at for at in places if _peek(base + at) == id(self.attributes)]
            if not found:
                return None
            words.append((base + found[0], ALL, id(self.attributes)))
        return words


class SlotGuard(Guard):
    """A slot of an object."""

    __slots__ = ("found", "member", "value")

    def __init__(self, value: Any, member: Any, name: str) -> None:
        self.value, self.member, self.name = value, member, name
        self.found = self._read()

    def _read(self) -> Any:
        try:
            return self.member.__get__(self.value)
        except AttributeError:
            return Absent

    def holds(self) -> bool:
        return is_same(self._read(), self.found)

    def words(self) -> list[Word] | None:
        at = id(self.value) + offset_of(self.member)
        found = self._read()
        wanted = 0 if found is Absent else id(found)
        return [(at, ALL, wanted)] if _peek(at) == wanted else None


class Cell(Guard):
    """What a variable of a closure holds."""

    __slots__ = ("cell", "found")

    def __init__(self, cell: CellType, name: str) -> None:
        self.cell, self.name = cell, name
        self.found = self._read()

    def _read(self) -> Any:
        try:
            return self.cell.cell_contents
        except ValueError:
            return Absent

    def holds(self) -> bool:
        return is_same(self._read(), self.found)

    def words(self) -> list[Word] | None:
        at, found = id(self.cell) + _CONTENTS, self._read()
        wanted = 0 if found is Absent else id(found)
        return [(at, ALL, wanted)] if _peek(at) == wanted else None


class CodeGuard(Guard):
    """What a function runs, and its defaults."""

    __slots__ = ("found", "function")

    def __init__(self, function: FunctionType, name: str) -> None:
        self.function, self.name, self.found = function, name, _parts_of(function)

    def holds(self) -> bool:
        return all(a is b for a, b in zip(_parts_of(self.function), self.found, strict=True))

    def words(self) -> list[Word] | None:
        places = (_CODE, _DEFAULTS, _KEYWORD_DEFAULTS)
        words: list[Word] = [
            (id(self.function) + place, ALL, 0 if part is None else id(part))
            for place, part in zip(places, _parts_of(self.function), strict=True)
        ]
        return words if all(_peek(at) == wanted for at, _, wanted in words) else None


def _parts_of(function: FunctionType) -> tuple[Any, Any, Any]:
    return function.__code__, function.__defaults__, function.__kwdefaults__


class Class(Guard):
    """What the names that are read mean in a class and its bases."""

    __slots__ = ("found", "kind", "names")

    def __init__(self, kind: type, names: frozenset[str], name: str) -> None:
        self.kind, self.names, self.name = kind, names, name
        self.found = self._read()

    def _read(self) -> list[Any]:
        """The bases, and what each of them has of the names, or of all that runs by itself."""
        found: list[Any] = []
        for base in self.kind.__mro__:
            if base is object:
                break
            found.append(base)
            for name, value in vars(base).items():
                if name in self.names or callable(value) or hasattr(type(value), "__get__"):
                    found += (name, value)
        return found

    def holds(self) -> bool:
        now = self._read()
        return len(now) == len(self.found) and all(map(is_same, now, self.found))

    def words(self) -> list[Word] | None:
        getattr(
            self.kind, "__adjit_guard__", None
        )  # which gives the class a version, if it has none
        version = _peek(id(self.kind) + _VERSION) & _HALF
        return [(id(self.kind) + _VERSION, _HALF, version)] if version and _versions_tell else None


class Asked(Guard):
    """Something that only Python can compare."""

    __slots__ = ("found", "read")

    def __init__(self, read: Callable[[], Any], name: str) -> None:
        self.read, self.name, self.found = read, name, read()

    def holds(self) -> bool:
        now = self.read()
        return bool(now.__class__ is self.found.__class__ and now == self.found)


def attributes_of(value: Any) -> dict[str, Any] | None:
    """The dict behind the attributes of an object, None if it has none."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def is_of_python(kind: type) -> bool:
    """Whether a class was made by a `class` statement: then its objects hold attributes, slots and nothing else
    beside what its bases hold."""
    if not kind.__flags__ & _HEAP_TYPE:
        return False
    if HAS_WORDS:
        return _peek(id(kind) + _DEALLOCATE) == _peek(id(Guard) + _DEALLOCATE)
    return not any(isinstance(value, _OF_C) for value in vars(kind).values())


_HEAP_TYPE, _DEALLOCATE = 1 << 9, 48
_OF_C = WrapperDescriptorType, MethodDescriptorType


def _dicts_fit() -> bool:
    """Whether dicts have their entries where they are looked for."""
    holder = type("holder", (), {})()
    holder.one, holder.other = object(), object()
    for d in ({"a": object(), "b": object()}, {1: object(), "b": object()}, vars(holder)):
        if _peek(id(d) + _COUNT) != len(d) or not is_pointer(_peek(id(d) + _TABLE)):
            return False
        table, keys = _Table(d), list(d)
        if table.values and not is_pointer(table.values):
            return False
        if [_peek(table.places.get(id(key), (0, id(d)))[1]) for key in keys] != [
            id(d[k]) for k in keys
        ]:
            return False
    return True


HAS_WORDS = native.is_supported and sys.version_info < (3, 15) and _dicts_fit()


def _versions_do_tell() -> bool:
    """Whether the version of a class changes with it, and with a base, where it is looked for."""
    if not HAS_WORDS:
        return False
    base = type("base", (), {"a": 1})
    kind = type("kind", (base,), {})
    seen = []
    for changed in (None, kind, base):
        if changed is not None:
            changed.a = 2  # type: ignore[attr-defined]
        getattr(kind, "a", None)
        getattr(kind, "missing", None)
        seen.append(_peek(id(kind) + _VERSION) & _HALF)
    return 0 not in seen and len({*seen}) == len(seen)


_versions_tell = _versions_do_tell()


class Guards:
    """What a capture depends on in Python.

    `hold` is asked at every call: by machine code while all words are as they were.
    """

    __slots__ = ("_asked", "_firsts", "_listed", "failed", "table", "units")

    def __init__(self, units: Sequence[Guard]) -> None:
        self.units = list(units)
        self.table = b""
        self._firsts: list[int] = []  # the first word of each unit, in the order of the table
        self._listed: list[Guard] = []
        self._asked: list[Guard] = []
        self.failed = ""  # what was not as it was, at last
        self._link()

    def _link(self) -> None:
        words: list[Word] = []
        self._firsts, self._listed, self._asked = [], [], []
        for unit in self.units:
            found = unit.words() if HAS_WORDS else None
            if found is None:
                self._asked.append(unit)
            else:
                self._firsts.append(len(words))
                self._listed.append(unit)
                words += found
        self.table = np.array(words, np.uint64).reshape(-1, len(WordFields._fields)).tobytes()

    def is_like(self, other: Guards) -> bool:
        """Whether the other asks the same of the same objects, all by words."""
        return (
            self.table == other.table
            and not (self._asked or other._asked)
            and [*map(_kind, self.units)] == [*map(_kind, other.units)]
        )

    def hold(self) -> bool:
        """Whether all is as it was."""
        if first_changed(self) >= 0 and not self._hold_exactly():
            return False
        for unit in self._asked:
            if not unit.holds():
                self.failed = unit.change()
                return False
        return True

    def _hold_exactly(self) -> bool:
        """Whether nothing has changed that matters; the words are made anew then."""
        changed = _first_changed(self)
        if changed >= 0:
            at = np.searchsorted(self._firsts, changed, side="right") - 1
            if not self._listed[at].holds():  # which most often is all that there is to it
                self.failed = self._listed[at].change()
                return False
        for unit in self._listed:
            if not unit.holds():
                self.failed = unit.change()
                return False
        self._link()
        return True


def _kind(unit: Guard) -> tuple[type, str]:
    return unit.__class__, unit.name


def _first_changed(guards: Guards) -> int:
    """The number of the first word that is not what it was, -1 if all are."""
    table = np.frombuffer(guards.table, np.uint64).reshape(-1, len(WordFields._fields)).tolist()
    for k, (address, mask, wanted) in enumerate(table):
        if _peek(address) & mask != wanted:
            return k
    return -1


native.register_layout(GUARDS=Guards, WORD=WordFields, WORD_FIELDS=len(WordFields._fields))
first_changed = native.FastPath("guards", "first_changed").function(_first_changed, ())
