"""Generated code of a loop's rounds as the text of a device kernel: flat, every number typed.

    y[nat(i)] = y[nat(i)] * 0.5 + np.exp(x[i - 1, j])

becomes, for float32,

    y[i] = float32(float64(y[i]) * float64(0.5) + float64(exp_f32(x[wrap_k(i - 1, x_0q) * x_1q + j])))

Types are those that Numba gives the same text on the CPU, and are written out: so the compiler for GPUs and
the simulator, which computes with NumPy's numbers, agree. Names that end in `_k` and `_0q` are no user's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..kernels.math import integer
from .scalar_source import MOST_FACTORS, ScalarWriter
from .structure import Procedure
from .vocabulary import CASTS

DTYPES = {"f8": "float64", "f4": "float32"}
_POINTER = "pointer "  # before the dtype of what lies on the tape
_FAR = 1 << 60

_INFIX: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_OF_WHOLE = {"//": "int_quotient_or_zero", "%": "int_remainder_or_zero", "**": "int_pow"}
_TO_WHOLE = {f"math.{name}": f"np.{name}" for name in ("floor", "ceil", "trunc")} | {
    "round": "np.rint"
}
_TESTS = {"np.isnan": "{0} != {0}", "np.isinf": "abs({0}) == {1}(math.inf)",
          "np.isfinite": "abs({0}) < {1}(math.inf)"}  # fmt: skip
_TAPE_POINTERS = {"at_f8": "f8", "at_f4": "f4", "at_i8": "i8", "at_b1": "b1"}
_CASTS = {name: t.str[1:] if t.kind == "f" else t.kind for name in CASTS for t in [np.dtype(name)]}


class Typed(NamedTuple):
    """An expression and its kind: `b`, `i`, `f4`, `f8`, or a place on the tape. None: not known yet."""

    text: str
    kind: str | None


def stored_as(dtype: str) -> str:
    """The dtype of elements in memory."""
    return "uint8" if dtype == "b1" else np.dtype(dtype).name


class Given(NamedTuple):
    """What a device kernel is given: a number, an array, or the adjoint of one.

    `kind` is the dtype, `ndim` −1 for a number; an adjoint has the sizes of the array `of`.
    """

    name: str
    kind: str
    ndim: int = -1
    of: str = ""
    is_shared: bool = False  # by rounds that add to it

    def parameters(self) -> list[tuple[str, str]]:
        """(name, dtype) of each parameter of the kernel."""
        if self.ndim < 0:
            kind = "float64" if self.kind in DTYPES else "int64"
            return [(self.name if self.kind in ("f8", "i8") else f"{self.name}_word_k", kind)]
        sizes = [] if self.of else [(f"{self.name}_{d}q", "int64") for d in range(self.ndim)]
        return [(self.name, f"*{stored_as(self.kind)}"), *sizes]


@dataclass
class KernelArray:
    """An array of a kernel: its dimensions, dtype, the name whose sizes it has, and how it is added to."""

    ndim: int
    dtype: str
    sizes: str
    adds: str = "plain"  # or "atomic", or "rows": to a number for each thread


def joined(a: str | None, b: str | None) -> str | None:
    """The kind of a name that is given both kinds."""
    if a is None or b is None or a == b:
        return b if a is None else a
    return {frozenset("bi"): "i"}.get(frozenset((a, b)), "f8")


def of_arithmetic(kinds: Sequence[str | None]) -> str | None:
    found: str | None = None
    for kind in kinds:
        found = joined(found, "i" if kind == "b" else kind)
    return found


def _inner(text: str) -> str:
    """The text of an expression as a part of another one."""
    return text if re.fullmatch(r"\w+([(\[][^()\[\]]*[)\]])?", text) else f"({text})"


def _is_alone(lines: Sequence[str], k: int) -> bool:
    """Whether a line is the only one of its block."""
    depth = len(lines[k]) - len(lines[k].lstrip())
    near = [
        line
        for line in [*lines[k - 1 : k], *lines[k + 1 : k + 2]]
        if not line.lstrip().startswith("#")
    ]
    return all(len(line) - len(line.lstrip()) != depth for line in near)


@dataclass
class KernelText:
    """Translates lines of generated code; what it needs is added to `imports` and `messages`.

    With `counts` nothing is written to the tape, only how far it would reach, in `peak_k`.
    """

    f: Procedure
    arrays: dict[str, KernelArray]
    kinds: dict[str, str | None]  # of names; those of parameters are known
    counts: bool = False
    imports: dict[str, set[str]] = field(default_factory=lambda: {"numpy": set()})
    messages: list[tuple[str, str]] = field(default_factory=list)  # (error, text) by code − 1
    uses_tape: bool = False
    wraps: bool = False  # whether an index may be negative

    def translated(self, lines: Sequence[str]) -> list[str]:
        """The lines, once the kinds of all names are known."""
        for _ in range(20):
            before = dict(self.kinds)
            found = [new for line in lines for new in self._line(line)]
            if before == self.kinds:
                return [
                    line for k, line in enumerate(found)
                    if line.strip() != "pass" or _is_alone(found, k)
                ]  # fmt: skip
        raise RuntimeError(f"{self.f.heading}: the types of {self.f.name} cannot be told")

    def _line(self, line: str) -> list[str]:
        bare = line.lstrip()
        space = line[: len(line) - len(bare)]
        if not bare or bare.startswith("#") or bare == "else:":
            return [line]
        if bare.endswith(":"):
            (node,) = ast.parse(f"{bare} pass").body
            return [space + self._header(node)]
        (node,) = ast.parse(bare).body
        return [space + made for made in self._statement(node)]

    def _header(self, node: ast.stmt) -> str:
        match node:
            case ast.If(test):
                return f"if {self.test(test)}:"
            case ast.While():
                return "while True:"
            case ast.For(ast.Name(name), ast.Call(_, args)):
                self._note(name, "i")
                return f"for {name} in range({', '.join(self.cast(a, 'i') for a in args)}):"
        raise NotImplementedError(f"{self.f.heading}: {ast.unparse(node)} in a device kernel")

    # ----- statements -----

    def _statement(self, node: ast.stmt) -> list[str]:
        match node:
            case ast.Assign([ast.Name(name)], value):
                return self._assign(name, value)
            case ast.Assign([ast.Tuple(targets)], ast.Call(ast.Name(function))):
                return self._tape_ends([t.id for t in targets if isinstance(t, ast.Name)], function)
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)):
                names = [t.id for t in targets if isinstance(t, ast.Name)]
                for name, value in zip(names, values, strict=True):
                    self._note(name, self.of(value).kind)
                words = [
                    self.whole(self.of(v), self.kinds[n])
                    for n, v in zip(names, values, strict=True)
                ]
                return [f"{', '.join(names)} = {', '.join(words)}"]
            case ast.Assign([ast.Subscript() as target], value):
                return self._store(target, None, value)
            case ast.AugAssign(ast.Subscript() as target, op, value):
                return self._store(target, _INFIX[type(op)], value)
            case ast.AugAssign(ast.Name(name), op, value):
                return self._assign(name, ast.BinOp(ast.Name(name), op, value))
            case ast.Expr(ast.Call(ast.Name(function), args)):
                return self._tape_call(function, args)
            case ast.Raise(ast.Call(ast.Name(error), [ast.Constant(message)])):
                if (error, str(message)) not in self.messages:
                    self.messages.append((error, str(message)))
                return [f"status_k[0] = {self.messages.index((error, str(message))) + 1}", "return"]
            case ast.Pass() | ast.Break() | ast.Continue():
                return [ast.unparse(node)]
        raise NotImplementedError(f"{self.f.heading}: {ast.unparse(node)} in a device kernel")

    def _note(self, name: str, kind: str | None) -> None:
        self.kinds[name] = joined(self.kinds.get(name), kind)

    def _assign(self, name: str, value: ast.expr) -> list[str]:
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            function = value.func.id
            if function in ("reserve", "release"):
                self._note(name, "i")
                return self._move_top(name, function, value.args[1])
            if function in _TAPE_POINTERS:
                self._note(name, _POINTER + _TAPE_POINTERS[function])
                return [f"{name} = {self.whole(self.of(value.args[0]), 'i')}"]
        self._note(name, self.of(value).kind)
        return [f"{name} = {self.whole(self.of(value), self.kinds[name])}"]

    def _store(self, target: ast.Subscript, op: str | None, value: ast.expr) -> list[str]:
        memory, place, dtype, adds = self._place(target)
        if adds != "plain" and op not in ("+", "-"):  # several rounds have this element
            raise RuntimeError(f"{self.f.heading}: {ast.unparse(target)} is not only added to")
        if memory is None:
            assert op is None
            if self.counts:
                return ["pass"]
            return [f"{place} = {self._as_stored(self.of(value), dtype)}"]
        if op is None:
            return [f"{memory}[{place}] = {self._as_stored(self.of(value), dtype)}"]
        if adds == "atomic":
            self.imports.setdefault("adjit.kernels.language.device", set()).add("atomic_add")
            added = value if op == "+" else ast.UnaryOp(ast.USub(), value)
            return [f"atomic_add_k({memory}, {place}, {self._as_stored(self.of(added), dtype)})"]
        at = "place_k"
        old = self._loaded(f"{memory}[{at}]", dtype)
        new = self._binary(op, old, self.of(value))
        if adds == "rows":
            place = f"{_inner(place)} * n_k + thread_k"
        return [f"{at} = {place}", f"{memory}[{at}] = {self._as_stored(new, dtype)}"]

    def _as_stored(self, value: Typed, dtype: str) -> str:
        if dtype in DTYPES:
            return self.whole(value, dtype)
        name = stored_as(dtype)
        self.imports["numpy"].add(name)
        whole = "b" if dtype == "b1" else "i"
        return f"{name}({self.whole(value, whole)})"

    # ----- the tape: of each thread so many words, the same word of all threads side by side -----

    def _move_top(self, name: str, function: str, count: ast.expr) -> list[str]:
        self.uses_tape = True
        size = f"({self.cast(count, 'i')} + 7 & -8)"
        if function == "release":
            return [f"tape_k = tape_k - {size}", f"{name} = tape_k"]
        return [f"{name} = tape_k", f"tape_k = tape_k + {size}", *self._highest()]

    def _highest(self) -> list[str]:
        return ["peak_k = max(peak_k, tape_k)"] if self.counts else []

    def _tape_ends(self, names: list[str], function: str) -> list[str]:
        """The top of the tape and the end of its chunk, of which a thread has one."""
        self.uses_tape = True
        for name in names:
            self._note(name, "i")
        if function in ("tape_more", "tape_less"):
            return ["pass"]
        self.imports["numpy"].add("int64")
        end = _FAR if function == "tape_top" else -1
        return [f"{names[0]} = tape_k", f"{names[1]} = int64({end})"]

    def _tape_call(self, function: str, args: Sequence[ast.expr]) -> list[str]:
        match function:
            case "tape_set":
                self.uses_tape = True
                return [f"tape_k = {self.cast(args[1], 'i')}", *self._highest()]
            case "close_tape":
                return ["pass"]
            case "reserve" | "release":
                return self._move_top("place_k", function, args[1])
        raise NotImplementedError(f"{self.f.heading}: {function} in a device kernel")

    # ----- places -----

    def _place(self, node: ast.Subscript) -> tuple[str | None, str, str, str]:
        """(array, number of the element, dtype, how it is added to); without array a place on the tape."""
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if isinstance(node.value, ast.Name) and node.value.id in self.arrays:
            name = node.value.id
            memory = self.arrays[name]
            place = ""
            for axis, at in enumerate(index):
                word = self._index(at, f"{memory.sizes}_{axis}q")
                place = f"{_inner(place)} * {memory.sizes}_{axis}q + {word}" if place else word
            return name, place or "0", memory.dtype, memory.adds
        if isinstance(node.value, ast.Name):
            kind = self.kinds.get(node.value.id) or ""
            first = node.value.id
            if not kind.startswith(_POINTER):
                raise NotImplementedError(
                    f"{self.f.heading}: {ast.unparse(node)} in a device kernel"
                )
            dtype = kind.removeprefix(_POINTER)
        else:
            assert isinstance(node.value, ast.Call)
            assert isinstance(node.value.func, ast.Name)
            dtype, first = _TAPE_POINTERS[node.value.func.id], self.cast(node.value.args[0], "i")
        self.uses_tape = True
        size = 1 if dtype == "b1" else np.dtype(dtype).itemsize
        (at,) = index
        constant = isinstance(at, ast.Constant) and at.value == 0
        byte = first if constant else f"{first} + {size} * {self.cast(at, 'i')}"
        name = stored_as(dtype)
        if not self.counts:
            self.imports["numpy"].add(name)
            self.imports.setdefault("adjit.kernels.on_gpu.warp", set()).add("at")
        return None, f"at_k(base_k + word_k({byte}, n_k), {name})[0]", dtype, "plain"

    def _index(self, node: ast.expr, size: str) -> str:
        match node:
            case ast.Call(ast.Name("nat"), [inner]):
                return self.cast(inner, "i")
            case ast.Constant(int() as number) if number >= 0:
                return str(number)
            case ast.UnaryOp(ast.USub(), ast.Constant(int() as number)):
                return f"{size} - {number}"
        self.wraps = True
        return f"wrap_k({self.cast(node, 'i')}, {size})"

    def _loaded(self, text: str, dtype: str) -> Typed:
        if dtype in DTYPES:
            return Typed(text, dtype)
        if dtype == "b1":
            return Typed(f"{text} != 0", "b")
        self.imports["numpy"].add("int64")
        return Typed(f"int64({text})", "i")

    # ----- expressions -----

    def cast(self, node: ast.expr, kind: str | None) -> str:
        """An expression as one of a kind, in brackets where it is more than a word."""
        return self._cast(self.of(node), kind)

    def whole(self, value: Typed, kind: str | None) -> str:
        """The same without brackets."""
        return value.text if value.kind == kind else self._cast(value, kind)

    def test(self, node: ast.expr) -> str:
        return self._cast(self.of(node), "b")

    def _cast(self, value: Typed, kind: str | None) -> str:
        text = value.text
        if kind is None or kind.startswith(_POINTER) or value.kind == kind:
            return _inner(text)
        if kind == "b":
            zero = f"{DTYPES[value.kind]}(0)" if value.kind in DTYPES else "0"
            return f"(({text}) != {zero})"
        name = DTYPES.get(kind, "int64")
        self.imports["numpy"].add(name)
        return f"{name}({text})"

    def of(self, node: ast.expr) -> Typed:
        """The text and kind of an expression."""
        match node:
            case ast.Constant(bool() as value):
                return Typed(str(value), "b")
            case ast.Constant(int() as value):
                return Typed(str(value), "i")
            case ast.Constant(float() as value):
                self.imports["numpy"].add("float64")
                return Typed(f"float64({value!r})", "f8")
            case ast.Name(name):
                return Typed(name, self.kinds.get(name))
            case ast.Attribute(ast.Name("np"), name):
                self.imports["numpy"].add("float64")
                return Typed(f"float64(math.{name})", "f8")
            case ast.Subscript(
                ast.Attribute(ast.Name(array), "shape"), ast.Constant(int() as axis)
            ):
                return Typed(f"{self.arrays[array].sizes}_{axis}q", "i")
            case ast.Subscript():
                memory, place, dtype, adds = self._place(node)
                if adds != "plain":
                    raise RuntimeError(
                        f"{self.f.heading}: {ast.unparse(node)} is not only added to"
                    )
                return self._loaded(f"{memory}[{place}]" if memory else place, dtype)
            case ast.UnaryOp(op, inner):
                return self._unary(op, inner)
            case ast.BinOp(left, ast.Pow(), ast.Constant(int() as power)):
                return self._power(self.of(left), power)
            case ast.BinOp(left, op, right):
                return self._binary(_INFIX[type(op)], self.of(left), self.of(right))
            case ast.Compare(left, ops, comparators):
                words = [left, *comparators]
                pairs = zip(words, ops, words[1:], strict=False)
                tests = [
                    self._compare(_INFIX[type(op)], self.of(a), self.of(b)) for a, op, b in pairs
                ]
                return Typed(" and ".join(tests), "b")
            case ast.BoolOp(op, values):
                return self._logical("and" if isinstance(op, ast.And) else "or", values)
            case ast.IfExp(test, a, b):
                return self._choice(self.test(test), self.of(a), self.of(b))
            case ast.Call():
                return self._call(ast.unparse(node.func), node.args)
        raise NotImplementedError(f"{self.f.heading}: {ast.unparse(node)} in a device kernel")

    def _unary(self, op: ast.unaryop, inner: ast.expr) -> Typed:
        value = self.of(inner)
        if isinstance(op, ast.Not):
            return Typed(f"not {self._cast(value, 'b')}", "b")
        kind = of_arithmetic([value.kind])
        if isinstance(op, ast.Invert) and value.kind == "b":
            return Typed(f"not {self._cast(value, 'b')}", "b")
        sign = {ast.USub: "-", ast.UAdd: "", ast.Invert: "~"}[type(op)]
        return Typed(f"{sign}{self._cast(value, kind)}", kind)

    def _binary(self, op: str, a: Typed, b: Typed) -> Typed:
        if a.kind == b.kind == "b" and op in "&|^":
            return Typed(f"{self._cast(a, 'b')} {op} {self._cast(b, 'b')}", "b")
        kind = of_arithmetic([a.kind, b.kind])
        if op == "/" and kind == "i":
            kind = "f8"
        x, y = self._cast(a, kind), self._cast(b, kind)
        if op not in ("//", "%", "**") or kind is None:
            return Typed(f"{x} {op} {y}", kind)
        return Typed(f"{self._function(op, kind)}({x}, {y})", kind)

    def _power(self, base: Typed, power: int) -> Typed:
        kind = of_arithmetic([base.kind])
        if kind == "i" and power < 0:
            kind = "f8"
        x = self._cast(base, kind)
        if 1 <= power <= MOST_FACTORS:
            return Typed(" * ".join([x] * power), kind)
        return self._binary(
            "**", Typed(x, kind), Typed(self._cast(Typed(str(power), "i"), kind), kind)
        )

    def _compare(self, op: str, a: Typed, b: Typed) -> str:
        kind = of_arithmetic([a.kind, b.kind])
        return f"({self._cast(a, kind)} {op} {self._cast(b, kind)})"

    def _logical(self, op: str, values: Sequence[ast.expr]) -> Typed:
        found = [self.of(v) for v in values]
        if all(v.kind in ("b", None) for v in found):
            return Typed(f" {op} ".join(self._cast(v, "b") for v in found), "b")
        made = found[0]
        for other in found[1:]:
            pair = (other, made) if op == "and" else (made, other)
            made = self._choice(self._cast(made, "b"), *pair)
        return made

    def _choice(self, test: str, a: Typed, b: Typed) -> Typed:
        kind = joined(a.kind, b.kind)
        return Typed(f"{self._cast(a, kind)} if {test} else {self._cast(b, kind)}", kind)

    def _call(self, function: str, args: Sequence[ast.expr]) -> Typed:
        if function == "rounds":
            return self._call("max", [ast.Constant(0), *args])
        found = [self.of(a) for a in args]
        kind = of_arithmetic([v.kind for v in found])
        if function == "nat":
            return found[0]
        if function == "pick":
            return self._choice(self._cast(found[0], "b"), *found[1:])
        if function in ("rest", "over"):
            kind = "f8" if kind == "i" else kind
            g, other = (self._cast(v, kind) for v in found)
            zero = self._cast(Typed("0", "i"), kind)
            if function == "rest":
                return Typed(f"{g} if {other} == 0 else {zero}", kind)
            return Typed(f"{g} / {other} if {g} != 0 else {zero}", kind)
        if function in _CASTS:
            text = self._cast(found[0], _CASTS[function])
            if function == "int32":
                self.imports["numpy"] |= {"int32", "int64"}
                text = f"int64(int32({text}))"
            return Typed(text, _CASTS[function])
        if function in ("min", "max", "np.minimum", "np.maximum") and (
            kind == "i" or "." not in function
        ):
            sign = "<" if function.endswith(("min", "minimum")) else ">"
            a, b = (self._cast(v, kind) for v in found)
            return Typed(f"{b} if {b} {sign} {a} else {a}", kind)
        if function in ("abs", "math.fabs") and not (kind == "i" and function != "abs"):
            return Typed(f"abs({self._cast(found[0], kind)})", kind)
        if function in _TESTS:
            kind = "f8" if kind == "i" else kind
            dtype = DTYPES.get(str(kind), "float64")
            return Typed(_TESTS[function].format(self._cast(found[0], kind), dtype), "b")
        if function in _TO_WHOLE:
            if kind == "i":
                return found[0]
            self.imports["numpy"].add("int64")
            return Typed(f"int64({self._of_floats(_TO_WHOLE[function], found[:1], kind)})", "i")
        if function == "math.fabs":
            return Typed(f"abs({self._cast(found[0], 'f8')})", "f8")
        if function == "np.sign" and kind == "i":
            a = self._cast(found[0], "i")
            return Typed(f"1 if {a} > 0 else (-1 if {a} < 0 else 0)", "i")
        kind = "f8" if kind == "i" else kind
        return Typed(self._of_floats(function, found, kind), kind)

    def _of_floats(self, function: str, args: Sequence[Typed], kind: str | None) -> str:
        words = ", ".join(self._cast(a, kind) for a in args)
        return f"{self._function(function, kind)}({words})"

    def _function(self, function: str, kind: str | None) -> str:
        """The kernels' function, of floats or of whole numbers."""
        if kind == "i":
            self.imports.setdefault(integer.__name__, set()).add(_OF_WHOLE[function])
            return _OF_WHOLE[function]
        writer = ScalarWriter(self.f, DTYPES[kind or "f8"])
        name = writer.called(function)
        for module, names in writer.imports.items():
            self.imports.setdefault(module, set()).update(names)
        return name
