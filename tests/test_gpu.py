"""On a GPU, where there is one: what the CPU gives. `make test-gpu` runs these; all else skips them."""

import numpy as np
import pytest
from test_cuda_fused import PROGRAMS as FUSED
from test_elementwise_laws import FLOAT_OPS, named, sample, tensors

import adjit as T
from adjit import driver
from adjit.autograd import gradcheck
from adjit.schedule import plan_cache

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(bool(driver.reason()), reason=f"needs a GPU: {driver.reason()}"),
]
F = T.nn.functional


def both(program, *operands):
    """What a program gives on both devices, with the gradients of its operands."""
    results = []
    for device in ("cpu", "cuda"):
        given = [t.detach().to(device).requires_grad_(t.requires_grad) for t in operands]
        out = program(*given)
        assert out.device.type == device
        if out.requires_grad:
            out.sum().backward()
        T.cuda.synchronize()
        results.append([out.detach().cpu(), *[t.grad.cpu() for t in given if t.grad is not None]])
    return results


@named(FLOAT_OPS)
def test_elementwise_ops_give_the_bits_of_the_cpu(op):
    for dtype in (T.float32, T.float64):
        operands = tensors(sample(op, dtype, (67,)), requires_grad=op.differentiable)
        here, there = both(op, *operands)
        for a, b in zip(here, there, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy(), err_msg=f"{op.name} {dtype}")


PROGRAMS = {
    "sum": lambda x: x.sum(), "sum of rows": lambda x: x.sum(1), "sum of columns": lambda x: x.sum(0),
    "mean": lambda x: x.mean(), "max": lambda x: x.amax(1), "softmax": lambda x: T.softmax(x, 1),
    "log_softmax": lambda x: F.log_softmax(x, 0), "logsumexp": lambda x: x.logsumexp(1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]), "var": lambda x: x.var(1),
    "matmul": lambda x: x @ x.t(), "bmm": lambda x: T.bmm(x[None], x.t()[None]),
    "cumsum": lambda x: x.cumsum(1), "sort": lambda x: x.sort(1)[0], "topk": lambda x: x.topk(3, 1)[0],
    "gather": lambda x: x.gather(1, T.arange(12).reshape(4, 3).to(x.device) % 37),
    "index": lambda x: x[[3, 0, 3], 1:],
    "write": lambda x: (x * 1).index_fill(0, T.tensor([1]).to(x.device), 2),
    "cat": lambda x: T.cat([x, x * 2], 1), "view": lambda x: (x.t()[::2] + 1).reshape(-1),
    "conv2d": lambda x: F.conv2d(x[None, None], x[:3, :3][None, None]),
    "max_pool2d": lambda x: F.max_pool2d(x[None, None], 2),
    "cross_entropy": lambda x: F.cross_entropy(x, T.arange(41).to(x.device) % 37),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_ops(name):
    x = T.tensor(np.random.default_rng(0).standard_normal((41, 37)), requires_grad=True)
    here, there = both(PROGRAMS[name], x)
    for a, b in zip(here, there, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("shape", [(16, 70), (130, 4000)])
def test_fused_programs(name, shape, monkeypatch):
    monkeypatch.setattr(plan_cache, "is_on", True)
    program, _ = FUSED[name]
    T.manual_seed(0)
    x, w = T.randn(*shape), T.randn(shape[1])

    def last(x, w):
        for _ in range(8):  # one by one, then planned, then as a graph
            made = program(x, w)
            seen = [t.cpu().numpy() for t in (made if isinstance(made, tuple) else (made,))]
            plan_cache.wait()
        return seen

    # Products add up 4,000 numbers of which little is left, in cuBLAS in an order of its own.
    atol = 1e-4 if name == "a product" else 1e-5
    for a, b in zip(last(x, w), last(x.cuda(), w.cuda()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=atol)


def test_random_numbers_are_those_of_the_cpu():
    for draw in (T.rand, T.randn):
        T.manual_seed(1)
        here = draw(5000)
        T.manual_seed(1)
        np.testing.assert_array_equal(draw(5000, device="cuda").cpu().numpy(), here.numpy())


def test_a_captured_step():
    w = T.ones(300, device="cuda", requires_grad=True)
    optimizer = T.optim.Adam([w], lr=0.1)

    @T.compile
    def step(x):
        optimizer.zero_grad()
        loss = (w * x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step(T.ones(300, device="cuda")).item() for _ in range(8)]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] == 1


def test_gradcheck():
    x = T.randn(3, 4, dtype=T.float64, device="cuda", requires_grad=True)
    w = T.randn(4, 2, dtype=T.float64, device="cuda", requires_grad=True)
    assert gradcheck(lambda x, w: T.softmax(x.tanh() @ w, 1).cumsum(0), (x, w))


def test_training_and_memory():
    def losses(device):
        T.manual_seed(0)
        net = T.nn.Sequential(T.nn.Linear(64, 256), T.nn.ReLU(), T.nn.Linear(256, 10)).to(device)
        x, y = T.randn(128, 64).to(device), (T.arange(128) % 10).to(device)
        optimizer = T.optim.Adam(net.parameters(), lr=1e-2)
        seen = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        return seen

    before = T.cuda.memory_allocated()
    np.testing.assert_allclose(losses("cuda"), losses("cpu"), rtol=1e-3)
    T.cuda.synchronize()
    assert T.cuda.memory_allocated() == before


def test_a_bad_index_is_reported():
    x = T.arange(3.0, device="cuda")
    y = x.index_select(0, T.tensor([0, 7], device="cuda"))
    with pytest.raises(IndexError):
        y.tolist()
    assert (x + 1).tolist() == [1, 2, 3]


def test_streams_events_and_pinned_memory():
    start, end = T.cuda.Event(enable_timing=True), T.cuda.Event(enable_timing=True)
    x = T.ones(1 << 20).pin_memory().to("cuda", non_blocking=True)
    side = T.cuda.Stream()
    side.wait_stream(T.cuda.current_stream())
    with T.cuda.stream(side):
        start.record()
        y = x * 2
        end.record()
    T.cuda.current_stream().wait_stream(side)
    assert (y + 1).sum().item() == 3 << 20
    assert start.elapsed_time(end) > 0
