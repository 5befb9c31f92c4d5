"""An interrupt loses nothing: a value is there, or it is still recorded and computed at the next look.

Handlers of signals run when a function of Python begins and when one of C has returned; a profile function is
called at both places, and what it raises goes where the interrupt of a handler would.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from library import T

import adjit
from adjit import config
from adjit.schedule import deferred, dispatch, plan_cache
from adjit.schedule import settle as scheduling

SOURCES = str(Path(adjit.__file__).parent), str(Path(sys.modules["adjit.kernels"].__file__).parent)
SECONDS = float(os.environ.get("ADJIT_INTERRUPT_SECONDS", "4"))


class Interrupts:
    """Raises KeyboardInterrupt at the place of a number, where a signal could be noticed; counts the places."""

    def __init__(self, at: int = -1) -> None:
        self.at, self.seen = at, 0

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event not in ("call", "c_return") or not code.co_filename.startswith(SOURCES):
            return
        if code.co_name in ("finalize", "__del__"):
            return  # what finalizers raise is printed, and stops nothing
        self.seen += 1
        if self.seen - 1 == self.at:
            sys.setprofile(None)
            raise KeyboardInterrupt

    def during(self, work: Callable[[], object]) -> bool:
        """Do some work, with the interrupt; whether it came."""
        sys.setprofile(self)
        try:
            work()
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
        return False


def numbers(*shape: int) -> Any:
    rng = np.random.default_rng(len(shape))
    return T.tensor(rng.standard_normal(shape).astype(np.float32))


def chain() -> list[Any]:
    x = numbers(5, 7)
    return [y := x * 2, (y.exp() + x).sum(1), y @ x.t(), y.max(1).indices]


def written() -> list[Any]:
    x, y = numbers(4, 6), numbers(4, 6) * 1
    y += x
    y[1:3] *= 2
    y[0] = x[3]
    y.index_add_(0, T.tensor([0, 0, 2, 1]), x)
    y.clamp_(min=-1)
    return [x, y, y.t().contiguous()]


def own_bytes() -> list[Any]:
    x = numbers(40, 40) * 1
    scheduling.settle()
    x.mul_(3.0)
    x.index_add_(0, T.tensor([1, 1, 5]), numbers(3, 40))
    x[::2] += 1
    return [x]


def gradients() -> list[Any]:
    x, w = numbers(6, 4).requires_grad_(), numbers(4, 3).requires_grad_()
    for _ in range(2):
        T.nn.functional.cross_entropy((x @ w).relu(), T.tensor([0, 1, 2, 0, 1, 2])).backward()
    return [x.grad, w.grad]


def trained() -> list[Any]:
    w, b = numbers(4, 3).requires_grad_(), numbers(3).requires_grad_()
    optimizer = T.optim.Adam([w, b], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        ((numbers(6, 4) @ w + b) ** 2).sum().backward()
        optimizer.step()
    return [w, b, w.grad]


def put_off() -> list[Any]:
    x = numbers(30, 30).requires_grad_()
    y = (x * 2).exp()
    z = y.sin() * y
    return [z.sum(), *T.autograd.grad(z.sum(), x)]


PROGRAMS = [chain, written, own_bytes, gradients, trained, put_off]


def bits(values: list[Any]) -> list[bytes]:
    return [v.detach().numpy().tobytes() for v in values]


def run_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing run by the twins of functions in machine code, which no signal can enter."""
    monkeypatch.setattr(scheduling, "settle", scheduling._settle)
    monkeypatch.setattr(scheduling, "drop_unwanted", scheduling._drop_unwanted)
    monkeypatch.setattr(scheduling, "run_course", lambda *_: False)
    monkeypatch.setattr(dispatch, "run_rows", dispatch._run_rows)
    monkeypatch.setattr(dispatch, "rows", SimpleNamespace(is_loaded=False))


