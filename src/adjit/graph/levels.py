"""Levels: runs of transforms (`vmap`, forward mode), whose tensors stand for others.

Such a tensor is a tracer: it has a spec, so that programs see shapes and dtypes, and no storage. Its class is
never among `record.tensor_classes`, so machine code does nothing with it and leaves the call to Python, where
the primitives (an elementwise op, an operation, a view, a write, a factory, a draw) hand it to the level that
was entered last. That does the same to what its tracers stand for, which may be tracers of levels around it.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

from ..shapes import Shape
from .node import NewTensor, Spec, TensorBase
from .op_record import ElementwiseOp
from .registry import Op

Argument: TypeAlias = NewTensor  # of a call of the user's
Arguments = tuple[Argument, ...]
NamedArguments = dict[str, Argument]
Results: TypeAlias = NewTensor  # one, or a tuple of them


class Gradients(Protocol):
    """The gradients of targets by those of roots."""

    def __call__(
        self, roots: Sequence[NewTensor], grads: Sequence[NewTensor], targets: Sequence[NewTensor],
        again: bool = False,
    ) -> list[NewTensor | None]:  # fmt: skip
        """Find them; `again` keeps the graph for another time."""


# The classes of tracers, once there has been a level of them. What is not transformed asks only whether this
# is empty.
tracers: set[type[NewTensor]] = set()

_numbers = itertools.count()


class Level(ABC):
    """A run of a transform. The later it was entered, the higher its number, and the earlier it gets a call."""

    tracer_class: type[TensorBase]

    def __init__(self) -> None:
        self.number = next(_numbers)
        tracers.add(self.tracer_class)

    def draw(self, of: Callable[[tuple[int, ...]], NewTensor]) -> NewTensor:
        """Random numbers, by a function of the axes that are to be in front: those of one example at most."""
        return of(())

    def elements(self, t: NewTensor) -> NewTensor | None:
        """What a tracer of this level stands for, if that has the same elements."""
        return None

    @abstractmethod
    def stripped(self, t: NewTensor) -> NewTensor:
        """What a tensor stands for at this level, inside of what levels entered later have made of it."""

    @abstractmethod
    def dressed(self, t: NewTensor) -> NewTensor:
        """The inverse of `stripped`."""

    @abstractmethod
    def elementwise(
        self, op: ElementwiseOp, operands: Arguments, attributes: Arguments
    ) -> NewTensor:
        """Apply an elementwise op; its operands are tensors and Python numbers."""

    @abstractmethod
    def operation(self, op: Op, args: Arguments, kwargs: NamedArguments) -> Results:
        """Apply an operation."""

    @abstractmethod
    def view(
        self, t: NewTensor, shape: Shape, strides: Shape, offset: int, backward_name: str,
        vjp: Callable[..., TensorBase],
    ) -> NewTensor:  # fmt: skip
        """`view.alias` of a tracer of this level."""

    @abstractmethod
    def views(
        self, t: NewTensor, parts: Sequence[tuple[Spec, int]], backward_name: str,
        vjp: Callable[..., TensorBase],
    ) -> tuple[NewTensor, ...]:  # fmt: skip
        """`view.aliases` of a tracer of this level."""

    @abstractmethod
    def write(self, t: NewTensor, made: NewTensor, overlap: bool) -> None:
        """`inplace.adopt`, where one of the two is a tracer of this level."""

    @abstractmethod
    def gradients(
        self, roots: Sequence[NewTensor], grads: Sequence[NewTensor], targets: Sequence[NewTensor],
        below: Gradients,
    ) -> list[NewTensor | None]:  # fmt: skip
        """The gradients of targets, all tracers of this level, by those of what they stand for.

        `below` gives these. The gradients of the roots may be tracers of levels entered later.
        """

    @abstractmethod
    def adding_axis(self, t: NewTensor, change: Callable[[NewTensor], NewTensor]) -> NewTensor:
        """A tracer of this level after a function of what it stands for that puts an axis in front."""

    @abstractmethod
    def removing_axis(self, t: NewTensor, change: Callable[[NewTensor], NewTensor]) -> NewTensor:
        """A tracer of this level after a function of what it stands for that takes the first axis away."""

    @abstractmethod
    def factory(
        self, function: Callable[..., Results], args: Arguments, kwargs: NamedArguments
    ) -> Results:
        """A new tensor like a tracer of this level."""


def level_of(values: Iterable[Argument]) -> Level | None:
    """The level that was entered last among those of tensors, also in lists; None where there is no tracer."""
    found: Level | None = None
    for value in values:
        level: Level | None = None
        if value.__class__ in tracers:
            level = value._level
        elif value.__class__ is tuple or value.__class__ is list:
            level = level_of(value)
        if level is not None and (found is None or level.number > found.number):
            found = level
    return found


def elements_of(t: NewTensor) -> NewTensor | None:
    """A tensor with the elements of `t` that is no tracer; None where a level has none or many of them."""
    while t.__class__ in tracers:
        t = t._level.elements(t)
    return t


def is_traced(values: Iterable[Argument]) -> bool:
    """Whether there is a tracer among tensors."""
    return any(value.__class__ in tracers for value in values)


def innermost(values: Iterable[Argument]) -> Level:
    """The level that was entered last among those of arguments with a tracer."""
    level = level_of(values)
    assert level is not None
    return level
