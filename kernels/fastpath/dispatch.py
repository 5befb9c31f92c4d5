"""A batch on its way through `schedule/settle.py` and `schedule/dispatch.py`, compiled: which nodes are
wanted, the rows of words of those that run one by one, and what is left of them.
"""

from ..language.abi import helper
from ..runtime.runner import HEADER, STATUS_WORDS, THREADS
from .cpython import (
    BOUND,
    append,
    class_of,
    count_of,
    drop,
    drop_last_items,
    exchange,
    failed_with,
    forget_error,
    free,
    get,
    has_failed,
    item,
    length,
    list_item,
    new_list,
    new_memory,
    own,
    put,
    put_list_item,
    word_of,
)
from .pool import new_block
from .stream import notice_signals, run_stream

DISPATCH_ALLOCATE = DISPATCH_COPY = DISPATCH_EXCEPTION = DISPATCH_FALSE = BOUND
DISPATCH_FOREIGN = BOUND
DISPATCH_NONE = DISPATCH_NO_WRITE = DISPATCH_RECIPE_CLASS = BOUND
DISPATCH_TRUE = BOUND
FUNCTION_CONTEXT = BOUND
NODE_ADDRESS = NODE_INPUTS = NODE_OFFSETS = NODE_OTHERS = NODE_RECIPE = NODE_SCALARS = BOUND
RECIPE_ALIAS = RECIPE_CONSTANTS = RECIPE_FALLIBLE = RECIPE_HEAD = RECIPE_HERE = BOUND
RECIPE_ITEMSIZES = RECIPE_LARGE = RECIPE_NBYTES = RECIPE_OVER = RECIPE_PICK = BOUND
RECIPE_CAN_TAKE_FAST_PATH = BOUND
RECIPE_ROOM = RECIPE_SCRATCH = RECIPE_WANTS = RECIPE_WRITE = BOUND
WANTED_FREE = WANTED_SIZE = BOUND

WRITING = 8 * STATUS_WORDS  # offset of a word behind them: whether rows are being written
ROOM = 1 << 18  # bytes of results after which a stream runs


def drop_unwanted(function, arguments, count, names):
    """Keep the nodes that something beside the batch refers to; later nodes go first."""
    none = item(get(function, FUNCTION_CONTEXT), DISPATCH_NONE)
    batch = get(arguments, 0)
    nodes = length(batch)
    for at in range(nodes - 1, -1, -1):
        node = list_item(batch, at)
        if count_of(node) == 1:
            put_list_item(batch, at, own(none))
            drop(node)
    kept = 0
    for at in range(nodes):
        node, gap = list_item(batch, at), list_item(batch, kept)
        if node != none:  # they change places
            put_list_item(batch, at, gap)
            put_list_item(batch, kept, node)
            kept += 1
    drop_last_items(batch, kept)
    return own(none)


def forget(function, arguments, count, names):
    """Let nodes that have run forget how."""
    none = item(get(function, FUNCTION_CONTEXT), DISPATCH_NONE)
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


def run(function, arguments, count, names):
    """Run the nodes at the end of a batch, the last one first, up to one that is not usual, and take
    them off; whether the last one has found a bad value, which the status tells. It stays."""
    context = get(function, FUNCTION_CONTEXT)
    batch, walk, team = get(arguments, 0), word_of(get(arguments, 8)), word_of(get(arguments, 16))
    status = word_of(get(arguments, 24))
    stopped = -1
    while stopped < 0:
        before = length(batch)
        stopped = run_some(context, batch, walk, team, status)
        if has_failed() != 0:
            return 0
        if stopped < 0 and (length(batch) == 0 or length(batch) == before):
            break
    return own(item(context, DISPATCH_TRUE if stopped >= 0 else DISPATCH_FALSE))