@pytest.fixture(params=["one by one", "planned", "machine code"])
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """How what is recorded runs: by Python, node by node or in plans, or as usual."""
    scheduling.settle()
    plan_cache.clear()
    monkeypatch.setattr(config, "JIT", "sync")
    monkeypatch.setattr(config, "HOT", 1)
    monkeypatch.setattr(plan_cache, "is_on", request.param != "one by one")
    if request.param != "machine code":
        run_by_python(monkeypatch)
    if request.param == "planned":
        monkeypatch.setattr(deferred, "LEAST", 0)
    yield request.param
    monkeypatch.undo()
    scheduling.settle()
    plan_cache.clear()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_an_interrupt_anywhere_loses_no_value(program: Callable[[], list[Any]], road: str) -> None:
    """Each place in turn, while everything that is recorded is run."""

    def settle() -> None:
        scheduling.settle(everything=True)

    for _ in range(3):
        expected = bits(program())
    program()
    counted = Interrupts()
    assert not counted.during(settle)
    places = range(0, counted.seen, max(counted.seen // 150, 1))
    for at in places:
        values = program()
        Interrupts(at).during(settle)
        assert bits(values) == expected, f"place {at} of {counted.seen}"
    assert not scheduling.tape
    assert road == "machine code" or len(places) > 2


def test_memory_that_runs_out_loses_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduling.settle()
    monkeypatch.setattr(plan_cache, "is_on", False)
    run_by_python(monkeypatch)
    expected, allocate = bits(written()), dispatch.allocate
    for at in range(6):
        values, calls = written(), []

        def scarce(size: int, at: int = at, calls: list[int] = calls) -> Any:
            calls.append(size)
            if len(calls) == at + 1:
                raise MemoryError
            return allocate(size)

        monkeypatch.setattr(dispatch, "allocate", scarce)
        with pytest.raises(MemoryError):
            scheduling.settle()
        monkeypatch.setattr(dispatch, "allocate", allocate)
        assert bits(values) == expected


def test_an_interrupt_while_a_compiler_is_waited_for_loses_no_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan_cache, "is_on", False)
    run_by_python(monkeypatch)
    expected, link = bits(written()), dispatch.link
    heads = [node.recipe for node in recorded(written)]
    for at in range(len(heads)):
        values, calls = written(), []

        def interrupted(source: Any, at: int = at, calls: list[Any] = calls) -> int:
            calls.append(source)
            if len(calls) == at + 1:
                raise KeyboardInterrupt
            return link(source)

        for node in scheduling.tape:
            node.recipe.head = ()
        monkeypatch.setattr(dispatch, "link", interrupted)
        with pytest.raises(KeyboardInterrupt):
            scheduling.settle()
        monkeypatch.setattr(dispatch, "link", link)
        assert bits(values) == expected


def recorded(program: Callable[[], list[Any]]) -> list[Any]:
    """The nodes that a program records."""
    scheduling.settle()
    kept = program()
    nodes = scheduling.tape[:]
    scheduling.settle()
    del kept
    return [node for node in nodes if node.recipe is not None] or nodes


SIGNALS = """
import random, signal, sys, time
import adjit
from adjit.nn import functional as F

def train(rounds):
    adjit.manual_seed(0)
    model = adjit.nn.Sequential(adjit.nn.Linear(8, 16), adjit.nn.GELU(), adjit.nn.Linear(16, 3))
    x, y = adjit.randn(12, 8), adjit.arange(12) % 3
    kept = []
    for _ in range(rounds):
        kept.append(F.cross_entropy(model(x), y))
        kept.append((x * len(kept)).softmax(1).cumsum(0))
        kept[-1][1:3] += 1
    return kept

def look(values):
    return [v.detach().numpy().tobytes() for v in values]

seconds, cold, seed = float(sys.argv[1]), sys.argv[2] == "cold", int(sys.argv[3])
expected = None if cold else look(train(3))
rng, end, count = random.Random(seed), time.monotonic() + seconds, 0
signal.signal(signal.SIGALRM, signal.default_int_handler)  # as Ctrl-C, but at a time that is chosen
while True:
    values = train(3)
    try:
        signal.setitimer(signal.ITIMER_REAL, (1.2 if cold else 0.003) * rng.random() + 1e-6)
        look(values)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        count += 1
    found = look(values)
    if expected is None:
        expected = look(train(3))
    assert found == expected, "a value was lost"
    if cold or time.monotonic() > end:
        break
print(count)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="sends signals")
@pytest.mark.parametrize("start", ["cold", "warm"])
def test_signals_at_random_times_lose_no_value(start: str, tmp_path: Path) -> None:
    count = 0
    for seed in range(3 if start == "cold" else 1):
        folder = {"ADJIT_CACHE_DIR": str(tmp_path / str(seed))} if start == "cold" else {}
        done = subprocess.run(
            [sys.executable, "-c", SIGNALS, str(SECONDS), start, str(seed)],
            env=os.environ | folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        count += int(done.stdout)
    assert count, "no signal came while values were computed"
