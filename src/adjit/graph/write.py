"""Recording writes: elements into a storage, and copies with other strides or another dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import NamedTuple, cast

from .. import dtypes, errors
from ..atomic import Calls, Changes, at_once, calling, setting
from ..devices import device
from ..schedule.codegen import loops
from ..schedule.codegen.body import Body
from ..schedule.jit import native
from ..schedule.planning.recipe import COPY, IN_PLACE, Operand, Recipe
from ..schedule.settle import MAX_PENDING, pending, remember, settle
from ..shapes import Shape, broadcast_strides, dense_in_order, is_dense, same_strides
from ..storage import Storage, Version
from .elementwise_record import elementwise_recipe
from .links import Link, linked_with, links_of
from .node import NewTensor, Node, Spec, TensorBase, View, dense_spec, spec_of
from .op_record import ElementwiseOp
from .primitives import NO_AXES, constant_recipe, filled, same_bits, turning
from .record import (
    INFERENCE,
    MAX_RECIPES,
    find_device_steps,
    make_storage,
    make_tensor,
    needs_grad,
    node_on,
    picks,
    result,
)
from .registry import registry
from .state import state
from .view import refuse_view


def store(t: TensorBase, source: TensorBase) -> None:
    """Write the elements of `source`, a fresh tensor of the same shape and dtype, into `t`."""
    if t._storage.shared:
        settle()
    value, call_site = value_with(t, source), errors.user_call_site()
    storage, counter = t._storage, counter_of(t)
    version = counter.version + 1
    if links_of(storage):
        commit([t], [value])
    else:
        storage.value, counter.version, counter.call_site = value, version, call_site
    settle_written(storage)


def put(written: Sequence[TensorBase], sources: Sequence[TensorBase]) -> None:
    """`store` into several tensors that is no write to autograd: versions do not change."""
    storages = [t._storage for t in written]
    if all(map(_takes_value, written, sources)) and len(set(map(id, storages))) == len(storages):
        at_once(setting(storages, "value", [source._storage.value for source in sources]))
        settle_written(storages[0])
        return
    if not are_apart(written):
        for t, source in zip(written, sources, strict=True):
            put((t,), (source,))
        return
    if any(t._storage.shared for t in written):
        settle()
    values = [value_with(t, source) for t, source in zip(written, sources, strict=True)]
    written, values = with_followers(written, values)
    at_once(setting([t._storage for t in written], "value", values))
    for t in written:
        settle_written(t._storage)


def _takes_value(t: TensorBase, source: TensorBase) -> bool:
    """Whether the value of a fresh tensor becomes that of all of a memory that nobody else looks at."""
    storage = t._storage
    is_alike = source._spec is t._spec and not source._offset and is_all(t)
    return is_alike and not storage.shared and not links_of(storage)


def store_all(
    written: Sequence[TensorBase], sources: Sequence[TensorBase], then: Calls = ()
) -> None:
    """`store` into several tensors, and what is to be done `then`, which calls no Python: all or nothing,
    unless they have memory in common, and one is written after the other."""
    if not are_apart(written):
        for t, source in zip(written, sources, strict=True):
            store(t, source)
        at_once(calling(then))
        return
    if any(t._storage.shared for t in written):
        settle()
    values = [value_with(t, source) for t, source in zip(written, sources, strict=True)]
    commit(written, values, then)
    for t in written:
        settle_written(t._storage)


def are_apart(tensors: Sequence[TensorBase]) -> bool:
    """Whether no two of them show one memory, or linked ones: a value of one would undo that of another."""
    if len(tensors) == 1:
        return True
    storages = [id(one) for t in tensors for one in linked_with(t._storage)]
    return len(set(storages)) == len(storages)


def commit(written: Sequence[TensorBase], values: Sequence[Node], then: Calls = ()) -> None:
    """Give the storages of tensors their recorded values, and count the writes, made at the user's line."""
    at_once(*committing(written, values), calling(then))


def committing(written: Sequence[TensorBase], values: Sequence[Node]) -> tuple[Changes, ...]:
    """The changes that `commit` makes."""
    written, values = with_followers(written, values)
    counters = [counter_of(t) for t in written]
    return (
        setting([t._storage for t in written], "value", values),
        setting(counters, "version", [counter.version + 1 for counter in counters]),
        setting(counters, "call_site", repeat(errors.user_call_site())),
    )


def counter_of(t: TensorBase) -> Storage | Version:
    """What counts the writes into a tensor; inference tensors have something that nobody looks at."""
    counter = t._version_counter
    return Version() if counter is INFERENCE else counter


def value_with(t: TensorBase, source: TensorBase) -> Node:
    """The value of a memory once `t` shows the elements of `source`; it is in `pending`, and nowhere else.

    If others look at that memory, everything has run before, and nothing may until the write is made.
    """
    storage = t._storage
    if source._spec is t._spec and is_all(t) and not (source._offset or storage.shared):
        return source._storage.value
    return _write_region(t, source) if t._spec.numel else storage.value


