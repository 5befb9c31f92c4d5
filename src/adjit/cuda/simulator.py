"""Device kernels without a GPU: every thread is a Python generator.

The kernel's own text runs, each barrier and each exchange within a warp made a `yield`. A scheduler
advances the threads of a block to their next one, and answers it once all are there. What a GPU
leaves undefined is an error here: reading or writing outside of an array, a barrier or a shuffle
that some threads do not come to, an access of 16 bytes that lies on no such border. Shared and
local memory starts as NaN, or as a number that makes no sense, so that reading before writing shows.

Between two barriers threads run one after the other; `reverse` runs them the other way round. A
kernel that lacks a barrier goes wrong in one of the two, so tests run both.

Elements are NumPy scalars, and scalar functions those of the CPU: an elementwise kernel gives the
bits that it gives on a GPU.

    >>> from adjit.cuda import simulator
    >>> x = adjit.tensor([1.0, 2.0, 3.0])
    >>> simulator.value(x * x)
    tensor([1., 4., 9.])
"""

from __future__ import annotations

import ast
import ctypes
import functools
import inspect
import textwrap
from collections.abc import Callable, Generator, Sequence
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from ..captured.tracing import reachable
from ..devices import CPU
from ..kernels.language import abi, device, lanes
from ..kernels.language.intrinsics import fma
from ..kernels.ops import sort
from ..ops.creation import tensor
from ..schedule import settle
from ..schedule.codegen.body import parse
from ..schedule.dispatch import found_error
from ..schedule.gpu.lower import device_steps
from ..schedule.planning.recipe import DeviceSource, DeviceStep
from ..show import NOTHING, record_gradients
from ..tensor import Tensor

WARP_WORDS = {
    "sync_warp", "shuffle", "shuffle_down", "shuffle_up", "shuffle_xor", "ballot", "multiply_tf32",
    "multiply_bf16",
}  # fmt: skip
COLLECTIVE = WARP_WORDS | {"barrier"}
HERE = "<device kernel>"
POISON = 0x5B  # in every byte of memory that nothing was written to

__all__ = ["DeviceSource", "Pointer", "SimulationError", "grad", "run", "value"]


class SimulationError(RuntimeError):
    """A kernel did what a GPU leaves undefined: the error of the simulator.

    Example:
        >>> import numpy as np
        >>> from adjit.cuda import simulator
        >>> (kernel,) = adjit.cuda.kernels(-adjit.tensor([1.0, 2.0]))
        >>> simulator.run(kernel, (np.zeros(2, np.float32), np.zeros(1, np.float32), 2))
        Traceback (most recent call last):
            ...
        adjit.cuda.simulator.SimulationError: element 1 of an array of 1 was written
    """


@functools.cache
def _whole_of(kind: Any) -> Any:
    """What Numba computes in with whole numbers of a dtype; it remembers what they are in memory."""
    wide = {"i": np.int64, "u": np.uint64}.get(kind.kind)
    return wide and type(f"{wide.__name__}_of_{kind}", (wide,), {"stored": kind.type})


