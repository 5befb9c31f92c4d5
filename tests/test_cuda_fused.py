"""Fused device kernels: the bits of the operations one by one."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_kernels import Recorded
from test_elementwise_laws import FLOATS

import adjit
from adjit.cuda import simulator
from adjit.schedule import fused, hot, rows
from adjit.schedule.on_cuda import device_step
from adjit.schedule.recipe import Fold, Operand


def members(dtype, strides):
    """relu(x * y) + x * 2.5, as a group, and its operands."""
    shape = (4, 6)
    with Recorded() as recorded:
        x, y = adjit.ones(shape, dtype=dtype), adjit.ones(shape, dtype=dtype)
        product = x * y
        parts = [product, adjit.relu(product), x * 2.5]
        parts.append(parts[1] + parts[2])
        recorded.run([part.storage.value for part in parts])
    recipes = recorded.recipes
    arguments = [("x", "y"), ("v0",), ("x", "k"), ("v1", "v2")]
    made = [
        fused.Member(recipe.name, recipe.element, given, (f"v{k}",))
        for k, (recipe, given) in enumerate(zip(recipes, arguments, strict=True))
    ]
    dense = (6, 1)
    inputs = [Operand("x", dtype, dense), Operand("y", dtype, strides), Operand("k", dtype, None)]
    return shape, made, inputs, Operand("v3", dtype, dense)


def run(step, row, kinds, words):
    """The results of the device kernel of a step, in both orders of threads."""
    device = device_step(step.source, step.n, words, 1 << 10, len(row) + len(words) + 1)
    for reverse, blocks in ((False, 1), (True, None)):
        outputs = [np.full(size, np.nan, dtype) for size, dtype in kinds]
        number = 2.5 if "*" in str(device.source.signature) else np.float64(2.5).view(np.int64)
        given = [simulator.Pointer(a) for a in (*row[: len(row) - len(kinds)], *outputs)]
        simulator.run(
            device.source, [*given, *words, number, device.n], blocks=blocks, reverse=reverse
        )
        yield outputs


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
@pytest.mark.parametrize("strides", [(6, 1), (0, 1)], ids=["dense", "broadcast"])
def test_a_group_of_bodies(dtype, strides):
    shape, made, inputs, output = members(dtype, strides)
    step, words = fused.kernel(made, inputs, [output], [], shape, {})
    rng = np.random.default_rng(0)
    x = rng.standard_normal(24).astype(dtype.numpy)
    y = rng.standard_normal(24 if strides[0] else 6).astype(dtype.numpy)
    product = x * (y if strides[0] else np.tile(y, 4))
    wanted = np.maximum(product, 0) + x * np.array(2.5, dtype.numpy)
    for (found,) in run(step, [x, y, None], [(24, dtype.numpy)], words):
        np.testing.assert_array_equal(found, wanted)


def test_a_group_with_the_sum_of_its_rows():
    dtype = adjit.float32
    _, made, inputs, output = members(dtype, (6, 1))
    total = fused.Sum("v3", Fold("sum", dtype, dtype, (6, 6, 1)))
    step, words = fused.kernel(made, inputs, [output], [total], (24,), {})
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(24).astype(np.float32) for _ in range(2))
    whole = adjit.relu(adjit.tensor(x) * adjit.tensor(y)) + adjit.tensor(x) * 2.5
    sums = whole.reshape(4, 6).sum(1)
    for found, totals in run(step, [x, y, None, None], [(24, np.float32), (4, np.float32)], words):
        np.testing.assert_array_equal(found, whole.numpy())
        np.testing.assert_array_equal(totals, sums.numpy())


def sheet_of(function, x, monkeypatch):
    """The step, words and operands of the kernel that goes through a function row by row."""
    found = []

    def watched(parts, inputs, outputs, sheet, over):
        made = kernel(parts, inputs, outputs, sheet, {})
        found.append((made, inputs, outputs))
        return made

    kernel = rows.kernel
    monkeypatch.setattr(rows, "kernel", watched)
    for _ in range(4):
        function(x).tolist()
    hot.wait()
    return found[-1]


def test_rows(monkeypatch):
    x = adjit.randn(16, 70)

    def function(x):
        shifted = x - x.amax(1, keepdim=True)
        return shifted / (shifted * shifted).sum(1, keepdim=True)

    (step, words), inputs, outputs = sheet_of(function, x, monkeypatch)
    assert len(inputs) == len(outputs) == 1
    device = device_step(step.source, step.n, words, 1 << 12, 2 + len(words))
    for reverse, blocks in ((False, 1), (True, None)):
        out = np.full(16 * 70, np.nan, np.float32)
        given = simulator.Pointer(x.numpy().reshape(-1).copy()), simulator.Pointer(out)
        simulator.run(device.source, [*given, *words, device.n], blocks=blocks, reverse=reverse)
        np.testing.assert_array_equal(out, function(x).numpy().reshape(-1))


def test_rows_that_need_more_than_a_block_has_say_so(monkeypatch):
    x = adjit.randn(16, 70, dtype=adjit.float64)

    def function(x):
        shifted = x - x.amax(1, keepdim=True)
        return shifted / (shifted * shifted).sum(1, keepdim=True)

    (step, words), _, _ = sheet_of(function, x, monkeypatch)
    with pytest.raises(NotImplementedError, match=r"66304 bytes of shared memory.* 49152"):
        device_step(step.source, step.n, words, 1 << 12, 2 + len(words))
