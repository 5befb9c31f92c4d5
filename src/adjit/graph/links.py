"""Copies that stand for views: what is written into one of two linked tensors is written into the other.

PyTorch's results of convolutions lie in C order, here their channels lie last: what is a view there (`flatten`,
`view`, `contiguous`, `as_strided`) has to be a copy here, and so has what shows the bits as another dtype
(`view(dtype)`). It is linked with its base for as long as somebody has the memory of both.
"""

from __future__ import annotations

import weakref

from ..dtypes import dtype
from ..storage import Storage
from .node import NO_GRAD, TensorBase
from .record import make_tensor
from .state import state


class Place:
    """A tensor that may go, and the memory that it shows, which may stay longer."""

    __slots__ = ("memory", "offset", "spec", "tensor")

    def __init__(self, t: TensorBase) -> None:
        self.tensor, self.memory = weakref.ref(t), weakref.ref(t._storage)
        self.spec, self.offset = t._spec, t._offset

    def shown(self) -> TensorBase | None:
        """The tensor, or another one on its memory; None if that has gone."""
        t, memory = self.tensor(), self.memory()
        if t is not None and t._storage is memory:
            return t
        return None if memory is None else make_tensor(memory, self.spec, self.offset)


class Link:
    """A part of a tensor, and a copy of it in the order that is reported; neither views anything."""

    __slots__ = ("base", "copy", "kept", "kind", "offset", "region")

    def __init__(self, t: TensorBase, copy: TensorBase) -> None:
        info = t._view_of
        self.base, self.copy = Place(t if info is None else info.base), Place(copy)
        self.region, self.offset = t._spec, t._offset  # the latter in the memory of the base
        self.kind = kind_of_views(t)
        # The memory of the base, where copies of other parts have to hear of writes.
        self.kept: Storage | None = None

    @property
    def shows_bits(self) -> bool:
        """Whether the copy shows the bits as another dtype: nothing has a history there."""
        return self.copy.spec.dtype is not self.region.dtype


def kind_of_views(t: TensorBase) -> str:
    """How views of a tensor are made now, if that keeps them from being written."""
    if not state.grad:
        return NO_GRAD
    return "" if t._view_of is None else t._view_of.kind


_linked = False  # whether there have ever been some
parts: weakref.WeakSet[Storage] = weakref.WeakSet()  # copies whose bases have more elements


def link(t: TensorBase, copy: TensorBase) -> None:
    """Have a new copy of a tensor stand for a view of it."""
    global _linked
    _linked = True
    memory, known = t._storage, links_of(t._storage)
    memory.links = [*known, Link(t, copy)]
    copy._storage.links = [Link(t, copy)]
    if known:
        copies = [copy._storage, *[found.copy.memory() for found in known]]
        for found in [one for c in copies if c is not None for one in links_of(c)]:
            found.kept = found.base.memory()
    if copy._spec.nbytes != memory.spec.nbytes:
        parts.add(copy._storage)


def copy_of(t: TensorBase, kind: dtype) -> TensorBase | None:
    """The copy that stands for a view of just this part as this dtype already, if there is one."""
    whole = t if t._view_of is None else t._view_of.base
    for known in links_of(t._storage):
        is_it = known.base.tensor() is whole and known.kind == kind_of_views(t)
        is_part = known.region is t._spec and known.offset == t._offset
        if is_it and is_part and known.copy.spec.dtype is kind:
            return known.copy.tensor()
    return None


def links_of(storage: Storage) -> list[Link]:
    """The links of a storage, both ends of which are there; it forgets the others."""
    known: list[Link] | None = getattr(storage, "links", None) if _linked else None
    if known is None:
        return []
    live = [found for found in known if found.base.memory() and found.copy.memory()]
    if live:
        storage.links = live
    else:
        del storage.links  # machine code writes again
    return live


def linked_with(storage: Storage) -> list[Storage]:
    """A storage and all that hear of writes into it."""
    found = [storage]
    for one in found:  # which grows meanwhile
        for known in links_of(one):
            ends = known.base.memory(), known.copy.memory()
            found += [end for end in ends if end is not None and not any(end is s for s in found)]
    return found
