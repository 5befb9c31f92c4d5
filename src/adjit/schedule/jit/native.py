"""Functions that the interpreter calls as its own, made by Numba: no C compiler is needed.

A program of small ops spends its time on moving references: into nodes, tuples, into `pending`. The
modules of the kernels room named here do that through CPython's C interface. Each function has a
fallback in Python, which says what it does, serves while the machine code is not there yet (it is
loaded or, once on a machine, compiled in the background when a program has settled a few times),
takes the unusual cases, and is all there is where the interpreter is not CPython with its lock, or
ADJIT_RECORDER says `python`.

Measured on a 2-core Zen 4 virtual machine, Python 3.11: recording `a + b` 630 ns in Python, 170
compiled.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib
import inspect
import operator
import re
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from ... import config, heap_types
from ...heap_types import HAVE_VECTORCALL, METHOD_DESCRIPTOR, Member
from ...kernels.fastpath import freelists
from . import cache, interpreter, kernel_files
from .interpreter import misfit, offset_of

VECTORCALL = "int64(int64, int64, int64, int64)"  # a callable, its arguments, their number, names
SETTLES = 8  # after so many a program is worth the machine code


def _why_python() -> str | None:
    """Why the interpreter does all the work itself; None if it does not."""
    if config.RECORDER != "compiled":
        return f"ADJIT_RECORDER is {config.RECORDER}"
    return "ADJIT_EAGER is set" if config.EAGER else misfit()


why_python = _why_python()
is_supported = why_python is None


# ----- what machine code knows by name -----


def register_layout(**things: type | Callable[..., Any] | int) -> None:
    """Let machine code find things by constants, which it names after them: `NODE_INPUTS` is the offset of a
    slot, `inputs` or `_inputs`, where NODE is a class, the place of a field where it is a NamedTuple, that of
    a parameter where it is a function; NODE is a number where it is one.

    Raises:
        ValueError: if a name stands for something else already.
    """
    for name, thing in things.items():
        if isinstance(thing, int):
            _provide(name, thing)
        elif isinstance(thing, types.FunctionType):
            code = thing.__code__
            _provide_places(name, code.co_varnames[: code.co_argcount])
        elif isinstance(thing, type) and issubclass(thing, tuple):
            _provide_places(name, vars(thing)["_fields"])
        elif is_supported:
            for ancestor in cast(type, thing).__mro__:
                for slot, member in vars(ancestor).items():
                    if isinstance(member, types.MemberDescriptorType):
                        _provide(f"{name}_{slot.lstrip('_').upper()}", offset_of(member))


def _provide_places(prefix: str, names: Sequence[str]) -> None:
    for place, name in enumerate(names):
        _provide(f"{prefix}_{name.upper()}", place)


def _provide(name: str, number: int) -> None:
    if constants.setdefault(name, number) != number:
        raise ValueError(f"{name} is known to machine code as {constants[name]}, not {number}")


constants: dict[str, int] = {}  # what machine code may ask for


class ModuleVariable(NamedTuple):
    """A variable of a module, which machine code looks at or sets."""

    module: dict[str, Any]  # its variables
    name: str
    usual: Any  # the value that asks nothing special of machine code


def variable(module: str, name: str, usual: Any) -> ModuleVariable:
    """A variable of a module, for machine code.

    Raises:
        AttributeError: if the module has none of that name.
    """
    getattr(sys.modules[module], name)
    return ModuleVariable(vars(sys.modules[module]), name, usual)


def named(cls: type, name: str) -> str:
    """The name of an attribute of the objects of a class, for machine code.

    Raises:
        AttributeError: if the class has none of that name.
    """
    getattr(cls, name)
    return name


def keep_attributes_in_dicts(cls: type) -> None:
    """Prepare a class for objects that machine code makes: see the interpreter's function of this name."""
    if is_supported:
        interpreter.keep_attributes_in_dicts(cls)


# ----- machine code -----


_PRIVATE = re.compile(r"(^|\.)_(?=[a-z]\w*$)")  # before the last part of a name


# What machine code works on, or a function that gives it when the machine code is there: at an import, not all
# that it takes may be.
Context = tuple[Any, ...] | Callable[[], tuple[Any, ...]]


