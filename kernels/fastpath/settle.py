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
    new_word,
    own,
    put,
    put_error_back,
    remember,
    replace_items,
    set_length,
    take_error,
    this_thread,
)

# Where the slots of the classes lie; bound when the module is compiled.
NODE_RECIPE = NODE_INPUTS = STORAGE_VALUE = ENTRY_COURSE = FUNCTION_CONTEXT = BOUND

TWIN, SHARED = range(2)  # the context
(LISTS, SETS, FLAGS, TAPE, ACQUIRE, RELEASE, ENTRIES, DROP_UNWANTED, READ, RUN_COURSE, STOPPED,
 RUN_READ, PLACES, RUN_ROWS, BAD_VALUE, RUN, RUNNING, FRESH, ZERO, NONE, TRUE, FALSE,
 SETTLE) = range(23)  # fmt: skip
MODULE, NAME, USUAL = range(3)  # of a flag, and of what is set


def settle(function, arguments, count, names):
    """Run what is recorded and still wanted."""
    context = get(function, FUNCTION_CONTEXT)
    shared = item(context, SHARED)
    if names != 0 or length(item(shared, PLACES)) == 0 or not is_usual(shared):
        return new_result(item(context, TWIN), arguments, count, names)
    none = item(shared, NONE)
    entered = new_result_of_nothing(item(shared, ACQUIRE))
    if entered == 0:
        return 0
    drop(entered)
    if is_usual(shared):
        done = int(run_tape(shared))
    else:  # by what another thread did meanwhile
        done = new_result(item(context, TWIN), arguments, count, names)
        drop(done)
    leave(shared)
    return own(none) if done != 0 else 0


def value_of(function, arguments, count, names):
    """The value of a cell, settled."""
    context = get(function, FUNCTION_CONTEXT)
    shared = item(context, SHARED)
    if is_usual(shared):
        value = get(get(arguments, 0), STORAGE_VALUE)
        if get(value, NODE_RECIPE) == item(shared, NONE):
            return own(value)
        own(value)
        settled = new_result_of_nothing(item(shared, SETTLE))
        drop(settled)
        if settled == 0:
            drop(value)
            return 0
        if get(value, NODE_RECIPE) == item(shared, NONE):
            return value
        drop(value)
    return new_result(item(context, TWIN), arguments, count, names)


@helper
def is_usual(shared):
    """Whether nothing waits but the tape, nothing is captured, watched or running elsewhere, and there is
    nothing but the CPU."""
    lists, sets, flags = item(shared, LISTS), item(shared, SETS), item(shared, FLAGS)
    usual = True
    for k in range(length(lists)):
        usual &= length(item(lists, k)) == 0
    for k in range(length(sets)):
        usual &= set_length(item(sets, k)) == 0
    for k in range(length(flags)):
        flag = item(flags, k)
        usual &= find(item(flag, MODULE), item(flag, NAME)) == item(flag, USUAL)
    return usual


@helper
def leave(shared):
    """Give the lock back; what was raised meanwhile goes on."""
    error = stack_words(3)
    take_error(error, error + 8, error + 16)
    drop(new_result_of_nothing(item(shared, RELEASE)))
    put_error_back(get(error, 0), get(error, 8), get(error, 16))


@helper
def run_tape(shared):
    """Run what is on the tape; whether that went well. What is not reached stays there."""
    tape = item(shared, TAPE)
    batch = new_part(tape, 0, length(tape))
    if batch == 0:
        return False
    replace_items(tape, 0, length(batch), 0)
    set_flag(item(shared, FRESH), item(shared, ZERO))
    done = called(item(shared, DROP_UNWANTED), batch)
    drop(done)
    if done != 0 and length(batch) > 0:
        run_batch(shared, batch)
    if length(batch) > 0:
        replace_items(tape, 0, 0, batch)
    drop(batch)
    return has_failed() == 0


@helper
def set_flag(flag, value):
    """Set a global of a module."""
    remember(item(flag, MODULE), item(flag, NAME), value)


@helper
def called(function, argument):
    """What a function returns for one argument."""
    words = stack_words(1)
    put(words, 0, argument)
    return new_result(function, words, 1, 0)


@helper
def run_batch(shared, batch):
    """Run nodes by their plan, if they have one that is ready, else one by one; or an error is set."""
    if length(batch) == 1:
        run_single(shared, batch)
    elif are_usual(shared, batch):
        pair = called(item(shared, READ), batch)
        if pair != 0:
            done = new_run(shared, batch, item(pair, 0), item(pair, 1))
            drop(pair)  # before anything else runs: it holds values
            drop(done)
            if done == item(shared, FALSE):
                drop(called(item(shared, RUN), batch))
    else:
        drop(called(item(shared, RUN), batch))


@helper
def are_usual(shared, batch):
    """Whether no node of a batch has run or failed, and none reads what has failed: that has no inputs."""
    none = item(shared, NONE)
    usual = True
    for at in range(length(batch)):
        inputs = get(list_item(batch, at), NODE_INPUTS)
        if inputs == none:
            return False
        for k in range(length(inputs)):
            value = item(inputs, k)
            usual &= get(value, NODE_RECIPE) == none or get(value, NODE_INPUTS) != none
    return usual


@helper
def new_run(shared, batch, key, externals):
    """Run nodes whose structure was read by their plan: True, False if they have none, 0 after an error."""
    entries, words = item(shared, ENTRIES), stack_words(3)
    entry = find(entries, key)
    if entry != 0 and get(entry, ENTRY_COURSE) != item(shared, NONE):
        own(entry)
        forget(entries, key)
        remember(entries, key, entry)  # as the one used last
        put(words, 0, get(entry, ENTRY_COURSE))
        put(words, 8, externals)
        put(words, 16, batch)
        done = new_result(item(shared, RUN_COURSE), words, 3, 0)
        if done != 0 and done != item(shared, TRUE) and done != item(shared, FALSE):
            put(words, 0, entry)
            put(words, 8, done)
            drop(new_result(item(shared, STOPPED), words, 3, 0))
        drop(entry)
        if done != item(shared, FALSE):
            return done
        drop(done)
    put(words, 0, batch)
    put(words, 8, key)
    put(words, 16, externals)
    return new_result(item(shared, RUN_READ), words, 3, 0) if has_failed() == 0 else 0


@helper
def run_single(shared, batch):
    """Run a batch of one node."""
    places, words = item(shared, PLACES), stack_words(4)
    put(words, 0, batch)
    for k in range(3):
        put(words, 8 + 8 * k, list_item(places, k))
    thread = new_word(this_thread())
    set_flag(item(shared, RUNNING), thread)
    drop(thread)
    failed = new_result(item(shared, RUN_ROWS), words, 4, 0)
    set_flag(item(shared, RUNNING), item(shared, ZERO))
    drop(failed)
    if failed == item(shared, TRUE):
        drop(called(item(shared, BAD_VALUE), batch))
    elif failed != 0 and length(batch) > 0:
        drop(called(item(shared, RUN), batch))
