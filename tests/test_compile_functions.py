"""Captured functions with an `autograd.Function` behind their results, whose backward is the user's code."""

from __future__ import annotations

from typing import Any

import pytest

import adjit as T
from adjit.nn import functional as F

COUNTED: list[int] = []
TABLE = {"scale": 2.0}


def doubled(g: Any) -> Any:
    return F.relu(g) * 2 - F.relu(-g) * T.full((), 2.0)


def count(g: Any) -> Any:
    COUNTED.append(1)
    return g * 2


class Plain(T.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.scale = 2
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            return doubled(g) + 0 * x.sum() * ctx.scale
        return None


class AddsToWhatItKeeps(Plain):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.total = T.zeros_like(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        ctx.total += g
        return ctx.total * 2


class WritesWhatItSaved(Plain):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(T.full_like(x, 2.0))
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (slope,) = ctx.saved_tensors
        slope.mul_(g)
        return slope


class WritesItsGradient(Plain):
    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        T.mul(g, 2, out=g)
        return g


class Counts(Plain):
    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        COUNTED.append(1)
        return g * 2


class CountsElsewhere(Plain):
    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return count(g)


class Remembers(Plain):
    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        TABLE["scale"] = 2.0
        return g * TABLE["scale"]


OTHERS = [
    AddsToWhatItKeeps,
    WritesWhatItSaved,
    WritesItsGradient,
    Counts,
    CountsElsewhere,
    Remembers,
]


def gradients(cls: type[Plain], wrap: Any) -> tuple[list[Any], int]:
    """What six calls send back, and how often a backward that counts has run."""
    w = T.ones(2, requires_grad=True)
    f = wrap(lambda: (cls.apply(w) * 3).sum())
    COUNTED.clear()
    found = []
    for _ in range(6):
        w.grad = None
        f().backward()
        found.append(w.grad.tolist())
    return found, len(COUNTED)


@pytest.mark.parametrize("cls", [Plain, *OTHERS])
def test_a_backward_runs_when_gradients_are_sent_back(cls: type[Plain]) -> None:
    """And at no other time: not while the function is captured, whatever it changes."""
    assert gradients(cls, T.compile) == gradients(cls, lambda f: f)
