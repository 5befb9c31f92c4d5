"""The signature of a call, compiled: `describe` of `graph/signature.py` on the same objects."""

from ..language.abi import bits_of_float, helper
from .cpython import (
    BOUND,
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
)
from .tensors import is_tensor

RUNTIME_FLOAT_CLASS = RUNTIME_INTEGERS = RUNTIME_INT_CLASS = RUNTIME_LIST_CLASS = BOUND
RUNTIME_MINUS_ZERO = RUNTIME_PLAIN_CLASSES = RUNTIME_SLICE_CLASS = RUNTIME_TUPLE_CLASS = BOUND
RUNTIME_ZERO = BOUND
TENSOR_OFFSET = TENSOR_SPEC = BOUND

# What a call looks like, in words: how many parts its signature has and how many tensors there are
# among the arguments; these parts; these tensors; where each starts in its memory.
PARTS, TENSORS = 0, 8
MOST_PARTS, MOST_TENSORS = 64, 16
PART, TENSOR_AT = 16, 16 + 8 * MOST_PARTS
START = TENSOR_AT + 8 * MOST_TENSORS
SIZE = 2 + MOST_PARTS + 2 * MOST_TENSORS


@helper
def describe(runtime, arguments, count, names, looks):
    """Find the parts of a signature, as `describe` of `graph/signature.py`; whether they are usual ones."""
    put(looks, PARTS, 0)
    put(looks, TENSORS, 0)
    positional = count & NUMBER_OF_ARGUMENTS
    for k in range(positional):
        if not describe_argument(runtime, get(arguments, 8 * k), looks):
            return False
    if names != 0:
        for k in range(length(names)):
            if not add_part(looks, item(names, k)):
                return False
        for k in range(length(names)):
            if not describe_argument(runtime, get(arguments, 8 * (positional + k)), looks):
                return False
    return True


@helper
def describe_argument(runtime, value, looks):
    """Add an argument: a tensor, a plain value, or a sequence of these."""
    kind = class_of(value)
    if kind != item(runtime, RUNTIME_TUPLE_CLASS) and kind != item(runtime, RUNTIME_LIST_CLASS):
        return describe_value(runtime, value, looks)
    size = length(value)
    if size >= length(item(runtime, RUNTIME_INTEGERS)):
        return False
    if not (add_part(looks, kind) and add_part(looks, item(item(runtime, RUNTIME_INTEGERS), size))):
        return False
    for k in range(size):
        part = item(value, k) if kind == item(runtime, RUNTIME_TUPLE_CLASS) else list_item(value, k)
        if not describe_value(runtime, part, looks):
            return False
    return True


@helper
def describe_value(runtime, value, looks):
    """Add a tensor or a plain value."""
    if is_tensor(runtime, value):
        return add_tensor(looks, value) and add_part(looks, get(value, TENSOR_SPEC))
    kind = class_of(value)
    if kind == item(runtime, RUNTIME_SLICE_CLASS):
        return add_part(looks, kind) and all_plain(runtime, value, looks)
    if (
        kind == item(runtime, RUNTIME_FLOAT_CLASS) and float_of(value) == 0
    ):  # equal, but not the same
        value = item(
            runtime, RUNTIME_MINUS_ZERO if bits_of_float(float_of(value)) < 0 else RUNTIME_ZERO
        )
        return add_part(looks, kind) and add_part(looks, value)
    return is_plain(runtime, value) and add_part(looks, kind) and add_part(looks, value)


@helper
def all_plain(runtime, cut, looks):
    """Add the three numbers of a slice."""
    for k in range(3):
        part = get(cut, BOUNDS_OF_SLICE + 8 * k)
        if not (
            is_plain(runtime, part) and add_part(looks, class_of(part)) and add_part(looks, part)
        ):
            return False
    return True


@helper
def is_plain(runtime, value):
    """Whether equality tells a value apart from others of its class."""
    kind = class_of(value)
    known = kind == item(runtime, RUNTIME_INT_CLASS) or kind == item(runtime, RUNTIME_FLOAT_CLASS)
    for k in range(length(item(runtime, RUNTIME_PLAIN_CLASSES))):
        known |= kind == item(item(runtime, RUNTIME_PLAIN_CLASSES), k)
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
    signature = new_signature(looks)
    if signature == 0:
        return 0
    found = own(find(calls, signature))
    drop(signature)
    return found


@helper
def new_signature(looks):
    """The signature as a tuple."""
    signature = new_tuple(get(looks, PARTS))
    for k in range(get(looks, PARTS) if signature != 0 else 0):
        fill(signature, k, own(get(looks, PART + 8 * k)))
    return signature


@helper
def new_tensors(looks):
    """The tensors among the arguments, in a tuple."""
    tensors = new_tuple(get(looks, TENSORS))
    for k in range(get(looks, TENSORS) if tensors != 0 else 0):
        fill(tensors, k, own(tensor(looks, k)))
    return tensors
