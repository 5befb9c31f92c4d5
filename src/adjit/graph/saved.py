"""Tensors that backward nodes keep: what is kept, and its check when it is read."""

from __future__ import annotations

import re
import traceback
import weakref
from collections.abc import Sequence
from typing import Any

from .. import errors
from ..dtypes import int64
from ..formats import contiguous_format, preserve_format
from ..storage import Storage, Version
from .node import (
    Edge,
    GradContext,
    Gradient,
    GradNode,
    GradOp,
    NewTensor,
    Spec,
    TensorBase,
    leaves,
)
from .record import (
    INFERENCE,
    copy_of,
    edge_of,
    give_history,
    is_tensor,
    make_storage,
    make_tensor,
    needs_grad,
)
from .signature import Arguments
from .state import record_gradients, state

Kept = (
    TensorBase | Storage
)  # a tensor; the storage of an own result, as that itself would be a circle
SavedPairs = tuple[Kept | int, ...]  # each followed by its version


def keep(saves: Sequence[int], operands: Arguments, out: TensorBase) -> SavedPairs:
    """What `fn.saved` holds: operands by number, the result's storage for -1, each with its version."""
    saved: list[Kept | int] = []
    for k in saves:
        if k < 0:
            saved += (out._storage, 0)
        elif is_tensor(operands[k]):
            saved += (operands[k], operands[k]._version_counter.version)
    return tuple(saved)


WRITTEN_BY_HOOK = (
    "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook "
    "cannot be modified by in-place operations as this can lead to unexpected side-effects. Please open "
    "an issue if you need to perform in-place operations on the input to a pack hook."
)


class Packed:
    """What a hook of the user made of a saved tensor, and how the tensor is had back."""

    __slots__ = ("edge", "packed", "spec", "unpack_hook")

    def __init__(self, t: TensorBase, edge: Edge | None) -> None:
        pack_hook, self.unpack_hook = state.saving[-1]
        self.edge, self.spec = edge, t._spec
        if t._storage.shared:
            given = t.detach().clone()
        else:  # the value as it is now, whatever is written into the tensor later
            storage = make_storage(t._storage.value, t._storage.spec)
            given = make_tensor(storage, t._spec, t._offset)
        before, version = record_gradients(False), given._version_counter.version
        try:
            self.packed = pack_hook(given)
        finally:
            record_gradients(before)
        if given._version_counter.version != version:
            raise RuntimeError(WRITTEN_BY_HOOK)

    def unpack(self) -> NewTensor:
        """The tensor, with the history that it had."""
        t = self.unpack_hook(self.packed)
        if not is_tensor(t):
            raise TypeError(
                "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                f"{type(t).__name__}"
            )
        t = _laid_out(t, self.spec)
        if self.edge is not None and self.edge[0].__class__ is leaves[0].node_class:
            t._needs_grad = True  # a leaf again: its gradients arrive where those of the other do
            t._more().accumulator = weakref.ref(self.edge[0])
        elif self.edge is not None:
            give_history(t, *self.edge)
        return t


def _laid_out(t: NewTensor, spec: Spec) -> NewTensor:
    """A new handle on a tensor, or on a copy that lies as the kernels of a backward node expect."""
    if t._spec is spec:
        return make_tensor(t._storage, spec, t._offset, t._version_counter)
    if t.shape != spec.shape:
        raise RuntimeError(
            f"saved tensor unpack_hook returned a tensor of shape {list(t.shape)} for one of shape "
            f"{list(spec.shape)}"
        )
    before = record_gradients(False)
    try:
        t = t.detach().to(dtype=spec.dtype, device=spec.device)
        if spec.contiguous:
            return t.clone(memory_format=contiguous_format)
        places = t.new_ones((spec.extent,), dtype=int64).cumsum(0) - 1
        places = places.as_strided(spec.shape, spec.strides).reshape(-1)
        whole = t.new_zeros((spec.extent,)).scatter(0, places, t.reshape(-1))
        return whole.as_strided(spec.shape, spec.strides)
    finally:
        record_gradients(before)


class HookedContext(GradContext):
    """What a hooked node's op had as its context, and the layouts of the results among what was saved."""

    __slots__ = ("context", "layouts")

    def __init__(self, context: GradContext | None, layouts: list[Spec | None]) -> None:
        self.context, self.layouts = context, layouts


class HookedOp:
    """The op behind a node whose saved tensors went through hooks: they come back when it is its turn."""

    def __init__(self, op: GradOp) -> None:
        self.op, self.backward_name = op, op.backward_name
        self.node_class, self.hidden = op.node_class, getattr(op, "hidden", ())

    def apply_vjp(self, fn: GradNode, grads: list[Gradient | None]) -> Sequence[Gradient | None]:
        """The gradients that the op gives with what the hooks give back."""
        if state.session is not None:
            state.session.refuse("hooks give back what was saved")
        return self.op.apply_vjp(self._unpacked(fn), grads)

    def saved_value(self, fn: GradNode, name: str) -> Any:
        """A saved tensor, unpacked."""
        return self.op.saved_value(self._unpacked(fn), name)

    def _unpacked(self, fn: GradNode) -> GradNode:
        """The node as it would be without hooks."""
        if fn.saved is None:
            raise RuntimeError(FREED)
        context = fn.context
        assert isinstance(context, HookedContext)
        fallback = copy_of(fn, [])
        fallback.op, fallback.context, fallback.scalars, fallback.mask = (
            self.op,
            context.context,
            fn.scalars,
            fn.mask,
        )
        saved: list[Kept | Packed | int] = []
        for packed, layout in zip(fn.saved[::2], context.layouts, strict=True):
            t = packed.unpack()
            if layout is None:
                saved += (t, t._version_counter.version)
            else:  # a result, which is kept as its storage
                if t._offset or t._storage.shared or t._storage.spec.numel != layout.numel:
                    order = contiguous_format if layout.contiguous else preserve_format
                    t = t.clone(memory_format=order)
                saved += (make_storage(t._storage.value, layout), 0)
        fallback.saved = tuple(saved)
        return fallback


