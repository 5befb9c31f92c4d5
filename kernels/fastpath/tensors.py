"""Nodes, cells and tensors in compiled code: how they are read and made.

The functions get what they need of the process in a tuple, `shared`.
"""

from ..language.abi import helper
from .cpython import (
    BOUND,
    class_of,
    contains,
    drop,
    get,
    item,
    length,
    new_attribute,
    new_object,
    new_word,
    own,
    put,
    track,
    untrack,
    word_of,
)
from .freelists import new_recycled

# Where the slots of the classes lie, and settings; bound when a module that imports these is compiled.
TENSOR_STORAGE = TENSOR_SPEC = TENSOR_OFFSET = TENSOR_COUNTER = TENSOR_NEEDS_GRAD = BOUND
TENSOR_EDGE = TENSOR_VIEW_OF = TENSOR_META = BOUND
STORAGE_VALUE = STORAGE_SPEC = STORAGE_VERSION = STORAGE_SHARED = VERSION_VERSION = BOUND
NODE_RECIPE = NODE_INPUTS = NODE_OFFSETS = NODE_SCALARS = NODE_SITE = NODE_ADDRESS = BOUND
VIEW_BASE = VIEW_KIND = VIEW_VERSION = MAX_PENDING = BOUND

# What is shared: classes, the state of the process, and constants.
(TENSOR, NODE, STORAGE, VERSION, RECIPE, FLOAT, INT, CLASSES, TAPE, WATCHERS, MODES, STATE,
 INFERENCE, SEQUENCE, NUMBERS, GRAD, INFERENCE_MODE, ANOMALY, ACCUMULATOR, NONE, TRUE, FALSE,
 EMPTY, INTEGERS, TUPLE, LIST, PLAIN, SLICE, VIEW, NO_KIND, NO_GRAD, MULTIPLE,
 ATTACHED, USER_SITE, ZERO, MINUS_ZERO, SAVERS, UNRECORDED,
 LEAVES, SITES) = range(40)  # fmt: skip


@helper
def zero(shared):
    """The number 0."""
    return item(item(shared, INTEGERS), 0)


@helper
def is_tensor(shared, value):
    """Whether a value is a tensor of a class that was seen before."""
    kind = class_of(value)
    return kind == item(shared, TENSOR) or contains(item(shared, CLASSES), kind) == 1


@helper
def is_usual(shared):
    """Whether nobody watches what this thread does, and the tape does not become full."""
    if length(item(shared, WATCHERS)) != 0 or length(item(shared, TAPE)) + 1 >= MAX_PENDING:
        return False
    return length(item(shared, MODES)) == 0 or not (
        is_on(shared, INFERENCE_MODE) or is_on(shared, ANOMALY)
    )


@helper
def records_gradients(shared):
    """Whether this thread has operations record backward nodes."""
    return length(item(shared, UNRECORDED)) == 0 or is_on(shared, GRAD)


@helper
def is_on(shared, name):
    """Whether a switch of this thread is on."""
    found = new_attribute(item(shared, STATE), item(shared, name))
    drop(found)
    return found == item(shared, TRUE)


@helper
def is_private(shared, storage):
    """Whether nobody outside looks at the bytes."""
    return get(storage, STORAGE_SHARED) == zero(shared)


@helper
def version_of(shared, t):
    """How often a tensor was written so far; 0 where that is not counted."""
    counter = get(t, TENSOR_COUNTER)
    if class_of(counter) == item(shared, STORAGE):
        return get(counter, STORAGE_VERSION)
    if class_of(counter) == item(shared, VERSION) and counter != item(shared, INFERENCE):
        return get(counter, VERSION_VERSION)
    return 0


@helper
def hide(shared, part):
    """Take a part of a graph out of the collector's sight, unless something of the user's hangs on one."""
    if length(item(shared, ATTACHED)) == 0:
        untrack(part)


@helper
def show(shared, part):
    """Show the collector a new part of a graph, if something of the user's hangs on one."""
    if length(item(shared, ATTACHED)) != 0:
        track(part)


