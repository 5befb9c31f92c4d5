"""Modules that take sizes from their first input, bags of embeddings, adaptive softmax."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from library import T, plain, quiet

from adjit.ops.embedding_bags import end_of_bags

torch = pytest.importorskip("torch")


def outcome(action: Callable[[], Any]) -> tuple[type, str] | None:
    try:
        with quiet():
            action()
    except Exception as error:
        return type(error), plain(error)
    return None


def values(t: Any) -> np.ndarray:
    return t.detach().numpy()


def copied(source: Any, target: Any) -> None:
    """Give a module the state of one of PyTorch's."""
    target.load_state_dict({name: T.tensor(t.numpy()) for name, t in source.state_dict().items()})


# ---------------------------------------------------------------- lazy modules

LAZY: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("LazyLinear", (3,), {}, (2, 5)),
    ("LazyLinear", (3, False), {}, (5,)),
    ("LazyConv1d", (4, 3), {"padding": "same"}, (2, 5, 8)),
    ("LazyConv2d", (4, 3, 2, 1, 1, 2, False), {}, (2, 6, 8, 8)),
    ("LazyConv3d", (4, 2), {"padding_mode": "circular", "padding": 1}, (2, 3, 3, 3)),
    ("LazyConvTranspose1d", (4, 3), {}, (2, 5, 8)),
    ("LazyConvTranspose2d", (4, 3, 2, 1, 1, 2, False), {}, (2, 6, 4, 4)),
    ("LazyConvTranspose3d", (4, 2), {"dilation": 2}, (1, 2, 3, 3, 3)),
    ("LazyBatchNorm1d", (), {}, (4, 5)),
    ("LazyBatchNorm2d", (1e-3, 0.2), {"bias": False}, (2, 5, 3, 3)),
    ("LazyBatchNorm3d", (), {"affine": False}, (2, 5, 2, 2, 2)),
    ("LazyInstanceNorm1d", (), {}, (2, 5, 4)),
    ("LazyInstanceNorm2d", (), {"track_running_stats": False}, (2, 5, 3, 3)),
    ("LazyInstanceNorm3d", (), {"affine": False}, (2, 5, 2, 2, 2)),
]
lazy = pytest.mark.parametrize(("name", "args", "options", "shape"), LAZY)


