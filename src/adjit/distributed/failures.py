"""What a worker leaves behind when it fails: `torch.distributed.elastic.multiprocessing.errors`."""

from __future__ import annotations

import functools
import json
import os
import time
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["record"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def record(fn: Callable[_P, _R]) -> Callable[_P, _R | None]:
    """`fn`, the main function of a worker, which writes down what it fails with, where somebody asks for it:
    as JSON into the file that the environment names by `TORCHELASTIC_ERROR_FILE`. An exit without an error
    returns None.

    Args:
        fn: the function.

    Returns:
        A function of the same arguments.

    Example:
        >>> from adjit.distributed.elastic.multiprocessing.errors import record
        >>> @record
        ... def main(count):
        ...     return count + 1
        >>> main(1)
        2
    """

    @functools.wraps(fn)
    def main(*args: _P.args, **kwargs: _P.kwargs) -> _R | None:
        try:
            return fn(*args, **kwargs)
        except SystemExit as exit:
            if exit.code == 0:
                return None
            raise
        except Exception as error:
            if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
                _write(path, error)
            raise

    return main


def _write(path: str, error: Exception) -> None:
    more = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
    told = {"message": f"{type(error).__name__}: {error}", "extraInfo": more}
    with open(path, "w") as file:
        json.dump({"message": told}, file)
