"""Rules for arithmetic, comparisons, choices and casts."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ...dtypes import SUPPORTED
from ..builder import GraphBuilder, OnnxValue, Operand
from .registry import RULES, Rule, rule

# Operators of one operand in the dtype of the result.
UNARY = {
    "abs": "Abs", "absolute": "Abs", "neg": "Neg", "negative": "Neg", "exp": "Exp",
    "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "arcsin": "Asin",
    "acos": "Acos", "arccos": "Acos", "atan": "Atan", "arctan": "Atan", "sinh": "Sinh", "cosh": "Cosh",
    "tanh": "Tanh", "asinh": "Asinh", "arcsinh": "Asinh", "acosh": "Acosh", "arccosh": "Acosh",
    "atanh": "Atanh", "arctanh": "Atanh", "erf": "Erf", "ceil": "Ceil", "floor": "Floor", "sign": "Sign",
    "sgn": "Sign", "reciprocal": "Reciprocal", "sigmoid": "Sigmoid", "expit": "Sigmoid", "softsign": "Softsign",
}  # fmt: skip
# Those that leave whole numbers as they are; ONNX has them for floats only.
ROUNDING = {"Ceil", "Floor"}
# Operators of two operands in the dtype of the result; for truth values another one.
BINARY = {
    "mul": ("Mul", "And"), "multiply": ("Mul", "And"),
    "div": ("Div", None), "divide": ("Div", None), "true_divide": ("Div", None), "pow": ("Pow", None),
    "maximum": ("Max", "Or"), "minimum": ("Min", "And"),
}  # fmt: skip
COMPARISONS = {
    "lt": "Less", "less": "Less", "le": "LessOrEqual", "less_equal": "LessOrEqual", "gt": "Greater",
    "greater": "Greater", "ge": "GreaterOrEqual", "greater_equal": "GreaterOrEqual", "eq": "Equal",
    "__eq__": "Equal",
}  # fmt: skip
# Operators of truth values, and of the bits of whole numbers.
LOGIC = {
    "bitwise_and": ("And", "BitwiseAnd"), "__and__": ("And", "BitwiseAnd"), "bitwise_or": ("Or", "BitwiseOr"),
    "__or__": ("Or", "BitwiseOr"), "bitwise_xor": ("Xor", "BitwiseXor"), "__xor__": ("Xor", "BitwiseXor"),
}  # fmt: skip
LOGICAL = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}
CASTS = {kind.legacy.lower(): kind.numpy for kind in SUPPORTED}  # methods


def unary(op: str) -> Rule:
    """The rule of an operator of one operand."""

    def write(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
        x = g.cast(input, g.out.dtype)
        if op in ROUNDING and not x.is_float:
            return g.node("Identity", x)
        return g.node(op, x)

    return write


def binary(op: str, for_truth: str | None) -> Rule:
    """The rule of an operator of two operands."""

    def write(g: GraphBuilder, input: Operand, other: Operand) -> OnnxValue:
        kind = g.out.dtype
        chosen = for_truth if kind == np.bool_ and for_truth else op
        return g.node(chosen, g.operand(input, kind), g.operand(other, kind))

    return write


def comparison(op: str, is_negated: bool = False) -> Rule:
    """The rule of a comparison."""

    def write(g: GraphBuilder, input: Operand, other: Operand) -> OnnxValue:
        x, y = g.operands(input, other)
        if op != "Equal" and x.dtype == np.bool_:
            x, y = g.cast(x, np.int32), g.cast(y, np.int32)
        found = g.node(op, x, y, dtype=np.bool_)
        return g.node("Not", found) if is_negated else found

    return write


def logic(for_truth: str, for_bits: str | None) -> Rule:
    """The rule of an operator of truth values, and of bits if it has one for them."""

    def write(g: GraphBuilder, input: Operand, other: Operand) -> OnnxValue:
        if for_bits is None or g.out.dtype == np.bool_:
            return g.node(for_truth, truth(g, input), truth(g, other))
        return g.node(for_bits, *(g.operand(v, g.out.dtype) for v in (input, other)))

    return write


def truth(g: GraphBuilder, value: Operand) -> OnnxValue:
    """Whether elements are not 0."""
    return g.operand(value, np.bool_)


def cast(kind: Any) -> Rule:
    """The rule of a method that converts."""

    def write(g: GraphBuilder, input: OnnxValue, **ways: Any) -> OnnxValue:
        return g.cast(input, kind)

    return write


RULES.update({name: unary(op) for name, op in UNARY.items()})
RULES.update({name: binary(*ops) for name, ops in BINARY.items() if name not in ("div", "divide")})
RULES.update({name: comparison(op) for name, op in COMPARISONS.items()})
RULES.update({name: comparison("Equal", True) for name in ("ne", "not_equal")})
RULES.update({name: logic(*ops) for name, ops in LOGIC.items()})
RULES.update({name: logic(op, None) for name, op in LOGICAL.items()})
RULES.update({name: cast(kind) for name, kind in CASTS.items()})


@rule("div", "divide")
def div(
    g: GraphBuilder, input: Operand, other: Operand, *, rounding_mode: str | None = None
) -> OnnxValue:
    if rounding_mode == "floor":
        return floor_divide(g, input, other)
    x, y = (g.operand(v, g.out.dtype) for v in (input, other))
    found: OnnxValue = g.node("Div", x, y)
    if rounding_mode is None or not found.is_float:
        return found
    return g.node("Mul", g.node("Sign", found), g.node("Floor", g.node("Abs", found)))


@rule("floor_divide", "__floordiv__")
def floor_divide(g: GraphBuilder, input: Operand, other: Operand) -> OnnxValue:
    x, y = (g.operand(v, g.out.dtype) for v in (input, other))
    if x.is_float:
        return g.node("Floor", g.node("Div", x, y))
    # ONNX divides whole numbers towards zero.
    return g.node("Div", g.node("Sub", x, g.node("Mod", x, y)), y)


@rule("remainder")
def remainder(g: GraphBuilder, input: Operand, other: Operand) -> OnnxValue:
    x, y = (g.operand(v, g.out.dtype) for v in (input, other))
    if not x.is_float:
        return g.node("Mod", x, y)
    rest = g.node("Mod", x, y, fmod=1)  # which has the sign of x, and shall have that of y
    zero = g.constant(0, x.dtype)
    signs = [g.node("Less", value, zero, dtype=np.bool_) for value in (rest, y)]
    is_other = g.node(
        "And", g.node("Xor", *signs), g.node("Not", g.node("Equal", rest, zero, dtype=np.bool_))
    )
    return g.node("Where", is_other, g.node("Add", rest, y), rest, dtype=x.dtype)


@rule("fmod")
def fmod(g: GraphBuilder, input: Operand, other: Operand) -> OnnxValue:
    return g.node("Mod", *(g.operand(v, g.out.dtype) for v in (input, other)), fmod=1)


@rule("__rmod__")
def remainder_of(g: GraphBuilder, input: Operand, other: Operand) -> OnnxValue:
    return remainder(g, other, input)


def added(g: GraphBuilder, op: str, input: Operand, other: Operand, alpha: Operand) -> OnnxValue:
    kind = g.out.dtype
    x, y = g.operand(input, kind), g.operand(other, kind)
    if kind == np.bool_:
        return g.node("Or", x, y)
    if alpha != 1:
        y = g.binary("Mul", y, alpha)
    return g.node(op, x, y)


@rule("add")
def add(g: GraphBuilder, input: Operand, other: Operand, *, alpha: Operand = 1) -> OnnxValue:
    return added(g, "Add", input, other, alpha)


@rule("sub", "subtract")
def sub(g: GraphBuilder, input: Operand, other: Operand, *, alpha: Operand = 1) -> OnnxValue:
    return added(g, "Sub", input, other, alpha)


@rule("__rsub__", "rsub")
def rsub(g: GraphBuilder, input: Operand, other: Operand, *, alpha: Operand = 1) -> OnnxValue:
    return added(g, "Sub", other, input, alpha)


def turned(name: str) -> Rule:
    """The rule of an operator whose operands come in the other order."""

    def write(g: GraphBuilder, input: Operand, other: Operand) -> Any:
        return RULES[name](g, other, input)

    return write


for _reflected, _plain in {
    "__rtruediv__": "div", "__rpow__": "pow", "__rfloordiv__": "floor_divide",
}.items():  # fmt: skip
    RULES[_reflected] = turned(_plain)


@rule("addcmul")
def addcmul(
    g: GraphBuilder, input: Operand, tensor1: Operand, tensor2: Operand, *, value: Operand = 1
) -> OnnxValue:
    x, y = (g.operand(v, g.out.dtype) for v in (tensor1, tensor2))
    return add(g, input, g.node("Mul", x, y), alpha=value)


@rule("addcdiv")
def addcdiv(
    g: GraphBuilder, input: Operand, tensor1: Operand, tensor2: Operand, *, value: Operand = 1
) -> OnnxValue:
    x, y = (g.operand(v, g.out.dtype) for v in (tensor1, tensor2))
    return add(g, input, g.node("Div", x, y), alpha=value)


@rule("lerp")
def lerp(g: GraphBuilder, input: OnnxValue, end: Operand, weight: Operand) -> OnnxValue:
    return g.node(
        "Add", input, g.binary("Mul", g.binary("Sub", g.operand(end, input.dtype), input), weight)
    )


@rule("rsqrt")
def rsqrt(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
    return g.node("Reciprocal", g.node("Sqrt", g.cast(input, g.out.dtype)))


@rule("square")
def square(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
    return g.node("Mul", input, input)


def logarithm(scale: float, shift: int = 0) -> Rule:
    """The rule of a logarithm of another base, or of more than the number."""

    def write(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
        x = g.cast(input, g.out.dtype)
        found = g.node("Log", g.binary("Add", x, shift) if shift else x)
        return found if scale == 1 else g.binary("Mul", found, scale)

    return write


RULES["log2"] = logarithm(1 / math.log(2))
RULES["log10"] = logarithm(1 / math.log(10))
RULES["log1p"] = logarithm(1, 1)


@rule("expm1")
def expm1(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
    return g.binary("Sub", g.node("Exp", g.cast(input, g.out.dtype)), 1)


@rule("exp2")
def exp2(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
    return g.node("Exp", g.binary("Mul", g.cast(input, g.out.dtype), math.log(2)))


@rule("erfc")
def erfc(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
    return g.node("Sub", g.constant(1, g.out.dtype), g.node("Erf", g.cast(input, g.out.dtype)))


@rule("round")
def round(g: GraphBuilder, input: OnnxValue, *, decimals: int = 0) -> OnnxValue:
    if not input.is_float:
        return g.node("Identity", input)
    if not decimals:
        return g.node("Round", input)
    scaled = g.node("Round", g.binary("Mul", input, 10.0**decimals))
    return g.binary("Div", scaled, 10.0**decimals)


@rule("trunc", "fix")
def trunc(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
    if not input.is_float:
        return g.node("Identity", input)
    return g.node("Mul", g.node("Sign", input), g.node("Floor", g.node("Abs", input)))


@rule("frac")
def frac(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
    return g.node("Sub", input, trunc(g, input))


@rule("logical_not")
def logical_not(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
    return g.node("Not", truth(g, input))


@rule("bitwise_not", "__invert__")
def bitwise_not(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
    return g.node("Not" if input.dtype == np.bool_ else "BitwiseNot", input)


@rule("isnan")
def isnan(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
    return g.node("IsNaN", g.cast(input, g.common(input, 0.0)), dtype=np.bool_)


@rule("isinf")
def isinf(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
    return g.node("IsInf", g.cast(input, g.common(input, 0.0)), dtype=np.bool_)


@rule("isfinite")
def isfinite(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
    return g.node("Not", g.node("Or", isnan(g, input), isinf(g, input)))


@rule("nan_to_num")
def nan_to_num(
    g: GraphBuilder, input: OnnxValue, nan: float | None = 0.0, posinf: float | None = None,
    neginf: float | None = None,
) -> OnnxValue:  # fmt: skip
    if not input.is_float:
        return g.node("Identity", input)
    limits = np.finfo(input.dtype)
    found = g.node(
        "Where", isnan(g, input), g.constant(nan or 0.0, input.dtype), input, dtype=input.dtype
    )
    for at, given, limit in ((np.inf, posinf, limits.max), (-np.inf, neginf, limits.min)):
        number = g.constant(limit if given is None else given, input.dtype)
        is_there = g.node("Equal", input, g.constant(at, input.dtype), dtype=np.bool_)
        found = g.node("Where", is_there, number, found, dtype=input.dtype)
    return found


@rule("clamp", "clip")
def clamp(
    g: GraphBuilder, input: OnnxValue, min: Operand | None = None, max: Operand | None = None
) -> OnnxValue:
    found = g.cast(input, g.out.dtype)
    if min is not None:
        found = g.binary("Max", found, min)
    return found if max is None else g.binary("Min", found, max)


@rule("clamp_min")
def clamp_min(g: GraphBuilder, input: OnnxValue, min: Operand) -> OnnxValue:
    return clamp(g, input, min)


@rule("clamp_max")
def clamp_max(g: GraphBuilder, input: OnnxValue, max: Operand) -> OnnxValue:
    return clamp(g, input, None, max)


@rule("where")
def where(g: GraphBuilder, condition: OnnxValue, input: Operand, other: Operand) -> OnnxValue:
    kind = g.out.dtype
    return g.node(
        "Where", truth(g, condition), g.operand(input, kind), g.operand(other, kind), dtype=kind
    )


@rule("Tensor.where")
def chosen_where(
    g: GraphBuilder, input: Operand, condition: OnnxValue, other: Operand
) -> OnnxValue:
    return where(g, condition, input, other)


@rule("masked_fill")
def masked_fill(g: GraphBuilder, input: OnnxValue, mask: OnnxValue, value: Operand) -> OnnxValue:
    return where(g, mask, value, input)


@rule("to", "type", "type_as")
def to(g: GraphBuilder, input: OnnxValue, *ways: Any, **more: Any) -> OnnxValue:
    return g.cast(input, g.out.dtype)


@rule("clone", "contiguous", "detach", "data", "cpu")
def same(g: GraphBuilder, input: OnnxValue, *ways: Any, **more: Any) -> OnnxValue:
    return g.node("Identity", input)


@rule("atan2", "arctan2")
def atan2(g: GraphBuilder, input: Operand, other: Operand) -> OnnxValue:
    kind = g.out.dtype
    y, x = g.operand(input, kind), g.operand(other, kind)
    zero, pi = g.constant(0, kind), g.constant(math.pi, kind)
    less = functools.partial(g.node, "Less", dtype=np.bool_)
    angle = g.node("Atan", g.node("Div", y, x))
    half_turn = g.node("Where", less(y, zero), g.node("Neg", pi), pi, dtype=kind)
    turned_angle = g.node(
        "Where", less(x, zero), g.node("Add", angle, half_turn), angle, dtype=kind
    )
    is_origin = g.node("And", *(g.node("Equal", v, zero, dtype=np.bool_) for v in (x, y)))
    return g.node("Where", is_origin, zero, turned_angle, dtype=kind)
