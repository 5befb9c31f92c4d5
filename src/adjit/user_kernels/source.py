"""Texts of functions, what their names mean, and one digest of all that a function's meaning depends on."""

from __future__ import annotations

import ast
import builtins
import contextlib
import hashlib
import inspect
import operator
import textwrap
import types
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .refusal import NotDifferentiable

Function = Callable[..., Any]  # of the user's


@dataclass(frozen=True)
class SourceText:
    """A function's text, dedented, and where it stands."""

    tree: ast.FunctionDef
    lines: tuple[str, ...]
    filename: str
    first: int  # its first line in the file


def python_function(function: Function) -> Function:
    """The Python function behind an njit one."""
    return getattr(function, "py_func", function)


_read: weakref.WeakKeyDictionary[Function, SourceText] = weakref.WeakKeyDictionary()


def remember(function: Function) -> None:
    """Read the texts of a function and of what it calls now: their file may change while the program runs."""
    with contextlib.suppress(NotDifferentiable):  # told when it is called
        meaning_of_function(function)


def source_of(function: Function) -> SourceText:
    """A function's text, as it was when it was first asked for.

    Raises:
        NotDifferentiable: if there is none, it is no `def`, or the file has another function there by now.
    """
    function = python_function(function)
    name = getattr(function, "__qualname__", repr(function))
    if not isinstance(function, types.FunctionType):
        raise NotDifferentiable(f"{name} is no Python function: its source cannot be read")
    if function not in _read:
        _read[function] = _read_source(function, name)
    return _read[function]


def _read_source(function: types.FunctionType, name: str) -> SourceText:
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise NotDifferentiable(
            f"the source of {name} is not there; write it into a file (or a notebook's cell)"
        ) from None
    text = textwrap.dedent("".join(lines))
    try:
        tree = ast.parse(text).body[0]
    except SyntaxError:
        tree = None
    if not isinstance(tree, ast.FunctionDef):
        raise NotDifferentiable(f"{name} is no function made with `def`")
    code = function.__code__
    names = [a.arg for a in [*tree.args.posonlyargs, *tree.args.args]]
    if tree.name != code.co_name or names != [*code.co_varnames[: code.co_argcount]]:
        raise NotDifferentiable(
            f"the file of {name} was changed since it was defined: import it again"
        )
    filename = inspect.getsourcefile(function) or function.__code__.co_filename
    return SourceText(tree, tuple(text.splitlines()), filename, first)


MISSING = object()
_LIBRARIES = ("numpy", "math", "numba")


class Watched:
    """What the names of a function's text, and of all that it calls, mean; they may come to mean others."""

    def __init__(self, function: Function) -> None:
        self._cells: list[types.CellType] = []
        self._names: list[tuple[dict[str, Any], str]] = []
        self._attributes: list[tuple[Any, str]] = []
        self._collect(python_function(function), set())
        self._seen = self.now()

    def has_changed(self) -> bool:
        return not all(map(operator.is_, self.now(), self._seen))

    def now(self) -> list[Any]:
        """What each name means now."""
        found = [_content(cell) for cell in self._cells]
        found += [names.get(name, MISSING) for names, name in self._names]
        found += [getattr(owner, name, MISSING) for owner, name in self._attributes]
        return found

    def _collect(self, function: Function, seen: set[Function]) -> None:
        if not isinstance(function, types.FunctionType) or function in seen:
            return
        seen.add(function)
        closure = function.__closure__ or ()
        self._cells += closure
        names = {
            node.id for node in ast.walk(source_of(function).tree) if isinstance(node, ast.Name)
        }
        self._names += [
            (function.__globals__, name) for name in names - {*function.__code__.co_varnames}
        ]
        for node in ast.walk(source_of(function).tree):
            if isinstance(node, ast.Attribute):
                self._attributes += [(owner, attr) for owner, attr, _ in _steps(function, node)]
        called = [getattr(owner, name, None) for owner, name in self._attributes]
        for value in [*called, *[meaning_of(function, name) for name in names]]:
            value = python_function(value)
            if not _is_known(value):
                self._collect(value, seen)


def _content(cell: types.CellType) -> Any:
    """What a variable of a closure holds; `MISSING` if nothing yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _is_known(value: Any) -> bool:
    """Whether a function is NumPy's, Python's or Numba's."""
    module = getattr(value, "__module__", None) or ""
    return module.partition(".")[0] in (*_LIBRARIES, "builtins")


