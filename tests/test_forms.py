"""Calls in the forms that programs write them: arguments by name, `out` of another dtype, truncated ends."""

from __future__ import annotations

import numpy as np
import pytest
from against_torch import agree, agree_in_error, torch

import adjit

X = np.arange(6.0, dtype=np.float32).reshape(2, 3)
NAMED = {
    "permute": lambda T, x: T.permute(x, dims=(1, 0)),
    "permute, a method": lambda T, x: x.permute(dims=(1, 0)),
    "view": lambda T, x: x.view(size=(3, 2)),
    "view of a dtype": lambda T, x: x.view(dtype=T.float32),
    "reshape": lambda T, x: T.reshape(x, shape=(3, 2)),
    "expand": lambda T, x: x.expand(size=(2, 2, 3)),
    "repeat": lambda T, x: x.repeat(repeats=(2, 1)),
    "tile": lambda T, x: x.tile(dims=(2,)),
    "flip": lambda T, x: x.flip(dims=(0,)),
    "zeros": lambda T, x: T.zeros(size=(2, 3)),
    "ones": lambda T, x: T.ones(size=(2, 3), dtype=T.int64),
    "empty": lambda T, x: T.empty(size=(2, 3)).fill_(2),
    "new_zeros": lambda T, x: x.new_zeros(size=(4,)),
    "rand": lambda T, x: T.rand(size=(2, 3)) * 0,
    "randn": lambda T, x: T.randn(size=(2, 3)) * 0,
    "tensor_split": lambda T, x: T.tensor_split(x, sections=2, dim=1),
    "tensor_split at": lambda T, x: T.tensor_split(x, indices=(1,)),
    "tensor_split by a tensor": lambda T, x: T.tensor_split(x, T.tensor(2)),
    "atan2": lambda T, x: T.atan2(x, other=x + 1),
    "searchsorted": lambda T, x: T.searchsorted(x[0], self=1.5),
}


def into(T, place, make):
    """What a call leaves around a part of a tensor that is its `out`."""
    x = T.zeros(4, 3, dtype=T.float64)
    make(place(x))
    return x


