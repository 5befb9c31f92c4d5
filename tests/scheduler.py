"""What tests change of the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from adjit.schedule import settle


def put_in_place(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, other: Callable[..., Any]
) -> None:
    """Have another function called, by compiled settling too."""
    real = getattr(module, name)
    monkeypatch.setattr(module, name, other)
    if hasattr(settle.settle, "context"):
        twin, shared = settle.settle.context
        swapped = tuple([other if known is real else known for known in shared])
        monkeypatch.setattr(settle.settle, "context", (twin, swapped))