class FastPath:
    """The functions that share one piece of machine code, and differ in their context.

    The code is a function of a module of `kernels/fastpath`, compiled with constants of this process:
    a name that the module, or one that it imports, sets to BOUND is one of them.
    """

    signature = VECTORCALL

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name
        self._address = 0
        self._functions: list[Any] = []
        # Without context yet.
        self._waiting: list[tuple[Native, Callable[[], tuple[Any, ...]]]] = []
        add(self)

    def function(self, fallback: Callable[..., Any], context: Context) -> Any:
        """`fallback`, replaced by the machine code as soon as that is there; without the `_` of its name."""
        for named in () if isinstance(fallback, Native) else ("__name__", "__qualname__"):
            setattr(fallback, named, _PRIVATE.sub(r"\1", getattr(fallback, named)))
        if not is_supported:
            return fallback
        made: Any = NativeFunction()
        made.__wrapped__ = fallback
        made.__name__, made.__doc__ = fallback.__name__, fallback.__doc__
        self.bind(made, context)
        return made

    def bind(self, made: Native, context: Context) -> None:
        """Have calls of an object of a class that is `called` go to the machine code."""
        if is_supported:
            if isinstance(context, tuple):
                made.context = context
            elif self.is_loaded:
                made.context = context()
            else:
                self._waiting.append((made, context))
            self._functions.append(made)
            self._point(made)

    def context_of(self, made: Native) -> Context:
        """What the machine code works on in calls of an object, or a function that gives it."""
        waiting = [context for one, context in self._waiting if one is made]
        return waiting[0] if waiting else made.context

    def load(self, *, compiling: bool) -> bool:
        """Have the machine code called; False if it is not in the cache and must not be compiled."""
        text = _bound(f"fastpath.{self.module}")
        self._address = cache.address_of(self.name, text, self.signature, compiling=compiling)
        while self._address and self._waiting:
            made, context = self._waiting.pop()
            made.context = context()
        for made in self._functions:
            self._point(made)
        return bool(self._address)

    @property
    def is_loaded(self) -> bool:
        """Whether the machine code is called."""
        return self._address != 0

    def _point(self, made: Any) -> None:
        ctypes.c_int64.from_address(id(made) + made._place).value = self._address


def bind_like(
    other: Native,
    made: Native,
    changed: Callable[[tuple[Any, ...]], tuple[Any, ...]],
    but_not: str,
) -> None:
    """Have calls of an object go to the machine code of another one, which works on the same, changed.

    `but_not` is machine code that calls go to in no case.
    """
    for fast_path in families:
        if fast_path.name != but_not and any(other is one for one in fast_path._functions):
            fast_path.bind(made, _changed(fast_path.context_of(other), changed))
            return


def _changed(context: Context, change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Context:
    return change(context) if isinstance(context, tuple) else lambda: change(context())


_IMPORT = re.compile(r"^from (\.[\w.]*) import ", re.MULTILINE)
_OPEN = re.compile(r"^((?:[A-Z_0-9]+ = )+)BOUND\b", re.MULTILINE)
_LEFT_OPEN = re.compile(r"[=(,]\s*BOUND\b")  # as `_OPEN` does not find it


@functools.cache
def _is_open(name: str) -> bool:
    """Whether a module, or one that it imports, leaves constants open."""
    text = kernel_files.text_of(name)
    if _OPEN.search(text) or _LEFT_OPEN.search(_without_imports(text)):
        return True
    return any(map(_is_open, kernel_files.imported(text, name)))


def _without_imports(text: str) -> str:
    """The text of a module with nothing on the lines of its imports."""
    return kernel_files.IMPORT.sub(lambda match: "\n" * match[0].count("\n"), text)


def _bound(name: str) -> str:
    """The text of a module, to be run on its own, with its constants.

    What it imports from modules that leave some open too, it imports from these with theirs.

    Raises:
        NameError: if it leaves a name open that nobody has made known, or in a way that is not seen here.
    """

    text, where = kernel_files.text_of(name), f"kernels/{name.replace('.', '/')}.py"
    if unknown := sorted(opened(text) - constants.keys()):
        raise NameError(
            f"{where} wants {', '.join(unknown)}, which `native.register_layout` was not told"
        )
    rest = _OPEN.sub("", _without_imports(text))
    if left := _LEFT_OPEN.search(rest):
        line = rest.count("\n", 0, left.end()) + 1
        raise NameError(
            f"{where}, line {line}: what is BOUND here stays 0; write `NAME = NAME = BOUND` on one line"
        )

    def imported(match: re.Match[str]) -> str:
        part = kernel_files.absolute(match[1], name)
        assert part is not None
        if _is_open(part):
            return f"from {_bound_module(part)} import "
        return f"from {kernel_files.PACKAGE}.{part} import "

    def bound(match: re.Match[str]) -> str:
        return "; ".join([f"{capital} = {constants[capital]}" for capital in _names_in(match[1])])

    return _OPEN.sub(bound, _IMPORT.sub(imported, text))


def opened(text: str) -> set[str]:
    """The names that the text of a module leaves open."""
    return {capital for names in _OPEN.findall(text) for capital in _names_in(names)}


def _names_in(names: str) -> list[str]:
    return names.removesuffix(" = ").split(" = ")


@functools.cache
def _bound_module(name: str) -> str:
    """The name under which a module with its constants can be imported."""
    text = _bound(name)
    parts = text + kernel_files.digest_inside(text)
    made = f"adjit_{name.replace('.', '_')}_{hashlib.sha256(parts.encode()).hexdigest()[:20]}"
    if made not in sys.modules:
        sys.modules[made] = _Bound(made, text)
    return made


class _Bound(types.ModuleType):
    """A module that runs its text when something of it is wanted: by a compiler.

    What several functions share is compiled once for all of them: all that there is takes 16 s, was 22.
    """

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name)
        self._text = text

    def __getattr__(self, name: str) -> Any:
        if "_text" in self.__dict__ and not name.startswith("__"):
            exec(compile(self.__dict__.pop("_text"), f"<{self.__name__}>", "exec"), self.__dict__)
        if name not in self.__dict__:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return self.__dict__[name]


