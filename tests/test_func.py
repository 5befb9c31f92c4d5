"""Transforms of functions: gradients by levels, nested in any order, beside PyTorch's `torch.func`."""

from __future__ import annotations

import itertools
import re
import warnings

import numpy as np
import pytest

import adjit

torch = pytest.importorskip("torch")

RANDOM = np.random.default_rng(7)
X, W, B = (RANDOM.standard_normal(shape) for shape in ((3, 4), (4, 5), (5,)))


def same(ours, theirs, rtol=1e-9):
    if isinstance(theirs, torch.Tensor):
        assert tuple(ours.shape) == tuple(theirs.shape)
        assert ours.requires_grad == theirs.requires_grad
        np.testing.assert_allclose(
            ours.numpy(force=True), theirs.numpy(force=True), rtol=rtol, atol=1e-11
        )
        return
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        ours, theirs = ours.values(), theirs.values()
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        same(a, b, rtol)


def both(program, *arrays):
    """What a program gives in both libraries, the same."""
    ours, theirs = (program(library, *map(library.tensor, arrays)) for library in (adjit, torch))
    same(ours, theirs)


def test_gradients_of_several_vectors_at_once():
    x = adjit.randn(3, 4, dtype=adjit.float64, requires_grad=True)
    y = (x * x).sin() / (x.exp() + 2)
    vectors = adjit.randn(5, 3, 4, dtype=adjit.float64)
    (found,) = adjit.autograd.grad(y, x, vectors, retain_graph=True, is_grads_batched=True)
    for v, g in zip(vectors, found, strict=True):
        (wanted,) = adjit.autograd.grad(y, x, v, retain_graph=True)
        np.testing.assert_allclose(g.detach().numpy(), wanted.numpy(), rtol=1e-12)


# ----- one transform -----


def loss(L, p, x):
    h = (x @ p["w"] + p["b"]).tanh()
    return (h * h).mean() + p["b"].exp().sum()


def test_grad_in_containers():
    def program(L, x, w, b):
        f = lambda p, x: loss(L, p, x)  # noqa: E731
        p = {"w": w, "b": b}
        return (
            L.func.grad(f)(p, x), L.func.grad(f, argnums=(0, 1))(p, x), L.func.grad(f, argnums=-1)(p, x),
            L.func.grad_and_value(f)(p, x),
            L.func.grad(lambda p, x: (f(p, x), {"a": x * 2}), has_aux=True)(p, x),
            L.func.grad_and_value(lambda p, x: (f(p, x), p["b"] * 2), has_aux=True)(p, x),
        )  # fmt: skip

    both(program, X, W, B)


def test_vjp():
    def program(L, x, w, b):
        def f(x, p):
            y = x @ p["w"]
            return {"y": y, "z": (y.sin().sum(0), p["w"] * 2)}

        out, pull = L.func.vjp(f, x, {"w": w})
        first = pull({"y": out["y"], "z": (b, w)})
        again = pull({"y": out["y"] * 2, "z": (b, w * 0)})
        _, _, aux = L.func.vjp(lambda x: (x.exp(), x * 3), x, has_aux=True)
        return out, first, again, aux

    both(program, X, W, B)


def test_jacrev():
    def program(L, x, w, b):
        f = lambda x, w: (x @ w).sigmoid()  # noqa: E731
        tree = lambda p: {"a": p[0] @ p[1], "b": (p[0].sum(), p[1].exp())}  # noqa: E731
        return (
            L.func.jacrev(f)(x, w), L.func.jacrev(f, argnums=(0, 1))(x, w), L.func.jacrev(f, argnums=1)(x, w),
            L.func.jacrev(tree)((x, w)), L.func.jacrev(f, chunk_size=2)(x, w),
            L.func.jacrev(f, chunk_size=1)(x, w),
            L.func.jacrev(lambda x: (x.sin(), x * 2), has_aux=True)(b),
            L.func.jacrev(lambda x: x * 0 + 1.0)(b),
            L.func.jacrev(lambda x: L.ones(2, dtype=L.float64))(b),
        )  # fmt: skip

    both(program, X, W, B)


