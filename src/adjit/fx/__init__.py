"""PyTorch's `torch.fx`, as far as programs mark functions for it: nothing is traced symbolically here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .. import paths
from ..absent import absent

__all__ = ["wrap"]

F = TypeVar("F", bound="str | Callable[..., Any]")


def wrap(fn_or_name: F) -> F:
    """Return the function as it is, or its name: PyTorch's tracers would not look inside of it.

    Raises:
        RuntimeError: if it is neither.

    Example:
        >>> @adjit.fx.wrap
        ... def half(x):
        ...     return x / 2
        >>> half(adjit.ones(2))
        tensor([0.5000, 0.5000])
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name"
        )
    return fn_or_name


def get_proxy_mode() -> None:
    """None: nothing is traced symbolically.

    Example:
        >>> adjit.fx.experimental.proxy_tensor.get_proxy_mode() is None
        True
    """


paths.place("fx.experimental", ())
paths.place("fx.experimental.proxy_tensor", ("fx",))


def __getattr__(name: str) -> Any:
    """What PyTorch has and adjit has not."""
    raise absent("fx", name)
