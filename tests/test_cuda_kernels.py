"""The kernels of ops that are not elementwise, on a GPU: against the CPU's, in the simulator.

All cases run with ADJIT_CUDA_ALL=1, as in CI; a few stand for them otherwise.
"""

from __future__ import annotations

import os
from operator import add

import numpy as np
import pytest
import stub_driver
from adjit.kernels.language.abi import I, T, at, kernel, words
from adjit.kernels.math import double_word
from adjit.kernels.on_gpu import block, warp
from adjit.kernels.ops import gemm_tile, matmul, pool
from adjit.kernels.ops.reduce import dot_span, reduce_span, square_deviations
from cuda_cases import (
    CASES,
    CONVOLUTIONS,
    GRADIENTS,
    NEARLY,
    PRODUCTS,
    RECURRENT,
    SAMPLED,
    STEPS,
    convolution,
    gradient,
    normal,
    sampled,
)
from cuda_kernels import Recorded, kernels_of_the_room, left_out, other_kernels
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from numba.extending import intrinsic
from on_simulator import check

import adjit
from adjit.cuda import simulator
from adjit.schedule import plan_cache, settle
from adjit.schedule.codegen import units_cuda
from adjit.schedule.gpu.lower import device_step, device_steps
from adjit.schedule.planning.recipe import Source

FEW = {"sum of rows", "place of the smallest", "softmax", "gather", "running sum of whole numbers",
       "normal numbers", "matrices", "a linear layer", "sort of long rows, downwards",
       "many of the top"}  # fmt: skip
EVERY = os.environ.get("ADJIT_CUDA_ALL", "0") == "1"


def chosen(cases):
    return [name for name in cases if EVERY or name in FEW]


@pytest.mark.parametrize("name", chosen(CASES))
def test_a_kernel_gives_the_bits_of_the_cpu(name):
    check(CASES[name])


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("name", NEARLY)
def test_a_kernel_gives_nearly_what_the_cpu_gives(name):
    check(NEARLY[name], exact=False)


@pytest.mark.parametrize("length", [31, 1024, 1536, 2601])
def test_the_warps_of_a_block_fold_a_row_to_the_bits_of_one(length):
    x = normal(2, length)
    check(lambda: [x.sum(1), x.amax(1), adjit.linalg.vector_norm(x, dim=1)])


@kernel
def folds_of_each_thread(args, start, stop):
    p = words(args)
    x, out, length = at(p[0], T), at(p[1], T), p[2]
    for _ in range(start, stop):
        total = reduce_span(add, x, 0, length, T(0), T)
        squares = dot_span(x, 0, x, 0, length, T)
        away = square_deviations(x, 0, length, T(1), T)
        for j in range(256):
            out[j] = total
            out[j + 256] = squares
            out[j + 512] = away


folds_of_each_thread.row = None


def test_every_thread_of_a_block_gets_the_same_fold():
    """Where all write one result, a missing barrier would show only in what most of them write."""
    source = units_cuda.by_units(folds_of_each_thread, {"T": "float32"}, 3)
    source = source._replace(threads=256, shared=block.PARTS_BYTES)
    x = normal(9000)
    wanted = [x.sum(), (x * x).sum(), ((x - 1) * (x - 1)).sum()]
    for reverse in (False, True):
        out = np.full(3 * 256, np.nan, np.float32)
        given = simulator.Pointer(x.numpy().copy()), simulator.Pointer(out)
        simulator.run(source, [*given, 9000, 1], blocks=1, reverse=reverse)
        for found, value in zip(out.reshape(3, 256), wanted, strict=True):
            assert len({*found.tolist()}) == 1
            assert found[0] == pytest.approx(value.item(), rel=1e-5)


@pytest.mark.parametrize("name", GRADIENTS if EVERY else ["softmax"])
def test_a_gradient_gives_the_bits_of_the_cpu(name):
    check(gradient(name))


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_optimisers(name):
    check(STEPS[name])


@pytest.mark.skipif(not gemm_tile.FUSED, reason="this processor does not fuse products and sums")
@pytest.mark.parametrize("name", chosen(PRODUCTS))
def test_a_product_gives_the_bits_of_the_cpu(name):
    check(PRODUCTS[name])


