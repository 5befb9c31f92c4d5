"""What a GPU would compute: recorded nodes, run on their device kernels in the simulator."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from adjit.cuda import simulator
from adjit.cuda.simulator import Pointer, poisoned
from adjit.schedule import settle
from adjit.schedule.on_cuda import device_steps


def check(make: Callable[[], Any], *, blocks: int = 2, exact: bool = True) -> list[Any]:
    """Record what `make` does and see that the device kernels give what the CPU's give.

    Every step runs twice: forwards on as few as `blocks` blocks, so that threads go on to further
    units, and backwards on as many as there is work. Returns the steps.
    """
    settle.settle()
    made = make()
    results = [made] if hasattr(made, "storage") else [*made]
    nodes = settle.tape[:]
    assert nodes, "nothing was recorded"
    runs = [Simulation(nodes, blocks, False), Simulation(nodes, None, True)]
    values = [r.storage.value for r in results]
    settle.settle()
    for run in runs:
        for result, value in zip(results, values, strict=True):
            found, wanted = run.memory[id(value)][0], result.detach()
            wanted = array_of(value, wanted.storage.spec if hasattr(wanted, "storage") else None)
            if exact or found.dtype.kind != "f":
                np.testing.assert_array_equal(found, wanted)
            else:
                size = 8 * np.finfo(found.dtype).eps
                np.testing.assert_allclose(found, wanted, rtol=size, atol=size)
    return runs[0].steps


def array_of(node: Any, spec: Any) -> Any:
    """A copy of the elements of a node that has run."""
    kind = np.dtype(spec.dtype.stored)
    data = ctypes.string_at(int(node.address), max(spec.extent, spec.numel) * kind.itemsize)
    return np.frombuffer(data, kind).copy()


class Simulation:
    """The results of recorded nodes, by the identity of the node."""

    def __init__(self, nodes: list[Any], blocks: int | None, reverse: bool) -> None:
        self.memory: dict[int, list[Any]] = {}
        self.blocks, self.reverse = blocks, reverse
        self.steps: list[Any] = []
        self.kept: list[Any] = []
        for node in nodes:
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
        self.kept.append(value)
        return Pointer(np.frombuffer(data, kind).copy(), offset)


def _fitted(word: Any, kind: str) -> Any:
    """A word as the launch of a kernel would narrow it."""
    if kind.startswith("*"):
        array = word.array if isinstance(word, Pointer) else word
        first = word.first if isinstance(word, Pointer) else 0
        return Pointer(array.view(kind[1:]), first)
    if kind in ("float32", "float64"):
        return np.array(word, np.int64).view(np.float64)[()]
    return word
