"""PyTorch's `torch.backends.mkl`: not used by adjit."""

__all__ = ["is_available"]


def is_available() -> bool:
    """False: adjit does not use it.

    Example:
        >>> adjit.backends.mkl.is_available()
        False
    """
    return False
