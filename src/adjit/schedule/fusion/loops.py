"""Loops in a recorded sequence: where it repeats itself, and with what period."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

LOOK = 6  # equal neighbours in a row that make a repetition worth a look
LEAST = 3  # repetitions that make a loop


def repetitions(sequence: Sequence[int], size: int) -> list[int]:
    """A number for each place: the same within a repetition, or several up to `size` places.

    The numbers count up from 0. Places that follow each other outside of loops share one.

    Example:
        >>> repetitions([7, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 9], 4)
        [0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4]
    """
    count = len(sequence)
    starts: set[int] = set()  # of new numbers
    last: dict[tuple[int, ...], int] = {}  # where neighbours were seen
    short: dict[int, int] = {}  # where a repetition with a period ends that is too short for a loop
    at = 0
    while at < count:
        key = tuple(sequence[at : at + LOOK])
        before = last.get(key, at)
        last[key] = at
        period = at - before
        if period and at >= short.get(period, 0):
            end = _end_of_loop(sequence, before, period)
            if end - before >= LEAST * period:
                starts.update(range(before, end, max(size // period, 1) * period))
                starts.add(end)
                last.clear()
                at = end
                continue
            short[period] = end
        at += 1
    starts.discard(0)
    return list(accumulate([int(place in starts) for place in range(count)]))


def _end_of_loop(sequence: Sequence[int], start: int, period: int) -> int:
    """Where a sequence that repeats itself from `start` on stops doing so."""
    at = start + period
    while at < len(sequence) and sequence[at] == sequence[at - period]:
        at += 1
    return at
