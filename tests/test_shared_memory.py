"""Memory that others look at: what they see and write, beside PyTorch, on the recorders' usual ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adjit
from adjit.graph import operation
from adjit.schedule.settle import pending

torch = pytest.importorskip("torch")

SIZES = (3, 2), (2,), (2, 2), (2,)  # of two weights and biases
RULES: dict[str, Callable[[Any, Any], Any]] = {
    "SGD": lambda T, p: T.optim.SGD(p, lr=0.1),
    "momentum": lambda T, p: T.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda T, p: T.optim.Adam(p, lr=0.1),
    "Adagrad": lambda T, p: T.optim.Adagrad(p, lr=0.1),
}


def values(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape)


def parameters(T: Any) -> list[Any]:
    weights = [values(k, *size[::-1]) for k, size in enumerate(SIZES)]
    return [T.nn.Parameter(T.tensor(weight)) for weight in weights]


def loss_of(T: Any, params: list[Any], x: Any) -> Any:
    linear = T.nn.functional.linear
    hidden = T.tanh(linear(x, params[0], params[1]) * params[1])
    return (linear(hidden, params[2], params[3]) ** 2).sum()


def trained(T: Any, rule: str, shared: tuple[int, ...], writes: frozenset[str]) -> list[Any]:
    """What arrays over some parameters see in the course of a training in which they are written too."""
    params = parameters(T)
    arrays = [params[k].detach().numpy() for k in shared]
    batch = values(9, 4, 3)
    optimizer, seen = RULES[rule](T, params), []

    def write(when: str) -> None:
        if when in writes:
            for array in arrays:
                array += 0.25
            batch[0] *= 0.5

    for _ in range(14):  # what machine code does comes last
        x = T.from_numpy(batch)
        optimizer.zero_grad()
        write("before")
        loss = loss_of(T, params, x)
        write("after forward")
        loss.backward()
        write("after backward")
        optimizer.step()
        seen += [loss.item(), *[array.copy() for array in arrays]]
        seen += [p.grad.tolist() for p in params]
    return [*seen, *[p.tolist() for p in params]]


WRITES = st.frozensets(st.sampled_from(["before", "after forward", "after backward"]))


@given(st.sampled_from(list(RULES)), st.sets(st.integers(0, 3)).map(tuple), WRITES)
@settings(max_examples=25, deadline=None)
def test_training_with_arrays_over_parameters(rule, shared, writes):
    """Computed with what was there when an operation was called, as by PyTorch, and seen at once."""
    found, expected = (trained(T, rule, shared, writes) for T in (adjit, torch))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_steps_write_to_the_addresses_that_were_given(rule):
    params = parameters(adjit)
    addresses = [p.data_ptr() for p in params]
    optimizer = RULES[rule](adjit, params)
    kept = params[0].detach().clone()  # has the old value, which must not change
    before = kept.tolist()
    for _ in range(12):
        optimizer.zero_grad()
        loss_of(adjit, params, adjit.tensor(values(9, 4, 3))).backward()
        optimizer.step()
    assert [p.data_ptr() for p in params] == addresses
    assert kept.tolist() == before
    assert params[0].tolist() != before


def test_states_that_nobody_else_sees_keep_their_old_values():
    """The kernel of a step writes parameters where they lie; states in between may be held elsewhere."""
    params = parameters(adjit)
    optimizer = RULES["Adam"](adjit, params)
    arrays = [p.detach().numpy() for p in params]
    copies = []
    for _ in range(12):
        loss_of(adjit, params, adjit.tensor(values(9, 4, 3))).backward()
        optimizer.step()
        mean = optimizer.state[params[0]]["exp_avg"]
        copies.append((mean.clone(), mean.tolist()))
    for copy, then in copies:
        assert copy.tolist() == then
    assert all(a.tolist() == p.tolist() for a, p in zip(arrays, params, strict=True))


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "one": lambda x, y: x.sin(),
    "two": lambda x, y: x * y,
    "number": lambda x, y: 2.0 - x,
    "three": lambda x, y: adjit.where(y > 0, x, y),
    "operation": lambda x, y: x @ y,
    "results": lambda x, y: x.max(1)[0],
    "in place": lambda x, y: y.clone().add_(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_reads_shared_memory_runs_at_once(name, monkeypatch):
    """Recorded by machine code, which no function in Python is called for."""
    call = CALLS[name]
    array = values(1, 4, 4)
    x, y = adjit.from_numpy(array), adjit.tensor(values(2, 4, 4))
    for _ in range(12):
        call(x, y).tolist()
    expected = call(adjit.tensor(array), y).tolist()
    if name != "in place":  # which has run itself
        pending.clear()
    with monkeypatch.context() as patch:
        patch.setattr(operation.Operation, "_run", None)
        found = call(x, y)
    array[:] = 0
    assert not pending
    assert found.tolist() == expected


def test_a_bad_index_into_shared_memory_is_raised_where_it_is_used():
    array = np.array([0, 1])
    rows, x = adjit.from_numpy(array), adjit.ones(3, 2)
    for _ in range(12):
        x[rows].tolist()
        adjit.nn.functional.embedding(rows, x).tolist()
    array[1] = 3
    with pytest.raises(IndexError):
        adjit.nn.functional.embedding(rows, x)
    array[1] = 2
    assert adjit.nn.functional.embedding(rows, x).tolist() == [[1, 1], [1, 1]]


def test_backward_reads_what_is_there_when_it_runs():
    """As by PyTorch: arrays tell nobody of their writes."""
    found = []
    for T in (adjit, torch):
        array, w = values(1, 3), T.tensor(values(2, 3), requires_grad=True)
        x = T.from_numpy(array)
        for k in range(12):
            w.grad = None
            product = (w * x).sum() + (w @ x)
            array[k % 3] += 1
            product.backward()
            found.append((product.item(), w.grad.tolist()))
    np.testing.assert_allclose(
        *[np.array([*map(np.hstack, half)]) for half in (found[:12], found[12:])]
    )
