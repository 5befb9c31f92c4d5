"""Arrays that a branch chooses between: a name that stands for one array or another behind it.

Behind the branch the name is an array of its own, into which each side copies what it has chosen. A copy is as
good as another name for it only if nobody writes into one of both later: so an array that somebody else may
see is frozen, and a later write refused; in a loop it is not chosen at all, since a round may write what an
earlier one has chosen.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from .expressions import Expressions
from .structure import Apply, Atom, Branch, Make, Repeat, Suite, walk
from .values import NEW_AXIS, ArrayView, Strided, TupleValue, Value

_OF_SIZES = {"shape", "+", "-", "*", "//", "max", "min", "select", "<"}


@dataclass
class BranchSide:
    """One side of a branch: its statements, what names stand for at its end, and the arrays made in it."""

    block: Suite
    environment: dict[str, Value]
    makes: dict[str, Make]

    def is_own(self, view: ArrayView) -> bool:
        """Whether an array was made on this side, and has no other name."""
        names = sum([_names(v, view.name) for v in self.environment.values()])
        return view.name in self.makes and names <= 1


def _names(value: Value, array: str) -> int:
    """How often an array is there."""
    if isinstance(value, TupleValue):
        return sum([_names(v, array) for v in value.items])
    return isinstance(value, ArrayView) and value.name == array


def chosen(
    reader: Expressions, name: str, arrays: tuple[Value, Value], sides: tuple[BranchSide, BranchSide],
    condition: Atom, node: ast.AST,
) -> ArrayView | None:  # fmt: skip
    """The array that a name stands for behind a branch; None if it cannot have memory of its own."""
    a, b = arrays
    if not isinstance(a, ArrayView) or not isinstance(b, ArrayView):
        return None
    seen = [v.name for v, side in zip((a, b), sides, strict=True) if not side.is_own(v)]
    if (a.ndim, a.dtype) != (b.ndim, b.dtype) or (seen and reader.depth):
        return None
    shape: list[Atom] = []
    for axis in range(a.ndim):
        first, second = (
            _size(reader, v, axis, s, node) for v, s in zip((a, b), sides, strict=True)
        )
        if first is None or second is None:
            return None
        if first != second and not reader.depth:
            first = reader.op("select", [condition, first, second], node)
        shape.append(first)
    made = reader.make(shape, None, a.dtype, node, name)
    outer, around = reader.block, reader.environment
    for view, side in zip((a, b), sides, strict=True):
        reader.open_block(side.block)
        reader.open_blocks.append(side.block)
        for axis in range(a.ndim):  # an array of a loop has one size for all rounds
            sizes = reader.size(made, axis, node), reader.size(view, axis, node)
            if reader.depth and sizes[0] != sizes[1]:
                reader.demand_same(*sizes, node)
        reader.run_library("assign", [made, view], node)
        reader.open_blocks.pop()
        reader.close_block(outer)
    reader.environment = around
    if seen:
        reader.frozen |= {*seen, made.name}
    return made


def _size(
    reader: Expressions, view: ArrayView, axis: int, side: BranchSide, node: ast.AST
) -> Atom | None:
    """A size of a side's array, computed before the branch; None if it takes more than sizes."""
    dim = view.axes[axis]
    if dim == NEW_AXIS:
        return 1
    kept = view.dims[dim]
    assert isinstance(kept, Strided)
    if kept.size is not None:
        return _before(reader, kept.size, side, node)
    return _whole_size(reader, view.name, dim, side, node)


def _whole_size(
    reader: Expressions, array: str, dim: int, side: BranchSide, node: ast.AST
) -> Atom | None:
    if array in side.makes:
        return _before(reader, side.makes[array].shape[dim], side, node)
    return reader.op("shape", [array, dim], node, "n")


def _before(reader: Expressions, a: Atom, side: BranchSide, node: ast.AST) -> Atom | None:
    """A whole number of a side as one that is computed before the branch."""
    for item in [*(item for _, item in walk(side.block)), *reader.hoisted]:
        match item:
            case Apply() if item.dst == a:
                if item.function not in _OF_SIZES:
                    return None
                if item.function == "shape":
                    return _whole_size(reader, str(item.args[0]), int(item.args[1]), side, node)
                args = [_before(reader, x, side, node) for x in item.args]
                known = [x for x in args if x is not None]
                return reader.op(item.function, known, node) if len(known) == len(args) else None
            case Branch() if any(a == dst for dst, _, _ in item.results):
                return None
            case Repeat() if a in (item.trips, item.counter, *[c.after for c in item.carried]):
                return None
            case _ if getattr(item, "dst", None) == a:
                return None
    return a
