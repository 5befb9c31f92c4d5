"""The profiler: what it counts, for which lines, on every road; and that it leaves no trace."""

import gzip
import inspect
import json
import threading

import numpy as np
import pytest

import adjit as T
from adjit import config
from adjit.graph.node import Node
from adjit.profiler import profile
from adjit.schedule import plan_cache, run_cpu
from adjit.schedule import profile as scheduling

N = 5000  # enough elements to be fused


def here(offset=0):
    """The number of the caller's line."""
    return inspect.currentframe().f_back.f_lineno + offset


def lines_of(event):
    assert all(file == __file__ for file, _, _ in event.lines)
    return [line for _, line, _ in event.lines]


def first_words(p):
    return [event.name.split("_")[0] for event in p.events()]


def run_hot(f, *arguments):
    """Call a function often enough for its graph to have a plan, also where templates know its operations."""
    for _ in range(config.HOT + 3):
        f(*arguments)
        plan_cache.wait()


@pytest.fixture
def x():
    made = T.linspace(0, 1, N)
    made.sum().item()
    return made


# ----- what is counted -----


def test_operations_one_by_one(x):
    with profile() as p:
        y = x[:100] * 2
        (y + y[:1]).tolist()
        line = here()
    mul, add = p.events()
    assert [mul.name.split("_")[0], add.name.split("_")[0]] == ["mul", "add"]
    assert (mul.elements, add.elements) == (100, 100)
    assert (mul.bytes, add.bytes) == (800, 804)
    assert (lines_of(mul), lines_of(add)) == ([line - 2], [line - 1])
    assert 0 < mul.start < mul.start + mul.duration <= add.start
    assert add.duration > 0
    assert mul.thread == add.thread == threading.get_native_id()


def test_an_operation_of_several_steps_moves_its_bytes_once():
    logits, target = T.zeros(64, 10), T.arange(64) % 10
    logits.tolist(), target.tolist()
    with profile() as p:
        T.nn.functional.cross_entropy(logits, target).item()
    assert len(p.events()) == 2
    reads = 64 * 10 * 4 + 64 * 8
    assert p.events()[0].bytes == reads
    assert 0 < p.events()[1].bytes < reads


def test_a_plan(x):
    def f():
        y = x * 2
        return (y + x).tanh().sum().item()

    run_hot(f)
    with profile() as p:
        f()
    first = f.__code__.co_firstlineno
    fused = p.events()[0]
    assert fused.name == "fused mul, add, tanh, sum"
    assert lines_of(fused) == [first + 1, first + 2]
    assert fused.elements == N
    assert fused.bytes == 2 * 4 * N + 4  # x; y, which is still held; a sum
    assert all(lines_of(event) == [first + 2] for event in p.events()[1:])


def test_an_operand_that_is_repeated_counts_once(x):
    table, row = x.view(50, 100), x[:100]

    def f():
        return (table * row + x[7]).tanh().sum().item()

    run_hot(f)
    with profile() as p:
        f()
    assert p.events()[0].name == "fused mul, add, tanh"
    assert p.events()[0].bytes == 4 * (N + 100 + 1 + N)


def test_a_plan_with_backward(x):
    w = T.full((N,), 0.5, requires_grad=True)

    def f():
        w.grad = None
        loss = (w * x).sin().sum()
        loss.backward()

    run_hot(f)
    with profile() as p:
        f()
    first = f.__code__.co_firstlineno
    fused = next(event for event in p.events() if event.name.startswith("fused"))
    assert "sin_vjp" in fused.name
    assert lines_of(fused) == [first + 2, first + 3]


def test_a_replay(x):
    w = T.full((N,), 0.5, requires_grad=True)
    opt = T.optim.SGD([w], lr=0.1)

    @T.compile
    def step(x):
        opt.zero_grad()
        loss = (w * x).sin().sum()
        loss.backward()
        opt.step()
        return loss.detach()

    for _ in range(3):
        step(x).item()
    with profile() as p:
        step(x).item()
    first = inspect.unwrap(step).__code__.co_firstlineno
    lines = {line for event in p.events() for line in lines_of(event)}
    assert lines == {first + 3, first + 4, first + 5}
    assert any("sin_vjp" in event.name for event in p.events())


