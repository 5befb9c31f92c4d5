"""Groups: which recorded nodes become one kernel.

Elementwise nodes over the same elements join the group of a value they read, or of a node that
reads the same value; the first pass of a sum joins the group that computes what it sums. Where it
sums the rows of a row group, what is computed from the sums, row by row, joins the group too. A group
runs at one point of time, so nothing may join it that depends on it by a detour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...shapes import numel
from ..planning.recipe import Element, Recipe, Reduction
from .loops import repetitions
from .row_groups import (
    MAX_WIDTH,
    MAX_WORK,
    Limits,
    RowGroup,
    fits,
    is_plain,
    is_shared_out,
    row_group_of,
    steps_of,
    work_of,
)

MAX_COPIES = 12  # bodies that are run again for one value
MAX_MEMBERS = 128  # bodies in one kernel, so that it compiles in about a second
# Results of so many elements that one loop writes: with more, stores wait for memory. relu of 4M float32, 20
# times over, takes 10.4 ms for 23.
MOST_RESULTS, MANY_ELEMENTS = 12, 1 << 15
FLAT = ("sum", "squares")  # that a loop over all elements can take


class Read(NamedTuple):
    """What a node reads: a value, and from which element on."""

    value: int  # negative numbers are values from outside
    offset: int


class Item(NamedTuple):
    """A recorded node by numbers."""

    recipe: Recipe
    reads: tuple[Read, ...]
    writes: tuple[int, ...]  # values
    node: int  # its position in the batch
    others: tuple[int, ...] = ()  # earlier nodes that it stands for too


class Task:
    """Items that run together, and the tasks that must have run before."""

    __slots__ = (
        "barred",
        "copies",
        "first",
        "folds",
        "into",
        "items",
        "last",
        "needs",
        "numel",
        "repetition",
        "row_group",
        "shape",
    )  # fmt: skip

    def __init__(self, item: Item, repetition: int) -> None:
        is_fold = item.recipe.fusion.fold is not None
        self.items = [] if is_fold else [item]
        self.folds = [item] if is_fold else []
        self.copies: list[Item] = []  # items of other groups, computed again instead of read
        self.repetition = repetition  # the repetition of a loop that it belongs to
        self.needs: set[Task] = set()
        self.barred: set[Task] = set()  # those of them whose values it reads in another order
        self.into: Task | None = None  # what it was merged into
        self.first = self.last = item.node  # when its items were recorded
        element = item.recipe.fusion.element
        self.shape: tuple[int, ...] | None = None  # None where every operand is contiguous
        self.row_group: RowGroup | None = None  # what it goes through row by row
        self.numel = 0
        if element is not None:
            self.numel = item.recipe.spec.numel
            self.shape = None if is_flat(element) else tuple(element.shape)

    @property
    def everything(self) -> list[Item]:
        """All that the task computes, in the order in which it was recorded."""
        return sorted([*self.items, *self.copies, *self.folds], key=lambda item: item.node)

    def found(self) -> Task:
        """The task that this one has become."""
        task = self
        while task.into is not None:
            task = task.into
        return task


def is_flat(element: Element) -> bool:
    """Whether one index runs through all operands."""
    return all(
        o.strides is None or not any(o.strides) or is_plain(o.strides, element.shape)
        for o in [*element.inputs, *element.outputs]
    )


class Fusion:
    """Forms the tasks of one plan.

    Args:
        items: in the order in which they were recorded.
        held: the values that somebody looks at.
        least: elements below which an item stays alone.
        limits: what groups that go row by row have to keep to.
    """

    def __init__(self, items: Sequence[Item], held: set[int], least: int, limits: Limits) -> None:
        self.items, self.held, self.least, self.limits = items, held, least, limits
        self._producers: dict[int, tuple[Task, Item]] = {}  # of each value
        self._readers: dict[Any, Task] = {}  # the last group that reads a value from outside
        self._tasks: list[Task] = []

    def form(self) -> list[Task]:
        """Every item in one task."""
        names = [id(item.recipe) for item in self.items]
        for item, repetition in zip(self.items, repetitions(names, MAX_MEMBERS // 2), strict=True):
            task = self._task_of(item, repetition)
            for value in item.writes:
                self._producers[value] = task, item
        tasks = [part for task in self._tasks if task.into is None for part in self._parts(task)]
        for task in tasks:
            task.needs = {before.found() for before in task.needs} - {task}
        self._compute_again(tasks)
        return tasks

    def _parts(self, task: Task) -> list[Task]:
        """A group, or two of it: a sum of rows that lie in memory is quicker in a kernel of its own.

        On a GPU, where another launch takes longer than that saves, it stays with what is computed of it.
        """
        row_group = task.row_group
        if row_group is None or len(task.folds) != 1 or self.limits.room is not None:
            return [task]
        if not task.items or any(i.recipe.spec.numel != row_group.rows for i in task.items):
            return [task]
        (item,) = task.folds
        alone = Task(item, task.repetition)
        alone.needs = {self._producer(r.value)[0] for r in item.reads if r.value >= 0}
        self._producers.update(dict.fromkeys(item.writes, (alone, item)))
        task.folds, task.row_group, task.numel = [], None, row_group.rows
        task.needs.add(alone)
        return [alone, task]

    def _producer(self, value: int) -> tuple[Task, Item]:
        task, item = self._producers[value]
        return task.found(), item

    def _is_fused(self, item: Item) -> bool:
        return item.recipe.fusion.element is not None and item.recipe.spec.numel >= self.least

    def _task_of(self, item: Item, repetition: int) -> Task:
        found = None
        if item.recipe.fusion.element is not None:
            found = self._row_group_below(item, repetition)
        elif item.recipe.fusion.fold is not None:
            found = self._folding(item)
        if found is not None:
            return self._add(found, item)
        if self._is_fused(item) or self._is_row_group(item):
            return self._place(item, repetition)
        task = Task(item, repetition)
        self._tasks.append(task)
        task.needs |= {self._producer(r.value)[0] for r in item.reads if r.value >= 0}
        return task

    def _is_row_group(self, item: Item) -> bool:
        """Whether a group that goes row by row may begin with an item."""
        fold = item.recipe.fusion.fold
        if row_group_of(item.recipe) is None or item.recipe.inputs[0].numel < self.least:
            return False
        return fold is None or fold.by_rows

    def _add(self, task: Task, item: Item) -> Task:
        """Let an item join a group that computes what it reads."""
        (task.items if item.recipe.fusion.fold is None else task.folds).append(item)
        task.needs |= {self._producer(r.value)[0] for r in item.reads if r.value >= 0} - {task}
        task.last = item.node
        return task

    def _place(self, item: Item, repetition: int) -> Task:
        """The group of an item that others may join, several groups merged where it joins them."""
        fresh = Task(item, repetition)
        if (row_group := row_group_of(item.recipe)) is not None:
            fresh.row_group, fresh.numel = row_group, row_group.numel
        friends: list[Task] = []
        siblings = []
        for read, stride, shape in _walks(item):
            if read.value >= 0:
                task = self._producer(read.value)[0]
                fresh.needs.add(task)
                if self._is_same(read, stride, shape) or self._is_spread(read, stride, shape):
                    friends.append(task)
                else:
                    fresh.barred.add(task)
            elif any(stride):
                key = (read, None if is_plain(stride, shape) else stride, fresh.numel)
                siblings.append(key)
                if key in self._readers:
                    friends.append(self._readers[key].found())
        group = fresh
        self._tasks.append(fresh)
        for friend in dict.fromkeys(reversed(friends)):
            if friend is not group and self._may_merge(friend, group):
                self._merge(friend, group)
                group = friend
        for key in siblings:
            self._readers[key] = group
        return group

    def _may_merge(self, a: Task, b: Task) -> bool:
        """Whether two groups fit into one loop, and neither needs the other by a detour.

        `b` holds the item that reads `a`, if any does: its own need of `a` is no detour.
        """
        if a.numel != b.numel or a.repetition != b.repetition:
            return False
        if len(a.items) + len(b.items) > MAX_MEMBERS:
            return False
        row_group = a.row_group or b.row_group
        if row_group is not None:
            if not (self._may_enter(a, row_group, b) and self._may_enter(b, row_group, a)):
                return False
            if _holds_up(b, a):
                return False
        elif not _share_a_loop(a, b) or not self._can_be_written(a, b):
            return False
        if a in {task.found() for task in b.barred}:
            return False
        others = {task.found() for task in b.needs} - {a, b}
        return not any(_reaches(task, a) for task in others) and not _reaches(a, b)

    def _can_be_written(self, a: Task, b: Task) -> bool:
        """Whether one loop can write what two groups compute and somebody looks at."""
        if a.numel < MANY_ELEMENTS:
            return True
        written = [
            v for task in (a, b) for item in task.items for v in item.writes if v in self.held
        ]
        return len(written) <= MOST_RESULTS

    def _merge(self, into: Task, other: Task) -> None:
        """Make two groups one."""
        into.items += other.items
        into.folds += other.folds
        into.needs |= other.needs
        into.needs -= {into, other}
        into.barred |= other.barred
        into.row_group = into.row_group or other.row_group
        into.shape = None if into.row_group else into.shape or other.shape
        into.first, into.last = min(into.first, other.first), max(into.last, other.last)
        other.into = into

    def _is_same(self, read: Read, stride: Sequence[int], shape: Sequence[int]) -> bool:
        """Whether element i of a reader is element i of the value, which a group computes."""
        made = self._made(read)
        if made is None or read.offset:
            return False
        strides, made_shape = made
        if is_plain(stride, shape) and is_plain(strides, made_shape):
            return numel(shape) == numel(made_shape)
        return tuple(made_shape) == tuple(shape) and tuple(strides) == tuple(stride)

    def _made(self, read: Read) -> tuple[Sequence[int], Sequence[int]] | None:
        """How a group walks along a value that it computes: strides and shape."""
        task, item = self._producer(read.value)
        k, element = item.writes.index(read.value), item.recipe.fusion.element
        if element is not None and self._is_fused(item):
            return element.outputs[k].strides or (), element.shape
        if item.recipe.fusion.row is not None and task.row_group is not None:
            return (1,), (item.recipe.outputs[k].numel,)
        return None

    # ----- sums -----

    def _may_enter(self, task: Task, row_group: RowGroup, other: Task) -> bool:
        """Whether a group can run in a row group, together with another one there."""
        if task.numel != row_group.numel:
            return False
        if task.row_group != row_group and not (
            task.row_group is None and not task.folds and _fits(task.items, row_group)
        ):
            return False
        if _work(task, other) > MAX_WORK or not self._has_room(row_group, task, other):
            return False
        folds = _folds([*task.folds, *other.folds])
        columns = [fold for fold in folds if not fold.by_rows]
        if any(fold.words != columns[0].words for fold in columns):
            return False
        if not columns or is_shared_out(columns[0], row_group.numel, self.limits.parts):
            return True
        return len(columns) == len(folds) and all(
            t.recipe.fusion.row is None for t in [*task.items, *other.items]
        )

    def _has_room(self, row_group: RowGroup, *tasks: Task, more: Sequence[Item] = ()) -> bool:
        """Whether the values of a row have room while they wait for its sums, be it all of them."""
        if self.limits.room is None:
            return True
        items = [*more, *(item for t in tasks for item in [*t.items, *t.copies])]
        specs = [spec for item in items for spec in item.recipe.outputs]
        columns = [f for t in tasks for f in _folds(t.folds) if not f.by_rows]
        each = sum([spec.dtype.itemsize for spec in specs if spec.numel == row_group.numel])
        each += 3 * sum([fold.given.itemsize for fold in columns])  # of four rows
        return each * (min(row_group.width, MAX_WIDTH) + 15) <= self.limits.room

    def _folding(self, item: Item) -> Task | None:
        """The group that computes what an item sums, if the sum may join it."""
        read, fold = item.reads[0], item.recipe.fusion.fold
        assert fold is not None
        size = item.recipe.inputs[0].numel
        if read.value < 0 or not self._is_same(read, (1,), (size,)):
            return None
        task, row_group = self._producer(read.value)[0], row_group_of(item.recipe)
        if task.numel != size:
            return None
        if row_group is not None and self._may_enter(task, row_group, Task(item, task.repetition)):
            task.row_group, task.shape = row_group, None
            return task
        is_flat = task.row_group is None and task.shape is None and fold.how in FLAT
        return task if is_flat and {f.words for f in _folds(task.folds)} <= {fold.words} else None

    def _is_of_rows(self, read: Read) -> bool:
        """Whether a value has one element for each row of a row group that computes it."""
        task, source = self._producer(read.value)
        if task.row_group is None or read.offset:
            return False
        fold, made = (
            source.recipe.fusion.fold,
            source.recipe.outputs[source.writes.index(read.value)],
        )
        return made.numel == task.row_group.rows and (fold is None or fold.by_rows)

    def _is_spread(self, read: Read, stride: Sequence[int], shape: Sequence[int]) -> bool:
        """Whether a reader over a row group takes the one element that the row group has for a row."""
        row_group = self._producer(read.value)[0].row_group
        if row_group is None or numel(shape) != row_group.numel or not self._is_of_rows(read):
            return False
        return steps_of(stride, shape, row_group) == ((1, 0) if row_group.rows > 1 else (0, 0))

    def _row_group_below(self, item: Item, repetition: int) -> Task | None:
        """The row group from whose sums of rows an item computes one element a row."""
        reads = [read for read in item.reads if read.value >= 0]
        producers = [self._producer(read.value)[0] for read in reads]
        row_groups = [m for m, r in zip(producers, reads, strict=True) if self._is_of_rows(r)]
        if not row_groups:
            return None
        task = max(row_groups, key=lambda made: made.last)
        element, size = item.recipe.fusion.element, item.recipe.spec.numel
        assert element is not None
        assert task.row_group is not None
        if size != task.row_group.rows or not fits(element, size, task.row_group):
            return None
        if task.repetition != repetition or _work(task) >= MAX_WORK:
            return None
        for producer, read in zip(producers, reads, strict=True):
            if not self._is_of_rows(read) if producer is task else _reaches(producer, task):
                return None
        return task

    # ----- cheap values -----

    def _compute_again(self, tasks: list[Task]) -> None:
        """Let groups compute cheap values of other groups again, where that saves storing them."""
        stored = set(self.held)
        readers: dict[int, set[Task]] = {}
        for task in tasks:
            for item in task.everything:
                walks = _walks(item) if self._is_fused(item) or task.row_group is not None else []
                same = {w[0] for w in walks if w[0].value >= 0 and self._is_same(*w)}
                for read in item.reads:
                    if read.value < 0 or self._producer(read.value)[0] is task:
                        continue
                    readers.setdefault(read.value, set()).add(task)
                    if read not in same:
                        stored.add(read.value)
        for value in sorted(readers, reverse=True):
            if value in stored:
                continue
            home = self._producer(value)[0]
            copies = self._cheap_way(value, home, stored)
            if copies is None or not all(
                _may_copy(copies, task)
                and (task.row_group is None or self._has_room(task.row_group, task, more=copies))
                for task in readers[value]
            ):
                stored.add(value)
                continue
            for task in readers[value]:
                known = {item.node for item in [*task.items, *task.copies]}
                task.copies += [item for item in copies if item.node not in known]

    def _cheap_way(self, value: int, home: Task, stored: set[int]) -> list[Item] | None:
        """The bodies that give a value from stored ones, None if that is not cheap."""
        found: dict[int, Item] = {}
        stack = [value]
        while stack:
            task, item = self._producer(stack.pop())
            if item.node in found:
                continue
            element = item.recipe.fusion.element
            if element is None or task is not home or len(item.writes) > 1:
                return None
            if len(found) == MAX_COPIES or not element.body.is_cheap:
                return None
            found[item.node] = item
            stack += [r.value for r in item.reads if r.value >= 0 and r.value not in stored]
        return [found[node] for node in sorted(found)]


def _walks(item: Item) -> list[tuple[Read, Sequence[int], Sequence[int]]]:
    """What an item reads, each with the strides and the shape in which it does."""
    recipe = item.recipe
    if recipe.fusion.element is not None:
        strides = [o.strides for o in recipe.fusion.element.inputs if o.strides is not None]
        return [
            (r, s, recipe.fusion.element.shape) for r, s in zip(item.reads, strides, strict=True)
        ]
    row_group = row_group_of(recipe)
    if row_group is None:
        return []
    letters = recipe.fusion.row.row.inputs if recipe.fusion.row is not None else "e"
    reads = list(zip(item.reads, letters, strict=True))
    whole = [read for read, letter in reads if letter == "e"]
    by_columns = [read for read, letter in reads if letter == "c" and read not in whole]
    return [
        *((read, (1,), (row_group.numel,)) for read in whole),
        *((read, (0, 1), row_group) for read in by_columns),
    ]


def _folds(items: Sequence[Item]) -> list[Reduction]:
    """What fusion knows of sums."""
    return [item.recipe.fusion.fold for item in items if item.recipe.fusion.fold is not None]


def _work(*tasks: Task) -> int:
    """What compiling a row group of these groups costs."""
    return sum(work_of(item.recipe) for t in tasks for item in [*t.items, *t.folds])


def _share_a_loop(a: Task, b: Task) -> bool:
    """Whether two groups, neither of them a row group, walk along their operands in the same way."""
    if (a.folds and b.shape is not None) or (b.folds and a.shape is not None):
        return False
    if len({fold.words for fold in _folds([*a.folds, *b.folds])}) > 1:
        return False
    return a.shape is None or b.shape is None or a.shape == b.shape


def _fits(items: Sequence[Item], row_group: RowGroup) -> bool:
    """Whether bodies can run in a row group."""
    elements = [(item.recipe.fusion.element, item.recipe.spec.numel) for item in items]
    return all(element is not None and fits(element, n, row_group) for element, n in elements)


def _may_copy(bodies: Sequence[Item], task: Task) -> bool:
    """Whether bodies of another group can run in the loop of this one."""
    if task.row_group is not None:
        return _fits(bodies, task.row_group)
    elements = [item.recipe.fusion.element for item in bodies]
    return all(
        item.recipe.spec.numel == task.numel and (is_flat(e) or tuple(e.shape) == task.shape)
        for item, e in zip(bodies, elements, strict=True)
        if e is not None
    )


def _holds_up(task: Task, earlier: Task) -> bool:
    """Whether a task waits for work that is no group, a product say, recorded after an earlier one.

    Together they would leave what reads the earlier one waiting too, until the caches have lost it:
    attention takes 2 % longer if softmax runs when its gradient does.
    """
    seen, stack = {earlier}, [task]
    while stack:
        for before in stack.pop().needs:
            found = before.found()
            if found.last > earlier.last and found not in seen:
                if not found.numel:
                    return True
                seen.add(found)
                stack.append(found)
    return False


def _reaches(task: Task, goal: Task) -> bool:
    """Whether a task needs another, be it by a detour. Needs lead to what was recorded before."""
    if task is goal:
        return True
    seen = {task}
    stack = [task]
    while stack:
        for before in stack.pop().needs:
            found = before.found()
            if found is goal:
                return True
            if found not in seen and found.last > goal.first:
                seen.add(found)
                stack.append(found)
    return False
