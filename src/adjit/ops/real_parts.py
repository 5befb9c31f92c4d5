"""Parts of complex numbers, of real ones: a real tensor is its own real part and its own conjugate."""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np

from ..graph.elementwise import elementwise
from ..graph.export import export
from ..graph.record import check_tensor
from ..tensor import Tensor
from .promotion import floating


@export
def real(input: Tensor) -> Tensor:
    """The real part: of a real tensor itself.

    Example:
        >>> adjit.real(adjit.tensor([1., -2.]))
        tensor([ 1., -2.])
    """
    check_tensor("real", "input", 1, input)
    return input


@export
def imag(input: Tensor) -> NoReturn:
    """The imaginary part, which only complex tensors have.

    Raises:
        RuntimeError: always, as in PyTorch for a real tensor.

    Example:
        >>> x = adjit.tensor([1.])
        >>> x.imag if x.is_complex() else adjit.zeros_like(x)
        tensor([0.])
    """
    raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")


Tensor.real = property(real)  # type: ignore[attr-defined]
Tensor.imag = property(imag)  # type: ignore[attr-defined]


@export(method=True)
def conj(input: Tensor) -> Tensor:
    """The conjugate: of a real tensor itself.

    Example:
        >>> adjit.tensor([1., -2.]).conj()
        tensor([ 1., -2.])
    """
    check_tensor("conj", "input", 1, input)
    return input


for _name in ("conj_physical", "resolve_conj", "resolve_neg"):
    export(method=True, name=_name)(conj)


@export(method="conj_physical_", name="conj_physical_")
def conj_physical_(input: Tensor) -> Tensor:
    """Conjugate in place: a real tensor stays as it is, but counts as written.

    Raises:
        RuntimeError: for a leaf that requires gradients.

    Example:
        >>> adjit.tensor([1., -2.]).conj_physical_()
        tensor([ 1., -2.])
    """
    check_tensor("conj_physical_", "input", 1, input)
    return input.copy_(input)


@export(method=True)
def is_conj(input: Tensor) -> bool:
    """False: no tensor is kept conjugated.

    Example:
        >>> adjit.tensor([1.]).is_conj()
        False
    """
    return False


@export(method=True)
def is_neg(input: Tensor) -> bool:
    """False: no tensor is kept negated.

    Example:
        >>> adjit.tensor([-1.]).is_neg()
        False
    """
    return False


@export(method=True, out=True)
@elementwise(ref=np.angle, dtypes=floating)
def angle(x):
    """The angle of each element in the complex plane, in radians: 0 or, for negative numbers, pi.

    Differentiable; the gradient is 0.

    Example:
        >>> adjit.tensor([2., -2.]).angle()
        tensor([0.0000, 3.1416])
    """
    return x if x != x else (math.pi if x < 0 else 0)


@angle.vjp
def _(g):
    return 0
