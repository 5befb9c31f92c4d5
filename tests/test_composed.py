"""Functions made of operations: without a history a call like one before is replayed, and gives the same."""

import warnings

import numpy as np
import pytest

import adjit as T
from adjit import errors, nn
from adjit.graph import composed
from adjit.graph.normalized import remembering
from adjit.graph.trace import Trace
from adjit.schedule.jit import native

F = nn.functional
rng = np.random.default_rng(0)


@pytest.fixture(scope="module", autouse=True)
def machine_code():
    """All of it is there, whatever ran before."""
    for family in native.families:
        assert family.load(compiling=True)


def some(*shape):
    return T.tensor(rng.uniform(0.1, 0.9, shape), dtype=T.float32)


def scores():
    return some(4, 5)


I4, I5 = T.tensor([1, 0, 3, 2]), T.tensor([1, 0, 4, 2, 3])
SIGNS = T.tensor([1.0, -1.0, 1.0, -1.0])

# For each function that is marked a call, on tensors that `tensors` makes; by its name.
CALLS = {
    "cosine_embedding_loss": (lambda x, y: F.cosine_embedding_loss(x, y, SIGNS), (4, 5), (4, 5)),
    "hinge_embedding_loss": (lambda x: F.hinge_embedding_loss(x, SIGNS), (4,)),
    "huber_loss": (F.huber_loss, (4, 5), (4, 5)),
    "kl_div": (lambda x, y: F.kl_div(x, y, reduction="batchmean"), (4, 5), (4, 5)),
    "l1_loss": (F.l1_loss, (4, 5), (4, 5)),
    "local_response_norm": (lambda x: F.local_response_norm(x, 2), (2, 4, 3)),
    "margin_ranking_loss": (lambda x, y: F.margin_ranking_loss(x, y, SIGNS), (4,), (4,)),
    "multi_margin_loss": (lambda x: F.multi_margin_loss(x, I4), (4, 5)),
    "multilabel_margin_loss": (lambda x: F.multilabel_margin_loss(x, I5.expand(4, 5)), (4, 5)),
    "multilabel_soft_margin_loss": (lambda x: F.multilabel_soft_margin_loss(x, x.detach().round()), (4, 5)),
    "mse_loss": (F.mse_loss, (4, 5), (4, 5)),
    "normalize": (F.normalize, (4, 5)),
    "poisson_nll_loss": (F.poisson_nll_loss, (4, 5), (4, 5)),
    "smooth_l1_loss": (F.smooth_l1_loss, (4, 5), (4, 5)),
    "soft_margin_loss": (lambda x: F.soft_margin_loss(x, SIGNS), (4,)),
    "softmin": (lambda x: F.softmin(x, 1), (4, 5)),
    "triplet_margin_loss": (F.triplet_margin_loss, (4, 5), (4, 5), (4, 5)),
    "_are_equal": (lambda x: T.tensor(T.equal(x, x * 1) and not T.equal(x, x + 1)), (4, 5)),
    "isclose": (lambda x, y: T.isclose(x, y, atol=0.2), (4, 5), (4, 5)),
    "multi_dot": (lambda x, y: T.linalg.multi_dot([x, y, x]), (4, 5), (5, 4)),
    "inner": (T.inner, (4, 5), (3, 5)),
    "kron": (T.kron, (4, 5), (2, 3)),
    "tensordot": (lambda x, y: T.tensordot(x, y, ([0, 1], [1, 0])), (4, 5), (5, 4)),
    "diagonal_scatter": (T.diagonal_scatter, (4, 4), (4,)),
    "select_scatter": (lambda x, y: T.select_scatter(x, y, 0, 1), (4, 5), (5,)),
    "as_strided_scatter": (lambda x, y: T.as_strided_scatter(x, y, (2, 2), (5, 1), 1), (4, 5), (2, 2)),
    "sum_to_size": (lambda x: x.sum_to_size(4, 1), (4, 5)),
    "slice_scatter": (lambda x, y: T.slice_scatter(x, y, 0, 1, 3), (4, 5), (2, 5)),
    "dist": (T.dist, (4, 5), (4, 5)),
    "pdist": (T.pdist, (4, 5)),
    "renorm": (lambda x: T.renorm(x, 2, 0, 1.0), (4, 5)),
    "affine_grid": (lambda x: F.affine_grid(x, (2, 1, 3, 4), align_corners=False), (2, 2, 3)),
    "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=True), (2, 3, 4, 5), (2, 2, 2, 2)),
    "scatter_reduce": (lambda x, y: x.scatter_reduce(0, I5.expand(4, 5) % 4, y, "amax"), (4, 5), (4, 5)),
    "take_along_dim": (lambda x: T.take_along_dim(x, I4[:, None], 1), (4, 5)),
    "igamma": (T.igamma, (4, 5), (4, 5)),
    "igammac": (T.igammac, (4, 5), (4, 5)),
    "vecdot": (T.linalg.vecdot, (4, 5), (4, 5)),
    "conv_tbc": (lambda x, w, b: T.conv_tbc(x, w, b, 1), (5, 2, 3), (3, 3, 4), (4,)),
    "bilinear": (F.bilinear, (4, 5), (4, 3), (2, 5, 3)),
    "masked_scatter": (lambda x, y: x.masked_scatter(x > 0.5, y), (4, 5), (4, 5)),
    "matrix_norm": (T.linalg.matrix_norm, (4, 5)),
    "norm": (lambda x: T.linalg.norm(x, dim=1), (4, 5)),
    "std": (lambda x: x.std(1), (4, 5)),
    "std_mean": (lambda x: T.std_mean(x, 1), (4, 5)),
    "var": (lambda x: x.var(1), (4, 5)),
    "var_mean": (lambda x: T.var_mean(x, 1), (4, 5)),
    "cosine_similarity": (F.cosine_similarity, (4, 5), (4, 5)),
    "pairwise_distance": (F.pairwise_distance, (4, 5), (4, 5)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (5,), w), (4, 5), (5,)),
    "fill": (lambda x: T.fill(x, 2.0), (4, 5)),
    "adaptive_max_pool1d": (lambda x: F.adaptive_max_pool1d(x, 2), (3, 6)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 2), (3, 6, 6)),
    "adaptive_max_pool3d": (lambda x: F.adaptive_max_pool3d(x, 2, True), (3, 4, 4, 4)),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), (3, 6)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2, return_indices=True), (3, 6, 6)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), (3, 4, 4, 4)),
    "frobenius_norm": (lambda x: T.frobenius_norm(x, (0, 1)), (4, 5)),
    "vander": (lambda x: T.vander(x, 3), (4,)),
    "chosen_categories": None,  # draws: see below
    "mean": (lambda x: x.mean(1, dtype=T.float64), (4, 5)),
    "nanmean": (lambda x: x.nanmean(1), (4, 5)),
    "nansum": (lambda x: x.nansum(1), (4, 5)),
    "sum": (lambda x: x.sum(1, dtype=T.float64), (4, 5)),
    "index_add": (lambda x, y: T.tensor(1.0).index_add(0, I4[1:2], y), (4,), ()),
    "index_copy": (lambda x, y: x.index_copy(0, I4, y), (4, 5), (4, 5)),
    "index_fill": (lambda x: x.index_fill(0, I4[:2], 2.0), (4, 5)),
    "index_reduce": (lambda x, y: x.index_reduce(0, I4, y, "amax"), (4, 5), (4, 5)),
    "take": (lambda x: x.take(I4), (4, 5)),
    "cumprod": (lambda x: x.cumprod(1, dtype=T.float64), (4, 5)),
    "cumsum": (lambda x: x.cumsum(1, dtype=T.float64), (4, 5)),
    "diff": (lambda x: x.diff(2), (4, 5)),
    "block_diag": (T.block_diag, (4, 5), (2, 3)),
    "cartesian_prod": (T.cartesian_prod, (4,), (3,)),
    "column_stack": (lambda x, y: T.column_stack([x, y]), (4,), (4, 2)),
    "dstack": (lambda x, y: T.dstack([x, y]), (4, 5), (4, 5)),
    "hstack": (lambda x, y: T.hstack([x, y]), (4, 5), (4, 5)),
    "vstack": (lambda x, y: T.vstack([x, y]), (4, 5), (4, 5)),
    "repeat_interleave": (lambda x: x.repeat_interleave(2, 1), (4, 5)),
    "tile": (lambda x: x.tile(2, 1), (4, 5)),
    "log_softmax": (lambda x: x.log_softmax(1, dtype=T.float64), (4, 5)),
    "softmax": (lambda x: x.softmax(1, dtype=T.float64), (4, 5)),
    "runs_of": (lambda x: x.round(decimals=1).unique(return_counts=True), (4, 5)),
    "neighbours_of": (lambda x: x.round(decimals=1).unique_consecutive(return_counts=True), (4, 5)),
    "_counted_between": (lambda x: T.histc(x, 5, 0, 1), (4, 5)),
    "_occurrences": (lambda x: T.bincount((x * 4).long(), minlength=5), (9,)),
    "corrcoef": (T.corrcoef, (4, 5)),
    "cov": (T.cov, (4, 5)),
    "cumulative_trapezoid": (T.cumulative_trapezoid, (4, 5)),
    "trapezoid": (T.trapezoid, (4, 5)),
    "isin": (lambda x, y: T.isin((x * 9).long(), (y * 9).long()), (4, 5), (3,)),
    "nanquantile": (lambda x: x.nanquantile(0.3, 1), (4, 5)),
    "quantile": (lambda x: x.quantile(0.3, 1), (4, 5)),
    "logit": (lambda x: T.logit(x, 0.2), (4, 5)),
    "polygamma": (lambda x: T.polygamma(3, x), (4, 5)),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), (1, 4, 3, 3)),
    "fold": (lambda x: F.fold(x, 3, 2), (4, 4)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (1, 4, 3, 3)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (1, 4, 2, 2)),
}  # fmt: skip


