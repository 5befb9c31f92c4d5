"""The kernels of ops that are not elementwise, on a GPU: against the CPU's, in the simulator.

All cases run with ADJIT_CUDA_ALL=1, as in CI; a few stand for them otherwise.
"""

from __future__ import annotations

import os
import pkgutil
from importlib import import_module
from operator import add

import numpy as np
import pytest
import stub_driver
from adjit.kernels import matmul, micro, pool, team
from adjit.kernels.abi import T, at, kernel, words
from adjit.kernels.reduce import dot_span, reduce_span, square_deviations
from cuda_kernels import Recorded
from on_simulator import check

import adjit
from adjit import kernels
from adjit.cuda import simulator
from adjit.nn import functional as F
from adjit.schedule import hot, settle, units_cuda
from adjit.schedule.on_cuda import device_step, device_steps
from adjit.schedule.recipe import Source

rng = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    return adjit.tensor(rng.standard_normal(shape).astype(dtype))


def whole(*values):
    return adjit.tensor([*values])


def special(count):
    """NaN, infinities, both zeros and ones in turn."""
    values = [float("nan"), 0.0, -0.0, 1.0, float("inf"), -float("inf"), -1.0]
    return adjit.tensor([values[k * 5 % 7] for k in range(count)])


# What follows computes in the CPU's order, so that the bits are the same.
CASES = {
    "sum of rows": lambda: normal(3, 70).sum(1),
    "sum of columns": lambda: normal(9, 37).sum(0),
    "sum of all": lambda: normal(5, 211).sum(),
    "sum in float64": lambda: normal(3, 40, dtype=np.float64).sum(1),
    "product of rows": lambda: normal(3, 40).prod(1),
    "largest of rows": lambda: normal(3, 70).amax(1),
    "place of the smallest": lambda: normal(3, 70).argmin(1),
    "variance": lambda: normal(3, 70).var(1),
    "softmax": lambda: adjit.softmax(normal(3, 70), 1),
    "log softmax": lambda: adjit.log_softmax(normal(3, 70), 1),
    "softmax of columns": lambda: adjit.softmax(normal(7, 5), 0),
    "logsumexp": lambda: normal(3, 70).logsumexp(1),
    "cross-entropy": lambda: F.cross_entropy(normal(5, 7), whole(1, 0, 6, 2, 2)),
    "layer norm": lambda: F.layer_norm(normal(3, 70), (70,)),
    "running sum of whole numbers": lambda: adjit.arange(2 * 1100).view(2, 1100).cumsum(1),
    "running sum of columns": lambda: normal(5, 300).cumsum(0),
    "sort": lambda: normal(3, 17).sort(1),
    "top k": lambda: normal(3, 17).topk(4, 1),
    "sort of a warp, downwards": lambda: adjit.randint(0, 9, (9, 32)).sort(1, descending=True),
    "sort of a tile": lambda: normal(3, 45, dtype=np.float64).sort(1),
    "sort of equals": lambda: adjit.randint(0, 50, (2, 1100)).sort(1),
    "sort of long rows, downwards": lambda: normal(1, 2049).sort(1, descending=True),
    "sort of longer rows": lambda: adjit.randint(0, 300, (1, 5000)).sort(1),
    "sort of nothing but NaN and zeros": lambda: special(70).sort(),
    "sort of bytes": lambda: adjit.randint(0, 250, (2, 90)).to(adjit.uint8).sort(1),
    "places of a sort": lambda: normal(40, 3).argsort(0),
    "top k of equals": lambda: adjit.randint(0, 9, (2, 700)).topk(9, 1, largest=False),
    "top k with equals at the limit": lambda: adjit.randint(0, 200, (2, 700)).topk(9, 1),
    "many of the top with equals at the limit": lambda: adjit.randint(0, 9, (2, 700)).topk(100, 1),
    "many of the top": lambda: normal(2, 700).topk(40, 1),
    "all of the top": lambda: special(50).topk(50, sorted=False),
    "k-th of long rows": lambda: adjit.randint(0, 9, (3, 700)).kthvalue(300, 1),
    "median": lambda: normal(3, 300).median(1),
    "median with NaN": lambda: special(300).median(0),
    "median but for NaN": lambda: special(300).nanmedian(0),
    "most common of long rows": lambda: adjit.randint(0, 90, (2, 700)).mode(1),
    "gather": lambda: normal(3, 7).gather(1, whole([0, 3], [1, 2], [6, 5])),
    "chosen rows": lambda: normal(5, 7).index_select(0, whole(4, 0, 2)),
    "embedding": lambda: F.embedding(whole([4, 0], [2, 4]), normal(5, 7)),
    "scatter add": lambda: normal(3, 7).scatter_add(1, whole([0, 3], [1, 1], [6, 5]), normal(3, 2)),
    "joined": lambda: adjit.cat([normal(3, 4), normal(3, 2)], 1),
    "flipped": lambda: normal(3, 4).flip(1),
    "triangle": lambda: normal(5, 5).tril(),
    "padded": lambda: F.pad(normal(2, 3), (1, 1)),
    "unfolded": lambda: F.unfold(normal(1, 2, 5, 5), 3),
    "largest in windows": lambda: F.max_pool2d(normal(1, 2, 6, 6), 2),
    "mean of windows": lambda: F.avg_pool2d(normal(1, 2, 6, 6), 2),
    "resized": lambda: F.interpolate(normal(1, 2, 4, 4), scale_factor=2),
    "uniform numbers": lambda: adjit.rand(300),
    "normal numbers": lambda: adjit.randn(70),
    "whole numbers": lambda: adjit.randint(0, 9, (70,)),
    "dropout": lambda: F.dropout(normal(300), 0.3),
    "batch norm": lambda: F.batch_norm(normal(4, 3, 5, 5), None, None, training=True),
    "batch norm, channels last": lambda: F.batch_norm(
        normal(4, 5, 5, 3).permute(0, 3, 1, 2), None, None, training=True
    ),
    "length of a vector": lambda: normal(3, 70).norm(),
    "dot product": lambda: adjit.dot(normal(70), normal(70)),
    "class chosen": lambda: F.nll_loss(adjit.log_softmax(normal(3, 7), 1), whole(1, 0, 6)),
    "binary cross-entropy": lambda: F.binary_cross_entropy(
        adjit.sigmoid(normal(9)), adjit.sigmoid(normal(9))
    ),
    "running product of columns": lambda: normal(2, 5, 3).cumprod(1),
    "running largest": lambda: normal(3, 17).cummax(1),
    "running smallest": lambda: normal(3, 17).cummin(1),
    "running largest of equals": lambda: adjit.randint(0, 9, (2, 1100)).cummax(1),
    "running smallest with NaN": lambda: adjit.tensor([2.0, 1, float("nan"), 0, 3]).repeat(9).cummin(0),
    "running largest of columns": lambda: normal(5, 300).cummax(0),
    "running logsumexp": lambda: normal(3, 17).logcumsumexp(1),
    "product of columns": lambda: normal(9, 37).prod(0),
    "largest of columns": lambda: normal(9, 37).amax(0),
    "smallest of columns": lambda: normal(9, 37).amin(0),
    "smallest of rows": lambda: normal(3, 37).amin(1),
    "place of the largest of columns": lambda: normal(9, 37).argmax(0),
    "place of the smallest of columns": lambda: normal(9, 37).argmin(0),
    "k-th": lambda: normal(3, 17).kthvalue(3, 1),
    "most common": lambda: adjit.randint(0, 4, (3, 17)).mode(1),
    "places in order": lambda: adjit.searchsorted(adjit.arange(9.0), normal(3)),
    "chosen by a mask": lambda: normal(9)[whole(*[True, False, True] * 3)],
    "put by a mask": lambda: normal(9).masked_scatter(whole(*[True, False, True] * 3), normal(9)),
    "rows added": lambda: normal(5, 7).index_add(0, whole(4, 0, 2), normal(3, 7)),
    "scattered": lambda: normal(3, 7).scatter(1, whole([0, 3], [1, 2], [6, 5]), normal(3, 2)),
    "largest scattered": lambda: normal(3, 7).scatter_reduce(
        1, whole([0, 3], [1, 2], [6, 5]), normal(3, 2), "amax"
    ),
    "largest in areas": lambda: F.adaptive_max_pool2d(normal(1, 2, 7, 7), 3),
    "mean of areas": lambda: F.adaptive_avg_pool2d(normal(1, 2, 7, 7), 3),
    "folded": lambda: F.fold(normal(1, 18, 9), (5, 5), 3),
    "resized by lines": lambda: F.interpolate(normal(1, 2, 4, 4), size=(7, 7), mode="bilinear"),
    "reflected": lambda: F.pad(normal(1, 2, 4, 4), (1, 1, 1, 1), mode="reflect"),
    "channels to pixels": lambda: F.pixel_shuffle(normal(1, 8, 3, 3), 2),
    "pixels to channels": lambda: F.pixel_unshuffle(normal(1, 2, 4, 4), 2),
    "joined of three": lambda: adjit.cat([normal(3, k) for k in (4, 2, 1)], 1),
    "joined of four": lambda: adjit.cat([normal(3, k) for k in (4, 2, 1, 2)], 1),
    "joined of six": lambda: adjit.cat([normal(3, k + 1) for k in range(6)], 1),
    "joined of twelve": lambda: adjit.cat([normal(3, k + 1) for k in range(12)], 1),
    "spaced": lambda: adjit.linspace(0, 1, 9) * 1,
    "identity": lambda: adjit.eye(4) * 1,
    "constant": lambda: adjit.full((4,), 3) * 1,
    "counted": lambda: adjit.arange(9) * 1,
    "uniform numbers in float64": lambda: adjit.rand(70, dtype=adjit.float64),
    "normal numbers in float64": lambda: adjit.randn(70, dtype=adjit.float64),
    "product of whole numbers": lambda: adjit.ones(5, 9).long() @ adjit.ones(9, 4).long(),
}  # fmt: skip

