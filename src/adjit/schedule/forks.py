"""Forks: a child gets every lock as it stands, but only the thread that forked.

A lock that another thread holds at that moment, ours, Numba's or LLVM's, would be held for ever in
the child. So a fork waits until no other thread schedules or compiles.
"""

from __future__ import annotations

import os

from . import plan_cache, settle
from .codegen import body
from .jit import cache

# In the order in which they are taken.
LOCKS = (settle.lock, *cache.locks, body.parsing)


def _before() -> None:
    for lock in LOCKS:
        lock.acquire()


def _after_in_parent() -> None:
    for lock in reversed(LOCKS):
        lock.release()


def _after_in_child() -> None:
    _after_in_parent()
    plan_cache.compiler.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
