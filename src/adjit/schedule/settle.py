"""What to run, and when: the one place where recorded nodes become bytes.

Recorded nodes are pending, in a list in the order of their creation, which is an order of dependence.
Settling drops those that nobody can look at any more; the others run by the plan of their
structure or, if there is none, one by one.
"""

from __future__ import annotations

import operator
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import config, devices
from ..devices import CPU, device
from ..kernels.runtime.runner import STATUS_WORDS
from ..locks import Lock
from ..storage import allocate, size_class
from . import deferred, dispatch, plan_cache, profile
from .dispatch import Failed, fail, found_error
from .graph_key import Structure, read_batch, structure_of, structure_with
from .jit import disk, native
from .planning.plan import copied, run_compiled

lock = Lock()
pending: list[Any] = []
# Calls of captured functions whose results nobody has looked at: each has a method `run`, which takes
# it off the list. Recorded nodes may read their results.
waiting: list[Any] = []
MAX_PENDING = 1 if config.EAGER else config.MAX_PENDING
captured_threads: set[int] = set()  # inside of a function that is being captured
give_up: dict[int, Callable[[str], None]] = {}  # what these do when they look at a value after all

_refcount = sys.getrefcount
_bits = struct.Struct("d").pack, struct.Struct("q").unpack


def float_word(value: float) -> int:
    """The bits of a float64: how a number travels among the words of a step."""
    return _bits[1](_bits[0](value))[0]


def _settle(*, everything: bool = False) -> None:
    """Run what is recorded and still wanted, also by graphs alone if it is to be everything."""
    global _fresh
    if captured_threads and threading.get_ident() in captured_threads:
        return  # what is recorded there will run as one plan
    with lock:
        _fresh = 0
        if waiting:
            run_waiting()
        settle_pending(everything=everything)
    disk.tell()


def run_waiting() -> None:
    """Run the calls that wait. Callers hold the lock."""
    while waiting:
        waiting[0].run()


def settle_pending(*, everything: bool = False) -> None:
    """Run what is recorded and does not read what waits. Callers hold the lock."""
    if pending or (everything and deferred.nodes):
        if native.is_wanted:
            ask_for_machine_code()
        batch = pending[:]
        end = len(batch)
        try:
            del pending[:end]
            everything = everything or end >= MAX_PENDING  # what is left out stays bounded
            drop_unwanted(batch)
            if deferred.nodes:
                drop_unwanted(deferred.nodes)
                everything = everything or deferred.is_overdue()
                deferred.bring_back(batch, everything=everything)
            savers = deferred.taken_savers()
            can_wait = plan_cache.is_on and not everything
            if devices.gpus_used:
                _run_by_device(batch, savers if can_wait else None)
            else:
                _run(batch, savers if can_wait else None)
        finally:  # what was not reached, because of an error, stays in `pending`
            pending[:0] = batch


def ask_for_machine_code() -> None:
    """Count what the program has done, and have the recorders' machine code loaded once that is enough."""
    with lock:
        if plan_cache.is_on:
            native.settled(plan_cache.compiler.add_for_later)


def _run(batch: list[Any], savers: list[Any] | None) -> None:
    """Run nodes of the CPU, by their plan if they have one, but for those that can wait; without a list of
    savers, none can.

    What an error leaves stays in the batch, here and below. Signals arrive after calls and at the ends of
    loops, so moving nodes from one list to another has neither.
    """
    part = tables = None
    try:
        if savers is not None and deferred.tables and not _reads_failed(batch):
            tables = deferred.take_tables(batch)
        part = deferred.cut_down(batch, savers) if savers and not _reads_failed(batch) else None
        if not (plan_cache.is_on and len(batch) > 1 and _run_plan(batch, part)):
            if profile.active is None:
                dispatch.run(batch)
            else:
                dispatch.run_profiled(batch, profile.active)
        if part is not None:
            deferred.put_off(part, batch)
            part = None
        if tables is not None:
            deferred.put_off(tables, batch)
            tables = None
    finally:
        if part is not None:
            batch[:] = deferred.put_off(part, batch)
        if tables is not None:
            batch[:] = deferred.put_off(tables, batch)


def _run_by_device(batch: list[Any], savers: list[Any] | None) -> None:
    """Run nodes in order, those in a row that run on the same device together."""
    while batch:
        first = batch[0].recipe
        at = next(
            (
                k
                for k, node in enumerate(batch)
                if node.recipe.device is not first.device or node.recipe.crosses != first.crosses
            ),
            len(batch),
        )
        rest = batch[at:]
        try:
            del batch[at:]
            if first.device is CPU:
                _run(batch, savers)
            else:
                _run_on_gpu(batch, first.crosses)
        finally:
            batch += rest


def _run_on_gpu(batch: list[Any], crosses: bool) -> None:
    """Run nodes of one GPU, by their plan if they have one; copies between devices have none."""
    from .gpu import run

    if not (plan_cache.is_on and len(batch) > 1 and not crosses and _run_plan(batch)):
        run.run(batch)


