"""The engine: backward and grad, accumulation, hooks, modes, anomaly mode, custom functions."""

from __future__ import annotations

import copy
import gc
import importlib
import threading
import warnings
import weakref

import numpy as np
import pytest
from library import (
    FREED,
    NO_GRAD_FN,
    NON_LEAF_GRAD,
    T,
    adjit_only,
    array,
    leaf,
    plain,
    quiet,
    raises,
    raises_modified,
    same,
    warns,
)

grad = T.autograd.grad
UNUSED = (
    "The differentiated Tensor at index {} appears to not have been used in the graph. Set "
    "allow_unused=True if this is the desired behavior."
)


def custom(function):
    """A custom Function class with `forward` and `backward` taken from a plain class body."""
    return type(
        function.__name__,
        (T.autograd.Function,),
        {name: staticmethod(f) for name, f in vars(function).items() if callable(f)},
    ).apply


# ---------------------------------------------------------------- grad()


def test_grad_returns_a_tuple_and_leaves_the_leaves_alone():
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    result = grad((x * y).sum(), (x, y))
    assert isinstance(result, tuple)
    same(result[0], [3.0, 4.0])
    same(result[1], [1.0, 2.0])
    assert x.grad is None
    assert y.grad is None
    assert not result[0].requires_grad


def test_grad_of_intermediates():
    x = leaf([1.0, 2.0])
    y = x * 3
    z = y * y
    gz, gy, gx = grad(z.sum(), [z, y, x])
    same(gz, [1.0, 1.0])
    same(gy, [6.0, 12.0])
    same(gx, [18.0, 36.0])
    with quiet():
        assert y.grad is None


def test_grad_through_an_intermediate_stops_there():
    x = leaf([1.0, 2.0])
    y = x * 3
    seen = []
    x.register_hook(seen.append)
    same(grad((y * y).sum(), y)[0], [6.0, 12.0])
    assert seen == []


def test_grad_of_an_output_with_respect_to_itself():
    y = leaf([1.0, 2.0]) * 3
    same(grad(y, y, T.tensor([5.0, 7.0]))[0], [5.0, 7.0])
    x = leaf(2.0)
    same(grad(x, x)[0], 1.0)


def test_grad_with_duplicates():
    x = leaf([1.0, 2.0])
    y = (x * 3).sum()
    first, second = grad(y, [x, x])
    same(first, [3.0, 3.0])
    same(second, [3.0, 3.0])
    y = (x * 3).sum()
    same(grad([y, y], x)[0], [6.0, 6.0])


def test_grad_of_several_outputs_with_their_own_weights():
    x, y = leaf([1.0, 2.0]), leaf([1.0, 2.0, 3.0])
    gx, gy = grad([x.sum(), y * 2], (x, y), grad_outputs=[None, T.tensor([1.0, 0.0, -1.0])])
    same(gx, [1.0, 1.0])
    same(gy, [2.0, 0.0, -2.0])


def test_grad_of_something_unused():
    x, other = leaf([1.0, 2.0]), leaf([1.0, 2.0, 3.0])
    with raises(RuntimeError, UNUSED.format(1)):
        grad((x * 2).sum(), [x, other])
    with raises(RuntimeError, UNUSED.format(0)):
        grad((x * 2).sum(), other)
    used, unused = grad((x * 2).sum(), [x, other], allow_unused=True)
    same(used, [2.0, 2.0])
    assert unused is None
    used, unused = grad((x * 2).sum(), [x, other], materialize_grads=True)
    same(used, [2.0, 2.0])
    same(unused, [0.0, 0.0, 0.0])


def test_grad_refuses_contradictions():
    x = leaf([1.0, 2.0])
    with raises(
        ValueError,
        "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
        "allow_unused=False.",
    ):
        grad(x.sum(), x, allow_unused=False, materialize_grads=True)
    with raises(RuntimeError, "One of the differentiated Tensors does not require grad"):
        grad(x.sum(), T.ones(2))
    with raises(RuntimeError, "`inputs` argument to `grad()` cannot be empty."):
        grad(x.sum(), [])
    with raises(RuntimeError, "grad can be implicitly created only for scalar outputs"):
        grad(x * 2, x)
    with raises(RuntimeError, NO_GRAD_FN):
        grad(T.ones(2).sum(), x)


def test_grad_frees_the_graph_like_backward():
    x = leaf([1.0, 2.0])
    y = (x * x).sum()
    grad(y, x, retain_graph=True)
    grad(y, x)
    with raises(RuntimeError, FREED):
        grad(y, x)


def test_leaf_hooks_see_gradients_that_grad_asks_for():
    x = leaf([1.0, 2.0])
    x.register_hook(lambda g: g * 5)
    x.register_post_accumulate_grad_hook(lambda p: pytest.fail("nothing was accumulated"))
    same(grad(x.sum(), x)[0], [5.0, 5.0])
    assert x.grad is None


# ---------------------------------------------------------------- backward()


def test_backward_into_chosen_inputs():
    x, w = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    (x * w).sum().backward(inputs=[w])
    assert x.grad is None
    same(w.grad, [1.0, 2.0])
    x.sum().backward(inputs=w)
    same(w.grad, [1.0, 2.0])
    assert x.grad is None


def test_backward_into_an_intermediate():
    x = leaf([1.0, 2.0])
    y = x * 2
    (y * y).sum().backward(inputs=[y])
    with quiet():
        same(y.grad, [4.0, 8.0])
    assert x.grad is None


def test_backward_into_one_tensor_named_twice():
    x = leaf([1.0, 2.0])
    y = x * 3
    y.sum().backward(inputs=[x, y, x, y])
    same(x.grad, [3.0, 3.0])
    same(y.grad, [1.0, 1.0])
    assert y.retains_grad


def test_backward_into_edges():
    x = leaf([1.0, 2.0])
    y = x * 3
    edge = T.autograd.graph.get_gradient_edge
    T.autograd.backward(y.sum(), inputs=(edge(x), edge(y)))
    same(x.grad, [3.0, 3.0])


def hooked():
    """A chain of two products with hooks at both tensors and nodes, and what these have been given."""
    log = []
    a = leaf(1.0)
    b = a * 2
    c = b * 2
    for name, t, fn in [("b", b, b.grad_fn), ("a", a, b.grad_fn.next_functions[0][0])]:
        t.register_hook(lambda g, name=name: (log.append((name, g.item())), g * 10)[1])
        fn.register_prehook(
            lambda gs, name=name: (log.append((f"{name} before", gs[0].item())), (gs[0] * 7,))[1]
        )
        fn.register_hook(lambda _, gs, name=name: log.append((f"{name} after", gs[0].item())))
    return a, b, c, log


def test_nodes_that_do_not_run_run_no_hooks():
    a, b, c, log = hooked()
    same(grad(c, b)[0], 20.0)
    assert log == [("b", 2.0)]
    a, b, c, log = hooked()
    same(grad(c, a)[0], 2800.0)
    through = [("b", 2.0), ("b before", 20.0), ("b after", 140.0), ("a", 280.0)]
    assert log == through
    a, b, c, log = hooked()
    a.register_post_accumulate_grad_hook(lambda t: log.append("accumulated"))
    c.backward(inputs=[a, b])
    same(a.grad, 19600.0)
    same(b.grad, 20.0)
    assert log == [*through, ("a before", 2800.0), "accumulated", ("a after", 19600.0)]


def test_gradients_of_whole_numbers():
    x = leaf([1.0, 2.0])
    same(grad(x * 3, x, T.tensor([2, 1]))[0], [6.0, 3.0])
    (x * 3).backward(T.tensor([True, False]))
    same(x.grad, [3.0, 0.0])


def test_backward_into_nothing():
    with raises(RuntimeError, "`inputs` argument to `backward()` cannot be empty."):
        leaf([1.0]).sum().backward(inputs=[])


def test_backward_of_a_leaf():
    x = leaf([1.0, 2.0])
    x.backward(T.tensor([3.0, 4.0]))
    same(x.grad, [3.0, 4.0])
    one = leaf(2.0)
    one.backward()
    same(one.grad, 1.0)


def test_backward_of_one_element_needs_no_gradient():
    x = leaf([[3.0]])
    (x * x).backward()
    same(x.grad, [[6.0]])


def test_several_roots_at_once():
    x = leaf([1.0, 2.0])
    y = x * x
    T.autograd.backward([y.sum(), (y * 3).sum(), x.sum()])
    same(x.grad, [9.0, 17.0])


def test_one_root_inside_the_graph_of_another():
    x = leaf([1.0, 2.0])
    y = x * x
    z = (y * 3).sum()
    T.autograd.backward([z, y], [None, T.tensor([1.0, 10.0])])
    same(x.grad, [2 + 6, 40 + 12])


def test_weights_of_several_roots_are_checked():
    x = leaf([1.0, 2.0])
    with raises(
        RuntimeError,
        "Mismatch in shape: grad_output[0] has a shape of torch.Size([3]) and output[0] has a "
        "shape of torch.Size([2]).",
    ):
        T.autograd.backward([x * 1, x * 2], [T.ones(3), T.ones(2)])
    assert x.grad is None


def test_grad_variables_is_the_deprecated_name_of_grad_tensors():
    x = leaf([1.0, 2.0])
    with warns(FutureWarning, "`grad_variables` is deprecated. Use `grad_tensors` instead."):
        T.autograd.backward([x * 2], grad_variables=[T.tensor([1.0, 3.0])])
    same(x.grad, [2.0, 6.0])


