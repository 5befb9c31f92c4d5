"""What a write looks at before, and what it leaves: a tensor and the memory that it shows, in compiled code."""

from ..language.abi import helper
from .call_sites import new_call_site
from .cpython import (
    BOUND,
    append,
    drop,
    exchange,
    get,
    item,
    length,
    new_pair,
    new_word,
    own,
    word_of,
)
from .elementwise import FIRST, SECOND
from .tensors import (
    can_take_fast_path,
    infers,
    is_private,
    is_secluded,
    is_tensor,
    new_node,
    records_gradients,
    version_of,
    zero,
)

MAX_PENDING = BOUND
RUNTIME_EMPTY = RUNTIME_INFERENCE_COUNTER = RUNTIME_NONE = RUNTIME_PENDING = RUNTIME_TRUE = BOUND
SPEC_CONTIGUOUS = SPEC_DTYPE = SPEC_NUMEL = BOUND
STORAGE_CALL_SITE = STORAGE_LINKS = STORAGE_SPEC = STORAGE_VALUE = STORAGE_VERSION = BOUND
TENSOR_EDGE = TENSOR_NEEDS_GRAD = TENSOR_OFFSET = TENSOR_SPEC = TENSOR_STORAGE = BOUND
TENSOR_VERSION_COUNTER = TENSOR_VIEW_OF = BOUND
VERSION_CALL_SITE = VERSION_VERSION = BOUND
VIEW_BASE = BOUND

SMALL = 1 << 14  # elements; in a larger memory a function may do better to write over them


@helper
def is_whole(runtime, t):
    """Whether this is a tensor without history that is all of a memory that nobody else looks at."""
    none = item(runtime, RUNTIME_NONE)
    if not is_tensor(runtime, t) or not counts(runtime, t):
        return False
    if get(t, TENSOR_VIEW_OF) != none or get(t, TENSOR_EDGE) != none:
        return False
    return is_whole_of(runtime, t) and is_private(runtime, get(t, TENSOR_STORAGE))


@helper
def is_all(runtime, t):
    """Whether a tensor is all of a memory that nobody else looks at, and counts its writes."""
    return covers(runtime, t) and is_private(runtime, get(t, TENSOR_STORAGE))


@helper
def covers(runtime, t):
    """Whether a tensor is all of a memory, which counts its writes."""
    return get(t, TENSOR_VERSION_COUNTER) == get(t, TENSOR_STORAGE) and is_whole_of(runtime, t)


@helper
def is_whole_of(runtime, t):
    """Whether a tensor is all of a memory that is linked with no other."""
    storage = get(t, TENSOR_STORAGE)
    is_there = get(t, TENSOR_OFFSET) == zero(runtime) and get(storage, STORAGE_LINKS) == 0
    return is_there and get(t, TENSOR_SPEC) == get(storage, STORAGE_SPEC)


@helper
def counts(runtime, t):
    """Whether the writes into a tensor are counted: by its memory, or, as of `x.data`, on their own; or need
    not be, as nothing saves it."""
    return version_of(runtime, t) != 0 or (is_uncounted(runtime, t) and infers(runtime))


@helper
def is_uncounted(runtime, t):
    """Whether this is an inference tensor."""
    return get(t, TENSOR_VERSION_COUNTER) == item(runtime, RUNTIME_INFERENCE_COUNTER)


@helper
def can_write(runtime, t):
    """Whether a tensor counts its writes and nobody else looks at its memory."""
    return counts(runtime, t) and is_secluded(runtime, get(t, TENSOR_STORAGE))


@helper
def can_change(runtime, t):
    """Whether this is a tensor that counts its writes, and `pending` has room for two nodes."""
    if not can_take_fast_path(runtime) or length(item(runtime, RUNTIME_PENDING)) + 2 >= MAX_PENDING:
        return False
    return is_tensor(runtime, t) and can_write(runtime, t)


