"""Device kernels to machine code: the one module that imports numba-cuda and NVIDIA's compilers.

Nothing here needs a GPU or its driver. A kernel is Python text; Numba types it, libNVVM makes
LTO-IR of it and nvJitLink a cubin, which is kept on disk beside the kernels of the CPU. Numba's
dispatcher is not used: it asks the driver for a device, and a launch through it takes 24 us.

Multiplications and additions are not contracted (`-fma=0`), so that an elementwise kernel gives the
bits of its CPU side, whose functions are traced from the same bodies.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import importlib.metadata
import importlib.util
import re
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from ...kernels.language import device
from ...kernels.language.device import Word
from ..planning.recipe import DeviceSource
from . import cache, disk, kernel_files
from .apart import apart

# What gives a kernel's words and functions their meaning.
ALWAYS_INSIDE = {"language.device", "on_gpu.math", "math.vector"}

COMPILERS = (
    "numba", "numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink",
    "nvidia-cuda-nvcc-cu12", "nvidia-nvjitlink-cu12",
)  # fmt: skip

OPTIONS = ("-lto", "-O3", "-fma=0", "-verbose")  # of nvJitLink
SPILLED = re.compile(rb"(\d+) bytes spill")


class ToolkitMissing(RuntimeError):
    """Something that compiles for a GPU is not installed; the message says how to get it."""


def _missing(what: str) -> ToolkitMissing:
    return ToolkitMissing(
        f"compiling for a GPU needs {what}; install it with pip install 'adjit[cuda13]', or "
        "'adjit[cuda12]' for a driver of CUDA 12"
    )


def is_installed() -> bool:
    """Whether kernels can be compiled for a GPU here, be there one or not."""
    try:
        check()
    except ToolkitMissing:
        return False
    return True


@functools.cache
def check() -> None:
    """See to it that everything is there that compiles for a GPU.

    Raises:
        ToolkitMissing: if not.
    """
    if importlib.util.find_spec("numba_cuda") is None:
        raise _missing("the package numba-cuda")
    try:
        from cuda.bindings import nvjitlink
        from numba.cuda.cudadrv import nvvm
    except ImportError as error:
        raise _missing(f"numba-cuda and NVIDIA's bindings ({error})") from None
    try:
        nvvm.NVVM()
        nvvm.LibDevice()
    except Exception as error:
        raise _missing(f"libNVVM and libdevice ({str(error).splitlines()[0]})") from None
    try:
        nvjitlink.version()
    except Exception as error:
        raise _missing(f"nvJitLink ({str(error).splitlines()[0]})") from None


@functools.cache
def cublaslt() -> str | None:
    """The file of NVIDIA's library of matrix products, None where it is not installed."""
    try:
        from cuda import pathfinder
    except ImportError:
        return None
    try:
        return pathfinder.load_nvidia_dynamic_lib("cublasLt").abs_path
    except pathfinder.DynamicLibNotFoundError:
        return None


def cubin(source: DeviceSource, cc: tuple[int, int]) -> disk.CacheEntry:
    """The machine code of a kernel for a compute capability such as (9, 0).

    It comes from the folder of the kernel cache, or is compiled now and kept there.

    Raises:
        ToolkitMissing: if it has to be compiled, and something for that is not installed.
    """
    key = f"{_versions()}\n{_inside(source.text)}\n{source.name}\n{source.signature}\n{cc}\n{source.text}"
    digest = hashlib.sha256(key.encode()).hexdigest()[:20]
    path = disk.folder() / f"{source.name}_{digest}_sm_{cc[0]}{cc[1]}.cubin"
    entry = disk.read(path)
    if entry is None:
        entry = apart(functools.partial(_compile_and_keep, source, path, cc))
    return entry


def _compile_and_keep(source: DeviceSource, path: Path, cc: tuple[int, int]) -> disk.CacheEntry:
    """The machine code of a kernel that the cache does not have."""
    check()
    with cache.compiler_lock:
        entry = disk.read(path) or _compile(source, path.stem, cc)
    disk.write_atomically(path.with_suffix(".py"), source.text.encode())
    return disk.write(path, entry)


def _inside(text: str) -> str:
    """A digest of the files of the kernels room that a cubin has parts of inside."""
    return kernel_files.digest_of(ALWAYS_INSIDE | kernel_files.imported(text))


