"""A structured function of numbers as one that kernels call: every number typed, in one precision.

    @helper
    def huber_f32(x, delta):
        # 12: if abs(x) < delta:
        t = abs(x)
        t_1 = t < delta
        ...

Numba takes `0.5` for a float64, so floats of the text are written `T(0.5)`, and whole numbers become
floats by `T(k)` where they meet one. Functions are those that the kernels of the library call.
"""

from __future__ import annotations

import math

from ..kernels.math import integer, special, vector
from .structure import Apply, Atom, Procedure
from .vocabulary import CASTS, COMPARE, TESTS, call
from .writing import Lines, PlainWriter, results_text

LETTERS = {"float32": "f32", "float64": "f64"}

# What the kernels' functions are called, where that is not the name behind the dot.
_NAMES = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh",
    "arccosh": "acosh", "arctanh": "atanh", "rint": "round",
    "//": "floor_divide", "%": "remainder", "**": "pow",
}  # fmt: skip
_OF_WHOLE = {"//": "int_quotient_or_zero", "%": "int_remainder_or_zero", "**": "int_pow"}
_SAME_OF_WHOLE = {"floor", "ceil", "trunc", "round", "rint"}
MOST_FACTORS = 4  # of a power that is written as a product

_INT64 = range(-(1 << 63), 1 << 63)


