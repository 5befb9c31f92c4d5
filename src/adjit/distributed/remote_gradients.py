"""Gradients through calls of functions in other processes (`torch.distributed.autograd`): there are none."""

from __future__ import annotations

from typing import NoReturn

from ..absent import absent
from .remote import is_available

__all__ = ["context", "is_available"]


class context:
    """Is there by name, for programs that import it before they ask whether it can be used.

    Raises:
        NotImplementedError: if one is made.

    Example:
        >>> from adjit.distributed.autograd import context, is_available
        >>> is_available()
        False
    """

    def __init__(self) -> None:
        raise NotImplementedError(
            "adjit.distributed.autograd.context is there by name only: functions of other processes cannot be "
            "called; use adjit.distributed with DistributedDataParallel"
        )


def __getattr__(name: str) -> NoReturn:
    raise absent("distributed.autograd", name)
