"""Functions of numbers as programs for kernels: what they read and give, and their derivatives.

A program is known by the user's function, the kinds of its parameters (float, whole number, truth value)
and what was derived of it. Its text, in each precision, lies in a file that kernels import from; its
gradient is a program again, whose first parameter is the gradient of the result.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

from numba import types

from ..kernels.language import abi
from ..schedule.jit import kernel_files
from .advice import OF_FUNCTIONS
from .forward_mode import tangent_of
from .generated import GeneratedFile, digest_of_room, file_of
from .reader import FunctionReader
from .refusal import NotDifferentiable
from .scalar_reverse import adjoints_of, pays
from .scalar_source import LETTERS, ScalarWriter
from .source import Function, Meaning, python_function
from .structure import (
    Apply,
    Atom,
    Branch,
    Procedure,
    Repeat,
    eliminate,
    link,
    walk,
)
from .typing_pass import infer_types
from .values import Value

FLOAT, WHOLE, TRUTH = "fib"
_NUMBA = {FLOAT: types.float64, WHOLE: types.int64, TRUTH: types.boolean}
_DTYPES = {FLOAT: "f8", WHOLE: "i8", TRUTH: "b1"}
_DEARER = {"/", "//", "%", "**"}  # than writing and reading a value

MOST_LETTERS = 80  # of a name; the digest behind it tells names apart

_HEADER = '''"""{title}

Made by adjit, from {heading}.
"""

{imports}

FACTS = {facts!r}


'''


class ScalarParameter(NamedTuple):
    """An operand of a program, or a setting."""

    name: str
    kind: str
    is_setting: bool = False
    is_tangent: bool = False


class Rule(NamedTuple):
    """A derivative of the user's own: a function of some of the names that it may have."""

    function: Function
    is_forward: bool  # it gives tangents, of `t_x` for a parameter x; else gradients, of `g`


class Program:
    """A function of numbers, and how it is made: `build` gives its structured form, with types."""

    def __init__(
        self,
        name: str,
        parameters: Sequence[ScalarParameter],
        key: str,
        build: Callable[[], Procedure],
    ) -> None:
        self.name, self.parameters, self._build = name[:MOST_LETTERS], tuple(parameters), build
        parts = [key, name, repr(self.parameters), digest_of_room(), _digest_of_kernels()]
        self.digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
        self.rule: Rule | None = None
        self.rule_program: Program | None = None
        self.ops: dict[int, Any] = {}  # of its results, once they are made
        self.body_of_all: Any = None  # the body of nodes that give all of them, and their recipes
        self.joint_recipes: dict[Any, Any] = {}
        self._pullbacks: dict[tuple[int, tuple[int, ...]], Program] = {}

    @functools.cached_property
    def procedure(self) -> Procedure:
        return self._build()

    @functools.cached_property
    def file(self) -> GeneratedFile:
        return file_of(f"scalar_{self.name}_{self.digest}", self._text)

    @property
    def results(self) -> str:
        """The kinds of its results."""
        return str(self.file.facts["results"])

    @property
    def is_tuple(self) -> bool:
        return bool(self.file.facts["is_tuple"])

    @property
    def is_cheap(self) -> bool:
        """Whether computing it again costs less than writing and reading a value."""
        return bool(self.file.facts["is_cheap"])

    @property
    def reads(self) -> list[int]:
        """The numbers of the parameters that it depends on."""
        found: list[int] = self.file.facts["reads"]
        return found

    def function(self, precision: str) -> tuple[str, str]:
        """The name of its function for a precision, which takes what it reads, and the module."""
        return self._name_of(precision), self.file.module.__name__

    def _name_of(self, precision: str) -> str:
        return f"{self.name}_{LETTERS[precision]}_{self.digest}"

    def _text(self) -> str:
        f = self.procedure
        used = _used_names(f)
        reads = [k for k, p in enumerate(f.params) if p in used]
        shown = replace(f, params=[f.params[k] for k in reads])
        sources: list[str] = []
        imports: dict[str, set[str]] = {abi.__name__: {"helper"}}
        for precision in LETTERS:
            writer = ScalarWriter(shown, precision)
            sources.append(writer.source(self._name_of(precision)))
            for module, names in writer.imports.items():
                imports.setdefault(module, set()).update(names)
            kinds = "".join(writer.kind(v) for v in f.returns)
        facts = {
            "results": kinds,
            "reads": reads,
            "is_tuple": f.returns_tuple,
            "is_cheap": _is_cheap(f),
        }
        lines = ["import math\n"] * any("math." in source for source in sources)
        lines += [
            f"from {m} import {', '.join(sorted(found))}" for m, found in sorted(imports.items())
        ]
        operands = ", ".join(p.name for p in self.parameters)
        title = f"`{self.name}` of {operands}, in each precision."
        head = _HEADER.format(title=title, heading=f.heading, imports="\n".join(lines), facts=facts)
        return head + "\n\n".join(sources)

    def pullback(self, result: int, wanted: tuple[int, ...]) -> Program:
        """The program of (the gradient of a result, the parameters) that gives those of some parameters.

        The tangents among the parameters of a rule are zero there: it is linear in them.
        """
        key = result, wanted
        if key not in self._pullbacks:
            by = "_".join(self.parameters[k].name for k in wanted)
            zero = [k for k, p in enumerate(self.parameters) if p.is_tangent]
            kept = [p for p in self.parameters if not p.is_tangent]
            self._pullbacks[key] = Program(
                f"{self.name}_by_{by}",
                [ScalarParameter("g", FLOAT), *kept],
                f"{self.digest} {result} {wanted}",
                lambda: _pullback(self.procedure, result, wanted, zero),
            )
        return self._pullbacks[key]


