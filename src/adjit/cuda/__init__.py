"""GPUs: which there are, their memory, streams and events. PyTorch's `torch.cuda`.

Operations are recorded and run when somebody looks, on a GPU as on the CPU. What waits for a GPU or
puts a mark into a stream (`synchronize`, events, another stream) runs what is recorded first.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from .. import devices, driver, gpu
from ..devices import device as Device
from ..errors import OutOfMemoryError
from ..ops.creation import cuda_types
from ..random import default_generator
from ..schedule.planning.recipe import DeviceSource
from ..schedule.settle import settle
from ..tables import aligned
from ..tensor import Tensor
from . import nvtx as nvtx

__all__ = [
    "CUDAGraph", "Event", "OutOfMemoryError", "Stream", "StreamContext", "can_device_access_peer",
    "current_device", "current_stream", "default_stream", "device", "device_count", "device_of", "empty_cache",
    "get_arch_list", "get_device_capability", "get_device_name", "get_device_properties",
    "get_rng_state", "get_rng_state_all",
    "graph", "init", "initial_seed", "ipc_collect", "is_available", "is_bf16_supported",
    "is_current_stream_capturing", "is_initialized", "kernels", "manual_seed", "manual_seed_all",
    "max_memory_allocated", "max_memory_reserved", "mem_get_info", "memory_allocated",
    "memory_reserved", "memory_stats", "memory_summary", "reset_max_memory_allocated",
    "reset_peak_memory_stats", "seed", "seed_all", "set_device", "set_rng_state", "set_rng_state_all",
    "set_stream", "stream", "synchronize",
]  # fmt: skip


# ----- which there are -----


def is_available() -> bool:
    """True if there is a GPU with a driver that adjit can use; quick, and never an error.

    Example:
        >>> adjit.cuda.is_available() or adjit.cuda.device_count() == 0
        True
    """
    return not driver.reason()


def is_initialized() -> bool:
    """True if a tensor was made on a GPU.

    Example:
        >>> x = adjit.ones(3, device="cuda")
        >>> adjit.cuda.is_initialized()
        True
    """
    return bool(devices.gpus_used)


def init() -> None:
    """Do nothing: what a GPU needs is made when it is first used.

    Raises:
        RuntimeError: if there is no GPU; the text says what is missing.

    Example:
        >>> adjit.cuda.init()
    """
    _index(None)


def device_count() -> int:
    """Count the GPUs; 0 where no driver is.

    Example:
        >>> adjit.cuda.device_count() > 0 or not adjit.cuda.is_available()
        True
    """
    return 0 if driver.reason() else driver.load().count


def current_device() -> int:
    """Tell the number of the GPU that "cuda" means in this thread.

    Raises:
        RuntimeError: if there is no GPU; the text says what is missing.

    Example:
        >>> adjit.cuda.current_device()
        0
    """
    return _index(None)


def set_device(device: Any) -> None:
    """Let "cuda" mean another GPU in this thread.

    Raises:
        RuntimeError: if there is no such GPU.

    Example:
        >>> adjit.cuda.set_device(0)
        >>> adjit.cuda.current_device()
        0
    """
    devices.current.index = _index(device)


class device:
    """Let "cuda" mean another GPU inside a `with` block.

    Raises:
        RuntimeError: if there is no such GPU.

    Example:
        >>> with adjit.cuda.device(0):
        ...     adjit.zeros(2, device="cuda").device
        device(type='cuda', index=0)
    """

    def __init__(self, device: Any) -> None:
        self.idx = _index(device)
        self._before = -1

    def __enter__(self) -> None:
        self._before, devices.current.index = devices.current.index, self.idx

    def __exit__(self, *_: object) -> None:
        devices.current.index = self._before


class device_of(device):
    """Let "cuda" mean the GPU of a tensor inside a `with` block; nothing for a tensor of the CPU.

    Example:
        >>> x = adjit.ones(3, device="cuda")
        >>> with adjit.cuda.device_of(x):
        ...     adjit.cuda.current_device()
        0
    """

    def __init__(self, obj: Tensor) -> None:
        self.idx = obj.get_device() if obj.is_cuda else devices.current.index
        self._before = -1


def _index(place: Any) -> int:
    """The number of a GPU: of the current one for None, else of what describes one."""
    found = devices.check("cuda" if place is None else place)
    if found.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {found}")
    assert found.index is not None
    return found.index


class _Properties(NamedTuple):
    """What a GPU is."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    max_threads_per_multi_processor: int
    regs_per_multiprocessor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int
    is_integrated: int


