"""Tools around training: datasets and loaders, memory shared with other libraries."""

from . import data, dlpack

__all__ = ["data", "dlpack"]
