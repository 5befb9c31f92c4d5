"""Joining, repeating, turning and padding beside PyTorch: values, gradients, errors."""

from __future__ import annotations

import ctypes
import importlib
import itertools
import warnings

import numpy as np
import pytest
from adjit.kernels.ops import shape
from against_torch import agree, agree_in_error, agree_in_gradients, backward_name, plain, torch
from hypothesis import given, settings
from hypothesis import strategies as st

import adjit
from adjit import errors
from adjit.ops import layouts
from adjit.schedule.jit import cache


def numbers(*shape: int, dtype: type = np.float64) -> np.ndarray:
    """Different numbers."""
    return np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(dtype)


def pad(T, *args, **options):
    """The library's `nn.functional.pad`."""
    return importlib.import_module(f"{T.__name__}.nn.functional").pad(*args, **options)


# Calls with the shapes of their arguments; each is differentiable in all of them.
CALLS = {
    "cat": (lambda T, x, y: T.cat([x, y]), [(2, 3), (1, 3)]),
    "cat along the last axis": (lambda T, x, y: T.cat((x, y, x), -1), [(2, 3), (2, 1)]),
    "cat of parts": (lambda T, x, y: T.cat([x[:, 1:], y.t()], 1), [(2, 3), (4, 2)]),
    "cat of nothing": (lambda T, x, y: T.cat([x, y]), [(0, 3), (2, 3)]),
    "concat": (lambda T, x: T.concat([x]), [(2,)]),
    "stack": (lambda T, x, y: T.stack([x, y, x]), [(2, 3), (2, 3)]),
    "stack behind": (lambda T, x, y: T.stack([x, y], -1), [(2, 3), (2, 3)]),
    "stack of numbers": (lambda T, x, y: T.stack([x, y]), [(), ()]),
    "hstack": (lambda T, x, y: T.hstack([x, y]), [(2,), (3,)]),
    "hstack of matrices": (lambda T, x, y: T.hstack([x, y]), [(2, 3), (2, 1)]),
    "vstack": (lambda T, x, y: T.vstack([x, y]), [(3,), (2, 3)]),
    "dstack": (lambda T, x, y: T.dstack([x, y]), [(3,), (1, 3)]),
    "column_stack": (lambda T, x, y: T.column_stack([x, y]), [(3,), (3, 2)]),
    "block_diag": (lambda T, x, y, z: T.block_diag(x, y, z), [(2, 3), (2,), ()]),
    "repeat": (lambda T, x: x.repeat(2, 3), [(2, 3)]),
    "repeat with more axes": (lambda T, x: x.repeat(4, 1, 2), [(3,)]),
    "repeat not at all": (lambda T, x: x.repeat(0, 2), [(3,)]),
    "repeat a number": (lambda T, x: x.repeat(3), [()]),
    "tile": (lambda T, x: x.tile(2), [(2, 3)]),
    "tile of a column": (lambda T, x: T.tile(x, (2, 2, 2)), [(2, 1)]),
    "repeat_interleave": (lambda T, x: x.repeat_interleave(2), [(2, 3)]),
    "repeat_interleave along": (lambda T, x: x.repeat_interleave(3, dim=-1), [(2, 3)]),
    "repeat_interleave by tensor": (
        lambda T, x: T.repeat_interleave(x, T.tensor([2, 0, 1]), dim=1), [(2, 3)]),
    "flip": (lambda T, x: T.flip(x, [0, -1]), [(2, 3, 4)]),
    "flip of columns": (lambda T, x: x.t().flip(0), [(2, 3)]),
    "flip of nothing": (lambda T, x: x.flip(0), [(0, 3)]),
    "flip no axis": (lambda T, x: x.flip([]), [(2, 3)]),
    "fliplr": (lambda T, x: T.fliplr(x), [(2, 3)]),
    "flipud": (lambda T, x: T.flipud(x), [(3,)]),
    "roll": (lambda T, x: x.roll(2), [(2, 3)]),
    "roll along": (lambda T, x: x.roll((-1, 5), (0, 1)), [(2, 3)]),
    "roll nothing": (lambda T, x: x.roll(1, 0), [(0, 3)]),
    "rot90": (lambda T, x: T.rot90(x), [(2, 3)]),
    "rot90 twice": (lambda T, x: x.rot90(2, [1, 2]), [(2, 3, 2)]),
    "rot90 back": (lambda T, x: x.rot90(-1, [0, 2]), [(2, 3, 2)]),
    "rot90 around": (lambda T, x: x.rot90(4), [(2, 3)]),
    "tril": (lambda T, x: x.tril(), [(3, 4)]),
    "tril above": (lambda T, x: T.tril(x, 2), [(2, 4, 3)]),
    "tril below": (lambda T, x: T.tril(x, -5), [(3, 4)]),
    "tril of columns": (lambda T, x: x.t().tril(-1), [(3, 4)]),
    "triu": (lambda T, x: x.triu(), [(4, 3)]),
    "triu above": (lambda T, x: T.triu(x, 1), [(2, 3, 4)]),
    "triu below": (lambda T, x: T.triu(x, -9), [(3, 4)]),
    "diag of a vector": (lambda T, x: T.diag(x, 1), [(3,)]),
    "diag of a matrix": (lambda T, x: T.diag(x, -1), [(3, 4)]),
    "diag_embed": (lambda T, x: T.diag_embed(x), [(2, 3)]),
    "diag_embed in front": (lambda T, x: T.diag_embed(x, -1, 0, 2), [(2, 3)]),
    "diagflat": (lambda T, x: T.diagflat(x, 1), [(2, 2)]),
    "trace": (lambda T, x: x.trace(), [(3, 4)]),
    "diagonal_scatter": (lambda T, x, y: x.diagonal_scatter(y, 1), [(3, 4), (3,)]),
    "select_scatter": (lambda T, x, y: x.select_scatter(y, 1, -1), [(3, 4), (3,)]),
    "slice_scatter": (lambda T, x, y: x.slice_scatter(y, 1, 1, 4, 2), [(3, 4), (3, 2)]),
    "meshgrid": (lambda T, x, y: T.meshgrid(x, y, indexing="ij"), [(2,), (3,)]),
    "meshgrid of pictures": (
        lambda T, x, y, z: T.meshgrid([x, y, z], indexing="xy"), [(2,), (3,), ()]),
    "cartesian_prod": (lambda T, x, y: T.cartesian_prod(x, y), [(2,), (3,)]),
    "combinations": (lambda T, x: T.combinations(x), [(4,)]),
    "combinations with repeats": (lambda T, x: T.combinations(x, 3, True), [(3,)]),
    "broadcast_tensors": (lambda T, x, y: T.broadcast_tensors(x, y), [(3,), (2, 1)]),
    "atleast_1d": (lambda T, x: T.atleast_1d(x), [()]),
    "atleast_2d": (lambda T, x, y: T.atleast_2d(x, y), [(), (3,)]),
    "atleast_3d": (lambda T, x, y, z: T.atleast_3d([x, y, z]), [(), (3,), (2, 3)]),
    "pad": (lambda T, x: pad(T, x, (1, 2)), [(2, 3)]),
    "pad two axes": (lambda T, x: pad(T, x, (1, 0, 0, 2), value=3.5), [(2, 3)]),
    "pad by cutting": (lambda T, x: pad(T, x, (-1, 2, 1, -1)), [(2, 3)]),
    "pad by cutting all": (lambda T, x: pad(T, x, (-2, -1)), [(2, 3)]),
    "pad by reflection": (lambda T, x: pad(T, x, (2, 1), mode="reflect"), [(2, 3)]),
    "pad a picture": (lambda T, x: pad(T, x, (1, 1, 2, 0), mode="reflect"), [(1, 2, 3, 4)]),
    "pad by replication": (lambda T, x: pad(T, x, (4, 1), mode="replicate"), [(2, 3)]),
    "pad around": (lambda T, x: pad(T, x, (3, 1), mode="circular"), [(2, 2, 3)]),
    "cross": (lambda T, x, y: T.cross(x, y), [(2, 3), (2, 3)]),
    "cross along": (lambda T, x, y: x.cross(y, dim=0), [(3, 2), (3, 2)]),
    "linalg.cross": (lambda T, x, y: T.linalg.cross(x, y), [(2, 3), (1, 3)]),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients(name):
    call, shapes = CALLS[name]
    arrays = [np.asarray(numbers(*shape) * (1 - 2 * k)) for k, shape in enumerate(shapes)]
    agree(call, *arrays)
    agree(call, *[a.astype(np.int32) for a in arrays])
    agree_in_gradients(call, *arrays)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.int16, np.uint8, np.bool_])
