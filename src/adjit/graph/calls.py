"""Calls of ops that launch kernels, in machine code: what `kernels/fastpath/operations.py` works on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..schedule.jit import native
from .fastpath import Fallback, Runtime, runtime
from .signature import Signature
from .trace import Trace

_calls = native.FastPath("operations", "call")


class OperationContext(NamedTuple):
    """What calls an op that launches kernels."""

    runtime: Runtime
    calls: Mapping[Signature, object]  # those that came before, by signature
    plain_calls: Mapping[Signature, object]  # those of them whose results have no history
    trace_class: type
    fallback: Fallback
    with_history: Fallback  # that where gradients are wanted, and all is as usual
    is_first: bool  # whether only the first result of `calls` is wanted


native.register_layout(OPERATION=OperationContext)


def short(
    known: Mapping[Signature, object],
    fallback: Fallback,
    *,
    plain: Mapping[Signature, object] | None = None,
    with_history: Fallback | None = None,
    first: bool = False,
) -> Fallback:
    """`fallback`, recorded without it where such a call is among the known ones; `first` says whether it gives
    the first result alone. Calls without history are looked for in `plain`, if that is given; for others there
    may be another fallback.
    """
    return _calls.function(fallback, _context(known, plain, fallback, with_history, first))


def compile_calls(op: native.Native, known: Mapping[Signature, object], fallback: Fallback) -> None:
    """Have calls of `op` itself, for which `fallback` does the same in Python, go to machine code."""
    _calls.bind(op, _context(known, None, fallback, None, False))


def _context(
    known: Mapping[Signature, object],
    plain: Mapping[Signature, object] | None,
    fallback: Fallback,
    with_history: Fallback | None,
    first: bool,
) -> OperationContext:
    without = known if plain is None else plain
    return OperationContext(
        runtime(), known, without, Trace, fallback, with_history or fallback, first
    )
