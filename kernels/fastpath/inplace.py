"""Writing in place, compiled: what `graph/export.py` and `graph/inplace.py` do with a tensor that is all of
its memory, on the same objects.

What is not the usual case (views, history, memory shared with the outside, operands that overlap,
results of another shape or dtype) is left to a function in Python, before anything has been done.
"""

from ..language.abi import helper, stack_words
from .call_sites import new_call_site
from .cpython import (
    BOUND,
    NUMBER_OF_ARGUMENTS,
    append,
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
    new_list,
    new_pair,
    new_result,
    new_result_of_nothing,
    new_single,
    new_tuple,
    new_word,
    own,
    put,
    put_list_item,
    trade_list_item,
    word_of,
)
from .elementwise import (
    CALL_HISTORY,
    CALL_INPUTS,
    CALL_OFFSETS,
    CALL_OP_RECORD,
    CALL_SCALARS,
    CALL_SIZE,
    FIRST,
    SECOND,
    is_known,
    reads_shared,
    value_of,
)
from .factories import new_number
from .tensors import can_take_fast_path, is_private, is_tensor, new_node, settled, zero

ADOPT_RUNTIME = ADOPT_FALLBACK = ADOPT_WRITES = BOUND
COMPUTE_ADOPT = COMPUTE_MAKE = COMPUTE_RUNTIME = COMPUTE_FALLBACK = BOUND
COPY_CONVERSIONS = COPY_RUNTIME = COPY_FALLBACK = COPY_WRITES = BOUND
FLOOD_NUMBER = FLOOD_RECIPES = FLOOD_RUNTIME = FLOOD_FALLBACK = BOUND
FUNCTION_CONTEXT = MAX_PENDING = OP_RECORD_OVER = OP_RECORD_RECIPE = BOUND
RECIPE_HERE = RECIPE_PICKS = RECIPE_SPEC = RECORDER_RUNTIME = RECORDER_FALLBACK = BOUND
REPLACE_RUNTIME = REPLACE_FALLBACK = BOUND
RUNTIME_EMPTY = RUNTIME_FLOAT_CLASS = RUNTIME_INT_CLASS = RUNTIME_NONE = RUNTIME_PENDING = BOUND
RUNTIME_TRUE = BOUND
SPEC_CONTIGUOUS = SPEC_DTYPE = SPEC_NUMEL = BOUND
STORAGE_CALL_SITE = STORAGE_SPEC = STORAGE_ALIAS = STORAGE_VALUE = STORAGE_VERSION = BOUND
TENSOR_COUNTER = TENSOR_EDGE = TENSOR_NEEDS_GRAD = TENSOR_OFFSET = TENSOR_SPEC = BOUND
TENSOR_STORAGE = TENSOR_VIEW_OF = BOUND
VIEW_BASE = BOUND

SMALL = 1 << 14  # elements; in a larger memory a function may do better to write over them