# Strides, sizes and offsets at which tiles end: (rows, depth, columns), left and right turned, shifted.
AWKWARD = {
    "wide along both": ((68, 20, 8), False, False, 0, np.float32),
    "turned, wide": ((8, 20, 68), True, True, 0, np.float64),
    "odd sizes": ((65, 17, 3), False, True, 0, np.float32),
    "odd sizes in float64": ((3, 17, 65), True, False, 0, np.float64),
    "from an odd place": ((8, 20, 8), True, False, 1, np.float32),
}


def operand(rows, columns, turned, shift, dtype):
    """A matrix that lies in memory by columns if turned, `shift` elements into its storage."""
    x = normal(rows * columns + shift, dtype=dtype)[shift:]
    return x.view(columns, rows).T if turned else x.view(rows, columns)


@pytest.mark.skipif(not gemm_tile.FUSED, reason="this processor does not fuse products and sums")
@pytest.mark.parametrize("name", AWKWARD if EVERY else ["from an odd place"])
def test_tiles_end_where_a_product_does(name):
    (rows, depth, columns), left_turned, right_turned, shift, dtype = AWKWARD[name]
    x = operand(rows, depth, left_turned, shift, dtype)
    y = operand(depth, columns, right_turned, shift, dtype)
    bias = normal(columns, dtype=dtype)
    check(lambda: [x @ y, adjit.relu(adjit.addmm(bias, x, y, beta=0.5, alpha=2))])


@pytest.mark.skipif(not gemm_tile.FUSED, reason="this processor does not fuse products and sums")
def test_large_tiles_give_the_bits_of_small_ones(monkeypatch):
    monkeypatch.setattr(matmul, "ENOUGH_TILES", 1)
    x, y = normal(2, 130, 20), normal(20, 9)
    steps = check(lambda: x @ y)
    assert "large" in steps[-1].source.name
    x, y = normal(260, 3).T, normal(5, 260).T
    check(lambda: adjit.addmm(normal(5), x, y))


@pytest.fixture
def reduced():
    adjit.set_float32_matmul_precision("high")
    yield
    adjit.set_float32_matmul_precision("highest")


@pytest.mark.in_turn(4)
@pytest.mark.parametrize(("shape", "turned"), [((65, 17, 130), False), ((132, 12, 68), True)])
@pytest.mark.parametrize("bits", [10, 7])
def test_tensor_cores_multiply_rounded_numbers(reduced, shape, turned, bits):
    adjit.set_float32_matmul_precision("high" if bits == 10 else "medium")
    rows, depth, columns = shape
    x = operand(rows, depth, turned, 0, np.float32)
    y, bias = operand(depth, columns, turned, 0, np.float32), normal(columns)
    size = 4 * 2.0 ** -(bits + 1) * float((x.abs() @ y.abs()).amax())
    steps = check(lambda: adjit.relu(adjit.addmm(bias, x, y, alpha=2)), size=size)
    assert "tensor" in steps[0].source.name
    assert ("bf16" in steps[0].source.name) == (bits == 7)


@pytest.mark.in_turn(6)
@pytest.mark.parametrize("precision", ["high", "medium"])
@pytest.mark.parametrize("depth", [9, 16, 23])
def test_tensor_cores_are_exact_on_small_whole_numbers(reduced, precision, depth):
    adjit.set_float32_matmul_precision(precision)
    x, y = adjit.randint(-9, 9, (70, depth)).float(), adjit.randint(-9, 9, (depth, 70)).float()
    check(lambda: [x @ y, x.t().contiguous().t() @ y, x @ y.t().contiguous().t()])


def test_numbers_are_rounded_to_bfloat16():
    """Halfway goes to the even one, what is not a number stays so, the largest become infinite."""
    given = [
        1 + 2.0**-8,
        1 + 3 * 2.0**-8,
        -1 - 2.0**-9,
        float("inf"),
        float("nan"),
        3.4e38,
        1e-40,
        0,
    ]
    wanted = [1, 1 + 2.0**-6, -1, float("inf"), float("nan"), float("inf"), 2.0**-133, 0]
    for first, second, low, high in zip(
        given[::2], given[1::2], wanted[::2], wanted[1::2], strict=True
    ):
        made = simulator._bf16_pair(np.float32(first), np.float32(second)).view(np.uint32)
        halves = np.array([made << 16, made & 0xFFFF0000], np.uint32).view(np.float32)
        np.testing.assert_array_equal(halves, [low, high])