def test_a_value_used_many_times():
    x = leaf(2.0)
    y = x * x
    z = y * y + y
    w = z * y + x
    w.backward()
    same(x.grad, 6 * 2.0**5 + 4 * 2.0**3 + 1)


def test_an_operand_used_twice_in_one_op():
    x = leaf([2.0, 3.0])
    (x * x + x / x - x + T.cat([x[:1], x[:1]])).sum().backward()
    same(x.grad, [4 - 1 + 2, 6 - 1])


def test_dead_branches_do_not_matter():
    x = leaf([1.0, 2.0])
    y = x * 2
    dead = y.exp() * float("inf")
    y.log().sum()
    z = (y * 3).sum()
    del dead
    z.backward()
    same(x.grad, [6.0, 6.0])


def test_a_branch_that_ends_in_detach():
    x = leaf([1.0, 2.0])
    y = x * x
    (y.detach() * x + y * 0).sum().backward()
    same(x.grad, [1.0, 4.0])


def test_broadcast_operands_get_gradients_of_their_own_shape():
    a, b, c = leaf(np.ones((3, 1)).tolist()), leaf([1.0, 2.0, 3.0, 4.0]), leaf(2.0)
    (a * b * c).sum().backward()
    same(a.grad, np.full((3, 1), 20.0))
    same(b.grad, np.full(4, 6.0))
    same(c.grad, 30.0)


def test_gradients_keep_the_dtype_of_their_leaf():
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0], dtype=T.float64)
    (x * y).sum().backward()
    assert x.grad.dtype == T.float32
    assert y.grad.dtype == T.float64


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1,
        lambda x: x - 1,
        lambda x: -x,
        lambda x: x + T.ones(2),
        lambda x: T.ones(2) - x,
        lambda x: x.view(1, 2),
        lambda x: x.view(1, 2).t(),
        lambda x: x.expand(2, 2),
        lambda x: x[0],
        lambda x: x[:1],
        lambda x: x.mean(),
        lambda x: x.sum(0),
        lambda x: x.clone(),
        lambda x: x.double(),
        lambda x: T.cat([x, x]),
        lambda x: x.cumsum(0),
    ],
)
def test_ops_that_save_nothing_can_run_backward_twice(function):
    x = leaf([1.0, 2.0])
    y = function(x).sum()
    y.backward()
    once = array(x.grad).copy()
    y.backward()
    same(x.grad, 2 * once)


@pytest.mark.in_turn(4)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x,
        lambda x: x * T.ones(2),
        lambda x: x * 2,
        lambda x: x / 2,
        lambda x: 2 / x,
        lambda x: x**2,
        lambda x: x.exp(),
        lambda x: x.sin(),
        lambda x: x.relu(),
        lambda x: x.abs(),
        lambda x: x.clamp(0, 1),
        lambda x: x.softmax(0),
        lambda x: x.max(),
        lambda x: x.prod(),
        lambda x: x[T.tensor([0])],
        lambda x: T.where(T.tensor([True, False]), x, -x),
    ],
)
def test_ops_that_save_something_cannot(function):
    x = leaf([1.0, 2.0])
    y = function(x).sum()
    y.backward(retain_graph=True)
    once = array(x.grad).copy()
    y.backward()
    same(x.grad, 2 * once)
    with raises(RuntimeError, FREED):
        y.backward()


def test_freeing_one_branch_frees_what_it_shares():
    x = leaf([1.0, 2.0])
    y = x * x
    a, b = (y + 1).sum(), (y + 2).sum()
    a.backward()
    with raises(RuntimeError, FREED):
        b.backward()


def test_a_failed_check_leaves_gradients_unset():
    x = leaf([1.0, 2.0])
    y = x.exp()
    z = y.sum()
    y.mul_(1)
    with raises_modified("FloatTensor", [2], 1, 0, "Exp"):
        (z + (y * 0).sum()).backward()
    assert x.grad is None


def test_saved_values_are_readable_until_freed():
    x = leaf([1.0, 2.0])
    y = x * x
    assert y.grad_fn._saved_self is x
    e = x.exp()
    same(e.grad_fn._saved_result, array(e))
    (y + e).sum().backward()
    with raises(RuntimeError, FREED):
        y.grad_fn._saved_self  # noqa: B018
    with raises(RuntimeError, FREED):
        e.grad_fn._saved_result  # noqa: B018


def test_a_saved_list_of_tensors_is_readable(monkeypatch):
    from adjit.graph.operation import operation

    monkeypatch.setattr("adjit.graph.operation.registry", {})

    @operation("ScaledBackward0")
    def scaled(tensors):
        return tensors[0].clone()

    @scaled.vjp
    def _(g, tensors):
        return ([g * tensors[1], None],)

    x, factor = leaf([1.0, 2.0]), T.tensor([3.0, 4.0])
    y = scaled([x, factor])
    saved = y.grad_fn._saved_tensors
    assert saved[0] is x
    assert saved[1] is factor
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 4.0]


def test_a_graph_is_freed_without_the_garbage_collector():
    gc.collect()
    gc.disable()
    try:
        x = leaf([1.0, 2.0])
        y = (x * x).exp()
        inner = weakref.ref(y)
        z = y.sum()
        del y
        z.backward()
        del z
        assert inner() is None
        x_alive = weakref.ref(x)
        del x
        assert x_alive() is None
    finally:
        gc.enable()


# ---------------------------------------------------------------- higher orders


def derivatives(function, at, orders):
    x = leaf(at, dtype=T.float64)
    y = function(x)
    found = []
    for _ in range(orders):
        (y,) = grad(y.sum(), x, create_graph=True)
        found.append(array(y).copy())
    return found


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x**4, lambda x: [4 * x**3, 12 * x**2, 24 * x]),
        (lambda x: x.sin(), lambda x: [np.cos(x), -np.sin(x), -np.cos(x)]),
        (lambda x: x.exp(), lambda x: [np.exp(x)] * 3),
        (lambda x: x.log(), lambda x: [1 / x, -1 / x**2, 2 / x**3]),
        (lambda x: 1 / x, lambda x: [-1 / x**2, 2 / x**3, -6 / x**4]),
        (lambda x: x.sqrt(), lambda x: [0.5 * x**-0.5, -0.25 * x**-1.5, 0.375 * x**-2.5]),
        (
            lambda x: x.tanh(),
            lambda x: [
                1 - np.tanh(x) ** 2,
                -2 * np.tanh(x) * (1 - np.tanh(x) ** 2),
                (1 - np.tanh(x) ** 2) * (6 * np.tanh(x) ** 2 - 2),
            ],
        ),
        (lambda x: x * x * x, lambda x: [3 * x**2, 6 * x, np.full_like(x, 6)]),
        (lambda x: x.sum() * x, lambda x: [x.sum() + x.sum() + 0 * x, 2.0 * x.size + 0 * x]),
    ],
)
def test_higher_derivatives(function, expected):
    at = [0.5, 1.25, 2.0]
    values = expected(np.array(at))
    for found, value in zip(derivatives(function, at, len(values)), values, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-10)


def test_double_backward_through_a_matrix_product():
    x, w = leaf([[1.0, 2.0]]), leaf([[3.0], [5.0]])
    (gx,) = grad((x @ w) ** 2, x, create_graph=True)
    gx.sum().backward()
    same(w.grad, [[2 * 8 * 1 + 2 * 13], [2 * 8 * 2 + 2 * 13]])


def test_gradient_penalty():
    x, w = leaf([1.0, 2.0]), leaf([0.5, -1.0])
    y = (w * x).sum().tanh()
    (gx,) = grad(y, x, create_graph=True)
    penalty = (gx.pow(2).sum() - 1) ** 2
    penalty.backward()
    s = np.dot([0.5, -1.0], [1.0, 2.0])
    weights = np.array([0.5, -1.0])
    slope = 1 - np.tanh(s) ** 2
    norm = (weights**2).sum() * slope**2
    inner = 2 * weights * slope**2
    outer = (weights**2).sum() * 2 * slope * (-2 * np.tanh(s) * slope)
    same(w.grad, 2 * (norm - 1) * (inner + outer * np.array([1.0, 2.0])), rtol=1e-5)


def test_the_graph_of_a_gradient_keeps_its_inputs_alive():
    x = leaf([1.0, 2.0])
    (g,) = grad((x**3).sum(), x, create_graph=True)
    assert g.requires_grad
    assert g.grad_fn is not None
    g.sum().backward()
    same(x.grad, [6.0, 12.0])


def test_create_graph_implies_retain_graph():
    x = leaf([1.0, 2.0])
    y = (x * x).sum()
    grad(y, x, create_graph=True)
    y.backward()
    same(x.grad, [2.0, 4.0])
    y = (x * x).sum()
    grad(y, x, create_graph=True, retain_graph=False)
    with raises(RuntimeError, FREED):
        y.backward()


def test_gradient_with_respect_to_the_weights_of_backward():
    x, v = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    (g,) = grad(x**2, x, v, create_graph=True)
    (gv,) = grad(g.sum(), v)
    same(gv, [2.0, 4.0])


def test_gradients_that_are_zero_everywhere_still_differentiate():
    x = leaf([1.0, -2.0])
    (g,) = grad(x.relu().sum(), x, create_graph=True)
    same(g, [1.0, 0.0])
    second = grad((g * x).sum(), x)
    same(second[0], [1.0, 0.0])


