"""An interrupt loses nothing: a value is there, or it is still recorded and computed at the next look.

Handlers of signals run when a function of Python begins and when one of C has returned; a profile function is
called at both places, and what it raises goes where the interrupt of a handler would.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import dis
import functools
import inspect
import itertools
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import stub_driver
from conftest import TURN
from library import T

import adjit
from adjit import config
from adjit.autograd import engine
from adjit.captured.program import ProgramPart
from adjit.graph import cycles
from adjit.profiler import profile
from adjit.schedule import deferred, dispatch, plan_cache
from adjit.schedule import settle as scheduling
from adjit.schedule.jit import native

SOURCES = str(Path(adjit.__file__).parent), str(Path(sys.modules["adjit.kernels"].__file__).parent)
SECONDS = float(os.environ.get("ADJIT_INTERRUPT_SECONDS", "4"))


class Interrupts:
    """Raises KeyboardInterrupt at the place of a number, where a signal could be noticed; counts the places.

    Those are the calls and returns that a profile function sees, and the ends of loops.
    """

    def __init__(self, at: int = -1) -> None:
        self.at, self.seen = at, 0

    def profile(self, frame: Any, event: str, _: Any) -> None:
        # A generator may be entered to be closed: what is raised there is printed.
        is_generator = frame.f_code.co_flags & inspect.CO_GENERATOR
        if (event == "c_return" or (event == "call" and not is_generator)) and is_watched(frame):
            self.notice()

    def trace(self, frame: Any, event: str, _: Any) -> Any:
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return self.trace if is_watched(frame) else None
        code = frame.f_code
        if event == "opcode" and frame.f_lasti in ends_of_loops(code):
            self.notice()
        return self.trace

    def notice(self) -> None:
        self.seen += 1
        if self.seen - 1 == self.at:
            sys.setprofile(None)
            sys.settrace(None)
            raise KeyboardInterrupt

    def during(self, work: Callable[[], object]) -> bool:
        """Do some work, with the interrupt; whether it came."""
        before = sys.gettrace()
        sys.settrace(self.trace)
        sys.setprofile(self.profile)
        try:
            work()
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
            sys.settrace(before)
        return False


def is_watched(frame: Any) -> bool:
    """Whether an interrupt in a frame goes to who called the library; what finalizers raise is printed, and
    so is what the stub driver's kernels and callbacks of the collector of cycles raise."""
    if not frame.f_code.co_filename.startswith(SOURCES):
        return False
    return not any(
        code.co_name in ("finalize", "__del__") or code in PRINTED for code in codes_of(frame)
    )


PRINTED = stub_driver.Stub._run.__code__, cycles.bring_back.__code__


def codes_of(frame: Any) -> Iterator[Any]:
    """The code of a frame and of those that it was called from, up to those of the test."""
    while frame is not None and frame.f_code.co_name != "during":
        yield frame.f_code
        frame = frame.f_back


@functools.cache
def ends_of_loops(code: Any) -> frozenset[int]:
    """Where a loop begins anew: the other places where signals are noticed, of which no profile tells."""
    return frozenset(
        [
            step.offset
            for step in dis.get_instructions(code)
            if "JUMP_BACKWARD" in step.opname and "NO_INTERRUPT" not in step.opname
        ]
    )


