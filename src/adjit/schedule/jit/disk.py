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
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ... import config

MAGIC = b"adjit object 2\n"


class CacheEntry(NamedTuple):
    """Machine code."""

    symbol: str  # of its function; with blanks between them if there are several
    code: bytes
    external: tuple[str, ...] = ()  # the symbols that it expects from elsewhere
    spills: int = 0  # bytes that a thread of a GPU stores for want of registers


def read(path: Path) -> CacheEntry | None:
    """An entry of the cache, None where it is missing, damaged or another one's."""
    try:
        return parsed(path.name, path.read_bytes())
    except OSError:
        return None


def parsed(name: str, data: bytes) -> CacheEntry | None:
    """The entry that a file of this name holds, None where it is damaged or another one's."""
    try:
        seal, _, sealed = data[len(MAGIC) :].partition(b"\n")
        if not data.startswith(MAGIC) or seal != _seal(name, sealed):
            return None
        line, _, code = sealed.partition(b"\n")
        header = json.loads(line)
        return CacheEntry(header["symbol"], code, tuple(header["external"]), header["spills"])
    except (ValueError, KeyError, TypeError):
        return None


def write(path: Path, entry: CacheEntry) -> CacheEntry:
    """Keep an entry, which is returned, if that can be done."""
    header = entry._asdict()
    del header["code"]
    sealed = json.dumps(header).encode() + b"\n" + entry.code
    write_atomically(path, MAGIC + _seal(path.name, sealed) + b"\n" + sealed)
    return entry


def _seal(name: str, sealed: bytes) -> bytes:
    """A digest of all that an entry says and of its name.

    The name tells the text that was compiled, by what and for which processor: an entry in the place of
    another one, as a copy or a synchronised folder may leave it, is as good as damaged.
    """
    return hashlib.sha256(name.encode() + b"\n" + sealed).hexdigest().encode()


# ----- the folder -----


def wanted() -> Path:
    """Where the kernel cache should be."""
    return Path(config.CACHE_DIR) if config.CACHE_DIR else config.user_cache() / "adjit"


@functools.cache
def folder() -> Path:
    """The folder of the kernel cache, made private to the user if it is new.

    `ADJIT_CACHE_DIR` names it; the default is `adjit` under the user's cache folder. A folder that
    cannot be written, or belongs to somebody else, is left alone: a temporary one serves instead, of
    which `tell` warns.
    """
    found = wanted()
    try:
        found.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_private(found):
            why = "it belongs to another user"
        else:
            with tempfile.TemporaryFile(dir=found):
                return found
    except OSError as error:
        why = _text(error)
    _note(found, why)
    temporary = Path(tempfile.mkdtemp(prefix="adjit_"))
    _temporary.append(temporary)
    return temporary


_temporary: list[Path] = []


@atexit.register
def _remove_temporary() -> None:
    for path in _temporary:
        shutil.rmtree(path, ignore_errors=True)


def is_private(path: Path) -> bool:
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
    """Write a file so that readers see all of it or nothing. Where it cannot be written there is none,
    of which `tell` warns."""
    try:
        handle, partial = _new_file(path)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(partial, path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
    except OSError as error:
        _note(path, _text(error))


def _new_file(path: Path) -> tuple[int, str]:
    """A new file beside a path; the folder is made anew if somebody has removed it."""
    try:
        return tempfile.mkstemp(dir=path.parent, prefix=".", suffix=path.suffix)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return tempfile.mkstemp(dir=path.parent, prefix=".", suffix=path.suffix)


# ----- what is wrong with it -----

_troubles: list[str] = []  # of which nobody was told yet
_was_told = False


def _text(error: OSError) -> str:
    return error.strerror or str(error)


def _note(path: Path, why: str) -> None:
    """Note that something cannot be kept."""
    _troubles.append(f"{path}: {why}")


def tell() -> None:
    """Warn, once in a process, if what was compiled could not be kept.

    Whoever waits for results calls it when they are there: a warning may be an error.
    """
    global _was_told
    if not _troubles or _was_told:
        return
    _was_told = True
    warnings.warn(
        f"adjit cannot keep the kernels that it compiles ({_troubles[0]}), so every run of this program "
        "compiles them again, which takes seconds to minutes. Make room there, see that the folder is "
        "yours and can be written, or have ADJIT_CACHE_DIR name one that can; python -m adjit cache clear "
        "empties it",
        RuntimeWarning,
        stacklevel=2,
    )


# ----- all of it -----


def _files() -> Iterator[Path]:
    for path in folder().iterdir():
        if path.suffix in (".o", ".py", ".cubin", ".pack") and path.is_file():
            yield path
    beside = folder() / "__pycache__"  # where Numba keeps the code of the files there
    for path in beside.iterdir() if beside.is_dir() else ():
        if path.suffix in (".nbi", ".nbc", ".pyc") and path.is_file():
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
