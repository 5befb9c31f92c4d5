"""Calls of ops that launch kernels, in machine code: what `kernels/fastpath/operations.py` works on."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from ..schedule.jit import native
from .fastpath import shared
from .trace import Template

_calls = native.Family("operations", "call")


def short(known: dict[Any, Any], twin: Callable[..., Any], *, first: bool = False) -> Any:
    """`twin`, recorded without it where such a call is among the known ones; `first` says whether it gives
    the first result alone."""
    return _calls.function(twin, _context(known, twin, first))


def compile_calls(op: Any) -> None:
    """Have calls of `op` itself go to machine code."""
    _calls.serve(op, _context(op.calls, MethodType(type(op).__call__, op), False))


def _context(known: dict[Any, Any], fallback: Callable[..., Any], first: bool) -> tuple[Any, ...]:
    return shared(), known, Template, fallback, first