@helper
def is_out_of_graph(runtime, t):
    """Whether a tensor has no history, is no leaf, and is no view of one; or nobody records that."""
    if not records_gradients(runtime):
        return True
    if get(t, TENSOR_EDGE) != item(runtime, RUNTIME_NONE) or get(t, TENSOR_NEEDS_GRAD) == item(
        runtime, RUNTIME_TRUE
    ):
        return False
    view = get(t, TENSOR_VIEW_OF)
    if view == item(runtime, RUNTIME_NONE):
        return True
    return get(get(view, VIEW_BASE), TENSOR_NEEDS_GRAD) != item(runtime, RUNTIME_TRUE)


@helper
def is_small(t):
    """Whether a tensor has so few elements that a result beside it costs nothing."""
    return word_of(get(get(t, TENSOR_SPEC), SPEC_NUMEL)) <= SMALL


@helper
def shows_all(runtime, t):
    """Whether a tensor shows all elements of its memory in the order in which they lie there."""
    spec, whole = get(t, TENSOR_SPEC), get(get(t, TENSOR_STORAGE), STORAGE_SPEC)
    if spec == whole:
        return True
    are_dense = (
        get(spec, SPEC_CONTIGUOUS) == get(whole, SPEC_CONTIGUOUS) == item(runtime, RUNTIME_TRUE)
    )
    is_as_long = word_of(get(spec, SPEC_NUMEL)) == word_of(get(whole, SPEC_NUMEL))
    return are_dense and is_as_long and get(spec, SPEC_DTYPE) == get(whole, SPEC_DTYPE)


@helper
def meets(t, call):
    """Whether an operand of a call is another part of the memory that is written."""
    return overlaps(t, get(call, FIRST)) or overlaps(t, get(call, SECOND))


@helper
def overlaps(t, other):
    """Whether an operand is another part of the memory that is written."""
    if other == 0 or other == t or get(other, TENSOR_STORAGE) != get(t, TENSOR_STORAGE):
        return False
    return get(other, TENSOR_SPEC) != get(t, TENSOR_SPEC) or get(other, TENSOR_OFFSET) != get(
        t, TENSOR_OFFSET
    )


@helper
def is_met_by(runtime, t, arguments, positional):
    """Whether an argument behind the first is another part of the memory of a tensor."""
    for k in range(1, positional):
        other = get(arguments, 8 * k)
        if is_tensor(runtime, other) and overlaps(t, other):
            return True
    return False


@helper
def append_pending(runtime, node):
    """A node, put into `pending`; 0 on failure."""
    if node != 0 and append(item(runtime, RUNTIME_PENDING), node) != 0:
        drop(node)
        return 0
    return node


@helper
def become(t, value, version, call_site):
    """Give the memory of a tensor its new value, and what counts the writes the number and place of this one;
    takes the references over."""
    storage, counter = get(t, TENSOR_STORAGE), get(t, TENSOR_VERSION_COUNTER)
    exchange(storage, STORAGE_VALUE, value)
    if counter == storage:
        exchange(storage, STORAGE_VERSION, version)
        exchange(storage, STORAGE_CALL_SITE, call_site)
    else:
        exchange(counter, VERSION_VERSION, version)
        exchange(counter, VERSION_CALL_SITE, call_site)


@helper
def is_put(runtime, t, value):
    """Give the memory of a tensor a value, which is taken over, written at the user's line; whether that went
    well."""
    if is_uncounted(runtime, t):
        exchange(get(t, TENSOR_STORAGE), STORAGE_VALUE, value)
        return True
    call_site = new_call_site(runtime)
    version = new_word(word_of(version_of(runtime, t)) + 1) if call_site != 0 else 0
    if version == 0:
        drop(value)
        drop(call_site)
        return False
    become(t, value, version, call_site)
    return True


@helper
def new_written(runtime, recipe, storage, place, value, offset):
    """The value of a memory, a part of which, from a place on, shows another value now, from an offset on; the
    references from the recipe, the value and the offset are taken over."""
    inputs = new_pair(own(get(storage, STORAGE_VALUE)), value)
    offsets = new_pair(new_word(place), offset)
    return append_pending(
        runtime, new_node(runtime, recipe, inputs, offsets, own(item(runtime, RUNTIME_EMPTY)))
    )
