"""Second derivatives of functions that are straight in pieces are 0 by what they were computed from."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import adjit

torch = pytest.importorskip("torch")

CALLS = {
    "relu": lambda lib, x: x.relu(),
    "relu in place": lambda lib, x: (x * 1).relu_(),
    "leaky_relu": lambda lib, x: lib.nn.functional.leaky_relu(x, 0.1),
    "relu6": lambda lib, x: lib.nn.functional.relu6(x * 4),
    "hardtanh": lambda lib, x: lib.nn.functional.hardtanh(x),
    "threshold": lambda lib, x: lib.nn.functional.threshold(x, 0.1, 0.0),
    "hardshrink": lambda lib, x: lib.nn.functional.hardshrink(x),
    "softshrink": lambda lib, x: lib.nn.functional.softshrink(x),
    "abs": lambda lib, x: x.abs(),
    "prelu": lambda lib, x: lib.nn.functional.prelu(x, lib.tensor([0.3], dtype=lib.float64)),
    "l1_loss": lambda lib, x: lib.nn.functional.l1_loss(x, x.detach() + 1),
    "max_pool1d": lambda lib, x: lib.nn.functional.max_pool1d(x.reshape(1, 1, 12), 2),
    "max_pool2d": lambda lib, x: lib.nn.functional.max_pool2d(x.reshape(1, 1, 3, 4), 2),
    "max_pool3d": lambda lib, x: lib.nn.functional.max_pool3d(x.reshape(1, 1, 2, 2, 3), 2),
    "avg_pool1d": lambda lib, x: lib.nn.functional.avg_pool1d(x.reshape(1, 1, 12), 2),
    "avg_pool2d": lambda lib, x: lib.nn.functional.avg_pool2d(x.reshape(1, 1, 3, 4), 2, 1, 1),
    "avg_pool3d": lambda lib, x: lib.nn.functional.avg_pool3d(x.reshape(1, 1, 2, 2, 3), 2),
    "adaptive_avg_pool1d": lambda lib, x: lib.nn.functional.adaptive_avg_pool1d(
        x.reshape(1, 1, 12), 5
    ),
    "adaptive_avg_pool2d": lambda lib, x: lib.nn.functional.adaptive_avg_pool2d(
        x.reshape(1, 1, 3, 4), 2
    ),
    "adaptive_avg_pool3d": lambda lib, x: lib.nn.functional.adaptive_avg_pool3d(
        x.reshape(1, 1, 2, 2, 3), 2
    ),
    "reflect": lambda lib, x: lib.nn.functional.pad(x.reshape(1, 3, 4), (1, 2), mode="reflect"),
    "replicate": lambda lib, x: lib.nn.functional.pad(
        x.reshape(1, 1, 3, 4), (1, 2, 0, 1), mode="replicate"
    ),
    "area": lambda lib, x: lib.nn.functional.interpolate(x.reshape(1, 1, 3, 4), 2, mode="area"),
    "nll_loss": lambda lib, x: lib.nn.functional.nll_loss(
        x.reshape(4, 3), lib.tensor([0, 2, 1, 0])
    ),
    "nll_loss of planes": lambda lib, x: lib.nn.functional.nll_loss(
        x.reshape(1, 3, 2, 2), lib.zeros(1, 2, 2, dtype=lib.int64), reduction="sum"
    ),
}
# Whose derivative is in no graph of PyTorch's either.
FREE = {
    "clamp": lambda lib, x: x.clamp(-1, 1),
    "maximum": lambda lib, x: lib.maximum(x, lib.zeros_like(x)),
    "sum": lambda lib, x: x.sum(),
    "circular": lambda lib, x: lib.nn.functional.pad(x.reshape(1, 3, 4), (1, 2), mode="circular"),
    "bilinear": lambda lib, x: lib.nn.functional.interpolate(
        x.reshape(1, 1, 3, 4), 2, mode="bilinear"
    ),
    "embedding": lambda lib, x: lib.nn.functional.embedding(lib.tensor([0, 1]), x.reshape(4, 3)),
    "fold": lambda lib, x: lib.nn.functional.unfold(x.reshape(1, 1, 3, 4), 2),
}


def leaf(lib):
    return lib.linspace(-2, 2, 12, dtype=lib.float64).requires_grad_()


def derivative(lib, function, x):
    (g,) = lib.autograd.grad(function(lib, x).sum(), x, create_graph=True)
    return g


def raised(function):
    with pytest.raises(RuntimeError) as error:
        function()
    return str(error.value)


@pytest.mark.parametrize("name", CALLS)
def test_second_derivatives_are_zero(name):
    for lib in (torch, adjit):
        x = leaf(lib)
        g = derivative(lib, CALLS[name], x)
        assert g.requires_grad
        for unused in (False, True):
            (found,) = lib.autograd.grad(g.sum(), x, retain_graph=True, allow_unused=unused)
            ones = lib.ones(12, dtype=lib.float64)  # PyTorch's zeros may have no memory
            assert (found + ones).tolist() == [1.0] * 12


@pytest.mark.parametrize("name", CALLS)
def test_zeros_for_batches_of_gradients(name):
    """Which `jacobian(vectorize=True)` asks for."""
    for lib in (torch, adjit):
        x = leaf(lib)
        g = derivative(lib, CALLS[name], x)
        (found,) = lib.autograd.grad(
            g, x, lib.eye(12, dtype=lib.float64), is_grads_batched=True, allow_unused=True
        )
        ones = lib.ones(12, 12, dtype=lib.float64)
        assert found.shape == (12, 12)
        assert (found + ones).tolist() == [[1.0] * 12] * 12


NAMED = ["relu", "leaky_relu", "hardtanh", "threshold", "hardshrink", "softshrink", "abs", "prelu"]


@pytest.mark.parametrize("name", NAMED)
def test_what_the_derivative_is_called(name):
    theirs, ours = (
        type(derivative(lib, CALLS[name], leaf(lib)).grad_fn).__name__ for lib in (torch, adjit)
    )
    assert ours == theirs


@pytest.mark.parametrize("name", FREE)
def test_derivatives_that_are_in_no_graph(name):
    def ask(lib):
        x = leaf(lib)
        return lib.autograd.grad(derivative(lib, FREE[name], x).sum(), x)

    assert raised(lambda: ask(adjit)) == raised(lambda: ask(torch))


def network(lib):
    given = np.random.default_rng(0).standard_normal((3, 4, 4))
    weights = [lib.tensor(w).requires_grad_() for w in given[:2]]
    return weights, lib.tensor(given[2]).requires_grad_()


def slope(lib, weights, x):
    """The derivative of a network of straight pieces by what it is given."""
    h = lib.nn.functional.leaky_relu(x @ weights[0], 0.2)
    h = (h.abs() @ weights[1]).relu()
    (g,) = lib.autograd.grad((h**2).sum(), x, create_graph=True)
    return g


def test_second_derivatives_of_a_network():
    """Zeros are where nothing else is, and add nothing where something is."""
    found = []
    for lib in (torch, adjit):
        weights, x = network(lib)
        g = slope(lib, weights, x)
        (first,) = lib.autograd.grad(g.sum(), x, retain_graph=True)
        found.append([t.tolist() for t in (first, *lib.autograd.grad((g**2).sum(), weights))])
    np.testing.assert_allclose(np.array(found[1]), np.array(found[0]), rtol=1e-12, atol=1e-12)


def test_what_is_not_in_the_graph_stays_unused():
    x, other = leaf(adjit), leaf(adjit)
    g = derivative(adjit, CALLS["relu"], x)
    assert adjit.autograd.grad(g.sum(), other, retain_graph=True, allow_unused=True) == (None,)
    text = raised(lambda: adjit.autograd.grad(g.sum(), other, retain_graph=True))
    assert "appears to not have been used in the graph" in text


def test_no_gradient_runs_along_a_straight_edge():
    """Nothing is computed for what has the gradient 0."""
    x = leaf(adjit)
    y = x.exp()
    seen = []
    y.register_hook(seen.append)
    (g,) = adjit.autograd.grad(y.relu().sum(), y, create_graph=True)
    seen.clear()
    g.sum().backward()
    assert seen == []
    assert x.grad.tolist() == [0.0] * 12


@pytest.mark.filterwarnings("ignore:Using backward")  # to create a graph
@pytest.mark.parametrize("wanted", [None, [0], [1, 3], [0, 1, 2, 3, 4]])
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("create", [False, True])
def test_leaves_of_a_penalty_have_the_gradients_of_pytorch(wanted, before, create):
    """Biases before a `relu` change a gradient nowhere: zeros, which optimisers treat otherwise than None."""
    found = []
    for lib in (torch, adjit):
        (v, w), x = network(lib)
        b, c, other = (lib.zeros(4, dtype=lib.float64, requires_grad=True) for _ in range(3))
        leaves = [v, w, b, c, x, other]
        hooked = []
        if before:
            b.grad = lib.ones_like(b)
        else:
            for t in (v, b):  # once each
                t.register_hook(
                    lambda g, hooked=hooked: hooked.append(g.sum().round(decimals=9).item())
                )
            c.register_post_accumulate_grad_hook(
                lambda t, hooked=hooked: hooked.append(t.grad.sum().item())
            )
        h = ((x @ v + b).relu() @ w + c).relu().sum()
        (g,) = lib.autograd.grad(h, x, create_graph=True)
        penalty = (g.square().sum() - 1).square()
        inputs = None if wanted is None else [leaves[k] for k in wanted]
        penalty.backward(inputs=inputs, create_graph=create)
        found.append([None if t.grad is None else t.grad.detach().numpy() for t in leaves])
        found.append(sorted(hooked))
    assert found[1] == found[3]
    for theirs, ours in zip(found[0], found[2], strict=True):
        assert (theirs is None) == (ours is None)
        if theirs is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


STEPS = {
    "penalty": lambda net, x: slope_of(net, x)[1].square().sum(),
    "penalty and values": lambda net, x: slope_of(net, x)[0].square().sum() + slope_of(net, x)[1].sum(),
    "two results": lambda net, x: [r.square().sum() for r in slope_of(net, x)],
    "graph that is freed within": lambda net, x: freed_slope_of(net, x).square().sum(),
}  # fmt: skip
PIECES = {
    "relu": lambda x: x.relu(),
    "leaky_relu": lambda x: adjit.nn.functional.leaky_relu(x, 0.1),
    "abs": lambda x: x.abs(),
    "max_pool1d": lambda x: adjit.nn.functional.max_pool1d(x[:, None], 3, 1, 1)[:, 0],
    "gelu": lambda x: adjit.nn.functional.gelu(x),
}


def slope_of(net, x):
    x = x.detach().requires_grad_()
    y = net(x)
    return y, adjit.autograd.grad(y.sum(), x, create_graph=True)[0]


def freed_slope_of(net, x):
    """What zeros would run along is freed before anything is sent back."""
    y, g = slope_of(net, x)
    y.sum().backward()
    return g


# All but a derivative that needs what was freed.
PAIRS = [p for p in product(PIECES, STEPS) if p != ("gelu", "graph that is freed within")]


@pytest.mark.parametrize(("piece", "step"), PAIRS)
def test_captured_slopes_send_back_what_they_do_uncaptured(piece, step):
    """Zeros and None where these are, for leaves and for `grad`, and derivatives of those."""

    def run(wrap):
        adjit.manual_seed(0)
        first, second = adjit.nn.Linear(4, 6), adjit.nn.Linear(6, 2)
        leaves = [*first.parameters(), *second.parameters()]
        call = wrap(lambda x: STEPS[step](lambda x: second(PIECES[piece](first(x))), x))
        found = []
        for k in range(8):
            for leaf in leaves:
                leaf.grad = None
            results = call(adjit.randn(3, 4))
            out = results[k % 2] if isinstance(results, list) else results
            slopes = adjit.autograd.grad(
                out, leaves, allow_unused=True, create_graph=True, retain_graph=True
            )
            again = sum(g.square().sum() for g in slopes if g is not None)
            more = adjit.autograd.grad(again, leaves, allow_unused=True, retain_graph=True)
            out.backward()
            found.append(
                [
                    None if g is None else g.tolist()
                    for g in (*slopes, *more, *(p.grad for p in leaves))
                ]
            )
        return found

    assert run(lambda f: adjit.compile(f, fullgraph=True)) == run(lambda f: f)
