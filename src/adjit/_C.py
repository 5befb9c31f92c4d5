"""Names of `torch._C` that programs set at their beginning: switches of PyTorch's compilers, not here."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from .devices import device as Device
from .graph.state import state
from .nn.module import _parse_to
from .ops.linalg import LinAlgError as _LinAlgError  # noqa: F401
from .overrides import (  # noqa: F401
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    _disabled_torch_function_impl,
)


def _accepted(name: str) -> Callable[..., bool]:
    """A switch that changes nothing, and was off."""

    def switch(*args: Any) -> bool:
        return False

    switch.__name__ = switch.__qualname__ = name
    return switch


_jit_set_profiling_mode = _accepted("_jit_set_profiling_mode")
_jit_set_profiling_executor = _accepted("_jit_set_profiling_executor")
_jit_set_texpr_fuser_enabled = _accepted("_jit_set_texpr_fuser_enabled")
_jit_set_nvfuser_enabled = _accepted("_jit_set_nvfuser_enabled")
_jit_override_can_fuse_on_cpu = _accepted("_jit_override_can_fuse_on_cpu")
_jit_override_can_fuse_on_gpu = _accepted("_jit_override_can_fuse_on_gpu")
_jit_can_fuse_on_cpu = _accepted("_jit_can_fuse_on_cpu")
_jit_can_fuse_on_gpu = _accepted("_jit_can_fuse_on_gpu")
_is_tracing = _accepted("_is_tracing")


def _log_api_usage_once(event: str) -> None:
    """Note nothing: PyTorch counts in some places which of its parts are used."""


def _are_functorch_transforms_active() -> bool:
    """True inside of `vmap`: the other transforms run a function as it is, whatever it looks at or writes."""
    return bool(state.levels)


def _get_tracing_state() -> None:
    """No state: nothing is traced."""


def _parsed(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """The device, the dtype, whether not to wait, and the memory format among the arguments of `to`."""
    found = _parse_to(args, kwargs)
    place = found["device"]
    waits_not = bool(kwargs.get("non_blocking", any(arg is True for arg in args)))
    return (
        None if place is None else Device(place), found["dtype"], waits_not, found["memory_format"],
    )  # fmt: skip


_nn = SimpleNamespace(_parse_to=_parsed)
