"""Replacing a file as a whole: whoever reads it finds the old one or the new one."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress


def replace_file(path: str | os.PathLike[str], write: Callable[[str], None]) -> None:
    """Let `write(temporary)` fill a file beside `path`, and put it in its place.

    The bytes, then their name, are on the disk when this returns. If anything fails before, the
    old file stays as it is and the temporary one is removed; after a loss of power or `kill -9`
    the temporary one, `.adjit-<8 hex digits>.tmp`, may be left over. A link is followed, the
    permissions of a file that is replaced are kept.

    Raises:
        OSError: if the folder is missing, or the file cannot be written.
    """
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "the folder to save to does not exist", folder)
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
    replacing = os.path.exists(target)
    if replacing and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), target)
    temporary = os.path.join(folder, f".adjit-{secrets.token_hex(4)}.tmp")
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        mode = os.stat(target if replacing else temporary).st_mode
        write(temporary)
        os.chmod(temporary, stat.S_IMODE(mode))  # `write` may put another file in its place
        _sync(temporary, os.O_RDWR)
        os.replace(temporary, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    if os.name != "nt":  # Windows opens no folders
        _sync(folder, os.O_RDONLY)


def _sync(path: str, flags: int) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
