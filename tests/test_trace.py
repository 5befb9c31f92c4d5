"""Traces: an op's body runs once or twice for a signature, its nodes are recorded ever after."""

import numpy as np
import pytest

import adjit as T
from adjit import nn
from adjit.graph import trace
from adjit.graph.operation import operation
from adjit.graph.state import state
from adjit.schedule import settle as scheduling

F = nn.functional
rng = np.random.default_rng(0)


def normal(*shape):
    return T.tensor(rng.standard_normal(shape), dtype=T.float32)


CALLS = {
    "mm": lambda x: x @ x.t(),
    "linear": lambda x: F.linear(x, x[:3], x[:3, 0]),
    "sum": lambda x: x.sum(1) * x.mean(),
    "var": lambda x: x.var(0),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.t().log_softmax(0),
    "layer_norm": lambda x: F.layer_norm(x, (6,)),
    "max": lambda x: x.max(1).values,
    "sort": lambda x: x.sort(1, descending=True).values,
    "cumsum": lambda x: x.cumsum(0),
    "cat": lambda x: T.cat([x, x[1:], x], 0),
    "index": lambda x: x[T.tensor([1, 0, 1])],
    "slice": lambda x: x[1:, ::2],
    "gather": lambda x: x.gather(1, T.tensor([[0, 2], [1, 1]])),
    "triu": lambda x: x.triu(),
    "flip": lambda x: x.flip(0),
    "norm": lambda x: x.norm(),
    "cross_entropy": lambda x: F.cross_entropy(x, T.tensor([0, 1, 2, 3])),
    "cross_entropy none": lambda x: F.cross_entropy(x, T.tensor([5, 1, 2, 3]), reduction="none"),
    "cross_entropy 1d": lambda x: F.cross_entropy(x[0], T.tensor(3)),
    "cross_entropy 3d": lambda x: F.cross_entropy(x.view(2, 2, 6), T.tensor([[0] * 6, [1] * 6])),
    "mse": lambda x: F.mse_loss(x, x.detach() * 2),
    "masked": lambda x: x[x > 0],
    "write": lambda x: x.clone().index_fill(0, T.tensor([1]), 2.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_later_calls_are_like_the_first(name, monkeypatch):
    call = CALLS[name]
    inputs = [normal(4, 6) for _ in range(4)]

    def run(x):
        x = x.detach().requires_grad_()
        out = call(x)
        (g,) = T.autograd.grad((out * out).sum(), x)
        return out.detach().clone().numpy().tobytes(), g.clone().numpy().tobytes()

    with monkeypatch.context() as patch:
        patch.setattr(trace, "usable", lambda: False)
        patch.setattr("adjit.graph.operation.usable", lambda: False)
        expected = [run(x) for x in inputs]
    assert [run(x) for x in inputs] == expected
    moved = T.cat([normal(2, 6), inputs[0]])[2:]  # the same elements behind an offset
    assert run(moved) == expected[0]


def calls_of(body):
    """An op that runs `body`, and how often it did."""
    ran = []

    @operation("TestBackward0")
    def op(x, *rest, **named):
        ran.append(1)
        return body(x, *rest, **named)

    return op, ran


def test_a_body_runs_twice_for_each_signature():
    op, ran = calls_of(lambda x, n: (x * n).exp().sum())
    for k in range(5):
        assert op(T.full((3,), float(k)), 1.0).item() == pytest.approx(3 * np.exp(k), rel=1e-6)
    assert len(ran) == 2
    op(T.ones(4), 1.0)
    op(T.ones(3), 1)
    op(T.ones(3), True)
    assert len(ran) == 5


@pytest.mark.parametrize(
    "body",
    [
        lambda x: x * x.sum().item(),
        lambda x: x + T.tensor([1.0, 2.0, 3.0]),
        lambda x: x[x > 1],
    ],
)
def test_a_body_that_looks_or_brings_data_always_runs(body):
    op, ran = calls_of(body)
    found = [op(T.tensor([1.0, 2.0, k])).tolist() for k in (1.0, 5.0, 0.0, 3.0)]
    assert found == [body(T.tensor([1.0, 2.0, k])).tolist() for k in (1.0, 5.0, 0.0, 3.0)]
    assert len(ran) == 4


def test_a_body_that_draws_runs_twice_and_draws_new_numbers_each_time():
    op, ran = calls_of(lambda x: x * T.rand(3))
    T.manual_seed(0)
    found = [op(T.tensor([1.0, 2.0, k])).tolist() for k in (1.0, 5.0, 0.0, 3.0)]
    T.manual_seed(0)
    assert found == [(T.tensor([1.0, 2.0, k]) * T.rand(3)).tolist() for k in (1.0, 5.0, 0.0, 3.0)]
    assert len(ran) == 2


def test_zeros_of_either_sign_are_different_attributes():
    op, _ = calls_of(lambda x, a: x * a)
    for _ in range(3):
        assert str(op(T.ones(1), 0.0).item()) == "0.0"
        assert str(op(T.ones(1), -0.0).item()) == "-0.0"


def test_shared_memory_is_read_at_once():
    op, _ = calls_of(lambda x: x.exp())
    array = np.zeros(2, np.float32)
    x = T.from_numpy(array)
    for _ in range(4):
        y = op(x)
        array += 1
        assert y.tolist() == pytest.approx(np.exp(array - 1), rel=1e-6)
        assert op(x).tolist() == pytest.approx(np.exp(array), rel=1e-6)


def test_a_tape_that_is_settled_in_between_does_no_harm():
    def body(x):
        y = x * 2
        scheduling.settle()
        return y + 1

    op, _ = calls_of(body)
    assert [op(T.tensor(float(k))).item() for k in range(4)] == [1.0, 3.0, 5.0, 7.0]


def test_an_operand_that_comes_twice():
    op, ran = calls_of(lambda x, y: x - 2 * y)
    x, y = normal(3), normal(3)
    for a, b in ((x, x), (x, y), (x, y), (x, y), (y, y), (y, x)):
        assert op(a, b).tolist() == (a - 2 * b).tolist()
    assert len(ran) == 2


def test_operands_that_share_a_value_are_told_apart():
    op, ran = calls_of(lambda x, rest, scale=None: x - 2 * rest[0] * rest[1] * scale)
    base = normal(4)
    a, b, c = base[:3], base[1:], normal(3)
    for x, y, z in [(a, b, a)] * 4 + [(c, a, b), (b, c, c)]:
        assert op(x, [y, z], scale=y).tolist() == (x - 2 * y * z * y).tolist()
    assert len(ran) == 3  # once for the trace alone


def test_operands_that_share_a_value_draw_as_others_do():
    shared, others = normal(4), normal(4)
    kept = others.numpy()  # memory that is looked at, as that of arrays
    op, ran = calls_of(lambda x, y: x * T.rand(4) + y * T.rand(4))
    for x in (shared, others):
        T.manual_seed(0)
        found = [op(x, x).tolist() for _ in range(5)]
        T.manual_seed(0)
        assert found == [(x * T.rand(4) + x * T.rand(4)).tolist() for _ in range(5)]
    assert len(ran) > 2
    assert kept.tolist() == others.tolist()


def test_an_error_of_stand_ins_is_nobodys():
    def body(x, y):
        if not (x != 0).all():
            raise ValueError("a zero")
        return x - y

    op, ran = calls_of(body)
    x = T.ones(3)
    for _ in range(4):
        assert op(x, x).tolist() == [0.0] * 3
    assert len(ran) > 4
    with pytest.raises(ValueError, match="a zero"):
        op(T.zeros(3), x)


@pytest.mark.parametrize("body", [lambda x, y: y, lambda x, y: y[1:], lambda x, y: (x * y, y[1:])])
def test_results_that_are_operands_are_the_ones_that_were_given(body):
    op, _ = calls_of(body)
    x = normal(4)
    for _ in range(4):
        out = op(x, x)
        out = out[1] if isinstance(out, tuple) else out
        assert out.data_ptr() in (x.data_ptr(), x.data_ptr() + 4)


def test_a_vjp_whose_operands_share_a_value():
    pulled = []

    @operation("TestBackward0")
    def product(x, y):
        return x * y

    @product.vjp
    def _(g, x, y):
        pulled.append(1)
        return g * y + x * 0, g * x

    for _ in range(5):
        base = normal(4).requires_grad_()
        (g,) = T.autograd.grad(product(base[1:], base[:3]).sum(), base)
        values = base.detach()
        expected = T.zeros(4)
        expected[1:] += values[:3]
        expected[:3] += values[1:]
        assert g.tolist() == expected.tolist()
    assert len(pulled) == 3  # once for the trace alone


def test_a_vjp_that_reads_one_result_twice():
    @operation("TestBackward0", differentiable=(0,))
    def total(x):
        doubled = x * 2
        return doubled.sum(), doubled, doubled

    @total.vjp
    def _(g, outs):
        return g * outs[1] + outs[2].exp() * 0

    for k in range(5):
        x = T.tensor([1.0, 2.0, k], requires_grad=True)
        total(x)[0].backward()
        assert x.grad.tolist() == [2.0, 4.0, 2.0 * k]


def test_a_list_that_its_owner_changes_later():
    @operation("TestBackward0")
    def scaled(x, factors):
        return x * factors[0]

    @scaled.vjp
    def _(g, factors):
        return g * factors[0]

    for _ in range(4):
        factors = [2.0]
        x = T.ones(3, requires_grad=True)
        y = scaled(x, factors)
        factors[0] = 5.0
        y.sum().backward()
        assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_nodes_that_another_thread_has_run_meanwhile_are_not_repeated():
    x = T.ones(3)
    x.tolist()
    out = x + 1
    node = out._storage.value
    recipe = node.recipe
    node.recipe = None  # as settling does it, before anything else
    try:
        assert trace._traced([x], [x._storage.value], [node], out) is trace.SEEN_ONCE
    finally:
        node.recipe = recipe
    assert out.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("told", [True, False])
def test_what_writes_over_an_operand_is_traced_if_that_is_said_to_be_whole(told):
    """The next operand of this spec may be a part of a memory, and what is written would be in its place."""

    def run():
        state.whole = told
        y = x.detach()
        y[1:3] = 2.0
        return y * 1

    x, before = T.ones(6), state.whole
    out, entry = trace.trace([x], run)
    assert out.tolist() == [1, 2, 2, 1, 1, 1]
    assert isinstance(entry, trace.Trace) == told
    assert told or entry is trace.UNCACHEABLE
    assert state.whole == before