def settle_written(storage: Storage) -> None:
    """What follows a recorded write: others who look at the same bytes are to see it."""
    is_seen = storage.shared or (
        links_of(storage) and any(one.shared for one in linked_with(storage))
    )
    if is_seen or len(pending) >= MAX_PENDING:
        settle()


def is_all(t: TensorBase) -> bool:
    """Whether a tensor shows all elements of its memory in the order in which they lie there."""
    return not t._offset and _shows_all(t._spec, t._storage.spec)


def _shows_all(spec: Spec, whole: Spec) -> bool:
    """Whether what begins where a memory does shows all of its elements as they lie there."""
    is_flat = spec.contiguous and whole.contiguous and spec.numel == whole.numel
    return spec is whole or bool(is_flat and spec.dtype is whole.dtype)


def is_overlapping(spec: Spec) -> bool:
    """Whether several elements lie in one place."""
    strides = zip(spec.shape, spec.strides, strict=True)
    return not spec.contiguous and any(st == 0 and n > 1 for n, st in strides)


def refuse_overlapping(spec: Spec) -> None:
    """Refuse to write different elements into one place of memory.

    Raises:
        RuntimeError: with PyTorch's text.
    """
    if is_overlapping(spec):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to "
            "a single memory location. Please clone() the tensor before performing the "
            "operation."
        )


def with_followers(
    written: Sequence[TensorBase], values: Sequence[Node]
) -> tuple[list[TensorBase], list[Node]]:
    """Tensors whose memory gets new values, and those that are linked with them.

    Raises:
        RuntimeError: with PyTorch's text, if one of the latter is a leaf that needs gradients; if two of the
            former are linked, of which one would have to be written after the other.
    """
    tensors, found = list(written), list(values)
    causes = list(range(len(tensors)))  # which of the written ones led there
    reached = {id(t._storage): cause for t, cause in zip(tensors, causes, strict=True)}
    for t, value, cause in zip(tensors, found, causes, strict=False):  # which grow meanwhile
        for known in links_of(t._storage):
            base, copy = known.base.shown(), known.copy.shown()
            if base is None or copy is None:
                continue
            target = copy if base._storage is t._storage else base
            if reached.setdefault(id(target._storage), cause) != cause:
                raise RuntimeError(
                    "several of the tensors that one call writes are parts of one memory in PyTorch, and "
                    "copies of it here; write one after the other, or clone() them first"
                )
            if any(target._storage is one._storage for one in tensors):
                continue
            now, part = make_storage(value, t._storage.spec), (known.region, known.offset)
            if target is copy:
                new = value_with(copy, laid_out(make_tensor(now, *part), copy._spec))
            else:
                refuse_linked(base, known)
                source = make_tensor(now, copy._spec, copy._offset)
                if known.shows_bits:
                    source = laid_out(source, _like(known.region, copy._spec.strides))
                new = value_with(make_tensor(base._storage, *part), source)
            ends = t._storage, target._storage
            if state.session is not None and all(map(state.session.came_before, ends)):
                state.session.refuse("it writes into a tensor that is linked with another one")
            tensors.append(target)
            found.append(new)
            causes.append(cause)
    return tensors, found


def refuse_linked(base: TensorBase, known: Link) -> None:
    """Refuse to write through a copy what may not be written through the view that it stands for.

    Raises:
        RuntimeError: with PyTorch's texts.
    """
    refuse_overlapping(known.region)
    if known.shows_bits:
        return
    if not (state.grad and base._needs_grad):
        return
    if base._fn is None:
        raise RuntimeError(
            "a view of a leaf Variable that requires grad is being used in an in-place operation."
        )
    if known.kind:
        view = make_tensor(base._storage, known.region, known.offset)
        view._view_of, view._edge = View(base, 0, known.kind), base._edge
        refuse_view(view, "is being modified inplace")


def replace(
    recipe: Recipe,
    written: list[TensorBase],
    read: list[TensorBase],
    scalars: tuple[int, ...],
    then: Callable[[], object] | None = None,
) -> None:
    """Record a node whose results are the new values of `written`, whole and unshared tensors; what is to be
    done `then`, which calls no Python, is done together with that.

    Its inputs are `written`, then `read`; `recipe.over` lets results take over the memory of the
    old values.
    """
    node = node_on(recipe, (*written, *read), scalars)
    commit(written, picks(node), () if then is None else (then,))
    for t in written:
        settle_written(t._storage)


def _write_region(t: TensorBase, source: TensorBase) -> Node:
    """A node, recorded, that copies `source` into the part of the old value that `t` shows."""
    storage = t._storage
    recipe = _writing(t._spec, source._spec, storage.spec, storage.shared)
    return recorded(node_on(recipe, (t, source)))