def pack(fn: GradNode) -> None:
    """Let hooks have what a new backward node saves."""
    if state.session is not None:
        state.session.refuse("hooks are given what is saved")
    saved: list[Kept | Packed | int] = []
    layouts: list[Spec | None] = []
    for kept in fn.saved[::2]:
        is_result = kept.__class__ is Storage
        t = make_tensor(kept, kept.spec) if is_result else kept
        saved += (Packed(t, None if is_result else edge_of(t) if needs_grad(t) else None), 0)
        layouts.append(kept.spec if is_result else None)
    fn.op, fn.context = HookedOp(fn.op), HookedContext(fn.context, layouts)
    fn.saved = tuple(saved)


def packed(
    kept: tuple[TensorBase, int, int | None] | None,
) -> tuple[Packed, int, int | None] | None:
    """What a user's function saves, a tensor with its version and the number of an output or None, after
    hooks."""
    if kept is None:
        return None
    t, version, nr = kept
    return Packed(t, edge_of(t) if nr is None and needs_grad(t) else None), version, nr


class _Numbers(tuple[Kept | int, ...]):
    """No tensors, but something that backward frees: a second backward is refused all the same."""

    def __bool__(self) -> bool:
        return True


NUMBERS = _Numbers()


def attend(fn: GradNode) -> None:
    """What anomaly mode and hooks ask of a new backward node that machine code has made."""
    examine(fn)
    if state.saving and len(fn.saved):
        pack(fn)


def examine(fn: GradNode) -> None:
    """What anomaly mode and inference tensors ask of a new backward node."""
    for kept in fn.saved[::2]:
        if kept.__class__ is not Storage and kept._version_counter is INFERENCE:
            raise inference_save_error()
    if state.anomaly and fn.extras is None:
        fn.more().traceback = traceback.format_list(traceback.extract_stack(errors.user_frame()))


def inference_save_error() -> RuntimeError:
    """What saving an inference tensor raises."""
    return RuntimeError(
        "Inference tensors cannot be saved for backward. Please do not use Tensors created in "
        "inference mode in computation tracked by autograd. To work around this, you can make a "
        "clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of "
        "`torch.inference_mode()`."
    )


FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Saved intermediate values of the graph are freed when you call "
    ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
    "graph a second time or if you need to access saved tensors after calling backward."
)


def unpack(fn: GradNode, k: int, spec: Spec | None = None, nr: int = 0) -> NewTensor:
    """Saved tensor `k` of a backward node, after the version check.

    A saved output is kept as its storage (the tensor would be a cycle) and comes back as a new handle.
    """
    if fn.saved is None:
        raise RuntimeError(FREED)
    kept, version = fn.saved[2 * k : 2 * k + 2]
    counter = kept if kept.__class__ is Storage else kept._version_counter
    if counter.version != version:
        raise modified_error(fn, kept, counter, version, spec)
    if kept.__class__ is not Storage:
        return kept
    spec = spec or fn.outputs[0]
    assert spec is not None
    out = make_tensor(kept, spec)
    if state.grad:
        give_history(out, fn, nr)
    return out


def modified_error(
    fn: GradNode, kept: Kept, counter: Storage | Version, expected: int, spec: Spec | None
) -> Exception:
    """The error about a value that was needed and has been overwritten."""
    source: GradNode | None = fn
    if isinstance(kept, Storage):
        spec, nr = spec or fn.outputs[0], 0
        assert spec is not None
    else:
        source = kept._fn if kept._view_of is None else kept._current_fn()
        spec, nr = kept._spec, kept._nr
    which = ""
    if source is not None:
        producer = re.sub(r"Backward\d*$", "", source.name())
        which = f", which is output {nr} of {producer},"
    hint = (
        " Hint: enable anomaly detection to find the operation that failed to compute its "
        "gradient, with torch.autograd.set_detect_anomaly(True, check_nan=False)."
    )
    if state.anomaly:
        hint = (
            " Hint: the backtrace further above shows the operation that failed to compute its "
            "gradient. The variable in question was changed in there or anywhere later. Good luck!"
        )
    call_site = getattr(counter, "call_site", None)
    written = (
        f" The last write was at {errors.describe(call_site)}." if call_site is not None else ""
    )
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: [torch.{spec.dtype.legacy}Tensor {list(spec.shape)}]{which} "
        f"is at version {counter.version}; expected version {expected} "
        f"instead.{hint}{written}"
    )
