"""PyTorch's `torch.backends.mkldnn`: not used by adjit."""

__all__ = ["is_available"]


def is_available() -> bool:
    """False: adjit does not use it.

    Example:
        >>> adjit.backends.mkldnn.is_available()
        False
    """
    return False
