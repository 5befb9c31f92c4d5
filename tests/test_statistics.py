"""Quantiles, histograms, counts, distances, memory of another size: beside PyTorch, and by differences."""

from __future__ import annotations

import array
import warnings
from typing import Any

import numpy as np
import pytest

import adjit
from adjit import nn

torch = pytest.importorskip("torch")
from against_torch import agree, agree_in_error, agree_in_gradients, plain  # noqa: E402

RNG = np.random.default_rng(3)
MATRIX, OTHER = RNG.normal(size=(4, 5)), RNG.normal(size=(6, 5))
MANY = RNG.normal(size=(30, 5))
LONG = RNG.normal(size=(7, 19))


def outcome(library: Any, text: str) -> Any:
    """What a call gives, or the type and text of its error."""
    names = {"L": library, "np": np, "array": array, "m": library.tensor(MATRIX)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = eval(text, names)
        except Exception as error:
            return type(error), plain(error).split("\n")[0]
    parts = made if isinstance(made, tuple) else (made,)
    looked_at = any(word in text for word in ("resize", "_copy", "fill_", "split"))
    strides = [t.stride() if looked_at else None for t in parts]
    return [
        (tuple(t.shape), st, plain(t.dtype), t.tolist())
        for t, st in zip(parts, strides, strict=True)
    ]


SAME = [
    "L.bincount(L.tensor(3))",
    "L.bincount(L.ones(2))",
    "L.bincount(L.tensor([True]))",
    "L.bincount(L.tensor([-1]))",
    "L.bincount(L.tensor([[1]]))",
    "L.bincount(L.tensor([1]), L.ones(2))",
    "L.bincount(L.tensor([1]), minlength=-1)",
    "L.bincount(L.tensor([], dtype=L.int64), minlength=2)",
    "L.bincount(L.tensor([1, 4, 1]), L.tensor([.5, 1., 2.]))",
    "L.bincount(L.tensor([1, 4]), L.tensor([1, 2]))",
    "L.tensor([3, 1], dtype=L.uint8).bincount(minlength=6)",
    "L.histc(L.tensor([1]))",
    "L.histc(L.ones(2), 0)",
    "L.histc(L.ones(2), 3, 2, 1)",
    "L.histc(L.ones(2), 4)",
    "L.histc(L.tensor([1., float('inf')]))",
    "L.histc(L.ones(0), 3)",
    "L.histc(L.tensor([0., 1., 3., 2.9, 5., -1.]), 3, 0, 3)",
    "L.histogram(L.ones(2), 0)",
    "L.histogram(L.ones(2), 3, range=(2., 1.))",
    "L.histogram(L.tensor([1., float('nan')]), 3)",
    "L.histogram(L.ones(2), L.ones(3, dtype=L.float64))",
    "L.histogram(L.ones(2), 3, weight=L.ones(3))",
    "L.histogram(L.tensor([1]))",
    "L.histogram(L.tensor([1., 2., 4.]), L.tensor([0., 2., 3., 4.]))",
    "L.histogram(L.tensor([1., 2., 4.]), 3, density=True, weight=L.tensor([1., 2., 3.]))",
    "L.isin(1, 2)",
    "L.isin(L.tensor([1., 2.]), 2)",
    "L.isin(2, L.tensor([1, 2]))",
    "L.isin(L.ones(2), L.ones(0))",
    "L.isin(L.tensor([[1, 2]]), L.tensor([2, 9]), invert=True)",
    "L.isin(L.tensor([3., L.nan, L.inf, -L.inf, 2.]), L.tensor([L.nan, 3., L.nan, L.inf]))",
    "L.isin(L.tensor([3., L.nan, L.inf, -L.inf, 2.]), L.tensor([L.nan, 2., -L.inf]))",
    "L.isin(L.tensor([1., L.nan, -L.inf]), L.tensor([L.nan]))",
    "L.isin(L.tensor([True]), L.tensor([True]))",
    "L.quantile(L.tensor(3.), L.tensor(.5), keepdim=True)",
    "L.quantile(L.ones(2), 1.5)",
    "L.quantile(L.ones(2), L.ones(2, 2))",
    "L.quantile(L.ones(0), 0.5)",
    "L.quantile(L.ones(2), L.tensor(.5, dtype=L.float64))",
    "L.quantile(L.ones(2), L.tensor([1.5]))",
    "L.quantile(L.tensor([1]), 0.5)",
    "L.quantile(L.ones(2), 0.5, interpolation='x')",
    "L.quantile(m, .3, axis=1)",
    "L.quantile(L.tensor([1., float('nan')]), 0.5)",
    "L.nanquantile(L.tensor([1., float('nan')]), 0.5)",
    "L.nanquantile(L.tensor([[1., float('nan')], [float('nan')] * 2]), 0.5, dim=1, keepdim=True)",
    "L.quantile(m, L.tensor([0., .7], dtype=L.float64), keepdim=True)",
    "L.quantile(L.tensor(2.), L.tensor([.5]))",
    "L.cov(L.ones(2, 2, 2))",
    "L.cov(L.ones(2), fweights=L.ones(2))",
    "L.cov(L.ones(2), aweights=L.tensor([1, 2]))",
    "L.cov(L.ones(2), aweights=L.ones(3))",
    "L.cov(L.ones(2), aweights=-L.ones(2))",
    "L.cov(L.ones(2), aweights=0 * L.ones(2))",
    "L.cov(L.ones(2), fweights=L.ones(2, 2, dtype=L.int64))",
    "L.cov(L.tensor([True]))",
    "L.corrcoef(L.ones(2, 2, 2))",
    "L.cov(L.tensor([1, 2, 4]))",
    "L.corrcoef(L.tensor([1., 2.]))",
    "L.trapezoid(L.tensor(1.))",
    "L.trapezoid(L.ones(2, 3), L.ones(2))",
    "L.cumulative_trapezoid(L.ones(2, 3), L.ones(2))",
    "L.trapezoid(L.ones(2, 0))",
    "L.trapz(L.tensor([1., 2., 4.]), dx=.5)",
    "L.trapezoid(L.ones(2, 3), dim=0)",
    "L.cumulative_trapezoid(L.tensor([1, 2, 4]))",
    "L.trapezoid(m, m, dim=0)",
    "L.unravel_index(L.tensor([4, 5]), (2, 3))",
    "L.unravel_index(L.tensor([[4]]), 7)",
    "L.unravel_index(L.ones(2), (2,))",
    "L.unravel_index(L.tensor(1), (2, -3))",
    "L.unravel_index(L.tensor(1), (2, 1.5))",
    "L.unravel_index(L.tensor(1), 1.5)",
    "L.cdist(L.ones(2), L.ones(2, 2))",
    "L.cdist(L.ones(2, 3), L.ones(2, 2))",
    "L.cdist(L.ones(2, 2), L.ones(2, 2), -1)",
    "L.cdist(L.ones(2, 2), L.ones(2, 2).long())",
    "L.cdist(L.ones(2, 2), L.ones(2, 2), compute_mode='x')",
    "L.cdist(L.ones(2, 0), L.ones(3, 0))",
    "L.cdist(L.ones(0, 2), L.ones(3, 2))",
    "L.cdist(m, m)",
    "L.pdist(L.ones(2))",
    "L.pdist(L.ones(2, 2), -1)",
    "L.nn.functional.pdist(L.ones(1, 2))",
    "L.renorm(L.ones(2, 2), 2, 0, -1)",
    "L.renorm(L.ones(2), 2, 0, 1)",
    "L.renorm(L.ones(2, 2), 0, 0, 1)",
    "L.ones(2).fill_diagonal_(1)",
    "L.ones(2, 3, 3).fill_diagonal_(1)",
    "L.zeros(7, 3).fill_diagonal_(5, wrap=True)",
    "L.zeros(3, 7).fill_diagonal_(5, wrap=True)",
    "L.zeros(3, 3, 3).fill_diagonal_(2)",
    "L.zeros(4, 3).t().fill_diagonal_(5)",
    "L.ones(2).hsplit(3)",
    "L.tensor(1.).hsplit(2)",
    "L.ones(2).vsplit(2)",
    "L.ones(2, 2).dsplit(2)",
    "L.ones(3, 3).hsplit(2)",
    "L.ones(4, 4).hsplit((1, 2))",
    "L.arange(4).hsplit(2)",
    "L.ones(2, 4, 4).dsplit(indices=[1])",
    "L.frombuffer(b'', dtype=L.uint8)",
    "L.frombuffer(bytearray(3), dtype=L.int16)",
    "L.frombuffer(3, dtype=L.int16)",
    "L.frombuffer(bytearray(4), dtype=L.int16, offset=5)",
    "L.frombuffer(bytearray(4), dtype=L.int16, count=3)",
    "L.frombuffer(bytearray(4), dtype=L.int16, count=0)",
    "L.frombuffer(array.array('d', [1., 2.]), dtype=L.float64)",
    "L.frombuffer(b'abcd', dtype=L.int16, offset=2)",
    "L.frombuffer(bytearray(4), dtype=L.int16, requires_grad=True)",
    "L.arange(6).resize_(2, 2)",
    "L.arange(6).resize_((3,))",
    "L.arange(6).resize_(L.Size([2, 3]))",
    "L.arange(6).resize_(0)",
    "L.arange(6).reshape(2, 3).t().resize_(2, 3)",
    "L.ones(2).resize_(1.5)",
    "L.ones(2, requires_grad=True).resize_(3)",
    "L.from_numpy(np.ones(2)).resize_(5)",
    "L.arange(6)[2:].resize_(2, 2)",
    "L.arange(6).resize_as_(L.ones(2, 2))",
    "L.arange(24).resize_(1, 2, 3, 4, memory_format=L.channels_last)",
    "L.arange(3).resize_(5)[:3]",
    "L.arange(3)[1:].resize_(4)[:2]",
    "L.view_copy(m, (5, 4))",
    "L.t_copy(m)",
    "L.detach_copy(m)",
    "L.expand_copy(m, (2, 4, 5))",
    "L.select_copy(m, 0, 1)",
    "L.permute_copy(m, (1, 0))",
    "L.unsqueeze_copy(m, 0)",
    "L.as_strided_copy(m, (2, 2), (1, 1))",
    "L.diagonal_copy(m)",
]


@pytest.mark.parametrize("text", SAME)
def test_calls_give_what_they_give_in_pytorch(text):
    ours, theirs = outcome(adjit, text), outcome(torch, text)
    if isinstance(theirs, list):
        assert isinstance(ours, list), ours
        for (*kind, values), (*wanted, others) in zip(ours, theirs, strict=True):
            assert kind == wanted
            np.testing.assert_allclose(values, others, rtol=1e-6, atol=1e-8)
    else:
        assert ours == theirs


DIFFERENTIABLE = {
    "quantile": (lambda L, x: L.quantile(x, 0.3, dim=1), MATRIX),
    "quantiles": (lambda L, x, q: L.quantile(x, q, dim=0), MATRIX, np.array([0.1, 0.55])),
    "nanquantile": (lambda L, x: L.nanquantile(x, 0.7), MATRIX),
    "midpoint": (lambda L, x: L.quantile(x, 0.4, interpolation="midpoint"), MATRIX),
    "cov": (lambda L, x: L.cov(x), MATRIX),
    "weighted cov": (lambda L, x, w: L.cov(x, aweights=w), MATRIX, np.abs(OTHER[0]) + 1),
    "corrcoef": (lambda L, x: L.corrcoef(x), MATRIX),
    "trapezoid": (lambda L, y, x: L.trapezoid(y, x), MATRIX, np.sort(OTHER[0])),
    "cumulative_trapezoid": (lambda L, y: L.cumulative_trapezoid(y, dx=0.5, dim=0), MATRIX),
    "dist": (lambda L, x, y: L.dist(x, y), MATRIX, OTHER[:4]),
    "dist of order 3": (lambda L, x, y: L.dist(x, y, 3), MATRIX, OTHER[0]),
    "cdist": (lambda L, x, y: L.cdist(x, y), MATRIX, OTHER),
    "cdist by product": (lambda L, x, y: L.cdist(x, y), MANY, OTHER),
    "cdist of batches": (
        lambda L, x, y: L.cdist(x, y, p=1.5),
        MATRIX[None],
        np.stack([OTHER, OTHER + 1]),
    ),
    "cdist of order 1": (lambda L, x, y: L.cdist(x, y, p=1), MATRIX, OTHER),
    "cdist of order infinity": (lambda L, x, y: L.cdist(x, y, p=float("inf")), MATRIX, OTHER),
    "cdist of order 3": (lambda L, x, y: L.cdist(x, y, p=3), MATRIX, OTHER),
    "cdist of long rows": (lambda L, x, y: L.cdist(x, y), LONG[:4], LONG[4:]),
    "cdist of long rows of order 1": (lambda L, x, y: L.cdist(x, y, p=1), LONG[:4], LONG[4:]),
    "cdist of long rows of order 1.5": (lambda L, x, y: L.cdist(x, y, 1.5), LONG[:4], LONG[4:]),
    "cdist of long rows of order infinity": (
        lambda L, x, y: L.cdist(x, y, float("inf")),
        LONG[:4],
        LONG[4:],
    ),
    "pdist": (lambda L, x: L.pdist(x), MATRIX),
    "renorm": (lambda L, x: L.renorm(x, 2, 0, 1.5), MATRIX),
    "renorm_": (lambda L, x: (x * 1).renorm_(2, 1, 1.5), MATRIX),
    "fill_diagonal_": (lambda L, x: (x * x).fill_diagonal_(3.0), MATRIX),
    "hsplit": (lambda L, x: L.hsplit(x, [2])[1] * 2, MATRIX),
    "view_copy": (lambda L, x: L.view_copy(x * x, (5, 4)), MATRIX),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_values_and_gradients(name):
    call, *arrays = DIFFERENTIABLE[name]
    agree(call, *arrays, rtol=1e-9, atol=1e-9)
    order = 1 if "cdist" in name or name in ("pdist",) else 2  # what PyTorch has
    agree_in_gradients(call, *arrays, order=order, rtol=1e-6, atol=1e-8)
    leaves = [adjit.tensor(a, requires_grad=True) for a in arrays]
    assert adjit.autograd.gradcheck(lambda *xs: call(adjit, *xs), leaves)


def test_distances_have_second_derivatives():
    x, y = (adjit.tensor(a, requires_grad=True) for a in (MANY[:26], OTHER[:2]))
    for mode in ("use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"):
        assert adjit.autograd.gradgradcheck(
            lambda a, b: adjit.cdist(a, b, compute_mode=mode),  # noqa: B023
            [x, y],
        )


def test_the_gradient_of_no_distance_is_zero():
    for rows in (2, 30):
        x = adjit.ones(rows, 3, requires_grad=True)
        adjit.cdist(x, x.detach()).sum().backward()
        assert not x.grad.any()


def rows_with_equal_ones(kind, batch, rows, others, depth):
    """Matrices of which two rows are the same, and some elements."""
    random = np.random.default_rng(rows + depth)
    x = random.standard_normal((*batch, rows, depth)).astype(kind)
    y = random.standard_normal((*batch[-1:], others, depth)).astype(kind)
    y[..., 0, :] = x.reshape(-1, depth)[0]
    y[..., others // 2, 0] = x.reshape(-1, depth)[rows // 2, 0]
    return x, y


# Panels and blocks that are full, end early, or come one after the other; narrow rows and long ones.
SIZES = [
    ((), 3, 5, 4), ((), 1, 40, 3), ((), 37, 1, 3), ((), 32, 64, 16), ((2,), 33, 70, 5),
    ((), 70, 33, 17), ((2, 3), 9, 10, 65), ((), 40, 140, 300), ((), 5, 4, 1),
]  # fmt: skip


@pytest.mark.parametrize("p", [0, 0.5, 1, 1.5, 2, 3, float("inf")])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_distances_of_all_orders_and_sizes(kind, p):
    rtol = 2e-5 if kind == "float32" else 1e-11
    mode = "donot_use_mm_for_euclid_dist"
    for batch, rows, others, depth in SIZES:
        arrays = rows_with_equal_ones(kind, batch, rows, others, depth)
        found = []
        for library in (adjit, torch):
            leaves = [library.tensor(a, requires_grad=True) for a in arrays]
            out = library.cdist(*leaves, p, compute_mode=mode)
            weight = library.arange(out.numel()).view(out.shape).to(out.dtype).sin()
            out.backward(weight)
            found.append([t.detach().numpy() for t in (out, *[leaf.grad for leaf in leaves])])
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol, rtol * max(1, np.abs(theirs).max()))


def test_distances_by_products_are_nearly_the_exact_ones():
    x, y = rows_with_equal_ones("float64", (), 60, 40, 130)
    slopes = []
    for mode in ("use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"):
        leaves = [adjit.tensor(a, requires_grad=True) for a in (x, y[1:])]
        adjit.cdist(*leaves, compute_mode=mode).cos().sum().backward()
        slopes.append([leaf.grad.numpy() for leaf in leaves])
    for by_product, exact in zip(*slopes, strict=True):
        np.testing.assert_allclose(by_product, exact, 1e-9, 1e-9)


def test_distances_are_those_of_their_threads_and_neighbours():
    x, y = rows_with_equal_ones("float32", (), 70, 90, 40)
    for p in (1, 2, 3, float("inf")):
        a, b = (adjit.tensor(t, requires_grad=True) for t in (x, y))
        out = adjit.cdist(a, b, p, compute_mode="donot_use_mm_for_euclid_dist")
        out.sum().backward()
        part = adjit.tensor(x[3:8], requires_grad=True)
        again = adjit.cdist(part, b, p, compute_mode="donot_use_mm_for_euclid_dist")
        again.sum().backward()
        assert (out[3:8] == again).all()
        assert (a.grad[3:8] == part.grad).all()


def test_nan_reaches_distances_and_gradients():
    for p in (0, 1, 2, 3, float("inf")):
        x = adjit.tensor([[1.0, float("nan")], [0.0, 1.0]], requires_grad=True)
        out = adjit.cdist(x, adjit.ones(2, 2), p)
        assert out.isnan().tolist() == [[p != 0] * 2, [False] * 2]
        out.sum().backward()
        assert not x.grad[1].isnan().any()


def test_results_are_written_into_out():
    x = adjit.tensor(MATRIX)
    out = adjit.empty(5, dtype=adjit.float64)
    assert adjit.quantile(x, 0.5, 0, out=out) is out
    np.testing.assert_allclose(out.numpy(), np.quantile(MATRIX, 0.5, axis=0))


def test_bytes_are_shared():
    with pytest.warns(UserWarning, match="The given buffer is not writable"):
        assert adjit.frombuffer(b"ab", dtype=adjit.uint8).tolist() == [97, 98]
    data = bytearray(4)
    x = adjit.frombuffer(data, dtype=adjit.int16)
    x[1] = 258
    assert data == bytearray([0, 0, 2, 1])
    data[0] = 7
    assert x.tolist() == [7, 258]


def test_memory_that_grows_is_seen_by_views():
    x = adjit.arange(4)
    view = x[1:3]
    x.resize_(100)
    assert x.shape == (100,)
    assert x[:4].tolist() == [0, 1, 2, 3]
    x[1] = 9
    assert view.tolist() == [9, 2]
    for _ in range(12):  # in every tier
        y = adjit.ones(3) * 2
        assert (y.resize_(2, 3)[:1] + 1).tolist() == [[3.0, 3.0, 3.0]]


def test_a_network_goes_without_its_values():
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    before = net[0].weight
    assert net.to_empty(device="cpu") is net
    assert net[0].weight is before
    assert net[0].weight.shape == (3, 2)
    assert net[1].num_batches_tracked.dtype is adjit.int64
    assert nn.Sequential(nn.Linear(1, 1)).to_empty(device="cpu", recurse=False)[0].weight.shape == (
        1,
        1,
    )


WITHOUT_DERIVATIVE = {
    "unique": lambda lib, x: lib.unique(x, return_counts=True)[0],
    "unique rows": lambda lib, x: x.unique(dim=0),
    "neighbours": lambda lib, x: lib.unique_consecutive(x),
    "neighbouring rows": lambda lib, x: x.unique_consecutive(dim=0),
    "histogram": lambda lib, x: lib.histogram(x, 3).hist,
    "rows": lambda lib, x: lib.histogramdd(x, [2, 2]).hist,
    "edges": lambda lib, x: lib.histogramdd(x, [lib.tensor([0.0, 1.5, 3.0])] * 2).hist,
    "weight": lambda lib, x: lib.histogramdd(lib.ones(2, 2), [2, 2], weight=x[0]).hist,
}


@pytest.mark.parametrize("name", WITHOUT_DERIVATIVE)
def test_what_has_no_derivative_says_so_in_backward(name):
    """A gradient that is left out would be a wrong one."""

    def told(lib):
        x = lib.tensor([[1.0, 2.0], [2.0, 1.0]], requires_grad=True)
        with lib.no_grad():
            assert not WITHOUT_DERIVATIVE[name](lib, x).requires_grad
        made = WITHOUT_DERIVATIVE[name](lib, x)
        with pytest.raises(Exception, match="derivative for") as caught:
            (made.sum() + x.sum()).backward()
        return made.tolist(), type(caught.value), str(caught.value)

    assert told(adjit) == told(torch)


def test_counts_of_many_are_those_of_numpy():
    data = RNG.integers(0, 50, size=20_000)
    assert adjit.bincount(adjit.tensor(data)).tolist() == np.bincount(data).tolist()
    values = RNG.normal(size=20_000)
    counts, edges = np.histogram(values, bins=30)
    made = adjit.histogram(adjit.tensor(values), 30)
    assert made.hist.tolist() == counts.tolist()
    np.testing.assert_allclose(made.bin_edges.numpy(), edges, rtol=1e-12)
    assert (
        adjit.isin(adjit.tensor(data), adjit.tensor([3, 49])).sum().item()
        == np.isin(data, [3, 49]).sum()
    )


# ----- histograms of rows, slopes of samples -----

ROWS = np.random.default_rng(5).standard_normal((40, 3)).astype(np.float32)


def rows_in_bins(lib, k):
    x = lib.from_numpy(ROWS.copy())
    edges = [lib.tensor([-1.0, 0.0, 0.5, 2.0]), lib.tensor([-3.0, 3.0]), lib.linspace(-1, 1, 5)]
    weight = lib.from_numpy(np.abs(ROWS[:, 0]).copy())
    return [
        lambda: lib.histogramdd(x, 3),
        lambda: lib.histogramdd(x, [2, 3, 4]),
        lambda: lib.histogramdd(x, edges),
        lambda: lib.histogramdd(x, [2, 3, 4], weight=weight),
        lambda: lib.histogramdd(x, [2, 3, 4], range=[-1.0, 1, -2, 2, 0, 1], density=True),
        lambda: lib.histogramdd(x, edges, density=True, weight=weight),
        lambda: lib.histogramdd(x.view(4, 10, 3).double(), (2, 2, 2)),
        lambda: lib.histogramdd(x[:0], [1, 2, 2]),
        lambda: lib.histogramdd(lib.ones(3, 2), [2, 2]),
    ][k]()


@pytest.mark.parametrize("k", range(9))
def test_histograms_of_rows(k):
    theirs, ours = (rows_in_bins(lib, k) for lib in (torch, adjit))
    np.testing.assert_allclose(ours.hist.numpy(), theirs.hist.numpy(), rtol=1e-5)
    assert len(ours.bin_edges) == len(theirs.bin_edges)
    for a, b in zip(theirs.bin_edges, ours.bin_edges, strict=True):
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-5)
    assert type(ours.bin_edges) is tuple


WRONG_ROWS = {
    "bins": lambda lib, x: lib.histogramdd(x, [3]),
    "range": lambda lib, x: lib.histogramdd(x, [3, 2], range=[0.0, 1.0]),
    "ints": lambda lib, x: lib.histogramdd(x.long(), [3, 2]),
    "none": lambda lib, x: lib.histogramdd(x, [3, 0]),
    "weight": lambda lib, x: lib.histogramdd(x, [3, 2], weight=lib.ones(5)),
    "axes": lambda lib, x: lib.histogramdd(x[0], [3, 2]),
    "order": lambda lib, x: lib.histogramdd(x, [2, 2], range=[1.0, 0.0, 0.0, 1.0]),
    "edges": lambda lib, x: lib.histogramdd(x, [lib.ones(2), lib.ones(2, 2)]),
    "dtype": lambda lib, x: lib.histogramdd(x, [lib.ones(2).double(), lib.ones(2).double()]),
    "edge order": lambda lib, x: lib.gradient(x, edge_order=3),
    "spacing": lambda lib, x: lib.gradient(x, spacing=(1.0, 2.0, 3.0)),
    "spacing and dim": lambda lib, x: lib.gradient(x, spacing=[2.0, 3.0], dim=0),
    "short": lambda lib, x: lib.gradient(x[:1], dim=0),
    "short for 2": lambda lib, x: lib.gradient(x[:2], dim=0, edge_order=2),
    "no axis": lambda lib, x: lib.gradient(x, dim=5),
    "twice": lambda lib, x: lib.gradient(x, dim=(0, -2)),
}


@pytest.mark.parametrize("name", WRONG_ROWS)
def test_wrong_rows_and_slopes(name):
    errors = []
    for lib in (torch, adjit):
        with pytest.raises(Exception, match=r".") as caught:
            WRONG_ROWS[name](lib, lib.from_numpy(ROWS[:, :2].copy()))
        errors.append((caught.type, str(caught.value)))
    assert errors[0] == errors[1]


SLOPES = {
    "all": lambda lib, x: lib.gradient(x),
    "one": lambda lib, x: lib.gradient(x, dim=1, spacing=0.5),
    "order 2": lambda lib, x: lib.gradient(x, edge_order=2, spacing=[2.0, 3.0], dim=(-1, 0)),
    "places": lambda lib, x: lib.gradient(x, spacing=[lib.tensor([0.0, 1, 3, 4, 8])], dim=0),
    "places 2": lambda lib, x: lib.gradient(
        x,
        spacing=[lib.tensor([0.0, 1, 3, 4, 8]), lib.tensor([1.0, 3.0, 4.0])],
        dim=(0, 1),
        edge_order=2,
    ),
    "ints": lambda lib, x: lib.gradient((x * 9).long()),
    "short": lambda lib, x: lib.gradient(x[:2], dim=0),
    "number": lambda lib, x: lib.gradient(x, spacing=lib.tensor(2.0)),
    "no axes": lambda lib, x: lib.gradient(lib.tensor(1.0)),
    "volumes": lambda lib, x: lib.gradient(x[:, :, None].expand(5, 3, 4) * 2, edge_order=2),
}


@pytest.mark.parametrize("name", SLOPES)
def test_slopes_of_samples(name):
    theirs, ours = (SLOPES[name](lib, lib.from_numpy(ROWS[:5].copy())) for lib in (torch, adjit))
    assert type(ours) is tuple
    assert len(ours) == len(theirs)
    for a, b in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-4, atol=1e-6)
        assert str(a.dtype).partition(".")[2] == str(b.dtype).partition(".")[2]


