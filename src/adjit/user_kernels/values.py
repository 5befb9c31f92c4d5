"""What the names of a user's function stand for while it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from .structure import Atom


@dataclass(frozen=True)
class FixedIndex:
    """A dimension of the memory that a view holds at one index."""

    at: Atom


@dataclass(frozen=True)
class Strided:
    """A dimension of the memory that a view runs over; the whole of it if `size` is None."""

    start: Atom = 0
    step: int = 1
    size: Atom | None = None


NEW_AXIS = -1


@dataclass(frozen=True)
class ArrayView:
    """An array, or a view of one: how each dimension of the memory `name` is indexed.

    `axes` has for each dimension of the view that of the memory, or `NEW_AXIS`.
    """

    name: str
    dtype: str
    dims: tuple[FixedIndex | Strided, ...]
    axes: tuple[int, ...]

    @property
    def ndim(self) -> int:
        return len(self.axes)

    @property
    def is_whole(self) -> bool:
        return self.axes == tuple(range(len(self.dims))) and all(d == Strided() for d in self.dims)

    @staticmethod
    def whole(name: str, ndim: int, dtype: str) -> ArrayView:
        return ArrayView(name, dtype, (Strided(),) * ndim, tuple(range(ndim)))

    @staticmethod
    def row(name: str, ndim: int, dtype: str, at: Atom) -> ArrayView:
        """One of many arrays that lie in one, by its first index."""
        dims: list[FixedIndex | Strided] = [FixedIndex(at), *[Strided()] * ndim]
        return ArrayView(name, dtype, tuple(dims), tuple(range(1, ndim + 1)))


@dataclass(frozen=True)
class ArrayExpression:
    """Arithmetic on arrays that has no memory yet: `element` emits one element of it.

    `reads` are the arrays behind it, without axes if an element may be read from anywhere; it was made when
    `writes` stores had been read.
    """

    shape: tuple[Atom, ...]
    dtype: str
    element: Callable[[list[Atom]], Atom]
    reads: tuple[ArrayView, ...]
    writes: int

    @property
    def ndim(self) -> int:
        return len(self.shape)


@dataclass(frozen=True)
class TupleValue:
    items: tuple[Value, ...]
    fields: tuple[str, ...] = ()  # of a named tuple


@dataclass(frozen=True)
class PythonObject:
    """A module, a function, a dtype, None."""

    value: Any


@dataclass(frozen=True)
class BoundMethod:
    owner: ArrayView | ArrayExpression
    name: str


@dataclass(frozen=True)
class Unreadable:
    """A name that cannot be read here, why, and what to write instead."""

    name: str
    why: str
    instead: str = ""


class _Unassigned:
    """The value of a name that is not assigned yet."""


UNDEFINED = _Unassigned()

ArrayLike = ArrayView | ArrayExpression
Value = (
    Atom
    | ArrayView
    | ArrayExpression
    | TupleValue
    | PythonObject
    | BoundMethod
    | Unreadable
    | _Unassigned
)


def is_array(value: Value) -> TypeGuard[ArrayLike]:
    return isinstance(value, (ArrayView, ArrayExpression))


def kind_of_value(value: Value) -> str:
    """What a value is, for messages."""
    if isinstance(value, (ArrayView, ArrayExpression)):
        return f"a {value.ndim}-dimensional array of {np.dtype(value.dtype).name}"
    if isinstance(value, TupleValue):
        return "a tuple"
    return "a number" if isinstance(value, (str, int, float)) else "another object"


def fields_of_both(a: Value, b: Value) -> tuple[str, ...]:
    """The names of a tuple's items behind a branch that gives one of two."""
    found = {v.fields for v in (a, b) if isinstance(v, TupleValue)}
    return found.pop() if len(found) == 1 else ()
