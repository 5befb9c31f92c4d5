"""`adjit.compiler`: PyTorch's names for what steers `adjit.compile`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from .captured.compiled import BACKENDS, compile, reset
from .graph.state import state

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable",
    "is_compiling", "is_dynamo_compiling", "is_exporting", "list_backends", "reset",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Keep a function from being captured: a compiled function that calls it runs as usual.

    Args:
        fn: the function; without it, a decorator.
        recursive: accepted; what the function calls is not captured in either case.
        reason: why, for `ADJIT_LOGS=graph_breaks`.

    Example:
        >>> @adjit.compiler.disable
        ... def report(loss):
        ...     print("loss", loss.item())
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)

    @functools.wraps(fn, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        if state.session is not None:
            name = getattr(fn, "__qualname__", repr(fn))
            state.session.refuse(
                f"it calls {name}, which is disabled: {reason or 'no reason given'}"
            )
        before, state.compiling = state.compiling, False
        try:
            return fn(*args, **kwargs)
        finally:
            state.compiling = before

    return call


def is_compiling() -> bool:
    """Whether a function that `adjit.compile` has made is being called."""
    return state.compiling


def is_dynamo_compiling() -> bool:
    """The same as `is_compiling`."""
    return state.compiling


def is_exporting() -> bool:
    """Never: there is no export."""
    return False


def allow_in_graph(fn: F) -> F:
    """Accepted: what a function does to tensors is captured in any case, what it reads is guarded."""
    return fn


def assume_constant_result(fn: F) -> F:
    """Accepted: a result is constant as long as what the function reads is."""
    return fn


def cudagraph_mark_step_begin() -> None:
    """Accepted: results of captured calls have memory of their own."""


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The names that `adjit.compile` takes as `backend`."""
    return sorted(BACKENDS)
