"""A run of a plan, compiled: the memory that `schedule/planning/plan.py` writes into its table of words,
and the whole of it, for plans of small steps.
"""

from ..language.abi import helper
from ..runtime.runner import THREADS
from .cpython import (
    BOUND,
    class_of,
    drop,
    drop_last_items,
    exchange,
    free,
    get,
    has_failed,
    item,
    length,
    list_item,
    new_list,
    new_memory,
    new_result,
    new_word,
    own,
    put,
    put_list_item,
    word_of,
)
from .dispatch import finish
from .pool import new_block
from .stream import notice_signals, run_stream

BLOCK_FREE = BLOCK_SIZE = BLOCK_TAKEN = BOUND
RUN_CAN_FAIL = RUN_LARGE = RUN_NUMBERED = RUN_RESULTS = RUN_STATUS_AT = BOUND
RUN_STEPS = RUN_TABLE = RUN_TEAM = RUN_WALK = BOUND
EXTERNAL_PADDED = EXTERNAL_SIZE = FUNCTION_CONTEXT = BOUND
NODE_ADDRESS = NODE_OTHERS = NODE_SCALARS = NUMBER_POSITION = NUMBER_WHICH = BOUND
NUMBER_WORDS = BOUND
PLACE_EXTRA = PLACE_POSITION = PLACE_SOURCE = PLACE_WORDS = BOUND
PLAN_ALLOCATE = PLAN_FALSE = PLAN_FOREIGN = PLAN_NONE = PLAN_TRUE = PLAN_FALLBACK = BOUND
PLAN_ZERO = BOUND
RESULT_BLOCKS = RESULT_NODE = BOUND
TABLE_BLOCKS = TABLE_EXTERNALS = TABLE_NUMBERS_AT = TABLE_NUMBERS_COUNT = BOUND
TABLE_PLACES_AT = BOUND
TABLE_PLACES_COUNT = TABLE_WORDS_AT = BOUND


def fill_in(function, arguments, count, names):
    """Blocks for the held values; all addresses of a run are written into the table."""
    context = get(function, FUNCTION_CONTEXT)
    blocks = new_blocks(context, get(arguments, 0), get(arguments, 8))
    if blocks != 0 or has_failed() != 0:
        return blocks
    return new_result(item(context, PLAN_FALLBACK), arguments, count, names)


@helper
def new_blocks(context, table, externals):
    """Blocks for the held values, in the table like the addresses of the externals; 0 if this is not
    the usual case."""
    described, wanted = item(table, TABLE_EXTERNALS), item(table, TABLE_BLOCKS)
    outside, held = length(described), length(wanted)
    addresses = new_memory(8 * (outside + held))
    if addresses == 0:
        return 0
    for k in range(outside):
        value, offset = block_and_offset(externals, k)
        padded = item(item(described, k), EXTERNAL_PADDED) != item(context, PLAN_ZERO)
        if padded and (offset != 0 or class_of(value) == item(context, PLAN_FOREIGN)):
            free(addresses)
            return 0
        size = word_of(item(item(described, k), EXTERNAL_SIZE))
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
    words, place = word_of(item(table, TABLE_WORDS_AT)), word_of(item(table, TABLE_PLACES_AT))
    for _ in range(word_of(item(table, TABLE_PLACES_COUNT))):
        source = get(addresses, 8 * get(place, 8 * PLACE_SOURCE))
        put(words, 8 * get(place, 8 * PLACE_POSITION), source + get(place, 8 * PLACE_EXTRA))
        place += 8 * PLACE_WORDS
    free(addresses)
    return blocks


def write_numbers(function, arguments, count, names):
    """Write the Python numbers of a run into the table."""
    context = get(function, FUNCTION_CONTEXT)
    if are_written(get(arguments, 0), get(arguments, 8)):
        return own(item(context, PLAN_NONE))
    return (
        0
        if has_failed() != 0
        else new_result(item(context, PLAN_FALLBACK), arguments, count, names)
    )


