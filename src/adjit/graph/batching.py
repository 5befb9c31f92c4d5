"""Batching rules: what an operation does with tensors of many examples, which have one more axis in front.

A rule stands beside the vjp of its op, and its parameters name what it reads, as there: `@op.batched`.
Operands come with the axis of the examples in front, one that all examples share expanded along it. A rule
with a parameter `batch` gets the operands as they are, and asks that for their parts. Ops that go along axes
say which parameters name axes, and which shapes: `op.batched_over("dim", shapes=["shape"])`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from .node import NewTensor
from .record import is_tensor
from .signature import Argument, NamedArguments
from .trace import Results


class Batch(Protocol):
    """The level that has many examples."""

    size: int  # how many

    def has(self, t: Argument) -> bool:
        """Whether examples differ in a tensor."""

    def full(self, t: Argument) -> NewTensor:
        """A tensor with the axis of the examples in front; None stays None."""

    def wrapped(self, t: NewTensor) -> NewTensor:
        """What stands for one example of a tensor with that axis."""


class BatchedOp(Protocol):
    """An `Operation`."""

    def with_bound(self, given: NamedArguments) -> Results:
        """Call it with arguments by the names of all parameters."""


Rule = Callable[[Batch, NamedArguments], Results]


def with_all(function: Callable[..., Results]) -> Rule:
    """A rule of a function that reads the arguments its parameters name."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    if "batch" in names:

        def lowered(batch: Batch, given: NamedArguments) -> Results:
            return function(**{n: batch if n == "batch" else given[n] for n in names})

        return lowered

    def rule(batch: Batch, given: NamedArguments) -> Results:
        return wrapped(batch, function(**{n: full(batch, given[n]) for n in names}))

    return rule


def over(op: BatchedOp, dims: Sequence[str], shapes: Sequence[str]) -> Rule:
    """The rule of an op along axes: they are one further on. Tensors without axes get one."""

    def rule(batch: Batch, given: NamedArguments) -> Results:
        tensors = {name: full(batch, value) for name, value in given.items()}
        first = next(value for value in given.values() if is_tensor(value))
        shape = first.shape
        for name in dims:
            where = given[name]
            tensors[name] = where + 1 if isinstance(where, int) else tuple([d + 1 for d in where])
        for name in shapes:
            tensors[name] = (batch.size, *given[name])
        if first.ndim or not any(has_axis(given[name]) for name in dims):
            return wrapped(batch, op.with_bound(tensors))
        for name, value in tensors.items():
            if is_tensor(value) and value.ndim == 1:
                tensors[name] = value.reshape(batch.size, 1)
        for name in shapes:
            if not given[name]:
                tensors[name] = (batch.size, 1)
        made = op.with_bound(tensors)
        return wrapped(batch, each(made, lambda t: t.reshape(batch.size, *shape)))

    return rule


def has_axis(where: Argument) -> bool:
    """Whether an argument names an axis."""
    return isinstance(where, int) or bool(where)


def full(batch: Batch, value: Argument) -> Argument:
    """An argument whose tensors have the axis of the examples in front."""
    if is_tensor(value):
        return batch.full(value)
    if value.__class__ in (tuple, list) and any(map(is_tensor, value)):
        return [full(batch, part) for part in value]
    return value


def each(made: Results, change: Callable[[NewTensor], NewTensor]) -> Results:
    """A result, or each of several, changed."""
    if made.__class__ is tuple:
        return tuple([None if t is None else change(t) for t in made])
    return None if made is None else change(made)


def wrapped(batch: Batch, made: Results) -> Results:
    """Results as those of one example."""
    return each(made, batch.wrapped)
