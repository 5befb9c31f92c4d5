"""Communication through MPI: mpi4py on the memory of tensors, without copies."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import glob
import importlib.util
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from .. import dtypes
from ..tensor import Tensor
from . import memory
from .errors import DistBackendError, DistError, DistNetworkError
from .pmi import ProcessManager
from .store import Store
from .watch import Watch
from .work import ReduceOp, Work

INSTALL = "pip install adjit[distributed] brings mpi4py and an MPI"
# Set by what starts the processes of an MPI world: MPICH and its like, Open MPI, Slurm with PMIx.
STARTED_BY_MPI = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK")
SPEAK_PMI = ("MPICH", "MVAPICH", "Intel MPI")
BARRIER_TAG = 32767  # of messages of `monitored_barrier`: the largest that MPI's standard promises
OWN_NUMBER = BARRIER_TAG - 1  # of channels that modules have for themselves
BUSY = 0.02  # seconds that a wait polls without a pause
PROGRESS = 2e-5  # seconds: a poll that takes longer has moved data
GRACE = 1.0  # seconds that what an ended process has sent may take to arrive


def is_available() -> bool:
    """Whether mpi4py and an MPI library are installed."""
    return importlib.util.find_spec("mpi4py") is not None and _library() is not None


@functools.cache
def _library() -> Any:
    """mpi4py's module, loaded but not started; None where there is no MPI."""
    import mpi4py

    already = "mpi4py.MPI" in sys.modules
    if not already:
        mpi4py.rc.initialize = mpi4py.rc.finalize = False
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError):  # no MPI, or one of another kind
        return None
    return MPI


def is_started_by_mpi() -> bool:
    """Whether mpirun or its like has started this process."""
    return any(name in os.environ for name in STARTED_BY_MPI)


class World:
    """All processes, once MPI has started in them; a process has one, for good."""

    def __init__(self, mpi: Any) -> None:
        self.mpi = mpi
        self.all = mpi.COMM_WORLD
        self.all.Set_errhandler(mpi.ERRORS_RETURN)
        self.rank, self.size = self.all.Get_rank(), self.all.Get_size()
        self.watch = Watch(self.rank, self.size, self.all.allgather)

    def guarded(
        self, call: Callable[[], Any], what: str, ranks: Sequence[int], seconds: float
    ) -> Any:
        """Make a call of MPI that blocks, but not longer than the processes that take part are there."""
        answer: list[Any] = []
        thread = threading.Thread(target=lambda: answer.append(call()), name=what, daemon=True)
        thread.start()
        self.poll(lambda: not thread.is_alive(), what, ranks, seconds)
        return answer[0]

    def poll(
        self, is_done: Callable[[], bool], what: str, ranks: Sequence[int], seconds: float
    ) -> None:
        """Ask until something is done.

        Raises:
            DistNetworkError: if a process that takes part has ended.
            DistBackendError: after so many seconds, with PyTorch's text.
        """
        start = now = quiet_since = time.monotonic()
        while True:
            try:
                if is_done():
                    return
            except self.mpi.Exception as error:
                raise DistBackendError(f"{what} failed: {error}") from None
            before, now = now, time.monotonic()
            if now - before > PROGRESS:
                quiet_since = now
            if (ended := self.watch.first_ended(ranks)) is not None:
                since = max(start, self.watch.ended[ended])
                if now - since > GRACE:
                    raise DistNetworkError(
                        f"Connection closed by peer: rank {ended} has ended while rank {self.rank} waited "
                        f"for {what}"
                    )
            if now - start > seconds:
                raise DistBackendError(
                    f"Timed out waiting {seconds * 1000:.0f}ms for {what} to complete"
                )
            if now - quiet_since < BUSY:
                _give_way()
            else:
                time.sleep(min(1e-3, (now - quiet_since) / 100))
                now = time.monotonic()


_give_way: Callable[[], object] = getattr(os, "sched_yield", lambda: time.sleep(0))
_world: World | None = None


def start(store: Store | None, rank: int, size: int) -> World:
    """Start MPI in this process, one of so many with the same store; -1 for what MPI itself knows.

    Raises:
        RuntimeError: if there is no MPI, one that cannot be started so, or another world already.
    """
    global _world
    mpi = _library()
    if mpi is None:
        raise RuntimeError(f"Distributed package doesn't have MPI built in: {INSTALL}")
    if _world is None:
        if mpi.Is_initialized():
            pass
        elif is_started_by_mpi() or size in (-1, 1):
            _initialize(mpi)
            if is_started_by_mpi():
                _end_with_the_others(mpi)
            else:
                _unname_shared_memory()
        else:
            assert store is not None
            _start_by(mpi, store, rank, size)
        _world = World(mpi)
    found = _world.rank, _world.size
    if (rank, size) != found and (rank, size) != (-1, -1):
        raise RuntimeError(
            f"MPI has started in this process as rank {found[0]} of {found[1]}, not {rank} of {size}, and "
            "it starts once: make smaller groups by new_group, or new processes"
        )
    return _world


