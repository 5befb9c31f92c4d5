"""The error of a save or load, with what went wrong on which rank."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["CheckpointException"]


class Failure(NamedTuple):
    """An error of one rank, and where it was raised: what can travel to others."""

    error: BaseException
    trace: traceback.StackSummary


class CheckpointException(BaseException):  # PyTorch's name, and no Exception there either
    """A save or load failed; `failures` has the errors by rank, with where they were raised.

    Args:
        msg: the step that failed.
        failures: the errors, each with its traceback, by rank.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> try:
        ...     dcp.load({"weight": adjit.ones(2)}, checkpoint_id="nowhere")
        ... except dcp.CheckpointException as error:
        ...     print(type(error.failures[0][0]).__name__)
        FileNotFoundError
    """

    def __init__(self, msg: str, failures: dict[int, Failure]) -> None:
        super().__init__(msg, failures)
        self._failures = failures

    @property
    def failures(self) -> dict[int, Failure]:
        """The errors by rank.

        Example:
            >>> adjit.distributed.checkpoint.CheckpointException("plan", {}).failures
            {}
        """
        return self._failures

    def __str__(self) -> str:
        told = f"CheckpointException ranks:{self._failures.keys()}\n"
        for rank, (error, trace) in self._failures.items():
            told += f"Traceback (most recent call last): (RANK {rank})\n"
            told += "".join(traceback.format_list(trace))
            told += "".join(traceback.format_exception_only(type(error), error))
        return told


def attempt(function: Callable[[], Any]) -> Any:
    """What a function gives, or its failure."""
    try:
        return function()
    except BaseException as error:  # of whatever kind: the other ranks wait to hear of it
        frames = traceback.extract_tb(error.__traceback__)
        trace = traceback.StackSummary.from_list(
            [(frame.filename, frame.lineno or 0, frame.name, frame.line) for frame in frames]
        )
        return Failure(_travelling(error), trace)


def _travelling(error: BaseException) -> BaseException:
    """An error, or one that tells of it if others could not read it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def failures_of(results: list[Any]) -> dict[int, Failure]:
    """Those of the results by rank that are failures."""
    return {rank: found for rank, found in enumerate(results) if isinstance(found, Failure)}
