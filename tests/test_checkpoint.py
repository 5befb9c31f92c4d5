"""What backward keeps: hooks on saved tensors, edges and nodes of the graph, parts computed again."""

from __future__ import annotations

import functools
import importlib
import threading
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from library import T, array, leaf, raises, same

from adjit.graph import saved
from adjit.schedule import plan_cache
from adjit.schedule import settle as scheduling

torch = pytest.importorskip("torch")
graph = T.autograd.graph
checkpoint = T.utils.checkpoint.checkpoint
F = T.nn.functional


def refused(error: type[BaseException], text: str, action: Callable[[], Any]) -> None:
    """An action raises an error of exactly this text."""
    with raises(error, text):
        action()


@functools.cache
def run_until_compiled(program: Callable[[], Any]) -> None:
    """Run often enough that recording and plans are machine code."""
    for _ in range(12):
        program()
    plan_cache.wait()


# ---------------------------------------------------------------- hooks on what is saved


def layers(x: Any, w: Any) -> Any:
    """Elementwise ops, operations with kernels of their own, views, writes in place."""
    y = F.linear(x, w).sigmoid() * 2
    y.mul_(y.exp())
    y[0] = y[1] * 3
    z = y.softmax(-1).square().sum() + (x.relu().matmul(w.t()) ** 3).mean()
    return z + F.layer_norm(x, (4,)).std() + x[[0, 2]].max(0).values.sum() + w.cumsum(0).prod()


def gradients(hooks: Any, order: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    x, w = (
        T.tensor(rng.normal(size=shape), dtype=T.float64, requires_grad=True)
        for shape in [(3, 4), (5, 4)]
    )
    with hooks:
        z = layers(x, w)
    found = T.autograd.grad(z, [x, w], create_graph=order == 2)
    if order == 2:
        found += T.autograd.grad((found[0] ** 2).sum() + found[1].prod(), [x, w])
    return [array(g) for g in found]


def plain_gradients() -> None:
    gradients(nullcontext(), 1)


HOOKS: dict[str, Callable[[], Any]] = {
    "identity": lambda: graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    "arrays": lambda: graph.saved_tensors_hooks(lambda t: t.numpy().copy(), T.tensor),
    "computed": lambda: graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2),
    "views": lambda: graph.saved_tensors_hooks(
        lambda t: t.unsqueeze(0).repeat(2, *[1] * t.ndim), lambda t: t[1]
    ),
    "on the CPU": lambda: graph.save_on_cpu(),
    "pinned": lambda: graph.save_on_cpu(pin_memory=True),
    "mutable": lambda: graph.allow_mutation_on_saved_tensors(),
}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("hooks", HOOKS.values(), ids=HOOKS.keys())
def test_gradients_are_the_same_with_hooks(hooks, order):
    run_until_compiled(plain_gradients)
    for mine, wanted in zip(
        gradients(hooks(), order), gradients(nullcontext(), order), strict=True
    ):
        np.testing.assert_allclose(mine, wanted, rtol=1e-12, atol=1e-12)


def test_hooks_see_each_tensor_once_and_only_inside_of_the_block():
    run_until_compiled(plain_gradients)
    seen: list[tuple[str, Any]] = []

    def pack(t):
        assert not t.requires_grad
        assert not T.is_grad_enabled()
        seen.append(("pack", t.tolist()))
        return t

    def unpack(t):
        seen.append(("unpack", t.tolist()))
        return t

    a, b = leaf([2.0]), leaf([3.0])
    with graph.saved_tensors_hooks(pack, unpack):
        y = a * b
    z = y.exp()
    assert seen == [("pack", [2.0]), ("pack", [3.0])]
    z.backward(retain_graph=True)
    assert seen[2:] == [("unpack", [2.0]), ("unpack", [3.0])]
    assert y.grad_fn._saved_self.tolist() == [2.0]
    assert y.grad_fn.name() == "MulBackward0"
    assert [fn.name() for fn, _ in y.grad_fn.next_functions] == [
        "torch::autograd::AccumulateGrad"
    ] * 2
    z.backward()
    refused(RuntimeError, saved.FREED, lambda: z.backward())


