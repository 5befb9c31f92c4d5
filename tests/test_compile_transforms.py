"""Compiled transforms of functions: captured as a whole, and bit for bit what they are uncompiled."""

from __future__ import annotations

import numpy as np
import pytest

import adjit as T
from adjit.nn import functional as F
from adjit.utils import _pytree

func, nn = T.func, T.nn


def numbers(*shape, seed=0):
    return T.tensor(np.random.default_rng([seed, *shape]).uniform(-1, 1, shape).astype(np.float32))


WEIGHTS = [numbers(16, 8), numbers(16), numbers(4, 16), numbers(4)]
PARAMETERS = dict(zip(("w", "b", "v", "c"), WEIGHTS, strict=True))
SETTINGS = {"scale": 2.0}


def classes(x):
    return F.linear(T.tanh(F.linear(x, *WEIGHTS[:2])), *WEIGHTS[2:]) * SETTINGS["scale"]


def size(x):
    return classes(x).square().sum()


def size_and_more(x):
    out = classes(x)
    return out.square().sum(), {"out": out, "count": 3}


def loss(parameters, x, y):
    hidden = T.tanh(F.linear(x, parameters["w"], parameters["b"]))
    return F.cross_entropy(F.linear(hidden, parameters["v"], parameters["c"]), y)


def network(*layers, seed=0):
    T.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), *layers, nn.Linear(16, 4))


STILL = network(nn.GELU(), nn.LayerNorm(16))
DROPPING = network(nn.ReLU(), nn.Dropout(0.5))
NORMED = network(nn.BatchNorm1d(16), nn.ReLU())
MODELS = [nn.Linear(8, 3) for _ in range(5)]
STACKED = func.stack_module_state(MODELS)


def slopes_of(model):
    def size_of(parameters, x):
        return func.functional_call(model, parameters, (x,)).square().sum()

    return lambda x: func.grad(size_of)(dict(model.named_parameters()), x)


def of_all_models(x):
    def call(parameters, buffers, x):
        return func.functional_call(MODELS[0], (parameters, buffers), (x,))

    return func.vmap(call, in_dims=(0, 0, None))(*STACKED, x)


def inputs(*shapes):
    return lambda seed: [numbers(*shape, seed=seed + 10 * k) for k, shape in enumerate(shapes)]


def examples(seed):
    return PARAMETERS, numbers(5, 8, seed=seed), T.tensor([0, 3, 1, 2, 1])


CALLS = {
    "grad": (func.grad(size), inputs([8])),
    "grad of two": (func.grad(lambda a, b: (classes(a) * classes(b)).sum(), argnums=(0, 1)), inputs([8], [8])),
    "grad_and_value": (func.grad_and_value(size_and_more, has_aux=True), inputs([8])),
    "grad of a dict": (func.grad(loss), examples),
    "grad of grad": (func.grad(lambda x: func.grad(size)(x).sin().sum()), inputs([8])),
    "vjp": (lambda x, g: func.vjp(classes, x)[1](g), inputs([8], [4])),
    "jvp": (lambda x, v: func.jvp(classes, (x,), (v,)), inputs([8], [8])),
    "linearize": (lambda x, v: func.linearize(classes, x)[1](v), inputs([8], [8])),
    "hvp": (lambda x, v: func.jvp(func.grad(size), (x,), (v,)), inputs([8], [8])),
    "jacrev": (func.jacrev(classes), inputs([8])),
    "jacrev by chunks": (func.jacrev(classes, chunk_size=2), inputs([8])),
    "jacfwd": (func.jacfwd(classes), inputs([8])),
    "hessian": (func.hessian(size), inputs([8])),
    "jacrev of jacrev": (func.jacrev(func.jacrev(classes)), inputs([8])),
    "vmap": (func.vmap(classes), inputs([5, 8])),
    "vmap of other axes": (func.vmap(classes, in_dims=1, out_dims=1), inputs([8, 5])),
    "vmap by chunks": (func.vmap(classes, chunk_size=2), inputs([5, 8])),
    "vmap of vmap": (
        func.vmap(func.vmap(T.dot, in_dims=(0, None)), in_dims=(None, 0)), inputs([5, 8], [3, 8]),
    ),
    "vmap of hessian": (func.vmap(func.hessian(size)), inputs([3, 8])),
    "vmap of writes": (func.vmap(lambda x: x.clone().mul_(2).clamp_(min=0)), inputs([5, 8])),
    "vmap of draws": (func.vmap(lambda x: x + T.rand(8), randomness="different"), inputs([5, 8])),
    "vmap of one draw": (func.vmap(lambda x: x + T.rand(8), randomness="same"), inputs([5, 8])),
    "vmap of dropout": (func.vmap(lambda x: F.dropout(x, 0.5), randomness="different"), inputs([5, 8])),
    "grad of vmap": (func.grad(lambda x: func.vmap(classes)(x).sum()), inputs([5, 8])),
    "gradients of examples": (func.vmap(func.grad(loss), in_dims=(None, 0, 0)), examples),
    "functional_call": (
        lambda x: func.functional_call(STILL, {k: 2 * v for k, v in STILL.named_parameters()}, (x,)),
        inputs([5, 8]),
    ),
    "grad of a module": (slopes_of(STILL), inputs([5, 8])),
    "grad of a module that drops": (slopes_of(DROPPING), inputs([5, 8])),
    "ensemble": (of_all_models, inputs([4, 8])),
    "jacobian": (lambda x: T.autograd.functional.jacobian(classes, x, vectorize=True), inputs([8])),
}  # fmt: skip


