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
    around,
    is_known,
    reads_shared,
    recorded,
    value_of,
)
from .factories import new_number, new_number_of
from .grad_nodes import give_history, history_of, new_edge
from .signatures import SIZE, TENSORS, describe, known
from .tensors import (
    can_take_fast_path,
    is_private,
    is_secluded,
    is_tensor,
    new_node,
    records_gradients,
    settled,
    zero,
)
from .views import OUT_OF_RANGE, shift_of_numbers

ADOPT_RUNTIME = ADOPT_FALLBACK = ADOPT_WRITES = BOUND
COMPUTE_ADOPT = COMPUTE_MAKE = COMPUTE_RUNTIME = COMPUTE_FALLBACK = BOUND
ASSIGN_ASSIGNMENTS = ASSIGN_CACHED = ASSIGN_FALLBACK = ASSIGN_NUMBER_ASSIGNMENTS = BOUND
ASSIGN_GRADED_ASSIGNMENTS = ASSIGN_SLICES_OP = BOUND
ASSIGN_RUNTIME = ASSIGNMENT_CONVERSION = ASSIGNMENT_COPIED = ASSIGNMENT_DIRECT = BOUND
CACHED_VIEW_PARTS = BOUND
COPY_ASSIGNMENTS = COPY_RUNTIME = COPY_FALLBACK = BOUND
FLOOD_NUMBER = FLOOD_RECIPES = FLOOD_RUNTIME = FLOOD_FALLBACK = BOUND
GRADED_ASSIGNMENT_INPUTS = GRADED_ASSIGNMENT_OUTPUTS = GRADED_ASSIGNMENT_REGION = BOUND
GRADED_ASSIGNMENT_WRITING = SLICES_OP_NODE_CLASS = SLICES_OP_OP = RUNTIME_NUMBERS = BOUND
FUNCTION_CONTEXT = MAX_PENDING = NUMBER_ASSIGNMENT_NUMBER = NUMBER_ASSIGNMENT_WRITING = BOUND
OP_RECORD_OVER = OP_RECORD_RECIPE = BOUND
RECIPE_HERE = RECIPE_PICKS = RECIPE_SPEC = BOUND
RECORDER_ADOPT = RECORDER_RUNTIME = RECORDER_FALLBACK = BOUND
REPLACE_RUNTIME = REPLACE_FALLBACK = BOUND
RUNTIME_EMPTY = RUNTIME_FLOAT_CLASS = RUNTIME_INT_CLASS = RUNTIME_NONE = RUNTIME_PENDING = BOUND
RUNTIME_TRUE = BOUND
SPEC_CONTIGUOUS = SPEC_DTYPE = SPEC_EXTENT = SPEC_NUMEL = BOUND
STORAGE_CALL_SITE = STORAGE_SPEC = STORAGE_LINKS = STORAGE_VALUE = STORAGE_VERSION = BOUND
TENSOR_EDGE = TENSOR_NEEDS_GRAD = TENSOR_OFFSET = TENSOR_SPEC = TENSOR_VERSION_COUNTER = BOUND
TENSOR_AUTOGRAD_META = TENSOR_STORAGE = TENSOR_VIEW_OF = BOUND
VIEW_BASE = VIEW_PART_SHIFT = VIEW_PART_SPEC = BOUND

SMALL = 1 << 14  # elements; in a larger memory a function may do better to write over them


