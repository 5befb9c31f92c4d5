"""Pooling beside PyTorch: values, places, gradients, layouts, layers, errors."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from against_torch import agree, agree_in_error, agree_in_gradients, backward_name, torch

import adjit

RANDOM = np.random.default_rng(3)
SHAPES = {1: (2, 3, 9), 2: (2, 3, 7, 8), 3: (2, 2, 5, 6, 5)}


def functional(T: Any) -> Any:
    return T.nn.functional


def normal(*shape: int, dtype: Any = np.float64) -> Any:
    return RANDOM.standard_normal(shape).astype(dtype)


def in_c_order(t: Any) -> Any:
    return t


def channels_last(t: Any) -> Any:
    """The same elements, those of all channels side by side."""
    axes = range(t.ndim)
    return t.permute(0, *axes[2:], 1).contiguous().permute(0, t.ndim - 1, *axes[1:-1])


layouts = pytest.mark.parametrize("layout", [in_c_order, channels_last])
every_n = pytest.mark.parametrize("n", [1, 2, 3])


def settings(n: int) -> Any:
    """kernel, stride, padding, dilation, ceil_mode: most of them in two axes, some in one and three."""
    every = itertools.product((2, 3), (None, 1, 2, 3), (0, 1), (1, 2), (False, True))
    return list(every)[:: 3 if n == 2 else 11]


@layouts
@every_n
def test_max_pool(n: int, layout: Callable[[Any], Any]) -> None:
    x = normal(*SHAPES[n])
    x.flat[7], x.flat[20], x.flat[21] = np.nan, -np.inf, -0.0
    distinct = normal(*SHAPES[n])
    for k, (kernel, stride, padding, dilation, ceil) in enumerate(settings(n)):

        def call(
            T: Any,
            t: Any,
            indices: bool = False,
            given: Any = (kernel, stride, padding, dilation, ceil),
        ) -> Any:
            return getattr(functional(T), f"max_pool{n}d")(layout(t), *given, indices)

        agree(lambda T, t, f=call: f(T, t, True), x)
        agree(call, x)
        if k % 2 == 0:
            agree_in_gradients(call, distinct)
    assert backward_name(call, x) == f"MaxPool{n}DWithIndicesBackward0"


@layouts
def test_windows_without_an_element(layout: Callable[[Any], Any]) -> None:
    """All taps lie in the padding; PyTorch's backward writes outside of the gradient for them."""
    x = normal(1, 2, 2, 40)
    for stride in (1, 3, 5):
        given = {"kernel_size": 2, "stride": stride, "padding": 1, "dilation": (3, 2)}
        for dtype in (np.float32, np.int64):
            agree(
                lambda T, t, given=given: functional(T).max_pool2d(
                    layout(t), return_indices=True, **given
                )[0],
                x.astype(dtype),
            )
        leaf = adjit.tensor(x, requires_grad=True)
        out = adjit.nn.functional.max_pool2d(layout(leaf), **given)
        assert out.isinf().any()
        out.sum().backward()
        assert not leaf.grad.any()


@layouts
@every_n
def test_avg_pool(n: int, layout: Callable[[Any], Any]) -> None:
    x = normal(*SHAPES[n])
    for kernel, stride, padding, dilation, ceil in settings(n):
        for count in (False, True):

            def call(T: Any, t: Any, given: Any = (kernel, stride, padding, ceil, count)) -> Any:
                return getattr(functional(T), f"avg_pool{n}d")(layout(t), *given)

            agree(call, x)
            if dilation == 1:
                agree_in_gradients(call, x)
    if n > 1:
        agree_in_gradients(
            lambda T, t: getattr(functional(T), f"avg_pool{n}d")(
                layout(t), 2, 1, 1, True, False, 3
            ),
            x,
        )
    assert backward_name(call, x) == f"AvgPool{n}DBackward0"


