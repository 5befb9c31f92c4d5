"""Writing in place, compiled: what `graph/op.py` and `graph/inplace.py` do with a tensor that is all of
its memory, on the same objects.

What is not the usual case (views, history, memory shared with the outside, operands that overlap,
results of another shape or dtype) is left to a function in Python, before anything has been done.
"""

from .abi import helper, stack_words
from .handles import (
    EMPTY,
    MAX_PENDING,
    NONE,
    STORAGE_SPEC,
    STORAGE_VALUE,
    STORAGE_VERSION,
    TAPE,
    TENSOR_COUNTER,
    TENSOR_EDGE,
    TENSOR_NEEDS_GRAD,
    TENSOR_OFFSET,
    TENSOR_SPEC,
    TENSOR_STORAGE,
    TENSOR_VIEW_OF,
    TRUE,
    USER_SITE,
    is_private,
    is_tensor,
    is_usual,
    new_node,
    zero,
)  # fmt: skip
from .objects import (
    BOUND,
    NUMBER_OF_ARGUMENTS,
    append,
    drop,
    fill,
    find,
    get,
    has_failed,
    item,
    length,
    list_item,
    new_pair,
    new_result,
    new_result_of_nothing,
    new_single,
    new_tuple,
    new_word,
    own,
    put,
    word_of,
)  # fmt: skip
from .recorder import (
    CALL_HISTORY,
    CALL_INPUTS,
    CALL_OFFSETS,
    CALL_RECIPE,
    CALL_SCALARS,
    CALL_SIZE,
    FALLBACK,
    FIRST,
    SECOND,
    SHARED,
    is_known,
    value_of,
)  # fmt: skip

# Where the slots of the classes lie; bound when the module is compiled.
FUNCTION_CONTEXT = RECIPE_SPEC = RECIPE_VJPS = STORAGE_SITE = STORAGE_TWIN = BOUND
SPEC_CONTIGUOUS = BOUND

# Contexts: that of `write` ends, after what a recorder has, with the name of the recipe wanted.
OVER = FALLBACK + 1
_, TWIN, PICKS = range(3)  # of `replace`
WRITES = 2  # of `adopt`


def write(function, arguments, count, names):
    """Write the result of an op on a tensor, and perhaps another one or a Python number, into it."""
    context = get(function, FUNCTION_CONTEXT)
    shared = item(context, SHARED)
    call = stack_words(CALL_SIZE)
    positional = count & NUMBER_OF_ARGUMENTS
    if names == 0 and positional > 0 and is_whole(shared, get(arguments, 0)):
        t = get(arguments, 0)
        known = is_known(context, shared, arguments, positional, call)
        if known and over_itself(context, shared, t, call):
            return own(t)
    if has_failed() != 0:
        return 0
    return new_result(item(context, FALLBACK), arguments, count, names)


@helper
def is_whole(shared, t):
    """Whether this is a tensor without history that is all of a memory that nobody else looks at."""
    if not is_tensor(shared, t):
        return False
    if get(t, TENSOR_VIEW_OF) != item(shared, NONE) or get(t, TENSOR_EDGE) != item(shared, NONE):
        return False
    return is_all(shared, t)


@helper
def is_all(shared, t):
    """Whether a tensor is all of a memory that nobody else looks at, and counts its writes."""
    storage = get(t, TENSOR_STORAGE)
    if get(t, TENSOR_COUNTER) != storage or get(t, TENSOR_SPEC) != get(storage, STORAGE_SPEC):
        return False
    if get(t, TENSOR_OFFSET) != zero(shared) or get(storage, STORAGE_TWIN) != 0:
        return False
    return is_private(shared, storage)


@helper
def over_itself(context, shared, t, call):
    """Record what was found as the new value of a tensor; whether that went well.

    The references are taken over.
    """
    recipe, storage = get(call, CALL_RECIPE), get(t, TENSOR_STORAGE)
    over = 0
    fits = get(call, CALL_HISTORY) == 0 and get(recipe, RECIPE_SPEC) == get(t, TENSOR_SPEC)
    if fits and not overlaps(t, get(call, FIRST)) and not overlaps(t, get(call, SECOND)):
        over = own(find(get(recipe, RECIPE_VJPS), item(context, OVER)))
    drop(recipe)
    site = new_result_of_nothing(item(shared, USER_SITE)) if over != 0 else 0
    version = new_word(word_of(get(storage, STORAGE_VERSION)) + 1) if site != 0 else 0
    if version == 0:
        drop(over)
        drop(site)
        drop(get(call, CALL_INPUTS))
        drop(get(call, CALL_OFFSETS))
        drop(get(call, CALL_SCALARS))
        return False
    node = new_node(
        shared, over, get(call, CALL_INPUTS), get(call, CALL_OFFSETS), get(call, CALL_SCALARS)
    )
    if node == 0 or append(item(shared, TAPE), node) != 0:
        drop(node)
        drop(site)
        drop(version)
        return False
    become(storage, node, version, site)
    return True


@helper
def become(storage, value, version, site):
    """Give a cell its new value, and the number and place of the write; takes the references over."""
    before, count, place = (
        get(storage, STORAGE_VALUE),
        get(storage, STORAGE_VERSION),
        get(storage, STORAGE_SITE),
    )
    put(storage, STORAGE_VALUE, value)
    put(storage, STORAGE_VERSION, version)
    put(storage, STORAGE_SITE, site)
    drop(before)
    drop(count)
    drop(place)


@helper
def overlaps(t, other):
    """Whether an operand is another part of the memory that is written."""
    if other == 0 or other == t or get(other, TENSOR_STORAGE) != get(t, TENSOR_STORAGE):
        return False
    return get(other, TENSOR_SPEC) != get(t, TENSOR_SPEC) or get(other, TENSOR_OFFSET) != get(
        t, TENSOR_OFFSET
    )


