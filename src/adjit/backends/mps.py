"""PyTorch's `torch.backends.mps`: not used by adjit."""

__all__ = ["is_available", "is_built"]


def is_available() -> bool:
    """False: adjit does not use it.

    Example:
        >>> adjit.backends.mps.is_available()
        False
    """
    return False


def is_built() -> bool:
    """False: adjit does not use it.

    Example:
        >>> adjit.backends.mps.is_built()
        False
    """
    return False
