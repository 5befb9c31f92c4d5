"""Elementwise device kernels in the simulator: the bits of the CPU's kernels.

All ops run with ADJIT_CUDA_ALL=1, as in CI; a few stand for them otherwise.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from on_simulator import check
from test_elementwise_laws import EDGES, FLOAT_OPS, FLOATS, INT_OPS, named, sample, tensors

import adjit

FEW = {"add", "copysign", "erfinv", "fmod", "gelu", "lerp", "sin", "where", "floor_divide", "pow"}
EVERY = os.environ.get("ADJIT_CUDA_ALL", "0") == "1"


def chosen(ops):
    return [op for op in ops if EVERY or op.name in FEW]


@pytest.mark.parametrize("dtype", FLOATS if EVERY else FLOATS[:1], ids=repr)
@named(chosen(FLOAT_OPS))
def test_contiguous_operands(op, dtype):
    operands = tensors(sample(op, dtype, (7,)))
    check(lambda: op(*operands))


@named(chosen(INT_OPS))
def test_whole_numbers(op):
    operands = tensors(sample(op, adjit.int64, (7,)))
    check(lambda: op(*operands))


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
def test_whole_numbers_are_divided_as_on_the_cpu(name):
    """There they are divided as floats, which GPUs have few units for."""
    edges = [*EDGES, *(-n for n in EDGES), -(2**63)]
    x = adjit.tensor([x for x in edges for y in edges if y])
    y = adjit.tensor([y for x in edges for y in edges if y])
    check(lambda: getattr(adjit, name)(x, y))
    check(lambda: getattr(adjit, name)(x[:192].view(3, 64), y[:192].view(3, 64)).sum(1))


def test_operands_of_any_layout():
    rng = np.random.default_rng(0)
    x = adjit.tensor(rng.standard_normal((3, 4, 5)).astype(np.float32))
    y = adjit.tensor(rng.standard_normal((5, 3)).astype(np.float32))
    (step,) = check(lambda: x.permute(2, 0, 1) * y[:, :, None])
    assert "rest = " in step.source.text
    check(lambda: x[:, 1:, ::2] + x[:, :3, :3])
    check(lambda: x[0, 0, ::2] - 1.5)
    (step,) = check(lambda: x[0] - x[0, :, 2:3])
    assert "down_" in step.source.text
    check(lambda: x.expand(2, 3, 4, 5) * 2)


def test_a_view_that_starts_off_a_border_is_read_one_by_one():
    x = adjit.arange(23.0)
    check(lambda: x[3:] * x[:20])


@pytest.mark.parametrize("kind", ["int32", "uint8", "bool", "float64"])
def test_conversions(kind):
    x = adjit.tensor(np.linspace(0, 9, 13, dtype=np.float32))
    check(lambda: x.to(getattr(adjit, kind)))


def test_a_write_into_a_part():
    x, y = adjit.zeros(4, 5), adjit.arange(8.0)

    def write():
        z = x * 1
        z[1:3, 1:] = y.reshape(2, 4)
        return z

    check(write)


def test_sizes_beyond_32_bits_get_wide_numbers():
    from adjit.schedule.gpu.lower import device_step

    with adjit.no_grad():
        node = (adjit.ones(8) + 1)._storage.value
    recipe, source = node.recipe, node.recipe.steps[0].source
    assert device_step(source, 8, recipe.constants, 8, recipe.count).source.signature[-1] == "int32"
    large = device_step(source, 1 << 31, recipe.constants, 1 << 31, recipe.count)
    assert large.source.signature[-1] == "int64"
