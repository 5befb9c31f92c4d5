"""Products of matrices and vectors beside PyTorch: values, gradients, layouts, errors."""

from __future__ import annotations

import ctypes
import importlib

import numpy as np
import pytest
from adjit.kernels.ops import gemm_tile, matmul, matrix_vector
from against_torch import agree, agree_in_error, agree_in_gradients, backward_name
from hypothesis import given, settings
from hypothesis import strategies as st

import adjit
from adjit.ops import matmul as products
from adjit.ops.matmul import plan_few, plan_few_columns, plan_product
from adjit.schedule.jit import cache

rng = np.random.default_rng(0)
FLOATS = [np.float32, np.float64]
INTEGERS = [np.int8, np.uint8, np.int16, np.int32, np.int64]


def sample(*shape: int, dtype: type = np.float64) -> np.ndarray:
    """Numbers with few digits, so that products are exact in every dtype."""
    return rng.integers(0 if dtype is np.uint8 else -4, 5, shape).astype(dtype)


SHAPES = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3, 4)),
    ((1, 1), (1, 1)),
    ((5, 1), (1, 4)),
    ((2, 3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((4,), (2, 4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 3, 4), (1, 4, 5)),
    ((6, 1, 3, 4), (5, 4, 2)),
    ((2, 3, 2, 4), (2, 3, 4, 2)),
]
EMPTY = [
    ((0,), (0,)),
    ((0, 3), (3,)),
    ((3, 0), (0,)),
    ((0, 3), (3, 4)),
    ((2, 0), (0, 4)),
    ((2, 3), (3, 0)),
    ((0, 2, 3), (3, 4)),
    ((0, 2, 3), (0, 3, 4)),
    ((2, 2, 0), (2, 0, 4)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES + EMPTY)
@pytest.mark.parametrize("dtype", [*FLOATS, np.int64, np.uint8])
def test_matmul_of_all_ranks(left, right, dtype):
    agree(lambda T, x, y: x @ y, sample(*left, dtype=dtype), sample(*right, dtype=dtype))


@pytest.mark.parametrize(("left", "right"), SHAPES + EMPTY)
def test_matmul_gradients(left, right):
    agree_in_gradients(lambda T, x, y: T.matmul(x, y), sample(*left), sample(*right))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_around(dtype):
    x, y = (rng.integers(0, 120, (70, 70)).astype(dtype) for _ in range(2))
    agree(lambda T, x, y: x @ y, x, y)


SIZES = st.integers(1, 40)


@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES, SIZES, st.data())
def test_strided_operands(rows, depth, columns, data):
    def cut(T, x, rows, columns):
        """A view with `rows` and `columns`, laid out as drawn."""
        return {
            "rows": lambda: x[:rows, :columns],
            "columns": lambda: x[:columns, :rows].t(),
            "steps": lambda: x[: 2 * rows : 2, : 2 * columns : 2],
            "repeated row": lambda: x[:1, :columns].expand(rows, columns),
            "repeated column": lambda: x[:rows, :1].expand(rows, columns),
        }[layout[0]]()

    names = ["rows", "columns", "steps", "repeated row", "repeated column"]
    layouts = [data.draw(st.sampled_from(names)) for _ in range(2)]
    layout = [""]

    def call(T, x, y):
        layout[0] = layouts[0]
        left = cut(T, x, rows, depth)
        layout[0] = layouts[1]
        return left @ cut(T, y, depth, columns)

    agree(call, sample(80, 80, dtype=np.float32), sample(80, 80, dtype=np.float32))


@pytest.mark.parametrize("shape", [(300, 130, 700), (700, 90, 300), (100, 300, 900)])
def test_panels_of_a_large_product(shape):
    rows, depth, columns = shape
    x, y = sample(rows, depth, dtype=np.float32), sample(depth, columns, dtype=np.float32)
    agree(lambda T, x, y: x @ y, x, y)
    bias = sample(columns, dtype=np.float32)
    agree(lambda T, b, x, y: T.addmm(b, x, y, beta=2, alpha=3), bias, x, y)
    for shape in (len(x), 1), (1, 1):  # the same for a whole row
        bias = sample(*shape, dtype=np.float32)
        agree(lambda T, b, x, y: T.addmm(b, x, y, beta=2, alpha=3), bias, x, y)


LAYOUTS = {
    "rows": lambda x: x.clone(),
    "columns": lambda x: x.t().contiguous().t(),
    "steps": lambda x: adjit.stack([x, x], 2)[:, :, 0],
}


@pytest.mark.cpu
@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([2, 5, 6, 7, 12, 33, 71, 72, 73, 80]),
    st.sampled_from([1, 15, 16, 17, 64, 130, 255, 256, 257, 300]),
    st.sampled_from([2, 16, 63, 64, 65, 130, 257, 300, 513, 1025]),
    st.sampled_from(FLOATS),
    st.sampled_from([*LAYOUTS]),
    st.sampled_from([*LAYOUTS]),
)
def test_large_products_of_all_layouts_have_the_same_bits(rows, depth, columns, dtype, left, right):
    rng = np.random.default_rng(rows * depth * columns)
    x, y = rng.standard_normal((rows, depth)), rng.standard_normal((depth, columns))
    x, y = x.astype(dtype), y.astype(dtype)
    usual = (adjit.tensor(x) @ adjit.tensor(y)).numpy()
    made = LAYOUTS[left](adjit.tensor(x)) @ LAYOUTS[right](adjit.tensor(y))
    is_narrow = columns <= gemm_tile.lanes_of(y.itemsize)
    if right != "columns" or not (is_narrow or rows <= products.FEW_ROWS):  # else as a vector is
        np.testing.assert_array_equal(made.numpy(), usual)
    exact = x.astype(np.longdouble) @ y.astype(np.longdouble)
    room = np.abs(x) @ np.abs(y) * np.finfo(dtype).eps * 24
    assert (np.abs(usual - exact) <= room).all()
    assert (np.abs(made.numpy() - exact) <= room).all()


