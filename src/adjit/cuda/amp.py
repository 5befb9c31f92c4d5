"""PyTorch's older names of `adjit.amp`, for GPUs."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from .. import amp, paths
from ..dtypes import dtype, float16

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]

paths.place("cuda.amp.autocast_mode", ("cuda.amp",))
paths.place("cuda.amp.grad_scaler", ("cuda.amp", "amp.grad_scaler"))


def _is_older(name: str, given: str) -> None:
    warnings.warn(
        f"`adjit.cuda.amp.{name}(args...)` is deprecated. Please use `adjit.amp.{name}({given})` instead.",
        FutureWarning,
        stacklevel=3,
    )


class autocast(amp.autocast):
    """`adjit.amp.autocast("cuda", ...)`.

    Example:
        >>> with adjit.cuda.amp.autocast(enabled=False):
        ...     y = adjit.ones(2) * 2
    """

    def __init__(
        self, enabled: bool = True, dtype: dtype = float16, cache_enabled: bool = True
    ) -> None:
        _is_older("autocast", "'cuda', args...")
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """`adjit.amp.GradScaler("cuda", ...)`.

    Example:
        >>> adjit.cuda.amp.GradScaler(enabled=False).is_enabled()
        False
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        _is_older("GradScaler", "'cuda', args...")
        super().__init__(
            "cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, cast_inputs: dtype | None = None
) -> Callable[..., Any]:
    """`adjit.amp.custom_fwd(..., device_type="cuda")`.

    Example:
        >>> forward = adjit.cuda.amp.custom_fwd(lambda ctx, x: 2 * x)
    """
    _is_older("custom_fwd", "args..., device_type='cuda'")
    if fwd is None:
        return functools.partial(amp.custom_fwd, device_type="cuda", cast_inputs=cast_inputs)
    return amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any]) -> Callable[..., Any]:
    """`adjit.amp.custom_bwd(..., device_type="cuda")`.

    Example:
        >>> backward = adjit.cuda.amp.custom_bwd(lambda ctx, grad: 2 * grad)
    """
    _is_older("custom_bwd", "args..., device_type='cuda'")
    return amp.custom_bwd(bwd, device_type="cuda")
