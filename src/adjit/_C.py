"""Names of `torch._C` that programs import: switches of PyTorch's compilers, and what else lies there.

PyTorch keeps here the classes and functions that it shows elsewhere; so do we, by name. Of TorchScript's
graphs there are the names alone, which annotations and editors' imports ask for.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from enum import Enum
from types import SimpleNamespace
from typing import Any

from .absent import ROOT, known
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


DispatchKey = Enum(
    "DispatchKey",
    "Undefined CPU CUDA XPU MPS Meta Autograd AutogradCPU AutogradCUDA AutogradXPU AutogradMeta ADInplaceOrView"
    " AutocastCPU AutocastCUDA AutocastXPU BackendSelect Python PythonDispatcher PythonTLSSnapshot"
    " Functionalize FuncTorchBatched FuncTorchGradWrapper CompositeImplicitAutograd CompositeExplicitAutograd",
)  # by which PyTorch chooses a function of an op, as torchvision does; nothing is chosen so here


class DispatchKeySet:
    """Some of the keys."""

    def __init__(self, *keys: Any) -> None:
        self._keys = frozenset(keys)

    def has(self, key: Any) -> bool:
        """Whether a key is among them."""
        return key in self._keys

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*self._keys | other._keys)

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*self._keys & other._keys)

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*self._keys - other._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)


class _ExcludeDispatchKeyGuard(contextlib.nullcontext[None]):
    """Leaves keys out for a while, which changes nothing here."""

    def __init__(self, keys: DispatchKeySet) -> None:
        super().__init__()


# What PyTorch shows at its top and has here, too.
_AT_THE_TOP = """
    Future Generator OutOfMemoryError Size clear_autocast_cache default_generator device dtype finfo
    get_autocast_dtype get_autocast_gpu_dtype get_default_dtype get_num_interop_threads get_num_threads
    iinfo is_anomaly_check_nan_enabled is_anomaly_enabled is_autocast_cache_enabled
    is_autocast_cpu_enabled is_autocast_enabled is_grad_enabled is_inference_mode_enabled layout
    memory_format set_flush_denormal set_num_interop_threads set_num_threads"""
_HOMES = {name: (ROOT, name) for name in _AT_THE_TOP.split()} | {
    "ScriptFunction": (f"{ROOT}.jit", "ScriptFunction"),
    "ScriptModule": (f"{ROOT}.jit", "ScriptModule"),
    "TensorBase": (ROOT, "Tensor"),  # two classes in PyTorch, one here
    "_TensorBase": (ROOT, "Tensor"),
}


def __getattr__(name: str) -> Any:
    """What lies elsewhere, looked up when it is asked for, and the names of TorchScript's graphs."""
    if name in _HOMES:
        home, its_name = _HOMES[name]
        return getattr(importlib.import_module(home), its_name)
    return known("_C", name)
