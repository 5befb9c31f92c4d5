"""Elements as Python's numbers, compiled: `item`, `bool` and `tolist` of tensors whose values are there or
can be computed.
"""

import numpy as np

from ..language.abi import at, helper, stack_words
from .cpython import (
    BOUND,
    NUMBER_OF_ARGUMENTS,
    class_of,
    contains,
    drop,
    get,
    is_set,
    item,
    length,
    new_float,
    new_list,
    new_result,
    new_word,
    own,
    put,
    put_list_item,
    set_attribute,
    word_of,
)

# Where the slots of the classes lie; bound when the module is compiled.
TENSOR_STORAGE = TENSOR_SPEC = TENSOR_OFFSET = NODE_ADDRESS = FUNCTION_CONTEXT = BOUND
SPEC_NUMEL = SPEC_NDIM = SPEC_STRIDES = SPEC_DTYPE = SPEC_DEVICE = DTYPE_ITEMSIZE = BOUND

TWIN, CLASSES, KINDS, CPU, WATCHERS, VALUE_OF, STATE, STEADY, FALSE, TRUE = range(10)  # the context
BOOL, UINT8, INT8, INT16, INT32, INT64, FLOAT32, FLOAT64 = range(8)  # of the kinds


def read_one(function, arguments, count, names):
    """The only element of a tensor."""
    context = get(function, FUNCTION_CONTEXT)
    if is_usual(context, arguments, count, names) and is_single(get(arguments, 0)):
        return new_elements(context, get(arguments, 0), True)
    return new_result(item(context, TWIN), arguments, count, names)


def is_true(function, arguments, count, names):
    """Whether the only element of a tensor is not zero."""
    context = get(function, FUNCTION_CONTEXT)
    if is_usual(context, arguments, count, names) and is_single(get(arguments, 0)):
        number = new_elements(context, get(arguments, 0), True)
        if number == 0:
            return 0
        found = is_set(number)
        drop(number)
        return own(item(context, TRUE if found != 0 else FALSE))
    return new_result(item(context, TWIN), arguments, count, names)


def read_all(function, arguments, count, names):
    """The elements of a tensor of at most one dimension."""
    context = get(function, FUNCTION_CONTEXT)
    if is_usual(context, arguments, count, names):
        ndim = word_of(get(get(get(arguments, 0), TENSOR_SPEC), SPEC_NDIM))
        if ndim <= 1:
            return new_elements(context, get(arguments, 0), ndim == 0)
    return new_result(item(context, TWIN), arguments, count, names)


@helper
def is_usual(context, arguments, count, names):
    """Whether there is one argument, a tensor on the CPU, and nobody watches what is read."""
    if names != 0 or count & NUMBER_OF_ARGUMENTS != 1 or length(item(context, WATCHERS)) != 0:
        return False
    t = get(arguments, 0)
    return contains(item(context, CLASSES), class_of(t)) == 1 and get(
        get(t, TENSOR_SPEC), SPEC_DEVICE
    ) == item(context, CPU)


@helper
def is_single(t):
    """Whether a tensor has one element."""
    return word_of(get(get(t, TENSOR_SPEC), SPEC_NUMEL)) == 1


@helper
def new_elements(context, t, is_single):
    """The first element of a tensor, or a list of those of its only dimension."""
    set_attribute(item(context, STATE), item(context, STEADY), item(context, FALSE))
    words = stack_words(1)
    put(words, 0, get(t, TENSOR_STORAGE))
    value = new_result(item(context, VALUE_OF), words, 1, 0)
    if value == 0:
        return 0
    spec = get(t, TENSOR_SPEC)
    dtype = get(spec, SPEC_DTYPE)
    size = word_of(get(dtype, DTYPE_ITEMSIZE))
    first = word_of(get(value, NODE_ADDRESS)) + size * word_of(get(t, TENSOR_OFFSET))
    if is_single:
        made = new_number(context, dtype, first)
    else:
        count = word_of(get(spec, SPEC_NUMEL))
        step = size * word_of(item(get(spec, SPEC_STRIDES), 0))
        made = new_list(count)
        for k in range(count if made != 0 else 0):
            number = new_number(context, dtype, first + k * step)
            if number == 0:
                drop(made)
                made = 0
                break
            put_list_item(made, k, number)
    drop(value)
    return made


@helper
def new_number(context, dtype, address):
    """The element at an address as a Python number."""
    kinds = item(context, KINDS)
    if dtype == item(kinds, FLOAT32):
        return new_float(np.float64(at(address, np.float32)[0]))
    if dtype == item(kinds, FLOAT64):
        return new_float(at(address, np.float64)[0])
    if dtype == item(kinds, INT64):
        return new_word(at(address, np.int64)[0])
    if dtype == item(kinds, BOOL):
        return own(item(context, TRUE if at(address, np.uint8)[0] != 0 else FALSE))
    if dtype == item(kinds, INT32):
        return new_word(np.int64(at(address, np.int32)[0]))
    if dtype == item(kinds, INT16):
        return new_word(np.int64(at(address, np.int16)[0]))
    if dtype == item(kinds, INT8):
        return new_word(np.int64(at(address, np.int8)[0]))
    return new_word(np.int64(at(address, np.uint8)[0]))
