"""The emitted products: values for any sizes and strides, the same bits however they are cut, and
what the machine code looks like."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from adjit.kernels.language import processor
from adjit.kernels.ops import gemm_tile
from adjit.kernels.ops import matmul as kernels
from hypothesis import given, settings
from hypothesis import strategies as st

import adjit
from adjit.ops import matmul as ops
from adjit.schedule.jit import cache

rng = np.random.default_rng(0)
FLOATS = [np.float32, np.float64]
SIZES = st.integers(1, 40)
LAYOUTS = st.sampled_from(["rows", "columns", "steps", "offset"])


def laid_out(rows: int, columns: int, layout: str, dtype: type) -> tuple[np.ndarray, adjit.Tensor]:
    """Random numbers in one of several layouts, as an array and as a tensor of the same strides."""
    whole = rng.standard_normal((90, 90)).astype(dtype)

    def cut(x):
        return {
            "rows": lambda: x[:rows, :columns],
            "columns": lambda: x[:columns, :rows].T,
            "steps": lambda: x[: 2 * rows : 2, : 2 * columns : 2],
            "offset": lambda: x[3 : 3 + rows, 5 : 5 + columns],
        }[layout]()

    return cut(whole), cut(adjit.tensor(whole))


def assert_close(found: adjit.Tensor, x: np.ndarray, y: np.ndarray) -> None:
    """Within the error bound of adding products up one by one, in float64 arithmetic."""
    exact = x.astype(np.float64) @ y.astype(np.float64)
    bound = np.abs(x).astype(np.float64) @ np.abs(y).astype(np.float64)
    epsilon = np.finfo(x.dtype).eps
    np.testing.assert_array_less(
        np.abs(found.numpy() - exact), epsilon * x.shape[-1] * bound + 1e-30
    )


@pytest.fixture
def one_thread():
    """All units of a product in one call of its kernel."""
    threads = adjit.get_num_threads()
    adjit.set_num_threads(1)
    yield
    adjit.set_num_threads(threads)


@settings(max_examples=150, deadline=None)
@given(SIZES, SIZES, SIZES, LAYOUTS, LAYOUTS, st.sampled_from(FLOATS))
def test_any_sizes_and_layouts(rows, depth, columns, left, right, dtype):
    (a, x), (b, y) = laid_out(rows, depth, left, dtype), laid_out(depth, columns, right, dtype)
    assert_close(x @ y, a, b)


@pytest.mark.skipif(
    not all(map(processor.host().has, processor.features_of("x86-64-v2"))),
    reason="another processor",
)
def test_few_lines_in_vectors_of_two():
    """As many lines as a square would have, were a vector not shorter; ARM has such vectors, too."""
    program = """
import adjit
for count in range(1, 10):
    for dtype in (adjit.float32, adjit.float64):
        x, y = adjit.arange(360).view(9, 40).to(dtype), adjit.arange(40 * count).view(count, 40)
        print((x @ y.to(dtype).t() == (x.long() @ y.t())).all().item(), end=" ")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"ADJIT_CPU": "x86-64-v2"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["True"] * 18, done.stderr


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "sizes", [(13, 257, 33), (25, 600, 1100), (300, 513, 70), (2, 3, 2500), (80, 512, 300)]
)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_blocks_of_large_products(sizes, layout, dtype):
    rows, depth, columns = sizes
    pairs = []
    for size, letter in zip([(rows, depth), (depth, columns)], layout, strict=True):
        lies = rng.standard_normal(size if letter == "n" else size[::-1]).astype(dtype)
        x = adjit.tensor(lies)
        pairs.append((lies, x) if letter == "n" else (lies.T, x.t()))
    (a, x), (b, y) = pairs
    assert_close(x @ y, a, b)


def bits(x: adjit.Tensor) -> np.ndarray:
    array = x.contiguous().numpy()
    return array.view(f"i{array.itemsize}")


@pytest.mark.parametrize("dtype", FLOATS)
def test_bits_depend_on_the_depth_alone(dtype):
    x = adjit.tensor(rng.standard_normal((70, 700)).astype(dtype))
    y = adjit.tensor(rng.standard_normal((700, 600)).astype(dtype))
    whole = bits(x @ y)
    np.testing.assert_array_equal(bits(x[5:18] @ y[:, 9:46]), whole[5:18, 9:46])
    np.testing.assert_array_equal(bits(x.t().contiguous().t() @ y), whole)
    np.testing.assert_array_equal(bits(x @ y.t().contiguous().t()), whole)
    np.testing.assert_array_equal(bits((y.t() @ x.t()).t()), whole)
    np.testing.assert_array_equal(bits(x.expand(3, 70, 700) @ y)[1], whole)


