"""Views, compiled: what `graph/view.py` makes of a call that came before, on the same objects.

What is not the usual case (a call never seen, views whose base was written since) is left to a
function in Python, before anything has been done.
"""

from ..language.abi import helper, stack_words
from .cpython import (
    BOUND,
    drop,
    exchange,
    fill,
    get,
    has_failed,
    item,
    length,
    new_result,
    new_single,
    new_tuple,
    new_word,
    own,
    word_of,
)
from .grad_nodes import give_history, history_of, new_edge, new_place
from .signatures import PART, SIZE, TENSORS, describe, known, tensor
from .tensors import can_take_fast_path, new_view, records_gradients, version_of, zero

CACHED_VIEW_INPUTS = CACHED_VIEW_IS_TUPLE = CACHED_VIEW_NODE_CLASS = CACHED_VIEW_OP = BOUND
CACHED_VIEW_OUTPUTS = CACHED_VIEW_PARTS = BOUND
VIEW_PART_SHIFT = VIEW_PART_SPEC = CACHED_VIEW_VJP = BOUND
FUNCTION_CONTEXT = BOUND
RUNTIME_EMPTY = RUNTIME_MULTIPLE = RUNTIME_NONE = RUNTIME_NO_GRAD = RUNTIME_TRUE = BOUND
TENSOR_EDGE = TENSOR_NEEDS_GRAD = TENSOR_SPEC = VIEWS_CACHED = VIEWS_RUNTIME = BOUND
VIEWS_FALLBACK = BOUND


def view(function, arguments, count, names):
    """The views of a tensor that such a call gave before."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, VIEWS_RUNTIME)
    looks = stack_words(SIZE)
    if can_take_fast_path(runtime) and describe(runtime, arguments, count, names, looks):
        t = tensor(looks, 0)
        if get(looks, TENSORS) == 1 and get(looks, PART) == get(t, TENSOR_SPEC):
            cached = known(item(context, VIEWS_CACHED), looks)
            made = views_of(runtime, t, cached) if cached != 0 else 0
            drop(cached)
            if made != 0 or has_failed() != 0:
                return made
    return new_result(item(context, VIEWS_FALLBACK), arguments, count, names)


@helper
def views_of(runtime, t, cached):
    """The parts of a tensor, one or a tuple; 0 if this is not the usual case."""
    history = history_of(runtime, t)
    is_graded = records_gradients(runtime)
    if history * is_graded > 1 or version_of(runtime, t) == 0:
        return 0
    is_tuple = get(cached, CACHED_VIEW_IS_TUPLE) == item(runtime, RUNTIME_TRUE)
    edge = 0
    if history != 0 and is_graded:
        if get(cached, CACHED_VIEW_VJP) == item(runtime, RUNTIME_NONE):
            return 0
        edge = new_edge(runtime, t)
        if edge == 0:
            return 0
    kind = item(runtime, RUNTIME_MULTIPLE) if is_tuple else 0
    parts = get(cached, CACHED_VIEW_PARTS)
    made = new_tuple(length(parts))
    for k in range(length(parts) if made != 0 else 0):
        part = item(parts, k)
        out = new_view(
            runtime,
            t,
            item(part, VIEW_PART_SPEC),
            word_of(item(part, VIEW_PART_SHIFT)),
            kind if is_graded else item(runtime, RUNTIME_NO_GRAD),
        )
        if out == 0:
            drop(made)
            made = 0
            break
        fill(made, k, out)
    if made != 0 and edge != 0:
        made = with_history(runtime, cached, own(edge), made)
    drop(edge)
    if is_tuple or made == 0:
        return made
    only = own(item(made, 0))
    drop(made)
    return only


@helper
def with_history(runtime, cached, edge, made):
    """A tuple of views as the outputs of one backward node; it takes the references over."""
    empty = item(runtime, RUNTIME_EMPTY)
    first = give_history(
        runtime, get(cached, CACHED_VIEW_NODE_CLASS), get(cached, CACHED_VIEW_OP), get(cached, CACHED_VIEW_VJP),
        get(cached, CACHED_VIEW_INPUTS), get(cached, CACHED_VIEW_OUTPUTS), new_single(edge), own(empty),
        own(empty), own(zero(runtime)), own(item(made, 0)),
    )  # fmt: skip
    if first == 0:
        drop(made)
        return 0
    fn = item(get(first, TENSOR_EDGE), 0)
    for k in range(1, length(made)):
        t = item(made, k)
        edge = new_place(runtime, own(fn), new_word(k))
        if edge == 0:
            drop(first)
            drop(made)
            return 0
        exchange(t, TENSOR_EDGE, edge)
        exchange(t, TENSOR_NEEDS_GRAD, own(item(runtime, RUNTIME_TRUE)))
    drop(first)
    return made
