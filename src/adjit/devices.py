"""Devices: where the bytes of a tensor are."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["CPU", "device"]

_KNOWN = ("cpu", "cuda")


class device:
    """A device such as `adjit.device("cpu")`: a `type` and an `index` (None for the current one).

    Raises:
        RuntimeError: if the text names no known kind of device.

    Example:
        >>> adjit.device("cpu")
        device(type='cpu')
    """

    __slots__ = ("index", "type")

    def __init__(self, type: Any = "cpu", index: int | None = None) -> None:
        if isinstance(type, device):
            type, index = type.type, type.index if index is None else index
        if isinstance(type, int):
            type, index = "cuda", type
        match = re.fullmatch(r"([a-z]+)(?::(\d+))?", str(type))
        if match is None:
            raise RuntimeError(f"Invalid device string: '{type}'")
        if match[1] not in _KNOWN:
            raise RuntimeError(
                f"Expected one of {', '.join(_KNOWN)} device type at start of device string: {type}"
            )
        self.type: str = match[1]
        self.index: int | None = int(match[2]) if match[2] else index

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> tuple[Any, ...]:
        return device, (str(self),)


CPU = device("cpu")


def check(place: Any) -> device:
    """A usable device: anything but the CPU is refused with what is missing."""
    found = CPU if place is None else device(place)
    if found.type != "cpu":
        raise RuntimeError(
            f"device '{found}' is not available: this version of adjit runs on the CPU only; "
            "use device='cpu'"
        )
    return CPU
