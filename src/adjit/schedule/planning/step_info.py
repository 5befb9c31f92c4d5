"""What the steps of a plan are, told to people: kernels, operands and their places, bytes."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .recipe import Recipe, Source

if TYPE_CHECKING:
    from .memory import MemorySlot


class OperandInfo(NamedTuple):
    """A value that a step reads or writes."""

    name: str  # in the source of the kernel, where it has one there
    place: MemorySlot | None  # None where nothing is planned
    nbytes: int
    value: int  # its number in the plan, negative from outside


class StepInfo(NamedTuple):
    """A step."""

    source: Source
    elements: int
    nodes: tuple[int, ...]  # the positions in the batch of what it computes
    reads: tuple[OperandInfo, ...]
    writes: tuple[OperandInfo, ...]
    scratch: tuple[OperandInfo, ...]
    nbytes: int  # that it moves


class PackedNotes:
    """The notes of a plan, as bytes until somebody asks.

    A plan of 4,000 nodes would otherwise keep 60,000 objects alive for them, 14 MiB, through which
    every full collection of cycles goes.
    """

    def __init__(self, notes: Sequence[StepInfo]) -> None:
        numbers: dict[Any, int] = {}
        bare = [n._replace(source=numbers.setdefault(n.source, len(numbers))) for n in notes]  # type: ignore[arg-type]
        self._sources = list(numbers)
        self._bytes = zlib.compress(pickle.dumps(bare), 1)

    def unpacked(self) -> list[StepInfo]:
        """The notes."""
        return [
            n._replace(source=self._sources[n.source])
            for n in pickle.loads(zlib.decompress(self._bytes))
        ]


def node_infos(
    recipe: Recipe,
    nodes: tuple[int, ...],
    reads: Iterable[tuple[MemorySlot | None, int]],
    writes: Iterable[tuple[MemorySlot | None, int]],
    scratch: Sequence[MemorySlot] = (),
) -> list[StepInfo]:
    """The steps of one item, given its nodes, and the places and numbers of its operands.

    Of several steps the first is charged with what the item reads, the last with what it writes.
    """
    if recipe.fusion.element is None:
        given = [f"x{k}" for k in range(len(recipe.inputs))]
        made = [f"out{k}" for k in range(len(recipe.outputs))]
    else:
        given = [o.name for o in recipe.fusion.element.inputs if o.strides is not None]
        made = [o.name for o in recipe.fusion.element.outputs]
    taken = _uses(given, reads, recipe.inputs)
    left = _uses(made, writes, recipe.outputs)
    spare = tuple([OperandInfo("scratch", place, recipe.scratch, -1) for place in scratch])
    elements = max([spec.numel for spec in (*recipe.inputs, *recipe.outputs)], default=0)
    notes = []
    for k, step in enumerate(recipe.steps):
        nbytes = sum([use.nbytes for use in taken]) if k == 0 else 0
        if k == len(recipe.steps) - 1:
            nbytes += sum([use.nbytes for use in left])
        notes.append(StepInfo(step.source, elements, nodes, taken, left, spare, nbytes))
    return notes


def _uses(
    names: Sequence[str], operands: Iterable[tuple[MemorySlot | None, int]], specs: Sequence[Any]
) -> tuple[OperandInfo, ...]:
    return tuple(
        [
            OperandInfo(name, place, spec.nbytes, value)
            for name, (place, value), spec in zip(names, operands, specs, strict=True)
        ]
    )


def copy_info(
    source: Source,
    spec: Any,
    node: int,
    read: tuple[MemorySlot | None, int],
    write: tuple[MemorySlot | None, int],
) -> StepInfo:
    """A step that copies the elements of a spec."""
    nbytes = spec.numel * spec.dtype.itemsize
    reads, writes = (
        OperandInfo("x", read[0], nbytes, read[1]),
        OperandInfo("out", write[0], nbytes, write[1]),
    )
    return StepInfo(source, spec.numel, (node,), (reads,), (writes,), (), 2 * nbytes)
