"""Nodes, storages and tensors in compiled code: how they are read and made.

The functions get what they need of the process in a tuple, `runtime`: see `Runtime` of `graph/fastpath.py`.
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
    new_result_of_nothing,
    new_word,
    own,
    put,
    track,
    untrack,
    word_of,
)
from .freelists import new_recycled

MAX_PENDING = BOUND
NODE_ADDRESS = NODE_INPUTS = NODE_OFFSETS = NODE_RECIPE = NODE_SCALARS = NODE_CALL_SITE = BOUND
RUNTIME_ATTACHED = RUNTIME_CAREFUL_SWITCH = RUNTIME_EMPTY = RUNTIME_FALSE = BOUND
RUNTIME_GRAD_SWITCH = RUNTIME_INFERENCE_COUNTER = RUNTIME_INFERENCE_SWITCH = BOUND
RUNTIME_ATTENTIVE_SWITCH = RUNTIME_INFERRING = BOUND
RUNTIME_INTEGERS = RUNTIME_MODES_USED = RUNTIME_NODE_CLASS = RUNTIME_NONE = BOUND
RUNTIME_NO_KIND = BOUND
RUNTIME_STATE = RUNTIME_STORAGE_CLASS = RUNTIME_PENDING = RUNTIME_TENSOR_CLASS = BOUND
RUNTIME_SETTLE = BOUND
RUNTIME_TENSOR_CLASSES = RUNTIME_TRUE = RUNTIME_UNRECORDED = BOUND
RUNTIME_USUAL_CLASS = RUNTIME_VERSION_CLASS = BOUND
RUNTIME_VIEW_CLASS = RUNTIME_OBSERVERS = BOUND
STORAGE_LINKS = STORAGE_SHARED = STORAGE_SPEC = STORAGE_VALUE = STORAGE_VERSION = BOUND
TENSOR_AUTOGRAD_META = TENSOR_EDGE = TENSOR_NEEDS_GRAD = TENSOR_OFFSET = TENSOR_SPEC = BOUND
TENSOR_STORAGE = TENSOR_VERSION_COUNTER = TENSOR_VIEW_OF = BOUND
VERSION_VERSION = VIEW_BASE = VIEW_KIND = VIEW_VERSION = BOUND


@helper
def zero(runtime):
    """The number 0."""
    return item(item(runtime, RUNTIME_INTEGERS), 0)


@helper
def is_tensor(runtime, value):
    """Whether a value is a tensor of a class that was seen before."""
    kind = class_of(value)
    return (
        kind == item(runtime, RUNTIME_USUAL_CLASS)
        or contains(item(runtime, RUNTIME_TENSOR_CLASSES), kind) == 1
    )


@helper
def can_take_fast_path(runtime):
    """Whether nobody watches what this thread does, and `pending` does not become full."""
    if (
        length(item(runtime, RUNTIME_OBSERVERS)) != 0
        or length(item(runtime, RUNTIME_PENDING)) + 1 >= MAX_PENDING
    ):
        return False
    if length(item(runtime, RUNTIME_MODES_USED)) == 0:
        return True
    return is_on(runtime, RUNTIME_ATTENTIVE_SWITCH) or not is_on(runtime, RUNTIME_CAREFUL_SWITCH)


@helper
def is_attentive(runtime):
    """Whether anomaly mode or hooks of what is saved ask for each new backward node of this thread."""
    return length(item(runtime, RUNTIME_MODES_USED)) != 0 and is_on(
        runtime, RUNTIME_ATTENTIVE_SWITCH
    )


@helper
def infers(runtime):
    """Whether results of this thread are inference tensors."""
    return length(item(runtime, RUNTIME_INFERRING)) != 0 and is_on(
        runtime, RUNTIME_INFERENCE_SWITCH
    )


@helper
def new_counter(runtime, storage):
    """What counts the writes into a new tensor: its storage, or, in inference mode, nothing."""
    return own(item(runtime, RUNTIME_INFERENCE_COUNTER) if infers(runtime) else storage)


@helper
def records_gradients(runtime):
    """Whether this thread has operations record backward nodes."""
    return length(item(runtime, RUNTIME_UNRECORDED)) == 0 or is_on(runtime, RUNTIME_GRAD_SWITCH)


@helper
def is_on(runtime, name):
    """Whether a switch of this thread is on."""
    found = new_attribute(item(runtime, RUNTIME_STATE), item(runtime, name))
    drop(found)
    return found == item(runtime, RUNTIME_TRUE)


@helper
def is_bare(runtime, g):
    """Whether a gradient is a bare value, not a tensor: `is_bare` of `graph/node.py`."""
    return class_of(g) == item(runtime, RUNTIME_NODE_CLASS)


@helper
def is_private(runtime, storage):
    """Whether nobody outside looks at the bytes."""
    return get(storage, STORAGE_SHARED) == zero(runtime)


@helper
def is_secluded(runtime, storage):
    """Whether nobody outside looks at the bytes, and no other storage is linked with this one."""
    return is_private(runtime, storage) and get(storage, STORAGE_LINKS) == 0


@helper
def settles(runtime):
    """Run what is recorded; whether that went well."""
    done = new_result_of_nothing(item(runtime, RUNTIME_SETTLE))
    drop(done)
    return done != 0


@helper
def settled(runtime, out):
    """A result that reads memory at which others look, run before they write there; 0 on failure."""
    if out != 0 and not settles(runtime):
        drop(out)
        return 0
    return out


@helper
def version_of(runtime, t):
    """How often a tensor was written so far; 0 where that is not counted."""
    counter = get(t, TENSOR_VERSION_COUNTER)
    if class_of(counter) == item(runtime, RUNTIME_STORAGE_CLASS):
        return get(counter, STORAGE_VERSION)
    if class_of(counter) == item(runtime, RUNTIME_VERSION_CLASS) and counter != item(
        runtime, RUNTIME_INFERENCE_COUNTER
    ):
        return get(counter, VERSION_VERSION)
    return 0


@helper
def hide(runtime, part):
    """Take a part of a graph out of the collector's sight, unless something of the user's hangs on one."""
    if length(item(runtime, RUNTIME_ATTACHED)) == 0:
        untrack(part)


@helper
def show(runtime, part):
    """Show the collector a new part of a graph, if something of the user's hangs on one."""
    if length(item(runtime, RUNTIME_ATTACHED)) != 0:
        track(part)


