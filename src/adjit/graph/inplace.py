"""Writing in place: the checks, the new value, and what becomes of the history."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from operator import add, attrgetter
from types import SimpleNamespace

from .. import dtypes, errors
from ..atomic import calling, setting, together
from ..devices import CPU
from ..formats import contiguous_format
from ..schedule import settle as scheduling
from ..schedule.dispatch import Failed
from ..shapes import is_dense, refuse_written, sized
from ..storage import BorrowedMemory, Storage
from . import copy_slices, elementwise_record, out_dtypes, primitives, record, write
from .fastpath import adopters, adopting
from .levels import innermost, is_traced, level_of, tracers
from .links import links_of
from .node import (
    Edge,
    Extras,
    GradNode,
    NewTensor,
    Node,
    Retained,
    Spec,
    TensorBase,
    dense_spec,
)
from .signature import Argument
from .state import state
from .view import refuse_view, strided


def check(t: TensorBase) -> None:
    """Refuse to write into a leaf that needs gradients, or into a view of one.

    Raises:
        RuntimeError: with PyTorch's texts.
    """
    if t._version_counter is record.INFERENCE and not state.inference:
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed.You can make "
            "a clone to get a normal tensor before doing inplace update."
            "See https://github.com/pytorch/rfcs/pull/17 for more details."
        )
    if not state.grad:
        return
    info = t._view_of
    if info is None:
        if t._needs_grad and t._fn is None:
            raise RuntimeError(
                "a leaf Variable that requires grad is being used in an in-place operation."
            )
    elif record.needs_grad(t):
        check_view(t)
        if info.base._fn is None:
            raise RuntimeError(
                "a view of a leaf Variable that requires grad is being used in an in-place "
                "operation."
            )


def check_view(t: TensorBase) -> None:
    """Refuse to write into views whose history cannot follow."""
    refuse_view(t, "is being modified inplace")


def check_overlap(t: TensorBase, inputs: Sequence[Argument]) -> None:
    """Refuse inputs that share some but not all elements with what is written.

    Raises:
        RuntimeError: with PyTorch's text.
    """
    if tracers and level_of((t, inputs)) is not None:
        return  # what they stand for is looked at
    spec, first = t._spec, t._offset
    for x in inputs:
        if not record.is_tensor(x) or x._storage is not t._storage:
            continue
        if (x._spec is spec and x._offset == first) or not (spec.numel and x._spec.numel):
            continue
        end, x_end = first + spec.extent, x._offset + x._spec.extent
        if x._offset >= end or first >= x_end:
            continue
        if is_dense(spec.shape, spec.strides) and is_dense(x._spec.shape, x._spec.strides):
            if (x._offset, x_end) == (first, end) and x._spec.strides == spec.strides:
                continue
            raise RuntimeError(
                "unsupported operation: some elements of the input tensor and the written-to tensor "
                "refer to a single memory location. Please clone() the tensor before performing "
                "the operation."
            )


@adopting(write.writes, copy_slices.graded_assignments, copy_slices.slices_op)
def adopt(t: TensorBase, made: TensorBase, *, overlap: bool = False) -> NewTensor:
    """Write `made`, the result of an op, into `t`, which takes over its history.

    `overlap` allows a tensor with several elements in one place: one value for all is well defined.
    """
    if tracers and is_traced((t, made)):
        innermost((t, made)).write(t, made, overlap)
        return t
    spec = t._spec
    if made._spec is not spec:
        record.common_device((spec, made._spec))
        if made._spec.shape != spec.shape:
            refuse_written(spec.shape, made._spec.shape)
        if made._spec.dtype is not spec.dtype:
            if not dtypes.can_cast(made._spec.dtype, spec.dtype):
                raise RuntimeError(
                    f"result type {made._spec.dtype.legacy} can't be cast to the desired output "
                    f"type {spec.dtype.legacy}"
                )
            if made._fn is not None:
                _keep_old_value(t, made._fn)
            made = made.to(spec.dtype)
        if not overlap:
            write.refuse_overlapping(spec)
    recorded = made._needs_grad and state.grad
    if recorded and t._view_of is not None:
        check_view(t)
    if made is t or made._storage is t._storage or made._view_of is not None:
        made = made.clone()
    if recorded:
        _store_with_history(t, made)
    else:
        write.store(t, made)
    return t


adopters.append(adopt)


def adopt_shared(
    t: TensorBase, make: Callable[[], TensorBase], operands: Sequence[Argument]
) -> NewTensor:
    """`adopt` of what `make` gives of `t` and other operands, for memory that others look at.

    What reads such memory runs at once, into memory of its own, and is copied then. Here it waits until it
    is known where it goes: over the elements that it replaces, if its kernel can do that.
    """
    if scheduling.captured_threads:
        return adopt(t, make())
    scheduling.settle()  # by its plan, which a batch with such a write has not; its errors come first
    storage = t._storage
    value = storage.value
    shared = [*{x._storage for x in (t, *operands) if record.is_tensor(x) and x._storage.shared}]
    with scheduling.lock:
        hide, show = _hiding(shared)
        try:
            hide()
            made = make()
        finally:
            show()
        if not _can_go_over(t, made, value):
            scheduling.settle()
            return adopt(t, made)
        node, counter, call_site = made._storage.value, write.counter_of(t), errors.user_call_site()
        here, version = elementwise_record.recipe_here(node.recipe), counter.version + 1
        node.recipe, storage.value, counter.version, counter.call_site = (
            here,
            node,
            version,
            call_site,
        )
        try:
            scheduling.settle()
        finally:
            if node.recipe.__class__ is Failed:  # the elements are as they were
                storage.value = value
        return t


def _hiding(storages: list[Storage]) -> tuple[Callable[[], object], Callable[[], object]]:
    """How to hide that others look at the memory of storages, and how to have it known again; the latter does
    nothing where the former has not been done."""
    counts: list[int] = []
    now = map(attrgetter("shared"), storages)
    changes = setting(storages, "shared", map(add, now, counts))
    note = partial(counts.extend, [storage.shared for storage in storages])
    return together(calling((note,)), setting(storages, "shared", repeat(0))), together(changes)


def _can_go_over(t: TensorBase, made: TensorBase, value: Node) -> bool:
    """Whether a recorded result can be written over the elements of `t`, the first that it reads."""
    if not record.is_tensor(made) or made._spec is not t._spec or made._view_of is not None:
        return False
    node, recipe = made._storage.value, made._storage.value.recipe
    if (
        recipe is None
        or made._offset
        or made._storage is t._storage
        or (made._needs_grad and state.grad)
    ):
        return False
    if recipe.alias is None or recipe.device is not CPU:
        return False
    if not write.is_all(t) or links_of(t._storage) or node.inputs[0] is not value:
        return False
    if value.recipe is not None:  # a write before this one went wrong
        return False
    start, end = int(value.address), int(value.address) + t._storage.spec.nbytes
    offsets = node.offsets or (0,) * len(node.inputs)
    for other, spec, offset in list(zip(node.inputs, recipe.inputs, offsets, strict=True))[1:]:
        if other.recipe is None:  # else it gets memory of its own
            first = int(other.address) + offset * spec.dtype.itemsize
            if first < end and start < first + spec.extent * spec.dtype.itemsize:
                return False
    return True


def old_value(t: TensorBase) -> NewTensor:
    """The value of a tensor as it is now, with its history: a handle that later writes do not reach."""
    if t.__class__ in tracers:
        return t._changed(old_value)
    if t._storage.shared:
        old = t.detach().clone()
    else:
        old = record.make_tensor(
            record.make_storage(t._storage.value, t._storage.spec), t._spec, t._offset
        )
    old._edge = record.edge_of(t)
    old._needs_grad = old._edge is not None
    return old


def _keep_old_value(t: TensorBase, fn: GradNode) -> None:
    """Let what the op saved of `t` outlive the write: a handle on the value as it is now.

    Where `t` is its own second operand too (`t *= t`), that one is lost, as in PyTorch.
    """
    place = next((k for k in range(0, len(fn.saved), 2) if fn.saved[k] is t), None)
    if place is None:
        return
    old = old_value(t)
    fn.saved = (*fn.saved[:place], old, old._version_counter.version, *fn.saved[place + 2 :])


def _store_with_history(t: TensorBase, made: TensorBase) -> None:
    """Write the elements of a fresh tensor into `t`, which takes over its history: both or neither."""
    fn, storage, info = made._fn, t._storage, t._view_of
    assert fn is not None
    _keep_old_value(t, fn)
    if copy_slices.can_assign(t, made):
        copy_slices.assign(t, made)
        return
    if storage.shared:
        scheduling.settle()
    value, counter, call_site = (
        write.value_with(t, made),
        write.counter_of(t),
        errors.user_call_site(),
    )
    version = counter.version + 1
    if links_of(storage):
        write.commit([t], [value])
        rewrite_history(t, made)
        write.settle_written(storage)
        return
    if counter is storage and t._spec is storage.spec and len(fn.saved):
        # The op's saved result is what was written: a later write must be noticed in backward.
        saved = list(fn.saved)
        for k, kept in enumerate(saved):
            if kept is made._storage:
                saved[k : k + 2] = storage, version
        fn.saved = tuple(saved)
    if info is None:
        edge = made._edge
        former, retained = retain_by(t, edge)
        (
            storage.value, counter.version, counter.call_site, t._edge, t._needs_grad, former.retained,
        ) = value, version, call_site, edge, True, retained  # fmt: skip
    else:
        base, edge = info.base, copy_slices.edge_of_slices(t, made)
        former, retained = retain_by(base, edge)
        (
            storage.value, counter.version, counter.call_site, base._edge, base._needs_grad, t._needs_grad,
            info.version, former.retained,
        ) = value, version, call_site, edge, True, True, -1, retained  # fmt: skip
        t._current_fn()  # from the new one of the base
    write.settle_written(storage)


def rewrite_history(t: TensorBase, made: TensorBase) -> None:
    """Make the history of `made`, whose value was written into `t`, that of `t`, of its base, and of what is
    linked with that."""
    _rewrite(t, made)
    reached = [t._storage]
    for storage in reached:  # which grows meanwhile
        for known in links_of(storage):
            is_base = known.base.memory() is storage
            other = known.copy.memory() if is_base else known.base.memory()
            if other is None or known.shows_bits or any(other is one for one in reached):
                continue
            reached.append(other)
            base, copy = known.base.tensor(), known.copy.tensor()
            if base is None or copy is None:
                continue
            part = strided(base, known.region, known.offset)
            if not is_base:
                _rewrite(part, copy)
            elif record.needs_grad(base):  # a detached one only has the same elements
                _rewrite(copy, part.clone(memory_format=contiguous_format))


def _rewrite(t: TensorBase, made: TensorBase) -> None:
    info, edge = t._view_of, made._edge
    if info is None:
        former, retained = retain_by(t, edge)
        t._edge, t._needs_grad, former.retained = edge, True, retained
        return
    base, edge = info.base, copy_slices.edge_of_slices(t, made)
    former, retained = retain_by(base, edge)
    base._edge, base._needs_grad, t._needs_grad, info.version, former.retained = (
        edge, True, True, -1, retained,
    )  # fmt: skip
    t._current_fn()


def retain_by(t: TensorBase, edge: Edge | None) -> tuple[Extras | SimpleNamespace, Retained]:
    """Have the gradient of `t` kept, if it is to be, when it arrives at another edge; where it was kept so
    far, and what is to be kept there from then on."""
    if t._autograd_meta is None or not t._autograd_meta.retains_grad:
        return _NOWHERE, {}
    assert edge is not None
    fn, nr = edge
    fn.more().retained[nr] = weakref.ref(t)
    if t._edge is None:
        return _NOWHERE, {}
    former, here = t._edge[0].more(), t._edge[1]
    return former, {k: kept for k, kept in former.retained.items() if k != here}


_NOWHERE = SimpleNamespace()


def write_out(
    name: str, out: Argument, made: Argument, is_one_of_several: bool = False
) -> NewTensor:
    """Put results into the `out=` tensors of a call.

    Raises:
        RuntimeError: if an argument needs gradients, or the dtype cannot hold the result.
    """
    if isinstance(made, tuple):
        targets = out if isinstance(out, (tuple, list)) else (out,)
        if len(targets) != len(made):
            raise TypeError(f"{name}(): expected {len(made)} tensors in out=, got {len(targets)}")
        written = [
            write_out(name, o, m, is_one_of_several=True)
            for o, m in zip(targets, made, strict=True)
        ]
        return tuple(written) if type(made) is tuple else type(made)(*written)
    if not record.is_tensor(out):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if made._needs_grad or (state.grad and out._needs_grad):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad."
        )
    if made._spec is out._spec:
        return adopt(out, made)
    out_dtypes.check(name, made.dtype, out.dtype, is_one_of_several)
    if out.shape != made.shape:
        if out.numel():
            errors.warn(
                "An output with one or more elements was resized since it had shape "
                f"{list(out.shape)}, which does not match the required output shape "
                f"{list(made.shape)}. This behavior is deprecated, and in a future PyTorch release "
                "outputs will not be resized unless they have zero elements.",
            )
        resize(out, dense_spec(made.shape, out.dtype, out.device), made)
        return out
    with_dtype = made if made.dtype is out.dtype else made.to(out.dtype)
    return adopt(out, with_dtype)


def resize(t: TensorBase, spec: Spec, made: TensorBase | None = None) -> None:
    """Lay a tensor out otherwise, on the same memory, which grows where it is too small; and write `made`.

    Raises:
        RuntimeError: if larger memory is needed and others look at it.
    """
    storage, itemsize = t._storage, spec.dtype.itemsize
    length, room = t._offset + spec.extent, storage.nbytes // itemsize
    counter = write.counter_of(t)
    if not spec.numel or length <= room:
        if made is None:
            t._spec, counter.version = spec, counter.version + 1
        else:
            adopt(record.make_tensor(storage, spec, t._offset, t._version_counter), made)
            t._spec = spec
        return
    block = getattr(storage.value, "address", None)  # of what is recorded there is none yet
    if storage.shared or isinstance(block, BorrowedMemory):
        raise RuntimeError("Trying to resize storage that is not resizable")
    whole = primitives.empty(dense_spec(sized((length,)), spec.dtype, spec.device))._storage
    if room:
        old = dense_spec(sized((room,)), spec.dtype, spec.device)
        adopt(record.make_tensor(whole, old), record.make_tensor(storage, old).clone())
    if made is not None:
        adopt(record.make_tensor(whole, spec, t._offset), made)
        counter.call_site = errors.user_call_site()
    value, version = whole.value, counter.version + 1
    storage.value, storage.spec, t._spec, counter.version = value, whole.spec, spec, version
