"""Backward nodes in compiled code: where gradients go, and how a result gets its history."""

from ..language.abi import helper
from .cpython import (
    BOUND,
    append,
    drop,
    get,
    has_failed,
    item,
    length,
    list_item,
    new_attribute,
    new_next,
    new_pair,
    new_result_of_nothing,
    new_single,
    new_weak_reference,
    own,
    put,
)  # fmt: skip
from .freelists import new_recycled
from .tensors import (
    ACCUMULATOR,
    EMPTY,
    LEAVES,
    NONE,
    SAVERS,
    SEQUENCE,
    TENSOR_EDGE,
    TENSOR_META,
    TENSOR_NEEDS_GRAD,
    TENSOR_SPEC,
    TENSOR_VIEW_OF,
    TRUE,
    hide,
    show,
    version_of,
    zero,
)  # fmt: skip

# Where the slots of the classes lie; bound when a module that imports this is compiled.
META_ACCUMULATOR = META_HOOKS = LEAF_VARIABLE = VIEW_BASE = VIEW_VERSION = BOUND
GRAD_OP = GRAD_RECIPE = GRAD_EDGES = GRAD_INPUTS = GRAD_OUTPUTS = GRAD_SEQ = BOUND
GRAD_EXTRAS = GRAD_SCALARS = GRAD_MASK = GRAD_SAVED = RECIPE_LARGE = BOUND


@helper
def history_of(shared, t):
    """What a tensor asks of an op on it: 0 nothing, 1 a backward node, 2 more than is usual."""
    view = get(t, TENSOR_VIEW_OF)
    needs_grad = get(t, TENSOR_NEEDS_GRAD) == item(shared, TRUE)
    if view == item(shared, NONE):
        return int(needs_grad)
    if needs_grad and get(view, VIEW_VERSION) == version_of(shared, t):
        return 1
    base = get(view, VIEW_BASE)
    return 2 * int(needs_grad or get(base, TENSOR_NEEDS_GRAD) == item(shared, TRUE))


@helper
def new_edge(shared, t):
    """Where the gradient of an operand goes; None for a number (0) and what needs no gradient."""
    none = item(shared, NONE)
    if t == 0:
        return own(none)
    edge = get(t, TENSOR_EDGE)
    if edge != none or get(t, TENSOR_NEEDS_GRAD) != item(shared, TRUE):
        return own(edge)
    accumulator = known_accumulator(shared, get(t, TENSOR_META))
    if accumulator == 0:
        accumulator = new_accumulator(shared, t)
    if accumulator == 0 and has_failed() == 0:
        make = new_attribute(t, item(shared, ACCUMULATOR))
        accumulator = new_result_of_nothing(make) if make != 0 else 0
        drop(make)
    return new_place(shared, accumulator, own(zero(shared)))


@helper
def new_place(shared, fn, number):
    """An output of a backward node, as an edge; it takes the references over. 0 if one of them is 0."""
    edge = new_pair(fn, number)
    if edge != 0:
        hide(shared, edge)
    return edge


@helper
def known_accumulator(shared, meta):
    """The accumulator of a leaf, with a reference; 0 if no graph holds one."""
    none = item(shared, NONE)
    if meta == none or get(meta, META_ACCUMULATOR) == none:
        return 0
    accumulator = new_result_of_nothing(get(meta, META_ACCUMULATOR))
    if accumulator == none:
        drop(accumulator)
        return 0
    return accumulator


@helper
def new_accumulator(shared, leaf):
    """The accumulator of a leaf without hooks, as `autograd/engine.py` makes it; 0 if it has to."""
    kind, meta = item(shared, LEAVES), get(leaf, TENSOR_META)
    if meta == item(shared, NONE) or length(get(meta, META_HOOKS)) != 0:
        return 0
    fn = new_recycled(list_item(kind, 0))
    seq = new_next(item(shared, SEQUENCE))
    outputs = new_single(own(get(leaf, TENSOR_SPEC)))
    reference = new_weak_reference(fn, 0) if fn != 0 else 0
    if seq == 0 or outputs == 0 or reference == 0:
        drop(fn)
        drop(seq)
        drop(outputs)
        drop(reference)
        return 0
    put(fn, GRAD_OP, own(list_item(kind, 1)))
    put(fn, GRAD_RECIPE, own(item(shared, NONE)))
    put(fn, GRAD_EDGES, own(item(shared, EMPTY)))
    put(fn, GRAD_INPUTS, own(item(shared, EMPTY)))
    put(fn, GRAD_OUTPUTS, outputs)
    put(fn, GRAD_SEQ, seq)
    put(fn, GRAD_EXTRAS, own(item(shared, NONE)))
    put(fn, GRAD_SAVED, own(item(shared, EMPTY)))
    put(fn, LEAF_VARIABLE, own(leaf))
    show(shared, fn)
    drop(get(meta, META_ACCUMULATOR))
    put(meta, META_ACCUMULATOR, reference)
    return fn


@helper
def give_history(shared, kind, op, recipe, inputs, outputs, edges, saved, scalars, mask, out):
    """A result, from now on with a backward node of the class `kind`; 0 on failure.

    The references from `edges` on are taken over; one that is 0 is a failure.
    """
    fn = new_recycled(kind)
    seq = new_next(item(shared, SEQUENCE))
    edge = new_place(shared, fn, own(zero(shared))) if fn != 0 else 0
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
    put(fn, GRAD_RECIPE, own(recipe))
    put(fn, GRAD_EDGES, edges)
    put(fn, GRAD_INPUTS, own(inputs))
    put(fn, GRAD_OUTPUTS, own(outputs))
    put(fn, GRAD_SEQ, seq)
    put(fn, GRAD_EXTRAS, own(item(shared, NONE)))
    put(fn, GRAD_SCALARS, scalars)
    put(fn, GRAD_MASK, mask)
    put(fn, GRAD_SAVED, saved)
    hide(shared, edges)
    hide(shared, saved)
    hide(shared, scalars)
    show(shared, fn)
    drop(get(out, TENSOR_EDGE))
    put(out, TENSOR_EDGE, edge)
    drop(get(out, TENSOR_NEEDS_GRAD))
    put(out, TENSOR_NEEDS_GRAD, own(item(shared, TRUE)))
    return out


@helper
def noted(shared, recipe, out):
    """The result, its backward node noted if it has saved much, for `schedule/deferred.py`; 0 on failure."""
    if out == 0 or get(recipe, RECIPE_LARGE) != item(shared, TRUE):
        return out
    fn = item(get(out, TENSOR_EDGE), 0)
    if length(get(fn, GRAD_SAVED)) != 0:
        reference = new_weak_reference(fn, 0)
        has_room = reference != 0 and append(item(shared, SAVERS), reference) == 0
        drop(reference)
        if not has_room:
            drop(out)
            return 0
    return out
