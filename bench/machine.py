"""The machine in a few words, without its name."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

# AMD's family and Intel's model numbers, where the brand string of a virtual machine says nothing.
AMD_FAMILIES = {23: "zen2", 25: "zen3", 26: "zen5"}
ZEN_4_MODELS = {*range(0x10, 0x20), *range(0x60, 0x80), *range(0xA0, 0xB0)}
INTEL_MODELS = {85: "skylake", 106: "icelake", 143: "sapphirerapids", 173: "graniterapids"}


def _cpuinfo() -> dict[str, str]:
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    first = path.read_text().split("\n\n")[0]
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def architecture() -> str:
    """The processor's design, such as "zen4"."""
    info = _cpuinfo()
    if info.get("cpu family", "").isdigit():
        family, model = int(info["cpu family"]), int(info["model"])
        if info["vendor_id"] == "AuthenticAMD" and family in AMD_FAMILIES:
            zen_4 = family == 25 and model in ZEN_4_MODELS
            return "zen4" if zen_4 else AMD_FAMILIES[family]
        if info["vendor_id"] == "GenuineIntel" and model in INTEL_MODELS:
            return INTEL_MODELS[model]
    brand = info.get("model name") or platform.processor() or platform.machine()
    return re.sub(r"[^a-z0-9]+", "-", brand.lower()).strip("-") or "unknown"


def short_name() -> str:
    """A name for files: "zen4-2core"."""
    return f"{architecture()}-{usable_cores()}core"


def level() -> str:
    """What adjit's kernels may use: all of the processor, or no more than a level of x86-64."""
    from adjit.kernels.language.processor import CHOSEN

    return CHOSEN.level


def description() -> str:
    """One line: processor, level of the kernels, cores, system, Python."""
    info = _cpuinfo()
    brand = info.get("model name") or platform.processor() or platform.machine()
    widest = next((w for w in ("avx512f", "avx2") if w in info.get("flags", "").split()), "")
    parts = [
        f"{brand} ({', '.join(filter(None, (architecture(), widest)))})",
        f"kernels for {level()}",
        f"{usable_cores()} cores",
        f"{platform.system()} {platform.machine()}",
        f"Python {platform.python_version()}",
    ]
    return ", ".join(parts)


# ----- a GPU -----


def no_gpu() -> str:
    """What is missing for measuring on a GPU; empty where nothing is."""
    from adjit import driver
    from adjit.schedule.jit import nvidia

    if driver.reason():
        return driver.reason()
    try:
        nvidia.check()
    except nvidia.ToolkitMissing as error:
        return str(error)
    return ""


def gpu_short_name() -> str:
    """A name for files: "nvidia-h200"."""
    from adjit import cuda

    return re.sub(r"[^a-z0-9]+", "-", cuda.get_device_name().lower()).strip("-")


def gpu_description() -> str:
    """One line: the GPU, its memory, its compute capability, what the driver knows."""
    from adjit import cuda, driver

    found = cuda.get_device_properties()
    version = driver.load().version
    return (
        f"{found.name}, {found.total_memory / 2**30:.0f} GiB, compute capability "
        f"{found.major}.{found.minor}, driver for CUDA {version // 1000}.{version % 1000 // 10}"
    )
