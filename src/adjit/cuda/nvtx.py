"""Names for parts of the program in traces: PyTorch's names of NVIDIA's markers, on the own profile."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from ..profiler import record_function

__all__ = ["mark", "range", "range_pop", "range_push"]


class _Open(threading.local):
    """The parts that this thread has begun."""

    def __init__(self) -> None:
        self.parts: list[record_function] = []


_open = _Open()


def range_push(msg: str) -> int:
    """Begin a part with a name, in the trace of the active profile; returns how many were open before.

    Example:
        >>> adjit.cuda.nvtx.range_push("forward")
        0
        >>> adjit.cuda.nvtx.range_pop()
        0
    """
    part = record_function(msg)
    part.__enter__()
    _open.parts.append(part)
    return len(_open.parts) - 1


def range_pop() -> int:
    """End the part that was begun last; returns how many are open then, -1 if none was.

    Example:
        >>> adjit.cuda.nvtx.range_pop()
        -1
    """
    if not _open.parts:
        return -1
    _open.parts.pop().__exit__(None, None, None)
    return len(_open.parts)


def mark(msg: str) -> None:
    """Name a moment in the trace of the active profile.

    Example:
        >>> adjit.cuda.nvtx.mark("here")
    """
    with record_function(msg):
        pass


@contextlib.contextmanager
def range(msg: str, *args: object, **kwargs: object) -> Iterator[None]:
    """Give a block a name, with arguments put in as by `str.format`.

    Example:
        >>> with adjit.cuda.nvtx.range("step {}", 3):
        ...     pass
    """
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
