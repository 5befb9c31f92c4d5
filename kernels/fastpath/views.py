"""Views, compiled: what `graph/view.py` makes of a call that came before, on the same objects.

What is not the usual case (a call never seen, views whose base was written since) is left to a
function in Python, before anything has been done.
"""

from ..language.abi import helper, stack_words
from .cpython import (
    BOUND,
    BOUNDS_OF_SLICE,
    NUMBER_OF_ARGUMENTS,
    class_of,
    drop,
    exchange,
    fill,
    forget_error,
    get,
    has_failed,
    item,
    length,
    new_list,
    new_result,
    new_single,
    new_tuple,
    new_word,
    own,
    put,
    put_list_item,
    word_of,
)
from .grad_nodes import attended, give_history, history_of, new_edge, new_place
from .other_sizes import has_families, new_kept
from .signatures import PART, SIZE, TENSORS, describe, known, new_signature, tensor
from .tensors import (
    can_take_fast_path,
    infers,
    new_view,
    records_gradients,
    version_of,
    zero,
)

CACHED_VIEW_COPYING = CACHED_VIEW_INPUTS = CACHED_VIEW_IS_MULTIPLE = CACHED_VIEW_IS_TUPLE = BOUND
CACHED_VIEW_NODE_CLASS = CACHED_VIEW_OP = BOUND
CACHED_VIEW_OUTPUTS = CACHED_VIEW_PARTS = BOUND
VIEW_PART_SHIFT = VIEW_PART_SPEC = CACHED_VIEW_VJP = BOUND
FUNCTION_CONTEXT = BOUND
RUNTIME_EMPTY = RUNTIME_INTEGERS = RUNTIME_INT_CLASS = RUNTIME_MULTIPLE = BOUND
RUNTIME_NONE = RUNTIME_NO_GRAD = RUNTIME_SLICE_CLASS = RUNTIME_TRUE = BOUND
RUNTIME_TENSOR_CLASS = RUNTIME_TUPLE_CLASS = SPEC_DEVICE = SPEC_DTYPE = BOUND
SPEC_SHAPE = SPEC_STRIDES = TENSOR_EDGE = TENSOR_NEEDS_GRAD = BOUND
TENSOR_SPEC = TENSOR_VIEW_OF = BOUND
VIEWS_CACHED = VIEWS_CHOOSE = VIEWS_FALLBACK = VIEWS_GRADED_SIZES = BOUND
VIEWS_INDEX_DTYPE = VIEWS_RUNTIME = VIEWS_SIZES = BOUND

OUT_OF_RANGE = -(1 << 62)  # in the place of a number of elements


