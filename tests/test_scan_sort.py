"""Scans, sorting, order statistics, distinct elements and searching, beside PyTorch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from against_torch import agree, agree_in_error, agree_in_gradients, backward_name
from hypothesis import given, settings
from hypothesis import strategies as st

import adjit

RANDOM = np.random.default_rng(11)
NAN = math.nan
DTYPES = ["float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"]

# ---------------------------------------------------------------- scans

SCANS = {
    "cumsum": lambda T, x, d: x.cumsum(d),
    "cumprod": lambda T, x, d: x.cumprod(d),
    "cummax": lambda T, x, d: x.cummax(d),
    "cummin": lambda T, x, d: x.cummin(d),
    "diff": lambda T, x, d: x.diff(dim=d),
}


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("name", SCANS)
def test_scans_along_every_axis(name: str) -> None:
    x = RANDOM.integers(-3, 4, (3, 7, 4)).astype(np.float32)
    for d in (0, 1, 2, -1):
        agree(lambda T, t, d=d: SCANS[name](T, t, d), x)
        agree(lambda T, t, d=d: SCANS[name](T, t.transpose(0, 2)[1:], d), x)
    for dtype in DTYPES[1:]:
        agree(lambda T, t: SCANS[name](T, t, 1), RANDOM.integers(0, 4, (2, 5)).astype(dtype))


def test_scan_lengths_and_widths() -> None:
    shapes = (
        (1000,),
        (3, 300),
        (300, 3),
        (1, 1),
        (5, 0),
        (0, 5),
        (2, 3, 260),
        (70, 3, 2),
        (6, 5, 7),
        (11, 3, 8),
    )
    for shape in shapes:
        x = RANDOM.standard_normal(shape)
        for d in range(len(shape)):
            for call in (
                lambda T, t, d=d: t.cumsum(d),
                lambda T, t, d=d: t.cummax(d),
                lambda T, t, d=d: t.logcumsumexp(d),
            ):
                agree(call, x, rtol=1e-10)


def test_scans_of_a_number_and_of_nan() -> None:
    for call in (
        lambda T, t: t.cumsum(0),
        lambda T, t: t.cumprod(-1),
        lambda T, t: t.cummax(0),
        lambda T, t: t.logcumsumexp(0),
    ):
        agree(call, np.array(2.0))
    x = np.array([1.0, 3.0, 3.0, NAN, 2.0, NAN, 5.0])
    agree(lambda T, t: t.cummax(0), x)
    agree(lambda T, t: t.cummin(0), x)
    agree(lambda T, t: t.cumsum(0), x)
    infinite = np.array([-math.inf, -math.inf, 1.0, math.inf, math.inf, 2.0])
    agree(lambda T, t: t.logcumsumexp(0), infinite)


def test_running_dtypes() -> None:
    x = RANDOM.integers(0, 3, (2, 5))
    agree(lambda T, t: t.cumsum(1, dtype=T.float32), x)
    agree(lambda T, t: t.int().cumprod(1), x)
    agree(lambda T, t: (t > 0).cumsum(0), x)


def test_diff_with_more_arguments() -> None:
    x = RANDOM.standard_normal((3, 5))
    agree(lambda T, t: t.diff(2), x)
    agree(lambda T, t: t.diff(0), x)
    agree(lambda T, t: t.diff(9), x)
    agree(lambda T, t: T.diff(t, prepend=t[:, :1], append=t[:, 1:3]), x)
    agree(lambda T, t: (t > 0).diff(dim=0), x)


@pytest.mark.parametrize("name", [*SCANS, "logcumsumexp"])
def test_gradients_of_scans(name: str) -> None:
    call = SCANS.get(name, lambda T, x, d: x.logcumsumexp(d))
    x = RANDOM.standard_normal((3, 4, 2))
    agree_in_gradients(lambda T, t: tensors(call(T, t, 1)), x)
    agree_in_gradients(lambda T, t: tensors(call(T, t, 0)), x)
    agree_in_gradients(
        lambda T, t: tensors(call(T, t, 1)), RANDOM.standard_normal((9, 3, 2)), order=1
    )


def tensors(result: object) -> object:
    """The values where a call also gives indices."""
    return result[0] if isinstance(result, tuple) else result


def test_gradients_of_cumprod_with_zeros() -> None:
    x = np.array([[1.0, 0.0, 3.0, 2.0], [0.0, 2.0, 0.0, 5.0], [2.0, 3.0, 4.0, 0.0]])
    agree_in_gradients(lambda T, t: t.cumprod(1), x)
    agree_in_gradients(lambda T, t: t.cumprod(0), x)
    single = x.astype(np.float32)
    agree_in_gradients(lambda T, t: t.cumprod(0, dtype=T.float64), single, rtol=1e-5)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
def test_running_extremes_of_rows_and_columns(name: str, dtype: str) -> None:
    """Equal elements, both zeros and NaN; rows that go side by side, and those that are left."""
    for shape in ((1, 5), (4, 3), (9, 7), (3, 2, 40)):
        x = RANDOM.integers(-2, 3, shape).astype(dtype)
        if dtype.startswith("float"):
            x[RANDOM.random(shape) < 0.1] = NAN
            x[RANDOM.random(shape) < 0.2] = -0.0
        for d in range(len(shape)):
            agree(lambda T, t, d=d: tuple(getattr(t, name)(d)), x)


# ---------------------------------------------------------------- sorting


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [1, 2, 31, 33, 500])
def test_sorting(dtype: str, length: int) -> None:
    x = (RANDOM.standard_normal((3, length)) * 3).astype(dtype)
    for descending in (False, True):
        for data, d in ((x, 1), (np.ascontiguousarray(x.T), 0)):
            agree(lambda T, t, d=d, r=descending: T.sort(t, dim=d, descending=r, stable=True), data)
    agree(lambda T, t: T.argsort(t, stable=True), x)
    agree(lambda T, t: T.msort(t), x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [1, 2, 9, 33, 85, 256, 257])
def test_sorting_rows_side_by_side(dtype: str, length: int) -> None:
    """Along every axis, in whole groups of rows and what is left, with equals, NaN and both zeros."""
    for shape, d in (
        ((35, length), 1),
        ((3, length, 19), 1),
        ((length, 16), 0),
        ((8, length, 1), -2),
    ):
        x = (
            RANDOM.integers(-4, 5, shape)
            if length < 99
            else RANDOM.integers(-(2**40), 2**40, shape)
        )
        x = x.astype(dtype)
        if dtype.startswith("float"):
            x[RANDOM.random(shape) < 0.1] = NAN
            x[RANDOM.random(shape) < 0.1] = -0.0
        for descending in (False, True):
            agree(lambda T, t, d=d, r=descending: T.sort(t, dim=d, descending=r, stable=True), x)
            agree(
                lambda T, t, d=d, r=descending: T.signbit(
                    t.sort(stable=True, dim=d, descending=r)[0]
                ),
                x,
            )


def test_special_values_sort_as_in_pytorch() -> None:
    special = [NAN, 1.0, -math.inf, 0.0, -0.0, math.inf, -NAN, -1.0, 5e-324, NAN]
    for x in (np.array(special), np.array(special * 10), np.array(special, np.float32)):
        for descending in (False, True):
            agree(lambda T, t, r=descending: T.sort(t, descending=r, stable=True), x)
        agree(lambda T, t: t.topk(4)[0], x)
        agree(lambda T, t: t.kthvalue(3)[0], x)
    agree(lambda T, t: t.sort(), np.float32(1.0))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=80),
    st.booleans(),
)
def test_sorting_is_a_stable_permutation(values: list[int], descending: bool) -> None:
    x = np.array(values, np.int64)
    out, order = adjit.tensor(x).sort(dim=0, descending=descending, stable=True)
    key = [(-int(v) if descending else int(v), i) for i, v in enumerate(values)]
    expected = [i for _, i in sorted(key)]
    assert order.tolist() == expected
    assert out.tolist() == [values[i] for i in expected]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int8", "uint8"])
def test_topk(dtype: str) -> None:
    x = RANDOM.permuted(np.tile(np.arange(100), (3, 1)), axis=1).astype(dtype)
    for k in (0, 1, 5, 32, 33, 100):
        for largest in (True, False):
            agree(lambda T, t, k=k, b=largest: t.topk(k, largest=b), x)
    agree(lambda T, t: t.topk(2, 0)[0], x)
    agree(lambda T, t: t.topk(7, sorted=False)[0].sort()[0], x)


def test_topk_of_equal_elements_takes_the_first() -> None:
    found = adjit.tensor([1.0, 2.0, 2.0, 2.0, 0.0]).topk(2)
    assert found.indices.tolist() == [1, 2]


def test_order_statistics() -> None:
    x = RANDOM.permuted(np.tile(np.arange(21.0), (4, 1)), axis=1)
    for data in (x, x.astype(np.float32), x.astype(np.int32)):
        for d in (0, 1):
            agree(lambda T, t, d=d: t.median(d)[0], data)
            agree(lambda T, t, d=d: t.median(d, True)[0], data)
        for k in (1, 5, 21):
            agree(lambda T, t, k=k: t.kthvalue(k), data)
        agree(lambda T, t: t.median(), data)
    agree(lambda T, t: t.kthvalue(2, 0, True)[0], x)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int16", "uint8"])
@pytest.mark.parametrize("length", [1, 2, 9, 31, 32, 33, 49, 400])
def test_order_statistics_of_every_length(length: int, dtype: str) -> None:
    """Few values that come often, and many, of which each may be told by its first bytes."""
    for values in (3, 40, 10**6):
        x = (RANDOM.integers(0, values, (20, length)) - values // 2).astype(dtype)
        if dtype.startswith("float"):
            x[RANDOM.random(x.shape) < 0.03] = NAN
            x[RANDOM.random(x.shape) < 0.1] = -0.0
        for k in {1, (length + 1) // 2, length}:
            agree(lambda T, t, k=k: t.kthvalue(k)[0], x)
            for largest in (True, False):
                agree(lambda T, t, k=k, b=largest: t.topk(k, largest=b)[0], x)
            found, places = adjit.tensor(x).kthvalue(k)
            value = found.numpy()[:, None]
            same = (x == value) | ((x != x) & (value != value))
            assert places.tolist() == same.argmax(1).tolist()  # the first
        agree(lambda T, t: t.median(1)[0], x)
        agree(lambda T, t: t.nanmedian(1)[0], x)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int16"])
def test_order_statistics_of_long_rows(dtype: str) -> None:
    """More elements than are kept between two bounds, spread and crowded, and few that come often."""
    for length in (1024, 1025, 5000):
        spread = RANDOM.standard_cauchy((3, length)) * 1000
        for x in (spread, spread // 3000, RANDOM.integers(0, 2, (3, length)), spread * 0):
            rows = x.clip(-30000, 30000).astype(dtype)
            for k in (1, 3, length // 2, length - 5, length):
                agree(lambda T, t, k=k: t.kthvalue(k)[0], rows)
            for k in (40, length - 40):
                agree(lambda T, t, k=k: t.topk(k)[0], rows)
                agree(lambda T, t, k=k: t.topk(k, largest=False)[0], rows)
            agree(lambda T, t: t.median(1)[0], rows)
            agree(lambda T, t: t.median(), rows)
            if dtype.startswith("float"):
                rows[RANDOM.random(rows.shape) < 0.1] = NAN
                agree(lambda T, t: t.nanmedian(1)[0], rows)
                agree(lambda T, t, k=length - 1: t.kthvalue(k)[0], rows)


def test_a_rank_at_the_end_of_bounds_that_close_in() -> None:
    """Elements just above the bounds would be counted with the last ones within them."""
    spread = [0, *np.repeat(np.arange(1025, 2048), 2), *[2048] * 500, *range(1 << 19, 1 << 20, 256)]
    rows = np.array([spread, spread], np.int32)
    rows[0] -= 1 << 20  # what a search has kept is smaller than all of the next one's
    for k in (2042, 2045, 2046, 2047, 2048):
        agree(lambda T, t, k=k: t.kthvalue(k)[0], rows)
        agree(lambda T, t, k=k: t.topk(k)[0], -rows)


def test_mode() -> None:
    x = RANDOM.integers(0, 5, (6, 40))
    for d in (0, 1):
        agree(lambda T, t, d=d: t.mode(d)[0], x)
    agree(lambda T, t: t.mode(), np.array([2, 1, 2, 1, 3, 5, 1, 2]))
    agree(lambda T, t: (t > 2).mode(0, True)[0], x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", [1, 7, 40, 700])
def test_mode_of_numbers_among_more_nans(dtype: str, length: int) -> None:
    """A NaN equals no other: the commonest number counts, the smallest of several."""
    x = np.full((20, length), np.nan, dtype)
    places = np.arange(0, length, 3)
    x[:, places] = RANDOM.integers(0, 4, (20, len(places)))
    x[0, 1:] = np.nan  # one number
    for rows in (x, x.T.copy().T, x[:, ::-1].copy()):
        values, indices = adjit.tensor(rows).mode(1)
        for row, value, index in zip(rows, values.tolist(), indices.tolist(), strict=True):
            numbers, counts = np.unique(row[row == row], return_counts=True)
            assert value == numbers[counts.argmax()]
            assert index == np.flatnonzero(row == value)[-1]
    agree(lambda T, t: t.mode(), np.full(5, np.nan, dtype))


def test_gradients_of_selections() -> None:
    x = RANDOM.standard_normal((3, 5))
    for call in (
        lambda T, t: t.sort(1, True)[0],
        lambda T, t: t.sort(0)[0],
        lambda T, t: t.topk(3, 1)[0],
        lambda T, t: t.topk(2, 0, largest=False)[0],
        lambda T, t: T.msort(t),
    ):
        agree_in_gradients(call, x)
    assert backward_name(lambda T, t: t.sort(), x) == "SortBackward0"
    assert backward_name(lambda T, t: t.topk(2), x) == "TopkBackward0"


# ---------------------------------------------------------------- distinct, searching


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "bool"])
def test_unique(dtype: str) -> None:
    x = RANDOM.integers(0, 4, (5, 7)).astype(dtype)
    every = {"return_inverse": True, "return_counts": True}
    agree(lambda T, t: T.unique(t, **every), x)
    agree(lambda T, t: t.unique(), x)
    agree(lambda T, t: T.unique(t, return_counts=True), x)
    agree(lambda T, t: T.unique_consecutive(t, **every), x)
    for d in (0, 1):
        agree(lambda T, t, d=d: T.unique(t[:, :2], dim=d, **every), x)
        agree(lambda T, t, d=d: T.unique_consecutive(t[:, :2], dim=d, **every), x)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int16", "bool"])
def test_unique_neighbours(dtype: str) -> None:
    """Runs of one element and of many, so that vectors hold none that is new, some, or nothing else."""
    every = {"return_inverse": True, "return_counts": True}
    for length in (1, 31, 32, 33, 300):
        alone = RANDOM.permuted(np.arange(length))
        for x in (alone, alone // 3, alone * 0, np.sort(alone // 3), np.sort(alone // 70)):
            values = x.astype(dtype)
            if dtype.startswith("float"):
                values[RANDOM.random(length) < 0.1] = NAN
                values[values == 0] *= RANDOM.choice([-1.0, 1.0], (values == 0).sum())
            agree(lambda T, t: T.unique_consecutive(t), values)
            agree(lambda T, t: T.unique_consecutive(t, **every), values)
            agree(lambda T, t: T.signbit(T.unique_consecutive(t)), values)
            agree(lambda T, t: T.unique_consecutive(t, **every, dim=0), values[:, None] * [1, 1])


def test_unique_at_the_edges() -> None:
    every = {"return_inverse": True, "return_counts": True}
    for x in (np.zeros((0, 3)), np.array(3.0), np.array([NAN, 1.0, NAN, 0.0, -0.0])):
        agree(lambda T, t: T.unique(t, **every), x)
    agree(lambda T, t: T.unique(t, dim=0), np.zeros((0, 3)))


def test_searching() -> None:
    rows = np.sort(RANDOM.integers(0, 9, (3, 20)), axis=1).astype(np.float32)
    values = RANDOM.integers(-1, 10, (3, 6)).astype(np.float32)
    values[0, 0] = NAN
    for right in (False, True):
        agree(lambda T, a, b, r=right: T.searchsorted(a, b, right=r), rows, values)
        agree(lambda T, a, b, r=right: T.searchsorted(a[0], b, right=r), rows, values)
        agree(lambda T, a, b, r=right: T.bucketize(b, a[0], right=r), rows, values)
    agree(lambda T, a: T.searchsorted(a[0], 3.5), rows)
    agree(lambda T, a: T.bucketize(3, a[0], out_int32=True), rows)
    agree(lambda T, a, b: T.searchsorted(a, b, side="right"), rows, np.arange(6).reshape(3, 2))
    order = np.array([1, 2, 0])
    agree(lambda T, a, o: T.searchsorted(a, T.tensor([2.5]), sorter=o), [3.0, 1.0, 2.0], order)


ERRORS = {
    "cumsum": lambda T, x, i: x.cumsum(2),
    "cumsum to bool": lambda T, x, i: x.cumsum(0, dtype=T.bool),
    "cumprod to bool": lambda T, x, i: T.cumprod(i, 0, dtype=T.bool),
    "logcumsumexp of integers": lambda T, x, i: i.logcumsumexp(1),
    "diff order": lambda T, x, i: x.diff(-1),
    "diff of a number": lambda T, x, i: T.tensor(1.0).diff(),
    "diff prepend": lambda T, x, i: T.diff(x, prepend=T.ones(3, 1)),
    "diff prepend axes": lambda T, x, i: T.diff(x, prepend=T.ones(1)),
    "topk": lambda T, x, i: x.topk(4),
    "topk of bool": lambda T, x, i: (i > 2).topk(1),
    "kthvalue of bool": lambda T, x, i: (i > 2).kthvalue(1),
    "sort": lambda T, x, i: x.sort(2),
    "unique": lambda T, x, i: T.unique(T.empty(0, 3), dim=1),
    "searchsorted rows": lambda T, x, i: T.searchsorted(x, T.ones(3, 1)),
    "searchsorted number": lambda T, x, i: T.searchsorted(x, 1.5),
    "searchsorted of a number": lambda T, x, i: T.searchsorted(T.tensor(1.0), x),
    "searchsorted sides": lambda T, x, i: T.searchsorted(x, x, side="left", right=True),
    "searchsorted side": lambda T, x, i: T.searchsorted(x, x, side="middle"),
    "bucketize": lambda T, x, i: T.bucketize(x, x),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    agree_in_error(ERRORS[name], x, np.arange(6).reshape(2, 3))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
@pytest.mark.parametrize("k", [1, 7, 32, 33, 50, 200, 503, 504, 505, 1100])
@pytest.mark.parametrize("order", ["any", "rising", "falling", "ties", "equal"])
def test_the_largest_are_found_among_candidates(order, k, dtype):
    """Of which there are more than have room, or hardly any; the first of equals; NaN as the largest."""
    random = np.random.default_rng(k)
    for length in (k, k + 1, k + 31, 2 * k + 40, 3000):
        x = random.standard_normal((3, max(length, k))) * 100
        if order in ("rising", "falling"):
            x = np.sort(x, 1)[:, :: 1 if order == "rising" else -1]
        elif order == "ties":
            x = np.round(x / 50)
        elif order == "equal":
            x = np.zeros_like(x)
        x = np.ascontiguousarray(np.abs(x) % 256 if dtype == "uint8" else x).astype(dtype)
        if dtype.startswith("float") and order != "equal":
            x[0, :: max(length // 3, 1)] = np.nan
            x[1, 0] = -np.inf
        for largest in (True, False):
            found, places = adjit.tensor(x).topk(k, largest=largest)
            keys = (
                np.where(np.isnan(x), np.inf, x.astype(np.float64))
                if x.dtype.kind == "f"
                else x.astype(np.int64)
            )
            # Of equal keys the first come first, and NaN behind infinity.
            ranks = np.lexsort(
                (np.arange(x.shape[1])[None].repeat(3, 0), -keys if largest else keys), axis=1
            )
            chosen = ranks[:, :k]
            np.testing.assert_array_equal(found.numpy(), np.take_along_axis(x, chosen, 1))
            rows, unsorted = adjit.tensor(x).topk(k, largest=largest, sorted=False)
            np.testing.assert_array_equal(np.sort(unsorted.numpy(), 1), np.sort(chosen, 1))
            np.testing.assert_array_equal(rows.numpy(), np.take_along_axis(x, unsorted.numpy(), 1))
            np.testing.assert_array_equal(np.sort(places.numpy(), 1), np.sort(chosen, 1))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float32"])
@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_medians_of_nothing(name: str, dtype: str) -> None:
    """What C makes of NaN in each dtype; along a dimension the error is the median's."""
    nothing = np.empty((3, 0), dtype)
    agree(lambda T, t: getattr(t, name)(), nothing)
    agree_in_error(lambda T, t: getattr(t, name)(1), nothing)
    agree_in_error(lambda T, t: getattr(t, name)(2), nothing)
    if dtype == "bool":
        agree_in_error(lambda T, t: getattr(t, name)(), np.array([True]))
        agree_in_error(lambda T, t: getattr(t, name)(0), np.array([True]))
        agree_in_error(lambda T, t: t.kthvalue(1, 1), nothing)


