"""Padding, interpolation, sampling and rearranging beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from against_torch import (
    agree,
    agree_in_error,
    agree_in_gradients,
    agree_in_warning,
    backward_name,
    torch,
)

import adjit

RANDOM = np.random.default_rng(11)


def functional(T: Any) -> Any:
    return T.nn.functional


def normal(*shape: int, dtype: Any = np.float64) -> Any:
    return RANDOM.standard_normal(shape).astype(dtype)


def channels_last(t: Any) -> Any:
    """The same elements, those of all channels side by side."""
    axes = range(t.ndim)
    return t.permute(0, *axes[2:], 1).contiguous().permute(0, t.ndim - 1, *axes[1:-1])


def agree_in_both_layouts(call: Callable[..., Any], x: Any, *rest: Any, **options: Any) -> None:
    """Values and two orders of gradients, of input in C order and with channels last."""
    agree_in_gradients(call, x, *rest, **options)
    agree_in_gradients(lambda T, t, *r: call(T, channels_last(t), *r), x, *rest, **options)


# ---------------------------------------------------------------- padding


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pad(mode: str) -> None:
    for shape, widths in (
        ((3, 4), (1, 2)),
        ((2, 3, 5), (-1, 3)),
        ((2, 3, 5), (3, -2)),
        ((2, 3, 4, 5), (2, 0, 1, 3)),
        ((3, 4, 5), (-1, 2, 2, -1)),
        ((2, 2, 3, 4, 2), (1, 1, 0, 2, 2, 1)),
        ((2, 1, 3, 300), (0, 0, 2, 1)),
        ((2, 3, 4), (0, 0)),
    ):
        x = normal(*shape)
        agree(lambda T, x, w=widths: functional(T).pad(x, w, mode), x)
        if len(shape) < 5:
            agree_in_both_layouts(lambda T, x, w=widths: functional(T).pad(x, w, mode), x)
    agree(lambda T, x: functional(T).pad(x, (1, 2), mode), RANDOM.integers(0, 9, (2, 3, 4)))


def test_constant_pad_of_long_rows() -> None:
    """Rows of several vectors and a rest, axes that are cut off whole, and the layout."""
    for shape, widths in (
        ((2, 40, 5, 3), (1, 0, 2, 1)),
        ((2, 3, 2, 100), (3, -40, -1, 4, 1, 1, 0, 1)),
        ((3, 70), (0, 0, -2, 5)),
        ((3, 4), (-3, 4, 2, -3)),
        ((3, 4), (0, 0, -3, 0)),
        ((5,), (-2, 33)),
        ((), ()),
        ((2, 0, 3), (0, 0, 1, 2)),
    ):
        for kind in (np.float64, np.float32, np.uint8, np.int16, np.bool_):
            x = normal(*shape) * 9 if shape else np.array(2.0)
            agree(lambda T, t, w=widths: functional(T).pad(t, w, value=1), x.astype(kind))
            agree(lambda T, t, w=widths: T.constant_pad_nd(t, w, 1), x.astype(kind))
    x = channels_last(adjit.randn(2, 40, 5, 3)).requires_grad_()
    out = functional(adjit).pad(x, (1, 0, 2, 1))
    (gx,) = adjit.autograd.grad(out, x, out.detach())
    assert (out.stride(1), gx.stride()) == (1, x.stride())


def test_threads_change_no_bit_of_pads() -> None:
    x = adjit.randn(40, 30, 33)
    found = []
    before = adjit.get_num_threads()
    for threads in (1, 3):
        adjit.set_num_threads(threads)
        found.append(functional(adjit).pad(x, (2, 3, 1, -1)).numpy())
    adjit.set_num_threads(before)
    np.testing.assert_array_equal(*found)


def test_names_of_pads_in_the_graph() -> None:
    for mode, name in (("reflect", "Reflection"), ("replicate", "Replication")):
        for n in (1, 2, 3):
            x = normal(*range(2, 4 + n))
            found = backward_name(lambda T, x, m=mode, n=n: functional(T).pad(x, (1, 1) * n, m), x)
            assert found == f"{name}Pad{n}DBackward0"


@pytest.mark.parametrize("kind", ["Circular", "Constant", "Reflection", "Replication", "Zero"])
def test_padding_modules(kind: str) -> None:
    value = (1.5,) if kind == "Constant" else ()
    for n, widths in ((1, (1, 2)), (2, (1, 0, 2, 1)), (3, (1, 1, 0, 1, 1, 0))):
        x = normal(*range(2, 4 + n))
        for padding in (1, widths):

            def call(T: Any, n: int = n, padding: Any = padding) -> Any:
                return getattr(T.nn, f"{kind}Pad{n}d")(padding, *value)

            assert repr(call(adjit)) == repr(call(torch))
            agree(lambda T, x, f=call: f(T)(x), x)
    if kind == "Circular":
        agree_in_error(lambda T, x: T.nn.CircularPad2d(1)(x), normal(2, 3))


def test_errors_of_pad() -> None:
    for mode, shape, widths in (
        ("constant", (3, 4), (-5, 4)),
        ("constant", (3, 4), (0, 0, 4, -4)),
        ("reflect", (2, 3, 4, 5), (0, 0, 4, 0)),
        ("reflect", (3, 4, 5), (-3, -3)),
        ("replicate", (3, 4, 5), (-3, -3)),
        ("circular", (3, 4, 5), (-3, -3)),
        ("circular", (3, 4, 5), (6, 0)),
        ("replicate", (2, 3, 4, 5), (1, 1)),
        ("replicate", (2, 3, 0), (1, 1)),
        ("replicate", (2, 0, 3), (1, 1)),
        ("reflect", (0, 2, 3), (1, 1, 0, 0)),
        ("reflect", (0, 0, 4, 4), (1, 1, 1, 1)),
    ):
        agree_in_error(lambda T, x, w=widths, m=mode: functional(T).pad(x, w, m), normal(*shape))


# ---------------------------------------------------------------- interpolation


def resize(T: Any, t: Any, *args: Any, **options: Any) -> Any:
    return functional(T).interpolate(t, *args, **options)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_interpolation_along_one_axis(dtype: Any) -> None:
    """Every rounding of places and weights, for growing, equal and shrinking sizes."""
    for mode in ("nearest", "nearest-exact", "linear", "area"):
        corners = (False, True) if mode == "linear" else (None,)
        for size in (1, 3, 5, 11):
            x = normal(1, 2, size, dtype=dtype)
            for options in (
                *({"size": n} for n in (1, 2, 5, 9, 22)),
                *({"scale_factor": s} for s in (1.0, 1.2, 2.7)),
                {"scale_factor": 1.7, "recompute_scale_factor": True},
            ):
                for align in corners:
                    agree(
                        lambda T, t, m=mode, a=align, o=options: resize(
                            T, t, mode=m, align_corners=a, **o
                        ),
                        x, rtol=1e-5, atol=2e-6,
                    )  # fmt: skip


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
def test_interpolation_of_images(mode: str) -> None:
    for shape in ((2, 3, 5, 8), (1, 2, 3, 300)):
        x = normal(*shape)
        for options in ({"size": (7, 5)}, {"size": (3, 11)}, {"scale_factor": (1.5, 0.9)}):
            for align in (None, True) if mode.startswith("bi") else (None,):

                def call(
                    T: Any, t: Any, m: str = mode, a: Any = align, o: Any = options, **more: Any
                ) -> Any:
                    return resize(T, t, mode=m, align_corners=a, **o, **more)

                agree_in_both_layouts(call, x, rtol=1e-6, atol=1e-8)
                if mode.startswith("bi"):
                    agree_in_both_layouts(
                        lambda T, t, f=call: f(T, t, antialias=True),
                        x,
                        order=1,
                        rtol=1e-6,
                        atol=1e-8,
                    )


def test_interpolation_of_volumes() -> None:
    x = normal(1, 2, 3, 4, 5)
    for mode in ("nearest", "nearest-exact", "trilinear", "area"):
        agree_in_both_layouts(lambda T, t, m=mode: resize(T, t, (5, 3, 7), mode=m), x)


def test_interpolation_keeps_layouts_bytes_and_empty_batches() -> None:
    x = channels_last(adjit.randn(2, 3, 4, 5)).requires_grad_()
    out = resize(adjit, x, scale_factor=2, mode="bilinear")
    (gx,) = adjit.autograd.grad(out, x, out.detach())
    assert (out.stride(1), gx.stride()) == (1, x.stride())
    agree(lambda T, t: resize(T, t, 5), RANDOM.integers(0, 255, (1, 2, 3, 4)).astype(np.uint8))
    agree(lambda T, t: resize(T, t, 5, mode="bilinear"), np.zeros((0, 2, 3, 4)))


def test_names_of_interpolation_in_the_graph() -> None:
    for mode, n, options, name in (
        ("nearest", 1, {}, "UpsampleNearest1DBackward0"),
        ("nearest-exact", 3, {}, "UpsampleNearestExact3DBackward0"),
        ("bilinear", 2, {}, "UpsampleBilinear2DBackward0"),
        ("bicubic", 2, {"antialias": True}, "UpsampleBicubic2DAaBackward0"),
    ):
        x = normal(*range(2, 4 + n))
        found = backward_name(lambda T, t, m=mode, o=options: resize(T, t, 7, mode=m, **o), x)
        assert found == name


def test_older_names_of_interpolation() -> None:
    x = normal(1, 2, 3, 4)
    for name, options in [
        ("upsample", {"size": 5}), ("upsample", {"scale_factor": 2.0, "mode": "bilinear"}),
        ("upsample_nearest", {"size": (4, 7)}), ("upsample_bilinear", {"scale_factor": 2}),
    ]:  # fmt: skip

        def call(T: Any, t: Any, name: str = name, options: Any = options) -> Any:
            return getattr(functional(T), name)(t, **options)

        agree_in_warning(call, x)
        agree(call, x)


@pytest.mark.parametrize("options", [{}, {"antialias": True}, {"align_corners": True}])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_are_interpolated_as_bytes(mode: str, options: dict[str, bool]) -> None:
    """PyTorch's weights are whole numbers, so that some results are one more or less."""
    torch = pytest.importorskip("torch")
    x = RANDOM.integers(0, 256, (2, 3, 20, 17)).astype(np.uint8)
    for size in ((7, 11), (33, 40), (20, 30)):
        found, wanted = (resize(T, T.tensor(x), size, mode=mode, **options) for T in (adjit, torch))
        assert found.dtype is adjit.uint8
        apart = abs(found.numpy().astype(int) - wanted.numpy().astype(int))
        assert apart.max() <= 1
        assert (apart > 0).mean() < 0.05


