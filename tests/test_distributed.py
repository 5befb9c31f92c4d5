"""Several processes: collectives beside PyTorch's gloo, groups, lost processes, launchers."""

import contextlib
import ctypes
import importlib
import json
import math
import operator
import os
import re
import signal
import subprocess
import sys
import time
import types
import warnings
from datetime import timedelta
from pathlib import Path

import pytest
from in_processes import free_port, launched, results

import adjit
import adjit.distributed as dist
from adjit.distributed import nccl

needs_mpi = pytest.mark.skipif(
    not dist.is_mpi_available(), reason="needs mpi4py and an MPI: pip install adjit[distributed]"
)


# ----- stores -----


def stores(tmp_path):
    return [
        dist.HashStore(), dist.FileStore(str(tmp_path / "table")),
        dist.TCPStore("127.0.0.1", 0, is_master=True), dist.PrefixStore("part", dist.HashStore()),
    ]  # fmt: skip


def test_stores_do_what_pytorchs_do(tmp_path):
    torch = pytest.importorskip("torch")
    theirs = torch.distributed.HashStore()
    for store in stores(tmp_path):
        theirs = torch.distributed.HashStore()
        for one in (store, theirs):
            one.set("a", "1")
            one.append("a", "2")
        assert store.get("a") == theirs.get("a") == b"12"
        assert store.add("n", 3) == theirs.add("n", 3) == 3
        assert store.add("n", -1) == theirs.add("n", -1) == 2
        assert store.compare_set("a", "12", "x") == theirs.compare_set("a", "12", "x") == b"x"
        assert store.compare_set("a", "12", "y") == theirs.compare_set("a", "12", "y") == b"x"
        assert store.compare_set("b", "p", "q") == theirs.compare_set("b", "p", "q")
        assert store.check(["a", "n"])
        assert not store.check(["a", "z"])
        assert store.delete_key("a")
        assert not store.delete_key("a")
        store.multi_set(["p", "q"], ["1", b"\x00\xff"])
        assert store.multi_get(["q", "p"]) == [b"\x00\xff", b"1"]
        with pytest.raises(dist.DistStoreError, match=r"wait timeout after 20ms, keys: .*z"):
            store.wait(["z"], timedelta(milliseconds=20))


def test_a_tcp_store_that_nobody_serves_is_an_error():
    with pytest.raises(
        dist.DistNetworkError, match="timed out after 100ms while trying to connect"
    ):
        dist.TCPStore("127.0.0.1", free_port(), timeout=timedelta(milliseconds=100))
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)
    with pytest.raises(dist.DistNetworkError, match="failed to listen"):
        dist.TCPStore("127.0.0.1", store.port, is_master=True)


def test_a_file_store_is_removed_by_the_last_process(tmp_path):
    path = tmp_path / "table"
    first, second = dist.FileStore(str(path), 2), dist.FileStore(str(path), 2)
    first.set("a", "1")
    assert second.get("a") == b"1"
    del first
    assert path.exists()
    del second
    assert not path.exists()


# ----- collectives -----


