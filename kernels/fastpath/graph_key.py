"""The structure of a batch of recorded nodes, compiled: `schedule/graph_key.py` on the same objects."""

from ..language.abi import helper
from .cpython import (
    BOUND,
    class_of,
    count_of,
    drop,
    exchange,
    free,
    get,
    has_failed,
    item,
    length,
    list_item,
    new_bytes,
    new_list,
    new_memory,
    new_pair,
    new_result,
    new_word,
    own,
    put,
    put_list_item,
    word_of,
)

FUNCTION_CONTEXT = BOUND
KEY_COPY = KEY_FOREIGN = KEY_NONE = KEY_NO_WRITE = KEY_RECIPE_CLASS = KEY_FALLBACK = BOUND
NODE_ADDRESS = NODE_AT = NODE_INPUTS = NODE_OFFSETS = NODE_RECIPE = BOUND
RECIPE_ALIAS = RECIPE_OVER = RECIPE_SERIAL = RECIPE_WRITE = BOUND

# Words that are known of an external.
VALUE, OFFSET, USES, ENTRIES, REPLACED = range(5)
EXTERNAL_WORDS = 5


def read(function, arguments, count, names):
    """The key of a batch, and its externals, as a pair."""
    context = get(function, FUNCTION_CONTEXT)
    batch = get(arguments, 0)
    nodes = length(batch)
    reads = 0
    for at in range(nodes):
        node = list_item(batch, at)
        if class_of(get(node, NODE_RECIPE)) != item(context, KEY_RECIPE_CLASS):
            return new_result(item(context, KEY_FALLBACK), arguments, count, names)
        reads += length(get(node, NODE_INPUTS))
    # The key at its longest, the uses of each node, what is known of the externals.
    longest = nodes + 2 * reads + nodes + reads + 2
    memory = new_memory(8 * (longest + nodes + EXTERNAL_WORDS * reads))
    if memory == 0:
        return new_result(item(context, KEY_FALLBACK), arguments, count, names)
    uses = memory + 8 * longest
    externals = uses + 8 * nodes
    for at in range(nodes):
        node = list_item(batch, at)
        number(node, at)
        put(uses, 8 * at, 0)
    first_output, found = walk(context, batch, nodes, memory, uses, externals)
    first_donated = hold(batch, nodes, uses, first_output)
    end = own_up(context, externals, found, first_donated)
    put(end, 0, (first_donated - first_output) // 8)
    put(end, 8, (end - first_donated) // 8)
    key = new_bytes(memory, end + 16 - memory)
    values = new_externals(externals, found)
    free(memory)
    made = new_pair(key, values)
    if made != 0 and has_failed() != 0:
        drop(made)
        return 0
    return made


@helper
def number(node, at):
    """Let a node remember a number."""
    exchange(node, NODE_AT, new_word(at))


@helper
def walk(context, batch, nodes, place, uses, externals):
    """Write what the nodes tell; where that ends, and the number of externals."""
    none = item(context, KEY_NONE)
    found = 0
    for at in range(nodes):
        node = list_item(batch, at)
        recipe, inputs, offsets = (
            get(node, NODE_RECIPE),
            get(node, NODE_INPUTS),
            get(node, NODE_OFFSETS),
        )
        write = get(recipe, RECIPE_WRITE)
        over = written_over(context, recipe)
        put(place, 0, word_of(get(recipe, RECIPE_SERIAL)))
        place += 8
        for k in range(length(inputs)):
            value = item(inputs, k)
            offset = 0 if offsets == none else word_of(item(offsets, k))
            if get(value, NODE_RECIPE) != none:
                where = word_of(get(value, NODE_AT))
                put(uses, 8 * where, get(uses, 8 * where) + 1)
            else:
                fixed = offset if k == 0 and write != item(context, KEY_NO_WRITE) else 0
                position, found = external(value, offset - fixed, externals, found)
                entry = externals + 8 * EXTERNAL_WORDS * position
                put(
                    entry,
                    8 * REPLACED,
                    get(entry, 8 * REPLACED) | int(offset == fixed and k < over),
                )
                where, offset = ~position, fixed
            put(place, 0, 2 * where + int(offset != 0))
            place += 8
            if offset != 0:
                put(place, 0, offset)
                place += 8
    return place, found


@helper
def written_over(context, recipe):
    """How many inputs, the first ones, a recipe writes over if nobody else looks at them."""
    over = word_of(get(recipe, RECIPE_OVER))
    if over == 0:
        copies = get(recipe, RECIPE_WRITE) == item(context, KEY_COPY)
        over = int(copies or get(recipe, RECIPE_ALIAS) != item(context, KEY_NONE))
    return over


@helper
def external(value, offset, externals, found):
    """The number of a value from outside that is read from an offset on, and how many there are.

    The value itself remembers the first of its numbers, where uses and entries are counted.
    """
    remembered = get(value, NODE_AT)
    first = word_of(remembered) if remembered != 0 else found
    if not 0 <= first < found or get(externals + 8 * EXTERNAL_WORDS * first, 8 * VALUE) != value:
        number(value, found)
        first = found
    position = first
    while position < found:
        entry = externals + 8 * EXTERNAL_WORDS * position
        if get(entry, 8 * VALUE) == value and get(entry, 8 * OFFSET) == offset:
            break
        position += 1
    if position == found:
        entry = externals + 8 * EXTERNAL_WORDS * position
        put(entry, 8 * VALUE, value)
        put(entry, 8 * OFFSET, offset)
        put(entry, 8 * USES, 0)
        put(entry, 8 * ENTRIES, 0)
        put(entry, 8 * REPLACED, 0)
        found += 1
        add_one(externals, first, ENTRIES)
    add_one(externals, first, USES)
    return position, found


@helper
def add_one(externals, position, word):
    """Count one up in what is known of an external."""
    entry = externals + 8 * EXTERNAL_WORDS * position
    put(entry, 8 * word, get(entry, 8 * word) + 1)


@helper
def hold(batch, nodes, uses, place):
    """Write the nodes that something beside the batch and its nodes refers to; where their list ends."""
    for at in range(nodes):
        if count_of(list_item(batch, at)) > 1 + get(uses, 8 * at):
            put(place, 0, at)
            place += 8
    return place


@helper
def own_up(context, externals, found, place):
    """Write the externals that are written over and that only their readers hold; where that ends."""
    for position in range(found):
        entry = externals + 8 * EXTERNAL_WORDS * position
        value = get(entry, 8 * VALUE)
        first = externals + 8 * EXTERNAL_WORDS * word_of(get(value, NODE_AT))
        if (
            get(entry, 8 * REPLACED)
            and count_of(value) <= get(first, 8 * USES)
            and class_of(get(value, NODE_ADDRESS)) != item(context, KEY_FOREIGN)
        ):
            put(place, 0, position)
            place += 8
            for other in range(found if get(first, 8 * ENTRIES) > 1 else 0):
                is_same = get(externals + 8 * EXTERNAL_WORDS * other, 8 * VALUE) == value
                if is_same and other != position:
                    put(place, 0, ~other)
                    place += 8
    return place


@helper
def new_externals(externals, found):
    """The values from outside, each with the offset that it is read from; 0 on failure."""
    values = new_list(found)
    if values == 0:
        return 0
    for position in range(found):
        entry = externals + 8 * EXTERNAL_WORDS * position
        pair = new_pair(own(get(entry, 8 * VALUE)), new_word(get(entry, 8 * OFFSET)))
        if pair == 0:
            drop(values)
            return 0
        put_list_item(values, position, pair)
    return values
