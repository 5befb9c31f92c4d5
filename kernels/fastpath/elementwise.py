"""Recording an elementwise op, compiled: `graph/record.py` step by step, on the same objects.

A recorder is a callable object with a context, a tuple of what its op needs. What is not the usual case
(views that need gradients, operands that are no tensors, a signature never seen) is left to the recorder's
function in Python, before anything has been done.
"""

import numpy as np

from ..language.abi import bits_of_float, helper, stack_words
from .cpython import (
    BOUND,
    NUMBER_OF_ARGUMENTS,
    append,
    class_of,
    drop,
    fill,
    find,
    float_of,
    forget_error,
    get,
    has_failed,
    item,
    length,
    new_pair,
    new_result,
    new_single,
    new_tuple,
    new_word,
    own,
    put,
    word_of,
)
from .grad_nodes import attended, give_history, history_of, new_edge, tracked
from .into import new_into
from .other_sizes import new_kept
from .tensors import (
    can_take_fast_path,
    is_private,
    is_tensor,
    new_node,
    new_tensor,
    records_gradients,
    settled,
    version_of,
    zero,
)

FUNCTION_CONTEXT = BOUND
OP_RECORD_DIFFERENTIABLE = OP_RECORD_FLOATING = OP_RECORD_OPERANDS = OP_RECORD_RECIPE = BOUND
OP_RECORD_WHOLE = RECIPE_OUTPUTS = RECIPE_SPEC = BOUND
RECORDER_ARITY = RECORDER_NODE_CLASS = RECORDER_OP = RECORDER_OP_RECORDS = BOUND
RECORDER_RUNTIME = RECORDER_SIZES = BOUND
RECORDER_SAVES = RECORDER_FALLBACK = BOUND
RUNTIME_EMPTY = RUNTIME_FLOAT_CLASS = RUNTIME_INTEGERS = RUNTIME_INT_CLASS = BOUND
RUNTIME_NONE = BOUND
RUNTIME_NUMBERS = RUNTIME_PENDING = RUNTIME_TRUE = BOUND
STORAGE_VALUE = TENSOR_OFFSET = TENSOR_SPEC = TENSOR_STORAGE = BOUND

# What a call records, in words: an op record, the node's inputs, offsets and scalars, whether a backward
# node comes along, and the operands that are tensors (0 for others).
CALL_OP_RECORD, CALL_INPUTS, CALL_OFFSETS, CALL_SCALARS, CALL_HISTORY, FIRST, SECOND = range(
    0, 56, 8
)
CALL_SIZE = 7


def record(recorder, arguments, count, names):
    """Record an op on one tensor, on two, or on a tensor and a Python number in either order."""
    context = get(recorder, FUNCTION_CONTEXT)
    runtime = item(context, RECORDER_RUNTIME)
    call = stack_words(CALL_SIZE)
    if names == 0 and is_known(context, runtime, arguments, count & NUMBER_OF_ARGUMENTS, call):
        out = new_recorded(context, runtime, call)
        if reads_shared(runtime, get(call, FIRST)) or reads_shared(runtime, get(call, SECOND)):
            out = settled(runtime, out)
        if out != 0:
            return out
    out = new_into(runtime, recorder, arguments, count, names) if names != 0 else 0
    if out != 0 or has_failed() != 0:
        return out
    return new_result(item(context, RECORDER_FALLBACK), arguments, count, names)


@helper
def new_recorded(context, runtime, call):
    """The result of a call, with its backward node where it is to have one, and its node in `pending`; it takes
    the call's references over. 0 if this turns out not to be the usual case."""
    op_record, scalars = get(call, CALL_OP_RECORD), get(call, CALL_SCALARS)
    recipe = own(get(op_record, OP_RECORD_RECIPE))
    out = around(runtime, recipe, get(call, CALL_INPUTS), get(call, CALL_OFFSETS), scalars)
    if get(call, CALL_HISTORY) != 0 and out != 0:
        first, second = get(call, FIRST), get(call, SECOND)
        kept = 0 if scalars == item(runtime, RUNTIME_EMPTY) else scalars
        out = with_history(context, runtime, op_record, first, second, kept, out)
    drop(op_record)
    out = recorded(runtime, out)
    return attended(runtime, out) if get(call, CALL_HISTORY) != 0 else out


@helper
def reads_shared(runtime, t):
    """Whether this is a tensor, not 0, whose memory others look at."""
    return t != 0 and not is_private(runtime, get(t, TENSOR_STORAGE))


