"""Loops in a recorded sequence: where it repeats itself, and with what period."""

from __future__ import annotations

from collections.abc import Sequence

LOOK = 6  # equal neighbours in a row that make a repetition worth a look
LEAST = 3  # repetitions that make a loop


def cells(sequence: Sequence[int], size: int) -> list[int]:
    """A number for each place: the same within a repetition, or several up to `size` places.

    Places outside of loops have even numbers, the repetitions of loops odd ones.

    Example:
        >>> cells([7, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 9], 4)
        [0, 1, 1, 1, 1, 3, 3, 3, 3, 5, 5, 6]
    """
    count = len(sequence)
    numbers = [0] * count
    last: dict[tuple[int, ...], int] = {}
    number = at = 0
    while at < count:
        key = tuple(sequence[at : at + LOOK])
        before = last.get(key, -1)
        period = at - before
        if before >= 0 and (end := _end_of_loop(sequence, before, period)) - before >= max(
            LEAST * period, LOOK
        ):
            step = max(size // period, 1) * period
            first = before
            number += 1 + number % 2 if number % 2 else 1
            for start in range(first, end, step):
                for k in range(start, min(start + step, end)):
                    numbers[k] = number
                number += 2
            number += 1
            last.clear()
            at = end
            continue
        last[key] = at
        numbers[at] = number
        at += 1
    return numbers


def _end_of_loop(sequence: Sequence[int], start: int, period: int) -> int:
    """Where a sequence that repeats itself from `start` on stops doing so."""
    at = start + period
    while at < len(sequence) and sequence[at] == sequence[at - period]:
        at += 1
    return at
