"""The backward walk, compiled: what `autograd/engine.py`, `elementwise_vjps`, `Operation.apply_vjp`,
`ViewOp.apply_vjp` and `CopySlices.apply_vjp` do with plain nodes, on the same objects.
"""

from ..language.abi import helper, stack_words
from .cpython import (
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
    exchange,
    exchange_list_item,
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
    new_single,
    new_tuple,
    own,
    put,
    put_list_item,
    remember,
    set_length,
    word_of,
)
from .sorting import sort_by
from .tensors import (
    can_take_fast_path,
    is_bare,
    is_private,
    is_tensor,
    new_node,
    new_tensor,
    new_view,
    settles,
    version_of,
    zero,
)
from .traces import MOST_VALUES, completed

ADVANCE_CAPTURED = ADVANCE_KEEP = ADVANCE_ACCUMULATE = ADVANCE_SUMS = ADVANCE_ORDER = BOUND
ADVANCE_GOALS = ADVANCE_TARGETS = ADVANCE_USEFUL = ADVANCE_WAITING = BOUND
AS_IS = AS_TENSOR = BOUND
BACKWARD_ACCUMULATE_OP = BACKWARD_UNBROADCAST = BACKWARD_UNBROADCAST_TRACES = BOUND
BACKWARD_MOST = BACKWARD_PARTS = BACKWARD_VIEW_VJP_CLASS = BOUND
BACKWARD_RUNTIME = BACKWARD_SAVE_PLAN_CLASS = BACKWARD_SMALL = BACKWARD_TRACE_CLASS = BOUND
BACKWARD_TOTALS = BACKWARD_TOTAL_OF = BACKWARD_WRITTEN_REGION_CLASS = BOUND
BASIC_FALLBACK = FITTED = FUNCTION_CONTEXT = BOUND
GRAD_CONTEXT = GRAD_EDGES = GRAD_EXTRAS = GRAD_INPUTS = GRAD_MASK = GRAD_OP = BOUND
GRAD_OUTPUTS = BOUND
GRAD_SAVED = GRAD_SCALARS = GRAD_SEQ = BOUND
KERNEL_NUMBERS = KERNEL_READS = KERNEL_RECIPE = KERNEL_WHICH = LEAF_VARIABLE = MAX_PENDING = BOUND
META_GRAD = META_POST_HOOKS = NEW_STORAGE_SPEC = NEW_STORAGE_VALUE = NOTHING = BOUND
OUTPUT_IS_VIEW = OUTPUT_NUMBER = OUTPUT_OFFSET = OUTPUT_SPEC = BOUND
OP_RECORD_VJPS = OP_RECORD_VJPS_BY_SPEC = PASSED = VIEW_VJP_TRACES = RECIPE_PICKS = BOUND
VIEW_VJP_OFFSET = BOUND
RUNTIME_EMPTY = RUNTIME_INTEGERS = RUNTIME_INT_CLASS = RUNTIME_LIST_CLASS = BOUND
RUNTIME_NONE = RUNTIME_NO_GRAD = RUNTIME_NUMBERS = BOUND
RUNTIME_OP_RECORD_CLASS = RUNTIME_STORAGE_CLASS = RUNTIME_PENDING = RUNTIME_TRUE = BOUND
SAVE_PLAN_TRACES = SPEC_CONTIGUOUS = SPEC_NUMEL = BOUND
STORAGE_SPEC = STORAGE_VALUE = STORAGE_VERSION = BOUND
TRACE_UNALIASED = TRACE_OUTPUTS = TRACE_STEPS = TRACE_STORAGES = BOUND
TENSOR_AUTOGRAD_META = TENSOR_NEEDS_GRAD = TENSOR_OFFSET = TENSOR_SPEC = TENSOR_STORAGE = BOUND
VJP_FIXES = VJP_KERNELS = VJP_MADE = VJP_SOURCES = WRITTEN_REGION_TRACES = BOUND

PAIRS = 2 * MOST_VALUES


def reach(function, arguments, count, names):
    """Add what can be reached from the backward nodes in a list, which are in a set too, and sort it.

    What it returns are those from which nothing can be reached.
    """
    context = get(function, FUNCTION_CONTEXT)
    none, ends = item(item(context, BACKWARD_RUNTIME), RUNTIME_NONE), new_list(0)
    order, seen = get(arguments, 0), get(arguments, 8)
    known, at = set_length(seen), 0
    is_well = ends != 0
    while is_well and at < length(order):
        fn = list_item(order, at)
        edges = get(fn, GRAD_EDGES)
        if length(edges) == 0:
            is_well = append(ends, fn) == 0
        for k in range(length(edges)):
            edge = item(edges, k)
            if edge == none or not is_well:
                continue
            is_well = add(seen, item(edge, 0)) == 0
            if is_well and set_length(seen) != known:
                known += 1
                is_well = append(order, item(edge, 0)) == 0
        at += 1
    if is_well and sort_by(order, GRAD_SEQ):
        return ends
    drop(ends)
    return (
        0
        if has_failed() != 0
        else new_result(item(context, BASIC_FALLBACK), arguments, count, names)
    )


