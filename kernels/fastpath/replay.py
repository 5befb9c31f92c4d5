"""A replay of a captured function, compiled: what `replay.py` looks at and leaves behind.

What is not the usual case (a value that was computed elsewhere, the gradient of an argument,
memory to be copied first) is left to the fallbacks in Python, before anything has been done.
"""

from ..language.abi import helper
from .cpython import (
    BOUND,
    append,
    class_of,
    count_of,
    drop,
    exchange,
    get,
    item,
    length,
    list_item,
    new_list,
    new_pair,
    new_result,
    new_word,
    own,
    put_list_item,
    trade_list_item,
    word_of,
)
from .tensors import is_private, is_secluded, new_counter, new_handle, new_ready, new_storage

STORAGE_OF_ARGUMENT = STORAGE_OF_STORAGE = STORAGE_OF_META = EFFECT_BLOCK = BOUND
EFFECT_STORAGE = EFFECT_WRITES = BOUND
ARGUMENT_GUARDS_GRADS = GRAD_GUARD_ARGUMENT = GRAD_GUARD_LAYOUT = GRAD_GUARD_META = BOUND
TENSOR_GUARD_NEEDS_GRAD = TENSOR_GUARD_OFFSET = TENSOR_GUARD_SPEC = TENSOR_GUARD_STORAGE = BOUND
TENSOR_GUARD_TENSOR = ARGUMENT_GUARDS_UNCHANGED = ARGUMENT_GUARDS_WRITTEN = BOUND
FUNCTION_CONTEXT = LAYOUT_OFFSET = LAYOUT_SPEC = LAYOUT_WHOLE = BOUND
LEAVING_CLEARED = LEAVING_EFFECTS = LEAVING_TENSORS = META_GRAD = BOUND
NEW_TENSOR_BLOCK = NEW_TENSOR_OFFSET = NEW_TENSOR_OWNER = NEW_TENSOR_SPEC = NEW_TENSOR_WHOLE = BOUND
NODE_ADDRESS = NODE_RECIPE = BOUND
REPLAY_FOREIGN = REPLAY_RUNTIME = REPLAY_FALLBACK = RUNTIME_FALSE = RUNTIME_NONE = BOUND
RUNTIME_TRUE = BOUND
SOURCE_ARGUMENT = SOURCE_STORAGES = SOURCE_CONSTANT = SOURCE_IS_DONATED = SOURCE_OFFSET = BOUND
SOURCE_IS_KEPT = BOUND
STORAGE_SPEC = STORAGE_VALUE = STORAGE_VERSION = BOUND
TENSOR_AUTOGRAD_META = TENSOR_NEEDS_GRAD = TENSOR_OFFSET = TENSOR_SPEC = TENSOR_STORAGE = BOUND


# ----- whether a capture fits -----


def fits(function, arguments, count, names):
    """Whether gradients, tensors and storages from outside are as they were."""
    runtime = item(get(function, FUNCTION_CONTEXT), REPLAY_RUNTIME)
    wanted, given = get(arguments, 0), get(arguments, 8)
    well = (
        all_grads_fit(runtime, item(wanted, ARGUMENT_GUARDS_GRADS), given)
        and all_are_unchanged(runtime, item(wanted, ARGUMENT_GUARDS_UNCHANGED))
        and all_are_secluded(runtime, item(wanted, ARGUMENT_GUARDS_WRITTEN))
    )
    return own(item(runtime, RUNTIME_TRUE if well else RUNTIME_FALSE))


@helper
def all_grads_fit(runtime, wanted, given):
    """Whether gradients lie as they did, or are not there as they were not."""
    none = item(runtime, RUNTIME_NONE)
    for k in range(length(wanted)):
        before = item(wanted, k)
        grad = gradient(
            none, word_of(item(before, GRAD_GUARD_ARGUMENT)), item(before, GRAD_GUARD_META), given
        )
        layout = item(before, GRAD_GUARD_LAYOUT)
        if grad == none or layout == none:
            if grad != layout:
                return False
        elif (
            get(grad, TENSOR_SPEC) != item(layout, LAYOUT_SPEC)
            or word_of(get(grad, TENSOR_OFFSET)) != word_of(item(layout, LAYOUT_OFFSET))
            or get(get(grad, TENSOR_STORAGE), STORAGE_SPEC) != item(layout, LAYOUT_WHOLE)
        ):
            return False
    return True


@helper
def all_are_unchanged(runtime, wanted):
    """Whether tensors from outside look at the same elements, and need gradients as they did."""
    for k in range(length(wanted)):
        seen = item(wanted, k)
        t = item(seen, TENSOR_GUARD_TENSOR)
        if (
            get(t, TENSOR_STORAGE) != item(seen, TENSOR_GUARD_STORAGE)
            or get(t, TENSOR_SPEC) != item(seen, TENSOR_GUARD_SPEC)
            or word_of(get(t, TENSOR_OFFSET)) != word_of(item(seen, TENSOR_GUARD_OFFSET))
            or get(t, TENSOR_NEEDS_GRAD) != item(seen, TENSOR_GUARD_NEEDS_GRAD)
        ):
            return False
    return True


@helper
def all_are_secluded(runtime, storages):
    """Whether what is written into storages concerns nobody else."""
    alone = True
    for k in range(length(storages)):
        alone &= is_secluded(runtime, item(storages, k))
    return alone


# ----- what a replay reads -----


