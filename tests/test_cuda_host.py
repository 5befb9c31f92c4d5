"""The host's side of CUDA, on a driver without a GPU: memory, copies, streams, errors, programs.

What a kernel computes on a GPU is not seen here: launches run the CPU kernel of the same step.
"""

import copy
import functools
import gc
import io
import os
import pickle
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import stub_driver

import adjit as T
from adjit import config, devices, driver, gpu
from adjit.autograd import gradcheck
from adjit.cuda import simulator
from adjit.schedule import plan_cache
from adjit.schedule import settle as scheduling
from adjit.schedule.gpu import run
from adjit.schedule.planning.recipe import DeviceSource


@pytest.fixture
def stub():
    with stub_driver.installed() as found:
        yield found
        plan_cache.wait()  # or plans would be compiled for a GPU that is no longer there


def run_python(code, **environment):
    """What a fresh interpreter prints, with the stub as the only driver."""
    folder = stub_driver.built().parent
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=os.environ | {"LD_LIBRARY_PATH": str(folder)} | environment,
    )  # fmt: skip
    return found.stdout


# ----- what is there, and what is missing -----


def test_no_driver():
    if not driver.reason():
        pytest.skip("there is a driver")
    assert not T.cuda.is_available()
    assert T.cuda.device_count() == 0
    T.cuda.manual_seed(3)  # ignored
    for ask in (
        lambda: T.zeros(2, device="cuda"),
        lambda: T.zeros(2).cuda(),
        lambda: T.zeros(2).pin_memory(),
        T.cuda.synchronize,
        T.cuda.current_device,
        lambda: T.cuda.FloatTensor(2),
        lambda: T.nn.Linear(2, 2).to("cuda:0"),
    ):
        with pytest.raises(RuntimeError, match="not available: no NVIDIA driver was found"):
            ask()


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, "2"),
        ({"STUB_DEVICES": "0"}, "the NVIDIA driver has found no GPU"),
        ({"STUB_INIT": "100"}, "no CUDA-capable device is detected"),
        ({"STUB_VERSION": "11040"}, "too old: it knows CUDA 11.4, and CUDA 12.0 or newer"),
    ],
)
def test_a_driver_is_found_on_the_library_path(environment, told):
    code = "from adjit import cuda, driver; print(driver.reason() or cuda.device_count())"
    assert told in run_python(code, **environment)


def test_nothing_of_cuda_is_imported_before_a_kernel_is_compiled():
    code = (
        "import sys, adjit; x = adjit.ones(2).cuda(); print(x.cpu().tolist(), "
        "[m for m in sys.modules if m.split('.')[0] in ('cuda', 'numba_cuda')])"
    )
    assert run_python(code) == "[1.0, 1.0] []\n"


def test_what_a_gpu_is(stub):
    assert T.cuda.is_available()
    assert T.cuda.device_count() == 2
    assert T.cuda.get_device_name(1) == "Stub GPU 1"
    assert T.cuda.get_device_capability() == (9, 0)
    found = T.cuda.get_device_properties("cuda")
    assert (found.name, found.major, found.multi_processor_count) == ("Stub GPU 0", 9, 4)
    assert found.total_memory == T.cuda.mem_get_info()[1] == stub.memory
    with pytest.raises(RuntimeError, match=r"invalid device ordinal.*'cuda:7'"):
        T.zeros(2, device="cuda:7")
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        T.cuda.synchronize("cpu")


def test_the_current_device(stub):
    assert T.cuda.current_device() == 0
    with T.cuda.device(1):
        assert T.cuda.current_device() == 1
        assert T.zeros(2).cuda().device == T.device("cuda", 1)
    assert T.zeros(2, device="cuda").device == T.device("cuda:0")
    T.cuda.set_device(1)
    assert T.zeros(2).cuda().get_device() == 1
    assert T.zeros(2, device="cuda:0").get_device() == 0


# ----- tensors -----


def test_there_and_back(stub):
    x = T.arange(6.0).reshape(2, 3)
    y = x.to("cuda")
    assert y.is_cuda
    assert not x.is_cuda
    assert y.device == T.device("cuda:0")
    assert y.cuda() is y
    assert y.to("cuda:0") is y
    assert y.type() == "torch.cuda.FloatTensor"
    assert y.cpu().tolist() == x.tolist() == y.tolist()
    assert y.t().cpu().stride() == (1, 3)  # dense strides are kept
    assert y[:, 1:].cpu().tolist() == [[1, 2], [4, 5]]
    z = x.to("cuda:1", T.float64)
    assert (z.device.index, z.dtype) == (1, T.float64)
    assert z.to(y).device == y.device
    assert y.to(z.device).tolist() == x.tolist()  # from one GPU to another
    assert x.type_as(y).is_cuda
    assert y.type(T.FloatTensor).device == x.device
    assert isinstance(y, T.cuda.FloatTensor)
    assert not isinstance(y, T.FloatTensor)
    assert T.cuda.FloatTensor([1, 2]).tolist() == [1, 2]


@pytest.mark.parametrize(
    "make",
    [
        lambda d: T.tensor([1.5, 2], device=d), lambda d: T.zeros(2, 3, device=d),
        lambda d: T.ones(2, device=d), lambda d: T.full((2,), 7, device=d),
        lambda d: T.arange(5, device=d), lambda d: T.linspace(0, 1, 4, device=d),
        lambda d: T.eye(3, device=d), lambda d: T.as_tensor([1, 2], device=d),
        lambda d: T.as_tensor(np.ones(2, "f4"), device=d),
        lambda d: T.ones_like(T.zeros(2), device=d), lambda d: T.zeros(3, device=d).new_ones(2),
        lambda d: T.full_like(T.ones(2, device=d), 3.0), lambda d: T.empty(2, device=d).fill_(2),
        lambda d: T.empty_strided((2, 2), (1, 2), device=d).zero_(),
        lambda d: T.tril_indices(3, 3, device=d), lambda d: T.Tensor([3, 4], device=d),
        lambda d: T.zeros(2, device=d).new_tensor([1, 2]),
    ],
)  # fmt: skip
def test_creation(stub, make):
    here, there = make("cpu"), make("cuda:1")
    assert there.device == T.device("cuda:1")
    assert (there.dtype, there.shape, there.stride()) == (here.dtype, here.shape, here.stride())
    assert there.tolist() == here.tolist()


