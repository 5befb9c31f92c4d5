"""A batch on its way through `schedule/settle.py` and `schedule/cold.py`, compiled: which nodes are
wanted, the rows of words of plain ones, and what is left of them.
"""

from .abi import helper
from .memory import new_block
from .objects import (
    BOUND,
    LENGTH,
    append,
    class_of,
    count_of,
    drop,
    fill,
    forget_error,
    free,
    get,
    item,
    length,
    list_item,
    new_bytes,
    new_memory,
    new_tuple,
    new_word,
    own,
    put,
    put_list_item,
    word_of,
)  # fmt: skip

# Where the slots of the classes lie; bound when the module is compiled.
NODE_RECIPE = NODE_INPUTS = NODE_OFFSETS = NODE_SCALARS = NODE_ADDRESS = FUNCTION_CONTEXT = BOUND
RECIPE_PLAIN = RECIPE_HEAD = RECIPE_FREE = RECIPE_SIZE = RECIPE_CONSTANTS = RECIPE_LARGE = BOUND
RECIPE_COUNT = BOUND

RECIPE, LARGE, FOREIGN, ALLOCATE, NONE, TRUE, FALSE = range(7)  # the context of `take`
HEADER = 4  # words of a row before its arguments


def drop_unwanted(function, arguments, count, names):
    """Keep the nodes that something beside the batch refers to; later nodes go first."""
    none = item(get(function, FUNCTION_CONTEXT), 0)
    batch = get(arguments, 0)
    nodes = length(batch)
    for at in range(nodes - 1, -1, -1):
        node = list_item(batch, at)
        if count_of(node) == 1:
            put_list_item(batch, at, own(none))
            drop(node)
    kept = 0
    for at in range(nodes):
        node = list_item(batch, at)
        if node == none:
            drop(none)
        else:
            put_list_item(batch, kept, node)
            kept += 1
    put(batch, LENGTH, kept)
    return own(none)


def forget(function, arguments, count, names):
    """Let nodes that have run forget how."""
    none = item(get(function, FUNCTION_CONTEXT), 0)
    batch = get(arguments, 0)
    for at in range(length(batch)):
        finish(list_item(batch, at), none)
    return own(none)


@helper
def finish(node, none):
    """Let a node forget how it was to be run."""
    recipe, inputs = get(node, NODE_RECIPE), get(node, NODE_INPUTS)
    put(node, NODE_RECIPE, own(none))
    put(node, NODE_INPUTS, own(none))
    drop(recipe)
    drop(inputs)


def take(function, arguments, count, names):
    """The rows of the plain nodes at the end of a batch: bytes, how many, the bytes of their
    results, whether one is large.
    """
    context = get(function, FUNCTION_CONTEXT)
    none = item(context, NONE)
    batch, room, blocks = get(arguments, 0), word_of(get(arguments, 8)), get(arguments, 16)
    words = steps = size = 0
    for at in range(length(batch) - 1, -1, -1):
        node = list_item(batch, at)
        if size >= room or not is_plain(context, node):
            break
        words += HEADER + word_of(get(get(node, NODE_RECIPE), RECIPE_COUNT))
        size += word_of(get(get(node, NODE_RECIPE), RECIPE_SIZE))
        steps += 1
    if steps == 0:
        return own(none)
    memory = new_memory(8 * words)
    if memory == 0:
        return own(none)
    place, large, size = memory, 0, 0
    for done in range(steps):
        at = length(batch) - 1
        node = list_item(batch, at)
        recipe = get(node, NODE_RECIPE)
        block = new_memory_of(context, recipe) if are_ready(node, none) else 0
        if block == 0:  # Python says what is wrong
            forget_error()
            steps = done
            break
        large |= int(get(recipe, RECIPE_LARGE) == item(context, TRUE))
        if not keep_blocks(context, node, block, blocks):
            forget_error()
            drop(block)
            steps = done
            break
        place = write_row(node, recipe, block, place)
        size += word_of(get(recipe, RECIPE_SIZE))
        drop(get(node, NODE_ADDRESS))
        put(node, NODE_ADDRESS, block)
        put(batch, LENGTH, at)
        finish(node, none)
        drop(node)
    made = new_tuple(4)
    rows = new_bytes(memory, place - memory)
    free(memory)
    if made == 0 or rows == 0:
        drop(made)
        drop(rows)
        return 0
    fill(made, 0, rows)
    fill(made, 1, new_word(steps))
    fill(made, 2, new_word(size))
    fill(made, 3, own(item(context, TRUE if large else FALSE)))
    return made


@helper
def is_plain(context, node):
    """Whether a node is one step, on whole values, by a kernel that is linked."""
    recipe = get(node, NODE_RECIPE)
    return (
        class_of(recipe) == item(context, RECIPE)
        and get(recipe, RECIPE_PLAIN) == item(context, TRUE)
        and get(node, NODE_OFFSETS) == item(context, NONE)
        and length(get(recipe, RECIPE_HEAD)) == HEADER
    )


@helper
def are_ready(node, none):
    """Whether all that a node reads is there."""
    inputs = get(node, NODE_INPUTS)
    ready = True
    for k in range(length(inputs)):
        ready &= get(item(inputs, k), NODE_RECIPE) == none
    return ready


@helper
def new_memory_of(context, recipe):
    """Memory for the result of a plain node."""
    free_blocks, size = get(recipe, RECIPE_FREE), get(recipe, RECIPE_SIZE)
    return new_block(free_blocks, size, item(context, NONE), item(context, ALLOCATE))


@helper
def keep_blocks(context, node, block, blocks):
    """Keep what a row is about to read and write; whether that went well."""
    inputs = get(node, NODE_INPUTS)
    well = keep_block(context, block, blocks)
    for k in range(length(inputs)):
        well &= keep_block(context, get(item(inputs, k), NODE_ADDRESS), blocks)
    return well


@helper
def keep_block(context, block, blocks):
    """Keep a block that could go back to the system; small ones never do."""
    if class_of(block) != item(context, LARGE) and class_of(block) != item(context, FOREIGN):
        return True
    return append(blocks, block) == 0


@helper
def write_row(node, recipe, block, place):
    """Write the row of a plain node; where it ends."""
    inputs = get(node, NODE_INPUTS)
    place = write_words(get(recipe, RECIPE_HEAD), place)
    for k in range(length(inputs)):
        put(place, 0, word_of(get(item(inputs, k), NODE_ADDRESS)))
        place += 8
    put(place, 0, word_of(block))
    place = write_words(get(recipe, RECIPE_CONSTANTS), place + 8)
    return write_words(get(node, NODE_SCALARS), place)


@helper
def write_words(numbers, place):
    """Write a tuple of numbers; where they end."""
    for k in range(length(numbers)):
        put(place, 8 * k, word_of(item(numbers, k)))
    return place + 8 * length(numbers)
