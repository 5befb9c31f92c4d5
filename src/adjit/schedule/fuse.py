"""Groups: which recorded nodes become one kernel.

Elementwise nodes over the same elements join the group of a value they read, or of a node that
reads the same value; the first pass of a sum joins the group that computes what it sums. A group
runs at one point of time, so nothing may join it that depends on it by a detour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..shapes import contiguous_strides
from .recipe import Element, Fold, Recipe

MAX_MEMBERS = 128  # bodies in one kernel, so that it compiles in about a second


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

    __slots__ = ("copies", "folds", "items", "needs", "numel", "shape")

    def __init__(self, item: Item) -> None:
        self.items = [item]
        self.needs: set[Task] = set()
        self.folds: list[Item] = []
        self.copies: list[Item] = []  # items of other groups, computed again instead of read
        element = item.recipe.element
        self.shape: tuple[int, ...] | None = None  # None where every operand is contiguous
        self.numel = 0
        if element is not None:
            self.numel = item.recipe.spec.numel
            self.shape = None if is_flat(element) else tuple(element.shape)

    @property
    def everything(self) -> list[Item]:
        """All that the task computes, in the order in which it was recorded."""
        return sorted([*self.items, *self.copies, *self.folds], key=lambda item: item.node)

    @property
    def position(self) -> int:
        """When the first item was recorded."""
        return min(item.node for item in [*self.items, *self.folds])


def is_flat(element: Element) -> bool:
    """Whether one index runs through all operands."""
    return all(
        o.strides is None or not any(o.strides) or is_plain(o.strides, element.shape)
        for o in [*element.inputs, *element.outputs]
    )


def is_plain(strides: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether elements lie in C order; the strides of axes of size 1 do not matter."""
    dense = contiguous_strides(tuple(shape))
    return all(n == 1 or a == b for n, a, b in zip(shape, strides, dense, strict=True))


def form_tasks(items: Sequence[Item], held: set[int]) -> list[Task]:
    """Every item in one task; `held` are the values that somebody looks at."""
    maker: dict[int, tuple[Task, Item]] = {}
    readers: dict[Any, Task] = {}
    tasks: list[Task] = []
    for item in items:
        if item.recipe.wide:
            task = _place(item, maker, readers, tasks)
        elif item.recipe.fold is not None and (found := _folding(item, maker)) is not None:
            task = found
            task.folds.append(item)
        else:
            task = Task(item)
            tasks.append(task)
            task.needs |= {maker[r.value][0] for r in item.reads if r.value >= 0}
        for value in item.writes:
            maker[value] = task, item
    _compute_again(tasks, maker, held)
    return tasks


def _place(
    item: Item, maker: dict[int, tuple[Task, Item]], readers: dict[Any, Task], tasks: list[Task]
) -> Task:
    """The group of an elementwise item, several groups merged into one where it joins them."""
    element = item.recipe.element
    assert element is not None
    fresh = Task(item)
    strides = [o.strides for o in element.inputs if o.strides is not None]
    friends: list[Task] = []
    needs: set[Task] = set()
    barred: set[Task] = set()
    for read, stride in zip(item.reads, strides, strict=True):
        at: tuple[int, ...] | None = stride
        if is_plain(stride, element.shape):
            at = None
        if read.value >= 0:
            task, source = maker[read.value]
            needs.add(task)
            if _same_elements(source, read, stride, element):
                friends.append(task)
            else:
                barred.add(task)
        elif any(stride) and (sibling := readers.get((read, at, fresh.numel))) is not None:
            friends.append(sibling)
    group: Task | None = None
    for friend in dict.fromkeys(reversed(friends)):
        if friend in barred or not _fits(friend, fresh):
            continue
        if group is None:
            if not any(_reaches(other, friend) for other in needs if other is not friend):
                group = friend
        elif (
            friend is not group
            and _fits(group, friend)
            and not _reaches(group, friend)
            and not _reaches(friend, group)
            and not any(_reaches(other, friend) for other in needs if other is not friend)
        ):
            _merge(group, friend, maker, readers, tasks)
            needs.discard(friend)
    if group is None:
        group = fresh
        tasks.append(group)
    else:
        group.items.append(item)
        group.shape = group.shape or fresh.shape
    group.needs |= needs - {group}
    for read, stride in zip(item.reads, strides, strict=True):
        if read.value < 0 and any(stride):
            at = None if is_plain(stride, element.shape) else stride
            readers[read, at, fresh.numel] = group
    return group


def _same_elements(source: Item, read: Read, stride: tuple[int, ...], element: Element) -> bool:
    """Whether element i of the reader is element i of the value, whose maker is elementwise."""
    made = source.recipe.element
    if made is None or read.offset or not source.recipe.wide:
        return False
    output = made.outputs[source.writes.index(read.value)]
    assert output.strides is not None
    if is_plain(stride, element.shape) and is_plain(output.strides, made.shape):
        return source.recipe.spec.numel == _numel(element.shape)
    return tuple(made.shape) == tuple(element.shape) and tuple(output.strides) == tuple(stride)


