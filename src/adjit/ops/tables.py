"""Reading and writing rows of a table by indices: what the ops on places have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import devices, dtypes
from ..dtypes import carrier
from ..graph import write
from ..graph.launch import launch
from ..graph.node import are_alike
from ..kernels.language.abi import STATUS_INDEX
from ..kernels.ops import index as kernels
from ..schedule.planning.recipe import GRAIN, NamedRows, Recipe, Step
from ..shapes import Shape, broadcast_shapes, coalesce, contiguous_strides, numel
from ..tensor import Tensor
from . import creation
from .joining import stack

MOVED_FOR_A_ROW = 8  # elements that are moved in the time in which one more row is indexed
CHAINED = 64  # elements of a row from which it pays to sort rows before they are added up


def out_of_bounds(kind: type[Exception], prefix: str = "") -> dict[int, Any]:
    """The message for an index that is out of bounds."""
    text = prefix + "index {0} is out of bounds for dimension {1} with size {2}"
    return {STATUS_INDEX: (kind, text)}


IN_BRACKETS = out_of_bounds(IndexError)
IN_GRID = out_of_bounds(RuntimeError)
IN_SELF = {STATUS_INDEX: (IndexError, "index out of range in self")}
IN_FLAT = {
    STATUS_INDEX: (
        IndexError, "out of range: tried to access index {0} on a tensor of {2} elements."
    )
}  # fmt: skip


def at_least_1d(x: Tensor) -> Tensor:
    """`x`, a 0-d tensor as a vector of one element."""
    return x if x.ndim else x.reshape(1)


def merged(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int] | None:
    """Neighbouring axes as one: its size and stride, or None if there is no such stride."""
    if 0 in shape:
        return 0, 1
    sizes, (steps,) = coalesce(shape, [strides])
    if len(sizes) > 1:
        return None
    return (sizes[0], steps[0]) if sizes else (1, 1)


def axes_between(x: Tensor, kept: Sequence[int]) -> list[int]:
    """Those of the axes that are kept which do not make one axis with the last of them."""
    shape, strides = x.shape, x._spec.strides
    for k in range(len(kept)):
        rest = kept[k:]
        if merged([shape[d] for d in rest], [strides[d] for d in rest]) is not None:
            return [*kept[:k]]
    return []


class IndexedTable:
    """A tensor seen as [outer, indexed axes, inner].

    Where the indexed axes are not neighbours, `x` has them in front, and `back` undoes that; but where that
    would move many more elements than there are rows, axes between them are indexed by all of their numbers.
    """

    __slots__ = ("axes", "back", "count", "first", "indices", "inner", "outer", "shape", "x")

    def __init__(
        self,
        x: Tensor,
        axes: Sequence[int],
        indices: Sequence[Tensor],
        *,
        wrap: bool = True,
        names: Sequence[int] | None = None,
    ) -> None:
        numbers = list(axes)
        first = axes[0]
        self.back: list[int] | None = None
        if numbers != list(range(first, first + len(axes))):
            kept = [d for d in range(x.ndim) if d not in numbers]
            between = axes_between(x, kept)
            rows = numel(broadcast_indices(indices)) * numel([x.shape[d] for d in between])
            if between and MOVED_FOR_A_ROW * rows <= x.numel():
                self._index_all(x, [*numbers, *between], kept[len(between) :], indices, wrap, names)
                return
            order = numbers + kept
            self.back = [order.index(d) for d in range(x.ndim)]
            x, first = x.permute(order), 0
        self.first = first
        after = first + len(axes)
        shape, strides = tuple(x.shape), tuple(x._spec.strides)
        outer = merged(shape[:first], strides[:first])
        inner = merged(shape[after:], strides[after:])
        if outer is None or inner is None:
            # A tensor without elements is contiguous whatever its strides are.
            x, strides = x.contiguous(), contiguous_strides(shape)
            outer = merged(shape[:first], strides[:first])
            inner = merged(shape[after:], strides[after:])
            assert outer is not None
            assert inner is not None
        self.x, self.outer, self.inner = x, outer, inner
        places = broadcast_indices(indices)
        self.count = numel(places)
        self.indices = stacked(indices, places)
        self.shape = (*shape[:first], *places, *shape[after:])
        self.axes = self._words(names or numbers, shape[first:after], strides[first:after], wrap)

    def _index_all(
        self, x: Tensor, axes: Sequence[int], kept: Sequence[int], indices: Sequence[Tensor], wrap: bool,
        names: Sequence[int] | None,
    ) -> None:  # fmt: skip
        """`axes` are first the indexed ones, then some that are indexed by all of their numbers."""
        shape, strides = tuple(x.shape), tuple(x._spec.strides)
        whole, common = axes[len(indices) :], broadcast_indices(indices)
        places = (*common, *[shape[d] for d in whole])
        given = [i.reshape(*i.shape, *[1] * len(whole)) for i in indices]
        for k, d in enumerate(whole):
            after = [1] * (len(whole) - k - 1)
            given.append(creation.arange(shape[d], device=x.device).reshape(-1, *after))
        inner = merged([shape[d] for d in kept], [strides[d] for d in kept])
        assert inner is not None
        self.x, self.first, self.outer, self.inner = x, 0, (1, 1), inner
        self.count, self.indices = numel(places), stacked(given, places)
        self.shape = (*places, *[shape[d] for d in kept])
        called = [*(names or axes[: len(indices)]), *whole]
        self.axes = self._words(called, [shape[d] for d in axes], [strides[d] for d in axes], wrap)

    def _words(
        self, names: Sequence[int], sizes: Sequence[int], steps: Sequence[int], wrap: bool
    ) -> list[int]:
        """What kernels are told of the indexed axes."""
        words = [len(names)]
        for name, size, step in zip(names, sizes, steps, strict=True):
            if size == 0 and self.count:
                raise IndexError("index is out of bounds for dimension with size 0")
            words += [name, size, step, -size if wrap else 0]
        return words

    def groups(self, values: Tensor) -> tuple[Tensor, tuple[int, int, int]]:
        """Values that broadcast to the table's rows, and their strides over (outer, row, inner)."""
        spread = values.expand(self.shape)
        places = len(self.shape) - (self.x.ndim - self.first - self.axes[0])
        cuts = slice(0, self.first), slice(self.first, places), slice(places, None)
        for candidate in (spread, spread.contiguous()):
            strides = tuple(candidate._spec.strides)
            found = [merged(self.shape[cut], strides[cut]) for cut in cuts]
            if None not in found:
                break
        outer, row, inner = (group[1] if group else 0 for group in found)
        return candidate, (outer, row, inner)


