"""Settings, all read from environment variables when adjit is imported.

| variable            | values             | default          | meaning                                     |
|---------------------|--------------------|------------------|---------------------------------------------|
| `ADJIT_EAGER`       | 0, 1               | 0                | settle after every operation, for debugging |
| `ADJIT_CACHE_DIR`   | a folder           | user cache       | where compiled kernels are kept             |
| `ADJIT_KERNEL_PACK` | a file, off        | where one is installed | kernels that were compiled ahead     |
| `ADJIT_HOME`        | a folder           | user cache       | its `checkpoints` hold the weights of models |
| `ADJIT_NUM_THREADS` | a whole number ≥ 1 | usable cores     | threads that big steps are split over       |
| `ADJIT_THREADING_LAYER` | workers, tbb, serial | workers, tbb on Windows | what runs the parts of a big step |
| `ADJIT_JIT`         | background, sync, off | background    | where fused kernels are compiled            |
| `ADJIT_HOT`         | a whole number ≥ 1 | 2                | how often a graph is seen before it is fused |
| `ADJIT_MIN_FUSED`   | a whole number ≥ 1 | 1024             | elements that fusing an operation takes |
| `ADJIT_TEMPLATES`   | a whole number ≥ 1, off | 8           | calls that differ in sizes, before templates |
| `ADJIT_CPU`         | native, x86-64-v2, -v3, -v4 | native, or a pack's | the instructions of kernels |
| `ADJIT_RECORDER`    | compiled, python   | compiled         | who records: machine code or its fallbacks |
| `ADJIT_PROGRESS`    | auto, off          | auto             | a line on terminals while kernels are compiled |
| `ADJIT_LOGS`        | graph_breaks, recompiles | none      | say why compiled functions do so |
| `ADJIT_CUBLASLT`    | auto, off          | auto             | NVIDIA's library for products on GPUs |
| `ADJIT_DEBUG`       | 0, 1               | 0                | users' own kernels check their indices |
| `ADJIT_MAX_PENDING` | a whole number ≥ 1 | 1024             | recorded nodes that force a settle          |
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def user_cache() -> Path:
    """Find the user's folder for files that can be had again.

    Example:
        >>> adjit.config.user_cache().is_absolute()
        True
    """
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _one_of(name: str, *values: str) -> str:
    text = os.environ.get(name, "").strip() or values[0]
    if text not in values:
        raise ValueError(f"{name} must be one of {', '.join(values)}, got {text!r}")
    return text


def _whole(name: str, default: int) -> int:
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {text!r}")
    return int(text)


def _whole_or_off(name: str, default: int) -> int:
    return 0 if os.environ.get(name, "").strip() == "off" else _whole(name, default)


def _some_of(name: str, *values: str) -> frozenset[str]:
    found = frozenset(os.environ.get(name, "").replace(",", " ").split())
    if not found <= {*values}:
        raise ValueError(
            f"{name} must be some of {', '.join(values)}, got {', '.join(sorted(found))}"
        )
    return found


EAGER: bool = os.environ.get("ADJIT_EAGER", "0").strip() not in ("", "0")
CACHE_DIR: str | None = os.environ.get("ADJIT_CACHE_DIR") or None
KERNEL_PACK: str | None = os.environ.get("ADJIT_KERNEL_PACK", "").strip() or None
HOME: str | None = os.environ.get("ADJIT_HOME") or None
JIT: str = _one_of("ADJIT_JIT", "background", "sync", "off")
HOT: int = _whole("ADJIT_HOT", 2)
MIN_FUSED: int = _whole("ADJIT_MIN_FUSED", 1024)
TEMPLATES: int = _whole_or_off("ADJIT_TEMPLATES", 8)  # 0: off
RECORDER: str = _one_of("ADJIT_RECORDER", "compiled", "python")
LOGS: frozenset[str] = _some_of("ADJIT_LOGS", "graph_breaks", "recompiles")
PROGRESS: str = _one_of("ADJIT_PROGRESS", "auto", "off")
CUBLASLT: bool = _one_of("ADJIT_CUBLASLT", "auto", "off") == "auto"
MAX_PENDING: int = _whole("ADJIT_MAX_PENDING", 1024)
DEBUG: bool = _one_of("ADJIT_DEBUG", "0", "1") == "1"
DETERMINISTIC = True  # `adjit.use_deterministic_algorithms`
MATMUL_PRECISION: str = "highest"  # the one that a function sets: set_float32_matmul_precision
