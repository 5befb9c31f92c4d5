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
    """True while a function that `adjit.compile` has made is being called.

    Example:
        >>> adjit.compiler.is_compiling()
        False
    """
    return state.compiling


def is_dynamo_compiling() -> bool:
    """True while `is_compiling` is, which is the newer name.

    Example:
        >>> adjit.compiler.is_dynamo_compiling()
        False
    """
    return state.compiling


def is_exporting() -> bool:
    """False: there is no export.

    Example:
        >>> adjit.compiler.is_exporting()
        False
    """
    return False


def allow_in_graph(fn: F) -> F:
    """Return the function: what it does to tensors is captured in any case, what it reads is guarded.

    Example:
        >>> adjit.compiler.allow_in_graph(abs) is abs
        True
    """
    return fn


def assume_constant_result(fn: F) -> F:
    """Return the function: its result is taken as constant as long as what it reads is.

    Example:
        >>> adjit.compiler.assume_constant_result(abs) is abs
        True
    """
    return fn


def cudagraph_mark_step_begin() -> None:
    """Change nothing: results of captured calls have memory of their own.

    Example:
        >>> adjit.compiler.cudagraph_mark_step_begin()
    """


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """List the names that `adjit.compile` takes as `backend`.

    Example:
        >>> "inductor" in adjit.compiler.list_backends()
        True
    """
    return sorted(BACKENDS)
