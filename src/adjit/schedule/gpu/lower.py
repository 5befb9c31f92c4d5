"""The CUDA side of recipes: which device kernels run a node, over which words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...kernels.language import device
from ...kernels.on_gpu.block import MOST_THREADS, PARTS_BYTES
from ...kernels.runtime import launcher
from ..codegen import loops_cuda, units_cuda
from ..planning.recipe import DeviceSource, DeviceStep, Flat, Recipe, Source, Text

OF_A_WARP = 256  # elements of a row that are worth a warp of their own
ROW_OF_MOST = OF_A_WARP * MOST_THREADS // 32
MOST_BY_INT32 = 1 << 30  # elements up to which places and strides of threads fit


def device_steps(recipe: Recipe) -> list[DeviceStep]:
    """What runs a node with this recipe on a GPU, in order, all over the same row of words.

    The row is that of the CPU: the addresses of inputs, of results, of `recipe.scratch` bytes and
    of the status words (where `fallible`), `recipe.constants`, the Python numbers.

    Raises:
        NotImplementedError: if one of its kernels has no CUDA side yet.
    """
    specs = [*recipe.inputs, *recipe.outputs]
    most = max([max(s.extent, s.numel) for s in specs], default=0)
    varies = recipe.scalars > 0 or recipe.fallible is not None
    steps = []
    for step in recipe.steps:
        passes = passes_of(step.source, recipe.constants)
        made = device_step(
            step.source, step.n, recipe.constants, most, recipe.count + len(passes[0]), varies
        )
        steps += [made._replace(more=words) for words in passes]
    return steps


def passes_of(source: Source, constants: Sequence[int]) -> list[tuple[int, ...]]:
    """The words behind the row of each launch that does a step."""
    origin = source.origin
    if isinstance(origin, Flat | Text | None):
        return [()]
    side = device.device_side(origin[0], constants, origin[1])
    return side.launch.passes(constants) if side is not None and side.launch.passes else [()]


def device_step(
    source: Source,
    n: int,
    constants: Sequence[int],
    most: int,
    count: int,
    varies: bool = False,
) -> DeviceStep:
    """The CUDA side of one step over `n` units of the CPU's.

    `constants` are the words of its row after the addresses, `most` the elements that the largest
    of its operands reaches over, `count` the words of the row. Rows that are long, or of which a word
    `varies` from run to run where no address does, are read from the GPU's memory.

    Raises:
        NotImplementedError: if the kernel has no CUDA side yet.
    """
    origin = source.origin
    index = "int32" if max(most, n) <= MOST_BY_INT32 else "int64"
    if isinstance(origin, Flat):
        axes = 0
        if origin.nested:
            axes, inner = constants[:2]
            n *= inner
        made = _flat.get((source.text, axes, index))
        if made is None:
            made = _flat[source.text, axes, index] = loops_cuda.elementwise(origin, axes, index)
        return DeviceStep(made, n)
    if origin is None:
        raise NotImplementedError(
            f"{source.label} has no CUDA side yet; move its operands to the CPU with .cpu()"
        )
    side = None
    if not isinstance(origin, Text):
        side = device.device_side(origin[0], constants, origin[1])
    by_table = varies or count >= launcher.MOST_PARAMETERS
    if by_table and side is not None and side.launch.passes is not None:
        raise NotImplementedError(
            f"{source.label} takes several launches, each with a row of its own"
        )
    any_count = by_table and count > units_cuda.MOST_VALUES
    key = source.text, by_table, 0 if any_count else count, side
    units = _by_units.get(key)
    if units is None:
        if isinstance(origin, Text):
            units = units_cuda.by_text(source, count, by_table)
        else:
            function, bind = origin
            units = units_cuda.by_units(function, bind, count, by_table, side=side)
        _by_units[key] = units
    width_at = units_cuda.width_word(origin)
    if width_at is not None:
        width = constants[width_at] if width_at >= 0 else ROW_OF_MOST
        return DeviceStep(for_rows(units, width), n)
    if side is not None and side.launch.work is not None:
        n = side.launch.work(constants)
    return DeviceStep(units, n)


def for_rows(source: DeviceSource, width: int) -> DeviceSource:
    """A kernel in which a block goes through rows, for rows of so many elements."""
    warps = min(-(-width // OF_A_WARP), MOST_THREADS // 32)
    room = -(-width // 16) * 16
    shared = PARTS_BYTES + source.bytes_each * room
    return source._replace(threads=32 * max(warps, 1), shared=shared)


_flat: dict[tuple[str, int, str], DeviceSource] = {}
_by_units: dict[tuple[str, bool, int, Any], DeviceSource] = {}
