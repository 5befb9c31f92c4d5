"""PyTorch's older name of `adjit.amp.autocast`, for CPUs."""

from __future__ import annotations

import warnings

from .. import amp, paths
from ..dtypes import bfloat16, dtype

__all__ = ["autocast"]

paths.place("cpu.amp.autocast_mode", ("cpu.amp",))


class autocast(amp.autocast):
    """`adjit.amp.autocast("cpu", ...)`.

    Example:
        >>> with adjit.cpu.amp.autocast(enabled=False):
        ...     y = adjit.ones(2) * 2
    """

    def __init__(
        self, enabled: bool = True, dtype: dtype = bfloat16, cache_enabled: bool = True
    ) -> None:
        warnings.warn(
            "`adjit.cpu.amp.autocast(args...)` is deprecated. "
            "Please use `adjit.amp.autocast('cpu', args...)` instead.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__("cpu", dtype, enabled, cache_enabled)
