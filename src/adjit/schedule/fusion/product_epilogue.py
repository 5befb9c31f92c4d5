"""Activations that a product of matrices applies to its result on the way to memory."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence

from ...kernels.ops import matmul
from ..planning.recipe import Recipe
from .groups import Item, Read
from .row_groups import is_plain

ACTIVATIONS = {"relu": matmul.RELU}


def with_activations(
    items: Sequence[Item], held: set[int], takes: Callable[[Recipe], bool]
) -> list[Item]:
    """The items, each product that `takes` one made one with the activation that alone reads its
    result."""
    readers = Counter(read.value for item in items for read in item.reads)
    producers: dict[int, int] = {}  # the places of products
    found: list[Item | None] = [*items]
    for place, item in enumerate(items):
        if item.recipe.fusion.activation >= 0 and takes(item.recipe):
            producers[item.writes[0]] = place
        elif (
            item.recipe.name in ACTIVATIONS
            and (at := producers.get(item.reads[0].value)) is not None
        ):
            product, value = items[at], item.reads[0].value
            if readers[value] == 1 and value not in held and _is_whole(item, product):
                recipe = activated(product.recipe, ACTIVATIONS[item.recipe.name])
                found[at] = Item(recipe, product.reads, item.writes, product.node)
                found[place] = None
    return [item for item in found if item is not None]


def _is_whole(item: Item, product: Item) -> bool:
    """Whether an activation reads all of a product's result as it lies, and leaves it so."""
    element, spec = item.recipe.fusion.element, item.recipe.spec
    assert element is not None
    if item.reads != (Read(product.writes[0], 0),) or spec.dtype is not product.recipe.spec.dtype:
        return False
    operands = [*element.inputs, *element.outputs]
    return spec.numel == product.recipe.spec.numel and all(
        is_plain(o.strides or (), element.shape) for o in operands
    )


def activated(recipe: Recipe, activation: int) -> Recipe:
    """The recipe of a product with an activation at its end."""
    made = copy.copy(recipe)
    words = list(recipe.constants)
    words[recipe.fusion.activation] = activation
    made.constants = tuple(words)
    return made
