"""New tensors of Python's numbers, compiled: `tensor` and `number_like` of `ops/creation.py` on the same
objects.

Recipes and specs are known from the first call of a kind. All else (arrays, mixed or ragged lists,
other dtypes and devices) is left to the function in Python.
"""

import numpy as np

from ..language.abi import at, helper
from .cpython import (
    BOUND,
    LENGTH,
    NUMBER_OF_ARGUMENTS,
    class_of,
    drop,
    exchange,
    find,
    float_of,
    forget_error,
    get,
    has_failed,
    item,
    length,
    list_item,
    new_pair,
    new_result,
    new_single,
    new_word,
    own,
    put,
    word_of,
)
from .elementwise import new_float_word, recorded
from .item import FLOAT, KIND, SIZE_AT
from .tensors import can_take_fast_path, is_tensor, new_node, new_ready, new_tensor

FACTORY_DTYPE = FACTORY_OF_LISTS = FACTORY_OF_NUMBERS = FACTORY_REQUIRES_GRAD = BOUND
FACTORY_RUNTIME = FACTORY_FALLBACK = BOUND
DTYPE_KNOWN_AS = FUNCTION_CONTEXT = KNOWN_LIST_FREE = KNOWN_LIST_SPEC = BOUND
NODE_RECIPE = RECIPE_SPEC = SPEC_DTYPE = BOUND
RUNTIME_EMPTY = RUNTIME_FALSE = RUNTIME_FLOAT_CLASS = RUNTIME_INT_CLASS = BOUND
RUNTIME_LIST_CLASS = BOUND
RUNTIME_NONE = RUNTIME_TRUE = BOUND
TENSOR_NEEDS_GRAD = TENSOR_SPEC = BOUND


