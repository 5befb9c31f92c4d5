"""Batch, instance and group normalisation beside PyTorch: values, statistics, gradients, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from against_torch import (
    agree,
    agree_in_error,
    agree_in_gradients,
    agree_in_warning,
    backward_name,
)

import adjit
from adjit.autograd import forward_ad

RANDOM = np.random.default_rng(7)


def functional(T: Any) -> Any:
    return T.nn.functional


def in_c_order(t: Any) -> Any:
    return t


def channels_last(t: Any) -> Any:
    """The same elements, those of all channels side by side."""
    axes = range(t.ndim)
    return t.permute(0, *axes[2:], 1).contiguous().permute(0, t.ndim - 1, *axes[1:-1])


def normal(*shape: int, dtype: Any = np.float64) -> Any:
    return RANDOM.standard_normal(shape).astype(dtype)


layouts = pytest.mark.parametrize("layout", [in_c_order, channels_last])

# One channel, more channels and rows than a kernel takes at once, long planes, no planes.
SHAPES = [(2, 1, 3), (3, 300, 2, 2), (600, 3, 1, 2), (2, 2, 70, 70), (9, 5), (2, 3, 2, 2, 2)]


@layouts
def test_training_values_and_statistics(layout: Callable[[Any], Any]) -> None:
    for shape in SHAPES:
        x = normal(*shape, dtype=np.float32) * 3 + 100
        w, b, mean, var = np.abs(normal(4, shape[1], dtype=np.float32)) + 0.5

        def call(T: Any, x: Any, w: Any, b: Any, mean: Any, var: Any) -> Any:
            out = functional(T).batch_norm(layout(x), mean, var, w, b, True, 0.3, 1e-3)
            return out, mean, var

        agree(call, x, w, b, mean, var, rtol=2e-4, atol=2e-4)


def test_the_mean_costs_no_digits() -> None:
    x = normal(4, 2, 50, 50) + 1e4
    wanted = (x - x.mean((0, 2, 3), keepdims=True)) / x.std((0, 2, 3), keepdims=True)
    for layout in (in_c_order, channels_last):
        t = layout(adjit.tensor(x.astype(np.float32)))
        out = functional(adjit).batch_norm(t, None, None, training=True)
        np.testing.assert_allclose(out.numpy(), wanted, atol=2e-3)  # x itself is rounded to 1e-3


@layouts
def test_gradients(layout: Callable[[Any], Any]) -> None:
    x, w, b = normal(3, 4, 2, 3), *normal(2, 4)
    mean, var = normal(4), RANDOM.random(4) + 0.5
    for training in (True, False):

        def call(T: Any, x: Any, w: Any, b: Any, training: bool = training) -> Any:
            running = T.tensor(mean), T.tensor(var)
            return functional(T).batch_norm(layout(x), *running, w, b, training, eps=0.1)

        agree_in_gradients(call, x, w, b)
        # PyTorch's second derivatives fail where the weight is missing.
        agree_in_gradients(lambda T, x, b, f=call: f(T, x, None, b), x, b, order=1)
        agree_in_gradients(lambda T, x, w, f=call: f(T, x, w, None), x, w)
        leaves = [adjit.tensor(a, requires_grad=True) for a in (x[:2, :, :1, :2], b)]
        assert adjit.autograd.gradgradcheck(lambda x, b, f=call: f(adjit, x, None, b), leaves)
    name = backward_name(lambda T, x, w, b: call(T, x, w, b), x, w, b)
    assert name == "NativeBatchNormBackward0"


@layouts
def test_results_keep_their_layout(layout: Callable[[Any], Any]) -> None:
    x = layout(adjit.randn(2, 3, 4, 5)).requires_grad_()
    for training in (True, False):
        running = adjit.zeros(3), adjit.ones(3)
        out = functional(adjit).batch_norm(x, *running, training=training)
        (gx,) = adjit.autograd.grad(out, x, out.detach())
        assert out.stride() == gx.stride() == x.stride()


@layouts
def test_threads_change_no_bit(layout: Callable[[Any], Any]) -> None:
    x, g = (layout(adjit.randn(4, 64, 20, 20)) for _ in range(2))
    found = []
    for threads in (1, 3):
        before = adjit.get_num_threads()
        adjit.set_num_threads(threads)
        leaf = x.detach().requires_grad_()
        out = functional(adjit).batch_norm(leaf, None, None, training=True)
        gradient = adjit.autograd.grad(out, leaf, g)[0]
        found.append((out.detach().numpy(), gradient.numpy()))
        adjit.set_num_threads(before)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_running_statistics_are_no_inputs_of_the_graph() -> None:
    """As in PyTorch, updating them does not invalidate a graph that was recorded with them."""
    x = adjit.randn(3, 2, requires_grad=True)
    mean, var = adjit.zeros(2), adjit.ones(2)
    out = functional(adjit).batch_norm(x, mean, var)
    functional(adjit).batch_norm(x, mean, var, training=True)
    assert mean._version == 0
    assert mean.abs().sum() > 0
    out.sum().backward()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"momentum": None},
        {"affine": False},
        {"track_running_stats": False},
        {"bias": False, "eps": 0.1},
    ],
    ids=str,
)
def test_modules_train_and_evaluate(settings: dict[str, Any]) -> None:
    def call(T: Any, *batches: Any, name: str = "BatchNorm1d") -> Any:
        module = getattr(T.nn, name)(4, **settings)
        outputs = [module(batch) for batch in batches]
        evaluated = module.eval()(batches[0])
        return (*outputs, evaluated, *[buffer.double() for buffer in module.buffers()])

    batches = [normal(5, 4, 3, dtype=np.float32) for _ in range(3)]
    agree(call, *batches)
    agree(lambda T, *t: call(T, *t, name="InstanceNorm1d"), *batches)
    agree(lambda T, t: T.nn.InstanceNorm2d(2, affine=True)(t), batches[0][:2])
    agree(lambda T, t: T.nn.BatchNorm3d(2)(t), normal(2, 2, 2, 1, 3, dtype=np.float32))


def test_batches_that_are_not_tracked_are_not_counted() -> None:
    def call(T: Any, batch: Any) -> Any:
        module = T.nn.BatchNorm1d(4)
        module.track_running_stats = False
        made = module(batch)
        return (made, *[buffer.double() for buffer in module.buffers()])

    agree(call, normal(5, 4, 3, dtype=np.float32))


@pytest.mark.parametrize("moving", [(1,), (2,), (0, 1), (0, 2)])
def test_running_statistics_have_no_tangents(moving: tuple[int, ...]) -> None:
    values = (adjit.ones(2, 3), adjit.zeros(3), adjit.ones(3))
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(t, t) if k in moving else t for k, t in enumerate(values)]
        with pytest.raises(
            RuntimeError, match="not differentiable wrt running_mean and running_var"
        ):
            functional(adjit).batch_norm(*duals)


def test_states_from_before_batches_were_counted() -> None:
    module = adjit.nn.BatchNorm2d(3)
    state = dict(module.state_dict())
    del state["num_batches_tracked"]
    assert str(module.load_state_dict(state)) == "<All keys matched successfully>"


def test_group_and_instance_norm() -> None:
    x, w, b = normal(3, 6, 2, 3), *normal(2, 6)
    for groups in (1, 2, 6):
        agree_in_gradients(lambda T, x, w, b, n=groups: T.group_norm(x, n, w, b), x, w, b)
    # PyTorch fails where there is a bias and no weight.
    x, b = (adjit.tensor(a, requires_grad=True) for a in (x[:2, :4, :1, :2], b[:4]))
    assert adjit.autograd.gradgradcheck(lambda x, b: adjit.group_norm(x, 2, None, b), (x, b))


@pytest.mark.parametrize(
    "shape", [(2, 6, 5), (3, 8, 4, 5), (2, 4, 3, 3, 3), (2, 4, 1), (1, 4, 7), (2, 6)]
)
@pytest.mark.parametrize("needed", [(0, 1, 2), (0, 1), (0,), (1,), (2,)])
def test_gradients_of_groups_that_are_not_differentiated_again(shape, needed):
    """They come from sums over planes; those of means far from zero too."""
    x, w, b, g = (
        RANDOM.standard_normal(size) + m
        for size, m in ((shape, 50), (shape[1], 0), (shape[1], 0), (shape, 0))
    )
    found = []
    for L in (adjit, pytest.importorskip("torch")):
        operands = [L.tensor(a, requires_grad=k in needed) for k, a in enumerate((x, w, b))]
        L.nn.functional.group_norm(operands[0], 2, *operands[1:]).backward(L.tensor(g))
        found.append([operands[k].grad.numpy() for k in needed])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-9)


def test_other_normalizations() -> None:
    x, w, b = normal(3, 6, 2, 3), *normal(2, 6)
    agree(lambda T, x, w, b: T.nn.GroupNorm(3, 6)(x), *(a.astype(np.float32) for a in (x, w, b)))
    agree_in_gradients(lambda T, x, w, b: functional(T).instance_norm(x, weight=w, bias=b), x, w, b)
    assert backward_name(lambda T, x: T.group_norm(x, 2), x) == "NativeGroupNormBackward0"


def test_local_response_norm() -> None:
    for shape in ((2, 5, 3), (2, 5, 2, 3), (1, 4, 2, 2, 2)):
        for size in (1, 2, 3, 9):
            agree_in_gradients(
                lambda T, x, n=size: functional(T).local_response_norm(x, n, 0.5, 0.6, 2.0),
                normal(*shape),
            )
    agree(lambda T, x: T.nn.LocalResponseNorm(2)(x), normal(2, 3, 4))


def test_empty_batches() -> None:
    agree(lambda T, x: T.nn.BatchNorm2d(2)(x), np.zeros((0, 2, 3, 3), np.float32))
    agree(lambda T, x: T.group_norm(x, 2), np.zeros((0, 2, 3), np.float32))


def test_what_modules_say() -> None:
    torch = pytest.importorskip("torch")
    for call in (
        lambda T: T.nn.BatchNorm1d(3, momentum=None),
        lambda T: T.nn.BatchNorm2d(3, affine=False, track_running_stats=False),
        lambda T: T.nn.BatchNorm3d(3, bias=False),
        lambda T: T.nn.GroupNorm(3, 6),
        lambda T: T.nn.InstanceNorm2d(3),
        lambda T: T.nn.LocalResponseNorm(3),
    ):
        ours, theirs = call(adjit), call(torch)
        assert repr(ours) == repr(theirs)
        assert list(ours.state_dict()) == list(theirs.state_dict())


def test_errors() -> None:
    x, z, o = normal(2, 3, 4, dtype=np.float32), np.zeros(3, np.float32), np.ones(3, np.float32)

    def batch(*args: Any, **options: Any) -> Callable[..., Any]:
        def call(T: Any, x: Any) -> Any:
            given = [T.tensor(a) if isinstance(a, np.ndarray) else a for a in args]
            return functional(T).batch_norm(x, *given, **options)

        return call

    for call in (
        batch(z[:2], o), batch(z, o[:2], training=True), batch(None, None), batch(z, None),
        batch(z, None, training=True), batch(z, o, o[:2]), batch(z, o, None, o[:2]),
        batch(z.astype(np.float64), o), batch(z, o, training=True, eps=0.0), batch(z, o, eps=-1.0),
        lambda T, x: functional(T).batch_norm(x[:1, :, :1], None, None, training=True),
        lambda T, x: functional(T).batch_norm(x.long(), T.tensor(z), T.tensor(o)),
        lambda T, x: functional(T).batch_norm(x.double(), T.tensor(z), T.tensor(o)),
        lambda T, x: functional(T).batch_norm(x, T.tensor(z, requires_grad=True), T.tensor(o)),
        lambda T, x: functional(T).group_norm(x, 2),
        lambda T, x: functional(T).group_norm(x, 3, T.ones(2)),
        lambda T, x: functional(T).group_norm(x[:1, :, :1], 3),
        lambda T, x: functional(T).group_norm(x[0, 0], 3),
        lambda T, x: functional(T).group_norm(x.long(), 3),
        lambda T, x: functional(T).instance_norm(x[:, :, :1]),
        lambda T, x: functional(T).local_response_norm(x[0], 2),
        lambda T, x: functional(T).instance_norm(x, use_input_stats=False),
        lambda T, x: T.nn.BatchNorm1d(3)(x[0, 0]), lambda T, x: T.nn.BatchNorm2d(3)(x),
        lambda T, x: T.nn.BatchNorm3d(3)(x), lambda T, x: T.nn.GroupNorm(2, 3),
        lambda T, x: T.nn.InstanceNorm2d(3)(x[0, 0]),
        lambda T, x: T.nn.InstanceNorm1d(4, affine=True)(x),
    ):  # fmt: skip
        agree_in_error(call, x)
    agree_in_warning(lambda T, x: T.nn.InstanceNorm1d(4)(x), x)


NORMS = {
    "group": lambda F, x: F.group_norm(x, 2),
    "instance": lambda F, x: F.instance_norm(x),
    "batch": lambda F, x: F.batch_norm(x, None, None, training=True),
    "layer": lambda F, x: F.layer_norm(x, (5,)),
}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("write", ["silu", "relu", "mul_"])
def test_activations_may_write_into_what_a_norm_gives(norm, write):
    values = RANDOM.normal(size=(3, 4, 5))
    found = []
    for T in (pytest.importorskip("torch"), adjit):
        F = T.nn.functional
        x = T.tensor(values, requires_grad=True)
        made = NORMS[norm](F, x)
        made = made.mul_(3) if write == "mul_" else getattr(F, write)(made, inplace=True)
        (made * T.arange(60.0, dtype=T.float64).reshape(3, 4, 5)).sum().backward()
        found.append((made.detach().numpy(), x.grad.numpy()))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-10)