def every_collective(T, dist, rank, size):
    """What each collective gives, as lists."""
    found = {}
    op = dist.ReduceOp
    values = T.arange(6, dtype=T.float64).reshape(2, 3) + 10 * rank
    for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX"):
        x = values + 1
        dist.all_reduce(x, getattr(op, name))
        found[f"all_reduce {name}"] = x.tolist()
    for name in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
        for kind in (T.uint8, T.int8, T.int32, T.int64):
            x = T.tensor([1, 2, 5], dtype=kind) + rank
            dist.all_reduce(x, getattr(op, name))
            found[f"all_reduce {name} {kind.itemsize}"] = x.tolist()
    x = T.zeros(4, 3)
    view = x[1:3]
    view += rank + 1
    dist.all_reduce(view)
    found["view"] = x.tolist()
    x = values.t().clone().t()
    dist.all_reduce(x)
    found["turned"] = x.tolist()
    x = values.clone()
    dist.reduce(x, dst=1)
    if rank == 1:
        found["reduce"] = x.tolist()
    x = values.clone()
    dist.broadcast(x, src=1)
    found["broadcast"] = x.tolist()
    out = [T.zeros(2, 3, dtype=T.float64) for _ in range(size)]
    dist.all_gather(out, values)
    found["all_gather"] = [t.tolist() for t in out]
    whole = T.zeros(2 * size, 3, dtype=T.float64)
    dist.all_gather_into_tensor(whole, values)
    found["all_gather_into_tensor"] = whole.tolist()
    out = [T.zeros(2, 3, dtype=T.float64) for _ in range(size)] if rank == 0 else None
    dist.gather(values, out)
    found["gather"] = out and [t.tolist() for t in out]
    x = T.zeros(2, 3, dtype=T.float64)
    dist.scatter(x, [values + k for k in range(size)] if rank == 1 else None, src=1)
    found["scatter"] = x.tolist()
    x = T.zeros(2, 3, dtype=T.float64)
    dist.reduce_scatter(x, [values * k for k in range(size)])
    found["reduce_scatter"] = x.tolist()
    x = T.zeros(3, dtype=T.float64)
    dist.reduce_scatter_tensor(x, T.arange(3.0 * size, dtype=T.float64) + rank)
    found["reduce_scatter_tensor"] = x.tolist()
    x = T.zeros(2 * size)
    dist.all_to_all_single(x, T.arange(2.0 * size) + 100 * rank)
    found["all_to_all_single"] = x.tolist()
    out = [T.zeros(2) for k in range(size)]
    dist.all_to_all(out, [T.full((2,), float(k + 10 * rank)) for k in range(size)])
    found["all_to_all"] = [t.tolist() for t in out]
    sent = [k + 1 for k in range(size)]
    x = T.zeros(size * (rank + 1), 2)
    dist.all_to_all_single(x, T.ones(sum(sent), 2) * rank, [rank + 1] * size, sent)
    found["all_to_all_single split"] = x.tolist()
    work = dist.all_reduce(x := values.clone(), async_op=True)
    found["wait"] = work.wait(), work.is_completed(), x.tolist()
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    found["all_gather_object"] = objects
    objects = ["a", {"b": rank}] if rank == 0 else [None, None]
    dist.broadcast_object_list(objects, src=0)
    found["broadcast_object_list"] = objects
    objects = [None]
    dist.scatter_object_list(
        objects, [f"for {k}" for k in range(size)] if rank == 0 else None, src=0
    )
    found["scatter_object_list"] = objects
    objects = [None] * size if rank == 0 else None
    dist.gather_object((rank,), objects)
    found["gather_object"] = objects
    following, before = (rank + 1) % size, (rank - 1) % size
    x = T.zeros(2)
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, T.ones(2) * rank, following), dist.P2POp(dist.irecv, x, before)]
    )
    for work in works:
        work.wait()
    found["batch"] = x.tolist()
    x = T.zeros(2)
    if rank == 0:
        dist.send(T.ones(2), 1, tag=3)
    elif rank == 1:
        found["recv"] = dist.recv(x, 0, tag=3), x.tolist()
    group = dist.new_group([0, size - 1])
    found["group"] = dist.get_rank(group), dist.get_world_size(group)
    if rank in (0, size - 1):
        x = T.ones(2) * (rank + 1)
        dist.all_reduce(x, group=group)
        dist.broadcast(y := T.ones(1) * rank, size - 1, group)
        found["in group"] = x.tolist(), y.tolist(), dist.get_process_group_ranks(group)
        found["ranks"] = dist.get_global_rank(group, 1), dist.get_group_rank(group, size - 1)
    dist.barrier()
    dist.monitored_barrier()
    found["told"] = dist.get_rank(), dist.get_world_size(), str(dist.get_backend())
    dist.destroy_process_group()
    found["after"] = dist.is_initialized()
    return found


@pytest.mark.in_turn(3)
@needs_mpi
@pytest.mark.parametrize("size", [2, 3, 4])
def test_collectives_give_what_pytorchs_give(size):
    pytest.importorskip("torch")
    ours = results(every_collective, size)
    theirs = results(every_collective, size, library="torch")
    for one, other in zip(ours, theirs, strict=True):
        assert one == other