FUNCTIONS = {
    "fill": lambda T, x: T.fill(x, 3),
    "fill_": lambda T, x: T.fill_(x.clone(), 3),
    "zero_": lambda T, x: T.zero_(x.clone()),
    "detach": lambda T, x: T.detach(x),
    "adjoint": lambda T, x: T.adjoint(x),
    "numel": lambda T, x: T.tensor(T.numel(x)),
    "is_floating_point": lambda T, x: T.tensor(T.is_floating_point(x)),
    "float_power_": lambda T, x: x.double().float_power_(2),
    "scalar_tensor": lambda T, x: T.scalar_tensor(3, device="cpu"),
    "special.softmax": lambda T, x: T.special.softmax(x, 1),
    "kthvalue into": lambda T, x: T.kthvalue(x, 2, out=(T.empty(0), T.empty(0, dtype=T.int64))),
    "aminmax into": lambda T, x: T.aminmax(x, dim=0, out=(T.empty(0), T.empty(0))),
    "broadcast_shapes": lambda T, x: T.zeros(T.broadcast_shapes(3, (2, 1))),
    "ravel": lambda T, x: T.ravel(x.view(-1)[::2]).view(3, 1),
    "any of no axes": lambda T, x: T.any(x > 0, dim=()),
}
CREATED = {
    "numbers with axes": lambda T: T.tensor([T.ones(1), T.ones(1, 1), T.tensor(2.0), 3]),
    "pairs of numbers with axes": lambda T: T.tensor([(T.tensor([1.5]), T.tensor([2]))]),
    "a row that is a tensor": lambda T: T.tensor([[1, 2], T.ones(2)]),
    "rows that are arrays": lambda T: T.tensor([np.ones(1), np.ones(1)]),
    "nothing along an axis": lambda T: T.cat([T.zeros(0), T.zeros(0)], 1),
    "what keeps its dtype": lambda T: T.Tensor(T.tensor([1, 2])),
    "arange into columns": lambda T: into(T, lambda x: x[:, 1:], lambda out: T.arange(8, out=out)),
    "range into columns": lambda T: into(T, lambda x: x[:, 1:], lambda out: T.range(0, 7, out=out)),
    "linspace into columns": lambda T: into(
        T, lambda x: x[:, 1:], lambda out: T.linspace(0, 1, 8, out=out)
    ),
    "logspace into columns": lambda T: into(
        T, lambda x: x[:, 1:], lambda out: T.logspace(0, 1, 8, out=out)
    ),
    "sums into a smaller part": lambda T: into(
        T, lambda x: x[1, :0], lambda out: T.add(T.ones(2, 3), 1, out=out)
    ),
    "sums into a larger part": lambda T: into(
        T, lambda x: x[1:], lambda out: T.add(T.ones(5), 1, out=out)
    ),
    "arrays": lambda T: T.asarray(np.arange(3)) + T.asarray(np.float32(2)),
    "bytes": lambda T: T.asarray(bytearray(b"abcd"), dtype=T.uint8),
    "bytes of floats": lambda T: T.asarray(np.arange(3, dtype=np.float32).data),
    "lists": lambda T: T.asarray([[1, 2]], dtype=T.float64, requires_grad=True),
    "linspace of whole numbers": lambda T: T.linspace(-2.5, 7, 9, dtype=T.int32),
    "logspace of whole numbers": lambda T: T.logspace(4.3, 7, 3, base=2, dtype=T.uint8),
    "arange of int32": lambda T: T.arange(1.0, 5.000001, 2.0, dtype=T.int32),
    "arange of int64": lambda T: T.arange(0.9, 4, dtype=T.int64),
    "the largest byte": lambda T: T.full((2,), -1, dtype=T.uint8),
    "linspace into": lambda T: T.linspace(0, 1, 4, out=T.empty(4, dtype=T.float64)),
    "logspace into": lambda T: T.logspace(0, 1, 4, out=T.empty(4, dtype=T.float64)),
    "arange into": lambda T: T.arange(0, 1, 0.1, out=T.empty(10, dtype=T.float64)),
    "full into": lambda T: T.full((2,), 0.1, out=T.empty(2, dtype=T.float64)),
    "zeros into": lambda T: T.zeros(2, out=T.ones(2, dtype=T.int64)),
    "eye into": lambda T: T.eye(2, out=T.ones(2, 2, dtype=T.int64)),
    "truth values": lambda T: T.addr(*[T.ones(n, dtype=T.bool) for n in ((2, 3), 2, 3)], alpha=2),
    "an empty index": lambda T: T.gather(T.ones(3), 0, T.tensor([])),
}
REFUSED = {
    "a dict": lambda T, x: T.tensor({0: 1}),
    "a set": lambda T, x: T.tensor({1}),
    "nothing among numbers": lambda T, x: T.tensor([1, None]),
    "a list of dicts": lambda T, x: T.tensor([{}]),
    "tensors of several elements in a list": lambda T, x: T.tensor([x, x]),
    "more elements than there are": lambda T, x: T.zeros(1).copy_(x[0]),
    "more columns than there are": lambda T, x: T.zeros(2, 1).copy_(x),
    "more axes than there are": lambda T, x: T.zeros(3).copy_(x[:1]),
    "a number from a vector": lambda T, x: T.zeros(()).copy_(x[0]),
    "places as floats": lambda T, x: T.nonzero(x, out=T.zeros(2)),
    "places as a tuple into one": lambda T, x: T.nonzero(
        x, as_tuple=True, out=T.zeros(2, dtype=T.int64)
    ),
    "bytes behind an offset": lambda T, x: T.frombuffer(bytearray(20), dtype=T.float32, offset=3),
    "lists to be shared": lambda T, x: T.asarray([1, 2], copy=False),
    "numbers to be shared": lambda T, x: T.asarray(np.float32(1), copy=False),
    "another dtype to be shared": lambda T, x: T.asarray(x, dtype=T.float64, copy=False),
    "an array of another dtype": lambda T, x: T.asarray(np.ones(2), dtype=T.float32, copy=False),
    "gradients of whole numbers": lambda T, x: T.asarray([1, 2], requires_grad=True),
    "fewer strides than sizes": lambda T, x: x.new_empty_strided((2,), ()),
    "negative strides": lambda T, x: T.empty_strided((2,), (-1,)),
    "another dtype": lambda T, x: T.zeros(2, dtype=T.float32, out=T.ones(2, dtype=T.int64)),
    "half a number below": lambda T, x: T.full((2,), -128.5, dtype=T.int8),
    "ends that are no numbers": lambda T, x: T.linspace(x[0], x[1], 3),
    "no end": lambda T, x: T.arange(0, float("inf")),
    "no columns": lambda T, x: T.eye(3, -3),
    "an axis of a number": lambda T, x: T.roll(x[0, 0], 1, 0),
    "slices of a number": lambda T, x: T.unbind(x[0, 0]),
    "a start between": lambda T, x: T.narrow(x, 0, T.tensor(1.0), 1),
    "a start behind": lambda T, x: T.narrow(x, 0, 9, 1),
    "an axis twice": lambda T, x: T.movedim(x, (0, -2), (0, 1)),
    "no such view": lambda T, x: x.view(0, -1),
    "weights of two axes": lambda T, x: T.prelu(x, x[:1]),
    "bounds that cross": lambda T, x: T.rrelu(x, 3.0, 1.0),
    "a number beside a tensor": lambda T, x: T.isclose(1, x),
    "a base that cannot hold it": lambda T, x: x.float_power_(2),
}


