"""The objects that recording leaves behind: specs, values, backward nodes."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from .. import errors
from ..devices import CPU, device
from ..dtypes import dtype
from ..schedule.dispatch import Failed
from ..schedule.jit import native
from ..schedule.planning.recipe import Recipe
from ..shapes import (
    Shape,
    Size,
    contiguous_strides,
    extent,
    is_contiguous,
    numel,
    same_strides,
    sized,
)
from ..storage import Block, Storage, Version
from ..unknown import current, inquiries, is_unknown, text_of
from .ring import Ring

if TYPE_CHECKING:
    from typing_extensions import TypeIs


# Axes, dtype and whether the strides are those of C order, and sizes, with strides if they are not.
FormAndNumbers: TypeAlias = (
    "tuple[tuple[int, dtype, bool], tuple[int, ...]] | tuple[None, tuple[object, ...]]"
)


class Spec:
    """Shape, strides, dtype and device of a tensor; one object for each that differ.

    The device is part of it, so that everything keyed by specs (recipes, traces, plans) knows it,
    and recording does not look at it.

    `strides` and `contiguous` are about the memory as it lies. Where the library has chosen its order
    (results of convolutions, what is computed of them, views of both), `reported` has the strides that
    PyTorch's tensor would have, by which programs are told what is a view and what a copy.
    """

    __slots__ = (
        "_form_and_numbers", "chosen", "contiguous", "device", "dtype", "extent", "ndim", "numel", "reported",
        "shape", "strides",
    )  # fmt: skip

    def __init__(
        self, shape: Size, strides: Shape, kind: dtype, place: device = CPU, reported: Shape | None = None
    ) -> None:  # fmt: skip
        self.shape, self.strides, self.dtype, self.device = shape, strides, kind, place
        self.chosen = reported is not None
        self.reported = strides if reported is None else reported
        self.ndim = len(shape)
        self.numel = numel(shape)
        self.contiguous = is_contiguous(shape, strides)
        self.extent = extent(shape, strides)
        self._form_and_numbers: FormAndNumbers | None = None

    @property
    def form_and_numbers(self) -> FormAndNumbers:
        """What it is but for its numbers, and these. Where no other sizes are looked for (of nothing, on other
        devices, of memory whose order the library has chosen) no form, and all that tells it from others."""
        found = self._form_and_numbers
        if found is None:
            if self.device is CPU and not self.chosen and self.numel:
                is_c_order = self.contiguous and self.strides == contiguous_strides(self.shape)
                numbers = self.shape if is_c_order else (*self.shape, *self.strides)
                found = (self.ndim, self.dtype, is_c_order), tuple(numbers)
            else:
                found = None, (self.shape, self.strides, self.dtype, self.device, self.reported)
            self._form_and_numbers = found
        return found

    @property
    def form(self) -> tuple[int, dtype, bool] | None:
        """The first of these."""
        return self.form_and_numbers[0]

    @property
    def nbytes(self) -> int:
        """Bytes from the first to one past the last element."""
        return self.extent * self.dtype.itemsize


specs: dict[tuple[object, ...], Spec] = {}
dense_specs: dict[tuple[object, ...], Spec] = {}  # those in C order, by shape, dtype and device
MAX_SPECS = 1 << 16
# Those that templates have made, which go again, the oldest first: with ever other sizes few come back.
made_once: Ring[tuple[Size, Shape, dtype]] = Ring(1 << 11)


def spec_of(
    shape: Shape, strides: Shape, kind: dtype, place: device = CPU, reported: Shape | None = None
) -> Spec:
    """The shared spec; nothing depends on its identity but the speed of lookups."""
    if reported is not None and same_strides(shape, strides, reported):
        strides, reported = reported, None
    is_unknown_here = bool(inquiries) and any(
        map(is_unknown, (*shape, *strides, *(reported or ())))
    )
    if is_unknown_here and (inquiry := current()) is not None:
        texts = [tuple([text_of(n) for n in part or ()]) for part in (shape, strides, reported)]
        made: Spec = inquiry.shared(
            (*texts, kind, place), lambda: Spec(sized(shape), tuple(strides), kind, place, reported)
        )
        return made
    key: tuple[object, ...] = (
        (shape, strides, kind) if place is CPU else (shape, strides, kind, place)
    )
    if reported is not None:
        key = (shape, strides, kind, place, reported)
    spec = specs.get(key)
    if spec is None:
        if len(specs) >= MAX_SPECS:
            specs.clear()
        spec = specs[key] = Spec(sized(shape), tuple(strides), kind, place, reported)
    return spec


def known_spec(
    shape: Size, strides: Shape, kind: dtype, numel: int, contiguous: bool, extent: int
) -> Spec:
    """The shared spec on the CPU, where what follows from its shape and strides is known."""
    key = shape, strides, kind
    spec = specs.get(key)
    if spec is None:
        if len(specs) >= MAX_SPECS:
            specs.clear()
        spec = Spec.__new__(Spec)
        spec.shape, spec.strides, spec.dtype, spec.device = shape, strides, kind, CPU
        spec.chosen, spec.reported, spec.ndim = False, strides, len(shape)
        spec.numel, spec.contiguous, spec.extent = numel, contiguous, extent
        spec._form_and_numbers = None
        keep_spec(key, spec)
    return spec


def are_one(a: Spec, b: Spec) -> bool:
    """Whether two specs are one object; of unknown numbers, whether they would be."""
    return are_alike(a, b) if inquiries else a is b


def are_alike(a: Spec, b: Spec) -> bool:
    """Whether two specs say the same: what a template made may have gone and come again as another object."""
    if a is b:
        return True
    kinds = (a.dtype, a.device, a.chosen) == (b.dtype, b.device, b.chosen)
    return kinds and a.shape == b.shape and a.strides == b.strides and a.reported == b.reported


def keep_spec(key: tuple[Size, Shape, dtype], spec: Spec) -> None:
    """Keep a spec that a template has made, until some more have come."""
    specs[key] = spec
    oldest = made_once.take(key)
    if oldest is not None:
        specs.pop(oldest, None)
        dense_specs.pop((*oldest[0], oldest[2], CPU), None)  # or there would be two


def as_reported(spec: Spec) -> Spec:
    """A spec as PyTorch's tensor would have it: of memory that lies as is reported."""
    return spec_of(spec.shape, spec.reported, spec.dtype, spec.device)


