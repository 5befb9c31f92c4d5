"""Views: handles on the same storage, and how they keep their place in the history."""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..devices import CPU
from ..shapes import Shape, has_overlap
from . import record
from .levels import Arguments, innermost, is_traced, tracers
from .node import (
    IN_FUNCTION,
    MULTIPLE,
    NO_GRAD,
    Edge,
    GradContext,
    Gradient,
    GradNode,
    NewTensor,
    Spec,
    Specs,
    TensorBase,
    View,
    node_class,
    reported_in,
    spec_of,
    specs_of,
)
from .other_sizes import OtherSizes, form_of, spec_like, stand_in
from .registry import registry
from .state import state
from .templates import Unresizable
from .trace import Trace, TraceEntry, remembered, trace

# Gives the gradient of the origin, of that of the only view or of a list of those of several.
Pullback = Callable[..., TensorBase]


class ViewPullback:
    """A pullback that is a view itself, `view(g, *arguments)`, and knows that of many examples.

    `lift(size, *arguments)` gives the arguments for so many, whose axis is in front. So views of tracers
    need no tracer on the way back.
    """

    __slots__ = ("arguments", "lift", "view")
    of_sizes = ("arguments",)

    def __init__(
        self, view: Callable[..., NewTensor], arguments: Arguments, lift: Callable[..., Arguments]
    ) -> None:
        self.view, self.arguments, self.lift = view, arguments, lift

    def __call__(self, g: NewTensor) -> NewTensor:
        return self.view(g, *self.arguments)

    def of_all(self, size: int) -> ViewPullback:
        """That of so many examples."""
        return ViewPullback(self.view, self.lift(size, *self.arguments), self.lift)


class ViewVjp(GradContext):
    """A function that turns the gradients of views into that of their origin; what it recorded.

    Of a view that shows a part of its origin, `offset` says where: its gradient may be added there to one
    that has arrived. None for others. One that `lasts` belongs to each view that the same call makes.
    """

    __slots__ = ("function", "kin", "lasts", "numbers", "offset", "remake", "traces")
    of_sizes = ("function", "offset", "numbers")
    of_its_own = ("traces",)

    def __init__(self, function: Pullback, offset: int | None = None) -> None:
        self.function, self.offset, self.lasts = function, offset, False
        self.traces: dict[Specs, TraceEntry] = {}  # by the gradients' specs
        # Of one that a template has made: the traces of all of these, its own numbers, and what gives one for
        # others.
        self.kin: OtherSizes | None = None
        self.numbers: tuple[int, ...] = ()
        self.remake: Callable[[Iterator[int]], ViewVjp] | None = None

    def known_trace_of(self, grads: Specs) -> TraceEntry | None:
        """What it records for gradients with these specs, made by a template that is there."""
        found = None if self.kin is None else form_of(grads)
        if self.kin is None or found is None:
            return None
        entry = self.kin.made_by_template(found[0], (*found[1], *self.numbers))
        return entry if isinstance(entry, Trace) else None

    def trace_of(self, grads: Specs) -> TraceEntry | None:
        """What it records for gradients with these specs, made by a template, perhaps a new one."""
        remake, found = self.remake, form_of(grads)
        if self.kin is None or remake is None or found is None:
            return None
        form, numbers = found

        def make(given: Iterator[int]) -> Trace:
            gs = [None if spec is None else stand_in(spec_like(spec, given)) for spec in grads]
            function = remake(given).function
            operands = [g for g in gs if g is not None]
            _, entry = trace(operands, lambda: function(gs[0] if len(gs) == 1 else gs))
            if not isinstance(entry, Trace):
                raise Unresizable("it depends on more than specs")
            return entry

        return self.kin.made(form, (*numbers, *self.numbers), make)