# ---------------------------------------------------------------- accumulation


def test_accumulation_is_in_place_without_create_graph():
    x = leaf([1.0, 2.0])
    x.sum().backward()
    first = x.grad
    (x * 2).sum().backward()
    assert x.grad is first
    same(first, [3.0, 3.0])


def test_accumulation_is_out_of_place_with_create_graph():
    x = leaf([1.0, 2.0])
    with quiet():
        (x**2).sum().backward(create_graph=True)
        first = x.grad
        (x**2).sum().backward(create_graph=True)
    assert x.grad is not first
    same(first, [2.0, 4.0])
    same(x.grad, [4.0, 8.0])
    total = x.grad
    x.grad = None
    total.sum().backward()
    same(x.grad, [4.0, 4.0])


@pytest.mark.filterwarnings("default:Using backward")
def test_backward_with_create_graph_without_a_gradient():
    x = leaf([1.0, 2.0])
    with quiet():
        x.sum().backward(create_graph=True)
    same(x.grad, [1.0, 1.0])


def test_the_gradient_is_not_the_argument():
    x = leaf([1.0, 2.0])
    weights = T.ones(2)
    (x * 1).backward(weights)
    assert x.grad is not weights
    x.grad.mul_(5)
    same(weights, [1.0, 1.0])
    x.grad = None
    x.backward(weights)
    weights.mul_(3)
    same(x.grad, [1.0, 1.0])


def test_two_leaves_never_share_a_gradient():
    a, b = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    (a + b).backward(T.ones(2))
    a.grad.mul_(7)
    same(b.grad, [1.0, 1.0])


def test_an_assigned_gradient_is_accumulated_into():
    x = leaf([1.0, 2.0])
    mine = T.full((2,), 5.0)
    x.grad = mine
    assert x._grad is mine
    x._grad = None
    assert x.grad is None
    x._grad = mine
    x.sum().backward()
    assert x.grad is mine
    same(mine, [6.0, 6.0])


def test_assigned_gradients_are_checked():
    x = leaf([1.0, 2.0])
    with raises(
        RuntimeError,
        "attempting to assign a gradient of size '[3]' to a tensor of size '[2]'. Please ensure "
        "that the gradient and the tensor are the same size",
    ):
        x.grad = T.ones(3)
    with raises(
        TypeError, "assigned grad expected to be a Tensor or None but got grad of type int"
    ):
        x.grad = 3
    with pytest.raises(RuntimeError, match=r"^attempting to assign a gradient with dtype 'double'"):
        x.grad = T.ones(2, dtype=T.float64)
    assert x.grad is None


def test_gradients_accumulate_across_expanded_and_viewed_uses():
    x = leaf([1.0, 2.0])
    (x.expand(3, 2) * x.view(1, 2)).sum().backward()
    same(x.grad, [6.0, 12.0])
    assert x.grad.is_contiguous()


def test_a_leaf_that_stops_requiring_gradients():
    x = leaf([1.0, 2.0])
    y = (x * 2).sum()
    x.requires_grad_(False)
    y.backward()
    assert not x.requires_grad
    assert not (x * 2).requires_grad


# ---------------------------------------------------------------- retain_grad


def test_retain_grad():
    x = leaf([1.0, 2.0])
    y = x + 2
    assert not y.retains_grad
    y.retain_grad()
    y.retain_grad()
    assert y.retains_grad
    z = y.sum()
    z.backward()
    first = y.grad
    same(first, [1.0, 1.0])
    z.backward()
    same(y.grad, [2.0, 2.0])
    x.retain_grad()
    assert not x.retains_grad


def test_retain_grad_of_views_whose_base_is_written():
    base = leaf([1.0]) * 1
    view, other = base[:], base[:]
    view.retain_grad()
    other.retain_grad()
    view.mul_(2)
    (view + other * 3).sum().backward()
    same(view.grad, [1.0])
    same(other.grad, [3.0])


PARTS_WRITTEN = {
    "by index": lambda y, v: y.__setitem__(0, v[0]),
    "by a range": lambda y, v: y.__setitem__(slice(1), (v * 2)[:1]),
    "by a tensor": lambda y, v: y.__setitem__(slice(1), v.sum().reshape(1)),
    "by a number": lambda y, v: y.__setitem__(0, 5),
    "by a slice": lambda y, v: y[:1].mul_(2),
    "by a view": lambda y, v: y.view(2).mul_(2),
    "with history": lambda y, v: y[:1].copy_(v[:1]),
    "by places": lambda y, v: y.__setitem__(T.tensor([0]), v[:1]),
    "by a function": lambda y, v: Doubled.apply(y[:1]),
    "turned": lambda y, v: y.unsqueeze_(1),
    "all": lambda y, v: y.mul_(2),
}


class Doubled(T.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 2


@pytest.mark.parametrize("name", PARTS_WRITTEN)
def test_a_retained_gradient_is_that_of_the_tensor_as_it_is_now(name):
    """Whatever was written through views since it was asked for; and where machine code has done so before."""
    for family in importlib.import_module("adjit.schedule.jit.native").families:
        family.load(compiling=True)
    for is_kept in (True, False, False, True):
        x, v = leaf([1.0, 1.0]), leaf([7.0, 8.0])
        y = x * 1
        if is_kept:
            y.retain_grad()
        PARTS_WRITTEN[name](y, v)
        if not is_kept:
            continue
        (y.reshape(-1) * T.tensor([3.0, 4.0])).sum().backward()
        same(y.grad.reshape(-1), [3.0, 4.0])
        assert y.grad.shape == y.shape


@pytest.mark.parametrize("way", ["data", "detach", "given"])
@pytest.mark.parametrize("write", ["exp_", "sigmoid_", "relu_", "tanh_", "sqrt_"])
def test_what_a_write_saves_is_told_by_the_versions_of_the_tensor(way, write):
    a = leaf([0.5, 2.0])
    made = T.ones(2)
    if way == "given":
        made.data = T.ones(2)
    else:
        made = made.data if way == "data" else made.detach()
    made.add_(a)
    getattr(made, write)()
    made.sum().backward()
    other = leaf([0.5, 2.0])
    getattr(1 + other, write[:-1])().sum().backward()
    same(a.grad, other.grad.tolist())


def test_a_view_that_lost_its_history_is_shown():
    x = leaf([1.0])
    with T.no_grad():
        view = x[:]
        view *= 2
    assert repr(view) == "tensor([2.], grad_fn=<Invalid>)"


def test_numpy_where_nothing_is_recorded():
    x = leaf([1.0, 2.0])
    with T.no_grad():
        assert x.numpy().tolist() == [1.0, 2.0]
        assert np.asarray(x).tolist() == [1.0, 2.0]
    with raises(
        RuntimeError,
        "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
    ):
        x.numpy()


def test_retain_grad_needs_requires_grad():
    with raises(RuntimeError, "can't retain_grad on Tensor that has requires_grad=False"):
        T.ones(2).retain_grad()


def test_retained_gradients_are_those_after_the_hooks():
    x = leaf([1.0, 2.0])
    y = x + 2
    y.retain_grad()
    y.register_hook(lambda g: g * 5)
    y.sum().backward()
    same(y.grad, [5.0, 5.0])
    same(x.grad, [5.0, 5.0])


def test_reading_the_gradient_of_a_non_leaf_warns():
    y = leaf([1.0]) * 2
    with warns(UserWarning, NON_LEAF_GRAD):
        assert y.grad is None
    y.retain_grad()
    assert y.grad is None


# ---------------------------------------------------------------- hooks


def test_tensor_hooks_run_in_order_and_can_replace_and_be_removed():
    x = leaf([1.0, 2.0])
    y = x + 2
    log = []
    y.register_hook(lambda g: log.append(("first", array(g).tolist())))
    double = y.register_hook(lambda g: g * 2)
    y.register_hook(lambda g: log.append(("last", array(g).tolist())))
    y.sum().backward()
    assert log == [("first", [1.0, 1.0]), ("last", [2.0, 2.0])]
    same(x.grad, [2.0, 2.0])
    double.remove()
    double.remove()
    log.clear()
    x.grad = None
    y.sum().backward()
    assert log == [("first", [1.0, 1.0]), ("last", [1.0, 1.0])]
    same(x.grad, [1.0, 1.0])


def test_handles_remove_their_hook_on_leaving_a_with():
    x = leaf([1.0, 2.0])
    with x.register_hook(lambda g: g * 3):
        x.sum().backward()
    x.sum().backward()
    same(x.grad, [4.0, 4.0])


def test_a_hook_sees_the_sum_of_all_paths_once():
    x = leaf([1.0, 2.0])
    seen = []
    x.register_hook(lambda g: seen.append(array(g).tolist()))
    y = x * 2
    y.register_hook(lambda g: seen.append(array(g).tolist()))
    (y + y * 3).sum().backward()
    assert seen == [[4.0, 4.0], [8.0, 8.0]]


def test_hooks_on_leaves_change_what_is_accumulated():
    x = leaf([1.0, 2.0])
    x.register_hook(lambda g: g * 10)
    (x * 2).sum().backward()
    (x * 2).sum().backward()
    same(x.grad, [40.0, 40.0])


def test_gradients_in_hooks_are_detached_unless_a_graph_is_made():
    x = leaf([1.0, 2.0])
    y = x * x
    flags = []
    y.register_hook(lambda g: flags.append((g.requires_grad, T.is_grad_enabled())))
    grad((y * y).sum(), x, retain_graph=True)
    grad((y * y).sum(), x, create_graph=True)
    assert flags == [(False, False), (True, True)]


def test_a_hook_on_a_tensor_that_is_written_afterwards():
    x = leaf([1.0, 2.0])
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(array(g).tolist()))
    y.mul_(3)
    y.register_hook(lambda g: seen.append(array(g).tolist()))
    y.sum().backward()
    same(x.grad, [6.0, 6.0])
    assert seen == [[1.0, 1.0], [3.0, 3.0]]


