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
