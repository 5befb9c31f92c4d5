"""The elementwise ops that the rooms below are built on: copies, conversion to bool, choice.

The table itself goes by subject: `arithmetic`, `rounding`, `comparison`, `bitwise`,
`transcendental`, `activations`. An op there is one scalar body and one derivative.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph.elementwise import elementwise, scalar_functions
from .arithmetic import add
from .promotion import test

# ----- copies -----


@elementwise(ref=lambda x: x.copy(), backward_name="CloneBackward0")
def copy(x):
    """The elements themselves, converted to the dtype of the result."""
    return x


@copy.vjp
def _(g):
    return g


@elementwise(ref=lambda x: x != 0, dtypes=test)
def truth(x):
    """Whether a number is not zero: conversion to bool."""
    return x != 0


# ----- choice -----


@elementwise(ref=np.where)
def where(condition: bool, x, y):
    """`x` where the condition holds, `y` elsewhere."""
    return x if condition else y


@where.vjp
def _(g, condition: bool):
    return g if condition else 0, 0 if condition else g


def choose(condition: Any, x: Any, y: Any) -> Any:
    """What a conditional expression of a body is on tensors."""
    if isinstance(condition, bool):
        return x if condition else y
    return where(condition, x, y)


scalar_functions["where"] = choose

__all__ = ["add", "copy", "truth", "where"]
