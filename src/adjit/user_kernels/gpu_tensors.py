"""Kernels on tensors of a GPU: the code for them, and what there is to do with its results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import devices
from ..graph.node import dense_spec
from ..graph.primitives import empty, number
from ..tensor import Tensor
from .dispatch import types_of
from .gpu_files import generated_on_gpu
from .gpu_run import GpuArray
from .source import Meaning

if TYPE_CHECKING:
    from .generated import GeneratedFile


class GpuFiles:
    """The files of a kernel for arrays on GPUs, until a name that it reads has another value."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.meaning: Meaning | None = None
        self.known: dict[object, GeneratedFile] = {}

    def find(self, values: Sequence[Any], wrt: tuple[int, ...] | None) -> GeneratedFile:
        if self.meaning is None or not self.meaning.is_current():
            self.known.clear()
            self.meaning = Meaning(self.function)
        key = tuple([_kind(v) for v in values]), wrt
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = generated_on_gpu(self.function, types_of(values), wrt)
        return found


def _kind(value: Any) -> object:
    return (value.dtype, len(value.shape)) if isinstance(value, GpuArray) else type(value)


def place_of(name: str, values: Sequence[Any]) -> devices.device | None:
    """The GPU that the arrays among values lie on, None if they lie on the CPU.

    Raises:
        RuntimeError: if they do not all lie on one device.
    """
    arrays = [v for v in values if isinstance(v, (GpuArray, np.ndarray))]
    places = {v.place if isinstance(v, GpuArray) else devices.CPU for v in arrays}
    if len(places) > 1:
        found = " and ".join(sorted(map(str, places)))
        raise RuntimeError(f"the arrays of {name} must lie on one device, found {found}")
    place = next(iter(places), devices.CPU)
    return None if place is devices.CPU else place


def results_on(place: devices.device, results: Sequence[Any], kinds: Sequence[Any]) -> list[Any]:
    """Tensors of floats and arrays; whole numbers as they are."""
    return [
        r.item()
        if kind is None and isinstance(r, np.generic)
        else r
        if kind is None
        else r.tensor
        if isinstance(r, GpuArray)
        else number(r, kind).to(place)
        for r, kind in zip(results, kinds, strict=True)
    ]


def memory_on(place: devices.device, t: Tensor) -> Tensor:
    """A dense tensor of undefined elements."""
    made: Tensor = empty(dense_spec(t._spec.shape, t._spec.dtype, place))
    return made
