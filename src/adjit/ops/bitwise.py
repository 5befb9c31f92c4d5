"""Logic on truth values, and on the bits of integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..graph.elementwise import Choice, elementwise
from ..graph.export import export
from ..tensor import Tensor
from .promotion import bits, integers, logical

# ----- truth values -----


@export(method=True, inplace=True, out=True)
@elementwise(ref=np.logical_and, dtypes=logical)
def logical_and(x: bool, y: bool):
    """Whether both are not zero."""
    return x & y


@export(method=True, inplace=True, out=True)
@elementwise(ref=np.logical_or, dtypes=logical)
def logical_or(x: bool, y: bool):
    """Whether one or both are not zero."""
    return x | y


@export(method=True, inplace=True, out=True)
@elementwise(ref=np.logical_xor, dtypes=logical)
def logical_xor(x: bool, y: bool):
    """Whether one of the two is not zero and the other is."""
    return x != y


@export(method=True, inplace=True, out=True)
@elementwise(ref=np.logical_not, dtypes=logical)
def logical_not(x: bool):
    """Whether an element is zero."""
    return not x


# ----- bits -----


@export(method=True, inplace=True, out=True)
@elementwise(ref=np.bitwise_and, dtypes=bits("bitwise_and_cpu"))
def bitwise_and(x, y):
    """The bits that both have."""
    return x & y


@export(method=True, inplace=True, out=True)
@elementwise(ref=np.bitwise_or, dtypes=bits("bitwise_or_cpu"))
def bitwise_or(x, y):
    """The bits that one or both have."""
    return x | y


@export(method=True, inplace=True, out=True)
@elementwise(ref=np.bitwise_xor, dtypes=bits("bitwise_xor_cpu"))
def bitwise_xor(x, y):
    """The bits that one of the two has."""
    return x ^ y


@elementwise(name="bitwise_not", ref=np.bitwise_not, dtypes=integers("bitwise_not_cpu"))
def complement(x):
    """The bits that are not set."""
    return ~x


@export(method=True, inplace=True, out=True)
@Choice
def bitwise_not(input: Tensor) -> Any:
    """The bits that are not set; of bool, the opposite.

    Raises:
        NotImplementedError: for floating dtypes.

    Example:
        >>> adjit.bitwise_not(adjit.tensor([0, 5]))
        tensor([-1, -6])
    """
    return logical_not if input.dtype is dtypes.bool else complement, (input,), ()


@export(method=True, inplace=True, out=True)
@elementwise(
    ref=lambda x, y: np.where((y >= 0) & (y < 64), np.left_shift(x, y), 0),
    dtypes=integers("lshift_cpu"),
)
def bitwise_left_shift(x, y):
    """x * 2 ** y, without the bits that overflow."""
    return x << y if (y >= 0) & (y < 64) else 0


@export(method=True, inplace=True, out=True)
@elementwise(
    ref=lambda x, y: np.right_shift(x, np.where((y >= 0) & (y < 63), y, 63)),
    dtypes=integers("rshift_cpu"),
)
def bitwise_right_shift(x, y):
    """x / 2 ** y, rounded down."""
    return x >> (y if (y >= 0) & (y < 63) else 63)


__all__ = [
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
]
