"""What running a node takes: kernels, sizes of the work and of the results, constant words."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...devices import CPU, device
from ...dtypes import dtype
from ...kernels.language.abi import Row
from ...kernels.runtime.runner import HEADER
from ...storage import free_small, size_class
from ...unknown import is_unknown

COPY_ROOM = HEADER + 2  # words of the row in front of a write that copies all of the old value
# How a recipe writes into a part of an old value: not at all, in a copy where others look, or in its bytes.
NO_WRITE, COPY, IN_PLACE = "", "copy", "here"
GRAIN = 1 << 15  # element operations below which a step is not worth a second thread


class Text(NamedTuple):
    """The origin of a kernel that is as it was written; `width` says which of its constant words are
    the elements of a row, or strip, that a unit goes through: -1 if none is."""

    width: int


class Source:
    """The text of a kernel; `name` is the function in it, `label` what reports call it."""

    __slots__ = ("address", "label", "name", "origin", "text", "unit")

    def __init__(self, name: str, text: str, origin: Any = None) -> None:
        self.name, self.label, self.text = name, name, text
        self.address = 0  # of the compiled kernel, once it is linked
        # The `CompilationUnit` that it belongs to, and its place in that, once that is known.
        self.unit: tuple[Any, int] | None = None
        # What the text was made of, and its CUDA side will be: a `Flat`, a function of the kernels
        # room and the dtypes of its letters, or a `Text`.
        self.origin = origin


class Step:
    """One kernel over `n` units of work, split over threads down to `grain` units."""

    __slots__ = ("grain", "n", "source")
    of_sizes = ("n", "grain")

    def __init__(self, source: Source, n: int, grain: int) -> None:
        self.source, self.n, self.grain = source, n, max(grain, 1)


class Operand(NamedTuple):
    """An input or a result of an elementwise kernel."""

    name: str
    dtype: dtype
    strides: tuple[int, ...] | None  # in the shape of the loop; None for a Python number


class Flat(NamedTuple):
    """What a kernel that goes over elements is made of; see `loops.render`."""

    name: str
    lines: tuple[str, ...]
    imports: dict[str, str]
    compute: dtype | None
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    logical: frozenset[str]
    flags: str
    nested: bool
    short: ShortRows | None = None
    whole: frozenset[str] = frozenset()


class ShortRows(NamedTuple):
    """Rows of a strided loop that have few elements."""

    width: int
    steps: tuple[
        int, ...
    ]  # of each operand in memory from row to row; -1: one that the text does not know


class Element(NamedTuple):
    """A scalar body over a shape: what fusion needs to know of an elementwise recipe."""

    body: Any  # schedule.body.Body
    wanted: tuple[int, ...]  # the results of the body, in the order of `outputs`
    compute: dtype
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    shape: tuple[int, ...]

    def turned(self, order: Sequence[int]) -> Element:
        """The same with its axes in another order."""
        if [*order] == [*range(len(self.shape))]:
            return self
        inputs, outputs = (
            tuple(
                [
                    o if o.strides is None else o._replace(strides=_picked(o.strides, order))
                    for o in operands
                ]
            )
            for operands in (self.inputs, self.outputs)
        )
        shape = _picked(self.shape, order)
        return self._replace(inputs=inputs, outputs=outputs, shape=shape)


def _picked(values: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    return tuple([values[d] for d in order])


class Reduction(NamedTuple):
    """A reduction of the rows or columns of matrices in C order: what fusion needs to know of it.

    `words` are, by rows, the length of a row, the elements of a chunk, the chunks of a row; by
    columns the rows of a matrix, its columns, the rows of a chunk, the chunks of a matrix.
    """

    how: str  # "sum", "squares", "max" and "min" of rows, "columns" for sums of columns
    given: dtype
    result: dtype
    words: tuple[int, ...]

    @property
    def by_rows(self) -> bool:
        return self.how != "columns"


class RowCall(NamedTuple):
    """A kernel that does the same to each row: what fusion needs to know of such a recipe."""

    row: Row
    kind: dtype
    words: tuple[int, ...]  # the length of a row, and what follows it


class Wanted(NamedTuple):
    """Memory that running a node takes."""

    size: int  # a size class
    free: list[Any] | None  # where the pool keeps blocks of that size, if they are small


serials = itertools.count()


class MemoryOfOne(NamedTuple):
    """The memory of a single result."""

    sizes: tuple[int]
    wants: tuple[Wanted]


memories: dict[int, MemoryOfOne] = {}  # by size class, of which there are some hundred


def memory_of_one(size: int) -> MemoryOfOne:
    """The memory of a single result of a size class."""
    found = memories.get(size)
    if found is None:
        found = memories[size] = MemoryOfOne((size,), (Wanted(size, free_small.get(size)),))
    return found


def place_of(specs: tuple[Any, ...]) -> device:
    """Where a node with such operands and results runs: on the GPU that one of them is on."""
    for s in specs:
        if s is not None and s.device is not CPU:
            return s.device
    return CPU


class NamedRows(NamedTuple):
    """Input 0 with rows added that input 1 names: what input 2 has for each.

    Where input 0 is zeros, which a node tells, that is a table which is zero but for these rows. Whoever needs
    no more of it than them never asks for it; see `deferred.py`.
    """

    size: int  # how many indices
    inner: int  # elements of a row
    step: int  # elements from one row of the values to the next
    skipped: int  # an index that does not count
    axes: tuple[int, ...]  # as kernels on tables have them
    messages: tuple[tuple[int, Any], ...]  # what an index that is out of bounds raises


class Fusible(NamedTuple):
    """What fusion needs to know of a recipe; of one that has none of these it knows nothing."""

    element: Element | None = None
    fold: Reduction | None = None
    row: RowCall | None = None
    wide: int = 0  # elements, where they are enough to be fused
    activation: int = -1  # >= 0: which of the constants says what is done to the result
    finishes: bool = False  # whether it can take over what is done to its result
    rows: NamedRows | None = None
    adds: bool = False  # whether it is the sum of all its inputs, from the first to the last


# A recipe says four things, a class for each. They are one object: machine code reads some of all of them for
# every node that it records or runs, each with one load.


class NodeSignature:
    """What a node takes and gives."""

    __slots__ = ("crosses", "device", "inputs", "itemsizes", "name", "outputs", "serial", "spec")
    name: str
    serial: int  # what stands for it in keys
    inputs: tuple[Any, ...]  # specs
    outputs: tuple[Any, ...]
    spec: Any  # of the first result
    itemsizes: tuple[int, ...]  # of the inputs
    device: device  # where it runs
    crosses: bool  # whether it also reads or writes the memory of another device


class KernelRows(NodeSignature):
    """The kernels that do it, and the rows of words that they read."""

    __slots__ = (
        "constants", "count", "device_steps", "head", "large", "late", "launches", "room", "scalars", "steps",
    )  # fmt: skip
    steps: list[Step]
    constants: tuple[int, ...]  # words
    scalars: int  # Python numbers among the words of a row
    late: int  # so many of the inputs have their words behind the constants
    count: int  # words of a row without its header
    head: tuple[int, ...]  # of the rows, one after the other, once they are linked
    room: int  # words of the rows at most
    large: bool  # whether there is work for several threads
    device_steps: list[DeviceStep] | None  # what runs it on a GPU
    launches: Any  # run_cuda.Launch for each of them, once its kernel is loaded


class MemoryUse(KernelRows):
    """The memory that it takes, and what of it may be that of its inputs."""

    __slots__ = (
        "alias", "careful", "here", "in_place", "nbytes", "over", "scratch", "sizes", "wants", "write",
    )  # fmt: skip
    sizes: tuple[int, ...]  # size classes of the results
    scratch: int  # bytes
    nbytes: int  # that running it takes
    wants: tuple[
        Wanted, ...
    ]  # for results and then for scratch: how much, and where small blocks wait
    write: str  # whether, and how, input 1 goes into a part of input 0
    alias: Recipe | None  # the same, writing over its input 0
    here: tuple[
        bool, ...
    ]  # for the first inputs, whether they are written over whoever looks at them
    in_place: Recipe | None  # the one of which that is so, once asked for
    careful: bool  # whether what fails has not written anything over its input
    over: int  # so many results may take over the memory of the inputs of their numbers


class Recipe(MemoryUse):
    """How one kind of node runs on operands of given specs; shared by all nodes that do the same.

    Those that `can_take_fast_path` have one step and one result: machine code runs them.
    """

    __slots__ = (
        "__weakref__",
        "can_take_fast_path",
        "draw",
        "fallible",
        "fusion",
        "is_resized",
        "moves",
        "pick",
        "picks",
    )
    can_take_fast_path: bool
    pick: int  # >= 0: no kernel, the extra result of that number of the only input
    picks: list[Recipe] | None  # what picks each of the results, once asked for
    is_resized: bool  # whether a template has made it, as sizes are ever others
    moves: bool  # no kernel, a copy of bytes from one device to another
    fusion: Fusible
    fallible: Callable[[tuple[int, ...]], Exception] | None  # the error behind status words
    # What says anew, whenever it is recorded, where its random numbers begin: its last scalars.
    draw: Callable[[], tuple[int, int, int]] | None

    def __init__(
        self,
        name: str,
        inputs: tuple[Any, ...],
        outputs: tuple[Any, ...],
        steps: list[Step],
        constants: tuple[int, ...] = (),
        *,
        scalars: int = 0,
        scratch: int = 0,
        fallible: Callable[[tuple[int, ...]], Exception] | None = None,
    ) -> None:
        self.name, self.serial = name, next(serials)
        self.inputs, self.outputs = inputs, outputs
        self.spec = outputs[0] if outputs else None
        self.itemsizes = tuple([0 if s is None else s.dtype.itemsize for s in inputs])
        self.device = place = place_of((*outputs, *inputs))
        self.crosses = place is not CPU and any(
            s is not None and s.device is not place for s in (*outputs, *inputs)
        )
        self.steps, self.constants, self.scalars, self.late = steps, constants, scalars, 0
        self.count = len(inputs) + len(outputs) + len(constants) + scalars
        self.count += bool(scratch) + (fallible is not None)
        self.head = ()
        self.room = len(steps) * (HEADER + self.count) + COPY_ROOM
        self.large = any(step.n >= 2 * step.grain for step in steps)
        self.device_steps = self.launches = None
        self.scratch = scratch
        self._find_memory(outputs, scratch)
        self.write, self.over = NO_WRITE, 0
        self.alias = self.in_place = None
        self.here = ()
        self.careful = False
        self.can_take_fast_path = (
            len(steps) == 1 and len(outputs) == 1 and not scratch and fallible is None
        )
        self.pick, self.picks, self.moves, self.is_resized = -1, None, False, False
        self.fusion, self.fallible, self.draw = Fusible(), fallible, None

    def resized(
        self,
        inputs: tuple[Any, ...],
        outputs: tuple[Any, ...],
        steps: list[Step],
        constants: tuple[int, ...],
        scratch: int,
        fusion: Fusible,
        alias: Recipe | bool | None,
        picks: list[Recipe] | None,
        draw: Callable[[], tuple[int, int, int]] | None,
    ) -> Recipe:
        """The same on operands of other sizes; `alias` is True where that is itself."""
        made = Recipe.__new__(Recipe)
        made.name, made.serial = self.name, next(serials)
        made.inputs, made.outputs, made.spec = inputs, outputs, outputs[0] if outputs else None
        made.itemsizes, made.device, made.crosses = self.itemsizes, CPU, False
        made.steps, made.constants = steps, constants
        made.scalars, made.late = self.scalars, self.late
        made.write, made.over = self.write, self.over
        made.here, made.careful = self.here, self.careful
        made.count, made.room, made.scratch = self.count, self.room, scratch
        made.device_steps = made.launches = made.in_place = None
        made.picks = picks
        if len(steps) == len(outputs) == 1 and not scratch:  # the usual case, in half the time
            step, size = steps[0], size_class(made.spec.nbytes)
            made.large = step.n >= 2 * step.grain
            made.nbytes = size
            made.sizes, made.wants = memory_of_one(size)
            address, words = step.source.address, self.count - bool(self.write)
            made.head = (address, step.n, step.grain, words) if address else ()
        else:
            made.large = any(step.n >= 2 * step.grain for step in steps)
            made._find_memory(outputs, scratch)
            made.head = ()
            if steps:
                made.find_heads()
        made.alias = made if alias is True else alias or None
        made.can_take_fast_path, made.pick, made.moves = self.can_take_fast_path, self.pick, False
        made.is_resized = True
        made.fusion, made.fallible, made.draw = fusion, self.fallible, draw
        return made

    def _find_memory(self, outputs: tuple[Any, ...], scratch: int) -> None:
        """Find what memory running it takes."""
        if any(map(is_unknown, [scratch, *[spec.nbytes for spec in outputs]])):  # it never runs
            self.sizes, self.nbytes, self.wants = (), 0, ()
            return
        self.sizes = tuple([size_class(spec.nbytes) for spec in outputs])
        self.nbytes = sum(self.sizes) + scratch
        spare = (size_class(scratch),) if scratch else ()
        self.wants = tuple([Wanted(size, free_small.get(size)) for size in (*self.sizes, *spare)])

    def heads(self, kernels: Sequence[int]) -> tuple[int, ...]:
        """The first words of its rows, given where its kernels begin."""
        arguments = self.count - bool(self.write)  # one has the old value's memory as its result
        return tuple(
            [
                word
                for kernel, step in zip(kernels, self.steps, strict=True)
                for word in (kernel, step.n, step.grain, arguments)
            ]
        )

    def find_heads(self) -> None:
        """Let machine code run it at once, if its kernels are there."""
        kernels = [step.source.address for step in self.steps]
        if self.device is CPU and all(kernels):
            self.head = self.heads(kernels)


class DeviceSource(NamedTuple):
    """The text of a kernel for a GPU, and how it is launched.

    Its parameters are the words of the row that the CPU kernel of the same step reads, each one of
    them, and then the units of work: parameter `k` of a launch lies at word `k`. In `signature`
    "*float32" is a pointer to float32, "int32" the low half of a word; a word of type "float32" or
    "float64" holds the bits of a float64, which a launch narrows. Blocks have `threads` threads and
    do `units` units of work at once. A launch gives them `shared` bytes of memory that they share:
    `bytes_each` for each element of a row that a unit goes through, and some that do not depend on it.
    A kernel `by_table` finds its row in the GPU's memory, the number of its words before it; its
    parameters are the address of the row and the units of work.
    """

    name: str
    text: str
    signature: tuple[str, ...]
    threads: int
    units: int
    label: str
    shared: int = 0
    bytes_each: int = 0
    by_table: bool = False

    def grid(self, n: int, most: int) -> int:
        """Blocks for `n` units of work, at most so many: a kernel works for every grid."""
        return max(1, min(-(-n // self.units), most))


class DeviceStep(NamedTuple):
    """One launch over `n` units of work; `n` is also the word that follows the row, and `more`."""

    source: DeviceSource
    n: int
    more: tuple[int, ...] = ()
