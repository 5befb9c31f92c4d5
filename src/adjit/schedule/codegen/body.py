"""Scalar bodies: parsed once, then pasted into kernels or read on tensors.

A body is straight-line code with one return; `a if c else b` stands for `if`. Names from `math`
and `special` are scalar functions. In a kernel every literal becomes `T(literal)`, because a bare
`1.0` is float64 in Numba (numba #3377).

An op may name its operands and locals as it likes, `T`, `i` or `min`: what a body calls `x` is `_x` in
a kernel of its own, and `v0_x` in a fused one, where its result is `v0`. No other name there begins so.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import linecache
import math
import os
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from ...dtypes import dtype
from ...locks import Lock

parsing = Lock()


def parse(text: str, mode: str = "exec") -> Any:
    """`ast.parse`, in one thread at a time: Python 3.11 counts the depth of all trees in one place
    (python/cpython#106905), and raises a SystemError where two are made at once."""
    with parsing:
        return ast.parse(text, mode=mode)


SCALAR_MODULES = ("math", "special")
SCALAR_BUILTINS = ("abs", "bool", "max", "min")
VECTOR_MATH = "adjit.kernels.math.vector"


class _Special:
    """Names of scalar functions that `math` lacks; they have a meaning only inside bodies."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"special.{name} can only be used inside the body of an op")


special: Any = _Special()


def own(name: str, of: str = "") -> str:
    """What a kernel calls a name of a body, which is the only one there or computes the value `of`."""
    return f"{of}_{name}"


class Pasted(NamedTuple):
    """Straight-line statements, and the functions they need: name to module."""

    lines: list[str]
    imports: dict[str, str]


def written_text(function: Callable[..., Any]) -> str:
    """The definition of a function as it stands in its file.

    `inspect.getsource` goes through all modules, and by functions that other packages replace, as PyTorch does:
    in a call that is watched their code counts as the user's.

    Raises:
        OSError: if its lines are not there.
        TypeError: if it has none.
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        raise TypeError(f"{function!r} is no function made with def")
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__)[code.co_firstlineno - 1 :]
    if not lines:
        raise OSError(f"the source text of {code.co_qualname} was not found")
    return textwrap.dedent("".join(inspect.getblock(lines)))


_stamps: dict[str, int] = {}  # of files with bodies, when they were last written


def _stamp(path: str) -> int:
    """When a file was last written: at the first call for it, so when it was imported; 0 for none."""
    found = _stamps.get(path)
    if found is None:
        found = _stamps[path] = _written(path)
    return found