def advance(function, arguments, count, names):
    """Walk over the nodes at the end of the order as long as they are plain."""
    context = get(function, FUNCTION_CONTEXT)
    runtime = item(context, BACKWARD_RUNTIME)
    order, waiting = get(arguments, 8 * ADVANCE_ORDER), get(arguments, 8 * ADVANCE_WAITING)
    captured = get(arguments, 8 * ADVANCE_CAPTURED)
    while length(waiting) > 0 and length(order) > 0:
        last = length(order) - 1
        fn = list_item(order, last)
        grads = find(waiting, fn)
        is_leaf = get(fn, GRAD_OP) == item(context, BACKWARD_ACCUMULATE_OP)
        if grads != 0 and not is_leaf and not is_way(runtime, arguments, fn):
            break
        if grads != 0 and not join(context, arguments, fn, grads):
            return 0
        if grads != 0 and adds_part(context, arguments, fn, grads):
            forget(waiting, fn)
            grads = 0
        if has_failed() != 0:
            return 0
        if grads != 0:
            kind = class_of(get(fn, GRAD_CONTEXT))
            is_elementwise = kind == item(runtime, RUNTIME_OP_RECORD_CLASS)
            if is_leaf:
                way = new_grad(runtime, fn, list_item(grads, 0), captured)
            elif is_elementwise:
                way = plain_vjp(runtime, fn, list_item(grads, 0))
            else:
                way = new_way(context, runtime, fn, grads)
            if way == 0:
                break
            own(grads)
            forget(waiting, fn)
        put(order, LENGTH, last)  # its reference is ours now
        if grads != 0:
            if is_leaf:
                passed = end(runtime, fn, way, captured)
            elif is_elementwise:
                passed = pass_on(context, arguments, fn, way, list_item(grads, 0))
            else:
                passed = follow(context, arguments, fn, way, grads)
                drop(way)
            drop(grads)
            if passed and get(arguments, 8 * ADVANCE_KEEP) != item(runtime, RUNTIME_TRUE):
                free_saved(runtime, fn)
        drop(fn)
        if has_failed() != 0:
            return 0
    return 0 if has_failed() != 0 else own(item(runtime, RUNTIME_NONE))


@helper
def is_way(runtime, arguments, fn):
    """Whether a node is on the way to a target, and none itself."""
    useful = get(arguments, 8 * ADVANCE_USEFUL)
    if useful == item(runtime, RUNTIME_NONE):
        return True
    return contains(useful, fn) == 1 and contains(get(arguments, 8 * ADVANCE_GOALS), fn) == 0


@helper
def is_awaited(runtime, arguments, edge):
    """Whether a gradient may arrive at the end of an edge: each, or those from which a target is reached."""
    useful = get(arguments, 8 * ADVANCE_USEFUL)
    if useful == item(runtime, RUNTIME_NONE) or contains(useful, item(edge, 0)) == 1:
        return True
    return contains(get(arguments, 8 * ADVANCE_TARGETS), edge) == 1


@helper
def new_grad(runtime, fn, g, captured):
    """What a gradient becomes at a leaf without hooks: its `.grad`, if it has none, or one of those
    that are `captured`; else 0."""
    none, leaf = item(runtime, RUNTIME_NONE), get(fn, LEAF_VARIABLE)
    if get(fn, GRAD_EXTRAS) != none or g == none:
        return 0
    if captured == none and not is_free(runtime, leaf):
        return 0
    if is_bare(runtime, g):
        return new_tensor(runtime, own(g), item(get(fn, GRAD_OUTPUTS), 0))
    return new_own_copy(runtime, g, leaf) if captured == none else own(g)


@helper
def is_free(runtime, leaf):
    """Whether a leaf wants a gradient and has none yet, and nothing is to be called once it has one."""
    none, meta = item(runtime, RUNTIME_NONE), get(leaf, TENSOR_AUTOGRAD_META)
    if get(leaf, TENSOR_NEEDS_GRAD) != item(runtime, RUNTIME_TRUE):
        return False
    return meta != none and get(meta, META_GRAD) == none and length(get(meta, META_POST_HOOKS)) == 0


