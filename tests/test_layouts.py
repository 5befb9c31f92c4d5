"""Laws about how operands and upstream gradients lie in memory: values do not depend on it.

Every elementwise op, its gradients and its second gradients: alone, and in one program with others, behind
and before sums; a few of them at the sizes where the code changes its ways.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from adjit.kernels.language import lanes, turning
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from library import LAYOUTS, SHAPES, array, plainly
from test_elementwise_laws import FLOAT_OPS, FLOATS, INT_OPS, SMOOTH_OPS, named, sample
from test_fusion import bits, cold

import adjit as T
from adjit import config, dtypes
from adjit.graph.elementwise import Elementwise
from adjit.nn import functional as F
from adjit.schedule import plan_cache, settle
from adjit.schedule.codegen import fused, loops
from adjit.schedule.fusion import row_groups
from adjit.schedule.planning.recipe import GRAIN


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every structure is planned and compiled when it is first seen, however small."""
    settle.settle()
    for name, value in (("JIT", "sync"), ("HOT", 1), ("MIN_FUSED", 1)):
        monkeypatch.setattr(config, name, value)
    monkeypatch.setattr(plan_cache, "is_on", True)
    plan_cache.clear()
    yield
    settle.settle()
    plan_cache.clear()


def leaves(operands: list[Any]) -> list[Any]:
    return [t.requires_grad_() for t in operands if t.dtype.is_floating_point]


def assert_equal(found: list[Any], wanted: list[Any]) -> None:
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        np.testing.assert_array_equal(array(a), array(b))


def derivatives(op: Elementwise, operands: list[Any], g: Any, twice: bool) -> list[Any]:
    """The value of an op, its gradients for an upstream one, and theirs."""
    given = leaves(operands)
    value = op(*operands)
    found = T.autograd.grad(value, given, g, create_graph=twice, allow_unused=True)
    made = [value, *[t for t in found if t is not None]]
    second = [t for t in found if t is not None and t.requires_grad]
    if twice and second:
        again = T.autograd.grad(second, given, [g] * len(second), allow_unused=True)
        made += [t for t in again if t is not None]
    return made


# What makes rows of a loop of its own, and one row for all that is longer than a block.
KINDS = [
    (SHAPES, ["of a column", "of a picture", "transposed", "permuted", "of the inner axes", "imported"]),
    ({2: (25, 30), 3: (5, 5, 30), 4: (3, 5, 2, 25), 5: (2, 3, 5, 1, 25)},
     ["of a row", "stepped", "sliced", "flipped", "of one"]),
]  # fmt: skip


def drawn(op: Elementwise, turn: int, dtype: Any, rank: int) -> tuple[list[Any], Any]:
    """Operands of an op and an upstream gradient, one of each in a layout of a kind."""
    rng = np.random.default_rng(zlib.crc32(op.name.encode()) + turn)
    shapes, layouts = KINDS[turn]
    arrays = sample(op, dtype, shapes[rank])
    g = rng.uniform(-1, 1, shapes[rank]).astype(dtype.numpy)
    made = [LAYOUTS["contiguous"](a) for a in arrays]
    if op.arity > 1 or turn == 0:  # the gradients of others meet operands in C order
        k = rng.integers(op.arity)
        made[k] = LAYOUTS[layouts[rng.integers(len(layouts))]](arrays[k])
    return made, LAYOUTS[("of a column", "of a row")[turn]](g)


@pytest.mark.in_turn(8)
@pytest.mark.parametrize("turn", [0, 1])
@named(SMOOTH_OPS)
def test_every_op_and_its_gradients_alone(op: Elementwise, turn: int) -> None:
    which = SMOOTH_OPS.index(op) + turn
    operands, g = drawn(op, turn, FLOATS[which % 2], 2 + which % 4)
    dense = [plainly(t) for t in operands]
    for twice in (False, True)[: 2 - turn]:
        wanted = cold(derivatives, op, dense, plainly(g), twice)
        assert_equal(cold(derivatives, op, operands, g, twice), wanted)


# Whole numbers, truth values, and what has no derivative.
OTHERS = [(op, T.float64) for op in FLOAT_OPS if op not in SMOOTH_OPS]
OTHERS += [(op, T.int64) for op in INT_OPS]