def _numel(shape: Sequence[int]) -> int:
    product = 1
    for n in shape:
        product *= n
    return product


def _fits(a: Task, b: Task) -> bool:
    """Whether two groups may share one loop."""
    if a.numel != b.numel or len(a.items) + len(b.items) > MAX_MEMBERS:
        return False
    if (a.folds and b.shape is not None) or (b.folds and a.shape is not None):
        return False
    if a.folds and b.folds and _fold(a).words != _fold(b).words:
        return False
    return a.shape is None or b.shape is None or a.shape == b.shape


def _fold(task: Task) -> Fold:
    fold = task.folds[0].recipe.fold
    assert fold is not None
    return fold


def _folding(item: Item, maker: dict[int, tuple[Task, Item]]) -> Task | None:
    """The group that computes what an item sums, if the sum may join it."""
    read = item.reads[0]
    fold = item.recipe.fold
    assert fold is not None
    if read.value < 0 or read.offset:
        return None
    task, source = maker[read.value]
    made = source.recipe.element
    if made is None or task.shape is not None or not source.recipe.wide:
        return None
    if task.folds and _fold(task).words != fold.words:
        return None
    rows = -(-item.recipe.spec.numel // fold.words[2])
    return task if rows * fold.words[0] == task.numel else None


MAX_COPIES = 12  # bodies that are run again for one value


def _compute_again(tasks: list[Task], maker: dict[int, tuple[Task, Item]], held: set[int]) -> None:
    """Let groups compute cheap values of other groups again, where that saves storing them."""
    stored = set(held)
    readers: dict[int, set[Task]] = {}
    for task in tasks:
        for item in task.everything:
            for read in item.reads:
                if read.value < 0 or maker[read.value][0] is task:
                    continue
                readers.setdefault(read.value, set()).add(task)
                source = maker[read.value][1]
                element, position = item.recipe.element, item.reads.index(read)
                if element is None or not (item.recipe.wide and source.recipe.wide):
                    stored.add(read.value)
                    continue
                strides = [o.strides for o in element.inputs if o.strides is not None]
                if not _same_elements(source, read, strides[position], element):
                    stored.add(read.value)
    for value in sorted(readers, reverse=True):
        if value in stored:
            continue
        home, item = maker[value]
        copies = _cheap_way(value, home, maker, stored)
        if copies is None or not all(_may_copy(home, t) for t in readers[value]):
            stored.add(value)
            continue
        for task in readers[value]:
            known = {id(i) for i in [*task.items, *task.copies]}
            task.copies += [i for i in copies if id(i) not in known]


def _may_copy(home: Task, task: Task) -> bool:
    """Whether a body of one group can run in the loop of another."""
    return home.numel == task.numel and (home.shape is None or home.shape == task.shape)


def _cheap_way(
    value: int, home: Task, maker: dict[int, tuple[Task, Item]], stored: set[int]
) -> list[Item] | None:
    """The bodies that give a value from values outside of its group, None if that is not cheap."""
    found: dict[int, Item] = {}
    stack = [value]
    while stack:
        task, item = maker[stack.pop()]
        if item.node in found:
            continue
        element = item.recipe.element
        if element is None or task is not home or len(item.writes) > 1 or len(found) == MAX_COPIES:
            return None
        if not element.body.is_cheap:
            return None
        found[item.node] = item
        for read in item.reads:
            if read.value >= 0 and read.value not in stored:
                if maker[read.value][0] is not home:
                    return None
                stack.append(read.value)
    return [found[node] for node in sorted(found)]


def _reaches(task: Task, goal: Task) -> bool:
    """Whether a task depends on another, be it by a detour."""
    if task is goal:
        return True
    seen = {task}
    stack = [task]
    while stack:
        for before in stack.pop().needs:
            if before is goal:
                return True
            if before not in seen:
                seen.add(before)
                stack.append(before)
    return False


def _merge(
    into: Task,
    other: Task,
    maker: dict[int, tuple[Task, Item]],
    readers: dict[Any, Task],
    tasks: list[Task],
) -> None:
    """Make two groups one."""
    into.items += other.items
    into.folds += other.folds
    into.needs |= other.needs
    into.shape = into.shape or other.shape
    tasks.remove(other)
    for item in [*other.items, *other.folds]:
        for value in item.writes:
            maker[value] = into, item
    for key, task in readers.items():
        if task is other:
            readers[key] = into
    for task in tasks:
        if other in task.needs:
            task.needs.remove(other)
            task.needs.add(into)
