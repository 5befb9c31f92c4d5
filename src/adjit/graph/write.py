"""Recording writes: elements into a storage, and copies with other strides or another dtype."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import cast

from .. import errors
from ..atomic import Calls, at_once, calling, setting
from ..devices import device
from ..schedule.codegen import loops
from ..schedule.codegen.body import Body
from ..schedule.planning.recipe import COPY, IN_PLACE, Operand, Recipe
from ..schedule.settle import MAX_PENDING, pending, remember, settle
from ..shapes import is_dense
from ..storage import Storage, Version
from .elementwise_record import elementwise_recipe
from .node import NewTensor, Node, Spec, TensorBase, dense_spec, spec_of
from .op_record import ElementwiseOp
from .primitives import turning
from .record import INFERENCE, MAX_RECIPES, find_device_steps, node_on, picks, result
from .registry import registry


def store(t: TensorBase, source: TensorBase) -> None:
    """Write the elements of `source`, a fresh tensor of the same shape and dtype, into `t`."""
    if t.storage.shared:
        settle()
    value, call_site = value_with(t, source), errors.user_call_site()
    storage, counter = t.storage, counter_of(t)
    version = counter.version + 1
    storage.value, counter.version, counter.call_site = value, version, call_site
    settle_written(storage)


def put(written: Sequence[TensorBase], sources: Sequence[TensorBase]) -> None:
    """`store` into several tensors that is no write to autograd: versions do not change."""
    if any(t.storage.shared for t in written):
        settle()
    values = [value_with(t, source) for t, source in zip(written, sources, strict=True)]
    at_once(setting([t.storage for t in written], "value", values))
    for t in written:
        settle_written(t.storage)


def store_all(
    written: Sequence[TensorBase], sources: Sequence[TensorBase], then: Calls = ()
) -> None:
    """`store` into several tensors, and what is to be done `then`, which calls no Python: all or nothing."""
    if any(t.storage.shared for t in written):
        settle()
    values = [value_with(t, source) for t, source in zip(written, sources, strict=True)]
    commit(written, values, then)
    for t in written:
        settle_written(t.storage)


def commit(written: Sequence[TensorBase], values: Sequence[Node], then: Calls = ()) -> None:
    """Give the storages of tensors their recorded values, and count the writes, made at the user's line."""
    call_site = errors.user_call_site()
    counters = [counter_of(t) for t in written]
    at_once(
        setting([t.storage for t in written], "value", values),
        setting(counters, "version", [counter.version + 1 for counter in counters]),
        setting(counters, "call_site", repeat(call_site)),
        calling(then),
    )


def counter_of(t: TensorBase) -> Storage | Version:
    """What counts the writes into a tensor; inference tensors have something that nobody looks at."""
    counter = t.counter
    return Version() if counter is INFERENCE else counter


def value_with(t: TensorBase, source: TensorBase) -> Node:
    """The value of a memory once `t` shows the elements of `source`; it is in `pending`, and nowhere else.

    If others look at that memory, everything has run before, and nothing may until the write is made.
    """
    storage = t.storage
    refuse_alias(storage)
    if source.spec is t.spec and is_all(t) and not (source.offset or storage.shared):
        return source.storage.value
    return _write_region(t, source) if t.spec.numel else storage.value


def settle_written(storage: Storage) -> None:
    """What follows a recorded write: others who look at the same bytes are to see it."""
    if storage.shared or len(pending) >= MAX_PENDING:
        settle()


def is_all(t: TensorBase) -> bool:
    """Whether a tensor shows all elements of its memory in the order in which they lie there."""
    spec, whole = t.spec, t.storage.spec
    is_flat = spec.contiguous and whole.contiguous and spec.numel == whole.numel
    return not t.offset and (spec is whole or bool(is_flat and spec.dtype is whole.dtype))


def pair(one: Storage, other: Storage) -> None:
    """Note that two storages have the same elements: while both are there, neither may be written."""
    global _paired
    _paired = True
    one.alias, other.alias = weakref.ref(other), weakref.ref(one)


_paired = False  # whether there have ever been some


