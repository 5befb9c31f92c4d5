"""The signatures of calls: what is the same in calls that record the same."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from ..shapes import Size
from .node import TensorBase
from .record import is_tensor, tensor_classes

Argument: TypeAlias = Any  # of a call of the user's: a tensor or any other object
Arguments = tuple[Argument, ...]
NamedArguments = dict[str, Argument]
Signature = tuple[object, ...]


def describe(values: Iterable[Argument], key: list[object], operands: list[TensorBase]) -> None:
    """Add arguments to the signature of a call: specs of tensors, attributes with their types."""
    for value in values:
        kind = value.__class__
        if kind in tensor_classes:
            key.append(value._spec)
            operands.append(value)
        elif kind is int or kind is str or kind is bool or value is None:
            key += (kind, value)
        elif kind is float:
            key += (kind, value if value else str(value))  # the two zeros are equal
        elif isinstance(value, (tuple, list)) and kind is not Size:
            key += (kind, len(value))
            describe(value, key, operands)
        elif kind is slice:
            key.append(kind)
            describe((value.start, value.stop, value.step), key, operands)
        elif is_tensor(value):
            key.append(value._spec)
            operands.append(value)
        else:
            key += (kind, value)


def signature_of(args: Arguments, kwargs: NamedArguments, operands: list[TensorBase]) -> Signature:
    """What is the same in calls that record the same; the tensors among the arguments go to `operands`."""
    key: list[object] = []
    describe(args, key, operands)
    if kwargs:
        key += kwargs
        describe(kwargs.values(), key, operands)
    return tuple(key)


def exchanged(values: Arguments, operands: Iterator[Argument]) -> Arguments:
    """Arguments with other tensors in their places, in the order in which `describe` finds them."""
    made: list[Argument] = []
    for value in values:
        if is_tensor(value):
            value = next(operands)
        elif isinstance(value, (tuple, list)) and value.__class__ is not Size:
            parts = exchanged(tuple(value), operands)
            if any(map(operator.is_not, parts, value)):  # or it would lose its class
                value = list(parts) if isinstance(value, list) else parts
        made.append(value)
    return tuple(made)


def all_exchanged(
    args: Arguments, kwargs: NamedArguments, operands: Iterable[Argument]
) -> tuple[Arguments, NamedArguments]:
    """The arguments of a call, with other tensors in their places."""
    rest = iter(operands)
    values = exchanged(args, rest)
    return values, dict(zip(kwargs, exchanged(tuple(kwargs.values()), rest), strict=True))
