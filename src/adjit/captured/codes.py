"""What Python code can read: the names in its bytecode, and which code a call runs.

A profile function sees every Python function that runs and every function of C that the program calls.
The code objects say which globals, closure variables and attributes can have been read or written; what
those lead to is for `reach.py` to follow. Functions of C leave no such trace: only those known to be
pure, or to change nothing but builtin containers, may be called in what is to be skipped later.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import gc
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence, Set
from contextvars import ContextVar
from types import CodeType, DynamicClassAttribute, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

from . import purity

_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME",
            "LOAD_FROM_DICT_OR_GLOBALS"}  # fmt: skip
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "LOAD_SUPER_ATTR",
               "IMPORT_FROM"}  # fmt: skip
_ANY_ATTRIBUTE = {"MATCH_CLASS"}  # reads attributes that only a class names

OURS, LIBRARY, PURE, USER = "ours", "library", "pure", "user"

# Parts of the library whose Python is looked into like the user's own: modules hold what users change.
_LOOKED_INTO = (
    "adjit.nn.",
    "adjit.func.modules",
    "adjit.optim.lr_scheduler",
    "adjit.optim.swa_utils",
    "adjit.models",
    "adjit.scipy",
    "adjit.utils",
)
_NOT_LOOKED_INTO = (
    "adjit.nn.functional", "adjit.nn.init", "adjit.nn.parameter", "adjit.nn.reduction", "adjit.utils._pytree",
)  # fmt: skip

# By module: what users have registered with code that is not looked into.
registries: dict[str, dict[Any, Any]] = {}


class Facts(NamedTuple):
    """The names that a code object, and those nested in it, may read or write."""

    attributes: frozenset[str]
    globals: frozenset[str]
    passed: frozenset[str]  # globals and attributes that are not only called: others may call them
    modules: frozenset[str]  # that it imports
    nested: tuple[CodeType, ...]
    is_dynamic: bool  # attributes are read whose names the code does not have


@functools.lru_cache(maxsize=4096)
def facts_of(code: CodeType) -> Facts:
    """What is known about a code object."""
    attributes: set[str] = set()
    names: set[str] = set()
    passed: set[str] = set()
    modules: set[str] = set()
    is_dynamic = False
    nested = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    instructions = [*dis.get_instructions(code)]
    called = _called_attributes(instructions)
    for k, instruction in enumerate(instructions):
        operation = instruction.opname
        if operation in _GLOBALS:
            names.add(instruction.argval)
            if not _is_called(operation, instruction.arg):
                passed.add(instruction.argval)
        elif operation in _ATTRIBUTES:
            attributes.add(instruction.argval)
            if not (k in called or _is_called(operation, instruction.arg)):
                passed.add(instruction.argval)
        elif operation == "IMPORT_NAME":
            modules.add(instruction.argval)
            attributes.update(instruction.argval.split("."))
        elif operation in _ANY_ATTRIBUTE:
            is_dynamic = True
    for inner in list(nested):
        found = facts_of(inner)
        attributes |= found.attributes
        names |= found.globals
        passed |= found.passed
        modules |= found.modules
        is_dynamic |= found.is_dynamic
        nested += found.nested
    is_dynamic |= "__dict__" in attributes
    return Facts(
        frozenset(attributes), frozenset(names), frozenset(passed), frozenset(modules), tuple(nested),
        is_dynamic,
    )  # fmt: skip


def _is_called(operation: str, argument: int | None) -> bool:
    """Whether what an instruction loads is called by the next ones, and nothing else."""
    if operation == "LOAD_METHOD":
        return True
    has_flag = operation == "LOAD_GLOBAL" or (operation == "LOAD_ATTR" and _ATTRIBUTES_ARE_FLAGGED)
    return has_flag and argument is not None and bool(argument & 1)


_ATTRIBUTES_ARE_FLAGGED = sys.version_info >= (3, 12)


def _called_attributes(instructions: Sequence[dis.Instruction]) -> set[int]:
    """Which instructions load what an imported module has, to be called by the next ones and nothing else.

    They have no flag of their own: a null is on the stack, before the module up to Python 3.12, since then
    behind the attribute.
    """
    found: set[int] = set()
    is_callee, before = False, ""
    for k, instruction in enumerate(instructions):
        operation = instruction.opname
        following = instructions[k + 1].opname if k + 1 < len(instructions) else ""
        if operation != "LOAD_ATTR":
            has_null = operation == "LOAD_GLOBAL" and bool(instruction.arg and instruction.arg & 1)
            is_callee = has_null or "PUSH_NULL" in (operation, before)
        elif _NULLS_ARE_LAST:
            if following == "PUSH_NULL":
                found.add(k)
        elif is_callee and following != "LOAD_ATTR":
            found.add(k)
        before = operation
    return found


_NULLS_ARE_LAST = sys.version_info >= (3, 13)


def kind_of(module: str) -> str:
    """Whose code a module's is: what is looked for depends on it."""
    if module == "adjit" or module.startswith("adjit."):
        if module.startswith(_NOT_LOOKED_INTO):
            return OURS
        return LIBRARY if module.startswith(_LOOKED_INTO) else OURS
    if module in ("_weakrefset", "weakref"):
        return PURE  # what weak containers do when something dies, at any time
    package = module.partition(".")[0]
    if package == "llvmlite":
        return OURS  # the library calls it, and finalizers of what was compiled do, at any time
    if package in ("numpy", "numba"):  # the library itself calls the latter
        return USER if module.startswith("numpy.random") else PURE
    return USER


