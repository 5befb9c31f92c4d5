"""What adjit says on standard error about compiled functions."""

from .captured.logs import set_logs

__all__ = ["set_logs"]
