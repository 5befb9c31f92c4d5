"""Gradient clipping and flat parameter vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from library import T, array, raises, same, warns

utils = T.nn.utils


def parameters(*grads: Any) -> list[Any]:
    """Parameters with the given gradients, None for one that has none."""
    made = []
    for grad in grads:
        parameter = T.nn.Parameter(T.zeros(2 if grad is None else len(grad)))
        parameter.grad = None if grad is None else T.tensor(grad)
        made.append(parameter)
    return made


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, float("inf")])
def test_norms_are_clipped_together(order: float) -> None:
    grads = [[3.0, -4.0], [12.0]]
    params = parameters(grads[0], None, grads[1])
    flat = np.array([3.0, -4.0, 12.0])
    norm = np.linalg.norm(flat, order)
    total = utils.clip_grad_norm_(params, 1.0, norm_type=order)
    same(total, norm)
    assert not total.requires_grad
    clipped = np.concatenate([array(params[0].grad), array(params[2].grad)])
    np.testing.assert_allclose(clipped, flat / norm, rtol=1e-5)
    assert params[1].grad is None


def test_small_norms_are_left_alone() -> None:
    params = parameters([0.3, 0.4])
    same(utils.clip_grad_norm_(iter(params), 1.0), 0.5)
    same(params[0].grad, [0.3, 0.4])


def test_one_tensor_is_enough() -> None:
    (param,) = parameters([3.0, 4.0])
    utils.clip_grad_norm_(param, 0.5)
    same(param.grad, [0.3, 0.4], rtol=1e-5)
    utils.clip_grad_value_(param, 0.35)
    same(param.grad, [0.3, 0.35], rtol=1e-5)


def test_values_are_clipped_one_by_one() -> None:
    params = parameters([3.0, -0.25], None, [-7.0])
    utils.clip_grad_value_(params, 0.5)
    same(params[0].grad, [0.5, -0.25])
    same(params[2].grad, [-0.5])


def test_total_norm() -> None:
    same(utils.get_total_norm([T.tensor([3.0]), T.tensor([[4.0]])]), 5.0)
    same(utils.get_total_norm(T.tensor([3.0, 4.0])), 5.0)
    same(utils.get_total_norm([]), 0.0)
    same(utils.clip_grad_norm_(parameters(None), 1.0), 0.0)


def test_nothing_to_clip() -> None:
    with warns(UserWarning, "`parameters` is an empty generator, no gradient clipping will occur."):
        utils.clip_grad_norm_((p for p in []), 1.0)
    utils.clip_grad_norm_([], 1.0)


def test_nonfinite_norms() -> None:
    params = parameters([float("nan"), 1.0])
    with raises(
        RuntimeError,
        "The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot "
        "be clipped. To disable this error and scale the gradients by the non-finite norm anyway, "
        "set `error_if_nonfinite=False`",
    ):
        utils.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    assert array(params[0].grad)[1] == 1.0
    assert np.isnan(array(utils.clip_grad_norm_(params, 1.0)))


def test_vectors_and_back() -> None:
    model = T.nn.Linear(2, 3)
    vector = utils.parameters_to_vector(model.parameters())
    np.testing.assert_array_equal(
        array(vector), np.concatenate([array(model.weight).ravel(), array(model.bias)])
    )
    vector.sum().backward()
    same(model.bias.grad, [1.0, 1.0, 1.0])
    utils.vector_to_parameters(T.arange(9.0), model.parameters())
    same(model.weight, [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    same(model.bias, [6.0, 7.0, 8.0])
    assert model.weight.requires_grad
    with raises(TypeError, "expected torch.Tensor, but got: list"):
        utils.vector_to_parameters([1.0], model.parameters())


def test_a_module_has_other_tensors_for_a_while():
    m = T.nn.Linear(2, 1, bias=False)
    mine, given = m.weight, {"weight": T.tensor([[1.0, 2.0]])}
    with T.nn.utils.stateless._reparametrize_module(m, given):
        same(m(T.ones(2)), [3.0])
    assert m.weight is mine
    with (
        raises(AttributeError, "Linear has no attribute `nothing`"),
        T.nn.utils.stateless._reparametrize_module(m, {**given, "nothing.there": mine}),
    ):
        pass
    assert m.weight is mine