def marked():
    """What is known of each function of the library that is marked; other tests mark functions of their own."""
    return [
        known
        for known in remembering.values()
        if known.plain_calls is not known.calls and known.function.__module__.startswith("adjit.")
    ]


def parts(found):
    return found if isinstance(found, tuple) else (found,)


def bits(found):
    return [(t.dtype, t.shape, t.stride(), t.contiguous().numpy().tobytes()) for t in parts(found)]


def traces(known):
    return [call for call in known.plain_calls.values() if isinstance(call.trace, Trace)]


def test_every_marked_function_has_a_call():
    assert {known.function.__name__ for known in marked()} == set(CALLS)


@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call])
def test_replays_are_like_the_first_call(name, monkeypatch):
    call, *shapes = CALLS[name]
    inputs = [[some(*shape) for shape in shapes] for _ in range(4)]
    of_the_name = [known for known in marked() if known.function.__name__ == name]
    for known in of_the_name:
        known.forget()
    with monkeypatch.context() as patch:
        patch.setattr(composed, "usable", lambda: False)
        expected = [bits(call(*tensors)) for tensors in inputs]
        assert not any(map(traces, of_the_name))
    assert [bits(call(*tensors)) for tensors in inputs] == expected
    assert any(map(traces, of_the_name))
    moved = [T.cat([some(1, *t.shape), t[None]])[1] for t in inputs[0]]  # behind an offset
    assert bits(call(*moved)) == expected[0]
    shared = [T.from_numpy(t.numpy().copy()) for t in inputs[1]]
    assert [bits(call(*shared)) for _ in range(3)] == [expected[1]] * 3