@helper
def new_node(shared, recipe, inputs, offsets, scalars):
    """A node; it takes all references over. 0 if one of them is 0.

    No cycle goes through values, which know only those they are made from, nor through their cells. For
    what else a graph consists of, `graph/cycles.py` helps the collector to find cycles.
    """
    node = new_recycled(item(shared, NODE))
    if inputs == 0 or offsets == 0 or scalars == 0 or node == 0:
        drop(recipe)
        drop(inputs)
        drop(offsets)
        drop(scalars)
        drop(node)
        return 0
    put(node, NODE_RECIPE, recipe)
    put(node, NODE_INPUTS, inputs)
    put(node, NODE_OFFSETS, offsets)
    put(node, NODE_SCALARS, scalars)
    if inputs != item(shared, NONE):
        untrack(inputs)
    return node


@helper
def new_ready(shared, block):
    """A value that is there already, in a block whose reference it takes over; 0 if that is 0."""
    none = item(shared, NONE)
    node = new_node(shared, own(none), own(none), own(none), own(item(shared, EMPTY)))
    if node == 0 or block == 0:
        drop(block)
        drop(node)
        return 0
    put(node, NODE_SITE, own(none))
    put(node, NODE_ADDRESS, block)
    return node


@helper
def new_tensor(shared, value, spec):
    """A tensor without history around a value, whose reference it takes over; 0 if that is 0."""
    storage = new_storage(shared, value, spec)
    if storage == 0:
        return 0
    return new_handle(
        shared, storage, own(storage), spec, own(zero(shared)), own(item(shared, NONE))
    )


@helper
def new_storage(shared, value, spec):
    """A cell around a value, whose reference it takes over; 0 if that is 0."""
    storage = new_recycled(item(shared, STORAGE))
    if value == 0 or storage == 0:
        drop(value)
        drop(storage)
        return 0
    put(storage, STORAGE_VALUE, value)
    put(storage, STORAGE_SPEC, own(spec))
    put(storage, STORAGE_VERSION, own(zero(shared)))
    put(storage, STORAGE_SHARED, own(zero(shared)))
    return storage


@helper
def new_handle(shared, storage, counter, spec, offset, view):
    """A tensor without history on a storage; it takes all references but the spec's over."""
    out = new_object(item(shared, TENSOR))
    if out == 0 or offset == 0 or view == 0:
        drop(storage)
        drop(counter)
        drop(offset)
        drop(view)
        drop(out)
        return 0
    none = item(shared, NONE)
    put(out, TENSOR_STORAGE, storage)
    put(out, TENSOR_COUNTER, counter)
    put(out, TENSOR_SPEC, own(spec))
    put(out, TENSOR_OFFSET, offset)
    put(out, TENSOR_NEEDS_GRAD, own(item(shared, FALSE)))
    put(out, TENSOR_EDGE, own(none))
    put(out, TENSOR_VIEW_OF, view)
    put(out, TENSOR_META, own(none))
    show(shared, out)
    return out


@helper
def new_view(shared, t, spec, shift, kind):
    """A view of a tensor without history, `shift` elements on; of a `kind`, 0 for its base's."""
    view = new_recycled(item(shared, VIEW))
    if view == 0:
        return 0
    before = get(t, TENSOR_VIEW_OF)
    is_base = before == item(shared, NONE)
    if kind == 0:
        kind = item(shared, NO_KIND) if is_base else get(before, VIEW_KIND)
    version = version_of(shared, t)
    put(view, VIEW_BASE, own(t if is_base else get(before, VIEW_BASE)))
    put(view, VIEW_KIND, own(kind))
    put(view, VIEW_VERSION, own(version if version != 0 else zero(shared)))
    show(shared, view)
    offset = new_word(word_of(get(t, TENSOR_OFFSET)) + shift)
    storage, counter = own(get(t, TENSOR_STORAGE)), own(get(t, TENSOR_COUNTER))
    return new_handle(shared, storage, counter, spec, offset, view)
