"""Backward nodes in compiled code: where gradients go, and how a result gets its history."""

from ..language.abi import helper, stack_words
from .cpython import (
    BOUND,
    append,
    drop,
    exchange,
    get,
    has_failed,
    item,
    length,
    list_item,
    new_attribute,
    new_next,
    new_pair,
    new_result,
    new_result_of_nothing,
    new_single,
    new_weak_reference,
    own,
    put,
)
from .freelists import new_recycled
from .tensors import hide, is_attentive, is_tensor, show, version_of, zero

GRAD_CONTEXT = GRAD_EDGES = GRAD_EXTRAS = GRAD_INPUTS = GRAD_MASK = GRAD_OP = BOUND
GRAD_OUTPUTS = BOUND
GRAD_SAVED = GRAD_SCALARS = GRAD_SEQ = BOUND
LEAF_KIND_NODE_CLASS = LEAF_KIND_OP = LEAF_VARIABLE = META_ACCUMULATOR = META_HOOKS = BOUND
RECIPE_LARGE = BOUND
RUNTIME_ACCUMULATOR = RUNTIME_ATTEND = RUNTIME_EMPTY = RUNTIME_LEAVES = RUNTIME_NONE = BOUND
RUNTIME_LARGE_SAVERS = BOUND
RUNTIME_SEQUENCE = RUNTIME_TRUE = BOUND
TENSOR_AUTOGRAD_META = TENSOR_EDGE = TENSOR_NEEDS_GRAD = TENSOR_SPEC = TENSOR_VIEW_OF = BOUND
VIEW_BASE = VIEW_VERSION = BOUND


@helper
def history_of(runtime, t):
    """What a tensor asks of an op on it: 0 nothing, 1 a backward node, 2 more than is usual."""
    view = get(t, TENSOR_VIEW_OF)
    needs_grad = get(t, TENSOR_NEEDS_GRAD) == item(runtime, RUNTIME_TRUE)
    if view == item(runtime, RUNTIME_NONE):
        return int(needs_grad)
    if needs_grad and get(view, VIEW_VERSION) == version_of(runtime, t):
        return 1
    base = get(view, VIEW_BASE)
    return 2 * int(needs_grad or get(base, TENSOR_NEEDS_GRAD) == item(runtime, RUNTIME_TRUE))


@helper
def new_edge(runtime, t):
    """Where the gradient of an operand goes; None for a number (0) and what needs no gradient."""
    none = item(runtime, RUNTIME_NONE)
    if t == 0:
        return own(none)
    edge = get(t, TENSOR_EDGE)
    if edge != none or get(t, TENSOR_NEEDS_GRAD) != item(runtime, RUNTIME_TRUE):
        return own(edge)
    accumulator = known_accumulator(runtime, get(t, TENSOR_AUTOGRAD_META))
    if accumulator == 0:
        accumulator = new_accumulator(runtime, t)
    if accumulator == 0 and has_failed() == 0:
        make = new_attribute(t, item(runtime, RUNTIME_ACCUMULATOR))
        accumulator = new_result_of_nothing(make) if make != 0 else 0
        drop(make)
    return new_place(runtime, accumulator, own(zero(runtime)))


@helper
def new_place(runtime, fn, number):
    """An output of a backward node, as an edge; it takes the references over. 0 if one of them is 0."""
    edge = new_pair(fn, number)
    if edge != 0:
        hide(runtime, edge)
    return edge


@helper
def known_accumulator(runtime, meta):
    """The accumulator of a leaf, with a reference; 0 if no graph holds one."""
    none = item(runtime, RUNTIME_NONE)
    if meta == none or get(meta, META_ACCUMULATOR) == none:
        return 0
    accumulator = new_result_of_nothing(get(meta, META_ACCUMULATOR))
    if accumulator == none:
        drop(accumulator)
        return 0
    return accumulator


