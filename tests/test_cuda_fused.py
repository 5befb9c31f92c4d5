"""Fused device kernels: the bits of the operations one by one."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import stub_driver
from cuda_kernels import Recorded
from test_elementwise_laws import FLOATS

import adjit
import adjit.nn.functional as F
from adjit import config
from adjit.cuda import simulator
from adjit.schedule import plan_cache
from adjit.schedule.codegen import fused, row_kernels
from adjit.schedule.fusion.row_groups import Limits
from adjit.schedule.gpu.lower import device_step
from adjit.schedule.planning.recipe import Operand, Reduction, Source, Text


def members(dtype, strides):
    """relu(x * y) + x * 2.5, as a group, and its operands."""
    shape = (4, 6)
    with Recorded() as recorded:
        x, y = adjit.ones(shape, dtype=dtype), adjit.ones(shape, dtype=dtype)
        product = x * y
        parts = [product, adjit.relu(product), x * 2.5]
        parts.append(parts[1] + parts[2])
        recorded.run([part._storage.value for part in parts])
    recipes = recorded.recipes
    arguments = [("x", "y"), ("v0",), ("x", "k"), ("v1", "v2")]
    made = [
        fused.GroupMember(recipe.name, recipe.fusion.element, given, (f"v{k}",))
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


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("length", [6, 2500])
def test_a_group_with_the_sum_of_its_rows(length):
    dtype, size = adjit.float32, 2 * length
    _, made, inputs, output = members(dtype, (6, 1))
    total = fused.FusedSum("v3", Reduction("sum", dtype, dtype, (length, length, 1)))
    step, words = fused.kernel(made, inputs, [output], [total], (size,), {})
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(size).astype(np.float32) for _ in range(2))
    whole = adjit.relu(adjit.tensor(x) * adjit.tensor(y)) + adjit.tensor(x) * 2.5
    sums = whole.reshape(2, length).sum(1)
    kinds = [(size, np.float32), (2, np.float32)]
    for found, totals in run(step, [x, y, None, None], kinds, words):
        np.testing.assert_array_equal(found, whole.numpy())
        np.testing.assert_array_equal(totals, sums.numpy())


def row_group_of(function, x, monkeypatch):
    """The step, words and operands of the kernel that goes through a function row by row."""
    found = []

    def watched(parts, inputs, outputs, row_group, over, limits):
        made = kernel(parts, inputs, outputs, row_group, {}, Limits(room=1 << 14))
        found.append((made, inputs, outputs))
        return made

    kernel = row_kernels.kernel
    monkeypatch.setattr(row_kernels, "kernel", watched)
    for _ in range(4):
        function(x).tolist()
    plan_cache.wait()
    return found[-1]


def test_rows(monkeypatch):
    x = adjit.randn(16, 70)

    def function(x):
        shifted = x - x.amax(1, keepdim=True)
        return shifted / (shifted * shifted).sum(1, keepdim=True)

    (step, words), inputs, outputs = row_group_of(function, x, monkeypatch)
    assert len(inputs) == len(outputs) == 1
    device = device_step(step.source, step.n, words, 1 << 12, 2 + len(words))
    for reverse, blocks in ((False, 1), (True, None)):
        out = np.full(16 * 70, np.nan, np.float32)
        given = simulator.Pointer(x.numpy().reshape(-1).copy()), simulator.Pointer(out)
        simulator.run(device.source, [*given, *words, device.n], blocks=blocks, reverse=reverse)
        np.testing.assert_array_equal(out, function(x).numpy().reshape(-1))


def centred(x, w):
    away = x - x.mean(1, keepdim=True)
    return away / (away * away).mean(1, keepdim=True).sqrt() * w


def softmax(x, w):
    x = x.detach().requires_grad_()
    out = (F.softmax(x * w, 1) * x.exp()).sum(1)
    return out.detach(), *adjit.autograd.grad(out.sum(), x)


PROGRAMS = {  # and the kernel that they have to come to
    "rows": (centred, "rows_sum_div_sub_mul_9"),
    "layer norm": (lambda x, w: F.layer_norm(x.tanh(), w.shape, w), "rows_tanh_layer_norm_row_2"),
    "softmax": (softmax, "rows_mul_softmax_row_exp_sum_5"),
    "several sums": (lambda x, w: ((x * 2).sum(), x.exp().mean()), "rows_mul_sum_exp_div_5"),
    "columns and rows": (
        lambda x, w: ((y := x.tanh() * w).sum(0), y.amax(1)),
        "rows_tanh_mul_columns_max_4",
    ),
    "out of a full reduction": (lambda x, w: (x - x.amax()).exp(), "rows_max_sub_exp_3"),
    "rests of whole numbers": (
        lambda x, w: ((n := (x * 99).long()) % 7 - (n // -3).amax(1, keepdim=True)).sum(1),
        "rows_mul_copy_remainder_floor_divide_7",
    ),
    "a hundred numbers": (  # of which a launch makes float32 of the last 63
        lambda x, w: functools.reduce(lambda y, k: y * (1 + k / 50) - 1 / (k + 1), range(50), x),
        "fused_mul_sub_64",
    ),
    "a sum of what is written in its place": (
        lambda x, w: ((p := x @ x.t()), (y := (x.tanh() @ x.t() + p) * 2.5), (y * p).sum(1), y @ x)[
            2:
        ],
        "fused_add_mul_3",
    ),
    "a product": (lambda x, w: F.relu(F.linear(x, x[:3], x[0, :3])), "product_and_bias"),
}


@pytest.mark.in_turn(5)
@pytest.mark.parametrize(
    ("name", "shape"), [*((name, (16, 70)) for name in PROGRAMS), ("rows", (2, 600))]
)
def test_a_program_is_fused_as_on_the_cpu_and_gives_its_bits(name, shape, monkeypatch):
    monkeypatch.setattr(plan_cache, "is_on", True)
    function, kernel = PROGRAMS[name]
    adjit.manual_seed(1)
    x, w = adjit.randn(*shape), adjit.randn(shape[1])

    def program(x, w):
        for _ in range(config.HOT + 2):
            stub.seen.clear()
            made = function(x, w)
            found = [t.tolist() for t in (made if isinstance(made, tuple) else (made,))]
            plan_cache.wait()
        return found

    with stub_driver.installed(simulated=True) as stub:
        assert program(x, w) == program(x.cuda(), w.cuda())
        assert any(label.startswith(kernel) for label in stub.seen), stub.seen
        assert not any("relu" in label for label in stub.seen)


@pytest.mark.parametrize("place", ["i * 2", "p_x[i]", "first"])
def test_what_cannot_be_dealt_out_to_threads_is_not_written_by_all_of_them(place):
    text = f"""