def broadcast_indices(indices: Sequence[Tensor]) -> Shape:
    """The common shape of index tensors."""
    try:
        return tuple(broadcast_shapes(*[i.shape for i in indices]))
    except RuntimeError:
        shapes = ", ".join(str(list(i.shape)) for i in indices)
        raise IndexError(
            "shape mismatch: indexing tensors could not be broadcast together with shapes " + shapes
        ) from None


def stacked(indices: Sequence[Tensor], shape: Shape) -> Tensor:
    """All indices as int64, one indexed axis after the other."""
    if len(indices) == 1:
        return indices[0].to(dtypes.int64).contiguous()
    return stack([i.to(dtypes.int64).expand(shape) for i in indices])


def read_rows(
    x: Tensor, axes: Sequence[int], indices: Sequence[Tensor], messages: dict[int, Any],
    *, wrap: bool = True, names: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """The rows of a table that the indices name, recorded."""
    table = IndexedTable(x, axes, indices, wrap=wrap, names=names)
    (outer, outer_step), (inner, inner_step) = table.outer, table.inner
    return launch(
        kernels.read_table, (table.x, table.indices), [(table.shape, x.dtype)],
        bind={"T": carrier(x.dtype)},
        words=(table.count, outer_step, inner, inner_step, *table.axes),
        n=outer * table.count if inner else 0, grain=max(1, GRAIN // max(inner, 1)),
        fallible=True, messages=messages,
    )  # fmt: skip


def write_rows(
    x: Tensor, axes: Sequence[int], indices: Sequence[Tensor], values: Tensor,
    messages: dict[int, Any], *, add: bool = False, wrap: bool = True, skip: int | None = None,
    names: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """`x` with values written to, or added to, the rows that the indices name, recorded."""
    if add and x.dtype is dtypes.bool:  # its bytes are 0 and 1, and so is that of a sum
        whole, added = x.to(dtypes.int64), values.to(dtypes.int64)
        sums = write_rows(
            whole, axes, indices, added, messages, add=True, wrap=wrap, skip=skip, names=names
        )
        return sums != 0
    table = IndexedTable(x.contiguous(), axes, indices, wrap=wrap, names=names)
    base, back = table.x.contiguous(), table.back
    if back is not None:
        table = IndexedTable(base, range(len(axes)), indices, wrap=wrap, names=names or axes)
    values, steps = table.groups(values)
    (outer, outer_step), (inner, inner_step) = table.outer, table.inner
    skipped = -(1 << 62) if skip is None else skip
    kind = x.dtype if add else carrier(x.dtype)
    rows = table.axes[2]
    are_whole = (
        len(axes) == outer == inner_step == steps[2] == 1 and base._spec.device is devices.CPU
    )
    named = None
    if add and are_whole and 0 < 2 * table.count <= rows:
        named = NamedRows(
            table.count, inner, steps[1], skipped, tuple(table.axes), tuple(messages.items())
        )
    if add and are_whole and inner >= CHAINED and rows <= 4 * table.count:
        out = launch(
            [(kernels.chain_rows, 1, 1), (kernels.add_chains, rows, max(1, GRAIN // inner))],
            (base, table.indices, values), [(base.shape, x.dtype)], bind={"T": kind},
            words=(table.count, inner, steps[1], skipped, *table.axes),
            scratch=8 * (rows + table.count), fallible=True, messages=messages, rows=named,
        )  # fmt: skip
        over_first(out, base, careful=True, copies=False)
        return out if back is None else out.permute(back)
    units = outer * inner if table.count else 0
    out = launch(
        [
            (kernels.copy_elements, base.numel(), GRAIN),
            (
                kernels.add_to_table if add else kernels.write_table,
                units, max(1, GRAIN // max(table.count, 1)),
            ),
        ],
        (base, table.indices, values), [(base.shape, x.dtype)], bind={"T": kind},
        words=(
            table.count, outer_step, max(inner, 1), inner_step, *steps, skipped, *table.axes,
        ),
        fallible=True, messages=messages, rows=named,
    )  # fmt: skip
    over_first(out, base, careful=True)
    return out if back is None else out.permute(back)


def over_first(out: Tensor, first: Tensor, *, careful: bool = False, copies: bool = True) -> Tensor:
    """Let a node that begins by copying `first` write over its bytes where nobody else looks.

    A careful one has not written anything if it fails. One that does not copy sees for itself where it writes.
    """
    recipe = out._storage.value.recipe  # None: another thread has run it
    if recipe is not None and are_alike(first._spec, out._spec) and write.is_all(first):
        begin_over(recipe, careful=careful, copies=copies)
    return out


def begin_over(recipe: Recipe, *, careful: bool = False, copies: bool = True) -> None:
    """`over_first` of a recipe, whose first input is all of its result."""
    recipe.alias = recipe.alias or _written_over(recipe, recipe.steps[copies:])
    recipe.careful = careful and recipe.device is devices.CPU


def _written_over(recipe: Recipe, steps: list[Step]) -> Recipe:
    """A recipe whose first input lies in its place already: it takes these steps."""
    if len(recipe.steps) < 2 or not recipe.spec.numel or recipe.device is not devices.CPU:
        return recipe
    made = Recipe(
        recipe.name, recipe.inputs, recipe.outputs, steps, recipe.constants,
        scalars=recipe.scalars, scratch=recipe.scratch, fallible=recipe.fallible,
    )  # fmt: skip
    made.can_take_fast_path, made.late = False, recipe.late
    return made
