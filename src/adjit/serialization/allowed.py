"""The classes and functions of the program that files may name, as it allows: `add_safe_globals`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_allowed: set[Any] = set()


def add_safe_globals(safe_globals: Iterable[Any]) -> None:
    """Let `load` make objects of classes, and call functions, that a file of PyTorch names.

    Args:
        safe_globals: classes and functions; one that a file calls otherwise as a pair of it and that name.

    Raises:
        ValueError, TypeError: if a pair is none of an object and a name.

    Example:
        >>> from datetime import timedelta
        >>> adjit.serialization.add_safe_globals([timedelta])
        >>> timedelta in adjit.serialization.get_safe_globals()
        True
        >>> adjit.serialization.clear_safe_globals()
    """
    for thing in safe_globals:
        if isinstance(thing, tuple):
            if len(thing) != 2:
                raise ValueError(
                    "Expected tuple of length 2 (global, str of callable full path), but got tuple of "
                    f"length: {len(thing)}"
                )
            if type(thing[1]) is not str:
                raise TypeError(
                    "Expected second item in tuple to be str of callable full path, but got: "
                    f"{type(thing[1])}"
                )
        _allowed.add(thing)


def get_safe_globals() -> list[Any]:
    """List what `add_safe_globals` has allowed.

    Example:
        >>> adjit.serialization.get_safe_globals()
        []
    """
    return list(_allowed)


def clear_safe_globals() -> None:
    """Allow nothing any longer that `add_safe_globals` has allowed.

    Example:
        >>> adjit.serialization.clear_safe_globals()
    """
    _allowed.clear()


class safe_globals:
    """Allow in a block what `add_safe_globals` would allow for good.

    Example:
        >>> from datetime import timedelta
        >>> with adjit.serialization.safe_globals([timedelta]):
        ...     print(len(adjit.serialization.get_safe_globals()))
        1
    """

    def __init__(self, safe_globals: Iterable[Any]) -> None:
        self.safe_globals = list(safe_globals)

    def __enter__(self) -> None:
        add_safe_globals(self.safe_globals)

    def __exit__(self, *_: object) -> None:
        _allowed.difference_update(self.safe_globals)


def by_name() -> dict[str, Any]:
    """What is allowed, by the name that a file has for it."""
    found = {}
    for thing in _allowed:
        name = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}"
        if isinstance(thing, tuple):
            thing, name = thing
        found[name] = thing
    return found


def is_allowed(thing: Any) -> bool:
    """Whether a class or function is one that is allowed."""
    return any(thing is one for one in by_name().values())


def build(target: Any, state: Any) -> None:
    """Give an object of an allowed class its state, as `pickle` does."""
    if hasattr(target, "__setstate__"):
        target.__setstate__(state)
        return
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if state:
        target.__dict__.update(state)
    for name, value in (slots or {}).items():
        setattr(target, name, value)