def get_device_name(device: Any = None) -> str:
    """Tell the name of a GPU.

    Example:
        >>> adjit.cuda.get_device_name() == adjit.cuda.get_device_properties().name
        True
    """
    index = _index(device)
    return driver.load().name(index)


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """Tell the compute capability of a GPU, (9, 0) for an H100.

    Example:
        >>> major, minor = adjit.cuda.get_device_capability()
    """
    index, found = _index(device), driver.load()
    return found.attribute(driver.MAJOR, index), found.attribute(driver.MINOR, index)


def get_device_properties(device: Any = None) -> _Properties:
    """Tell the name, compute capability, memory and multiprocessors of a GPU.

    Example:
        >>> adjit.cuda.get_device_properties().warp_size
        32
    """
    index, found = _index(device), driver.load()
    attributes = (
        driver.MULTIPROCESSORS, driver.WARP_SIZE, driver.THREADS_PER_MULTIPROCESSOR, driver.REGISTERS,
        driver.SHARED_PER_BLOCK, driver.SHARED_OPTIN, driver.SHARED_PER_MULTIPROCESSOR,
        driver.L2_BYTES, driver.INTEGRATED,
    )  # fmt: skip
    return _Properties(
        found.name(index), *get_device_capability(index), found.total_memory(index),
        *[found.attribute(which, index) for which in attributes],
    )  # fmt: skip


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """False: adjit computes in float32 and float64.

    Example:
        >>> adjit.cuda.is_bf16_supported()
        False
    """
    return False


def get_arch_list() -> list[str]:
    """Give an empty list: kernels are compiled for the GPU that is there, when they are first used.

    Example:
        >>> adjit.cuda.get_arch_list()
        []
    """
    return []


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """False: what one GPU needs of another is copied.

    Raises:
        RuntimeError: if there is no such GPU.

    Example:
        >>> adjit.cuda.can_device_access_peer(0, 0)
        False
    """
    _index(device), _index(peer_device)
    return False


# ----- memory -----
#
# Of a GPU that is not there nothing is held: the counts are 0, as PyTorch's.


class _Counts(NamedTuple):
    """Bytes in blocks of tensors, and taken from the driver; the most of both."""

    allocated: int = 0
    peak: int = 0
    reserved: int = 0
    peak_reserved: int = 0


def _counts(device: Any) -> _Counts:
    if not is_available():
        return _Counts()
    pool = _pool(device)
    return _Counts(pool.allocated, pool.peak, pool.reserved, pool.peak_reserved)


def _pool(device: Any) -> gpu.Pool:
    settle()
    return gpu.pool_of(devices.gpu(_index(device)))


def memory_allocated(device: Any = None) -> int:
    """Count the bytes in blocks of tensors on a GPU.

    Example:
        >>> x = adjit.ones(3, device="cuda")
        >>> adjit.cuda.memory_allocated() > 0
        True
    """
    return _counts(device).allocated


def max_memory_allocated(device: Any = None) -> int:
    """Tell the most bytes in blocks of tensors since `reset_peak_memory_stats`.

    Example:
        >>> x = adjit.ones(3, device="cuda")
        >>> adjit.cuda.max_memory_allocated() >= adjit.cuda.memory_allocated()
        True
    """
    return _counts(device).peak


