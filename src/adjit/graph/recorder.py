"""The recorders of `record.py` in machine code: what `kernels/recorder.py` works on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..schedule import native
from ..schedule.recipe import Recipe
from ..schedule.settle import MAX_PENDING, tape
from ..storage import Storage, Version
from . import record
from .node import GradNode, Node, Spec, counter
from .state import modes_used, state, watchers
from .view import View

native.know(STORAGE=Storage, VERSION=Version, NODE=Node, SPEC=Spec, GRAD=GradNode, VIEW=View)
native.constants["MAX_PENDING"] = MAX_PENDING

_recorders = native.Family("recorder", "record")


@functools.cache
def shared() -> tuple[Any, ...]:
    """What all compiled functions need, in the order of the names in `kernels/handles.py`."""
    native.know(TENSOR=record.Tensor, META=record.Meta)
    return (
        record.Tensor, Node, Storage, Version, Recipe, float, int, record.tensor_classes, tape,
        watchers, modes_used, state, record.INFERENCE, counter, record.NUMBERS,
        "grad", "inference", "anomaly", None, True, False, (), (0, 1, 2, 3),
    )  # fmt: skip


def compiled(op: Any, twin: Callable[..., Any]) -> Any:
    """A recorder of `op` on one or two tensors; `twin` is the same in Python."""
    context = (shared(), op.arity, op.recipes, op.node_class, op, op.saves, twin)
    return _recorders.function(twin, context)