def test_linearize():
    x, w = adjit.tensor(X), adjit.tensor(W)
    tangents = [adjit.tensor(RANDOM.standard_normal(t.shape)) for t in (x, w)]

    def f(x, w):
        return {"a": (x @ w).sin(), "b": x.exp()}

    out, push = adjit.func.linearize(f, x, w)
    for k in (1.0, -2.0):
        found = push(*[k * t for t in tangents])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = torch.func.jvp(
            lambda x, w: {"a": (x @ w).sin(), "b": x.exp()}, (torch.tensor(X), torch.tensor(W)),
            tuple(k * torch.tensor(t.numpy()) for t in tangents),
        )  # fmt: skip
        same(out, wanted[0])
        same(found, wanted[1])
    with pytest.raises(RuntimeError, match="doesn't match the shape"):
        push(tangents[1], tangents[1])
    with pytest.raises(RuntimeError, match="same argspec"):
        push(tangents[0])


# ----- nested -----


def scalar(L):
    return lambda v: (v.sin() * v.flip(0)).sum() + (v * v).prod()


def vector(L):
    return lambda v: L.stack([v.prod(), (v * v).sum(), (v[0] * v).exp().sum()])


TRANSFORMS = {
    "grad": lambda L, f: L.func.grad(lambda v: f(v).sum()),
    "jacrev": lambda L, f: L.func.jacrev(f),
    "vjp": lambda L, f: lambda v: L.func.vjp(f, v)[1](L.ones_like(f(v)) * 2.0)[0],
    "vmap": lambda L, f: lambda v: L.func.vmap(lambda s: f(v * s))(v + 1.0),
}


@pytest.mark.parametrize("names", [*itertools.product(TRANSFORMS, repeat=2)])
def test_two_transforms(names):
    def program(L, v):
        f = vector(L)
        for name in names:
            f = TRANSFORMS[name](L, f)
        return f(v)

    both(program, np.array([0.3, -0.7]))


@pytest.mark.parametrize("names", [*itertools.product(TRANSFORMS, repeat=3)])
def test_three_transforms(names):
    def program(L, v):
        f = vector(L)
        for name in names:
            f = TRANSFORMS[name](L, f)
        return f(v)

    both(program, np.array([0.3, -0.7]))


LAYER = {
    "grad": lambda L, f: L.func.grad(
        lambda *v: sum(t.square().sum() for t in L.utils._pytree.tree_leaves(f(*v))), (0, 1, 2)
    ),
    "jacrev": lambda L, f: L.func.jacrev(f, (0, 1, 2)),
    "jacfwd": lambda L, f: L.func.jacfwd(f, (0, 1, 2)),
    "vmap of inputs": lambda L, f: L.func.vmap(f, (0, None, None)),
    "vmap of weights": lambda L, f: L.func.vmap(f, (None, 0, None)),
    "vmap of biases": lambda L, f: L.func.vmap(f, (None, None, 0)),
    "vmap of all": lambda L, f: L.func.vmap(f),
}


@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # of PyTorch's first dual tensor
@pytest.mark.parametrize(
    "names",
    [
        *[(name,) for name in LAYER],
        *itertools.product(LAYER, ("grad", "jacrev", "jacfwd")),
        *itertools.product(
            ("vmap of inputs", "vmap of all"), ("vmap of weights", "vmap of biases")
        ),
        ("vmap of inputs", "jacfwd", "jacrev"),
        ("vmap of all", "jacrev", "vmap of inputs"),
    ],
)
def test_a_linear_layer_of_a_vector(names):
    """It is one op under transforms: examples that are vectors are rows."""

    def program(L, x, w, b):
        f = lambda x, w, b: L.nn.functional.linear(x, w, b).tanh()  # noqa: E731
        given = [x, w, b]
        for name in reversed(names):
            place = {"inputs": [0], "weights": [1], "biases": [2], "all": [0, 1, 2]}
            f = LAYER[name](L, f)
            for k in place.get(name.removeprefix("vmap of "), []):
                given[k] = L.stack([given[k] * (n + 1) for n in range(3)])
        return f(*given)

    both(program, RANDOM.standard_normal(4), W.T.copy(), B)


