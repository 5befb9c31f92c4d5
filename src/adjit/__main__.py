"""The command line: `python -m adjit info` and `python -m adjit cache path|clear|pack`."""

import argparse
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numba

from . import config, cuda
from .kernels.language.processor import CHOSEN, LEVELS, NATIVE, host
from .schedule.jit import disk, native
from .schedule.jit import pack as packs
from .schedule.run_cpu import get_num_threads

_PACKAGES = ("adjit", "numba", "llvmlite", "numpy", "scipy", "safetensors", "tbb")
CLOSED_PIPE = 128 + 13  # what shells show for a program that SIGPIPE ended
_VECTOR_FEATURES = ("sse4", "avx", "fma", "f16c", "amx", "neon", "sve", "fullfp16", "bf16")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; None takes the arguments of the process."""
    options = _parser().parse_args(arguments)
    if options.command == "info":
        for name, text in _facts():
            print(f"{name:<10} {text}")
    elif options.action == "path":
        print(disk.folder())
    elif options.action == "pack":
        return _pack(options)
    else:
        _, size = disk.size()
        print(f"removed {disk.clear()} files, {_bytes_text(size)}")
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
        print(f"{place} ({len(entries)} kernels, {_bytes_text(len(data))})")
    return 0


def _facts() -> Iterator[tuple[str, str]]:
    """What somebody who reads a bug report wants to know."""
    yield "python", f"{platform.python_version()} ({sys.implementation.name}, {sys.platform})"
    for package in _PACKAGES:
        yield package, _version(package)
    yield "processor", f"{host().name} ({CHOSEN.architecture}), kernels for {CHOSEN.level}"
    yield "features", ", ".join(_vector_features()) or "none of the known vector extensions"
    yield "threads", f"{get_num_threads()}, threading layer {_threading_layer()}"
    yield "recorder", _recorder()
    files, size = disk.size()
    yield "cache", f"{disk.folder()} ({files} files, {_bytes_text(size)})"
    yield "pack", packs.described(CHOSEN.level)
    yield "cuda", _cuda_state()
    yield "settings", ", ".join(f"{name}={getattr(config, name)}" for name in _settings())


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _vector_features() -> list[str]:
    available = (name[1:] for name in CHOSEN.features.split(",") if name.startswith("+"))
    return sorted(name for name in available if name.startswith(_VECTOR_FEATURES))


def _threading_layer() -> str:
    try:
        return str(numba.threading_layer())
    except ValueError:  # it is chosen when the first parallel kernel is compiled
        return f"{numba.config.THREADING_LAYER} (not started)"


def _recorder() -> str:
    return "machine code" if native.is_supported else f"Python: {native.why_python}"


def _cuda_state() -> str:
    if cuda.is_available():
        return ", ".join(cuda.get_device_name(index) for index in range(cuda.device_count()))
    version = _version("numba-cuda")
    if version == "not installed":
        return "not installed; pip install 'adjit[cuda]' adds it"
    return f"numba-cuda {version}, no usable device"


def _settings() -> list[str]:
    return sorted(name for name in vars(config) if name.isupper())


def _bytes_text(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


if __name__ == "__main__":
    sys.exit(_until_closed())
