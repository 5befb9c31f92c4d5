"""PyTorch's `torch.mps`, the devices of Apple: none here, so what asks is told so and what acts is refused."""

from typing import Any, NoReturn

__all__ = [
    "current_allocated_memory", "device_count", "driver_allocated_memory", "empty_cache", "is_available",
    "manual_seed", "recommended_max_memory", "set_per_process_memory_fraction", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """False: there is no such device.

    Example:
        >>> adjit.mps.is_available()
        False
    """
    return False


def device_count() -> int:
    """Count the devices: 0.

    Example:
        >>> adjit.mps.device_count()
        0
    """
    return 0


def manual_seed(seed: int) -> None:
    """Change nothing: there is no device with numbers of its own.

    Example:
        >>> adjit.mps.manual_seed(0)
    """


def synchronize() -> None:
    """Refuse, as PyTorch does where it was built without these devices.

    Raises:
        RuntimeError: always.

    Example:
        >>> if adjit.mps.is_available():
        ...     adjit.mps.synchronize()
    """
    _refuse("deviceSynchronize")


def empty_cache() -> None:
    """Refuse, as PyTorch does where it was built without these devices.

    Raises:
        RuntimeError: always.

    Example:
        >>> if adjit.mps.is_available():
        ...     adjit.mps.empty_cache()
    """
    _refuse("emptyCache")


def set_per_process_memory_fraction(fraction: Any) -> None:
    """Refuse, as PyTorch does where it was built without these devices.

    Raises:
        RuntimeError: always.

    Example:
        >>> if adjit.mps.is_available():
        ...     adjit.mps.set_per_process_memory_fraction(0.5)
    """
    _refuse("setMemoryFraction")


def current_allocated_memory() -> int:
    """Refuse, as PyTorch does where it was built without these devices.

    Raises:
        RuntimeError: always.

    Example:
        >>> adjit.mps.current_allocated_memory() if adjit.mps.is_available() else 0
        0
    """
    _refuse("getCurrentAllocatedMemory")


def driver_allocated_memory() -> int:
    """Refuse, as PyTorch does where it was built without these devices.

    Raises:
        RuntimeError: always.

    Example:
        >>> adjit.mps.driver_allocated_memory() if adjit.mps.is_available() else 0
        0
    """
    _refuse("getDriverAllocatedMemory")


def recommended_max_memory() -> int:
    """Refuse, as PyTorch does where it was built without these devices.

    Raises:
        RuntimeError: always.

    Example:
        >>> adjit.mps.recommended_max_memory() if adjit.mps.is_available() else 0
        0
    """
    _refuse("getRecommendedMaxMemory")


def _refuse(what: str) -> NoReturn:
    raise RuntimeError(f"Cannot execute {what}() without MPS backend.")
