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
from .tensors import (
    FALSE,
    LIST,
    STORAGE_SPEC,
    TENSOR_OFFSET,
    TENSOR_SPEC,
    TENSOR_STORAGE,
    TRUE,
    is_private,
    is_tensor,
    zero,
)  # fmt: skip

# Where the slots of the classes lie; bound when the module is compiled.
FUNCTION_CONTEXT = SPEC_CONTIGUOUS = SPEC_DTYPE = SPEC_DEVICE = DTYPE_IS_FLOATING_POINT = BOUND

SHARED, TWIN = range(2)  # the context


def go_together(function, arguments, count, names):
    """Whether floating tensors have one dtype and one device, and no two share a storage."""
    context = get(function, FUNCTION_CONTEXT)
    shared, tensors = item(context, SHARED), get(arguments, 0)
    if not are_lists(shared, arguments, count, names, 1) or length(tensors) == 0:
        return new_result(item(context, TWIN), arguments, count, names)
    spec = get(list_item(tensors, 0), TENSOR_SPEC)
    dtype = get(spec, SPEC_DTYPE)
    are_alike = get(dtype, DTYPE_IS_FLOATING_POINT) == item(shared, TRUE)
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
    shared, written, read = item(context, SHARED), get(arguments, 0), get(arguments, 8)
    if not are_lists(shared, arguments, count, names, 2):
        return new_result(item(context, TWIN), arguments, count, names)
    are_plain = True
    for k in range(length(written)):
        t = list_item(written, k)
        are_plain &= get(t, TENSOR_SPEC) == get(get(t, TENSOR_STORAGE), STORAGE_SPEC)
        are_plain &= get(t, TENSOR_OFFSET) == zero(shared) and is_plain(shared, t)
    for k in range(length(read)):
        are_plain &= is_plain(shared, list_item(read, k))
    return truth(context, are_plain)


@helper
def are_lists(shared, arguments, count, names, number):
    """Whether so many arguments are lists of tensors."""
    if names != 0 or count & NUMBER_OF_ARGUMENTS != number:
        return False
    for k in range(number):
        tensors = get(arguments, 8 * k)
        if class_of(tensors) != item(shared, LIST):
            return False
        for i in range(length(tensors)):
            if not is_tensor(shared, list_item(tensors, i)):
                return False
    return True


@helper
def is_plain(shared, t):
    """Whether a tensor lies in C order in memory that nobody outside looks at."""
    is_dense = get(get(t, TENSOR_SPEC), SPEC_CONTIGUOUS) == item(shared, TRUE)
    return is_dense and is_private(shared, get(t, TENSOR_STORAGE))


@helper
def truth(context, is_so):
    """A bool."""
    return own(item(item(context, SHARED), TRUE if is_so else FALSE))