BATCHES = {  # of matrices of 3 by 4, and whether all of their rows are one matrix's
    "in order": (lambda x: x, True),
    "of a larger one": (lambda x: adjit.cat([x, x], 2)[..., :4], True),
    "turned": (lambda x: x.mT.contiguous().mT, False),
    "apart": (lambda x: adjit.cat([x, x], 1)[:, :3], False),
    "one row each": (lambda x: adjit.cat([x, x], 1)[:, 3:4], True),
    "the same": (lambda x: x[:1].expand(5, 3, 4), False),
}


@pytest.mark.parametrize("layout", BATCHES)
@pytest.mark.parametrize("columns", [1, 2, 70])
@pytest.mark.parametrize("bias", [None, (), (5, 3, -1), (1, 3, -1), (5, 1, -1), (3, 1), (5, 1, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_a_batch_by_one_matrix_is_one_product(layout, columns, bias, dtype):
    lay, is_one = BATCHES[layout]
    x, y = (
        lay(adjit.tensor(sample(5, 3, 4, dtype=dtype))),
        adjit.tensor(sample(4, columns, dtype=dtype)),
    )
    wanted = np.stack([m @ y.numpy() for m in x.numpy()])
    np.testing.assert_array_equal((x @ y).numpy(), wanted)
    spread = y.expand(5, 4, columns)
    np.testing.assert_array_equal((x @ spread).numpy(), wanted)
    words = plan_product(
        x.dtype, x.shape, x.stride(), spread.shape, spread.stride(), None, ()
    ).words
    assert words[matmul.BATCH_AXES] == (0 if is_one else 1)
    if bias is not None:
        shape = [columns if n < 0 else min(n, x.shape[1]) if n == 3 else n for n in bias]
        b = adjit.tensor(sample(*shape, dtype=dtype))
        made = adjit.baddbmm(b, x, spread, beta=2, alpha=3)
        np.testing.assert_array_equal(made.numpy(), 2 * b.numpy() + 3 * wanted)


LAYOUTS_OF_FEW = {
    "dense": lambda t: t, "turned": lambda t: t.mT.contiguous().mT,
    "stepped": lambda t: t.repeat(2, 1, 1)[::2],
    "by entries last": lambda t: t.movedim(0, -1).contiguous().movedim(-1, 0),
    "shared": lambda t: t[:1].expand_as(t),
    "a part": lambda t: t.repeat(1, 2, 2)[:, 1 : 1 + t.shape[1], : t.shape[2]],
}  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("right", LAYOUTS_OF_FEW)
@pytest.mark.parametrize("left", LAYOUTS_OF_FEW)
def test_batches_of_few_elements(left, right, dtype):
    """Matrices up to a size are multiplied one by one; those beyond it as any."""
    for rows, depth, columns in (
        (3, 3, 1),
        (1, 3, 1),
        (2, 2, 2),
        (4, 4, 4),
        (1, 64, 1),
        (5, 1, 3),
        (5, 5, 3),
    ):
        x, y = sample(7, rows, depth, dtype=dtype), sample(7, depth, columns, dtype=dtype)
        a, b = LAYOUTS_OF_FEW[left](adjit.tensor(x)), LAYOUTS_OF_FEW[right](adjit.tensor(y))
        plan = plan_few(a.dtype, a.shape, a.stride(), b.shape, b.stride())
        assert (plan is not None) == (rows * depth * columns <= 64)
        np.testing.assert_array_equal((a @ b).numpy(), a.numpy() @ b.numpy())
        agree_in_gradients(
            lambda T, s, t: LAYOUTS_OF_FEW[left](s) @ LAYOUTS_OF_FEW[right](t),
            x.astype(np.float64), y.astype(np.float64), order=1,
        )  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
def test_an_entry_of_few_elements_has_the_bits_of_its_own_product(dtype):
    for rows, depth, columns in ((2, 3, 2), (3, 3, 3), (2, 16, 2), (3, 5, 4)):
        x = rng.standard_normal((9, rows, depth)).astype(dtype)
        y = rng.standard_normal((9, depth, columns)).astype(dtype)
        a, b = adjit.tensor(x), adjit.tensor(y)
        each = np.stack([(s @ t).numpy() for s, t in zip(a, b, strict=True)])
        np.testing.assert_array_equal((a @ b).numpy(), each)


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_batches_of_few_elements_broadcast(data):
    batch = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    sizes = data.draw(st.tuples(*[st.integers(1, 4)] * 3))
    shapes = [
        [1 if data.draw(st.booleans()) else n for n in batch[data.draw(st.integers(0, 2)) :]]
        for _ in range(2)
    ]
    x, y = sample(*shapes[0], *sizes[:2]), sample(*shapes[1], *sizes[1:])
    np.testing.assert_array_equal((adjit.tensor(x) @ adjit.tensor(y)).numpy(), x @ y)


@pytest.mark.parametrize("dtype", FLOATS)
def test_packed_blocks_have_room_for_whole_panels(dtype):
    kind = adjit.tensor(np.zeros(1, dtype)).dtype
    panel = gemm_tile.WIDTH * gemm_tile.lanes_of(kind.itemsize)
    for columns in range(1, 3 * gemm_tile.BLOCK_BYTES // kind.itemsize):
        words = plan_product(kind, (99, 300), (300, 1), (300, columns), (1, 300), None, ()).words
        block = words[matmul.BLOCK]
        assert block % panel == 0
        assert block * kind.itemsize <= gemm_tile.BLOCK_BYTES


def test_bits_do_not_depend_on_threads():
    x = adjit.tensor(rng.standard_normal((700, 600)).astype(np.float32))
    long = adjit.tensor(rng.standard_normal(300_001).astype(np.float32))
    threads = adjit.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            adjit.set_num_threads(count)
            results.append([(x @ x.t()).numpy(), (x @ x[0]).numpy(), long.dot(long).numpy()])
    finally:
        adjit.set_num_threads(threads)
    for others in results[1:]:
        for a, b in zip(results[0], others, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [*FLOATS, np.int32])
@pytest.mark.parametrize("length", [0, 1, 31, 4097])
def test_dot(dtype, length):
    x, y = sample(2 * length, dtype=dtype), sample(length, dtype=dtype)
    agree(lambda T, x, y: T.dot(x[:length], y), x, y)
    agree(lambda T, x, y: T.vdot(x[::2], y), x, y)


def test_vectors():
    agree(lambda T, m, v: m.mv(v), sample(3, 4), sample(4))
    agree(lambda T, m, v: m.t().mv(v[::2]), sample(4, 3), sample(8))
    agree(lambda T, m, v: m.mv(v[:1].expand(3)), sample(4, 3), sample(8))
    agree(lambda T, x, y: T.outer(x, y), sample(3), sample(4))
    agree(lambda T, x, y: T.inner(x, y), sample(2, 3), sample(4, 3))
    agree(lambda T, x, y: T.inner(x, y), sample(3), sample(3))
    agree(lambda T, x, y: T.inner(x, y), np.array(2.0), sample(4, 3))
    for call, shapes in [
        (lambda T, m, v: m.mv(v), [(3, 4), (4,)]),
        (lambda T, x, y: T.dot(x, y), [(3,), (3,)]),
        (lambda T, x, y: T.vdot(x, y), [(3,), (3,)]),
        (lambda T, x, y: T.outer(x, y), [(3,), (4,)]),
        (lambda T, x, y: T.inner(x, y), [(2, 3), (4, 3)]),
    ]:
        agree_in_gradients(call, *[sample(*shape) for shape in shapes])


ADDING = [
    ("addmm", [(3,), (2, 4), (4, 3)]),
    ("addmm", [(2, 1), (2, 4), (4, 3)]),
    ("addmm", [(2, 3), (2, 4), (4, 3)]),
    ("addmm", [(2, 3), (2, 0), (0, 3)]),
    ("addmv", [(2,), (2, 4), (4,)]),
    ("addmv", [(1,), (2, 4), (4,)]),
    ("addr", [(2, 3), (2,), (3,)]),
    ("addbmm", [(2, 3), (5, 2, 4), (5, 4, 3)]),
    ("baddbmm", [(1, 3), (5, 2, 4), (5, 4, 3)]),
    ("baddbmm", [(5, 2, 3), (5, 2, 4), (5, 4, 3)]),
]


@pytest.mark.parametrize(("name", "shapes"), ADDING)
def test_adding_products(name, shapes):
    arrays = [sample(*shape) for shape in shapes]
    for options in ({}, {"beta": 2, "alpha": 3}, {"beta": 0}, {"alpha": -1}):
        agree(lambda T, *t, o=options: getattr(T, name)(*t, **o), *arrays)
        agree_in_gradients(lambda T, *t, o=options: getattr(T, name)(*t, **o), *arrays)
        whole = [a.astype(np.int32) for a in arrays]
        agree(lambda T, *t, o=options: getattr(T, name)(*t, **o), *whole)


def test_beta_of_zero_does_not_read_the_bias():
    bias = np.full(3, np.nan)
    agree(lambda T, b, x, y: T.addmm(b, x, y, beta=0), bias, sample(2, 4), sample(4, 3))
    agree(lambda T, b, x, y: T.addmv(b, x, y, beta=0), bias, sample(3, 4), sample(4))


def test_in_place_and_out():
    agree(lambda T, b, x, y: b.clone().addmm_(x, y), sample(2, 3), sample(2, 4), sample(4, 3))
    agree(
        lambda T, x, y: T.mm(x, y, out=T.empty(2, 3, dtype=T.float64)), sample(2, 4), sample(4, 3)
    )


def test_linear():
    def linear(T, *tensors):
        return importlib.import_module(f"{T.__name__}.nn.functional").linear(*tensors)

    for shape in [(3,), (2, 3), (5, 2, 3), (4, 5, 2, 3), (0, 3)]:
        agree(linear, sample(*shape), sample(4, 3), sample(4))
        agree(linear, sample(*shape), sample(4, 3))
        agree_in_gradients(linear, sample(*shape), sample(4, 3), sample(4))
    agree(
        lambda T, x, w, b: linear(T, x.transpose(0, 1), w, b),
        sample(2, 5, 3),
        sample(4, 3),
        sample(4),
    )
    assert backward_name(linear, sample(2, 3), sample(4, 3), sample(4)) == "AddmmBackward0"
    assert backward_name(linear, sample(2, 3), sample(4, 3)) == "MmBackward0"
    assert backward_name(linear, sample(5, 2, 3), sample(4, 3), sample(4)) == "ViewBackward0"
    agree_in_error(linear, sample(2, 3), sample(4, 2))
    agree_in_error(linear, sample(5, 2, 3), sample(4, 2), sample(4))
    agree_in_error(linear, sample(2, 3), sample(4, 3), sample(3))
    agree_in_error(linear, sample(), sample(4, 1), sample(4))


def test_bilinear():
    def bilinear(T, *tensors):
        return importlib.import_module(f"{T.__name__}.nn.functional").bilinear(*tensors)

    arrays = sample(2, 6, 3), sample(2, 6, 4), sample(5, 3, 4), sample(5)
    agree(bilinear, *arrays)
    agree_in_gradients(bilinear, *arrays)
    agree_in_error(bilinear, sample(2, 3), sample(2, 4), sample(5, 3, 3))
    agree_in_error(bilinear, sample(2, 3), sample(1, 4), sample(5, 3, 4))
    agree_in_error(bilinear, sample(2, 3), sample(2, 4), sample(5, 3, 4), sample(4))


def test_other_products():
    agree(lambda T, x, y: T.kron(x, y), sample(2, 3), sample(4, 1))
    agree(lambda T, x, y: T.kron(x, y), sample(3), sample(4, 1, 2))
    agree_in_gradients(lambda T, x, y: T.kron(x, y), sample(2, 3), sample(4, 1))
    chain = sample(2, 3), sample(3, 4), sample(4, 5), sample(5, 2)
    agree(lambda T, *m: T.linalg.multi_dot(m), *chain)
    agree(lambda T, *m: T.linalg.multi_dot(m), sample(2), sample(2, 3), sample(3))
    agree_in_gradients(lambda T, *m: T.linalg.multi_dot(m), *chain)
    agree(lambda T, *m: T.chain_matmul(*m), *chain)
    agree(lambda T, x, y: T.tensordot(x, y), sample(5, 3, 4), sample(3, 4, 2))
    agree(lambda T, x, y: T.tensordot(x, y, 0), sample(2), sample(3))
    dims = ([1, 0], [0, -1])
    agree(lambda T, x, y: T.tensordot(x, y, dims), sample(4, 3, 2), sample(3, 5, 4))
    agree_in_gradients(lambda T, x, y: T.tensordot(x, y, dims), sample(4, 3, 2), sample(3, 5, 4))


EQUATIONS = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)]),
    ("bij,bkj->bik", [(5, 2, 3), (5, 4, 3)]),
    ("i,i->", [(3,), (3,)]),
    ("i,j->ij", [(3,), (4,)]),
    ("ij->ji", [(2, 3)]),
    ("ij->", [(2, 3)]),
    ("ij->i", [(2, 3)]),
    ("ii->i", [(3, 3)]),
    ("ii", [(3, 3)]),
    ("iij->j", [(3, 3, 2)]),
    ("ba", [(2, 3)]),
    ("...ij,...jk->...ik", [(5, 1, 2, 3), (4, 3, 2)]),
    ("...i,...i", [(2, 3), (1, 3)]),
    ("i...->...i", [(2, 3, 4)]),
    ("...ij->...", [(2, 3, 4)]),
    ("b...->...", [(2, 3)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
    ("ij,kj,lj->ikl", [(2, 3), (4, 3), (5, 3)]),
    ("ij,ij->", [(1, 3), (2, 3)]),
    ("ij,ij->i", [(5, 3), (5, 3)]),
    ("ij,ji->j", [(3, 5), (5, 3)]),
    ("bhid,bhid->hb", [(2, 3, 4, 2), (2, 3, 4, 2)]),
    ("ij,ij->i", [(5, 3), (1, 3)]),
    ("ij,ij->i", [(5, 1), (5, 3)]),
    ("ijk,ijk->i", [(1, 3, 2), (4, 1, 2)]),
    ("ij,ij,ij->i", [(4, 3), (4, 3), (4, 3)]),
    ("ij,jk->ik", [(2, 1), (4, 3)]),
    ("ij,j->ij", [(2, 3), (3,)]),
    ("ijk,il,jl->kl", [(2, 3, 4), (2, 5), (3, 5)]),
    ("ab,cd->", [(2, 3), (4, 5)]),
    ("bhid,bhjd->bhij", [(2, 2, 3, 4), (2, 2, 5, 4)]),
    (" i j , j k -> i k ", [(2, 3), (3, 4)]),
    ("ij,jk->ik", [(0, 3), (3, 4)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_einsum(equation, shapes):
    arrays = [sample(*shape) for shape in shapes]
    agree(lambda T, *t: T.einsum(equation, *t), *arrays)
    agree(lambda T, *t: T.einsum(equation, list(t)), *arrays)
    agree_in_gradients(lambda T, *t: T.einsum(equation, *t), *arrays)


KINDS = ["bool", "uint8", "int16", "int32", "int64", "float32", "float64"]


@pytest.mark.parametrize(
    "equation", ["ij,ij->i", "ij,ij->", "ij,kj->ik", "bij,bij->b", "ij,ij->ij"]
)
@pytest.mark.parametrize("left", KINDS)
def test_dtypes_of_einsum(equation, left):
    """Sums of products have the dtype of what is multiplied, which is one."""
    shape = (2, 3, 4)[: len(equation.split(",", maxsplit=1)[0])]
    for right in KINDS:
        x, y = sample(*shape).astype(left), sample(*shape).astype(right)
        is_summed = equation != "ij,ij->ij"
        if is_summed and (left != right or left == "bool"):
            if equation in ("ij,ij->i", "bij,bij->b"):
                agree_in_error(lambda T, s, t: T.einsum(equation, s, t), x, y)
            else:  # a product of two matrices, with a text of its own
                with pytest.raises((NotImplementedError, RuntimeError), match=r"Bool|same dtype"):
                    adjit.einsum(equation, adjit.tensor(x), adjit.tensor(y))
        else:
            agree(lambda T, s, t: T.einsum(equation, s, t), x, y)


def test_einsum_of_the_same_axes_is_a_tensor_of_its_own():
    x = adjit.ones(2, 3, requires_grad=True)
    assert adjit.einsum("ij->ij", x) is not x
    assert adjit.einsum("ij->ij", x).grad_fn is not None


def test_einsum_by_lists():
    x, y = sample(2, 3), sample(3, 4)
    agree(lambda T, x, y: T.einsum(x, [0, 1], y, [1, 2], [0, 2]), x, y)
    agree(lambda T, x, y: T.einsum(x, [0, 51], y, [51, 2]), x, y)
    agree(lambda T, x: T.einsum(x, [..., 1], [1, ...]), x)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3)]),
        ("ij", [(2, 3), (2, 3)]),
        ("ijk", [(2, 3)]),
        ("i", [(2, 3)]),
        ("i.j", [(2, 3)]),
        ("...i...", [(2, 3)]),
        ("i1", [(2, 3)]),
        ("ij->ik", [(2, 3)]),
        ("ij->ii", [(2, 3)]),
        ("ij->i1", [(2, 3)]),
        ("ij->......", [(2, 3)]),
        ("ij->..", [(2, 3)]),
        ("ii", [(2, 3)]),
        ("ij,jk", [(2, 3), (4, 5)]),
        ("...i,...i", [(2, 4), (3, 4)]),
        ("ij->", []),
    ],
)
def test_einsum_errors(equation, shapes):
    agree_in_error(lambda T, *t: T.einsum(equation, *t), *[sample(*shape) for shape in shapes])


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("matmul", [(2, 3), (4, 5)]),
        ("matmul", [(2,), (3,)]),
        ("matmul", [(), (3,)]),
        ("matmul", [(3,), ()]),
        ("matmul", [(3, 2, 3), (2,)]),
        ("matmul", [(3, 2, 3), (4, 3, 2)]),
        ("matmul", [(3, 2, 3), (3, 4, 2)]),
        ("matmul", [(3,), (3, 4, 2)]),
        ("matmul", [(3, 2, 3), (2, 2)]),
        ("matmul", [(2, 3), (5, 2, 2)]),
        ("mm", [(2,), (2,)]),
        ("mm", [(2, 2), (2,)]),
        ("mm", [(2, 3), (2, 3)]),
        ("bmm", [(2, 3), (2, 3)]),
        ("bmm", [(2, 3, 4), (2, 3)]),
        ("bmm", [(2, 3, 4), (3, 4, 3)]),
        ("bmm", [(2, 3, 4), (2, 3, 3)]),
        ("mv", [(2, 3), (2,)]),
        ("mv", [(2,), (2,)]),
        ("dot", [(2, 3), (2,)]),
        ("dot", [(2,), (3,)]),
        ("vdot", [(2,), (3,)]),
        ("inner", [(2, 3), (3, 2)]),
        ("outer", [(2, 2), (2,)]),
        ("ger", [(2,), (2, 2)]),
        ("addr", [(2, 2), (2, 2), (2,)]),
        ("addmm", [(2, 2), (2, 3), (2, 2)]),
        ("addmm", [(3,), (2, 3), (3, 2)]),
        ("addmm", [(2,), (2,), (3, 2)]),
        ("addmm", [(2,), (2, 3), (2,)]),
        ("addmv", [(3,), (2, 3), (3,)]),
        ("addmv", [(2,), (2, 3), (2,)]),
        ("addmv", [(2, 2), (2, 3), (3,)]),
        ("addbmm", [(2, 2), (4, 2, 3), (4, 3, 1)]),
        ("addbmm", [(2, 1), (4, 2, 3), (3, 3, 1)]),
        ("addbmm", [(2, 1), (4, 2, 3), (4, 2, 1)]),
        ("baddbmm", [(2, 2), (4, 2, 3), (4, 3, 3)]),
        ("baddbmm", [(2, 2), (4, 2, 3), (3, 3, 2)]),
        ("chain_matmul", [(2, 3), (4,)]),
    ],
)
@pytest.mark.filterwarnings("ignore:torch.chain_matmul is deprecated")
def test_errors_of_shape(name, shapes):
    agree_in_error(lambda T, *t: getattr(T, name)(*t), *[sample(*shape) for shape in shapes])