def collectives_with_gradients(T, dist, rank, size):
    """What each collective with a gradient gives, with its first and second derivatives."""
    warnings.simplefilter("ignore", FutureWarning)
    F = importlib.import_module(f"{T.__name__}.distributed.nn.functional")

    def own(*shape):
        count = math.prod(shape)
        return (
            (T.arange(float(count), dtype=T.float64) + 3 * rank + 1).reshape(shape).requires_grad_()
        )

    found = {}
    x, parts = own(2, 3), [own(2) for _ in range(size)]
    group = dist.new_group([*range(size)])
    calls = {
        "broadcast": (lambda: F.broadcast(x, 1), [x]),
        "reduce": (lambda: F.reduce(x, 1) if rank == 1 else F.reduce(x, 1) * 0, [x]),
        "gather": (lambda: T.stack(F.gather(x, 1)), [x]),
        "scatter": (lambda: F.scatter(parts, 1), parts),
        "all_gather": (lambda: T.cat(F.all_gather(x, group)), [x]),
        "reduce_scatter": (lambda: F.reduce_scatter(T.zeros(2, dtype=T.float64), parts), parts),
        "all_reduce": (lambda: F.all_reduce(x, group=group), [x]),
        "all_to_all": (
            lambda: T.stack(F.all_to_all([T.zeros(2, dtype=T.float64) for _ in parts], parts)),
            parts,
        ),
        "all_to_all_single": (
            lambda: F.all_to_all_single(
                T.zeros(size * (rank + 1), 2, dtype=T.float64), rows,
                [rank + 1] * size, [k + 1 for k in range(size)],
            ),
            [rows := own(size * (size + 1) // 2, 2)],
        ),
    }  # fmt: skip
    for name, (call, inputs) in calls.items():
        out = call()
        slopes = T.autograd.grad((out**3 * (rank + 1)).sum(), inputs, create_graph=True)
        curves = T.autograd.grad(sum((slope**2).sum() for slope in slopes), inputs)
        found[name] = [t.tolist() for t in (out, *slopes, *curves)]
    if T.__name__ == "adjit":
        try:
            F.all_reduce(x, dist.ReduceOp.MAX).sum().backward()
        except NotImplementedError as error:
            found["refused"] = str(error)
    return found


@pytest.mark.in_turn(2)
@needs_mpi
@pytest.mark.parametrize("size", [2, 3])
def test_collectives_have_the_gradients_that_pytorchs_have(size):
    pytest.importorskip("torch")
    ours = results(collectives_with_gradients, size)
    theirs = results(collectives_with_gradients, size, library="torch")
    for one, other in zip(ours, theirs, strict=True):
        assert "gradients are those of sums" in one.pop("refused")
        assert one == other


def collectives_without_copies(T, dist, rank, size):
    """Where the memory is that MPI is handed, and what earlier readers of a tensor see."""
    import numpy as np

    from adjit.distributed import memory

    x = T.ones(1000) * (rank + 1)
    x.sum().item()
    value = x._storage.value.address
    sent = memory.address_of(memory.to_send(x))
    before = x.detach() * 1
    dist.all_reduce(x)
    array = np.full(5, rank + 1.0)
    shared = T.from_numpy(array)
    dist.all_reduce(shared)
    truth = T.tensor([True, False, rank == 0])
    either, both = truth.clone(), truth.clone()
    dist.all_reduce(either, dist.ReduceOp.MAX)
    dist.all_reduce(both, dist.ReduceOp.MIN)
    leaf = T.ones(2, requires_grad=True)
    product = leaf * leaf
    with T.no_grad():
        dist.all_reduce(leaf)
    try:
        product.sum().backward()
        told = ""
    except RuntimeError as error:
        told = str(error)
    return (
        value == sent,
        before.sum().item(),
        x.sum().item(),
        array.tolist(),
        either.tolist(),
        both.tolist(),
        told,
    )


@needs_mpi
def test_memory_is_handed_over_where_it_lies():
    for rank, found in enumerate(results(collectives_without_copies, 2)):
        is_same, before, after, array, either, both, told = found
        assert is_same
        assert (before, after, array) == (1000 * (rank + 1), 3000, [3.0] * 5)
        assert (either, both) == ([True, False, True], [True, False, False])
        assert "modified by an inplace operation" in told


def wrong_calls(T, dist, rank, size):
    """The errors of bad arguments; every process makes the same call."""
    calls = {
        "no tensor": lambda: dist.all_reduce([1]),
        "bits of floats": lambda: dist.all_reduce(T.ones(2), dist.ReduceOp.BAND),
        "mean of ints": lambda: dist.all_reduce(T.ones(2, dtype=T.int64), dist.ReduceOp.AVG),
        "short list": lambda: dist.all_gather([T.zeros(2)], T.ones(2)),
        "to itself": lambda: dist.send(T.ones(1), rank),
        "from nobody": lambda: dist.broadcast(T.ones(1)),
        "for nobody": lambda: dist.reduce(T.ones(1)),
        "two roots": lambda: dist.broadcast(T.ones(1), src=0, group_src=0),
        "twice": lambda: dist.init_process_group("gloo"),
        "no such rank": lambda: dist.new_group([0, 7]),
        "batch": lambda: dist.batch_isend_irecv([1]),
        "from itself": lambda: dist.recv(T.ones(1), rank),
    }
    found = {}
    for name, call in calls.items():
        try:
            call()
        except Exception as error:
            found[name] = type(error).__name__, str(error).replace("adjit.", "torch.")
    return found


@needs_mpi
def test_bad_arguments_raise_pytorchs_errors():
    pytest.importorskip("torch")
    ours, theirs = results(wrong_calls, 2), results(wrong_calls, 2, library="torch")
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert one[name][0] == other[name][0], name
            same = re.sub(r"ProcessGroup(Gloo)?", "ProcessGroup", other[name][1]).split(" on a")[0]
            if name == "from itself":  # a line of gloo's source
                assert "Pair is not connected" in one[name][1]
                assert "Pair is not connected" in same
            elif name not in ("bits of floats",):
                assert one[name][1] == same, name


# ----- what goes wrong -----


def lost(T, dist, rank, size, how):
    x = T.ones(4)
    dist.all_reduce(x)
    if rank == 1:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "leave":
            return None
    start = time.monotonic()
    try:
        dist.all_reduce(x)
    except RuntimeError as error:
        return type(error).__name__, str(error), time.monotonic() - start
    return "no error"


@needs_mpi
@pytest.mark.parametrize("how", ["kill", "leave"])
def test_a_lost_process_is_an_error_on_the_others(how):
    first, second, third = results(lost, 3, how)
    assert second is None
    for rank, found in ((0, first), (2, third)):
        name, text, seconds = found
        assert name == "DistNetworkError"
        assert text.startswith(
            f"Connection closed by peer: rank 1 has ended while rank {rank} waited for all_reduce"
        )
        assert seconds < 60


def late(T, dist, rank, size):
    told = []
    limit = timedelta(milliseconds=300)
    if rank == 0:
        work = dist.all_reduce(T.ones(4), async_op=True)
        for call in (
            lambda: work.wait(limit),
            lambda: dist.monitored_barrier(timeout=limit),
        ):
            try:
                call()
            except RuntimeError as error:
                told.append((type(error).__name__, str(error), work.is_success()))
    else:
        time.sleep(3)
    return told


@needs_mpi
def test_what_takes_too_long_is_an_error():
    found, _ = results(late, 2)
    assert found == [
        ("DistBackendError", "Timed out waiting 300ms for all_reduce to complete", False),
        ("DistBackendError", "Rank(s) 1 failed to pass monitoredBarrier in 300 ms", False),
    ]


def test_without_a_group_everything_says_so():
    text = "Default process group has not been initialized, please make sure to call init_process_group"
    for call in (
        dist.get_rank, dist.get_world_size, dist.barrier, dist.new_group, dist.destroy_process_group,
        lambda: dist.all_reduce(adjit.ones(1)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=text):
            call()


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (
            {},
            ValueError,
            "using env:// rendezvous: environment variable RANK expected, but not set",
        ),
        (
            {"init_method": "foo://x", "rank": 0, "world_size": 1},
            RuntimeError,
            "handler for foo://",
        ),
        (
            {"init_method": "tcp://127.0.0.1:1", "world_size": 1},
            ValueError,
            "rank parameter missing",
        ),
        ({"init_method": "tcp://127.0.0.1", "rank": 0}, ValueError, "port number missing"),
        ({"init_method": "file:///x", "rank": 0}, ValueError, "world size parameter missing"),
        ({"rank": 0, "world_size": 1}, ValueError, "variable MASTER_ADDR expected, but not set"),
        ({"timeout": 5}, TypeError, "Expected timeout argument to be of type datetime.timedelta"),
    ],
)
def test_what_is_missing_to_start_is_said(given, error, text, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(error, match=re.escape(text)):
        dist.init_process_group("gloo", **given)


def test_engines_that_are_not_there_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="Invalid backend: 'foo'"):
        dist.init_process_group("foo", store=dist.HashStore(), rank=0, world_size=1)
    monkeypatch.setattr("adjit.distributed.mpi._library", lambda: None)
    with pytest.raises(
        RuntimeError, match=r"doesn't have MPI built in: pip install adjit\[distrib"
    ):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


@pytest.mark.parametrize(
    "name", ["elastic.agent", "pipelining", "DeviceMesh", "rpc.api", "autograd.apis"]
)
def test_what_is_missing_says_what_to_do(name):
    with pytest.raises(AttributeError, match=r"use adjit\.compile, and adjit\.distributed with"):
        operator.attrgetter(name)(dist)


def test_calls_of_other_processes_are_not_available():
    import adjit.distributed.autograd as gradients
    import adjit.distributed.rpc as rpc
    from adjit.distributed.autograd import context

    assert rpc.is_available() is False
    assert gradients.is_available() is False
    with pytest.raises(NotImplementedError, match="is there by name only"):
        context()


def test_workers_write_down_what_they_fail_with(monkeypatch, tmp_path):
    from adjit.distributed.elastic.multiprocessing.errors import record

    @record
    def main(code):
        """Of a worker."""
        if code is None:
            raise ValueError("bad data")
        sys.exit(code)

    assert main.__doc__ == "Of a worker."
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)
    with pytest.raises(ValueError, match="bad data"):
        main(None)
    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    assert main(0) is None
    with pytest.raises(SystemExit):
        main(3)
    assert not path.exists()
    with pytest.raises(ValueError, match="bad data"):
        main(None)
    told = json.loads(path.read_text())["message"]
    assert told["message"] == "ValueError: bad data"
    assert "in main" in told["extraInfo"]["py_callstack"]
    assert told["extraInfo"]["timestamp"].isdigit()


