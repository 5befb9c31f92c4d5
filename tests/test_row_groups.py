"""Groups that go row by row: the same bits as the kernels one by one, and how few kernels it takes."""

from __future__ import annotations

import numpy as np
import pytest
from adjit.kernels.ops import reduce
from test_fusion import bits, cold, fused, plans, sync, tasks  # noqa: F401

import adjit as T
from adjit.nn import functional as F
from adjit.schedule import settle as scheduling
from adjit.schedule.fusion import row_groups

SIZES = [(40, 64), (7, 301), (1, 700), (515, 70), (1030, 96)]


def leaves(rows, width, *, kind=np.float32, grad=True):
    """A matrix, a row, a column, and the gradient of a matrix."""
    numbers = np.random.default_rng(rows + width)
    shapes = (rows, width), (width,), (rows, 1), (rows, width)
    made = [T.tensor(numbers.normal(size=shape).astype(kind)) for shape in shapes]
    for tensor in made[: 3 * grad]:
        tensor.requires_grad_()
    return made


def root_mean_square(x, w, c):
    return x * T.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w


def layer_norm(x, w, c):
    centred = x - x.mean(-1, keepdim=True)
    return centred / ((centred * centred).mean(-1, keepdim=True) + 1e-5).sqrt() * w + c


def softmax(x, w, c):
    powers = (x * w - (x * w).amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True) * c


def normalised(x, w, c):
    return x / x.norm(dim=-1, keepdim=True).clamp_min(1e-6) + w


def affine(x, w, c):
    return (x * w + c).tanh()


def attention_weights(x, w, c):
    return F.dropout(T.softmax(x * 0.125 + w, -1), 0.0) * c


def log_probabilities(x, w, c):
    return T.log_softmax(x * w, -1) * c + x


def residual(x, w, c):
    return F.layer_norm(x + x * c, w.shape, w, w).relu()


def two_norms(x, w, c):
    first = F.layer_norm(x * 1.5, w.shape)
    return F.layer_norm(first * w + c, w.shape, w) - first


PROGRAMS = [root_mean_square, layer_norm, softmax, normalised, affine,
            attention_weights, log_probabilities, residual, two_norms]  # fmt: skip


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_function_of_rows_with_its_gradients(program, plans):  # noqa: F811
    def look(sizes):
        *inputs, g = leaves(*sizes)
        out = program(*inputs)
        grads = T.autograd.grad(out, inputs, g, allow_unused=True)
        scheduling.settle()
        return bits([out, *(x for x in grads if x is not None)])

    for k, sizes in enumerate(SIZES):
        T.set_num_threads(1 + k % 3)
        assert look(sizes) == cold(look, sizes), sizes
    assert fused(plans)


def test_the_widest_rows(plans):  # noqa: F811
    def look(width):
        x, w, c, _ = leaves(3, width, grad=False)
        return bits(root_mean_square(x, w, c))

    for width, kernels in ((row_groups.MAX_WIDTH, 1), (row_groups.MAX_WIDTH + 1, 3)):
        assert look(width) == cold(look, width)
        assert len(fused(plans)) == kernels
        plans.clear()