def test_the_gradient_of_a_gradient_mixes_nothing():
    """What inner gradients hold fast is a variable of outer ones."""

    def program(L, x, y):
        f = lambda x: x * L.func.grad(lambda y: x * y * y)(y)  # noqa: E731
        return L.func.grad(f)(x), L.func.grad(L.func.grad(f))(x)

    both(program, 1.5, 0.25)


def test_per_example_gradients():
    def program(L, x, w, b):
        f = lambda p, x: loss(L, p, x)  # noqa: E731
        p = {"w": w, "b": b}
        return (
            L.func.vmap(L.func.grad(f), in_dims=(None, 0))(p, x),
            L.func.vmap(L.func.grad_and_value(f), in_dims=(None, 0))(p, x),
            L.func.vmap(L.func.jacrev(lambda p, x: (x @ p["w"] + p["b"]).sin()), in_dims=(None, 0))(p, x),
            L.func.vmap(
                L.func.vmap(L.func.grad(f), in_dims=(None, 0)), in_dims=({"w": 2, "b": None}, None)
            )({"w": L.stack([w, w * 2], 2), "b": b}, x),
        )  # fmt: skip

    both(program, X, W, B)


def test_vmap_of_a_pullback_of_vmap():
    def program(L, x, w, b):
        out, pull = L.func.vjp(L.func.vmap(lambda x: (x @ w).sin()), x)
        inner = L.func.vmap(
            lambda x: L.func.vmap(L.func.vjp(lambda x: x @ w, x)[1])(L.eye(5, dtype=L.float64))
        )
        return out, L.func.vmap(pull)(L.stack([out, out * 2, -out])), inner(x)

    both(program, X, W, B)


# ----- the graph around -----


def test_results_need_gradients_where_the_graph_around_does():
    def program(L, x, w, b):
        w = w.requires_grad_()
        f = lambda x: (x @ w).sin().sum()  # noqa: E731
        inner = L.func.grad(f)(x)
        (outer,) = L.autograd.grad(inner.square().sum(), w)
        plain = L.func.grad(lambda x: (x @ w.detach()).sin().sum())(x)
        value = L.func.grad_and_value(f)(x)[1]
        per = L.func.vmap(L.func.grad(lambda x: (x @ w).sin().sum()))(x)
        (through,) = L.autograd.grad(per.square().sum(), w)
        of_leaf = L.func.grad(lambda w: (x @ w).square().sum())(w)
        (twice,) = L.autograd.grad(of_leaf.sum(), w)
        rows = L.func.jacrev(lambda x: x @ w)(x)
        (of_rows,) = L.autograd.grad(rows.square().sum(), w)
        return inner, outer, plain, value, per, through, of_leaf, twice, rows, of_rows

    both(program, X, W, B)


def test_no_grad_inside_and_around():
    def program(L, x, w, b):
        def inside(x):
            with L.no_grad():
                c = x * x
            return (x - c).sum()

        first = L.func.grad(inside)(x)
        w = w.requires_grad_()
        with L.no_grad():
            second = L.func.grad(lambda x: (x @ w).square().sum())(x)
        return first, second, L.is_grad_enabled() * L.ones(1)

    both(program, X, W, B)


def test_leaves_of_others_keep_their_gradients():
    w = adjit.tensor(W, requires_grad=True)
    adjit.func.grad(lambda x: (x @ w).sum())(adjit.tensor(X))
    assert w.grad is None


def test_no_graph_is_left_behind():
    g, value = adjit.func.grad_and_value(lambda x: (x * x).sum())(adjit.tensor(X))
    assert g.grad_fn is None
    assert value.grad_fn is None


# ----- errors -----