def bits(value):
    """The numbers of a tree of tensors, and its shape."""
    leaves, spec = _pytree.tree_flatten(value)
    return spec, [
        (leaf.dtype, leaf.shape, leaf.detach().numpy().tobytes()) if T.is_tensor(leaf) else leaf
        for leaf in leaves
    ]


@pytest.fixture(autouse=True)
def as_they_were():
    before = [w.clone() for w in WEIGHTS]
    yield
    SETTINGS["scale"] = 2.0
    for w, old in zip(WEIGHTS, before, strict=True):
        w.copy_(old)


@pytest.mark.parametrize("name", CALLS)
def test_a_transform_is_captured_and_gives_the_same(name):
    """`fullgraph` raises if it is not; weights, settings and the generator move on in between."""
    function, make = CALLS[name]
    compiled = T.compile(function, fullgraph=True)
    for call in range(9):
        if call == 4:
            WEIGHTS[0].mul_(1.5)
        if call == 6:
            SETTINGS["scale"] = 3.0
        found = []
        for one in (function, compiled):
            T.manual_seed(call)
            found.append((bits(one(*make(call))), T.get_rng_state().tolist()))
        assert found[0] == found[1]


def test_running_statistics_move_on():
    states = []
    for wrap in (lambda f: f, lambda f: T.compile(f, fullgraph=True)):
        model = network(nn.BatchNorm1d(16), nn.ReLU())
        step = wrap(slopes_of(model))
        found = [bits(step(numbers(5, 8, seed=k))) for k in range(6)]
        states.append((found, bits(model.state_dict())))
    assert states[0] == states[1]


def test_other_shapes_and_other_trees():
    compiled = T.compile(func.grad(lambda tree: sum(t.square().sum() for t in tree.values())))
    for k in range(12):
        tree = {name: numbers(2 + k % 3, seed=k) for name in ("a", "b", "c")[: 1 + k % 2]}
        found = compiled(tree)
        assert found.keys() == tree.keys()
        assert all(found[n].tolist() == (2 * t).tolist() for n, t in tree.items())


def test_a_compiled_function_within_transforms():
    inner = T.compile(classes)
    for k in range(6):
        x = numbers(5, 8, seed=k)
        assert bits(func.vmap(inner)(x)) == bits(func.vmap(classes)(x))
        assert bits(func.jacrev(inner)(x[0])) == bits(func.jacrev(classes)(x[0]))
        assert bits(func.jacfwd(inner)(x[0])) == bits(func.jacfwd(classes)(x[0]))


def test_gradients_go_on_through_a_captured_gradient():
    """Of what was there before the transform, which it knows nothing of."""
    found = []
    for wrap in (lambda f: f, lambda f: T.compile(f, fullgraph=True)):
        slope, seen = wrap(func.grad(size)), []
        for k in range(6):
            x = numbers(8, seed=k).requires_grad_()
            (second,) = T.autograd.grad(slope(x).sum(), x, create_graph=True)
            (third,) = T.autograd.grad(second.sin().sum(), x)
            seen.append(bits([second, third]))
        found.append(seen)
    assert found[0] == found[1]


def test_errors_are_those_of_the_function():
    def texts(function):
        found = []
        for shape in ((5, 8), (5, 8), (5, 8), (5, 7), ()):
            try:
                function(numbers(*shape))
            except (RuntimeError, ValueError) as error:
                found.append(f"{type(error).__name__}: {error}")
        return found

    plain = texts(func.vmap(classes))
    assert len(plain) == 2
    assert texts(T.compile(func.vmap(classes))) == plain


class Pair:
    def __init__(self, first, second):
        self.first, self.second = first, second


class Alone:
    def __init__(self, value):
        self.value = value


@pytest.fixture
def registered():
    """Containers that users registered are forgotten after the test."""
    before = dict(_pytree._KINDS)
    yield
    for kinds in (_pytree._KINDS, _pytree._registered):
        for cls in kinds.keys() - before.keys():
            del kinds[cls]


def test_containers_of_users_are_looked_into(registered):
    factor = {"of": 1.0}

    def flatten(pair):
        return (pair.first * factor["of"], pair.second), None

    _pytree.register_pytree_node(Pair, flatten, lambda values, _: Pair(*values))

    def slope(x, y):
        found = func.grad(lambda pair: (pair.first.square() * pair.second).sum())(Pair(x, y))
        return found.first - found.second

    compiled, x, y = T.compile(slope, fullgraph=True), numbers(3), numbers(3, seed=1)
    for factor["of"] in (1.0, 1.0, 1.0, 2.0, 2.0, 1.0):
        assert bits(compiled(x, y)) == bits(slope(x, y))


def test_containers_that_are_registered_later(registered):
    def total(alone):
        return sum(
            2 * v.value if isinstance(v, Alone) else 3 * v for v in _pytree.tree_leaves([alone])
        )

    compiled, alone = T.compile(total, fullgraph=True), Alone(numbers(3))
    for _ in range(4):
        assert bits(compiled(alone)) == bits(2 * alone.value)
    _pytree.register_pytree_node(
        Alone, lambda a: ((a.value,), None), lambda values, _: Alone(*values)
    )
    for _ in range(4):
        assert bits(compiled(alone)) == bits(3 * alone.value)