@helper
def run_some(context, batch, walk, team, status):
    """Run as many nodes as one stream takes; the step that found a bad value, or -1.

    A node counts as done when its bytes are there, not before: other threads and handlers of signals look
    at it meanwhile. Until then the batch holds it, and what it reads is kept, so that no block that the
    stream touches can be in the pool, from which others take theirs.
    """
    nodes, words, can_fail = extent(context, batch, team)
    if get(status, WRITING) != 0:
        nodes = 0  # Python runs what is called for in between
    blocks = new_list(0) if nodes > 0 else 0
    memory = new_memory(8 * words) if blocks != 0 else 0
    if memory == 0:
        drop(blocks)
        return -1
    put(status, WRITING, 1)
    place = memory
    end_of_batch = length(batch)
    last = end_of_batch - nodes
    first = end_of_batch  # of those whose rows are written
    for at in range(end_of_batch - 1, last - 1, -1):
        node = list_item(batch, at)
        end = row_end(context, node, place, blocks, status)
        if end == 0:  # Python says what is wrong
            can_fail = False
            break
        place = end
        first = at
        if at > last and not let_inputs_go(context, node, blocks):
            can_fail = False
            break
    put(status, WRITING, 0)
    stopped = -1
    if place != memory:  # after an error too: nobody else runs these nodes
        for k in range(STATUS_WORDS):
            put(status, 8 * k, 0)
        stopped = run_stream(walk, memory, rows_in(memory, place), status if can_fail else 0, team)
    if can_fail and stopped >= 0:
        first += 1
    for at in range(first, end_of_batch):
        publish(list_item(batch, at), item(context, DISPATCH_NONE))
    notice_signals()
    take_off(context, batch, first)
    free(memory)
    drop(blocks)
    return stopped


@helper
def extent(context, batch, team):
    """How many nodes run in one stream, the words that they take, and whether the last one can fail."""
    nodes = words = size = 0
    can_fail = False
    for at in range(length(batch) - 1, -1, -1):
        node = list_item(batch, at)
        recipe = get(node, NODE_RECIPE)
        if can_fail or size >= ROOM or not can_take_fast_path(context, recipe, team):
            break
        words += word_of(get(recipe, RECIPE_ROOM))
        if get(recipe, RECIPE_ALIAS) != item(context, DISPATCH_NONE):
            words += word_of(get(get(recipe, RECIPE_ALIAS), RECIPE_ROOM))
        size += word_of(get(recipe, RECIPE_NBYTES))
        can_fail = get(recipe, RECIPE_FALLIBLE) != item(context, DISPATCH_NONE)
        nodes += 1
    return nodes, words, can_fail


@helper
def can_take_fast_path(context, recipe, team):
    """Whether a node is recorded, its kernels are linked, and the threads that it asks for are there."""
    if class_of(recipe) != item(context, DISPATCH_RECIPE_CLASS):
        return False
    if not is_linked(context, recipe) and word_of(get(recipe, RECIPE_PICK)) < 0:
        return False
    return get(recipe, RECIPE_LARGE) != item(context, DISPATCH_TRUE) or get(team, 8 * THREADS) != 0


@helper
def is_linked(context, recipe):
    """Whether the kernels of a recipe are linked, or those of the one that writes over its input."""
    if length(get(recipe, RECIPE_HEAD)) != 0:
        return True
    alias = get(recipe, RECIPE_ALIAS)
    return alias != item(context, DISPATCH_NONE) and length(get(alias, RECIPE_HEAD)) != 0


@helper
def let_inputs_go(context, node, blocks):
    """Let a node whose row is written forget what it reads, but for its memory; whether that went well.

    What nobody else holds can then be written over by the next rows.
    """
    none = item(context, DISPATCH_NONE)
    inputs = get(node, NODE_INPUTS)
    well = True
    for k in range(length(inputs)):
        value = item(inputs, k)
        if get(value, NODE_RECIPE) == none:  # else the batch holds it
            well &= append(blocks, get(value, NODE_ADDRESS)) == 0
    if well:
        exchange(node, NODE_INPUTS, own(none))
    return well


@helper
def publish(node, none):
    """Tell everybody that the bytes of a node are there."""
    exchange(node, NODE_RECIPE, own(none))


@helper
def take_off(context, batch, first):
    """Take nodes that have run off the end of a batch, from one on."""
    for at in range(length(batch) - 1, first - 1, -1):
        exchange(list_item(batch, at), NODE_INPUTS, own(item(context, DISPATCH_NONE)))
    drop_last_items(batch, first)


@helper
def rows_in(place, end):
    """The number of rows in a part of the memory."""
    rows = 0
    while place < end:
        place += 8 * (HEADER + get(place, 8 * (HEADER - 1)))
        rows += 1
    return rows


