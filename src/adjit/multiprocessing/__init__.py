"""Python's `multiprocessing`, with tensors that processes pass to each other in shared memory."""

from multiprocessing import *  # noqa: F403
from multiprocessing import __all__ as _names

from . import sharing
from .sharing import (
    get_all_sharing_strategies,
    get_sharing_strategy,
    init_reductions,
    set_sharing_strategy,
)
from .spawn import (
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "init_reductions",
    "set_sharing_strategy",
    "sharing",
    "spawn",
    "start_processes",
]
__all__ += [name for name in _names if name not in __all__]

init_reductions()
