"""Compiled kernels on disk: source files to read, object code to load without a compiler.

A kernel is a module of its own, named by the hash of its text and of everything else that its
machine code depends on. Numba compiles it once on a machine; the object code lies beside the
source and is loaded through LLVM's linker, which takes a tenth of the time of Numba's own cache
(numba #3501 and #6264 are why functions made by `exec` would have no cache at all).
"""

from __future__ import annotations

import ast
import functools
import gc
import hashlib
import importlib.metadata
import importlib.util
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import filterfalse
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding as llvm

from ...dtypes import dtype
from ...kernels.language import target
from ...kernels.language.processor import CHOSEN
from ...kernels.language.target import load, loader, translate
from ...locks import Lock
from ..codegen.body import SCALAR_MODULES, VECTOR_MATH, parse, written_text
from ..planning.recipe import Source
from . import disk, kernel_files, pack
from .apart import apart, is_awaited
from .progress import progress

SIGNATURE = "void(int64, int64, int64)"
TURN = 1e-4  # seconds for which a thread may keep Python's lock

_lock = Lock()
compiler_lock = Lock()  # one thread compiles at a time
locks = compiler_lock, _lock  # in the order in which they are taken
_linked: dict[str, tuple[int, ...]] = {}
_expected: dict[Source, None] = {}


Translate = Callable[[], Callable[[], disk.CacheEntry]]  # the result of Numba's part does LLVM's


class CompilationUnit(NamedTuple):
    """What becomes one file of object code: a kernel, or functions that are emitted together."""

    stem: str  # what its files are called
    translate: Translate


def link(source: Source) -> int:
    """The address of a kernel: already linked, loaded from disk, or compiled now."""
    if not source.address:
        unit, which = _unit_of(source)
        source.address = addresses(unit)[which]
    return source.address


def link_function(function: Callable[..., Any], signature: str) -> int:
    """The address of a function of the kernels room, for instance the runner's loop."""
    return addresses(_unit_of_function(function, signature))[0]


def _unit_of_function(function: Callable[..., Any], signature: str) -> CompilationUnit:
    return _unit(function.__name__, instantiate(function, {}).text, signature)


def compile_ahead(
    sources: Iterable[Source], functions: Iterable[tuple[Callable[..., Any], str]] = ()
) -> None:
    """Compile kernels that are about to be linked, and functions of the kernels room, with signatures: LLVM
    works on one while Numba translates the next.

    What cannot be compiled is left to those who link it.
    """
    missing = _missing(map(_unit_of, [source for source in sources if not source.address]))
    if missing:
        missing |= _missing(map(_unit_of, _expected))
        _expected.clear()
        missing |= _missing((_unit_of_function(*function), 0) for function in functions)
    if len(missing) >= 2:
        with _waiting():
            apart(functools.partial(_compile_all, missing))


def _compile_all(missing: Mapping[str, Translate]) -> None:
    """Compile units, by their stems, as long as somebody waits for them."""

    def finish(stem: str, compiled: Callable[[], disk.CacheEntry]) -> None:
        entry = compiled()
        if not _absent(entry):
            _at_hand[stem] = entry

    with compiler_lock, ThreadPoolExecutor(1, "adjit-llvm") as llvm_part:
        for stem, translate in missing.items():
            if not is_awaited():
                break
            with suppress(Exception), progress.compiling():
                llvm_part.submit(functools.partial(finish, stem, translate()))


def count_missing(sources: Iterable[Source]) -> int:
    """How many files of object code would have to be compiled for some kernels."""
    return len(_missing(map(_unit_of, [source for source in sources if not source.address])))


def expect(source: Source) -> None:
    """Have a kernel that will be wanted, and alone, compiled along with others that are wanted now."""
    if not source.address:
        _expected[source] = None


def _missing(units: Iterable[tuple[CompilationUnit, int]]) -> dict[str, Translate]:
    """Those that are not linked, nor in the cache."""
    wanted = dict(unit for unit, _ in units if unit.stem not in _linked)
    return {stem: unit for stem, unit in wanted.items() if not _is_there(stem)}


