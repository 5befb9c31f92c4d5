"""The memory of a run of a plan, compiled: what `schedule/plan.py` writes into its table of words."""

from .abi import helper
from .memory import new_block
from .objects import (
    BOUND,
    class_of,
    drop,
    free,
    get,
    has_failed,
    item,
    length,
    list_item,
    new_list,
    new_memory,
    new_result,
    own,
    put,
    put_list_item,
    word_of,
)  # fmt: skip

# Where the slots of the classes lie; bound when the module is compiled.
NODE_ADDRESS = FUNCTION_CONTEXT = BOUND

TWIN, ALLOCATE, FOREIGN, NONE, ZERO = range(5)  # the context
EXTERNALS, BLOCKS, _, _, WORDS_AT, PLACES_AT, PLACES, _, NUMBERS_AT, NUMBERS = range(
    10
)  # of a table
ELEMENT, PADDED = range(2)  # of an external
TAKEN, SIZE, FREE = range(3)  # of a block


def fill_in(function, arguments, count, names):
    """Blocks for the held values; all addresses of a run are written into the table."""
    context = get(function, FUNCTION_CONTEXT)
    table, externals = get(arguments, 0), get(arguments, 8)
    described, wanted = item(table, EXTERNALS), item(table, BLOCKS)
    outside, held = length(described), length(wanted)
    addresses = new_memory(8 * (outside + held))
    if addresses == 0:
        return new_result(item(context, TWIN), arguments, count, names)
    for k in range(outside):
        value, offset = block_and_offset(externals, k)
        padded = item(item(described, k), PADDED) != item(context, ZERO)
        if padded and (offset != 0 or class_of(value) == item(context, FOREIGN)):
            free(addresses)
            return new_result(item(context, TWIN), arguments, count, names)
        size = word_of(item(item(described, k), ELEMENT))
        put(addresses, 8 * k, word_of(value) + offset * size)
    blocks = new_list(held)
    for k in range(held):
        block = new_held(context, item(wanted, k), externals) if blocks != 0 else 0
        if block == 0:
            free(addresses)
            drop(blocks)
            return 0
        put_list_item(blocks, k, block)
        put(addresses, 8 * (outside + k), word_of(block))
    words, place = word_of(item(table, WORDS_AT)), word_of(item(table, PLACES_AT))
    for _ in range(word_of(item(table, PLACES))):
        address = get(addresses, 8 * get(place, 8)) + get(place, 16)
        put(words, 8 * get(place, 0), address)
        place += 24
    free(addresses)
    return blocks


def write_numbers(function, arguments, count, names):
    """Write the Python numbers of a run into the table."""
    twin, none = item(get(function, FUNCTION_CONTEXT), 0), item(get(function, FUNCTION_CONTEXT), 1)
    table, given = get(arguments, 0), get(arguments, 8)
    total = 0
    for k in range(length(given)):
        total += length(list_item(given, k))
    numbers = new_memory(8 * total)
    if numbers == 0:
        return new_result(twin, arguments, count, names)
    at = numbers
    for k in range(length(given)):
        for i in range(length(list_item(given, k))):
            put(at, 0, word_of(item(list_item(given, k), i)))
            at += 8
    words, place = word_of(item(table, WORDS_AT)), word_of(item(table, NUMBERS_AT))
    for _ in range(word_of(item(table, NUMBERS)) if has_failed() == 0 else 0):
        put(words, 8 * get(place, 0), get(numbers, 8 * get(place, 8)))
        place += 16
    free(numbers)
    return 0 if has_failed() != 0 else own(none)


@helper
def block_and_offset(externals, k):
    """The block of a value from outside, and the element that is read first."""
    pair = list_item(externals, k)
    return get(item(pair, 0), NODE_ADDRESS), word_of(item(pair, 1))


@helper
def new_held(context, wanted, externals):
    """The block of a held value: that of a value from outside which it takes over, or a new one."""
    taken = word_of(item(wanted, TAKEN))
    if taken >= 0:
        return own(block_and_offset(externals, taken)[0])
    none = item(context, NONE)
    return new_block(item(wanted, FREE), item(wanted, SIZE), none, item(context, ALLOCATE))
