"""A plan of what a captured function, or its backward, recorded, and what is new at every run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from ..atomic import Calls
from ..errors import CallSite
from ..schedule import graph_key, plan_cache, profile
from ..schedule.dispatch import found_error
from .tracing import Draw

Externals = list[tuple[Any, int]]  # values from outside, each with the element it is read from


class ProgramPart:
    """A plan for a batch of recorded nodes, to be run again and again.

    Args:
        batch: the nodes, in order.
        wanted: the ids of those whose values somebody looks at afterwards.
        places: where in `pending` each of them was recorded.
        sites: the line that recorded each of them.
        draws: the Python numbers that are new at every run.
        donated: chooses the externals that the plan writes over.
        homes: values at which others look, and those that are to take their place.
    """

    def __init__(
        self,
        batch: Sequence[Any],
        wanted: set[int],
        places: Sequence[int],
        sites: list[CallSite | None],
        draws: Sequence[Draw],
        donated: Callable[[Externals], tuple[int, ...]] = lambda externals: (),
        homes: Sequence[tuple[Any, Any]] = (),
    ) -> None:
        words, self.externals, _ = graph_key.walk(list(batch))
        held = tuple([at for at, node in enumerate(batch) if id(node) in wanted])
        key = graph_key.key_of(words, held, donated(self.externals))
        structure = graph_key.Structure(key, self.externals)
        positions = {id(node): at for at, node in enumerate(batch)}
        structure.homes = {
            k: positions[id(after)]
            for before, after in homes
            for k, (value, _) in enumerate(self.externals)
            if value is before and id(after) in positions
        }
        self.plan = plan_cache.plan_for(batch, structure, 1)
        self.blocks = {id(batch[at]): numbers[0] for at, numbers in self.plan.results}
        self._sites = sites
        self._fallible = {
            at: (node.recipe, node.call_site)
            for at, node in enumerate(batch)
            if node.recipe.fallible is not None
        }
        self._numbers = [batch[at].scalars for at in self.plan.numbered]
        self._draws = self._find_draws(batch, places, draws)

    def _find_draws(
        self, batch: Sequence[Any], places: Sequence[int], draws: Sequence[Draw]
    ) -> list[list[tuple[int, int]]]:
        """For each draw the runs of numbers that are its own: where they begin, how many they are."""
        starts = list(accumulate([len(batch[at].scalars) for at in self.plan.numbered], initial=0))
        found: list[list[tuple[int, int]]] = []
        taken: set[int] = set()
        for draw in draws:
            runs: list[tuple[int, int]] = []  # empty: drawn, then never used
            for at, start in zip(self.plan.numbered, starts, strict=False):
                if draw.values and places[at] >= draw.start:
                    first = _find(draw.values, batch[at].scalars, start, taken)
                    if first >= 0:
                        runs.append((first, len(draw.values)))
                        if not draw.is_unique:
                            break
            taken.update([first for first, _ in runs])
            found.append(runs)
        return found

    def link(self) -> None:
        """Have the kernels compiled, and the table made."""
        plan = self.plan
        plan.compile()
        plan.finish()
        plan.set_numbers(self._numbers)
        self._renewed = [[plan.number_slots(*run) for run in runs] for runs in self._draws]
        self._written: list[Any] = [None] * len(
            self._renewed
        )  # the arrays whose numbers stand there
        del self.externals, self._numbers, self._draws

    def prepare(self, externals: Externals, drawn: Sequence[Any]) -> list[Any]:
        """Blocks for the results; `drawn` are the numbers of each draw. Callers hold the lock."""
        if self.plan.checked:
            self.plan.expect([self._fallible[at] for at in self.plan.checked])
        blocks = self.plan.prepare(externals)
        for k, numbers in enumerate(drawn):
            if numbers is not self._written[k]:
                self._written[k] = None
                for places, which in self._renewed[k]:
                    self.plan.words[places] = numbers[which]
                self._written[k] = numbers
        return blocks

    def run(self, then: Calls = ()) -> None:
        """Run what was prepared, and at once, if that went well, what is to be done `then`; raises what a
        kernel found."""
        self.plan.run(None if profile.active is None else self._sites, then)
        failed = self.plan.failed_node()
        if failed >= 0:
            recipe, call_site = self._fallible[failed]
            raise found_error(recipe, tuple(self.plan.status[:4]), call_site)


def _find(values: Sequence[int], scalars: Sequence[int], start: int, taken: set[int]) -> int:
    """The number of the first of `values` among the numbers of a node that begin at `start`."""
    for k in range(len(scalars) - len(values) + 1):
        if tuple(scalars[k : k + len(values)]) == tuple(values) and start + k not in taken:
            return start + k
    return -1
