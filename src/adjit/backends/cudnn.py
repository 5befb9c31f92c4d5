"""Settings of cuDNN, which adjit does not use: PyTorch's `torch.backends.cudnn`.

Programs set them at their beginning. Kernels here are neither tried out (`benchmark`) nor anything but
`deterministic`.
"""

from __future__ import annotations

__all__ = ["is_available", "version"]

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