FEW = {"sum of rows", "place of the smallest", "softmax", "gather", "running sum of whole numbers",
       "normal numbers", "matrices", "a linear layer", "sort of long rows, downwards",
       "many of the top"}  # fmt: skip
EVERY = os.environ.get("ADJIT_CUDA_ALL", "0") == "1"


def chosen(cases):
    return [name for name in cases if EVERY or name in FEW]


@pytest.mark.parametrize("name", chosen(CASES))
def test_a_kernel_gives_the_bits_of_the_cpu(name):
    check(CASES[name])


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
    source = source._replace(threads=256, shared=team.PARTS_BYTES)
    x = normal(9000)
    wanted = [x.sum(), (x * x).sum(), ((x - 1) * (x - 1)).sum()]
    for reverse in (False, True):
        out = np.full(3 * 256, np.nan, np.float32)
        given = simulator.Pointer(x.numpy().copy()), simulator.Pointer(out)
        simulator.run(source, [*given, 9000, 1], blocks=1, reverse=reverse)
        for found, value in zip(out.reshape(3, 256), wanted, strict=True):
            assert len({*found.tolist()}) == 1
            assert found[0] == pytest.approx(value.item(), rel=1e-5)


GRADIENTS = {
    "softmax": lambda x: adjit.softmax(x, 1),
    "softmax of columns": lambda x: adjit.softmax(x, 0),
    "log softmax": lambda x: adjit.log_softmax(x, 1),
    "log softmax of columns": lambda x: adjit.log_softmax(x, 0),
    "cross-entropy": lambda x: F.cross_entropy(x, whole(1, 0, 6)),
    "layer norm": lambda x: F.layer_norm(x, (7,)),
    "chosen rows": lambda x: x.index_select(0, whole(2, 0, 2)),
    "embedding": lambda x: F.embedding(whole([2, 0], [2, 1]), x),
    "overlapping views": lambda x: x.unfold(1, 3, 2),
    "running sum": lambda x: x.cumsum(0),
    "largest in windows": lambda x: F.max_pool2d(x[None], 2),
    "mean of windows": lambda x: F.avg_pool2d(x[None], 3, 1),
    "resized by lines": lambda x: F.interpolate(x[None, None], size=(5, 9), mode="bilinear"),
}


