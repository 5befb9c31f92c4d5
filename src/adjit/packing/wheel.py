"""A kernel pack as a package that pip installs, and `pack.py` finds by its name."""

from __future__ import annotations

import base64
import hashlib
import sys
import sysconfig
import zipfile
from pathlib import Path

from ..schedule.jit import pack

GENERATOR = "adjit"


def put(where: Path, level: str, data: bytes) -> Path:
    """Write the wheel of a pack into a folder, or the pack itself to a file; what was written."""
    if where.is_dir():
        return _wheel(where, level, data)
    where.write_bytes(data)
    return where


def _wheel(folder: Path, level: str, data: bytes) -> Path:
    versions = pack.versions()
    module, version = pack.module_name(level), versions["adjit"]
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}-none-{_platform()}"
    facts = f"{module}-{version}.dist-info"
    files = {
        f"{module}/__init__.py": f'"""Kernels of adjit {version}, compiled for {level}."""\n'.encode(),
        f"{module}/{pack.file_name(level)}": data,
        f"{facts}/METADATA": _lines(
            "Metadata-Version: 2.1", f"Name: {module.replace('_', '-')}", f"Version: {version}",
            f"Summary: Kernels of adjit, compiled ahead for {level}.", "License: MIT",
            *(f"Requires-Dist: {name}=={versions[name]}" for name in ("adjit", "numba", "llvmlite")),
        ),
        f"{facts}/WHEEL": _lines(
            "Wheel-Version: 1.0", f"Generator: {GENERATOR}", "Root-Is-Purelib: false", f"Tag: {tag}"
        ),
    }  # fmt: skip
    records = [f"{name},sha256={_digest(of)},{len(of)}" for name, of in files.items()]
    files[f"{facts}/RECORD"] = _lines(*records, f"{facts}/RECORD,,")
    path = folder / f"{module}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, of in files.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), of, zipfile.ZIP_DEFLATED)
    return path


def _platform() -> str:
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def _lines(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