def memory_reserved(device: Any = None) -> int:
    """Count the bytes that were taken from the driver, used or kept for later.

    Example:
        >>> x = adjit.ones(3, device="cuda")
        >>> adjit.cuda.memory_reserved() >= adjit.cuda.memory_allocated()
        True
    """
    return _counts(device).reserved


def max_memory_reserved(device: Any = None) -> int:
    """Tell the most bytes that were taken from the driver since `reset_peak_memory_stats`.

    Example:
        >>> x = adjit.ones(3, device="cuda")
        >>> adjit.cuda.max_memory_reserved() >= adjit.cuda.memory_reserved()
        True
    """
    return _counts(device).peak_reserved


def memory_stats(device: Any = None) -> dict[str, int]:
    """Give the counts under PyTorch's names for them; empty without a GPU.

    Example:
        >>> x = adjit.ones(3, device="cuda")
        >>> "allocated_bytes.all.peak" in adjit.cuda.memory_stats()
        True
    """
    if not is_available():
        return {}
    found = _counts(device)
    return {
        "allocated_bytes.all.current": found.allocated,
        "allocated_bytes.all.peak": found.peak,
        "reserved_bytes.all.current": found.reserved,
        "reserved_bytes.all.peak": found.peak_reserved,
    }


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """Give the counts as a table for people.

    Raises:
        RuntimeError: if there is no GPU; the text says what is missing.

    Example:
        >>> x = adjit.ones(3, device="cuda")
        >>> print(adjit.cuda.memory_summary().splitlines()[0])
        memory of cuda:0
    """
    index, found = _index(device), _counts(device)
    rows = [
        ("", "now", "most"),
        ("in blocks of tensors", gpu.spoken(found.allocated), gpu.spoken(found.peak)),
        ("taken from the driver", gpu.spoken(found.reserved), gpu.spoken(found.peak_reserved)),
    ]
    return f"memory of cuda:{index}\n{aligned(rows, (1, 2))}"


def reset_peak_memory_stats(device: Any = None) -> None:
    """Start the counts of `max_memory_allocated` and `max_memory_reserved` anew.

    Example:
        >>> x = adjit.ones(3, device="cuda")
        >>> adjit.cuda.reset_peak_memory_stats()
        >>> adjit.cuda.max_memory_allocated() == adjit.cuda.memory_allocated()
        True
    """
    if is_available():
        pool = _pool(device)
        pool.peak, pool.peak_reserved = pool.allocated, pool.reserved


reset_max_memory_allocated = reset_peak_memory_stats