@pytest.mark.parametrize(
    ("name", "shapes"),
    [("mm", [(2, 3), (3, 2)]), ("bmm", [(2, 2, 3), (2, 3, 2)]), ("mv", [(2, 3), (3,)]),
     ("dot", [(3,), (3,)]), ("matmul", [(5, 2, 3), (5, 3, 2)])],
)  # fmt: skip
@pytest.mark.parametrize("kinds", [(np.float32, np.float64), (np.bool_, np.bool_),
                                   (np.int64, np.int32)])  # fmt: skip
def test_errors_of_dtype(name, shapes, kinds):
    arrays = [sample(*shape).astype(kind) for shape, kind in zip(shapes, kinds, strict=True)]
    agree_in_error(lambda T, *t: getattr(T, name)(*t), *arrays)


def test_errors_of_contractions():
    agree_in_error(lambda T, x, y: T.tensordot(x, y, 5), sample(2, 3), sample(3, 4))
    agree_in_error(lambda T, x, y: T.tensordot(x, y, -1), sample(2, 3), sample(3, 4))
    agree_in_error(lambda T, x, y: T.tensordot(x, y, 1), sample(2, 3), sample(4, 4))
    agree_in_error(lambda T, x, y: T.tensordot(x, y, ([0, 1], [1])), sample(2, 3), sample(4, 4))
    agree_in_error(lambda T, x: T.linalg.multi_dot([x]), sample(2, 3))
    agree_in_error(lambda T, x, y: T.linalg.multi_dot([x, y]), sample(2, 3), sample(2, 3))
    agree_in_error(lambda T, x: x @ 5, sample(2, 3))
    agree_in_error(lambda T, x: T.mm(x, 5), sample(2, 3))