def _initialize(mpi: Any) -> None:
    """Start MPI without holding the interpreter: a thread of it has to answer meanwhile."""
    library = ctypes.CDLL(
        mpi.__file__
    )  # its functions are those of the MPI library that it is linked to
    provided = ctypes.c_int()
    if library.MPI_Init_thread(None, None, mpi.THREAD_MULTIPLE, ctypes.byref(provided)):
        raise RuntimeError("MPI_Init_thread failed")


def _start_by(mpi: Any, store: Store, rank: int, size: int) -> None:
    vendor = mpi.get_vendor()[0]
    if vendor not in SPEAK_PMI:
        raise RuntimeError(
            f"{vendor} starts only by its own mpirun, which starts the processes; pip install mpich brings "
            "an MPI that processes started otherwise can use"
        )
    if rank == 0:
        store.set("world", f"kvs_{uuid.uuid4().hex}")  # MPI names its shared memory by it
    manager = ProcessManager(store, rank, size, store.get("world").decode())
    with manager.in_charge():
        _initialize(mpi)
    if manager.failure is not None:
        raise manager.failure
    # All have opened the shared memory: without its name it goes with the last process, whatever befalls.
    manager.barrier()
    manager.retire()
    _unname_shared_memory()


def _unname_shared_memory() -> None:
    for path in _shared_memory():
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            os.remove(path)


def _shared_memory() -> list[str]:
    """The files of MPI's shared memory that this process looks at."""
    found = set(glob.glob("/dev/shm/mpich_shm_*"))
    if not found:
        return []
    with open("/proc/self/maps") as maps:
        return [path for path in found if any(path in line for line in maps)]


def _end_with_the_others(mpi: Any) -> None:
    """Have a process that mpirun has started end as that expects, and take the others along if it fails."""
    told = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: Any) -> None:
        told(kind, value, trace)
        sys.stderr.flush()
        mpi.COMM_WORLD.Abort(1)

    sys.excepthook = hook

    def end() -> None:
        if _world is not None:
            _world.watch.close()  # those who still wait for this process learn that it has gone
        if not mpi.Is_finalized():
            mpi.Finalize()

    atexit.register(end)