BAD = [
    (lambda L, x: L.func.grad(lambda x: x)(x)),
    (lambda L, x: L.func.grad(lambda x: 3.0)(x)),
    (lambda L, x: L.func.grad(lambda x: x.sum(), has_aux=True)(x)),
    (lambda L, x: L.func.grad(lambda x: x.sum(), argnums=1)(x)),
    (lambda L, x: L.func.grad(lambda x: x.sum(), argnums=())(x)),
    (lambda L, x: L.func.grad(lambda x: x.sum(), argnums=(0, 0))(x)),
    (lambda L, x: L.func.grad(lambda x: x.sum(), argnums="a")(x)),
    (lambda L, x: L.func.grad(lambda x: x.sum())("a")),
    (lambda L, x: L.func.grad(lambda x: x.sum())(L.ones(2, dtype=L.int64))),
    (lambda L, x: L.func.grad(lambda x: x.sum().backward())(x)),
    (lambda L, x: L.func.vjp(lambda x: (), x)),
    (lambda L, x: L.func.vjp(lambda x: None, x)),
    (lambda L, x: L.func.vjp(lambda x: x, x, has_aux=True)),
    (lambda L, x: L.func.vjp(lambda x: x > 0, x)),
    (lambda L, x: L.func.vjp(lambda x: {"a": x}, x)[1](x)),
    (lambda L, x: L.func.vjp(lambda x: (x, x), x)[1]((x,))),
    (lambda L, x: L.func.vjp(lambda x: x, x)[1](x[0])),
    (lambda L, x: L.func.jacrev(lambda x: x, chunk_size=0)),
    (lambda L, x: L.func.jacrev(lambda x: x, argnums=3)(x)),
    (lambda L, x: L.func.stack_module_state([])),
    (lambda L, x: L.func.stack_module_state([L.nn.Linear(1, 1), L.nn.Linear(1, 1).eval()])),
    (lambda L, x: L.func.stack_module_state([L.nn.Linear(1, 1), L.nn.ReLU()])),
    (lambda L, x: L.func.functional_call(L.nn.Linear(1, 1), [{"a": x}, {"a": x}], x)),
    (lambda L, x: L.func.functional_call(L.nn.Linear(1, 1), 3, x)),
    (lambda L, x: L.func.functional_call(L.nn.Linear(1, 1), [3], x)),
    (lambda L, x: L.func.functional_call(L.nn.Linear(1, 1), {"weight": x}, x, strict=True)),
    (lambda L, x: L.func.functional_call(L.nn.Linear(1, 1), {"a": x}, x, strict=True)),
]  # fmt: skip


def told(call, library):
    with pytest.raises(Exception, match=r".") as caught:
        call(library, library.tensor(X))
    text = str(caught.value).replace("adjit", "torch").splitlines()[0]
    return type(caught.value), text.replace("torch.tensor.Tensor", "torch.Tensor")


@pytest.mark.parametrize("call", BAD)
def test_errors_are_pytorchs(call):
    (kind, text), (wanted, expected) = told(call, adjit), told(call, torch)
    assert kind is wanted
    assert text == expected


# ----- modules -----


def pair_of_modules(make, seed=0):
    """A module in both libraries, with the same parameters."""
    theirs = make(torch).double()
    ours = make(adjit).double()
    random = np.random.default_rng(seed)
    values = {k: random.standard_normal(t.shape) * 0.3 for k, t in theirs.named_parameters()}
    ours.load_state_dict({k: adjit.tensor(v) for k, v in values.items()}, strict=False)
    theirs.load_state_dict({k: torch.tensor(v) for k, v in values.items()}, strict=False)
    return ours, theirs


def mlp(L):
    return L.nn.Sequential(L.nn.Linear(4, 8), L.nn.Tanh(), L.nn.Linear(8, 3))


def cnn(L):
    return L.nn.Sequential(
        L.nn.Conv2d(2, 4, 3, padding=1), L.nn.ReLU(), L.nn.MaxPool2d(2), L.nn.GroupNorm(2, 4),
        L.nn.Conv2d(4, 6, 3, stride=2), L.nn.Flatten(), L.nn.Linear(6, 3), L.nn.LayerNorm(3),
    )  # fmt: skip


def detached(module):
    return {k: t.detach() for k, t in module.named_parameters()}


def on_modules(make, program, *arrays):
    modules = dict(zip((adjit, torch), pair_of_modules(make), strict=True))
    ours, theirs = (program(L, m, *map(L.tensor, arrays)) for L, m in modules.items())
    same(ours, theirs, 1e-7)


def per_example_gradients(L, module, x, t):
    def f(p, x, t):
        y = L.func.functional_call(module, p, (x.unsqueeze(0),))
        return L.nn.functional.cross_entropy(y, t.unsqueeze(0))

    return L.func.vmap(L.func.grad(f), in_dims=(None, 0, 0))(detached(module), x, t)