def test_names_of_backward_functions():
    for name, shapes, expected in [
        ("mm", [(2, 3), (3, 2)], "MmBackward0"),
        ("bmm", [(2, 2, 3), (2, 3, 2)], "BmmBackward0"),
        ("mv", [(2, 3), (3,)], "MvBackward0"),
        ("dot", [(3,), (3,)], "DotBackward0"),
        ("addmm", [(2,), (2, 3), (3, 2)], "AddmmBackward0"),
        ("baddbmm", [(1,), (2, 2, 3), (2, 3, 2)], "BaddbmmBackward0"),
        ("outer", [(2,), (3,)], "MulBackward0"),
    ]:
        found = backward_name(
            lambda T, *t, n=name: getattr(T, n)(*t), *[sample(*shape) for shape in shapes]
        )
        assert found == expected


def test_only_needed_factors_are_saved():
    x, w = adjit.ones(2, 3), adjit.ones(3, 2, requires_grad=True)
    out = adjit.mm(x, w)
    w.detach().add_(1)  # the gradient of w reads x alone
    out.sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), np.full((3, 2), 2.0))


VECTOR_LENGTHS = [1, 9, 10, 31, 32, 100, 1030, 2048, 4100]  # around the limits of the kernels


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", VECTOR_LENGTHS)
@pytest.mark.parametrize("rows", [1, 3, 4, 9, 33, 70])
def test_a_matrix_by_a_vector(rows, columns, dtype):
    """By rows and by columns, with gaps, of dense vectors and others; all exact."""
    x = sample(rows, columns + 3, dtype=dtype)
    v, w = sample(2 * columns, dtype=dtype), sample(3 * rows, dtype=dtype)
    a, dense, apart = adjit.tensor(x)[:, :columns], adjit.tensor(v)[:columns], adjit.tensor(v)[::2]
    for vector in (dense, apart):
        expected = x[:, :columns] @ vector.numpy()
        np.testing.assert_array_equal((a @ vector).numpy(), expected)
        np.testing.assert_array_equal((a.contiguous() @ vector).numpy(), expected)
        by_columns = a.t().contiguous().t()
        np.testing.assert_array_equal((by_columns @ vector).numpy(), expected)
        np.testing.assert_array_equal((a @ vector[:, None]).numpy(), expected[:, None])
    for vector in (adjit.tensor(w)[:rows], adjit.tensor(w)[::3]):
        expected = vector.numpy() @ x[:, :columns]
        np.testing.assert_array_equal((a.t() @ vector).numpy(), expected)
        np.testing.assert_array_equal((vector @ a).numpy(), expected)
        np.testing.assert_array_equal((vector[None] @ a).numpy(), expected[None])


