"""What convolutions do to their results before they store them.

A batch norm of evaluation, a residual sum and a ReLU behind a convolution are the steps that the tiles
of `kernels/ops/conv_tile.py` know: a factor and a summand for each column, a tensor of the same layout,
and two bounds. A convolution takes over those that follow it in this order, each reading alone what the one
before leaves. Every step is rounded as if it stood alone: the bits stay.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ... import dtypes
from ...kernels.ops import conv
from ...kernels.ops.conv_tile import ADDED, BOUNDED, SCALED, SHIFTED
from ..planning.recipe import Recipe
from .groups import Item
from .row_groups import RowGroup, steps_of

FIRST = 5  # the place of the first constant in the row of a convolution
BOUNDS = {"relu": (0, 0x7FF << 52), "hardtanh": ()}  # the bits, where they are no numbers of a node
PLACES = {SCALED: conv.SCALE, SHIFTED: conv.SHIFT, ADDED: conv.RESIDUAL}


class EpilogueStep(NamedTuple):
    """An item that a convolution takes over."""

    kind: int
    item: Item
    place: int  # among the items
    reads: tuple[int, ...]  # which of its reads are not the result of the step before


def with_finishes(items: Sequence[Item], held: set[int]) -> list[Item]:
    """The items, each convolution made one with what it can do to its result."""
    readers = Counter(read.value for item in items for read in item.reads)
    chains: dict[int, list[EpilogueStep]] = {}  # by the places of the convolutions
    ends: dict[int, int] = {}  # those places by the values that their chains leave
    for place, item in enumerate(items):
        if item.recipe.fusion.finishes:
            chains[place] = []
            ends[item.writes[0]] = place
        if item.recipe.fusion.element is None:
            continue
        for k, read in enumerate(item.reads):
            at = ends.get(read.value)
            if at is None or readers[read.value] > 1 or read.value in held:
                continue
            kind = _kind(item, k, items[at].recipe, chains[at][-1].kind if chains[at] else 0)
            if kind:
                others = tuple([other for other in range(len(item.reads)) if other != k])
                chains[at].append(EpilogueStep(kind, item, place, others))
                ends[item.writes[0]] = at
                break
    found: list[Item | None] = [*items]
    for at, chain in chains.items():
        for place in (at, *[step.place for step in chain]):
            found[place] = None
        found[chain[-1].place if chain else at] = _finished(items[at], chain)
    return [item for item in found if item is not None]


def _kind(item: Item, own: int, product: Recipe, before: int) -> int:
    """What kind of step an item makes of the result of a convolution and a step before, 0 for none."""
    element, spec, name = item.recipe.fusion.element, product.spec, item.recipe.name
    assert element is not None
    operands = [o for o in (*element.inputs, *element.outputs) if o.strides is not None]
    if (
        spec.dtype not in (dtypes.float32, dtypes.float64)
        or {element.compute, *[o.dtype for o in operands]} != {spec.dtype}
        or item.recipe.spec.numel != spec.numel
    ):
        return 0
    row_group = RowGroup(spec.numel // spec.shape[-1], spec.shape[-1])
    along = [steps_of(o.strides or (), element.shape, row_group) for o in operands]
    whole = row_group.width, 1
    if along.pop(own) != whole or along.pop() != whole:
        return 0
    if not along:
        return BOUNDED if name in BOUNDS and before < BOUNDED else 0
    is_row = along[0] == (0, 1) or (row_group.rows == 1 and along[0] == whole)
    if name == "mul":
        return SCALED if is_row and before < SCALED else 0
    if name != "add":
        return 0
    if is_row and before < SHIFTED:
        return SHIFTED
    return ADDED if along[0] == whole and before < ADDED else 0


def _finished(product: Item, chain: Sequence[EpilogueStep]) -> Item:
    """A convolution with a chain of steps at its end."""
    if not chain:
        return product
    made, last = copy.copy(product.recipe), chain[-1].item
    assert last.recipe.fusion.element is not None
    words, reads, inputs = list(made.constants), list(product.reads), list(made.inputs)
    bounds = BOUNDS.get(last.recipe.name, ())
    behind = FIRST + len(words) + len(bounds)
    for step in chain:
        words[conv.FINISHES] |= step.kind
        for k in step.reads:
            words[PLACES[step.kind]] = behind + made.late
            reads.append(step.item.reads[k])
            inputs.append(step.item.recipe.inputs[k])
            made.late += 1
    words[conv.BOUNDS] = FIRST + len(words) if bounds else behind + made.late
    made.constants, made.inputs = (*words, *bounds), tuple(inputs)
    numbers = [o for o in last.recipe.fusion.element.inputs if o.strides is None]
    made.scalars += len(numbers)
    made.count += len(bounds) + made.late + len(numbers)
    others = product.node, *[step.item.node for step in chain[:-1]]
    return Item(made, tuple(reads), last.writes, last.node, others)
