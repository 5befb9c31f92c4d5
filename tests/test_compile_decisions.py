"""Captured functions that decide by the truth of a tensor: every call does what the plain function does.

What a call can change: results, parameters and their gradients, buffers, the state of optimisers, random
numbers drawn later. Where a replay comes to another decision than the captured call, nothing of that may
have changed.
"""

import random
import threading

import numpy as np
import pytest

import adjit as T
from adjit.captured import replay
from adjit.captured.decisions import OtherWay
from adjit.nn import functional as F
from adjit.schedule import settle as scheduling


class Counts:
    """How many calls a replay has answered, and how many it has begun in vain."""

    answered = turned = 0


@pytest.fixture
def counts(monkeypatch):
    found, run = Counts(), replay.Replay.run

    def counted(self, arguments):
        try:
            results = run(self, arguments)
        except OtherWay:
            found.turned += 1
            raise
        found.answered += results is not None
        return results

    monkeypatch.setattr(replay.Replay, "run", counted)
    return found


def bits(seen):
    """Something to compare bit for bit."""
    if isinstance(seen, T.Tensor):
        array = seen.detach().clone().numpy()
        return str(array.dtype), array.shape, array.tobytes()
    if isinstance(seen, (list, tuple)):
        return [bits(one) for one in seen]
    return seen


def outcome(f, *args):
    """What a call returned, or its error."""
    try:
        return bits(f(*args))
    except Exception as error:
        return type(error).__name__, str(error)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ----- what is decided by -----

