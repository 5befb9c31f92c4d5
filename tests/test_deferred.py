"""Values that only graphs hold stay recorded: nobody can tell, but for the time and the memory."""

from __future__ import annotations

import gc
import random

import numpy as np
import pytest
from library import putting_off

import adjit as T
from adjit import config
from adjit.graph import elementwise, elementwise_record
from adjit.schedule import deferred, plan_cache
from adjit.schedule import settle as scheduling
from adjit.schedule.jit import native


@pytest.fixture(autouse=True)
def everything():
    """Whatever the size."""
    with putting_off():
        yield


@pytest.fixture
def planned(monkeypatch):
    """What is recorded is planned and compiled at once."""
    monkeypatch.setattr(config, "JIT", "sync")
    monkeypatch.setattr(config, "HOT", 1)
    monkeypatch.setattr(config, "MIN_FUSED", 1)
    plan_cache.clear()
    yield
    plan_cache.clear()


def leaf(n=24):
    return T.linspace(0.5, 2.0, n).requires_grad_()


def left_out():
    """The names of the ops that wait for somebody to read their results."""
    return [node.recipe.name for node in deferred.nodes]


def test_what_only_backward_wants_waits_for_it(planned):
    x = leaf()
    y = x.exp().sin().sum()
    found = y.item()
    assert left_out() == ["exp"]
    y.backward()
    assert left_out() == []
    a = np.linspace(0.5, 2.0, 24)
    np.testing.assert_allclose(found, np.sin(np.exp(a)).sum(), rtol=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), np.cos(np.exp(a)) * np.exp(a), rtol=1e-4)


def test_what_somebody_can_look_at_is_computed(planned):
    x = leaf()
    y = x.exp()
    z = y.sin().exp()
    z.tolist()
    assert left_out() == []
    assert y._storage.value.recipe is z._storage.value.recipe is None


def test_what_is_asked_for_later_is_computed_then(planned):
    x = leaf()
    z = x.exp().sin()
    z.tolist()
    assert left_out() == ["exp"]
    kept = z.grad_fn._saved_self
    np.testing.assert_allclose(kept.tolist(), np.exp(x.tolist()), rtol=1e-6)
    assert left_out() == []


def test_it_is_forgotten_with_the_graph(planned):
    x = leaf()
    z = x.exp().sin()
    z.tolist()
    assert left_out() == ["exp"]
    del z
    gc.collect()
    (T.ones(3) + 1).tolist()
    assert left_out() == []


def test_graphs_that_are_kept_are_not_looked_through_again(planned):
    x, graphs = leaf(), []
    for k in range(5):
        graphs.append(x.exp().sin())
        graphs[-1].tolist()
        assert left_out() == ["exp"] * (k + 1)
        assert len(deferred.large_savers) == 2
    for z in graphs:
        z.sum().backward()
    assert left_out() == []


def test_later_ops_read_it(planned):
    x = leaf()
    z = x.exp().sin()
    z.tolist()
    y = z.grad_fn._saved_self  # whoever gets hold of it by the graph
    assert left_out() == ["exp"]
    assert (y * 2).tolist() == (x.detach().exp() * 2).tolist()


def test_a_walk_that_keeps_the_graph_can_come_again(planned):
    x = leaf()
    y = (x.exp().sin() * x).sum()
    y.item()
    found = []
    for keep in (True, True, False):
        x.grad = None
        y.backward(retain_graph=keep)
        assert bool(left_out()) is keep
        found.append(x.grad.tolist())
    assert found[0] == found[1] == found[2]
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_writes_are_noticed(planned):
    x = leaf()
    y = x.exp()
    z = y.sin().sum()
    z.item()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()
    x = leaf()
    y = (x * 1.5).sin().sum()
    y.item()
    with T.no_grad():
        x.mul_(2)  # what waits goes on reading the old value
    y.backward()
    np.testing.assert_allclose(x.grad.numpy(), 1.5 * np.cos(np.linspace(0.5, 2, 24) * 1.5), 1e-5)


def test_memory_that_others_look_at_is_read_at_once(planned):
    a = np.linspace(0.5, 2.0, 24)
    x, w = T.from_numpy(a), leaf().double()
    y = ((x + w.detach()).exp() * w).sin().sum()
    y.item()
    a += 1
    (found,) = T.autograd.grad(y, w)
    before = np.linspace(0.5, 2.0, 24)
    e = np.exp(before + w.tolist())
    np.testing.assert_allclose(found.tolist(), e * np.cos(e * w.tolist()), rtol=1e-6)


def test_what_reads_memory_of_others_never_waits(planned, monkeypatch):
    """Recording such an op settles; what if that came late?"""
    monkeypatch.setattr(elementwise_record, "after", lambda *_: None)
    a, w = np.linspace(0.5, 2.0, 24).astype(np.float32), leaf()
    ours = T.tensor(a)
    shown = ours.numpy()
    for x in (T.from_numpy(a), ours):
        y = (x * w).sin().sum()
        y.item()
        assert left_out() == []
    assert len(shown) == 24


def test_what_reads_nothing_that_stays_is_computed(planned):
    """Neither is other memory kept for it, nor a sum computed again."""
    w = leaf()
    x = w.detach() * 2
    scheduling.settle()
    y = (x + w).exp().sin()
    del x
    y.tolist()
    assert left_out() == []
    (w.sum() + w).exp().sin().tolist()
    assert left_out() == []


def test_tensors_with_a_counter_of_their_own_are_nobody_elses(planned):
    x, w = leaf(), leaf()
    z = (x.exp().data * w).sin()
    z.tolist()
    assert left_out() == ["exp", "mul"]


