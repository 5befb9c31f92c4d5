"""Communication through NCCL: NVIDIA's nccl4py on the memory of tensors on GPUs."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

from .. import devices, driver, dtypes, gpu
from ..tensor import Tensor
from . import memory, mpi
from .errors import DistBackendError, DistError
from .work import JointWork, ReduceOp, Work

INSTALL = "pip install nccl4py[cu13], or nccl4py[cu12] for a driver of CUDA 12"


@functools.cache
def _library() -> Any:
    """nccl4py, or None where it is not installed."""
    if importlib.util.find_spec("nccl") is None:
        return None
    try:
        import nccl.core
    except ImportError:  # without NCCL itself, or without cuda-core
        return None
    return nccl.core


def is_available() -> bool:
    """Whether nccl4py and a GPU are there."""
    return not driver.reason() and _library() is not None


class _DeviceArray:
    """A tensor's elements as nccl4py takes them: an address, a length and a dtype."""

    def __init__(self, t: Tensor, elements: int | None = None, start: int = 0) -> None:
        kind = dtypes.uint8 if t.dtype is dtypes.bool else t.dtype
        self.__cuda_array_interface__ = {
            "version": 3,
            "typestr": kind.numpy.str,
            "shape": (t.numel() if elements is None else elements,),
            "strides": None,
            "data": (memory.address_of(t) + start * t.itemsize, False),
        }


class NcclWork(Work):
    """What a GPU's stream is busy with."""

    def __init__(self, channel: NcclChannel, what: str, keep: object) -> None:
        super().__init__()
        self._channel, self._what, self._keep = channel, what, keep
        self._event: int | None = None  # until it is marked

    def mark(self) -> None:
        """Note where on the stream it ends."""
        self._event = self._channel.driver.new_event(timing=False)
        self._channel.driver.call("cuEventRecord", self._event, self._channel.stream)

    def is_completed(self) -> bool:
        if self._is_done or self._event is None:
            return self._is_done
        if self._channel.driver.is_done("cuEventQuery", self._event):
            self._is_done, self._keep = True, None
            self._channel.driver.call("cuEventDestroy_v2", self._event)
        return self._is_done

    def wait(self, timeout: Any = None) -> bool:
        control = self._channel.control
        limit = control.timeout if timeout is None else timeout
        try:
            control.world.poll(self.is_completed, self._what, control.ranks, limit.total_seconds())
        except DistError as error:
            self._failure = error
            self._channel.comm.abort()  # or the stream would wait for ever
            raise
        return True


