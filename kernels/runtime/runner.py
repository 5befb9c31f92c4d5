"""The compiled loop that executes a plan, and the threads it may use.

A plan is a stream of int64 words, one record per step:

    kernel address, n, grain, k, word_0 ... word_{k-1}

and a step is the call `kernel(&word_0, 0, n)`. A step of at least two grains may instead be cut
into parts of at least `grain` units each, at most one part per thread: unit u of n belongs to part
i when n*i//parts <= u < n*(i+1)//parts. Steps keep their order; one ends before the next begins.
Nothing here is compiled twice: `walk` takes the kernels, and the threads, by address.

Threads. `walk` hands the parts of a step to any function that behaves like `parallel_for` of
Numba's threading layers, and a runner picks one when the first large step arrives:

    workers  On POSIX, threads of our own (`workers.py`), which are there when the next step comes.
    tbb      Numba's extension module on top of the tbb wheel. Neither Numba's compiler nor its
             `launch_threads` is needed: the call carries its own arena, and without the launch no
             fork handlers are left behind that wait for threads or print. In a child forked after it
             was used, where it would wait for threads that are gone, workers do its work.
    serial   Where neither exists.

    ADJIT_THREADING_LAYER names one of them instead, ADJIT_NUM_THREADS the number of threads.

Numba's `workqueue` is never used: it aborts the process when two Python threads enter it.

Measured on a 2-core Zen 4 virtual machine, Python 3.11, numba 0.68.1, tbb 2023.2
    a stream         0.7 us a call from Python, 4.5 ns a step; timed, 30 ns a step
                     and 60 to hand out its time
    getting ready    walk 0.13 s to compile, tbb with run_parts 0.04 s, share and work 0.15 s;
                     next to nothing where the object code is loaded
    Where another process holds the second core, splitting wins nothing and loses under 2 us: the
    calling thread takes every part that nobody else took.
"""

import ctypes
import functools
import importlib
import importlib.metadata
import operator
import os
import signal
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterable
from itertools import compress, repeat
from typing import Any

from numba.extending import register_jitable

from ..language.abi import call, stack_words, words
from ..language.target import compile_function, load
from .workers import (
    ARGS,
    BASE,
    KERNEL,
    PARTS,
    SHARE_SIGNATURE,
    STRIDE,
    UNITS,
    WORK_SIGNATURE,
    WORKERS,
    Workers,
    share,
    work,
)

HEADER = 4  # words of a record before its arguments: kernel address, n, grain, k
STATUS_WORDS = 4  # of what a kernel has found: whether it is a bad value, then what

# Words of a block: the threads, the function that runs parts, what it runs, and its workers.
THREADS, PARALLEL_FOR, RUN_PARTS, POOL = range(4)
TEAM_WORDS = 4

WALK_SIGNATURE = "int64(int64, int64, int64, int64)"
TIMED_WALK_SIGNATURE = "int64(int64, int64, int64, int64, int64, int64, int64)"
RUN_PARTS_SIGNATURE = "void(int64, int64, int64, int64)"

HAS_PTHREADS = hasattr(signal, "pthread_sigmask")

OLDEST_TBB = 12060  # 2021.6, the oldest that Numba accepts


