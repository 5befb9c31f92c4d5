"""The kernel cache's folder, and its entries: machine code with what is known about it."""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .. import config

MAGIC = b"adjit object 1\n"


class Entry(NamedTuple):
    """Machine code."""

    symbol: str  # of its function; with blanks between them if there are several
    code: bytes
    external: tuple[str, ...] = ()  # the symbols that it expects from elsewhere
    spills: int = 0  # bytes that a thread of a GPU stores for want of registers


def read(path: Path) -> Entry | None:
    """An entry of the cache, None where it is missing, damaged or of other make."""
    try:
        data = path.read_bytes()
        if not data.startswith(MAGIC):
            return None
        line, _, code = data[len(MAGIC) :].partition(b"\n")
        header = json.loads(line)
        if hashlib.sha256(code).hexdigest() != header["sha256"]:
            return None
        external = tuple(header["external"])
        return Entry(str(header["symbol"]), code, external, header.get("spills", 0))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(path: Path, entry: Entry) -> Entry:
    """Keep an entry, which is returned."""
    header = entry._asdict() | {"sha256": hashlib.sha256(entry.code).hexdigest()}
    del header["code"]
    write_atomically(path, MAGIC + json.dumps(header).encode() + b"\n" + entry.code)
    return entry


@functools.cache
def folder() -> Path:
    """The folder of the kernel cache, made private to the user if it is new.

    `ADJIT_CACHE_DIR` names it; the default is `adjit` under the user's cache folder. A folder that
    cannot be written, or belongs to somebody else, is left alone: a temporary one serves instead.
    """
    found = Path(config.CACHE_DIR) if config.CACHE_DIR else config.user_cache() / "adjit"
    try:
        found.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _is_private(found) and os.access(found, os.W_OK | os.X_OK):
            with tempfile.TemporaryFile(dir=found):
                return found
    except OSError:
        pass
    temporary = Path(tempfile.mkdtemp(prefix="adjit_"))
    _temporary.append(temporary)
    return temporary


_temporary: list[Path] = []


@atexit.register
def _remove_temporary() -> None:
    for path in _temporary:
        shutil.rmtree(path, ignore_errors=True)


def _is_private(path: Path) -> bool:
    """Whether nobody but this user can have put code there."""
    if not hasattr(os, "getuid"):
        return True
    found = path.stat()
    if found.st_uid != os.getuid():
        return False
    if stat.S_IMODE(found.st_mode) & 0o022:
        path.chmod(0o700)
    return True


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that readers see all of it or nothing; a failure leaves no file."""
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=path.suffix)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(partial, path)
    except OSError:
        Path(partial).unlink(missing_ok=True)


def _files() -> Iterator[Path]:
    for path in folder().iterdir():
        if path.suffix in (".o", ".py", ".cubin") and path.is_file():
            yield path


def size() -> tuple[int, int]:
    """Files in the kernel cache, and their bytes."""
    sizes = [path.stat().st_size for path in _files()]
    return len(sizes), sum(sizes)


def clear() -> int:
    """Delete the kernel cache; the number of files that were deleted."""
    count = 0
    for path in _files():
        path.unlink(missing_ok=True)
        count += 1
    return count