def look_up(function, arguments, count, names):
    """The values that a plan reads from outside, each with the element that it starts at."""
    context = get(function, FUNCTION_CONTEXT)
    sources, given = get(arguments, 0), get(arguments, 8)
    found = new_list(length(sources))
    if found == 0:
        return 0
    for k in range(length(sources)):
        source = item(sources, k)
        value = value_of(context, source, given)
        if value == 0:
            drop(found)
            return new_result(item(context, REPLAY_FALLBACK), arguments, count, names)
        offset = own(item(source, SOURCE_OFFSET))
        argument = word_of(item(source, SOURCE_ARGUMENT))
        if argument >= 0:
            start = word_of(offset) + word_of(get(list_item(given, argument), TENSOR_OFFSET))
            drop(offset)
            offset = new_word(start)
        pair = new_pair(own(value), offset)
        if pair == 0:
            drop(found)
            return 0
        put_list_item(found, k, pair)
    return found


@helper
def value_of(context, source, given):
    """The value of a source, 0 if this is not the usual case."""
    runtime = item(context, REPLAY_RUNTIME)
    none = item(runtime, RUNTIME_NONE)
    value, storages = item(source, SOURCE_CONSTANT), item(source, SOURCE_STORAGES)
    is_kept = item(source, SOURCE_IS_KEPT) == item(runtime, RUNTIME_TRUE)
    for k in range(length(storages)):
        storage = find_storage(none, item(storages, k), given)
        held = none if storage == none else get(storage, STORAGE_VALUE)
        if held == none or (value != none and held != value):
            return 0
        if is_kept and not is_private(runtime, storage):
            return 0
        value = held
    if get(value, NODE_RECIPE) != none:
        return 0
    if item(source, SOURCE_IS_DONATED) == item(runtime, RUNTIME_TRUE) and (
        count_of(value) != 1 or class_of(get(value, NODE_ADDRESS)) == item(context, REPLAY_FOREIGN)
    ):
        return 0
    return value


@helper
def find_storage(none, place, given):
    """A storage: always the same one, that of an argument, or that of a gradient; else None."""
    argument, meta, storage = (
        word_of(item(place, STORAGE_OF_ARGUMENT)),
        item(place, STORAGE_OF_META),
        item(place, STORAGE_OF_STORAGE),
    )
    if storage != none:
        return storage
    if meta == none:
        return get(list_item(given, argument), TENSOR_STORAGE)
    grad = gradient(none, argument, meta, given)
    return none if grad == none else get(grad, TENSOR_STORAGE)


@helper
def gradient(none, argument, meta, given):
    """The gradient of an argument, or else of the owner of a meta; None without one."""
    if argument >= 0:
        meta = get(list_item(given, argument), TENSOR_AUTOGRAD_META)
    return none if meta == none else get(meta, META_GRAD)


# ----- what a replay leaves behind -----


def leave(function, arguments, count, names):
    """Tensors around some blocks, put into a list, some of them gradients; other blocks become values of
    storages. All that can fail comes first."""
    runtime = item(get(function, FUNCTION_CONTEXT), REPLAY_RUNTIME)
    left, blocks, made = get(arguments, 0), get(arguments, 8), get(arguments, 16)
    tensors, effects = item(left, LEAVING_TENSORS), item(left, LEAVING_EFFECTS)
    written = new_list(2 * length(effects))
    if written == 0 or not are_made(runtime, tensors, blocks, made):
        drop(written)
        return 0
    for k in range(length(effects)):
        effect = item(effects, k)
        storage = item(effect, EFFECT_STORAGE)
        node = new_ready(runtime, own(list_item(blocks, word_of(item(effect, EFFECT_BLOCK)))))
        version = new_word(
            word_of(get(storage, STORAGE_VERSION)) + word_of(item(effect, EFFECT_WRITES))
        )
        if node == 0 or version == 0:
            drop(node)
            drop(version)
            drop(written)
            return 0
        put_list_item(written, 2 * k, node)
        put_list_item(written, 2 * k + 1, version)
    for k in range(length(effects)):
        storage = item(item(effects, k), EFFECT_STORAGE)
        trade_list_item(written, 2 * k, storage, STORAGE_VALUE)
        trade_list_item(written, 2 * k + 1, storage, STORAGE_VERSION)
    drop(written)
    for k in range(length(item(left, LEAVING_CLEARED))):
        exchange(item(item(left, LEAVING_CLEARED), k), META_GRAD, own(item(runtime, RUNTIME_NONE)))
    for k in range(length(tensors)):
        meta = item(item(tensors, k), NEW_TENSOR_OWNER)
        if meta != item(runtime, RUNTIME_NONE):
            exchange(meta, META_GRAD, own(list_item(made, k)))
    return own(item(runtime, RUNTIME_NONE))


@helper
def are_made(runtime, tensors, blocks, made):
    """Put the tensors around blocks that are wanted into a list; whether that went well."""
    for k in range(length(tensors)):
        wanted = item(tensors, k)
        node = new_ready(runtime, own(list_item(blocks, word_of(item(wanted, NEW_TENSOR_BLOCK)))))
        storage = new_storage(runtime, node, item(wanted, NEW_TENSOR_WHOLE))
        if storage == 0:
            return False
        offset, view = own(item(wanted, NEW_TENSOR_OFFSET)), own(item(runtime, RUNTIME_NONE))
        counter, spec = new_counter(runtime, storage), item(wanted, NEW_TENSOR_SPEC)
        t = new_handle(runtime, storage, counter, spec, offset, view)
        if t == 0 or append(made, t) != 0:
            drop(t)
            return False
        drop(t)
    return True