def test_precision_of_products():
    x, y = normal(70, 9), normal(9, 70)

    def side():
        with Recorded() as recorded:
            product = x @ y
            settle.settle()
            del product
        return device_steps(recorded.recipes[-1])[0].source.name

    names = [side()]
    adjit.set_float32_matmul_precision("medium")
    names.append(side())
    adjit.set_float32_matmul_precision("highest")
    names.append(side())
    adjit.set_float32_matmul_precision("high")
    names.append(side())
    adjit.set_float32_matmul_precision("highest")
    names.append(side())
    sides = "by_tiles", "on_tensor_cores_in_bf16", "by_tiles", "on_tensor_cores", "by_tiles"
    assert names == [f"product_{side}_on_gpu" for side in sides]
    assert adjit.get_float32_matmul_precision() == "highest"
    with pytest.warns(UserWarning, match=r"^low is not one of 'highest', 'high', or 'medium'; the"):
        adjit.set_float32_matmul_precision("low")
    with pytest.raises(
        RuntimeError, match=r"^set_float32_matmul_precision expects a str, but got int$"
    ):
        adjit.set_float32_matmul_precision(3)
    assert adjit.get_float32_matmul_precision() == "highest"


# Distinct records: their number is looked at on the way, so these run through the whole host.
RECORDS = {
    "elements": lambda x: x.flatten().unique(return_inverse=True, return_counts=True),
    "rows": lambda x: x.unique(return_inverse=True, return_counts=True, dim=0),
    "columns": lambda x: x.unique(return_inverse=True, return_counts=True, dim=1),
    "neighbours": lambda x: x.flatten().sort().values.unique_consecutive(return_counts=True),
    "neighbouring rows": lambda x: x.unique_consecutive(return_inverse=True, dim=0),
    "rows with NaN": lambda x: adjit.where(x > 1, float("nan"), x.float()).unique(
        return_counts=True, dim=0
    ),
}


@pytest.mark.parametrize("name", RECORDS if EVERY else ["rows"])
def test_distinct_records(name):
    x = adjit.randint(0, 3, (1100 if name in ("rows", "columns") else 300, 2))
    wanted = RECORDS[name](x)
    with stub_driver.installed(simulated=True) as stub:
        for found, value in zip(RECORDS[name](x.cuda()), wanted, strict=True):
            np.testing.assert_array_equal(found.cpu().numpy(), value.numpy())
        kernel = "neighbours" if "neighbour" in name else "distinct"
        assert any(kernel in label for label in stub.seen)


def test_a_sort_of_several_launches_in_a_plan(monkeypatch):
    monkeypatch.setattr(plan_cache, "is_on", True)
    with stub_driver.installed(simulated=True) as stub:
        x = normal(1, 1500)
        wanted = ((x * 2).sort(1).values + 1).tolist()
        there = x.cuda()
        for _ in range(4):
            stub.seen.clear()
            found = (there * 2).sort(1).values + 1
            assert found.tolist() == wanted
            plan_cache.wait()
        assert sum(label.startswith("sort_by_tiles") for label in stub.seen) == 2


def test_a_profile_tells_every_launch_of_a_sort():
    with stub_driver.installed(simulated=True):
        x = normal(1, 1500).cuda()
        adjit.cuda.synchronize()
        with adjit.profiler.profile() as p:
            x.sort(1).values.tolist()
        assert [event.name for event in p.events()].count("sort_rows_float32") == 2


def test_the_threads_of_a_block_scan_a_row():
    (result,) = check(lambda: adjit.tensor([[-0.0] * 3]).cumsum(1))
    assert "blocks" in result.source.name


# Kernels of the CPU without a CUDA side: a GPU computes attention by products and a softmax, what inputs
# give to recurrent layers by one product, and small matrices as any; it orders short rows as long ones.
MISSING = {
    "attend",
    "attend_backward",
    "attend_few",
    "attend_few_backward",
    "few_by_few",
    "kth_short_rows",
    "mode_short_rows",
    "pack_keys",
    "pack_layer",
    "prepare",
    "rows_by_columns",
    "rows_by_vectors",
    "sgd_rows",
    "sort_short_rows",
}


def test_the_list_of_kernels_without_a_cuda_side_is_true():
    missing, letters = set(), dict.fromkeys("TXYZA", "float32") | {"I": "int64"}
    for function, side in kernels_of_the_room():
        try:
            units_cuda.by_units(function, letters, 24, side=side)
        except NotImplementedError:
            missing.add(function.__name__)
    assert missing == MISSING


