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
    new_unsigned,
    new_word,
    own,
    put,
    put_list_item,
    set_attribute,
    word_of,
)

DTYPE_KNOWN_AS = FUNCTION_CONTEXT = BOUND
ITEM_CPU = ITEM_FALSE = ITEM_STATE = ITEM_DETERMINISTIC = ITEM_TENSOR_CLASSES = ITEM_TRUE = BOUND
ITEM_FALLBACK = ITEM_VALUE_OF = ITEM_OBSERVERS = BOUND
NODE_ADDRESS = BOUND
SPEC_DEVICE = SPEC_DTYPE = SPEC_NDIM = SPEC_NUMEL = SPEC_STRIDES = BOUND
TENSOR_OFFSET = TENSOR_SPEC = TENSOR_STORAGE = BOUND

# What elements are known as: the kind of their dtype, and their size in the bits above.
KIND, SIZE_AT = 255, 8
TRUTH, FLOAT, SIGNED = ord("b"), ord("f"), ord("i")


def read_one(function, arguments, count, names):
    """The only element of a tensor."""
    context = get(function, FUNCTION_CONTEXT)
    form = known_as(context, arguments, count, names)
    if form != 0 and is_single(get(arguments, 0)):
        return new_elements(context, get(arguments, 0), form, True)
    return new_result(item(context, ITEM_FALLBACK), arguments, count, names)


def is_true(function, arguments, count, names):
    """Whether the only element of a tensor is not zero."""
    context = get(function, FUNCTION_CONTEXT)
    form = known_as(context, arguments, count, names)
    if form != 0 and is_single(get(arguments, 0)):
        number = new_elements(context, get(arguments, 0), form, True)
        if number == 0:
            return 0
        found = is_set(number)
        drop(number)
        return own(item(context, ITEM_TRUE if found != 0 else ITEM_FALSE))
    return new_result(item(context, ITEM_FALLBACK), arguments, count, names)


def read_all(function, arguments, count, names):
    """The elements of a tensor of at most one dimension."""
    context = get(function, FUNCTION_CONTEXT)
    form = known_as(context, arguments, count, names)
    if form != 0:
        ndim = word_of(get(get(get(arguments, 0), TENSOR_SPEC), SPEC_NDIM))
        if ndim <= 1:
            return new_elements(context, get(arguments, 0), form, ndim == 0)
    return new_result(item(context, ITEM_FALLBACK), arguments, count, names)


@helper
def known_as(context, arguments, count, names):
    """What elements are known as, if there is one argument, a tensor on the CPU, and nobody watches what is
    read; else 0.
    """
    if names != 0 or count & NUMBER_OF_ARGUMENTS != 1 or length(item(context, ITEM_OBSERVERS)) != 0:
        return 0
    t = get(arguments, 0)
    if contains(item(context, ITEM_TENSOR_CLASSES), class_of(t)) != 1:
        return 0
    spec = get(t, TENSOR_SPEC)
    if get(spec, SPEC_DEVICE) != item(context, ITEM_CPU):
        return 0
    return word_of(get(get(spec, SPEC_DTYPE), DTYPE_KNOWN_AS))


@helper
def is_single(t):
    """Whether a tensor has one element."""
    return word_of(get(get(t, TENSOR_SPEC), SPEC_NUMEL)) == 1


@helper
def new_elements(context, t, form, is_single):
    """The first element of a tensor, or a list of those of its only dimension."""
    set_attribute(
        item(context, ITEM_STATE), item(context, ITEM_DETERMINISTIC), item(context, ITEM_FALSE)
    )
    words = stack_words(1)
    put(words, 0, get(t, TENSOR_STORAGE))
    value = new_result(item(context, ITEM_VALUE_OF), words, 1, 0)
    if value == 0:
        return 0
    spec = get(t, TENSOR_SPEC)
    kind, size = form & KIND, form >> SIZE_AT
    first = word_of(get(value, NODE_ADDRESS)) + size * word_of(get(t, TENSOR_OFFSET))
    if is_single:
        made = new_number(context, kind, size, first)
    else:
        count = word_of(get(spec, SPEC_NUMEL))
        step = size * word_of(item(get(spec, SPEC_STRIDES), 0))
        made = new_list(count)
        for k in range(count if made != 0 else 0):
            number = new_number(context, kind, size, first + k * step)
            if number == 0:
                drop(made)
                made = 0
                break
            put_list_item(made, k, number)
    drop(value)
    return made


@helper
def new_number(context, kind, size, address):
    """The element at an address as a Python number."""
    if kind == FLOAT:
        if size == 4:
            return new_float(np.float64(at(address, np.float32)[0]))
        return new_float(at(address, np.float64)[0])
    if kind == TRUTH:
        return own(item(context, ITEM_TRUE if at(address, np.uint8)[0] != 0 else ITEM_FALSE))
    word = word_at(address, size, kind == SIGNED)
    return new_word(word) if kind == SIGNED else new_unsigned(word)


@helper
def word_at(address, size, is_signed):
    """The whole number of some bytes at an address; one of eight bytes without sign keeps its bits."""
    if size == 8:
        return at(address, np.int64)[0]
    if size == 4:
        word = np.int64(at(address, np.int32)[0])
        return word if is_signed else word & 0xFFFFFFFF
    if size == 2:
        word = np.int64(at(address, np.int16)[0])
        return word if is_signed else word & 0xFFFF
    word = np.int64(at(address, np.int8)[0])
    return word if is_signed else word & 0xFF
