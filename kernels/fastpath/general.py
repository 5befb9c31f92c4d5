"""Recording an elementwise op on any number of operands, and with attributes, compiled: `elementwise` of
`graph/record.py` on the same objects.

What is not the usual case is left to that function, before anything has been done.
"""

from ..language.abi import helper, stack_words
from .cpython import (
    BOUND,
    NUMBER_OF_ARGUMENTS,
    class_of,
    drop,
    fill,
    find,
    get,
    has_failed,
    item,
    length,
    new_attribute,
    new_result,
    new_tuple,
    own,
    word_of,
)
from .elementwise import (
    around,
    new_number_word,
    offset_of,
    reads_shared,
    recorded,
    value_of,
)
from .grad_nodes import attended, give_history, history_of, new_edge, tracked
from .into import new_into
from .other_sizes import new_kept
from .signatures import SIZE, describe, known, tensor
from .tensors import can_take_fast_path, is_tensor, records_gradients, settled, version_of, zero

CHOSEN_ATTRIBUTES = CHOSEN_OP = CHOSEN_OPERANDS = FUNCTION_CONTEXT = BOUND
GENERAL_ARITY = GENERAL_ATTRIBUTES = GENERAL_DEFAULTS = GENERAL_MOST = GENERAL_OP = BOUND
GENERAL_CHOSEN = GENERAL_NODE_CLASS = GENERAL_OP_RECORDS = GENERAL_RUNTIME = BOUND
GENERAL_SAVES = GENERAL_SIZES = GENERAL_FALLBACK = BOUND
MOST_OPERANDS = BOUND
OP_RECORD_DIFFERENTIABLE = OP_RECORD_OPERANDS = OP_RECORD_OVER = OP_RECORD_RECIPE = BOUND
RECIPE_OUTPUTS = BOUND
RUNTIME_EMPTY = RUNTIME_FLOAT_CLASS = RUNTIME_INTEGERS = RUNTIME_INT_CLASS = BOUND
RUNTIME_NONE = BOUND
RUNTIME_NUMBERS = RUNTIME_TRUE = RUNTIME_TUPLE_CLASS = BOUND
TENSOR_OFFSET = TENSOR_SPEC = TENSOR_STORAGE = BOUND


def elementwise(function, arguments, count, names):
    """Record an op on operands, a tuple, with attributes, a tuple; the result may be one that writes
    over the first operand."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, GENERAL_RUNTIME)
    op, operands, attributes = get(arguments, 0), get(arguments, 8), get(arguments, 16)
    is_over = count & NUMBER_OF_ARGUMENTS == 4 and get(arguments, 24) == item(runtime, RUNTIME_TRUE)
    out = new_out(context, runtime, op, operands, attributes, is_over) if names == 0 else 0
    if out != 0 or has_failed() != 0:
        return out
    return new_result(item(context, GENERAL_FALLBACK), arguments, count, names)


def choose(function, arguments, count, names):
    """Record the op that was chosen when a function was called with such arguments before."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, GENERAL_RUNTIME)
    looks = stack_words(SIZE)
    out = 0
    if describe(runtime, arguments, count, names, looks):
        chosen = known(item(context, GENERAL_CHOSEN), looks)
        operands = new_operands(runtime, looks, item(chosen, CHOSEN_OPERANDS)) if chosen != 0 else 0
        if operands != 0:
            attributes = item(chosen, CHOSEN_ATTRIBUTES)
            out = new_out(context, runtime, item(chosen, CHOSEN_OP), operands, attributes, False)
        drop(operands)
        drop(chosen)
    if out == 0 and names != 0 and has_failed() == 0:
        out = new_into(runtime, function, arguments, count, names)
    if out != 0 or has_failed() != 0:
        return out
    return new_result(item(context, GENERAL_FALLBACK), arguments, count, names)