TRUTHS = {
    "a sum": (lambda x: x.sum() > 0, lambda k: numbers(5, seed=k)),
    "an argument": (lambda x: x, lambda k: np.array(k % 4 == 3)),
    "an element of a view": (lambda x: x[::2][1], lambda k: numbers(5, seed=k) > 0),
    "a whole number": (lambda x: x[1], lambda k: np.array([5, k // 3 % 2])),
    "a small whole number": (lambda x: x[1:].max(), lambda k: np.array([5, k // 3 % 2], np.int8)),
    "minus zero": (lambda x: x.min(), lambda k: np.array([-0.0 if k % 3 else -2.0], np.float32)),
    "not a number": (lambda x: x.mean(), lambda k: np.array([np.nan if k % 3 else 0.0])),
    "float64": (lambda x: x.sum(), lambda k: np.array([1e-300 if k % 3 else 0.0])),
    "equal": (lambda x: T.equal(x, x.round()), lambda k: np.array([0.5 if k % 3 else 1.0])),
    "allclose": (lambda x: T.allclose(x, x.round()), lambda k: np.array([0.5 if k % 3 else 1.0])),
    "item": (lambda x: (x > 0).any().item(), lambda k: numbers(2, seed=k)),
    "a product": (lambda x: (x @ x)[0, 1] > 0, lambda k: numbers(3, 3, seed=k)),
}


@pytest.mark.parametrize("name", TRUTHS)
def test_both_ways(name, counts):
    truth, argument = TRUTHS[name]

    def step(x):
        return x * 2 if truth(x) else x - x

    compiled = T.compile(step, fullgraph=True)
    answers = set()
    for k in range(24):
        x = T.from_numpy(np.array(argument(k // 4))).clone()
        answers.add(bool(truth(x)))
        x = x if x.dtype is not T.bool else x.to(T.int32)
        assert bits(compiled(x)) == bits(step(x)), k
    assert answers == {True, False}
    assert counts.answered >= 6
    assert not scheduling.captured_threads


def test_a_loop_until_something_holds(counts):
    def root(x):
        y, rounds = x, 0
        while ((y * y - x).abs() > 1e-5 * x).any():
            y, rounds = (y + x / y) / 2, rounds + 1
        return y, rounds

    compiled = T.compile(root, fullgraph=True)
    for k in range(30):
        x = T.tensor([2.0, 3.0 + k // 5 % 3 * 1000])
        assert bits(compiled(x)) == bits(root(x))
    assert counts.answered >= 15


def test_what_is_wrong_raises_where_it_did(counts):
    def step(x):
        if not T.isfinite(x).all():
            raise ValueError(f"expected finite numbers, got {x.tolist()}")
        return x.sum()

    compiled = T.compile(step)
    for k in range(12):
        x = T.tensor([1.0, np.nan if k in (5, 6, 9) else k])
        assert outcome(compiled, x) == outcome(step, x)
    assert counts.answered >= 5


def test_checks_of_distributions_are_captured(counts):
    def step(logits, taken):
        return T.distributions.Categorical(logits=logits).log_prob(taken).sum()

    compiled = T.compile(step, fullgraph=True)
    logits = T.from_numpy(numbers(6, 4))
    for k in range(8):
        taken = T.full((6,), 7.0 if k == 5 else k % 4)
        assert outcome(compiled, logits, taken) == outcome(step, logits, taken)
    assert counts.answered >= 4


def test_the_numbers_of_arrays_at_the_time_of_the_call(counts):
    """Memory that NumPy writes between calls."""
    flag = np.zeros(1, np.float32)
    shown = T.from_numpy(flag)

    def step(x):
        return x * 2 if shown else x * 3

    compiled = T.compile(step)
    for k in range(12):
        flag[0] = k // 4 % 2
        assert bits(compiled(T.ones(2))) == bits(step(T.ones(2)))


def test_what_is_written_where_arrays_look_is_written_once(counts):
    """What a decision reads is computed beside what is recorded, which writes there later."""
    seen = []
    for wrap in (lambda f: f, T.compile):
        p, given = T.zeros(3), np.zeros(3, np.float32)
        shown, borrowed = p.numpy(), T.from_numpy(given)

        def step(x, p=p, borrowed=borrowed):
            p.add_(x)
            y = p * 2 if p.sum() > 2 else p - 1
            if x.sum() > 5:
                borrowed.add_(1)
                y = y + 1 if (borrowed > 3).any() else y
            p.mul_(0.5)
            return y

        step = wrap(step)
        seen.append(
            [
                (step(T.full((3,), float(k % 8 // 4))).tolist(), [*shown], [*given])
                for k in range(24)
            ]
        )
    assert seen[0] == seen[1]
    assert counts.answered


def test_an_error_within_what_is_decided_by(counts):
    def step(x, index):
        return x * 2 if x[index].sum() > 0 else x

    compiled = T.compile(step)
    for k in range(8):
        index = T.tensor([0, 9 if k in (1, 5) else 1])
        x = T.from_numpy(numbers(3, seed=k))
        assert outcome(compiled, x, index)[:1] == outcome(step, x, index)[:1]


# ----- how many captures -----


def test_where_decisions_change_often_calls_run_as_usual(counts):
    calls = []

    def step(x):
        if x.sum() > 0:
            return x * 2
        return x * 3

    compiled = T.compile(step)
    for k in range(200):
        x = T.from_numpy(numbers(3, seed=k))
        assert bits(compiled(x)) == bits(step(x))
        calls.append(counts.turned)
    assert calls[-1] == calls[60] <= 20  # none begins in vain any more


def test_a_rare_decision_leaves_the_usual_capture(counts):
    def step(x):
        return x * 2 if x.sum() > 0 else x * 3

    compiled = T.compile(step)
    for k in range(200):
        x = T.full((3,), -1.0 if k % 20 == 19 else 1.0)
        assert bits(compiled(x)) == bits(step(x))
    assert counts.answered >= 190


def test_a_call_that_decides_otherwise_says_why(caplog):
    T._logging.set_logs(graph_breaks=True, recompiles=True)
    try:
        step = T.compile(lambda x: x * 2 if x.sum() > 0 else x)
        for value in (1.0, 1.0, 1.0, -1.0):
            step(T.full((2,), value))
    finally:
        T._logging.set_logs()
    assert "what it decides by the value of a tensor has changed" in caplog.text


def test_threads_decide_by_themselves(counts):
    def step(x):
        return x * 2 if x.sum() > 0 else x * 3

    compiled = T.compile(step)
    wrong = []

    def work(sign):
        for k in range(60):
            x = T.full((3,), float(sign * (k % 7 + 1)))
            if bits(compiled(x)) != bits(step(x)):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(sign,)) for sign in (1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ----- what a call changes -----


class Machine:
    """A random step of training that decides by what it has computed so far, and what can be seen of it."""

    def __init__(self, seed):
        chance = random.Random(seed)
        self.lines = [chance.randrange(9) for _ in range(chance.randrange(3, 9))]
        self.limits = [chance.uniform(-1, 1) for _ in self.lines]
        self.kind = chance.choice(["SGD", "Adam", "momentum"])
        self.decided = [chance.random() < 0.5 for _ in self.lines]
        T.manual_seed(seed)
        self.weight = T.from_numpy(numbers(4, 4, seed=seed)).clone().requires_grad_()
        self.buffer = T.zeros(4)
        self.optimizer = {
            "SGD": lambda p: T.optim.SGD(p, lr=0.1),
            "Adam": lambda p: T.optim.Adam(p, lr=0.1),
            "momentum": lambda p: T.optim.SGD(p, lr=0.1, momentum=0.9),
        }[self.kind]([self.weight])

    def step(self, x):
        y = x @ self.weight
        for line, limit, decides in zip(self.lines, self.limits, self.decided, strict=True):
            if decides and y.mean() > limit:
                y = y - limit
                continue
            if line == 0:
                y = y.tanh()
            elif line == 1:
                y = F.dropout(y, 0.5)
            elif line == 2:
                with T.no_grad():
                    self.buffer.add_(y.sum(0))
            elif line == 3:
                self.optimizer.zero_grad()
            elif line == 4:
                (y * y).mean().backward(retain_graph=True)
            elif line == 5:
                if self.weight.grad is not None:
                    self.optimizer.step()
                    y = x @ self.weight
            elif line == 6:
                y = y + self.buffer
            elif line == 7:
                y = y + T.randn(4)
            elif y.abs().max() > 3 + limit:
                raise ArithmeticError("too large")
        return y.detach()

    def seen(self):
        """All that the step can change."""
        grad = self.weight.grad
        state = [v for s in self.optimizer.state.values() for v in s.values()]
        return bits(
            [self.weight, self.buffer, None if grad is None else grad, *state, T.get_rng_state()]
        )


@pytest.mark.in_turn(8)
@pytest.mark.parametrize("seed", range(60))
def test_random_steps_change_what_they_did(seed):
    observed = []
    for wrap in (lambda f: f, T.compile):
        machine = Machine(seed)
        step, seen = wrap(machine.step), []
        T.manual_seed(3)
        for k in range(14):
            x = T.from_numpy(numbers(3, 4, seed=100 + k // 2))
            seen.append((outcome(step, x), machine.seen()))
        observed.append(seen)
    plain, compiled = observed
    for k, (one, other) in enumerate(zip(plain, compiled, strict=True)):
        assert one == other, (seed, k)


def test_random_steps_are_captured(counts):
    """Or the test above says nothing."""
    for seed in range(12):
        machine = Machine(seed)
        step = T.compile(machine.step)
        for k in range(14):
            outcome(step, T.from_numpy(numbers(3, 4, seed=100 + k // 2)))
    assert counts.answered >= 30
    assert counts.turned >= 10


def test_a_gradient_that_another_way_reads_is_there(counts):
    """One way replaces the gradient without reading it, the other adds to it."""
    weight = T.ones(2000, 300).requires_grad_()

    def step(x):
        if x.sum() > 0:
            weight.grad = None
        (weight * x).sum().backward()
        return weight.grad[0, 0].detach().clone()

    compiled = T.compile(step)
    seen = [bits(compiled(T.full((300,), v))) for v in (1.0, 1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0)]
    weight.grad = None
    assert seen == [
        bits(step(T.full((300,), v))) for v in (1.0, 1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0)
    ]


def test_gradients_are_sent_back_through_results(counts):
    def step(w, x):
        y = w * x
        return (y * y).sum() if y.sum() > 0 else y.abs().sum()

    compiled = T.compile(step)
    for k in range(16):
        found = []
        for f in (compiled, step):
            w = T.from_numpy(numbers(4, seed=1)).clone().requires_grad_()
            f(w, T.from_numpy(numbers(4, seed=k))).backward()
            found.append(bits(w.grad))
        assert found[0] == found[1]
    assert counts.answered >= 4


@pytest.mark.parametrize("sends_back", [True, False])
def test_a_forward_that_decides_does_not_wait(sends_back, counts):
    """One plan for it and its backward would begin where the decision is made no more."""

    def step(w, x):
        y = w * x
        return (y * y).sum() if y.sum() > 0 else y.abs().sum()

    compiled = T.compile(step, fullgraph=True)
    for k in range(9):
        found = []
        for f in (compiled, step):
            w = T.ones(4).requires_grad_()
            loss = f(w, T.full((4,), -2.0 if k % 5 == 4 else 2.0))
            if sends_back:
                loss.backward()
            found.append(bits([loss, w.grad] if sends_back else loss))
        assert found[0] == found[1], k
    assert counts.answered >= 4
    assert counts.turned
