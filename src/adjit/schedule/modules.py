"""Modules of LLVM instructions that the kernels room writes itself: object code kept on disk."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from typing import Any

from ..kernels.target import load, loader
from . import cache


@functools.cache
def link_module(name: str, assemble: Callable[[Any], Any], dtype: Any) -> tuple[int, ...]:
    """The addresses of the functions that `assemble(dtype)` gives as (names, object code)."""
    with cache._lock:
        key = hashlib.sha256(f"{cache._fingerprint()}\n{name}\n{dtype}".encode()).hexdigest()[:20]
        path = cache.cache_folder() / f"{name}_{dtype}_{key}.o"
        entry = cache._read(path)
        if entry is None:
            names, code = assemble(dtype)
            header = {
                "symbol": " ".join(names),
                "sha256": hashlib.sha256(code).hexdigest(),
                "external": [],
            }
            data = cache.MAGIC + json.dumps(header).encode() + b"\n" + code
            cache.write_atomically(path, data)
            entry = " ".join(names), code
        first, *others = entry[0].split()
        address = load(first, entry[1])
        return address, *(int(loader().get_function_address(other)) for other in others)
