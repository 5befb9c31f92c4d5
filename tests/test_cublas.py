"""Products by cuBLASLt, on a stub of it that computes on the streams of the stub driver."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import stub_driver
from adjit.kernels.ops import matmul as kernels

import adjit as T
from adjit import config, cublas, devices, driver
from adjit.graph import launch
from adjit.graph.normalized import forget_calls
from adjit.nn import functional as F
from adjit.schedule import plan_cache
from adjit.schedule.fusion.product_epilogue import activated
from adjit.schedule.gpu import products, run
from adjit.schedule.jit import nvidia

rng = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    return T.tensor(rng.standard_normal(shape).astype(dtype))


def forget():
    """Recipes know what runs them: those of other tests know no cuBLASLt, and those of these do."""
    launch._launches.clear()
    forget_calls()


@pytest.fixture
def stub():
    with stub_driver.installed() as found:
        yield found


@pytest.fixture
def library(stub, monkeypatch):
    """The stub of cuBLASLt, as if it were installed."""
    found = stub_driver.CublasLt()
    monkeypatch.setattr(nvidia, "cublaslt", lambda: found.path)
    forget()
    for index in range(2):
        owner = run.gpu_of(devices.gpu(index))
        monkeypatch.setattr(owner, "products", products.Products(owner))
    yield found
    T.cuda.synchronize()
    forget()
    for name in ("create", "search", "product"):
        found.set(f"status_of_{name}", 0)
    found.set("refused", -1)
    found.set("workspace", 4096)


def near(found, wanted):
    few = 1e-12 if wanted.dtype is T.float64 else 2e-5
    np.testing.assert_allclose(found.cpu().numpy(), wanted.numpy(), rtol=few, atol=few)


def turned(*shape, dtype=np.float32):
    """A matrix, or a batch of them, that lies in memory by columns."""
    return normal(*shape[:-2], shape[-1], shape[-2], dtype=dtype).transpose(-2, -1)


# name: operands on the CPU, the product of them.
TAKEN = {
    "by rows": lambda: ((normal(5, 9), normal(9, 7)), T.mm),
    "left by columns": lambda: ((turned(5, 9), normal(9, 7)), T.mm),
    "right by columns": lambda: ((normal(5, 9), turned(9, 7)), T.mm),
    "both by columns": lambda: ((turned(5, 9), turned(9, 7)), T.mm),
    "float64": lambda: ((normal(5, 9, dtype=np.float64), turned(9, 7, dtype=np.float64)), T.mm),
    "parts of wider ones": lambda: ((normal(5, 20)[:, 8:17], normal(9, 16)[:, 4:11]), T.mm),
    "parts of higher ones": lambda: ((turned(8, 9)[:5], turned(9, 12)[:, :7]), T.mm),
    "from an odd place": lambda: ((normal(46)[1:].view(5, 9), normal(64)[1:].view(9, 7)), T.mm),
    "batches": lambda: ((normal(3, 5, 9), normal(3, 9, 7)), T.bmm),
    "batches by columns": lambda: ((turned(3, 5, 9), turned(3, 9, 7)), T.bmm),
    "batches, the first axis inside": lambda: ((normal(5, 3, 9).transpose(0, 1), normal(3, 9, 7)), T.bmm),
    "one for all of a batch": lambda: ((normal(3, 5, 9), normal(9, 7).expand(3, 9, 7)), T.bmm),
    "two axes of batches": lambda: ((normal(2, 3, 5, 9), normal(2, 3, 9, 7)), T.matmul),
    "a linear layer": lambda: ((normal(5, 9), normal(7, 9), normal(7)), F.linear),
    "a row scaled with the product": lambda: (
        (normal(7), normal(5, 9), normal(9, 7)), lambda b, x, y: T.addmm(b, x, y, alpha=3)
    ),
    "a sum with a matrix": lambda: (
        (normal(5, 7), normal(5, 9), normal(9, 7)), lambda b, x, y: T.addmm(b, x, y, beta=0.5, alpha=2)
    ),
    "a sum with a part": lambda: ((normal(5, 20)[:, 4:11], normal(5, 9), normal(9, 7)), T.addmm),
    "a sum with batches": lambda: ((normal(3, 5, 7), normal(3, 5, 9), normal(3, 9, 7)), T.baddbmm),
    "a sum with one for all": lambda: ((normal(5, 7), normal(3, 5, 9), normal(3, 9, 7)), T.baddbmm),
    "a scaled row of one row": lambda: (
        (normal(7), normal(1, 9), normal(9, 7)), lambda b, x, y: T.addmm(b, x, y, beta=2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_a_product_goes_to_the_library(stub, library, name):
    operands, product = TAKEN[name]()
    wanted, before = product(*operands), library.products
    stub.seen.clear()
    found = product(*[x.cuda() if x.is_contiguous() else there(x) for x in operands])
    near(found, wanted)
    assert library.products == before + 1
    assert not any("product" in label for label in stub.seen)


def there(x):
    """A tensor on the GPU that lies as one on the CPU does, in a storage as large."""
    whole = T.as_strided(x, (x.storage_offset() + extent(x),), (1,), 0)
    return whole.cuda().as_strided(x.shape, x.stride(), x.storage_offset())


def extent(x):
    return 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))


NOT_TAKEN = {
    "every other column": lambda: ((normal(5, 18)[:, ::2], normal(9, 7)), T.mm),
    "batches in no one stride": lambda: ((normal(3, 2, 5, 9).transpose(0, 1), normal(2, 3, 9, 7)), T.matmul),
    "a scaled row": lambda: ((normal(7), normal(5, 9), normal(9, 7)), lambda b, x, y: T.addmm(b, x, y, beta=2)),
    "a column": lambda: ((normal(5, 1), normal(5, 9), normal(9, 7)), T.addmm),
    "whole numbers": lambda: ((normal(5, 9).long(), normal(9, 7).long()), T.mm),
    "no depth": lambda: ((normal(5, 0), normal(0, 7)), T.mm),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_a_product_stays_with_our_kernels(stub, library, name):
    operands, product = NOT_TAKEN[name]()
    before = library.products
    found = product(*[there(x) if x.numel() else x.cuda() for x in operands])
    np.testing.assert_allclose(
        found.cpu().numpy(), product(*operands).numpy(), rtol=2e-5, atol=2e-5
    )
    assert library.products == before


def described(layout):
    return layout.rows, layout.columns, layout.ld, layout.stride, layout.batches


def test_what_the_library_is_told(stub, library):
    """Everything by columns: the right operand is its A, and out.T what it makes."""
    x, y = normal(5, 20).cuda()[:, :9], turned(9, 7).cuda()
    (x @ y).tolist()
    last = library.last
    assert (last.compute, last.scale, last.epilogue) == (cublas.COMPUTE_32F, cublas.R_32F, 1)
    assert (last.transpose_a, last.transpose_b) == (1, 0)
    assert described(last.a) == (9, 7, 9, 0, 1)
    assert described(last.b) == (9, 5, 20, 0, 1)
    assert described(last.c) == described(last.d) == (7, 5, 7, 0, 1)
    assert (last.a_at, last.b_at, last.c_at) == (y.data_ptr(), x.data_ptr(), last.d_at)
    assert (last.alpha, last.beta, last.alignment) == (1, 0, 16)
    b, x, y = normal(4, 5, 8), normal(4, 9, 5).transpose(1, 2), normal(9, 8)
    b, x, y = b.cuda(), there(x), y.cuda().expand(4, 9, 8)
    T.baddbmm(b, x, y, beta=0.25, alpha=-2).tolist()
    last = library.last
    assert (last.transpose_a, last.transpose_b) == (0, 1)
    assert described(last.a) == (8, 9, 8, 0, 4)
    assert described(last.b) == (5, 9, 5, 45, 4)
    assert described(last.c) == described(last.d) == (8, 5, 8, 40, 4)
    assert (last.c_at, last.alpha, last.beta) == (b.data_ptr(), -2, 0.25)
    bias = normal(8).cuda()
    F.linear(normal(3, 9).cuda(), normal(8, 9).cuda(), bias).tolist()
    last = library.last
    assert (last.epilogue, last.bias, last.beta) == (cublas.EPILOGUE_BIAS, bias.data_ptr(), 0)


@pytest.mark.parametrize(
    ("precision", "compute"),
    [
        ("highest", cublas.COMPUTE_32F),
        ("high", cublas.COMPUTE_32F_FAST_TF32),
        ("medium", cublas.COMPUTE_32F_FAST_16BF),
    ],
)
def test_precisions(stub, library, precision, compute):
    x = normal(5, 9).cuda()
    T.set_float32_matmul_precision(precision)
    try:
        (x @ x.t()).tolist()
        assert library.last.compute == compute
        (x.double() @ x.t().double()).tolist()
        assert library.last.compute == cublas.COMPUTE_64F
    finally:
        T.set_float32_matmul_precision("highest")


def test_operands_at_odd_places_have_an_algorithm_of_their_own(stub, library):
    x, y = normal(64).cuda(), normal(8, 8).cuda()
    for first, alignment in ((0, 16), (1, 4), (4, 16), (0, 16)):
        part = x[first : first + 40].view(5, 8)
        near(part @ y, part.cpu() @ y.cpu())
        assert library.last.alignment == alignment
    bias = normal(9).cuda()
    T.addmm(bias[1:], x.view(8, 8), y).tolist()
    assert library.last.alignment == 4


def test_an_algorithm_is_looked_up_once_for_a_shape(stub, library):
    before = library.searches
    for _ in range(4):
        (normal(6, 9).cuda() @ normal(9, 7).cuda()).tolist()
        T.mm(normal(6, 9).cuda(), normal(9, 7).cuda()).tolist()
    assert library.searches == before + 2
    (normal(6, 8).cuda() @ normal(8, 7).cuda()).tolist()
    assert library.searches == before + 4


def test_descriptors_are_given_back(stub, library):
    owner = run.gpu_of(devices.gpu(0))
    x = normal(6, 9).cuda()
    before = library.alive
    (x @ x.t()).tolist()
    assert library.alive == before + 5  # an operation and four layouts
    forget()
    owner.products._calls.clear()
    gc.collect()
    assert library.alive == before


def test_workspace_is_memory_of_the_stream(stub, library):
    library.set("workspace", 1 << 20)
    x = normal(6, 9).cuda()
    T.cuda.synchronize()
    before = T.cuda.memory_allocated()
    T.cuda.reset_peak_memory_stats()
    side = T.cuda.Stream()
    seen = []
    for stream in (None, side, None):
        with T.cuda.stream(stream):
            y = x @ x.t()
            T.cuda.Event().record()  # runs what is recorded
            seen.append(library.last.workspace_at)
        T.cuda.synchronize()
        near(y, x.cpu() @ x.cpu().t())
    assert library.last.workspace == 1 << 20
    assert seen[0] == seen[2] != seen[1]
    del y
    assert T.cuda.memory_allocated() == before
    assert T.cuda.max_memory_allocated() >= before + (1 << 20)


def test_workspace_of_plans_lies_where_the_library_wants_it(stub, library, monkeypatch):
    """At multiples of 256 bytes, whatever lies beside it: values here have 64."""
    monkeypatch.setattr(plan_cache, "is_on", True)
    x, w = normal(4, 4), normal(4, 4)

    def program(x, w):
        a = (x @ w).tanh()
        b = (a @ w).tanh()
        return (a * b @ w) * a

    wanted = program(x, w)
    x, w = x.cuda(), w.cuda()
    for _ in range(6):
        near(program(x, w), wanted)
        plan_cache.wait()
    assert library.last.workspace > 0


def test_plans_and_graphs(stub, library, monkeypatch):
    """A training step of large enough products, with workspace, replayed as graphs."""
    monkeypatch.setattr(plan_cache, "is_on", True)

    def program(device):
        T.manual_seed(0)
        net = T.nn.Sequential(T.nn.Linear(30, 40), T.nn.ReLU(), T.nn.Linear(40, 20)).to(device)
        x, y = T.randn(50, 30).to(device), T.randn(50, 20).to(device)
        optimizer = T.optim.SGD(net.parameters(), lr=0.1)
        losses = []
        for k in range(12):
            optimizer.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
            plan_cache.wait()
            losses.append(loss.item())
            if k == 9:
                stub.seen.clear()
                stub.set("graph_launches", 0)
        return losses

    wanted, before = program("cpu"), library.products
    assert program("cuda") == pytest.approx(wanted, rel=1e-4)
    assert library.products > before
    assert stub.graph_launches >= 2
    assert not any("product" in label for label in stub.seen)
    assert any(
        "relu" in label or "maximum" in label for label in stub.seen
    )  # apart from the product


def test_a_relu_behind_a_product_keeps_nan(stub, library, monkeypatch):
    monkeypatch.setattr(plan_cache, "is_on", True)
    x, w, b = normal(40, 30), normal(50, 30), normal(50)
    x[3, 4] = math.nan
    here = T.relu(F.linear(x, w, b))
    x, w, b = x.cuda(), w.cuda(), b.cuda()
    recipe = F.linear(x, w, b)._storage.value.recipe
    assert products.product_of(recipe) is not None
    assert products.product_of(activated(recipe, kernels.RELU)) is None
    for _ in range(4):
        found = T.relu(F.linear(x, w, b))
        T.cuda.synchronize()
        plan_cache.wait()
        assert library.last.epilogue == cublas.EPILOGUE_BIAS
        np.testing.assert_allclose(found.cpu().numpy(), here.numpy(), rtol=1e-4, atol=1e-5)


def test_a_captured_step(stub, library, monkeypatch):
    monkeypatch.setattr(plan_cache, "is_on", True)
    w = normal(30, 30).cuda().requires_grad_()

    @T.compile
    def step(x):
        loss = (x @ w).square().mean()
        (g,) = T.autograd.grad(loss, w)
        return loss.detach(), g

    x = normal(20, 30).cuda()
    wanted = (x.cpu() @ w.detach().cpu()).square().mean().item()
    before = library.products
    for _ in range(8):
        loss, g = step(x)
        assert loss.item() == pytest.approx(wanted, rel=1e-5)
        assert g.shape == w.shape
    assert library.products > before


# ----- what goes wrong -----


def test_a_product_that_fails_says_so(stub, library):
    x = normal(6, 9).cuda()
    library.set("status_of_product", 13)
    with pytest.raises(
        RuntimeError,
        match=r"cuBLASLt error: the program failed to execute \(CUBLAS_STATUS_EXECUTION_FAILED, from cublasLtM",
    ):
        (x @ x.t()).tolist()
    library.set("status_of_product", 3)
    with pytest.raises(T.OutOfMemoryError, match="the resource allocation failed"):
        (x @ x.t()).tolist()
    library.set("status_of_product", 0)
    assert (x @ x.t()).shape == (6, 6)


def test_a_search_that_fails_says_so(stub, library):
    x = normal(6, 10).cuda()
    library.set("status_of_search", 7)
    with pytest.raises(RuntimeError, match=r"INVALID_VALUE, from cublasLtMatmulAlgoGetHeuristic"):
        (x @ x.t()).tolist()


def test_what_the_library_has_no_algorithm_for_is_ours(stub, library):
    library.set("refused", cublas.EPILOGUE_BIAS)
    x, w, b = normal(6, 9), normal(4, 9), normal(4)
    before = library.products
    found = F.linear(x.cuda(), w.cuda(), b.cuda())
    assert found.tolist() == F.linear(x, w, b).tolist()  # the CPU's kernel, the same bits
    assert library.products == before


def test_a_library_that_cannot_be_used_is_told_once(stub, library):
    library.set("status_of_create", 1)
    x = normal(6, 9).cuda()
    with pytest.warns(
        RuntimeWarning,
        match=r"cannot be used \(cuBLASLt error: the library was not initialized .*'adjit\[cublas13\]'",
    ):
        first = (x @ x.t()).tolist()
    assert first == (x.cpu() @ x.cpu().t()).tolist()
    (normal(7, 9).cuda() @ x.t()).tolist()


def test_no_library(stub, library, monkeypatch):
    before = library.products
    owner = run.gpu_of(devices.gpu(0))
    x = normal(6, 9).cuda()
    for patched in ((nvidia, "cublaslt", lambda: None), (config, "CUBLASLT", False)):
        with monkeypatch.context() as patch:
            patch.setattr(*patched)
            patch.setattr(owner, "products", products.Products(owner))
            forget()
            assert (x @ x.t()).tolist() == (x.cpu() @ x.cpu().t()).tolist()
    assert library.products == before


pathfinder = pytest.mark.skipif(
    not nvidia.is_installed(), reason="cuda-pathfinder comes with adjit[cuda13]"
)


@pathfinder
def test_the_library_is_found_where_libraries_are():
    folder = stub_driver.built().parent
    code = "from adjit.schedule.jit import nvidia as toolkit; print(toolkit.cublaslt())"
    seen = []
    for environment in ({"LD_LIBRARY_PATH": str(folder)}, {}):
        found = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"} | environment,
        )  # fmt: skip
        seen.append(found.stdout.strip())
    if seen[1] == "None":
        assert seen[0].endswith("libcublasLt.so.13")
    else:
        pytest.skip("NVIDIA's own is installed, and goes first")


@pathfinder
@pytest.mark.skipif(nvidia.cublaslt() is None, reason="nvidia-cublas is not installed")
def test_the_real_library_takes_what_it_is_told():
    """As far as it goes without a GPU."""
    library = cublas.Library(nvidia.cublaslt())
    operation = library.operation(
        cublas.COMPUTE_32F_FAST_16BF, cublas.R_32F, (1, 0), cublas.EPILOGUE_BIAS
    )
    library.expect_bias(operation, 16)
    layout = library.layout(cublas.R_64F, cublas.Matrix(4, 3, 5, 15, 2))
    preference = library._made("cublasLtMatmulPreferenceCreate")
    for attribute in cublas.ALIGNMENTS:
        library._set("cublasLtMatmulPreference", preference, attribute, ctypes.c_int32(16))
    library.destroy("cublasLtMatmulPreference", preference)
    library.destroy("cublasLtMatrixLayout", layout)
    library.destroy("cublasLtMatmulDesc", operation)
    if driver.reason():
        with pytest.raises(
            RuntimeError, match=r"CUBLAS_STATUS_NOT_INITIALIZED, from cublasLtCreate"
        ):
            library.handle()
