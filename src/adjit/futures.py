"""PyTorch's `torch.futures`, on Python's own `concurrent.futures`: values that another thread will set."""

from __future__ import annotations

import concurrent.futures
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from . import devices as places

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")
S = TypeVar("S")


class Future(Generic[T]):
    """A value, or an error, that is set once, by any thread.

    Tensors need no care on a GPU: who looks at one waits for it.

    Args:
        devices: those of the tensors in the value; they are looked at and of no other effect.

    Raises:
        RuntimeError: if there is no such device.

    Example:
        >>> future = adjit.futures.Future()
        >>> later = future.then(lambda done: done.wait() + 1)
        >>> future.set_result(adjit.ones(2))
        >>> later.wait()
        tensor([2., 2.])
    """

    def __init__(self, *, devices: Sequence[Any] | None = None) -> None:
        for place in devices or ():
            places.check(place)
        self._set: concurrent.futures.Future[T] = concurrent.futures.Future()

    def done(self) -> bool:
        """True once there is a value or an error.

        Example:
            >>> adjit.futures.Future().done()
            False
        """
        return self._set.done()

    def wait(self) -> T:
        """Wait for the value; the error is raised if there is one.

        Example:
            >>> future = adjit.futures.Future()
            >>> future.set_result(3)
            >>> future.wait()
            3
        """
        return self._set.result()

    def value(self) -> T:
        """The value that is there; the error is raised if there is one.

        Raises:
            RuntimeError: if it is not done.

        Example:
            >>> future = adjit.futures.Future()
            >>> future.set_result(3)
            >>> future.value()
            3
        """
        if not self.done():
            raise RuntimeError("Future.value(): the future is not done; call wait() first")
        return self._set.result()

    def set_result(self, result: T) -> None:
        """Set the value and call what waits for it.

        Raises:
            RuntimeError: if it is done.

        Example:
            >>> adjit.futures.Future().set_result(3)
        """
        try:
            self._set.set_result(result)
        except concurrent.futures.InvalidStateError:
            raise _set_twice() from None

    def set_exception(self, result: Exception) -> None:
        """Set the error that `wait` and `value` raise.

        Raises:
            AssertionError: if it is no exception.
            RuntimeError: if it is done.

        Example:
            >>> adjit.futures.Future().set_exception(ValueError("lost"))
        """
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        try:
            self._set.set_exception(result)
        except concurrent.futures.InvalidStateError:
            raise _set_twice() from None

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """Call a function with this future once it is done, at once if it is; what it gives is a future.

        Its error is that future's, as a RuntimeError.

        Example:
            >>> future = adjit.futures.Future()
            >>> future.set_result(3)
            >>> future.then(lambda done: done.value() + 1).value()
            4
        """
        found: Future[S] = Future()

        def run(_: object) -> None:
            try:
                found.set_result(callback(self))
            except Exception as error:
                told = f"Got the following error when running the callback: {type(error).__name__}: {error}"
                wrapped = RuntimeError(told)
                wrapped.__cause__ = error
                found.set_exception(wrapped)

        self._set.add_done_callback(run)
        return found

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call a function with this future once it is done, at once if it is; its error is logged.

        Example:
            >>> future = adjit.futures.Future()
            >>> future.add_done_callback(lambda done: print(done.value()))
            >>> future.set_result(3)
            3
        """
        self._set.add_done_callback(lambda _: callback(self))


def _set_twice() -> RuntimeError:
    return RuntimeError(
        "Attempting to mark a completed Future as complete again. Note that a Future can only be marked "
        "completed once."
    )


def collect_all(futures: Sequence[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of the list of all, done when all of them are; their errors are their own.

    Example:
        >>> first, second = adjit.futures.Future(), adjit.futures.Future()
        >>> both = adjit.futures.collect_all([first, second])
        >>> first.set_result(1); second.set_result(2)
        >>> [future.value() for future in both.wait()]
        [1, 2]
    """
    all_of_them = [*futures]
    found: Future[list[Future[Any]]] = Future()
    counted = itertools.count(1)  # by whichever threads

    def one_is_done(_: Future[Any]) -> None:
        if next(counted) == len(all_of_them):
            found.set_result(all_of_them)

    if not all_of_them:
        found.set_result([])
    for future in all_of_them:
        future.add_done_callback(one_is_done)
    return found


def wait_all(futures: Sequence[Future[Any]]) -> list[Any]:
    """Wait for all; their values, or the first one's error.

    Example:
        >>> future = adjit.futures.Future()
        >>> future.set_result(3)
        >>> adjit.futures.wait_all([future, future])
        [3, 3]
    """
    return [future.wait() for future in futures]