def adopt(function, arguments, count, names):
    """Write a new tensor without history into another one, all of its memory or a part."""
    context = get(function, FUNCTION_CONTEXT)
    shared = item(context, SHARED)
    t, made = get(arguments, 0), get(arguments, 8)
    if count & NUMBER_OF_ARGUMENTS == 2 and can_adopt(shared, t, made):
        storage = get(t, TENSOR_STORAGE)
        value = 0
        if get(t, TENSOR_SPEC) == get(storage, STORAGE_SPEC):
            if get(t, TENSOR_SPEC) == get(made, TENSOR_SPEC):
                value = own(value_of(made))
        else:
            value = new_written(context, shared, t, made)
        site = new_result_of_nothing(item(shared, USER_SITE)) if value != 0 else 0
        version = new_word(word_of(get(storage, STORAGE_VERSION)) + 1) if site != 0 else 0
        if version != 0:
            become(storage, value, version, site)
            return own(t)
        drop(value)
        drop(site)
    if has_failed() != 0:
        return 0
    return new_result(item(context, TWIN), arguments, count, names)


@helper
def can_adopt(shared, t, made):
    """Whether a tensor may take over, without further ado, what another one shows."""
    none = item(shared, NONE)
    if not is_usual(shared) or not is_tensor(shared, t) or not is_tensor(shared, made):
        return False
    storage, other = get(t, TENSOR_STORAGE), get(made, TENSOR_STORAGE)
    if get(made, TENSOR_NEEDS_GRAD) == item(shared, TRUE) or get(made, TENSOR_VIEW_OF) != none:
        return False
    if get(made, TENSOR_OFFSET) != zero(shared) or get(made, TENSOR_SPEC) != get(
        other, STORAGE_SPEC
    ):
        return False
    if storage == other or get(t, TENSOR_COUNTER) != storage or get(storage, STORAGE_TWIN) != 0:
        return False
    return is_private(shared, storage) and is_private(shared, other)


@helper
def new_written(context, shared, t, made):
    """The value of a memory, a part of which has been written; 0 if this is not the usual case."""
    storage, spec = get(t, TENSOR_STORAGE), get(t, TENSOR_SPEC)
    if spec != get(made, TENSOR_SPEC) or get(spec, SPEC_CONTIGUOUS) != item(shared, TRUE):
        return 0
    key = new_tuple(4)
    if key == 0:
        return 0
    fill(key, 0, own(spec))
    fill(key, 1, own(spec))
    fill(key, 2, own(get(storage, STORAGE_SPEC)))
    fill(key, 3, own(zero(shared)))
    recipe = own(find(item(context, WRITES), key))
    drop(key)
    if recipe == 0:
        return 0
    inputs = new_pair(own(get(storage, STORAGE_VALUE)), own(value_of(made)))
    offsets = new_pair(own(get(t, TENSOR_OFFSET)), own(zero(shared)))
    node = new_node(shared, recipe, inputs, offsets, own(item(shared, EMPTY)))
    if node != 0 and append(item(shared, TAPE), node) != 0:
        drop(node)
        return 0
    return node


def replace(function, arguments, count, names):
    """Record a node whose results are the new values of some tensors, as `replace` of
    `graph/write.py`."""
    context = get(function, FUNCTION_CONTEXT)
    shared = item(context, SHARED)
    recipe, written, read = get(arguments, 0), get(arguments, 8), get(arguments, 16)
    picks = find(get(recipe, RECIPE_VJPS), item(context, PICKS))
    if picks == 0 or not can_replace(shared, written, read):
        if has_failed() != 0:
            return 0
        return new_result(item(context, TWIN), arguments, count, names)
    site = new_result_of_nothing(item(shared, USER_SITE))
    inputs = new_tuple(length(written) + length(read)) if site != 0 else 0
    if inputs == 0:
        drop(site)
        return 0
    for k in range(length(written)):
        fill(inputs, k, own(value_of(list_item(written, k))))
    for k in range(length(read)):
        fill(inputs, length(written) + k, own(value_of(list_item(read, k))))
    none, scalars = item(shared, NONE), get(arguments, 24)
    node = new_node(shared, own(recipe), inputs, own(none), own(scalars))
    if node == 0 or append(item(shared, TAPE), node) != 0:
        drop(node)
        drop(site)
        return 0
    for k in range(length(written)):
        if not renew(shared, list_item(written, k), node, list_item(picks, k), site):
            break
    drop(node)
    drop(site)
    return 0 if has_failed() != 0 else own(none)


@helper
def can_replace(shared, written, read):
    """Whether several tensors are all of their memories, and what is read lies at the beginning."""
    if length(written) < 2 or not is_usual(shared):
        return False
    if length(item(shared, TAPE)) + length(written) + 1 >= MAX_PENDING:
        return False
    for k in range(length(written)):
        t = list_item(written, k)
        if not is_tensor(shared, t) or not is_all(shared, t):
            return False
    for k in range(length(read)):
        t = list_item(read, k)
        if not is_tensor(shared, t) or get(t, TENSOR_OFFSET) != zero(shared):
            return False
    return True


@helper
def renew(shared, t, node, pick, site):
    """Give a tensor one of the results of a node; whether that went well."""
    storage, inputs = get(t, TENSOR_STORAGE), new_single(own(node))
    none, scalars = own(item(shared, NONE)), own(item(shared, EMPTY))
    value = new_node(shared, own(pick), inputs, none, scalars)
    version = new_word(word_of(get(storage, STORAGE_VERSION)) + 1)
    if value == 0 or version == 0 or append(item(shared, TAPE), value) != 0:
        drop(value)
        drop(version)
        return False
    become(storage, value, version, own(site))
    return True
