"""What a GPU would compute: recorded nodes, run on their device kernels in the simulator."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from adjit.cuda.simulator import Simulation
from adjit.schedule import dispatch, plan_cache, settle


def check(
    make: Callable[[], Any], *, blocks: int = 2, exact: bool = True, size: float = 0
) -> list[Any]:
    """See that the device kernels of all that `make` records give what the CPU's kernels give.

    Every step runs twice: forwards on `blocks` blocks, so that threads go on to further units, and
    backwards on as many as there is work for. Floats have the same bits, or nearly so if not `exact`,
    or differ by `size` at most. Returns the steps.
    """
    settle.settle()
    runs = [Simulation(blocks, False), Simulation(None, True)]
    with Intercepted(runs):
        made = make()
        results = [made] if hasattr(made, "_storage") else [*made]
        settle.settle()
    assert runs[0].steps, "nothing was recorded"
    for run in runs:
        for result in results:
            value, spec = result._storage.value, result._storage.spec
            if id(value) not in run.memory:  # an argument of `make`
                continue
            wanted = array_of(value, spec)
            # What was chosen by values is the beginning of memory that has room for all.
            found = run.memory[id(value)][0][: wanted.size]
            if size:
                np.testing.assert_allclose(found, wanted, rtol=0, atol=size)
            elif exact or found.dtype.kind != "f":
                np.testing.assert_array_equal(found, wanted)
            else:
                few = 16 * np.finfo(found.dtype).eps
                np.testing.assert_allclose(found, wanted, rtol=few, atol=few)
    return runs[0].steps


class Intercepted:
    """Lets simulations run the nodes that come to the cold road before the CPU does."""

    def __init__(self, runs: list[Simulation]) -> None:
        self.runs = runs

    def run(self, batch: list[Any]) -> None:
        for run in self.runs:
            run.add(batch)
        self.kept[0](batch)

    def __enter__(self) -> None:
        self.kept = dispatch.run, plan_cache.is_on
        dispatch.run, plan_cache.is_on = self.run, False

    def __exit__(self, *_: object) -> None:
        dispatch.run, plan_cache.is_on = self.kept


def array_of(node: Any, spec: Any) -> Any:
    """A copy of the elements of a node that has run."""
    kind = np.dtype(spec.dtype.stored)
    data = ctypes.string_at(int(node.address), max(spec.extent, spec.numel) * kind.itemsize)
    return np.frombuffer(data, kind).copy()
