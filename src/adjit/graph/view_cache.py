"""Views that come again: what a view op made of a tensor, to be made again without its Python.

What a view op gives depends on nothing but the spec of its tensor and its other arguments. It is
remembered under these as a cached view; machine code makes the views (`kernels/fastpath/views.py`).
Where no gradients are recorded, numbers in brackets are remembered as if they were 0: others only shift
the view.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..dtypes import dtype as DType
from ..dtypes import int64
from ..schedule.jit import native
from ..schedule.settle import ask_for_machine_code
from . import record, wrong_types
from .fastpath import Fallback, Runtime, runtime
from .node import GradContext, GradNode, GradOp, NewTensor, Spec, Specs, TensorBase
from .other_sizes import OtherSizes, form_of, spec_like, stand_in, with_numbers
from .signature import Argument, Arguments, NamedArguments, Signature, signature_of
from .state import record_gradients, state
from .templates import Unresizable
from .trace import usable
from .view import ViewVjp

MAX_VIEWS = 4096  # of one op
A_SETTLE = 256  # views made by the interpreter: a program that only makes views never settles

_views = native.FastPath("views", "view")
_views_made = itertools.count(1)


Copying = Callable[..., NewTensor]


class ViewPart(NamedTuple):
    """A view of a tensor."""

    spec: Spec
    shift: int  # of its first element from the tensor's


class CachedView:
    """The views that a call gives, of its tensor or of a copy of that, and their backward side, if any was."""

    __slots__ = (
        "copying", "inputs", "is_multiple", "is_tuple", "node_class", "op", "outputs", "parts", "vjp"
    )  # fmt: skip
    of_sizes = ("parts", "vjp", "inputs", "outputs")

    def __init__(
        self, t: TensorBase, views: tuple[TensorBase, ...], is_tuple: bool, is_multiple: bool, shift: int
    ) -> None:  # fmt: skip
        start = t._offset + shift
        self.parts = tuple([ViewPart(view._spec, view._offset - start) for view in views])
        self.is_tuple, self.is_multiple = is_tuple, is_multiple
        self.copying: Copying | None = None
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
    cached: dict[Signature, CachedView | None]
    fallback: Fallback
    choose: Fallback | None  # in brackets, what gives the elements at the places that tensors name
    index_dtype: DType  # of such tensors
    sizes: OtherSizes  # what makes others
    graded_sizes: OtherSizes  # and those with a history


native.register_layout(CACHED_VIEW=CachedView, VIEW_PART=ViewPart, VIEWS=ViewsContext)


def caches_views(
    function: Callable[..., NewTensor],
    *,
    chooses: Fallback | None = None,
    one_by_one: bool = False,
    within: bool = False,
    copying: Copying | None = None,
) -> Callable[..., NewTensor]:
    """A view op, a function of a tensor and of plain values, that remembers what it gave.

    `chooses` says that it is a function of a tensor and a key, and gives a copy where tensors are in that: the
    elements at these places, given as a list, and the tensor's shape. `one_by_one` says that several views are
    made by as many operations, `within` that only what lies between the tensor's first and last element is
    remembered. `copying` makes the copy of which it gives a view where it cannot give one of the tensor.
    """
    if not native.is_supported:
        return function
    cached: dict[Signature, CachedView | None] = {}
    others = OtherViews(cached, function, chooses is not None, one_by_one, within, copying)
    has_flags = bool(wrong_types.flags(function))

    @functools.wraps(function)
    def view(*args: Argument, **kwargs: Argument) -> NewTensor:
        if native.is_wanted and not next(_views_made) % A_SETTLE:
            ask_for_machine_code()
        if has_flags:
            wrong_types.check_flags(function, view.__name__, args, kwargs)
        try:
            if _views.is_loaded and others.know(args, kwargs):
                return made(*args, **kwargs)
            out = function(*args, **kwargs)
            # An error if it is no tensor.
            is_view = out.__class__ is tuple or out._view_of is not None
            if usable() and args and out is args[0]:
                others.remember_itself(args, kwargs)
            elif (is_view or copying is not None) and usable():
                others.remember(args, kwargs, out)
        except Exception:
            if said := wrong_types.tell(function, view.__name__, args, kwargs):
                return said[0]
            raise
        return out

    sizes = others.sizes[False], others.sizes[True]
    context = ViewsContext(runtime(), cached, view, chooses, int64, *sizes)
    made: Callable[..., NewTensor] = _views.function(view, context)
    return made


class OtherViews:
    """What a view op remembers: what it gave, and templates for tensors of other sizes."""

    __slots__ = ("cached", "copying", "function", "in_brackets", "one_by_one", "sizes", "within")

    def __init__(
        self, cached: dict[Signature, CachedView | None], function: Callable[..., NewTensor], in_brackets: bool,
        one_by_one: bool, within: bool, copying: Copying | None,
    ) -> None:  # fmt: skip
        self.cached, self.function, self.copying = cached, function, copying
        self.in_brackets, self.one_by_one, self.within = in_brackets, one_by_one, within
        # By whether gradients are recorded.
        self.sizes = {False: OtherSizes(), True: OtherSizes()}

    def remember(self, args: Arguments, kwargs: NamedArguments, made: NewTensor) -> None:
        """Remember what a call gave, if these are views of its tensor, outputs of one function."""
        if not args or args[0].__class__ not in record.tensor_classes:
            return
        args, shift = self._as_remembered(args[0], args, kwargs, made)
        found = self._cached_view(args, made, shift)
        if found is None:
            return
        operands: list[TensorBase] = []
        key = signature_of(args, kwargs, operands)
        try:
            known = self.cached.get(key)
        except TypeError:  # an argument that cannot be in a key
            return
        if len(operands) == 1 and (known is None or (known.vjp is None and found.vjp is not None)):
            if len(self.cached) >= MAX_VIEWS:
                self.cached.clear()
            self.cached[key] = found
            self.sizes[found.vjp is not None].keep(self.cached, key, self.function)

    def remember_itself(self, args: Arguments, kwargs: NamedArguments) -> None:
        """Remember that a call gave its tensor itself, which None stands for."""
        operands: list[TensorBase] = []
        key = signature_of(args, kwargs, operands)
        is_plain = args[0].__class__ in record.tensor_classes and len(operands) == 1
        if self.in_brackets or not is_plain:
            return
        with contextlib.suppress(TypeError):  # an argument that cannot be in a key
            if len(self.cached) >= MAX_VIEWS:
                self.cached.clear()
            self.cached[key] = None
            self.sizes[False].keep(self.cached, key, self.function)

    def _as_remembered(
        self, t: TensorBase, args: Arguments, kwargs: NamedArguments, made: NewTensor
    ) -> tuple[Arguments, int]:
        """The arguments under which a call is known, and how many elements further on its views begin."""
        first = made[0] if made.__class__ is tuple and made else made
        is_plain = first.__class__ in record.tensor_classes and first._edge is None
        if self.in_brackets and not kwargs and len(args) == 2 and is_plain:
            zeros, shift = at_zeros(t, args[1])
            return (t, zeros), shift
        return args, 0

    def _cached_view(self, args: Arguments, made: NewTensor, shift: int) -> CachedView | None:
        """The views that a call gave; None if they are none of its tensor, or not outputs of one function."""
        t = args[0]
        is_tuple = made.__class__ is tuple
        views = made if is_tuple else (made,)
        if self.in_brackets and _chooses(args[1]):
            return None
        if self.copying is not None and not is_tuple and _is_of_a_copy(t, made):
            found = CachedView(made, views, is_tuple=False, is_multiple=False, shift=0)
            found.copying = self.copying
            return found
        if not views or not all(_is_cut_from(t, view) for view in views):
            return None
        if not is_tuple and (made._view_of is None or (self.within and _reaches_out(t, made))):
            return None
        edges = [view._edge for view in views]
        if edges[0] is not None:
            fn = edges[0][0]
            origin = (record.edge_of(t),)
            is_one = fn.context.__class__ is ViewVjp and edges == [
                (fn, k) for k in range(len(edges))
            ]
            if not is_one or fn.edges != origin:
                return None
        elif any(edges):
            return None
        return CachedView(t, views, is_tuple, is_tuple and not self.one_by_one, shift)

    def know(self, args: Arguments, kwargs: NamedArguments) -> bool:
        """Whether what such a call gives is remembered now, made by a template."""
        if not args or args[0].__class__ not in record.tensor_classes or not usable():
            return False
        if self.in_brackets and _chooses(args[-1]):
            return False
        t = args[0]
        is_graded = state.grad and record.needs_grad(t)
        if self.in_brackets and not is_graded and not kwargs and len(args) == 2:
            if not _is_within(t, args[1]):
                return False
            args = (t, at_zeros(t, args[1])[0])
        operands: list[TensorBase] = []
        key = signature_of(args, kwargs, operands)
        found = form_of(key)
        if found is None or len(operands) != 1 or key in self.cached:
            return False
        form, numbers = found
        sizes = self.sizes[is_graded]
        remake = functools.partial(self._remade, (None, *args[1:]), kwargs, t._spec, is_graded)
        view = sizes.made(form, numbers, remake)
        if view is None:
            return False
        if len(self.cached) >= MAX_VIEWS:
            self.cached.clear()
        self.cached[key] = view
        sizes.keep(self.cached, key, self.function, (is_graded, found), is_made=True)
        return True

    def _remade(
        self,
        args: Arguments,
        kwargs: NamedArguments,
        spec: Spec,
        is_graded: bool,
        given: Iterator[int],
    ) -> CachedView:
        """What a call with other numbers gives."""
        numbers = tuple(given)
        others = iter(numbers)
        t = stand_in(spec_like(spec, others))
        rest = with_numbers((*args[1:], *kwargs.values()), others, [])
        values = (t, *rest[: len(args) - 1])
        named = dict(zip(kwargs, rest[len(args) - 1 :], strict=True))
        t._needs_grad = is_graded
        before = record_gradients(is_graded)
        try:
            made = self.function(*values, **named)
        finally:
            record_gradients(before)
        found = self._cached_view(values, made, 0)
        if found is None:
            raise Unresizable("no view of the tensor alone")
        if isinstance(found.vjp, ViewVjp):
            again = functools.partial(self._remade, args, kwargs, spec, is_graded)
            found.vjp.kin, found.vjp.numbers = OtherSizes(), numbers
            found.vjp.remake = functools.partial(_vjp_of, again)
        return found


def _vjp_of(remake: Callable[[Iterator[int]], CachedView], given: Iterator[int]) -> ViewVjp:
    vjp = remake(given).vjp
    assert isinstance(vjp, ViewVjp)
    return vjp


def _chooses(key: Argument) -> bool:
    """Whether what is chosen by a key is not known by its signature."""
    entries = key if key.__class__ is tuple else (key,)
    return any(
        entry.__class__ in record.tensor_classes or entry.__class__ is list for entry in entries
    )


def _is_within(t: TensorBase, key: Argument) -> bool:
    """Whether the numbers of a key are places of their axes."""
    entries = key if key.__class__ is tuple else (key,)
    if len(entries) > t._spec.ndim:
        return False
    pairs = zip(entries, t._spec.shape, strict=False)
    return all(entry.__class__ is not int or -size <= entry < size for entry, size in pairs)


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


def _reaches_out(t: TensorBase, view: NewTensor) -> bool:
    """Whether a view has elements before the first or behind the last one of its tensor."""
    start = view._offset - t._offset
    return bool(start < 0 or start + view._spec.extent > t._spec.extent)


def _is_cut_from(t: TensorBase, view: Argument) -> bool:
    is_plain = view.__class__ in record.tensor_classes
    return is_plain and view is not t and view._storage is t._storage


def _is_of_a_copy(t: TensorBase, made: NewTensor) -> bool:
    """Whether a result is all of a copy, and that it is one follows from the tensor's spec."""
    if made.__class__ not in record.tensor_classes or made._view_of is not None:
        return False
    if made._storage.value is t._storage.value or t._storage.shared:
        return False
    return made._edge is None or made._edge[0].context.__class__ is ViewVjp
