"""Scalar functions written once in Python, traced straight into LLVM where a kernel calls them.

A body is a straight line of arithmetic on one number. Called with NumPy values it just computes,
which is how it is debugged. Called from a compiled kernel it is run once on `Value`s, whose
operators append LLVM instructions to the caller: nothing is type-inferred, the body lands inside
the caller's loop, and LLVM's vectoriser sees no call. Constants take the type of what they meet,
so no float64 slips into a float32 kernel.

    def relu6(x):
        return clamp(x, 0.0, 6.0)

    relu6_f32 = register("relu6_f32", relu6, np.float32, 1)

Multiplications and additions are never contracted: a fused multiply-add is only ever an `fma`
that the body asks for, and so error-free transformations hold.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import lower_builtin, type_callable

from .processor import VECTOR_BYTES

# LLVM's list that keeps functions which nothing but the attributes of calls name.
VECTOR_FORMS = "llvm.compiler.used"


class Value:
    """An LLVM value, or a vector of them, whose operators append instructions."""

    __slots__ = ("builder", "ir")

    def __init__(self, builder: ir.IRBuilder, value: ir.Value) -> None:
        self.builder = builder
        self.ir = value

    @property
    def type(self) -> ir.Type:
        return self.ir.type

    @property
    def lane(self) -> ir.Type:
        """The type of one lane."""
        return self.type.element if isinstance(self.type, ir.VectorType) else self.type

    @property
    def is_float(self) -> bool:
        return isinstance(self.lane, (ir.FloatType, ir.DoubleType))

    def in_lanes(self, kind: ir.Type) -> ir.Type:
        """As many lanes of another type."""
        is_vector = isinstance(self.type, ir.VectorType)
        return ir.VectorType(kind, self.type.count) if is_vector else kind

    def lift(self, other: Any) -> ir.Value:
        """`other` as an operand beside this value: a number is spread to all lanes."""
        if isinstance(other, Value):
            return other.ir
        is_vector = isinstance(self.type, ir.VectorType)
        return ir.Constant(self.type, [other] * self.type.count if is_vector else other)

    def make(self, value: ir.Value) -> Value:
        return type(self)(self.builder, value)

    def call(self, name: str, *others: Any) -> Value:
        """An LLVM intrinsic of this value and others of its type."""
        operands = [self.ir, *(self.lift(other) for other in others)]
        signature = ir.FunctionType(self.ir.type, [self.ir.type] * len(operands))
        lanes = f"v{self.type.count}" if isinstance(self.type, ir.VectorType) else ""
        module = self.builder.module
        full_name = f"{name}.{lanes}{self.lane.intrinsic_name}"
        function = module.globals.get(full_name) or ir.Function(module, signature, full_name)
        return self.make(self.builder.call(function, operands))

    def select(self, condition: Value, x: Any, y: Any) -> Value:
        """`x` where the condition holds, else `y`, one of which has this value's type."""
        return self.make(self.builder.select(condition.ir, self.lift(x), self.lift(y)))

    def shift_down(self, count: int) -> Value:
        """A whole number's bits shifted down, zeros coming in at the top."""
        return self.make(self.builder.lshr(self.ir, self.lift(count)))

    def resized(self, width: int) -> Value:
        """A whole number from 0 up in another width, by dropping or adding zeros at the top."""
        cast = self.builder.trunc if width < self.type.width else self.builder.zext
        return self if width == self.type.width else self.make(cast(self.ir, ir.IntType(width)))

    def leading_zeros(self) -> Value:
        """How many zeros a whole number's bits start with."""
        return self.make(self.builder.ctlz(self.ir, ir.Constant(ir.IntType(1), 0)))

    def shifted_constant(self, value: int, width: int) -> Value:
        """A constant whole number of any width, its bits shifted down by this one."""
        constant_ = ir.Constant(ir.IntType(width), value)
        return self.make(self.builder.lshr(constant_, self.resized(width).ir))

    def long_fmod(self, other: Value) -> Value:
        """The rest of a division rounded towards zero, for quotients of any length."""
        return self.make(self.builder.frem(self.ir, other.ir))

    def out_of_line(self, slow: OutOfLine, args: tuple[Value, ...]) -> Value:
        """The result of a body for rare arguments."""
        return slow(*args)

    def arithmetic(self, op: str, other: Any, swapped: bool = False) -> Value:
        left, right = self.ir, self.lift(other)
        if swapped:
            left, right = right, left
        return self.make(getattr(self.builder, f"f{op}" if self.is_float else op)(left, right))

    def compare(self, op: str, other: Any) -> Value:
        right = self.lift(other)
        if not self.is_float:
            return self.make(self.builder.icmp_signed(op, self.ir, right))
        ordered = self.builder.fcmp_unordered if op == "!=" else self.builder.fcmp_ordered
        return self.make(ordered(op, self.ir, right))

    def __add__(self, other: Any) -> Value:
        return self.arithmetic("add", other)

    def __radd__(self, other: Any) -> Value:
        return self.arithmetic("add", other, swapped=True)

    def __sub__(self, other: Any) -> Value:
        return self.arithmetic("sub", other)

    def __rsub__(self, other: Any) -> Value:
        return self.arithmetic("sub", other, swapped=True)

    def __mul__(self, other: Any) -> Value:
        return self.arithmetic("mul", other)

    def __rmul__(self, other: Any) -> Value:
        return self.arithmetic("mul", other, swapped=True)

    def __truediv__(self, other: Any) -> Value:
        return self.arithmetic("div", other)

    def __rtruediv__(self, other: Any) -> Value:
        return self.arithmetic("div", other, swapped=True)

    def __neg__(self) -> Value:
        # LLVM makes an `fneg` of it, which libNVVM cannot read.
        zero = self.lift(-0.0 if self.is_float else 0)
        return self.make((self.builder.fsub if self.is_float else self.builder.sub)(zero, self.ir))

    def __abs__(self) -> Value:
        return self.call("llvm.fabs")

    def __and__(self, other: Any) -> Value:
        return self.make(self.builder.and_(self.ir, self.lift(other)))

    def __or__(self, other: Any) -> Value:
        return self.make(self.builder.or_(self.ir, self.lift(other)))

    def __xor__(self, other: Any) -> Value:
        return self.make(self.builder.xor(self.ir, self.lift(other)))

    def __invert__(self) -> Value:
        return self.make(self.builder.not_(self.ir))

    def __lshift__(self, other: Any) -> Value:
        return self.make(self.builder.shl(self.ir, self.lift(other)))

    def __rshift__(self, other: Any) -> Value:
        return self.make(self.builder.ashr(self.ir, self.lift(other)))

    def __lt__(self, other: Any) -> Value:
        return self.compare("<", other)

    def __le__(self, other: Any) -> Value:
        return self.compare("<=", other)

    def __gt__(self, other: Any) -> Value:
        return self.compare(">", other)

    def __ge__(self, other: Any) -> Value:
        return self.compare(">=", other)

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return self.compare("==", other)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return self.compare("!=", other)

    __hash__ = None  # type: ignore[assignment]


