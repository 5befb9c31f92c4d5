"""The structured form of a function: blocks of items, every name assigned once.

Values are *atoms*: a name or a Python number. What loops and branches hand on is named in their
headers, so that a pass over the form needs no analysis of where a name comes from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Atom = str | int | float | bool


@dataclass(eq=False)
class Statement:
    """One step; `note` is the user's line that it comes from."""

    note: str = field(default="", kw_only=True)


@dataclass(eq=False)
class Apply(Statement):
    """`dst = function(*args)`, on numbers."""

    dst: str
    function: str
    args: list[Atom]


@dataclass(eq=False)
class Load(Statement):
    """`dst = array[index]`."""

    dst: str
    array: str
    index: list[Atom]


@dataclass(eq=False)
class StoreElement(Statement):
    """`array[index] = value`, or `+=`; `old` names what was there."""

    array: str
    index: list[Atom]
    value: Atom
    old: str
    adds: bool = False


@dataclass(eq=False)
class Make(Statement):
    """`dst` is a new array; `fill` is None where its elements are not set."""

    dst: str
    shape: list[Atom]
    fill: Atom | None
    dtype: str


@dataclass(eq=False)
class Demand(Statement):
    """Raise `error(message)` unless the condition holds."""

    condition: Atom
    error: str
    message: str


@dataclass(eq=False)
class Branch(Statement):
    """`if`; each of `results` is (name, its value after `then`, its value after `orelse`)."""

    condition: Atom
    then: Suite
    orelse: Suite
    results: list[tuple[str, Atom, Atom]]


@dataclass(eq=False)
class Carried:
    """What a loop hands from round to round: `first` at its start, `inside` in a round, `following` in the
    round after, `after` behind the loop."""

    inside: str
    first: Atom
    following: Atom
    after: str
    is_array: bool = False


@dataclass(eq=False)
class Repeat(Statement):
    """A loop: a `for` over a range, or a `while` with its test.

    `trips` names the number of rounds. A round is the last one if `leaves` is true at its end.
    """

    kind: Literal["for", "while"]
    body: Suite
    carried: list[Carried]
    trips: str
    leaves: Atom | None = None
    counter: str = ""
    start: Atom = 0
    stop: Atom = 0
    step: int = 1
    test: Suite | None = None
    condition: Atom | None = None
    is_parallel: bool = False  # a `prange` in no other loop
    is_optional: bool = False  # where it is `range` in the user's program
    is_library: bool = False  # of a whole-array statement


@dataclass(eq=False)
class Suite:
    """Statements in order. `owner` is the statement that holds the block, `position` its place in `parent`."""

    kind: Literal["top", "loop", "branch", "test"]
    items: list[Statement] = field(default_factory=list)
    parent: Suite | None = None
    position: int = -1
    owner: Statement | None = None


@dataclass(eq=False)
class Procedure:
    """A whole function in structured form."""

    name: str
    params: list[str]
    arrays: dict[str, tuple[int, str]]  # name -> (number of dimensions, dtype)
    body: Suite
    returns: list[Atom]
    returns_tuple: bool
    written: set[str]  # arrays that are written to
    alias: dict[str, str]  # array -> one that may be the same memory
    heading: str  # where the user's function stands
    tangents: int = 0  # passes of forward mode behind it
    # The dtypes that the reader took numbers to have.
    supposed: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)  # of scalars, by Numba
    places: dict[str, tuple[Suite, int]] = field(default_factory=dict)  # where a name is made
    makers: dict[str, Statement] = field(default_factory=dict)  # what makes a name

    def root(self, array: str) -> str:
        """One name for all arrays that may be the same memory."""
        while (found := self.alias.get(array, array)) != array:
            array = found
        return array

    def is_float(self, a: Atom | None) -> bool:
        return isinstance(a, str) and self.types.get(a, "").startswith("f")


def walk(block: Suite) -> Iterator[tuple[Suite, Statement]]:
    """All statements, those inside of others too."""
    for item in block.items:
        yield block, item
        for inner in inner_blocks(item):
            yield from walk(inner)


def inner_blocks(item: Statement) -> list[Suite]:
    """The blocks that a statement holds."""
    if isinstance(item, Branch):
        return [item.then, item.orelse]
    if isinstance(item, Repeat):
        return [item.test, item.body] if item.test else [item.body]
    return []


def blocks_of(item: Statement) -> Iterator[Suite]:
    """All blocks inside of a statement, at any depth."""
    for block in inner_blocks(item):
        yield block
        for _, inner in walk(block):
            yield from inner_blocks(inner)


