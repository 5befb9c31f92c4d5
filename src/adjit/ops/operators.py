"""Python's operators on tensors.

An operator returns NotImplemented for operands that are neither tensors nor numbers, so that
Python asks the other operand and words the error; NumPy's arrays answer through `ufuncs.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..graph.elementwise import Elementwise
from ..graph.elementwise_record import elementwise
from ..graph.export import add_method, methods, written, written_by
from ..graph.fastpath import compiled
from ..graph.record import is_tensor
from ..graph.wrong_types import declined
from ..tensor import Tensor
from .arithmetic import (
    SPECIAL_POWERS,
    difference,
    from_number,
    mul,
    positive,
    pow,
    power_by_number,
    quotient,
    reciprocal,
    total,
)
from .bitwise import (
    bitwise_and,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
)
from .comparison import eq, ge, gt, le, lt, ne
from .rounding import floor_divide, remainder

Operator = Callable[[Any, Any], Any]


def is_operand(value: Any) -> bool:
    """Whether an operator may be asked to take a value: a tensor or a number."""
    if is_tensor(value) or isinstance(value, (int, float, complex)):
        return True
    return hasattr(value, "item") and not getattr(value, "ndim", 0)


def operator(name: str, op: Elementwise) -> Operator:
    """`tensor <op> other`, the shortest way from the user to the recording."""

    def method(self: Any, other: Any) -> Any:
        if is_operand(other):
            return elementwise(op, (self, other), ())
        return declined(name, self, other)

    method.__doc__ = op.__doc__
    recorded: Operator = compiled(op, method)
    return recorded


def power(self: Any, exponent: Any) -> Any:
    """self ** exponent; the usual numbers have bodies of their own."""
    kind = exponent.__class__
    if (kind is int or kind is float) and self._spec.dtype.is_floating_point:
        op = SPECIAL_POWERS.get(exponent)
        return power_by_number.record(self, exponent) if op is None else op.record(self)
    return pow(self, exponent) if is_operand(exponent) else declined("__pow__", self, exponent)


def general(name: str, function: Callable[[Any, Any], Any], swapped: bool = False) -> Operator:
    """An operator that is a function; `swapped` for `other <op> tensor`."""

    def method(self: Any, other: Any) -> Any:
        if not is_operand(other):
            return declined(name, self, other)
        return function(other, self) if swapped else function(self, other)

    method.__doc__ = function.__doc__
    return method


def inverted(self: Tensor) -> Tensor:
    """The bits that are not set.

    Raises:
        TypeError: for floating dtypes.
    """
    if self.dtype.is_floating_point:
        raise TypeError(
            "~ (operator.invert) is only implemented on integer and Boolean-type tensors"
        )
    return bitwise_not(self)


def over(self: Tensor, other: Any) -> Any:
    """other / self, as `reciprocal` times a number."""
    return reciprocal(self) * other


OPERATORS: dict[str, Callable[..., Any]] = {
    "__add__": operator("__add__", total),
    "__radd__": operator("__radd__", total),
    "__sub__": operator("__sub__", difference),
    "__rsub__": operator("__rsub__", from_number),
    "__mul__": operator("__mul__", mul),
    "__rmul__": operator("__rmul__", mul),
    "__truediv__": operator("__truediv__", quotient),
    "__rtruediv__": general("__rtruediv__", over),
    "__floordiv__": general("__floordiv__", floor_divide),
    "__rfloordiv__": general("__rfloordiv__", floor_divide, swapped=True),
    "__mod__": general("__mod__", remainder),
    "__rmod__": general("__rmod__", remainder, swapped=True),
    "__pow__": power,
    "__rpow__": general("__rpow__", pow, swapped=True),
    "__and__": operator("__and__", bitwise_and),
    "__rand__": operator("__rand__", bitwise_and),
    "__or__": operator("__or__", bitwise_or),
    "__ror__": operator("__ror__", bitwise_or),
    "__xor__": operator("__xor__", bitwise_xor),
    "__rxor__": operator("__rxor__", bitwise_xor),
    "__lshift__": operator("__lshift__", bitwise_left_shift),
    "__rlshift__": general("__rlshift__", bitwise_left_shift, swapped=True),
    "__rshift__": operator("__rshift__", bitwise_right_shift),
    "__rrshift__": general("__rrshift__", bitwise_right_shift, swapped=True),
    "__eq__": operator("__eq__", eq),
    "__ne__": operator("__ne__", ne),
    "__lt__": operator("__lt__", lt),
    "__le__": operator("__le__", le),
    "__gt__": operator("__gt__", gt),
    "__ge__": operator("__ge__", ge),
    "__neg__": methods["neg"],
    "__pos__": positive,
    "__abs__": methods["abs"],
    "__invert__": inverted,
}

IN_PLACE = {
    "__iadd__": "add_",
    "__isub__": "sub_",
    "__imul__": "mul_",
    "__itruediv__": "div_",
    "__ifloordiv__": "floor_divide_",
    "__imod__": "remainder_",
    "__ipow__": "pow_",
    "__iand__": "bitwise_and_",
    "__ior__": "bitwise_or_",
    "__ixor__": "bitwise_xor_",
    "__ilshift__": "bitwise_left_shift_",
    "__irshift__": "bitwise_right_shift_",
}


def writing_operator(name: str, write: Operator) -> Operator:
    """`tensor <op>= other`."""

    def method(self: Any, other: Any) -> Any:
        return write(self, other) if is_operand(other) else declined(name, self, other)

    method.__doc__, method.__name__ = write.__doc__, write.__name__
    return method


for _name, _operator in OPERATORS.items():
    add_method(_name, _operator)
for _name, _method in IN_PLACE.items():
    _operator = writing_operator(_name, methods[_method])
    add_method(_name, written(written_by[_method], _operator, is_operator=True))
