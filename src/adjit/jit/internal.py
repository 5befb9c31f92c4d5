"""What programs import from `torch._jit_internal`: marks for TorchScript, which say nothing to Python."""

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["boolean_dispatch"]

T = TypeVar("T")


def boolean_dispatch(
    arg_name: str,
    arg_index: int,
    default: bool,
    if_true: Callable[..., Any],
    if_false: Callable[..., Any],
    module_name: str,
    func_name: str,
) -> Callable[..., Any]:
    """Return a function that is one of two, by one of its arguments.

    Args:
        arg_name, arg_index: the argument, by name and by place.
        default: what it is where nobody gives it.
        if_true, if_false: the functions.
        module_name: the module that the function says it is from.
        func_name: its name.

    Example:
        >>> from adjit._jit_internal import boolean_dispatch
        >>> pick = boolean_dispatch("largest", 1, True, lambda x, largest=True: max(x),
        ...     lambda x, largest: min(x), "here", "pick")
        >>> pick([1, 2]), pick([1, 2], False)
        (2, 1)
    """

    def chosen(*args: Any, **kwargs: Any) -> Any:
        given = args[arg_index] if arg_index < len(args) else kwargs.get(arg_name, default)
        return (if_true if given else if_false)(*args, **kwargs)

    chosen.__doc__ = if_false.__doc__ if if_true.__doc__ is None else if_true.__doc__
    chosen.__module__, chosen.__name__ = module_name, func_name
    return chosen


def _copy_to_script_wrapper(function: T) -> T:
    """Return the function."""
    return function
