"""Rules for tensors that are made of numbers: needed where their sizes or numbers are dynamic."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..builder import GraphBuilder, OnnxValue, Operand
from .registry import RULES, Rule, rule


def filled(number: Operand) -> Rule:
    """The rule of a function that makes tensors of one number."""

    def write(g: GraphBuilder, *ways: Any, **more: Any) -> OnnxValue:
        return g.expand(g.operand(number, g.out.dtype), g.out.shape)

    return write


for _number, _word in ((0, "zeros"), (1, "ones"), (0, "empty")):
    for _name in (_word, f"{_word}_like", f"new_{_word}"):
        RULES[_name] = filled(_number)
RULES["zero"] = filled(0)


@rule("full", "full_like", "new_full", "fill")
def full(g: GraphBuilder, size: Any, fill_value: Any = None, *ways: Any, **more: Any) -> OnnxValue:
    given = more.get("value", ways[0] if ways else None)
    number = fill_value if given is None else given
    return g.expand(g.operand(number, g.out.dtype), g.out.shape)


@rule("copy_")
def copy(
    g: GraphBuilder, input: OnnxValue, src: OnnxValue, non_blocking: bool = False
) -> OnnxValue:
    return g.expand(g.cast(src, input.dtype), g.out.shape)


@rule("arange")
def arange(
    g: GraphBuilder, start: Any = 0, end: Any = None, step: Any = 1, **more: Any
) -> OnnxValue:
    first, last = (0, start) if end is None else (start, end)
    kind = np.dtype(np.int64) if g.out.dtype.kind in "iu" else g.out.dtype
    return g.node("Range", *(g.operand(number, kind) for number in (first, last, step)))


@rule("tensor", "as_tensor", "asarray", "scalar_tensor")
def tensor(g: GraphBuilder, data: Any, *ways: Any, **more: Any) -> OnnxValue:
    return packed(g, data)


def packed(g: GraphBuilder, data: Any) -> OnnxValue:
    """Numbers in lists, or a number, as a value."""
    if not isinstance(data, (tuple, list)):
        return g.operand(data, g.out.dtype)
    made: OnnxValue = g.node("Concat", *(g.unsqueeze(packed(g, part), 0) for part in data), axis=0)
    return made
