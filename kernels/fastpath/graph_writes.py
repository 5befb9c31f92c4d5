"""Writes into tensors of a graph, in compiled code: whose history they take, what their backward nodes keep.

What `graph/inplace.py` and `graph/copy_slices.py` do in the usual cases, on the same objects.
"""

from ..language.abi import helper
from .call_sites import new_call_site
from .cpython import (
    BOUND,
    drop,
    exchange,
    fill,
    find,
    get,
    item,
    length,
    new_pair,
    new_tuple,
    new_word,
    own,
    word_of,
)
from .elementwise import value_of
from .grad_nodes import give_history, history_of, new_edge
from .tensors import (
    hide,
    is_attentive,
    is_private,
    is_tensor,
    new_handle,
    new_storage,
    records_gradients,
    zero,
)
from .writing import (
    become,
    can_change,
    covers,
    is_all,
    is_met_by,
    is_whole_of,
    new_written,
)

ADOPT_GRADED_ASSIGNMENTS = ADOPT_SLICES_OP = BOUND
COPY_GRADED_ASSIGNMENTS = COPY_SLICES_OP = BOUND
ASSIGN_GRADED_ASSIGNMENTS = ASSIGN_SLICES_OP = BOUND
CACHED_VIEW_PARTS = BOUND
GRADED_ASSIGNMENT_INPUTS = GRADED_ASSIGNMENT_OUTPUTS = GRADED_ASSIGNMENT_REGION = BOUND
GRADED_ASSIGNMENT_WRITING = BOUND
GRAD_SAVED = BOUND
RUNTIME_EMPTY = RUNTIME_NONE = RUNTIME_NO_KIND = RUNTIME_NUMBERS = RUNTIME_TRUE = BOUND
SLICES_OP_NODE_CLASS = SLICES_OP_OP = BOUND
STORAGE_SPEC = STORAGE_VALUE = STORAGE_VERSION = BOUND
TENSOR_AUTOGRAD_META = TENSOR_EDGE = TENSOR_NEEDS_GRAD = TENSOR_OFFSET = TENSOR_SPEC = BOUND
TENSOR_STORAGE = TENSOR_VIEW_OF = BOUND
VIEW_BASE = VIEW_KIND = VIEW_PART_SHIFT = VIEW_PART_SPEC = BOUND


@helper
def takes_history(runtime, t):
    """Whether a tensor may become, in a graph, what is written into it: it is all of a memory that nobody else
    looks at and no leaf, and nobody keeps its gradient."""
    none = item(runtime, RUNTIME_NONE)
    if not records_gradients(runtime) or is_attentive(runtime):
        return False
    if not can_change(runtime, t) or not is_all(runtime, t):
        return False
    if get(t, TENSOR_VIEW_OF) != none or get(t, TENSOR_AUTOGRAD_META) != none:
        return False
    needs_grad = get(t, TENSOR_NEEDS_GRAD) == item(runtime, RUNTIME_TRUE)
    return needs_grad == (get(t, TENSOR_EDGE) != none)


@helper
def is_part_of_graph(runtime, t):
    """Whether a tensor is a view of one that may become, in a graph, what is written into a part of it."""
    view = get(t, TENSOR_VIEW_OF)
    if view == item(runtime, RUNTIME_NONE) or get(view, VIEW_KIND) != item(
        runtime, RUNTIME_NO_KIND
    ):
        return False
    if get(t, TENSOR_AUTOGRAD_META) != item(runtime, RUNTIME_NONE) or history_of(runtime, t) > 1:
        return False
    base, is_graded = get(view, VIEW_BASE), get(t, TENSOR_NEEDS_GRAD) == item(runtime, RUNTIME_TRUE)
    if is_graded and get(base, TENSOR_EDGE) == item(runtime, RUNTIME_NONE):  # one of them is a leaf
        return False
    return can_change(runtime, t) and takes_history(runtime, base)


@helper
def is_graded(runtime, arguments, positional):
    """Whether the first argument is a tensor in a graph, or a view of one, of whose memory no other argument
    shows another part."""
    t = get(arguments, 0)
    if not is_tensor(runtime, t) or get(t, TENSOR_EDGE) == item(runtime, RUNTIME_NONE):
        return False
    if not takes_history(runtime, t) and not is_part_of_graph(runtime, t):
        return False
    return not is_met_by(runtime, t, arguments, positional)


@helper
def is_same_part(runtime, t, cached, shift, value):
    """Whether the part of a tensor in a graph that a view showed is written with itself, as by `x[0] += y`."""
    if not is_tensor(runtime, value) or not takes_history(runtime, t):
        return False
    view, part = get(value, TENSOR_VIEW_OF), item(get(cached, CACHED_VIEW_PARTS), 0)
    if view == item(runtime, RUNTIME_NONE) or get(view, VIEW_BASE) != t:
        return False
    if get(view, VIEW_KIND) != item(runtime, RUNTIME_NO_KIND):
        return False
    is_here = word_of(get(value, TENSOR_OFFSET)) == word_of(item(part, VIEW_PART_SHIFT)) + shift
    is_graded = get(value, TENSOR_NEEDS_GRAD) == item(runtime, RUNTIME_TRUE)
    return is_here and is_graded and get(value, TENSOR_SPEC) == item(part, VIEW_PART_SPEC)


