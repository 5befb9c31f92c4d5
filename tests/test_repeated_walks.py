"""Jacobians whose backward walk comes again: recorded from a trace, the same bits as read on tracers."""

from __future__ import annotations

import numpy as np
import pytest

import adjit
from adjit.autograd import engine, repeated_walks
from adjit.func import hessian, jacrev, vmap
from adjit.nn import functional as F

RNG = np.random.default_rng(5)


def draw(*shape):
    return adjit.tensor(RNG.standard_normal(shape))


W, V = draw(4, 5), draw(5, 3)


def dropped(x):
    adjit.manual_seed(3)
    return F.dropout(x, 0.5, training=True)


def coin():
    return bool(RNG.integers(0, 2))


def places():
    start = int(RNG.integers(0, 5))
    return slice(start, start + 4)


def other_edges(x):
    a, b = x * draw(3, 4), x * draw(3, 4)
    return a.exp() + b if coin() else b.exp() + a


def part_written(x):
    y = x.sin()
    y[1] = x[0] * 2
    return y * x


# Each a function of a matrix; what it reads besides is another thing at each call, where it can be.
FUNCTIONS = {
    "layers": lambda x: (x @ W).tanh() @ V,
    "a saved result": lambda x: x.exp() * x.sigmoid(),
    "one value saved twice": lambda x: (y := x * 2) * y + y.sin() * x,
    "views of one value": lambda x: x[0] * x[1] + x[2] * x[0],
    "a number of each call": lambda x: x.sin() * float(RNG.uniform(1, 2)) + 0.5,
    "a power of each call": lambda x: x.abs() ** float(RNG.integers(2, 5)),
    "data of each call": lambda x: x * draw(3, 4),
    "an offset of each call": lambda x: x.t() * draw(9, 3)[int(RNG.integers(0, 5)) :][:4],
    "two places of one value": lambda x: x * (d := draw(9, 3))[places()].t() * d[places()].t(),
    "one value or two": lambda x: x * (d := draw(3, 4)) * (d if coin() else draw(3, 4)),
    "other edges": other_edges,
    "the gradient itself": lambda x: x + 1,
    "moved": lambda x: x.t().reshape(2, 6).unsqueeze(1).permute(2, 0, 1),
    "sums": lambda x: x.sum(0) * x.mean() + x.amax(),
    "losses": lambda x: F.cross_entropy(x, adjit.tensor(RNG.integers(0, 4, 3)), reduction="none"),
    "norms": lambda x: F.layer_norm(x, (4,)).softmax(1).cumsum(0),
    "selected": lambda x: x[adjit.tensor(RNG.integers(0, 3, 5))],
    "float32 inside": lambda x: (x.float() * 2).double() * x,
    "a piece that leads nowhere": lambda x: x * 2 + x.detach().exp(),
    "joined": lambda x: adjit.cat([x, x * x]).split(4)[0],
    "chosen": lambda x: adjit.where(x > 0, x * x, x.sin()),
    "written": lambda x: (x * 1).mul_(3) + x.sin(),
    "a part that is written": part_written,
}


def read_on_tracers(monkeypatch):
    monkeypatch.setattr(
        engine, "repeated", lambda walk, starts, targets: walk.gradients(starts, targets)
    )


def calls(transformed, monkeypatch, is_repeated, count=12):
    """What several calls give, with new inputs and the same random numbers in both ways."""
    global RNG
    RNG = np.random.default_rng(11)
    with monkeypatch.context() as patch:
        if not is_repeated:
            read_on_tracers(patch)
        return [np.asarray(transformed(draw(3, 4))).copy() for _ in range(count)]


TRANSFORMS = {
    "jacrev": jacrev,
    "hessian": lambda f: hessian(lambda x: f(x).sum()),
    "jacrev of examples": lambda f: lambda x: vmap(jacrev(f))(x.expand(2, 3, 4) + 0.5),
    "is_grads_batched": lambda f: lambda x: gradients_of_rows(f, x),
}


def gradients_of_rows(function, x):
    x = x.requires_grad_()
    y = function(x)
    vectors = draw(6, *y.shape) if coin() else draw(*y.shape, 6).movedim(-1, 0)
    return adjit.autograd.grad(y, x, vectors, is_grads_batched=True)[0]


CASES = [(t, FUNCTIONS[name]) for t in TRANSFORMS for name in FUNCTIONS] + [("jacrev", dropped)]
NAMES = [f"{t}-{name}" for t in TRANSFORMS for name in FUNCTIONS] + ["jacrev-random numbers"]


@pytest.mark.parametrize(("transform", "function"), CASES, ids=NAMES)
def test_the_same_bits(transform, function, monkeypatch):
    transformed = TRANSFORMS[transform](function)
    expected = calls(transformed, monkeypatch, False)
    for found, wanted in zip(calls(transformed, monkeypatch, True), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def no_vjp(*_):
    raise AssertionError("a vjp was read")


def test_what_comes_again_reads_no_vjp(monkeypatch):
    jacobian = jacrev(lambda x: (x @ W).tanh().reshape(-1) * x.sum())
    for _ in range(3):
        jacobian(draw(3, 4))
    monkeypatch.setattr(type(adjit.tanh), "apply_vjp", no_vjp)
    assert jacobian(draw(3, 4)).shape == (15, 3, 4)
    with pytest.raises(AssertionError, match="was read"):
        jacobian(draw(2, 4))


def test_several_inputs_and_outputs_some_of_which_are_not_connected():
    transformed = jacrev(lambda x, y, z: (x * y.sum(), y + 1, x.detach()), (0, 1, 2))
    for _ in range(4):
        x, y = draw(2), draw(3)
        (xx, xy, xz), (yx, yy, _), none = transformed(x, y, draw(1))
        np.testing.assert_array_equal(xx.numpy(), np.eye(2) * y.sum().item())
        np.testing.assert_array_equal(xy.numpy(), np.outer(x.numpy(), np.ones(3)))
        np.testing.assert_array_equal(yy.numpy(), np.eye(3))
        assert not any(t.any() for t in (xz, yx, *none))
        assert xz.shape == (2, 1)


def rows(x, y, **named):
    return adjit.autograd.grad(y, x, adjit.eye(3, dtype=y.dtype), is_grads_batched=True, **named)[0]


def graph():
    return graph_at(draw(3))


@pytest.mark.parametrize("warm", [False, True])
def test_errors_and_hooks_as_in_a_first_walk(warm):
    for _ in range(4 * warm):
        rows(*graph())
        rows(*graph(), retain_graph=True)
    x, y = graph()
    rows(x, y, retain_graph=True)
    rows(x, y)
    with pytest.raises(RuntimeError, match="a second time"):
        rows(x, y)
    x, y = graph()
    with adjit.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as told:
        rows(x, y)
    assert told.value.__context__ is None
    x, y = graph()
    seen = []
    y.grad_fn.next_functions[0][0].register_hook(lambda *_: seen.append(1))
    x.register_hook(lambda g: g * 2)
    np.testing.assert_array_equal(rows(x, y, retain_graph=True).numpy(), 2 * rows(*graph_at(x)))
    assert seen == [1]


def graph_at(x):
    x = x.detach().requires_grad_()
    return x, (y := x.sin()) * y * x


def test_walks_are_not_kept_without_end(monkeypatch):
    monkeypatch.setattr(repeated_walks, "MAX_WALKS", 3)
    for k in range(8):
        jacrev(lambda x, k=k: x * (k + 0.5))(draw(2))
        assert len(repeated_walks._walks) <= 3
