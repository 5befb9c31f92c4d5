"""What is known of the sizes of arrays without running anything, and by the checks of a function."""

from __future__ import annotations

from .structure import Apply, Atom, Demand, Make, Procedure, Repeat, Statement, Suite, inner_blocks

Size = Atom | tuple[str, Atom]  # a number, a dimension of an array that is given, or another name


def size_of(f: Procedure, a: Atom) -> Size:
    """What a size is, looked up through arrays of the function."""
    item = f.makers.get(a) if isinstance(a, str) else None
    if isinstance(item, Apply) and item.function == "shape":
        array, d = item.args
        return dimension(f, str(array), int(d))
    return a


def dimension(f: Procedure, array: str, d: int) -> Size:
    """The size of a dimension of an array."""
    item = f.makers.get(array)
    return size_of(f, item.shape[d]) if isinstance(item, Make) else (array, d)


class Equal:
    """The sizes that checks have found to be equal, where these stand before."""

    def __init__(self, f: Procedure, before: Equal | None = None) -> None:
        self.f = f
        self._held: set[str] = set(before._held) if before else set()  # conditions
        self._first: dict[Size, Size] = dict(before._first) if before else {}

    def add(self, item: Demand) -> bool:
        """Note what a check finds; whether that was known before."""
        condition = item.condition
        if not isinstance(condition, str):
            return False
        sizes = _equal_sizes(self.f, condition)
        if condition in self._held or (sizes and self(*sizes)):
            return True
        self._held.add(condition)
        if sizes:
            first, other = sorted(map(self.first, sizes), key=lambda n: type(n) is not int)
            self._first |= {n: first for n, one in self._first.items() if one == other}
            self._first[other] = first
        return False

    def first(self, a: Size) -> Size:
        """One of the sizes that are equal to one: the number of the text if there is one."""
        return self._first.get(a, a)

    def __call__(self, a: Size, b: Size) -> bool:
        return self.first(a) == self.first(b)


def use_demands(f: Procedure) -> None:
    """Drop checks of what is known, and let loops over a size that a check has found to be a number of the text
    run to that number: then LLVM unrolls them."""
    _use_demands(f, f.body, Equal(f))


def _use_demands(f: Procedure, block: Suite, before: Equal) -> None:
    equal, left = Equal(f, before), list[Statement]()
    for item in block.items:
        if isinstance(item, Demand) and equal.add(item):
            continue
        if isinstance(item, Repeat) and isinstance(item.stop, str):
            stop = equal.first(size_of(f, item.stop))
            item.stop = stop if type(stop) is int else item.stop
        for inner in inner_blocks(item):
            _use_demands(f, inner, equal)
        left.append(item)
    block.items = left


def _equal_sizes(f: Procedure, condition: str) -> tuple[Size, Size] | None:
    """The sizes that a condition says are equal; floats are none, since NaN is not equal to itself."""
    item = f.makers.get(condition)
    if not isinstance(item, Apply) or item.function != "==":
        return None
    a, b = (size_of(f, x) for x in item.args)
    return None if any(isinstance(n, (str, float, bool)) for n in (a, b)) else (a, b)
