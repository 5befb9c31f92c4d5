"""Reading and writing by index beside PyTorch and NumPy: values, gradients, errors."""

from __future__ import annotations

import importlib
import math

import numpy as np
import pytest
from against_torch import (
    agree,
    agree_in_error,
    agree_in_gradients,
    agree_in_warning,
    backward_name,
    plain,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import adjit
from adjit.autograd import forward_ad
from adjit.ops import tables

rng = np.random.default_rng(1)


def numbers(*shape: int, dtype: type = np.float64) -> np.ndarray:
    """Different numbers."""
    return np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(dtype)


def functional(T):
    """The library's `nn.functional`."""
    return importlib.import_module(f"{T.__name__}.nn.functional")


def index(T, *values):
    """An index tensor."""
    return T.tensor(values if len(values) != 1 or isinstance(values[0], int) else values[0])


# ----- brackets, beside NumPy -----


@st.composite
def keys(draw, shape, tensors=True):
    """A key for an array: ints, slices, None, `...`, and index arrays that broadcast."""
    parts = []
    common = draw(st.sampled_from([(), (1,), (3,), (2, 3)]))
    left = list(shape)
    ellipsis_used = False
    for size in left:
        kinds = ["int", "slice", "full"]
        if not ellipsis_used:
            kinds.append("ellipsis")
        if tensors and size:
            kinds.append("index")
        if size == 0:
            kinds.remove("int")
        kind = draw(st.sampled_from(kinds))
        if draw(st.integers(0, 5)) == 0:
            parts.append(None)
        if kind == "int":
            parts.append(draw(st.integers(-size, size - 1)))
        elif kind == "slice":
            bound = st.none() | st.integers(-size - 2, size + 2)
            parts.append(slice(draw(bound), draw(bound), draw(st.none() | st.integers(1, 3))))
        elif kind == "full":
            parts.append(slice(None))
        elif kind == "ellipsis":
            parts.append(Ellipsis)
            ellipsis_used = True
            break
        else:
            places = draw(
                st.lists(
                    st.integers(-size, size - 1),
                    min_size=int(np.prod(common)), max_size=int(np.prod(common)),
                )
            )  # fmt: skip
            parts.append(np.array(places, np.int64).reshape(common))
    return tuple(parts)


def in_library(T, key):
    """The key with tensors for arrays; a 0-d index stays an int, as PyTorch reads it."""
    return tuple(
        (int(k) if k.ndim == 0 else T.tensor(k)) if isinstance(k, np.ndarray) else k for k in key
    )


SHAPES = st.sampled_from([(4,), (3, 4), (2, 3, 4), (2, 1, 3, 2), (0, 3), (3, 0, 2)])


@settings(max_examples=120, deadline=None)
@given(SHAPES.flatmap(lambda shape: st.tuples(st.just(shape), keys(shape))))
def test_reading(case):
    shape, key = case
    agree(lambda T, x: x[in_library(T, key)], numbers(*shape))


@settings(max_examples=100, deadline=None)
@given(SHAPES.flatmap(lambda shape: st.tuples(st.just(shape), keys(shape, tensors=False))))
def test_plain_keys_make_views_as_in_numpy(case):
    shape, key = case
    array = numbers(*shape, dtype=np.float32)
    x = adjit.tensor(array)
    view = x[key]
    np.testing.assert_array_equal(view.numpy(), array[key])
    view.fill_(7)
    array[key] = 7
    np.testing.assert_array_equal(x.numpy(), array)


@settings(max_examples=50, deadline=None)
@given(SHAPES.flatmap(lambda shape: st.tuples(st.just(shape), keys(shape))))
def test_reading_has_gradients(case):
    shape, key = case
    agree_in_gradients(lambda T, x: x[in_library(T, key)], numbers(*shape), order=1)


@settings(max_examples=120, deadline=None)
@given(SHAPES.flatmap(lambda shape: st.tuples(st.just(shape), keys(shape))), st.booleans())
def test_writing(case, number):
    shape, key = case

    def write(T, x):
        x = x.clone()
        key_here = in_library(T, key)
        target = x[key_here]
        x[key_here] = 3 if number else T.full(target.shape[-1:], 5, dtype=x.dtype)
        return x

    agree(write, numbers(*shape))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([(4,), (3, 4), (2, 3, 4)]).flatmap(
    lambda shape: st.tuples(st.just(shape), keys(shape))))  # fmt: skip
def test_writing_has_gradients(case):
    shape, key = case
    array = numbers(*shape)
    placed = np.zeros(shape, bool)
    placed[key] = True  # NumPy orders axes its own way, which does not matter for one number

    def write(T, x, value):
        x = x * 1
        x[in_library(T, key)] = value * 2
        return x * x

    if np.count_nonzero(placed) == np.zeros(shape)[key].size:  # PyTorch has no order for repeats
        agree_in_gradients(write, array, np.array(2.0), order=1)


MASKS = [
    (slice(None), np.array([True, False, True, True])),
    (np.array([True, False, True]),),
    (numbers(3, 4) > 5,),
    (np.array([True, False, True]), 1),
    (np.array([True, False, True]), np.array([0, 3])),
    (np.array([True, False, True]), slice(1, 3)),
    (None, numbers(3, 4) > 20),
    (..., np.array([True, True, False, False])),
]


@pytest.mark.parametrize("key", MASKS, ids=str)
def test_masks(key):
    agree(lambda T, x: x[in_library(T, key)], numbers(3, 4))
    agree_in_gradients(lambda T, x: x[in_library(T, key)], numbers(3, 4))

    def write(T, x):
        x = x.clone()
        x[in_library(T, key)] = -1.0
        return x

    agree(write, numbers(3, 4))


def test_lists_ranges_and_other_integers():
    x = numbers(3, 4)
    agree(lambda T, x: x[[0, 2]], x)
    agree(lambda T, x: x[[0, 2], [1, 3]], x)
    agree(lambda T, x: x[:, [True, False, False, True]], x)
    agree(lambda T, x: x[np.int64(1)], x)
    agree(lambda T, x: x[T.tensor(1)], x)
    agree(lambda T, x: x[T.tensor(1) :, T.tensor([0, 1], dtype=T.int32)], x)
    agree(lambda T, x: x[True], x)
    agree(lambda T, x: x[False], x)
    agree(lambda T, x: x[()], x)
    agree(lambda T, x: x[[]], x)
    agree(lambda T, x: x.t()[[1, 0]], x)
    agree(lambda T, x: x[:, ::2][:, [1, 0]], x)
    agree(lambda T, x: x[T.tensor([[0, 1], [2, 0]])], numbers(3))
    agree(lambda T, x: x[np.array([0, 2])], x)


def test_several_dtypes():
    for dtype in (np.float32, np.int8, np.int16, np.uint8, np.bool_):
        x = (numbers(3, 4) % 3).astype(dtype)
        agree(lambda T, x: x[[2, 0]], x)
        agree(lambda T, x: x.index_put((T.tensor([2, 0]),), x[:2]), x)