@pytest.mark.in_turn(4)
@pytest.mark.parametrize(("op", "dtype"), OTHERS, ids=[f"{op.name}-{d}" for op, d in OTHERS])
def test_every_other_op_alone(op: Elementwise, dtype: Any) -> None:
    operands, _ = drawn(op, len(op.name) % 2, dtype, 2 + len(op.name) % 4)
    wanted = op(*[plainly(t) for t in operands])
    for _ in range(2):
        assert_equal([op(*operands)], [wanted])


# ----- in one program, behind and before sums -----

SIZE = (8, 2, 4, 16)
PROGRAMS = [
    (LAYOUTS["contiguous"], (8, 8, 16), -1),
    (LAYOUTS["of a row"], (9, 11, 13), 0),
    (LAYOUTS["permuted"], SIZE, (2, 3)),
    (LAYOUTS["of a picture"], SIZE, (1, 3)),
    (LAYOUTS["stepped"], (1100,), 0),
    (LAYOUTS["transposed"], (40, 70), 1),
]
BATCH = 8


def around_sums(ops: list[Elementwise], operands: list[list[Any]], dims: Any) -> list[Any]:
    """Ops whose values are summed up, and ops of means; the gradients of all operands."""
    behind = before = 0.0
    for op, one in zip(ops, operands, strict=True):
        behind = behind + op(*one)
        means = [t.mean(-1, keepdim=True) if t.dtype.is_floating_point else t for t in one]
        before = before + op(*means)
    loss = (behind.mean(dims) ** 2).sum() + (before * behind).sum(-1, keepdim=True).tanh().sum()
    given = [t for one in operands for t in one if t.requires_grad]
    found = T.autograd.grad(loss, given, allow_unused=True)
    return [loss, *[t for t in found if t is not None]]