@register_jitable
def run_step(record: int, block: int, job: int) -> int:
    """Run one step of a stream; the address of the next."""
    head = words(record)
    args = record + 8 * HEADER
    n = head[1]
    parts = 1
    if block != 0 and n >= 2 * max(head[2], 1):
        parts = min(words(block)[THREADS], n // max(head[2], 1))
    if parts > 1:
        shared = words(job)
        shared[BASE] = 0
        shared[PARTS] = parts
        shared[STRIDE] = 1
        shared[KERNEL] = head[0]
        shared[ARGS] = args
        shared[UNITS] = n
        shared[WORKERS] = words(block)[POOL]
        call(
            words(block)[PARALLEL_FOR],
            (words(block)[RUN_PARTS], job, job + 8 * PARTS, job + 8 * STRIDE, job, 0, 1, parts),
        )
    elif n > 0:
        call(head[0], (args, 0, n))
    return args + 8 * head[3]


def walk(stream: int, steps: int, status: int, block: int) -> int:
    """Run the steps of a stream; the number of the step that set the status, or -1.

    `status` is the address of the status words, 0 if no step can fail. `team` is the address of
    a team's words, 0 to stay on the calling thread.
    """
    record = stream
    job = stack_words(7)
    for step in range(steps):
        record = run_step(record, block, job)
        if status != 0 and words(status)[0] != 0:
            return step
    return -1


def timed_walk(
    stream: int, steps: int, status: int, block: int, clock: int, which: int, stamps: int
) -> int:
    """`walk` that notes the time before the first step and after each, in two words a time.

    `clock` is the address of clock_gettime, `which` the clock that it is to read.
    """
    record = stream
    job = stack_words(7)
    call(clock, (which, stamps))
    for step in range(steps):
        record = run_step(record, block, job)
        call(clock, (which, stamps + 16 * (step + 1)))
        if status != 0 and words(status)[0] != 0:
            return step
    return -1


def run_parts(base: int, count: int, stride: int, job: int) -> None:
    """Run the parts that a thread was given: `count` of them, from the number at `base` on."""
    shared = words(job)
    first = words(base)[0]
    last = first + words(count)[0]
    units, parts = shared[UNITS], shared[PARTS]
    call(shared[KERNEL], (shared[ARGS], units * first // parts, units * last // parts))


def compile_now(function: Callable[..., Any], signature: str) -> int:
    """The address of a function compiled in this process, which keeps it."""
    compiled = compile_function(function, signature)
    return load(compiled.symbol, compiled.code)


def default_num_threads() -> int:
    """ADJIT_NUM_THREADS, else OMP_NUM_THREADS, else the CPUs that this process may use."""
    wanted = os.environ.get("ADJIT_NUM_THREADS")
    if wanted is not None:
        if not (wanted.isdecimal() and int(wanted) > 0):
            raise ValueError(f"ADJIT_NUM_THREADS must be a positive integer, but is {wanted!r}")
        return int(wanted)
    outermost = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if outermost.isdecimal() and int(outermost) > 0:
        return int(outermost)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_large(n: int, grain: int) -> bool:
    """Whether `walk` cuts a step of `n` units when it has a block."""
    return n >= 2 * max(grain, 1)


def tbb_parallel_for() -> int:
    """The address of parallel_for over tbb, 0 without a tbb that Numba accepts.

    Numba looks for tbb where the dynamic linker does, and so misses the wheel, which puts it in
    `lib` of the environment. Once loaded it is found by its name.
    """
    name = {"linux": "libtbb.so.12", "win32": "tbb12.dll", "darwin": "libtbb.12.dylib"}.get(
        sys.platform, ""
    )
    try:
        installed = importlib.metadata.files("tbb") or []
    except importlib.metadata.PackageNotFoundError:
        installed = []
    for path in [*(str(file.locate()) for file in installed if file.name == name), name]:
        try:
            library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            if library.TBB_runtime_interface_version() >= OLDEST_TBB:
                return int(importlib.import_module("numba.np.ufunc.tbbpool").parallel_for)
        except (OSError, AttributeError, ImportError):
            continue
    return 0


@functools.cache
def clock_address() -> int:
    """The address of clock_gettime, 0 where its times are not two words or it does not exist."""
    if not hasattr(time, "CLOCK_MONOTONIC") or sys.maxsize < 1 << 32:
        return 0
    try:
        return ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value or 0
    except (AttributeError, OSError, TypeError):
        return 0


Calls = Iterable[Callable[[], object]]


def at_once(walk: Iterable[int], others: Calls, status: int) -> int:
    """What an iterator gives that makes one call; no handler of signals runs between it and the others, which
    are left out where the status at an address, if there is one, says that it failed.

    Handlers run after calls and at the ends of loops of Python, and here are none if what is called has none.
    """
    if status:
        word = (ctypes.c_int64 * 1).from_address(status)
        others = compress(others, map(operator.not_, map(word.__getitem__, repeat(0))))
    follow = map(operator.call, others)
    found: list[Any] = [*walk, *follow]
    step: int = found[0]
    return step


class Runner:
    """Runs streams on the calling thread and, where it pays, on others.

    `load(function, signature)` gives the address of a compiled function; it must keep the code.
    Nothing is compiled before the first stream, no thread is started before the first large one.
    A process needs one runner, which lives as long as the process.
    """

    def __init__(self, load: Callable[[Callable[..., Any], str], int] = compile_now) -> None:
        self._load = functools.cache(load)
        self._lock = threading.Lock()
        self._walk: Callable[[int, int, int, int], int] | None = None
        self._threads = 0
        self._team = (ctypes.c_int64 * TEAM_WORDS)()
        self._layer = ""
        self._workers: Workers | None = None
        self._tbb_is_usable = True
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def run(
        self, stream: int, steps: int, status: int = 0, *, large: bool = False, then: Calls = ()
    ) -> int:
        """Run the steps of a stream; the number of the step that set the status, or -1.

        `large` says that some step satisfies `is_large`: only then may threads be started. The
        GIL is released meanwhile. Whoever calls keeps the memory behind every address alive. What is to be
        done `then`, calls without Python, is done before a handler of signals can run, unless a step failed.
        """
        walk = self._walk or self._prepare_walk()
        block = self.prepare_parallel() if large else 0
        if not then:
            return walk(stream, steps, status, block)
        return at_once(map(walk, (stream,), (steps,), (status,), (block,)), then, status)

    def run_timed(
        self, stream: int, steps: int, status: int = 0, *, large: bool = False, then: Calls = ()
    ) -> tuple[int, list[int]]:
        """`run`, and the times before the first step and after each, in ns of the monotonic clock.

        A time takes some 20 ns to read, which the step before it is charged with.
        """
        clock = clock_address()
        if not clock:
            return self._run_timed_by_python(stream, steps, status, large, then)
        stamps = array("q", bytes(16 * (steps + 1)))
        block = self.prepare_parallel() if large else 0
        address, _ = stamps.buffer_info()
        walk = map(
            self._timed_walk, (stream,), (steps,), (status,), (block,), (clock,),
            (time.CLOCK_MONOTONIC,), (address,),
        )  # fmt: skip
        stopped = at_once(walk, then, status)
        ran = steps if stopped < 0 else stopped + 1
        pairs = zip(stamps[: 2 * ran + 2 : 2], stamps[1 : 2 * ran + 2 : 2], strict=True)
        return stopped, [1_000_000_000 * seconds + ns for seconds, ns in pairs]

    def _run_timed_by_python(
        self, stream: int, steps: int, status: int, large: bool, then: Calls
    ) -> tuple[int, list[int]]:
        """Where there is no clock to call: every step on its own."""
        times = [time.monotonic_ns()]
        stopped = -1
        for step in range(steps):
            is_last = step == steps - 1
            found = self.run(stream, 1, status, large=large, then=then if is_last else ())
            times.append(time.monotonic_ns())
            if found >= 0:
                stopped = step
                break
            count = ctypes.c_int64.from_address(stream + 8 * (HEADER - 1)).value
            stream += 8 * (HEADER + count)
        return stopped, times

    def get_num_threads(self) -> int:
        """The number of threads that a step may use, the calling one included."""
        if not self._threads:
            self._threads = default_num_threads()
        return self._threads

    def set_num_threads(self, threads: int) -> None:
        """Set the number of threads that a step may use; no result depends on it."""
        if isinstance(threads, bool) or not hasattr(threads, "__index__"):
            raise RuntimeError(f"set_num_threads expects an int, but got {type(threads).__name__}")
        if threads <= 0:
            raise RuntimeError("set_num_threads expects a positive integer")
        with self._lock:
            self._threads = int(threads)
            if self._layer:
                self._fill_team()
            else:
                self._team[THREADS] = 0  # not ready

    def threading_layer(self) -> str:
        """Where parts run: "tbb", "workers" or "serial". Decides it, if nothing has yet."""
        self._prepare_layer()
        return self._layer

    def prepare_parallel(self) -> int:
        """Make ready for large steps; the address of the block, 0 where there is only one thread."""
        if not self._layer:
            if self.get_num_threads() > 1:
                self._prepare_layer()
            else:
                self._team[THREADS] = 1  # ready, and nothing is compiled for others
        return ctypes.addressof(self._team) if self._team[THREADS] > 1 else 0

    def _prepare_layer(self) -> None:
        """Choose a layer, if none is."""
        with self._lock:
            if not self._layer:
                self._layer = self._choose_layer()
                self._fill_team()

    def functions(self, *, large: bool) -> list[tuple[Callable[..., Any], str]]:
        """The functions, with their signatures, that the next run wants from `load`, loaded or not."""
        wanted: list[tuple[Callable[..., Any], str]] = [(walk, WALK_SIGNATURE)]
        if large and not self._layer and self.get_num_threads() > 1:
            wanted.append((run_parts, RUN_PARTS_SIGNATURE))
            if not os.environ.get("ADJIT_THREADING_LAYER") and HAS_PTHREADS:
                wanted += [(work, WORK_SIGNATURE), (share, SHARE_SIGNATURE)]
        return wanted

    def walk_address(self) -> int:
        """The address of the compiled `walk`."""
        return self._load(walk, WALK_SIGNATURE)

    def team_address(self) -> int:
        """The address of the block, which has 0 threads until a large step has made it ready."""
        return ctypes.addressof(self._team)

    def _prepare_walk(self) -> Callable[[int, int, int, int], int]:
        """The compiled `walk`, callable from Python."""
        with self._lock:
            if self._walk is None:
                prototype = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 5)
                self._walk = prototype(self.walk_address())
            return self._walk

    @functools.cached_property
    def _timed_walk(self) -> Callable[..., int]:
        """The compiled `timed_walk`, callable from Python."""
        prototype = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 8)
        return prototype(self._load(timed_walk, TIMED_WALK_SIGNATURE))

    def _choose_layer(self) -> str:
        """Load the best layer there is, or the one that ADJIT_THREADING_LAYER names."""
        wanted = os.environ.get("ADJIT_THREADING_LAYER", "")
        if wanted not in ("", "tbb", "workers", "serial"):
            raise ValueError(
                f"ADJIT_THREADING_LAYER must be 'tbb', 'workers' or 'serial', but is {wanted!r}"
            )
        self._team[RUN_PARTS] = self._load(run_parts, RUN_PARTS_SIGNATURE)
        if self._tbb_is_usable and (wanted == "tbb" or not (wanted or HAS_PTHREADS)):
            self._team[PARALLEL_FOR] = tbb_parallel_for()
            if self._team[PARALLEL_FOR]:
                return "tbb"
            if wanted:
                raise ImportError("ADJIT_THREADING_LAYER is 'tbb', but tbb cannot be loaded")
        if wanted != "serial" and HAS_PTHREADS:
            self._workers = Workers(self._load(work, WORK_SIGNATURE))
            self._team[PARALLEL_FOR] = self._load(share, SHARE_SIGNATURE)
            self._team[POOL] = self._workers.address
            return "workers"
        return "serial"

    def _fill_team(self) -> None:
        """Bring the block to the number of threads."""
        threads = self.get_num_threads()
        if self._workers is not None:
            self._workers.grow(threads - 1)
        self._team[THREADS] = 1 if self._layer == "serial" else threads

    def _after_fork(self) -> None:
        """Forget the threads of the parent: none of them exists in a child."""
        self._lock = threading.Lock()
        self._tbb_is_usable = self._tbb_is_usable and self._layer != "tbb"
        self._layer = ""
        self._workers = None
        self._team[:] = [0] * TEAM_WORDS