# ----- ways to start -----

PROGRAM = """
import os, sys
import adjit as torch
import adjit.distributed as dist
dist.init_process_group("gloo", **eval(sys.argv[2]) if len(sys.argv) > 2 else {})
x = torch.ones(2) * dist.get_rank()
dist.all_reduce(x)
names = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RESTART_COUNT")
told = [os.environ.get(name) for name in names]
sys.stdout.write(f"{dist.get_rank()} of {dist.get_world_size()}: {x.tolist()} {told}\\n")
sys.stdout.flush()
dist.barrier()
if sys.argv[1] == "fail" and dist.get_rank() == 1:
    sys.exit(3)
if sys.argv[1] == "once" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit(3)
dist.barrier()
"""


@needs_mpi
def test_the_launcher_starts_processes(tmp_path):
    ended = launched(tmp_path, PROGRAM, "--nproc_per_node=3", "--standalone", arguments=["well"])
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == [
        f"{k} of 3: [3.0, 3.0] ['{k}', '3', '0', '0']" for k in range(3)
    ]


@needs_mpi
def test_the_launcher_ends_all_when_one_fails(tmp_path):
    options = ("--nnodes=1", "--nproc-per-node", "2", "--master_port", str(free_port()))
    ended = launched(tmp_path, PROGRAM, *options, arguments=["fail"])
    assert ended.returncode == 1
    assert re.search(r"program.py FAILED: rank \d \(local_rank \d, pid \d+\)", ended.stderr)