def ipc_collect() -> None:
    """Do nothing: no memory of a GPU is shared between processes.

    Example:
        >>> adjit.cuda.ipc_collect()
    """


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Tell the free and all bytes of a GPU's memory, as the driver sees them.

    Example:
        >>> free, total = adjit.cuda.mem_get_info()
        >>> free <= total
        True
    """
    index = _index(device)
    return driver.load().memory(index)


def empty_cache() -> None:
    """Give the free blocks of all GPUs back to the driver.

    Example:
        >>> adjit.cuda.empty_cache()
    """
    settle()
    for place in devices.gpus_used:
        gpu.pool_of(place).empty_cache()


# ----- streams and events -----


class Stream:
    """A queue of work on a GPU that runs beside others.

    Example:
        >>> if adjit.cuda.is_available():
        ...     side = adjit.cuda.Stream()
        ...     with adjit.cuda.stream(side):
        ...         y = adjit.ones(3, device="cuda") + 1
        ...     adjit.cuda.current_stream().wait_stream(side)
    """

    __slots__ = ("_index", "cuda_stream")

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self._index = _index(device)
        found = driver.load()
        found.use(self._index)
        self.cuda_stream = found.new_stream()

    @classmethod
    def _of(cls, index: int, handle: int) -> Stream:
        """A stream that is there already."""
        made = object.__new__(cls)
        made._index, made.cuda_stream = index, handle
        return made

    @property
    def device(self) -> Device:
        """The GPU that it runs on.

        Example:
            >>> adjit.cuda.Stream().device
            device(type='cuda', index=0)
        """
        return devices.gpu(self._index)

    def synchronize(self) -> None:
        """Wait until all its work is done; raises what a kernel has found.

        Example:
            >>> side = adjit.cuda.Stream()
            >>> side.synchronize()
        """
        settle()
        _state(self._index).synchronize(self.cuda_stream)

    def query(self) -> bool:
        """True if all its work is done.

        Example:
            >>> side = adjit.cuda.Stream()
            >>> side.query()
            True
        """
        settle()
        return driver.load().is_done("cuStreamQuery", self.cuda_stream)

    def record_event(self, event: Event | None = None) -> Event:
        """Put an event, a new one by default, after its work.

        Example:
            >>> side = adjit.cuda.Stream()
            >>> event = side.record_event()
            >>> adjit.cuda.current_stream().wait_event(event)
        """
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let what comes wait for an event.

        Example:
            >>> side = adjit.cuda.Stream()
            >>> side.wait_event(adjit.cuda.current_stream().record_event())
        """
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Let what comes wait for all work that another stream has now.

        Example:
            >>> side = adjit.cuda.Stream()
            >>> side.wait_stream(adjit.cuda.current_stream())
        """
        self.wait_event(stream.record_event())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self._index, self.cuda_stream) == (
            other._index,
            other.cuda_stream,
        )

    def __hash__(self) -> int:
        return hash((self._index, self.cuda_stream))

    def __repr__(self) -> str:
        return f"<adjit.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class Event:
    """A mark in a stream, to wait for and to measure time with.

    Args:
        enable_timing: whether `elapsed_time` may be asked.

    Example:
        >>> if adjit.cuda.is_available():
        ...     start, end = (adjit.cuda.Event(enable_timing=True) for _ in range(2))
        ...     start.record()
        ...     y = adjit.ones(1000, device="cuda") * 2
        ...     end.record()
        ...     end.synchronize()
        ...     milliseconds = start.elapsed_time(end)
    """

    __slots__ = ("_driver", "_handle", "_stream", "enable_timing")

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self.enable_timing = bool(enable_timing)
        self._handle = 0
        self._stream: Stream | None = None  # that it was put into last

    def record(self, stream: Stream | None = None) -> None:
        """Put it after the work of a stream, by default of the current one.

        Example:
            >>> event = adjit.cuda.Event()
            >>> event.record()
            >>> event.synchronize()
        """
        settle()
        stream = current_stream() if stream is None else stream
        found = driver.load()
        found.use(stream._index)
        if not self._handle:
            self._driver, self._handle = found, found.new_event(timing=self.enable_timing)
        found.call("cuEventRecord", self._handle, stream.cuda_stream)
        self._stream = stream

    def wait(self, stream: Stream | None = None) -> None:
        """Let what comes in a stream, by default the current one, wait for it.

        Example:
            >>> event = adjit.cuda.current_stream().record_event()
            >>> event.wait(adjit.cuda.Stream())
        """
        settle()
        stream = current_stream() if stream is None else stream
        if self._stream is not None:
            found = driver.load()
            found.use(stream._index)
            found.call("cuStreamWaitEvent", stream.cuda_stream, self._handle, 0)

    def query(self) -> bool:
        """True if all work before it is done.

        Example:
            >>> event = adjit.cuda.Event()
            >>> event.query()
            True
        """
        return self._stream is None or driver.load().is_done("cuEventQuery", self._handle)

    def synchronize(self) -> None:
        """Wait until all work before it is done.

        Example:
            >>> event = adjit.cuda.current_stream().record_event()
            >>> event.synchronize()
            >>> event.query()
            True
        """
        if self._stream is not None:
            driver.load().call("cuEventSynchronize", self._handle)

    def elapsed_time(self, end_event: Event) -> float:
        """Measure the milliseconds from this event to another.

        Raises:
            ValueError: if one was not recorded, or made without `enable_timing`.
            RuntimeError: if one is not done yet.

        Example:
            >>> start, end = (adjit.cuda.Event(enable_timing=True) for _ in range(2))
            >>> start.record(), end.record()
            (None, None)
            >>> end.synchronize()
            >>> start.elapsed_time(end) >= 0
            True
        """
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._stream is None or end_event._stream is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end_event.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return driver.load().elapsed(self._handle, end_event._handle)

    def __del__(self) -> None:
        if self._handle:
            self._driver.discard("cuEventDestroy_v2", self._handle)


def current_stream(device: Any = None) -> Stream:
    """Give the stream that this thread's work goes to.

    Example:
        >>> adjit.cuda.current_stream() == adjit.cuda.default_stream()
        True
    """
    index = _index(device)
    return Stream._of(index, gpu.current_stream(index))


def default_stream(device: Any = None) -> Stream:
    """Give the stream that work goes to if nothing else is said.

    Example:
        >>> adjit.cuda.default_stream().cuda_stream
        0
    """
    return Stream._of(_index(device), 0)


class StreamContext:
    """The context that `stream` gives.

    Args:
        stream: the stream; None changes nothing.

    Example:
        >>> with adjit.cuda.StreamContext(None):
        ...     pass
    """

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self._entered: list[contextlib.ExitStack] = []

    def __enter__(self) -> None:
        inside = contextlib.ExitStack()
        if self.stream is not None:
            settle()
            inside.enter_context(gpu.on_stream(self.stream._index, self.stream.cuda_stream))
            inside.enter_context(device(self.stream._index))
            inside.callback(settle)
        self._entered.append(inside)

    def __exit__(self, *error: object) -> None:
        self._entered.pop().close()


def stream(stream: Stream | None) -> StreamContext:
    """Put what this thread does inside onto a stream; None changes nothing.

    Example:
        >>> side = adjit.cuda.Stream()
        >>> with adjit.cuda.stream(side):
        ...     adjit.cuda.current_stream() == side
        True
    """
    return StreamContext(stream)


def set_stream(stream: Stream) -> None:
    """Put this thread's work onto a stream from now on.

    Example:
        >>> side = adjit.cuda.Stream()
        >>> adjit.cuda.set_stream(side)
        >>> adjit.cuda.current_stream() == side
        True
        >>> adjit.cuda.set_stream(adjit.cuda.default_stream())
    """
    settle()
    gpu.set_stream(stream._index, stream.cuda_stream)


def synchronize(device: Any = None) -> None:
    """Wait until all work of a GPU is done; raises what a kernel has found.

    Raises:
        RuntimeError: if there is no GPU; the text says what is missing.

    Example:
        >>> adjit.cuda.synchronize()
    """
    index = _index(device)
    settle()
    _state(index).synchronize()


def _state(index: int) -> Any:
    from ..schedule.gpu import run

    return run.gpu_of(devices.gpu(index))


# ----- kernels -----


def kernels(t: Tensor, backward: bool = False) -> list[DeviceSource]:
    """List the device kernels that would compute a tensor, each once; no GPU is needed.

    `t.kernels(device="cuda")` is their text. As values they can be compiled and looked into
    (`adjit.cuda.inspection.code_of`) or run by themselves (`adjit.cuda.simulator.run`).

    Args:
        backward: also those that would compute the gradients of the leaves.

    Example:
        >>> [kernel.name for kernel in adjit.cuda.kernels(adjit.tensor([1.0, 2.0]).tanh())]
        ['tanh_f32_to_f32_cc_on_gpu']
    """
    from ..show import device_steps

    return list(dict.fromkeys(step.source for step in device_steps(t, backward)))


# ----- random numbers -----


def manual_seed(seed: int) -> None:
    """Seed the random numbers of the current GPU; nothing without one.

    The generator is that of the CPU: a seed gives the same numbers on every device.

    Example:
        >>> adjit.cuda.manual_seed(5)
        >>> adjit.cuda.initial_seed()
        5
    """
    if is_available():
        default_generator.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the random numbers of all GPUs, which is `manual_seed`.

    Example:
        >>> adjit.cuda.manual_seed_all(5)
        >>> adjit.cuda.initial_seed()
        5
    """
    manual_seed(seed)


