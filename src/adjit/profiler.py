"""Where the time goes: which kernels ran, how long, over how many bytes, for which lines.

with adjit.profiler.profile() as p:
    train_one_epoch()
print(p)
p.export_chrome_trace("trace.json")
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import gzip
import json
import os
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .devices import CPU, device
from .errors import CallSite
from .graph.call_sites import recording_sites
from .schedule import profile as scheduling
from .schedule.settle import lock, settle
from .tables import aligned, duration, shortened, size

__all__ = [
    "KernelAverage", "KernelAverages", "KernelEvent", "ProfilerAction", "ProfilerActivity", "profile",
    "record_function", "schedule", "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class KernelEvent:
    """One run of a kernel.

    Attributes:
        name: the kernel; a fused one names the operations in it.
        start: ns since the profile began.
        duration: ns.
        bytes: read and written, by the operands: each counts once, scratch memory not at all.
        elements: of the largest operand.
        lines: where in the program what it computes was recorded: (file, line, function).
        thread: the system's number of the thread that ran it.
        device: where it ran. On a GPU a profile waits after every plan, whose kernels are launched one
            by one, each between two of the GPU's own time stamps.

    Example:
        >>> with adjit.profiler.profile() as p:
        ...     total = adjit.ones(1000).sum().item()
        >>> type(p.events()[0]).__name__
        'KernelEvent'
    """

    name: str
    start: int
    duration: int
    bytes: int
    elements: int
    lines: tuple[CallSite, ...]
    thread: int
    device: device


@dataclasses.dataclass(frozen=True, slots=True)
class KernelAverage:
    """The runs of one kernel, summed up.

    Attributes:
        key: the kernel.
        count: how often it ran.
        self_cpu_time_total: µs in all runs.
        bytes: read and written in all runs.
        lines: where what it computes was recorded.

    Example:
        >>> with adjit.profiler.profile() as p:
        ...     total = adjit.ones(1000).sum().item()
        >>> type(p.key_averages()[0]).__name__
        'KernelAverage'
    """

    key: str
    count: int
    self_cpu_time_total: float
    bytes: int
    lines: tuple[CallSite, ...]

    @property
    def cpu_time(self) -> float:
        """µs of one run, on average.

        Example:
            >>> with adjit.profiler.profile() as p:
            ...     total = adjit.ones(1000).sum().item()
            >>> p.key_averages()[0].cpu_time > 0
            True
        """
        return self.self_cpu_time_total / self.count

    @property
    def gb_per_s(self) -> float:
        """10⁹ bytes a second.

        Example:
            >>> with adjit.profiler.profile() as p:
            ...     total = adjit.ones(1000).sum().item()
            >>> p.key_averages()[0].gb_per_s > 0
            True
        """
        return self.bytes / max(self.self_cpu_time_total, 1e-3) / 1e3


class KernelAverages(list[KernelAverage]):
    """The runs of all kernels, summed up by kernel, with a table.

    Example:
        >>> with adjit.profiler.profile() as p:
        ...     total = adjit.ones(1000).sum().item()
        >>> p.key_averages().table(sort_by="cpu_time_total", row_limit=10).split()[0]
        'Name'
    """

    def __init__(self, averages: Iterable[KernelAverage], span: float) -> None:
        super().__init__(averages)
        self.span = span  # µs that the profile took

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75,
        max_name_column_width: int = 55, header: str | None = None, top_level_events_only: bool = False,
    ) -> str:  # fmt: skip
        """Show the kernels as a table; arguments as for `profile.table`, the further ones are PyTorch's.

        Example:
            >>> with adjit.profiler.profile() as p:
            ...     total = adjit.ones(1000).sum().item()
            >>> p.key_averages().table().splitlines()[0].split()[:2]
            ['Name', 'Self']
        """
        by = _PYTORCH_COLUMNS.get(str(sort_by), sort_by) or "self_cpu_time_total"
        if by not in _COLUMNS:
            raise ValueError(f"sort_by must be one of {', '.join(_COLUMNS)}, got {sort_by!r}")
        averages = sorted(self, key=lambda a: getattr(a, by), reverse=by != "key")
        total = sum([a.self_cpu_time_total for a in averages])
        rows = [HEAD]
        for a in averages[:row_limit] if row_limit >= 0 else averages:
            share = 100 * a.self_cpu_time_total / max(total, 1e-3)
            rows.append(
                (
                    shortened(a.key, 44), f"{share:.1f}%", duration(a.self_cpu_time_total),
                    f"{a.count}", duration(a.cpu_time), size(a.bytes), f"{a.gb_per_s:.1f}",
                    shortened(described(a.lines), 60),
                )
            )  # fmt: skip
        told = f"Self CPU time total: {duration(total)} of {duration(self.span)}"
        if len(averages) > row_limit >= 0:
            told += f"; {len(averages) - row_limit} more kernels"
        return f"{aligned(rows, range(1, len(HEAD) - 1))}\n{told}"

    def total_average(self) -> KernelAverage:
        """Sum up all runs.

        Example:
            >>> with adjit.profiler.profile() as p:
            ...     total = adjit.ones(1000).sum().item()
            >>> p.key_averages().total_average().count == len(p.events())
            True
        """
        return KernelAverage(
            "Total", sum([a.count for a in self]), sum([a.self_cpu_time_total for a in self]),
            sum([a.bytes for a in self]), (),
        )  # fmt: skip


class ProfilerActivity(enum.Enum):
    """Kinds of devices that a profile may watch; kernels are watched wherever they run.

    Example:
        >>> adjit.profiler.ProfilerActivity.CPU
        <ProfilerActivity.CPU: 0>
    """

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    """Things that a profile does in a step.

    Example:
        >>> adjit.profiler.ProfilerAction.RECORD
        <ProfilerAction.RECORD: 2>
    """

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def supported_activities() -> set[ProfilerActivity]:
    """Name what is watched.

    Example:
        >>> adjit.profiler.ProfilerActivity.CPU in adjit.profiler.supported_activities()
        True
    """
    return {ProfilerActivity.CPU, ProfilerActivity.CUDA}


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:  # fmt: skip
    """Make a function that says what a profile does in each step: it waits, warms up and records, in turns.

    Args:
        wait: the steps of a turn in which nothing is done.
        warmup: the steps after those, whose results are not kept.
        active: the steps after those, which are recorded.
        repeat: the number of turns; 0 for no end.
        skip_first: steps before the first turn.
        skip_first_wait: whether the first turn begins with its warm-up.

    Raises:
        AssertionError: if a number is negative, or none is active.

    Example:
        >>> plan = adjit.profiler.schedule(wait=1, warmup=1, active=2)
        >>> [plan(step).name for step in range(5)]
        ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError(
            f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} (need >= 0), "
            f"active={active} (need > 0), repeat={repeat} (need >= 0), skip_first={skip_first} (need >= 0)."
        )
    if not warmup:
        warnings.warn(
            "Profiler won't be using warmup, this can skew profiler results", stacklevel=2
        )
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        turn, place = divmod(step + (wait if skip_first_wait else 0), length)
        if place < wait or 0 < repeat <= turn:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < length - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """Make a function for `on_trace_ready` that writes each trace into a folder, under a name of its own.

    Args:
        dir_name: the folder.
        worker_name: how the names begin; the names of the machine and the process unless given.
        use_gzip: whether the files are compressed.

    Raises:
        RuntimeError: if the folder cannot be made.

    Example:
        >>> handler = adjit.profiler.tensorboard_trace_handler("traces")
        >>> with adjit.profiler.profile(on_trace_ready=handler):
        ...     total = adjit.ones(1000).sum().item()
    """

    def handler(prof: profile) -> None:
        folder = Path(dir_name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RuntimeError(f"Can't create directory: {dir_name}") from error
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        end = ".gz" if use_gzip else ""
        prof.export_chrome_trace(folder / f"{worker}.{time.time_ns()}.pt.trace.json{end}")

    return handler


class record_function(contextlib.ContextDecorator):
    """Give a part of the program a name in the trace of the active profile; a block, or a decorated function.

    What was recorded before it runs before it, and what it records runs before it ends, while a profile is
    active.

    Args:
        name: the name.
        args: shown with it.

    Example:
        >>> with adjit.profiler.profile() as p:
        ...     with adjit.profiler.record_function("sum of ones"):
        ...         total = adjit.ones(1000).sum()
        >>> [span.name for span in p.spans()]
        ['sum of ones']
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name if args is None else f"{name}({args})"
        self._begins: list[tuple[scheduling.Watcher | None, int]] = []

    def __enter__(self) -> record_function:
        watcher = scheduling.active
        if watcher is not None:
            settle()
        self._begins.append((watcher, time.monotonic_ns()))
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        watcher, begin = self._begins.pop()
        if watcher is not None and watcher is scheduling.active:
            if kind is None:
                settle()
            end = time.monotonic_ns()
            watcher.spans.append(scheduling.Span(self.name, begin, end, threading.get_native_id()))


class profile:
    """Measure every kernel that runs in a block, in all threads, and those that only it recorded.

    What was recorded before the block runs before it, and what the block has recorded runs before
    it ends. Operations, their backward and plans of fused operations, and replays of compiled
    functions are covered alike. A block that raises keeps what was measured. Kernels that run over
    several threads count once, with the time from their start to their end.

    Each time has some 20 ns in it that it takes to read the clock. Between the kernels a profile
    costs some µs for each operation that is recorded, and again for each that runs outside of a
    plan. Without a profile nothing is watched.

    Args:
        enabled: whether anything is measured.
        activities: accepted; kernels are watched wherever they run.
        schedule: what is done in each step, of `adjit.profiler.schedule`; all is recorded without it. The
            program calls `step()` after each of its steps.
        on_trace_ready: called with the profile whenever what was recorded is complete.
        record_shapes, profile_memory, with_stack, with_flops, with_modules: accepted; a profile has the sizes,
            bytes and lines of every kernel in any case. So are the further arguments that PyTorch has.

    Raises:
        RuntimeError: if a profile is active already, in this thread or another.

    Example:
        >>> x = adjit.ones(1000)
        >>> with adjit.profiler.profile() as p:
        ...     y = (x * 2).sum()
        >>> [event.name.split("_")[0] for event in p.events()][0]
        'mul'
    """

    def __init__(
        self, enabled: bool = True, *, activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None, record_shapes: bool = False,
        profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False,
        with_modules: bool = False, experimental_config: Any = None, execution_trace_observer: Any = None,
        acc_events: bool = False, use_cuda: bool | None = None, use_device: str | None = None,
        use_kineto: bool | None = None, custom_trace_id_callback: Any = None,
    ) -> None:  # fmt: skip
        self.enabled, self.schedule, self.on_trace_ready = enabled, schedule, on_trace_ready
        self._watcher = scheduling.Watcher()
        self._recording_sites = contextlib.ExitStack()
        self._begin = self._end = 0
        self.step_num = 0
        self.current_action = ProfilerAction.NONE
        self._step: record_function | None = None

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._stop()

    def _finish(self) -> None:
        """Run what was recorded, measure no longer, and hand the trace over if there is one."""
        was_recording, self.current_action = self.current_action in _RECORDING, ProfilerAction.NONE
        if not was_recording:
            return
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
        try:
            settle()
        finally:
            self._stop()
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def _begin_step(self, action: ProfilerAction) -> None:
        """Do what a step is for."""
        was_recording, self.current_action = self.current_action in _RECORDING, action
        if action in _RECORDING:
            if not was_recording:
                self._measure()
            if self.schedule is not None:
                self._step = record_function(f"ProfilerStep#{self.step_num}")
                self._step.__enter__()

    def step(self) -> None:
        """Tell that a step of the program has ended, and the next one begins.

        Example:
            >>> plan = adjit.profiler.schedule(wait=1, warmup=1, active=1, repeat=1)
            >>> with adjit.profiler.profile(schedule=plan, on_trace_ready=lambda p: print(p.step_num)) as p:
            ...     for _ in range(4):
            ...         total = adjit.ones(1000).sum().item()
            ...         p.step()
            3
        """
        if self.schedule is None or not self.enabled:
            self.step_num += 1
            return
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
        self.step_num += 1
        if self.current_action is ProfilerAction.RECORD_AND_SAVE:
            self._finish()
        self._begin_step(self.schedule(self.step_num))

    def start(self) -> None:
        """Begin to measure, anew if this profile was used before; `with` does that.

        Example:
            >>> p = adjit.profiler.profile()
            >>> p.start()
            >>> total = adjit.ones(1000).sum().item()
            >>> p.stop()
            >>> len(p.events()) > 0
            True
        """
        if self.enabled:
            self.step_num = 0
            self._begin_step(ProfilerAction.RECORD if self.schedule is None else self.schedule(0))

    def _measure(self) -> None:
        with lock:
            settle()
            if scheduling.active is not None:
                raise RuntimeError(
                    "adjit.profiler: a profile is active already. There is one at a time, for all "
                    "threads: end it before you start another."
                )
            self._watcher = scheduling.active = scheduling.Watcher()
            self._recording_sites.enter_context(recording_sites(self._watcher.sites))
            self._begin = time.monotonic_ns()

    def stop(self) -> None:
        """Run what was recorded, and measure no longer; `with` does that.

        Example:
            >>> p = adjit.profiler.profile()
            >>> p.start()
            >>> total = adjit.ones(1000).sum().item()
            >>> p.stop()
            >>> len(p.events()) > 0
            True
        """
        try:
            self._finish()
        finally:
            self._stop()

    def _stop(self) -> None:
        with lock:
            if scheduling.active is self._watcher:
                self._end = time.monotonic_ns()
                scheduling.active = None
                self._recording_sites.close()
                self._watcher.sites.clear()

    # ----- what was measured -----

    def events(self) -> list[KernelEvent]:
        """List every run of a kernel, in order.

        Example:
            >>> with adjit.profiler.profile() as p:
            ...     total = adjit.ones(1000).sum().item()
            >>> len(p.events()) > 0
            True
        """
        return [
            KernelEvent(
                e.info.source.label, e.begin - self._begin, e.end - e.begin, e.info.nbytes,
                e.info.elements, e.sites, e.thread, e.place,
            )
            for e in self._watcher.events
        ]  # fmt: skip

    def spans(self) -> list[scheduling.Span]:
        """List the parts of the program that `record_function` named, and steps, in the order of their ends.

        Example:
            >>> with adjit.profiler.profile() as p, adjit.profiler.record_function("nothing"):
            ...     pass
            >>> p.spans()[0].name
            'nothing'
        """
        return list(self._watcher.spans)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> KernelAverages:  # fmt: skip
        """Sum up the runs of each kernel, the kernel that took longest first. The arguments are accepted.

        Example:
            >>> with adjit.profiler.profile() as p:
            ...     total = adjit.ones(1000).sum().item()
            >>> sum(k.count for k in p.key_averages()) == len(p.events())
            True
        """
        groups: dict[int, list[scheduling.ProfileEvent]] = {}
        for event in self._watcher.events:
            groups.setdefault(id(event.info.source), []).append(event)
        averages = [
            KernelAverage(
                events[0].info.source.label,
                len(events),
                sum([e.end - e.begin for e in events]) / 1e3,
                sum([e.info.nbytes for e in events]),
                tuple(dict.fromkeys([call_site for e in events for call_site in e.sites])),
            )
            for events in groups.values()
        ]
        end = self._end or time.monotonic_ns()
        averages.sort(key=lambda a: -a.self_cpu_time_total)
        return KernelAverages(averages, (end - self._begin) / 1e3)

    def table(self, sort_by: str = "self_cpu_time_total", row_limit: int = 100) -> str:
        """Show the kernels as a table.

        Args:
            sort_by: "self_cpu_time_total", "cpu_time", "count", "bytes" or "gb_per_s", the largest
                first; or "key".
            row_limit: the largest number of rows.

        Raises:
            ValueError: for another `sort_by`.

        Example:
            >>> with adjit.profiler.profile() as p:
            ...     total = adjit.ones(1000).sum().item()
            >>> p.table().splitlines()[0].split()[:2]
            ['Name', 'Self']
        """
        return self.key_averages().table(sort_by, row_limit)

    def __str__(self) -> str:
        return self.table()

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write every run in the trace-event format, for chrome://tracing or ui.perfetto.dev.

        A name that ends in .gz is written compressed.

        Example:
            >>> with adjit.profiler.profile() as p:
            ...     total = adjit.ones(1000).sum().item()
            >>> p.export_chrome_trace("trace.json")
        """
        process = os.getpid()
        names = {t.native_id: t.name for t in threading.enumerate()}
        events = self.events()
        trace: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": process, "args": {"name": "adjit"}}
        ]
        trace += [
            {"ph": "M", "name": "thread_name", "pid": process, "tid": thread,
             "args": {"name": names.get(thread, f"thread {thread}")}}
            for thread in dict.fromkeys([e.thread for e in events])
        ]  # fmt: skip
        trace += [
            {
                "ph": "X", "cat": "cpu_op" if e.device is CPU else "kernel", "name": e.name,
                "pid": process, "tid": e.thread,
                "ts": e.start / 1e3, "dur": e.duration / 1e3,
                "args": {
                    "bytes": e.bytes, "elements": e.elements, "GB/s": e.bytes / max(e.duration, 1),
                    "lines": [f"{file}:{line} {where}" for file, line, where in e.lines],
                },
            }
            for e in events
        ]  # fmt: skip
        trace += [
            {
                "ph": "X", "cat": "user_annotation", "name": span.name, "pid": process, "tid": span.thread,
                "ts": (span.begin - self._begin) / 1e3, "dur": (span.end - span.begin) / 1e3,
            }
            for span in self._watcher.spans
        ]  # fmt: skip
        text = json.dumps({"displayTimeUnit": "ms", "traceEvents": trace})
        data = text.encode()
        Path(path).write_bytes(gzip.compress(data) if str(path).endswith(".gz") else data)