def write(function, arguments, count, names):
    """Write the result of an op on a tensor, and perhaps another one or a Python number, into it."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, RECORDER_RUNTIME)
    call = stack_words(CALL_SIZE)
    positional = count & NUMBER_OF_ARGUMENTS
    t = get(arguments, 0) if positional > 0 else 0
    if names == 0 and t != 0 and is_tensor(runtime, t) and can_write(runtime, t):
        is_all = is_whole(runtime, t)
        is_usual = is_all or is_out_of_graph(runtime, t)
        if is_usual and is_known(context, runtime, arguments, positional, call):
            made = new_over_itself(context, runtime, t, call, is_all)
            first, second = get(call, FIRST), get(call, SECOND)
            if made != 0 and (reads_shared(runtime, first) or reads_shared(runtime, second)):
                return settled(runtime, made)
            if made != 0:
                return made
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
    whole = get(storage, STORAGE_SPEC)
    if get(t, TENSOR_VERSION_COUNTER) != storage or get(t, TENSOR_SPEC) != whole:
        return False
    return get(t, TENSOR_OFFSET) == zero(runtime) and get(storage, STORAGE_LINKS) == 0


@helper
def new_over_itself(context, runtime, t, call, is_all):
    """The tensor, what was found recorded as its new value; 0 if this is not the usual case.

    The references are taken over.
    """
    op_record, storage = get(call, CALL_OP_RECORD), get(t, TENSOR_STORAGE)
    recipe, none = 0, item(runtime, RUNTIME_NONE)
    is_met = overlaps(t, get(call, FIRST)) or overlaps(t, get(call, SECOND))
    if get(call, CALL_HISTORY) == 0 and not is_met:
        recipe = get(op_record, OP_RECORD_OVER if is_all else OP_RECORD_RECIPE)
        fits = recipe != none and (not is_all or get(recipe, RECIPE_SPEC) == get(t, TENSOR_SPEC))
        recipe = own(recipe) if fits else 0
    drop(op_record)
    inputs, offsets = get(call, CALL_INPUTS), get(call, CALL_OFFSETS)
    scalars = get(call, CALL_SCALARS)
    if recipe == 0:
        drop(inputs)
        drop(offsets)
        drop(scalars)
        return 0
    if not is_all:
        made = recorded(runtime, around(runtime, recipe, inputs, offsets, scalars))
        return new_adopted(runtime, item(context, RECORDER_ADOPT), t, made)
    node = append_pending(runtime, new_node(runtime, recipe, inputs, offsets, scalars))
    return own(t) if node != 0 and is_put(runtime, storage, node) else 0


@helper
def new_adopted(runtime, adopt, t, made):
    """The tensor, a result written into it that is taken over; 0 on failure, or if there is none."""
    if made == 0:
        return 0
    words = stack_words(2)
    put(words, 0, t)
    put(words, 8, made)
    out = new_result(adopt, words, 2, 0)
    drop(made)
    return out


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
    if fits:
        writes, spec = item(context, ADOPT_WRITES), get(made, TENSOR_SPEC)
        if is_value_put(runtime, writes, t, own(value_of(made)), spec):
            return own(t)
    if has_failed() != 0:
        return 0
    return new_result(item(context, ADOPT_FALLBACK), arguments, count, names)


def copy(function, arguments, count, names):
    """Copy a tensor into another one, all of its memory or a part; nobody asks for gradients of either."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, COPY_RUNTIME)
    t, source = get(arguments, 0), get(arguments, 8)
    if names == 0 and count & NUMBER_OF_ARGUMENTS == 2 and can_assign(runtime, t):
        place, assignments = word_of(get(t, TENSOR_OFFSET)), item(context, COPY_ASSIGNMENTS)
        if is_assigned(runtime, assignments, t, get(t, TENSOR_SPEC), place, source):
            return own(t)
    if has_failed() != 0:
        return 0
    return new_result(item(context, COPY_FALLBACK), arguments, count, names)


