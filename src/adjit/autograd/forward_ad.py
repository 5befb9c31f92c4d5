"""Forward mode: dual tensors, made and taken apart by hand. `adjit.func.jvp` does both around a function."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..graph.record import is_tensor
from ..tensor import Tensor
from .dual import Dual, DualLevel
from .modes import _Mode

__all__ = [
    "UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual",
]  # fmt: skip

_entered: list[DualLevel] = []  # one at most, as in PyTorch


def enter_dual_level() -> int:
    """Enter a level, in which dual tensors can be made; returns its number, 0.

    Raises:
        RuntimeError: if there is one already: use `adjit.func.jvp` for higher derivatives.

    Example:
        >>> adjit.autograd.forward_ad.enter_dual_level()
        0
        >>> adjit.autograd.forward_ad.exit_dual_level()
    """
    if _entered:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _entered.append(DualLevel())
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Leave the level; its dual tensors have no tangents from then on.

    Raises:
        RuntimeError: if there is none, or `level` is another one.

    Example:
        >>> number = adjit.autograd.forward_ad.enter_dual_level()
        >>> adjit.autograd.forward_ad.exit_dual_level(level=number)
    """
    current = len(_entered) - 1
    if level is not None and level != current:
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is not "
            "supported."
        )
    if current < 0:
        raise RuntimeError("Dual level must be a positive number.")
    _entered.pop().is_over = True


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A tensor with a tangent, which ops push forward. It shares the memory of `tensor`.

    Differentiable in both.

    Args:
        tensor: any shape, of a floating dtype.
        tangent: of that shape.
        level: the number that `enter_dual_level` gave.

    Raises:
        RuntimeError: outside of a level, if shapes differ, or if one of them has a tangent already.
        ValueError: if one of them is not floating.

    Example:
        >>> import adjit.autograd.forward_ad as fwAD
        >>> with fwAD.dual_level():
        ...     x = fwAD.make_dual(adjit.tensor([1., 2.]), adjit.tensor([1., 0.]))
        ...     print(x * x)
        tensor([1., 4.], tangent=tensor([2., 0.]))
    """
    if level is None:
        level = len(_entered) - 1
    if level < 0:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first."
        )
    for name, t in (("primal", tensor), ("tangent", tangent)):
        if not t.is_floating_point():
            raise ValueError(
                f"Expected {name} to be floating point or complex, but got: torch.{t.dtype.name}"
            )
    if level >= len(_entered):
        raise RuntimeError("Invalid level given to _make_dual")
    return _entered[level].made_of(tensor, tangent)


class UnpackedDualTensor(NamedTuple):
    """A dual tensor taken apart.

    Example:
        >>> adjit.autograd.forward_ad.unpack_dual(adjit.ones(1))
        UnpackedDualTensor(primal=tensor([1.]), tangent=None)
    """

    primal: Tensor
    tangent: Tensor | None


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The value and the tangent of a dual tensor, None where there is none. Differentiable.

    Raises:
        TypeError: if `tensor` is no tensor.
        RuntimeError: if a dual tensor has no such level.

    Example:
        >>> import adjit.autograd.forward_ad as fwAD
        >>> with fwAD.dual_level():
        ...     x = fwAD.make_dual(adjit.tensor(3.), adjit.tensor(1.))
        ...     fwAD.unpack_dual(x * x)
        UnpackedDualTensor(primal=tensor(9.), tangent=tensor(6.))
    """
    if level is None:
        level = len(_entered) - 1
    if level >= 0 and not is_tensor(tensor):
        raise TypeError(
            f"_unpack_dual(): argument 'dual' (position 1) must be Tensor, not {type(tensor).__name__}"
        )
    if level >= len(_entered) and tensor.__class__ is Dual:
        raise RuntimeError("Invalid level given to _fw_primal")
    if not 0 <= level < len(_entered):
        return UnpackedDualTensor(tensor, None)
    current = _entered[level]
    return UnpackedDualTensor(current.value(tensor), current.tangent(tensor))


class dual_level(_Mode):
    """A block with a level of its own: see `enter_dual_level`. Tangents end with it.

    Example:
        >>> import adjit.autograd.forward_ad as fwAD
        >>> with fwAD.dual_level():
        ...     y = fwAD.make_dual(adjit.tensor(2.), adjit.tensor(1.)).log()
        ...     print(fwAD.unpack_dual(y).tangent)
        tensor(0.5000)
        >>> fwAD.unpack_dual(y).tangent is None
        True
    """

    def __enter__(self) -> Any:
        return enter_dual_level()

    def __exit__(self, *_: Any) -> None:
        exit_dual_level()
