"""PyTorch's functions of lists of tensors, `torch._foreach_add_` and its like, which optimisers use.

Here each is the method of every tensor: what is recorded one after the other runs together.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

from .graph import record
from .tensor import Tensor

_UNARY = """abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg
    reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"""
# The method behind each, which takes numbers too.
_BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "div", "pow": "pow", "clamp_max": "clamp_max",
    "clamp_min": "clamp_min", "maximum": "clamp_min", "minimum": "clamp_max",
}  # fmt: skip


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(map(record.is_tensor, value))


def _invalid(name: str, *values: Any) -> TypeError:
    got = ", ".join(type(value).__name__ for value in values)
    return TypeError(f"{name}() received an invalid combination of arguments - got ({got})")


def _check(name: str, tensors: Any, *others: Any) -> None:
    """Raise PyTorch's errors for what are no lists of tensors of one length."""
    if not all(map(_is_list, (tensors, *others))):
        raise _invalid(name, tensors, *others)
    if not tensors:
        raise RuntimeError("Tensor list must have at least one tensor.")
    for other in others:
        if len(other) != len(tensors):
            raise RuntimeError(
                f"Tensor lists must have the same number of tensors, got {len(tensors)} and {len(other)}"
            )


def _for_each(name: str, tensors: Sequence[Tensor], value: Any) -> Sequence[Any]:
    """What belongs to each tensor: of a list its own, else the same for all."""
    if _is_list(value):
        _check(name, tensors, value)
        return list(value)
    if isinstance(value, (list, tuple)):
        if not all(isinstance(one, numbers.Number) for one in value):
            raise _invalid(name, tensors, value)
        if len(value) != len(tensors):
            raise RuntimeError("Tensor list must have same number of elements as scalar list.")
        return value
    if not record.is_tensor(value) and not isinstance(value, numbers.Number):
        raise _invalid(name, tensors, value)
    return [value] * len(tensors)


def _unary(name: str, method: Callable[[Tensor], Tensor], in_place: bool) -> Callable[..., Any]:
    def function(self: Sequence[Tensor]) -> Any:
        _check(name, self)
        made = tuple([method(one) for one in self])
        return self if in_place else made

    return function


def _binary(name: str, method: Callable[..., Tensor], in_place: bool) -> Callable[..., Any]:
    def function(self: Any, other: Any, **alpha: Any) -> Any:
        if name == "_foreach_pow" and isinstance(self, numbers.Number):  # the base is a number
            _check(name, other)
            return tuple([self**one for one in other])
        _check(name, self)
        values = _for_each(name, self, other)
        made = tuple([method(one, value, **alpha) for one, value in zip(self, values, strict=True)])
        return self if in_place else made

    return function


def _ternary(name: str, method: Callable[..., Tensor], in_place: bool) -> Callable[..., Any]:
    def function(
        self: Sequence[Tensor], tensor1: Sequence[Tensor], tensor2: Sequence[Tensor], value: Any = 1
    ) -> Any:
        _check(name, self, tensor1, tensor2)
        if record.is_tensor(value):
            value = value.tolist()
            if len(value) != len(self):
                raise RuntimeError(
                    f"Expected length of scalars to match input of length {len(self)} but got "
                    f"{len(value)} instead."
                )
        values = _for_each(name, self, value)
        made = tuple(
            [
                method(a, b, c, value=v)
                for a, b, c, v in zip(self, tensor1, tensor2, values, strict=True)
            ]
        )
        return self if in_place else made

    return function


def _lerp(name: str, method: Callable[..., Tensor], in_place: bool) -> Callable[..., Any]:
    def function(self: Sequence[Tensor], tensors1: Sequence[Tensor], weight: Any) -> Any:
        _check(name, self, tensors1)
        weights = _for_each(name, self, weight)
        made = tuple([method(a, b, w) for a, b, w in zip(self, tensors1, weights, strict=True)])
        return self if in_place else made

    return function


def _foreach_zero_(self: Sequence[Tensor]) -> Sequence[Tensor]:
    """Set all elements of tensors to zero."""
    _check("_foreach_zero_", self)
    for one in self:
        one.zero_()
    return self


def _foreach_copy_(
    self: Sequence[Tensor], src: Sequence[Tensor], non_blocking: bool = False
) -> Sequence[Tensor]:
    """Overwrite tensors by others, converted."""
    _check("_foreach_copy_", self, src)
    for one, other in zip(self, src, strict=True):
        one.copy_(other, non_blocking)
    return self


def _foreach_clone(self: Sequence[Tensor], *, memory_format: Any = None) -> tuple[Tensor, ...]:
    """Copy tensors. Differentiable."""
    _check("_foreach_clone", self)
    options = {} if memory_format is None else {"memory_format": memory_format}
    return tuple([one.clone(**options) for one in self])


def _foreach_max(self: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The largest element of each tensor. Differentiable."""
    _check("_foreach_max", self)
    return tuple([one.max() for one in self])


def _foreach_norm(self: Sequence[Tensor], ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The norm of each tensor. Differentiable."""
    _check("_foreach_norm", self)
    return tuple([one.norm(ord, dtype=dtype) for one in self])


def _named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__module__ = "adjit"
    method = name.removeprefix("_foreach_").rstrip("_")
    where = "writing over the tensors" if name.endswith("_") else "as a tuple"
    function.__doc__ = function.__doc__ or f"`{method}` of each tensor of a list, {where}."
    return function


def _made() -> dict[str, Callable[..., Any]]:
    """All functions of lists, by their names."""
    kinds = [(_unary, {method: method for method in _UNARY.split()}), (_binary, _BINARY)]
    kinds += [(_ternary, {n: n for n in ("addcmul", "addcdiv")}), (_lerp, {"lerp": "lerp"})]
    found = {}
    for make, methods in kinds:
        for name, method in methods.items():
            for end in ("", "_"):
                full = f"_foreach_{name}{end}"
                found[full] = _named(full, make(full, getattr(Tensor, method + end), bool(end)))
    others = (_foreach_zero_, _foreach_copy_, _foreach_clone, _foreach_max, _foreach_norm)
    return found | {function.__name__: _named(function.__name__, function) for function in others}


functions = _made()
