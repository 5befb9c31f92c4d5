"""Dtype rules of elementwise ops: what they compute in, what they give, what they refuse.

A rule sees (dtype, rank) of each operand and runs once for each combination of operands, so its
checks cost nothing in later calls.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import dtypes
from ..dtypes import dtype
from ..graph.elementwise import floating, logical, same, test

Kinds = list[tuple[dtype, int]]
Rule = Callable[[Kinds], tuple[dtype, dtype]]


def only(kinds: str, label: str, rule: Rule = same) -> Rule:
    """`rule` for compute dtypes of some kinds; for others PyTorch's error, naming its kernel."""

    def checked(operands: Kinds) -> tuple[dtype, dtype]:
        compute, result = rule(operands)
        if compute.kind not in kinds:
            raise NotImplementedError(f"\"{label}\" not implemented for '{compute.legacy}'")
        return compute, result

    return checked


def floats(label: str) -> Rule:
    """Floating dtypes only."""
    return only("f", label)


def numbers(label: str) -> Rule:
    """Every dtype but bool."""
    return only("iuf", label)


def integers(label: str) -> Rule:
    """Integers only."""
    return only("iu", label)


def bits(label: str) -> Rule:
    """Integers and bool."""
    return only("biu", label)


def refusing_bool(message: str) -> Rule:
    """Every dtype but bool, with a message of its own."""

    def checked(operands: Kinds) -> tuple[dtype, dtype]:
        compute, result = same(operands)
        if compute.kind == "b":
            raise RuntimeError(message)
        return compute, result

    return checked


def subtracting(operands: Kinds) -> tuple[dtype, dtype]:
    """The promoted dtype; bool has no difference."""
    found = [kind for kind, _ in operands if kind.kind == "b"]
    if len(found) == len(operands):
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
            "`logical_xor()` operator instead."
        )
    if found:
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying "
            "to invert a mask, use the `~` or `logical_not()` operator instead."
        )
    return same(operands)


def widening(operands: Kinds) -> tuple[dtype, dtype]:
    """The promoted dtype, int64 for bool."""
    kind = same(operands)[0]
    kind = dtypes.int64 if kind.kind == "b" else kind
    return kind, kind


def uniform(operands: Kinds) -> tuple[dtype, dtype]:
    """The dtype that all operands have."""
    if any(kind is not operands[0][0] for kind, _ in operands):
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    return like_first(operands)


def like_first(operands: Kinds) -> tuple[dtype, dtype]:
    """The dtype of the first operand, whatever the others are."""
    return operands[0][0], operands[0][0]


def float_test(operands: Kinds) -> tuple[dtype, dtype]:
    """Compare in a floating dtype, give bool."""
    return floating(operands)[0], dtypes.bool


__all__ = [
    "bits",
    "float_test",
    "floating",
    "floats",
    "integers",
    "like_first",
    "logical",
    "numbers",
    "only",
    "refusing_bool",
    "same",
    "subtracting",
    "test",
    "uniform",
    "widening",
]