@layouts
@every_n
def test_windows_that_are_all_of_an_image(n: int, layout: Callable[[Any], Any]) -> None:
    sizes = (5, 4, 3)[:n]
    x = normal(3, 4, *sizes)
    mean, largest = (
        lambda T, t, *given, f=name, **named: getattr(functional(T), f)(
            layout(t), sizes, *given, **named
        )
        for name in (f"avg_pool{n}d", f"max_pool{n}d")
    )
    for given in ((), (2, 0, True), (1, 0, False, False)):
        agree_in_gradients(lambda T, t, g=given: mean(T, t, *g), x)
    if n > 1:
        agree_in_gradients(lambda T, t: mean(T, t, divisor_override=7), x)
    agree_in_gradients(largest, x)
    x[1, 2].flat[3] = np.nan
    for call in (mean, largest):
        agree(call, x)
        agree(call, x.astype(np.float32))


@layouts
@every_n
def test_adaptive_pools(n: int, layout: Callable[[Any], Any]) -> None:
    x = normal(*SHAPES[n])
    for size in (1, 3, 5, (2, None, 4)[:n] if n > 1 else 7):
        for kind in ("avg", "max"):

            def call(T: Any, t: Any, *more: Any, size: Any = size, kind: str = kind) -> Any:
                pool = getattr(functional(T), f"adaptive_{kind}_pool{n}d")
                return pool(layout(t), size, *more)

            agree_in_gradients(call, x)
        agree(lambda T, t, f=call: f(T, t, True), x)
        agree(call, x)
    assert backward_name(call, x) == f"AdaptiveMaxPool{n}DBackward0"


@layouts
def test_long_rows_many_channels_and_large_windows(layout: Callable[[Any], Any]) -> None:
    for shape, kernel in (((1, 2, 3, 300), (2, 3)), ((1, 150, 4, 5), 2), ((1, 2, 5, 400), (1, 90))):
        x = normal(*shape)
        for stride in (1, 2, 3, 5):
            agree_in_gradients(
                lambda T, t, k=kernel, s=stride: functional(T).max_pool2d(layout(t), k, s), x
            )
            agree_in_gradients(
                lambda T, t, k=kernel, s=stride: functional(T).avg_pool2d(layout(t), k, s, 0, True),
                x,
            )


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_rows_of_windows_that_fill_no_vectors_or_some(dtype: Any) -> None:
    for width in (5, 31, 64, 65, 100, 134):
        x = (9 * normal(1, 2, 3, width)).astype(dtype)
        if dtype is np.float32:
            x[0, 0, 1, ::9] = np.nan
        for stride, padding, apart in itertools.product((1, 2, 3, 4), (0, 1), (1, 2)):
            along = ((2, 3), stride, (0, padding))
            given = (*along, (1, apart), True)
            agree(lambda T, t, g=given: functional(T).max_pool2d(t, *g, True), x)
            if dtype is np.float32:
                agree(lambda T, t, g=given: functional(T).max_pool2d(t, *g), x)
                agree(lambda T, t, g=along: functional(T).avg_pool2d(t, *g, True, False), x)


@layouts
def test_adaptive_max_pool_of_long_rows_with_equals_and_nans(
    layout: Callable[[Any], Any],
) -> None:
    x = RANDOM.integers(0, 4, (1, 2, 6, 300)).astype(np.float64)
    x[0, 0, 1, [5, 130, 131]] = x[0, 0, 2, [4, 129]] = np.nan
    for size in (1, (2, 7), (4, 150), (7, 301), *[(None, n) for n in (1, 3, 7, 20, 29, 70)]):
        for given in (x, x.astype(np.float32)):
            agree(lambda T, t, s=size: functional(T).adaptive_max_pool2d(layout(t), s, True), given)


@every_n
def test_single_images_and_integers(n: int) -> None:
    x = normal(*SHAPES[n])
    for name in ("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool"):
        agree_in_gradients(lambda T, t, f=name: getattr(functional(T), f"{f}{n}d")(t[0], 2), x)
    agree(lambda T, t: getattr(functional(T), f"max_pool{n}d")(t, 2), x[:0])
    if n > 1:
        whole = RANDOM.integers(-9, 9, SHAPES[n])
        agree(
            lambda T, t: getattr(functional(T), f"max_pool{n}d")(t, 2, 1, 1, 1, True, True), whole
        )


