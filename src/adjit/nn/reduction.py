"""The `reduction` argument of losses, with PyTorch's older spellings of it."""

from __future__ import annotations

import warnings

from ..ops import losses
from ..tensor import Tensor


def chosen_reduction(
    size_average: bool | None, reduce: bool | None, reduction: str, *, stacklevel: int = 3
) -> str:
    """The reduction asked for, by its name or by the two deprecated flags, of which a warning tells at the
    line of the caller's caller, or further out.
    """
    if size_average is None and reduce is None:
        return reduction
    named = "sum" if size_average is False else "mean"
    if reduce is False:
        named = "none"
    warnings.warn(
        f"size_average and reduce args will be deprecated, please use reduction='{named}' instead.",
        stacklevel=stacklevel,
    )
    return named


def reduced(values: Tensor, reduction: str) -> Tensor:
    """The values put together; ValueError for a reduction that is not known."""
    losses.check_reduction(reduction)
    return losses.reduced(values, reduction)
