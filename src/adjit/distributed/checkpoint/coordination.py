"""Steps that all ranks take together: one of them decides, and an error of one is an error of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import objects
from ..group import ProcessGroup, get_rank, get_world_size
from .api import CheckpointException, attempt, failures_of


class Coordination:
    """The processes of a group, or this one alone; `coordinator_rank` is the rank in the group that decides."""

    def __init__(
        self, group: ProcessGroup | None, use_dist: bool, coordinator_rank: int = 0
    ) -> None:
        self.group, self.use_dist, self.coordinator = group, use_dist, coordinator_rank
        self.rank = get_rank(group) if use_dist else 0
        self.size = get_world_size(group) if use_dist else 1
        self.is_coordinator = not use_dist or self.rank == coordinator_rank

    def reduce_scatter(
        self, step: str, local: Callable[[], Any], decide: Callable[[list[Any]], list[Any]]
    ) -> Any:
        """This rank's part of what the coordinator makes of what `local` gives on all.

        Raises:
            CheckpointException: if anything fails on any rank.
        """
        found = self._decided(step, local, decide)
        if self.is_coordinator and isinstance(found, CheckpointException):
            found = [found] * self.size
        if not self.use_dist:
            return _or_raise(found[0])
        mine = [None]
        objects.scatter_object_list(mine, found, group=self.group, group_src=self.coordinator)
        return _or_raise(mine[0])

    def all_reduce(
        self, step: str, local: Callable[[], Any], decide: Callable[[list[Any]], Any]
    ) -> Any:
        """What the coordinator makes of what `local` gives on all ranks.

        Raises:
            CheckpointException: if anything fails on any rank.
        """
        found = [self._decided(step, local, decide)]
        if self.use_dist:
            objects.broadcast_object_list(found, group=self.group, group_src=self.coordinator)
        return _or_raise(found[0])

    def all_gather(self, step: str, local: Callable[[], Any]) -> list[Any]:
        """What `local` gives on all ranks.

        Raises:
            CheckpointException: if it fails on any.
        """
        found = [attempt(local)]
        if self.use_dist:
            mine, found = found[0], [None] * self.size
            objects.all_gather_object(found, mine, self.group)
        if failures := failures_of(found):
            raise CheckpointException(step, failures)
        return found

    def _decided(
        self, step: str, local: Callable[[], Any], decide: Callable[[list[Any]], Any]
    ) -> Any:
        """On the coordinator what it decides, or the error; elsewhere None."""
        found = [attempt(local)]
        if self.use_dist:
            mine, found = found[0], [None] * self.size
            places = found if self.is_coordinator else None
            objects.gather_object(mine, places, group=self.group, group_dst=self.coordinator)
        if not self.is_coordinator:
            return None
        failures = failures_of(found)
        if not failures:
            decision = attempt(lambda: decide(found))
            failures = {self.rank: decision} if failures_of([decision]) else {}
        return CheckpointException(step, failures) if failures else decision


def _or_raise(found: Any) -> Any:
    if isinstance(found, CheckpointException):
        raise found
    return found