def write(function, arguments, count, names):
    """Write the result of an op on a tensor, and perhaps another one or a Python number, into it."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, RECORDER_RUNTIME)
    call = stack_words(CALL_SIZE)
    positional = count & NUMBER_OF_ARGUMENTS
    if names == 0 and positional > 0 and is_whole(runtime, get(arguments, 0)):
        t = get(arguments, 0)
        known = is_known(context, runtime, arguments, positional, call)
        if known and over_itself(runtime, t, call):
            first, second = get(call, FIRST), get(call, SECOND)
            if reads_shared(runtime, first) or reads_shared(runtime, second):
                return settled(runtime, own(t))
            return own(t)
    if has_failed() != 0:
        return 0
    return new_result(item(context, RECORDER_FALLBACK), arguments, count, names)


@helper
def is_whole(runtime, t):
    """Whether this is a tensor without history that is all of a memory that nobody else looks at."""
    if not is_tensor(runtime, t):
        return False
    if get(t, TENSOR_VIEW_OF) != item(runtime, RUNTIME_NONE) or get(t, TENSOR_EDGE) != item(
        runtime, RUNTIME_NONE
    ):
        return False
    return is_all(runtime, t)


@helper
def is_all(runtime, t):
    """Whether a tensor is all of a memory that nobody else looks at, and counts its writes."""
    return covers(runtime, t) and is_private(runtime, get(t, TENSOR_STORAGE))


@helper
def covers(runtime, t):
    """Whether a tensor is all of a memory, and counts its writes."""
    storage = get(t, TENSOR_STORAGE)
    if get(t, TENSOR_COUNTER) != storage or get(t, TENSOR_SPEC) != get(storage, STORAGE_SPEC):
        return False
    return get(t, TENSOR_OFFSET) == zero(runtime) and get(storage, STORAGE_ALIAS) == 0


@helper
def over_itself(runtime, t, call):
    """Record what was found as the new value of a tensor; whether that went well.

    The references are taken over.
    """
    op_record, storage = get(call, CALL_OP_RECORD), get(t, TENSOR_STORAGE)
    over, none = 0, item(runtime, RUNTIME_NONE)
    spec = get(get(op_record, OP_RECORD_RECIPE), RECIPE_SPEC)
    fits = get(call, CALL_HISTORY) == 0 and spec == get(t, TENSOR_SPEC)
    if fits and not overlaps(t, get(call, FIRST)) and not overlaps(t, get(call, SECOND)):
        over = get(op_record, OP_RECORD_OVER)
        over = 0 if over == none else own(over)
    drop(op_record)
    inputs, offsets = get(call, CALL_INPUTS), get(call, CALL_OFFSETS)
    scalars = get(call, CALL_SCALARS)
    if over == 0:
        drop(inputs)
        drop(offsets)
        drop(scalars)
        return False
    node = append_pending(runtime, new_node(runtime, over, inputs, offsets, scalars))
    return node != 0 and is_put(runtime, storage, node)


@helper
def become(storage, value, version, call_site):
    """Give a storage its new value, and the number and place of the write; takes the references over."""
    before, count, place = (
        get(storage, STORAGE_VALUE),
        get(storage, STORAGE_VERSION),
        get(storage, STORAGE_CALL_SITE),
    )
    put(storage, STORAGE_VALUE, value)
    put(storage, STORAGE_VERSION, version)
    put(storage, STORAGE_CALL_SITE, call_site)
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
    runtime = item(context, ADOPT_RUNTIME)
    t, made = get(arguments, 0), get(arguments, 8)
    fits = count & NUMBER_OF_ARGUMENTS == 2 and can_adopt(runtime, t, made)
    if fits and put_into(runtime, item(context, ADOPT_WRITES), t, made):
        return own(t)
    if has_failed() != 0:
        return 0
    return new_result(item(context, ADOPT_FALLBACK), arguments, count, names)


def copy(function, arguments, count, names):
    """Copy a tensor into another one, all of its memory or a part; nobody asks for gradients of either."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, COPY_RUNTIME)
    if names == 0 and count & NUMBER_OF_ARGUMENTS == 2 and can_copy(runtime, arguments):
        t, source, writes = get(arguments, 0), get(arguments, 8), item(context, COPY_WRITES)
        if is_other_block(runtime, t, source):
            value = new_written(
                runtime, writes, t, own(value_of(source)), get(source, TENSOR_OFFSET)
            )
        else:
            value = new_copy(runtime, item(context, COPY_CONVERSIONS), t, source)
            if value != 0 and get(t, TENSOR_SPEC) != get(get(t, TENSOR_STORAGE), STORAGE_SPEC):
                value = new_written(runtime, writes, t, value, zero(runtime))
        if value != 0 and is_put(runtime, get(t, TENSOR_STORAGE), value):
            return own(t)
    if has_failed() != 0:
        return 0
    return new_result(item(context, COPY_FALLBACK), arguments, count, names)


@helper
def can_copy(runtime, arguments):
    """Whether the second tensor may be copied into the first one, of which it shows no part."""
    t, source = get(arguments, 0), get(arguments, 8)
    if not can_take_fast_path(runtime) or length(item(runtime, RUNTIME_PENDING)) + 2 >= MAX_PENDING:
        return False
    if not is_tensor(runtime, t) or not is_tensor(runtime, source) or not can_write(runtime, t):
        return False
    if not is_out_of_graph(runtime, t) or not is_out_of_graph(runtime, source):
        return False
    if get(t, TENSOR_STORAGE) == get(source, TENSOR_STORAGE):
        return lie_apart(runtime, t, source)
    return is_private(runtime, get(source, TENSOR_STORAGE))


