"""Errors of several processes."""

__all__ = ["DistBackendError", "DistError", "DistNetworkError", "DistStoreError"]


class DistError(RuntimeError):
    """Something that concerns several processes went wrong.

    Example:
        >>> issubclass(adjit.distributed.DistError, RuntimeError)
        True
    """


class DistBackendError(DistError):
    """The engine that moves the data refused or ran out of time.

    Example:
        >>> issubclass(adjit.distributed.DistBackendError, adjit.distributed.DistError)
        True
    """


class DistNetworkError(DistError):
    """A process cannot be reached, or has ended.

    Example:
        >>> issubclass(adjit.distributed.DistNetworkError, adjit.distributed.DistError)
        True
    """


class DistStoreError(DistError):
    """A store did not have in time what was asked for.

    Example:
        >>> issubclass(adjit.distributed.DistStoreError, adjit.distributed.DistError)
        True
    """
