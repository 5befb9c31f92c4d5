"""Collectives of any Python objects, which travel as pickles: from processes that are trusted."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import devices
from ..ops import creation
from ..tensor import Tensor
from . import collectives
from .group import ProcessGroup, find


def _place(group: ProcessGroup) -> devices.device:
    """Where the bytes of pickles are: on the CPU, unless the group is one of GPUs."""
    return devices.CPU if "cpu" in group.channels else devices.check("cuda")


def _pickled(obj: object, place: devices.device) -> tuple[Tensor, Tensor]:
    """The bytes of a pickle, and how many they are."""
    data = np.frombuffer(pickle.dumps(obj), np.uint8)
    return creation.tensor(data).to(place), creation.tensor([len(data)]).to(place)


def _unpickled(data: Tensor, size: int) -> Any:
    return pickle.loads(data[:size].cpu().numpy().tobytes())


def _bytes(size: int, place: devices.device) -> Tensor:
    made: Tensor = creation.tensor(np.zeros(size, np.uint8)).to(place)
    return made


def _sizes(size: Tensor, group: ProcessGroup) -> list[int]:
    found = [size.clone() for _ in range(group.size())]
    collectives.all_gather(found, size, group)
    return [int(n) for n in found]


def _padded(data: Tensor, size: int) -> Tensor:
    """Bytes in a tensor of a size."""
    made = _bytes(size, data.device)
    made[: data.numel()] = data
    return made


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Give all processes the objects of all of them.

    Args:
        object_list: a place for each process: the results.
        obj: what this process gives, which can be pickled.
        group: of processes, the default one if it is not given.

    Raises:
        RuntimeError: if a process has ended, or after the timeout.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> found = [None]
        >>> dist.all_gather_object(found, {"loss": 1.5})
        >>> found
        [{'loss': 1.5}]
        >>> dist.destroy_process_group()
    """
    found = find(group)
    if found is None:
        return
    data, size = _pickled(obj, _place(found))
    sizes = _sizes(size, found)
    parts = [_bytes(max(sizes), data.device) for _ in sizes]
    collectives.all_gather(parts, _padded(data, max(sizes)), found)
    for k, (part, n) in enumerate(zip(parts, sizes, strict=True)):
        object_list[k] = _unpickled(part, n)


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """Give one process the objects of all of them.

    Args:
        obj: what this process gives, which can be pickled.
        object_gather_list: on `dst`, a place for each process: the results.
        dst: the rank in the default group that gets them (0), or `group_dst` the one in the group.
        group: as of `all_gather_object`.

    Raises:
        ValueError: if the list is given elsewhere than on `dst`, or not there.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> found = [None]
        >>> dist.gather_object("mine", found)
        >>> found
        ['mine']
        >>> dist.destroy_process_group()
    """
    found = find(group)
    if found is None:
        return
    data, size = _pickled(obj, _place(found))
    sizes = _sizes(size, found)
    parts = None
    if object_gather_list:
        parts = [_bytes(max(sizes), data.device) for _ in sizes]
    collectives.gather(_padded(data, max(sizes)), parts, dst, found, group_dst=group_dst)
    if parts is not None and object_gather_list is not None:
        for k, (part, n) in enumerate(zip(parts, sizes, strict=True)):
            object_gather_list[k] = _unpickled(part, n)


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """Give all processes the objects of one of them.

    Args:
        object_list: the objects on `src`, and as many places elsewhere: the results.
        src: the rank in the default group that has them (0), or `group_src` the one in the group.
        group: as of `all_gather_object`.
        device: where the bytes are meanwhile.

    Raises:
        RuntimeError: if a process has ended, or after the timeout.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.broadcast_object_list(["seed", 7], src=0)
        >>> dist.destroy_process_group()
    """
    found = find(group)
    if found is None:
        return
    place = _place(found) if device is None else devices.check(device)
    root = collectives._root(found, "broadcast", src, group_src, found.ranks[0])
    pickles = [_pickled(obj, place) for obj in object_list]
    if found.rank() == root:
        sizes = creation.tensor([int(size) for _, size in pickles]).to(place)
        data = creation.tensor(
            np.concatenate([part.cpu().numpy() for part, _ in pickles] or [np.zeros(0, np.uint8)])
        ).to(place)
    else:
        sizes = creation.tensor([0] * len(object_list)).to(place)
    collectives.broadcast(sizes, group=found, group_src=root)
    counts: list[int] = sizes.tolist()
    if found.rank() != root:
        data = _bytes(sum(counts), place)
    collectives.broadcast(data, group=found, group_src=root)
    _put(object_list, data, counts)


def _put(object_list: list[Any], data: Tensor, counts: Sequence[int]) -> None:
    """Unpickle objects whose bytes lie one behind the other."""
    at = 0
    for k, n in enumerate(counts):
        object_list[k] = _unpickled(data[at:], n)
        at += n


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Give each process one of the objects that one of them has.

    Args:
        scatter_object_output_list: whose first place gets the result.
        scatter_object_input_list: on `src`, an object for each process.
        src: the rank in the default group that has them (0), or `group_src` the one in the group.
        group: as of `all_gather_object`.

    Raises:
        ValueError: if there is no place for the result.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> found = [None]
        >>> dist.scatter_object_list(found, ["mine"])
        >>> found
        ['mine']
        >>> dist.destroy_process_group()
    """
    found = find(group)
    if found is None:
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError(
            "Expected argument scatter_object_output_list to be a list of size at least 1."
        )
    objects = [None] * found.size()
    root = collectives._root(found, "scatter", src, group_src, found.ranks[0])
    if found.rank() == root:
        objects = list(scatter_object_input_list or [])
        if len(objects) != found.size():
            raise ValueError("scatter_object_input_list must have an object for each process")
    broadcast_object_list(objects, group=found, group_src=root)
    scatter_object_output_list[0] = objects[found.rank()]


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send objects to another process.

    Args:
        object_list: what can be pickled.
        dst: the rank in the default group that they go to, or `group_dst` the one in the group.
        group: as of `all_gather_object`.
        device, use_batch: accepted, without effect.

    Raises:
        ValueError: for this process itself.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.send_object_list([1], dst=0)
        Traceback (most recent call last):
            ...
        ValueError: Invalid destination rank: destination rank should not be the same as the rank of ...
        >>> dist.destroy_process_group()
    """
    found = find(group)
    if found is None:
        return
    data, size = _pickled(list(object_list), _place(found))
    collectives.send(size, dst, found, group_dst=group_dst)
    collectives.send(data, dst, found, group_dst=group_dst)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Receive objects of another process, and say which it was.

    Args:
        object_list: as many places as there are objects: the results.
        src: the rank in the default group that they come from, or `group_src` the one in the group.
        group: as of `all_gather_object`.
        device, use_batch: accepted, without effect.

    Raises:
        RuntimeError: for this process itself.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.recv_object_list([None], src=0)
        Traceback (most recent call last):
            ...
        RuntimeError: Pair is not connected: source rank should not be the same as the rank of the ...
        >>> dist.destroy_process_group()
    """
    found = find(group)
    if found is None:
        return -1
    size = creation.tensor([0]).to(_place(found))
    rank = collectives.recv(size, src, found, group_src=group_src)
    data = _bytes(int(size), size.device)
    collectives.recv(data, rank, found)
    object_list[:] = _unpickled(data, int(size))
    return rank
