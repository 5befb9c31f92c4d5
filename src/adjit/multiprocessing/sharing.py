"""Tensors that are passed to other processes: their memory is shared, and ends with the last of them."""

from __future__ import annotations

from multiprocessing.heap import Arena
from multiprocessing.reduction import ForkingPickler
from typing import Any

from .. import devices
from ..graph import copies, record
from ..ops.sharing import SharedMemory, share
from ..storage import Storage

STRATEGY = "file_descriptor"


def _reduced(storage: Storage) -> tuple[Any, ...]:
    """What a storage is for another process: a descriptor of its memory, which it moves to if it must."""
    if storage.spec.device is not devices.CPU:
        raise NotImplementedError(
            "tensors on GPUs cannot be passed to other processes; pass x.cpu() instead"
        )
    share(storage)
    return _rebuilt, (storage.value.address.memory, copies._plain(storage.spec))


def _rebuilt(arena: Arena, plain: Any) -> Storage:
    """The storage in another process, on the same memory."""
    spec = copies.spec_from(plain, devices.CPU)
    made = record.make_storage(record.ready_node(SharedMemory.of(arena)), spec)
    made.shared = 1
    return made


def init_reductions() -> None:
    """Have queues, pipes and arguments of processes pass tensors in shared memory; an import does it.

    Example:
        >>> adjit.multiprocessing.init_reductions()
    """
    ForkingPickler.register(Storage, _reduced)


def get_all_sharing_strategies() -> set[str]:
    """Name the ways in which memory is shared.

    Example:
        >>> adjit.multiprocessing.get_all_sharing_strategies()
        {'file_descriptor'}
    """
    return {STRATEGY}


def get_sharing_strategy() -> str:
    """Name the way in which memory is shared.

    Example:
        >>> adjit.multiprocessing.get_sharing_strategy()
        'file_descriptor'
    """
    return STRATEGY


def set_sharing_strategy(new_strategy: str) -> None:
    """Choose how memory is shared: there is one way. `"file_system"` is accepted, and is the same.

    Raises:
        AssertionError: for another name.

    Example:
        >>> adjit.multiprocessing.set_sharing_strategy("file_descriptor")
    """
    if new_strategy not in (STRATEGY, "file_system"):
        raise AssertionError(f"invalid sharing strategy {new_strategy!r}")
