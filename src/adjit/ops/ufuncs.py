"""NumPy's ufuncs on tensors: `np.sin(t)`, `array * t`, `np.add.reduce(t)`, `array += t`.

A ufunc that has an op here is recorded where a tensor needs gradients, in the dtypes that NumPy's rules give.
Without gradients NumPy computes on the tensors' memory, as it does for PyTorch, and the results are tensors
again: truth values are `adjit.bool`, where PyTorch has kept uint8, since `array < tensor` comes the same way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dtypes import of_numpy
from ..graph.export import add_method, namespace
from ..graph.record import is_tensor
from ..tensor import Tensor
from .creation import from_numpy, tensor

Function = Callable[..., Any]

# What `array * t` and the like call. NumPy does not tell an operator from a call of the ufunc.
_REFLECTED = {
    "add": "__radd__", "subtract": "__rsub__", "multiply": "__rmul__", "divide": "__rtruediv__",
    "power": "__rpow__", "floor_divide": "__rfloordiv__", "remainder": "__rmod__", "less": "__gt__",
    "less_equal": "__ge__", "greater": "__lt__", "greater_equal": "__le__", "equal": "__eq__",
    "not_equal": "__ne__", "bitwise_and": "__rand__", "bitwise_or": "__ror__", "bitwise_xor": "__rxor__",
}  # fmt: skip
# Operators are recorded without gradients too, but for those whose errors on whole numbers are NumPy's own.
_OPERATORS = {*_REFLECTED, "matmul"} - {"power", "floor_divide", "remainder"}

_SAME_NAME = frozenset((
    "absolute", "add", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh",
    "bitwise_and", "bitwise_or", "bitwise_xor", "ceil", "copysign", "cos", "cosh", "deg2rad", "divide",
    "exp", "exp2", "expm1", "float_power", "floor", "floor_divide", "fmax", "fmin", "fmod", "greater",
    "greater_equal", "heaviside", "hypot", "isfinite", "isinf", "isnan", "less", "less_equal", "log",
    "log10", "log1p", "log2", "logaddexp", "logaddexp2", "logical_and", "logical_not", "logical_or",
    "logical_xor", "matmul", "maximum", "minimum", "multiply", "negative", "not_equal", "positive",
    "rad2deg", "reciprocal", "remainder", "signbit", "sin", "sinh", "sqrt", "square", "subtract", "tan",
    "tanh", "trunc",
))  # fmt: skip
_OTHER_NAME = {
    "degrees": "rad2deg",
    "equal": "eq",
    "fabs": "abs",
    "power": "pow",
    "radians": "deg2rad",
    "rint": "round",
}
_COMPOSED: dict[str, Function] = {
    "divmod": lambda x, y: (x.floor_divide(y), x.remainder(y)),
    "matvec": lambda x, y: (x @ y.unsqueeze(-1)).squeeze(-1),
    "sign": lambda x: x.sign().where(x == x, x),  # NumPy's sign of NaN is NaN
    "vecdot": lambda x, y: (x * y).sum(-1),
}
_OF_SCIPY = {
    "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1", "gammainc", "gammaincc", "gammaln",
    "i0", "i0e", "i1", "i1e", "log1p", "log_ndtr", "logit", "ndtr", "ndtri", "psi", "xlog1py", "xlogy",
}  # fmt: skip
_REDUCED = {
    "add": "sum", "logaddexp": "logsumexp", "logical_and": "all", "logical_or": "any", "maximum": "amax",
    "minimum": "amin",
}  # fmt: skip
_ACCUMULATED = {
    "add": "cumsum",
    "logaddexp": "logcumsumexp",
    "maximum": "cummax",
    "minimum": "cummin",
    "multiply": "cumprod",
}


def _array_ufunc(self: Tensor, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """What NumPy calls for a ufunc of which an operand or `out` is a tensor."""
    out = options.get("out", ())
    if any(_answers_itself(value) for value in (*inputs, *out)):
        return NotImplemented
    if method == "__call__" and not options and len(inputs) == 2 and is_tensor(inputs[1]):
        operator = _REFLECTED.get(ufunc.__name__)
        if operator and isinstance(inputs[0], (np.ndarray, np.generic)) and not inputs[0].ndim:
            return getattr(inputs[1], operator)(
                inputs[0].item()
            )  # as Python's number, which is PyTorch's way
    needs_grad = any(is_tensor(value) and value.requires_grad for value in (*inputs, *out))
    if needs_grad:
        return _recorded(ufunc, method, inputs, options)
    is_operator = method == "__call__" and ufunc is getattr(np, ufunc.__name__, None)
    if is_operator and not options and ufunc.__name__ in _OPERATORS and all(map(_is_plain, inputs)):
        return _called(ufunc, inputs)
    return _computed(ufunc, method, inputs, options)


def _answers_itself(value: Any) -> bool:
    """Whether an operand is of a class that has its own way with ufuncs."""
    if is_tensor(value):
        return False
    own = getattr(type(value), "__array_ufunc__", np.ndarray.__array_ufunc__)
    return own is not np.ndarray.__array_ufunc__ and not isinstance(value, np.generic)


def _is_plain(value: Any) -> bool:
    return is_tensor(value) or isinstance(value, np.ndarray)


# ----- without gradients -----


def _computed(ufunc: Any, method: str, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    """What NumPy computes, as tensors; those that it writes are written by an op, which counts it."""
    out = options.get("out", ())
    written = [v for v in (inputs[:1] if method == "at" else out) if is_tensor(v)]
    copies = {id(t): t.numpy().copy() for t in written}

    def plain(value: Any) -> Any:
        return copies.get(id(value), value.numpy()) if is_tensor(value) else value

    told = {name: plain(value) for name, value in options.items()}
    if out:
        told["out"] = tuple(map(plain, out))
    results = getattr(ufunc, method)(*map(plain, inputs), **told)
    for t in written:
        t.copy_(from_numpy(copies[id(t)]))
    if results is None:
        return None
    each = results if isinstance(results, tuple) else (results,)
    given = out or (None,) * len(each)
    made = tuple(
        from_numpy(np.asarray(value)) if place is None else place
        for value, place in zip(each, given, strict=True)
    )
    return made if isinstance(results, tuple) else made[0]


# ----- with gradients -----


def _recorded(ufunc: Any, method: str, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    """The ufunc as an op of the library.

    Raises:
        RuntimeError: if there is none, or for options that the op does not take.
    """
    name = f"{_home(ufunc)}{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
    if options.pop("out", None) is not None:
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of "
            "the arguments requires grad. Write array = array + tensor instead of array += tensor, or use "
            "tensor.detach()."
        )
    options = {
        key: value for key, value in options.items() if value is not _DEFAULTS.get(key, _NONE)
    }
    way = _WAYS.get(method)
    if way is None or _function(ufunc, method) is None:
        raise RuntimeError(
            f"{name}() is not recorded for gradients: there is no op for it. Call it on tensor.detach() if no "
            "gradients are needed, or write it with the functions of adjit."
        )
    taken = {"dtype", "axis", "keepdims"} if method == "reduce" else {"dtype", "axis"}
    unknown = options.keys() - (taken if method in ("reduce", "accumulate") else {"dtype"})
    if unknown:
        raise RuntimeError(
            f"{name}(): {min(unknown)}= is not recorded for gradients. Leave it out, or call it on "
            "tensor.detach() if no gradients are needed."
        )
    return way(ufunc, inputs, **options)


_NONE = object()
_DEFAULTS = {"where": True, "keepdims": False, "subok": True, "initial": None, "dtype": None}


def _home(ufunc: Any) -> str:
    return "np." if ufunc is getattr(np, ufunc.__name__, None) else ""


def _function(ufunc: Any, method: str = "__call__") -> Function | None:
    """The op for a ufunc; names alone do not tell, since everybody may make ufuncs."""
    name, top = ufunc.__name__, namespace[""]
    if ufunc is getattr(np, name, None):
        if method == "reduce":
            return _product if name == "multiply" else _named(top, _REDUCED.get(name))
        if method == "accumulate":
            return _named(top, _ACCUMULATED.get(name))
        if name in _COMPOSED:
            return _COMPOSED[name]
        return _named(top, name if name in _SAME_NAME else _OTHER_NAME.get(name))
    scipy_special = sys.modules.get("scipy.special")
    if method in _WAYS and ufunc is getattr(scipy_special, name, None):
        is_known = name in _OF_SCIPY and method != "reduce"
        return _named(namespace["special"], name if is_known else None)
    return None


def _named(room: dict[str, Any], name: str | None) -> Function | None:
    return None if name is None else room[name]


def _called(ufunc: Any, inputs: Sequence[Any], dtype: Any = None) -> Any:
    """The op on operands in the dtypes that NumPy computes in."""
    function = _function(ufunc)
    assert function is not None
    operands = [
        value if is_tensor(value) or _is_number(value) else np.asarray(value) for value in inputs
    ]
    kinds = tuple(_kind(value) for value in operands)
    signature = (*(None,) * ufunc.nin, *(None if dtype is None else np.dtype(dtype),) * ufunc.nout)
    resolved = ufunc.resolve_dtypes((*kinds, *(None,) * ufunc.nout), signature=signature)
    return function(
        *[_as_tensor(value, kind) for value, kind in zip(operands, resolved, strict=False)]
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, (bool, np.generic))


def _kind(value: Any) -> Any:
    """An operand's dtype as NumPy resolves it: a Python number has only a type."""
    if is_tensor(value):
        return value.dtype.numpy
    return type(value) if _is_number(value) else value.dtype


