"""PyTorch's `torch.xpu`, the GPUs of Intel: none here, so what asks is told so and what acts is refused."""

from typing import Any, NoReturn

__all__ = [
    "current_device", "device_count", "empty_cache", "get_device_name", "is_available", "is_initialized",
    "manual_seed", "manual_seed_all", "max_memory_allocated", "memory_allocated", "set_device",
    "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """False: there is no such device.

    Example:
        >>> adjit.xpu.is_available()
        False
    """
    return False


def is_initialized() -> bool:
    """False: there is no such device.

    Example:
        >>> adjit.xpu.is_initialized()
        False
    """
    return False


def device_count() -> int:
    """Count the devices: 0.

    Example:
        >>> adjit.xpu.device_count()
        0
    """
    return 0


def empty_cache() -> None:
    """Change nothing: there is no memory of such a device.

    Example:
        >>> adjit.xpu.empty_cache()
    """


def manual_seed(seed: int) -> None:
    """Change nothing: there is no device with numbers of its own.

    Example:
        >>> adjit.xpu.manual_seed(0)
    """


def manual_seed_all(seed: int) -> None:
    """Change nothing: there is no device with numbers of its own.

    Example:
        >>> adjit.xpu.manual_seed_all(0)
    """


def memory_allocated(device: Any = None) -> int:
    """Count the bytes on the device: 0.

    Example:
        >>> adjit.xpu.memory_allocated()
        0
    """
    return 0


def max_memory_allocated(device: Any = None) -> int:
    """Count the most bytes that there were on the device: 0.

    Example:
        >>> adjit.xpu.max_memory_allocated()
        0
    """
    return 0


def current_device() -> int:
    """Refuse, as PyTorch does where it was built without these devices.

    Raises:
        AssertionError: always.

    Example:
        >>> adjit.xpu.current_device() if adjit.xpu.is_available() else -1
        -1
    """
    _refuse()


def set_device(device: Any) -> None:
    """Refuse, as PyTorch does where it was built without these devices.

    Raises:
        AssertionError: always.

    Example:
        >>> if adjit.xpu.is_available():
        ...     adjit.xpu.set_device(0)
    """
    _refuse()


def get_device_name(device: Any = None) -> str:
    """Refuse, as PyTorch does where it was built without these devices.

    Raises:
        AssertionError: always.

    Example:
        >>> adjit.xpu.get_device_name() if adjit.xpu.is_available() else "none"
        'none'
    """
    _refuse()


def synchronize(device: Any = None) -> None:
    """Refuse, as PyTorch does where it was built without these devices.

    Raises:
        AssertionError: always.

    Example:
        >>> if adjit.xpu.is_available():
        ...     adjit.xpu.synchronize()
    """
    _refuse()


def _refuse() -> NoReturn:
    raise AssertionError("Torch not compiled with XPU enabled")