@helper
def is_part_graded(context, runtime, t, cached, shift, source):
    """Write a tensor into the part of another one that a view showed, which from now on has a backward node for
    that; whether this is the usual case, and no first time."""
    none, true = item(runtime, RUNTIME_NONE), item(runtime, RUNTIME_TRUE)
    if not records_gradients(runtime) or is_attentive(runtime):
        return False
    storage, other = get(t, TENSOR_STORAGE), get(source, TENSOR_STORAGE)
    if get(t, TENSOR_VIEW_OF) != none or not covers(runtime, t):
        return False
    if other == storage or not is_private(runtime, other):
        return False
    is_graded = get(t, TENSOR_NEEDS_GRAD) == true
    if is_graded != (get(t, TENSOR_EDGE) != none):  # a leaf
        return False
    if is_graded and get(t, TENSOR_AUTOGRAD_META) != none:  # its gradient may have to be kept
        return False
    history = history_of(runtime, source)
    if history > 1 or (history == 0 and not is_graded):
        return False
    part = item(get(cached, CACHED_VIEW_PARTS), 0)
    place = word_of(item(part, VIEW_PART_SHIFT)) + shift
    found = new_graded_assignment(
        item(context, ASSIGN_GRADED_ASSIGNMENTS), source, item(part, VIEW_PART_SPEC), storage,
        new_word(place),
    )  # fmt: skip
    if found == 0:
        return False
    done = is_graded_put(runtime, item(context, ASSIGN_SLICES_OP), t, source, place, found)
    drop(found)
    return done


@helper
def is_view_graded(context, runtime, t, source):
    """Copy a tensor into a view of another one, which gets a backward node for that; whether this is the usual
    case, and no first time."""
    if not is_tensor(runtime, source) or not is_part_of_graph(runtime, t):
        return False
    other, place = get(source, TENSOR_STORAGE), get(t, TENSOR_OFFSET)
    if other == get(t, TENSOR_STORAGE) or not is_private(runtime, other):
        return False
    base, history = get(get(t, TENSOR_VIEW_OF), VIEW_BASE), history_of(runtime, source)
    true = item(runtime, RUNTIME_TRUE)
    if history > 1 or (history == 0 and get(base, TENSOR_NEEDS_GRAD) != true):
        return False
    found = new_graded_assignment(
        item(context, COPY_GRADED_ASSIGNMENTS), source, get(t, TENSOR_SPEC),
        get(t, TENSOR_STORAGE), own(place),
    )  # fmt: skip
    if found == 0:
        return False
    op = item(context, COPY_SLICES_OP)
    done = is_graded_put(runtime, op, base, source, word_of(place), found)
    drop(found)
    if done:
        exchange(t, TENSOR_NEEDS_GRAD, own(true))
    return done


@helper
def is_graded_put(runtime, op, t, source, place, found):
    """Write a tensor into another one from a place on, in the way that was found, and give that its backward
    node; whether that went well."""
    storage, writing = get(t, TENSOR_STORAGE), item(found, GRADED_ASSIGNMENT_WRITING)
    is_taken_over = writing == item(runtime, RUNTIME_NONE)
    if is_taken_over and not is_whole_of(runtime, source):
        return False
    first = new_edge(runtime, t)
    second = new_edge(runtime, source) if first != 0 else 0
    edges = new_pair(first, second)
    if edges == 0:
        return False
    value = own(value_of(source))
    if not is_taken_over:
        value = new_written(
            runtime, own(writing), storage, place, value, own(get(source, TENSOR_OFFSET))
        )
    call_site = new_call_site(runtime) if value != 0 else 0
    version = new_word(word_of(get(storage, STORAGE_VERSION)) + 1) if call_site != 0 else 0
    if version == 0:
        drop(edges)
        drop(value)
        drop(call_site)
        return False
    out = give_history(
        runtime, item(op, SLICES_OP_NODE_CLASS), item(op, SLICES_OP_OP),
        item(found, GRADED_ASSIGNMENT_REGION), item(found, GRADED_ASSIGNMENT_INPUTS),
        item(found, GRADED_ASSIGNMENT_OUTPUTS), edges, own(item(runtime, RUNTIME_NUMBERS)),
        own(item(runtime, RUNTIME_EMPTY)), own(zero(runtime)), own(t),
    )  # fmt: skip
    if out == 0:
        drop(value)
        drop(call_site)
        drop(version)
        return False
    drop(out)
    become(t, value, version, call_site)
    return True


@helper
def new_graded_assignment(known_ones, source, part, storage, number):
    """How a tensor becomes a part of a memory from a place on, the number of which is taken over, with a
    reference; 0 if that is not known."""
    key = new_tuple(4) if number != 0 else 0
    if key == 0:
        drop(number)
        return 0
    fill(key, 0, own(get(source, TENSOR_SPEC)))
    fill(key, 1, own(part))
    fill(key, 2, own(get(storage, STORAGE_SPEC)))
    fill(key, 3, number)
    found = own(find(known_ones, key))
    drop(key)
    return found