@helper
def new_accumulator(runtime, leaf):
    """The accumulator of a leaf without hooks, as `autograd/engine.py` makes it; 0 if it has to."""
    kind, meta = list_item(item(runtime, RUNTIME_LEAVES), 0), get(leaf, TENSOR_AUTOGRAD_META)
    if meta == item(runtime, RUNTIME_NONE) or length(get(meta, META_HOOKS)) != 0:
        return 0
    fn = new_recycled(item(kind, LEAF_KIND_NODE_CLASS))
    seq = new_next(item(runtime, RUNTIME_SEQUENCE))
    outputs = new_single(own(get(leaf, TENSOR_SPEC)))
    reference = new_weak_reference(fn, 0) if fn != 0 else 0
    if seq == 0 or outputs == 0 or reference == 0:
        drop(fn)
        drop(seq)
        drop(outputs)
        drop(reference)
        return 0
    put(fn, GRAD_OP, own(item(kind, LEAF_KIND_OP)))
    put(fn, GRAD_CONTEXT, own(item(runtime, RUNTIME_NONE)))
    put(fn, GRAD_EDGES, own(item(runtime, RUNTIME_EMPTY)))
    put(fn, GRAD_INPUTS, own(item(runtime, RUNTIME_EMPTY)))
    put(fn, GRAD_OUTPUTS, outputs)
    put(fn, GRAD_SEQ, seq)
    put(fn, GRAD_EXTRAS, own(item(runtime, RUNTIME_NONE)))
    put(fn, GRAD_SAVED, own(item(runtime, RUNTIME_EMPTY)))
    put(fn, LEAF_VARIABLE, own(leaf))
    show(runtime, fn)
    exchange(meta, META_ACCUMULATOR, reference)
    return fn


@helper
def give_history(runtime, kind, op, context, inputs, outputs, edges, saved, scalars, mask, out):
    """A result, from now on with a backward node of the class `kind`; 0 on failure.

    The references from `edges` on are taken over; one that is 0 is a failure.
    """
    fn = new_recycled(kind)
    seq = new_next(item(runtime, RUNTIME_SEQUENCE))
    edge = new_place(runtime, fn, own(zero(runtime))) if fn != 0 else 0
    if edges == 0 or saved == 0 or out == 0 or seq == 0 or edge == 0:
        drop(edges)
        drop(saved)
        drop(scalars)
        drop(mask)
        drop(out)
        drop(seq)
        drop(edge)
        return 0
    put(fn, GRAD_OP, own(op))
    put(fn, GRAD_CONTEXT, own(context))
    put(fn, GRAD_EDGES, edges)
    put(fn, GRAD_INPUTS, own(inputs))
    put(fn, GRAD_OUTPUTS, own(outputs))
    put(fn, GRAD_SEQ, seq)
    put(fn, GRAD_EXTRAS, own(item(runtime, RUNTIME_NONE)))
    put(fn, GRAD_SCALARS, scalars)
    put(fn, GRAD_MASK, mask)
    put(fn, GRAD_SAVED, saved)
    hide(runtime, edges)
    hide(runtime, saved)
    hide(runtime, scalars)
    show(runtime, fn)
    exchange(out, TENSOR_EDGE, edge)
    exchange(out, TENSOR_NEEDS_GRAD, own(item(runtime, RUNTIME_TRUE)))
    return out


@helper
def attended(runtime, out):
    """A result, or a tuple of results, once Python has looked at the new backward node of the first if a mode
    asks for that; 0 on failure. All of it is recorded: hooks may look at values."""
    if out == 0 or not is_attentive(runtime):
        return out
    first = out if is_tensor(runtime, out) else item(out, 0)
    edge = get(first, TENSOR_EDGE)
    if edge == item(runtime, RUNTIME_NONE):
        return out
    words = stack_words(1)
    put(words, 0, item(edge, 0))
    done = new_result(item(runtime, RUNTIME_ATTEND), words, 1, 0)
    drop(done)
    if done == 0:
        drop(out)
        return 0
    return out


@helper
def tracked(runtime, recipe, out):
    """The result, its backward node noted if it has saved much, for `schedule/deferred.py`; 0 on failure."""
    if (
        out == 0
        or get(recipe, RECIPE_LARGE) != item(runtime, RUNTIME_TRUE)
        or is_attentive(runtime)
    ):
        return out
    fn = item(get(out, TENSOR_EDGE), 0)
    if length(get(fn, GRAD_SAVED)) != 0:
        reference = new_weak_reference(fn, 0)
        has_room = reference != 0 and append(item(runtime, RUNTIME_LARGE_SAVERS), reference) == 0
        drop(reference)
        if not has_room:
            drop(out)
            return 0
    return out
