"""Settling, compiled: `schedule/settle.py` where nothing out of the ordinary is going on.

What runs the nodes is called as any function of the interpreter is; these, too, are compiled.
"""

from ..language.abi import helper, stack_words
from .cpython import (
    BOUND,
    drop,
    find,
    forget,
    get,
    has_failed,
    item,
    length,
    list_item,
    new_part,
    new_result,
    new_result_of_nothing,
    own,
    put,
    put_error_back,
    remember,
    replace_items,
    set_length,
    take_error,
)

ENTRY_COMPILED_RUN = FUNCTION_CONTEXT = GLOBAL_MODULE = GLOBAL_NAME = GLOBAL_USUAL = BOUND
NODE_INPUTS = NODE_RECIPE = BOUND
SCHEDULER_ACQUIRE = SCHEDULER_DROP_UNWANTED = SCHEDULER_ENTRIES = SCHEDULER_FALSE = BOUND
SCHEDULER_FLAGS = SCHEDULER_FRESH = SCHEDULER_LISTS = SCHEDULER_NONE = SCHEDULER_PLACES = BOUND
SCHEDULER_RAISE_BAD_VALUE = SCHEDULER_RAISE_STOPPED = SCHEDULER_READ_BATCH = BOUND
SCHEDULER_RELEASE = SCHEDULER_RUN = SCHEDULER_RUN_COMPILED = BOUND
SCHEDULER_RUN_READ = SCHEDULER_RUN_ROWS = BOUND
SCHEDULER_SETS = SCHEDULER_SETTLE = SCHEDULER_PENDING = BOUND
SCHEDULER_TRUE = SCHEDULER_ZERO = BOUND
SETTLE_SCHEDULER = SETTLE_FALLBACK = STORAGE_VALUE = BOUND


def settle(function, arguments, count, names):
    """Run what is recorded and still wanted."""
    context = get(function, FUNCTION_CONTEXT)
    scheduler = item(context, SETTLE_SCHEDULER)
    if (
        names != 0
        or length(item(scheduler, SCHEDULER_PLACES)) == 0
        or not can_take_fast_path(scheduler)
    ):
        return new_result(item(context, SETTLE_FALLBACK), arguments, count, names)
    none = item(scheduler, SCHEDULER_NONE)
    entered = new_result_of_nothing(item(scheduler, SCHEDULER_ACQUIRE))
    if entered == 0:
        return 0
    drop(entered)
    if can_take_fast_path(scheduler):
        done = int(run_pending(scheduler))
    else:  # by what another thread did meanwhile
        done = new_result(item(context, SETTLE_FALLBACK), arguments, count, names)
        drop(done)
    leave(scheduler)
    return own(none) if done != 0 else 0


def value_of(function, arguments, count, names):
    """The value of a storage, settled."""
    context = get(function, FUNCTION_CONTEXT)
    scheduler = item(context, SETTLE_SCHEDULER)
    if can_take_fast_path(scheduler):
        value = get(get(arguments, 0), STORAGE_VALUE)
        if get(value, NODE_RECIPE) == item(scheduler, SCHEDULER_NONE):
            return own(value)
        own(value)
        settled = new_result_of_nothing(item(scheduler, SCHEDULER_SETTLE))
        drop(settled)
        if settled == 0:
            drop(value)
            return 0
        if get(value, NODE_RECIPE) == item(scheduler, SCHEDULER_NONE):
            return value
        drop(value)
    return new_result(item(context, SETTLE_FALLBACK), arguments, count, names)


@helper
def can_take_fast_path(scheduler):
    """Whether nothing waits but what is pending, nothing is captured or watched, and no GPU is used."""
    lists, sets, flags = (
        item(scheduler, SCHEDULER_LISTS),
        item(scheduler, SCHEDULER_SETS),
        item(scheduler, SCHEDULER_FLAGS),
    )
    can_be_fast = True
    for k in range(length(lists)):
        can_be_fast &= length(item(lists, k)) == 0
    for k in range(length(sets)):
        can_be_fast &= set_length(item(sets, k)) == 0
    for k in range(length(flags)):
        flag = item(flags, k)
        can_be_fast &= find(item(flag, GLOBAL_MODULE), item(flag, GLOBAL_NAME)) == item(
            flag, GLOBAL_USUAL
        )
    return can_be_fast


@helper
def leave(scheduler):
    """Give the lock back; what was raised meanwhile goes on."""
    error = stack_words(3)
    take_error(error, error + 8, error + 16)
    drop(new_result_of_nothing(item(scheduler, SCHEDULER_RELEASE)))
    put_error_back(get(error, 0), get(error, 8), get(error, 16))


