"""What generated code for a GPU calls on the host: arrays there, launches of device kernels, the tape.

Nothing here waits for the GPU but a look at a number: an element that is read between loops, a sum over the
rounds of a loop, how much tape rounds take.
"""

from __future__ import annotations

import builtins
import ctypes
import functools
import struct
import warnings
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import typeof_impl

from .. import config, devices, dtypes, gpu
from ..graph.node import dense_spec
from ..graph.primitives import empty
from ..graph.state import record_gradients
from ..schedule import settle
from ..schedule.gpu.run import Gpu, gpu_of, launcher_source
from ..schedule.jit.cache import link
from ..schedule.planning.recipe import DeviceSource
from ..schedule.settle import value_of
from . import runtime
from .gpu_text import DTYPES, Given

THREADS = 128  # of a block
MOST_THREADS = 1 << 18  # of a launch: the same on every GPU, so that sums have the same bits
ENOUGH_THREADS = 1 << 12
MOST_BYTES = 1 << 28  # of what threads have each: tapes, numbers that are added up in order


class GpuArray:
    """A tensor on a GPU as generated code sees it: an array, whose elements are copied one by one."""

    __slots__ = ("dtype", "shape", "tensor")

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.shape = tuple([np.int64(n) for n in tensor._spec.shape])
        self.dtype: np.dtype[Any] = tensor._spec.dtype.numpy

    @property
    def place(self) -> devices.device:
        found: devices.device = self.tensor._spec.device
        return found

    @property
    def address(self) -> int:
        t = self.tensor
        return int(value_of(t._storage).address) + t._offset * t._spec.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return int(self.tensor._spec.numel) * self.dtype.itemsize

    def new(self, shape: Sequence[int], dtype: str, fill: float | None = None) -> GpuArray:
        """A new array beside this one."""
        made = new_array([int(n) for n in shape], dtype, self.place)
        if fill is not None:
            made[:] = fill
        return made

    def copy(self) -> GpuArray:
        made = new_array([int(n) for n in self.shape], self.dtype.str[1:], self.place)
        made[:] = self
        return made

    def __getitem__(self, index: Any) -> Any:
        owner, address = self._element(index)
        found = array("b", bytes(self.dtype.itemsize))
        stream = gpu.current_stream(owner.index)
        owner.driver.call(
            "cuMemcpyDtoHAsync_v2", found.buffer_info()[0], address, len(found), stream
        )
        owner.driver.call("cuStreamSynchronize", stream)
        return np.frombuffer(found, self.dtype)[0]

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            if isinstance(value, GpuArray):
                self._copy_from(value)
            elif self.nbytes:
                bits = int(np.array(value, self.dtype).view(f"i{self.dtype.itemsize}"))
                FILLS[self.dtype.itemsize](0, self.nbytes // self.dtype.itemsize, self, bits)
            return
        owner, address = self._element(index)
        source = np.array([value]).astype(self.dtype)
        stream = gpu.current_stream(owner.index)
        owner.driver.call(
            "cuMemcpyHtoDAsync_v2", address, source.ctypes.data, source.nbytes, stream
        )
        owner.driver.call("cuStreamSynchronize", stream)

    def _element(self, index: Any) -> tuple[Gpu, int]:
        """Where an element lies."""
        at = 0
        places = index if isinstance(index, tuple) else (index,)
        for i, n in zip(places, self.shape, strict=True):
            if not -n <= i < n:
                raise IndexError(f"index {i} is out of bounds for an axis of size {n}")
            at = at * int(n) + int(i % n)
        owner = gpu_of(self.place)
        address = self.address + at * self.dtype.itemsize
        owner.driver.use(owner.index)
        return owner, address

    def _copy_from(self, other: GpuArray) -> None:
        owner = gpu_of(self.place)
        target, source = self.address, other.address
        owner.driver.use(owner.index)
        if self.nbytes:
            stream = gpu.current_stream(owner.index)
            owner.driver.call("cuMemcpyDtoDAsync_v2", target, source, self.nbytes, stream)


def new_array(shape: Sequence[int], dtype: str, place: devices.device) -> GpuArray:
    """An array of undefined elements."""
    return GpuArray(empty(dense_spec(tuple(shape), dtypes.of_numpy(np.dtype(dtype)), place)))


class LoopKernel:
    """The device kernel of a loop. Called with its first number, its number of rounds and what it is given,
    it returns sums over the rounds, and how many bytes of tape a round takes at most where it `counts`."""

    def __init__(
        self,
        name: str,
        given: Sequence[Sequence[Any]],
        *,
        sums: int = 0,
        counts: bool = False,
        tape: bool = False,
        errors: Sequence[tuple[str, str]] = (),
        **texts: str,
    ) -> None:
        self.name, self.given = name, [Given(*g) for g in given]
        self.sums, self.counts, self.tape, self.errors = sums, counts, tape, errors
        self.texts = texts  # `plain`; or `rows` and `atomic`, of rounds that add to one element

    def source(self, adds: str) -> DeviceSource:
        kinds = [kind for g in self.given for _, kind in g.parameters()] + ["int64", "int64"]
        kinds += ["int64"] * self.tape + ["*float64"] * bool(self.sums)
        kinds += ["*int64"] * bool(self.errors or self.counts) + ["int64"]
        return DeviceSource(self.name, self.texts[adds], tuple(kinds), THREADS, THREADS, self.name)

    def __call__(
        self, first: int, rounds: int, *args: Any, tape: int = 0
    ) -> tuple[Sequence[float], int]:
        if rounds <= 0:
            return (0.0,) * self.sums, 0
        place = next((a.place for a in args if isinstance(a, GpuArray)), None) or devices.device(
            "cuda", devices.current.index
        )
        shared = [a for a, g in zip(args, self.given, strict=True) if g.is_shared]
        adds = "plain" if not shared else "rows" if config.DETERMINISTIC else "atomic"
        own = max((tape + 7) & -8, sum(a.nbytes for a in shared) if adds == "rows" else 0, 1)
        room = max(1, MOST_BYTES // own)  # for so many threads
        threads = min(int(rounds), MOST_THREADS, room)
        if adds == "rows" and room < min(int(rounds), MOST_THREADS, ENOUGH_THREADS):
            warnings.warn(
                f"{self.name} runs only {threads} of {rounds} rounds at once: each has numbers of its own for "
                f"the {sum(a.nbytes for a in shared)} bytes that all add to, so that bits are the same in each "
                "run; after adjit.use_deterministic_algorithms(False) they add by atomics",
                RuntimeWarning,
                stacklevel=3,
            )
        rows: list[tuple[GpuArray, GpuArray]] = []
        words: list[int] = []
        for a, g in zip(args, self.given, strict=True):
            if g.ndim < 0:
                words.append(_word(a, g.kind))
            elif g.is_shared and adds == "rows":
                rows.append((a, a.new((*a.shape, threads), g.kind, 0)))
                words.append(rows[-1][1].address)
            else:
                words.append(a.address)
                words += [] if g.of or not g.ndim else [int(n) for n in a.shape]
        words += [int(first), int(rounds)]
        used: list[GpuArray] = []  # until the launch is on its stream
        if self.tape:
            used.append(new_array([threads * ((tape + 7) // 8)], "i8", place))
            words.append(used[-1].address)
        if self.sums:
            sums = new_array([threads, self.sums], "f8", place)
            words.append(sums.address)
        if self.errors or self.counts:
            status = new_array([2], "i8", place)
            status[:] = 0
            words.append(status.address)
        _launch(place, self.source(adds), threads, words)
        if self.errors and (code := int(status[0])):
            error, message = self.errors[code - 1]
            raise getattr(builtins, error)(message)
        for target, parts in rows:
            _add(target, parts)
        total = _total(sums) if self.sums else ()
        return total, int(status[1]) if self.counts else 0


def _word(value: Any, kind: str) -> int:
    if kind in ("f8", "f4"):
        (bits,) = struct.unpack("<q", struct.pack("<d", float(value)))
        return int(bits)
    return int(value)


def _launch(place: devices.device, source: DeviceSource, n: int, words: Sequence[int]) -> None:
    """Put a kernel over `n` threads onto the current stream."""
    owner = gpu_of(place)
    kernel = owner.load(source, n)
    with settle.lock:
        owner.use_current_stream()
        made = owner.row(kernel.function, kernel.shape, words)
        table = array("q", (link(launcher_source()), 1, 1, len(made), *made))
        owner.launch(table.buffer_info()[0], 1, ())


def _total(sums: GpuArray) -> Sequence[float]:
    """The sums over threads."""
    before = record_gradients(False)
    try:
        found: Sequence[float] = sums.tensor.sum(0).tolist()
    finally:
        record_gradients(before)
    return [np.float64(v) for v in found]


def _add(target: GpuArray, parts: GpuArray) -> None:
    """Add what threads have for each element, in order."""
    before = record_gradients(False)
    try:
        total = GpuArray(parts.tensor.sum(-1).contiguous())
    finally:
        record_gradients(before)
    count = target.nbytes // target.dtype.itemsize
    ADDS[target.dtype.str[1:]](0, count, target, total)


def _simple(name: str, dtype: str, given: Sequence[Given], line: str) -> LoopKernel:
    """A kernel over arrays of any shape, element by element."""
    parameters = ", ".join([p for g in given for p, _ in g.parameters()])
    text = f"""
from adjit.kernels.language.device import all_threads as all_threads_k, first_unit as first_unit_k
from numpy import {dtype}


def {name}({parameters}, first_k, rounds_k, n_k):
    for thread_k in range(first_unit_k(), n_k, all_threads_k()):
        for i in range(thread_k, rounds_k, n_k):
            x[i] = {line}
"""
    return LoopKernel(name, given, plain=text)


FILLS = {
    size: _simple(
        f"fill_{8 * size}", kind, [Given("x", f"i{size}", 0), Given("v", "i8")], f"{kind}(v)"
    )
    for size, kind in ((1, "int8"), (2, "int16"), (4, "int32"), (8, "int64"))
}
ADDS = {
    kind: _simple(
        f"add_{name}", name, [Given("x", kind, 0), Given("y", kind, 0)], f"{name}(x[i] + y[i])"
    )
    for kind, name in DTYPES.items()
}


@typeof_impl.register(GpuArray)  # type: ignore[untyped-decorator]
def _type_of_array(a: GpuArray, _: Any) -> types.Type:
    return types.Array(numba.from_dtype(a.dtype), len(a.shape), "C")


# ----- what the text of a function calls between its loops -----


def on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose numbers are NumPy's, so that divisions by zero are infinite, as Numba's are."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*[_number(a) for a in args])

    return call


def _number(a: Any) -> Any:
    if isinstance(a, bool):
        return a
    return np.int64(a) if isinstance(a, int) else np.float64(a) if type(a) is float else a


# Those of the CPU's code are only linked, and have no entry for plain Python.
(
    close_tape, digamma, open_tape, release, reserve,
    tape_less, tape_low, tape_more, tape_set, tape_top, trigamma,
) = (
    numba.njit(error_model="numpy", nogil=True)(getattr(function, "py_func", function))
    for function in (
        runtime.close_tape, runtime.digamma, runtime.open_tape, runtime.release, runtime.reserve,
        runtime.tape_less, runtime.tape_low, runtime.tape_more, runtime.tape_set, runtime.tape_top,
        runtime.trigamma,
    )
)  # fmt: skip


def nat(index: int) -> int:
    return index


def rounds(count: int) -> int:
    return max(0, count)


def pick(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


def over(g: Any, x: Any) -> Any:
    return g / x if g != 0 else 0.0


def rest(g: Any, part: Any) -> Any:
    return g if part == 0 else 0.0


def overlap(a: GpuArray, b: GpuArray) -> bool:
    """Whether the memory of two arrays overlaps."""
    return a.address < b.address + b.nbytes and b.address < a.address + a.nbytes


def _pointer(element: Any) -> Callable[[int], Any]:
    return lambda address: ctypes.cast(int(address), ctypes.POINTER(element))


at_f8, at_f4 = _pointer(ctypes.c_double), _pointer(ctypes.c_float)
at_i8, at_b1 = _pointer(ctypes.c_int64), _pointer(ctypes.c_bool)