# ----- text -----

HEAD = (
    "Name", "Self CPU %", "Self CPU", "# of Calls", "CPU time avg", "Bytes", "GB/s", "Lines",
)  # fmt: skip
_PYTORCH_COLUMNS = {
    "cpu_time_total": "self_cpu_time_total", "self_cpu_time": "self_cpu_time_total",
    "cuda_time_total": "self_cpu_time_total", "self_cuda_time_total": "self_cpu_time_total",
    "device_time_total": "self_cpu_time_total", "self_device_time_total": "self_cpu_time_total",
    "cuda_time": "cpu_time", "device_time": "cpu_time", "cpu_memory_usage": "bytes",
    "self_cpu_memory_usage": "bytes", "cuda_memory_usage": "bytes", "self_cuda_memory_usage": "bytes",
}  # fmt: skip
_COLUMNS = ("self_cpu_time_total", "cpu_time", "count", "bytes", "gb_per_s", "key")


def described(sites: Iterable[CallSite]) -> str:
    """Lines by their files: `train.py:12,15 model.py:3`."""
    files: dict[str, list[int]] = {}
    for file, line, _ in sites:
        files.setdefault(os.path.basename(file), []).append(line)
    return " ".join(
        [f"{file}:{','.join(map(str, sorted(set(lines))))}" for file, lines in files.items()]
    )
