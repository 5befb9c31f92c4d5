"""Tools around training: datasets and loaders, memory shared with other libraries."""

from . import _pytree, checkpoint, data, dlpack

__all__ = ["_pytree", "checkpoint", "data", "dlpack"]