@helper
def is_other_block(runtime, t, source):
    """Whether a part of one memory is to become a block of another one, which can be read where it lies."""
    spec, storage = get(t, TENSOR_SPEC), get(t, TENSOR_STORAGE)
    if spec != get(source, TENSOR_SPEC) or spec == get(storage, STORAGE_SPEC):
        return False
    return get(spec, SPEC_CONTIGUOUS) == item(runtime, RUNTIME_TRUE) and storage != get(
        source, TENSOR_STORAGE
    )


@helper
def lie_apart(runtime, t, source):
    """Whether two tensors with one storage show blocks of it without a common element."""
    spec = get(t, TENSOR_SPEC)
    if spec != get(source, TENSOR_SPEC) or get(spec, SPEC_CONTIGUOUS) != item(
        runtime, RUNTIME_TRUE
    ):
        return False
    apart = word_of(get(t, TENSOR_OFFSET)) - word_of(get(source, TENSOR_OFFSET))
    return max(apart, -apart) >= word_of(get(spec, SPEC_NUMEL))


@helper
def new_copy(runtime, conversions, t, source):
    """The value of a copy of one tensor with the spec of another one; 0 if it is the first of its kind, or
    what is to be written is no block."""
    spec = get(t, TENSOR_SPEC)
    is_all = spec == get(get(t, TENSOR_STORAGE), STORAGE_SPEC)
    if not is_all and get(spec, SPEC_CONTIGUOUS) != item(runtime, RUNTIME_TRUE):
        return 0
    key = new_pair(own(get(source, TENSOR_SPEC)), own(spec))
    recipe = own(find(conversions, key)) if key != 0 else 0
    drop(key)
    if recipe == 0:
        return 0
    offset = get(source, TENSOR_OFFSET)
    is_shifted = offset != zero(runtime)
    offsets = new_single(own(offset)) if is_shifted else own(item(runtime, RUNTIME_NONE))
    inputs = new_single(own(value_of(source)))
    return append_pending(
        runtime, new_node(runtime, recipe, inputs, offsets, own(item(runtime, RUNTIME_EMPTY)))
    )


@helper
def append_pending(runtime, node):
    """A node, put into `pending`; 0 on failure."""
    if node != 0 and append(item(runtime, RUNTIME_PENDING), node) != 0:
        drop(node)
        return 0
    return node


def compute(function, arguments, count, names):
    """Write what a function makes of a tensor, all of a memory, and other arguments into the tensor."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, COMPUTE_RUNTIME)
    positional = count & NUMBER_OF_ARGUMENTS
    if positional == 0 or not is_alone(runtime, arguments, positional):
        return new_result(item(context, COMPUTE_FALLBACK), arguments, count, names)
    t = get(arguments, 0)
    made = new_result(item(context, COMPUTE_MAKE), arguments, count, names)
    if made == 0:
        return 0
    if can_adopt(runtime, t, made) and get(t, TENSOR_SPEC) == get(made, TENSOR_SPEC):
        done = is_put(runtime, get(t, TENSOR_STORAGE), own(value_of(made)))
        drop(made)
        return own(t) if done else 0
    words = stack_words(2)
    put(words, 0, t)
    put(words, 8, made)
    out = new_result(item(context, COMPUTE_ADOPT), words, 2, 0) if has_failed() == 0 else 0
    drop(made)
    return out


def flood(function, arguments, count, names):
    """Write a number, that of the context or an argument, into every place of a tensor."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, FLOOD_RUNTIME)
    positional = count & NUMBER_OF_ARGUMENTS
    number = item(context, FLOOD_NUMBER)
    given = int(number == item(runtime, RUNTIME_NONE))
    if names == 0 and positional == 1 + given and is_alone(runtime, arguments, 1):
        t = get(arguments, 0)
        number = get(arguments, 8) if given else number
        kind = class_of(number)
        is_number = kind == item(runtime, RUNTIME_FLOAT_CLASS) or kind == item(
            runtime, RUNTIME_INT_CLASS
        )
        if (
            is_number
            and can_take_fast_path(runtime)
            and is_flooded(runtime, item(context, FLOOD_RECIPES), t, number)
        ):
            return own(t)
    if has_failed() != 0:
        return 0
    return new_result(item(context, FLOOD_FALLBACK), arguments, count, names)


@helper
def is_flooded(runtime, recipes, t, number):
    """Record a number as the new value of a whole memory; whether that went well."""
    node = append_pending(runtime, new_number(runtime, recipes, get(t, TENSOR_SPEC), number))
    return node != 0 and is_put(runtime, get(t, TENSOR_STORAGE), node)


