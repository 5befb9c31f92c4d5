"""Calls of ops that launch kernels, in machine code: what `kernels/fastpath/operations.py` works on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..schedule.jit import native
from .fastpath import Fallback, Runtime, runtime
from .other_sizes import OtherSizes
from .signature import Signature
from .trace import Trace

_calls = native.FastPath("operations", "call")


# What Python has to know of a call that a template has made, with the tensors of the first one.
SeeTo = Callable[..., None]


class Calls(NamedTuple):
    """Calls that came before, by signature, and what makes those of other sizes."""

    known: Mapping[Signature, object]
    sizes: OtherSizes
    see_to: SeeTo


class OperationContext(NamedTuple):
    """What calls an op that launches kernels."""

    runtime: Runtime
    calls: Mapping[Signature, object]
    sizes: OtherSizes
    see_to: SeeTo
    plain_calls: Mapping[Signature, object]  # those whose results have no history
    plain_sizes: OtherSizes
    trace_class: type
    fallback: Fallback
    with_history: Fallback  # that where gradients are wanted, and all is as usual
    is_first: bool  # whether only the first result of `calls` is wanted


native.register_layout(OPERATION=OperationContext)


def short(
    calls: Calls,
    fallback: Fallback,
    *,
    plain: Calls | None = None,
    with_history: Fallback | None = None,
    first: bool = False,
) -> Fallback:
    """`fallback`, recorded without it where such a call is known; `first` says whether it gives the first
    result alone. Calls without history are looked for in `plain`, if that is given; for others there may be
    another fallback.
    """
    return _calls.function(fallback, _context(calls, plain, fallback, with_history, first))


def compile_calls(op: native.Native, calls: Calls, fallback: Fallback) -> None:
    """Have calls of `op` itself, for which `fallback` does the same in Python, go to machine code."""
    _calls.bind(op, _context(calls, None, fallback, None, False))


def _context(
    calls: Calls,
    plain: Calls | None,
    fallback: Fallback,
    with_history: Fallback | None,
    first: bool,
) -> OperationContext:
    return OperationContext(
        runtime(), *calls, *(plain or calls)[:2], Trace, fallback, with_history or fallback, first
    )