def recorded(node: Node) -> Node:
    """A node, put into `pending`."""
    pending.append(node)
    return node


def _writing(spec: Spec, other: Spec, whole: Spec, shared: int = 0) -> Recipe:
    """The recipe that copies `other` into the part `spec` of the old value `whole`."""
    key = spec, other, whole, shared
    known = _overlapping_writes if is_overlapping(spec) else writes
    recipe = known.get(key)
    if recipe is None:
        if len(known) >= MAX_RECIPES:
            known.clear()
        recipe = known[key] = _write_recipe(*key)
    return recipe


# By the region, what is written, the whole, and whether that is shared. Machine code asks no more about what it
# finds in `writes`; most are not allowed to write several elements into one place.
writes: dict[tuple[Spec, Spec, Spec, int], Recipe] = {}
_overlapping_writes: dict[tuple[Spec, Spec, Spec, int], Recipe] = {}


def _write_recipe(spec: Spec, other: Spec, whole: Spec, shared: int) -> Recipe:
    """`_writing`, made anew."""
    step, constants = loops.elementwise(
        "copy", copy_body(), [0], spec.dtype, [Operand("x", other.dtype, other.strides)],
        [Operand("out", spec.dtype, spec.strides)], spec.shape,
        sorted(range(spec.ndim), key=lambda d: (-spec.strides[d], d)),
    )  # fmt: skip
    recipe = Recipe("write", (spec, other), (whole,), [step], constants)
    recipe.can_take_fast_path = False
    recipe.write = IN_PLACE if shared else COPY
    find_device_steps(recipe)
    return recipe


# ----- assignments -----


class Assignment(NamedTuple):
    """How the elements of one tensor become a part of a memory."""

    conversion: Recipe  # copies them, broadcast and converted
    copied: Recipe | None  # writes this copy; None if it is the new value as it is
    direct: Recipe | None  # writes them from where they lie; None if they have to be copied before


class NumberAssignment(NamedTuple):
    """How a Python number becomes every element of a part of a memory."""

    number: Recipe  # makes a tensor without axes
    writing: Recipe


native.register_layout(ASSIGNMENT=Assignment, NUMBER_ASSIGNMENT=NumberAssignment)

# By the specs of what is read, of the part and of all of the memory; machine code finds them here.
assignments: dict[tuple[Spec, Spec, Spec], Assignment] = {}
number_assignments: dict[tuple[Spec, Spec], NumberAssignment] = {}


def can_assign(t: TensorBase, source: TensorBase) -> bool:
    """Whether two tensors are on one device, and nobody looks at their memory or asks for gradients."""
    return t._spec.device is source._spec.device and is_quiet(t) and is_quiet(source)


def is_quiet(t: TensorBase) -> bool:
    """Whether a tensor has elements, and nobody looks at its memory or asks for its gradient."""
    asks = state.grad and (t._edge is not None or needs_grad(t))
    return bool(t._spec.numel) and not (t._storage.shared or asks)


def assign(t: TensorBase, source: TensorBase) -> None:
    """Write the elements of one tensor, broadcast and converted, into another one; `can_assign` says which."""
    spec, given, storage = t._spec, source._spec, t._storage
    found = assignment_of(given, spec, storage.spec)
    if storage is source._storage and spec is given and t._offset == source._offset:
        commit([t], [storage.value])
        return
    if found.direct is not None and storage is not source._storage:
        node = recorded(node_on(found.direct, (t, source)))
    else:
        node = recorded(node_on(found.conversion, (source,)))
        if found.copied is not None:
            made = result(node, found.conversion.spec)
            node = recorded(node_on(found.copied, (t, made)))
    commit([t], [node])
    settle_written(storage)


def assignment_of(given: Spec, part: Spec, whole: Spec) -> Assignment:
    """How `given` becomes `part` of `whole`."""
    key = given, part, whole
    found = assignments.get(key)
    if found is None:
        if len(assignments) >= MAX_RECIPES:
            assignments.clear()
        found = assignments[key] = _new_assignment(*key)
    return found


def _new_assignment(given: Spec, part: Spec, whole: Spec) -> Assignment:
    shape, kind, place = part.shape, part.dtype, part.device
    strides = broadcast_strides(given.shape, given.strides, shape)
    shown = spec_of(shape, strides, given.dtype, place)
    dense = part if is_dense(shape, part.strides) else dense_spec(shape, kind, place)
    conversion = _conversion(shown, dense)
    if _shows_all(part, whole):
        return Assignment(conversion, None, None)
    is_truth = kind.kind == "b" and shown.dtype is not kind
    is_copied = (
        is_truth or turning(shown, dense) is not None
    )  # which a kernel of its own does better
    direct = None if is_copied else _writing(part, shown, whole)
    return Assignment(conversion, _writing(part, dense, whole), direct)