@helper
def new_node(runtime, recipe, inputs, offsets, scalars):
    """A node; it takes all references over. 0 if one of them is 0.

    No cycle goes through values, which know only those they are made from, nor through their storages. For
    what else a graph consists of, `graph/cycles.py` helps the collector to find cycles.
    """
    node = new_recycled(item(runtime, RUNTIME_NODE_CLASS))
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
    if inputs != item(runtime, RUNTIME_NONE):
        untrack(inputs)
    return node


@helper
def new_ready(runtime, block):
    """A value that is there already, in a block whose reference it takes over; 0 if that is 0."""
    none = item(runtime, RUNTIME_NONE)
    node = new_node(runtime, own(none), own(none), own(none), own(item(runtime, RUNTIME_EMPTY)))
    if node == 0 or block == 0:
        drop(block)
        drop(node)
        return 0
    put(node, NODE_CALL_SITE, own(none))
    put(node, NODE_ADDRESS, block)
    return node


@helper
def new_tensor(runtime, value, spec):
    """A tensor without history around a value, whose reference it takes over; 0 if that is 0."""
    storage = new_storage(runtime, value, spec)
    if storage == 0:
        return 0
    counter, none = new_counter(runtime, storage), own(item(runtime, RUNTIME_NONE))
    return new_handle(runtime, storage, counter, spec, own(zero(runtime)), none)


@helper
def new_storage(runtime, value, spec):
    """A storage around a value, whose reference it takes over; 0 if that is 0."""
    storage = new_recycled(item(runtime, RUNTIME_STORAGE_CLASS))
    if value == 0 or storage == 0:
        drop(value)
        drop(storage)
        return 0
    put(storage, STORAGE_VALUE, value)
    put(storage, STORAGE_SPEC, own(spec))
    put(storage, STORAGE_VERSION, own(zero(runtime)))
    put(storage, STORAGE_SHARED, own(zero(runtime)))
    return storage


@helper
def new_handle(runtime, storage, counter, spec, offset, view):
    """A tensor without history on a storage; it takes all references but the spec's over."""
    out = new_object(item(runtime, RUNTIME_TENSOR_CLASS))
    if out == 0 or offset == 0 or view == 0:
        drop(storage)
        drop(counter)
        drop(offset)
        drop(view)
        drop(out)
        return 0
    none = item(runtime, RUNTIME_NONE)
    put(out, TENSOR_STORAGE, storage)
    put(out, TENSOR_VERSION_COUNTER, counter)
    put(out, TENSOR_SPEC, own(spec))
    put(out, TENSOR_OFFSET, offset)
    put(out, TENSOR_NEEDS_GRAD, own(item(runtime, RUNTIME_FALSE)))
    put(out, TENSOR_EDGE, own(none))
    put(out, TENSOR_VIEW_OF, view)
    put(out, TENSOR_AUTOGRAD_META, own(none))
    show(runtime, out)
    return out


@helper
def new_view(runtime, t, spec, shift, kind):
    """A view of a tensor without history, `shift` elements on; of a `kind`, 0 for its base's."""
    view = new_recycled(item(runtime, RUNTIME_VIEW_CLASS))
    if view == 0:
        return 0
    before = get(t, TENSOR_VIEW_OF)
    is_base = before == item(runtime, RUNTIME_NONE)
    if kind == 0:
        kind = item(runtime, RUNTIME_NO_KIND) if is_base else get(before, VIEW_KIND)
    version = version_of(runtime, t)
    put(view, VIEW_BASE, own(t if is_base else get(before, VIEW_BASE)))
    put(view, VIEW_KIND, own(kind))
    put(view, VIEW_VERSION, own(version if version != 0 else zero(runtime)))
    show(runtime, view)
    offset = new_word(word_of(get(t, TENSOR_OFFSET)) + shift)
    storage, counter = own(get(t, TENSOR_STORAGE)), own(get(t, TENSOR_VERSION_COUNTER))
    return new_handle(runtime, storage, counter, spec, offset, view)
