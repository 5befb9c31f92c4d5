"""Sums, products, powers, and what else is made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..graph import inplace as writing
from ..graph import old_orders, record, wrong_types
from ..graph.elementwise import Choice, Elementwise, elementwise
from ..graph.export import add_method, export, in_place
from ..graph.node import Node, Spec
from ..graph.record import new_node
from ..kernels.ops.sums import sum_arrays
from ..schedule.codegen.body import Total, special
from ..schedule.jit.cache import instantiate
from ..schedule.planning.recipe import GRAIN, Element, Fusible, Operand, Recipe, Step
from ..schedule.settle import remember
from ..tensor import Tensor
from .promotion import (
    Kinds,
    floating,
    like_first,
    numbers,
    only,
    refusing_bool,
    same,
    subtracting,
    test,
    uniform,
    widening,
)

# ----- sums -----


@elementwise(name="add", ref=np.add)
def total(x, y):
    """x + y."""
    return x + y


@total.vjp
def _(g):
    return g, g


def total_of(values: Sequence[Node], spec: Spec) -> Node:
    """The sum of at least two values of one spec, from the first to the last, in one launch."""
    count = len(values)
    recipe = totals.get((spec, count))
    if recipe is None:
        step = Step(instantiate(sum_arrays, {"T": spec.dtype}), spec.numel, GRAIN // count)
        if len(totals) >= record.MAX_RECIPES:
            totals.clear()
        recipe = totals[spec, count] = Recipe("total", (spec,) * count, (spec,), [step])
        body = Total(count)
        flat = (spec.numel,)  # the values lie alike, and densely
        given = [Operand(name, spec.dtype, (1,)) for name in body.params]
        out = Operand("out", spec.dtype, (1,))
        element = Element(body, (0,), spec.dtype, tuple(given), (out,), flat)
        recipe.fusion = Fusible(element=element, adds=True)
        record.find_device_steps(recipe)
    node = new_node(Node)
    node.recipe = recipe
    node.inputs = tuple(values)
    node.offsets = node.call_site = None
    node.scalars = ()
    remember(node)
    return node


totals: dict[tuple[Spec, int], Recipe] = {}  # by spec and number


@elementwise(name="sub", ref=np.subtract, dtypes=subtracting)
def difference(x, y):
    """x - y."""
    return x - y


@difference.vjp
def _(g):
    return g, -g


@elementwise(name="add_scaled", ref=lambda x, y, alpha: x + alpha * y, backward_name="AddBackward0")
def scaled_total(x, y, *, alpha=1):
    """x + alpha * y."""
    return x + alpha * y


@scaled_total.vjp
def _(g, alpha):
    return g, alpha * g


@elementwise(
    name="sub_scaled",
    ref=lambda x, y, alpha: x - alpha * y,
    dtypes=subtracting,
    backward_name="SubBackward0",
)
def scaled_difference(x, y, *, alpha=1):
    """x - alpha * y."""
    return x - alpha * y


@scaled_difference.vjp
def _(g, alpha):
    return g, -alpha * g


@elementwise(name="rsub", ref=lambda x, y: y - x, dtypes=subtracting, backward_name="RsubBackward0")
def reversed_difference(x, y):
    """y - x."""
    return y - x


@reversed_difference.vjp
def _(g):
    return -g, g


reversed_difference.laid_by = (1, 0)
scaled_from = scaled_difference.variant("RsubBackward0")
scaled_from_number = scaled_difference.variant("RsubBackward1", "x")
from_number = reversed_difference.variant("RsubBackward1", "y")


SURE = 1e38  # of absolute values below it, that every floating dtype has them


def _are_floats(input: Any, other: Any) -> bool:
    """Whether both are tensors of one floating dtype."""
    if not (record.is_tensor(input) and record.is_tensor(other)):
        return False
    kind: dtypes.dtype = input._spec.dtype
    return kind is other._spec.dtype and kind.is_floating_point


def checked_alpha(alpha: Any, input: Any, other: Any, name: str) -> int | float:
    """The number that an `alpha` is, which may be NumPy's, or a tensor without axes.

    Raises:
        TypeError: it is not a number.
        RuntimeError: it is a float beside integers, or beyond those of the dtype.
    """
    is_plain = alpha.__class__ is float or alpha.__class__ is int
    if is_plain and -SURE < alpha < SURE and _are_floats(input, other):
        return alpha
    if isinstance(alpha, np.generic) or (
        record.is_tensor(alpha) and not alpha.ndim and not alpha.requires_grad
    ):
        alpha = alpha.item()
    if not isinstance(alpha, (int, float)):
        raise TypeError(f"{name}(): argument 'alpha' must be Number, not {type(alpha).__name__}")
    wrong_types.check_operands(("input", "other"), name, (input, other))
    kind = dtypes.result_type(input, other)
    if isinstance(alpha, float) and not kind.is_floating_point:
        raise RuntimeError(
            "For integral input tensors, argument alpha must not be a floating point number."
        )
    dtypes.check_fits(alpha, kind)
    return alpha


def in_new_order(name: str, input: Any, alpha: Any, others: tuple[Any, ...]) -> tuple[Any, Any]:
    """The second operand and `alpha` of a call that gives these the other way round.

    Raises:
        TypeError: if it is none.
    """
    found = old_orders.in_new_order(name, (input, alpha, *others))
    if found is None:
        raise TypeError(f"{name}() takes 2 positional arguments but {2 + len(others)} were given")
    return found[0][1], found[1]["alpha"]


@export(method=True)
def add(input: Any, other: Any, *others: Any, alpha: Any = 1, out: Tensor | None = None) -> Tensor:
    """input + alpha * other, elementwise.

    Shapes broadcast and dtypes promote as in PyTorch. Differentiable in both.

    Args:
        input: a tensor.
        other: a tensor or a number.
        others: `other`, if `alpha` comes before it, as in programs of before 2020.
        alpha: a number, or a tensor without axes that needs no gradient; an integer where both are.
        out: where to write the result.

    Raises:
        RuntimeError: if shapes do not broadcast, or `alpha` is a float beside integers.
        TypeError: if an argument is neither a tensor nor a number.

    Example:
        >>> adjit.tensor([1., 2.]).add(3, alpha=2)
        tensor([7., 8.])
    """
    if others:
        other, alpha = in_new_order("add", input, other, others)
    try:
        if alpha.__class__ is int and alpha == 1:
            made = total.record(input, other)
        else:
            made = scaled_total(input, other, checked_alpha(alpha, input, other, "add"))
    except Exception:
        if said := wrong_types.tell_scaled("add", input, other, alpha):
            return said[0]
        raise
    return made if out is None else writing.write_out("add", out, made)


def subtract_scaled(input: Any, other: Any, alpha: Any) -> tuple[Elementwise, Any, Any]:
    """The op, operands and attributes of `sub`."""
    if alpha.__class__ is int and alpha == 1:
        return difference, (input, other), ()
    alpha = checked_alpha(alpha, input, other, "sub")
    return scaled_difference, (input, other), (alpha,)


@export(method=True)
def sub(input: Any, other: Any, *others: Any, alpha: Any = 1, out: Tensor | None = None) -> Tensor:
    """input - alpha * other, elementwise; see `add`.

    Raises:
        RuntimeError: also for bool tensors, which have no difference.

    Example:
        >>> adjit.tensor([1., 2.]).sub(1)
        tensor([0., 1.])
    """
    if others:
        other, alpha = in_new_order("sub", input, other, others)
    try:
        if alpha.__class__ is int and alpha == 1:
            made = difference.record(input, other)
        else:
            op, operands, attributes = subtract_scaled(input, other, alpha)
            made = op(*operands, *attributes)
    except Exception:
        if said := wrong_types.tell_scaled("sub", input, other, alpha):
            return said[0]
        raise
    return made if out is None else writing.write_out("sub", out, made)


@Choice
def add_(input: Any, other: Any, *others: Any, alpha: Any = 1) -> Any:
    """`add`, which takes no `out` here.

    Example:
        >>> adjit.tensor([1., 2.]).add(3, alpha=2)
        tensor([7., 8.])
    """
    if others:
        other, alpha = in_new_order("add", input, other, others)
    if alpha.__class__ is int and alpha == 1:
        return total, (input, other), ()
    alpha = checked_alpha(alpha, input, other, "add")
    return scaled_total, (input, other), (alpha,)


@Choice
def sub_(input: Any, other: Any, *others: Any, alpha: Any = 1) -> Any:
    """`sub`, which takes no `out` here.

    Example:
        >>> adjit.tensor([1., 2.]).sub(1)
        tensor([0., 1.])
    """
    if others:
        other, alpha = in_new_order("sub", input, other, others)
    return subtract_scaled(input, other, alpha)


add_.for_two_operands, sub_.for_two_operands = total, difference
export(public=False, inplace=True, name="add")(add_)
export(public=False, inplace=True, name=["sub", "subtract"])(sub_)
export(method=True, name="subtract")(sub)


@export
@Choice
def rsub(input: Tensor, other: Any, *, alpha: Any = 1) -> Any:
    """other - alpha * input, elementwise.

    Differentiable.

    Example:
        >>> adjit.rsub(adjit.tensor([1., 2.]), 1)
        tensor([ 0., -1.])
    """
    tensors = record.is_tensor(other)
    if alpha.__class__ is int and alpha == 1:
        return reversed_difference if tensors else from_number, (input, other), ()
    alpha = checked_alpha(alpha, input, other, "rsub")
    return scaled_from if tensors else scaled_from_number, (other, input), (alpha,)


# ----- products -----


@export(method=True, name=["mul", "multiply"], inplace=True, out=True, numbers=("x", "y"))
@elementwise(ref=np.multiply)
def mul(x, y):
    """Product, elementwise: input * other. Differentiable in both.

    Example:
        >>> adjit.tensor([1., 2.]).mul(adjit.tensor([3., 4.]))
        tensor([3., 8.])
    """
    return x * y


@mul.vjp
def _(g, x, y):
    return g * y, g * x


@elementwise(name="div", ref=np.divide, domain=((-2, 2), (0.5, 2)), dtypes=floating)
def quotient(x, y):
    """x / y."""
    return x / y


@quotient.vjp
def _(g, x, y):
    return g / y, -g * ((x / y) / y)


@export(method=True, inplace="function", out=True)
@elementwise(ref=lambda x: 1 / x, domain=(0.5, 2), dtypes=floating)
def reciprocal(x):
    """The inverse 1 / x.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([1., 4.]).reciprocal()
        tensor([1.0000, 0.2500])
    """
    return 1 / x


@reciprocal.vjp
def _(g, out):
    return -g * (out * out)


@export(method=True, name=["neg", "negative"], inplace="function", out=True)
@elementwise(
    ref=np.negative,
    dtypes=refusing_bool(
        "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to "
        "invert a mask, use the `~` or `logical_not()` operator instead."
    ),
)
def neg(x):
    """Negation: -x.

    Differentiable.

    Raises:
        RuntimeError: for a bool tensor.

    Example:
        >>> adjit.tensor([1., -2.]).neg()
        tensor([-1.,  2.])
    """
    return -x


@neg.vjp
def _(g):
    return -g


@export(method=True)
def positive(input: Tensor) -> Tensor:
    """The tensor itself.

    Raises:
        RuntimeError: for a bool tensor.

    Example:
        >>> adjit.tensor([1., -2.]).positive()
        tensor([ 1., -2.])
    """
    record.check_tensor("positive", "input", 1, input)
    if input.dtype is dtypes.bool:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


@export(method=True, inplace=True, out=True)
@elementwise(ref=lambda x, t, u, value: x + value * t * u)
def addcmul(x, tensor1, tensor2, *, value=1):
    """input + value * tensor1 * tensor2, with broadcasting. Differentiable in the three tensors.

    Example:
        >>> adjit.tensor([1., 2.]).addcmul(adjit.ones(2), adjit.tensor([3., 4.]), value=0.5)
        tensor([2.5000, 4.0000])
    """
    return x + value * tensor1 * tensor2


@addcmul.vjp
def _(g, tensor1, tensor2, value):
    scaled = g * value
    return g, scaled * tensor2, scaled * tensor1


def dividing(operands: Kinds) -> tuple[dtypes.dtype, dtypes.dtype]:
    """The promoted dtype, unless a quotient of two integers is asked for."""
    if all(not kind.is_floating_point for kind, _ in operands[1:]):
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported, and in a future  release "
            "addcdiv will perform a true division of tensor1 and tensor2. The historic addcdiv "
            "behavior can be implemented as (input + value * torch.trunc(tensor1 / "
            "tensor2)).to(input.dtype) for integer inputs and as (input + value * tensor1 / "
            "tensor2) for float inputs. The future addcdiv behavior is just the latter "
            "implementation: (input + value * tensor1 / tensor2), for all dtypes."
        )
    return same(operands)


@export(method=True, inplace=True, out=True)
@elementwise(
    ref=lambda x, t, u, value: x + value * t / u,
    domain=((-2, 2), (-2, 2), (0.5, 2)),
    dtypes=dividing,
)
def addcdiv(x, tensor1, tensor2, *, value=1):
    """input + value * tensor1 / tensor2, with broadcasting. Differentiable in the three tensors.

    Raises:
        RuntimeError: if `tensor1` and `tensor2` both hold integers.

    Example:
        >>> adjit.tensor([1., 2.]).addcdiv(adjit.ones(2), adjit.tensor([2., 4.]), value=2)
        tensor([2.0000, 2.5000])
    """
    return x + value * tensor1 / tensor2


@addcdiv.vjp
def _(g, tensor1, tensor2, value):
    scaled = g * value / tensor2
    return g, scaled, -scaled * (tensor1 / tensor2)


@elementwise(
    name="lerp", ref=lambda x, y, w: x + w * (y - x), domain=((-2, 2), (-2, 2), (0, 1)),
    dtypes=only("f", "lerp_kernel_scalar", like_first),
    backward_name="LerpBackward1",
)  # fmt: skip
def between(x, end, weight):
    """x + weight * (end - x), from the nearer end."""
    way = end - x
    return end - way * (1 - weight) if abs(weight) >= 0.5 else x + weight * way


@between.vjp
def _(g, x, end, weight):
    return g * (1 - weight), g * weight, g * (end - x)


between_by_number = between.variant("LerpBackward0", "weight")


@export(method=True, inplace=True)
@Choice
def lerp(input: Tensor, end: Tensor, weight: Any) -> Any:
    """input + weight * (end - input): the way from `input` to `end`.

    Differentiable in all three. `weight` is a tensor or a number.

    Raises:
        RuntimeError: if dtypes differ, but for that of a weight without axes.
        NotImplementedError: for integers.

    Example:
        >>> adjit.tensor([0., 1.]).lerp(adjit.tensor([4., 4.]), 0.5)
        tensor([2.0000, 2.5000])
    """
    if record.is_tensor(weight) and not weight.ndim:
        weight = weight.to(input.dtype)  # as a number would be
    for name, other in (("end", end), ("weight", weight)):
        if record.is_tensor(other):
            if other.dtype is not input.dtype:
                raise RuntimeError(
                    f"expected dtype {input.dtype.row.c} for `{name}` but got dtype "
                    f"{other.dtype.row.c}"
                )
        elif name == "end":
            raise TypeError(
                f"lerp(): argument 'end' (position 2) must be Tensor, not {type(end).__name__}"
            )
    if not record.is_tensor(weight):
        dtypes.check_fits(weight, input.dtype)
    op = between if record.is_tensor(weight) else between_by_number
    return op, (input, end, weight), ()


# ----- sizes and signs -----


@export(method=True, name=["abs", "absolute"], inplace="function", out=True)
@elementwise(ref=np.abs, dtypes=numbers("abs_cpu"))
def abs(x):
    """Absolute value; the gradient at 0 is 0.

    Example:
        >>> adjit.tensor([-1.5, 0., 2.]).abs()
        tensor([1.5000, 0.0000, 2.0000])
    """
    return abs(x)


@abs.vjp
def _(g, x):
    return g * (1 if x > 0 else (-1 if x < 0 else 0))


abs.straight = "MulBackward0"


def sign_of(x: Any) -> Any:
    """-1, 0 or 1; 0 for NaN, as in PyTorch."""
    return np.where(x > 0, 1, np.where(x < 0, -1, 0)).astype(x.dtype)


@export(method=True, inplace=True, out=True)
@elementwise(ref=sign_of)
def sign(x):
    """-1, 0 or 1: the sign of each element; the gradient is 0.

    Example:
        >>> adjit.tensor([-1.5, 0., 2.]).sign()
        tensor([-1.,  0.,  1.])
    """
    return 1 if x > 0 else (-1 if x < 0 else 0)


@sign.vjp
def _(g):
    return 0


sgn = sign.variant("SgnBackward0")
export(method=True, name="sgn", inplace=True, out=True)(sgn)


@export(method=True, out=True)
@elementwise(ref=np.signbit, dtypes=test)
def signbit(x):
    """True where the sign bit is set: for negative numbers and -0. Not differentiable.

    Example:
        >>> adjit.tensor([-1., -0., 0.]).signbit()
        tensor([ True,  True, False])
    """
    return math.copysign(1, x) < 0


@elementwise(name="copysign", ref=np.copysign, dtypes=floating, backward_name="CopysignBackward0")
def with_sign(x, y):
    """|x| with the sign of y."""
    return math.copysign(x, y)


@with_sign.vjp
def _(g, x, out):
    return 0 if x == 0 else g * (out / x), 0


with_sign_of_number = with_sign.variant("CopysignBackward1", "y")


@export(method=True, inplace=True)
@Choice
def copysign(input: Tensor, other: Any) -> Any:
    """The size of `input` with the sign of `other`, a tensor or a number.

    Differentiable in `input`; the gradient at 0 is 0.

    Example:
        >>> adjit.tensor([1., 2.]).copysign(-0.)
        tensor([-1., -2.])
    """
    op = with_sign if record.is_tensor(other) else with_sign_of_number
    return op, (input, other), ()


@elementwise(
    name="nextafter", ref=np.nextafter, dtypes=only("f", "nextafter_cpu"),
    backward_name="NextafterBackward0",
)  # fmt: skip
def next_number(x, y):
    """The next number after x towards y."""
    return special.nextafter(x, y)


@next_number.vjp
def _(g, x, y):
    return g if x != y else 0, g * 0


@export(method=True, inplace=True, out=True)
@Choice
def nextafter(input: Tensor, other: Tensor) -> Any:
    """The next number after `input` that can be represented, towards `other`; `other` where both are equal.

    NaN where one of them is. The gradient goes to `input` where the two differ, as in PyTorch.

    Args:
        input, other: of a floating dtype, which broadcast.

    Raises:
        NotImplementedError: for whole numbers.

    Example:
        >>> adjit.nextafter(adjit.tensor([0., 1.]), adjit.tensor([1., 1.]))
        tensor([1.4013e-45, 1.0000e+00])
    """
    record.check_tensor("nextafter", "other", 2, other)
    return next_number, (input, other), ()


@export(method=True, inplace=True, out=True)
@elementwise(ref=lambda x, y: np.where(x == 0, y, (x > 0).astype(x.dtype)), dtypes=uniform)
def heaviside(x, values):
    """0 for negative x, `values` at 0, 1 for positive x. The gradients are 0.

    Raises:
        RuntimeError: if the dtypes differ.

    Example:
        >>> adjit.tensor([-2., 0., 3.]).heaviside(adjit.tensor([0.5]))
        tensor([0.0000, 0.5000, 1.0000])
    """
    return values if x == 0 else (1 if x > 0 else 0)


@heaviside.vjp
def _(g):
    return 0, 0


# ----- powers and roots -----


@elementwise(
    name="pow", ref=lambda x, y: np.power(x, y), domain=((0.5, 2), (0.5, 3)),
    dtypes=numbers("pow"), backward_name="PowBackward1",
)  # fmt: skip
def power(x, exponent):
    """x ** exponent."""
    return math.pow(x, exponent)


@power.vjp
def _(g, x, exponent, out):
    gx = 0 if exponent == 0 else g * (exponent * math.pow(x, exponent - 1))
    ge = 0 if (x == 0) & (exponent >= 0) else g * (out * math.log(x))
    return gx, ge


power_by_number = power.variant("PowBackward0", "exponent")
power_of_number = power.variant("PowBackward2", "x")


@elementwise(ref=np.square, dtypes=widening, backward_name="PowBackward0")
def square(x):
    """The square x * x.

    Example:
        >>> adjit.tensor([-2., 3.]).square()
        tensor([4., 9.])
    """
    return x * x


@square.vjp
def _(g, x):
    return g * (2 * x)


@elementwise(ref=lambda x: x * x * x, backward_name="PowBackward0")
def cube(x):
    """x * x * x."""
    return x * x * x


@cube.vjp
def _(g, x):
    return g * (3 * (x * x))


export(method=True, name="square", inplace="function")(square)


@export(method=True, inplace="function", out=True)
@elementwise(ref=np.sqrt, domain=(0.5, 2), dtypes=floating)
def sqrt(x):
    """Square root; NaN below 0. The gradient at 0 is infinite.

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([0., 2., 9.]).sqrt()
        tensor([0.0000, 1.4142, 3.0000])
    """
    return math.sqrt(x)


@sqrt.vjp
def _(g, out):
    return g / (2 * out)


@export(method=True, inplace="function", out=True)
@elementwise(ref=lambda x: 1 / np.sqrt(x), domain=(0.5, 2), dtypes=floating)
def rsqrt(x):
    """The inverse of the square root, 1 / sqrt(x).

    Differentiable. Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([1., 4.]).rsqrt()
        tensor([1.0000, 0.5000])
    """
    return special.rsqrt(x)


@rsqrt.vjp
def _(g, out):
    return -0.5 * g * (out * out * out)


SPECIAL_POWERS = {
    2.0: square,
    3.0: cube,
    0.5: sqrt.variant("PowBackward0"),
    -0.5: rsqrt.variant("PowBackward0"),
    -1.0: reciprocal.variant("PowBackward0"),
}

# As PyTorch's, these read the base again and not the result, into which programs write: they put 0 where
# `degrees ** -0.5` is infinite.


@SPECIAL_POWERS[0.5].vjp
def _(g, x):
    return g / (2 * math.sqrt(x))


@SPECIAL_POWERS[-0.5].vjp
def _(g, x):
    power = special.rsqrt(x)
    return -0.5 * g * (power * power * power)


@SPECIAL_POWERS[-1.0].vjp
def _(g, x):
    power = 1 / x
    return -g * (power * power)


@Choice
def pow(input: Any, exponent: Any) -> Any:
    """input ** exponent, elementwise; either may be a number.

    Differentiable in both: at a base of 0 the gradient of the exponent is 0.

    Raises:
        RuntimeError: for integers to a negative number.
        TypeError: if neither is a tensor.

    Example:
        >>> adjit.tensor([1., 2., 3.]).pow(2)
        tensor([1., 4., 9.])
        >>> adjit.pow(2, adjit.tensor([1., 2., 3.]))
        tensor([2., 4., 8.])
    """
    if record.is_tensor(exponent):
        return power if record.is_tensor(input) else power_of_number, (input, exponent), ()
    if not record.is_tensor(input):
        kinds = (type(input).__name__, type(exponent).__name__)
        raise TypeError(
            f"pow() received an invalid combination of arguments - got ({kinds[0]}, {kinds[1]}), "
            "but expected a Tensor among them"
        )
    if input.dtype.is_floating_point:
        try:
            op = SPECIAL_POWERS.get(exponent)
        except TypeError:  # not hashable, so not a number either
            op = None
        if op is not None:
            return op, (input,), ()
    elif isinstance(exponent, int):
        if exponent < 0:
            raise RuntimeError("Integers to negative integer powers are not allowed.")
        dtypes.check_fits(exponent, input.dtype)
        if exponent in (2, 3) and input.dtype is not dtypes.bool:
            return SPECIAL_POWERS[exponent], (input,), ()
    return power_by_number, (input, exponent), ()


export(method=True, inplace=True, out=True)(pow)


@export(method=True, out=True)
def float_power(input: Any, exponent: Any) -> Tensor:
    """input ** exponent, computed in float64; see `pow`.

    Differentiable.

    Example:
        >>> adjit.tensor([2, 3]).float_power(-1)
        tensor([0.5000, 0.3333], dtype=adjit.float64)
    """
    return pow(*[v.double() if record.is_tensor(v) else _in_double(v) for v in (input, exponent)])


def _in_double(value: Any) -> Any:
    return float(value) if isinstance(value, (int, float, np.generic)) else value


_written_in_double = in_place(float_power, "float_power")


def float_power_(self: Tensor, exponent: Any) -> Tensor:
    """In-place form of `float_power`: writes the result into this tensor, which must be float64.

    Raises:
        RuntimeError: for another dtype than float64.

    Example:
        >>> x = adjit.tensor([2., 3.], dtype=adjit.float64)
        >>> x.float_power_(2)
        tensor([4., 9.], dtype=adjit.float64)
    """
    if self.dtype is not dtypes.float64:
        raise RuntimeError(
            f"the base given to float_power_ has dtype {self.dtype.legacy} but the operation's result "
            "requires dtype Double"
        )
    return _written_in_double(self, exponent)


add_method("float_power_", float_power_)


@export(method=True, inplace="function", out=True)
@elementwise(ref=lambda x, y: x * np.exp2(y), domain=((-2, 2), (-3, 3)), dtypes=floating)
def ldexp(x, y):
    """input * 2 ** other. Differentiable in both.

    Integers give the default floating dtype.

    Example:
        >>> adjit.tensor([1., 3.]).ldexp(adjit.tensor([2, -1]))
        tensor([4.0000, 1.5000])
    """
    return x * special.exp2(y)


@ldexp.vjp
def _(g, y, out):
    return g * special.exp2(y), g * out * 0.6931471805599453


@export(method=True, inplace=True, out=True)
@elementwise(ref=np.hypot, dtypes=only("f", "hypot_cpu"))
def hypot(x, y):
    """The hypotenuse sqrt(input² + other²), without overflow on the way. Differentiable in both.

    Example:
        >>> adjit.tensor([3., 1e30]).hypot(adjit.tensor([4., 0.]))
        tensor([5.0000e+00, 1.0000e+30])
    """
    a = abs(x)
    b = abs(y)
    larger = b if b > a else a
    smaller = a if b > a else b
    ratio = smaller / larger if larger > 0 else smaller
    size = larger * math.sqrt(1 + ratio * ratio)
    return math.inf if (a == math.inf) | (b == math.inf) else size


@hypot.vjp
def _(g, x, y, out):
    return g * (x / out), g * (y / out)
