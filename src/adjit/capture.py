"""Watching a function: what it reads from outside, what it writes, what it draws.

Two slots are watched while it runs: the value of every storage and the `.grad` of every tensor.
What is read before it is written comes from outside; what is written and can still be reached
afterwards is an effect. Watching costs nothing when nobody watches.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .graph import lines
from .graph.state import state
from .schedule.settle import captured_threads, looking_threads, tape
from .storage import Storage
from .tensor import Meta

value_slot: Any = Storage.__dict__["value"]
grad_slot: Any = Meta.__dict__["grad"]


class Draw:
    """Python numbers of a node that are new at every replay, such as the counters of Philox."""

    __slots__ = ("again", "start", "values")

    def __init__(
        self, start: int, values: tuple[int, ...], again: Callable[[], Sequence[int]]
    ) -> None:
        self.start, self.values, self.again = start, values, again


class Session:
    """What one run of a function did."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.cells: dict[Storage, Any] = {}  # the first values of the cells that were there before
        self.written: weakref.WeakSet[Storage] = weakref.WeakSet()
        self.grads: dict[Meta, Any] = {}  # the first gradients
        self.set_grads: set[Meta] = set()
        self.draws: list[Draw] = []
        self.sites: lines.Sites = {}  # where the nodes were recorded
        self.conditions: list[tuple[Callable[[], Any], Any]] = []

    def numbers(self, values: Sequence[int], again: Callable[[], Sequence[int]]) -> None:
        """The next node whose Python numbers contain `values` takes those of `again()` later."""
        self.draws.append(Draw(len(tape), tuple(values), again))

    def depends_on(self, read: Callable[[], Any]) -> None:
        """What was captured holds as long as `read()` gives what it gives now."""
        self.conditions.append((read, read()))

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch what this thread does; nothing that it records is run meanwhile."""
        self.thread = threading.get_ident()
        watched: tuple[Any, Any] = (Storage, Meta)
        watched[0].value = property(self._get_value, self._set_value)
        watched[1].grad = property(self._get_grad, self._set_grad)
        state.session = self
        captured_threads.add(self.thread)
        try:
            with lines.noting(self.sites):
                yield
        finally:
            captured_threads.discard(self.thread)
            state.session = None
            watched[0].value = value_slot
            watched[1].grad = grad_slot

    @contextlib.contextmanager
    def only_looking(self) -> Iterator[None]:
        """Refuse what a captured function may not do, without capturing anything."""
        looking_threads.add(self.thread)
        try:
            yield
        finally:
            looking_threads.discard(self.thread)

    def _is_mine(self) -> bool:
        return threading.get_ident() == self.thread

    def _get_value(self, cell: Storage) -> Any:
        value = value_slot.__get__(cell)
        if self._is_mine() and cell not in self.written:
            self.cells.setdefault(cell, value)
        return value

    def _set_value(self, cell: Storage, value: Any) -> None:
        if self._is_mine():
            if cell not in self.written and cell not in self.cells:
                with contextlib.suppress(AttributeError):  # of a cell that is being made
                    self.cells[cell] = value_slot.__get__(cell)
            self.written.add(cell)
        value_slot.__set__(cell, value)

    def _get_grad(self, meta: Meta) -> Any:
        grad = grad_slot.__get__(meta)
        if self._is_mine():
            self.grads.setdefault(meta, grad)
        return grad

    def _set_grad(self, meta: Meta, grad: Any) -> None:
        if self._is_mine():
            self.grads.setdefault(meta, getattr_or_none(meta))
            self.set_grads.add(meta)
        grad_slot.__set__(meta, grad)


def getattr_or_none(meta: Meta) -> Any:
    """The gradient of a meta, None also while it is being made."""
    try:
        return grad_slot.__get__(meta)
    except AttributeError:
        return None


def reachable(wanted: Sequence[Any]) -> list[Any]:
    """The recorded nodes that some values need, in the order in which they were recorded."""
    seen: set[int] = set()
    stack = [value for value in wanted if value.recipe is not None]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            stack += [v for v in node.inputs or () if v.recipe is not None]
    return [node for node in tape if id(node) in seen]