families: list[FastPath] = []
_settles = 0
is_wanted = False  # whether there are some that nobody has asked for yet


def is_used() -> bool:
    """Whether some of the machine code is there."""
    return any(fast_path.is_loaded for fast_path in families)


def add(fast_path: FastPath) -> None:
    """Have the machine code of a fast_path loaded when the program is worth it."""
    global is_wanted
    if is_supported:
        families.append(fast_path)
        is_wanted = True


def settled(compile_later: Callable[[Callable[[], object]], None]) -> None:
    """Count a settle; after some, load the machine code, that at once which is in the cache."""
    global is_wanted, _settles
    _settles += 1
    if _settles < SETTLES:
        return
    is_wanted = False
    for fast_path in families:
        if not _loaded(fast_path, compiling=False):
            compile_later(functools.partial(_loaded, fast_path, compiling=True))


def _loaded(fast_path: FastPath, *, compiling: bool) -> bool:
    """Load the machine code of a fast path; where that cannot be done, its fallbacks go on."""
    try:
        return fast_path.load(compiling=compiling)
    except Exception as error:
        warnings.warn(
            f"adjit could not load {fast_path.module}.{fast_path.name} ({type(error).__name__}: {error}); "
            "the interpreter goes on doing its work",
            RuntimeWarning,
            stacklevel=2,
        )
        return True


# ----- functions -----


class Native:
    """What may be called through a pointer to machine code, which gets to know `context`."""

    __slots__ = ("context", "public")
    context: tuple[Any, ...]
    public: tuple[str, str]  # the module and the name by which users find it, if they do
    __wrapped__: Callable[..., Any]
    _place: int  # of the pointer

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is the object itself, as of any function."""
        fallback = inspect.unwrap(cast(Any, self))
        return attribute, getattr(self, "public", (fallback.__module__, fallback.__qualname__))


def attribute(module: str, name: str) -> Any:
    """What a dotted name means in a module."""
    return operator.attrgetter(name)(importlib.import_module(module))


_T_PYSSIZET, _READONLY = 19, 1


_Class = TypeVar("_Class", bound=type[Native])


def called(cls: _Class) -> _Class:
    """A class with a pointer to machine code in its objects, and all else as in `cls`.

    The interpreter calls them through the pointer, as methods too where `cls` has a `__get__`; while it is
    null, `__call__`.
    """
    if not is_supported:
        return cls
    place = cls.__basicsize__
    offset = Member(b"__vectorcalloffset__", _T_PYSSIZET, place, _READONLY, None)
    name = f"{cls.__module__}.{cls.__name__}"
    flags = HAVE_VECTORCALL | (METHOD_DESCRIPTOR if hasattr(cls, "__get__") else 0)
    made = heap_types.made(name, cls, flags, place + 8, (offset,))
    made.__doc__, made._place = vars(cls)["__doc__"], place
    return cast(_Class, made)


@called
class NativeFunction(Native):
    # What the interpreter sees of a compiled function; until it is there, its fallback is called.
    # (A docstring here would hide those of the instances.)
    __slots__ = ("__doc__", "__name__", "__wrapped__")
    __name__: str
    __wrapped__: Callable[..., Any]

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<compiled {self.__name__}>"


register_layout(FUNCTION=Native, GLOBAL=ModuleVariable)


# ----- objects that are used again -----

_spare_objects = (ctypes.c_int64 * freelists.WORDS)()
if is_supported:
    cache.provide(freelists.TABLE, ctypes.addressof(_spare_objects))
    # It is there for good: when the interpreter ends, objects are freed after this module.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_spare_objects))


class _OfClasses(FastPath):
    """Machine code that classes have in the place of a function of the interpreter's."""

    def __init__(self, name: str, signature: str, place: int) -> None:
        super().__init__("freelists", name)
        self.signature = signature
        self._place = place

    def bind_class(self, cls: type) -> None:
        """Have it called for the objects of a class."""
        self._functions.append(cls)
        self._point(cls)

    def _point(self, made: Any) -> None:
        if self._address:
            ctypes.c_int64.from_address(id(made) + self._place).value = self._address


_recycling = (
    _OfClasses("allocate", "int64(int64, int64)", freelists.ALLOCATE),
    _OfClasses("recycle", "void(int64)", freelists.DEALLOCATE),
)
_Made = TypeVar("_Made", bound=type)


def recycled(cls: _Made) -> _Made:
    """A class of which machine code makes and frees many objects; all that they have are slots."""
    if is_supported:
        for fast_path in _recycling:
            fast_path.bind_class(cls)
    return cls