@functools.lru_cache(4096)
def reported_in(whole: Spec, strides: Shape) -> Shape:
    """The strides that a view of all of a dense memory is to report, given those that it has there."""
    axes = _outermost_first(whole)
    return tuple([_reported_step(step, axes) for step in strides])


def _outermost_first(whole: Spec) -> list[tuple[int, int, int]]:
    """How far steps along axes lead in memory, how many places there are, how far they are reported to lead."""
    axes = zip(whole.strides, whole.shape, whole.reported, strict=True)
    return sorted([axis for axis in axes if axis[0]], reverse=True)


def _reported_step(step: int, axes: Sequence[tuple[int, int, int]]) -> int:
    """How far a step in memory leads where the axes lie otherwise."""
    for is_long in (True, False):  # an axis with one place is meant where no other one is
        for here, size, there in axes:
            if here == step and (size > 1) is is_long:
                return there
    return _along([axis for axis in axes if axis[1] > 1], step)


def reported_offset(whole: Spec, offset: int) -> int:
    """Where in a memory an element would be if that lay as it is reported."""
    return _along(_outermost_first(whole), offset)


def _along(axes: Sequence[tuple[int, int, int]], distance: int) -> int:
    found = 0
    for here, _, there in axes:
        found += distance // here * there
        distance %= here
    return found


def dense_spec(shape: Shape, kind: dtype, place: device = CPU) -> Spec:
    """The spec in C order."""
    if inquiries:
        return spec_of(shape, contiguous_strides(shape), kind, place)
    key = (*shape, kind, place)
    spec = dense_specs.get(key)
    if spec is None:
        if len(dense_specs) >= MAX_SPECS:
            dense_specs.clear()
        spec = dense_specs[key] = spec_of(shape, contiguous_strides(shape), kind, place)
    return spec


