"""What the reader of functions writes into: blocks of items, fresh names, each value once."""

from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from .refusal import NotDifferentiable
from .source import Function, SourceText, parallel_option, python_function, source_of
from .structure import Apply, Atom, Load, Statement, StoreElement, Suite
from .vocabulary import (
    BINARY_OF_FLOATS,
    CASTS,
    FLOAT_CASTS,
    OF_TRUTHS,
    OF_WHOLES,
    RESERVED,
    TESTS,
    promoted,
)

Key = tuple[object, ...]
_OUR_ENDING = re.compile(
    r"_([bckpsdewh]|\d+[dq]|seed|old|f64|f32)$"
)  # of names of ways back and of tangents
_OF_FLOATS = {
    *FLOAT_CASTS,
    "/",
    "np.exp",
    "np.log",
    "np.sqrt",
    "np.sin",
    "np.cos",
    "np.tan",
    "np.tanh",
}
_WHOLE: dict[str, Callable[[Any, Any], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


@dataclass(frozen=True)
class ActiveCall:
    """A function that is being read; `is_library` if it is one of `library`."""

    function: Function
    source: SourceText
    is_library: bool
    parallel: bool | None  # see `parallel_option`


class Emitter:
    """Appends items to the open block."""

    refused = "cannot be differentiated"  # what is said of what is not understood

    def __init__(self) -> None:
        self.block = Suite("top")
        self.arrays: dict[str, tuple[int, str]] = {}
        self.written: set[str] = set()
        self.swapped: set[str] = set()  # arrays that change places in a loop
        self.stored: list[str] = []  # the arrays of the stores that were read so far
        self.tests: set[Atom] = set()  # names of truth values
        self.floats: set[Atom] = set()  # names that are known to be floats while reading
        self.dtypes: dict[
            Atom, str
        ] = {}  # of names, as far as they are known or supposed while reading
        self.supposed: dict[str, str] = {}  # those of them that something depends on
        self.stack: list[ActiveCall] = []
        self._names: dict[str, int] = {}
        self._scopes: list[tuple[Suite, dict[Key, Any]]] = [(self.block, {})]
        self._versions: dict[str, int] = {}

    # ----- the user's text -----

    def enter(
        self, function: Function, node: ast.AST | None, *, is_library: bool = False
    ) -> SourceText:
        """Begin to read a function, called at a node of the one around."""
        parallel, function = parallel_option(function), python_function(function)
        is_open = any(call.function is function for call in self.stack)
        if is_open and node is not None and not is_library:
            self.reject(
                node,
                f"{function.__name__}, which calls itself,",
                "write the recursion as a loop with an array for its stack",
            )
        source = source_of(function)
        self.stack.append(ActiveCall(function, source, is_library, parallel))
        return source

    def reject(self, node: ast.AST, what: str, instead: str = "") -> NoReturn:
        """Refuse a node of the function that is being read.

        Raises:
            NotDifferentiable: always.
        """
        call = next(c for c in reversed(self.stack) if not c.is_library)
        source, is_here = call.source, call is self.stack[-1]
        line = getattr(node, "lineno", 1) if is_here else self._call_line
        code = source.lines[line - 1] if line <= len(source.lines) else ""
        first, last = 0, len(code)
        if is_here and getattr(node, "end_lineno", line) == line:
            first = getattr(node, "col_offset", 0)
            last = getattr(node, "end_col_offset", None) or last
        bare = code.lstrip()
        shift = len(code) - len(bare)
        first = max(first - shift, 0)
        under = " " * first + "^" * max(last - shift - first, 1)
        where = f"{source.filename}:{source.first + line - 1}"
        hint = (
            f"\n{instead[0].upper()}{instead[1:]}{'' if instead.endswith('.') else '.'}"
            if instead
            else ""
        )
        error = NotDifferentiable(f"{where}: {what} {self.refused}\n    {bare}\n    {under}{hint}")
        error.filename, error.lineno = source.filename, source.first + line - 1
        raise error

    def note(self, node: ast.AST) -> str:
        """The user's line, for a comment."""
        for call in reversed(self.stack):
            if not call.is_library:
                line = getattr(node, "lineno", 1) if call is self.stack[-1] else self._call_line
                return f"{call.source.first + line - 1}: {call.source.lines[line - 1].strip()}"
        return ""

    _call_line = 1  # of the innermost call of a library function in the user's text

    # ----- names, items -----

    def fresh(self, base: str) -> str:
        """A name that no other item has."""
        base = base.partition(".")[0].rstrip("_") or "t"
        if base in RESERVED or keyword.iskeyword(base) or _OUR_ENDING.search(base):
            base += "0"
        name = base
        while name in self._names:
            self._names[base] = count = self._names[base] + 1
            name = f"{base}_{count}"
        self._names[name] = 0
        return name

    def emit(self, item: Statement, node: ast.AST) -> None:
        item.note = self.note(node)
        self.block.items.append(item)

    def open_block(self, block: Suite) -> Suite:
        self.block = block
        self._scopes.append((block, {}))
        return block

    def close_block(self, outer: Suite) -> None:
        self._scopes.pop()
        self.block = outer

    # ----- the same value once -----

    def of_array_now(self, what: str, array: str, *rest: object) -> Key:
        """A key for what an array gives while nobody writes it."""
        group = "<swapped>" if array in self.swapped else array
        return (what, array, group, self._versions.get(group, 0), *rest)

    def remember(self, key: Key, value: Any) -> None:
        """Give a value that `known` finds while this block is open."""
        self._scopes[-1][1][key] = value

    def known(self, key: Key, *, through_loops: bool) -> Any:
        """What was remembered on every way here; None if nothing was."""
        for block, table in reversed(self._scopes):
            if key in table:
                return table[key]
            if not through_loops and block.kind in ("loop", "test"):
                return None
        return None

    def load(self, array: str, index: list[Atom], node: ast.AST, base: str = "t") -> str:
        key = self.of_array_now("load", array, *[(type(i), i) for i in index])
        name: str | None = self.known(key, through_loops=False)
        if name is None:
            name = self.fresh(base)
            self.emit(Load(name, array, list(index)), node)
            dtype = self.arrays[array][1]
            self.dtypes.setdefault(name, _of_numbers(dtype))
            if dtype[0] == "f":
                self.floats.add(name)
            self.remember(key, name)
        return name

    def store(
        self, array: str, index: list[Atom], value: Atom, node: ast.AST, adds: bool = False
    ) -> None:
        self.emit(StoreElement(array, index, value, self.fresh("old"), adds), node)
        self.written.add(array)
        self.stored.append(array)
        group = "<swapped>" if array in self.swapped else array
        self._versions[group] = self._versions.get(group, 0) + 1

    def is_known_float(self, a: Atom) -> bool:
        return isinstance(a, float) or a in self.floats

    @property
    def writes(self) -> int:
        """How many stores were read so far."""
        return len(self.stored)

    def dtype_of_number(self, a: Atom, unknown: str = "f8") -> str:
        """The dtype that Numba will find for a number: who reads compares it with that afterwards."""
        dtype = unknown if isinstance(a, str) and a not in self.dtypes else self.likely_dtype(a)
        if isinstance(a, str):
            self.supposed.setdefault(a, dtype)
        return dtype

    def likely_dtype(self, *atoms: Atom) -> str:
        """The dtype of one of these numbers, as far as is known."""
        dtypes = {
            self.dtypes.get(a, "f8") if isinstance(a, str)
            else "b1" if isinstance(a, bool) else "i8" if isinstance(a, int) else "f8"
            for a in atoms
        }  # fmt: skip
        return dtypes.pop() if len(dtypes) == 1 else promoted(dtypes)

    def _likely_result(self, function: str, args: list[Atom]) -> str:
        if function in TESTS or function == "bool":
            return "b1"
        if function in CASTS:
            return _of_numbers(np.dtype(function).str[1:])
        if function == "shape":
            return "i8"
        if function == "select":
            return self.likely_dtype(*args[1:])
        is_product = function == "**" and type(args[1]) is int
        found = self.likely_dtype(*(args[:1] if is_product else args))
        if found[0] == "f" or (found == "b1" and function in OF_TRUTHS):
            return found
        return "i8" if function in OF_WHOLES else "f8"

    def is_test(self, a: Atom) -> bool:
        """Whether an atom is known to be a truth value."""
        return isinstance(a, bool) or a in self.tests

    def op(self, function: str, args: list[Atom], node: ast.AST, base: str = "t") -> Atom:
        """Apply a function to atoms; whole numbers of the text are computed at once."""
        if (
            function == "neg"
            and isinstance(args[0], (int, float))
            and not isinstance(args[0], bool)
        ):
            return -args[0]
        if function in ("+", "-", "*") and all(type(a) is int for a in args):
            return _WHOLE[function](args[0], args[1])
        if function == "float64" and type(args[0]) in (int, float):
            return float(args[0])
        key = (function, *[(type(a), repr(a)) for a in args])
        dst: str | None = self.known(key, through_loops=True)
        if dst is None:
            dst = self.fresh(base)
            self.emit(Apply(dst, function, list(args)), node)
            self.dtypes.setdefault(dst, self._likely_result(function, args))
            if function in TESTS:
                self.tests.add(dst)
            elif function in _OF_FLOATS or (
                function in BINARY_OF_FLOATS and any(self.is_known_float(a) for a in args)
            ):
                self.floats.add(dst)
            self.remember(key, dst)
        return dst


def _of_numbers(dtype: str) -> str:
    """The dtype that a number of an array has by itself."""
    return "i8" if dtype[0] in "iu" else dtype
