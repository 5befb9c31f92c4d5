"""Calling an op that launches kernels, compiled: `Operation.__call__` on the same objects.

What is not the usual case (a signature whose body has not been traced, results that are views, views that need
gradients) is left to a function in Python, before anything has been done.
"""

from ..language.abi import helper, stack_words
from .cpython import (
    BOUND,
    class_of,
    drop,
    exchange,
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
    put,
    word_of,
)
from .grad_nodes import attended, give_history, history_of, new_edge, new_place
from .other_sizes import has_families, keep, new_by_template
from .signatures import SIZE, START, TENSORS, describe, known, new_signature, new_tensors, tensor
from .tensors import (
    can_take_fast_path,
    is_attentive,
    is_private,
    new_counter,
    new_handle,
    new_storage,
    records_gradients,
    settled,
    version_of,
    zero,
)
from .traces import completed

CALL_DIFFERENTIABLE = CALL_NODE_CLASS = CALL_OP = CALL_PLACES = CALL_SAVE_PLANS = BOUND
CALL_TRACE = BOUND
FUNCTION_CONTEXT = MAX_PENDING = NEW_STORAGE_SPEC = NEW_STORAGE_VALUE = BOUND
OPERATION_CALLS = OPERATION_IS_FIRST = OPERATION_PLAIN_CALLS = OPERATION_PLAIN_SIZES = BOUND
OPERATION_RUNTIME = OPERATION_SEE_TO = OPERATION_SIZES = OPERATION_TRACE_CLASS = BOUND
OPERATION_FALLBACK = OPERATION_WITH_HISTORY = BOUND
OUTPUT_NUMBER = OUTPUT_OFFSET = OUTPUT_SPEC = BOUND
RUNTIME_EMPTY = RUNTIME_FALSE = RUNTIME_NONE = RUNTIME_PENDING = RUNTIME_TRUE = BOUND
SAVE_PLAN_INPUTS = SAVE_PLAN_KEPT = SAVE_PLAN_OUTPUTS = SAVE_PLAN_TARGETS = BOUND
STORAGE_VALUE = TENSOR_EDGE = TENSOR_NEEDS_GRAD = BOUND
TRACE_DRAWS = TRACE_UNALIASED = TRACE_MANY = TRACE_OUTPUTS = TRACE_STEPS = TRACE_STORAGES = BOUND
TENSOR_STORAGE = BOUND