@helper
def is_put(runtime, storage, value):
    """Give a storage a value, which is taken over, written at the user's line; whether that went well."""
    call_site = new_call_site(runtime)
    version = new_word(word_of(get(storage, STORAGE_VERSION)) + 1) if call_site != 0 else 0
    if version == 0:
        drop(value)
        drop(call_site)
        return False
    become(storage, value, version, call_site)
    return True


@helper
def is_alone(runtime, arguments, positional):
    """Whether the first argument is a tensor for which no gradients are wanted, all of a memory of up to
    `SMALL` elements that no other argument shows a part of."""
    t = get(arguments, 0)
    if not is_whole(runtime, t) or get(t, TENSOR_NEEDS_GRAD) == item(runtime, RUNTIME_TRUE):
        return False
    if word_of(get(get(t, TENSOR_SPEC), SPEC_NUMEL)) > SMALL:
        return False
    for k in range(1, positional):
        other = get(arguments, 8 * k)
        if is_tensor(runtime, other) and overlaps(t, other):
            return False
    return True


@helper
def is_out_of_graph(runtime, t):
    """Whether a tensor has no history, is no leaf, and is no view of one."""
    if get(t, TENSOR_EDGE) != item(runtime, RUNTIME_NONE) or get(t, TENSOR_NEEDS_GRAD) == item(
        runtime, RUNTIME_TRUE
    ):
        return False
    view = get(t, TENSOR_VIEW_OF)
    if view == item(runtime, RUNTIME_NONE):
        return True
    return get(get(view, VIEW_BASE), TENSOR_NEEDS_GRAD) != item(runtime, RUNTIME_TRUE)


@helper
def put_into(runtime, writes, t, made):
    """Write what one tensor shows into another one that may adopt it; whether this is the usual case."""
    storage, spec = get(t, TENSOR_STORAGE), get(t, TENSOR_SPEC)
    if spec != get(made, TENSOR_SPEC):
        return False
    value = own(value_of(made))
    if not shows_all(runtime, t):
        if get(spec, SPEC_CONTIGUOUS) != item(runtime, RUNTIME_TRUE):
            drop(value)
            return False
        value = new_written(runtime, writes, t, value, zero(runtime))
    return value != 0 and is_put(runtime, storage, value)


@helper
def shows_all(runtime, t):
    """Whether a tensor shows all elements of its memory in the order in which they lie there."""
    spec, whole = get(t, TENSOR_SPEC), get(get(t, TENSOR_STORAGE), STORAGE_SPEC)
    if spec == whole:
        return True
    are_dense = (
        get(spec, SPEC_CONTIGUOUS) == get(whole, SPEC_CONTIGUOUS) == item(runtime, RUNTIME_TRUE)
    )
    is_as_long = word_of(get(spec, SPEC_NUMEL)) == word_of(get(whole, SPEC_NUMEL))
    return are_dense and is_as_long and get(spec, SPEC_DTYPE) == get(whole, SPEC_DTYPE)


@helper
def can_adopt(runtime, t, made):
    """Whether a tensor may take over, without further ado, what another one shows."""
    none = item(runtime, RUNTIME_NONE)
    if not can_take_fast_path(runtime) or not is_tensor(runtime, t) or not is_tensor(runtime, made):
        return False
    other = get(made, TENSOR_STORAGE)
    if (
        get(made, TENSOR_NEEDS_GRAD) == item(runtime, RUNTIME_TRUE)
        or get(made, TENSOR_VIEW_OF) != none
    ):
        return False
    if get(made, TENSOR_OFFSET) != zero(runtime) or get(made, TENSOR_SPEC) != get(
        other, STORAGE_SPEC
    ):
        return False
    return get(t, TENSOR_STORAGE) != other and can_write(runtime, t) and is_private(runtime, other)


@helper
def can_write(runtime, t):
    """Whether a tensor counts its writes and nobody else looks at its memory."""
    storage = get(t, TENSOR_STORAGE)
    if get(t, TENSOR_COUNTER) != storage or get(storage, STORAGE_ALIAS) != 0:
        return False
    return is_private(runtime, storage)


