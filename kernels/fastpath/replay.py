"""A replay of a captured function, compiled: what `replay.py` looks at and leaves behind.

What is not the usual case (a value that was computed elsewhere, the gradient of an argument,
memory to be copied first) is left to the twins in Python, before anything has been done.
"""

from ..language.abi import helper
from .cpython import (
    BOUND,
    class_of,
    count_of,
    drop,
    exchange,
    get,
    item,
    length,
    list_item,
    new_list,
    new_pair,
    new_result,
    new_word,
    own,
    put_list_item,
    word_of,
)  # fmt: skip
from .tensors import (
    FALSE,
    NODE_RECIPE,
    NONE,
    STORAGE_SPEC,
    STORAGE_VALUE,
    STORAGE_VERSION,
    TENSOR_META,
    TENSOR_NEEDS_GRAD,
    TENSOR_OFFSET,
    TENSOR_SPEC,
    TENSOR_STORAGE,
    TRUE,
    is_private,
    new_ready,
    new_tensor,
)  # fmt: skip

# Where the slots of the classes lie; bound when the module is compiled.
NODE_ADDRESS = META_GRAD = FUNCTION_CONTEXT = BOUND

SHARED, TWIN, FOREIGN = range(3)  # the context
GRADS, UNCHANGED, WRITTEN = range(3)  # of what a call must find
SPEC, OFFSET, WHOLE = range(3)  # of a layout
CELLS, CONSTANT, ARGUMENT, START, OWNED = range(5)  # of a source
TENSORS, EFFECTS, CLEARED = range(3)  # of what a replay leaves behind


# ----- whether a capture fits -----


def fits(function, arguments, count, names):
    """Whether gradients, tensors and cells from outside are as they were."""
    shared = item(get(function, FUNCTION_CONTEXT), SHARED)
    wanted, given = get(arguments, 0), get(arguments, 8)
    well = (
        all_grads_fit(shared, item(wanted, GRADS), given)
        and all_are_unchanged(shared, item(wanted, UNCHANGED))
        and all_are_private(shared, item(wanted, WRITTEN))
    )
    return own(item(shared, TRUE if well else FALSE))


@helper
def all_grads_fit(shared, wanted, given):
    """Whether gradients lie as they did, or are not there as they were not."""
    none = item(shared, NONE)
    for k in range(length(wanted)):
        before = item(wanted, k)
        grad = gradient(none, word_of(item(before, 0)), item(before, 1), given)
        layout = item(before, 2)
        if grad == none or layout == none:
            if grad != layout:
                return False
        elif (
            get(grad, TENSOR_SPEC) != item(layout, SPEC)
            or word_of(get(grad, TENSOR_OFFSET)) != word_of(item(layout, OFFSET))
            or get(get(grad, TENSOR_STORAGE), STORAGE_SPEC) != item(layout, WHOLE)
        ):
            return False
    return True


@helper
def all_are_unchanged(shared, wanted):
    """Whether tensors from outside look at the same elements, and need gradients as they did."""
    for k in range(length(wanted)):
        seen = item(wanted, k)
        t = item(seen, 0)
        if (
            get(t, TENSOR_STORAGE) != item(seen, 1)
            or get(t, TENSOR_SPEC) != item(seen, 2)
            or word_of(get(t, TENSOR_OFFSET)) != word_of(item(seen, 3))
            or get(t, TENSOR_NEEDS_GRAD) != item(seen, 4)
        ):
            return False
    return True


@helper
def all_are_private(shared, cells):
    """Whether nobody outside looks at the bytes of cells."""
    private = True
    for k in range(length(cells)):
        private &= is_private(shared, item(cells, k))
    return private


# ----- what a replay reads -----


def look_up(function, arguments, count, names):
    """The values that a plan reads from outside, each with the element that it starts at."""
    context = get(function, FUNCTION_CONTEXT)
    sources, given = get(arguments, 0), get(arguments, 8)
    found = new_list(length(sources))
    if found == 0:
        return 0
    for k in range(length(sources)):
        source = item(sources, k)
        value = value_of(context, source, given)
        if value == 0:
            drop(found)
            return new_result(item(context, TWIN), arguments, count, names)
        offset = own(item(source, START))
        argument = word_of(item(source, ARGUMENT))
        if argument >= 0:
            start = word_of(offset) + word_of(get(list_item(given, argument), TENSOR_OFFSET))
            drop(offset)
            offset = new_word(start)
        pair = new_pair(own(value), offset)
        if pair == 0:
            drop(found)
            return 0
        put_list_item(found, k, pair)
    return found


@helper
def value_of(context, source, given):
    """The value of a source, 0 if this is not the usual case."""
    shared = item(context, SHARED)
    none = item(shared, NONE)
    value, cells = item(source, CONSTANT), item(source, CELLS)
    for k in range(length(cells)):
        cell = find_cell(none, item(cells, k), given)
        held = none if cell == none else get(cell, STORAGE_VALUE)
        if held == none or (value != none and held != value):
            return 0
        value = held
    if get(value, NODE_RECIPE) != none:
        return 0
    if item(source, OWNED) == item(shared, TRUE) and (
        count_of(value) != 1 or class_of(get(value, NODE_ADDRESS)) == item(context, FOREIGN)
    ):
        return 0
    return value


@helper
def find_cell(none, place, given):
    """A cell: always the same one, that of an argument, or that of a gradient; else None."""
    argument, meta, cell = word_of(item(place, 0)), item(place, 1), item(place, 2)
    if cell != none:
        return cell
    if meta == none:
        return get(list_item(given, argument), TENSOR_STORAGE)
    grad = gradient(none, argument, meta, given)
    return none if grad == none else get(grad, TENSOR_STORAGE)


@helper
def gradient(none, argument, meta, given):
    """The gradient of an argument, or else of the owner of a meta; None without one."""
    if argument >= 0:
        meta = get(list_item(given, argument), TENSOR_META)
    return none if meta == none else get(meta, META_GRAD)


# ----- what a replay leaves behind -----


def leave(function, arguments, count, names):
    """Tensors around some blocks, some of them gradients; other blocks become values of cells."""
    shared = item(get(function, FUNCTION_CONTEXT), SHARED)
    left, blocks = get(arguments, 0), get(arguments, 8)
    tensors, effects = item(left, TENSORS), item(left, EFFECTS)
    made = new_list(length(tensors))
    if made == 0:
        return 0
    for k in range(length(effects)):
        effect = item(effects, k)
        node = new_ready(shared, own(list_item(blocks, word_of(item(effect, 1)))))
        version = new_word(
            word_of(get(item(effect, 0), STORAGE_VERSION)) + word_of(item(effect, 2))
        )
        if node == 0 or version == 0:
            drop(node)
            drop(version)
            drop(made)
            return 0
        exchange(item(effect, 0), STORAGE_VALUE, node)
        exchange(item(effect, 0), STORAGE_VERSION, version)
    for k in range(length(item(left, CLEARED))):
        exchange(item(item(left, CLEARED), k), META_GRAD, own(item(shared, NONE)))
    for k in range(length(tensors)):
        wanted = item(tensors, k)
        node = new_ready(shared, own(list_item(blocks, word_of(item(wanted, 0)))))
        t = new_tensor(shared, node, item(wanted, 1))
        if t == 0:
            drop(made)
            return 0
        put_list_item(made, k, t)
        meta = item(wanted, 2)
        if meta != item(shared, NONE):
            exchange(meta, META_GRAD, own(t))
    return made
