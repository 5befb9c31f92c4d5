"""Loops over arrays and tuples, by `enumerate`, `zip` and `reversed` too, as loops over whole numbers."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from .expressions import Expressions
from .jumps import LeavingFor, placed
from .values import ArrayView, TupleValue

MOST_ITEMS = 32  # of a tuple, whose rounds are written one behind the other


@dataclass
class _Sequence:
    """What a loop runs over: how many there are, and the expression of one."""

    length: ast.expr
    item: Callable[[ast.expr], ast.expr]
    count: int | None = None  # the length, if it is known while reading


def rounds(reader: Expressions, s: LeavingFor) -> list[ast.stmt]:
    """The statements that a loop over something else than `range` stands for."""
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


def _sequence(reader: Expressions, e: ast.expr) -> _Sequence:
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
