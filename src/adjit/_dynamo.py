"""Names of `torch._dynamo` that programs use around `compile`."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from .captured.compiled import compile, reset
from .captured.logs import Unsupported
from .compiler import allow_in_graph, assume_constant_result, disable, is_compiling
from .nn.optimized import OptimizedModule

__all__ = [
    "OptimizedModule", "TransformGetItemToIndex", "allow_in_graph", "assume_constant_result",
    "config", "disable", "exc", "is_compile_supported", "is_compiling", "mark_dynamic",
    "mark_static", "mark_static_address", "optimize", "reset",
]  # fmt: skip

# Settings are accepted: captures are bounded and fall back to running as usual whatever they say.
config = SimpleNamespace(
    cache_size_limit=8, recompile_limit=8, accumulated_cache_size_limit=256, suppress_errors=False,
    verbose=False, capture_scalar_outputs=False, capture_dynamic_output_shape_ops=False,
    assume_static_by_default=True, automatic_dynamic_shapes=True, optimize_ddp=True,
)  # fmt: skip
sys.modules[f"{__name__}.config"] = config  # type: ignore[assignment]  # as which programs import it
exc = SimpleNamespace(Unsupported=Unsupported, TorchDynamoException=RuntimeError)


def optimize(backend: str = "inductor", *, nopython: bool = False, **kwargs: Any) -> Any:
    """The decorator that `compile` was before it had its name."""
    return compile(backend=backend, fullgraph=nopython, **kwargs)


def is_compile_supported(device_type: str) -> bool:
    """Whether `compile` takes calls on such a device."""
    return device_type in ("cpu", "cuda")


class TransformGetItemToIndex(nullcontext[None]):
    """Accepted: `vmap` indexes with tensors of examples as it is."""


def mark_dynamic(t: Any, index: Any, **kwargs: Any) -> None:
    """Accepted: every shape has a capture of its own."""


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Accepted: a capture asks each call where its tensors are."""


def mark_static(t: Any, index: Any = None) -> None:
    """Accepted: every shape has a capture of its own."""
