"""NVIDIA's driver, called through ctypes: no CUDA package is needed to find GPUs, copy and launch.

The library is looked for once, when somebody asks. `load()` gives it or raises an error that says
what is missing; `reason()` says the same without raising.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from typing import Any

from .errors import OutOfMemoryError

OLDEST = 12000  # the driver's version that the toolkits of the extras ask for at the least

SUCCESS, OUT_OF_MEMORY, NOT_READY = 0, 2, 600

# Attributes of a device, by cuda.h's numbers.
MULTIPROCESSORS, MAJOR, MINOR = 16, 75, 76
WARP_SIZE, CLOCK_RATE, L2_BYTES, THREADS_PER_MULTIPROCESSOR, INTEGRATED = 10, 13, 38, 39, 18
SHARED_PER_BLOCK, SHARED_OPTIN, SHARED_PER_MULTIPROCESSOR, REGISTERS = 8, 97, 81, 82

DEVICE_ORDINAL = 9  # attribute of an address: the number of its device
MOST_SHARED = 8  # attribute of a function: the bytes of shared memory that a launch may ask for
PORTABLE = 1  # of page-locked memory: for all contexts
NON_BLOCKING = 1  # of a stream: it does not wait for the default one
NO_TIMING = 2  # of an event
RELAXED = 2  # of a capture: other threads may do what they want

_out = POINTER(c_void_p)
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
    "cuDevicePrimaryCtxRetain": (_out, c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuPointerGetAttribute": (c_void_p, c_int, c_void_p),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemAlloc_v2": (_out, c_size_t),
    "cuMemFree_v2": (c_void_p,),
    "cuMemHostAlloc": (_out, c_size_t, c_uint),
    "cuMemcpyHtoDAsync_v2": (c_void_p, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoDAsync_v2": (c_void_p, c_void_p, c_size_t, c_void_p),
    "cuMemcpyPeerAsync": (c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p),
    "cuStreamCreate": (_out, c_uint),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamQuery": (c_void_p,),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuStreamBeginCapture_v2": (c_void_p, c_int),
    "cuStreamEndCapture": (c_void_p, _out),
    "cuGraphInstantiateWithFlags": (_out, c_void_p, ctypes.c_ulonglong),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuGraphDestroy": (c_void_p,),
    "cuGraphExecDestroy": (c_void_p,),
    "cuEventCreate": (_out, c_uint),
    "cuEventDestroy_v2": (c_void_p,),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventQuery": (c_void_p,),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuModuleLoadData": (_out, c_void_p),
    "cuModuleGetFunction": (_out, c_void_p, c_char_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuLaunchKernel": (
        c_void_p, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_void_p, c_void_p, c_void_p,
    ),
}  # fmt: skip


class Unavailable(RuntimeError):
    """There is no GPU to work on; the text says what is missing."""


class Driver:
    """The driver's functions. Each raises what the driver reports; the contexts are the primary ones.

    Handles and addresses are ints.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._functions: dict[str, Any] = {}
        for name, arguments in _PROTOTYPES.items():
            function = getattr(library, name, None) or getattr(library, f"{name}_v2", None)
            if function is None:
                raise Unavailable(
                    f"the NVIDIA driver is too old: it has no {name}; CUDA {_spoken(OLDEST)} or newer "
                    "is needed"
                )
            function.argtypes, function.restype = arguments, c_int
            self._functions[name] = function
        self._contexts: dict[int, int] = {}
        self._current = threading.local()
        self.call("cuInit", 0)
        self.version = self._int("cuDriverGetVersion")
        if self.version < OLDEST:
            raise Unavailable(
                f"the NVIDIA driver is too old: it knows CUDA {_spoken(self.version)}, and CUDA "
                f"{_spoken(OLDEST)} or newer is needed"
            )
        self.count = self._int("cuDeviceGetCount")

    def address(self, name: str) -> int:
        """Where a function lies, for machine code that calls it."""
        return int(ctypes.cast(self._functions[name], c_void_p).value or 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            RuntimeError: with the driver's own text, if it reports an error.
        """
        code = self._functions[name](*arguments)
        if code != SUCCESS:
            raise self.error(code, name)

    def discard(self, name: str, handle: int) -> None:
        """Call a function that ends something; for finalizers, which may come after the driver's end."""
        self._functions[name](handle)

    def error(self, code: int, name: str) -> RuntimeError:
        """What a status code of a function means."""
        text, symbol = c_char_p(), c_char_p()
        self._functions["cuGetErrorString"](code, byref(text))
        self._functions["cuGetErrorName"](code, byref(symbol))
        told = (text.value or b"unknown error").decode()
        kind = OutOfMemoryError if code == OUT_OF_MEMORY else RuntimeError
        return kind(f"CUDA error: {told} ({(symbol.value or b'').decode()}, from {name})")

    def _int(self, name: str, *arguments: Any) -> int:
        found = c_int()
        self.call(name, byref(found), *arguments)
        return found.value

    def _handle(self, name: str, *arguments: Any) -> int:
        found = c_void_p()
        self.call(name, byref(found), *arguments)
        return found.value or 0

    # ----- devices -----

    def attribute(self, which: int, index: int) -> int:
        """An attribute of a device."""
        return self._int("cuDeviceGetAttribute", which, index)

    def name(self, index: int) -> str:
        """The name of a device."""
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, len(text), index)
        return text.value.decode()

    def total_memory(self, index: int) -> int:
        """The bytes of memory that a device has."""
        found = c_size_t()
        self.call("cuDeviceTotalMem_v2", byref(found), index)
        return found.value

    def memory(self, index: int) -> tuple[int, int]:
        """Free and all bytes of a device's memory."""
        self.use(index)
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def context(self, index: int) -> int:
        """The primary context of a device, held until the process ends."""
        found = self._contexts.get(index)
        if found is None:
            found = self._contexts[index] = self._handle("cuDevicePrimaryCtxRetain", index)
        return found

    def use(self, index: int) -> None:
        """Let what this thread asks for from now on mean a device."""
        if getattr(self._current, "index", -1) != index:
            self.call("cuCtxSetCurrent", self.context(index))
            self._current.index = index

    # ----- memory -----

    def allocate(self, nbytes: int) -> int:
        """The address of new memory on the device in use."""
        return self._handle("cuMemAlloc_v2", nbytes)

    def free(self, address: int) -> None:
        """Give memory back."""
        self.call("cuMemFree_v2", address)

    def device_of(self, address: int) -> int:
        """The number of the device that an address belongs to."""
        found = c_int(-1)
        self.call("cuPointerGetAttribute", byref(found), DEVICE_ORDINAL, address)
        return found.value

    def allocate_pinned(self, nbytes: int) -> int:
        """The address of new page-locked memory of the host."""
        return self._handle("cuMemHostAlloc", nbytes, PORTABLE)

    # ----- streams, events, graphs -----

    def new_stream(self) -> int:
        """A stream of its own on the device in use."""
        return self._handle("cuStreamCreate", NON_BLOCKING)

    def new_event(self, *, timing: bool) -> int:
        """An event on the device in use."""
        return self._handle("cuEventCreate", 0 if timing else NO_TIMING)

    def is_done(self, what: str, handle: int) -> bool:
        """Whether all work before a stream's ("cuStreamQuery") or an event's end is done."""
        code = self._functions[what](handle)
        if code not in (SUCCESS, NOT_READY):
            raise self.error(code, what)
        return bool(code == SUCCESS)

    def elapsed(self, start: int, end: int) -> float:
        """Milliseconds between two events."""
        found = c_float()
        self.call("cuEventElapsedTime", byref(found), start, end)
        return found.value

    def begin_capture(self, stream: int) -> None:
        """Let what is put onto a stream become a graph, and not run."""
        self.call("cuStreamBeginCapture_v2", stream, RELAXED)

    def end_capture(self, stream: int) -> int:
        """What was captured, ready to be launched with `cuGraphLaunch`."""
        graph = c_void_p()
        self.call("cuStreamEndCapture", stream, byref(graph))
        try:
            return self._handle("cuGraphInstantiateWithFlags", graph, 0)
        finally:
            self.call("cuGraphDestroy", graph)

    # ----- kernels -----

    def function(self, image: bytes, symbol: str) -> int:
        """A kernel of machine code, loaded on the device in use for good."""
        try:
            module = self._handle("cuModuleLoadData", image)
        except RuntimeError as error:
            raise RuntimeError(
                f"{error}: this driver knows CUDA {_spoken(self.version)}, and kernels of a newer "
                "toolkit do not load; install a newer driver, or adjit[cuda12]"
            ) from None
        return self._handle("cuModuleGetFunction", module, symbol.encode())


def _spoken(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


@functools.cache
def _found() -> Driver | Unavailable:
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError:
        return Unavailable(
            f"no NVIDIA driver was found ({name} cannot be loaded); install the driver of the GPU, "
            "or use device='cpu'"
        )
    try:
        driver = Driver(library)
    except Unavailable as error:
        return error
    except RuntimeError as error:
        return Unavailable(f"the NVIDIA driver cannot be used: {error}")
    if not driver.count:
        return Unavailable("the NVIDIA driver has found no GPU (see CUDA_VISIBLE_DEVICES)")
    return driver


def load() -> Driver:
    """The driver.

    Raises:
        Unavailable: if there is none, or no GPU; the text says what is missing.
    """
    found = _found()
    if isinstance(found, Unavailable):
        raise Unavailable(*found.args)
    return found


def reason() -> str:
    """What is missing for a GPU to be used; empty where nothing is."""
    found = _found()
    return str(found) if isinstance(found, Unavailable) else ""
