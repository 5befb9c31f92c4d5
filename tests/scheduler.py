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
        context = settle.settle.context
        swapped = settle.Scheduler(
            *[other if known is real else known for known in context.scheduler]
        )
        monkeypatch.setattr(settle.settle, "context", context._replace(scheduler=swapped))