def test_flags_of_unique_are_bools() -> None:
    """`unique(x, 0)` would be all elements, not those along a dimension."""
    x = np.array([[1, 2], [1, 2]])
    for call in (
        lambda T, t: T.unique(t, 0),
        lambda T, t: t.unique(True, 0),
        lambda T, t: t.unique(return_counts=1),
        lambda T, t: t.unique(0, dim=0),
        lambda T, t: t.unique_consecutive(0),
        lambda T, t: t.unique_consecutive(return_counts=None),
    ):
        agree_in_error(call, x)


@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_gradients_where_an_extreme_is_nan_are_nan(reduce: str) -> None:
    """They were 0, as nothing equals a NaN."""
    x = np.array([[1.0, 3.5, np.nan, 2], [3, 7, 2.5, 5]])
    src = np.array([[np.nan, 4, 1, 8], [2, 3, 2, 1]])
    index = np.array([[0, 1, 2, 1], [3, 1, 2, 2]])
    for include_self in (True, False):
        agree_in_gradients(
            lambda T, t, s, i: t.scatter_reduce(1, i, s, reduce, include_self=include_self),  # noqa: B023
            x, src, index, order=1,
        )  # fmt: skip
    agree_in_gradients(
        lambda T, t, s, i: t.index_reduce(1, i[0], s, reduce), x, src, index, order=1
    )
