"""Calls of a captured function that wait: until somebody looks at a result, or sends back from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..graph import record
from ..schedule.dispatch import fail
from ..schedule.planning.recipe import Recipe
from ..schedule.settle import pending, settle, settle_pending, waiting
from .program import Externals


class WaitingCall:
    """A call that waits until somebody looks at its results, or sends back from them.

    In the second case forward and backward run as one plan, in which most of what backward reads is
    never stored.
    """

    def __init__(
        self, replay: Any, externals: Externals, outside: Externals, kept: Externals,
        drawn: list[Any],
    ) -> None:  # fmt: skip
        self.replay, self.outside, self.kept, self.drawn = replay, outside, kept, drawn
        self.given = len(kept)  # so many are there already
        self.externals: Externals | None = externals  # None: what backward reads is there
        self.nodes = [_waiting_node() for _ in replay.left.tensors]

    def run(self) -> None:
        """Run the forward alone, unless it has run so. Callers hold the lock."""
        if self.externals is None:
            return
        replay = self.replay
        try:
            blocks = replay.part.prepare(list(self.externals), self.drawn)
            replay.part.run()
        except Exception as error:
            self.fail(error)
            raise
        self.finish([blocks[left.block] for left in replay.left.tensors])
        found = replay.computed(replay.rooted[0], self.nodes, blocks)
        self.kept[self.given :], self.externals, self.outside = found, None, []

    def may_join(self, grads: Sequence[Any]) -> bool:
        """Whether the backward from these gradients can run with the forward; settles them."""
        if self.externals is None:
            return False
        if self in waiting:
            read = [g._storage.value for g in grads if g is not None]
            read += [value for node in pending for value in node.inputs or ()]
            if any(value.recipe is WAITING for value in read):
                return False
            settle_pending(everything=True)
        else:
            settle(everything=True)
        return True

    def finish(self, blocks: Sequence[Any]) -> None:
        """Let the results have their memory."""
        for node, block in zip(self.nodes, blocks, strict=True):
            if node.recipe is WAITING:
                node.recipe, node.address = None, block
        self._leave()

    def fail(self, error: Exception) -> None:
        """Have the error raised again wherever somebody looks at a result."""
        for node in self.nodes:
            if node.recipe is WAITING:
                fail(node, error)
        self._leave()

    def _leave(self) -> None:
        """Wait no longer."""
        waiting[:] = [call for call in waiting if call is not self]


WAITING = Recipe("captured function", (), (), [])  # of results of a call that waits


def _waiting_node() -> Any:
    node = record.ready_node(0)
    node.recipe, node.inputs = WAITING, ()
    return node
