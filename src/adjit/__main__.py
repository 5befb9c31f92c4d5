"""The command line: `python -m adjit info` and `python -m adjit cache path|clear|pack`."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from . import __config__
from .__config__ import bytes_text
from .kernels.language.processor import LEVELS, NATIVE
from .schedule.jit import disk
from .schedule.jit import pack as packs

CLOSED_PIPE = 128 + 13  # what shells show for a program that SIGPIPE ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; None takes the arguments of the process."""
    options = _parser().parse_args(arguments)
    if options.command == "info":
        print(__config__.show())
    elif options.action == "path":
        print(disk.folder())
    elif options.action == "pack":
        return _pack(options)
    else:
        _, size = disk.size()
        print(f"removed {disk.clear()} files, {bytes_text(size)}")
    return 0


def _until_closed() -> int:
    """`main`, silent once nobody reads what it prints: `info | head` has what it wanted."""
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more when it ends, which would be said on stderr.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m adjit", description="About this adjit.")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    commands.add_parser("info", help="versions, processor, threads, cache, CUDA and settings")
    cache = commands.add_parser("cache", help="the folder of compiled kernels, and packs of them")
    actions = cache.add_subparsers(dest="action", metavar="action", required=True)
    actions.add_parser("path", help="print where the folder is")
    actions.add_parser("clear", help="delete what is in it")
    pack = actions.add_parser("pack", help="compile what programs need first, ahead of them")
    pack.add_argument("--level", choices=(NATIVE, *LEVELS), help="the highest of this processor")
    pack.add_argument("--out", type=Path, help="a folder, for a wheel, or a file; here")
    pack.add_argument("--install", action="store_true", help="put it into the folder of kernels")
    pack.add_argument(
        "--only", action="store_true", help="pack what the scripts need, nothing else"
    )
    pack.add_argument("scripts", nargs="*", type=Path, help="programs whose kernels it has too")
    return parser


def _pack(options: argparse.Namespace) -> int:
    """Make a kernel pack, and tell where it is."""
    from .packing import build, wheel

    level = options.level or build.best_level()
    ordinary = () if options.only else build.ORDINARY
    try:
        entries = build.build(level, (*ordinary, *build.scripts(options.scripts)))
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    data = packs.written(level, entries)
    places = [build.install(level, data)] if options.install else []
    if options.out is not None or not options.install:
        places.append(wheel.put(options.out or Path.cwd(), level, data))
    for place in places:
        print(f"{place} ({len(entries)} kernels, {bytes_text(len(data))})")
    return 0


if __name__ == "__main__":
    sys.exit(_until_closed())
