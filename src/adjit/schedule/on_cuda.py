"""The CUDA side of recipes: which device kernels run a node, over which words."""

from __future__ import annotations

from collections.abc import Sequence

from . import codegen_cuda, units_cuda
from .recipe import AS_IT_IS, DeviceSource, DeviceStep, Flat, Recipe, Source

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
    return [
        device_step(step.source, step.n, recipe.constants, most, recipe.count)
        for step in recipe.steps
    ]


def device_step(
    source: Source, n: int, constants: Sequence[int], most: int, count: int
) -> DeviceStep:
    """The CUDA side of one step over `n` units of the CPU's.

    `constants` are the words of its row after the addresses, `most` the elements that the largest
    of its operands reaches over, `count` the words of the row.

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
        key = (source.text, axes, index)
        made = _flat.get(key)
        if made is None:
            made = _flat[key] = codegen_cuda.elementwise(origin, axes, index)
        return DeviceStep(made, n)
    if origin is None:
        raise NotImplementedError(
            f"{source.label} has no CUDA side yet; move its operands to the CPU with .cpu()"
        )
    units = _by_units.get((source.text, count))
    if units is None:
        if origin == AS_IT_IS:
            units = units_cuda.by_text(source, count)
        else:
            function, bind = origin
            units = units_cuda.by_units(function, bind, count)
        _by_units[source.text, count] = units
    device = None if origin == AS_IT_IS else getattr(origin[0], "device", None)
    if device is not None and device.launch.work is not None:
        n = device.launch.work(constants)
    return DeviceStep(units, n)


_flat: dict[tuple[str, int, str], DeviceSource] = {}
_by_units: dict[tuple[str, int], DeviceSource] = {}
