"""Writing in place: the checks, the new value, and what becomes of the history."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from .. import dtypes
from ..devices import CPU
from ..schedule import settle as scheduling
from ..shapes import Size, is_dense
from . import elementwise_record, primitives, record, write
from .fastpath import adopting
from .node import GradNode, dense_spec, node_class
from .registry import registry
from .saved import FREED, NUMBERS
from .state import state
from .view import refuse_view


def check(t: Any) -> None:
    """Refuse to write into a leaf that needs gradients, or into a view of one.

    Raises:
        RuntimeError: with PyTorch's texts.
    """
    if not state.grad:
        return
    if t.counter is record.INFERENCE and not state.inference:
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed.You can make "
            "a clone to get a normal tensor before doing inplace update."
            "See https://github.com/pytorch/rfcs/pull/17 for more details."
        )
    info = t.view_of
    if info is None:
        if t.needs_grad and t.fn is None:
            raise RuntimeError(
                "a leaf Variable that requires grad is being used in an in-place operation."
            )
    elif record.needs_grad(t):
        check_view(t)
        if info.base.fn is None:
            raise RuntimeError(
                "a view of a leaf Variable that requires grad is being used in an in-place "
                "operation."
            )


def check_view(t: Any) -> None:
    """Refuse to write into views whose history cannot follow."""
    refuse_view(t, "is being modified inplace")


def check_overlap(t: Any, inputs: Sequence[Any]) -> None:
    """Refuse inputs that share some but not all elements with what is written.

    Raises:
        RuntimeError: with PyTorch's text.
    """
    spec, first = t.spec, t.offset
    for x in inputs:
        if not record.is_tensor(x) or x.storage is not t.storage:
            continue
        if (x.spec is spec and x.offset == first) or not (spec.numel and x.spec.numel):
            continue
        end, x_end = first + spec.extent, x.offset + x.spec.extent
        if x.offset >= end or first >= x_end:
            continue
        if is_dense(spec.shape, spec.strides) and is_dense(x.spec.shape, x.spec.strides):
            if (x.offset, x_end) == (first, end) and x.spec.strides == spec.strides:
                continue
            raise RuntimeError(
                "unsupported operation: some elements of the input tensor and the written-to tensor "
                "refer to a single memory location. Please clone() the tensor before performing "
                "the operation."
            )


@adopting(write.writes)
def adopt(t: Any, made: Any, *, overlap: bool = False) -> Any:
    """Write `made`, the result of an op, into `t`, which takes over its history.

    `overlap` allows a tensor with several elements in one place: one value for all is well defined.
    """
    spec = t.spec
    if made.spec is not spec:
        record.common_device((spec, made.spec))
        if made.spec.shape != spec.shape:
            raise RuntimeError(
                f"output with shape {list(spec.shape)} doesn't match the broadcast shape "
                f"{list(made.spec.shape)}"
            )
        if made.spec.dtype is not spec.dtype:
            if not dtypes.can_cast(made.spec.dtype, spec.dtype):
                raise RuntimeError(
                    f"result type {made.spec.dtype.legacy} can't be cast to the desired output "
                    f"type {spec.dtype.legacy}"
                )
            made = made.to(spec.dtype)
        if not overlap:
            refuse_overlapping(spec)
    recorded = made.needs_grad and state.grad
    if recorded and t.view_of is not None:
        check_view(t)
    if made is t or made.storage is t.storage or made.view_of is not None:
        made = made.clone()
    rebind = recorded and spec is t.storage.spec
    if recorded:
        _keep_old_value(t, made.fn)
    write.store(t, made)
    if recorded:
        rewrite_history(t, made, rebind)
    return t


def adopt_shared(t: Any, make: Callable[[], Any], operands: Sequence[Any]) -> Any:
    """`adopt` of what `make` gives of `t` and other operands, for memory that others look at.

    What reads such memory runs at once, into memory of its own, and is copied then. Here it waits until it
    is known where it goes: over the elements that it replaces, if its kernel can do that.
    """
    if scheduling.captured_threads:
        return adopt(t, make())
    scheduling.settle()  # by its plan, which a batch with such a write has not; its errors come first
    value = t.storage.value
    storages = {x.storage for x in (t, *operands) if record.is_tensor(x) and x.storage.shared}
    outsiders = [(storage, storage.shared) for storage in storages]
    with scheduling.lock:
        for storage in storages:
            storage.shared = 0
        try:
            made = make()
        finally:
            for storage, count in outsiders:
                storage.shared += count
        goes_over = _can_go_over(t, made, value)
        if goes_over:
            node = made.storage.value
            node.recipe = elementwise_record.recipe_here(node.recipe)
        scheduling.settle()
        if not goes_over:
            return adopt(t, made)
        write.count((t,))
        return t


def _can_go_over(t: Any, made: Any, value: Any) -> bool:
    """Whether a recorded result can be written over the elements of `t`, the first that it reads."""
    if not record.is_tensor(made) or made.spec is not t.spec or made.view_of is not None:
        return False
    node, recipe = made.storage.value, made.storage.value.recipe
    if (
        recipe is None
        or made.offset
        or made.storage is t.storage
        or (made.needs_grad and state.grad)
    ):
        return False
    if recipe.alias is None or recipe.device is not CPU:
        return False
    if not write.is_all(t) or write.has_twin(t.storage) or node.inputs[0] is not value:
        return False
    if value.recipe is not None:  # a write before this one went wrong
        return False
    start, end = int(value.address), int(value.address) + t.storage.spec.nbytes
    offsets = node.offsets or (0,) * len(node.inputs)
    for other, spec, offset in list(zip(node.inputs, recipe.inputs, offsets, strict=True))[1:]:
        if other.recipe is None:  # else it gets memory of its own
            first = int(other.address) + offset * spec.dtype.itemsize
            if first < end and start < first + spec.extent * spec.dtype.itemsize:
                return False
    return True


def refuse_overlapping(spec: Any) -> None:
    """Refuse to write different elements into one place of memory.

    Raises:
        RuntimeError: with PyTorch's text.
    """
    if not spec.contiguous and any(
        st == 0 and n > 1 for n, st in zip(spec.shape, spec.strides, strict=True)
    ):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to "
            "a single memory location. Please clone() the tensor before performing the "
            "operation."
        )


def _keep_old_value(t: Any, fn: GradNode) -> None:
    """Let what the op saved of `t` outlive the write: a handle on the value as it is now.

    Where `t` is its own second operand too (`t *= t`), that one is lost, as in PyTorch.
    """
    place = next((k for k in range(0, len(fn.saved), 2) if fn.saved[k] is t), None)
    if place is None:
        return
    if t.storage.shared:
        old = t.detach().clone()
    else:
        old = record.make_tensor(
            record.make_storage(t.storage.value, t.storage.spec), t.spec, t.offset
        )
    old.edge = record.edge_of(t)
    old.needs_grad = old.edge is not None
    fn.saved = (*fn.saved[:place], old, old.counter.version, *fn.saved[place + 2 :])


def rewrite_history(t: Any, made: Any, rebind: bool = False) -> None:
    """Make the history of `made`, whose value was written into `t`, that of `t` and of its base."""
    fn: GradNode = made.fn
    if rebind and fn.saved:
        # The op's saved result is what was written: a later write must be noticed in backward.
        saved = list(fn.saved)
        for k, kept in enumerate(saved):
            if kept is made.storage:
                saved[k : k + 2] = t.storage, t.counter.version
        fn.saved = tuple(saved)
    if t.view_of is None:
        retained = t.meta is not None and t.meta.retains_grad
        if retained and t.edge is not None:
            t.edge[0].more().retained.pop(t.edge[1], None)
        t.edge, t.needs_grad = made.edge, True
        if retained:
            t.retain_grad()
        return
    base = t.view_of.base
    edge = record.edge_of(base) if base.needs_grad else None
    node = record.new_grad_node(_copy_slices, (edge, (fn, made.nr)), (base.spec, made.spec))
    node.recipe = (base.spec, t.spec, t.offset - base.offset)
    node.outputs = (base.spec,)
    node.saved = NUMBERS
    base.edge, base.needs_grad = (node, 0), True
    t.needs_grad = True
    t.view_of.version = -1  # its backward node comes from the new one of the base
    t.current_fn()


class CopySlices:
    """Backward of writing into a view: the base loses the region's gradient to what was written."""

    backward_name = "torch::autograd::CopySlices"
    node_class = node_class(backward_name)

    def pull(self, fn: GradNode, grads: list[Any]) -> list[Any]:
        """Gradients of the old base and of the elements that were written."""
        if fn.saved is None:
            raise RuntimeError(FREED)
        base, region, offset = fn.recipe
        refuse_overlapping(region)  # a fill may write there, but its gradient has no single place
        (g,) = record.as_tensors(fn, grads)
        without_region, gather_strided = registry["without_region"], registry["gather_strided"]
        return [without_region(g, base, region, offset), gather_strided(g, base, region, offset)]

    def saved_value(self, fn: GradNode, name: str) -> Any:
        """It saves only geometry."""
        raise AttributeError(f"'CopySlices' object has no attribute '_saved_{name}'")


