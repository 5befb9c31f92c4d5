"""The planned tier: which structures have a plan, and who compiles its kernels.

A structure gets a plan when it comes back. Until its kernels are compiled, by a thread in the
background unless ADJIT_JIT says otherwise, its nodes are dispatched one by one. Where that would have to
wait for many kernels and a plan needs few, a structure gets its plan at once.
"""

from __future__ import annotations

import atexit
import functools
import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from .. import config
from ..devices import CPU
from ..locks import Lock
from ..storage import empty_cache
from . import run_cpu
from .graph_key import Structure
from .jit import native
from .jit.cache import compile_ahead, count_missing
from .jit.progress import progress
from .planning.plan import Plan
from .planning.recipe import IN_PLACE

MAX_PLANS = 8192  # of six operations 3 KB each
MAX_NODES = 1 << 16  # in all plans together, which take up to 2 KB a node
# Where sizes are ever others, a structure has to come once more for every so many batches that no plan was
# ready for, up to so many times: a plan takes a millisecond to lay out, one by one its nodes take 0.1 ms more.
CROWD, MOST_MORE = 512, 6
LARGE = 256  # operations of a graph that has to come back once more: laying it out takes 10 ms and 100 KB
QUIET = 0.5  # seconds without compiling, after which a program seems to have what it needs
MANY = 8  # kernels to compile, above which it is worth asking how many a plan would take
is_on = config.JIT != "off"


class PlanEntry:
    """What is known of a structure: how often it was seen, then its plan."""

    __slots__ = ("compiled_run", "is_ready", "nodes", "plan", "seen")

    def __init__(self) -> None:
        self.compiled_run: Any = None  # of the plan, if that is ready and runs in machine code
        self.seen = self.nodes = 0
        self.plan: Plan | None = None
        self.is_ready = False


entries: dict[Any, PlanEntry] = {}  # by the key of the structure, the one used last at the end
# How often structures were seen that have come too rarely for a plan, by the hash of their key: that of 200
# operations takes 10 KB, and where graphs never repeat it would be kept for nothing. If two have one hash,
# one of them gets its plan too early. (A dict would look for the oldest among those that have gone.)
rare: OrderedDict[int, int] = OrderedDict()
_nodes = 0  # of their plans
_unplanned = 0  # batches of sizes that are ever others, and that no plan was ready for


def plan_of(batch: Sequence[Any], structure: Structure) -> Plan | None:
    """The plan for a batch, None as long as it has to be dispatched. Callers hold the lock."""
    key = structure.key
    entry = entries.pop(key, None)
    if entry is not None and entry.is_ready:
        entries[key] = entry
        return entry.plan
    seen = 1 + (rare.pop(hash(key), 0) if entry is None else entry.seen)
    is_resized = any(node.recipe.is_resized for node in batch)
    wanted = _sightings_wanted(batch, is_resized)
    # Once, or anew where an interrupt has ended it.
    is_due = seen >= wanted if entry is None else seen == config.HOT
    # Else its kernels are there.
    may_lack_kernels = seen == 1 and batch[0].recipe.device is CPU and not is_resized
    if entry is None and not is_due and not may_lack_kernels:
        _note_rare(key, seen)
        return None
    entry = entry or PlanEntry()
    entry.seen = seen
    if is_due:
        _make(entry, batch, structure)
    elif may_lack_kernels:
        _make_at_once(entry, batch, structure)
    if entry.plan is None and seen < wanted:
        _note_rare(key, seen)
    else:
        entries[key] = entry
        _forget_the_oldest()
    if entry.plan is not None and entry.plan.is_ready:
        entry.plan.finish()
        entry.is_ready, entry.compiled_run = True, entry.plan.compiled_run
        empty_cache()  # of what dispatching needed: more, and in other sizes
        return entry.plan
    return None