@layouts
@every_n
def test_unpool(n: int, layout: Callable[[Any], Any]) -> None:
    x = normal(*SHAPES[n][:2], *(4, 6, 4)[:n])

    def call(T: Any, t: Any, size: Any = None) -> Any:
        values, places = getattr(functional(T), f"max_pool{n}d")(layout(t), 2, return_indices=True)
        return getattr(functional(T), f"max_unpool{n}d")(values, places, 2, output_size=size)

    agree_in_gradients(call, x)
    agree_in_gradients(lambda T, t: call(T, t, x.shape), x)
    agree_in_gradients(lambda T, t: call(T, t, x.shape[2:]), x)


@every_n
def test_norms_of_windows(n: int) -> None:
    x = np.abs(normal(*SHAPES[n])) + 0.1
    for p in (1, 2, 3.5, np.inf, -np.inf):
        for options in ({}, {"stride": 1}, {"stride": 3, "ceil_mode": True}):
            agree_in_gradients(
                lambda T, t, p=p, o=options: getattr(functional(T), f"lp_pool{n}d")(t, p, 2, **o), x
            )


@layouts
def test_results_keep_their_layout(layout: Callable[[Any], Any]) -> None:
    x = layout(adjit.randn(2, 3, 8, 6)).requires_grad_()
    F = functional(adjit)
    for call in (
        lambda: F.max_pool2d(x, 2),
        lambda: F.avg_pool2d(x, 2),
        lambda: F.adaptive_avg_pool2d(x, 4),
        lambda: F.adaptive_max_pool2d(x, 4),
    ):
        out = call()
        (gx,) = adjit.autograd.grad(out, x, out.detach())
        assert (out.stride()[1] == 1) is (layout is channels_last)
        assert gx.stride() == x.stride()


@layouts
def test_threads_change_no_bit(layout: Callable[[Any], Any]) -> None:
    x = layout(adjit.randn(3, 8, 40, 40))
    F = functional(adjit)
    for call in (lambda t: F.max_pool2d(t, 3, 2, 1), lambda t: F.avg_pool2d(t, 3, 2, 1)):
        found = []
        for threads in (1, 3):
            before = adjit.get_num_threads()
            adjit.set_num_threads(threads)
            leaf = x.detach().requires_grad_()
            out = call(leaf)
            gradient = adjit.autograd.grad(out, leaf, out.detach() * 0.3)[0]
            found.append((out.detach().numpy(), gradient.numpy()))
            adjit.set_num_threads(before)
        for one, other in zip(*found, strict=True):
            np.testing.assert_array_equal(one, other)


MODULES = [
    ("MaxPool1d", (2,), {}, 1),
    ("MaxPool2d", ((2, 3), 1, (1, 1), 2), {"ceil_mode": True}, 2),
    ("MaxPool3d", (2,), {"return_indices": True}, 3),
    ("AvgPool1d", (2,), {"padding": 1, "count_include_pad": False}, 1),
    ("AvgPool2d", (2, 1, 1), {"divisor_override": 3}, 2),
    ("AvgPool3d", ((2, 1, 1),), {}, 3),
    ("AdaptiveAvgPool1d", (2,), {}, 1),
    ("AdaptiveAvgPool2d", ((None, 3),), {}, 2),
    ("AdaptiveAvgPool3d", (2,), {}, 3),
    ("AdaptiveMaxPool1d", (2, True), {}, 1),
    ("AdaptiveMaxPool2d", (3,), {}, 2),
    ("AdaptiveMaxPool3d", ((1, None, 2),), {}, 3),
    ("LPPool1d", (2, 3), {}, 1),
    ("LPPool2d", (2.0, (2, 3), 2, True), {}, 2),
    ("LPPool3d", (2, 3), {}, 3),
]


