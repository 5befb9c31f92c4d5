"""Kernel packs: machine code that was compiled ahead for a level of processors, in one file.

A pack is a line that says what the file is; a line of JSON with the level and the versions that its code was
made by; a line of JSON that says where each entry lies; and the entries, byte for byte those that the kernel
cache has on disk. They are found by the same names, which hold a digest of the text, the compiler and the
level, and sealed with them: an entry that is missing, damaged or in the place of another one is compiled.

A pack also decides the level where ADJIT_CPU does not: `processor.Processor.usual_level`.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import llvmlite
import numba

from ... import config
from ...kernels.language import level as levels
from ...version import __version__
from . import disk

MAGIC = b"adjit kernel pack 1\n"


class Misfit(ValueError):
    """A file is no pack for this process; the text says why."""


class KernelPack(NamedTuple):
    """A pack whose versions are those of this process."""

    path: Path
    level: str
    places: Mapping[
        str, tuple[int, int]
    ]  # of entries, by their stems: where in the file, how many bytes

    def entry(self, stem: str) -> disk.CacheEntry | None:
        """An entry; None where it is missing, damaged or another one's."""
        place = self.places.get(stem)
        if place is None:
            return None
        start, size = place
        try:
            with self.path.open(
                "rb"
            ) as file:  # not mapped: a file that is cut would end the process
                file.seek(start)
                return disk.parsed(f"{stem}.o", file.read(size))
        except (OSError, ValueError):
            return None


def versions() -> dict[str, str]:
    """What all code of a pack depends on besides its level; the names of entries say the rest."""
    return {
        "adjit": __version__,
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "python": sys.implementation.cache_tag or "",
        "platform": sys.platform,
    }


def written(level: str, entries: Mapping[str, bytes]) -> bytes:
    """The bytes of a pack of entries as the cache has them, by their stems."""
    places, at = {}, 0
    for stem, data in sorted(entries.items()):
        places[stem] = at, len(data)
        at += len(data)
    lines = json.dumps({"level": level} | versions()), json.dumps(places, separators=(",", ":"))
    head = MAGIC + "".join(f"{line}\n" for line in lines).encode()
    return head + b"".join(data for _, data in sorted(entries.items()))


def opened(path: Path) -> KernelPack:
    """The pack in a file.

    Raises:
        Misfit: if there is none, or one that was made by other versions.
    """
    try:
        with path.open("rb") as file:
            if file.readline(len(MAGIC)) != MAGIC:
                raise Misfit("not a kernel pack")
            header, places = json.loads(file.readline()), json.loads(file.readline())
            start = file.tell()
        level = header.pop("level")
        if header != (expected := versions()):
            differ = sorted(k for k in {*header, *expected} if header.get(k) != expected.get(k))
            told = ", ".join(f"{name} {header.get(name)}" for name in differ)
            raise Misfit(f"made by {told}")
        return KernelPack(path, level, {k: (start + at, size) for k, (at, size) in places.items()})
    except OSError as error:
        raise Misfit(error.strerror or str(error)) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise error if isinstance(error, Misfit) else Misfit("damaged") from None


# ----- where packs are -----


def file_name(level: str) -> str:
    """What the file of a pack is called."""
    return f"{level}.pack"


def module_name(level: str) -> str:
    """The name of an installed package that is a pack."""
    return f"adjit_kernels_{level.replace('-', '_')}"


def _places(level: str) -> Iterator[Path]:
    """Where a pack of a level may be: where ADJIT_KERNEL_PACK says, or else in the cache's folder, where
    `cache pack --install` puts it, or in a package that was installed."""
    if config.KERNEL_PACK:
        if config.KERNEL_PACK != "off":
            yield Path(config.KERNEL_PACK)
        return
    kept = disk.wanted() / file_name(level)
    if kept.is_file() and disk.is_private(kept.parent):
        yield kept
    spec = importlib.util.find_spec(module_name(level))
    for folder in (spec and spec.submodule_search_locations) or ():
        yield Path(folder, file_name(level))


def _opened_for(path: Path, level: str) -> KernelPack:
    found = opened(path)
    if found.level != level:
        raise Misfit(f"for {found.level}")
    return found


@functools.cache
def of_level(level: str) -> KernelPack | None:
    """The pack for kernels of a level, None if there is none that fits."""
    for path in _places(level):
        with suppress(Misfit):
            return _opened_for(path, level)
    return None


def described(level: str) -> str:
    """The pack for kernels of a level, or why there is none, for bug reports."""
    told = []
    for path in _places(level):
        try:
            return f"{path} ({len(_opened_for(path, level).places)} kernels)"
        except Misfit as error:
            told.append(f"not {path}: {error}")
    return "; ".join(told) or "none"


def read(level: str, stem: str) -> disk.CacheEntry | None:
    """An entry of the pack for a level; None where there is none, or none that is of use."""
    found = of_level(level)
    return None if found is None else found.entry(stem)


levels.set_kernels(lambda level: of_level(level) is not None)
