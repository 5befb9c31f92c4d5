"""Comparisons, tests of numbers, and the choice between two tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from .. import dtypes, errors
from ..graph import inplace, record
from ..graph.composed import composed
from ..graph.elementwise import Choice, Elementwise, elementwise
from ..graph.export import add_method, export, in_place, in_place_text
from ..graph.operation import operation
from ..graph.record import is_differentiated
from ..tensor import Tensor
from .elementwise import where as chosen
from .promotion import float_test, test

# ----- comparisons -----


@export(method=True, out=True, numbers=("y",))
@elementwise(ref=np.equal, dtypes=test)
def eq(x, y):
    """True where `input` equals `other`; NaN equals nothing. Not differentiable.

    Example:
        >>> adjit.tensor([1., 2., 3.]).eq(2)
        tensor([False,  True, False])
    """
    return x == y


@export(method=True, name=["ne", "not_equal"], out=True, numbers=("y",))
@elementwise(ref=np.not_equal, dtypes=test)
def ne(x, y):
    """True where `input` differs from `other`, as NaN does from all. Not differentiable.

    Example:
        >>> adjit.tensor([1., 2., 3.]).ne(2)
        tensor([ True, False,  True])
    """
    return x != y


@export(method=True, name=["lt", "less"], out=True, numbers=("y",))
@elementwise(ref=np.less, dtypes=test)
def lt(x, y):
    """True where `input` is less than `other`. Not differentiable.

    Example:
        >>> adjit.tensor([1., 2., 3.]).lt(2)
        tensor([ True, False, False])
    """
    return x < y


@export(method=True, name=["le", "less_equal"], out=True, numbers=("y",))
@elementwise(ref=np.less_equal, dtypes=test)
def le(x, y):
    """True where `input` is less than `other` or equal to it. Not differentiable.

    Example:
        >>> adjit.tensor([1., 2., 3.]).le(2)
        tensor([ True,  True, False])
    """
    return x <= y


@export(method=True, name=["gt", "greater"], out=True, numbers=("y",))
@elementwise(ref=np.greater, dtypes=test)
def gt(x, y):
    """True where `input` is greater than `other`. Not differentiable.

    Example:
        >>> adjit.tensor([1., 2., 3.]).gt(2)
        tensor([False, False,  True])
    """
    return x > y


@export(method=True, name=["ge", "greater_equal"], out=True, numbers=("y",))
@elementwise(ref=np.greater_equal, dtypes=test)
def ge(x, y):
    """True where `input` is greater than `other` or equal to it. Not differentiable.

    Example:
        >>> adjit.tensor([1., 2., 3.]).ge(2)
        tensor([False,  True,  True])
    """
    return x >= y


# ----- comparisons that are written into what they compare -----


def writing_answers(op: Elementwise, called: str) -> Callable[[Tensor, Any], Tensor]:
    """The method that writes what a comparison finds into the tensor, by one of its names.

    It depends on the tensor no longer: there is a gradient, of 0, where one is wanted.
    """
    plain = in_place(op, called, in_place_text(called, op.__doc__ or "", None))

    def compared(self: Tensor, other: Any) -> Tensor:
        return op(self, other).to(self.dtype)

    def zeros(g: Tensor) -> tuple[Tensor, None]:
        return g.new_zeros(g.shape), None

    compared.__name__ = f"{called}_over"
    name = op.name.title()
    with_number, with_tensor = (
        operation(f"{name}Backward{k}")(compared).vjp(zeros) for k in (0, 1)
    )
    for found in (with_number, with_tensor):
        found.batched_as_body()

    @functools.wraps(plain)
    def method(self: Tensor, other: Any) -> Tensor:
        is_tensor = record.is_tensor(other)
        if not (is_differentiated(self) or (is_tensor and is_differentiated(other))):
            return cast(Tensor, plain(self, other))
        inplace.check(self)
        inplace.check_overlap(self, (other,))
        return inplace.adopt(self, (with_tensor if is_tensor else with_number)(self, other))

    return method


for _op, *_names in (
    (eq, "eq"), (ne, "ne", "not_equal"), (lt, "lt", "less"), (le, "le", "less_equal"),
    (gt, "gt", "greater"), (ge, "ge", "greater_equal"),
):  # fmt: skip
    for _name in _names:
        add_method(f"{_name}_", writing_answers(_op, _name))


# ----- tests -----


@export(method=True)
@elementwise(ref=np.isnan, dtypes=test)
def isnan(x):
    """True where an element is NaN. Not differentiable.

    Example:
        >>> adjit.tensor([1., float("nan"), float("inf")]).isnan()
        tensor([False,  True, False])
    """
    return x != x


@export(method=True)
@elementwise(ref=np.isinf, dtypes=test)
def isinf(x):
    """True where an element is inf or -inf. Not differentiable.

    Example:
        >>> adjit.tensor([1., float("nan"), float("-inf")]).isinf()
        tensor([False, False,  True])
    """
    return (x == x) & (x - x != 0)


@export(method=True)
@elementwise(ref=np.isfinite, dtypes=test)
def isfinite(x):
    """True where an element is neither NaN nor infinite. Not differentiable.

    Example:
        >>> adjit.tensor([1., float("nan"), float("inf")]).isfinite()
        tensor([ True, False, False])
    """
    return x - x == 0


@export(method=True, out=True)
@elementwise(ref=np.isposinf, dtypes=test)
def isposinf(x):
    """True where an element is inf. Not differentiable.

    Example:
        >>> adjit.tensor([1., float("inf"), float("-inf")]).isposinf()
        tensor([False,  True, False])
    """
    return (x > 0) & (x - x != 0)


@export(method=True, out=True)
@elementwise(ref=np.isneginf, dtypes=test)
def isneginf(x):
    """True where an element is -inf. Not differentiable.

    Example:
        >>> adjit.tensor([1., float("inf"), float("-inf")]).isneginf()
        tensor([False, False,  True])
    """
    return (x < 0) & (x - x != 0)


@export(method=True)
def isreal(input: Tensor) -> Tensor:
    """True for every element, as no dtype here is complex.

    Not differentiable.

    Example:
        >>> adjit.tensor([1., 2.]).isreal()
        tensor([True, True])
    """
    return eq(input, input) | isnan(input)


@elementwise(
    name="isclose",
    ref=lambda x, y, rtol, atol, equal_nan: np.isclose(x, y, rtol, atol, bool(equal_nan)),
    dtypes=float_test,
)
def near(x, y, *, rtol=0, atol=0, equal_nan=0):
    """Whether |x - y| <= atol + rtol * |y|."""
    same = (x == y) | ((equal_nan != 0) & (x != x) & (y != y))
    distance = abs(x - y)
    return same | ((distance - distance == 0) & (distance <= atol + abs(rtol * y)))


@export(method=True)
@composed
def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """True where |input - other| <= atol + rtol * |other|, elementwise.

    Not differentiable.

    Raises:
        RuntimeError: if dtypes differ or a tolerance is negative.

    Example:
        >>> adjit.isclose(adjit.tensor([1., 2.]), adjit.tensor([1., 2.1]))
        tensor([ True, False])
    """
    for place, (name, given) in enumerate((("input", input), ("other", other)), 1):
        record.check_tensor("isclose", name, place, given)
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{input.dtype.legacy} did not match {other.dtype.legacy}")
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if tolerance < 0:
            raise RuntimeError(
                f"{name} must be greater than or equal to zero, but got {tolerance:g}"
            )
    return near(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan)


@export(method=True)
def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """True if all elements are close; see `isclose`. Looks at the values.

    Not differentiable.

    Example:
        >>> adjit.allclose(adjit.tensor([1.]), adjit.tensor([1. + 1e-9]))
        True
    """
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@export(method=True)
def equal(input: Tensor, other: Tensor) -> bool:
    """True if two tensors have the same shape and elements, of any dtypes. Looks at the values.

    Not differentiable.

    Raises:
        TypeError: if `other` is no tensor.

    Example:
        >>> adjit.equal(adjit.tensor([1, 2]), adjit.tensor([1, 2]))
        True
    """
    record.check_tensor("equal", "other", 2, other)
    if input._spec.shape != other._spec.shape:
        return False
    return bool(_are_equal(input, other))


@composed
def _are_equal(input: Tensor, other: Tensor) -> Tensor:
    """Whether all elements of tensors of one shape are."""
    return eq(input, other).all()


# ----- choice -----


def check_condition(condition: Any) -> Any:
    """The condition of `where`, refused unless it is a bool tensor.

    Raises:
        RuntimeError: for another dtype.
        TypeError: for something else than a tensor.
    """
    if not record.is_tensor(condition):
        raise TypeError(
            "where(): argument 'condition' (position 1) must be Tensor, not "
            f"{type(condition).__name__}"
        )
    if condition.dtype is dtypes.uint8:
        errors.warn(
            "where received a uint8 condition tensor. This behavior is deprecated and will be "
            "removed in a future version of PyTorch. Use a boolean condition instead.",
        )
    elif condition.dtype is not dtypes.bool:
        raise RuntimeError(
            "where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{condition.dtype.legacy}"
        )
    return condition


@Choice
def choice(condition: Tensor, input: Any, other: Any) -> Any:
    """The op behind `where`."""
    if not record.is_tensor(input) or not record.is_tensor(other):
        kind = dtypes.result_type(input, other)
        for value in (input, other):
            dtypes.check_fits(value, kind)
    return chosen, (check_condition(condition), input, other), ()


@export
def where(condition: Tensor, input: Any = None, other: Any = None, *, out: Any = None) -> Any:
    """`input` where the bool tensor `condition` is True, `other` elsewhere.

    All three broadcast; `input` and `other` may be numbers. Differentiable in both: an element
    that was not chosen has gradient 0, whatever its value. With the condition alone, the indices
    of the elements that are True, as `nonzero(as_tuple=True)`.

    Raises:
        RuntimeError: if the condition is not bool.

    Example:
        >>> adjit.where(adjit.tensor([True, False]), adjit.tensor([1., 2.]), 0.)
        tensor([1., 0.])
    """
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    if out is None:
        return choice(condition, input, other)
    return choice(condition, input, other, out=out)


@export(public=False, method="where")
def where_of(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """This tensor's elements where the condition is True, those of `other` elsewhere.

    Example:
        >>> adjit.tensor([1., 2.]).where(adjit.tensor([True, False]), 0.)
        tensor([1., 0.])
    """
    return choice(condition, self, other)


__all__ = [
    "allclose",
    "eq",
    "equal",
    "ge",
    "gt",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "le",
    "lt",
    "ne",
    "where",
]