@contextmanager
def _waiting() -> Iterator[None]:
    """Around waiting for a compiler.

    Where the program waits, cycles are left alone: Numba makes many objects, of which few are garbage
    before its end, and each collection would look through them. And LLVM's thread, whose calls are many
    and mostly short, gets Python's lock when it asks for it, not 5 ms later.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # what the program sets meanwhile is not to be undone
        return
    interval, collects = sys.getswitchinterval(), gc.isenabled()
    try:
        sys.setswitchinterval(min(interval, TURN))
        gc.disable()
        yield
    finally:
        sys.setswitchinterval(interval)
        if collects:
            gc.enable()


def address_of(name: str, text: str, signature: str, *, compiling: bool = True) -> int:
    """The address of the function `name` of a module; 0 if it would have to be compiled and must not."""
    return addresses(_unit(name, text, signature), compiling=compiling)[0]


def addresses(unit: CompilationUnit, *, compiling: bool = True) -> tuple[int, ...]:
    """The addresses of the functions of a unit."""
    found = _linked.get(unit.stem)
    if found is not None:
        return found
    entry = _at_hand.pop(unit.stem, None) or _read(unit.stem)
    if entry is None:
        if not compiling:
            return (0,)
        with progress.compiling(), _waiting():
            entry = apart(functools.partial(_compiled, unit))
    with _lock:
        if unit.stem not in _linked:
            first, *others = entry.symbol.split()
            address = load(first, entry.code)
            of_others = [int(loader().get_function_address(other)) for other in others]
            _linked[unit.stem] = address, *of_others
        return _linked[unit.stem]


def _compiled(unit: CompilationUnit) -> disk.CacheEntry:
    """The machine code of a unit that was not there a moment ago.

    Raises:
        RuntimeError: if it needs something that is nowhere: loading it would end the process.
    """
    with compiler_lock:  # what the cache has is loaded meanwhile
        entry = _at_hand.pop(unit.stem, None) or _read(unit.stem)
        if entry is not None:
            return entry
        entry = unit.translate()()
    absent = _absent(entry)
    if absent:
        raise RuntimeError(
            f"the compiled kernel {unit.stem} needs {', '.join(absent)}, which nothing in this process "
            "provides"
        )
    return entry


def _unit_of(source: Source) -> tuple[CompilationUnit, int]:
    """The unit that a kernel belongs to, and the kernel's place in it."""
    if source.unit is None:
        source.unit = _unit(source.name, source.text, SIGNATURE), 0
    return source.unit


def _unit(name: str, text: str, signature: str) -> CompilationUnit:
    stem = f"{name}_{digest(name, signature, text, kernel_files.digest_inside(text))}"
    return CompilationUnit(stem, lambda: _translate(stem, name, text, signature))


def digest(*parts: str) -> str:
    """A hash of what a unit is made of, and of what compiles it, and for which processor."""
    return hashlib.sha256("\n".join((_fingerprint(), *parts)).encode()).hexdigest()[:20]


def object_path(stem: str) -> Path:
    """Where the cache has the object code of a unit."""
    return disk.folder() / f"{stem}.o"