def alias_of(storage: Storage) -> Storage | None:
    """Another storage with the same elements, if there is one: neither may be written."""
    alias = getattr(storage, "alias", None) if _paired else None
    return None if alias is None else alias()


def has_alias(storage: Storage) -> bool:
    """Whether another storage has the same elements, so that neither may be written."""
    return alias_of(storage) is not None


def refuse_alias(storage: Storage) -> None:
    """Refuse to write into a storage whose alias would not see it.

    Raises:
        RuntimeError: with what to do instead.
    """
    if has_alias(storage):
        raise RuntimeError(
            "this tensor cannot be written in place: it or its base is a result that lies in memory "
            "with its channels last, and .view(...) had to copy it; the write would be seen by one of "
            "the two only. Use .reshape(...) instead of .view(...), or write into .clone()."
        )


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
    for t in written:
        refuse_alias(t.storage)
    node = node_on(recipe, (*written, *read), scalars)
    commit(written, picks(node), () if then is None else (then,))
    if len(pending) >= MAX_PENDING:
        settle()


def _write_region(t: TensorBase, source: TensorBase) -> Node:
    """A node, recorded, that copies `source` into the part of the old value that `t` shows."""
    storage, spec, other = t.storage, t.spec, source.spec
    shared = storage.shared
    key = spec, other, storage.spec, shared
    recipe = writes.get(key)
    if recipe is None:
        if len(writes) >= MAX_RECIPES:
            writes.clear()
        recipe = writes[key] = _write_recipe(*key)
    node = node_on(recipe, (t, source))
    pending.append(node)
    return node


# By the region, what is written, the whole, and whether that is shared.
writes: dict[tuple[Spec, Spec, Spec, int], Recipe] = {}


def _write_recipe(spec: Spec, other: Spec, whole: Spec, shared: int) -> Recipe:
    """The recipe that copies `other` into the part `spec` of the old value `whole`."""
    step, constants = loops.elementwise(
        "copy", copy_body(), [0], spec.dtype, [Operand("x", other.dtype, other.strides)],
        [Operand("out", spec.dtype, spec.strides)], spec.shape,
        sorted(range(spec.ndim), key=lambda d: (-spec.strides[d], d)),
    )  # fmt: skip
    recipe = Recipe("write", (spec, other), (whole,), [step], constants)
    recipe.plain = False
    recipe.write = IN_PLACE if shared else COPY
    find_device_steps(recipe)
    return recipe


def copy_body() -> Body:
    """The body that copies and converts."""
    return _body_of("copy")


def _body_of(name: str) -> Body:
    """The body of an elementwise op."""
    return cast(ElementwiseOp, registry[name]).body


def placed(t: TensorBase, place: device) -> NewTensor:
    """`t` on a device: itself if it is there, else a copy without history."""
    return t if t.spec.device is place else move(t, place)


def move(t: TensorBase, place: device) -> NewTensor:
    """Record a copy of `t` on another device, without history."""
    spec = t.spec
    if not is_dense(spec.shape, spec.strides):
        t = convert(t, dense_spec(spec.shape, spec.dtype, spec.device))
    given = t.spec
    made = spec_of(given.shape, given.strides, given.dtype, place)
    recipe = _moves.get((given, made))
    if recipe is None:
        recipe = Recipe("to", (given,), (made,), [])
        recipe.moves, recipe.plain = True, False
        if len(_moves) >= MAX_RECIPES:
            _moves.clear()
        _moves[given, made] = recipe
    node = node_on(recipe, (t,))
    out = result(node, made)
    remember(node)
    if t.storage.shared:
        settle()
    return out


_moves: dict[tuple[Spec, Spec], Recipe] = {}


def convert(t: TensorBase, spec: Spec) -> NewTensor:
    """Record a copy of `t` with other strides or another dtype, without history."""
    key = (t.spec, spec)
    recipe = conversions.get(key)
    if recipe is None:
        recipe = turning(t.spec, spec) or _converting(t.spec, spec)
        if len(conversions) >= MAX_RECIPES:
            conversions.clear()
        conversions[key] = recipe
    node = node_on(recipe, (t,))
    out = result(node, spec)
    remember(node)
    if t.storage.shared:
        settle()
    return out


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
