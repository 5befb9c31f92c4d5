"""Reductions beside PyTorch: shapes, layouts, dtypes, gradients, errors; and their own laws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from adjit.kernels.language.lanes import LANES
from adjit.kernels.ops import reduce
from against_torch import (
    agree,
    agree_in_error,
    agree_in_gradients,
    agree_in_warning,
    backward_name,
    torch,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import adjit
from adjit.ops.reduce import ROW_STEP

RANDOM = np.random.default_rng(7)
NAN = math.nan

FOLDS = {
    "sum": lambda T, x, **k: T.sum(x, **k),
    "mean": lambda T, x, **k: T.mean(x, **k),
    "nansum": lambda T, x, **k: T.nansum(x, **k),
    "amax": lambda T, x, **k: T.amax(x, **k),
    "amin": lambda T, x, **k: T.amin(x, **k),
    "any": lambda T, x, **k: T.any(x > 0, **k),
    "all": lambda T, x, **k: T.all(x > -1, **k),
    "std": lambda T, x, **k: T.std(x, **k),
    "var_mean": lambda T, x, **k: T.var_mean(x, **k),
    "norm": lambda T, x, **k: T.linalg.vector_norm(x, **k),
    "count_nonzero": lambda T, x, dim, keepdim: T.count_nonzero(x > 0, dim),
    "logsumexp": lambda T, x, dim=0, **k: T.logsumexp(x, dim, **k),
}

LAYOUTS = {
    "plain": lambda x: x,
    "transposed": lambda x: x.permute(2, 0, 1),
    "sliced": lambda x: x[:, 1:, ::2],
    "swapped": lambda x: x.transpose(0, 1),
    "repeated": lambda x: x[:, :1].expand(3, 4, 5),
    "one row": lambda x: x[:1, :, :1],
}


@pytest.mark.parametrize("name", FOLDS)
def test_every_set_of_axes_in_every_layout(name: str) -> None:
    x = RANDOM.standard_normal((3, 4, 5)).astype(np.float32)
    for layout in LAYOUTS.values():
        for dim in (0, -1, 1, (0, 1), (0, 2), (-1, 1), (2, 0, 1)):
            for keepdim in (False, True):
                agree(
                    lambda T, t, to=layout, d=dim, k=keepdim: FOLDS[name](
                        T, to(t), dim=d, keepdim=k
                    ),
                    x,
                )


def test_all_axes_in_every_layout() -> None:
    x = RANDOM.standard_normal((3, 4, 5)).astype(np.float32)
    for layout in LAYOUTS.values():
        for call in (
            lambda T, t, to=layout: to(t).sum(),
            lambda T, t, to=layout: to(t).mean(),
            lambda T, t, to=layout: to(t).max(),
            lambda T, t, to=layout: to(t).std(correction=0),
            lambda T, t, to=layout: to(t).norm(),
            lambda T, t, to=layout: to(t).argmax(),
        ):
            agree(call, x)


@pytest.mark.parametrize("dtype", ["float64", "int32", "uint8", "bool"])
def test_dtypes(dtype: str) -> None:
    x = RANDOM.integers(0, 5, (4, 6)).astype(dtype)
    for call in (
        lambda T, t: t.sum(),
        lambda T, t: t.sum(1),
        lambda T, t: t.sum(0),
        lambda T, t: t.prod(1),
        lambda T, t: t.prod(),
        lambda T, t: t.amax(0),
        lambda T, t: t.amin(1),
        lambda T, t: t.max(),
        lambda T, t: t.max(1),
        lambda T, t: t.min(0),
        lambda T, t: t.any(1),
        lambda T, t: t.all(),
        lambda T, t: T.aminmax(t),
        lambda T, t: t.sum(dtype=T.float32),
        lambda T, t: t.mean(0, dtype=T.float64),
        lambda T, t: t.count_nonzero(),
        lambda T, t: t.logsumexp(1),
        lambda T, t: t.sum(1, dtype=T.int32),
    ):
        agree(call, x)


@pytest.mark.parametrize("length", [1, 7, 31, 32, 33, 600, 5000, 70000])
def test_lengths(length: int) -> None:
    x = RANDOM.standard_normal((3, length)).astype(np.float32)
    for data in (x, np.ascontiguousarray(x.T)):
        for dim in (0, 1):
            for call in (
                lambda T, t, dim=dim: t.sum(dim),
                lambda T, t, dim=dim: t.amax(dim),
                lambda T, t, dim=dim: t.max(dim),
                lambda T, t, dim=dim: t.min(dim),
                lambda T, t, dim=dim: t.var(dim, correction=0),
                lambda T, t, dim=dim: t.norm(dim=dim),
                lambda T, t, dim=dim: t.argmin(dim),
            ):
                agree(call, data, rtol=2e-5, atol=2e-4)


def test_zero_dimensions() -> None:
    x = np.float32(2.5)
    for call in (
        lambda T, t: t.sum(),
        lambda T, t: t.sum(0, True),
        lambda T, t: t.mean(-1),
        lambda T, t: t.max(0),
        lambda T, t: t.prod(0),
        lambda T, t: t.argmax(),
        lambda T, t: t.amax(),
        lambda T, t: t.logsumexp(0),
        lambda T, t: t.norm(),
        lambda T, t: t.median(0),
        lambda T, t: t.mode(),
        lambda T, t: t.var(correction=0),
    ):
        agree(call, x)


def test_nothing_to_reduce() -> None:
    x = np.zeros((0, 3), np.float32)
    for call in (
        lambda T, t: t.sum(),
        lambda T, t: t.sum(0),
        lambda T, t: t.sum(1),
        lambda T, t: t.prod(0),
        lambda T, t: t.mean(),
        lambda T, t: t.mean(0),
        lambda T, t: t.all(),
        lambda T, t: t.any(0),
        lambda T, t: t.amax(1),
        lambda T, t: t.max(1),
        lambda T, t: t.std(),
        lambda T, t: t.median(),
        lambda T, t: t.median(1),
        lambda T, t: t.logsumexp(0),
        lambda T, t: T.linalg.vector_norm(t),
        lambda T, t: t.argmax(1),
        lambda T, t: t.sum((0, 1), True),
    ):
        agree(call, x)


def test_nan_wins_everywhere() -> None:
    x = np.array([[1.0, NAN, 2.0, NAN], [3.0, 1.0, 4.0, 4.0]], np.float32)
    for data in (x, np.ascontiguousarray(x.T), np.tile(x, (1, 20))):
        for dim in (0, 1):
            for call in (
                lambda T, t, dim=dim: t.max(dim),
                lambda T, t, dim=dim: t.min(dim),
                lambda T, t, dim=dim: t.amax(dim),
                lambda T, t, dim=dim: t.argmin(dim),
                lambda T, t, dim=dim: t.sum(dim),
                lambda T, t, dim=dim: t.nansum(dim),
                lambda T, t, dim=dim: t.nanmean(dim),
                lambda T, t, dim=dim: t.median(dim)[0],
                lambda T, t, dim=dim: t.nanmedian(dim)[0],
            ):
                agree(call, data)
    agree(lambda T, t: T.stack([t.max(), t.min(), t.median(), t.nanmedian()]), x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_each_nan_among_many_wins_with_its_bits(dtype: str) -> None:
    """Numbers are looked at two vectors at once; what is found does not depend on where a NaN stands."""
    size = 2 * reduce.BLOCK + reduce.RUN + 3
    x = np.random.default_rng(0).standard_normal((2, size)).astype(dtype)
    x[0, ::7] = np.inf
    x[1, ::7] = -np.inf
    as_bits = np.dtype(f"int{8 * x.itemsize}")
    marked = np.copysign(np.array(NAN, dtype), -1)
    for place in [*range(0, size, 61), *range(size - 70, size)]:
        row = x[place % 2].copy()
        row[place] = marked
        for name in ("amax", "amin"):
            found = getattr(adjit.from_numpy(row), name)().numpy()
            assert found.view(as_bits) == marked.view(as_bits), (name, place)
    for row in x:
        assert adjit.from_numpy(row).amax().item() == row.max()
        assert adjit.from_numpy(row).amin().item() == row.min()


def test_norms() -> None:
    x = RANDOM.standard_normal((3, 4, 5))
    x[0, 0] = 0.0
    for ord in (0, 0.5, 1, 1.5, 2, 3, 7.0, math.inf, -math.inf, -1):
        for dim in (None, 0, (0, 2), -1):
            agree(lambda T, t, o=ord, d=dim: T.linalg.vector_norm(t, o, dim=d), x)
    agree(lambda T, t: t.norm(), x)
    agree(lambda T, t: t.norm("fro", dim=(0, 1)), x)
    agree(lambda T, t: T.norm(t, p=1, dim=1, keepdim=True), x)
    agree(lambda T, t: t.norm(dtype=T.float64), x.astype(np.float32))


def test_norms_of_matrices() -> None:
    x = RANDOM.standard_normal((3, 4, 5))
    x[0, 0] = 0.0
    for ord in ("fro", 1, -1, math.inf, -math.inf):
        for dim in ((-2, -1), (0, 2), (2, 0), [1, -3]):
            agree(lambda T, t, o=ord, d=dim: T.linalg.matrix_norm(t, o, d), x)
            agree(lambda T, t, o=ord, d=dim: T.linalg.norm(t, o, d, True), x)
        agree(lambda T, t, o=ord: T.linalg.norm(t[0], o), x)
    for dim in (None, 1, (0, 1), (2,)):
        agree(lambda T, t, d=dim: T.linalg.norm(t, dim=d), x)
    agree(lambda T, t: T.linalg.norm(t, 3, dim=1, keepdim=True), x)
    agree(lambda T, t: T.linalg.norm(t[0, 1], 1), x)
    agree(lambda T, t: T.linalg.norm(t, 1, (0, 1), dtype=T.float64), x.astype(np.float32))
    agree(lambda T, t: T.linalg.matrix_norm(t, "fro", dtype=T.float64), x.astype(np.float32))
    for shape in ((3, 0), (0, 3), (0, 0), (2, 0, 3)):
        agree(lambda T, t: T.linalg.matrix_norm(t, 1), np.zeros(shape))
        agree(lambda T, t: T.linalg.matrix_norm(t, math.inf), np.zeros(shape))


@pytest.mark.parametrize("ord", [2, -2, "nuc"])
def test_norms_by_singular_values_are_refused(ord: Any) -> None:
    with pytest.raises(NotImplementedError, match=f"order {ord} needs singular values"):
        adjit.linalg.norm(adjit.ones(2, 3), ord)


DIFFERENTIABLE = {
    "sum": lambda T, x: x.sum(),
    "sum dims": lambda T, x: x.sum((0, 2)),
    "sum keepdim": lambda T, x: x.sum(1, True),
    "mean": lambda T, x: x.mean(),
    "mean dim": lambda T, x: x.mean(1),
    "nansum": lambda T, x: x.nansum(1),
    "nanmean": lambda T, x: x.nanmean(),
    "prod": lambda T, x: x.prod(),
    "prod dim": lambda T, x: x.prod(1),
    "amax": lambda T, x: x.amax((0, 1)),
    "amin": lambda T, x: x.amin(-1, True),
    "max": lambda T, x: x.max(),
    "max dim": lambda T, x: x.max(1)[0],
    "min dim": lambda T, x: x.min(0, True)[0],
    "aminmax": lambda T, x: T.aminmax(x, dim=1),
    "median": lambda T, x: x.median(),
    "median dim": lambda T, x: x.median(2)[0],
    "nanmedian dim": lambda T, x: x.nanmedian(0)[0],
    "kthvalue": lambda T, x: x.kthvalue(2, 1)[0],
    "mode": lambda T, x: x.mode(1)[0],
    "std": lambda T, x: x.std(),
    "std dims": lambda T, x: x.std((0, 1), correction=0),
    "var": lambda T, x: x.var(1, keepdim=True),
    "var_mean": lambda T, x: T.var_mean(x, 0),
    "std_mean": lambda T, x: T.std_mean(x, (1, 2)),
    "logsumexp": lambda T, x: x.logsumexp((0, 2)),
    "norm": lambda T, x: x.norm(),
    "norm 1": lambda T, x: T.linalg.vector_norm(x, 1, dim=1),
    "norm 1.5": lambda T, x: T.linalg.vector_norm(x, 1.5, dim=(0, 1)),
    "norm 3": lambda T, x: T.linalg.vector_norm(x, 3, dim=1, keepdim=True),
    "norm inf": lambda T, x: T.linalg.vector_norm(x, math.inf, dim=2),
    "matrix norm fro": lambda T, x: T.linalg.matrix_norm(x),
    "matrix norm 1": lambda T, x: T.linalg.norm(x, 1, (0, 2)),
    "matrix norm -inf": lambda T, x: T.linalg.norm(x[0], -math.inf),
    "max of two": lambda T, x: T.max(x, x.flip(0) * 2),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(name: str) -> None:
    agree_in_gradients(DIFFERENTIABLE[name], RANDOM.standard_normal((3, 4, 2)))


def test_gradients_of_products_with_zeros() -> None:
    x = np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 5.0], [1.0, 2.0, 4.0]])
    agree_in_gradients(lambda T, t: t.prod(1), x)
    agree_in_gradients(lambda T, t: t.prod(0, True), x)
    agree_in_gradients(lambda T, t: t[0].prod(), x)
    agree_in_gradients(lambda T, t: t.prod(), x)


@pytest.mark.parametrize("shape", [(8, 5), (19, 6), (1, 7), (3, 1), (2, 4, 300), (30,)])
@pytest.mark.parametrize("zeros", [0, 5])
def test_gradients_of_products_of_rows_and_columns(shape: tuple[int, ...], zeros: int) -> None:
    """Rows side by side and those left over, columns in strips, to the third order."""
    x = RANDOM.uniform(0.5, 1.5, shape)
    if zeros:
        x.flat[::zeros] = 0.0
    for axis in range(len(shape)):
        agree_in_gradients(lambda T, t, d=axis: (1 + t).log() + t.prod(d, True), x, order=3)


def test_the_product_of_others_is_made_of_rounded_doubles() -> None:
    x = adjit.tensor(RANDOM.uniform(0.5, 1.5, (11, 200)), dtype=adjit.float32, requires_grad=True)
    (g,) = adjit.autograd.grad(x.prod(1).sum(), [x])
    exact = np.float64(x.detach().numpy())
    others = exact.prod(1, keepdims=True) / exact
    np.testing.assert_allclose(g.numpy(), others, rtol=3e-7)


def test_equal_extremes_share_as_in_pytorch() -> None:
    x = np.array([[1.0, 3.0, 3.0], [3.0, 2.0, 1.0]])
    for call in (
        lambda T, t: t.max(),
        lambda T, t: t.min(),
        lambda T, t: t.amax(1),
        lambda T, t: t.amin(()),
        lambda T, t: t.max(1)[0],
        lambda T, t: t.median(),
        lambda T, t: T.linalg.vector_norm(t, math.inf),
    ):
        agree_in_gradients(call, x, order=1)


def test_norm_at_zero_has_gradient_zero() -> None:
    x = np.zeros((2, 3))
    for ord in (0, 1, 2, 3, math.inf):
        agree_in_gradients(lambda T, t, o=ord: T.linalg.vector_norm(t, o, dim=1), x, order=1)


NAMES = {
    "SumBackward0": lambda T, x: x.sum(),
    "SumBackward1": lambda T, x: x.sum(1),
    "MeanBackward0": lambda T, x: x.mean(),
    "MeanBackward1": lambda T, x: x.mean(1),
    "ProdBackward0": lambda T, x: x.prod(),
    "ProdBackward1": lambda T, x: x.prod(1),
    "AmaxBackward0": lambda T, x: x.amax(),
    "AminBackward0": lambda T, x: x.amin(1),
    "MaxBackward0": lambda T, x: x.max(1),
    "MaxBackward1": lambda T, x: x.max(),
    "MinBackward1": lambda T, x: x.min(),
    "AminmaxBackward0": lambda T, x: T.aminmax(x),
    "MedianBackward0": lambda T, x: x.median(),
    "MedianBackward1": lambda T, x: x.median(1),
    "NanmedianBackward0": lambda T, x: x.nanmedian(),
    "KthvalueBackward0": lambda T, x: x.kthvalue(1),
    "ModeBackward0": lambda T, x: x.mode(),
    "StdBackward0": lambda T, x: x.std(),
    "VarBackward0": lambda T, x: x.var(1),
    "VarMeanBackward0": lambda T, x: T.var_mean(x),
    "StdMeanBackward0": lambda T, x: T.std_mean(x),
    "LogsumexpBackward0": lambda T, x: x.logsumexp(1),
    "LinalgVectorNormBackward0": lambda T, x: x.norm(),
    "NansumBackward0": lambda T, x: x.nansum(),
}


@pytest.mark.parametrize("name", NAMES)
def test_names_in_the_graph(name: str) -> None:
    assert backward_name(NAMES[name], np.ones((2, 3))) == name


ERRORS = {
    "equal": lambda T, x, *_: T.equal(x, 3),
    "twice": lambda T, x, e, i: x.sum((0, 0)),
    "twice, negative": lambda T, x, e, i: x.sum((0, -2)),
    "no such axis": lambda T, x, e, i: x.sum(2),
    "no such axis of amax": lambda T, x, e, i: x.amax(-3),
    "mean of integers": lambda T, x, e, i: i.mean(),
    "mean of bool": lambda T, x, e, i: (i > 0).mean(1),
    "mean as integers": lambda T, x, e, i: x.mean(dtype=T.int64),
    "amax of nothing": lambda T, x, e, i: e.amax(),
    "amax of an empty axis": lambda T, x, e, i: e.amax(0),
    "max of nothing": lambda T, x, e, i: e.max(),
    "min of an empty axis": lambda T, x, e, i: e.min(0),
    "argmax of nothing": lambda T, x, e, i: e.argmax(),
    "argmin of an empty axis": lambda T, x, e, i: e.argmin(0),
    "argmax of bool": lambda T, x, e, i: (i > 0).argmax(),
    "aminmax of nothing": lambda T, x, e, i: T.aminmax(e),
    "aminmax of an empty axis": lambda T, x, e, i: T.aminmax(e, dim=0),
    "std of integers": lambda T, x, e, i: i.std(),
    "var_mean of integers": lambda T, x, e, i: T.var_mean(i),
    "median of bool": lambda T, x, e, i: (i > 0).median(),
    "median of an empty axis": lambda T, x, e, i: e.median(0),
    "mode of an empty axis": lambda T, x, e, i: e.mode(0),
    "logsumexp of no axis": lambda T, x, e, i: x.logsumexp(None),
    "norm of integers": lambda T, x, e, i: i.norm(),
    "inf norm of nothing": lambda T, x, e, i: T.linalg.vector_norm(e, math.inf),
    "-1 norm of nothing": lambda T, x, e, i: T.linalg.vector_norm(e, -1),
    "inf norm of an empty axis": lambda T, x, e, i: T.linalg.vector_norm(e, math.inf, dim=0),
    "matrix norm of a vector": lambda T, x, e, i: T.linalg.matrix_norm(x[0]),
    "vector norm of integers as floats": lambda T, x, e, i: T.linalg.vector_norm(
        i, dtype=T.float32
    ),
    "vector norm as integers": lambda T, x, e, i: T.linalg.vector_norm(x, dtype=T.int64),
    "norm narrowed": lambda T, x, e, i: x.double().norm(dtype=T.float32),
    "matrix norm of integers": lambda T, x, e, i: T.linalg.matrix_norm(i),
    "matrix norm of integers as floats": lambda T, x, e, i: T.linalg.matrix_norm(
        i, dtype=T.float32
    ),
    "matrix norm as integers": lambda T, x, e, i: T.linalg.matrix_norm(x, dtype=T.int64),
    "matrix norm narrowed": lambda T, x, e, i: T.linalg.matrix_norm(x.double(), 1, dtype=T.float32),
    "matrix norm along one axis": lambda T, x, e, i: T.linalg.matrix_norm(x, 1, (0,)),
    "matrix norm along one axis twice": lambda T, x, e, i: T.linalg.matrix_norm(x, 1, (0, -2)),
    "matrix norm 3": lambda T, x, e, i: T.linalg.matrix_norm(x, 3),
    "matrix norm of no kind": lambda T, x, e, i: T.linalg.matrix_norm(x, "most"),
    "matrix norm -1 of nothing": lambda T, x, e, i: T.linalg.matrix_norm(e[:, :0], -1),
    "matrix norm of a row": lambda T, x, e, i: T.linalg.norm(x, "fro", 1),
    "norm along three axes": lambda T, x, e, i: T.linalg.norm(x[None], dim=(0, 1, 2)),
    "norm 1 of a volume": lambda T, x, e, i: T.linalg.norm(x[None], 1),
    "nanmean of integers": lambda T, x, e, i: i.nanmean(),
    "no k-th": lambda T, x, e, i: x.kthvalue(4),
    "k of 0": lambda T, x, e, i: x.kthvalue(0),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    agree_in_error(ERRORS[name], x, np.zeros((0, 3), np.float32), np.arange(6).reshape(2, 3))


def test_too_few_degrees_of_freedom_warn() -> None:
    agree_in_warning(lambda T, x: x.std(), np.ones(1, np.float32))
    agree_in_warning(lambda T, x: T.var_mean(x, 0), np.ones((1, 3), np.float32))


BEYOND = {
    "float32": [1e19, 1e25, 1e32, 1e-19, 1e-25, 1e-36],
    "float64": [1e154, 1e300, 1e-154, 1e-290],
}
LENGTHS = [2, 5, 70, 17_000, 100_003]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", BEYOND)
def test_deviations_whose_squares_are_no_numbers(kind: str, length: int) -> None:
    """Roots are numbers also where the variance is infinite or 0."""
    rng = np.random.default_rng(length)
    plain = rng.standard_normal((2, length)) + 0.5
    for scale in BEYOND[kind]:
        x = adjit.tensor((plain * scale).astype(kind), requires_grad=True)
        rounded = x.detach().numpy().astype(np.longdouble) / np.longdouble(scale)
        wanted, mean = rounded.std(1, ddof=1), rounded.mean(1)
        close = 3e-6 if kind == "float32" else 1e-13
        found = x.std(1)
        np.testing.assert_allclose(
            found.detach().numpy() / np.longdouble(scale), wanted, rtol=close
        )
        found.sum().backward()
        slope = (rounded - mean[:, None]) / wanted[:, None] / (length - 1)
        np.testing.assert_allclose(x.grad.numpy(), slope, rtol=1e-4, atol=close)
        found, means = adjit.std_mean(x.detach().reshape(-1), correction=0)
        np.testing.assert_allclose(
            [found.item() / scale, means.item() / scale],
            [float(rounded.std()), float(rounded.mean())], rtol=1e-5, atol=1e-6,
        )  # fmt: skip


@pytest.mark.parametrize("value", [np.inf, np.nan, 1.0])
def test_how_many_are_not_zero_has_no_gradient(value: float) -> None:
    """Of what is infinite it was NaN."""
    x = np.array([[0.0, value], [3.0, -2.0]])
    agree_in_gradients(lambda T, t: T.nn.functional.normalize(t, p=0.0, dim=1), x, order=1)
    for T in (adjit, pytest.importorskip("torch")):
        t = T.tensor(x, requires_grad=True)
        T.linalg.vector_norm(t, 0, 1).sum().backward()
        assert t.grad is None


def test_variances_of_many_whose_sum_of_squares_is_infinite() -> None:
    x = np.full((2, 100_000), 1e18, np.float32)
    x[:, ::2] *= -1
    agree(lambda T, t: t.var(), x)
    agree(lambda T, t: t.var(1), x)
    agree(lambda T, t: T.var_mean(t, 0), np.full((3, 2), 3e38, np.float32))
    agree(lambda T, t: T.std_mean(t, 1), np.full((3, 2), 1e308))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("length", LENGTHS)
def test_variances_of_what_is_infinite(length: int, value: float) -> None:
    x = np.ones((2, length), np.float32)
    x[1, length // 2] = value
    agree(lambda T, t: t.var(1), x)
    agree(lambda T, t: t.std(1), x)


@pytest.mark.parametrize("kind", BEYOND)
def test_layers_beyond_the_squares(kind: str) -> None:
    plain = np.random.default_rng(0).standard_normal((4, 70)).astype(kind)
    small = adjit.tensor(plain, requires_grad=True)
    large = (small.detach() * (2.0**80 if kind == "float32" else 2.0**600)).requires_grad_()
    weights = adjit.tensor(plain[::-1].copy())
    normal, wanted = (adjit.layer_norm(x, (70,), eps=0.0) for x in (large, small))
    np.testing.assert_allclose(normal.detach().numpy(), wanted.detach().numpy(), rtol=1e-5)
    for out in (normal, wanted):
        out.backward(weights)
    factor = 2.0**80 if kind == "float32" else 2.0**600
    np.testing.assert_allclose(large.grad.numpy() * factor, small.grad.numpy(), rtol=1e-3)


def test_batches_beyond_the_squares() -> None:
    x = np.random.default_rng(0).standard_normal((4, 3, 5)) * 1e200
    for form in (x, x[:, :, 0]):
        agree(lambda T, t: T.nn.functional.batch_norm(t, None, None, training=True), form)


def test_numpy_names_and_old_forms() -> None:
    x = RANDOM.standard_normal((3, 4))
    agree(lambda T, t: T.sum(t, axis=0, keepdims=True), x)
    agree(lambda T, t: T.sum(input=t, dim=1), x)
    agree(lambda T, t: t.std(False), x)
    agree(lambda T, t: t.var(1, False, True), x)
    agree(lambda T, t: t.amax(axis=1), x)
    with pytest.raises(TypeError):
        adjit.tensor(x).std(1, unbiased=True, correction=0)


@pytest.mark.cpu
def test_named_results() -> None:
    found = adjit.tensor([1.0, 3.0, 2.0]).max(0)
    assert found.values.item() == 3.0
    assert found.indices.item() == 1
    assert repr(found) == "adjit.return_types.max(\nvalues=tensor(3.),\nindices=tensor(1))"
    low, high = adjit.aminmax(adjit.tensor([1.0, 3.0]))
    assert (low.item(), high.item()) == (1.0, 3.0)


def test_out() -> None:
    out = adjit.empty(2)
    x = adjit.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert adjit.sum(x, 1, out=out) is out
    assert out.tolist() == [3.0, 7.0]


# ---------------------------------------------------------------- laws


def exact_sum(x: np.ndarray) -> float:
    return math.fsum(x.astype(np.float64).ravel())


@pytest.mark.parametrize("shape", [(1_000_000,), (1000, 1000), (100_000, 3), (7, 50_000)])
def test_float32_sums_are_as_exact_as_pytorchs(shape: tuple[int, ...]) -> None:
    x = RANDOM.random(shape).astype(np.float32)
    scale = np.abs(x).sum(dtype=np.float64)
    ours = abs(float(adjit.tensor(x).sum()) - exact_sum(x)) / scale
    theirs = abs(float(torch.tensor(x).sum()) - exact_sum(x)) / scale
    assert ours <= max(theirs, 2e-7)
    for axis in range(x.ndim):
        exact = x.sum(axis, dtype=np.float64)
        got = adjit.tensor(x).sum(axis).numpy()
        np.testing.assert_allclose(got, exact, rtol=1e-6)


def test_a_large_mean_costs_no_digits_of_the_variance() -> None:
    x = (RANDOM.standard_normal(100_000) + 10_000).astype(np.float32)
    exact = x.astype(np.float64).var(ddof=1)
    assert adjit.tensor(x).var().item() == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum(),
        lambda x: x.sum(0),
        lambda x: x.sum(1),
        lambda x: x.var(0),
        lambda x: x.var(),
        lambda x: x.logsumexp(1),
        lambda x: x.norm(),
    ],
)
def test_the_number_of_threads_changes_no_bit(call: Any) -> None:
    x = adjit.tensor(RANDOM.standard_normal((700, 500)).astype(np.float32))
    before = adjit.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            adjit.set_num_threads(threads)
            results.append(call(x).numpy().tobytes())
    finally:
        adjit.set_num_threads(before)
    assert results[0] == results[1]


@pytest.mark.parametrize("chunks", [4, 5, 8, 11])
def test_parts_of_a_long_row_that_are_read_side_by_side_sum_as_alone(chunks: int) -> None:
    rows = RANDOM.standard_normal((2, chunks, ROW_STEP)).astype(np.float32)
    alone = adjit.tensor(rows.reshape(-1, ROW_STEP)).sum(1).reshape(2, chunks).sum(1)
    together = adjit.tensor(rows.reshape(2, -1)).sum(1)
    assert together.numpy().tobytes() == alone.numpy().tobytes()


def special(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers among which are many zeros of both signs and, of floats, some that are no numbers."""
    x = RANDOM.integers(-4, 5, shape).astype(dtype)
    if x.dtype.kind == "f":
        x = np.copysign(x / 3, RANDOM.standard_normal(shape)).astype(dtype)
        chance = RANDOM.random(shape)
        x[chance < 0.01] = NAN
        x[chance > 0.99] = -math.inf
        x[::5] = -0.0
    return x


