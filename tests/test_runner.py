"""The compiled loop: what it runs, in which order, on which threads, and what it survives."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from adjit.kernels.language.abi import SIGNATURE, STATUS_INDEX, words
from adjit.kernels.language.sharing import seen, tell
from adjit.kernels.language.target import compile_function
from adjit.kernels.runtime import runner as runner_module
from adjit.kernels.runtime.runner import Runner, compile_now, is_large
from hypothesis import given, settings
from hypothesis import strategies as st

LAYERS = ["tbb", "workers"]


def count_units(args: int, start: int, stop: int) -> None:
    """Count how often each unit runs, and note where each part ends."""
    p = words(args)
    counts, ends = words(p[0]), words(p[1])
    for i in range(start, stop):
        counts[i] += 1
    ends[start] = stop


def advance(args: int, start: int, stop: int) -> None:
    """x = 3*x + c, which does not commute between steps."""
    p = words(args)
    x = words(p[0])
    for i in range(start, stop):
        x[i] = 3 * x[i] + p[1]


def meet(args: int, start: int, stop: int) -> None:
    """Wait until another part has come, too, which only another thread can bring."""
    p = words(args)
    for i in range(start, stop):
        tell(p[0] + 8 * i, 1)
        looks = 0
        while seen(p[0] + 8 * (1 - i)) == 0 and looks < 1_000_000_000:
            looks += 1
        if looks == 1_000_000_000:
            tell(p[0] + 16, 1)


def fail(args: int, start: int, stop: int) -> None:
    """Set the status."""
    p = words(args)
    status = words(p[0])
    status[0] = p[1]


@cache
def compiled(kernel: Callable[[int, int, int], None]) -> int:
    """The address of a test's kernel, compiled once."""
    return compile_now(kernel, SIGNATURE)


def stream(*steps: tuple[int, int, int, list[int]]) -> np.ndarray:
    """Steps of (kernel, n, grain, words) as the words that `walk` reads."""
    return np.array(
        [word for kernel, n, grain, args in steps for word in (kernel, n, grain, len(args), *args)],
        dtype=np.int64,
    )


def address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


@pytest.fixture(scope="module", params=LAYERS)
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """A runner with its threads, once per layer that this platform has."""
    if request.param == "tbb" and not runner_module.tbb_parallel_for():
        pytest.skip("no tbb here")
    if request.param == "workers" and os.name != "posix":
        pytest.skip("the workers need pthreads")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADJIT_THREADING_LAYER", request.param)
        runner = Runner()
        assert runner.threading_layer() == request.param
    return runner


@settings(max_examples=200, deadline=None)
@given(n=st.integers(0, 700), grain=st.integers(0, 300), threads=st.integers(1, 5))
def test_every_unit_runs_once(runner: Runner, n: int, grain: int, threads: int) -> None:
    counts, ends = np.zeros(n, np.int64), np.zeros(n, np.int64)
    plan = stream((compiled(count_units), n, grain, [address(counts), address(ends)]))
    runner.set_num_threads(threads)
    assert runner.run(address(plan), 1, large=True) == -1
    assert (counts == 1).all()
    starts = np.flatnonzero(ends)
    sizes = ends[starts] - starts
    assert len(starts) <= threads
    if len(starts) > 1:
        assert sizes.min() >= max(grain, 1)
    if threads > 1 and n:
        assert (len(starts) > 1) == is_large(n, grain)


def test_without_large_everything_stays_in_one_part(runner: Runner) -> None:
    counts, ends = np.zeros(100, np.int64), np.zeros(100, np.int64)
    plan = stream((compiled(count_units), 100, 1, [address(counts), address(ends)]))
    assert runner.run(address(plan), 1) == -1
    assert np.flatnonzero(ends).tolist() == [0]


@settings(max_examples=50, deadline=None)
@given(steps=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), max_size=30))
def test_steps_keep_their_order(runner: Runner, steps: list[tuple[int, int]]) -> None:
    runner.set_num_threads(3)
    x, expected = np.arange(60), np.arange(60)
    plan = stream(
        *((compiled(advance), n, grain, [address(x), c]) for c, (n, grain) in enumerate(steps))
    )
    assert runner.run(address(plan), len(steps), large=True) == -1
    for c, (n, _) in enumerate(steps):
        expected[:n] = 3 * expected[:n] + c
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("large", [False, True])
def test_a_status_stops_the_stream(runner: Runner, large: bool) -> None:
    runner.set_num_threads(2)
    x, status = np.zeros(64, np.int64), np.zeros(3, np.int64)
    add_one = (compiled(advance), 64, 8, [address(x), 1])
    plan = stream(
        add_one, (compiled(fail), 64, 8, [address(status), STATUS_INDEX]), add_one, add_one
    )
    assert runner.run(address(plan), 4, address(status), large=large) == 1
    assert status[0] == STATUS_INDEX
    assert (x == 1).all()