@pytest.mark.parametrize("name", GRADIENTS if EVERY else ["softmax"])
def test_a_gradient_gives_the_bits_of_the_cpu(name):
    x, g = normal(3, 7), adjit.tensor(0.7)

    def gradient():
        leaf = x.clone().requires_grad_()
        out = GRADIENTS[name](leaf)
        return adjit.autograd.grad(out, leaf, g.expand(out.shape).contiguous())

    check(gradient)


def test_batch_norm_gradients():
    x, w = normal(4, 3, 5, 5), normal(3)

    def gradients():
        leaves = [x.clone().requires_grad_(), w.clone().requires_grad_()]
        out = F.batch_norm(leaves[0], None, None, leaves[1], None, training=True)
        return adjit.autograd.grad(out, leaves, x)

    check(gradients)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, None], ids=["sgd", "momentum", "adam"])
def test_steps_of_optimisers(options):
    parameters = [adjit.nn.Parameter(normal(5, 4)), adjit.nn.Parameter(normal(3))]
    make = adjit.optim.Adam if options is None else adjit.optim.SGD
    optimizer = make(parameters, lr=0.1, **(options or {}))

    def step():
        for p in parameters:
            p.grad = normal(*p.shape)
        optimizer.step()
        return parameters

    check(step)


PRODUCTS = {
    "matrices": lambda: normal(5, 9) @ normal(9, 7),
    "transposed ones": lambda: normal(9, 5).T @ normal(7, 9).T,
    "batches": lambda: normal(2, 5, 9) @ normal(2, 9, 7),
    "several tiles": lambda: normal(66, 3) @ normal(3, 67),
    "a long sum": lambda: normal(2, 260) @ normal(260, 3),
    "a linear layer": lambda: F.linear(normal(5, 9), normal(7, 9), normal(7)),
    "float64": lambda: normal(5, 9, dtype=np.float64) @ normal(9, 7, dtype=np.float64),
}