def test_per_example_gradients_of_a_convolutional_net():
    images = RANDOM.standard_normal((5, 2, 8, 8))
    targets = RANDOM.integers(0, 3, 5)

    on_modules(cnn, per_example_gradients, images, targets)


def test_per_example_gradients_where_batch_norms_keep_nothing():
    images, targets = RANDOM.standard_normal((3, 2, 6, 6)), RANDOM.integers(0, 3, 3)

    def normed(L):
        nn = L.nn
        net = nn.Sequential(nn.Conv2d(2, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(32, 3))
        assert L.func.replace_all_batch_norm_modules_(net) is net
        assert list(net.buffers()) == []
        return net

    on_modules(normed, per_example_gradients, images, targets)


def test_an_ensemble():
    models = [pair_of_modules(mlp, seed) for seed in range(4)]
    x = RANDOM.standard_normal((6, 4))

    def program(L, k):
        mine = [pair[k] for pair in models]
        params, buffers = L.func.stack_module_state(mine)
        call = lambda p, b, x: L.func.functional_call(mine[0], (p, b), (x,))  # noqa: E731
        t = L.tensor(x)
        shared = L.func.vmap(call, in_dims=(0, 0, None))(params, buffers, t)
        apart = L.func.vmap(call)(params, buffers, L.stack([t, t * 2, -t, t + 1]))
        grads = L.autograd.grad(shared.square().sum(), list(params.values()))
        return params, shared, apart, grads

    same(program(adjit, 0), program(torch, 1), 1e-8)


def test_an_inner_loop_of_steps():
    """MAML: gradients through gradient steps on each task."""
    x, y = RANDOM.standard_normal((3, 7, 4)), RANDOM.standard_normal((3, 7, 3))

    def program(L, module, x, y):
        def error(p, x, y):
            return L.nn.functional.mse_loss(L.func.functional_call(module, p, (x,)), y)

        def task(p, x, y):
            q = p
            for _ in range(2):
                g = L.func.grad(error)(q, x, y)
                q = {k: t - 0.1 * g[k] for k, t in q.items()}
            return error(q, x, y)

        def outer(p):
            return L.func.vmap(task, in_dims=(None, 0, 0))(p, x, y).mean()

        return L.func.grad_and_value(outer)(detached(module))

    on_modules(mlp, program, x, y)


def test_the_neural_tangent_kernel():
    x = RANDOM.standard_normal((5, 4))

    def program(L, module, x):
        f = lambda p, x: L.func.functional_call(module, p, (x.unsqueeze(0),)).squeeze(0)  # noqa: E731
        jacobians = L.func.vmap(L.func.jacrev(f), in_dims=(None, 0))(detached(module), x)
        flat = [j.flatten(2) for j in jacobians.values()]
        return sum(L.einsum("naf,mbf->nmab", j, j) for j in flat)

    on_modules(mlp, program, x)


def test_the_hessian_of_a_net():
    x = RANDOM.standard_normal((5, 4))

    def program(L, module, x):
        f = lambda p: L.func.functional_call(module, p, (x,)).square().sum()  # noqa: E731
        return L.func.jacrev(L.func.jacrev(f))(detached(module))

    on_modules(mlp, program, x)


def test_attention_of_examples():
    x = RANDOM.standard_normal((3, 2, 5, 8))

    def program(L, x):
        def f(x):
            y = L.nn.functional.scaled_dot_product_attention(x, x * 2, x.flip(-2), is_causal=True)
            return y.square().sum()

        return L.func.vmap(L.func.grad(f))(x), L.func.jacrev(f)(x[0])

    both(program, x)


def test_batch_norm_of_examples():
    x = RANDOM.standard_normal((3, 6, 4))

    def program(L, x):
        m = L.nn.BatchNorm1d(4, track_running_stats=False).double()
        f = lambda x: (m(x) * x).sin().sum()  # noqa: E731
        return L.func.vmap(m)(x), L.func.vmap(L.func.grad(f))(x.detach())

    ours, theirs = (program(L, L.tensor(x)) for L in (adjit, torch))
    same(ours, theirs)


def test_functional_calls_of_tied_and_written_tensors():
    def program(L, x):
        module = L.nn.Sequential(
            L.nn.Linear(4, 4, bias=False), L.nn.Linear(4, 4, bias=False)
        ).double()
        module[1].weight = module[0].weight
        w = L.eye(4, dtype=L.float64) * 2
        tied = L.func.functional_call(module, {"0.weight": w}, x)
        loose = L.func.functional_call(
            module, {"0.weight": w, "1.weight": w * 0}, (x,), tie_weights=False
        )
        norm = L.nn.BatchNorm1d(4).double()
        buffers = {k: t.clone() for k, t in norm.named_buffers()}
        L.func.functional_call(norm, (detached(norm), buffers), (x,))
        return tied, loose, buffers["running_mean"], norm.running_mean

    both(program, X)


def test_functional_calls_leave_the_module_as_it_was():
    module = adjit.nn.Linear(4, 2).double()
    before = dict(module.named_parameters())
    adjit.func.functional_call(module, {"other": adjit.ones(3)}, adjit.tensor(X))
    assert not hasattr(module, "other")
    with pytest.raises(RuntimeError):
        adjit.func.functional_call(module, {"weight": adjit.ones(3, 3)}, adjit.tensor(X))
    assert all(t is before[k] for k, t in module.named_parameters())


def test_jacobians_of_numbers():
    def program(L, x, w, b):
        f = lambda x: x**3  # noqa: E731
        ways = [L.func.jacrev, L.func.jacfwd, L.func.hessian]
        F, t = L.autograd.functional, x[0, 0]
        return (
            *[way(f)(t) for way in ways], L.func.jacrev(f, chunk_size=1)(t),
            F.jacobian(f, t, vectorize=True), F.hessian(f, t, vectorize=True),
            F.jacobian(f, t, vectorize=True, strategy="forward-mode"),
        )  # fmt: skip

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both(program, X, W, B)


def test_jacobians_row_by_row_may_look_at_values():
    class Square(adjit.autograd.Function):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            assert len(g.nonzero()) == 1
            return 2 * g * ctx.saved_tensors[0]

    jacobian = adjit.func.jacrev(Square.apply, chunk_size=1)(adjit.tensor([1.0, 3.0]))
    assert jacobian.tolist() == [[2.0, 0.0], [0.0, 6.0]]


# ----- autograd.functional -----


@pytest.mark.parametrize(
    ("strategy", "create"),
    [("reverse-mode", False), ("reverse-mode", True), ("forward-mode", False)],
)
def test_vectorized_jacobians(strategy, create):
    def program(L, x, w):
        f = lambda x, w: ((x @ w).sin(), x.exp().sum())  # noqa: E731
        F = L.autograd.functional
        one = F.jacobian(lambda x: x @ w, x, vectorize=True, strategy=strategy, create_graph=create)
        return F.jacobian(f, (x, w), vectorize=True, strategy=strategy, create_graph=create), one

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both(program, X, W)


@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
def test_vectorized_hessians(strategy):
    def program(L, x, w):
        f = lambda x, w: (x @ w).sin().sum() + (w * w).prod()  # noqa: E731
        F = L.autograd.functional
        given = {"vectorize": True, "outer_jacobian_strategy": strategy}
        found = F.hessian(f, (x, w), **given), F.hessian(lambda x: (x * x).sum(), x, **given)
        return [[[t.detach() for t in row] for row in found[0]], found[1].detach()]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both(program, X, W)


# ----- adjit.compile -----


def test_compiled_functions_inside_and_around():
    w = adjit.tensor(W)

    def f(w, x):
        return (x @ w).tanh().square().sum()

    per_example = adjit.func.vmap(adjit.func.grad(f), in_dims=(None, 0))
    rows = adjit.func.jacrev(lambda w, x: (x @ w).sin().sum(0))
    compiled = [adjit.compile(g) for g in (f, per_example, rows)]
    for k in range(5):
        x = adjit.tensor(X * (k + 1))
        inside = adjit.func.vmap(adjit.func.grad(compiled[0]), in_dims=(None, 0))(w, x)
        for found, wanted in (
            (inside, per_example(w, x)), (compiled[1](w, x), per_example(w, x)),
            (compiled[2](w, x), rows(w, x)), (compiled[0](w, x), f(w, x)),
            (adjit.func.jacrev(compiled[0])(w, x), adjit.func.grad(f)(w, x)),
        ):  # fmt: skip
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12)


