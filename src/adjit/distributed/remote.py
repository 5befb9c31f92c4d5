"""Calls of functions in other processes (`torch.distributed.rpc`): there are none, and programs ask first."""

from __future__ import annotations

from typing import NoReturn

from ..absent import absent

__all__ = ["is_available"]


def is_available() -> bool:
    """False: functions of other processes cannot be called.

    Example:
        >>> adjit.distributed.rpc.is_available()
        False
    """
    return False


def __getattr__(name: str) -> NoReturn:
    raise absent("distributed.rpc", name)