def test_dtypes(dtype):
    x = (numbers(3, 4) % 2).astype(dtype)
    agree(
        lambda T, x: (
            x.flip(0),
            x.tril(),
            T.cat([x, x]),
            T.diag_embed(x),
            x.roll(1),
            x.repeat(2, 1),
        ),
        x,
    )


def test_cat_promotes():
    kinds = [np.int32, np.float32, np.float64, np.bool_, np.uint8, np.int8]
    for left in kinds:
        for right in kinds:
            agree(lambda T, x, y: T.cat([x, y]), numbers(2, dtype=left), numbers(3, dtype=right))
            agree(lambda T, x, y: T.stack([x, y]), numbers(2, dtype=left), numbers(2, dtype=right))
    agree_in_gradients(lambda T, x, y: T.cat([x, y]), numbers(2), numbers(3, dtype=np.int64))


def test_empty_vectors_are_passed_over():
    agree(lambda T, x: T.cat([T.empty(0), x, T.empty(0)]), numbers(2, 3))
    agree(lambda T, x: T.cat([T.empty(0), T.empty(0)]), numbers(2, 3))
    agree(
        lambda T, x: T.cat([T.empty(0, dtype=T.float64), x, T.empty(0)]),
        numbers(2, 3, dtype=np.float32),
    )
    for dim in (0, -1):

        def joined(T, x, nothing, y, dim=dim):
            return T.cat([nothing, x, nothing, y, x * 2], dim)

        agree_in_gradients(joined, numbers(2, 3), np.zeros(0), numbers(2, 3))
        agree(
            lambda T, x, dim=dim: T.func.vmap(lambda x: T.cat([T.empty(0), x, x], dim))(x),
            numbers(4, 2, 3),
        )
    agree(
        lambda T, x, y: T.func.vmap(lambda x, y: T.cat([x, y]))(x, y),
        np.zeros((4, 0)),
        numbers(4, 2, 3),
    )
    agree_in_error(lambda T, x: T.cat([T.empty(0), x, T.ones(3, 2)]), numbers(2, 3))


