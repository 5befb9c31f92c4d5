"""Plans for a GPU: the same groups and the same memory as on the CPU, launches in the place of kernels.

Words that a plan has run with before (its memory lies where it did) become a graph of the driver's,
which is launched as one. There are several: a program that keeps its last result while it computes the
next has its memory in two places by turns. Rows of words with Python numbers, or where a kernel tells
what it has found, are no part of a graph: they lie in the GPU's memory, copied there before every run.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from operator import setitem
from typing import Any

from ... import gpu
from ...atomic import Calls
from ...errors import CallSite
from ...kernels.on_gpu.block import PARTS_BYTES
from ...kernels.runtime import launcher
from ...kernels.runtime.runner import HEADER
from ...shapes import extent
from .. import profile
from ..fusion.row_groups import Limits
from ..graph_key import Structure
from ..jit.cache import instantiate, link
from ..planning.lower import PlanLowering
from ..planning.memory import MemorySlot
from ..planning.plan import Plan, write_addresses
from ..planning.recipe import DeviceSource, Operand, Recipe, Step
from . import lower, products
from .run import Gpu, gpu_of, launcher_source

PARTS = 64  # of the rows of a row group whose columns are summed, at least: blocks for half a GPU
ROOM = 200 << 10  # bytes for the values of a row, unless a GPU has less: compute capability 9.0
WORTH_A_GRAPH = 4  # steps; fewer are launched as fast one by one
REPEATS = 3  # how often words are seen until they become a graph
MAX_GRAPHS = 4  # of a plan


class GpuPlanLowering(PlanLowering):
    """Lays out a plan whose steps launch kernels."""

    limits = Limits(PARTS, ROOM)
    worth_a_copy = 1 << 22  # a launch takes as long

    def __init__(self, batch: Sequence[Any], structure: Structure, least: int, owner: Gpu) -> None:
        self.owner = owner
        self.kernels: list[tuple[int, DeviceSource]] = []  # and where the word for their handle is
        self.calls: list[Any] = []  # of cuBLASLt, in the place of kernels
        self.checked: list[int] = []  # nodes that can fail
        self.table: list[Any] = []  # rows in the GPU's memory, the number of words before each
        self.table_at = 0  # where they are among the words
        super().__init__(batch, structure, least)

    def build(self) -> None:
        super().build()
        self.table_at = len(self.words)
        self._append(self.table)

    def _kernel_rows(self, recipe: Recipe, row: Sequence[Any], owner: int = -1) -> None:
        if recipe.device_steps is None:
            raise NotImplementedError(f"{recipe.name} has no CUDA side yet")
        call = self._call_of(recipe)
        if call is not None:
            self._multiply(call, row)
            return
        if owner >= 0:
            check = MemorySlot("check", len(self.checked))
            self.checked.append(owner)
            row = [check if w.__class__ is MemorySlot and w.kind == "status" else w for w in row]
        for source, n, more in recipe.device_steps:
            self._launch(source, n, [*row, *more])
        self.notes += self.notes[-1:] * (len(recipe.device_steps) - len(recipe.steps))

    def _call_of(self, recipe: Recipe) -> products.ProductCall | None:
        """The call of cuBLASLt in the place of a recipe's kernel."""
        return self.owner.products.call(recipe)

    def _takes_activation(self, recipe: Recipe) -> bool:
        return self._call_of(recipe) is None

    def _multiply(self, call: products.ProductCall, row: Sequence[Any]) -> None:
        """A product by cuBLASLt; its workspace is free again once the next step runs."""
        workspace: Any = 0
        if call.workspace:
            workspace = self.memory.scratch(call.workspace, products.WORKSPACE_ALIGNMENT)
        self.calls.append(call)
        made = self.owner.product_row(call, row, workspace)
        self._row(products.source(), 1, 1, made)

    def _group_row(
        self, step: Step, row: Sequence[Any], constants: tuple[int, ...],
        operands: Sequence[Operand], shape: Sequence[int],
    ) -> None:  # fmt: skip
        most = max([extent(shape, o.strides) for o in operands if o.strides is not None], default=0)
        varies = any(word.__class__ is MemorySlot and word.kind == "number" for word in row)
        source, n, _ = lower.device_step(step.source, step.n, constants, most, len(row), varies)
        self._launch(source, n, row)

    def _copy_row(self, old: MemorySlot, fresh: MemorySlot, nbytes: int) -> None:
        owner = self.owner
        addresses = owner.stream_word.buffer_info()[0], owner.report.buffer_info()[0]
        copy = owner.driver.address("cuMemcpyDtoDAsync_v2")
        self._row(instantiate(launcher.copy, {}), 1, 1, [copy, fresh, old, nbytes, *addresses])

    def _launch(self, source: DeviceSource, n: int, row: Sequence[Any]) -> None:
        if source.by_table:
            here = len(self.table) + 1
            self.table += [len(row), *row]
            row = [MemorySlot("table", 0, 8 * here)]
        self.kernels.append((len(self.words) + HEADER + launcher.FUNCTION, source))
        words = self.owner.row(0, self.owner.shape(source, n), row)
        self._row(launcher_source(), 1, 1, words)

    def _pad(self, *_: Any) -> bool:
        return False


