"""The backward walk over elementwise functions, compiled: what `autograd/engine.py` and
`pull_elementwise` do with plain nodes, on the same objects.
"""

from numba.extending import register_jitable

from .abi import stack_words
from .handles import (
    EMPTY,
    MAX_PENDING,
    NODE,
    NONE,
    NUMBERS,
    RECIPE,
    STORAGE,
    STORAGE_VALUE,
    TAPE,
    TENSOR_OFFSET,
    TENSOR_SPEC,
    TENSOR_STORAGE,
    TRUE,
    is_private,
    is_tensor,
    new_node,
    new_tensor,
    version_of,
    zero,
)  # fmt: skip
from .objects import (
    BOUND,
    EQUAL,
    LENGTH,
    add,
    append,
    class_of,
    contains,
    discard,
    drop,
    equal,
    fill,
    find,
    forget,
    get,
    has_failed,
    item,
    length,
    list_item,
    new_list,
    new_pair,
    new_result,
    new_tuple,
    own,
    put,
    put_list_item,
    remember,
    word_of,
)  # fmt: skip

# Where the slots of the classes lie; bound when the module is compiled.
STORAGE_VERSION = RECIPE_VJPS = RECIPE_SPEC = FUNCTION_CONTEXT = BOUND
GRAD_RECIPE = GRAD_EDGES = GRAD_INPUTS = GRAD_OUTPUTS = GRAD_EXTRAS = GRAD_SCALARS = BOUND
GRAD_MASK = GRAD_SAVED = SPEC_NUMEL = SPEC_CONTIGUOUS = BOUND

SHARED, LIST, FIT, TOTAL_OF, MOST, SMALL = range(6)  # the context
ORDER, WAITING, MET, MEET, KEEP = range(5)  # the arguments of `advance`
# What `record.plan_vjp` found: the kernels, and for each operand which of them it needs, and how.
KERNELS, SOURCES, FORMS = range(2, 5)
PASSED, NOTHING = -1, -2  # among the sources: the gradient itself, none
AS_IS, AS_TENSOR, FITTED = range(3)
KERNEL_RECIPE, KERNEL_NUMBERS, KERNEL_READS = 0, 3, 5


def reach(function, arguments, count, names):
    """Add what can be reached from the backward nodes in a list, which are in a set too."""
    none = item(item(get(function, FUNCTION_CONTEXT), SHARED), NONE)
    order, seen = get(arguments, 0), get(arguments, 8)
    at = 0
    while at < length(order):
        edges = get(list_item(order, at), GRAD_EDGES)
        for k in range(length(edges)):
            edge = item(edges, k)
            if edge == none or contains(seen, item(edge, 0)) == 1:
                continue
            if add(seen, item(edge, 0)) != 0 or append(order, item(edge, 0)) != 0:
                return 0
        at += 1
    return own(none)


def advance(function, arguments, count, names):
    """Walk over the nodes at the end of the order as long as they are plain."""
    context = get(function, FUNCTION_CONTEXT)
    shared = item(context, SHARED)
    order, waiting = get(arguments, 8 * ORDER), get(arguments, 8 * WAITING)
    while length(waiting) > 0 and length(order) > 0:
        fn = list_item(order, length(order) - 1)
        grads = find(waiting, fn)
        if grads != 0 and not join(context, arguments, fn, grads):
            return 0
        if grads != 0:
            vjp = plain_vjp(shared, fn, list_item(grads, 0))
            if vjp == 0:
                break
            own(grads)
            forget(waiting, fn)
        put(order, LENGTH, length(order) - 1)  # its reference is ours now
        if grads != 0:
            passed = pass_on(context, arguments, fn, vjp, list_item(grads, 0))
            drop(grads)
            if passed and get(arguments, 8 * KEEP) != item(shared, TRUE):
                free_saved(shared, fn)
        drop(fn)
        if has_failed() != 0:
            return 0
    return 0 if has_failed() != 0 else own(item(shared, NONE))


@register_jitable
def is_list(context, g):
    """Whether these are several gradients that have yet to be summed."""
    return class_of(g) == item(context, LIST)


@register_jitable
def join(context, arguments, fn, grads):
    """Sum the gradients of a node's only output, if there are several; whether that went well."""
    if length(grads) != 1 or not is_list(context, list_item(grads, 0)):
        return True
    words = stack_words(2)
    put(words, 0, list_item(grads, 0))
    put(words, 8, item(get(fn, GRAD_OUTPUTS), 0))
    own(grads)
    joined = new_result(item(context, TOTAL_OF), words, 2, 0)
    if joined != 0:
        drop(list_item(grads, 0))
        put_list_item(grads, 0, joined)
        discard(get(arguments, 8 * MET), fn)
    drop(grads)
    return joined != 0


