"""Which stores must keep what they overwrite.

A store must, if an element that is read again on the way back may have been read from the same place
before. In one nest of loops with subscripts `i + number` the distance of the two decides: a load that
reads what an earlier round wrote does not mind.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .structure import Load, Make, Procedure, Repeat, StoreElement, Suite, walk
from .subscripts import affine, least

_FAR = 1 << 60


def needed_undos(
    f: Procedure,
    read_again: dict[str, list[Load]],
    run_again: Sequence[Repeat] = (),
    single: Collection[Repeat] = (),
) -> set[str]:
    """The names for overwritten elements that the way back has to have.

    The loops of `run_again` do all of their loads again; their own stores have what those need kept otherwise.
    Those of `single` begin each round with what it found: there nothing is read again in another round.
    """
    found = {
        item.old
        for _, item in walk(f.body)
        if isinstance(item, StoreElement)
        and any(
            may_read_before(f, load, item, single)
            for load in read_again.get(f.root(item.array), ())
        )
    }
    for loop in run_again:
        own = {item for _, item in walk(loop.body)}
        loads = [item for item in own if isinstance(item, Load)]
        found |= {
            item.old
            for _, item in walk(f.body)
            if isinstance(item, StoreElement)
            and item not in own
            and any(
                may_read_before(f, load, item)
                for load in loads
                if f.root(load.array) == f.root(item.array)
            )
        }
    return found


def _loops_around(block: Suite | None) -> list[Repeat]:
    loops: list[Repeat] = []
    while block is not None:
        if block.kind in ("loop", "test") and isinstance(block.owner, Repeat):
            loops.append(block.owner)
        block = block.parent
    return loops[::-1]


def _stands_before(first: tuple[Suite, int], second: tuple[Suite, int]) -> bool:
    """Whether one stands before another in the innermost block around both."""

    def path(block: Suite, position: int) -> list[tuple[Suite, int]]:
        found = [(block, position)]
        while block.parent is not None:
            found.append((block.parent, block.position))
            block = block.parent
        return found[::-1]

    for (b1, p1), (b2, p2) in zip(path(*first), path(*second), strict=False):
        if b1 is not b2:
            return b1.kind == "test"  # of one loop; the two sides of a branch exclude each other
        if p1 != p2:
            return p1 < p2
    return False


class _Distances:
    """What is known, for each counter, of the load's round − the store's round where both touch one place."""

    def __init__(self) -> None:
        self.low: dict[str, int] = {}
        self.high: dict[str, int] = {}

    def at_least(self, counter: str, n: int) -> None:
        self.low[counter] = max(self.low.get(counter, n), n)

    def at_most(self, counter: str, n: int) -> None:
        self.high[counter] = min(self.high.get(counter, n), n)

    @property
    def exclude_each_other(self) -> bool:
        return any(n > self.high.get(counter, n) for counter, n in self.low.items())


def may_read_before(
    f: Procedure, load: Load, store: StoreElement, single: Collection[Repeat] = ()
) -> bool:
    """Whether a load may run before a store and read the same place; of a loop of `single`, in one round."""
    where_load, where_store = f.places[load.dst], f.places[store.old]
    around_store = _loops_around(where_store[0])
    common = [x for x in _loops_around(where_load[0]) if any(x is y for y in around_store)]
    before = _stands_before(where_load, where_store)
    if not common:
        return before
    if not before and all(loop in single for loop in common):
        return False
    if load.array != store.array or len(load.index) != len(store.index):
        return True
    known = _Distances()
    for a, b in zip(load.index, store.index, strict=True):
        of_load, of_store = affine(f, a), affine(f, b)
        lowest = min(least(f, a, where_load[0]), least(f, b, where_store[0]))
        if of_load is None or of_store is None or lowest < 0:
            continue  # a negative index counts from the end: nothing is known
        if not _compare(f, known, of_load, of_store):
            return False
    if known.exclude_each_other:
        return False
    for loop in common:  # outermost first: may the load run in an earlier round?
        if loop in single:
            if known.low.get(loop.counter, 0) > 0 or known.high.get(loop.counter, 0) < 0:
                return False
            continue
        if loop.counter not in known.low and loop.counter not in known.high:
            return True
        low, high = known.low.get(loop.counter, -_FAR), known.high.get(loop.counter, _FAR)
        if loop.step < 0:
            low, high = -high, -low
        if low < 0:
            return True
        if low > 0:
            return False
    return before


def _compare(
    f: Procedure,
    known: _Distances,
    of_load: tuple[str | None, int],
    of_store: tuple[str | None, int],
) -> bool:
    """Add what one dimension tells; False if it tells that the two never touch one place."""
    (x, x_offset), (y, y_offset) = of_load, of_store
    distance = y_offset - x_offset
    if x is None and y is None:
        return distance == 0
    if x is not None and x == y:
        known.at_least(x, distance)
        known.at_most(x, distance)
    elif x is not None and y is not None:
        # triangles: one counter runs up to, or from, the other
        first, last = _bounds(f, x)
        if last and last[0] == y:
            known.at_least(y, distance - last[1])
        if first and first[0] == y:
            known.at_most(y, distance - first[1])
        first, last = _bounds(f, y)
        if first and first[0] == x:
            known.at_least(x, first[1] + distance)
        if last and last[0] == x:
            known.at_most(x, last[1] + distance)
    return True


def never_meet(f: Procedure, loop: Repeat, load: Load, store: StoreElement) -> bool:
    """Whether in one run of a loop a load, whose index stays the same, and a store reach different places."""
    if load.array != store.array or len(load.index) != len(store.index):
        return False
    block_of_load, block_of_store = f.places[load.dst][0], f.places[store.old][0]
    for a, b in zip(load.index, store.index, strict=True):
        x, y = affine(f, a), affine(f, b)
        if (
            x is None
            or y is None
            or min(least(f, a, block_of_load), least(f, b, block_of_store)) < 0
        ):
            continue  # a negative index counts from the end: nothing is known
        if x[0] == y[0]:
            stays = x[0] is None or not _is_made_in(f, loop, x[0])
            if stays and x[1] != y[1]:
                return True
        elif _is_below(f, loop, x, y) or _is_below(f, loop, y, x):
            return True
    return False


def _is_below(
    f: Procedure, loop: Repeat, x: tuple[str | None, int], y: tuple[str | None, int]
) -> bool:
    """Whether one index is always less than another: the counter of one has the other one for a bound."""
    if x[0] is not None and (y[0] is None or not _is_made_in(f, loop, y[0])):
        last = _bounds(f, x[0])[1]
        if last is not None and last[0] == y[0] and last[1] + x[1] < y[1]:
            return True
    if y[0] is not None and (x[0] is None or not _is_made_in(f, loop, x[0])):
        first = _bounds(f, y[0])[0]
        if first is not None and first[0] == x[0] and x[1] < first[1] + y[1]:
            return True
    return False


def _is_made_in(f: Procedure, loop: Repeat, name: str) -> bool:
    """Whether a name changes while a loop runs."""
    block: Suite | None = f.places[name][0] if name in f.places else None
    while block is not None:
        if block.owner is loop:
            return True
        block = block.parent
    return False


def loads_of_neighbours(
    f: Procedure, loop: Repeat, loads: Sequence[Load], stores: Sequence[StoreElement]
) -> list[Load]:
    """Of loads of one array that are the same but for the number beside the loop's counter, those that reach
    other rounds' places; none if a load may read what this run of the loop has stored.

    `stores` are those of the loop into memory that may be the array's. On the way back each of the loads adds
    to a place that no store asks for afterwards, so that it may do so behind the loop.
    """
    if len(loads) < 2 or _is_made_in(f, loop, loads[0].array):
        return []
    indices = [[affine(f, a) for a in load.index] for load in loads]
    moving = [d for d, a in enumerate(indices[0]) if a is not None and a[0] == loop.counter]
    if not moving:
        return []
    axis = moving[0]
    offsets = [at[1] for a in indices if (at := a[axis]) is not None and at[0] == loop.counter]
    others = {(*load.index[:axis], *load.index[axis + 1 :]) for load in loads}
    if len(offsets) != len(loads) or len(others) != 1:
        return []
    if not all(_reads_before(f, loop, load, store) for load in loads for store in stores):
        return []
    stay = max(offsets, key=offsets.count)
    return [load for load, at in zip(loads, offsets, strict=True) if at != stay]


def load_of_round_before(
    f: Procedure, loop: Repeat, store: StoreElement, loads: Sequence[Load]
) -> Load | None:
    """Of loads in a round of an innermost loop the one that reads, before the round's store, what the store of
    the round before has written.

    `store` is the only one in the loop into memory that may be its array's. On the way back nobody asks for
    that place between what the load adds to it and the next round, which takes the sum.
    """
    if store.adds or _is_made_in(f, loop, store.array):
        return None
    where = f.places[store.old]
    for load in loads:
        place = f.places[load.dst]
        if load.array != store.array or place[0] is not where[0] or place[1] > where[1]:
            continue
        differ = [(a, b) for a, b in zip(load.index, store.index, strict=True) if a != b]
        if len(differ) != 1:
            continue
        x, y = (affine(f, a) for a in differ[0])
        if x is None or y is None or x[0] != loop.counter or y[0] != loop.counter:
            continue
        if y[1] - x[1] == loop.step:
            return load
    return None


def _reads_before(f: Procedure, loop: Repeat, load: Load, store: StoreElement) -> bool:
    """Whether in one run of an innermost loop a load reads no place that a store has written before."""
    if load.array != store.array:
        return _change_places(f, loop, load.array, store.array)
    where_load, where_store = f.places[load.dst], f.places[store.old]
    for a, b in zip(load.index, store.index, strict=True):
        x, y = affine(f, a), affine(f, b)
        lowest = min(least(f, a, where_load[0]), least(f, b, where_store[0]))
        if x is None or y is None or lowest < 0 or x[0] != y[0]:
            continue  # a negative index counts from the end: nothing is known
        ahead = x[1] - y[1]
        if x[0] == loop.counter:
            ahead = ahead if loop.step > 0 else -ahead
            if ahead > 0 or (ahead == 0 and _stands_before(where_load, where_store)):
                return True
        elif ahead != 0 and (x[0] is None or not _is_made_in(f, loop, x[0])):
            return True
    return False


def _change_places(f: Procedure, loop: Repeat, a: str, b: str) -> bool:
    """Whether two names are those of arrays that only change places in the rounds of a loop around another
    one: then they are always different memory."""
    for around in _loops_around(f.places[loop.trips][0]):
        arrays = [c for c in around.carried if c.is_array]
        inside = {c.inside: c for c in arrays}
        if a in inside and b in inside:
            firsts = {str(c.first) for c in arrays}
            made = all(isinstance(f.makers.get(first), Make) for first in firsts)
            permuted = sorted(str(c.following) for c in arrays) == sorted(inside)
            return permuted and made and len(firsts) == len(arrays)
    return False


def own_offset(
    f: Procedure, loop: Repeat, accesses: Sequence[Load | StoreElement]
) -> tuple[int, int] | None:
    """The dimension in which all accesses have a loop's counter plus one number, and that number: then no two
    rounds reach one place. None where that cannot be told."""
    if len({i.array for i in accesses}) != 1:
        return None
    for axis in range(len(accesses[0].index)):
        found = {affine(f, i.index[axis]) for i in accesses}
        known = next(iter(found))
        if len(found) != 1 or known is None or known[0] != loop.counter:
            continue
        blocks = [f.places[i.dst if isinstance(i, Load) else i.old][0] for i in accesses]
        if all(least(f, i.index[axis], b) >= 0 for i, b in zip(accesses, blocks, strict=True)):
            return axis, known[1]
    return None


def _bounds(
    f: Procedure, counter: str
) -> tuple[tuple[str | None, int] | None, tuple[str | None, int] | None]:
    """The first and last value of a counter, as other counters and numbers."""
    loop = f.makers[counter]
    if not isinstance(loop, Repeat) or loop.step != 1:
        return None, None
    stop = affine(f, loop.stop)
    return affine(f, loop.start), stop and (stop[0], stop[1] - 1)