COUNTED = ("runs_of", "neighbours_of")  # which have no derivative


@pytest.mark.parametrize("name", [n for n, call in CALLS.items() if call and n not in COUNTED])
def test_replays_are_not_taken_where_there_is_a_history(name, monkeypatch):
    call, *shapes = CALLS[name]
    inputs = [[some(*shape) for shape in shapes] for _ in range(3)]

    def run(tensors):
        leaves = [t.detach().requires_grad_() for t in tensors]
        out = sum(t.double().square().sum() for t in parts(call(*leaves)) if t.requires_grad)
        if not isinstance(out, T.Tensor):
            return []
        grads = T.autograd.grad(out, leaves, allow_unused=True)
        return bits(tuple(g for g in grads if g is not None))

    for known in marked():
        known.forget()
    with monkeypatch.context() as patch:
        patch.setattr(composed, "usable", lambda: False)
        expected = [run(tensors) for tensors in inputs]
    for tensors in inputs:
        call(*tensors)
    assert [run(tensors) for tensors in inputs] == expected
    with T.no_grad():
        leaves = [t.detach().requires_grad_() for t in inputs[0]]
        assert not any(t.requires_grad for t in parts(call(*leaves)))


# ----- what is not replayed


def counting(body):
    """A marked function that runs `body`, and how often it did."""
    ran = []

    def function(x, *rest, **named):
        ran.append(1)
        return body(x, *rest, **named)

    return composed.composed(function), ran


def test_the_third_call_is_a_replay():
    call, ran = counting(lambda x, n=1, *, by=2.0: x.exp() * n + by)
    for k in range(5):
        x = some(3)
        assert T.equal(call(x, 2, by=0.5), x.exp() * 2 + 0.5)
        assert len(ran) == min(k + 1, 2)
    assert T.equal(call(x, 3, by=0.5), x.exp() * 3 + 0.5)
    assert len(ran) == 3


def test_python_replays_what_machine_code_leaves_to_it():
    call, ran = counting(lambda x: x.exp() + 1)
    array = np.zeros(3, np.float32)
    x = T.from_numpy(array)
    for _ in range(2):
        call(x)
    count = len(ran)
    found = call.__wrapped__(x)
    array[:] = 9
    assert found.tolist() == [2.0] * 3
    assert len(ran) == count