@pytest.mark.skipif(not EVERY, reason="runs all programs")
def test_every_kernel_is_among_those_that_are_compiled():
    assert left_out(other_kernels()) == set()


@pytest.mark.parametrize("name", SAMPLED if EVERY else [])
def test_places_between_pixels_and_their_gradients(name):
    check(sampled(name), exact=False)


@pytest.mark.in_turn(3)
@pytest.mark.skipif(not gemm_tile.FUSED, reason="this processor does not fuse products and sums")
@pytest.mark.parametrize("name", RECURRENT if EVERY else ["lstm"])
def test_a_recurrent_layer_and_its_gradients(name):
    check(RECURRENT[name])


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_and_its_gradients(name):
    check(convolution(name), exact=False)


def test_long_rows_of_parameters_each_have_their_own_kernel():
    source = Source("max_values", "max_values", origin=(pool.max_values, {"T": "float32"}))
    for count in (70, 71):
        step = device_step(source, 1, (), 1, count)
        assert not step.source.by_table
        assert len(step.source.signature) == count + 1


def test_running_sums_and_products_have_the_digits_of_float64():
    """Each half takes back what the other brought; float32 alone is off by a hundred times as much."""
    x = normal(1500)
    there = adjit.cat([x, -x]) * 1e6
    check(lambda: [there.cumsum(0), there.view(30, 100).cumsum(0)], size=0.05)
    x = 1 + x / 9
    there = adjit.cat([x, 1 / x])
    check(lambda: there.cumprod(0), size=2e-7 * there.cumprod(0).amax().item())


def test_a_recurrence_has_the_digits_of_float64():
    x = (1 + normal(3000) / 9).requires_grad_()
    slope = adjit.full((3000,), 1.0)
    made = lambda: adjit.autograd.grad(x.cumprod(0), x, slope)  # noqa: E731
    check(made, size=4e-7 * made()[0].abs().amax().item())


def test_a_whole_number_that_float32_does_not_have_is_a_pair():
    value, rest = double_word.pair_of_whole.py_func(np.int64(2**24 + 1), np.float32)
    assert (value, rest) == (2**24, 1)


narrowed = intrinsic(warp.scalar.definition)


@njit
def narrow(word):
    return narrowed(word, np.float32)


@given(
    st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(width=32), st.floats(-1e-37, 1e-37)),
    st.integers(-2, 2),
)
def test_a_number_is_narrowed_by_whole_numbers_as_processors_do_it(value, away):
    """The code is the GPU's, compiled for the CPU; float32 numbers, halves between them and neighbours."""
    word = np.int64(value) if isinstance(value, int) else np.float64(value).view(np.int64)
    for half in (0, 1 << 28):
        near = np.int64((int(word) + away + half + 2**63) % 2**64 - 2**63)
        with np.errstate(all="ignore"):
            wanted = near.view(np.float64).astype(np.float32)
        assert np.float32(narrow(near)).view(np.int32) == wanted.view(np.int32)


@kernel
def added_at_places(args, start, stop):
    p = words(args)
    x, out, places, length = at(p[0], T), at(p[1], T), at(p[2], I), p[3]
    for _ in range(start, stop):
        total = reduce_span(add, x, 0, length, T(0), T)
        for i in range(length):
            out[places[i]] += x[i] / total


@kernel
def added_at_a_named_place(args, start, stop):
    p = words(args)
    x, out, places, length = at(p[0], T), at(p[1], T), at(p[2], I), p[3]
    for _ in range(start, stop):
        total = reduce_span(add, x, 0, length, T(0), T)
        for i in range(length):
            place = places[i]
            out[place] += x[i] / total


@pytest.mark.parametrize("function", [added_at_places, added_at_a_named_place])
def test_lanes_do_not_add_to_places_that_memory_names(function):
    """Two of them may be the same."""
    with pytest.raises(NotImplementedError, match="adds to memory in a loop of all lanes"):
        units_cuda.by_units(function, {"T": "float32", "I": "int64"}, 4)


def test_a_kernel_without_a_cuda_side_says_so():
    source = Source("made_up", "")
    with pytest.raises(
        NotImplementedError, match=r"no CUDA side yet.*move its operands to the CPU"
    ):
        device_step(source, 1, (), 1, 1)


@pytest.mark.in_turn(3)
def test_labels_in_time_give_the_bits_of_the_cpu_whatever_the_numbers():
    """A function of the system's library in the place of the own one shows in one draw of four."""
    for _ in range(20):
        check(gradient("labels in time"))