def constant(function, arguments, count, names):
    """Record a number as a new tensor without axes, or in every place of one like a given tensor; or make a
    tensor of a list, or of a list of lists."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, FACTORY_RUNTIME)
    positional = count & NUMBER_OF_ARGUMENTS
    out = 0
    if can_take_fast_path(runtime):
        if positional == 1 and class_of(get(arguments, 0)) == item(runtime, RUNTIME_LIST_CLASS):
            out = new_from_list(context, runtime, arguments, names)
        elif names == 0 and (positional == 1 or positional == 2):
            out = new_constant(context, runtime, arguments, positional == 2)
    if out != 0 or has_failed() != 0:
        return out
    return new_result(item(context, FACTORY_FALLBACK), arguments, count, names)


# ----- a number -----


@helper
def new_constant(context, runtime, arguments, is_like):
    """A number as a tensor; 0 if this is not the usual case."""
    number = get(arguments, 8 if is_like else 0)
    kind = class_of(number)
    if kind != item(runtime, RUNTIME_FLOAT_CLASS) and kind != item(runtime, RUNTIME_INT_CLASS):
        return 0
    if is_like and not is_tensor(runtime, get(arguments, 0)):
        return 0
    spec = get(get(arguments, 0), TENSOR_SPEC) if is_like else kind
    node = new_number(runtime, item(context, FACTORY_OF_NUMBERS), spec, number)
    if node == 0:
        return 0
    return recorded(runtime, new_tensor(runtime, node, get(get(node, NODE_RECIPE), RECIPE_SPEC)))


@helper
def new_number(runtime, recipes, key, number):
    """The node of a number in every place; 0 if it is too large, or the first with this key."""
    recipe = own(find(recipes, key))
    return new_number_of(runtime, recipe, number)


@helper
def new_number_of(runtime, recipe, number):
    """The node of a recipe, taken over, on a number; 0 if that is too large or the recipe 0."""
    return new_number_on(runtime, recipe, new_float_word(number) if recipe != 0 else 0)


@helper
def new_number_on(runtime, recipe, word):
    """The node of a recipe on the word of a number, both taken over; 0 if the word is 0."""
    if word == 0:
        drop(recipe)
        return 0
    inputs, offsets = own(item(runtime, RUNTIME_EMPTY)), own(item(runtime, RUNTIME_NONE))
    return new_node(runtime, recipe, inputs, offsets, new_single(word))


# ----- a list -----


@helper
def new_from_list(context, runtime, arguments, names):
    """A tensor of a list of floats or of ints, or of such lists; 0 if this is not the usual case."""
    numbers, dtype, wants_grad = (
        get(arguments, 0),
        item(runtime, RUNTIME_NONE),
        item(runtime, RUNTIME_FALSE),
    )
    for k in range(length(names) if names != 0 else 0):
        if item(names, k) == item(context, FACTORY_DTYPE):
            dtype = get(arguments, 8 * (k + 1))
        elif item(names, k) == item(context, FACTORY_REQUIRES_GRAD):
            wants_grad = get(arguments, 8 * (k + 1))
        else:
            return 0
    by_dtype = find(item(context, FACTORY_OF_LISTS), dtype)
    if has_failed() != 0:  # it has no hash
        forget_error()
    facts = facts_of(runtime, by_dtype, numbers) if by_dtype != 0 else 0
    if facts == 0:
        return 0
    form = word_of(get(get(item(facts, KNOWN_LIST_SPEC), SPEC_DTYPE), DTYPE_KNOWN_AS))
    is_float = form & KIND == FLOAT
    float_size = form >> SIZE_AT if is_float else 0
    if wants_grad != item(runtime, RUNTIME_FALSE) and (
        wants_grad != item(runtime, RUNTIME_TRUE) or not is_float
    ):
        return 0
    out = new_written(runtime, facts, float_size, numbers)
    if out != 0 and wants_grad == item(runtime, RUNTIME_TRUE):
        exchange(out, TENSOR_NEEDS_GRAD, own(wants_grad))
    return out


@helper
def facts_of(runtime, known, numbers):
    """What is known of lists like this one; 0 if that is nothing."""
    count, columns = length(numbers), -1
    if count == 0:
        return 0
    first = list_item(numbers, 0)
    if class_of(first) == item(runtime, RUNTIME_LIST_CLASS):
        columns = length(first)
        if columns == 0:
            return 0
        first = list_item(first, 0)
    kind = class_of(first)
    if kind != item(runtime, RUNTIME_FLOAT_CLASS) and kind != item(runtime, RUNTIME_INT_CLASS):
        return 0
    if columns < 0:
        if not are_all(numbers, kind):
            return 0
    else:
        for k in range(count):
            row = list_item(numbers, k)
            if class_of(row) != item(runtime, RUNTIME_LIST_CLASS) or length(row) != columns:
                return 0
            if not are_all(row, kind):
                return 0
    key = new_word(count if kind == item(runtime, RUNTIME_FLOAT_CLASS) else ~count)
    if columns >= 0:
        key = new_pair(key, new_word(columns))
    facts = find(known, key) if key != 0 else 0
    drop(key)
    return facts


@helper
def are_all(numbers, kind):
    """Whether all items of a list are of a class."""
    well = True
    for k in range(length(numbers)):
        well &= class_of(list_item(numbers, k)) == kind
    return well


@helper
def new_written(runtime, facts, float_size, numbers):
    """A tensor of the numbers, as floats of so many bytes or, for 0, as whole numbers; 0 if one is too large,
    or no block is free.
    """
    free = item(facts, KNOWN_LIST_FREE)
    last = length(free) - 1
    if last < 0:
        return 0
    address = word_of(list_item(free, last))
    if class_of(list_item(numbers, 0)) == item(runtime, RUNTIME_LIST_CLASS):
        for k in range(length(numbers)):
            address = write(list_item(numbers, k), float_size, address)
    else:
        write(numbers, float_size, address)
    if has_failed() != 0:
        forget_error()
        return 0
    block = list_item(free, last)
    put(free, LENGTH, last)  # its reference is ours now
    return new_tensor(runtime, new_ready(runtime, block), item(facts, KNOWN_LIST_SPEC))


@helper
def write(numbers, float_size, address):
    """Write the numbers of a list from an address on; where they end. An exception is set if one is too
    large."""
    count = length(numbers)
    if float_size == 4:
        for k in range(count):
            at(address, np.float32)[k] = np.float32(float_of(list_item(numbers, k)))
        return address + 4 * count
    for k in range(count):
        number = list_item(numbers, k)
        if float_size == 8:
            at(address, np.float64)[k] = float_of(number)
        else:
            put(address, 8 * k, word_of(number))
    return address + 8 * count
