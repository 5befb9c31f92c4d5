"""Calling an op that launches kernels, compiled: `Operation.__call__` on the same objects.

What is not the usual case (a signature whose body has not been traced, results that are views,
views that need gradients, memory shared with the outside) is left to a function in Python, before
anything has been done.
"""

from .abi import helper, stack_words
from .handles import (
    EMPTY,
    FALSE,
    GRAD,
    MAX_PENDING,
    NONE,
    STORAGE_VALUE,
    TAPE,
    TENSOR_STORAGE,
    TRUE,
    is_on,
    is_private,
    is_usual,
    new_tensor,
    version_of,
    zero,
)  # fmt: skip
from .history import give_history, history_of, new_edge
from .objects import (
    BOUND,
    class_of,
    drop,
    fill,
    find,
    get,
    has_failed,
    item,
    length,
    list_item,
    new_result,
    new_tuple,
    own,
    word_of,
)  # fmt: skip
from .signatures import SIZE, START, TENSORS, describe, known, tensor
from .templates import completed

# Where the slots of the classes lie; bound when the module is compiled.
FUNCTION_CONTEXT = BOUND
CALL_TEMPLATE = CALL_PLACES = CALL_SAVINGS = CALL_DIFFERENTIABLE = BOUND
TEMPLATE_STEPS = TEMPLATE_STORAGES = TEMPLATE_SIMPLE = TEMPLATE_IS_SURE = BOUND
SAVING_INPUTS = SAVING_OUTPUTS = SAVING_TARGETS = SAVING_KEPT = BOUND

# The context of an op.
SHARED, OP, NODE_CLASS, CALLS, TEMPLATE, FALLBACK = range(6)


def call(function, arguments, count, names):
    """Record what the body of an op recorded when it was called with such arguments before."""
    context = get(function, FUNCTION_CONTEXT)
    shared = item(context, SHARED)
    looks = stack_words(SIZE)
    if is_usual(shared) and describe(shared, arguments, count, names, looks):
        out = from_template(context, shared, looks)
        if out != 0 or has_failed() != 0:
            return out
    return new_result(item(context, FALLBACK), arguments, count, names)


# ----- recording -----


@helper
def from_template(context, shared, looks):
    """The result of a call by its template; 0 if this is not the usual case."""
    history = 0
    is_shifted = False
    for k in range(get(looks, TENSORS)):
        t = tensor(looks, k)
        if not is_private(shared, get(t, TENSOR_STORAGE)):
            return 0
        history = max(history, history_of(shared, t))
        is_shifted |= get(looks, START + 8 * k) != 0
    if history != 0:
        history *= is_on(shared, GRAD)
        if history > 1:
            return 0
    found = known(item(context, CALLS), looks)
    if found == 0:
        return 0
    out = 0
    template = own(get(found, CALL_TEMPLATE))
    if is_simple(context, shared, template):
        if history != 0 and get(found, CALL_DIFFERENTIABLE) == item(shared, TRUE):
            out = with_history(context, shared, looks, is_shifted, found, template)
        else:
            out = without_history(shared, looks, is_shifted, template)
    drop(template)
    drop(found)
    return out


@helper
def is_simple(context, shared, template):
    """Whether a template gives one new tensor, cannot fail on values, and fits onto the tape."""
    if class_of(template) != item(context, TEMPLATE):
        return False
    true = item(shared, TRUE)
    if get(template, TEMPLATE_SIMPLE) != true or get(template, TEMPLATE_IS_SURE) != true:
        return False
    return length(item(shared, TAPE)) + length(get(template, TEMPLATE_STEPS)) < MAX_PENDING


@helper
def without_history(shared, looks, is_shifted, template):
    """The result of a template, a new tensor; 0 on failure."""
    given = get(looks, TENSORS)
    steps = get(template, TEMPLATE_STEPS)
    values = new_tuple(given + length(steps))
    if values == 0:
        return 0
    for k in range(given):
        fill(values, k, own(get(get(tensor(looks, k), TENSOR_STORAGE), STORAGE_VALUE)))
    values = completed(shared, steps, values, given, looks + START if is_shifted else 0)
    if values == 0:
        return 0
    place = list_item(get(template, TEMPLATE_STORAGES), 0)
    out = new_tensor(shared, own(item(values, word_of(item(place, 0)))), item(place, 1))
    drop(values)
    return out


@helper
def with_history(context, shared, looks, is_shifted, found, template):
    """The result of a template with its backward node; 0 if this is not the usual case."""
    places = get(found, CALL_PLACES)
    if places == item(shared, NONE):
        return 0
    edges = new_edges(shared, looks, places)
    if edges == 0:
        return 0
    saving = new_saving(shared, found, edges)
    if saving == 0 or not is_savable(shared, looks, saving):
        drop(edges)
        drop(saving)
        return 0
    out = without_history(shared, looks, is_shifted, template)
    saved = 0 if out == 0 else new_saved(shared, looks, saving, out)
    out = give_history(
        shared, item(context, NODE_CLASS), item(context, OP), saving, get(saving, SAVING_INPUTS),
        get(saving, SAVING_OUTPUTS), edges, saved, own(item(shared, EMPTY)), own(zero(shared)), out,
    )  # fmt: skip
    drop(saving)
    return out


@helper
def new_edges(shared, looks, places):
    """Where the gradients of the inputs go; 0 if one has to be made an accumulator first."""
    edges = new_tuple(length(places))
    if edges == 0:
        return 0
    for k in range(length(places)):
        place = list_item(places, k)
        t = 0 if place == item(shared, NONE) else tensor(looks, word_of(place))
        edge = new_edge(shared, t)
        if edge == 0:
            drop(edges)
            return 0
        fill(edges, k, edge)
    return edges


@helper
def new_saving(shared, found, edges):
    """How a call with these edges gets its history, with a reference; 0 if there was none yet."""
    none = item(shared, NONE)
    wanted = new_tuple(length(edges))
    if wanted == 0:
        return 0
    for k in range(length(edges)):
        is_wanted = item(edges, k) != none
        fill(wanted, k, own(item(shared, TRUE) if is_wanted else item(shared, FALSE)))
    saving = own(find(get(found, CALL_SAVINGS), wanted))
    drop(wanted)
    return saving


@helper
def is_savable(shared, looks, saving):
    """Whether the only result gets a history and no operand is one that cannot be saved."""
    targets, kept = get(saving, SAVING_TARGETS), get(saving, SAVING_KEPT)
    if length(targets) != 1:
        return False
    for k in range(length(kept)):
        place = word_of(list_item(kept, k))
        if place >= 0 and version_of(shared, tensor(looks, place)) == 0:
            return False
    return True


@helper
def new_saved(shared, looks, saving, out):
    """What backward needs: operands by number, the cell of the result, with their versions."""
    kept = get(saving, SAVING_KEPT)
    saved = new_tuple(2 * length(kept))
    if saved == 0:
        return 0
    for k in range(length(kept)):
        place = word_of(list_item(kept, k))
        if place >= 0:
            t = tensor(looks, place)
            fill(saved, 2 * k, own(t))
            fill(saved, 2 * k + 1, own(version_of(shared, t)))
        else:
            fill(saved, 2 * k, own(get(out, TENSOR_STORAGE)))
            fill(saved, 2 * k + 1, own(zero(shared)))
    return saved
