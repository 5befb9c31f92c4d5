"""Dimensions whose sizes are known only when a graph runs: what programs say, and larger inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..ops.creation import tensor
from ..tensor import Tensor
from .errors import OnnxExporterError
from .recording import array_of
from .sizes import Dimension

Axes = dict[str, dict[int, str]]  # the names of dimensions, by input or output

# How much larger dynamic dimensions are in further recordings, by the place of the dimension: not in one ratio,
# so that a number follows one of them only. Programs that need even sizes and the like run with multiples.
WAYS_TO_GROW = (
    (lambda n, k: n + 1 + k, lambda n, k: n + 3 + 5 * k),
    (lambda n, k: n * (2 + k), lambda n, k: n * (3 + 4 * k)),
)


def axes_of_names(given: Mapping[str, Any] | None) -> Axes:
    """`dynamic_axes`: for each name the dimensions, with names or without."""
    found: Axes = {}
    for name, axes in (given or {}).items():
        if isinstance(axes, Mapping):
            found[name] = {int(axis): str(called) for axis, called in axes.items()}
        else:
            found[name] = {axis: f"{name}_dynamic_axes_{k}" for k, axis in enumerate(axes, 1)}
    return found


def axes_of_shapes(given: Any, names: Sequence[str], parameters: Sequence[str]) -> Axes:
    """`dynamic_shapes`: for each argument the dimensions that have a name or a `Dim`.

    Args:
        given: by the names of arguments, or in their order.
        names: of the inputs in the graph.
        parameters: the names of the arguments that they came from.
    """
    if not isinstance(given, Mapping):
        given = dict(zip(parameters, given or (), strict=False))
    found: Axes = {}
    for parameter, axes in given.items():
        if parameter not in parameters:
            raise OnnxExporterError(
                f"dynamic_shapes names {parameter!r}; the tensors given are {', '.join(parameters)}"
            )
        if list(parameters).count(parameter) > 1:
            raise OnnxExporterError(
                f"dynamic_shapes of {parameter!r}, which has several tensors, is not read; name them by "
                f"dynamic_axes: {', '.join(names)}"
            )
        name = names[list(parameters).index(parameter)]
        pairs = axes.items() if isinstance(axes, Mapping) else enumerate(axes or ())
        told = {axis: dim for axis, dim in pairs if dim is not None and not isinstance(dim, int)}
        found[name] = {axis: _name_of(dim, f"{name}_dim_{axis}") for axis, dim in told.items()}
    return found


def _name_of(dim: Any, otherwise: str) -> str:
    return dim if isinstance(dim, str) else getattr(dim, "__name__", otherwise)


def sized(axes: Axes, inputs: Mapping[str, Tensor]) -> dict[str, list[tuple[str, int]]]:
    """The dynamic dimensions by name: the inputs and axes that have that size.

    Raises:
        OnnxExporterError: if an axis does not exist, or a name stands for two sizes.
    """
    found: dict[str, list[tuple[str, int]]] = {}
    for name, dims in axes.items():
        if name not in inputs:
            continue  # of an output
        shape = inputs[name].shape
        for axis, called in dims.items():
            if not -len(shape) <= axis < len(shape):
                raise OnnxExporterError(
                    f"input {name!r} of shape {tuple(shape)} has no dimension {axis}"
                )
            found.setdefault(called, []).append((name, axis % len(shape)))
    for called, places in found.items():
        sizes = {inputs[name].shape[axis] for name, axis in places}
        if len(sizes) > 1 or 0 in sizes:
            raise OnnxExporterError(
                f"the dynamic dimension {called!r} has the sizes {sorted(sizes)} in the inputs given; it needs "
                "one, of at least 1"
            )
    return found


def grown(
    inputs: Mapping[str, Tensor], places: Mapping[str, list[tuple[str, int]]], way: int, run: int
) -> dict[str, Tensor]:
    """The inputs of a further recording: their elements again along the dynamic dimensions."""
    found = dict(inputs)
    for k, where in enumerate(places.values()):
        for name, axis in where:
            size = inputs[name].shape[axis]
            rows = np.arange(WAYS_TO_GROW[way][run](size, k)) % size
            found[name] = tensor(array_of(found[name]).take(rows, axis))
    return found


def dimensions_of(
    places: Mapping[str, list[tuple[str, int]]], runs: Sequence[Mapping[str, Tensor]]
) -> list[Dimension]:
    """The dynamic dimensions, with their sizes in all recordings."""
    return [
        Dimension(called, *where[0], tuple(run[where[0][0]].shape[where[0][1]] for run in runs))
        for called, where in places.items()
    ]
