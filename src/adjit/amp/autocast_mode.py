"""`autocast`, which is never on: what it is asked for is looked at, and refused with a warning."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from .. import driver
from ..devices import device
from ..dtypes import bfloat16, dtype, float16

__all__ = [
    "autocast", "clear_autocast_cache", "custom_bwd", "custom_fwd", "get_autocast_dtype",
    "get_autocast_gpu_dtype", "is_autocast_available", "is_autocast_cache_enabled",
    "is_autocast_cpu_enabled", "is_autocast_enabled",
]  # fmt: skip

# What PyTorch casts to where nothing else is asked for.
_HALVES = {"cpu": bfloat16, "cuda": float16, "mps": float16, "xpu": float16}


class autocast:
    """Let a block, or a function that it decorates, compute in the dtypes of its tensors.

    PyTorch computes products and convolutions in half precision inside of it. adjit has float32 and float64:
    where it is enabled it warns, as PyTorch does for dtypes that a device has not, and is not enabled then.

    Args:
        device_type: "cpu" or "cuda".
        dtype: what PyTorch would compute in.
        enabled: False for no warning.
        cache_enabled: of no effect.

    Raises:
        ValueError: if `device_type` is no string.
        RuntimeError: if there is no such type of device.

    Example:
        >>> with adjit.autocast("cpu", enabled=False):
        ...     print(adjit.is_autocast_enabled("cpu"))
        False
    """

    def __init__(
        self,
        device_type: str,
        dtype: dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self.device = device_type
        self._enabled = False
        if enabled and device_type == "cuda" and driver.reason():
            warnings.warn("CUDA is not available. Disabling autocast.", stacklevel=2)
        elif enabled:
            warnings.warn(
                f"In {device_type.upper()} autocast, but the target dtype is not supported. "
                "Disabling autocast.\n"
                "adjit computes in float32 and float64; write enabled=False for no warning.",
                stacklevel=2,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        pass

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(func):
            raise TypeError(
                f"autocast()(func) requires a callable, but got {type(func).__name__}. "
                "Did you mean to use autocast as a context manager? For example:\n"
                "    with adjit.autocast(device_type=...):\n"
                "        output = model(input)"
            )
        return func


def is_autocast_available(device_type: str) -> bool:
    """True for the types of devices that `autocast` may be asked for.

    Raises:
        RuntimeError: if there is no such type of device.

    Example:
        >>> adjit.amp.is_autocast_available("cpu")
        True
    """
    return _half(device_type) is not None


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """False: nothing is cast.

    Example:
        >>> adjit.is_autocast_enabled()
        False
    """
    return False


def is_autocast_cpu_enabled() -> bool:
    """False: nothing is cast.

    Example:
        >>> adjit.is_autocast_cpu_enabled()
        False
    """
    return False


def is_autocast_cache_enabled() -> bool:
    """True, as in PyTorch if nothing was set; there is nothing to keep.

    Example:
        >>> adjit.is_autocast_cache_enabled()
        True
    """
    return True


def clear_autocast_cache() -> None:
    """Do nothing: no weights are cast.

    Example:
        >>> adjit.clear_autocast_cache()
    """


def get_autocast_dtype(device_type: str) -> dtype:
    """Tell what PyTorch casts to on a type of device.

    Raises:
        ValueError: if `device_type` is no string.
        RuntimeError: if there is no such type of device.

    Example:
        >>> adjit.get_autocast_dtype("cpu")
        adjit.bfloat16
    """
    return _half(device_type)


def get_autocast_gpu_dtype() -> dtype:
    """Tell what PyTorch casts to on GPUs.

    Example:
        >>> adjit.get_autocast_gpu_dtype()
        adjit.float16
    """
    return _HALVES["cuda"]


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: dtype | None = None
) -> Callable[..., Any]:
    """Decorate `forward` of an `autograd.Function`: it casts nothing, since `autocast` is never enabled.

    Raises:
        ValueError: if `device_type` is no string.

    Example:
        >>> class Double(adjit.autograd.Function):
        ...     @staticmethod
        ...     @adjit.amp.custom_fwd(device_type="cuda", cast_inputs=adjit.float32)
        ...     def forward(ctx, x):
        ...         return 2 * x
        ...
        ...     @staticmethod
        ...     @adjit.amp.custom_bwd(device_type="cuda")
        ...     def backward(ctx, grad):
        ...         return 2 * grad
        >>> Double.apply(adjit.ones(2))
        tensor([2., 2.])
    """
    _check(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    target, forward = get_autocast_dtype(device_type), fwd

    @functools.wraps(forward)
    def decorated(context: Any, *args: Any, **kwargs: Any) -> Any:
        context._dtype, context._fwd_used_autocast = target, False
        return forward(context, *args, **kwargs)

    return decorated


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorate `backward` of an `autograd.Function` whose `forward` has `custom_fwd`.

    Raises:
        ValueError: if `device_type` is no string.

    Example:
        >>> backward = adjit.amp.custom_bwd(lambda ctx, grad: 2 * grad, device_type="cuda")
    """
    _check(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)
    return bwd


def _check(device_type: Any) -> None:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")


def _half(device_type: Any) -> dtype:
    """What PyTorch casts to on a type of device; an error if there is no such type."""
    _check(device_type)
    kind = device(device_type).type
    if kind not in _HALVES:
        raise RuntimeError(f"User specified an unsupported autocast device_type '{kind}'")
    return _HALVES[kind]