@helper
def row_end(context, node, place, blocks, status):
    """Write the rows of a node, which has its memory then; where they end, 0 if that went wrong."""
    recipe, none = get(node, NODE_RECIPE), item(context, DISPATCH_NONE)
    end = 0
    if are_ready(context, node):
        if (
            get(recipe, RECIPE_CAN_TAKE_FAST_PATH) == item(context, DISPATCH_TRUE)
            and get(node, NODE_OFFSETS) == none
        ):
            end = plain_end(context, node, recipe, place)
        elif word_of(get(recipe, RECIPE_PICK)) >= 0:
            end = picked(node, recipe, place)
        elif get(recipe, RECIPE_WRITE) != item(context, DISPATCH_NO_WRITE):
            end = write_end(context, node, recipe, place)
        else:
            end = special_end(context, node, recipe, place, blocks, status)
    if end == 0 and has_failed() != 0 and failed_with(item(context, DISPATCH_EXCEPTION)) != 0:
        forget_error()  # Python meets it again; anything else, as Ctrl-C, goes through
    return end


@helper
def are_ready(context, node):
    """Whether all that a node reads is there, or will be when its row is reached."""
    inputs = get(node, NODE_INPUTS)
    ready = True
    for k in range(length(inputs)):
        value = item(inputs, k)
        ready &= get(value, NODE_RECIPE) == item(context, DISPATCH_NONE) or is_in_stream(
            context, value
        )
    return ready


@helper
def is_in_stream(context, value):
    """Whether the row of a node that is not done is written. Only then it is without inputs: one that has
    failed has another class of recipe."""
    none = item(context, DISPATCH_NONE)
    return (
        class_of(get(value, NODE_RECIPE)) == item(context, DISPATCH_RECIPE_CLASS)
        and get(value, NODE_INPUTS) == none
    )


@helper
def new_wanted(context, recipe, k):
    """Memory for result `k`, or what follows the results. 0 if there is none."""
    wanted = item(get(recipe, RECIPE_WANTS), k)
    return new_block(
        item(wanted, WANTED_FREE),
        item(wanted, WANTED_SIZE),
        item(context, DISPATCH_NONE),
        item(context, DISPATCH_ALLOCATE),
    )


@helper
def have(node, block):
    """Let a node have its memory."""
    exchange(node, NODE_ADDRESS, block)


@helper
def plain_end(context, node, recipe, place):
    """Write the row of a node of one step, on whole values."""
    block = new_wanted(context, recipe, 0)
    if block == 0:
        return 0
    inputs = get(node, NODE_INPUTS)
    place = write_words(get(recipe, RECIPE_HEAD), place)
    for k in range(length(inputs)):
        put(place, 0, word_of(get(item(inputs, k), NODE_ADDRESS)))
        place += 8
    put(place, 0, word_of(block))
    place = write_words(get(recipe, RECIPE_CONSTANTS), place + 8)
    have(node, block)
    return write_words(get(node, NODE_SCALARS), place)


@helper
def picked(node, recipe, place):
    """No row: a node that is one of the results of another."""
    given = item(get(node, NODE_INPUTS), 0)
    have(node, own(list_item(get(given, NODE_OTHERS), word_of(get(recipe, RECIPE_PICK)))))
    return place


@helper
def address_of(context, node, recipe, k):
    """Where what a node reads begins."""
    offsets = get(node, NODE_OFFSETS)
    address = word_of(get(item(get(node, NODE_INPUTS), k), NODE_ADDRESS))
    if offsets != item(context, DISPATCH_NONE):
        address += word_of(item(offsets, k)) * word_of(item(get(recipe, RECIPE_ITEMSIZES), k))
    return address


@helper
def is_free(context, value):
    """Whether only the node that reads a value holds it, so that its memory may be written. A node of the same
    stream is held by the batch too."""
    holders = 1 if get(value, NODE_RECIPE) == item(context, DISPATCH_NONE) else 2
    return count_of(value) == holders and class_of(get(value, NODE_ADDRESS)) != item(
        context, DISPATCH_FOREIGN
    )


