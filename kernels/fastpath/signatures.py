"""The signature of a call, compiled: `describe` of `graph/signature.py` on the same objects."""

from ..language.abi import bits_of_float, helper
from .cpython import (
    BOUNDS_OF_SLICE,
    NUMBER_OF_ARGUMENTS,
    class_of,
    drop,
    fill,
    find,
    float_of,
    get,
    item,
    length,
    list_item,
    new_tuple,
    own,
    put,
    word_of,
)  # fmt: skip
from .tensors import (
    FLOAT,
    INT,
    INTEGERS,
    LIST,
    MINUS_ZERO,
    PLAIN,
    SLICE,
    TENSOR_OFFSET,
    TENSOR_SPEC,
    TUPLE,
    ZERO,
    is_tensor,
)  # fmt: skip

# What a call looks like, in words: how many parts its signature has and how many tensors there are
# among the arguments; these parts; these tensors; where each starts in its memory.
PARTS, TENSORS = 0, 8
MOST_PARTS, MOST_TENSORS = 64, 16
PART, TENSOR_AT = 16, 16 + 8 * MOST_PARTS
START = TENSOR_AT + 8 * MOST_TENSORS
SIZE = 2 + MOST_PARTS + 2 * MOST_TENSORS


@helper
def describe(shared, arguments, count, names, looks):
    """Find the parts of a signature, as `describe` of `graph/signature.py`; whether they are usual ones."""
    put(looks, PARTS, 0)
    put(looks, TENSORS, 0)
    positional = count & NUMBER_OF_ARGUMENTS
    for k in range(positional):
        if not describe_argument(shared, get(arguments, 8 * k), looks):
            return False
    if names != 0:
        for k in range(length(names)):
            if not add_part(looks, item(names, k)):
                return False
        for k in range(length(names)):
            if not describe_argument(shared, get(arguments, 8 * (positional + k)), looks):
                return False
    return True


@helper
def describe_argument(shared, value, looks):
    """Add an argument: a tensor, a plain value, or a sequence of these."""
    kind = class_of(value)
    if kind != item(shared, TUPLE) and kind != item(shared, LIST):
        return describe_value(shared, value, looks)
    size = length(value)
    if size >= length(item(shared, INTEGERS)):
        return False
    if not (add_part(looks, kind) and add_part(looks, item(item(shared, INTEGERS), size))):
        return False
    for k in range(size):
        part = item(value, k) if kind == item(shared, TUPLE) else list_item(value, k)
        if not describe_value(shared, part, looks):
            return False
    return True


@helper
def describe_value(shared, value, looks):
    """Add a tensor or a plain value."""
    if is_tensor(shared, value):
        return add_tensor(looks, value) and add_part(looks, get(value, TENSOR_SPEC))
    kind = class_of(value)
    if kind == item(shared, SLICE):
        return add_part(looks, kind) and all_plain(shared, value, looks)
    if kind == item(shared, FLOAT) and float_of(value) == 0:  # equal, but not the same
        value = item(shared, MINUS_ZERO if bits_of_float(float_of(value)) < 0 else ZERO)
        return add_part(looks, kind) and add_part(looks, value)
    return is_plain(shared, value) and add_part(looks, kind) and add_part(looks, value)


@helper
def all_plain(shared, cut, looks):
    """Add the three numbers of a slice."""
    for k in range(3):
        part = get(cut, BOUNDS_OF_SLICE + 8 * k)
        if not (
            is_plain(shared, part) and add_part(looks, class_of(part)) and add_part(looks, part)
        ):
            return False
    return True


@helper
def is_plain(shared, value):
    """Whether equality tells a value apart from others of its class."""
    kind = class_of(value)
    known = kind == item(shared, INT) or kind == item(shared, FLOAT)
    for k in range(length(item(shared, PLAIN))):
        known |= kind == item(item(shared, PLAIN), k)
    return known


@helper
def add_part(looks, part):
    """Add to a signature; whether there was room."""
    at = get(looks, PARTS)
    if at == MOST_PARTS:
        return False
    put(looks, PART + 8 * at, part)
    put(looks, PARTS, at + 1)
    return True


@helper
def add_tensor(looks, t):
    """Add to the tensors; whether there was room."""
    at = get(looks, TENSORS)
    if at == MOST_TENSORS:
        return False
    put(looks, TENSOR_AT + 8 * at, t)
    put(looks, START + 8 * at, word_of(get(t, TENSOR_OFFSET)))
    put(looks, TENSORS, at + 1)
    return True


@helper
def tensor(looks, k):
    """Tensor `k` among the arguments."""
    return get(looks, TENSOR_AT + 8 * k)


@helper
def known(calls, looks):
    """What a dictionary has for this signature, with a reference; 0 for nothing."""
    signature = new_tuple(get(looks, PARTS))
    if signature == 0:
        return 0
    for k in range(get(looks, PARTS)):
        fill(signature, k, own(get(looks, PART + 8 * k)))
    found = own(find(calls, signature))
    drop(signature)
    return found