def test_a_status_that_nothing_sets(runner: Runner) -> None:
    status = np.zeros(3, np.int64)
    plan = stream((compiled(fail), 1, 1, [address(status), 0]))
    assert runner.run(address(plan), 1, address(status)) == -1


def test_an_empty_stream(runner: Runner) -> None:
    assert runner.run(0, 0) == -1


@pytest.mark.parametrize("clock", [True, False])
@pytest.mark.parametrize("large", [False, True])
def test_a_timed_stream(
    runner: Runner, large: bool, clock: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not clock:
        monkeypatch.setattr(runner_module, "clock_address", lambda: 0)
    runner.set_num_threads(2)
    x, status = np.zeros(64, np.int64), np.zeros(3, np.int64)
    add_one = (compiled(advance), 64, 8, [address(x), 1])
    stop = (compiled(fail), 64, 8, [address(status), STATUS_INDEX])
    plan = stream(add_one, add_one, stop, add_one)
    before = time.monotonic_ns()
    stopped, times = runner.run_timed(address(plan), 2, large=large)
    assert stopped == -1
    assert (x == 4).all()
    assert len(times) == 3
    assert (np.diff([before, *times, time.monotonic_ns()]) >= 0).all()
    stopped, times = runner.run_timed(address(plan), 4, address(status), large=large)
    assert (stopped, len(times)) == (2, 4)
    assert (x == 40).all()


@pytest.mark.parametrize("clock", [True, False])
@pytest.mark.parametrize("timed", [True, False])
def test_what_follows_a_run_is_left_out_where_a_step_fails(
    runner: Runner, timed: bool, clock: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not clock:
        monkeypatch.setattr(runner_module, "clock_address", lambda: 0)
    x, status = np.zeros(64, np.int64), np.zeros(3, np.int64)
    add_one = (compiled(advance), 64, 8, [address(x), 1])
    stop = (compiled(fail), 64, 8, [address(status), STATUS_INDEX])
    plan, done = stream(add_one, stop, add_one), []
    run = runner.run_timed if timed else runner.run
    run(address(plan), 1, address(status), then=(partial(done.append, 1), partial(done.append, 2)))
    assert done == [1, 2]
    run(address(plan), 3, address(status), then=(partial(done.append, 3),))
    assert done == [1, 2]


def test_many_python_threads_at_once(runner: Runner) -> None:
    runner.set_num_threads(2)
    kernel, n, runs = compiled(advance), 4000, 200
    at_once = threading.Barrier(8)

    def use(seed: int) -> bool:
        x = np.full(n, seed)
        plan = stream(*[(kernel, n, 100, [address(x), 1])] * 3)
        expected = seed
        at_once.wait()
        for _ in range(runs):
            assert runner.run(address(plan), 3, large=True) == -1
            for _ in range(3):
                expected = (3 * expected + 1) % 2**64
        return bool((x.astype(np.uint64) == expected % 2**64).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, range(8)))


@pytest.mark.skipif(os.name != "posix", reason="the workers need pthreads")
def test_workers_come_at_once_and_out_of_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADJIT_THREADING_LAYER", "workers")
    runner = Runner()
    runner.set_num_threads(3)  # one more than there are parts
    for pause in (0, 0, 0.2, 0, 0.2, 0.0002, 0.0005):
        time.sleep(pause)
        flags = np.zeros(3, np.int64)
        plan = stream((compiled(meet), 2, 1, [address(flags)]))
        assert runner.run(address(plan), 1, large=True) == -1
        assert flags.tolist() == [1, 1, 0]


@pytest.mark.skipif(os.name != "posix", reason="the workers need pthreads")
def test_workers_sleep_when_nothing_is_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADJIT_THREADING_LAYER", "workers")
    runner = Runner()
    runner.set_num_threads(4)
    x = np.zeros(4000, np.int64)
    plan = stream((compiled(advance), x.size, 100, [address(x), 1]))
    runner.run(address(plan), 1, large=True)
    time.sleep(0.1)
    before = time.process_time()
    time.sleep(0.4)
    assert time.process_time() - before < 0.2  # one that spins takes all of the time


def test_the_usual_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ADJIT_THREADING_LAYER", raising=False)
    runner = Runner()
    assert runner.team_address() == runner.team_address() != 0
    assert runner.threading_layer() == ("workers" if os.name == "posix" else "tbb")


FORK = """
import os, signal, sys, threading
import numpy as np
from adjit.kernels.language.abi import SIGNATURE, words
from adjit.kernels.runtime import runner as module
from adjit.kernels.runtime.runner import Runner, compile_now

known = {}
for name in ("walk", "run_parts", "share", "work"):
    known[name] = compile_now(getattr(module, name), getattr(module, name.upper() + "_SIGNATURE"))

def add_one(args, start, stop):
    x = words(words(args)[0])
    for i in range(start, stop):
        x[i] += 1

kernel = compile_now(add_one, SIGNATURE)
runner = Runner(lambda function, signature: known[function.__name__])
runner.set_num_threads(2)

def compute():
    x = np.zeros(200_000, np.int64)
    plan = np.array([kernel, x.size, 1000, 1, x.ctypes.data] * 10)
    assert runner.run(plan.ctypes.data, 10, large=True) == -1
    assert (x == 10).all()

if BEFORE:
    compute()
busy = True
def keep_computing():
    while busy:
        compute()
threads = [threading.Thread(target=keep_computing) for _ in range(2 * BEFORE)]
for thread in threads:
    thread.start()
for attempt in range(10):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        compute()
        if runner.threading_layer() != IN_CHILD:
            os._exit(9)
        grandchild = os.fork()
        if grandchild == 0:
            signal.alarm(60)
            compute()
            os._exit(0)
        _, status = os.waitpid(grandchild, 0)
        if attempt == 0:
            sys.exit(status != 0)  # takes the interpreter down as well, which is slow
        os._exit(status != 0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
busy = False
for thread in threads:
    thread.join()
compute()
print(runner.threading_layer())
"""


@pytest.mark.in_turn(2)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_forked_child_computes(layer: str, before: bool) -> None:
    """Children compute, whether the parent had threads or not, even while these are at work."""
    if layer == "tbb" and not runner_module.tbb_parallel_for():
        pytest.skip("no tbb here")
    in_child = "workers" if before else layer
    script = FORK.replace("BEFORE", str(before)).replace("IN_CHILD", repr(in_child))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env={**os.environ, "ADJIT_THREADING_LAYER": layer},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{layer}\n", "")


def test_nothing_is_loaded_before_it_is_needed() -> None:
    loaded = []

    def load(function: Callable[..., Any], signature: str) -> int:
        loaded.append(function.__name__)
        return compile_now(function, signature)

    runner = Runner(load)
    x = np.zeros(10, np.int64)
    plan = stream((compiled(advance), 10, 1, [address(x), 1]))
    assert loaded == []
    runner.run(address(plan), 1)
    assert loaded == ["walk"]
    runner.run(address(plan), 1, large=True)
    assert loaded[:2] == ["walk", "run_parts"]
    assert len(loaded) == len(set(loaded))


@pytest.mark.parametrize("name", ["walk", "run_parts", "share", "work"])
def test_the_object_code_stands_alone(name: str) -> None:
    """Loading it needs neither Numba's run-time nor Python's C API."""
    signature = getattr(runner_module, f"{name.upper()}_SIGNATURE")
    assert compile_function(getattr(runner_module, name), signature).external == ()


class TestSettings:
    @pytest.mark.parametrize(
        ("environment", "expected"),
        [
            ({"ADJIT_NUM_THREADS": "3", "OMP_NUM_THREADS": "5"}, 3),
            ({"OMP_NUM_THREADS": "5"}, 5),
            ({"OMP_NUM_THREADS": "4,2"}, 4),
        ],
    )
    def test_the_environment_sets_the_threads(
        self, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: int
    ) -> None:
        monkeypatch.delenv("ADJIT_NUM_THREADS", raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert Runner().get_num_threads() == expected

    @pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity here")
    @pytest.mark.parametrize("omp", [None, "", "all"])
    def test_the_default_is_the_cpus_of_the_process(
        self, monkeypatch: pytest.MonkeyPatch, omp: str | None
    ) -> None:
        monkeypatch.delenv("ADJIT_NUM_THREADS", raising=False)
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        if omp is not None:
            monkeypatch.setenv("OMP_NUM_THREADS", omp)
        assert Runner().get_num_threads() == len(os.sched_getaffinity(0))

    @pytest.mark.parametrize("value", ["0", "-1", "two", ""])
    def test_a_wrong_number_of_threads(self, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
        monkeypatch.setenv("ADJIT_NUM_THREADS", value)
        with pytest.raises(ValueError, match="ADJIT_NUM_THREADS must be a positive integer"):
            Runner().get_num_threads()

    def test_a_wrong_layer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ADJIT_THREADING_LAYER", "workqueue")
        with pytest.raises(ValueError, match="ADJIT_THREADING_LAYER must be"):
            Runner().threading_layer()

    @pytest.mark.parametrize(
        ("threads", "message"),
        [
            (0, "set_num_threads expects a positive integer"),
            (-1, "set_num_threads expects a positive integer"),
            (1.5, "set_num_threads expects an int, but got float"),
            (True, "set_num_threads expects an int, but got bool"),
        ],
    )
    def test_set_num_threads_refuses(self, threads: Any, message: str) -> None:
        with pytest.raises(RuntimeError, match=message):
            Runner().set_num_threads(threads)

    def test_serial(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ADJIT_THREADING_LAYER", "serial")
        runner = Runner()
        runner.set_num_threads(4)
        counts, ends = np.zeros(100, np.int64), np.zeros(100, np.int64)
        plan = stream((compiled(count_units), 100, 1, [address(counts), address(ends)]))
        runner.run(address(plan), 1, large=True)
        assert runner.threading_layer() == "serial"
        assert runner.get_num_threads() == 4
        assert np.flatnonzero(ends).tolist() == [0]