@helper
def is_known(context, runtime, arguments, count, call):
    """Find what a call records; its references are the caller's then. False if it is not usual."""
    if item(context, RECORDER_ARITY) != item(item(runtime, RUNTIME_INTEGERS), min(count, 3)):
        return False
    a = get(arguments, 0)
    b = get(arguments, 8) if count == 2 else 0
    if count == 1:
        return is_tensor(runtime, a) and on_tensor(context, runtime, a, call)
    if is_tensor(runtime, a):
        if is_tensor(runtime, b):
            return on_tensors(context, runtime, a, b, call)
        return on_tensor_and_number(context, runtime, a, b, 0, call)
    return is_tensor(runtime, b) and on_tensor_and_number(context, runtime, b, a, 1, call)


@helper
def history_of_call(runtime, history):
    """What tensors ask of an op on them, in a thread that may have switched that off."""
    return 0 if history == 0 else history * records_gradients(runtime)


@helper
def on_tensor(context, runtime, a, call):
    """Find what an op on one tensor records; whether this is the usual case."""
    if not can_take_fast_path(runtime):
        return False
    history = history_of_call(runtime, history_of(runtime, a))
    if history > 1:
        return False
    op_record = new_known(context, runtime, get(a, TENSOR_SPEC))
    if op_record == 0:
        return False
    scalars = own(item(runtime, RUNTIME_EMPTY))
    return fill_call(runtime, call, op_record, scalars, history, a, 0)


@helper
def on_tensors(context, runtime, a, b, call):
    """Find what an op on two tensors records; whether this is the usual case."""
    if not can_take_fast_path(runtime):
        return False
    history = history_of_call(runtime, max(history_of(runtime, a), history_of(runtime, b)))
    if history > 1:
        return False
    key = new_pair(own(get(a, TENSOR_SPEC)), own(get(b, TENSOR_SPEC)))
    if key == 0:
        return False
    op_record = new_known(context, runtime, key)
    drop(key)
    if op_record == 0:
        return False
    scalars = own(item(runtime, RUNTIME_EMPTY))
    return fill_call(runtime, call, op_record, scalars, history, a, b)


@helper
def on_tensor_and_number(context, runtime, t, number, at, call):
    """Find what an op on a tensor, its operand `at`, and a number records; whether this is usual."""
    kind = class_of(number)
    if kind != item(runtime, RUNTIME_FLOAT_CLASS) and kind != item(runtime, RUNTIME_INT_CLASS):
        return False
    if not can_take_fast_path(runtime):
        return False
    history = history_of_call(runtime, history_of(runtime, t))
    if history > 1:
        return False
    spec = own(get(t, TENSOR_SPEC))
    own(kind)
    key = new_pair(kind, spec) if at else new_pair(spec, kind)
    if key == 0:
        return False
    op_record = new_known(context, runtime, key)
    drop(key)
    word = new_number_word(runtime, op_record, number) if op_record != 0 else 0
    if word == 0:
        drop(op_record)
        return False
    scalars = new_single(word)
    if at:
        return fill_call(runtime, call, op_record, scalars, history, 0, t)
    return fill_call(runtime, call, op_record, scalars, history, t, 0)


@helper
def new_known(context, runtime, key):
    """What is known of an op on operands such as these, or what a template makes of that; 0 if nothing is."""
    op_records = item(context, RECORDER_OP_RECORDS)
    found = own(find(op_records, key))
    return (
        found if found != 0 else new_kept(runtime, item(context, RECORDER_SIZES), op_records, key)
    )


LARGEST_SINGLE, LARGEST = float(np.finfo(np.float32).max), float(np.finfo(np.float64).max)


@helper
def new_float_word(number):
    """The word of a number as a float; 0 for one beyond a float32, of which Python may word an error."""
    value = float_of(number)
    if value == -1.0 and has_failed() != 0:
        forget_error()
        return 0
    if LARGEST_SINGLE < value <= LARGEST or -LARGEST <= value < -LARGEST_SINGLE:
        return 0
    return new_word(bits_of_float(value))


@helper
def new_number_word(runtime, op_record, number):
    """The word of a number in the dtype that an op computes in; 0 where Python has to see to it."""
    if get(op_record, OP_RECORD_FLOATING) == item(runtime, RUNTIME_TRUE):
        return new_float_word(number)
    if get(op_record, OP_RECORD_WHOLE) != item(runtime, RUNTIME_TRUE) or class_of(number) != item(
        runtime, RUNTIME_INT_CLASS
    ):
        return 0
    if word_of(number) == -1 and has_failed() != 0:
        forget_error()
        return 0
    return own(number)