@pytest.mark.parametrize("name", NAMED)
def test_lists_are_taken_by_name(name: str) -> None:
    agree(NAMED[name], X)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_pytorch_has_too(name: str) -> None:
    agree(FUNCTIONS[name], X)


@pytest.mark.parametrize("name", CREATED)
def test_what_is_created(name: str) -> None:
    agree(CREATED[name], rtol=1e-15, atol=0)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    agree_in_error(REFUSED[name], X)


def test_a_list_is_given_once() -> None:
    for library in (adjit, torch):
        with pytest.raises((TypeError, RuntimeError)):
            library.zeros(2, size=(3,))
        with pytest.raises(TypeError):
            library.ones(2).flip(dim=(0,))


def test_what_any_of_no_axes_gives_is_memory_of_its_own() -> None:
    x = adjit.tensor([True, False])
    x.any(dim=()).fill_(True)
    assert x.tolist() == [True, False]


@pytest.mark.parametrize("order", [0.5, 1.5, 2, 3.5, -1])
def test_second_derivatives_of_norms_at_zero(order: float) -> None:
    found = []
    for library in (adjit, torch):
        x = library.zeros(3, dtype=library.float64, requires_grad=True)
        (slope,) = library.autograd.grad(library.linalg.vector_norm(x, order), x, create_graph=True)
        found.append(library.autograd.grad(slope.sum(), x)[0].numpy())
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("start", [0, 3, 5, 9])
def test_derivatives_of_a_region_beyond_the_elements_of_its_base(start: int) -> None:
    found = []
    for library in (adjit, torch):
        x = library.arange(15.0, dtype=library.float64)[5:11].detach().requires_grad_()
        y = x.as_strided((2, 2), (1, 3), start)
        g = library.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=library.float64, requires_grad=True)
        (slope,) = library.autograd.grad(y, x, g, create_graph=True)
        weights = library.arange(1.0, 7.0, dtype=library.float64)
        (back,) = library.autograd.grad(slope, g, weights)
        found.append((slope.detach().numpy(), back.numpy()))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


