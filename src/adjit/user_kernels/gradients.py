"""Gradients of functions on NumPy arrays and numbers, from Python and from njit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.extending import overload

from .dispatch import Specializations
from .generated import GeneratedFile, Mode, generated, is_floating
from .source import Function, positional, python_function, remember

Wrt = int | tuple[int, ...] | None


def _positions(wrt: Wrt) -> tuple[int, ...] | None:
    return (wrt,) if isinstance(wrt, int) else wrt


def one_number(file: GeneratedFile, function: Function) -> None:
    """Refuse a function whose result is no single float.

    Raises:
        TypeError: if it is not.
    """
    if file.facts["results"] != ["float"] or file.facts["is_tuple"]:
        name = python_function(function).__name__
        raise TypeError(f"{name} must return one float to have a gradient, it returns "
                        f"{_described(file.facts['results'])}")  # fmt: skip


def _described(results: list[str]) -> str:
    words = [
        "a whole number" if r == "whole" else "a float" if r == "float" else "an array"
        for r in results
    ]
    return ", ".join(words) or "nothing"


def _callable(
    function: Function,
    wrt: Wrt,
    mode: Mode,
    name: str,
    docs: str,
    types_of: Callable[[Any], Any],
    *,
    checkpoint: bool = False,
) -> Any:
    """A Python function that calls `name` of the generated file, also from njit code."""

    def compiled_for(argument_types: tuple[types.Type, ...], _: Any = None) -> Any:
        given = types_of(argument_types)
        file = generated(function, given, _positions(wrt), mode, checkpoint=checkpoint)
        if mode != "forward":
            one_number(file, function)
        return getattr(file.module, name)

    remember(function)
    find = Specializations(function, compiled_for).find

    count = python_function(function).__code__.co_argcount
    bound = positional(function)

    def call(*args: Any, **named: Any) -> Any:
        if named or len(args) < count:
            args = bound(args, named)
        return find(args)(*args)

    call.__name__ = call.__qualname__ = f"{python_function(function).__name__}_{name}"
    call.__doc__ = docs

    @overload(call)  # type: ignore[untyped-decorator]
    def in_njit(*args: Any) -> Any:
        compiled = compiled_for(tuple(types.unliteral(a) for a in args))

        def implementation(*args: Any) -> Any:
            return compiled(*args)

        return implementation

    return call


def value_and_grad(f: Function, wrt: Wrt = None, *, checkpoint: bool = False) -> Callable[..., Any]:
    """Make a function that gives the value of a Numba function and its gradients.

    `f` is a Python or njit function of numbers and NumPy arrays that returns one float. It may have
    loops and branches of any kind, local arrays, and calls of other functions; its source is read, and its
    way back is written as Python source, compiled, and kept in the cache folder. Arguments are left
    alone, also those that `f` writes into. The result can be called from other njit code. A loop by `prange`
    is shared by threads, both ways, if its rounds write only elements of their own; else it is `range` in a
    plain function, and refused in one with `parallel=True`. An argument may be None, which decides
    `if w is None:`.

    Args:
        f: the function; no decorator is needed.
        wrt: position or positions of the arguments to differentiate by, by default all floats and arrays of
            floats.
        checkpoint: whether loops run again on the way back, for want of memory: those that are in no other
            loop and need the tape. Of n rounds the tape then holds about √(2n), and the state of the loop
            at √(2n) others; gradients have the same bits, for the time of one more run of `f`.

    Returns:
        A function of the same arguments that gives `(value, gradients)`: a tuple with for each argument of
        `wrt` a float, or an array of its shape and dtype.

    Raises:
        NotDifferentiable: when it is called, if `f` has a statement that cannot be differentiated: its file
            and line, and what to write instead; with `checkpoint` if in such a loop arrays change places
            (`u, v = v, u`) or one of another dtype than float64, float32, int64 and bool is written.
        TypeError: if `f` does not return one float, or an argument of `wrt` is no float.
        ValueError: if an array that `f` writes into shares memory with another argument.

    Example:
        >>> import numpy as np
        >>> def growth(rate, years):
        ...     money = 1.0
        ...     for year in range(years):
        ...         money += money * rate
        ...     return money
        >>> adjit.value_and_grad(growth)(0.5, 3)
        (3.375, (6.75,))
    """
    docs = f"The value and the gradients of {python_function(f).__name__}."
    return _callable(f, wrt, "reverse", "value_and_grad", docs, lambda t: t, checkpoint=checkpoint)


def jvp(f: Function, wrt: Wrt = None) -> Callable[..., Any]:
    """Make a function that gives the value of a Numba function and its derivative in a direction.

    Like `value_and_grad`, in forward mode: `f` may return numbers and arrays, and its memory is that of `f`
    twice over. The function is called with the arguments of `f` and then a direction for each
    argument of `wrt`, of its shape and dtype.

    Returns:
        A function that gives `(value, tangent)`, both as `f` returns it.

    Raises:
        NotDifferentiable: as `value_and_grad`.
        TypeError: if an argument of `wrt` is no float.

    Example:
        >>> def power(x, n):
        ...     y = 1.0
        ...     for k in range(n):
        ...         y *= x
        ...     return y
        >>> adjit.user_kernels.jvp(power)(2.0, 3, 1.0)
        (8.0, 12.0)
    """
    inner = _second_half(f, wrt, "forward", "value_and_tangent", "The value and the tangent of")

    def call(*args: Any) -> Any:
        value, _, tangent, _ = inner(*args)
        return value, tangent

    call.__name__ = call.__qualname__ = f"{python_function(f).__name__}_jvp"

    @overload(call)  # type: ignore[untyped-decorator]
    def in_njit(*args: Any) -> Any:
        def implementation(*args: Any) -> Any:
            value, _, tangent, _ = inner(*args)
            return value, tangent

        return implementation

    return call


def hvp(f: Function, wrt: Wrt = None) -> Callable[..., Any]:
    """Make a function that gives the products of the Hessian of a Numba function with a direction.

    `f` is as for `value_and_grad`, arguments are those of `jvp`. It is the reverse of the forward mode: the
    derivative of the gradient in the direction, at a few times the cost of `f`.

    Returns:
        A function that gives `(slope, products)`: the derivative of `f` in the direction, and for each
        argument of `wrt` the row of the Hessian times the direction.

    Raises:
        NotDifferentiable, TypeError: as `value_and_grad`.

    Example:
        >>> def cube(x):
        ...     return x * x * x
        >>> adjit.user_kernels.hvp(cube)(2.0, 1.0)
        (12.0, (12.0,))
    """
    inner = _second_half(f, wrt, "second", "value_and_grad", "The Hessian times a direction of")

    def call(*args: Any) -> Any:
        slope, products = inner(*args)
        return slope, products[: len(products) // 2]

    call.__name__ = call.__qualname__ = f"{python_function(f).__name__}_hvp"
    return call


def _second_half(f: Function, wrt: Wrt, mode: Mode, name: str, docs: str) -> Any:
    """As `_callable`, for arguments that are followed by directions."""
    count = python_function(f).__code__.co_argcount

    def types_of(argument_types: tuple[types.Type, ...]) -> tuple[types.Type, ...]:
        given = argument_types[:count]
        file_wrt = _positions(wrt)
        wanted = (
            [k for k, t in enumerate(given) if is_floating(t)]
            if file_wrt is None
            else list(file_wrt)
        )
        if len(argument_types) != count + len(wanted):
            raise TypeError(
                f"{python_function(f).__name__} takes {count} arguments and {len(wanted)} directions, "
                f"got {len(argument_types)}"
            )
        return given

    return _callable(f, wrt, mode, name, f"{docs} {python_function(f).__name__}.", types_of)
