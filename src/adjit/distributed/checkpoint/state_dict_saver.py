"""`save` and `async_save`: every rank plans and writes, the coordinator decides and completes."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from typing import Any
from weakref import WeakKeyDictionary

from ...graph import record
from ...schedule import settle
from ...utils._pytree import tree_map
from ..group import ProcessGroup, find, is_initialized, new_group
from .coordination import Coordination
from .default_planner import DefaultSavePlanner
from .filesystem import FileSystemWriter
from .metadata import STATE_DICT_TYPE, Metadata
from .planner import SavePlan, SavePlanner
from .stateful import Stateful
from .storage import Identity, StorageWriter, WriteResult

__all__ = ["AsyncCheckpointerType", "async_save", "save", "save_state_dict"]


class AsyncCheckpointerType(Enum):
    """The ways in which `async_save` could go on; here it is a thread.

    Example:
        >>> from adjit.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
        >>> AsyncCheckpointerType.THREAD.value
        'thread'
    """

    THREAD = "thread"
    PROCESS = "process"


def save(
    state_dict: STATE_DICT_TYPE,
    *,
    checkpoint_id: Identity | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Metadata:
    """Write a state as a checkpoint, a folder that `load` reads; all processes of a group call it.

    Values that several processes have are written by one of them; they are taken to be the same. Objects with
    a `state_dict`, as modules and optimisers, are written by it. Until all is written, an older checkpoint in
    the folder stays as it is.

    Args:
        state_dict: nested dicts and lists of tensors and of what `adjit.save` writes.
        checkpoint_id: the folder.
        storage_writer: writes otherwise than `FileSystemWriter(checkpoint_id)` does.
        planner: plans otherwise than `DefaultSavePlanner()` does.
        process_group: the processes that save together; the default group if it is not given.
        no_dist: this process saves alone, as one without a process group does, which warns.
        use_collectives: must be True.

    Returns:
        What the checkpoint has.

    Raises:
        CheckpointException: with the errors by rank, if anything fails on any.
        RuntimeError: if there is neither a name nor a writer.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> model = nn.Linear(2, 1)
        >>> metadata = dcp.save({"model": model, "epoch": 3}, checkpoint_id="checkpoint")
        >>> list(metadata.state_dict_metadata)
        ['model.weight', 'model.bias', 'epoch']
    """
    _check_collectives(use_collectives)
    no_dist = alone(no_dist, "save")
    writer = _writer_of(storage_writer, checkpoint_id)
    return _save_state_dict(
        _states(state_dict), writer, process_group, no_dist=no_dist, planner=planner
    )


def async_save(
    state_dict: STATE_DICT_TYPE,
    *,
    checkpoint_id: Identity | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: ProcessGroup | None = None,
    async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD,
    async_stager: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Future[Metadata]:
    """Copy a state, and `save` the copy in a thread while the program goes on.

    Args:
        state_dict, checkpoint_id, storage_writer, planner, process_group: as of `save`.
        no_dist, use_collectives: as of `save`.
        async_checkpointer_type: must be `THREAD`.
        async_stager: whose `stage(state_dict)` gives the copy.

    Returns:
        A `concurrent.futures.Future`, as in PyTorch, whose `result()` is what `save` gives or raises.

    Raises:
        NotImplementedError: for another process.
        AssertionError: for a process group without an engine for the CPU.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> weight = adjit.ones(2)
        >>> saved = dcp.async_save({"weight": weight}, checkpoint_id="checkpoint")
        >>> _ = weight.zero_()
        >>> _ = saved.result()
        >>> dcp.load(state := {"weight": weight}, checkpoint_id="checkpoint")
        >>> state["weight"]
        tensor([1., 1.])
    """
    _check_collectives(use_collectives)
    if async_checkpointer_type is not AsyncCheckpointerType.THREAD:
        raise NotImplementedError("async_save saves in a thread: give AsyncCheckpointerType.THREAD")
    no_dist = alone(no_dist, "save")
    group = None if no_dist else _group_of_its_own(process_group)
    writer = _writer_of(storage_writer, checkpoint_id)
    stage: Callable[[Any], Any] = _copied if async_stager is None else async_stager.stage
    staged = stage(_states(state_dict))
    thread = ThreadPoolExecutor(1, thread_name_prefix="AsyncCheckpointExecutor")
    done = thread.submit(_save_state_dict, staged, writer, group, no_dist=no_dist, planner=planner)
    thread.shutdown(wait=False)
    return done


def save_state_dict(
    state_dict: STATE_DICT_TYPE,
    storage_writer: StorageWriter,
    process_group: ProcessGroup | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: SavePlanner | None = None,
) -> Metadata:
    """Write a checkpoint; deprecated: `save` does it.

    Args:
        state_dict, storage_writer, process_group, no_dist, planner: as of `save`; objects with a `state_dict`
            are not asked for it.
        coordinator_rank: the rank in the group that decides.

    Raises:
        CheckpointException: as of `save`.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> writer = dcp.FileSystemWriter("checkpoint")
        >>> _ = dcp.save_state_dict({"epoch": 3}, writer, no_dist=True)
    """
    warnings.warn(
        "`save_state_dict` is deprecated and will be removed in future versions.Please use `save` instead.",
        FutureWarning,
        stacklevel=2,
    )
    storage_writer.reset()
    return _save_state_dict(
        state_dict, storage_writer, process_group, coordinator_rank, no_dist, planner
    )


def alone(no_dist: bool, what: str) -> bool:
    """Whether this process acts alone; then it warns as PyTorch does, for the caller's caller."""
    if found := no_dist or not is_initialized():
        warnings.warn(
            "torch.distributed is disabled, unavailable or uninitialized, assuming the intent is to "
            f"{what} in a single process.",
            stacklevel=3,
        )
    return found


