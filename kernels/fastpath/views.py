"""Views, compiled: what `graph/view.py` makes of a call that came before, on the same objects.

What is not the usual case (a call never seen, views whose base was written since) is left to a
function in Python, before anything has been done.
"""

from ..language.abi import helper, stack_words
from .cpython import (
    BOUND,
    drop,
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
    put,
    word_of,
)  # fmt: skip
from .grad_nodes import give_history, history_of, new_edge, new_place
from .signatures import PART, SIZE, TENSORS, describe, known, tensor
from .tensors import (
    EMPTY,
    MULTIPLE,
    NO_GRAD,
    NONE,
    TENSOR_EDGE,
    TENSOR_NEEDS_GRAD,
    TRUE,
    is_usual,
    new_view,
    records_gradients,
    version_of,
    zero,
)  # fmt: skip

# Where the slots of the classes lie; bound when the module is compiled.
FUNCTION_CONTEXT = TENSOR_SPEC = BOUND
CUT_PARTS = CUT_IS_TUPLE = CUT_OP = CUT_NODE_CLASS = CUT_PULL = CUT_INPUTS = CUT_OUTPUTS = BOUND

SHARED, CUTS, FALLBACK = range(3)  # the context


def view(function, arguments, count, names):
    """The views of a tensor that such a call gave before."""
    context = get(function, FUNCTION_CONTEXT)
    shared = item(context, SHARED)
    looks = stack_words(SIZE)
    if is_usual(shared) and describe(shared, arguments, count, names, looks):
        t = tensor(looks, 0)
        if get(looks, TENSORS) == 1 and get(looks, PART) == get(t, TENSOR_SPEC):
            cut = known(item(context, CUTS), looks)
            made = views_of(shared, t, cut) if cut != 0 else 0
            drop(cut)
            if made != 0 or has_failed() != 0:
                return made
    return new_result(item(context, FALLBACK), arguments, count, names)


@helper
def views_of(shared, t, cut):
    """The parts of a tensor, one or a tuple; 0 if this is not the usual case."""
    history = history_of(shared, t)
    is_graded = records_gradients(shared)
    if history * is_graded > 1 or version_of(shared, t) == 0:
        return 0
    is_tuple = get(cut, CUT_IS_TUPLE) == item(shared, TRUE)
    edge = 0
    if history != 0 and is_graded:
        if get(cut, CUT_PULL) == item(shared, NONE):
            return 0
        edge = new_edge(shared, t)
        if edge == 0:
            return 0
    kind = item(shared, MULTIPLE) if is_tuple else 0
    parts = get(cut, CUT_PARTS)
    made = new_tuple(length(parts))
    for k in range(length(parts) if made != 0 else 0):
        part = item(parts, k)
        out = new_view(
            shared,
            t,
            item(part, 0),
            word_of(item(part, 1)),
            kind if is_graded else item(shared, NO_GRAD),
        )
        if out == 0:
            drop(made)
            made = 0
            break
        fill(made, k, out)
    if made != 0 and edge != 0:
        made = with_history(shared, cut, own(edge), made)
    drop(edge)
    if is_tuple or made == 0:
        return made
    only = own(item(made, 0))
    drop(made)
    return only


@helper
def with_history(shared, cut, edge, made):
    """A tuple of views as the outputs of one backward node; it takes the references over."""
    first = give_history(
        shared, get(cut, CUT_NODE_CLASS), get(cut, CUT_OP), get(cut, CUT_PULL), get(cut, CUT_INPUTS),
        get(cut, CUT_OUTPUTS), new_single(edge), own(item(shared, EMPTY)), own(item(shared, EMPTY)),
        own(zero(shared)), own(item(made, 0)),
    )  # fmt: skip
    if first == 0:
        drop(made)
        return 0
    fn = item(get(first, TENSOR_EDGE), 0)
    for k in range(1, length(made)):
        t = item(made, k)
        edge = new_place(shared, own(fn), new_word(k))
        if edge == 0:
            drop(first)
            drop(made)
            return 0
        drop(get(t, TENSOR_EDGE))
        put(t, TENSOR_EDGE, edge)
        drop(get(t, TENSOR_NEEDS_GRAD))
        put(t, TENSOR_NEEDS_GRAD, own(item(shared, TRUE)))
    drop(first)
    return made
