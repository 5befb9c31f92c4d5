"""Tensors' memory as engines see it: what is sent lies where it is, what comes gets memory of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..graph import primitives, record, write
from ..graph.node import dense_spec
from ..ops import joining
from ..schedule.settle import settle
from ..shapes import Size
from ..tensor import Tensor

Finish = Callable[[], object]


def address_of(t: Tensor) -> int:
    """The address of a contiguous tensor's first element, its value computed."""
    return record.value_address(t) if t.numel() else 0


def to_send(t: Tensor) -> Tensor:
    """A tensor's elements in C order: its own memory where that is so.

    What is returned keeps the value as it is now, whatever is written into the tensor afterwards.
    """
    plain = t.detach() if t._spec.contiguous else t.detach().contiguous()
    record.value_address(plain)
    if plain._storage.shared:
        return plain
    # A storage of its own around the same value: a write into the tensor gives only its storage another one.
    held = record.make_storage(plain._storage.value, plain._storage.spec)
    held_tensor: Tensor = record.make_tensor(held, plain._spec, plain._offset)
    return held_tensor


def empty_like(t: Tensor, shape: Sequence[int] | None = None) -> Tensor:
    """Memory for what comes, in C order."""
    size = Size(t.shape if shape is None else shape)
    made: Tensor = primitives.empty(dense_spec(size, t.dtype, t.device))
    return made


def landing(t: Tensor) -> tuple[Tensor, Finish | None]:
    """Where what comes for a tensor is put, and what makes it the tensor's own then.

    Memory that others see is written where it is; else the tensor takes over what has come.
    """
    if t._storage.shared and t._spec.contiguous:
        settle()
        return t.detach(), None
    fresh = empty_like(t)
    return fresh, lambda: take_over(t, fresh)


def take_over(t: Tensor, fresh: Tensor) -> None:
    """Give a tensor the elements that have come, without a copy where it shows all of its memory in order."""
    if t.numel():
        write.store(t, fresh.view(t.shape))


def scatter_to(tensors: Sequence[Tensor], flat: Tensor) -> None:
    """Give each of several tensors its part of what has come."""
    at = 0
    for t in tensors:
        take_over(t, flat[at : at + t.numel()])
        at += t.numel()


def flattened(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors one behind the other."""
    made: Tensor = joining.cat([t.detach().reshape(-1) for t in tensors])
    return to_send(made)