def assign(function, arguments, count, names):
    """`x[key] = value` with a key that gave a view before, a number where nobody asks for gradients."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, ASSIGN_RUNTIME)
    looks = stack_words(SIZE)
    t = get(arguments, 0)
    if names == 0 and count & NUMBER_OF_ARGUMENTS == 3 and can_change(runtime, t):
        value = get(arguments, 16)
        is_told = describe(runtime, arguments, 2, 0, looks) and get(looks, TENSORS) == 1
        shift = shift_of_numbers(runtime, t, get(arguments, 8), looks) if is_told else OUT_OF_RANGE
        cached = known(item(context, ASSIGN_CACHED), looks) if shift != OUT_OF_RANGE else 0
        done = False
        if cached != 0 and is_out_of_graph(runtime, t):
            done = is_part_assigned(context, runtime, t, cached, shift, value)
        if cached != 0 and not done and has_failed() == 0:
            done = is_part_graded(context, runtime, t, cached, shift, value)
        drop(cached)
        if done:
            return own(item(runtime, RUNTIME_NONE))
    if has_failed() != 0:
        return 0
    return new_result(item(context, ASSIGN_FALLBACK), arguments, count, names)


@helper
def can_assign(runtime, t):
    """Whether a tensor may be written without further ado, and `pending` has room for two nodes."""
    return can_change(runtime, t) and is_out_of_graph(runtime, t)


@helper
def can_change(runtime, t):
    """Whether this is a tensor that counts its writes, and `pending` has room for two nodes."""
    if not can_take_fast_path(runtime) or length(item(runtime, RUNTIME_PENDING)) + 2 >= MAX_PENDING:
        return False
    return is_tensor(runtime, t) and can_write(runtime, t)


@helper
def is_part_graded(context, runtime, t, cached, shift, source):
    """Write a tensor into the part of another one that a view showed, which from now on has a backward node for
    that; whether this is the usual case, and no first time."""
    none, true = item(runtime, RUNTIME_NONE), item(runtime, RUNTIME_TRUE)
    if not records_gradients(runtime) or not is_tensor(runtime, source):
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
    number = new_word(place)
    key = new_tuple(4) if number != 0 else 0
    if key == 0:
        drop(number)
        return False
    fill(key, 0, own(get(source, TENSOR_SPEC)))
    fill(key, 1, own(item(part, VIEW_PART_SPEC)))
    fill(key, 2, own(get(storage, STORAGE_SPEC)))
    fill(key, 3, number)
    found = own(find(item(context, ASSIGN_GRADED_ASSIGNMENTS), key))
    drop(key)
    if found == 0:
        return False
    done = is_graded_put(context, runtime, t, source, place, found)
    drop(found)
    return done


@helper
def is_graded_put(context, runtime, t, source, place, found):
    """Write a tensor into another one from a place on, in the way that was found, and give that its backward
    node; whether that went well."""
    storage, op = get(t, TENSOR_STORAGE), item(context, ASSIGN_SLICES_OP)
    first = new_edge(runtime, t)
    second = new_edge(runtime, source) if first != 0 else 0
    edges = new_pair(first, second)
    if edges == 0:
        return False
    value = new_written(
        runtime, own(item(found, GRADED_ASSIGNMENT_WRITING)), storage, place, own(value_of(source)),
        own(get(source, TENSOR_OFFSET)),
    )  # fmt: skip
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
    become(storage, value, version, call_site)
    return True


@helper
def is_part_assigned(context, runtime, t, cached, shift, value):
    """Write a tensor or a number into the part of a tensor that a view showed; whether this is the usual
    case."""
    part = item(get(cached, CACHED_VIEW_PARTS), 0)
    spec = item(part, VIEW_PART_SPEC)
    place = word_of(get(t, TENSOR_OFFSET)) + word_of(item(part, VIEW_PART_SHIFT)) + shift
    kind = class_of(value)
    if kind == item(runtime, RUNTIME_FLOAT_CLASS) or kind == item(runtime, RUNTIME_INT_CLASS):
        return is_number_assigned(
            runtime, item(context, ASSIGN_NUMBER_ASSIGNMENTS), t, spec, place, value
        )
    return is_assigned(runtime, item(context, ASSIGN_ASSIGNMENTS), t, spec, place, value)


@helper
def is_number_assigned(runtime, numbers, t, spec, place, number):
    """Write a number into a part of a tensor; whether that went well and is no first time."""
    storage = get(t, TENSOR_STORAGE)
    key = new_pair(own(spec), own(get(storage, STORAGE_SPEC)))
    found = own(find(numbers, key)) if key != 0 else 0
    drop(key)
    if found == 0:
        return False
    recipe, writing = (
        item(found, NUMBER_ASSIGNMENT_NUMBER),
        own(item(found, NUMBER_ASSIGNMENT_WRITING)),
    )
    source = append_pending(runtime, new_number_of(runtime, own(recipe), number))
    drop(found)
    if source == 0:
        drop(writing)
        return False
    value = new_written(runtime, writing, storage, place, source, own(zero(runtime)))
    return value != 0 and is_put(runtime, storage, value)


@helper
def is_assigned(runtime, assignments, t, spec, place, source):
    """Write a tensor into a part of another one, from a place on; whether this is the usual case, and no
    first time."""
    if not is_tensor(runtime, source) or not is_out_of_graph(runtime, source):
        return False
    if word_of(get(spec, SPEC_NUMEL)) == 0:
        return False
    storage, other = get(t, TENSOR_STORAGE), get(source, TENSOR_STORAGE)
    is_itself = (
        other == storage
        and get(source, TENSOR_SPEC) == spec
        and word_of(get(source, TENSOR_OFFSET)) == place
    )
    if not is_private(runtime, other) or (
        other == storage and not is_itself and meet(spec, place, source)
    ):
        return False
    assignment = new_assignment(
        assignments, get(source, TENSOR_SPEC), spec, get(storage, STORAGE_SPEC)
    )
    if assignment == 0:
        return False
    if is_itself:
        value = own(get(storage, STORAGE_VALUE))
    else:
        value = new_assigned(runtime, assignment, storage, place, source)
    drop(assignment)
    return value != 0 and is_put(runtime, storage, value)


@helper
def meet(spec, place, source):
    """Whether a tensor and a part of the same memory are both without gaps, and have elements in common."""
    given, first = get(source, TENSOR_SPEC), word_of(get(source, TENSOR_OFFSET))
    size, count = word_of(get(spec, SPEC_EXTENT)), word_of(get(given, SPEC_EXTENT))
    if size != word_of(get(spec, SPEC_NUMEL)) or count != word_of(get(given, SPEC_NUMEL)):
        return False
    return first < place + size and place < first + count


@helper
def new_assignment(assignments, given, part, whole):
    """How one spec becomes a part of another one, with a reference; 0 if that is not known."""
    key = new_tuple(3)
    if key == 0:
        return 0
    fill(key, 0, own(given))
    fill(key, 1, own(part))
    fill(key, 2, own(whole))
    found = own(find(assignments, key))
    drop(key)
    return found


@helper
def new_assigned(runtime, assignment, storage, place, source):
    """The value of a memory once another tensor was written into a part of it; 0 on failure."""
    none, value = item(runtime, RUNTIME_NONE), own(value_of(source))
    offset = own(get(source, TENSOR_OFFSET))
    writing = item(assignment, ASSIGNMENT_DIRECT)
    if writing == none or storage == get(source, TENSOR_STORAGE):
        value = new_converted(runtime, own(item(assignment, ASSIGNMENT_CONVERSION)), value, offset)
        offset = own(zero(runtime))
        writing = item(assignment, ASSIGNMENT_COPIED)
        if writing == none:
            drop(offset)
            return value
    if value == 0:
        drop(offset)
        return 0
    return new_written(runtime, own(writing), storage, place, value, offset)


@helper
def new_converted(runtime, recipe, value, offset):
    """The value of a copy of what lies in another one from an offset on; it takes the references over."""
    if offset == zero(runtime):
        drop(offset)
        offsets = own(item(runtime, RUNTIME_NONE))
    else:
        offsets = new_single(offset)
    return append_pending(
        runtime,
        new_node(runtime, recipe, new_single(value), offsets, own(item(runtime, RUNTIME_EMPTY))),
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
    return new_adopted(runtime, item(context, COMPUTE_ADOPT), t, made)


def flood(function, arguments, count, names):
    """Write a number, that of the context or an argument, into every place of a tensor."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, FLOOD_RUNTIME)
    positional = count & NUMBER_OF_ARGUMENTS
    number = item(context, FLOOD_NUMBER)
    given = int(number == item(runtime, RUNTIME_NONE))
    t = get(arguments, 0) if positional > 0 else 0
    is_usual = names == 0 and positional == 1 + given and is_whole(runtime, t)
    if is_usual and is_alone(runtime, arguments, 1):
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
    """Whether the first argument is a tensor for which no gradients are wanted, of up to `SMALL` elements,
    another part of whose memory no other argument shows."""
    t = get(arguments, 0)
    if not is_tensor(runtime, t) or not can_write(runtime, t) or not is_out_of_graph(runtime, t):
        return False
    if get(t, TENSOR_NEEDS_GRAD) == item(runtime, RUNTIME_TRUE):
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
    """Whether a tensor has no history, is no leaf, and is no view of one; or nobody records that."""
    if not records_gradients(runtime):
        return True
    if get(t, TENSOR_EDGE) != item(runtime, RUNTIME_NONE) or get(t, TENSOR_NEEDS_GRAD) == item(
        runtime, RUNTIME_TRUE
    ):
        return False
    view = get(t, TENSOR_VIEW_OF)
    if view == item(runtime, RUNTIME_NONE):
        return True
    return get(get(view, VIEW_BASE), TENSOR_NEEDS_GRAD) != item(runtime, RUNTIME_TRUE)


