"""The GPU, by whatever name: PyTorch's `torch.accelerator`, which is CUDA here or nothing."""

from __future__ import annotations

from typing import Any

from . import cuda, devices
from .devices import device

__all__ = [
    "current_accelerator", "current_device_index", "device_count", "device_index", "is_available",
    "set_device_index", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """True if there is a GPU with a driver that adjit can use; quick, and never an error.

    Example:
        >>> adjit.accelerator.is_available() == adjit.cuda.is_available()
        True
    """
    return cuda.is_available()


def current_accelerator(check_available: bool = False) -> device | None:
    """`device("cuda")`; None where no GPU is.

    Example:
        >>> place = adjit.accelerator.current_accelerator() or adjit.device("cpu")
    """
    return device("cuda") if is_available() else None


def device_count() -> int:
    """Count the GPUs; 0 where no driver is.

    Example:
        >>> adjit.accelerator.device_count() == adjit.cuda.device_count()
        True
    """
    return cuda.device_count()


def current_device_index() -> int:
    """Tell the number of the GPU that "cuda" means in this thread.

    Example:
        >>> adjit.accelerator.current_device_index()
        0
    """
    return cuda.current_device()


def set_device_index(device: Any) -> None:
    """Let "cuda" mean another GPU in this thread.

    Example:
        >>> adjit.accelerator.set_device_index(0)
        >>> adjit.accelerator.current_device_index()
        0
    """
    cuda.set_device(device)


class device_index(cuda.device):
    """Let "cuda" mean another GPU inside a `with` block; the same one for None.

    Raises:
        RuntimeError: if there is no such GPU.

    Example:
        >>> with adjit.accelerator.device_index(0):
        ...     adjit.accelerator.current_device_index()
        0
    """

    def __init__(self, device: int | None, /) -> None:
        if device is None:
            self.idx, self._before = devices.current.index, -1
        else:
            super().__init__(device)


def synchronize(device: Any = None) -> None:
    """Wait until all work of a GPU is done; raises what a kernel has found.

    Example:
        >>> adjit.accelerator.synchronize()
    """
    cuda.synchronize(device)
