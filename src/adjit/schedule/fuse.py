"""Groups: which recorded nodes become one kernel.

Elementwise nodes over the same elements join the group of a value they read, or of a node that
reads the same value; the first pass of a sum joins the group that computes what it sums. Where it
sums the rows of a sheet, what is computed from the sums, row by row, joins the group too. A group
runs at one point of time, so nothing may join it that depends on it by a detour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .recipe import Element, Fold, Recipe
from .repeats import cells
from .sheet import MAX_WORK, Sheet, fits, is_plain, is_shared_out, sheet_of, steps_of, work_of

MAX_COPIES = 12  # bodies that are run again for one value
MAX_MEMBERS = 128  # bodies in one kernel, so that it compiles in about a second
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


class Task:
    """Items that run together, and the tasks that must have run before."""

    __slots__ = (
        "barred", "cell", "copies", "first", "folds", "into", "items", "last", "needs", "numel",
        "shape", "sheet",
    )  # fmt: skip

    def __init__(self, item: Item, cell: int) -> None:
        self.items = [item]
        self.folds: list[Item] = []
        self.copies: list[Item] = []  # items of other groups, computed again instead of read
        self.cell = cell  # the repetition of a loop that it belongs to
        self.needs: set[Task] = set()
        self.barred: set[Task] = set()  # those of them whose values it reads in another order
        self.into: Task | None = None  # what it was merged into
        self.first = self.last = item.node  # when its items were recorded
        element = item.recipe.element
        self.shape: tuple[int, ...] | None = None  # None where every operand is contiguous
        self.sheet: Sheet | None = None  # what it goes through row by row
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
    """

    def __init__(self, items: Sequence[Item], held: set[int], least: int) -> None:
        self.items, self.held, self.least = items, held, least
        self._makers: dict[int, tuple[Task, Item]] = {}  # of each value
        self._readers: dict[Any, Task] = {}  # the last group that reads a value from outside
        self._tasks: list[Task] = []

    def form(self) -> list[Task]:
        """Every item in one task."""
        names = [id(item.recipe) for item in self.items]
        for item, cell in zip(self.items, cells(names, MAX_MEMBERS // 2), strict=True):
            task = self._task_of(item, cell)
            for value in item.writes:
                self._makers[value] = task, item
        tasks = [task for task in self._tasks if task.into is None]
        for task in tasks:
            task.needs = {before.found() for before in task.needs} - {task}
        self._compute_again(tasks)
        return tasks

    def _maker(self, value: int) -> tuple[Task, Item]:
        task, item = self._makers[value]
        return task.found(), item

    def _is_fused(self, item: Item) -> bool:
        return item.recipe.element is not None and item.recipe.spec.numel >= self.least

    def _task_of(self, item: Item, cell: int) -> Task:
        if item.recipe.element is not None:
            if (found := self._sheet_below(item, cell)) is not None:
                return self._add(found, item)
            if self._is_fused(item):
                return self._place(item, cell)
        elif item.recipe.fold is not None:
            if (found := self._folding(item)) is not None:
                return self._add(found, item)
            if (sheet := self._rows_to_sum(item)) is not None:
                return self._sheet_of_sums(item, sheet, cell)
        task = Task(item, cell)
        self._tasks.append(task)
        task.needs |= {self._maker(r.value)[0] for r in item.reads if r.value >= 0}
        return task

    def _add(self, task: Task, item: Item) -> Task:
        """Let an item join a group that computes what it reads."""
        (task.items if item.recipe.fold is None else task.folds).append(item)
        task.needs |= {self._maker(r.value)[0] for r in item.reads if r.value >= 0} - {task}
        task.last = item.node
        return task

    def _place(self, item: Item, cell: int) -> Task:
        """The group of an elementwise item, several groups merged into one where it joins them."""
        fresh = Task(item, cell)
        friends: list[Task] = []
        siblings = []
        for read, stride in _strided(item):
            if read.value >= 0:
                task, source = self._maker(read.value)
                fresh.needs.add(task)
                if self._same_elements(source, read, stride, item) or self._is_spread(
                    read, stride, item
                ):
                    friends.append(task)
                else:
                    fresh.barred.add(task)
            elif any(stride):
                plain = is_plain(stride, item.recipe.element.shape)  # type: ignore[union-attr]
                key = (read, None if plain else stride, fresh.numel)
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
        if a.numel != b.numel or a.cell != b.cell:
            return False
        if len(a.items) + len(b.items) > MAX_MEMBERS:
            return False
        sheet = a.sheet or b.sheet
        if sheet is not None:
            if not (_may_enter(a, sheet, b) and _may_enter(b, sheet, a)):
                return False
        elif not _share_a_loop(a, b):
            return False
        if a in {task.found() for task in b.barred}:
            return False
        others = {task.found() for task in b.needs} - {a, b}
        return not any(_reaches(task, a) for task in others) and not _reaches(a, b)

    def _merge(self, into: Task, other: Task) -> None:
        """Make two groups one."""
        into.items += other.items
        into.folds += other.folds
        into.needs |= other.needs
        into.needs -= {into, other}
        into.barred |= other.barred
        into.sheet = into.sheet or other.sheet
        into.shape = None if into.sheet else into.shape or other.shape
        into.first, into.last = min(into.first, other.first), max(into.last, other.last)
        other.into = into

    def _same_elements(
        self, source: Item, read: Read, stride: tuple[int, ...], reader: Item
    ) -> bool:
        """Whether element i of the reader is element i of the value, whose maker is elementwise."""
        made, element = source.recipe.element, reader.recipe.element
        if made is None or element is None or read.offset or not self._is_fused(source):
            return False
        strides = made.outputs[source.writes.index(read.value)].strides
        assert strides is not None
        if is_plain(stride, element.shape) and is_plain(strides, made.shape):
            return source.recipe.spec.numel == reader.recipe.spec.numel
        return tuple(made.shape) == tuple(element.shape) and tuple(strides) == tuple(stride)

    # ----- sums -----

    def _folding(self, item: Item) -> Task | None:
        """The group that computes what an item sums, if the sum may join it."""
        read, fold = item.reads[0], item.recipe.fold
        assert fold is not None
        numel = item.recipe.inputs[0].numel
        sheet = sheet_of(fold, numel)
        task = self._computing(read, numel)
        if task is None:
            return None
        if sheet is not None and _may_enter(task, sheet, _alone(item)):
            task.sheet, task.shape = sheet, None
            return task
        is_flat = task.sheet is None and task.shape is None and fold.how in FLAT
        return task if is_flat and {f.words for f in _folds(task.folds)} <= {fold.words} else None

    def _computing(self, read: Read, numel: int) -> Task | None:
        """The group of a value all of whose elements are read in the order in which they lie."""
        if read.value < 0:
            return None
        task, source = self._maker(read.value)
        if read.offset or not self._is_fused(source) or numel != task.numel:
            return None
        made = source.recipe.element
        assert made is not None
        strides = made.outputs[source.writes.index(read.value)].strides
        whole = source.recipe.spec.numel == numel and is_plain(strides or (), made.shape)
        return task if whole else None

    def _rows_to_sum(self, item: Item) -> Sheet | None:
        """The sheet that a sum of rows goes through."""
        fold, numel = item.recipe.fold, item.recipe.inputs[0].numel
        assert fold is not None
        return sheet_of(fold, numel) if fold.by_rows and numel >= self.least else None

    def _sheet_of_sums(self, item: Item, sheet: Sheet, cell: int) -> Task:
        """A sheet for others to join that sums what no group computes, or one that reads it too."""
        task, read = _alone(item, cell), item.reads[0]
        task.sheet, task.numel = sheet, sheet.numel
        self._tasks.append(task)
        if read.value >= 0:
            task.needs.add(self._maker(read.value)[0])
            return task
        key = (read, None, task.numel)
        friend = self._readers.get(key, task).found()
        if friend is not task and self._may_merge(friend, task):
            self._merge(friend, task)
            task = friend
        self._readers[key] = task
        return task

    def _is_of_rows(self, read: Read) -> bool:
        """Whether a value has one element for each row of a sheet that computes it."""
        task, source = self._maker(read.value)
        if task.sheet is None or read.offset:
            return False
        fold = source.recipe.fold
        return source.recipe.spec.numel == task.sheet.rows and (fold is None or fold.by_rows)

    def _is_spread(self, read: Read, stride: tuple[int, ...], item: Item) -> bool:
        """Whether an item over a sheet reads the one element that the sheet has for a row."""
        sheet, element = self._maker(read.value)[0].sheet, item.recipe.element
        if sheet is None or element is None or not self._is_of_rows(read):
            return False
        if item.recipe.spec.numel != sheet.numel:
            return False
        return steps_of(stride, element.shape, sheet) == ((1, 0) if sheet.rows > 1 else (0, 0))

    def _sheet_below(self, item: Item, cell: int) -> Task | None:
        """The sheet from whose sums of rows an item computes one element a row."""
        reads = [read for read in item.reads if read.value >= 0]
        makers = [self._maker(read.value)[0] for read in reads]
        sheets = [m for m, r in zip(makers, reads, strict=True) if self._is_of_rows(r)]
        if not sheets:
            return None
        task = max(sheets, key=lambda made: made.last)
        element, numel = item.recipe.element, item.recipe.spec.numel
        assert element is not None
        assert task.sheet is not None
        if numel != task.sheet.rows or not fits(element, numel, task.sheet):
            return None
        if task.cell != cell or work_of(len(task.items) + 1, len(task.folds)) > MAX_WORK:
            return None
        for maker, read in zip(makers, reads, strict=True):
            if not self._is_of_rows(read) if maker is task else _reaches(maker, task):
                return None
        return task

    # ----- cheap values -----

    def _compute_again(self, tasks: list[Task]) -> None:
        """Let groups compute cheap values of other groups again, where that saves storing them."""
        stored = set(self.held)
        readers: dict[int, set[Task]] = {}
        for task in tasks:
            for item in task.everything:
                strides = dict(_strided(item)) if self._is_fused(item) else {}
                for read in item.reads:
                    if read.value < 0 or self._maker(read.value)[0] is task:
                        continue
                    readers.setdefault(read.value, set()).add(task)
                    source = self._maker(read.value)[1]
                    if read not in strides or not self._same_elements(
                        source, read, strides[read], item
                    ):
                        stored.add(read.value)
        for value in sorted(readers, reverse=True):
            if value in stored:
                continue
            home = self._maker(value)[0]
            copies = self._cheap_way(value, home, stored)
            if copies is None or not all(_may_copy(home, task) for task in readers[value]):
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
            task, item = self._maker(stack.pop())
            if item.node in found:
                continue
            element = item.recipe.element
            if element is None or task is not home or len(item.writes) > 1:
                return None
            if len(found) == MAX_COPIES or not element.body.is_cheap:
                return None
            found[item.node] = item
            stack += [r.value for r in item.reads if r.value >= 0 and r.value not in stored]
        return [found[node] for node in sorted(found)]


def _strided(item: Item) -> list[tuple[Read, tuple[int, ...]]]:
    """What an elementwise item reads, each with its strides."""
    element = item.recipe.element
    assert element is not None
    strides = [o.strides for o in element.inputs if o.strides is not None]
    return list(zip(item.reads, strides, strict=True))


def _folds(items: Sequence[Item]) -> list[Fold]:
    """What fusion knows of sums."""
    return [item.recipe.fold for item in items if item.recipe.fold is not None]


def _alone(item: Item, cell: int = 0) -> Task:
    """A group of one sum."""
    task = Task(item, cell)
    task.items, task.folds = [], [item]
    return task


def _share_a_loop(a: Task, b: Task) -> bool:
    """Whether two groups, neither of them a sheet, walk along their operands in the same way."""
    if (a.folds and b.shape is not None) or (b.folds and a.shape is not None):
        return False
    if len({fold.words for fold in _folds([*a.folds, *b.folds])}) > 1:
        return False
    return a.shape is None or b.shape is None or a.shape == b.shape


def _may_enter(task: Task, sheet: Sheet, other: Task) -> bool:
    """Whether a group can run in a sheet, together with another one there."""
    if task.numel != sheet.numel:
        return False
    if task.sheet != sheet and not (task.sheet is None and not task.folds and _fits(task, sheet)):
        return False
    folds = _folds([*task.folds, *other.folds])
    if work_of(len(task.items) + len(other.items), len(folds)) > MAX_WORK:
        return False
    columns = [fold for fold in folds if not fold.by_rows]
    if any(fold.words != columns[0].words for fold in columns):
        return False
    return len(columns) in (0, len(folds)) or is_shared_out(columns[0], sheet.numel)


def _fits(task: Task, sheet: Sheet) -> bool:
    """Whether the bodies of a group can run in a sheet."""
    elements = [(item.recipe.element, item.recipe.spec.numel) for item in task.items]
    return all(element is not None and fits(element, n, sheet) for element, n in elements)


def _may_copy(home: Task, task: Task) -> bool:
    """Whether a body of one group can run in the loop of another."""
    if home.numel != task.numel or home.sheet is not None:
        return False
    if task.sheet is not None:
        return _fits(home, task.sheet)
    return home.shape is None or home.shape == task.shape


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