from numpy import float32
from adjit.kernels.language.abi import at, words


def fused(args, start, stop):
    p = words(args)
    p_x = at(p[0], float32)
    p_out = p_x
    for unit in range(start, stop):
        first = unit * 8
        for j in range(8):
            i = first + j
            p_out[{place}] = p_x[i] + p_x[i]
"""
    source, mended = (
        Source("fused", t, Text(-1)) for t in (text, text.replace(f"p_out[{place}]", "p_out[i]"))
    )
    with pytest.raises(NotImplementedError, match="fused writes in a loop of all threads"):
        device_step(source, 4, (), 64, 2)
    step = device_step(mended, 4, (), 64, 2)
    assert "for j in range(0 + thread(), 8, threads())" in step.source.text


def test_rows_that_have_no_room_are_not_fused(monkeypatch):
    monkeypatch.setattr(plan_cache, "is_on", True)
    x = adjit.randn(2, 4096)
    with stub_driver.installed() as stub:
        wide = x.cuda()
        for _ in range(config.HOT + 2):
            parts = [wide.exp() * k for k in range(1, 14)]
            total = sum(part / part.sum(1, keepdim=True) for part in parts)
            plan_cache.wait()
            assert total.sum().item() == pytest.approx(2 * 13, rel=1e-4)
        shown = [label for label in stub.seen if "sum" in label and "fused" in label]
    assert len(shown) > 1
