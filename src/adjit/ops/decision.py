"""Steps that hold to what Python has decided by the truth of a tensor."""

from __future__ import annotations

from collections.abc import Callable

from .. import dtypes
from ..graph.launch import launch
from ..graph.node import Node
from ..kernels.ops import decision as kernels
from ..tensor import Tensor


def holding_to(t: Tensor, answer: bool, fails: Callable[[tuple[int, ...]], Exception]) -> Node:
    """Record that computing ends with an error unless the only element of a tensor is as true as it was."""
    kind = t._spec.dtype
    made = launch(
        kernels.hold_to, (t,), [((), dtypes.uint8)],
        bind={"T": dtypes.uint8 if kind is dtypes.bool else kind}, words=(int(answer),), n=1, fallible=fails,
    )  # fmt: skip
    return made._storage.value
