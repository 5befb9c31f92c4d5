"""Parameter and Buffer: the tensors that a Module registers when they are assigned to it."""

from __future__ import annotations

import copy as copying
from typing import Any, Self

from ..ops import creation
from ..tensor import Tensor, plainly


class Parameter(Tensor):
    """A tensor that a `Module` registers as one of its parameters when it is assigned.

    Args:
        data: the values, of any shape and dtype. The storage is shared, as by `detach()`; the
            parameter is a leaf. Without it the parameter is empty.
        requires_grad: whether `backward()` fills `.grad`. `no_grad` does not change this.

    Raises:
        RuntimeError: `requires_grad` with a dtype that cannot carry a gradient.

    Example:
        >>> nn.Parameter(adjit.ones(2))
        Parameter containing:
        tensor([1., 1.], requires_grad=True)
    """

    __torch_function__ = plainly

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Self:
        made = _leaf(cls, data)
        if requires_grad and not (made.is_floating_point() or made.is_complex()):
            raise RuntimeError(
                "Only Tensors of floating point and complex dtype can require gradients"
            )
        return made.requires_grad_(requires_grad)

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        """Everything happens in `__new__`."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) in memo:
            return memo[id(self)]
        copied = type(self)(copying.deepcopy(self.data, memo), self.requires_grad)
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return type(self), (self.data, self.requires_grad), dict(self.__dict__) or None

    def __repr__(self) -> str:  # type: ignore[override]
        return "Parameter containing:\n" + super().__repr__()


class Buffer(Tensor):
    """A tensor that a `Module` registers as one of its buffers when it is assigned.

    Args:
        data: the values, of any shape and dtype; the storage is shared.
        persistent: whether the buffer belongs to the module's `state_dict`.

    Example:
        >>> module = nn.Module()
        >>> module.running_mean = nn.Buffer(adjit.zeros(3))
        >>> module.state_dict().keys()
        odict_keys(['running_mean'])
    """

    persistent: bool
    __torch_function__ = plainly

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Self:
        buffer = _leaf(cls, data)
        if data is not None:
            buffer.requires_grad_(data.requires_grad)
        buffer.persistent = persistent
        return buffer

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        """Everything happens in `__new__`."""


def _leaf(cls: type[Any], data: Tensor | None) -> Any:
    """A tensor of the class on the same storage, without history; empty without data."""
    return (creation.empty(0) if data is None else data.detach()).of_class(cls)