def test_random_numbers_are_those_of_the_cpu(stub):
    def draws(device):
        T.manual_seed(1)
        like = T.full((5,), 0.5, device=device)
        return [
            T.randn(7, device=device), T.rand(3, device=device), T.randperm(9, device=device),
            T.randint(9, (4,), device=device), T.normal(like, 2.0), T.rand_like(like),
            T.rand(5, out=T.empty(5, device=device)), T.multinomial(like, 3),
            *[getattr(like.clone(), f"{name}_")() for name in (
                "uniform", "normal", "random", "bernoulli", "exponential", "log_normal", "cauchy",
            )],
            like.clone().geometric_(0.5), T.nn.functional.rrelu(-like, training=True),
            T.nn.functional.gumbel_softmax(like[None]), T.nn.Linear(2, 3, device=device).weight,
            T.nn.init.orthogonal_(T.empty(3, 3, device=device)),
            T.nn.init.sparse_(T.empty(4, 3, device=device), 0.5),
        ]  # fmt: skip

    before = stub.launches
    for here, there in zip(draws("cpu"), draws("cuda:1"), strict=True):
        assert there.device == T.device("cuda:1")
        assert here.tolist() == there.tolist()
    assert stub.launches - before > 20  # drawn there, not copied
    T.cuda.manual_seed(1)
    assert T.rand(3, device="cuda").tolist() == (T.manual_seed(1), T.rand(3))[1].tolist()
    assert T.Generator(device="cuda").device.type == "cuda"


DRAWN = {
    "uniform": lambda x: T.rand(70, device=x.device),
    "normal": lambda x: T.randn_like(x),
    "whole": lambda x: T.randint(-5, 9, (70,), device=x.device),
    "like": lambda x: T.rand_like(x) + T.randint_like(x, 7),
    "around": lambda x: T.normal(x, 0.5),
    "in place": lambda x: x.uniform_(-1, 2) + T.empty_like(x).normal_(1, 3),
    "of a range": lambda x: T.empty_like(x).random_() + T.empty_like(x).random_(3, 8),
    "trials": lambda x: T.bernoulli(x) + T.empty_like(x).bernoulli_(0.3),
    "waiting": lambda x: T.empty_like(x).exponential_(2.0),
    "log-normal": lambda x: T.empty_like(x).log_normal_(),
    "Cauchy": lambda x: T.empty_like(x).cauchy_(),
    "geometric": lambda x: T.empty_like(x).geometric_(0.4),
    "dropout": lambda x: T.nn.functional.dropout(x, 0.4),
    "alpha dropout": lambda x: T.nn.functional.alpha_dropout(x, 0.4, True),
    "channels": lambda x: T.nn.functional.dropout1d(x.reshape(7, 10), 0.4),
    "categories": lambda x: T.multinomial(x, 5, replacement=True),
    "others": lambda x: T.multinomial(x, 5),
    "uniform in float64": lambda x: T.rand(9, dtype=T.float64, device=x.device),
    "normal in float64": lambda x: T.randn(9, dtype=T.float64, device=x.device),
}
DRAWING = ("uniform_", "normal_single", "normal_double", "integers", "trials", "dropout", "choose")


@pytest.mark.parametrize("name", DRAWN)
def test_a_gpu_draws_the_bits_of_the_cpu_itself(name):
    x = T.linspace(0.1, 0.9, 70)
    with stub_driver.installed(simulated=True) as stub:
        T.manual_seed(3)
        here = DRAWN[name](x.clone())
        T.cuda.manual_seed(3)
        there = DRAWN[name](x.cuda())
        assert there.is_cuda
        assert (there.dtype, there.tolist()) == (here.dtype, here.tolist())
        assert any(label.startswith(DRAWING) for label in stub.seen)


def test_looking_at_values(stub):
    x = T.tensor([1.0, 2.5], device="cuda:1")
    assert repr(x) == "tensor([1.0000, 2.5000], device='cuda:1')"
    assert "cuda:1" in x._repr_html_()
    assert x[1].item() == 2.5
    assert bool(x[0] == 1)
    assert f"{x[0]:.1f}" == "1.0"
    with pytest.raises(
        TypeError, match=r"can't convert cuda:1 device type tensor to numpy\. Use Tensor\.cpu"
    ):
        x.numpy()
    assert x.numpy(force=True).tolist() == [1, 2.5]


def test_pickle_deepcopy_and_files(stub):
    x = T.tensor([1.0, 2.0], device="cuda:1", requires_grad=True)
    for made in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert (made.device, made.requires_grad, made.tolist()) == (x.device, True, [1, 2])
    file = io.BytesIO()
    T.save({"x": x.detach()}, file)
    for where, index in (("cpu", -1), ("cuda:0", 0), (T.device("cuda:1"), 1), (None, 1)):
        file.seek(0)
        assert T.load(file, map_location=where)["x"].get_device() == index


def test_copies_between_devices(stub):
    a, b = T.zeros(3, device="cuda"), T.arange(3.0)
    a.copy_(b)
    assert (a.tolist(), a.is_cuda) == ([0, 1, 2], True)
    b.copy_(a * 2, non_blocking=True)
    assert (b.tolist(), b.is_cuda) == ([0, 2, 4], False)
    a[1:].copy_(T.tensor([7, 8]))
    assert a.tolist() == [0, 7, 8]
    a[0] = T.tensor(5.0)
    a[T.tensor([False, True, False])] = 1.0  # an index may be on the host
    assert a[T.tensor([0, 2])].tolist() == [5, 8]
    assert a.tolist() == [5, 1, 8]