def test_writes(x):
    y = T.zeros(N)
    big = T.zeros(1 << 15)
    y.sum().item(), big.sum().item()
    before = y * 1
    with profile() as p:
        y[10:20] = 1.0
        line = here(-1)
        y.sum().item()
    assert before.sum().item() == 0
    assert y.sum().item() == 10
    copies = [event for event in p.events() if event.name.startswith("copy")]
    assert copies[-1].bytes == 80
    assert lines_of(copies[-1]) == [line]
    with profile() as p:
        big.add_(1)
        big.sum().item()
    assert "_over" in p.events()[0].name
    assert p.events()[0].bytes == 2 << 17


def test_a_step_over_several_threads():
    before = T.get_num_threads()
    T.set_num_threads(2)
    try:
        y = T.ones(1 << 20)
        y.sum().item()
        with profile() as p:
            (y * 2).sum().item()
        assert p.events()[0].bytes == 2 << 22
    finally:
        T.set_num_threads(before)


def test_results_are_the_same_bits(x):
    def f():
        w = x.detach().requires_grad_()
        y = (w.exp() * w).softmax(0)
        (y[::2] * y[1::2]).sum().backward()
        return w.grad.numpy().tobytes()

    plain = f()
    with profile():
        assert f() == plain
    run_hot(f)
    with profile():
        assert f() == plain


# ----- what belongs to the block -----


def test_only_what_the_block_recorded(x):
    early = x + 1
    with profile() as p:
        late = x * 2
    after = x - 1
    assert (early.sum() + late.sum() + after.sum()).item() > 0
    assert first_words(p) == ["mul"]


def test_an_exception_keeps_what_was_measured(x):
    p = profile()

    def fail():
        with p:
            (x * 2).tolist()
            raise KeyError("unrelated")

    with pytest.raises(KeyError):
        fail()
    assert first_words(p) == ["mul"]
    assert scheduling.active is None


def test_an_error_in_a_kernel(x):
    with profile() as p:
        bad = T.arange(3.0)[T.tensor([7])]
        fine = x * 2
        with pytest.raises(IndexError, match="index 7") as caught:
            bad.tolist()
    assert any("test_profiler.py" in note for note in caught.value.__notes__)
    assert fine[0].item() == 0.0
    assert first_words(p)[-1] == "mul"
    with pytest.raises(IndexError, match="index 7"), profile() as p:
        spoiled = T.arange(3.0)[T.tensor([7])]
    assert scheduling.active is None
    assert len(p.events()) == 2
    del spoiled


def test_a_second_profile_is_refused(x):
    refused = []

    def start():
        try:
            profile().start()
        except RuntimeError as error:
            refused.append(str(error))

    with profile() as p:
        start()
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
        (x * 2).tolist()
    assert len(refused) == 2
    assert all("a profile is active already" in text for text in refused)
    assert first_words(p) == ["mul"]


def test_start_and_stop(x):
    p = profile()
    p.start()
    y = x * 2
    p.stop()
    p.stop()
    assert y[1].item() > 0
    assert first_words(p) == ["mul"]
    with p:  # again, from the beginning
        pass
    assert p.events() == []
    assert "Self CPU time total: 0.000us" in str(p)


def test_all_threads_are_measured(x):
    def work():
        for _ in range(20):
            (x * 2).tolist()

    threads = [threading.Thread(target=work) for _ in range(3)]
    with profile() as p:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(p.events()) == 60
    assert all(len(event.lines) == 1 for event in p.events())
    ends = np.array([(e.start, e.start + e.duration) for e in p.events()]).ravel()
    assert (np.diff(ends) >= 0).all()  # one stream runs at a time


@pytest.mark.parametrize("op", ["std", "norm"])
def test_what_an_operation_records_from_memory_has_its_line(op):
    """Once its body has run, the nodes that it left are recorded again without it."""
    x = T.rand(5, 7)
    for _ in range(4):
        getattr(x, op)(dim=1).tolist()
    with profile() as p:
        y = getattr(x, op)(dim=1)
        line = here(-1)
        y.tolist()
    assert p.events()
    assert [lines_of(event) for event in p.events()] == [[line]] * len(p.events())


