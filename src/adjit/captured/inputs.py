"""Where a replay finds what it reads, and what it must find as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..devices import device
from ..graph.node import Meta
from ..storage import Storage


class StorageOf(NamedTuple):
    """How to find a storage at a replay."""

    argument: int = -1  # that of an argument, or of its gradient
    meta: Meta | None = None  # that of the gradient kept there
    storage: Storage | None = None  # always this one

    def find(self, arguments: Sequence[Any]) -> Storage:
        """The storage, for a call with these arguments."""
        if self.storage is not None:
            return self.storage
        if self.meta is None:
            return arguments[self.argument]._storage
        grad = meta_of(self.argument, self.meta, arguments).grad
        assert grad is not None
        return grad._storage


def meta_of(argument: int, meta: Meta, arguments: Sequence[Any]) -> Meta:
    """The meta that plays the part of `meta` in a call: the argument's own where it has one."""
    return arguments[argument]._more() if argument >= 0 else meta


class InputSource(NamedTuple):
    """Where a value from outside comes from: all of these storages hold it, or it never changes."""

    storages: tuple[StorageOf, ...]
    constant: Any
    argument: int  # whose storage it is, -1 if of none
    offset: int  # of the first element, relative to that of the argument where it is one
    is_donated: bool  # the plan writes over it, so nobody else may see it
    is_kept: bool  # backward computes with it, where the graph has saved what follows from it
    nbytes: int
    place: device


class ArgumentLayout(NamedTuple):
    """Where the elements of a tensor lie."""

    spec: Any
    offset: int
    whole: Any  # spec of the storage

    @classmethod
    def of(cls, t: Any) -> ArgumentLayout:
        """The layout of a tensor."""
        return cls(t._spec, t._offset, t._storage.spec)

    def fits(self, t: Any) -> bool:
        """Whether the elements of a tensor lie like that."""
        spec, offset, whole = self
        return t._spec is spec and t._offset == offset and t._storage.spec is whole


class GradGuard(NamedTuple):
    """A gradient that a call must find as it was."""

    argument: int  # whose it is, -1 if that of the meta
    meta: Meta
    layout: ArgumentLayout | None  # None where there was none


class TensorGuard(NamedTuple):
    """A tensor that a call must find as it was."""

    tensor: Any
    storage: Storage
    spec: Any
    offset: int
    needs_grad: bool


class ArgumentGuards(NamedTuple):
    """What a call must find as it was."""

    grads: tuple[GradGuard, ...]
    unchanged: tuple[TensorGuard, ...]
    written: tuple[Storage, ...]  # which nobody outside may look at