def test_index_put():
    agree(lambda T, x, v: x.index_put((index(T, 0, 2),), v), numbers(3, 4), numbers(4))
    agree(lambda T, x, v: x.index_put((index(T, 0, 0, 2),), v, accumulate=True),
          numbers(3, 4), numbers(3, 1))  # fmt: skip
    agree(lambda T, x, v: x.index_put((index(T, 1, 1), index(T, 2, 2)), v, accumulate=True),
          numbers(3, 4), numbers(2))  # fmt: skip
    agree(lambda T, x, v: x.permute(2, 0, 1).index_put((index(T, 1, 3),), v),
          numbers(2, 3, 4), numbers(2, 3))  # fmt: skip
    for accumulate in (False, True):
        agree_in_gradients(
            lambda T, x, v, a=accumulate: x.index_put((index(T, 0, 2),), v, accumulate=a),
            numbers(3, 4), numbers(1, 4),
        )  # fmt: skip


def test_a_repeated_write_keeps_the_last_value():
    x = adjit.zeros(2).index_put((adjit.tensor([1, 1, 1]),), adjit.tensor([1.0, 2.0, 3.0]))
    assert x.tolist() == [0.0, 3.0]


def test_sums_do_not_depend_on_threads():
    places = adjit.tensor(rng.integers(0, 50, 100_000))
    values = adjit.tensor(rng.standard_normal((100_000, 3)).astype(np.float32))
    threads = adjit.get_num_threads()
    found = []
    try:
        for count in (1, 3):
            adjit.set_num_threads(count)
            found.append(adjit.zeros(50, 3).index_add(0, places, values).numpy())
    finally:
        adjit.set_num_threads(threads)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("rows", [30, 900])
def test_wide_rows_are_added_up_in_the_order_of_their_indices(rows):
    x, values = (rng.standard_normal((n, 70)).astype(np.float32) for n in (rows, 400))
    places = rng.integers(-rows, rows, 400)
    expected = x.copy()
    np.add.at(expected, places, values)
    index, added, table = adjit.tensor(places), adjit.tensor(values), adjit.tensor(x)
    np.testing.assert_array_equal(table.index_put((index,), added, True).numpy(), expected)
    over = table * 1
    over.index_put_((index,), added, True)
    np.testing.assert_array_equal(over.numpy(), expected)
    np.testing.assert_array_equal(table.numpy(), x)
    places[7] = rows
    with pytest.raises(IndexError, match=f"index {rows} is out of bounds"):
        table.index_put((adjit.tensor(places),), added, True).numpy()


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (lambda T, x: x[5], (3,)),
        (lambda T, x: x[-4], (3,)),
        (lambda T, x: x[0, 7], (3, 4)),
        (lambda T, x: x[:, None, 7], (3, 4)),
        (lambda T, x: x[..., 7], (3, 4)),
        (lambda T, x: x[0, 1], (3,)),
        (lambda T, x: x[0], ()),
        (lambda T, x: x[::-1], (3,)),
        (lambda T, x: x[::0], (3,)),
        (lambda T, x: x[1:2.5], (3,)),
        (lambda T, x: x[index(T, 1, 5)], (3,)),
        (lambda T, x: x[index(T, 1, -4)], (3,)),
        (lambda T, x: x[:, index(T, 1, 9)], (3, 4)),
        (lambda T, x: x[index(T, 1, 1), index(T, 1, 9)], (3, 4)),
        (lambda T, x: x[index(T, 1, 2), index(T, 1, 2, 3)], (3, 4)),
        (lambda T, x: x[T.tensor([True, False])], (3, 4)),
        (lambda T, x: x[T.ones(3, 5) > 0], (3, 4)),
        (lambda T, x: x[T.ones(3, 4, 5) > 0], (3, 4)),
        (lambda T, x: x[index(T, 1, 1), index(T, 1, 1), index(T, 1, 1)], (3, 4)),
        (lambda T, x: x[1.5], (3, 4)),
        (lambda T, x: x[T.ones(2)], (3, 4)),
        (lambda T, x: x[index(T, 0, 0)], (0, 4)),
    ],
)
def test_errors_of_reading(call, shape):
    agree_in_error(call, numbers(*shape))


def write(key, value):
    """A call that writes one value by one key."""

    def call(T, x):
        x = x.clone()
        x[key(T)] = value(T)
        return x

    return call


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (lambda T: 0, lambda T: T.ones(5, dtype=T.int64)),
        (lambda T: index(T, 0, 1), lambda T: T.ones(3)),
        (lambda T: index(T, 0, 1), lambda T: T.ones(3, 4, 4)),
        (lambda T: index(T, 0, 1), lambda T: T.ones(1, 1, 1, 4)),
        (lambda T: index(T, 0, 9), lambda T: 1),
        (lambda T: T.ones(3, 4) > 0, lambda T: T.ones(5)),
        (lambda T: T.ones(3, 4) > 0, lambda T: T.ones(12)),
        (lambda T: 0, lambda T: [1, 2, 3, 4]),
        (lambda T: 0, lambda T: "a"),
        (lambda T: 7, lambda T: 1),
    ],
)
def test_errors_of_writing(key, value):
    agree_in_error(write(key, value), numbers(3, 4, dtype=np.int64))


def test_number_written_takes_the_dtype():
    for key in (lambda T: 0, lambda T: index(T, 0, 1), lambda T: T.ones(3, 4) > 0):
        agree(write(key, lambda T: 1.5), numbers(3, 4, dtype=np.int64))
    agree(write(lambda T: 0, lambda T: T.ones(1, 1, 4)), numbers(3, 4, dtype=np.int64))


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        (lambda T: ..., (1, 3, 4)),
        (lambda T: 0, (1, 1, 4)),
        (lambda T: index(T, 0, 1), (1, 2, 4)),
        (lambda T: index(T, 0, 1), (1, 1, 1, 4)),
        (lambda T: [0, 1], (1, 1)),
        (lambda T: (slice(None), index(T, 1, 3)), (1, 1, 3, 2)),
        (lambda T: (index(T, 0, 1), index(T, 1, 3)), (1, 1, 2)),
        (lambda T: T.tensor([True, False, True]), (1, 2, 4)),
        (lambda T: T.ones(3, 4) > 0, (1, 12)),
        (lambda T: T.ones(3, 4) > 0, (1, 1)),
        (lambda T: (None, T.tensor(1)), (1, 1, 1, 4)),
        (lambda T: T.tensor(True), (1, 1, 3, 4)),
        (lambda T: T.tensor([], dtype=T.int64), (1, 1, 4)),
    ],
)  # fmt: skip
def test_values_may_have_axes_of_one_in_front(key, shape):
    values = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)

    def call(T, x, v):
        y = x * 1
        y[key(T)] = v
        return y

    agree(call, numbers(3, 4), values)
    agree_in_gradients(call, numbers(3, 4), values)