@helper
def new_own_copy(runtime, g, leaf):
    """A handle of its own on the value of a gradient, if that is all of its memory and lies as the leaf does;
    else 0."""
    if not is_tensor(runtime, g) or get(g, TENSOR_OFFSET) != zero(runtime):
        return 0
    storage, spec = get(g, TENSOR_STORAGE), get(g, TENSOR_SPEC)
    if spec != get(leaf, TENSOR_SPEC):
        return 0
    whole = get(storage, STORAGE_SPEC)
    is_whole = spec == whole or (
        get(spec, SPEC_CONTIGUOUS) == item(runtime, RUNTIME_TRUE)
        and word_of(get(spec, SPEC_NUMEL)) == word_of(get(whole, SPEC_NUMEL))
    )
    if not is_whole or not is_private(runtime, storage):
        return 0
    return new_tensor(runtime, own(get(storage, STORAGE_VALUE)), spec)


@helper
def end(runtime, fn, grad, captured):
    """Leave a gradient, whose reference is taken over, at its leaf; whether that went well."""
    if captured == item(runtime, RUNTIME_NONE):
        exchange(get(get(fn, LEAF_VARIABLE), TENSOR_AUTOGRAD_META), META_GRAD, grad)
        return True
    place = new_pair(own(fn), own(zero(runtime)))
    failed = remember(captured, place, grad) if place != 0 else 1
    drop(place)
    drop(grad)
    return failed == 0


@helper
def is_list(runtime, g):
    """Whether these are several gradients that have yet to be summed."""
    return class_of(g) == item(runtime, RUNTIME_LIST_CLASS)


@helper
def join(context, arguments, fn, grads):
    """Sum the gradients of a node's only output, if there are several; whether that went well."""
    if length(grads) != 1 or not is_list(item(context, BACKWARD_RUNTIME), list_item(grads, 0)):
        return True
    own(grads)
    gathered, spec = list_item(grads, 0), item(get(fn, GRAD_OUTPUTS), 0)
    joined = new_sum(context, spec, new_tuple_of(gathered))
    if joined == 0 and has_failed() == 0:
        words = stack_words(2)
        put(words, 0, gathered)
        put(words, 8, spec)
        joined = new_result(item(context, BACKWARD_TOTAL_OF), words, 2, 0)
    if joined != 0:
        exchange_list_item(grads, 0, joined)
        discard(get(arguments, 8 * ADVANCE_SUMS), fn)
    drop(grads)
    return joined != 0


@helper
def new_tuple_of(collection):
    """The items of a list as a tuple; 0 on failure."""
    made = new_tuple(length(collection))
    if made != 0:
        for k in range(length(collection)):
            fill(made, k, own(list_item(collection, k)))
    return made


@helper
def plain_vjp(runtime, fn, g):
    """What `plan_vjp` found for a node and its gradient, if nothing about them is unusual; else 0."""
    none, saved = item(runtime, RUNTIME_NONE), get(fn, GRAD_SAVED)
    if get(fn, GRAD_EXTRAS) != none or saved == none:
        return 0
    op_record = get(fn, GRAD_CONTEXT)
    if is_bare(runtime, g):
        vjp = find(get(op_record, OP_RECORD_VJPS), get(fn, GRAD_MASK))
    elif is_tensor(runtime, g) and is_private(runtime, get(g, TENSOR_STORAGE)):
        key = new_pair(own(get(g, TENSOR_SPEC)), own(get(fn, GRAD_MASK)))
        vjp = find(get(op_record, OP_RECORD_VJPS_BY_SPEC), key) if key != 0 else 0
        drop(key)
    else:
        return 0
    if vjp == 0:
        return 0
    more = length(item(vjp, VJP_KERNELS)) + length(item(vjp, VJP_MADE))
    if length(item(runtime, RUNTIME_PENDING)) + more >= MAX_PENDING:
        return 0
    return vjp if all_as_saved(runtime, saved) else 0


@helper
def settles_shared(runtime, fn):
    """Run what is recorded if others look at the memory of something that a node saved, before they write
    there; whether that went well."""
    saved = get(fn, GRAD_SAVED)
    is_shared = False
    for k in range(0, length(saved), 2):
        kept = item(saved, k)
        is_stored = class_of(kept) == item(runtime, RUNTIME_STORAGE_CLASS)
        is_shared |= not is_private(runtime, kept if is_stored else get(kept, TENSOR_STORAGE))
    return not is_shared or settles(runtime)


