"""The CPU's side of running: the compiled runner, its threads, and plain copies of bytes."""

from __future__ import annotations

import ctypes

from ..kernels.runtime.runner import Runner
from .jit.cache import link_function

_runner = Runner(link_function)

run = _runner.run
run_timed = _runner.run_timed
walk_address = _runner.walk_address
team_address = _runner.team_address
functions = _runner.functions


def get_num_threads() -> int:
    """Tell the number of threads that big steps are split over.

    Example:
        >>> adjit.get_num_threads() >= 1
        True
    """
    return int(_runner.get_num_threads())


def set_num_threads(threads: int) -> None:
    """Set the number of threads that big steps are split over; no result depends on it.

    Raises:
        RuntimeError: if `threads` is not a positive integer.

    Example:
        >>> before = adjit.get_num_threads()
        >>> adjit.set_num_threads(1)
        >>> adjit.get_num_threads()
        1
        >>> adjit.set_num_threads(before)
    """
    _runner.set_num_threads(threads)


def threading_layer() -> str:
    """What runs the parts of a big step: "tbb", "workers" or "serial"."""
    return str(_runner.threading_layer())


def copy_bytes(target: int, source: int, nbytes: int) -> None:
    """Copy bytes that do not overlap."""
    ctypes.memmove(target, source, nbytes)