_copy_slices = CopySlices()


def write_out(name: str, out: Any, made: Any) -> Any:
    """Put results into the `out=` tensors of a call.

    Raises:
        RuntimeError: if an argument needs gradients, or the dtype cannot hold the result.
    """
    if isinstance(made, tuple):
        targets = out if isinstance(out, (tuple, list)) else (out,)
        if len(targets) != len(made):
            raise TypeError(f"{name}(): expected {len(made)} tensors in out=, got {len(targets)}")
        return type(made)(*map(lambda o, m: write_out(name, o, m), targets, made))
    if not record.is_tensor(out):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if made.needs_grad or (state.grad and out.needs_grad):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad."
        )
    if not dtypes.can_cast(made.dtype, out.dtype):
        raise RuntimeError(
            f"result type {made.dtype.legacy} can't be cast to the desired output type "
            f"{out.dtype.legacy}"
        )
    if out.shape != made.shape:
        if out.numel():
            warnings.warn(
                "An output with one or more elements was resized since it had shape "
                f"{list(out.shape)}, which does not match the required output shape "
                f"{list(made.shape)}. This behavior is deprecated, and in a future PyTorch release "
                "outputs will not be resized unless they have zero elements.",
                UserWarning,
                stacklevel=3,
            )
        resize(out, made.shape)
    with_dtype = made if made.dtype is out.dtype else made.to(out.dtype)
    return adopt(out, with_dtype)


def resize(t: Any, shape: Size) -> None:
    """Give a tensor fresh memory of another shape."""
    fresh = primitives.empty(dense_spec(shape, t.dtype, t.device))
    t.storage, t.spec, t.offset, t.view_of = fresh.storage, fresh.spec, 0, None
    t.counter = fresh.storage
