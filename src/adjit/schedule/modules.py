"""Modules of LLVM instructions that the kernels room writes itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..kernels.micro import object_code
from ..kernels.target import machine
from . import disk
from .cache import Unit, digest, object_path


@functools.cache
def emitted(name: str, emit: Callable[[Any], Any], dtype: str) -> Unit:
    """The functions that `emit(dtype)` gives as (names, module)."""
    stem = f"{name}_{dtype}_{digest(name, dtype)}"

    def translate() -> Callable[[], disk.Entry]:
        names, module = emit(dtype)
        made_for = machine()  # not by LLVM's thread: it would wait for Numba's lock
        return lambda: disk.write(
            object_path(stem), disk.Entry(" ".join(names), object_code(module, made_for))
        )

    return Unit(stem, translate)
