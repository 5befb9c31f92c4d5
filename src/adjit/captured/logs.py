"""Why calls of compiled functions run as usual, and why they are captured again."""

from __future__ import annotations

import logging

from .. import config

log = logging.getLogger("adjit.compile")
KINDS = ("graph_breaks", "recompiles")


class Unsupported(RuntimeError):
    """A call of a function compiled with `fullgraph=True` cannot be captured."""


def set_logs(*, graph_breaks: bool = False, recompiles: bool = False) -> None:
    """Say on standard error why compiled functions run as usual, and why they are captured again.

    The environment variable `ADJIT_LOGS` does the same: `ADJIT_LOGS=graph_breaks,recompiles`. The lines go
    through the logger `adjit.compile`.

    Args:
        graph_breaks: calls that run as usual, and why.
        recompiles: captures that did not fit a call, and what had changed.
    """
    _wanted.clear()
    _wanted.update(
        name for name, is_on in zip(KINDS, (graph_breaks, recompiles), strict=True) if is_on
    )
    if _wanted and not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)


_wanted: set[str] = set()
set_logs(**{name: name in config.LOGS for name in KINDS})


def graph_breaks(function: str, problem: str) -> None:
    """A call of a function runs as usual."""
    if "graph_breaks" in _wanted:
        log.info("%s runs as usual: %s", function, problem)


def recompiles(function: str, changed: str) -> None:
    """A function is captured again."""
    if "recompiles" in _wanted:
        log.info("%s is captured again: %s has changed", function, changed)