@pytest.mark.skipif(not micro.FUSED, reason="this processor does not fuse products and sums")
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


@pytest.mark.skipif(not micro.FUSED, reason="this processor does not fuse products and sums")
@pytest.mark.parametrize("name", AWKWARD if EVERY else ["from an odd place"])
def test_tiles_end_where_a_product_does(name):
    (rows, depth, columns), left_turned, right_turned, shift, dtype = AWKWARD[name]
    x = operand(rows, depth, left_turned, shift, dtype)
    y = operand(depth, columns, right_turned, shift, dtype)
    bias = normal(columns, dtype=dtype)
    check(lambda: [x @ y, adjit.relu(adjit.addmm(bias, x, y, beta=0.5, alpha=2))])


@pytest.mark.skipif(not micro.FUSED, reason="this processor does not fuse products and sums")
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
        assert any("distinct" in label for label in stub.seen)


def test_a_sort_of_several_launches_in_a_plan(monkeypatch):
    monkeypatch.setattr(hot, "is_on", True)
    with stub_driver.installed(simulated=True) as stub:
        x = normal(1, 1500)
        wanted = ((x * 2).sort(1).values + 1).tolist()
        there = x.cuda()
        for _ in range(4):
            stub.seen.clear()
            found = (there * 2).sort(1).values + 1
            assert found.tolist() == wanted
            hot.wait()
        assert sum(label.startswith("sort_by_tiles") for label in stub.seen) == 2