def test_errors_of_interpolation() -> None:
    for shape, args, options in (
        ((2, 3, 4), (), {}),
        ((2, 3, 4), (3, 2.0), {}),
        ((2, 3, 4), (3,), {"mode": "bilinear"}),
        ((2, 3, 4), (3,), {"mode": "bicubic"}),
        ((2, 3, 4, 5), (3,), {"mode": "foo"}),
        ((2, 3, 4, 5), (3,), {"mode": "lanczos"}),
        ((2, 3, 4, 5), (3,), {"mode": "trilinear"}),
        ((2, 3, 4, 5), ((3, 3, 3),), {}),
        ((2, 3, 4, 5), ((3, 2.5),), {}),
        ((2, 3, 4, 5), ((3.0, 2.0),), {}),
        ((2, 3, 4, 5), (None, 1e20), {"mode": "bilinear"}),
        ((2, 3, 4, 5), (None, (1.0, 2.0, 3.0)), {}),
        ((2, 3, 4, 5), (3,), {"align_corners": True}),
        ((2, 3, 4, 5), (3,), {"recompute_scale_factor": True}),
        ((2, 3, 4, 5), (3,), {"antialias": True}),
        ((2, 3, 4, 5), (0,), {}),
        ((2, 3, 4, 0), (2,), {}),
        ((2, 3, 0), (2,), {}),
        ((2, 0, 4, 5), (2,), {}),
        ((3, 4), (2,), {}),
        ((3,), (None, 2.0), {}),
    ):
        agree_in_error(lambda T, t, a=args, o=options: resize(T, t, *a, **o), normal(*shape))
    agree_in_error(lambda T, t: resize(T, t.long(), 3, mode="linear"), normal(2, 3, 4))
    for size in (3.5, adjit.tensor(3.5), (adjit.tensor(3.0),)):
        with pytest.raises(TypeError, match="expected size to be one of int"):
            resize(adjit, adjit.ones(1, 1, 4), size)
    with pytest.raises(NotImplementedError, match=r"use 'bicubic' with antialias=True"):
        resize(adjit, adjit.ones(1, 1, 3, 3), 2, mode="lanczos", antialias=True)