def test_gradients_of_several_vectors_through_a_compiled_call():
    w, vectors = adjit.tensor(W), adjit.tensor(RANDOM.standard_normal((2, 3, 5)))
    f = lambda x: (x @ w).tanh() * 2  # noqa: E731
    compiled = adjit.compile(f)
    for _ in range(5):
        x = adjit.tensor(X, requires_grad=True)
        found, wanted = (
            adjit.autograd.grad(g(x), x, vectors, is_grads_batched=True)[0] for g in (compiled, f)
        )
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12)
        assert adjit.is_grad_enabled()


def test_draws_in_a_compiled_function_ask_the_level():
    compiled = adjit.compile(lambda x: adjit.nn.functional.dropout(x))
    for _ in range(5):
        compiled(adjit.ones(4))
    for f in (compiled, lambda x: x + compiled(adjit.ones(4))):
        with pytest.raises(RuntimeError, match="randomness error mode"):
            adjit.func.vmap(f)(adjit.ones(3, 4))


# ----- functions of the user's -----


def cubes(L, own_rule=False):
    """x * x * x * c with a backward by hand, whose gradients are differentiable."""

    class Cube(L.autograd.Function):
        generate_vmap_rule = not own_rule

        @staticmethod
        def forward(x, c, power):
            return x**power * c, x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, c, power = inputs
            ctx.save_for_backward(x, c)
            ctx.power, ctx.twice = power, output[1]

        @staticmethod
        def backward(ctx, g, h):
            x, c = ctx.saved_tensors
            n = ctx.power
            return g * n * x ** (n - 1) * c + 2 * h, (g * x**n).sum(), None

    if own_rule:
        Cube.vmap = staticmethod(
            lambda info, dims, x, c, n: (
                Cube.apply(x if dims[0] is None else x.movedim(dims[0], 0), c, n), (0, 0)
            )
        )  # fmt: skip
    return Cube


