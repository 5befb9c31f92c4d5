"""Recording an elementwise op, compiled: `graph/record.py` step by step, on the same objects.

A recorder is a callable object with a context, a tuple of what its op needs. What is not the
usual case (views that need gradients, memory shared with the outside, operands that are no
tensors, a signature never seen) is left to the recorder's function in Python, before anything has
been done.
"""

from numba.extending import register_jitable

from .abi import bits_of_float
from .handles import (
    EMPTY,
    FLOAT,
    GRAD,
    INT,
    INTEGERS,
    MAX_PENDING,
    NONE,
    NUMBERS,
    SEQUENCE,
    STORAGE_VALUE,
    TAPE,
    TENSOR_EDGE,
    TENSOR_META,
    TENSOR_NEEDS_GRAD,
    TENSOR_OFFSET,
    TENSOR_SPEC,
    TENSOR_STORAGE,
    TENSOR_VIEW_OF,
    TRUE,
    WATCHERS,
    is_on,
    is_private,
    is_tensor,
    is_usual,
    new_node,
    new_tensor,
    version_of,
    zero,
)  # fmt: skip
from .objects import (
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
    new_next,
    new_object,
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

# Where the slots of the classes lie; bound when the module is compiled.
META_ACCUMULATOR = VIEW_BASE = VIEW_VERSION = FUNCTION_CONTEXT = BOUND
RECIPE_SPEC = RECIPE_OPERANDS = RECIPE_OUTPUTS = RECIPE_DIFFERENTIABLE = RECIPE_FLOATING = BOUND
GRAD_OP = GRAD_RECIPE = GRAD_EDGES = GRAD_INPUTS = GRAD_OUTPUTS = GRAD_SEQ = BOUND
GRAD_EXTRAS = GRAD_SCALARS = GRAD_MASK = GRAD_SAVED = BOUND

# A recorder's context.
SHARED, ARITY, RECIPES, GRAD_CLASS, OP, SAVES, FALLBACK = range(7)
TWIN = 1  # in the context of `repeat`, after what is shared
STEP_RECIPE, STEP_PLACES, _, STEP_OFFSETS, STEP_SCALARS = range(5)  # of a template


def record(recorder, arguments, count, names):
    """Record an op on one tensor, on two, or on a tensor and a Python number in either order."""
    context = get(recorder, FUNCTION_CONTEXT)
    shared = item(context, SHARED)
    count &= NUMBER_OF_ARGUMENTS
    made = 0
    if names == 0 and item(context, ARITY) == item(item(shared, INTEGERS), min(count, 3)):
        a = get(arguments, 0)
        b = get(arguments, 8) if count == 2 else 0
        if count == 1:
            made = on_tensor(context, shared, a)
        elif is_tensor(shared, a):
            if is_tensor(shared, b):
                made = on_tensors(context, shared, a, b)
            else:
                made = on_tensor_and_number(context, shared, a, b, 0)
        elif is_tensor(shared, b):
            made = on_tensor_and_number(context, shared, b, a, 1)
        if made != 0 or has_failed() != 0:
            return made
    return new_result(item(context, FALLBACK), arguments, count, names)


def repeat(function, arguments, count, names):
    """Record the nodes of a template on some values; a tuple of these and of those."""
    context = get(function, FUNCTION_CONTEXT)
    shared = item(context, SHARED)
    steps, values = get(arguments, 0), get(arguments, 8)
    tape, nodes, given = item(shared, TAPE), length(steps), length(values)
    if length(item(shared, WATCHERS)) != 0 or length(tape) + nodes >= MAX_PENDING:
        return new_result(item(context, TWIN), arguments, count, names)
    made = new_tuple(given + nodes)
    if made == 0:
        return 0
    for k in range(given):
        fill(made, k, own(item(values, k)))
    for k in range(nodes):
        step = item(steps, k)
        places = item(step, STEP_PLACES)
        inputs = new_tuple(length(places))
        if inputs != 0:
            for i in range(length(places)):
                fill(inputs, i, own(item(made, word_of(item(places, i)))))
        offsets, scalars = own(item(step, STEP_OFFSETS)), own(item(step, STEP_SCALARS))
        node = new_node(shared, own(item(step, STEP_RECIPE)), inputs, offsets, scalars)
        if node == 0 or append(tape, node) != 0:
            drop(node)
            drop(made)
            return 0
        fill(made, given + k, node)
    return made


@register_jitable
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


@register_jitable
def on_tensor(context, shared, a):
    """The result of an op on one tensor; 0 if this is not the usual case."""
    if not is_tensor(shared, a) or not is_usual(shared):
        return 0
    storage = get(a, TENSOR_STORAGE)
    history = history_of(shared, a)
    if not is_private(shared, storage):
        return 0
    if history != 0:
        history *= is_on(shared, GRAD)
        if history > 1:
            return 0
    recipe = own(find(item(context, RECIPES), get(a, TENSOR_SPEC)))
    if recipe == 0:
        return 0
    offset = get(a, TENSOR_OFFSET)
    offsets = own(item(shared, NONE)) if offset == zero(shared) else new_single(own(offset))
    inputs = new_single(own(get(storage, STORAGE_VALUE)))
    out = around(shared, recipe, inputs, offsets, own(item(shared, EMPTY)))
    if history != 0 and out != 0:
        out = with_history(context, shared, recipe, a, 0, 0, out)
    return recorded(shared, out)


@register_jitable
def on_tensors(context, shared, a, b):
    """The result of an op on two tensors; 0 if this is not the usual case."""
    first, second = get(a, TENSOR_STORAGE), get(b, TENSOR_STORAGE)
    if not is_usual(shared) or not is_private(shared, first) or not is_private(shared, second):
        return 0
    history = max(history_of(shared, a), history_of(shared, b))
    if history != 0:
        history *= is_on(shared, GRAD)
        if history > 1:
            return 0
    key = new_pair(own(get(a, TENSOR_SPEC)), own(get(b, TENSOR_SPEC)))
    if key == 0:
        return 0
    recipe = own(find(item(context, RECIPES), key))
    drop(key)
    if recipe == 0:
        return 0
    if get(a, TENSOR_OFFSET) == zero(shared) and get(b, TENSOR_OFFSET) == zero(shared):
        offsets = own(item(shared, NONE))
    else:
        offsets = new_pair(own(get(a, TENSOR_OFFSET)), own(get(b, TENSOR_OFFSET)))
    inputs = new_pair(own(get(first, STORAGE_VALUE)), own(get(second, STORAGE_VALUE)))
    out = around(shared, recipe, inputs, offsets, own(item(shared, EMPTY)))
    if history != 0 and out != 0:
        out = with_history(context, shared, recipe, a, b, 0, out)
    return recorded(shared, out)


@register_jitable
def on_tensor_and_number(context, shared, t, number, at):
    """The result of an op on a tensor, its operand `at`, and a number; 0 if that is not usual."""
    kind = class_of(number)
    if kind != item(shared, FLOAT) and kind != item(shared, INT):
        return 0
    storage = get(t, TENSOR_STORAGE)
    if not is_usual(shared) or not is_private(shared, storage):
        return 0
    history = history_of(shared, t)
    if history != 0:
        history *= is_on(shared, GRAD)
        if history > 1:
            return 0
    spec = own(get(t, TENSOR_SPEC))
    own(kind)
    key = new_pair(kind, spec) if at else new_pair(spec, kind)
    if key == 0:
        return 0
    recipe = own(find(item(context, RECIPES), key))
    drop(key)
    value = float_of(number)
    if value == -1.0 and has_failed() != 0:  # an int beyond all floats: Python words the error
        forget_error()
        drop(recipe)
        return 0
    if recipe == 0 or get(recipe, RECIPE_FLOATING) != item(shared, TRUE):
        drop(recipe)
        return 0
    scalars = new_single(new_word(bits_of_float(value)))
    offset = get(t, TENSOR_OFFSET)
    offsets = own(item(shared, NONE)) if offset == zero(shared) else new_single(own(offset))
    inputs = new_single(own(get(storage, STORAGE_VALUE)))
    out = around(shared, recipe, inputs, offsets, scalars)
    if history != 0 and out != 0:
        if at:
            out = with_history(context, shared, recipe, 0, t, scalars, out)
        else:
            out = with_history(context, shared, recipe, t, 0, scalars, out)
    return recorded(shared, out)


@register_jitable
def around(shared, recipe, inputs, offsets, scalars):
    """A tensor without history around a new node, which takes the references over; 0 on failure."""
    node = new_node(shared, recipe, inputs, offsets, scalars)
    return 0 if node == 0 else new_tensor(shared, node, get(recipe, RECIPE_SPEC))


@register_jitable
def recorded(shared, out):
    """The result, its node put onto the tape."""
    if out != 0:
        node = get(get(out, TENSOR_STORAGE), STORAGE_VALUE)
        if append(item(shared, TAPE), node) != 0:
            drop(out)
            return 0
    return out


@register_jitable
def new_edge(shared, t):
    """Where the gradient of an operand goes; None for a number (0) and what needs no gradient."""
    none = item(shared, NONE)
    if t == 0:
        return own(none)
    edge = get(t, TENSOR_EDGE)
    if edge != none or get(t, TENSOR_NEEDS_GRAD) != item(shared, TRUE):
        return own(edge)
    meta = get(t, TENSOR_META)
    if meta == none or get(meta, META_ACCUMULATOR) == none:
        return 0
    accumulator = new_result_of_nothing(get(meta, META_ACCUMULATOR))
    if accumulator == none:
        drop(accumulator)
        return 0
    return new_pair(accumulator, own(zero(shared)))


@register_jitable
def operand(saves, k, a, b):
    """What is to be saved in place `k`: 0 for a number, and any operand for the result."""
    return b if word_of(item(saves, k)) == 1 else a


@register_jitable
def new_saved(shared, saves, a, b, out):
    """What backward needs: operands by number and the result's cell for -1, with their versions."""
    count = 0
    for k in range(length(saves)):
        count += word_of(item(saves, k)) < 0 or operand(saves, k, a, b) != 0
    if count == 0:
        return own(item(shared, NUMBERS if length(saves) else EMPTY))
    saved = new_tuple(2 * count)
    if saved == 0:
        return 0
    at = 0
    for k in range(length(saves)):
        t = operand(saves, k, a, b)
        if word_of(item(saves, k)) < 0:
            fill(saved, at, own(get(out, TENSOR_STORAGE)))
            fill(saved, at + 1, own(zero(shared)))
            at += 2
        elif t != 0:
            version = version_of(shared, t)
            if version == 0:
                drop(saved)
                return 0
            fill(saved, at, own(t))
            fill(saved, at + 1, own(version))
            at += 2
    return saved


@register_jitable
def with_history(context, shared, recipe, a, b, scalars, out):
    """The result with its backward node. Operands that are numbers, or not there, are 0.

    0 if this turns out not to be the usual case; the result is dropped then.
    """
    if get(recipe, RECIPE_DIFFERENTIABLE) != item(shared, TRUE):
        return out
    none = item(shared, NONE)
    first = new_edge(shared, a)
    alone = b == 0 and scalars == 0
    second = 0 if alone else new_edge(shared, b)
    if first == 0 or (second == 0 and not alone):
        drop(first)
        drop(second)
        drop(out)
        return 0
    mask = int(first != none)
    if not alone:
        mask += 2 * int(second != none)
    integers = item(shared, INTEGERS)
    saves = find(item(context, SAVES), item(integers, mask))
    edges = new_single(first) if alone else new_pair(first, second)
    saved = 0 if saves == 0 else new_saved(shared, saves, a, b, out)
    fn = new_object(item(context, GRAD_CLASS), 0)
    seq = new_next(item(shared, SEQUENCE))
    edge = new_pair(own(fn), own(zero(shared))) if fn != 0 else 0
    if edges == 0 or saved == 0 or fn == 0 or seq == 0 or edge == 0:
        drop(edges)
        drop(saved)
        drop(seq)
        drop(edge)
        drop(fn)
        drop(out)
        return 0
    put(fn, GRAD_OP, own(item(context, OP)))
    put(fn, GRAD_RECIPE, own(recipe))
    put(fn, GRAD_EDGES, edges)
    put(fn, GRAD_INPUTS, own(get(recipe, RECIPE_OPERANDS)))
    put(fn, GRAD_OUTPUTS, own(get(recipe, RECIPE_OUTPUTS)))
    put(fn, GRAD_SEQ, seq)
    put(fn, GRAD_EXTRAS, own(none))
    put(fn, GRAD_SCALARS, own(scalars if scalars != 0 else item(shared, EMPTY)))
    put(fn, GRAD_MASK, own(item(integers, mask)))
    put(fn, GRAD_SAVED, saved)
    drop(fn)  # the edge holds it
    drop(get(out, TENSOR_EDGE))
    put(out, TENSOR_EDGE, edge)
    drop(get(out, TENSOR_NEEDS_GRAD))
    put(out, TENSOR_NEEDS_GRAD, own(item(shared, TRUE)))
    return out
