"""The table of rules: functions that write a call as nodes, by the names of what is called.

A rule has the parameters of the function, after the graph. It gives values for the results in their order;
those get the dtypes of the program's results where they have others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

Rule = Callable[..., Any]
R = TypeVar("R", bound=Rule)

RULES: dict[str, Rule] = {}
_IN_PLACE_OPERATOR = re.compile(r"__i(and|or|xor|lshift|rshift)__")


def rule(*names: str) -> Callable[[R], R]:
    """Enter a rule under the names of functions, methods and operators; in-place ones need no names."""

    def enter(function: R) -> R:
        for name in names:
            assert name not in RULES, name
            RULES[name] = function
        return function

    return enter


def rule_of(name: str) -> Rule | None:
    """The rule for what is called by a name, or None. `add_` is written as `add`."""
    if name in RULES:
        return RULES[name]
    if found := _IN_PLACE_OPERATOR.fullmatch(name):
        return RULES[f"__{found[1]}__"]
    return RULES.get(name[:-1]) if name.endswith("_") else None


def has_rule(name: str) -> bool:
    """Whether a name has a rule."""
    return rule_of(name) is not None