class NcclChannel:
    """Communication among the GPUs of the processes of one group."""

    def __init__(self, control: mpi.MpiChannel, index: int) -> None:
        library = _library()
        self.control, self.index, self.nccl = control, index, library
        self._batch: list[NcclWork] | None = None
        self.driver = driver.load()
        self.driver.use(index)
        comm = control.comm
        found = comm.bcast(library.get_unique_id() if comm.Get_rank() == 0 else None)
        self.comm = library.Communicator.init(comm.Get_size(), comm.Get_rank(), found)

    @property
    def stream(self) -> int:
        """The stream that this thread's work goes to."""
        return gpu.current_stream(self.index)

    def _run(
        self,
        what: str,
        call: Callable[..., Any],
        arguments: tuple[Any, ...],
        keep: object,
        finish: Any,
    ) -> Work:
        """Put a call onto the stream; what reads its results there comes after it."""
        self.driver.use(self.index)
        try:
            call(*arguments, stream=self.stream)
        except Exception as error:
            raise DistBackendError(f"{what} failed: {error}") from error
        if finish is not None:
            finish()
        work = NcclWork(self, what, keep)
        if self._batch is None:
            work.mark()
        else:
            self._batch.append(work)
        return work

    def _op(self, op: ReduceOp, t: Tensor) -> Any:
        names = {"PRODUCT": "PROD"}
        if t.dtype is dtypes.bool:  # bytes that are 0 or 1
            names = {"SUM": "MAX", "BOR": "MAX", "PRODUCT": "MIN", "BAND": "MIN"}
        name = names.get(op.name, op.name)
        if not hasattr(self.nccl, name):
            raise ValueError(f"Cannot use ReduceOp.{op.name} with NCCL")
        return getattr(self.nccl, name)

    def all_reduce(self, send: Tensor, out: Tensor, op: ReduceOp, finish: Any) -> Work:
        given = _DeviceArray(send), _DeviceArray(out), self._op(op, out)
        return self._run("all_reduce", self.comm.allreduce, given, (send, out), finish)

    def reduce(
        self, send: Tensor, out: Tensor | None, root: int, op: ReduceOp, finish: Any
    ) -> Work:
        given = (
            _DeviceArray(send),
            None if out is None else _DeviceArray(out),
            self._op(op, send),
            root,
        )
        return self._run("reduce", self.comm.reduce, given, (send, out), finish)

    def broadcast(self, t: Tensor, root: int, finish: Any) -> Work:
        given = _DeviceArray(t), _DeviceArray(t), root
        return self._run("broadcast", self.comm.broadcast, given, t, finish)

    def all_gather(self, send: Tensor, out: Tensor, finish: Any) -> Work:
        given = _DeviceArray(send), _DeviceArray(out)
        return self._run("all_gather", self.comm.allgather, given, (send, out), finish)

    def gather(self, send: Tensor, out: Tensor | None, root: int, finish: Any) -> Work:
        given = _DeviceArray(send), None if out is None else _DeviceArray(out), root
        return self._run("gather", self.comm.gather, given, (send, out), finish)

    def scatter(self, send: Tensor | None, out: Tensor, root: int, finish: Any) -> Work:
        given = None if send is None else _DeviceArray(send), _DeviceArray(out), root
        return self._run("scatter", self.comm.scatter, given, (send, out), finish)

    def reduce_scatter(self, send: Tensor, out: Tensor, op: ReduceOp, finish: Any) -> Work:
        given = _DeviceArray(send), _DeviceArray(out), self._op(op, out)
        return self._run("reduce_scatter", self.comm.reduce_scatter, given, (send, out), finish)

    def all_to_all(
        self, send: Tensor, out: Tensor, sent: list[int], received: list[int], finish: Any
    ) -> Work:
        """`sent` and `received` are bytes to and from each process."""
        size = send.itemsize
        to, source = _starts(sent, size), _starts(received, size)

        def call(stream: int) -> None:
            with self.nccl.group():
                for peer, (start, count) in enumerate(to):
                    if count:
                        self.comm.send(_DeviceArray(send, count, start), peer, stream=stream)
                for peer, (start, count) in enumerate(source):
                    if count:
                        self.comm.recv(_DeviceArray(out, count, start), peer, stream=stream)

        return self._run("all_to_all", call, (), (send, out), finish)

    def barrier(self) -> Work:
        return JointWork([self.control.barrier()])

    def send(self, t: Tensor, to: int, tag: int) -> Work:
        return self._run("send", self.comm.send, (_DeviceArray(t), to), t, None)

    def receive(self, out: Tensor, source: int | None, tag: int, finish: Any) -> Work:
        if source is None:
            raise ValueError("NCCL receives from a process that is named: give src")
        return self._run("recv", self.comm.recv, (_DeviceArray(out), source), out, finish)

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Put sends and receives onto the stream together: they wait for each other there."""
        batch: list[NcclWork] = []
        self._batch = batch
        try:
            with self.nccl.group():
                yield
        finally:
            self._batch = None
        for work in batch:
            work.mark()

    def close(self) -> None:
        """Give up what NCCL holds for the group."""
        self.comm.destroy()


def _starts(nbytes: list[int], size: int) -> list[tuple[int, int]]:
    """Where each part starts and how long it is, in elements."""
    found, at = [], 0
    for n in nbytes:
        found.append((at, n // size))
        at += n // size
    return found


def channel(control: mpi.MpiChannel, device_id: Any = None) -> NcclChannel:
    """The channel among the GPUs of the processes of another channel.

    Raises:
        RuntimeError: if there is no GPU, or no NCCL.
    """
    if reason := driver.reason():
        raise RuntimeError(f"ProcessGroupNCCL is only supported with GPUs, no GPUs found! {reason}")
    if _library() is None:
        raise RuntimeError(f"Distributed package doesn't have NCCL built in: {INSTALL}")
    place = devices.check("cuda" if device_id is None else device_id)
    return NcclChannel(control, place.index or 0)