@pytest.mark.parametrize("kind", ["float32", "float64", "int64"])
def test_short_rows_go_eight_at_a_time(kind, plans):  # noqa: F811
    """Also those that are left, with what there is one of for a row handed from loop to loop."""

    def look(rows, width):
        numbers = np.random.default_rng(rows + width)
        x = numbers.integers(-9, 9, (rows, width)).astype(kind)
        if kind != "int64":
            x[0], x[rows // 2, :3], x[-1, -1] = -0.0, (0.0, -0.0, np.inf), np.nan
        x, c = T.tensor(x), T.tensor(numbers.integers(1, 4, (rows, 1)).astype(kind))
        scheduling.settle()
        low, top = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
        y = (x - low) * c
        total = (y * top).sum(-1, keepdim=True)
        z = (y - total) * low + c
        size = z.float().norm(dim=-1, keepdim=True)
        scheduling.settle()
        return bits([z / (size + c), total * c, y.amax(-1)])

    for sizes in ((1, 64), (21, 65), (16, 100), (9, 256), (13, 512), (9, 513)):
        assert look(*sizes) == cold(look, *sizes), sizes
        found = {s.text for p in plans for s in p.sources if s.label.startswith("fused min, max")}
        plans.clear()
        (text,) = found
        is_short = sizes[1] * np.dtype(kind).itemsize <= reduce.SHORT_BYTES
        assert ("reduce_rows_of_block" in text) == ("square_rows_of_block" in text) == is_short
        assert ("reduce_span" in text) != is_short
        assert "//" not in text  # six divisions take longer than a row of 64


def test_a_sum_of_what_lies_in_memory_stays_alone(plans):  # noqa: F811
    """Its own kernel takes eight rows together; what is computed of the sums comes after it."""

    def look(shape):
        x = T.linspace(-1, 2, shape[0] * shape[1]).view(shape)
        scheduling.settle()
        y = x.mean(1)
        scheduling.settle()
        return bits(y)

    for shape in ((400, 64), (50, 100)):
        assert look(shape) == cold(look, shape)
        labels = [s.label for planned in plans for s in planned.sources]
        assert not any("sum" in label and label.startswith("fused") for label in labels), labels


def test_one_kernel_for_a_normalisation(plans):  # noqa: F811
    x, w, c, _ = leaves(40, 96, grad=False)
    scheduling.settle()
    y = layer_norm(x, w, c)
    scheduling.settle()
    (planned,) = plans
    assert [s.label for s in planned.sources if "mark" not in s.label] == [
        "fused sum, div, sub, mul, sum, div, add, sqrt, div, mul, add"
    ]
    (source,) = [s for s in planned.sources if s.label.startswith("fused")]
    assert source.text.count("for j in") == 2
    assert "float64" not in source.text
    assert y.shape == (40, 96)


def test_kernels_of_rows_have_neighbours(plans):  # noqa: F811
    x, w, _, g = leaves(40, 96, grad=False)
    scheduling.settle()
    y = F.layer_norm(x + g, w.shape, w).relu() * 2
    z = T.softmax(x * 0.125, -1) * g
    scheduling.settle()
    (planned,) = plans
    assert [s.label for s in planned.sources if "mark" not in s.label] == [
        "fused add, layer_norm_row, relu, mul, mul, softmax_row, mul"
    ]
    (source,) = [s for s in planned.sources if s.label.startswith("fused")]
    assert source.text.count("softmax_short_rows(") == 1  # eight rows at a time, as alone
    assert y.shape == z.shape


def test_what_waits_for_a_product_does_not_hold_up_what_does_not(plans):  # noqa: F811
    x, y, g = (T.linspace(-1, 1, 96 * 96).view(96, 96) * k for k in (1, 2, 3))
    x.requires_grad_()
    scheduling.settle()

    def look():
        mixed = T.softmax(x * 0.125, -1) @ y
        return bits([mixed, *T.autograd.grad(mixed, [x], g)])

    assert look() == cold(look)
    assert [label for label in fused(plans) if "softmax" in label] == [
        "fused mul, softmax_row",
        "fused softmax_backward_row, mul_vjp",
    ]


def test_several_axes_and_parts_of_rows(plans):  # noqa: F811
    def look(batch):
        numbers = np.random.default_rng(batch)
        x = T.tensor(numbers.normal(size=(batch, 6, 2, 40)).astype(np.float32))
        wide = T.tensor(numbers.normal(size=(batch * 6, 200)).astype(np.float32))
        bias = T.tensor(numbers.normal(size=(2, 40)).astype(np.float32))
        y = x * bias + 1
        z = y - y.sum((-1, -2), keepdim=True)
        part = wide[:, 30:110] * 2
        parts = part / (part.abs().sum(-1, keepdim=True) + wide[:, :1])
        turned = (x * 2).transpose(0, 1)
        scheduling.settle()
        return bits([z * bias, parts, turned - turned.sum((-1, -2), keepdim=True), y.sum((0, 1))])

    for batch in (4, 9):
        assert look(batch) == cold(look, batch)
    assert fused(plans)


def test_other_dtypes(plans):  # noqa: F811
    def look(n):
        x = T.tensor(np.random.default_rng(n).normal(size=(n, 80)))
        whole = (x * 9).to(T.int32)
        mask = x > 0.5
        counts = mask.sum(-1, keepdim=True)
        scheduling.settle()
        found = [x - x.amax(-1, keepdim=True), whole - whole.sum(-1, keepdim=True), counts * whole,
                 (whole * 3).sum(0), x.float() * counts]  # fmt: skip
        scheduling.settle()
        return bits(found)

    for n in (20, 300):
        assert look(n) == cold(look, n)
    assert fused(plans)


def test_special_values(plans):  # noqa: F811
    x = T.linspace(-3, 3, 30 * 70).view(30, 70).clone()
    for row, value in enumerate((np.nan, np.inf, -np.inf, -0.0)):
        x[row, 7 * row] = value

    def look():
        y = x * 1
        top, low = y.amax(-1, keepdim=True), y.amin(-1, keepdim=True)
        return bits([(y - top).exp(), y * low, (y * y).sum(-1), (y * 2).sum(0)])

    assert look() == cold(look)
    assert fused(plans)


def test_results_take_the_place_of_operands(plans):  # noqa: F811
    n = 1 << 10

    def look():
        x = T.linspace(-1, 1, n * 96).view(n, 96).clone()
        scheduling.settle()
        shares = x.abs().sum(-1, keepdim=True)
        x.div_(shares).mul_(x.amax(-1, keepdim=True)).add_(1)
        sums = x.sum(-1)
        scheduling.settle()
        return bits([x, sums])

    expected = cold(look)
    for threads in (1, 2, 3):
        T.set_num_threads(threads)
        assert look() == expected
    assert fused(plans)


def test_values_of_rows_that_somebody_holds(plans):  # noqa: F811
    def look(held):
        x = T.linspace(-1, 1, 50 * 90).view(50, 90)
        mean = (x * 3).mean(-1, keepdim=True)
        scale = (mean * mean + 1).rsqrt()
        y = x * scale + mean
        total = scale.sum()
        if not held:
            del mean, scale
        scheduling.settle()
        return bits([y, total, mean, scale] if held else [y, total])

    both = cold(look, True)
    assert look(True) == both
    assert look(False) == both[:2]
    assert fused(plans)


def test_what_needs_a_row_group_by_a_detour_stays_outside(plans):  # noqa: F811
    def look():
        x = T.linspace(-1, 1, 64 * 80).view(64, 80)
        y = x * 2
        sums = y.sum(-1, keepdim=True)
        late = sums.cumsum(0) + sums
        z = y * late
        columns = (y * sums).sum(0)
        w = z / (columns + 3) + y[3]
        scheduling.settle()
        return bits([w, z.amax(-1), late, (w.view(-1)[:64] + sums.view(-1)) * 2])

    assert look() == cold(look)
    assert fused(plans)


def test_row_groups_are_bounded(tasks):  # noqa: F811
    def look():
        x = T.linspace(-1, 1, 20 * 80).view(20, 80)
        for _ in range(12):
            x = x - x.sum(-1, keepdim=True) * 0.25
        return bits(x)

    assert look() == cold(look)
    joined = [t for t in tasks if t.row_group is not None]
    assert len(joined) > 1
    for t in joined:
        assert (
            sum(row_groups.work_of(i.recipe) for i in [*t.items, *t.folds]) <= row_groups.MAX_WORK
        )


# ----- batch normalisation -----


def channels_last(x):
    """The same elements, those of all channels side by side."""
    return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


def residual_block(shape, layout):
    """Two normalisations with their activations, a residual between them, and the gradients."""
    numbers = np.random.default_rng(1)
    x, y, g = (layout(T.tensor(numbers.standard_normal(shape, np.float32))) for _ in range(3))
    w, b, mean, var = (T.linspace(k, 2, shape[1]) for k in (0.5, -1, 0, 1))
    leaves = [t.requires_grad_() for t in (x, y, w, b)]
    scheduling.settle()
    out = F.batch_norm(x, mean, var, w, b, training=True).relu_() + y
    out = F.batch_norm(out, mean, var, w, training=True) + y
    out = out.relu_()
    scheduling.settle()
    grads = T.autograd.grad(out, leaves, g)
    scheduling.settle()
    return bits([out, *grads, mean, var])


@pytest.mark.parametrize(
    ("shape", "layout"),
    [((3, 70, 5, 7), channels_last), ((6, 5, 9, 8), channels_last), ((2, 5, 9, 8), T.clone)],
)
def test_batch_normalisation_has_neighbours(shape, layout, plans):  # noqa: F811
    assert residual_block(shape, layout) == cold(residual_block, shape, layout)
    if shape[1] >= row_groups.MIN_WIDTH:
        assert [label.removeprefix("fused ") for label in fused(plans) if "sub" in label] == [
            "sub, mul, add, relu, add",
            "sub, mul, add, relu",
            "relu_vjp, sub, columns, mul, columns",
            "relu_vjp, sub, sub, mul, sub, mul, add, relu_vjp, sub, columns, mul, columns",
            "sub, sub, mul, sub, mul",
        ]