@pytest.mark.parametrize("join", [adjit.cat, adjit.stack])
def test_an_axis_is_an_integer(join):
    parts = [adjit.ones(2), adjit.ones(2)]
    for dim, kind in [([0], "list"), (0.0, "float"), ("0", "str")]:
        join(parts, dim=0)
        with pytest.raises(TypeError, match=f"int, not {kind}"):
            join(parts, dim=dim)
    assert join(parts, dim=np.int64(0)).shape == join(parts).shape


def test_many_parts():
    parts = [numbers(n % 4, 3, dtype=np.float32) for n in range(70)]
    agree(lambda T, *t: T.cat(t), *parts)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_a_part_of_a_joined_tensor_is_written_alone(data):
    """Wherever work is cut: parts of rows, whole rows, narrow ones and none."""
    widest = data.draw(st.sampled_from([2, 40]))
    widths = data.draw(st.lists(st.integers(1, widest), min_size=2, max_size=6))
    rows = data.draw(st.sampled_from([1, 2, 30, 2 * shape.ROWS + 1]))
    lines = [width + data.draw(st.integers(0, 3)) for width in widths]
    wider = [numbers(rows, line, dtype=np.int32) for line in lines]
    parts = [a[:, :width] for a, width in zip(wider, widths, strict=True)]
    expected = np.concatenate(parts, 1).ravel()
    start = data.draw(st.integers(0, expected.size - 1))
    stop = data.draw(st.integers(start + 1, expected.size))
    count = next(size for size in shape.JOINS if size >= len(parts))
    layout = [sum(widths)]
    for k in range(count):
        layout += [sum(widths[:k]), *((widths[k], lines[k]) if k < len(widths) else (0, 0))]
    out = np.full(expected.size, -77, np.int32)
    filled = [*parts, *parts[-1:] * (count - len(parts))]
    words = np.array([*(a.ctypes.data for a in [*filled, out]), *layout], np.int64)
    source = cache.instantiate(shape.JOINS[count], {"T": adjit.int32})
    ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(cache.link(source))(
        words.ctypes.data, start, stop
    )
    np.testing.assert_array_equal(out[start:stop], expected[start:stop])
    out[start:stop] = -77
    assert (out == -77).all()


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_parts_of_other_tensors_are_joined_where_they_lie(data):
    axis = data.draw(st.integers(0, 2))
    rest = data.draw(st.tuples(*[st.integers(1, 4)] * 3))
    arrays, parts = [], []
    for n in data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=5)):
        sizes = (*rest[:axis], n, *rest[axis + 1 :])
        more = data.draw(st.tuples(*[st.integers(0, 2)] * 3))
        whole = numbers(*[size + extra for size, extra in zip(sizes, more, strict=True)])
        key = tuple([slice(extra, extra + size) for size, extra in zip(sizes, more, strict=True)])
        arrays.append(whole[key])
        how = data.draw(st.sampled_from(["part", "turned", "expanded"]))
        if how == "turned":
            parts.append(adjit.tensor(whole.T.copy()).permute(2, 1, 0)[key])
        elif how == "expanded" and sizes[0]:
            arrays[-1] = np.broadcast_to(arrays[-1][:1], sizes)
            parts.append(adjit.tensor(whole)[key][:1].expand(sizes))
        else:
            parts.append(adjit.tensor(whole)[key])
    np.testing.assert_array_equal(adjit.cat(parts, axis).numpy(), np.concatenate(arrays, axis))
    same = [(a, p) for a, p in zip(arrays, parts, strict=True) if a.shape == arrays[0].shape]
    piled = adjit.stack([p for _, p in same], axis).numpy()
    np.testing.assert_array_equal(piled, np.stack([a for a, _ in same], axis))


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_splitting_undoes_joining(data):
    sizes = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    axis = data.draw(st.integers(0, 2))
    rest = data.draw(st.tuples(*[st.integers(1, 3)] * 3))
    parts = [adjit.tensor(numbers(*rest[:axis], n, *rest[axis + 1 :])) for n in sizes]
    for part, again in zip(parts, adjit.cat(parts, axis).split(sizes, axis), strict=True):
        np.testing.assert_array_equal(part.numpy(), again.numpy())