def _as_tensor(value: Any, kind: np.dtype[Any]) -> Tensor:
    """An operand in a dtype; arrays are copied, since a later write to one would not be seen by backward."""
    if is_tensor(value):
        converted: Tensor = value.to(of_numpy(kind))
        return converted
    return tensor(np.asarray(value), dtype=of_numpy(kind))


def _outer(ufunc: Any, inputs: Sequence[Any], dtype: Any = None) -> Any:
    first, second = (value if is_tensor(value) else np.asarray(value) for value in inputs)
    return _called(ufunc, (first.reshape(tuple(first.shape) + (1,) * second.ndim), second), dtype)


def _reduced(
    ufunc: Any, inputs: Sequence[Any], axis: Any = 0, dtype: Any = None, keepdims: bool = False
) -> Any:
    """The reduction over an axis, several, or all of them for None."""
    (x,) = inputs
    if dtype is not None:
        x = x.to(of_numpy(np.dtype(dtype)))
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if not axes or not x.ndim:
        return x.clone()
    function = _function(ufunc, "reduce")
    assert function is not None
    return function(x, axes, keepdims)


def _product(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """The product over several axes, one after the other."""
    for axis in sorted((a % x.ndim for a in axes), reverse=True):
        x = x.prod(axis, keepdims)
    return x


def _accumulated(ufunc: Any, inputs: Sequence[Any], axis: Any = 0, dtype: Any = None) -> Any:
    (x, *_) = inputs
    if dtype is not None:
        x = x.to(of_numpy(np.dtype(dtype)))
    function = _function(ufunc, "accumulate")
    assert function is not None
    made = function(x, axis)
    return made if is_tensor(made) else made[0]  # cummax gives indices too


_WAYS: dict[str, Function] = {
    "__call__": _called,
    "outer": _outer,
    "reduce": _reduced,
    "accumulate": _accumulated,
}


def _array_wrap(
    self: Tensor, array: Any, context: Any = None, return_scalar: bool = False
) -> Tensor:
    """The result of a NumPy function as a tensor; NumPy calls it."""
    return from_numpy(np.asarray(array))


add_method("__array_ufunc__", _array_ufunc)
add_method("__array_wrap__", _array_wrap)
