"""How Python's collector of cycles finds those that go through a graph.

A graph has some ten small objects an operation, and the collector goes through all that it tracks,
again and again: a fourth of the time of long recordings, and most of it where full collections are
slow since much is imported (Lotka-Volterra, 200 steps, beside PyTorch and JAX: 18.8 ms a gradient
on average, 3.4 at best). So the compiled recorders take what they make out of its sight. By itself
a graph has no cycles; one needs an object of the user's in between, for instance a hook that
remembers a tensor. Once hooks are registered, what is recorded stays in sight, until a full
collection; and before a full collection all that can be reached from tensors is brought back, so
that it finds every cycle. Python 3.14.0 to 3.14.4 make no full collection unless they are asked to:
they go through old objects bit by bit, which takes no time at once, and what is recorded stays in sight.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
from collections.abc import Callable
from time import perf_counter
from types import ModuleType
from typing import NamedTuple, TypeVar

from ..schedule.jit import native
from . import record
from .node import GradNode, View, attached

_T = TypeVar("_T")

FULL = 2  # the generation of full collections
MOST_FROZEN = 100_000  # objects from before an import, of which a program's own would be few
FROZEN_BY_PYTHON = 1000  # objects that Python 3.12 begins with
REST = 50  # between two looks at all objects, in the time of the last one
AT_ONCE = 1 << 12  # objects; those behind all that there are would take 10 MiB


def bring_back(phase: str, info: dict[str, int]) -> None:
    """Before a full collection, have the collector track what it could not see of graphs: always if
    somebody asks for one, otherwise so rarely that it takes two hundredths of the time."""
    global next_look
    if phase != "start" or info["generation"] < FULL:
        return
    began, is_asked = perf_counter(), is_asked_for()
    if is_asked:
        thaw()
    if not _tracking.is_loaded or (began < next_look and not is_asked):
        return
    _bring_back()
    ended = perf_counter()
    next_look = ended + REST * (ended - began)


next_look = 0.0  # when the collector sees all again, by itself


def is_asked_for() -> bool:
    """Whether a full collection that begins was asked for: by itself the collector makes one when new objects
    are many and it has gone through the middle generation some times."""
    (new, _, times), (many, _, some) = gc.get_count(), gc.get_threshold()
    return new <= many or times <= some


def _bring_back() -> None:
    """Have the collector track what it could not see of graphs."""
    seen = tracked()
    kinds: set[type] = {View, *record.tensor_classes, *_classes(GradNode)}
    graph = [o for o in seen if type(o) in kinds]
    tuples: set[int] = set()
    while seen:
        behind = gc.get_referents(*seen[-AT_ONCE:])
        del seen[-AT_ONCE:]
        for o in behind:
            if type(o) in kinds and not gc.is_tracked(o):
                graph.append(o)
            elif type(o) is tuple and gc.is_tracked(o) and id(o) not in tuples:
                tuples.add(id(o))
                seen.append(o)
    track_behind(graph, kinds)
    look_away()


def _tracked() -> list[object]:
    """All objects that the collector tracks, but for tuples and modules.

    A tuple to which nothing refers yet is being filled, by `tuple(...)` in another thread, say, and that
    fails, with a SystemError, when it finds that somebody else holds it. Machine code lets no other
    thread run while it has all objects; in Python one would, so nothing is brought back until it is there.

    A module has its names in a dict, which is tracked too. To ask what else it refers to lets go of freed
    memory twice where it is `_asyncio`, before Python 3.12.6 (https://github.com/python/cpython/issues/122695).
    """
    return []


class CyclesContext(NamedTuple):
    """What machine code needs to look through the collector's objects."""

    get_objects: Callable[[], list[object]]
    tuple_class: type
    module_class: type


native.register_layout(CYCLES=CyclesContext)
_tracking = native.FastPath("cycles", "tracked")
tracked = _tracking.function(_tracked, CyclesContext(gc.get_objects, tuple, ModuleType))


def _hidden(made: _T, *parts: object) -> _T:
    """An object, whose parts go out of the collector's sight: no cycle goes through them, and where sizes are
    ever others it would go through the parts of each again and again."""
    return made


hidden = native.FastPath("cycles", "hidden").function(_hidden, ())


def track_behind(graph: list[object], kinds: set[type]) -> None:
    """Track objects of these kinds, and all behind them; the list is used up."""
    found, track = {id(o) for o in graph}, _tracker()
    while graph:
        here = graph.pop()
        if not gc.is_tracked(here):
            track(here)
        for o in gc.get_referents(here):
            is_part = type(o) in kinds or (type(o) is tuple and o)
            if is_part and id(o) not in found:
                found.add(id(o))
                graph.append(o)


def look_away() -> None:
    """Have what is recorded from now on be out of the collector's sight, if it makes full collections."""
    attached[:] = [] if has_full_collections() else [True]


def has_full_collections() -> bool:
    """Whether the collector makes them by itself: where it does not, the threshold for them is always 0."""
    return gc.get_threshold()[FULL] != 0


def _classes(cls: type) -> set[type]:
    """A class and all that come from it."""
    return {cls}.union(*map(_classes, cls.__subclasses__()))


@functools.cache
def _tracker() -> Callable[[object], None]:
    """What has the collector track an object that it does not."""
    return ctypes.PYFUNCTYPE(None, ctypes.py_object)(("PyObject_GC_Track", ctypes.pythonapi))


def declare_old(before: int) -> None:
    """Have the collector leave alone what an import has made, `before` which there were so many objects.

    It makes a hundred thousand that stay, and a full collection would go through them in 70 ms, and
    `bring_back` in as many. They are frozen with what was there before, until somebody asks for a full
    collection; if that was much, some of it is the program's own and may become garbage: then all are only
    declared old, which takes no look at them.
    """
    global frozen_here
    frozen = gc.get_freeze_count()
    if before > MOST_FROZEN:
        if not frozen:
            gc.freeze()
            gc.unfreeze()
    elif frozen <= FROZEN_BY_PYTHON:  # otherwise the program decides
        gc.freeze()
        frozen_here = [[]]


# What `declare_old` made after it had frozen all there was; a later freeze takes it, too. Counting what is
# frozen would take 9 ms of an import.
frozen_here: list[list[object]] | None = None


def thaw() -> None:
    """Have the collector look at what an import froze, unless the program has frozen more since."""
    global frozen_here
    if frozen_here and any(o is frozen_here for o in gc.get_referrers(*frozen_here)):
        gc.unfreeze()
    frozen_here = None


def watch() -> None:
    """Look at every collection from now on, until the interpreter ends."""
    gc.callbacks.append(bring_back)
    look_away()
    atexit.register(gc.callbacks.remove, bring_back)
