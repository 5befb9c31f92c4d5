"""The hot tier: which structures have a plan, and who compiles its kernels.

A structure gets a plan when it comes back. Until its kernels are compiled, by a thread in the
background unless ADJIT_JIT says otherwise, its nodes go the cold road.
"""

from __future__ import annotations

import atexit
import functools
import queue
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from .. import config
from ..devices import CPU
from ..storage import empty_cache
from .plan import Plan
from .structure import Structure

MAX_PLANS = 1024
MAX_NODES = 1 << 16  # in all plans together, which take up to 2 KB a node
is_on = config.JIT != "off"


class Entry:
    """What is known of a structure: how often it was seen, then its plan."""

    __slots__ = ("is_ready", "nodes", "plan", "seen")

    def __init__(self) -> None:
        self.seen = self.nodes = 0
        self.plan: Plan | None = None
        self.is_ready = False


_entries: dict[Any, Entry] = {}  # by the key of the structure, the one used last at the end
_nodes = 0  # of their plans


def plan_of(batch: Sequence[Any], structure: Structure) -> Plan | None:
    """The plan for a batch, None as long as it has to go the cold road. Callers hold the lock."""
    entry = _entries.pop(structure.key, None) or Entry()
    _entries[structure.key] = entry
    if entry.is_ready:
        return entry.plan
    entry.seen += 1
    if entry.seen == config.HOT:
        _make(entry, batch, structure)
    _forget_the_oldest()
    if entry.plan is not None and entry.plan.is_ready:
        entry.plan.finish()
        entry.is_ready = True
        empty_cache()  # of what the cold road needed: more, and in other sizes
        return entry.plan
    return None


def _forget_the_oldest() -> None:
    """Keep to the bounds, but for the newest plan, whatever its size."""
    global _nodes
    while len(_entries) > MAX_PLANS or (_nodes > MAX_NODES and len(_entries) > 1):
        _nodes -= _entries.pop(next(iter(_entries))).nodes


def _make(entry: Entry, batch: Sequence[Any], structure: Structure) -> None:
    """Lay out a plan and see to its kernels."""
    global _nodes
    if any(node.recipe.write == "here" for node in batch):
        return  # writes into shared memory are done at once, one by one
    try:
        entry.plan = plan_for(batch, structure, config.MIN_FUSED)
    except Exception as error:
        warn(f"adjit could not plan {len(batch)} operations", error)
        return
    _nodes += len(batch) - entry.nodes
    entry.nodes = len(batch)
    if entry.plan.is_ready:
        return
    compiler.add(functools.partial(_compile, entry))


def plan_for(batch: Sequence[Any], structure: Structure, least: int) -> Plan:
    """The plan of a batch on the device that it runs on.

    Raises:
        NotImplementedError: if that is no single one.
    """
    place = batch[0].recipe.device if batch else CPU
    if any(node.recipe.device is not place or node.recipe.crosses for node in batch):
        raise NotImplementedError(
            "operations of several devices, or copies between devices, have no plan in common: move "
            "tensors before, and let what they become be computed on one device"
        )
    if place is CPU:
        return Plan(batch, structure, least)
    from .plan_cuda import GpuPlan

    return GpuPlan(batch, structure, least)


def warn(what: str, error: Exception) -> None:
    """Report that something goes the cold road for good."""
    warnings.warn(
        f"{what} ({type(error).__name__}: {error}); its operations go on running one by one",
        RuntimeWarning,
        stacklevel=3,
    )


def _compile(entry: Entry) -> None:
    """Compile what a plan needs; without a compiler that can, the cold road goes on."""
    assert entry.plan is not None
    for source in entry.plan.sources:
        try:
            entry.plan.link(source)
        except Exception as error:
            entry.plan = None
            warn(f"adjit could not compile {source.label}", error)
            return
        except BaseException:  # the next time
            entry.plan, entry.seen = None, 0
            raise


class _Compiler:
    """A thread that compiles one thing after another and ends with the process."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False
        self.pending = 0  # what was asked for and is not done

    def add(self, work: Callable[[], object]) -> None:
        """Do some compiling as soon as there is time; at once if ADJIT_JIT is `sync`."""
        if config.JIT == "sync":
            work()
            return
        with self._lock:
            self.pending += 1
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="adjit-jit", daemon=True)
                self._thread.start()
        self._queue.put(work)

    def _work(self) -> None:
        while (work := self._queue.get()) is not None and not self._closed:
            try:
                work()
            except Exception:  # a warning that is an error, say: it is shown, and the rest goes on
                args = (*sys.exc_info(), threading.current_thread())
                threading.excepthook(threading.ExceptHookArgs(args))
            finally:
                with self._lock:
                    self.pending -= 1

    def close(self) -> None:
        """Drop what waits, and wait for the kernel that is being compiled."""
        self._closed = True
        self._queue.put(None)
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()


compiler = _Compiler()
atexit.register(compiler.close)


def wait() -> None:
    """Wait until all that has been asked for is compiled."""
    while compiler.pending:
        time.sleep(0.001)


def clear() -> None:
    """Forget every plan."""
    global _nodes
    _entries.clear()
    _nodes = 0
