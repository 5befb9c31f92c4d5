"""No elements, no dimensions, sizes of 1: what is computed of them, and that it has a history."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import adjit

LINES = """
T.matmul(a(2,3,0),a(0)); T.matmul(a(0,2,0),a(0,3)); T.matmul(a(2,3,0),a(1,0,2)); T.matmul(a(0),a(2,0,3));
T.matmul(a(2,0),a(5,0,3)); T.matmul(a(2,3,0),a(0,4)); T.matmul(a(0,3),a(3,4)); T.matmul(a(5,0,3),a(5,3,2));
T.matmul(a(4,1,0,2),a(3,2,2)); F.linear(a(2,3,0),a(4,0),a(4)); F.linear(a(2,3,0),a(4,0));
F.linear(a(0),a(4,0),a(4)); F.linear(a(0,3),a(4,3),a(4)); F.linear(a(5,0,3),a(4,3),a(4));
F.linear(a(2,3),a(0,3),a(0)); T.mm(a(2,0),a(0,3)); T.mv(a(2,0),a(0)); T.dot(a(0),a(0)); T.outer(a(0),a(3));
T.bmm(a(2,3,0),a(2,0,4)); T.addmm(a(2,3),a(2,0),a(0,3),beta=3); T.addmv(a(2),a(2,0),a(0),beta=2);
T.baddbmm(a(2,3,4),a(2,3,0),a(2,0,4)); T.addbmm(a(3,4),a(0,3,2),a(0,2,4)); T.addbmm(a(0,4),a(2,0,3),a(2,3,4));
T.addbmm(a(3,0),a(2,3,2),a(2,2,0)); T.addbmm(a(3,4),a(2,3,0),a(2,0,4));
T.einsum('ij,jk->ik',a(2,0),a(0,3)); T.einsum('bij,bjk->bik',a(0,2,2),a(0,2,3)); T.einsum('ii->',a(0,0));
T.tensordot(a(2,0),a(0,3),1); T.tensordot(a(2,0,3),a(0,3,4),2); T.tensordot(a(2,0),a(0,3),0);
T.tensordot(a(1,2),a(3,4),dims=([0],[0])); T.tensordot(a(1,2,3),a(5,2,4),dims=([0,1],[0,1]));
T.tensordot(a(5,2,3),a(1,2,4),dims=([0,1],[0,1])); T.tensordot(a(2,1),a(3,4),1);
T.tensordot(a(2,3),a(1,4),1); T.tensordot(a(2,1,3),a(4,1,5),2); T.tensordot(a(2,3),a(1,4),dims=([-1],[-2]));
T.kron(a(0,2),a(3,1)); T.inner(a(2,0),a(3,0)); T.inner(a(0,4),a(0,4)); T.inner(a(0,4),a(3,4));
F.conv1d(a(0,2,5),a(3,2,2));
F.conv2d(a(0,2,5,5),a(3,2,2,2),a(3)); F.max_pool2d(a(0,2,4,4),2); F.conv_transpose2d(a(0,2,5,5),a(2,3,2,2));
F.avg_pool2d(a(0,2,4,4),2); F.adaptive_avg_pool2d(a(0,2,4,4),2); F.interpolate(a(0,2,4,4),scale_factor=2);
F.batch_norm(a(0,2,4),None,None,a(2),a(2),True); F.group_norm(a(0,2,3),1,a(2),a(2));
F.layer_norm(a(0,3),(3,),a(3),a(3)); F.grid_sample(a(0,2,4,4),a(0,3,3,2));
F.grid_sample(a(2,2,4,4),a(2,0,3,2)); T.median(a(0)); T.nanmedian(a(0,2)); T.softmax(a(0,3),1);
T.logsumexp(a(3,0),1); F.cross_entropy(a(0,3),T.zeros(0,dtype=T.int64)); F.mse_loss(a(0,3),a(0,3));
T.prod(a(0,3),0); T.amax(a(0,3),1); T.cumprod(a(0,3),1); T.stack([a(0,3),a(0,3)]); a(0,3).repeat(2,2);
F.glu(a(4,0)); F.unfold(a(0,2,4,4),2); T.diff(a(1,3),n=0,dim=1,prepend=a(1,1));
T.diff(a(3),prepend=a(1),append=a(2)); T.diff(a(1,3),n=9,dim=1,append=a(1,1));
T.diff(a(2,3),n=2,dim=0,prepend=a(1,3)); T.diff(a(0),prepend=a(1)); T.tensor(3.).unfold(0,1,1);
T.tensor(3.).unfold(0,0,1); T.tensor(3.).unfold(-1,1,2); T.arange(4.).unfold(-1,0,2);
T.zeros(0,dtype=T.int64).median()
"""
CALLS = [" ".join(line.split()) for line in LINES.split(";")]


def seen(library: Any, call: str) -> list[Any]:
    """The result of a call, whether it has a history, and the gradients of its arguments."""
    leaves: list[Any] = []

    def a(*shape: int) -> Any:
        size = int(np.prod(shape))
        values = np.linspace(-1, 1, size).reshape(shape)
        leaves.append(library.tensor(values, dtype=library.float64, requires_grad=True))
        return leaves[-1]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = eval(call, {"T": library, "F": library.nn.functional, "a": a})
    found = [out.detach().numpy(), out.requires_grad]
    if out.requires_grad:
        grads = library.autograd.grad(out.sum(), leaves, materialize_grads=True)
        found += [g.numpy(force=True) for g in grads]
    return found


@pytest.mark.parametrize("call", CALLS)
def test_results_and_gradients_are_those_of_pytorch(call: str) -> None:
    torch = pytest.importorskip("torch")
    found, wanted = seen(adjit, call), seen(torch, call)
    for one, other in zip(found, wanted, strict=True):
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


def test_products_over_no_elements_are_sums_of_nothing() -> None:
    x, w = adjit.ones(2, 3, 0, requires_grad=True), adjit.ones(4, 0, requires_grad=True)
    out = adjit.nn.functional.linear(x, w, adjit.full((4,), 2.0))
    assert out.tolist() == [[[2.0] * 4] * 3] * 2
    out.sum().backward()
    assert (x.grad.shape, w.grad.shape) == ((2, 3, 0), (4, 0))


def test_a_window_of_no_dimensions() -> None:
    assert adjit.tensor(3.0).unfold(0, 1, 1).tolist() == [3.0]
    assert adjit.tensor(3.0).unfold(0, 0, 1).shape == (0,)
    x = adjit.tensor(3.0, requires_grad=True)
    x.unfold(0, 1, 1).sum().backward()
    assert x.grad.item() == 1.0


def test_sizes_of_one_are_broadcast_by_tensordot() -> None:
    a, b = adjit.tensor([[1.0, 2.0]]), adjit.tensor([[3.0], [4.0]])
    assert adjit.tensordot(a, b, ([0], [0])).tolist() == [[7.0], [14.0]]
    with pytest.raises(
        RuntimeError, match="contracted dimensions need to match, but first has size 2"
    ):
        adjit.tensordot(a, adjit.ones(3, 2), ([1], [0]))


def test_places_along_an_axis_count_from_its_end() -> None:
    x = adjit.arange(6.0).view(2, 3).requires_grad_()
    found = adjit.take_along_dim(x, adjit.tensor([[-1], [-3]]), 1)
    assert found.tolist() == [[2.0], [3.0]]
    found.sum().backward()
    assert x.grad.tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    around = adjit.take_along_dim(x, adjit.tensor([[-4], [7]]), 1)  # as in PyTorch
    assert around.tolist() == [[2.0], [4.0]]
    with pytest.raises(IndexError, match="Dimension specified as 0 but tensor has no dimensions"):
        adjit.take_along_dim(adjit.tensor(1.0), adjit.tensor(0), 0)


@pytest.mark.parametrize("name", ["argmin", "argmax", "max", "min", "median", "mode", "cummax"])
def test_extremes_along_an_axis_beside_an_empty_one(name: str) -> None:
    found = getattr(adjit.ones(3, 0), name)(0)
    values = found if name.startswith("arg") else found[0]
    assert values.shape == ((3, 0) if name == "cummax" else (0,))


@pytest.mark.parametrize("shape", [[], [[]], [[], []], [[[]]], ((), ())], ids=str)
def test_a_tensor_of_nothing_has_the_dtype_that_was_asked_for(shape: Any) -> None:
    torch = pytest.importorskip("torch")  # the sizes beside the dtype

    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64"):
        for made in (
            lambda T, name=name: T.tensor(shape, dtype=getattr(T, name)),
            lambda T, name=name: T.as_tensor(shape, dtype=getattr(T, name)),
            lambda T, name=name: T.zeros(2).new_tensor(shape, dtype=getattr(T, name)),
        ):
            own, theirs = made(adjit), made(torch)
            assert (own.dtype.name, own.shape) == (name, theirs.shape)
            assert own.numpy().dtype == theirs.numpy().dtype


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,), (2, 0, 3)])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce_of_nothing(shape, reduce):
    """A mean looked for the first row of no indices."""
    for dim in range(len(shape)):
        for include_self in (True, False):
            x = adjit.zeros(shape, requires_grad=True)
            index = adjit.zeros(shape, dtype=adjit.int64)
            out = x.scatter_reduce(dim, index, x * 2, reduce, include_self=include_self)
            assert out.shape == shape
            out.sum().backward()
            assert x.grad.shape == shape
    row = adjit.ones(2, 3)  # nothing goes into it
    index = adjit.zeros(0, 3, dtype=adjit.int64)
    assert (row.scatter_reduce(1, index, index.float(), reduce) == 1).all()