@pytest.mark.parametrize("places", [3, 21, 300])
def test_a_tap_of_weight_0_is_not_read(places: int) -> None:
    x = adjit.arange(2 * places - 1.0).view(1, 1, -1)
    x[..., 1::2] = float("inf")
    resize = adjit.nn.functional.interpolate
    assert resize(x, places, mode="linear", align_corners=True)[0, 0].equal(x[0, 0, ::2])
    image = x.view(1, 1, 1, -1).expand(1, 1, 3, -1)
    assert resize(image, (2, places), mode="bicubic", align_corners=True)[0, 0, 1].equal(
        x[0, 0, ::2]
    )


def test_mean_of_one_infinite_line() -> None:
    x = np.float32([[[[1, 2, 3], [np.inf, 3, -np.inf], [4, 5, 6]]]])
    for size in (2, 4, 6):
        agree(lambda T, t, n=size: T.nn.functional.adaptive_avg_pool2d(t, (n, 3)), x)


def test_an_infinite_gradient_of_an_area_reaches_no_other() -> None:
    for shape, size in (((1, 2, 8), 6), ((1, 2, 7, 5), (4, 3)), ((1, 2, 4, 7, 8), (6, 4, 6))):
        name = f"adaptive_avg_pool{len(shape) - 2}d"
        x = RANDOM.standard_normal(shape)
        found = []
        for library in (adjit, torch):
            leaf = library.tensor(x, requires_grad=True)
            out = getattr(library.nn.functional, name)(leaf, size)
            weights = np.ones(tuple(out.shape))
            weights[0, 1] = np.inf
            out.backward(library.tensor(weights))
            found.append(leaf.grad.numpy())
        np.testing.assert_allclose(*found, rtol=1e-12)