@settings(max_examples=50, deadline=None)
@given(st.integers(-7, 7), st.integers(0, 2), st.tuples(*[st.integers(0, 4)] * 3))
def test_laws(shift, axis, shape):
    x = adjit.tensor(numbers(*shape))
    np.testing.assert_array_equal(x.flip(axis).flip(axis).numpy(), x.numpy())
    np.testing.assert_array_equal(x.roll(shift, axis).roll(-shift, axis).numpy(), x.numpy())
    np.testing.assert_array_equal(x.roll(shift, axis).numpy(), np.roll(x.numpy(), shift, axis))
    np.testing.assert_array_equal((x.tril(shift) + x.triu(shift + 1)).numpy(), x.numpy())


def test_indices_of_triangles():
    for rows, columns, offset in [(3, 3, 0), (2, 5, 1), (5, 2, -1), (0, 3, 0), (3, 3, 9)]:
        agree(lambda T, r=rows, c=columns, o=offset: T.tril_indices(r, c, o))
        agree(lambda T, r=rows, c=columns, o=offset: T.triu_indices(r, c, o))
    agree_in_error(lambda T: T.tril_indices(-3, 3))


def test_in_place():
    x = adjit.ones(3, 3)
    assert x.tril_() is x
    np.testing.assert_array_equal(x.numpy(), np.tril(np.ones((3, 3))))


def test_names_of_backward_functions():
    for key, name in [
        ("cat", "CatBackward0"), ("stack", "StackBackward0"), ("repeat", "RepeatBackward0"),
        ("flip", "FlipBackward0"), ("roll along", "RollBackward0"), ("rot90", "Rot90Backward0"),
        ("tril", "TrilBackward0"), ("diag_embed", "DiagEmbedBackward0"),
        ("block_diag", "BlockDiagBackward0"), ("pad", "ConstantPadNdBackward0"),
        ("cross", "LinalgCrossBackward0"), ("slice_scatter", "SliceScatterBackward0"),
        ("repeat_interleave by tensor", "IndexSelectBackward0"),
    ]:  # fmt: skip
        call, shapes = CALLS[key]
        assert backward_name(call, *[numbers(*shape) for shape in shapes]) == name


