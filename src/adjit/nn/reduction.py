"""The `reduction` argument of losses, with PyTorch's older spellings of it."""

from __future__ import annotations

from .. import errors
from ..ops import losses
from ..tensor import Tensor


def chosen_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction asked for, by its name or by the two deprecated flags, of which a warning tells."""
    if size_average is None and reduce is None:
        return reduction
    named = "sum" if size_average is False else "mean"
    if reduce is False:
        named = "none"
    errors.warn(
        f"size_average and reduce args will be deprecated, please use reduction='{named}' instead.",
    )
    return named


def reduced(values: Tensor, reduction: str) -> Tensor:
    """The values put together; ValueError for a reduction that is not known."""
    losses.check_reduction(reduction)
    return losses.reduced(values, reduction)


def get_enum(reduction: str) -> int:
    """The number of a reduction.

    Raises:
        ValueError: if there is none of that name.
    """
    if reduction == "elementwise_mean":
        errors.warn(
            "reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead."
        )
        reduction = "mean"
    if reduction not in NUMBERS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return NUMBERS.index(reduction)


NUMBERS = ("none", "mean", "sum")


def legacy_get_string(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> str:
    """The reduction that the two deprecated flags name."""
    if emit_warning:
        return chosen_reduction(size_average is not False, reduce is not False, "mean")
    return "none" if reduce is False else "sum" if size_average is False else "mean"


def legacy_get_enum(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> int:
    """The number of the reduction that the two deprecated flags name."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
