"""Calls of ops that launch kernels, in machine code: what `kernels/fastpath/operations.py` works on."""

from __future__ import annotations

from types import MethodType
from typing import Any, NamedTuple

from ..schedule.jit import native
from .fastpath import Runtime, Twin, runtime
from .trace import Trace

_calls = native.Family("operations", "call")


class OperationContext(NamedTuple):
    """What calls an op that launches kernels."""

    runtime: Runtime
    calls: dict[Any, Any]  # those that came before, by signature
    template_class: type
    twin: Twin
    is_first: bool  # whether only the first result is wanted


native.know(OPERATION=OperationContext)


def short(known: dict[Any, Any], twin: Twin, *, first: bool = False) -> Any:
    """`twin`, recorded without it where such a call is among the known ones; `first` says whether it gives
    the first result alone.
    """
    return _calls.function(twin, _context(known, twin, first))


def compile_calls(op: Any) -> None:
    """Have calls of `op` itself go to machine code."""
    _calls.serve(op, _context(op.calls, MethodType(type(op).__call__, op), False))


def _context(known: dict[Any, Any], twin: Twin, first: bool) -> OperationContext:
    return OperationContext(runtime(), known, Trace, twin, first)
