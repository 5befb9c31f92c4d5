"""What a step over several tensors asks of them, compiled: `go_together` and `lie_plainly` of
`ops/steps.py` on the same objects.
"""

from ..language.abi import helper
from .cpython import (
    BOUND,
    NUMBER_OF_ARGUMENTS,
    add,
    class_of,
    drop,
    get,
    item,
    length,
    list_item,
    new_result,
    new_set,
    own,
    set_length,
)
from .tensors import is_secluded, is_tensor, zero

BASIC_RUNTIME = BASIC_FALLBACK = DTYPE_IS_FLOATING_POINT = FUNCTION_CONTEXT = BOUND
RUNTIME_FALSE = RUNTIME_LIST_CLASS = RUNTIME_TRUE = BOUND
SPEC_CONTIGUOUS = SPEC_DEVICE = SPEC_DTYPE = STORAGE_SPEC = BOUND
TENSOR_OFFSET = TENSOR_SPEC = TENSOR_STORAGE = BOUND


def go_together(function, arguments, count, names):
    """Whether floating tensors have one dtype and one device, and no two share a storage."""
    context = get(function, FUNCTION_CONTEXT)
    runtime, tensors = item(context, BASIC_RUNTIME), get(arguments, 0)
    if not are_lists(runtime, arguments, count, names, 1) or length(tensors) == 0:
        return new_result(item(context, BASIC_FALLBACK), arguments, count, names)
    spec = get(list_item(tensors, 0), TENSOR_SPEC)
    dtype = get(spec, SPEC_DTYPE)
    are_alike = get(dtype, DTYPE_IS_FLOATING_POINT) == item(runtime, RUNTIME_TRUE)
    storages = new_set(0)
    for k in range(length(tensors) if storages != 0 else 0):
        other = get(list_item(tensors, k), TENSOR_SPEC)
        are_alike &= get(other, SPEC_DTYPE) == dtype
        are_alike &= get(other, SPEC_DEVICE) == get(spec, SPEC_DEVICE)
        if add(storages, get(list_item(tensors, k), TENSOR_STORAGE)) != 0:
            drop(storages)
            return 0
    if storages == 0:
        return 0
    are_apart = set_length(storages) == length(tensors)
    drop(storages)
    return truth(context, are_alike and are_apart)


def lie_plainly(function, arguments, count, names):
    """Whether tensors are all of their memories, and what is read lies densely; nobody outside looks at
    either."""
    context = get(function, FUNCTION_CONTEXT)
    runtime, written, read = item(context, BASIC_RUNTIME), get(arguments, 0), get(arguments, 8)
    if not are_lists(runtime, arguments, count, names, 2):
        return new_result(item(context, BASIC_FALLBACK), arguments, count, names)
    are_plain = True
    for k in range(length(written)):
        t = list_item(written, k)
        are_plain &= get(t, TENSOR_SPEC) == get(get(t, TENSOR_STORAGE), STORAGE_SPEC)
        are_plain &= get(t, TENSOR_OFFSET) == zero(runtime) and is_plain(runtime, t)
    for k in range(length(read)):
        are_plain &= is_plain(runtime, list_item(read, k))
    return truth(context, are_plain)


@helper
def are_lists(runtime, arguments, count, names, number):
    """Whether so many arguments are lists of tensors."""
    if names != 0 or count & NUMBER_OF_ARGUMENTS != number:
        return False
    for k in range(number):
        tensors = get(arguments, 8 * k)
        if class_of(tensors) != item(runtime, RUNTIME_LIST_CLASS):
            return False
        for i in range(length(tensors)):
            if not is_tensor(runtime, list_item(tensors, i)):
                return False
    return True


@helper
def is_plain(runtime, t):
    """Whether a tensor lies in C order in memory that concerns nobody else."""
    is_dense = get(get(t, TENSOR_SPEC), SPEC_CONTIGUOUS) == item(runtime, RUNTIME_TRUE)
    return is_dense and is_secluded(runtime, get(t, TENSOR_STORAGE))


@helper
def truth(context, is_so):
    """A bool."""
    return own(item(item(context, BASIC_RUNTIME), RUNTIME_TRUE if is_so else RUNTIME_FALSE))