def _drop_unwanted(batch: list[Any]) -> None:
    """Keep the nodes that something beside what is pending refers to; later nodes go first."""
    for at in range(len(batch) - 1, -1, -1):
        node = batch[at]
        if _refcount(node) <= _UNWANTED:
            del batch[at]


drop_unwanted = native.FastPath("dispatch", "drop_unwanted").function(
    _drop_unwanted, dispatch.context
)


def _reads_failed(batch: list[Any]) -> bool:
    """Whether a node, or what it reads, has failed."""
    return Failed.count > 0 and any(
        value.recipe.__class__ is Failed for node in batch for value in (node, *(node.inputs or ()))
    )


def _run_plan(batch: list[Any], part: deferred.DeferredPart | None = None) -> bool:
    """Run a batch by its plan, if it has one that is ready; what an error leaves stays in the batch."""
    if _reads_failed(batch):
        return False
    structure = structure_of(batch) if part is None else structure_with(batch, part.held)
    return _run_by(structure, batch, part)


def _run_by(
    structure: Structure, batch: list[Any], part: deferred.DeferredPart | None = None
) -> bool:
    """`_run_plan` for a batch whose structure is known."""
    plan = plan_cache.plan_of(batch, structure)
    if plan is None:
        return False
    if part is None and profile.active is None and plan.compiled_run is not None:
        done = run_compiled(plan.compiled_run, structure.externals, batch)
        if done is True:
            return True
        if done is not False:
            raise _stopped(plan, done, batch)
    blocks: list[Any] | None = None
    try:
        if plan.checked:
            plan.expect([(batch[at].recipe, batch[at].call_site) for at in plan.checked])
        blocks = plan.prepare(structure.externals)
        plan.set_numbers([batch[at].scalars for at in plan.numbered])
        sites = None if profile.active is None else profile.active.sites_of(batch)
        plan.run(sites)
        if plan.failed_node() < 0:
            _hand_out(batch, plan, blocks, part)
            return True
    except BaseException:
        if batch and blocks is not None and plan.has_run:  # else they have it
            _hand_out(batch, plan, blocks, part)
        raise
    raise _failed(plan, batch)


def _stopped(plan: Any, step: int, batch: list[Any]) -> BaseException:
    """The error of a plan that machine code has run up to a step."""
    plan.stopped = step
    return _failed(plan, batch)


def _failed(plan: Any, batch: list[Any]) -> BaseException:
    """The error of a node that found a bad value, which is taken off the batch."""
    node = batch.pop(plan.failed_node())
    error = found_error(node.recipe, tuple(plan.status[:STATUS_WORDS]), node.call_site)
    fail(node, error)
    return error


def _hand_out(
    batch: list[Any], plan: Any, blocks: list[Any], part: deferred.DeferredPart | None
) -> None:
    """Give the nodes that somebody holds their memory; the batch is done with."""
    for at, numbers in plan.results:
        node = batch[at]
        node.address = blocks[numbers[0]]
        if len(numbers) > 1:
            node.others = [blocks[k] for k in numbers]
    forget(batch if part is None else part.done(batch))
    batch.clear()


def _forget(batch: list[Any]) -> None:
    """Let nodes that have run forget how."""
    for node in batch:
        node.recipe = node.inputs = None


forget = native.FastPath("dispatch", "forget").function(_forget, dispatch.context)


def _calibrate() -> int:
    """The reference count that `_drop_unwanted` sees for a node held by what is pending alone."""
    batch = [object()]
    node = batch[0]
    return _refcount(node)


_UNWANTED = _calibrate()


def _value_of(storage: Any) -> Any:
    """The value of a storage, settled; raises what went wrong while it was computed."""
    if captured_threads and threading.get_ident() in captured_threads:
        stop_capturing("it looks at the value of a tensor")
    value = storage.value
    if value.recipe is not None:  # another thread may be computing it
        _settle_for(value)
        if value.recipe is not None:
            if isinstance(value.recipe, Failed):
                raise value.recipe.error
            raise RuntimeError("a recorded value could not be settled")
    return value


def _settle_for(value: Any) -> None:
    """Settle, and compute a value in any case."""
    with lock:  # another thread may be running it
        if deferred.nodes:
            drop_unwanted(deferred.nodes)
            deferred.bring_back(pending, [value])
        deferred.asked.append(id(value))
        try:
            settle()
        finally:
            deferred.asked.pop()


def stop_capturing(problem: str) -> None:
    """A function that this thread captures does what no plan can do: the call goes on as usual."""
    thread = threading.get_ident()
    if thread not in give_up:
        raise RuntimeError(
            "a value cannot be looked at while the backward of a tensor is only shown, not run: leave out the "
            "hook that looks at it"
        )
    captured_threads.discard(thread)
    give_up[thread](problem)


