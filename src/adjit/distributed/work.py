"""What a collective gives: operations of reductions, and work that is under way."""

from __future__ import annotations

import enum
from collections.abc import Callable
from datetime import timedelta
from typing import Any


class ReduceOp(enum.IntEnum):
    """Operations by which the elements that processes have are made one.

    `SUM`, `AVG`, `PRODUCT`, `MIN`, `MAX`, `BAND`, `BOR`, `BXOR`.
    `AVG` is for floating dtypes, the last three for whole numbers and truth values.

    Example:
        >>> adjit.distributed.ReduceOp.SUM
        <RedOpType.SUM: 0>
    """

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7

    def __repr__(self) -> str:
        return f"<{self}: {self.value}>"

    def __str__(self) -> str:
        return f"RedOpType.{self.name}"


ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]  # PyTorch's name for the class of its members


class Work:
    """A collective that is under way: what one with `async_op=True` returns.

    The tensors that it reads and writes must be left alone until `wait` returns.

    Example:
        >>> work = adjit.distributed.Work()
        >>> work.is_completed()
        False
    """

    def __init__(self) -> None:
        self._is_done = False
        self._failure: Exception | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it is done; then the results are in their tensors.

        Raises:
            DistNetworkError: if a process that takes part has ended.
            DistBackendError: if it takes longer than `timeout`, or than that of the group.

        Example:
            >>> adjit.distributed.Work().wait()
            Traceback (most recent call last):
                ...
            NotImplementedError
        """
        raise NotImplementedError

    def is_completed(self) -> bool:
        """True once it is done, without waiting.

        Example:
            >>> adjit.distributed.Work().is_completed()
            False
        """
        return self._is_done

    def is_success(self) -> bool:
        """True once it is done, and nothing went wrong.

        Example:
            >>> adjit.distributed.Work().is_success()
            False
        """
        return self._is_done and self._failure is None

    def exception(self) -> Exception | None:
        """Give what went wrong, None if nothing has.

        Example:
            >>> adjit.distributed.Work().exception()
        """
        return self._failure

    def source_rank(self) -> int:
        """Tell which process a tensor has come from.

        Raises:
            RuntimeError: for anything but a receive.

        Example:
            >>> adjit.distributed.Work().source_rank()
            Traceback (most recent call last):
                ...
            RuntimeError: sourceRank() may only be called on work objects that correspond to a recv ...
        """
        raise RuntimeError(
            "sourceRank() may only be called on work objects that correspond to a recv or recv-from-any "
            "call."
        )

    def get_future(self) -> Any:
        """Refuse: there are no futures here.

        Raises:
            NotImplementedError: always.

        Example:
            >>> adjit.distributed.Work().get_future()
            Traceback (most recent call last):
                ...
            NotImplementedError: Work.get_future: use wait()
        """
        raise NotImplementedError("Work.get_future: use wait()")


class JointWork(Work):
    """Several works as one, and what is to be done when all are."""

    def __init__(self, works: list[Work], finish: Callable[[], object] | None = None) -> None:
        super().__init__()
        self._works, self._finish = works, finish

    def is_completed(self) -> bool:
        if not self._is_done and all(work.is_completed() for work in self._works):
            self._complete()
        return self._is_done

    def wait(self, timeout: timedelta | None = None) -> bool:
        if not self._is_done:
            for work in self._works:
                work.wait(timeout)
            self._complete()
        return True

    def _complete(self) -> None:
        self._is_done = True
        if self._finish is not None:
            self._finish()