# ---------------------------------------------------------------- unfold, fold, shuffles


def test_unfold_and_fold() -> None:
    for shape, kernel, dilation, padding, stride in (
        ((2, 3, 5, 6), 2, 1, 0, 1),
        ((2, 3, 5, 6), (3, 2), (1, 2), (1, 2), (2, 3)),
        ((3, 7, 4), (1, 3), 2, (0, 3), 2),
        ((1, 1, 2, 2), 4, 1, 3, 1),
    ):
        settings = (kernel, dilation, padding, stride)
        x = normal(*shape)
        agree_in_gradients(lambda T, t, s=settings: functional(T).unfold(t, *s), x)
        columns = functional(torch).unfold(torch.tensor(x), *settings).shape
        agree_in_gradients(
            lambda T, t, s=settings, n=shape: functional(T).fold(t, n[-2:], *s), normal(*columns)
        )
    agree_in_gradients(lambda T, t: functional(T).unfold(channels_last(t), 2), normal(2, 3, 4, 5))
    agree(lambda T, t: functional(T).unfold(t, 2), np.zeros((0, 3, 4, 5)))
    assert backward_name(lambda T, t: functional(T).unfold(t, 2), x) == "Im2ColBackward0"


def test_shuffles() -> None:
    x = normal(2, 8, 4, 6)
    agree_in_both_layouts(lambda T, t: functional(T).pixel_shuffle(t, 2), x)
    agree_in_both_layouts(lambda T, t: functional(T).pixel_unshuffle(t, 2), x)
    agree_in_both_layouts(lambda T, t: functional(T).channel_shuffle(t, 4), x)
    agree(lambda T, t: T.pixel_shuffle(t, 3), RANDOM.integers(0, 9, (2, 1, 9, 2, 1)))
    agree(lambda T, t: T.pixel_unshuffle(t[0], 1), x)