@pytest.mark.parametrize("body", [
    lambda x: x.mul_(2), lambda x: (x.mul_(2), x + 1)[1], lambda x: x[1:], lambda x: x,
    lambda x: x * float(x[0]), lambda x: x + T.tensor([float(len(x)), 1.0, 2.0]), lambda x: [x + 1],
    lambda x: (x + 1, 2), lambda x: errors.warn("told") or x + 1,
], ids=["writes", "writes also", "view", "itself", "looks", "data", "list", "number", "warns"])  # fmt: skip
def test_what_is_no_replay_runs_every_time(body):
    call, ran = counting(body)
    for k in range(5):
        x = some(3)
        copied, after = x.clone(), x.clone()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = call(x)
            assert len(told) == (body.__code__.co_names[:1] == ("errors",))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = body(after)
        for a, b in (
            zip(found, wanted, strict=True)
            if isinstance(found, (tuple, list))
            else [(found, wanted)]
        ):
            assert a == b if isinstance(b, int) else T.equal(a, b)
        assert T.equal(x, after)
        assert T.equal(x, copied) or "mul_" in body.__code__.co_names
        assert len(ran) == k + 1


def test_what_is_written_in_memory_of_an_array_is_written_every_time():
    call, _ = counting(lambda x: x.add_(1) * 2)
    array = np.zeros(3, np.float32)
    x = T.from_numpy(array)
    for k in range(1, 6):
        assert call(x).tolist() == [2.0 * k] * 3
        assert array.tolist() == [k] * 3


def test_copies_that_stand_for_views_are_linked_every_time():
    call, _ = counting(lambda x: x.flatten(1))
    for _ in range(5):
        y = F.conv2d(some(2, 3, 4, 4), some(4, 3, 3, 3))
        call(y).fill_(1)
        assert (y == 1).all()


def test_draws_of_replays_go_on_in_the_stream():
    weights = some(6)

    def run():
        T.manual_seed(3)
        return [T.multinomial(weights, 3, replacement=k % 2 == 0).tolist() for k in range(8)]

    first = run()
    assert run() == run() == first
    assert len({tuple(found) for found in first}) > 3
    own = T.Generator().manual_seed(3)
    assert [
        T.multinomial(weights, 3, k % 2 == 0, generator=own).tolist() for k in range(8)
    ] == first


def test_other_modes_run_the_function():
    call, ran = counting(lambda x: x.exp() + 1)
    x = some(3)
    wanted = x.exp() + 1
    for _ in range(3):
        call(x)
    count = len(ran)
    with T.inference_mode():
        assert call(x).is_inference()
    assert len(ran) == count
    with T.autograd.graph.save_on_cpu():
        assert T.equal(call(x), wanted)
    assert len(ran) == count + 1
    assert T.equal(T.func.vmap(call)(x[None])[0], wanted)
    value, slope = T.func.jvp(call, (x,), (T.ones(3),))
    assert T.equal(value, wanted)
    assert T.equal(slope, x.exp())
    assert len(ran) == count + 3
    call(x)
    assert len(ran) == count + 3


def test_another_default_dtype_is_another_call():
    call, _ = counting(lambda x: x + T.zeros(3))
    x = T.arange(3)
    assert [call(x).dtype for _ in range(3)] == [T.float32] * 3
    try:
        T.set_default_dtype(T.float64)
        assert [call(x).dtype for _ in range(3)] == [T.float64] * 3
    finally:
        T.set_default_dtype(T.float32)


def test_what_warns_with_a_history_warns_every_time():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for k in range(1, 5):
            x = some(1, 3).requires_grad_()
            assert x.var(0).isnan().all()  # one row has no degree of freedom
            assert len(told) == k
            F.mse_loss(x, some(3))
            told.pop()


def test_leaves_of_factories_stay_leaves():
    found = [T.zeros(2, requires_grad=True) for _ in range(4)]
    assert all(t.requires_grad and t.is_leaf for t in found)
    with pytest.raises(RuntimeError, match="Only Tensors of floating point"):
        T.zeros(2, dtype=T.int64, requires_grad=True)


def test_what_takes_the_place_of_all_is_a_copy():
    for _ in range(4):
        x, source = T.zeros(2, 3), T.ones(2, 3)
        for found in (
            x.slice_scatter(source), T.select_scatter(x[:1], source[0], 0, 0),
            T.diagonal_scatter(x[:1, :1], source[0, :1]),
        ):  # fmt: skip
            assert (found == 1).all()
            found.add_(1)
        assert T.equal(source, T.ones(2, 3))
        assert T.equal(x, T.zeros(2, 3))