@helper
def fill_call(runtime, call, op_record, scalars, history, first, second):
    """Note what a call on these tensors records: True."""
    put(call, CALL_OP_RECORD, op_record)
    put(call, CALL_SCALARS, scalars)
    put(call, CALL_HISTORY, history)
    put(call, FIRST, first)
    put(call, SECOND, second)
    if first != 0 and second != 0:
        put(call, CALL_INPUTS, new_pair(own(value_of(first)), own(value_of(second))))
        if offset_of(first) == zero(runtime) and offset_of(second) == zero(runtime):
            put(call, CALL_OFFSETS, own(item(runtime, RUNTIME_NONE)))
        else:
            put(call, CALL_OFFSETS, new_pair(own(offset_of(first)), own(offset_of(second))))
        return True
    t = first if first != 0 else second
    put(call, CALL_INPUTS, new_single(own(value_of(t))))
    is_shifted = offset_of(t) != zero(runtime)
    put(
        call,
        CALL_OFFSETS,
        new_single(own(offset_of(t))) if is_shifted else own(item(runtime, RUNTIME_NONE)),
    )
    return True


@helper
def value_of(t):
    """The value of a tensor."""
    return get(get(t, TENSOR_STORAGE), STORAGE_VALUE)


@helper
def offset_of(t):
    """Where it starts."""
    return get(t, TENSOR_OFFSET)


@helper
def around(runtime, recipe, inputs, offsets, scalars):
    """A tensor without history around a new node, which takes the references over; 0 on failure."""
    node = new_node(runtime, recipe, inputs, offsets, scalars)
    return 0 if node == 0 else new_tensor(runtime, node, get(recipe, RECIPE_SPEC))


@helper
def recorded(runtime, out):
    """The result, its node put into `pending`."""
    if out != 0:
        node = get(get(out, TENSOR_STORAGE), STORAGE_VALUE)
        if append(item(runtime, RUNTIME_PENDING), node) != 0:
            drop(out)
            return 0
    return out


@helper
def operand(saves, k, a, b):
    """What is to be saved in place `k`: 0 for a number, and any operand for the result."""
    return b if word_of(item(saves, k)) == 1 else a


@helper
def new_saved(runtime, saves, a, b, out):
    """What backward needs: operands by number and the result's storage for -1, with their versions."""
    count = 0
    for k in range(length(saves)):
        count += word_of(item(saves, k)) < 0 or operand(saves, k, a, b) != 0
    if count == 0:
        return own(item(runtime, RUNTIME_NUMBERS if length(saves) else RUNTIME_EMPTY))
    saved = new_tuple(2 * count)
    if saved == 0:
        return 0
    at = 0
    for k in range(length(saves)):
        t = operand(saves, k, a, b)
        if word_of(item(saves, k)) < 0:
            fill(saved, at, own(get(out, TENSOR_STORAGE)))
            fill(saved, at + 1, own(zero(runtime)))
            at += 2
        elif t != 0:
            version = version_of(runtime, t)
            if version == 0:
                drop(saved)
                return 0
            fill(saved, at, own(t))
            fill(saved, at + 1, own(version))
            at += 2
    return saved


@helper
def with_history(context, runtime, op_record, a, b, scalars, out):
    """The result with its backward node. Operands that are numbers, or not there, are 0.

    0 if this turns out not to be the usual case; the result is dropped then.
    """
    if get(op_record, OP_RECORD_DIFFERENTIABLE) != item(runtime, RUNTIME_TRUE):
        return out
    none = item(runtime, RUNTIME_NONE)
    first = new_edge(runtime, a)
    alone = b == 0 and scalars == 0
    second = 0 if alone else new_edge(runtime, b)
    if first == 0 or (second == 0 and not alone):
        drop(first)
        drop(second)
        drop(out)
        return 0
    mask = int(first != none)
    if not alone:
        mask += 2 * int(second != none)
    integers = item(runtime, RUNTIME_INTEGERS)
    saves = find(item(context, RECORDER_SAVES), item(integers, mask))
    edges = new_single(first) if alone else new_pair(first, second)
    saved = 0 if saves == 0 else new_saved(runtime, saves, a, b, out)
    recipe = get(op_record, OP_RECORD_RECIPE)
    out = give_history(
        runtime, item(context, RECORDER_NODE_CLASS), item(context, RECORDER_OP), op_record,
        get(op_record, OP_RECORD_OPERANDS), get(recipe, RECIPE_OUTPUTS), edges, saved,
        own(scalars if scalars != 0 else item(runtime, RUNTIME_EMPTY)), own(item(integers, mask)), out,
    )  # fmt: skip
    return tracked(runtime, recipe, out)
