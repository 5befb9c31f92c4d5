"""Parameter and Buffer: the tensors that a Module registers when they are assigned to it."""

from __future__ import annotations

import copy as copying
import inspect
from typing import Any, NoReturn, Self

from ..graph import record
from ..ops import creation
from ..tensor import Tensor
from ..tensor import plainly as _plainly


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

    __torch_function__ = _plainly
    _is_plain = True

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Self:
        made: Self = Tensor._make_subclass(
            cls, creation.empty(0) if data is None else data, requires_grad
        )
        return made

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
    __torch_function__ = _plainly
    _is_plain = True

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Self:
        buffer = _leaf(cls, data)
        if data is not None:
            buffer.requires_grad_(data.requires_grad)
        buffer.persistent = persistent
        return buffer


def _leaf(cls: type[Any], data: Tensor | None) -> Any:
    """A tensor of the class on the same storage, without history; empty without data."""
    return (creation.empty(0) if data is None else data.detach())._of_class(cls)


class _Uninitialized:
    """What parameters and buffers whose shape is not known yet share."""

    _uninitialized = True  # tensors of this kind are refused by operations
    cls_to_become: type[Any]

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become an ordinary one of this shape, whose values are not set.

        Args:
            shape: the shape.
            device: None is where this one would have been.
            dtype: None is the dtype that this one would have had.

        Example:
            >>> weight = nn.UninitializedParameter()
            >>> weight.materialize((2, 3))
            >>> type(weight), weight.shape
            (<class 'adjit.nn.parameter.Parameter'>, adjit.Size([2, 3]))
        """
        this: Any = self
        spec = this._spec
        this.data = creation.empty(shape, device=device or spec.device, dtype=dtype or spec.dtype)
        this.__class__ = self.cls_to_become

    @property
    def shape(self) -> Any:
        """There is none yet.

        Raises:
            RuntimeError: always.

        Example:
            >>> nn.UninitializedParameter().materialize((2,))
        """
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually "
            "happens in `load_state_dict` when trying to load an uninitialized parameter into an "
            "initialized one. Call `forward` to initialize the parameters before accessing their "
            "attributes."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise record.uninitialized_error(type(self))


# What may be asked of a parameter without a shape. All other methods are errors, views among them, which
# never get to where operations refuse one.
_ASKED = {
    "as_subclass", "is_complex", "is_floating_point", "is_inference", "requires_grad_",
}  # fmt: skip
for _name in dir(Tensor):
    if _name[0] != "_" and _name not in _ASKED and callable(inspect.getattr_static(Tensor, _name)):
        setattr(_Uninitialized, _name, _refuse)
for _name in ("ndim", "T", "mT", "H", "mH"):
    setattr(_Uninitialized, _name, property(_refuse))
for _name in ("__getitem__", "__iter__", "__len__"):
    setattr(_Uninitialized, _name, _refuse)


class UninitializedParameter(_Uninitialized, Parameter):  # type: ignore[misc]
    """A parameter whose shape is not known yet: see `nn.LazyLinear`. Operations refuse it.

    Args:
        requires_grad: whether `backward()` will fill `.grad`.
        device: where it will be.
        dtype: its floating dtype.

    Example:
        >>> nn.UninitializedParameter()
        <UninitializedParameter>
    """

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Self:
        return _leaf(cls, creation.empty(0, device=device, dtype=dtype)).requires_grad_(
            requires_grad
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self._spec.device, self._spec.dtype)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return type(self), (self.requires_grad, None, self._spec.dtype)


class UninitializedBuffer(_Uninitialized, Buffer):  # type: ignore[misc]
    """A buffer whose shape is not known yet: see `nn.LazyBatchNorm1d`. Operations refuse it.

    Args:
        requires_grad: False.
        device: where it will be.
        dtype: its dtype.
        persistent: whether it belongs to the module's `state_dict`.

    Example:
        >>> nn.UninitializedBuffer()
        <UninitializedBuffer>
    """

    cls_to_become = Buffer

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: Any = None,
        persistent: bool = True,
    ) -> Self:  # fmt: skip
        made = _leaf(cls, creation.empty(0, device=device, dtype=dtype))
        made.persistent = persistent
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(False, self._spec.device, self._spec.dtype, self.persistent)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return type(self), (False, None, self._spec.dtype, self.persistent)


def is_lazy(param: Any) -> bool:
    """Tell whether something is a parameter or buffer whose shape is not known yet.

    Example:
        >>> nn.parameter.is_lazy(nn.UninitializedParameter())
        True
    """
    return isinstance(param, _Uninitialized)
