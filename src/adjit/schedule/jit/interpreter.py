"""Whether this interpreter's objects are laid out as machine code takes them to be.

Machine code counts references, reads tuples and fills slots where CPython 3.11 to 3.14 have them
(`kernels/fastpath/cpython.py`). None of that is promised, so it is tried on live objects before any machine
code sees one: what the functions of the kernels room read is compared with what Python says. They run as
plain Python here, on memory of objects that are held meanwhile, in about 0.2 ms.
"""

from __future__ import annotations

import ctypes
import gc
import struct
import sys
import sysconfig
from collections.abc import Callable
from types import FunctionType, MemberDescriptorType
from typing import Any

from ...heap_types import HAVE_VECTORCALL, METHOD_DESCRIPTOR
from ...kernels.fastpath import cpython, freelists

Trial = Callable[[], bool]

_trials: dict[str, Trial] = {}  # by what they try
_MANY = 1000  # references
_LEAST_ADDRESS = 1 << 16  # no word below is a pointer


def misfit() -> str | None:
    """Why machine code has to leave the objects of this interpreter alone; None if it has not."""
    if sys.implementation.name != "cpython":
        return f"this is {sys.implementation.name}, not CPython"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this Python is built without its lock"
    if hasattr(sys, "gettotalrefcount"):
        return "this Python is built for debugging, and counts all references"
    if (struct.calcsize("P"), sys.int_info.sizeof_digit, sys.byteorder) != (8, 4, "little"):
        return "this processor's words are not of 64 bits, the lowest first"
    for what, fits in _trials.items():
        if not fits():
            return f"this Python has {what} elsewhere than CPython 3.11 to 3.14"
    return None


def _tries(what: str) -> Callable[[Trial], Trial]:
    """Have a trial made; `what` names what machine code assumes."""

    def add(trial: Trial) -> Trial:
        _trials[what] = trial
        return trial

    return add


def peek(address: int) -> int:
    """The word at an address."""
    return ctypes.c_int64.from_address(address).value


_DESCRIPTION, _OFFSET = 40, 16  # in a member descriptor: its PyMemberDef; in that: the offset


def offset_of(member: MemberDescriptorType) -> int:
    """Where an object has a slot."""
    return peek(peek(id(member) + _DESCRIPTION) + _OFFSET)


_INLINE_VALUES = 1 << 2  # among what a class can do, from Python 3.13 on
_type_modified = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("PyType_Modified", ctypes.pythonapi))


def keep_attributes_in_dicts(cls: type) -> None:
    """Have the objects of a new class keep attributes in a dict each, not within themselves.

    The collector knows of the dict of an object that it does not know of, and so of what lies behind it.
    Python 3.14 has room for attributes within the objects of every class; before, slots left none.
    """
    ctypes.c_int64.from_address(id(cls) + cpython.FLAGS).value &= ~_INLINE_VALUES
    _type_modified(cls)


def _as_python(name: str) -> Callable[..., Any]:
    """A function of `kernels/fastpath/cpython.py` that only reads, for Python to call."""
    names: dict[str, Any] = {
        **vars(cpython),
        "get": lambda address, offset: peek(address + offset),
        "_digit": lambda address, offset: peek(address + offset) & cpython.COUNT_BITS,
        "_word_of_any": lambda _: None,
    }
    for used in ("class_of", "length"):
        names[used] = FunctionType(getattr(cpython, used).py_func.__code__, names)
    return FunctionType(getattr(cpython, name).py_func.__code__, names)


def is_pointer(word: int) -> bool:
    """Whether a word of an object can be an address, to be followed."""
    return word >= _LEAST_ADDRESS and word % 8 == 0


# ----- what is tried -----


@_tries("the counts of references")
def _counts_fit() -> bool:
    count_of = _as_python("count_of")
    holders = [object()]
    address = id(holders[0])
    alone = count_of(address)
    holders *= _MANY
    return bool(alone == 1 and count_of(address) == _MANY)


@_tries("objects that are never freed")
def _immortals_fit() -> bool:
    """Machine code tells them by the sign of their count, and leaves that alone; or there are none."""
    before = peek(id(None) + cpython.COUNT)
    holders = [None] * _MANY
    change = peek(id(None) + cpython.COUNT) - before
    if cpython.HAS_TAGS:
        return change == 0 and before & 1 << 31 != 0
    return len(holders) // 2 < change < 2 * len(holders)  # other threads may change it too


@_tries("the class of an object")
def _classes_fit() -> bool:
    class_of = _as_python("class_of")
    values: tuple[Any, ...] = None, 1, "a", (1,), [], int
    return all(class_of(id(value)) == id(type(value)) for value in values)


@_tries("the items of a tuple")
def _tuples_fit() -> bool:
    length, item = _as_python("length"), _as_python("item")
    values = tuple(object() for _ in range(3))
    found = [item(id(values), k) for k in range(3)]
    return bool(found == list(map(id, values)) and length(id(values)) == 3 and length(id(())) == 0)


