"""The structure of a batch of recorded nodes: what a plan for it depends on.

Recipes, who reads whom, and which values somebody still holds are part of it. Addresses from
outside and Python numbers are not.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ..storage import BorrowedMemory
from .jit import native
from .planning.recipe import COPY, NO_WRITE, Recipe, Wanted

_refcount = sys.getrefcount


class Structure:
    """A batch by its structure, and the values from outside that it reads.

    The key is words: of each node the serial number of its recipe and what it reads; then the
    positions of the nodes that somebody looks at, the externals that nobody will look at any more,
    each with the ~numbers of those that are other parts of the same value, and how many words both take.
    """

    __slots__ = ("externals", "homes", "key")

    def __init__(self, key: bytes, externals: list[tuple[Any, int]]) -> None:
        self.key = key
        self.externals = externals  # a value, and from which element on it is read
        # Externals over which nothing else may be written than the value of a node, at its position.
        self.homes: dict[int, int] = {}

    @property
    def numbers(self) -> dict[tuple[Any, int], int]:
        """The numbers of the externals."""
        return numbered(self.externals)

    @property
    def held(self) -> tuple[int, ...]:
        """Positions of the nodes that somebody looks at."""
        return self._lists()[0]

    @property
    def donated(self) -> dict[int, list[int]]:
        """The externals that are written over, and that nobody will look at any more; with each those
        that are other parts of the same value."""
        found: dict[int, list[int]] = {}
        for word in self._lists()[1]:
            if word < 0:
                found[next(reversed(found))].append(~word)
            else:
                found[word] = []
        return found

    def _lists(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        words = array("q", self.key)
        held, donated = words[-2:]
        end = len(words) - 2 - donated
        return tuple(words[end - held : end]), tuple(words[end : end + donated])


def key_of(words: Sequence[int], held: Sequence[int], donated: Sequence[int]) -> bytes:
    """The key of a batch that was walked."""
    return array("q", [*words, *held, *donated, len(held), len(donated)]).tobytes()


def numbered(externals: Sequence[tuple[Any, int]]) -> dict[tuple[Any, int], int]:
    """The numbers of externals."""
    return {external: number for number, external in enumerate(externals)}


def fixed_offset(recipe: Any, k: int, offset: int) -> int:
    """The part of an offset into a value from outside that belongs to the structure.

    A write needs the whole value that it changes, and where; other reads only see an address.
    """
    return offset if recipe.write and k == 0 else 0


def reads_of(node: Any, numbers: dict[tuple[Any, int], int]) -> list[tuple[int, int]]:
    """What a node of a batch that was walked reads: a position there, or `~` the number of a value
    from outside; and from which element on.
    """
    recipe, offsets = node.recipe, node.offsets or (0,) * len(node.inputs)
    found = []
    for k, (value, offset) in enumerate(zip(node.inputs, offsets, strict=True)):
        if value.recipe is not None:
            found.append((value.at, offset))
        else:
            fixed = fixed_offset(recipe, k, offset)
            found.append((~numbers[value, offset - fixed], fixed))
    return found


def written_over(recipe: Any) -> int:
    """How many inputs, the first ones, a recipe writes over if nobody else looks at them."""
    return recipe.over or int(recipe.write == COPY or recipe.alias is not None)


def structure_of(batch: list[Any], pending: Sequence[Any] = ()) -> Structure:
    """Number the nodes of a batch and what they read from outside.

    A batch that is not going to run still lies in `pending`: that nodes there read its values does
    not mean that somebody will look at them.
    """
    return Structure(*(read(batch, pending) if pending else read_batch(batch)))


def read(batch: list[Any], pending: Sequence[Any] = ()) -> tuple[bytes, list[tuple[Any, int]]]:
    """The key of a batch, and its externals."""
    words, externals, replaced = walk(batch)
    uses = uses_of(pending or batch)
    unheld = NOBODY + bool(pending)
    held = [at for at, count in enumerate(others(batch, uses)) if count > unheld]
    donated = _donated(externals, uses, replaced) if replaced else ()
    return key_of(words, held, donated), externals


def structure_with(batch: list[Any], held: Sequence[int]) -> Structure:
    """The structure of a batch of which these positions are held, whoever else refers to others."""
    words, externals, replaced = walk(batch)
    donated = _donated(externals, uses_of(batch), replaced) if replaced else ()
    return Structure(key_of(words, held, donated), externals)


def walk(
    batch: list[Any],
) -> tuple[list[int], list[tuple[Any, int]], set[int]]:
    """The words that the nodes tell, the externals, and which of them are written over.

    What a node reads is the position of another node or ~number of an external, doubled; plus one
    where an offset follows.
    """
    words: list[int] = []
    externals: list[tuple[Any, int]] = []
    numbers: dict[tuple[Any, int], int] = {}
    replaced: set[int] = set()  # what nodes write over if they may
    for at, node in enumerate(batch):
        node.at = at
        recipe, offsets = node.recipe, node.offsets
        words.append(recipe.serial)
        for k, value in enumerate(node.inputs):
            offset = 0 if offsets is None else offsets[k]
            if value.recipe is not None:
                words += (2 * value.at + 1, offset) if offset else (2 * value.at,)
                continue
            fixed = fixed_offset(recipe, k, offset)
            pair = (value, offset - fixed)
            number = numbers.get(pair)
            if number is None:
                number = numbers[pair] = len(externals)
                externals.append(pair)
            words += (2 * ~number + 1, fixed) if fixed else (2 * ~number,)
            if not pair[1] and k < written_over(recipe):
                replaced.add(number)
    return words, externals, replaced


def uses_of(nodes: Sequence[Any]) -> Counter[int]:
    """How often nodes read values, by the ids of those."""
    return Counter(map(id, chain.from_iterable([node.inputs or () for node in nodes])))


def others(nodes: Sequence[Any], uses: Counter[int]) -> list[int]:
    """The reference counts of nodes, less those of the nodes that read them."""
    return [_refcount(node) - uses[id(node)] for node in nodes]


def _donated(
    externals: list[tuple[Any, int]], uses: Counter[int], replaced: set[int]
) -> tuple[int, ...]:
    """The externals that are written over and that nothing but their readers holds, as in a key."""
    entries: dict[int, list[int]] = {}
    for number, (value, _) in enumerate(externals):
        entries.setdefault(id(value), []).append(number)
    del value  # it counts
    words = []
    for number in sorted(replaced):
        same = entries[id(externals[number][0])]
        held = others_outside(externals, number, uses) - len(same) + 1
        if held <= _DONATED and externals[number][0].address.__class__ is not BorrowedMemory:
            words += [number, *[~other for other in same if other != number]]
    return tuple(words)


def others_outside(externals: list[tuple[Any, int]], number: int, uses: Counter[int]) -> int:
    """The reference count of a value from outside, less those of the nodes that read it."""
    value = externals[number][0]
    return _refcount(value) - uses[id(value)]


def _calibrate() -> tuple[int, int]:
    """What the counts above are for a node, and for a value from outside, that nobody holds."""

    class Probe:
        __slots__ = ("inputs",)

    batch = [Probe(), Probe()]
    batch[1].inputs = (batch[0],)  # type: ignore[attr-defined]
    uses = Counter(map(id, batch[1].inputs))  # type: ignore[attr-defined]
    held = others(batch, uses)[0]
    outside = [(Probe(), 0)]
    reader = (outside[0][0],)
    return held, others_outside(outside, 0, Counter(map(id, reader)))


NOBODY, _DONATED = _calibrate()


class KeyContext(NamedTuple):
    """What reading the structure of a batch needs."""

    fallback: Callable[..., Any]
    recipe_class: type
    none: None
    no_write: str  # kinds of writes
    copy: str
    foreign: type


native.register_layout(RECIPE=Recipe, WANTED=Wanted, KEY=KeyContext)
read_batch = native.FastPath("graph_key", "read").function(
    read, KeyContext(read, Recipe, None, NO_WRITE, COPY, BorrowedMemory)
)
