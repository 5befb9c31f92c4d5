"""Finding out what a file is, and who reads it."""

from __future__ import annotations

from typing import Any

from . import native, torch_files
from .source import ByteSource, FileLike, opened


def read(
    f: FileLike,
    map_location: torch_files.MapLocation,
    weights_only: bool,
    mmap: bool,
    half_to_float32: bool,
) -> Any:
    """What `adjit.load` returns."""
    if not weights_only:
        raise ValueError(f"weights_only=False is not supported: {torch_files.NEVER_RUNS_CODE}")
    with opened(f, mmap) as source:
        start = source.read(0, min(source.size, 512))
        if start[8:9] == b"{":
            return native.load(source, map_location, half_to_float32)
        if start.startswith(b"PK\x03\x04"):
            return torch_files.load_zip(source, map_location, half_to_float32)
        if start.startswith(b"\x80"):
            if mmap:
                raise RuntimeError(
                    "mmap can only be used with safetensors files and with files saved with "
                    "`torch.save(_use_new_zipfile_serialization=True)`, please save your "
                    "checkpoint with this option in order to use mmap."
                )
            return torch_files.load_legacy(source, map_location, half_to_float32)
        raise _unknown_format(source, start)


def _unknown_format(source: ByteSource, start: bytes) -> RuntimeError:
    """The error for a file that cannot be read, by its first bytes."""
    if start[257:262] == b"ustar":
        return RuntimeError(
            f"{source.name} is in the .tar format of PyTorch 0.1.10 and earlier. "
            "Cannot use ``weights_only=True`` with files saved in the legacy .tar format. "
            + torch_files.NEVER_RUNS_CODE
        )
    return RuntimeError(
        f"{source.name} is no file of adjit.save, torch.save or safetensors: it has {source.size} "
        f"bytes and begins with {start[:8]!r}"
    )