def assign_number(t: TensorBase, value: float) -> None:
    """Write a number that its dtype holds into every element of a tensor, if that `is_quiet`."""
    spec, whole = t._spec, t._storage.spec
    if spec is whole and spec.contiguous:
        made = filled(spec.shape, value, spec.dtype, spec.device)
        commit([t], [made._storage.value])
        return
    assign(t, number_for(t, value))


def number_for(t: TensorBase, value: float) -> NewTensor:
    """A number as a tensor without axes, to be written into a part of a memory; machine code knows how then."""
    spec, whole = t._spec, t._storage.spec
    if spec.dtype.is_floating_point or spec.dtype.known_as:
        number = number_of(spec)
        writing = assignment_of(number.spec, spec, whole).direct
        if writing is not None:
            if len(number_assignments) >= MAX_RECIPES:
                number_assignments.clear()
            number_assignments[spec, whole] = NumberAssignment(number, writing)
    return filled(NO_AXES, value, spec.dtype, spec.device)


def number_of(spec: Spec) -> Recipe:
    """What makes a number, a tensor without axes, of the dtype of a part."""
    return constant_recipe(NO_AXES, spec.dtype, spec.device)


def copy_body() -> Body:
    """The body that copies and converts."""
    return _body_of("copy")


def _body_of(name: str) -> Body:
    """The body of an elementwise op."""
    return cast(ElementwiseOp, registry[name]).body


def placed(t: TensorBase, place: device) -> NewTensor:
    """`t` on a device: itself if it is there, else a copy without history."""
    return t if t._spec.device is place else move(t, place)


def move(t: TensorBase, place: device) -> NewTensor:
    """Record a copy of `t` on another device, without history."""
    spec = t._spec
    if not is_dense(spec.shape, spec.strides):
        t = convert(t, dense_spec(spec.shape, spec.dtype, spec.device))
    given = t._spec
    made = spec_of(given.shape, given.strides, given.dtype, place, given.reported)
    recipe = _moves.get((given, made))
    if recipe is None:
        recipe = Recipe("to", (given,), (made,), [])
        recipe.moves, recipe.can_take_fast_path = True, False
        if len(_moves) >= MAX_RECIPES:
            _moves.clear()
        _moves[given, made] = recipe
    node = node_on(recipe, (t,))
    out = result(node, made)
    remember(node)
    if t._storage.shared:
        settle()
    return out


_moves: dict[tuple[Spec, Spec], Recipe] = {}


def convert(t: TensorBase, spec: Spec) -> NewTensor:
    """Record a copy of `t` with other strides or another dtype, without history."""
    node = node_on(_conversion(t._spec, spec), (t,))
    out = result(node, spec)
    remember(node)
    if t._storage.shared:
        settle()
    return out


def laid_out(t: TensorBase, spec: Spec) -> NewTensor:
    """Record a copy of `t` that lies as a dense spec says, without history: of its elements; of their bits
    where that has another dtype."""
    if t._spec.dtype is spec.dtype:
        return convert(t, spec)
    given = _like(t._spec, spec.strides)
    if not same_strides(given.shape, given.strides, t._spec.strides):
        t = convert(t, given)
    if spec.dtype is dtypes.bool:  # whose bytes are 0 and 1
        flat = convert(same_bits(t, dtypes.uint8), dense_spec((spec.numel,), spec.dtype))
    else:
        flat = same_bits(t, spec.dtype)
    return make_tensor(flat._storage, spec)


def _like(spec: Spec, strides: Shape) -> Spec:
    """A spec without gaps, its axes in the order that strides have."""
    return spec_of(spec.shape, dense_in_order(spec.shape, [strides]), spec.dtype, spec.device)


def _conversion(source: Spec, spec: Spec) -> Recipe:
    """The recipe of a copy with other strides or another dtype."""
    key = source, spec
    recipe = conversions.get(key)
    if recipe is None:
        recipe = turning(source, spec) or _converting(source, spec)
        if len(conversions) >= MAX_RECIPES:
            conversions.clear()
        conversions[key] = recipe
    return recipe


# By the specs of what is converted and of the result.
conversions: dict[tuple[Spec, Spec], Recipe] = {}


def _converting(source: Spec, spec: Spec) -> Recipe:
    """The recipe of a copy, element by element."""
    inputs = [Operand("x", source.dtype, source.strides)]
    compute = spec.dtype if spec.dtype.kind != "b" else source.dtype
    body = copy_body() if spec.dtype.kind != "b" else truth_body()
    return elementwise_recipe(
        "copy" if spec.dtype.kind != "b" else "truth", body, [0], compute, inputs,
        [("out", spec)], (source,),
    )  # fmt: skip


def truth_body() -> Body:
    """The body that says whether a number is not zero."""
    return _body_of("truth")