def test_a_row_is_set_to_one_of_its_elements():
    def call(T, x):
        y = x * 1
        y[1] = y[1][0]
        y[2] = y[2, 1:2]
        return y

    agree(call, numbers(3, 4))
    agree_in_gradients(call, numbers(3, 4))
    agree_in_error(lambda T, x: x[1].copy_(x[1, 3]), numbers(3, 4))


def test_index_put_takes_values_as_they_are():
    x, v = numbers(2, 3), numbers(1, 2, 3)
    for add in (False, True):
        agree_in_error(lambda T, x, v, add=add: x.index_put((index(T, 0, 1),), v, add), x, v)
    with pytest.raises(RuntimeError, match="expected at least one tensor of indices"):
        adjit.zeros(2).index_put((), adjit.ones(1))
    agree_in_error(lambda T, x: x.index_put([None], x), numbers(3))


def test_elements_cannot_be_deleted():
    def call(T, x):
        del x[0]

    agree_in_error(call, numbers(3))


def test_bytes_as_masks_are_deprecated():
    mask = np.array([1, 0, 1], np.uint8)
    agree_in_warning(lambda T, x, m: x[m], numbers(3), mask)
    agree_in_warning(lambda T, x, m: x.index_put((m,), T.zeros(2, dtype=x.dtype)), numbers(3), mask)
    with pytest.warns(UserWarning, match="deprecated") as caught:
        adjit.ones(3)[adjit.tensor(mask)]
    assert caught[0].filename == __file__


def test_names_of_backward_functions():
    x = numbers(3, 4)
    for call, name in [
        (lambda T, x: x[0], "SelectBackward0"),
        (lambda T, x: x[0, 1:], "SliceBackward0"),
        (lambda T, x: x[None], "UnsqueezeBackward0"),
        (lambda T, x: x[...], "AliasBackward0"),
        (lambda T, x: x[:], "SliceBackward0"),
        (lambda T, x: x[index(T, 0, 1)], "IndexBackward0"),
        (lambda T, x: x[x.detach() > 1], "IndexBackward0"),
        (lambda T, x: x.index_select(0, index(T, 0, 1)), "IndexSelectBackward0"),
        (lambda T, x: x.gather(0, T.tensor([[0]])), "GatherBackward0"),
        (lambda T, x: x.scatter(0, T.tensor([[0]]), 2.0), "ScatterBackward1"),
        (lambda T, x: x.take(index(T, 0, 1)), "TakeBackward0"),
        (lambda T, x: x.masked_select(x.detach() > 1), "MaskedSelectBackward0"),
    ]:
        assert backward_name(call, x) == name


def test_writes_and_the_graph():
    x = adjit.ones(3, requires_grad=True)
    y = x * 1
    y[0] = 5
    assert y.grad_fn.name().endswith("CopySlices")
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 1.0]
    y = x * 1
    y[adjit.tensor([0, 1])] = adjit.tensor(2.0)
    assert y.grad_fn.name() == "IndexPutBackward0"
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x[adjit.tensor([0])] = 1.0


# ----- rows -----


@pytest.mark.parametrize("lines", [1, 3, 4, 5, 11, 40])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, np.bool_])
def test_the_same_places_of_many_lines(lines, kind):
    """Four lines are read at a time."""
    rng = np.random.default_rng(lines)
    x = (rng.standard_normal((3, lines, 70)) * 9).astype(kind)
    places = rng.integers(-70, 70, 3000)  # lines are cut, where threads share them out
    t, at = adjit.tensor(x), adjit.tensor(places)
    assert (t[:, :, at].numpy() == x[:, :, places]).all()
    assert (t.transpose(0, 1)[:, :, at].numpy() == x.swapaxes(0, 1)[:, :, places]).all()
    assert (t[:, :, ::2][:, :, at % 35].numpy() == x[:, :, ::2][:, :, places % 35]).all()
    with pytest.raises(IndexError, match="index 70 is out of bounds for dimension 0 with size 70"):
        t[:, :, adjit.tensor([*places, 70])].tolist()


def test_index_select():
    agree(lambda T, x: x.index_select(0, index(T, 2, 0, 2)), numbers(3, 4))
    agree(lambda T, x: x.index_select(-1, index(T, 2, 0, 2)), numbers(2, 3, 4))
    agree(lambda T, x: x.index_select(1, T.tensor(1)), numbers(2, 3, 4))
    agree(lambda T, x: x.index_select(0, T.tensor(0)), np.array(5.0))
    agree(lambda T, x: x.t().index_select(0, index(T, 2, 0)), numbers(3, 4))
    agree(lambda T, x: x[:0, :, :2].index_select(0, T.tensor([], dtype=T.int64)), numbers(2, 3, 4))
    agree(lambda T, x: x.index_select(1, T.tensor([], dtype=T.int32)), numbers(2, 3))
    agree_in_gradients(lambda T, x: x.index_select(1, index(T, 2, 0, 2)), numbers(2, 3, 4))
    for call in (
        lambda T, x: x.index_select(0, index(T, 1, 5)),
        lambda T, x: x.index_select(0, index(T, 0, -1)),
        lambda T, x: x.index_select(0, T.tensor([[0]])),
        lambda T, x: x.index_select(0, T.ones(1)),
        lambda T, x: x.index_select(2, index(T, 0, 1)),
    ):
        agree_in_error(call, numbers(3, 4))


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
def test_index_reduce(reduce: str, include: bool) -> None:
    x, rows = numbers(3, 4), numbers(3, 4) + 0.5
    rows[1] = 0
    how = {"reduce": reduce, "include_self": include}
    for call in (
        lambda T, x, r: x.index_reduce(0, index(T, 2, 0, 2), r, **how),
        lambda T, x, r: x.t().index_reduce(1, index(T, 1, 1, 0), r.t(), **how),
        lambda T, x, r: x.clone().index_reduce_(-2, index(T, 0, 0, 1), r, **how),
        lambda T, x, r: x[0, 0].index_reduce(0, index(T, 0), r[0, 0], **how),
    ):
        agree(call, x, rows)
        agree_in_gradients(call, x, rows, order=1)
    whole = lambda T, x, r: x.index_reduce(0, index(T, 0, 0, 1), r, **how)  # noqa: E731
    agree(lambda T, x, r: x.index_reduce(0, index(T, 2, 0, 2).int(), r, **how), x, rows)
    agree(whole, (x * 9).astype(np.int64), (rows * 9).astype(np.int64))
    if include and reduce != "mean":
        agree(whole, x > 0, rows > 0)
    each = lambda t, r: t.index_reduce(0, adjit.tensor([2, 0]), r, **how)  # noqa: E731
    many, slices = adjit.tensor(numbers(5, 3, 4)), adjit.tensor(numbers(5, 2, 4))
    wanted = adjit.stack([each(t, r) for t, r in zip(many, slices, strict=True)])
    np.testing.assert_array_equal(adjit.vmap(each)(many, slices), wanted)