@lazy
def test_lazy_modules_become_those_of_torch(name, args, options, shape):
    modules = []
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    for lib in (T, torch):
        with quiet():
            module = getattr(lib.nn, name)(*args, **options)
        assert module.has_uninitialized_params() == (len(module.state_dict()) > 0)
        modules.append(module)
    mine, theirs = modules
    assert plain(mine) == plain(theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    with quiet():
        for lib, module in zip((T, torch), modules, strict=True):
            module(lib.tensor(x))
    assert type(mine) is getattr(T.nn, name.removeprefix("Lazy"))
    assert plain(mine) == plain(theirs)
    copied(theirs, mine)
    found, wanted = mine(T.tensor(x)), theirs(torch.tensor(x))
    np.testing.assert_allclose(values(found), values(wanted), rtol=1e-4, atol=1e-5)
    assert {n: tuple(t.shape) for n, t in mine.state_dict().items()} == {
        n: tuple(t.shape) for n, t in theirs.state_dict().items()
    }
    assert not mine._forward_pre_hooks
    assert not mine._load_state_dict_pre_hooks


def test_a_lazy_network_is_trained():
    T.manual_seed(0)
    net = T.nn.Sequential(
        T.nn.LazyConv2d(4, 3), T.nn.LazyBatchNorm2d(), T.nn.Flatten(), T.nn.LazyLinear(2)
    )
    fallback = copy.deepcopy(net)
    assert fallback[0].weight is not net[0].weight
    net(T.ones(2, 3, 5, 5))
    assert T.nn.parameter.is_lazy(fallback[3].weight)
    optimizer = T.optim.SGD(net.parameters(), lr=0.1)
    before = values(net[0].weight).copy()
    net(T.rand(2, 3, 5, 5)).square().sum().backward()
    optimizer.step()
    assert (values(net[0].weight) != before).any()
    fallback.load_state_dict(net.state_dict())
    x = T.rand(2, 3, 5, 5)
    net.eval()
    fallback.eval()
    np.testing.assert_array_equal(values(fallback(x)), values(net(x)))
    assert type(fallback[3]) is T.nn.Linear
    assert fallback[3].in_features == 36


def test_lazy_modules_are_converted_and_their_states_are_passed_on():
    layer = T.nn.LazyLinear(3).to(T.float64)
    assert layer.weight.dtype is T.float64
    norm = T.nn.LazyBatchNorm1d(dtype=T.float64)
    norm.float()
    norm(T.ones(2, 3))
    assert norm.running_mean.dtype is T.float32
    other = T.nn.LazyLinear(3)
    other.load_state_dict(layer.state_dict())  # neither has a shape
    assert T.nn.parameter.is_lazy(other.weight)
    known = T.nn.Linear(2, 3)
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized parameter"):
        known.load_state_dict(layer.state_dict())
    assert layer(T.ones(1, 4, dtype=T.float64)).dtype is T.float64


USES: list[Callable[[Any, Any], Any]] = [
    lambda lib, p: p + 1,
    lambda lib, p: p.sum(),
    lambda lib, p: lib.exp(p),
    lambda lib, p: p.view(-1),
    lambda lib, p: p[0],
    lambda lib, p: p.numel(),
    lambda lib, p: lib.cat([p, p]),
    lambda lib, p: p @ p,
    lambda lib, p: p.reshape(3),
    lambda lib, p: p.tolist(),
    lambda lib, p: p.detach(),
    lambda lib, p: p.t(),
    lambda lib, p: p.add_(1),
    lambda lib, p: lib.nn.functional.linear(lib.ones(2, 2), p),
]


@pytest.mark.parametrize("use", USES, ids=range(len(USES)))
@pytest.mark.parametrize("lib", [T, torch], ids=["ours", "torch"])
def test_a_parameter_without_a_shape_is_not_used(lib, use):
    parameter = lib.nn.UninitializedParameter()
    assert repr(parameter) == "<UninitializedParameter>"
    assert lib.nn.parameter.is_lazy(parameter)
    for _ in range(10):  # in machine code too
        with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter"):
            use(lib, parameter)
    with pytest.raises(RuntimeError, match="Can't access the shape"):
        _ = parameter.shape
    parameter.materialize((2, 2), dtype=lib.float64)
    assert type(parameter) is lib.nn.Parameter
    assert parameter.dtype is lib.float64
    use(
        lib,
        parameter.data.fill_(1.0).reshape(4)[:3].reshape(3)
        if use is USES[8]
        else parameter.data.float(),
    )


LAZY_ERRORS: list[Callable[[Any], Any]] = [
    lambda lib: lib.nn.LazyConv2d(4, 3)(lib.ones(3)),
    lambda lib: lib.nn.LazyConv2d(4, 3, groups=2)(lib.ones(3, 5, 5)),
    lambda lib: lib.nn.LazyConvTranspose1d(4, 3)(lib.ones(1, 2, 3, 4)),
    lambda lib: lib.nn.Sequential(lib.nn.LazyLinear(3)).share_memory(),
]


@pytest.mark.parametrize("action", LAZY_ERRORS, ids=range(len(LAZY_ERRORS)))
def test_errors_of_lazy_modules_are_those_of_torch(action):
    expected = outcome(lambda: action(torch))
    assert expected is not None
    assert outcome(lambda: action(T)) == expected


def test_the_first_input_may_come_with_an_output_size():
    layer = T.nn.LazyConvTranspose1d(4, 3, stride=2)
    assert layer(T.ones(2, 5, 8), output_size=[18]).shape == (2, 4, 18)


def test_lazy_modules_of_your_own():
    class Forgets(T.nn.lazy.LazyModuleMixin, T.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = T.nn.UninitializedParameter()

        def initialize_parameters(self, x):
            pass

    with pytest.raises(RuntimeError, match="module Forgets has not been fully initialized"):
        Forgets()(T.ones(1))


# ---------------------------------------------------------------- bags of embeddings

BAGS: list[tuple[dict[str, Any], Any, Any]] = [
    ({}, [[1, 2, 4], [3, 3, 0]], None),
    ({"padding_idx": 3}, [[1, 3, 4], [3, 3, 3]], None),
    ({"padding_idx": -1}, [1, 4, 0, 4, 4, 2], [0, 2, 2, 3, 5]),
    ({"include_last_offset": True}, [1, 2, 4, 0], [0, 2, 2, 4]),
    ({"include_last_offset": True}, [1, 2, 4, 0, 0], [0, 3, 5]),
    ({"max_norm": 1.0, "norm_type": 1.0}, [1, 2, 4, 0, 0], [0, 3]),
    ({}, [], [0, 0]),
    ({}, [1, 2], [0, 2]),
]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize(("options", "indices", "offsets"), BAGS, ids=range(len(BAGS)))
@pytest.mark.parametrize("kind", ["int64", "int32"])
def test_bags_are_those_of_torch(options, indices, offsets, mode, kind):
    found = []
    for lib in (torch, T):
        bag = lib.nn.EmbeddingBag(5, 3, mode=mode, **options)
        if lib is T:
            copied(found[0], bag)
        dtype = getattr(lib, kind)
        at = lib.tensor(indices, dtype=dtype)
        out = bag(at, None if offsets is None else lib.tensor(offsets, dtype=dtype))
        (out * lib.arange(1.0, 1 + out.numel()).view_as(out)).sum().backward()
        found += [bag, out]
    theirs, wanted, mine, out = found
    assert plain(mine) == plain(theirs)
    np.testing.assert_allclose(values(out), values(wanted), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(values(mine.weight), values(theirs.weight), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        values(mine.weight.grad), values(theirs.weight.grad), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_gradients_of_bags_over_frequencies(mode):
    """By hand, since PyTorch divides some of them by the frequency of another index."""
    found = []
    for by_frequency in (False, True):
        weight = T.ones(5, 2, requires_grad=True)
        out = T.nn.functional.embedding_bag(
            T.tensor([1, 2, 4, 4, 0, 4]),
            weight,
            T.tensor([0, 2]),
            mode=mode,
            scale_grad_by_freq=by_frequency,
        )
        (out * T.tensor([[1.0], [5.0]])).sum().backward()
        found.append(values(weight.grad))
    counts = np.array([1, 1, 1, 1, 3])[:, None]
    np.testing.assert_allclose(found[1], found[0] / counts, rtol=1e-6)
    assert (found[0] != found[1]).any()


@pytest.mark.parametrize("offsets", [None, [0, 2]])
def test_weighted_bags(offsets):
    found = []
    rng = np.random.default_rng(2)
    table, factors = rng.normal(size=(5, 3)), rng.normal(size=(2, 3))
    for lib in (T, torch):
        weight, factor = (lib.tensor(t, requires_grad=True) for t in (table, factors))
        indices = lib.tensor([[1, 4, 1], [0, 0, 2]])
        given = factor
        if offsets is not None:
            indices, given = indices.reshape(-1), factor.reshape(-1)
        out = lib.nn.functional.embedding_bag(
            indices,
            weight,
            None if offsets is None else lib.tensor(offsets),
            mode="sum",
            per_sample_weights=given,
            padding_idx=0,
        )
        out.square().sum().backward()
        found.append([values(t) for t in (out, weight.grad, factor.grad)])
    for mine, wanted in zip(*found, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-12)


WIDTHS = [1, 7, 8, 9, 16, 17, 32, 33, 63, 64, 65, 100, 160]


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_rows_of_any_width_in_bags_of_any_length(columns, mode):
    rng = np.random.default_rng(columns)
    table, indices = rng.normal(size=(9, columns)), rng.integers(0, 9, size=40)
    starts = [0, 0, 3, 3, 20, 40]
    found = []
    for lib in (T, torch):
        weight = lib.tensor(table, dtype=lib.float32, requires_grad=True)
        out = lib.nn.functional.embedding_bag(
            lib.tensor(indices), weight, lib.tensor(starts), mode=mode, padding_idx=4
        )
        out.square().sum().backward()
        found.append([values(out), values(weight.grad)])
    for mine, wanted in zip(*found, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_a_bag_are_added_in_their_order(columns, weighted, dtype):
    """Which shows in the last bits, on any number of threads; and no bag writes into another."""
    rng = np.random.default_rng(columns)
    table, factors = (rng.normal(size=size).astype(dtype) for size in ((50, columns), 4000))
    indices, starts = rng.integers(0, 50, size=4000), np.sort(rng.integers(0, 4001, size=700))
    starts[0] = 0
    wanted = np.zeros((700, columns), dtype)
    for bag, begin, end in zip(wanted, starts, [*starts[1:], 4000], strict=True):
        for i in range(begin, end):
            bag += table[indices[i]] * factors[i] if weighted else table[indices[i]]
    before = T.get_num_threads()
    try:
        for threads in (1, 2, 7):
            T.set_num_threads(threads)
            out = T.nn.functional.embedding_bag(
                T.tensor(indices), T.tensor(table), T.tensor(starts), mode="sum",
                per_sample_weights=T.tensor(factors) if weighted else None,
            )  # fmt: skip
            np.testing.assert_array_equal(values(out), wanted)
    finally:
        T.set_num_threads(before)


# A process of its own, which a step behind the end would end.
BAGS_AT_THE_END_OF_MEMORY = """
import ctypes
import numpy as np
import adjit
from adjit.kernels.ops import index
from adjit.schedule.jit import cache
from end_of_memory import at_the_end

ROWS, BAGS, IN_ALL = 3, 2, 4
for kernel, places in ((index.sum_bags, ()), (index.largest_in_bags, (np.int64,))):
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(
        cache.link(cache.instantiate(kernel, {"T": adjit.float32}))
    )
    for columns in {widths}:
        outs = [at_the_end(np.zeros((BAGS, columns), t)) for t in (np.float32, *places)]
        arrays = [
            at_the_end(np.ones((ROWS, columns), np.float32)), at_the_end(np.array([0, 2, 1, 2])),
            at_the_end(np.array([0, 1])), *([] if places else [np.ones(IN_ALL, np.float32)]),
            *outs, np.zeros(4, np.int64),
        ]
        words = np.array([
            *(a.ctypes.data for a in arrays), columns, ROWS, IN_ALL, -1, BAGS, -1, 0, 0
        ])
        run(words.ctypes.data, 0, BAGS)
        assert (outs[0] == ([[1]] * 2 if places else [[1], [3]])).all()
print("to the end")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="pages are protected by mprotect")
def test_nothing_is_read_or_written_behind_rows_of_bags():
    code = BAGS_AT_THE_END_OF_MEMORY.replace("{widths}", repr(WIDTHS))
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    assert (found.returncode, found.stdout.strip()) == (0, "to the end"), found.stderr


@pytest.mark.parametrize("offsets", [None, [0, 2, 2]])
def test_second_gradients_of_bags(offsets):
    table, factors = np.random.default_rng(3).normal(size=(4, 2)), np.arange(1.0, 7.0)
    indices = T.tensor([3, 1, 1, 0, 2, 3])
    given = T.tensor(factors, requires_grad=True)
    if offsets is None:
        indices = indices.view(2, 3)
    starts = None if offsets is None else T.tensor(offsets)

    def weighted(w, f):
        return T.nn.functional.embedding_bag(
            indices, w, starts, mode="sum", per_sample_weights=f.view(indices.shape), padding_idx=1
        )

    def mean(w):
        return T.nn.functional.embedding_bag(indices, w, starts, padding_idx=1)

    weight = T.tensor(table, requires_grad=True)

    def largest(w):
        return T.nn.functional.embedding_bag(indices, w, starts, mode="max", padding_idx=1)

    for call, leaves in ((weighted, (weight, given)), (mean, (weight,)), (largest, (weight,))):
        assert T.autograd.gradcheck(call, leaves)
        assert T.autograd.gradgradcheck(call, leaves)
        assert T.autograd.gradcheck(call, leaves, check_forward_ad=True)


def test_largest_of_bags_with_equal_elements_and_nans():
    """The first of what is equal has the gradient; a NaN is larger than anything, which PyTorch's is not."""
    nan, low = float("nan"), float("-inf")
    weight = T.tensor([[1.0, 2.0, low], [1.0, nan, low], [0.0, nan, low]], requires_grad=True)
    out = T.nn.functional.embedding_bag(
        T.tensor([2, 1, 0, 1, 2]), weight, T.tensor([0, 3, 3, 5]), mode="max"
    )
    np.testing.assert_equal(values(out), [[1, nan, low], [0, 0, 0], [1, nan, low], [0, 0, 0]])
    out.sum().backward()
    assert weight.grad.tolist() == [[0, 0, 0], [2, 1, 1], [0, 1, 1]]


def test_bags_that_overlap():
    """Which offsets out of order ask for; PyTorch's gradients are others then."""
    weight = T.eye(4).double().requires_grad_()

    def call(w):
        return T.nn.functional.embedding_bag(
            T.tensor([0, 1, 2, 3]), w, T.tensor([0, 3, 1]), mode="sum"
        )

    assert call(weight).tolist() == [[1, 1, 1, 0], [0, 0, 0, 0], [0, 1, 1, 1]]
    assert T.autograd.gradcheck(call, weight)


def test_what_follows_the_last_offset_is_in_no_bag():
    """PyTorch counts it among the elements of a mean, but leaves it out of the sum."""
    bag = T.nn.EmbeddingBag.from_pretrained(T.arange(5.0).view(5, 1), include_last_offset=True)
    assert bag(T.tensor([1, 2, 4, 0, 3]), T.tensor([0, 2, 2, 4])).flatten().tolist() == [1.5, 0, 2]


@pytest.mark.parametrize(
    ("offsets", "size", "end"),
    [
        ([0], 0, 0),
        ([0, 0, 3, 3, 5], 5, 5),
        ([0, *range(70)], 80, 69),
        ([1, 2], 5, -1),
        ([-1, 2], 5, -1),
        ([0, 6], 5, -1),
        ([0, 6, 5], 5, -1),
        ([0, *range(70), 68], 80, -1),
        ([0, 2**63 - 1, -5, 4], 5, -1),
    ],
)
def test_where_bags_end_that_lie_one_behind_the_other(offsets, size, end):
    """The differences of the last offsets are all positive where numbers wrap around."""
    assert end_of_bags(T.tensor(offsets), size).item() == end


def test_a_given_table():
    table = T.eye(3)
    bag = T.nn.EmbeddingBag.from_pretrained(table, mode="sum", padding_idx=1)
    assert not bag.weight.requires_grad
    assert bag(T.tensor([[0, 1, 2]])).tolist() == [[1.0, 0.0, 1.0]]
    weight = torch.eye(3, dtype=torch.float64)
    assert T.autograd.gradcheck(
        lambda w: T.nn.functional.embedding_bag(T.tensor([[0, 2], [1, 1]]), w),
        T.tensor(weight.numpy(), requires_grad=True),
    )


BAG_ERRORS: list[Callable[[Any, Any, Any], Any]] = [
    lambda lib, f, w: f(lib.tensor([0, 1]), w),
    lambda lib, f, w: f(lib.tensor([0, 1]), w, lib.tensor([[0]])),
    lambda lib, f, w: f(lib.tensor([0, 1]), w, lib.tensor([1])),
    lambda lib, f, w: f(lib.tensor([0, 1]), w, lib.tensor([0, 3])),
    lambda lib, f, w: f(lib.tensor([[[0]]]), w),
    lambda lib, f, w: f(lib.tensor([0]), w[0], lib.tensor([0])),
    lambda lib, f, w: f(lib.tensor([[0]]), w, mode="min"),
    lambda lib, f, w: f(lib.tensor([[0]]), w, mode="max", scale_grad_by_freq=True),
    lambda lib, f, w: f(lib.tensor([[0]]), w, mode="max", sparse=True),
    lambda lib, f, w: f(lib.tensor([[0]]), w, per_sample_weights=lib.ones(1, 1)),
    lambda lib, f, w: f(lib.tensor([[0]]), w, per_sample_weights=lib.ones(2), mode="sum"),
    lambda lib, f, w: f(lib.tensor([[0]]), w, padding_idx=4),
    lambda lib, f, w: lib.nn.EmbeddingBag(4, 2, padding_idx=4),
    lambda lib, f, w: lib.nn.EmbeddingBag(4, 2, padding_idx=-5),
    lambda lib, f, w: lib.nn.EmbeddingBag(4, 2, _weight=w[:2]),
    lambda lib, f, w: lib.nn.EmbeddingBag.from_pretrained(w[0]),
]


@pytest.mark.parametrize("action", BAG_ERRORS, ids=range(len(BAG_ERRORS)))
def test_errors_of_bags_are_those_of_torch(action):
    results = [
        outcome(lambda lib=lib: action(lib, lib.nn.functional.embedding_bag, lib.ones(4, 2)))
        for lib in (T, torch)
    ]
    assert results[1] is not None
    wanted = results[1][0], results[1][1].split("\n")[0]
    assert results[0] == wanted


@pytest.mark.parametrize("offsets", [None, [0, 0, 2], [0, 3]])
@pytest.mark.parametrize("index", [9, -1])
@pytest.mark.parametrize("mode", ["sum", "max"])
def test_an_index_of_a_bag_that_is_out_of_bounds(mode, index, offsets):
    indices, starts = T.tensor([1, 3, index]), None
    if offsets is None:
        indices = indices.view(1, 3)
    else:
        starts = T.tensor(offsets)
    with pytest.raises(RuntimeError, match=f"Expected idx >= 0 .* found idx to be {index}"):
        T.nn.functional.embedding_bag(indices, T.ones(4, 2), starts, mode=mode).tolist()


# ---------------------------------------------------------------- adaptive softmax


@pytest.mark.parametrize(
    ("cutoffs", "options"),
    [([4], {}), ([3, 6], {"head_bias": True, "div_value": 2.0}), ([2, 5, 8], {"div_value": 2.0})],
)
@pytest.mark.parametrize("targets", [[0, 9, 3, 5], [1, 0, 1, 0], 7])
def test_adaptive_softmax(cutoffs, options, targets):
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 10, cutoffs, **options)
    mine = T.nn.AdaptiveLogSoftmaxWithLoss(8, 10, cutoffs, **options)
    assert plain(mine) == plain(theirs)
    copied(theirs, mine)
    shape = (4, 8) if isinstance(targets, list) else (8,)
    x = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    found = []
    for lib, module in ((T, mine), (torch, theirs)):
        inputs = lib.tensor(x, requires_grad=True)
        result = module(inputs, lib.tensor(targets))
        result.loss.backward()
        rows = inputs.reshape(-1, 8)
        found.append(
            [result.output, result.loss, inputs.grad, module.log_prob(rows), module.predict(rows)]
            + [p.grad for p in module.parameters() if p.grad is not None]
        )
    for one, wanted in zip(*found, strict=True):
        np.testing.assert_allclose(values(one), values(wanted), rtol=2e-5, atol=1e-6)


ADAPTIVE_ERRORS: list[Callable[[Any, Any], Any]] = [
    lambda lib, make: make(8, 10, []),
    lambda lib, make: make(8, 10, [3, 2]),
    lambda lib, make: make(8, 10, [0, 2]),
    lambda lib, make: make(8, 10, [2, 10]),
    lambda lib, make: make(8, 10, [2, 2]),
    lambda lib, make: make(8, 10, [2.5]),
    lambda lib, make: make(8, 10, [2])(lib.ones(2, 8), lib.tensor([1])),
    lambda lib, make: make(8, 10, [2])(lib.ones(1), lib.tensor([1])),
    lambda lib, make: make(8, 10, [2])(lib.ones(1, 8), lib.tensor(1)),
    lambda lib, make: make(8, 10, [2])(lib.ones(1, 8), lib.tensor([[1]])),
    lambda lib, make: make(8, 10, [2])(lib.ones(2, 8), lib.tensor([1, 10])),
]


@pytest.mark.parametrize("action", ADAPTIVE_ERRORS, ids=range(len(ADAPTIVE_ERRORS)))
def test_errors_of_adaptive_softmax_are_those_of_torch(action):
    expected = outcome(lambda: action(torch, torch.nn.AdaptiveLogSoftmaxWithLoss))
    assert expected is not None
    assert outcome(lambda: action(T, T.nn.AdaptiveLogSoftmaxWithLoss)) == expected
