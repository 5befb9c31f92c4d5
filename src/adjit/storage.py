"""Memory: blocks from a pool of size classes, and the mutable cells that tensors look at."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from .errors import OutOfMemoryError

ALIGNMENT = 64
SLAB = 1 << 16
SMALL = 1 << 12  # blocks up to this size are cut from slabs
KEEP = 1 << 28  # freed bytes beyond this go back to the system

_free: dict[int, list[tuple[int, Any]]] = {}
_kept = 0  # bytes in free lists of large blocks
_live = 0
_peak = 0


def size_class(nbytes: int) -> int:
    """The size that a request is rounded up to: powers of two, then eighths of an octave."""
    if nbytes <= ALIGNMENT:
        return ALIGNMENT
    if nbytes <= SMALL:
        return 1 << (nbytes - 1).bit_length()
    step = 1 << max((nbytes - 1).bit_length() - 4, 6)
    return (nbytes + step - 1) // step * step


class Block:
    """Bytes that one value owns; they go back to the pool with it."""

    __slots__ = ("address", "memory", "size")
    address: int
    memory: Any
    size: int

    def __del__(self, free: dict[int, list[tuple[int, Any]]] = _free) -> None:
        size = self.size
        if size <= SMALL:
            if size:
                free[size].append((self.address, self.memory))
        else:
            _release(self)


class Foreign(Block):
    """Bytes that belong to somebody else, for instance a NumPy array."""

    __slots__ = ()

    def __del__(self, free: Any = None) -> None:
        pass


def _release(block: Block) -> None:
    global _kept, _live
    _live -= block.size
    if _kept + block.size <= KEEP:
        _kept += block.size
        _free[block.size].append((block.address, block.memory))


def allocate(size: int) -> Block:
    """A block of a size class, its bytes undefined. Callers hold the settle lock."""
    block = Block()
    block.size = 0
    stack = _free.get(size)
    if stack:
        block.address, block.memory = stack.pop()
        if size > SMALL:
            _count(size, -size)
    elif size <= SMALL:
        block.address, block.memory = _slab(size)
    else:
        block.address, block.memory = _large(size)
        _count(size, 0)
    block.size = size
    return block


def _count(live: int, kept: int) -> None:
    global _live, _kept, _peak
    _live += live
    _kept += kept
    _peak = max(_peak, _live)


def _slab(size: int) -> tuple[int, Any]:
    """Cut a slab into blocks of one size; the last one is handed out."""
    address, memory = _memory(SLAB)
    stack = _free.setdefault(size, [])
    stack.extend((address + at, memory) for at in range(SLAB - size, 0, -size))
    return address, memory


def _large(size: int) -> tuple[int, Any]:
    """A new large block, after giving back what is kept if that is a lot beside it."""
    _free.setdefault(size, [])
    if _kept > max(_live // 4, 1 << 24):
        empty_cache()
    return _memory(size)


def _memory(nbytes: int) -> tuple[int, Any]:
    try:
        memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError):
        raise OutOfMemoryError(
            f"[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you "
            f"tried to allocate {nbytes} bytes."
        ) from None
    address = memory.__array_interface__["data"][0]
    return address + -address % ALIGNMENT, memory


def empty_cache() -> None:
    """Give the freed large blocks back to the system."""
    global _kept
    for size, stack in _free.items():
        if size > SMALL:
            stack.clear()
    _kept = 0


def memory_stats() -> dict[str, int]:
    """Bytes in blocks over 4 KiB: `live` now, `peak` so far, `kept` in the pool for reuse."""
    return {"live": _live, "peak": _peak, "kept": _kept}


def reset_peak_memory() -> None:
    """Start the count of `memory_stats()["peak"]` anew."""
    global _peak
    _peak = _live


class Version:
    """How often a storage was written, and where last; views and `detach()` share it."""

    __slots__ = ("site", "version")

    def __init__(self) -> None:
        self.version = 0
        self.site: Any = None


class Storage:
    """The mutable cell behind tensors: the current value, and its own version counter."""

    __slots__ = ("__weakref__", "shared", "site", "spec", "value", "version")
    value: Any  # a graph.node.Node
    spec: Any  # the geometry that covers all of it
    version: int
    site: Any  # where it was written last; unset before
    shared: int  # how many outsiders look at the same bytes

    @property
    def nbytes(self) -> int:
        """Bytes that the value takes."""
        return int(self.spec.nbytes)


class Export:
    """Keeps a block alive for a NumPy array that looks at it, and the cell marked as shared."""

    __slots__ = ("__array_interface__", "block", "storage")

    def __init__(self, storage: Storage, block: Block, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface
        self.block = block
        self.storage = weakref.ref(storage)
        storage.shared += 1

    def __del__(self) -> None:
        storage = self.storage()
        if storage is not None:
            storage.shared -= 1


