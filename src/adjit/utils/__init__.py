"""Tools around training: datasets and loaders, memory shared with other libraries."""

from typing import NoReturn

from ..absent import absent
from . import _pytree, checkpoint, data, dlpack

__all__ = ["_pytree", "checkpoint", "data", "dlpack"]


def __getattr__(name: str) -> NoReturn:
    """What PyTorch has and adjit has not."""
    raise absent("utils", name)