def _sightings_wanted(batch: Sequence[Any], is_resized: bool) -> int:
    """How often a structure has to come before it gets a plan."""
    global _unplanned
    wanted = config.HOT
    if wanted > 1:  # else somebody has asked for plans at once
        wanted += len(batch) >= LARGE
        if is_resized:
            _unplanned += 1
            wanted += min(_unplanned // CROWD, MOST_MORE)
    return wanted


def _note_rare(key: Any, seen: int) -> None:
    """Note how often a structure was seen that has no plan."""
    rare[hash(key)] = seen
    if len(rare) > MAX_PLANS:
        rare.popitem(last=False)


def _forget_the_oldest() -> None:
    """Keep to the bounds, but for the newest plan, whatever its size."""
    global _nodes
    while len(entries) > MAX_PLANS or (_nodes > MAX_NODES and len(entries) > 1):
        _nodes -= entries.pop(next(iter(entries))).nodes


def _make(entry: PlanEntry, batch: Sequence[Any], structure: Structure) -> None:
    """Lay out a plan and see to its kernels."""
    plan = _laid_out(batch, structure)
    if plan is None:
        return
    _keep(entry, plan, len(batch))
    if not plan.is_ready:
        compiler.add(functools.partial(_compile, entry))


def _make_at_once(entry: PlanEntry, batch: Sequence[Any], structure: Structure) -> None:
    """Compile a plan now, if that takes half as many kernels as running its nodes one by one, or fewer.

    A chain has a kernel for each of its operations, its plan one or two: GELU and its gradient 12 and 3,
    and the first call takes 1.07 s for 1.24.
    """
    alone = count_missing([step.source for node in batch for step in node.recipe.steps])
    plan = _laid_out(batch, structure) if alone > MANY else None
    if plan is not None and 2 * count_missing(plan.sources) <= alone:
        compile_ahead(plan.sources, run_cpu.functions(large=plan.large))
        _keep(entry, plan, len(batch))
        _compile(entry)


def _laid_out(batch: Sequence[Any], structure: Structure) -> Plan | None:
    """A plan for a batch, None where it has to be dispatched one by one for good."""
    if any(node.recipe.write == IN_PLACE or node.recipe.here for node in batch):
        return None  # writes into shared memory are done at once, one by one
    if any(node.recipe.pick >= 0 and node.inputs[0].recipe is None for node in batch):
        return None  # an interrupt came between a node and what picks its results: it is not here
    try:
        plan = plan_for(batch, structure, config.MIN_FUSED)
    except Exception as error:
        warn(f"adjit could not plan {len(batch)} operations", error)
        return None
    return plan if plan.is_worth_it else None


def _keep(entry: PlanEntry, plan: Plan, nodes: int) -> None:
    """Remember a plan of so many nodes."""
    global _nodes
    entry.plan = plan
    _nodes += nodes - entry.nodes
    entry.nodes = nodes


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
    from .gpu.plan import GpuPlan

    return GpuPlan(batch, structure, least)


def warn(what: str, error: Exception) -> None:
    """Report that something is dispatched one by one for good."""
    warnings.warn(
        f"{what} ({type(error).__name__}: {error}); its operations go on running one by one",
        RuntimeWarning,
        stacklevel=3,
    )


def _compile(entry: PlanEntry) -> None:
    """Compile what a plan needs; without a compiler that can, dispatching goes on."""
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
    """Compiles one thing after another, in a thread that is there as long as there is work."""

    def __init__(self) -> None:
        # The first is being done. Nothing of the second list is begun while there is something in the first,
        # or while the program compiles: the machine code of the fast paths takes 20 s, and each part of it
        # would have a kernel that the program waits for wait.
        self._works: list[Callable[[], object]] = []
        self._for_later: list[Callable[[], object]] = []
        self._thread: threading.Thread | None = None
        self._lock = Lock()
        self._is_urgent = threading.Event()  # somebody waits for all of it
        self._closed = False

    def add(self, work: Callable[[], object]) -> None:
        """Do some compiling as soon as there is time; at once if ADJIT_JIT is `sync`."""
        self._add(work, self._works)

    def add_for_later(self, work: Callable[[], object]) -> None:
        """The same for what helps a program in the long run, once it has nothing else to compile."""
        self._add(work, self._for_later)

    def _add(self, work: Callable[[], object], works: list[Callable[[], object]]) -> None:
        if config.JIT == "sync":
            work()
            return
        with self._lock:
            works.append(work)
            self._start()

    def _start(self) -> None:
        """See that there is a thread. Callers hold the lock."""
        if not self._is_working() and not self._closed:
            self._thread = threading.Thread(target=self._work, name="adjit-jit", daemon=True)
            self._thread.start()

    def _is_working(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _work(self) -> None:
        while True:
            with self._lock:
                works = self._works or self._for_later
                if not works or self._closed:
                    self._thread = None  # one that ends looks alive for a while
                    return
                work = works[0]
            if works is self._for_later and self._is_in_the_way():
                del work
                self._is_urgent.wait(QUIET)
                continue
            try:
                work()
            except Exception:  # a warning that is an error, say: it is shown, and the rest goes on
                args = (*sys.exc_info(), threading.current_thread())
                threading.excepthook(threading.ExceptHookArgs(args))
            finally:
                del work  # nor does it keep anything while the thread waits for the lock
                with self._lock:
                    del works[0]

    def _is_in_the_way(self) -> bool:
        """Whether the program compiles, and nobody waits for what is done here."""
        return progress.seconds_since() < QUIET and not self._is_urgent.is_set()

    def wait(self) -> None:
        """Wait until nothing is left to do."""
        self._is_urgent.set()
        try:
            while True:
                with self._lock:
                    if self._works or self._for_later:
                        self._start()
                    thread = self._thread if self._is_working() else None
                if thread is None:
                    return
                thread.join()
        finally:
            self._is_urgent.clear()

    def close(self) -> None:
        """Drop what waits, and wait for the kernel that is being compiled."""
        self._closed = True
        self.wait()

    def after_fork(self) -> None:
        """In a child, which has no threads: what was left is done when more is to be compiled, or never."""
        self._lock = Lock()
        self._is_urgent = threading.Event()
        self._thread = None


compiler = _Compiler()
atexit.register(compiler.close)
wait = compiler.wait


def clear() -> None:
    """Forget every plan."""
    global _nodes, _unplanned
    entries.clear()
    rare.clear()
    _nodes = _unplanned = 0


native.register_layout(ENTRY=PlanEntry)