def test_index_add_copy_fill():
    x, rows = numbers(3, 4), numbers(2, 4)
    two = lambda T: index(T, 2, 0)  # noqa: E731
    for call in (
        lambda T, x, r: x.index_add(0, two(T), r),
        lambda T, x, r: x.index_add(0, index(T, 1, 1), r, alpha=2),
        lambda T, x, r: x.index_copy(0, two(T), r),
        lambda T, x, r: x.t().index_copy(1, two(T), r.t()),
        lambda T, x, r: x.index_fill(0, two(T), 7.0),
        lambda T, x, r: x.index_fill(1, index(T, 3, 0), r[0, 0]),
        lambda T, x, r: x.clone().index_add_(0, two(T), r),
    ):
        agree(call, x, rows)
        agree_in_gradients(call, x, rows)
    for call in (
        lambda T, x: x.index_add(0, index(T, 0, 5), x[:2]),
        lambda T, x: x.index_add(0, index(T, 0, 1), x),
        lambda T, x: x.index_add(0, index(T, 0, 1), x[:2, :3]),
        lambda T, x: x.index_add(0, index(T, 0, 1), x[:2].int()),
        lambda T, x: x.index_add(0, T.tensor([[0, 1]]), x[:2]),
        lambda T, x: x.index_reduce(0, index(T, 0, 1), x, "prod"),
        lambda T, x: x.index_reduce(0, index(T, 0, 1), x[:2, :3], "prod"),
        lambda T, x: x.index_reduce(0, index(T, 0, 1), x[:2].int(), "prod"),
        lambda T, x: x.index_reduce(0, T.tensor([[0, 1]]), x[:2], "prod"),
        lambda T, x: x.index_reduce(0, T.ones(2), x[:2], "prod"),
        lambda T, x: x.index_reduce(0, index(T, 0, 1), x[:2], "sum"),
        lambda T, x: x.index_copy(0, index(T, 0, 5), x[:2]),
        lambda T, x: x.index_copy(0, index(T, 0, -1), x[:2]),
        lambda T, x: x.index_copy(0, index(T, 0, 1), x),
        lambda T, x: x.index_copy(0, index(T, 0, 1), x[:2, :3]),
        lambda T, x: x.index_copy(0, index(T, 0, 1), x[:2].int()),
        lambda T, x: x.index_fill(0, index(T, 0, 5), 1),
        lambda T, x: x.index_fill(0, index(T, 0, 1), T.ones(1)),
        lambda T, x: x.index_fill(0, T.ones(1), 1),
    ):
        agree_in_error(call, x)


def test_take_and_put():
    x = numbers(3, 4)
    agree(lambda T, x: x.take(T.tensor([[0, -1], [5, 5]])), x)
    agree_in_gradients(lambda T, x: x.take(T.tensor([[0, -1], [5, 5]])), x)
    for accumulate in (False, True):
        put = lambda T, x, s, a=accumulate: x.put(T.tensor([1, -1]), s, a)  # noqa: E731
        agree(put, x, numbers(2))
        agree_in_gradients(put, x, numbers(2))
    agree(lambda T, x, s: x.clone().put_(T.tensor([1, 1]), s, accumulate=True), x, numbers(2))
    agree_in_error(lambda T, x: x.take(T.tensor([50])), x)
    agree_in_error(lambda T, x: x.take(T.ones(1)), x)
    agree_in_error(lambda T, x: x.put_(T.tensor([50]), x[0, :1].clone()), x)
    agree_in_error(lambda T, x: x.put_(T.tensor([1]), x[0, :2].clone()), x)


# ----- grids -----


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_gather_and_scatter(data):
    ndim = data.draw(st.integers(1, 3))
    shape = data.draw(st.tuples(*[st.integers(1, 4)] * ndim))
    dim = data.draw(st.integers(0, ndim - 1))
    inside = tuple(data.draw(st.integers(0, 5 if d == dim else n)) for d, n in enumerate(shape))
    places = rng.integers(0, shape[dim], inside)
    source = numbers(*[n + data.draw(st.integers(0, 2)) for n in inside])
    x = numbers(*shape)
    agree(lambda T, x: x.gather(dim, T.tensor(places)), x)
    agree(lambda T, x, s: x.scatter_add(dim, T.tensor(places), s), x, source)
    agree(lambda T, x: x.scatter(dim, T.tensor(places), 2.5), x)
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        for include in (True, False):
            agree(
                lambda T, x, s, r=reduce, i=include: x.scatter_reduce(
                    dim, T.tensor(places), s, r, include_self=i
                ),
                x, source,
            )  # fmt: skip


def test_scatter_writes():
    places = np.array([[2, 0, 1], [0, 1, 2]])
    call = lambda T, x, s: x.scatter(0, T.tensor(places), s)  # noqa: E731
    agree(call, numbers(3, 4), numbers(2, 3))
    agree_in_gradients(call, numbers(3, 4), numbers(2, 3))
    agree(
        lambda T, x, s: x.scatter(1, T.tensor(places), s, reduce="add"),
        numbers(3, 4),
        numbers(2, 3),
    )
    agree(lambda T, x: x.scatter(1, T.tensor(places), 3.0, reduce="multiply"), numbers(3, 4))
    agree(lambda T, x, s: x.clone().scatter_(1, T.tensor(places), s), numbers(3, 4), numbers(2, 3))
    agree(lambda T, x: x.clone().scatter_(1, T.tensor(places), value=1), numbers(3, 4))


def test_gradients_of_grids():
    x, source = numbers(3, 4), numbers(2, 4) + 20
    places = np.array([[0, 1, 0, 2], [0, 2, 2, 2]])
    agree_in_gradients(lambda T, x: x.gather(1, T.tensor(places)), x)
    agree_in_gradients(lambda T, x: x.scatter(0, T.tensor(places), 3.0), x)
    agree_in_gradients(lambda T, x, s: x.scatter_add(0, T.tensor(places), s), x, source)
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        for include in (True, False):
            agree_in_gradients(
                lambda T, x, s, r=reduce, i=include: x.scatter_reduce(
                    0, T.tensor(places), s, r, include_self=i
                ),
                x, source, order=1,
            )  # fmt: skip


def test_gradients_of_ties_and_zeros():
    x, places = np.array([3.0, 0.0, 1.0]), np.array([0, 0, 1, 1, 2])
    source = np.array([3.0, 1.0, 0.0, 2.0, 0.0])
    for reduce in ("prod", "amax", "amin"):
        agree_in_gradients(
            lambda T, x, s, r=reduce: x.scatter_reduce(0, T.tensor(places), s, r),
            x,
            source,
            order=1,
        )