def named(storage: Any, kind: Any, checkpoint_id: Identity | None) -> Any:
    """The reader or writer that is meant: that which is given, or one of `kind` for the name.

    Raises:
        RuntimeError: without a name, or for one that is no path.
    """
    if storage is not None:
        if checkpoint_id is not None:
            storage.reset(checkpoint_id)
        return storage
    if not checkpoint_id:
        raise RuntimeError(
            "`checkpoint_id` must be specified if storage_reader/storage_writer is None."
        )
    if not kind.validate_checkpoint_id(checkpoint_id):
        raise RuntimeError(
            "Cannot detect which StorageReader or StorageWriter to use. Please specify the "
            "storage_reader/storage_writer."
        )
    return kind(checkpoint_id)


def _writer_of(storage: StorageWriter | None, checkpoint_id: Identity | None) -> StorageWriter:
    writer: StorageWriter = named(storage, FileSystemWriter, checkpoint_id)
    return writer


def _check_collectives(use_collectives: bool) -> None:
    if not use_collectives:
        raise NotImplementedError(
            "use_collectives=False: ranks save together, or each one a checkpoint of its own by no_dist=True"
        )


def _states(state_dict: STATE_DICT_TYPE) -> STATE_DICT_TYPE:
    """A state with those of the objects in it that know theirs."""
    return {
        key: value.state_dict() if isinstance(value, Stateful) else value
        for key, value in state_dict.items()
    }


def _copied(state: STATE_DICT_TYPE) -> STATE_DICT_TYPE:
    """A state that nobody changes any more, its tensors computed and on the CPU."""

    def copied(value: Any) -> Any:
        return value.detach().cpu().clone() if record.is_tensor(value) else copy.deepcopy(value)

    found: STATE_DICT_TYPE = tree_map(copied, state)
    settle.settle_pending()
    return found


_groups: WeakKeyDictionary[ProcessGroup, ProcessGroup] = WeakKeyDictionary()


def _group_of_its_own(process_group: ProcessGroup | None) -> ProcessGroup | None:
    """The processes of a group as another one, whose collectives may come between those of the program.

    Raises:
        AssertionError: if it has no engine for the CPU.
    """
    group = find(process_group)
    if group is None:  # this process is in none
        return process_group
    if "cpu" not in group.channels:
        raise AssertionError(
            "A CPU backend must be enabled for async save; try initializing process group with "
            "'cpu:gloo,cuda:nccl'"
        )
    if group not in _groups:
        _groups[group] = new_group(group.ranks, use_local_synchronization=True)
    return _groups[group]


def _save_state_dict(
    state_dict: STATE_DICT_TYPE,
    storage_writer: StorageWriter,
    process_group: ProcessGroup | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: SavePlanner | None = None,
) -> Metadata:
    ranks = Coordination(process_group, not no_dist, coordinator_rank)
    plans: SavePlanner = planner or DefaultSavePlanner()
    metadata: Metadata | None = None

    def plan() -> SavePlan:
        plans.set_up_planner(
            state_dict=state_dict,
            storage_meta=storage_writer.storage_meta(),
            is_coordinator=ranks.is_coordinator,
        )
        storage_writer.set_up_storage_writer(ranks.is_coordinator)
        return storage_writer.prepare_local_plan(plans.create_local_plan())

    def decide(local_plans: list[SavePlan]) -> list[SavePlan]:
        nonlocal metadata
        decided, metadata = plans.create_global_plan(local_plans)
        return storage_writer.prepare_global_plan(decided)

    def write() -> list[WriteResult]:
        return storage_writer.write_data(plans.finish_plan(decided), plans).wait()

    def finish(results: list[list[WriteResult]]) -> Metadata:
        assert metadata is not None  # `decide` has run here
        storage_writer.finish(metadata, results)
        return metadata

    decided: SavePlan = ranks.reduce_scatter("plan", plan, decide)
    found: Metadata = ranks.all_reduce("write", write, finish)
    return found