def test_resizing_modules() -> None:
    x = normal(2, 4, 4, 6, dtype=np.float32)
    for call in (
        lambda T: T.nn.Upsample(3),
        lambda T: T.nn.Upsample(scale_factor=2, mode="bilinear"),
        lambda T: T.nn.UpsamplingNearest2d(scale_factor=(2, 3)),
        lambda T: T.nn.UpsamplingBilinear2d(5),
        lambda T: T.nn.Unfold(3, padding=1),
        lambda T: T.nn.PixelShuffle(2),
        lambda T: T.nn.PixelUnshuffle(2),
        lambda T: T.nn.ChannelShuffle(2),
    ):
        assert repr(call(adjit)) == repr(call(torch))
        agree(lambda T, t, f=call: f(T)(t), x, rtol=1e-5, atol=1e-5)
    assert repr(adjit.nn.Fold((2, 3), 2)) == repr(torch.nn.Fold((2, 3), 2))
    agree(lambda T, t: T.nn.Fold((3, 3), 2)(t), normal(2, 4, 4))


def test_errors_of_unfold_fold_and_shuffles() -> None:
    x, y = normal(2, 3, 7, 6), normal(2, 12, 20)
    F = functional
    for given, call in (
        (x, lambda T, t: F(T).unfold(t, 9)),
        (x, lambda T, t: F(T).unfold(t, 0)),
        (x, lambda T, t: F(T).unfold(t, 2, stride=0)),
        (x, lambda T, t: F(T).unfold(t, 2, padding=-1)),
        (x, lambda T, t: F(T).unfold(t, 2, dilation=0)),
        (x, lambda T, t: F(T).unfold(t, (2, 2, 2))),
        (x, lambda T, t: F(T).unfold(t[:, :0], 2)),
        (x, lambda T, t: F(T).unfold(t.long(), 2)),
        (y, lambda T, t: F(T).fold(t, (5, 5), 2)),
        (y, lambda T, t: F(T).fold(t, (5, 6), (3, 3))),
        (y, lambda T, t: F(T).fold(t, (5, 6), 0)),
        (y, lambda T, t: F(T).fold(t[0, 0], (5, 6), 2)),
        (y, lambda T, t: F(T).fold(t.long(), (5, 6), 2)),
        (y, lambda T, t: F(T).fold(t, (5, 6, 7), 2)),
        (x, lambda T, t: F(T).pixel_shuffle(t, 2)),
        (x, lambda T, t: F(T).pixel_shuffle(t, 0)),
        (x, lambda T, t: F(T).pixel_shuffle(t[0, 0], 2)),
        (x, lambda T, t: F(T).pixel_unshuffle(t, 2)),
        (x, lambda T, t: F(T).pixel_unshuffle(t[:, :, :6], 4)),
        (x, lambda T, t: F(T).pixel_unshuffle(t, -1)),
        (x, lambda T, t: F(T).channel_shuffle(t, 2)),
        (x, lambda T, t: F(T).channel_shuffle(t, 0)),
        (x, lambda T, t: F(T).channel_shuffle(t[0, 0], 2)),
    ):
        agree_in_error(call, given)


# ---------------------------------------------------------------- grids


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
def test_grid_sample(mode: str, padding_mode: str) -> None:
    for align in (False, True):

        def call(T: Any, x: Any, grid: Any, align: bool = align) -> Any:
            return functional(T).grid_sample(x, grid, mode, padding_mode, align)

        grid = RANDOM.uniform(-2.5, 2.5, (2, 3, 4, 2))
        agree(call, normal(2, 3, 5, 4), grid)
        agree_in_gradients(call, normal(2, 2, 5, 4), grid, order=1 if mode == "nearest" else 2)
        if mode != "bicubic":
            volume = normal(2, 2, 3, 4, 2), RANDOM.uniform(-1.5, 1.5, (2, 2, 3, 2, 3))
            agree(call, *volume)
            agree_in_gradients(call, *volume, order=1)
    assert backward_name(call, normal(2, 2, 5, 4), grid) == "GridSampler2DBackward0"