@pytest.mark.parametrize(("name", "args", "options", "n"), MODULES, ids=[m[0] for m in MODULES])
def test_modules(name: str, args: Any, options: dict[str, Any], n: int) -> None:
    def call(T: Any) -> Any:
        return getattr(T.nn, name)(*args, **options)

    assert repr(call(adjit)) == repr(call(torch))
    agree(lambda T, t: call(T)(t), normal(*SHAPES[n], dtype=np.float32))


@every_n
def test_unpooling_modules(n: int) -> None:
    def call(T: Any) -> Any:
        return getattr(T.nn, f"MaxUnpool{n}d")((2,) * n, 2)

    assert repr(call(adjit)) == repr(call(torch))
    pooled = lambda T, t: getattr(T.nn, f"MaxPool{n}d")(2, return_indices=True)(t)  # noqa: E731
    agree(lambda T, t: call(T)(*pooled(T, t)), normal(2, 1, *(4, 6, 4)[:n]))


@every_n
def test_functions_that_always_give_places(n: int) -> None:
    def call(name: str, *settings: Any) -> Any:
        return lambda T, t: getattr(functional(T), f"{name}{n}d_with_indices")(t, *settings)

    x = normal(*SHAPES[n])
    agree(call("max_pool", 2, 1, 1, 1, True), x)
    agree(call("max_pool", 2, 1, 1, 1, True, False), x)
    agree(call("adaptive_max_pool", 3), x)
    agree(call("adaptive_max_pool", 3, False), x)


@layouts
@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fractional_max_pool(n: int, layout: Callable[[Any], Any], dtype: Any) -> None:
    x, drawn = normal(*SHAPES[n], dtype=dtype), RANDOM.random((2, SHAPES[n][1], n), dtype)
    x[0, 1].flat[:9], x[1, 0].flat[3:40:3] = -np.inf, np.nan
    distinct = normal(*SHAPES[n], dtype=dtype)
    for kernel, settings in [
        (2, {"output_size": 3}), ((3, 1, 2)[:n], {"output_size": (2, 4, 1)[:n]}),
        (1, {"output_ratio": (0.5, 0.9, 0.7)[:n]}), (2, {"output_size": 1}), (2, {"output_size": 0}),
    ]:  # fmt: skip

        def call(
            T: Any, t: Any, r: Any, indices: bool = False, k: Any = kernel, s: Any = settings
        ) -> Any:
            options = {**s, "return_indices": indices, "_random_samples": r.detach()}
            return getattr(functional(T), f"fractional_max_pool{n}d")(layout(t), k, **options)

        agree(lambda T, t, r, c=call: c(T, t, r, True), x, drawn)  # of NaNs the last counts
        agree(lambda T, t, r, c=call: c(T, t, r, True), distinct, drawn)
        agree(lambda T, t, r, c=call: c(T, t[0], r), distinct, drawn)
        agree_in_gradients(lambda T, t, c=call: c(T, t, T.tensor(drawn)), distinct)
        name = backward_name(lambda T, t, c=call: c(T, t, T.tensor(drawn)), distinct)
        assert name == f"FractionalMaxPool{n}DBackward0"


@pytest.mark.parametrize("n", [2, 3])
def test_drawn_windows_of_fractional_max_pool(n: int) -> None:
    size = 9
    images = adjit.arange(float(size**n)).reshape(1, 1, *[size] * n).expand(50, 4, *[size] * n)
    pool = getattr(adjit.nn, f"FractionalMaxPool{n}d")(2, 5, return_indices=True)
    values, places = pool(images)
    np.testing.assert_array_equal(values.numpy(), places.numpy())
    last = places.numpy() % size  # of each window: what lies on it along the last axis
    assert set(np.diff(last, axis=-1).flat) == {1, 2}
    assert (last[..., -1] == size - 1).all()
    assert len(np.unique(places.reshape(200, -1).numpy(), axis=0)) > 3
    whole = getattr(functional(adjit), f"fractional_max_pool{n}d_with_indices")
    assert len(whole(images, 2, output_ratio=0.5)) == 2


