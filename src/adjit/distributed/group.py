"""Groups of processes: the default one, which everything starts with, and smaller ones."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from .. import devices
from ..devices import device
from . import mpi, nccl
from .rendezvous import rendezvous
from .store import DEFAULT_TIMEOUT, PrefixStore, Store

default_pg_timeout = timedelta(minutes=30)
NOT_INITIALIZED = (
    "Default process group has not been initialized, please make sure to call init_process_group."
)


class Backend(str):
    """The name of an engine in lower case: `mpi` and `gloo` are MPI on the CPU, `nccl` is NVIDIA's on GPUs.

    Raises:
        ValueError: if it is no string.

    Example:
        >>> adjit.distributed.Backend("GLOO")
        'gloo'
    """

    __slots__ = ()
    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    MPI = "mpi"

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish, got: {name}")
        return super().__new__(cls, name.lower())


ON = {"mpi": "cpu", "gloo": "cpu", "nccl": "cuda"}


class ProcessGroup:
    """Processes that communicate: what `new_group` gives, and `adjit.distributed.group.WORLD`.

    Example:
        >>> adjit.distributed.ProcessGroup.__name__
        'ProcessGroup'
    """

    def __init__(
        self, backend: Backend, ranks: Sequence[int], rank: int, store: Store | None, name: str,
        timeout: timedelta,
    ) -> None:  # fmt: skip
        self.backend, self.ranks, self._rank, self.store = backend, list(ranks), rank, store
        self.group_name, self.timeout = name, timeout
        self.channels: dict[str, Any] = {}  # by the kind of device

    def rank(self) -> int:
        """Tell the number of this process in the group.

        Example:
            >>> adjit.distributed.group.WORLD is None  # before init_process_group
            True
        """
        return self._rank

    def size(self) -> int:
        """Count the processes of the group.

        Example:
            >>> adjit.distributed.group.WORLD is None  # before init_process_group
            True
        """
        return len(self.ranks)

    def name(self) -> str:
        """Give the name of the engine.

        Example:
            >>> adjit.distributed.group.WORLD is None  # before init_process_group
            True
        """
        return str(self.backend)

    def channel(self, place: device) -> Any:
        """What moves the data of tensors on a device.

        Raises:
            RuntimeError: if the group has no engine for it.
        """
        kind = "cuda" if place is not devices.CPU else "cpu"
        found = self.channels.get(kind)
        if found is None:
            raise RuntimeError(f"No backend type associated with device type {kind}")
        return found

    def own_channel(self, place: device) -> Any:
        """A channel whose collectives may come between those of others. All processes ask for it."""
        found = self.channel(place)
        if place is not devices.CPU:
            return found
        return found.part(range(self.size()), mpi.OWN_NUMBER, self.timeout)


class GroupMember:
    """Names for who is in a group: `WORLD`, the default group, and `NON_GROUP_MEMBER`.

    Example:
        >>> adjit.distributed.GroupMember.NON_GROUP_MEMBER
        -100
    """

    NON_GROUP_MEMBER: Any = -100
    WORLD: ProcessGroup | None = None


class group:  # PyTorch's name
    """The default group, as `group.WORLD`: None before `init_process_group`.

    Example:
        >>> adjit.distributed.group.WORLD is None
        True
    """

    WORLD: ProcessGroup | None = None


_groups: list[ProcessGroup] = []  # all, the default one first
_numbers = itertools.count(1)


def _set_default(made: ProcessGroup | None) -> None:
    group.WORLD = GroupMember.WORLD = made


def default_group() -> ProcessGroup:
    """The default group.

    Raises:
        ValueError: before `init_process_group`, with PyTorch's text.
    """
    if group.WORLD is None:
        raise ValueError(NOT_INITIALIZED)
    return group.WORLD


def find(group: ProcessGroup | None) -> ProcessGroup | None:
    """The group that is meant; None if this process is not in it."""
    if group is GroupMember.NON_GROUP_MEMBER:
        return None
    return default_group() if group is None else group


def is_available() -> bool:
    """True: the module is always there; `is_mpi_available` tells of the engine.

    Example:
        >>> adjit.distributed.is_available()
        True
    """
    return True


def is_mpi_available() -> bool:
    """True if mpi4py and an MPI are installed.

    Example:
        >>> adjit.distributed.is_mpi_available() == adjit.distributed.is_gloo_available()
        True
    """
    return mpi.is_available()


def is_gloo_available() -> bool:
    """True if mpi4py and an MPI are installed, which answer to this name too.

    Example:
        >>> adjit.distributed.is_mpi_available() == adjit.distributed.is_gloo_available()
        True
    """
    return mpi.is_available()


def is_nccl_available() -> bool:
    """True if NVIDIA's nccl4py and a GPU are there.

    Example:
        >>> adjit.distributed.is_nccl_available() in (True, False)
        True
    """
    return nccl.is_available()


def is_backend_available(backend: str) -> bool:
    """True if the engine of a name is there.

    Example:
        >>> adjit.distributed.is_backend_available("ucc")
        False
    """
    name = backend.lower()
    return name in ON and (is_nccl_available() if name == "nccl" else is_mpi_available())


def get_default_backend_for_device(device: Any) -> str:
    """The engine that a type of device has where none is named.

    Raises:
        RuntimeError: if there is no such type of device.

    Example:
        >>> adjit.distributed.get_default_backend_for_device("cpu")
        'gloo'
    """
    return "nccl" if devices.device(device).type == "cuda" else "gloo"


def is_initialized() -> bool:
    """True between `init_process_group` and `destroy_process_group`.

    Example:
        >>> adjit.distributed.is_initialized()
        False
    """
    return group.WORLD is not None


def is_torchelastic_launched() -> bool:
    """True if `adjit.distributed.run` has started this process.

    Example:
        >>> adjit.distributed.is_torchelastic_launched()
        False
    """
    return "TORCHELASTIC_RUN_ID" in os.environ


def _engines(backend: str | None) -> dict[str, str]:
    """The engine for each kind of device that a name stands for.

    Raises:
        ValueError: for a name that is not known.
    """
    if backend is None or backend == Backend.UNDEFINED:
        return {"cpu": "gloo"} | ({"cuda": "nccl"} if nccl.is_available() else {})
    if not isinstance(backend, str):
        raise ValueError(f"Backend constructor parameter must be string-ish, got: {backend}")
    name = backend.lower()
    pairs = name if ":" in name else f"{ON.get(name, 'cpu')}:{name}"
    found = dict(part.split(":", 1) for part in pairs.split(","))
    for kind, engine in found.items():
        if engine not in ON:
            raise ValueError(
                f"Invalid backend: {engine!r}; there are mpi (also as gloo) on the CPU and nccl on GPUs"
            )
        if ON[engine] != kind:
            raise ValueError(f"Backend {engine} has nothing for device type {kind}")
    return found


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Start the communication of this process with the others: all of them call it, and it waits for them.

    Args:
        backend: `"mpi"` or `"gloo"`, both of which are MPI on the CPU's tensors; `"nccl"` for those on GPUs;
            `"cpu:gloo,cuda:nccl"` for both; None for what is there.
        init_method: how the processes find each other: `env://` (the default: RANK, WORLD_SIZE, MASTER_ADDR
            and MASTER_PORT say it), `tcp://host:port`, `file:///path`. Under `mpirun` nothing is needed.
        timeout: for each operation, 30 minutes if it is not given.
        world_size: how many processes there are.
        rank: the number of this one.
        store: instead of `init_method`.
        group_name, pg_options: accepted, without effect.
        device_id: the GPU that NCCL uses; the current one if it is not given.

    Raises:
        ValueError: if something is missing, contradicts itself, or the group is there already.
        RuntimeError: if there is no MPI, or NCCL.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.get_rank(), dist.get_world_size(), dist.get_backend()
        (0, 1, 'gloo')
        >>> dist.destroy_process_group()
    """
    if group.WORLD is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    if timeout is not None and not isinstance(timeout, timedelta):
        raise TypeError(
            f"Expected timeout argument to be of type datetime.timedelta, got {timeout}"
        )
    engines = _engines(backend)
    limit = default_pg_timeout if timeout is None else timeout
    if store is not None:
        if world_size <= 0:
            raise AssertionError("world_size must be positive if using store")
        if rank < 0:
            raise AssertionError("rank must be non-negative if using store")
        store = PrefixStore("default_pg", store)
    elif not (mpi.is_started_by_mpi() and init_method is None and "RANK" not in os.environ):
        store, rank, world_size = rendezvous(
            init_method or "env://", rank, world_size, min(limit, DEFAULT_TIMEOUT)
        )
    # GPUs need MPI too: what is no tensor, and news of processes that ended, go through it.
    world = mpi.start(store, rank, world_size)
    name = Backend(backend) if backend else Backend("gloo")
    made = ProcessGroup(name, range(world.size), world.rank, store, "0", limit)
    made.channels["cpu"] = mpi.channel_of_world(world, limit)
    if "cuda" in engines.values() or "cuda" in engines:
        made.channels["cuda"] = nccl.channel(made.channels["cpu"], device_id)
        if "cpu" not in engines:
            made.channels["control"] = made.channels.pop("cpu")
    _groups.append(made)
    _set_default(made)


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Forget a group; without an argument all of them, and the end of communication.

    Raises:
        ValueError: before `init_process_group`, and for a group that is not there.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.destroy_process_group()
        >>> dist.is_initialized()
        False
    """
    if group is GroupMember.NON_GROUP_MEMBER:
        return
    found = default_group() if group is None else group
    if found not in _groups:
        raise ValueError("Invalid process group specified")
    for one in list(_groups) if found is GroupMember.WORLD else [found]:
        for channel in one.channels.values():
            channel.close()
        _groups.remove(one)
    if not _groups:
        _set_default(None)


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
) -> Any:
    """Make a group of some of the processes. All processes of the default group call it, in the same order.

    Args:
        ranks: who is in it; all if it is not given.
        timeout: for its operations; that of the default group if it is not given.
        backend: its engine; that of the default group if it is not given.
        pg_options, group_desc: accepted, without effect.
        use_local_synchronization: whether only the processes in it call it, with ranks that rise.

    Returns:
        The group, or `GroupMember.NON_GROUP_MEMBER` where this process is not in it.

    Raises:
        ValueError: for ranks that are not there or come twice.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.new_group([0]).size()
        1
        >>> dist.destroy_process_group()
    """
    world = default_group()
    members = list(range(world.size())) if ranks is None else sorted(ranks)
    for rank in members:
        if not 0 <= rank < world.size():
            raise ValueError(
                f"Rank {rank} is out of range. Valid ranks are 0 to {world.size() - 1} "
                f"(world_size={world.size()})"
            )
    if len(set(members)) != len(members):
        raise ValueError(f"Duplicate ranks in {members}")
    number = hash(tuple(members)) % (1 << 12) if use_local_synchronization else next(_numbers)
    if world.rank() not in members:
        return GroupMember.NON_GROUP_MEMBER
    limit = world.timeout if timeout is None else timeout
    name = world.backend if backend is None else Backend(backend)
    made = ProcessGroup(name, members, members.index(world.rank()), world.store, str(number), limit)
    control = world.channels.get("cpu") or world.channels["control"]
    made.channels["cpu"] = control.part(members, number, limit)
    if "cuda" in world.channels:
        made.channels["cuda"] = nccl.channel(made.channels["cpu"], device_id)
        if "cpu" not in world.channels:
            made.channels["control"] = made.channels.pop("cpu")
    _groups.append(made)
    return made


def new_subgroups(
    group_size: int | None = None,
    group: ProcessGroup | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Cut the processes into groups of one size, and give this process's and all of them.

    Raises:
        ValueError: if the size does not divide the number of processes.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> mine, all_groups = dist.new_subgroups(1)
        >>> mine.size(), len(all_groups)
        (1, 1)
        >>> dist.destroy_process_group()
    """
    size = get_world_size(group)
    if group_size is None:
        raise ValueError("Default group size only takes effect when CUDA is available")
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    if group_size > size:
        raise ValueError(
            f"The arg 'group_size' ({group_size}) must not exceed the world size ({size})"
        )
    if size % group_size:
        raise ValueError(f"The world size ({size}) must be divisible by 'group_size={group_size}'")
    parts = [list(range(at, at + group_size)) for at in range(0, size, group_size)]
    return new_subgroups_by_enumeration(parts, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Make groups of the given ranks, and give this process's and all of them.

    Raises:
        ValueError: if a process is in several.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> mine, all_groups = dist.new_subgroups_by_enumeration([[0]])
        >>> mine.size(), len(all_groups)
        (1, 1)
        >>> dist.destroy_process_group()
    """
    seen: set[int] = set()
    for ranks in ranks_per_subgroup_list:
        if twice := seen.intersection(ranks):
            raise ValueError(f"Rank {min(twice)} has appeared in both subgroups")
        seen.update(ranks)
    made = [new_group(ranks, timeout, backend, pg_options) for ranks in ranks_per_subgroup_list]
    mine = next((g for g in made if g is not GroupMember.NON_GROUP_MEMBER), None)
    return mine, made


# ----- questions -----


def get_rank(group: ProcessGroup | None = None) -> int:
    """Tell the number of this process in a group, the default one if none is given; -1 outside of it.

    Raises:
        ValueError: before `init_process_group`.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.get_rank()
        0
        >>> dist.destroy_process_group()
    """
    found = find(group)
    return -1 if found is None else found.rank()


def get_world_size(group: ProcessGroup | None = None) -> int:
    """Count the processes of a group, the default one if none is given; -1 outside of it.

    Raises:
        ValueError: before `init_process_group`.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.get_world_size()
        1
        >>> dist.destroy_process_group()
    """
    found = find(group)
    return -1 if found is None else found.size()


def get_backend(group: ProcessGroup | None = None) -> Backend:
    """Give the name of a group's engine, as it was asked for.

    Raises:
        ValueError: before `init_process_group`, and outside of the group.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.get_backend()
        'gloo'
        >>> dist.destroy_process_group()
    """
    found = find(group)
    if found is None:
        raise ValueError("Invalid process group specified")
    return found.backend


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """List the ranks in the default group of a group's processes.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.get_process_group_ranks(None)
        [0]
        >>> dist.destroy_process_group()
    """
    found = find(group)
    return [] if found is None else list(found.ranks)


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """Translate a rank in the default group into one in another group.

    Raises:
        ValueError: if the process is not in it.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.get_group_rank(dist.group.WORLD, 0)
        0
        >>> dist.destroy_process_group()
    """
    if global_rank not in group.ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return group.ranks.index(global_rank)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """Translate a rank in a group into one in the default group.

    Raises:
        ValueError: if the group has no such rank.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.get_global_rank(dist.group.WORLD, 0)
        0
        >>> dist.destroy_process_group()
    """
    if not 0 <= group_rank < group.size():
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return group.ranks[group_rank]


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """Tell the number of this process on its machine, as LOCAL_RANK says it.

    Raises:
        RuntimeError: if that is not set and no other number is given.

    Example:
        >>> adjit.distributed.get_node_local_rank(0)
        0
    """
    found = os.environ.get("LOCAL_RANK")
    if found is not None:
        return int(found)
    if fallback_rank is None:
        raise RuntimeError(
            "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow "
            "`get_node_local_rank` to work, assuming you are not running in a multi-device context and "
            "want the code to run locally instead."
        )
    return int(fallback_rank)
