"""Memory whose ends are looked at: ADJIT_TEST_GUARD=1, as CI has it for kernels of every kind.

Blocks come from no pool, end with the line of 64 bytes up to which each may be written, and lie between bytes
that are looked at when they are freed. Their bytes are NaN as floats, so that reading what nobody wrote shows
in results. A value inside a plan's arena has room behind it, but nobody looks at that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np

IS_ON = os.environ.get("ADJIT_TEST_GUARD", "0") == "1"
NAN, ROOM, LINE = 0xFF, 128, 64  # bytes
broken: list[str] = []  # what was found


def guard_blocks(storage: Any) -> None:
    """Have blocks of `adjit.storage` guarded."""

    class Guarded(storage.LargeBlock):  # type: ignore[misc]
        def __del__(self) -> None:
            if sys is None or sys.is_finalizing():  # what is needed here may have gone
                return
            start = int(self) - self.memory.__array_interface__["data"][0]
            end = start + self.size
            around = np.concatenate([self.memory[:start], self.memory[end:]]) != NAN
            if around.any():
                at = np.flatnonzero(around)[0] - start
                broken.append(
                    f"a block of {self.size} bytes: {around.sum()} bytes beside it were written, the first "
                    + (f"{-at} before it" if at < 0 else f"{at} behind it")
                )

    def size_class(nbytes: int) -> int:
        return max(-(-int(nbytes) // LINE) * LINE, LINE)

    def allocate(size: int) -> Any:
        memory = np.full(size + LINE + 2 * ROOM, NAN, np.uint8)
        start = memory.ctypes.data + ROOM
        block = Guarded(start + -start % LINE)
        block.memory, block.size = memory, size
        return block

    storage.size_class, storage.allocate, storage.borrow = size_class, allocate, allocate
    storage.free_small.clear()  # from which machine code would take blocks itself


def leave_room(memory: Any) -> None:
    """Have values inside of an arena of `adjit.schedule.planning.memory` lie apart."""
    take, give_back = memory.Arena.take, memory.Arena.give_back
    memory.Arena.take = lambda arena, size: take(arena, size + LINE)
    memory.Arena.give_back = lambda arena, start, size: give_back(arena, start, size + LINE)


def have_arenas_fresh(plan: Any) -> None:
    """Have each run of a plan lie in memory that nobody wrote: none takes the common workspace."""
    plan.WORKSPACE = -1


CHANGES: dict[str, Callable[[Any], None]] = {
    "adjit.storage": guard_blocks,
    "adjit.schedule.planning.memory": leave_room,
    "adjit.schedule.planning.plan": have_arenas_fresh,
}


class Changer(MetaPathFinder):
    """Changes modules as they are imported, before others import from them."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """The spec of a module that is to be changed."""
        if name not in CHANGES or name in self.found:
            return None
        self.found.add(name)
        spec = find_spec(name)
        loader: Any = spec and spec.loader
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            CHANGES[name](module)

        loader.exec_module = exec_module
        return spec


def install() -> None:
    """Guard the memory of the library, which is not imported yet."""
    if "adjit" in sys.modules:
        raise RuntimeError("import guarded_memory before adjit")
    sys.meta_path.insert(0, Changer())


if IS_ON:
    install()