@functools.cache
def _versions() -> str:
    """What compiles, and how, which a cubin depends on."""
    found = [*OPTIONS]
    for package in COMPILERS:
        try:
            found.append(importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            found.append("none")
    return " ".join(found)


def _compile(source: DeviceSource, stem: str, cc: tuple[int, int]) -> disk.CacheEntry:
    """The cubin of a kernel."""
    from numba import cuda, types

    module = ModuleType(stem)
    sys.modules[stem] = module  # Numba looks a function's module up
    try:
        exec(builtins.compile(source.text, f"<{stem}>", "exec"), module.__dict__)
        kernel = _bound(getattr(module, source.name), {}, cc)
        signature = types.void(*[_numba_type(kind) for kind in source.signature])
        code, _ = cuda.compile(kernel, signature, cc=cc, device=False, abi="numba", output="ltoir")
    finally:
        del sys.modules[stem]
    binary, spills = _link(bytes(code), cc)
    symbol = re.search(rb"_ZN\w*" + source.name.encode() + rb"\w*", binary)
    if symbol is None:
        raise RuntimeError(f"the compiled kernel {source.name} has no symbol")
    return disk.CacheEntry(symbol.group(0).decode(), binary, spills=spills)


def _numba_type(kind: str) -> Any:
    """The Numba type of a parameter."""
    from numba import types

    if kind.startswith("*"):
        return types.CPointer(getattr(types, kind[1:]))
    return getattr(types, kind)


def _link(code: bytes, cc: tuple[int, int]) -> tuple[bytes, int]:
    """LTO-IR to a cubin, and the bytes of registers that it spills.

    `cuda.core.Linker` spells `fma=False` in a way that nvJitLink refuses.
    """
    from cuda.bindings import nvjitlink

    options = [f"-arch=sm_{cc[0]}{cc[1]}", *OPTIONS]
    linker = nvjitlink.create(len(options), options)
    try:
        try:
            nvjitlink.add_data(linker, nvjitlink.InputType.LTOIR, code, len(code), "kernel")
            nvjitlink.complete(linker)
        except nvjitlink.nvJitLinkError as error:
            log = bytearray(nvjitlink.get_error_log_size(linker))
            nvjitlink.get_error_log(linker, log)
            raise RuntimeError(f"nvJitLink: {log.decode().strip(chr(0))}") from error
        binary = bytearray(nvjitlink.get_linked_cubin_size(linker))
        nvjitlink.get_linked_cubin(linker, binary)
        log = bytearray(nvjitlink.get_info_log_size(linker))
        nvjitlink.get_info_log(linker, log)
        return bytes(binary), sum(int(n) for n in SPILLED.findall(log))
    finally:
        nvjitlink.destroy(linker)


# ----- what names mean on a GPU -----


def _bound(function: FunctionType, done: dict[Any, Any], cc: tuple[int, int]) -> FunctionType:
    """The function over globals that have a meaning on a GPU."""
    scope = function.__globals__
    names: dict[str, Any] = {"__builtins__": builtins}
    made = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    done[function] = made
    for name in function.__code__.co_names:
        if name in scope:
            names[name] = _meaning(scope[name], done, cc)
    return made


def _meaning(value: Any, done: dict[Any, Any], cc: tuple[int, int]) -> Any:
    """What a global of a kernel is on a GPU."""
    if isinstance(value, Word):
        return _intrinsic(value.definition)
    if hasattr(value, "traced"):
        return _intrinsic(_traced(value))
    if hasattr(value, "_defn"):  # an intrinsic of the CPU: pointers, bits of floats
        return _intrinsic(value._defn)
    function = device.function_on_gpu(value)
    if not isinstance(function, FunctionType):
        return value
    if function not in done:
        done[function] = _device_function()(_bound(function, done, cc), cc)
    return done[function]


@functools.cache
def _device_function() -> Any:
    """The class of functions that kernels call: Numba types them once for each kind of arguments, and
    LLVM inlines them. (Numba's own inlining types a function again wherever it is called, which took
    three quarters of the time a kernel needs to compile.)"""
    from numba.cuda.compiler import compile_cuda
    from numba.cuda.dispatcher import CUDADispatcher

    class DeviceFunction(CUDADispatcher):  # type: ignore[misc]
        """A function for a known compute capability, where Numba would ask the driver for a device."""

        def __init__(self, function: FunctionType, cc: tuple[int, int]) -> None:
            super().__init__(function, targetoptions={"device": True})
            self.cc = cc

        def compile_device(self, args: Any, return_type: Any = None) -> Any:
            """What Numba asks for when it meets a call with arguments of these types."""
            made = self.overloads.get(args)
            if made is None:
                made = self.overloads[args] = compile_cuda(
                    self.py_func, return_type, args, forceinline=True, cc=self.cc
                )
                made.target_context.insert_user_function(
                    made.entry_point, made.fndesc, [made.library]
                )
            return made

    return DeviceFunction


@functools.cache
def _traced(function: Any) -> Any:
    """The definition of a scalar function that is traced from a body."""
    from ...kernels.on_gpu.math import lowering

    return lowering(*function.traced)


@functools.cache
def _intrinsic(definition: Any) -> Any:
    """A function that types and lowers a call, as Numba's CUDA target knows it."""
    from numba.cuda.extending import intrinsic

    return intrinsic(definition)
