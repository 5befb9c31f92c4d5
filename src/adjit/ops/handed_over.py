"""Arrays that are handed over: `from_numpy(x[rows])`, of which nobody keeps a name.

A tensor on memory of others is run at once, since they may write there next, and is in no plan. Where the
tensor is all that holds an array, nobody can.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def is_handed_over(array: Array, count: int) -> bool:
    """Whether nobody will look at the memory of an array but who it was given to, in whose function
    `sys.getrefcount(array)` is `count`."""
    if count > _OF_A_TEMPORARY or type(array) is not np.ndarray or weakref.getweakrefcount(array):
        return False
    base = array.base
    if base is None:
        return array.flags.owndata
    # A view, of an array that nothing but this holds: the view, the name and the argument count.
    is_own = type(base) is np.ndarray and base.base is None and base.flags.owndata
    return is_own and sys.getrefcount(base) <= 3 and not weakref.getweakrefcount(base)


def _count(array: Array) -> int:
    return sys.getrefcount(array)


def _calibrate() -> int:
    """What `count` is of an array that has no name; 0 where that cannot be told.

    Python 3.14 lends a function what a name of its caller holds, without counting.
    """
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 14):
        return 0
    array, named, unnamed = np.empty(1), set(), set()
    for _ in range(64):  # the interpreter specialises calls that come often
        named.add(_count(array))
        unnamed.add(_count(np.empty(1)))
    return max(unnamed) if max(unnamed) < min(named) else 0


_OF_A_TEMPORARY = _calibrate()
