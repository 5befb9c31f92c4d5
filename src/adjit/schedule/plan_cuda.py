"""Plans for a GPU: the same groups and the same memory as on the CPU, launches in the place of kernels.

Words that a plan has run with before (its memory lies where it did, no Python number has changed)
become a graph of the driver's, which is launched as one. There are several: a program that keeps its
last result while it computes the next has its memory in two places by turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import gpu
from ..kernels import launcher
from ..shapes import extent
from . import on_cuda, run_cpu
from .cache import instantiate, link
from .layout import Layout, Place
from .plan import Plan, write_addresses
from .recipe import DeviceSource, Operand, Recipe, Step
from .run_cuda import Gpu, gpu_of, launcher_source
from .structure import Structure

WORTH_A_GRAPH = 4  # steps; fewer are launched as fast one by one
REPEATS = 3  # how often words are seen until they become a graph
MAX_GRAPHS = 4  # of a plan
HEADER = 4  # words of a step before its row


class GpuLayout(Layout):
    """Lays out a plan whose steps launch kernels."""

    def __init__(self, batch: Sequence[Any], structure: Structure, least: int, owner: Gpu) -> None:
        self.owner = owner
        self.kernels: list[tuple[int, DeviceSource]] = []  # and where the word for their handle is
        self.checked: list[int] = []  # nodes that can fail
        super().__init__(batch, structure, least)

    def _kernel_rows(self, recipe: Recipe, row: Sequence[Any], owner: int = -1) -> None:
        if recipe.device_steps is None:
            raise NotImplementedError(f"{recipe.name} has no CUDA side yet")
        if owner >= 0:
            check = Place("check", len(self.checked))
            self.checked.append(owner)
            row = [check if w.__class__ is Place and w.kind == "status" else w for w in row]
        for source, n in recipe.device_steps:
            if n:
                self._launch(source, n, row)

    def _group_row(
        self, step: Step, row: Sequence[Any], constants: tuple[int, ...],
        operands: Sequence[Operand], shape: Sequence[int],
    ) -> None:  # fmt: skip
        most = max([extent(shape, o.strides) for o in operands if o.strides is not None], default=0)
        source, n = on_cuda.device_step(step.source, step.n, constants, most, len(row))
        self._launch(source, n, row)

    def _copy_row(self, old: Place, fresh: Place, nbytes: int) -> None:
        owner = self.owner
        addresses = owner.stream_word.buffer_info()[0], owner.report.buffer_info()[0]
        copy = owner.driver.address("cuMemcpyDtoDAsync_v2")
        self._row(instantiate(launcher.copy, {}), 1, 1, [copy, fresh, old, nbytes, *addresses])

    def _launch(self, source: DeviceSource, n: int, row: Sequence[Any]) -> None:
        self.kernels.append((len(self.words) + HEADER + launcher.FUNCTION, source))
        words = self.owner.row(0, self.owner.shape(source, n), row)
        self._row(launcher_source(), 1, 1, words)

    def _pad(self, *_: Any) -> bool:
        return False


class Graph:
    """A graph of the driver's, once some words were seen often enough."""

    __slots__ = ("_driver", "handle", "seen")

    def __init__(self, owner: Gpu) -> None:
        self._driver, self.handle, self.seen = owner.driver, 0, 0

    def __del__(self) -> None:
        if self.handle:
            self._driver.discard("cuGraphExecDestroy", self.handle)


class GpuPlan(Plan):
    """The table of words of one structure, for launches."""

    def __init__(self, batch: Sequence[Any], structure: Structure, least: int) -> None:
        self.owner = gpu_of(batch[0].recipe.device)
        self._graphs: dict[bytes, Graph] = {}  # by the words, those used last at the end
        self._checks: list[int] = []
        super().__init__(batch, structure, 1)  # every launch that is saved counts
        self.sources += [source for _, source in self._kernels]

    def _laid_out(self, batch: Sequence[Any], structure: Structure, least: int) -> Layout:
        made = GpuLayout(batch, structure, least, self.owner)
        made.build()
        self._kernels, self.checked = made.kernels, made.checked
        return made

    def link(self, source: Any) -> int:
        """The handle of a kernel for the GPU, the address of one for the runner."""
        if isinstance(source, DeviceSource):
            return self.owner.function_of(source)
        return link(source)

    @property
    def is_ready(self) -> bool:
        """Whether every kernel is loaded."""
        return all(
            self.owner.has(source) if isinstance(source, DeviceSource) else source.address
            for source in self.sources
        )

    def finish(self) -> None:
        """Make the table; every kernel is loaded by now."""
        for position, source in self._kernels:
            self._words[position] = self.owner.function_of(source)
        super().finish()

    def expect(self, batch: Sequence[Any]) -> None:
        """Get ready for what the nodes of a batch may find."""
        stream = gpu.current_stream(self.owner.index)
        self._checks = [
            self.owner.checks.expect(batch[at].recipe, batch[at].site, stream)
            for at in self.checked
        ]

    def prepare(self, externals: list[tuple[Any, int]]) -> list[Any]:
        """Blocks for the held values, in the table like all addresses of a run."""
        self.status[4] = 0
        blocks = [
            self._allocate(size) if taken < 0 else externals[taken][0].address
            for taken, size, _ in self._table.blocks
        ]
        write_addresses(self._table, externals, [*blocks, *self._checks])
        return blocks

    def _allocate(self, size: int) -> Any:
        return self.owner.pool.allocate(size)

    def _go(self, sites: Any) -> None:
        """Launch all kernels on the current stream."""
        owner = self.owner
        owner.use_current_stream()
        graph = self._graph() if self.steps > WORTH_A_GRAPH else 0
        if graph:
            owner.driver.call("cuGraphLaunch", graph, owner.stream_word[0])
            self.status[4] = 1
        else:
            run_cpu.run(self._stream, self.steps, 0, large=False)
            owner.raise_failed_launch()

    def _graph(self) -> int:
        """The handle of the graph for the words as they are; 0 if there is none yet."""
        words = self.words.tobytes()
        found = self._graphs.pop(words, None) or Graph(self.owner)
        self._graphs[words] = found
        if len(self._graphs) > MAX_GRAPHS:
            del self._graphs[next(iter(self._graphs))]
        found.seen += 1
        if found.seen == REPEATS:
            found.handle = self._captured()
        return found.handle

    def _captured(self) -> int:
        """The launches as a graph."""
        owner = self.owner
        before, owner.stream_word[0] = owner.stream_word[0], owner.capture_stream
        owner.driver.begin_capture(owner.capture_stream)
        try:
            run_cpu.run(self._stream, self.steps, 0, large=False)
        finally:
            owner.stream_word[0] = before
            graph = owner.driver.end_capture(owner.capture_stream)
        owner.raise_failed_launch()
        return graph

    def failed_node(self) -> int:
        """-1: what a kernel finds is known once somebody waits for it."""
        return -1