@helper
def all_as_saved(runtime, saved):
    """Whether all that was saved is unwritten."""
    unwritten = True
    for k in range(0, length(saved), 2):
        unwritten = unwritten and is_as_saved(runtime, item(saved, k), item(saved, k + 1))
    return unwritten


@helper
def is_as_saved(runtime, kept, version):
    """Whether a saved tensor, or the storage of a saved result, is unwritten."""
    is_stored = class_of(kept) == item(runtime, RUNTIME_STORAGE_CLASS)
    now = get(kept, STORAGE_VERSION) if is_stored else version_of(runtime, kept)
    if now == 0:
        return False
    return now == version or equal(now, version, EQUAL) == 1


@helper
def pass_on(context, arguments, fn, vjp, g):
    """Record the kernels of a node and let the gradients arrive; whether that went well."""
    runtime = item(context, BACKWARD_RUNTIME)
    kernels, sources, fixes = item(vjp, VJP_KERNELS), item(vjp, VJP_SOURCES), item(vjp, VJP_FIXES)
    nodes = new_tuple(length(item(vjp, VJP_MADE)))
    if nodes == 0:
        return False
    filled = 0
    for k in range(length(kernels)):
        count = record_pullback(runtime, fn, item(kernels, k), g, nodes, filled)
        if count == 0:
            drop(nodes)
            return False
        filled += count
    is_well = settles_shared(runtime, fn)
    edges = get(fn, GRAD_EDGES)
    for k in range(length(edges) if is_well else 0):
        edge, source = item(edges, k), word_of(item(sources, k))
        if edge == item(runtime, RUNTIME_NONE) or source == NOTHING:
            continue
        if not is_awaited(runtime, arguments, edge):
            continue
        if source == PASSED:
            found, spec = g, item(get(fn, GRAD_OUTPUTS), 0)
        else:
            found, spec = item(nodes, source), item(item(vjp, VJP_MADE), source)
        wanted = item(get(fn, GRAD_INPUTS), k)
        made = new_gradient(context, edge, found, spec, wanted, word_of(item(fixes, k)))
        if made == 0 or not add_gradient(context, arguments, edge, made):
            is_well = False
            break
    drop(nodes)
    return is_well


@helper
def record_pullback(runtime, fn, kernel, g, nodes, place):
    """Record one kernel of a vjp, and fill its results into a tuple from a place on; how many, 0 on failure."""
    pending, count = item(runtime, RUNTIME_PENDING), length(item(kernel, KERNEL_WHICH))
    node = new_pullback(runtime, fn, kernel, g)
    if node == 0 or append(pending, node) != 0:
        drop(node)
        return 0
    if count == 1:
        fill(nodes, place, node)
        return 1
    for k in range(count):
        pick = own(list_item(get(item(kernel, KERNEL_RECIPE), RECIPE_PICKS), k))
        none, empty = own(item(runtime, RUNTIME_NONE)), own(item(runtime, RUNTIME_EMPTY))
        picked = new_node(runtime, pick, new_single(own(node)), none, empty)
        if picked == 0 or append(pending, picked) != 0:
            drop(picked)
            count = 0
            break
        fill(nodes, place + k, picked)
    drop(node)
    return count


@helper
def new_pullback(runtime, fn, kernel, g):
    """The node of one kernel of a vjp; 0 on failure."""
    saved, reads = get(fn, GRAD_SAVED), item(kernel, KERNEL_READS)
    inputs = new_tuple(length(reads))
    is_shifted = False
    for k in range(length(reads)):
        is_shifted |= offset_of(runtime, read_of(item(reads, k), saved, g)) != zero(runtime)
    offsets = new_tuple(length(reads)) if is_shifted else own(item(runtime, RUNTIME_NONE))
    if inputs != 0 and offsets != 0:
        for k in range(length(reads)):
            kept = read_of(item(reads, k), saved, g)
            fill(inputs, k, own(value_of(runtime, kept)))
            if is_shifted:
                fill(offsets, k, own(offset_of(runtime, kept)))
    scalars = new_scalars(runtime, fn, item(kernel, KERNEL_NUMBERS))
    return new_node(runtime, own(item(kernel, KERNEL_RECIPE)), inputs, offsets, scalars)


@helper
def new_scalars(runtime, fn, numbers):
    """The scalars that a kernel reads, of those of a node by number; 0 on failure."""
    if length(numbers) == 0:
        return own(item(runtime, RUNTIME_EMPTY))
    scalars = new_tuple(length(numbers))
    for k in range(length(numbers) if scalars != 0 else 0):
        fill(scalars, k, own(item(get(fn, GRAD_SCALARS), word_of(item(numbers, k)))))
    return scalars


