"""Functions that make tensors of plain values: calls that came before are recorded from memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from .. import devices, dtypes, formats
from . import calls
from .operation import OperationCall
from .signature import signature_of
from .trace import SEEN, UNSTEADY, Trace, trace, usable

MOST_CALLS = 1024  # of one maker that are remembered; numbers that change with every call are not

_F = TypeVar("_F", bound=Callable[..., Any])


class Memory:
    """What calls of a maker recorded, by their arguments."""

    def __init__(self) -> None:
        self.calls: dict[tuple[Any, ...], OperationCall] = {}
        dtypes.on_default_change(self.calls.clear)
        devices.on_first_gpu(self.calls.clear)

    def call(self, signature: tuple[Any, ...]) -> OperationCall:
        """What calls with such arguments share."""
        found = self.calls.get(signature)
        if found is None:
            found = self.calls[signature] = OperationCall(None)
        return found


def maker(function: _F) -> _F:
    """`function`, which gives a new tensor that depends on nothing but the specs of tensors and the
    plain values that it is called with, the default dtype and the default device.

    From the third call with the same arguments on, what it recorded is recorded again without it. Where
    GPUs are used it runs every time: each thread has a default device of its own.
    """
    memory = Memory()

    @functools.wraps(function)
    def twin(*args: Any, **kwargs: Any) -> Any:
        if "layout" in kwargs:
            formats.check_layout(function.__name__, kwargs["layout"])
        if len(memory.calls) >= MOST_CALLS:
            return function(*args, **kwargs)
        operands: list[Any] = []
        signature = signature_of(args, kwargs, operands)
        if devices.gpus_used or not usable() or any(t.storage.shared for t in operands):
            return function(*args, **kwargs)
        try:
            found = memory.call(signature)
        except TypeError:  # an argument that cannot be in a key
            return function(*args, **kwargs)
        if found.template.__class__ is Trace:
            starts = tuple([t.offset for t in operands]) if operands else None
            values = tuple([t.storage.value for t in operands])
            return found.template.record(operands, values, starts)
        if found.template is not SEEN:
            found.template = found.template or SEEN
            return function(*args, **kwargs)
        out, template = trace(operands, lambda: function(*args, **kwargs))
        is_new = template.__class__ is Trace and template.fresh and not out.needs_grad
        found.template = template if is_new or template is SEEN else UNSTEADY
        return out

    return cast(_F, calls.short(memory.calls, twin))
