"""Convolutions beside PyTorch: values, gradients, layouts, layers, errors, threads."""

from __future__ import annotations

import ctypes
import importlib
import math
from typing import Any

import numpy as np
import pytest
from adjit.kernels.ops import gemm_tile
from adjit.kernels.ops.conv_tile import ADDED
from against_torch import (
    agree,
    agree_in_error,
    agree_in_gradients,
    backward_name,
    same_tensor,
    torch,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import adjit
from adjit import nn
from adjit.autograd import gradcheck, gradgradcheck
from adjit.ops import conv_plans

rng = np.random.default_rng(0)
FLOATS = [np.float32, np.float64]


def sample(*shape: int, dtype: type = np.float64) -> np.ndarray:
    """Numbers with few digits, so that sums of products are exact in every dtype."""
    return rng.integers(-4, 5, shape).astype(dtype)


def functional(T: Any) -> Any:
    """`nn.functional` of a library."""
    return importlib.import_module(f"{T.__name__}.nn.functional")


def conv(axes: int, **options: Any) -> Any:
    """A call of conv1d, conv2d or conv3d."""
    return lambda T, *tensors: getattr(functional(T), f"conv{axes}d")(*tensors, **options)


def transposed(axes: int, **options: Any) -> Any:
    """A call of conv_transpose1d, 2d or 3d."""
    return lambda T, *tensors: getattr(functional(T), f"conv_transpose{axes}d")(*tensors, **options)


# ----- values and gradients -----

# Input, weight, options.
CASES = [
    ((2, 3, 9), (4, 3, 3), {}),
    ((2, 3, 9), (4, 3, 3), {"padding": 1, "stride": 2}),
    ((3, 4, 300), (6, 2, 5), {"padding": 2, "dilation": 3, "groups": 2}),
    ((2, 3, 8, 7), (5, 3, 3, 3), {"padding": 1}),
    ((2, 3, 9, 11), (40, 3, 7, 7), {"padding": 3, "stride": 2}),
    ((2, 17, 6, 6), (35, 17, 1, 1), {}),
    ((2, 17, 7, 7), (5, 17, 1, 1), {"stride": 2}),
    ((3, 33, 5, 4), (34, 33, 1, 1), {}),  # whose weight's gradient is a product of matrices
    ((3, 33, 5, 4), (34, 33, 1, 1), {"padding": 1}),  # and whose is none
    ((3, 33, 5, 4), (34, 33, 1, 1), {"stride": (1, 2)}),
    ((3, 5, 6, 7), (4, 5, 1, 1), {}),  # of planes as they lie
    ((2, 20, 41), (15, 20, 1), {}),
    ((2, 3, 3, 5), (1, 3, 1, 1), {}),  # planes of less than a vector
    ((1, 1, 3, 4, 5), (2, 1, 1, 1, 1), {}),
    ((2, 66, 6), (68, 33, 1), {"groups": 2}),
    ((2, 32, 9), (40, 32, 1), {}),
    ((1, 40, 3, 4, 2), (32, 40, 1, 1, 1), {}),
    ((1, 2, 10, 10), (3, 2, 3, 2), {"padding": (0, 1), "stride": (2, 3), "dilation": (3, 1)}),
    ((2, 2, 7, 9), (2, 2, 1, 2), {"stride": 3}),  # pixels that no tap sees
    ((2, 6, 5, 5), (9, 2, 3, 3), {"padding": "same", "groups": 3}),
    ((2, 3, 6, 5), (4, 3, 2, 4), {"padding": "same", "dilation": (1, 3)}),
    ((2, 3, 6, 5), (4, 3, 2, 4), {"padding": "valid", "stride": 2}),
    ((1, 1, 4, 4), (1, 1, 3, 3), {"padding": 5}),
    ((2, 18, 6, 7), (18, 1, 3, 3), {"padding": 1, "groups": 18}),
    ((2, 33, 8, 7), (33, 1, 3, 5), {"padding": (1, 2), "stride": 2, "groups": 33}),
    ((1, 6, 7, 7), (12, 1, 3, 3), {"groups": 6}),
    ((2, 4, 8, 8), (4, 1, 1, 1), {"groups": 4}),
    ((1, 50, 2, 2), (70, 50, 3, 3), {"padding": 1}),  # more columns than pixels
    ((1, 70, 7, 8), (42, 35, 3, 3), {"padding": 1, "stride": 2, "groups": 2}),  # 16 pixels, and 18
    ((1, 70, 6, 9), (42, 35, 2, 3), {"padding": 1, "stride": (3, 2), "groups": 2}),
    ((2, 2, 4, 5, 6), (3, 2, 2, 3, 3), {"padding": 1, "stride": (1, 2, 1)}),
    ((1, 4, 5, 4, 4), (4, 1, 3, 3, 3), {"padding": 1, "groups": 4, "stride": 2}),
    ((1, 3, 3, 4, 1), (2, 3, 2, 2, 1), {"padding": (1, 1, 0)}),
    ((2, 20, 9, 8), (3, 20, 3, 3), {"padding": 1}),  # few columns: dot products along segments
    ((1, 1, 30, 40), (1, 1, 9, 11), {"padding": (4, 5)}),
    ((2, 3, 20, 30), (3, 1, 11, 11), {"padding": 5, "groups": 3}),
    ((2, 140, 7, 7), (12, 70, 1, 1), {"groups": 2}),
    ((1, 17, 12, 13), (4, 17, 5, 5), {"dilation": 2, "stride": 2}),
    ((1, 20, 5, 6, 7), (2, 20, 3, 3, 3), {"padding": 1}),
    ((3, 50, 9), (1, 50, 5), {}),
    ((3, 9), (4, 3, 3), {}),
    ((3, 8, 7), (4, 3, 3, 3), {"stride": [2]}),
    ((2, 5, 5, 5), (4, 2, 3, 3, 3), {}),
    ((0, 3, 8, 7), (4, 3, 3, 3), {}),
]


@pytest.mark.parametrize(("image", "weight", "options"), CASES)
def test_convolutions(image, weight, options):
    call = conv(len(weight) - 2, **options)
    operands = image, weight, weight[:1]
    for dtype in FLOATS:
        agree(call, *[sample(*shape, dtype=dtype) for shape in operands])
    agree(call, *[sample(*shape, dtype=np.float32) for shape in operands[:2]])
    agree_in_gradients(call, *[sample(*shape) for shape in operands])
    agree_in_gradients(call, *[sample(*shape) for shape in operands[:2]])


TRANSPOSED = [
    ((2, 3, 9), (3, 4, 3), {}),
    ((2, 3, 9), (3, 4, 3), {"stride": 3, "output_padding": 2, "padding": 1}),
    ((2, 4, 5, 6), (4, 3, 3, 3), {"stride": 2, "padding": 1, "output_padding": (1, 0)}),
    ((2, 4, 5, 6), (4, 3, 2, 2), {"stride": 2, "groups": 2}),
    ((1, 35, 4, 4), (35, 40, 1, 1), {}),
    ((2, 35, 4, 6), (35, 7, 1, 1), {}),
    ((2, 36, 2, 4), (36, 20, 3, 3), {"stride": 2, "padding": 1, "groups": 2}),
    ((2, 6, 5, 5), (6, 1, 3, 3), {"stride": 2, "groups": 6, "padding": 1}),
    ((1, 3, 4, 4), (3, 2, 2, 3), {"stride": 4, "dilation": 2}),
    ((1, 2, 3, 3, 3), (2, 3, 2, 3, 2), {"stride": 2, "output_padding": 1}),
    ((2, 40, 6, 7), (40, 3, 4, 4), {"stride": 2, "padding": 1}),
    ((1, 32, 5, 5), (32, 1, 9, 9), {"padding": 2}),
    ((1, 40, 3, 3), (40, 2, 2, 2), {"stride": 3}),  # phases without a tap
    ((4, 5, 6), (4, 3, 3, 3), {}),
    ((0, 4, 5, 6), (4, 3, 3, 3), {}),
]


@pytest.mark.parametrize(("image", "weight", "options"), TRANSPOSED)
def test_transposed_convolutions(image, weight, options):
    call = transposed(len(weight) - 2, **options)
    operands = image, weight, (weight[1] * options.get("groups", 1),)
    for dtype in FLOATS:
        agree(call, *[sample(*shape, dtype=dtype) for shape in operands])
    agree_in_gradients(call, *[sample(*shape) for shape in operands])
    agree_in_gradients(call, *[sample(*shape) for shape in operands[:2]])


SMALL = st.integers(1, 3)


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(*[st.tuples(st.integers(1, 12), SMALL, SMALL, st.integers(0, 3), SMALL)] * 2),
    st.integers(1, 2),
    st.integers(1, 5),
    st.integers(1, 35),
    st.sampled_from([1, 1, 2, 16]),
    st.booleans(),
)
def test_any_geometry(axes, batch, channels, columns, groups, is_transposed):
    sizes, kernel, stride, padding, dilation = zip(*axes, strict=True)
    options = {"stride": stride, "dilation": dilation, "groups": groups}
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    image = sample(batch, channels * groups, *sizes)
    if is_transposed:
        least = [(n - 1) * s + r for n, s, r in zip(sizes, stride, reach, strict=True)]
        cut = [min(p, (n - 1) // 2) for p, n in zip(padding, least, strict=True)]
        call = transposed(2, padding=cut, **options)
        weight = sample(channels * groups, columns, *kernel)
    else:
        enough = [max(p, (r - n + 1) // 2) for p, r, n in zip(padding, reach, sizes, strict=True)]
        call = conv(2, padding=enough, **options)
        weight = sample(columns * groups, channels, *kernel)
    agree_in_gradients(call, image, weight, order=1)
    agree(call, image.astype(np.float32), weight.astype(np.float32))


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(
        *[st.tuples(st.integers(1, 14), st.integers(1, 9), SMALL, st.integers(0, 4), SMALL)] * 2
    ),
    st.integers(1, 40),
    st.integers(1, 9),
    st.sampled_from([1, 1, 3]),
)
def test_few_columns_of_any_geometry(axes, channels, columns, groups):
    """Forward, and as many of the image on the way back."""
    sizes, kernel, stride, padding, dilation = zip(*axes, strict=True)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    enough = [max(p, (r - n + 1) // 2) for p, r, n in zip(padding, reach, sizes, strict=True)]
    call = conv(2, padding=enough, stride=stride, dilation=dilation, groups=groups)
    for inside, outside in ((channels, columns), (columns, channels)):
        image = sample(2, inside * groups, *sizes)
        weight, bias = sample(outside * groups, inside, *kernel), sample(outside * groups)
        agree_in_gradients(call, image, weight, bias, order=1)
        agree(call, *[a.astype(np.float32) for a in (image, weight, bias)])


def test_few_columns_are_dot_products_where_that_takes_fewer_vectors():
    def gains(kernel: int, depth: int, columns: int, groups: int = 1) -> bool:
        geometry = conv_plans.Geometry(
            (1, 99, 99), (1, 99, 99), (1, kernel, kernel), (1, 1, 1), (0, 0, 0), (1, 1, 1), groups
        )
        phases = conv_plans.forward_phases(geometry)
        return conv_plans.gains_by_dots(phases, depth, columns, groups, lanes=16)

    assert gains(9, 64, 3)
    assert gains(1, 64, 1)
    assert gains(11, 1, 1)
    assert gains(11, 1, 1, groups=3)  # of which no vector of channels would be full
    assert not gains(3, 1, 2)  # vectors with three numbers in them
    assert not gains(9, 64, 16)
    assert not gains(11, 1, 1, groups=16)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_gradients_of_gradients(axes):
    def tensor(*shape):
        x = adjit.tensor(rng.standard_normal(shape))
        return x.requires_grad_()

    sizes, kernel = (3, 3, 2)[:axes], (2, 3, 1)[:axes]
    options = {"stride": 2, "padding": (1,) * (axes - 1) + (0,), "groups": 2}
    for call, channels in ((conv(axes, **options), 4), (transposed(axes, **options), 2)):
        operands = tensor(2, 2, *sizes), tensor(channels, 4 // channels, *kernel), tensor(4)
        assert gradcheck(lambda *tensors, f=call: f(adjit, *tensors), operands)
        assert gradgradcheck(lambda *tensors, f=call: f(adjit, *tensors), operands)


# ----- layouts -----


LAYOUTS = {
    "as it is": lambda T, x: x,
    "channels last": lambda T, x: x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
    "turned": lambda T, x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
    "steps": lambda T, x: T.stack([x, x], -1).flatten(-2)[..., ::2],
    "later": lambda T, x: T.cat([x[:1], x])[1:],
    "repeated": lambda T, x: x[:, :1, :1, :1].expand(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("image", "weight", "options"),
    [
        ((2, 5, 7, 8), (19, 5, 3, 3), {"padding": 1, "stride": 2}),
        ((2, 20, 6, 6), (7, 20, 1, 1), {}),
        ((3, 33, 4, 5), (35, 33, 1, 1), {}),
        ((2, 18, 6, 6), (18, 1, 3, 3), {"padding": 1, "groups": 18}),
        ((2, 18, 6, 6), (18, 1, 3, 3), {"groups": 18}),
        ((2, 20, 6, 6), (2, 20, 3, 3), {"padding": 1}),
        ((2, 3, 9, 16), (3, 1, 3, 11), {"groups": 3}),
        ((2, 2, 9, 20), (1, 2, 5, 11), {}),
    ],
)
def test_layouts(layout, image, weight, options):
    lay = LAYOUTS[layout]

    def call(T, x, w):
        return conv(2, **options)(T, lay(T, x), lay(T, w))

    agree(call, *[sample(*shape, dtype=np.float32) for shape in (image, weight)])
    agree_in_gradients(call, *[sample(*shape) for shape in (image, weight)])

    def backward(T, x, w):
        x, w = (t.clone().requires_grad_() for t in (x, w))
        out = conv(2, **options)(T, x, w)
        return T.autograd.grad(out, (x, w), lay(T, out.detach() * 2))

    agree(backward, *[sample(*shape, dtype=np.float32) for shape in (image, weight)])


def test_images_and_a_few_columns_of_a_1x1_kernel_stay_in_c_order():
    def order(*shape, columns, lay=lambda x: x):
        image = lay(adjit.ones(*shape, requires_grad=True))
        weight = adjit.ones(columns, shape[1], 1, 1)
        return adjit.conv2d(image, weight)._spec.contiguous

    assert order(2, 3, 4, 4, columns=15)
    assert not order(2, 3, 4, 4, columns=16)
    assert not order(2, 3, 1, 2, columns=15)  # less than any vector
    assert not order(2, 3, 4, 4, columns=15, lay=lambda x: x.to(memory_format=adjit.channels_last))


def test_the_gradient_of_a_weight_lies_like_the_weight():
    weight = adjit.ones(5, 3, 3, 3, requires_grad=True)
    adjit.conv2d(adjit.ones(1, 3, 8, 8), weight).sum().backward()
    assert weight.grad.is_contiguous()


# ----- threads and memory -----


def test_bits_do_not_depend_on_threads():
    cases = [
        ((3, 20, 30, 30), (70, 20, 3, 3), {"padding": 1, "stride": 2}),
        ((2, 3, 64, 64), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
        ((2, 64, 24, 24), (96, 64, 1, 1), {}),
        ((2, 96, 30, 30), (96, 1, 3, 3), {"padding": 1, "groups": 96}),
        ((2, 128, 4, 4), (256, 128, 3, 3), {"padding": 1}),
        ((1, 128, 4, 4), (256, 128, 3, 3), {"padding": 1}),
        ((2, 64, 40, 40), (3, 64, 9, 9), {"padding": 4}),
    ]
    threads = adjit.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            adjit.set_num_threads(count)
            results.append([])
            for image, weight, options in cases:
                draw = np.random.default_rng(1)
                x, w = (
                    adjit.tensor(draw.standard_normal(shape, np.float32), requires_grad=True)
                    for shape in (image, weight)
                )
                y = adjit.conv2d(x, w, **options)
                grads = adjit.autograd.grad((y * y).sum(), (x, w))
                results[-1] += [t.detach().numpy() for t in (y, *grads)]
    finally:
        adjit.set_num_threads(threads)
    for others in results[1:]:
        for a, b in zip(results[0], others, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("tile", ["rows", "depthwise_rows"])
def test_a_row_too_many_adds_what_the_row_before_adds(tile):
    """Three rows are computed as four: where the last one would look, there may be no memory."""
    lanes, rows = gemm_tile.lanes_of(4), 3
    panel = gemm_tile.WIDTH * lanes
    image, others = (rng.standard_normal((5, lanes)).astype(np.float32) for _ in range(2))
    weight, out = np.ones(panel, np.float32), np.zeros((5, lanes), np.float32)
    lines = [0, 1, 2, 2]

    def addresses(array: np.ndarray, chosen: list[int]) -> np.ndarray:
        return np.array([array[k : k + 1].ctypes.data for k in chosen], np.int64)

    def words(*values: int) -> np.ndarray:
        return np.array(values, np.int64)

    pixels, targets = addresses(image, lines), addresses(out, [0, 1, 2, 4])
    after = words(ADDED, 0, 0, others.ctypes.data - out.ctypes.data, 0, 0)
    seen = words(0, 4)  # a segment of one number, or one tap
    given: list[Any] = [rows, lanes, pixels, seen, 1, weight, 0, targets]
    given += [0, 0, 0, after] if tile == "rows" else [after]
    numbers = [g if isinstance(g, int) else g.ctypes.data for g in given]
    address = conv_plans.functions(adjit.float32)[tile]
    ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(numbers))(address)(*numbers)
    found = image[:, :1] + others if tile == "rows" else image + others
    np.testing.assert_array_equal(out[:3], found[:3])
    np.testing.assert_array_equal(out[3:], [np.zeros(lanes), found[2]])


def test_large_cases():
    """Many boxes, panels and chunks, in float32 within its rounding."""
    for image, weight, options in [
        ((2, 40, 40, 40), (50, 40, 3, 3), {"padding": 1}),
        ((2, 16, 56, 56), (24, 16, 1, 1), {"stride": 2}),
        ((1, 3, 70, 70), (32, 3, 3, 3), {"padding": 1, "stride": 2}),
        ((2, 40, 40, 40), (40, 1, 5, 5), {"padding": 2, "groups": 40, "stride": 2}),
        ((1, 300, 2, 2), (301, 300, 3, 3), {"padding": 1}),
        ((2, 64, 40, 40), (3, 64, 9, 9), {"padding": 4}),
    ]:
        arrays = [rng.standard_normal(shape, np.float32) for shape in (image, weight)]
        found = []
        for T in (adjit, torch):
            leaves = [T.tensor(a, requires_grad=True) for a in arrays]
            out = T.conv2d(*leaves, **options)
            wave = np.cos(np.arange(math.prod(out.shape))).reshape(tuple(out.shape))
            upper = T.tensor(wave.astype(np.float32))
            found.append((out, *T.autograd.grad(out, leaves, upper)))
        for ours, theirs in zip(*found, strict=True):
            same_tensor(ours, theirs, rtol=1e-3, atol=1e-3)


def test_a_frozen_weight_keeps_no_image():
    x = adjit.ones(1, 2, 5, 5, requires_grad=True)
    weight = adjit.ones(3, 2, 3, 3)
    fn = adjit.conv2d(x, weight).grad_fn
    assert fn._saved_weight is not None
    with pytest.raises(AttributeError):
        fn._saved_input  # noqa: B018
    fn = adjit.conv2d(x.detach(), weight.requires_grad_()).grad_fn
    assert fn._saved_input is not None
    with pytest.raises(AttributeError):
        fn._saved_weight  # noqa: B018


def test_names_of_backward_functions():
    x, weight = sample(1, 2, 5, 5), sample(3, 2, 3, 3)
    for call, w in ((conv(2), weight), (transposed(2), weight.swapaxes(0, 1).copy())):
        assert backward_name(call, x, w) == "ConvolutionBackward0"
        leaves = [adjit.tensor(a, requires_grad=True) for a in (x, w)]
        for g in adjit.autograd.grad(call(adjit, *leaves).sum(), leaves, create_graph=True):
            assert g.grad_fn.name() == "ConvolutionBackwardBackward0"


# ----- errors -----

X, W = sample(2, 4, 8, 8), sample(6, 4, 3, 3)
ERRORS = [
    (conv(2), X, sample(6, 3, 3, 3)),
    (conv(2), X, W, sample(5)),
    (conv(2), X, W, sample(6, 1)),
    (conv(2), X[0, 0], W),
    (conv(2), X[None], W),
    (conv(1), X, sample(3, 8, 3)),
    (conv(2), X, W[0]),
    (conv(2), X, W[0, 0]),
    (conv(2), X, W[..., None]),
    (conv(2, stride=0), X, W),
    (conv(2, stride=-1), X, W),
    (conv(2, padding=-1), X, W),
    (conv(2, dilation=0), X.astype(np.float32), W.astype(np.float32)),
    (conv(2, groups=0), X, W),
    (conv(2, groups=2), X, W),
    (conv(2, groups=2), X, sample(5, 2, 3, 3)),
    (conv(2, groups=7), X, W),
    (conv(2), X, sample(6, 4, 9, 9)),
    (conv(2, padding=(0, 1), dilation=3), X, sample(6, 4, 4, 3)),
    (conv(1), X[0], sample(3, 8, 30)),
    (conv(3), X[None], sample(3, 2, 9, 1, 1)),
    (conv(2, stride=(1, 2, 3)), X, W),
    (conv(2, padding=(1, 2, 3)), X, W),
    (conv(2, dilation=(1, 2, 3)), X, W),
    (conv(2, padding="same", stride=2), X, W),
    (conv(2, padding="foo"), X, W),
    (conv(2, padding=2), X[:, :, :0], W),
    (conv(2), X, W.astype(np.float32)),
    (conv(2), X, W, sample(6, dtype=np.float32)),
    (conv(2), X.astype(bool), W.astype(bool)),
    (transposed(2), X, sample(5, 6, 3, 3)),
    (transposed(2), X, sample(4, 6, 3, 3), sample(5)),
    (transposed(2, groups=3), X, sample(4, 6, 3, 3)),
    (transposed(2, output_padding=-1), X, sample(4, 6, 3, 3)),
    (transposed(2, output_padding=1), X, sample(4, 6, 3, 3)),
    (transposed(2, output_padding=(1, 2, 3)), X, sample(4, 6, 3, 3)),
    (transposed(1, stride=3, output_padding=3), X[0], sample(8, 6, 3)),
    (transposed(3, output_padding=1), X[None], sample(2, 6, 3, 3, 3)),
    (transposed(2, padding=4, stride=2), X[:, :, :3, :3], sample(4, 6, 3, 3)),
    (transposed(2, padding="same"), X, sample(4, 6, 3, 3)),
    (transposed(2), X[:, :, :0], sample(4, 6, 3, 3)),
    (transposed(1), X[0, 0, 0], sample(4, 6, 3)),
]


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    call, *arrays = case
    agree_in_error(call, *arrays)


def test_arguments_that_are_no_tensors():
    x, weight = adjit.ones(1, 2, 5, 5), adjit.ones(3, 2, 3, 3)
    for arguments in ((x.numpy(), weight), (x, weight.numpy()), (x, weight, 1)):
        with pytest.raises(TypeError, match="must be Tensor, not"):
            adjit.conv2d(*arguments)


WHOLE: list[tuple[Any, ...]] = [
    (conv(1, stride=2, padding=1), (2, 4, 9), (6, 4, 3)),
    (conv(2, groups=2, padding="same"), (2, 4, 6, 5), (6, 2, 4, 3)),
    (conv(2, dilation=(2, 1), padding=(0, 2)), (4, 7, 5), (3, 4, 3, 2)),
    (conv(3, stride=(1, 2, 3)), (1, 2, 4, 5, 6), (3, 2, 2, 1, 3)),
    (conv(2), (0, 2, 4, 4), (3, 2, 2, 2)),
    (transposed(1, stride=3, padding=2, output_padding=1), (2, 4, 5), (4, 3, 4)),
    (transposed(2, groups=2, dilation=2), (2, 4, 3, 4), (4, 3, 2, 3)),
    (transposed(3, stride=2, padding=(0, 1, 2)), (2, 3, 4, 3), (2, 3, 2, 3, 4)),
]


@pytest.mark.parametrize(("call", "image", "weight"), WHOLE, ids=range(len(WHOLE)))
def test_integers(call, image, weight):
    columns = (
        weight[1] * 2
        if call is WHOLE[6][0]
        else weight[1 if call in [w[0] for w in WHOLE[5:]] else 0]
    )
    for bias in ((), (sample(columns, dtype=np.int64),)):
        agree(call, sample(*image, dtype=np.int64), sample(*weight, dtype=np.int64), *bias)


def test_small_integers_wrap_around_and_bools_have_no_convolution():
    image, weight = sample(1, 2, 5, 5, dtype=np.uint8), sample(3, 2, 3, 3, dtype=np.uint8)
    agree(conv(2), image, weight)
    with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
        adjit.conv2d(adjit.tensor(image).bool(), adjit.tensor(weight).bool())


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_gradients_as_functions(axes):
    options = {"stride": 2, "padding": 1, "dilation": (1, 2, 1)[:axes], "groups": 2}
    image, weight = sample(2, 4, *(7, 6, 5)[:axes]), sample(6, 2, *(3, 2, 3)[:axes])
    out = conv(axes, **options)(adjit, adjit.tensor(image), adjit.tensor(weight))
    g = sample(*out.shape)

    def of_input(T: Any, w: Any, g: Any) -> Any:
        return getattr(importlib.import_module(f"{T.__name__}.nn.grad"), f"conv{axes}d_input")(
            image.shape, w, g, **options
        )

    def of_weight(T: Any, x: Any, g: Any) -> Any:
        return getattr(functional(T).grad, f"conv{axes}d_weight")(x, weight.shape, g, **options)

    agree_in_gradients(of_input, weight, g)
    agree_in_gradients(of_weight, image, g)
    with pytest.raises(RuntimeError, match="Expected grad_output of shape"):
        of_input(adjit, adjit.tensor(weight), adjit.tensor(g[:1]))


# ----- layers -----

LAYERS = [
    ("Conv1d", (4, 6, 3), {"padding": 1, "stride": 2}, (2, 4, 9)),
    ("Conv2d", (4, 6, (3, 2)), {"groups": 2, "bias": False, "dilation": 2}, (2, 4, 9, 8)),
    ("Conv2d", (4, 6, 3), {"padding": "same", "padding_mode": "circular"}, (2, 4, 9, 8)),
    ("Conv2d", (4, 6, 4), {"padding": "same", "padding_mode": "reflect"}, (2, 4, 9, 8)),
    ("Conv2d", (4, 6, 3), {"padding": (1, 2), "padding_mode": "replicate"}, (4, 9, 8)),
    ("Conv2d", (4, 6, 3), {"padding": "valid", "padding_mode": "reflect"}, (2, 4, 9, 8)),
    ("Conv3d", (2, 4, (1, 2, 3)), {"stride": (1, 2, 1)}, (2, 2, 4, 5, 6)),
    ("ConvTranspose1d", (4, 6, 3), {"stride": 2, "output_padding": 1}, (2, 4, 9)),
    ("ConvTranspose2d", (4, 6, 3), {"groups": 2, "bias": False, "dilation": 2}, (2, 4, 5, 4)),
    ("ConvTranspose3d", (2, 4, 3), {"padding": 1}, (2, 2, 4, 5, 6)),
]


@pytest.mark.parametrize(("name", "arguments", "options", "image"), LAYERS)
def test_layers(name, arguments, options, image):
    ours = getattr(nn, name)(*arguments, **options)
    theirs = getattr(torch.nn, name)(*arguments, **options)
    assert repr(ours) == repr(theirs)
    values = {key: sample(*t.shape, dtype=np.float32) for key, t in theirs.state_dict().items()}
    ours.load_state_dict({key: adjit.tensor(v) for key, v in values.items()})
    theirs.load_state_dict({key: torch.tensor(v) for key, v in values.items()})
    agree(lambda T, x: (ours if T is adjit else theirs)(x), sample(*image, dtype=np.float32))


@pytest.mark.parametrize("name", ["Conv2d", "ConvTranspose2d"])
def test_parameters_start_in_their_bounds(name):
    layer = getattr(nn, name)(8, 16, 3, groups=2)
    bound = 1 / math.sqrt(math.prod(layer.weight.shape[1:]))
    for values in (layer.weight.detach().numpy(), layer.bias.detach().numpy()):
        assert abs(values).max() <= bound
    assert abs(layer.weight.detach().numpy()).max() > 0.9 * bound
    assert getattr(nn, name)(4, 6, 3, dtype=adjit.float64).weight.dtype is adjit.float64


def test_output_size_of_a_transposed_layer():
    for size in ([12, 22], (2, 33, 11, 21), [11, 22]):
        layer = nn.ConvTranspose2d(16, 33, 3, stride=2)
        assert layer(adjit.ones(2, 16, 5, 10), output_size=size).shape[2:] == tuple(size[-2:])
    image = sample(2, 16, 5, 10, dtype=np.float32)
    for size in ([13, 22], [12], [1, 2, 3]):
        agree_in_error(
            lambda T, x, n=size: T.nn.ConvTranspose2d(16, 33, 3, stride=2)(x, output_size=n), image
        )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Conv2d", {"groups": 0}),
        ("Conv2d", {"groups": 3}),
        ("Conv2d", {"groups": 4}),
        ("Conv2d", {"padding": "same", "stride": 2}),
        ("ConvTranspose2d", {"padding_mode": "reflect"}),
    ],
)
def test_errors_of_layers(name, options):
    agree_in_error(lambda T: getattr(T.nn, name)(4, 6, 3, **options))


def test_unknown_paddings_of_layers():
    with pytest.raises(ValueError, match="Invalid padding string 'foo', should be one of"):
        nn.Conv2d(4, 6, 3, padding="foo")
    with pytest.raises(ValueError, match="but got padding_mode='foo'"):
        nn.Conv2d(4, 6, 3, padding_mode="foo")


def test_a_small_network_learns():
    adjit.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=2, groups=4), nn.ReLU(),
        nn.ConvTranspose2d(4, 1, 3, stride=2),
    )  # fmt: skip
    image = adjit.randn(2, 1, 9, 9)
    optimizer = adjit.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (net(image) - image).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]


# ----- signals whose times come first -----


@pytest.mark.parametrize("pad", [0, 1, 3, -1])
def test_signals_whose_times_come_first(pad):
    arrays = sample(6, 2, 3), sample(3, 3, 4), sample(4)
    agree(lambda T, *tensors: T.conv_tbc(*tensors, pad), *arrays)
    agree_in_gradients(lambda T, *tensors: functional(T).conv_tbc(*tensors, pad=pad), *arrays)


def test_what_does_not_fit_signals_whose_times_come_first():
    x, w, b = sample(6, 2, 3), sample(3, 3, 4), sample(4)
    for wrong in (
        (x[0], w, b), (x, w[0], b), (x, w, b[None]), (x, w[:, :2], b), (x, w, b[:3]), (x[:1], w, b),
        (x.astype(np.float32), w, b),
    ):  # fmt: skip
        agree_in_error(lambda T, *tensors: T.conv_tbc(*tensors), *wrong)


def test_conv_tbc_by_its_name_in_the_graph() -> None:
    for batch in (1, 3):
        x = adjit.ones(5, batch, 2, requires_grad=True)
        made = adjit.conv_tbc(x, adjit.ones(2, 2, 3), adjit.zeros(3))
        assert made.grad_fn.name() == "ConvTbcBackward0"
        assert made.is_contiguous()