@pytest.mark.parametrize("n", [2, 3])
def test_errors_of_fractional_max_pool(n: int) -> None:
    x, many, name = normal(*SHAPES[n], dtype=np.float32), (1, 1, 1, 1), f"fractional_max_pool{n}d"

    def drawn(T: Any, *shape: int) -> Any:
        return T.rand(*shape)

    def call(*args: Any, shape: Any = (2, SHAPES[n][1], n), **options: Any) -> Any:
        return lambda T, t: getattr(functional(T), name)(
            t, *args, _random_samples=drawn(T, *shape), **options
        )

    for function, given in [
        (call(2), x), (call(2, many), x), (call(many, 2), x), (call(8, 2), x), (call(2, 8), x),
        (call(2, 2), x[:, :0]), (call(2, 2), x[..., :0]), (call(2, 2), x[0, 0]),
        (call(2, 2), x.astype(np.float64)), (call(2, 2, shape=(2, 4)), x),
        (call(2, 2, shape=(1, SHAPES[n][1], n)), x), (call(2, 2, shape=(2, 7, n)), x),
        (call(2, 2, shape=(2, SHAPES[n][1], n + 1)), x),
    ]:  # fmt: skip
        agree_in_error(function, given)
    none = np.zeros((2, SHAPES[n][1], n), np.int64)
    agree_in_error(
        lambda T, t: getattr(functional(T), name)(t, 2, 2, _random_samples=T.tensor(none)),
        x.astype(np.int64),
    )
    for args in [(2,), (2, 2, 0.5), (2, None, 1.5)]:
        agree_in_error(lambda T, t, a=args: getattr(T.nn, f"FractionalMaxPool{n}d")(*a), x)


@every_n
def test_errors(n: int) -> None:
    x = normal(*SHAPES[n], dtype=np.float32)
    many = (1, 1, 1, 1)
    for name in ("max", "avg"):
        cases: list[Any] = [
            (x, 2, 2, 2), (x, 2, 1, -1), (x, 11), (x, 0), (x, 2, 0), (x, many), (x, 2, many),
            (x, 2, 1, many), (x[:, :0], 2), (x[..., :0], 2), (x[None], 2),
        ]  # fmt: skip
        if name == "max":
            cases += [(x, 2, 2, 0, 0), (x, 2, 2, 0, many)]
        elif n > 1:
            cases.append((x, 2, 2, 0, False, True, 0))
        for given, *rest in cases:
            agree_in_error(
                lambda T, t, r=rest, f=f"{name}_pool{n}d": getattr(functional(T), f)(t, *r), given
            )
        wrong: list[Any] = [(x, -1), (x, many), (x[0, 0], 2), (x[..., :0], 2), (x[None], 2)]
        if name == "max" or n == 3:
            wrong.append((x[:, :0], 2))
        else:
            without = getattr(functional(adjit), f"adaptive_avg_pool{n}d")(
                adjit.tensor(x[:, :0]), 2
            )
            assert without.shape == (*x[:, :0].shape[:2], *(2,) * n)
        for given, size in wrong:
            agree_in_error(
                lambda T, t, s=size, f=f"adaptive_{name}_pool{n}d": getattr(functional(T), f)(t, s),
                given,
            )
        agree_in_error(
            lambda T, t, f=f"adaptive_{name}_pool{n}d": getattr(functional(T), f)(t.long(), 2), x
        )
    agree_in_error(lambda T, t: getattr(functional(T), f"avg_pool{n}d")(t.int(), 2), x)


def test_errors_of_unpool() -> None:
    x = np.arange(4.0).reshape(1, 1, 2, 2)

    def places(*values: int) -> Any:
        return np.array(values).reshape(1, 1, 2, 2)

    def unpool(T: Any, t: Any, i: Any, **options: Any) -> Any:
        return functional(T).max_unpool2d(t, i, 2, **options)

    agree_in_error(unpool, x, places(0, 3, 8, 20))
    agree_in_error(unpool, x, places(0, 3, 8, -1))
    agree_in_error(unpool, x, places(0, 3, 8, 1).astype(np.int32))
    agree_in_error(unpool, x, places(0, 3, 8, 1)[0])
    agree_in_error(lambda T, t, i: unpool(T, t[0, 0], i), x, places(0, 3, 8, 1))
    agree_in_error(lambda T, t, i: unpool(T, t, i, output_size=(9, 9)), x, places(0, 3, 8, 1))
    agree_in_error(lambda T, t, i: unpool(T, t, i, output_size=(9,)), x, places(0, 3, 8, 1))
    agree_in_error(lambda T, t, i: unpool(T, t.long(), i), x, places(0, 3, 8, 1))


