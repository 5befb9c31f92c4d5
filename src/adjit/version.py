"""The version of adjit, and of what it was built with; None where PyTorch names something that is not here."""

from __future__ import annotations

from . import driver

__all__ = ["__version__", "debug", "git_version", "hip", "rocm", "xpu"]

__version__ = "0.1.0"
debug = False
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
git_version = "unknown"


def __getattr__(name: str) -> str | None:
    """`cuda`: the version of CUDA that the driver has, None where there is none."""
    if name != "cuda":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if driver.reason():
        return None
    version = driver.load().version
    return f"{version // 1000}.{version % 1000 // 10}"
