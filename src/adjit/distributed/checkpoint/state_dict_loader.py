"""`load`: the tensors of a state are overwritten, its other values replaced."""

from __future__ import annotations

import warnings
from typing import Any

from ..group import ProcessGroup
from .coordination import Coordination
from .default_planner import DefaultLoadPlanner, _EmptyStateDictLoadPlanner
from .filesystem import FileSystemReader
from .metadata import STATE_DICT_TYPE
from .planner import LoadPlan, LoadPlanner
from .state_dict_saver import alone, named
from .stateful import Stateful
from .storage import Identity, StorageReader

__all__ = ["load", "load_state_dict"]


def load(
    state_dict: STATE_DICT_TYPE,
    *,
    checkpoint_id: Identity | None = None,
    storage_reader: StorageReader | None = None,
    planner: LoadPlanner | None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
) -> None:
    """Fill a state from a checkpoint; all processes of a group call it.

    Tensors are overwritten in place, wherever they are; other values are replaced. Objects with
    a `state_dict`, as modules and optimisers, give it to be filled, and get it by `load_state_dict`.

    Args:
        state_dict: what is read, which the checkpoint must have; what else it has is left out.
        checkpoint_id: the folder.
        storage_reader: reads otherwise than `FileSystemReader(checkpoint_id)` does.
        planner: plans otherwise than `DefaultLoadPlanner()` does.
        process_group: the processes that load together; the default group if it is not given.
        no_dist: this process loads alone, as one without a process group does, which warns.

    Raises:
        CheckpointException: with the errors by rank, if anything fails on any: a value that is missing,
            a tensor of another size, a file that is lost, truncated or corrupt.
        RuntimeError: if there is neither a name nor a reader.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> _ = dcp.save({"model": {"weight": adjit.ones(2)}, "epoch": 3}, checkpoint_id="checkpoint")
        >>> state = {"model": {"weight": adjit.zeros(2)}, "epoch": 0}
        >>> dcp.load(state, checkpoint_id="checkpoint")
        >>> state
        {'model': {'weight': tensor([1., 1.])}, 'epoch': 3}
    """
    no_dist = alone(no_dist, "load")
    reader = named(storage_reader, FileSystemReader, checkpoint_id)
    states = {}
    for key in sorted(state_dict):
        value = state_dict[key]
        states[key] = value.state_dict() if isinstance(value, Stateful) else value
    _load_state_dict(states, reader, process_group, no_dist=no_dist, planner=planner)
    for key, loaded in states.items():
        if isinstance(state_dict[key], Stateful):
            state_dict[key].load_state_dict(loaded)
        else:
            state_dict[key] = loaded


def load_state_dict(
    state_dict: STATE_DICT_TYPE,
    storage_reader: StorageReader,
    process_group: ProcessGroup | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
) -> None:
    """Fill a state from a checkpoint; deprecated: `load` does it.

    Args:
        state_dict, storage_reader, process_group, no_dist, planner: as of `load`; objects with a `state_dict`
            are not asked for it.
        coordinator_rank: the rank in the group that decides.

    Raises:
        CheckpointException: as of `load`.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> _ = dcp.save({"epoch": 3}, checkpoint_id="checkpoint")
        >>> dcp.load_state_dict(state := {"epoch": 0}, dcp.FileSystemReader("checkpoint"), no_dist=True)
        >>> state
        {'epoch': 3}
    """
    warnings.warn(
        "`load_state_dict` is deprecated and will be removed in future versions. Please use `load` instead.",
        FutureWarning,
        stacklevel=2,
    )
    storage_reader.reset()
    _load_state_dict(state_dict, storage_reader, process_group, coordinator_rank, no_dist, planner)


def _load_state_dict(
    state_dict: STATE_DICT_TYPE,
    storage_reader: StorageReader,
    process_group: ProcessGroup | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
) -> None:
    ranks = Coordination(process_group, not no_dist, coordinator_rank)
    plans: LoadPlanner = planner or DefaultLoadPlanner()

    def plan() -> LoadPlan:
        metadata = storage_reader.read_metadata()
        plans.set_up_planner(state_dict, metadata, ranks.is_coordinator)
        storage_reader.set_up_storage_reader(metadata, ranks.is_coordinator)
        return storage_reader.prepare_local_plan(plans.create_local_plan())

    def decide(local_plans: list[LoadPlan]) -> list[LoadPlan]:
        return storage_reader.prepare_global_plan(plans.create_global_plan(local_plans))

    def read() -> None:
        storage_reader.read_data(plans.finish_plan(decided), plans).wait()

    decided: LoadPlan = ranks.reduce_scatter("plan", plan, decide)
    ranks.all_gather("read", read)


def _load_state_dict_from_keys(
    keys: set[str] | str | None = None,
    *,
    checkpoint_id: Identity | None = None,
    storage_reader: StorageReader | None = None,
    process_group: ProcessGroup | None = None,
) -> dict[str, Any]:
    """All that a checkpoint has, or what lies under some names."""
    no_dist = alone(False, "load")
    reader = named(storage_reader, FileSystemReader, checkpoint_id)
    found: dict[str, Any] = {}
    planner = _EmptyStateDictLoadPlanner({keys} if isinstance(keys, str) else keys)
    _load_state_dict(found, reader, process_group, no_dist=no_dist, planner=planner)
    return found
