"""The structure of a batch of recorded nodes: what a plan for it depends on.

Recipes, who reads whom, and which values somebody still holds are part of it. Addresses from
outside and Python numbers are not.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from ..storage import Foreign

_refcount = sys.getrefcount


class Structure(NamedTuple):
    """A batch by its structure, and the values from outside that it reads."""

    key: tuple[Any, ...]
    externals: list[tuple[Any, int]]  # a value, and from which element on it is read
    numbers: dict[tuple[Any, int], int]  # the numbers of these
    held: tuple[int, ...]  # positions of the nodes that somebody looks at
    owned: tuple[int, ...]  # externals that nobody will look at any more


def fixed_offset(recipe: Any, k: int, offset: int) -> int:
    """The part of an offset into a value from outside that belongs to the structure.

    A write needs the whole value that it changes, and where; other reads only see an address.
    """
    return offset if recipe.write and k == 0 else 0


def written_over(recipe: Any) -> int:
    """How many inputs, the first ones, a recipe writes over if nobody else looks at them."""
    return recipe.over or int(recipe.write == "copy" or recipe.alias is not None)


def structure_of(batch: list[Any], tape: Sequence[Any] = ()) -> Structure:
    """Number the nodes of a batch and what they read from outside.

    A batch that is not going to run still lies on the tape: that nodes there read its values does
    not mean that somebody will look at them.
    """
    key, externals, numbers, replaced = walk(batch)
    uses = Counter(map(id, chain.from_iterable([node.inputs or () for node in tape or batch])))
    unheld = _HELD + bool(tape)
    held = tuple([at for at, count in enumerate(others(batch, uses)) if count > unheld])
    owned = _owned(externals, uses, replaced) if replaced else ()
    return Structure((*key, held, owned), externals, numbers, held, owned)


def walk(batch: list[Any]) -> tuple[list[Any], list[Any], dict[Any, int], set[int]]:
    """The part of the key that the nodes tell, and the externals that they write over."""
    key: list[Any] = []
    externals: list[tuple[Any, int]] = []
    numbers: dict[tuple[Any, int], int] = {}
    replaced: set[int] = set()  # what nodes write over if they may
    for at, node in enumerate(batch):
        node.at = at
        recipe, offsets = node.recipe, node.offsets
        key.append(recipe)
        for k, value in enumerate(node.inputs):
            offset = 0 if offsets is None else offsets[k]
            if value.recipe is not None:
                key.append((value.at, offset) if offset else value.at)
                continue
            fixed = fixed_offset(recipe, k, offset)
            pair = (value, offset - fixed)
            number = numbers.get(pair)
            if number is None:
                number = numbers[pair] = len(externals)
                externals.append(pair)
            key.append((~number, fixed) if fixed else ~number)
            if not pair[1] and (
                k < recipe.over or (k == 0 and (recipe.write == "copy" or recipe.alias))
            ):
                replaced.add(number)
    return key, externals, numbers, replaced


def others(nodes: Sequence[Any], uses: Counter[int]) -> list[int]:
    """The reference counts of nodes, less those of the nodes that read them."""
    return [_refcount(node) - uses[id(node)] for node in nodes]


def _owned(
    externals: list[tuple[Any, int]], uses: Counter[int], replaced: set[int]
) -> tuple[int, ...]:
    """The externals that are written over and that nothing but their readers holds."""
    entries = Counter([id(value) for value, _ in externals])
    return tuple(
        [
            number
            for number in sorted(replaced)
            if entries[id(externals[number][0])] == 1
            and externals[number][0].address.__class__ is not Foreign
            and others_outside(externals, number, uses) <= _OWNED
        ]
    )


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


_HELD, _OWNED = _calibrate()
