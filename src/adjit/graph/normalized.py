"""Functions in front of ops: they find the arguments of one, and are passed by where such a call came before.

What they check and find follows from specs and plain values, and so does what the op records then.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar, cast

from .. import errors
from ..dtypes import on_default_change
from ..unknown import inquiries
from . import wrong_types
from .calls import Calls, short
from .generators import by_generator
from .levels import level_of, tracers
from .node import Spec, TensorBase
from .operation import (
    KnownCalls,
    NormalizedCall,
    Operation,
    OperationCall,
    as_new,
    calls_of,
    keep_call,
    resized,
)
from .other_sizes import OtherSizes, form_of
from .record import needs_grad, tensor_classes
from .registry import registry
from .signature import Argument, Arguments, NamedArguments, Signature, signature_of
from .state import record_gradients
from .templates import Unresizable
from .trace import MAX_TRACES, Results, Trace, usable

_F = TypeVar("_F")

MOST_STRANGERS = 256  # of one function


def normalizes(function: _F, *, first: bool = False, in_order: bool = False) -> _F:
    """Mark a function of tensors and plain values that finds the arguments of an op, and returns `op.on` them:
    its own tensors in their order (by name, if the op's is another), and what follows from their specs and
    the plain values. (It may return any result instead.) A call like one that came before is recorded
    without the function. `in_order` promises that order, so that a tensor may come twice.

    Checks and conversions of arguments took longer than recording: `gather` 2.6 us for 0.8.
    """
    known: KnownCalls = {}
    sizes = OtherSizes()
    run = cast(Callable[..., Results], function)
    # What came first where the result was no call of an op: there is nothing to learn then, each time.
    strangers: set[Spec | None] = set()
    has_flags = bool(wrong_types.flags(run))

    @functools.wraps(run)
    def fallback(*args: Argument, **kwargs: Argument) -> Results:
        if has_flags:
            wrong_types.check_flags(run, run.__name__, args, kwargs)
        try:
            if drawn := by_generator(made, args, kwargs):
                return drawn[0]
            spec = args[0]._spec if args and args[0].__class__ in tensor_classes else None
            is_usual = not tracers or level_of((*args, *kwargs.values())) is None
            may_learn = is_usual and spec not in strangers
            if may_learn and learn_call(known, sizes, run, args, kwargs):
                return made(*args, **kwargs)
            found = run(*args, **kwargs)
            if found.__class__ is not NormalizedCall:
                if len(strangers) >= MOST_STRANGERS:
                    strangers.clear()
                strangers.add(spec)
                return found
            if is_usual:
                note_call(known, sizes, args, kwargs, found, in_order)
            out = found.op(*found.args, **found.kwargs)
        except Exception:
            if said := wrong_types.tell(run, run.__name__, args, kwargs):
                return said[0]
            raise
        return out[0] if first else out

    remembered = Remembered(known, known, run, first, sizes, sizes)
    made = short(remembered.all_calls, fallback, first=first)
    remembering[made] = remembered
    on_default_change(remembered.forget)
    return cast(_F, made)


normalizes_first = functools.partial(normalizes, first=True)  # of the results of the op

normalizes_in_order = functools.partial(normalizes, in_order=True)


class Remembered(NamedTuple):
    """What is known of a function that is passed by: its calls, those whose results have no history, itself,
    and whether only the first of several results is wanted of `calls`."""

    calls: KnownCalls
    plain_calls: KnownCalls
    function: Callable[..., Results]
    is_first: bool
    sizes: OtherSizes
    plain_sizes: OtherSizes

    @property
    def all_calls(self) -> Calls:
        """The calls that are known, and those that templates make."""
        return calls_of(self.calls, self.sizes)

    @property
    def all_plain_calls(self) -> Calls:
        """Those whose results have no history."""
        return calls_of(self.plain_calls, self.plain_sizes)

    def forget(self) -> None:
        """Have all calls run the function."""
        self.calls.clear()
        self.plain_calls.clear()
        self.sizes.clear()
        self.plain_sizes.clear()


remembering: dict[Callable[..., Results], Remembered] = {}


def forget_calls() -> None:
    """Forget what calls recorded: something has changed that is none of their arguments."""
    for op in registry.values():
        if isinstance(op, Operation):
            op.calls.clear()
            op.sizes.clear()
    for known in remembering.values():
        known.forget()


def normalized_by(function: Callable[..., Results], *args: Argument, **kwargs: Argument) -> Results:
    """What one that finds the arguments of an op passes on for another one."""
    return remembering[function].function(*args, **kwargs)


def learn_call(
    known: KnownCalls, sizes: OtherSizes, function: Callable[..., Results], args: Arguments,
    kwargs: NamedArguments, *, is_graded: bool = False,
) -> bool:  # fmt: skip
    """Whether such a call is known now, which comes for the first time, made by a template of those that differ
    in numbers alone. Of one that `is_graded` the function is to know that gradients are recorded."""
    if inquiries or not usable():
        return False
    tensors: list[TensorBase] = []
    key = signature_of(args, kwargs, tensors)
    try:
        if key in known:
            return False
    except TypeError:  # an argument that cannot be in a key
        return False
    calls: list[NormalizedCall] = []

    wanted = [needs_grad(t) for t in tensors]

    def body(args: Arguments, kwargs: NamedArguments, operands: Sequence[TensorBase]) -> Results:
        told, before = errors.warnings_given, record_gradients(is_graded)
        try:
            for t, is_wanted in zip(operands, wanted, strict=True):
                t._needs_grad = is_wanted and is_graded
            found = function(*args, **kwargs)
        finally:
            record_gradients(before)
        if told != errors.warnings_given:
            raise Unresizable("it warns")
        if found.__class__ is not NormalizedCall or _passed_on(found, operands) is None:
            raise Unresizable("it is no call of an op on these tensors")
        calls.append(found)
        return as_new(found.op.function(*found.args, **found.kwargs), found.args)

    def finish(
        trace: Trace, args: Arguments, kwargs: NamedArguments, operands: int
    ) -> OperationCall:
        found = calls.pop()
        return found.op.with_kin(trace, found.args, found.kwargs, operands)

    said = form_of(key)
    made = resized(sizes, said, args, kwargs, body, finish)
    if made is None:
        return False
    assert made.op is not None
    keep_call(known, sizes, key, said, made, made.op.name)
    # Else the op learns how the results get their history.
    return not any(wanted) or made.op.knows_saves(made, tensors)


def _passed_on(found: NormalizedCall, tensors: Sequence[TensorBase]) -> Signature | None:
    """The signature of a call that was found for these tensors, if they are its own in their order."""
    operands: list[TensorBase] = []
    own = signature_of(found.args, found.kwargs, operands)
    if len(tensors) != len(operands) or any(map(operator.is_not, tensors, operands)):
        return None
    return own


def note_call(
    known: KnownCalls,
    sizes: OtherSizes,
    args: Arguments,
    kwargs: NamedArguments,
    found: NormalizedCall,
    in_order: bool = False,
) -> None:
    """Have such a call recorded as one of the op, if its tensors are the same."""
    if inquiries:
        return  # unknown numbers are in no key
    tensors: list[TensorBase] = []
    key = signature_of(args, kwargs, tensors)
    own = _passed_on(found, tensors)
    if own is None or (not in_order and len(set(map(id, tensors))) < len(tensors)):
        return  # if one comes twice, which one is which could not be told
    with contextlib.suppress(TypeError):  # an argument that cannot be in a key
        learned = known.get(key)
        if learned is not None and learned.kin is not None:
            known[key] = found.op.calls.setdefault(own, learned)  # which learns what to save
            return
        if len(known) >= MAX_TRACES:
            known.clear()
        call = known[key] = found.op._call(own)
        sizes.keep(known, key, found.op.name, is_made=call.kin is not None)