@helper
def write_end(context, node, recipe, place):
    """Write the row that copies into a part of an old value, in front of it one that copies all of that
    where somebody else looks."""
    target, source = address_of(context, node, recipe, 0), address_of(context, node, recipe, 1)
    given, head = item(get(node, NODE_INPUTS), 0), get(recipe, RECIPE_HEAD)
    block = get(given, NODE_ADDRESS)
    if get(recipe, RECIPE_WRITE) == item(context, DISPATCH_COPY) and not is_free(context, given):
        if length(head) == HEADER:  # the kernel that copies is not linked
            return 0
        fresh = new_wanted(context, recipe, 0)
        if fresh == 0:
            return 0
        for k in range(HEADER):
            put(place, 8 * k, word_of(item(head, HEADER + k)))
        put(place, 8 * HEADER, word_of(block))
        put(place, 8 * HEADER + 8, word_of(fresh))
        place += 8 * (HEADER + 2)
        target += word_of(fresh) - word_of(block)
        block = fresh
    else:
        own(block)
    for k in range(HEADER):
        put(place, 8 * k, word_of(item(head, k)))
    put(place, 8 * HEADER, source)
    put(place, 8 * HEADER + 8, target)
    have(node, block)
    return write_words(get(recipe, RECIPE_CONSTANTS), place + 8 * (HEADER + 2))


@helper
def special_end(context, node, recipe, place, blocks, status):
    """Write the rows of a node with several steps or results, with scratch memory, that can fail, that
    reads a part of a value or may write over one."""
    none, inputs = item(context, DISPATCH_NONE), get(node, NODE_INPUTS)
    alias, over = get(recipe, RECIPE_ALIAS), word_of(get(recipe, RECIPE_OVER))
    here = get(recipe, RECIPE_HERE)
    offsets = get(node, NODE_OFFSETS)
    may_alias = alias != none and (offsets == none or word_of(item(offsets, 0)) == 0)
    if may_alias and may_take(context, item(inputs, 0), here, 0):
        recipe, over = alias, 1
    if length(get(recipe, RECIPE_HEAD)) == 0:  # this variant is not linked
        return 0
    memory = results_of(context, inputs, recipe, over, here)
    if memory == 0:
        return 0
    head = get(recipe, RECIPE_HEAD)
    row = place + 8 * HEADER
    end = row
    for k in range(length(inputs)):
        put(end, 0, address_of(context, node, recipe, k))
        end += 8
    for k in range(length(memory)):
        put(end, 0, word_of(list_item(memory, k)))
        end += 8
    if word_of(get(recipe, RECIPE_SCRATCH)) != 0:
        spare = new_wanted(context, recipe, length(memory))
        if spare == 0 or append(blocks, spare) != 0:
            drop(spare)
            drop(memory)
            return 0
        put(end, 0, word_of(spare))
        end += 8
        drop(spare)  # it is among the blocks
    if get(recipe, RECIPE_FALLIBLE) != none:
        put(end, 0, status)
        end += 8
    end = write_words(get(recipe, RECIPE_CONSTANTS), end)
    end = write_words(get(node, NODE_SCALARS), end)
    end = repeated(head, place, end)
    have(node, own(list_item(memory, 0)))
    if length(memory) == 1:
        drop(memory)
    else:
        exchange(node, NODE_OTHERS, memory)
    return end


@helper
def may_take(context, value, here, k):
    """Whether result `k` may be written over a value: nobody else looks, or they are to see it."""
    if k < length(here) and item(here, k) == item(context, DISPATCH_TRUE):
        return True
    return is_free(context, value)


@helper
def results_of(context, inputs, recipe, over, here):
    """Memory for results: that of old values which nobody else looks at, else new; 0 if there is none."""
    results = length(get(recipe, RECIPE_WANTS)) - int(word_of(get(recipe, RECIPE_SCRATCH)) != 0)
    memory = new_list(results)
    for k in range(results if memory != 0 else 0):
        if k < over and may_take(context, item(inputs, k), here, k):
            block = own(get(item(inputs, k), NODE_ADDRESS))
        else:
            block = new_wanted(context, recipe, k)
        if block == 0:
            drop(memory)
            return 0
        put_list_item(memory, k, block)
    return memory


@helper
def repeated(head, place, end):
    """Write the heads of rows of several steps, and the words of the first row behind each; where they
    end."""
    words = (end - place) // 8 - HEADER
    first = place
    for step in range(length(head) // HEADER):
        for k in range(HEADER):
            put(place, 8 * k, word_of(item(head, HEADER * step + k)))
        for k in range(words if step > 0 else 0):
            put(place, 8 * (HEADER + k), get(first, 8 * (HEADER + k)))
        place += 8 * (HEADER + words)
    return place


@helper
def write_words(numbers, place):
    """Write a tuple of numbers; where they end."""
    for k in range(length(numbers)):
        put(place, 8 * k, word_of(item(numbers, k)))
    return place + 8 * length(numbers)
