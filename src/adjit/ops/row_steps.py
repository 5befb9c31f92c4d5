"""Steps over the rows that the gradients of tables name, where such a step leaves all others as they are."""

from __future__ import annotations

import math
import weakref
from array import array
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from .. import dtypes
from ..atomic import together
from ..errors import CallSite
from ..graph import write
from ..graph.launch import recipe_of
from ..graph.node import Node, Spec, dense_spec
from ..graph.record import new_node
from ..graph.state import state
from ..kernels.ops import row_steps as kernels
from ..schedule import deferred
from ..schedule.planning.recipe import GRAIN, NamedRows, Recipe
from ..shapes import sized
from ..storage import Storage
from ..tensor import Tensor
from .tables import begin_over

Numbers = Callable[[], Sequence[float]]
SHARES = 64  # of the rows that are named, so that threads have enough to share out


def float_words(numbers: Sequence[float]) -> list[int]:
    """The bits of float64 numbers: how they travel among the words of a step."""
    return array("q", array("d", numbers).tobytes()).tolist()


def is_whole(t: Tensor) -> bool:
    """Whether a tensor is all of a storage of its own, in C order."""
    storage, spec = t._storage, t._spec
    return spec is storage.spec and spec.contiguous and not (t._offset or storage.shared)


class RecordedTable(NamedTuple):
    """The rows of a table that are recorded, of which nobody has asked for the whole."""

    recipe: Recipe
    inputs: tuple[Node, ...]  # zeros, indices, values
    offsets: tuple[int, ...]
    call_site: CallSite | None

    @property
    def rows(self) -> NamedRows:
        """What is known of its rows."""
        assert self.recipe.fusion.rows is not None
        return self.recipe.fusion.rows


Tables = list[RecordedTable]  # whose sum, from the first to the last, is a gradient


def recorded_tables(params: list[Tensor], grads: list[Tensor]) -> dict[int, Tables]:
    """The gradients of large tables that are no more than rows yet, by the numbers of their parameters.

    Walks run what they record. So the next gradient of a large parameter waits, should it be one of these: if
    it was not, then after twice as many steps again.
    """
    found: dict[int, Tables] = {}
    for k, (param, grad) in enumerate(zip(params, grads, strict=True)):
        if param._spec.nbytes >= deferred.LEAST:
            tables = _tables_of(param, grad)
            if tables:
                found[k] = tables
            if state.session is None:
                storage = param._storage
                _dense[storage] = steps = 0 if tables else _dense.get(storage, 0) + 1
                deferred.track_table(storage, waits=steps & (steps - 1) == 0)
            elif tables:
                state.session.can_wait(grad._storage.value)
    return found


# How many steps a parameter has made since the last one along such a gradient.
_dense: weakref.WeakKeyDictionary[Storage, int] = weakref.WeakKeyDictionary()


def _tables_of(param: Tensor, grad: Tensor) -> Tables:
    """What a gradient is the sum of, if these are few tables and its parameter lies plainly."""
    if not (grad._spec is param._spec and is_whole(param) and is_whole(grad)):
        return []
    found: Tables = []
    for node in deferred.tables_in(grad._storage.value):
        inputs, recipe = node.inputs, node.recipe  # in this order: another thread may run it
        if recipe is None:
            return []
        found.append(RecordedTable(recipe, inputs, node.offsets or (0, 0, 0), node.call_site))
    return found


def rests_where_zero(sign: float, decay: float, rate: float) -> bool:
    """Whether x + rate * (sign * g + decay * x) is x, bit for bit, where g is 0."""
    return sign > 0 and decay == 0 and math.copysign(1, rate) < 0 and math.isfinite(rate)


def sgd_rows(
    params: list[Tensor], gradients: Sequence[Tables], numbers: Numbers
) -> Callable[[], object]:
    """Record plain steps; what makes them the values of the parameters. Numbers: those of `sgd_step`."""

    def rate() -> list[int]:
        return float_words(numbers()[2:])

    session = state.session
    if session is not None:
        session.depends_on(lambda: rests_where_zero(*numbers()))
    # All that can fail, before a parameter is written.
    links = [[_linked(table) for table in tables] for tables in gradients]
    moved = []
    for param, tables, linked in zip(params, gradients, links, strict=True):
        words = rate()
        if session is not None:
            session.numbers(words, rate)
        moved.append(_moved(kernels.sgd_rows, param, tables, linked, tuple(words)))
    return together(*write.committing(params, moved))


def _hashes(rows: NamedRows) -> int:
    """Places for hashes: a power of two, of which half stay free."""
    return 1 << (2 * rows.size).bit_length()


def _links(rows: NamedRows) -> Spec:
    """What `link_rows` makes."""
    return dense_spec(sized((1 + 3 * rows.size + _hashes(rows),)), dtypes.int64)


def _linked(table: RecordedTable) -> Node:
    """Record where the rows of a table come from."""
    rows = table.rows
    recipe = recipe_of(
        kernels.link_rows, table.recipe.inputs[1:2], [(_links(rows).shape, dtypes.int64)],
        words=(rows.size, rows.skipped, *rows.axes, _hashes(rows)), n=1, fallible=True,
        messages=dict(rows.messages),
    )  # fmt: skip
    return _recorded(recipe, table.inputs[1:2], table.offsets[1:2], (), table.call_site)


def _moved(
    kernel: Any, param: Tensor, tables: Tables, links: Sequence[Node], numbers: tuple[int, ...]
) -> Node:
    """Record the parameter moved along the rows of tables, in its place where nobody else looks."""
    spec, rows = param._spec, [table.rows for table in tables]
    size, inner = sum(each.size for each in rows), rows[0].inner
    shares = min(size, SHARES)
    pairs = [(_links(table.rows), table.recipe.inputs[2]) for table in tables]
    recipe = recipe_of(
        [
            (kernels.copy_table, spec.numel, GRAIN),
            (kernel, shares, max(1, GRAIN * shares // (size * inner))),
        ],
        (spec, *chain.from_iterable(pairs)), [(spec.shape, spec.dtype)], bind={"T": spec.dtype},
        words=(
            inner, shares,
            *chain.from_iterable((each.size, each.step, _hashes(each)) for each in rows),
        ),
        scalars=len(numbers),
    )  # fmt: skip
    begin_over(recipe)
    read = chain.from_iterable(
        (link, table.inputs[2]) for link, table in zip(links, tables, strict=True)
    )
    offsets = chain.from_iterable((0, table.offsets[2]) for table in tables)
    return _recorded(recipe, (param._storage.value, *read), (0, *offsets), numbers)


def _recorded(
    recipe: Recipe, inputs: tuple[Node, ...], offsets: tuple[int, ...], numbers: tuple[int, ...],
    call_site: CallSite | None = None,
) -> Node:  # fmt: skip
    """A node, put into `pending`."""
    node = new_node(Node)
    node.recipe, node.inputs, node.scalars, node.call_site = recipe, inputs, numbers, call_site
    node.offsets = offsets if any(offsets) else None
    return write.recorded(node)
