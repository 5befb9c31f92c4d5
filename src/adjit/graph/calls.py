"""Calls of ops that launch kernels, in machine code: what `kernels/calls.py` works on."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from ..schedule import native
from .recorder import shared
from .template import Template

_calls = native.Family("calls", "call")


def short(op: Any, twin: Callable[..., Any]) -> Any:
    """`twin`, recorded without it where `op` knows such a call; without an op `twin` itself."""
    if op is None or twin is op:
        return twin
    return _calls.function(twin, _context(op, twin))


def compile_calls(op: Any) -> None:
    """Have calls of `op` itself go to machine code."""
    _calls.serve(op, _context(op, MethodType(type(op).__call__, op)))


def _context(op: Any, fallback: Callable[..., Any]) -> tuple[Any, ...]:
    return shared(), op, op.node_class, op.calls, Template, fallback
