"""The backward walk over elementwise functions, compiled: what `autograd/engine.py` and
`pull_elementwise` do with plain nodes, on the same objects.
"""

from numba.extending import register_jitable

from .abi import stack_words
from .objects import (
    EQUAL,
    LENGTH,
    add,
    append,
    class_of,
    contains,
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
    new_object,
    new_result,
    new_tuple,
    own,
    put,
    put_list_item,
    remember,
    word_of,
)

# Where the slots of the classes lie, and settings; bound when the module is instantiated.
TENSOR_STORAGE = TENSOR_OFFSET = TENSOR_COUNTER = 0
STORAGE_VALUE = STORAGE_VERSION = STORAGE_SHARED = VERSION_VERSION = 0
NODE_RECIPE = NODE_INPUTS = NODE_OFFSETS = NODE_SCALARS = 0
RECIPE_VJPS = 0
GRAD_RECIPE = GRAD_EDGES = GRAD_INPUTS = GRAD_OUTPUTS = GRAD_EXTRAS = GRAD_SCALARS = 0
GRAD_MASK = GRAD_SAVED = 0
FUNCTION_CONTEXT = MAX_PENDING = 0

# The context.
NODE, STORAGE, VERSION, RECIPE, TAPE, NUMBERS, NONE, TRUE, ZERO, EMPTY = range(10)
# The arguments of `advance`, as words.
ORDER, WAITING, GOALS, MEET, KEEP = range(5)
# What `record.plan_vjp` found: which result each operand gets, and the kernels.
KERNELS, SOURCES = 2, 3
PASSED, NOTHING = -1, -2  # among the sources: the gradient itself, none
KERNEL_RECIPE, KERNEL_NUMBERS, KERNEL_READS = 0, 3, 5


def reach(function, arguments, count, names):
    """Add what can be reached from the backward nodes in a list, which are in a set too."""
    context = get(function, FUNCTION_CONTEXT)
    order, seen = get(arguments, 0), get(arguments, 8)
    none = item(context, NONE)
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
    order, waiting = get(arguments, 8 * ORDER), get(arguments, 8 * WAITING)
    while length(waiting) > 0 and length(order) > 0:
        fn = list_item(order, length(order) - 1)
        grads = find(waiting, fn)
        if grads != 0:
            kernels = plain_kernels(context, arguments, fn, grads)
            if kernels == 0:
                break
            own(grads)
            forget(waiting, fn)
        put(order, LENGTH, length(order) - 1)  # its reference is ours now
        if grads != 0:
            passed = pass_on(context, arguments, fn, kernels, list_item(grads, 0))
            drop(grads)
            if passed and get(arguments, 8 * KEEP) != item(context, TRUE):
                free_saved(context, fn)
        drop(fn)
        if has_failed() != 0:
            return 0
    return 0 if has_failed() != 0 else own(item(context, NONE))


@register_jitable
def plain_kernels(context, arguments, fn, grads):
    """What `plan_vjp` found for a node, if nothing about it is unusual; else 0."""
    recipe, saved, goals = get(fn, GRAD_RECIPE), get(fn, GRAD_SAVED), get(arguments, 8 * GOALS)
    none = item(context, NONE)
    if (
        class_of(recipe) != item(context, RECIPE)
        or get(fn, GRAD_EXTRAS) != none
        or saved == none
        or class_of(list_item(grads, 0)) != item(context, NODE)
        or contains(goals, fn) != 0
    ):
        return 0
    found = find(get(recipe, RECIPE_VJPS), get(fn, GRAD_MASK))
    if found == 0 or item(found, SOURCES) == none:
        return 0
    kernels = item(found, KERNELS)
    if length(item(context, TAPE)) + length(kernels) >= MAX_PENDING:
        return 0
    edges, inputs = get(fn, GRAD_EDGES), get(fn, GRAD_INPUTS)
    for k in range(length(edges)):
        edge = item(edges, k)
        if edge != none:
            outputs = get(item(edge, 0), GRAD_OUTPUTS)
            if item(outputs, word_of(item(edge, 1))) != item(inputs, k):
                return 0
    for k in range(0, length(saved), 2):
        if not is_as_saved(context, item(saved, k), item(saved, k + 1)):
            return 0
    return found


@register_jitable
def is_as_saved(context, kept, version):
    """Whether a saved tensor, or the cell of a saved result, is unwritten and not shared."""
    counter = storage = kept
    if class_of(kept) != item(context, STORAGE):
        counter, storage = get(kept, TENSOR_COUNTER), get(kept, TENSOR_STORAGE)
    if class_of(counter) == item(context, STORAGE):
        now = get(counter, STORAGE_VERSION)
    elif class_of(counter) == item(context, VERSION):
        now = get(counter, VERSION_VERSION)
    else:
        return False
    if get(storage, STORAGE_SHARED) != item(context, ZERO):
        return False
    return now == version or equal(now, version, EQUAL) == 1