@helper
def run_pending(scheduler):
    """Run what is in `pending`; whether that went well. What is not reached stays there."""
    pending = item(scheduler, SCHEDULER_PENDING)
    batch = new_part(pending, 0, length(pending))
    if batch == 0:
        return False
    replace_items(pending, 0, length(batch), 0)
    set_flag(item(scheduler, SCHEDULER_FRESH), item(scheduler, SCHEDULER_ZERO))
    done = called(item(scheduler, SCHEDULER_DROP_UNWANTED), batch)
    drop(done)
    if done != 0 and length(batch) > 0:
        run_batch(scheduler, batch)
    if length(batch) > 0:
        replace_items(pending, 0, 0, batch)
    drop(batch)
    return has_failed() == 0


@helper
def set_flag(flag, value):
    """Set a global of a module."""
    remember(item(flag, GLOBAL_MODULE), item(flag, GLOBAL_NAME), value)


@helper
def called(function, argument):
    """What a function returns for one argument."""
    words = stack_words(1)
    put(words, 0, argument)
    return new_result(function, words, 1, 0)


@helper
def run_batch(scheduler, batch):
    """Run nodes by their plan, if they have one that is ready, else one by one; or an error is set."""
    if length(batch) == 1:
        run_single(scheduler, batch)
    elif can_all_take_fast_path(scheduler, batch):
        pair = called(item(scheduler, SCHEDULER_READ_BATCH), batch)
        if pair != 0:
            done = new_run(scheduler, batch, item(pair, 0), item(pair, 1))
            drop(pair)  # before anything else runs: it holds values
            drop(done)
            if done == item(scheduler, SCHEDULER_FALSE):
                drop(called(item(scheduler, SCHEDULER_RUN), batch))
    else:
        drop(called(item(scheduler, SCHEDULER_RUN), batch))


@helper
def can_all_take_fast_path(scheduler, batch):
    """Whether no node of a batch has run or failed, and none reads what has failed: that has no inputs."""
    none = item(scheduler, SCHEDULER_NONE)
    can_be_fast = True
    for at in range(length(batch)):
        inputs = get(list_item(batch, at), NODE_INPUTS)
        if inputs == none:
            return False
        for k in range(length(inputs)):
            value = item(inputs, k)
            can_be_fast &= get(value, NODE_RECIPE) == none or get(value, NODE_INPUTS) != none
    return can_be_fast


@helper
def new_run(scheduler, batch, key, externals):
    """Run nodes whose structure was read by their plan: True, False if they have none, 0 after an error."""
    entries, words = item(scheduler, SCHEDULER_ENTRIES), stack_words(3)
    entry = find(entries, key)
    if entry != 0 and get(entry, ENTRY_COMPILED_RUN) != item(scheduler, SCHEDULER_NONE):
        own(entry)
        forget(entries, key)
        remember(entries, key, entry)  # as the one used last
        put(words, 0, get(entry, ENTRY_COMPILED_RUN))
        put(words, 8, externals)
        put(words, 16, batch)
        done = new_result(item(scheduler, SCHEDULER_RUN_COMPILED), words, 3, 0)
        if (
            done != 0
            and done != item(scheduler, SCHEDULER_TRUE)
            and done != item(scheduler, SCHEDULER_FALSE)
        ):
            put(words, 0, entry)
            put(words, 8, done)
            drop(new_result(item(scheduler, SCHEDULER_RAISE_STOPPED), words, 3, 0))
        drop(entry)
        if done != item(scheduler, SCHEDULER_FALSE):
            return done
        drop(done)
    put(words, 0, batch)
    put(words, 8, key)
    put(words, 16, externals)
    return new_result(item(scheduler, SCHEDULER_RUN_READ), words, 3, 0) if has_failed() == 0 else 0


@helper
def run_single(scheduler, batch):
    """Run a batch of one node."""
    places, words = item(scheduler, SCHEDULER_PLACES), stack_words(4)
    put(words, 0, batch)
    for k in range(3):
        put(words, 8 + 8 * k, list_item(places, k))
    failed = new_result(item(scheduler, SCHEDULER_RUN_ROWS), words, 4, 0)
    drop(failed)
    if failed == item(scheduler, SCHEDULER_TRUE):
        drop(called(item(scheduler, SCHEDULER_RAISE_BAD_VALUE), batch))
    elif failed != 0 and length(batch) > 0:
        drop(called(item(scheduler, SCHEDULER_RUN), batch))