class MpiWork(Work):
    """Requests of MPI that are under way."""

    def __init__(
        self, channel: MpiChannel, what: str, requests: list[Any], keep: object,
        finish: Callable[[], object] | None, source: Any = None, ranks: list[int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._channel, self._what, self._requests = channel, what, requests
        self._keep, self._finish = keep, finish
        self._source = source
        self._ranks = channel.ranks if ranks is None else ranks

    def _test(self) -> bool:
        statuses = None if self._source is None else [self._source] * len(self._requests)
        return bool(self._channel.world.mpi.Request.Testall(self._requests, statuses))

    def is_completed(self) -> bool:
        if not self._is_done and self._test():
            self._complete()
        return self._is_done

    def _complete(self) -> None:
        self._is_done = True
        finish, self._finish, self._keep = self._finish, None, None
        if finish is not None:
            finish()

    def wait(self, timeout: timedelta | None = None) -> bool:
        if not self._is_done:
            limit = self._channel.timeout if timeout is None else timeout
            try:
                self._channel.world.poll(self._test, self._what, self._ranks, limit.total_seconds())
            except DistError as error:
                self._failure = error
                _abandoned.append(self)  # MPI may still write there
                raise
            self._complete()
        return True

    def source_rank(self) -> int:
        return self._channel.ranks[self._source.Get_source()]


_abandoned: list[MpiWork] = []


class MpiChannel:
    """Communication among the processes of one group."""

    def __init__(self, world: World, comm: Any, ranks: Sequence[int], timeout: timedelta) -> None:
        self.world, self.comm, self.timeout = world, comm, timeout
        self.ranks = list(ranks)  # in the world, by rank in the group

    def part(self, ranks: Sequence[int], number: int, timeout: timedelta) -> MpiChannel:
        """A channel for some of the processes of the world, all of which call this."""
        mpi, comm = self.world.mpi, self.comm
        group = comm.Get_group().Incl(list(ranks))
        made = self.world.guarded(
            lambda: comm.Create_group(group, number), "new_group", [self.ranks[r] for r in ranks],
            timeout.total_seconds(),
        )  # fmt: skip
        made.Set_errhandler(mpi.ERRORS_RETURN)
        return MpiChannel(self.world, made, [self.ranks[r] for r in ranks], timeout)

    # ----- what is handed to MPI -----

    def _bytes(self, t: Tensor) -> list[Any]:
        address, nbytes = memory.address_of(t), t.nbytes
        return [self.world.mpi.buffer.fromaddress(address, nbytes), nbytes, self.world.mpi.BYTE]

    def _numbers(self, t: Tensor) -> list[Any]:
        data = self.world.mpi.buffer.fromaddress(memory.address_of(t), t.nbytes)
        return [data, t.numel(), self._datatype(t.dtype)]

    def _datatype(self, kind: dtypes.dtype) -> Any:
        """MPI's type of numbers; truth values are bytes that are 0 or 1."""
        bits = 8 * kind.itemsize
        names = {"f": {32: "FLOAT", 64: "DOUBLE"}.get(bits), "i": f"INT{bits}_T"}
        name = names.get(kind.kind, f"UINT{bits}_T")
        if name is None:
            raise RuntimeError(f"Invalid scalar type: MPI does not reduce {kind}")
        return getattr(self.world.mpi, name)

    def _op(self, op: ReduceOp, t: Tensor) -> Any:
        mpi = self.world.mpi
        if t.dtype is dtypes.bool:
            return {
                "SUM": mpi.BOR, "MAX": mpi.BOR, "BOR": mpi.BOR, "BXOR": mpi.BXOR,
            }.get(op.name, mpi.BAND)  # fmt: skip
        names = {"AVG": "SUM", "PRODUCT": "PROD"}
        return getattr(mpi, names.get(op.name, op.name))

    def _work(
        self,
        what: str,
        requests: list[Any],
        keep: object,
        finish: Callable[[], object] | None = None,
    ) -> MpiWork:
        return MpiWork(self, what, requests, keep, finish)

    # ----- collectives, on contiguous tensors; `finish` is called when the results are there -----

    def all_reduce(self, send: Tensor, out: Tensor, op: ReduceOp, finish: Any) -> Work:
        source = self.world.mpi.IN_PLACE if send._storage is out._storage else self._numbers(send)
        request = self.comm.Iallreduce(source, self._numbers(out), self._op(op, out))
        return self._work("all_reduce", [request], (send, out), finish)

    def reduce(
        self, send: Tensor, out: Tensor | None, root: int, op: ReduceOp, finish: Any
    ) -> Work:
        target = None if out is None else self._numbers(out)
        request = self.comm.Ireduce(self._numbers(send), target, self._op(op, send), root)
        return self._work("reduce", [request], (send, out), finish)

    def broadcast(self, t: Tensor, root: int, finish: Any) -> Work:
        return self._work("broadcast", [self.comm.Ibcast(self._bytes(t), root)], t, finish)

    def all_gather(self, send: Tensor, out: Tensor, finish: Any) -> Work:
        request = self.comm.Iallgather(
            self._bytes(send), self._bytes(out)[:1] + self._bytes(send)[1:]
        )
        return self._work("all_gather", [request], (send, out), finish)

    def gather(self, send: Tensor, out: Tensor | None, root: int, finish: Any) -> Work:
        target = None if out is None else [self._bytes(out)[0], send.nbytes, self.world.mpi.BYTE]
        request = self.comm.Igather(self._bytes(send), target, root)
        return self._work("gather", [request], (send, out), finish)

    def scatter(self, send: Tensor | None, out: Tensor, root: int, finish: Any) -> Work:
        source = None if send is None else [self._bytes(send)[0], out.nbytes, self.world.mpi.BYTE]
        request = self.comm.Iscatter(source, self._bytes(out), root)
        return self._work("scatter", [request], (send, out), finish)

    def reduce_scatter(self, send: Tensor, out: Tensor, op: ReduceOp, finish: Any) -> Work:
        data, _, kind = self._numbers(send)  # mpi4py wants the count of a part on both sides
        request = self.comm.Ireduce_scatter_block(
            [data, out.numel(), kind], self._numbers(out), self._op(op, out)
        )
        return self._work("reduce_scatter", [request], (send, out), finish)

    def all_to_all(
        self, send: Tensor, out: Tensor, sent: list[int], received: list[int], finish: Any
    ) -> Work:
        """`sent` and `received` are bytes to and from each process."""
        mpi = self.world.mpi
        request = self.comm.Ialltoallv(
            [self._bytes(send)[0], sent, mpi.BYTE], [self._bytes(out)[0], received, mpi.BYTE]
        )
        return self._work("all_to_all", [request], (send, out), finish)

    def barrier(self) -> Work:
        return self._work("barrier", [self.comm.Ibarrier()], None)

    def send(self, t: Tensor, to: int, tag: int) -> Work:
        request = self.comm.Isend(self._bytes(t), to, tag)
        return MpiWork(self, "send", [request], t, None, ranks=[self.ranks[to]])

    def receive(self, out: Tensor, source: int | None, tag: int, finish: Any) -> Work:
        origin = self.world.mpi.ANY_SOURCE if source is None else source
        request = self.comm.Irecv(self._bytes(out), origin, tag)
        ranks = None if source is None else [self.ranks[source]]
        return MpiWork(self, "recv", [request], out, finish, self.world.mpi.Status(), ranks)

    def close(self) -> None:
        """Forget the channel. MPI would wait for all processes to free it, so it stays."""


def channel_of_world(world: World, timeout: timedelta) -> MpiChannel:
    """The channel among all processes."""
    return MpiChannel(world, world.all, range(world.size), timeout)
