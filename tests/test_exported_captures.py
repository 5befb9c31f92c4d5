"""Captured functions that write memory at which others look: NumPy's arrays, addresses that were asked for."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adjit as T
from adjit.captured import replay
from adjit.captured.replay import Replay
from adjit.schedule.jit import native

CALLS = 9


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many calls were answered by a plan."""
    count, run = [0], Replay.run

    def counted(self: Replay, arguments: Any) -> Any:
        found = run(self, arguments)
        count[0] += found is not None
        return found

    monkeypatch.setattr(Replay, "run", counted)
    return count


@pytest.fixture(params=["machine code", "Python"])
def look_up(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What backward keeps is looked up by machine code, which is there, or by its fallback."""
    if request.param == "Python":
        monkeypatch.setattr(replay, "look_up", replay._look_up)
    elif not native.is_supported:
        pytest.skip("another interpreter")
    else:
        path = next(
            one for one in native.families if (one.module, one.name) == ("replay", "look_up")
        )
        assert path.load(compiling=True)


@pytest.fixture(params=["machine code", "Python"])
def leave(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are made by machine code, which is there, or by its fallback."""
    if request.param == "Python":
        monkeypatch.setattr(replay, "leave", replay._leave)
    elif not native.is_supported:
        pytest.skip("another interpreter")
    else:
        assert replay._leaving.load(compiling=True)


def numbers(*shape: int, seed: int = 0) -> Any:
    return T.tensor(np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32))


def seen(array: Any) -> list[float]:
    return [float(x) for x in np.asarray(array).ravel()]


def in_both_ways(program: Callable[[Callable[[Any], Any]], Iterator[Any]]) -> None:
    """A program shows the same with functions that are captured and with those that are not."""
    plain, captured = [list(program(wrap)) for wrap in (lambda f: f, T.compile)]
    assert plain == captured