@pytest.mark.parametrize(
    "call",
    [
        lambda T, x: T.cat([]),
        lambda T, x: T.cat([x, x[0]]),
        lambda T, x: T.cat([x, x[:, :2]]),
        lambda T, x: T.cat([x[0, 0], x[0]]),
        lambda T, x: T.cat([x, x], 2),
        lambda T, x: T.cat(x),
        lambda T, x: T.cat([x, 3]),
        lambda T, x: T.stack([]),
        lambda T, x: T.stack([x, x[0]]),
        lambda T, x: T.stack([x, x], 3),
        lambda T, x: T.block_diag(T.ones(2, 2, 2)),
        lambda T, x: x.repeat(2),
        lambda T, x: x.repeat(2, -1),
        lambda T, x: x.repeat_interleave(-2),
        lambda T, x: x.repeat_interleave(T.tensor([1, 2, 3]), dim=0),
        lambda T, x: x.repeat_interleave(T.tensor([1, -2]), dim=0),
        lambda T, x: x.repeat_interleave(T.tensor([1.0, 2]), dim=0),
        lambda T, x: x.repeat_interleave(T.tensor([[1, 2]]), dim=0),
        lambda T, x: T.flip(x, [0, 0]),
        lambda T, x: T.flip(x, [2]),
        lambda T, x: T.fliplr(x[0]),
        lambda T, x: T.flipud(x[0, 0]),
        lambda T, x: T.roll(x, (1, 2), 0),
        lambda T, x: T.roll(x, (1, 2)),
        lambda T, x: T.rot90(x[0], 1, [0, 1]),
        lambda T, x: T.rot90(x, 1, [0]),
        lambda T, x: T.rot90(x, 1, [0, 0]),
        lambda T, x: T.rot90(x, 1, [0, 3]),
        lambda T, x: T.tril(x[0]),
        lambda T, x: T.diag(T.ones(2, 2, 2)),
        lambda T, x: T.diag_embed(x, 0, 0, 0),
        lambda T, x: T.diagonal_scatter(x, T.ones(3)),
        lambda T, x: T.select_scatter(x, T.ones(2), 0, 0),
        lambda T, x: T.select_scatter(x, T.ones(3), 0, 5),
        lambda T, x: T.slice_scatter(x, T.ones(2, 3), 0, 0, 1),
        lambda T, x: T.meshgrid(x[0], x[0].int(), indexing="ij"),
        lambda T, x: T.meshgrid(x[0], indexing="xx"),
        lambda T, x: T.cartesian_prod(x),
        lambda T, x: T.combinations(x),
        lambda T, x: T.combinations(x[0], -1),
        lambda T, x: T.broadcast_tensors(x[0], x[0, :2]),
        lambda T, x: pad(T, x, (1,)),
        lambda T, x: pad(T, x, (1, 1, 1, 1, 1, 1)),
        lambda T, x: pad(T, x, (-1, -3)),
        lambda T, x: pad(T, x, (4, 1), mode="reflect"),
        lambda T, x: pad(T, x, (4, 1), mode="circular"),
        lambda T, x: pad(T, x, (1, 1), mode="foo"),
        lambda T, x: pad(T, x, (1, 1), mode="reflect", value=2.0),
        lambda T, x: pad(T, x, (1, 1, 1, 1), mode="reflect"),
        lambda T, x: T.trace(x[0]),
        lambda T, x: T.cross(x[:, :2], x[:, :2]),
        lambda T, x: T.linalg.cross(x[:, :2], x[:, :2]),
        lambda T, x: T.linalg.cross(x, x[0]),
    ],
)
@pytest.mark.filterwarnings("ignore:Using torch.cross without")
def test_errors(call):
    agree_in_error(call, numbers(2, 3))


TURNED = {  # shapes, and the order of the axes in which they are copied
    "squares": ((32, 48), (1, 0)), "edges": ((40, 33), (1, 0)), "a batch": ((3, 40, 17), (0, 2, 1)),
    "channels last": ((2, 17, 5, 8), (0, 2, 3, 1)), "channels first": ((2, 5, 8, 17), (0, 3, 1, 2)),
    "a tile": ((16, 16), (1, 0)), "less than a tile": ((15, 40), (1, 0)),
    "ones": ((1, 20, 1, 30), (3, 2, 1, 0)),
    "two batches": ((2, 3, 40, 33), (0, 1, 3, 2)), "not dense": ((3, 20, 20), (1, 2, 0)),
    "more than one thread": ((700, 300), (1, 0)),
}  # fmt: skip


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "int64", "int32", "int16", "uint8", "bool"]
)
@pytest.mark.parametrize("name", TURNED)
def test_copies_of_turned_matrices(name, dtype):
    shape, order = TURNED[name]
    x = (np.random.default_rng(0).standard_normal(shape) * 50).astype(dtype)
    t = adjit.tensor(x)
    made = t.permute(order).contiguous()
    assert made.is_contiguous()
    np.testing.assert_array_equal(made.numpy(), x.transpose(order))
    part = t[..., 2:].permute(order).contiguous()  # neither dense nor at the beginning
    np.testing.assert_array_equal(part.numpy(), x[..., 2:].transpose(order))
    apart = t.unsqueeze(0).repeat(5, *[1] * t.ndim)[::2]  # dense matrices with gaps between them
    apart = apart.permute(0, *[d + 1 for d in order]).contiguous()
    np.testing.assert_array_equal(apart.numpy(), np.stack([x.transpose(order)] * 3))
    rest = t.reshape(-1, *shape[-2:])[-1].t().contiguous()  # dense, and not at the beginning
    np.testing.assert_array_equal(rest.numpy(), x.reshape(-1, *shape[-2:])[-1].T)