@pytest.mark.parametrize("order", [1, 2])
def test_slopes_have_gradients(order):
    x = adjit.from_numpy(ROWS[:5].copy()).double().requires_grad_()
    places = adjit.tensor([0.0, 1, 3, 4, 8], dtype=adjit.float64)
    assert adjit.autograd.gradcheck(
        lambda x: (
            *adjit.gradient(x, spacing=[places], dim=0, edge_order=order),
            *adjit.gradient(x, edge_order=order),
        ),
        x,
    )


def test_what_is_no_sample_of_a_function() -> None:
    x, flags = np.arange(3.0), np.ones(3, bool)
    for name in ("trapezoid", "cumulative_trapezoid"):
        agree_in_error(lambda T, t: getattr(T, name)(t), flags)  # noqa: B023
        agree_in_error(lambda T, t, s: getattr(T, name)(t, s), x, flags)  # noqa: B023
        agree_in_error(lambda T, t, s: getattr(T, name)(s, t), x, flags)  # noqa: B023
        for none in (x, x[:0]):
            with pytest.raises(TypeError):
                getattr(adjit, name)(adjit.tensor(none), 2)
    agree_in_error(lambda T, t: T.bincount(t, 0), np.arange(0))
    agree_in_error(lambda T, t: T.bincount(t, None, 1.5), np.arange(3))
    agree_in_error(lambda T, t: T.trace(t), np.ones((2, 2), bool))
    for dim in (1, -2, (1,)):
        agree_in_error(lambda T, t: T.logsumexp(t, dim), np.float32(1))  # noqa: B023


def test_slopes_have_gradients_in_coordinates_and_distances() -> None:
    x, places = np.array([[1.0, 4, 9, 2], [3, 1, 2, 7]]), np.array([0.0, 1.5, 2, 4])
    for order in (1, 2):
        agree_in_gradients(
            lambda T, t, s, order=order: T.gradient(t, spacing=[s], dim=1, edge_order=order)[0],
            x,
            places,
        )
    values = [adjit.tensor(v, requires_grad=True) for v in (x, places)]
    assert adjit.autograd.gradcheck(lambda t, s: adjit.gradient(t, spacing=[s], dim=1)[0], values)


def test_sums_of_weights_say_that_they_have_no_derivative() -> None:
    weights = adjit.ones(2, requires_grad=True)
    with pytest.raises(NotImplementedError, match="bincount"):
        adjit.bincount(adjit.tensor([0, 1]), weights).sum().backward()
