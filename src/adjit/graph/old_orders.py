"""Calls with a number before a tensor, as programs of before 2020 have them: `x.add_(0.5, y)`.

PyTorch still takes them and warns once of each.
"""

from __future__ import annotations

import functools
import warnings

from . import record
from .signature import Argument, Arguments, NamedArguments

# The number by its name, which stood before the second tensor, and how many tensors there are. Before products
# stood the number of what they are added to, and before the factors their own.
SCALED = {
    "add": ("alpha", 2),
    "sub": ("alpha", 2),
    "addcmul": ("value", 3),
    "addcdiv": ("value", 3),
}
PRODUCTS = ("addbmm", "addmm", "addmv", "addr", "baddbmm")


def in_new_order(name: str, args: Arguments) -> tuple[Arguments, NamedArguments] | None:
    """The arguments as they are given today; None if they are so already, or are no call at all."""
    if name in SCALED:
        number, count = SCALED[name]
        if len(args) != count + 1 or not _is_number(args[1]) or not _are_tensors(args[2:]):
            return None
        found = (args[0], *args[2:]), {number: args[1]}
    else:
        if name not in PRODUCTS:
            return None
        if _are_tensors(args[:1]):  # of a method
            args = (*args[1:2], *args[:1], *args[2:])
        if len(args) not in (4, 5) or not _is_number(args[0]) or not _are_tensors(args[1:2]):
            return None
        *alpha, one, other = args[2:]
        if not _are_tensors((one, other)) or not all(map(_is_number, alpha)):
            return None
        found = (args[1], one, other), {"beta": args[0], **({"alpha": alpha[0]} if alpha else {})}
    _warn(name)
    return found


def _is_number(value: Argument) -> bool:
    return isinstance(value, (int, float)) or (record.is_tensor(value) and value.ndim == 0)


def _are_tensors(values: Arguments) -> bool:
    return all(map(record.is_tensor, values))


@functools.cache
def _warn(name: str) -> None:
    numbers = SCALED[name][0] if name in SCALED else "beta and alpha"
    warnings.warn(
        f"This overload of {name} is deprecated: it takes numbers before tensors. Consider giving {numbers} by "
        "name instead.",
        UserWarning,
        stacklevel=5,
    )
