"""What a captured function decides by the truth of a tensor, and how its replays hold to it.

`if not valid.all(): raise ...` looks at a value while nothing runs of what the function records. What the
value is made of is computed beside that; the answer becomes a step of the plan, which fails where a call would
have decided otherwise. It has left nothing behind then, and the next capture is tried, or the function runs.
"""

from __future__ import annotations

from ..graph.node import Node
from ..ops.decision import holding_to
from ..tensor import Tensor
from .codes import unwatched
from .program import ProgramPart
from .tracing import reachable, value_slot


class OtherWay(Exception):
    """A call has to decide otherwise than the one that was captured."""


def decide(t: Tensor) -> tuple[bool, Node]:
    """Whether the only element of a tensor is not zero, and the step that holds to that."""
    answer = truth_of(t)
    return answer, holding_to(t, answer, _other_way)


def _other_way(status: tuple[int, ...]) -> OtherWay:
    return OtherWay()


def truth_of(t: Tensor) -> bool:
    """Whether the only element of a tensor is not zero; what is recorded stays recorded."""
    node = value_slot.__get__(t._storage)
    address = node.address if node.recipe is None else _computed(node)
    kind = t._spec.dtype
    return bool(kind.ctype.from_address(address + t._offset * kind.itemsize).value)


def _computed(node: Node) -> int:
    """The address of a recorded value, which is computed once beside what is recorded."""
    with unwatched():
        batch = reachable([node])
        part = ProgramPart(batch, {id(node)}, range(len(batch)), [None] * len(batch), ())
        externals = part.externals  # which `link` lets go of
        part.link()
        blocks = part.prepare(externals, ())
        part.run()
        address: int = blocks[part.blocks[id(node)]]
        return address
