"""Whole numbers: rounding, and division with a rest."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..graph import record
from ..graph.elementwise import Choice, elementwise
from ..graph.export import export
from ..schedule.codegen.body import special
from ..tensor import Tensor
from .arithmetic import quotient
from .promotion import floats, integers, numbers

# ----- rounding -----


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.floor, dtypes=numbers("floor_vml_cpu"))
def floor(x):
    """Round down: the largest whole number that is not above. The gradient is 0.

    Example:
        >>> adjit.tensor([1.5, -1.5]).floor()
        tensor([ 1., -2.])
    """
    return special.floor(x)


@floor.vjp
def _(g):
    return 0


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.ceil, dtypes=numbers("ceil_vml_cpu"))
def ceil(x):
    """Round up: the smallest whole number that is not below. The gradient is 0.

    Example:
        >>> adjit.tensor([1.5, -1.5]).ceil()
        tensor([ 2., -1.])
    """
    return special.ceil(x)


@ceil.vjp
def _(g):
    return 0


@export(method=True, name=["trunc", "fix"], inplace="function", out=True)
@elementwise(ref=np.trunc, dtypes=numbers("trunc_vml_cpu"))
def trunc(x):
    """Round towards zero. The gradient is 0.

    Example:
        >>> adjit.tensor([1.5, -1.5]).trunc()
        tensor([ 1., -1.])
    """
    return special.trunc(x)


@trunc.vjp
def _(g):
    return 0


@export(method=True, inplace="function", out=True)
@elementwise(ref=lambda x: x - np.trunc(x), dtypes=floats("frac_cpu"))
def frac(x):
    """The part after the point, x - trunc(x).

    Differentiable.

    Example:
        >>> adjit.tensor([1.5, -1.25]).frac()
        tensor([ 0.5000, -0.2500])
    """
    return x - special.trunc(x)


@frac.vjp
def _(g):
    return g


@elementwise(name="round", ref=np.round, dtypes=numbers("round_vml_cpu"))
def rounded(x):
    """The nearest whole number, the even one of two."""
    return special.round(x)


@rounded.vjp
def _(g):
    return 0


@elementwise(
    name="round_decimals",
    ref=lambda x, up, down: np.round(x * up / down) / up * down,
    dtypes=floats("round_cpu"),
    backward_name="RoundBackward1",
)
def rounded_to_decimals(x, *, up=1, down=1):
    """The nearest multiple of down / up."""
    return special.round(x * up / down) / up * down


@rounded_to_decimals.vjp
def _(g):
    return 0


@export(method=True, inplace="function", out=True)
@Choice
def round(input: Tensor, *, decimals: int = 0) -> Any:
    """The nearest whole number, halfway cases to the even one; or so many `decimals`.

    The gradient is 0.

    Example:
        >>> adjit.tensor([0.5, 1.5, -2.7]).round()
        tensor([ 0.,  2., -3.])
        >>> adjit.tensor([1.234]).round(decimals=2)
        tensor([1.2300])
    """
    if decimals == 0:
        return rounded, (input,), ()
    return rounded_to_decimals, (input,), (10.0 ** max(decimals, 0), 10.0 ** max(-decimals, 0))


# ----- division with a rest -----


def whole_ref(divide: Any) -> Any:
    """A reference that NumPy lacks for integers."""
    return lambda x, y: divide(x, y).astype(np.result_type(x, y))


@elementwise(
    name="floor_divide", ref=np.floor_divide, domain=((-9, 9), (0.5, 4)),
    dtypes=numbers("div_floor_cpu"), backward_name="DivBackward2",
)  # fmt: skip
def quotient_down(x, y):
    """x / y, rounded down."""
    return special.floor_divide(x, y)


@quotient_down.vjp
def _(g):
    return 0, 0


@elementwise(
    name="trunc_divide", ref=whole_ref(lambda x, y: np.trunc(x / y)), domain=((-9, 9), (0.5, 4)),
    dtypes=numbers("div_trunc_cpu"), backward_name="DivBackward2",
)  # fmt: skip
def quotient_towards_zero(x, y):
    """x / y, rounded towards zero."""
    return special.trunc_divide(x, y)


@quotient_towards_zero.vjp
def _(g):
    return 0, 0


@elementwise(
    name="remainder", ref=np.remainder, domain=((-9, 9), (0.5, 4)),
    dtypes=numbers("remainder_cpu"), backward_name="RemainderBackward1",
)  # fmt: skip
def rest_of_quotient_down(x, y):
    """What `floor_divide` leaves."""
    return special.remainder(x, y)


@rest_of_quotient_down.vjp
def _(g, x, y):
    return g, -g * special.floor_divide(x, y)


@elementwise(
    name="fmod", ref=np.fmod, domain=((-9, 9), (0.5, 4)),
    dtypes=numbers("fmod_cpu"), backward_name="FmodBackward1",
)  # fmt: skip
def rest_of_quotient_towards_zero(x, y):
    """What division towards zero leaves."""
    return special.fmod(x, y)


@rest_of_quotient_towards_zero.vjp
def _(g, x, y):
    return g, -g * special.trunc_divide(x, y)


remainder_by_number = rest_of_quotient_down.variant("RemainderBackward0", "y")
fmod_by_number = rest_of_quotient_towards_zero.variant("FmodBackward0", "y")


def check_divisor(input: Any, other: Any) -> None:
    """Refuse to divide integers by zero; a tensor is looked at for that.

    Raises:
        RuntimeError: with PyTorch's text.
    """
    kind = dtypes.result_type(input, other)
    if kind.kind not in "iu":
        return
    if record.is_tensor(input) and not input.numel():
        return
    if isinstance(other, int):  # counted in the dtype's bits, as in the division
        other &= (1 << 8 * kind.itemsize) - 1
    if bool((other == 0).any() if record.is_tensor(other) else other == 0):
        raise RuntimeError("ZeroDivisionError")


@Choice
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    """input / other, elementwise; integers give floating results unless rounded.

    Differentiable in both; rounded quotients have gradient 0.

    Args:
        input: a tensor (or a number, if `other` is a tensor).
        other: a tensor or a number.
        rounding_mode: None, "trunc" (towards zero) or "floor" (down).

    Raises:
        RuntimeError: for another rounding mode, or integers divided by zero and rounded.

    Example:
        >>> adjit.tensor([7., -7.]).div(2)
        tensor([ 3.5000, -3.5000])
        >>> adjit.div(adjit.tensor([7, -7]), 2, rounding_mode="floor")
        tensor([ 3, -4])
    """
    if rounding_mode is None:
        return quotient, (input, other), ()
    if rounding_mode not in ("trunc", "floor"):
        raise RuntimeError(
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
            f"'{rounding_mode}'"
        )
    check_divisor(input, other)
    op = quotient_down if rounding_mode == "floor" else quotient_towards_zero
    return op, (input, other), ()


div.for_two_operands = quotient
export(method=True, name=["div", "divide"], inplace=True, out=True)(div)


@Choice
def true_divide(input: Any, other: Any) -> Any:
    """input / other, elementwise; see `div`.

    Example:
        >>> adjit.tensor([1., 3.]).true_divide(2)
        tensor([0.5000, 1.5000])
    """
    return quotient, (input, other), ()


export(method=True, inplace=True, out=True)(true_divide)


@export(method=True, inplace=True, out=True)
@Choice
def floor_divide(input: Any, other: Any) -> Any:
    """input / other, rounded down as by Python's `//`. The gradient is 0.

    Raises:
        RuntimeError: for integers divided by zero.

    Example:
        >>> adjit.tensor([7., -7.]).floor_divide(2)
        tensor([ 3., -4.])
    """
    check_divisor(input, other)
    return quotient_down, (input, other), ()


@export(method=True, inplace=True, out=True)
@Choice
def remainder(input: Any, other: Any) -> Any:
    """The rest that `floor_divide` leaves, as Python's `%`; it has the sign of `other`.

    Differentiable in both.

    Raises:
        RuntimeError: for integers divided by zero.

    Example:
        >>> adjit.tensor([5., -5.]).remainder(3)
        tensor([2., 1.])
    """
    check_divisor(input, other)
    op = rest_of_quotient_down if record.is_tensor(other) else remainder_by_number
    return op, (input, other), ()


@export(method=True, inplace=True, out=True)
@Choice
def fmod(input: Tensor, other: Any) -> Any:
    """The rest of a division towards zero, as C's `fmod`; it has the sign of `input`.

    Differentiable in both.

    Raises:
        RuntimeError: for integers divided by zero.

    Example:
        >>> adjit.tensor([5., -5.]).fmod(3)
        tensor([ 2., -2.])
    """
    check_divisor(input, other)
    op = rest_of_quotient_towards_zero if record.is_tensor(other) else fmod_by_number
    return op, (input, other), ()


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.gcd, dtypes=integers("gcd_cpu"))
def gcd(x, y):
    """The greatest common divisor of integers, not negative. Not differentiable.

    Example:
        >>> adjit.tensor([12, -18]).gcd(adjit.tensor([8]))
        tensor([4, 2])
    """
    return special.gcd(x, y)


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.lcm, dtypes=integers("lcm_cpu"))
def lcm(x, y):
    """The least common multiple of integers, not negative. Not differentiable.

    Example:
        >>> adjit.tensor([4, -6]).lcm(adjit.tensor([6]))
        tensor([12,  6])
    """
    return special.lcm(x, y)


__all__ = [
    "ceil",
    "div",
    "floor",
    "floor_divide",
    "fmod",
    "frac",
    "gcd",
    "lcm",
    "remainder",
    "round",
    "true_divide",
    "trunc",
]
