"""Writing in place, compiled: what `graph/export.py`, `graph/inplace.py` and `ops/index.py` do with a tensor,
on the same objects. What is written into a graph is in `graph_writes.py`.

What is not the usual case (memory shared with the outside, operands that overlap, results of another shape
or dtype, views of all of a tensor in a graph) is left to a function in Python, before anything has been done.
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
    forget_error,
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
    new_float_word,
    new_recorded,
    reads_shared,
    recorded,
    value_of,
)
from .factories import new_number, new_number_on
from .graph_writes import (
    is_graded,
    is_history_adopted,
    is_part_adopted,
    is_part_graded,
    is_part_of_graph,
    is_same_part,
    is_view_graded,
    takes_history,
)
from .item import FLOAT, KIND, SIGNED, SIZE_AT, TRUTH
from .signatures import SIZE, TENSORS, describe, known
from .tensors import can_take_fast_path, is_private, is_tensor, new_node, new_tensor, settled, zero
from .views import OUT_OF_RANGE, shift_of_numbers
from .writing import (
    append_pending,
    can_change,
    can_write,
    covers,
    is_met_by,
    is_out_of_graph,
    is_put,
    is_small,
    is_whole,
    meets,
    new_written,
    shows_all,
)

ADOPT_FALLBACK = ADOPT_RUNTIME = ADOPT_WRITES = BOUND
ASSIGNMENT_CONVERSION = ASSIGNMENT_COPIED = ASSIGNMENT_DIRECT = BOUND
ASSIGN_ASSIGNMENTS = ASSIGN_CACHED = ASSIGN_FALLBACK = ASSIGN_NUMBER_ASSIGNMENTS = BOUND
ASSIGN_COPY = ASSIGN_FILL = ASSIGN_RUNTIME = BOUND
CACHED_VIEW_PARTS = BOUND
COMPUTE_ADOPT = COMPUTE_FALLBACK = COMPUTE_MAKE = COMPUTE_RUNTIME = BOUND
COPY_ADOPT = COPY_ASSIGNMENTS = COPY_FALLBACK = COPY_MAKE = COPY_RUNTIME = BOUND
DTYPE_KNOWN_AS = BOUND
FLOOD_FALLBACK = FLOOD_NUMBER = FLOOD_RECIPES = FLOOD_RUNTIME = BOUND
FUNCTION_CONTEXT = BOUND
MAX_PENDING = BOUND
NUMBER_ASSIGNMENT_NUMBER = NUMBER_ASSIGNMENT_WRITING = BOUND
OP_RECORD_OVER = OP_RECORD_RECIPE = BOUND
RECIPE_HERE = RECIPE_PICKS = RECIPE_SPEC = BOUND
RECORDER_ADOPT = RECORDER_FALLBACK = RECORDER_RUNTIME = BOUND
REPLACE_FALLBACK = REPLACE_RUNTIME = BOUND
RUNTIME_EMPTY = RUNTIME_FALSE = RUNTIME_FLOAT_CLASS = RUNTIME_INT_CLASS = RUNTIME_NONE = BOUND
RUNTIME_PENDING = RUNTIME_TRUE = BOUND
SPEC_DTYPE = SPEC_EXTENT = SPEC_NUMEL = BOUND
STORAGE_CALL_SITE = STORAGE_SPEC = STORAGE_VALUE = STORAGE_VERSION = BOUND
TENSOR_EDGE = TENSOR_NEEDS_GRAD = TENSOR_OFFSET = TENSOR_SPEC = TENSOR_STORAGE = BOUND
TENSOR_VIEW_OF = BOUND
VIEW_PART_SHIFT = VIEW_PART_SPEC = BOUND


def write(function, arguments, count, names):
    """Write the result of an op on a tensor, and perhaps another one or a Python number, into it."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, RECORDER_RUNTIME)
    call = stack_words(CALL_SIZE)
    positional = count & NUMBER_OF_ARGUMENTS
    t = get(arguments, 0) if positional > 0 else 0
    if names == 0 and t != 0 and is_tensor(runtime, t) and can_write(runtime, t):
        is_all = is_whole(runtime, t)
        may_be_graded = takes_history(runtime, t) or is_part_of_graph(runtime, t)
        is_usual = is_all or may_be_graded or is_out_of_graph(runtime, t)
        if is_usual and is_known(context, runtime, arguments, positional, call):
            if may_be_graded and get(call, CALL_HISTORY) != 0 and not meets(t, call):
                made = new_recorded(context, runtime, call)
                made = new_adopted(runtime, item(context, RECORDER_ADOPT), t, made)
            else:
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
def new_over_itself(context, runtime, t, call, is_all):
    """The tensor, what was found recorded as its new value; 0 if this is not the usual case.

    The references are taken over.
    """
    op_record = get(call, CALL_OP_RECORD)
    recipe, none = 0, item(runtime, RUNTIME_NONE)
    if is_all and get(op_record, OP_RECORD_OVER) == none and is_small(t):
        is_all = False  # a result of its own, which the tensor takes over
    if get(call, CALL_HISTORY) == 0 and not meets(t, call):
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
    return own(t) if node != 0 and is_put(runtime, t, node) else 0


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


