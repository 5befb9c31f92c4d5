"""Functions made of other operations: where nothing is differentiated, a call like one before is one replay.

Such a function records what its parts record, each a call of its own, with checks and geometry in between. With
a history they have to be these calls. Without one what was recorded for specs and plain values is a trace,
which machine code records again on other tensors, as that of an op.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, cast

from .. import errors
from ..dtypes import on_default_change
from ..schedule.settle import settle
from . import wrong_types
from .calls import short
from .generators import by_generator
from .levels import level_of, tracers
from .links import links_of
from .node import TensorBase
from .normalized import Remembered, learn_call, note_call, remembering
from .operation import (
    NormalizedCall,
    OperationCall,
    as_new,
    call_alone,
    keep_call,
    resized,
)
from .other_sizes import OtherSizes, form_of
from .record import is_tensor, needs_grad
from .signature import Argument, Arguments, NamedArguments, all_exchanged, signature_of
from .state import state
from .trace import MAX_TRACES, SEEN_ONCE, Results, Trace, usable

_F = TypeVar("_F")


def composed(function: _F) -> _F:
    """Mark a function whose results follow from the specs of its tensors and from plain values, whatever it
    calls; which way it goes may depend on whether gradients are recorded. Calls that write into operands, warn,
    look at values or give views are noticed, and run every time.

    Where they are it may return `op.on` as one that `normalizes`, but for `first` of several results.
    """
    run = cast(Callable[..., Results], function)
    composition = _Composition(run)
    has_flags = bool(wrong_types.flags(run))

    @functools.wraps(run)
    def fallback(*args: Argument, **kwargs: Argument) -> Results:
        if has_flags:
            wrong_types.check_flags(run, run.__name__, args, kwargs)
        try:
            return composition.called(args, kwargs)
        except Exception:
            if said := wrong_types.tell(run, run.__name__, args, kwargs):
                return said[0]
            raise

    def with_history(*args: Argument, **kwargs: Argument) -> Results:
        if has_flags:
            wrong_types.check_flags(run, run.__name__, args, kwargs)
        try:
            return composition.recorded(args, kwargs)
        except Exception:
            if said := wrong_types.tell(run, run.__name__, args, kwargs):
                return said[0]
            raise

    known = composition.known
    made = composition.short = short(
        known.all_calls,
        fallback,
        plain=known.all_plain_calls,
        with_history=with_history,
        first=True,
    )
    remembering[made] = known
    on_default_change(known.forget)
    return cast(_F, made)


class _Composition:
    """A composed function where machine code does not know a call."""

    __slots__ = ("finds_op", "known", "short")
    short: Callable[..., Results]  # what machine code calls

    def __init__(self, run: Callable[..., Results]) -> None:
        self.known = Remembered({}, {}, run, True, OtherSizes(), OtherSizes())
        self.finds_op = False  # whether it returned an op the last time

    def called(self, args: Arguments, kwargs: NamedArguments) -> Results:
        """What the function gives."""
        known = self.known
        if drawn := by_generator(self.short, args, kwargs):
            return drawn[0]
        traced = bool(tracers) and level_of((*args, *kwargs.values())) is not None
        if traced or state.levels or state.attentive or not usable():
            return _first_of(known.function(*args, **kwargs))
        if state.grad and (_is_wanted(args) or _is_wanted(kwargs.values())):
            return self.recorded(args, kwargs)
        operands: list[TensorBase] = []
        signature = signature_of(args, kwargs, operands)
        try:
            call = known.plain_calls.get(signature)
        except TypeError:  # an argument that cannot be in a key
            return _first_of(known.function(*args, **kwargs))
        if call is None:
            if len(known.plain_calls) >= MAX_TRACES:
                known.plain_calls.clear()
            call = known.plain_calls[signature] = OperationCall(None)

        def body(given: Sequence[TensorBase]) -> Results:
            if given is operands:
                return _plainly(known, args, kwargs, given)
            return _plainly(known, *all_exchanged(args, kwargs, given), given)

        if call.trace is None:
            again = functools.partial(_plainly, known)
            said = form_of(signature)
            sizes = known.plain_sizes
            found = resized(sizes, said, args, kwargs, again, call_alone)
            if found is not None:
                keep_call(known.plain_calls, sizes, signature, said, found, known.function)
                return self.short(*args, **kwargs)  # machine code can go on
            call.trace = SEEN_ONCE
        elif call.trace is SEEN_ONCE:
            return call.remember(operands, body)
        elif isinstance(call.trace, Trace):
            return _again(call.trace, operands)
        return body(operands)

    def recorded(self, args: Arguments, kwargs: NamedArguments) -> Results:
        """What the function gives, with a history."""
        known = self.known
        if self.finds_op and learn_call(
            known.calls, known.sizes, known.function, args, kwargs, is_graded=True
        ):
            return self.short(*args, **kwargs)
        told = errors.warnings_given
        found = known.function(*args, **kwargs)
        self.finds_op = found.__class__ is NormalizedCall
        if self.finds_op and told == errors.warnings_given:
            note_call(known.calls, known.sizes, args, kwargs, found)
        return _first_of(found)


def _plainly(
    known: Remembered, args: Arguments, kwargs: NamedArguments, operands: Sequence[TensorBase]
) -> Results:
    """What the function gives where nothing has a history, noted if that is not all it follows from."""
    before, told = [t._storage.value for t in operands], errors.warnings_given
    out = _first_of(known.function(*args, **kwargs))
    if any(map(_is_linked, _parts_of(out))):
        state.deterministic = False
        return out
    is_written = any(
        t._storage.value is not value for t, value in zip(operands, before, strict=True)
    )
    if is_written or told != errors.warnings_given:
        state.deterministic = False  # that is no result
    return as_new(out, args)


def _parts_of(found: Results) -> Sequence[Argument]:
    several: Sequence[Argument] = found if found.__class__ is tuple else (found,)
    return several


def _is_linked(part: Argument) -> bool:
    """Whether a result is a copy that stands for a view of an operand."""
    return is_tensor(part) and bool(links_of(part._storage))


def _is_wanted(values: Iterable[Argument]) -> bool:
    """Whether gradients of a tensor among arguments, or in a list among them, are wanted."""
    for value in values:
        if value.__class__ is tuple or value.__class__ is list:
            if _is_wanted(value):
                return True
        elif is_tensor(value) and needs_grad(value):
            return True
    return False


def _again(trace: Trace, operands: list[TensorBase]) -> Results:
    """What machine code leaves to Python: views, many arguments."""
    starts = tuple([t._offset for t in operands])
    values = tuple([t._storage.value for t in operands])
    out = trace.record(operands, values, starts if any(starts) else None)
    if any(t._storage.shared for t in operands):  # others may write there next
        settle()
    return out


def _first_of(found: Results) -> Results:
    if found.__class__ is not NormalizedCall:
        return found
    out = found.op(*found.args, **found.kwargs)
    return out[0] if out.__class__ is tuple else out