@native.recycled
class Node:
    """An immutable value: recorded while it has a recipe, bytes at an address afterwards.

    Nodes point only to their inputs, so that reference counting frees a graph.
    """

    __slots__ = ("address", "at", "call_site", "inputs", "offsets", "others", "recipe", "scalars")
    recipe: Recipe | Failed | None  # None once the node has run
    inputs: tuple[Node, ...] | None
    offsets: tuple[int, ...] | None  # in elements, where an input is a view that starts later
    scalars: tuple[int, ...]  # words of Python numbers
    address: int  # of the bytes: a storage.Block, which owns them, or one that others keep
    at: int  # its position in a batch, while that is being planned
    others: list[Block]  # of all results, where there are several
    call_site: errors.CallSite | None  # where it was recorded, kept by ops that can fail on values


counter = itertools.count()  # numbers backward nodes in the order of their creation
sequence = counter.__next__


class LeafKind(NamedTuple):
    """What the backward nodes of leaves are."""

    node_class: type[GradNode]
    op: GradOp


leaves: list[LeafKind] = []  # what `autograd/engine.py` puts here, one

# Not empty while the collector of cycles is to know of what is recorded: see cycles.py.
attached: list[bool] = []


Hook = Callable[..., Any]  # the user's
Hooks = dict[int, Hook]  # by the number of their handle
Retained = dict[int, "weakref.ref[TensorBase]"]  # by number of the output


class Extras:
    """What few backward nodes have: hooks, retained gradients, the line that recorded them."""

    __slots__ = ("hooks", "metadata", "pre_hooks", "retained", "tensor_hooks", "traceback")

    def __init__(self) -> None:
        if not attached:
            attached.append(True)
        self.hooks: Hooks = {}
        self.pre_hooks: Hooks = {}
        self.tensor_hooks: dict[int, Hooks] = {}  # by number of the output
        self.retained: Retained = {}
        self.metadata: dict[Any, Any] = {}  # the user's
        self.traceback: list[str] | None = None


class GradContext:
    """What the op behind a backward node knows besides what that has saved; a class for each kind of op:

    `OpRecord` of elementwise ops, `SavePlan` of other operations, `ViewVjp` of views, `WrittenRegion` of writes
    into these, `FunctionCtx` of the user's functions, `CapturedContext` of captured ones, `Refusal` of what
    cannot be differentiated, `HookedContext` around that of a node whose saved tensors hooks of the user have.
    """

    __slots__ = ()


class GradOp(Protocol):
    """What backward nodes of one name have in common."""

    @property
    def backward_name(self) -> str:
        """PyTorch's name, `MulBackward0` for instance."""

    @property
    def node_class(self) -> type[GradNode]:
        """The class of its nodes."""

    def apply_vjp(self, fn: GradNode, grads: list[Gradient | None], /) -> Sequence[Gradient | None]:
        """The gradients of the inputs."""

    def saved_value(self, fn: GradNode, name: str, /) -> Any:
        """What `grad_fn._saved_<name>` shows the user."""


