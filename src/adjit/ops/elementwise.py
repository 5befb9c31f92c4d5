"""Elementwise ops: one scalar body and one derivative each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..graph import record
from ..graph.op import (
    Elementwise,
    elementwise,
    export,
    floating,
    logical,
    same,
    scalar_functions,
    test,
)
from ..schedule.body import special

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


# ----- arithmetic -----


@elementwise(ref=np.add)
def add(x, y):
    """Sum."""
    return x + y


@add.vjp
def _(g):
    return g, g


@elementwise(ref=np.subtract)
def sub(x, y):
    """Difference."""
    return x - y


@sub.vjp
def _(g):
    return g, -g


@elementwise(ref=np.multiply)
def mul(x, y):
    """Product."""
    return x * y


@mul.vjp
def _(g, x, y):
    return g * y, g * x


@elementwise(ref=np.divide, domain=(0.5, 2.0), dtypes=floating)
def div(x, y):
    """Quotient."""
    return x / y


@div.vjp
def _(g, y, out):
    gx = g / y
    return gx, -gx * out


@elementwise(ref=np.negative)
def neg(x):
    """Negation."""
    return -x


@neg.vjp
def _(g):
    return -g


@elementwise(ref=np.exp, dtypes=floating)
def exp(x):
    """Exponential function."""
    return math.exp(x)


@exp.vjp
def _(g, out):
    return g * out


@elementwise(ref=np.tanh, domain=(-3.0, 3.0), dtypes=floating)
def tanh(x):
    """Hyperbolic tangent."""
    return math.tanh(x)


@tanh.vjp
def _(g, out):
    return g * (1 - out * out)


@elementwise(ref=np.where)
def where(condition: bool, x, y):
    """`x` where the condition holds, `y` elsewhere."""
    return x if condition else y


@where.vjp
def _(g, condition: bool):
    return g if condition else 0, 0 if condition else g


@elementwise(ref=np.greater, dtypes=test)
def gt(x, y):
    """Whether x > y."""
    return x > y


for _op in (add, sub, mul, div, neg, exp, tanh, where, gt):
    export(method=True)(_op)
scalar_functions.update(exp=exp, tanh=tanh, where=where)
