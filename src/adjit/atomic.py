"""Changes that belong together: an interrupt finds all of them made, or none.

Python looks for signals between its own instructions: when a function begins, after a call, at the end of a
loop. A walk over iterators of C has no such place in it, as long as nothing that it calls is Python. Where few
changes belong together, assignments in one statement do the same.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, repeat
from typing import Any

Changes = Iterable[object]  # which are made by walking over it
Calls = Iterable[Callable[[], object]]  # none of them in Python


def at_once(*changes: Changes) -> None:
    """Make changes, with nothing in between."""
    deque(chain(*changes), 0)


def together(*changes: Changes) -> Callable[[], object]:
    """A call, without Python, that makes changes: once, however often it is called."""
    return partial(deque, chain(*changes), 0)


def setting(objects: Iterable[object], name: str, values: Iterable[Any]) -> Changes:
    """Changes that give an attribute of each of some objects a value."""
    return map(setattr, objects, repeat(name), values)


def calling(calls: Calls) -> Changes:
    """Changes that calls make."""
    return map(operator.call, calls)