@pytest.mark.parametrize("shape", [(4200, 5), (700, 40), (37, 5000), (9000, 33)])
def test_an_element_of_a_matrix_by_a_vector_does_not_depend_on_the_cut(shape):
    """Nor on the other rows: the same bits in a part of the matrix, and on any number of threads."""
    x, v = adjit.randn(*shape), adjit.randn(shape[1])
    by_columns = x.t().contiguous().t()
    whole, other = (x @ v).tolist(), (by_columns @ v).tolist()
    np.testing.assert_allclose(whole, x.double().numpy() @ v.double().numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(other, whole, rtol=1e-4, atol=1e-4)
    for first, last in [(0, 1), (1, 7), (3, 30), (shape[0] - 5, shape[0])]:
        assert (x[first:last] @ v).tolist() == whole[first:last]
        assert (by_columns[first:last] @ v).tolist() == other[first:last]
    before = adjit.get_num_threads()
    try:
        for threads in (1, 2, 3):
            adjit.set_num_threads(threads)
            assert (x @ v).tolist() == whole
            assert (by_columns @ v).tolist() == other
    finally:
        adjit.set_num_threads(before)


@pytest.mark.parametrize("special", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_in_its_row(special):
    for columns in (5, 40, 1100):
        x, v = adjit.ones(9, columns), adjit.ones(columns)
        x[4, columns - 1] = special
        for matrix in (x, x.t().contiguous().t()):
            found = (matrix @ v).numpy()
            expected = np.full(9, columns, np.float32)
            expected[4] = special
            np.testing.assert_array_equal(found, expected)


def test_a_matrix_without_a_dense_axis_by_a_vector():
    agree(lambda T, x, v: x[:, ::2] @ v, sample(6, 8), sample(4))
    agree(lambda T, x, v: x.unfold(0, 4, 1) @ v, sample(9), sample(4))
    agree(lambda T, x, v: x.expand(5, 4) @ v, sample(4), sample(4))
    agree(lambda T, x, v: x.t().expand(3, 5) @ v, sample(5, 1), sample(5))


@pytest.mark.parametrize("part", [(0, 5), (3, 10), (6, 13), (15, 30), (0, 43)])
@pytest.mark.parametrize("columns", [5, 40, 1100])
def test_a_matrix_by_a_vector_writes_its_part_and_nothing_else(columns, part):
    x, v = sample(43, columns), sample(columns)
    by_columns = np.ascontiguousarray(x.T)
    for kernel, matrix, step, unit in [
        (matrix_vector.rows_by_vector, x, columns, 1),
        (matrix_vector.columns_by_vector, by_columns, 43, matrix_vector.COLUMNS_OF_A_UNIT),
    ]:
        out = np.full(43 + 16, -1.5)
        row = [matrix.ctypes.data, v.ctypes.data, out.ctypes.data, 43, columns, step, 1]
        words = np.array(row, np.int64)
        first, last = part[0] // unit, -(-part[1] // unit)
        run = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)
        run(cache.link(cache.instantiate(kernel, {"T": adjit.float64})))(
            words.ctypes.data, first, last
        )
        inside = slice(first * unit, min(last * unit, 43))
        np.testing.assert_array_equal(out[inside], (x @ v)[inside])
        out[inside] = -1.5
        assert (out == -1.5).all()


@pytest.mark.parametrize("part", [(0, 5), (3, 10), (6, 13), (0, 43), (40, 90), (100, 258)])
@pytest.mark.parametrize("columns", [10, 40, 2100])
@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
def test_batches_of_a_few_vectors_write_their_part_and_nothing_else(vectors, columns, part):
    x, v = sample(2, 43, columns + 3), sample(2, 3, vectors, columns + 2)
    out = np.full((6, vectors, 43), -1.5)
    steps = columns + 3, columns + 2, vectors, 3, x[0].size, 0, v[0].size, v[0, 0].size
    row = [x.ctypes.data, v.ctypes.data, out.ctypes.data, 43, columns, *steps]
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)
    kernel = cache.instantiate(matrix_vector.rows_by_vectors, {"T": adjit.float64})
    run(cache.link(kernel))(np.array(row, np.int64).ctypes.data, *part)
    expected = v[..., :columns] @ x[:, None, :, :columns].swapaxes(2, 3)
    found, there = out.swapaxes(1, 2).reshape(258, -1), slice(*part)
    exact = expected.reshape(6, vectors, 43).swapaxes(1, 2).reshape(258, -1)
    np.testing.assert_allclose(found[there], exact[there], rtol=0, atol=1e-12)
    found[there] = -1.5
    assert (found == -1.5).all()


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("depth", [9, 10, 64])
def test_batches_of_a_few_rows_lie_in_any_way(rows, depth):
    """As queries and keys of attention do: heads between positions, shared, side by side."""
    x, y = sample(2, 3, rows, depth), sample(2, 3, 33, depth)
    turned = sample(2, 33, 3, depth)
    agree_in_gradients(lambda T, x, y: x @ y.transpose(2, 3), x[:, :, :, :10], y[:, :, :5, :10])
    agree(lambda T, x, y: x @ y.transpose(2, 3), x, y)
    agree(lambda T, x, y: x @ y.transpose(1, 2).transpose(2, 3), x, turned)
    agree(lambda T, x, y: x @ y[0, :1].transpose(1, 2), x, y)
    agree(lambda T, x, y: x[:1, :1] @ y.transpose(2, 3), x, y)
    agree(lambda T, x, y: x[:, :, :, ::2] @ y[:, :, :, ::2].transpose(2, 3), x, y)
    agree(lambda T, x, y: x.transpose(0, 1) @ y.transpose(0, 1).transpose(2, 3), x, y)


