"""Settings of cuDNN, which adjit does not use: PyTorch's `torch.backends.cudnn`.

Programs set them at their beginning. Kernels here are neither tried out (`benchmark`) nor anything but
`deterministic`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["flags", "is_available", "version"]

enabled = True
benchmark = False
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    """False: convolutions have kernels of their own.

    Example:
        >>> adjit.backends.cudnn.is_available()
        False
    """
    return False


def version() -> None:
    """None: there is no cuDNN.

    Example:
        >>> adjit.backends.cudnn.version() is None
        True
    """


@contextlib.contextmanager
def flags(
    enabled: bool = False, benchmark: bool = False, benchmark_limit: int = 10, deterministic: bool = False,
    allow_tf32: bool = True, fp32_precision: str = "none",
) -> Iterator[None]:  # fmt: skip
    """Note settings for a while; kernels here are the same with all of them.

    Example:
        >>> with adjit.backends.cudnn.flags(enabled=False):
        ...     adjit.backends.cudnn.enabled
        False
        >>> adjit.backends.cudnn.enabled
        True
    """
    settings = globals()
    within = {
        "enabled": enabled, "benchmark": benchmark, "deterministic": deterministic, "allow_tf32": allow_tf32,
    }  # fmt: skip
    before = {name: settings[name] for name in within}
    settings.update(within)
    try:
        yield
    finally:
        settings.update(before)
