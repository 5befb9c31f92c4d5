"""Results in memory of their own view nothing, and what is written fits: beside PyTorch."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from against_torch import agree_in_error, plain, torch

import adjit

x3, M = np.arange(3.0), np.arange(12.0).reshape(3, 4)

# Calls that end in a view of what they have computed, with the shapes of their arguments.
FRESH = {
    "reshape with a copy": (lambda T, x: x.t().reshape(-1), [(2, 3)]),
    "flatten with a copy": (lambda T, x: x.t().flatten(), [(2, 3)]),
    "vector @ matrix": (lambda T, x, y: x @ y, [(3,), (3, 4)]),
    "vector @ matrices": (lambda T, x, y: x @ y, [(3,), (2, 3, 4)]),
    "matrices @ vector": (lambda T, x, y: x @ y, [(2, 4, 3), (3,)]),
    "matrices @ matrix": (lambda T, x, y: x @ y, [(2, 5, 3), (3, 4)]),
    "linear of a vector": (lambda T, x, w, b: F(T).linear(x, w, b), [(3,), (4, 3), (4,)]),
    "linear of sequences": (lambda T, x, w, b: F(T).linear(x, w, b), [(2, 5, 3), (4, 3), (4,)]),
    "attention": (lambda T, x: F(T).scaled_dot_product_attention(x, x, x), [(4, 3, 8)]),
    "kron": (lambda T, x, y: T.kron(x, y), [(2, 3), (3, 2)]),
    "roll": (lambda T, x: x.roll(1), [(3, 4)]),
    "combinations": (lambda T, x: T.combinations(x), [(3,)]),
    "quantile": (lambda T, x: T.quantile(x, 0.5, keepdim=True), [(3,)]),
    "lstm": (lambda T, x: T.nn.LSTM(3, 4).to(x.dtype)(x)[0], [(5, 2, 3)]),
    "gru": (lambda T, x: T.nn.GRU(3, 4, batch_first=True).to(x.dtype)(x)[0], [(5, 2, 3)]),
}


def F(T):
    return importlib.import_module(f"{T.__name__}.nn.functional")


@pytest.mark.parametrize("name", FRESH)
def test_results_of_an_op_view_nothing(name):
    call, shapes = FRESH[name]
    of_pytorch = [] if name.startswith("linear") else [torch]  # whose linear layers end in a view
    for library in (*of_pytorch, adjit):
        rng = np.random.default_rng(0)
        given = [library.tensor(rng.standard_normal(shape)) for shape in shapes]
        w = library.ones((), dtype=library.float64, requires_grad=True)
        with library.no_grad():
            out = call(library, *[t.requires_grad_() for t in given])
        assert not out._is_view()
        assert out._base is None
        out.mul_(w)  # which a view made without gradients may not
        out.sum().backward()
        assert w.grad is not None
        made = call(library, *given)
        made.mul_(2)
        assert (
            type(made.grad_fn).__name__ == "MulBackward0" or made.grad_fn.name() == "MulBackward0"
        )
        part = made[:1]
        assert part._base is made
        assert made.detach_().is_leaf


def test_gradients_after_a_write_into_a_reshaped_copy():
    grads = []
    for library in (torch, adjit):
        x = library.tensor(M, requires_grad=True)
        y = (x * 2).t().reshape(-1)
        z = y[2:5]
        z.mul_(library.arange(1.0, 4.0, dtype=library.float64))
        (y * y).sum().backward()
        grads.append(x.grad.numpy())
    np.testing.assert_allclose(*grads)


WIDER = [((1, 3), (2, 3)), ((2, 1), (2, 3)), ((3,), (2, 3)), ((2, 3), (1, 2, 3)), ((), (1,))]


@pytest.mark.parametrize(("shape", "wider"), WIDER, ids=str)
@pytest.mark.parametrize("how", ["leaf", "history", "part", "source"])
def test_copy_takes_no_more_than_there_is_room_for(shape, wider, how):
    def call(T, x, y):
        if how == "part":
            x = T.stack([x, x])[0]
        if how == "history":
            x = x.requires_grad_() * 1
        return x.copy_(y.requires_grad_(how == "source"))

    agree_in_error(call, np.zeros(shape), np.ones(wider))


@pytest.mark.parametrize(("shape", "wider"), WIDER, ids=str)
def test_losses_take_no_wider_weights(shape, wider):
    x, y = np.full(shape, 0.5), np.full(wider, 0.5)
    agree_in_error(lambda T, x, w: F(T).binary_cross_entropy_with_logits(x, x, w), x, y)
    agree_in_error(lambda T, x, w: F(T).binary_cross_entropy_with_logits(x, x, pos_weight=w), x, y)
    agree_in_error(lambda T, x, t: F(T).soft_margin_loss(x, t), x, y)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        F(adjit).binary_cross_entropy(*map(adjit.tensor, (x, x, y)))


def test_strides_of_expanded_tensors():
    for given, shape in [
        ((3,), (1, 3)), ((3,), (1, 1, 2, 3)), ((3,), (2, 1, 3)), ((), (1, 1)), ((), (1, 2, 1)),
        ((1, 3), (1, 2, 3)), ((1, 3), (1, 1, 1, 3)), ((4, 2), (1, 4, 2)), ((4, 2), (3, 1, 4, 2)),
    ]:  # fmt: skip
        ours, theirs = (T.ones(given).expand(shape).stride() for T in (adjit, torch))
        assert ours == theirs


@pytest.mark.filterwarnings("ignore:.* is deprecated on 0-D tensors")
@pytest.mark.parametrize("name", ["H", "mH", "mT", "adjoint"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4)])
def test_transposed_matrices(name, shape):
    def call(T, x):
        made = getattr(x, name)
        return made() if name == "adjoint" else made

    x = np.arange(np.prod(shape)).reshape(shape)
    if len(shape) == 1 or (name == "H" and len(shape) == 3):
        agree_in_error(call, x)
    else:
        np.testing.assert_array_equal(
            call(adjit, adjit.tensor(x)).numpy(), x.swapaxes(-1, -2) if shape else x
        )


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages_of_elements():
    told = []
    for T in (adjit, torch):
        x = T.tensor([[1.0, 2.0], [3.0, 4.0]])
        s = x[1].storage()
        found = [repr(s), len(s), s.size(), s[1], s[-1], s.nbytes(), s.element_size(), list(s)]
        s[0] = 7
        x.mul_(2)
        found += [
            x.tolist(),
            s.tolist(),
            x.t().storage().tolist(),
            x.t().contiguous().storage().tolist(),
        ]
        found += [T.zeros(3, 4)[::2, 1].storage().size(), T.arange(3)[1:].storage().tolist()]
        found += [s.data_ptr() == x.data_ptr(), s.untyped().nbytes(), T.ones(0).storage().size()]
        for wrong in (4, -5, "a", slice(1, 2)):
            with pytest.raises((IndexError, RuntimeError)) as caught:
                s[wrong]
            found.append((caught.type, str(caught.value).replace(".tensor.", ".storage.")))
        told.append([plain(one) for one in found])
    assert told[0] == told[1]
    with pytest.warns(UserWarning, match="use tensor.untyped_storage"):
        adjit.ones(2).storage()


def test_pythons_types_are_dtypes():
    for T in (adjit, torch):
        for kind, wanted in ((float, T.float64), (int, T.int64), (bool, T.bool)):
            x = T.ones(2, dtype=kind)
            assert x.dtype is wanted
            assert T.ones(2).to(kind).dtype is T.zeros_like(x).dtype is wanted
            assert T.ones(2).sum(dtype=kind).dtype is T.ones(2).prod(dtype=kind).dtype is wanted
            assert T.promote_types(kind, T.bool) is wanted
        assert T.ones(2).mean(dtype=float).dtype is T.float64
        assert T.ones(2).cumsum(0, dtype=int).dtype is T.int64
        assert T.ones(2).softmax(0, dtype=float).dtype is T.float64
        assert T.linalg.vector_norm(T.ones(2), dtype=float).dtype is T.float64
        assert (T.finfo(float).bits, T.iinfo(int).bits) == (64, 64)
        array = np.ones(2, np.float32)
        assert T.asarray(array, dtype=float).dtype is T.float64
        with pytest.raises(ValueError, match="dtype 'Float' into dtype 'Double'"):
            T.asarray(array, dtype=float, copy=False)
        assert T.can_cast(bool, int)
        assert not T.can_cast(float, int)