@pytest.mark.parametrize("own_rule", [False, True])
def test_functions_of_the_users_with_a_rule(own_rule):
    def program(L, x):
        Cube = cubes(L, own_rule)
        c = L.tensor(2.0, dtype=L.float64)
        f = lambda x: sum(t.sum() for t in Cube.apply(x, c, 3))  # noqa: E731
        found = [L.func.vmap(lambda x: Cube.apply(x, c, 3))(x), L.func.grad(f)(x)]
        found.append(L.func.vmap(L.func.grad(f))(x))
        if not own_rule:
            found.append(L.func.vmap(lambda x, c: Cube.apply(x, c, 2))(x, x[:, 0]))
            found.append(
                L.func.vmap(L.func.grad(lambda c, x: Cube.apply(x, c, 2)[0].sum()), (None, 0))(c, x)
            )
            found.append(L.func.vmap(L.func.jacrev(L.func.grad(f)))(x))
        return found

    both(program, X)


# PyTorch loads scripts of its own for its first jvp, and warns of them.
OLD_TORCH = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@OLD_TORCH
@pytest.mark.parametrize("own_rule", [True, False])
def test_functions_of_the_users_take_examples_in_lists(own_rule):
    def program(L, x):
        axes = []

        class Affine(L.autograd.Function):
            generate_vmap_rule = not own_rule

            @staticmethod
            def forward(x, factors):
                return x * factors[0] + factors[1][0]

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.factor = inputs[1][0]

            @staticmethod
            def backward(ctx, g):
                return g * ctx.factor, None

            if own_rule:

                @staticmethod
                def vmap(info, in_dims, x, factors):
                    axes.append(in_dims)
                    return Affine.apply(x, factors), 0

        f = lambda x, y: Affine.apply(x, [y, (x * 0 + 1,)])  # noqa: E731
        first = lambda x: Affine.apply(x, [x[0] * 0 + 2, (x,)])  # noqa: E731
        found = [L.func.vmap(f)(x, x), L.func.vmap(lambda y: f(x[0], y))(x), axes]
        if not own_rule:
            found += [
                L.func.vmap(first)(x),
                L.func.vmap(L.func.grad(lambda x, y: f(x, y).sum()))(x, x),
            ]
        return found

    mine, theirs = program(adjit, adjit.tensor(X)), program(torch, torch.tensor(X))
    assert mine.pop(2) == theirs.pop(2)
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy())


