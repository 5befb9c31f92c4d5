"""What PyTorch has at its top beside ops: questions about objects, and old switches."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from . import config, devices, dtypes, overrides
from .graph import record, wrong_types
from .graph.export import export
from .ops.creation import legacy_dtype
from .tensor import StorageView, Tensor

__all__ = [
    "get_deterministic_debug_mode", "get_num_interop_threads", "is_deterministic_algorithms_warn_only_enabled",
    "is_nonzero", "is_storage", "is_tensor", "is_warn_always_enabled", "set_default_tensor_type",
    "set_deterministic_debug_mode", "set_flush_denormal", "set_num_interop_threads", "set_warn_always",
    "typename",
]  # fmt: skip


def _function_of_method(name: str) -> Callable[..., Any]:
    """The function that calls a method of its first argument."""
    method = getattr(Tensor, name)

    @functools.wraps(method)
    def function(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        try:
            record.check_tensor(name, "input", 1, input)
            return method(input, *args, **kwargs)
        except TypeError:
            if said := wrong_types.tell(method, name, (input, *args), kwargs):
                return said[0]
            raise

    function.__module__, function.__qualname__ = "adjit", name
    return function


def is_tensor(obj: Any, /) -> bool:
    """True if an object is a tensor, of a subclass too.

    Example:
        >>> adjit.is_tensor(adjit.ones(2)), adjit.is_tensor([1.])
        (True, False)
    """
    return record.is_tensor(obj)


def is_fake(obj: Any) -> bool:
    """False: every tensor has values. PyTorch's shape inference has tensors without."""
    return False


def is_storage(obj: Any, /) -> bool:
    """True if an object is what `Tensor.untyped_storage` gives.

    Example:
        >>> adjit.is_storage(adjit.ones(2).untyped_storage())
        True
    """
    return isinstance(obj, StorageView)


@export(method=True)
def is_nonzero(input: Tensor) -> bool:
    """True if the only element of a tensor is not zero.

    Raises:
        RuntimeError: if there is not exactly one element.

    Example:
        >>> adjit.is_nonzero(adjit.tensor([2.]))
        True
    """
    record.check_tensor("is_nonzero", "input", 1, input)
    return bool(input)


def typename(obj: Any, /) -> str:
    """Name the type of an object; of a tensor, as the legacy constructors are called.

    Example:
        >>> adjit.typename(adjit.ones(2)), adjit.typename(nn.Linear(2, 1))
        ('torch.FloatTensor', 'adjit.nn.layers.Linear')
    """
    if record.is_tensor(obj):
        return str(obj.type())
    owner = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(owner, "__module__", "") or ""
    name: str = owner.__qualname__
    return name if module in ("", "builtins") else f"{module}.{name}"


def _assert(condition: Any, message: str) -> None:
    """Raise an AssertionError with the message unless the condition holds, or what it says itself."""
    if type(condition) is not Tensor and overrides.has_torch_function_unary(condition):
        overrides.handle_torch_function(_assert, (condition,), condition, message)
    elif not condition:
        raise AssertionError(message)


