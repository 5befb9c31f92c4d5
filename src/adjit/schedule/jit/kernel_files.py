"""The files of `adjit.kernels`: their texts, what they import of each other, and digests of both.

Machine code has parts of those files inside that its text imports, and of those that these import. So its
key in the cache has their digest: an edit of `ops/sort.py` leaves the products compiled, one of
`language/abi.py` does not.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from ...kernels.language import abi

PACKAGE: str = abi.__name__.removesuffix(".language.abi")
FOLDER = Path(abi.__file__).parents[1]

# `from .abi import at`, `from ..math import constants_f32, constants_f64`, `from adjit.kernels.ops import (…)`
IMPORT = re.compile(r"^ *from ([\w.]+) import (\([^)]*\)|.*)", re.MULTILINE)


def text_of(module: str) -> str:
    """The text of a module, which is named from the package on: `ops.sort`."""
    return FOLDER.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")


def absolute(module: str, importing: str) -> str | None:
    """What `from module import` means in another one (""); None where it leads out of the package."""
    if not module.startswith("."):
        return module[len(PACKAGE) + 1 :] if module.startswith(f"{PACKAGE}.") else None
    name = module.lstrip(".")
    home = importing.split(".")[: -(len(module) - len(name))]
    return ".".join([*home, name]) if name else ".".join(home)


def imported(text: str, importing: str = "") -> set[str]:
    """The modules of the package that a text imports, anywhere in it."""
    found = set()
    for source, names in IMPORT.findall(text):
        module = absolute(source, importing)
        if module is None:
            continue
        if _is_file(module):
            found.add(module)
        else:  # a folder, of which modules are imported
            parts = (f"{module}.{name}" for name in re.findall(r"\w+", names))
            found.update(filter(_is_file, parts))
    return found - {importing}  # of which examples in a docstring tell


def digest_of(modules: Iterable[str]) -> str:
    """A digest of some modules and of all that they import, directly or not."""
    return _digest_of(frozenset(modules))


def digest_inside(text: str) -> str:
    """The same of what a text imports."""
    return digest_of(imported(text))


def name_of(module: str) -> str:
    """The name of an imported module from the package on."""
    return module.removeprefix(f"{PACKAGE}.")


@functools.cache
def _digest_of(modules: frozenset[str]) -> str:
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += _imported_by(module)
    return hashlib.sha256("".join(map(_file_digest, sorted(found))).encode()).hexdigest()


@functools.cache
def _is_file(module: str) -> bool:
    return FOLDER.joinpath(*module.split(".")).with_suffix(".py").is_file()


@functools.cache
def _imported_by(module: str) -> frozenset[str]:
    return frozenset(imported(text_of(module), module))


@functools.cache
def _file_digest(module: str) -> str:
    return hashlib.sha256(text_of(module).encode()).hexdigest()