def test_memory_that_others_will_look_at_is_not_what_waits_reads(planned):
    w = leaf()
    x = T.linspace(0.5, 2.0, 24)
    y = (x.exp() * w).sin().sum()
    y.item()
    assert left_out()
    before = int(x._storage.value.address)
    x.numpy()[:] = 0.0
    assert left_out() == []
    assert int(x._storage.value.address) == before  # no copy
    (found,) = T.autograd.grad(y, w)
    e = np.exp(np.linspace(0.5, 2.0, 24))
    np.testing.assert_allclose(found.tolist(), e * np.cos(e * w.tolist()), rtol=1e-4, atol=1e-5)


def test_captured_functions_read_it(planned):
    x = leaf()
    double = T.compile(lambda t: t * 2)
    for _ in range(3):
        double(x.detach())
    z = x.exp().sin()
    z.tolist()
    assert left_out() == ["exp"]
    assert double(z.grad_fn._saved_self.detach()).tolist() == (x.detach().exp() * 2).tolist()


def test_a_plan_is_shown_of_it(planned):
    x = leaf()
    z = x.exp().sin()
    z.tolist()
    assert left_out() == ["exp"]
    assert "exp" in (z.grad_fn._saved_self * 2).kernels()


def test_an_error_in_the_same_batch_loses_nothing(planned):
    x = leaf()
    z = x.exp().sin()
    fn = (x.exp() * 2).sin().grad_fn  # what it has saved need not run
    bad = T.arange(3)[T.tensor([5])]
    with pytest.raises(IndexError):
        z.tolist()
    assert fn._saved_self.tolist() == (x.detach().exp() * 2).tolist()
    assert z.tolist() == x.detach().exp().sin().tolist()
    z.sum().backward()
    with pytest.raises(IndexError):
        bad.tolist()


def test_many_recorded_nodes_leave_nothing_out():
    x = leaf()
    y = x
    for _ in range(scheduling.MAX_PENDING + 8):
        y = y.sin()
    y.tolist()
    assert len(deferred.nodes) < scheduling.MAX_PENDING
    y.sum().backward()
    assert x.grad is not None


UNARY = ["exp", "sin", "tanh", "sigmoid", "neg", "square"]
BINARY = ["add", "mul", "sub", "maximum"]


def program(seed):
    """A program from a seed: its results and gradients, read at various times."""
    draw = random.Random(seed)
    shapes = [(8, 12), (12,), (8, 1)]
    leaves = [T.linspace(-1, 1, int(np.prod(s))).view(s).requires_grad_() for s in shapes]
    values, found = [*leaves], []
    for _ in range(draw.randint(6, 24)):
        kind = draw.random()
        a, b = draw.choice(values[-5:]), draw.choice(values)
        if kind < 0.35:
            values.append(getattr(T, draw.choice(UNARY))(a).tanh())
        elif kind < 0.7:
            values.append(getattr(T, draw.choice(BINARY))(a, b).sin())
        elif kind < 0.75:
            values.append(a.sum(-1, keepdim=True) * 0.1)
        elif kind < 0.8:
            values.append((a * 1.0).softmax(-1))
        elif kind < 0.88:
            found.append(a.tolist())
        elif kind < 0.93 and len(values) > 6:
            del values[draw.randrange(3, len(values))]
        elif a.requires_grad:
            grads = T.autograd.grad(
                (a * a).sum(), leaves, retain_graph=True, allow_unused=True,
                create_graph=draw.random() < 0.5,
            )  # fmt: skip
            values += [g for g in grads if g is not None and draw.random() < 0.5]
    found += [value.tolist() for value in values[draw.randrange(len(values)) :]]
    total = sum((value * value).mean() for value in values)
    found.append(total.item())
    total.backward()
    return found, [t.grad.tolist() for t in leaves]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("seed", range(60))
def test_values_are_those_of_computing_everything(seed, monkeypatch):
    found = program(seed)
    with monkeypatch.context() as patch:
        patch.setattr(deferred, "cut_down", lambda *_: None)
        assert found == program(seed)


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("seed", range(6))
def test_plans_give_the_same_bits(seed, monkeypatch, request):
    with monkeypatch.context() as patch:
        patch.setattr(deferred, "cut_down", lambda *_: None)
        expected = program(seed)
    request.getfixturevalue("planned")
    assert program(seed) == expected


def test_a_plan_leaves_out_what_graphs_hold(planned):
    x = leaf(5000)
    for _ in range(4):
        x.grad = None
        y = (x.exp().sin() * x.exp()).tanh().sum()
        y.item()
        assert len(deferred.nodes) >= 3
        y.backward()
        del y
    e = np.exp(x.detach().double().numpy())
    expected = (np.cos(e) * e * e + np.sin(e) * e) / np.cosh(np.sin(e) * e) ** 2
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not native.is_supported, reason="another interpreter")
@pytest.mark.parametrize(
    "call", [lambda x: x.exp(), lambda x: x * x, lambda x: x * 2.0, lambda x: x + 1.0,
             lambda x: x.clamp(0, 1), lambda x: T.lerp(x, x, 0.5), lambda x: x.detach() * 2],
)  # fmt: skip
def test_machine_code_notes_what_its_twins_note(call, monkeypatch):
    for family in native.families:
        family.load(compiling=True)
    x = leaf()

    def noted():
        scheduling.settle()
        deferred.large_savers.clear()
        y = call(x)
        return [reference() is y.grad_fn for reference in deferred.large_savers]

    noted()
    found = noted()
    with monkeypatch.context() as patch:
        patch.setattr(elementwise, "elementwise_recorder", lambda: elementwise_record.elementwise)
        T.clamp.chosen.clear()
        T.lerp.chosen.clear()
        assert noted() == found