def meaning_of(function: Function, name: str) -> Any:
    """What a name of the function's text means that is not local; `MISSING` if nothing."""
    function = python_function(function)
    for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if free == name:
            return _content(cell)
    found = function.__globals__.get(name, MISSING)
    return getattr(builtins, name, MISSING) if found is MISSING else found


@dataclass
class Meaning:
    """What a function's meaning depends on: texts, and the values that were found by names."""

    parts: list[str] = field(default_factory=list)
    globals: list[tuple[Mapping[str, Any], str, Any]] = field(default_factory=list)
    cells: list[tuple[types.CellType, Any]] = field(default_factory=list)
    attributes: list[tuple[Any, str, Any]] = field(default_factory=list)

    @property
    def digest(self) -> str:
        return hashlib.sha256("\0".join(self.parts).encode()).hexdigest()

    def is_current(self) -> bool:
        """Whether the names still have these values, by identity."""
        for space, name, value in self.globals:
            if space.get(name, MISSING) is not value:
                return False
        for owner, name, value in self.attributes:
            if getattr(owner, name, MISSING) is not value:
                return False
        return all([cell.cell_contents is value for cell, value in self.cells])  # noqa: C419


def meaning_of_function(function: Function) -> Meaning:
    """A function's text, that of all that it calls, and the constants they read."""
    found = Meaning()
    _collect(python_function(function), found, set())
    return found


def _collect(function: Function, meaning: Meaning, seen: set[int]) -> None:
    if id(function) in seen:
        return
    seen.add(id(function))
    source = source_of(function)
    meaning.parts += [source.filename, str(source.first), *source.lines]
    meaning.parts.append(f"{function.__defaults__!r} {function.__kwdefaults__!r}")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            value = meaning_of(function, node.id)
            if _describe(node.id, value, meaning, seen):
                _watch(function, node.id, value, meaning)
        elif isinstance(node, ast.Attribute) and (steps := _steps(function, node)):
            if _describe(ast.unparse(node), steps[-1][2], meaning, seen):
                changing = [step for step in steps if _may_change(step[0])]
                meaning.attributes += changing
                if changing:
                    root = ast.unparse(node).partition(".")[0]
                    _watch(function, root, steps[0][0], meaning)


def _steps(function: Function, node: ast.Attribute) -> list[tuple[Any, str, Any]]:
    """Each owner on the way to an attribute of what a name means that is not local, what it is asked, and
    what it answers."""
    path = [node.attr]
    inner = node.value
    while isinstance(inner, ast.Attribute):
        path.append(inner.attr)
        inner = inner.value
    if not isinstance(inner, ast.Name) or inner.id in function.__code__.co_varnames:
        return []
    found: list[tuple[Any, str, Any]] = []
    value = meaning_of(function, inner.id)
    for attr in reversed(path):
        if value is MISSING:
            return []
        owner, value = value, getattr(value, attr, MISSING)
        found.append((owner, attr, value))
    return found


def _may_change(owner: Any) -> bool:
    """Whether the attributes of an object are no constants of a library."""
    return not isinstance(owner, types.ModuleType) or owner.__name__ not in _LIBRARIES


def _watch(function: Function, name: str, value: Any, meaning: Meaning) -> None:
    """Note where a name's value was found."""
    for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if free == name:
            meaning.cells.append((cell, value))
            return
    if name in function.__globals__:
        meaning.globals.append((function.__globals__, name, value))


def _describe(name: str, value: Any, meaning: Meaning, seen: set[int]) -> bool:
    """Add what a name means; True if it is the user's, who may change it."""
    has_rule = getattr(value, "_has_rule", False)
    value = python_function(value)
    if isinstance(value, (bool, int, float, complex, str, tuple, np.generic)):
        meaning.parts.append(f"{name}={value!r}:{type(value).__name__}")
        return True
    if isinstance(value, types.FunctionType):
        module = value.__module__ or ""
        meaning.parts.append(f"{name}={module}.{value.__qualname__}{' by its rule' * has_rule}")
        if _is_known(value):
            return False
        _collect(value, meaning, seen)
        return True
    if value is not MISSING:
        meaning.parts.append(f"{name}={getattr(value, '__name__', type(value).__name__)}")
    return False
