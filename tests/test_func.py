"""Transforms of functions: gradients by levels, nested in any order, beside PyTorch's `torch.func`."""

import numpy as np

import adjit


def test_gradients_of_several_vectors_at_once():
    x = adjit.randn(3, 4, dtype=adjit.float64, requires_grad=True)
    y = (x * x).sin() / (x.exp() + 2)
    vectors = adjit.randn(5, 3, 4, dtype=adjit.float64)
    (found,) = adjit.autograd.grad(y, x, vectors, retain_graph=True, is_grads_batched=True)
    for v, g in zip(vectors, found, strict=True):
        (wanted,) = adjit.autograd.grad(y, x, v, retain_graph=True)
        np.testing.assert_allclose(g.detach().numpy(), wanted.numpy(), rtol=1e-12)