def made_by(item: Statement) -> set[str]:
    """The names that a statement gives values."""
    if isinstance(item, Branch):
        return {dst for dst, _, _ in item.results}
    if isinstance(item, Repeat):
        handed_on = {name for c in item.carried for name in (c.inside, c.after)}
        return {item.counter, item.trips, *handed_on}
    return {getattr(item, "dst", "")}


def _always_read(item: Statement) -> list[Atom | None]:
    """What a statement reads whoever reads its results."""
    match item:
        case Apply():
            return list(item.args)
        case Load():
            return [item.array, *item.index]
        case StoreElement():
            return [item.array, *item.index, item.value]
        case Make():
            return [*item.shape, item.fill]
        case Demand() | Branch():
            return [item.condition]
        case Repeat():
            return [item.start, item.stop, item.leaves, item.condition]
    return []


def names_read(loop: Repeat) -> list[str]:
    """The names that a loop reads and does not make, apart from where its carried names start."""
    made = {loop.counter, *(c.inside for c in loop.carried)}
    read: dict[str, None] = {}
    for _, item in walk(loop.body):
        found = [v for v in _always_read(item) if isinstance(v, str)]
        match item:
            case Apply() | Load() | Make():
                made.add(item.dst)
            case StoreElement():
                made.add(item.old)
            case Branch():
                made.update(r[0] for r in item.results)
                found += [v for r in item.results for v in r[1:] if isinstance(v, str)]
            case Repeat():
                made |= {item.trips, item.counter}
                for c in item.carried:
                    made |= {c.inside, c.after}
                    found += [v for v in (c.first, c.following) if isinstance(v, str)]
        read |= dict.fromkeys(found)
    read |= dict.fromkeys(c.following for c in loop.carried if isinstance(c.following, str))
    return [name for name in read if name not in made]


def eliminate(f: Procedure) -> None:
    """Drop what nobody reads, until nothing is left to drop."""
    while _drop(f.body, _used(f)):
        pass


def _used(f: Procedure) -> set[str]:
    used = {v for v in f.returns if isinstance(v, str)}
    handed_on: list[tuple[tuple[str, ...], tuple[Atom, ...]]] = []
    for _, item in walk(f.body):
        used.update(v for v in _always_read(item) if isinstance(v, str))
        if isinstance(item, Branch):
            handed_on += [((dst,), (a, b)) for dst, a, b in item.results]
        elif isinstance(item, Repeat):
            for c in item.carried:
                handed_on.append(((c.after, c.inside), (c.first, c.following, c.inside, c.after)))
    before = -1
    while before != len(used):
        before = len(used)
        for targets, sources in handed_on:
            if any(t in used for t in targets):
                used.update(v for v in sources if isinstance(v, str))
    return used


def _drop(block: Suite, used: set[str]) -> bool:
    dropped = False
    kept: list[Statement] = []
    for item in block.items:
        match item:
            case Apply() | Load() if item.dst not in used:
                dropped = True
                continue
            case Branch():
                dropped |= _drop(item.then, used) | _drop(item.orelse, used)
                left = [r for r in item.results if r[0] in used]
                dropped |= len(left) != len(item.results)
                item.results = left
                if not item.then.items and not item.orelse.items and not left:
                    dropped = True
                    continue
            case Repeat():
                dropped |= _drop(item.body, used)
                if item.test:
                    dropped |= _drop(item.test, used)
                carried = [c for c in item.carried if c.after in used or c.inside in used]
                dropped |= len(carried) != len(item.carried)
                item.carried = carried
                if item.kind == "for" and not item.body.items and not carried:
                    dropped = True
                    continue
        kept.append(item)
    block.items = kept
    return dropped


def link(f: Procedure) -> None:
    """Note the parents of blocks, and where each name is made."""
    f.places.clear()
    f.makers.clear()
    _link(f, f.body, None, -1, None)


def _link(
    f: Procedure, block: Suite, parent: Suite | None, position: int, owner: Statement | None
) -> None:
    block.parent, block.position, block.owner = parent, position, owner
    for k, item in enumerate(block.items):
        made: list[tuple[str, Suite, int]] = []
        match item:
            case Apply() | Load() | Make():
                made = [(item.dst, block, k)]
            case StoreElement():
                made = [(item.old, block, k)]
            case Branch():
                made = [(dst, block, k) for dst, _, _ in item.results]
            case Repeat():
                made = [(item.trips, block, k)]
                made += [(c.after, block, k) for c in item.carried]
                made += [(c.inside, item.body, -1) for c in item.carried]
                made += [(item.counter, item.body, -1)] if item.counter else []
        for name, where, at in made:
            f.places[name] = (where, at)
            f.makers[name] = item
        for inner in inner_blocks(item):
            _link(f, inner, block, k, item)
