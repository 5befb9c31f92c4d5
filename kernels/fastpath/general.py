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
)  # fmt: skip
from .elementwise import around, new_number_word, offset_of, recorded, value_of
from .grad_nodes import give_history, history_of, new_edge, noted
from .signatures import SIZE, describe, known, tensor
from .tensors import (
    EMPTY,
    FLOAT,
    INT,
    INTEGERS,
    NONE,
    NUMBERS,
    TENSOR_OFFSET,
    TENSOR_SPEC,
    TENSOR_STORAGE,
    TRUE,
    TUPLE,
    is_private,
    is_tensor,
    is_usual,
    records_gradients,
    version_of,
    zero,
)  # fmt: skip

# Where the slots of the classes lie; bound when the module is compiled.
FUNCTION_CONTEXT = RECIPE_OPERANDS = RECIPE_OUTPUTS = BOUND
RECIPE_DIFFERENTIABLE = RECIPE_VJPS = BOUND

# The context: the twin, and names of what an op and a recipe have.
SHARED, TWIN, RECIPES, SAVES, NODE_CLASS, OVER, CHOSEN = range(7)
OP, PARTS, ATTRIBUTES = range(3)  # of what was chosen
MOST = 5  # operands: sets of those that need gradients are among the small numbers


def elementwise(function, arguments, count, names):
    """Record an op on operands, a tuple, with attributes, a tuple; the result may be one that writes
    over the first operand."""
    context = get(function, FUNCTION_CONTEXT)
    shared = item(context, SHARED)
    op, operands, attributes = get(arguments, 0), get(arguments, 8), get(arguments, 16)
    is_over = count & NUMBER_OF_ARGUMENTS == 4 and get(arguments, 24) == item(shared, TRUE)
    out = new_out(context, shared, op, operands, attributes, is_over) if names == 0 else 0
    if out != 0 or has_failed() != 0:
        return out
    return new_result(item(context, TWIN), arguments, count, names)


def choose(function, arguments, count, names):
    """Record the op that was chosen when a function was called with such arguments before."""
    context = get(function, FUNCTION_CONTEXT)
    shared = item(context, SHARED)
    looks = stack_words(SIZE)
    out = 0
    if describe(shared, arguments, count, names, looks):
        chosen = known(item(context, CHOSEN), looks)
        operands = new_operands(shared, looks, item(chosen, PARTS)) if chosen != 0 else 0
        if operands != 0:
            attributes = item(chosen, ATTRIBUTES)
            out = new_out(context, shared, item(chosen, OP), operands, attributes, False)
        drop(operands)
        drop(chosen)
    if out != 0 or has_failed() != 0:
        return out
    return new_result(item(context, TWIN), arguments, count, names)


@helper
def new_operands(shared, looks, parts):
    """The operands that were chosen, of the tensors of a call by number and of numbers."""
    operands = new_tuple(length(parts))
    for k in range(length(parts) if operands != 0 else 0):
        part = item(parts, k)
        is_number = class_of(part) == item(shared, TUPLE)
        fill(operands, k, own(item(part, 0) if is_number else tensor(looks, word_of(part))))
    return operands


@helper
def new_out(context, shared, op, operands, attributes, is_over):
    """The result of an op; 0 if this is not the usual case."""
    history = asked_history(shared, operands)
    if history > 1:
        return 0
    recipe = new_recipe(context, shared, op, operands)
    scalars = 0 if recipe == 0 else new_scalars(shared, recipe, operands, attributes)
    used = 0
    if scalars != 0:
        used = own(find(get(recipe, RECIPE_VJPS), item(context, OVER)) if is_over else recipe)
    out = 0
    if used != 0:
        inputs, offsets = new_inputs(shared, operands), new_offsets(shared, operands)
        out = around(shared, used, inputs, offsets, own(scalars))
        if history != 0 and out != 0:
            out = with_history(context, shared, op, recipe, operands, scalars, out)
        out = recorded(shared, out)
    drop(recipe)
    drop(scalars)
    return out


@helper
def asked_history(shared, operands):
    """What the operands ask of the op: 0 nothing, 1 a backward node, 2 more than is usual."""
    if not is_usual(shared) or length(operands) > MOST:
        return 2
    history = 0
    for k in range(length(operands)):
        t = item(operands, k)
        if is_tensor(shared, t):
            if not is_private(shared, get(t, TENSOR_STORAGE)):
                return 2
            history = max(history, history_of(shared, t))
        elif class_of(t) != item(shared, FLOAT) and class_of(t) != item(shared, INT):
            return 2
    return 0 if history == 0 else history * records_gradients(shared)


