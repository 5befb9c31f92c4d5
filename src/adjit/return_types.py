"""The named tuples that functions of several results return, by the names of the functions."""

from .ops.reduce import return_types

__all__ = sorted(return_types)
globals().update(return_types)