class CudaGraph:
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
        self._graphs: dict[bytes, CudaGraph] = {}  # by the words, those used last at the end
        self._checks: list[int] = []
        self._rows: Any = 0  # the block in which the rows of the table lie
        super().__init__(batch, structure, 1)  # every launch that is saved counts
        self.sources += [source for _, source in self._kernels]

    def _laid_out(self, batch: Sequence[Any], structure: Structure, least: int) -> PlanLowering:
        made = GpuPlanLowering(batch, structure, least, self.owner)
        made.limits = Limits(PARTS, self.owner.shared - PARTS_BYTES)
        made.build()
        self._kernels, self.checked, self._calls = made.kernels, made.checked, made.calls
        self._table_at, self._table_words = made.table_at, len(made.table)
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
        self._steps_at = [position for position, _ in self._links]
        super().finish()

    def expect(self, nodes: Sequence[tuple[Recipe, Any]]) -> None:
        """Give the nodes that can fail words to tell what they find."""
        stream = gpu.current_stream(self.owner.index)
        self._checks = [
            self.owner.checks.expect(recipe, call_site, stream) for recipe, call_site in nodes
        ]

    def _compiled_run(self) -> None:
        """None: launches are looked at here."""

    def prepare(self, externals: list[tuple[Any, int]]) -> list[Any]:
        """Blocks for the held values, in the table like all addresses of a run."""
        self.status[4] = 0
        blocks = [
            self._allocate(size) if taken < 0 else externals[taken][0].address
            for taken, size, _ in self._table.blocks
        ]
        if self._table_words:
            self._rows = self._allocate(8 * self._table_words)
        write_addresses(self._table, externals, [*blocks, *self._checks, self._rows])
        return blocks

    def _settle_down(self) -> None:
        """The arena is a new block at every run: others on the stream may still use the last one."""

    def _arena(self) -> Any:
        return self._allocate(self.arena) if self.arena else 0

    def _allocate(self, size: int) -> Any:
        return self.owner.pool.allocate(size)

    def _go(self, sites: Sequence[CallSite | None] | None, then: Calls) -> None:
        """Launch all kernels on the current stream."""
        owner = self.owner
        owner.use_current_stream()
        if self._table_words:
            owner.copy_table(self._rows, self._stream + 8 * self._table_at, self._table_words)
            self._rows = 0  # what comes later on this stream may have the block
        if sites is not None and profile.active is not None:
            times = owner.run_timed([self._stream + 8 * at for at in self._steps_at], then)
            profile.active.keep(profile.active.notes_of(self), times, sites, owner.place)
            return
        graph = self._graph() if self.steps > WORTH_A_GRAPH else 0
        if graph:
            words = array("q", owner.put_on_stream("cuGraphLaunch", graph))
            has_run = partial(setitem, self.status, 4, 1)
            owner.launch(words.buffer_info()[0], 1, chain(then, (has_run,)))
        else:
            owner.launch(self._stream, self.steps, then)

    def _graph(self) -> int:
        """The handle of the graph for the words as they are; 0 if there is none yet."""
        words = self.words[: self._table_at].tobytes()
        found = self._graphs.pop(words, None) or CudaGraph(self.owner)
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
        before = owner.stream_word[0]
        try:
            owner.stream_word[0] = owner.capture_stream
            owner.driver.begin_capture(owner.capture_stream)
            owner.launch(self._stream, self.steps, ())
        except BaseException:
            self.status[4] = 0  # nothing has run, whatever its last step says
            with suppress(RuntimeError):  # it may not have begun
                owner.driver.end_capture(owner.capture_stream)
            raise
        finally:
            owner.stream_word[0] = before
        self.status[4] = 0
        return owner.driver.end_capture(owner.capture_stream)

    def failed_node(self) -> int:
        """-1: what a kernel finds is known once somebody waits for it."""
        return -1
