"""Names of variables in the code of a graph."""

from __future__ import annotations

import builtins
import keyword
import math
import re
import sys
from typing import Any

from ..devices import device

__all__ = ["CUSTOM_BUILTINS", "Namespace"]

_LIBRARY = __name__.partition(".")[0]
# Objects that code may name without importing them.
CUSTOM_BUILTINS: dict[str, Any] = {
    "inf": math.inf, "nan": math.nan, "NoneType": type(None), "torch": sys.modules[_LIBRARY], "device": device,
}  # fmt: skip
_NAME = re.compile(r"^([a-zA-Z_][0-9a-zA-Z_]*?)(?:_(\d+))?$")
# What no variable may hide, and what may have the name.
_TAKEN: dict[str, Any] = {
    **dict.fromkeys(keyword.kwlist, object()), **vars(builtins), **CUSTOM_BUILTINS
}  # fmt: skip


class Namespace:
    """Names that are unique, legal and hide nothing, each for one object."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._used: set[str] = set()
        self._counts: dict[str, int] = {}

    def create_name(self, candidate: str, obj: Any = None) -> str:
        """The name of an object, which is the candidate or resembles it."""
        if obj is not None and obj in self._names:
            return self._names[obj]
        candidate = re.sub("[^0-9a-zA-Z_]+", "_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        match = _NAME.match(candidate)
        base, number = match.group(1, 2) if match else (candidate, None)
        if number is None or candidate in self._used:
            count = self._counts.get(base, 0)
            if _TAKEN.get(candidate, obj) is not obj:
                count += 1
                candidate = f"{base}_{count}"
        else:
            count = int(number)
        while candidate in self._used:
            count += 1
            candidate = f"{base}_{count}"
        self._used.add(candidate)
        self._counts[base] = count
        if obj is not None:
            self._names[obj] = candidate
        return candidate

    def rename(self, obj: Any, candidate: str) -> str:
        """Another name of an object, which is the candidate or resembles it."""
        self._names.pop(obj, None)
        return self.create_name(candidate, obj)
