"""What a profile sees of the scheduler: every step that runs, when, and for which lines.

Whether one is active is looked up once for each stream, never for a step: a profiled stream goes
through a walk of its own, which notes the time after every step.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..atomic import Calls
from ..devices import CPU, device
from ..errors import CallSite
from . import run_cpu
from .planning.recipe import Recipe
from .planning.step_info import StepInfo, copy_info, node_infos


class ProfileEvent(NamedTuple):
    """A step that has run."""

    info: StepInfo
    begin: int  # ns of the monotonic clock
    end: int
    sites: tuple[CallSite, ...]  # where what it computes was recorded
    thread: int
    place: device = CPU


class Span(NamedTuple):
    """A part of the program that has a name."""

    name: str
    begin: int  # ns of the monotonic clock
    end: int
    thread: int


class Watcher:
    """Runs streams by the walk that notes times, and keeps what it noted."""

    def __init__(self) -> None:
        self.events: list[ProfileEvent] = []
        self.spans: list[Span] = []
        self.sites: dict[int, CallSite | None] = {}  # of nodes, by their id
        self._notes: dict[tuple[Recipe, int], list[StepInfo]] = {}  # by recipe and first kernel
        self._plans: dict[Any, list[StepInfo]] = {}
        self._recipe: Any = None
        self._site: CallSite | None = None

    def sites_of(self, batch: Sequence[Any]) -> list[CallSite | None]:
        """Where the nodes of a batch were recorded."""
        return [self.sites.get(id(node)) for node in batch]

    def notes_of(self, plan: Any) -> list[StepInfo]:
        """The notes of a plan, unpacked when it runs for the first time."""
        notes = self._plans.get(plan)
        if notes is None:
            notes = self._plans[plan] = plan.notes.unpacked()
        return notes

    def expect(self, node: Any) -> None:
        """The next stream holds the steps of this node."""
        self._recipe, self._site = node.recipe, self.sites.get(id(node))

    def run_plan(
        self,
        notes: Sequence[StepInfo],
        sites: Sequence[CallSite | None],
        stream: int,
        status: int,
        large: bool,
        then: Calls,
    ) -> int:
        """Run the stream of a plan with a info for each step, a call_site for each node; then at once what
        follows, if it went well."""
        stopped, times = run_cpu.run_timed(stream, len(notes), status, large=large, then=then)
        self.keep(notes, times, sites)
        return int(stopped)

    def run_node(
        self,
        stream: int,
        words: Sequence[int],
        steps: int,
        status: int,
        large: bool,
        then: Calls,
    ) -> None:
        """Run the steps of the node that is expected, then at once what follows, if it went well."""
        _, times = run_cpu.run_timed(stream, steps, status, large=large, then=then)
        self.keep_node(times, words[0])

    def keep_node(self, times: Sequence[int], kernel: int = 0, place: device = CPU) -> None:
        """Note the times of the node that is expected, in the variant that its first kernel tells."""
        variant = self._recipe, kernel
        notes = self._notes.get(variant)
        if notes is None:
            notes = self._notes[variant] = _notes_of(*variant)
        again = len(times) - 1 - len(notes)  # a step may take several launches on a GPU
        self.keep([*notes, *notes[-1:] * again], times, [self._site], place)

    def keep(
        self,
        notes: Sequence[StepInfo],
        times: Sequence[int],
        sites: Sequence[CallSite | None],
        place: device = CPU,
    ) -> None:
        """Note the times between the steps of these notes."""
        thread = threading.get_native_id()
        for info, begin, end in zip(notes, times[:-1], times[1:], strict=False):
            found = [sites[k] for k in info.nodes if k < len(sites)]
            lines = tuple(
                dict.fromkeys([call_site for call_site in found if call_site is not None])
            )
            if info.nodes:  # no node asked for the last step of a plan
                self.events.append(ProfileEvent(info, begin, end, lines, thread, place))


active: Watcher | None = None


def _notes_of(recipe: Recipe, kernel: int) -> list[StepInfo]:
    """The steps of a node that runs on its own, in the variant that its first kernel tells."""
    is_here = recipe.device is CPU
    if recipe.write:
        from .planning.lower import copy_words

        source = recipe.steps[0].source
        notes = [copy_info(source, recipe.inputs[1], 0, (None, 0), (None, 0))]
        if is_here and kernel != recipe.steps[0].source.address:
            notes.insert(0, copy_info(copy_words(), recipe.spec, 0, (None, 0), (None, 0)))
        return notes
    if is_here and recipe.alias is not None and kernel == recipe.alias.steps[0].source.address:
        recipe = recipe.alias
    reads, writes = [(None, 0)] * len(recipe.inputs), [(None, 0)] * len(recipe.outputs)
    return node_infos(recipe, (0,), reads, writes)
