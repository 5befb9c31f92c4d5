"""Where the time goes: which kernels ran, how long, over how many bytes, for which lines.

with adjit.profiler.profile() as p:
    train_one_epoch()
print(p)
p.export_chrome_trace("trace.json")
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import json
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .devices import CPU, device
from .errors import Site
from .graph.call_sites import noting
from .schedule import profile as scheduling
from .schedule.settle import lock, settle
from .tables import aligned, duration, shortened, size

__all__ = ["KernelAverage", "KernelEvent", "profile"]


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
    lines: tuple[Site, ...]
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
    lines: tuple[Site, ...]

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


class profile:
    """Measure every kernel that runs in a block, in all threads, and those that only it recorded.

    What was recorded before the block runs before it, and what the block has recorded runs before
    it ends. Operations, their backward and plans of fused operations, and replays of compiled
    functions are covered alike. A block that raises keeps what was measured. Kernels that run over
    several threads count once, with the time from their start to their end.

    Each time has some 20 ns in it that it takes to read the clock. Between the kernels a profile
    costs some µs for each operation that is recorded, and again for each that runs outside of a
    plan. Without a profile nothing is watched.

    Raises:
        RuntimeError: if a profile is active already, in this thread or another.

    Example:
        >>> x = adjit.ones(1000)
        >>> with adjit.profiler.profile() as p:
        ...     y = (x * 2).sum()
        >>> [event.name.split("_")[0] for event in p.events()][0]
        'mul'
    """

    def __init__(self) -> None:
        self._watcher = scheduling.Watcher()
        self._noting = contextlib.ExitStack()
        self._begin = self._end = 0

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        try:
            if kind is None:
                settle()
        finally:
            self._stop()

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
        with lock:
            settle()
            if scheduling.active is not None:
                raise RuntimeError(
                    "adjit.profiler: a profile is active already. There is one at a time, for all "
                    "threads: end it before you start another."
                )
            self._watcher = scheduling.active = scheduling.Watcher()
            self._noting.enter_context(noting(self._watcher.sites))
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
            settle()
        finally:
            self._stop()

    def _stop(self) -> None:
        with lock:
            if scheduling.active is self._watcher:
                self._end = time.monotonic_ns()
                scheduling.active = None
                self._noting.close()
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
                e.note.source.label, e.begin - self._begin, e.end - e.begin, e.note.nbytes,
                e.note.elements, e.sites, e.thread, e.place,
            )
            for e in self._watcher.events
        ]  # fmt: skip

    def key_averages(self) -> list[KernelAverage]:
        """Sum up the runs of each kernel, the kernel that took longest first.

        Example:
            >>> with adjit.profiler.profile() as p:
            ...     total = adjit.ones(1000).sum().item()
            >>> sum(k.count for k in p.key_averages()) == len(p.events())
            True
        """
        groups: dict[int, list[scheduling.ProfileEvent]] = {}
        for event in self._watcher.events:
            groups.setdefault(id(event.note.source), []).append(event)
        averages = [
            KernelAverage(
                events[0].note.source.label,
                len(events),
                sum([e.end - e.begin for e in events]) / 1e3,
                sum([e.note.nbytes for e in events]),
                tuple(dict.fromkeys([site for e in events for site in e.sites])),
            )
            for events in groups.values()
        ]
        return sorted(averages, key=lambda a: -a.self_cpu_time_total)

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
        if sort_by not in _COLUMNS:
            raise ValueError(f"sort_by must be one of {', '.join(_COLUMNS)}, got {sort_by!r}")
        averages = self.key_averages()
        averages.sort(key=lambda a: getattr(a, sort_by), reverse=sort_by != "key")
        total = sum([a.self_cpu_time_total for a in averages])
        rows = [HEAD]
        for a in averages[:row_limit]:
            share = 100 * a.self_cpu_time_total / max(total, 1e-3)
            rows.append(
                (
                    shortened(a.key, 44), f"{share:.1f}%", duration(a.self_cpu_time_total),
                    f"{a.count}", duration(a.cpu_time), size(a.bytes), f"{a.gb_per_s:.1f}",
                    shortened(described(a.lines), 60),
                )
            )  # fmt: skip
        end = self._end or time.monotonic_ns()
        told = f"Self CPU time total: {duration(total)} of {duration((end - self._begin) / 1e3)}"
        if len(averages) > row_limit:
            told += f"; {len(averages) - row_limit} more kernels"
        return f"{aligned(rows, range(1, len(HEAD) - 1))}\n{told}"

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
        text = json.dumps({"displayTimeUnit": "ms", "traceEvents": trace})
        data = text.encode()
        Path(path).write_bytes(gzip.compress(data) if str(path).endswith(".gz") else data)


# ----- text -----

HEAD = (
    "Name", "Self CPU %", "Self CPU", "# of Calls", "CPU time avg", "Bytes", "GB/s", "Lines",
)  # fmt: skip
_COLUMNS = ("self_cpu_time_total", "cpu_time", "count", "bytes", "gb_per_s", "key")


def described(sites: Iterable[Site]) -> str:
    """Lines by their files: `train.py:12,15 model.py:3`."""
    files: dict[str, list[int]] = {}
    for file, line, _ in sites:
        files.setdefault(os.path.basename(file), []).append(line)
    return " ".join(
        [f"{file}:{','.join(map(str, sorted(set(lines))))}" for file, lines in files.items()]
    )
