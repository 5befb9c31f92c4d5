"""Modules whose parameters nobody sets."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from ..module import Module

_M = TypeVar("_M", bound=Module)


def skip_init(module_cls: type[_M], *args: Any, **kwargs: Any) -> _M:
    """Make a module whose parameters and buffers have any values, for those that set them themselves.

    Args:
        module_cls: the class of the module, which takes `device`.
        args: its arguments.
        kwargs: its named arguments.

    Raises:
        RuntimeError: no class of modules, or one that takes no `device`.

    Example:
        >>> nn.utils.skip_init(nn.Linear, 3, 1).weight.shape
        adjit.Size([1, 3])
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    device = kwargs.pop("device", "cpu")
    return module_cls(*args, **kwargs).to_empty(device=device)