class ViewOp:
    """The backward side of a view op; each node carries its own pullback as its context."""

    __slots__ = ("backward_name", "node_class")

    def __init__(self, backward_name: str) -> None:
        self.backward_name = backward_name
        self.node_class = node_class(backward_name)

    def learns_vjp(self, fn: GradNode, grads: list[Gradient | None]) -> bool:
        """Whether a template has made a trace that was not known."""
        vjp = fn.context
        assert isinstance(vjp, ViewVjp)
        if tracers and is_traced(grads):
            return False
        key = specs_of(fn, grads)
        entry = None if key in vjp.traces else vjp.known_trace_of(key)
        if entry is not None:
            vjp.traces[key] = entry
        return entry is not None

    def apply_vjp(self, fn: GradNode, grads: list[Gradient | None]) -> list[Gradient | None]:
        """The gradient of the viewed tensor."""
        given, vjp = record.as_tensors(fn, grads), fn.context
        assert isinstance(vjp, ViewVjp)

        def run() -> TensorBase:
            return vjp.function(given[0] if len(given) == 1 else given)

        if state.grad or (tracers and is_traced(grads)):
            return [run()]
        key = tuple([None if g is None else g._spec for g in given])
        if key not in vjp.traces and (entry := vjp.trace_of(key)) is not None:
            vjp.traces[key] = entry
        return [remembered(vjp.traces, key, [g for g in given if g is not None], run)]

    def saved_value(self, fn: GradNode, name: str) -> Any:
        """Views save nothing that could be shown."""
        raise AttributeError(f"'{self.backward_name}' object has no attribute '_saved_{name}'")


_view_ops: dict[str, ViewOp] = {}


def view_op(backward_name: str) -> ViewOp:
    """The op behind backward nodes of that name."""
    op = _view_ops.get(backward_name)
    if op is None:
        op = _view_ops[backward_name] = ViewOp(backward_name)
    return op


def alias(
    t: TensorBase,
    shape: Sequence[int],
    strides: Shape,
    offset: int,
    backward_name: str,
    vjp: Pullback,
    reported: Shape | None = None,
) -> NewTensor:
    """A differentiable view of `t`; `vjp` turns the gradient of the view into that of `t`.

    `reported` is what its strides are to be reported as, if they are not steps along axes of the memory.
    """
    if t.__class__ in tracers:
        return innermost((t,)).view(t, tuple(shape), strides, offset, backward_name, vjp)
    info = t._view_of
    base = t if info is None else info.base
    counter = t._version_counter
    out = record.new_tensor(record.Tensor)
    out._storage = t._storage
    whole = base._spec
    if whole.chosen and reported is None:
        reported = reported_in(whole, strides)
    out._spec = spec_of(tuple(shape), strides, whole.dtype, whole.device, reported)
    out._offset = offset
    out._version_counter = counter
    out._needs_grad = False
    out._edge = out._autograd_meta = None
    kind = "" if info is None else info.kind
    wanted = t._needs_grad or (info is not None and base._needs_grad)
    if not state.grad:
        kind = NO_GRAD
    elif wanted:
        fn = record.new_grad_node(view_op(backward_name), (record.edge_of(t),), (t._spec,))
        fn.context = ViewVjp(vjp, offset - t._offset if is_part(t._spec, out._spec) else None)
        fn.outputs = (out._spec,)
        record.give_history(out, fn)
    out._view_of = View(base, counter.version, kind)
    return out


def strided(t: TensorBase, spec: Spec, start: int) -> NewTensor:
    """A view of any geometry, whose first element is at `start` of the storage."""
    origin, offset = t._spec, start - t._offset
    return alias(
        t, spec.shape, spec.strides, start, "AsStridedBackward0",
        lambda g: registry["scatter_strided"](g, origin, spec, offset),
    )  # fmt: skip


def as_own(t: NewTensor) -> NewTensor:
    """A view of memory that no other tensor shows, as a tensor that views nothing: nobody may forbid writes."""
    if t.__class__ not in tracers:
        t._view_of = None
    return t


def on_its_own(t: NewTensor) -> NewTensor:
    """A view as a tensor that views nothing: values are immutable, so its memory may have the same one."""
    storage = record.make_storage(t._storage.value, t._storage.spec)
    counter = t._version_counter if t._version_counter is record.INFERENCE else None
    made = record.make_tensor(storage, t._spec, t._offset, counter)
    made._needs_grad, made._edge = t._needs_grad, t._edge
    return made


@functools.lru_cache(512)
def is_part(whole: Spec, part: Spec) -> bool:
    """Whether a view shows some elements of a tensor in C order, on the CPU, and none of them twice."""
    if not whole.contiguous or whole.device is not CPU or whole.dtype is not part.dtype:
        return False
    return 0 < part.numel < whole.numel and not has_overlap(part.shape, part.strides)


