"""Modules of LLVM instructions that the kernels room writes itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...kernels.language.target import machine
from ...kernels.ops.gemm_tile import object_code
from . import disk, kernel_files
from .cache import CompilationUnit, digest, object_path


@functools.cache
def emitted(name: str, emit: Callable[[Any], Any], dtype: str) -> CompilationUnit:
    """The functions that `emit(dtype)` gives as (names, module)."""
    parts = kernel_files.digest_of([kernel_files.name_of(emit.__module__)])
    stem = f"{name}_{dtype}_{digest(name, dtype, parts)}"

    def translate() -> Callable[[], disk.CacheEntry]:
        names, module = emit(dtype)
        made_for = machine()  # not by LLVM's thread: it would wait for Numba's lock
        return lambda: disk.write(
            object_path(stem), disk.CacheEntry(" ".join(names), object_code(module, made_for))
        )

    return CompilationUnit(stem, translate)