@pytest.mark.parametrize(
    ("hook", "error", "text"),
    [
        (lambda g: T.ones(3), RuntimeError, "hook '<lambda>' has changed the size of value"),
        (lambda g: 3, TypeError, "expected Variable, but hook returned 'int'"),
        (
            lambda g: g.double(),
            RuntimeError,
            "hook '<lambda>' has changed the type of value "
            "(was torch.FloatTensor got torch.DoubleTensor)",
        ),
    ],
)
def test_what_a_hook_returns_is_checked(hook, error, text):
    y = leaf([1.0, 2.0]) * 1
    y.register_hook(hook)
    with raises(error, text):
        y.sum().backward()


def test_hooks_need_something_to_hook():
    with raises(RuntimeError, "cannot register a hook on a tensor that doesn't require gradient"):
        T.ones(2).register_hook(print)
    with raises(
        RuntimeError, "post accumulate grad hooks cannot be registered on non-leaf tensors"
    ):
        (leaf([1.0]) * 2).register_post_accumulate_grad_hook(print)
    with raises(
        RuntimeError,
        "cannot register a hook on a tensor that doesn't require gradient",
    ):
        T.ones(2).register_post_accumulate_grad_hook(print)


class Refusal(Exception):
    pass


def refuse(*_):
    raise Refusal


def test_a_raising_hook_leaves_the_rest_of_the_graph_usable():
    x = leaf([1.0, 2.0])
    y = x * x
    handle = y.register_hook(refuse)
    with pytest.raises(Refusal):
        y.sum().backward()
    assert x.grad is None
    handle.remove()
    y.sum().backward()
    same(x.grad, [2.0, 4.0])


def test_what_ran_before_a_raising_hook_is_freed():
    x = leaf([1.0, 2.0])
    y = x * x
    z = y * y
    handle = y.register_hook(refuse)
    with pytest.raises(Refusal):
        z.sum().backward()
    handle.remove()
    with raises(RuntimeError, FREED):
        z.sum().backward()
    y.sum().backward()
    same(x.grad, [2.0, 4.0])


def test_a_raising_hook_with_retain_graph():
    x = leaf([1.0, 2.0])
    y = x * x
    z = (y * y).sum()
    handle = y.register_hook(refuse)
    with pytest.raises(Refusal):
        z.backward(retain_graph=True)
    handle.remove()
    z.backward()
    same(x.grad, [4.0, 32.0])


def test_modes_are_restored_after_a_raising_hook():
    y = leaf([1.0, 2.0]) * 2
    y.register_hook(refuse)
    with pytest.raises(Refusal):
        y.sum().backward()
    assert T.is_grad_enabled()
    assert (leaf([1.0]) * 2).requires_grad


def test_post_accumulate_hooks_see_the_leaf_and_its_total():
    x = leaf([1.0, 2.0])
    seen = []
    handle = x.register_post_accumulate_grad_hook(
        lambda p: seen.append((p is x, array(p.grad).tolist()))
    )
    x.sum().backward()
    x.sum().backward()
    handle.remove()
    x.sum().backward()
    assert seen == [(True, [1.0, 1.0]), (True, [2.0, 2.0])]


def test_an_optimiser_step_inside_backward():
    x = leaf([1.0, 2.0])

    def step(p):
        with T.no_grad():
            p -= 0.5 * p.grad
        p.grad = None

    x.register_post_accumulate_grad_hook(step)
    for _ in range(2):
        (x * x).sum().backward()
        assert x.grad is None
    same(x, [0.0, 0.0])


def test_post_accumulate_hooks_return_nothing():
    x = leaf([1.0])
    x.register_post_accumulate_grad_hook(lambda p: 3)
    with raises(TypeError, "expected Variable, but hook returned 'int'"):
        x.sum().backward()
    x = leaf([1.0])
    x.register_post_accumulate_grad_hook(lambda p: p.grad)
    with raises(RuntimeError, "Tensor post accumulate grad hooks should return None."):
        x.sum().backward()


def test_node_hooks():
    x = leaf([1.0, 2.0])
    y = x * 2
    log = []

    def values(gradients):
        return [None if g is None else array(g).tolist() for g in gradients]

    def before(outputs):
        log.append(("before", values(outputs)))
        return (outputs[0] * 2,)

    def after(inputs, outputs):
        log.append(("after", values(inputs), values(outputs)))
        return tuple(None if g is None else g + 1 for g in inputs)

    y.grad_fn.register_prehook(before)
    y.grad_fn.register_hook(after)
    y.register_hook(lambda g: log.append(("tensor", array(g).tolist())))
    y.sum().backward()
    assert log == [
        ("tensor", [1.0, 1.0]),
        ("before", [[1.0, 1.0]]),
        ("after", [[4.0, 4.0], None], [[2.0, 2.0]]),
    ]
    same(x.grad, [5.0, 5.0])


def test_node_hooks_can_be_removed():
    x = leaf([1.0, 2.0])
    y = x + 2
    handles = [
        y.grad_fn.register_prehook(lambda outputs: (outputs[0] * 2,)),
        y.grad_fn.register_hook(lambda inputs, outputs: tuple(g and g * 3 for g in inputs)),
    ]
    for handle in handles:
        handle.remove()
    y.sum().backward()
    same(x.grad, [1.0, 1.0])


def test_node_hooks_return_as_many_values_as_they_got():
    y = leaf([1.0, 2.0]) * 2
    y.grad_fn.register_prehook(lambda outputs: outputs * 2)
    with raises(
        RuntimeError,
        "hook '<lambda>' has returned an incorrect number of values (got 2, but expected 1)",
    ):
        y.sum().backward()
    y = leaf([1.0, 2.0]) * 2
    y.grad_fn.register_hook(lambda inputs, outputs: inputs[:1])
    with raises(
        RuntimeError,
        "hook '<lambda>' has returned an incorrect number of values (got 1, but expected 2)",
    ):
        y.sum().backward()


def test_hooks_on_the_accumulating_node():
    x = leaf([1.0, 2.0])
    node = x.view_as(x).grad_fn.next_functions[0][0]
    log = []
    node.register_hook(lambda inputs, outputs: log.append((inputs, array(outputs[0]).tolist())))
    (x * 2).sum().backward()
    same(x.grad, [2.0, 2.0])
    assert len(log) == 1
    assert log[0][1] == [2.0, 2.0]


# ---------------------------------------------------------------- grad_fn


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: x + 1, "AddBackward0"),
        (lambda x: x - 1, "SubBackward0"),
        (lambda x: 1 - x, "RsubBackward1"),
        (lambda x: x * 2, "MulBackward0"),
        (lambda x: x / 2, "DivBackward0"),
        (lambda x: -x, "NegBackward0"),
        (lambda x: x**2, "PowBackward0"),
        (lambda x: 2**x, "PowBackward2"),
        (lambda x: x.exp(), "ExpBackward0"),
        (lambda x: x.log(), "LogBackward0"),
        (lambda x: x.sqrt(), "SqrtBackward0"),
        (lambda x: x.sin(), "SinBackward0"),
        (lambda x: x.tanh(), "TanhBackward0"),
        (lambda x: x.sigmoid(), "SigmoidBackward0"),
        (lambda x: x.relu(), "ReluBackward0"),
        (lambda x: x.abs(), "AbsBackward0"),
        (lambda x: x.sum(), "SumBackward0"),
        (lambda x: x.sum(0), "SumBackward1"),
        (lambda x: x.mean(), "MeanBackward0"),
        (lambda x: x.mean(0), "MeanBackward1"),
        (lambda x: x.max(), "MaxBackward1"),
        (lambda x: x.max(0)[0], "MaxBackward0"),
        (lambda x: x.view(6), "ViewBackward0"),
        (lambda x: x.reshape(6), "ViewBackward0"),
        (lambda x: x.t(), "TBackward0"),
        (lambda x: x.transpose(0, 1), "TransposeBackward0"),
        (lambda x: x.permute(1, 0), "PermuteBackward0"),
        (lambda x: x[0], "SelectBackward0"),
        (lambda x: x[:1], "SliceBackward0"),
        (lambda x: x[T.tensor([0])], "IndexBackward0"),
        (lambda x: x[x > 0], "IndexBackward0"),
        (lambda x: x.expand(2, 2, 3), "ExpandBackward0"),
        (lambda x: x.unsqueeze(0), "UnsqueezeBackward0"),
        (lambda x: x.clone(), "CloneBackward0"),
        (lambda x: x.double(), "ToCopyBackward0"),
        (lambda x: x.diagonal(), "DiagonalBackward0"),
        (lambda x: x.as_strided((2,), (1,)), "AsStridedBackward0"),
        (lambda x: x.unbind(0)[0], "UnbindBackward0"),
        (lambda x: x.split(1)[0], "SplitBackward0"),
        (lambda x: T.cat([x, x]), "CatBackward0"),
        (lambda x: T.stack([x, x]), "StackBackward0"),
        (lambda x: x @ x.t(), "MmBackward0"),
        (lambda x: x @ x[0], "MvBackward0"),
        (lambda x: x[0] @ x[1], "DotBackward0"),
        (lambda x: T.bmm(x[None], x.t()[None]), "BmmBackward0"),
        (lambda x: T.where(x > 0, x, x * 2), "WhereBackward0"),
        (lambda x: x.softmax(1), "SoftmaxBackward0"),
        (lambda x: x.log_softmax(1), "LogSoftmaxBackward0"),
        (lambda x: x.exp_(), "ExpBackward0"),
        (lambda x: x.mul_(2), "MulBackward0"),
        (lambda x: x.copy_(T.zeros(2, 3)), "CopyBackwards"),
        (lambda x: x.__setitem__(0, 1.0) or x, "CopySlices"),
    ],
)
def test_backward_function_names(function, name):
    y = function(leaf([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]) * 1)
    assert y.grad_fn.name().removeprefix("torch::autograd::") == name
    assert type(y.grad_fn).__name__ == name
    assert repr(y).endswith(f"grad_fn=<{name}>)")


