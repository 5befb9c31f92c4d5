"""PyTorch's operators by the names of its C++ library: `torch.ops.aten.add.Tensor`.

Programs use them as keys, or call what they looked up; here are those that public packages name. They are
called as functions and methods of tensors, with the operator's own parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..tensor import Tensor
from . import joining, softmax


def _slice(
    self: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    where = dim % self.ndim
    return self[(*(slice(None),) * where, slice(start, end, step))]


def _index(self: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    return self[tuple(slice(None) if index is None else index for index in indices)]


def _sparse(*args: Any, **kwargs: Any) -> NoReturn:
    raise NotImplementedError("there are no sparse tensors here: use dense ones")


# What is no method of its name, or has other parameters there.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "_log_softmax_backward_data": softmax._log_softmax_backward_data,
    "_pin_memory": lambda self: self.pin_memory(),
    "_softmax_backward_data": softmax._softmax_backward_data,
    "_to_copy": lambda self, **kwargs: self.to(**kwargs, copy=True),
    "_sparse_addmm": _sparse,
    "_sparse_mm_reduce_impl": _sparse,
    "alias": lambda self: self[...],
    "cat": joining.cat,
    "index": _index,
    "slice": _slice,
    "stack": joining.stack,
}
# The names of an operator's overloads: kinds of arguments, of which the call tells anyway.
_OVERLOADS = {
    "_log_softmax_backward_data": "default", "_softmax_backward_data": "default",
    "_pin_memory": "default", "_sparse_addmm": "default", "_sparse_mm_reduce_impl": "default",
    "_to_copy": "default", "abs": "default", "add": "Tensor Scalar", "add_": "Tensor Scalar",
    "addmm": "default", "alias": "default", "bmm": "default", "cat": "default",
    "clone": "default", "copy_": "default", "detach": "default", "div": "Tensor Scalar", "exp": "default",
    "expand": "default", "flip": "default", "index": "Tensor", "index_select": "default", "log": "default",
    "mm": "default", "mul": "Tensor Scalar", "mul_": "Tensor Scalar", "neg": "default", "permute": "default",
    "relu": "default", "select": "int", "sigmoid": "default", "slice": "Tensor", "sort": "default stable",
    "sqrt": "default", "squeeze": "default dim dims", "stack": "default", "sub": "Tensor Scalar",
    "sub_": "Tensor Scalar", "sum": "default dim_IntList", "t": "default", "tanh": "default",
    "transpose": "int", "unbind": "int", "unsqueeze": "default", "view": "default",
}  # fmt: skip


class OpOverload:
    """An operator for one kind of arguments."""

    def __init__(self, packet: OpOverloadPacket, name: str) -> None:
        self.overloadpacket, self._overloadname = packet, name
        self.__name__ = f"{packet.__name__}.{name}"

    def name(self) -> str:
        """The name, as the C++ library has it."""
        return f"aten::{self.__name__.removesuffix('.default')}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.overloadpacket(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.overloadpacket}', overload='{self._overloadname}')>"

    def __str__(self) -> str:
        return f"{self.overloadpacket}.{self._overloadname}"


class OpOverloadPacket:
    """An operator; its overloads are attributes."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self._overloads = _OVERLOADS[name].split()
        for overload in self._overloads:
            setattr(self, overload, OpOverload(self, overload))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = _FUNCTIONS.get(self.__name__) or getattr(Tensor, self.__name__)
        return function(*args, **kwargs)

    def overloads(self) -> list[str]:
        """The names of the overloads."""
        return list(self._overloads)

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"The underlying op of '{self}' has no overload name '{name}'")


_PACKETS = {name: OpOverloadPacket(name) for name in _OVERLOADS}


def __dir__() -> list[str]:
    return sorted({*globals(), *_PACKETS})


def __getattr__(name: str) -> OpOverloadPacket:
    """The operators; they are no globals, as some have the names of builtins."""
    if name not in _PACKETS:
        raise AttributeError(f"'_OpNamespace' 'aten' object has no attribute '{name}'")
    return _PACKETS[name]