def bits(x: Any) -> Any:
    """The integer with the bits of a float."""
    if isinstance(x, Value):
        width = 32 if isinstance(x.lane, ir.FloatType) else 64
        return x.make(x.builder.bitcast(x.ir, x.in_lanes(ir.IntType(width))))
    return x.view(np.dtype(f"i{x.itemsize}"))


def from_bits(x: Any) -> Any:
    """The float with the bits of an integer."""
    if isinstance(x, Value):
        result = ir.FloatType() if x.lane.width == 32 else ir.DoubleType()
        return x.make(x.builder.bitcast(x.ir, x.in_lanes(result)))
    return x.view(np.dtype(f"f{x.itemsize}"))


def shift_down(x: Any, count: int) -> Any:
    """An integer's bits shifted down, zeros coming in at the top."""
    if not isinstance(x, np.generic | np.ndarray):
        return x.shift_down(count)
    return (x.view(np.dtype(f"u{x.itemsize}")) >> count).view(x.dtype)


def where(condition: Any, x: Any, y: Any) -> Any:
    """`x` where the condition holds, else `y`; both are computed."""
    typed = y if isinstance(x, (int, float)) else x
    if not isinstance(typed, np.generic | np.ndarray):
        return typed.select(condition, x, y)
    return np.where(condition, x, y).astype(typed.dtype)


def fma(x: Any, y: Any, z: Any) -> Any:
    """`x * y + z`, rounded once."""
    typed = next(v for v in (x, y, z) if hasattr(v, "dtype") or isinstance(v, Value))
    if isinstance(typed, Value):
        return typed.make(typed.lift(x)).call("llvm.fma", y, z)
    x, y, z = (np.asarray(v, typed.dtype) for v in (x, y, z))
    return _exact_fma(x, y, z).astype(typed.dtype)


@functools.partial(np.vectorize, otypes=[np.float64])
def _exact_fma(x: float, y: float, z: float) -> float:
    x, y, z = float(x), float(y), float(z)
    if not np.isfinite([x, y, z]).all():
        return float(np.float64(x) * y + z)
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    return float(exact) if exact else x * y + z


def round_even(x: Any) -> Any:
    """The nearest whole number, halfway cases to the even one."""
    return x.call("llvm.rint") if isinstance(x, Value) else np.rint(x)


def floor(x: Any) -> Any:
    """The largest whole number not above x."""
    return x.call("llvm.floor") if isinstance(x, Value) else np.floor(x)