def call(function, arguments, count, names):
    """Record what the body of an op recorded when it was called with such arguments before."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, OPERATION_RUNTIME)
    looks = stack_words(SIZE)
    fallback = item(context, OPERATION_FALLBACK)
    is_usual = can_take_fast_path(runtime) and not leaves_parts(context, runtime)
    if is_usual and describe(runtime, arguments, count, names, looks):
        history = history_among(runtime, looks)
        out = from_trace(context, runtime, looks, history) if history <= 1 else 0
        if out != 0 or has_failed() != 0:
            return out
        if history == 1:
            fallback = item(context, OPERATION_WITH_HISTORY)
    return new_result(fallback, arguments, count, names)


@helper
def leaves_parts(context, runtime):
    """Whether this is a composed function, of whose parts modes want to know: what each of these saves."""
    is_composed = item(context, OPERATION_IS_FIRST) == item(runtime, RUNTIME_TRUE)
    return is_composed and is_attentive(runtime)


# ----- recording -----


@helper
def history_among(runtime, looks):
    """1 if the result is to have a history, 0 if not; more where that is not the usual case."""
    history = 0
    for k in range(get(looks, TENSORS)):
        history = max(history, history_of(runtime, tensor(looks, k)))
    return history * records_gradients(runtime) if history != 0 else 0


@helper
def from_trace(context, runtime, looks, history):
    """The result of a call by its trace; 0 if this is not the usual case."""
    is_shifted = is_shared = False
    for k in range(get(looks, TENSORS)):
        is_shared |= not is_private(runtime, get(tensor(looks, k), TENSOR_STORAGE))
        is_shifted |= get(looks, START + 8 * k) != 0
    calls = item(context, OPERATION_PLAIN_CALLS if history == 0 else OPERATION_CALLS)
    found = known(calls, looks)
    if found == 0 and has_failed() == 0:
        found = new_learned(context, runtime, looks, history)
    if found == 0:
        return 0
    out = 0
    trace = own(get(found, CALL_TRACE))
    if is_unaliased(context, runtime, trace):
        if history != 0 and get(found, CALL_DIFFERENTIABLE) == item(runtime, RUNTIME_TRUE):
            out = with_history(context, runtime, looks, is_shifted, found, trace)
        else:
            out = without_history(runtime, looks, is_shifted, trace)
        if is_shared:
            out = settled(runtime, out)
        if history != 0:
            out = attended(runtime, out)
    is_one = get(trace, TRACE_MANY) != item(runtime, RUNTIME_TRUE)
    if calls == item(context, OPERATION_CALLS):
        is_one |= item(context, OPERATION_IS_FIRST) == item(runtime, RUNTIME_TRUE)
    if out != 0 and is_one:
        out = new_first(out)
    drop(trace)
    drop(found)
    return out


@helper
def new_learned(context, runtime, looks, history):
    """What a template knows of such a call, kept; 0 if there is none, or, and an exception is set, on
    failure."""
    sizes = item(context, OPERATION_PLAIN_SIZES if history == 0 else OPERATION_SIZES)
    signature, said = new_signature(looks) if has_families(sizes) else 0, stack_words(1)
    if signature == 0:
        return 0
    made = new_by_template(runtime, sizes, signature, said)
    if made != 0:
        calls = item(context, OPERATION_PLAIN_CALLS if history == 0 else OPERATION_CALLS)
        is_usual = history == 0 and not draws(runtime, made)
        goes_well = is_usual or is_seen_to(context, looks, made)
        if not goes_well or not keep(runtime, sizes, calls, signature, made, said):
            drop(made)
            made = 0
    drop(signature)
    return made


@helper
def draws(runtime, call):
    """Whether what a call records draws random numbers."""
    return get(get(call, CALL_TRACE), TRACE_DRAWS) == item(runtime, RUNTIME_TRUE)


@helper
def is_seen_to(context, looks, call):
    """Have Python see to draws and to histories: `see_to` of `graph/operation.py`; whether that went well."""
    words, tensors = stack_words(2), new_tensors(looks)
    if tensors == 0:
        return False
    put(words, 0, call)
    put(words, 8, tensors)
    found = new_result(item(context, OPERATION_SEE_TO), words, 2, 0)
    drop(tensors)
    drop(found)
    return found != 0


@helper
def new_first(results):
    """The first item of a tuple, which is taken over."""
    first = own(item(results, 0))
    drop(results)
    return first


@helper
def is_unaliased(context, runtime, trace):
    """Whether a trace gives new tensors, no views of operands, and fits into `pending`."""
    if class_of(trace) != item(context, OPERATION_TRACE_CLASS):
        return False
    if get(trace, TRACE_UNALIASED) != item(runtime, RUNTIME_TRUE):
        return False
    return length(item(runtime, RUNTIME_PENDING)) + length(get(trace, TRACE_STEPS)) < MAX_PENDING


@helper
def without_history(runtime, looks, is_shifted, trace):
    """The results of a trace as a tuple; 0 on failure."""
    given = get(looks, TENSORS)
    steps = get(trace, TRACE_STEPS)
    values = new_tuple(given + length(steps))
    if values == 0:
        return 0
    for k in range(given):
        fill(values, k, own(get(get(tensor(looks, k), TENSOR_STORAGE), STORAGE_VALUE)))
    values = completed(runtime, steps, values, given, looks + START if is_shifted else 0)
    if values == 0:
        return 0
    outputs = get(trace, TRACE_OUTPUTS)
    outs = new_tuple(length(outputs))
    for k in range(length(outputs) if outs != 0 else 0):
        out = new_output(runtime, trace, values, outs, k)
        if out == 0:
            drop(outs)
            outs = 0
            break
        fill(outs, k, out)
    drop(values)
    return outs


@helper
def new_output(runtime, trace, values, outs, k):
    """A result of a trace, those before it being there; 0 on failure."""
    none, outputs = item(runtime, RUNTIME_NONE), get(trace, TRACE_OUTPUTS)
    output = list_item(outputs, k)
    if output == none:
        return own(none)
    storage = 0
    for before in range(k):
        other = list_item(outputs, before)
        if other != none and item(other, OUTPUT_NUMBER) == item(output, OUTPUT_NUMBER):
            storage = own(get(item(outs, before), TENSOR_STORAGE))
            break
    if storage == 0:
        place = list_item(get(trace, TRACE_STORAGES), word_of(item(output, OUTPUT_NUMBER)))
        value = item(values, word_of(item(place, NEW_STORAGE_VALUE)))
        storage = new_storage(runtime, own(value), item(place, NEW_STORAGE_SPEC))
    if storage == 0:
        return 0
    spec, offset = item(output, OUTPUT_SPEC), own(item(output, OUTPUT_OFFSET))
    return new_handle(runtime, storage, new_counter(runtime, storage), spec, offset, own(none))


@helper
def with_history(context, runtime, looks, is_shifted, found, trace):
    """The results of a trace as a tuple, the first and perhaps others with their backward node; 0 if this is
    not the usual case."""
    places = get(found, CALL_PLACES)
    if places == item(runtime, RUNTIME_NONE):
        return 0
    edges = new_edges(runtime, looks, places)
    if edges == 0:
        return 0
    save_plan = new_save_plan(runtime, found, edges)
    if save_plan == 0 or not is_savable(runtime, looks, save_plan):
        drop(edges)
        drop(save_plan)
        return 0
    outs = without_history(runtime, looks, is_shifted, trace)
    saved = 0 if outs == 0 else new_saved(runtime, looks, save_plan, outs)
    first = 0 if outs == 0 else own(item(outs, 0))
    first = give_history(
        runtime, get(found, CALL_NODE_CLASS), get(found, CALL_OP), save_plan, get(save_plan, SAVE_PLAN_INPUTS),
        get(save_plan, SAVE_PLAN_OUTPUTS), edges, saved, own(item(runtime, RUNTIME_EMPTY)), own(zero(runtime)),
        first,
    )  # fmt: skip
    if first == 0 or not share_history(runtime, save_plan, outs):
        drop(outs)
        outs = 0
    drop(first)
    drop(save_plan)
    return outs


@helper
def share_history(runtime, save_plan, outs):
    """Give results behind the first that carry gradients its backward node; whether that went well."""
    fn, targets = item(get(item(outs, 0), TENSOR_EDGE), 0), get(save_plan, SAVE_PLAN_TARGETS)
    for k in range(1, length(targets)):
        number = list_item(targets, k)
        t, edge = item(outs, word_of(number)), new_place(runtime, own(fn), own(number))
        if edge == 0:
            return False
        exchange(t, TENSOR_EDGE, edge)
        exchange(t, TENSOR_NEEDS_GRAD, own(item(runtime, RUNTIME_TRUE)))
    return True


@helper
def new_edges(runtime, looks, places):
    """Where the gradients of the inputs go; 0 if one has to be made an accumulator first."""
    edges = new_tuple(length(places))
    if edges == 0:
        return 0
    for k in range(length(places)):
        place = list_item(places, k)
        t = 0 if place == item(runtime, RUNTIME_NONE) else tensor(looks, word_of(place))
        edge = new_edge(runtime, t)
        if edge == 0:
            drop(edges)
            return 0
        fill(edges, k, edge)
    return edges


@helper
def new_save_plan(runtime, found, edges):
    """How a call with these edges gets its history, with a reference; 0 if there was none yet."""
    none = item(runtime, RUNTIME_NONE)
    wanted = new_tuple(length(edges))
    if wanted == 0:
        return 0
    for k in range(length(edges)):
        is_wanted = item(edges, k) != none
        fill(
            wanted,
            k,
            own(item(runtime, RUNTIME_TRUE) if is_wanted else item(runtime, RUNTIME_FALSE)),
        )
    save_plan = own(find(get(found, CALL_SAVE_PLANS), wanted))
    drop(wanted)
    return save_plan


@helper
def is_savable(runtime, looks, save_plan):
    """Whether the first result gets a history and no operand is one that cannot be saved."""
    targets, kept = get(save_plan, SAVE_PLAN_TARGETS), get(save_plan, SAVE_PLAN_KEPT)
    if length(targets) == 0 or word_of(list_item(targets, 0)) != 0:
        return False
    for k in range(length(kept)):
        place = word_of(list_item(kept, k))
        if place >= 0 and version_of(runtime, tensor(looks, place)) == 0:
            return False
    return True


@helper
def new_saved(runtime, looks, save_plan, outs):
    """What backward needs: operands by number, storages of the results, with their versions."""
    kept = get(save_plan, SAVE_PLAN_KEPT)
    saved = new_tuple(2 * length(kept))
    if saved == 0:
        return 0
    for k in range(length(kept)):
        place = word_of(list_item(kept, k))
        if place >= 0:
            t = tensor(looks, place)
            fill(saved, 2 * k, own(t))
            fill(saved, 2 * k + 1, own(version_of(runtime, t)))
        else:
            fill(saved, 2 * k, own(get(item(outs, -1 - place), TENSOR_STORAGE)))
            fill(saved, 2 * k + 1, own(zero(runtime)))
    return saved
