"""Floats to whole numbers, for numbers too that these do not hold.

LLVM leaves open what comes of those, and it differs by how a loop is vectorised and for which
processor. PyTorch has what x86 has: the smallest number for what 32 or 64 bits do not hold, NaN and
infinities too, of which narrower dtypes keep the lowest bits; uint8 keeps those of 64 bits, int8 and
int16 those of 32. So it is here, in every kernel: the target converts by this, a vector of lanes too.
"""

from typing import Any

from llvmlite import ir


def to_integer(builder: ir.IRBuilder, value: ir.Value, kind: Any) -> ir.Value:
    """The instructions that make an integer of Numba's type `kind` of a float, or vectors of both."""
    wide = 64 if kind.bitwidth == 64 or not kind.signed else 32
    low, high = (
        _constant(value.type, -(2.0 ** (wide - 1))),
        _constant(value.type, 2.0 ** (wide - 1)),
    )
    is_held = builder.and_(
        builder.fcmp_ordered(">=", value, low), builder.fcmp_ordered("<", value, high)
    )
    whole = _of_width(value.type, wide)
    smallest = _constant(whole, -(1 << (wide - 1)))
    found = builder.select(is_held, builder.fptosi(value, whole), smallest)
    if wide == kind.bitwidth:
        return found
    return builder.trunc(found, _of_width(value.type, kind.bitwidth))


def _of_width(like: ir.Type, width: int) -> ir.Type:
    """An integer type of so many bits, of as many lanes as another type."""
    kind = ir.IntType(width)
    return ir.VectorType(kind, like.count) if isinstance(like, ir.VectorType) else kind


def _constant(kind: ir.Type, number: Any) -> ir.Constant:
    """A number of a type, in every lane."""
    return ir.Constant(kind, [number] * kind.count if isinstance(kind, ir.VectorType) else number)