def test_next_functions_number_the_outputs_of_their_node():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    first, second = x.unbind(0)
    assert (first.output_nr, second.output_nr) == (0, 1)
    ((node, number), (other, other_number)) = (second * first).grad_fn.next_functions
    assert node is other
    assert (number, other_number) == (1, 0)


def test_the_accumulating_node_is_one_per_leaf():
    x = leaf([1.0, 2.0])
    a, b = x * 2, x + 1
    assert a.grad_fn.next_functions[0][0] is b.grad_fn.next_functions[0][0]
    assert a.grad_fn.next_functions[0][0].variable is x


def test_the_graph_can_be_walked_after_the_handles_are_gone():
    x = leaf([1.0, 2.0])
    node = ((x * 2).exp() + x).sum().grad_fn
    names = []
    while node is not None:
        names.append(plain(node.name()))
        node = node.next_functions[0][0] if node.next_functions else None
    assert names == [
        "SumBackward0",
        "AddBackward0",
        "ExpBackward0",
        "MulBackward0",
        "T::autograd::AccumulateGrad",
    ]


def test_copies_of_graph_tensors():
    x = leaf([1.0, 2.0])
    fallback = copy.deepcopy(x)
    assert fallback.requires_grad
    assert fallback.is_leaf
    fallback.data.zero_()
    same(x, [1.0, 2.0])
    with pytest.raises(
        RuntimeError, match=r"^Only Tensors created explicitly by the user \(graph leaves\) support"
    ):
        copy.deepcopy(x * 2)


# ---------------------------------------------------------------- modes


def test_modes_nest_and_survive_exceptions():
    assert T.is_grad_enabled()
    with T.no_grad():
        with pytest.raises(Refusal), T.enable_grad():
            refuse(T.is_grad_enabled() or pytest.fail("enable_grad had no effect"))
        assert not T.is_grad_enabled()
    assert T.is_grad_enabled()


@pytest.mark.parametrize(
    ("decorate", "inside"),
    [
        (T.no_grad(), False),
        (T.no_grad, False),
        (T.enable_grad(), True),
        (T.enable_grad, True),
        (T.set_grad_enabled(True), True),
        (T.inference_mode(), False),
        (T.inference_mode, False),
    ],
)
def test_modes_as_decorators(decorate, inside):
    @decorate
    def mode(extra=0):
        """Doc."""
        return T.is_grad_enabled(), extra

    assert mode.__name__ == "mode"
    assert mode.__doc__ == "Doc."
    for outside in (True, False):
        with T.set_grad_enabled(outside):
            assert mode(extra=3) == (inside, 3)
            assert mode() == (inside, 0)
            assert T.is_grad_enabled() is outside


def test_set_grad_enabled_as_a_decorator_does_not_leak():
    @T.set_grad_enabled(False)
    def mode():
        return T.is_grad_enabled()

    assert T.is_grad_enabled()
    assert not mode()
    assert T.is_grad_enabled()


def test_modes_on_generators():
    closed = []

    @T.no_grad()
    def generator():
        try:
            got = yield T.is_grad_enabled()
            try:
                yield T.is_grad_enabled(), got
            except Refusal:
                yield T.is_grad_enabled(), "caught"
        finally:
            closed.append(T.is_grad_enabled())
        return "end"

    one = generator()
    assert next(one) is False
    assert T.is_grad_enabled()
    assert one.send("value") == (False, "value")
    assert T.is_grad_enabled()
    assert one.throw(Refusal()) == (False, "caught")
    assert T.is_grad_enabled()
    with pytest.raises(StopIteration) as stop:
        next(one)
    assert stop.value.value == "end"
    other = generator()
    next(other)
    other.close()
    assert closed == [False, False]
    assert T.is_grad_enabled()


def test_modes_on_generators_that_go_on_after_errors():
    @T.no_grad()
    def generator():
        caught = 0
        while caught < 2:
            try:
                yield caught, T.is_grad_enabled()
            except Refusal:
                caught += 1
        return "end"

    one = generator()
    assert next(one) == (0, False)
    assert one.throw(Refusal()) == (1, False)
    with pytest.raises(StopIteration) as stop:
        one.throw(Refusal())
    assert stop.value.value == "end"
    assert T.is_grad_enabled()


