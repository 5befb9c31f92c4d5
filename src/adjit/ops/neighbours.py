"""Floating-point numbers by their bits: mantissas and exponents."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..graph.export import export
from ..graph.operation import operation
from ..tensor import Tensor
from .bits import in_dtype
from .elementwise import where
from .reduce import return_type

# Of each dtype: whole numbers as wide, the bits of the mantissa, and those of the exponent as a number.
PARTS = {dtypes.float32: (dtypes.int32, 23, 0xFF), dtypes.float64: (dtypes.int64, 52, 0x7FF)}

Frexp = return_type("frexp", "mantissa exponent")


@export(method=True, out=True)
def frexp(input: Tensor) -> Any:
    """Mantissas from 0.5 to 1 and exponents, `input == mantissa * 2**exponent`, as `(mantissa, exponent)`.

    Numbers that are 0, infinite or NaN are mantissas of exponent 0. The exponents are int32.

    Differentiable in `input`.

    Raises:
        RuntimeError: for whole numbers.

    Example:
        >>> adjit.frexp(adjit.tensor([3., -0.25])).exponent
        tensor([ 2, -1], dtype=adjit.int32)
    """
    if input.dtype not in PARTS:
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    return Frexp(*mantissa_and_exponent(input))


@operation("FrexpBackward0", differentiable=(0,))
def mantissa_and_exponent(x: Tensor) -> tuple[Tensor, Tensor]:
    """What `frexp` gives."""
    whole, width, most = PARTS[x.dtype]
    is_small = x.abs() < dtypes.finfo(x.dtype).tiny  # whose leading bits are 0
    bits = in_dtype((where(is_small, x * 2.0**width, x)).contiguous(), whole)
    biased = bits.bitwise_right_shift(width) & most
    plain = (x != 0) & (biased != most)
    middle = most >> 1
    fraction = (bits & ~(most << width)) | ((middle - 1) << width)
    exponent = biased - (middle - 1) - where(is_small, width, 0)
    return where(plain, in_dtype(fraction, x.dtype), x), where(plain, exponent, 0).to(dtypes.int32)


@mantissa_and_exponent.vjp
def _(g: Tensor, outs: tuple[Tensor, Tensor]) -> Any:
    return g / outs[1].to(g.dtype).exp2()


@mantissa_and_exponent.jvp
def _(t_x: Tensor, outs: tuple[Tensor, Tensor]) -> Any:
    return t_x / outs[1].to(t_x.dtype).exp2()


mantissa_and_exponent.batched_over()
