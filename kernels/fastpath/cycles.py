"""What the collector of cycles tracks, compiled: see `graph/cycles.py`."""

from .cpython import (
    BOUND,
    NUMBER_OF_ARGUMENTS,
    append,
    class_of,
    drop,
    get,
    item,
    length,
    list_item,
    new_list,
    new_result_of_nothing,
    own,
    untrack,
)

CYCLES_GET_OBJECTS = CYCLES_MODULE_CLASS = CYCLES_TUPLE_CLASS = FUNCTION_CONTEXT = BOUND


def tracked(function, arguments, count, names):
    """All objects that the collector tracks, but for tuples and modules, in a list."""
    context = get(function, FUNCTION_CONTEXT)
    everything = new_result_of_nothing(item(context, CYCLES_GET_OBJECTS))
    if everything == 0:
        return 0
    kept = new_list(0)
    for k in range(length(everything) if kept != 0 else 0):
        found = list_item(everything, k)
        kind = class_of(found)
        is_left_out = kind == item(context, CYCLES_TUPLE_CLASS) or kind == item(
            context, CYCLES_MODULE_CLASS
        )
        if not is_left_out and append(kept, found) != 0:
            drop(kept)
            kept = 0
            break
    drop(everything)
    return kept


def hidden(function, arguments, count, names):
    """The first argument; the others go out of the collector's sight."""
    for k in range(1, count & NUMBER_OF_ARGUMENTS):
        untrack(get(arguments, 8 * k))
    return own(get(arguments, 0))
