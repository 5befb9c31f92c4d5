"""The simulator: what device kernels may do, and the mistakes that it finds."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import adjit
from adjit.cuda import simulator
from adjit.cuda.simulator import Pointer, SimulationError, run
from adjit.schedule.planning.recipe import DeviceSource
from adjit.schedule.settle import settle

HEAD = """
from numpy import float32, int32
from adjit.kernels.language.abi import quotient
from adjit.kernels.language.device import *
from adjit.kernels.language.device import barrier, shuffle, shared
T = float32
"""


def kernel(
    body: str, signature: tuple[str, ...] = ("*float32", "*float32", "int32"), threads: int = 64
):
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    text = f"{HEAD}\ndef kernel(x, out, n):\n{lines}\n"
    return DeviceSource("kernel", text, signature, threads, threads, "kernel")


def both(source, x, out, n, blocks=None):
    """The results of both orders of threads."""
    found = []
    for reverse in (False, True):
        made = out.copy()
        run(source, (x.copy(), made, n), blocks=blocks, reverse=reverse)
        found.append(made)
    return found


def test_a_sum_through_shuffles_and_shared_memory():
    source = kernel("""
parts = shared(T, 2)
total = x[thread()]
for by in (16, 8, 4, 2, 1):
    total = total + shuffle_down(total, by)