def test_a_profile_tells_every_launch_of_a_sort():
    with stub_driver.installed(simulated=True):
        x = normal(1, 1500).cuda()
        adjit.cuda.synchronize()
        with adjit.profiler.profile() as p:
            x.sort(1).values.tolist()
        assert [event.name for event in p.events()].count("sort_rows_float32") == 2


def test_the_threads_of_a_block_scan_a_row():
    check(lambda: [normal(2, 1100).cumsum(1), normal(3, 17).cumsum(1)], exact=False)
    check(lambda: (1 + normal(2, 70, dtype=np.float64) / 9).cumprod(1), exact=False)
    (result,) = check(lambda: adjit.tensor([[-0.0] * 3]).cumsum(1))
    assert "blocks" in result.source.name


def test_a_matrix_by_a_vector():
    check(lambda: normal(5, 9) @ normal(9), exact=False)
    check(lambda: normal(9, 5).T @ normal(9), exact=False)


# Kernels of the CPU that have no CUDA side yet. The list may only get shorter.
MISSING: set[str] = set()


def test_the_list_of_kernels_without_a_cuda_side_is_true():
    missing, letters = set(), dict.fromkeys("TXYZA", "float32") | {"I": "int64"}
    for info in pkgutil.iter_modules(kernels.__path__):
        if info.name == "launcher":  # the host's part of a launch
            continue
        for function in vars(import_module(f"adjit.kernels.{info.name}")).values():
            if not getattr(function, "is_kernel", False) or function.__module__ != (
                f"adjit.kernels.{info.name}"
            ):
                continue
            try:
                for side in getattr(function, "devices", [None]):
                    units_cuda.by_units(function, letters, 24, side=side)
            except NotImplementedError:
                missing.add(function.__name__)
    assert missing == MISSING


CONVOLUTIONS = {
    "few pixels": lambda x, w: F.conv2d(x[:1], w),
    "few pixels in groups": lambda x, w: F.conv2d(x[:1], w[:, :1].contiguous(), groups=2),
    "padded": lambda x, w: F.conv2d(x, w, padding=1),
    "strided and dilated": lambda x, w: F.conv2d(x, w, stride=2, padding=2, dilation=2),
    "grouped": lambda x, w: F.conv2d(x, w[:, :1], groups=2),
    "depthwise": lambda x, w: F.conv2d(x, w[:2, :1], padding=1, groups=2),
    "transposed": lambda x, w: F.conv_transpose2d(x, w[:2], stride=2),
}


@pytest.mark.parametrize("name", CONVOLUTIONS if EVERY else ["padded", "few pixels"])
def test_a_convolution_and_its_gradients(name):
    x, w = normal(2, 2, 5, 4), normal(4, 2, 3, 3)

    def both():
        image, weight = x.clone().requires_grad_(), w.clone().requires_grad_()
        out = CONVOLUTIONS[name](image, weight)
        grads = adjit.autograd.grad(out, (image, weight), normal(*out.shape))
        return [out.detach(), *grads]

    check(both, exact=False)


def test_long_rows_of_parameters_each_have_their_own_kernel():
    source = Source("max_values", "max_values", origin=(pool.max_values, {"T": "float32"}))
    for count in (70, 71):
        step = device_step(source, 1, (), 1, count)
        assert not step.source.by_table
        assert len(step.source.signature) == count + 1


def test_a_kernel_without_a_cuda_side_says_so():
    source = Source("made_up", "")
    with pytest.raises(
        NotImplementedError, match=r"no CUDA side yet.*move its operands to the CPU"
    ):
        device_step(source, 1, (), 1, 1)
