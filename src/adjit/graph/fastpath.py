"""The recorders of `record.py` in machine code: what `kernels/fastpath/elementwise.py` works on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any, NamedTuple

from .. import errors
from ..devices import device
from ..dtypes import dtype
from ..schedule.deferred import savers
from ..schedule.jit import native
from ..schedule.planning.recipe import OVER, PICKS, Recipe
from ..schedule.settle import MAX_PENDING, pending
from ..shapes import Size
from ..storage import Storage, Version
from . import cycles, elementwise_record, record
from . import elementwise_vjp as vjp
from .node import MULTIPLE, NO_GRAD, GradNode, LeafKind, Node, Spec, View, attached, counter, leaves
from .saved import NUMBERS
from .state import State, modes_used, state, unrecorded, watchers

native.know(
    STORAGE=Storage, VERSION=Version, NODE=Node, SPEC=Spec, GRAD=GradNode, VIEW=View, DTYPE=dtype,
    LEAF_KIND=LeafKind, KEPT_SITE=errors.KeptSite, MAX_PENDING=MAX_PENDING,
    VJP=vjp.Vjp, KERNEL=vjp.Kernel, PASSED=vjp.PASSED, NOTHING=vjp.NOTHING, AS_IS=vjp.AS_IS,
    AS_TENSOR=vjp.AS_TENSOR, FITTED=vjp.FITTED,
)  # fmt: skip
native.recycled(Storage)
native.recycled(View)

# Classes of arguments that equality tells apart.
PLAIN = (str, bool, type(None), type(...), Size, dtype, device)

MOST_OPERANDS = 5  # that machine code records: all sets of those are among the small ints

Twin = Callable[..., Any]  # what does in Python what machine code does, and all that it leaves

_recorders = native.Family("elementwise", "record")
_writers = native.Family("inplace", "write")
_adopters = native.Family("inplace", "adopt")
_factories = native.Family("factories", "constant")
_copiers = native.Family("inplace", "copy")
_floods = native.Family("inplace", "flood")
_computers = native.Family("inplace", "compute")
_replacers = native.Family("inplace", "replace")


# ----- what machine code gets to know -----


class Runtime(NamedTuple):
    """What all functions in machine code need: classes, the state of the process, and constants."""

    tensor_class: type
    node_class: type
    storage_class: type
    version_class: type
    recipe_class: type
    float_class: type
    int_class: type
    tensor_classes: set[Any]  # with the subclasses seen so far
    pending: list[Any]
    watchers: list[Any]
    modes_used: list[bool]
    state: State
    inference_counter: Version  # of inference tensors
    sequence: Any  # gives the numbers of backward nodes
    numbers: Any  # what backward nodes save that save numbers alone
    grad_switch: str  # names of switches of the state
    inference_switch: str
    careful_switch: str
    accumulator: str  # the name of a method of tensors
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
    user_site: Callable[[], Any]
    zero: str  # what stand for the floats in signatures: they are equal
    minus_zero: str
    savers: list[Any]
    unrecorded: list[None]
    leaves: list[LeafKind]
    kept_sites: list[errors.KeptSite]


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
        recipe_class=Recipe,
        float_class=float,
        int_class=int,
        tensor_classes=record.tensor_classes,
        pending=pending,
        watchers=watchers,
        modes_used=modes_used,
        state=state,
        inference_counter=record.INFERENCE,
        sequence=counter,
        numbers=NUMBERS,
        grad_switch=native.named(State, "grad"),
        inference_switch=native.named(State, "inference"),
        careful_switch=native.named(State, "careful"),
        accumulator=native.named(record.Tensor, "accumulator"),
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
        user_site=errors.user_site,
        zero="0.0",
        minus_zero="-0.0",
        savers=savers,
        unrecorded=unrecorded,
        leaves=leaves,
        kept_sites=errors.kept_sites,
    )


class BasicContext(NamedTuple):
    """What functions get that need nothing of their own."""

    runtime: Runtime
    twin: Twin


class RecorderContext(NamedTuple):
    """What records an op on one or two operands, or writes its result over the first."""

    runtime: Runtime
    arity: int
    recipes: dict[Any, Recipe]
    node_class: type[GradNode]
    op: Any
    saves: dict[int, tuple[int, ...]]
    twin: Twin
    over: str  # under which a recipe has the one that may write over its first operand


class GeneralContext(NamedTuple):
    """What records any elementwise op."""

    runtime: Runtime
    twin: Twin
    recipes: str  # names of attributes of an op
    saves: str
    node_class: str
    over: str  # as above
    chosen: dict[Any, Any]  # by what arguments look like, what a `Choice` made of them


class FactoryContext(NamedTuple):
    """What makes tensors of Python numbers."""

    runtime: Runtime
    twin: Twin
    of_numbers: dict[Any, Recipe]
    of_lists: dict[Any, Any]
    dtype: str  # names of arguments
    requires_grad: str


class AdoptContext(NamedTuple):
    """What writes a new tensor into another one."""

    runtime: Runtime
    twin: Twin
    writes: dict[Any, Recipe]  # what writes regions


class CopyContext(NamedTuple):
    """What copies a tensor into another one."""

    runtime: Runtime
    twin: Twin
    writes: dict[Any, Recipe]  # what writes regions
    conversions: dict[Any, Recipe]


class FloodContext(NamedTuple):
    """What writes a number into every place."""

    runtime: Runtime
    twin: Twin
    recipes: dict[Any, Recipe]  # of numbers
    number: float | None  # None where it is an argument


class ComputeContext(NamedTuple):
    """What writes the result of any function into its first argument."""

    runtime: Runtime
    twin: Twin
    make: Callable[..., Any]
    adopt: Callable[..., Any]


class ReplaceContext(NamedTuple):
    """What gives several tensors new values at once."""

    runtime: Runtime
    twin: Twin
    picks: str  # under which a recipe has those that pick its results


native.know(
    MOST_OPERANDS=MOST_OPERANDS, RUNTIME=Runtime, BASIC=BasicContext, RECORDER=RecorderContext,
    GENERAL=GeneralContext, FACTORY=FactoryContext, ADOPT=AdoptContext, COPY=CopyContext, FLOOD=FloodContext,
    COMPUTE=ComputeContext, REPLACE=ReplaceContext,
)  # fmt: skip


# ----- functions in machine code -----


def basic(module: str, name: str, twin: Twin) -> Any:
    """A function of a module in machine code that needs nothing of its own; `twin` is the same in Python."""
    return native.Family(module, name).function(twin, BasicContext(runtime(), twin))


def compiled(op: Any, twin: Twin) -> Any:
    """A recorder of `op` on one or two tensors; `twin` is the same in Python."""
    return _recorders.function(twin, _context(op, twin))


def writing(op: Any, twin: Twin) -> Any:
    """A method that writes the result of `op` on one or two operands into the first; `twin` is the
    same in Python.
    """
    return _writers.function(twin, _context(op, twin))


@functools.cache
def elementwise_recorder() -> Callable[..., Any]:
    """`record.elementwise`, compiled."""
    twin = elementwise_record.elementwise
    made: Callable[..., Any] = native.Family("general", "elementwise").function(
        twin, _general_context(twin, {})
    )
    return made


def computing(make: Callable[..., Any], twin: Twin, adopt: Any) -> Any:
    """A method that writes what `make` gives, called like the method, into its first argument."""
    return _computers.function(twin, lambda: ComputeContext(runtime(), twin, make, adopt))


Decorator = Callable[[Twin], Any]


def adopting(writes: dict[Any, Recipe]) -> Decorator:
    """`inplace.adopt`, given the recipes that write regions."""
    return lambda twin: _adopters.function(twin, lambda: AdoptContext(runtime(), twin, writes))


def constants(recipes: dict[Any, Recipe], lists: dict[Any, Any] | None = None) -> Decorator:
    """A function that makes tensors of numbers, given the recipes of floating ones: by the class of the
    number, or, where there is a tensor to be like, by its spec; and perhaps of lists, given what is
    known of those: by the dtype that is asked for, then by their lengths.
    """
    known = {} if lists is None else lists
    return lambda twin: _factories.function(
        twin, FactoryContext(runtime(), twin, recipes, known, "dtype", "requires_grad")
    )


def copying(writes: dict[Any, Recipe], conversions: dict[Any, Recipe]) -> Decorator:
    """The method `copy_`, given the recipes that write regions and those that convert."""
    return lambda twin: _copiers.function(
        twin, lambda: CopyContext(runtime(), twin, writes, conversions)
    )


def flooding(recipes: dict[Any, Recipe], number: float | None) -> Decorator:
    """A method that writes a number into every place, or its argument where that is None; `recipes` are
    those of `constants`.
    """
    return lambda twin: _floods.function(
        twin, lambda: FloodContext(runtime(), twin, recipes, number)
    )


def replacing(twin: Twin) -> Any:
    """`write.replace`, compiled."""
    return _replacers.function(twin, ReplaceContext(runtime(), twin, PICKS))


_choosers = native.Family("general", "choose")


def choosing(choice: Any, twin: Twin) -> Any:
    """A method that calls a `Choice`; `twin` is the same in Python."""
    return _choosers.function(twin, _general_context(twin, choice.chosen))


def compile_choices(choice: Any) -> None:
    """Have calls of a `Choice` that came before go to machine code."""
    fallback = MethodType(type(choice).__call__, choice)
    _choosers.serve(choice, _general_context(fallback, choice.chosen))


# Names of attributes of an op, which machine code looks up.
_RECIPES, _SAVES, _NODE_CLASS = "recipes", "saves", "node_class"


def _general_context(twin: Twin, chosen: dict[Any, Any]) -> GeneralContext:
    return GeneralContext(runtime(), twin, _RECIPES, _SAVES, _NODE_CLASS, OVER, chosen)


def compile_calls(op: Any) -> None:
    """Have calls of an elementwise op on one or two tensors go to the recorder."""
    _recorders.serve(op, _context(op, MethodType(type(op).__call__, op)))


def _context(op: Any, twin: Twin) -> RecorderContext:
    recipes, saves, node_class = (getattr(op, name) for name in (_RECIPES, _SAVES, _NODE_CLASS))
    return RecorderContext(runtime(), op.arity, recipes, node_class, op, saves, twin, OVER)