@helper
def read_of(place, saved, g):
    """What a kernel reads in a place: the gradient, then what is saved."""
    return g if word_of(place) == 0 else item(saved, 2 * word_of(place) - 2)


@helper
def value_of(runtime, kept):
    """The value of a tensor or of a storage, or that value itself."""
    if is_bare(runtime, kept):
        return kept
    storage = (
        kept
        if class_of(kept) == item(runtime, RUNTIME_STORAGE_CLASS)
        else get(kept, TENSOR_STORAGE)
    )
    return get(storage, STORAGE_VALUE)


@helper
def offset_of(runtime, kept):
    """Where it starts."""
    if is_bare(runtime, kept) or class_of(kept) == item(runtime, RUNTIME_STORAGE_CLASS):
        return zero(runtime)
    return get(kept, TENSOR_OFFSET)


@helper
def new_gradient(context, edge, found, spec, wanted, fix):
    """What arrives at the end of an edge: a bare value, or a tensor where it looks different."""
    runtime = item(context, BACKWARD_RUNTIME)
    if fix == AS_IS:
        return new_as_is(runtime, edge, found, wanted)
    if fix == FITTED:
        made = new_fitted(context, edge, found, spec, wanted)
        if made != 0 or has_failed() != 0:
            return made
    made = new_tensor(runtime, own(found), spec) if is_bare(runtime, found) else own(found)
    if fix == AS_TENSOR or made == 0:
        return made
    words = stack_words(2)
    put(words, 0, made)
    put(words, 8, wanted)
    fitted = new_result(item(context, BACKWARD_UNBROADCAST), words, 2, 0)
    drop(made)
    return fitted


@helper
def new_as_is(runtime, edge, found, wanted):
    """A gradient that looks as is wanted; as a tensor where its receiver expects another layout."""
    expected = item(get(item(edge, 0), GRAD_OUTPUTS), word_of(item(edge, 1)))
    if is_bare(runtime, found) and expected != wanted:
        return new_tensor(runtime, own(found), wanted)
    return own(found)


@helper
def new_fitted(context, edge, found, spec, wanted):
    """A gradient summed and converted to what the input looked like, by a trace; 0 without one."""
    runtime = item(context, BACKWARD_RUNTIME)
    is_value = is_bare(runtime, found)
    if not can_take_fast_path(runtime) or not (
        is_value or is_private(runtime, get(found, TENSOR_STORAGE))
    ):
        return 0
    key = new_pair(own(spec if is_value else get(found, TENSOR_SPEC)), own(wanted))
    trace = own(find(item(context, BACKWARD_UNBROADCAST_TRACES), key)) if key != 0 else 0
    drop(key)
    made = 0
    true = item(runtime, RUNTIME_TRUE)
    is_unaliased = trace != 0 and has_room_in(context, runtime, trace)
    if is_unaliased and get(trace, TRACE_UNALIASED) == true:
        steps = get(trace, TRACE_STEPS)
        starts = stack_words(1)
        put(starts, 0, word_of(offset_of(runtime, found)))
        values = new_tuple(1 + length(steps))
        if values != 0:
            fill(values, 0, own(value_of(runtime, found)))
            values = completed(runtime, steps, values, 1, starts if get(starts, 0) != 0 else 0)
        if values != 0:
            output = list_item(get(trace, TRACE_OUTPUTS), 0)
            part = new_part(runtime, trace, values, 0, output)
            if part != 0 and item(output, OUTPUT_SPEC) == wanted:
                made = new_as_is(runtime, edge, part, wanted)
                drop(part)
            elif part != 0 and is_bare(runtime, part):
                made = new_tensor(runtime, part, item(output, OUTPUT_SPEC))
            else:
                made = part
            drop(values)
    drop(trace)
    return made


@helper
def add_gradient(context, arguments, edge, g):
    """Let a gradient, whose reference is taken over, arrive at the end of an edge."""
    none = item(item(context, BACKWARD_RUNTIME), RUNTIME_NONE)
    waiting = get(arguments, 8 * ADVANCE_WAITING)
    parent, number = item(edge, 0), word_of(item(edge, 1))
    grads = find(waiting, parent)
    if grads == 0:
        outputs = length(get(parent, GRAD_OUTPUTS))
        grads = new_list(outputs)
        if grads == 0:
            drop(g)
            return False
        for k in range(outputs):
            put_list_item(grads, k, own(none))
        exchange_list_item(grads, number, g)
        failed = remember(waiting, parent, grads)
        drop(grads)
        return failed == 0
    before = list_item(grads, number)
    if before == none:
        exchange_list_item(grads, number, g)
        return True
    if gather(context, arguments, parent, number, grads, g):
        return True
    words = stack_words(4)
    put(words, 0, parent)
    put(words, 8, item(edge, 1))
    put(words, 16, before)
    put(words, 24, g)
    sums = new_result(get(arguments, 8 * ADVANCE_ACCUMULATE), words, 4, 0)
    drop(g)
    if sums != 0:
        exchange_list_item(grads, number, sums)
    return sums != 0