FEW_SHAPES = [(65, 1100), (129, 530), (300, 1100), (700, 1100)]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("depth", "columns"), FEW_SHAPES)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_few_rows_have_the_bits_of_many(depth, columns, layout, dtype, one_thread):
    """Whether B is packed, read along its lines, or its columns are rows of a product that is turned."""
    a, b = (
        rng.standard_normal(s).astype(dtype)
        for s in ((kernels.FEW_TURNED + 8, depth), (depth, columns))
    )
    x, y = (
        adjit.tensor(t) if order == "n" else adjit.tensor(t.T.copy()).t()
        for t, order in zip((a, b), layout, strict=True)
    )
    whole = x @ y
    assert_close(whole, a, b)
    bias = adjit.tensor(rng.standard_normal(columns).astype(dtype))
    least = ops.FEW_ROWS if layout == "nt" else 1  # up to these they have the bits of one
    for rows in (2, 3, 7, 8, 12, 15, 16, 17, 24, 33, 48, 63, 64, 65, 96, 127, 128, 129):
        if rows <= least:
            continue
        np.testing.assert_array_equal(bits(x[:rows] @ y), bits(whole[:rows]))
        np.testing.assert_array_equal(
            bits(adjit.addmm(bias, x[3 : 3 + rows], y)), bits(whole[3 : 3 + rows] + bias)
        )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", ["nn", "nt"])
