"""CUDA devices. This version runs on the CPU only: nothing is available, and asking says so."""

from __future__ import annotations

from typing import Any

from .. import devices


def is_available() -> bool:
    """False: there is no CUDA side yet."""
    return False


def device_count() -> int:
    """0."""
    return 0


def get_device_name(device: Any = None) -> str:
    """The name of a GPU.

    Raises:
        RuntimeError: always, since there is none to name.
    """
    devices.check("cuda" if device is None else device)
    return ""


def synchronize(device: Any = None) -> None:
    """Wait for a GPU.

    Raises:
        RuntimeError: always, since there is none to wait for.
    """
    devices.check("cuda" if device is None else device)


def __getattr__(name: str) -> Any:
    if name.endswith("Tensor"):
        devices.check("cuda")
    raise AttributeError(f"module 'adjit.cuda' has no attribute {name!r}")
