"""Functions that make tensors of plain values: calls that came before are recorded from memory."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar, cast

from .. import devices, dtypes, formats
from . import calls, wrong_types
from .generators import by_generator
from .levels import Level, innermost, is_traced, tracers
from .node import TensorBase
from .operation import (
    KnownCalls,
    OperationCall,
    call_alone,
    calls_of,
    keep_call,
    resized,
)
from .other_sizes import Family, OtherSizes, form_of
from .record import tensor_classes
from .signature import Argument, Arguments, NamedArguments, Signature, all_exchanged, signature_of
from .state import state
from .trace import SEEN_ONCE, UNCACHEABLE, Results, Trace, usable

MOST_CALLS = 1024  # of one factory that are remembered; numbers that change with every call are not

_F = TypeVar("_F", bound=Callable[..., Results])


class Memory:
    """What calls of a factory recorded, by their arguments."""

    def __init__(self) -> None:
        self.calls: KnownCalls = {}
        self.sizes = OtherSizes()
        dtypes.on_default_change(self.sizes.clear)
        devices.on_first_gpu(self.sizes.clear)
        dtypes.on_default_change(self.calls.clear)
        devices.on_first_gpu(self.calls.clear)

    def call(self, signature: Signature) -> OperationCall:
        """What calls with such arguments share."""
        found = self.calls.get(signature)
        if found is None:
            found = self.calls[signature] = OperationCall(None)
        return found


# What is remembered of factories that users call, where these may have to give tracers; and runs of functions
# that are differentiated forward, of all threads, in which nothing may be remembered.
_by_users: list[Memory] = []
_put_aside: list[tuple[Memory, KnownCalls, dict[Hashable, Family]]] = []
_runs: set[Level] = set()


@contextlib.contextmanager
def differentiated_forward(level: Level) -> Iterator[None]:
    """A block in which the user's function makes tensors that may take this level's tangents."""
    before = state.forward
    try:
        _runs.add(level)
        state.forward = (*before, level)
        for memory in _by_users:  # machine code would not ask for levels
            if memory.calls or memory.sizes.families:
                _put_aside.append((memory, memory.calls.copy(), memory.sizes.families.copy()))
                memory.calls.clear()
                memory.sizes.clear()
        yield
    finally:
        state.forward = before
        _runs.discard(level)
        while _put_aside and not _runs:
            memory, known, families = _put_aside.pop()
            memory.calls.update(known)
            memory.sizes.families.update(families)


def taking_tangents(made: Argument) -> Argument:
    """A tensor of floats, but no leaf, that the user's function made and may write dual tensors into."""
    if made._needs_grad or not made.dtype.is_floating_point:
        return made
    last = state.forward[-1].number
    around = [level for level in state.levels if level.number < last]
    for level in sorted((*around, *state.forward), key=lambda level: level.number):
        made = level.factory(functools.partial(_same, made), (), {})
    return made


def _same(made: Argument) -> Argument:
    return made


def factory(function: _F, *, for_users: bool = False) -> _F:
    """`function`, which gives a new tensor that depends on nothing but the specs of tensors and the
    plain values that it is called with, the default dtype and the default device.

    From the third call with the same arguments on, what it recorded is recorded again without it. Where
    GPUs are used it runs every time: each thread has a default device of its own.

    Users, but no ops, get `for_users` tensors that take tangents where a function is differentiated forward.
    """
    memory = Memory()
    if for_users:
        _by_users.append(memory)

    def make(args: Arguments, kwargs: NamedArguments) -> Results:
        if "layout" in kwargs:
            formats.check_layout(function.__name__, kwargs["layout"])
        if kwargs.get("requires_grad") is True and kwargs.get("out") is None:
            rest = {name: value for name, value in kwargs.items() if name != "requires_grad"}
            leaf = made(*args, **rest)
            if leaf.__class__ in tensor_classes and leaf.dtype.is_floating_point:
                leaf._needs_grad = True
                return leaf
        operands: list[TensorBase] = []
        signature = signature_of(args, kwargs, operands)
        if tracers and is_traced(operands):
            return innermost(operands).factory(function, args, kwargs)
        if for_users and _runs:
            out = function(*args, **kwargs)
            return taking_tangents(out) if state.forward else out
        if state.levels or len(memory.calls) >= MOST_CALLS:
            return function(*args, **kwargs)
        if devices.gpus_used or not usable() or any(t._storage.shared for t in operands):
            return function(*args, **kwargs)
        try:
            found = memory.call(signature)
        except TypeError:  # an argument that cannot be in a key
            return function(*args, **kwargs)
        if found.trace is None:

            def again(
                args: Arguments, kwargs: NamedArguments, operands: Sequence[TensorBase]
            ) -> Results:
                return function(*args, **kwargs)

            said = form_of(signature)
            known = resized(memory.sizes, said, args, kwargs, again, call_alone)
            if known is not None:
                keep_call(memory.calls, memory.sizes, signature, said, known, function)
                found = known
        if isinstance(found.trace, Trace):
            starts = tuple([t._offset for t in operands]) if operands else None
            values = tuple([t._storage.value for t in operands])
            return found.trace.record(operands, values, starts)
        if found.trace is not SEEN_ONCE:
            found.trace = found.trace or SEEN_ONCE
            return function(*args, **kwargs)

        def body(given: Sequence[TensorBase]) -> Results:
            values, named = all_exchanged(args, kwargs, given)
            return function(*values, **named)

        out = found.remember(operands, body)
        if out._needs_grad:
            found.trace = UNCACHEABLE
        return out

    @functools.wraps(function)
    def fallback(*args: Argument, **kwargs: Argument) -> Results:
        if "generator" in kwargs and (drawn := by_generator(made, args, kwargs)):
            return drawn[0]
        wrong_types.check_flags(function, function.__name__, args, kwargs)
        try:
            return make(args, kwargs)
        except Exception:
            if said := wrong_types.tell(function, function.__name__, args, kwargs):
                return said[0]
            raise

    made = calls.short(calls_of(memory.calls, memory.sizes), fallback)
    return cast(_F, made)