def test_what_hooks_give_back_for_a_leaf_is_a_leaf():
    x = leaf([2.0])
    with graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = x.pow(3)
    saved_x = y.grad_fn._saved_self
    assert saved_x.is_leaf
    assert saved_x.grad_fn is None
    assert repr(saved_x) == "tensor([2.], requires_grad=True)"
    (saved_x * 5).backward()
    assert saved_x.grad is None
    assert x.grad.tolist() == [5.0]
    (slope,) = T.autograd.grad(y, x, create_graph=True)
    assert T.autograd.grad(slope, x)[0].tolist() == [12.0]


def test_a_hook_that_writes_into_what_it_is_given_is_refused():
    text = (
        "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook "
        "cannot be modified by in-place operations as this can lead to unexpected side-effects. Please open "
        "an issue if you need to perform in-place operations on the input to a pack hook."
    )
    with graph.saved_tensors_hooks(lambda t: t.add_(1), lambda t: t):
        refused(RuntimeError, text, lambda: leaf([2.0]).exp())


@pytest.mark.parametrize("early_stop", [True, False])
def test_a_backward_inside_of_a_checkpoint(early_stop):
    def f(x):
        a, b = x.sin().exp(), x.cos().exp()
        (g,) = T.autograd.grad(a.sum(), x)
        return (b * g).sin()

    x = leaf([0.5, 2.0])
    (wanted,) = T.autograd.grad(f(x).sum(), x)
    made = checkpoint(f, x, use_reentrant=False, early_stop=early_stop)
    same(T.autograd.grad(made.sum(), x)[0], wanted)


def test_the_innermost_hooks_act():
    x = leaf([2.0])
    names = []
    with graph.saved_tensors_hooks(lambda t: names.append("outer") or t, lambda t: t):
        y = x.exp()
        with graph.saved_tensors_hooks(lambda t: names.append("inner") or t, lambda t: t):
            y = y.exp()
        y = y.exp()
    assert names == ["outer", "inner", "outer"]


def test_hooks_belong_to_a_thread():
    x = leaf([2.0])
    with graph.saved_tensors_hooks(lambda t: pytest.fail("another thread's"), lambda t: t):
        results = []
        thread = threading.Thread(target=lambda: results.append(x.exp()))
        thread.start()
        thread.join()
    results[0].backward()