@helper
def new_recipe(context, shared, op, operands):
    """The recipe of an op on such operands, with a reference; 0 if there is none yet."""
    recipes = new_attribute(op, item(context, RECIPES))
    if recipes == 0:
        return 0
    if length(operands) == 1:
        recipe = own(find(recipes, sign_of(shared, item(operands, 0))))
        drop(recipes)
        return recipe
    key = new_tuple(length(operands))
    for k in range(length(operands) if key != 0 else 0):
        fill(key, k, own(sign_of(shared, item(operands, k))))
    recipe = own(find(recipes, key)) if key != 0 else 0
    drop(key)
    drop(recipes)
    return recipe


@helper
def sign_of(shared, operand):
    """What an operand is in the key of a recipe."""
    return get(operand, TENSOR_SPEC) if is_tensor(shared, operand) else class_of(operand)


@helper
def new_scalars(shared, recipe, operands, attributes):
    """The words of the numbers among the operands and of the attributes; 0 if this is not the usual case."""
    total = length(attributes)
    for k in range(length(operands)):
        total += not is_tensor(shared, item(operands, k))
    if total == 0:
        return own(item(shared, EMPTY))
    scalars = new_tuple(total)
    at = 0
    for k in range(length(operands) + length(attributes)):
        if scalars == 0:
            break
        is_operand = k < length(operands)
        value = item(operands, k) if is_operand else item(attributes, k - length(operands))
        if is_operand and is_tensor(shared, value):
            continue
        word = new_number_word(shared, recipe, value)
        if word == 0:
            drop(scalars)
            scalars = 0
        else:
            fill(scalars, at, word)
            at += 1
    return scalars


@helper
def new_inputs(shared, operands):
    """The values of the tensors among the operands."""
    count = 0
    for k in range(length(operands)):
        count += is_tensor(shared, item(operands, k))
    inputs = new_tuple(count)
    at = 0
    for k in range(length(operands) if inputs != 0 else 0):
        t = item(operands, k)
        if is_tensor(shared, t):
            fill(inputs, at, own(value_of(t)))
            at += 1
    return inputs


@helper
def new_offsets(shared, operands):
    """Where they start, None if all do at 0."""
    count, is_shifted = 0, False
    for k in range(length(operands)):
        t = item(operands, k)
        if is_tensor(shared, t):
            count += 1
            is_shifted |= offset_of(t) != zero(shared)
    if not is_shifted:
        return own(item(shared, NONE))
    offsets = new_tuple(count)
    at = 0
    for k in range(length(operands) if offsets != 0 else 0):
        t = item(operands, k)
        if is_tensor(shared, t):
            fill(offsets, at, own(get(t, TENSOR_OFFSET)))
            at += 1
    return offsets


@helper
def with_history(context, shared, op, recipe, operands, scalars, out):
    """The result with its backward node; 0 if this turns out not to be the usual case, the result
    being dropped then."""
    if get(recipe, RECIPE_DIFFERENTIABLE) != item(shared, TRUE):
        return out
    none, mask = item(shared, NONE), 0
    edges = new_tuple(length(operands))
    for k in range(length(operands) if edges != 0 else 0):
        t = item(operands, k)
        edge = new_edge(shared, t if is_tensor(shared, t) else 0)
        if edge == 0:
            drop(edges)
            edges = 0
            break
        fill(edges, k, edge)
        mask += (edge != none) << k
    saves = new_attribute(op, item(context, SAVES)) if edges != 0 else 0
    kind = new_attribute(op, item(context, NODE_CLASS)) if saves != 0 else 0
    number = item(item(shared, INTEGERS), mask)
    wanted = find(saves, number) if kind != 0 else 0
    if wanted == 0:
        drop(edges)
        drop(saves)
        drop(kind)
        drop(out)
        return 0
    saved = new_saved(shared, wanted, operands, out)
    out = give_history(
        shared, kind, op, recipe, get(recipe, RECIPE_OPERANDS), get(recipe, RECIPE_OUTPUTS), edges,
        saved, own(scalars), own(number), out,
    )  # fmt: skip
    drop(saves)
    drop(kind)
    return noted(shared, recipe, out)


@helper
def new_saved(shared, wanted, operands, out):
    """What backward needs: operands by number and the result's cell for -1, with their versions."""
    count = 0
    for k in range(length(wanted)):
        place = word_of(item(wanted, k))
        count += place < 0 or is_tensor(shared, item(operands, place))
    if count == 0:
        return own(item(shared, NUMBERS if length(wanted) else EMPTY))
    saved = new_tuple(2 * count)
    at = 0
    for k in range(length(wanted) if saved != 0 else 0):
        place = word_of(item(wanted, k))
        if place < 0:
            fill(saved, at, own(get(out, TENSOR_STORAGE)))
            fill(saved, at + 1, own(zero(shared)))
            at += 2
        elif is_tensor(shared, item(operands, place)):
            t = item(operands, place)
            version = version_of(shared, t)
            if version == 0:
                drop(saved)
                return 0
            fill(saved, at, own(t))
            fill(saved, at + 1, own(version))
            at += 2
    return saved
