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
    """True where both operands are not zero. Not differentiable.

    Example:
        >>> adjit.tensor([0., 1., 2.]).logical_and(adjit.tensor([1., 0., 3.]))
        tensor([False, False,  True])
    """
    return x & y


@export(method=True, inplace=True, out=True)
@elementwise(ref=np.logical_or, dtypes=logical)
def logical_or(x: bool, y: bool):
    """True where at least one operand is not zero. Not differentiable.

    Example:
        >>> adjit.tensor([0., 1., 2.]).logical_or(adjit.tensor([0., 0., 3.]))
        tensor([False,  True,  True])
    """
    return x | y


@export(method=True, inplace=True, out=True)
@elementwise(ref=np.logical_xor, dtypes=logical)
def logical_xor(x: bool, y: bool):
    """True where one operand is zero and the other is not. Not differentiable.

    Example:
        >>> adjit.tensor([0., 1., 2.]).logical_xor(adjit.tensor([1., 0., 3.]))
        tensor([ True,  True, False])
    """
    return x != y


@export(method=True, inplace=True, out=True)
@elementwise(ref=np.logical_not, dtypes=logical)
def logical_not(x: bool):
    """True where an element is zero. Not differentiable.

    Example:
        >>> adjit.tensor([0., 1., 2.]).logical_not()
        tensor([ True, False, False])
    """
    return not x


# ----- bits -----


@export(method=True, inplace=True, out=True, numbers=("x", "y"))
@elementwise(ref=np.bitwise_and, dtypes=bits("bitwise_and_cpu"))
def bitwise_and(x, y):
    """The bits that both operands have, of integers or bool. Not differentiable.

    Example:
        >>> adjit.tensor([12, 10]).bitwise_and(6)
        tensor([4, 2])
    """
    return x & y


@export(method=True, inplace=True, out=True, numbers=("x", "y"))
@elementwise(ref=np.bitwise_or, dtypes=bits("bitwise_or_cpu"))
def bitwise_or(x, y):
    """The bits that one or both operands have, of integers or bool. Not differentiable.

    Example:
        >>> adjit.tensor([12, 10]).bitwise_or(6)
        tensor([14, 14])
    """
    return x | y


@export(method=True, inplace=True, out=True, numbers=("x", "y"))
@elementwise(ref=np.bitwise_xor, dtypes=bits("bitwise_xor_cpu"))
def bitwise_xor(x, y):
    """The bits that one of two operands has, of integers or bool. Not differentiable.

    Example:
        >>> adjit.tensor([12, 10]).bitwise_xor(6)
        tensor([10, 12])
    """
    return x ^ y


@elementwise(name="bitwise_not", ref=np.bitwise_not, dtypes=integers("bitwise_not_cpu"))
def complement(x):
    """The bits that are not set."""
    return ~x


@export(method=True, inplace=True, out=True)
@Choice
def bitwise_not(input: Tensor) -> Any:
    """The bits that are not set; of bool, the opposite.

    Not differentiable.

    Raises:
        NotImplementedError: for floating dtypes.

    Example:
        >>> adjit.tensor([0, 5]).bitwise_not()
        tensor([-1, -6])
    """
    return logical_not if input.dtype is dtypes.bool else complement, (input,), ()


@export(method=True, inplace=True, out=True, numbers=("x", "y"))
@elementwise(
    ref=lambda x, y: np.where((y >= 0) & (y < 64), np.left_shift(x, y), 0),
    dtypes=integers("lshift_cpu"),
)
def bitwise_left_shift(x, y):
    """input * 2 ** other for integers, without the bits that overflow. Not differentiable.

    Example:
        >>> adjit.tensor([1, 3]).bitwise_left_shift(2)
        tensor([ 4, 12])
    """
    return x << y if (y >= 0) & (y < 64) else 0


@export(method=True, inplace=True, out=True, numbers=("x", "y"))
@elementwise(
    ref=lambda x, y: np.right_shift(x, np.where((y >= 0) & (y < 63), y, 63)),
    dtypes=integers("rshift_cpu"),
)
def bitwise_right_shift(x, y):
    """input / 2 ** other for integers, rounded down. Not differentiable.

    Example:
        >>> adjit.tensor([12, -3]).bitwise_right_shift(1)
        tensor([ 6, -2])
    """
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