class Pointer:
    """Elements of an array from some place on; subscripts outside of the array are errors.

    Example:
        >>> Pointer(np.zeros(4), 1)[3]
        Traceback (most recent call last):
        adjit.cuda.simulator.SimulationError: element 4 of an array of 4 was read
    """

    __slots__ = ("array", "first", "whole")

    def __init__(self, array: Any, first: int = 0) -> None:
        if array.ndim != 1 or not array.flags.c_contiguous:
            raise ValueError("a kernel's memory is an array of one dimension, in C order")
        self.array, self.first = array, first
        self.whole = _whole_of(array.dtype)

    def place(self, i: Any, what: str) -> int:
        """The number of an element in the array."""
        at = self.first + int(i)
        if not 0 <= at < self.array.size:
            raise SimulationError(f"element {at} of an array of {self.array.size} was {what}")
        return at

    def __getitem__(self, i: Any) -> Any:
        value = self.array[self.place(i, "read")]
        return value if self.whole is None else self.whole(value)  # as Numba computes with them

    def __setitem__(self, i: Any, value: Any) -> None:
        at = self.place(i, "written")
        with np.errstate(all="ignore"):
            self.array[at] = np.asarray(value).astype(self.array.dtype)

    def shifted(self, count: int) -> Pointer:
        return Pointer(self.array, self.first + count)

    def __add__(self, nbytes: int) -> Pointer:
        """The address so many bytes further on."""
        return Pointer(self.array.view(np.uint8), self.first * self.array.itemsize + int(nbytes))

    def of(self, dtype: Any) -> Pointer:
        """The same place, as elements of another dtype."""
        kind, raw = np.dtype(dtype), self.array.view(np.uint8)
        first, rest = divmod(self.first * self.array.itemsize, kind.itemsize)
        if rest:
            raise SimulationError(f"{kind} at an address that is no multiple of its size")
        return Pointer(raw[: raw.size // kind.itemsize * kind.itemsize].view(kind), first)


class SimulatedRow:
    """The words of a row; its number of words lies before them."""

    def __init__(self, words: Sequence[Any], first: int = 0) -> None:
        self.words, self.first = words, first

    def __getitem__(self, k: Any) -> Any:
        at = self.first + int(k)
        if at == -1:
            return len(self.words)
        if not 0 <= at < len(self.words):
            raise SimulationError(f"word {at} of {len(self.words)} was read")
        return self.words[at]

    def shifted(self, count: int) -> SimulatedRow:
        return SimulatedRow(self.words, self.first + count)


class Thread:
    """One thread: its generator, what it waits for and the answer it gets."""

    __slots__ = ("answer", "generator", "number", "shared_seen", "waiting")

    def __init__(self, number: int) -> None:
        self.number = number
        self.generator: Any = None
        self.waiting: Any = None
        self.answer: Any = None
        self.shared_seen = 0


class Machine:
    """What the words of a kernel mean while one of its threads runs."""

    def __init__(self, blocks: int, threads: int) -> None:
        self.blocks, self.threads = blocks, threads
        self.block = 0
        self.thread = Thread(0)
        self.shared: list[Pointer] = []
        self.dynamic = np.empty(0, np.uint8)

    def meanings(self) -> dict[str, Callable[..., Any]]:
        """The function behind each word; collective ones are answered by the scheduler."""
        return {
            "thread": lambda: self.thread.number,
            "threads": lambda: self.threads,
            "block": lambda: self.block,
            "blocks": lambda: self.blocks,
            "lane": lambda: self.thread.number % device.WARP,
            "first_unit": lambda: self.block * self.threads + self.thread.number,
            "all_threads": lambda: self.blocks * self.threads,
            "shared": self._shared,
            "dynamic": lambda dtype, first: Pointer(self.dynamic, int(first)).of(dtype),
            "local": lambda dtype, count: Pointer(poisoned(dtype, count)),
            "shifted": lambda x, i: x.shifted(int(i)),
            "aligned": lambda x, size: x.first * x.array.itemsize % size == 0,
            "load_wide": _load_wide,
            "store_wide": _store_wide,
            "take_wide": _take_wide,
            "give_wide": _give_wide,
            "atomic_add": _atomic(lambda old, value: old + value),
            "atomic_min": _atomic(min),
            "atomic_max": _atomic(max),
            "compare_and_swap": _compare_and_swap,
            "rest_of_product": _rest_of_product,
            "laid_out": SimulatedRow,
            "words": lambda row: row,
            "at": _at,
            "scalar": lambda word, dtype: dtype(np.int64(word).view(np.float64)),
            "tf32": _tf32,
            "bf16_pair": _bf16_pair,
            "lowest_bit": lambda bits: (int(bits) & -int(bits)).bit_length() - 1 if bits else 32,
        }

    def _shared(self, dtype: Any, count: int) -> Pointer:
        """The n-th call of each thread gives the block's n-th array."""
        number = self.thread.shared_seen
        self.thread.shared_seen += 1
        if number == len(self.shared):
            self.shared.append(Pointer(poisoned(dtype, count)))
        return self.shared[number]


def poisoned(dtype: Any, count: int) -> Any:
    """Memory that makes no sense."""
    made = np.empty(count, dtype)
    if made.dtype.kind == "f":
        made.fill(np.nan)
    else:
        made.view(np.uint8).fill(POISON)
    return made


def _at(address: Any, dtype: Any) -> Pointer | SimulatedRow:
    """A pointer to elements of another dtype, for a word that is a pointer."""
    if isinstance(address, SimulatedRow):
        return address
    if not isinstance(address, Pointer):
        raise SimulationError(f"{address} is no address")
    return address.of(dtype)


def _combine(op: Any, a: Any, b: Any) -> Any:
    """As `lanes.combine`: the larger or smaller of two keeps a NaN, whichever side it comes from."""
    if op in (max, min):
        return a if (a >= b if op is max else a <= b) or a != a else b
    return op(a, b)


def _least_of(dtype: Any) -> Any:
    kind = np.dtype(dtype)
    return kind.type(-np.inf if kind.kind == "f" else np.iinfo(kind).min)


def _sort_key(value: Any) -> Any:
    """A key has the bits of what lies in memory."""
    return _on_host(sort.sort_key, 1)(getattr(value, "stored", type(value))(value))


def _natural(value: Any) -> int:
    if value < 0:
        raise SimulationError(f"{value} in a division of numbers from 0 up")
    return int(value)


ELSEWHERE: dict[int, Callable[..., Any]] = {  # functions for the CPU's compiler, and what they do
    id(lanes.combine): _combine,
    id(lanes.least_of): _least_of,
    id(abi.bits_of_float): lambda value: np.float64(value).view(np.int64),
    id(abi.quotient): lambda a, b: _natural(a) // _natural(b),
    id(abi.remainder): lambda a, b: _natural(a) % _natural(b),
    id(sort.sort_key): _sort_key,
    id(sort.size_of): lambda dtype: np.dtype(dtype).itemsize,
}


@functools.cache
def _on_host(function: Any, arity: int) -> Callable[..., Any]:
    """A function of the CPU's compiler that takes and gives numbers, compiled for the CPU."""
    from numba import njit

    calls: dict[int, Any] = {1: lambda x: function(x), 3: lambda x, y, z: function(x, y, z)}
    compiled: Callable[..., Any] = njit(calls[arity])
    return compiled


def _load_wide(x: Pointer, i: Any, count: int) -> tuple[Any, ...]:
    _check_border(x, i, count)
    return tuple(x[i + k] for k in range(count))


def _store_wide(x: Pointer, i: Any, values: Sequence[Any]) -> None:
    _check_border(x, i, len(values))
    for k, value in enumerate(values):
        x[i + k] = value


def _take_wide(mine: Pointer, j: Any, x: Pointer, i: Any, count: int) -> None:
    for k, value in enumerate(_load_wide(x, i, count)):
        mine[j + k] = value


def _give_wide(x: Pointer, i: Any, mine: Pointer, j: Any, count: int) -> None:
    _store_wide(x, i, [mine[j + k] for k in range(count)])


def _check_border(x: Pointer, i: Any, count: int) -> None:
    if count * x.array.itemsize > device.WIDE:
        raise SimulationError(f"{count} elements of {x.array.dtype} do not fit into one access")
    if (x.first + int(i)) % count:
        raise SimulationError(f"{count} elements at once from element {x.first + int(i)} on")


def _atomic(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def apply(x: Pointer, i: Any, value: Any) -> Any:
        old = x[i]
        x[i] = combine(old, value)
        return old

    return apply


def _compare_and_swap(x: Pointer, i: Any, old: Any, new: Any) -> Any:
    found = x[i]
    if found == old:
        x[i] = new
    return found


def _rest_of_product(a: Any, b: Any) -> Any:
    """What rounding takes from a product."""
    return fma(a, b, -(a * b)) if a.dtype.kind == "f" else a.dtype.type(0)


def _tf32(value: Any) -> Any:
    """To the nearest with 10 bits of mantissa, of two the one further from 0."""
    bits = np.float32(value).view(np.uint32)
    return value if value != value else ((bits + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32)


def _bf16_pair(first: Any, second: Any) -> Any:
    """To the nearest with 7 bits of mantissa, of two the even one, side by side."""
    halves = []
    for value in (first, second):
        bits = int(np.float32(value).view(np.uint32))
        even = 0x7FFF + (bits >> 16 & 1)
        halves.append(bits >> 16 | 0x40 if value != value else (bits + even) >> 16 & 0xFFFF)
    return np.uint32(halves[1] << 16 | halves[0]).view(np.float32)


def _multiply(lanes: list[Any], deep: int) -> None:
    """What `multiply_tf32` says for the operands of the lanes of a warp, each of which holds a number,
    or what `multiply_bf16` says, where each holds two."""
    left, right, total = (np.zeros(s, np.float32) for s in ((16, 8, deep), (8, 8, deep), (16, 8)))
    for k, (sums, first, second, a, i, b, j) in enumerate(lanes):
        g, q = divmod(k, 4)
        left[[g, g + 8, g, g + 8], [q, q, q + 4, q + 4]] = _factors(
            [a[i + e] for e in range(4)], deep
        )
        right[[q, q + 4], g] = _factors([b[j + e] for e in range(2)], deep)
        total[[g, g, g + 8, g + 8], [2 * q, 2 * q + 1] * 2] = [
            sums[at + e] for at in (first, second) for e in range(2)
        ]
    total += np.einsum("ikd,kjd->ij", left, right)
    for k, (sums, first, second, *_) in enumerate(lanes):
        g, q = divmod(k, 4)
        for e in range(2):
            sums[first + e], sums[second + e] = total[g, 2 * q + e], total[g + 8, 2 * q + e]


def _factors(held: list[Any], deep: int) -> Any:
    """The numbers in the registers of a lane."""
    bits = np.array(held, np.float32).view(np.uint32)
    if deep == 2:
        return np.stack([bits << 16, bits & 0xFFFF0000], 1).astype(np.uint32).view(np.float32)
    numbers = bits.view(np.float32)
    if (bits[numbers == numbers] & 0x1FFF).any():
        raise SimulationError("a factor of multiply_tf32 is not rounded by tf32")
    return numbers[:, None]


# ----- kernels as generators -----


class _Yielding(ast.NodeTransformer):
    """Collective words become `yield`, calls of functions that hold some `yield from`."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self.found = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Name):
            return node
        value = self.names.get(node.func.id)
        if isinstance(value, device.Word) and value.__name__ in COLLECTIVE:
            self.found = True
            return ast.Yield(ast.Tuple([ast.Constant(value.__name__), *node.args], ast.Load()))
        if getattr(value, "is_collective", False):
            self.found = True
            return ast.YieldFrom(node)
        return node


class Loader:
    """Turns functions of a kernel into ones that run in a simulation, each once."""

    def __init__(self, machine: Machine, text: str) -> None:
        self.meanings = machine.meanings()
        self.text = text  # of the kernel's module, which is no file
        self.done: dict[Any, Any] = {}

    def load(self, function: Any) -> Any:
        """The function over the meanings of its names."""
        if function in self.done:
            return self.done[function]
        names = {
            n: self.meaning(v)
            for n, v in function.__globals__.items()
            if n in function.__code__.co_names
        }
        is_here = function.__code__.co_filename == HERE
        source = self.text if is_here else textwrap.dedent(inspect.getsource(function))
        tree = parse(source)
        definition = next(
            d for d in tree.body if isinstance(d, ast.FunctionDef) and d.name == function.__name__
        )
        definition.decorator_list, definition.returns = [], None
        for argument in definition.args.args:
            argument.annotation = None
        yielding = _Yielding(names)
        made = ast.Module([yielding.visit(definition)], [])
        scope = {n: self.meanings.get(v.__name__, v) if isinstance(v, device.Word) else v
                 for n, v in names.items()}  # fmt: skip
        exec(
            compile(ast.fix_missing_locations(made), f"<simulated {function.__name__}>", "exec"),
            scope,
        )
        loaded = scope[definition.name]
        loaded.is_collective = yielding.found
        self.done[function] = loaded
        return loaded

    def meaning(self, value: Any) -> Any:
        """What a global of a kernel is in a simulation."""
        if id(value) in ELSEWHERE:
            return ELSEWHERE[id(value)]
        if hasattr(value, "_defn"):
            return _on_host(value, 1)
        if hasattr(value, "traced") and value.__name__.startswith("fma_"):
            return _on_host(value, 3)  # exact in Python, but slow
        function = device.function_on_gpu(value)
        if isinstance(function, FunctionType) and not hasattr(function, "traced"):
            return self.load(function)
        return value


def run(
    kernel: DeviceSource,
    arguments: Sequence[Any],
    *,
    blocks: int | None = None,
    reverse: bool = False,
) -> None:
    """Run a device kernel over NumPy arrays.

    Args:
        kernel: its text and signature, as `adjit.schedule.gpu.lower` makes them.
        arguments: an array of one dimension or a `Pointer` for each pointer, else a number; the last
            is the units of work.
        blocks: of the grid; by default what the units of work need.
        reverse: let the last block and the last thread begin.

    Raises:
        SimulationError: for what a GPU leaves undefined.
        TypeError: if an argument does not fit the signature.

    Example:
        >>> import numpy as np
        >>> from adjit.cuda import simulator
        >>> (kernel,) = adjit.cuda.kernels(-adjit.tensor([1.0, 2.0]))
        >>> x, out = np.array([3.0, 4.0], np.float32), np.zeros(2, np.float32)
        >>> simulator.run(kernel, (x, out, 2))
        >>> out
        array([-3., -4.], dtype=float32)
    """
    if len(arguments) != len(kernel.signature):
        raise TypeError(f"{kernel.name} takes {len(kernel.signature)} words, got {len(arguments)}")
    given = [_argument(a, kind) for a, kind in zip(arguments, kernel.signature, strict=True)]
    machine = Machine(blocks or kernel.grid(int(arguments[-1]), 1 << 30), kernel.threads)
    module = ModuleType(kernel.name)
    exec(compile(kernel.text, HERE, "exec"), module.__dict__)
    function = Loader(machine, kernel.text).load(getattr(module, kernel.name))
    direction = -1 if reverse else 1
    with np.errstate(all="ignore"):
        for block in range(machine.blocks)[::direction]:
            machine.block, machine.shared = block, []
            machine.dynamic = poisoned("uint8", kernel.shared)
            threads = [Thread(k) for k in range(kernel.threads)][::direction]
            for thread in threads:
                machine.thread = thread
                thread.generator = function(*given)  # without a barrier it runs here
            if function.is_collective:
                _schedule(threads, machine)


def _argument(value: Any, kind: str) -> Any:
    """An argument as the kernel sees it."""
    if isinstance(value, Pointer | SimulatedRow) and kind == "int64":
        return value  # an address
    if kind.startswith("*"):
        pointer = value if isinstance(value, Pointer) else Pointer(value)
        if pointer.array.dtype != np.dtype(kind[1:]):
            raise TypeError(f"expected an array of {kind[1:]}, got {pointer.array.dtype}")
        return pointer
    if np.dtype(kind).kind == "f":
        return np.dtype(kind).type(value)
    number = int(value)
    if not np.iinfo(kind).min <= number <= np.iinfo(kind).max:
        raise TypeError(f"{number} does not fit into {kind}")
    return number


def _schedule(threads: list[Thread], machine: Machine) -> None:
    """Advance the threads of a block to what they wait for and answer it, until all have ended."""
    warps: dict[int, list[Thread]] = {}
    for thread in threads:
        warps.setdefault(thread.number // device.WARP, []).append(thread)
    live = threads
    while live:
        moved = False
        for thread in live:
            if thread.waiting is None:
                moved = True
                machine.thread = thread
                _advance(thread)
        live = [t for t in live if t.generator is not None]
        for warp in warps.values():
            moved |= _answer_warp(warp)
        if len(live) == len(threads) and all(t.waiting == ("barrier",) for t in live):
            moved = True
            for thread in live:
                thread.waiting = None
        if live and not moved:
            kinds = sorted({t.waiting[0] for t in live})
            raise SimulationError(
                f"{len(live)} of {len(threads)} threads wait at {', '.join(kinds)} for others that "
                "do not come there"
            )


def _advance(thread: Thread) -> None:
    generator: Generator[Any, Any, None] = thread.generator
    try:
        thread.waiting, thread.answer = generator.send(thread.answer), None
    except StopIteration:
        thread.generator = None


def _answer_warp(warp: list[Thread]) -> bool:
    """Answer an exchange that all lanes of a warp have come to; whether there was one."""
    if any(t.waiting is None for t in warp) or len({t.waiting[0] for t in warp}) > 1:
        return False
    word = warp[0].waiting[0]
    if word not in WARP_WORDS:
        return False
    if len(warp) != device.WARP:
        raise SimulationError(f"{word} in a warp of {len(warp)} threads")
    lanes = sorted(warp, key=lambda t: t.number)
    if word == "ballot":
        votes = sum(1 << k for k, t in enumerate(lanes) if t.waiting[1])
        answers = [votes - (1 << 32) if votes >> 31 else votes] * device.WARP
    elif word in ("sync_warp", "multiply_tf32", "multiply_bf16"):
        if word != "sync_warp":
            _multiply([t.waiting[1:] for t in lanes], 2 if word == "multiply_bf16" else 1)
        answers = [0] * device.WARP
    else:
        answers = [
            lanes[_source(word, k, int(t.waiting[2]))].waiting[1] for k, t in enumerate(lanes)
        ]
    for thread, answer in zip(lanes, answers, strict=True):
        thread.waiting, thread.answer = None, answer
    return True


def _source(word: str, lane: int, by: int) -> int:
    """The lane whose value a shuffle gets."""
    source = {
        "shuffle": by, "shuffle_down": lane + by, "shuffle_up": lane - by, "shuffle_xor": lane ^ by,
    }[word]  # fmt: skip
    return source if 0 <= source < device.WARP else lane


# ----- recorded operations -----


def value(t: Tensor, *, blocks: int | None = None, reverse: bool = False) -> Tensor:
    """Compute what a GPU would give for a tensor of the CPU that nobody has looked at yet.

    Each operation behind it runs its own device kernel here; fused ones give the same bits. The
    tensor itself is left to be computed.

    Args:
        blocks: of each grid; by default what the units of work need. With fewer, threads go on to
            further units.
        reverse: let the last block and the last thread begin.

    Raises:
        SimulationError: for what a GPU leaves undefined.
        NotImplementedError: if one of the kernels has no CUDA side.
        ValueError: if nothing is left to run, or if some of it lies on a GPU.

    Example:
        >>> from adjit.cuda import simulator
        >>> x = adjit.linspace(0, 1, 5)
        >>> bool((simulator.value(x.exp()) == x.exp()).all())
        True
    """
    with settle.lock:
        return _simulated([t], blocks, reverse)[0]


def grad(
    t: Tensor,
    inputs: Tensor | Sequence[Tensor],
    *,
    blocks: int | None = None,
    reverse: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of the sum of a tensor that a GPU would give, forward and backward.

    As `adjit.autograd.grad` with ones for `grad_outputs`; the graph stays. Arguments and errors are
    those of `value`; where an input is not behind the tensor, its gradient is None.

    Example:
        >>> from adjit.cuda import simulator
        >>> x = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> simulator.grad(x * x, x)
        (tensor([2., 4.]),)
    """
    wanted = [inputs] if isinstance(inputs, Tensor) else [*inputs]
    with settle.lock:
        gradients = record_gradients(t, wanted)
        found = iter(_simulated([g for g in gradients if g is not None], blocks, reverse))
        return tuple([None if g is None else next(found) for g in gradients])


def _simulated(tensors: Sequence[Tensor], blocks: int | None, reverse: bool) -> list[Tensor]:
    """What a GPU would give for tensors. Callers hold the lock."""
    values = [t._storage.value for t in tensors]
    batch = reachable(values)
    if any(value.recipe is None for value in values):
        raise ValueError(f"{NOTHING}; simulate a tensor before you look at it")
    simulation = Simulation(blocks, reverse)
    simulation.add(batch)
    return [simulation.tensor(t) for t in tensors]


class Simulation:
    """The results of recorded nodes, by the identity of the node.

    `blocks` and `reverse` are those of `run`.
    """

    def __init__(self, blocks: int | None, reverse: bool) -> None:
        self.memory: dict[int, list[Any]] = {}
        self.blocks, self.reverse = blocks, reverse
        self.steps: list[DeviceStep] = []
        self.kept: list[Any] = []  # the nodes: an identity must not come back
        self.error: Exception | None = None  # the first that a kernel has found

    def add(self, nodes: Sequence[Any]) -> None:
        """Run nodes in order: all of them, as a GPU does, which tells afterwards what a kernel has found."""
        self.kept += nodes
        for node in nodes:
            if node.recipe is not None:
                self._run(node)
        if self.error is not None:
            raise self.error

    def tensor(self, t: Tensor) -> Tensor:
        """The elements of a tensor whose node has run, as a tensor of its own."""
        flat = self.memory[id(t._storage.value)][0].view(t.dtype.numpy)[t._offset :]
        steps = [s * t.itemsize for s in t._spec.strides]
        return tensor(np.lib.stride_tricks.as_strided(flat, t.shape, steps))

    def _run(self, node: Any) -> None:
        recipe = node.recipe
        offsets = node.offsets or (0,) * len(node.inputs)
        if recipe.pick >= 0:
            self.memory[id(node)] = [self.memory[id(node.inputs[0])][recipe.pick]]
            return
        given = [
            self._pointer(value, offset, spec)
            for value, offset, spec in zip(node.inputs, offsets, recipe.inputs, strict=True)
        ]
        if recipe.write:
            whole = given[0].array.copy()
            made = [whole]
            row = [given[1], Pointer(whole, given[0].first)]
        else:
            made = [poisoned(s.dtype.stored, max(s.extent, s.numel)) for s in recipe.outputs]
            for k in range(recipe.over):
                made[k][:] = given[k].array
                given[k] = Pointer(made[k])
            row = [*given, *made]
        scratch = poisoned("uint8", -(-recipe.scratch // 16) * 16)
        status = np.zeros(4, np.int64)
        for step in device_steps(recipe):
            words: list[Any] = [*row]
            if recipe.scratch:
                words.append(scratch)
            if recipe.fallible is not None:
                words.append(status)
            words += [*recipe.constants, *node.scalars, *step.more]
            if step.source.by_table:
                words = [SimulatedRow([_fitted(word, "int64") for word in words])]
            kinds = step.source.signature
            fitted = [_fitted(w, k) for w, k in zip([*words, step.n], kinds, strict=True)]
            if step.n:
                run(step.source, fitted, blocks=self.blocks, reverse=self.reverse)
            self.steps.append(step)
        if status[0] and self.error is None:
            self.error = found_error(recipe, tuple(status.tolist()), node.call_site)
        self.memory[id(node)] = made

    def _pointer(self, value: Any, offset: int, spec: Any) -> Pointer:
        """Where a node reads a value: what a node before it has left, or a copy of what is there."""
        known = self.memory.get(id(value))
        if known is not None:
            return Pointer(known[0], offset)
        if spec.device is not CPU:
            raise ValueError(
                f"the simulator reads the memory of the CPU, not that of {spec.device}"
            )
        kind = np.dtype(spec.dtype.stored)
        count = offset + max(spec.extent, 0)
        data = ctypes.string_at(int(value.address), count * kind.itemsize)
        return Pointer(np.frombuffer(data, kind).copy(), offset)


def _fitted(word: Any, kind: str) -> Any:
    """A word as the launch of a kernel would narrow it."""
    if kind.startswith("*"):
        array = word.array if isinstance(word, Pointer) else word
        first = word.first if isinstance(word, Pointer) else 0
        return Pointer(array.view(kind[1:]), first)
    if isinstance(word, np.ndarray):
        return Pointer(word)
    if np.dtype(kind).kind == "f":
        return np.array(word, np.int64).view(np.float64)[()]
    return word