def test_a_recorded_copy_sees_no_later_write(stub):
    x = T.arange(3.0)
    y = x.cuda()
    x.add_(1)
    z = y.cpu()
    y.mul_(10)
    assert (x.tolist(), z.tolist(), y.tolist()) == ([1, 2, 3], [0, 1, 2], [0, 10, 20])
    shared = np.ones(2, "f4")
    w = T.from_numpy(shared).cuda()
    shared[:] = 5
    assert w.tolist() == [1, 1]


def test_devices_do_not_mix(stub):
    here, there = T.ones(2), T.ones(2, device="cuda")
    text = "Expected all tensors to be on the same device, but found at least two devices, "
    for op in (
        lambda: here + there,
        lambda: there.add_(here),
        lambda: T.where(there > 0, here, there),
        lambda: T.ones(2, 2) @ there,
        lambda: T.cat([there, here]),
        lambda: there + there.to("cuda:1"),
        lambda: T.nn.functional.linear(there, T.ones(3, 2)),
    ):
        with pytest.raises(RuntimeError, match=text):
            op()
    with pytest.raises(RuntimeError, match=r"on cuda:0 and cpu!|cuda:0 and cpu!"):
        there * here
    number = T.tensor(3.0)  # a number may come from the host
    assert (there * number).tolist() == (number * there).tolist() == [3, 3]
    with pytest.raises(RuntimeError, match="found at least two devices"):
        number.add_(there[0])
    here.requires_grad_()
    with pytest.raises(
        RuntimeError, match="attempting to assign a gradient with device type 'cuda'"
    ):
        here.grad = there


def test_an_op_without_a_kernel_says_so_where_it_is_called(stub, monkeypatch):
    def missing(recipe):
        raise NotImplementedError(f"{recipe.name} has no CUDA side yet")

    from adjit.schedule.gpu import lower

    x = T.ones(5, 3, device="cuda", dtype=T.float64)
    monkeypatch.setattr(lower, "device_steps", missing)
    with pytest.raises(
        NotImplementedError, match=r"has no CUDA side yet.*x\.cpu\(\) brings.*'cuda:0'"
    ):
        T.cumsum(x, 1)


# ----- programs -----


def test_gradients_are_on_the_device_of_the_leaf(stub):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    w = T.tensor(3.0, requires_grad=True)
    (x.cuda() * w).sum().backward()
    assert (x.grad.device.type, x.grad.tolist()) == ("cpu", [3, 3])
    assert (w.grad.device.type, w.grad.item()) == ("cpu", 3)
    y = T.tensor([1.0, 2.0], device="cuda", requires_grad=True)
    y[1:].cpu().square().sum().backward()
    assert (y.grad.device.type, y.grad.tolist()) == ("cuda", [0, 4])
    assert y.cpu().grad_fn.name() == "ToCopyBackward0"


def test_gradcheck(stub):
    x = T.randn(3, 4, dtype=T.float64, device="cuda", requires_grad=True)
    w = T.randn(4, 2, dtype=T.float64, device="cuda", requires_grad=True)
    assert gradcheck(lambda x, w: T.softmax(x.tanh() @ w, 1).cumsum(0), (x, w))