@pytest.mark.parametrize("channels", [16, 32, 70])
def test_grid_sample_of_many_channels(channels: int) -> None:
    """Blocks of channels, whole and in part; many points, and fewer than elements."""

    def call(T: Any, x: Any, grid: Any) -> Any:
        return functional(T).grid_sample(x, grid, align_corners=False)

    x = normal(2, channels, 5, 4)
    for outer in ((3, 100), (1, 2)):
        agree_in_both_layouts(call, x, RANDOM.uniform(-1.3, 1.3, (2, *outer, 2)))
    agree(call, x.astype(np.float32), RANDOM.uniform(-1, 1, (2, 3, 100, 2)).astype(np.float32))


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
def test_derivatives_of_samples_in_every_order_of_modes(mode: str, padding_mode: str) -> None:
    generator = adjit.Generator().manual_seed(3)
    x = adjit.randn(1, 2, 4, 5, dtype=adjit.float64, generator=generator)
    points = adjit.rand(3, 1, 2, 2, 2, dtype=adjit.float64, generator=generator) * 2.8 - 1.4

    def read(x: Any, grid: Any) -> Any:
        return functional(adjit).grid_sample(x, grid, mode, padding_mode, align_corners=False)

    def total(grid: Any) -> Any:
        return (read(x, grid) ** 2).sum()

    jacfwd, jacrev = adjit.func.jacfwd, adjit.func.jacrev
    for k in (0, 1):
        adjit.testing.assert_close(jacfwd(read, k)(x, points[0]), jacrev(read, k)(x, points[0]))
    found = [one(other(total))(points[0]) for one in (jacfwd, jacrev) for other in (jacfwd, jacrev)]
    for hessian in found[1:]:
        adjit.testing.assert_close(hessian, found[0])
    together = adjit.func.vmap(read, (None, 0))(x, points)
    adjit.testing.assert_close(together, adjit.stack([read(x, grid) for grid in points]))
    leaves = [x.clone().requires_grad_(), points[0].clone().requires_grad_()]
    assert adjit.autograd.gradgradcheck(read, leaves)


def test_points_that_are_nowhere_read_nothing() -> None:
    x, grid = (
        adjit.ones(1, 1, 3, 3, requires_grad=True),
        adjit.tensor([[[[nan, 0.0], [inf, 0.0], [0.0, -inf], [1e30, 0.0], [-1e38, 1e38]]]]),
    )
    for mode in ("bilinear", "nearest", "bicubic"):
        points = grid.clone().requires_grad_()
        out = functional(adjit).grid_sample(x, points, mode, align_corners=False)
        assert out.flatten().tolist() == [0.0] * 5
        for gradient in adjit.autograd.grad(out.sum(), (x, points)):
            assert not gradient.any()


def test_threads_change_no_bit_of_samples() -> None:
    x, points = adjit.randn(3, 40, 17, 19), adjit.rand(3, 30, 31, 2) * 2 - 1
    found = []
    before = adjit.get_num_threads()
    for threads in (1, 3):
        adjit.set_num_threads(threads)
        leaves = [t.detach().requires_grad_() for t in (x, points)]
        out = functional(adjit).grid_sample(*leaves, align_corners=False)
        gradients = adjit.autograd.grad(out, leaves, out.detach())
        found.append([t.detach().numpy() for t in (out, *gradients)])
    adjit.set_num_threads(before)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_grid_sample_at_elements_and_beyond() -> None:
    x = normal(1, 2, 4, 5)
    theta = np.array([[[1.0, 0, 0], [0, 1, 0]]])
    for align in (False, True):

        def call(T: Any, x: Any, theta: Any, align: bool = align) -> Any:
            grid = functional(T).affine_grid(theta, (1, 2, 4, 5), align)
            return functional(T).grid_sample(x, grid, align_corners=align)

        agree(call, x, theta, rtol=1e-12, atol=1e-12)
        agree(
            lambda T, x, theta, a=align: functional(T).grid_sample(
                x, 1e6 * theta[:, None, :, :2], "bilinear", "border", a
            ),
            x, theta,
        )  # fmt: skip
    agree(lambda T, x: functional(T).grid_sample(x, T.zeros(0, 2, 2, 2), align_corners=True),
          np.zeros((0, 1, 3, 3), np.float32))  # fmt: skip


