"""Rounds of a loop that take turns, where each adds up numbers of its own.

An addition waits for the one before, which is all that `acc += u[r, q] * h[q]` does of its time. Rounds of the
loop around that have nothing to do with each other are written side by side, so that none has to wait:

    for r in range(0, trips_0q, 4):
        r_1q = r + 1
        ...
        for q in range(n):
            acc = acc + ...
            acc_1q = acc_1q + ...

Each sum keeps its order, so all bits stay: a product of a matrix of 128x64 with a vector 4.4 to 2.1 us.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .. import config
from .ahead import Ahead
from .structure import Apply, Load, Procedure, Repeat, StoreElement, walk

AT_ONCE = 4  # the latency of an addition, in cycles
MOST_STEPS = 40  # of a round: each is compiled once more for each of the rounds


def may_take_turns(f: Procedure, loop: Repeat) -> bool:
    """Whether rounds may be mixed, and there is something to wait for."""
    if (
        config.DEBUG
        or loop.kind != "for"
        or loop.step != 1
        or loop.leaves is not None
        or loop.carried
    ):
        return False
    inner = [item for item in loop.body.items if isinstance(item, Repeat)]
    made = set(names_made(loop))
    return (
        all(_is_sum(f, item, made) for item in inner)
        and any(f.is_float(c.inside) for item in inner for c in item.carried)
        and _stores_alone(f, loop)
        and sum(1 for _ in walk(loop.body)) <= MOST_STEPS
    )


def _is_sum(f: Procedure, loop: Repeat, made: set[str]) -> bool:
    """Whether a loop has the same rounds in each round around it, and leaves nothing but numbers."""
    return (
        loop.kind == "for"
        and loop.leaves is None
        and not made & {loop.start, loop.stop}
        and not any(c.is_array for c in loop.carried)
        and all(isinstance(item, (Apply, Load)) for item in loop.body.items)
        and not Ahead(f, loop).functions
    )


def _stores_alone(f: Procedure, loop: Repeat) -> bool:
    """Whether besides sums there are only steps with numbers, and stores that no round has a part in."""
    found = [item for _, item in walk(loop.body)]
    stores = [f.root(item.array) for item in found if isinstance(item, StoreElement)]
    loads = {f.root(item.array) for item in found if isinstance(item, Load)}
    return (
        all(isinstance(item, (Apply, Load, StoreElement, Repeat)) for item in found)
        and len(stores) == len(set(stores))
        and not loads & set(stores)
    )


def may_overlap(f: Procedure, loop: Repeat) -> list[tuple[str, str]]:
    """Arguments of which a loop writes one and reads the other: they may be arrays of the same memory."""
    found = [item for _, item in walk(loop.body)]
    stores = {f.root(item.array) for item in found if isinstance(item, StoreElement)}
    loads = {f.root(item.array) for item in found if isinstance(item, Load)}
    arrays = [p for p in f.params if p in f.arrays]
    written = [p for p in arrays if f.root(p) in stores]
    return [(a, b) for a in written for b in arrays if f.root(b) in loads]


def names_made(loop: Repeat) -> Iterator[str]:
    """The names that each round has for itself, and are not sizes."""
    yield loop.counter
    for _, item in walk(loop.body):
        match item:
            case Apply(function="shape"):
                pass
            case Apply() | Load():
                yield item.dst
            case StoreElement():
                yield item.old
            case Repeat():
                for c in item.carried:
                    yield c.inside
                    yield c.after


def in_turns(loop: Repeat, body: Sequence[str]) -> Iterator[str]:
    """The lines of so many rounds side by side, from those of one."""
    names = re.compile(rf"\b({'|'.join(map(re.escape, names_made(loop)))})\b")
    for k in range(1, AT_ONCE):
        yield f"{loop.counter}_{k}q = {loop.counter} + {k}"
    sizes = [
        item.dst
        for _, item in walk(loop.body)
        if isinstance(item, Apply) and item.function == "shape"
    ]
    once = ("#", "for ", *[f"{name} = " for name in sizes])
    for line in body:
        yield line
        if not line.lstrip().startswith(once):
            for k in range(1, AT_ONCE):
                yield names.sub(rf"\1_{k}q", line)
