"""Row groups: groups that go row by row, so that what needs the sum of a row finds the row in the cache.

A row group is `rows x width` elements in C order. Its group holds bodies over all elements, sums of
its rows, bodies over such sums (one element a row), and sums of its columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...shapes import coalesce, contiguous_strides
from ..planning.recipe import Element, Recipe, Reduction

# A row waits on the stack for the sums of its elements: MAX_WIDTH elements for each value that does.
# A short row costs more to begin and to end than a pass over its elements saves.
MIN_WIDTH, MAX_WIDTH = 64, 4096
# What a group may hold, so that it compiles in well under a second: a body counts as one, a sum of a
# row, with the loop that ends at it, as SUM, a kernel of rows as ROW.
MAX_WORK, SUM, ROW = 48, 4, 8
SMALL = 1 << 16  # elements of a row group that need no threads


class Limits(NamedTuple):
    """What row groups have to keep to on the device that they run on."""

    parts: int = 4  # that the rows of a large row group are cut into at least: all get their shares
    room: int | None = None  # bytes for the values of a row that wait for its sum


Steps = tuple[int, int]  # from row to row, and from column to column


class RowGroup(NamedTuple):
    """The elements that a group runs over."""

    rows: int
    width: int

    @property
    def numel(self) -> int:
        return self.rows * self.width


def row_group_of(recipe: Recipe) -> RowGroup | None:
    """The row group of a reduction or of a kernel of rows; None where there is none, or no fit one."""
    if recipe.fusion.row is not None:
        width, whole = recipe.fusion.row.words[0], True
    elif recipe.fusion.fold is not None:
        whole = recipe.fusion.fold.by_rows
        width = recipe.fusion.fold.words[0 if whole else 1]
    else:
        return None
    numel = recipe.inputs[0].numel
    if width < MIN_WIDTH or numel % width or (whole and width > MAX_WIDTH):
        return None
    return RowGroup(numel // width, width)


def work_of(recipe: Recipe) -> int:
    """What compiling a part of a group costs."""
    return (
        1 if recipe.fusion.element is not None else SUM if recipe.fusion.fold is not None else ROW
    )


def is_shared_out(fold: Reduction, numel: int, parts: int) -> bool:
    """Whether sums of columns leave so many parts of the rows of a large row group."""
    return numel <= SMALL or numel // (fold.words[0] * fold.words[1]) * fold.words[3] >= parts


def is_plain(strides: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether elements lie in C order; the strides of axes of size 1 do not matter."""
    dense = contiguous_strides(tuple(shape))
    return all(n == 1 or a == b for n, a, b in zip(shape, strides, dense, strict=True))


def steps_of(strides: Sequence[int], shape: Sequence[int], row_group: RowGroup) -> Steps | None:
    """How an operand over all elements of a row group walks along it, None if not in even steps."""
    if not any(strides):
        return 0, 0
    if is_plain(strides, shape):
        return row_group.width, 1
    inner, split = 1, len(shape)
    while split and inner < row_group.width:
        split -= 1
        inner *= shape[split]
    if inner != row_group.width:
        return None
    down, across = (
        coalesce(shape[part], [strides[part]])[1][0] for part in (slice(split), slice(split, None))
    )
    if len(down) > 1 or across not in ((0,), (1,)):
        return None
    return down[0] if down else row_group.width * across[0], across[0]


def row_steps_of(strides: Sequence[int], shape: Sequence[int]) -> Steps | None:
    """The same of an operand with one element a row."""
    if not any(strides):
        return 0, 0
    return (1, 0) if is_plain(strides, shape) else None


def steps_in(
    strides: Sequence[int], shape: Sequence[int], row_group: RowGroup, is_of_rows: bool
) -> Steps:
    """How an operand of a body that fits walks along a row group."""
    steps = row_steps_of(strides, shape) if is_of_rows else steps_of(strides, shape, row_group)
    assert steps is not None
    return steps


def fits(element: Element, numel: int, row_group: RowGroup) -> bool:
    """Whether a body over so many elements, all of them or one a row, can run in a row group."""
    operands = [(o, o.strides) for o in element.inputs if o.strides is not None]
    if numel == row_group.numel:
        return all(steps_of(s, element.shape, row_group) is not None for _, s in operands) and all(
            steps_of(o.strides or (), element.shape, row_group) == (row_group.width, 1)
            for o in element.outputs
        )
    return (
        numel == row_group.rows
        and all(row_steps_of(s, element.shape) is not None for _, s in operands)
        and all(is_plain(o.strides or (), element.shape) for o in element.outputs)
    )
