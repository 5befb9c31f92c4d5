"""The GPU's side of running: recorded nodes one by one, copies between devices, waiting.

Nothing here waits for a GPU but a copy to the host, which somebody wants to look at. What a kernel
finds (an index out of range) is therefore reported there.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from ... import driver, gpu
from ...atomic import Calls, at_once, calling
from ...devices import CPU, device
from ...kernels.runtime import launcher
from ...kernels.runtime.runner import HEADER
from ...locks import Lock
from ...storage import allocate, size_class
from .. import profile, run_cpu
from ..codegen import units_cuda
from ..dispatch import Failed, fail, found_error, inherit_error, is_free, marks
from ..jit import nvidia
from ..jit.cache import instantiate, link
from ..planning.recipe import COPY, DeviceSource, Recipe, Source
from . import products

BESIDE = 1 << 18  # bytes that take longer to copy than to wait for on another stream


class Shape(NamedTuple):
    """How a kernel is launched over `n` units of work."""

    grid: int
    threads: int
    shared: int  # bytes
    floats: int  # bits for the parameters that are float32
    n: int


class Launch(NamedTuple):
    """A kernel that is loaded, over its work."""

    function: int
    shape: Shape
    by_table: bool = False  # whether it reads its row from the GPU's memory
    more: tuple[int, ...] = ()  # words behind the row


class Gpu:
    """One GPU: its kernels, and what those that may fail have yet to tell."""

    def __init__(self, place: device) -> None:
        self.place, self.index = place, place.index or 0
        self.driver = driver.load()
        self.pool = gpu.pool_of(place)
        self.capability = (
            self.driver.attribute(driver.MAJOR, self.index),
            self.driver.attribute(driver.MINOR, self.index),
        )
        self.multiprocessors = self.driver.attribute(driver.MULTIPROCESSORS, self.index)
        optin = self.driver.attribute(driver.SHARED_OPTIN, self.index)
        self.shared = optin - units_cuda.SHARED_BYTES // 2  # bytes that a launch may give a block
        self.launch_address = self.driver.address("cuLaunchKernel")
        # Words that launches point to: the stream they go to, the code of the first that failed.
        self.stream_word, self.report = array("q", [0]), array("q", [0])
        self.checks = Checks(self)
        self.driver.use(self.index)
        self.capture_stream = self.driver.new_stream()  # the default one cannot be captured
        self.copy_stream = self.driver.new_stream()
        self.products = products.Products(self)
        self._functions: dict[Any, int] = {}

    def launches(self, recipe: Recipe) -> list[Launch | products.ProductCall]:
        """The kernels of a recipe, loaded; compiled where the cache has them not. Or what stands for
        them: a call of cuBLASLt."""
        if recipe.launches is None:
            if recipe.device_steps is None:
                raise NotImplementedError(f"{recipe.name} has no CUDA side yet")
            call = self.products.call(recipe)
            recipe.launches = [call] if call is not None else [
                self.load(s.source, s.n, s.more) for s in recipe.device_steps if s.n
            ]  # fmt: skip
        return list(recipe.launches)

    def load(self, source: DeviceSource, n: int, more: tuple[int, ...] = ()) -> Launch:
        """A kernel over `n` units of work, ready to be launched."""
        return Launch(self.function_of(source), self.shape(source, n), source.by_table, more)

    def shape(self, source: DeviceSource, n: int) -> Shape:
        """How a kernel is launched over `n` units of work."""
        floats = sum(
            1 << launcher.float_bit(k, len(source.signature))
            for k, kind in enumerate(source.signature)
            if kind == "float32"
        )
        most = self.multiprocessors * max(1, 2048 // source.threads)
        return Shape(source.grid(n, most), source.threads, source.shared, floats, n)

    def has(self, source: DeviceSource) -> bool:
        """Whether a kernel is loaded."""
        return (source.name, source.text, source.signature) in self._functions

    def function_of(self, source: DeviceSource) -> int:
        """The handle of a kernel, compiled and loaded where it is new."""
        key = source.name, source.text, source.signature
        function = self._functions.get(key)
        if function is None:
            if len(source.signature) > launcher.MOST_PARAMETERS:
                raise NotImplementedError(
                    f"{source.label} has {len(source.signature)} parameters, more than the "
                    f"{launcher.MOST_PARAMETERS} that a launch on a GPU can have"
                )
            made = nvidia.cubin(source, self.capability)
            self.driver.use(self.index)
            function = self._functions[key] = self.driver.function(made.code, made.symbol)
            if source.bytes_each:
                self.driver.call("cuFuncSetAttribute", function, driver.MOST_SHARED, self.shared)
        return function

    def run(
        self,
        launches: Sequence[Launch | products.ProductCall],
        row: Sequence[int],
        then: Calls = (),
    ) -> None:
        """Launch kernels over the words of a row on the current stream, and at once, if that went well, do
        what follows.
        """
        words: list[int] = []
        starts: list[int] = []
        self.use_current_stream()
        if any(step.by_table for step in launches):
            written = array("q", [len(row), *row])
            place = self.pool.allocate(8 * len(written))
            self.copy_table(place, written.buffer_info()[0], len(written))
        for step in launches:
            starts.append(len(words))
            if isinstance(step, products.ProductCall):
                workspace = self.pool.allocate(step.workspace) if step.workspace else 0
                source, made = products.source(), self.product_row(step, row, workspace)
            else:
                given = [place + 8] if step.by_table else [*row, *step.more]
                source, made = launcher_source(), self.row(step.function, step.shape, given)
            words += (link(source), 1, 1, len(made), *made)
        table = array("q", words)
        address = table.buffer_info()[0]
        if profile.active is None:
            self.launch(address, len(launches), then)
        else:
            times = self.run_timed([address + 8 * start for start in starts], then)
            profile.active.keep_node(times, place=self.place)

    def launch(self, stream: int, steps: int, then: Calls) -> None:
        """Run a stream of launches, and at once, if that went well, do what follows."""
        self.report[0] = 0  # what an interrupt has kept from being raised counts as not run
        run_cpu.run(stream, steps, self.report.buffer_info()[0], large=False, then=then)
        self.raise_failed_launch()

    def run_timed(self, steps: Sequence[int], then: Calls) -> list[int]:
        """Run steps at these addresses, do at once what follows, and wait; when the first began and when
        each ended, in ns of the monotonic clock, as far apart as the GPU has measured it."""
        events = [self.driver.new_event(timing=True) for _ in range(len(steps) + 1)]
        words = array("q", self.put_on_stream("cuEventRecord", events[0]))
        for address, event in zip(steps, events[1:], strict=True):
            count = read_words(address + 8 * (HEADER - 1), 1)[0]
            words.extend(read_words(address, HEADER + count))
            words.extend(self.put_on_stream("cuEventRecord", event))
        begin = time.monotonic_ns()
        self.launch(words.buffer_info()[0], 2 * len(steps) + 1, then)
        self.driver.call("cuEventSynchronize", events[-1])
        times = [begin + round(1e6 * self.driver.elapsed(events[0], event)) for event in events]
        for event in events:
            self.driver.call("cuEventDestroy_v2", event)
        return times

    def row(self, function: Any, shape: Shape, row: Sequence[Any]) -> list[Any]:
        """The words of a launch over the words of a row."""
        return [
            self.launch_address, function, shape.grid, shape.threads, shape.shared,
            self.stream_word.buffer_info()[0], self.report.buffer_info()[0], shape.floats,
            len(row) + 1, *row, shape.n,
        ]  # fmt: skip

    def put_on_stream(self, function: str, handle: Any) -> list[int]:
        """The words of a step that puts a graph or an event onto the current stream."""
        addresses = self.stream_word.buffer_info()[0], self.report.buffer_info()[0]
        kernel = link(instantiate(launcher.put_on_stream, {}))
        return [kernel, 1, 1, 4, self.driver.address(function), int(handle), *addresses]

    def product_row(
        self, call: products.ProductCall, row: Sequence[Any], workspace: Any
    ) -> list[Any]:
        """The words of a call of cuBLASLt over the words of a row."""
        addresses = self.stream_word.buffer_info()[0], self.report.buffer_info()[0]
        return call.row(row, workspace, *addresses)

    def copy_table(self, target: int, source: int, words: int) -> None:
        """Copy words of the host, which may change afterwards, on the current stream."""
        stream = self.stream_word[0]
        self.driver.call("cuMemcpyHtoDAsync_v2", target, source, 8 * words, stream)

    def use_current_stream(self) -> None:
        """Let launches go to the current stream of this thread."""
        self.driver.use(self.index)
        self.stream_word[0] = gpu.current_stream(self.index)

    def raise_failed_launch(self) -> None:
        """Raise what the driver has said to the launches of a stream of words, or cuBLASLt."""
        code, self.report[0] = self.report[0], 0
        if code < 0:
            raise self.products.error(-code)
        if code:
            raise self.driver.error(code, "cuLaunchKernel")

    def synchronize(self, stream: int | None = None) -> None:
        """Wait for a stream, or for all of them; raises what a kernel has found."""
        self.driver.use(self.index)
        if stream is None:
            self.driver.call("cuCtxSynchronize")
        else:
            self.driver.call("cuStreamSynchronize", stream)
        self.checks.look(stream)


def launcher_source() -> Source:
    """The kernel of the runner that launches one for a GPU."""
    return instantiate(launcher.launch, {})


class Checks:
    """The status words of kernels that may fail, in memory that a GPU and the host both reach."""

    WORDS = 4  # code and details
    ROOM = 1024

    def __init__(self, owner: Gpu) -> None:
        self._owner = owner
        self._memory: Any = None
        self._waiting: list[tuple[int, Recipe, Any, int]] = []
        self._free: list[int] = []

    def expect(self, recipe: Recipe, call_site: Any, stream: int) -> int:
        """The address of status words for a node that is about to run."""
        if self._memory is None:
            nbytes = 8 * self.WORDS * self.ROOM
            self._memory = gpu.PinnedMemory(nbytes)
            start = self._memory.address
            self._free = list(range(start, start + nbytes, 8 * self.WORDS))
        if not self._free:
            self._owner.synchronize()
        address = self._free.pop()
        write_words(address, (0,) * self.WORDS)
        self._waiting.append((address, recipe, call_site, stream))
        return address

    def look(self, stream: int | None) -> None:
        """Raise the first error that work of a stream which is done has left."""
        done = [w for w in self._waiting if stream is None or w[3] == stream]
        if not done:
            return
        self._waiting = [w for w in self._waiting if w not in done]
        self._free += [address for address, *_ in done]
        for address, recipe, call_site, _ in done:
            status = read_words(address, self.WORDS)
            if status[0]:
                raise found_error(recipe, status, call_site)


def write_words(address: int, values: Sequence[int]) -> None:
    """Write int64 words to memory of the host."""
    words = array("q", values)
    run_cpu.copy_bytes(address, words.buffer_info()[0], 8 * len(words))


def read_words(address: int, count: int) -> tuple[int, ...]:
    """Read int64 words from memory of the host."""
    words = array("q", bytes(8 * count))
    run_cpu.copy_bytes(words.buffer_info()[0], address, 8 * count)
    return tuple(words)


_gpus: dict[device, Gpu] = {}
_lock = Lock()


def gpu_of(place: device) -> Gpu:
    """The state of a GPU in this process."""
    found = _gpus.get(place)
    if found is None:
        with _lock:
            found = _gpus.setdefault(place, Gpu(place))
    return found


# ----- nodes -----


def run(batch: list[Any]) -> None:
    """Run nodes of one GPU in order. What is not reached, because of an error, is left in the batch.

    Callers hold the settle lock.
    """
    place: device = batch[0].recipe.device
    owner = gpu_of(place)
    owner.driver.use(owner.index)
    looked = False
    batch[:] = batch[::-1]  # no call, after which a signal would find the order unknown
    try:
        while True:  # Python 3.12 and 3.13 leave the jump back to a condition out of `try`: signals end there
            if not batch:
                break
            node = batch[-1]
            recipe = node.recipe
            if recipe is None or recipe.__class__ is Failed:
                del batch[-1]
                continue
            if profile.active is not None:
                profile.active.expect(node)
            looked = looked or recipe.spec.device is CPU
            try:
                _run_node(owner, node, recipe)
            except Exception as error:
                if node.recipe.__class__ is not Failed:
                    fail(node, error)
                del batch[-1]
                raise
            del batch[-1]
    finally:
        batch[:] = batch[::-1]
        batch[:] = [node for node in batch if node.recipe is not None]
        if looked:
            owner.synchronize(gpu.current_stream(owner.index))


def _run_node(owner: Gpu, node: Any, recipe: Recipe) -> None:
    """Put the work of a node onto the current stream, and give it its memory: at once, so that it counts
    as done together with its work."""
    if recipe.pick >= 0 and node.inputs[0].recipe is None:
        node.address, node.recipe = node.inputs[0].others[recipe.pick], None
    elif any(value.recipe is not None for value in node.inputs):
        inherit_error(node)
        return
    elif recipe.moves:
        _move(owner, node, recipe)
    elif recipe.write:
        _write(owner, node, recipe)
    else:
        _launch(owner, node, recipe)
    node.inputs = None  # only now: what frees memory is Python


def _launch(owner: Gpu, node: Any, recipe: Recipe) -> None:
    launches = owner.launches(recipe)
    row: list[Any] = _addresses(owner, node, recipe)
    takes = recipe.over or int(recipe.alias is not None and node.offsets is None)
    blocks = [
        node.inputs[k].address
        if k < takes and is_free(node.inputs[k])
        else owner.pool.allocate(spec.nbytes)
        for k, spec in enumerate(recipe.outputs)
    ]
    row += blocks
    if recipe.scratch:
        row.append(owner.pool.allocate(recipe.scratch))
    if recipe.fallible is not None:
        row.append(owner.checks.expect(recipe, node.call_site, gpu.current_stream(owner.index)))
        node.call_site = None
    done = marks(node, blocks)
    if launches:
        owner.run(launches, [*row, *recipe.constants, *node.scalars], done)
    else:
        at_once(calling(done))


def _addresses(owner: Gpu, node: Any, recipe: Recipe) -> list[int]:
    """Where what a node reads begins; a number from the host is copied over first."""
    found = []
    for k, (value, spec) in enumerate(zip(node.inputs, recipe.inputs, strict=True)):
        address = value.address
        if node.offsets is not None and node.offsets[k]:
            address = address + node.offsets[k] * spec.dtype.itemsize
        if spec.device is CPU:
            staged = owner.pool.allocate(spec.nbytes)
            _copy(owner, "cuMemcpyHtoDAsync_v2", staged, address, spec.nbytes)
            address = staged
        found.append(address)
    return found


def _copy(owner: Gpu, how: str, target: int, source: int, nbytes: int) -> None:
    """Copy bytes on the current stream."""
    if nbytes:
        owner.driver.call(how, target, source, nbytes, gpu.current_stream(owner.index))


def _write(owner: Gpu, node: Any, recipe: Recipe) -> None:
    """Copy into a part of the old value: in its own bytes if nobody else looks, else in a copy."""
    launches = owner.launches(recipe)
    target, source = _addresses(owner, node, recipe)
    block = node.inputs[0].address
    if recipe.write == COPY and not is_free(node.inputs[0]):
        fresh = owner.pool.allocate(recipe.spec.nbytes)
        _copy(owner, "cuMemcpyDtoDAsync_v2", fresh, block, recipe.spec.nbytes)
        target += fresh - block
        block = fresh
    owner.run(launches, [source, target, *recipe.constants], marks(node, [block]))


def _move(owner: Gpu, node: Any, recipe: Recipe) -> None:
    """Copy the bytes of a value to another device."""
    (value,), (given,), made = node.inputs, recipe.inputs, recipe.spec
    source, nbytes = value.address + node.offsets[0] * given.dtype.itemsize, given.nbytes
    block: Any
    memory = getattr(value.address, "memory", None)
    if made.device is CPU:
        block = allocate(size_class(nbytes))
        _copy(owner, "cuMemcpyDtoHAsync_v2", block, source, nbytes)
        owner.driver.call("cuStreamSynchronize", gpu.current_stream(owner.index))
    elif memory.__class__ is gpu.PinnedMemory:
        block = _bring(owner, memory, source, nbytes)
    else:
        block = owner.pool.allocate(nbytes)
        if given.device is CPU:
            _copy(owner, "cuMemcpyHtoDAsync_v2", block, source, nbytes)
        elif given.device is made.device:
            _copy(owner, "cuMemcpyDtoDAsync_v2", block, source, nbytes)
        else:
            _copy_from_peer(owner, gpu_of(given.device), block, source, nbytes)
    node.address, node.recipe = block, None


def _bring(owner: Gpu, memory: gpu.PinnedMemory, source: int, nbytes: int) -> Any:
    """A block with bytes of page-locked memory. Many travel on a stream of their own, beside what the
    GPU computes meanwhile; what comes waits for them."""
    stream = gpu.current_stream(owner.index)
    event = owner.driver.new_event(timing=False)
    with gpu.on_stream(owner.index, owner.copy_stream if nbytes >= BESIDE else stream):
        block = owner.pool.allocate(nbytes)
        _copy(owner, "cuMemcpyHtoDAsync_v2", block, source, nbytes)
        owner.driver.call("cuEventRecord", event, gpu.current_stream(owner.index))
    memory.copies.append(event)
    if block.stream != stream:
        owner.driver.call("cuStreamWaitEvent", stream, event, 0)
        block.users = (stream,)
    return block


def _copy_from_peer(owner: Gpu, other: Gpu, target: int, source: int, nbytes: int) -> None:
    """Copy from another GPU. Both wait: neither knows when a block of the other is free again."""
    other.synchronize(gpu.current_stream(other.index))
    owner.driver.use(owner.index)
    stream = gpu.current_stream(owner.index)
    contexts = owner.driver.context(owner.index), other.driver.context(other.index)
    if nbytes:
        owner.driver.call(
            "cuMemcpyPeerAsync", target, contexts[0], source, contexts[1], nbytes, stream
        )
    owner.synchronize(stream)


def copied(value: Any, nbytes: int, place: device) -> Any:
    """A value like another one on a GPU, with a copy of its bytes."""
    owner = gpu_of(place)
    owner.driver.use(owner.index)
    made = value.__class__()
    made.recipe = made.inputs = made.offsets = made.call_site = None
    made.scalars = ()
    made.address = owner.pool.allocate(nbytes)
    _copy(owner, "cuMemcpyDtoDAsync_v2", made.address, value.address, nbytes)
    return made


def fresh_block(place: device, nbytes: int) -> Any:
    """Memory on a GPU, its bytes undefined."""
    return gpu_of(place).pool.allocate(nbytes)
