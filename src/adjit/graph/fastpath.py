"""The recorders of `record.py` in machine code: what `kernels/fastpath/elementwise.py` works on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any

from .. import errors
from ..devices import device
from ..dtypes import dtype
from ..schedule.deferred import savers
from ..schedule.jit import native
from ..schedule.planning.recipe import Recipe
from ..schedule.settle import MAX_PENDING, tape
from ..shapes import Size
from ..storage import Storage, Version
from . import cycles, elementwise_record, record
from .node import MULTIPLE, NO_GRAD, GradNode, Node, Spec, View, attached, counter, leaves
from .saved import NUMBERS
from .state import modes_used, state, unrecorded, watchers

native.know(
    STORAGE=Storage, VERSION=Version, NODE=Node, SPEC=Spec, GRAD=GradNode, VIEW=View, DTYPE=dtype
)
native.constants["MAX_PENDING"] = MAX_PENDING
native.recycled(Storage)
native.recycled(View)

# Classes of arguments that equality tells apart.
PLAIN = (str, bool, type(None), type(...), Size, dtype, device)

_recorders = native.Family("elementwise", "record")
_writers = native.Family("inplace", "write")
_adopters = native.Family("inplace", "adopt")
_constants = native.Family("factories", "constant")
_copiers = native.Family("inplace", "copy")
_floods = native.Family("inplace", "flood")
_computers = native.Family("inplace", "compute")


@functools.cache
def shared() -> tuple[Any, ...]:
    """What all compiled functions need, in the order of the names in `kernels/fastpath/tensors.py`."""
    if native.is_supported:
        cycles.watch()
    return (
        record.Tensor, Node, Storage, Version, Recipe, float, int, record.tensor_classes, tape,
        watchers, modes_used, state, record.INFERENCE, counter, NUMBERS,
        "grad", "inference", "anomaly", "accumulator", None, True, False, (), tuple(range(33)),
        tuple, list, PLAIN, slice, View, "", NO_GRAD, MULTIPLE, attached, errors.user_site,
        "0.0", "-0.0", savers, unrecorded, leaves,
        errors.kept_sites,
    )  # fmt: skip


def compiled(op: Any, twin: Callable[..., Any]) -> Any:
    """A recorder of `op` on one or two tensors; `twin` is the same in Python."""
    return _recorders.function(twin, _context(op, twin))


def writing(op: Any, twin: Callable[..., Any]) -> Any:
    """A method that writes the result of `op` on one or two operands into the first; `twin` is the
    same in Python."""
    return _writers.function(twin, (*_context(op, twin), "over"))


@functools.cache
def elementwise_recorder() -> Callable[..., Any]:
    """`record.elementwise`, compiled."""
    twin = elementwise_record.elementwise
    made: Callable[..., Any] = native.Family("general", "elementwise").function(
        twin, (shared(), twin, "recipes", "saves", "node_class", "over")
    )
    return made


def computing(make: Callable[..., Any], twin: Callable[..., Any], adopt: Any) -> Any:
    """A method that writes what `make` gives, called like the method, into its first argument."""
    return _computers.function(twin, lambda: (shared(), twin, make, adopt))


Decorator = Callable[[Callable[..., Any]], Any]  # of the twin


def adopting(writes: dict[Any, Recipe]) -> Decorator:
    """`inplace.adopt`, given the recipes that write regions."""
    return _decorator(_adopters, writes)


def constants(recipes: dict[Any, Recipe], lists: dict[Any, Any] | None = None) -> Decorator:
    """A function that makes tensors of numbers, given the recipes of floating ones: by the class of the
    number, or, where there is a tensor to be like, by its spec; and perhaps of lists, given what is
    known of those: by the dtype that is asked for, then by their lengths."""
    known = {} if lists is None else lists
    return _decorator(_constants, recipes, known, "dtype", "requires_grad")


def copying(writes: dict[Any, Recipe], conversions: dict[Any, Recipe]) -> Decorator:
    """The method `copy_`, given the recipes that write regions and those that convert."""
    return _decorator(_copiers, writes, conversions)


def flooding(recipes: dict[Any, Recipe], number: float | None) -> Decorator:
    """A method that writes a number into every place, or its argument where that is None; `recipes` are
    those of `constants`."""
    return _decorator(_floods, recipes, number)


def _decorator(family: native.Family, *context: Any) -> Decorator:
    return lambda twin: family.function(twin, lambda: (shared(), twin, *context))


_choosers = native.Family("general", "choose")


def choosing(choice: Any, twin: Callable[..., Any]) -> Any:
    """A method that calls a `Choice`; `twin` is the same in Python."""
    return _choosers.function(twin, _choice_context(choice, twin))


def compile_choices(choice: Any) -> None:
    """Have calls of a `Choice` that came before go to machine code."""
    fallback = MethodType(type(choice).__call__, choice)
    _choosers.serve(choice, _choice_context(choice, fallback))


def _choice_context(choice: Any, fallback: Callable[..., Any]) -> tuple[Any, ...]:
    return shared(), fallback, "recipes", "saves", "node_class", "over", choice.chosen


def compile_calls(op: Any) -> None:
    """Have calls of an elementwise op on one or two tensors go to the recorder."""
    _recorders.serve(op, _context(op, MethodType(type(op).__call__, op)))


def _context(op: Any, fallback: Callable[..., Any]) -> tuple[Any, ...]:
    return shared(), op.arity, op.recipes, op.node_class, op, op.saves, fallback