@register_jitable
def plain_vjp(shared, fn, g):
    """What `plan_vjp` found for a node and its gradient, if nothing about them is unusual; else 0."""
    recipe, saved = get(fn, GRAD_RECIPE), get(fn, GRAD_SAVED)
    none = item(shared, NONE)
    is_elementwise = class_of(recipe) == item(shared, RECIPE)  # so that it is no leaf, no target
    if not is_elementwise or get(fn, GRAD_EXTRAS) != none or saved == none:
        return 0
    vjps = get(recipe, RECIPE_VJPS)
    if class_of(g) == item(shared, NODE):
        vjp = find(vjps, get(fn, GRAD_MASK))
    elif is_tensor(shared, g) and is_private(shared, get(g, TENSOR_STORAGE)):
        key = new_pair(own(get(g, TENSOR_SPEC)), own(get(fn, GRAD_MASK)))
        vjp = find(vjps, key) if key != 0 else 0
        drop(key)
    else:
        return 0
    if vjp == 0 or item(vjp, SOURCES) == none:
        return 0
    if length(item(shared, TAPE)) + length(item(vjp, KERNELS)) >= MAX_PENDING:
        return 0
    for k in range(0, length(saved), 2):
        if not is_as_saved(shared, item(saved, k), item(saved, k + 1)):
            return 0
    return vjp


@register_jitable
def is_as_saved(shared, kept, version):
    """Whether a saved tensor, or the cell of a saved result, is unwritten and not shared."""
    if class_of(kept) == item(shared, STORAGE):
        now, storage = get(kept, STORAGE_VERSION), kept
    else:
        now, storage = version_of(shared, kept), get(kept, TENSOR_STORAGE)
    if now == 0 or not is_private(shared, storage):
        return False
    return now == version or equal(now, version, EQUAL) == 1


@register_jitable
def pass_on(context, arguments, fn, vjp, g):
    """Record the kernels of a node and let the gradients arrive; whether that went well."""
    shared = item(context, SHARED)
    kernels, sources, forms = item(vjp, KERNELS), item(vjp, SOURCES), item(vjp, FORMS)
    nodes = new_tuple(length(kernels))
    if nodes == 0:
        return False
    for k in range(length(kernels)):
        node = new_pullback(shared, fn, item(kernels, k), g)
        if node == 0 or append(item(shared, TAPE), node) != 0:
            drop(node)
            drop(nodes)
            return False
        fill(nodes, k, node)
    is_well = True
    edges = get(fn, GRAD_EDGES)
    for k in range(length(edges)):
        edge, source = item(edges, k), word_of(item(sources, k))
        if edge == item(shared, NONE) or source == NOTHING:
            continue
        if source == PASSED:
            found, spec = g, item(get(fn, GRAD_OUTPUTS), 0)
        else:
            found, spec = (
                item(nodes, source),
                get(item(item(kernels, source), KERNEL_RECIPE), RECIPE_SPEC),
            )
        wanted = item(get(fn, GRAD_INPUTS), k)
        made = new_gradient(context, edge, found, spec, wanted, word_of(item(forms, k)))
        if made == 0 or not arrive(context, arguments, edge, made):
            is_well = False
            break
    drop(nodes)
    return is_well


@register_jitable
def new_pullback(shared, fn, kernel, g):
    """The node of one kernel of a vjp; 0 on failure."""
    saved, reads, numbers = (
        get(fn, GRAD_SAVED),
        item(kernel, KERNEL_READS),
        item(kernel, KERNEL_NUMBERS),
    )
    inputs = new_tuple(length(reads))
    scalars = new_tuple(length(numbers)) if length(numbers) else own(item(shared, EMPTY))
    is_shifted = False
    for k in range(length(reads)):
        is_shifted |= offset_of(shared, read_of(item(reads, k), saved, g)) != zero(shared)
    offsets = new_tuple(length(reads)) if is_shifted else own(item(shared, NONE))
    if inputs != 0 and offsets != 0 and scalars != 0:
        for k in range(length(reads)):
            kept = read_of(item(reads, k), saved, g)
            fill(inputs, k, own(value_of(shared, kept)))
            if is_shifted:
                fill(offsets, k, own(offset_of(shared, kept)))
        for k in range(length(numbers)):
            fill(scalars, k, own(item(get(fn, GRAD_SCALARS), word_of(item(numbers, k)))))
    return new_node(shared, own(item(kernel, KERNEL_RECIPE)), inputs, offsets, scalars)


