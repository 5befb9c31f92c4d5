"""What was kept last, and goes again when others come."""

from __future__ import annotations

from typing import Generic, TypeVar

_T = TypeVar("_T")


class Ring(Generic[_T]):
    """The last things that came, at most so many: another one takes the place of the oldest."""

    __slots__ = ("items", "most", "place")

    def __init__(self, most: int) -> None:
        self.items: list[_T] = []
        self.most = most
        self.place = 0  # of the oldest, once there are as many

    def take(self, thing: _T) -> _T | None:
        """Take a thing; the oldest one if that goes. `kernels/fastpath/rings.py` has it compiled."""
        items, place = self.items, self.place
        if len(items) < self.most:
            items.append(thing)
            return None
        oldest, items[place] = items[place], thing
        self.place = place + 1 if place + 1 < len(items) else 0
        return oldest