@helper
def is_value_put(runtime, writes, t, value, spec):
    """Write a value, which is taken over, into what a tensor shows; whether this is the usual case."""
    storage = get(t, TENSOR_STORAGE)
    if word_of(get(spec, SPEC_NUMEL)) == 0:
        drop(value)
        return False
    if spec != get(t, TENSOR_SPEC) or not shows_all(runtime, t):
        recipe = new_writing(runtime, writes, t, spec)
        if recipe == 0:
            drop(value)
            return False
        place = word_of(get(t, TENSOR_OFFSET))
        value = new_written(runtime, recipe, storage, place, value, own(zero(runtime)))
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
    return get(t, TENSOR_VERSION_COUNTER) == storage and is_secluded(runtime, storage)


@helper
def new_writing(runtime, writes, t, given):
    """The recipe that writes a spec into what a tensor shows, with a reference; 0 if that is not known, or
    something is to be converted."""
    spec = get(t, TENSOR_SPEC)
    key = new_tuple(4) if get(spec, SPEC_DTYPE) == get(given, SPEC_DTYPE) else 0
    if key == 0:
        return 0
    fill(key, 0, own(spec))
    fill(key, 1, own(given))
    fill(key, 2, own(get(get(t, TENSOR_STORAGE), STORAGE_SPEC)))
    fill(key, 3, own(zero(runtime)))
    recipe = own(find(writes, key))
    drop(key)
    return recipe


@helper
def new_written(runtime, recipe, storage, place, value, offset):
    """The value of a memory, a part of which, from a place on, shows another value now, from an offset on; the
    references from the recipe, the value and the offset are taken over."""
    inputs = new_pair(own(get(storage, STORAGE_VALUE)), value)
    offsets = new_pair(new_word(place), offset)
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