@pytest.mark.parametrize("source", [[0.0, 0.0], [0.0, 2.0]])
def test_of_products_with_two_zeros_there_is_no_second_derivative(source):
    x, s = (adjit.tensor(v, dtype=adjit.float64, requires_grad=True) for v in ([2.0], source))
    made = x.scatter_reduce(0, adjit.tensor([0, 0]), s, "prod").sum()
    (g,) = adjit.autograd.grad(made, s, create_graph=True)
    if source[1]:
        np.testing.assert_array_equal(adjit.autograd.grad(g[0], s)[0].numpy(), [0.0, 2.0])
    else:
        with pytest.raises(RuntimeError, match="Double backward is unsupported for src when >1"):
            adjit.autograd.grad(g[0], s)


def test_take_along_dim():
    x = rng.standard_normal((3, 4))
    agree(lambda T, x: T.take_along_dim(x, x.argsort(1), 1), x)
    agree(lambda T, x: T.take_along_dim(x, T.tensor([[0, 1, 0, 2]]), 0), x)
    agree(lambda T, x: T.take_along_dim(x, T.tensor([[0, 5]])), x)
    agree_in_gradients(lambda T, x: T.take_along_dim(x, T.tensor([[0], [1], [0]]), 1), x)
    agree_in_error(lambda T, x: T.take_along_dim(x, T.tensor([0]), 0), x)
    agree_in_error(lambda T, x: T.take_along_dim(x, T.ones(3, 1), 0), x)
    around = [[5, 7, -4, -9, 2**40, -(2**63)]]
    agree(lambda T, x: T.take_along_dim(x, T.tensor(around), 1), x)
    agree_in_gradients(lambda T, x: T.take_along_dim(x, T.tensor(around), 1), x)
    agree(lambda T, x: T.take_along_dim(x, T.tensor([0, 5], dtype=T.int32)), x)
    agree_in_error(lambda T, x: T.take_along_dim(x, T.tensor([0, 12])), x)
    agree_in_error(lambda T, x: T.take_along_dim(x[:0], T.tensor([[0]]), 0), x)


INDICES = {
    "gather": lambda T, x, i: x.gather(1, i.view(2, -1)),
    "scatter": lambda T, x, i: x.scatter(1, i.view(2, -1), x),
    "scatter a number": lambda T, x, i: x.scatter(1, i.view(2, -1), 5.0),
    "scatter_add": lambda T, x, i: x.scatter_add(1, i.view(2, -1), x),
    "scatter_reduce": lambda T, x, i: x.scatter_reduce(1, i.view(2, -1), x, "amax"),
    "take_along_dim": lambda T, x, i: T.take_along_dim(x, i.view(2, -1), 1),
    "index_select": lambda T, x, i: x.index_select(0, i),
    "take": lambda T, x, i: x.take(i),
    "put": lambda T, x, i: x.put(i, T.ones(4)),
    "index_put": lambda T, x, i: x.index_put((i,), T.tensor(7.0)),
    "item": lambda T, x, i: x[i],
    "columns": lambda T, x, i: x[:, i],
    "of no axis": lambda T, x, i: x[i[0]],
    "index_add": lambda T, x, i: x.index_add(1, i, T.ones(2, 4)),
    "index_copy": lambda T, x, i: x.index_copy(1, i, T.ones(2, 4)),
    "index_fill": lambda T, x, i: x.index_fill(1, i, 5.0),
    "embedding": lambda T, x, i: T.nn.functional.embedding(i, x),
}
KINDS_OF_INDICES = ["int64", "int32", "int16", "int8", "uint8", "bool", "float32"]


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("kind", KINDS_OF_INDICES)
@pytest.mark.parametrize("name", INDICES)
def test_indices_beyond_the_ends_and_of_all_dtypes(name: str, kind: str) -> None:
    """The same values or the same errors as PyTorch."""
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    wrong = [[0, 1, 1, 0]]
    if kind == "int64":
        wrong += [[0, -1, 1, 0], [0, -3, 0, 0], [-7, 0, 0, 0], [0, 0, 3, 0], [0, 6, 0, 0]]
    for places in wrong:
        said = []
        for T in (adjit, pytest.importorskip("torch")):
            index = T.tensor(places, dtype=getattr(T, kind))
            try:
                found = INDICES[name](T, T.tensor(x), index)
                said.append((list(found.shape), found.tolist()))
            except (RuntimeError, IndexError) as error:
                said.append((type(error), plain(error).splitlines()[0]))
        assert said[0] == said[1], places


@pytest.mark.parametrize(
    "call",
    [
        lambda T, x: x.gather(0, T.tensor([0])),
        lambda T, x: x.gather(0, T.zeros(1, 5, dtype=T.int64)),
        lambda T, x: x.gather(0, T.tensor([[5]])),
        lambda T, x: x.gather(0, T.tensor([[-1]])),
        lambda T, x: x.gather(2, T.tensor([[0]])),
        lambda T, x: x.gather(0, T.tensor([[0.0]])),
        lambda T, x: x.scatter(0, T.zeros(1, 5, dtype=T.int64), x),
        lambda T, x: x.scatter(0, T.zeros(1, 2, dtype=T.int64), x[:1, :1]),
        lambda T, x: x.scatter(0, T.tensor([[5]]), x),
        lambda T, x: x.scatter(0, T.tensor([[0]]), x.int()),
        lambda T, x: x.scatter(0, T.tensor([0]), 2.0),
        lambda T, x: x.scatter(0, T.tensor([[0]]), 2.0, reduce="foo"),
        lambda T, x: x.scatter(0, T.tensor([[0.0]]), 2.0),
        lambda T, x: x.scatter_add(0, T.zeros(1, 5, dtype=T.int64), x),
        lambda T, x: x.scatter_add(0, T.tensor([[7]]), x),
        lambda T, x: x.scatter_add(0, T.tensor([[0]]), x.int()),
        lambda T, x: x.scatter_reduce(0, T.tensor([[0]]), x, "foo"),
        lambda T, x: x.scatter_reduce(0, T.tensor([[8]]), x, "sum"),
    ],
)
def test_errors_of_grids(call):
    agree_in_error(call, numbers(3, 4))


# ----- masks -----


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (0, 3), (2, 3, 2), (9001,), (70, 130)])
def test_nonzero(shape):
    x = rng.integers(0, 2, shape)
    agree(lambda T, x: x.nonzero(), x)
    agree(lambda T, x: x.nonzero(as_tuple=True), x)
    agree(lambda T, x: T.argwhere(x), x)
    agree(lambda T, x: T.where(x > 0), x)
    agree(lambda T, x: x.nonzero(), x.astype(np.float32) * np.nan)
    if (
        x.ndim > 1 and x.any()
    ):  # PyTorch's layout, column by column: what is a view of the places shows it
        assert adjit.tensor(x).nonzero().stride() == (1, np.count_nonzero(x))


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, np.int8, np.bool_])
@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("shape", [(7, 5), (6, 3, 4), (3, 0, 2), (0, 4), (70, 60, 5), (100, 50)])
def test_rows_that_a_mask_chooses(shape, axes, kind):
    """Of few, memory has room for all, and the number of those that are chosen changes from call to call."""
    x = rng.standard_normal(shape).astype(kind)
    for share in (0.0, 0.3, 0.7, 1.0):
        mask = rng.random(shape[:axes]) < share
        agree(lambda T, x, m: x[m], x, mask)
        agree(lambda T, x, m: x[1:][m[1:]], x, mask)
        if axes == 2:
            agree(lambda T, x, m: x.swapaxes(0, 1)[m.t()], x, mask)

        def write(T, x, m):
            x = x.clone()
            x[m] = 1
            x[~m] = 2.5
            return x

        agree(write, x, mask)
    picked = adjit.tensor(x)[adjit.tensor(mask)]
    assert picked.is_contiguous()
    assert picked._base is None
    picked.zero_()
    np.testing.assert_array_equal(adjit.tensor(x).numpy(), x)