def test_without_a_profile_nothing_is_watched(x, monkeypatch):
    slot = Node.__dict__["scalars"]
    with profile():
        assert Node.__dict__["scalars"] is not slot
    assert Node.__dict__["scalars"] is slot

    def refuse(*_args, **_kwargs):
        raise AssertionError

    monkeypatch.setattr(run_cpu, "run_timed", refuse)
    run_hot(lambda: (x * 2 + 1).sum().item())


# ----- reports -----


@pytest.fixture
def measured():
    x = T.ones(1000)  # too few elements to be fused
    x.tolist()
    with profile() as p:
        for _ in range(3):
            (x * 2).exp().tolist()
        x.sum().item()
    return p


def test_averages(measured):
    averages = {a.key.split("_")[0]: a for a in measured.key_averages()}
    mul = averages["mul"]
    assert (mul.count, mul.bytes, len(mul.lines)) == (3, 3 * 8000, 1)
    times = [e.duration for e in measured.events() if e.name == mul.key]
    assert mul.self_cpu_time_total == pytest.approx(sum(times) / 1e3)
    assert mul.cpu_time == pytest.approx(sum(times) / 3e3)
    assert mul.gb_per_s == pytest.approx(mul.bytes / sum(times))


def test_the_table(measured):
    text = str(measured)
    head, *rows = text.splitlines()
    assert head.split("  ")[0] == "Name"
    assert all(title in head for title in ("Self CPU", "# of Calls", "Bytes", "GB/s", "Lines"))
    row = next(row for row in rows if row.startswith("mul"))
    assert " 3 " in row
    assert "23.4 KiB" in row
    assert "test_profiler.py:" in row
    assert measured.table(sort_by="key").splitlines()[2].startswith("exp")
    assert measured.table(sort_by="count", row_limit=1).endswith("; 2 more kernels")
    with pytest.raises(ValueError, match=r"sort_by must be one of .*, got 'colour'"):
        measured.table(sort_by="colour")


def test_a_chrome_trace(measured, tmp_path):
    measured.export_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    runs = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert [run["name"] for run in runs] == [event.name for event in measured.events()]
    assert runs[0]["dur"] == measured.events()[0].duration / 1e3
    assert runs[0]["args"]["bytes"] == 8000
    assert f"{__file__}:" in runs[0]["args"]["lines"][0]
    named = {event["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert named == {"process_name", "thread_name"}
    measured.export_chrome_trace(str(tmp_path / "trace.json.gz"))
    assert json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes())) == trace


# ----- PyTorch's names -----


@pytest.mark.parametrize(
    "plan",
    [
        {"wait": 1, "warmup": 1, "active": 2},
        {"wait": 0, "warmup": 1, "active": 1, "repeat": 2},
        {"wait": 2, "warmup": 1, "active": 3, "repeat": 1, "skip_first": 3},
        {"wait": 2, "warmup": 1, "active": 1, "skip_first": 1, "skip_first_wait": 1},
    ],
)
def test_schedules_are_those_of_pytorch(plan):
    torch = pytest.importorskip("torch")
    ours, theirs = T.profiler.schedule(**plan), torch.profiler.schedule(**plan)
    assert [ours(k).name for k in range(20)] == [theirs(k).name for k in range(20)]


def test_schedules_that_are_none():
    with pytest.raises(AssertionError, match=r"Invalid profiler schedule arguments. Got wait=-1"):
        T.profiler.schedule(wait=-1, warmup=1, active=1)
    with pytest.raises(AssertionError, match="active=0"):
        T.profiler.schedule(wait=1, warmup=1, active=0)
    with pytest.warns(UserWarning, match="Profiler won't be using warmup"):
        plan = T.profiler.schedule(wait=1, warmup=0, active=1)
    with pytest.raises(AssertionError, match="Step must be non-negative"):
        plan(-1)