@helper
def bare(runtime, g, spec):
    """The value of a gradient that has the layout `spec` and whose bytes nobody looks at; else 0."""
    if is_bare(runtime, g):
        return g
    if not is_tensor(runtime, g) or get(g, TENSOR_SPEC) != spec:
        return 0
    if offset_of(runtime, g) != zero(runtime) or not is_private(runtime, get(g, TENSOR_STORAGE)):
        return 0
    return value_of(runtime, g)


@helper
def gather(context, arguments, parent, number, grads, g):
    """Let a gradient wait beside those that have arrived, or add it to one; whether it can.

    `Walk.accumulate` says when; this is the usual case of it.
    """
    runtime = item(context, BACKWARD_RUNTIME)
    before, spec = list_item(grads, number), item(get(parent, GRAD_OUTPUTS), number)
    value = bare(runtime, g, spec)
    if value == 0:
        return False
    if is_list(runtime, before):
        if (
            length(before) + 1 >= word_of(item(context, BACKWARD_MOST))
            or append(before, value) != 0
        ):
            return False
        drop(g)
        return True
    other = bare(runtime, before, spec)
    if other == 0 or get(spec, SPEC_CONTIGUOUS) != item(runtime, RUNTIME_TRUE):
        return False
    if word_of(get(spec, SPEC_NUMEL)) > word_of(item(context, BACKWARD_SMALL)):
        both = new_sum(context, spec, new_pair(own(other), own(value)))
    else:
        both = new_list(2) if add(get(arguments, 8 * ADVANCE_SUMS), parent) == 0 else 0
        if both != 0:
            put_list_item(both, 0, own(other))
            put_list_item(both, 1, own(value))
    if both == 0:
        return False
    exchange_list_item(grads, number, both)
    drop(g)
    return True


@helper
def new_sum(context, spec, values):
    """The sum of a tuple of values of a spec, recorded as by `total_of`; 0 where that has to do it.

    The tuple is taken over.
    """
    runtime = item(context, BACKWARD_RUNTIME)
    recipe = 0
    if values != 0 and can_take_fast_path(runtime):
        count = item(item(runtime, RUNTIME_INTEGERS), length(values))
        key = new_pair(own(spec), own(count))
        recipe = own(find(item(context, BACKWARD_TOTALS), key)) if key != 0 else 0
        drop(key)
    if recipe == 0:
        drop(values)
        return 0
    node = new_node(
        runtime, recipe, values, own(item(runtime, RUNTIME_NONE)), own(item(runtime, RUNTIME_EMPTY))
    )
    if node != 0 and append(item(runtime, RUNTIME_PENDING), node) != 0:
        drop(node)
        return 0
    return node


@helper
def adds_part(context, arguments, fn, grads):
    """Add the gradient of a part of a tensor to that of the tensor, as `Walk.add_part`; whether it could."""
    runtime, grad_context = item(context, BACKWARD_RUNTIME), get(fn, GRAD_CONTEXT)
    none = item(runtime, RUNTIME_NONE)
    if class_of(grad_context) != item(context, BACKWARD_VIEW_VJP_CLASS) or length(grads) != 1:
        return False
    offset, edge = get(grad_context, VIEW_VJP_OFFSET), item(get(fn, GRAD_EDGES), 0)
    g = list_item(grads, 0)
    if offset == none or edge == none or g == none or get(fn, GRAD_EXTRAS) != none:
        return False
    parent, number = item(edge, 0), word_of(item(edge, 1))
    whole, part = item(get(fn, GRAD_INPUTS), 0), item(get(fn, GRAD_OUTPUTS), 0)
    found = find(get(arguments, 8 * ADVANCE_WAITING), parent)
    if found == 0 or item(get(parent, GRAD_OUTPUTS), number) != whole:
        return False
    first = list_item(found, number)
    if first == none or length(item(runtime, RUNTIME_PENDING)) + 2 >= MAX_PENDING:
        return False
    given = part
    if not is_bare(runtime, g):
        if not is_tensor(runtime, g) or not is_private(runtime, get(g, TENSOR_STORAGE)):
            return False
        given = get(g, TENSOR_SPEC)
    key = new_tuple(3)
    if key == 0:
        return False
    fill(key, 0, own(whole))
    fill(key, 1, own(part))
    fill(key, 2, own(given))
    recipe = own(find(item(context, BACKWARD_PARTS), key))
    into = 0
    if recipe != 0 and is_list(runtime, first):
        into = new_sum(context, whole, new_tuple_of(first))
    elif recipe != 0:
        into = own(bare(runtime, first, whole))
    drop(key)
    if into == 0:
        drop(recipe)
        return False
    start = offset_of(runtime, g)
    is_shifted = start != zero(runtime)
    offsets = new_pair(own(zero(runtime)), own(start)) if is_shifted else own(none)
    inputs = new_pair(into, own(value_of(runtime, g)))
    node = new_node(runtime, recipe, inputs, offsets, new_single(own(offset)))
    if node == 0 or append(item(runtime, RUNTIME_PENDING), node) != 0:
        drop(node)
        return False
    exchange_list_item(found, number, node)
    return True