@helper
def are_written(table, given):
    """Write numbers, tuples in a list, into the table; whether that went well."""
    total = 0
    for k in range(length(given)):
        total += length(list_item(given, k))
    numbers = new_memory(8 * total)
    if numbers == 0:
        return False
    at = numbers
    for k in range(length(given)):
        for i in range(length(list_item(given, k))):
            put(at, 0, word_of(item(list_item(given, k), i)))
            at += 8
    is_well = has_failed() == 0
    words, place = word_of(item(table, TABLE_WORDS_AT)), word_of(item(table, TABLE_NUMBERS_AT))
    for _ in range(word_of(item(table, TABLE_NUMBERS_COUNT)) if is_well else 0):
        word = get(numbers, 8 * get(place, 8 * NUMBER_WHICH))
        put(words, 8 * get(place, 8 * NUMBER_POSITION), word)
        place += 8 * NUMBER_WORDS
    free(numbers)
    return is_well


@helper
def block_and_offset(externals, k):
    """The block of a value from outside, and the element that is read first."""
    pair = list_item(externals, k)
    return get(item(pair, 0), NODE_ADDRESS), word_of(item(pair, 1))


@helper
def new_held(context, wanted, externals):
    """The block of a held value: that of a value from outside which it takes over, or a new one."""
    taken = word_of(item(wanted, BLOCK_TAKEN))
    if taken >= 0:
        return own(block_and_offset(externals, taken)[0])
    none = item(context, PLAN_NONE)
    return new_block(
        item(wanted, BLOCK_FREE), item(wanted, BLOCK_SIZE), none, item(context, PLAN_ALLOCATE)
    )


def run(function, arguments, count, names):
    """Run a plan on a batch that reads some externals: True, or the step that failed; False if it has not
    run, as it is not the usual case."""
    context = get(function, FUNCTION_CONTEXT)
    compiled_run, externals, batch = get(arguments, 0), get(arguments, 8), get(arguments, 16)
    table, status = item(compiled_run, RUN_TABLE), word_of(item(compiled_run, RUN_STATUS_AT))
    team = word_of(item(compiled_run, RUN_TEAM))
    if item(compiled_run, RUN_LARGE) == item(context, PLAN_TRUE) and get(team, 8 * THREADS) == 0:
        return own(item(context, PLAN_FALSE))  # the threads are not there yet
    blocks = new_blocks(context, table, externals)
    if blocks == 0 or not are_numbers_written(batch, table, item(compiled_run, RUN_NUMBERED)):
        drop(blocks)
        return 0 if has_failed() != 0 else own(item(context, PLAN_FALSE))
    put(status, 0, 0)
    walk, stream = word_of(item(compiled_run, RUN_WALK)), word_of(item(table, TABLE_WORDS_AT))
    steps = word_of(item(compiled_run, RUN_STEPS))
    where = status if item(compiled_run, RUN_CAN_FAIL) == item(context, PLAN_TRUE) else 0
    stopped = run_stream(walk, stream, steps, where, team)
    notice_signals()
    if stopped >= 0:
        drop(blocks)
        return new_word(stopped)
    done = handed_out(context, batch, item(compiled_run, RUN_RESULTS), blocks)
    if done != 0 and has_failed() != 0:  # Ctrl-C
        drop(done)
        return 0
    return done


@helper
def are_numbers_written(batch, table, numbered):
    """Write the Python numbers of some nodes into the table; whether that went well."""
    count = length(numbered)
    if count == 0:
        return True
    given = new_list(count)
    if given == 0:
        return False
    for k in range(count):
        node = list_item(batch, word_of(item(numbered, k)))
        put_list_item(given, k, own(get(node, NODE_SCALARS)))
    is_well = are_written(table, given)
    drop(given)
    return is_well


@helper
def handed_out(context, batch, results, blocks):
    """True, when the nodes that somebody holds have their memory, and the batch is done with."""
    for k in range(length(results)):
        result = item(results, k)
        node, numbers = (
            list_item(batch, word_of(item(result, RESULT_NODE))),
            item(result, RESULT_BLOCKS),
        )
        if length(numbers) > 1:
            others = new_list(length(numbers))
            if others == 0:
                drop(blocks)
                return 0
            for i in range(length(numbers)):
                put_list_item(others, i, own(list_item(blocks, word_of(item(numbers, i)))))
            exchange(node, NODE_OTHERS, others)
        exchange(node, NODE_ADDRESS, own(list_item(blocks, word_of(item(numbers, 0)))))
    drop(blocks)
    none = item(context, PLAN_NONE)
    for at in range(length(batch)):
        finish(list_item(batch, at), none)
    drop_last_items(batch, 0)
    return own(item(context, PLAN_TRUE))