@pytest.mark.filterwarnings("ignore")  # PyTorch warns where it cannot raise
def test_traces_are_handed_over_as_by_pytorch():
    torch = pytest.importorskip("torch")
    found = []
    for library in (torch, T):
        ready = []
        plan = library.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
        with library.profiler.profile(
            activities=[library.profiler.ProfilerActivity.CPU], schedule=plan, record_shapes=True,
            on_trace_ready=lambda p, ready=ready: ready.append(p.step_num), with_stack=True,
        ) as prof:  # fmt: skip
            for _ in range(11):
                library.ones(3).add(1).sum().item()
                prof.step()
        found.append(ready)
    assert found[0] == found[1] == [4, 8]


def test_only_active_steps_are_recorded():
    seen = []
    plan = T.profiler.schedule(wait=1, warmup=1, active=1)
    with T.profiler.profile(schedule=plan, on_trace_ready=seen.append) as prof:
        for k in range(3):
            (T.ones(100) * (k + 1)).sum().item()
            if k == 2:
                during = len(prof._watcher.events)
            prof.step()
        assert seen == [prof]
        assert len(prof.events()) >= during > 0
        assert [span.name for span in prof.spans()] == ["ProfilerStep#2"]


def test_parts_of_a_program_have_names_in_the_trace(tmp_path):
    @T.profiler.record_function("decorated")
    def work(x):
        return (x * 2).sum()

    x = T.ones(1000)
    with T.profiler.profile() as prof:
        with T.profiler.record_function("outer", "3"):
            work(x).item()
            T.cuda.nvtx.range_push("pushed")
            (x + 1).sum().item()
            T.cuda.nvtx.range_pop()
        with T.cuda.nvtx.range("step {}", 4):
            T.cuda.nvtx.mark("moment")
    assert [s.name for s in prof.spans()] == ["decorated", "pushed", "outer(3)", "moment", "step 4"]
    file = tmp_path / "trace.json"
    prof.export_chrome_trace(file)
    trace = json.loads(file.read_text())["traceEvents"]
    named = {e["name"]: e for e in trace if e.get("cat") == "user_annotation"}
    kernels = [e for e in trace if e.get("cat") == "cpu_op"]
    part = named["decorated"]
    inside = [
        k
        for k in kernels
        if part["ts"] <= k["ts"] and k["ts"] + k["dur"] <= part["ts"] + part["dur"]
    ]
    assert inside
    assert len(inside) < len(kernels)
    with T.profiler.record_function("nobody looks"):
        work(x)
    assert T.cuda.nvtx.range_pop() == -1


def test_a_folder_of_traces(tmp_path):
    for gz in (False, True):
        handler = T.profiler.tensorboard_trace_handler(str(tmp_path / "t"), "me", use_gzip=gz)
        with T.autograd.profiler.profile(use_cuda=False, on_trace_ready=handler):
            T.ones(10).sum().item()
    names = sorted(p.name for p in (tmp_path / "t").iterdir())
    assert len(names) == 2
    assert all(name.startswith("me.") and ".pt.trace.json" in name for name in names)
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RuntimeError, match="Can't create directory"),
        T.profiler.profile(
            on_trace_ready=T.profiler.tensorboard_trace_handler(str(tmp_path / "file" / "x"))
        ),
    ):
        pass


def test_a_profile_that_is_not_enabled_measures_nothing():
    with T.profiler.profile(enabled=False) as prof:
        T.ones(10).sum().item()
        prof.step()
    assert prof.events() == []


def test_sums_by_kernel_have_a_table():
    with T.profiler.profile(profile_memory=True) as prof:
        (T.ones(1000) * 2).sum().item()
    sums = prof.key_averages(group_by_input_shape=True)
    for key in (
        "self_cpu_time_total",
        "cpu_time_total",
        "cuda_time_total",
        "self_cpu_memory_usage",
        None,
    ):
        assert "Name" in sums.table(sort_by=key, row_limit=-1)
    assert sums.total_average().count == len(prof.events())
    assert T.profiler.ProfilerActivity.CUDA in T.profiler.supported_activities()
