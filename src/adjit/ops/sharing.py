"""Memory that processes share: `share_memory_` and `is_shared`."""

from __future__ import annotations

from ctypes import addressof, c_char, memmove
from typing import Any

from .. import devices
from ..graph import primitives, record
from ..graph.export import add_method
from ..graph.node import dense_spec
from ..schedule.settle import settle
from ..storage import BorrowedMemory, Storage
from ..tensor import Tensor


class SharedMemory(BorrowedMemory):
    """Bytes that other processes can look at: an arena of Python's, which is a file without a name.

    Its descriptor is what other processes are passed.
    """

    @classmethod
    def of(cls, arena: Any) -> SharedMemory:
        """The bytes of an arena, which it keeps."""
        made = cls(addressof(c_char.from_buffer(arena.buffer)))
        made.memory = arena
        return made


def is_in_shared_memory(storage: Storage) -> bool:
    """Whether other processes can look at a storage."""
    return isinstance(getattr(storage.value, "address", None), SharedMemory)


def share(storage: Storage) -> None:
    """Put a storage into shared memory, if it is not there. Arrays on its old memory keep that."""
    if is_in_shared_memory(storage):
        return
    from multiprocessing.heap import Arena  # Python's own, which few programs need

    settle()
    flat = dense_spec((storage.spec.extent,), storage.spec.dtype, storage.spec.device)
    values = record.make_tensor(storage, flat)._values()
    block = SharedMemory.of(Arena(max(values.nbytes, 1)))
    if values.nbytes:
        memmove(block, primitives.address_of(values), values.nbytes)
    storage.value = record.ready_node(block)
    storage.shared += 1


def _share_memory_(self: Tensor) -> Tensor:
    """Move the elements into memory that other processes can look at; writes of one are seen by all.

    Processes that are forked afterwards share it, and those that it is passed to by
    `adjit.multiprocessing`. Nobody keeps two from writing at the same time.

    Example:
        >>> x = adjit.zeros(2).share_memory_()
        >>> x.is_shared(), x[1:].is_shared()
        (True, True)
    """
    if self.device is devices.CPU:
        share(self._storage)
    return self


def _is_shared(self: Tensor) -> bool:
    """True if other processes can look at the memory; on a GPU always.

    Example:
        >>> adjit.zeros(2).is_shared()
        False
    """
    return self.device is not devices.CPU or is_in_shared_memory(self._storage)


add_method("share_memory_", _share_memory_)
add_method("is_shared", _is_shared)
