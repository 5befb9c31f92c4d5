"""Which functions of C give the same result for the same arguments, and change only these.

What they change is found by comparing afterwards; what draws numbers, looks at the clock, at files or at the
interpreter's state, or prints, is not on these lists.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import itertools
import operator
import re
import types
import weakref
from types import ModuleType
from typing import Any

import numpy as np

_MODULES = frozenset({
    "_abc", "_bisect", "_collections", "_functools", "_heapq", "_operator", "_statistics", "_string",
    "_struct", "_weakref", "binascii", "cmath", "functools", "itertools", "math", "operator",
    "unicodedata", "zlib",
})  # fmt: skip
_BUILTINS = frozenset({
    "__build_class__", "__import__", "abs", "aiter", "all", "any", "ascii", "bin", "callable", "chr",
    "delattr", "dir", "divmod", "format", "getattr", "hasattr", "hash", "hex", "isinstance",
    "issubclass", "iter", "len", "max", "min", "next", "oct", "ord", "pow", "repr", "round",
    "setattr", "sorted", "sum", "vars",
})  # fmt: skip
_OTHERS = {
    "sys": {"exc_info", "intern", "is_finalizing", "exception"}, "_thread": {"get_ident"},
    "posix": {"fspath"},
}  # fmt: skip
# They read or write attributes whose names are not in the bytecode.
_DYNAMIC = frozenset({
    "__delattr__", "__dir__", "__getattribute__", "__setattr__", "attrgetter", "delattr", "dir",
    "getattr", "hasattr", "setattr", "vars",
})  # fmt: skip
_TYPES: tuple[type, ...] = (
    str, bytes, bytearray, bool, int, float, complex, list, dict, tuple, set, frozenset, range, slice,
    memoryview, type(None), type(Ellipsis), type(NotImplemented), type, object, super, property,
    staticmethod, classmethod, enumerate, zip, map, filter, reversed, BaseException, types.GeneratorType,
    types.MappingProxyType, types.SimpleNamespace, types.GenericAlias, types.UnionType, collections.deque,
    collections.OrderedDict, collections.defaultdict, type({}.keys()), type({}.values()),
    type({}.items()), type(iter([])), np.ndarray, np.generic, np.dtype, np.ufunc, re.Pattern, re.Match,
    decimal.Decimal, datetime.date, datetime.time, datetime.timedelta, weakref.ref, operator.itemgetter,
    *[kind for kind in vars(itertools).values() if isinstance(kind, type)],
)  # fmt: skip
_IMPURE = frozenset({
    "dump", "fromfile", "fromtimestamp", "genfromtxt", "load", "loadtxt", "memmap", "now", "save",
    "savez", "set_printoptions", "setbufsize", "seterr", "seterrcall", "today", "tofile", "utcnow",
})  # fmt: skip
FUNCTIONS = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.MethodWrapperType, types.ClassMethodDescriptorType,
)  # fmt: skip


def is_dynamic(function: Any) -> bool:
    """Whether a function of C reads or writes attributes by names that it is given."""
    return getattr(function, "__name__", "") in _DYNAMIC


def is_pure(function: Any) -> bool:
    """Whether a call of a function of C can be left out when its arguments are as they were."""
    name = getattr(function, "__name__", "")
    if name in _IMPURE:
        return False
    owner = getattr(function, "__self__", None)
    if owner is None or isinstance(owner, ModuleType):
        owner = getattr(function, "__objclass__", owner)
    if isinstance(owner, ModuleType) or owner is None:
        module = str(getattr(function, "__module__", None) or getattr(owner, "__name__", ""))
        if module == "builtins":
            return name in _BUILTINS
        if module.startswith(("adjit", "numpy")):
            return not module.startswith("numpy.random")
        return module in _MODULES or name in _OTHERS.get(module, ())
    kind = owner if isinstance(owner, type) else type(owner)
    if kind.__module__.startswith("adjit"):
        return True
    found = next((c for c in kind.__mro__ if name in vars(c)), None)
    return found in _TYPES or (found is not None and issubclass(found, (BaseException, np.generic)))


def is_plain_type(kind: type) -> bool:
    """Whether a class of C makes objects of which everything is known."""
    return kind in _TYPES or issubclass(kind, (BaseException, np.generic))


def name_of(function: Any) -> str:
    """A function as a message names it."""
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__qualname__", None) or repr(function)
    if isinstance(owner, ModuleType) and owner.__name__ != "builtins":
        return f"{owner.__name__}.{name}"
    return str(name)