def test_hooks_of_a_function_of_the_user():
    class Square(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * x
            ctx.save_for_backward(x, None, y)
            return y

        @staticmethod
        def backward(ctx, g):
            x, nothing, y = ctx.saved_tensors
            assert nothing is None
            assert y.grad_fn is not None
            return g * 2 * x + 0 * y

    x = leaf([1.0, 3.0])
    packed = []
    with graph.saved_tensors_hooks(lambda t: packed.append(t) or t.numpy().copy(), T.tensor):
        y = Square.apply(x)
    y.sum().backward()
    same(x.grad, [2.0, 6.0])
    assert len(packed) == 2


def test_what_is_packed_keeps_its_value_when_the_tensor_is_written():
    x = leaf([1.0, 2.0])
    with graph.allow_mutation_on_saved_tensors():
        y = x * 1
        z = y.sin()
        y.detach().zero_()
        y.mul_(3)
    z.sum().backward()
    np.testing.assert_allclose(array(x.grad), np.cos([1.0, 2.0]), rtol=1e-6)

    memory = np.ones(2, np.float32)
    with graph.allow_mutation_on_saved_tensors():
        z = leaf([5.0, 6.0]) * T.from_numpy(memory)
        memory[:] = 100
    (gradient,) = T.autograd.grad(z.sum(), z.grad_fn.next_functions[0][0].variable)
    same(gradient, [1.0, 1.0])


def test_an_unpack_hook_that_gives_no_tensor():
    with graph.saved_tensors_hooks(lambda t: t, lambda t: 3):
        y = leaf([2.0]).exp()
    refused(
        TypeError,
        "Output of saved tensor unpack_hook expected to be a Tensor but got result of type int",
        lambda: y.backward(),
    )


def test_errors_of_hooks_come_through_and_leave_no_hooks():
    def refuse(t):
        raise KeyError("no")

    with pytest.raises(KeyError), graph.saved_tensors_hooks(refuse, refuse):
        leaf([2.0]).exp()
    leaf([2.0]).exp().backward()


@pytest.mark.parametrize("lib", [T, torch], ids=["ours", "torch"])
def test_hooks_may_be_refused(lib):
    g = lib.autograd.graph
    with g.disable_saved_tensors_hooks("not here"):
        with g.disable_saved_tensors_hooks("nor here"):
            refused(RuntimeError, "nor here", lambda: g.save_on_cpu().__enter__())
        refused(RuntimeError, "not here", lambda: g.save_on_cpu().__enter__())
    with g.save_on_cpu():
        refused(RuntimeError, "later", lambda: g.disable_saved_tensors_hooks("later").__enter__())
    with g.save_on_cpu():
        pass


def test_compiled_functions_run_as_usual_with_hooks():
    x = leaf([1.0, 2.0])
    packed = []

    def step(x):
        return (x.sin() * x).sum()

    compiled = T.compile(step)
    for _ in range(4):
        x.grad = None
        compiled(x).backward()
    wanted = array(x.grad)
    for _ in range(4):
        packed.clear()
        with graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
            y = compiled(x)
        assert len(packed) == 3
        x.grad = None
        y.backward()
        np.testing.assert_array_equal(array(x.grad), wanted)


def test_hooks_inside_of_a_compiled_function():
    x = leaf([1.0, 2.0])
    packed = []

    @T.compile
    def step(x):
        with graph.saved_tensors_hooks(lambda t: packed.append(t) or t.numpy().copy(), T.tensor):
            y = (x.sin() * x).sum()
        y.backward()
        return y.detach()

    for k in range(6):
        x.grad = None
        with T.no_grad():
            x.add_(0.5)
        step(x)
        assert len(packed) == 3 * (k + 1)
        wanted = np.cos(array(x)) * array(x) + np.sin(array(x))
        np.testing.assert_allclose(array(x.grad), wanted, rtol=1e-6)


# ---------------------------------------------------------------- nodes and edges


@pytest.mark.parametrize("lib", [T, torch], ids=["ours", "torch"])
def test_nodes_and_edges(lib):
    g = lib.autograd.graph
    x = lib.ones(2, requires_grad=True)
    y = (x * 3).exp()
    assert isinstance(y.grad_fn, g.Node)
    assert isinstance(g.get_gradient_edge(x).node, g.Node)
    assert not isinstance(x, g.Node)
    edge = g.get_gradient_edge(y)
    assert edge.node is y.grad_fn
    assert edge.output_nr == 0
    middle = g.get_gradient_edge(y).node.next_functions[0]
    for inputs in ([g.get_gradient_edge(x)], g.get_gradient_edge(x), [x, g.GradientEdge(*middle)]):
        found = lib.autograd.grad(y.sum(), inputs, retain_graph=True)
        np.testing.assert_allclose(found[0].numpy(), 3 * np.exp(3.0), rtol=1e-6)
    np.testing.assert_allclose(found[1].numpy(), np.exp(3.0), rtol=1e-6)
    refused(
        RuntimeError,
        "It is not possible to get the gradient edge for a Tensor that does not require gradients",
        lambda: g.get_gradient_edge(lib.ones(2)),
    )


def test_edges_to_begin_at():
    found = []
    for lib in (torch, T):
        edge = lib.autograd.graph.get_gradient_edge
        x = lib.tensor([1.0, 2.0], requires_grad=True)
        g = lib.tensor([1.0, 10.0])
        made = [
            *lib.autograd.grad(edge((x * x).sum()), x),
            *lib.autograd.grad(edge(x * x), x, grad_outputs=g),
            *lib.autograd.grad([edge(x * x)], edge(x), grad_outputs=[g]),
            *lib.autograd.grad(edge(x), x, grad_outputs=g),
        ]
        lib.autograd.backward([edge(x * x), (x * 3).sum()], [g, None])
        made.append(x.grad)
        x.grad = None
        lib.autograd.backward(edge((x * 2).split(1)[1]), lib.ones(1))
        made.append(x.grad)
        (again,) = lib.autograd.grad(edge(x**3), x, grad_outputs=g, create_graph=True)
        made += lib.autograd.grad(again.sum(), x)
        found.append([t.tolist() for t in made])
        with pytest.raises(
            RuntimeError, match="grad can be implicitly created only for scalar outputs"
        ):
            lib.autograd.grad(edge(x * x), x)
        with pytest.raises(
            RuntimeError, match="materialize_grads cannot be used when the given input"
        ):
            lib.autograd.grad(edge(x * x), edge(x.exp()), g, materialize_grads=True)
        told = r"Mismatch in shape: grad_output\[0\] has a shape of torch.Size\(\[3\]\) and output\[0\] has"
        with pytest.raises(RuntimeError, match=told):
            lib.autograd.grad(edge(x * x), x, grad_outputs=lib.ones(3))
    assert found[0] == found[1]


@pytest.mark.parametrize("lib", [T, torch], ids=["ours", "torch"])
def test_increment_version(lib):
    x = lib.ones(2, requires_grad=True)
    y, z = x.exp(), x * 2
    lib.autograd.graph.increment_version([y, z])
    assert (y._version, z._version) == (1, 1)
    with pytest.raises(RuntimeError, match="is at version 1; expected version 0 instead"):
        y.sum().backward()
    with lib.inference_mode():
        inference = lib.ones(2)
    lib.autograd.graph.increment_version(inference)


@pytest.mark.parametrize("lib", [T, torch], ids=["ours", "torch"])
def test_multi_grad_hooks(lib):
    a, b = (lib.ones(2, requires_grad=True) for _ in range(2))
    c, d = a * b, a * b
    seen: list[Any] = []
    g = lib.autograd.graph
    handle = g.register_multi_grad_hook(
        [a, b, c, d], lambda grads: seen.append([grad is not None for grad in grads])
    )
    c.sum().backward(retain_graph=True)
    c.sum().backward(inputs=(a,), retain_graph=True)
    (c + d).sum().backward(retain_graph=True)
    assert seen == [[True, True, True, False], [True, False, True, False], [True] * 4]
    handle.remove()
    with g.register_multi_grad_hook([c, b], lambda grad: seen.append(grad.tolist()), mode="any"):
        (c * 3).sum().backward(retain_graph=True)
        (c * 4).sum().backward(retain_graph=True)
    c.sum().backward()
    assert seen[3:] == [[3.0, 3.0], [4.0, 4.0]]
    refused(
        ValueError,
        "Expects mode to be one of ('all', 'any') but got some",
        lambda: g.register_multi_grad_hook([a], print, mode="some"),
    )


# ---------------------------------------------------------------- parts computed again


def model(lib: Any) -> Any:
    rng = np.random.default_rng(1)
    made = lib.nn.Sequential(
        lib.nn.Linear(4, 8), lib.nn.Tanh(), lib.nn.Linear(8, 8), lib.nn.GELU(), lib.nn.Linear(8, 3),
    )  # fmt: skip
    with lib.no_grad():
        for p in made.parameters():
            p.copy_(lib.tensor(rng.normal(size=tuple(p.shape)), dtype=p.dtype))
    return made


def gradients_of_model(call: Callable[[Any, Any], Any]) -> list[np.ndarray]:
    net = model(T)
    x = T.tensor(np.random.default_rng(2).normal(size=(5, 4)), dtype=T.float32, requires_grad=True)
    call(net, x).square().sum().backward()
    return [array(t.grad) for t in (x, *net.parameters())]


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "whole": lambda net, x: checkpoint(net, x, use_reentrant=False),
    "whole, to its end": lambda net, x: checkpoint(net, x, use_reentrant=False, early_stop=False),
    "reentrant": lambda net, x: checkpoint(net, x, use_reentrant=True),
    "nested": lambda net, x: checkpoint(
        lambda x: net[3:](checkpoint(net[:3], x, use_reentrant=False)), x, use_reentrant=False
    ),
    "with names": lambda net, x: checkpoint(
        lambda a, *, net: net(a), x, net=net, use_reentrant=False
    ),
    **{
        f"sequential, {n} segments, {'reentrant' if reentrant else 'not'}": (
            lambda net, x, n=n, reentrant=reentrant: T.utils.checkpoint.checkpoint_sequential(
                net, n, x, use_reentrant=reentrant
            )
        )
        for n in (1, 2, 5)
        for reentrant in (True, False)
    },
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_gradients_of_checkpoints_are_those_without(call):
    wanted = gradients_of_model(lambda net, x: net(x))
    for _ in range(10):
        for mine, theirs in zip(gradients_of_model(call), wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)


def test_the_function_is_called_again_in_backward_and_what_it_saves_is_not_kept():
    calls = []

    def f(x):
        calls.append(T.is_grad_enabled())
        return x.exp().sin().exp()

    x = leaf([1.0, 2.0])
    y = checkpoint(f, x, use_reentrant=False)
    assert calls == [True]
    (first,) = T.autograd.grad(y.sum(), x, retain_graph=True)
    assert calls == [True, True]
    (second,) = T.autograd.grad(y.sum(), x)
    assert calls == [True, True, True]
    same(first, second.tolist())
    calls.clear()
    y = checkpoint(f, x, use_reentrant=True)
    assert calls == [False]
    y.sum().backward()
    assert calls == [False, True]
    same(x.grad, first.tolist())


@pytest.mark.parametrize("reentrant", [False, True])
def test_less_memory_is_kept_and_all_of_it_is_freed(reentrant):
    def rows(x):
        for _ in range(4):
            x = (x @ x).softmax(-1)
        return x

    def kept(call) -> float:
        """Results of the size of `x` that are alive between forward and backward."""
        x = T.rand(256, 256).requires_grad_()
        scheduling.settle()
        before = T.memory_stats()["live"]
        y = call(x)
        y.sum().item()
        live = T.memory_stats()["live"] - before
        node = weakref.ref(y.grad_fn)
        del y
        assert node() is None  # without a collection
        return live / x.numel() / 4

    assert kept(rows) == 4
    assert kept(lambda x: checkpoint(rows, x, use_reentrant=reentrant)) == 1


def test_early_stop():
    ends = []

    def f(x):
        y = x.exp()
        z = y.sum()
        ends.append("end")
        return z

    x = leaf([1.0])
    checkpoint(f, x, use_reentrant=False).backward()
    assert ends == ["end"]
    checkpoint(f, x, use_reentrant=False, early_stop=False).backward()
    assert ends == ["end"] * 3
    with T.utils.checkpoint.set_checkpoint_early_stop(False):
        y = checkpoint(f, x, use_reentrant=False)
    y.backward()
    assert ends == ["end"] * 5


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("preserve", [True, False])
def test_random_numbers_are_drawn_again(reentrant, preserve):
    drawn = []

    def f(x):
        mask = T.rand(100) < 0.5
        drawn.append(mask.tolist())
        return x * mask

    x = T.ones(100, requires_grad=True)
    T.manual_seed(3)
    y = checkpoint(f, x, use_reentrant=reentrant, preserve_rng_state=preserve)
    after = T.rand(3).tolist()
    state = T.get_rng_state()
    y.sum().backward()
    assert (drawn[0] == drawn[1]) == preserve
    if preserve:
        assert T.get_rng_state().tolist() == state.tolist()
        same(x.grad, array(T.tensor(drawn[0])).astype(float))
    T.manual_seed(3)
    T.rand(100)
    assert T.rand(3).tolist() == after


def test_higher_derivatives_of_checkpoints():
    x = leaf([0.5, 1.5], dtype=T.float64)
    assert T.autograd.gradgradcheck(lambda x: checkpoint(T.sin, x.exp(), use_reentrant=False), x)


def test_contexts_of_a_checkpoint():
    log = []

    class Context:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            log.append(self.name)

        def __exit__(self, *_):
            pass

    x = leaf([1.0])
    y = checkpoint(
        T.exp, x, use_reentrant=False, context_fn=lambda: (Context("call"), Context("again"))
    )
    y.backward()
    assert log == ["call", "again"]


def test_a_function_that_saves_something_else_the_second_time():
    def changing(functions):
        return checkpoint(lambda x: functions.pop()(x), leaf([1.0, 2.0]), use_reentrant=False)

    error = T.utils.checkpoint.CheckpointError
    y = changing([T.sin, lambda x: x.sin().exp()])
    with pytest.raises(error, match="A different number of tensors was saved"):
        y.sum().backward()
    y = changing([lambda x: x[:1].sin(), T.sin])
    with pytest.raises(error, match="have different metadata than during the forward pass"):
        y.sum().backward()
    x = leaf([1.0])
    functions = [lambda x: x.sin().exp(), T.sin]
    y = checkpoint(lambda x: functions.pop()(x), x, use_reentrant=False, early_stop=False)
    with pytest.raises(error, match="trying to save more tensors during recomputation"):
        y.sum().backward()


@pytest.mark.parametrize("lib", [T, torch], ids=["ours", "torch"])
def test_errors_and_warnings_of_checkpoints(lib):
    module = importlib.import_module(f"{lib.__name__}.utils.checkpoint")
    x = lib.ones(2, requires_grad=True)
    refused(
        ValueError,
        "Unexpected keyword arguments: scale",
        lambda: module.checkpoint(lib.sin, x, use_reentrant=True, scale=1),
    )
    refused(
        ValueError,
        "Passing `context_fn` or `debug` is only supported when use_reentrant=False.",
        lambda: module.checkpoint(lib.sin, x, use_reentrant=True, debug=True),
    )
    refused(
        ValueError,
        "determinism_check should be one of ['default', 'none'], but got all",
        lambda: module.checkpoint(lib.sin, x, use_reentrant=False, determinism_check="all"),
    )
    with pytest.warns(UserWarning, match="the use_reentrant parameter should be passed explicitly"):
        module.checkpoint(lib.sin, x)
    with pytest.warns(UserWarning, match="the use_reentrant parameter should be passed explicitly"):
        module.checkpoint_sequential([lib.sin], 1, x)
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        module.checkpoint(lib.sin, lib.ones(2), use_reentrant=True)
    y = module.checkpoint(lib.sin, x, use_reentrant=True)
    with pytest.raises(RuntimeError, match=r"checkpoint is incompatible with \.grad\(\)"):
        lib.autograd.grad(y.sum(), x, retain_graph=True)
    with pytest.raises(RuntimeError, match=r"checkpoint is incompatible with \.grad\(\)"):
        y.sum().backward(inputs=[x])
    y = module.checkpoint(lambda x: x.detach(), x, use_reentrant=True)
    refused(
        RuntimeError,
        "none of output has requires_grad=True, this checkpoint() is not necessary",
        lambda: y.sum().backward(),
    )
