"""The operators and functions that a kernel may use on numbers, and the texts that stand for them.

A function of the structured form is an operator (`+`, `<`, `and`), the text of a function
(`np.exp`, `math.erf`, `float64`), or one of `neg`, `not`, `invert`, `select` and `shape`.
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from .structure import Apply, Atom

BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
INFIX = {*BINARY.values(), *COMPARE.values(), "and", "or"}
BINARY_OF_FLOATS = {"+", "-", "*", "**", "neg", "abs", "min", "max", "np.minimum", "np.maximum"}
OF_TRUTHS = {"&", "|", "^", "invert"}  # of two truth values another one, of whole numbers one
TESTS = {*COMPARE.values(), "not", "and", "or", "np.isnan", "np.isinf", "np.isfinite"}

_BOTH = "exp log sin cos tan sqrt tanh sinh cosh expm1 log1p log2 log10 hypot copysign isnan isinf isfinite"
_ONLY_NUMPY = "maximum minimum sign rint arcsin arccos arctan arctan2 arcsinh arccosh arctanh"
_ROUNDING = "floor ceil trunc"  # whole numbers from `math`, floats from NumPy
_ONLY_MATH = "erf erfc gamma lgamma fabs pow"
_ARCS = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2", "asinh": "arcsinh",
         "acosh": "arccosh", "atanh": "arctanh"}  # fmt: skip
_OPERATORS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "true_divide": "/", "power": "**",
              "mod": "%", "remainder": "%", "floor_divide": "//", "negative": "neg", "abs": "abs",
              "absolute": "abs", "fabs": "math.fabs", "logical_not": "not",
              "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==",
              "not_equal": "!="}  # fmt: skip


def _functions() -> dict[Any, str]:
    found: dict[Any, str] = {}
    for name in _BOTH.split():
        found[getattr(math, name, None)] = found[getattr(np, name)] = f"np.{name}"
    found |= {getattr(np, name): f"np.{name}" for name in _ONLY_NUMPY.split() + _ROUNDING.split()}
    found |= {getattr(math, n): f"math.{n}" for n in _ROUNDING.split() + _ONLY_MATH.split()}
    found |= {getattr(math, short): f"np.{long}" for short, long in _ARCS.items()}
    found |= {getattr(np, name): text for name, text in _OPERATORS.items()}
    found |= {abs: "abs", round: "round", min: "min", max: "max", builtins.int: "int64",
              builtins.float: "float64", builtins.bool: "bool"}  # fmt: skip
    for cast in (np.int64, np.int32, np.float64, np.float32):
        found[cast] = cast.__name__
    found[np.bool_] = "bool"
    found.pop(None, None)
    return found


FUNCTIONS = _functions()
CASTS = {"int64", "int32", "float64", "float32", "bool"}
FLOAT_CASTS = {"float64", "float32"}

# Functions that keep whole numbers whole.
OF_WHOLES = {"+", "-", "*", "//", "%", "**", "<<", ">>", "neg", "abs", "min", "max", "np.maximum", "np.minimum",
             "np.sign", *OF_TRUTHS}  # fmt: skip

# Computed again on the way back instead of kept.
CHEAP = {
    "+", "-", "*", "/", "//", "%", "&", "|", "^", "<<", ">>", "neg", "invert", "select", "shape", "abs",
    "math.fabs", "min", "max", "np.maximum", "np.minimum", "np.sign", "np.copysign", "round", *TESTS, *CASTS,
}  # fmt: skip
# Without effect where their result is not used, so that `and` and `if` expressions need no branch for them.
HARMLESS = CHEAP - {"/", "//", "%", "<<", ">>", "int64", "int32", "round"}

RESERVED = {
    "np", "math", "min", "max", "abs", "range", "round", "bool", *CASTS, "tape", "pick", "njit",
    "digamma", "trigamma", "nat", "over", "rest", "rounds", "zeros_as", "array",
    "array_f8", "array_f4", "array_i8", "array_b1", "zeros_f8", "zeros_f4", "zeros_i8",
    "at_f8", "at_f4", "at_i8", "at_b1", "room_f8", "room_f4",
    "threads_used", "use_threads",
    "reserve", "release", "overlap", "open_tape", "close_tape", "close_beside", "apart",
    "None", "True", "False",
}  # fmt: skip


def promoted(dtypes: Iterable[str]) -> str:
    """The dtype that NumPy promotes others to."""
    return np.result_type(*[np.dtype(d) for d in dtypes]).str[1:]


def text(a: Atom) -> str:
    """An atom in generated code."""
    if isinstance(a, (bool, str)):
        return str(a)
    if isinstance(a, float) and not math.isfinite(a):
        return "np.nan" if math.isnan(a) else "np.inf" if a > 0 else "(-np.inf)"
    return f"({a!r})" if a < 0 or math.copysign(1, a) < 0 else repr(a)


def call(function: str, args: list[Atom]) -> str:
    """An application in generated code."""
    words = [text(a) for a in args]
    if function in INFIX:
        return f"{words[0]} {function} {words[1]}"
    match function:
        case "neg":
            return f"-{words[0]}"
        case "not":
            return f"not {words[0]}"
        case "invert":
            return f"~{words[0]}"
        case "select":
            return f"pick({', '.join(words)})"
        case "shape":
            return f"{words[0]}.shape[{words[1]}]"
    return f"{function}({', '.join(words)})"


def applied(op: Apply) -> str:
    return f"{op.dst} = {call(op.function, op.args)}"
