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

    __slots__ = ("address", "emitted", "label", "name", "origin", "text")

    def __init__(self, name: str, text: str, origin: Any = None) -> None:
        self.name, self.label, self.text = name, name, text
        self.address = 0  # of the compiled kernel, once it is linked
        self.emitted: tuple[Any, int] | None = None  # a `Unit` of several, and which of them it is
        # What the text was made of, and its CUDA side will be: a `Flat`, a function of the kernels
        # room and the dtypes of its letters, or a `Text`.
        self.origin = origin


class Step:
    """One kernel over `n` units of work, split over threads down to `grain` units."""

    __slots__ = ("grain", "n", "source")

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


_serials = itertools.count()


def place_of(specs: tuple[Any, ...]) -> device:
    """Where a node with such operands and results runs: on the GPU that one of them is on."""
    return next((s.device for s in specs if s is not None and s.device is not CPU), CPU)


class Recipe:
    """How one kind of node runs on operands of given specs; shared by all nodes that do the same.

    `plain` recipes have one step and one result and take the short road through `settle`.
    """

    __slots__ = (
        "__weakref__", "activation", "alias", "careful", "constants", "count", "crosses", "device",
        "device_steps", "draw", "element", "fallible", "finishes", "fold", "head", "here", "in_place",
        "inputs", "itemsizes", "large", "late", "launches", "moves", "name", "nbytes", "outputs", "over",
        "pick", "picks", "plain", "room", "row", "scalars", "scratch", "serial", "size", "sizes", "spec",
        "steps", "wants", "wide", "write",
    )  # fmt: skip

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
        self.serial = next(_serials)  # what stands for it in keys
        self.name, self.inputs, self.outputs, self.steps = name, inputs, outputs, steps
        self.constants = constants
        self.scratch, self.fallible = scratch, fallible
        self.spec: Any = outputs[0] if outputs else None
        self.device = place_of((*outputs, *inputs))
        self.device_steps: list[DeviceStep] | None = None  # what runs it on a GPU
        self.launches: Any = None  # run_cuda.Launch for each of them, once its kernel is loaded
        self.sizes = tuple(size_class(spec.nbytes) for spec in outputs)
        self.size = self.sizes[0] if outputs else 0
        self.nbytes = sum(self.sizes) + scratch  # that running it takes
        # What memory it wants, for results and then for scratch: how much, and where small blocks wait.
        spare = (size_class(scratch),) if scratch else ()
        self.wants = tuple([Wanted(size, free_small.get(size)) for size in (*self.sizes, *spare)])
        self.itemsizes = tuple([0 if s is None else s.dtype.itemsize for s in inputs])
        self.scalars = scalars  # Python numbers among the words of a row
        self.count = len(inputs) + len(outputs) + len(constants) + scalars
        if scratch:
            self.count += 1
        if fallible is not None:
            self.count += 1
        self.head: tuple[
            int, ...
        ] = ()  # of its rows of words, one after the other, once they are linked
        self.room = len(steps) * (HEADER + self.count) + COPY_ROOM  # words of its rows at most
        self.large = any(step.n >= 2 * step.grain for step in steps)
        self.plain = len(steps) == 1 and len(outputs) == 1 and not scratch and fallible is None
        self.pick = -1  # >= 0: no kernel, the extra result of that number of the only input
        # Whether it also reads or writes the memory of another device.
        self.crosses = any(
            s is not None and s.device is not self.device for s in (*outputs, *inputs)
        )
        self.moves = False  # no kernel, a copy of bytes from one device to another
        self.write = NO_WRITE  # else input 1 goes into a part of input 0
        self.alias: Recipe | None = None  # the same, writing over its input 0
        self.in_place: Recipe | None = (
            None  # the same, with that to be run whoever looks at input 0
        )
        self.picks: list[Recipe] | None = None  # what picks each of the results, once asked for
        self.here = False  # whether that is to be run, whoever looks at input 0
        self.careful = False  # whether what fails has not written anything over its input
        self.over = 0  # so many results may take over the memory of the inputs of their numbers
        self.element: Element | None = None
        self.activation = -1  # >= 0: which of the constants says what is done to the result
        self.finishes = False  # whether it can take over what is done to its result
        # What says anew, whenever it is recorded, where its random numbers begin: its last scalars.
        self.draw: Callable[[], tuple[int, int, int]] | None = None
        self.late = 0  # so many of the inputs have their words behind the constants
        self.fold: Reduction | None = None
        self.row: RowCall | None = None
        self.wide = 0  # elements, where they are enough to be fused


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