@helper
def free_saved(runtime, fn):
    """Forget what a node saved; a second walk is refused by that."""
    saved = get(fn, GRAD_SAVED)
    if length(saved) > 0 or saved == item(runtime, RUNTIME_NUMBERS):
        put(fn, GRAD_SAVED, own(item(runtime, RUNTIME_NONE)))
        drop(saved)


# ----- `apply_vjp` of `Operation`, `ViewOp` and `CopySlices` -----


@helper
def new_way(context, runtime, fn, grads):
    """The trace of a node's vjp, with a reference, if nothing about it is unusual; else 0."""
    none, saved, grad_context = (
        item(runtime, RUNTIME_NONE),
        get(fn, GRAD_SAVED),
        get(fn, GRAD_CONTEXT),
    )
    if class_of(grad_context) == item(context, BACKWARD_SAVE_PLAN_CLASS):
        traces = get(grad_context, SAVE_PLAN_TRACES)
    elif class_of(grad_context) == item(context, BACKWARD_VIEW_VJP_CLASS):
        traces = get(grad_context, VIEW_VJP_TRACES)
    elif class_of(grad_context) == item(context, BACKWARD_WRITTEN_REGION_CLASS):
        # What was recorded for a gradient that is all of its memory holds for no other.
        if not is_whole(runtime, list_item(grads, 0)):
            return 0
        traces = get(grad_context, WRITTEN_REGION_TRACES)
    else:
        return 0
    if get(fn, GRAD_EXTRAS) != none or saved == none or not can_take_fast_path(runtime):
        return 0
    if length(grads) + length(saved) // 2 > MOST_VALUES or not all_as_saved(runtime, saved):
        return 0
    key = new_key(context, runtime, fn, grads)
    if key == 0:
        return 0
    trace = own(find(traces, key))
    drop(key)
    if trace != 0 and not has_room_in(context, runtime, trace):
        drop(trace)
        return 0
    return trace


@helper
def is_whole(runtime, g):
    """Whether a gradient is known to be all of its memory."""
    if is_bare(runtime, g):
        return True
    if not is_tensor(runtime, g) or get(g, TENSOR_OFFSET) != zero(runtime):
        return False
    return get(get(g, TENSOR_STORAGE), STORAGE_SPEC) == get(g, TENSOR_SPEC)


@helper
def new_key(context, runtime, fn, grads):
    """What the gradients that arrived look like: a spec for each, None for none; else 0."""
    none = item(runtime, RUNTIME_NONE)
    for k in range(length(grads)):
        g = list_item(grads, k)
        if g == none or is_bare(runtime, g):
            continue
        if not is_tensor(runtime, g) or not is_private(runtime, get(g, TENSOR_STORAGE)):
            return 0
    key = new_tuple(length(grads))
    if key == 0:
        return 0
    for k in range(length(grads)):
        g = list_item(grads, k)
        if g == none:
            spec = none
        elif is_bare(runtime, g):
            spec = item(get(fn, GRAD_OUTPUTS), k)
        else:
            spec = get(g, TENSOR_SPEC)
        fill(key, k, own(spec))
    return key


@helper
def has_room_in(context, runtime, trace):
    """Whether this is a trace that fits into `pending`."""
    if class_of(trace) != item(context, BACKWARD_TRACE_CLASS):
        return False
    return length(item(runtime, RUNTIME_PENDING)) + length(get(trace, TRACE_STEPS)) < MAX_PENDING