def test_turned_copies_in_a_graph():
    x = np.random.default_rng(0).standard_normal((40, 33))
    agree_in_gradients(lambda T, t: (t.t().contiguous() * 2).exp(), x)
    agree(lambda T, t: (t + 1).t().contiguous() * t.clone().t(), x)


def test_empty_vectors_that_are_passed_over_keep_their_history():
    nothing, x = adjit.ones(0, requires_grad=True), adjit.ones(2, 3)
    for tensors, dim in (([nothing, x], 1), ([x, nothing], 0), ([nothing, x[0]], 0)):
        joined = adjit.cat(tensors, dim)
        assert joined.requires_grad
        joined.sum().backward()
        assert nothing.grad.shape == (0,)
        nothing.grad = None


@pytest.mark.parametrize("cuts", [3, (2, 5)])
def test_parts_of_tensor_split_are_ordinary_views(cuts):
    x = adjit.arange(7.0, requires_grad=True)
    y = x * 1
    first, *_ = y.tensor_split(cuts)
    y.mul_(2)
    first.mul_(3)
    y.sum().backward()
    n = first.numel()
    assert x.grad.tolist() == [6.0] * n + [2.0] * (7 - n)


@pytest.mark.parametrize("dim", range(4))
@pytest.mark.parametrize("second", ["channels_last", "contiguous_format"])
def test_joined_images_lie_as_most_of_them_do(dim, second):
    shapes = [[3, 4, 5, 6], [3, 4, 5, 6]]
    shapes[1][dim] = 2
    arrays = [np.arange(np.prod(s), dtype=np.float64).reshape(s) for s in shapes]

    def leaf(a, layout):
        laid_out = adjit.tensor(a).contiguous(memory_format=getattr(adjit, layout))
        return laid_out.detach().requires_grad_()

    images = [leaf(arrays[0], "channels_last"), leaf(arrays[1], second)]
    joined = adjit.cat(images, dim)
    expected = np.concatenate(arrays, dim)
    assert layouts.channels_last(joined)
    # It is reported so where PyTorch's lies so: if all of them do.
    is_reported = second == "channels_last"
    assert joined.is_contiguous(memory_format=adjit.channels_last) is is_reported
    assert joined.is_contiguous() is not is_reported
    np.testing.assert_array_equal(joined.detach().numpy(), expected)
    (joined * adjit.tensor(expected)).sum().backward()
    for image, array in zip(images, arrays, strict=True):
        np.testing.assert_array_equal(image.grad.numpy(), array)
    assert adjit.cat([images[1].detach().contiguous()] * 2, dim).is_contiguous()


DEPRECATED = {
    "a grid without indexing": lambda T: T.meshgrid(T.arange(2), T.arange(3)),
    "T of a vector": lambda T: T.arange(3).T,
    "T of a batch": lambda T: T.ones(2, 3, 4).T,
    "T of a number": lambda T: T.tensor(1.0).T,
    "mT of a number": lambda T: T.tensor(1.0).mT,
    "mH of a number": lambda T: T.tensor(1.0).mH,
    "H of a number": lambda T: T.tensor(1.0).H,
    "adjoint of a number": lambda T: T.tensor(1.0).adjoint(),
    "cross without dim": lambda T: T.cross(T.eye(3), T.ones(3, 3)),
    "chain_matmul": lambda T: T.chain_matmul(T.ones(2, 3), T.ones(3, 2)),
}
UNWARNED = {
    "a grid": lambda T: T.meshgrid(T.arange(2), T.arange(3), indexing="ij"),
    "products of a grid": lambda T: T.cartesian_prod(T.arange(2), T.arange(3)),
    "T of a matrix": lambda T: T.ones(2, 3).T,
    "mT of a batch": lambda T: T.ones(2, 3, 4).mT,
    "cross with dim": lambda T: T.cross(T.eye(3), T.ones(3, 3), dim=0),
    "linalg.cross": lambda T: T.linalg.cross(T.eye(3), T.ones(3, 3)),
    "multi_dot": lambda T: T.linalg.multi_dot([T.ones(2, 3), T.ones(3, 2)]),
}