def _check_with(error: type[Exception], cond: Any, message: Callable[[], Any] | None) -> None:
    """Raise an error unless the condition, a bool, holds; its text is made only then.

    Raises:
        TypeError: if the condition is no bool, or the message no function.
    """
    if record.is_tensor(cond):
        raise TypeError(
            "cond must be a bool, but got a Tensor. For tensor conditions, take bool(cond.all())."
        )
    if not isinstance(cond, bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond:
        return
    if message is None:
        raise error("Expected cond to be True, but got False.")
    if not callable(message):
        raise TypeError("message must be a callable")
    raise error(str(message()))


def _check(cond: bool, message: Callable[[], Any] | None = None) -> None:
    """Raise a RuntimeError with what `message()` gives unless the condition holds."""
    _check_with(RuntimeError, cond, message)


def _check_index(cond: bool, message: Callable[[], Any] | None = None) -> None:
    """Raise an IndexError as `_check` does its error."""
    _check_with(IndexError, cond, message)


def _check_value(cond: bool, message: Callable[[], Any] | None = None) -> None:
    """Raise a ValueError as `_check` does its error."""
    _check_with(ValueError, cond, message)


def _check_type(cond: bool, message: Callable[[], Any] | None = None) -> None:
    """Raise a TypeError as `_check` does its error."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: bool, message: Callable[[], Any] | None = None) -> None:
    """Raise a NotImplementedError as `_check` does its error."""
    _check_with(NotImplementedError, cond, message)


def _assert_async(condition: Tensor, assert_msg: str | None = None) -> None:
    """Raise an error unless the only element of a tensor is not zero.

    Raises:
        RuntimeError: if it is zero, or if there is not exactly one element.
    """
    if not is_nonzero(condition):
        raise RuntimeError(
            "Expected Tensor with single nonzero value, but got zero"
            if assert_msg is None
            else assert_msg
        )


def set_default_tensor_type(t: Any, /) -> None:
    """Set the default dtype, and the default device for types of GPUs; an old name, which warns.

    Args:
        t: `adjit.FloatTensor`, `adjit.DoubleTensor`, `adjit.cuda.FloatTensor`, `adjit.cuda.DoubleTensor`, or
            the name of one.

    Raises:
        TypeError: if it is no floating type.
        RuntimeError: if there is no such device here.

    Example:
        >>> adjit.set_default_tensor_type("torch.DoubleTensor")
        >>> adjit.get_default_dtype()
        adjit.float64
        >>> adjit.set_default_tensor_type(adjit.FloatTensor)
    """
    if isinstance(t, dtypes.dtype):
        raise TypeError(
            "invalid type object: only floating-point types are supported as the default type"
        )
    kind, place = legacy_dtype(t)
    if not kind.is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    warnings.warn(
        "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use "
        "torch.set_default_dtype() and torch.set_default_device() as alternatives.",
        UserWarning,
        stacklevel=2,
    )
    if place == "cuda" or devices.current.legacy:
        devices.set_default_device(place)
        devices.current.legacy = place == "cuda"
    dtypes.set_default_dtype(kind)


# ----- switches that change nothing here, and say so -----


def get_num_interop_threads() -> int:
    """Count the threads that run independent operations: one, as what is recorded runs in order.

    Example:
        >>> adjit.get_num_interop_threads()
        1
    """
    return 1


def set_num_interop_threads(num: int) -> None:
    """Change nothing: what is recorded runs in order, each step over all threads.

    Example:
        >>> adjit.set_num_interop_threads(2)
    """


def set_flush_denormal(mode: bool) -> bool:
    """Tell that denormal numbers cannot be flushed to zero: False. Nothing is changed.

    Example:
        >>> adjit.set_flush_denormal(True)
        False
    """
    return False


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """False: every kernel gives the same bits in every run, so there is nothing to warn of.

    Example:
        >>> adjit.is_deterministic_algorithms_warn_only_enabled()
        False
    """
    return False


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Change nothing: every kernel gives the same bits in every run.

    Raises:
        TypeError, RuntimeError: if it is no mode: 0 to 2, "default", "warn" or "error".

    Example:
        >>> adjit.set_deterministic_debug_mode("warn")
    """
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    known = ("default", "warn", "error") if isinstance(debug_mode, str) else (0, 1, 2)
    if debug_mode not in known:
        names = isinstance(debug_mode, str)
        expected = "one of `default`, `warn`, `error`" if names else "0, 1, or 2"
        raise RuntimeError(
            f"invalid value of debug_mode, expected {expected}, but got {debug_mode}"
        )


def get_deterministic_debug_mode() -> int:
    """Give 2: results are deterministic, or there is an error; 0 after `use_deterministic_algorithms(False)`.

    Example:
        >>> adjit.get_deterministic_debug_mode()
        2
    """
    return 2 if config.DETERMINISTIC else 0


_warns_always = False


def set_warn_always(b: bool, /) -> None:
    """Note a wish that `is_warn_always_enabled` tells: how often warnings are shown is Python's matter.

    Raises:
        RuntimeError: if it is no bool.

    Example:
        >>> adjit.set_warn_always(False)
    """
    global _warns_always
    if not isinstance(b, bool):
        raise RuntimeError(f"setWarnOnlyOnce expects a bool, but got {type(b).__name__}")
    _warns_always = b


def is_warn_always_enabled() -> bool:
    """Tell what `set_warn_always` was given.

    Example:
        >>> adjit.is_warn_always_enabled()
        False
    """
    return _warns_always