def bits(x: np.ndarray) -> bytes:
    """The bits of numbers; a NaN has no sign of its own."""
    return (np.where(x == x, x, x.dtype.type(NAN)) if x.dtype.kind == "f" else x).tobytes()


FOLDED = {
    "sum": lambda x, dim: x.sum(dim),
    "prod": lambda x, dim: x.prod(dim),
    "amax": lambda x, dim: x.amax(dim),
    "amin": lambda x, dim: x.amin(dim),
}
DTYPES = ["uint8", "int32", "int64", "float32", "float64"]
SHORT = [1, 4, 5, 8, 9, 10, 16, 17, 31, 32, 33]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FOLDED)
def test_short_rows_that_are_reduced_together_have_the_bits_of_each_alone(
    name: str, dtype: str
) -> None:
    """Eight at a time, and those that are left; they end where the memory ends."""
    for length in [*SHORT, 64, 65, 160, 511, 513]:
        x = special((21, length), dtype)
        if length % 2:
            x = np.minimum(x, x.dtype.type(0))  # an extreme is a zero of one sign or the other
        together = FOLDED[name](adjit.tensor(x), 1).numpy()
        alone = [FOLDED[name](adjit.tensor(row), 0).numpy() for row in x]
        assert bits(together) == b"".join(map(bits, alone)), length


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("length", [64, 65, 100, 160, 191, 512])
def test_the_first_of_two_zeros_in_a_lane_is_the_extreme(length: int, sign: int) -> None:
    """Alone and together, wherever in a row they are."""
    places = [(i, j) for i in range(0, length, LANES) for j in range(i + LANES, length, LANES)]
    x = np.full((2 * len(places), length), -sign, np.float32)
    for k, (i, j) in enumerate(places):
        x[2 * k, i], x[2 * k, j] = 0.0, -0.0
        x[2 * k + 1, i], x[2 * k + 1, j] = -0.0, 0.0
    name = "amax" if sign > 0 else "amin"
    for rows in (x, x[-1:]):
        found = FOLDED[name](adjit.tensor(rows), 1).numpy()
        assert not found.any()
        assert np.signbit(found).tolist() == [False, True][-len(rows) :] * (len(rows) // 2 or 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FOLDED)
def test_few_columns_have_the_bits_that_they_have_among_many(name: str, dtype: str) -> None:
    for width in SHORT[1:-1]:
        for length in (1, 4, 6, 40, 700):
            x = special((2, length, width), dtype)
            among = np.zeros((2, length, 40), dtype)
            among[..., :width] = x
            few = FOLDED[name](adjit.tensor(x), 1).numpy()
            many = FOLDED[name](adjit.tensor(among), 1).numpy()[:, :width]
            assert bits(few) == bits(many), (width, length)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    data=st.data(),
)
def test_any_shape_any_axes(shape: list[int], data: st.DataObject) -> None:
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1)))
    order = data.draw(st.permutations(range(len(shape))))
    keepdim = data.draw(st.booleans())
    x = np.arange(math.prod(shape), dtype=np.float64).reshape(shape)
    t = adjit.tensor(x).permute(*order)
    dims = tuple(axes) or None
    got = t.sum(dims, keepdim)
    assert np.array_equal(got.numpy(), x.transpose(order).sum(dims, keepdims=keepdim))


@pytest.mark.parametrize("shape", [(3, 700), (2, 5, 300), (1, 600), (600, 1), (32, 513), (33, 513)])
def test_logsumexp_of_a_few_numbers_each(shape):
    """As they lie, not side by side; infinities and NaN are those of one row."""
    axes = (0, 1) if len(shape) == 3 else shape.index(min(shape))
    x = np.random.default_rng(0).standard_normal(shape)
    agree_in_gradients(lambda T, x: T.logsumexp(x, axes), x)
    for k, value in enumerate((np.inf, -np.inf, np.nan, 1000.0, -1000.0)):
        np.moveaxis(x, -1 if x.shape[-1] > 1 else 0, 0)[k] = value
        np.moveaxis(x, -1 if x.shape[-1] > 1 else 0, 0)[k + 7].flat[0] = value
    agree(lambda T, x: T.logsumexp(x, axes), x)
    agree(lambda T, x: T.logsumexp(x, axes, True), x.astype(np.float32))