def test_functions_of_the_users_without_a_rule():
    def classes(L):
        class Plain(L.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, g):
                return g * 2

        class Apart(L.autograd.Function):
            @staticmethod
            def forward(x):
                return x * 2

            @staticmethod
            def setup_context(ctx, inputs, output):
                pass

            @staticmethod
            def backward(ctx, g):
                return g * 2

        class Both(Apart):
            generate_vmap_rule = True

            @staticmethod
            def vmap(info, in_dims, x):
                return x, 0

        class One(Apart):
            @staticmethod
            def vmap(info, in_dims, x):
                return x

        class Listed(Apart):
            @staticmethod
            def vmap(info, in_dims, x):
                return x, (None,)

        return Plain, Apart, Both, One, Listed

    for k in range(5):
        call = lambda L, x, k=k: L.func.vmap(classes(L)[k].apply)(x)  # noqa: E731
        (kind, text), (wanted, expected) = told(call, adjit), told(call, torch)
        expected = re.sub(r" out_dims has structure.*output has structure \*\.", "", expected)
        assert (kind, text) == (wanted, expected)
    call = lambda L, x: L.func.grad(lambda x: classes(L)[0].apply(x).sum())(x)  # noqa: E731
    assert told(call, adjit) == told(call, torch)


def cubed(x):
    return (x**3).sum()


INSIDE_OF_FORWARD = {
    "the value of a gradient": lambda f, x: f.jvp(lambda y: f.grad_and_value(cubed)(y)[1], (x,), (x,)),
    "what is beside it": lambda f, x: f.jvp(
        lambda y: f.grad_and_value(lambda z: (cubed(z), z * z), has_aux=True)(y)[1][1], (x,), (x,)
    ),
    "the output of vjp": lambda f, x: f.jvp(lambda y: f.vjp(lambda z: z**3, y)[0], (x,), (x,)),
    "what is beside jacrev": lambda f, x: f.jvp(
        lambda y: f.jacrev(lambda z: (z**3, z * z), has_aux=True)(y)[1], (x,), (x,)
    ),
    "twice": lambda f, x: f.jvp(
        lambda a: f.jvp(lambda y: f.grad_and_value(cubed)(y)[1], (a,), (x,))[1], (x,), (x,)
    ),
    "examples": lambda f, x: f.vmap(
        lambda a: f.jvp(lambda y: f.grad_and_value(cubed)(y)[1], (a,), (a,))
    )(x),
    "a tangent that is differentiated": lambda f, x: f.grad(
        lambda t: f.jvp(f.grad(cubed), (x,), (t,))[1].sum()
    )(x),
}  # fmt: skip


@OLD_TORCH
@pytest.mark.parametrize("name", INSIDE_OF_FORWARD)
def test_what_a_derivative_gives_keeps_its_tangent(name):
    data = [[1.0, 2.0], [0.5, -3.0]] if name == "examples" else [1.0, 2.0]
    mine = INSIDE_OF_FORWARD[name](adjit.func, adjit.tensor(data))
    theirs = INSIDE_OF_FORWARD[name](torch.func, torch.tensor(data))
    for a, b in zip(*[x if isinstance(x, tuple) else (x,) for x in (mine, theirs)], strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


@OLD_TORCH
def test_a_direction_from_outside_gets_its_gradient():
    found = []
    for lib in (adjit, torch):
        x, t = lib.tensor([1.0, 2.0]), lib.tensor([1.0, 1.0], requires_grad=True)
        for f in (lib.func.grad(cubed), lambda y, f=lib.func: f.grad_and_value(cubed)(y)[1]):
            lib.func.jvp(f, (x,), (t,))[1].sum().backward()
        found.append(t.grad.numpy())
    np.testing.assert_allclose(*found)


def test_a_new_tensor_has_the_examples_of_every_level():
    def written(lib):
        return lib.func.vmap(lib.func.vmap(lambda x: lib.zeros_like(x).add_(x)))(lib.ones(2, 3, 4))

    np.testing.assert_array_equal(written(adjit).numpy(), written(torch).numpy())
