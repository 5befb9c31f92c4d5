"""Several processes that run one function, and whose errors come back."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from .sharing import init_reductions


class ProcessException(Exception):
    """A process failed.

    Example:
        >>> adjit.multiprocessing.ProcessException("it failed", error_index=1, error_pid=7).error_pid
        7
    """

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.error_pid = msg, error_index, error_pid

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """A process failed by an exception, whose traceback is in the text.

    Example:
        >>> issubclass(adjit.multiprocessing.ProcessRaisedException, adjit.multiprocessing.ProcessException)
        True
    """


class ProcessExitedException(ProcessException):
    """A process was ended by a signal, or exited with a code.

    Example:
        >>> adjit.multiprocessing.ProcessExitedException("it failed", 1, 7, -9, "SIGKILL").signal_name
        'SIGKILL'
    """

    def __init__(
        self,
        msg: str,
        error_index: int,
        error_pid: int,
        exit_code: int,
        signal_name: str | None = None,
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> tuple[Any, ...]:
        given = self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name
        return type(self), given


def _run(fn: Callable[..., Any], index: int, args: tuple[Any, ...], error_file: str) -> None:
    """What a process does."""
    init_reductions()
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass  # the parent ends it
    except Exception:
        with open(error_file, "wb") as file:
            pickle.dump(traceback.format_exc(), file)
        sys.exit(1)


class ProcessContext:
    """The processes that `spawn` has started.

    Example:
        >>> adjit.multiprocessing.ProcessContext([], []).join()
        True
    """

    def __init__(self, processes: list[Any], error_files: list[str]) -> None:
        self.processes, self.error_files = processes, error_files
        self.sentinels: dict[Any, int] = {
            process.sentinel: k for k, process in enumerate(processes)
        }

    def pids(self) -> list[int]:
        """List the numbers that the system has for them.

        Example:
            >>> adjit.multiprocessing.ProcessContext([], []).pids()
            []
        """
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait for one or more of them, and end all if one fails.

        Args:
            timeout: seconds that it waits.
            grace_period: seconds that the others have to end by themselves.

        Returns:
            Whether all have ended.

        Raises:
            ProcessRaisedException: if one raised something.
            ProcessExitedException: if one was ended by a signal, or exited with a code.

        Example:
            >>> adjit.multiprocessing.ProcessContext([], []).join()
            True
        """
        ready = multiprocessing.connection.wait(self.sentinels, timeout) if self.sentinels else []
        failed = None
        for sentinel in ready:
            k = self.sentinels.pop(sentinel)
            self.processes[k].join()
            if self.processes[k].exitcode != 0:
                failed = k
                break
        if failed is None:
            if not self.sentinels:
                self._forget_files()
            return not self.sentinels
        self._end_all(grace_period)
        raise self._error_of(failed)

    def _end_all(self, grace_period: float | None) -> None:
        """First they may end by themselves, then they are asked to, then they are ended."""
        for end, seconds in (
            ("", 0.0 if grace_period is None else grace_period), ("terminate", 30.0), ("kill", 5.0),
        ):  # fmt: skip
            limit = time.monotonic() + seconds
            for process in self.processes:
                if end and process.is_alive():
                    getattr(process, end)()
            for process in self.processes:
                process.join(max(0.0, limit - time.monotonic()))

    def _forget_files(self) -> None:
        for path in self.error_files:
            if os.path.exists(path):
                os.unlink(path)

    def _error_of(self, k: int) -> ProcessException:
        process, path = self.processes[k], self.error_files[k]
        told = b""
        if os.path.exists(path):
            with open(path, "rb") as file:
                told = file.read()
        self._forget_files()
        if told:
            text = f"\n\n-- Process {k} terminated with the following error:\n{pickle.loads(told)}"
            return ProcessRaisedException(text, k, process.pid)
        code = process.exitcode
        if code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"<Unknown signal {-code}>"
            return ProcessExitedException(
                f"process {k} terminated with signal {name}", k, process.pid, code, name
            )
        return ProcessExitedException(
            f"process {k} terminated with exit code {code}", k, process.pid, code
        )


class SpawnContext(ProcessContext):
    """The old name of `ProcessContext`.

    Example:
        >>> adjit.multiprocessing.SpawnContext([], []).join()
        True
    """


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run `fn(k, *args)` in processes with the numbers k from 0.

    Args:
        fn: a function at the top of a module.
        args: that can be pickled; tensors among them are in shared memory afterwards.
        nprocs: how many.
        join: whether to wait for all.
        daemon: whether they end with this process.
        start_method: `spawn`, `fork` or `forkserver`.

    Returns:
        The processes, or None with `join`.

    Raises:
        ProcessRaisedException: with `join`, if one raised something.
        ProcessExitedException: with `join`, if one was ended by a signal, or exited with a code.

    Example:
        >>> adjit.multiprocessing.start_processes(print, nprocs=0)
    """
    context: Any = multiprocessing.get_context(start_method)
    processes, files = [], []
    for k in range(nprocs):
        with tempfile.NamedTemporaryFile(prefix="adjit-", suffix="-error", delete=False) as file:
            path = file.name
        os.unlink(path)  # it is there again if something goes wrong
        process = context.Process(target=_run, args=(fn, k, args, path), daemon=daemon)
        process.start()
        processes.append(process)
        files.append(path)
    made = SpawnContext(processes, files)
    if not join:
        return made
    while not made.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run `fn(k, *args)` in new processes with the numbers k from 0; takes what `start_processes` takes.

    Raises:
        ProcessRaisedException: with `join`, if one raised something.
        ProcessExitedException: with `join`, if one was ended by a signal, or exited with a code.

    Example:
        >>> adjit.multiprocessing.spawn(print, nprocs=0)
    """
    if start_method != "spawn":
        warnings.warn(
            f"This method only supports start_method=spawn (got: {start_method}).\nTo use a different "
            "start_method use:\n\t\t torch.multiprocessing.start_processes(...)",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