def seed() -> None:
    """Seed the random numbers of the current GPU with a number that nobody knows; nothing without one.

    Example:
        >>> adjit.cuda.seed()
        >>> adjit.cuda.initial_seed() == adjit.initial_seed()
        True
    """
    if is_available():
        default_generator.seed()


seed_all = seed


def initial_seed() -> int:
    """Tell the seed of the current GPU's random numbers, which is that of the CPU.

    Raises:
        RuntimeError: if there is no GPU; the text says what is missing.

    Example:
        >>> adjit.cuda.initial_seed() == adjit.initial_seed()
        True
    """
    _index(None)
    return default_generator.initial_seed()


def get_rng_state(device: Any = "cuda") -> Tensor:
    """Give the state of a GPU's random numbers, which is that of the CPU.

    Raises:
        RuntimeError: if there is no GPU; the text says what is missing.

    Example:
        >>> adjit.cuda.get_rng_state().dtype
        adjit.uint8
    """
    _index(device)
    return default_generator.get_state()


def set_rng_state(new_state: Tensor, device: Any = "cuda") -> None:
    """Go back to a state of `get_rng_state`.

    Raises:
        RuntimeError: if there is no GPU; the text says what is missing.

    Example:
        >>> state = adjit.cuda.get_rng_state()
        >>> adjit.cuda.set_rng_state(state)
    """
    _index(device)
    default_generator.set_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """Give the states of the random numbers of all GPUs: none, where none is.

    Example:
        >>> len(adjit.cuda.get_rng_state_all()) == adjit.cuda.device_count()
        True
    """
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Go back to the states of `get_rng_state_all`, the last of which counts: GPUs and the CPU share one.

    Raises:
        RuntimeError: if there are states and no GPU; the text says what is missing.

    Example:
        >>> adjit.cuda.set_rng_state_all(adjit.cuda.get_rng_state_all())
    """
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def is_current_stream_capturing() -> bool:
    """False: plans become graphs on a stream of their own.

    Example:
        >>> adjit.cuda.is_current_stream_capturing()
        False
    """
    return False


# ----- the constructors of old programs, and what there is not -----

globals().update(cuda_types)

GRAPHS = (
    "what comes back is launched as a CUDA graph by itself, and adjit.compile captures a step: call "
    "the function as it is"
)
INSTEAD = {
    "make_graphed_callables": GRAPHS,
    "nvtx": "mark nothing: adjit.profiler names the lines behind each kernel",
}


class CUDAGraph:
    """A name for annotations: there are none to make.

    Raises:
        RuntimeError: always, when one is made.

    Example:
        >>> def replay(graph: adjit.cuda.CUDAGraph) -> None: ...
        >>> adjit.cuda.CUDAGraph()
        Traceback (most recent call last):
            ...
        RuntimeError: adjit.cuda.CUDAGraph cannot be made; what comes back is launched as a CUDA graph ...
    """

    def __init__(self, keep_graph: bool = False) -> None:
        raise RuntimeError(f"adjit.cuda.CUDAGraph cannot be made; {GRAPHS}")


class graph:
    """A name for annotations: nothing can be captured inside of one.

    Raises:
        RuntimeError: always, when one is made.

    Example:
        >>> def capture(context: adjit.cuda.graph) -> None: ...
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        raise RuntimeError(f"adjit.cuda.graph captures nothing; {GRAPHS}")


def __getattr__(name: str) -> Any:
    if name == "amp":  # loaded at its first use
        return importlib.import_module(f"{__name__}.amp")
    if name == "_initialized":  # what programs ask before there was the function
        return is_initialized()
    told = INSTEAD.get(name, "what is not supported yet is listed in the README")
    raise AttributeError(f"module 'adjit.cuda' has no attribute {name!r}; {told}")
