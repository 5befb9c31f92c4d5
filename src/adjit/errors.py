"""Errors that more than one room raises, and the place in the user's program they point at."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from types import CodeType, FrameType
from typing import NamedTuple

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep

CallSite = tuple[str, int, str]


class CachedCallSite(NamedTuple):
    """A line that called."""

    code: CodeType | None
    instruction: int  # how far the code was
    call_site: CallSite | None  # None where that is a line of the library


cached_call_sites = [CachedCallSite(None, -1, None)] * 256


class OutOfMemoryError(RuntimeError):
    """A tensor was asked for that this machine has no memory for: an error to catch.

    Example:
        >>> issubclass(adjit.OutOfMemoryError, RuntimeError)
        True
    """


def user_frame() -> FrameType | None:
    """The innermost frame outside the library."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame


warnings_given = 0  # how many: what warns is not replayed without its Python


def warn(text: str) -> None:
    """Warn of what the user's line does."""
    global warnings_given
    warnings_given += 1
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, UserWarning, stacklevel=level)


@functools.cache
def warn_once(text: str) -> None:
    """Warn once in a process of what the user's line does, and others may do again and again."""
    warn(text)


def user_call_site() -> CallSite | None:
    """File, line and function of the user's call into the library.

    Machine code looks in what is kept here before it calls this (`kernels/fastpath/call_sites.py`).
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code, at = frame.f_code, frame.f_lasti
        call_site = None
        if not code.co_filename.startswith(_PACKAGE):
            call_site = code.co_filename, frame.f_lineno, code.co_name
        cached_call_sites[(id(code) // 16 + at // 2) % len(cached_call_sites)] = CachedCallSite(
            code, at, call_site
        )
        if call_site is not None:
            return call_site
        frame = frame.f_back
    return None


def describe(call_site: CallSite | None) -> str:
    """`call_site` as text for an error message."""
    return (
        ""
        if call_site is None
        else f'File "{call_site[0]}", line {call_site[1]}, in {call_site[2]}'
    )