def adopt(function, arguments, count, names):
    """Write a new tensor into another one, all of its memory or a part."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, ADOPT_RUNTIME)
    t, made = get(arguments, 0), get(arguments, 8)
    are_two = count & NUMBER_OF_ARGUMENTS == 2 and is_tensor(runtime, t)
    is_graded = (
        are_two
        and is_tensor(runtime, made)
        and get(made, TENSOR_EDGE) != item(runtime, RUNTIME_NONE)
    )
    if is_graded and (
        is_history_adopted(runtime, t, made) or is_part_adopted(context, runtime, t, made)
    ):
        return own(t)
    if are_two and can_adopt(runtime, t, made):
        writes, spec = item(context, ADOPT_WRITES), get(made, TENSOR_SPEC)
        if is_value_put(runtime, writes, t, own(value_of(made)), spec):
            return own(t)
    if has_failed() != 0:
        return 0
    return new_result(item(context, ADOPT_FALLBACK), arguments, count, names)


def copy(function, arguments, count, names):
    """Copy a tensor into another one, all of its memory or a part."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, COPY_RUNTIME)
    t, source = get(arguments, 0), get(arguments, 8)
    if names == 0 and count & NUMBER_OF_ARGUMENTS == 2 and can_change(runtime, t):
        place, assignments = word_of(get(t, TENSOR_OFFSET)), item(context, COPY_ASSIGNMENTS)
        done = is_out_of_graph(runtime, t) and is_assigned(
            runtime, assignments, t, get(t, TENSOR_SPEC), place, source
        )
        if done or (has_failed() == 0 and is_view_graded(context, runtime, t, source)):
            return own(t)
        if has_failed() == 0 and is_copied_whole(runtime, t, source):
            made = new_result(item(context, COPY_MAKE), arguments, 2, 0)
            return 0 if made == 0 else new_adopted(runtime, item(context, COPY_ADOPT), t, made)
    if has_failed() != 0:
        return 0
    return new_result(item(context, COPY_FALLBACK), arguments, count, names)


def assign(function, arguments, count, names):
    """`x[key] = value` with a key that gave a view before, a tensor or a number."""
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
            if shows_it(runtime, t, cached, shift):
                done = is_all_put(context, runtime, t, value)
            elif is_same_part(runtime, t, cached, shift, value):
                done = is_put(runtime, t, own(value_of(t)))
            elif is_tensor(runtime, value):
                done = is_part_graded(context, runtime, t, cached, shift, value)
            elif get(t, TENSOR_EDGE) != item(runtime, RUNTIME_NONE) and takes_history(runtime, t):
                number = new_number_for_part(context, runtime, t, cached, value)
                done = number != 0 and is_part_graded(context, runtime, t, cached, shift, number)
                drop(number)
        drop(cached)
        if done:
            return own(item(runtime, RUNTIME_NONE))
    if has_failed() != 0:
        return 0
    return new_result(item(context, ASSIGN_FALLBACK), arguments, count, names)


@helper
def is_copied_whole(runtime, t, source):
    """Whether a tensor is to become a copy of another one that looks like it, and one of them is in a graph, or
    is to be."""
    if not is_tensor(runtime, source) or not takes_history(runtime, t):
        return False
    true = item(runtime, RUNTIME_TRUE)
    if get(t, TENSOR_NEEDS_GRAD) != true and get(source, TENSOR_NEEDS_GRAD) != true:
        return False
    apart = get(source, TENSOR_STORAGE) != get(t, TENSOR_STORAGE)
    return apart and get(source, TENSOR_SPEC) == get(t, TENSOR_SPEC)


@helper
def shows_it(runtime, t, cached, shift):
    """Whether a view that a key gave shows all of a tensor in a graph, no view itself, as it lies there."""
    part = item(get(cached, CACHED_VIEW_PARTS), 0)
    if get(t, TENSOR_VIEW_OF) != item(runtime, RUNTIME_NONE):
        return False
    is_all = item(part, VIEW_PART_SPEC) == get(t, TENSOR_SPEC)
    is_graded = get(t, TENSOR_NEEDS_GRAD) == item(runtime, RUNTIME_TRUE)
    return is_all and is_graded and word_of(item(part, VIEW_PART_SHIFT)) + shift == 0


@helper
def is_all_put(context, runtime, t, value):
    """Copy a tensor like it into all of a tensor, or fill that with a number; whether it was one of these, and
    went well."""
    is_copied = is_tensor(runtime, value) and get(value, TENSOR_SPEC) == get(t, TENSOR_SPEC)
    if not is_copied and not is_number(runtime, value):
        return False
    words = stack_words(2)
    put(words, 0, t)
    put(words, 8, value)
    done = new_result(item(context, ASSIGN_COPY if is_copied else ASSIGN_FILL), words, 2, 0)
    drop(done)
    return done != 0


