"""Tools around training: datasets and loaders, memory shared with other libraries."""

from . import checkpoint, data, dlpack

__all__ = ["checkpoint", "data", "dlpack"]