def fresh_block(nbytes: int, place: device = CPU) -> Any:
    """Memory for data from outside. Much of it since the last settle calls for one: recorded
    nodes keep what they read alive."""
    global _fresh
    nbytes = operator.index(nbytes)  # memory of a size that is not known would be for one size
    if place is not CPU:
        from .gpu import run

        with lock:
            return run.fresh_block(place, nbytes)
    with lock:
        _fresh += nbytes
        if _fresh > MAX_FRESH:
            settle()
        return allocate(size_class(nbytes))


_fresh = 0
MAX_FRESH = 1 << 25


def remember(node: Any) -> None:
    """Put a recorded node into `pending`."""
    pending.append(node)
    if len(pending) >= MAX_PENDING:
        settle()


def compute_readers(value: Any) -> None:
    """Compute what was left out and reads a value at which others are going to look. Callers hold the
    lock."""
    if deferred.nodes and any(value in node.inputs for node in deferred.nodes):
        settle(everything=True)


def own(value: Any, spec: Any) -> Any:
    """`value` of a storage itself if only that and the caller hold it and its bytes may be written, else a
    copy: they will be shared outside. Meanwhile it stays in the storage, which other threads may read."""
    if _refcount(value) <= _OWN and not getattr(value.address, "read_only", False):
        return value
    return copy_of(value, spec.nbytes, spec.device)


def copy_of(value: Any, nbytes: int, place: device) -> Any:
    """A value like another one, with a copy of its bytes."""
    if place is CPU:
        return copied(value, value.address, nbytes)
    from .gpu import run

    return run.copied(value, nbytes, place)


def _calibrate_own() -> int:
    """The reference count that `own` sees for a value that a storage and its caller's variable hold."""
    storage = [object()]
    value = storage[0]
    return _count_argument(value)


def _count_argument(value: Any) -> int:
    return _refcount(value)


_OWN = _calibrate_own()


# ----- machine code -----


def _run_read(batch: list[Any], key: bytes, externals: list[tuple[Any, int]]) -> bool:
    """`_run_plan` for a batch whose structure was read."""
    return _run_by(Structure(key, externals), batch)


def _raise_stopped(entry: plan_cache.PlanEntry, step: int, batch: list[Any]) -> None:
    """Raise what a step of a plan has found."""
    raise _stopped(entry.plan, step, batch)


class Scheduler(NamedTuple):
    """What settling in machine code looks at, and what it calls."""

    lists: tuple[list[Any], ...]  # all of these are empty as a rule, as are these
    sets: tuple[set[Any], ...]
    flags: tuple[native.ModuleVariable, ...]  # and these have their usual values
    pending: list[Any]
    acquire: Callable[[], bool]  # the lock
    release: Callable[[], None]
    entries: dict[Any, plan_cache.PlanEntry]
    drop_unwanted: Callable[..., None]
    read_batch: Callable[..., Any]
    run_compiled: Callable[..., Any]
    raise_stopped: Callable[..., None]
    run_read: Callable[..., bool]
    places: list[int]  # of the walk, of the team, of the status: empty before anything has run
    run_rows: Callable[..., bool]
    raise_bad_value: Callable[..., None]
    run: Callable[..., None]
    fresh: native.ModuleVariable
    zero: int
    none: None
    true: bool
    false: bool
    settle: Any = None


class SettleContext(NamedTuple):
    """What settling, and looking at a value, gets."""

    fallback: Callable[..., Any]
    scheduler: Scheduler


native.register_layout(SCHEDULER=Scheduler, SETTLE=SettleContext)
_scheduler = Scheduler(
    lists=(waiting, deferred.nodes, deferred.large_savers, devices.gpus_used),
    sets=(captured_threads,),
    flags=(
        native.variable(native.__name__, "is_wanted", False),
        native.variable(plan_cache.__name__, "is_on", True),
        native.variable(profile.__name__, "active", None),
    ),
    pending=pending,
    acquire=lock.acquire,
    release=lock.release,
    entries=plan_cache.entries,
    drop_unwanted=drop_unwanted,
    read_batch=read_batch,
    run_compiled=run_compiled,
    raise_stopped=_raise_stopped,
    run_read=_run_read,
    places=dispatch.places,
    run_rows=dispatch.run_rows,
    raise_bad_value=dispatch.raise_bad_value,
    run=dispatch.run,
    fresh=native.variable(__name__, "_fresh", 0),
    zero=0,
    none=None,
    true=True,
    false=False,
)
settle = native.FastPath("settle", "settle").function(_settle, SettleContext(_settle, _scheduler))
value_of = native.FastPath("settle", "value_of").function(
    _value_of, SettleContext(_value_of, _scheduler._replace(settle=settle))
)


def settle_walk() -> None:
    """`settle` at the end of a walk, whose gradients of tables may wait."""
    (_settle if deferred.tables else settle)()
