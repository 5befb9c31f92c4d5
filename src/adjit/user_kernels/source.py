"""Texts of functions, what their names mean, and one digest of all that a function's meaning depends on."""

from __future__ import annotations

import ast
import builtins
import contextlib
import hashlib
import inspect
import textwrap
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
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
        digest_of(function)


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


def meaning_of(function: Function, name: str) -> Any:
    """What a name of the function's text means that is not local; `MISSING` if nothing."""
    function = python_function(function)
    for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if free == name:
            try:
                return cell.cell_contents
            except ValueError:  # not assigned yet
                return MISSING
    found = function.__globals__.get(name, MISSING)
    return getattr(builtins, name, MISSING) if found is MISSING else found


def digest_of(function: Function) -> str:
    """A digest of a function's text, of all that it calls, and of the constants they read."""
    parts: list[str] = []
    _collect(python_function(function), parts, set())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _collect(function: Function, parts: list[str], seen: set[int]) -> None:
    if id(function) in seen:
        return
    seen.add(id(function))
    source = source_of(function)
    parts += [source.filename, str(source.first), *source.lines]
    parts.append(repr(function.__defaults__))
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            _describe(node.id, meaning_of(function, node.id), parts, seen)
        elif isinstance(node, ast.Attribute):
            owner = node
            path = []
            while isinstance(owner, ast.Attribute):
                path.append(owner.attr)
                inner = owner.value
                if not isinstance(inner, ast.Attribute):
                    break
                owner = inner
            if isinstance(owner.value, ast.Name):
                value = meaning_of(function, owner.value.id)
                for attr in reversed(path):
                    value = getattr(value, attr, MISSING)
                _describe(ast.unparse(node), value, parts, seen)


def _describe(name: str, value: Any, parts: list[str], seen: set[int]) -> None:
    value = python_function(value)
    if isinstance(value, (bool, int, float, complex, str, tuple, np.generic)):
        parts.append(f"{name}={value!r}:{type(value).__name__}")
    elif isinstance(value, types.FunctionType):
        module = value.__module__ or ""
        parts.append(f"{name}={module}.{value.__qualname__}")
        if module.partition(".")[0] not in ("numpy", "math", "numba"):
            _collect(value, parts, seen)
    elif value is not MISSING:
        parts.append(f"{name}={getattr(value, '__name__', type(value).__name__)}")