if lane() == 0:
    parts[thread() // 32] = total
barrier()
if thread() == 0:
    out[0] = parts[0] + parts[1]
""")
    x = np.arange(64, dtype=np.float32)
    for made in both(source, x, np.zeros(1, np.float32), 1):
        assert made[0] == x.sum()


def test_a_missing_barrier_shows_in_one_of_the_orders():
    source = kernel("""
near = shared(T, 64)
near[thread()] = x[thread()]
out[thread()] = near[(thread() + 1) % 64]
barrier()
""")
    x = np.arange(64, dtype=np.float32)
    assert any(np.isnan(made).any() for made in both(source, x, np.zeros(64, np.float32), 64))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("if thread() < 32:\n    barrier()", "32 of 64 threads wait at barrier"),
        ("if thread() < 40:\n    shuffle(x[0], 0)", "wait at shuffle"),
        ("if thread() < 32:\n    barrier()\nelse:\n    sync_warp()", "32 of 64 threads wait at barrier"),
        ("out[thread() + 1] = x[0]", "element 64 of an array of 64 was written"),
        ("out[0] = x[thread() - 1]", "element -1 of an array of 64 was read"),
        ("load_wide(x, 2, 4)", "4 elements at once from element 2 on"),
        ("load_wide(x, 0, 8)", "do not fit into one access"),
        ("quotient(thread() - 1, 2)", "-1 in a division"),
    ],
)  # fmt: skip
def test_mistakes(body, message):
    x, out = np.zeros(64, np.float32), np.zeros(64, np.float32)
    with pytest.raises(SimulationError, match=message):
        run(kernel(body), (x, out, 64))


def test_shuffles_votes_and_atomics():
    source = kernel("""
v = x[first_unit()]
out[0 + lane()] = shuffle(v, 3)
out[32 + lane()] = shuffle_up(v, 2)
out[64 + lane()] = shuffle_down(v, 30)
out[96 + lane()] = shuffle_xor(v, 1)
out[128 + lane()] = float32(ballot(v > 29.5))
atomic_add(out, 160, v)
""", threads=32)  # fmt: skip
    x = np.arange(32, dtype=np.float32)
    lanes = np.arange(32)
    for made in both(source, x, np.zeros(161, np.float32), 32):
        np.testing.assert_array_equal(made[:32], 3)
        np.testing.assert_array_equal(made[32:64], np.where(lanes < 2, lanes, lanes - 2))
        np.testing.assert_array_equal(made[64:96], np.where(lanes < 2, lanes + 30, lanes))
        np.testing.assert_array_equal(made[96:128], lanes ^ 1)
        np.testing.assert_array_equal(made[128:160], np.float32(-(1 << 30)))
        assert made[160] == x.sum()


def test_helpers_may_wait_too():
    text = (
        HEAD
        + """
def turned(near, value):
    near[thread()] = value
    barrier()
    return near[63 - thread()]

def kernel(x, out, n):
    near = shared(T, 64)
    out[thread()] = turned(near, x[thread()])
"""
    )
    source = DeviceSource("kernel", text, ("*float32", "*float32", "int32"), 64, 64, "kernel")
    x = np.arange(64, dtype=np.float32)
    for made in both(source, x, np.zeros(64, np.float32), 64):
        np.testing.assert_array_equal(made, x[::-1])


def test_arguments_are_checked():
    source = kernel("out[0] = x[0]")
    x = np.zeros(1, np.float32)
    with pytest.raises(TypeError, match="takes 3 words, got 2"):
        run(source, (x, x))
    with pytest.raises(TypeError, match="expected an array of float32, got float64"):
        run(source, (x, np.zeros(1), 1))
    with pytest.raises(TypeError, match="does not fit into int32"):
        run(source, (x, x, 1 << 31))
    with pytest.raises(ValueError, match="one dimension"):
        Pointer(np.zeros((2, 2)))


# ----- recorded operations -----


def test_values_and_gradients_are_those_of_the_cpu():
    x = adjit.linspace(-2, 2, 30, requires_grad=True)
    unused = adjit.ones(1, requires_grad=True)
    y = (x.reshape(5, 6).t() * 2).tanh().softmax(0)
    for options in ({}, {"blocks": 1, "reverse": True}):
        found = simulator.value(y, **options)
        gradient, none = simulator.grad(y, [x, unused], **options)
        assert none is None
        assert not found.requires_grad
    assert "tanh" in y.kernels()  # still to be computed
    y.sum().backward()
    np.testing.assert_array_equal(found.numpy(), y.detach().numpy())
    np.testing.assert_array_equal(gradient.numpy(), x.grad.numpy())


def test_values_of_other_dtypes_views_and_several_results():
    x = adjit.arange(12).reshape(3, 4)
    signs = x[:, 1:] > 4
    assert simulator.value(signs).dtype is adjit.bool
    assert simulator.value(signs).tolist() == [[False] * 3, [True] * 3, [True] * 3]
    values, places = (-x).sort(1)
    assert simulator.value(places[1:]).tolist() == [[3, 2, 1, 0]] * 2
    assert simulator.value(values).tolist() == values.tolist()
    assert simulator.grad(adjit.ones(3, requires_grad=True) * 2, []) == ()


def test_what_cannot_be_simulated():
    x = adjit.ones(3)
    x.tolist()
    with pytest.raises(ValueError, match="simulate a tensor before you look at it"):
        simulator.value(x)
    bad = x.index_select(0, adjit.tensor([0, 7]))
    with pytest.raises(IndexError):
        simulator.value(bad)
    with pytest.raises(IndexError):
        bad.tolist()


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    "kind", ["int8", "uint8", "int16", "int32", "int64", "bool", "float32", "float64"]
)
def test_what_is_told_apart_by_its_bits_in_memory(kind):
    x = (adjit.arange(90) * 37 % 101 - 50).reshape(3, 30).to(getattr(adjit, kind))
    for call in (
        lambda: x.topk(7, 1)[0], lambda: x.topk(7, 1, largest=False)[1], lambda: x.sort(1)[0],
        lambda: x.sort(1, descending=True, stable=True)[1], lambda: x.kthvalue(3, 1)[0],
    ):  # fmt: skip
        try:
            wanted = call()
        except RuntimeError:  # kthvalue of truth values
            assert kind == "bool"
            continue
        np.testing.assert_array_equal(simulator.value(wanted).numpy(), wanted.numpy())


F = adjit.nn.functional


def whole(*numbers):
    return adjit.tensor(numbers)


def embedded(x, *places, **how):
    return F.embedding(whole(*places), x, **how).square()


# Programs with an index that is none: a GPU does not stop there, gradients come before anybody looks.
WITHOUT_A_PLACE = {
    "index_select": lambda x: x.index_select(0, whole(0, 9)),
    "a far index_select": lambda x: x.index_select(0, whole(1 << 40, 0)),
    "index_add": lambda x: x.index_add(0, whole(1, 6), x[:2]),
    "index_add from the end": lambda x: x.index_add(0, whole(1, -1), x[:2]),
    "index_add of narrow rows": lambda x: x[:, 0].index_add(0, whole(1, 6), x[:2, 1]),
    "index_add of columns": lambda x: x.index_add(1, whole(1, 20), x[:, :2]),
    "index_copy": lambda x: x.index_copy(0, whole(0, 6), x[:2]),
    "index_copy of columns": lambda x: x.index_copy(1, whole(0, 20), x[:, :2]),
    "index_fill": lambda x: x.index_fill(0, whole(0, -7), 2.0),
    "elements written": lambda x: adjit.index_put(x[0] * 1, (whole(1, 20),), whole(1, 2) * 0.5),
    "rows written": lambda x: adjit.index_put(x * 1, (whole(1, 6),), x[:2]),
    "places written": lambda x: adjit.index_put(x * 1, (whole(1, 2), whole(0, 20)), x[0, :2]),
    "wide rows added up": lambda x: adjit.index_put(x * 1, (whole(*[6] * 40),), x[0], True),
    "rows added up by chains": lambda x: x.repeat(1, 4).index_add(
        0, whole(0, 1, 0, 6, 1, 0), x.repeat(1, 4)
    ),
    "put": lambda x: x.put(whole(1, 999), x[0, :2]),
    "take": lambda x: x.take(whole(1, 999)),
    "gather": lambda x: x.gather(1, adjit.full((6, 2), 20)),
    "gather by lines": lambda x: x.gather(0, adjit.full((2, 20), -1)),
    "scatter": lambda x: x.scatter(1, adjit.full((6, 2), 20), x[:, :2]),
    "scatter_add": lambda x: x.scatter_add(0, adjit.full((2, 20), 6), x[:2]),
    "scatter_reduce": lambda x: x.scatter_reduce(1, adjit.full((6, 2), 20), x[:, :2], "amax"),
    "embedding": lambda x: embedded(x, 0, 6),
    "embedding, each row once": lambda x: embedded(x, *[3] * 400, 6),
    "embedding_bag": lambda x: F.embedding_bag(whole(0, 6, 1), x, whole(0, 2)),
    "the largest of a bag": lambda x: F.embedding_bag(whole(0, 6, 1), x, whole(0, 2), mode="max"),
    "cross_entropy": lambda x: F.cross_entropy(x, whole(0, 1, 4, 2, 3, 20)),
    "cross_entropy of short rows": lambda x: F.cross_entropy(x.reshape(24, 5), whole(*[0] * 23, -9)),
    "cross_entropy, below": lambda x: F.cross_entropy(x, whole(-9, 1, 4, 2, 3, 4)),
    "nll_loss": lambda x: F.nll_loss(x, whole(-3, 1, 4, 2, 3, 4)),
    "nll_loss of places": lambda x: F.nll_loss(x.reshape(2, 3, 20), adjit.full((2, 20), 3)),
    "ctc_loss": lambda x: F.ctc_loss(
        x.reshape(6, 1, 20).log_softmax(2), whole(2, 30)[None], whole(6), whole(2)
    ),
    "max_unpool1d": lambda x: F.max_unpool1d(x[None, :, :2], adjit.full((1, 6, 2), 9), 2),
}  # fmt: skip


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("name", WITHOUT_A_PLACE)
def test_without_a_place_nothing_else_is_touched_forward_or_back(name):
    """A write or a read outside of an array would be a SimulationError."""
    x = adjit.linspace(-1, 1, 120).reshape(6, 20).requires_grad_()
    for blocks, reverse in ((2, False), (None, True)):
        how = {"blocks": blocks, "reverse": reverse}
        y = WITHOUT_A_PLACE[name](x)
        with pytest.raises(
            (IndexError, RuntimeError), match=r"out of|outside|invalid max|found idx"
        ) as found:
            simulator.value(y, **how)
        assert not isinstance(found.value, SimulationError)
        square = y.square()  # whose gradient goes through the value
        try:
            simulator.grad(square, x, **how)
        except (IndexError, RuntimeError) as error:
            assert not isinstance(error, SimulationError), error  # noqa: PT017
        with contextlib.suppress(IndexError, RuntimeError):
            settle()  # or another test would be told