def test_adaptive_max_pool1d_of_the_library_gives_places_too():
    x = adjit.tensor([[1.0, 3.0, 2.0, 0.0]])
    values, places = adjit.adaptive_max_pool1d(x, 2)
    assert (values.tolist(), places.tolist()) == ([[3.0, 2.0]], [[1, 2]])
    assert adjit.nn.functional.adaptive_max_pool1d(x, 2).tolist() == [[3.0, 2.0]]


@pytest.mark.parametrize(
    ("length", "places"), [(120, 5), (37, 2), (50, 3), (70, 1), (19, 4), (64, 40)]
)
def test_means_of_large_areas(length, places):
    """Areas longer than the sums that are added up side by side, with and without a rest."""
    data = np.random.default_rng(4).standard_normal((3, 2, length))
    areas = [(o * length // places, -(-(o + 1) * length // places)) for o in range(places)]
    x = adjit.tensor(data, requires_grad=True)
    means = adjit.nn.functional.adaptive_avg_pool1d(x, places)
    expected = np.stack([data[..., a:b].mean(-1) for a, b in areas], -1)
    np.testing.assert_allclose(means.detach().numpy(), expected, rtol=1e-12)
    weights = 1.0 + np.arange(places)
    (means * adjit.tensor(weights)).sum().backward()
    slope = np.zeros(length)
    for (a, b), w in zip(areas, weights, strict=True):
        slope[a:b] += w / (b - a)
    np.testing.assert_allclose(x.grad.numpy(), np.broadcast_to(slope, data.shape), rtol=1e-12)


# ---------------------------------------------------------------- whole numbers


@pytest.mark.parametrize("n", [1, 2, 3])
def test_means_of_whole_numbers_are_rounded_towards_zero(n: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(12):
        sizes = rng.integers(3, 8, n).tolist()
        x = rng.integers(-40, 40, (2, 3, *sizes)) * 2**40 + rng.integers(-3, 3, (2, 3, *sizes))
        kernel, stride = rng.integers(1, 4, n).tolist(), rng.integers(1, 4, n).tolist()
        padding = [int(rng.integers(0, k // 2 + 1)) for k in kernel]
        flags = (rng.random(2) < 0.5).tolist()
        others = [[None, 3, -2][rng.integers(3)]] if n > 1 else []
        for turned in (x, x[0], np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)):
            agree(
                lambda T, t, rest=(kernel, stride, padding, *flags, *others): getattr(
                    T.nn.functional, f"avg_pool{n}d"
                )(t, *rest),
                turned,
            )
    small = np.arange(6**n).reshape(1, *[6] * n)
    agree(lambda T, t: getattr(T.nn.functional, f"lp_pool{n}d")(t, 2, 2), small)
    for dtype in (np.uint8, np.int32, np.bool_):
        agree_in_error(
            lambda T, t: getattr(T.nn.functional, f"avg_pool{n}d")(t, 2), small.astype(dtype)
        )


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.int8])
def test_places_of_the_largest_whole_numbers_of_a_row(dtype: type) -> None:
    x = (np.arange(36).reshape(2, 3, 6) * 7 % 31).astype(dtype)
    agree(lambda T, t: T.nn.functional.max_pool1d(t, 2, return_indices=True), x)
    agree(lambda T, t: T.nn.functional.max_pool1d(t, 3, 2, 1, return_indices=True), x[0])
    agree_in_error(lambda T, t: T.nn.functional.max_pool1d(t, 2), x)
    agree_in_error(lambda T, t: T.nn.functional.max_pool1d(t, 2, return_indices=True), x > 3)