def _translate(stem: str, name: str, text: str, signature: str) -> Callable[[], disk.CacheEntry]:
    """Translate a module's function for LLVM. What is returned compiles it, and writes it to disk."""
    path = disk.folder() / f"{stem}.py"
    disk.write_atomically(path, text.encode())
    spec = importlib.util.spec_from_file_location(stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[stem] = module  # debuggers and tracebacks find the text by it
    exec(compile(text, str(path), "exec"), module.__dict__)
    function = getattr(module, name)
    function.__qualname__ = stem  # the symbol must be unique among all object files
    translated = translate(function, signature)

    def finish() -> disk.CacheEntry:
        symbol, code, external, _ = translated.finish()
        return disk.write(object_path(stem), disk.CacheEntry(symbol, code, tuple(external)))

    return finish


def provide(symbol: str, address: int) -> None:
    """Have machine code find what is at an address by its name."""
    with _lock:
        llvm.add_symbol(symbol, address)


def _read(stem: str) -> disk.CacheEntry | None:
    """An entry of the cache, None where it is not of use here."""
    entry = pack.read(CHOSEN.level, stem) or disk.read(object_path(stem))
    return None if entry is None or _absent(entry) else entry


def _absent(entry: disk.CacheEntry) -> list[str]:
    """The symbols that some code needs and nothing in this process has.

    One that cannot be resolved would end the process inside LLVM.
    """
    with _lock:  # LLVM's own lock is held by nobody else then, of which a fork makes use
        return [*filterfalse(llvm.address_of_symbol, entry.external)]


def _is_there(stem: str) -> bool:
    """Whether the cache has an entry that is of use; it is linked soon, and not read again then."""
    if stem in _at_hand:
        return True
    entry = _read(stem)
    if entry is not None and len(_at_hand) < MOST_AT_HAND:
        _at_hand[stem] = entry
    return entry is not None


MOST_AT_HAND = 64
# What was read or compiled and is not linked yet, by the stems.
_at_hand: dict[str, disk.CacheEntry] = {}


@functools.cache
def _fingerprint() -> str:
    """What all compiled code depends on besides its own text and what that imports."""
    parts = [
        *CHOSEN,
        sys.implementation.cache_tag or "",
        importlib.metadata.version("numba"),
        importlib.metadata.version("llvmlite"),
        os.environ.get("NUMBA_OPT", ""),
        kernel_files.digest_of([kernel_files.name_of(target.__name__)]),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


# ----- kernels written by hand -----


def instantiate(
    function: Callable[..., Any], bind: Mapping[str, dtype], width: int | None = 0
) -> Source:
    """The source of a kernel of the kernels room with its type letters bound to dtypes; `width` is its `W`."""
    key = (function, tuple(sorted((k, d.stored) for k, d in bind.items())), width)
    source = _instances.get(key)
    if source is None:
        stored = {k: d.stored for k, d in bind.items()}
        source = _instances[key] = _instantiate(function, stored, width)
        source.origin = function, stored
    return source


_instances: dict[Any, Source] = {}


def _instantiate(
    function: Callable[..., Any], bind: dict[str, str], width: int | None = 0
) -> Source:
    written = written_text(function)
    tree = parse(written)
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    for argument in definition.args.args:
        argument.annotation = None
    definition.returns = None
    vector = VectorMath(bind.get("T", "float64"))
    if any(f"{module}." in written for module in SCALAR_MODULES):  # a walk that few kernels need
        tree = vector.visit(tree)
    module = sys.modules[function.__module__]
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    own = sorted(
        n
        for n in names
        if n in vars(module) and n not in bind and not inspect.ismodule(vars(module)[n])
    )
    lines = [f'"""{function.__name__} of {module.__name__}."""', ""]
    if "math" in names:
        lines.append("import math")
    if "np" in names:
        lines.append("import numpy as np")
    for kind in sorted(set(bind.values())):
        lines.append(f"from numpy import {kind}")
    if own:
        lines.append(f"from {module.__name__} import {', '.join(own)}")
    if vector.found:
        lines.append(f"from {VECTOR_MATH} import {', '.join(sorted(vector.found))}")
    lines.append("")
    lines += [f"{letter} = {kind}" for letter, kind in sorted(bind.items())]
    if width != 0:
        lines.append(f"W = {width}")
    short = "_".join(dict.fromkeys(bind[k] for k in sorted(bind)))
    text = "\n".join(lines) + "\n\n\n" + ast.unparse(tree) + "\n"
    source = Source(function.__name__, text)
    source.label = f"{function.__name__}_{short}" if short else function.__name__
    return source


class VectorMath(ast.NodeTransformer):
    """`math.f` becomes the library's own function for the kernel's T."""

    def __init__(self, stored: str) -> None:
        from ...kernels.math import vector as vector_math

        self.stored = stored
        self.table: Mapping[tuple[str, str], str] = vector_math.TABLE
        self.found: set[str] = set()

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id in SCALAR_MODULES:
            name = self.table.get((node.attr, self.stored))
            if name is not None:
                self.found.add(name)
                return ast.Name(name, ast.Load())
        return node