def test_a_mask_keeps_history_where_gradients_are_recorded():
    x = adjit.rand(3, 4, requires_grad=True)
    assert x[x > 0.5].grad_fn.name() == "IndexBackward0"
    assert x[x.detach()[:, 0] > 2].requires_grad
    with adjit.no_grad():
        assert not x[x > 0.5].requires_grad
    assert not x.detach()[x > 0.5].requires_grad
    agree_in_error(lambda T, x: x[T.tensor([True, False])], numbers(3, 4))
    agree_in_error(lambda T, x: x[T.tensor([[True, False, True]])], numbers(3, 4))


def test_masked_select_and_scatter():
    x = numbers(3, 4)
    agree(lambda T, x: x.masked_select(x > 5), x)
    agree(lambda T, x: x.masked_select(T.tensor([True, False, True, False])), x)
    agree(lambda T, x: x[0].masked_select(T.tensor([[True], [False], [True]])), x)
    agree_in_gradients(lambda T, x: x.masked_select(x.detach() > 5), x)
    agree_in_gradients(lambda T, x: x.masked_select(T.tensor([True, False, True, False])), x)
    agree(lambda T, x, s: x.masked_scatter(x > 5, s), x, numbers(10))
    agree_in_gradients(lambda T, x, s: x.masked_scatter(x.detach() > 5, s), x, numbers(10))
    large = rng.standard_normal(10_000)
    agree(lambda T, x: x.masked_scatter(x > 0, x), large)
    agree_in_error(lambda T, x: x.masked_select(x), x)
    agree_in_error(lambda T, x: x.masked_scatter(x > 5, x[0, :2]), x)
    agree_in_error(lambda T, x: x.masked_scatter(x, x), x)
    agree_in_error(lambda T, x: x.masked_scatter(x > 5, x.int()), x)


# ----- embedding -----


def test_embedding():
    weight, places = numbers(5, 3), np.array([[0, 2, 2], [4, 0, 1]])
    for options in ({}, {"padding_idx": 2}, {"padding_idx": -1}, {"scale_grad_by_freq": True}):
        call = lambda T, w, o=options: functional(T).embedding(T.tensor(places), w, **o)  # noqa: E731
        agree(call, weight)
        agree_in_gradients(call, weight, order=1 if "scale_grad_by_freq" in options else 2)
    agree(lambda T, w: functional(T).embedding(T.tensor(1), w), weight)

    def limited(T, w):
        w = w.clone()
        return functional(T).embedding(T.tensor(places), w, max_norm=5.0), w

    agree(limited, weight)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(adjit.tensor(weight), adjit.ones(5, 3, dtype=adjit.float64))
        rows = functional(adjit).embedding(adjit.tensor(places), dual, max_norm=0.1)
        for moved in (rows, dual):  # a norm is limited beside what is differentiated
            assert (forward_ad.unpack_dual(moved).tangent == 1).all()
    for call in (
        lambda T, w: functional(T).embedding(index(T, 1, 5), w),
        lambda T, w: functional(T).embedding(index(T, 1, -1), w),
        lambda T, w: functional(T).embedding(T.ones(1), w),
        lambda T, w: functional(T).embedding(index(T, 0, 1), w[0]),
        lambda T, w: functional(T).embedding(index(T, 0, 1), w, padding_idx=5),
        lambda T, w: functional(T).embedding(index(T, 0, 1), w, padding_idx=-6),
    ):
        agree_in_error(call, weight)


def test_one_hot():
    classes = np.array([[0, 2], [1, 1]])
    agree(lambda T, x: functional(T).one_hot(x), classes)
    agree(lambda T, x: functional(T).one_hot(x, 5), classes)
    agree(lambda T, x: functional(T).one_hot(x.t()[:, 1:], 4), classes)
    agree(lambda T, x: functional(T).one_hot(x[1, 0], 3), classes)
    agree(lambda T, x: functional(T).one_hot(x, 4), np.zeros((0,), np.int64))
    agree_in_error(lambda T, x: functional(T).one_hot(x, 2), classes)
    agree_in_error(lambda T, x: functional(T).one_hot(-x, 5), classes)
    agree_in_error(lambda T, x: functional(T).one_hot(-x), classes)
    agree_in_error(lambda T, x: functional(T).one_hot(x), np.zeros((0,), np.int64))
    agree_in_error(lambda T, x: functional(T).one_hot(x.float()), classes)


@pytest.mark.cpu
def test_an_index_error_names_the_line_and_leaves_other_tensors_alone():
    x = adjit.arange(3)
    bad = x[adjit.tensor([7])]
    good = x + 1
    with pytest.raises(IndexError) as caught:
        bad.numpy()
    assert any("test_index.py" in note for note in caught.value.__notes__)
    assert good.tolist() == [1, 2, 3]
    with pytest.raises(IndexError):
        bad.numpy()


@pytest.mark.cpu
def test_a_write_leaves_earlier_readers_alone():
    places, ones = adjit.tensor([0, 0, 2]), adjit.ones(3)
    for write in (
        lambda x: x.index_add_(0, places, ones),
        lambda x: x.scatter_add_(0, places, ones),
        lambda x: x.index_put_((places,), ones, accumulate=True),
    ):
        x = adjit.zeros(4)
        before, view = x + 1, x[:3]
        write(x)
        after = x + 1
        write(x)
        assert before.tolist() == [1.0, 1.0, 1.0, 1.0]
        assert after.tolist() == [3.0, 1.0, 2.0, 1.0]
        assert x.tolist() == [4.0, 0.0, 2.0, 0.0]
        assert view.tolist() == [4.0, 0.0, 2.0]
        array = np.zeros(4, np.float32)
        write(adjit.from_numpy(array))
        assert array.tolist() == [2.0, 0.0, 1.0, 0.0]
        part = adjit.zeros(6)
        write(part[1:5])
        assert part.tolist() == [0.0, 2.0, 0.0, 1.0, 0.0, 0.0]


