"""A CUDA driver without a GPU, built from `stub_driver.c`, and what its kernels do.

Memory of a device is memory of the host, and a stream's work is done when somebody waits for it. A
launch runs the CPU kernel of the same step: one row of words serves both. So whole programs give
their right results through the host's side of CUDA, every op included, whether its kernel for GPUs is
written yet or not; those kernels have tests of their own.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import hashlib
import shutil
import subprocess
import sysconfig
import tempfile
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adjit import devices, driver
from adjit.cuda import simulator
from adjit.schedule import plan_cache
from adjit.schedule.gpu import lower
from adjit.schedule.jit import nvidia
from adjit.schedule.jit.cache import link
from adjit.schedule.jit.disk import CacheEntry
from adjit.schedule.planning.recipe import DeviceSource, DeviceStep, Flat, Recipe, Source
from adjit.schedule.settle import settle

SOURCE = Path(__file__).with_suffix(".c")
RUNNER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, *[ctypes.c_uint] * 3, ctypes.POINTER(ctypes.c_int64)
)
CPU_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


@functools.cache
def built() -> Path:
    """The library, compiled once; skips the test where no C compiler is."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("the stub driver needs a C compiler")
    folder = Path(tempfile.mkdtemp(prefix="adjit-stub-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library, products = folder / "libcuda.so.1", folder / "libcublasLt.so.13"
    found = Path(sysconfig.get_path("purelib")).glob("nvidia/*/include")
    command = [compiler, "-O1", "-fPIC", "-shared", *[f"-I{headers}" for headers in found]]
    cublaslt = SOURCE.with_name("stub_cublaslt.c")
    for files in ([SOURCE, "-o", library], [cublaslt, library, "-o", products]):
        subprocess.run([*command, *map(str, files)], check=True, capture_output=True)
    return library


class Layout(ctypes.Structure):
    """How an operand of a product lay, for cuBLASLt: by columns."""

    _fields_ = (
        *[(name, ctypes.c_longlong) for name in ("rows", "columns", "ld", "stride")],
        ("type", ctypes.c_int),
        ("batches", ctypes.c_int),
    )


class Product(ctypes.Structure):
    """A product that cuBLASLt was asked for."""

    _fields_ = (
        *[(name, ctypes.c_int) for name in ("compute", "scale", "transpose_a", "transpose_b", "epilogue")],
        ("bias", ctypes.c_void_p),
        *[(name, Layout) for name in "abcd"],
        *[(f"{name}_at", ctypes.c_void_p) for name in ("a", "b", "c", "d", "workspace")],
        ("alpha", ctypes.c_double),
        ("beta", ctypes.c_double),
        ("workspace", ctypes.c_longlong),
        ("alignment", ctypes.c_int),
    )  # fmt: skip


class CublasLt:
    """The stub of cuBLASLt in this process; its numbers are attributes."""

    def __init__(self) -> None:
        self.path = str(built().with_name("libcublasLt.so.13"))
        self.library = ctypes.CDLL(self.path)

    def __getattr__(self, name: str) -> int:
        return ctypes.c_long.in_dll(self.library, f"cublas_{name}").value

    def set(self, name: str, value: int) -> None:
        """Set one of the library's numbers."""
        ctypes.c_long.in_dll(self.library, f"cublas_{name}").value = value

    @property
    def last(self) -> Product:
        """The last product."""
        return Product.in_dll(self.library, "cublas_last")


class Stub:
    """The library in this process; its counters are attributes."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(built()))
        self.steps: dict[str, tuple[Source, int]] = {}  # the CPU kernel behind a symbol
        self.kernels: dict[str, DeviceSource] = {}  # that the simulator runs
        self.sources: dict[tuple[str, str], Source] = {}  # by name and text
        self.errors: list[Exception] = []  # of what ran in the place of kernels
        self.seen: list[str] = []  # labels of the kernels that ran
        self.fails = False  # whether a kernel reads where nothing is
        self._runner = RUNNER(self._run)
        self.library.stub_set_runner(self._runner)
        self.driver = driver.Driver(self.library)

    def __getattr__(self, name: str) -> int:
        return ctypes.c_long.in_dll(self.library, f"stub_{name}").value

    def set(self, name: str, value: int) -> None:
        """Set one of the library's numbers."""
        ctypes.c_long.in_dll(self.library, f"stub_{name}").value = value

    def _run(self, symbol: bytes, grid: int, threads: int, shared: int, parameters: Any) -> int:
        if symbol.decode() in self.kernels:
            source = self.kernels[symbol.decode()]._replace(threads=threads, shared=shared)
            return self._simulate(source, grid, parameters)
        source, count = self.steps[symbol.decode()]  # count: 0 if the row lies in memory
        self.seen.append(source.label)
        if self.fails:
            return 1
        try:
            row = array("q", [count - 1, *parameters[: max(count - 1, 0)]])
            n = parameters[count - 1 if count else 1]
            if not n:  # for which the CPU's runner calls no kernel
                return 0
            CPU_KERNEL(link(source))(row.buffer_info()[0] + 8 if count else parameters[0], 0, n)
        except Exception as error:
            self.errors.append(error)
            return 1
        return 0

    def _simulate(self, source: DeviceSource, grid: int, parameters: Any) -> int:
        """Run the text of a kernel for GPUs."""
        self.seen.append(source.label)
        try:
            kinds = source.signature
            words = [self._argument(parameters[k], kind) for k, kind in enumerate(kinds)]
            if source.by_table:
                words[0] = self._row(parameters[0])
            simulator.run(source, words, blocks=grid)
        except Exception as error:
            self.errors.append(error)
            return 1
        return 0

    def _row(self, address: int) -> simulator.SimulatedRow:
        """A row of words in memory; their number lies before them."""
        count = ctypes.c_int64.from_address(address - 8).value
        words = (ctypes.c_int64 * count).from_address(address)
        return simulator.SimulatedRow([self._argument(word, "int64") for word in words])

    def _argument(self, word: int, kind: str) -> Any:
        """A parameter as the simulator takes it: memory up to the end of what the driver gave."""
        if kind.startswith("float"):
            return np.array([word], np.int64).view(kind)[0]
        room = self.library.stub_room(ctypes.c_void_p(word)) // 8 * 8
        if not room:
            return word
        memory = (ctypes.c_uint8 * room).from_address(word)
        return simulator.Pointer(np.frombuffer(memory, kind[1:] if kind[0] == "*" else "uint8"))

    def simulated_cubin(self, source: DeviceSource, cc: tuple[int, int]) -> CacheEntry:
        """No machine code, but a symbol that tells the kernel's own text."""
        if (source.name, source.text) in self.sources:  # recorded when the CPU's kernels ran
            return self.cubin(source, cc)
        digest = hashlib.sha256(source.text.encode()).hexdigest()[:16]
        symbol = f"simulated_{source.name}_{digest}"
        self.kernels[symbol] = source
        self.library.stub_describe(symbol.encode(), len(source.signature))
        return CacheEntry(symbol, b"cubin")

    def device_steps(self, recipe: Recipe) -> list[DeviceStep]:
        """The steps of the CPU, as those of a GPU would look."""
        if recipe.name == "without_cuda":
            raise NotImplementedError(f"{recipe.name} has no CUDA side yet")
        count = recipe.count - bool(recipe.write)  # its target is input and result
        varies = recipe.scalars > 0 or recipe.fallible is not None
        return [self.device_step(s.source, s.n, (), 0, count, varies) for s in recipe.steps]

    def device_step(
        self, source: Source, n: int, constants: Any, most: int, count: int, varies: bool = False
    ) -> DeviceStep:
        """One step over a row of so many words."""
        text = f"{source.label}\n{source.text}"  # what is no Python has no text of its own
        self.sources[source.name, text] = source
        by_table = not isinstance(source.origin, Flat) and (varies or count > 100)
        kinds = ("int64",) * (2 if by_table else count + 1)
        made = DeviceSource(source.name, text, kinds, 128, 128, source.label, by_table=by_table)
        return DeviceStep(made, n)

    def cubin(self, source: DeviceSource, cc: tuple[int, int]) -> CacheEntry:
        """No machine code, but a symbol that tells the CPU kernel."""
        digest = hashlib.sha256(source.text.encode()).hexdigest()[:16]
        symbol = f"{source.name}_{digest}_{len(source.signature)}"
        count = 0 if source.by_table else len(source.signature)
        self.steps[symbol] = self.sources[source.name, source.text], count
        self.library.stub_describe(symbol.encode(), len(source.signature))
        return CacheEntry(symbol, b"cubin")


@functools.cache
def _stub() -> Stub:
    return Stub()


@contextlib.contextmanager
def installed(*, simulated: bool = False) -> Iterator[Stub]:
    """The stub in the place of NVIDIA's driver.

    With `simulated`, launches run the texts of the kernels for GPUs, slowly, and not the CPU's.
    """
    stub = _stub()
    settle()
    patch = pytest.MonkeyPatch()
    patch.setattr(driver, "_found", lambda: stub.driver)
    patch.setattr(nvidia, "cublaslt", lambda: None)
    if simulated:
        patch.setattr(nvidia, "cubin", stub.simulated_cubin)
    else:
        patch.setattr(lower, "device_steps", stub.device_steps)
        patch.setattr(lower, "device_step", stub.device_step)
        patch.setattr(nvidia, "cubin", stub.cubin)
    stub.seen.clear()
    try:
        yield stub
        settle()
        plan_cache.wait()  # or what that has planned would be compiled for a GPU that is no longer there
        assert not stub.errors, stub.errors[0]
    finally:
        stub.errors.clear()
        stub.fails = False
        stub.library.stub_mend()
        devices.gpus_used.clear()
        devices.current.index = 0
        patch.undo()
