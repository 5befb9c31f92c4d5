"""A kernel pack from programs: they run for a level, and what was compiled for them is kept."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from ..kernels.language.processor import NATIVE, SETTING, host
from ..schedule.jit import disk, pack


class ProgramRun(NamedTuple):
    """A program, and how it is run."""

    arguments: tuple[str, ...]  # of the interpreter
    settings: dict[str, str]


SINGLE, FUSED = {"ADJIT_JIT": "off"}, {"ADJIT_JIT": "sync"}


def _file(name: str, settings: dict[str, str]) -> ProgramRun:
    return ProgramRun(("-m", f"{__package__}.programs", name), settings)


# First steps run operation by operation, the third ones by plans, whose kernels are fused.
ORDINARY = (
    _file("networks", FUSED), _file("elementwise", SINGLE), _file("operations", SINGLE),
    _file("networks", SINGLE), _file("sciences", SINGLE), _file("fastpath", SINGLE),
)  # fmt: skip


def scripts(paths: Iterable[Path]) -> Iterator[ProgramRun]:
    """How programs of users are run: as in their first run, and as in the long run."""
    for path in paths:
        yield ProgramRun((str(path),), SINGLE)
        yield ProgramRun((str(path),), FUSED)


def best_level() -> str:
    """The level of a pack for this processor."""
    return [NATIVE, *host().levels()][-1]


def build(level: str, runs: Sequence[ProgramRun]) -> dict[str, bytes]:
    """ProgramRun programs with kernels of a level; what was compiled, as the cache keeps it, by stems.

    Raises:
        RuntimeError: if a program fails.
    """
    with tempfile.TemporaryDirectory(prefix="adjit_pack_") as folder:
        common = {SETTING: level, "ADJIT_CACHE_DIR": folder, "ADJIT_KERNEL_PACK": "off"}
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for _ in pool.map(lambda run: _ran(run, common), runs):
                pass
        found = {path.stem: path.read_bytes() for path in sorted(Path(folder).glob("*.o"))}
    return {stem: data for stem, data in found.items() if disk.parsed(f"{stem}.o", data)}


def _ran(run: ProgramRun, common: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, *run.arguments], env=os.environ | run.settings | common,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{' '.join(run.arguments)} failed:\n{done.stderr}")


def install(level: str, data: bytes) -> Path:
    """Put a pack where this user's programs find it; where that is."""
    path = disk.folder() / pack.file_name(level)
    disk.write_atomically(path, data)
    disk.tell()
    return path