LONG_LINES = {  # of one axis more than is indexed, closer to each other or farther away than the indices
    "last axis": ((3, 20), 1), "first axis": ((20, 3), 0), "middle axis": ((2, 20, 3), 1),
    "last of three": ((2, 3, 20), 2), "a short line": ((40, 5), 1), "the only axis": ((20,), 0),
}  # fmt: skip


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", LONG_LINES)
def test_lines_of_a_grid(name, turned):
    shape, dim = LONG_LINES[name]
    x = rng.standard_normal(shape)
    source = rng.standard_normal(shape)
    index = rng.integers(0, shape[dim], shape)
    if turned:  # of the same values, lying the other way round
        x, source, index = (np.asfortranarray(a) for a in (x, source, index))
    agree(lambda T, t, i: T.gather(t, dim, i), x, index)
    agree(lambda T, t, i, s: t.scatter_add(dim, i, s), x, index, source)
    agree(lambda T, t, i, s: t.scatter_reduce(dim, i, s, "amax"), x, index, source)
    places = np.argsort(rng.standard_normal(shape), axis=dim)  # each once
    agree(lambda T, t, i, s: t.scatter(dim, i, s), x, places, source)
    for wrong in (-1, shape[dim], -(2**63), 2**63 - 1):
        bad = index.copy()
        bad.flat[-1] = wrong
        for call in (
            lambda t, i, s: adjit.gather(t, dim, i), lambda t, i, s: t.scatter(dim, i, s),
            lambda t, i, s: t.scatter_add(dim, i, s),
        ):  # fmt: skip
            with pytest.raises(
                RuntimeError, match=f"index {wrong} is out of bounds for dimension {dim}"
            ):
                call(*map(adjit.tensor, (x, bad, source))).tolist()


GRIDS = {
    "gather": lambda L, x, dim, i, v: x.gather(dim, i),
    "scatter": lambda L, x, dim, i, v: x.scatter(dim, i, v),
    "scatter, a number": lambda L, x, dim, i, v: x.scatter(dim, i, 3),
    "scatter_add": lambda L, x, dim, i, v: x.scatter_add(dim, i, v),
} | {
    f"{reduce}{' of others' if not whole else ''}": lambda L, x, dim, i, v, r=reduce, w=whole: (
        x.scatter_reduce(dim, i, v, r, include_self=w)
    )
    for reduce in ("sum", "prod", "mean", "amax", "amin")
    for whole in (True, False)
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "int16"])
@pytest.mark.parametrize("name", GRIDS)
def test_indices_that_axes_share_give_what_indices_of_each_give(name, dtype):
    random = np.random.default_rng(0)
    cases = [((5, w), 0, (9, w)) for w in (1, 7, 8, 33, 100)]
    cases += [
        ((6, 5), 1, (6, 9)),
        ((3, 4, 5), 0, (7, 4, 5)),
        ((3, 4, 5), 1, (3, 7, 5)),
        ((5, 4), 0, (3, 2)),
        ((2, 5, 3), 2, (2, 2, 1)),
    ]
    for shape, dim, sizes in cases:
        x, v = (random.integers(1, 5, size).astype(dtype) for size in (shape, sizes))
        if dtype.startswith("float"):
            v.flat[0], v.flat[-1], x.flat[1] = np.nan, -0.0, -0.0
        places = random.integers(0, shape[dim], sizes[dim])
        index = (
            adjit.tensor(places)
            .view([-1 if d == dim else 1 for d in range(len(shape))])
            .expand(sizes)
        )
        for table in (
            adjit.tensor(x),
            adjit.tensor(np.asfortranarray(x)),
            adjit.tensor(x).mT.contiguous().mT,
        ):
            larger = adjit.tensor(np.pad(v, 1))[(slice(1, None),) * v.ndim]
            found = GRIDS[name](adjit, table, dim, index, larger)
            expected = GRIDS[name](adjit, adjit.tensor(x), dim, index.contiguous(), adjit.tensor(v))
            assert found.shape == expected.shape
            assert found.numpy().tobytes() == expected.numpy().tobytes()


@pytest.mark.parametrize("name", GRIDS)
def test_gradients_through_indices_that_axes_share(name):
    index = adjit.tensor([0, 2, 2, 1]).unsqueeze(1).expand(4, 3)
    ways = []
    for places in (index, index.contiguous()):
        x = adjit.tensor(
            np.random.default_rng(0).permutation(12).reshape(4, 3) + 1.0, requires_grad=True
        )
        v = adjit.tensor(
            np.random.default_rng(1).permutation(12).reshape(4, 3) + 1.5, requires_grad=True
        )
        found = GRIDS[name](adjit, x, 0, places, v)
        (found * adjit.arange(12).view(4, 3)).sum().backward()
        ways.append([g.tolist() for g in (x.grad, v.grad) if g is not None])
    assert ways[0] == ways[1]


def test_an_index_of_a_shared_axis_that_is_out_of_bounds_is_told():
    x, v = adjit.zeros(3, 4), adjit.ones(2, 4)
    for bad in (3, -1):
        index = adjit.tensor([0, bad]).unsqueeze(1).expand(2, 4)
        for call in GRIDS.values():
            with pytest.raises(
                RuntimeError, match=f"index {bad} is out of bounds for dimension 0 with size 3"
            ):
                call(adjit, x, 0, index, v).tolist()
    assert x.sum().item() == 0


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "int16", "bool"])
@pytest.mark.parametrize("width", [1, 2, 7, 8, 31, 32, 33, 65, 200])
def test_rows_of_all_widths(width, dtype):
    random = np.random.default_rng(width)
    x = random.integers(0, 2 if dtype == "bool" else 100, (5, width)).astype(dtype)
    v = random.integers(0, 2 if dtype == "bool" else 100, (9, width)).astype(dtype)
    places = random.integers(-5, 5, 9)
    for table in (
        adjit.tensor(x),
        adjit.tensor(np.tile(x, (1, 2)))[:, :width],
        adjit.tensor(x.T.copy()).T,
    ):
        index = adjit.tensor(places)
        np.testing.assert_array_equal(table[index].numpy(), x[places])
        np.testing.assert_array_equal(table[:, index[:3] * 0].numpy(), x[:, places[:3] * 0])
        np.testing.assert_array_equal(table.index_select(0, index % 5).numpy(), x[places % 5])
        expected = x.copy()
        np.add.at(expected, places, v)
        found = table.index_put((index,), adjit.tensor(v), accumulate=True)
        np.testing.assert_array_equal(found.numpy(), expected)
        assert (
            found.numpy().tobytes()
            == table.index_add(0, index % 5, adjit.tensor(v)).numpy().tobytes()
        )


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_reductions_of_nans_and_infinities(reduce):
    x = np.array([[1.0, np.nan, 2.0], [np.inf, 0.0, -np.inf], [3.0, 4.0, np.nan]])
    v = np.array(
        [[np.nan, 1.0, 3.0], [5.0, np.nan, 1.0], [2.0, 2.0, np.nan], [-np.inf, np.inf, 7.0]]
    )
    places = np.array([0, 2, 0, 1])
    wide = np.repeat(places[:, None], 3, 1)
    agree(lambda T, x, v, i: x.scatter_reduce(0, i, v, reduce), x, v, wide)
    agree(lambda T, x, v, i: x.scatter_reduce(0, i[:, :1].expand(-1, 3), v, reduce), x, v, wide)
    agree(lambda T, x, v, i: x[:, 0].scatter_reduce(0, i, v[:, 0], reduce), x, v, places)