@helper
def is_history_adopted(runtime, t, made):
    """Write a new tensor with a history into another one, all of its memory, which takes over the history;
    whether this is the usual case."""
    storage, edge, other = get(t, TENSOR_STORAGE), get(made, TENSOR_EDGE), get(made, TENSOR_STORAGE)
    if not takes_history(runtime, t) or other == storage:
        return False
    if get(made, TENSOR_VIEW_OF) != item(runtime, RUNTIME_NONE):
        return False
    if get(made, TENSOR_SPEC) != get(t, TENSOR_SPEC) or not is_all(runtime, made):
        return False
    call_site = new_call_site(runtime)
    version = new_word(word_of(get(storage, STORAGE_VERSION)) + 1) if call_site != 0 else 0
    saved = new_saved_beside(runtime, t, made, version) if version != 0 else 0
    if saved == 0:
        drop(version)
        drop(call_site)
        return False
    fn = item(edge, 0)
    hide(runtime, saved)
    exchange(fn, GRAD_SAVED, saved)
    become(t, own(get(other, STORAGE_VALUE)), version, call_site)
    exchange(t, TENSOR_EDGE, own(edge))
    exchange(t, TENSOR_NEEDS_GRAD, own(item(runtime, RUNTIME_TRUE)))
    return True


@helper
def is_part_adopted(context, runtime, t, made):
    """Write a new tensor with a history into a view of another one, which gets a backward node for that;
    whether this is the usual case, and no first time."""
    if not is_part_of_graph(runtime, t):
        return False
    none, view, other = (
        item(runtime, RUNTIME_NONE),
        get(t, TENSOR_VIEW_OF),
        get(made, TENSOR_STORAGE),
    )
    if get(made, TENSOR_VIEW_OF) != none or other == get(t, TENSOR_STORAGE):
        return False
    if not is_all(runtime, made):
        return False
    place = get(t, TENSOR_OFFSET)
    found = new_graded_assignment(
        item(context, ADOPT_GRADED_ASSIGNMENTS), made, get(t, TENSOR_SPEC), get(t, TENSOR_STORAGE),
        own(place),
    )  # fmt: skip
    if found == 0:
        return False
    base, fn = get(view, VIEW_BASE), item(get(made, TENSOR_EDGE), 0)
    saved = new_saved_beside(runtime, t, made, 0)
    done = saved != 0 and is_graded_put(
        runtime, item(context, ADOPT_SLICES_OP), base, made, word_of(place), found
    )
    drop(found)
    if not done:
        drop(saved)
        return False
    hide(runtime, saved)
    exchange(fn, GRAD_SAVED, saved)
    exchange(t, TENSOR_NEEDS_GRAD, own(item(runtime, RUNTIME_TRUE)))
    return True


@helper
def new_saved_beside(runtime, t, made, version):
    """What the backward node of `made` is to save once that is written into `t`: a handle on what `t` was, the
    first time, and, with a `version`, the memory that is written in the place of the result's, so that
    later writes are noticed."""
    saved = get(item(get(made, TENSOR_EDGE), 0), GRAD_SAVED)
    result = get(made, TENSOR_STORAGE) if version != 0 else 0
    if saved == item(runtime, RUNTIME_NONE):  # freed: Python says what is wrong
        return 0
    is_kept, size = False, length(saved)
    if size == 0:  # as it is, which may say that there are numbers
        return own(saved)
    beside = new_tuple(size)
    for k in range(0, size if beside != 0 else 0, 2):
        kept, count = own(item(saved, k)), own(item(saved, k + 1))
        if kept == result:
            drop(kept)
            drop(count)
            kept, count = own(get(t, TENSOR_STORAGE)), own(version)
        elif kept == t and not is_kept:
            drop(kept)
            drop(count)
            kept, count, is_kept = new_old_value(runtime, t), own(zero(runtime)), True
            if kept == 0:
                drop(count)
                drop(beside)
                return 0
        fill(beside, k, kept)
        fill(beside, k + 1, count)
    return beside


@helper
def new_old_value(runtime, t):
    """The value of a tensor as it is now, with its history; no later write reaches it."""
    value, whole = own(value_of(t)), get(get(t, TENSOR_STORAGE), STORAGE_SPEC)
    storage, none = new_storage(runtime, value, whole), item(runtime, RUNTIME_NONE)
    if storage == 0:
        return 0
    old = new_handle(
        runtime, storage, own(storage), get(t, TENSOR_SPEC), own(get(t, TENSOR_OFFSET)), own(none)
    )
    if old != 0:
        exchange(old, TENSOR_EDGE, own(get(t, TENSOR_EDGE)))
        exchange(old, TENSOR_NEEDS_GRAD, own(get(t, TENSOR_NEEDS_GRAD)))
    return old
