"""Views that come again: what a view op made of a tensor, to be made again without its Python.

What a view op gives depends on nothing but the spec of its tensor and its other arguments. It is
remembered under these as a cached view; machine code makes the views (`kernels/fastpath/views.py`).
Where no gradients are recorded, numbers in brackets are remembered as if they were 0: others only shift
the view.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

from ..schedule.jit import native
from ..schedule.settle import ask_for_machine_code
from . import record, wrong_types
from .fastpath import Fallback, Runtime, runtime
from .node import GradContext, GradNode, GradOp, NewTensor, Spec, Specs, TensorBase
from .signature import Argument, Arguments, NamedArguments, Signature, signature_of
from .trace import usable
from .view import ViewVjp

MAX_VIEWS = 4096  # of one op
A_SETTLE = 256  # views made by the interpreter: a program that only makes views never settles

_views = native.FastPath("views", "view")
_views_made = itertools.count(1)


class ViewPart(NamedTuple):
    """A view of a tensor."""

    spec: Spec
    shift: int  # of its first element from the tensor's


class CachedView:
    """The views that a call gives, and their backward side, if any was."""

    __slots__ = ("inputs", "is_multiple", "is_tuple", "node_class", "op", "outputs", "parts", "vjp")

    def __init__(
        self, t: TensorBase, views: tuple[TensorBase, ...], is_tuple: bool, is_multiple: bool, shift: int
    ) -> None:  # fmt: skip
        start = t._offset + shift
        self.parts = tuple([ViewPart(view._spec, view._offset - start) for view in views])
        self.is_tuple, self.is_multiple = is_tuple, is_multiple
        self.op: GradOp | None = None
        self.vjp: GradContext | None = None
        self.node_class: type[GradNode] | None = None
        self.inputs: Specs = ()
        self.outputs: Specs = ()
        if views[0]._edge is not None:
            fn = views[0]._edge[0]
            self.op, self.node_class, self.vjp = fn.op, fn.op.node_class, fn.context
            if isinstance(self.vjp, ViewVjp):
                self.vjp.lasts = True
            self.inputs, self.outputs = fn.inputs, fn.outputs


class ViewsContext(NamedTuple):
    """What makes views of cached."""

    runtime: Runtime
    cached: dict[Signature, CachedView]
    fallback: Fallback
    in_brackets: bool  # whether the argument behind the tensor is a key


native.register_layout(CACHED_VIEW=CachedView, VIEW_PART=ViewPart, VIEWS=ViewsContext)


def caches_views(
    function: Callable[..., NewTensor],
    *,
    in_brackets: bool = False,
    one_by_one: bool = False,
    within: bool = False,
) -> Callable[..., NewTensor]:
    """A view op, a function of a tensor and of plain values, that remembers what it gave.

    `in_brackets` says that it is a function of a tensor and a key, `one_by_one` that several views are made by
    as many operations, `within` that only what lies between the tensor's first and last element is remembered.
    """
    if not native.is_supported:
        return function
    cached: dict[Signature, CachedView] = {}

    @functools.wraps(function)
    def view(*args: Argument, **kwargs: Argument) -> NewTensor:
        if native.is_wanted and not next(_views_made) % A_SETTLE:
            ask_for_machine_code()
        try:
            made = function(*args, **kwargs)
            is_view = made.__class__ is tuple or made._view_of is not None
            if is_view and args and usable() and not (within and _reaches_out(args[0], made)):
                _remember(cached, args, kwargs, made, in_brackets, one_by_one)
        except Exception:
            wrong_types.tell(function, view.__name__, args, kwargs)
            raise
        return made

    context = ViewsContext(runtime(), cached, view, in_brackets)
    made: Callable[..., NewTensor] = _views.function(view, context)
    return made


def at_zeros(t: TensorBase, key: Argument) -> tuple[Argument, int]:
    """A key with 0 in the place of its numbers, and how many elements further on lies what they choose.

    As it is if something in it is no number and no slice.
    """
    entries = key if key.__class__ is tuple else (key,)
    if len(entries) > t._spec.ndim or not {entry.__class__ for entry in entries} <= {int, slice}:
        return key, 0
    shift, zeros = 0, []
    for entry, size, stride in zip(entries, t._spec.shape, t._spec.strides, strict=False):
        if entry.__class__ is int:
            shift += entry % size * stride
            entry = 0
        zeros.append(entry)
    return tuple(zeros) if key.__class__ is tuple else zeros[0], shift


def _remember(
    cached: dict[Signature, CachedView], args: Arguments, kwargs: NamedArguments, made: NewTensor,
    in_brackets: bool, one_by_one: bool,
) -> None:  # fmt: skip
    """Remember what a call gave, if these are views of its tensor, outputs of one function."""
    t = args[0]
    if in_brackets and args[1].__class__ in record.tensor_classes:
        return  # what it chooses is not known by the key
    is_tuple = made.__class__ is tuple
    views = made if is_tuple else (made,)
    if t.__class__ not in record.tensor_classes or not all(_is_cut_from(t, view) for view in views):
        return
    edges = [view._edge for view in views]
    if edges and edges[0] is not None:
        fn = edges[0][0]
        origin = (record.edge_of(t),)
        is_one = fn.context.__class__ is ViewVjp and edges == [(fn, k) for k in range(len(edges))]
        if not is_one or fn.edges != origin:
            return
    elif not edges or any(edges):
        return
    operands: list[TensorBase] = []
    shift = 0
    if in_brackets and not kwargs and edges[0] is None:
        zeros, shift = at_zeros(t, args[1])
        args = (t, zeros)
    key = signature_of(args, kwargs, operands)
    try:
        known = cached.get(key)
    except TypeError:  # an argument that cannot be in a key
        return
    if len(operands) == 1 and (known is None or (known.vjp is None and edges[0] is not None)):
        if len(cached) >= MAX_VIEWS:
            cached.clear()
        cached[key] = CachedView(t, views, is_tuple, is_tuple and not one_by_one, shift)


def _reaches_out(t: TensorBase, view: NewTensor) -> bool:
    """Whether a view has elements before the first or behind the last one of its tensor."""
    start = view._offset - t._offset
    return bool(start < 0 or start + view._spec.extent > t._spec.extent)


def _is_cut_from(t: TensorBase, view: Argument) -> bool:
    is_plain = view.__class__ in record.tensor_classes
    return is_plain and view is not t and view._storage is t._storage
