"""Automatic differentiation and a JIT: PyTorch's autograd on Numba.

`import adjit as torch` runs ordinary PyTorch programs: `Tensor`, `backward()`, in-place writes,
hooks, `nn`, `optim`. Calling an op records it; what is recorded runs, compiled, when somebody
looks.
"""

from __future__ import annotations

import gc
import importlib
import sys
from math import e, inf, nan, pi
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import (
        accelerator,
        cpu,
        distributed,
        distributions,
        func,
        hub,
        library,
        models,
        mps,
        multiprocessing,
        quasirandom,
        scipy,
        testing,
        user_kernels,
        xpu,
    )
    from .user_kernels import elementwise, kernel, value_and_grad

# Counted in one call of C: a list of all objects would hold tuples that other threads are filling, which fails.
_collecting, _objects_before = gc.isenabled(), next(map(len, iter(gc.get_objects, None)))
gc.disable()  # an import makes objects that stay: looking for garbage among them takes 70 ms
try:
    from . import config
    from .schedule.jit import (
        pack as _pack,
    )  # before the processor is looked at: a pack decides the level

    # isort: split
    from . import dtypes
    from .absent import known as _known
    from .devices import device, get_default_device, set_default_device
    from .dtypes import (
        bfloat16,
        bool,
        can_cast,
        cdouble,
        cfloat,
        chalf,
        complex32,
        complex64,
        complex128,
        double,
        dtype,
        finfo,
        float,
        float8_e4m3fn,
        float8_e5m2,
        float16,
        float32,
        float64,
        get_default_dtype,
        half,
        iinfo,
        int,
        int8,
        int16,
        int32,
        int64,
        long,
        promote_types,
        result_type,
        set_default_dtype,
        short,
        uint8,
        uint16,
        uint32,
        uint64,
    )
    from .errors import OutOfMemoryError
    from .formats import (
        channels_last,
        channels_last_3d,
        contiguous_format,
        jagged,
        layout,
        memory_format,
        preserve_format,
        sparse_bsc,
        sparse_bsr,
        sparse_coo,
        sparse_csc,
        sparse_csr,
        strided,
    )
    from .graph import cycles as _cycles
    from .graph.export import namespace as _namespace
    from .printing import get_printoptions, printoptions, set_printoptions
    from .schedule import forks as _forks  # registers what a fork waits for
    from .schedule.run_cpu import get_num_threads, set_num_threads
    from .shapes import Size, broadcast_shapes
    from .storage import memory_stats
    from .tensor import Tensor

    # isort: split
    from . import ops as _ops  # registers every op
    from . import show as _show  # registers the methods that show kernels and plans

    # isort: split
    from . import (
        _C,
        _dynamo,
        _foreach,
        _utils,
        autograd,
        backends,
        compiler,
        cuda,
        jit,
        linalg,
        nn,
        optim,
        overrides,
        paths,
        profiler,
        return_types,
        serialization,
        special,
        types,
        utils,
        version,
    )
    from .autograd import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
    from .autograd.modes import (
        is_anomaly_check_nan_enabled,
        is_anomaly_enabled,
        is_inference_mode_enabled,
    )
    from .backends import (
        are_deterministic_algorithms_enabled,
        get_float32_matmul_precision,
        set_float32_matmul_precision,
        use_deterministic_algorithms,
    )
    from .captured import compile
    from .names import (
        _assert,
        _assert_async,
        _check,
        _check_index,
        _check_not_implemented,
        _check_type,
        _check_value,
        _function_of_method,
        get_deterministic_debug_mode,
        get_num_interop_threads,
        is_deterministic_algorithms_warn_only_enabled,
        is_nonzero,
        is_storage,
        is_tensor,
        is_warn_always_enabled,
        set_default_tensor_type,
        set_deterministic_debug_mode,
        set_flush_denormal,
        set_num_interop_threads,
        set_warn_always,
        typename,
    )
    from .ops.creation import _reshape_from_tensor, _shape_as_tensor
    from .ops.sampling import _sample_dirichlet, _standard_gamma
    from .ops.softmax import _log_softmax_backward_data, _softmax_backward_data
    from .ops.sort import _convert_indices_from_coo_to_csr, _convert_indices_from_csr_to_coo
    from .serialization import load, save
    from .version import __version__
finally:
    if _collecting:
        _cycles.declare_old(_objects_before)
        gc.enable()

newaxis = None
paths.put_in_place()
globals().update(_namespace[""])
dsmm = spmm = _namespace[""]["mm"]  # PyTorch's products of sparse matrices take dense ones too
globals().update(_ops.creation.legacy_types)
globals().update(_foreach.functions)
globals().update({name: _function_of_method(name) for name in _ops.METHODS_AND_FUNCTIONS})


# Loaded at their first use, since few programs use them: together they took half as long as the rest.
_LATE = {
    **dict.fromkeys(("_higher_order_ops", "_logging", "accelerator", "cpu", "hub", "models", "mps")),
    **dict.fromkeys(("testing", "xpu")),
    **dict.fromkeys(("__config__", "amp", "distributed", "distributions", "func", "futures", "fx")),
    **dict.fromkeys(("library", "multiprocessing", "onnx", "quasirandom", "scipy")),
    "Future": "futures",
    "GradScaler": "amp",
    "autocast": "amp",
    **dict.fromkeys(
        ("clear_autocast_cache", "get_autocast_dtype", "get_autocast_gpu_dtype", "is_autocast_cache_enabled",
         "is_autocast_cpu_enabled", "is_autocast_enabled"), "amp.autocast_mode",
    ),
    "user_kernels": None,
    "cond": "_higher_order_ops",
    "vmap": "func",
    "ScriptModule": "jit",
    "TensorType": "_C",
    **dict.fromkeys(("elementwise", "kernel", "value_and_grad"), "user_kernels"),
    **dict.fromkeys(
        ("binary_cross_entropy_with_logits", "cosine_embedding_loss", "ctc_loss", "hinge_embedding_loss",
         "kl_div", "margin_ranking_loss", "poisson_nll_loss", "triplet_margin_loss"), "root_losses",
    ),
}  # fmt: skip


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE})


def __getattr__(name: str) -> Any:
    """What few programs need, and the names that PyTorch has and adjit has not."""
    if name in _LATE:
        home = importlib.import_module(f"{__name__}.{_LATE[name] or name}")
        return home if _LATE[name] is None else getattr(home, name)
    if (
        name == "torch"
    ):  # `torch.torch.Tensor`, a slip that works with PyTorch, is in many annotations
        return sys.modules[__name__]
    return _known("", name)
