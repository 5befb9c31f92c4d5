"""The processor that kernels are compiled for."""

import llvmlite.binding as llvm
from numba.core import config


def has(feature: str) -> bool:
    """Whether kernels may use a feature of it."""
    if config.CPU_FEATURES is not None:
        return f"+{feature}" in config.CPU_FEATURES.split(",")
    return bool(llvm.get_host_cpu_features().get(feature, False))


VECTOR_BYTES = 64 if has("avx512f") else 32 if has("avx2") else 16