@register_jitable
def read_of(place, saved, g):
    """What a kernel reads in a place: the gradient, then what is saved."""
    return g if word_of(place) == 0 else item(saved, 2 * word_of(place) - 2)


@register_jitable
def value_of(shared, kept):
    """The value of a tensor or of a cell, or that value itself."""
    if class_of(kept) == item(shared, NODE):
        return kept
    storage = kept if class_of(kept) == item(shared, STORAGE) else get(kept, TENSOR_STORAGE)
    return get(storage, STORAGE_VALUE)


@register_jitable
def offset_of(shared, kept):
    """Where it starts."""
    if class_of(kept) == item(shared, NODE) or class_of(kept) == item(shared, STORAGE):
        return zero(shared)
    return get(kept, TENSOR_OFFSET)


@register_jitable
def new_gradient(context, edge, found, spec, wanted, form):
    """What arrives at the end of an edge: a bare value, or a tensor where it looks different."""
    shared = item(context, SHARED)
    is_bare = class_of(found) == item(shared, NODE)
    if form == AS_IS:
        expected = item(get(item(edge, 0), GRAD_OUTPUTS), word_of(item(edge, 1)))
        if is_bare and expected != wanted:
            return new_tensor(shared, own(found), wanted)
        return own(found)
    made = new_tensor(shared, own(found), spec) if is_bare else own(found)
    if form == AS_TENSOR or made == 0:
        return made
    words = stack_words(2)
    put(words, 0, made)
    put(words, 8, wanted)
    fitted = new_result(item(context, FIT), words, 2, 0)
    drop(made)
    return fitted


@register_jitable
def arrive(context, arguments, edge, g):
    """Let a gradient, whose reference is taken over, arrive at the end of an edge."""
    none = item(item(context, SHARED), NONE)
    waiting = get(arguments, 8 * WAITING)
    parent, number = item(edge, 0), word_of(item(edge, 1))
    grads = find(waiting, parent)
    if grads == 0:
        outputs = length(get(parent, GRAD_OUTPUTS))
        grads = new_list(outputs)
        if grads == 0:
            drop(g)
            return False
        for k in range(outputs):
            put_list_item(grads, k, g if k == number else own(none))
        failed = remember(waiting, parent, grads)
        drop(grads)
        return failed == 0
    before = list_item(grads, number)
    if before == none:
        put_list_item(grads, number, g)
        drop(before)
        return True
    if gather(context, arguments, parent, number, grads, g):
        return True
    words = stack_words(4)
    put(words, 0, parent)
    put(words, 8, item(edge, 1))
    put(words, 16, before)
    put(words, 24, g)
    met = new_result(get(arguments, 8 * MEET), words, 4, 0)
    drop(g)
    if met != 0:
        put_list_item(grads, number, met)
        drop(before)
    return met != 0


@register_jitable
def gather(context, arguments, parent, number, grads, g):
    """Let a small gradient wait beside those that have arrived, to be summed at once; whether it can.

    `Walk.meet` says when; this is the usual case of it.
    """
    shared = item(context, SHARED)
    before = list_item(grads, number)
    if class_of(g) != item(shared, NODE):
        return False
    if is_list(context, before):
        if length(before) + 1 >= word_of(item(context, MOST)) or append(before, g) != 0:
            return False
        drop(g)
        return True
    spec = item(get(parent, GRAD_OUTPUTS), number)
    is_small = word_of(get(spec, SPEC_NUMEL)) <= word_of(item(context, SMALL))
    if (
        class_of(before) != item(shared, NODE)
        or get(spec, SPEC_CONTIGUOUS) != item(shared, TRUE)
        or not is_small
    ):
        return False
    pair = new_list(2)
    if pair == 0 or add(get(arguments, 8 * MET), parent) != 0:
        drop(pair)
        return False
    put_list_item(pair, 0, before)
    put_list_item(pair, 1, g)
    put_list_item(grads, number, pair)
    return True


@register_jitable
def free_saved(shared, fn):
    """Forget what a node saved; a second walk is refused by that."""
    saved = get(fn, GRAD_SAVED)
    if length(saved) > 0 or saved == item(shared, NUMBERS):
        put(fn, GRAD_SAVED, own(item(shared, NONE)))
        drop(saved)
