"""What a GPU would compute: recorded nodes, run on their device kernels in the simulator."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from adjit.cuda import simulator
from adjit.cuda.simulator import Pointer, poisoned
from adjit.schedule import cold, hot, settle
from adjit.schedule.on_cuda import device_steps


def check(make: Callable[[], Any], *, blocks: int = 2, exact: bool = True) -> list[Any]:
    """See that the device kernels of all that `make` records give what the CPU's kernels give.

    Every step runs twice: forwards on `blocks` blocks, so that threads go on to further units, and
    backwards on as many as there is work for. Returns the steps.
    """
    settle.settle()
    runs = [Simulation(blocks, False), Simulation(None, True)]
    with Intercepted(runs):
        made = make()
        results = [made] if hasattr(made, "storage") else [*made]
        settle.settle()
    assert runs[0].steps, "nothing was recorded"
    for run in runs:
        for result in results:
            value, spec = result.storage.value, result.storage.spec
            if id(value) not in run.memory:  # an argument of `make`
                continue
            found, wanted = run.memory[id(value)][0], array_of(value, spec)
            if exact or found.dtype.kind != "f":
                np.testing.assert_array_equal(found, wanted)
            else:
                size = 16 * np.finfo(found.dtype).eps
                np.testing.assert_allclose(found, wanted, rtol=size, atol=size)
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
        self.kept = cold.run, hot.is_on
        cold.run, hot.is_on = self.run, False

    def __exit__(self, *_: object) -> None:
        cold.run, hot.is_on = self.kept


def array_of(node: Any, spec: Any) -> Any:
    """A copy of the elements of a node that has run."""
    kind = np.dtype(spec.dtype.stored)
    data = ctypes.string_at(int(node.address), max(spec.extent, spec.numel) * kind.itemsize)
    return np.frombuffer(data, kind).copy()


class Simulation:
    """The results of recorded nodes, by the identity of the node."""

    def __init__(self, blocks: int | None, reverse: bool) -> None:
        self.memory: dict[int, list[Any]] = {}
        self.blocks, self.reverse = blocks, reverse
        self.steps: list[Any] = []
        self.kept: list[Any] = []  # the nodes: an identity must not come back

    def add(self, nodes: list[Any]) -> None:
        """Run nodes in order."""
        self.kept += nodes
        for node in nodes:
            if node.recipe is not None:
                self._run(node)

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
            words = [*row]
            if recipe.scratch:
                words.append(scratch)
            if recipe.fallible is not None:
                words.append(status)
            words += recipe.constants
            words += node.scalars
            words.append(step.n)
            kinds = step.source.signature
            fitted = [_fitted(w, k) for w, k in zip(words, kinds, strict=True)]
            if step.n:
                simulator.run(step.source, fitted, blocks=self.blocks, reverse=self.reverse)
            self.steps.append(step)
        assert not status.any(), status
        self.memory[id(node)] = made

    def _pointer(self, value: Any, offset: int, spec: Any) -> Pointer:
        known = self.memory.get(id(value))
        if known is not None:
            return Pointer(known[0], offset)
        assert value.recipe is None
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
    if kind in ("float32", "float64"):
        return np.array(word, np.int64).view(np.float64)[()]
    return word
