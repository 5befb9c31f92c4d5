"""Floating-point numbers by their bits: the next one, mantissas and exponents."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..dtypes import result_type
from ..graph.batching import Batch
from ..graph.composed import composed
from ..graph.export import export
from ..graph.operation import operation
from ..graph.record import check_tensor
from ..shapes import broadcast_shapes
from ..tensor import Tensor
from .bits import in_dtype
from .elementwise import where
from .reduce import return_type

# Of each dtype: whole numbers as wide, the bits of the mantissa, and those of the exponent as a number.
PARTS = {dtypes.float32: (dtypes.int32, 23, 0xFF), dtypes.float64: (dtypes.int64, 52, 0x7FF)}

Frexp = return_type("frexp", "mantissa exponent")


@export(method=True, inplace=True, out=True)
@composed
def nextafter(input: Tensor, other: Tensor) -> Tensor:
    """The next number after `input` that can be represented, towards `other`; `other` where both are equal.

    NaN where one of them is. The gradient goes to `input` where the two differ, as in PyTorch.

    Args:
        input, other: of a floating dtype, which broadcast.

    Raises:
        NotImplementedError: for whole numbers.

    Example:
        >>> adjit.nextafter(adjit.tensor([0., 1.]), adjit.tensor([1., 1.]))
        tensor([1.4013e-45, 1.0000e+00])
    """
    check_tensor("nextafter", "other", 2, other)
    kind = result_type(input, other)
    if kind not in PARTS:
        raise NotImplementedError(f"\"nextafter_cpu\" not implemented for '{kind.legacy}'")
    shape = broadcast_shapes(input.shape, other.shape)
    found: Tensor = next_number(input.to(kind).expand(shape), other.to(kind).expand(shape))[0]
    return found


@operation("NextafterBackward0", differentiable=(0,))
def next_number(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """`nextafter` of tensors of one shape and dtype, and whether they differ."""
    whole = PARTS[x.dtype][0]
    bits = in_dtype(x.contiguous(), whole)
    away = (y > x) == (x > 0)  # from 0, where the bits of a number grow
    least = in_dtype(y.new_ones(()).to(whole), x.dtype)  # the smallest number
    moved = in_dtype(where(away, bits + 1, bits - 1), x.dtype)
    moved = where(x == 0, where(y > 0, least, -least), moved)
    differs = x != y
    return where(differs, where((x != x) | (y != y), x + y, moved), y), differs


@next_number.jvp
def _(t_x: Tensor, outs: tuple[Tensor, Tensor]) -> Any:
    return where(outs[1], t_x, 0)


@next_number.vjp
def _(g: Tensor, outs: tuple[Tensor, Tensor]) -> Any:
    return where(outs[1], g, 0), g * 0


@next_number.batched
def _(batch: Batch, x: Tensor, y: Tensor) -> Any:
    return [batch.wrapped(made) for made in next_number(batch.full(x), batch.full(y))]


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
