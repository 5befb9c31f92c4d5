"""Scalar bodies: parsed once, then pasted into kernels or read on tensors.

A body is straight-line code with one return; `a if c else b` stands for `if`. Names from `math`
and `special` are scalar functions. In a kernel every literal becomes `T(literal)`, because a bare
`1.0` is float64 in Numba (numba #3377).
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..dtypes import dtype

SCALAR_MODULES = ("math", "special")
VECTOR_MATH = "adjit.kernels.vector_math"


class _Special:
    """Names of scalar functions that `math` lacks; they have a meaning only inside bodies."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"special.{name} can only be used inside the body of an op")


special: Any = _Special()


class Pasted(NamedTuple):
    """Straight-line statements, and the functions they need: name to module."""

    lines: list[str]
    imports: dict[str, str]


class Body:
    """A scalar function, parsed when it is first used: imports must stay quick.

    The text of one in a notebook is read at once: the next cell may take its place.
    """

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
        if function.__module__ == "__main__":
            _ = self.text

    @functools.cached_property
    def text(self) -> str:
        """The definition of the function."""
        try:
            return textwrap.dedent(inspect.getsource(self.function))
        except (OSError, TypeError):
            raise TypeError(
                f"{self.function.__qualname__}: the source text of an op's body is needed and was not "
                "found; define the function in a file or a notebook cell"
            ) from None

    @functools.cached_property
    def parsed(self) -> tuple[list[ast.Assign], list[ast.expr]]:
        """The assignments, and the expressions that are returned."""
        name = self.function.__qualname__
        tree = ast.parse(self.text).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise TypeError(f"{name}: an op's body must be a function made with def")
        *statements, last = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
        if not isinstance(last, ast.Return) or last.value is None:
            raise TypeError(f"{name}: an op's body must end in a return")
        assigns = []
        for statement in statements:
            if not isinstance(statement, ast.Assign):
                raise TypeError(
                    f"{name}: an op's body is straight-line code, line {statement.lineno} is "
                    f"{type(statement).__name__}; write `a if condition else b` instead of `if`"
                )
            assigns.append(statement)
        value = last.value
        return assigns, list(value.elts) if isinstance(value, ast.Tuple) else [value]

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

    def paste(self, targets: Sequence[str], wanted: Sequence[int], compute: dtype) -> Pasted:
        """The statements as kernel source, result `wanted[k]` assigned to `targets[k]`."""
        typed = _Typed(compute.stored)
        statements, _ = self.needed(wanted)
        lines = [ast.unparse(typed.visit(copy.deepcopy(s))) for s in statements]
        for target, k in zip(targets, wanted, strict=True):
            lines.append(f"{target} = {ast.unparse(typed.visit(copy.deepcopy(self.results[k])))}")
        return Pasted(lines, typed.imports)

    def inline(
        self,
        names: Mapping[str, str],
        targets: Sequence[str],
        wanted: Sequence[int],
        compute: dtype,
    ) -> Pasted:
        """`paste` among other bodies: parameters and locals go by the given names."""
        typed = _Typed(compute.stored, compute.stored)
        statements, _ = self.needed(wanted)
        own = {n: f"{targets[0]}_{n}" for s in statements for n in _writes(s)}
        renamed = _Renamed({**names, **own})

        def rewritten(node: ast.AST) -> str:
            return ast.unparse(renamed.visit(typed.visit(copy.deepcopy(node))))

        lines = [f"{own[n]} = {names[n]}" for n in own if n in names]  # parameters written to
        lines += [rewritten(s) for s in statements]
        for target, k in zip(targets, wanted, strict=True):
            lines.append(f"{target} = {rewritten(self.results[k])}")
        return Pasted(lines, typed.imports)

    def on_tensors(self, wanted: tuple[int, ...], functions: Mapping[str, Any]) -> Any:
        """The body as a function of tensors, `functions` giving a meaning to its names."""
        function = self._on_tensors.get(wanted)
        if function is None:
            reader = _OnTensors()
            statements, _ = self.needed(wanted)
            body: list[ast.stmt] = [reader.visit(copy.deepcopy(s)) for s in statements]
            values = [reader.visit(copy.deepcopy(self.results[k])) for k in wanted]
            body.append(ast.Return(ast.Tuple(values, ast.Load())))
            arguments = ast.parse(f"def f({', '.join(self.params + self.attributes)}): pass").body[
                0
            ]
            assert isinstance(arguments, ast.FunctionDef)
            arguments.body = body
            module = ast.fix_missing_locations(ast.Module([arguments], []))
            names = {"_op": _Names(functions)}
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
        self.parsed = [], [ast.parse(" + ".join(self.params), mode="eval").body]


def returned_reads(function: Callable[..., Any]) -> list[set[str]] | None:
    """Names that each entry of a literal tuple return reads, None if the code is not that plain."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
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
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
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
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
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


class _Renamed(ast.NodeTransformer):
    """Names become others."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)


class _Typed(ast.NodeTransformer):
    """Literals become T(literal); scalar functions become those of the kernel's dtype."""

    def __init__(self, stored: str, letter: str = "T") -> None:
        from ..kernels import integer_math, special_math, vector_math

        self.stored, self.letter = stored, letter
        self.modules: tuple[Any, ...] = (vector_math, special_math, integer_math)
        self.imports: dict[str, str] = {}

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) not in (int, float):
            return node
        return ast.Call(ast.Name(self.letter, ast.Load()), [node], [])

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        name = _scalar_function(node)
        if name is None:
            return node
        for module in self.modules:
            found = module.TABLE.get((name, self.stored))
            if found is not None:
                self.imports[found] = module.__name__
                return ast.Name(found, ast.Load())
        if name in ("inf", "nan", "pi", "e"):
            return ast.Call(ast.Name(self.letter, ast.Load()), [node], [])
        if isinstance(node.value, ast.Name) and node.value.id == "special":
            raise TypeError(f"special.{name} is not a scalar function of {self.stored}")
        return node


class _OnTensors(ast.NodeTransformer):
    """Scalar functions become ops, conditional expressions `where`."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        name = _scalar_function(node)
        if name is None or name in ("inf", "nan", "pi", "e"):
            return self.generic_visit(node) if name is None else ast.Constant(getattr(math, name))
        return ast.Attribute(ast.Name("_op", ast.Load()), name, ast.Load())

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        where = ast.Attribute(ast.Name("_op", ast.Load()), "where", ast.Load())
        return ast.Call(where, [node.test, node.body, node.orelse], [])

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node.func:
            case ast.Name("min" | "max" | "abs" | "bool" as name):
                op = {"min": "minimum", "max": "maximum"}.get(name, name)
                node.func = ast.Attribute(ast.Name("_op", ast.Load()), op, ast.Load())
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        result = node.values[0]
        for value in node.values[1:]:
            function = ast.Attribute(ast.Name("_op", ast.Load()), name, ast.Load())
            result = ast.Call(function, [result, value], [])
        return result

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not):
            function = ast.Attribute(ast.Name("_op", ast.Load()), "logical_not", ast.Load())
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
