"""Memory that a captured function writes while others look at it: arrays, addresses that were asked for.

While a function is watched nothing runs, so what it writes is elsewhere at first: it is brought home when the
call is done, or when it turns out that it cannot be captured. That takes that the function cannot look there
itself: not by an array that it can reach, not by another tensor on the same bytes. A replay writes over these
bytes where its plan can, and copies otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ctypes import memmove
from functools import partial
from typing import Any

import numpy as np

from ..atomic import Changes, at_once, calling
from ..devices import CPU
from ..schedule.dispatch import Failed
from ..schedule.settle import pending, settle
from ..storage import BorrowedMemory, Storage

Interval = tuple[int, int]  # addresses


class Exported:
    """What one watched call writes where others look.

    Args:
        reached: what the function can read from Python; its arrays are asked where they lie.
    """

    def __init__(self, reached: Iterable[Any]) -> None:
        self.homes: dict[Storage, Any] = {}  # what is written, and the values whose bytes are seen
        self.is_possible = True
        self._arrays: list[Interval] = []
        self._borrowed: list[Interval] = []  # bytes of others that tensors show, as they are met
        for value in reached:
            if isinstance(value, np.ndarray):
                self._arrays.append(bounds_of(value))
            elif isinstance(value, (bytearray, memoryview)):
                self.is_possible = False

    def hides(self, storage: Storage, value: Any) -> bool:
        """Whether a storage may be written as if nobody looked at its bytes."""
        if storage in self.homes:
            return True
        if not self.is_possible or not is_home(storage, value):
            return False
        return not meet(interval_of(storage, value), (*self._arrays, *self._borrowed))

    def meets(self, value: Any, storage: Storage) -> bool:
        """Note a storage that is met for the first time; whether it shows what is being written."""
        if value.recipe is not None or not isinstance(value.address, BorrowedMemory):
            return False
        here = interval_of(storage, value)
        self._borrowed.append(here)
        return meet(here, [interval_of(*pair) for pair in self.homes.items()])

    def bring_home(self) -> None:
        """Run what is recorded, and put what was written where others look.

        Where that could not be computed, the elements are as they were.
        """
        if not self.homes:
            return
        homes, self.homes = self.homes, {}
        error: BaseException | None = None
        for _ in range(len(pending) + 2):  # each time until a node fails
            values = {storage: slot.__get__(storage) for storage in homes}
            if all(v.recipe is None or isinstance(v.recipe, Failed) for v in values.values()):
                break
            try:
                settle(everything=True)
            except BaseException as found:  # the others are to be brought home first
                error = error or found
        away = [
            (storage, home)
            for storage, home in homes.items()
            if values[storage] is not home and values[storage].recipe is None
        ]
        at_once(
            map(slot.__set__, homes, homes.values()),
            *copies(away, [values[storage].address for storage, _ in away]),
        )
        if error is not None:
            raise error


slot: Any = Storage.__dict__["value"]


def is_home(storage: Storage, value: Any) -> bool:
    """Whether a value has been computed, into memory of the library's own that others may see."""
    is_here = storage.spec.device is CPU and value.recipe is None
    return is_here and not isinstance(value.address, BorrowedMemory)


def bounds_of(array: np.ndarray[Any, Any]) -> Interval:
    """Where the elements of an array are."""
    start: int = array.__array_interface__["data"][0]
    if not array.size:
        return start, start
    moves = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)]
    end = start + sum(max(move, 0) for move in moves) + array.itemsize
    return start + sum(min(move, 0) for move in moves), end


def interval_of(storage: Storage, value: Any) -> Interval:
    """Where the bytes of a storage are."""
    return int(value.address), int(value.address) + storage.nbytes


def meet(one: Interval, others: Iterable[Interval]) -> bool:
    """Whether bytes are among others."""
    return any(one[0] < end and start < one[1] for start, end in others)


def copies(away: Sequence[tuple[Storage, Any]], addresses: Sequence[int]) -> list[Changes]:
    """Changes that put bytes into the homes of storages, which have these as their values again."""
    calls = [
        partial(memmove, int(home.address), int(address), storage.nbytes)
        for (storage, home), address in zip(away, addresses, strict=True)
    ]
    storages, homes = [storage for storage, _ in away], [home for _, home in away]
    return [calling(calls), map(slot.__set__, storages, homes)]
