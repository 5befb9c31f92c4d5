"""Loops over arrays and tuples, by `enumerate`, `zip` and `reversed` too, as loops over whole numbers.

Those over all indices of a shape are loops in loops.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .expressions import Expressions, KnownValue
from .jumps import LeavingFor, placed
from .structure import Atom
from .values import ArrayView, PythonObject, TupleValue, is_array

MOST_ITEMS = 32  # of a tuple, whose rounds are written one behind the other


@dataclass
class _Sequence:
    """What a loop runs over: how many there are, and the expression of one."""

    length: ast.expr
    item: Callable[[ast.expr], ast.expr]
    count: int | None = None  # the length, if it is known while reading


def rounds(reader: Expressions, s: LeavingFor) -> list[ast.stmt]:
    """The statements that a loop over something else than `range` stands for."""
    grid = _grid(reader, s.iter)
    if grid is not None:
        return _over_all(reader, grid, s)
    found = _sequence(reader, s.iter)
    if found.count is None:
        counter = f"at.{s.lineno}.{s.col_offset}"
        loop = LeavingFor(
            ast.Name(counter, ast.Store()), _call("range", found.length),
            [_assignment(s, found.item(ast.Name(counter, ast.Load()))), *s.body], [],
        )  # fmt: skip
        loop.flag = s.flag
        return [placed(loop, s)]
    if found.count > MOST_ITEMS:
        reader.reject(s.iter, f"a loop over more than {MOST_ITEMS} items of a tuple",
                      "pass them as an array")  # fmt: skip
    made: list[ast.stmt] = []
    for k in range(found.count):
        one = [_assignment(s, found.item(ast.Constant(k))), *s.body]
        if s.flag and k:
            still = ast.UnaryOp(ast.Not(), ast.Name(s.flag, ast.Load()))
            one = [placed(ast.If(still, one, []), s)]
        made += one
    return made


@dataclass
class _Grid:
    """All indices of a shape in order, and the expression of the item at one."""

    sizes: list[Atom]
    item: Callable[[list[ast.expr]], ast.expr]


def _grid(reader: Expressions, e: ast.expr) -> _Grid | None:
    """What `np.ndindex`, `np.ndenumerate` and `x.flat` run over; None of anything else."""
    match e:
        case ast.Call(ast.Name(name) | ast.Attribute(_, name) as func, args, []) if (
            name in ("ndindex", "ndenumerate") and args
        ):
            function = reader.expression(func)
            if function == PythonObject(np.ndindex):
                shape = [reader.expression(a) for a in args]
                items = shape[0].items if isinstance(shape[0], TupleValue) else shape
                return _Grid([reader.atom(n, e) for n in items], _tuple)
            if function == PythonObject(np.ndenumerate):
                values = _grid_of(reader, args[0], e)
                return _Grid(
                    values.sizes, lambda index: _tuple([_tuple(index), values.item(index)])
                )
        case ast.Attribute(owner, "flat"):
            return _grid_of(reader, owner, e)
    return None


def _grid_of(reader: Expressions, array: ast.expr, e: ast.expr) -> _Grid:
    view = reader.settled(reader.expression(array), e)
    if not is_array(view):
        reader.reject(e, "a loop over this, which is no array,")
    whole = KnownValue(view)
    return _Grid(
        [reader.size(view, k, e) for k in range(view.ndim)],
        lambda index: ast.Subscript(whole, _tuple(index), ast.Load()),
    )


def _over_all(reader: Expressions, grid: _Grid, s: LeavingFor) -> list[ast.stmt]:
    """Loops in loops, or one where a `break` leaves all of them."""
    count = len(grid.sizes)
    body: list[ast.stmt]
    if s.flag and count > 1:
        found = _one_by_one(reader, grid, s.iter)
        at = ast.Name(f"at.{s.lineno}.{s.col_offset}", ast.Load())
        body = [_assignment(s, found.item(at)), *s.body]
        loop = LeavingFor(_stored(at), _call("range", found.length), body, [])
        loop.flag = s.flag
        return [placed(loop, s)]
    names: list[ast.expr] = [
        ast.Name(f"at.{s.lineno}.{s.col_offset}.{k}", ast.Load()) for k in range(count)
    ]
    body = [_assignment(s, grid.item(names)), *s.body]
    for name, n in reversed([*zip(names, grid.sizes, strict=True)]):
        loop = LeavingFor(_stored(name), _call("range", KnownValue(n)), body, [])
        loop.flag = s.flag
        body = [placed(loop, s)]
    return body


def _stored(name: ast.expr) -> ast.Name:
    assert isinstance(name, ast.Name)
    return ast.Name(name.id, ast.Store())


def _tuple(items: list[ast.expr]) -> ast.expr:
    return ast.Tuple(items, ast.Load())


def _one_by_one(reader: Expressions, grid: _Grid, e: ast.expr) -> _Sequence:
    """The items of a grid one after the other."""
    total: Atom = 1
    for k, n in enumerate(grid.sizes):
        total = reader.op("*", [total, n], e) if k else n

    def item(at: ast.expr) -> ast.expr:
        index: list[ast.expr] = []
        for n in reversed(grid.sizes[1:]):
            index.append(ast.BinOp(at, ast.Mod(), KnownValue(n)))
            at = ast.BinOp(at, ast.FloorDiv(), KnownValue(n))
        return grid.item([at, *index[::-1]])

    return _Sequence(KnownValue(total), item)


def _sequence(reader: Expressions, e: ast.expr) -> _Sequence:
    grid = _grid(reader, e)
    if grid is not None:
        return _one_by_one(reader, grid, e)
    match e:
        case ast.Call(ast.Name("range"), args, []) if len(args) in (1, 2):
            first, last = (ast.Constant(0), args[0]) if len(args) == 1 else args
            return _Sequence(
                _call("max", ast.Constant(0), ast.BinOp(last, ast.Sub(), first)),
                lambda k: ast.BinOp(first, ast.Add(), k),
            )
        case ast.Call(ast.Name("enumerate"), [inner, *start], []) if len(start) < 2:
            found = _sequence(reader, inner)
            first = start[0] if start else ast.Constant(0)
            return _Sequence(
                found.length,
                lambda k: ast.Tuple([ast.BinOp(first, ast.Add(), k), found.item(k)], ast.Load()),
                found.count,
            )
        case ast.Call(ast.Name("zip"), [_, *_] as parts, []):
            several = [_sequence(reader, p) for p in parts]
            counts = [one.count for one in several if one.count is not None]
            return _Sequence(
                _call("min", *[one.length for one in several])
                if len(several) > 1
                else several[0].length,
                lambda k: ast.Tuple([one.item(k) for one in several], ast.Load()),
                min(counts) if len(counts) == len(several) else None,
            )
        case ast.Call(ast.Name("reversed"), [inner], []):
            found = _sequence(reader, inner)
            last = ast.BinOp(found.length, ast.Sub(), ast.Constant(1))
            return _Sequence(
                found.length, lambda k: found.item(ast.BinOp(last, ast.Sub(), k)), found.count
            )
        case ast.Tuple(elts) | ast.List(elts):
            value = reader.expression(ast.copy_location(ast.Tuple(elts, ast.Load()), e))
        case _:
            value = reader.settled(reader.expression(e), e)
    name = f"each.{e.lineno}.{e.col_offset}"
    if not isinstance(value, (ArrayView, TupleValue)):
        reader.reject(e, "a loop over something else than range(...), an array or a tuple",
                      "write `for i in range(len(x))`")  # fmt: skip
    reader.environment[name] = value
    whole = ast.Name(name, ast.Load())
    count = len(value.items) if isinstance(value, TupleValue) else None
    length = ast.Constant(count) if count is not None else _call("len", whole)
    return _Sequence(length, lambda k: ast.Subscript(whole, k, ast.Load()), count)


def _assignment(s: LeavingFor, value: ast.expr) -> ast.stmt:
    """The target of a loop gets the item of a round."""
    return placed(ast.Assign([s.target], value), s)


def _call(function: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(function, ast.Load()), [*args], [])
