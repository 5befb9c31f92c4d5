"""The recorders of `record.py` in machine code: what `kernels/fastpath/elementwise.py` works on."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from .. import errors
from ..devices import device
from ..dtypes import dtype
from ..schedule.deferred import large_savers
from ..schedule.jit import native
from ..schedule.planning.recipe import Recipe
from ..schedule.settle import MAX_PENDING, pending, settle
from ..shapes import Size
from ..storage import Storage, Version
from . import cycles, elementwise_record, op_record, record
from .node import MULTIPLE, NO_GRAD, GradNode, LeafKind, Node, Spec, View, attached, counter, leaves
from .op_record import ElementwiseOp, MemoryOfSizes, OpKey, OpRecord
from .other_sizes import FormsContext, forms
from .saved import NUMBERS, SavedPairs, attend
from .signature import Signature
from .state import Sites, State, inferring, modes_used, observers, state, unrecorded

native.register_layout(
    STORAGE=Storage, VERSION=Version, NODE=Node, SPEC=Spec, GRAD=GradNode, VIEW=View, DTYPE=dtype,
    LEAF_KIND=LeafKind, CACHED_CALL_SITE=errors.CachedCallSite, MAX_PENDING=MAX_PENDING,
    OP_RECORD=OpRecord, VJP=op_record.Vjp, KERNEL=op_record.Kernel, PASSED=op_record.PASSED,
    NOTHING=op_record.NOTHING, AS_IS=op_record.AS_IS, AS_TENSOR=op_record.AS_TENSOR,
    FITTED=op_record.FITTED,
)  # fmt: skip
native.recycled(Storage)
native.recycled(View)

# Classes of arguments that equality tells apart.
PLAIN = (str, bool, type(None), type(...), Size, dtype, device)

MOST_OPERANDS = 5  # that machine code records: all sets of those are among the small ints

Key: TypeAlias = Any  # what a recipe is kept under
Fallback = Callable[..., Any]  # what does in Python what machine code does, and all that it leaves

_recorders = native.FastPath("elementwise", "record")
_writers = native.FastPath("inplace", "write")
_adopters = native.FastPath("inplace", "adopt")
_factories = native.FastPath("factories", "constant")
_copiers = native.FastPath("inplace", "copy")
_assigners = native.FastPath("inplace", "assign")
_floods = native.FastPath("inplace", "flood")
_computers = native.FastPath("inplace", "compute")
_replacers = native.FastPath("inplace", "replace")


# ----- what machine code gets to know -----


adopters: list[Fallback] = []  # what writes a new tensor into another one, as soon as that is there


class Runtime(NamedTuple):
    """What all functions in machine code need: classes, the state of the process, and constants."""

    tensor_class: type
    node_class: type
    storage_class: type
    version_class: type
    op_record_class: type
    float_class: type
    int_class: type
    usual_class: type  # of tensors; no class at all where only those of `tensor_classes` count
    tensor_classes: set[type]  # with the subclasses seen so far
    pending: list[Node]
    observers: list[Sites]
    modes_used: list[object]
    inferring: list[None]
    state: State
    inference_counter: Version  # of inference tensors
    sequence: Iterator[int]  # gives the numbers of backward nodes
    numbers: SavedPairs  # what backward nodes save that save numbers alone
    grad_switch: str  # names of switches of the state
    inference_switch: str
    careful_switch: str
    attentive_switch: str
    attend: Callable[[GradNode], None]
    accumulator: str  # the name of a method of tensors
    forms: FormsContext
    none: None
    true: bool
    false: bool
    empty: tuple[()]
    integers: tuple[int, ...]  # from 0 on
    tuple_class: type
    list_class: type
    plain_classes: tuple[type, ...]
    slice_class: type
    view_class: type
    no_kind: str  # kinds of views
    no_grad: str
    multiple: str
    attached: list[bool]
    user_call_site: Callable[[], errors.CallSite | None]
    zero: str  # what stand for the floats in signatures: they are equal
    minus_zero: str
    large_savers: list[weakref.ref[GradNode]]
    unrecorded: list[None]
    leaves: list[LeafKind]
    cached_call_sites: list[errors.CachedCallSite]
    adopters: list[Fallback]
    out: str
    settle: Callable[[], None]


@functools.cache
def runtime() -> Runtime:
    """What all functions in machine code need, once."""
    if native.is_supported:
        cycles.watch()
    return Runtime(
        tensor_class=record.Tensor,
        node_class=Node,
        storage_class=Storage,
        version_class=Version,
        op_record_class=OpRecord,
        float_class=float,
        int_class=int,
        usual_class=record.Tensor,
        tensor_classes=record.tensor_classes,
        pending=pending,
        observers=observers,
        modes_used=modes_used,
        inferring=inferring,
        state=state,
        inference_counter=record.INFERENCE,
        sequence=counter,
        numbers=NUMBERS,
        grad_switch=native.named(State, "grad"),
        inference_switch=native.named(State, "inference"),
        careful_switch=native.named(State, "careful"),
        attentive_switch=native.named(State, "attentive"),
        attend=attend,
        accumulator=native.named(record.Tensor, "_accumulator"),
        forms=forms,
        none=None,
        true=True,
        false=False,
        empty=(),
        integers=tuple(range((1 << MOST_OPERANDS) + 1)),
        tuple_class=tuple,
        list_class=list,
        plain_classes=PLAIN,
        slice_class=slice,
        view_class=View,
        no_kind="",
        no_grad=NO_GRAD,
        multiple=MULTIPLE,
        attached=attached,
        user_call_site=errors.user_call_site,
        zero="0.0",
        minus_zero="-0.0",
        large_savers=large_savers,
        unrecorded=unrecorded,
        leaves=leaves,
        cached_call_sites=errors.cached_call_sites,
        adopters=adopters,
        out="out",
        settle=settle,
    )


class BasicContext(NamedTuple):
    """What functions get that need nothing of their own."""

    runtime: Runtime
    fallback: Fallback


class RecorderContext(NamedTuple):
    """What records an op on one or two operands, or writes its result over the first."""

    runtime: Runtime
    arity: int
    op_records: dict[OpKey, OpRecord]
    sizes: MemoryOfSizes
    node_class: type[GradNode]
    op: ElementwiseOp
    saves: dict[int, tuple[int, ...]]
    fallback: Fallback
    adopt: Fallback | None = None  # what writes a result into a part of a memory, if any does


class GeneralContext(NamedTuple):
    """What records any elementwise op."""

    runtime: Runtime
    fallback: Fallback
    op_records: str  # names of attributes of an op
    sizes: str
    saves: str
    node_class: str
    chosen: Mapping[Signature, object]  # by what arguments look like, what a `Choice` made of them
    op: object = None  # that is called, with how many operands, at most how many positions, and its attributes
    arity: int = 0
    most: int = 0
    attributes: tuple[str, ...] = ()
    defaults: tuple[object, ...] = ()


class FactoryContext(NamedTuple):
    """What makes tensors of Python numbers."""

    runtime: Runtime
    fallback: Fallback
    of_numbers: Mapping[Key, Recipe]
    of_lists: Mapping[Key, object]
    dtype: str  # names of arguments
    requires_grad: str


class AdoptContext(NamedTuple):
    """What writes a new tensor into another one."""

    runtime: Runtime
    fallback: Fallback
    writes: Mapping[Key, Recipe]  # what writes regions
    graded_assignments: Mapping[Key, object]  # and those of tensors in a graph
    slices_op: object  # of the backward nodes of these


class CopyContext(NamedTuple):
    """What copies a tensor into another one."""

    runtime: Runtime
    fallback: Fallback
    assignments: Mapping[Key, object]
    graded_assignments: Mapping[Key, object]
    slices_op: object
    make: Fallback  # what writes all of a tensor in a graph: the copy
    adopt: Fallback


class AssignContext(NamedTuple):
    """What writes into a part of a tensor that is named by a key."""

    runtime: Runtime
    fallback: Fallback
    cached: Mapping[Signature, object]  # the views that keys give
    assignments: Mapping[Key, object]
    number_assignments: Mapping[Key, object]
    graded_assignments: Mapping[Key, object]
    slices_op: object  # of the backward nodes of those
    copy: Fallback  # what writes all of a tensor
    fill: Fallback


class FloodContext(NamedTuple):
    """What writes a number into every place."""

    runtime: Runtime
    fallback: Fallback
    recipes: Mapping[Key, Recipe]  # of numbers
    number: float | None  # None where it is an argument


class ComputeContext(NamedTuple):
    """What writes the result of any function into its first argument."""

    runtime: Runtime
    fallback: Fallback
    make: Fallback
    adopt: Fallback


class ReplaceContext(NamedTuple):
    """What gives several tensors new values at once."""

    runtime: Runtime
    fallback: Fallback


native.register_layout(
    MOST_OPERANDS=MOST_OPERANDS, RUNTIME=Runtime, BASIC=BasicContext, RECORDER=RecorderContext,
    GENERAL=GeneralContext, FACTORY=FactoryContext, ADOPT=AdoptContext, COPY=CopyContext,
    ASSIGN=AssignContext, FLOOD=FloodContext,
    COMPUTE=ComputeContext, REPLACE=ReplaceContext,
)  # fmt: skip


# ----- functions in machine code -----


def basic(module: str, name: str, fallback: Fallback) -> Fallback:
    """A function in machine code that needs nothing of its own; `fallback` is the same in Python."""
    return native.FastPath(module, name).function(fallback, BasicContext(runtime(), fallback))


def compiled(op: ElementwiseOp, fallback: Fallback) -> Fallback:
    """A recorder of `op` on one or two tensors; `fallback` is the same in Python."""
    return _recorders.function(fallback, _context(op, fallback))


def writing(op: ElementwiseOp, fallback: Fallback, adopt: Fallback) -> Fallback:
    """A method that writes the result of `op` on one or two operands into the first, by `adopt` if that is a
    part of a memory; `fallback` is the same in Python.
    """
    return _writers.function(fallback, lambda: _context(op, fallback)._replace(adopt=adopt))


@functools.cache
def elementwise_recorder() -> Fallback:
    """`elementwise` of `elementwise_record.py`, compiled."""
    fallback = elementwise_record.elementwise
    made: Fallback = native.FastPath("general", "elementwise").function(
        fallback, _general_context(fallback, {})
    )
    return made


def computing(make: Fallback, fallback: Fallback, adopt: Fallback) -> Fallback:
    """A method that writes what `make` gives, called like the method, into its first argument."""
    return _computers.function(fallback, lambda: ComputeContext(runtime(), fallback, make, adopt))


Decorator = Callable[[Fallback], Fallback]


def adopting(
    writes: Mapping[Key, Recipe], graded: Mapping[Key, object], slices_op: object
) -> Decorator:
    """`inplace.adopt`, given the recipes that write regions, and how they are written in a graph."""
    return lambda fallback: _adopters.function(
        fallback, lambda: AdoptContext(runtime(), fallback, writes, graded, slices_op)
    )


def constants(
    recipes: Mapping[Key, Recipe], lists: Mapping[Key, object] | None = None
) -> Decorator:
    """A function that makes tensors of numbers, given the recipes of floating ones: by the class of the
    number, or, where there is a tensor to be like, by its spec; and perhaps of lists, given what is
    known of those: by the dtype that is asked for, then by their lengths.
    """
    known = {} if lists is None else lists
    return lambda fallback: _factories.function(
        fallback, FactoryContext(runtime(), fallback, recipes, known, "dtype", "requires_grad")
    )


def copying(
    assignments: Mapping[Key, object],
    graded: Mapping[Key, object],
    slices_op: object,
    whole: Callable[[], tuple[Fallback, Fallback]],
) -> Decorator:
    """The method `copy_`, given how specs become parts of others, also with backward nodes of an op, and what
    makes a copy of all and has it adopted."""
    return lambda fallback: _copiers.function(
        fallback, lambda: CopyContext(runtime(), fallback, assignments, graded, slices_op, *whole())
    )


def assigning(
    views: Fallback,
    assignments: Mapping[Key, object],
    numbers: Mapping[Key, object],
    graded: Mapping[Key, object],
    slices_op: object,
    whole: Callable[[], tuple[Fallback, Fallback]],
    fallback: Fallback,
) -> Fallback:
    """The method `__setitem__`, given the one that makes views by keys, how specs and numbers become parts of
    others, also with backward nodes of an op, and what copies and fills all of a tensor."""
    if not native.is_supported:
        return fallback
    cached = views.context.cached  # type: ignore[attr-defined]
    made: Fallback = _assigners.function(
        fallback,
        lambda: AssignContext(
            runtime(), fallback, cached, assignments, numbers, graded, slices_op, *whole()
        ),
    )
    return made


def flooding(recipes: Mapping[Key, Recipe], number: float | None) -> Decorator:
    """A method that writes a number into every place, or its argument where that is None; `recipes` are
    those of `constants`.
    """
    return lambda fallback: _floods.function(
        fallback, lambda: FloodContext(runtime(), fallback, recipes, number)
    )


def replacing(fallback: Fallback) -> Fallback:
    """`write.replace`, compiled."""
    return _replacers.function(fallback, ReplaceContext(runtime(), fallback))


_choosers = native.FastPath("general", "choose")


def choosing(chosen: Mapping[Signature, object], fallback: Fallback) -> Fallback:
    """A method that calls a `Choice`, given what that has chosen; `fallback` is the same in Python."""
    return _choosers.function(fallback, _general_context(fallback, chosen))


def compile_choices(
    choice: native.Native, chosen: Mapping[Signature, object], fallback: Fallback
) -> None:
    """Have calls of a `Choice` that came before go to machine code; `fallback` is the same in Python."""
    _choosers.bind(choice, _general_context(fallback, chosen))


# Names of attributes of an op, which machine code looks up.
_OP_RECORDS, _SIZES, _SAVES, _NODE_CLASS = "op_records", "sizes", "saves", "node_class"


def _general_context(fallback: Fallback, chosen: Mapping[Signature, object]) -> GeneralContext:
    return GeneralContext(runtime(), fallback, _OP_RECORDS, _SIZES, _SAVES, _NODE_CLASS, chosen)


_attributed = native.FastPath("general", "call_with_attributes")


def calling(
    op: ElementwiseOp, defaults: Mapping[str, object], most: int, fallback: Fallback
) -> Fallback:
    """A method that calls an op with attributes, of which some may stand behind the operands, `most` arguments
    all together; `fallback` is the same in Python.
    """
    return _attributed.function(fallback, _call_context(op, defaults, most, fallback))


def compile_attributed(
    made: native.Native, op: ElementwiseOp, defaults: Mapping[str, object], most: int, fallback: Fallback,
) -> None:  # fmt: skip
    """Have calls of `made`, an op with attributes, go to machine code; `fallback` does the same."""
    _attributed.bind(made, _call_context(op, defaults, most, fallback))


def _call_context(
    op: ElementwiseOp, defaults: Mapping[str, object], most: int, fallback: Fallback
) -> GeneralContext:
    names = tuple(map(sys.intern, op.attributes))
    return _general_context(fallback, {})._replace(
        op=op, arity=op.arity, most=most, attributes=names, defaults=tuple(map(defaults.get, names))
    )


def compile_calls(made: native.Native, op: ElementwiseOp, fallback: Fallback) -> None:
    """Have calls of `made`, an op on one or two tensors, go to the recorder; `fallback` does the same."""
    _recorders.bind(made, _context(op, fallback))


def _context(op: ElementwiseOp, fallback: Fallback) -> RecorderContext:
    op_records, saves, node_class = (
        getattr(op, name) for name in (_OP_RECORDS, _SAVES, _NODE_CLASS)
    )
    return RecorderContext(
        runtime(), op.arity, op_records, op.sizes, node_class, op, saves, fallback
    )
