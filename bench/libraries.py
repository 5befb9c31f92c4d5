"""The libraries that the rows are timed in: how each is loaded, fed, finished and read."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import shutil
from collections.abc import Callable
from functools import partial, reduce
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

CALLS_TO_WARM_UP = 3  # a JIT may run other code once it has seen the same call before


class Library:
    """One library on one device, loaded when an object of its class is made.

    `module` is what a row's program gets; `program` says which of the row's programs that is. Rows say
    nothing of devices: the module makes its tensors where it is to compute.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    program: ClassVar[str]
    parts: ClassVar[tuple[str, ...]] = ()
    keeps_kernels: ClassVar[bool] = False  # on disk, from one process to the next
    captures: ClassVar[bool] = False  # whole steps; rows without a step to capture are left out
    patience: ClassVar[float] = 0  # seconds that a row's first calls may take; 0: any time

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self.module: Any = importlib.import_module(self.package)
        for part in self.parts:
            importlib.import_module(f"{self.package}.{part}")

    @classmethod
    def installed(cls) -> bool:
        return importlib.util.find_spec(cls.package) is not None

    @classmethod
    def reaches(cls, device: str) -> bool:
        """Whether the library, which is installed, can compute there."""
        return device == "cpu"

    @classmethod
    def version(cls) -> str:
        return importlib.metadata.version(cls.package)

    @classmethod
    def obstacle(cls) -> str:
        """What keeps an installed library from running here; empty if nothing does."""
        return ""

    def capture(self, step: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """`step` as a user of the library would prepare it for being run many times."""
        return step

    def catch_up(self) -> None:
        """Wait until nothing is being compiled in the background."""

    def warm_up(self, call: Callable[[], Any]) -> Any:
        """Call until the code is the one that later calls will run; the last result."""
        for _ in range(CALLS_TO_WARM_UP):
            result = None  # or it would take memory beside the next one
            result = call()
            self.catch_up()
        return result

    def forget(self) -> None:
        """Drop what was compiled for the rows so far: they share code, and limits count it."""

    def give_back(self) -> None:
        """Give the system the memory of values that are gone, where the library keeps it."""

    def set_threads(self, threads: int) -> None:
        """Nothing here: the environment and the affinity of the process say it (see timing.py)."""

    def finish(self, result: Any) -> Any:
        """Wait until every value of `result` has been computed."""
        return result

    def to_numpy(self, value: Any) -> np.ndarray:
        """A copy, so that what a later call writes cannot change it."""
        return np.array(value)


MAKERS = ("tensor", "zeros", "nn.Linear")  # what the rows make tensors with


def on_device(module: ModuleType, device: str) -> ModuleType:
    """A module with PyTorch's names that makes its tensors on a device.

    PyTorch's own default device would do, but it makes every call slower.
    """
    made = copied(module)
    made.nn = copied(module.nn)
    for name in MAKERS:
        *rooms, last = name.split(".")
        room = reduce(getattr, rooms, made)
        setattr(room, last, partial(getattr(room, last), device=device))
    return made


def copied(module: ModuleType) -> ModuleType:
    made = ModuleType(module.__name__)
    vars(made).update(vars(module))
    return made


class TorchLike(Library):
    """A library with PyTorch's names."""

    program = "torch"

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        if device != "cpu":
            self.module = on_device(self.module, device)

    @classmethod
    def reaches(cls, device: str) -> bool:
        return device == "cpu" or importlib.import_module(cls.package).cuda.is_available()

    def set_threads(self, threads: int) -> None:
        self.module.set_num_threads(threads)

    def synchronize(self) -> None:
        """Wait for a GPU."""
        if self.device != "cpu":
            self.module.cuda.synchronize()

    def finish(self, result: Any) -> Any:
        self.synchronize()
        return result

    def to_numpy(self, value: Any) -> np.ndarray:
        return value.detach().clone().cpu().numpy()


class Adjit(TorchLike):
    name = package = "adjit"
    keeps_kernels = True

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self._settle = importlib.import_module("adjit.schedule.settle").settle
        self._wait = importlib.import_module("adjit.schedule.plan_cache").wait
        self._empty_cache = importlib.import_module("adjit.storage").empty_cache

    def give_back(self) -> None:
        self._empty_cache()

    def finish(self, result: Any) -> Any:
        self._settle()
        self.synchronize()
        return result

    def catch_up(self) -> None:
        self._wait()


class Torch(TorchLike):
    name, package = "PyTorch", "torch"


class CapturedAdjit(Adjit):
    """adjit with whole steps captured; a row whose step is not ends with the reason."""

    name, captures = "adjit.compile", True

    @classmethod
    def installed(cls) -> bool:
        return hasattr(importlib.import_module("adjit"), "compile")

    def capture(self, step: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return self.module.compile(step, fullgraph=True, **options)


class CapturedTorch(Torch):
    """PyTorch with steps compiled by Inductor."""

    name, captures, patience = "torch.compile", True, 90

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        # Off by default: `autograd.grad` inside a step is compiled too instead of ending the graph.
        self.module._dynamo.config.trace_autograd_ops = True

    @classmethod
    def obstacle(cls) -> str:
        compilers = (os.environ.get("CXX", ""), "g++", "clang++")
        return "" if any(map(shutil.which, filter(None, compilers))) else "no C++ compiler"

    def capture(self, step: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return self.module.compile(step, **options)

    def forget(self) -> None:
        self.module.compiler.reset()


class NumPy(Library):
    name, package, program = "NumPy", "numpy", "numpy"


class Jax(Library):
    name, package, program = "JAX", "jax", "jax"
    parts = ("numpy", "nn", "scipy.special")

    def __init__(self, device: str = "cpu") -> None:
        os.environ.setdefault("JAX_PLATFORMS", device)
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others need memory too
        super().__init__(device)
        self.module.config.update("jax_enable_x64", True)

    @classmethod
    def reaches(cls, device: str) -> bool:
        plugins = ("jax_cuda13_plugin", "jax_cuda12_plugin")
        return device == "cpu" or any(map(importlib.util.find_spec, plugins))

    def capture(self, step: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return self.module.jit(step, **options)

    def finish(self, result: Any) -> Any:
        return self.module.block_until_ready(result)


class Autograd(Library):
    name = package = program = "autograd"
    parts = ("numpy", "scipy.special")


LIBRARIES: dict[str, type[Library]] = {
    library.name: library
    for library in (Adjit, CapturedAdjit, NumPy, Torch, CapturedTorch, Jax, Autograd)
}


def installed(device: str = "cpu") -> dict[str, type[Library]]:
    """The libraries that are there and can compute on a device, adjit first."""
    return {
        name: library
        for name, library in LIBRARIES.items()
        if library.installed() and library.reaches(device)
    }


def versions(device: str = "cpu") -> dict[str, str]:
    """Those of the libraries that are installed, by their names."""
    present = installed(device).items()
    return {name: library.version() for name, library in present if not library.captures}