def test_products_of_depth_one_are_those_of_elements():
    """Also in the sign of zeros, as PyTorch's."""
    for shapes in (
        ((3, 1), (1, 4)),
        ((2, 3, 1), (2, 1, 4)),
        ((5, 2, 1), (1, 3)),
        ((1, 1), (1, 1)),
        ((200, 1), (1, 90)),
    ):
        x, y = (sample(*s) for s in shapes)
        x.flat[0], y.flat[0] = -1.0, 0.0
        found = (adjit.tensor(x) @ adjit.tensor(y)).numpy()
        np.testing.assert_array_equal(found, x * y)
        assert np.signbit(found).tolist() == np.signbit(x * y).tolist()
        agree_in_gradients(lambda T, x, y: x @ y, x, y)
        back = tuple(reversed(range(x.ndim)))
        turned = adjit.tensor(x.transpose().copy()).permute(back) @ adjit.tensor(y)
        assert turned.is_contiguous()
        assert turned.numpy().tobytes() == found.tobytes()
    bias, x, y = sample(90), sample(200, 1), sample(1, 90)
    agree(lambda T, b, x, y: T.addmm(b, x, y, beta=2, alpha=3), bias, x, y)


@pytest.mark.parametrize("columns", range(1, 14))
def test_rows_by_a_few_columns(columns):
    """By a weight, whose numbers lie in the order in which they are summed, or as they lie otherwise."""
    for rows, depth, dtype in ((5, 130, "float32"), (33, 65, "float32"), (700, 130, "float64")):
        x, w, b = (sample(*s).astype(dtype) for s in ((rows, depth), (columns, depth), (columns,)))
        agree(lambda T, x, w: x @ w.T, x, w)
        agree(lambda T, x, w, b: T.nn.functional.linear(x, w, b), x, w, b)
        agree(lambda T, x, w: x[1:, 3:] @ w.T[3:], x, w)
        agree(lambda T, x, w: x[:1].expand(x.shape) @ w.T, x, w)
        agree(lambda T, x, w: x.T.contiguous().T @ w.T, x, w)
        agree(lambda T, x, w: x @ w.T.contiguous(), x, w)
        agree(lambda T, x, w: T.stack([x, x + 1, x]) @ w.T, x, w)
        agree(lambda T, x, w: T.stack([x, x + 1, x])[:, :, None] @ w.T, x, w)
        agree(lambda T, x, w: T.stack([x, x + 1]) @ T.stack([w, w - 1]).transpose(1, 2), x, w)
        agree(lambda T, x, w: T.stack([x, -x])[:, None] @ T.stack([w, -w, w]).transpose(1, 2), x, w)
        agree(lambda T, x, w: x @ T.stack([w, -w, w]).transpose(1, 2), x, w)
    agree_in_gradients(
        lambda T, x, w: x @ w.T, sample(9, 130).astype("d"), sample(columns, 130).astype("d")
    )