class Run:
    """What one call ran: Python code that is not the library's core, and the first thing in it that
    nobody can tell to be repeatable."""

    def __init__(
        self, known: Set[CodeType] = frozenset(), on_new: Callable[[], object] | None = None
    ) -> None:
        self.codes: set[CodeType] = set()
        self.registries: dict[str, dict[Any, Any]] = {}  # that code not looked into may have read
        self.is_dynamic = False
        self.problem = ""
        self._kinds: dict[CodeType, str] = {}
        self._known = known
        self._on_new = on_new  # called before code runs that is not known
        self._importing: FrameType | None = (
            None  # where the library looks for a module, or loads it
        )

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch what this thread calls."""
        if sys.getprofile() is not None:
            self.problem = "a profiler is running"
            yield
            return
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, function: Any) -> None:
        code = frame.f_code
        if self._importing is not None:
            if frame is self._importing and event == "return":
                self._importing = None
            return
        kind = self._kinds.get(code)
        if kind is None:
            module = frame.f_globals.get("__name__") or ""
            kind = kind_of(module)
            if module in registries:
                self.registries[module] = registries[module]
            if any(getattr(called, "__code__", None) is code for called in gc.callbacks):
                kind = OURS  # the collector calls it, at any time: it is no part of the function
            if kind is USER and is_of_python(frame):
                kind = self._kind_of_caller(frame)  # others may call it too: it is not kept
                if kind is OURS and event == "call" and code.co_filename.startswith(_IMPORTS):
                    self._importing = (
                        frame  # until it returns: finders of others are no part either
                    )
                    return
            else:
                self._kinds[code] = kind
            if kind in (LIBRARY, USER) and code not in self.codes:
                self.codes.add(code)
                if self._on_new is not None and code not in self._known:
                    self._on_new()
                self.is_dynamic |= kind is USER and facts_of(code).is_dynamic
        if event != "c_call" or kind is OURS or kind is LIBRARY:
            return
        if kind is PURE and isinstance(getattr(function, "__self__", None), ContextVar):
            return  # NumPy's ways to treat overflows, for a while
        if kind is USER and purity.is_dynamic(function):
            self.is_dynamic = True
        if not self.problem and not purity.is_pure(function):
            self.problem = f"{_place(frame)} calls {purity.name_of(function)}"
            if self._on_new is not None:
                self._on_new()  # who knows what it reads

    def _kind_of_caller(self, frame: FrameType) -> str:
        """Whose code has called a function of Python's own library.

        Called by a part of this library that is looked into, it is ours: what that calls is known.
        """
        caller: FrameType | None = frame.f_back
        while caller is not None and is_of_python(caller):
            caller = caller.f_back
        found = "" if caller is None else kind_of(caller.f_globals.get("__name__") or "")
        return OURS if found is LIBRARY else found or USER


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """Have nobody watch what the library itself does for a while."""
    watcher = sys.getprofile()
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(watcher)


def is_of_python(frame: FrameType) -> bool:
    """Whether code belongs to Python's own library, or was made by it."""
    name = frame.f_code.co_filename
    if name == "<string>":
        return str(frame.f_globals.get("__name__")).startswith("namedtuple_")
    return name.startswith(_PYTHON) and "-packages" not in name


_PYTHON = (sysconfig.get_path("stdlib"), "<frozen ")
_IMPORTS = "<frozen importlib"


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def functions_in(value: Any) -> Iterator[FunctionType]:
    """The Python functions that a class attribute stands for."""
    if isinstance(value, FunctionType):
        yield value
    elif isinstance(value, (staticmethod, classmethod)):
        yield from functions_in(value.__func__)
    elif isinstance(value, (property, DynamicClassAttribute)):
        for part in (value.fget, value.fset, value.fdel):
            yield from functions_in(part)
    elif isinstance(value, functools.cached_property):
        yield from functions_in(value.func)


def is_library(code: CodeType) -> bool:
    """Whether code is in a file of the library."""
    return code.co_filename.startswith(_LIBRARY)


_LIBRARY = os.path.dirname(os.path.dirname(__file__)) + os.sep


def is_core(value: Any) -> bool:
    """Whether a function, class or module belongs to the core of the library or to NumPy's pure part."""
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return isinstance(module, str) and kind_of(module) in (OURS, PURE)
