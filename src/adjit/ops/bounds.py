"""Larger and smaller, bounds, and what replaces elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..graph import record
from ..graph.elementwise import Choice, elementwise
from ..graph.export import export
from ..graph.levels import tracers
from ..tensor import Tensor
from .promotion import like_first, only, same

# ----- the larger and the smaller -----


@export(method=True, out=True)
@elementwise(ref=np.maximum)
def maximum(x, y):
    """The larger of two elements, NaN if either is; equal ones share the gradient.

    Example:
        >>> adjit.tensor([1., 5.]).maximum(adjit.tensor([2., 3.]))
        tensor([2., 5.])
    """
    return y if (y > x) | (y != y) else x


@maximum.vjp
def _(g, x, y):
    share = g * 0.5 if x == y else g
    return 0 if x < y else share, 0 if x > y else share


@export(method=True, out=True)
@elementwise(ref=np.minimum)
def minimum(x, y):
    """The smaller of two elements, NaN if either is; equal ones share the gradient.

    Example:
        >>> adjit.tensor([1., 5.]).minimum(adjit.tensor([2., 3.]))
        tensor([1., 3.])
    """
    return y if (y < x) | (y != y) else x


@minimum.vjp
def _(g, x, y):
    share = g * 0.5 if x == y else g
    return 0 if x > y else share, 0 if x < y else share


@export(method=True, out=True)
@elementwise(ref=np.fmax)
def fmax(x, y):
    """The larger of two elements, the other one where one is NaN. Differentiable in both.

    Example:
        >>> adjit.tensor([1., float("nan")]).fmax(adjit.tensor([2., 3.]))
        tensor([2., 3.])
    """
    return x if (x >= y) | (y != y) else y


@fmax.vjp
def _(g, x, y):
    first = (x >= y) | (y != y)
    return g if first else 0, 0 if first else g


@export(method=True, out=True)
@elementwise(ref=np.fmin)
def fmin(x, y):
    """The smaller of two elements, the other one where one is NaN. Differentiable in both.

    Example:
        >>> adjit.tensor([1., float("nan")]).fmin(adjit.tensor([2., 3.]))
        tensor([1., 3.])
    """
    return x if (x <= y) | (y != y) else y


@fmin.vjp
def _(g, x, y):
    first = (x <= y) | (y != y)
    return g if first else 0, 0 if first else g


# ----- bounds -----

promoting_bounds = only("iuf", "clamp_cpu")


@elementwise(
    name="clamp", ref=lambda x, low, high: np.minimum(np.maximum(x, low), high),
    domain=((-2, 2), (-1, 0), (0.25, 1)), dtypes=promoting_bounds, backward_name="ClampBackward0",
)  # fmt: skip
def bounded(x, low, high):
    """x within [low, high]; `high` where they cross, NaN where anything is."""
    above = low if (x < low) | (low != low) else x
    return high if (above > high) | (high != high) else above


@bounded.vjp
def _(g, x, low, high):
    inside = (x >= low) & (x <= high)
    below = (low < high) & (x < low)
    return g if inside else 0, g if below else 0, g if (x > high) | (high < low) else 0


@elementwise(
    name="clamp_min", ref=np.maximum, dtypes=promoting_bounds, backward_name="ClampMinBackward1"
)
def bounded_below(x, low):
    """x, `low` where it is less."""
    return low if (x < low) | (low != low) else x


@bounded_below.vjp
def _(g, x, low):
    return g if x >= low else 0, g if x < low else 0


@elementwise(
    name="clamp_max", ref=np.minimum, dtypes=promoting_bounds, backward_name="ClampMaxBackward1"
)
def bounded_above(x, high):
    """x, `high` where it is more."""
    return high if (x > high) | (high != high) else x


@bounded_above.vjp
def _(g, x, high):
    return g if x <= high else 0, g if x > high else 0


BOUNDS_BY_NUMBER = {
    op: op.variant("ClampBackward1", "low", "high")
    for op in (bounded, bounded_below, bounded_above)
}
BOUNDS_BY_TENSOR = {
    op: op.variant("ClampBackward0") for op in (bounded, bounded_below, bounded_above)
}


@Choice
def clamp(input: Tensor, min: Any = None, max: Any = None) -> Any:
    """`input` within [min, max]: numbers, or tensors that broadcast, or None for no bound.

    Differentiable: elements on a bound pass their gradient on; tensor bounds get it where they
    are what comes out. Where `min` is above `max` the result is `max`.

    Raises:
        RuntimeError: if there is no bound.

    Example:
        >>> adjit.tensor([-2., 0.5, 3.]).clamp(-1, 1)
        tensor([-1.0000,  0.5000,  1.0000])
    """
    given = [bound for bound in (min, max) if bound is not None]
    if not given:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    tensors = [record.is_tensor(bound) for bound in given]
    if any(tensors) != all(tensors):
        given = [
            number_of(bound, min, max) if record.is_tensor(bound) else bound for bound in given
        ]
    check_bounds(input, given)
    op = bounded if len(given) == 2 else bounded_below if max is None else bounded_above
    table = BOUNDS_BY_TENSOR if all(tensors) else BOUNDS_BY_NUMBER
    return table[op], (input, *given), ()


def check_bounds(input: Tensor, bounds: Sequence[Any]) -> None:
    """Refuse numbers that the dtype of the result cannot hold, which wrap around elsewhere.

    Raises:
        RuntimeError: with PyTorch's text.
    """
    if not record.is_tensor(input) or any(map(record.is_tensor, bounds)):
        return
    kind = dtypes.result_type(input, *bounds)
    for bound in bounds:
        dtypes.check_fits(bound, kind)


def number_of(bound: Tensor, low: Any, high: Any) -> float:
    """A 0-d tensor beside a number as a bound: its value, as in PyTorch, which looks at it.

    Raises:
        TypeError: if it has dimensions, or needs a gradient.
    """
    if bound.ndim or bound.requires_grad or bound.__class__ in tracers:
        raise TypeError(
            "clamp() received an invalid combination of arguments: min and max must be both "
            f"Tensor or both Number, got {type(low).__name__} and {type(high).__name__}"
        )
    return bound.item()


export(method=True, name=["clamp", "clip"], inplace="function", out=True)(clamp)

below_by_number = bounded_below.variant("ClampMinBackward0", "low")
above_by_number = bounded_above.variant("ClampMaxBackward0", "high")


@export(method=True, inplace="function")
@Choice
def clamp_min(input: Tensor, min: Any) -> Any:
    """`input`, or `min` where that is more; see `clamp`.

    Differentiable.

    Example:
        >>> adjit.tensor([-2., 3.]).clamp_min(0)
        tensor([0., 3.])
    """
    check_bounds(input, (min,))
    return bounded_below if record.is_tensor(min) else below_by_number, (input, min), ()


@export(method=True, inplace="function")
@Choice
def clamp_max(input: Tensor, max: Any) -> Any:
    """`input`, or `max` where that is less; see `clamp`.

    Differentiable.

    Example:
        >>> adjit.tensor([-2., 3.]).clamp_max(0)
        tensor([-2.,  0.])
    """
    check_bounds(input, (max,))
    return bounded_above if record.is_tensor(max) else above_by_number, (input, max), ()


@elementwise(
    name="masked_fill", ref=lambda x, mask, value: np.where(mask, value, x), dtypes=like_first,
    backward_name="MaskedFillBackward1",
)  # fmt: skip
def filled(x, mask: bool, value):
    """x, `value` where the mask is set."""
    return value if mask else x


@filled.vjp
def _(g, mask: bool):
    return 0 if mask else g, g if mask else 0


filled_with_number = filled.variant("MaskedFillBackward0", "mask", "value")
filled_apart = filled.variant("MaskedFillBackward1")
filled_apart_with_number = filled.variant("MaskedFillBackward0", "mask", "value")
filled_apart.laid_by = filled_apart_with_number.laid_by = ()


@export(method=True)
@Choice
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Any:
    """`input`, with `value` (a number or a 0-d tensor) where the bool tensor `mask` is True.

    Differentiable in `input` and a tensor `value`; the dtype is that of `input`.

    Raises:
        RuntimeError: if `mask` is not bool, or `value` is a tensor of more than no dimensions.

    Example:
        >>> adjit.tensor([1., 2.]).masked_fill(adjit.tensor([True, False]), 0)
        tensor([0., 2.])
    """
    with_tensor = takes_tensor(input, mask, value)
    return filled_apart if with_tensor else filled_apart_with_number, (input, mask, value), ()


@Choice
def masked_fill_(input: Tensor, mask: Tensor, value: Any) -> Any:
    """`masked_fill` that keeps the order of the axes of `input`.

    Example:
        >>> adjit.tensor([1., 2.]).masked_fill(adjit.tensor([True, False]), 0)
        tensor([0., 2.])
    """
    with_tensor = takes_tensor(input, mask, value)
    return filled if with_tensor else filled_with_number, (input, mask, value), ()


export(public=False, inplace=True, name="masked_fill")(masked_fill_)


def takes_tensor(input: Tensor, mask: Any, value: Any) -> bool:
    """Whether what is filled in is a tensor, everything checked."""
    if not record.is_tensor(mask):
        raise TypeError(
            f"masked_fill(): argument 'mask' (position 1) must be Tensor, not {type(mask).__name__}"
        )
    if mask.dtype is not dtypes.bool:
        raise RuntimeError(
            f"masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype.row.c}"
        )
    if not record.is_tensor(value):
        if record.is_tensor(input):
            dtypes.check_fits(value, input.dtype)
        return False
    if value.ndim:
        raise RuntimeError(
            "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.ndim} dimension(s)."
        )
    return True


@elementwise(
    name="nan_to_num",
    ref=lambda x, nan, above, below: np.nan_to_num(x, nan=nan, posinf=above, neginf=below),
    dtypes=same,
)
def tamed(x, *, nan=0, above=0, below=0):
    """x, with other numbers for NaN, inf and -inf."""
    finite = x - x == 0
    return x if finite else (above if x > 0 else (below if x < 0 else nan))


@tamed.vjp
def _(g, x):
    return g if x - x == 0 else 0


@export(method=True, inplace="function", out=True)
@Choice
def nan_to_num(
    input: Tensor,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Any:
    """`input` with finite numbers for NaN (0), inf and -inf (the limits of the dtype).

    Differentiable; what was replaced has no gradient.

    Example:
        >>> adjit.tensor([1., float("nan"), float("inf")]).nan_to_num(0., 9.)
        tensor([1., 0., 9.])
    """
    if not input.dtype.is_floating_point:
        return tamed, (input,), (0, 0, 0)
    limits = dtypes.finfo(input.dtype)
    above = limits.max if posinf is None else posinf
    below = limits.min if neginf is None else neginf
    given = (0.0 if nan is None else nan, above, below)
    with np.errstate(over="ignore"):  # what is too large for the dtype is infinite
        return tamed, (input,), tuple(np.array(given, input.dtype.numpy).tolist())