@_tries("the items of a list")
def _lists_fit() -> bool:
    length, list_item = _as_python("length"), _as_python("list_item")
    values = [object() for _ in range(5)]
    values.pop()
    if length(id(values)) != 4 or not is_pointer(peek(id(values) + cpython.ITEMS_OF_LIST)):
        return False
    return [list_item(id(values), k) for k in range(4)] == list(map(id, values))


@_tries("the bytes of an object of bytes")
def _bytes_fit() -> bool:
    text = b"adjit" * 3
    inside = peek(id(text) + cpython.CONTENTS).to_bytes(8, sys.byteorder, signed=True)
    return peek(id(text) + cpython.LENGTH) == len(text) and inside == text[:8]


@_tries("the digits of an int")
def _ints_fit() -> bool:
    word_of = _as_python("word_of")
    numbers = [0, 1, 7, 1 << 29, 1 << 30, (1 << 30) + 5, (1 << 59) + 3, (1 << 60) - 1]
    is_right = all(word_of(id(n)) == n for k in numbers for n in (k, -k))
    return is_right and word_of(id(1 << 60)) is None and word_of(id(1.0)) is None


@_tries("the bounds of a slice")
def _slices_fit() -> bool:
    bounds = object(), object(), object()
    cut = slice(*bounds)
    return all(peek(id(cut) + cpython.BOUNDS_OF_SLICE + 8 * k) == id(bounds[k]) for k in range(3))


class _Slots:
    __slots__ = ("first", "second")


class _Referred:
    __slots__ = ("__weakref__",)


class _Attributes:
    __slots__ = ("__dict__",)


@_tries("the slots of an object")
def _slots_fit() -> bool:
    holder, value = _Slots(), object()
    for name, wanted in (("first", 0), ("second", id(value))):
        member = vars(_Slots)[name]
        if not is_pointer(peek(id(member) + _DESCRIPTION)):
            return False
        if wanted:
            setattr(holder, name, value)
        offset = offset_of(member)
        if (
            not cpython.LENGTH <= offset < _Slots.__basicsize__
            or peek(id(holder) + offset) != wanted
        ):
            return False
    return True


@_tries("the facts of a class")
def _facts_fit() -> bool:
    """Sizes, flags, where weak references are, and what makes and frees the objects."""
    for cls in (int, tuple, list, FunctionType, _Slots, _Referred, _Attributes):
        told = cls.__basicsize__, cls.__flags__, cls.__weakrefoffset__
        places = cpython.BASIC_SIZE, cpython.FLAGS, freelists.WEAK_REFERENCES
        if tuple(peek(id(cls) + place) for place in places) != told:
            return False
    is_int = [cls.__flags__ & cpython.INT_SUBCLASS != 0 for cls in (int, bool, float, _Slots)]
    called = HAVE_VECTORCALL | METHOD_DESCRIPTOR
    return is_int == [True, True, False, False] and FunctionType.__flags__ & called == called


_DEALLOCATE_SLOT, _ALLOCATE_SLOT = 52, 47  # numbers that are part of Python's stable interface


@_tries("the functions of a class")
def _functions_fit() -> bool:
    get_slot = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_int)(
        ("PyType_GetSlot", ctypes.pythonapi)
    )
    places = {_DEALLOCATE_SLOT: freelists.DEALLOCATE, _ALLOCATE_SLOT: freelists.ALLOCATE}
    return all(
        get_slot(cls, number) == peek(id(cls) + place)
        for number, place in places.items()
        for cls in (_Slots, _Referred)
    )


@_tries("what lies before an object")
def _preludes_fit() -> bool:
    """The collector's two words alone, unless the flags of a class tell of more."""
    more = freelists.HAS_WEAK_REFERENCES_BEFORE | freelists.HAS_DICT_BEFORE
    for cls in (_Slots, _Referred, _Attributes):
        thing = cls()
        is_more = sys.getsizeof(thing) - object.__sizeof__(thing) != -freelists.NEXT_TRACKED
        if is_more != (cls.__flags__ & more != 0):
            return False
    return True


@_tries("whether the collector tracks an object")
def _tracking_fits() -> bool:
    thing, shown = _Slots(), []
    for change in ("PyObject_GC_UnTrack", "PyObject_GC_Track"):
        function = ctypes.PYFUNCTYPE(None, ctypes.py_object)((change, ctypes.pythonapi))
        function(thing)
        is_told = peek(id(thing) + freelists.NEXT_TRACKED) != 0
        shown.append(is_told == gc.is_tracked(thing))
    return all(shown)


@_tries("the attributes of an object")
def _attributes_fit() -> bool:
    """They are in a dict that the collector tracks, in objects as machine code makes them."""

    class Kept:
        __slots__ = ("__dict__",)

    keep_attributes_in_dicts(Kept)
    prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)
    thing = prototype(("_PyObject_GC_New", ctypes.pythonapi))(Kept)
    thing.first = []
    dicts = [o for o in gc.get_referents(thing) if type(o) is dict]
    return list(map(gc.is_tracked, dicts)) == [True]
