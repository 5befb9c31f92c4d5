"""Modules of LLVM instructions that the kernels room writes itself: object code kept on disk."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any

from ..kernels.target import load, loader
from . import cache, disk


@functools.cache
def link_module(name: str, assemble: Callable[[Any], Any], dtype: Any) -> tuple[int, ...]:
    """The addresses of the functions that `assemble(dtype)` gives as (names, object code)."""
    with cache._lock:
        key = hashlib.sha256(f"{cache._fingerprint()}\n{name}\n{dtype}".encode()).hexdigest()[:20]
        path = disk.folder() / f"{name}_{dtype}_{key}.o"
        entry = disk.read(path)
        if entry is None:
            names, code = assemble(dtype)
            entry = disk.write(path, disk.Entry(" ".join(names), code))
        first, *others = entry.symbol.split()
        address = load(first, entry.code)
        return address, *(int(loader().get_function_address(other)) for other in others)
