"""A line that says why a first step takes its time: kernels are being compiled.

It stands on stderr only while the main thread waits for a compiler, and is wiped out afterwards, so
that what a program prints never shares a line with it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

from ... import config
from .apart import is_for_main

PATIENCE = 1.0  # seconds of compiling before the line appears
PAUSE = 2.0  # seconds without, after which it is another occasion


class Progress:
    """Counts the kernels of an occasion: those compiled without a pause in between."""

    def __init__(self) -> None:
        self._count = 0
        self._began = self._ended = float("-inf")

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Around the compiling of one kernel."""
        if not is_for_main():
            yield  # nobody waits for those in the background
            return
        now = monotonic()
        if now - self._ended > PAUSE:
            self._count, self._began = 0, now
        self._count += 1
        self._ended = float("inf")
        line = ""
        if now - self._began > PATIENCE and _is_watched(sys.stderr):
            line = f"adjit: compiling kernels ({self._count} so far, first run only) ..."
            _write(f"\r{line}")
        try:
            yield
        finally:
            if line:
                _write("\r" + " " * len(line) + "\r")
            self._ended = monotonic()

    def seconds_since(self) -> float:
        """How long ago the main thread has last waited for a compiler; less than 0 while it does."""
        return monotonic() - self._ended


def _is_watched(stream: Any) -> bool:
    """Whether a stream is a terminal or the output of a notebook's cell, and lines are wanted."""
    if config.PROGRESS == "off":
        return False
    try:
        return bool(stream.isatty()) or type(stream).__module__ == "ipykernel.iostream"
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


def _write(text: str) -> None:
    with suppress(OSError, ValueError):  # a terminal that is gone costs the line, not the step
        sys.stderr.write(text)
        sys.stderr.flush()


progress = Progress()