def test_modes_belong_to_their_thread():
    seen = []
    with T.no_grad():
        thread = threading.Thread(target=lambda: seen.append(T.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_no_grad_does_not_change_creation():
    with T.no_grad():
        x = T.ones(2, requires_grad=True)
        y = x * 2
        assert x.requires_grad
        assert y.is_leaf
        y.requires_grad_()
    (y * x).sum().backward()
    same(y.grad, [1.0, 1.0])
    same(x.grad, [2.0, 2.0])


def test_backward_works_under_no_grad():
    x = leaf([1.0, 2.0])
    y = (x * x).sum()
    with T.no_grad():
        y.backward()
    same(x.grad, [2.0, 4.0])


def test_inference_mode():
    with T.inference_mode():
        x = leaf([1.0, 2.0])
        y = x * 2
        assert x.is_inference()
        assert x.requires_grad
        assert not y.requires_grad
        with T.enable_grad():
            assert not (x * 2).requires_grad
        with T.set_grad_enabled(True):
            assert not (x * 2).requires_grad
        with T.inference_mode(False):
            assert T.is_grad_enabled()
            assert not T.is_inference_mode_enabled()
        y.add_(1)
    assert not T.is_inference_mode_enabled()
    assert y.view(2).is_inference()
    assert not (y * 2).is_inference()
    assert not y.clone().is_inference()


def test_inference_tensors_stay_out_of_autograd():
    with T.inference_mode():
        y = T.ones(2)
    (y + leaf([1.0, 2.0])).sum().backward()
    with raises(
        RuntimeError,
        "Inference tensors cannot be saved for backward. Please do not use Tensors created in "
        "inference mode in computation tracked by autograd. To work around this, you can make a "
        "clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of "
        "`torch.inference_mode()`.",
    ):
        y * leaf([1.0, 2.0])
    with raises(
        RuntimeError,
        "Inplace update to inference tensor outside InferenceMode is not allowed.You can make a "
        "clone to get a normal tensor before doing inplace update.See "
        "https://github.com/pytorch/rfcs/pull/17 for more details.",
    ):
        y.add_(1)
    with (
        T.no_grad(),
        pytest.raises(
            RuntimeError, match="Inplace update to inference tensor outside InferenceMode"
        ),
    ):
        y.view(1, 2).mul_(2)
    with raises(
        RuntimeError,
        "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.",
    ):
        y.requires_grad_()
    with raises(RuntimeError, "Inference tensors do not track version counter."):
        y._version  # noqa: B018


# ---------------------------------------------------------------- anomaly mode


def anomalies(call):
    """The texts of the warnings of `call`, run with anomaly mode on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with T.autograd.set_detect_anomaly(True):
            call()
    return [plain(one.message) for one in caught]


def test_anomaly_mode_without_a_recorded_forward():
    y = T.sqrt(leaf([0.0])) * 0
    text = "Function 'SqrtBackward0' returned nan values in its 0th output."

    def backward():
        with raises(RuntimeError, text):
            y.sum().backward()

    assert anomalies(backward) == [
        "Error detected in SqrtBackward0. No forward pass information available. Enable detect "
        "anomaly during forward pass for more information."
    ]


def test_anomaly_mode_can_leave_nan_alone():
    x = leaf([0.0])
    with T.autograd.set_detect_anomaly(True, check_nan=False):
        assert T.is_anomaly_enabled()
        assert not T.is_anomaly_check_nan_enabled()
        (T.sqrt(x) * 0).sum().backward()
    assert np.isnan(array(x.grad)).all()
    assert not T.is_anomaly_enabled()


def test_anomaly_mode_shows_the_forward_call_of_an_overwritten_value():
    def program():
        y = leaf([1.0, 2.0]).exp()
        z = y * y
        y.add_(1)
        with raises_modified(
            "FloatTensor",
            [2],
            1,
            0,
            "Add",
            "Hint: the backtrace further above shows the operation that failed to compute its "
            "gradient. The variable in question was changed in there or anywhere later. Good luck!",
        ):
            z.sum().backward()

    (trace,) = anomalies(program)
    assert trace.startswith(
        "Error detected in MulBackward0. Traceback of forward call that caused the error:\n"
    )
    assert "z = y * y" in trace


def test_anomaly_mode_shows_the_forward_call_of_a_custom_function():
    @custom
    class Broken:
        def forward(ctx, x):
            return x * 1

        def backward(ctx, g):
            raise Refusal

    def program():
        y = Broken(leaf([1.0]))
        with pytest.raises(Refusal):
            y.sum().backward()

    (trace,) = anomalies(program)
    assert trace.startswith("Error detected in BrokenBackward. Traceback of forward call")
    assert "y = Broken(leaf([1.0]))" in trace


# ---------------------------------------------------------------- custom functions


class Cube(T.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.detach() ** 3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g


def test_a_custom_function():
    x = leaf([1.0, 2.0])
    y = Cube.apply(x)
    assert y.grad_fn.name() == "CubeBackward"
    assert type(y.grad_fn).__name__ == "CubeBackward"
    assert y.requires_grad
    assert not y.is_leaf
    assert not Cube.apply(x.detach()).requires_grad
    y.sum().backward()
    same(x.grad, [3.0, 12.0])


def test_a_custom_function_is_differentiated_thrice():
    x = leaf([1.0, 2.0])
    (first,) = grad(Cube.apply(x).sum(), x, create_graph=True)
    (second,) = grad(first.sum(), x, create_graph=True)
    (third,) = grad(second.sum(), x)
    same(first, [3.0, 12.0])
    same(second, [6.0, 12.0])
    same(third, [6.0, 6.0])


def test_a_custom_function_that_saves_its_output():
    class Exponential(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return y * g

    x = leaf([0.0, 1.0])
    (first,) = grad(Exponential.apply(x).sum(), x, create_graph=True)
    (second,) = grad(first.sum(), x)
    same(second, np.exp([0.0, 1.0]))

    y = Exponential.apply(x)
    y.add_(1)
    with raises_modified("FloatTensor", [2], 1, 0, "Exponential"):
        y.sum().backward()

    gc.collect()
    alive = weakref.ref(Exponential.apply(x))
    assert alive() is None


def test_saved_inputs_of_a_custom_function_are_checked():
    z = leaf([1.0, 2.0]) * 1
    y = Cube.apply(z)
    z.add_(1)
    with raises_modified("FloatTensor", [2], 1, 0, "Add"):
        y.sum().backward()


def test_saved_tensors_after_they_were_freed():
    x = leaf([1.0, 2.0])
    y = Cube.apply(x)
    (saved,) = y.grad_fn.saved_tensors
    assert saved is x
    y.sum().backward()
    with raises(RuntimeError, FREED):
        y.sum().backward()
    with raises(RuntimeError, FREED):
        y.grad_fn.saved_tensors  # noqa: B018


def test_what_can_be_saved():
    seen = []

    @custom
    class Keep:
        def forward(ctx, x):
            ctx.save_for_backward(x, None)
            ctx.factor = 3
            return x * 3

        def backward(ctx, g):
            seen.append(ctx.saved_tensors[1])
            return g * ctx.factor

    x = leaf([1.0])
    y = Keep(x)
    assert y.grad_fn.factor == 3
    y.sum().backward()
    same(x.grad, [3.0])
    assert seen == [None]

    @custom
    class KeepNumber:
        def forward(ctx, x):
            ctx.save_for_backward(3)
            return x

        def backward(ctx, g):
            return g

    with raises(
        TypeError, "save_for_backward can only save variables, but argument 0 is of type int"
    ):
        KeepNumber(x).sum().backward()


def test_needs_input_grad_and_arguments_that_are_no_tensors():
    needs = []

    @custom
    class Scale:
        def forward(ctx, x, y, n, text=None):
            needs.append(ctx.needs_input_grad)
            ctx.n = n
            ctx.save_for_backward(x, y)
            return x * y * n

        def backward(ctx, g):
            needs.append(ctx.needs_input_grad)
            x, y = ctx.saved_tensors
            return g * y * ctx.n, g * x * ctx.n if ctx.needs_input_grad[1] else None, None, None

    x, y = leaf([1.0, 2.0]), T.tensor([3.0, 4.0])
    Scale(x, y, 5, "text").sum().backward()
    assert needs == [(True, False, False, False)] * 2
    same(x.grad, [15.0, 20.0])
    needs.clear()
    y.requires_grad_()
    Scale(x, y, 5).sum().backward()
    assert needs == [(True, True, False)] * 2


def test_trailing_none_gradients_are_forgiven():
    @custom
    class Generous:
        def forward(ctx, x):
            return x * 2

        def backward(ctx, g):
            return g * 2, None, None

    x = leaf([1.0])
    Generous(x).sum().backward()
    same(x.grad, [2.0])


@pytest.mark.parametrize(
    ("gradients", "error", "text"),
    [
        (
            lambda g: g,
            RuntimeError,
            "function BadBackward returned an incorrect number of gradients (expected 2, got 1)",
        ),
        (
            lambda g: (g, g, g),
            RuntimeError,
            "function BadBackward returned an incorrect number of gradients (expected 2, got 3)",
        ),
        (
            lambda g: (T.ones(3), g),
            RuntimeError,
            "Function BadBackward returned an invalid gradient at index 0 - got [3] but expected "
            "shape compatible with [2]",
        ),
        (lambda g: ("text", g), RuntimeError, "expected Variable or None (got str)"),
    ],
)
def test_wrong_gradients_of_a_custom_function(gradients, error, text):
    @custom
    class Bad:
        def forward(ctx, x, y):
            return x * y

        def backward(ctx, g):
            return gradients(g)

    with raises(error, text):
        Bad(leaf([1.0, 2.0]), leaf([1.0, 2.0])).sum().backward()


def test_gradients_of_a_custom_function_are_fitted():
    @custom
    class Wide:
        def forward(ctx, x):
            return x * 1

        def backward(ctx, g):
            return T.ones(5, 2, dtype=T.float64)

    x = leaf([1.0, 2.0])
    Wide(x).sum().backward()
    same(x.grad, [5.0, 5.0])
    assert x.grad.dtype == T.float32


def test_several_outputs_and_missing_gradients():
    seen = []

    class Two(T.autograd.Function):
        materialise = True

        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(Two.materialise)
            return x * 2, x[:1] * 3

        @staticmethod
        def backward(ctx, first, second):
            seen.append(second)
            return first * 2

    x = leaf([1.0, 2.0])
    Two.apply(x)[0].sum().backward()
    same(seen.pop(), [0.0])
    Two.materialise = False
    Two.apply(x)[0].sum().backward()
    assert seen == [None]
    same(x.grad, [4.0, 4.0])


def test_a_custom_function_may_return_no_gradient():
    @custom
    class Nothing:
        def forward(ctx, x, y):
            return x * y

        def backward(ctx, g):
            return None, g

    x, y = leaf([1.0]), leaf([2.0])
    Nothing(x * 1, y).sum().backward()
    assert x.grad is None
    same(y.grad, [1.0])


def test_outputs_that_are_no_tensors_pass_through():
    @custom
    class Mixed:
        def forward(ctx, x):
            return x * 2, "text", 5

        def backward(ctx, g, text, number):
            assert text is number is None
            return g * 2

    x = leaf([1.0])
    y, text, number = Mixed(x)
    assert (text, number) == ("text", 5)
    y.sum().backward()
    same(x.grad, [2.0])


def test_mark_non_differentiable():
    @custom
    class Order:
        def forward(ctx, x):
            values, places = T.sort(x)
            ctx.mark_non_differentiable(places)
            ctx.save_for_backward(places)
            return values, places

        def backward(ctx, g, nothing):
            (places,) = ctx.saved_tensors
            assert array(nothing).tolist() == [0, 0, 0]
            return T.zeros(3).index_add(0, places, g)

    x = leaf([3.0, 1.0, 2.0])
    values, places = Order(x)
    assert values.requires_grad
    assert not places.requires_grad
    assert places.grad_fn is None
    (values * T.tensor([1.0, 10.0, 100.0])).sum().backward()
    same(x.grad, [100.0, 1.0, 10.0])


def test_mark_dirty():
    @custom
    class DoubleInPlace:
        def forward(ctx, x):
            ctx.mark_dirty(x)
            x.mul_(2)
            return x

        def backward(ctx, g):
            return g * 2

    x = leaf([1.0, 2.0])
    y = x + 0
    z = DoubleInPlace(y)
    assert z is y
    assert y.grad_fn.name() == "DoubleInPlaceBackward"
    z.sum().backward()
    same(x.grad, [2.0, 2.0])
    same(y, [2.0, 4.0])
    with raises(
        RuntimeError, "a leaf Variable that requires grad has been used in an in-place operation."
    ):
        DoubleInPlace(x)

    y = leaf([1.0, 2.0, 3.0, 4.0]) + 0
    DoubleInPlace(y[:2])
    assert repr(y.grad_fn).startswith("<CopySlices object")
    same(grad(y.sum(), y)[0], np.ones(4))


def test_dirty_inputs_are_returned():
    @custom
    class Forgetful:
        def forward(ctx, x):
            ctx.mark_dirty(x)
            x.mul_(2)
            return x * 2

        def backward(ctx, g):
            return g

    with raises(
        RuntimeError,
        "Some elements marked as dirty during the forward method were not returned as output. The "
        "inputs that are modified inplace must all be outputs of the Function.",
    ):
        Forgetful(leaf([1.0]) + 0)


def test_an_input_returned_as_it_is():
    class Sevenfold(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 7

    x = leaf([1.0, 2.0])
    y = Sevenfold.apply(x)
    assert y is not x
    assert y.data_ptr() == x.data_ptr()
    assert y.grad_fn.name() == "SevenfoldBackward"
    y.sum().backward()
    same(x.grad, [7.0, 7.0])
    with raises(RuntimeError, f"Output 0 of Sevenfold is a view and is being {WRITTEN}"):
        Sevenfold.apply(x + 0).add_(1)
    base = x + 0
    y = Sevenfold.apply(base)
    base.add_(1)
    with raises(
        RuntimeError,
        "Output 0 of Sevenfold is a view and its base or another view of its base has been "
        + WRITTEN,
    ):
        y.sum()
    plain_input = T.ones(2)
    with raises(
        RuntimeError,
        "A view was created in no_grad mode and is being "
        + WRITTEN.replace("inplace.", "inplace with grad mode enabled."),
    ):
        Sevenfold.apply(plain_input).mul_(x)
    with T.no_grad():
        y = Sevenfold.apply(x)
    assert y is not x
    assert not y.requires_grad
    assert x.requires_grad


WRITTEN = (
    "modified inplace. This view was created inside a custom Function (or because an input was returned "
    "as-is) and the autograd logic to handle view+inplace would override the custom backward associated "
    "with the custom Function, leading to incorrect gradients. This behavior is forbidden. You can fix "
    "this by cloning the output of the custom Function."
)


def test_a_view_that_a_custom_function_made_and_wrote():
    @custom
    class Part:
        def forward(ctx, x):
            part = x.clone()[1:]
            part += 2
            return part

        def backward(ctx, g):
            return T.cat([g.new_zeros(1), g * 5])

    x = leaf([1.0, 2.0, 3.0])
    y = Part(x)
    assert y.grad_fn.name() == "PartBackward"
    same(y.detach(), [4.0, 5.0])
    y.sum().backward()
    same(x.grad, [0.0, 5.0, 5.0])
    with raises(RuntimeError, f"Output 0 of Part is a view and is being {WRITTEN}"):
        Part(x).mul_(2)


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_lie_as_their_leaves(create_graph):
    x = T.ones(5, 4)
    by_hand = {
        "product": lambda w: (x @ w.t()).pow(2).sum(),
        "copy": lambda w: (w.t().contiguous() * T.arange(12.0).reshape(4, 3)).sum(),
        "turned": lambda w: (w * T.arange(12.0).reshape(3, 4)).sum(),
        "sum": lambda w: w.t().sum(0).sum(),
    }
    for function in by_hand.values():
        for w in (
            leaf(np.arange(12.0).reshape(3, 4).tolist()),
            leaf(np.arange(12.0).reshape(4, 3).tolist()).detach().t(),
        ):
            w.requires_grad_()
            for _ in range(12):  # machine code begins after some
                w.grad = None
                with quiet():
                    function(w).backward(create_graph=create_graph)
                assert w.grad.stride() == w.stride()
                assert not w.grad._is_view() or create_graph
            (wanted,) = grad(function(w), w)
            same(w.grad.detach(), wanted)
    w, turned = leaf(np.arange(12.0).reshape(3, 4).tolist()), T.ones(4, 3).t().clone()
    for _ in range(12):
        w.grad = None
        with quiet():
            (w + 1).backward(turned, create_graph=create_graph)
        assert w.grad.stride() == (4, 1)
    gaps = T.ones(3, 8)[:, ::2].requires_grad_()
    with quiet():
        by_hand["product"](gaps).backward(create_graph=create_graph)
    assert gaps.grad.stride() == (4, 1)


def test_what_forward_records_stays_inside():
    w = leaf([1.0, 2.0])

    @custom
    class Recording:
        def forward(ctx, x):
            with T.enable_grad():
                return w * x

        def backward(ctx, g):
            return g * 5

    assert not Recording(T.ones(2)).requires_grad
    x = leaf([1.0, 1.0])
    Recording(x).sum().backward()
    same(x.grad, [5.0, 5.0])
    assert w.grad is None


def test_an_input_returned_as_it_is_without_gradients():
    @custom
    class Constant:
        def forward(ctx, x):
            ctx.mark_non_differentiable(x)
            return x

        def backward(ctx, g):
            return g

    x = leaf([1.0])
    with T.no_grad():
        assert not Constant(x).requires_grad
    assert not Constant(x).requires_grad
    assert x.requires_grad


def test_grad_mode_inside_custom_functions():
    modes = []

    @custom
    class Mode:
        def forward(ctx, x):
            modes.append(T.is_grad_enabled())
            return x * 2

        def backward(ctx, g):
            modes.append(T.is_grad_enabled())
            return g * 2

    x = leaf([1.0])
    Mode(x).sum().backward()
    grad(Mode(x).sum(), x, create_graph=True)
    assert modes == [False, False, False, True]


class SquareOnce(T.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @T.autograd.function.once_differentiable
    def backward(ctx, g):
        assert not T.is_grad_enabled()
        (x,) = ctx.saved_tensors
        return 2 * g * x


def test_the_old_name_of_functions_in_place():
    function = importlib.import_module(f"{T.__name__}.autograd.function")

    class Double(function.InplaceFunction):
        @staticmethod
        def forward(ctx, x, inplace):
            ctx.inplace = inplace
            if inplace:
                ctx.mark_dirty(x)
                return x.mul_(2)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * (3 if ctx.inplace else 2), None

    assert issubclass(Double, T.autograd.Function)
    for inplace, wanted in ((False, 2.0), (True, 3.0)):
        x = T.ones(2, requires_grad=True)
        y = x * 1
        z = Double.apply(y, inplace)
        assert (z is y) == inplace
        z.sum().backward()
        assert x.grad.tolist() == [wanted] * 2


def test_once_differentiable():
    x, weight = leaf([1.0, 2.0]), leaf([1.0, 2.0])
    (g,) = grad((SquareOnce.apply(x) * weight).sum(), x, create_graph=True)
    same(g, [2.0, 8.0])
    assert g.requires_grad
    with raises(
        RuntimeError,
        "trying to differentiate twice a function that was marked with @once_differentiable",
    ):
        g.sum().backward()


@adjit_only
def test_once_differentiable_is_found_from_the_inputs():
    x, weight = leaf([1.0, 2.0]), leaf([1.0, 2.0])
    (g,) = grad((SquareOnce.apply(x) * weight).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="trying to differentiate twice"):
        grad(g.sum() + x.sum(), x)  # else the part through `g` would be left out


def test_setup_context_gets_defaults():
    class Power(T.autograd.Function):
        @staticmethod
        def forward(x, n=3):
            return x**n

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.n = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, g):
            with quiet():
                (x,) = ctx.saved_variables  # the old name
            return g * ctx.n * x ** (ctx.n - 1), None

    x = leaf([1.0, 2.0])
    same(grad(Power.apply(x).sum(), x)[0], [3.0, 12.0])
    same(grad(Power.apply(x, 2).sum(), x)[0], [2.0, 4.0])
    same(grad(Power.apply(x, n=2).sum(), x)[0], [2.0, 4.0])


def test_setup_context():
    class Scale(T.autograd.Function):
        @staticmethod
        def forward(x, n):
            return x * n

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.n = inputs
            assert output.shape == x.shape
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx, g):
            (output,) = ctx.saved_tensors
            same(output, [3.0, 6.0])
            return g * ctx.n, None

    x = leaf([1.0, 2.0])
    Scale.apply(x, 3).sum().backward()
    same(x.grad, [3.0, 3.0])


def test_vjp_is_another_name_of_backward():
    class Double(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def vjp(ctx, g):
            return g * 2

    x = leaf([1.0])
    Double.apply(x).sum().backward()
    same(x.grad, [2.0])


def test_incomplete_custom_functions():
    with raises(
        NotImplementedError, "You must implement the forward function for custom autograd.Function."
    ):
        T.autograd.Function.apply(leaf([1.0]))

    class OneWay(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    with raises(
        NotImplementedError,
        "You must implement either the backward or vjp method for your custom autograd.Function "
        "to use it with backward mode AD.",
    ):
        OneWay.apply(leaf([1.0])).sum().backward()

    class TwoWays(OneWay):
        @staticmethod
        def backward(ctx, g):
            return g * 2

        @staticmethod
        def vjp(ctx, g):
            return g * 2

    with raises(
        RuntimeError,
        "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only "
        "implement one of them.",
    ):
        TwoWays.apply(leaf([1.0])).sum().backward()


def test_backward_inside_backward():
    class Nested(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with T.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.y = ctx.x**2
            return ctx.y.detach()

        @staticmethod
        def backward(ctx, g):
            with T.enable_grad():
                ctx.y.backward(g)
            return ctx.x.grad

    x = leaf([1.0, 2.0])
    (Nested.apply(x * 3) * 2).sum().backward()
    same(x.grad, [36.0, 72.0])


# ---------------------------------------------------------------- size and threads

DEPTH = 200_000


def test_a_deep_chain():
    x = leaf([1.0])
    y = x
    for _ in range(DEPTH):
        y = y + 1
    y.sum().backward()
    same(x.grad, [1.0])
    same(y, [DEPTH + 1.0])
    inner = weakref.ref(y)
    del y
    gc.collect()
    assert inner() is None


def test_a_deep_chain_that_is_dropped():
    x = leaf([1.0])
    y = x
    for _ in range(DEPTH // 4):
        y = y * 1.0
    inner = weakref.ref(y)
    del y
    gc.collect()
    assert inner() is None
    (x * 2).sum().backward()
    same(x.grad, [2.0])


@adjit_only
def test_a_deep_chain_of_in_place_writes_and_views():
    x = leaf([1.0, 1.0])
    y = x * 1
    for _ in range(1_000):
        y[0] += 1
        y = y.view(2)
    y.sum().backward()
    same(x.grad, [1.0, 1.0])
    same(y, [1001.0, 1.0])


def test_a_wide_graph():
    x = leaf([1.0, 2.0])
    T.stack([x * i for i in range(2_000)]).sum().backward()
    same(x.grad, np.full(2, 1999 * 1000.0))


def in_threads(work, count=4):
    failures = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:  # re-raised in the main thread
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_threads_with_their_own_graphs():
    def work(number):
        for turn in range(20):
            x = leaf([float(number), float(turn)])
            (x.sin() * x).sum().backward()
            v = np.array([number, turn], dtype=float)
            same(x.grad, np.cos(v) * v + np.sin(v), rtol=1e-5, atol=1e-5)

    in_threads(work)


def test_threads_that_share_a_leaf():
    x = T.ones(1000, requires_grad=True)

    def work(number):
        for _ in range(25):
            (x * (number + 1)).sum().backward()

    in_threads(work)
    same(x.grad, np.full(1000, 25.0 * (1 + 2 + 3 + 4)))


def test_threads_that_share_a_graph():
    x = leaf([1.0, 2.0])
    y = (x * x).exp().sum()

    def work(_):
        for _ in range(10):
            same(
                grad(y, x, retain_graph=True)[0],
                2 * np.array([1, 2]) * np.exp([1.0, 4.0]),
                rtol=1e-5,
            )

    in_threads(work)


def test_a_graph_built_here_and_differentiated_there():
    x = leaf([1.0, 2.0])
    y = (x * x).sum()
    in_threads(lambda _: y.backward(), count=1)
    same(x.grad, [2.0, 4.0])


def test_backward_in_a_thread_while_this_one_records():
    x = leaf([1.0, 2.0])
    y = x
    for _ in range(3_000):
        y = y + 1
    total = y.sum()
    worker = threading.Thread(target=total.backward)
    worker.start()
    z = x
    for _ in range(1_000):
        z = z * 1.0
    worker.join()
    same(x.grad, [1.0, 1.0])
    same(z, [1.0, 2.0])


PAIRS = {
    "mm": lambda a, b: a @ b,
    "bmm": lambda a, b: T.bmm(a[None], b[None]),
    "mv": lambda a, b: a @ b[0],
    "linear": T.nn.functional.linear,
    "outer": lambda a, b: T.outer(a[0], b[0]),
    "cat": lambda a, b: T.cat([a, b]),
    "stack": lambda a, b: T.stack([b, a, b]),
    "by name": lambda a, b: T.mm(mat2=a, input=b),
    "index_add": lambda a, b: a.index_add(0, T.arange(3), b),
    "scatter_add": lambda a, b: a.scatter_add(0, T.zeros(3, 3, dtype=T.int64), b),
    "masked_scatter": lambda a, b: a.masked_scatter(a > 0.5, b),
    "layer_norm": lambda a, b: T.nn.functional.layer_norm(a, (3,), b[0], a[0]),
    "conv2d": lambda a, b: T.nn.functional.conv2d(a[None, None], b[None, None]),
    "cross": lambda a, b: T.cross(a, b, dim=1),
    "mse": T.nn.functional.mse_loss,
    "mul": T.mul,
    "lerp": lambda a, b: T.lerp(a, b, a),
}


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("name", PAIRS)
def test_a_tensor_that_was_both_operands_before_does_not_count_for_two(name):
    function = PAIRS[name]
    T.manual_seed(0)
    x, y = (T.rand(3, 3, dtype=T.float64, requires_grad=True) for _ in range(2))
    for _ in range(4):
        function(x, x).pow(2).sum().backward()
    assert T.autograd.gradcheck(function, (x, y))
    assert T.autograd.gradcheck(lambda a: function(a, a), (x,))


@pytest.mark.parametrize(
    "off", [lambda t: t.requires_grad_(False), lambda t: setattr(t, "requires_grad", False)]
)
@pytest.mark.parametrize("hooked", [False, True])
def test_a_leaf_that_no_longer_wants_gradients_gets_none(off, hooked):
    x, w, called = leaf([1.0, 2.0]), leaf([3.0, 4.0]), []
    if hooked:
        x.register_hook(lambda g: called.append("hook"))
        x.register_post_accumulate_grad_hook(lambda t: called.append("accumulated"))
    y = x * w
    off(x)
    y.sum().backward(retain_graph=True)
    assert x.grad is None
    same(w.grad, [1.0, 2.0])
    assert called == ["hook"] * hooked
    x.requires_grad_()
    y.sum().backward()
    same(x.grad, [3.0, 4.0])
    off(x)
    kept = x.grad.clone()
    (w * x).sum().backward()
    same(x.grad, kept.tolist())


def test_variable_is_a_class_of_tensors():
    import adjit

    Variable = adjit.autograd.Variable
    x = Variable(adjit.ones(2), requires_grad=True)
    assert type(x) is adjit.Tensor
    assert x.requires_grad
    assert isinstance(x, Variable)
    assert isinstance(adjit.nn.Parameter(adjit.ones(1)), Variable)
    assert not isinstance(3.0, Variable)
    assert not issubclass(adjit.Tensor, Variable)
    with pytest.raises(TypeError, match=r"^Variable data has to be a tensor, but got list$"):
        Variable([1.0])


def test_gradients_that_only_the_walk_has_seen_are_no_views():
    """The first calls gave a view of a number that nobody knew; writes into it were refused."""
    import adjit

    x = adjit.tensor([-0.75], requires_grad=True)
    for _ in range(4):
        (g,) = adjit.autograd.grad(x.mean(), x)
        assert not g._is_view()
        g += x
        assert g.tolist() == [0.25]


@pytest.mark.parametrize("calls", [1, 12])
def test_gradients_with_a_graph_are_memory_of_their_own(calls):
    """Leaves that are given the same gradient, or views of one, have one each, as without `create_graph`."""
    for _ in range(calls):
        p, q, b = leaf(np.ones((2, 3))), leaf(np.ones((2, 3))), leaf(np.ones(3))
        ((p + q + b) ** 2).sum().backward(create_graph=True)
        assert p.grad.requires_grad
        assert not any(t.grad._is_view() for t in (p, q, b))
        with T.no_grad():
            p.grad.mul_(3)
        assert p.grad.tolist() == [[18.0] * 3] * 2
        assert q.grad.tolist() == [[6.0] * 3] * 2
        for t in (p, q, b):
            t.grad.detach_().zero_()
        given = T.ones(3)
        b.grad = None
        b.backward(given, create_graph=True)
        with T.no_grad():
            b.grad.mul_(3)
        assert given.tolist() == [1.0] * 3


def test_gradients_with_a_graph_lead_on():
    p, q = leaf(np.array([1.0, 2.0])), leaf(np.array([3.0, 4.0]))
    ((p * q) ** 3).sum().backward(create_graph=True)
    (p.grad * q.grad).sum().backward()
    same = 9 * np.array([1.0, 2.0]) ** 5 * np.array([3.0, 4.0]) ** 5
    x = np.array([3.0, 8.0])
    np.testing.assert_allclose(array(p.grad), 3 * x**2 * [3.0, 4.0] + 5 * same / [1.0, 2.0])


@pytest.mark.parametrize("depth", [61, 250])
def test_backward_passes_inside_of_each_other(depth: int) -> None:
    """Some 180 in each other went beyond what Python allows in one thread; they go on in others."""
    seen = []

    class Doubled(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, left):
            ctx.left = left
            return x * 2

        @staticmethod
        def backward(ctx, g):
            seen.append(T.is_grad_enabled())
            if not ctx.left:
                return g * 2, None
            with T.enable_grad():
                z = T.ones(1, requires_grad=True)
                Doubled.apply(z, ctx.left - 1).sum().backward()
            return g * 2 + z.grad, None

    x = T.ones(1, requires_grad=True)
    Doubled.apply(x, depth).sum().backward()
    assert x.grad.item() == 2.0 * (depth + 1)
    assert seen == [False] * (depth + 1)
    assert T.is_grad_enabled()


@adjit_only  # PyTorch ends with another error in its other threads
def test_an_error_inside_of_backward_passes_inside_of_each_other() -> None:
    def run(left: int) -> None:
        with T.enable_grad():
            y = T.ones(1, requires_grad=True) * 2
            if left:
                y.register_hook(lambda g: run(left - 1))
            else:
                y.register_hook(lambda g: 1 / 0)
            y.backward()

    with pytest.raises(ZeroDivisionError):
        run(130)
    x = T.ones(1, requires_grad=True)
    (x * 3).backward()
    assert x.grad.item() == 3
    assert T.is_grad_enabled()
