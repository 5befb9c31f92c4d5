"""Classes that are made through CPython's C interface, for what a `class` statement cannot say."""

from __future__ import annotations

import ctypes
import sys
from typing import Any


class Member(ctypes.Structure):
    """A PyMemberDef."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


class _Slot(ctypes.Structure):
    _fields_ = [("slot", ctypes.c_int), ("pfunc", ctypes.c_void_p)]


class _Spec(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(_Slot)),
    ]


_TP_MEMBERS = 72
_DEFAULT, IS_BASE, HAVE_VECTORCALL, METHOD_DESCRIPTOR = 1 << 18, 1 << 10, 1 << 11, 1 << 17

_kept: list[Any] = []  # what the interpreter points to


def made(name: str, base: type, flags: int, size: int = 0, members: tuple[Member, ...] = ()) -> Any:
    """A class with a base; its objects have the base's size unless one is given."""
    table = (Member * (len(members) + 1))(*members)
    slots = (_Slot * 2)()
    if members:
        slots[0] = _Slot(_TP_MEMBERS, ctypes.addressof(table))
    spec = _Spec(name.encode(), size, 0, _DEFAULT | flags, slots)
    _kept.append((table, slots, spec))
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object)
    make = kind(("PyType_FromSpecWithBases", ctypes.pythonapi))
    return make(ctypes.addressof(spec), (base,))


def untracked(name: str, base: type, **attributes: Any) -> Any:
    """A class whose objects refer to nothing, so that the collector of cycles need not know of them.

    It goes through those of every class that a `class` statement makes.
    """
    if sys.implementation.name != "cpython":
        return type(name.rpartition(".")[2], (base,), {"__slots__": (), **attributes})
    cls = made(name, base, IS_BASE)
    for attribute, value in attributes.items():
        setattr(cls, attribute, value)
    return cls