@register_jitable
def pass_on(context, arguments, fn, found, g):
    """Record the kernels of a node and let the gradients arrive; whether that went well."""
    kernels, sources = item(found, KERNELS), item(found, SOURCES)
    edges = get(fn, GRAD_EDGES)
    first = length(item(context, TAPE))
    for k in range(length(kernels)):
        node = new_node(context, fn, item(kernels, k), g)
        if node == 0:
            return False
        failed = append(item(context, TAPE), node)
        drop(node)  # the tape has it
        if failed != 0:
            return False
    for k in range(length(edges)):
        edge, source = item(edges, k), word_of(item(sources, k))
        if edge != item(context, NONE) and source != NOTHING:
            value = g if source == PASSED else list_item(item(context, TAPE), first + source)
            if not arrive(context, arguments, edge, own(value)):
                return False
    return True


@register_jitable
def new_node(context, fn, kernel, g):
    """The node of one kernel of a vjp; 0 on failure."""
    none = item(context, NONE)
    saved, reads, numbers = (
        get(fn, GRAD_SAVED),
        item(kernel, KERNEL_READS),
        item(kernel, KERNEL_NUMBERS),
    )
    inputs = new_tuple(length(reads))
    node = new_object(item(context, NODE), 0)
    scalars = new_tuple(length(numbers)) if length(numbers) else own(item(context, EMPTY))
    if inputs == 0 or node == 0 or scalars == 0:
        drop(inputs)
        drop(node)
        drop(scalars)
        return 0
    shifted = False
    for k in range(length(reads)):
        read = word_of(item(reads, k))
        fill(inputs, k, own(g if read == 0 else value_of(context, item(saved, 2 * read - 2))))
        shifted |= read != 0 and offset_of(context, item(saved, 2 * read - 2)) != item(
            context, ZERO
        )
    for k in range(length(numbers)):
        fill(scalars, k, own(item(get(fn, GRAD_SCALARS), word_of(item(numbers, k)))))
    offsets = own(none)
    if shifted:
        offsets = new_tuple(length(reads))
        if offsets == 0:
            drop(inputs)
            drop(node)
            drop(scalars)
            return 0
        for k in range(length(reads)):
            read = word_of(item(reads, k))
            zero = item(context, ZERO)
            fill(
                offsets,
                k,
                own(zero if read == 0 else offset_of(context, item(saved, 2 * read - 2))),
            )
    put(node, NODE_RECIPE, own(item(kernel, KERNEL_RECIPE)))
    put(node, NODE_INPUTS, inputs)
    put(node, NODE_OFFSETS, offsets)
    put(node, NODE_SCALARS, scalars)
    return node


@register_jitable
def value_of(context, kept):
    """The value of a saved tensor or of the cell of a saved result."""
    if class_of(kept) != item(context, STORAGE):
        kept = get(kept, TENSOR_STORAGE)
    return get(kept, STORAGE_VALUE)


@register_jitable
def offset_of(context, kept):
    """Where it starts."""
    return (
        item(context, ZERO)
        if class_of(kept) == item(context, STORAGE)
        else get(kept, TENSOR_OFFSET)
    )


@register_jitable
def arrive(context, arguments, edge, g):
    """Let a gradient, whose reference is taken over, arrive at the end of an edge."""
    waiting = get(arguments, 8 * WAITING)
    parent, number = item(edge, 0), word_of(item(edge, 1))
    none = item(context, NONE)
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
    if before != none:
        words = stack_words(4)
        put(words, 0, parent)
        put(words, 8, item(edge, 1))
        put(words, 16, before)
        put(words, 24, g)
        own(grads)
        met = new_result(get(arguments, 8 * MEET), words, 4, 0)
        drop(g)
        if met == 0:
            drop(grads)
            return False
        drop(list_item(grads, number))
        put_list_item(grads, number, met)
        drop(grads)
        return True
    drop(before)
    put_list_item(grads, number, g)
    return True


@register_jitable
def free_saved(context, fn):
    """Forget what a node saved; a second walk is refused by that."""
    saved = get(fn, GRAD_SAVED)
    if length(saved) > 0 or saved == item(context, NUMBERS):
        put(fn, GRAD_SAVED, own(item(context, NONE)))
        drop(saved)