def places(seen: int, most: int) -> range:
    """Numbers of places: all of them in a long test."""
    return range(0, seen, 1 if SECONDS > 4 else max(-(-seen // most), 1))


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
    return [v.detach().cpu().numpy().tobytes() for v in values]


def run_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing run by the twins of functions in machine code, which no signal can enter."""
    monkeypatch.setattr(scheduling, "settle", scheduling._settle)
    monkeypatch.setattr(scheduling, "drop_unwanted", scheduling._drop_unwanted)
    monkeypatch.setattr(scheduling, "run_compiled", lambda *_: False)
    monkeypatch.setattr(dispatch, "run_rows", dispatch._run_rows)
    monkeypatch.setattr(dispatch, "rows", SimpleNamespace(is_loaded=False))


@pytest.fixture(params=["one by one", "planned", "machine code"])
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """How what is recorded runs: by Python, node by node or in plans, or as usual."""
    with taking(request.param, monkeypatch):
        yield request.param


@contextlib.contextmanager
def taking(road: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have what is recorded run like that."""
    scheduling.settle()
    plan_cache.clear()
    monkeypatch.setattr(config, "JIT", "sync")
    monkeypatch.setattr(config, "HOT", 1)
    monkeypatch.setattr(plan_cache, "is_on", road != "one by one")
    if road != "machine code":
        run_by_python(monkeypatch)
    if road == "planned":
        monkeypatch.setattr(deferred, "LEAST", 0)
    yield
    monkeypatch.undo()
    scheduling.settle()
    plan_cache.clear()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_an_interrupt_anywhere_loses_no_value(program: Callable[[], list[Any]], road: str) -> None:
    """Each place in turn, while everything that is recorded is run."""

    chosen = lose_nothing(program)
    assert road == "machine code" or len(chosen) > 2


def lose_nothing(
    program: Callable[[], list[Any]],
    watch: Callable[[], Any] = contextlib.nullcontext,
    most: int = 150,
) -> range:
    """Interrupt the settling of what a program has recorded at each place in turn; the places."""

    def settle() -> None:
        scheduling.settle(everything=True)

    for _ in range(3):
        expected = bits(program())
    with watch():
        values = program()
        counted = Interrupts()
        assert not counted.during(settle)
        assert bits(values) == expected
    chosen = places(counted.seen, most)
    for at in chosen:
        with watch():
            values = program()
            Interrupts(at).during(settle)
        assert bits(values) == expected, f"place {at} of {counted.seen}"
        assert not scheduling.lock._is_owned(), f"place {at} of {counted.seen}"
    assert not scheduling.pending
    return chosen


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("road", ["one by one", "planned"])
def test_an_interrupt_under_a_profile_loses_no_value(
    program: Callable[[], list[Any]], road: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with taking(road, monkeypatch):
        assert len(lose_nothing(program, profile, 50)) > 2


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("road", ["one by one", "planned"])
@pytest.mark.parametrize("watch", [contextlib.nullcontext, profile], ids=["alone", "profiled"])
def test_an_interrupt_on_a_gpu_loses_no_value(
    program: Callable[[], list[Any]], road: str, watch: Callable[[], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """On the stub of a driver, whose memory is the host's: what is launched twice is seen."""
    with stub_driver.installed(), T.device("cuda"):
        with taking(road, monkeypatch):
            assert len(lose_nothing(program, watch, 30)) > 2
        plan_cache.wait()


# ----- writes, replays and steps: all or nothing -----


class World:
    """Some tensors, what is done to them, and what can be seen of them."""

    def __init__(
        self, tensors: list[Any], act: Callable[[], object], *more: Callable[[], object]
    ) -> None:
        self.tensors, self.act, self.more = tensors, act, more

    def seen(self) -> Any:
        """Versions, histories, elements and gradients."""
        tensors = [t for t in self.tensors if t is not None]
        heads = [(t._version, t.requires_grad, _name_of(t.grad_fn)) for t in tensors]
        elements = [t.detach().tolist() for t in tensors]
        found = [t for t in tensors if t.requires_grad]
        leaves = [t for t in found if t.is_leaf]
        total = sum([(t * (k + 2)).sum() for k, t in enumerate(found)], T.zeros(()))
        grads = T.autograd.grad(total, leaves, retain_graph=True) if leaves else ()
        return heads, elements, [g.tolist() for g in grads], [look() for look in self.more]


def _name_of(fn: Any) -> Any:
    return None if fn is None else fn.name()


def all_or_nothing(make: Callable[[], World], most: int = 150) -> int:
    """Interrupt what is done to a world at each place in turn: it is as before or as afterwards, and what
    was not done can be. How many places there are."""
    for _ in range(3):
        world = make()
        before = world.seen()
        world.act()
        after = world.seen()
    assert before != after
    counted = Interrupts()
    world = make()
    assert not counted.during(world.act)
    assert world.seen() == after
    for at in places(counted.seen, most):
        world = make()
        came = Interrupts(at).during(world.act)
        assert T.is_grad_enabled()
        found = world.seen()
        where = f"place {at} of {counted.seen}"
        assert found == after or (came and found == before), where
        if found == before:
            world.act()
            assert world.seen() == after, where
    return counted.seen


def leaf(*shape: int) -> Any:
    return numbers(*shape).requires_grad_()


def of_a_leaf(write: Callable[[Any, Any], object]) -> Callable[[], World]:
    """A write into a tensor with history, of which there are views."""

    def make() -> World:
        w = leaf(3, 4)
        y = w * 2
        first, last = y[0], y[1:]
        return World([w, y, first, last], lambda: write(y, w))

    return make


def without_history(write: Callable[[Any, Any], object]) -> Callable[[], World]:
    def make() -> World:
        y = numbers(3, 4) * 1
        x = numbers(3, 4)
        return World([y, y[1], x], lambda: write(y, x))

    return make


def seen_outside(write: Callable[[Any, Any], object]) -> Callable[[], World]:
    """A write into memory that an array looks at."""

    def make() -> World:
        y, x = numbers(3, 4) * 1, numbers(3, 4)
        array = y.numpy()
        return World([y, x], lambda: write(y, x), array.tolist)

    return make


def retained(write: Callable[[Any, Any], object]) -> Callable[[], World]:
    def make() -> World:
        w = leaf(3, 4)
        y = w * 2
        y.retain_grad()

        def gradient() -> Any:
            y.grad = w.grad = None
            (y * y).sum().backward(retain_graph=True)
            return y.grad.tolist(), w.grad.tolist()

        return World([w, y], lambda: write(y, w), gradient)

    return make


def resized() -> World:
    out = T.empty(0)
    x = numbers(3, 4)

    def act() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            T.add(x, 1, out=out)

    return World([out, x], act)


def normalized() -> World:
    x, mean, var = numbers(4, 3), T.zeros(3), T.ones(3)
    return World(
        [mean, var], lambda: T.nn.functional.batch_norm(x, mean, var, training=True, momentum=0.5)
    )


def turned() -> World:
    y = leaf(3, 4) * 2
    return World([y], lambda: y.t_())


def replaced() -> World:
    y, x = numbers(3, 4), numbers(2, 2)
    return World([y, x], lambda: setattr(y, "data", x))


WRITES: dict[str, Callable[[], World]] = {
    "add_": without_history(lambda y, x: y.add_(x)),
    "add_ to a part": without_history(lambda y, x: y[1:].add_(x[:2])),
    "a part": without_history(lambda y, x: y.__setitem__((slice(None), 1), x[:, 2])),
    "copy_": without_history(lambda y, x: y.copy_(x)),
    "fill_": without_history(lambda y, x: y.fill_(3.0)),
    "clamp_": without_history(lambda y, x: y.clamp_(min=0.1)),
    "index_add_": without_history(lambda y, x: y.index_add_(0, T.tensor([0, 2, 1]), x)),
    "mul_ of a result": of_a_leaf(lambda y, w: y.mul_(w)),
    "exp_ of a result": of_a_leaf(lambda y, w: y.exp_()),
    "a part of a result": of_a_leaf(lambda y, w: y[1:].mul_(w[:2])),
    "copy_ into a part of a result": of_a_leaf(lambda y, w: y[2].copy_(w[0])),
    "zero_ of a result": of_a_leaf(lambda y, w: y.zero_()),
    "add_ in shared memory": seen_outside(lambda y, x: y.add_(x)),
    "a part of shared memory": seen_outside(lambda y, x: y[1].mul_(2)),
    "index_add_ in shared memory": seen_outside(
        lambda y, x: y.index_add_(0, T.tensor([0, 2, 1]), x)
    ),
    "copy_ into shared memory": seen_outside(lambda y, x: y.copy_(x)),
    "mul_ where a gradient is kept": retained(lambda y, w: y.mul_(w)),
    "out=": resized,
    "batch_norm": normalized,
    "t_": turned,
    "data": replaced,
}


@pytest.fixture(params=["machine code", "python"])
def recorder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Who records: machine code, where it is there, or its twins."""
    scheduling.settle()
    monkeypatch.setattr(config, "JIT", "sync")
    if request.param == "python":
        as_twins(monkeypatch)
    elif native.is_supported:
        for family in native.families:
            family.load(compiling=True)
    else:
        pytest.skip("another interpreter")
    yield request.param
    monkeypatch.undo()
    scheduling.settle()


def as_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the interpreter do what machine code does, but for the objects of classes: a class that is made
    now would free its objects in another way than the others do, for good, and be no `__class__` for these."""
    for family in native.families:
        if isinstance(family, native._OfClasses):
            continue
        for made in family._functions:
            if isinstance(made, native.Native):
                word = ctypes.c_int64.from_address(id(made) + made._place)
                monkeypatch.setattr(word, "value", 0)
        monkeypatch.setattr(family, "_address", 0)
    monkeypatch.setattr(native, "is_wanted", False)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("write", WRITES)
def test_a_write_is_recorded_whole_or_not_at_all(write: str, recorder: str) -> None:
    assert all_or_nothing(WRITES[write], 60) > 0 or recorder == "machine code"


def of_an_optimizer(
    make: Callable[[list[Any]], Any], *, is_shared: bool = False
) -> Callable[[], World]:
    """A step: what was done to a parameter goes with its state."""

    def made() -> World:
        params = [leaf(3, 4), leaf(2, 2)]
        optimizer = make(params)
        for _ in range(2):
            step(params, optimizer)
        arrays = [p.detach().numpy() for p in params] if is_shared else []
        for p in params:
            p.grad = p.detach() * 0.5 + 1
        return World(params, optimizer.step, lambda: states(optimizer), *[a.tolist for a in arrays])

    return made


def new_optimizer(make: Callable[[list[Any]], Any]) -> Callable[[], World]:
    """The first step, which makes the state."""

    def made() -> World:
        params = [leaf(3, 4), leaf(2, 2)]
        for p in params:
            p.grad = p.detach() * 0.5 + 1
        optimizer = make(params)
        return World(params, optimizer.step, lambda: states(optimizer))

    return made


def step(params: list[Any], optimizer: Any) -> None:
    optimizer.zero_grad()
    sum([(p * p).sum() for p in params]).backward()
    optimizer.step()


def states(optimizer: Any) -> Any:
    """The state, without what a parameter has not begun."""
    found = optimizer.state_dict()["state"]
    return {
        k: {n: v.tolist() if isinstance(v, T.Tensor) else v for n, v in state.items()}
        for k, state in found.items()
        if state
    }


OPTIMIZERS: dict[str, Callable[[list[Any]], Any]] = {
    "SGD": lambda p: T.optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: T.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: T.optim.Adam(p, lr=0.1, amsgrad=True),
    "AdamW": lambda p: T.optim.AdamW(p, lr=0.1),
}
ONE_BY_ONE: dict[str, Callable[[list[Any]], Any]] = {
    "SGD": lambda p: T.optim.SGD(p, lr=T.tensor(0.1), momentum=0.9, weight_decay=0.1),
    "Adam": lambda p: T.optim.AdamW(p, lr=T.tensor(0.1), capturable=True),
    "RMSprop": lambda p: T.optim.RMSprop(p, lr=0.1, momentum=0.9, centered=True),
    "Adagrad": lambda p: T.optim.Adagrad(p, lr=0.1, lr_decay=0.1),
    "NAdam": lambda p: T.optim.NAdam(p, lr=0.1, weight_decay=0.1, decoupled_weight_decay=True),
    "ASGD": lambda p: T.optim.ASGD(p, lr=T.tensor(0.1), t0=0),
    "Rprop": lambda p: T.optim.Rprop(p, lr=0.1),
    "Adafactor": lambda p: T.optim.Adafactor(p, lr=0.1),
}


def with_tables() -> tuple[list[Any], Any]:
    """Two tables of which few rows are looked up, something else, and an optimiser that has noted them."""
    params = [leaf(30, 3), leaf(20, 4), leaf(3)]
    optimizer = T.optim.SGD(params, lr=0.1)
    for _ in range(2):
        look_up(params, optimizer)
        optimizer.step()
    look_up(params, optimizer)
    return params, optimizer


def look_up(params: list[Any], optimizer: Any) -> None:
    first, second, factor = params
    optimizer.zero_grad()
    loss = (first[T.tensor([3, 7, 3])] * factor).sin().sum() + second[T.tensor([5, 1])].exp().sum()
    loss.backward()


@pytest.fixture
def tables_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their size."""
    monkeypatch.setattr(deferred, "LEAST", 0)


def test_a_step_moves_rows_of_all_tables_or_none(recorder: str, tables_wait: None) -> None:
    def make() -> World:
        params, optimizer = with_tables()
        assert len(deferred.nodes) >= 4
        return World(params, optimizer.step, lambda: [p.grad.tolist() for p in params])

    all_or_nothing(make, 60)


@pytest.mark.parametrize("road", ["planned", "machine code"])
def test_an_interrupt_while_gradients_are_put_off_loses_none(
    road: str, tables_wait: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recorded() -> list[Any]:
        with pytest.MonkeyPatch.context() as later:
            later.setattr(engine, "settle_walk", lambda: None)
            params, optimizer = with_tables()
            scheduling.settle()
            look_up(params, optimizer)
        return [*params, *[p.grad for p in params]]

    with taking(road, monkeypatch):
        monkeypatch.setattr(deferred, "LEAST", 0)
        for _ in range(3):
            expected = bits(recorded())
        values, counted = recorded(), Interrupts()
        assert not counted.during(scheduling._settle)
        assert len(deferred.nodes) == 4
        assert bits(values) == expected
        for at in places(counted.seen, 150):
            values = recorded()
            Interrupts(at).during(scheduling._settle)
            assert bits(values) == expected, f"place {at} of {counted.seen}"


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_moves_all_parameters_or_none(optimizer: str, recorder: str) -> None:
    all_or_nothing(of_an_optimizer(OPTIMIZERS[optimizer]), 60)
    all_or_nothing(new_optimizer(OPTIMIZERS[optimizer]), 60)
    all_or_nothing(of_an_optimizer(OPTIMIZERS[optimizer], is_shared=True), 60)


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("optimizer", ONE_BY_ONE)
def test_a_parameter_moves_with_its_state(optimizer: str, recorder: str) -> None:
    """One after the other, so a step may be done for some parameters only, as in PyTorch."""
    make = ONE_BY_ONE[optimizer]
    for made in (of_an_optimizer(make), new_optimizer(make), of_an_optimizer(make, is_shared=True)):
        for _ in range(3):
            world = made()
            before = by_parameter(world)
            world.act()
            after = by_parameter(world)
        counted = Interrupts()
        assert not counted.during(made().act)
        for at in places(counted.seen, 60):
            world = made()
            Interrupts(at).during(world.act)
            assert T.is_grad_enabled()
            for k, found in enumerate(by_parameter(world)):
                assert found in (before[k], after[k]), (
                    f"place {at} of {counted.seen}, parameter {k}"
                )


def by_parameter(world: World) -> list[Any]:
    heads, elements, _, (found, *arrays) = world.seen()
    return [
        (heads[k], elements[k], found.get(k), [array[k] for array in [arrays] if array])
        for k in range(len(elements))
    ]


def writes_an_argument() -> World:
    x, total = numbers(3, 4), T.zeros(3, 4)

    @T.compile
    def add(x: Any) -> None:
        total.add_(x)
        x.mul_(2)

    return replayed(World([x, total], lambda: add(x)))


def draws() -> World:
    noise = T.zeros(300)
    T.manual_seed(3)

    @T.compile
    def draw() -> None:
        noise.add_(T.rand(300) + T.randn(300))

    return replayed(World([noise], draw, lambda: T.get_rng_state().tolist()))


def writes_a_part() -> World:
    x = numbers(3, 4)

    @T.compile
    def write(x: Any) -> Any:
        x[1] = x[0] * 2
        return x[1:]

    return replayed(World([x], lambda: write(x)))


def sets_a_gradient() -> World:
    w, x = leaf(3, 4), numbers(3, 4)
    seen = T.zeros(())

    @T.compile
    def send() -> None:
        w.grad = None
        loss = (w * x).exp().sum()
        loss.backward()
        seen.add_(1)

    return replayed(World([w, seen], send, lambda: w.grad.tolist()))


def trains(make: Callable[[list[Any]], Any]) -> Callable[[], World]:
    def made() -> World:
        params = [leaf(3, 4), leaf(2, 2)]
        optimizer = make(params)

        @T.compile
        def train() -> Any:
            optimizer.zero_grad()
            loss = sum([(p * p).sum() for p in params])
            loss.backward()
            optimizer.step()
            return loss.detach()

        world = World(params, train, lambda: states(optimizer))
        return replayed(world)

    return made


def waits() -> World:
    """A call that waits until somebody sends back."""
    w = leaf(40, 10)
    forward = T.compile(lambda x: (x.exp() * x.sin()).sum())

    def act() -> None:
        forward(w).backward()

    world = replayed(World([], act, lambda: None if w.grad is None else w.grad.tolist()))
    w.grad = None
    return world


def moves_rows() -> World:
    params, optimizer = with_tables()

    @T.compile
    def train() -> Any:
        look_up(params, optimizer)
        optimizer.step()

    return replayed(
        World(params, train, lambda: [p.grad is None or p.grad.tolist() for p in params])
    )


def replayed(world: World) -> World:
    """A world in which the next call is a replay."""
    for _ in range(4):
        world.act()
    scheduling.settle()
    return world


REPLAYS: dict[str, Callable[[], World]] = {
    "arguments": writes_an_argument,
    "a part": writes_a_part,
    "numbers that are drawn": draws,
    "a gradient": sets_a_gradient,
    "what waits": waits,
    "SGD": trains(OPTIMIZERS["SGD with momentum"]),
    "rows of tables": moves_rows,
    "Adam": trains(OPTIMIZERS["Adam"]),
    "RMSprop": trains(ONE_BY_ONE["RMSprop"]),
    "Adadelta": trains(lambda p: T.optim.Adadelta(p, lr=0.1)),
    "NAdam": trains(lambda p: T.optim.NAdam(p, lr=0.1, capturable=True)),
}


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("replay", REPLAYS)
def test_a_replay_is_done_whole_or_not_at_all(
    replay: str, recorder: str, tables_wait: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, runs = ProgramPart.prepare, []

    def recording_sites(part: Any, *rest: Any) -> Any:
        runs.append(part)
        return prepare(part, *rest)

    monkeypatch.setattr(ProgramPart, "prepare", recording_sites)
    count = all_or_nothing(REPLAYS[replay], 40)
    assert count
    assert len(runs) > len(places(count, 40)) / 2


def test_memory_that_runs_out_loses_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduling.settle()
    monkeypatch.setattr(plan_cache, "is_on", False)
    run_by_python(monkeypatch)
    expected, allocate = bits(written()), dispatch.allocate
    for at in itertools.count():
        values, calls = written(), []

        def scarce(size: int, at: int = at, calls: list[int] = calls) -> Any:
            calls.append(size)
            if len(calls) == at + 1:
                raise MemoryError
            return allocate(size)

        monkeypatch.setattr(dispatch, "allocate", scarce)
        try:
            scheduling.settle()
            is_scarce = False
        except MemoryError:
            is_scarce = True
        monkeypatch.setattr(dispatch, "allocate", allocate)
        assert bits(values) == expected
        if not is_scarce:  # that was all there is to allocate
            break
    assert at == 5


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

        for node in scheduling.pending:
            for recipe in (
                node.recipe,
                node.recipe.alias,
            ):  # that for where it writes over its operand
                if recipe is not None:
                    recipe.head = ()
        monkeypatch.setattr(dispatch, "link", interrupted)
        with pytest.raises(KeyboardInterrupt):
            scheduling.settle()
        monkeypatch.setattr(dispatch, "link", link)
        assert bits(values) == expected


def recorded(program: Callable[[], list[Any]]) -> list[Any]:
    """The nodes that a program records."""
    scheduling.settle()
    kept = program()
    nodes = scheduling.pending[:]
    scheduling.settle()
    del kept
    return [node for node in nodes if node.recipe is not None] or nodes


SIGNALS = """
import random, signal, sys, time
import adjit
from adjit.nn import functional as F
from adjit.schedule.settle import lock

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
    assert not lock._is_owned(), "a lock is held"
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
    count, seeds = 0, range(3 if start == "cold" else 1)
    for seed in [seeds[int(TURN) % len(seeds)]] if TURN else seeds:
        folder = {"ADJIT_CACHE_DIR": str(tmp_path / str(seed))} if start == "cold" else {}
        done = subprocess.run(
            [sys.executable, "-c", SIGNALS, str(SECONDS), start, str(seed)],
            env=os.environ | folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        count += int(done.stdout)
    assert count, "no signal came while values were computed"


STEPS = """
import random, signal, sys, time
import adjit

def made():
    w, total = adjit.full((5, 4), 0.5, requires_grad=True), adjit.zeros(5, 4)
    optimizer = adjit.optim.Adam([w], lr=0.1)

    def train():
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()

    def write():
        total[1:3].add_(1)

    def done():
        state = optimizer.state[w]
        return int(state["step"]), [t.tolist() for t in (w, state["exp_avg"], state["exp_avg_sq"])]

    def written():
        return total._version, total.tolist()

    return adjit.compile(train) if sys.argv[2] == "replayed" else train, write, done, written

seconds, seed = float(sys.argv[1]), int(sys.argv[3])
train, write, done, written = made()
histories = {}, {}
for _ in range(300):
    train()
    write()
    for history, look in zip(histories, (done, written)):
        count, found = look()
        history[count] = found
rng, end, count = random.Random(seed), time.monotonic() + seconds, 0
armed = False

def interrupt(*_):  # a signal may be noticed after its timer was stopped
    if armed:
        raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
while time.monotonic() < end:
    train, write, done, written = made()
    train(), write(), train()
    for _ in range(70):
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, 4e-4 * rng.random() + 1e-6)
            for _ in range(4):
                train()
                write()
            armed = False
        except KeyboardInterrupt:
            armed = False
            count += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        for history, look in zip(histories, (done, written)):
            number, found = look()
            assert found == history[number], (number, found, history[number])
print(count)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="sends signals")
@pytest.mark.parametrize("how", ["recorded", "replayed"])
def test_signals_at_random_times_tear_no_step(how: str) -> None:
    """What was done to a parameter, its state and its counter is that of one and the same step."""
    done = subprocess.run(
        [sys.executable, "-c", STEPS, str(SECONDS), how, "0"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout), "no signal came"


# ----- what Python does not guard -----

# What is entered, held or changed here must be left, let go of or put back, whenever a signal comes.
GUARDED = "atomic autograd/engine captured graph optim/optimizer overrides schedule"


def guarded_lines(tree: ast.Module) -> set[int]:
    """The lines of `with` statements, and of `try` statements that catch all or clean up."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            kinds = [ast.unparse(h.type) if h.type else "BaseException" for h in node.handlers]
            if "BaseException" not in kinds and not node.finalbody:
                continue
        elif not isinstance(node, ast.With):
            continue
        for statement in node.body:
            found |= set(range(statement.lineno, statement.end_lineno + 1))
    return found


def inner_codes(code: Any) -> Iterator[Any]:
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from inner_codes(part)


def test_loops_in_guarded_blocks_begin_anew_inside_of_them() -> None:
    """Python guards no jump back from a condition: what a signal raises there passes `except` and `finally` by.

    Conditions of comprehensions, and of statements that end a loop's body, are such.
    """
    source, open_jumps = Path(adjit.__file__).parent, []
    for file in sorted(source.rglob("*.py")):
        name = file.relative_to(source).as_posix().removesuffix(".py")
        if not any(f"{name}/".startswith(f"{room}/") for room in GUARDED.split()):
            continue
        text = file.read_text(encoding="utf-8")
        lines = guarded_lines(ast.parse(text))
        for code in inner_codes(compile(text, str(file), "exec")):
            guarded = [(entry.start, entry.end) for entry in dis.Bytecode(code).exception_entries]
            steps = [*dis.get_instructions(code)] if guarded else []
            line_at = {step.offset: step.positions.lineno for step in steps if step.positions}
            for step in steps:
                begin, line = line_at.get(step.argval), line_at.get(step.offset)
                is_open = not any(start <= step.offset < end for start, end in guarded)
                if step.offset in ends_of_loops(code) and is_open and {begin, line} <= lines:
                    open_jumps.append(f"{name}:{line}")
    assert open_jumps == []
