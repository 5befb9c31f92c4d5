"""What recording knows of an elementwise op on operands of given specs, and its backward of how to go back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..dtypes import dtype
from ..schedule.planning.recipe import Recipe
from .node import GradContext, Spec

PASSED, NOTHING = -1, -2  # among the sources of a vjp
AS_IS, AS_TENSOR, FITTED = range(3)  # its forms

Pick = Callable[[Any], tuple[Any, ...]]  # picks some of what it is given, in order


class Kernel(NamedTuple):
    """A kernel that gives gradients of some operands."""

    recipe: Recipe
    only: int  # the operand whose gradient is its only result and fits, or -1
    which: tuple[int, ...]  # the operands that it gives gradients for
    numbers: tuple[int, ...]  # the positions of its numbers among the forward's
    pick: Pick  # picks its inputs out of `g` and the saved values
    reads: tuple[int, ...]  # the places of its inputs there


class Vjp(NamedTuple):
    """How the gradients of an elementwise op's operands come from that of its result, `g`."""

    passed: Pick | None  # of (g, None): those that are `g` itself, if there are any
    fits: bool  # whether `g` has the specs of these operands
    kernels: tuple[Kernel, ...]  # for the others
    sources: tuple[int, ...] | None  # for each operand its kernel, `PASSED` for `g`, or `NOTHING`
    forms: tuple[int, ...]  # for each operand what to make of that, as `form` says


class OpRecord(GradContext):
    """An elementwise op on operands of given specs: its lowered op, and what recording has to know besides."""

    __slots__ = (
        "compute", "differentiable", "floating", "numbers", "operands", "over", "recipe", "vjps",
        "vjps_by_spec", "whole",
    )  # fmt: skip

    def __init__(
        self,
        recipe: Recipe,
        operands: tuple[Spec | None, ...],
        numbers: tuple[str, ...],
        compute: dtype,
        *,
        whole: bool,
        differentiable: bool,
    ) -> None:
        self.recipe = recipe  # what runs it
        self.over: Recipe | None = None  # what may write over the first operand, once asked for
        self.operands = operands  # a spec for each, None for a Python number
        self.numbers = numbers  # names of the Python numbers, in the order of words
        self.compute = compute  # the dtype that the body runs in
        self.floating = compute.is_floating_point  # of its numbers words are made as of floats,
        self.whole = whole  # or they are words as they are
        self.differentiable = differentiable
        # By which operands need gradients, as bits: of a bare `g`, which has the spec of the result;
        self.vjps: dict[int, Vjp] = {}
        self.vjps_by_spec: dict[tuple[Spec, int], Vjp] = {}  # of a tensor `g`, and by its spec
