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
    has_failed,
    item,
    length,
    list_item,
    new_bytes,
    new_list,
    new_memory,
    new_tuple,
    new_word,
    own,
    put,
    put_list_item,
    replace_items,
    word_of,
)  # fmt: skip
from .runner import THREADS
from .stream import run_stream

# Where the slots of the classes lie; bound when the module is compiled.
NODE_RECIPE = NODE_INPUTS = NODE_OFFSETS = NODE_SCALARS = NODE_ADDRESS = FUNCTION_CONTEXT = BOUND
RECIPE_PLAIN = RECIPE_HEAD = RECIPE_FREE = RECIPE_SIZE = RECIPE_CONSTANTS = RECIPE_LARGE = BOUND
RECIPE_COUNT = BOUND

RECIPE, LARGE, FOREIGN, ALLOCATE, NONE, TRUE, FALSE = range(7)  # the context of `take` and `run`
HEADER = 4  # words of a row before its arguments
FEW = 64  # nodes that run at once
ROOM = 1 << 18  # bytes of results after which no other node is run, as `STREAM_BYTES`


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
        large |= int(get(recipe, RECIPE_LARGE) == item(context, TRUE))
        end = row_end(context, node, place, blocks)
        if end == 0:  # Python says what is wrong
            steps = done
            break
        place = end
        size += word_of(get(recipe, RECIPE_SIZE))
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
def row_end(context, node, place, blocks):
    """Write the row of a plain node, which has its memory then; where it ends, 0 if that went wrong."""
    recipe = get(node, NODE_RECIPE)
    block = new_memory_of(context, recipe) if are_ready(node, item(context, NONE)) else 0
    if block == 0 or not keep_blocks(context, node, block, blocks):
        forget_error()
        drop(block)
        return 0
    end = write_row(node, recipe, block, place)
    drop(get(node, NODE_ADDRESS))
    put(node, NODE_ADDRESS, block)
    return end


def run(function, arguments, count, names):
    """Run the nodes of a short batch that are plain, up to the first that is not, or finds the memory full;
    whether these were all. What has run is taken off the batch."""
    context = get(function, FUNCTION_CONTEXT)
    batch, walk, team = get(arguments, 0), word_of(get(arguments, 8)), word_of(get(arguments, 16))
    nodes = length(batch)
    words = steps = size = 0
    for at in range(nodes if nodes <= FEW else 0):
        node = list_item(batch, at)
        recipe = get(node, NODE_RECIPE)
        if size >= ROOM or not is_plain(context, node) or not can_run(context, recipe, team):
            break
        words += HEADER + word_of(get(recipe, RECIPE_COUNT))
        size += word_of(get(recipe, RECIPE_SIZE))
        steps += 1
    blocks = new_list(0) if steps > 0 else 0
    memory = new_memory(8 * words) if blocks != 0 else 0
    if memory == 0:
        drop(blocks)
        return 0 if has_failed() != 0 else own(item(context, FALSE))
    place = memory
    for at in range(steps):
        end = row_end(context, list_item(batch, at), place, blocks)
        if end == 0:
            steps = at
            break
        place = end
        finish(list_item(batch, at), item(context, NONE))
    run_stream(walk, memory, steps, 0, team)
    free(memory)
    drop(blocks)
    if replace_items(batch, 0, steps, 0) != 0:
        return 0
    return own(item(context, TRUE if steps == nodes else FALSE))


@helper
def can_run(context, recipe, team):
    """Whether the step is for one thread, or the others are there."""
    return get(recipe, RECIPE_LARGE) != item(context, TRUE) or get(team, 8 * THREADS) != 0


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