@functools.cache
def _digest_of_kernels() -> str:
    """A digest of the files of the kernels room that the functions have parts of inside."""
    modules = ("math.vector", "math.special", "math.integer", "language.abi")
    return kernel_files.digest_of(modules)


def _used_names(f: Procedure) -> set[Atom]:
    found: set[Atom] = {*f.returns}
    for _, item in walk(f.body):
        match item:
            case Apply():
                found.update(item.args)
            case Branch():
                found.update([item.condition, *[a for r in item.results for a in r[1:]]])
            case Repeat():
                found.update([item.start, item.stop])
                found.update(a for a in (item.leaves, item.condition) if a is not None)
                found.update(a for c in item.carried for a in (c.first, c.following))
    return found


def _is_cheap(f: Procedure) -> bool:
    return all(
        isinstance(item, Branch)
        or (isinstance(item, Apply) and "." not in item.function and item.function not in _DEARER)
        for _, item in walk(f.body)
    )


def _pullback(f: Procedure, result: int, wanted: Sequence[int], zero: Sequence[int]) -> Procedure:
    """The gradient of a result times the tangents along some parameters; others are `zero`."""
    value, g = f.returns[result], "g_seed"
    while g in f.types:
        g = f"{g}_seed"
    params = [f.params[k] for k in wanted]
    way = adjoints_of if pays(f, params) else _times_slopes
    h = way(f, value, params, g)
    for k in zero:
        _fix(h, f.params[k], 0.0)
    h.params = [g, *[p for k, p in enumerate(f.params) if k not in zero]]
    eliminate(h)
    link(h)
    return h


def _times_slopes(f: Procedure, value: Atom, params: Sequence[str], g: str) -> Procedure:
    """The gradients by forward mode, all in one pass over the function."""
    h = replace(f, returns=[value])
    for p in params:
        known = h.returns
        h = tangent_of(h, [p], only_tangents=False)
        h.returns = [*known, h.returns[len(known)]]
        _fix(h, h.params.pop(), 1.0)
    gradients: list[Atom] = []
    for slope in h.returns[1:]:
        if slope == 0.0 and not isinstance(slope, str):
            gradients.append(0.0)
            continue
        product = f"{g}_{len(gradients)}q"
        h.body.items.append(Apply(product, "*", [g, slope]))
        h.types[product] = "f8"
        gradients.append(product)
    h.types[g] = "f8"
    h.returns, h.returns_tuple = gradients, len(gradients) > 1
    return h


def _fix(f: Procedure, name: str, value: float) -> None:
    """Give a name a value at the beginning of a function."""
    f.types[name] = "f8"
    f.body.items.insert(0, Apply(name, "float64", [value]))


# ----- reading -----


class ScalarReader(FunctionReader):
    """Reads a function of numbers."""

    has_settings = True
    has_precisions = False
    refused = "cannot be part of an elementwise function"

    def do_Assert(self, s: ast.Assert) -> None:
        self.reject(s, "an assertion", "return math.nan where an argument is not allowed")

    def do_Raise(self, s: ast.Raise) -> None:
        self.reject(s, "raising an error", "return math.nan where an argument is not allowed")

    def demand(self, condition: Atom, error: str, message: str, node: ast.AST) -> None:
        if condition is not True:
            self.reject(
                node,
                f"this, which may raise `{message}`,",
                "write `for c in ...`, or if, elif, else",
            )

    def make(
        self, shape: list[Atom], fill: Atom | None, dtype: str, node: ast.AST, base: str
    ) -> NoReturn:
        self.reject(node, "an array", "use numbers, or adjit.kernel for a function of arrays")

    def constant_array(self, value: Any, node: ast.AST) -> NoReturn:
        self.reject(node, "a global array", "use numbers, or a tuple of them")

    def _scalar_call(self, function: str, e: ast.Call, base: str) -> Value:
        if function == "float32":
            self.reject(e, "np.float32", "it computes in the dtype of its operands: write float(x)")
        if function == "math.gamma":  # which kernels have not
            self.reject(e, "`math.gamma`", OF_FUNCTIONS["gamma"])
        return super()._scalar_call(function, e, base)


def read_program(
    function: Function, parameters: Sequence[ScalarParameter], name: str = ""
) -> Program:
    """The program of a user's function; one with a name is that of a rule, and gives floats."""

    def build() -> Procedure:
        f = ScalarReader().read(function, [_DTYPES[p.kind] for p in parameters])
        infer_types(f, [_NUMBA[p.kind] for p in parameters])
        if not f.returns:
            raise NotDifferentiable(f"{f.heading}: {f.name} returns nothing")
        for k, value in enumerate(f.returns if name else []):
            f.returns[k] = result = f"result_{k}q"
            f.types[result] = "f8"
            f.body.items.append(Apply(result, "float64", [value]))
        link(f)
        return f

    own_name = python_function(function).__name__
    return Program(name or own_name, parameters, Meaning(function).digest, build)