def train(device, steps=4):
    """A small network's losses and its state."""
    T.manual_seed(0)
    net = T.nn.Sequential(
        T.nn.Conv2d(1, 3, 3), T.nn.BatchNorm2d(3), T.nn.ReLU(), T.nn.MaxPool2d(2), T.nn.Flatten(),
        T.nn.Linear(27, 4),
    ).to(device)  # fmt: skip
    x, y = T.randn(6, 1, 8, 8).to(device), T.tensor([0, 1, 2, 3, 0, 1]).to(device)
    optimizer = T.optim.Adam(net.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = T.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, net


def test_training_gives_what_it_gives_on_the_cpu(stub):
    here, there = train("cpu"), train("cuda")
    assert here[0] == there[0]  # the same kernels, the same bits
    for name, value in there[1].state_dict().items():
        assert value.is_cuda, name
        assert value.tolist() == here[1].state_dict()[name].tolist(), name
    assert {"cpu"} == {p.device.type for p in there[1].cpu().parameters()}


def test_the_kernels_for_gpus_through_the_whole_host(monkeypatch):
    """A training loop on their own texts, in the simulator: recorded, planned, fused, launched."""
    monkeypatch.setattr(plan_cache, "is_on", True)

    def program(device):
        T.manual_seed(0)
        net = T.nn.Sequential(T.nn.Linear(3, 4), T.nn.ReLU(), T.nn.Linear(4, 2)).to(device)
        x, y = T.randn(5, 3).to(device), T.tensor([0, 1, 1, 0, 1]).to(device)
        optimizer = T.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = T.nn.functional.cross_entropy(net(x) * 2 + 1, y)
            loss.backward()
            optimizer.step()
            plan_cache.wait()
            losses.append(loss.item())
        return losses

    with stub_driver.installed(simulated=True) as stub:
        here, there = program("cpu"), program("cuda")
        assert any("fused_mul_add" in label for label in stub.seen), {*stub.seen}
    assert there == pytest.approx(here, rel=1e-6)


def test_plans_and_graphs(stub, monkeypatch):
    monkeypatch.setattr(plan_cache, "is_on", True)

    def program(device):
        T.manual_seed(0)
        x, w = T.randn(40, 50, device=device), T.randn(50, 60, device=device, requires_grad=True)
        seen = []
        for k in range(12):
            w.grad = None
            y = (x @ w).tanh() * 2 + 1
            z = y.exp().sum() + (y * y).mean()
            z.backward()
            plan_cache.wait()
            seen += z.item(), w.grad.sum().item()
            if k == 9:
                stub.seen.clear()
                stub.set("graph_launches", 0)
        return seen

    wanted = program("cpu")
    assert program("cuda") == pytest.approx(wanted, rel=1e-6)
    assert any(label.startswith("fused tanh, mul, add") for label in stub.seen)
    assert stub.graph_launches >= 2


def test_a_training_loop_becomes_graphs(stub, monkeypatch):
    """Numbers that change from step to step (Adam's, those of dropout) and rows that report what
    they find are no part of a graph; one launch moves 30 parameters."""
    monkeypatch.setattr(plan_cache, "is_on", True)

    def program(device):
        T.manual_seed(0)
        net = T.nn.Sequential(*[T.nn.Linear(6, 6) for _ in range(15)], T.nn.Dropout(0.3)).to(device)
        x, y = T.randn(5, 6).to(device), T.tensor([0, 1, 5, 3, 2]).to(device)
        optimizer, losses = T.optim.Adam(net.parameters(), lr=0.01), []
        for k in range(12):
            optimizer.zero_grad()
            loss = T.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            plan_cache.wait()
            losses.append(loss.item())
            if k == 9:
                stub.seen.clear()
                stub.set("graph_launches", 0)
        return losses

    assert program("cpu") == program("cuda")
    assert stub.graph_launches == 2
    assert sum(label.startswith("adam_step") for label in stub.seen) == 2


def test_a_plan_goes_to_the_current_stream(stub, monkeypatch):
    monkeypatch.setattr(plan_cache, "is_on", True)
    side, x = T.cuda.Stream(), T.ones(3000, device="cuda")
    T.cuda.synchronize()
    for k in range(6):
        with T.cuda.stream(side if k % 2 else None):
            y = (x * 2).tanh() + (x * k).exp()
            T.cuda.Event().record()  # runs what is recorded
            plan_cache.wait()
        assert side.query() != bool(k % 2)
        T.cuda.synchronize()
        assert y[0].item() == pytest.approx(np.tanh(2) + np.exp(k), rel=1e-5)


def test_plans_write_in_place_copy_and_report(stub, monkeypatch):
    monkeypatch.setattr(plan_cache, "is_on", True)
    index = T.tensor([0, 3, 1], device="cuda")
    for k in range(6):
        x = T.zeros(4, 600, device="cuda") + k
        held = x + 1
        kept = held.detach()
        held[1:3, ::2] = x[1:3, ::2] * 10
        T.cuda.synchronize()
        picked = held.index_select(0, index)
        again = picked * 2 + 1
        plan_cache.wait()
        assert again[:, 0].tolist() == [2 * k + 3, 2 * k + 3, 20 * k + 1]
        assert kept[1, :2].tolist() == [10 * k, k + 1]
    bad = T.tensor([0, 4], device="cuda")
    for _ in range(4):
        picked = held.index_select(0, bad) + 1
        with pytest.raises(IndexError) as caught:
            picked.tolist()
        assert caught.value.__notes__
        plan_cache.wait()


def test_a_captured_step_is_one_graph(stub, monkeypatch):
    monkeypatch.setattr(plan_cache, "is_on", True)

    def program(device):
        T.manual_seed(0)
        net = T.nn.Sequential(T.nn.Linear(6, 6), T.nn.Dropout(0.3), T.nn.Linear(6, 6)).to(device)
        x, y = T.randn(5, 6).to(device), T.tensor([0, 1, 5, 3, 2]).to(device)
        optimizer, losses = T.optim.Adam(net.parameters(), lr=0.01), []

        @T.compile
        def step(x, y):
            optimizer.zero_grad()
            loss = T.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        for _ in range(8):
            stub.set("graph_launches", 0)
            losses.append(step(x, y).item())
        return losses, lambda: step(x, y + 2).item()

    found, fails = program("cuda")
    assert stub.graph_launches == 1
    assert found == program("cpu")[0]
    with pytest.raises(IndexError, match="Target 7 is out of bounds") as caught:
        fails()
    assert "test_cuda_host.py" in caught.value.__notes__[0]


def test_a_captured_function_of_two_devices_runs_as_it_is(stub):
    step = T.compile(lambda x: (x * 2).cpu() + 1)
    x = T.ones(3, device="cuda")
    step(x)
    with pytest.warns(RuntimeWarning, match="several devices, or copies between devices"):
        assert step(x).tolist() == [3, 3, 3]


def test_an_error_inside_of_a_graph_is_told_with_its_line(stub, monkeypatch):
    monkeypatch.setattr(plan_cache, "is_on", True)
    index = T.tensor([0, 2], device="cuda")
    table, w = T.eye(3, device="cuda"), T.eye(3, device="cuda")

    def program():
        rows = table.index_select(0, index)
        return (rows @ w @ w @ w @ w).sum().item()

    for _ in range(8):
        assert program() == 2
        plan_cache.wait()
    before = stub.graph_launches
    index.add_(1)
    T.cuda.synchronize()
    for _ in range(4):
        with pytest.raises(IndexError, match="out of range") as caught:
            program()
        assert "in program" in caught.value.__notes__[0]
    assert stub.graph_launches > before
    index.sub_(1)
    assert program() == 2


def test_large_copies_of_pinned_memory_go_beside_the_work(stub, monkeypatch):
    host = [T.full((300, 300), float(k)).pin_memory() for k in range(4)]
    T.cuda.synchronize()
    beside = []
    driver = run.gpu_of(devices.gpu(0)).driver
    call = driver.call

    def noted(name, *arguments):
        if name.startswith("cuMemcpyHtoD") and arguments[2] >= run.BESIDE:
            beside.append(arguments[3])
        return call(name, *arguments)

    monkeypatch.setattr(driver, "call", noted)
    kept = [(x.to("cuda", non_blocking=True) * 2)[0, 0] for x in host]
    assert [x.item() for x in kept] == [0, 2, 4, 6]
    assert beside == [run.gpu_of(devices.gpu(0)).copy_stream] * 4
    del kept
    with T.cuda.stream(T.cuda.Stream()):
        seen = [(x.cuda() + 1).sum().item() for x in host]
    assert seen == [90_000 * (k + 1) for k in range(4)]


def test_a_profile_tells_the_times_of_the_gpu(stub, monkeypatch, tmp_path):
    monkeypatch.setattr(plan_cache, "is_on", True)
    x = T.ones(2000, device="cuda")

    def program():
        y = (x * 2 + 1).tanh()
        y[3:9] = 2
        return y.sum().item()

    wanted = program()
    with T.profiler.profile() as cold:
        assert program() == wanted
    for _ in range(2):
        program()
        plan_cache.wait()
    with T.profiler.profile() as planned:
        assert program() == wanted
    for p in (cold, planned):
        events = p.events()
        assert {e.device for e in events} == {x.device}
        assert all(e.duration == 250_000 for e in events)  # what the stub takes between two marks
        assert all("test_cuda_host.py" in e.lines[0][0] for e in events)
    assert len(planned.events()) < len(cold.events())
    planned.export_chrome_trace(tmp_path / "trace.json")
    assert '"cat": "kernel"' in (tmp_path / "trace.json").read_text()


def test_what_cannot_be_captured_is_sent_back_through_as_usual(stub):
    w, x = T.full((2000,), 3.0, device="cuda", requires_grad=True), T.ones(2000, device="cuda")
    loss_of = T.compile(lambda x: (w * w * x).sum())
    loss_of(x).backward()
    with pytest.warns(RuntimeWarning, match="plans of operations on cuda:0 cannot be captured"):
        loss_of(x).backward()
    assert w.grad.tolist() == [12.0] * 2000


def test_what_runs_on_a_gpu_is_shown(monkeypatch):
    monkeypatch.setattr(plan_cache, "is_on", True)
    with stub_driver.installed(simulated=True) as stub:
        x = T.linspace(0, 1, 40, device="cuda")
        x.tolist()
        for _ in range(3):
            y = (x * 2).exp().cumsum(0) * 2 + 1
            shown, plan = T.cuda.kernels(y), y.plan()
            text = y.kernels()
            stub.seen.clear()
            y.tolist()
            plan_cache.wait()
        assert text == "\n\n".join(
            f"# {k.label}, {n} units of work, {k.threads} threads a block\n{k.text}"
            for k, n in zip(shown, (40, 1, 40), strict=True)
        )
        assert [kernel.label for kernel in shown] == stub.seen
        assert [step.source.label for step in plan.steps] == [
            "fused mul, exp", "cumsum_float64_float32", "fused mul, add",
        ]  # fmt: skip
        z = x * 2
        assert z.kernels(device="cpu").startswith("# mul_f32_f32_to_f32_ckc, 40 elements")
        with pytest.raises(ValueError, match="not that of cuda:0"):
            simulator.value(z)


# ----- memory -----


def forget_what_was():
    """What other tests have left is run and freed."""
    scheduling.settle()
    gc.collect()


def test_memory_comes_back(stub):
    forget_what_was()
    before = T.cuda.memory_allocated()
    x = T.zeros(1000, device="cuda")
    assert T.cuda.memory_allocated() - before == gpu.block_size(4000)
    y = x + 1
    T.cuda.synchronize()
    address = y.data_ptr()
    del y
    z = x * 2
    assert z.data_ptr() == address  # the block that was given back
    del x, z
    assert T.cuda.memory_allocated() == before
    T.cuda.reset_peak_memory_stats()
    assert T.cuda.max_memory_allocated() == before
    big = T.empty(1 << 20, device="cuda")
    reserved = T.cuda.memory_reserved()
    assert T.cuda.max_memory_allocated() >= before + (4 << 20)
    del big
    T.cuda.empty_cache()
    assert T.cuda.memory_reserved() <= reserved - (4 << 20)


def test_in_place_steps_take_over_the_memory(stub):
    forget_what_was()
    x = T.zeros(1 << 15, device="cuda")
    T.cuda.synchronize()
    before, allocated = run_cuda_address(x), T.cuda.memory_allocated()
    for _ in range(3):
        x.add_(1)
    T.cuda.synchronize()
    assert run_cuda_address(x) == before
    assert T.cuda.memory_allocated() == allocated
    held = x.detach().clone()
    kept = held + 0
    x[1:3] = 9.0
    assert x[:4].tolist() == [3, 9, 9, 3]
    assert kept[:4].tolist() == [3, 3, 3, 3]


def run_cuda_address(x):
    return int(x._storage.value.address)


def test_out_of_memory(stub, monkeypatch):
    kept = T.empty(1 << 20, device="cuda")
    spare = T.empty(1 << 22, device="cuda")
    before, limit = stub.memory, stub.live_bytes + (1 << 20)
    stub.set("memory", limit)
    try:
        with pytest.raises(
            RuntimeError, match=r"CUDA out of memory\. Tried to allocate 16\.00 MiB\. GPU 0"
        ):
            T.empty(1 << 22, device="cuda")
        del spare
        assert T.empty((1 << 22) - 1000, device="cuda").is_cuda  # free blocks are given back first
    finally:
        stub.set("memory", before)
    assert kept.is_cuda


def test_pinned_memory(stub):
    x = T.arange(4.0).pin_memory()
    assert x.is_pinned()
    assert not T.arange(4.0).is_pinned()
    assert x.pin_memory() is x
    assert T.zeros(3, pin_memory=True).is_pinned()
    assert not x.cuda().is_pinned()
    with pytest.raises(RuntimeError, match=r"cannot pin 'torch\.cuda\.FloatTensor'"):
        x.cuda().pin_memory()
    y = x.to("cuda", non_blocking=True)
    T.cuda.current_stream().query()  # the copy is under way: its source is not handed out again
    address = x.data_ptr()
    del x
    gc.collect()
    others = [T.full((4,), 9.0).pin_memory() for _ in range(3)]
    assert address not in [t.data_ptr() for t in others]
    assert y.tolist() == [0, 1, 2, 3]


WAYS_TO_A_GPU = {
    "cuda": (lambda x, **kw: x.cuda(**kw)), "to": (lambda x, **kw: x.to("cuda", **kw)),
    "copy_": (lambda x, **kw: T.empty(x.shape, device="cuda").copy_(x, **kw)),
    "in its place": (lambda x, non_blocking=False: x.to("cuda", T.float32, non_blocking)),
    "type": (lambda x, **kw: x.type("torch.cuda.FloatTensor", **kw)),
}  # fmt: skip


@pytest.mark.parametrize("size", [4, 100_000])
@pytest.mark.parametrize("way", WAYS_TO_A_GPU)
def test_pinned_memory_may_be_written_after_a_copy_that_blocks(stub, way, size):
    x = T.ones(size).pin_memory()
    view, send = x.numpy(), WAYS_TO_A_GPU[way]
    copies = []
    for k in range(3):  # as a buffer that batches are put into by turns
        view[:] = k
        copies.append(send(x))
        x.add_(10)
    assert [y.unique().tolist() for y in copies] == [[0], [1], [2]]
    view[:] = 5
    late = send(x, non_blocking=True)
    view[:] = 6
    assert late.unique().tolist() == [6]  # as it was asked for


def test_page_locked_memory_is_chosen_by_one_thread_at_a_time(stub, monkeypatch):
    size, found = 3 << 13, []
    idle, busy = gpu.PinnedMemory(size), gpu.PinnedMemory(size)
    address = busy.address
    busy.copies.append(-1)  # one that never ends
    del idle
    del busy

    def are_done(copies):
        time.sleep(0.02)
        return not copies

    monkeypatch.setattr(gpu, "_are_done", are_done)
    threads = [
        threading.Thread(target=lambda: found.append(gpu.PinnedMemory(size))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del gpu._pinned[size]
    assert len({memory.address for memory in found} - {address}) == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_pins_its_batches(stub, workers):
    samples = [{"x": (T.ones(2) * k, k), "name": "a"} for k in range(4)]
    loader = T.utils.data.DataLoader(samples, 2, pin_memory=True, num_workers=workers)
    seen = []
    for batch in loader:
        x, k = batch["x"]
        assert x.is_pinned()
        assert k.is_pinned()
        assert batch["name"] == ["a", "a"]
        seen += x.to("cuda", non_blocking=True)[:, 0].tolist()
    assert seen == [0, 1, 2, 3]
    plain = next(iter(T.utils.data.DataLoader(samples, 2)))
    assert not plain["x"][0].is_pinned()


# ----- streams, events, errors -----


def test_streams_and_events(stub):
    start, end = T.cuda.Event(enable_timing=True), T.cuda.Event(enable_timing=True)
    side = T.cuda.Stream()
    x = T.ones(5, device="cuda")
    T.cuda.synchronize()
    start.record()
    with T.cuda.stream(side):
        assert T.cuda.current_stream() == side != T.cuda.default_stream()
        y = x * 2
        end.record()
    assert T.cuda.current_stream() == T.cuda.default_stream()
    assert not side.query()
    assert not end.query()
    with pytest.raises(RuntimeError, match="Both events must be completed"):
        start.elapsed_time(end)
    T.cuda.current_stream().wait_stream(side)
    assert (y + 1).tolist() == [3] * 5  # the sum waits for the product
    assert side.query()
    end.synchronize()
    assert start.elapsed_time(end) > 0
    with pytest.raises(ValueError, match="enable_timing=True"):
        start.elapsed_time(T.cuda.Event())
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(T.cuda.Event(enable_timing=True))
    with T.cuda.stream(None):
        assert T.cuda.current_stream() == T.cuda.default_stream()


def test_a_block_waits_for_the_streams_that_read_it(stub):
    side = T.cuda.Stream()
    x = T.ones(1 << 15, device="cuda")
    T.cuda.synchronize()
    address = run_cuda_address(x)
    with T.cuda.stream(side):
        y = x + 1
    x.record_stream(side)
    del x
    gc.collect()
    first = T.zeros(1 << 15, device="cuda")
    T.cuda.current_stream().synchronize()
    assert run_cuda_address(first) != address
    side.synchronize()
    second = T.zeros(1 << 15, device="cuda")
    T.cuda.synchronize()
    assert run_cuda_address(second) == address
    assert y.sum().item() == 2 << 15


def test_a_bad_index_is_reported_at_the_next_look(stub):
    x = T.arange(3.0, device="cuda")
    index = T.tensor([0, 7], device="cuda")
    y = x.index_select(0, index)  # recorded here
    line = sys._getframe().f_lineno - 1
    z = x + 1
    with pytest.raises(IndexError) as caught:
        y.tolist()
    assert f"line {line}" in caught.value.__notes__[0]
    assert z.tolist() == [1, 2, 3]  # the GPU goes on
    x.index_select(0, index)
    kept = x.index_select(0, index)
    with pytest.raises(IndexError):
        T.cuda.synchronize()
    assert kept.is_cuda


@pytest.mark.parametrize("captured", [False, True])
def test_an_error_found_ahead_of_a_plan_leaves_it_to_be_run(stub, monkeypatch, captured):
    """Words for what kernels may find are given back by waiting, which may tell of earlier work."""
    monkeypatch.setattr(plan_cache, "is_on", True)
    monkeypatch.setattr(config, "JIT", "sync")
    monkeypatch.setattr(run.Checks, "ROOM", 4)
    owner = run.gpu_of(devices.gpu(0))
    monkeypatch.setattr(owner, "checks", run.Checks(owner))
    x, i, wrong = (T.tensor(values).cuda() for values in ([1.0, 2.0, 3.0], [0, 2], [7]))

    def chosen():
        return (x[i] * 2 + 1).exp()

    program = T.compile(chosen) if captured else chosen
    for _ in range(4):  # from now on by a plan
        made = program()
        scheduling.settle()
    expected = made.tolist()
    bad, results = x[wrong], []
    scheduling.settle()

    def again():
        results.append(program())
        scheduling.settle()

    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 0 with size 3"):
        [again() for _ in range(9)]
    again()
    assert [made.tolist() for made in results] == [expected] * len(results)
    assert bad.shape == (1,)


def test_a_broken_gpu_says_so(stub):
    x = T.ones(3, device="cuda")
    T.cuda.synchronize()
    stub.fails = True
    y = x + 1
    with pytest.raises(RuntimeError, match="CUDA error: an illegal memory access was encountered"):
        y.tolist()
    stub.errors.clear()


def test_numbers_of_a_launch_are_narrowed(stub):
    """A word of a float32 parameter holds the bits of a float64; all others go as they are."""
    seen = []
    source = DeviceSource(
        "probe", "", ("*float32", "float32", "float64", "int32", "int32"), 32, 64, "p"
    )
    owner = run.gpu_of(devices.gpu(0))
    stub.library.stub_describe(b"probe", 5)
    stub.steps["probe"] = None, 5
    launch = run.Launch(owner.driver.function(b"", "probe"), run.Shape(3, 32, 640, 0b10, 130))
    words = [4096, *np.array([0.1, 0.2]).view(np.int64).tolist(), 17]

    def ran(symbol, grid, threads, shared, parameters):
        seen.append((grid, threads, shared, *parameters[:5]))
        return 0

    kept = stub_driver.RUNNER(ran)
    stub.library.stub_set_runner(kept)
    try:
        owner.run([launch], words)
        owner.synchronize()
    finally:
        stub.library.stub_set_runner(stub._runner)
    ((grid, threads, shared, pointer, narrow, wide, size, n),) = seen
    assert (grid, threads, shared, pointer, size, n) == (3, 32, 640, 4096, 17, 130)
    assert np.int64(narrow).astype(np.int32).view(np.float32) == np.float32(0.1)
    assert np.int64(wide).view(np.float64) == 0.2
    assert (source.grid(130, 2), source.grid(130, 9), source.grid(0, 9)) == (2, 3, 1)


def test_a_kernel_of_a_newer_toolkit(stub):
    with pytest.raises(RuntimeError, match=r"image is invalid.*knows CUDA 13\.0.*adjit\[cuda12\]"):
        driver.load().function(b"newer", "kernel")


def test_a_failed_launch_raises(stub):
    owner = run.gpu_of(devices.gpu(0))
    with pytest.raises(RuntimeError, match=r"CUDA error: invalid argument.*cuLaunchKernel"):
        owner.run([run.Launch(0, run.Shape(1, 32, 0, 0, 1))], [0])
    assert T.ones(2, device="cuda").tolist() == [1, 1]


def test_values_die_with_their_tensors(stub):
    x = T.ones(3, device="cuda")
    kept = weakref.ref(x._storage)
    y = (x + 1).cpu()
    del x
    assert y.tolist() == [2, 2, 2]
    assert kept() is None


def test_constants_and_ramps_are_made_on_the_gpu(stub):
    x, y = T.zeros(3, device="cuda:1"), T.arange(3, device="cuda:1")
    T.cuda.synchronize(1)
    assert len(stub.seen) == 2
    assert (x.tolist(), y.tolist()) == ([0, 0, 0], [0, 1, 2])


# ----- the default device -----


def test_the_default_device(stub):
    assert T.get_default_device() == T.device("cpu")
    T.set_default_device("cuda:1")
    try:
        assert T.get_default_device() == T.device("cuda:1")
        made = [
            T.zeros(2), T.ones(2), T.full((2,), 3), T.empty(2), T.empty_strided((2,), (1,)), T.eye(2),
            T.arange(3), T.linspace(0, 1, 3), T.logspace(0, 1, 3), T.tensor([1, 2]), T.rand(2),
            T.randn(2), T.randint(3, (2,)), T.randperm(4), T.normal(0.0, 1.0, (2,)),
            T.as_tensor([1]), T.as_tensor(np.ones(2)), T.tril_indices(2, 2),
            T.nn.Linear(2, 3).weight, T.nn.BatchNorm1d(2).running_mean,
        ]  # fmt: skip
        assert {t.device for t in made} == {T.device("cuda:1")}
        here = [
            T.zeros(2, device="cpu"), T.arange(3, device="cpu"), T.rand(2, device="cpu"),
            T.from_numpy(np.ones(2)), T.zeros(2, device="cpu").new_ones(1),
            T.zeros_like(T.zeros(2, device="cpu")), T.rand_like(T.zeros(2, device="cpu")),
            T.tensor(5, device="cpu"), T.rand(2, out=T.zeros(2, device="cpu")),
            T.arange(2, out=T.zeros(2, device="cpu")),
        ]  # fmt: skip
        assert {t.device.type for t in here} == {"cpu"}
        with T.device("cpu"), T.device("cuda:0"):
            assert T.zeros(2).get_device() == 0
        assert T.zeros(2).get_device() == 1
    finally:
        T.set_default_device(None)
    assert not T.zeros(2).is_cuda
    with T.device("cuda"):
        assert (T.zeros(2) + 1).tolist() == [1, 1]
    assert T.rand_like(T.zeros(2, device="cuda")).is_cuda
    assert T.randn_like(T.zeros(2, device="cuda"), device="cpu").device == T.device("cpu")


def test_a_default_device_that_is_not_there():
    if not driver.reason():
        pytest.skip("there is a driver")
    with pytest.raises(RuntimeError, match="device 'cuda' is not available: no NVIDIA driver"):
        T.set_default_device("cuda")
    with pytest.raises(RuntimeError, match="not available"), T.device("cuda"):
        pass
    assert T.zeros(1).device == T.get_default_device() == T.device("cpu")


# ----- names that programs call, with and without a GPU -----


def test_programs_ask_and_are_answered_without_a_gpu():
    if not driver.reason():
        pytest.skip("there is a driver")
    cuda = T.cuda
    for ask in (
        cuda.is_available, cuda.device_count, cuda.is_initialized, cuda.memory_allocated,
        cuda.max_memory_allocated, cuda.memory_reserved, cuda.max_memory_reserved,
        cuda.reset_peak_memory_stats, cuda.reset_max_memory_allocated, cuda.memory_stats,
        cuda.empty_cache, cuda.ipc_collect, cuda.seed, cuda.seed_all, cuda.get_arch_list,
        cuda.is_bf16_supported, cuda.is_current_stream_capturing, T.accelerator.is_available,
        T.accelerator.device_count, T.accelerator.current_accelerator,
    ):  # fmt: skip
        assert not ask()
    x = T.ones(1)
    for act in (
        cuda.current_device, cuda.get_device_name, cuda.get_device_properties, cuda.memory_summary,
        cuda.get_device_capability, cuda.mem_get_info, cuda.synchronize, cuda.current_stream,
        cuda.default_stream, cuda.Stream, cuda.init, cuda.initial_seed, cuda.get_rng_state,
        T.accelerator.synchronize, T.accelerator.current_device_index,
        lambda: cuda.set_device(0), lambda: cuda.device("cuda:0"), lambda: x.to(0), lambda: x.cuda(0),
        lambda: x.type("torch.cuda.FloatTensor"), lambda: T.Generator("cuda"),
        lambda: T.nn.Linear(1, 1).cuda(), lambda: T.randn(2, device="cuda"),
        lambda: cuda.can_device_access_peer(0, 1), lambda: T.accelerator.set_device_index(0),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="is not available: no NVIDIA driver was found"):
            act()
    with cuda.device_of(x):
        assert T.device("cuda" if cuda.is_available() else "cpu") == x.device


def test_the_same_names_on_a_gpu(stub):
    cuda = T.cuda
    cuda.init()
    x = T.zeros(1000, device="cuda:1")
    assert T.accelerator.current_accelerator() == T.device("cuda")
    with cuda.device_of(x):
        assert T.accelerator.current_device_index() == 1
        assert cuda.memory_allocated() == cuda.memory_stats()["allocated_bytes.all.current"] > 0
        assert "in blocks of tensors" in cuda.memory_summary()
    assert cuda.memory_summary(1).startswith("memory of cuda:1\n")
    state = cuda.get_rng_state()
    cuda.manual_seed(3)
    assert cuda.initial_seed() == T.initial_seed() == 3
    cuda.seed()
    assert cuda.initial_seed() != 3
    cuda.set_rng_state(state)
    T.accelerator.set_device_index(1)
    T.accelerator.synchronize()
    assert cuda.current_device() == 1
    assert not cuda.can_device_access_peer(0, 1)
    assert T.nn.Linear(2, 2).cuda().weight.get_device() == 1
    assert x.cuda(0).get_device() == x.to(0).get_device() == 0
    assert issubclass(cuda.OutOfMemoryError, T.OutOfMemoryError)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cuda.make_graphed_callables", "by itself"),
        ("cuda.nccl", "listed in the README"),
    ],
)  # fmt: skip
def test_what_there_is_not_says_what_to_do(name, text):
    with pytest.raises(AttributeError, match=text):
        functools.reduce(getattr, name.split("."), T)


def test_graphs_are_names_for_annotations():
    told = "what comes back is launched as a CUDA graph by itself"
    for make in (T.cuda.CUDAGraph, T.cuda.graph):
        with pytest.raises(RuntimeError, match=told):
            make()


def test_settings_of_backends_are_taken(monkeypatch):
    monkeypatch.setattr(config, "MATMUL_PRECISION", "highest")
    for name in ("benchmark", "deterministic", "enabled", "allow_tf32"):
        monkeypatch.setattr(T.backends.cudnn, name, True)
        assert getattr(T.backends.cudnn, name)
    with (
        T.backends.cudnn.flags(enabled=False, benchmark=True),
        T.backends.mkldnn.flags(enabled=False),
    ):
        assert not T.backends.cudnn.enabled
        assert T.backends.cudnn.benchmark
    assert T.backends.cudnn.enabled
    assert not T.backends.cudnn.is_available()
    assert T.backends.cudnn.version() is None
    assert T.backends.cuda.is_built()
    for room in (T.backends.mps, T.backends.mkl, T.backends.mkldnn, T.backends.openmp):
        assert not room.is_available()
    T.backends.cuda.matmul.allow_tf32 = True
    assert T.get_float32_matmul_precision() == "high"
    T.set_float32_matmul_precision("highest")
    assert not T.backends.cuda.matmul.allow_tf32
    with pytest.warns(UserWarning, match="best is not one of 'highest', 'high', or 'medium'"):
        T.set_float32_matmul_precision("best")
    T.use_deterministic_algorithms(True)
    assert T.are_deterministic_algorithms_enabled()