def view(function, arguments, count, names):
    """The views of a tensor that such a call gave before."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, VIEWS_RUNTIME)
    looks = stack_words(SIZE)
    if can_take_fast_path(runtime) and describe(runtime, arguments, count, names, looks):
        t = tensor(looks, 0)
        if get(looks, TENSORS) == 1 and get(looks, PART) == get(t, TENSOR_SPEC):
            in_brackets = item(context, VIEWS_CHOOSE) != item(runtime, RUNTIME_NONE)
            shift = 0
            if in_brackets and names == 0 and count & NUMBER_OF_ARGUMENTS == 2:
                shift = shift_of_numbers(runtime, t, get(arguments, 8), looks)
            cached = known(item(context, VIEWS_CACHED), looks) if shift != OUT_OF_RANGE else 0
            if cached == 0 and shift != OUT_OF_RANGE and has_failed() == 0:
                cached = new_learned(context, runtime, t, looks)
            if cached == item(runtime, RUNTIME_NONE):  # the tensor itself
                drop(cached)
                return own(t)
            made = new_of_call(runtime, t, cached, shift) if cached != 0 else 0
            drop(cached)
            if made != 0 or has_failed() != 0:
                return made
        elif names == 0 and count & NUMBER_OF_ARGUMENTS == 2:
            made = new_chosen(context, runtime, t, get(arguments, 8))
            if made != 0 or has_failed() != 0:
                return made
    return new_result(item(context, VIEWS_FALLBACK), arguments, count, names)


@helper
def new_of_call(runtime, t, cached, shift):
    """What a call gives, views of the tensor, or one of a copy; 0 if this is unusual."""
    copying = get(cached, CACHED_VIEW_COPYING)
    if copying == item(runtime, RUNTIME_NONE):
        return views_of(runtime, t, cached, shift)
    arguments = stack_words(1)
    put(arguments, 0, t)
    fresh = new_result(copying, arguments, 1, 0)
    made = views_of(runtime, fresh, cached, 0) if fresh != 0 else 0
    drop(fresh)
    if made != 0:
        exchange(made, TENSOR_VIEW_OF, own(item(runtime, RUNTIME_NONE)))
    return made


@helper
def new_chosen(context, runtime, t, key):
    """The elements of a tensor at the places that a key names by tensors of int64, whose other axes are kept; 0
    where something else is in the key, or, and an exception is set, on failure."""
    if item(context, VIEWS_CHOOSE) == item(runtime, RUNTIME_NONE):
        return 0
    places = new_places(context, runtime, get(t, TENSOR_SPEC), key)
    if places == 0:
        return 0
    arguments = stack_words(3)
    put(arguments, 0, t)
    put(arguments, 8, places)
    put(arguments, 16, get(get(t, TENSOR_SPEC), SPEC_SHAPE))
    made = new_result(item(context, VIEWS_CHOOSE), arguments, 3, 0)
    drop(places)
    return made


@helper
def new_places(context, runtime, spec, key):
    """The tensors of a key as a list, None before them for axes that are kept; 0 where something else is in it,
    or, and an exception is set, on failure."""
    is_tuple = class_of(key) == item(runtime, RUNTIME_TUPLE_CLASS)
    entries, used = length(key) if is_tuple else 1, 0
    if entries > length(get(spec, SPEC_SHAPE)):
        return 0
    for k in range(entries):
        entry = item(key, k) if is_tuple else key
        if class_of(entry) == item(runtime, RUNTIME_TENSOR_CLASS):
            if not is_index(context, spec, get(entry, TENSOR_SPEC)):
                return 0
            used = k + 1
        elif not is_whole(runtime, entry):
            return 0
    places = new_list(used) if used > 0 else 0
    for k in range(used if places != 0 else 0):
        entry = item(key, k) if is_tuple else key
        is_tensor = class_of(entry) == item(runtime, RUNTIME_TENSOR_CLASS)
        put_list_item(places, k, own(entry if is_tensor else item(runtime, RUNTIME_NONE)))
    return places


@helper
def is_index(context, spec, given):
    """Whether a tensor counts places of another one, and lies where that does."""
    return (
        length(get(given, SPEC_SHAPE)) > 0
        and get(given, SPEC_DTYPE) == item(context, VIEWS_INDEX_DTYPE)
        and get(given, SPEC_DEVICE) == get(spec, SPEC_DEVICE)
    )


@helper
def is_whole(runtime, entry):
    """Whether a part of a key is a slice of all."""
    if class_of(entry) != item(runtime, RUNTIME_SLICE_CLASS):
        return False
    none, bounds = item(runtime, RUNTIME_NONE), entry + BOUNDS_OF_SLICE
    return get(bounds, 0) == none and get(bounds, 8) == none and get(bounds, 16) == none


@helper
def new_learned(context, runtime, t, looks):
    """What a template gives for such a call, kept; 0 if there is none, or, and an exception is set, on
    failure."""
    is_graded = history_of(runtime, t) != 0 and records_gradients(runtime)
    sizes = item(context, VIEWS_GRADED_SIZES if is_graded else VIEWS_SIZES)
    signature = new_signature(looks) if has_families(sizes) else 0
    if signature == 0:
        return 0
    made = new_kept(runtime, sizes, item(context, VIEWS_CACHED), signature)
    drop(signature)
    return made


@helper
def shift_of_numbers(runtime, t, key, looks):
    """Put 0 in the place of the numbers of a key, as `at_zeros` of `graph/view_cache.py`; how many elements
    further on lies what they choose."""
    shape, strides = get(get(t, TENSOR_SPEC), SPEC_SHAPE), get(get(t, TENSOR_SPEC), SPEC_STRIDES)
    is_tuple = class_of(key) == item(runtime, RUNTIME_TUPLE_CLASS)
    entries = length(key) if is_tuple else 1
    is_graded = history_of(runtime, t) != 0 and records_gradients(runtime)
    if is_graded or entries > length(shape):
        return 0
    for k in range(entries):
        kind = class_of(item(key, k) if is_tuple else key)
        if kind != item(runtime, RUNTIME_INT_CLASS) and kind != item(runtime, RUNTIME_SLICE_CLASS):
            return 0
    at, shift = PART + 8 * (4 if is_tuple else 2), 0  # behind the spec, and a class and a length
    for k in range(entries):
        entry = item(key, k) if is_tuple else key
        if class_of(entry) == item(runtime, RUNTIME_SLICE_CLASS):
            at += 8 * 7
            continue
        place, size = word_of(entry), word_of(item(shape, k))
        if place == -1 and has_failed() != 0:
            forget_error()
            return OUT_OF_RANGE
        if place < -size or place >= size:
            return OUT_OF_RANGE
        shift += (place + size if place < 0 else place) * word_of(item(strides, k))
        put(looks, at, item(item(runtime, RUNTIME_INTEGERS), 0))
        at += 16
    return shift


@helper
def views_of(runtime, t, cached, shift):
    """The parts of a tensor, one or a tuple, all `shift` elements further on; 0 if this is unusual."""
    history = history_of(runtime, t)
    is_graded = records_gradients(runtime)
    if history * is_graded > 1 or (version_of(runtime, t) == 0 and not infers(runtime)):
        return 0
    is_tuple = get(cached, CACHED_VIEW_IS_TUPLE) == item(runtime, RUNTIME_TRUE)
    edge = 0
    if history != 0 and is_graded:
        if get(cached, CACHED_VIEW_VJP) == item(runtime, RUNTIME_NONE):
            return 0
        edge = new_edge(runtime, t)
        if edge == 0:
            return 0
    is_multiple = get(cached, CACHED_VIEW_IS_MULTIPLE) == item(runtime, RUNTIME_TRUE)
    kind = item(runtime, RUNTIME_MULTIPLE) if is_multiple else 0
    parts = get(cached, CACHED_VIEW_PARTS)
    made = new_tuple(length(parts))
    for k in range(length(parts) if made != 0 else 0):
        part = item(parts, k)
        out = new_view(
            runtime,
            t,
            item(part, VIEW_PART_SPEC),
            word_of(item(part, VIEW_PART_SHIFT)) + shift,
            kind if is_graded else item(runtime, RUNTIME_NO_GRAD),
        )
        if out == 0:
            drop(made)
            made = 0
            break
        fill(made, k, out)
    if made != 0 and edge != 0:
        made = attended(runtime, with_history(runtime, cached, own(edge), made))
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