@pytest.mark.in_turn(19)
@pytest.mark.parametrize("turn", range(3))
@pytest.mark.parametrize("batch", range(-(-len(SMOOTH_OPS) // BATCH)))
def test_every_op_around_sums(batch: int, turn: int, planned: None) -> None:
    """The bits stay when they are planned and compiled; in C order the values stay."""
    layout, shape, dims = PROGRAMS[(batch + 2 * turn) % len(PROGRAMS)]
    ops = SMOOTH_OPS[BATCH * batch :][:BATCH]
    operands = [[layout(a) for a in sample(op, T.float64, shape)] for op in ops]
    for one in operands:
        leaves(one)

    def look() -> list[Any]:
        return around_sums(ops, operands, dims)

    wanted = cold(lambda: bits(look()))
    compiled = T.compile(look)
    for run in (look, look, compiled, compiled, compiled):
        assert bits(run()) == wanted
    dense = [[plainly(t) for t in one] for one in operands]
    for one in dense:
        leaves(one)
    for a, b in zip(cold(look), cold(around_sums, ops, dense, dims), strict=True):
        np.testing.assert_allclose(
            array(a), array(b), rtol=1e-9, atol=1e-9 * np.abs(array(b)).max()
        )


@pytest.mark.in_turn(4)
@pytest.mark.parametrize("name", ["contiguous", "permuted", "of a row", "of a column"])
def test_every_other_op_in_one_program(name: str, planned: None) -> None:
    operands = [[LAYOUTS[name](a) for a in sample(op, dtype, SIZE)] for op, dtype in OTHERS]

    def look() -> Any:
        return sum(op(*one).double() * 1.25 for (op, _), one in zip(OTHERS, operands, strict=True))

    wanted = cold(lambda: bits(look()))
    compiled = T.compile(look)
    for run in (look, look, compiled, compiled):
        assert bits(run()) == wanted


# ----- few ops, any layout -----

FEW: dict[str, Any] = {
    "hardswish": F.hardswish,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "mul": lambda x: x * (x + 1.5),
    "clamp": lambda x: x.clamp(-1.0, 1.25),
}
REDUCTIONS: dict[str, Any] = {
    "mean of the last": lambda x: x.mean(-1),
    "sum of the first": lambda x: x.sum(0, keepdim=True),
    "mean of all": lambda x: x.mean(),
    "the largest": lambda x: x.amax(-1, keepdim=True),
    "as they are": lambda x: x,
}


@st.composite
def views(draw: Any) -> Any:
    """Axes of a tensor in memory, and what is done to it: a tensor of any rank in any layout."""
    rank = draw(st.integers(1, 5))
    longest = {1: 1300, 2: 48, 3: 12, 4: 7, 5: 5}[rank]
    shape = tuple(draw(st.lists(st.integers(1, longest), min_size=rank, max_size=rank)))
    order = draw(st.permutations(range(rank)))
    steps = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    starts = draw(st.lists(st.integers(0, 2), min_size=rank, max_size=rank))
    again = draw(st.lists(st.booleans(), min_size=rank, max_size=rank))
    return shape, order, steps, starts, again


def view(case: Any, seed: int) -> Any:
    shape, order, steps, starts, again = case
    sizes = [1 if a else n for n, a in zip(shape, again, strict=True)]
    room = [n * step + start for n, step, start in zip(sizes, steps, starts, strict=True)]
    laid = np.random.default_rng(seed).uniform(-3, 3, [room[d] for d in np.argsort(order)])
    t = T.tensor(laid.astype(np.float32)).permute(*order)
    cut = [
        slice(start, start + n * step, step)
        for n, step, start in zip(sizes, steps, starts, strict=True)
    ]
    return t[tuple(cut)].expand(shape)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    case=views(), other=views(), name=st.sampled_from([*FEW]), end=st.sampled_from([*REDUCTIONS])
)
def test_any_layout_behind_and_before_sums(case: Any, other: Any, name: str, end: str) -> None:
    function, reduction = FEW[name], REDUCTIONS[end]
    x, g = view(case, 1), view(case, 2)
    if len(other[0]) == len(case[0]):  # an upstream gradient of another layout
        g = view((case[0], *other[1:]), 2)

    def look(x: Any, g: Any) -> list[Any]:
        x = x.detach().requires_grad_()
        y = function(x)
        made = [y.detach(), *T.autograd.grad(y, x, g, retain_graph=True)]
        z = reduction(function(y) * 0.5)
        first = T.autograd.grad((z * z).sum(), x, create_graph=True)
        return [*made, z.detach(), *first, *T.autograd.grad((first[0] * g).sum(), x)]

    seen = cold(lambda: bits(look(x, g)))
    compiled = T.compile(look)
    for run in (look, look, look, compiled, compiled):
        assert bits(run(x, g)) == seen
    dense = cold(look, plainly(x), plainly(g))
    assert bits(dense[:2]) == seen[:2]  # without sums, whose order follows memory
    for a, b in zip(look(x, g), dense, strict=True):
        scale = max(float(np.abs(array(b)).max()), 1.0)
        np.testing.assert_allclose(array(a), array(b), rtol=1e-4, atol=1e-5 * scale)


# ----- the sizes at which the code changes its ways -----

BORDERS = sorted({
    lanes.BLOCK, loops.TOGETHER, 1024, fused.MAX_PADDED, 16 * lanes.BLOCK, 4096, loops.GRAIN,
    2 * loops.GRAIN, row_groups.SMALL,
})  # fmt: skip
WIDTHS = sorted({
    2, loops.FEW, row_groups.MIN_WIDTH, loops.NARROW, lanes.BLOCK, loops.TOGETHER, loops.MAX_ROW,
    row_groups.MAX_WIDTH,
})  # fmt: skip


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(-4, 4, shape).astype(np.float32)


def hardswish(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """In double precision, with its derivative."""
    a = a.astype(np.float64)
    slope = np.where(a < -3, 0, np.where(a > 3, 1, a / 3 + 0.5))
    return a * np.clip(a + 3, 0, 6) / 6, slope


def check_hardswish(x: Any, g: Any) -> None:
    """Alone and planned: the numbers of its definition, with a sum behind it or none."""
    value, slope = hardswish(array(x))
    for _ in range(3):
        leaf = x.detach().requires_grad_()
        y = F.hardswish(leaf)
        (found,) = T.autograd.grad(y, leaf, g)
        np.testing.assert_allclose(array(y), value, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(array(found), slope * array(g), rtol=1e-5, atol=1e-6)
        shifted = F.hardswish(leaf * 0.5) * 2 + 1
        (found,) = T.autograd.grad(shifted.mean(-1).sum(), leaf)
        value2, slope2 = hardswish(array(x) * np.float32(0.5))
        np.testing.assert_allclose(array(shifted), value2 * 2 + 1, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(array(found) * x.shape[-1], slope2, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", BORDERS)
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_as_many_elements_as_make_a_difference(size: int, more: int) -> None:
    n = size + more
    g = T.tensor(numbers(n))
    check_hardswish(T.tensor(numbers(n)), g)
    check_hardswish(stepped_by_two(n), g)
    check_hardswish(T.tensor(numbers(1)).expand(n), T.tensor([0.25]).expand(n))


def stepped_by_two(n: int) -> Any:
    return T.tensor(numbers(2 * n))[::2]


@pytest.mark.in_turn(6)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_rows_as_wide_as_make_a_difference(width: int, more: int) -> None:
    width += more
    rows = max(3, 5000 // width)
    whole = T.tensor(numbers(rows, width))
    row, column = T.tensor(numbers(width)), T.tensor(numbers(rows, 1))
    turned = T.tensor(numbers(width, rows)).t()
    for x, g in ((row.expand(rows, width), whole), (whole, row.expand(rows, width)),
                 (whole, column.expand(rows, width)), (turned, whole),
                 (column.expand(rows, width), turned)):  # fmt: skip
        check_hardswish(x, g)


@pytest.mark.parametrize("rows", [loops.MAX_ROWS, loops.MAX_ROWS + 1])
def test_as_many_rows_for_all_as_a_loop_repeats_and_one_more(rows: int) -> None:
    whole = T.tensor(numbers(90, 70))
    others = [T.tensor(numbers(70) + k) for k in range(rows)]
    wanted = array(whole).astype(np.float64)
    for other in others:
        wanted = wanted * 0.5 + array(other)
    for _ in range(3):
        total = whole
        for other in others:
            total = total * 0.5 + other
        np.testing.assert_allclose(array(total), wanted, rtol=1e-5, atol=1e-5)


SQUARES = [turning.TILE - 1, turning.TILE, 2 * turning.TILE + 3, loops.ACROSS, loops.ACROSS + 17]


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("dtype", [T.uint8, T.float32, T.float64], ids=str)
@pytest.mark.parametrize("k", range(len(SQUARES)))
def test_operands_in_both_orders(k: int, dtype: Any, planned: None) -> None:
    """Read and written by one kernel: images with channels last beside such channel by channel."""
    channels, area = SQUARES[k], SQUARES[k - 2]
    rng = np.random.default_rng(channels + area)
    a, b, c = (rng.integers(0, 5, (3, n, area)) for n in (channels, channels, 1))
    last = T.tensor(np.ascontiguousarray(a.swapaxes(1, 2))).to(dtype).transpose(1, 2)
    first, spread = T.tensor(b).to(dtype), T.tensor(c).to(dtype).expand(3, channels, area)
    strided = T.tensor(np.repeat(b, 2, 2)).to(dtype)[:, :, ::2]
    for _ in range(2):
        turned = first * 2
        made = [last + first, first + last, last * turned, turned, strided + last, last + strided,
                last * spread + turned]  # fmt: skip
        wanted = [a + b, a + b, a * b * 2, b * 2, a + b, a + b, a * c + b * 2]
        for found, right in zip(made, wanted, strict=True):
            np.testing.assert_array_equal(array(found.to(T.float64)), right)
        written = first.clone()
        written.transpose(1, 2).mul_(last.transpose(1, 2)).add_(spread.transpose(1, 2))
        np.testing.assert_array_equal(array(written.to(T.float64)), b * a + c)


def test_both_orders_on_two_threads_give_the_same_bits(planned: None) -> None:
    rng = np.random.default_rng(0)
    last = T.tensor(rng.normal(size=(2, 41, 43, 40)).astype("f")).permute(0, 3, 1, 2)
    first = T.tensor(rng.normal(size=last.shape).astype("f"))
    before = T.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            T.set_num_threads(threads)
            value = first.sigmoid() * last
            found.append((bits([value, last.exp() - value]), bits([last - first])))
    finally:
        T.set_num_threads(before)
    assert found[0] == found[1] == found[2]
    dense = last.contiguous()
    value = first.sigmoid() * dense
    assert found[0] == (bits([value, dense.exp() - value]), bits([dense - first]))


@pytest.mark.parametrize("dtype", ["bool", "int64", "float32", "float64"])
def test_a_number_for_each_short_row(dtype: str) -> None:
    """Blocks begin and end anywhere in a row; the numbers of rows lie side by side, or apart."""
    for width in (5, 8, 9, 16, 17, lanes.LANES, lanes.LANES + 1, loops.NARROW):  # one text for all
        rows = 2 * loops.TOGETHER // width + 3
        whole = (numbers(rows, width) * 9).astype(dtype)
        alone = (numbers(rows, 1) * 7).astype(dtype)
        row = numbers(width).astype(dtype)
        x, last = T.tensor(whole), T.tensor(row)
        columns = [T.tensor(alone), T.tensor(whole)[:, 2:3]]
        given = [alone, whole[:, 2:3]]
        for column, number in zip(columns, given, strict=True):
            for _ in range(3):
                np.testing.assert_array_equal(
                    array(T.maximum(x, column)), np.maximum(whole, number)
                )
                np.testing.assert_array_equal(
                    array(T.where(x > column, last, column)), np.where(whole > number, row, number)
                )
        both = [T.maximum(T.minimum(x, columns[0]), columns[1]) for _ in range(3)][-1]
        np.testing.assert_array_equal(
            array(both), np.maximum(np.minimum(whole, given[0]), given[1])
        )


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_results_that_are_streamed(more: int) -> None:
    n = loops.STREAM_BYTES // 4 + more
    x, row = T.tensor(numbers(n)), T.tensor(numbers(7))
    np.testing.assert_array_equal(array(x.clamp(-1, 2)), np.clip(array(x), -1, 2))
    wide = x[: n // 7 * 7].view(-1, 7)
    column = wide[:, 3:4]
    np.testing.assert_array_equal(
        array(T.maximum(wide, column)), np.maximum(array(wide), array(column))
    )
    np.testing.assert_array_equal(array(wide * row), array(wide) * array(row))
    g = T.tensor([0.5]).expand(n)
    leaf = x.detach().requires_grad_()
    (found,) = T.autograd.grad(F.hardswish(leaf), leaf, g)
    np.testing.assert_allclose(array(found), hardswish(array(x))[1] * 0.5, rtol=1e-5, atol=1e-6)


# ----- beside PyTorch -----


def inverted_residual(library: Any, x: Any, w: dict[str, Any], last: str) -> Any:
    """MobileNetV3's block: expand, filter each channel, squeeze and excite, project."""
    f = library.nn.functional
    y = f.hardswish(f.conv2d(x, w["expand"]))
    y = f.hardswish(f.conv2d(y, w["depthwise"], padding=1, groups=w["depthwise"].shape[0]))
    s = f.adaptive_avg_pool2d(y, 1)
    s = f.hardsigmoid(f.conv2d(f.relu(f.conv2d(s, w["squeeze"])), w["excite"]))
    y = x + f.conv2d(y * s, w["project"])
    head = {"pool": lambda: f.adaptive_avg_pool2d(f.hardswish(y), 1).flatten(1),
            "mean": lambda: f.hardswish(y).mean((2, 3)),
            "areas": lambda: f.hardswish(f.adaptive_avg_pool2d(f.hardswish(y), (2, 3))).flatten(1)}  # fmt: skip
    return f.gelu(head[last](), approximate="tanh").mean(-1)


@pytest.mark.parametrize("last", ["pool", "mean", "areas"])
@pytest.mark.parametrize("size", [5, 14], ids=str)
def test_blocks_of_mobilenet_v3_beside_pytorch(size: int, last: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(size)
    shapes = {"expand": (24, 8, 1, 1), "depthwise": (24, 1, 3, 3), "squeeze": (6, 24, 1, 1),
              "excite": (24, 6, 1, 1), "project": (8, 24, 1, 1)}  # fmt: skip
    x = rng.normal(size=(3, 8, size, size))
    weights = {name: rng.normal(size=shape) * 0.5 for name, shape in shapes.items()}

    def gradients(library: Any) -> list[np.ndarray]:
        given = library.tensor(x, requires_grad=True)
        w = {name: library.tensor(a, requires_grad=True) for name, a in weights.items()}
        out = inverted_residual(library, given, w, last)
        found = library.autograd.grad((out * out).sum(), [given, *w.values()])
        return [t.detach().numpy() for t in (out, *found)]

    wanted = gradients(torch)
    for _ in range(3):
        for a, b in zip(gradients(T), wanted, strict=True):
            # PyTorch's derivative of hardsigmoid holds 1/6 in single precision
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7 * max(np.abs(b).max(), 1))


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [2, 3, loops.SHORT, loops.SHORT + 1, 16, 17])
def test_rows_of_few_elements(width: int, dtype: str) -> None:
    """Many of them are one vector: differences of all pairs, weighted, in one kernel and in several."""
    n = 37
    arrays = [
        numbers(*shape).astype(dtype) for shape in ((n, width), (n, width), (n,), (n, n, 2 * width))
    ]
    arrays[1] += 1
    (x, y, mass, slow), (a, b, m, s) = map(T.tensor, arrays), arrays
    wanted = (a[None] - b[:, None]) * m[None, :, None] * arrays[0].dtype.type(0.5) + s[..., ::2]

    def program() -> Any:
        return (x[None] - y[:, None]) * mass[None, :, None] * 0.5 + slow[..., ::2]

    assert (f"for i in range({width})" in program().kernels()) == (width <= loops.SHORT)
    for _ in range(3):
        np.testing.assert_array_equal(array(program()), wanted)
        plan_cache.wait()
    turned = program().permute(1, 0, 2) + x[:, None]
    np.testing.assert_array_equal(array(turned), wanted.transpose(1, 0, 2) + a[:, None])
    powers = (x[None] - y[:, None]).exp()
    assert (f"for i in range({width})" in powers.kernels()) == (width <= loops.SHORT)
    np.testing.assert_array_equal(array(powers), array((x[None] - y[:, None]).clone().exp()))


def test_small_operations_share_one_kernel_for_all_layouts() -> None:
    few, many = 7, -(-loops.ENOUGH // 21)

    def texts(n: int) -> set[str]:
        x, y = T.rand(3, 2 * n, 14), T.rand(7, 3, n)
        parts = x[:, ::2, ::2], x[:, :n, :7], x[:, n:, 7:], x[:1, :n, :7].expand(3, n, 7)
        turned = y.permute(1, 2, 0)
        return {(part * turned).kernels() for part in parts}

    assert len(texts(few)) == 1
    assert len(texts(many)) > 1


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 3, 5, 9, 17, 40]), min_size=3, max_size=5),
    st.sampled_from(["float32", "float64", "int16"]),
    st.integers(1, 3),
    st.data(),
)
def test_runs_of_rows_wherever_threads_cut_them(
    sizes: list[int], dtype: str, threads: int, data: st.DataObject
) -> None:
    """Operands that are turned, stepped and repeated along axes of their own, enough to be shared out."""

    def drawn() -> tuple[Any, np.ndarray]:
        order = data.draw(st.permutations(range(len(sizes))))
        repeated = data.draw(st.sets(st.sampled_from(range(len(sizes))), max_size=2))
        steps = data.draw(st.lists(st.integers(1, 2), min_size=len(sizes), max_size=len(sizes)))
        shape = [1 if d in repeated else sizes[d] * steps[d] for d in order]  # in memory
        a = rng.integers(-9, 10, shape).astype(dtype)
        back = [order.index(d) for d in range(len(sizes))]
        cut = tuple(slice(None, None, 1 if d in repeated else steps[d]) for d in range(len(sizes)))
        return T.tensor(a).permute(*back)[cut], a.transpose(back)[cut]

    rng = np.random.default_rng(len(sizes))
    sizes[0] *= max(1, -(-3 * GRAIN // int(np.prod(sizes))))
    (x, a), (y, b), (z, c) = drawn(), drawn(), drawn()
    before = T.get_num_threads()
    T.set_num_threads(threads)
    try:
        np.testing.assert_array_equal(array(x * y + z), a * b + c)
        np.testing.assert_array_equal(array(x.expand(*sizes).clone()), np.broadcast_to(a, sizes))
    finally:
        T.set_num_threads(before)


@pytest.mark.in_turn(5)
@pytest.mark.parametrize("dtype", dtypes.SUPPORTED, ids=str)
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5])
def test_sums_of_rows_of_few_elements(width: int, dtype: Any) -> None:
    """They have the bits of longer rows that end in zeros, those of -0 too."""
    x = T.tensor(numbers(70, width)).to(dtype)
    if dtype.is_floating_point:
        x[1], x[2], x[3], x[4] = -0.0, float("inf"), float("nan"), 3e38
        x[5, -1] = -0.0
    longer = T.cat([x, T.zeros(70, 32 - width, dtype=dtype)], 1)
    for _ in range(2):
        assert bits(x.sum(1)) == bits(longer.sum(1))
    assert bits((x * 2).mean(1, dtype=T.float64)) == bits(
        (longer * 2).sum(1, dtype=T.float64) / width
    )