@helper
def new_written(runtime, writes, t, value, offset):
    """The value of a memory, a block of which shows another value now, from an offset on; 0 if this is not
    the usual case. The other value is taken over."""
    storage, spec = get(t, TENSOR_STORAGE), get(t, TENSOR_SPEC)
    key = new_tuple(4)
    if key == 0:
        drop(value)
        return 0
    fill(key, 0, own(spec))
    fill(key, 1, own(spec))
    fill(key, 2, own(get(storage, STORAGE_SPEC)))
    fill(key, 3, own(zero(runtime)))
    recipe = own(find(writes, key))
    drop(key)
    if recipe == 0:
        drop(value)
        return 0
    inputs = new_pair(own(get(storage, STORAGE_VALUE)), value)
    offsets = new_pair(own(get(t, TENSOR_OFFSET)), own(offset))
    return append_pending(
        runtime, new_node(runtime, recipe, inputs, offsets, own(item(runtime, RUNTIME_EMPTY)))
    )


def replace(function, arguments, count, names):
    """Record a node whose results are the new values of some tensors, as `replace` of
    `graph/write.py`."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, REPLACE_RUNTIME)
    recipe, written, read = get(arguments, 0), get(arguments, 8), get(arguments, 16)
    picks = get(recipe, RECIPE_PICKS)
    here = get(recipe, RECIPE_HERE)
    if picks == item(runtime, RUNTIME_NONE) or not can_replace(runtime, written, read, here):
        if has_failed() != 0:
            return 0
        return new_result(item(context, REPLACE_FALLBACK), arguments, count, names)
    call_site = new_call_site(runtime)
    inputs = new_tuple(length(written) + length(read)) if call_site != 0 else 0
    if inputs == 0:
        drop(call_site)
        return 0
    for k in range(length(written)):
        fill(inputs, k, own(value_of(list_item(written, k))))
    for k in range(length(read)):
        fill(inputs, length(written) + k, own(value_of(list_item(read, k))))
    none, scalars = item(runtime, RUNTIME_NONE), get(arguments, 24)
    node = new_node(runtime, own(recipe), inputs, own(none), own(scalars))
    if node == 0 or append(item(runtime, RUNTIME_PENDING), node) != 0:
        drop(node)
        drop(call_site)
        return 0
    made = new_list(2 * length(written))
    for k in range(length(written) if made != 0 else 0):
        if not add_new(runtime, made, k, list_item(written, k), node, list_item(picks, k)):
            drop(made)
            made = 0
            break
    drop(node)
    if made == 0:
        drop(call_site)
        return 0
    for k in range(length(written)):
        storage = get(list_item(written, k), TENSOR_STORAGE)
        trade_list_item(made, 2 * k, storage, STORAGE_VALUE)
        trade_list_item(made, 2 * k + 1, storage, STORAGE_VERSION)
        exchange(storage, STORAGE_CALL_SITE, own(call_site))
    drop(made)
    drop(call_site)
    then = get(arguments, 32)
    return own(none) if then == none else new_result_of_nothing(then)


@helper
def can_replace(runtime, written, read, here):
    """Whether several tensors are all of their memories, at which others look only where the recipe writes
    `here`, and what is read lies at the beginning."""
    if length(written) < 2 or not can_take_fast_path(runtime):
        return False
    if length(item(runtime, RUNTIME_PENDING)) + length(written) + 1 >= MAX_PENDING:
        return False
    for k in range(length(written)):
        t = list_item(written, k)
        if not is_tensor(runtime, t) or not covers(runtime, t):
            return False
        is_seen = k < length(here) and item(here, k) == item(runtime, RUNTIME_TRUE)
        if not is_seen and not is_private(runtime, get(t, TENSOR_STORAGE)):
            return False
    for k in range(length(read)):
        t = list_item(read, k)
        if not is_tensor(runtime, t) or get(t, TENSOR_OFFSET) != zero(runtime):
            return False
    return True


@helper
def add_new(runtime, made, k, t, node, pick):
    """Put into a list the value that a tensor is to have, one of the results of a node, and the number of
    the write; whether that went well."""
    storage, inputs = get(t, TENSOR_STORAGE), new_single(own(node))
    none, scalars = own(item(runtime, RUNTIME_NONE)), own(item(runtime, RUNTIME_EMPTY))
    value = new_node(runtime, own(pick), inputs, none, scalars)
    version = new_word(word_of(get(storage, STORAGE_VERSION)) + 1)
    if value == 0 or version == 0 or append(item(runtime, RUNTIME_PENDING), value) != 0:
        drop(value)
        drop(version)
        return False
    put_list_item(made, 2 * k, value)
    put_list_item(made, 2 * k + 1, version)
    return True
