"""Calls that are given a generator of random numbers: as those without one, which draw from it meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from .signature import Argument, Arguments, NamedArguments
from .state import state
from .trace import Results

classes: set[type] = set()  # of generators; `random` has it


def by_generator(
    call: Callable[..., Results], args: Arguments, kwargs: NamedArguments
) -> tuple[Results] | None:
    """What a call gives that draws from the generator among its arguments, None if there is no such one.

    A recording that drew from one generator would repeat for that one alone, and programs make new ones for
    each sample. Without it in the signature the call is one that may have come before; and what else is being
    traced is not to repeat it.
    """
    found: Argument = kwargs.get("generator")
    if found.__class__ in classes:
        kwargs["generator"] = None
    else:
        if classes.isdisjoint(map(type, args)):
            return None
        found = next(value for value in args if value.__class__ in classes)
        args = tuple([None if value is found else value for value in args])
    before, state.generator = state.generator, found
    try:
        return (call(*args, **kwargs),)
    finally:
        state.generator, state.deterministic = before, False