class GradNode:
    """A backward function: how gradients pass from the outputs of one op to its inputs."""

    __slots__ = ("__weakref__", "context", "edges", "extras", "inputs", "mask", "op", "outputs",
                 "saved", "scalars", "seq")  # fmt: skip
    seq: int
    op: GradOp
    edges: Edges  # for each input
    inputs: Specs  # that the gradients must fit
    outputs: Specs
    saved: Any  # what the op kept for backward, each value with its version; None once freed
    extras: Extras | None
    context: GradContext | None  # None at leaves
    scalars: tuple[int, ...]
    mask: int

    def name(self) -> str:
        """The name of the function, `MulBackward0` for instance."""
        return str(self.op.backward_name)

    def _sequence_nr(self) -> int:
        """A number that is larger the later the function was recorded."""
        return self.seq

    @property
    def short_name(self) -> str:
        """The name without its origin, `CopySlices` for `adjit::autograd::CopySlices`."""
        return self.name().rsplit("::", 1)[-1]

    @property
    def next_functions(self) -> tuple[tuple[GradNode | None, int], ...]:
        """The backward functions of the inputs, each with the number of its output."""
        hidden = getattr(self.op, "hidden", ())  # operands that are numbers or masks
        return tuple(
            (None, 0) if edge is None else edge
            for k, edge in enumerate(self.edges)
            if k not in hidden
        )

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for the user's own notes."""
        return self.more().metadata

    def more(self) -> Extras:
        """The extras, made when first asked for."""
        if self.extras is None:
            self.extras = Extras()
        return self.extras

    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(grad_inputs, grad_outputs)` after this function has run."""
        return RemovableHandle(self.more().hooks, hook)

    def register_prehook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(grad_outputs)` before this function runs; what it returns replaces them."""
        return RemovableHandle(self.more().pre_hooks, hook)

    def __repr__(self) -> str:
        return f"<{self.short_name} object at {id(self):#x}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_saved_"):
            return self.op.saved_value(self, name.removeprefix("_saved_"))
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


@functools.cache
def node_class(backward_name: str) -> type[GradNode]:
    """The class of backward nodes of that name, so that `type(grad_fn).__name__` tells the op."""
    made = type(backward_name.rsplit("::", 1)[-1], (GradNode,), {"__slots__": ()})
    return native.recycled(made)


class RemovableHandle:
    """What registering a hook returns; `remove()` takes the hook away again."""

    _ids = itertools.count()

    def __init__(self, hooks: dict[int, Any], hook: Hook | None = None) -> None:
        self.id = next(self._ids)
        self._hooks = hooks
        if hook is not None:
            hooks[self.id] = hook

    def remove(self) -> None:
        """Take the hook away; a second call does nothing."""
        self._hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


# ----- views -----

NO_GRAD, MULTIPLE, IN_FUNCTION = "no_grad", "multiple", "in_function"  # why it is not written into


class View:
    """What a view knows of its origin: the tensor that owns the storage, and when it was made."""

    __slots__ = ("base", "kind", "version")

    def __init__(self, base: TensorBase, version: int, kind: str) -> None:
        self.base, self.version, self.kind = base, version, kind


# ----- tensors -----


class Meta:
    """What few tensors have: a gradient, hooks, an accumulator."""

    __slots__ = ("accumulator", "grad", "hooks", "post_hooks", "retains_grad")

    def __init__(self) -> None:
        self.grad: NewTensor | None = None
        self.hooks: Hooks = {}
        self.post_hooks: Hooks = {}
        self.accumulator: weakref.ref[GradNode] | None = None
        self.retains_grad = False


class TensorBase:
    """A tensor as recording knows it: a handle on a storage, with a place in the graph."""

    if not TYPE_CHECKING:
        __slots__ = ()  # those of `adjit.Tensor` are what is named here
    _storage: Storage
    _spec: Spec
    _offset: int  # in elements
    _version_counter: Storage | Version  # what counts the writes
    _needs_grad: bool
    _edge: Edge | None  # None on leaves
    _view_of: View | None  # None on tensors that own their storage
    _autograd_meta: Meta | None

    if TYPE_CHECKING:

        @property
        def shape(self) -> Size: ...
        @property
        def dtype(self) -> dtype: ...
        @property
        def device(self) -> device: ...
        @property
        def _fn(self) -> GradNode | None: ...
        @property
        def _nr(self) -> int: ...
        def _current_fn(self) -> GradNode | None: ...
        def _accumulator(self) -> GradNode: ...
        def __getattr__(self, name: str) -> Any: ...  # a method that the op table adds


Edge = tuple[GradNode, int]  # a backward node and which of its outputs
Edges = tuple[Edge | None, ...]
Specs = tuple[Spec | None, ...]  # None where there is no tensor
# A backward walk carries bare values where nobody else looks at them: their spec is known where they arrive.
Gradient: TypeAlias = TensorBase | Node


# What recording makes is of the class that the room above has given it (`record.Tensor`), and goes back there.
NewTensor: TypeAlias = Any


def is_bare(g: Gradient | None) -> TypeIs[Node]:
    """Whether a gradient is a bare value."""
    return g.__class__ is Node


def specs_of(fn: GradNode, grads: Sequence[Gradient | None]) -> Specs:
    """The specs of the gradients that arrived at a node: bare ones look like its outputs."""
    pairs = zip(grads, fn.outputs, strict=True)
    return tuple([None if g is None else spec if is_bare(g) else g._spec for g, spec in pairs])