def call_with_attributes(function, arguments, count, names):
    """Record an op with attributes, called with its operands first."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, GENERAL_RUNTIME)
    positional, out = count & NUMBER_OF_ARGUMENTS, 0
    arity, most = word_of(item(context, GENERAL_ARITY)), word_of(item(context, GENERAL_MOST))
    if arity <= positional <= most:
        attributes = new_attributes(context, arguments + 8 * arity, positional - arity, names)
        operands = new_tuple(arity) if attributes != 0 else 0
        for k in range(arity if operands != 0 else 0):
            fill(operands, k, own(get(arguments, 8 * k)))
        if operands != 0:
            out = new_out(context, runtime, item(context, GENERAL_OP), operands, attributes, False)
        drop(operands)
        drop(attributes)
    if out == 0 and names != 0 and has_failed() == 0:
        out = new_into(runtime, function, arguments, count, names)
    if out != 0 or has_failed() != 0:
        return out
    return new_result(item(context, GENERAL_FALLBACK), arguments, count, names)


@helper
def new_attributes(context, values, first, names):
    """The attributes in their order: the first ones are given so, others by names, or have their defaults; 0 if
    a name is none of theirs.
    """
    known, defaults = item(context, GENERAL_ATTRIBUTES), item(context, GENERAL_DEFAULTS)
    given = length(names) if names != 0 else 0
    attributes, found = new_tuple(length(known)), 0
    for k in range(length(known) if attributes != 0 else 0):
        value = get(values, 8 * k) if k < first else item(defaults, k)
        for j in range(given if k >= first else 0):
            if item(names, j) == item(known, k):
                value = get(values, 8 * (first + j))
                found += 1
        fill(attributes, k, own(value))
    if found == given or attributes == 0:
        return attributes
    drop(attributes)
    return 0


@helper
def new_operands(runtime, looks, parts):
    """The operands that were chosen, of the tensors of a call by number and of numbers."""
    operands = new_tuple(length(parts))
    for k in range(length(parts) if operands != 0 else 0):
        part = item(parts, k)
        is_number = class_of(part) == item(runtime, RUNTIME_TUPLE_CLASS)
        fill(operands, k, own(item(part, 0) if is_number else tensor(looks, word_of(part))))
    return operands


@helper
def new_out(context, runtime, op, operands, attributes, is_over):
    """The result of an op; 0 if this is not the usual case."""
    history = asked_history(runtime, operands)
    if history > 1:
        return 0
    op_record = new_op_record(context, runtime, op, operands)
    scalars = 0 if op_record == 0 else new_scalars(runtime, op_record, operands, attributes)
    used = item(runtime, RUNTIME_NONE)
    if scalars != 0:
        used = get(op_record, OP_RECORD_OVER if is_over else OP_RECORD_RECIPE)
    out = 0
    if used != item(runtime, RUNTIME_NONE):
        inputs, offsets = new_inputs(runtime, operands), new_offsets(runtime, operands)
        out = around(runtime, own(used), inputs, offsets, own(scalars))
        if history != 0 and out != 0:
            out = with_history(context, runtime, op, op_record, operands, scalars, out)
        out = recorded(runtime, out)
        if read_shared(runtime, operands):
            out = settled(runtime, out)
        if history != 0:
            out = attended(runtime, out)
    drop(op_record)
    drop(scalars)
    return out


@helper
def read_shared(runtime, operands):
    """Whether others look at the memory of an operand."""
    is_shared = False
    for k in range(length(operands)):
        t = item(operands, k)
        is_shared |= is_tensor(runtime, t) and reads_shared(runtime, t)
    return is_shared


@helper
def asked_history(runtime, operands):
    """What the operands ask of the op: 0 nothing, 1 a backward node, 2 more than is usual."""
    if not can_take_fast_path(runtime) or length(operands) > MOST_OPERANDS:
        return 2
    history = 0
    for k in range(length(operands)):
        t = item(operands, k)
        if is_tensor(runtime, t):
            history = max(history, history_of(runtime, t))
        elif class_of(t) != item(runtime, RUNTIME_FLOAT_CLASS) and class_of(t) != item(
            runtime, RUNTIME_INT_CLASS
        ):
            return 2
    return 0 if history == 0 else history * records_gradients(runtime)


@helper
def new_op_record(context, runtime, op, operands):
    """What is known of an op on such operands, with a reference; 0 if there is none yet."""
    op_records = new_attribute(op, item(context, GENERAL_OP_RECORDS))
    key = new_key(runtime, operands) if op_records != 0 else 0
    op_record = own(find(op_records, key)) if key != 0 else 0
    if key != 0 and op_record == 0:
        sizes = new_attribute(op, item(context, GENERAL_SIZES))
        op_record = new_kept(runtime, sizes, op_records, key) if sizes != 0 else 0
        drop(sizes)
    drop(key)
    drop(op_records)
    return op_record


@helper
def new_key(runtime, operands):
    """What an op record is known by: what operands are, in a tuple if there are several; 0 on failure."""
    if length(operands) == 1:
        return own(sign_of(runtime, item(operands, 0)))
    key = new_tuple(length(operands))
    for k in range(length(operands) if key != 0 else 0):
        fill(key, k, own(sign_of(runtime, item(operands, k))))
    return key


@helper
def sign_of(runtime, operand):
    """What an operand is in the key of an op record."""
    return get(operand, TENSOR_SPEC) if is_tensor(runtime, operand) else class_of(operand)


@helper
def new_scalars(runtime, op_record, operands, attributes):
    """The words of the numbers among the operands and of the attributes; 0 if this is not the usual case."""
    total = length(attributes)
    for k in range(length(operands)):
        total += not is_tensor(runtime, item(operands, k))
    if total == 0:
        return own(item(runtime, RUNTIME_EMPTY))
    scalars = new_tuple(total)
    at = 0
    for k in range(length(operands) + length(attributes)):
        if scalars == 0:
            break
        is_operand = k < length(operands)
        value = item(operands, k) if is_operand else item(attributes, k - length(operands))
        if is_operand and is_tensor(runtime, value):
            continue
        is_refused = is_tensor(runtime, value)  # by Python, if it needs a gradient
        word = 0 if is_refused else new_number_word(runtime, op_record, value)
        if word == 0:
            drop(scalars)
            scalars = 0
        else:
            fill(scalars, at, word)
            at += 1
    return scalars


@helper
def new_inputs(runtime, operands):
    """The values of the tensors among the operands."""
    count = 0
    for k in range(length(operands)):
        count += is_tensor(runtime, item(operands, k))
    inputs = new_tuple(count)
    at = 0
    for k in range(length(operands) if inputs != 0 else 0):
        t = item(operands, k)
        if is_tensor(runtime, t):
            fill(inputs, at, own(value_of(t)))
            at += 1
    return inputs


@helper
def new_offsets(runtime, operands):
    """Where they start, None if all do at 0."""
    count, is_shifted = 0, False
    for k in range(length(operands)):
        t = item(operands, k)
        if is_tensor(runtime, t):
            count += 1
            is_shifted |= offset_of(t) != zero(runtime)
    if not is_shifted:
        return own(item(runtime, RUNTIME_NONE))
    offsets = new_tuple(count)
    at = 0
    for k in range(length(operands) if offsets != 0 else 0):
        t = item(operands, k)
        if is_tensor(runtime, t):
            fill(offsets, at, own(get(t, TENSOR_OFFSET)))
            at += 1
    return offsets


@helper
def with_history(context, runtime, op, op_record, operands, scalars, out):
    """The result with its backward node; 0 if this turns out not to be the usual case, the result
    being dropped then."""
    if get(op_record, OP_RECORD_DIFFERENTIABLE) != item(runtime, RUNTIME_TRUE):
        return out
    none, mask = item(runtime, RUNTIME_NONE), 0
    edges = new_tuple(length(operands))
    for k in range(length(operands) if edges != 0 else 0):
        t = item(operands, k)
        edge = new_edge(runtime, t if is_tensor(runtime, t) else 0)
        if edge == 0:
            drop(edges)
            edges = 0
            break
        fill(edges, k, edge)
        mask += (edge != none) << k
    saves = new_attribute(op, item(context, GENERAL_SAVES)) if edges != 0 else 0
    kind = new_attribute(op, item(context, GENERAL_NODE_CLASS)) if saves != 0 else 0
    number = item(item(runtime, RUNTIME_INTEGERS), mask)
    wanted = find(saves, number) if kind != 0 else 0
    if wanted == 0:
        drop(edges)
        drop(saves)
        drop(kind)
        drop(out)
        return 0
    saved = new_saved(runtime, wanted, operands, out)
    recipe = get(op_record, OP_RECORD_RECIPE)
    out = give_history(
        runtime, kind, op, op_record, get(op_record, OP_RECORD_OPERANDS), get(recipe, RECIPE_OUTPUTS),
        edges, saved, own(scalars), own(number), out,
    )  # fmt: skip
    drop(saves)
    drop(kind)
    return tracked(runtime, recipe, out)


@helper
def new_saved(runtime, wanted, operands, out):
    """What backward needs: operands by number and the result's storage for -1, with their versions."""
    count = 0
    for k in range(length(wanted)):
        place = word_of(item(wanted, k))
        count += place < 0 or is_tensor(runtime, item(operands, place))
    if count == 0:
        return own(item(runtime, RUNTIME_NUMBERS if length(wanted) else RUNTIME_EMPTY))
    saved = new_tuple(2 * count)
    at = 0
    for k in range(length(wanted) if saved != 0 else 0):
        place = word_of(item(wanted, k))
        if place < 0:
            fill(saved, at, own(get(out, TENSOR_STORAGE)))
            fill(saved, at + 1, own(zero(runtime)))
            at += 2
        elif is_tensor(runtime, item(operands, place)):
            t = item(operands, place)
            version = version_of(runtime, t)
            if version == 0:
                drop(saved)
                return 0
            fill(saved, at, own(t))
            fill(saved, at + 1, own(version))
            at += 2
    return saved
