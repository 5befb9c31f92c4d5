"""Work that must not be torn, done by a thread of its own.

Handlers of signals run in the main thread, between any two of its instructions, and Ctrl-C raises there. A
compiler that is left in the middle of an import or of a function is broken for the rest of the process. So
compilers run apart: who wants something compiled waits for it, and may leave; the work goes on to
its end, and whoever asks again finds it done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class Apart(threading.Thread):
    """A thread that does one thing, which the interpreter waits for before it ends."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(name="adjit-compiler")
        self.daemon = False
        self.is_awaited = True  # whether somebody still waits for what is done
        self.is_for_main = is_for_main()
        self._work: Callable[[], Any] | None = work
        self._result: Future[Any] = Future()

    def run(self) -> None:
        """Do the work."""
        assert self._work is not None
        try:
            result = self._work()
        except BaseException as error:
            self._result.set_exception(error)
        else:
            self._result.set_result(result)
        finally:
            self._work = None

    def awaited(self) -> Any:
        """The result, once it is there; raises what the work has raised."""
        try:
            return self._result.result()
        finally:
            self.is_awaited = False


def apart(work: Callable[[], _Result]) -> _Result:
    """What `work` returns or raises, done by another thread, which finishes even if the caller is
    interrupted while it waits."""
    if isinstance(threading.current_thread(), Apart):
        return work()
    thread = Apart(work)
    try:
        thread.start()
    except RuntimeError:  # the interpreter ends, or the system has no more threads
        return work()
    result: _Result = thread.awaited()
    return result


def is_for_main() -> bool:
    """Whether the main thread waits for what the current one does, if it is another one at all."""
    thread = threading.current_thread()
    if isinstance(thread, Apart):
        return thread.is_for_main and thread.is_awaited
    return thread is threading.main_thread()


def is_awaited() -> bool:
    """Whether somebody still waits for what the current thread does."""
    thread = threading.current_thread()
    return not isinstance(thread, Apart) or thread.is_awaited