@pytest.mark.parametrize(("first", "last"), [(0, 2), (1, 5), (2, 4), (0, 5), (5, 10)])
def test_few_rows_are_written_and_nothing_else(first, last, layout, dtype):
    """Of a product of 20 rows by two blocks of columns a unit is four rows of one."""
    kind, columns = (
        adjit.tensor(np.zeros(1, dtype)).dtype,
        kernels.BLOCK_BYTES // dtype().itemsize + 37,
    )
    a, b = [rng.integers(-4, 5, s).astype(dtype) for s in ((20, 300), (300, columns))]
    right = b if layout == "nn" else b.T.copy().T
    strides = [tuple(n // dtype().itemsize for n in t.strides) for t in (a, right)]
    plan = ops.plan_product(kind, a.shape, strides[0], right.shape, strides[1], None, ())
    out = np.full((20, columns), -0.5, dtype)
    row = [a.ctypes.data, right.ctypes.data, out.ctypes.data, *plan.words]
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(cache.link(plan.kernel))
    run(np.array(row, np.int64).ctypes.data, first, last)
    exact, width = a @ b, plan.words[kernels.BLOCK]
    written = np.zeros(out.shape, bool)
    for unit in range(first, last):
        line, edge = unit % 5 * kernels.UNIT_ROWS, unit // 5 * width
        written[line : line + kernels.UNIT_ROWS, edge : edge + width] = True
    np.testing.assert_array_equal(out, np.where(written, exact, -0.5))


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("depth", [kernels.PAIRED_SIZE, 257, 600])
@pytest.mark.parametrize("rows", [kernels.PAIRED_SIZE, 97, 131, 513, 1100])
def test_a_matrix_times_its_own_transpose_has_the_bits_of_any_product(rows, depth, dtype):
    """Of which half is computed and copied to the other half."""
    a = rng.standard_normal((2, rows, depth + 3)).astype(dtype)
    lying = adjit.tensor(a.swapaxes(1, 2).copy()).mT
    for batch in (adjit.tensor(a), lying, adjit.tensor(a)[:, :, 1:-2], lying[:, :, ::2]):
        x = batch[0]
        product = bits(x @ x.t())
        np.testing.assert_array_equal(product, bits(x @ x.clone().t()))
        np.testing.assert_array_equal(product, bits((x @ x.t()).t().contiguous()))
        np.testing.assert_array_equal(bits(batch @ batch.mT), bits(batch @ batch.clone().mT))
    x, y = adjit.tensor(a[0]), adjit.tensor(a[1])
    assert_close(x @ x.t(), a[0], a[0].T)
    assert_close(x @ y.t(), a[0], a[1].T)
    assert_close(adjit.tensor(a)[:1] @ adjit.tensor(a).mT, a[:1], a.swapaxes(1, 2))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rows", [97, 100, 101, 258])
@pytest.mark.parametrize(("first", "last"), [(0, 1), (0, 3), (5, 9), (11, 13), (12, 13), (0, 13)])
def test_units_of_a_symmetric_product_write_their_rows_and_mirrors(rows, first, last, dtype):
    """Nothing is written by two threads, and half of the elements are computed."""
    a = rng.integers(-4, 5, (rows, 130)).astype(dtype)
    kind = adjit.tensor(np.zeros(1, dtype)).dtype
    plan = ops.plan_product(kind, a.shape, (130, 1), a.shape[::-1], (1, 130), None, ())
    assert plan.n == -(-rows // (2 * kernels.UNIT_ROWS))
    out = np.full((rows, rows), -0.5, dtype)
    row = [a.ctypes.data, a.ctypes.data, out.ctypes.data, *plan.words]
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(cache.link(plan.kernel))
    run(np.array(row, np.int64).ctypes.data, first, last)
    low, high, middle = first * kernels.UNIT_ROWS, last * kernels.UNIT_ROWS, (rows + 1) // 2
    own = np.zeros(rows, bool)
    own[low : min(high, middle)] = own[max(rows - high, middle) : rows - low] = True
    below = np.tril(np.broadcast_to(own[:, None], (rows, rows)))
    exact = a @ a.T
    np.testing.assert_array_equal(out[below | below.T], exact[below | below.T])
    written = out != -0.5
    assert not written[~own][:, ~own].any()
    strip = np.abs(np.subtract.outer(np.arange(rows), np.arange(rows))) < kernels.STRIPS * 6
    assert not (written & ~(below | below.T | strip)).any()


def test_bits_do_not_depend_on_threads():
    x = adjit.tensor(rng.standard_normal((3, 130, 300)).astype(np.float32))
    y = adjit.tensor(rng.standard_normal((3, 300, 1100)).astype(np.float32))
    threads, results = adjit.get_num_threads(), []
    try:
        for count in (1, 2, 3, 7):
            adjit.set_num_threads(count)
            results.append(bits(x @ y))
    finally:
        adjit.set_num_threads(threads)
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


@settings(max_examples=60, deadline=None)
@given(SIZES, st.sampled_from([1, 7, 256, 257, 600]), SIZES, st.sampled_from(FLOATS), st.data())
def test_epilogue_has_the_bits_of_single_operations(rows, depth, columns, dtype, data):
    x, y = (
        adjit.tensor(rng.standard_normal(s).astype(dtype))
        for s in [(rows, depth), (depth, columns)]
    )
    shape = data.draw(st.sampled_from([(columns,), (rows, 1), (1, 1), (rows, columns)]))
    bias = adjit.tensor(rng.standard_normal(shape).astype(dtype))
    bias[..., 0] = float("nan")
    single = x @ y if rows > 1 and columns > 1 else (adjit.cat([x, x]) @ adjit.cat([y, y], 1))
    single = single[:rows, :columns]
    # A large product of one row, or of many short ones, is not packed, and has a sum of its own.
    alone = x @ y if ops.is_quicker_apart(x, y) else single
    np.testing.assert_array_equal(bits(adjit.addmm(bias, x, y)), bits(alone + bias))
    fused = ops.multiply_add(bias, x, y, 1, 1, kernels.RELU)
    np.testing.assert_array_equal(bits(fused), bits(adjit.relu(single + bias)))
    scaled = adjit.addmm(bias, x, y, beta=0.3, alpha=-1.7)
    np.testing.assert_array_equal(bits(scaled), bits(alone * -1.7 + bias * 0.3))


@pytest.fixture
def memory(monkeypatch):
    """A function that gives products others to allocate and release with, and where they keep memory."""
    functions = []  # must live as long as their addresses

    def give(allocate, release=lambda address: 0, kept=()):
        made = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
        functions[:] = made(allocate), made(release)
        words = (ctypes.c_int64 * kernels.KEPT_BLOCKS)(*kept)
        addresses = [ctypes.cast(f, ctypes.c_void_p).value for f in functions]
        monkeypatch.setattr(ops, "memory_words", lambda: (*addresses, ctypes.addressof(words)))
        ops.forget_products()
        return words

    yield give
    ops.forget_products()


def wide_product(dtype, rows=30, columns=kernels.BLOCK_BYTES):
    """The operands of a product that packs the right one, or part of it, and the bits of its result.

    With one column more, lines of the right one are so far apart that few rows read some side by side.
    """
    depth, columns = 300, columns // dtype().itemsize
    x, y = (
        adjit.tensor(rng.standard_normal(s).astype(dtype))
        for s in [(rows, depth), (depth, columns)]
    )
    return x, y, bits(x @ y)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rows", [5, 32, 64, 128, 150])
def test_without_memory_one_panel_and_one_strip_at_a_time(dtype, rows, memory):
    x, y, usual = wide_product(dtype, rows, kernels.BLOCK_BYTES + 8)
    kept = memory(lambda size: 0)
    np.testing.assert_array_equal(bits(x @ y), usual)
    np.testing.assert_array_equal(bits(x.t().contiguous().t() @ y), usual)
    np.testing.assert_array_equal(bits(x @ y.t().contiguous().t()), usual)
    np.testing.assert_array_equal(bits(x @ x.t()), bits(x @ x.clone().t()))
    assert not any(kept)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", [kernels.BLOCK_BYTES, kernels.BLOCK_BYTES + 8])
@pytest.mark.parametrize("rows", [30, 32, 64, 128, 150])
def test_memory_is_kept_for_the_next_product(dtype, rows, columns, memory):
    x, y, usual = wide_product(dtype, rows, columns)
    sizes, blocks = [], []

    def allocate(size):
        block = ctypes.create_string_buffer(size + 4096)
        ctypes.memset(block, 0x5A, size + 4096)  # another thread may come meanwhile
        sizes.append(size)
        blocks.append(block)
        return ctypes.addressof(block)

    kept = memory(allocate)
    for _ in range(3):
        np.testing.assert_array_equal(bits(x @ y), usual)
        np.testing.assert_array_equal(bits(x @ y.t().contiguous().t()), usual)
    assert set(sizes) == {kernels.PACKED_BYTES}
    assert len(sizes) <= adjit.get_num_threads()
    assert sorted(filter(None, kept)) == sorted(map(ctypes.addressof, blocks))
    for block in blocks:
        assert block.raw[kernels.PACKED_BYTES :] == b"\x5a" * 4096


@pytest.mark.parametrize("dtype", FLOATS)
def test_memory_is_released_where_no_more_can_be_kept(dtype, memory, one_thread):
    x, y, usual = wide_product(dtype, kernels.UNIT_ROWS)
    block, released = ctypes.create_string_buffer(kernels.PACKED_BYTES), []

    def allocate(size):  # meanwhile other products give back as much as can be kept
        kept[:] = range(1, kernels.KEPT_BLOCKS + 1)
        return ctypes.addressof(block)

    kept = memory(allocate, lambda address: released.append(address) or 0)
    np.testing.assert_array_equal(bits(x @ y), usual)
    assert released == [ctypes.addressof(block)]
    assert list(kept) == [*range(1, kernels.KEPT_BLOCKS + 1)]


def assembly(dtype: type) -> str:
    code = gemm_tile.TileCode(dtype)
    gemm_tile.emit_multiply(code)
    return gemm_tile.assembly(code.module)


@pytest.mark.skipif(not processor.has("avx512f"), reason="reads AVX-512 machine code")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", ["_dense", ""])
def test_sums_stay_in_registers(dtype, kind):
    name = f"tile_{gemm_tile.HEIGHT}x{gemm_tile.WIDTH}{kind}_{gemm_tile.TileCode(dtype).suffix}"
    text = re.split(r"\n\w+:", assembly(dtype).split(f"\n{name}:")[1])[0]
    blocks = [block for block in text.split("\n.L") if "vfmadd" in block]
    assert len(blocks) == 1, "one loop multiplies"
    lines = [line.strip() for line in blocks[0].split("\n")]
    loop = lines[: next(k for k, line in enumerate(lines) if line.startswith("j")) + 1]
    sums = [line for line in loop if line.startswith("vfmadd")]
    assert len(sums) == gemm_tile.HEIGHT * gemm_tile.WIDTH
    assert all("zmm" in line for line in sums)
    assert not [line for line in loop if "zmm" in line and "rsp" in line], "a sum was spilled"
