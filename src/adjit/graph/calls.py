"""Calls of ops that launch kernels, in machine code: what `kernels/fastpath/operations.py` works on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..schedule.jit import native
from .fastpath import Runtime, Twin, runtime
from .signature import Signature
from .trace import Trace

_calls = native.Family("operations", "call")


class OperationContext(NamedTuple):
    """What calls an op that launches kernels."""

    runtime: Runtime
    calls: Mapping[Signature, object]  # those that came before, by signature
    template_class: type
    twin: Twin
    is_first: bool  # whether only the first result is wanted


native.know(OPERATION=OperationContext)


def short(known: Mapping[Signature, object], twin: Twin, *, first: bool = False) -> Twin:
    """`twin`, recorded without it where such a call is among the known ones; `first` says whether it gives
    the first result alone.
    """
    return _calls.function(twin, _context(known, twin, first))


def compile_calls(op: native.Native, known: Mapping[Signature, object], twin: Twin) -> None:
    """Have calls of `op` itself, for which `twin` does the same in Python, go to machine code."""
    _calls.serve(op, _context(known, twin, False))


def _context(known: Mapping[Signature, object], twin: Twin, first: bool) -> OperationContext:
    return OperationContext(runtime(), known, Trace, twin, first)