def aliases(
    t: TensorBase,
    parts: Sequence[tuple[Spec, int]],
    backward_name: str,
    vjp: Pullback,
) -> tuple[NewTensor, ...]:
    """Several views of `t`, each a spec and where it starts in `t`: outputs of one backward node."""
    if t.__class__ in tracers:
        return innermost((t,)).views(t, parts, backward_name, vjp)
    wanted = state.grad and record.needs_grad(t)
    base = t if t._view_of is None else t._view_of.base
    kind = MULTIPLE if state.grad else NO_GRAD
    counter = t._version_counter
    outs = []
    for spec, start in parts:
        out = record.make_tensor(t._storage, as_view_of(base, spec), t._offset + start, counter)
        out._view_of = View(base, counter.version, kind)
        outs.append(out)
    if wanted:
        fn = record.new_grad_node(view_op(backward_name), (record.edge_of(t),), (t._spec,))
        fn.outputs = tuple([out._spec for out in outs])
        fn.context = ViewVjp(vjp if len(outs) != 1 else lambda g: vjp([g]))
        for k, out in enumerate(outs):
            record.give_history(out, fn, k)
    return tuple(outs)


def as_view_of(base: TensorBase, spec: Spec) -> Spec:
    """The spec of a view of a base, which reports what views of that do."""
    whole = base._spec
    if not whole.chosen:
        return spec
    reported = reported_in(whole, spec.strides)
    return spec_of(spec.shape, spec.strides, spec.dtype, spec.device, reported)


def refuse_view(t: TensorBase, event: str) -> None:
    """Raise for views whose history cannot be told after a write: `event` says what was written."""
    assert t._view_of is not None
    kind = t._view_of.kind
    if not kind:
        return
    name = "" if t._fn is None else re.sub(r"Backward\d*$", "", t._fn.name())
    if kind in (MULTIPLE, IN_FUNCTION) and name:
        text = f"Output {t._nr} of {name} is a view and {event}. "
    else:
        made = f"Output {t._nr} of {name} is a view of a view which" if name else "A view"
        text = f"{made} was created in no_grad mode and {event} with grad mode enabled. "
    if kind == MULTIPLE:
        text += (
            "This view is the output of a function that returns multiple views. Such functions do "
            "not allow the output views to be modified inplace. You should replace the inplace "
            "operation by an out-of-place one."
        )
    elif kind == IN_FUNCTION:
        text += (
            "This view was created inside a custom Function (or because an input was returned as-is) and "
            "the autograd logic to handle view+inplace would override the custom backward associated with "
            "the custom Function, leading to incorrect gradients. This behavior is forbidden. You can fix "
            "this by cloning the output of the custom Function."
        )
    else:
        text += (
            "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify "
            "your code by moving both the view and the inplace either both inside the no_grad block "
            "(if you don't want the inplace to be tracked) or both outside (if you want the inplace "
            "to be tracked)."
        )
    raise RuntimeError(text)


def _keep_retaining(t: TensorBase, fn: GradNode, former: Edge | None) -> None:
    """Have the gradient of a view kept where it arrives from now on, and no longer where it did."""
    fn.more().retained[0] = weakref.ref(t)
    if former is not None:
        former[0].more().retained.pop(former[1], None)


def current_fn(t: TensorBase) -> GradNode | None:
    """The backward node of a view, made anew if its base was written in place since."""
    info = t._view_of
    assert info is not None
    base = info.base
    if info.version != t._version_counter.version:
        if base._needs_grad or t._fn is not None:
            refuse_view(t, "its base or another view of its base has been modified inplace")
        if base._needs_grad:
            fn = record.new_grad_node(
                view_op("AsStridedBackward0"), (record.edge_of(base),), (base._spec,)
            )
            spec, offset, target = t._spec, t._offset - base._offset, base._spec
            fn.context = ViewVjp(lambda g: registry["scatter_strided"](g, target, spec, offset))
            fn.outputs = (spec,)
            former = t._edge
            record.give_history(t, fn)
            if t._autograd_meta is not None and t._autograd_meta.retains_grad:
                _keep_retaining(t, fn, former)
        info.version = t._version_counter.version
    return t._fn
