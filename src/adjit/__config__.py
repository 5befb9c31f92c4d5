"""PyTorch's `torch.__config__`: versions, processor and settings, as `python -m adjit info` prints them."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Iterator

import numba

from . import config, cuda
from .kernels.language.processor import CHOSEN, host
from .schedule.jit import disk, native
from .schedule.jit import pack as packs
from .schedule.run_cpu import get_num_threads

_PACKAGES = ("adjit", "numba", "llvmlite", "numpy", "scipy", "safetensors", "tbb")
_VECTOR_FEATURES = ("sse4", "avx", "fma", "f16c", "amx", "neon", "sve", "fullfp16", "bf16")


def show() -> str:
    """Versions, processor and settings, a line each.

    Example:
        >>> adjit.__config__.show().startswith("python")
        True
    """
    return "\n".join(f"{name:10} {value}" for name, value in facts())


def parallel_info() -> str:
    """The number of threads of one operation, and what runs them.

    Example:
        >>> adjit.__config__.parallel_info().startswith("threads")
        True
    """
    return f"threads    {_threads()}"


def facts() -> Iterator[tuple[str, str]]:
    """What somebody who reads a bug report wants to know."""
    yield "python", f"{platform.python_version()} ({sys.implementation.name}, {sys.platform})"
    for package in _PACKAGES:
        yield package, _version(package)
    yield "processor", f"{host().name} ({CHOSEN.architecture}), kernels for {CHOSEN.level}"
    yield "features", ", ".join(_vector_features()) or "none of the known vector extensions"
    yield "threads", _threads()
    yield "recorder", _recorder()
    files, size = disk.size()
    yield "cache", f"{disk.folder()} ({files} files, {bytes_text(size)})"
    yield "pack", packs.described(CHOSEN.level)
    yield "cuda", _cuda_state()
    yield "settings", ", ".join(f"{name}={getattr(config, name)}" for name in _settings())


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _vector_features() -> list[str]:
    available = (name[1:] for name in CHOSEN.features.split(",") if name.startswith("+"))
    return sorted(name for name in available if name.startswith(_VECTOR_FEATURES))


def _threads() -> str:
    try:
        layer = str(numba.threading_layer())
    except ValueError:  # it is chosen when the first parallel kernel is compiled
        layer = f"{numba.config.THREADING_LAYER} (not started)"
    return f"{get_num_threads()}, threading layer {layer}"


def _recorder() -> str:
    return "machine code" if native.is_supported else f"Python: {native.why_python}"


def _cuda_state() -> str:
    if cuda.is_available():
        return ", ".join(cuda.get_device_name(index) for index in range(cuda.device_count()))
    version = _version("numba-cuda")
    if version == "not installed":
        return "not installed; pip install 'adjit[cuda]' adds it"
    return f"numba-cuda {version}, no usable device"


def _settings() -> list[str]:
    return sorted(name for name in vars(config) if name.isupper())


def bytes_text(size: float) -> str:
    """A number of bytes as people read it."""
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