@helper
def follow(context, arguments, fn, trace, grads):
    """Record the nodes of a trace and let the gradients arrive; whether that went well."""
    runtime = item(context, BACKWARD_RUNTIME)
    none, saved = item(runtime, RUNTIME_NONE), get(fn, GRAD_SAVED)
    steps, outputs = get(trace, TRACE_STEPS), get(trace, TRACE_OUTPUTS)
    operands, starts = stack_words(PAIRS), stack_words(MOST_VALUES)
    given, is_shifted = 0, False
    for k in range(length(grads) + length(saved) // 2):
        is_gradient = k < length(grads)
        kept = list_item(grads, k) if is_gradient else item(saved, 2 * (k - length(grads)))
        if kept != none:
            spec = item(get(fn, GRAD_OUTPUTS), k) if is_gradient else none
            put(operands, 16 * given, kept)
            put(operands, 16 * given + 8, spec_of(runtime, kept, spec))
            put(starts, 8 * given, word_of(offset_of(runtime, kept)))
            is_shifted |= get(starts, 8 * given) != 0
            given += 1
    values = new_tuple(given + length(steps))
    if values == 0:
        return False
    for k in range(given):
        fill(values, k, own(value_of(runtime, get(operands, 16 * k))))
    values = completed(runtime, steps, values, given, starts if is_shifted else 0)
    if values == 0:
        return False
    edges = get(fn, GRAD_EDGES)
    parts = new_tuple(
        2 * length(edges)
    )  # each followed by its spec; settling may free what was saved
    is_well = parts != 0
    for k in range(length(edges) if is_well else 0):
        output = list_item(outputs, k)
        is_wanted = item(edges, k) != none and output != none
        spec = spec_of_part(runtime, operands, output) if is_wanted else none
        part = new_part(runtime, trace, values, operands, output) if is_wanted else own(none)
        if part == 0:
            is_well = False
            break
        fill(parts, 2 * k, part)
        fill(parts, 2 * k + 1, own(spec))
    drop(values)
    is_well = is_well and settles_shared(runtime, fn)
    for k in range(length(edges) if is_well else 0):
        edge, part, spec = item(edges, k), item(parts, 2 * k), item(parts, 2 * k + 1)
        if part == none or not is_awaited(runtime, arguments, edge):
            continue
        wanted = item(get(fn, GRAD_INPUTS), k)
        made = new_gradient(context, edge, part, spec, wanted, AS_IS if spec == wanted else FITTED)
        if made == 0 or not add_gradient(context, arguments, edge, made):
            is_well = False
            break
    drop(parts)
    return is_well


@helper
def spec_of(runtime, kept, spec):
    """The spec of a tensor; for a bare value that is to be known."""
    is_stored = class_of(kept) == item(runtime, RUNTIME_STORAGE_CLASS)
    return spec if is_stored or is_bare(runtime, kept) else get(kept, TENSOR_SPEC)


@helper
def spec_of_part(runtime, operands, output):
    """The spec of a result of a trace."""
    if class_of(output) == item(runtime, RUNTIME_INT_CLASS):
        return get(operands, 16 * word_of(output) + 8)
    return item(output, OUTPUT_SPEC)


@helper
def new_part(runtime, trace, values, operands, output):
    """A result of a trace: an operand, a view of one, a bare new value, a part of one."""
    if class_of(output) == item(runtime, RUNTIME_INT_CLASS):
        return own(get(operands, 16 * word_of(output)))
    number, spec = word_of(item(output, OUTPUT_NUMBER)), item(output, OUTPUT_SPEC)
    offset = item(output, OUTPUT_OFFSET)
    if item(output, OUTPUT_IS_VIEW) == item(runtime, RUNTIME_TRUE):
        t = get(operands, 16 * number)
        if is_bare(runtime, t):
            t = new_tensor(runtime, own(t), get(operands, 16 * number + 8))
        else:
            own(t)
        part = (
            0
            if t == 0
            else new_view(runtime, t, spec, word_of(offset), item(runtime, RUNTIME_NO_GRAD))
        )
        drop(t)
        return part
    storage = list_item(get(trace, TRACE_STORAGES), number)
    value, whole = (
        item(values, word_of(item(storage, NEW_STORAGE_VALUE))),
        item(storage, NEW_STORAGE_SPEC),
    )
    if spec == whole and offset == zero(runtime):
        return own(value)
    part = new_tensor(runtime, own(value), whole)
    if part != 0:
        exchange(part, TENSOR_SPEC, own(spec))
        exchange(part, TENSOR_OFFSET, own(offset))
    return part
