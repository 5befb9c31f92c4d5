"""From the arguments of a call to the code that was made for ones like them, in half a microsecond."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numba
from numba import types
from numba._dispatcher import compute_fingerprint  # as Numba's own dispatchers

from .source import Function, Meaning

_T = TypeVar("_T")
MAX_CALLS = 4096


class Specializations(Generic[_T]):
    """What was made for a function and types of arguments, until a name that it reads has another value."""

    def __init__(
        self, function: Function, make: Callable[[tuple[types.Type, ...], Any], _T]
    ) -> None:
        self.function, self.make = function, make
        self.meaning: Meaning | None = None
        self.known: dict[object, _T] = {}
        self.calls: dict[object, Callable[[Sequence[Any]], Any]] = {}

    def call_of(self, kinds: object) -> Callable[[Sequence[Any]], Any] | None:
        """What was kept for arguments of these kinds."""
        found = self.calls.get(kinds)
        is_current = found is not None and self.meaning is not None and self.meaning.is_current()
        return found if is_current else None

    def keep_call(self, kinds: object, call: Callable[[Sequence[Any]], Any]) -> None:
        """Keep how to call what `find` has found for arguments of these kinds, if they have any."""
        if kinds is None:
            return
        if len(self.calls) >= MAX_CALLS:
            self.calls.clear()
        self.calls[kinds] = call

    def find(self, args: Sequence[Any], more: Any = None) -> _T:
        """What there is for arguments like these, and `more` that tells calls apart."""
        if self.meaning is None or not self.meaning.is_current():
            self.known.clear()
            self.calls.clear()
            self.meaning = Meaning(self.function)
        try:
            key = compute_fingerprint(tuple(args)), more
        except (NotImplementedError, ValueError):  # of a type that is refused
            return self.make(types_of(args), more)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self.make(types_of(args), more)
        return found


def types_of(args: Sequence[Any]) -> tuple[types.Type, ...]:
    return tuple([types.unliteral(numba.typeof(a)) for a in args])
