"""Texts of functions, what their names mean, and one digest of all that a function's meaning depends on."""

from __future__ import annotations

import ast
import builtins
import contextlib
import hashlib
import inspect
import linecache
import operator
import textwrap
import types
import weakref
from collections.abc import Callable, Mapping
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


def parallel_option(function: Function) -> bool | None:
    """Whether Numba was told parallel=True; None of a function that was not given to Numba."""
    options = getattr(function, "targetoptions", None)
    return None if options is None else bool(options.get("parallel", False))


_read: weakref.WeakKeyDictionary[Function, SourceText] = weakref.WeakKeyDictionary()


def remember(function: Function) -> None:
    """Read the texts of a function and of what it calls now: their file may change while the program runs."""
    with contextlib.suppress(NotDifferentiable):  # told when it is called
        Meaning(function)


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
        raise _no_def(function, lines, first)
    code = function.__code__
    names = [a.arg for a in [*tree.args.posonlyargs, *tree.args.args]]
    if tree.name != code.co_name or names != [*code.co_varnames[: code.co_argcount]]:
        raise NotDifferentiable(
            f"the file of {name} was changed since it was defined: import it again"
        )
    filename = inspect.getsourcefile(function) or function.__code__.co_filename
    return SourceText(tree, tuple(text.splitlines()), filename, first)


def _no_def(function: types.FunctionType, lines: list[str], first: int) -> NotDifferentiable:
    """The refusal of a lambda or a coroutine, with its line."""
    line = lines[0].strip() if lines else ""
    error = NotDifferentiable(
        f"{function.__code__.co_filename}:{first}: {function.__qualname__} is no function made with `def`\n"
        f"    {line}\n    {'^' * len(line)}\nDefine it with `def`."
    )
    error.filename, error.lineno = function.__code__.co_filename, first
    return error


def positional(
    function: Function,
) -> Callable[[tuple[Any, ...], Mapping[str, Any]], tuple[Any, ...]]:
    """A function of the arguments of a call, by position and by name, that gives all by position."""
    signature = inspect.signature(python_function(function))

    def bound(args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        found = signature.bind(*args, **named)
        found.apply_defaults()
        return found.args

    return bound


def function_of_text(name: str, text: str, origin: str, names: Mapping[str, Any]) -> Function:
    """The function of a text that was written here, whose source is found like that of any other."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    filename = f"<{origin} {digest}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    space = dict(names)
    exec(compile(text, filename, "exec"), space)
    made: Function = space[name]
    return made


MISSING = object()
RULE = "_own_rule"  # the attribute of an elementwise function with a derivative of its own
_LIBRARIES = ("numpy", "math", "numba")


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


class Values(list[Any]):
    """Values that are equal to others if they are the same objects; held, so that no other gets their place."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Values) or len(self) != len(other):
            return False
        return all(map(operator.is_, self, other))

    __hash__ = None


MOST_CONSTANTS = 256  # elements of a global array, whose values are written into the text


def is_constant_array(value: Any) -> bool:
    """Whether a global array can be a constant, as in Numba."""
    if not isinstance(value, np.ndarray) or not value.ndim or value.size > MOST_CONSTANTS:
        return False
    return value.dtype.str[1:] in ("f8", "f4", "i8", "b1")


class Meaning:
    """What a function's meaning depends on: texts, and the values of names, which may come to mean others.

    `parts` are what it is told apart by in later processes; where values lie is kept to look at them again.
    """

    def __init__(self, function: Function) -> None:
        self.parts: list[str] = []
        # Where values were found, and which.
        self._cells: dict[int, tuple[types.CellType, Any]] = {}
        self._names: dict[tuple[int, str], tuple[Mapping[str, Any], str, Any]] = {}
        self._attributes: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        self._arrays: dict[int, tuple[np.ndarray[Any, Any], bytes]] = {}  # which may be written
        self._collect(python_function(function), set())

    @property
    def digest(self) -> str:
        return hashlib.sha256("\0".join(self.parts).encode()).hexdigest()

    def is_current(self) -> bool:
        """Whether all still have these values, by identity; asked in each call."""
        for space, name, value in self._names.values():
            if space.get(name, MISSING) is not value:
                return False
        for owner, name, value in self._attributes.values():
            if getattr(owner, name, MISSING) is not value:
                return False
        if any([array.tobytes() != content for array, content in self._arrays.values()]):  # noqa: C419
            return False
        return all([_content(cell) is value for cell, value in self._cells.values()])  # noqa: C419

    def now(self) -> Values:
        """What the names mean now."""
        found = Values([_content(cell) for cell, _ in self._cells.values()])
        found += [space.get(name, MISSING) for space, name, _ in self._names.values()]
        found += [getattr(owner, name, MISSING) for owner, name, _ in self._attributes.values()]
        for array, content in self._arrays.values():
            found.append(content if array.tobytes() == content else MISSING)
        return found

    def _collect(self, function: Function, seen: set[int]) -> None:
        if id(function) in seen:
            return
        seen.add(id(function))
        source = source_of(function)
        self.parts += [source.filename, str(source.first), *source.lines]
        self.parts.append(f"{function.__defaults__!r} {function.__kwdefaults__!r}")
        for cell in function.__closure__ or ():
            self._cells[id(cell)] = cell, _content(cell)
        for node in [n for s in source.tree.body for n in ast.walk(s)]:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                if node.id not in function.__code__.co_varnames:
                    value = meaning_of(function, node.id)
                    if not isinstance(value, types.ModuleType) or _may_change(value):
                        self._watch(function, node.id)
                    self._describe(node.id, value, seen)
            elif isinstance(node, ast.Attribute) and (steps := _steps(function, node)):
                for owner, name, value in steps:
                    if _may_change(owner):
                        self._attributes[id(owner), name] = owner, name, value
                self._describe(ast.unparse(node), steps[-1][2], seen)

    def _watch(self, function: Function, name: str) -> None:
        """Note where a name's value is looked for, apart from cells, which are noted already."""
        if name not in function.__code__.co_freevars:
            space = function.__globals__
            self._names[id(space), name] = space, name, space.get(name, MISSING)

    def _describe(self, name: str, value: Any, seen: set[int]) -> None:
        """Add what a name means."""
        rule = getattr(value, RULE, MISSING)
        if rule is not MISSING:  # which may be given later
            self._attributes[id(value), RULE] = value, RULE, rule
        has_rule = rule is not MISSING and rule is not None
        parallel = parallel_option(value)
        value = python_function(value)
        if isinstance(value, tuple) and any(isinstance(v, (tuple, np.ndarray)) for v in value):
            for k, item in enumerate(value):
                self._describe(f"{name}[{k}]", item, seen)
        elif isinstance(value, (bool, int, float, complex, str, tuple, np.generic)):
            self.parts.append(f"{name}={value!r}:{type(value).__name__}")
        elif isinstance(value, types.FunctionType):
            module = value.__module__ or ""
            self.parts.append(f"{name}={module}.{value.__qualname__}{' by its rule' * has_rule}")
            self.parts.append(f"parallel={parallel}")
            if not _is_known(value):
                self._collect(value, seen)
        elif is_constant_array(value):
            self._arrays[id(value)] = value, value.tobytes()
            self.parts.append(f"{name}={value.dtype}{value.shape}{value.tolist()!r}")
        elif value is not MISSING:
            self.parts.append(f"{name}={getattr(value, '__name__', type(value).__name__)}")


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
