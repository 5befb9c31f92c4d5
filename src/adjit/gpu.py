"""Memory on GPUs, page-locked memory of the host, and the streams that work is put onto.

Blocks are kept when they are freed, in heaps by stream and size: whatever a stream does with a
block's next owner comes after what it did with the last. Blocks that other streams read as well
wait for these. The lowest address goes first, so that a program that does the same again has its
memory where it was, whatever the order in which it let go of it: its plans are graphs then.
"""

from __future__ import annotations

import contextlib
import heapq
import threading
from collections.abc import Iterator

from . import devices, driver
from .errors import OutOfMemoryError
from .locks import Lock
from .storage import Block, size_class

SMALLEST = 512  # bytes, as in PyTorch; what is aligned so suits every access
SMALL = 1 << 16  # blocks up to this size are cut from slabs
SLAB = 1 << 21


def block_size(nbytes: int) -> int:
    """The size that a request is rounded up to."""
    return SMALLEST if nbytes <= SMALLEST else size_class(nbytes)


class GpuBlock(Block):
    """Bytes on a GPU that one value owns; the number is their address."""

    size: int
    pool: Pool
    stream: int  # where the block is free to be written again
    users: tuple[int, ...]  # other streams that read it

    def __del__(self) -> None:
        self.pool.take_back(self)


class Pool:
    """The memory of one GPU."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.driver = driver.load()
        self._free: dict[tuple[int, int], list[int]] = {}  # addresses by stream and size
        self._waiting: list[tuple[list[int], tuple[int, int], int]] = []  # for events
        self.allocated = self.peak = self.reserved = self.peak_reserved = 0

    def allocate(self, nbytes: int) -> GpuBlock:
        """A block for the current stream, its bytes undefined."""
        size, stream = block_size(nbytes), current_stream(self.index)
        if self._waiting:
            self._look_at_waiting()
        free = self._free.get((stream, size))
        if not free:
            free = self._free.setdefault((stream, size), [])
            self._grow(free, size)
        block = GpuBlock(heapq.heappop(free))
        block.size, block.pool, block.stream, block.users = size, self, stream, ()
        self.allocated += size
        self.peak = max(self.peak, self.allocated)
        return block

    def take_back(self, block: GpuBlock) -> None:
        """Keep a block that nobody owns any more."""
        self.allocated -= block.size
        key, address = (block.stream, block.size), int(block)
        if not block.users:
            heapq.heappush(self._free.setdefault(key, []), address)
            return
        events = []
        for user in block.users:
            self.driver.use(self.index)
            events.append(self.driver.new_event(timing=False))
            self.driver.call("cuEventRecord", events[-1], user)
        self._waiting.append((events, key, address))

    def _look_at_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []  # blocks end at any time, also meanwhile
        for events, key, address in waiting:
            if all(self.driver.is_done("cuEventQuery", event) for event in events):
                for event in events:
                    self.driver.call("cuEventDestroy_v2", event)
                heapq.heappush(self._free.setdefault(key, []), address)
            else:
                self._waiting.append((events, key, address))

    def _grow(self, free: list[int], size: int) -> None:
        """Get memory for blocks of a size from the driver."""
        nbytes = SLAB if size <= SMALL else size
        self.driver.use(self.index)
        try:
            address = self.driver.allocate(nbytes)
        except OutOfMemoryError:
            self.empty_cache()
            try:
                address = self.driver.allocate(nbytes)
            except OutOfMemoryError:
                raise self._out_of_memory(size) from None
        self.reserved += nbytes
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        free.extend(range(address, address + nbytes - size + 1, size))

    def _out_of_memory(self, size: int) -> OutOfMemoryError:
        unused, total = self.driver.memory(self.index)
        return OutOfMemoryError(
            f"CUDA out of memory. Tried to allocate {spoken(size)}. GPU {self.index} has a total "
            f"capacity of {spoken(total)} of which {spoken(unused)} is free. Of the allocated memory "
            f"{spoken(self.allocated)} is allocated by adjit, and "
            f"{spoken(self.reserved - self.allocated)} is reserved by adjit but unallocated."
        )

    def empty_cache(self) -> None:
        """Give the free blocks that were not cut from slabs back to the driver."""
        self.driver.use(self.index)
        for (stream, size), free in list(self._free.items()):
            if size > SMALL:
                del self._free[stream, size]
                self.reserved -= size * len(free)
                for address in free:
                    self.driver.free(address)


def spoken(nbytes: int) -> str:
    """A number of bytes for people."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.2f} {name}"
    return f"{nbytes / 1024:.2f} KiB"


_pools: dict[int, Pool] = {}


def pool_of(place: devices.device) -> Pool:
    """The memory of a GPU."""
    index = place.index or 0
    found = _pools.get(index)
    if found is None:
        found = _pools[index] = Pool(index)
    return found


# ----- streams -----


class _Streams(threading.local):
    """The current stream of each GPU in this thread; 0 is the default one."""

    def __init__(self) -> None:
        self.current: dict[int, int] = {}


_streams = _Streams()


def current_stream(index: int) -> int:
    """The handle of the stream that this thread's work goes to."""
    return _streams.current.get(index, 0)


@contextlib.contextmanager
def on_stream(index: int, handle: int) -> Iterator[None]:
    """Put this thread's work onto a stream."""
    before = current_stream(index)
    _streams.current[index] = handle
    try:
        yield
    finally:
        _streams.current[index] = before


def set_stream(index: int, handle: int) -> None:
    """Put this thread's work onto a stream from now on."""
    _streams.current[index] = handle


# ----- page-locked memory -----


class PinnedMemory:
    """Page-locked bytes of the host, which copies to and from GPUs need not stage."""

    __slots__ = ("address", "copies", "size")

    def __init__(self, nbytes: int) -> None:
        self.size = block_size(nbytes)
        free = _pinned.setdefault(self.size, [])
        with _choosing:  # others may only add meanwhile
            found = next((k for k, (_, copies) in enumerate(free) if _are_done(copies)), None)
            self.address = (
                driver.load().allocate_pinned(self.size) if found is None else free.pop(found)[0]
            )
        self.copies: list[int] = []  # events after those that may still be under way

    def wait(self) -> None:
        """Wait until no copy is under way."""
        library = driver.load()
        for event in self.copies:
            library.call("cuEventSynchronize", event)

    def __del__(self) -> None:
        # The interpreter ends, and this module was cleared before the program's names.
        if _pinned is None:
            return
        _pinned.setdefault(self.size, []).append((self.address, self.copies))


_pinned: dict[int, list[tuple[int, list[int]]]] = {}
_choosing = Lock()


def _are_done(copies: list[int]) -> bool:
    library = driver.load()
    while copies:
        if not library.is_done("cuEventQuery", copies[-1]):
            return False
        library.call("cuEventDestroy_v2", copies.pop())
    return True