@needs_mpi
def test_the_launcher_starts_again(tmp_path):
    options = ("--standalone", "--nproc-per-node", "2", "--max-restarts", "1")
    ended = launched(tmp_path, PROGRAM, *options, arguments=["once"])
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == 4
    assert "starting again, 1 left" in ended.stderr


@needs_mpi
def test_two_machines_are_two_launchers(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    port = free_port()
    found = [
        subprocess.Popen(
            [sys.executable, "-m", "adjit.distributed.run", "--nnodes=2", f"--node_rank={k}",
             "--master_addr=127.0.0.1", f"--master_port={port}", str(path), "well"],
            stdout=subprocess.PIPE, text=True,
        )
        for k in range(2)
    ]  # fmt: skip
    told = [process.communicate(timeout=120)[0].strip() for process in found]
    assert told == [f"{k} of 2: [1.0, 1.0] ['0', '1', '{k}', '0']" for k in range(2)]


def test_the_launcher_refuses_what_it_cannot():
    for options, text in (
        (["--nproc_per_node=gpux", "x.py"], "Unsupported nproc_per_node value: gpux"),
        (["--nnodes=2", "--max-restarts=1", "x.py"], "--max-restarts is for one machine"),
    ):
        command = [sys.executable, "-m", "adjit.distributed.run", *options]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 2
        assert text in ended.stderr


@needs_mpi
@pytest.mark.parametrize("arguments", [["well"], ["fail"]])
def test_mpirun_starts_processes(tmp_path, arguments):
    mpirun = Path(sys.executable).parent / "mpiexec"
    if not mpirun.exists():
        pytest.skip("the MPI is not that of PyPI's wheels")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    command = [str(mpirun), "-n", "2", sys.executable, str(path), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode == 0) == (arguments == ["well"]), ended.stderr
    assert sorted(ended.stdout.splitlines())[:2] == [
        f"{k} of 2: [1.0, 1.0] [None, None, None, None]" for k in range(2)
    ]


def by_file(rank, path):
    dist.init_process_group("mpi", init_method=f"file://{path}", rank=rank, world_size=2)
    x = adjit.ones(1)
    dist.all_reduce(x)
    assert x.item() == 2
    dist.destroy_process_group()


@needs_mpi
def test_a_file_is_enough_to_meet(tmp_path):
    adjit.multiprocessing.spawn(by_file, (tmp_path / "meet",), nprocs=2)
    assert not (tmp_path / "meet").exists()


# ----- NCCL, on stubs of NVIDIA's libraries -----


class FakeCommunicator:
    """Moves the memory of one process, and remembers what it was told."""

    def __init__(self):
        self.told = []

    def move(self, name, send, out, *more, stream):
        source, target = (m.__cuda_array_interface__ for m in (send, out))
        self.told.append((name, source["typestr"], source["shape"], *more))
        assert source["version"] == 3
        adjit.cuda.synchronize()  # the stub's streams run when somebody waits for them
        nbytes = int(source["typestr"][2:]) * source["shape"][0]
        ctypes.memmove(target["data"][0], source["data"][0], nbytes)

    def __getattr__(self, name):
        return lambda *given, stream: self.move(name, *given, stream=stream)

    def destroy(self):
        self.told.append(("destroy",))


@needs_mpi
def test_nccl_is_handed_the_memory_of_gpus(monkeypatch):
    stub_driver = pytest.importorskip("stub_driver")
    comm = FakeCommunicator()
    library = types.SimpleNamespace(
        SUM="SUM", MAX="MAX", AVG="AVG", get_unique_id=lambda: b"id", group=contextlib.nullcontext,
        Communicator=types.SimpleNamespace(init=lambda size, rank, found: comm),
    )  # fmt: skip
    ask = nccl.NcclWork.is_completed
    monkeypatch.setattr(
        nccl.NcclWork, "is_completed", lambda work: (adjit.cuda.synchronize(), ask(work))[1]
    )
    with stub_driver.installed():
        monkeypatch.setattr("adjit.distributed.nccl._library", lambda: None)
        with pytest.raises(RuntimeError, match=r"NCCL built in: pip install nccl4py\[cu13\]"):
            dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
        monkeypatch.setattr("adjit.distributed.nccl._library", lambda: library)
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
        x = adjit.arange(6.0).cuda()
        dist.all_reduce(x)
        work = dist.all_reduce(x, dist.ReduceOp.AVG, async_op=True)
        assert work.wait()
        assert work.is_success()
        dist.all_reduce(adjit.tensor([True, False]).cuda(), dist.ReduceOp.SUM)
        out = adjit.zeros(6).cuda()
        dist.all_gather_into_tensor(out, x)
        dist.broadcast(x, 0)
        assert (x.tolist(), out.tolist()) == (list(range(6)), list(range(6)))
        with pytest.raises(ValueError, match=r"Cannot use ReduceOp\.BXOR with NCCL"):
            dist.all_reduce(adjit.arange(2).cuda(), dist.ReduceOp.BXOR)
        with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
            dist.all_reduce(adjit.ones(1))
        dist.barrier()
        dist.destroy_process_group()
    assert comm.told == [
        ("allreduce", "<f4", (6,), "SUM"), ("allreduce", "<f4", (6,), "AVG"),
        ("allreduce", "|u1", (2,), "MAX"), ("allgather", "<f4", (6,)), ("broadcast", "<f4", (6,), 0),
        ("destroy",),
    ]  # fmt: skip