RULES = {
    "SGD": lambda p: T.optim.SGD(p, lr=0.1),
    "momentum": lambda p: T.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: T.optim.Adam(p, lr=0.1),
    "one by one": lambda p: T.optim.Rprop(p, lr=0.1),
}
WATCHES: dict[str, Callable[[Any], Any]] = {
    "array": lambda p: p.detach().numpy(),
    "part of an array": lambda p: p.detach().numpy()[..., 1:],
    "address": lambda p: p.data_ptr(),
    "DLPack": lambda p: np.from_dlpack(p.detach()),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("watch", WATCHES)
def test_training_is_seen_where_others_look(watch: str, rule: str, replays: list[int]) -> None:
    def program(wrap: Any) -> Iterator[Any]:
        params = [numbers(3, 4, seed=1).requires_grad_(), numbers(3, seed=2).requires_grad_()]
        optimizer = RULES[rule](params)
        kept = [WATCHES[watch](p) for p in params]
        addresses = [p.data_ptr() for p in params]
        x = numbers(5, 4)

        @wrap
        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = T.nn.functional.linear(x, *params).tanh().square().mean()
            loss.backward()
            optimizer.step()
            return loss

        for k in range(CALLS):
            loss = step(x)
            for p, place in zip(params, kept, strict=True):
                yield seen(p.detach())
                if watch == "address":
                    floats = (ctypes.c_float * p.numel()).from_address(place)
                    yield list(floats)
                else:
                    yield seen(place)
                    if k == 5 and place.flags.writeable:
                        place[...] = 0.25  # and the next step starts there
            yield loss.item()
        assert [p.data_ptr() for p in params] == addresses

    in_both_ways(program)
    assert replays[0] >= CALLS - 4


def test_arrays_come_and_go(replays: list[int]) -> None:
    def program(wrap: Any) -> Iterator[Any]:
        w, array = numbers(4).requires_grad_(), None

        @wrap
        def step(x: Any) -> Any:
            with T.no_grad():
                w.mul_(0.5).add_(x)
            return w.detach() * 2

        for k in range(16):
            yield seen(step(numbers(4, seed=k)))
            if k in (4, 12):
                array = w.detach().numpy()
            if k == 8:
                array = None
            if array is not None:
                yield seen(array)
                array[0] = k
                yield seen(w.detach())

    in_both_ways(program)
    assert replays[0] >= 8


def test_memory_is_not_passed_on_to_other_values(replays: list[int]) -> None:
    """The old bytes are free before the new value is computed: nothing else may be written there."""

    def program(wrap: Any) -> Iterator[Any]:
        w = numbers(64, 64).requires_grad_()
        array = w.detach().numpy()

        @wrap
        def step(x: Any) -> Any:
            with T.no_grad():
                first = (w * x).sin()
                second = (first @ first).cos()
                w.copy_(second @ second)
            return first, second

        for k in range(CALLS):
            first, second = step(numbers(64, 64, seed=k))
            yield seen(first), seen(second), seen(array), seen(w.detach())

    in_both_ways(program)
    assert replays[0] >= CALLS - 3


# ----- functions that can look there themselves: they run as usual -----


def written(w: Any, x: Any) -> None:
    with T.no_grad():
        w.add_(x)


GLOBAL: dict[str, Any] = {}


def reading_argument(w: Any) -> Any:
    array = w.detach().numpy()

    def step(x: Any, array: Any = array) -> Any:
        written(w, x)
        return seen(array)

    return step


def reading_in_new_code(w: Any) -> Any:
    """Nobody looks into the code that reads before it runs, in the sixth call, which is watched."""
    array = w.detach().numpy()
    GLOBAL["look"] = lambda: seen(array)

    def step(x: Any) -> Any:
        written(w, x)
        return GLOBAL["look"]() if GLOBAL["call"] >= 5 else None

    return step


def reading_by_address(w: Any) -> Any:
    place = w.data_ptr()

    def step(x: Any) -> Any:
        written(w, x)
        return ctypes.c_float.from_address(place).value

    return step


def reading_by_another_tensor(w: Any) -> Any:
    other = T.from_numpy(w.detach().numpy())

    def step(x: Any) -> Any:
        before = other * 1
        written(w, x)
        return seen((other * 2 + before).detach())

    return step


def reading_by_another_tensor_late(w: Any) -> Any:
    other = T.from_numpy(w.detach().numpy())

    def step(x: Any) -> Any:
        written(w, x)
        return other * 2

    return step


def failing(w: Any) -> Any:
    w.data_ptr()

    def step(x: Any) -> Any:
        written(w, x)
        raise KeyError("on purpose")

    def call(x: Any) -> Any:
        try:
            step(x)
        except KeyError as error:
            return str(error)

    return call


def looking_at_a_value(w: Any) -> Any:
    w.data_ptr()

    def step(x: Any) -> Any:
        written(w, x)
        first = w.sum().item()
        written(w, x)
        return first, w.sum().item()

    return step


@pytest.mark.parametrize(
    "make",
    [
        reading_argument, reading_in_new_code, reading_by_address, reading_by_another_tensor,
        reading_by_another_tensor_late, failing, looking_at_a_value,
    ],
    ids=lambda make: make.__name__,
)  # fmt: skip
def test_who_looks_there_sees_what_was_written(make: Any) -> None:
    def program(wrap: Any) -> Iterator[Any]:
        w = numbers(4).requires_grad_()
        array = w.detach().numpy()
        step = wrap(make(w))
        for k in range(CALLS):
            GLOBAL["call"] = k
            found = step(numbers(4, seed=k))
            yield (seen(found.detach()) if isinstance(found, T.Tensor) else found), seen(array)
            yield seen(w.detach()), array.ctypes.data == w.data_ptr()

    in_both_ways(program)


def test_what_cannot_be_computed_leaves_memory_in_its_place() -> None:
    """A bad index is found after a write, or before one; arrays show what tensors have."""
    for is_late in (False, True):
        w, v = numbers(4).requires_grad_(), numbers(4)
        arrays = [t.detach().numpy() for t in (w, v)]

        @T.compile
        def step(x: Any, rows: Any, is_late: bool = is_late, w: Any = w, v: Any = v) -> Any:
            written(w, x if is_late else x[rows])
            v.add_(x[rows])
            return v * 2

        for k in range(CALLS):
            rows = T.tensor([0, 1, 2, 9 if k in (1, 6) else 3])
            if k in (1, 6):
                with pytest.raises(IndexError):
                    step(numbers(4, seed=k), rows).tolist()
            else:
                step(numbers(4, seed=k), rows).tolist()
            for t, array in zip((w, v), arrays, strict=True):
                assert t.tolist() == array.tolist()
                assert t.data_ptr() == array.ctypes.data


def test_an_argument_that_shows_what_is_written() -> None:
    def program(wrap: Any) -> Iterator[Any]:
        w = numbers(4).requires_grad_()
        array = w.detach().numpy()

        @wrap
        def step(x: Any) -> Any:
            written(w, x)
            return x * 2

        for k in range(CALLS):
            x = T.from_numpy(array) if k % 4 == 3 else numbers(4, seed=k)
            yield seen(step(x)), seen(array), seen(w.detach())

    in_both_ways(program)


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "the library": lambda t, array: t.add_(1.0),
    "NumPy": lambda t, array: array.__setitem__(slice(None), 0.25),
}