def _written(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _is_as_it_was(path: str) -> bool:
    return _written(path) == _stamp(path)


def _text_in_edited_file(code: CodeType) -> str:
    """The definition of a function in a file that was edited since it was imported.

    Raises:
        RuntimeError: if it is not there as it was: another one may stand in its lines.
    """
    path = code.co_filename
    text = Path(path).read_text(encoding="utf-8")
    waiting: list[Any] = [compile(text, path, "exec", dont_inherit=True)]
    while waiting:
        found = waiting.pop()
        if found.co_name == code.co_name and _facts(found) == _facts(code):
            return "".join(inspect.getblock(text.splitlines(True)[found.co_firstlineno - 1 :]))
        waiting += [c for c in found.co_consts if isinstance(c, CodeType)]
    raise RuntimeError(
        f"{code.co_qualname}: the body of an op is read when it is first used, and was not found: {path} "
        "has been edited since it was imported. Start the process again"
    )


def _facts(code: CodeType) -> tuple[Any, ...]:
    """What code computes."""
    numbers = [repr(c) for c in code.co_consts if not isinstance(c, CodeType)]
    return code.co_varnames, code.co_names, code.co_freevars, numbers, code.co_code


class Body:
    """A scalar function, parsed when it is first used: imports must stay quick.

    The text of one in a notebook is read at once: the next cell may take its place.
    """

    whole: frozenset[str] = frozenset()  # parameters that are read as whole numbers, in int64

    def __init__(self, function: Callable[..., Any]) -> None:
        code = getattr(function, "__code__", None)
        if code is None:
            raise TypeError(f"{function!r}: an op's body must be a function made with def")
        self.function = function
        self.name = code.co_name
        positional = code.co_argcount
        self.params = list(code.co_varnames[:positional])
        self.attributes = list(code.co_varnames[positional : positional + code.co_kwonlyargcount])
        annotations = function.__annotations__
        self.logical = frozenset(p for p in self.params if annotations.get(p) in (bool, "bool"))
        self._on_tensors: dict[tuple[int, ...], Callable[..., Any]] = {}
        _stamp(code.co_filename)
        if function.__module__ == "__main__":
            _ = self.text

    @functools.cached_property
    def text(self) -> str:
        """The definition of the function."""
        code = self.function.__code__
        try:
            if _is_as_it_was(code.co_filename):
                return written_text(self.function)
            return textwrap.dedent(_text_in_edited_file(code))
        except (OSError, TypeError):
            raise TypeError(
                f"{self.function.__qualname__}: the source text of an op's body is needed and was not "
                "found; define the function in a file or a notebook cell"
            ) from None

    @functools.cached_property
    def parsed(self) -> tuple[list[ast.Assign], list[ast.expr]]:
        """The assignments, and the expressions that are returned; every name stands for one value."""
        name = self.function.__qualname__
        tree = parse(self.text).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise TypeError(f"{name}: an op's body must be a function made with def")
        *statements, last = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
        if not isinstance(last, ast.Return) or last.value is None:
            raise TypeError(f"{name}: an op's body must end in a return")
        used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        reader = _Reader(name, [*self.params, *self.attributes], used)
        assigns = []
        for statement in statements:
            if not isinstance(statement, ast.Assign):
                raise TypeError(
                    f"{name}: an op's body is straight-line code, line {statement.lineno} is "
                    f"{type(statement).__name__}; write `a if condition else b` instead of `if`"
                )
            assigns.append(reader.assigned(statement))
        value = reader.visit(last.value)
        return assigns, list(value.elts) if isinstance(value, ast.Tuple) else [value]

    @property
    def is_one_computation(self) -> bool:
        """Whether all results cost about as much as one of them."""
        return False

    @functools.cached_property
    def is_cheap(self) -> bool:
        """Whether computing it again costs less than writing and reading a value: no functions, no
        division."""
        return not any(
            isinstance(n, (ast.Attribute, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow))
            for statement in [*self.assigns, *self.results]
            for n in ast.walk(statement)
        )

    @property
    def assigns(self) -> list[ast.Assign]:
        """The statements before the return."""
        return self.parsed[0]

    @property
    def results(self) -> list[ast.expr]:
        """What is returned, one expression for each result."""
        return self.parsed[1]

    def needed(self, wanted: Sequence[int]) -> tuple[list[ast.Assign], set[str]]:
        """The statements behind some of the results, and every name these read."""
        names: set[str] = set()
        for k in wanted:
            names |= _reads(self.results[k])
        kept = []
        for statement in reversed(self.assigns):
            if _writes(statement) & names:
                kept.append(statement)
                names |= _reads(statement.value)
        return kept[::-1], names

    def passes(self, k: int) -> bool:
        """Whether result `k` is the first parameter, unchanged."""
        result = self.results[k]
        return isinstance(result, ast.Name) and result.id == self.params[0]

    def paste(
        self,
        wanted: Sequence[int],
        into: Sequence[str],
        compute: dtype,
        given: Mapping[str, str] | None = None,
        of: str = "",
    ) -> Pasted:
        """The statements as kernel source; `into[k]` takes the result `wanted[k]`: `out = {}`.

        In a kernel of several bodies `of` is the value that this one computes, and `given` says where
        its parameters are to be had.
        """
        rewriter = _Pasting(compute, given or {}, of)
        statements, _ = self.needed(wanted)
        lines = [rewriter.text(s) for s in statements]
        for taken, k in zip(into, wanted, strict=True):
            lines.append(taken.format(rewriter.text(self.results[k])))
        return Pasted(lines, rewriter.imports)

    def on_tensors(self, wanted: tuple[int, ...], functions: Mapping[str, Any]) -> Any:
        """The body as a function of tensors, `functions` giving a meaning to its names."""
        function = self._on_tensors.get(wanted)
        if function is None:
            reader = _OnTensors()
            statements, _ = self.needed(wanted)
            body: list[ast.stmt] = [reader.visit(copy.deepcopy(s)) for s in statements]
            values = [reader.visit(copy.deepcopy(self.results[k])) for k in wanted]
            body.append(ast.Return(ast.Tuple(values, ast.Load())))
            arguments = parse(f"def f({', '.join(self.params + self.attributes)}): pass").body[0]
            assert isinstance(arguments, ast.FunctionDef)
            arguments.body = body
            module = ast.fix_missing_locations(ast.Module([arguments], []))
            names = {OPS: _Names(functions), "__name__": __name__}
            exec(compile(module, f"<{self.name} on tensors>", "exec"), names)
            function = self._on_tensors[wanted] = names["f"]  # type: ignore[assignment]
        return function


class Total(Body):
    """The sum of so many values, from the first to the last."""

    def __init__(self, count: int) -> None:
        self.name = "total"
        self.params = [f"x{k}" for k in range(count)]
        self.attributes: list[str] = []
        self.logical: frozenset[str] = frozenset()
        self.parsed = [], [parse(" + ".join(self.params), mode="eval").body]


def returned_reads(function: Callable[..., Any]) -> list[set[str]] | None:
    """Names that each entry of a literal tuple return reads, None if the code is not that plain."""
    try:
        tree = parse(written_text(function)).body[0]
    except (OSError, TypeError, SyntaxError):
        return None
    if not isinstance(tree, ast.FunctionDef) or function.__closure__:
        return None
    *assigns, last = tree.body
    if not isinstance(last, ast.Return) or last.value is None:
        return None
    value = last.value
    if isinstance(value, (ast.Call, ast.Name, ast.IfExp)) and len(tree.body) > 1:
        return None
    results = value.elts if isinstance(value, ast.Tuple) else [value]
    if any(isinstance(r, ast.Starred) for r in results):
        return None
    if not all(isinstance(s, ast.Assign) or _is_docstring(s) for s in assigns):
        return None
    reads = []
    for result in results:
        names = _reads(result)
        for statement in reversed([s for s in assigns if isinstance(s, ast.Assign)]):
            if _writes(statement) & names:
                names |= _reads(statement.value)
        reads.append(names)
    return reads


def returning(function: Callable[..., Any], wanted: Sequence[bool]) -> Callable[..., Any]:
    """A function that `returned_reads` understands, with None for the results not wanted."""
    tree = parse(written_text(function))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    last = definition.body[-1]
    assert isinstance(last, ast.Return)
    assert isinstance(last.value, ast.Tuple)
    pairs = zip(last.value.elts, wanted, strict=True)
    last.value.elts = [e if w else ast.copy_location(ast.Constant(None), e) for e, w in pairs]
    needed = _reads(last.value)
    for statement in reversed(definition.body[:-1]):
        if isinstance(statement, ast.Assign):
            if _writes(statement) & needed:
                needed |= _reads(statement.value)
            else:
                definition.body.remove(statement)
    ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
    scope: dict[str, Any] = {}
    exec(compile(tree, function.__code__.co_filename, "exec"), function.__globals__, scope)
    made: Callable[..., Any] = scope[definition.name]
    return made


def constant_subscripts(function: Callable[..., Any], name: str) -> set[int] | None:
    """The k of every `name[k]` in a function, None where the name is used in another way."""
    try:
        tree = parse(written_text(function))
    except (OSError, TypeError, SyntaxError):
        return None
    uses = sum(isinstance(n, ast.Name) and n.id == name for n in ast.walk(tree))
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(ast.Name(used), ast.Constant(int(k))) if used == name:
                found.append(k)
    return set(found) if len(found) == uses else None


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _reads(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _writes(statement: ast.Assign) -> set[str]:
    return {n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def _scalar_function(node: ast.AST) -> str | None:
    """`f` in `math.f` and `special.f`."""
    match node:
        case ast.Attribute(ast.Name(module), name) if module in SCALAR_MODULES:
            return name
    return None


class _Reader(ast.NodeTransformer):
    """What a body says, in names that stand for one value each, all of them its own.

    A name that is written to again, as a parameter may be, goes by another from there on.
    """

    def __init__(self, body: str, parameters: Iterable[str], used: set[str]) -> None:
        self.body = body
        self.now = {name: name for name in parameters}
        self.taken = {*self.now, *used}

    def assigned(self, statement: ast.Assign) -> ast.Assign:
        """A statement; what follows reads what it writes."""
        statement.value = self.visit(statement.value)
        for target in statement.targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            for place in names:
                if not isinstance(place, ast.Name):
                    raise self._refused(place)
                place.id = self._written(place.id)
        return statement

    def _written(self, name: str) -> str:
        fresh, k = name, 1
        while name in self.now and fresh in self.taken:
            k += 1
            fresh = f"{name}_{k}"
        self.taken.add(fresh)
        self.now[name] = fresh
        return fresh

    def _refused(self, node: ast.expr) -> TypeError:
        return TypeError(
            f"{self.body}: line {node.lineno} has {ast.unparse(node)!r}; an op's body is made of arithmetic, "
            "comparisons, `a if condition else b`, math.f(x), special.f(x), abs, bool, max and min"
        )

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr) and not isinstance(node, UNDERSTOOD):
            raise self._refused(node)
        return super().visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self.now:
            raise TypeError(
                f"{self.body}: line {node.lineno} reads {node.id!r}, which is neither a parameter nor "
                "assigned before; write a number of the program out, or make it a keyword-only parameter"
            )
        return ast.copy_location(ast.Name(self.now[node.id], node.ctx), node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) not in (bool, int, float):
            raise self._refused(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if _scalar_function(node) is None or node.value.id in self.now:  # type: ignore[attr-defined]
            raise self._refused(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node.func:
            case ast.Name(name) if name in SCALAR_BUILTINS and name not in self.now:
                pass
            case ast.Attribute():
                self.visit(node.func)
            case _:
                raise self._refused(node)
        if node.keywords:
            raise self._refused(node)
        node.args = [self.visit(argument) for argument in node.args]
        return node


UNDERSTOOD = (ast.Attribute, ast.BinOp, ast.BoolOp, ast.Call, ast.Compare, ast.Constant, ast.IfExp,
              ast.Name, ast.Tuple, ast.UnaryOp)  # fmt: skip


class _Pasting(ast.NodeTransformer):
    """Names become those of a kernel, literals T(literal), scalar functions those of its dtype."""

    def __init__(self, compute: dtype, given: Mapping[str, str], of: str) -> None:
        from ...kernels.math import (
            integer as integer_math,
        )
        from ...kernels.math import (
            special as special_math,
        )
        from ...kernels.math import (
            vector as vector_math,
        )

        self.compute, self.given, self.of = compute, given, of
        self.letter = compute.computed if of else "T"
        self.modules: tuple[Any, ...] = (integer_math,)
        if compute.is_floating_point:
            self.modules = (vector_math, special_math)
        self.imports: dict[str, str] = {}

    def text(self, node: ast.AST) -> str:
        """A statement or an expression as source."""
        return ast.unparse(self.visit(node))

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """A copy: the body stays as it is."""
        fields = {name: self._copied(value) for name, value in ast.iter_fields(node)}
        return ast.copy_location(type(node)(**fields), node)

    def _copied(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.visit(item) for item in value]
        return self.visit(value) if isinstance(value, ast.expr) else value

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.given.get(node.id) or own(node.id, self.of), node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = node.func if isinstance(node.func, ast.Name) else self.visit(node.func)
        return ast.Call(function, self._copied(node.args), [])

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) not in (int, float):
            return node
        return ast.Call(ast.Name(self.letter, ast.Load()), [node], [])

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        name = _scalar_function(node)
        if name is None:
            return node
        for module in self.modules:
            is_float = self.compute.is_floating_point
            found = module.TABLE.get((name, self.compute.computed) if is_float else name)
            if found is not None:
                self.imports[found] = module.__name__
                return ast.Name(found, ast.Load())
        if name in ("inf", "nan", "pi", "e"):
            return ast.Call(ast.Name(self.letter, ast.Load()), [node], [])
        if isinstance(node.value, ast.Name) and node.value.id == "special":
            raise TypeError(f"special.{name} is not a scalar function of {self.compute.name}")
        return node


OPS = "the ops of tensors"  # a name that no body has


class _OnTensors(ast.NodeTransformer):
    """Scalar functions become ops, conditional expressions `where`."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        name = _scalar_function(node)
        if name is None or name in ("inf", "nan", "pi", "e"):
            return self.generic_visit(node) if name is None else ast.Constant(getattr(math, name))
        return ast.Attribute(ast.Name(OPS, ast.Load()), name, ast.Load())

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        where = ast.Attribute(ast.Name(OPS, ast.Load()), "where", ast.Load())
        return ast.Call(where, [node.test, node.body, node.orelse], [])

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node.func:
            case ast.Name("min" | "max" | "abs" | "bool" as name):
                op = {"min": "minimum", "max": "maximum"}.get(name, name)
                node.func = ast.Attribute(ast.Name(OPS, ast.Load()), op, ast.Load())
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """`a < b < c` means `a < b and b < c`."""
        sides = [node.left, *node.comparators]
        if len(sides) == 2:
            return self.generic_visit(node)
        pairs = zip(sides, node.ops, sides[1:], strict=False)
        return self.visit(ast.BoolOp(ast.And(), [ast.Compare(a, [op], [b]) for a, op, b in pairs]))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        result = node.values[0]
        for value in node.values[1:]:
            function = ast.Attribute(ast.Name(OPS, ast.Load()), name, ast.Load())
            result = ast.Call(function, [result, value], [])
        return result

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not):
            function = ast.Attribute(ast.Name(OPS, ast.Load()), "logical_not", ast.Load())
            return ast.Call(function, [node.operand], [])
        return node


class _Names:
    """Attribute access into a mapping."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self._functions = functions

    def __getattr__(self, name: str) -> Any:
        try:
            return self._functions[name]
        except KeyError:
            raise AttributeError(f"no differentiable op is called {name!r}") from None