@pytest.mark.parametrize("name", [*DEPRECATED, *UNWARNED])
def test_deprecated_forms_warn_once(name):
    call = {**DEPRECATED, **UNWARNED}[name]
    errors.warn_once.cache_clear()
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # or it depends on what ran before
    try:
        found = []
        for T in (torch, adjit):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                call(T)
            found.append([(one.category, plain(one.message)) for one in caught])
    finally:
        torch.set_warn_always(before)
    assert found[0] == found[1]
    assert bool(found[0]) == (name in DEPRECATED)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(adjit)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64"])
@pytest.mark.parametrize(
    "sizes",
    [(5, 7, 2), (5, 7, 4), (4, 3, 8), (3, 70), (30, 2), (4, 5, 13), (2, 3, 40), (2, 300, 3)],
)
def test_flips_of_short_and_long_rows(sizes, dtype):
    """Rows that are moved as one element, by columns, as runs; of views that begin at an odd element."""
    count, axes = int(np.prod(sizes)), range(len(sizes))
    x = (np.arange(count + 1) % 101).astype(dtype)
    for dims in [c for n in (1, 2, 3) for c in itertools.combinations(axes, n)]:
        for first in (0, 1):

            def call(T, t, dims=dims, first=first):
                whole = t[first:][:count].view(sizes)
                return whole.flip(dims), whole[..., 1:].flip(dims)

            agree(call, x)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from([1, 1, 2, 3, 4, 13, 40]), min_size=2, max_size=4),
    st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 3)), min_size=1, max_size=3),
    st.sampled_from(["uint8", "float32", "float64"]),
)
def test_frames_of_any_width(sizes, widths, dtype):
    """Rows of few elements and of many, axes of one element, elements that are cut off."""
    kept = [(max(b, 1 - n), max(a, 0)) for (b, a), n in zip(widths, sizes[::-1], strict=False)]
    x = (np.arange(int(np.prod(sizes))) % 100 + 1).astype(dtype).reshape(sizes)
    agree(lambda T, t: pad(T, t, [w for pair in kept for w in pair], value=7), x)


MANY = {  # calls on so many elements that threads share them out, and begin inside of a matrix or a run of rows
    "flip of runs": (lambda T, x: x.flip(1), (37, 401, 40)),
    "flip of pairs": (lambda T, x: x.flip(1), (401, 701, 2)),
    "flip of threes": (lambda T, x: x.flip(1), (401, 301, 3)),
    "flip of lines": (lambda T, x: x.flip(0, 2), (401, 3, 301)),
    "frame": (lambda T, x: pad(T, x, (1, 2, 3, 1)), (401, 7, 101)),
    "frame of few": (lambda T, x: pad(T, x, (1, 2, 3, 1)), (401, 301, 2)),
    "tril": (lambda T, x: x.tril(-1), (101, 37, 101)),
    "cumsum": (lambda T, x: x.cumsum(1), (4001, 31, 3)),
    "cumprod": (lambda T, x: (x * 0.01).cumprod(1), (4001, 31, 3)),
    "cummax": (lambda T, x: x.cummax(1), (4001, 31, 3)),
    "logcumsumexp": (lambda T, x: (x * 0.1).logcumsumexp(1), (4001, 31, 3)),
    "gather": (lambda T, x: x.gather(2, x.argsort(2)), (401, 101, 9)),
}


@pytest.mark.parametrize("name", MANY)
def test_threads_may_begin_anywhere(name):
    call, sizes = MANY[name]
    x = np.random.default_rng(0).standard_normal(sizes)
    threads = adjit.get_num_threads()
    try:
        for count in (1, 3):
            adjit.set_num_threads(count)
            agree(call, x, rtol=1e-9)
    finally:
        adjit.set_num_threads(threads)