@pytest.mark.usefixtures("look_up")
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("count", [4, 3000])
@pytest.mark.parametrize("looks", [False, True])
def test_backward_computes_with_what_the_call_has_read(
    looks: bool, count: int, write: str, replays: list[int]
) -> None:
    """A graph has saved what follows from the sum; its backward reads the terms again instead."""

    def program(wrap: Any) -> Iterator[Any]:
        b = numbers(count, seed=1)
        kept, given = b.numpy(), np.zeros(count, np.float32)

        @wrap
        def step(x: Any, a: Any) -> Any:
            return T.exp(T.sin(x + b + a) * 0.1)

        for k in range(CALLS):
            x = numbers(count, seed=k).requires_grad_()
            given[:] = k
            y = step(x, T.from_numpy(given))
            if looks:
                yield seen(y.detach())
            if k % 2:
                WRITES[write](b, kept)
            if k % 3:
                given[:] = 7
            yield seen(T.autograd.grad(y.sum(), x)[0])
            yield seen(kept)

    in_both_ways(program)
    assert replays[0] > 3


@pytest.mark.usefixtures("look_up")
@pytest.mark.parametrize("order", ["before", "after", "a product before"])
def test_backward_computes_with_what_the_call_has_read_or_written(
    order: str, replays: list[int]
) -> None:
    def program(wrap: Any) -> Iterator[Any]:
        b, matrix = numbers(5, seed=1), numbers(5, 5, seed=2)
        kept = b.numpy()

        @wrap
        def step(x: Any) -> Any:
            if order == "before":
                b.add_(1.0)
            if order == "a product before":  # which backward does not compute again
                b.copy_(matrix @ b)
            y = T.exp(T.sin(x + b) * 0.1)
            if order == "after":
                b.add_(1.0)
            return y

        for k in range(CALLS):
            x = numbers(5, seed=k).requires_grad_()
            y = step(x)
            if k % 2:
                b.mul_(0.5)
            if k % 3 == 2:
                kept[:] = 0.25
            yield seen(T.autograd.grad(y.sum(), x)[0]), seen(y.detach()), seen(kept)

    in_both_ways(program)
    assert replays[0] > 3


@pytest.mark.usefixtures("look_up")
@pytest.mark.parametrize("is_written", [False, True])
def test_backward_of_one_result_computes_with_what_the_call_has_read(
    is_written: bool, replays: list[int]
) -> None:
    """The graph of the other result has saved the terms, and a write is an error for it alone."""

    def program(wrap: Any) -> Iterator[Any]:
        b, matrix = numbers(5, seed=1), numbers(5, 5, seed=2)
        kept = b.numpy()

        @wrap
        def step(x: Any) -> Any:
            if is_written:  # by what backward does not compute again
                b.copy_(matrix @ b)
            y = x.exp()
            return y * b, T.exp(T.sin(y + b) * 0.1)

        for k in range(CALLS):
            x = numbers(5, seed=k).requires_grad_()
            results = step(x)
            if k % 2:
                b.mul_(0.5)
            yield seen(kept), seen(T.autograd.grad(results[1].sum(), x, retain_graph=True)[0])
            try:
                yield seen(T.autograd.grad(results[0].sum(), x)[0])
            except RuntimeError as error:
                yield "modified by an inplace operation" in str(error)

    in_both_ways(program)
    assert replays[0] > 3


@pytest.mark.usefixtures("leave")
@pytest.mark.parametrize("shares", [False, True])
def test_results_lie_as_they_do_in_the_function(
    shares: bool, replays: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turned, of a part of their memory, and one beside the other in it."""
    builders, builder = [0], replay.OutputBuilder

    def counted(*args: Any) -> Any:
        builders[0] += 1
        return builder(*args)

    monkeypatch.setattr(replay, "OutputBuilder", counted)

    def program(wrap: Any) -> Iterator[Any]:
        w = numbers(5, 3, seed=1).requires_grad_()

        def of_w(w: Any, x: Any) -> Any:
            return (x @ w.t()).sin().sum()

        @wrap
        def step(x: Any) -> Any:
            found = (x * 2).t(), (x + 1)[1:], T.func.grad(of_w)(w, x), x.exp()
            return (*found, found[3].t()[1], *(x * 3).chunk(2)) if shares else found

        for k in range(CALLS):
            found = step(numbers(4, 3, seed=k))
            memory = [t.untyped_storage() for t in found]
            yield [[a.data_ptr() == b.data_ptr() for a in memory] for b in memory]
            for t in found:
                yield t.tolist(), t.stride(), t.storage_offset(), t.untyped_storage().nbytes()
            found[0].add_(1)
            found[1].zero_()
            yield [seen(t.detach()) for t in found]

    in_both_ways(program)
    assert replays[0] > 0
    assert builders[0] == 1 + replays[0] * shares  # the one is the capture's
