"""Memory: blocks from a pool of size classes, and the mutable cells that tensors look at."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import OutOfMemoryError
from .heap_types import untracked

# What pickles of PyTorch's tensors call, by this name; `_utils` has it.
_load_from_bytes: Callable[[bytes], Any]

ALIGNMENT = 64
SLAB = 1 << 16
SMALL = 1 << 12  # sizes up to this are powers of two, and blocks are cut from slabs
CUT = 1 << 16  # free blocks up to this size wait as they are; larger ones are looked through
WORKSPACE = 1 << 20  # bytes; only those that are used take memory
FEW = 1 << 22  # bytes that may wait without being looked through more often than so many would be


def _most_to_keep() -> int:
    """The freed bytes beyond which they go back to the system: an eighth of its memory, 1 GiB at most."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        total = 0
    return max(1 << 28, min(1 << 30, total // 8))


KEEP = _most_to_keep()

# The pool is looked through once it has handed out so many times the bytes that waited in it. A program
# that repeats itself has by then taken every block that it needs, whatever its period.
PATIENCE = 2

_kept = 0  # bytes of large blocks that wait for reuse
_most_kept = 0  # the most of them since the pool was looked through
_handed_out = 0  # bytes since the pool was looked through
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


def _cut_sizes() -> list[int]:
    """The size classes of blocks that wait as they are."""
    sizes = [ALIGNMENT]
    while sizes[-1] < CUT:
        sizes.append(size_class(sizes[-1] + 1))
    return sizes


if TYPE_CHECKING:

    class Block(int):
        """Bytes that one value owns; the number is their address.

        An address that is its own owner costs a value one attribute. The finalizer of a small block puts
        it onto the free list: it comes back as what it was. CPython finalizes an object again if the
        collector does not know its class.
        """

        size: int
else:
    Block = untracked("adjit.storage.Block", int, size=0)


def _small_class(size: int) -> tuple[list[Any], type[Block]]:
    free: list[Any] = []

    def finalize(self: Any) -> None:
        free.append(self)

    return free, untracked(f"adjit.storage.Block{size}", Block, size=size, __del__=finalize)


_small = {size: _small_class(size) for size in _cut_sizes()}
free_small = {size: free for size, (free, _) in _small.items()}
# The memory of slabs, of blocks between `SMALL` and `CUT`, and of the workspace, by address.
_slabs: dict[int, Any] = {}
_large: dict[int, list[Any]] = {}
_least: dict[int, int] = {}  # how many of each size have waited ever since


class LargeBlock(Block):
    """More than `CUT` bytes, freed one by one."""

    memory: Any

    def __del__(self) -> None:
        global _kept, _live, _most_kept
        # The interpreter ends, and this module was cleared before the program's names.
        if _large is None:
            return
        _live -= self.size
        if _kept + self.size <= KEEP:
            _kept += self.size
            _most_kept = max(_most_kept, _kept)
            _large.setdefault(self.size, []).append((int(self), self.memory))


class BorrowedMemory(Block):
    """Bytes that belong to somebody else, for instance a NumPy array."""

    memory: Any
    read_only = False
    is_seen = True  # by others than those that the library has shown it to


def allocate(size: int) -> Block:
    """A block of a size class, its bytes undefined. Callers hold the settle lock."""
    global _handed_out, _kept, _live, _peak
    free = free_small.get(size)
    if free is not None:
        if not free:
            _cut_slab(size)
        return free.pop()
    waiting = _large.get(size)
    if waiting:
        address, memory = waiting.pop()
        _kept -= size
        if _least.get(size, 0) > len(waiting):
            _least[size] = len(waiting)
    else:
        if _kept > max(_live // 4, 1 << 24):
            _drop_large()
        address, memory = _memory(size)
    block = LargeBlock(address)
    block.memory, block.size = memory, size
    _live += size
    _peak = max(_peak, _live)
    _handed_out += size
    if _handed_out > PATIENCE * max(_most_kept, FEW):
        _give_back_idle()
    return block


def borrow(size: int) -> Block:
    """A block of a size class, or one of up to twice as much that waits, given back as soon as a plan has run.

    Programs of several plans would keep the memory of each otherwise. Callers hold the settle lock.
    """
    if not _large.get(size):
        size = min(
            [s for s, waiting in _large.items() if waiting and size < s <= 2 * size], default=size
        )
    return allocate(size)


@functools.cache
def workspace() -> Block:
    """`WORKSPACE` bytes for what a run of steps needs in between, kept for good, as libraries of linear
    algebra keep theirs. Whoever holds the settle lock has it."""
    address, memory = _memory(WORKSPACE)
    _slabs[address] = memory
    return Block(address)


def _give_back_idle() -> None:
    """Give back the large blocks that nobody wanted since the last time."""
    global _handed_out, _kept, _most_kept
    _handed_out = 0
    for size, waiting in list(_large.items()):
        idle = _least.get(size, 0)
        del waiting[:idle]
        _kept -= idle * size
        _least[size] = len(waiting)
    _most_kept = _kept


def _cut_slab(size: int) -> None:
    """Fill a free list: with the blocks of a slab, which is never given back, or with a single one."""
    free, made = _small[size]
    count = SLAB // size if size <= SMALL else 1
    address, memory = _memory(count * size)
    _slabs[address] = memory
    free.extend([made(address + k * size) for k in reversed(range(count))])


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
    """Give free memory back to the system, but for small blocks. Callers hold the settle lock."""
    _drop_large()
    for size, (free, _) in _small.items():
        if size > SMALL:
            waiting = free[:]
            del free[: len(waiting)]  # finalizers in other threads may have added some meanwhile
            for block in waiting:
                block.__class__ = Block  # without the finalizer that would bring it back
                del _slabs[block]


def _drop_large() -> None:
    global _kept, _most_kept
    _large.clear()
    _least.clear()
    _kept = _most_kept = 0


def memory_stats() -> dict[str, int]:
    """Count the bytes in blocks over 64 KiB: `live` now, `peak` so far, `kept` in the pool for reuse.

    Example:
        >>> sorted(adjit.memory_stats())
        ['kept', 'live', 'peak']
    """
    return {"live": _live, "peak": _peak, "kept": _kept}


def reset_peak_memory() -> None:
    """Start the count of `memory_stats()["peak"]` anew."""
    global _peak
    _peak = _live


class Version:
    """How often a storage was written, and where last; views and `detach()` share it."""

    __slots__ = ("call_site", "version")

    def __init__(self) -> None:
        self.version = 0
        self.call_site: Any = None


class Storage:
    """The mutable cell behind tensors: the current value, and its own version counter."""

    __slots__ = ("__weakref__", "call_site", "links", "shared", "spec", "value", "version")
    value: Any  # a graph.node.Node
    spec: Any  # the geometry that covers all of it
    version: int
    call_site: Any  # where it was written last; unset before
    shared: int  # how many outsiders look at the same bytes
    links: list[Any]  # graph.links.Link: other cells with some of the same elements; mostly unset

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
        storage.shared += 1
        self.storage = weakref.ref(storage)

    def __del__(self) -> None:
        find = getattr(self, "storage", None)  # an interrupt may have come before
        storage = find and find()
        if storage is not None:
            storage.shared -= 1
