"""PyTorch's `torch.backends.mkldnn`: not used by adjit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["flags", "is_available"]

enabled = deterministic = False  # what programs read, or set, at their beginning


def is_available() -> bool:
    """False: adjit does not use it.

    Example:
        >>> adjit.backends.mkldnn.is_available()
        False
    """
    return False


@contextlib.contextmanager
def flags(
    enabled: bool = False,
    deterministic: bool = False,
    allow_tf32: bool = True,
    fp32_precision: str = "none",
) -> Iterator[None]:
    """Do nothing for a while: there is nothing to be set.

    Example:
        >>> with adjit.backends.mkldnn.flags(enabled=False):
        ...     adjit.ones(1)
        tensor([1.])
    """
    yield