@pytest.mark.cpu
def test_a_few_columns_are_dot_products_where_that_takes_fewer_multiply_adds():
    def is_by_dots(rows: int, depth: int, columns: int) -> bool:
        weight = (depth, columns), (1, depth)
        plan = plan_few_columns(adjit.float32, (rows, depth), (depth, 1), *weight)
        return plan is not None

    lanes = gemm_tile.lanes_of(4)
    assert is_by_dots(100, 40 * lanes, 2)
    assert is_by_dots(100, 40 * lanes, lanes // 2)
    assert not is_by_dots(100, 40 * lanes, lanes + 1)
    assert not is_by_dots(100, 4, 2)


@pytest.mark.cpu
@pytest.mark.parametrize("columns", [3, 40, 300, 2100])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_few_rows_by_a_weight_are_those_rows_one_by_one(columns, dtype):
    """Bit for bit, with a bias and without, from matrices on that are not packed for them."""
    weight, x, bias = (
        rng.standard_normal(s).astype(dtype) for s in ((70, columns), (9, columns), 70)
    )
    large = columns * len(weight) >= products.APART
    T = adjit
    weight, x, bias = T.tensor(weight), T.tensor(x), T.tensor(bias)
    alone = T.stack([weight @ row for row in x])
    for count in range(1, products.FEW_ROWS + 1):
        for first in range(9 - count):
            rows = x[first : first + count]
            if columns >= matrix_vector.NARROW:
                assert (rows @ weight.t()).equal(alone[first : first + count])
            if large:
                expected = alone[first : first + count] * 2 + bias * 0.5
                assert T.addmm(bias, rows, weight.t(), beta=0.5, alpha=2).equal(expected)
                found = T.nn.functional.linear(rows, weight, bias)
                assert found.equal(alone[first : first + count] + bias)
    exact = x.double() @ weight.double().t()
    T.testing.assert_close(alone.double(), exact, rtol=1e-4, atol=1e-4)
    if dtype == "float64":
        agree_in_gradients(
            lambda T, x, w, b: T.nn.functional.linear(x, w, b),
            sample(3, 10),
            sample(7, 10),
            sample(7),
        )


@pytest.mark.cpu
@pytest.mark.parametrize("rows", [2, 5, 32, 100, 257, 1300])
@pytest.mark.parametrize("columns", [513, 1100, 5000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_columns_by_a_vector_are_added_up_in_one_order(rows, columns, dtype):
    """Whether threads share the rows or runs of the columns."""
    x, v = (rng.standard_normal(s).astype(dtype) for s in ((columns, rows), columns))
    found = (adjit.tensor(x).T @ adjit.tensor(v)).numpy()
    exact = x.T.astype(np.float64) @ v.astype(np.float64)
    atol = {"float32": 1e-3, "float64": 1e-11}[dtype]
    np.testing.assert_allclose(found, exact, rtol=0, atol=atol)
    out = np.empty(rows, dtype)
    row = [x.ctypes.data, v.ctypes.data, out.ctypes.data, rows, columns, rows, 1]
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)
    kernel = cache.instantiate(matrix_vector.columns_by_vector, {"T": getattr(adjit, dtype)})
    units = -(-rows // matrix_vector.COLUMNS_OF_A_UNIT)
    run(cache.link(kernel))(np.array(row, np.int64).ctypes.data, 0, units)
    np.testing.assert_array_equal(found, out)
    np.testing.assert_array_equal((adjit.tensor(v)[None] @ adjit.tensor(x)).numpy()[0], out)


@pytest.mark.parametrize("count", [None, 0, 1, 4])
def test_matrices_of_powers(count):
    for x in (sample(3), np.array([2, -1, 3]), np.array([True, False])):
        agree(lambda T, x: T.vander(x, count), x)
        agree(lambda T, x: T.vander(x, N=count, increasing=True), x)
    if count is None or count > 1:  # PyTorch's backward raises
        x = adjit.tensor(sample(3), requires_grad=True)
        assert adjit.autograd.gradcheck(lambda x: adjit.vander(x, count), (x,))
        assert adjit.autograd.gradgradcheck(lambda x: adjit.vander(x, count), (x,))
    if count == 4:
        agree(lambda T, x: T.linalg.vander(x, N=count), sample(2, 3))
        agree(lambda T, x: T.linalg.vander(x, N=count), np.array(2.0))
        agree_in_gradients(lambda T, x: T.linalg.vander(x, N=count), sample(2, 3))
    if count in (0, 1):
        agree_in_error(lambda T, x: T.linalg.vander(x, N=count), sample(3))


def test_errors_of_matrices_of_powers():
    agree_in_error(lambda T, x: T.vander(x), sample(2, 3))
    agree_in_error(lambda T, x: T.vander(x, -1), sample(3))
    agree_in_error(lambda T, x: T.linalg.vander(x), np.array(2.0))
    agree_in_error(lambda T, x: T.linalg.vander(x), np.array([True, False]))


def test_norms_along_some_dimensions():
    x, g = sample(2, 3, 4), sample(2, 1, 1)
    for dim in (0, 1, 2, -1):
        agree_in_gradients(lambda T, x, dim=dim: T.norm_except_dim(x, 2, dim), x)
        agree(lambda T, x, dim=dim: T.norm_except_dim(x, pow=1, dim=dim), x)
    for dim in (1, (0, 2), ()):
        agree(lambda T, x, dim=dim: T.frobenius_norm(x, dim), x)
    agree_in_gradients(lambda T, x, g: T._weight_norm(x, g), x, g, order=1)
    leaves = [adjit.tensor(t, requires_grad=True) for t in (x, g)]
    assert adjit.autograd.gradgradcheck(adjit._weight_norm, leaves)  # PyTorch's are wrong
    agree_in_error(lambda T, x: T.norm_except_dim(x, 2, 3), x)
    agree_in_error(lambda T, x: T.norm_except_dim(x), np.array([1, 2]))
    agree_in_error(lambda T, x: T.frobenius_norm(x, (0, 1, 2)), x)
    agree(lambda T, x: T.linalg.diagonal(x, offset=1), x)
    agree_in_error(lambda T, x: T.linalg.diagonal(x), sample(3))


def test_batches_in_two_dtypes_have_errors_in_the_words_of_mkl() -> None:
    """From 400 products of two matrices on, which PyTorch gives to MKL."""
    kinds = (np.float32, np.float64, np.int64, np.bool_)
    for size in (7, 8):
        for first in kinds:
            for second in kinds:
                pair = np.ones((2, size, size), first), np.ones((2, size, size), second)
                if first is not second or first is np.bool_:
                    agree_in_error(lambda T, a, b: T.bmm(a, b), *pair)
                    agree_in_error(lambda T, a, b: a @ b, *pair)