@helper
def is_part_assigned(context, runtime, t, cached, shift, value):
    """Write a tensor or a number into the part of a tensor that a view showed; whether this is the usual
    case."""
    part = item(get(cached, CACHED_VIEW_PARTS), 0)
    spec = item(part, VIEW_PART_SPEC)
    place = word_of(get(t, TENSOR_OFFSET)) + word_of(item(part, VIEW_PART_SHIFT)) + shift
    if is_number(runtime, value):
        return is_number_assigned(
            runtime, item(context, ASSIGN_NUMBER_ASSIGNMENTS), t, spec, place, value
        )
    return is_assigned(runtime, item(context, ASSIGN_ASSIGNMENTS), t, spec, place, value)


@helper
def is_number(runtime, value):
    """Whether this is a number or a truth of Python's."""
    kind = class_of(value)
    is_usual = kind == item(runtime, RUNTIME_FLOAT_CLASS) or kind == item(
        runtime, RUNTIME_INT_CLASS
    )
    return is_usual or is_truth(runtime, value)


@helper
def new_number_for_part(context, runtime, t, cached, value):
    """A number as a tensor without axes, to be written into the part of a tensor that a view showed; 0 if that
    is not known, or no number."""
    spec = item(item(get(cached, CACHED_VIEW_PARTS), 0), VIEW_PART_SPEC)
    if not is_number(runtime, value):
        return 0
    key = new_pair(own(spec), own(get(get(t, TENSOR_STORAGE), STORAGE_SPEC)))
    found = own(find(item(context, ASSIGN_NUMBER_ASSIGNMENTS), key)) if key != 0 else 0
    drop(key)
    word = new_fitting_word(runtime, spec, value) if found != 0 else 0
    if word == 0:
        drop(found)
        return 0
    recipe = item(found, NUMBER_ASSIGNMENT_NUMBER)
    node = append_pending(runtime, new_number_on(runtime, own(recipe), word))
    out = new_tensor(runtime, node, get(recipe, RECIPE_SPEC)) if node != 0 else 0
    drop(found)
    return out


@helper
def is_number_assigned(runtime, numbers, t, spec, place, number):
    """Write a number into a part of a tensor; whether that went well and is no first time."""
    storage = get(t, TENSOR_STORAGE)
    key = new_pair(own(spec), own(get(storage, STORAGE_SPEC)))
    found = own(find(numbers, key)) if key != 0 else 0
    drop(key)
    if found == 0:
        return False
    word = new_fitting_word(runtime, spec, number)
    if word == 0:
        drop(found)
        return False
    recipe, writing = (
        item(found, NUMBER_ASSIGNMENT_NUMBER),
        own(item(found, NUMBER_ASSIGNMENT_WRITING)),
    )
    source = append_pending(runtime, new_number_on(runtime, own(recipe), word))
    drop(found)
    if source == 0:
        drop(writing)
        return False
    value = new_written(runtime, writing, storage, place, source, own(zero(runtime)))
    return value != 0 and is_put(runtime, t, value)


@helper
def is_truth(runtime, value):
    """Whether this is Python's True or False."""
    return value == item(runtime, RUNTIME_TRUE) or value == item(runtime, RUNTIME_FALSE)


@helper
def new_fitting_word(runtime, spec, number):
    """The word of a number in the dtype of a spec; 0 where it does not fit as it is, and Python has to see to
    it."""
    form = word_of(get(get(spec, SPEC_DTYPE), DTYPE_KNOWN_AS))
    kind, bits = form & KIND, 8 * (form >> SIZE_AT)
    if form == 0 or kind == FLOAT:
        return new_float_word(number)
    if is_truth(runtime, number):
        return new_word(int(number == item(runtime, RUNTIME_TRUE)))
    if class_of(number) != item(runtime, RUNTIME_INT_CLASS):
        return 0
    whole = word_of(number)
    if whole == -1 and has_failed() != 0:
        forget_error()
        return 0
    if kind == TRUTH:
        return new_word(int(whole != 0))
    if bits < 64:
        end = 1 << (bits - 1 if kind == SIGNED else bits)
        lowest = -end if kind == SIGNED else 1 - end
        if whole < lowest or whole >= end:
            return 0
    return own(number)


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
    return value != 0 and is_put(runtime, t, value)


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


def compute(function, arguments, count, names):
    """Write what a function makes of a tensor, all of a memory, and other arguments into the tensor."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, COMPUTE_RUNTIME)
    positional = count & NUMBER_OF_ARGUMENTS
    t = get(arguments, 0) if positional > 0 else 0
    is_usual = t != 0 and (
        is_alone(runtime, arguments, positional) or is_graded(runtime, arguments, positional)
    )
    if not is_usual:
        return new_result(item(context, COMPUTE_FALLBACK), arguments, count, names)
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
    return node != 0 and is_put(runtime, t, node)


@helper
def is_alone(runtime, arguments, positional):
    """Whether the first argument is a tensor whose history nobody records, of up to `SMALL` elements, another
    part of whose memory no other argument shows."""
    t = get(arguments, 0)
    if not is_tensor(runtime, t) or not can_write(runtime, t) or not is_out_of_graph(runtime, t):
        return False
    return is_small(t) and not is_met_by(runtime, t, arguments, positional)


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
    return value != 0 and is_put(runtime, t, value)


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