def test_an_argument_named_self_is_no_function() -> None:
    """Before its machine code is there a function is called through its type."""
    call = type(adjit.searchsorted).__call__
    assert call(adjit.searchsorted, adjit.tensor([1.0, 2.0]), self=1.5).item() == 1


BASES = {  # memory with gaps, or in another order
    "gaps": lambda T: T.arange(40.0).reshape(4, 10)[:, :4].detach(),
    "steps": lambda T: T.arange(48.0).reshape(4, 12)[:, ::3].detach(),
    "transposed": lambda T: T.arange(16.0).reshape(4, 4).t().detach(),
    "gaps, transposed": lambda T: (
        T.arange(320.0).reshape(4, 8, 10)[:, ::2, 1:5].detach().transpose(0, 2)
    ),
}
VIEWS = {
    "diagonal": lambda x: x.diagonal(),
    "diagonal above": lambda x: x.diagonal(1, 1, 0),
    "windows": lambda x: x.unfold(0, 2, 1),
    "windows of windows": lambda x: x.unfold(1, 3, 1).unfold(0, 2, 2),
    "row": lambda x: x[1],
    "column": lambda x: x[:, 2],
    "turned": lambda x: x.transpose(0, 1)[1:],
    "stepped": lambda x: x[::2, 1:],
    "expanded": lambda x: x[1:2].expand(3, *x.shape[1:]),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("base", BASES)
def test_views_of_what_is_written_later_with_gaps_in_memory(base: str, view: str) -> None:
    """A diagonal's stride is one step along each of two axes, and was taken for many along one."""
    found = []
    for T in (torch, adjit):
        x = BASES[base](T)
        seen = VIEWS[view](x)
        w = T.arange(float(x.numel())).reshape(x.shape).add(1).requires_grad_()
        x.mul_(w)
        (seen * T.arange(float(seen.numel())).reshape(seen.shape)).sum().backward()
        found.append((seen.tolist(), w.grad.tolist()))
    assert found[0] == found[1]


def test_asarray_shares_what_it_can() -> None:
    for library in (adjit, torch):
        array, data = np.ones(2), bytearray(b"ab")
        tensors = library.asarray(array), library.asarray(data, dtype=library.uint8)
        copies = library.asarray(array, copy=True), library.asarray(tensors[0], copy=True)
        array[0], data[0] = 5, 122
        assert [t.tolist() for t in tensors] == [[5, 1], [122, 98]]
        assert [t.tolist() for t in copies] == [[1, 1], [1, 1]]
        assert library.asarray(tensors[0]) is tensors[0]
        assert not library.asarray(copies[0]).requires_grad
        assert library.asarray(copies[0], requires_grad=True).is_leaf
        history = copies[0] * 2
        assert library.asarray(history, requires_grad=True).grad_fn is history.grad_fn
        assert not library.asarray(history, requires_grad=False).requires_grad
        assert library.asarray(DLPack(tensors[0].detach())).tolist() == [5, 1]


class DLPack:
    """What shows its memory in one way alone."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


SIZES = {
    "a number of NumPy's": (np.int64(3),), "a product": (np.prod((2, 3)),),
    "an array of no axes": (np.array(3),),
    "two numbers": (np.int32(2), 3), "a truth value": (True,), "a float": (np.float32(3.0),),
    "a float of Python's": (3.0,),
    "a float in an array": (np.array(2.5),), "elements": ([1.0, 2.0],), "an array": (np.arange(3),),
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("kind", ["Tensor", "FloatTensor", "LongTensor", "new"])
def test_old_constructors_take_sizes_and_elements(kind: str, name: str) -> None:
    def shape(library):  # type: ignore[no-untyped-def]
        make = library.ones(1).new if kind == "new" else getattr(library, kind)
        try:
            made = make(*SIZES[name])
        except TypeError as error:
            return str(error)
        return tuple(made.shape), str(made.dtype).rpartition(".")[2]

    assert shape(adjit) == shape(torch)
