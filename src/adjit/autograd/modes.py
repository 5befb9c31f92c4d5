"""Context managers that switch recording on and off."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..graph.state import be_careful, infer, record_gradients, state
from ..shapes import check_bool

__all__ = [
    "detect_anomaly", "enable_grad", "inference_mode", "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled", "is_grad_enabled", "is_inference_mode_enabled", "no_grad",
    "set_detect_anomaly", "set_grad_enabled", "set_multithreading_enabled",
]  # fmt: skip


_F = TypeVar("_F", bound=Callable[..., Any])


class _Mode:
    """A context manager that also decorates functions, generator functions and classes' methods."""

    def __call__(self, function: _F) -> _F:
        return self._wrap(function)

    def _wrap(self, function: Any) -> Any:
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generator(*args: Any, **kwargs: Any) -> Any:
                running = function(*args, **kwargs)
                go_on: Callable[[Any], Any] = running.send
                given: Any = None
                try:
                    while True:
                        with self.clone():
                            try:
                                value = go_on(given)
                            except StopIteration as end:
                                return end.value
                        go_on = running.send
                        try:
                            given = yield value
                        except GeneratorExit:
                            raise
                        except BaseException as error:
                            go_on, given = running.throw, error
                finally:
                    with self.clone():
                        running.close()

            return generator

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return function(*args, **kwargs)

        return wrapped

    def clone(self) -> _Mode:
        """A fresh context of the same kind, so that a decorated function may recurse."""
        return type(self)()

    def __enter__(self) -> Self:
        raise TypeError(f"{type(self).__name__} has no entry")

    def __exit__(self, *_: Any) -> None:
        raise TypeError(f"{type(self).__name__} has no exit")


class no_grad(_Mode):
    """Do not record gradients: in a `with` block, or in a function decorated with it.

    Example:
        >>> x = adjit.ones(2, requires_grad=True)
        >>> with adjit.no_grad():
        ...     y = x * 2
        >>> y.requires_grad
        False
    """

    if not TYPE_CHECKING:  # a type checker sees a context manager that decorates

        def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
            made = super().__new__(cls)
            return made if function is None else made(function)

    def __enter__(self) -> Self:
        self.before = record_gradients(False)
        return self

    def __exit__(self, *_: Any) -> None:
        record_gradients(self.before)


class enable_grad(no_grad):
    """Record gradients, also inside a `no_grad` block; inference mode is stronger.

    Example:
        >>> x = adjit.ones(2, requires_grad=True)
        >>> with adjit.no_grad(), adjit.enable_grad():
        ...     y = x * 2
        >>> y.requires_grad
        True
    """

    def __enter__(self) -> Self:
        self.before = record_gradients(True)
        return self


class set_grad_enabled(_Mode):
    """Record gradients or not, from now on or inside a `with` block.

    Example:
        >>> x = adjit.ones(2, requires_grad=True)
        >>> with adjit.set_grad_enabled(False):
        ...     y = x * 2
        >>> y.requires_grad
        False
    """

    def __init__(self, mode: bool) -> None:
        check_bool("set_grad_enabled", "enabled", mode)
        self.mode = mode
        self.before = record_gradients(mode)

    def __call__(self, function: _F) -> _F:
        record_gradients(self.before)
        return super().__call__(function)

    def clone(self) -> _Mode:
        return type(self)(self.mode)

    def __enter__(self) -> Self:
        record_gradients(self.mode)
        return self

    def __exit__(self, *_: Any) -> None:
        record_gradients(self.before)


class inference_mode(_Mode):
    """Do not record gradients, as `no_grad`, and let results never enter a graph: they count no writes.

    Example:
        >>> with adjit.inference_mode():
        ...     y = adjit.ones(2) * 2
        >>> y.is_inference()
        True
    """

    if not TYPE_CHECKING:

        def __new__(cls, mode: Any = True) -> Any:
            return cls(True)(mode) if callable(mode) else super().__new__(cls)

    def __init__(self, mode: Any = True) -> None:
        self.mode = bool(mode)

    def clone(self) -> _Mode:
        return type(self)(self.mode)

    def __enter__(self) -> Self:
        was_graded, was_on = state.grad, infer(self.mode)
        record_gradients(not self.mode)
        self.before = was_graded, was_on
        return self

    def __exit__(self, *_: Any) -> None:
        recorded, was_on = self.before
        infer(was_on)
        record_gradients(recorded)


class detect_anomaly(_Mode):
    """Keep the forward traceback of every op, and raise where a gradient becomes NaN.

    Example:
        >>> x = adjit.tensor(0., requires_grad=True)
        >>> with adjit.autograd.detect_anomaly():
        ...     (x.sqrt() * 0).backward()
        Traceback (most recent call last):
            ...
        RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.
    """

    def __init__(self, check_nan: bool = True) -> None:
        import warnings

        self.before = state.anomaly, state.check_nan
        self.check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should "
            "only be enabled for debugging.",
            UserWarning,
            stacklevel=2,
        )

    def __enter__(self) -> Self:
        self.before = state.anomaly, state.check_nan
        state.anomaly, state.check_nan = True, self.check_nan
        be_careful()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        state.anomaly, state.check_nan = self.before
        be_careful()


class set_detect_anomaly(_Mode):
    """Switch anomaly detection on or off, from now on or inside a `with` block.

    Example:
        >>> with adjit.autograd.set_detect_anomaly(True):
        ...     adjit.is_anomaly_enabled()
        True
        >>> adjit.is_anomaly_enabled()
        False
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.before = state.anomaly, state.check_nan
        state.anomaly, state.check_nan = bool(mode), check_nan
        be_careful()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        state.anomaly, state.check_nan = self.before
        be_careful()


class set_multithreading_enabled(_Mode):
    """Say whether backward passes on GPUs may run in threads of their own, which they never do here.

    Example:
        >>> with adjit.autograd.set_multithreading_enabled(False):
        ...     adjit.ones(2, requires_grad=True).sum().backward()
    """

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def clone(self) -> set_multithreading_enabled:
        return type(self)(self.mode)


def is_grad_enabled() -> bool:
    """True if operations of this thread record gradients.

    Example:
        >>> with adjit.no_grad():
        ...     adjit.is_grad_enabled()
        False
    """
    return state.grad


def is_inference_mode_enabled() -> bool:
    """True if this thread is inside `inference_mode`.

    Example:
        >>> with adjit.inference_mode():
        ...     adjit.is_inference_mode_enabled()
        True
    """
    return state.inference


def is_anomaly_enabled() -> bool:
    """True if anomaly detection is on.

    Example:
        >>> with adjit.autograd.set_detect_anomaly(True):
        ...     adjit.is_anomaly_enabled()
        True
    """
    return state.anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """True if anomaly detection looks for NaN.

    Example:
        >>> with adjit.autograd.set_detect_anomaly(True, check_nan=False):
        ...     adjit.is_anomaly_check_nan_enabled()
        False
    """
    return state.check_nan