class ScalarWriter(PlainWriter):
    """Writes a function in a precision, and knows what it imports."""

    def __init__(self, f: Procedure, precision: str) -> None:
        super().__init__(f)
        self.precision = precision
        self.imports: dict[str, set[str]] = {"numpy": {precision}}

    def source(self, name: str) -> str:
        """The function, whose results are floats, whole numbers and truth values."""
        w = Lines()
        w.add("@helper")
        w.add(f"def {name}({', '.join(self.f.params)}):")
        with w.indented():
            self.block(self.f.body, w)
            values = [self.as_kind(self.kind(v), v) for v in self.f.returns]
            w.add(f"return {results_text(values, len(values) > 1)}")
        return "\n".join(w.lines) + "\n"

    # ----- numbers -----

    def kind(self, a: Atom) -> str:
        """`f`, `i` or `b`."""
        if isinstance(a, str):
            return self.f.types[a][0]
        return "b" if isinstance(a, bool) else "i" if isinstance(a, int) else "f"

    def as_kind(self, kind: str, a: Atom) -> str:
        if kind == "b":
            return self.test(a)
        return self.as_float(a) if kind == "f" else self.as_whole(a)

    def as_float(self, a: Atom) -> str:
        if isinstance(a, str):
            return a if self.kind(a) == "f" else f"{self.precision}({a})"
        if math.isfinite(a):
            number = repr(float(a))
        else:
            number = "math.nan" if math.isnan(a) else "math.inf" if a > 0 else "-math.inf"
        return f"{self.precision}({number})"

    def as_whole(self, a: Atom) -> str:
        if isinstance(a, str) and self.kind(a) == "i":
            return a
        self.imports["numpy"].add("int64")
        if not isinstance(a, str):
            a = int(a)
            if a not in _INT64:
                raise OverflowError(f"{self.f.heading}: {a} is no int64")
        return f"int64({a})"

    def test(self, a: Atom) -> str:
        if not isinstance(a, str):
            return str(bool(a))
        return a if self.kind(a) == "b" else f"({a} != {self.as_kind(self.kind(a), 0)})"

    def assigned(self, name: str, a: Atom) -> str:
        return self.as_kind(self.kind(name), a)

    # ----- functions -----

    def applied(self, item: Apply) -> str:
        return f"{item.dst} = {self._application(item)}"

    def _application(self, item: Apply) -> str:
        function, args, kind = item.function, item.args, self.kind(item.dst)
        if function == "select":
            a, b = (self.as_kind(kind, x) for x in args[1:])
            return f"{a} if {self.test(args[0])} else {b}"
        if function in ("and", "or") and kind != "b":
            a, b = (self.as_kind(kind, x) for x in args)
            return f"{b} if {self.test(args[0])} else {a}" if function == "and" else (
                f"{a} if {self.test(args[0])} else {b}"
            )  # fmt: skip
        if function in TESTS:
            return self._test(function, args)
        if function in CASTS:
            return self._cast(function, args[0])
        of_floats = kind == "f" or any(self.kind(a) == "f" for a in args)
        if kind == "b" and not of_floats:
            words = [self.test(a) for a in args]
            return (
                f"not {words[0]}" if function == "invert" else f"{words[0]} {function} {words[1]}"
            )
        if of_floats:
            found = self._of_floats(function, args)
            return f"{self._int64()}({found})" if kind == "i" else found
        return self._of_whole(function, args)

    def _test(self, function: str, args: list[Atom]) -> str:
        if function in ("and", "or"):
            return f"{self.test(args[0])} {'&' if function == 'and' else '|'} {self.test(args[1])}"
        if function == "not":
            return f"not {self.test(args[0])}"
        kind = "f" if any(self.kind(a) == "f" for a in args) else "i"
        words = [self.as_kind(kind, a) for a in args]
        if function in COMPARE.values():
            return f"{words[0]} {function} {words[1]}"
        if kind == "i":
            return str(function == "np.isfinite")
        infinity = self.as_float(math.inf)
        return {
            "np.isnan": f"{words[0]} != {words[0]}",
            "np.isinf": f"abs({words[0]}) == {infinity}",
            "np.isfinite": f"abs({words[0]}) < {infinity}",
        }[function]

    def _cast(self, function: str, a: Atom) -> str:
        if function == "float64":
            return self.as_float(a)
        if function == "bool":
            return self.test(a)
        if function == "int32":
            self.imports["numpy"].add("int32")
            return f"{self._int64()}(int32({a}))"
        return self.as_whole(a) if self.kind(a) != "f" else f"{self._int64()}({self.as_float(a)})"

    def _int64(self) -> str:
        self.imports["numpy"].add("int64")
        return "int64"

    def _of_floats(self, function: str, args: list[Atom]) -> str:
        power = args[1] if function == "**" else None
        if type(power) is int and 2 <= power <= MOST_FACTORS:
            return " * ".join([self.as_float(args[0])] * power)
        words = [self.as_float(a) for a in args]
        match function:
            case "+" | "-" | "*" | "/":
                return call(function, [*words])
            case "neg":
                return f"-{words[0]}"
            case "abs" | "math.fabs":
                return f"abs({words[0]})"
            case "min" | "max":
                sign = "<" if function == "min" else ">"
                return f"{words[1]} if {words[1]} {sign} {words[0]} else {words[0]}"
        return f"{self.called(function)}({', '.join(words)})"

    def _of_whole(self, function: str, args: list[Atom]) -> str:
        words = [self.as_whole(a) for a in args]
        name = function.rpartition(".")[2]
        if name in _SAME_OF_WHOLE:
            return words[0]
        match function:
            case "neg":
                return f"-{words[0]}"
            case "invert":
                return f"~{words[0]}"
            case "abs":
                return f"abs({words[0]})"
            case "min" | "max" | "np.minimum" | "np.maximum":
                return f"{name[:3]}({', '.join(words)})"
            case "np.sign":
                return f"{self._int64()}({words[0]} > 0) - {self._int64()}({words[0]} < 0)"
            case "//" | "%" | "**":
                return (
                    f"{self._imported(integer.__name__, _OF_WHOLE[function])}({', '.join(words)})"
                )
        return f"{words[0]} {function} {words[1]}"

    def called(self, function: str) -> str:
        """The kernels' function of floats."""
        name = function.rpartition(".")[2] if "." in function else function
        name = _NAMES.get(name, name)
        for module in (vector, special):
            found = module.TABLE.get((name, self.precision))
            if found is not None:
                return self._imported(module.__name__, found)
        raise NotImplementedError(f"{self.f.heading}: {function} has no form in {self.precision}")

    def _imported(self, module: str, name: str) -> str:
        self.imports.setdefault(module, set()).add(name)
        return name