def ceil(x: Any) -> Any:
    """The smallest whole number not below x."""
    return x.call("llvm.ceil") if isinstance(x, Value) else np.ceil(x)


def trunc(x: Any) -> Any:
    """The whole number next to x towards zero."""
    return x.call("llvm.trunc") if isinstance(x, Value) else np.trunc(x)


def sqrt(x: Any) -> Any:
    """The square root, correctly rounded."""
    return x.call("llvm.sqrt") if isinstance(x, Value) else np.sqrt(x)


def copysign(x: Any, sign: Any) -> Any:
    """The size of x with the sign of another number."""
    if isinstance(sign, Value):
        size = x if isinstance(x, Value) else sign.make(sign.lift(x))
        return size.call("llvm.copysign", sign)
    return np.copysign(x, sign, dtype=sign.dtype)


def constant(x: Any, value: float) -> Any:
    """A constant of the type of x."""
    return x.make(x.lift(value)) if isinstance(x, Value) else np.full_like(x, value)


def clamp(x: Any, low: float, high: float) -> Any:
    """x within [low, high]; NaN stays."""
    x = where(x < low, low, x)
    return where(x > high, high, x)


def widen(x: Any) -> Any:
    """A float32 as float64."""
    if isinstance(x, Value):
        return x.make(x.builder.fpext(x.ir, ir.DoubleType()))
    return x.astype(np.float64)


def narrow(x: Any) -> Any:
    """A float64 as float32."""
    if isinstance(x, Value):
        return x.make(x.builder.fptrunc(x.ir, ir.FloatType()))
    return x.astype(np.float32)


def polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    """Horner's rule; the constant coefficient comes first."""
    result = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        result = fma(result, x, coefficient)
    return result


def float_from(x: Value, float_type: ir.Type) -> Value:
    """An integer as a float of an LLVM type."""
    return x.make(x.builder.sitofp(x.ir, float_type))


def float_of_whole(x: Any) -> Any:
    """A whole number as the float of its width."""
    if isinstance(x, Value):
        kind = ir.FloatType() if x.lane.width == 32 else ir.DoubleType()
        return float_from(x, x.in_lanes(kind))
    return x.astype(np.dtype(f"f{x.itemsize}"))


class OutOfLine:
    """A body for rare arguments, kept out of the loop that calls it.

    `reference` stands in for the body when it is run as plain Python. A body that is `by_lane` runs on one
    number at a time; the others on vectors, as what is rare may be all that a tensor has.
    """

    def __init__(
        self,
        name: str,
        body: Callable[..., Any],
        reference: Callable[..., Any],
        by_lane: bool = False,
    ) -> None:
        self.name = name
        self.body = body
        self.reference = reference
        self.by_lane = by_lane

    def __call__(self, *args: Value) -> Value:
        x = args[0]
        module = x.builder.module
        function = module.globals.get(self.name)
        if function is None:
            kinds = [arg.type for arg in args]
            function = internal_function(module, self.name, x.type, kinds, "noinline", "cold")
            builder = ir.IRBuilder(function.append_basic_block())
            builder.ret(self.body(*(Value(builder, arg) for arg in function.args)).ir)
            self._define_vector_forms(function)
        call = x.builder.call(function, [a.ir for a in args], attrs=("readnone", "nounwind"))
        # LLVM vectorises a loop with a call if the call names vector forms of the callee.
        # llvmlite's set of attributes is closed, hence `set`.
        forms = ",".join(
            f"_ZGV_LLVM_M{n}{'v' * len(args)}_{self.name}({self.name}_{n})" for n in lanes(x.type)
        )
        set.add(call.attributes, f'"vector-function-abi-variant"="{forms}"')
        return x.make(call)

    def _define_vector_forms(self, function: ir.Function) -> None:
        """The function on vectors with a mask: one test, and if a lane asks, a call."""
        module = function.module
        forms = [self._vector_form(function, n) for n in lanes(function.ftype.return_type)]
        pointer = ir.IntType(8).as_pointer()
        used = module.globals.get(VECTOR_FORMS) or ir.GlobalVariable(
            module, ir.ArrayType(pointer, 0), VECTOR_FORMS
        )
        before = used.initializer.constant if used.initializer else []
        # The function itself too, which would lose arguments that are constants, and so match no form.
        kept = [*before, *(each.bitcast(pointer) for each in (function, *forms))]
        used.linkage, used.section = "appending", "llvm.metadata"
        used.value_type = ir.ArrayType(pointer, len(kept))
        used.type = used.value_type.as_pointer()
        used.initializer = ir.Constant(used.value_type, kept)

    def _vector_form(self, function: ir.Function, lanes: int) -> ir.Function:
        """What becomes part of the vectorised loop."""
        vector = ir.VectorType(function.ftype.return_type, lanes)
        vectors = [vector] * len(function.args)
        slow = internal_function(
            function.module, f"{self.name}_{lanes}_slow", vector, [*vectors, ir.IntType(lanes)],
            "noinline", "cold",
        )  # fmt: skip
        if self.by_lane:
            self._lane_by_lane(function, slow)
        else:
            self._all_lanes(slow)
        form = internal_function(
            function.module, f"{self.name}_{lanes}", vector,
            [*vectors, ir.VectorType(ir.IntType(1), lanes)], "alwaysinline",
        )  # fmt: skip
        *args, mask = form.args
        builder = ir.IRBuilder(form.append_basic_block())
        before = builder.block
        asked = builder.bitcast(mask, ir.IntType(lanes))
        with builder.if_then(builder.icmp_unsigned("!=", asked, asked.type(0)), likely=False):
            result = builder.call(slow, [*args, asked])
            inside = builder.block
        joined = builder.phi(vector)
        joined.add_incoming(ir.Constant(vector, ir.Undefined), before)
        joined.add_incoming(result, inside)
        builder.ret(joined)
        return form

    def _all_lanes(self, slow: ir.Function) -> None:
        """The body on vectors, whichever lanes ask."""
        builder = ir.IRBuilder(slow.append_basic_block())
        builder.ret(self.body(*(Value(builder, arg) for arg in slow.args[:-1])).ir)

    def _lane_by_lane(self, function: ir.Function, slow: ir.Function) -> None:
        """The function for those lanes of vectors whose bits are set."""
        vector = slow.ftype.return_type
        *args, asked = slow.args
        builder = ir.IRBuilder(slow.append_basic_block())
        first, again, last = builder.block, slow.append_basic_block(), slow.append_basic_block()
        builder.branch(again)
        builder.position_at_end(again)
        left, result = builder.phi(asked.type), builder.phi(vector)
        lane = builder.cttz(left, ir.IntType(1)(1))
        value = builder.call(function, [builder.extract_element(a, lane) for a in args])
        changed = builder.insert_element(result, value, lane)
        others = builder.and_(left, builder.sub(left, left.type(1)))
        builder.cbranch(builder.icmp_unsigned("==", others, others.type(0)), last, again)
        for phi, begin, next_ in (
            (left, asked, others),
            (result, ir.Constant(vector, ir.Undefined), changed),
        ):
            phi.add_incoming(begin, first)
            phi.add_incoming(next_, again)
        builder.position_at_end(last)
        builder.ret(changed)


