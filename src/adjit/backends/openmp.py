"""PyTorch's `torch.backends.openmp`: not used by adjit."""

__all__ = ["is_available"]


def is_available() -> bool:
    """False: adjit does not use it.

    Example:
        >>> adjit.backends.openmp.is_available()
        False
    """
    return False
