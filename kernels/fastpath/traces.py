"""Recording the nodes of a trace, compiled: `graph/trace.py` on the same objects."""

from ..language.abi import helper, stack_words
from .call_sites import new_call_site
from .cpython import (
    BOUND,
    append,
    drop,
    fill,
    get,
    item,
    length,
    new_result,
    new_tuple,
    new_word,
    own,
    put,
    untrack,
    word_of,
)
from .tensors import new_node

BASIC_RUNTIME = BASIC_FALLBACK = FUNCTION_CONTEXT = MAX_PENDING = NODE_CALL_SITE = BOUND
RECIPE_DRAW = RECIPE_FALLIBLE = RUNTIME_NONE = RUNTIME_PENDING = RUNTIME_OBSERVERS = BOUND
STEP_OFFSETS = STEP_PLACES = STEP_RECIPE = STEP_SCALARS = BOUND

MOST_VALUES = 64  # that a trace is given


def repeat(function, arguments, count, names):
    """Record the nodes of a trace on some values, from where those start (None: at 0); a tuple of
    these and of those."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, BASIC_RUNTIME)
    steps, values, shifts = get(arguments, 0), get(arguments, 8), get(arguments, 16)
    pending, nodes, given = item(runtime, RUNTIME_PENDING), length(steps), length(values)
    is_full = length(pending) + nodes >= MAX_PENDING or given > MOST_VALUES
    if length(item(runtime, RUNTIME_OBSERVERS)) != 0 or is_full:
        return new_result(item(context, BASIC_FALLBACK), arguments, count, names)
    starts, is_shifted = stack_words(MOST_VALUES), shifts != item(runtime, RUNTIME_NONE)
    for k in range(given if is_shifted else 0):
        put(starts, 8 * k, word_of(item(shifts, k)))
    made = new_tuple(given + nodes)
    if made == 0:
        return 0
    for k in range(given):
        fill(made, k, own(item(values, k)))
    return completed(runtime, steps, made, given, starts if is_shifted else 0)


@helper
def completed(runtime, steps, made, given, starts):
    """A tuple that begins with the given values, with the nodes recorded on them behind.

    `starts` has the offset of each of those in its memory, as words; 0 where all are 0. The tuple
    is taken over: 0 on failure.
    """
    untrack(made)  # it has gaps, and the collector may run in between
    call_site = new_call_site_of(runtime, steps)
    if call_site == 0:
        drop(made)
        return 0
    for k in range(length(steps)):
        step = item(steps, k)
        places = item(step, STEP_PLACES)
        inputs = new_tuple(length(places))
        if inputs != 0:
            for i in range(length(places)):
                fill(inputs, i, own(item(made, word_of(item(places, i)))))
        offsets = new_offsets(runtime, item(step, STEP_OFFSETS), places, given, starts)
        scalars = new_scalars(runtime, step)
        node = new_node(runtime, own(item(step, STEP_RECIPE)), inputs, offsets, scalars)
        if node != 0 and can_fail(runtime, step):
            put(node, NODE_CALL_SITE, own(call_site))
        if node == 0 or append(item(runtime, RUNTIME_PENDING), node) != 0:
            drop(node)
            drop(made)
            made = 0
            break
        fill(made, given + k, node)
    drop(call_site)
    return made


@helper
def can_fail(runtime, step):
    """Whether the node of a step may find a bad value."""
    return get(item(step, STEP_RECIPE), RECIPE_FALLIBLE) != item(runtime, RUNTIME_NONE)


@helper
def new_call_site_of(runtime, steps):
    """The user's line, which an error of one of the nodes will name, None if they cannot fail; 0 on
    failure."""
    for k in range(length(steps)):
        if can_fail(runtime, item(steps, k)):
            return new_call_site(runtime)
    return own(item(runtime, RUNTIME_NONE))


@helper
def new_offsets(runtime, offsets, places, given, starts):
    """The offsets of a node: those of the trace, from where the given values start."""
    if starts == 0:
        return own(offsets)
    made = new_tuple(length(places))
    if made == 0:
        return 0
    for i in range(length(places)):
        place = word_of(item(places, i))
        start = get(starts, 8 * place) if place < given else 0
        if offsets != item(runtime, RUNTIME_NONE):
            start += word_of(item(offsets, i))
        number = new_word(start)
        if number == 0:
            drop(made)
            return 0
        fill(made, i, number)
    return made


@helper
def new_scalars(runtime, step):
    """The scalars of a node: those of the trace, then where its random numbers begin."""
    scalars, draw = item(step, STEP_SCALARS), get(item(step, STEP_RECIPE), RECIPE_DRAW)
    if draw == item(runtime, RUNTIME_NONE):
        return own(scalars)
    place = new_result(draw, stack_words(1), 0, 0)
    if place == 0:
        return 0
    lasting = length(scalars)
    made = new_tuple(lasting + length(place))
    for k in range(length(made) if made != 0 else 0):
        fill(made, k, own(item(scalars, k) if k < lasting else item(place, k - lasting)))
    drop(place)
    return made