def lanes(scalar: ir.Type) -> list[int]:
    """The lanes of vectors from 128 bits up to the processor's."""
    size = 4 if isinstance(scalar, ir.FloatType) else 8
    return [n for n in (2, 4, 8, 16) if 16 <= n * size <= VECTOR_BYTES]


def internal_function(
    module: ir.Module, name: str, result: ir.Type, args: list[ir.Type], *attributes: str
) -> ir.Function:
    """A function of the arguments' values alone that only this module calls."""
    function = ir.Function(module, ir.FunctionType(result, args), name)
    function.linkage = "internal"
    for attribute in (*attributes, "nounwind", "readnone"):
        function.attributes.add(attribute)
    return function


def rarely(condition: Any, slow: OutOfLine, args: tuple[Any, ...], usual: Any) -> Any:
    """`slow(*args)` where the condition holds, else `usual`, which is computed in any case.

    The vectoriser keeps the loop: each vector calls once, for the lanes that ask.
    """
    if not isinstance(usual, Value):
        return np.where(condition, slow.reference(*args), usual).astype(usual.dtype)
    builder = usual.builder
    before = builder.block
    with builder.if_then(condition.ir, likely=False):
        result = usual.out_of_line(slow, args)
        inside = builder.block
    joined = builder.phi(usual.type)
    joined.add_incoming(usual.ir, before)
    joined.add_incoming(result.ir, inside)
    return usual.make(joined)


def register(name: str, body: Callable[..., Any], dtype: Any, arity: int) -> Callable[..., Any]:
    """A function over floats of one dtype, callable from compiled code and from Python."""
    given = getattr(types, dtype.__name__)

    def function(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            result = body(*(np.atleast_1d(np.asarray(arg, dtype)) for arg in args))
        return result if any(np.ndim(arg) for arg in args) else result[0]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        values = (
            Value(builder, context.cast(builder, arg, actual, given))
            for arg, actual in zip(args, sig.args, strict=True)
        )
        return body(*values).ir

    function.__name__ = function.__qualname__ = name
    function.__doc__ = body.__doc__
    # Numba binds arguments to the typer's own parameters, so each arity needs one written out.
    typers = (lambda x: given, lambda x, y: given, lambda x, y, z: given)
    type_callable(function)(lambda context: typers[arity - 1])
    lower_builtin(function, *[types.Any] * arity)(lower)
    function.traced = body, given, arity  # type: ignore[attr-defined]  # for other targets
    return function