def test_index_add_takes_a_factor_that_the_elements_can_hold():
    where = adjit.tensor([3, 0])
    found = adjit.tensor([False, True, False, False]).index_add(
        0, where, adjit.tensor([True, True]), alpha=2
    )
    assert found.tolist() == [True, True, False, True]
    small = adjit.zeros(4, dtype=adjit.uint8)
    assert small.index_add(0, where, small[:2] + 1, alpha=3).tolist() == [3, 0, 0, 3]
    with pytest.raises(RuntimeError, match="alpha must not be a floating point number"):
        small.index_add(0, where, small[:2] + 1, alpha=2.5)


# ----- memory in another order of the axes -----


def chosen_key(rng, shape):
    """A key with indices: numbers, slices and new axes beside them."""
    entries = []
    for size in shape[: rng.integers(1, len(shape) + 1)]:
        how = rng.integers(6)
        if how < 2:
            entries.append(rng.integers(0, size, (1, 3)[rng.integers(2)]))
        elif how == 2:
            entries.append(rng.integers(0, size, (2, 3) if rng.random() < 0.5 else 3))
        elif how == 3:
            entries.append(slice(int(rng.integers(0, 2)), None, int(rng.integers(1, 3))))
        elif how == 4:
            entries.append(int(rng.integers(size)))
        else:
            entries += [None, slice(None)]
    if not any(isinstance(entry, np.ndarray) for entry in entries):
        entries[-1] = rng.integers(0, shape[len([e for e in entries if e is not None]) - 1], 3)
    return tuple(entries)


@pytest.mark.parametrize("seed", range(60))
def test_places_of_turned_tensors_are_written_where_they_lie(seed):
    rng = np.random.default_rng(seed)
    order, whole = rng.permutation(3), rng.normal(size=(4, 5, 6))
    key = chosen_key(rng, whole.transpose(order).shape)
    how, given = rng.integers(4), rng.normal(size=9**5)

    def written(library):
        memory = library.tensor(whole)
        turned = memory.permute(*order.tolist())
        places = tuple(library.tensor(e) if isinstance(e, np.ndarray) else e for e in key)
        shape = turned[places].shape
        shape = [shape, shape[-1:], (), (1, *shape)][how]
        turned[places] = library.tensor(given[: math.prod(shape)].reshape(shape))
        return memory.numpy()

    np.testing.assert_array_equal(written(adjit), written(pytest.importorskip("torch")))


def test_values_that_do_not_fit_a_turned_tensor_are_told_as_for_others():
    x = adjit.zeros(3, 4).t()
    rows = adjit.tensor([0, 2])
    with pytest.raises(RuntimeError, match=r"value tensor of shape \[5\] .* shape \[2, 3\]"):
        x[rows] = adjit.ones(5)
    x[adjit.tensor([7])] = 1.0
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        x.tolist()


def test_a_turned_tensor_with_a_history_is_written_with_it():
    x = adjit.ones(3, 4, requires_grad=True)
    y = (x * 2).t()
    w = adjit.ones(2, 3, requires_grad=True)
    y[adjit.tensor([0, 3])] = w * 5
    y.sum().backward()
    assert x.grad.tolist() == [[0, 2, 2, 0]] * 3
    assert w.grad.tolist() == [[5] * 3] * 2


@pytest.mark.parametrize("moved_for_a_row", [0, 8])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((4, 5, 6, 7), (1, 3)), ((4, 5, 6, 7), (0, 2)), ((3, 4, 2, 5, 3), (0, 2, 4)), ((3, 4, 5, 2, 3), (1, 4)),
        ((5, 1, 4, 6), (0, 2)), ((2, 3, 4, 5, 2), (0, 1, 3)), ((0, 3, 4, 5), (1, 3)),
    ],
)  # fmt: skip
def test_indices_that_are_not_neighbours(shape, axes, turned, moved_for_a_row, monkeypatch):
    """By another order of all axes, and by all numbers of the axes between."""
    monkeypatch.setattr(tables, "MOVED_FOR_A_ROW", moved_for_a_row)
    rng = np.random.default_rng(len(shape))
    data = rng.standard_normal(shape)
    key = tuple(
        rng.integers(-n, n, (2, 3) if d == axes[0] else (3,)) if d in axes else slice(None)
        for d, n in enumerate(shape)
    )
    names = tuple(adjit.tensor(k) if isinstance(k, np.ndarray) else k for k in key)
    x = adjit.tensor(data, requires_grad=True)
    given = x.mT.contiguous().mT if turned else x
    picked = given[names]
    weights = rng.standard_normal(picked.shape)
    np.testing.assert_array_equal(picked.detach().numpy(), data[key])
    (picked * adjit.tensor(weights)).sum().backward()
    expected = np.zeros(shape)
    np.add.at(expected, key, weights)
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-13, atol=1e-13)
    written, wanted = given.detach().clone(), data.copy()
    written[names], wanted[key] = 2.5, 2.5
    np.testing.assert_array_equal(written.numpy(), wanted)
    if data.size:
        with pytest.raises(
            IndexError, match=f"index {shape[axes[0]]} is out of bounds for dimension 0"
        ):
            given[
                tuple(
                    adjit.tensor([shape[axes[0]]]) if d == axes[0] else k
                    for d, k in enumerate(names)
                )
            ].tolist()


def test_no_index_names_an_element_of_nothing():
    """Though a result of no elements is nothing to look into."""
    x, places, values = np.zeros((3, 0)), np.zeros((3, 2), np.int64), np.ones((3, 2))
    for call in (
        lambda T, x, i, v: x.scatter(1, i, v),
        lambda T, x, i, v: x.scatter(1, i, 2.0),
        lambda T, x, i, v: x.scatter_add(1, i, v),
        lambda T, x, i, v: x.clone().scatter_add_(1, i, v),
        lambda T, x, i, v: x.scatter_reduce(1, i, v, "amax"),
        lambda T, x, i, v: x.gather(1, i),
    ):
        agree_in_error(call, x, places, values)
    with pytest.raises(RuntimeError, match="index 0 is out of bounds for dimension 1 with size 0"):
        adjit.tensor(x).index_reduce(1, adjit.tensor([0, 0]), adjit.tensor(values), "prod")
    nothing = adjit.tensor(x).scatter_add(1, adjit.zeros(3, 0, dtype=adjit.int64), adjit.tensor(x))
    assert nothing.shape == (3, 0)
