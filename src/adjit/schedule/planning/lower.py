"""Lowering a plan: the order of its tasks and the words of their steps; see `memory.py` for places."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ... import devices, dtypes
from ...shapes import contiguous_strides, extent
from ...storage import size_class
from ..codegen import fused, row_kernels
from ..fusion.conv_epilogue import with_finishes
from ..fusion.groups import Fusion, Item, Read, Task
from ..fusion.product_epilogue import with_activations
from ..fusion.row_groups import Limits, is_plain, steps_in
from ..graph_key import Structure, reads_of
from ..jit.cache import instantiate
from .memory import MemoryPlan, MemorySlot
from .recipe import IN_PLACE, Operand, Recipe, Source, Step
from .step_info import OperandInfo, StepInfo, copy_info, node_infos


class PlanLowering:
    """Lays out one plan: the order of its tasks, where its values lie, its words."""

    limits = Limits()
    worth_a_copy = 1 << 14  # bytes that are copied in the time that a plan saves a node

    def __init__(self, batch: Sequence[Any], structure: Structure, least: int) -> None:
        self.structure = structure
        self.least = least
        self.externals = structure.externals
        self.words: list[int] = []
        self.open: list[tuple[int, MemorySlot]] = []
        self.links: list[tuple[int, Source]] = []
        self.sources: list[Source] = []
        self.owners: list[int] = []
        self.notes: list[StepInfo] = []  # one for each step
        self.large = False
        self.results: list[tuple[int, tuple[int, ...]]] = []
        self.external_sizes = [0] * len(self.externals)
        self.external_bytes = [0] * len(self.externals)  # from the first to the last that is read
        self.numbered: list[int] = []
        self.padded: dict[int, int] = {}
        self.specs: list[Any] = []  # of the values
        self.values: list[list[int]] = []  # of the nodes
        self.items: list[Item] = []
        self.order: list[Task] = []
        self._number_start: dict[int, int] = {}
        self._number(batch)

    @property
    def is_worth_it(self) -> bool:
        """Whether it fuses something, or copies less than it saves: dispatching writes over more."""
        is_fused = any(len(task.everything) > 1 for task in self.order)
        return is_fused or self.memory.copied <= self.worth_a_copy * len(self.items)

    def _number(self, batch: Sequence[Any]) -> None:
        """Nodes as items, with numbers for the values that they read and write."""
        numbers = self.structure.numbers
        count = 0
        for at, node in enumerate(batch):
            recipe = node.recipe
            reads = []
            for spec, (source, offset) in zip(recipe.inputs, reads_of(node, numbers), strict=True):
                if source >= 0:
                    reads.append(Read(self.values[source][0], offset))
                    continue
                reads.append(Read(source, offset))
                self.external_sizes[~source] = spec.dtype.itemsize
                nbytes = recipe.spec.nbytes if recipe.write else spec.extent * spec.dtype.itemsize
                self.external_bytes[~source] = max(self.external_bytes[~source], nbytes)
            if recipe.pick >= 0:
                self.values.append([self.values[node.inputs[0].at][recipe.pick]])
                continue
            writes = tuple(range(len(self.specs), len(self.specs) + len(recipe.outputs)))
            self.specs += recipe.outputs
            self.values.append(list(writes))
            self.items.append(Item(recipe, tuple(reads), writes, at))
            if node.scalars:
                self.numbered.append(at)
                self._number_start[at] = count
                count += len(node.scalars)

    def build(self) -> None:
        """Order the tasks, place the values, write the words."""
        self.held = {v for at in self.structure.held for v in self.values[at]}
        items = with_activations(self.items, self.held, self._takes_activation)
        items = with_finishes(items, self.held)
        tasks = Fusion(items, self.held, self.least, self.limits).form()
        self.order = _ordered(tasks)
        self.memory = MemoryPlan(
            self.order, self.held, self.specs, self.structure.donated, self.external_bytes,
            {k: self.values[at][0] for k, at in self.structure.homes.items()},
        )  # fmt: skip
        for position, task in enumerate(self.order):
            self._emit(position, task)
        self._mark_end()
        for at in self.structure.held:
            numbers = tuple([self.memory.places[v].at for v in self.values[at]])
            self.results.append((at, numbers))

    def _takes_activation(self, recipe: Recipe) -> bool:
        """Whether a product is computed by what can do its activation, too."""
        return True

    @staticmethod
    def _read_once(item: Item, read: Read) -> bool:
        """Whether a node reads a value at one place alone: it would see elsewhere what it writes over it."""
        return [other.value for other in item.reads].count(read.value) == 1

    # ----- words -----

    def _row(self, source: Source, n: int, grain: int, row: Sequence[Any], owner: int = -1) -> None:
        """One step; the row is made of words and places."""
        self.sources.append(source)
        self.links.append((len(self.words), source))
        self.words += (0, n, grain, len(row))
        self.owners.append(owner)
        self.large = self.large or n >= 2 * grain
        self._append(row)

    def _append(self, row: Sequence[Any]) -> None:
        """Words, and places whose addresses are known when the plan runs."""
        for word in row:
            if word.__class__ is MemorySlot:
                self.open.append((len(self.words), word))
                self.words.append(0)
            else:
                self.words.append(word)

    def _numbers(self, item: Item) -> list[MemorySlot]:
        """The places of the Python numbers of a node."""
        start = self._number_start.get(item.node)
        if start is None:
            return []
        return [MemorySlot("number", start + k) for k in range(item.recipe.scalars)]

    def _address(self, read: Read, itemsize: int) -> MemorySlot:
        place = self.memory.place(read.value)
        return place._replace(extra=place.extra + read.offset * itemsize)

    def _emit(self, position: int, task: Task) -> None:
        """The steps of a task."""
        if len(task.everything) > 1:
            if not any(
                v in self.memory.stored for i in [*task.items, *task.folds] for v in i.writes
            ):
                pass  # other groups compute all of it again
            elif task.row_group is not None:
                self._emit_row_group(position, task)
            else:
                self._emit_group(position, task)
        elif task.everything[0].recipe.write:
            self._emit_write(position, task.items[0])
        else:
            self._emit_kernel(position, task.everything[0])
        self.memory.release(position, task)

    def _emit_kernel(self, position: int, item: Item) -> None:
        recipe = item.recipe
        given = [
            self._address(read, spec.dtype.itemsize)
            for read, spec in zip(item.reads, recipe.inputs, strict=True)
        ]
        first = item.reads[0] if item.reads else None
        if (
            recipe.alias is not None
            and first is not None
            and not first.offset
            and self._read_once(item, first)
            and self.memory.reuse(item.writes[0], first.value, position)
        ):
            recipe = recipe.alias
        for v, read in zip(item.writes[: recipe.over], item.reads, strict=False):
            if self._read_once(item, read):
                self.memory.reuse(v, read.value, position)
        made = [self.memory.place(v) for v in item.writes]
        spare = []
        if recipe.scratch:
            spare.append(self.memory.scratch(recipe.scratch))
        late = len(given) - recipe.late
        row: list[Any] = [*given[:late], *made, *spare]
        if recipe.fallible is not None:
            row.append(MemorySlot("status", 0))
        row += recipe.constants
        row += given[late:]
        row += self._numbers(item)
        owner = item.node if recipe.fallible is not None else -1
        reads = zip(given, [read.value for read in item.reads], strict=True)
        writes = zip(made, item.writes, strict=True)
        self.notes += node_infos(recipe, (*item.others, item.node), reads, writes, spare)
        self._kernel_rows(recipe, row, owner)

    def _kernel_rows(self, recipe: Recipe, row: Sequence[Any], owner: int = -1) -> None:
        """The steps of a recipe, all over one row; `owner` is the node, if they can fail."""
        for step in recipe.steps:
            self._row(step.source, step.n, step.grain, row, owner)

    def _group_row(
        self, step: Step, row: Sequence[Any], constants: tuple[int, ...],
        operands: Sequence[Operand], shape: Sequence[int],
    ) -> None:  # fmt: skip
        """The step of a fused kernel; `constants` are a part of its row."""
        self._row(step.source, step.n, step.grain, row)

    def _copy_row(self, old: MemorySlot, fresh: MemorySlot, nbytes: int) -> None:
        """A copy of bytes."""
        self._row(copy_words(), (nbytes + 7) // 8, 1 << 15, [old, fresh])

    def _emit_write(self, position: int, item: Item) -> None:
        """A write into a part of an old value: in its memory if it is read no more, else a copy."""
        recipe, (target, source), v = item.recipe, item.reads, item.writes[0]
        size = recipe.inputs[0].dtype.itemsize
        old = self.memory.place(target.value)
        if recipe.write == IN_PLACE:
            raise ValueError("a write into shared memory cannot be planned")
        if not (self._read_once(item, target) and self.memory.reuse(v, target.value, position)):
            fresh = self.memory.place(v)
            self._copy_row(old, fresh, recipe.spec.nbytes)
            self.notes.append(
                copy_info(copy_words(), recipe.spec, item.node, (old, target.value), (fresh, v))
            )
        step, into = recipe.steps[0], self.memory.place(v)
        into = into._replace(extra=into.extra + target.offset * size)
        other = self._address(source, recipe.inputs[1].dtype.itemsize)
        self._kernel_rows(recipe, [other, into, *recipe.constants])
        self.notes.append(
            copy_info(step.source, recipe.inputs[1], item.node, (other, source.value), (into, v))
        )

    def _emit_group(self, position: int, task: Task) -> None:
        """One fused kernel."""
        copies = {id(item) for item in task.copies}
        shape = task.shape or (task.numel,)
        members: list[fused.GroupMember] = []
        given = _Given()
        made: dict[int, str] = {}
        outputs: list[Operand] = []
        out_values: list[int] = []
        for item in task.everything:
            element = item.recipe.fusion.element
            if element is None:
                continue
            arguments = self._arguments(
                item, given, made, lambda s, e=element: _strides_in(s, e.shape, shape)
            )
            targets = []
            for operand, v in zip(element.outputs, item.writes, strict=True):
                assert operand.strides is not None
                made[v] = f"v{len(made)}"
                targets.append(made[v])
                if v in self.memory.stored and id(item) not in copies:
                    strides = _strides_in(operand.strides, element.shape, shape)
                    outputs.append(Operand(made[v], operand.dtype, strides))
                    out_values.append(v)
            members.append(fused.GroupMember(item.recipe.name, element, arguments, tuple(targets)))
        sums = []
        for item in task.folds:
            assert item.recipe.fusion.fold is not None
            sums.append(fused.FusedSum(made[item.reads[0].value], item.recipe.fusion.fold))
            out_values += item.writes
        taken, row = self._taken(given, shape)
        padded = not sums and self._pad(task, given.values, given.reads, outputs)
        over: dict[str, str] = {}
        if not padded:
            over = self._reused_in_place(
                position, task, given.values, given.reads, outputs, out_values
            )
        row += [self.memory.place(v) for v in out_values]
        names = [o.name for o in outputs] + [f"sum{k}" for k in range(len(sums))]
        step, constants = fused.kernel(
            members, [*given.values, *given.numbers], outputs, sums, shape, over, padded,
            on_host=task.everything[0].recipe.device is devices.CPU,
        )  # fmt: skip
        row += [*constants, *given.number_places]
        self._group_row(step, row, constants, [*given.values, *outputs], shape)
        self._describe(step.source, task, taken, names, out_values)

    def _emit_row_group(self, position: int, task: Task) -> None:
        """One kernel that goes row by row."""
        row_group = task.row_group
        assert row_group is not None
        copies = {id(item) for item in task.copies}
        parts: list[row_kernels.Part] = []
        given = _Given()
        made: dict[int, str] = {}
        outputs: list[Operand] = []
        out_values: list[int] = []
        columns: list[int] = []
        for item in task.everything:
            recipe = item.recipe
            if recipe.fusion.element is not None:
                is_of_rows = recipe.spec.numel == row_group.rows
                arguments = self._arguments(
                    item, given, made,
                    lambda s, e=recipe.fusion.element, r=is_of_rows: steps_in(s, e.shape, row_group, r),
                )  # fmt: skip
            else:
                letters = recipe.fusion.row.row.inputs if recipe.fusion.row is not None else "e"
                arguments = tuple(
                    made.get(read.value)
                    or given.value(read, spec.dtype, (row_group.width if letter == "e" else 0, 1))
                    for read, spec, letter in zip(item.reads, recipe.inputs, letters, strict=True)
                )
            targets = []
            for v in item.writes:
                made[v] = f"v{len(made)}"
                targets.append(made[v])
                if recipe.fusion.fold is not None and not recipe.fusion.fold.by_rows:
                    columns.append(v)
                elif v in self.memory.stored and id(item) not in copies:
                    steps = (
                        (1, 0) if self.specs[v].numel == row_group.rows else (row_group.width, 1)
                    )
                    outputs.append(Operand(made[v], self.specs[v].dtype, steps))
                    out_values.append(v)
            if recipe.fusion.element is not None:
                parts.append(
                    fused.GroupMember(
                        recipe.name, recipe.fusion.element, arguments, tuple(targets), is_of_rows
                    )
                )
            elif recipe.fusion.fold is not None:
                parts.append(row_kernels.RowSum(arguments[0], targets[0], recipe.fusion.fold))
            elif recipe.fusion.row is not None:
                numbers = [
                    given.number(recipe.fusion.row.kind, place) for place in self._numbers(item)
                ]
                parts.append(
                    row_kernels.RowFunction(
                        recipe.fusion.row, (*arguments, *numbers), tuple(targets)
                    )
                )
        taken, row = self._taken(given, row_group)
        over = self._reused_in_place(position, task, given.values, given.reads, outputs, out_values)
        out_values += columns
        row += [self.memory.place(v) for v in out_values]
        step, constants = row_kernels.kernel(
            parts, [*given.values, *given.numbers], outputs, row_group, over, self.limits
        )
        row += [*constants, *given.number_places]
        self._group_row(step, row, constants, outputs, row_group)
        self._describe(step.source, task, taken, [made[v] for v in out_values], out_values)

    def _arguments(
        self, item: Item, given: _Given, made: dict[int, str], strides_in: Callable[..., Any]
    ) -> tuple[str, ...]:
        """The names of what a body reads in its group; `strides_in` gives strides there."""
        element = item.recipe.fusion.element
        assert element is not None
        reads, places = iter(item.reads), iter(self._numbers(item))
        arguments = []
        for operand in element.inputs:
            if operand.strides is None:
                arguments.append(given.number(operand.dtype, next(places)))
                continue
            read = next(reads)
            arguments.append(
                made.get(read.value)
                or given.value(read, operand.dtype, strides_in(operand.strides))
            )
        return tuple(arguments)

    def _taken(self, given: _Given, shape: Sequence[int]) -> tuple[list[OperandInfo], list[Any]]:
        """What a group reads, for people and as the beginning of its words."""
        row: list[Any] = [
            self._address(given.reads[o.name], o.dtype.itemsize) for o in given.values
        ]
        uses = [
            OperandInfo(
                o.name,
                place,
                extent(shape, o.strides or ()) * o.dtype.itemsize,
                given.reads[o.name].value,
            )
            for o, place in zip(given.values, row, strict=True)
        ]
        return uses, row

    def _describe(
        self,
        source: Source,
        task: Task,
        taken: list[OperandInfo],
        names: list[str],
        values: list[int],
    ) -> None:
        """Tell people of the kernel of a group."""
        left = [
            OperandInfo(name, self.memory.place(v), self.specs[v].nbytes, v)
            for name, v in zip(names, values, strict=True)
        ]
        self.notes.append(
            StepInfo(
                source, task.numel, tuple([item.node for item in task.everything]),
                tuple(taken), tuple(left), (), sum([use.nbytes for use in [*taken, *left]]),
            )
        )  # fmt: skip

    def _pad(
        self,
        task: Task,
        operands: Iterable[Operand],
        reads: dict[str, Read],
        outputs: list[Operand],
    ) -> bool:
        """Whether a short loop may run to the end of the last line: no rest, no scalar loop."""
        kind = outputs[0].dtype
        if task.shape is not None or task.numel > fused.MAX_PADDED or not kind.is_floating_point:
            return False
        read = [o for o in operands if any(o.strides or ())]
        if any(o.dtype.itemsize != kind.itemsize for o in [*read, *outputs]):
            return False
        if any(o.dtype.kind != kind.kind or reads[o.name].offset for o in read):
            return False
        outside = [~reads[o.name].value for o in read if reads[o.name].value < 0]
        nbytes = task.numel * kind.itemsize
        if any(self.external_bytes[k] > nbytes for k in outside):
            return False  # another loop reads more from there on
        self.padded |= dict.fromkeys(outside, nbytes)
        return True

    def _reused_in_place(
        self,
        position: int,
        task: Task,
        operands: list[Operand],
        reads: dict[str, Read],
        outputs: list[Operand],
        values: list[int],
    ) -> dict[str, str]:
        """Which outputs take the memory of which operands: each element is read, then written."""
        over: dict[str, str] = {}
        taken: set[int] = set()
        often = [reads[o.name].value for o in operands]
        for output, v in zip(outputs, values, strict=False):
            for o in operands:
                read = reads[o.name]
                fits = (
                    read.value not in taken
                    and often.count(read.value) == 1
                    and not read.offset
                    and o.strides == output.strides
                    and o.dtype.stored == output.dtype.stored
                    and self._is_whole(read, self.specs[v])
                )
                if fits and self.memory.reuse(v, read.value, position):
                    over[output.name] = o.name
                    taken.add(read.value)
                    break
        return over

    def _is_whole(self, read: Read, spec: Any) -> bool:
        """Whether the memory behind a read is as large as that of a result."""
        if read.value < 0:
            return self.external_sizes[~read.value] == spec.dtype.itemsize
        return size_class(self.specs[read.value].nbytes) == size_class(spec.nbytes)

    def _mark_end(self) -> None:
        """The last step says that the plan has run."""
        self._row(mark(), 1, 1, [MemorySlot("status", 32)])
        self.notes.append(StepInfo(mark(), 1, (), (), (), (), 8))


class _Given:
    """What a group reads: values from memory, and Python numbers."""

    def __init__(self) -> None:
        self.reads: dict[str, Read] = {}
        self.numbers: list[Operand] = []
        self.number_places: list[MemorySlot] = []
        self._operands: dict[Any, Operand] = {}

    @property
    def values(self) -> list[Operand]:
        return [*self._operands.values()]

    def value(self, read: Read, kind: dtypes.dtype, strides: tuple[int, ...]) -> str:
        """The name of a value that is read with these strides."""
        key = read, strides
        if key not in self._operands:
            self._operands[key] = Operand(f"x{len(self._operands)}", kind, strides)
            self.reads[self._operands[key].name] = read
        return self._operands[key].name

    def number(self, kind: dtypes.dtype, place: MemorySlot) -> str:
        """The name of a Python number."""
        name = f"k{len(self.numbers)}"
        self.numbers.append(Operand(name, kind, None))
        self.number_places.append(place)
        return name


def _strides_in(
    strides: tuple[int, ...], shape: Sequence[int], loop: tuple[int, ...]
) -> tuple[int, ...]:
    """The strides of an operand in the shape of the group's loop, which has as many elements."""
    if tuple(shape) == loop:
        return strides
    if is_plain(strides, shape):
        return tuple(contiguous_strides(loop))
    return (0,) * len(loop)


def _ordered(tasks: list[Task]) -> list[Task]:
    """Tasks after those that they need, else in the order in which they were recorded."""
    waiting = {task: len(task.needs) for task in tasks}
    after: dict[Task, list[Task]] = {}
    for task in tasks:
        for before in task.needs:
            after.setdefault(before, []).append(task)
    position = {task: task.first for task in tasks}
    ready = [(position[t], k, t) for k, t in enumerate(tasks) if not waiting[t]]
    heapq.heapify(ready)
    order: list[Task] = []
    count = len(tasks)
    while ready:
        _, _, task = heapq.heappop(ready)
        order.append(task)
        for later in after.get(task, ()):
            waiting[later] -= 1
            if not waiting[later]:
                count += 1
                heapq.heappush(ready, (position[later], count, later))
    if len(order) != len(tasks):
        raise RuntimeError("the groups of a plan depend on each other")
    return order


def copy_words() -> Source:
    """The kernel that copies whole words."""
    from ...kernels.ops import fill

    return instantiate(fill.copy_words, {"I": dtypes.int64})


def mark() -> Source:
    """The kernel that sets a word to 1."""
    from ...kernels.ops import fill

    return instantiate(fill.mark, {"I": dtypes.int64})