def test_affine_grid() -> None:
    for shape, size in (((2, 2, 3), (2, 1, 3, 4)), ((1, 3, 4), (1, 2, 3, 1, 2))):
        for align in (False, True):
            agree_in_gradients(
                lambda T, t, n=size, a=align: functional(T).affine_grid(t, n, a), normal(*shape)
            )


def test_errors_of_grids() -> None:
    x, grid = normal(2, 3, 7, 6), RANDOM.uniform(-1, 1, (2, 4, 5, 2))
    F = functional
    for call in (
        lambda T, x, g: F(T).grid_sample(x, g[:1], align_corners=True),
        lambda T, x, g: F(T).grid_sample(x, g[..., :1], align_corners=True),
        lambda T, x, g: F(T).grid_sample(x[:, :, 0], g, align_corners=True),
        lambda T, x, g: F(T).grid_sample(x, g.float(), align_corners=True),
        lambda T, x, g: F(T).grid_sample(x[..., :0], g, align_corners=True),
        lambda T, x, g: F(T).grid_sample(x, g, "x", align_corners=True),
        lambda T, x, g: F(T).grid_sample(x, g, padding_mode="x", align_corners=True),
        lambda T, x, g: F(T).grid_sample(x.long(), g.long(), align_corners=True),
        lambda T, x, g: F(T).affine_grid(g[0, :2, :3, 0], (2, 3, 4), True),
        lambda T, x, g: F(T).affine_grid(g[:, :2, :3, 0], (2, 3, 4, 5, 6), True),
        lambda T, x, g: F(T).affine_grid(g[:, :2, :3, 0], (2, 3, 0, 5), False),
        lambda T, x, g: F(T).affine_grid(g[:, :2, :3, 0], (3, 3, 4, 5), False),
        lambda T, x, g: F(T).affine_grid(g[:, :2, :3, 0].long(), (2, 3, 4, 5), False),
    ):
        agree_in_error(call, x, grid)
    volume = normal(2, 1, 3, 3, 3), RANDOM.uniform(-1, 1, (2, 2, 2, 2, 3))
    agree_in_error(lambda T, x, g: F(T).grid_sample(x, g, "bicubic", align_corners=True), *volume)
    agree_in_warning(lambda T, x, g: F(T).grid_sample(x, g), x, grid)


def test_samplers_with_modes_as_numbers() -> None:
    rng = np.random.default_rng(0)
    for axes in (2, 3):
        x, grid = (
            rng.standard_normal((2, 3, *[4] * axes)),
            rng.uniform(-1.3, 1.3, (2, *[3] * axes, axes)),
        )
        for mode in (0, 1, 2)[: 5 - axes]:
            for outside in (0, 1, 2):
                for aligned in (False, True):
                    rest = mode, outside, aligned
                    for name in ("grid_sampler", f"grid_sampler_{axes}d"):
                        agree(lambda T, t, g: getattr(T, name)(t, g, *rest), x, grid)  # noqa: B023
        other = f"grid_sampler_{5 - axes}d"
        agree_in_error(lambda T, t, g: getattr(T, other)(t, g, 0, 0, False), x, grid)  # noqa: B023
    agree_in_gradients(lambda T, t, g: T.grid_sampler(t, g, 0, 1, False), x, grid)
    with pytest.raises(RuntimeError, match="expected padding_mode to be 0, 1 or 2"):
        adjit.grid_sampler(adjit.tensor(x), adjit.tensor(grid), 0, 3, False)
